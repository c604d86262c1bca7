//! What is read first on a page: verdicts with their proof, closed books, advice. Plain HTML, for each device.

use super::{View, escape};
use crate::explanation::{Advice, Explanation, Verdict, VerdictKind};
use crate::recording::{Device, Recording};
use plimsoll_memory::format_bytes;
use plimsoll_memory::quoted;
use std::io::{self, Write};

/// Facts of a proof that are seen without asking for the others.
const FACTS: usize = 6;

/// Writes the header: where the recording comes from, then a section for each device.
pub(super) fn write(recording: &Recording, views: &[View<'_>], out: &mut dyn Write) -> io::Result<()> {
    let origin = &recording.origin;
    let formats: Vec<&str> = origin.formats.iter().map(|format| format.name()).collect();
    writeln!(
        out,
        r#"<p class="origin">{} · {}"#,
        escape(origin.framework.name()),
        escape(&formats.join(", "))
    )?;
    writeln!(out, r#"· <span class="files">{}</span></p>"#, text(&origin.files.join(", ")))?;
    if !origin.gaps.is_empty() {
        let sentences: Vec<String> = origin.gaps.iter().map(|gap| text(gap)).collect();
        writeln!(out, r#"<p class="gaps"><b>Note.</b> {}</p>"#, sentences.join(" "))?;
    }
    for (number, view) in views.iter().enumerate() {
        let hidden = if number == 0 { "" } else { " hidden" };
        writeln!(
            out,
            r#"<section class="device" data-device="{number}" aria-label="{}"{hidden}>"#,
            text(view.name)
        )?;
        match view.explanation {
            Some(explanation) => {
                let moment = explanation.snapshot.moment;
                let snapshot = &explanation.snapshot;
                let shown = if snapshot.layout.is_some() || !snapshot.holders.is_empty() {
                    "Verdicts, books, map and holders"
                } else {
                    "Verdicts and books"
                };
                writeln!(out, r#"<p class="moment">{shown} are <b>{moment}</b>.</p>"#)?;
                if let Some((first, rest)) = explanation.verdicts.split_first() {
                    verdict(first, explanation.advice.first(), out)?;
                    if !rest.is_empty() {
                        writeln!(
                            out,
                            r#"<details class="also"><summary>Also: {} more</summary>"#,
                            rest.len()
                        )?;
                        rest.iter().try_for_each(|v| verdict(v, None, out))?;
                        writeln!(out, "</details>")?;
                    }
                }
                advice(&explanation.advice, out)?;
                figures(explanation, view.device, out)?;
                books(explanation, out)?;
            }
            None => view.device.map_or(Ok(()), |device| recorded_figures(device, out))?,
        }
        writeln!(out, "</section>")?;
    }
    Ok(())
}

/// Untrusted text, without what would turn the direction of writing.
fn text(untrusted: &str) -> String {
    escape(&quoted(untrusted))
}

/// A number of bytes in words, exact when pointed at.
fn bytes(bytes: u64) -> String {
    format!(r#"<span title="{} bytes">{}</span>"#, grouped(bytes), format_bytes(bytes))
}

/// A number with its thousands apart.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

/// Steps that the widths of bars have: a page's policy forbids styles of single elements, so there is a class for each.
const WIDTHS: u32 = 200;

/// The class of a bar that is so many percent wide. What is not nothing shows.
fn width(percent: f64) -> String {
    format!("w{}", (percent / 100.0 * f64::from(WIDTHS)).ceil() as u32)
}

/// The classes of all widths.
pub(super) fn widths() -> String {
    let percent = |step| 100.0 * f64::from(step) / f64::from(WIDTHS);
    (0..=WIDTHS).map(|step| format!(".w{step}{{width:{}%}}", percent(step))).collect()
}

/// A change as words, the setting or command in it that can be pasted, and words again.
fn pasted(change: &str) -> (&str, &str, &str) {
    let name =
        change.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')).unwrap_or(0);
    if name >= 3 && change[name..].starts_with('=') {
        let end = change.find(' ').unwrap_or(change.len());
        return ("", &change[..end], &change[end..]);
    }
    let mut parts = change.splitn(3, '`');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(before), Some(code), Some(after)) => (before, code, after),
        _ => (change, "", ""),
    }
}

/// A headline, the fix right under it with a button that copies it, and what shows it.
fn verdict(verdict: &Verdict, fix: Option<&Advice>, out: &mut dyn Write) -> io::Result<()> {
    let (kind, words) = match verdict.kind {
        VerdictKind::Incomplete => ("incomplete", "Incomplete"),
        VerdictKind::TooBig => ("too-big", "Too big"),
        VerdictKind::Fragmented => ("fragmented", "Fragmented"),
        VerdictKind::Leaking => ("leaking", "Leaking"),
        VerdictKind::ReservedIdle => ("reserved-idle", "Reserved, idle"),
        VerdictKind::TransientPeak => ("transient-peak", "Transient peak"),
        VerdictKind::LimitLow => ("limit-low", "Limit low"),
        VerdictKind::OtherProcess => ("other-process", "Other process"),
        VerdictKind::RefusedWithRoom => ("refused-with-room", "Refused with room"),
        VerdictKind::HostMemory => ("host-memory", "Host memory"),
        VerdictKind::NotMemory => ("not-memory", "Not memory"),
        VerdictKind::Full => ("full", "Full"),
        VerdictKind::Healthy => ("healthy", "Healthy"),
    };
    writeln!(out, r#"<article class="verdict {kind}"><h2><span class="kind">{words}</span>"#)?;
    writeln!(out, "<span>{}</span></h2>", text(&verdict.sentence))?;
    if let Some(fix) = fix.filter(|fix| fix.would_survive != Some(false)) {
        let ((before, code, after), because) = (pasted(&fix.change), text(&fix.because));
        let (before, after) = (text(before), text(after));
        let code = if code.is_empty() { String::new() } else { format!("<code>{}</code>", text(code)) };
        writeln!(out, r#"<p class="fix"><b>Fix:</b> <span class="change">{before}{code}{after}</span>"#)?;
        writeln!(
            out,
            r#"<button type="button" class="copy" aria-label="Copy the fix">copy</button><br>{because}</p>"#
        )?;
    }
    let (first, more) = verdict.proof.split_at(verdict.proof.len().min(FACTS));
    let list = |facts: &[String], out: &mut dyn Write| {
        let items: String = facts.iter().map(|fact| format!("<li>{}</li>", text(fact))).collect();
        writeln!(out, r#"<ul class="proof">{items}</ul>"#)
    };
    if !first.is_empty() {
        list(first, out)?;
    }
    if !more.is_empty() {
        writeln!(out, "<details><summary>{} more facts</summary>", more.len())?;
        list(more, out)?;
        writeln!(out, "</details>")?;
    }
    writeln!(out, "</article>")
}

/// The figures of the moment that is explained, and the bounds that hold at any.
fn figures(explanation: &Explanation, device: Option<&Device>, out: &mut dyn Write) -> io::Result<()> {
    let (snapshot, exact) = (&explanation.snapshot, explanation.is_exact());
    let figure = |name: &str, value: Option<u64>, out: &mut dyn Write| match value {
        Some(value) if !exact => writeln!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", format_bytes(value)),
        value => figure(name, value, out),
    };
    writeln!(out, r#"<dl class="figures">"#)?;
    if let Some(refused) = &snapshot.refused {
        figure("Asked for and refused", Some(refused.requested), out)?;
    }
    figure(&format!("In use {}", snapshot.moment), snapshot.live_bytes, out)?;
    figure(&format!("Reserved {}", snapshot.moment), snapshot.reserved_bytes, out)?;
    figure("Largest hole", snapshot.fragmentation.map(|found| found.largest_hole_bytes), out)?;
    figure("Most in use", explanation.peak.as_ref().map(|peak| peak.live_bytes), out)?;
    figure("Limit", device.and_then(|device| device.limit), out)?;
    figure("Device", device.and_then(|device| device.capacity), out)?;
    writeln!(out, "</dl>")
}

/// What was reported of a device of which nothing is said.
fn recorded_figures(device: &Device, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, r#"<dl class="figures">"#)?;
    figure("In use, as recorded", device.live_bytes(), out)?;
    figure("Reserved, as recorded", device.reserved_bytes(), out)?;
    figure("Limit", device.limit, out)?;
    figure("Device", device.capacity, out)?;
    writeln!(out, "</dl>")
}

fn figure(name: &str, value: Option<u64>, out: &mut dyn Write) -> io::Result<()> {
    match value {
        Some(value) => writeln!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", bytes(value)),
        None => Ok(()),
    }
}

fn books(explanation: &Explanation, out: &mut dyn Write) -> io::Result<()> {
    let (books, moment, exact) = (&explanation.books, explanation.snapshot.moment, explanation.is_exact());
    let bytes = |count: u64| if exact { bytes(count) } else { format_bytes(count) };
    let to_the_byte =
        |count: u64| if exact { format!("{} bytes", grouped(count)) } else { format_bytes(count) };
    // Books in which nothing is known are none.
    if books.total_bytes == 0 || books.lines.iter().all(|line| line.name == "unknown") {
        return Ok(());
    }
    writeln!(out, r#"<div class="books"><h3>Books of {}, {moment}</h3><div class="bar">"#, text(&books.of))?;
    for (number, line) in books.lines.iter().enumerate() {
        let share = percent(line.bytes, books.total_bytes);
        write!(
            out,
            r#"<i class="swatch-{} {}" title="{}: {}, {share:.1} %"></i>"#,
            number % 12,
            width(share),
            text(&line.name),
            to_the_byte(line.bytes)
        )?;
    }
    writeln!(
        out,
        r#"</div><table><thead><tr><th>What<th class="number">Bytes<th class="number">Share<th></tr></thead>"#
    )?;
    for (number, line) in books.lines.iter().enumerate() {
        let share = percent(line.bytes, books.total_bytes);
        let (name, swatch) = (text(&line.name), number % 12);
        writeln!(
            out,
            r#"<tr><td><i class="key swatch-{swatch}"></i>{name}<td class="number">{}"#,
            bytes(line.bytes)
        )?;
        writeln!(
            out,
            r#"<td class="number">{share:.1} %<td class="thin"><i class="{}"></i></tr>"#,
            width(share)
        )?;
    }
    let total = bytes(books.total_bytes);
    writeln!(
        out,
        r#"<tfoot><tr><th>Sum<td class="number">{total}<td class="number">100 %<td></tr></tfoot></table></div>"#
    )
}

fn advice(advice: &[Advice], out: &mut dyn Write) -> io::Result<()> {
    if advice.is_empty() {
        return Ok(());
    }
    if advice.iter().all(|advice| advice.would_survive.is_none() && advice.peak_reserved_bytes.is_none()) {
        // Nothing could be replayed, so there are no columns to fill.
        let items = advice
            .iter()
            .map(|advice| format!("<li><b>{}</b><br>{}</li>", text(&advice.change), text(&advice.because)));
        let items: String = items.collect();
        let note = "The effect of each is not known: there is no trace to replay.";
        return writeln!(
            out,
            r#"<div class="advice"><h3>What to change</h3><ul>{items}</ul><p class="hint">{note}</p></div>"#
        );
    }
    let most = advice.iter().filter_map(|a| a.peak_reserved_bytes).max().unwrap_or(0);
    writeln!(
        out,
        r#"<div class="advice"><h3>What to change, and what replay says of it</h3><table><thead><tr>"#
    )?;
    writeln!(
        out,
        r#"<th>Change<th>Would survive<th class="number">Peak reserved<th><th>Because<th></tr></thead>"#
    )?;
    for (number, advice) in advice.iter().enumerate() {
        let (class, survives) = match advice.would_survive {
            Some(true) => ("yes", "yes"),
            Some(false) => ("no", "no"),
            None => ("open", "cannot tell"),
        };
        let peak = advice.peak_reserved_bytes.map_or_else(|| "–".to_string(), bytes);
        let share = percent(advice.peak_reserved_bytes.unwrap_or(0), most);
        let (change, because) = (text(&advice.change), text(&advice.because));
        writeln!(
            out,
            r#"<tr><td class="change">{change}<td><span class="survives {class}">{survives}</span>"#
        )?;
        writeln!(
            out,
            r#"<td class="number">{peak}<td class="thin"><i class="{}"></i><td>{because}<td>"#,
            width(share)
        )?;
        if advice.timeline.is_some() {
            let label = format!("Draw over the timeline: {}", quoted(&advice.change));
            let label = escape(&label);
            writeln!(
                out,
                r#"<button class="overlay" data-advice="{number}" aria-pressed="false" aria-label="{label}">compare</button>"#
            )?;
        }
        writeln!(out, "</tr>")?;
    }
    writeln!(out, "</table></div>")
}

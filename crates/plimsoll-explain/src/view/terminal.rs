//! The terminal view of an explanation: what is wrong, the proof, the books, a map, a timeline, tables.
//!
//! The verdict comes first because it is what people came for; all below it is there to be checked against. A
//! part is shown only where its data were recorded. Every string of a recording is untrusted, so that nothing is
//! written that was not made plain first. All figures are those that the explanation holds.

mod holders;
mod map;
mod printer;
mod tables;
mod timeline;

use crate::explanation::{Advice, Explanation, Verdict, VerdictKind};
use printer::{Ink, Printer};
use std::io::{self, Write};

/// How to write for a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// How many columns there are. Fewer than 40 are taken as 40.
    pub width: usize,
    /// Whether colours are wanted; without, no control sequence is written.
    pub colour: bool,
}

impl Default for Style {
    /// As for a file: 80 columns, no colour.
    fn default() -> Style {
        Style { width: 80, colour: false }
    }
}

/// Writes an explanation for people.
///
/// # Errors
/// If writing fails.
pub fn show(explanation: &Explanation, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let printer = &mut Printer::new(style, out);
    title(explanation, printer)?;
    one_device(explanation, printer)?;
    for other in &explanation.others {
        printer.line("")?;
        printer.text(0, Ink::Strong, &other.device)?;
        printer.text(0, Ink::Faint, &other.snapshot.moment.to_string())?;
        one_device(other, printer)?;
    }
    if !explanation.origin.gaps.is_empty() {
        printer.heading("about this recording")?;
        for gap in &explanation.origin.gaps {
            printer.item(Ink::Plain, gap)?;
        }
    }
    Ok(())
}

fn title(explanation: &Explanation, printer: &mut Printer<'_>) -> io::Result<()> {
    let origin = &explanation.origin;
    printer.text(0, Ink::Strong, &origin.files.join(", "))?;
    let mut formats: Vec<&str> = origin.formats.iter().map(|format| format.name()).collect();
    formats.dedup();
    let (framework, moment) = (origin.framework.name().to_string(), explanation.snapshot.moment.to_string());
    let parts = [formats.join(", "), framework, explanation.device.clone(), moment];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    printer.text(0, Ink::Faint, &parts.join(" · "))
}

fn one_device(explanation: &Explanation, printer: &mut Printer<'_>) -> io::Result<()> {
    printer.line("")?;
    let (first, rest) =
        explanation.verdicts.split_first().map_or((None, &[][..]), |(first, rest)| (Some(first), rest));
    if let Some(first) = first {
        show_verdict(first, explanation.advice.first(), printer)?;
    }
    for verdict in rest {
        printer.text(0, Ink::Faint, &format!("also: {}", verdict.sentence))?;
        verdict.proof.iter().try_for_each(|fact| printer.item(Ink::Faint, fact))?;
    }
    tables::advice(&explanation.advice, printer)?;
    let snapshot = &explanation.snapshot;
    tables::books(&explanation.books, snapshot.moment, explanation.is_exact(), printer)?;
    map::show(snapshot, printer)?;
    if let Some(timeline) = &explanation.timeline {
        timeline::show(timeline, printer)?;
    }
    holders::show(&snapshot.holders, snapshot.moment, printer)?;
    if let Some(peak) = explanation.peak.as_ref().filter(|peak| peak.holders != snapshot.holders) {
        holders::show(&peak.holders, peak.moment, printer)?;
    }
    Ok(())
}

/// The headline, the fix right under it, and what shows it.
fn show_verdict(verdict: &Verdict, fix: Option<&Advice>, printer: &mut Printer<'_>) -> io::Result<()> {
    let ink = if verdict.kind == VerdictKind::Healthy { Ink::Good } else { Ink::Bad };
    printer.text(0, ink, &verdict.sentence)?;
    if let Some(fix) = fix.filter(|fix| fix.would_survive != Some(false)) {
        printer.text(0, Ink::Good, &format!("Fix: {}", fix.change))?;
    }
    for fact in &verdict.proof {
        printer.item(Ink::Plain, fact)?;
    }
    Ok(())
}

//! The terminal view of an explanation: what is wrong, the proof, the books, a map, a timeline, tables.
//!
//! The verdict comes first because it is what people came for; all below it is there to be checked against. A
//! part is shown only where its data were recorded. Every string of a recording is untrusted, so that nothing is
//! written that was not made plain first. All figures are those that the explanation holds.

mod map;
mod owners;
mod page;
mod tables;
mod timeline;

use crate::explanation::{Explanation, Verdict, VerdictKind};
use page::{Ink, Page};
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
    let page = &mut Page::new(style, out);
    title(explanation, page)?;
    one_device(explanation, page)?;
    for other in &explanation.others {
        page.line("")?;
        page.text(0, Ink::Strong, &other.device)?;
        page.text(0, Ink::Faint, &other.snapshot.moment.to_string())?;
        one_device(other, page)?;
    }
    if !explanation.origin.gaps.is_empty() {
        page.heading("about this recording")?;
        for gap in &explanation.origin.gaps {
            page.item(Ink::Plain, gap)?;
        }
    }
    Ok(())
}

fn title(explanation: &Explanation, page: &mut Page<'_>) -> io::Result<()> {
    let origin = &explanation.origin;
    page.text(0, Ink::Strong, &origin.files.join(", "))?;
    let mut formats: Vec<&str> = origin.formats.iter().map(|format| format.name()).collect();
    formats.dedup();
    let (framework, moment) = (origin.framework.name().to_string(), explanation.snapshot.moment.to_string());
    let parts = [formats.join(", "), framework, explanation.device.clone(), moment];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    page.text(0, Ink::Faint, &parts.join(" · "))
}

fn one_device(explanation: &Explanation, page: &mut Page<'_>) -> io::Result<()> {
    page.line("")?;
    for verdict in &explanation.verdicts {
        show_verdict(verdict, page)?;
    }
    let snapshot = &explanation.snapshot;
    tables::books(&explanation.books, snapshot.moment, page)?;
    map::show(snapshot, page)?;
    if let Some(timeline) = &explanation.timeline {
        timeline::show(timeline, page)?;
    }
    owners::show(&snapshot.holders, snapshot.moment, page)?;
    if let Some(peak) = explanation.peak.as_ref().filter(|peak| peak.holders != snapshot.holders) {
        owners::show(&peak.holders, peak.moment, page)?;
    }
    tables::advice(&explanation.advice, page)
}

fn show_verdict(verdict: &Verdict, page: &mut Page<'_>) -> io::Result<()> {
    let ink = if verdict.kind == VerdictKind::Healthy { Ink::Good } else { Ink::Bad };
    page.text(0, ink, &verdict.sentence)?;
    for fact in &verdict.proof {
        page.item(Ink::Plain, fact)?;
    }
    Ok(())
}

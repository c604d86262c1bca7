//! The books and the advice, as tables.

use super::printer::{Ink, Printer, bar, share, thousands, wrap};
use crate::explanation::{Advice, Books};
use crate::moment::Moment;
use crate::text::cut;
use plimsoll_memory::format_bytes;
use std::io;

/// Columns of a size (`999 MiB`, right), exact bytes and a share, with the spaces before them.
const SIZE: usize = 10;
const SHARE: usize = 9;
/// Columns that bars have at least.
const BAR: usize = 10;

pub(super) fn books(
    books: &Books,
    moment: Moment,
    is_exact: bool,
    printer: &mut Printer<'_>,
) -> io::Result<()> {
    // Books in which nothing is known are none.
    if books.total_bytes == 0 || books.lines.iter().all(|line| line.name == "unknown") {
        return Ok(());
    }
    printer.heading(&format!("books of {}, {moment}", books.of))?;
    let total = books.total_bytes;
    let exact = if is_exact { thousands(total).len().max("bytes".len()) + 2 } else { 0 };
    let widest = books.lines.iter().map(|line| line.name.chars().count()).max().unwrap_or(0);
    let room = printer.width().saturating_sub(2 + SIZE + exact + SHARE + 2);
    // Long names go on beneath, so that there is room for bars.
    let name = widest.max("total".len()).min(room.saturating_sub(BAR));
    let bars = room.saturating_sub(name).min(32);
    let row = |title: &str, bytes: u64| {
        let (size, share) = (format_bytes(bytes), share(bytes, total));
        let to_the_byte = if is_exact { thousands(bytes) } else { String::new() };
        format!("  {title:<name$}{size:>SIZE$}{to_the_byte:>exact$}{share:>SHARE$}")
    };
    for line in &books.lines {
        let mut title = wrap(&line.name, name).into_iter();
        let text = row(&cut(&title.next().unwrap_or_default(), name), line.bytes);
        let bar = printer.paint(Ink::Live, &bar(line.bytes, total, bars));
        printer.line(&format!("{text}  {bar}"))?;
        for more in title {
            printer.line(&format!("    {}", cut(&more, printer.width() - 4)))?;
        }
    }
    let total = printer.paint(Ink::Strong, &row("total", total));
    printer.line(&total)
}

pub(super) fn advice(advice: &[Advice], printer: &mut Printer<'_>) -> io::Result<()> {
    const SURVIVES: usize = 11;
    const PEAK: usize = 15;
    if advice.is_empty() {
        return Ok(());
    }
    printer.heading("what to change")?;
    let tried = |advice: &Advice| advice.would_survive.is_some() || advice.peak_reserved_bytes.is_some();
    if !advice.iter().any(tried) {
        // Nothing could be replayed, so there are no columns to fill.
        for advice in advice {
            printer.item(Ink::Strong, &advice.change)?;
            printer.text(4, Ink::Faint, &advice.because)?;
        }
        return printer.text(2, Ink::Faint, "the effect of each is not known: there is no trace to replay");
    }
    let width = printer.width() - 2 - SURVIVES - PEAK;
    let head = format!("  {:<width$}{:>SURVIVES$}{:>PEAK$}", "change", "survives", "peak reserved");
    let head = printer.paint(Ink::Faint, &head);
    printer.line(&head)?;
    for advice in advice {
        let (verdict, ink) = match advice.would_survive {
            Some(true) => ("yes", Ink::Good),
            Some(false) => ("no", Ink::Bad),
            None => ("unknown", Ink::Faint),
        };
        let verdict = printer.paint(ink, &format!("{verdict:>SURVIVES$}"));
        let peak = advice.peak_reserved_bytes.map_or_else(|| "–".to_string(), format_bytes);
        for (index, change) in wrap(&advice.change, width).into_iter().enumerate() {
            if index > 0 {
                printer.line(&format!("  {change}"))?;
            } else if change.chars().count() > width {
                // A word too long for its column: the figures go beneath.
                printer.line(&format!("  {change}"))?;
                printer.line(&format!("  {:<width$}{verdict}{peak:>PEAK$}", ""))?;
            } else {
                printer.line(&format!("  {change:<width$}{verdict}{peak:>PEAK$}"))?;
            }
        }
        printer.text(4, Ink::Faint, &advice.because)?;
    }
    Ok(())
}

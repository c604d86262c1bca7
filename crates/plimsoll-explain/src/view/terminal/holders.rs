//! Who held memory at a moment, by call site.

use super::printer::{Ink, Printer, share, thousands};
use crate::moment::{Moment, SiteUsage};
use crate::text::cut;
use plimsoll_memory::format_bytes;
use std::io;

/// The most lines of a table.
const LINES: usize = 10;

pub(super) fn show(sites: &[SiteUsage], moment: Moment, printer: &mut Printer<'_>) -> io::Result<()> {
    if sites.is_empty() {
        return Ok(());
    }
    let total = sites.iter().fold(0_u64, |sum, usage| sum.saturating_add(usage.bytes));
    printer.heading(&format!("who held memory {moment}: {}", format_bytes(total)))?;
    let (shown, rest) = sites.split_at(sites.len().min(LINES));
    let figures = |bytes: u64, count: u64| {
        format!("{:>10}{:>9}{:>9}  ", format_bytes(bytes), share(bytes, total), thousands(count))
    };
    let head = format!("{:>10}{:>9}{:>9}  ", "bytes", "share", "pieces");
    let room = printer.width().saturating_sub(head.chars().count());
    let head = printer.paint(Ink::Faint, &format!("{head}asked for at"));
    printer.line(&head)?;
    for usage in shown {
        let figures = figures(usage.bytes, usage.count);
        let place = cut(&usage.site.location, room);
        let used = place.chars().count();
        let from = usage.site.caller.as_ref().map(|from| format!("from {from}")).unwrap_or_default();
        let from_length = from.chars().count();
        if from.is_empty() || used + 2 + from_length <= room {
            let from = printer.paint(Ink::Faint, &from);
            printer.line(&format!("{figures}{place}  {from}"))?;
        } else {
            printer.line(&format!("{figures}{place}"))?;
            let from = printer.paint(Ink::Faint, &cut(&from, room.saturating_sub(2)));
            printer.line(&format!("{:indent$}{from}", "", indent = figures.chars().count() + 2))?;
        }
    }
    if !rest.is_empty() {
        let sum = |get: fn(&SiteUsage) -> u64| rest.iter().map(get).fold(0, u64::saturating_add);
        let figures = figures(sum(|usage| usage.bytes), sum(|usage| usage.count));
        printer.line(&format!("{figures}{} other places", thousands(rest.len() as u64)))?;
    }
    Ok(())
}

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
    let head = format!("{:>10}{:>9}{:>9}  ", "bytes", "share", "count");
    let room = printer.width().saturating_sub(head.chars().count());
    let head = printer.paint(Ink::Faint, &format!("{head}allocated at"));
    printer.line(&head)?;
    for usage in shown {
        let figures = figures(usage.bytes, usage.count);
        let location = cut(&usage.site.location, room);
        let used = location.chars().count();
        let caller = usage.site.caller.as_ref().map(|caller| format!("from {caller}")).unwrap_or_default();
        let caller_length = caller.chars().count();
        if caller.is_empty() || used + 2 + caller_length <= room {
            let caller = printer.paint(Ink::Faint, &caller);
            printer.line(&format!("{figures}{location}  {caller}"))?;
        } else {
            printer.line(&format!("{figures}{location}"))?;
            let caller = printer.paint(Ink::Faint, &cut(&caller, room.saturating_sub(2)));
            printer.line(&format!("{:indent$}{caller}", "", indent = figures.chars().count() + 2))?;
        }
    }
    if !rest.is_empty() {
        let sum = |get: fn(&SiteUsage) -> u64| rest.iter().map(get).fold(0, u64::saturating_add);
        let figures = figures(sum(|usage| usage.bytes), sum(|usage| usage.count));
        printer.line(&format!("{figures}{} other call sites", thousands(rest.len() as u64)))?;
    }
    Ok(())
}

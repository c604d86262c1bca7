//! The memory map: what lies where, and where the holes are.
//!
//! All rows have one scale, so that lengths can be compared. Large segments have rows of their own, the largest
//! first; small ones share rows at the end. Nothing is left out, whatever the number of segments.

use super::printer::{Ink, Printer, share, thousands};
use crate::moment::{Fragmentation, Snapshot};
use plimsoll_memory::{PieceState, Segment, SegmentClass, format_bytes};
use std::io;

/// A row holds at least this part of all bytes, so that there are about twice as many rows at most.
const ROWS: u64 = 8;

/// The bytes of one cell of a row.
#[derive(Clone, Copy, Default)]
struct Cell {
    live: u64,
    pending: u64,
    free: u64,
}

impl Cell {
    fn look(self) -> (char, Ink) {
        let Cell { live, pending, free } = self;
        match (live, pending, free) {
            (0, 0, 0) => (' ', Ink::Plain),
            (0, 0, _) => ('·', Ink::Faint),
            _ if pending > live && pending > free => ('o', Ink::Pending),
            (_, _, 0) => ('█', Ink::Live),
            _ if live / 2 >= free / 2 => ('▓', Ink::Live),
            _ => ('▒', Ink::Live),
        }
    }
}

pub(super) fn show(snapshot: &Snapshot, printer: &mut Printer<'_>) -> io::Result<()> {
    let (Some(layout), Some(fragmentation)) = (&snapshot.layout, snapshot.fragmentation) else {
        return Ok(());
    };
    let sum = layout.segments.iter().try_fold(0_u64, |sum, segment| sum.checked_add(segment.bytes));
    let Some(total) = sum else {
        return printer.text(0, Ink::Plain, "no memory map: the sizes of its segments overflow");
    };
    if total == 0 {
        return Ok(());
    }
    let count = layout.segments.len();
    let plural = if count == 1 { "segment" } else { "segments" };
    let (moment, size) = (snapshot.moment, format_bytes(total));
    printer.heading(&format!("memory map {moment}: {size} in {} {plural}", thousands(count as u64)))?;
    // A size before the row, what it is after it.
    let cells = printer.width().saturating_sub(10 + 2 + 2 + 24).clamp(16, 96);
    let scale = Scale { row: total.div_ceil(ROWS).max(1), cells };
    let mut segments: Vec<&Segment> = layout.segments.iter().collect();
    // Largest first; the sort is stable, so that equals stay in order of address.
    segments.sort_by_key(|segment| std::cmp::Reverse(segment.bytes));
    let large = segments.partition_point(|segment| segment.bytes >= scale.row / 2);
    let (large, small) = segments.split_at(large);
    for segment in large {
        group(&[segment], scale, printer)?;
    }
    let mut rest = small;
    while !rest.is_empty() {
        let mut bytes = 0_u64;
        let fitting = rest.iter().take_while(|segment| {
            bytes = bytes.saturating_add(segment.bytes);
            bytes <= scale.row
        });
        let (now, later) = rest.split_at(fitting.count().max(1));
        group(now, scale, printer)?;
        rest = later;
    }
    let cell = format_bytes(scale.row.div_ceil(cells as u64));
    printer.text(
        2,
        Ink::Faint,
        &format!("█ live, ▓ mostly, ▒ partly, · free, o pending; a cell is {cell}"),
    )?;
    holes(fragmentation, printer)?;
    if fragmentation.holes > 0 { largest_segments(&segments, printer) } else { Ok(()) }
}

/// One scale for all rows.
#[derive(Clone, Copy)]
struct Scale {
    /// The most bytes in a row.
    row: u64,
    /// The cells of such a row.
    cells: usize,
}

/// Writes the rows of segments that follow each other.
fn group(segments: &[&Segment], scale: Scale, printer: &mut Printer<'_>) -> io::Result<()> {
    let total = segments.iter().fold(0_u64, |sum, segment| sum.saturating_add(segment.bytes));
    let cells = fill(segments, total, scale);
    let live =
        cells.iter().fold(0_u64, |sum, cell| sum.saturating_add(cell.live).saturating_add(cell.pending));
    let kind = match segments {
        [segment] => class(segment).to_string(),
        many => format!("{} segments", thousands(many.len() as u64)),
    };
    for (index, row) in cells.chunks(scale.cells).enumerate() {
        let drawn = draw(row, printer);
        if index == 0 {
            let size = format_bytes(total);
            let text = format!("{size:>10} │{drawn}│ {} live {kind}", share(live, total));
            printer.line(&text)?;
        } else {
            printer.line(&format!("{:>10} │{drawn}│", ""))?;
        }
    }
    Ok(())
}

fn class(segment: &Segment) -> &'static str {
    match segment.class {
        SegmentClass::Small => "small",
        SegmentClass::Large => "large",
        SegmentClass::Any => "",
        SegmentClass::Expandable => "expandable",
    }
}

/// The cells of segments put one after the other.
fn fill(segments: &[&Segment], total: u64, scale: Scale) -> Vec<Cell> {
    let per_row = scale.cells as u128;
    let count = (u128::from(total) * per_row).div_ceil(u128::from(scale.row)).max(1);
    let mut cells = vec![Cell::default(); count as usize];
    // The first byte of a cell; the cell of a byte.
    let first =
        |cell: u128| u64::try_from((cell * u128::from(scale.row)).div_ceil(per_row)).unwrap_or(u64::MAX);
    let cell_of = |byte: u64| u128::from(byte) * per_row / u128::from(scale.row);
    let mut start = 0_u64;
    for segment in segments {
        let mut at = start;
        let end = start.saturating_add(segment.bytes);
        for piece in &segment.pieces {
            let stop = at.saturating_add(piece.bytes).min(end);
            while at < stop {
                let cell = cell_of(at);
                let until = first(cell + 1).clamp(at + 1, stop);
                if let Some(cell) = cells.get_mut(cell as usize) {
                    match piece.state {
                        PieceState::Live => cell.live += until - at,
                        PieceState::Pending => cell.pending += until - at,
                        PieceState::Free => cell.free += until - at,
                    }
                }
                at = until;
            }
        }
        start = end;
    }
    cells
}

/// Cells as text, runs of one ink painted together.
fn draw(cells: &[Cell], printer: &Printer<'_>) -> String {
    let mut text = String::new();
    for run in cells.chunk_by(|a, b| a.look().1 == b.look().1) {
        let look: String = run.iter().map(|cell| cell.look().0).collect();
        text += &printer.paint(run.first().map_or(Ink::Plain, |cell| cell.look().1), &look);
    }
    text
}

/// Names the holes: how many, how large, and where the largest is.
fn holes(found: Fragmentation, printer: &mut Printer<'_>) -> io::Result<()> {
    let (largest, address) = (format_bytes(found.largest_hole_bytes), found.largest_hole_address);
    let text = match found.holes {
        0 => "no holes: every reserved byte is in use".to_string(),
        1 => format!("one hole: {largest} at {address:#x}"),
        count => format!(
            "{} holes, {} together; the largest is {largest} at {address:#x}",
            thousands(count as u64),
            format_bytes(found.free_bytes)
        ),
    };
    printer.text(2, Ink::Plain, &text)
}

/// Names the largest segments, with their addresses.
fn largest_segments(segments: &[&Segment], printer: &mut Printer<'_>) -> io::Result<()> {
    let named = segments.iter().take(3).map(|s| format!("{} at {:#x}", format_bytes(s.bytes), s.address));
    let named: Vec<String> = named.collect();
    let title = if segments.len() == 1 { "the segment" } else { "largest segments" };
    printer.text(2, Ink::Plain, &format!("{title}: {}", named.join(", ")))
}

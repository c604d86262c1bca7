//! The timeline: live and reserved bytes over a trace, as a chart of block characters.

use super::printer::{Ink, Printer, thousands};
use crate::moment::Timeline;
use plimsoll_memory::format_bytes;
use std::io;

/// How many lines the chart is high.
const HEIGHT: usize = 10;
/// Columns left of the chart: a size and the axis.
const AXIS: usize = 12;

pub(super) fn show(timeline: &Timeline, printer: &mut Printer<'_>) -> io::Result<()> {
    let columns = printer.width().saturating_sub(AXIS).min(120);
    let curve = &timeline.curve;
    let peak = |bytes: &[u64]| bytes.iter().copied().max().unwrap_or(0);
    let (live, reserved) = (peak(&curve.live), peak(&curve.reserved));
    let top = live.max(reserved);
    if timeline.events == 0 || top == 0 {
        return Ok(());
    }
    let mut heading = format!("timeline: {} live at most", format_bytes(live));
    if !curve.reserved.is_empty() {
        heading += &format!(", {} reserved at most", format_bytes(reserved));
    }
    printer.heading(&heading)?;

    let live = in_columns(&curve.live, columns);
    let reserved = in_columns(&curve.reserved, columns);
    for row in (0..HEIGHT).rev() {
        let label = match row {
            row if row == HEIGHT - 1 => format_bytes(top),
            row if row == HEIGHT / 2 => format_bytes(top / 2),
            0 => "0 B".to_string(),
            _ => String::new(),
        };
        let cells = (0..columns).map(|column| {
            let live = eighths(live[column], top, row);
            let reserved = eighths(reserved[column], top, row) > 0;
            match live {
                0 if reserved => ('░', Ink::Faint),
                0 => (' ', Ink::Plain),
                live => (BLOCKS[live - 1], Ink::Live),
            }
        });
        let cells: Vec<(char, Ink)> = cells.collect();
        let mut line = format!("{label:>10} ┤");
        for run in cells.chunk_by(|a, b| a.1 == b.1) {
            let text: String = run.iter().map(|cell| cell.0).collect();
            line += &printer.paint(run.first().map_or(Ink::Plain, |cell| cell.1), &text);
        }
        printer.line(&line)?;
    }
    printer.line(&format!("{:>10} └{}", "", "─".repeat(columns)))?;
    let marks = marks(timeline, columns);
    if !marks.trim().is_empty() {
        printer.line(&format!("{:>AXIS$}{marks}", ""))?;
    }
    legend(timeline, marks.contains('\''), printer)
}

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// How much of a row a column of so many bytes fills, in eighths. What is not nothing shows in the lowest row.
fn eighths(bytes: u64, top: u64, row: usize) -> usize {
    let full = (8 * HEIGHT) as u128;
    let height = (full * u128::from(bytes)).div_ceil(u128::from(top)) as usize;
    height.saturating_sub(8 * row).min(8)
}

/// The most of the stretches that each column stands for; a curve of fewer stretches than columns is widened.
fn in_columns(stretches: &[u64], columns: usize) -> Vec<u64> {
    let first = |column: usize| column * stretches.len() / columns;
    let of =
        |column: usize| stretches.iter().skip(first(column)).take((first(column + 1) - first(column)).max(1));
    (0..columns).map(|column| of(column).copied().max().unwrap_or(0)).collect()
}

/// The line beneath the axis: `'` where a step ended, `X` where a request was refused. So many steps that they
/// would fill the line are left out.
fn marks(timeline: &Timeline, columns: usize) -> String {
    let stretches = timeline.curve.live.len().max(1);
    let column = |&stretch: &usize| {
        let at = stretch * columns;
        // Widened, a stretch is drawn where it begins.
        let at = if stretches <= columns { at.div_ceil(stretches) } else { at / stretches };
        at.min(columns - 1)
    };
    let mut steps: Vec<usize> = timeline.curve.marks.iter().map(column).collect();
    steps.dedup();
    if steps.len() > columns / 3 {
        steps.clear();
    }
    let mut line = vec![' '; columns];
    steps.into_iter().for_each(|at| line[at] = '\'');
    timeline.curve.refusals.iter().map(column).for_each(|at| line[at] = 'X');
    line.into_iter().collect::<String>().trim_end().to_string()
}

fn legend(timeline: &Timeline, steps: bool, printer: &mut Printer<'_>) -> io::Result<()> {
    let mut parts = vec!["█ live".to_string()];
    if !timeline.curve.reserved.is_empty() {
        parts.push("░ reserved".to_string());
    }
    match thousands(timeline.marks as u64) {
        _ if timeline.marks == 0 => {}
        count if steps => parts.push(format!("' mark ({count})")),
        count => parts.push(format!("{count} marks, too many to draw")),
    }
    if timeline.refusals > 0 {
        parts.push(format!("X out of memory ({})", thousands(timeline.refusals as u64)));
    }
    let mut text = format!("{} events", thousands(timeline.events as u64));
    if timeline.microseconds > 0 {
        text += &format!(" over {:.3} s", timeline.microseconds as f64 / 1e6);
    }
    if !timeline.complete {
        text += ", the recording began later than the program";
    }
    printer.text(AXIS, Ink::Faint, &format!("{text}: {}", parts.join(", ")))
}

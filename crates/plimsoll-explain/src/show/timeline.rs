//! The timeline: live and reserved bytes over a trace, as a chart of block characters.

use super::page::{Ink, Page, thousands};
use crate::usage::curve;
use plimsoll_memory::{Action, Trace, format_bytes};
use std::io;

/// How many lines the chart is high.
const HEIGHT: usize = 10;
/// Columns left of the chart: a size and the axis.
const AXIS: usize = 12;

pub(super) fn show(trace: &Trace, page: &mut Page<'_>) -> io::Result<()> {
    let columns = page.width().saturating_sub(AXIS).min(120);
    let curve = curve(trace, columns);
    let peak = |bytes: &[u64]| bytes.iter().copied().max().unwrap_or(0);
    let (live, reserved) = (peak(&curve.live), peak(&curve.reserved));
    let top = live.max(reserved);
    if trace.events.is_empty() || top == 0 {
        return Ok(());
    }
    let mut heading = format!("timeline: {} live at most", format_bytes(live));
    if !curve.reserved.is_empty() {
        heading += &format!(", {} reserved at most", format_bytes(reserved));
    }
    page.heading(&heading)?;

    // A trace of fewer events than columns is stretched.
    let drawn = curve.live.len();
    let stretch = |column: usize| column * drawn / columns;
    for row in (0..HEIGHT).rev() {
        let label = match row {
            row if row == HEIGHT - 1 => format_bytes(top),
            row if row == HEIGHT / 2 => format_bytes(top / 2),
            0 => "0 B".to_string(),
            _ => String::new(),
        };
        let cells = (0..columns).map(|column| {
            let at = stretch(column);
            let live = eighths(curve.live.get(at).copied().unwrap_or(0), top, row);
            let reserved = curve.reserved.get(at).is_some_and(|&bytes| eighths(bytes, top, row) > 0);
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
            line += &page.paint(run.first().map_or(Ink::Plain, |cell| cell.1), &text);
        }
        page.line(&line)?;
    }
    page.line(&format!("{:>10} └{}", "", "─".repeat(columns)))?;
    let marks = marks(columns, drawn, &curve.marks, &curve.refusals);
    if !marks.trim().is_empty() {
        page.line(&format!("{:>AXIS$}{marks}", ""))?;
    }
    legend(trace, !curve.reserved.is_empty(), marks.contains('\''), page)
}

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// How much of a row a column of so many bytes fills, in eighths. What is not nothing shows in the lowest row.
fn eighths(bytes: u64, top: u64, row: usize) -> usize {
    let full = (8 * HEIGHT) as u128;
    let height = (full * u128::from(bytes)).div_ceil(u128::from(top)) as usize;
    height.saturating_sub(8 * row).min(8)
}

/// The line beneath the axis: `'` where a step ended, `X` where a request was refused. So many steps that they
/// would fill the line are left out.
fn marks(columns: usize, drawn: usize, steps: &[usize], refusals: &[usize]) -> String {
    let mut line = vec![' '; columns];
    let few = if steps.len() <= columns / 3 { steps } else { &[] };
    let places = few.iter().map(|at| (at, '\'')).chain(refusals.iter().map(|at| (at, 'X')));
    for (&at, mark) in places {
        if let Some(cell) = line.get_mut((at * columns).div_ceil(drawn.max(1)).min(columns - 1)) {
            *cell = mark;
        }
    }
    line.into_iter().collect::<String>().trim_end().to_string()
}

fn legend(trace: &Trace, reserved: bool, steps: bool, page: &mut Page<'_>) -> io::Result<()> {
    let mut parts = vec!["█ live".to_string()];
    if reserved {
        parts.push("░ reserved".to_string());
    }
    let count = |wanted: fn(&Action) -> bool| {
        trace.events.iter().filter(|event| wanted(&event.action)).count() as u64
    };
    let passed = count(|action| matches!(action, Action::Mark(_)));
    match passed {
        0 => {}
        _ if steps => parts.push(format!("' mark ({})", thousands(passed))),
        _ => parts.push(format!("{} marks, too many to draw", thousands(passed))),
    }
    let refused = count(|action| matches!(action, Action::Refuse(_)));
    if refused > 0 {
        parts.push(format!("X out of memory ({})", thousands(refused)));
    }
    let mut text = format!("{} events", thousands(trace.events.len() as u64));
    let first = trace.events.first().map_or(0, |event| event.time);
    let span = trace.events.last().map_or(0, |event| event.time.saturating_sub(first));
    if span > 0 {
        text += &format!(" over {:.3} s", span as f64 / 1e6);
    }
    if !trace.complete {
        text += ", the recording began later than the program";
    }
    page.text(AXIS, Ink::Faint, &format!("{text}: {}", parts.join(", ")))
}

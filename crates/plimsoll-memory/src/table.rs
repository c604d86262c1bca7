//! Tables for people, as wide as there is room.
//!
//! Figures stay whole and right-aligned; names give way, cut in the middle, where both ends tell most; bars take what is
//! left.

use std::fmt::Write;

/// How a column is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// Text, whole.
    Left,
    /// Figures, whole.
    Right,
    /// Text that is cut in the middle where there is no room.
    Cut,
    /// Bars of parts of one, as wide as there is room for, up to 30 columns.
    Bar,
}

/// What a table has in a place.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Text.
    Text(String),
    /// A part of one, in a column of bars.
    Part(f64),
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell::Text(text.into())
    }
}

/// Rows of cells under one another.
///
/// ```
/// use plimsoll_memory::{Cell, Column, Table};
/// let mut table = Table::new([Column::Cut, Column::Right, Column::Bar]);
/// table.row(["block0/attention/out".into(), "8.00 MiB".into(), Cell::Part(0.5)]);
/// table.row(["ln".into(), "2 B".into(), Cell::Part(1.0)]);
/// assert_eq!(table.to_text(80).lines().next(), Some("block0/attention/out  8.00 MiB  ███████████████"));
/// assert_eq!(table.to_text(20), "block…n/out 8.00 MiB\nln               2 B\n");
/// ```
#[derive(Debug, Clone, Default)]
pub struct Table {
    columns: Vec<Column>,
    indent: usize,
    rows: Vec<Vec<Cell>>,
}

/// The widest bar.
const WIDEST_BAR: usize = 30;
/// A bar that is narrower says nothing.
const NARROWEST_BAR: usize = 4;
/// A name that is cut shorter says nothing.
const SHORTEST_NAME: usize = 6;

impl Table {
    /// A table without rows.
    pub fn new(columns: impl Into<Vec<Column>>) -> Table {
        Table { columns: columns.into(), indent: 0, rows: vec![] }
    }

    /// The same with so many spaces before each row.
    pub fn indent(mut self, spaces: usize) -> Table {
        self.indent = spaces;
        self
    }

    /// Adds a row: cells that are missing at its end are empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The rows as lines of at most so many columns.
    pub fn to_text(&self, width: usize) -> String {
        let (widths, gap) = self.widths(width);
        let mut text = String::new();
        for row in &self.rows {
            let mut line = " ".repeat(self.indent);
            for (index, (&column, &width)) in self.columns.iter().zip(&widths).enumerate() {
                if width == 0 {
                    continue;
                }
                if line.len() > self.indent {
                    line.push_str(&" ".repeat(gap));
                }
                let cell = match row.get(index) {
                    Some(Cell::Text(text)) => cut_middle(text, width),
                    Some(Cell::Part(part)) => {
                        "█".repeat((part.clamp(0.0, 1.0) * width as f64).round() as usize)
                    }
                    None => String::new(),
                };
                // A string takes all that is written to it.
                let _ = match column {
                    Column::Right => write!(line, "{cell:>width$}"),
                    _ => write!(line, "{cell:<width$}"),
                };
            }
            text.push_str(&cut_end(line.trim_end(), width));
            text.push('\n');
        }
        text
    }

    /// The width of each column, none for those that are left out, and the spaces between them.
    fn widths(&self, width: usize) -> (Vec<usize>, usize) {
        let longest = |index: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(index));
            let lengths = cells.map(|cell| match cell {
                Cell::Text(text) => text.chars().count(),
                Cell::Part(_) => 0,
            });
            lengths.max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..self.columns.len()).map(longest).collect();
        let taken = |widths: &[usize], gap: usize| {
            let shown = widths.iter().filter(|&&width| width > 0).count();
            self.indent + widths.iter().sum::<usize>() + gap * shown.saturating_sub(1)
        };
        let gap = if taken(&widths, 2) <= width { 2 } else { 1 };
        while taken(&widths, gap) > width {
            let names = (0..widths.len()).filter(|&index| self.columns[index] == Column::Cut);
            match names.filter(|&name| widths[name] > SHORTEST_NAME).max_by_key(|&name| widths[name]) {
                Some(longest) => widths[longest] -= 1,
                None => break,
            }
        }
        let left = width.saturating_sub(taken(&widths, gap) + gap).min(WIDEST_BAR);
        if let Some(bar) = self.columns.iter().position(|&column| column == Column::Bar)
            && left >= NARROWEST_BAR
        {
            widths[bar] = left;
        }
        (widths, gap)
    }
}

/// Text of at most so many characters: what is too much is left out in the middle.
pub fn cut_middle(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_string();
    }
    let kept = most.saturating_sub(1);
    let (head, tail) = (kept.div_ceil(2), kept / 2);
    let head: String = text.chars().take(head).collect();
    head + "…" + &text.chars().skip(length - tail).collect::<String>()
}

/// Text of at most so many characters: what is too much is left out at the end.
pub fn cut_end(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_string();
    }
    text.chars().take(most.saturating_sub(1)).collect::<String>() + "…"
}

/// Text in lines of at most so many characters, broken at spaces; words that are longer are cut at their end.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![];
    for word in text.split_whitespace() {
        let word = cut_end(word, width.max(1));
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_wider_than_there_is_room_and_figures_stay_whole() {
        let mut table = Table::new([Column::Cut, Column::Right, Column::Cut, Column::Bar]).indent(2);
        table.row(["name".into(), "bytes".into(), "shape".into()]);
        table.row([
            "block11/attention/qkv:add".into(),
            "8.00 MiB".into(),
            "f32[16, 128, 1024]".into(),
            Cell::Part(0.3),
        ]);
        for width in 26..100 {
            let text = table.to_text(width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}\n{text}");
            assert!(text.contains("8.00 MiB"), "{width}\n{text}");
        }
        assert!(table.to_text(100).contains('█'));
    }

    #[test]
    fn text_is_cut_and_wrapped_by_characters() {
        assert_eq!(cut_middle("äöüäöüä", 4), "äö…ä");
        assert_eq!(cut_end("äöü", 2), "ä…");
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("incomprehensible", 7), ["incomp…"]);
    }
}

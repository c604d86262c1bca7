//! Printing to a terminal: text made plain, wrapped to the width, coloured where that is wanted.

use super::Style;
use plimsoll_memory::quoted;
use std::io::{self, Write};

/// What a text is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ink {
    Plain,
    Strong,
    Faint,
    Good,
    Bad,
    Live,
    Pending,
}

impl Ink {
    fn code(self) -> Option<&'static str> {
        match self {
            Ink::Plain => None,
            Ink::Strong => Some("1"),
            Ink::Faint => Some("2"),
            Ink::Good => Some("1;32"),
            Ink::Bad => Some("1;31"),
            Ink::Live => Some("36"),
            Ink::Pending => Some("33"),
        }
    }
}

/// Where lines are written to.
pub(super) struct Printer<'a> {
    style: Style,
    out: &'a mut dyn Write,
}

/// Narrower than this nothing can be told apart.
const LEAST_WIDTH: usize = 40;

impl<'a> Printer<'a> {
    pub(super) fn new(style: Style, out: &'a mut dyn Write) -> Printer<'a> {
        Printer { style, out }
    }

    /// How many columns there are.
    pub(super) fn width(&self) -> usize {
        self.style.width.max(LEAST_WIDTH)
    }

    /// Text in an ink. It must be plain.
    pub(super) fn paint(&self, ink: Ink, text: &str) -> String {
        match ink.code().filter(|_| self.style.colour && !text.is_empty()) {
            Some(code) => format!("\x1b[{code}m{text}\x1b[0m"),
            None => text.to_string(),
        }
    }

    /// Writes a line as it is: plain, or painted.
    pub(super) fn line(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.out, "{}", line.trim_end())
    }

    /// Begins a part.
    pub(super) fn heading(&mut self, heading: &str) -> io::Result<()> {
        self.line("")?;
        self.text(0, Ink::Strong, heading)
    }

    /// Writes text from anywhere, wrapped to the width, indented.
    pub(super) fn text(&mut self, indent: usize, ink: Ink, text: &str) -> io::Result<()> {
        for line in wrap(text, self.width().saturating_sub(indent)) {
            let line = self.paint(ink, &line);
            self.line(&format!("{:indent$}{line}", ""))?;
        }
        Ok(())
    }

    /// Writes text from anywhere as an item of a list.
    pub(super) fn item(&mut self, ink: Ink, text: &str) -> io::Result<()> {
        for (index, line) in wrap(text, self.width() - 4).into_iter().enumerate() {
            let dot = self.paint(Ink::Faint, if index == 0 { "·" } else { " " });
            let line = self.paint(ink, &line);
            self.line(&format!("  {dot} {line}"))?;
        }
        Ok(())
    }
}

/// Text made plain, in lines of at most `width` characters. Words that are longer, such as paths, stay whole.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut line, mut length) = (String::new(), 0);
    for word in quoted(text).split(' ').filter(|word| !word.is_empty()) {
        let count = word.chars().count();
        if length > 0 && length + 1 + count > width {
            lines.push(std::mem::take(&mut line));
            length = 0;
        }
        if length > 0 {
            line.push(' ');
            length += 1;
        }
        line.push_str(word);
        length += count;
    }
    if length > 0 {
        lines.push(line);
    }
    lines
}

/// A whole number with its thousands apart.
pub(super) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A part of a whole, such as `41.7 %`.
pub(super) fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "–".to_string() } else { format!("{:.1} %", 100.0 * part as f64 / whole as f64) }
}

/// A bar for a part of a whole that would fill `width`, in eighths of a column. What is not nothing shows.
pub(super) fn bar(part: u64, whole: u64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if part == 0 || whole == 0 || width == 0 {
        return String::new();
    }
    let full = 8 * width as u128;
    let eighths = (full * u128::from(part) / u128::from(whole)).clamp(1, full) as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

//! A forecast in a few lines: what somebody who is about to train wants to know.

use super::{Forecast, format_seconds};
use crate::forecast::remedy::in_words;
use plimsoll_memory::{Category, Ledger, cut_end, format_bytes, wrapped};

/// The most lines that a forecast in short has.
const MOST_LINES: usize = 8;

/// The columns that the words on the left take.
const LABEL: usize = 10;

impl Forecast {
    /// The forecast in at most eight lines of at most so many columns: whether it fits, what the bytes are for, how long a
    /// step takes, what is done to fit, what the device or the process takes in all, and notes. The long form is what
    /// printing it gives.
    pub fn brief(&self, width: usize) -> String {
        let room = width.saturating_sub(LABEL).max(1);
        let mut entries = vec![
            (
                "arena",
                format!(
                    "{}: {}",
                    format_bytes(self.peak_bytes),
                    shares(&self.ledger, room.saturating_sub(10))
                ),
            ),
            ("step", format!("{} {}", format_seconds(self.step_seconds), self.times_from())),
        ];
        if !self.remedies.is_empty() {
            entries.push(("remedies", in_words(&self.remedies)));
        }
        let rests = match self.host_bytes {
            0 => String::new(),
            bytes => format!("; {} in a file", format_bytes(bytes)),
        };
        entries.extend(self.device_use.map(|of| ("device", of.to_string())));
        let host = self.host_use.filter(|_| self.host_bytes > 0 || self.room.host_budget_bytes.is_some());
        entries.extend(host.map(|of| ("host", of.to_string())));
        entries.extend(self.process_use.map(|of| ("process", format!("{of}{rests}"))));
        entries.extend(self.notes.iter().map(|note| ("note", note.clone())));
        let mut lines = vec![cut_end(&self.answer(), width)];
        let count = entries.len();
        for (index, (label, text)) in entries.into_iter().enumerate().take(MOST_LINES - 1) {
            // Each of those that follow has a line at least.
            let following = (count - 1 - index).min(MOST_LINES - 1);
            let most = (MOST_LINES - lines.len()).saturating_sub(following).max(1);
            let all = wrapped(&text, room);
            for (number, line) in all.iter().take(most).enumerate() {
                let label = if number == 0 { label } else { "" };
                let is_cut = number + 1 == most && all.len() > most;
                let line = if is_cut { cut_end(&format!("{line} …"), room) } else { line.clone() };
                lines.push(format!("{label:<LABEL$}{line}"));
            }
        }
        lines.truncate(MOST_LINES);
        lines.join("\n") + "\n"
    }
}

/// What bytes are for in one line: the largest parts by name, with bars where there is room, and the rest together.
fn shares(ledger: &Ledger, room: usize) -> String {
    let total = ledger.total().max(1) as f64;
    let mut parts: Vec<(Category, u64)> = ledger.lines().filter(|&(_, bytes)| bytes > 0).collect();
    parts.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
    let share = |bytes: u64| 100.0 * bytes as f64 / total;
    let line = |shown: usize, bar: usize| {
        let rest: u64 = parts[shown..].iter().map(|part| part.1).sum();
        let named = parts[..shown].iter().map(|&(category, bytes)| (category.name(), bytes));
        let all = named.chain((share(rest) >= 0.5).then_some(("other", rest)));
        let words = all.map(|(name, bytes)| {
            let bar = "█".repeat((bar as f64 * share(bytes) / 100.0).round() as usize);
            let space = if bar.is_empty() { "" } else { " " };
            format!("{name} {bar}{space}{:.0} %", share(bytes))
        });
        words.collect::<Vec<_>>().join(", ")
    };
    let fits = |text: &String| text.chars().count() <= room;
    // As many parts as matter, then bars as long as there is room for.
    let mattering = parts.iter().filter(|part| share(part.1) >= 1.0).count();
    let shown = (1..=mattering.max(1).min(parts.len())).rev().find(|&shown| fits(&line(shown, 0)));
    let shown = shown.unwrap_or(parts.len().min(1));
    (0..=40).rev().map(|bar| line(shown, bar)).find(fits).unwrap_or_else(|| line(shown, 0))
}

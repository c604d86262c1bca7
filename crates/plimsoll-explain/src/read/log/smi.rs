//! Tables that stand beside an error: `nvidia-smi` and `rocm-smi`, pasted by people who looked who holds the device.
//!
//! The layout of `nvidia-smi`'s table has been the same since 2012 but for its columns: a row for each device with
//! `15109MiB / 16160MiB`, and below it a row for each process with its number, its type and what it holds. In a container
//! no process is listed. `rocm-smi --showmeminfo vram` has a line for the total and one for what is used.

use super::parse::{after, number, short, size};
use std::collections::BTreeMap;

/// Words of which one is in every row of interest.
pub(super) const WORDS: &[&str] = &["MiB /", "MiB |", "VRAM Total", ":00."];

/// A device as a table shows it.
#[derive(Debug, Clone, Default)]
pub(super) struct Shown {
    pub(super) total: u64,
    pub(super) used: u64,
    /// Processes, by number and name, and what they hold.
    pub(super) processes: Vec<(String, u64)>,
}

/// The devices of the last table.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) devices: BTreeMap<u32, Shown>,
    /// What the first device had in use, in each table.
    pub(super) used: Vec<u64>,
    next: u32,
    rows_since: u64,
}

impl Tables {
    /// Takes a line if it is a row of a table.
    pub(super) fn read(&mut self, line: &str, at: u64) {
        if at.saturating_sub(self.rows_since) > 64 || is_first_device(line) {
            // Another table, of another moment.
            (self.devices, self.next) = (BTreeMap::new(), 0);
        }
        let read = self.device(line) || self.process(line) || self.rocm(line);
        if read {
            self.rows_since = at;
        }
    }

    fn device(&mut self, line: &str) -> bool {
        let Some((before, rest)) = line.split_once("MiB /") else { return false };
        let used = super::parse::number_before(before).and_then(|mib| mib.checked_mul(1 << 20));
        let total = size(rest).map(|(size, _)| size.bytes);
        let (Some(used), Some(total)) = (used, total) else { return false };
        if !line.contains('|') || self.next >= 64 || total == 0 {
            return false;
        }
        self.devices.insert(self.next, Shown { total, used, processes: Vec::new() });
        if self.next == 0 && self.used.len() < 1000 {
            self.used.push(used);
        }
        self.next += 1;
        true
    }

    fn process(&mut self, line: &str) -> bool {
        let Some(row) = line.trim_end().strip_suffix('|').map(str::trim_end) else { return false };
        let words: Vec<&str> = row.trim_start().trim_start_matches('|').split_whitespace().collect();
        let kind = words.iter().position(|word| matches!(*word, "C" | "G" | "C+G"));
        let (Some(kind), Some(last)) = (kind, words.last()) else { return false };
        let held = last.strip_suffix("MiB").and_then(|mib| mib.parse::<u64>().ok());
        let (Some(held), Some(index)) =
            (held.and_then(|mib| mib.checked_mul(1 << 20)), words.first().and_then(|word| number(word)))
        else {
            return false;
        };
        let pid = kind.checked_sub(1).and_then(|at| words.get(at)).and_then(|word| word.parse::<u64>().ok());
        let (Some(pid), Ok(index)) = (pid, u32::try_from(index)) else { return false };
        let name = words[kind + 1..words.len() - 1].join(" ");
        let shown = self.devices.entry(index).or_default();
        if shown.processes.len() < 64 {
            shown.processes.push((short(&format!("process {pid} ({name})")), held));
        }
        true
    }

    fn rocm(&mut self, line: &str) -> bool {
        let Some(index) =
            after(line, "GPU[").and_then(number).and_then(|n| u32::try_from(n).ok()).filter(|&n| n < 64)
        else {
            return false;
        };
        let total = after(line, "VRAM Total Memory (B): ").and_then(number);
        let used = after(line, "VRAM Total Used Memory (B): ").and_then(number);
        let shown = self.devices.entry(index).or_default();
        shown.total = total.unwrap_or(shown.total);
        shown.used = used.unwrap_or(shown.used);
        total.is_some() || used.is_some()
    }
}

/// Whether a row names the first device of a table: `|   0  GeForce GTX 1080    Off  | 00000000:01:00.0 …`.
fn is_first_device(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().take(3).collect();
    matches!(words[..], ["|", "0", name] if name != "N/A") && line.contains(":00.")
}

//! Tables that stand beside an error: `nvidia-smi` and `rocm-smi`, pasted by people who looked who holds the device.
//!
//! The layout of `nvidia-smi`'s table has been the same since 2012 but for its columns: a row for each device with
//! `15109MiB / 16160MiB`, and below it a row for each process with its number, its type and what it holds. In a container
//! no process is listed. `nvidia-smi --query-gpu=… --format=csv` has `0, 23011 MiB, 24576 MiB` under a heading. `gpustat` has
//! a line for each device: `[0] … | 10689 / 11019 MB | alice(10681M)`. `rocm-smi --showmeminfo vram` has a line for the total
//! and one for what is used; its table has shares only.

use super::parse::{after, number, short, size};
use std::collections::BTreeMap;

/// Words of which one is in every row of interest.
pub(super) const WORDS: &[&str] =
    &["MiB /", "MiB |", "MB |", " MiB, ", "memory.used [MiB]", "VRAM Total", "VRAM%", "%  ", ":00."];

/// A device as a table shows it.
#[derive(Debug, Clone, Default)]
pub(super) struct Shown {
    pub(super) total: u64,
    pub(super) used: u64,
    /// Processes, by number and name, and what they hold.
    pub(super) processes: Vec<(String, u64)>,
    /// Whether it was shown before anything failed.
    pub(super) before: bool,
}

/// The devices of the last table.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) devices: BTreeMap<u32, Shown>,
    /// What the first device had in use, in each table.
    pub(super) used: Vec<u64>,
    next: u32,
    rows_since: u64,
    /// Whether rows of a table are under way that end with shares in use: of the device's memory, of its time.
    shares: bool,
    /// The share of the first device that was in use before anything failed, as such a table shows it.
    pub(super) share: Option<u64>,
    /// Whether something has failed above.
    pub(super) failed: bool,
    /// Which columns of a list hold the device, what is used and what there is in all.
    columns: Option<[usize; 3]>,
}

impl Tables {
    /// Takes a line if it is a row of a table.
    pub(super) fn read(&mut self, line: &str, at: u64) {
        if at.saturating_sub(self.rows_since) > 64 || is_first_device(line) {
            // Another table, of another moment.
            (self.devices, self.next) = (BTreeMap::new(), 0);
        }
        let read = self.device(line)
            || self.process(line)
            || self.gpustat(line)
            || self.listed(line)
            || self.shares(line)
            || self.rocm(line);
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
        self.devices.insert(self.next, Shown { total, used, processes: Vec::new(), before: !self.failed });
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

    /// A line of `gpustat`: the device in brackets, what is used of it, and who uses it.
    fn gpustat(&mut self, line: &str) -> bool {
        let Some((index, row)) = line.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("] "))
        else {
            return false;
        };
        let figures = row.split('|').find_map(|column| {
            let (used, total) = column.trim().strip_suffix("MB")?.split_once('/')?;
            let mib = |text: &str| text.trim().parse::<u64>().ok()?.checked_mul(1 << 20);
            Some((mib(used)?, mib(total)?))
        });
        let (Ok(index), Some((used, total))) = (index.trim().parse::<u32>(), figures) else { return false };
        if index >= 64 {
            return false;
        }
        let users = row.rsplit('|').next().unwrap_or("").split_whitespace();
        let processes = users.filter_map(|user| {
            let (name, held) = user.split_once('(')?;
            let mib = held.strip_suffix("M)")?.parse::<u64>().ok()?;
            Some((short(name), mib.checked_mul(1 << 20)?))
        });
        self.devices.insert(
            index,
            Shown { total, used, processes: processes.take(64).collect(), before: !self.failed },
        );
        true
    }

    /// A list of figures that was asked for by name, under a heading with the names.
    fn listed(&mut self, line: &str) -> bool {
        let fields: Vec<&str> = line.split(',').map(str::trim).take(32).collect();
        if line.contains("memory.used [MiB]") {
            let column = |name: &str| fields.iter().position(|field| *field == name);
            // Without its number a device is known by its place.
            let index = column("index").unwrap_or(usize::MAX);
            self.columns =
                column("memory.used [MiB]").zip(column("memory.total [MiB]")).map(|(u, t)| [index, u, t]);
            (self.devices, self.next) = (BTreeMap::new(), 0);
            return self.columns.is_some();
        }
        let Some([index, used, total]) = self.columns else { return false };
        let mib = |at: usize| {
            let mib = fields.get(at)?.strip_suffix(" MiB")?.parse::<u64>().ok()?;
            mib.checked_mul(1 << 20)
        };
        let (Some(used), Some(total)) = (mib(used), mib(total)) else { return false };
        let index = fields.get(index).and_then(|field| field.parse().ok()).unwrap_or(self.next);
        if self.next >= 64 || index >= 64 {
            return false;
        }
        self.next += 1;
        self.devices.insert(index, Shown { total, used, processes: Vec::new(), before: !self.failed });
        true
    }

    /// A row of `rocm-smi`'s table, which has shares and no bytes.
    fn shares(&mut self, line: &str) -> bool {
        if line.contains("VRAM%") {
            self.shares = line.trim_end().ends_with("GPU%");
            return self.shares;
        }
        let mut words = line.split_whitespace();
        let (first, _, share) = (words.next(), words.next_back(), words.next_back());
        let share = share.and_then(|share| share.strip_suffix('%')?.parse::<u64>().ok());
        let Some(share) = share.filter(|&share| self.shares && share <= 100 && first == Some("0")) else {
            return false;
        };
        self.share = Some(share).filter(|_| !self.failed).or(self.share);
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
        let before = !self.failed;
        let shown = self.devices.entry(index).or_default();
        shown.total = total.unwrap_or(shown.total);
        shown.used = used.unwrap_or(shown.used);
        shown.before = before;
        total.is_some() || used.is_some()
    }
}

/// Whether a row names the first device of a table: `|   0  GeForce GTX 1080    Off  | 00000000:01:00.0 …`.
fn is_first_device(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().take(3).collect();
    matches!(words[..], ["|", "0", name] if name != "N/A") && line.contains(":00.")
}

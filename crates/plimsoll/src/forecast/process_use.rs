//! What a process on the CPU will take of the machine's memory, all of it: what decides whether it fits a control group or
//! a laptop.

use plimsoll_memory::format_bytes;
use serde_json::{Value, json};
use std::fmt;

/// The memory of a process that trains on the CPU, by what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessUse {
    /// The arena.
    pub arena_bytes: u64,
    /// Data that is kept in memory.
    pub data_bytes: u64,
    /// The batch that is read before it is cropped, and its labels where they are counted.
    pub batch_bytes: u64,
    /// Programs: their kernels with their addresses, those of shapes that come up later included.
    pub program_bytes: u64,
    /// Code, libraries, stacks of threads and what planning leaves behind.
    pub code_bytes: u64,
}

/// What a kernel of a loaded program takes: 1.8 KiB in the mean over the lengths of `gpt-varlen`.
const KERNEL_BYTES: u64 = 2 << 10;
/// A process that has trained next to nothing: 11 to 14 MiB on Linux.
const CODE_BYTES: u64 = 14 << 20;

impl ProcessUse {
    /// With an arena of so many bytes and programs of so many kernels in all.
    pub(crate) fn new(arena_bytes: u64, kernels: u64) -> ProcessUse {
        let program_bytes = kernels.saturating_mul(KERNEL_BYTES);
        ProcessUse { arena_bytes, data_bytes: 0, batch_bytes: 0, program_bytes, code_bytes: CODE_BYTES }
    }

    /// The same, with so many kernels loaded besides.
    pub(crate) fn with_later_kernels(self, kernels: u64) -> ProcessUse {
        let later = kernels.saturating_mul(KERNEL_BYTES);
        ProcessUse { program_bytes: self.program_bytes.saturating_add(later), ..self }
    }

    /// All of it.
    pub fn bytes(&self) -> u64 {
        let parts =
            [self.arena_bytes, self.data_bytes, self.batch_bytes, self.program_bytes, self.code_bytes];
        parts.into_iter().fold(0, u64::saturating_add)
    }

    /// The parts as data.
    pub fn to_json(&self) -> Value {
        json!({
            "arena_bytes": self.arena_bytes,
            "data_bytes": self.data_bytes,
            "batch_bytes": self.batch_bytes,
            "program_bytes": self.program_bytes,
            "code_bytes": self.code_bytes,
        })
    }
}

impl fmt::Display for ProcessUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.arena_bytes, "arena"),
            (self.data_bytes, "data"),
            (self.batch_bytes, "batch"),
            (self.program_bytes, "programs"),
            (self.code_bytes, "code and libraries"),
        ];
        let parts: Vec<String> = parts
            .into_iter()
            .filter(|(bytes, _)| *bytes > 0)
            .map(|(bytes, of)| format!("{} {of}", format_bytes(bytes)))
            .collect();
        write!(f, "{} ({})", format_bytes(self.bytes()), parts.join(", "))
    }
}

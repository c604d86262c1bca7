//! Errors that say that memory ran out, in words that no family here is known by.
//!
//! There are more programs than families. What is left over when no reader knows a line is still an error that speaks of
//! memory, and quoting it with the next command to run is worth more than no answer. Such a finding counts for less than
//! any other, and its verdict claims no more than the words do.

use super::found::{Found, Weight, has};
use super::parse::size_after;
use crate::recording::Framework;
use crate::sign::SignKind;

/// Words of which one is in every line of interest.
pub(super) const WORDS: &[&str] = &[
    "ut of memory",
    "ut Of Memory",
    "ut of Memory",
    "ot enough space to allocate",
    "UT OF MEMORY",
    "OutOfMemory",
    "ot enough memory",
    "ot enough VRAM",
    "nsufficient memory",
    "nsufficient Memory",
    "nsufficient VRAM",
    "nsufficient GPU",
    "emory exhausted",
    "out of VRAM",
    "out of GPU memory",
    "ailed to allocate",
    "ailed to alloc ",
    "nable to allocate",
    "annot allocate",
    "ould not allocate",
    "llocation failed",
    "llocation failure",
];

/// Words of lines that give advice, describe options or only warn.
const NO_ERRORS: [&str; 16] = [
    "warn",
    "Warn",
    "WARN",
    "[W]",
    ": W ",
    "Hint",
    "hint",
    "try ",
    "Try ",
    "avoid",
    "If you",
    "if you",
    "in case",
    "retry",
    "prevent",
    "not a failure",
];

/// What a line says, if it is an error that speaks of memory.
pub(super) fn read(line: &str, at: u64) -> Option<Found> {
    let error = has(
        line,
        &[
            "rror", "ERROR", " err", "ail", "FAIL", "xception", "FATAL", "fatal", "critical", "CRITICAL",
            "abort", "[E]", ": E ",
        ],
    );
    if !error || !has(line, WORDS) || has(line, &NO_ERRORS) {
        return None;
    }
    let device = ["CUDA", "cuda", "Cuda", "GPU", "gpu", "VRAM", "HIP", "hipM", "ulkan", "evice", "DML"];
    let host = ["malloc", "mmap", "host memory", "system memory", "CPU memory", " RAM"];
    let (kind, name) = match () {
        () if has(line, &device) => (SignKind::DeviceFull, "GPU"),
        () if has(line, &host) => (SignKind::HostFull, "host"),
        () => (SignKind::Unspecified, "memory"),
    };
    let mut found = Found::sign(kind, name, line, at);
    // PyTorch's allocator warns with figures before it gives up.
    let asked = size_after(line, "trying to allocate ");
    if let (Some(asked), Some(free), Some(total)) =
        (asked, size_after(line, "(free: "), size_after(line, " total: "))
    {
        found = found.by(Framework::PyTorch).refused(Some(asked.bytes), asked.exact);
        (found.device.device_free, found.device.capacity) = (Some(free.bytes), Some(total.bytes));
    }
    found.weight = Weight::Hint;
    Some(found)
}

//! Errors that say that memory ran out, in words that no family here is known by.
//!
//! There are more programs than families. What is left over when no reader knows a line is still an error that speaks of
//! memory, and quoting it with the next command to run is worth more than no answer. Such a finding counts for less than
//! any other, and its verdict claims no more than the words do.

use super::cuda::backend;
use super::figures;
use super::found::{Found, Weight};
use super::parse::size_after;
use super::refusal::{self, Kind, Tone};
use crate::program::Backend;
use crate::recording::Framework;
use crate::sign::SignKind;

/// What a line says, if it is an error that speaks of memory.
pub(super) fn read(line: &str, at: u64) -> Option<Found> {
    let refusal = refusal::read(line)?;
    let (kind, name) = match refusal.kind {
        _ if refusal.tone == Tone::Warning => (SignKind::Warning, "memory"),
        Kind::Device => (SignKind::DeviceFull, "GPU"),
        Kind::Host => (SignKind::HostFull, "host"),
        Kind::Ended => (SignKind::Killed, "host"),
        Kind::Unsaid => (SignKind::Unspecified, "memory"),
    };
    let mut found = Found::sign(kind, name, line, at);
    if kind == SignKind::Warning {
        return Some(found);
    }
    found.weight = if refusal.tone == Tone::Error { Weight::Hint } else { Weight::Words };
    if refusal.kind == Kind::Device {
        found.device.program.backend = backend(line);
        if found.device.program.backend == Some(Backend::Npu) {
            found.device.name = "NPU".into();
        }
    }
    // PyTorch's allocator warns with figures before it gives up.
    let asked = size_after(line, "trying to allocate ");
    if let (Some(asked), Some(free), Some(total)) =
        (asked, size_after(line, "(free: "), size_after(line, " total: "))
    {
        found = found.by(Framework::PyTorch).refused(Some(asked.bytes), asked.exact);
        (found.device.device_free, found.device.capacity) = (Some(free.bytes), Some(total.bytes));
        return Some(found);
    }
    let told = figures::read(line, refusal.at);
    if let Some(asked) = told.asked {
        found = found.refused(Some(asked), told.exact);
        // A figure of something else is no figure of what was free.
        let less = |bytes: &u64| *bytes < asked;
        found.device.device_free = told.free.filter(less).filter(|_| kind == SignKind::DeviceFull);
    }
    Some(found)
}

//! The explanation: closed books, verdicts with their proof, advice with what replay said of it.
//!
//! An explanation holds every figure that a view prints, so that all views agree.

use crate::moment::{Peak, Snapshot, Timeline};
use crate::recording::{Format, Origin};
use serde::Serialize;

/// Why a program's memory was as it was.
#[derive(Debug, Clone)]
pub struct Explanation {
    /// Where the recording comes from.
    pub origin: Origin,
    /// The device it is about.
    pub device: String,
    /// The moment that books and verdicts are of, and what stood in the pool then.
    pub snapshot: Snapshot,
    /// The most bytes live at once, where that is known.
    pub peak: Option<Peak>,
    /// Bytes over time, where there is a trace.
    pub timeline: Option<Timeline>,
    /// What holds, the gravest first. Never empty.
    pub verdicts: Vec<Verdict>,
    /// Where the device's bytes were.
    pub books: Books,
    /// What to change, the best first.
    pub advice: Vec<Advice>,
    /// The same for the recording's other devices.
    pub others: Vec<Explanation>,
}

impl Explanation {
    /// Whether its figures are known to the byte: a message gives `76.90 GiB`, and no more than that may be shown.
    pub(crate) fn is_exact(&self) -> bool {
        let snapshot = &self.snapshot;
        let recorded = self.timeline.is_some() || snapshot.layout.is_some();
        let told = self.origin.formats.contains(&Format::Log);
        recorded || snapshot.refused.as_ref().map_or(!told, |refused| refused.exact)
    }
}

/// What kind of thing a [`Verdict`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictKind {
    /// A part of the recording is missing: what follows is only what the rest cannot change.
    Incomplete,
    /// What is live at once exceeds what is available.
    TooBig,
    /// Enough bytes are free, but no hole is large enough.
    Fragmented,
    /// Live bytes grow with every step.
    Leaking,
    /// The pool has reserved much more than is used.
    ReservedIdle,
    /// Short-lived allocations that overlap set the peak.
    TransientPeak,
    /// A limit was reached while the device had free memory.
    LimitLow,
    /// Another process holds the device's memory.
    OtherProcess,
    /// The driver refused memory although enough was free.
    RefusedWithRoom,
    /// It was the host's memory that ran out, not the device's.
    HostMemory,
    /// Memory did not run out: a corrupted size, a kernel's scratch memory, a bad address.
    NotMemory,
    /// Memory ran out, and what was read does not say who held it.
    Full,
    /// Nothing is wrong.
    Healthy,
}

/// A finding, with numbers that can be checked by hand.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// What kind of finding.
    pub kind: VerdictKind,
    /// The finding in one sentence.
    pub sentence: String,
    /// What shows it, one fact a line.
    pub proof: Vec<String>,
}

/// Where all bytes were: lines that sum to the total.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Books {
    /// What the total is of: the device, the pool's limit, or what the pool had reserved.
    pub of: String,
    /// The sum of the lines.
    pub total_bytes: u64,
    /// The lines.
    pub lines: Vec<BookLine>,
}

/// A line of the books.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BookLine {
    /// What the bytes are.
    pub name: String,
    /// How many.
    pub bytes: u64,
}

/// Something to change, and what replay says it would have done.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// What to change, with the framework's own names.
    pub change: String,
    /// Whether the program would have gone on; `None` where replay cannot tell.
    pub would_survive: Option<bool>,
    /// The most the pool would have reserved; `None` where replay cannot tell.
    pub peak_reserved_bytes: Option<u64>,
    /// How that was found out, or why it cannot be told.
    pub because: String,
    /// What replay saw on the way, thinned out: after which event, bytes live and bytes reserved then. Drawn
    /// over what was recorded, never part of the JSON.
    #[serde(skip)]
    pub timeline: Option<Vec<(u32, u64, u64)>>,
}

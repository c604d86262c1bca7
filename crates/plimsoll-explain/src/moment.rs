//! The one moment that an explanation is of, and what stood in the pool then.
//!
//! A program that ran out of memory unwinds before it writes its snapshot, so the end of a recording and the refused
//! request are two different states of the pool. An explanation picks one of them, says which, and keeps all its
//! figures here: books, address map, holders, fragmentation and verdicts are of this moment, in every view.

use crate::recording::Failure;
use plimsoll_memory::{Layout, PieceState};
use serde::Serialize;
use std::fmt;

/// A moment of a recording. Displayed as `at the refusal (event 42)`, with events counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// What happened then.
    pub kind: MomentKind,
    /// The event of the trace, counted from 0: the refused request, or the last event before the moment. `None`
    /// without a trace, and before its first event.
    pub event: Option<usize>,
}

/// What a [`Moment`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MomentKind {
    /// A request was refused.
    Refusal,
    /// The most bytes were live.
    Peak,
    /// The recording ended.
    End,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind, self.event) {
            (MomentKind::Refusal, None) => f.write_str("at the refusal"),
            (MomentKind::Refusal, Some(event)) => write!(f, "at the refusal (event {})", event + 1),
            (MomentKind::Peak, None) => f.write_str("at the peak"),
            (MomentKind::Peak, Some(event)) => write!(f, "at the peak (event {})", event + 1),
            (MomentKind::End, _) => f.write_str("at the end of the recording"),
        }
    }
}

/// What stood in a pool at one moment. What is not known is `None` or empty.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// Which moment.
    pub moment: Moment,
    /// The request that was refused then.
    pub refused: Option<Failure>,
    /// Bytes that the pool had reserved on the device.
    pub reserved_bytes: Option<u64>,
    /// Bytes of the pool in use, rounding included where it is known. Those of the layout, where there is one.
    pub live_bytes: Option<u64>,
    /// Bytes of the pool in use as requested, without rounding.
    pub requested_bytes: Option<u64>,
    /// The segments and blocks of the pool: as recorded, or rebuilt from the trace.
    pub layout: Option<Layout>,
    /// How the free bytes were split, where the layout is known.
    pub fragmentation: Option<Fragmentation>,
    /// Who held what, by call site, the most bytes first.
    pub holders: Vec<SiteUsage>,
}

/// How the free bytes of a pool are split into holes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Fragmentation {
    /// How many free blocks there are.
    pub holes: usize,
    /// Their bytes.
    pub free_bytes: u64,
    /// The bytes of the largest.
    pub largest_hole_bytes: u64,
    /// The address of the largest.
    pub largest_hole_address: u64,
}

impl Fragmentation {
    pub(crate) fn of(layout: &Layout) -> Fragmentation {
        let mut found =
            Fragmentation { holes: 0, free_bytes: 0, largest_hole_bytes: 0, largest_hole_address: 0 };
        for hole in layout.pieces().filter(|piece| piece.state == PieceState::Free && piece.bytes > 0) {
            found.holes += 1;
            found.free_bytes = found.free_bytes.saturating_add(hole.bytes);
            if hole.bytes > found.largest_hole_bytes {
                (found.largest_hole_bytes, found.largest_hole_address) = (hole.bytes, hole.address);
            }
        }
        found
    }
}

/// What was allocated from one call site, whatever the library did in between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteUsage {
    /// Where.
    pub site: CallSite,
    /// Bytes, as requested.
    pub bytes: u64,
    /// In how many allocations.
    pub count: u64,
}

/// Where in a program memory was allocated, in words. Safe to print: nothing in it controls a terminal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallSite {
    /// The line, such as `train.py:15 loss`; where no frame is of the user's code, what the library was doing,
    /// such as `NativeLayerNormBackward0 (backward)`; `(no stack was recorded)` where nothing was recorded.
    pub location: String,
    /// The nearest caller in the user's code, such as `train.py:32 <module>`.
    pub caller: Option<String>,
}

/// The most bytes live at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peak {
    /// When that was.
    pub moment: Moment,
    /// How many, as requested where there is a trace, else as reported.
    pub live_bytes: u64,
    /// Who held them, by call site, the most bytes first. Empty without a trace, and where a request was refused:
    /// then that moment is the one to look at.
    pub holders: Vec<SiteUsage>,
}

/// A trace from its first event to its last, as charts draw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline {
    /// How many events there are.
    pub events: usize,
    /// How many of them are marks.
    pub marks: usize,
    /// How many of them are refusals.
    pub refusals: usize,
    /// Microseconds from the first to the last; 0 where times were not recorded.
    pub microseconds: u64,
    /// Whether recording began with the program.
    pub complete: bool,
    /// Live and reserved bytes, in equal stretches of events.
    pub curve: Curve,
}

/// How much was held over a trace, in equal stretches of events: the most within each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Curve {
    /// Bytes in use, as requested.
    pub live: Vec<u64>,
    /// Bytes that the pool had reserved; empty where that was not recorded.
    pub reserved: Vec<u64>,
    /// The stretches in which the program passed a mark, in order, each once.
    pub marks: Vec<usize>,
    /// The stretches in which a request was refused, in order, each once.
    pub refusals: Vec<usize>,
}

//! What a family of messages found in a line: a device, and how much its word counts for.

use super::parse::short;
use crate::recording::{Device, Failure, Framework};
use crate::sign::{Sign, SignKind};

/// How much a finding counts for, where a log holds several. Figures of a pool count for more than any of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Weight {
    /// A warning, or a request that was tried again.
    Warning,
    /// Words of a refusal in a line that does not call itself an error.
    Words,
    /// An error that speaks of memory, in words that no family is known by.
    Hint,
    /// The end of a process, which something above it may explain.
    End,
    /// An error that says what was refused, yet neither what was held nor why.
    Error,
    /// An error that says why.
    Cause,
}

/// A finding.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) weight: Weight,
    pub(super) framework: Framework,
    pub(super) device: Device,
}

impl Found {
    /// A finding that a line says outright, of the device called `name`.
    pub(super) fn sign(kind: SignKind, name: &str, line: &str, at: u64) -> Found {
        let sign = Sign { kind, quote: quote(line), line: at, needed: None, available: None };
        let weight = match kind {
            SignKind::Warning => Weight::Warning,
            SignKind::Killed | SignKind::Crashed => Weight::End,
            SignKind::DeviceFull
            | SignKind::Reservation
            | SignKind::NoContext
            | SignKind::LibraryFull
            | SignKind::HostFull
            | SignKind::Unspecified => Weight::Error,
            _ => Weight::Cause,
        };
        let device = Device { name: name.into(), sign: Some(sign), ..Device::default() };
        Found { weight, framework: Framework::Unknown, device }
    }

    pub(super) fn by(self, framework: Framework) -> Found {
        Found { framework, ..self }
    }

    /// With what was needed, and what there was for it.
    pub(super) fn bytes(mut self, needed: Option<u64>, available: Option<u64>) -> Found {
        if let Some(sign) = &mut self.device.sign {
            (sign.needed, sign.available) = (needed, available);
        }
        self
    }

    /// With the request that was refused.
    pub(super) fn refused(mut self, requested: Option<u64>, exact: bool) -> Found {
        self.device.failure = requested.map(|requested| Failure { requested, exact, event: None, op: None });
        self
    }
}

/// What is quoted of a line: all of it, or of a long one the part that says what happened.
fn quote(line: &str) -> String {
    let line = line.trim();
    let words = if line.len() > MOST_QUOTED { super::refusal::begins(line) } else { None };
    // A few words before tell who says it.
    let from = words.filter(|&at| at > MOST_QUOTED / 2).map_or(0, |at| at - MOST_QUOTED / 4);
    let from =
        (from..line.len()).find(|&at| line.is_char_boundary(at) && (at == 0 || line[..at].ends_with(' ')));
    short(&line[from.unwrap_or(0)..])
}

/// Longer lines are cut.
const MOST_QUOTED: usize = 400;

/// Whether a line has any of some words.
pub(super) fn has(line: &str, words: &[&str]) -> bool {
    words.iter().any(|word| line.contains(word))
}

//! Why a request was refused: the verdict that an out-of-memory error carries.
//!
//! Whoever gets the error should not have to reproduce it under a profiler: what was asked, what there is, who holds
//! it and what would help is all known at the moment of refusal, and only then.

use crate::bytes::format_bytes;
use std::fmt;

/// A request that was refused, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// What stood in the way.
    pub cause: Cause,
    /// The bytes asked for.
    pub requested_bytes: u64,
    /// Bytes of blocks that existed then.
    pub live_bytes: u64,
    /// Bytes the pool had taken from the device.
    pub reserved_bytes: u64,
    /// The most the pool may hold, if there is a limit.
    pub limit_bytes: Option<u64>,
    /// Bytes that the device could still give, where that is known.
    pub available_bytes: Option<u64>,
    /// The largest free piece in what the pool had taken.
    pub largest_hole_bytes: u64,
    /// Those that held the most: their scope, and their bytes.
    pub holders: Vec<(String, u64)>,
}

/// What stood in the way of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// It is more than the limit, or the limit is all there is and what is live is needed.
    TooBig,
    /// The limit, while the device has room.
    LimitLow,
    /// There are free bytes enough under the limit, in holes smaller than a page.
    Fragmented,
    /// The device has no more to give, though no limit of this pool was reached.
    DeviceFull,
}

impl Cause {
    /// What stood in the way of `requested` bytes while `live` were in use: `limit` is that which was reached, if one
    /// was, `available` what the device could still give and `capacity` all that it has.
    pub(crate) fn of(
        requested: u64,
        live: u64,
        limit: Option<u64>,
        available: Option<u64>,
        capacity: Option<u64>,
    ) -> Cause {
        match limit {
            None if capacity.is_some_and(|all| live.saturating_add(requested) > all) => Cause::TooBig,
            None => Cause::DeviceFull,
            Some(limit) if live.saturating_add(requested) <= limit => Cause::Fragmented,
            Some(_) if available.is_some_and(|free| free >= requested) => Cause::LimitLow,
            Some(_) => Cause::TooBig,
        }
    }

    /// The name, as verdicts have it.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::TooBig => "too-big",
            Cause::LimitLow => "limit-low",
            Cause::Fragmented => "fragmented",
            Cause::DeviceFull => "other-process",
        }
    }
}

impl Shortage {
    /// What holds, in one sentence.
    pub fn sentence(&self) -> String {
        let requested = format_bytes(self.requested_bytes);
        let free = self.available_bytes.map_or("an unknown rest".into(), format_bytes);
        let live = format_bytes(self.live_bytes);
        let limit = self.limit_bytes.map_or("none".into(), format_bytes);
        match self.cause {
            Cause::TooBig if self.limit_bytes.is_some_and(|limit| self.requested_bytes > limit) => {
                format!("the request of {requested} alone is more than the limit of {limit}")
            }
            Cause::TooBig => {
                format!(
                    "what is live ({live}) and the request ({requested}) are more than the {limit} there are"
                )
            }
            Cause::LimitLow => {
                format!("the limit of {limit} stands in the way; the device could give another {free}")
            }
            Cause::Fragmented => format!(
                "{live} are live under a limit of {limit}, but what is free is in holes smaller than a page"
            ),
            Cause::DeviceFull => {
                format!(
                    "the device could give no more than {free}; others hold the rest, for this pool has taken {}",
                    format_bytes(self.reserved_bytes)
                )
            }
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> String {
        let enough = self.live_bytes.saturating_add(self.requested_bytes);
        let holder = self.holders.first().map(|(name, _)| format!("what `{name}` made"));
        let free =
            format!("free tensors ({} first), use a smaller batch", holder.unwrap_or("the largest".into()));
        match self.cause {
            Cause::LimitLow => format!("raise the limit to {enough} bytes or more, or {free}"),
            Cause::TooBig => format!("{free}, or use a device and a limit of {enough} bytes or more"),
            Cause::Fragmented => {
                let more = self.reserved_bytes.saturating_add(self.requested_bytes);
                format!(
                    "raise the limit to {more} bytes, or free the small tensors that are left between holes"
                )
            }
            Cause::DeviceFull => format!("{free}, or end other programs that use the device"),
        }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shortage { requested_bytes: requested, live_bytes: live, .. } = *self;
        write!(f, "{requested} bytes ({}) do not fit: {live}", format_bytes(requested))?;
        match self.limit_bytes {
            Some(limit) => {
                write!(
                    f,
                    " of {limit} bytes ({} of {}) are in use",
                    format_bytes(live),
                    format_bytes(limit)
                )?;
            }
            None => write!(f, " bytes ({}) are in use", format_bytes(live))?,
        }
        write!(f, "\n  {}: {}", self.cause.name(), self.sentence())?;
        let reserved = format_bytes(self.reserved_bytes);
        let hole = format_bytes(self.largest_hole_bytes);
        write!(f, "\n  taken from the device: {reserved}, the largest hole in it {hole}")?;
        if !self.holders.is_empty() {
            let holder =
                |(name, bytes): &(String, u64)| format!("{name} {bytes} bytes ({})", format_bytes(*bytes));
            let holders: Vec<String> = self.holders.iter().map(holder).collect();
            write!(f, "\n  held by: {}", holders.join(", "))?;
        }
        write!(f, "\n  to go on: {}", self.remedy())
    }
}

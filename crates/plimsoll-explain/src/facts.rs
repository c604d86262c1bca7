//! The facts: what a recording says about one device, derived once, for books, verdicts and advice alike.
//!
//! Sources differ in what they know and when: a snapshot is often taken after the failure, when part of the
//! memory was freed already, so where a trace has the refusal the facts are of that moment.

use crate::history::{History, layout_after};
use crate::recording::{Device, Framework};
use crate::usage::{Usage, live_at, live_at_end, live_in, total};
use plimsoll_memory::{Layout, Model, PieceState};
use std::borrow::Cow;
use std::collections::HashMap;

/// What is known of one device.
pub(crate) struct Facts<'a> {
    pub(crate) device: &'a Device,
    pub(crate) framework: Framework,
    pub(crate) history: Option<History>,
    /// Which moment the figures below are of.
    pub(crate) moment: Moment,
    /// The bytes that were refused, if any were.
    pub(crate) refused: Option<u64>,
    /// Bytes the pool had taken.
    pub(crate) reserved: Option<u64>,
    /// Bytes of the pool in use, rounding included where it is known.
    pub(crate) live: Option<u64>,
    /// Bytes of the pool in use as they were asked for.
    pub(crate) asked: Option<u64>,
    /// What lay where.
    pub(crate) layout: Option<Cow<'a, Layout>>,
    /// What was in use by owner, the most bytes first.
    pub(crate) by_owner: Vec<Usage>,
    /// The most the pool could have had.
    pub(crate) room: Option<Room>,
}

/// A moment of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// When a request was refused: after so many events of the trace, if there is one.
    Failure(Option<usize>),
    /// When recording ended.
    End,
}

/// The most a pool could have had, and how that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) bytes: u64,
    pub(crate) by: RoomBy,
}

/// What bounds a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoomBy {
    /// A limit that was set and recorded.
    Limit,
    /// A limit that must have been set: the device had room for the request, and it was refused.
    UnseenLimit,
    /// The device: what it had left when it refused.
    Device,
}

impl<'a> Facts<'a> {
    pub(crate) fn new(device: &'a Device, framework: Framework) -> Facts<'a> {
        let history = device.trace.as_ref().map(|trace| History::new(trace, &device.owners));
        let refusal = history.as_ref().and_then(|history| history.refusal);
        let refused = refusal.map(|r| r.requested).or(device.failure.as_ref().map(|f| f.requested));
        let mut facts = Facts {
            device,
            framework,
            history,
            moment: Moment::End,
            refused,
            reserved: device.reserved_bytes(),
            live: device.live_bytes(),
            asked: device.layout.as_ref().map(Layout::requested_bytes),
            layout: device.layout.as_ref().map(Cow::Borrowed),
            by_owner: Vec::new(),
            room: None,
        };
        match refusal {
            Some(refusal) => facts.look_at_refusal(refusal.event),
            None if refused.is_some() => facts.moment = Moment::Failure(None),
            None => {}
        }
        // A list of owners is of a moment of its own: the peak, in some profiles.
        if let (None, Some(history), true) = (&facts.layout, &facts.history, device.live_by_owner.is_empty())
        {
            let asked = refusal.map_or(history.end_live, |refusal| refusal.live);
            facts.live = facts.live.map(|live| live.max(asked)).or(Some(asked));
            facts.asked = Some(asked);
        }
        facts.by_owner = facts.owners_now();
        facts.room = facts.find_room();
        facts
    }

    /// Moves the figures to the moment of a refusal, if anything came and went after it.
    fn look_at_refusal(&mut self, event: usize) {
        self.moment = Moment::Failure(Some(event));
        let (Some(trace), Some(refusal)) =
            (&self.device.trace, self.history.as_ref().and_then(|h| h.refusal))
        else {
            return;
        };
        let moved = trace.events[event..].iter().any(|event| {
            use plimsoll_memory::Action::{Allocate, Free, Release, Reserve};
            matches!(event.action, Allocate(_) | Free(_) | Reserve { .. } | Release { .. })
        });
        if !moved && self.layout.is_some() {
            return;
        }
        let layout = layout_after(trace, event, self.expandable());
        self.reserved = if refusal.reserved > 0 { Some(refusal.reserved) } else { self.device.reserved };
        self.asked = Some(refusal.live);
        self.live = Some(layout.as_ref().map_or(refusal.live, Layout::live_bytes));
        self.layout = layout.map(Cow::Owned);
    }

    pub(crate) fn expandable(&self) -> bool {
        matches!(&self.device.model, Some(Model::Caching(settings)) if settings.expandable)
    }

    /// What is in use at this moment, by owner.
    fn owners_now(&self) -> Vec<Usage> {
        match (&self.layout, &self.device.trace, self.moment) {
            (Some(Cow::Owned(layout)), ..) => live_in(layout),
            (None, Some(trace), Moment::Failure(Some(event))) => live_at(trace, event.checked_sub(1)),
            _ => live_at_end(self.device),
        }
    }

    /// The most that the pool could have had.
    fn find_room(&self) -> Option<Room> {
        let device = self.device;
        if let Some(limit) = device.limit {
            return Some(Room { bytes: limit, by: RoomBy::Limit });
        }
        let reserved = self.reserved?;
        match (device.device_free, self.refused) {
            (Some(free), Some(refused)) if free >= refused.saturating_add(SLACK) => {
                // It is at least what the pool once had, and less than what it would have had.
                Some(Room { bytes: self.peak_reserved()?, by: RoomBy::UnseenLimit })
            }
            (Some(free), _) => Some(Room { bytes: reserved.saturating_add(free), by: RoomBy::Device }),
            (None, _) => {
                let others = total(device.others.iter().map(|&(_, bytes)| bytes));
                let context = device.process.unwrap_or(reserved).saturating_sub(reserved);
                let left = device.capacity?.checked_sub(others)?.checked_sub(context)?;
                Some(Room { bytes: left, by: RoomBy::Device })
            }
        }
    }

    /// Bytes that other processes hold: those named, or what is neither ours nor free.
    pub(crate) fn others(&self) -> Option<u64> {
        let device = self.device;
        if !device.others.is_empty() {
            return Some(total(device.others.iter().map(|&(_, bytes)| bytes)));
        }
        let (capacity, free) = (device.capacity?, device.device_free?);
        let ours = device.process.or(self.reserved)?;
        Some(capacity.saturating_sub(free).saturating_sub(ours))
    }

    /// The most bytes live at once, as far as the recording tells.
    pub(crate) fn peak_live(&self) -> Option<u64> {
        let seen = self.history.as_ref().map(|history| history.peak_live);
        [seen, self.device.peak_live, self.live].into_iter().flatten().max()
    }

    /// The most the pool had taken, as far as the recording tells.
    pub(crate) fn peak_reserved(&self) -> Option<u64> {
        let seen = self.history.as_ref().map(|history| history.peak_reserved).filter(|&bytes| bytes > 0);
        [seen, self.reserved].into_iter().flatten().max()
    }

    /// Whether next to nothing of the room was free: that a gap is large enough then is luck under any allocator.
    pub(crate) fn is_nearly_full(&self) -> bool {
        let (Some(live), Some(room)) = (self.live, self.room) else { return false };
        room.bytes.saturating_sub(live) as f64 <= NEARLY_FULL * room.bytes as f64
    }

    /// The size of which live pieces hold the most bytes, how many there are, and their share of what is in use.
    pub(crate) fn commonest_piece(&self) -> Option<(u64, u64, f64)> {
        let layout = self.layout.as_ref()?;
        let mut sizes: HashMap<u64, u64> = HashMap::new();
        let live = layout.pieces().filter(|piece| piece.state != PieceState::Free);
        live.for_each(|piece| *sizes.entry(piece.bytes).or_default() += 1);
        let (&size, &count) =
            sizes.iter().max_by_key(|&(&size, &count)| (size.saturating_mul(count), size))?;
        let share = size.saturating_mul(count) as f64 / layout.live_bytes().max(1) as f64;
        Some((size, count, share))
    }

    /// The largest free piece of the pool.
    pub(crate) fn largest_free(&self) -> Option<u64> {
        // What was reported knows rules that the layout does not show.
        self.device.largest_free.or(self.layout.as_ref().map(|layout| layout.largest_free()))
    }
}

/// The share of a room below which what is free is next to nothing.
const NEARLY_FULL: f64 = 0.05;

/// What a driver keeps for itself: a request this close to the last byte may be refused for that alone.
const SLACK: u64 = 64 << 20;

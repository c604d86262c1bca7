//! The facts: what a recording says about one device, derived once, for books, verdicts, advice and views alike.
//!
//! Sources differ in what they know and when: a snapshot is often taken after the failure, when part of the
//! memory was freed already, so where a trace has the refused request the facts are of that moment.

use crate::analyse::history::History;
use crate::analyse::rebuild_layout::rebuild_layout;
use crate::analyse::usage::{Usage, by_site, live_at, live_in, ranked, total};
use crate::moment::{Fragmentation, Moment, MomentKind, Peak, SiteUsage, Snapshot};
use crate::program::Backend;
use crate::recording::{Device, Failure, Framework};
use crate::sign::SignKind;
use plimsoll_memory::{Layout, Model, OwnerId, PieceState, Trace, format_bytes};
use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Instant;

/// What is known of one device.
pub(crate) struct Facts<'a> {
    pub(crate) device: &'a Device,
    pub(crate) framework: Framework,
    pub(crate) history: Option<History>,
    /// Which moment the figures below are of.
    pub(crate) moment: Moment,
    /// The bytes that were refused, if any were.
    pub(crate) refused: Option<u64>,
    /// Bytes the pool had reserved.
    pub(crate) reserved: Option<u64>,
    /// Bytes of the pool in use, rounding included where it is known.
    pub(crate) live: Option<u64>,
    /// Bytes of the pool in use as requested, without rounding.
    pub(crate) requested: Option<u64>,
    /// The pool's segments and blocks.
    pub(crate) layout: Option<Cow<'a, Layout>>,
    /// What the recording lists as in use by owner at this moment, without a layout: bytes and allocations.
    listed: &'a [(OwnerId, u64, u64)],
    /// What was in use by owner, the most bytes first.
    pub(crate) by_owner: Vec<Usage>,
    /// The same by call site.
    pub(crate) holders: Vec<SiteUsage>,
    /// The most the pool could have had.
    pub(crate) bound: Option<PoolBound>,
    /// Until when what is advised may be tried by replay.
    pub(crate) replay_until: Instant,
}

/// The most a pool could have had, and how that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PoolBound {
    pub(crate) bytes: u64,
    pub(crate) by: BoundBy,
}

/// What bounds a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BoundBy {
    /// A limit that was set and recorded.
    ConfiguredLimit,
    /// A limit that must have been set: the device had free bytes for the request, and it was refused.
    InferredLimit,
    /// The device: what the pool had, and what was free beside it.
    Device,
}

impl<'a> Facts<'a> {
    pub(crate) fn new(device: &'a Device, framework: Framework, replay_until: Instant) -> Facts<'a> {
        let history = device.trace.as_ref().map(|trace| History::new(trace, &device.owners));
        let refused = match (history.as_ref().and_then(|history| history.refusal), &device.failure) {
            (Some(refusal), _) => Some(refusal.requested),
            (None, failure) => failure.as_ref().map(|failure| failure.requested),
        };
        let moment = moment(device, history.as_ref());
        // What was in use at the peak says nothing of any other moment; a layout is never of the peak.
        let of_the_moment =
            device.layout.is_some() || !device.reported_at_peak || moment.kind == MomentKind::Peak;
        let listed = if of_the_moment { &device.live_by_owner[..] } else { &[] };
        let listed_bytes = (!listed.is_empty()).then(|| total(listed.iter().map(|&(_, bytes, _)| bytes)));
        let mut facts = Facts {
            device,
            framework,
            moment,
            listed,
            history,
            refused,
            reserved: device.reserved_bytes(),
            live: device.live_bytes().filter(|_| of_the_moment).or(listed_bytes),
            requested: device.layout.as_ref().map(Layout::requested_bytes),
            layout: device.layout.as_ref().map(Cow::Borrowed),
            by_owner: Vec::new(),
            holders: Vec::new(),
            bound: None,
            replay_until,
        };
        facts.use_trace();
        facts.by_owner = facts.owners_now();
        facts.holders = by_site(&device.owners, &facts.by_owner);
        facts.bound = facts.find_bound();
        facts
    }

    /// Takes the figures of the moment from the trace, where what was reported is of another moment or missing.
    fn use_trace(&mut self) {
        let (Some(trace), Some(history)) = (&self.device.trace, &self.history) else { return };
        let refusal = history.refusal;
        if self.layout.is_some() && refusal.is_none_or(|refusal| !changes_after(trace, refusal.event)) {
            return;
        }
        let requested = match (refusal, self.moment.kind) {
            (Some(refusal), _) => refusal.live,
            // A list of owners is complete for its moment; a trace may have begun too late to be.
            (None, _) if !self.listed.is_empty() => return,
            (None, MomentKind::Peak) => history.peak_live,
            (None, _) => history.end_live,
        };
        let rebuilt =
            rebuild_layout(trace, self.events_before(trace), self.expandable(), self.device.layout.as_ref())
                .filter(|layout| layout.requested_bytes() == requested);
        if let Some(refusal) = refusal {
            self.reserved = if refusal.reserved > 0 { Some(refusal.reserved) } else { self.device.reserved };
            self.live = Some(requested);
            self.layout = rebuilt.map(Cow::Owned);
        } else {
            // Reported figures are of the same moment: a layout that contradicts them is wrong.
            let agrees = |reported: Option<u64>, rebuilt| reported.is_none_or(|bytes| bytes == rebuilt);
            self.layout = rebuilt
                .filter(|layout| agrees(self.live, layout.live_bytes()))
                .filter(|layout| agrees(self.reserved, layout.reserved_bytes()))
                .map(Cow::Owned);
            self.live = self.live.max(Some(requested));
        }
        self.requested = Some(requested);
        if let Some(layout) = &self.layout {
            (self.live, self.reserved) = (Some(layout.live_bytes()), Some(layout.reserved_bytes()));
        }
    }

    /// How many events of the trace had happened at the moment.
    fn events_before(&self, trace: &Trace) -> usize {
        match (self.moment.kind, self.moment.event) {
            (MomentKind::Refusal, Some(event)) => event,
            (MomentKind::Refusal, None) => trace.events.len(),
            (MomentKind::Peak | MomentKind::End, event) => event.map_or(0, |event| event + 1),
        }
    }

    /// Whether there is time for another replay.
    pub(crate) fn may_replay(&self) -> bool {
        Instant::now() < self.replay_until
    }

    /// Whether a request was refused; all facts are of that moment then.
    pub(crate) fn is_refusal(&self) -> bool {
        self.moment.kind == MomentKind::Refusal
    }

    /// The event of the trace at which a request was refused.
    pub(crate) fn refusal_event(&self) -> Option<usize> {
        self.moment.event.filter(|_| self.is_refusal())
    }

    pub(crate) fn expandable(&self) -> bool {
        matches!(&self.device.model, Some(Model::Caching(settings)) if settings.expandable)
    }

    /// What is in use at this moment, by owner.
    fn owners_now(&self) -> Vec<Usage> {
        let listed = self.refusal_event().is_none() && !self.listed.is_empty();
        match (&self.layout, &self.device.trace) {
            (Some(layout), _) => live_in(layout),
            (None, Some(trace)) if !listed => live_at(trace, self.events_before(trace).checked_sub(1)),
            (None, _) => ranked(self.listed),
        }
    }

    /// The facts of the moment, for those who print them.
    pub(crate) fn into_snapshot(self) -> Snapshot {
        let failure = self.device.failure.as_ref();
        let seen = self.history.as_ref().is_some_and(|history| history.refusal.is_some());
        let refused = self.refused.map(|requested| Failure {
            requested,
            exact: seen || failure.is_some_and(|failure| failure.exact),
            event: self.moment.event,
            op: failure.and_then(|failure| failure.op.clone()),
        });
        Snapshot {
            moment: self.moment,
            refused,
            reserved_bytes: self.reserved,
            live_bytes: self.live,
            requested_bytes: self.requested,
            fragmentation: self.layout.as_deref().map(Fragmentation::of),
            layout: self.layout.map(Cow::into_owned),
            holders: self.holders,
        }
    }

    /// The most bytes live at once, and who held them.
    pub(crate) fn peak(&self) -> Option<Peak> {
        let moment = |event| Moment { kind: MomentKind::Peak, event };
        let Some((history, trace)) = self.history.as_ref().zip(self.device.trace.as_ref()) else {
            let live_bytes = self.device.peak_live?;
            return Some(Peak { moment: moment(None), live_bytes, holders: Vec::new() });
        };
        let event = history.peak_at.checked_sub(1);
        let held = if self.is_refusal() { Vec::new() } else { live_at(trace, event) };
        let holders = by_site(&self.device.owners, &held);
        Some(Peak { moment: moment(event), live_bytes: history.peak_live, holders })
    }

    /// The most that the pool could have had.
    fn find_bound(&self) -> Option<PoolBound> {
        let device = self.device;
        if let Some(limit) = device.limit {
            // Metal counts what it holds for the process beside the pool against the same limit.
            let beside = match device.program.backend {
                Some(Backend::Mps) => device.process.unwrap_or(0).saturating_sub(self.reserved.unwrap_or(0)),
                _ => 0,
            };
            return Some(PoolBound { bytes: limit.saturating_sub(beside), by: BoundBy::ConfiguredLimit });
        }
        // A pool that is the driver's own has no reserve beside what is in use.
        let reserved = self.reserved.or(self.live)?;
        match (device.device_free, self.refused) {
            // Only a trace shows that the pool never grew beyond; without one, nothing is known of a limit.
            (Some(free), Some(refused))
                if device.trace.is_some() && free >= refused.saturating_add(SLACK) =>
            {
                // It is at least what the pool once had, and less than what it would have had.
                Some(PoolBound { bytes: self.peak_reserved()?, by: BoundBy::InferredLimit })
            }
            (Some(free), _) => Some(PoolBound { bytes: reserved.saturating_add(free), by: BoundBy::Device }),
            (None, _) => {
                let others = total(device.others.iter().map(|&(_, bytes)| bytes));
                let context = device.process.unwrap_or(reserved).saturating_sub(reserved);
                let left = device.capacity?.checked_sub(others)?.checked_sub(context)?;
                Some(PoolBound { bytes: left, by: BoundBy::Device })
            }
        }
    }

    /// Bytes that other processes hold: those named, or what is neither ours nor free. What is no larger than a context
    /// is taken for this process's own, unless the recording tells the two apart.
    pub(crate) fn others(&self) -> Option<u64> {
        let device = self.device;
        if !device.others.is_empty() {
            return Some(total(device.others.iter().map(|&(_, bytes)| bytes)));
        }
        let rest = self.beside_the_pool()?;
        // Where the pool's size was not told, what it keeps unused is in the rest as well.
        let told = device.process.or(self.reserved).is_some();
        let idle = if told { 0 } else { self.live.unwrap_or(0) / 2 };
        Some(if rest > CONTEXT.saturating_add(idle) { rest } else { 0 })
    }

    /// What this process holds outside its pool, where that is most of the device: an engine beside PyTorch.
    pub(crate) fn held_by_an_engine(&self) -> Option<u64> {
        let beside = self.device.process?.checked_sub(self.reserved?)?;
        let most = self.device.limit.is_none() && beside > self.device.capacity? / 2;
        most.then_some(beside)
    }

    /// Bytes of the device that are neither free nor known to be this process's: others, and its own context where that
    /// was not recorded.
    pub(crate) fn beside_the_pool(&self) -> Option<u64> {
        let device = self.device;
        let (capacity, free) = (device.capacity?, device.device_free?);
        let ours = device.process.or(self.reserved).or(self.live)?;
        Some(capacity.saturating_sub(free).saturating_sub(ours))
    }

    /// Whether figures are known to the byte, and not as `1.46 GiB`.
    pub(crate) fn is_exact(&self) -> bool {
        let device = self.device;
        device.trace.is_some()
            || device.layout.is_some()
            || device.failure.as_ref().map_or(device.sign.is_none(), |failure| failure.exact)
    }

    /// Bytes as they were told: to the byte, or about.
    pub(crate) fn told(&self, bytes: u64) -> String {
        if self.is_exact() { format!("{bytes} bytes") } else { format_bytes(bytes) }
    }

    /// Whether a text says that something failed.
    pub(crate) fn failed(&self) -> bool {
        let sign = self.device.sign.as_ref();
        self.is_refusal() || sign.is_some_and(|sign| sign.kind != SignKind::Warning)
    }

    /// The most bytes live at once, as far as the recording tells.
    pub(crate) fn peak_live(&self) -> Option<u64> {
        let seen = self.history.as_ref().map(|history| history.peak_live);
        [seen, self.device.peak_live, self.live].into_iter().flatten().max()
    }

    /// The most the pool had reserved, as far as the recording tells.
    pub(crate) fn peak_reserved(&self) -> Option<u64> {
        let seen = self.history.as_ref().map(|history| history.peak_reserved).filter(|&bytes| bytes > 0);
        [seen, self.reserved].into_iter().flatten().max()
    }

    /// Whether nearly all of what the pool could have was in use: no allocator can promise a large enough hole then.
    pub(crate) fn is_nearly_full(&self) -> bool {
        let (Some(live), Some(bound)) = (self.live, self.bound) else { return false };
        bound.bytes.saturating_sub(live) as f64 <= NEARLY_FULL * bound.bytes as f64
    }

    /// The block size that holds the most live bytes, how many such blocks there are, and their share of live bytes.
    pub(crate) fn dominant_block_size(&self) -> Option<(u64, u64, f64)> {
        let layout = self.layout.as_ref()?;
        let mut sizes: HashMap<u64, u64> = HashMap::new();
        let live = layout.pieces().filter(|piece| piece.state != PieceState::Free);
        live.for_each(|piece| *sizes.entry(piece.bytes).or_default() += 1);
        let (&size, &count) =
            sizes.iter().max_by_key(|&(&size, &count)| (size.saturating_mul(count), size))?;
        let share = size.saturating_mul(count) as f64 / layout.live_bytes().max(1) as f64;
        Some((size, count, share))
    }

    /// The largest free block of the pool.
    pub(crate) fn largest_free(&self) -> Option<u64> {
        // A reported figure accounts for rules of the allocator that the layout does not show.
        self.device.largest_free.or(self.layout.as_ref().map(|layout| layout.largest_free()))
    }
}

/// The moment to explain: the refused request, else what the recording was made of.
fn moment(device: &Device, history: Option<&History>) -> Moment {
    let last = device.trace.as_ref().and_then(|trace| trace.events.len().checked_sub(1));
    match (history.and_then(|history| history.refusal), &device.failure) {
        (Some(refusal), _) => Moment { kind: MomentKind::Refusal, event: Some(refusal.event) },
        (None, Some(_)) => Moment { kind: MomentKind::Refusal, event: None },
        (None, None) if device.sign.as_ref().is_some_and(|sign| sign.kind != SignKind::Warning) => {
            Moment { kind: MomentKind::Refusal, event: None }
        }
        (None, None) if device.reported_at_peak && device.layout.is_none() => {
            let event = history.and_then(|history| history.peak_at.checked_sub(1));
            Moment { kind: MomentKind::Peak, event }
        }
        (None, None) => Moment { kind: MomentKind::End, event: last },
    }
}

/// Whether anything came or went after an event, so that what stood at the end did not stand then.
fn changes_after(trace: &Trace, event: usize) -> bool {
    use plimsoll_memory::Action::{Allocate, Free, Release, Reserve};
    trace.events[event..]
        .iter()
        .any(|event| matches!(event.action, Allocate(_) | Free(_) | Reserve { .. } | Release { .. }))
}

/// A pool of whose bound no more than this share is free is nearly full. Of 40 posted messages whose request was smaller than all
/// that was free, those of full devices had up to 6.0 % free, and those of pools in pieces 8.2 % and more.
const NEARLY_FULL: f64 = 0.065;

/// What a driver keeps for itself: a request this close to the last byte may be refused for that alone.
const SLACK: u64 = 64 << 20;

/// More than the context of a process and its libraries take on any device: 0.3 to 1.3 GiB.
const CONTEXT: u64 = 3 << 29;

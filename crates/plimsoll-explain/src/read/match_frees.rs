//! Frees find their allocations by address: for recordings that say where, not which.
//!
//! What is freed without having been allocated was live before the recording began. Recordings may contradict
//! themselves; what cannot be told is left out and counted, so that a trace always holds together: nothing is
//! freed twice, and the bytes live at once can be summed.

use super::budget::{Budget, EVENT};
use plimsoll_memory::{Action, OwnerId, Request, RequestId, Trace};
use std::collections::HashMap;

/// The most bytes that are believed to be live at once.
const MAX_LIVE: u64 = 1 << 60;

/// A trace under construction, within the budget.
pub(super) struct FreeMatcher {
    budget: Budget,
    pub(super) trace: Trace,
    /// What lies at each address that was spoken of; `None` once it was freed.
    at: HashMap<u64, Option<RequestId>>,
    live: u64,
    before: u64,
    /// Allocations at an address whose last tenant was never freed.
    pub(super) unfreed: u64,
    /// Events that could not be kept: contradictions, more than can be counted, or more bytes than any device
    /// has.
    pub(super) left_out: u64,
}

impl FreeMatcher {
    pub(super) fn new(budget: &Budget) -> FreeMatcher {
        FreeMatcher {
            budget: budget.clone(),
            trace: Trace::default(),
            at: HashMap::new(),
            live: 0,
            before: 0,
            unfreed: 0,
            left_out: 0,
        }
    }

    /// Adds an event, if there is room for it.
    pub(super) fn push(&mut self, time: u64, action: Action) -> bool {
        let room = self.budget.take(EVENT);
        if room {
            self.trace.push(time, action);
        }
        room
    }

    /// A request was granted at its address.
    pub(super) fn allocate(&mut self, time: u64, request: Request) {
        if self.live.saturating_add(request.bytes) > MAX_LIVE {
            self.left_out += 1;
            return;
        }
        if let Some(Some(before)) = self.at.get(&request.address).copied() {
            self.unfreed += 1;
            self.end(time, before);
        }
        let Some(id) = self.request(request) else { return };
        if self.push(time, Action::Allocate(id)) {
            self.live += request.bytes;
            self.at.insert(request.address, Some(id));
        }
    }

    /// What lies at the request's address was freed; if nothing is known to, the request was live before.
    pub(super) fn free(&mut self, time: u64, request: Request) {
        match self.at.get(&request.address).copied() {
            Some(Some(id)) => self.end(time, id),
            // Freed, and freed again without an allocation between.
            Some(None) => self.left_out += 1,
            None => {
                if let Some(id) = self.live_before(request) {
                    self.end(time, id);
                }
            }
        }
    }

    fn end(&mut self, time: u64, id: RequestId) {
        let &Request { bytes, address, .. } = self.trace.request(id);
        if self.push(time, Action::Free(id)) {
            self.live = self.live.saturating_sub(bytes);
            self.at.insert(address, None);
        }
    }

    /// Adds a request, if it can be counted.
    pub(super) fn request(&mut self, request: Request) -> Option<RequestId> {
        if self.trace.requests.len() >= u32::MAX as usize {
            self.left_out += 1;
            return None;
        }
        Some(self.trace.push_request(request))
    }

    /// Whether anything was said of an address.
    pub(super) fn knows(&self, address: u64) -> bool {
        self.at.contains_key(&address)
    }

    /// A request that was live before the first event.
    pub(super) fn live_before(&mut self, request: Request) -> Option<RequestId> {
        if self.before.saturating_add(request.bytes) > MAX_LIVE {
            self.left_out += 1;
            return None;
        }
        if !self.budget.take(EVENT) {
            return None;
        }
        let id = self.request(request)?;
        self.before += request.bytes;
        self.live = self.live.saturating_add(request.bytes);
        self.trace.initial.push(id);
        Some(id)
    }

    /// The trace, what was live before in order of address.
    pub(super) fn finish(mut self) -> Trace {
        let requests = &self.trace.requests;
        self.trace.initial.sort_by_key(|id| requests.get(id.0 as usize).map(|request| request.address));
        self.trace
    }
}

/// A request as a free tells of it: who frees need not be who asked.
pub(super) fn freed(bytes: u64, address: u64, stream: u32) -> Request {
    Request { bytes, address, stream, owner: OwnerId::UNKNOWN }
}

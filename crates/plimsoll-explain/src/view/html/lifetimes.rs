//! From when to when: a trace's events as lifetimes.
//!
//! With the moment at which each piece of memory came and the one at which it went, what was there at any moment
//! is a filter, and a page needs no replay to show it. Moment `n` is after `n` events; moment 0 is before all.

use plimsoll_memory::{Action, RequestId, Trace};
use std::collections::BTreeMap;

/// A moment that never comes: what was still there at the end goes then.
pub(super) const NEVER: u32 = u32::MAX;

/// When a granted request's memory was held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestLifetime {
    pub(super) request: RequestId,
    pub(super) born: u32,
    pub(super) died: u32,
}

/// When the pool held a range of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReservedRange {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) born: u32,
    pub(super) died: u32,
}

/// A trace, as what lived when.
pub(super) struct Lifetimes {
    /// Granted requests in the order in which they came.
    pub(super) lives: Vec<RequestLifetime>,
    /// What the pool held of the device, in order of address.
    pub(super) ranges: Vec<ReservedRange>,
    /// Moments of refusals, and how many bytes were refused.
    pub(super) refusals: Vec<(u32, u64)>,
    /// Moments of marks, and which.
    pub(super) marks: Vec<(u32, u32)>,
    /// How many moments follow moment 0.
    pub(super) end: u32,
}

impl Lifetimes {
    /// Of a trace. Events that cannot be (of unknown requests, of one granted or freed twice) are passed over.
    pub(super) fn of(trace: &Trace) -> Lifetimes {
        let mut lives: Vec<RequestLifetime> = Vec::new();
        // Where in `lives` each request is.
        let mut index: Vec<Option<usize>> = vec![None; trace.requests.len()];
        let mut held = ReservedRanges::default();
        let (mut refusals, mut marks) = (Vec::new(), Vec::new());
        let mut end = 0;
        let bytes_of = |id: RequestId| trace.requests.get(id.0 as usize).map_or(0, |r| r.bytes);

        let before = trace.initial.iter().map(|&request| (0, Action::Allocate(request)));
        let reserved = trace.initial_reserved.iter();
        let before = before.chain(reserved.map(|&(address, bytes)| (0, Action::Reserve { address, bytes })));
        let events = (1..NEVER).zip(trace.events.iter().map(|event| event.action));
        for (moment, action) in before.chain(events) {
            end = moment;
            match action {
                Action::Allocate(request) => match index.get_mut(request.0 as usize) {
                    Some(place @ None) => {
                        *place = Some(lives.len());
                        lives.push(RequestLifetime { request, born: moment, died: NEVER });
                    }
                    _ => continue,
                },
                Action::Free(request) => match index.get(request.0 as usize) {
                    Some(&Some(place)) if lives[place].died == NEVER => {
                        lives[place].died = moment;
                    }
                    _ => continue,
                },
                Action::Refuse(request) => refusals.push((moment, bytes_of(request))),
                Action::Reserve { address, bytes } => held.take(address, bytes, moment),
                Action::Release { address, bytes } => held.give_back(address, bytes, moment),
                Action::Mark(name) => marks.push((moment, name)),
            }
        }
        Lifetimes { lives, ranges: held.close(), refusals, marks, end }
    }
}

/// What a pool holds of the device: ranges that do not overlap.
#[derive(Default)]
struct ReservedRanges {
    /// By address: bytes, and since when.
    now: BTreeMap<u64, (u64, u32)>,
    gone: Vec<ReservedRange>,
}

impl ReservedRanges {
    fn take(&mut self, address: u64, bytes: u64, moment: u32) {
        self.give_back(address, bytes, moment);
        if bytes > 0 {
            self.now.insert(address, (bytes.min(u64::MAX - address), moment));
        }
    }

    /// Takes a range out. What it held in part stays in part.
    fn give_back(&mut self, address: u64, bytes: u64, moment: u32) {
        let end = address.saturating_add(bytes);
        while let Some((&start, &(length, born))) = self.now.range(..end).next_back() {
            let stop = start + length;
            if stop <= address {
                break;
            }
            self.now.remove(&start);
            if born < moment {
                self.gone.push(ReservedRange { address: start, bytes: length, born, died: moment });
            }
            if stop > end {
                self.now.insert(end, (stop - end, moment));
            }
            if start < address {
                self.now.insert(start, (address - start, moment));
            }
        }
    }

    fn close(mut self) -> Vec<ReservedRange> {
        let rest = self.now.into_iter();
        self.gone.extend(rest.map(|(address, (bytes, born))| ReservedRange {
            address,
            bytes,
            born,
            died: NEVER,
        }));
        self.gone.sort_by_key(|range| (range.address, range.born));
        self.gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_memory::{OwnerId, Request};
    use proptest::prelude::*;

    fn trace_of(actions: &[Action], requests: u32) -> Trace {
        let mut trace = Trace::default();
        for n in 0..requests {
            let bytes = u64::from(n) + 1;
            trace.push_request(Request { bytes, address: 0, stream: 0, owner: OwnerId::UNKNOWN });
        }
        actions.iter().for_each(|&action| trace.push(0, action));
        trace
    }

    #[test]
    fn a_range_given_back_in_part_stays_in_part() {
        let lifetimes = Lifetimes::of(&trace_of(
            &[
                Action::Reserve { address: 100, bytes: 30 },
                Action::Release { address: 110, bytes: 10 },
                Action::Release { address: 0, bytes: u64::MAX },
            ],
            0,
        ));
        let range = |address, bytes, born, died| ReservedRange { address, bytes, born, died };
        let expected = [range(100, 30, 1, 2), range(100, 10, 2, 3), range(120, 10, 2, 3)];
        assert_eq!(lifetimes.ranges, expected);
    }

    fn action() -> impl Strategy<Value = Action> {
        prop_oneof![
            (0u32..12).prop_map(|n| Action::Allocate(RequestId(n))),
            (0u32..12).prop_map(|n| Action::Free(RequestId(n))),
            (0u64..40, 0u64..20).prop_map(|(address, bytes)| Action::Reserve { address, bytes }),
            (0u64..40, 0u64..20).prop_map(|(address, bytes)| Action::Release { address, bytes }),
        ]
    }

    proptest! {
        #[test]
        fn what_lives_at_a_moment_is_what_the_events_before_it_left(
            actions in proptest::collection::vec(action(), 0..60)
        ) {
            let trace = trace_of(&actions, 10);
            let lifetimes = Lifetimes::of(&trace);
            let (mut live, mut ever) = ([false; 10], [false; 10]);
            let mut reserved = [false; 64];
            for (moment, action) in (1u32..).zip(&actions) {
                match *action {
                    Action::Allocate(RequestId(n)) if n < 10 && !ever[n as usize] => {
                        (live[n as usize], ever[n as usize]) = (true, true);
                    }
                    Action::Free(RequestId(n)) if n < 10 => live[n as usize] = false,
                    Action::Reserve { address, bytes } => {
                        reserved[address as usize..(address + bytes) as usize].fill(true);
                    }
                    Action::Release { address, bytes } => {
                        reserved[address as usize..(address + bytes) as usize].fill(false);
                    }
                    _ => {}
                }
                let there = |born: u32, died: u32| born <= moment && moment < died;
                let mut shown = [false; 10];
                for life in lifetimes.lives.iter().filter(|l| there(l.born, l.died)) {
                    shown[life.request.0 as usize] = true;
                }
                prop_assert_eq!(shown, live);
                let mut covered = [false; 64];
                for range in lifetimes.ranges.iter().filter(|r| there(r.born, r.died)) {
                    for byte in &mut covered[range.address as usize..(range.address + range.bytes) as usize] {
                        prop_assert!(!*byte, "ranges overlap");
                        *byte = true;
                    }
                }
                prop_assert_eq!(covered, reserved);
            }
            prop_assert_eq!(lifetimes.end as usize, actions.len());
        }
    }
}

//! The ring: the last events of a pool, always recorded.
//!
//! Out of memory comes unannounced, and by then it is too late to begin recording. So every pool keeps its last
//! events in memory of a fixed size. What was live before the oldest of them is found by undoing them from what is
//! live now, so that a ring that has wrapped still gives a trace that holds together.

use crate::extents::Extents;
use crate::layout::{Layout, PieceState};
use crate::owners::OwnerId;
use crate::trace::{Action, Request, RequestId, Trace};
use std::collections::{BTreeMap, HashMap};

/// The last events of a pool.
#[derive(Debug)]
pub(crate) struct Ring {
    entries: Vec<Entry>,
    capacity: usize,
    /// Where the next one goes once the ring is full, which is where the oldest is.
    next: usize,
    /// Events that are no longer there.
    forgotten: u64,
}

/// An event. Whatever it is about, it can be undone by what it holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    /// Microseconds since the pool was made.
    pub(crate) time: u64,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) owner: OwnerId,
    pub(crate) what: What,
}

/// What an [`Entry`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Allocate,
    Free,
    Refuse,
    Reserve,
    Release,
    /// The mark is the number in `bytes`.
    Mark,
}

impl Ring {
    /// A ring of that many events. Its memory is taken as they come.
    pub(crate) fn new(capacity: usize) -> Ring {
        Ring { entries: vec![], capacity, next: 0, forgotten: 0 }
    }

    /// Records an event in place of the oldest, if there is no room.
    pub(crate) fn push(&mut self, entry: Entry) {
        if self.entries.len() < self.capacity {
            self.entries.push(entry);
            return;
        }
        self.forgotten += 1;
        if let Some(oldest) = self.entries.get_mut(self.next) {
            *oldest = entry;
            self.next = (self.next + 1) % self.capacity;
        }
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        let (newer, older) = self.entries.split_at(self.next);
        older.iter().chain(newer)
    }

    /// The events as a trace that ends in `now`, with the names of marks.
    pub(crate) fn trace(&self, now: &Layout, marks: &[String]) -> Trace {
        let mut live: BTreeMap<u64, (u64, OwnerId)> = BTreeMap::new();
        for piece in now.pieces().filter(|piece| piece.state == PieceState::Live) {
            live.insert(piece.address, (piece.requested, piece.owner));
        }
        let mut reserved = Extents::default();
        for segment in &now.segments {
            reserved.insert(segment.address..segment.address + segment.bytes);
        }
        for entry in self.iter().rev() {
            let range = entry.address..entry.address.saturating_add(entry.bytes);
            match entry.what {
                What::Allocate => _ = live.remove(&entry.address),
                What::Free => _ = live.insert(entry.address, (entry.bytes, entry.owner)),
                What::Reserve => reserved.remove(range),
                What::Release => _ = reserved.insert(range),
                What::Refuse | What::Mark => {}
            }
        }
        let mut trace = Trace { complete: self.forgotten == 0, marks: marks.to_vec(), ..Trace::default() };
        trace.initial_reserved =
            reserved.iter().map(|range| (range.start, range.end - range.start)).collect();
        let mut open: HashMap<u64, RequestId> = HashMap::new();
        for (address, (bytes, owner)) in live {
            let id = trace.push_request(Request { bytes, address, stream: 0, owner });
            trace.initial.push(id);
            open.insert(address, id);
        }
        for &Entry { time, address, bytes, owner, what } in self.iter() {
            let request = Request { bytes, address, stream: 0, owner };
            let action = match what {
                What::Allocate => {
                    let id = trace.push_request(request);
                    open.insert(address, id);
                    Action::Allocate(id)
                }
                // What is freed was live, or the walk back would have put it there.
                What::Free => match open.remove(&address) {
                    Some(id) => Action::Free(id),
                    None => continue,
                },
                What::Refuse => Action::Refuse(trace.push_request(request)),
                What::Reserve => Action::Reserve { address, bytes },
                What::Release => Action::Release { address, bytes },
                What::Mark => Action::Mark(bytes as u32),
            };
            trace.push(time, action);
        }
        trace
    }
}

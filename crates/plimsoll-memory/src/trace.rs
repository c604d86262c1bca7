//! The trace: what a program asked of one pool, in order.
//!
//! Readers of other programs' recordings and Plimsoll's own pools write it; verdicts look at it and replay
//! runs it again under other allocators. It says what was asked (requests) and when (events); where things lay
//! at the end is a [`Layout`](crate::Layout).

use crate::owners::OwnerId;

/// A request in a [`Trace`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u32);

/// Memory that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The bytes asked for, before any rounding. Where only rounded bytes were recorded, those.
    pub bytes: u64,
    /// Where it was placed; 0 where that is not known or it was refused.
    pub address: u64,
    /// The stream it was asked on: memory freed on one stream is not reused on another at once.
    pub stream: u32,
    /// Who asked.
    pub owner: OwnerId,
}

/// What happened at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A request was granted.
    Allocate(RequestId),
    /// A granted request's memory came back to the pool.
    Free(RequestId),
    /// A request was refused: the program ran out of memory here.
    Refuse(RequestId),
    /// The pool took memory from the device.
    Reserve {
        /// Where.
        address: u64,
        /// How much.
        bytes: u64,
    },
    /// The pool gave memory back to the device.
    Release {
        /// Where.
        address: u64,
        /// How much.
        bytes: u64,
    },
    /// The program passed a mark, such as the end of a step: an index into [`Trace::marks`].
    Mark(u32),
}

/// An action and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Microseconds on the recorder's clock; 0 throughout where times were not recorded. Never decreasing.
    pub time: u64,
    /// What happened.
    pub action: Action,
}

/// All that one pool was asked for, in order.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// Every request, in order of appearance.
    pub requests: Vec<Request>,
    /// What was live already when recording began, in order of address.
    pub initial: Vec<RequestId>,
    /// Bytes the pool had taken from the device when recording began: address and size of each piece.
    pub initial_reserved: Vec<(u64, u64)>,
    /// What happened, in order.
    pub events: Vec<Event>,
    /// Names of marks, such as `step` or `Optimizer.step#Adam.step`.
    pub marks: Vec<String>,
    /// Whether recording began with the program: nothing was asked before. Rings that have wrapped are not.
    pub complete: bool,
}

impl Trace {
    /// The request of that number.
    ///
    /// # Panics
    /// If the request is of another trace.
    pub fn request(&self, id: RequestId) -> &Request {
        &self.requests[id.0 as usize]
    }

    /// Adds a request and returns its number.
    pub fn push_request(&mut self, request: Request) -> RequestId {
        let id = RequestId(self.requests.len() as u32);
        self.requests.push(request);
        id
    }

    /// Adds an event.
    pub fn push(&mut self, time: u64, action: Action) {
        self.events.push(Event { time, action });
    }

    /// The most bytes live at once, as they were asked for, and the event after which they were (`None`:
    /// before the first). No allocator can do with less.
    pub fn peak_live(&self) -> (u64, Option<usize>) {
        let initial = self.initial.iter().map(|&id| self.request(id).bytes);
        let mut live = initial.fold(0, u64::saturating_add);
        let (mut peak, mut at) = (live, None);
        for (index, event) in self.events.iter().enumerate() {
            match event.action {
                Action::Allocate(id) => live = live.saturating_add(self.request(id).bytes),
                Action::Free(id) => live = live.saturating_sub(self.request(id).bytes),
                _ => continue,
            }
            if live > peak {
                (peak, at) = (live, Some(index));
            }
        }
        (peak, at)
    }
}

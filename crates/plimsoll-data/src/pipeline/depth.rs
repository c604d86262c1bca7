//! How many threads work in a stage and how many records it keeps ready: what a person asks for, and what pays by what was
//! waited for.

use std::time::{Duration, Instant};

/// How many threads work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// As many as the machine runs at once.
    Auto,
    /// So many; none is the caller's own thread.
    Threads(usize),
}

impl Workers {
    /// More threads than this are never of use here.
    const MOST: usize = 256;

    pub(crate) fn threads(self) -> usize {
        match self {
            Workers::Auto => std::thread::available_parallelism().map_or(1, usize::from),
            Workers::Threads(threads) => threads,
        }
        .min(Workers::MOST)
    }
}

impl From<usize> for Workers {
    fn from(threads: usize) -> Workers {
        Workers::Threads(threads)
    }
}

/// How many records are made ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// One for each thread at first, and more while the consumer has to wait for some although the threads had to wait for the
    /// consumer before, if the budget has room. Where one thread is all that can be of use, none at first: the thread
    /// starts once the consumer has waited for what it could have made meanwhile.
    Auto,
    /// At most so many, and at least 1.
    Records(usize),
}

impl From<usize> for Depth {
    fn from(records: usize) -> Depth {
        Depth::Records(records)
    }
}

/// The time that is lost for want of records that are ready: threads wait for the consumer, or there are none yet, and the
/// consumer waits for records later. Where only one side ever waits, more ready records would change nothing.
pub(super) struct Lost {
    /// What threads have waited since the consumer last did.
    idle: Duration,
    /// What would have been saved since the depth was last changed, at `since`.
    lost: Duration,
    since: Instant,
}

impl Lost {
    /// Less than this is never much, nor less than one part in so many.
    const LEAST: Duration = Duration::from_micros(200);
    const SHARE: u32 = 50;

    pub(super) fn threads_waited(&mut self, time: Duration) {
        self.idle += time;
    }

    /// Says whether so much was lost that more is to be ready; then it begins anew.
    pub(super) fn consumer_waited(&mut self, time: Duration) -> bool {
        self.lost += time.min(std::mem::take(&mut self.idle));
        let is_much = self.lost > Lost::LEAST.max(self.since.elapsed() / Lost::SHARE);
        if is_much {
            *self = Lost::default();
        }
        is_much
    }
}

impl Default for Lost {
    fn default() -> Lost {
        Lost { idle: Duration::ZERO, lost: Duration::ZERO, since: Instant::now() }
    }
}

//! The one budget of memory and time that everything in a file is read within.
//!
//! A file of kilobytes can stand for gigabytes: packed zeros, a list that is named a thousand times, names copied for
//! each device. No limit on one kind of thing covers the next kind, so every reader takes from one account whatever it
//! keeps, before it keeps it, and whatever it works through. Once anything is refused the input ends, and what was read
//! by then is the answer, said to be a part. For making that answer there is time kept back, and memory: what is held only
//! while reading goes on is a [`Charge`], which is given back.

use plimsoll_memory::format_bytes;
use std::cell::Cell;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How much memory and time reading and explaining files may take.
///
/// ```
/// use plimsoll_explain::Limits;
/// let limits = Limits { memory_bytes: 256 << 20, ..Limits::default() };
/// assert_eq!(limits.time.as_secs(), 30);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory, of all files of a run together, with what it takes to explain them.
    pub memory_bytes: u64,
    /// Time to read all files of a run, with what is waited for.
    pub time: Duration,
}

impl Default for Limits {
    /// 1 GiB and 30 seconds.
    fn default() -> Limits {
        Limits { memory_bytes: 1 << 30, time: Duration::from_secs(30) }
    }
}

/// What an event of a trace takes from when it is read to when the page is drawn: itself, its request, the address it
/// is found by, replays and columns. Measured; `tests/bounded.rs` fails if it is too little.
pub(super) const EVENT: u64 = 256;

/// What a block of a layout takes likewise.
pub(super) const PIECE: u64 = 256;

/// How many pieces of work there are between two looks at the clock.
const WORK_PER_LOOK: u32 = 1 << 10;

/// An account of memory and time. Clones are the same account.
#[derive(Debug, Clone)]
pub(crate) struct Budget(Rc<Account>);

#[derive(Debug)]
struct Account {
    limits: Limits,
    left: Cell<u64>,
    /// When reading ends, and when all work does.
    reading_until: Instant,
    deadline: Instant,
    work: Cell<u32>,
    /// Whether the deadline was seen to have passed.
    over: Cell<bool>,
    spent: Cell<Option<Spent>>,
}

/// What was used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spent {
    Memory,
    Time,
}

impl Budget {
    pub(super) fn new(limits: Limits) -> Budget {
        let now = Instant::now();
        let time = limits.time.min(Duration::from_secs(365 * 24 * 3600));
        let (reading_until, deadline) = (now + time * 2 / 3, now + time);
        let (left, work, spent) = (Cell::new(limits.memory_bytes), Cell::new(0), Cell::new(None));
        let over = Cell::new(false);
        Budget(Rc::new(Account { limits, left, reading_until, deadline, work, over, spent }))
    }

    /// Takes bytes for what is about to be kept. False if there are not so many: then it may not be kept.
    #[must_use]
    pub(super) fn take(&self, bytes: u64) -> bool {
        if !self.work() {
            return false;
        }
        let left = self.0.left.get().checked_sub(bytes);
        match left {
            Some(left) => self.0.left.set(left),
            None => self.0.spent.set(Some(Spent::Memory)),
        }
        left.is_some()
    }

    /// Gives back what was taken for something that is kept no longer.
    fn give_back(&self, bytes: u64) {
        self.0.left.set(self.0.left.get().saturating_add(bytes).min(self.0.limits.memory_bytes));
    }

    /// Adds an item to a list if there is memory for it; says whether it was added.
    #[must_use]
    pub(super) fn push<T>(&self, list: &mut Vec<T>, item: T) -> bool {
        if list.len() == list.capacity() {
            let more = list.capacity().max(4);
            if !self.take((more * size_of::<T>()) as u64) {
                return false;
            }
            list.reserve_exact(more);
        } else if !self.work() {
            return false;
        }
        list.push(item);
        true
    }

    /// A piece of work is about to be done. False if time is over.
    #[must_use]
    pub(super) fn work(&self) -> bool {
        self.is_time_before(self.0.deadline)
    }

    /// A piece of a file is about to be read. False if the time for that is over, or anything was refused.
    #[must_use]
    pub(super) fn reads_on(&self) -> bool {
        !self.is_spent() && self.is_time_before(self.0.reading_until)
    }

    /// Looks at the clock now and then; once over, time stays over.
    fn is_time_before(&self, end: Instant) -> bool {
        let work = self.0.work.get().wrapping_add(1);
        self.0.work.set(work);
        if !work.is_multiple_of(WORK_PER_LOOK) {
            return !self.0.over.get();
        }
        let now = Instant::now();
        self.0.over.set(now >= self.0.deadline);
        if now >= end {
            self.0.spent.set(self.0.spent.get().or(Some(Spent::Time)));
        }
        now < end
    }

    /// How long may still be waited for a file.
    pub(super) fn time_to_wait(&self) -> Duration {
        self.0.reading_until.saturating_duration_since(Instant::now())
    }

    /// Bytes of memory in all.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.0.limits.memory_bytes
    }

    /// Time is over: something was waited for that did not come.
    pub(super) fn waited(&self) {
        self.0.spent.set(self.0.spent.get().or(Some(Spent::Time)));
    }

    /// Whether anything was refused.
    pub(super) fn is_spent(&self) -> bool {
        self.0.spent.get().is_some()
    }

    /// What an input says that is not read on.
    pub(super) fn error(&self) -> io::Error {
        io::Error::new(io::ErrorKind::QuotaExceeded, self.to_string())
    }
}

/// What was used up, in words.
impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limits { memory_bytes, time } = self.0.limits;
        match self.0.spent.get() {
            Some(Spent::Time) => write!(f, "the {} s that reading may take are over", time.as_secs_f64()),
            _ => write!(f, "the {} of memory that reading may take are used up", format_bytes(memory_bytes)),
        }
    }
}

/// What one thing has taken of a budget, which it gives back when it is let go.
#[derive(Debug)]
pub(super) struct Charge {
    budget: Budget,
    bytes: u64,
}

impl Charge {
    pub(super) fn new(budget: &Budget) -> Charge {
        Charge { budget: budget.clone(), bytes: 0 }
    }

    #[must_use]
    pub(super) fn take(&mut self, bytes: u64) -> bool {
        let taken = self.budget.take(bytes);
        self.bytes += if taken { bytes } else { 0 };
        taken
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_taken_for_before_and_nothing_is_read_after_a_refusal() {
        let budget = Budget::new(Limits { memory_bytes: 1000, ..Limits::default() });
        let mut list = Vec::new();
        let kept = (0..1000_u64).filter(|&number| budget.push(&mut list, number)).count();
        assert_eq!((kept, list.len()), (64, 64));
        assert!(list.capacity() * 8 <= 1000);
        assert!(budget.is_spent() && !budget.reads_on());
        // What was read can still be made something of.
        assert!(budget.work() && budget.take(400));
        assert!(budget.to_string().contains("1000 B of memory"), "{budget}");
    }

    #[test]
    fn what_is_let_go_is_given_back() {
        let budget = Budget::new(Limits { memory_bytes: 100, ..Limits::default() });
        for _ in 0..10 {
            assert!(Charge::new(&budget).take(60));
        }
        let mut kept = Charge::new(&budget);
        assert!(kept.take(60) && !Charge::new(&budget).take(60));
    }

    #[test]
    fn time_that_is_over_ends_all_work() {
        let budget = Budget::new(Limits { time: Duration::ZERO, ..Limits::default() });
        assert!((0..=WORK_PER_LOOK).any(|_| !budget.work()));
        assert!(!budget.work() && !budget.take(1) && !budget.reads_on());
        assert!(budget.to_string().contains("0 s"), "{budget}");
    }
}

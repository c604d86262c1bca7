//! Records made ahead, on threads of their own: prefetching, and functions that are applied in parallel.
//!
//! One thread at a time takes the next record from upstream, or claims it there to read it itself; what is done to it, several
//! do at once. Records come out in
//! the order in which they were taken in, unless told otherwise. How many are ahead is bounded by a depth, and by the
//! budget: where it has no room for one more, the threads wait until one is used up.
//!
//! Where one thread is all that can be of use and nobody said how many records to make ahead, the caller makes them until
//! that has cost time: a consumer that does nothing but take them needs no second copy of a large one.

use super::depth::{Depth, Lost, Workers};
use super::map::{Work, message_of};
use super::pending::{read_positions, save_positions};
use super::{Account, Claim, Cursor, Held, Node, OneToOne, Pass, StageMeter, Stream};
use crate::{Error, ErrorKind, Field, Record, Result};
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// The most records that are made ahead without the person's word.
const MOST_AHEAD: usize = 64;

/// Records that are made before they are asked for.
#[derive(Clone)]
pub(crate) struct Prefetched {
    pub(crate) upstream: Arc<dyn Node>,
    pub(crate) depth: Depth,
}

impl Node for Prefetched {
    fn fields(&self) -> &Arc<[Field]> {
        self.upstream.fields()
    }

    fn count(&self) -> Option<u64> {
        self.upstream.count()
    }

    fn open(&self, pass: &Pass) -> Result<Box<dyn Stream>> {
        let upstream = self.upstream.open(pass)?;
        let meter = pass.meter.stage("prefetch");
        // What can be claimed is read by several at once; else one thread is all that can be of use.
        let threads = if upstream.can_be_claimed() { Workers::Auto.threads() } else { 1 };
        let threads = match self.depth {
            Depth::Auto => threads,
            Depth::Records(records) => threads.min(records.max(1)),
        };
        let options = RingOptions { meter, threads, depth: self.depth, is_ordered: true, work: None };
        Ok(Box::new(Ring::new(upstream, self.fields(), self.fields(), options, pass)))
    }

    fn upstream(&self) -> &[Arc<dyn Node>] {
        std::slice::from_ref(&self.upstream)
    }

    fn one_to_one(&self) -> Option<OneToOne<'_>> {
        Some((&self.upstream, Box::new(|upstream| Arc::new(Prefetched { upstream, ..self.clone() }))))
    }
}

/// What a ring does, and with how many threads.
pub(crate) struct RingOptions {
    pub(crate) meter: Arc<StageMeter>,
    /// At least 1.
    pub(crate) threads: usize,
    pub(crate) depth: Depth,
    pub(crate) is_ordered: bool,
    /// What is done to a record, if anything is.
    pub(crate) work: Option<Work>,
}

/// Threads that make records, and whoever takes them.
pub(crate) struct Ring {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Where upstream was after the record that was given out last.
    position: Vec<u64>,
    taken: u64,
    /// While there are no threads: since when the caller is with the last record, and what that has cost.
    alone: Option<Alone>,
}

/// A caller who makes records itself.
#[derive(Default)]
struct Alone {
    away_since: Option<Instant>,
    lost: Lost,
    /// Whether a thread is to make the records from now on.
    has_lost: bool,
    /// Where upstream was after the last record.
    after: Vec<u64>,
}

struct Shared {
    options: RingOptions,
    account: Arc<Account>,
    in_fields: Arc<[Field]>,
    out_fields: Arc<[Field]>,
    feed: Mutex<Feed>,
    /// Empty records of upstream.
    inputs: Mutex<Vec<Record>>,
    state: Mutex<State>,
    /// Something was made, or there is no more to be made.
    made: Condvar,
    /// Something was taken, or everything ends.
    taken: Condvar,
}

/// Upstream, from which one thread takes at a time.
struct Feed {
    upstream: Box<dyn Stream>,
    /// The number of the next record.
    next: u64,
    /// Records that were taken in before, are not given out, and come first, by number and position; and where to go on
    /// after them.
    again: VecDeque<(u64, Vec<u64>)>,
    then: Option<Vec<u64>>,
    has_ended: bool,
}

#[derive(Default)]
struct State {
    /// How many may be under way at once.
    depth: usize,
    /// How many are: permitted, and not yet given out.
    under_way: usize,
    /// The time that more ready records would have saved.
    lost: Lost,
    /// By number: where upstream was before it, if records may come in any order, and after it.
    positions: BTreeMap<u64, (Vec<u64>, Vec<u64>)>,
    /// By number: what was made.
    made: BTreeMap<u64, Result<Record>>,
    /// The bytes of the largest record so far, with what it was made of.
    largest: u64,
    /// Records and positions to be used again.
    spare: Vec<Record>,
    spare_positions: Vec<Vec<u64>>,
    /// The number after the last record.
    end: Option<u64>,
    closed: bool,
    /// What is held for all that is under way.
    held: Option<Held>,
}

impl State {
    /// Holds what so many of the largest record take, if the budget has room for them.
    fn hold(&mut self, records: usize) -> Result<()> {
        let (each, records) = (self.largest, records as u64);
        let holder = || format!("{records} records of {each} bytes that are made ahead");
        let remedy = "make records smaller, use fewer threads or smaller buffers, or raise the budget";
        self.held.as_mut().map_or(Ok(()), |held| held.set(each.saturating_mul(records), &holder, remedy))
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ring {
    pub(crate) fn new(
        upstream: Box<dyn Stream>,
        in_fields: &Arc<[Field]>,
        out_fields: &Arc<[Field]>,
        options: RingOptions,
        pass: &Pass,
    ) -> Ring {
        let mut position = vec![];
        upstream.save(&mut position);
        let feed = Feed { upstream, next: 0, again: VecDeque::new(), then: None, has_ended: false };
        let shared = Shared {
            account: Arc::clone(&pass.account),
            in_fields: Arc::clone(in_fields),
            out_fields: Arc::clone(out_fields),
            feed: Mutex::new(feed),
            inputs: Mutex::default(),
            state: Mutex::default(),
            made: Condvar::new(),
            taken: Condvar::new(),
            options,
        };
        let mut ring = Ring { shared: Arc::new(shared), threads: vec![], position, taken: 0, alone: None };
        ring.reset_state();
        ring
    }

    fn reset_state(&mut self) {
        let options = &self.shared.options;
        let depth = match options.depth {
            Depth::Auto => options.threads,
            Depth::Records(records) => records.max(1),
        };
        let Shared { account, in_fields, out_fields, .. } = &*self.shared;
        let made_of = if options.work.is_some() { Record::new(in_fields).held_bytes() } else { 0 };
        let largest = Record::new(out_fields).held_bytes() + made_of;
        let held = Some(Held::nothing(account));
        *lock(&self.shared.state) = State { depth, largest, held, ..State::default() };
        let may_do_without = options.threads == 1 && options.depth == Depth::Auto && options.work.is_none();
        options.meter.works_with(options.threads as u64, if may_do_without { 0 } else { depth as u64 });
        self.alone = may_do_without.then(Alone::default);
    }

    /// Makes the next record on the caller's thread; false if there is none.
    fn make(&mut self, alone: &mut Alone, out: &mut Record) -> Result<bool> {
        let Shared { options, .. } = &*self.shared;
        let began = Instant::now();
        if let Some(since) = alone.away_since {
            alone.lost.threads_waited(began - since);
        }
        let mut feed = lock(&self.shared.feed);
        let number = feed.next;
        alone.after.clear();
        let taken = feed.take_caught(number, None, &mut alone.after, out);
        if matches!(taken, Ok(Taken::Nothing)) {
            return Ok(false);
        }
        std::mem::swap(&mut self.position, &mut alone.after);
        feed.next += 1;
        drop(feed);
        self.taken += 1;
        read_claimed(number, taken, out)?;
        options.meter.work(|| ());
        // For as long as it takes to see that it would fit by itself: then it is the caller's.
        let mut state = lock(&self.shared.state);
        state.largest = state.largest.max(out.held_bytes());
        state.hold(1)?;
        state.hold(0)?;
        let now = Instant::now();
        if alone.lost.consumer_waited(now - began) {
            options.meter.works_with(options.threads as u64, state.depth as u64);
            alone.has_lost = true;
        }
        alone.away_since = Some(now);
        Ok(true)
    }

    /// Starts the threads, if they are not at work.
    fn start(&mut self) -> Result<()> {
        if !self.threads.is_empty() {
            return Ok(());
        }
        for number in 0..self.shared.options.threads {
            let shared = Arc::clone(&self.shared);
            let named = std::thread::Builder::new().name(format!("plimsoll-data-{number}"));
            match named.spawn(move || shared.work()) {
                Ok(thread) => self.threads.push(thread),
                // With one, all can be done.
                Err(_) if !self.threads.is_empty() => break,
                Err(error) => {
                    let what = "a thread that reads data could not be started".to_string();
                    return Err(ErrorKind::Io { what, error }.into());
                }
            }
        }
        Ok(())
    }

    /// Ends the threads and waits for them.
    fn stop(&mut self) {
        lock(&self.shared.state).closed = true;
        self.shared.taken.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing to give back.
            let _ = thread.join();
        }
    }

    /// Takes what is next, as soon as it is made, in exchange for a record that is used again; false if there is no more.
    fn take(&mut self, out: &mut Record) -> Result<bool> {
        let Shared { options, account, .. } = &*self.shared;
        let mut state = lock(&self.shared.state);
        let mut waited_since = None;
        let number = loop {
            let first = state.made.first_key_value().map(|(&number, _)| number);
            match first {
                Some(number) if number == self.taken || !options.is_ordered => break number,
                _ => {}
            }
            if state.end.is_some_and(|end| self.taken >= end) {
                return Ok(false);
            }
            waited_since.get_or_insert_with(Instant::now);
            state = self.shared.made.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        if let Some(since) = waited_since {
            let is_much = state.lost.consumer_waited(since.elapsed());
            let may_grow = options.depth == Depth::Auto && state.depth < MOST_AHEAD;
            if is_much && may_grow && account.has_room(state.largest.saturating_mul(2)) {
                state.depth += 1;
                options.meter.works_with(options.threads as u64, state.depth as u64);
                self.shared.taken.notify_all();
            }
        }
        let Some(made) = state.made.remove(&number) else { return Ok(false) };
        let made = made.map(|mut record| {
            std::mem::swap(out, &mut record);
            // Before a thread may go on, which would else take memory for another.
            state.spare.push(record);
        });
        if let Some((before, mut after)) = state.positions.remove(&number) {
            std::mem::swap(&mut self.position, &mut after);
            state.spare_positions.extend([before, after]);
        }
        state.under_way -= 1;
        let left = state.under_way;
        // Less is held: there is room.
        let _ = state.hold(left);
        self.taken += 1;
        drop(state);
        self.shared.taken.notify_one();
        made.map(|()| true)
    }
}

impl Shared {
    /// What a thread does until there is no more to do.
    fn work(&self) {
        while self.permit() {
            let Some((number, input)) = self.take_in() else { return };
            let (made, made_of) = match (&self.options.work, input) {
                (_, Err(error)) => (Err(error), 0),
                (None, Ok(input)) => {
                    self.options.meter.work(|| ());
                    (Ok(input), 0)
                }
                (Some(work), Ok(input)) => {
                    let spare = lock(&self.state).spare.pop();
                    let mut out = spare.unwrap_or_else(|| Record::new(&self.out_fields));
                    let made = self.options.meter.work(|| work.apply(number, &input, &mut out));
                    let bytes = input.held_bytes();
                    lock(&self.inputs).push(input);
                    (made.map(|()| out), bytes)
                }
            };
            if !self.give(number, made, made_of) {
                return;
            }
        }
    }

    /// Waits until one more may be under way; false if all ends.
    fn permit(&self) -> bool {
        let mut state = lock(&self.state);
        loop {
            if state.closed || state.end.is_some() {
                return false;
            }
            let under_way = state.under_way + 1;
            let is_full = under_way > state.depth;
            // Whether a single one fits is known when it is made.
            if !is_full && (state.hold(under_way).is_ok() || under_way == 1) {
                state.under_way = under_way;
                return true;
            }
            let since = Instant::now();
            state = self.taken.wait(state).unwrap_or_else(PoisonError::into_inner);
            if is_full {
                state.lost.threads_waited(since.elapsed() / self.options.threads as u32);
            }
        }
    }

    /// Takes the next record from upstream, with its number; nothing if there is none.
    fn take_in(&self) -> Option<(u64, Result<Record>)> {
        let mut feed = lock(&self.feed);
        let (mut before, mut after) = {
            let mut state = lock(&self.state);
            (state.spare_positions.pop().unwrap_or_default(), state.spare_positions.pop().unwrap_or_default())
        };
        before.clear();
        after.clear();
        let spare = match self.options.work {
            Some(_) => lock(&self.inputs).pop(),
            None => lock(&self.state).spare.pop(),
        };
        let mut input = spare.unwrap_or_else(|| Record::new(&self.in_fields));
        let number = feed.again.front().map_or(feed.next, |(number, _)| *number);
        let before_it = (!self.options.is_ordered).then_some(&mut before);
        let taken = feed.take_caught(number, before_it, &mut after, &mut input);
        match taken {
            Ok(Taken::Nothing) => {
                let mut state = lock(&self.state);
                state.end = Some(number);
                state.under_way -= 1;
                drop(state);
                self.made.notify_all();
                self.taken.notify_all();
                None
            }
            other => {
                feed.next = feed.next.max(number + 1);
                // Before the lock of upstream is given back: whoever saves sees it there or here.
                lock(&self.state).positions.insert(number, (before, after));
                drop(feed);
                let read = read_claimed(number, other, &mut input);
                Some((number, read.map(|()| input)))
            }
        }
    }

    /// Hands over what was made, with the bytes of what it was made of; false if all ends.
    fn give(&self, number: u64, mut made: Result<Record>, made_of: u64) -> bool {
        let mut state = lock(&self.state);
        if state.closed {
            return false;
        }
        if let Ok(record) = &made {
            state.largest = state.largest.max(record.held_bytes() + made_of);
            let under_way = state.under_way;
            match state.hold(under_way) {
                Ok(()) => self.options.meter.holds(state.largest.saturating_mul(under_way as u64)),
                // It does not fit all by itself.
                Err(error) if under_way == 1 => made = Err(error),
                // It is larger than those before: fewer are to be under way.
                Err(_) => state.depth = under_way - 1,
            }
        }
        state.made.insert(number, made);
        drop(state);
        self.made.notify_all();
        true
    }
}

impl Feed {
    /// As [`take`](Feed::take); what panics is an error, and the end.
    fn take_caught(
        &mut self,
        number: u64,
        before: Option<&mut Vec<u64>>,
        after: &mut Vec<u64>,
        input: &mut Record,
    ) -> Result<Taken> {
        let taken = catch_unwind(AssertUnwindSafe(|| self.take(before, after, input)));
        taken.unwrap_or_else(|panic| {
            self.has_ended = true;
            Err(panicked(number, &*panic))
        })
    }

    /// The next record, and where upstream is before it, if somebody asks for that, and after it.
    fn take(
        &mut self,
        before: Option<&mut Vec<u64>>,
        after: &mut Vec<u64>,
        input: &mut Record,
    ) -> Result<Taken> {
        if self.has_ended {
            return Ok(Taken::Nothing);
        }
        if let Some((_, again)) = self.again.pop_front() {
            self.upstream.seek(&mut Cursor::new(&again))?;
        } else if let Some(then) = self.then.take() {
            self.upstream.seek(&mut Cursor::new(&then))?;
        }
        if let Some(before) = before {
            self.upstream.save(before);
        }
        let taken = match self.upstream.claim(1) {
            Some(claim) if claim.samples == 0 => Ok(Taken::Nothing),
            Some(claim) => Ok(Taken::Claimed(claim)),
            None => self.upstream.next(input).map(|more| if more { Taken::Read } else { Taken::Nothing }),
        };
        self.upstream.save(after);
        self.has_ended = matches!(taken, Ok(Taken::Nothing));
        taken
    }
}

/// What a thread took from upstream.
enum Taken {
    Nothing,
    Read,
    /// It is to be read by the thread itself.
    Claimed(Claim),
}

/// Reads what was claimed, if that is what was taken.
fn read_claimed(number: u64, taken: Result<Taken>, out: &mut Record) -> Result<()> {
    let Taken::Claimed(claim) = taken? else { return Ok(()) };
    let read = catch_unwind(AssertUnwindSafe(|| claim.read(out)));
    read.unwrap_or_else(|panic| Err(panicked(number, &*panic))).map(|_| ())
}

fn panicked(element: u64, panic: &(dyn std::any::Any + Send)) -> Error {
    let reason = format!("reading it panicked: {}", message_of(panic));
    ErrorKind::Stage { stage: "read ahead".to_string(), element, reason, error: None }.into()
}

impl Stream for Ring {
    fn next(&mut self, out: &mut Record) -> Result<bool> {
        if let Some(mut alone) = self.alone.take() {
            let made = self.make(&mut alone, out);
            self.alone = Some(alone).filter(|alone| !alone.has_lost);
            return made;
        }
        self.start()?;
        self.take(out)
    }

    fn save(&self, position: &mut Vec<u64>) {
        position.push(self.taken);
        if self.shared.options.is_ordered {
            position.extend_from_slice(&self.position);
            return;
        }
        // What is under way was taken in and not given out, in any order.
        let feed = lock(&self.shared.feed);
        let state = lock(&self.shared.state);
        let under_way = state.positions.iter().map(|(&number, (before, _))| (number, before));
        let again = feed.again.iter().map(|(number, before)| (*number, before));
        let waiting: Vec<Vec<u64>> =
            under_way.chain(again).map(|(number, before)| [&[number], &before[..]].concat()).collect();
        save_positions(position, waiting.iter().map(Vec::as_slice));
        match &feed.then {
            Some(then) => position.extend_from_slice(then),
            None => feed.upstream.save(position),
        }
    }

    fn seek(&mut self, position: &mut Cursor<'_>) -> Result<()> {
        self.stop();
        self.reset_state();
        self.taken = position.take()?;
        let mut feed = lock(&self.shared.feed);
        (feed.next, feed.has_ended, feed.then) = (self.taken, false, None);
        feed.again.clear();
        if !self.shared.options.is_ordered {
            for waiting in read_positions(position)? {
                let mut waiting = Cursor::new(waiting);
                let number = waiting.take()?;
                feed.again.push_back((number, waiting.rest().to_vec()));
            }
            feed.next += feed.again.len() as u64;
        }
        feed.upstream.seek(position)?;
        self.position.clear();
        feed.upstream.save(&mut self.position);
        if !feed.again.is_empty() {
            feed.then = Some(self.position.clone());
        }
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.stop();
    }
}

//! The pool behind eager mode: tensors come and go one by one, under limits, each with an owner, and the last events
//! are always at hand.

use crate::allocator::Allocator;
use crate::error::{Error, ErrorKind, Result};
use crate::host::HostMemory;
use crate::owners::{Frame, OwnerId, Owners};
use crate::paged::Paged;
use crate::physical::{PhysicalDevice, Share};
use crate::ring::{Entry, Ring, What};
use crate::shortage::{Cause, Shortage};
use crate::source::Source;
use crate::trace_file::{RunKind, TraceFile};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A source of blocks with limits on their sum. Cloning it gives another handle to the same pool.
///
/// ```
/// use plimsoll_memory::Pool;
/// let pool = Pool::new(Some(1000));
/// let hidden = pool.owner("model/hidden");
/// let block = pool.allocate_for(hidden, 800)?;
/// let error = pool.allocate(300).unwrap_err();
/// assert_eq!(error.shortage().unwrap().holders, [("model/hidden".to_string(), 800)]);
/// drop(block);
/// pool.allocate(300)?;
/// assert_eq!(pool.statistics().peak_bytes, 800);
/// # Ok::<(), plimsoll_memory::Error>(())
/// ```
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Shared>,
}

/// How a [`Pool`] is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSettings {
    /// The name of the device in reports.
    pub name: String,
    /// The most bytes of blocks that may exist at once, as they were asked for.
    pub live_limit: Option<u64>,
    /// The most bytes to take from the device, pages and all.
    pub reserved_limit: Option<u64>,
    /// How many of its last events the pool remembers.
    pub events: usize,
}

impl Default for PoolSettings {
    fn default() -> PoolSettings {
        PoolSettings { name: "cpu".into(), live_limit: None, reserved_limit: None, events: 1 << 16 }
    }
}

/// What a [`Pool`] has served.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStatistics {
    /// Bytes of blocks that exist now.
    pub live_bytes: u64,
    /// The most bytes that existed at once since the peak was reset.
    pub peak_bytes: u64,
    /// Bytes taken from the device now.
    pub reserved_bytes: u64,
    /// The most bytes taken at once since the peak was reset.
    pub peak_reserved_bytes: u64,
    /// Blocks allocated so far.
    pub allocations: u64,
    /// Requests refused so far.
    pub refusals: u64,
}

/// What one owner holds of a [`Pool`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerStatistics {
    /// The owner's scope, outermost name first.
    pub path: String,
    /// Bytes of its blocks that exist now.
    pub live_bytes: u64,
    /// The most bytes of its blocks that existed at once since the peak was reset.
    pub peak_bytes: u64,
    /// Its blocks so far.
    pub allocations: u64,
}

/// Bytes from a [`Pool`], returned to it when dropped. They begin as zeros or as what an earlier block left; in debug
/// builds as ones, which are not a number in any float, so that whoever counts on zeros finds out.
pub struct Block {
    address: u64,
    bytes: u64,
    shared: Arc<Shared>,
}

struct Shared {
    settings: PoolSettings,
    /// Whether blocks can be read and written from here.
    host: bool,
    start: Instant,
    state: Mutex<State>,
}

struct State {
    allocator: Paged,
    source: Share,
    statistics: PoolStatistics,
    owners: Owners,
    paths: HashMap<Box<str>, OwnerId>,
    /// What each owner holds, by its number.
    uses: Vec<Use>,
    /// Who holds each address.
    holders: HashMap<u64, OwnerId>,
    ring: Ring,
    /// The time of the last event that was timed.
    time: u64,
    marks: Vec<String>,
}

#[derive(Clone, Copy, Default)]
struct Use {
    live: u64,
    peak: u64,
    allocations: u64,
}

/// Scopes and marks beyond this are not told apart: a program that makes up names without end should not fill the
/// memory with them.
const SCOPES: usize = 1 << 16;
const MARKS: usize = 1 << 8;

/// How many blocks are made between two looks at the clock, which would be most of what an event costs. Events in
/// between have the time of the last look.
const LOOK: u64 = 16;

/// How many holders an error names.
const HOLDERS: usize = 5;

impl Pool {
    /// A pool of host memory whose blocks are never more than `limit` bytes together.
    pub fn new(limit: Option<u64>) -> Pool {
        Pool::host(PoolSettings { live_limit: limit, ..PoolSettings::default() })
    }

    /// A pool of host memory.
    pub fn host(settings: PoolSettings) -> Pool {
        let device = PhysicalDevice::of(Box::new(HostMemory::new()), None, true);
        Pool::over(device.share(), settings)
    }

    /// A pool of the memory of some device. What its blocks hold is not seen from here.
    pub fn on(source: Box<dyn Source>, settings: PoolSettings) -> Pool {
        Pool::over(PhysicalDevice::of(source, None, false).share(), settings)
    }

    /// A pool of what a device has left for it.
    pub(crate) fn over(mut source: Share, settings: PoolSettings) -> Pool {
        if settings.reserved_limit.is_some() {
            source.limit = settings.reserved_limit;
        }
        let state = State {
            allocator: Paged::new(),
            statistics: PoolStatistics::default(),
            owners: Owners::default(),
            paths: HashMap::new(),
            uses: vec![Use::default()],
            holders: HashMap::new(),
            ring: Ring::new(settings.events),
            time: 0,
            marks: vec![],
            source,
        };
        let host = state.source.is_host();
        Pool { shared: Arc::new(Shared { settings, host, start: Instant::now(), state: Mutex::new(state) }) }
    }

    /// Whether its blocks are memory of this process, so that their addresses can be followed from here.
    pub fn is_host(&self) -> bool {
        self.shared.host
    }

    /// The owner of that path, such as `block0/attention/softmax`; the same one each time.
    pub fn owner(&self, path: &str) -> OwnerId {
        self.shared.lock().owner(path)
    }

    /// A block of that many bytes, of nobody in particular.
    ///
    /// # Errors
    /// As [`allocate_for`](Pool::allocate_for).
    pub fn allocate(&self, bytes: u64) -> Result<Block> {
        self.allocate_for(OwnerId::UNKNOWN, bytes)
    }

    /// A block of that many bytes for an owner of this pool.
    ///
    /// # Errors
    /// If the pool would pass a limit, or the device refuses: with what holds the memory and what to do. The pool
    /// stays usable.
    pub fn allocate_for(&self, owner: OwnerId, bytes: u64) -> Result<Block> {
        let shared = &self.shared;
        let address = shared.lock().allocate(owner, bytes, shared)?;
        let mut block = Block { address, bytes, shared: shared.clone() };
        if cfg!(debug_assertions) {
            block.as_mut_slice().fill(0xff);
        }
        Ok(block)
    }

    /// Gives pages that hold nothing back to the device, and returns how many bytes that were.
    pub fn trim(&self) -> u64 {
        let mut state = self.shared.lock();
        let time = state.now(&self.shared);
        let State { allocator, source, ring, .. } = &mut *state;
        let trimmed = allocator.trim(&mut Recorded { source, ring, time });
        state.statistics.reserved_bytes -= trimmed;
        trimmed
    }

    /// Records that the program passed a mark, such as the end of a step.
    pub fn mark(&self, name: &str) {
        let mut state = self.shared.lock();
        let time = state.now(&self.shared);
        let known = state.marks.iter().position(|mark| mark == name);
        let index = known.unwrap_or_else(|| {
            // The last of too many stands for all the others.
            state.marks.truncate(MARKS - 1);
            state.marks.push(name.into());
            state.marks.len() - 1
        });
        let (address, bytes) = (0, index as u64);
        state.ring.push(Entry { time, address, bytes, owner: OwnerId::UNKNOWN, what: What::Mark });
    }

    /// What the pool has served so far.
    pub fn statistics(&self) -> PoolStatistics {
        self.shared.lock().statistics
    }

    /// What each owner holds and held, those that hold the most first.
    pub fn owner_statistics(&self) -> Vec<OwnerStatistics> {
        let state = self.shared.lock();
        let used = state.uses.iter().enumerate().filter(|(_, used)| used.allocations > 0);
        let mut all: Vec<OwnerStatistics> = used
            .map(|(index, used)| OwnerStatistics {
                path: state.path(OwnerId(index as u32)),
                live_bytes: used.live,
                peak_bytes: used.peak,
                allocations: used.allocations,
            })
            .collect();
        all.sort_by(|a, b| (b.live_bytes, b.peak_bytes, &a.path).cmp(&(a.live_bytes, a.peak_bytes, &b.path)));
        all
    }

    /// Lets peaks begin again at what is live now.
    pub fn reset_peak(&self) {
        let mut state = self.shared.lock();
        let statistics = &mut state.statistics;
        statistics.peak_bytes = statistics.live_bytes;
        statistics.peak_reserved_bytes = statistics.reserved_bytes;
        state.uses.iter_mut().for_each(|used| used.peak = used.live);
    }

    /// The last events, who was behind them, and what lies where now.
    pub fn dump(&self) -> TraceFile {
        let Shared { settings, .. } = &*self.shared;
        let state = self.shared.lock();
        let mut layout = state.allocator.layout();
        for piece in layout.segments.iter_mut().flat_map(|segment| &mut segment.pieces) {
            piece.owner = state.holders.get(&piece.address).copied().unwrap_or(OwnerId::UNKNOWN);
        }
        TraceFile {
            device: settings.name.clone(),
            kind: RunKind::Eager,
            capacity: state.source.capacity(),
            limit: settings.live_limit.into_iter().chain(state.source.limit).min(),
            notes: vec![],
            owners: state.owners.clone(),
            trace: state.ring.trace(&layout, &state.marks),
            layout: Some(layout),
        }
    }
}

impl Shared {
    /// What a panic elsewhere left behind is whole: nothing here panics between two changes that belong together.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The time of an event, in microseconds, as it was when somebody last looked; 0 where events are not remembered.
    fn now(&mut self, shared: &Shared) -> u64 {
        if shared.settings.events > 0 && self.statistics.allocations.is_multiple_of(LOOK) {
            self.time = shared.start.elapsed().as_micros() as u64;
        }
        self.time
    }

    fn owner(&mut self, path: &str) -> OwnerId {
        if let Some(&known) = self.paths.get(path) {
            return known;
        }
        if self.paths.len() >= SCOPES {
            return OwnerId::UNKNOWN;
        }
        let mut owner = OwnerId::UNKNOWN;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            owner = self.owners.child(owner, Frame { name: name.into(), ..Frame::default() });
        }
        self.paths.insert(path.into(), owner);
        self.uses.resize(self.owners.count(), Use::default());
        owner
    }

    fn path(&self, owner: OwnerId) -> String {
        let mut names: Vec<&str> = self.owners.stack(owner).map(|frame| frame.name.as_str()).collect();
        names.reverse();
        if names.is_empty() { "(no scope)".into() } else { names.join("/") }
    }

    fn allocate(&mut self, owner: OwnerId, bytes: u64, shared: &Shared) -> Result<u64> {
        // An owner of another pool is nobody here.
        let owner = if (owner.0 as usize) < self.uses.len() { owner } else { OwnerId::UNKNOWN };
        let time = self.now(shared);
        let live = self.statistics.live_bytes.saturating_add(bytes);
        let live_limit = shared.settings.live_limit.filter(|&limit| live > limit);
        let placed = match live_limit {
            Some(limit) => Err((ErrorKind::OverLimit, Some(limit))),
            None => {
                let State { allocator, source, ring, .. } = self;
                let placed = allocator.allocate(bytes, 0, &mut Recorded { source, ring, time });
                let limit = source.limit;
                match placed {
                    Ok(address) => Ok(address),
                    Err(error) => match error.kind() {
                        ErrorKind::OverLimit => Err((ErrorKind::OverLimit, limit)),
                        ErrorKind::OutOfMemory => Err((ErrorKind::OutOfMemory, None)),
                        // A device that is broken is not short of memory.
                        _ => return Err(error),
                    },
                }
            }
        };
        self.statistics.reserved_bytes = self.allocator.reserved_bytes();
        let peak = &mut self.statistics.peak_reserved_bytes;
        *peak = self.statistics.reserved_bytes.max(*peak);
        let address = placed.map_err(|(kind, limit)| {
            self.statistics.refusals += 1;
            self.ring.push(Entry { time, address: 0, bytes, owner, what: What::Refuse });
            Error::short_of_memory(kind, self.shortage(bytes, limit))
        })?;
        self.ring.push(Entry { time, address, bytes, owner, what: What::Allocate });
        self.holders.insert(address, owner);
        let used = &mut self.uses[owner.0 as usize];
        used.live += bytes;
        used.peak = used.peak.max(used.live);
        used.allocations += 1;
        self.statistics.live_bytes = live;
        self.statistics.peak_bytes = self.statistics.peak_bytes.max(live);
        self.statistics.allocations += 1;
        Ok(address)
    }

    /// Why `bytes` were refused; `limit` is that which was reached, if one was.
    fn shortage(&self, bytes: u64, limit: Option<u64>) -> Shortage {
        let PoolStatistics { live_bytes, reserved_bytes, .. } = self.statistics;
        let (available_bytes, capacity) = (self.source.available_bytes(), self.source.capacity());
        let mut holders: Vec<(usize, &Use)> =
            self.uses.iter().enumerate().filter(|(_, u)| u.live > 0).collect();
        holders.sort_by_key(|&(index, used)| (std::cmp::Reverse(used.live), index));
        let holders = holders.into_iter().take(HOLDERS);
        let cause = Cause::of(bytes, live_bytes, limit, available_bytes, capacity);
        Shortage {
            cause,
            requested_bytes: bytes,
            live_bytes,
            reserved_bytes,
            // Without a limit, what is too big is too big for the device.
            limit_bytes: limit.or(capacity.filter(|_| cause == Cause::TooBig)),
            available_bytes,
            largest_hole_bytes: self.allocator.largest_free(),
            holders: holders.map(|(index, used)| (self.path(OwnerId(index as u32)), used.live)).collect(),
        }
    }
}

/// A source whose changes are recorded.
struct Recorded<'a> {
    source: &'a mut Share,
    ring: &'a mut Ring,
    time: u64,
}

impl Recorded<'_> {
    fn record(&mut self, what: What, address: u64, bytes: u64) {
        self.ring.push(Entry { time: self.time, address, bytes, owner: OwnerId::UNKNOWN, what });
    }
}

impl Source for Recorded<'_> {
    fn page_bytes(&self) -> u64 {
        self.source.page_bytes()
    }

    fn range_bytes(&self) -> u64 {
        self.source.range_bytes()
    }

    fn reserve(&mut self, bytes: u64) -> Result<u64> {
        self.source.reserve(bytes)
    }

    fn map(&mut self, address: u64, bytes: u64) -> Result<()> {
        self.source.map(address, bytes)?;
        self.record(What::Reserve, address, bytes);
        Ok(())
    }

    fn unmap(&mut self, address: u64, bytes: u64) {
        self.source.unmap(address, bytes);
        self.record(What::Release, address, bytes);
    }

    fn release(&mut self, address: u64, bytes: u64) {
        self.source.release(address, bytes);
    }
}

impl Block {
    /// The first byte.
    pub fn start(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.address as usize)
    }

    /// The bytes that were asked for.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it is memory of this process.
    pub fn is_host(&self) -> bool {
        self.shared.host
    }

    /// Its bytes that can be seen from here: none where they are another device's.
    fn visible(&self) -> usize {
        if self.shared.host { self.bytes as usize } else { 0 }
    }

    /// Its bytes; none where they are another device's.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: host memory is mapped and initialised by the system, the allocator gave these bytes to this block
        // alone, and they stay mapped until it is dropped, which no borrow outlives.
        unsafe { std::slice::from_raw_parts(self.start(), self.visible()) }
    }

    /// Its bytes to write to; none where they are another device's.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and the block is borrowed mutably for as long.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.visible()) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let time = state.time;
        let State { allocator, source, ring, .. } = &mut *state;
        allocator.free(self.address, &mut Recorded { source, ring, time });
        let owner = state.holders.remove(&self.address).unwrap_or(OwnerId::UNKNOWN);
        state.ring.push(Entry { time, address: self.address, bytes: self.bytes, owner, what: What::Free });
        state.statistics.live_bytes -= self.bytes;
        state.uses[owner.0 as usize].live -= self.bytes;
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Block { address, bytes, .. } = self;
        f.debug_struct("Block").field("address", address).field("bytes", bytes).finish_non_exhaustive()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { settings, .. } = &*self.shared;
        let mut all = f.debug_struct("Pool");
        all.field("settings", settings).field("statistics", &self.statistics()).finish_non_exhaustive()
    }
}

//! The dump that TensorFlow's and JAX's allocator writes when it runs out: regions, chunks, a summary, figures
//! and a map. Its wording has changed since 2015 and other threads write between its lines, so each line is
//! known by what it says and never by where it stands.
//!
//! Several dumps may be in one log: a request is retried for ten seconds and dumps each time, and each device
//! has a pool of its own.

use super::parse::{Size, after, index_in, number, number_before, short, size, size_after, word};
use crate::read::budget::{Budget, Charge, PIECE};
use crate::recording::PoolPicture;
use plimsoll_memory::{Frame, Layout, OwnerId, Owners, Piece, PieceState, Segment, SegmentClass};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// More chunks than any pool was seen to have; what is over is not kept.
const MOST_CHUNKS: usize = 1 << 21;
/// Owners that are told apart; a program has some thousands of ops.
const MOST_OWNERS: usize = 1 << 16;
/// Dumps written at the same time; more are of no program that was ever run.
const MOST_OPEN: usize = 64;
/// Pools of one log.
const MOST_POOLS: usize = 256;

/// A chunk line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Chunk {
    address: u64,
    bytes: u64,
    live: bool,
    owner: OwnerId,
}

/// What an owner takes beside its name, with what a page has of it, and a line of a summary.
const OWNER: u64 = 1536;
const SUMMARY: u64 = 96;

/// One dump, as far as it was seen.
#[derive(Debug)]
pub(super) struct Dump {
    /// What it takes, given back when another takes its place.
    charge: Charge,
    /// The allocator's name; empty where the wording has none.
    pub(super) allocator: String,
    /// The line it began at.
    pub(super) line: u64,
    pub(super) asked: Option<Size>,
    pub(super) op: Option<String>,
    /// Bytes of each region and the address of the first chunk told after its heading.
    regions: Vec<(u64, Option<u64>)>,
    chunks: Vec<Chunk>,
    too_many: bool,
    pub(super) owners: Owners,
    by_size: BTreeMap<u64, u64>,
    in_use_total: Option<Size>,
    pub(super) pool: Option<Size>,
    pub(super) limit: Option<Size>,
    in_use: Option<Size>,
    pub(super) peak: Option<Size>,
    largest: Option<Size>,
    pub(super) growth: Option<bool>,
    /// The map that ends it.
    pub(super) picture: Option<PoolPicture>,
    /// Whether its last part was seen.
    pub(super) complete: bool,
}

/// What a dump says of a pool, once all of it was seen.
pub(super) struct PoolState {
    pub(super) layout: Option<Layout>,
    pub(super) live: Option<Size>,
    pub(super) reserved: Option<Size>,
    pub(super) largest_free: Option<Size>,
    /// What was in use by owner, where there is no layout.
    pub(super) live_by_owner: Vec<(OwnerId, u64, u64)>,
    pub(super) gap: Option<String>,
}

impl Dump {
    /// A dump that begins at a line.
    fn new(allocator: String, line: u64, budget: &Budget) -> Dump {
        Dump {
            charge: Charge::new(budget),
            allocator,
            line,
            asked: None,
            op: None,
            regions: Vec::new(),
            chunks: Vec::new(),
            too_many: false,
            owners: Owners::default(),
            by_size: BTreeMap::new(),
            in_use_total: None,
            pool: None,
            limit: None,
            in_use: None,
            peak: None,
            largest: None,
            growth: None,
            picture: None,
            complete: false,
        }
    }

    /// Takes a line if it is of a dump; says whether it was.
    fn line(&mut self, line: &str) -> bool {
        self.chunk(line)
            || self.region(line)
            || self.summary(line)
            || self.statistic(line)
            || is_heading(line)
    }

    fn chunk(&mut self, line: &str) -> bool {
        const STATES: [(&str, bool); 4] =
            [("InUse at ", true), ("Free  at ", false), ("Free at ", false), ("Chunk at ", true)];
        let Some((rest, live)) = STATES.iter().find_map(|&(word, live)| Some((after(line, word)?, live)))
        else {
            return false;
        };
        let rest = rest.trim_start().trim_start_matches("0x");
        let hex = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
        let address = u64::from_str_radix(&rest[..hex], 16).ok();
        let bytes = after(rest, " of size ").and_then(number);
        let (Some(address), Some(bytes)) = (address, bytes) else { return false };
        if bytes == 0 || address.checked_add(bytes).is_none() {
            return false;
        }
        if self.chunks.len() >= MOST_CHUNKS || !self.charge.take(PIECE) {
            self.too_many = true;
            return true;
        }
        if let Some((_, start @ None)) = self.regions.last_mut() {
            *start = Some(address);
        }
        let owner = if live { self.owner(rest) } else { OwnerId::UNKNOWN };
        self.chunks.push(Chunk { address, bytes, live, owner });
        true
    }

    /// Who asked for a chunk: the op where ops are recorded, the executable where XLA says it.
    fn owner(&mut self, rest: &str) -> OwnerId {
        let name = if let Some(op) = after(rest, " by op ") {
            op.split(" action_count ").next().unwrap_or(op).trim()
        } else if let Some(annotation) = after(rest, " allocation_annotation ") {
            let annotation = annotation.rsplit_once(" next ").map_or(annotation, |(before, _)| before).trim();
            after(annotation, "executable=").map_or(annotation, |name| name.trim_end_matches('}'))
        } else {
            ""
        };
        if name.is_empty() || name == "UNUSED" || self.owners.count() > MOST_OWNERS {
            return OwnerId::UNKNOWN;
        }
        let (before, name) = (self.owners.count(), short(name));
        let bytes = OWNER + 2 * name.len() as u64;
        let owner = self.owners.child(OwnerId::UNKNOWN, Frame { name, ..Frame::default() });
        self.too_many |= self.owners.count() > before && !self.charge.take(bytes);
        owner
    }

    fn region(&mut self, line: &str) -> bool {
        let Some(bytes) = after(line, "Next region of size ").and_then(number) else { return false };
        if self.regions.len() < MOST_CHUNKS && self.charge.take(SUMMARY) {
            self.regions.push((bytes, None));
        }
        true
    }

    fn summary(&mut self, line: &str) -> bool {
        if let Some(asked) = after(line, "Bin for ").filter(|rest| rest.contains(" was ")).and_then(size) {
            self.asked = self.asked.or(Some(asked.0));
            return true;
        }
        if let Some((before, rest)) = line.split_once(" Chunks of size ")
            && let (Some(count), Some(bytes)) = (number_before(before), number(rest))
        {
            if self.by_size.len() < MOST_CHUNKS && self.charge.take(SUMMARY) {
                self.by_size.insert(bytes, count);
            }
            return true;
        }
        if let Some(total) = size_after(line, "Sum Total of in-use chunks: ") {
            self.in_use_total = Some(total);
            return true;
        }
        if line.contains("memory_limit_: ") {
            self.limit = size_after(line, "memory_limit_: ").or(self.limit);
            let pool = size_after(line, "total_region_allocated_bytes_: ");
            self.pool = pool.or_else(|| size_after(line, "Total bytes in pool: ")).or(self.pool);
            return true;
        }
        if line.contains("Allocator memory summary: ") {
            self.pool = size_after(line, "pool size ").or(self.pool);
            self.limit = self.limit.or(size_after(line, "pool limit "));
            let usable = after(line, "largest free chunk usable by ").and_then(|rest| after(rest, " end "));
            self.largest = usable.and_then(size).map(|(size, _)| size).or(self.largest);
            return true;
        }
        if line.contains("region growth hint") {
            let (on, off) = (line.contains("growth enabled"), line.contains("growth disabled"));
            self.growth = (on || off).then_some(on).or(self.growth);
            return true;
        }
        line.contains("Summary of in-use Chunks by size") || line.contains("Spatial partitioning summary")
    }

    /// A line of the figures at the end. They stand without a prefix of their own, label and figure only.
    fn statistic(&mut self, line: &str) -> bool {
        const LABELS: [&str; 9] = [
            "Limit:",
            "MaxInUse:",
            "InUse:",
            "NumAllocs:",
            "MaxAllocSize:",
            "LargestFreeBlock:",
            "PeakReserved:",
            "Reserved:",
            "PeakAllocated:",
        ];
        // One to a line, or all on one where line ends were lost.
        let (mut rest, mut any) = (line, false);
        while let Some((label, behind)) = LABELS
            .iter()
            .filter_map(|&label| {
                let at = rest.find(label)?;
                let starts_word = !rest[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
                let behind = &rest[at + label.len()..];
                (starts_word && behind.starts_with(' ')).then_some((at, label, behind))
            })
            .min_by_key(|&(at, ..)| at)
            .map(|(_, label, behind)| (label, behind))
        {
            let Some((value, behind)) = size(behind) else { return any };
            let ends = behind.trim().is_empty()
                || behind.starts_with('\\')
                || LABELS.iter().any(|label| behind.trim_start().starts_with(label));
            if !ends {
                return any;
            }
            self.keep(label, value);
            (rest, any) = (behind, true);
        }
        any
    }

    fn keep(&mut self, label: &str, value: Size) {
        match label {
            // The limit may have been told to the byte before.
            "Limit:" => self.limit = self.limit.filter(|known| known.exact).or(Some(value)),
            "InUse:" => self.in_use = Some(value),
            "MaxInUse:" => self.peak = Some(value),
            // Versions that do not keep it print nothing but zero.
            "LargestFreeBlock:" if value.bytes > 0 => self.largest = Some(value),
            "MaxAllocSize:" => self.complete = true,
            _ => {}
        }
    }

    /// Bytes in use, the best that is told.
    pub(super) fn live(&self) -> Option<Size> {
        let summed: Option<u64> = self.by_size.iter().try_fold(0_u64, |sum, (bytes, count)| {
            bytes.checked_mul(*count).and_then(|product| sum.checked_add(product))
        });
        // The summary is whole only if the line that closes it agrees.
        let summed = summed.filter(|&bytes| self.in_use_total.is_some_and(|total| total.may_be(bytes)));
        let stated = self.in_use.or(self.in_use_total);
        match (stated, summed) {
            (Some(stated), Some(summed)) if !stated.exact && stated.may_be(summed) => {
                Some(Size::exact(summed))
            }
            (Some(stated), _) => Some(stated),
            (None, summed) => summed.map(Size::exact),
        }
    }

    /// Whether anything but its first line was seen.
    fn says_something(&self) -> bool {
        self.live().is_some() || !self.chunks.is_empty() || self.limit.is_some()
    }

    /// What it all comes to.
    pub(super) fn state(&mut self) -> PoolState {
        self.chunks.sort_unstable();
        self.chunks.dedup_by_key(|chunk| (chunk.address, chunk.bytes, chunk.live));
        let live = self.live();
        let (layout, mut gap) = match self.layout() {
            Ok(layout) => (layout, None),
            Err(why) => (None, Some(why)),
        };
        // The figures are of the same moment, so they must agree with the chunks.
        let told = layout.as_ref().map(Layout::live_bytes);
        let (layout, told) = match (layout, told, live) {
            (Some(_), Some(told), Some(live)) if !live.may_be(told) => {
                gap = Some(format!(
                    "The chunks of the dump at line {} hold {told} bytes in use, its figures say {}: the figures \
                     are believed and no map is drawn.",
                    self.line, live.bytes
                ));
                (None, None)
            }
            (layout, told, _) => (layout, told),
        };
        let mut by_owner: BTreeMap<OwnerId, (u64, u64)> = BTreeMap::new();
        if layout.is_none() {
            for chunk in self.chunks.iter().filter(|chunk| chunk.live) {
                let (bytes, count) = by_owner.entry(chunk.owner).or_default();
                *bytes = bytes.saturating_add(chunk.bytes);
                *count += 1;
            }
        }
        let listed = by_owner.values().fold(0_u64, |sum, held| sum.saturating_add(held.0));
        if live.is_some_and(|live| !live.may_be(listed)) {
            // Of some of the chunks nothing follows for all.
            by_owner.clear();
        }
        let regions = self.regions.iter().map(|region| region.0).try_fold(0_u64, u64::checked_add);
        let regions = regions.filter(|&bytes| bytes > 0).map(Size::exact);
        let reserved = match (self.pool, regions) {
            (Some(pool), Some(regions)) if pool.may_be(regions.bytes) => Some(regions),
            (Some(pool), _) => Some(pool),
            (None, regions) => regions.filter(|_| layout.is_some()),
        };
        let largest_seen = self.chunks.iter().filter(|chunk| !chunk.live).map(|chunk| chunk.bytes).max();
        PoolState {
            largest_free: match (&layout, self.largest, largest_seen) {
                (Some(layout), ..) => Some(Size::exact(layout.largest_free())),
                (None, Some(stated), Some(seen)) if stated.may_be(seen) => Some(Size::exact(seen)),
                (None, stated, seen) => stated.or(seen.map(Size::exact)),
            },
            live: told.map(Size::exact).or(live),
            reserved,
            live_by_owner: by_owner
                .into_iter()
                .map(|(owner, (bytes, count))| (owner, bytes, count))
                .collect(),
            layout,
            gap,
        }
    }

    /// The layout, if the chunk lines tile what they say the pool has; why not otherwise.
    fn layout(&self) -> Result<Option<Layout>, String> {
        if self.chunks.is_empty() {
            return Ok(None);
        }
        if self.too_many {
            return Err(format!(
                "The dump at line {} lists over {MOST_CHUNKS} chunks; no map is drawn.",
                self.line
            ));
        }
        let missing = |address: u64| {
            format!(
                "The dump at line {} does not list every chunk (address {address:x} is one it leaves out): no map \
                 is drawn.",
                self.line
            )
        };
        let mut starts: BTreeMap<u64, u64> = BTreeMap::new();
        for &(bytes, start) in &self.regions {
            if let Some(start) = start {
                starts.insert(start, bytes);
            }
        }
        let mut segments: Vec<Segment> = Vec::new();
        for chunk in &self.chunks {
            let end = segments.last().map(|s: &Segment| s.address + s.bytes);
            if end.is_some_and(|end| chunk.address < end) {
                return Err(format!(
                    "Chunks of the dump at line {} overlap at {:x}: no map is drawn.",
                    self.line, chunk.address
                ));
            }
            let piece = Piece {
                address: chunk.address,
                bytes: chunk.bytes,
                requested: if chunk.live { chunk.bytes } else { 0 },
                state: if chunk.live { PieceState::Live } else { PieceState::Free },
                owner: chunk.owner,
            };
            // Regions may touch, so their headings tell where one begins; older wordings have no headings.
            let begins = starts.contains_key(&chunk.address);
            match segments.last_mut() {
                Some(last) if end == Some(chunk.address) && !begins => {
                    last.bytes += chunk.bytes;
                    last.pieces.push(piece);
                }
                _ => segments.push(Segment {
                    address: chunk.address,
                    bytes: chunk.bytes,
                    stream: 0,
                    class: SegmentClass::Any,
                    pieces: vec![piece],
                }),
            }
        }
        if !self.regions.is_empty() {
            for segment in &segments {
                match starts.get(&segment.address) {
                    Some(&bytes) if bytes == segment.bytes => {}
                    Some(_) => return Err(missing(segment.address + segment.bytes)),
                    None => return Err(missing(segment.address.saturating_sub(1))),
                }
            }
        } else if !self.complete {
            return Err(missing(segments.last().map_or(0, |s| s.address + s.bytes)));
        }
        Ok(Some(Layout { segments }))
    }
}

/// Who wrote a line: the rank that a launcher put in front, and the thread in the logger's prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LogWriter {
    rank: u64,
    thread: Option<u64>,
}

impl LogWriter {
    fn of(line: &str) -> LogWriter {
        let closing = match line.as_bytes().first() {
            Some(b'[') => line.find(']'),
            Some(b'(') => line.find(')'),
            _ => None,
        };
        let mut hasher = DefaultHasher::new();
        closing.map(|at| &line[..at]).filter(|rank| rank.len() < 64).hash(&mut hasher);
        // `I1115 07:05:33.483864     541 bfc_allocator.cc:119] `: the thread stands before the file.
        let before = line.find("bfc_allocator.cc:").map(|at| line[..at].trim_end_matches(|c: char| c != ' '));
        let thread = before.and_then(|before| {
            let before = before.trim_end();
            let start = before.rfind(' ')? + 1;
            before[start..].parse().ok()
        });
        LogWriter { rank: hasher.finish(), thread }
    }
}

/// All dumps of one pool.
#[derive(Debug, Default)]
pub(super) struct PoolDumps {
    pub(super) count: u64,
    pub(super) complete: Option<Dump>,
    pub(super) partial: Option<Dump>,
    /// Bytes in use in the first of them.
    pub(super) first_live: Option<Size>,
}

/// The dumps of a log.
#[derive(Debug)]
pub(super) struct Dumps {
    budget: Budget,
    open: Vec<(LogWriter, Dump)>,
    pub(super) pools: BTreeMap<String, PoolDumps>,
    /// The pool whose dump was closed last, for wordings that say what was asked after the dump.
    last: Option<String>,
}

impl Dumps {
    pub(super) fn new(budget: &Budget) -> Dumps {
        Dumps { budget: budget.clone(), open: Vec::new(), pools: BTreeMap::new(), last: None }
    }

    fn dump(&self, allocator: String, line: u64) -> Dump {
        Dump::new(allocator, line, &self.budget)
    }

    /// Whether a dump has begun and not ended.
    pub(super) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Takes a line if it is of a dump; says whether it was.
    pub(super) fn line(&mut self, line: &str, at: u64) -> bool {
        if let Some(rest) = after(line, "an out of memory trying to allocate ") {
            return self.refused(line, rest, at);
        }
        let writer = LogWriter::of(line);
        if let Some(name) = after(line, "BFCAllocator dump for ") {
            // The line that says what was asked has begun this dump already, unless the wording has none.
            let name = short(word(name));
            match self.find(writer) {
                Some(index)
                    if self.open[index].1.allocator == name && !self.open[index].1.says_something() => {}
                Some(index) if self.open[index].1.allocator.is_empty() => self.open[index].1.allocator = name,
                _ => self.begin(writer, self.dump(name, at)),
            }
            return true;
        }
        if line.contains("Bin (256):") && self.find(writer).is_none() {
            self.begin(writer, self.dump(String::new(), at));
            return true;
        }
        let Some(index) = self.find(writer) else {
            // A log that begins in the middle of a dump.
            let mut dump = self.dump(String::new(), at);
            let taken = line.contains("bfc_allocator") && dump.line(line);
            if taken {
                self.begin(writer, dump);
            }
            return taken;
        };
        if is_map(line, self.open[index].1.complete) {
            let (_, mut dump) = self.open.remove(index);
            dump.complete = true;
            dump.picture = picture(line);
            self.close(dump);
            return true;
        }
        let taken = self.open[index].1.line(line);
        if taken {
            // The dump written to last is the one that lines without a prefix belong to.
            let used = self.open.remove(index);
            self.open.push(used);
        }
        taken
    }

    /// The line that says what was asked.
    fn refused(&mut self, line: &str, rest: &str, at: u64) -> bool {
        // A request that the program can do without; nothing is dumped then.
        if line.contains("not a failure") {
            return true;
        }
        let Some((human, rest)) = size(rest) else { return false };
        let rounded = after(rest, "(rounded to ").and_then(number).map(Size::exact);
        let asked = Some(rounded.unwrap_or(human));
        if line.contains("See logs for memory state") {
            // The older wording says it after the dump.
            if self.last.is_none() {
                self.close(self.dump(String::new(), at));
            }
            let pool = self.last.as_ref().and_then(|name| self.pools.get_mut(name));
            if let Some(dump) = pool.and_then(|pool| pool.complete.as_mut().or(pool.partial.as_mut())) {
                dump.asked = asked;
            }
            return true;
        }
        let allocator = after(line, "Allocator (").and_then(|name| name.split(')').next()).unwrap_or("");
        let op = after(rest, "requested by op ").map(word).filter(|op| !op.is_empty()).map(short);
        let mut dump = self.dump(short(allocator), at);
        (dump.asked, dump.op) = (asked, op);
        self.begin(LogWriter::of(line), dump);
        true
    }

    /// The open dump that a line belongs to.
    fn find(&self, writer: LogWriter) -> Option<usize> {
        let same = self.open.iter().rposition(|(by, _)| *by == writer);
        let rank = || self.open.iter().rposition(|(by, _)| by.rank == writer.rank);
        same.or_else(rank).or(self.open.len().checked_sub(1))
    }

    fn begin(&mut self, writer: LogWriter, dump: Dump) {
        if let Some(index) = self.open.iter().position(|(by, _)| *by == writer) {
            let (_, left) = self.open.remove(index);
            self.close(left);
        } else if self.open.len() >= MOST_OPEN {
            let (_, left) = self.open.remove(0);
            self.close(left);
        }
        self.open.push((writer, dump));
    }

    fn close(&mut self, dump: Dump) {
        if self.pools.len() >= MOST_POOLS && !self.pools.contains_key(&dump.allocator) {
            return;
        }
        self.last = Some(dump.allocator.clone());
        let pool = self.pools.entry(dump.allocator.clone()).or_default();
        pool.count += 1;
        pool.first_live = pool.first_live.or(dump.live());
        if dump.complete {
            pool.complete = Some(dump);
            pool.partial = None;
        } else {
            pool.partial = Some(dump);
        }
    }

    /// Closes what is still open: the log ends here.
    pub(super) fn finish(&mut self) {
        for (_, dump) in std::mem::take(&mut self.open) {
            self.close(dump);
        }
    }
}

/// Whether a line only says that figures follow.
fn is_heading(line: &str) -> bool {
    line.contains("bfc_allocator") && line.contains("] Stats:")
}

/// Whether a line is the map that ends a dump: a hundred of `*`, `x` and `_`.
fn is_map(line: &str, after_figures: bool) -> bool {
    let last = line.trim_end().rsplit(' ').next().unwrap_or("");
    let last = last.rsplit(':').next().unwrap_or(last);
    (after_figures || line.contains("bfc_allocator"))
        && (last.len() == 100 && last.bytes().all(|b| matches!(b, b'*' | b'_' | b'x')))
}

/// How full the pool is in its map: `*` is in use, `x` freed and not yet, `_` free.
fn picture(line: &str) -> Option<PoolPicture> {
    let map = line.trim_end().as_bytes();
    let map = &map[map.len().checked_sub(100)?..];
    let used = map.iter().filter(|&&b| b != b'_').count() as u8;
    let largest_gap = map.split(|&b| b != b'_').map(<[u8]>::len).max()? as u8;
    Some(PoolPicture { used, largest_gap })
}

/// The number of the device a pool is on.
pub(super) fn device_of(allocator: &str) -> Option<u32> {
    index_in(allocator)
}

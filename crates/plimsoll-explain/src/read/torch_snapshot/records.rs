//! The records of a snapshot: dicts known by their keys, each as few bytes as it needs.

use super::super::budget::{Budget, Charge, EVENT as EVENT_BYTES};
use super::super::pickle::{Heap, PickleValue, RecordBuilder, Str};
use super::super::places::Places;
use plimsoll_memory::{Frame, OwnerId, Owners, PieceState};
use std::collections::HashMap;
use std::sync::Arc;

/// Declares the words that the snapshot's dicts are known by: constants, and the list to intern first.
macro_rules! words {
    ($($name:ident = $text:literal),* $(,)?) => {
        #[expect(non_camel_case_types, clippy::upper_case_acronyms)]
        enum WordId { $($name),* }
        impl Words { $(pub(super) const $name: Str = Str(WordId::$name as u32);)* }
        pub(super) const WORDS: &[&str] = &[$($text),*];
    };
}

/// The words that the snapshot's dicts are known by.
pub(super) struct Words;

words! {
    ACTION = "action", ADDR = "addr", ADDRESS = "address", SIZE = "size", REQUESTED_SIZE = "requested_size",
    STATE = "state", STREAM = "stream", FRAMES = "frames", HISTORY = "history", TIME = "time_us",
    FILENAME = "filename", LINE = "line", NAME = "name", TOTAL_SIZE = "total_size", DEVICE = "device",
    SEGMENT_TYPE = "segment_type", IS_EXPANDABLE = "is_expandable", BLOCKS = "blocks", STAGE = "stage",
    REAL_SIZE = "real_size", DEVICE_FREE = "device_free",
    // Above are keys of records, below are values and keys of the outermost dict.
    ALLOC = "alloc", FREE_REQUESTED = "free_requested", FREE_COMPLETED = "free_completed",
    SEGMENT_ALLOC = "segment_alloc", SEGMENT_FREE = "segment_free", SEGMENT_MAP = "segment_map",
    SEGMENT_UNMAP = "segment_unmap", OOM = "oom", SNAPSHOT = "snapshot", USER_DEFINED = "user_defined",
    ACTIVE_ALLOCATED = "active_allocated", INACTIVE = "inactive", SMALL = "small", LARGE = "large",
    START = "START", SEGMENTS = "segments", DEVICE_TRACES = "device_traces",
    ALLOCATOR_SETTINGS = "allocator_settings", EXTERNAL_ANNOTATIONS = "external_annotations",
    EXPANDABLE_SEGMENTS = "expandable_segments", MAX_SPLIT_SIZE = "max_split_size",
    GC_THRESHOLD = "garbage_collection_threshold", ROUNDUP = "roundup_power2_divisions",
}

/// How many words are keys of records.
const KEYS: usize = Words::ALLOC.0 as usize;
/// Dicts of more keys are no records.
const MAX_KEYS: usize = 64;
/// Deeper call stacks lose their outermost frames.
const MAX_FRAMES: usize = 1024;
/// How many places in the program are told apart, and how many frames all different stacks have together.
const MAX_OWNERS: usize = 1 << 20;
const MAX_STACKED: usize = 16 << 20;
/// Longer names of functions and files lose their end.
const MAX_NAME: usize = 2048;
/// How many bytes in one piece are believed: more than any device has.
pub(super) const MAX_BYTES: u64 = 1 << 44;
/// How many events are kept together, to be let go together.
const CHUNK: usize = 1 << 14;

/// What a frame and a stack take while reading goes on, with the tables they are found by.
const FRAME_BYTES: u64 = 96;
const STACK_BYTES: u64 = 128;

const FRAME: u8 = 0;
const STACK: u8 = 1;
pub(super) const EVENT: u8 = 2;
const BLOCK: u8 = 3;
pub(super) const SEGMENT: u8 = 4;
pub(super) const ANNOTATION: u8 = 5;
const HISTORY: u8 = 6;

/// What an event says happened.
#[derive(Clone, Copy, PartialEq)]
#[repr(u8)]
pub(super) enum Kind {
    Alloc,
    Free,
    Reserve,
    Release,
    Refuse,
    Snapshot,
    UserDefined,
}

/// One entry of a device's history.
#[derive(Clone, Copy)]
pub(super) struct RawEvent {
    pub(super) time: u64,
    /// For a refusal, what the device had free.
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) owner: OwnerId,
    /// The number of the stream and, in the lowest byte, the kind.
    stream_and_kind: u32,
}

impl RawEvent {
    /// What is left of an event that was taken out.
    const TAKEN: RawEvent =
        RawEvent { time: 0, address: 0, bytes: 0, owner: OwnerId::UNKNOWN, stream_and_kind: u32::MAX };

    fn is_taken(&self) -> bool {
        self.stream_and_kind == u32::MAX
    }

    pub(super) fn stream(&self) -> u32 {
        self.stream_and_kind >> 8
    }

    pub(super) fn kind(&self) -> Kind {
        const KINDS: [Kind; 6] =
            [Kind::Alloc, Kind::Free, Kind::Reserve, Kind::Release, Kind::Refuse, Kind::Snapshot];
        KINDS.get((self.stream_and_kind & 0xff) as usize).copied().unwrap_or(Kind::UserDefined)
    }
}

#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) address: Option<u64>,
    pub(super) bytes: u64,
    pub(super) requested: u64,
    pub(super) owner: OwnerId,
    pub(super) state: PieceState,
}

#[derive(Clone, Copy)]
pub(super) struct RawSegment {
    pub(super) device: u32,
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) stream: u32,
    pub(super) size_class: Option<Str>,
    pub(super) expandable: bool,
    /// The first of its blocks and how many.
    pub(super) blocks: (u32, u32),
}

#[derive(Clone, Copy)]
pub(super) struct Annotation {
    pub(super) device: u32,
    pub(super) name: Str,
    pub(super) time: u64,
}

/// Everything in the snapshot that was understood.
pub(super) struct Records {
    budget: Budget,
    /// What is held until reading ends; events with what their trace will take.
    held: Charge,
    frames: Vec<(Str, Str, u32)>,
    frame_ids: HashMap<(Str, Str, u32), u32>,
    stacks: HashMap<Box<[u32]>, OwnerId>,
    stacked: usize,
    /// The owner that is a frame called by an owner: names are looked at once for each.
    called: HashMap<(OwnerId, u32), OwnerId>,
    scratch: Vec<u32>,
    owners: Places,
    streams: HashMap<i64, u32>,
    events: Vec<Vec<RawEvent>>,
    event_count: u32,
    pub(super) blocks: Vec<Block>,
    pub(super) segments: Vec<RawSegment>,
    pub(super) annotations: Vec<Annotation>,
    history: Vec<(u64, OwnerId)>,
    /// Entries of a known kind that miss what they need, or give sizes that no device has.
    pub(super) unusable: u64,
    /// Call stacks beyond those that are told apart.
    pub(super) stacks_left_out: u64,
    /// Entries of unknown kinds.
    pub(super) unknown: u64,
    /// Entries beyond what numbers can count.
    pub(super) beyond: u64,
    /// Events that a list names which another has.
    pub(super) named_again: u64,
}

impl Records {
    pub(super) fn new(budget: &Budget) -> Records {
        Records {
            budget: budget.clone(),
            held: Charge::new(budget),
            frames: Vec::new(),
            frame_ids: HashMap::new(),
            stacks: HashMap::new(),
            stacked: 0,
            called: HashMap::new(),
            scratch: Vec::new(),
            owners: Places::new(budget),
            streams: HashMap::new(),
            events: Vec::new(),
            event_count: 0,
            blocks: Vec::new(),
            segments: Vec::new(),
            annotations: Vec::new(),
            history: Vec::new(),
            unusable: 0,
            stacks_left_out: 0,
            unknown: 0,
            beyond: 0,
            named_again: 0,
        }
    }

    /// Takes an event out: whatever names it again finds nothing. A chunk passed by is let go.
    pub(super) fn event(&mut self, id: u32) -> Option<RawEvent> {
        let (chunk, at) = (id as usize / CHUNK, id as usize % CHUNK);
        if at == 0
            && let Some(before) = chunk.checked_sub(1).and_then(|before| self.events.get_mut(before))
        {
            *before = Vec::new();
        }
        let event = self.events.get_mut(chunk).and_then(|chunk| chunk.get_mut(at));
        let event =
            event.map(|event| std::mem::replace(event, RawEvent::TAKEN)).filter(|event| !event.is_taken());
        self.named_again += u64::from(event.is_none());
        event
    }

    /// Lets go of what only reading needs, and hands out the owners.
    pub(super) fn finish_reading(&mut self) -> Arc<Owners> {
        self.frames = Vec::new();
        self.frame_ids = HashMap::new();
        self.stacks = HashMap::new();
        self.called = HashMap::new();
        self.history = Vec::new();
        self.held = Charge::new(&self.budget);
        std::mem::replace(&mut self.owners, Places::new(&self.budget)).finish()
    }

    fn stream(&mut self, value: PickleValue) -> u32 {
        let PickleValue::Int(stream) = value else { return 0 };
        if stream == 0 {
            return 0;
        }
        // Streams are told by their address; here they are numbered from 1 on, in 24 bits.
        let next = (self.streams.len() as u32 + 1).min((1 << 24) - 1);
        if self.streams.len() < 1 << 20 { *self.streams.entry(stream).or_insert(next) } else { next }
    }

    fn frame(&mut self, fields: &DictFields) -> Option<PickleValue> {
        let (PickleValue::Str(name), PickleValue::Str(file)) =
            (fields.get(Words::NAME), fields.get(Words::FILENAME))
        else {
            return None;
        };
        let line = fields.bytes(Words::LINE).and_then(|line| u32::try_from(line).ok()).unwrap_or(0);
        let next = self.frames.len() as u32;
        let id = *self.frame_ids.entry((name, file, line)).or_insert(next);
        if id == next {
            self.frames.push((name, file, line));
            let _ = self.held.take(FRAME_BYTES);
        }
        Some(PickleValue::Record(FRAME, id))
    }

    /// The owner that a list of frames, innermost first, stands for.
    fn stack(&mut self, items: &[PickleValue], heap: &Heap) -> Option<PickleValue> {
        self.scratch.clear();
        for item in items {
            let &PickleValue::Run(FRAME, first, count) = item else { return None };
            let room = MAX_FRAMES - self.scratch.len().min(MAX_FRAMES);
            self.scratch.extend((first..first.saturating_add(count)).take(room));
        }
        if let Some(&owner) = self.stacks.get(self.scratch.as_slice()) {
            return Some(PickleValue::Record(STACK, owner.0));
        }
        self.stacked += self.scratch.len();
        if self.owners.count() + self.scratch.len() > MAX_OWNERS || self.stacked > MAX_STACKED {
            self.stacked -= self.scratch.len();
            self.stacks_left_out += 1;
            return Some(PickleValue::Record(STACK, OwnerId::UNKNOWN.0));
        }
        let name_of = |name: Str| {
            let text = heap.text(name);
            let end = (0..=MAX_NAME.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
            text[..end.unwrap_or(0)].to_string()
        };
        let mut owner = OwnerId::UNKNOWN;
        for &id in self.scratch.iter().rev() {
            let &(name, file, line) = self.frames.get(id as usize)?;
            owner = *self.called.entry((owner, id)).or_insert_with(|| {
                self.owners.child(owner, Frame { name: name_of(name), file: name_of(file), line })
            });
        }
        let _ = self.held.take(STACK_BYTES + 4 * self.scratch.len() as u64);
        self.stacks.insert(self.scratch.as_slice().into(), owner);
        Some(PickleValue::Record(STACK, owner.0))
    }

    fn event_of(&mut self, fields: &DictFields) -> Option<PickleValue> {
        let PickleValue::Str(action) = fields.get(Words::ACTION) else { return None };
        let kind = match action {
            Words::ALLOC => Kind::Alloc,
            Words::FREE_COMPLETED => Kind::Free,
            Words::SEGMENT_ALLOC | Words::SEGMENT_MAP => Kind::Reserve,
            Words::SEGMENT_FREE | Words::SEGMENT_UNMAP => Kind::Release,
            Words::OOM => Kind::Refuse,
            Words::SNAPSHOT => Kind::Snapshot,
            Words::USER_DEFINED => Kind::UserDefined,
            Words::FREE_REQUESTED => return Some(PickleValue::Nothing),
            _ => {
                self.unknown += 1;
                return Some(PickleValue::Nothing);
            }
        };
        let address_key = if kind == Kind::Refuse { Words::DEVICE_FREE } else { Words::ADDR };
        let address = fields.bytes(address_key);
        let bytes = fields.bytes(Words::SIZE).filter(|&bytes| bytes <= MAX_BYTES);
        let is_mark = matches!(kind, Kind::Snapshot | Kind::UserDefined);
        if !is_mark && (bytes.is_none() || (address.is_none() && kind != Kind::Refuse)) {
            self.unusable += 1;
            return Some(PickleValue::Nothing);
        }
        let id = self.event_count;
        if id == u32::MAX || !self.held.take(EVENT_BYTES) {
            self.beyond += 1;
            return Some(PickleValue::Nothing);
        }
        let event = RawEvent {
            time: fields.bytes(Words::TIME).unwrap_or(0),
            address: address.unwrap_or(0),
            bytes: bytes.unwrap_or(0),
            owner: fields.owner(),
            stream_and_kind: self.stream(fields.get(Words::STREAM)) << 8 | kind as u32,
        };
        match self.events.last_mut() {
            Some(chunk) if chunk.len() < CHUNK => chunk.push(event),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(event);
                self.events.push(chunk);
            }
        }
        self.event_count += 1;
        Some(PickleValue::Record(EVENT, id))
    }

    fn block(&mut self, fields: &DictFields) -> Option<PickleValue> {
        let PickleValue::Str(state) = fields.get(Words::STATE) else { return None };
        let Some(bytes) = fields.bytes(Words::SIZE).filter(|&bytes| bytes <= MAX_BYTES) else {
            self.unusable += 1;
            return Some(PickleValue::Nothing);
        };
        let state = match state {
            Words::ACTIVE_ALLOCATED => PieceState::Live,
            Words::INACTIVE => PieceState::Free,
            // `active_pending_free` and, in later versions, `active_awaiting_free`.
            _ => PieceState::Pending,
        };
        // Older snapshots tell of a block by the requests it served, the latest first.
        let history = match fields.get(Words::HISTORY) {
            PickleValue::Record(HISTORY, id) => self.history.get(id as usize).copied(),
            _ => None,
        };
        let requested = fields.bytes(Words::REQUESTED_SIZE).or(history.map(|(requested, _)| requested));
        let owner = history.map_or(fields.owner(), |(_, owner)| owner);
        let block = match state {
            PieceState::Free => Block { address: None, bytes, requested: 0, owner: OwnerId::UNKNOWN, state },
            _ => {
                Block { address: None, bytes, requested: requested.unwrap_or(bytes).min(bytes), owner, state }
            }
        };
        let block = Block { address: fields.bytes(Words::ADDRESS), ..block };
        Some(self.numbered(|records| &mut records.blocks, BLOCK, block))
    }

    fn segment(&mut self, fields: &DictFields) -> Option<PickleValue> {
        let address = fields.bytes(Words::ADDRESS)?;
        let bytes = fields.bytes(Words::TOTAL_SIZE)?;
        let device = fields.bytes(Words::DEVICE).unwrap_or(0);
        let blocks = match fields.get(Words::BLOCKS) {
            PickleValue::Run(BLOCK, first, count) => (first, count),
            _ => (0, 0),
        };
        let fits = bytes <= MAX_BYTES && address.checked_add(bytes).is_some();
        let (true, Ok(device)) = (fits, u32::try_from(device)) else {
            self.unusable += 1;
            return Some(PickleValue::Nothing);
        };
        let size_class = match fields.get(Words::SEGMENT_TYPE) {
            PickleValue::Str(class) => Some(class),
            _ => None,
        };
        let expandable = fields.get(Words::IS_EXPANDABLE) == PickleValue::Bool(true);
        let stream = self.stream(fields.get(Words::STREAM));
        let segment = RawSegment { device, address, bytes, stream, size_class, expandable, blocks };
        Some(self.numbered(|records| &mut records.segments, SEGMENT, segment))
    }

    fn annotation(&mut self, fields: &DictFields) -> Option<PickleValue> {
        let (PickleValue::Str(name), Some(time)) = (fields.get(Words::NAME), fields.bytes(Words::TIME))
        else {
            return None;
        };
        if fields.get(Words::STAGE) != PickleValue::Str(Words::START) {
            return Some(PickleValue::Nothing);
        }
        let device = fields.bytes(Words::DEVICE).and_then(|device| u32::try_from(device).ok()).unwrap_or(0);
        let annotation = Annotation { device, name, time };
        Some(self.numbered(|records| &mut records.annotations, ANNOTATION, annotation))
    }

    fn numbered<T>(&mut self, of: impl Fn(&mut Self) -> &mut Vec<T>, kind: u8, record: T) -> PickleValue {
        let Ok(id) = u32::try_from(of(self).len()) else {
            self.beyond += 1;
            return PickleValue::Nothing;
        };
        let budget = self.budget.clone();
        if budget.push(of(self), record) { PickleValue::Record(kind, id) } else { PickleValue::Nothing }
    }
}

impl RecordBuilder for Records {
    fn dict(&mut self, entries: &[PickleValue], _: &Heap) -> Option<PickleValue> {
        if entries.len() > 2 * MAX_KEYS {
            return None;
        }
        let mut fields = DictFields([PickleValue::Nothing; KEYS]);
        for pair in entries.chunks_exact(2) {
            if let PickleValue::Str(Str(key)) = pair[0]
                && let Some(field) = fields.0.get_mut(key as usize)
            {
                *field = pair[1];
            }
        }
        if fields.has(Words::ACTION) {
            self.event_of(&fields)
        } else if fields.has(Words::FILENAME) {
            self.frame(&fields)
        } else if fields.has(Words::TOTAL_SIZE) {
            self.segment(&fields)
        } else if fields.has(Words::STATE) {
            self.block(&fields)
        } else if fields.has(Words::STAGE) {
            self.annotation(&fields)
        } else if fields.has(Words::REAL_SIZE) {
            let requested = fields.bytes(Words::REAL_SIZE)?;
            Some(self.numbered(|records| &mut records.history, HISTORY, (requested, fields.owner())))
        } else {
            None
        }
    }

    fn list(&mut self, items: &[PickleValue], heap: &Heap) -> Option<PickleValue> {
        match items {
            [] => Some(PickleValue::None),
            [PickleValue::Run(FRAME, ..), ..] => self.stack(items, heap),
            // The blocks of a segment; of a block's history the latest entry counts.
            [PickleValue::Run(BLOCK, ..)] => Some(items[0]),
            [PickleValue::Run(HISTORY, first, _), ..] => Some(PickleValue::Record(HISTORY, *first)),
            _ => None,
        }
    }
}

/// The values of a dict under the keys that are known.
struct DictFields([PickleValue; KEYS]);

impl DictFields {
    fn get(&self, key: Str) -> PickleValue {
        self.0.get(key.0 as usize).copied().unwrap_or(PickleValue::Nothing)
    }

    fn has(&self, key: Str) -> bool {
        self.get(key) != PickleValue::Nothing
    }

    fn bytes(&self, key: Str) -> Option<u64> {
        match self.get(key) {
            PickleValue::Int(number) => u64::try_from(number).ok(),
            _ => None,
        }
    }

    fn owner(&self) -> OwnerId {
        match self.get(Words::FRAMES) {
            PickleValue::Record(STACK, owner) => OwnerId(owner),
            _ => OwnerId::UNKNOWN,
        }
    }
}

//! Profiles of TensorFlow's and JAX's profiler (`*.xplane.pb`): every allocation and free of every pool while
//! the profile ran, with the thread's open scopes around it.
//!
//! A profile is a list of planes. Those of devices are the largest and say nothing of memory, so they are
//! stepped over; the host's is kept while it is read, because the names of its events come last in it.

use super::budget::{Budget, Charge, EVENT};
use super::places::Places;
use super::pool_trace::{self, AllocatorEvent, PoolRecord};
use super::protobuf::{FieldHeader, FieldValue, MessageFields, MessageStream, text};
use crate::error::{Error, ErrorKind, Result};
use crate::read::input::Input;
use crate::recording::{Device, Format, Framework, Origin, Recording};
use plimsoll_memory::{Frame, OwnerId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// The largest plane that is kept: half of what a protocol buffer can hold.
const LARGEST_PLANE: u64 = 1 << 30;
/// Scopes around an allocation that are kept, the outermost ones.
const DEEPEST: usize = 256;
/// What a name and an event of a thread take while their plane is read, with the tables they are found by.
const NAME: u64 = 128;
const THREAD_EVENT: u64 = 128;
/// Pools of one program.
const MOST_POOLS: usize = 256;

/// Whether this begins with a plane that has a name.
pub(super) fn looks(start: &[u8]) -> bool {
    let Some((0x0a, mut rest)) = start.split_first() else { return false };
    let Some(end) = rest.iter().take(10).position(|&b| b < 0x80) else { return false };
    rest = &rest[end + 1..];
    for (field, value) in MessageFields::new(&rest[..rest.len().min(1024)]) {
        match (field, value) {
            (1, FieldValue::Number(_)) => {}
            (2, FieldValue::Bytes(name)) => {
                let printable = name.iter().all(|b| (0x20..0x7f).contains(b));
                return printable && (name.starts_with(b"/") || name == b"Task Environment");
            }
            _ => return false,
        }
    }
    false
}

/// Reads a profile to its end.
pub(super) fn read(input: &mut Input<'_>) -> Result<Recording> {
    let budget = input.budget().clone();
    let mut found = Found::new(&budget);
    let mut stream = MessageStream::new(input);
    if let Err(error) = planes(&mut stream, &mut found) {
        found.gaps.push(format!("The profile breaks off after {} bytes: {error}.", stream.position));
    }
    if found.broken > 0 {
        found.gaps.push(format!(
            "{} parts of the profile are broken; what follows in them is left out.",
            found.broken
        ));
    }
    if found.pools.is_empty() {
        let (kind, message) = if found.gaps.is_empty() {
            let message = "is a profile without memory events: record it with the host tracer at level 2 or more, \
                           on a device whose pool records them (BFC does, a platform allocator does not)";
            (ErrorKind::Empty, message.to_string())
        } else {
            (
                ErrorKind::Malformed,
                format!("is a profile of which no memory event could be read. {}", found.gaps.join(" ")),
            )
        };
        return Err(Error::new(kind, message));
    }
    let framework = match (found.tensorflow, found.jax) {
        (true, false) => Framework::TensorFlow,
        (false, true) => Framework::Jax,
        _ => Framework::TensorFlowOrJax,
    };
    found.marks.sort();
    let partial = !found.gaps.is_empty();
    let Found { pools, marks, mut gaps, owners, held, .. } = found;
    drop(held);
    let owners = owners.finish();
    let devices = pools
        .into_iter()
        .map(|(name, record)| {
            let device = pool_trace::device(&name, record, &marks, framework, &mut gaps, &budget);
            Device { owners: owners.clone(), ..device }
        })
        .collect();
    let origin = Origin { files: Vec::new(), formats: vec![Format::XPlane], framework, gaps, partial };
    Ok(Recording { origin, devices })
}

/// What was found in all planes.
struct Found {
    budget: Budget,
    /// What events take until their traces are made, with what those will take.
    held: Charge,
    pools: BTreeMap<String, PoolRecord>,
    owners: Places,
    marks: Vec<(u64, String)>,
    gaps: Vec<String>,
    /// Messages that break off before their end.
    broken: u64,
    tensorflow: bool,
    jax: bool,
}

impl Found {
    fn new(budget: &Budget) -> Found {
        Found {
            budget: budget.clone(),
            held: Charge::new(budget),
            pools: BTreeMap::new(),
            owners: Places::new(budget),
            marks: Vec::new(),
            gaps: Vec::new(),
            broken: 0,
            tensorflow: false,
            jax: false,
        }
    }
}

fn planes(stream: &mut MessageStream<'_, '_>, found: &mut Found) -> std::io::Result<()> {
    while let Some(head) = stream.head()? {
        let FieldHeader::Bytes(field, length) = head else { continue };
        if field != 1 {
            stream.skip(length)?;
            continue;
        }
        // The name stands at the beginning.
        let mut held = Charge::new(&found.budget);
        let start = stream.take(length.min(256), &mut held)?;
        let name =
            MessageFields::new(&start).find(|(field, _)| *field == 2).and_then(|(_, value)| value.bytes());
        let rest = length - (start.len() as u64).min(length);
        if name.is_some_and(|name| !name.starts_with(b"/host:")) {
            stream.skip(rest)?;
        } else if length > LARGEST_PLANE {
            found.gaps.push(format!("A plane of {length} bytes is too large to be read and left out."));
            stream.skip(rest)?;
        } else {
            let mut bytes = start;
            bytes.append(&mut stream.take(rest, &mut held)?);
            let cut = (bytes.len() as u64) < length;
            plane(&bytes, found, held);
            if cut {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
    Ok(())
}

/// The names in a plane, by number.
#[derive(Default)]
struct Names<'b> {
    events: HashMap<u64, &'b [u8]>,
    stats: HashMap<u64, &'b [u8]>,
}

/// Reads a plane. `held` is what it takes itself.
fn plane(bytes: &[u8], found: &mut Found, mut held: Charge) {
    let mut names = Names::default();
    let mut lines = Vec::new();
    let mut fields = MessageFields::new(bytes);
    for (field, value) in fields.by_ref() {
        if !held.take(NAME) {
            break;
        }
        match (field, value) {
            (3, FieldValue::Bytes(line)) => lines.push(line),
            (4, FieldValue::Bytes(entry)) => names.events.extend(named(entry)),
            (5, FieldValue::Bytes(entry)) => names.stats.extend(named(entry)),
            _ => {}
        }
    }
    found.broken += u64::from(fields.broken());
    for name in names.stats.values() {
        found.tensorflow |= *name == b"tf_op" || *name == b"tf_function_call";
        found.jax |= name.windows(6).any(|part| part == b"/pjrt/");
    }
    let kinds = names.events.iter().filter_map(|(&id, &name)| match name {
        b"MemoryAllocation" => Some((id, false)),
        b"MemoryDeallocation" => Some((id, true)),
        _ => None,
    });
    let kinds: HashMap<u64, bool> = kinds.collect();
    let step = names.stats.iter().find(|(_, name)| **name == b"step_num").map(|(&id, _)| id);
    if kinds.is_empty() {
        return;
    }
    for bytes in lines {
        let mut held = Charge::new(&found.budget);
        let line = Line::of(bytes, &kinds, step, &mut held);
        found.broken += u64::from(line.broken);
        if line.events.iter().any(|event| event.stats.is_some()) {
            line.read(&names, &kinds, found, held);
        }
    }
}

/// An entry of a map from numbers to messages with a name.
fn named(entry: &[u8]) -> Option<(u64, &[u8])> {
    let (mut id, mut name) = (0, &b""[..]);
    for (field, value) in MessageFields::new(entry) {
        match (field, value) {
            (1, FieldValue::Number(number)) => id = number,
            (2, FieldValue::Bytes(message)) => {
                name = MessageFields::new(message).find(|(field, _)| *field == 2)?.1.bytes()?;
            }
            _ => {}
        }
    }
    Some((id, name))
}

/// An event of a thread.
struct Event<'b> {
    start: u64,
    duration: u64,
    name: u64,
    /// The whole event, where its figures are wanted: those of memory, and steps.
    stats: Option<&'b [u8]>,
}

/// A thread.
struct Line<'b> {
    name: &'b [u8],
    events: Vec<Event<'b>>,
    broken: bool,
}

impl<'b> Line<'b> {
    /// The events of a thread that matter: those of memory, steps, and the scopes around them. A thread has
    /// hundreds of times as many others.
    fn of(bytes: &'b [u8], kinds: &HashMap<u64, bool>, step: Option<u64>, held: &mut Charge) -> Line<'b> {
        let mut line = Line { name: &[], events: Vec::new(), broken: false };
        let mut begin = 0_u64;
        let mut fields = MessageFields::new(bytes);
        for (field, value) in fields.by_ref() {
            match (field, value) {
                (2, FieldValue::Bytes(text)) => line.name = text,
                (3, FieldValue::Number(nanoseconds)) => begin = nanoseconds.saturating_mul(1000),
                (4, FieldValue::Bytes(message)) => {
                    let event = Event::of(message, kinds, step);
                    if event.stats.is_some() && held.take(THREAD_EVENT) {
                        line.events.push(event);
                    }
                }
                _ => {}
            }
        }
        line.broken = fields.broken();
        let mut times: Vec<u64> = line.events.iter().map(|event| event.start).collect();
        times.sort_unstable();
        if !times.is_empty() {
            let events = MessageFields::new(bytes)
                .filter(|(field, _)| *field == 4)
                .filter_map(|(_, value)| value.bytes());
            line.events.extend(events.map(|message| Event::of(message, kinds, step)).filter(|event| {
                let first = times.partition_point(|&time| time < event.start);
                let end = event.start.saturating_add(event.duration);
                let around = event.stats.is_none() && times.get(first).is_some_and(|&time| time <= end);
                around && held.take(THREAD_EVENT)
            }));
        }
        for event in &mut line.events {
            event.start = event.start.saturating_add(begin);
        }
        line
    }

    /// Takes the memory events of the thread, with the scopes that were open around each.
    fn read(mut self, names: &Names<'_>, kinds: &HashMap<u64, bool>, found: &mut Found, held: Charge) {
        self.events.sort_by_key(|event| (event.start, Reverse(event.duration)));
        let mut scopes = Scopes { names, frames: HashMap::new(), open: Vec::new(), thread: None, held };
        // Workers have no scopes of the program around theirs; what they are for says more than nothing.
        let thread = text(self.name.split(|&b| b == b'/').next().unwrap_or_default());
        if thread != "python" && !thread.is_empty() {
            scopes.thread = Some(Frame { name: thread, ..Frame::default() });
        }
        for event in &self.events {
            while scopes.open.pop_if(|scope| scope.end < event.start).is_some() {}
            match (kinds.get(&event.name), event.stats) {
                (Some(&frees), Some(message)) => {
                    let Some((pool, mut recorded, op)) = allocator_event(message, names, frees, event.start)
                    else {
                        continue;
                    };
                    if found.pools.len() >= MOST_POOLS && !found.pools.contains_key(&pool) {
                        continue;
                    }
                    if !found.held.take(EVENT) {
                        return;
                    }
                    let record = found.pools.entry(pool).or_default();
                    record.whole = true;
                    recorded.owner = if let Some(op) = op {
                        found.owners.named(op)
                    } else if frees {
                        OwnerId::UNKNOWN
                    } else {
                        scopes.owner(&mut found.owners)
                    };
                    record.events.push(recorded);
                }
                (None, step) => {
                    let end = event.start.saturating_add(event.duration);
                    if step.is_some() {
                        let name = names.events.get(&event.name).map_or(String::new(), |name| text(name));
                        if found.held.take(EVENT + name.len() as u64) {
                            found.marks.push((end, name));
                        }
                    }
                    // Scopes nest; one that seems to end after the scope around it is a clock's error.
                    let end = scopes.open.last().map_or(end, |outer| end.min(outer.end));
                    scopes.open.push(Scope { end, name: event.name, owner: None });
                }
                _ => {}
            }
        }
    }
}

/// A scope that is open, and which owner it is: stacks change little from one allocation to the next.
struct Scope {
    end: u64,
    name: u64,
    owner: Option<OwnerId>,
}

/// The scopes open on a thread.
struct Scopes<'n, 'b> {
    names: &'n Names<'b>,
    frames: HashMap<u64, Frame>,
    open: Vec<Scope>,
    thread: Option<Frame>,
    /// What the thread's events and frames take.
    held: Charge,
}

impl Scopes<'_, '_> {
    /// Who asks.
    fn owner(&mut self, owners: &mut Places) -> OwnerId {
        let depth = self.open.len().min(DEEPEST);
        let scopes = self.open[..depth].iter().enumerate().rev();
        let known = scopes.into_iter().find_map(|(at, scope)| Some((at + 1, scope.owner?)));
        let (from, mut owner) = known.unwrap_or_else(|| {
            let thread = self.thread.clone().map(|thread| owners.child(OwnerId::UNKNOWN, thread));
            (0, thread.unwrap_or(OwnerId::UNKNOWN))
        });
        for scope in &mut self.open[from..depth] {
            let name = self.names.events.get(&scope.name).copied();
            if !self.frames.contains_key(&scope.name) {
                let frame = frame(name);
                if !self.held.take((frame.name.len() + frame.file.len()) as u64 + 4 * NAME) {
                    return owner;
                }
                self.frames.insert(scope.name, frame);
            }
            let Some(frame) = self.frames.get(&scope.name) else { return owner };
            owner = owners.child(owner, frame.clone());
            scope.owner = Some(owner);
        }
        owner
    }
}

impl<'b> Event<'b> {
    fn of(message: &'b [u8], kinds: &HashMap<u64, bool>, step: Option<u64>) -> Event<'b> {
        let mut event = Event { start: 0, duration: 0, name: 0, stats: None };
        let mut is_step = false;
        for (field, value) in MessageFields::new(message) {
            match (field, value) {
                (1, FieldValue::Number(id)) => event.name = id,
                (2, FieldValue::Number(offset)) => event.start = offset,
                (3, FieldValue::Number(duration)) => event.duration = duration,
                (4, FieldValue::Bytes(stat)) if step.is_some() => {
                    is_step |= MessageFields::new(stat).next().and_then(|(_, id)| id.number()) == step;
                }
                _ => {}
            }
        }
        if is_step || kinds.contains_key(&event.name) {
            event.stats = Some(message);
        }
        event
    }
}

/// What a memory event says: its pool, its figures and the op.
fn allocator_event(
    message: &[u8],
    names: &Names<'_>,
    frees: bool,
    time_ps: u64,
) -> Option<(String, AllocatorEvent, Option<String>)> {
    let mut pool = None;
    let mut op = None;
    let mut recorded = AllocatorEvent {
        time_ps,
        frees,
        address: 0,
        requested: 0,
        taken: 0,
        live: 0,
        room: 0,
        peak: 0,
        fragmentation: 0.0,
        owner: OwnerId::UNKNOWN,
    };
    let mut reserved = 0;
    for (_, stat) in MessageFields::new(message).filter(|(field, _)| *field == 4) {
        let (mut name, mut number, mut double, mut string) = (&b""[..], 0, 0.0, None);
        for (field, value) in MessageFields::new(stat.bytes()?) {
            match (field, value) {
                (1, FieldValue::Number(id)) => name = names.stats.get(&id).copied().unwrap_or_default(),
                (2, FieldValue::Double(value)) => double = value,
                (3 | 4, FieldValue::Number(value)) => number = value,
                (5, FieldValue::Bytes(value)) => string = Some(value),
                (7, FieldValue::Number(id)) => string = names.stats.get(&id).copied(),
                _ => {}
            }
        }
        match name {
            b"allocator_name" => pool = string.map(text),
            b"bytes_reserved" => reserved = number,
            b"bytes_allocated" => recorded.live = number,
            b"bytes_available" => recorded.room = number,
            b"peak_bytes_in_use" => recorded.peak = number,
            b"requested_bytes" => recorded.requested = number,
            b"allocation_bytes" => recorded.taken = number,
            b"addr" => recorded.address = number,
            b"fragmentation" => recorded.fragmentation = double,
            b"tf_op" => op = string.map(text),
            _ => {}
        }
    }
    // Numbers are signed in the file; one below zero is no size.
    let size = |bytes: u64| if i64::try_from(bytes).is_ok() { bytes } else { 0 };
    recorded.live = size(recorded.live);
    recorded.room = size(recorded.room).saturating_add(size(reserved));
    recorded.peak = size(recorded.peak);
    recorded.requested = size(recorded.requested);
    recorded.taken = size(recorded.taken).max(recorded.requested);
    let pool = pool.filter(|name| !name.is_empty())?;
    Some((pool, recorded, op.filter(|op| !op.is_empty())))
}

/// A scope as a frame. Python's are written `$train.py:12 loss`.
fn frame(name: Option<&[u8]>) -> Frame {
    let name = text(name.unwrap_or(b"?"));
    let Some(python) = name.strip_prefix('$') else { return Frame { name, ..Frame::default() } };
    if let Some((place, function)) = python.split_once(' ')
        && let Some((file, line)) = place.rsplit_once(':')
        && let Ok(line) = line.parse()
    {
        return Frame { name: function.to_string(), file: file.to_string(), line };
    }
    Frame { name: python.to_string(), ..Frame::default() }
}

//! The entries of a Chrome trace as they stream by: memory events, spans and marks, in a few bytes each.

use crate::error::{Error, ErrorKind, Result};
use crate::read::budget::{Budget, Charge, EVENT};
use crate::read::input::Input;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;

/// What a name and a thread take beside the name's bytes, with the tables they are found by.
const NAME: u64 = 192;
/// The longest text or number that is believed, and the deepest nesting.
const MAX_TOKEN: usize = 1 << 20;
const MAX_DEPTH: usize = 100;
/// How many bytes in one piece are believed: more than any device has.
const MAX_BYTES: u64 = 1 << 44;

/// An allocation, or with negative bytes a free.
pub(super) struct MemoryEvent {
    pub(super) time: u64,
    pub(super) thread: u32,
    pub(super) address: u64,
    pub(super) bytes: i64,
    pub(super) device_type: i64,
    pub(super) device: i64,
    pub(super) total: Option<u64>,
    pub(super) reserved: Option<u64>,
}

/// An operator or Python function at work. Times are in nanoseconds.
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) thread: u32,
    pub(super) name: u32,
}

/// All that a trace says of memory.
pub(super) struct Entries {
    budget: Budget,
    /// What changes take, with what their trace will.
    held: Charge,
    pub(super) changes: Vec<MemoryEvent>,
    pub(super) spans: Vec<Span>,
    /// Time and name.
    pub(super) marks: Vec<(u64, u32)>,
    pub(super) unusable: u64,
    pub(super) left_out: u64,
    names: Vec<Arc<str>>,
    name_ids: HashMap<Arc<str>, u32>,
    threads: HashMap<(i64, i64), u32>,
}

impl Entries {
    fn new(budget: &Budget) -> Entries {
        Entries {
            budget: budget.clone(),
            held: Charge::new(budget),
            changes: Vec::new(),
            spans: Vec::new(),
            marks: Vec::new(),
            unusable: 0,
            left_out: 0,
            names: Vec::new(),
            name_ids: HashMap::new(),
            threads: HashMap::new(),
        }
    }

    /// Gives back what was kept for the trace that is to be made now.
    pub(super) fn finish_reading(&mut self) {
        self.held = Charge::new(&self.budget);
    }

    pub(super) fn name(&self, id: u32) -> &str {
        self.names.get(id as usize).map_or("", |name| name)
    }

    fn name_id(&mut self, name: &str) -> Option<u32> {
        if let Some(&id) = self.name_ids.get(name) {
            return Some(id);
        }
        if !self.budget.take(name.len() as u64 + NAME) {
            return None;
        }
        let id = self.names.len() as u32;
        let name: Arc<str> = name.into();
        self.names.push(name.clone());
        self.name_ids.insert(name, id);
        Some(id)
    }

    fn add(&mut self, entry: Entry) {
        let next = self.threads.len() as u32;
        let is_memory = entry.name.text() == Some("[memory]");
        let is_span = entry.ph.text() == Some("X");
        let category = entry.cat.text().unwrap_or("");
        let is_place = is_span && matches!(category, "cpu_op" | "python_function");
        let is_mark = is_span && category == "user_annotation";
        if !(is_memory || is_place || is_mark) {
            return;
        }
        let time = entry.ts.float().and_then(nanoseconds);
        let thread = (entry.pid.int().unwrap_or(-1), entry.tid.int().unwrap_or(-1));
        if !self.threads.contains_key(&thread) && !self.budget.take(NAME) {
            return;
        }
        let thread = *self.threads.entry(thread).or_insert(next);
        if is_memory {
            let args = entry.args;
            let bytes = args.bytes.int().filter(|bytes| bytes.unsigned_abs() <= MAX_BYTES);
            let (Some(time), Some(bytes), Some(address)) = (time, bytes, args.address.address()) else {
                self.unusable += 1;
                return;
            };
            if bytes == 0 || !self.held.take(EVENT) {
                return;
            }
            self.changes.push(MemoryEvent {
                time,
                thread,
                address,
                bytes,
                device_type: args.device_type.int().unwrap_or(0),
                device: args.device.int().unwrap_or(-1),
                total: args.total.int().and_then(|total| u64::try_from(total).ok()),
                reserved: args.reserved.int().and_then(|reserved| u64::try_from(reserved).ok()),
            });
            return;
        }
        let name = entry.name.text().and_then(|name| self.name_id(name));
        let (Some(time), Some(name)) = (time, name) else {
            self.left_out += 1;
            return;
        };
        let kept = if is_mark {
            self.budget.push(&mut self.marks, (time, name))
        } else {
            let length = entry.dur.float().and_then(nanoseconds).unwrap_or(0);
            let span = Span { start: time, end: time.saturating_add(length), thread, name };
            self.budget.push(&mut self.spans, span)
        };
        self.left_out += u64::from(!kept);
    }
}

fn nanoseconds(microseconds: f64) -> Option<u64> {
    let nanoseconds = (microseconds * 1e3).round();
    (nanoseconds >= 0.0 && nanoseconds < 2_f64.powi(63)).then_some(nanoseconds as u64)
}

/// Reads all entries; says where and why if the trace breaks off.
pub(super) fn read(input: &mut Input<'_>) -> Result<(Entries, Option<String>)> {
    let mut entries = Entries::new(input.budget());
    let guarded = BufReader::new(TokenLimit { input, token: 0, depth: 0, text: TokenState::Outside });
    let mut json = serde_json::Deserializer::from_reader(guarded);
    let Err(error) = json.deserialize_any(TopLevel(&mut entries)) else { return Ok((entries, None)) };
    let at = format!("line {}, column {}", error.line(), error.column());
    let why = match error.classify() {
        serde_json::error::Category::Eof => format!("cut short at {at}"),
        serde_json::error::Category::Io => {
            let error = io::Error::from(error);
            match error.kind() {
                io::ErrorKind::FileTooLarge => {
                    return Err(Error::new(ErrorKind::Hostile, format!("{at}: {error}")));
                }
                io::ErrorKind::QuotaExceeded | io::ErrorKind::TimedOut => format!("read up to {at}: {error}"),
                io::ErrorKind::UnexpectedEof => "cut short within its packing".to_string(),
                io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
                    format!("broken: its packing is damaged ({error})")
                }
                _ => return Err(Error::new(ErrorKind::Io, format!("cannot be read: {error}"))),
            }
        }
        _ => format!("broken: {error}"),
    };
    Ok((entries, Some(why)))
}

/// JSON on its way to the parser, which would keep texts of any length and follow nesting of any depth.
struct TokenLimit<'i, 'd> {
    input: &'i mut Input<'d>,
    /// Bytes of the text or number under way.
    token: usize,
    depth: usize,
    text: TokenState,
}

#[derive(Clone, Copy, PartialEq)]
enum TokenState {
    Outside,
    Inside,
    Escape,
}

impl Read for TokenLimit<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let next = self.input.fill_buf()?;
        let count = next.len().min(buffer.len());
        buffer[..count].copy_from_slice(&next[..count]);
        self.input.consume(count);
        for &byte in &buffer[..count] {
            self.token += 1;
            match (self.text, byte) {
                (TokenState::Inside, b'"') => (self.text, self.token) = (TokenState::Outside, 0),
                (TokenState::Inside, b'\\') => self.text = TokenState::Escape,
                (TokenState::Inside, _) => {}
                (TokenState::Escape, _) => self.text = TokenState::Inside,
                (TokenState::Outside, b'"') => (self.text, self.token) = (TokenState::Inside, 0),
                (TokenState::Outside, b'[' | b'{') => (self.depth, self.token) = (self.depth + 1, 0),
                (TokenState::Outside, b']' | b'}') => {
                    (self.depth, self.token) = (self.depth.saturating_sub(1), 0)
                }
                (TokenState::Outside, b',' | b':' | b' ' | b'\t' | b'\r' | b'\n') => self.token = 0,
                (TokenState::Outside, _) => {}
            }
            if self.token > MAX_TOKEN || self.depth > MAX_DEPTH {
                let what = format!(
                    "out of all proportion: a text of more than {MAX_TOKEN} bytes or nesting deeper than \
                     {MAX_DEPTH}"
                );
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
            }
        }
        Ok(count)
    }
}

/// The outermost value: an object with `traceEvents`, or the list of them.
struct TopLevel<'e>(&'e mut Entries);

impl<'de> Visitor<'de> for TopLevel<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with traceEvents, or a list of events")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
        while let Some(key) = map.next_key::<Scalar>()? {
            if key.text() == Some("traceEvents") {
                map.next_value_seed(EntryList(&mut *self.0))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> std::result::Result<(), A::Error> {
        EntryList(self.0).visit_seq(seq)
    }
}

/// The list of events, each of which is added as it is read.
struct EntryList<'e>(&'e mut Entries);

impl<'de> DeserializeSeed<'de> for EntryList<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> std::result::Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for EntryList<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<(), A::Error> {
        while let Some(entry) = seq.next_element::<Entry>()? {
            self.0.add(entry);
        }
        Ok(())
    }
}

/// One event. Whatever is of another type than it should be counts as not there.
#[derive(Default)]
struct Entry {
    ph: Scalar,
    cat: Scalar,
    name: Scalar,
    pid: Scalar,
    tid: Scalar,
    ts: Scalar,
    dur: Scalar,
    args: Args,
}

/// What a `[memory]` event tells.
#[derive(Default)]
struct Args {
    address: Scalar,
    bytes: Scalar,
    device_type: Scalar,
    device: Scalar,
    total: Scalar,
    reserved: Scalar,
}

/// Deserializes a struct of [`Scalar`]s from an object, by its keys; anything else is its default.
macro_rules! lenient {
    ($name:ident { $($key:literal => $field:ident),* $(,)? }) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
                struct StructVisitor;
                impl<'de> Visitor<'de> for StructVisitor {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("an object")
                    }

                    fn visit_map<A: MapAccess<'de>>(
                        self,
                        mut map: A,
                    ) -> std::result::Result<$name, A::Error> {
                        let mut fields = $name::default();
                        while let Some(key) = map.next_key::<Scalar>()? {
                            match key.text().unwrap_or("") {
                                $($key => fields.$field = map.next_value()?,)*
                                _ => drop(map.next_value::<IgnoredAny>()?),
                            }
                        }
                        Ok(fields)
                    }

                    fn visit_seq<A: SeqAccess<'de>>(
                        self,
                        mut seq: A,
                    ) -> std::result::Result<$name, A::Error> {
                        while seq.next_element::<IgnoredAny>()?.is_some() {}
                        Ok($name::default())
                    }

                    lenient!(@default $name, visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64,
                        visit_str: &str);

                    fn visit_unit<E>(self) -> std::result::Result<$name, E> {
                        Ok($name::default())
                    }
                }
                from.deserialize_any(StructVisitor)
            }
        }
    };
    (@default $name:ident, $($visit:ident: $type:ty),*) => {
        $(fn $visit<E>(self, _: $type) -> std::result::Result<$name, E> {
            Ok($name::default())
        })*
    };
}

lenient!(Entry {
    "ph" => ph, "cat" => cat, "name" => name, "pid" => pid, "tid" => tid, "ts" => ts, "dur" => dur, "args" => args,
});
lenient!(Args {
    "Addr" => address, "Bytes" => bytes, "Device Type" => device_type, "Device Id" => device,
    "Total Allocated" => total, "Total Reserved" => reserved,
});

/// A number or a text; lists and objects are passed over.
#[derive(Default)]
enum Scalar {
    #[default]
    Other,
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Text(Box<str>),
}

impl Scalar {
    fn text(&self) -> Option<&str> {
        match self {
            Scalar::Text(text) => Some(text),
            _ => None,
        }
    }

    fn int(&self) -> Option<i64> {
        match *self {
            Scalar::Signed(number) => Some(number),
            Scalar::Unsigned(number) => i64::try_from(number).ok(),
            Scalar::Float(number) if number.abs() < 2_f64.powi(53) => Some(number as i64),
            _ => None,
        }
    }

    fn float(&self) -> Option<f64> {
        match *self {
            Scalar::Signed(number) => Some(number as f64),
            Scalar::Unsigned(number) => Some(number as f64),
            Scalar::Float(number) => Some(number),
            _ => None,
        }
    }

    /// Addresses of the upper half may have been written as negative.
    fn address(&self) -> Option<u64> {
        match *self {
            Scalar::Unsigned(number) => Some(number),
            _ => self.int().map(i64::cast_unsigned),
        }
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct ScalarVisitor;
        impl<'de> Visitor<'de> for ScalarVisitor {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything")
            }

            fn visit_bool<E>(self, _: bool) -> std::result::Result<Scalar, E> {
                Ok(Scalar::Other)
            }

            fn visit_unit<E>(self) -> std::result::Result<Scalar, E> {
                Ok(Scalar::Other)
            }

            fn visit_i64<E>(self, number: i64) -> std::result::Result<Scalar, E> {
                Ok(Scalar::Signed(number))
            }

            fn visit_u64<E>(self, number: u64) -> std::result::Result<Scalar, E> {
                Ok(Scalar::Unsigned(number))
            }

            fn visit_f64<E>(self, number: f64) -> std::result::Result<Scalar, E> {
                Ok(Scalar::Float(number))
            }

            fn visit_str<E>(self, text: &str) -> std::result::Result<Scalar, E> {
                Ok(Scalar::Text(text.into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Scalar, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Scalar::Other)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Scalar, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Scalar::Other)
            }
        }
        from.deserialize_any(ScalarVisitor)
    }
}

//! Pickles as plain data: Python's own reader runs whatever a file asks it to, so this one runs nothing.
//!
//! A pickle is a program for a small stack machine. The part of it that builds numbers, text, lists and dicts
//! is understood; every opcode that would look up or call something is refused by name. Nothing recurses, no
//! declared length is trusted, and memory follows what was understood: whoever reads a format gives its
//! [`RecordBuilder`], dicts become compact records of it as they are put into what holds them, and runs of records
//! fold into one value. What is in no known shape has a part of the budget, and is given up when that is full.

mod bytes;
mod heap;

pub(crate) use self::heap::{Heap, PickleValue, Str};

use self::bytes::Bytes;
use self::heap::{Memo, Put};
use crate::error::{Error, ErrorKind, Result};
use crate::read::budget::Charge;
use crate::read::input::Input;

/// The longest text that is believed, in bytes: names of C++ templates are long, but not that long.
const MAX_TEXT: u64 = 1 << 20;

/// The part of the budget that values in no known shape have, and what one takes: itself, and room to grow.
const VALUES_PART: u64 = 4;
const VALUE_BYTES: u64 = 32;

/// What a reader makes of the dicts and lists of its format.
pub(crate) trait RecordBuilder {
    /// A compact value for a dict (its keys and values in turn), if it is a record of the format.
    fn dict(&mut self, entries: &[PickleValue], heap: &Heap) -> Option<PickleValue>;

    /// A compact value for a list, if it is one of the format.
    fn list(&mut self, items: &[PickleValue], heap: &Heap) -> Option<PickleValue>;
}

/// What a pickle held.
pub(crate) struct Unpickled {
    /// The outermost value.
    pub(crate) root: PickleValue,
    /// What values refer to.
    pub(crate) heap: Heap,
    /// If it could not be read to its end.
    pub(crate) cut: Option<Truncation>,
}

/// Where a pickle broke off.
pub(crate) struct Truncation {
    /// Why, with the position.
    pub(crate) why: String,
    /// The last key of the outermost dict, whose value may be incomplete.
    pub(crate) within: Option<Str>,
}

/// Why the machine stops before its end.
enum Stop {
    /// The file ends or is broken; what was read before stands.
    Broken(String),
    /// The file is not to be read.
    Refused(Error),
}

type MachineResult<T> = std::result::Result<T, Stop>;

/// Reads a pickle. `words` are interned first, so that their numbers are known.
///
/// # Errors
/// If the pickle calls anything or is out of all proportion, or the input fails. A pickle that breaks off is no
/// error: see [`Unpickled::cut`].
pub(crate) fn unpickle(
    input: &mut Input<'_>,
    words: &[&str],
    shapes: &mut impl RecordBuilder,
) -> Result<Unpickled> {
    let budget = input.budget().clone();
    let (mut values, part) = (Charge::new(&budget), budget.memory_bytes() / VALUES_PART);
    let most_held = if values.take(part) { (part / VALUE_BYTES) as usize } else { 0 };
    let mut machine = Machine {
        bytes: Bytes::new(input),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Memo::new(&budget),
        heap: Heap::new(words, &budget),
        most_held,
        shapes,
    };
    loop {
        match machine.step() {
            Ok(None) => {}
            Ok(Some(root)) => return Ok(Unpickled { root, heap: machine.heap, cut: None }),
            Err(Stop::Refused(error)) => return Err(error),
            Err(Stop::Broken(why)) => {
                let (root, within) = machine.salvage();
                return Ok(Unpickled { root, heap: machine.heap, cut: Some(Truncation { why, within }) });
            }
        }
    }
}

struct Machine<'i, 'd, S> {
    bytes: Bytes<'i, 'd>,
    stack: Vec<PickleValue>,
    /// Positions in the stack at which a run of items began.
    marks: Vec<u32>,
    memo: Memo,
    heap: Heap,
    /// How many values may be held at once that are in no known shape.
    most_held: usize,
    shapes: &'i mut S,
}

impl<S: RecordBuilder> Machine<'_, '_, S> {
    /// Runs one opcode; returns the outermost value at the end.
    fn step(&mut self) -> MachineResult<Option<PickleValue>> {
        let opcode = self.bytes.opcode()?;
        match opcode {
            b'.' => return self.pop().map(Some),
            b'(' => {
                self.room()?;
                self.marks.push(self.stack.len() as u32);
            }
            b'0' => match self.marks.last() {
                Some(&mark) if mark as usize == self.stack.len() => drop(self.marks.pop()),
                _ => drop(self.pop()?),
            },
            b'1' => {
                let from = self.mark()?;
                self.stack.truncate(from);
            }
            b'2' => {
                let top = self.top()?;
                self.push(top)?;
            }
            b'N' => self.push(PickleValue::None)?,
            0x88 => self.push(PickleValue::Bool(true))?,
            0x89 => self.push(PickleValue::Bool(false))?,
            b'J' => {
                let number = i32::from_le_bytes(self.bytes.array()?);
                self.push(PickleValue::Int(number.into()))?;
            }
            b'K' => {
                let [number] = self.bytes.array()?;
                self.push(PickleValue::Int(number.into()))?;
            }
            b'M' => {
                let number = u16::from_le_bytes(self.bytes.array()?);
                self.push(PickleValue::Int(number.into()))?;
            }
            0x8a => {
                let [length] = self.bytes.array()?;
                let number = self.bytes.long(length.into())?;
                self.push(number)?;
            }
            0x8b => {
                let length = self.signed_length("LONG4")?;
                let number = self.bytes.long(length)?;
                self.push(number)?;
            }
            b'I' | b'L' | b'F' => {
                let line = self.bytes.line(MAX_TEXT)?;
                let text = String::from_utf8_lossy(&line);
                let number = bytes::text_number(opcode, text.trim());
                let number = number.ok_or_else(|| self.broken(format!("{:?} is no number", text.trim())))?;
                self.push(number)?;
            }
            b'G' => {
                let number = f64::from_be_bytes(self.bytes.array()?);
                self.push(PickleValue::Float(number))?;
            }
            0x8c | b'U' => {
                let [length] = self.bytes.array()?;
                self.text(length.into())?;
            }
            b'X' => {
                let length = u32::from_le_bytes(self.bytes.array()?);
                self.text(length.into())?;
            }
            b'T' => {
                let length = self.signed_length("BINSTRING")?;
                self.text(length)?;
            }
            0x8d => {
                let length = u64::from_le_bytes(self.bytes.array()?);
                self.text(length)?;
            }
            b'S' | b'V' => {
                let line = self.bytes.line(MAX_TEXT)?;
                let text = bytes::escaped(opcode, &line);
                let value = self.heap.intern(text.as_bytes());
                self.push(value)?;
            }
            b'B' => {
                let length = u32::from_le_bytes(self.bytes.array()?);
                self.raw(length.into())?;
            }
            b'C' => {
                let [length] = self.bytes.array()?;
                self.raw(length.into())?;
            }
            0x8e | 0x96 => {
                let length = u64::from_le_bytes(self.bytes.array()?);
                self.raw(length)?;
            }
            b']' | b')' | 0x8f => {
                let list = PickleValue::List(self.heap.create());
                self.push(list)?;
            }
            b'}' => {
                let dict = PickleValue::Dict(self.heap.create());
                self.push(dict)?;
            }
            b'l' | b't' | 0x91 => {
                let from = self.mark()?;
                self.list_from(from)?;
            }
            0x85..=0x87 => {
                let count = usize::from(opcode - 0x84);
                let from = self.above_mark(count)?;
                self.list_from(from)?;
            }
            b'd' => {
                let from = self.mark()?;
                let dict = PickleValue::Dict(self.heap.create());
                self.adopt_into(dict, from)?;
                self.push(dict)?;
            }
            b'a' => self.extend(1)?,
            b's' => self.extend(2)?,
            b'e' | b'u' | 0x90 => {
                let from = self.mark()?;
                let target = from.checked_sub(1).filter(|&at| at >= self.floor());
                let target = target.and_then(|at| self.stack.get(at).copied());
                let target = target.ok_or_else(|| self.broken("items that belong to nothing"))?;
                self.adopt_into(target, from)?;
            }
            b'p' | b'g' => {
                let line = self.bytes.line(32)?;
                let text = String::from_utf8_lossy(&line);
                let index: Option<u64> = text.trim().parse().ok();
                let index = index.ok_or_else(|| self.broken(format!("{:?} is no place", text.trim())))?;
                if opcode == b'p' { self.put(index)? } else { self.get(index)? }
            }
            b'q' => {
                let [index] = self.bytes.array()?;
                self.put(index.into())?;
            }
            b'r' => {
                let index = u32::from_le_bytes(self.bytes.array()?);
                self.put(index.into())?;
            }
            0x94 => self.put(self.memo.next())?,
            b'h' => {
                let [index] = self.bytes.array()?;
                self.get(index.into())?;
            }
            b'j' => {
                let index = u32::from_le_bytes(self.bytes.array()?);
                self.get(index.into())?;
            }
            0x80 => {
                let [protocol] = self.bytes.array()?;
                if protocol > 5 {
                    return Err(self.broken(format!("protocol {protocol} is none that is known (0 to 5)")));
                }
            }
            // The length of a frame helps those who read ahead; this reader does not believe it.
            0x95 => drop(self.bytes.array::<8>()?),
            _ => return Err(self.refuse(opcode)),
        }
        Ok(None)
    }

    /// The error for an opcode that plain data does not need.
    fn refuse(&mut self, opcode: u8) -> Stop {
        let at = self.bytes.opcode_at();
        let text =
            |line: Vec<u8>| String::from_utf8_lossy(&line).trim().chars().take(200).collect::<String>();
        let mut line = || self.bytes.line(1024).map(text).unwrap_or_default();
        let (name, asks) = match opcode {
            b'c' => {
                let (module, name) = (line(), line());
                ("GLOBAL", format!("would have looked up {module}.{name}"))
            }
            b'i' => {
                let (module, name) = (line(), line());
                ("INST", format!("would have called {module}.{name}"))
            }
            b'P' => ("PERSID", format!("would have loaded the object {:?} from elsewhere", line())),
            b'Q' => ("BINPERSID", "would have loaded an object from elsewhere".to_string()),
            0x93 => {
                let part = |back: usize| match self.stack.len().checked_sub(back).map(|at| self.stack[at]) {
                    Some(PickleValue::Str(text)) => self.heap.text(text).chars().take(200).collect(),
                    _ => "?".to_string(),
                };
                ("STACK_GLOBAL", format!("would have looked up {}.{}", part(2), part(1)))
            }
            b'R' => ("REDUCE", "would have called a function".to_string()),
            b'b' => ("BUILD", "would have set the state of an object".to_string()),
            b'o' => ("OBJ", "would have made an object".to_string()),
            0x81 => ("NEWOBJ", "would have made an object".to_string()),
            0x92 => ("NEWOBJ_EX", "would have made an object".to_string()),
            0x82 => ("EXT1", "would have looked up a registered function".to_string()),
            0x83 => ("EXT2", "would have looked up a registered function".to_string()),
            0x84 => ("EXT4", "would have looked up a registered function".to_string()),
            0x97 => ("NEXT_BUFFER", "would have taken bytes from elsewhere".to_string()),
            0x98 => ("READONLY_BUFFER", "would have taken bytes from elsewhere".to_string()),
            _ => return self.broken(format!("{opcode:#04x} is no opcode of a pickle")),
        };
        Stop::Refused(Error::new(
            ErrorKind::Hostile,
            format!(
                "byte {at}: the pickle's opcode {name} {asks}; Plimsoll reads plain data only and runs nothing \
                 that a file asks for"
            ),
        ))
    }

    fn broken(&self, what: impl std::fmt::Display) -> Stop {
        Stop::Broken(format!("broken at byte {}: {what}", self.bytes.opcode_at()))
    }

    fn out_of_proportion(&self, what: impl std::fmt::Display) -> Stop {
        let at = self.bytes.opcode_at();
        Stop::Refused(Error::new(ErrorKind::Hostile, format!("byte {at}: out of all proportion: {what}")))
    }

    fn room(&self) -> MachineResult<()> {
        let held = self.stack.len() + self.marks.len() + self.heap.held();
        if held < self.most_held {
            return Ok(());
        }
        Err(self.out_of_proportion(format!(
            "more than {} values that a memory snapshot does not have",
            self.most_held
        )))
    }

    fn push(&mut self, value: PickleValue) -> MachineResult<()> {
        self.room()?;
        self.stack.push(value);
        Ok(())
    }

    /// The lowest place of the stack that belongs to the run of items under way.
    fn floor(&self) -> usize {
        self.marks.last().map_or(0, |&mark| mark as usize)
    }

    fn top(&self) -> MachineResult<PickleValue> {
        let top = self.stack.last().filter(|_| self.stack.len() > self.floor());
        top.copied().ok_or_else(|| self.broken("a value is missing"))
    }

    fn pop(&mut self) -> MachineResult<PickleValue> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    /// Where the topmost `count` values begin.
    fn above_mark(&self, count: usize) -> MachineResult<usize> {
        let from = self.stack.len().checked_sub(count).filter(|&from| from >= self.floor());
        from.ok_or_else(|| self.broken("a value is missing"))
    }

    /// Where the items since the last mark begin; takes the mark.
    fn mark(&mut self) -> MachineResult<usize> {
        let mark = self.marks.pop().ok_or_else(|| self.broken("items without a beginning"))?;
        Ok(mark as usize)
    }

    fn list_from(&mut self, from: usize) -> MachineResult<()> {
        let list = PickleValue::List(self.heap.create());
        self.adopt_into(list, from)?;
        self.push(list)
    }

    /// Puts the topmost `count` values into the list or dict below them.
    fn extend(&mut self, count: usize) -> MachineResult<()> {
        let target = self.above_mark(count + 1)?;
        let into = self.stack[target];
        match (into, count) {
            (PickleValue::List(_), 1) | (PickleValue::Dict(_), 2) => self.adopt_into(into, target + 1),
            _ => Err(self.broken("an item for what is no list, or a pair for what is no dict")),
        }
    }

    /// Moves the stack's values from `from` on into a list or dict, each in its compact shape.
    fn adopt_into(&mut self, target: PickleValue, from: usize) -> MachineResult<()> {
        self.room()?;
        let handle = match target {
            PickleValue::List(handle) => handle,
            PickleValue::Dict(handle) if (self.stack.len() - from).is_multiple_of(2) => handle,
            PickleValue::Dict(_) => return Err(self.broken("a key without a value")),
            _ => return Err(self.broken("items for what is no list or dict")),
        };
        for at in from..self.stack.len() {
            let shaped = self.shaped(self.stack[at]);
            self.stack[at] = shaped;
        }
        let is_list = matches!(target, PickleValue::List(_));
        if !self.heap.extend(handle, &self.stack[from..], is_list) {
            return Err(self.broken("items for what was complete"));
        }
        self.stack.truncate(from);
        Ok(())
    }

    /// A value in its compact shape, if its format has one for it; what it was made of is let go.
    fn shaped(&mut self, value: PickleValue) -> PickleValue {
        let (PickleValue::List(handle) | PickleValue::Dict(handle)) = value else { return value };
        if !self.heap.untried(handle) {
            return value;
        }
        let items = self.heap.items(value);
        let shaped = match value {
            PickleValue::Dict(_) => self.shapes.dict(items, &self.heap),
            _ => self.shapes.list(items, &self.heap),
        };
        let Some(shaped) = shaped else { return value };
        if let Some(index) = self.heap.release(handle) {
            self.memo.replace(index, shaped);
        }
        shaped
    }

    fn put(&mut self, index: u64) -> MachineResult<()> {
        let top = self.top()?;
        match self.memo.put(index, top, self.bytes.position()) {
            Put::Done => {}
            Put::NoRoom => return Err(self.broken("no room to remember more values")),
            Put::OutOfProportion => {
                return Err(self.out_of_proportion("more places to remember values at than there are values"));
            }
        }
        if let PickleValue::List(handle) | PickleValue::Dict(handle) = top {
            self.heap.remembered(handle, index);
        }
        Ok(())
    }

    fn get(&mut self, index: u64) -> MachineResult<()> {
        let value = self.memo.get(index);
        let value = value.ok_or_else(|| self.broken(format!("nothing was remembered at place {index}")))?;
        self.push(value)
    }

    fn signed_length(&mut self, name: &str) -> MachineResult<u64> {
        let length = i32::from_le_bytes(self.bytes.array()?);
        u64::try_from(length).map_err(|_| self.broken(format!("{name} of {length} bytes")))
    }

    fn text(&mut self, length: u64) -> MachineResult<()> {
        if length > MAX_TEXT {
            let what = format!("a text of {length} bytes, where {MAX_TEXT} are believed");
            return Err(self.out_of_proportion(what));
        }
        let value = match self.bytes.within(length as usize) {
            Some(text) => self.heap.intern(text),
            None => {
                let text = self.bytes.gathered(length)?;
                self.heap.intern(&text)
            }
        };
        self.push(value)
    }

    /// Bytes mean nothing in the formats read here and are passed over.
    fn raw(&mut self, length: u64) -> MachineResult<()> {
        self.bytes.skip(length)?;
        self.push(PickleValue::Other)
    }

    /// What was complete when the pickle broke off: runs of items are closed from the innermost outwards, and
    /// dicts cut in their middle are left out, but for the outermost.
    fn salvage(&mut self) -> (PickleValue, Option<Str>) {
        while let Some(mark) = self.marks.pop() {
            let from = (mark as usize).min(self.stack.len());
            let Some(at) = from.checked_sub(1) else { break };
            match self.stack[at] {
                list @ PickleValue::List(_) => {
                    let _ = self.adopt_into(list, from);
                }
                dict @ PickleValue::Dict(_) if at == 0 => return (dict, self.salvage_dict(dict)),
                _ => {}
            }
            self.stack.truncate(from);
            if let PickleValue::Dict(_) = self.stack[at] {
                self.stack[at] = PickleValue::Nothing;
            }
        }
        let root = self.stack.first().copied().unwrap_or(PickleValue::None);
        if let PickleValue::Dict(_) = root
            && self.stack.len() > 1
        {
            return (root, self.salvage_dict(root));
        }
        if let PickleValue::List(_) = root {
            let _ = self.adopt_into(root, 1);
        }
        (root, None)
    }

    /// Puts what lies above the outermost dict into it: keys, their values, and after the last of these what
    /// was about to be put into it.
    fn salvage_dict(&mut self, dict: PickleValue) -> Option<Str> {
        let items = self.stack.split_off(1);
        let mut within = None;
        let mut items = items.into_iter().peekable();
        while let Some(key) = items.next() {
            let (PickleValue::Str(name), Some(value)) = (key, items.next()) else { continue };
            within = Some(name);
            while let Some(more) = items.next_if(|item| !matches!(item, PickleValue::Str(_))) {
                self.stack.push(more);
                let _ = self.adopt_into(value, 1);
                self.stack.truncate(1);
            }
            self.stack.extend([key, value]);
            let _ = self.adopt_into(dict, 1);
            self.stack.truncate(1);
        }
        within
    }
}

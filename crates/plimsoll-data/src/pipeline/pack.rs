//! Sequences of any length packed into rows of one length, so that next to nothing of a row is padding. Each row says which
//! of its positions belong to the same sequence (`segment`, from 1; 0 is padding) and where in it they are (`position`),
//! for attention that must not look from one sequence into another.

use super::batch::fill;
use super::pending::Waiting;
use super::{Cursor, Held, Node, Padding, Pass, StageMeter, Stream};
use crate::source::add_field;
use crate::{Element, ErrorKind, Field, Record, Result};
use std::sync::Arc;

/// The names of the fields that packing adds.
const ADDED: [&str; 2] = ["segment", "position"];

/// Sequences in rows.
pub(crate) struct Packed {
    upstream: Arc<dyn Node>,
    fields: Arc<[Field]>,
    length: usize,
    /// Whether a sequence may be cut at the end of a row and go on in the next.
    cuts: bool,
    padding: Padding,
}

impl Packed {
    pub(crate) fn new(
        upstream: Arc<dyn Node>,
        length: usize,
        cuts: bool,
        padding: Padding,
    ) -> Result<Packed> {
        let mut fields = vec![];
        for field in upstream.fields().iter() {
            if field.shape().first() != Some(&Field::OPEN) || field.shape()[1..].contains(&Field::OPEN) {
                let reason = format!(
                    "sequences are packed along their first axis, which alone is open; this is {field}"
                );
                return Err(ErrorKind::Field { name: field.name().to_string(), reason }.into());
            }
            let shape = [&[length], &field.shape()[1..]].concat();
            add_field(&mut fields, Field::new(field.name(), field.element(), &shape)?)?;
        }
        for name in ADDED {
            add_field(&mut fields, Field::new(name, Element::I32, &[length])?)?;
        }
        Ok(Packed { upstream, fields: fields.into(), length, cuts, padding })
    }
}

impl Node for Packed {
    fn fields(&self) -> &Arc<[Field]> {
        &self.fields
    }

    fn count(&self) -> Option<u64> {
        None
    }

    fn open(&self, pass: &Pass) -> Result<Box<dyn Stream>> {
        Ok(Box::new(Packing {
            upstream: self.upstream.open(pass)?,
            length: self.length,
            cuts: self.cuts,
            padding: self.padding.clone(),
            sequence: Waiting::new(Record::new(self.upstream.fields())),
            packed: 0,
            has_sequence: false,
            taken: 0,
            held: Held::nothing(&pass.account),
            meter: pass.meter.stage(format!("pack to {}", self.length)),
        }))
    }

    fn upstream(&self) -> &[Arc<dyn Node>] {
        std::slice::from_ref(&self.upstream)
    }
}

struct Packing {
    upstream: Box<dyn Stream>,
    length: usize,
    cuts: bool,
    padding: Padding,
    /// The sequence that is packed next, and how much of it is.
    sequence: Waiting,
    packed: usize,
    has_sequence: bool,
    /// How many sequences were taken in.
    taken: u64,
    held: Held,
    meter: Arc<StageMeter>,
}

impl Packing {
    /// The length of the sequence that is packed.
    fn sequence_length(&self) -> Result<usize> {
        let record = &self.sequence.record;
        let length = record.shape(0)[0];
        for (position, field) in record.fields().iter().enumerate() {
            let other = record.shape(position)[0];
            if other != length {
                let first = record.fields()[0].name();
                let reason = format!(
                    "`{}` has a length of {other}, `{first}` of {length}: pack fields of one length",
                    field.name()
                );
                let (stage, element) = ("pack".to_string(), self.taken - 1);
                return Err(ErrorKind::Stage { stage, element, reason, error: None }.into());
            }
        }
        Ok(length)
    }

    /// Sees to it that there is a sequence; false if there are no more.
    fn has_next(&mut self) -> Result<bool> {
        while !self.has_sequence {
            if !self.sequence.take_in(&mut *self.upstream)? {
                return Ok(false);
            }
            (self.packed, self.taken) = (0, self.taken + 1);
            let bytes = self.sequence.record.held_bytes();
            let holder = || "the sequence that is packed".to_string();
            self.held.set(bytes, &holder, "cut sequences before they are packed, or raise the budget")?;
            self.meter.holds(bytes);
            self.has_sequence = self.sequence_length()? > 0;
        }
        Ok(true)
    }

    /// Copies a part of the sequence into a row.
    fn copy(&mut self, out: &mut Record, at: usize, count: usize, segment: i32) -> Result<()> {
        let record = &self.sequence.record;
        let fields = record.fields().len();
        for position in 0..fields {
            let step = out.bytes(position).len() / self.length;
            let from = &record.bytes(position)[self.packed * step..][..count * step];
            out.row_mut(position, 0, step * self.length)[at * step..][..count * step].copy_from_slice(from);
        }
        out.get_mut::<i32>(ADDED[0])?[at..at + count].fill(segment);
        let positions = &mut out.get_mut::<i32>(ADDED[1])?[at..at + count];
        for (position, number) in positions.iter_mut().zip(self.packed..) {
            *position = i32::try_from(number).unwrap_or(i32::MAX);
        }
        self.packed += count;
        Ok(())
    }
}

impl Stream for Packing {
    fn next(&mut self, out: &mut Record) -> Result<bool> {
        if !self.has_next()? {
            return Ok(false);
        }
        let fields = Arc::clone(out.fields());
        for (position, field) in fields.iter().enumerate() {
            let value = self.padding.values.get(position).copied().unwrap_or(0.0);
            fill(out.reshape(position, field.shape())?, field.element(), value);
        }
        let (mut filled, mut segment) = (0, 0);
        while filled < self.length && self.has_next()? {
            let (room, left) = (self.length - filled, self.sequence_length()? - self.packed);
            // What is longer than a row is cut in any case, at the beginning of one.
            if left > room && filled > 0 && !self.cuts {
                break;
            }
            segment += 1;
            let count = left.min(room);
            self.copy(out, filled, count, segment)?;
            filled += count;
            self.has_sequence = count < left;
        }
        self.meter.work(|| ());
        Ok(true)
    }

    fn save(&self, position: &mut Vec<u64>) {
        position.extend([self.taken, u64::from(self.has_sequence), self.packed as u64]);
        if self.has_sequence {
            position.push(self.sequence.before.len() as u64);
            position.extend_from_slice(&self.sequence.before);
        }
        self.upstream.save(position);
    }

    fn seek(&mut self, position: &mut Cursor<'_>) -> Result<()> {
        let (taken, has_sequence, packed) = (position.take()?, position.take()? != 0, position.take()?);
        self.has_sequence = false;
        if has_sequence {
            let length = position.take()?;
            let before = position.take_many(length)?;
            let packed = usize::try_from(packed).unwrap_or(usize::MAX);
            self.taken = taken;
            self.sequence.take_again(&mut *self.upstream, before)?;
            if packed > self.sequence_length()? {
                let reason =
                    format!("element {packed} of a sequence is to be packed next, which it does not have");
                return Err(ErrorKind::Position { reason }.into());
            }
            (self.packed, self.has_sequence) = (packed, true);
        }
        self.taken = taken;
        self.upstream.seek(position)
    }
}

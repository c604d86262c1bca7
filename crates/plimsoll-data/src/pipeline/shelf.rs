//! Records that wait in a buffer, each with the position that upstream had before it. Small ones of one size lie one after
//! the other, without the vectors that a record is made of, which would take more than its values.

use super::pending::Waiting;
use crate::{Field, Record};
use std::sync::Arc;

/// Records of at most as many bytes are copied in and out; larger ones change hands.
const MOST_COPIED: usize = 4 << 10;

/// As many bytes are reserved before they are used: what is large from the beginning grows without being copied, and what is
/// not used is not there.
const MOST_RESERVED: usize = 4 << 20;

/// Places for records.
pub(crate) enum Shelf {
    Rows(Rows),
    Records(Records),
}

/// Records of one size in a row.
#[derive(Default)]
pub(crate) struct Rows {
    /// Of one record, and of each of its fields.
    bytes: usize,
    field_bytes: Vec<usize>,
    values: Vec<u8>,
    /// For each record how many numbers its position has, and they; then nothing up to the longest.
    positions: Vec<u64>,
    position_length: usize,
    count: usize,
    /// How many there will be, at most.
    most: usize,
}

/// Records as they are.
pub(crate) struct Records {
    fields: Arc<[Field]>,
    full: Vec<Waiting>,
    /// Records that are empty.
    spare: Vec<Waiting>,
    held_bytes: u64,
}

impl Shelf {
    /// For at most so many records.
    pub(crate) fn new(fields: &Arc<[Field]>, most: usize) -> Shelf {
        let bytes: usize = fields.iter().map(Field::bytes).sum();
        if fields.iter().all(Field::is_fixed) && (1..=MOST_COPIED).contains(&bytes) {
            let values = reserved(most, bytes);
            let field_bytes = fields.iter().map(Field::bytes).collect();
            return Shelf::Rows(Rows {
                bytes,
                field_bytes,
                values,
                position_length: 1,
                most,
                ..Rows::default()
            });
        }
        let fields = Arc::clone(fields);
        Shelf::Records(Records { fields, full: vec![], spare: vec![], held_bytes: 0 })
    }

    /// What one record takes, or at least takes if its shape is open.
    pub(crate) fn bytes_of_each(fields: &Arc<[Field]>) -> u64 {
        match Shelf::new(fields, 0) {
            Shelf::Rows(rows) => (rows.bytes + size_of::<[u64; 2]>()) as u64,
            Shelf::Records(_) => Record::new(fields).held_bytes() + size_of::<Waiting>() as u64,
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Shelf::Rows(rows) => rows.count,
            Shelf::Records(records) => records.full.len(),
        }
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        match self {
            Shelf::Rows(rows) => (rows.values.len() + size_of_val(&rows.positions[..])) as u64,
            Shelf::Records(records) => records.held_bytes,
        }
    }

    /// Adds so many places, whose records are to be put.
    pub(crate) fn add_places(&mut self, more: usize) {
        match self {
            Shelf::Rows(rows) => {
                rows.count += more;
                grow(&mut rows.values, rows.count * rows.bytes);
                grow(&mut rows.positions, rows.count * rows.position_length);
            }
            Shelf::Records(Records { fields, full, spare, held_bytes }) => {
                for _ in 0..more {
                    full.push(spare.pop().unwrap_or_else(|| {
                        let made = Waiting::new(Record::new(fields));
                        *held_bytes += made.record.held_bytes();
                        made
                    }));
                }
            }
        }
    }

    /// Takes away the last place, whose record was not put.
    pub(crate) fn remove_last_place(&mut self) {
        match self {
            Shelf::Rows(rows) => rows.count = rows.count.saturating_sub(1),
            Shelf::Records(records) => records.spare.extend(records.full.pop()),
        }
    }

    /// Puts a record at a place. What is in `waiting` after that is to be overwritten.
    pub(crate) fn put(&mut self, at: usize, waiting: &mut Waiting) {
        match self {
            Shelf::Rows(rows) => rows.put(at, waiting),
            Shelf::Records(records) => {
                let there = &mut records.full[at];
                let (more, less) = (waiting.record.held_bytes(), there.record.held_bytes());
                records.held_bytes = records.held_bytes + more - less;
                std::mem::swap(there, waiting);
            }
        }
    }

    /// Takes the record from a place, to which the last one goes.
    pub(crate) fn draw(&mut self, at: usize, out: &mut Record) {
        match self {
            Shelf::Rows(rows) => {
                rows.draw(at, |position, from| out.row_mut(position, 0, from.len()).copy_from_slice(from))
            }
            Shelf::Records(records) => {
                let mut waiting = records.full.swap_remove(at);
                // What the caller's record held before belongs to the shelf now.
                let (more, less) = (out.held_bytes(), waiting.record.held_bytes());
                records.held_bytes = records.held_bytes + more - less;
                std::mem::swap(out, &mut waiting.record);
                records.spare.push(waiting);
            }
        }
    }

    /// Takes the record from a place, as [`draw`](Shelf::draw) does, to be a row of one that has many.
    pub(crate) fn draw_row(&mut self, at: usize, out: &mut Record, row: usize, scratch: &mut Record) {
        match self {
            Shelf::Rows(rows) => {
                rows.draw(at, |position, from| out.row_mut(position, row, from.len()).copy_from_slice(from))
            }
            Shelf::Records(_) => {
                self.draw(at, scratch);
                out.copy_row(row, scratch);
            }
        }
    }

    /// The position that upstream had before the record at a place.
    pub(crate) fn before(&self, at: usize) -> &[u64] {
        match self {
            Shelf::Rows(rows) => {
                let place = &rows.positions[at * rows.position_length..][..rows.position_length];
                &place[1..][..place[0] as usize]
            }
            Shelf::Records(records) => &records.full[at].before,
        }
    }
}

impl Rows {
    fn put(&mut self, at: usize, waiting: &Waiting) {
        let mut to = &mut self.values[at * self.bytes..][..self.bytes];
        for position in 0..waiting.record.fields().len() {
            let from = waiting.record.bytes(position);
            let (field, rest) = to.split_at_mut(from.len());
            field.copy_from_slice(from);
            to = rest;
        }
        self.make_room(1 + waiting.before.len());
        let place = &mut self.positions[at * self.position_length..][..=waiting.before.len()];
        place[0] = waiting.before.len() as u64;
        place[1..].copy_from_slice(&waiting.before);
    }

    /// Sees to it that positions of this length have room.
    fn make_room(&mut self, length: usize) {
        if length <= self.position_length {
            return;
        }
        let mut positions = reserved(self.most, length);
        positions.resize(self.count * length, 0);
        for (from, to) in
            self.positions.chunks_exact(self.position_length).zip(positions.chunks_exact_mut(length))
        {
            to[..from.len()].copy_from_slice(from);
        }
        (self.positions, self.position_length) = (positions, length);
    }

    /// Shows the fields of a record to `take`, and puts the last one in its place.
    fn draw(&mut self, at: usize, mut take: impl FnMut(usize, &[u8])) {
        let last = self.count - 1;
        let from = at * self.bytes;
        let mut offset = from;
        for (position, &bytes) in self.field_bytes.iter().enumerate() {
            take(position, &self.values[offset..][..bytes]);
            offset += bytes;
        }
        self.values.copy_within(last * self.bytes..(last + 1) * self.bytes, from);
        let length = self.position_length;
        self.positions.copy_within(last * length..(last + 1) * length, at * length);
        self.count = last;
    }
}

/// An empty vector with room for so many rows of so many elements, or for some of them.
fn reserved<T>(rows: usize, elements: usize) -> Vec<T> {
    Vec::with_capacity(rows.saturating_mul(elements).min(MOST_RESERVED / size_of::<T>()))
}

/// Makes a vector at least so long, with little more memory than that.
fn grow<T: Copy + Default>(vector: &mut Vec<T>, length: usize) {
    if length > vector.capacity() {
        vector.reserve_exact(length + length / 16 - vector.len());
    }
    if length > vector.len() {
        vector.resize(length, T::default());
    }
}

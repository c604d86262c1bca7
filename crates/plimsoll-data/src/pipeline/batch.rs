//! Batches: records of the same shape as the rows of one, or records of different shapes padded to the same.

use super::claim::set_rows;
use super::{Claim, Cursor, Held, Node, Pass, StageMeter, Stream};
use crate::record::padding_bytes;
use crate::{Element, ErrorKind, Field, Record, Result};
use std::sync::Arc;

/// What open extents are filled up with, field by field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Padding {
    /// The values, in the order of the fields.
    pub(crate) values: Vec<f64>,
}

/// So many records as one.
pub(crate) struct Batched {
    upstream: Arc<dyn Node>,
    fields: Arc<[Field]>,
    size: usize,
    drop_remainder: bool,
    padding: Option<Padding>,
}

impl Batched {
    pub(crate) fn new(
        upstream: Arc<dyn Node>,
        size: usize,
        drop_remainder: bool,
        padding: Option<Padding>,
    ) -> Result<Batched> {
        let fields = batch_fields(upstream.fields(), size, drop_remainder)?;
        Ok(Batched { fields, upstream, size, drop_remainder, padding })
    }
}

/// Refuses a batch of no samples, or of more bytes than can be addressed.
pub(crate) fn check_batch_size(fields: &[Field], size: usize) -> Result<()> {
    let refuse = |reason: String| Err(ErrorKind::BatchSize { batch: size, reason }.into());
    if size == 0 {
        return refuse("a batch needs at least one sample".to_string());
    }
    let is_beyond = |field: &&Field| {
        size.checked_mul(field.bytes().max(1)).is_none_or(|bytes| bytes > isize::MAX as usize)
    };
    match fields.iter().find(is_beyond) {
        Some(field) => {
            refuse(format!("a batch of the field `{}` has more bytes than can be addressed", field.name()))
        }
        None => Ok(()),
    }
}

/// The fields of batches of so many records; the last may have fewer, unless it is dropped then.
pub(crate) fn batch_fields(of: &[Field], size: usize, drop_remainder: bool) -> Result<Arc<[Field]>> {
    check_batch_size(of, size)?;
    let rows = if drop_remainder { size } else { Field::OPEN };
    of.iter().map(|field| field.rows(rows)).collect()
}

impl Node for Batched {
    fn fields(&self) -> &Arc<[Field]> {
        &self.fields
    }

    fn count(&self) -> Option<u64> {
        let (count, size) = (self.upstream.count()?, self.size as u64);
        Some(if self.drop_remainder { count / size } else { count.div_ceil(size) })
    }

    fn open(&self, pass: &Pass) -> Result<Box<dyn Stream>> {
        let of = self.upstream.fields();
        let kind = if self.padding.is_some() { "padded batches" } else { "batches" };
        Ok(Box::new(Batching {
            upstream: self.upstream.open(pass)?,
            is_fixed: of.iter().all(Field::is_fixed),
            scratch: Record::new(of),
            rows: vec![],
            size: self.size,
            drop_remainder: self.drop_remainder,
            padding: self.padding.clone(),
            made: 0,
            held: Held::nothing(&pass.account),
            meter: pass.meter.stage(format!("{kind} of {}", self.size)),
        }))
    }

    fn upstream(&self) -> &[Arc<dyn Node>] {
        std::slice::from_ref(&self.upstream)
    }
}

struct Batching {
    upstream: Box<dyn Stream>,
    is_fixed: bool,
    scratch: Record,
    /// The records of a batch, where their shapes have to be known first.
    rows: Vec<Record>,
    size: usize,
    drop_remainder: bool,
    padding: Option<Padding>,
    made: u64,
    held: Held,
    meter: Arc<StageMeter>,
}

impl Batching {
    /// Reads rows straight to their places.
    fn fill_fixed(&mut self, out: &mut Record) -> Result<usize> {
        let fields = Arc::clone(self.scratch.fields());
        set_rows(out, self.size, &fields)?;
        let mut rows = 0;
        while rows < self.size && self.upstream.next_row(out, rows, &mut self.scratch)? {
            rows += 1;
        }
        if 0 < rows && rows < self.size && !self.drop_remainder {
            set_rows(out, rows, &fields)?;
        }
        Ok(rows)
    }

    /// Reads records, and puts them side by side when all are there.
    fn fill_open(&mut self, out: &mut Record) -> Result<usize> {
        let mut rows = 0;
        while rows < self.size {
            if self.rows.len() == rows {
                self.rows.push(Record::new(self.scratch.fields()));
            }
            if !self.upstream.next(&mut self.rows[rows])? {
                break;
            }
            rows += 1;
        }
        let bytes = self.rows.iter().map(Record::held_bytes).sum();
        let holder = || format!("a batch of {} records", self.size);
        self.held.set(bytes, &holder, "use smaller batches, or raise the budget")?;
        self.meter.holds(bytes);
        if rows > 0 && (rows == self.size || !self.drop_remainder) {
            let stage = if self.padding.is_some() { "padded batch" } else { "batch" };
            side_by_side(&self.rows[..rows], self.padding.as_ref(), None, out).map_err(|error| {
                ErrorKind::Stage {
                    stage: stage.to_string(),
                    element: self.made,
                    reason: error.to_string(),
                    error: Some(error),
                }
            })?;
        }
        Ok(rows)
    }
}

impl Stream for Batching {
    fn next(&mut self, out: &mut Record) -> Result<bool> {
        let rows = if self.is_fixed { self.fill_fixed(out)? } else { self.fill_open(out)? };
        self.meter.work(|| ());
        self.made += 1;
        Ok(rows == self.size || rows > 0 && !self.drop_remainder)
    }

    fn can_be_claimed(&self) -> bool {
        self.is_fixed && self.upstream.can_be_claimed()
    }

    fn claim(&mut self, records: usize) -> Option<Claim> {
        // Batches of batches are made one by one.
        if records != 1 || !self.can_be_claimed() {
            return None;
        }
        let claim = self.upstream.claim(self.size)?;
        self.meter.work(|| ());
        self.made += 1;
        let samples = if self.drop_remainder && claim.samples < self.size { 0 } else { claim.samples };
        Some(Claim { samples, are_rows: true, ..claim })
    }

    fn save(&self, position: &mut Vec<u64>) {
        position.push(self.made);
        self.upstream.save(position);
    }

    fn seek(&mut self, position: &mut Cursor<'_>) -> Result<()> {
        self.made = position.take()?;
        self.upstream.seek(position)
    }
}

/// Writes records as the rows of one. Where their shapes differ, each extent is the longest, or `length` for the first axis
/// if that is given, and what is left is padded.
pub(crate) fn side_by_side(
    rows: &[Record],
    padding: Option<&Padding>,
    length: Option<usize>,
    out: &mut Record,
) -> Result<()> {
    let Some(first) = rows.first() else { return Ok(()) };
    for (position, field) in first.fields().iter().enumerate() {
        let mut shape = first.shape(position).to_vec();
        for (number, row) in rows.iter().enumerate() {
            let other = row.shape(position);
            if padding.is_none() && other != shape {
                let reason = format!(
                    "row {number} has the shape {other:?}, the first has {shape:?}: rows of a batch have one shape; pad them \
                     (`padded_batch`), or make them the same (`map`)"
                );
                return Err(ErrorKind::Field { name: field.name().to_string(), reason }.into());
            }
            shape.iter_mut().zip(other).for_each(|(longest, &extent)| *longest = extent.max(*longest));
        }
        if let (Some(length), Some(extent), Some(&Field::OPEN)) =
            (length, shape.first_mut(), field.shape().first())
        {
            *extent = length.max(*extent);
        }
        let is_ragged = rows.iter().any(|row| row.shape(position) != shape);
        let value = padding.and_then(|padding| padding.values.get(position)).copied().unwrap_or(0.0);
        let to = out.reshape(position, &[&[rows.len()], &shape[..]].concat())?;
        if is_ragged {
            fill(to, field.element(), value);
        }
        let bytes = to.len() / rows.len();
        for (row, to) in rows.iter().zip(to.chunks_exact_mut(bytes.max(1))) {
            copy_into_corner(row.bytes(position), row.shape(position), to, &shape, field.element().bytes());
        }
    }
    Ok(())
}

/// Sets all elements to a value.
pub(crate) fn fill(to: &mut [u8], element: Element, value: f64) {
    let (value, size) = padding_bytes(element, value);
    for to in to.chunks_exact_mut(size) {
        to.copy_from_slice(&value[..size]);
    }
}

/// Copies an array to the beginning of every axis of a larger one.
fn copy_into_corner(from: &[u8], shape: &[usize], to: &mut [u8], larger: &[usize], element: usize) {
    let (Some((&rows, rest)), Some((_, larger_rest))) = (shape.split_first(), larger.split_first()) else {
        to.copy_from_slice(from);
        return;
    };
    if rest == larger_rest {
        to[..from.len()].copy_from_slice(from);
        return;
    }
    let bytes = |shape: &[usize]| shape.iter().product::<usize>() * element;
    let (from_bytes, to_bytes) = (bytes(rest), bytes(larger_rest));
    for row in 0..rows {
        let (from, to) = (&from[row * from_bytes..][..from_bytes], &mut to[row * to_bytes..][..to_bytes]);
        copy_into_corner(from, rest, to, larger_rest, element);
    }
}

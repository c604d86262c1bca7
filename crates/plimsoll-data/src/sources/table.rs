//! Rows of named columns, as Parquet and Arrow files hold them.
//!
//! Such files are read in blocks of rows: a single row cannot be had without unpacking its block. A few blocks are kept, so
//! that rows that are read in order, by any number of threads, are each unpacked once. Reading in random order is right but
//! slow, a block for each row: shuffle such rows in a buffer instead.

mod arrow;
mod column;
mod features;
mod parquet;

pub use arrow::arrow;
pub(super) use features::Described;
pub use parquet::parquet;

use super::guard::guard;
use crate::source::{add_field, field_at, field_named};
use crate::{Error, ErrorKind, Field, Record, Result, Source};
use arrow_array::RecordBatch;
use arrow_schema::Schema;
use column::{Column, Values};
use std::fmt::Debug;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// As many blocks are kept: those that neighbouring batches touch.
const SLOTS: usize = 4;
/// A block has at most so many rows, and about as many bytes at most, where the file leaves it to the reader.
const MOST_ROWS: usize = 8192;
const BLOCK_BYTES: u64 = 4 << 20;
/// A block that a file makes larger than this is refused.
const MOST_BLOCK_BYTES: u64 = 256 << 20;

/// A file that is read in blocks of rows.
trait Blocks: Debug + Send + Sync {
    fn path(&self) -> &Path;

    fn schema(&self) -> &Schema;

    /// Decides which columns are read. Returns the row at which each block ends, and the bytes of the largest, about.
    fn select(&mut self, columns: &[usize]) -> Result<(Vec<usize>, u64)>;

    /// The chosen columns of a block.
    fn decode(&self, block: usize) -> std::result::Result<RecordBatch, String>;

    /// Bytes of RAM that the file's own directory takes.
    fn directory_bytes(&self) -> u64;
}

/// The rows of a Parquet or Arrow file; each column is a field of the same name.
///
/// | columns | fields |
/// |---|---|
/// | `float32`, `float64`, `int32`, `int64`, `uint8` | the same |
/// | `float16` | `f32` |
/// | `bool` | `u8`, 0 or 1 |
/// | `int8`, `int16`, `uint16` | `i32` |
/// | `uint32` | `i64` |
/// | lists of these | `[?]`, or `[n]` where all are as long |
/// | strings, binary | `u8 [?]`, or `[n]` where all are as long |
/// | dictionaries of these | as what they stand for |
///
/// Columns of other kinds are left out. Reading in order unpacks each block once. Nulls are refused with their row, unless something stands for them
/// ([`Table::fill`]).
#[derive(Debug)]
pub struct Table {
    blocks: Box<dyn Blocks>,
    columns: Vec<Column>,
    fields: Vec<Field>,
    /// The row at which each block ends.
    ends: Vec<usize>,
    /// A block is kept in the slot of its number, until another with that slot is read. Who waits for a block that is being
    /// unpacked gets it when it is.
    slots: [Mutex<Slot>; SLOTS],
    most_block_bytes: AtomicU64,
}

/// A block and its number, if one is kept.
type Slot = Option<(usize, Arc<Block>)>;

/// Rows, unpacked.
#[derive(Debug)]
struct Block {
    first: usize,
    columns: Vec<Values>,
}

impl Table {
    /// All columns of a file that can be fields.
    fn new(blocks: Box<dyn Blocks>) -> Result<Table> {
        let schema = blocks.schema();
        let is_field = |&position: &usize| Column::new(0, schema.field(position)).field().is_ok();
        let columns: Vec<usize> = (0..schema.fields().len()).filter(is_field).collect();
        Table::selecting(blocks, &columns)
    }

    /// The columns at these positions.
    fn selecting(mut blocks: Box<dyn Blocks>, positions: &[usize]) -> Result<Table> {
        // Columns are unpacked in the order of the file.
        let mut sorted = positions.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let (mut columns, mut fields) = (Vec::new(), Vec::new());
        for &position in positions {
            let unpacked = sorted.partition_point(|&other| other < position);
            let column = Column::new(unpacked, blocks.schema().field(position));
            add_field(&mut fields, column.field()?)?;
            columns.push(column);
        }
        let (ends, bytes) = blocks.select(&sorted)?;
        let most_block_bytes = AtomicU64::new(bytes);
        Ok(Table { blocks, columns, fields, ends, slots: Default::default(), most_block_bytes })
    }

    /// These columns alone, in this order. Others are not read.
    ///
    /// # Errors
    /// If there is no such column, it is named twice, or is of a kind that cannot be a field.
    pub fn columns(self, names: &[&str]) -> Result<Table> {
        let mut chosen = Vec::new();
        for &name in names {
            let names = self.blocks.schema().fields();
            let Some(position) = names.iter().position(|column| column.name() == name) else {
                let known = names.iter().map(|column| column.name().clone()).collect();
                return Err(ErrorKind::NoSuchField { asked: format!("`{name}`"), known }.into());
            };
            chosen.push(position);
        }
        Table::selecting(self.blocks, &chosen)
    }

    /// Lists, strings or binary of this column all have this shape: `[n]` in place of `[?]`, or `[a, b]` of as many.
    ///
    /// # Errors
    /// If there is no such column, or its values have a shape of their own.
    pub fn shape(self, column: &str, shape: &[usize]) -> Result<Table> {
        self.change(column, |column| column.set_shape(shape))
    }

    /// This stands for nulls in this column: in place of a number, also of one in a list. A list or string that is null is
    /// empty, or where all are as long, made of it.
    ///
    /// # Errors
    /// If there is no such column.
    pub fn fill(self, column: &str, value: f64) -> Result<Table> {
        self.change(column, |column| {
            column.fill = Some(value);
            Ok(())
        })
    }

    fn change(mut self, name: &str, change: impl FnOnce(&mut Column) -> Result<()>) -> Result<Table> {
        let position = field_named(&self.fields, name)?;
        change(&mut self.columns[position])?;
        self.fields[position] = self.columns[position].field()?;
        Ok(self)
    }

    /// The block that has a row.
    fn block(&self, row: usize) -> Result<Arc<Block>> {
        let number = self.ends.partition_point(|&end| end <= row);
        let mut slot = self.slots[number % SLOTS].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((kept, block)) = &*slot
            && *kept == number
        {
            return Ok(Arc::clone(block));
        }
        // What is no longer needed goes before the next is unpacked.
        *slot = None;
        let first = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        let rows = self.ends[number] - first;
        let unpack = || {
            let batch = self.blocks.decode(number)?;
            if batch.num_rows() != rows {
                return Err(format!("{} rows were unpacked where {rows} are claimed", batch.num_rows()));
            }
            let values = |column: &Column| Values::new(batch.column(column.unpacked));
            self.columns.iter().map(values).collect()
        };
        let columns = guard(unpack).map_err(|reason| {
            let reason = format!("rows {first} to {} cannot be unpacked: {reason}", first + rows - 1);
            error(self.blocks.path(), Some(row), reason)
        })?;
        let block = Block { first, columns };
        let bytes = block.columns.iter().map(Values::held_bytes).sum();
        self.most_block_bytes.fetch_max(bytes, Ordering::Relaxed);
        Ok(Arc::clone(&slot.insert((number, Arc::new(block))).1))
    }

    fn write(&self, block: &Block, row: usize, field: usize, out: &mut [u8]) -> Result<()> {
        let values = &block.columns[field];
        self.columns[field].write(values, row - block.first, out).map_err(|reason| {
            let reason = format!("column `{}`: {reason}", self.columns[field].name);
            error(self.blocks.path(), Some(row), reason)
        })
    }
}

impl Source for Table {
    fn samples(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, sample: usize, field: usize, out: &mut [u8]) -> Result<()> {
        if !field_at(&self.fields, field)?.is_fixed() {
            let reason =
                "its samples are of different lengths: read whole records, or say its shape".to_string();
            return Err(ErrorKind::Field { name: self.fields[field].name().to_string(), reason }.into());
        }
        self.locate(sample, field, out)?;
        let block = self.block(sample)?;
        self.write(&block, sample, field, out)
    }

    fn read_record(&self, sample: usize, out: &mut Record) -> Result<()> {
        let samples = self.samples();
        if sample >= samples {
            return Err(ErrorKind::NoSuchSample { sample, samples }.into());
        }
        let block = self.block(sample)?;
        for (position, field) in self.fields.iter().enumerate() {
            let open = [self.columns[position].length(&block.columns[position], sample - block.first)];
            let shape = if field.is_fixed() { field.shape() } else { &open };
            self.write(&block, sample, position, out.reshape(position, shape)?)?;
        }
        Ok(())
    }

    fn read_range(&self, first: usize, samples: usize, field: usize, out: &mut [u8]) -> Result<()> {
        let bytes = field_at(&self.fields, field)?.bytes().max(1);
        let (mut sample, end) = (first, first.saturating_add(samples));
        let mut rooms = out.chunks_exact_mut(bytes);
        while sample < end {
            if sample >= self.samples() {
                return Err(ErrorKind::NoSuchSample { sample, samples: self.samples() }.into());
            }
            // A block is looked up once for all of its rows.
            let block = self.block(sample)?;
            let rows = end.min(self.ends[self.ends.partition_point(|&end| end <= sample)]) - sample;
            for (row, room) in (sample..).zip(rooms.by_ref().take(rows)) {
                self.write(&block, row, field, room)?;
            }
            sample += rows;
        }
        Ok(())
    }

    /// The page that is being unpacked, and what it is unpacked to: about a block.
    fn reading_bytes(&self) -> u64 {
        self.most_block_bytes.load(Ordering::Relaxed)
    }

    /// The directory of the file, and the blocks that are kept. How large those are is known of the file at first, and of the
    /// largest that was unpacked from then on.
    fn resident_bytes(&self) -> u64 {
        let ends = (self.ends.capacity() * size_of::<usize>()) as u64;
        let kept = SLOTS.min(self.ends.len()) as u64;
        let blocks = kept.saturating_mul(self.most_block_bytes.load(Ordering::Relaxed));
        self.blocks.directory_bytes().saturating_add(ends).saturating_add(blocks)
    }
}

fn error(path: &Path, sample: Option<usize>, reason: impl Into<String>) -> Error {
    ErrorKind::File { path: path.to_path_buf(), sample, offset: None, reason: reason.into() }.into()
}

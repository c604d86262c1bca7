//! Parquet files: groups of rows, in which each column lies by itself in packed pages.
//!
//! A group is read from its beginning, a block at a time. What reads it is kept where it stands, so that the next block goes
//! on from there.

use super::super::bytes::Bytes;
use super::super::guard::guard;
use super::{BLOCK_BYTES, Blocks, MOST_BLOCK_BYTES, MOST_ROWS, SLOTS, Table, error};
use crate::Result;
use ::parquet::arrow::ProjectionMask;
use ::parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use ::parquet::errors::ParquetError;
use ::parquet::file::reader::{ChunkReader, Length};
use arrow_array::RecordBatch;
use arrow_schema::{DataType, Schema};
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// The rows of a Parquet file, of which nothing is read yet but its directory.
///
/// Pages may be packed by snappy, gzip, zstd or lz4.
///
/// # Errors
/// If it cannot be read, or is no such file.
pub fn parquet(path: impl AsRef<Path>) -> Result<Table> {
    let bytes = Arc::new(Bytes::open(path.as_ref())?);
    let failed = |reason| error(path.as_ref(), None, format!("it cannot be read as Parquet: {reason}"));
    let metadata = guard(|| directory(&bytes).map_err(|error| error.to_string())).map_err(failed)?;
    Table::new(Box::new(Parquet { bytes, metadata, mask: None, blocks: Vec::new(), open: Mutex::default() }))
}

/// The directory of a file, with dictionaries as what they stand for.
fn directory(bytes: &Arc<Bytes>) -> ::parquet::errors::Result<ArrowReaderMetadata> {
    let source = Positioned { bytes: Arc::clone(bytes), of: None };
    let metadata = ArrowReaderMetadata::load(&source, ArrowReaderOptions::new())?;
    let schema = metadata.schema();
    if !schema.fields().iter().any(|field| matches!(field.data_type(), DataType::Dictionary(..))) {
        return Ok(metadata);
    }
    let plain = |field: &Arc<arrow_schema::Field>| match field.data_type() {
        DataType::Dictionary(_, values) => {
            Arc::new(field.as_ref().clone().with_data_type(values.as_ref().clone()))
        }
        _ => Arc::clone(field),
    };
    let schema = Schema::new_with_metadata(
        schema.fields().iter().map(plain).collect::<Vec<_>>(),
        schema.metadata().clone(),
    );
    ArrowReaderMetadata::load(&source, ArrowReaderOptions::new().with_schema(Arc::new(schema)))
}

#[derive(Debug)]
struct Parquet {
    bytes: Arc<Bytes>,
    metadata: ArrowReaderMetadata,
    mask: Option<ProjectionMask>,
    blocks: Vec<Place>,
    /// Readers that stand at the beginning of a block.
    open: Mutex<Vec<(usize, Reader)>>,
}

/// Where the rows of a block are.
#[derive(Clone, Copy, Debug)]
struct Place {
    group: usize,
    /// Counted in the group.
    first: usize,
    rows: usize,
}

/// Reads a group.
struct Reader(ParquetRecordBatchReader);

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reader")
    }
}

impl Parquet {
    fn open(&self) -> std::sync::MutexGuard<'_, Vec<(usize, Reader)>> {
        // A reader is taken out while it reads: one that panicked is not put back.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A reader of a block's group from the block on.
    fn reader(&self, Place { group, first, rows }: Place) -> ::parquet::errors::Result<Reader> {
        let source = Positioned { bytes: Arc::clone(&self.bytes), of: Some((self.metadata.clone(), group)) };
        let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(source, self.metadata.clone())
            .with_row_groups(vec![group])
            .with_batch_size(rows)
            .with_offset(first);
        if let Some(mask) = &self.mask {
            builder = builder.with_projection(mask.clone());
        }
        Ok(Reader(builder.build()?))
    }
}

impl Blocks for Parquet {
    fn path(&self) -> &Path {
        self.bytes.path()
    }

    fn schema(&self) -> &Schema {
        self.metadata.schema()
    }

    fn select(&mut self, columns: &[usize]) -> Result<(Vec<usize>, u64)> {
        let refuse = |reason: String| error(self.bytes.path(), None, reason);
        let schema = self.metadata.parquet_schema();
        let mask = ProjectionMask::roots(schema, columns.iter().copied());
        let (mut ends, mut end, mut most_bytes) = (Vec::new(), 0usize, 0);
        self.blocks.clear();
        for (group, row_group) in self.metadata.metadata().row_groups().iter().enumerate() {
            let rows = usize::try_from(row_group.num_rows())
                .map_err(|_| refuse(format!("group {group} claims {} rows", row_group.num_rows())))?;
            if rows == 0 {
                continue;
            }
            let chosen = row_group.columns().iter().enumerate().filter(|(leaf, _)| mask.leaf_included(*leaf));
            let bytes: u64 =
                chosen.map(|(_, column)| u64::try_from(column.uncompressed_size()).unwrap_or(0)).sum();
            let row_bytes = (bytes / rows as u64).max(1);
            if row_bytes > MOST_BLOCK_BYTES {
                return Err(refuse(format!(
                    "a row of group {group} claims {row_bytes} bytes, more than the limit of {MOST_BLOCK_BYTES}"
                )));
            }
            let at_once = ((BLOCK_BYTES / row_bytes) as usize).clamp(1, MOST_ROWS).min(rows);
            // A claim of more rows than the file could hold in any packing would only be a long list here.
            if rows as u64 / at_once as u64 > self.bytes.len() {
                return Err(refuse(format!("group {group} claims {rows} rows, more than the file can hold")));
            }
            for first in (0..rows).step_by(at_once) {
                let rows = at_once.min(rows - first);
                self.blocks.push(Place { group, first, rows });
                end = end.checked_add(rows).ok_or_else(|| refuse("it claims too many rows".to_string()))?;
                ends.push(end);
            }
            most_bytes = most_bytes.max(row_bytes.saturating_mul(at_once as u64));
        }
        self.mask = Some(mask);
        self.open().clear();
        Ok((ends, most_bytes))
    }

    fn decode(&self, block: usize) -> std::result::Result<RecordBatch, String> {
        let place = self.blocks[block];
        let mut open = self.open();
        let standing = open.iter().position(|(next, _)| *next == block).map(|at| open.remove(at).1);
        drop(open);
        let mut reader = match standing {
            Some(reader) => reader,
            None => self.reader(place).map_err(|error| error.to_string())?,
        };
        let batch = reader.0.next().ok_or("the group ends before it")?.map_err(|error| error.to_string())?;
        let goes_on = self.blocks.get(block + 1).is_some_and(|next| next.group == place.group);
        if goes_on {
            let mut open = self.open();
            if open.len() >= SLOTS {
                open.remove(0);
            }
            open.push((block + 1, reader));
        }
        Ok(batch)
    }

    fn directory_bytes(&self) -> u64 {
        let blocks = self.blocks.capacity() * size_of::<Place>();
        (self.metadata.metadata().memory_size() + blocks) as u64
    }
}

/// A file that readers read by position, without moving each other's.
struct Positioned {
    bytes: Arc<Bytes>,
    /// The group that is read, unless it is the directory.
    of: Option<(ArrowReaderMetadata, usize)>,
}

impl Positioned {
    /// The most bytes that a page at this place may claim: those of its column in the group.
    fn most_page_bytes(&self, place: u64) -> Option<u64> {
        let (metadata, group) = self.of.as_ref()?;
        let columns = metadata.metadata().row_group(*group).columns();
        let column = columns.iter().find(|column| {
            let (start, length) = column.byte_range();
            (start..start.saturating_add(length)).contains(&place)
        })?;
        let bytes = u64::try_from(column.uncompressed_size()).unwrap_or(0);
        Some(bytes.clamp(SMALL_PAGE_BYTES, MOST_BLOCK_BYTES))
    }
}

/// A page of so many bytes is read whatever the directory says of its column.
const SMALL_PAGE_BYTES: u64 = 1 << 20;

/// The bytes that a page claims to have when it is unpacked: the second number of its header, a structure in Thrift's compact
/// form that begins with three 32-bit numbers.
fn claimed_bytes(header: &[u8]) -> Option<u64> {
    const NEXT_FIELD_I32: u8 = 0x15;
    let mut rest = header.iter();
    let mut number = || {
        rest.next().filter(|&&field| field == NEXT_FIELD_I32)?;
        let mut value = 0;
        for shift in (0..35).step_by(7) {
            let byte = *rest.next()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                // Signs are in the lowest bit; what is negative is refused elsewhere.
                return Some(value >> 1);
            }
        }
        None
    };
    number()?;
    number()
}

impl Length for Positioned {
    fn len(&self) -> u64 {
        self.bytes.len()
    }
}

impl ChunkReader for Positioned {
    type T = BufReader<From>;

    fn get_read(&self, start: u64) -> ::parquet::errors::Result<BufReader<From>> {
        let most_page_bytes = self.most_page_bytes(start);
        Ok(BufReader::new(From { bytes: Arc::clone(&self.bytes), place: start, most_page_bytes }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> ::parquet::errors::Result<bytes::Bytes> {
        match self.bytes.read_vec(start, length as u64) {
            Ok(bytes) => Ok(bytes.into()),
            Err(error) => Err(ParquetError::EOF(error.to_string())),
        }
    }
}

/// A file from a place on.
struct From {
    bytes: Arc<Bytes>,
    place: u64,
    /// What is read first is the header of a page, which may claim no more than this: memory is taken for it at once.
    most_page_bytes: Option<u64>,
}

impl Read for From {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.bytes.len().saturating_sub(self.place)).unwrap_or(usize::MAX);
        let length = out.len().min(left);
        self.bytes.read(self.place, &mut out[..length]).map_err(io::Error::other)?;
        if let (Some(most), Some(claimed)) = (self.most_page_bytes.take(), claimed_bytes(&out[..length]))
            && claimed > most
        {
            let place = self.place;
            return Err(io::Error::other(format!(
                "byte {place}: a page claims {claimed} bytes, where its column may have {most} at most"
            )));
        }
        self.place += length as u64;
        Ok(length)
    }
}

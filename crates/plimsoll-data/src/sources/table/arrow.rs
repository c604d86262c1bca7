//! Arrow files: a description of the columns, then batches of rows as they lie in memory, perhaps packed.
//!
//! There are two forms, of which one has a directory at its end. It is not needed: both have the same messages in the same
//! order, each of which says where the next begins. Format:
//! <https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc>.

use super::super::bytes::Bytes;
use super::super::guard::guard;
use super::{Blocks, MOST_BLOCK_BYTES, Table, error};
use crate::Result;
use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::FileDecoder;
use arrow_ipc::{Block, MessageHeader, MetadataVersion};
use arrow_schema::Schema;
use std::path::Path;
use std::sync::Arc;

/// What the form with a directory begins with.
const MAGIC: &[u8; 8] = b"ARROW1\0\0";
/// What a message begins with, and its length after it.
const PREFIX: u64 = 8;
const CONTINUED: [u8; 4] = [0xff; 4];
/// The description of a message is not longer than this.
const MOST_DESCRIPTION_BYTES: u32 = 16 << 20;

/// The rows of an Arrow file (also called Feather, or Arrow IPC), or of a stored stream, as data sets of Hugging Face are
/// kept. Nothing of it is read yet but where its batches are.
///
/// Batches may be packed by lz4 or zstd. One that takes more than 256 MiB, packed or not, is refused: write smaller ones.
///
/// # Errors
/// If it cannot be read, or is no such file.
pub fn arrow(path: impl AsRef<Path>) -> Result<Table> {
    let bytes = Bytes::open(path.as_ref())?;
    let path = path.as_ref();
    let opened = guard(|| Arrow::open(bytes));
    Table::new(Box::new(
        opened.map_err(|reason| error(path, None, format!("it cannot be read as Arrow: {reason}")))?,
    ))
}

#[derive(Debug)]
struct Arrow {
    bytes: Bytes,
    schema: Arc<Schema>,
    decoder: FileDecoder,
    dictionary_bytes: u64,
    batches: Vec<Batch>,
}

/// Rows, and the message that has them.
#[derive(Debug)]
struct Batch {
    block: Block,
    rows: usize,
}

/// A message of a file.
struct Message {
    block: Block,
    /// Its description, without what comes before it.
    description: Vec<u8>,
}

impl Arrow {
    fn open(bytes: Bytes) -> std::result::Result<Arrow, String> {
        let mut start = [0; MAGIC.len()];
        bytes.read(0, &mut start).map_err(|error| error.to_string())?;
        let mut place = if start == *MAGIC { MAGIC.len() as u64 } else { 0 };
        let first = message(&bytes, &mut place)?.ok_or("it has no description of its columns")?;
        let parsed = arrow_ipc::root_as_message(&first.description).map_err(|error| error.to_string())?;
        let schema =
            parsed.header_as_schema().ok_or("it does not begin with a description of its columns")?;
        let schema = arrow_ipc::convert::try_fb_to_schema(schema).map_err(|error| error.to_string())?;
        let schema = Arc::new(schema);
        let version = parsed.version();
        if version != MetadataVersion::V5 && version != MetadataVersion::V4 {
            return Err(format!("its version, {version:?}, is not 4 or 5"));
        }
        let decoder = FileDecoder::new(Arc::clone(&schema), version);
        let mut arrow = Arrow { bytes, schema, decoder, dictionary_bytes: 0, batches: Vec::new() };
        while let Some(Message { block, description }) = message(&arrow.bytes, &mut place)? {
            let parsed = arrow_ipc::root_as_message(&description).map_err(|error| error.to_string())?;
            match parsed.header_type() {
                MessageHeader::RecordBatch => {
                    let rows = parsed.header_as_record_batch().map_or(0, |batch| batch.length());
                    let rows = usize::try_from(rows).map_err(|_| format!("a batch claims {rows} rows"))?;
                    if rows > 0 {
                        arrow.batches.push(Batch { block, rows });
                    }
                }
                MessageHeader::DictionaryBatch if arrow.batches.is_empty() => {
                    let buffer = arrow.read(&block)?;
                    arrow.decoder.read_dictionary(&block, &buffer).map_err(|error| error.to_string())?;
                    arrow.dictionary_bytes += buffer.len() as u64;
                }
                // Rows before it would mean something else than rows after it.
                MessageHeader::DictionaryBatch => {
                    return Err("a dictionary changes between its batches".to_string());
                }
                other => return Err(format!("it has a message of kind {other:?} after its description")),
            }
        }
        Ok(arrow)
    }

    fn read(&self, block: &Block) -> std::result::Result<Buffer, String> {
        let length = block.metaDataLength() as u64 + block.bodyLength() as u64;
        let bytes = self.bytes.read_vec(block.offset() as u64, length).map_err(|error| error.to_string())?;
        let (description, body) = bytes.split_at(block.metaDataLength() as usize);
        check_unpacked(&description[PREFIX as usize..], body)?;
        Ok(Buffer::from_vec(bytes))
    }
}

/// Refuses a batch whose packed parts claim to be more than the limit. Each begins with the bytes that it becomes, for which the
/// decoder takes memory at once; none are said of parts that are not packed after all.
fn check_unpacked(description: &[u8], body: &[u8]) -> std::result::Result<(), String> {
    let parsed = arrow_ipc::root_as_message(description).map_err(|error| error.to_string())?;
    let dictionary = parsed.header_as_dictionary_batch().and_then(|dictionary| dictionary.data());
    let Some(batch) = parsed.header_as_record_batch().or(dictionary) else { return Ok(()) };
    if batch.compression().is_none() {
        return Ok(());
    }
    let mut total = 0u64;
    for part in batch.buffers().into_iter().flatten().filter(|part| part.length() > 0) {
        let claimed = usize::try_from(part.offset()).ok().and_then(|at| body.get(at..)?.first_chunk());
        let claimed = i64::from_le_bytes(*claimed.ok_or("a packed part lies outside of its batch")?);
        total = total.saturating_add(u64::try_from(claimed).unwrap_or(0));
    }
    if total > MOST_BLOCK_BYTES {
        return Err(format!(
            "it claims {total} bytes, more than the limit of {MOST_BLOCK_BYTES}: write smaller batches"
        ));
    }
    Ok(())
}

/// The message at a place, and the place of the next; none at the end.
fn message(bytes: &Bytes, place: &mut u64) -> std::result::Result<Option<Message>, String> {
    if *place == bytes.len() {
        return Ok(None);
    }
    let mut prefix = [0; PREFIX as usize];
    bytes.read(*place, &mut prefix).map_err(|error| error.to_string())?;
    let [mark, length] = *prefix.as_chunks::<4>().0 else {
        return Err("a message has no beginning".to_string());
    };
    if mark != CONTINUED {
        return Err(format!("byte {place}: there is no message, or one of a version before 0.15"));
    }
    let length = u32::from_le_bytes(length);
    if length == 0 {
        return Ok(None);
    }
    if length > MOST_DESCRIPTION_BYTES {
        return Err(format!("byte {place}: the description of a message claims {length} bytes"));
    }
    let description = bytes.read_vec(*place + PREFIX, length.into()).map_err(|error| error.to_string())?;
    let parsed =
        arrow_ipc::root_as_message(&description).map_err(|error| format!("byte {place}: {error}"))?;
    let body = u64::try_from(parsed.bodyLength()).ok().filter(|&body| body <= MOST_BLOCK_BYTES);
    let Some(body) = body else {
        return Err(format!(
            "byte {place}: a batch has {} bytes, more than the limit of {MOST_BLOCK_BYTES}: write smaller batches",
            parsed.bodyLength()
        ));
    };
    let described = PREFIX + u64::from(length);
    let end = *place + described + body;
    if end > bytes.len() {
        return Err(format!(
            "byte {place}: a batch ends at {end}, after the file, which has {}: it is cut off",
            bytes.len()
        ));
    }
    let block = Block::new(*place as i64, described as i32, body as i64);
    *place = end;
    Ok(Some(Message { block, description }))
}

impl Blocks for Arrow {
    fn path(&self) -> &Path {
        self.bytes.path()
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn select(&mut self, columns: &[usize]) -> Result<(Vec<usize>, u64)> {
        let decoder = std::mem::replace(
            &mut self.decoder,
            FileDecoder::new(Arc::clone(&self.schema), MetadataVersion::V5),
        );
        self.decoder = decoder.with_projection(columns.to_vec());
        let (mut ends, mut end) = (Vec::new(), 0usize);
        for batch in &self.batches {
            end = end
                .checked_add(batch.rows)
                .ok_or_else(|| error(self.bytes.path(), None, "it claims too many rows"))?;
            ends.push(end);
        }
        let most = self.batches.iter().map(|batch| batch.block.bodyLength() as u64).max().unwrap_or(0);
        Ok((ends, most))
    }

    fn decode(&self, block: usize) -> std::result::Result<RecordBatch, String> {
        let block = &self.batches[block].block;
        let buffer = self.read(block)?;
        let batch = self.decoder.read_record_batch(block, &buffer).map_err(|error| error.to_string())?;
        batch.ok_or_else(|| "it is no batch".to_string())
    }

    fn directory_bytes(&self) -> u64 {
        self.dictionary_bytes + (self.batches.capacity() * size_of::<Batch>()) as u64
    }
}

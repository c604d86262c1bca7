//! Where the records of files lie, sparsely: the first record of every block of some KiB. A record is found by reading
//! its block, so an index of 16 bytes a block is enough whatever the records' lengths: a 512th of the files at most.
//!
//! A few blocks are kept as they were read. So records that are read in order cost one read of the file a block, and a
//! sample that is read field by field costs one.

use super::format::{Frame, Framing, Place};
use crate::sources::bytes::Bytes;
use crate::{Error, RamBudget, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

/// A block ends with the record that brings it to as many bytes.
const BLOCK: u64 = 8 << 10;
/// As many bytes of blocks are kept, unless blocks are so long that these would be too few of them.
const KEPT_BYTES: u64 = 512 << 10;
const FEWEST_SLOTS: u64 = 4;
const MOST_SLOTS: u64 = 64;
/// Of as many files each stays open. Of more, a file is opened for each block, since a process may only have so many.
const MOST_OPEN_FILES: usize = 256;

const REMEDY: &str = "use fewer or smaller files, or raise the budget";

/// What a pass over files learns of where their records lie.
#[derive(Debug, Default)]
pub(crate) struct Index {
    files: Vec<IndexedFile>,
    blocks: Vec<Block>,
    records: usize,
    longest_block: u64,
    most_records: usize,
}

#[derive(Debug)]
struct IndexedFile {
    path: PathBuf,
    /// Where its last record ends.
    end: u64,
    first_block: usize,
    opened: Option<Bytes>,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    first_record: usize,
    offset: u64,
}

impl Index {
    /// Goes on to the next file.
    pub(crate) fn begin_file(&mut self, path: &Path) {
        let first_block = self.blocks.len();
        self.files.push(IndexedFile { path: path.to_path_buf(), end: 0, first_block, opened: None });
    }

    /// Adds a record of the last file, of these bytes.
    pub(crate) fn add(&mut self, offset: u64, end: u64, budget: RamBudget) -> Result<()> {
        let Some(file) = self.files.last_mut() else { return Ok(()) };
        file.end = end;
        let is_new = match self.blocks.get(file.first_block..).and_then(<[Block]>::last) {
            None => true,
            Some(last) => offset - last.offset >= BLOCK,
        };
        if is_new {
            budget.admit(&file.path.display().to_string(), self.resident_bytes(), REMEDY)?;
            self.blocks.push(Block { first_record: self.records, offset });
        }
        self.records += 1;
        if let Some(last) = self.blocks.last() {
            self.longest_block = self.longest_block.max(end - last.offset);
            self.most_records = self.most_records.max(self.records - last.first_record);
        }
        Ok(())
    }

    pub(crate) fn records(&self) -> usize {
        self.records
    }

    fn resident_bytes(&self) -> u64 {
        (self.blocks.capacity() * size_of::<Block>() + self.files.capacity() * size_of::<IndexedFile>())
            as u64
    }
}

/// The records of files, found by number.
#[derive(Debug)]
pub(crate) struct Indexed {
    index: Index,
    framing: Framing,
    slots: Vec<RwLock<Slot>>,
    last_block: AtomicUsize,
}

/// A block as it was read.
#[derive(Debug)]
struct Slot {
    /// Its number; [`NONE`] if nothing was read yet.
    block: usize,
    bytes: Vec<u8>,
    /// Where each of its records begins and ends, as far as they were looked for.
    records: Vec<[u32; 2]>,
    /// Where the next one is looked for.
    next: usize,
}

const NONE: usize = usize::MAX;

impl Indexed {
    /// Makes room for the blocks that are kept: reading takes no more memory than this.
    pub(crate) fn new(mut index: Index, framing: Framing, budget: RamBudget) -> Result<Indexed> {
        index.blocks.shrink_to_fit();
        index.files.shrink_to_fit();
        if index.files.len() <= MOST_OPEN_FILES {
            for file in &mut index.files {
                file.opened = Some(Bytes::open(&file.path)?);
            }
        }
        let slots = (KEPT_BYTES / index.longest_block.max(1)).clamp(FEWEST_SLOTS, MOST_SLOTS);
        let slots = slots.min(index.blocks.len() as u64);
        let slot_bytes = index.longest_block + (index.most_records * size_of::<[u32; 2]>()) as u64;
        let bytes = index.resident_bytes() + slots * slot_bytes;
        let holder = index.files.first().map_or(String::new(), |file| file.path.display().to_string());
        budget.admit(&holder, bytes, REMEDY)?;
        let slot = |_| {
            let bytes = Vec::with_capacity(index.longest_block as usize);
            RwLock::new(Slot { block: NONE, bytes, records: Vec::with_capacity(index.most_records), next: 0 })
        };
        let slots = (0..slots).map(slot).collect();
        Ok(Indexed { index, framing, slots, last_block: AtomicUsize::new(0) })
    }

    /// Bytes of RAM of the index and the blocks that are kept.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let slot = self.index.longest_block + (self.index.most_records * size_of::<[u32; 2]>()) as u64;
        let slots = self.slots.len() as u64 * (slot + size_of::<RwLock<Slot>>() as u64);
        self.index.resident_bytes() + slots
    }

    /// Shows the bytes of a record and their place. Threads that look at records of one block do so at the same time.
    pub(crate) fn with<T>(
        &self,
        record: usize,
        look: impl FnOnce(Place<'_>, &[u8]) -> Result<T>,
    ) -> Result<T> {
        let block = self.find_block(record);
        let within = record - self.index.blocks[block].first_record;
        let slot = &self.slots[block % self.slots.len()];
        let held = slot.read().unwrap_or_else(PoisonError::into_inner);
        if held.block == block && within < held.records.len() {
            return self.show(&held, record, look);
        }
        drop(held);
        let mut held = slot.write().unwrap_or_else(PoisonError::into_inner);
        let found = if held.block == block {
            // A second record of the block: others are likely to follow.
            self.find_records(&mut held, usize::MAX)
        } else {
            self.load(block, &mut held).and_then(|()| self.find_records(&mut held, within + 1))
        };
        found.map_err(|error| error.of_sample(record))?;
        self.show(&held, record, look)
    }

    /// The block that a record is in: mostly the one that was found last, or the next.
    fn find_block(&self, record: usize) -> usize {
        let blocks = &self.index.blocks;
        let last = self.last_block.load(Ordering::Relaxed);
        let holds = |block: &usize| {
            blocks.get(*block).is_some_and(|block| block.first_record <= record)
                && blocks.get(block + 1).is_none_or(|next| record < next.first_record)
        };
        if holds(&last) {
            return last;
        }
        let found = Some(last + 1).filter(holds);
        let found = found.unwrap_or_else(|| blocks.partition_point(|block| block.first_record <= record) - 1);
        self.last_block.store(found, Ordering::Relaxed);
        found
    }

    fn show<T>(
        &self,
        held: &Slot,
        record: usize,
        look: impl FnOnce(Place<'_>, &[u8]) -> Result<T>,
    ) -> Result<T> {
        let block = self.index.blocks[held.block];
        let [start, end] = held.records[record - block.first_record];
        let path = &self.file_of(held.block).path;
        let place = Place { path, sample: record, offset: block.offset + u64::from(start), line: None };
        look(place, &held.bytes[start as usize..end as usize])
    }

    /// Reads a block, in which no record is known yet.
    fn load(&self, number: usize, slot: &mut Slot) -> Result<()> {
        slot.block = NONE;
        slot.records.clear();
        slot.next = 0;
        let (block, file) = (self.index.blocks[number], self.file_of(number));
        let end = match self.index.blocks.get(number + 1) {
            Some(next) if std::ptr::eq(self.file_of(number + 1), file) => next.offset,
            _ => file.end,
        };
        slot.bytes.resize((end - block.offset) as usize, 0);
        match &file.opened {
            Some(bytes) => bytes.read(block.offset, &mut slot.bytes)?,
            None => Bytes::open(&file.path)?.read(block.offset, &mut slot.bytes)?,
        }
        slot.block = number;
        Ok(())
    }

    /// Finds the first records of the block that a slot holds, so many or all.
    fn find_records(&self, slot: &mut Slot, most: usize) -> Result<()> {
        let block = self.index.blocks[slot.block];
        let next = self.index.blocks.get(slot.block + 1).map_or(self.index.records, |next| next.first_record);
        let expected = most.min(next - block.first_record);
        while slot.records.len() < expected {
            let at = slot.next;
            match (self.framing)(&slot.bytes[at..], true) {
                Ok(Frame::Record { end, next, .. }) if at + next <= slot.bytes.len() => {
                    slot.records.push([at as u32, (at + end) as u32]);
                    slot.next += next;
                }
                Ok(Frame::Filling(bytes)) => slot.next += bytes,
                _ => return Err(changed(self.file_of(slot.block), block.offset + at as u64)),
            }
        }
        Ok(())
    }

    fn file_of(&self, block: usize) -> &IndexedFile {
        let files = &self.index.files;
        // The last of the files that begin at or before the block; those without records begin where the next one does.
        &files[files.partition_point(|file| file.first_block <= block) - 1]
    }
}

fn changed(file: &IndexedFile, offset: u64) -> Error {
    let reason =
        "its records are not where they were: the file was changed after it was opened; open it again";
    crate::ErrorKind::File {
        path: file.path.clone(),
        sample: None,
        offset: Some(offset),
        reason: reason.to_string(),
    }
    .into()
}

//! Records that are made once and kept, in memory or in a file, for the epochs after the first.
//!
//! A cache is filled by the first epoch that goes through it from its beginning to its end. If it would take more than its
//! limit it gives up, says so in the report, and records are made anew each epoch. Filled or not, all epochs have the records
//! of the first one, in its order: what is to be different each time goes after the cache.

use super::{Cursor, Held, Node, Pass, StageMeter, Stream};
use crate::{ErrorKind, Field, Record, Result};
use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Where records are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    Memory,
    /// A file of this cache's own, which is written over and removed with it.
    File(PathBuf),
}

/// Records that are kept.
pub(crate) struct Cached {
    upstream: Arc<dyn Node>,
    storage: Storage,
    limit: u64,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
enum State {
    /// Nobody has been through.
    #[default]
    Empty,
    /// Somebody fills it.
    Filling,
    Full(Arc<Kept>),
    GivenUp,
}

/// All records, one after the other: the extents of each field, then its bytes.
struct Kept {
    /// Where each record begins, and where the last one ends.
    offsets: Vec<u64>,
    place: Place,
}

enum Place {
    Memory(Vec<u8>),
    File(Mutex<File>, PathBuf),
}

impl Cached {
    pub(crate) fn new(upstream: Arc<dyn Node>, storage: Storage, limit: u64) -> Cached {
        Cached { upstream, storage, limit, state: Arc::default() }
    }
}

impl Node for Cached {
    fn fields(&self) -> &Arc<[Field]> {
        self.upstream.fields()
    }

    fn count(&self) -> Option<u64> {
        match &*lock(&self.state) {
            State::Full(kept) => Some(kept.offsets.len() as u64 - 1),
            _ => self.upstream.count(),
        }
    }

    fn open(&self, pass: &Pass) -> Result<Box<dyn Stream>> {
        let mut state = lock(&self.state);
        let place = match &self.storage {
            Storage::Memory => "memory".to_string(),
            Storage::File(path) => path.display().to_string(),
        };
        let (filling, what) = match &*state {
            State::Full(kept) => {
                let meter = pass.meter.stage(format!("read from the cache in {place}"));
                let (kept, bytes) = (Arc::clone(kept), vec![]);
                return Ok(Box::new(Reading { kept, next: 0, bytes, meter }));
            }
            State::Empty => {
                let draft = Draft::new(&self.storage, &pass.account)?;
                *state = State::Filling;
                (Some(draft), format!("cache in {place}"))
            }
            State::Filling => (None, format!("cache in {place}, which another reader fills")),
            State::GivenUp => (None, format!("no cache: more than {} bytes", self.limit)),
        };
        drop(state);
        let (node, pass) = (Arc::clone(&self.upstream), pass.of_epoch(0));
        let (upstream, meter) = (node.open(&pass)?, pass.meter.stage(what));
        let (state, limit) = (Arc::clone(&self.state), self.limit);
        Ok(Box::new(Filling { node, pass, upstream, state, filling, limit, made: 0, meter }))
    }

    fn upstream(&self) -> &[Arc<dyn Node>] {
        std::slice::from_ref(&self.upstream)
    }

    fn resident_bytes(&self) -> u64 {
        let kept = match &*lock(&self.state) {
            State::Full(kept) => kept.resident_bytes(),
            _ => 0,
        };
        self.upstream.resident_bytes() + kept
    }
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A cache that is being filled.
struct Draft {
    offsets: Vec<u64>,
    end: u64,
    place: DraftPlace,
    held: Held,
}

enum DraftPlace {
    Memory(Vec<u8>),
    File(BufWriter<File>, PathBuf),
}

impl Draft {
    fn new(storage: &Storage, account: &Arc<super::Account>) -> Result<Draft> {
        let place = match storage {
            Storage::Memory => DraftPlace::Memory(vec![]),
            Storage::File(path) => {
                let open = File::options().read(true).write(true).create(true).truncate(true).open(path);
                DraftPlace::File(BufWriter::new(open.map_err(|error| failed(path, error))?), path.clone())
            }
        };
        Ok(Draft { offsets: vec![0], end: 0, place, held: Held::nothing(account) })
    }

    /// Adds a record; false if the limit, or the budget, has no room for it.
    fn add(&mut self, record: &Record, limit: u64) -> Result<bool> {
        let mut header = vec![];
        for position in 0..record.fields().len() {
            header.extend(record.shape(position).iter().flat_map(|&extent| (extent as u64).to_le_bytes()));
        }
        self.end += header.len() as u64 + record.value_bytes();
        if self.end > limit {
            return Ok(false);
        }
        self.offsets.push(self.end);
        let values = (0..record.fields().len()).map(|position| record.bytes(position));
        match &mut self.place {
            DraftPlace::Memory(bytes) => {
                bytes.extend_from_slice(&header);
                values.for_each(|values| bytes.extend_from_slice(values));
            }
            DraftPlace::File(file, path) => {
                let mut written = file.write_all(&header);
                for values in values {
                    written = written.and_then(|()| file.write_all(values));
                }
                written.map_err(|error| failed(path, error))?;
            }
        }
        let holder = || "a cache".to_string();
        Ok(self.held.set(self.held_bytes(), &holder, "").is_ok())
    }

    fn held_bytes(&self) -> u64 {
        let values = match &self.place {
            DraftPlace::Memory(bytes) => bytes.capacity(),
            DraftPlace::File(..) => 0,
        };
        (values + self.offsets.capacity() * size_of::<u64>()) as u64
    }

    fn finish(self) -> Result<Kept> {
        let place = match self.place {
            DraftPlace::Memory(bytes) => Place::Memory(bytes),
            DraftPlace::File(file, path) => {
                let file = file.into_inner().map_err(|error| failed(&path, error.into_error()))?;
                Place::File(Mutex::new(file), path)
            }
        };
        Ok(Kept { offsets: self.offsets, place })
    }
}

fn failed(path: &Path, error: std::io::Error) -> crate::Error {
    ErrorKind::Io { what: path.display().to_string(), error }.into()
}

impl Kept {
    fn resident_bytes(&self) -> u64 {
        let values = match &self.place {
            Place::Memory(bytes) => bytes.capacity(),
            Place::File(..) => 0,
        };
        (values + self.offsets.capacity() * size_of::<u64>()) as u64
    }

    fn read(&self, number: usize, scratch: &mut Vec<u8>, out: &mut Record) -> Result<()> {
        let (from, to) = (self.offsets[number], self.offsets[number + 1]);
        let bytes = match &self.place {
            Place::Memory(bytes) => &bytes[from as usize..to as usize],
            Place::File(file, path) => {
                scratch.resize((to - from) as usize, 0);
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                let read = file.seek(SeekFrom::Start(from)).and_then(|_| file.read_exact(scratch));
                read.map_err(|error| failed(path, error))?;
                scratch
            }
        };
        let fields = Arc::clone(out.fields());
        let extents: usize = fields.iter().map(|field| field.shape().len()).sum();
        let (header, mut values) = bytes.split_at(extents * size_of::<u64>());
        let mut extents = header.as_chunks().0.iter().map(|&extent| u64::from_le_bytes(extent) as usize);
        for (position, field) in fields.iter().enumerate() {
            let shape: Vec<usize> = extents.by_ref().take(field.shape().len()).collect();
            let room = out.reshape(position, &shape)?;
            let (own, rest) = values.split_at(room.len());
            room.copy_from_slice(own);
            values = rest;
        }
        Ok(())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Place::File(_, path) = &self.place {
            // What cannot be removed is written over by the next one.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// An epoch that goes through upstream, and may fill the cache.
struct Filling {
    node: Arc<dyn Node>,
    pass: Pass,
    upstream: Box<dyn Stream>,
    state: Arc<Mutex<State>>,
    filling: Option<Draft>,
    limit: u64,
    made: u64,
    meter: Arc<StageMeter>,
}

impl Filling {
    /// Ends filling without a cache.
    fn leave(&mut self, state: State) {
        if self.filling.take().is_some() {
            *lock(&self.state) = state;
        }
    }
}

impl Stream for Filling {
    fn next(&mut self, out: &mut Record) -> Result<bool> {
        let more = self.upstream.next(out)?;
        self.made += u64::from(more);
        let Some(draft) = &mut self.filling else { return Ok(more) };
        if !more {
            if let Some(draft) = self.filling.take() {
                *lock(&self.state) = State::Full(Arc::new(draft.finish()?));
            }
        } else if self.meter.work(|| draft.add(out, self.limit))? {
            self.meter.holds(draft.held_bytes());
        } else {
            self.leave(State::GivenUp);
        }
        Ok(more)
    }

    fn save(&self, position: &mut Vec<u64>) {
        let mut before = vec![];
        self.upstream.save(&mut before);
        position.extend([self.made, before.len() as u64]);
        position.extend(before);
    }

    fn seek(&mut self, position: &mut Cursor<'_>) -> Result<()> {
        let (made, length) = (position.take()?, position.take()?);
        let before = position.take_many(length)?;
        if length > 0 {
            // What was not seen from its beginning is not all of it.
            self.leave(State::Empty);
            self.made = made;
            return self.upstream.seek(&mut Cursor::new(before));
        }
        // Saved by an epoch that read from the cache, which is gone: it is filled again.
        if made < self.made {
            self.leave(State::Empty);
            (self.upstream, self.made) = (self.node.open(&self.pass)?, 0);
        }
        let mut scratch = Record::new(self.node.fields());
        while self.made < made && self.next(&mut scratch)? {}
        Ok(())
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.leave(State::Empty);
    }
}

/// An epoch that is read from the cache.
struct Reading {
    kept: Arc<Kept>,
    next: usize,
    bytes: Vec<u8>,
    meter: Arc<StageMeter>,
}

impl Stream for Reading {
    fn next(&mut self, out: &mut Record) -> Result<bool> {
        if self.next + 1 >= self.kept.offsets.len() {
            return Ok(false);
        }
        self.next += 1;
        self.meter.work(|| self.kept.read(self.next - 1, &mut self.bytes, out))?;
        Ok(true)
    }

    fn save(&self, position: &mut Vec<u64>) {
        // It needs nothing of upstream.
        position.extend([self.next as u64, 0]);
    }

    fn seek(&mut self, position: &mut Cursor<'_>) -> Result<()> {
        let (next, length) = (position.take()?, position.take()?);
        position.take_many(length)?;
        let records = self.kept.offsets.len() - 1;
        match usize::try_from(next).ok().filter(|&next| next <= records) {
            Some(next) => self.next = next,
            None => {
                let reason = format!("record {next} of the {records} in a cache is to come next");
                return Err(ErrorKind::Position { reason }.into());
            }
        }
        Ok(())
    }
}

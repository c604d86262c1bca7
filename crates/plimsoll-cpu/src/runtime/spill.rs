//! Copies between the arena and a file, made by a thread of their own while kernels run.

use crate::{Error, ErrorKind, Result};
use plimsoll_memory::SpillFile;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Copies that may be waiting before the next has to.
const QUEUE: usize = 64;

/// A file that copies go to and come from, in the order in which they begin.
pub(crate) struct Spill {
    shared: Arc<Shared>,
    requests: Option<SyncSender<Request>>,
    worker: Option<JoinHandle<()>>,
    begun: u64,
}

struct Shared {
    file: SpillFile,
    ended: Mutex<Ended>,
    changed: Condvar,
}

/// How many copies have ended, and why one failed.
struct Ended {
    count: u64,
    failure: Option<plimsoll_memory::Error>,
}

/// A copy to be made.
struct Request {
    to_file: bool,
    offset: u64,
    /// The address of so many bytes in the arena.
    address: usize,
    bytes: usize,
}

/// A copy that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

impl Ticket {
    /// One that nothing has to wait for.
    pub(crate) const ENDED: Ticket = Ticket(0);
}

impl Spill {
    /// A file of so many bytes in a folder, and the thread that copies.
    pub(crate) fn new(folder: &Path, bytes: u64) -> Result<Spill> {
        let file = SpillFile::reserve(folder, bytes)?;
        let ended = Mutex::new(Ended { count: 0, failure: None });
        let shared = Arc::new(Shared { file, ended, changed: Condvar::new() });
        let (requests, asked) = sync_channel(QUEUE);
        let of_worker = Arc::clone(&shared);
        let worker = std::thread::Builder::new()
            .name("plimsoll-spill".into())
            .spawn(move || of_worker.serve(&asked))
            .map_err(|error| Error::new(ErrorKind::Unavailable, format!("no thread to spill on: {error}")))?;
        Ok(Spill { shared, requests: Some(requests), worker: Some(worker), begun: 0 })
    }

    /// The file itself. No copy may be under way.
    pub(crate) fn file(&self) -> &SpillFile {
        &self.shared.file
    }

    /// Begins a copy of so many bytes between an address and the file.
    ///
    /// # Safety
    /// So many bytes must be there until the copy has been waited for; until then nothing may write them, and if they are
    /// copied to, nothing read them.
    pub(crate) unsafe fn begin(
        &mut self,
        to_file: bool,
        offset: u64,
        address: *mut u8,
        bytes: usize,
    ) -> Ticket {
        let request = Request { to_file, offset, address: address as usize, bytes };
        // The thread ends only when this end of the channel does.
        let sent = self.requests.as_ref().is_some_and(|requests| requests.send(request).is_ok());
        debug_assert!(sent, "the thread that copies is there");
        self.begun += 1;
        Ticket(self.begun)
    }

    /// Waits until a copy, and all that began before it, have ended; if one failed, all that have begun, since whoever
    /// waited will wait for no other.
    pub(crate) fn wait(&self, ticket: Ticket) -> Result<()> {
        let mut ended = self.shared.lock();
        while ended.count < if ended.failure.is_some() { self.begun } else { ticket.0 } {
            ended = self.shared.changed.wait(ended).unwrap_or_else(PoisonError::into_inner);
        }
        ended.failure.clone().map_or(Ok(()), |failure| Err(failure.into()))
    }

    /// Waits for everything that has begun.
    pub(crate) fn finish(&self) -> Result<()> {
        self.wait(Ticket(self.begun))
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(worker) = self.worker.take() {
            // What it was copying to may be freed after this.
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn serve(&self, asked: &Receiver<Request>) {
        for Request { to_file, offset, address, bytes } in asked {
            let address = address as *mut u8;
            let copied = match to_file {
                // SAFETY: whoever began the copy vouches for so many bytes at the address until it has ended.
                true => self.file.write(offset, unsafe { std::slice::from_raw_parts(address, bytes) }),
                // SAFETY: likewise, and that nothing else looks at them.
                false => self.file.read(offset, unsafe { std::slice::from_raw_parts_mut(address, bytes) }),
            };
            let mut ended = self.lock();
            ended.count += 1;
            if let Err(error) = copied {
                ended.failure.get_or_insert(error);
            }
            drop(ended);
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ended> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_come_back_as_they_left_and_in_their_order() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut spill = Spill::new(folder.path(), 1 << 16).expect("a file");
        let mut values: Vec<Vec<u8>> = (0..200).map(|number| vec![number as u8; 300]).collect();
        for (number, value) in values.iter_mut().enumerate() {
            // SAFETY: the values outlive the copies, which are waited for below, and are not touched before.
            unsafe { spill.begin(true, 300 * number as u64, value.as_mut_ptr(), 300) };
        }
        let mut back = vec![vec![0; 300]; 200];
        let mut last = Ticket::ENDED;
        for (number, value) in back.iter_mut().enumerate() {
            // SAFETY: likewise.
            last = unsafe { spill.begin(false, 300 * number as u64, value.as_mut_ptr(), 300) };
        }
        spill.wait(last).expect("all of them");
        assert_eq!(back, values);
    }

    #[test]
    fn a_copy_that_fails_is_known_to_who_waits_for_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut spill = Spill::new(folder.path(), 100).expect("a file");
        let mut value = [0; 10];
        // SAFETY: the value outlives the copy, which is waited for.
        let ticket = unsafe { spill.begin(true, 95, value.as_mut_ptr(), 10) };
        let error = spill.wait(ticket).expect_err("it lies beyond the end").to_string();
        assert!(error.contains("outside"), "{error}");
    }
}

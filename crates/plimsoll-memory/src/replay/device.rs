//! The device that a recording is replayed on.
//!
//! Among free blocks of one size allocators choose by address, so a replay only takes the same decisions if the
//! device gives ranges where it gave them in the recording.

use crate::error::{Error, ErrorKind, Result};
use crate::source::{CountedDevice, Source};
use crate::trace::{Action, Trace};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// A device that is only counted and gives ranges where they were recorded, as long as that is possible.
#[derive(Debug, Clone)]
pub(super) struct RecordedDevice {
    device: CountedDevice,
    /// Where ranges of each size were, in order.
    recorded: HashMap<u64, VecDeque<u64>>,
    /// What is given out of those: where each range begins and ends.
    given: BTreeMap<u64, u64>,
    /// Where the other ranges begin, above all that was recorded.
    beyond: u64,
}

impl RecordedDevice {
    /// A device of `limit` bytes that remembers nothing.
    pub(super) fn new(limit: Option<u64>, page: u64) -> RecordedDevice {
        let device = CountedDevice::new(limit.unwrap_or(u64::MAX), page);
        RecordedDevice { device, recorded: HashMap::new(), given: BTreeMap::new(), beyond: 0 }
    }

    /// The same device, which remembers where ranges were in a recording.
    pub(super) fn remembering(mut self, trace: &Trace) -> RecordedDevice {
        let page = self.page_bytes();
        let later = trace.events.iter().filter_map(|event| match event.action {
            Action::Reserve { address, bytes } => Some((address, bytes)),
            _ => None,
        });
        for (address, bytes) in trace.initial_reserved.iter().copied().chain(later) {
            let end = address.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(page));
            if let Some(end) = end.filter(|_| address.is_multiple_of(page)) {
                self.beyond = self.beyond.max(end);
                self.recorded.entry(bytes).or_default().push_back(address);
            }
        }
        self
    }

    fn is_given(&self, address: u64, bytes: u64) -> bool {
        self.given.range(..address + bytes).next_back().is_some_and(|(_, &end)| end > address)
    }
}

impl Source for RecordedDevice {
    fn page_bytes(&self) -> u64 {
        self.device.page_bytes()
    }

    fn reserve(&mut self, bytes: u64) -> Result<u64> {
        while let Some(address) = self.recorded.get_mut(&bytes).and_then(VecDeque::pop_front) {
            if !self.is_given(address, bytes) {
                self.given.insert(address, address + bytes);
                return Ok(address);
            }
        }
        let address = self.device.reserve(bytes)?.checked_add(self.beyond);
        address
            .filter(|address| address.checked_add(bytes).is_some())
            .ok_or_else(|| Error::new(ErrorKind::OutOfMemory, "the device has no addresses left"))
    }

    fn map(&mut self, address: u64, bytes: u64) -> Result<()> {
        self.device.map(address, bytes)
    }

    fn unmap(&mut self, address: u64, bytes: u64) {
        self.device.unmap(address, bytes);
    }

    fn release(&mut self, address: u64, bytes: u64) {
        self.given.remove(&address);
        self.device.release(address, bytes);
    }
}

//! Which addresses are ours, and which of them have memory behind them.
//!
//! The driver trusts the addresses it is given: a copy to one of the host's, or a mapping over another, would be
//! somebody else's memory. Every address is looked up here before the driver sees it, which is what makes the
//! rest of the crate safe to call.

use crate::error::{Error, ErrorKind, Result};
use plimsoll_memory::format_bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Ranges of addresses that are reserved, and the pages of them that are mapped.
#[derive(Debug, Default)]
pub(crate) struct AddressBook {
    by_address: BTreeMap<u64, ReservedRange>,
}

#[derive(Debug)]
struct ReservedRange {
    bytes: u64,
    page: u64,
    mapped: BTreeSet<u64>,
}

impl AddressBook {
    /// Enters a range that was reserved and is mapped in pages of `page` bytes.
    pub(crate) fn enter(&mut self, address: u64, bytes: u64, page: u64) {
        self.by_address.insert(address, ReservedRange { bytes, page, mapped: BTreeSet::new() });
    }

    /// Takes out a range with all of its pages.
    pub(crate) fn remove(&mut self, address: u64) {
        self.by_address.remove(&address);
    }

    /// The bytes of the range that starts at `address`.
    ///
    /// # Errors
    /// If none does.
    pub(crate) fn reserved(&self, address: u64) -> Result<u64> {
        match self.by_address.get(&address) {
            Some(range) => Ok(range.bytes),
            None => Err(bad(format!("no range was reserved at {address:#x}"))),
        }
    }

    /// The pages of a part of a range, none of which is mapped.
    ///
    /// # Errors
    /// If the part is not whole pages of one range, or some are mapped.
    pub(crate) fn unmapped_pages(&self, address: u64, bytes: u64) -> Result<Vec<u64>> {
        let (start, range) = self.find(address, bytes)?;
        if !(address - start).is_multiple_of(range.page) || !bytes.is_multiple_of(range.page) {
            let message = format!(
                "{bytes} bytes at {address:#x} are not whole pages of {} ({} bytes)",
                format_bytes(range.page),
                range.page
            );
            return Err(bad(message));
        }
        if let Some(page) = range.mapped.range(address..address + bytes).next() {
            return Err(bad(format!("the page at {page:#x} is mapped already")));
        }
        Ok((0..bytes / range.page).map(|index| address + index * range.page).collect())
    }

    /// The pages of a part of a range that are mapped.
    pub(crate) fn mapped_pages(&self, address: u64, bytes: u64) -> Vec<u64> {
        match self.find(address, bytes) {
            Ok((_, range)) => range.mapped.range(address..address + bytes).copied().collect(),
            Err(_) => Vec::new(),
        }
    }

    /// Notes whether a page of a range is mapped.
    pub(crate) fn set_mapped(&mut self, page: u64, mapped: bool) {
        let range = self.by_address.range_mut(..=page).next_back();
        match range {
            Some((_, range)) if mapped => _ = range.mapped.insert(page),
            Some((_, range)) => _ = range.mapped.remove(&page),
            None => {}
        }
    }

    /// Whether there is memory behind all of a part of a range.
    ///
    /// # Errors
    /// If there is not.
    pub(crate) fn check_mapped(&self, address: u64, bytes: u64) -> Result<()> {
        let (start, range) = self.find(address, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        let page_of = |address: u64| start + (address - start) / range.page * range.page;
        let (first, last) = (page_of(address), page_of(address + (bytes - 1)));
        let pages = (last - first) / range.page + 1;
        if range.mapped.range(first..=last).count() as u64 == pages {
            return Ok(());
        }
        Err(bad(format!("there is no memory behind all of the {bytes} bytes at {address:#x}")))
    }

    /// Bytes that are mapped.
    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.by_address.values().map(|range| range.mapped.len() as u64 * range.page).sum()
    }

    /// The range that holds all of a part, and where it starts.
    fn find(&self, address: u64, bytes: u64) -> Result<(u64, &ReservedRange)> {
        let range = self.by_address.range(..=address).next_back();
        match (range, address.checked_add(bytes)) {
            (Some((&start, range)), Some(end)) if end - start <= range.bytes => Ok((start, range)),
            _ => Err(bad(format!("the {bytes} bytes at {address:#x} are not part of a reserved range"))),
        }
    }
}

fn bad(message: String) -> Error {
    Error::new(ErrorKind::BadRange, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 1 << 21;
    const START: u64 = 100 * PAGE;

    fn book() -> AddressBook {
        let mut book = AddressBook::default();
        book.enter(START, 10 * PAGE, PAGE);
        book.enter(START + 20 * PAGE, PAGE, PAGE);
        book
    }

    #[test]
    fn only_whole_unmapped_pages_of_one_range_can_be_mapped() {
        let mut book = book();
        assert_eq!(book.unmapped_pages(START + PAGE, 2 * PAGE), Ok(vec![START + PAGE, START + 2 * PAGE]));
        assert_eq!(book.unmapped_pages(START, 10 * PAGE).map(|pages| pages.len()), Ok(10));
        book.set_mapped(START + 2 * PAGE, true);
        for (address, bytes) in [
            (START, 11 * PAGE),
            (START + 1, PAGE),
            (START, PAGE + 1),
            (START + PAGE, 2 * PAGE),
            (START - PAGE, PAGE),
            (START + 12 * PAGE, PAGE),
            (START, u64::MAX - START),
            (START, u64::MAX),
            (0, PAGE),
        ] {
            let error = book.unmapped_pages(address, bytes).expect_err("not to be mapped");
            assert_eq!(error.kind(), ErrorKind::BadRange);
        }
    }

    #[test]
    fn only_bytes_with_memory_behind_all_of_them_can_be_touched() {
        let mut book = book();
        for page in [1, 2, 4] {
            book.set_mapped(START + page * PAGE, true);
        }
        assert_eq!(book.mapped_bytes(), 3 * PAGE);
        assert_eq!(book.check_mapped(START + PAGE, 2 * PAGE), Ok(()));
        assert_eq!(book.check_mapped(START + 2 * PAGE - 1, 2), Ok(()));
        assert_eq!(book.check_mapped(START + 5 * PAGE - 1, 1), Ok(()));
        assert_eq!(book.check_mapped(START, 0), Ok(()));
        for (address, bytes) in [
            (START + PAGE - 1, 2),
            (START + 2 * PAGE, PAGE + 1),
            (START + PAGE, 4 * PAGE),
            (START, 1),
            (START + 20 * PAGE, 1),
            (5, 1),
            (u64::MAX, 1),
        ] {
            assert!(book.check_mapped(address, bytes).is_err(), "{bytes} at {address:#x}");
        }
    }

    #[test]
    fn what_is_unmapped_or_removed_is_gone() {
        let mut book = book();
        book.set_mapped(START, true);
        book.set_mapped(START + PAGE, true);
        assert_eq!(book.mapped_pages(START, 10 * PAGE), [START, START + PAGE]);
        book.set_mapped(START, false);
        assert_eq!(book.mapped_pages(START, 10 * PAGE), [START + PAGE]);
        assert!(book.check_mapped(START, 1).is_err());
        assert_eq!(book.reserved(START), Ok(10 * PAGE));
        book.remove(START);
        assert_eq!(book.mapped_bytes(), 0);
        assert!(book.reserved(START).is_err());
    }
}

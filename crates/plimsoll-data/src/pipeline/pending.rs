//! Records that a stage has taken in and not yet given out, each with the position that its upstream had before it. Such a
//! stage is saved as those positions and goes on by reading just these records again.

use super::{Cursor, Stream};
use crate::{ErrorKind, Record, Result};

/// A record that waits, and where upstream was before it.
pub(crate) struct Waiting {
    pub(crate) record: Record,
    pub(crate) before: Vec<u64>,
}

impl Waiting {
    pub(crate) fn new(record: Record) -> Waiting {
        Waiting { record, before: vec![] }
    }

    /// Takes in the next record of upstream; false if there is none.
    pub(crate) fn take_in(&mut self, upstream: &mut dyn Stream) -> Result<bool> {
        self.before.clear();
        upstream.save(&mut self.before);
        upstream.next(&mut self.record)
    }

    /// Takes in the record that upstream has at a position.
    pub(crate) fn take_again(&mut self, upstream: &mut dyn Stream, before: &[u64]) -> Result<()> {
        upstream.seek(&mut Cursor::new(before))?;
        match self.take_in(upstream)? {
            true => Ok(()),
            false => {
                let reason = "a record that waited in a buffer is not there any more".to_string();
                Err(ErrorKind::Position { reason }.into())
            }
        }
    }
}

/// Appends positions: how many, how long each is, and they.
pub(crate) fn save_positions<'a>(position: &mut Vec<u64>, waiting: impl ExactSizeIterator<Item = &'a [u64]>) {
    position.push(waiting.len() as u64);
    for before in waiting {
        position.push(before.len() as u64);
        position.extend_from_slice(before);
    }
}

/// Reads positions back.
pub(crate) fn read_positions<'a>(cursor: &mut Cursor<'a>) -> Result<Vec<&'a [u64]>> {
    let count = cursor.take()?;
    let mut positions = vec![];
    for _ in 0..count {
        let length = cursor.take()?;
        positions.push(cursor.take_many(length)?);
    }
    Ok(positions)
}

/// The places of positions about in the order of upstream: what cannot be read by number is then gone through once, forwards.
pub(crate) fn in_order_of_upstream(positions: &[&[u64]]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..positions.len()).collect();
    places.sort_by_key(|&place| positions[place]);
    places
}

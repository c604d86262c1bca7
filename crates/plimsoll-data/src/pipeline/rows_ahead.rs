//! Records of a source that takes work to read, such as parsing a line or decoding an image, for a stage that takes them in one
//! by one: several threads read the next ones meanwhile, some rows at a time, and they come in their order.
//!
//! Beside those threads goes a stream that reads nothing. It knows where the record is that came last, and reads what the
//! threads could not, so that an error is that of its record and the records around it are not lost.

use super::workers::{Ring, RingOptions};
use super::{Batched, Cursor, Depth, Meter, Node, Pass, Stream, Workers};
use crate::{Field, Record, Result};
use std::sync::Arc;

/// Rows are read by as many bytes at a time, and at most as many.
const ROWS_BYTES: usize = 32 << 10;
const MOST_ROWS: usize = 256;
/// For each thread so many such parts are ready or under way.
const DEPTH: usize = 2;

/// Records that are read ahead.
pub(crate) struct RowsAhead {
    /// After the record that came last.
    place: Box<dyn Stream>,
    ahead: Ring,
    /// Whether those that are read ahead are not those that follow `place`.
    is_elsewhere: bool,
    /// What came from the threads last, how many rows it has, and how many of them were given out.
    rows: Record,
    count: usize,
    given: usize,
    at_once: usize,
    /// So many records are read here.
    by_itself: usize,
}

/// Whether reading ahead is of use for the records of a node: how many are read at a time, and the bytes that takes.
pub(crate) fn rows_ahead(node: &dyn Node) -> Option<(usize, u64)> {
    let source = node.source()?;
    let bytes: usize = node.fields().iter().map(Field::bytes).sum();
    let is_work = source.reads_whole_records() || source.reading_bytes() > 0;
    let is_fixed = node.fields().iter().all(Field::is_fixed);
    let threads = Workers::Auto.threads();
    (is_work && is_fixed && threads > 1).then(|| {
        let rows = (ROWS_BYTES / bytes.max(1)).clamp(1, MOST_ROWS);
        // Those under way, and the one that is given out.
        (rows, (rows * bytes * (DEPTH * threads + 1)) as u64)
    })
}

impl RowsAhead {
    /// The records of a node from the first, so many at a time.
    pub(crate) fn open(node: &Arc<dyn Node>, rows: usize, pass: &Pass) -> Result<RowsAhead> {
        let parts = Batched::new(Arc::clone(node), rows, false, None)?;
        let unseen = Pass { meter: Arc::new(Meter::default()), ..pass.clone() };
        let threads = Workers::Auto.threads();
        let options = RingOptions {
            meter: pass.meter.stage(format!("read ahead by {rows}")),
            threads,
            depth: Depth::Records(DEPTH * threads),
            is_ordered: true,
            work: None,
        };
        let ahead = Ring::new(parts.open(pass)?, parts.fields(), parts.fields(), options, pass);
        Ok(RowsAhead {
            place: node.open(&unseen)?,
            ahead,
            is_elsewhere: false,
            rows: Record::new(parts.fields()),
            count: 0,
            given: 0,
            at_once: rows,
            by_itself: 0,
        })
    }

    /// Has the threads go on from here.
    fn catch_up(&mut self) -> Result<()> {
        // Of a ring and of batches, then that of the node.
        let mut position = vec![0, 0];
        self.place.save(&mut position);
        (self.is_elsewhere, self.count, self.given) = (false, 0, 0);
        self.ahead.seek(&mut Cursor::new(&position))
    }

    /// Has a row to be given out, or else records to be read here.
    fn have(&mut self) -> Result<bool> {
        if self.given < self.count {
            return Ok(true);
        }
        if self.is_elsewhere {
            self.catch_up()?;
        }
        (self.count, self.given) = (0, 0);
        match self.ahead.next(&mut self.rows) {
            Ok(more) => {
                self.count = if more { self.rows.shape(0)[0] } else { 0 };
                Ok(more)
            }
            // One of them is at fault.
            Err(_) => {
                self.by_itself = self.at_once;
                Ok(true)
            }
        }
    }
}

impl Stream for RowsAhead {
    fn next(&mut self, out: &mut Record) -> Result<bool> {
        if self.by_itself == 0 && !self.have()? {
            return Ok(false);
        }
        if self.by_itself > 0 {
            self.by_itself -= 1;
            return self.place.next(out);
        }
        for position in 0..out.fields().len() {
            // Fields are fixed: the record has room for just this row.
            let bytes = out.bytes(position).len();
            out.row_mut(position, 0, bytes)
                .copy_from_slice(&self.rows.bytes(position)[self.given * bytes..][..bytes]);
        }
        self.given += 1;
        self.place.skip(1);
        Ok(true)
    }

    fn save(&self, position: &mut Vec<u64>) {
        self.place.save(position);
    }

    /// Who goes to a place for one record, to read it again, gets it without threads.
    fn seek(&mut self, position: &mut Cursor<'_>) -> Result<()> {
        (self.is_elsewhere, self.by_itself, self.count, self.given) = (true, 1, 0, 0);
        self.place.seek(position)
    }
}

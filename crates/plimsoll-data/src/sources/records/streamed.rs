//! Files of records as streams: for those that are packed and cannot be read by number, and for everything that is read
//! once and in order. A stream holds one buffer, of its longest record.

use super::format::{Format, Out};
use super::input::Input;
use crate::source::RecordReader;
use crate::{Dataset, Field, Record, Result};
use std::path::PathBuf;
use std::sync::Arc;

/// The records of one or several files, in their order, packed (gzip or zstd) or not.
///
/// Made by [`Csv::stream`](super::super::Csv::stream), [`JsonLines::stream`](super::super::JsonLines::stream) and
/// [`TfRecord::stream`](super::super::TfRecord::stream). Records are checked as they are read.
#[derive(Clone, Debug)]
pub struct Streamed {
    paths: Arc<[PathBuf]>,
    format: Arc<dyn Format>,
}

impl Streamed {
    pub(crate) fn new(paths: Vec<PathBuf>, format: Arc<dyn Format>) -> Streamed {
        Streamed { paths: paths.into(), format }
    }

    /// What each record is made of.
    pub fn fields(&self) -> &Arc<[Field]> {
        self.format.fields()
    }

    /// The records as samples, in constant memory. How many there are is not known until they are counted
    /// ([`Dataset::counted`]).
    pub fn dataset(self) -> Result<Dataset> {
        let fields = Arc::clone(self.fields());
        Dataset::from_reader(&fields, None, move |_| self.reader())
    }

    /// Begins with the first record.
    ///
    /// ```
    /// use plimsoll_data::{Csv, Record, RecordReader};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("flowers.csv");
    /// std::fs::write(&path, "length,width,species\n5.1,3.5,0\n6.2,2.9,1\n").unwrap();
    /// let flowers = Csv::label("species").stream(&path)?;
    /// let mut record = Record::new(flowers.fields());
    /// let mut reader = flowers.reader()?;
    /// while reader.next(&mut record)? {
    ///     assert_eq!(record.get::<f32>("features")?.len(), 2);
    /// }
    /// # Ok::<(), plimsoll_data::Error>(())
    /// ```
    pub fn reader(&self) -> Result<Box<dyn RecordReader>> {
        Ok(Box::new(Reader { of: self.clone(), file: 0, input: None, samples: 0 }))
    }
}

struct Reader {
    of: Streamed,
    /// The file that is read next.
    file: usize,
    input: Option<Input>,
    samples: usize,
}

impl RecordReader for Reader {
    fn next(&mut self, out: &mut Record) -> Result<bool> {
        let format = &*self.of.format;
        loop {
            if let Some(input) = &mut self.input {
                if input.next(format.framing(), self.samples)? {
                    let parsed = format.parse(input.record(), &mut Out::Record(out));
                    parsed.map_err(|fault| format.error(input.place(self.samples), fault))?;
                    self.samples += 1;
                    return Ok(true);
                }
                self.input = None;
            }
            let Some(path) = self.of.paths.get(self.file) else { return Ok(false) };
            let mut input = Input::open(path, |start| format.recognises(start))?;
            format.begin(&mut input)?;
            (self.input, self.file) = (Some(input), self.file + 1);
        }
    }
}

//! Random samples that are made once and kept.
//!
//! Making random numbers takes longer than training a small model on them, which would be all that a benchmark
//! measures. So a small set is held in memory from the time it is first read; a forecast reads nothing and makes
//! nothing.

use crate::source::Promise;
use crate::{Dataset, Field, Result, Source, Synthetic};
use std::sync::OnceLock;

/// The most bytes that are kept; larger sets are made anew each time they are read.
const MOST_BYTES: u64 = 32 << 20;

/// The data set of these samples, which keeps them if they are few.
pub(super) fn dataset(made: Synthetic) -> Result<Dataset> {
    let bytes = made.fields().iter().map(|field| field.bytes() as u64).sum::<u64>();
    let bytes = bytes.saturating_mul(made.samples() as u64);
    if bytes > MOST_BYTES {
        return Dataset::new(made);
    }
    let values = made.fields().iter().map(|_| OnceLock::new()).collect();
    Dataset::new(Kept { made, values, bytes })
}

struct Kept {
    made: Synthetic,
    /// All samples of each field, once one has been read.
    values: Vec<OnceLock<Vec<u8>>>,
    bytes: u64,
}

impl Source for Kept {
    fn samples(&self) -> usize {
        self.made.samples()
    }

    fn fields(&self) -> &[Field] {
        self.made.fields()
    }

    fn read(&self, sample: usize, field: usize, out: &mut [u8]) -> Result<()> {
        let bytes = self.locate(sample, field, out)?.bytes();
        let values = match self.values[field].get() {
            Some(values) => values,
            None => {
                let mut values = vec![0; bytes * self.samples()];
                for (sample, out) in values.chunks_exact_mut(bytes).enumerate() {
                    self.made.read(sample, field, out)?;
                }
                self.values[field].get_or_init(|| values)
            }
        };
        out.copy_from_slice(&values[sample * bytes..][..bytes]);
        Ok(())
    }

    fn resident_bytes(&self) -> u64 {
        self.bytes
    }

    fn promise(&self, field: usize) -> Promise {
        self.made.promise(field)
    }
}

//! Real data that needs no download: 1,797 handwritten digits, built into the library. Enough to show in seconds that
//! a model learns, small enough to be carried along.
//!
//! E. Alpaydin and C. Kaynak, *Optical Recognition of Handwritten Digits*, UCI Machine Learning Repository, 1998,
//! <https://doi.org/10.24432/C50P49>, CC BY 4.0. `data/README.md` gives format and origin.

use std::sync::LazyLock;

use super::{Answer, Description, SourceKind};
use crate::{Dataset, Element, Field, Result, Source};

static RECORDS: &[u8] = include_bytes!("../../data/digits.bin");
const PIXELS: usize = 64;
const RECORD: usize = PIXELS + 1;
const INK: f32 = 16.0;

static FIELDS: LazyLock<[Field; 2]> = LazyLock::new(|| {
    let field = |name, element, shape: &[usize]| Field::new(name, element, shape).expect("a valid shape");
    [field("features", Element::F32, &[8, 8, 1]), field("label", Element::I32, &[])]
});

/// The source that [`digits`] gives.
#[derive(Clone, Copy, Debug)]
pub struct Digits;

/// 1,797 handwritten digits: `features`, `f32 [8, 8, 1]` from 0 (paper) to 1 (ink), and `label`, `i32`, 0 to 9.
pub fn digits() -> Digits {
    Digits
}

pub(super) const KIND: SourceKind =
    SourceKind { name: "digits", keys: &[], describe: |_| Ok(Box::new(Digits)) };

impl Description for Digits {
    fn answer(&self) -> Answer {
        Answer::Classes
    }

    fn open(&self) -> Result<Dataset> {
        Dataset::new(Digits)
    }
}

impl Source for Digits {
    fn samples(&self) -> usize {
        RECORDS.len() / RECORD
    }

    fn fields(&self) -> &[Field] {
        &*FIELDS
    }

    fn read(&self, sample: usize, field: usize, out: &mut [u8]) -> Result<()> {
        self.locate(sample, field, out)?;
        let (pixels, label) = RECORDS[sample * RECORD..][..RECORD].split_at(PIXELS);
        match field {
            0 => {
                for (out, &pixel) in out.as_chunks_mut().0.iter_mut().zip(pixels) {
                    *out = (f32::from(pixel) / INK).to_ne_bytes();
                }
            }
            _ => out.copy_from_slice(&i32::from(label[0]).to_ne_bytes()),
        }
        Ok(())
    }

    /// The records lie in the program itself, one byte per pixel; no second copy is made.
    fn resident_bytes(&self) -> u64 {
        RECORDS.len() as u64
    }
}

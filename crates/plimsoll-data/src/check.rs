//! Looking through all samples before training on them. A single NaN ruins a model after hours and a label that is out
//! of range reads past a row; both are cheap to find first, and the error names the sample.

use crate::source::{Promise, field_at, field_named};
use crate::{Dataset, Element, ErrorKind, Field, Result, Source};

impl Dataset {
    /// Reads every float of every sample and refuses the first that is NaN or infinite. Where the source promises that
    /// there is none ([`Source::promise`](crate::Source::promise)), nothing is read. Samples that stages make, or
    /// whose shape is open, are looked at when they are read ([`Batch::read`](crate::Batch::read)).
    pub fn check(&self) -> Result<()> {
        let Some(source) = self.source().filter(|source| source.fields().iter().all(Field::is_fixed)) else {
            return Ok(());
        };
        for (position, field) in self.fields().iter().enumerate() {
            let promise = source.promise(position);
            let is_float = matches!(field.element(), Element::F32 | Element::F64);
            if !is_float || matches!(promise, Promise::Finite | Promise::Meant) {
                continue;
            }
            scan(source, position, |sample, bytes| check_finite(field, sample, bytes))?;
        }
        Ok(())
    }

    /// Reads every label of the field with this name and refuses the first outside of `0..classes`.
    ///
    /// Labels are `i32`, `i64` or `u8`, one per sample or one per token. Where the source promises that there are no others,
    /// nothing is read.
    pub fn check_labels(&self, field: &str, classes: usize) -> Result<()> {
        let position = field_named(self.fields(), field)?;
        let field = field_at(self.fields(), position)?;
        if matches!(field.element(), Element::F32 | Element::F64) {
            let reason =
                format!("labels are whole numbers, i32, i64 or u8; this field is {}", field.element());
            return Err(ErrorKind::Field { name: field.name().to_string(), reason }.into());
        }
        let Some(source) = self.source().filter(|_| field.is_fixed()) else { return Ok(()) };
        match source.promise(position) {
            Promise::Below(bound) if bound <= classes => return Ok(()),
            Promise::Meant => return Ok(()),
            Promise::Below(_) | Promise::Finite | Promise::Nothing => {}
        }
        let outside = |value: &i64| usize::try_from(*value).map_or(true, |value| value >= classes);
        scan(source, position, |sample, bytes| {
            let found = integers(field.element(), bytes).find(outside);
            match found {
                None => Ok(()),
                Some(value) => {
                    let field = field.name().to_string();
                    Err(ErrorKind::Label { field, sample, value, classes }.into())
                }
            }
        })
    }
}

/// Shows each sample of a field to `look`, under the number it has in its source.
fn scan(source: &dyn Source, position: usize, look: impl Fn(usize, &[u8]) -> Result<()>) -> Result<()> {
    let mut bytes = vec![0; field_at(source.fields(), position)?.bytes()];
    for sample in 0..source.samples() {
        source.read(sample, position, &mut bytes)?;
        look(source.origin(sample), &bytes)?;
    }
    Ok(())
}

/// Whether no float of these elements is NaN or infinite. All are looked at, which takes less time than to stop at the first.
pub(crate) fn are_finite(element: Element, bytes: &[u8]) -> bool {
    const SINGLE: u32 = 0x7f80_0000;
    const DOUBLE: u64 = 0x7ff0_0000_0000_0000;
    match element {
        Element::F64 => {
            let refused = |value: &[u8; 8]| u64::from(u64::from_ne_bytes(*value) & DOUBLE == DOUBLE);
            bytes.as_chunks().0.iter().map(refused).fold(0, |any, one| any | one) == 0
        }
        _ => {
            let refused = |value: &[u8; 4]| u32::from(u32::from_ne_bytes(*value) & SINGLE == SINGLE);
            bytes.as_chunks().0.iter().map(refused).fold(0, |any, one| any | one) == 0
        }
    }
}

/// Refuses the first float of a sample that is NaN or infinite.
pub(crate) fn check_finite(field: &Field, sample: usize, bytes: &[u8]) -> Result<()> {
    match floats(field.element(), bytes).enumerate().find(|(_, value)| !value.is_finite()) {
        None => Ok(()),
        Some((element, value)) => {
            let field = field.name().to_string();
            Err(ErrorKind::NotFinite { field, sample, element, value }.into())
        }
    }
}

fn floats(element: Element, bytes: &[u8]) -> Box<dyn Iterator<Item = f32> + '_> {
    match element {
        Element::F64 => {
            // A finite number stays one, which as an `f32` it might not.
            let narrow = |value: f64| if value.is_finite() { 0.0 } else { value as f32 };
            Box::new(bytes.as_chunks().0.iter().map(move |&chunk| narrow(f64::from_ne_bytes(chunk))))
        }
        _ => Box::new(bytes.as_chunks().0.iter().map(|&chunk| f32::from_ne_bytes(chunk))),
    }
}

fn integers(element: Element, bytes: &[u8]) -> Box<dyn Iterator<Item = i64> + '_> {
    match element {
        Element::U8 => Box::new(bytes.iter().map(|&byte| i64::from(byte))),
        Element::I64 => Box::new(bytes.as_chunks().0.iter().map(|&chunk| i64::from_ne_bytes(chunk))),
        _ => Box::new(bytes.as_chunks().0.iter().map(|&chunk| i64::from(i32::from_ne_bytes(chunk)))),
    }
}

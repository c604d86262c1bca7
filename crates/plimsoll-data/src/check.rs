//! Looking through all samples before training on them. A single NaN ruins a model after hours and a label that is out
//! of range reads past a row; both are cheap to find first, and the error names the sample.

use crate::source::{field_at, field_named};
use crate::{Dataset, Element, ErrorKind, Result};

impl Dataset {
    /// Reads every float of every sample and refuses the first that is NaN or infinite.
    pub fn check(&self) -> Result<()> {
        for (position, field) in self.fields().iter().enumerate() {
            if field.element() != Element::F32 {
                continue;
            }
            self.scan(position, |sample, bytes| {
                match floats(bytes).enumerate().find(|(_, value)| !value.is_finite()) {
                    None => Ok(()),
                    Some((element, value)) => {
                        let field = field.name().to_string();
                        Err(ErrorKind::NotFinite { field, sample, element, value }.into())
                    }
                }
            })?;
        }
        Ok(())
    }

    /// Reads every label of the field with this name and refuses the first outside of `0..classes`.
    ///
    /// Labels are `i32` or `u8`, one per sample or one per token.
    pub fn check_labels(&self, field: &str, classes: usize) -> Result<()> {
        let position = field_named(self.fields(), field)?;
        let field = field_at(self.fields(), position)?;
        if field.element() == Element::F32 {
            let reason = "labels are whole numbers, i32 or u8; this field is f32".to_string();
            return Err(ErrorKind::Field { name: field.name().to_string(), reason }.into());
        }
        let outside = |value: &i64| usize::try_from(*value).map_or(true, |value| value >= classes);
        self.scan(position, |sample, bytes| {
            let found = match field.element() {
                Element::U8 => bytes.iter().map(|&byte| i64::from(byte)).find(outside),
                _ => integers(bytes).map(i64::from).find(outside),
            };
            match found {
                None => Ok(()),
                Some(value) => {
                    let field = field.name().to_string();
                    Err(ErrorKind::Label { field, sample, value, classes }.into())
                }
            }
        })
    }

    /// Shows each sample of a field to `look`, under the number it has in its source.
    fn scan(&self, position: usize, look: impl Fn(usize, &[u8]) -> Result<()>) -> Result<()> {
        let mut bytes = vec![0; field_at(self.fields(), position)?.bytes()];
        for sample in 0..self.samples() {
            self.source().read(sample, position, &mut bytes)?;
            look(self.source().origin(sample), &bytes)?;
        }
        Ok(())
    }
}

fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> + '_ {
    bytes.as_chunks().0.iter().map(|&chunk| f32::from_ne_bytes(chunk))
}

fn integers(bytes: &[u8]) -> impl Iterator<Item = i32> + '_ {
    bytes.as_chunks().0.iter().map(|&chunk| i32::from_ne_bytes(chunk))
}

//! Predictions as files that other programs read: NPY, CSV and safetensors, written batch by batch.

use crate::tensor_file::{Described, header};
use crate::whole_file::WholeFile;
use crate::{Array, DType, Error, ErrorKind, Result};
use plimsoll_data::Dataset;
use std::path::Path;

/// A file of predictions, of which some are written. It is complete or not there.
pub struct PredictionFile {
    file: WholeFile,
    form: Form,
    samples: usize,
    written: usize,
    /// The extents of a sample's prediction, known with the first batch.
    shape: Option<Vec<usize>>,
    /// What classes are called, as cells of a CSV; by their numbers if this is empty.
    class_names: Vec<String>,
    /// Whose samples have names, for a column of a CSV.
    named: Option<Dataset>,
}

/// How predictions are written.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Npy,
    /// With the class of the largest number as the first column, where these are logits of classes.
    Csv {
        classes: bool,
    },
    Safetensors,
}

impl PredictionFile {
    /// Begins a file for the predictions of so many samples. Its form is that of its name: `.npy`, `.csv` or
    /// `.safetensors`. With `classes`, predictions are logits, and a CSV has the class of each sample as well.
    ///
    /// # Errors
    /// If the name ends in none of these, or the file cannot be written.
    pub fn create(path: impl AsRef<Path>, samples: usize, classes: bool) -> Result<PredictionFile> {
        let path = path.as_ref();
        let form = match path.extension().and_then(|end| end.to_str()) {
            Some("npy") => Form::Npy,
            Some("csv") => Form::Csv { classes },
            Some("safetensors") => Form::Safetensors,
            _ => {
                let message = format!(
                    "predictions are written as .npy, .csv or .safetensors: {} ends in none of these",
                    path.display()
                );
                return Err(Error::new(ErrorKind::Argument, message));
            }
        };
        Ok(PredictionFile {
            file: WholeFile::create(path)?,
            form,
            samples,
            written: 0,
            shape: None,
            class_names: vec![],
            named: None,
        })
    }

    /// Writes the name of each sample as the first column of a CSV, where the samples of this data have any: `file`, for
    /// images.
    pub fn sample_names(mut self, data: &Dataset) -> PredictionFile {
        self.named =
            Some(data.clone()).filter(|data| data.source().is_some_and(|source| source.name(0).is_some()));
        self
    }

    /// Writes the names of classes, by number, in place of their numbers.
    pub fn class_names(mut self, names: &[String]) -> PredictionFile {
        self.class_names = names.iter().map(|name| cell(name)).collect();
        self
    }

    /// Adds the predictions of the next samples, `f32[samples, ..]`.
    ///
    /// # Errors
    /// If they are of another shape than those before, there are more than were said, or the file cannot be written.
    pub fn write(&mut self, predictions: &Array) -> Result<()> {
        let values: Vec<f32> = predictions.to_vec()?;
        let Some((&samples, shape)) = predictions.shape().split_first() else {
            return Err(Error::new(ErrorKind::Shape, format!("{predictions} has no axis of samples")));
        };
        if self.shape.is_none() {
            self.shape = Some(shape.to_vec());
            self.begin(shape)?;
        }
        if self.shape.as_deref() != Some(shape) || self.written + samples > self.samples {
            let message = format!(
                "{predictions} after {} of {} predictions of {:?}",
                self.written,
                self.samples,
                self.shape.as_deref().unwrap_or(&[])
            );
            return Err(Error::new(ErrorKind::Shape, message));
        }
        let first = self.written;
        self.written += samples;
        let per_sample = shape.iter().product::<usize>();
        match self.form {
            Form::Npy | Form::Safetensors => {
                let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                self.file.write(&bytes)
            }
            Form::Csv { classes } => {
                let mut text = String::new();
                for (sample, row) in (first..).zip(values.chunks(per_sample.max(1)).take(samples)) {
                    if let Some(source) = self.named.as_ref().and_then(Dataset::source) {
                        text += &cell(&source.name(sample).unwrap_or_default());
                        text.push(',');
                    }
                    if classes && shape.len() == 1 {
                        let class = largest(row);
                        text += &self.class_names.get(class).cloned().unwrap_or_else(|| class.to_string());
                        text.push(',');
                    }
                    let cells: Vec<String> = row.iter().map(f32::to_string).collect();
                    text += &cells.join(",");
                    text.push('\n');
                }
                self.file.write(text.as_bytes())
            }
        }
    }

    /// What stands before the numbers.
    fn begin(&mut self, shape: &[usize]) -> Result<()> {
        let whole: Vec<usize> = [&[self.samples], shape].concat();
        match self.form {
            Form::Npy => self.file.write(&npy_header(&whole)),
            Form::Safetensors => {
                let tensor = Described { name: "prediction".into(), dtype: DType::F32, shape: whole };
                let header = header(&[tensor])?;
                self.file.write(&(header.len() as u64).to_le_bytes())?;
                self.file.write(&header)
            }
            Form::Csv { classes } => {
                let columns =
                    (0..shape.iter().product::<usize>()).map(|column| format!("prediction{column}"));
                let class = (classes && shape.len() == 1).then(|| "class".to_string());
                let name = self.named.is_some().then(|| "file".to_string());
                let columns: Vec<String> = name.into_iter().chain(class).chain(columns).collect();
                self.file.write(format!("{}\n", columns.join(",")).as_bytes())
            }
        }
    }

    /// Makes the file visible.
    ///
    /// # Errors
    /// If predictions are missing, or the file cannot be written.
    pub fn publish(self) -> Result<()> {
        if self.written != self.samples {
            let message = format!("{} of {} predictions were written", self.written, self.samples);
            return Err(Error::new(ErrorKind::Shape, message));
        }
        self.file.publish()?;
        Ok(())
    }
}

/// A text as a cell of a CSV.
fn cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_string()
    }
}

/// The position of the largest number; of the first, if there are several.
fn largest(row: &[f32]) -> usize {
    let better = |best: usize, at: usize| if row[at] > row[best] { at } else { best };
    (0..row.len()).reduce(better).unwrap_or(0)
}

/// The header of version 1.0 of the format, of little-endian `f32` in C order.
fn npy_header(shape: &[usize]) -> Vec<u8> {
    let extents: Vec<String> = shape.iter().map(|extent| format!("{extent},")).collect();
    let mut text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}), }}", extents.join(" "));
    // All that stands before the numbers is a multiple of 64 bytes, and ends a line.
    let before = 10;
    let padded = (before + text.len() + 1).next_multiple_of(64) - before - 1;
    text += &" ".repeat(padded - text.len());
    text.push('\n');
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend((text.len() as u16).to_le_bytes());
    header.extend(text.as_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(name: &str, classes: bool) -> Vec<u8> {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(name);
        let mut file = PredictionFile::create(&path, 3, classes).unwrap();
        file.write(&Array::new(&[2, 2], &[0.5f32, 0.25, -1.0, 2.0]).unwrap()).unwrap();
        assert!(file.write(&Array::new(&[2, 2], &[0.0f32; 4]).unwrap()).is_err(), "too many");
        assert!(file.write(&Array::new(&[1, 3], &[0.0f32; 3]).unwrap()).is_err(), "another shape");
        assert!(!path.exists(), "it is not complete");
        file.write(&Array::new(&[1, 2], &[3.0f32, 3.0]).unwrap()).unwrap();
        file.publish().unwrap();
        std::fs::read(path).unwrap()
    }

    #[test]
    fn a_csv_has_the_class_of_each_sample_where_predictions_are_logits() {
        let text = String::from_utf8(written("p.csv", true)).unwrap();
        assert_eq!(text, "class,prediction0,prediction1\n0,0.5,0.25\n1,-1,2\n0,3,3\n");
        assert!(
            String::from_utf8(written("p.csv", false)).unwrap().starts_with("prediction0,prediction1\n0.5,")
        );
    }

    #[test]
    fn numbers_of_an_npy_file_begin_at_a_multiple_of_64_bytes() {
        let bytes = written("p.npy", false);
        let length = u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
        assert_eq!((10 + length) % 64, 0);
        assert!(String::from_utf8_lossy(&bytes[10..10 + length]).contains("'shape': (3, 2,)"));
        assert_eq!(bytes.len(), 10 + length + 6 * 4);
        assert_eq!(bytes[10 + length..][..4], 0.5f32.to_le_bytes());
    }

    #[test]
    fn a_name_of_another_form_is_refused() {
        assert_eq!(PredictionFile::create("p.txt", 1, false).err().unwrap().kind(), ErrorKind::Argument);
    }
}

//! A look at a data set: what its samples are, what they take, and how fast they come.

use crate::pipeline::PipelineReport;
use crate::{Dataset, Element, Field, Record, Result};
use std::time::Instant;

/// What a data set looks like.
#[derive(Clone, Debug)]
pub struct Survey {
    /// What each sample is made of.
    pub fields: Vec<Field>,
    /// How many samples an epoch has, where that is known before they are made.
    pub samples: Option<u64>,
    /// Bytes of RAM that the samples occupy.
    pub resident_bytes: u64,
    /// The first samples.
    pub first: Vec<Record>,
    /// How fast samples come in their own order.
    pub in_order: Rate,
    /// How fast they come in a shuffled order, where they can be read by number.
    pub shuffled: Option<Rate>,
    /// What the stages did meanwhile, and held.
    pub stages: PipelineReport,
}

/// How fast samples came.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// The samples that were read.
    pub samples: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The seconds it took.
    pub seconds: f64,
}

impl Rate {
    /// Samples a second.
    pub fn samples_per_second(&self) -> f64 {
        self.samples as f64 / self.seconds.max(1e-9)
    }

    /// Bytes a second.
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-9)
    }
}

impl Dataset {
    /// Looks at the first samples, and reads for at most so many seconds in each order to see how fast they come.
    pub fn survey(&self, first: usize, seconds: f64) -> Result<Survey> {
        let mut records = self.records(0)?;
        let mut seen = vec![];
        while seen.len() < first {
            match records.read()? {
                Some(record) => seen.push(record.clone()),
                None => break,
            }
        }
        let (in_order, stages) = self.rate(seconds)?;
        let shuffled = match self.shuffle_all(0) {
            Ok(shuffled) => Some(shuffled.rate(seconds)?.0),
            Err(_) => None,
        };
        Ok(Survey {
            fields: self.fields().to_vec(),
            samples: (self.samples() > 0).then_some(self.samples() as u64),
            resident_bytes: self.resident_bytes(),
            first: seen,
            in_order,
            shuffled,
            stages,
        })
    }

    /// How fast samples come.
    fn rate(&self, seconds: f64) -> Result<(Rate, PipelineReport)> {
        let mut records = self.records(0)?;
        let (mut rate, start) = (Rate::default(), Instant::now());
        while let Some(record) = records.read()? {
            rate.samples += 1;
            rate.bytes += record.value_bytes();
            rate.seconds = start.elapsed().as_secs_f64();
            if rate.seconds >= seconds {
                break;
            }
        }
        Ok((rate, records.report()))
    }
}

impl Record {
    /// The values of the field at this position, which must be one of its fields, as text: the first few of them, or the
    /// beginning of what is text.
    pub fn show(&self, position: usize, most: usize) -> String {
        let (field, bytes) = (&self.fields()[position], self.bytes(position));
        let is_text = field.element() == Element::U8 && field.shape() == [Field::OPEN];
        if let (true, Ok(text)) = (is_text, std::str::from_utf8(bytes)) {
            let shown: String = text.chars().take(8 * most).collect();
            let more = if shown.len() < text.len() { "…" } else { "" };
            return format!("{shown:?}{more}");
        }
        let values: Vec<String> = bytes
            .chunks_exact(field.element().bytes())
            .take(most)
            .map(|bytes| match field.element() {
                Element::F32 => bytes.try_into().map_or(0.0, f32::from_ne_bytes).to_string(),
                Element::I32 => bytes.try_into().map_or(0, i32::from_ne_bytes).to_string(),
                Element::U8 => bytes[0].to_string(),
                Element::F64 => bytes.try_into().map_or(0.0, f64::from_ne_bytes).to_string(),
                Element::I64 => bytes.try_into().map_or(0, i64::from_ne_bytes).to_string(),
            })
            .collect();
        let more = if values.len() * field.element().bytes() < bytes.len() { ", …" } else { "" };
        format!("{}{more}", values.join(", "))
    }
}

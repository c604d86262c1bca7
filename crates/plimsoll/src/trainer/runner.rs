//! Running the steps of a trainer: a batch at once, or as a window of micro-batches and one update.

use super::Trainer;
use super::fitting::Plans;
use super::steps::{Kind, Shapes};
use crate::Result;
use crate::session::Session;
use plimsoll_data::{Batch, Dataset, Field};
use std::collections::BTreeMap;

/// The steps of one run, in their session.
pub(crate) struct Runner<'a> {
    trainer: &'a Trainer,
    data: &'a Dataset,
    plans: Plans,
    session: Session<Shapes>,
    cropped: Cropped,
}

impl<'a> Runner<'a> {
    /// Runs training on `data` in a session, as was planned.
    pub(super) fn new(
        trainer: &'a Trainer,
        data: &'a Dataset,
        plans: Plans,
        session: Session<Shapes>,
    ) -> Runner<'a> {
        let cropped = Cropped::new(data.fields(), trainer.samples_at_once(plans.choice.micro_batches));
        Runner { trainer, data, plans, session, cropped }
    }

    /// The session: its states, arena and device.
    pub(crate) fn session(&self) -> &Session<Shapes> {
        &self.session
    }

    /// Trains on a batch in the step of that number; returns its loss and, if there is one, its accuracy.
    pub(crate) fn train(&mut self, batch: &Batch<'_>, number: usize) -> Result<[f32; 2]> {
        let micro_batches = self.plans.choice.micro_batches;
        let (kind, length) = (Kind::of_training(micro_batches), self.trainer.length(number));
        let mut means = [0.0; 2];
        for part in batch.parts(self.trainer.samples_at_once(micro_batches)) {
            let bucket = length.map(|length| self.trainer.bucket(length));
            let shapes = Shapes { samples: part.samples(), length: bucket, kind };
            self.ensure(self.data, shapes)?;
            let weight = part.samples() as f64 / batch.samples() as f64;
            let numbers = self.trainer.numbers(length, weight as f32);
            let values = run(&mut self.session, shapes, &part, length, numbers, &mut self.cropped)?;
            for (mean, value) in means.iter_mut().zip(values) {
                *mean += weight * f64::from(value);
            }
        }
        if kind == Kind::Accumulate {
            let end = self.trainer.end_of_window(self.data, micro_batches);
            self.ensure(self.data, end)?;
            self.session.run(&end, |_, _| Ok(()), |_, _| {})?;
        }
        Ok(means.map(|mean| mean as f32))
    }

    /// The metrics on a data set with the present weights.
    pub(crate) fn evaluate(&mut self, data: &Dataset) -> Result<BTreeMap<String, f64>> {
        let samples = self.plans.choice.evaluated;
        let mut cropped = Cropped::new(data.fields(), samples);
        let mut sums = [0.0; 2];
        for batch in data.batches(samples)?.epoch(0) {
            let shapes = self.trainer.evaluation(batch.samples(), self.plans.choice.micro_batches);
            self.ensure(data, shapes)?;
            let numbers = self.trainer.numbers(shapes.length, 1.0);
            let values = run(&mut self.session, shapes, &batch, shapes.length, numbers, &mut cropped)?;
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += f64::from(value) * batch.samples() as f64;
            }
        }
        let mean = |sum: f64| sum / data.samples() as f64;
        let mut metrics = BTreeMap::from([("loss".to_string(), mean(sums[0]))]);
        if self.trainer.accuracy {
            metrics.insert("accuracy".into(), mean(sums[1]));
        }
        Ok(metrics)
    }

    /// Compiles and loads a step if that has not been done.
    fn ensure(&mut self, data: &Dataset, shapes: Shapes) -> Result<()> {
        if self.session.has(&shapes) {
            return Ok(());
        }
        let compiled = self.trainer.compile(data, shapes, &self.plans)?;
        self.session.add(shapes, compiled)
    }
}

impl Trainer {
    /// The inputs of a step on sequences of a length after the data's fields: where there are buckets, how many
    /// positions there are for each that is real; then, of a step that accumulates, the `weight` of the batch in its
    /// window.
    fn numbers(&self, length: Option<usize>, weight: f32) -> [f32; 2] {
        match length {
            Some(length) if self.buckets.is_some() => [self.bucket(length) as f32 / length as f32, weight],
            _ => [weight, 0.0],
        }
    }
}

/// Runs a step on a batch, cropped to a length, and returns its loss and, if there is one, its accuracy. `numbers` are
/// its inputs after the data's fields.
fn run(
    session: &mut Session<Shapes>,
    shapes: Shapes,
    batch: &Batch<'_>,
    length: Option<usize>,
    numbers: [f32; 2],
    cropped: &mut Cropped,
) -> Result<[f32; 2]> {
    let mut values = [0.0; 2];
    session.run(
        &shapes,
        |input, out| match input.checked_sub(cropped.fields.len()) {
            None => cropped.read(batch, input, length, out),
            Some(number) => {
                out.copy_from_slice(&numbers[number].to_ne_bytes());
                Ok(())
            }
        },
        |index, bytes| {
            if let (Some(value), Ok(number)) = (values.get_mut(index), bytes.try_into()) {
                *value = f32::from_ne_bytes(number);
            }
        },
    )?;
    Ok(values)
}

/// Reads batches, cropping sequences to a length: the first axis of a sample is time. Where there is more room it is
/// padded, inputs with zeros and targets with labels that stand for nothing.
struct Cropped {
    fields: Vec<Field>,
    whole: Vec<u8>,
}

impl Cropped {
    fn new(fields: &[Field], samples: usize) -> Cropped {
        let largest = fields.iter().map(Field::bytes).max().unwrap_or(0);
        Cropped { fields: fields.to_vec(), whole: vec![0; largest * samples] }
    }

    fn read(&mut self, batch: &Batch<'_>, field: usize, length: Option<usize>, out: &mut [u8]) -> Result<()> {
        /// Of four of these bytes is the label −1.
        const NO_LABEL: u8 = 0xff;
        let of = &self.fields[field];
        match (length, of.shape().first()) {
            (Some(length), Some(&whole)) if length < whole => {
                let read = batch.read(field, &mut self.whole)?;
                let (row, kept) = (of.bytes(), of.bytes() / whole * length);
                let room = out.len() / batch.samples().max(1);
                let padding = if field == 0 { 0 } else { NO_LABEL };
                for (from, to) in self.whole[..read].chunks_exact(row).zip(out.chunks_exact_mut(room.max(1)))
                {
                    let (cropped, rest) = to.split_at_mut(kept);
                    cropped.copy_from_slice(&from[..kept]);
                    rest.fill(padding);
                }
            }
            _ => {
                batch.read(field, out)?;
            }
        }
        Ok(())
    }
}

//! The steps of a trainer: which there are, what each computes, and compiling them.
//!
//! All steps of one run share an arena and therefore declare the same states in the same order, whatever batch, length
//! or purpose they are for.

use super::{Duration, Trainer};
use crate::compile::Compiled;
use crate::{Context, DType, Error, ErrorKind, Result, Tensor, metric};
use plimsoll_data::{Dataset, Element, Field};
use plimsoll_graph::{Step, random};
use std::collections::HashSet;

/// What tells the steps of a run apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Shapes {
    pub(crate) samples: usize,
    /// The length of sequences: what they are cropped to, or the bucket that holds that.
    pub(crate) length: Option<usize>,
    pub(crate) kind: Kind,
}

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Trains on a batch at once.
    Train,
    /// Adds the gradients of a micro-batch to those of its window.
    Accumulate,
    /// Updates parameters by the gradients of a window. The samples are those it was traced with, and of no matter.
    Apply,
    /// Measures, in a run whose training steps are split into micro-batches or not.
    Evaluate { split: bool },
}

impl Kind {
    /// What is done with the samples of a step that is split into so many parts.
    pub(super) fn of_training(micro_batches: usize) -> Kind {
        if micro_batches > 1 { Kind::Accumulate } else { Kind::Train }
    }
}

impl Trainer {
    /// Samples that are run at once if a batch is split into so many parts.
    pub(super) fn samples_at_once(&self, micro_batches: usize) -> usize {
        self.batch.div_ceil(micro_batches)
    }

    /// The steps whose shapes are known before training, if batches are split into so many parts: the largest first,
    /// then what is left of full batches and of the last batch of an epoch, of evaluation, and the lengths that
    /// sequences are cropped to: all shapes that training comes to if these are few, so that nothing is loaded later.
    /// `evaluated` samples are measured at once.
    pub(super) fn known_shapes(
        &self,
        data: &Dataset,
        held_out: Option<&Dataset>,
        micro_batches: usize,
        evaluated: usize,
    ) -> Vec<Shapes> {
        let most = self.samples_at_once(micro_batches);
        let largest = self.largest(data, micro_batches);
        let mut wanted = vec![largest];
        if largest.kind == Kind::Accumulate {
            wanted.push(self.end_of_window(data, micro_batches));
        }
        match &self.lengths {
            Some(lengths) => {
                // A shorter step can need a larger workspace; trying some lengths finds that out before training.
                let step = self.bucketed(lengths).count().div_ceil(LENGTHS_TRIED).max(1);
                let tried = self.bucketed(lengths).step_by(step);
                wanted.extend(tried.map(|length| Shapes { length: Some(length), ..largest }));
            }
            None => {
                let windows = [self.batch.min(data.samples()), data.samples() % self.batch];
                let parts = windows.into_iter().flat_map(|window| [most.min(window), window % most]);
                wanted.extend(parts.map(|samples| Shapes { samples, ..largest }));
                if let Some(held_out) = held_out {
                    let parts = [evaluated.min(held_out.samples()), held_out.samples() % evaluated];
                    wanted.extend(parts.map(|samples| self.evaluation(samples, micro_batches)));
                }
            }
        }
        let coming = self.coming_shapes(data, micro_batches);
        if coming.len() <= FEW_SHAPES {
            wanted.extend(coming);
        }
        let mut known: Vec<Shapes> = vec![];
        for shapes in wanted {
            if shapes.samples > 0 && !known.contains(&shapes) {
                known.push(shapes);
            }
        }
        known
    }

    /// How many steps will be compiled while training because their shapes come up: other lengths and numbers of samples
    /// than those of the steps that are `known`.
    pub(super) fn later_steps(
        &self,
        data: &Dataset,
        known: &[(Shapes, Compiled)],
        micro_batches: usize,
    ) -> usize {
        let coming = self.coming_shapes(data, micro_batches);
        coming.iter().filter(|shapes| known.iter().all(|(known, _)| known != *shapes)).count()
    }

    /// The shapes of training steps where these are drawn, in the order in which they come up.
    fn coming_shapes(&self, data: &Dataset, micro_batches: usize) -> Vec<Shapes> {
        /// By then, hardly a shape that has not come up.
        const MOST: usize = 1 << 16;
        if self.lengths.is_none() && self.batches.is_empty() {
            return vec![];
        }
        let most = self.samples_at_once(micro_batches);
        let kind = Kind::of_training(micro_batches);
        let (mut seen, mut coming) = (HashSet::new(), vec![]);
        for number in 0..self.training_steps(data).min(MOST) {
            let samples = self.samples(number, self.batch.min(data.samples()));
            let length = self.length(number).map(|length| self.bucket(length));
            let parts = [most.min(samples), samples % most].into_iter().filter(|&samples| samples > 0);
            coming.extend(
                parts.map(|samples| Shapes { samples, length, kind }).filter(|&part| seen.insert(part)),
            );
        }
        coming
    }

    /// How many training steps there will be.
    fn training_steps(&self, data: &Dataset) -> usize {
        match self.length {
            Duration::Steps(steps) => steps,
            Duration::Epochs(epochs) => epochs.saturating_mul(data.samples().div_ceil(self.batch.max(1))),
        }
    }

    /// The largest training step.
    pub(super) fn largest(&self, data: &Dataset, micro_batches: usize) -> Shapes {
        let samples = self.samples_at_once(micro_batches).min(data.samples());
        Shapes { samples, length: self.longest(), kind: Kind::of_training(micro_batches) }
    }

    /// The step that ends a window.
    pub(super) fn end_of_window(&self, data: &Dataset, micro_batches: usize) -> Shapes {
        let samples = self.samples_at_once(micro_batches).min(data.samples());
        Shapes { samples, length: self.longest(), kind: Kind::Apply }
    }

    /// The step that measures so many samples.
    pub(super) fn evaluation(&self, samples: usize, micro_batches: usize) -> Shapes {
        Shapes { samples, length: self.longest(), kind: Kind::Evaluate { split: micro_batches > 1 } }
    }

    /// The length that sequences are cropped to in the training step of that number.
    pub(super) fn length(&self, step: usize) -> Option<usize> {
        self.lengths.as_ref().map(|lengths| {
            let choices = (lengths.end() - lengths.start() + 1) as u64;
            let word = random::block(self.seed, step as u64, LENGTHS, 0)[0];
            let drawn = (u64::from(word) * choices) >> 32;
            lengths.start() + drawn as usize
        })
    }

    /// The samples that the training step of that number takes of a batch.
    pub(super) fn samples(&self, step: usize, batch: usize) -> usize {
        if self.batches.is_empty() {
            return batch;
        }
        let word = random::block(self.seed, step as u64, BATCHES, 0)[0];
        let drawn = (u64::from(word) * self.batches.len() as u64) >> 32;
        self.batches[drawn as usize].min(batch)
    }

    pub(super) fn longest(&self) -> Option<usize> {
        self.lengths.as_ref().map(|lengths| *lengths.end())
    }

    /// Traces the step for some shapes, with the states that all steps of its run have.
    pub(super) fn trace(&self, data: &Dataset, shapes: Shapes) -> Result<Step> {
        match shapes.kind {
            Kind::Train => {
                let cx = Context::trace(true, self.precision);
                let loss = self.forward(&cx, data, shapes)?;
                cx.minimise(&loss, &self.optimizer)?;
                cx.take_step()
            }
            Kind::Accumulate => {
                let mut step = self.accumulate(data, shapes)?;
                let end = step.end_of_window(&self.optimizer)?;
                step.adopt_states(&end)?;
                Ok(step)
            }
            Kind::Apply => Ok(self.accumulate(data, shapes)?.end_of_window(&self.optimizer)?),
            Kind::Evaluate { split } => {
                let kind = if split { Kind::Apply } else { Kind::Train };
                let training = self.trace(data, Shapes { kind, ..shapes })?;
                let cx = Context::trace(false, self.precision);
                self.forward(&cx, data, shapes)?;
                let mut step = cx.take_step()?;
                step.adopt_states(&training)?;
                Ok(step)
            }
        }
    }

    /// A step that adds gradients to those of its window, without the optimizer's states.
    fn accumulate(&self, data: &Dataset, shapes: Shapes) -> Result<Step> {
        let other = Context::trace(true, self.precision);
        self.forward(&other, data, Shapes { samples: shapes.samples + 1, ..shapes })?;
        let cx = Context::trace_part(self.precision, shapes.samples, &other.take_step()?);
        let loss = self.forward(&cx, data, shapes)?;
        cx.accumulate(&loss, shapes.samples)?;
        cx.take_step()
    }

    /// Traces the model and its metrics; returns the loss.
    fn forward(&self, cx: &Context, data: &Dataset, shapes: Shapes) -> Result<Tensor> {
        let [input, target] = data.fields() else {
            let names: Vec<&str> = data.fields().iter().map(Field::name).collect();
            let message = format!(
                "a data set to train on has two fields, the input and the target; this one has {} ({})",
                names.len(),
                names.join(", ")
            );
            return Err(Error::new(ErrorKind::Data, message));
        };
        // First, so that it lies at the same offset whether the model draws random numbers or not.
        cx.declare_random_state()?;
        let x = cx.input(input.name(), &batch_shape(input, shapes), dtype(input))?;
        let y = cx.target(target.name(), &batch_shape(target, shapes), dtype(target))?;
        // Padding has no loss and is never right: what is a mean over all positions becomes one over those that are real.
        let padded = self.buckets.as_ref().map(|_| cx.target(PADDED, &[], DType::F32)).transpose()?;
        let over_real = |mean: Tensor| padded.as_ref().map_or(Ok(mean.clone()), |padded| mean.mul(padded));
        let prediction = self.model.forward(cx, &x)?;
        let loss = over_real(self.loss.of(&prediction, &y)?)?;
        cx.output("loss", &loss)?;
        if self.accuracy {
            cx.output("accuracy", &over_real(metric::accuracy(&prediction, &y)?)?)?;
        }
        Ok(loss)
    }

    /// The shape of what the model makes of a sample of the data.
    pub(super) fn prediction_shape(&self, data: &Dataset) -> Result<Vec<usize>> {
        let cx = Context::trace(false, self.precision);
        let (input, shapes) = (&data.fields()[0], self.evaluation(1, 1));
        let x = cx.input(input.name(), &batch_shape(input, shapes), dtype(input))?;
        Ok(self.model.forward(&cx, &x)?.shape().to_vec())
    }
}

/// The name of the input, after the data's fields, that says how many positions there are for each that is not padding.
const PADDED: &str = "bucket/padded";

/// How many lengths are tried before training.
const LENGTHS_TRIED: usize = 32;

/// How many shapes of training steps are few enough for all to be loaded before training.
const FEW_SHAPES: usize = 32;

/// The stream that lengths are drawn from: one that no op and no parameter has.
const LENGTHS: u64 = 1 << 30;

/// The stream that samples in a step are drawn from.
const BATCHES: u64 = LENGTHS + 1;

fn batch_shape(field: &Field, shapes: Shapes) -> Vec<usize> {
    let mut shape = vec![shapes.samples];
    shape.extend(field.shape());
    if let (Some(length), true) = (shapes.length, shape.len() > 1) {
        shape[1] = length;
    }
    shape
}

fn dtype(field: &Field) -> DType {
    match field.element() {
        Element::F32 => DType::F32,
        Element::I32 => DType::I32,
        Element::U8 => DType::U8,
    }
}

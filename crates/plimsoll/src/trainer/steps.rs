//! The steps of a trainer, as a run: what each computes, and the shapes that come up.

use super::batch_reader::BatchReader;
use super::{Trainer, TrainingLength};
use crate::device::target::CPU;
use crate::metric::{Measured, Metric};
use crate::model::context::RunTraits;
use crate::run::{Input, Inputs, Outputs, RunBuilder, element_dtype};
use crate::{Context, DType, Error, ErrorKind, Result, Run, Tensor};
use plimsoll_data::{Dataset, Field};
use plimsoll_graph::{Op, Step, random};
use std::collections::HashSet;
use std::rc::Rc;

/// The name of the step that trains.
pub(super) const TRAIN: &str = "train";
/// The name of the step that measures.
pub(super) const EVALUATE: &str = "evaluate";

/// How many lengths are tried before training.
const LENGTHS_TRIED: usize = 8;

/// How many shapes of training steps are few enough for all to be loaded before training.
const FEW_SHAPES: usize = 32;

/// The stream that lengths are drawn from: one that no op and no parameter has.
const LENGTHS: u64 = 1 << 30;

/// The stream that samples in a step are drawn from.
const BATCHES: u64 = LENGTHS + 1;

/// Bytes of RAM beside the arena: of data that is kept, and of the batch that is read.
pub(super) struct DataUse {
    pub(super) data: u64,
    pub(super) batch: u64,
}

impl Trainer {
    /// The run that trains on `data` and measures `held_out`.
    pub(super) fn run(&self, data: &Dataset, held_out: Option<&Dataset>) -> Result<RunBuilder> {
        let fields = two_fields(data)?;
        let samples = self.batch.min(data.samples());
        let (train, evaluate) = (self.clone(), self.clone());
        let mut run = self.new_run(data, held_out);
        run = run.step(TRAIN, self.inputs(fields, samples), move |cx, inputs| {
            let (loss, outputs) = train.forward(cx, inputs, &train.metrics)?;
            cx.minimise(&loss, &train.optimizer)?;
            Ok(outputs)
        });
        run.frozen.clone_from(&self.frozen);
        run =
            if self.micro_batches > 1 { run.split(TRAIN, self.micro_batches) } else { run.may_split(TRAIN) };
        for (samples, length) in self.training_shapes(data) {
            run = self.with_shapes(run, TRAIN, fields, samples, length);
        }
        if let Some(held_out) = held_out {
            let fields = two_fields(held_out)?;
            let at_once = self.batch.min(held_out.samples()).max(1);
            let inputs = self.inputs(fields, at_once);
            run = run.inference(EVALUATE, inputs, move |cx, inputs| evaluate.measured(cx, inputs));
            let rest = held_out.samples() % at_once;
            if rest > 0 {
                run = self.with_shapes(run, EVALUATE, fields, rest, self.longest());
            }
            run = run.may_split(EVALUATE);
        }
        Ok(run)
    }

    /// A run with nothing in it yet, on the device and within the budget that this trainer has.
    pub(super) fn new_run(&self, data: &Dataset, held_out: Option<&Dataset>) -> RunBuilder {
        let mut run = Run::builder()
            .on(self.device)
            .precision(self.precision)
            .seed(self.seed)
            .exact(self.exact)
            .winograd(self.winograd)
            .plan_seconds(self.plan_seconds);
        run.settings.profile.clone_from(&self.profile);
        run.settings.threads = self.threads;
        run.settings.budget = self.budget;
        run.settings.host_budget = self.host_budget;
        run.settings.limit = self.limit;
        run.settings.spill.clone_from(&self.spill);
        run.settings.beside = self.data_use(data, held_out).map_or(0, |of| of.data + of.batch);
        run
    }

    /// What is measured of held-out data.
    pub(super) fn measured(&self, cx: &Context, inputs: &Inputs) -> Result<Outputs> {
        Ok(self.forward(cx, inputs, &self.held_out_metrics())?.1)
    }

    /// What training takes of RAM beside its arena, where RAM is what its budget bounds.
    pub(super) fn data_use(&self, data: &Dataset, held_out: Option<&Dataset>) -> Option<DataUse> {
        let elsewhere = self.profile.as_ref().is_some_and(|profile| profile.name != CPU);
        if !self.device.is_cpu() || elsewhere {
            return None;
        }
        let samples = held_out.map_or(0, Dataset::samples).max(data.samples()).min(self.batch);
        let batch = if self.lengths.is_some() { BatchReader::whole_bytes(data.fields(), samples) } else { 0 };
        let ahead = |data: &Dataset| data.batches(samples.max(1)).map_or(0, |batches| batches.ahead_bytes());
        let ahead = ahead(data).max(held_out.map_or(0, ahead));
        let held = data.held_bytes_with(held_out).saturating_add(ahead);
        Some(DataUse { data: held, batch: batch as u64 })
    }

    fn inputs(&self, fields: &[Field; 2], samples: usize) -> Vec<Input> {
        let [input, target] = fields;
        let of = |field: &Field| {
            Input::new(field.name(), &batch_shape(field, samples, self.longest()), dtype(field))
        };
        vec![of(input), of(target).exact()]
    }

    fn with_shapes(
        &self,
        run: RunBuilder,
        step: &str,
        fields: &[Field; 2],
        samples: usize,
        length: Option<usize>,
    ) -> RunBuilder {
        let shapes = self.input_shapes(fields, samples, length);
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        run.shapes(step, &shapes)
    }

    /// The shapes of the inputs of a step.
    pub(super) fn input_shapes(
        &self,
        fields: &[Field; 2],
        samples: usize,
        length: Option<usize>,
    ) -> Vec<Vec<usize>> {
        fields.iter().map(|field| batch_shape(field, samples, length)).collect()
    }

    /// Traces the model and its metrics; returns the loss, and what is reported.
    fn forward(&self, cx: &Context, inputs: &Inputs, metrics: &[Metric]) -> Result<(Tensor, Outputs)> {
        let [x, y] = inputs.all()?;
        let prediction = self.model.forward(cx, x)?;
        let loss = self.loss.of(&prediction, y)?;
        let measured = Measured { prediction: &prediction, target: y, loss: &loss, kind: self.loss };
        let mut outputs = Outputs::from([("loss", loss.clone())]);
        for metric in metrics {
            let sums = cx.scope("metrics", |_| metric.sums(&measured))?;
            outputs = outputs.with_sum(&format!("{metric}/sums"), sums);
        }
        Ok((loss, outputs))
    }

    /// What is measured on held-out data: the loss, and the metrics.
    pub(super) fn held_out_metrics(&self) -> Vec<Metric> {
        [Metric::loss()].into_iter().chain(self.metrics.iter().cloned()).collect()
    }

    /// The training step on a full batch of `data`, as it is before lowering.
    ///
    /// # Errors
    /// If the model does not take the data.
    pub fn step(&self, data: &Dataset) -> Result<Step> {
        self.traced(data)?.take_step()
    }

    /// The trace of the training step on a full batch, before gradients are taken.
    pub(super) fn traced(&self, data: &Dataset) -> Result<Context> {
        let samples = self.batch.min(data.samples());
        let traits = RunTraits { frozen: Rc::new(self.frozen.clone()), ..RunTraits::default() };
        let cx = Context::in_run(true, self.precision, &traits);
        let fields = two_fields(data)?;
        let [input, target] = fields;
        let shape = |field: &Field| batch_shape(field, samples, self.longest());
        let x = cx.input(input.name(), &shape(input), dtype(input))?;
        let y = cx.target(target.name(), &shape(target), dtype(target))?;
        let prediction = self.model.forward(&cx, &x)?;
        let loss = self.loss.of(&prediction, &y)?;
        cx.output("loss", &loss)?;
        cx.minimise(&loss, &self.optimizer)?;
        Ok(cx)
    }

    /// The shape of what the model makes of a batch of the data.
    pub(super) fn prediction_shape(&self, data: &Dataset) -> Result<Vec<usize>> {
        let cx = Context::trace(false, self.precision);
        let (input, samples) = (&data.fields()[0], self.batch.min(data.samples()));
        let x = cx.input(input.name(), &batch_shape(input, samples, self.longest()), dtype(input))?;
        Ok(self.model.forward(&cx, &x)?.shape().to_vec())
    }

    /// The step of inference on so many samples like those of `data`, as it is before lowering: from the data's first field
    /// to `prediction`.
    ///
    /// # Errors
    /// If the model does not take the data.
    pub fn prediction_step(&self, data: &Dataset, samples: usize) -> Result<Step> {
        let [input, _] = two_fields(data)?;
        let cx = Context::trace(false, self.precision);
        let x = cx.input(input.name(), &batch_shape(input, samples, self.longest()), dtype(input))?;
        cx.output("prediction", &self.model.forward(&cx, &x)?)?;
        cx.take_step()
    }

    /// The samples and lengths that training comes to besides the largest: the last batch of an epoch, and the lengths
    /// that sequences are cropped to; all shapes if these are few, so that nothing is compiled later.
    pub(super) fn training_shapes(&self, data: &Dataset) -> Vec<(usize, Option<usize>)> {
        let samples = self.batch.min(data.samples());
        let mut wanted = vec![];
        match &self.lengths {
            Some(lengths) => {
                // A shorter step can need a larger workspace; trying some lengths finds that out before training.
                let step = self.bucketed(lengths).count().div_ceil(LENGTHS_TRIED).max(1);
                wanted.extend(self.bucketed(lengths).step_by(step).map(|length| (samples, Some(length))));
            }
            None => wanted.push((data.samples() % self.batch.max(1), None)),
        }
        let coming = self.coming_shapes(data);
        if coming.len() <= FEW_SHAPES {
            wanted.extend(coming);
        }
        wanted.retain(|&(samples, _)| samples > 0);
        wanted
    }

    /// The shapes of training steps where these are drawn, in the order in which they come up.
    pub(super) fn coming_shapes(&self, data: &Dataset) -> Vec<(usize, Option<usize>)> {
        /// By then, hardly a shape that has not come up.
        const MOST: usize = 1 << 16;
        if self.lengths.is_none() && self.batches.is_empty() {
            return vec![];
        }
        let (mut seen, mut coming) = (HashSet::new(), vec![]);
        for number in 0..self.training_steps(data).min(MOST) {
            let samples = self.samples(number, self.batch.min(data.samples()));
            let shape = (samples, self.length(number).map(|length| self.bucket(length)));
            if seen.insert(shape) {
                coming.push(shape);
            }
        }
        coming
    }

    /// How many training steps there will be.
    fn training_steps(&self, data: &Dataset) -> usize {
        match self.length {
            TrainingLength::Steps(steps) => steps,
            TrainingLength::Epochs(epochs) => {
                epochs.saturating_mul(data.samples().div_ceil(self.batch.max(1)))
            }
        }
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

    pub(crate) fn longest(&self) -> Option<usize> {
        self.lengths.as_ref().map(|lengths| *lengths.end())
    }

    /// Whether attention in the model sees positions after its own.
    pub(super) fn sees_all(&self, data: &Dataset) -> Result<bool> {
        let sees_all = |op: &Op| matches!(op, Op::Attention(attention) if !attention.causal);
        Ok(self.step(data)?.graph.nodes().iter().any(|node| sees_all(&node.op)))
    }
}

/// The input and the target of a data set.
pub(super) fn two_fields(data: &Dataset) -> Result<&[Field; 2]> {
    if let Some(open) = data.fields().iter().find(|field| !field.is_fixed()) {
        let message = format!(
            "samples to train on have one shape, and this field is {open}: pack sequences into rows of one length (`pack`), \
             or make them the same (`map`)"
        );
        return Err(Error::new(ErrorKind::Data, message));
    }
    if data.samples() == 0 {
        let message = "how many samples an epoch has is not known before they are made: count them once \
                       (`Dataset::counted`), or say how many are one (`repeat_forever` and `take`)";
        return Err(Error::new(ErrorKind::Data, message));
    }
    data.fields().try_into().map_err(|_| {
        let names: Vec<&str> = data.fields().iter().map(Field::name).collect();
        let message = format!(
            "a data set to train on has two fields, the input and the target; this one has {} ({}): a `Run` takes any \
             number of inputs",
            names.len(),
            names.join(", ")
        );
        Error::new(ErrorKind::Data, message)
    })
}

pub(super) fn batch_shape(field: &Field, samples: usize, length: Option<usize>) -> Vec<usize> {
    let mut shape = vec![samples];
    shape.extend(field.shape());
    if let (Some(length), true) = (length, shape.len() > 1) {
        shape[1] = length;
    }
    shape
}

pub(super) fn dtype(field: &Field) -> DType {
    element_dtype(field.element())
}

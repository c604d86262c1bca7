//! The trainer: a model, a loss, an optimizer and a budget, from forecast to trained weights.

use crate::compile::Compiled;
use crate::forecast::Forecast;
use crate::layers::Layer;
use crate::loss::Loss;
use crate::run::{Clock, RunReport, Trained};
use crate::session::{Session, adopt_states};
use crate::{Context, DType, Error, ErrorKind, Optimizer, Precision, Result, metric};
use plimsoll_cpu::CpuDevice;
use plimsoll_data::{Batch, Dataset, Element, Field};
use plimsoll_graph::{Step, random};
use plimsoll_memory::format_bytes;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::rc::Rc;

/// Trains a model on a data set within a budget.
///
/// The data set's first field is the model's input, its second the target the loss compares with.
///
/// ```
/// use plimsoll::layers::{Activation, Dense, Flatten, Sequential};
/// use plimsoll::loss::Loss;
/// use plimsoll::{Optimizer, Trainer, data};
///
/// let data = data::Dataset::new(data::digits())?.split(0.8, 1)?;
/// let model = Sequential::new()
///     .then(Flatten)
///     .then(Dense::new(32).activation(Activation::Relu))
///     .then(Dense::new(10));
/// let trainer = Trainer::new(model, Loss::SparseCrossEntropy, Optimizer::adam(3e-3))
///     .budget(1 << 20)
///     .epochs(3);
/// println!("{}", trainer.forecast(&data.train)?);
/// let trained = trainer.fit(&data.train, Some(&data.held_out), &mut |_| {})?;
/// assert!(trained.report.final_metrics["accuracy"] > 0.8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Trainer {
    model: Rc<dyn Layer>,
    loss: Loss,
    optimizer: Optimizer,
    batch: usize,
    length: Duration,
    seed: u64,
    precision: Precision,
    budget: Option<u64>,
    threads: Option<usize>,
    lengths: Option<RangeInclusive<usize>>,
    accuracy: bool,
    shuffle: bool,
    weights: BTreeMap<String, Vec<f32>>,
}

#[derive(Debug, Clone, Copy)]
enum Duration {
    Epochs(usize),
    Steps(usize),
}

/// Where a run stands.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// The epoch, from 1.
    pub epoch: usize,
    /// How many epochs there will be.
    pub epochs: usize,
    /// Steps done.
    pub step: usize,
    /// How many steps there will be.
    pub steps: usize,
    /// The loss of the last step, before its update.
    pub loss: f32,
    /// Steps in a second, the first step left out.
    pub steps_per_second: f64,
}

/// What a compiled step is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Shapes {
    pub(crate) samples: usize,
    /// The length sequences are cropped to.
    pub(crate) length: Option<usize>,
    pub(crate) training: bool,
}

impl Trainer {
    /// A trainer of batches of 32 for 10 epochs, with seed 0, in `f32`, on all threads, without a budget.
    pub fn new(model: impl Layer + 'static, loss: Loss, optimizer: Optimizer) -> Trainer {
        Trainer {
            model: Rc::new(model),
            accuracy: loss == Loss::SparseCrossEntropy,
            loss,
            optimizer,
            batch: 32,
            length: Duration::Epochs(10),
            seed: 0,
            precision: Precision::F32,
            budget: None,
            threads: None,
            lengths: None,
            shuffle: true,
            weights: BTreeMap::new(),
        }
    }

    /// Samples in a step.
    pub fn batch(mut self, samples: usize) -> Self {
        self.batch = samples;
        self
    }

    /// How often all samples are seen.
    pub fn epochs(mut self, epochs: usize) -> Self {
        self.length = Duration::Epochs(epochs);
        self
    }

    /// How many steps to train, instead of epochs.
    pub fn steps(mut self, steps: usize) -> Self {
        self.length = Duration::Steps(steps);
        self
    }

    /// What first weights, shuffling and dropout are drawn from.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The element type that the model computes in.
    pub fn precision(mut self, precision: Precision) -> Self {
        self.precision = precision;
        self
    }

    /// The most bytes of device memory that training may take, everything included.
    pub fn budget(mut self, bytes: u64) -> Self {
        self.budget = Some(bytes);
        self
    }

    /// How many threads to compute on.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Crops the sequences of each step to a length drawn from this range.
    pub fn lengths(mut self, lengths: RangeInclusive<usize>) -> Self {
        self.lengths = Some(lengths);
        self
    }

    /// Whether to report accuracy: the part of predictions whose largest logit is the label's. On for class
    /// labels.
    pub fn accuracy(mut self, report: bool) -> Self {
        self.accuracy = report;
        self
    }

    /// Whether samples are seen in another order in every epoch, which they are unless this says no.
    pub fn shuffle(mut self, shuffle: bool) -> Self {
        self.shuffle = shuffle;
        self
    }

    /// First weights by name, in place of drawn ones.
    pub fn weights(mut self, weights: BTreeMap<String, Vec<f32>>) -> Self {
        self.weights = weights;
        self
    }

    /// The training step on a full batch of `data`, as it is before lowering.
    ///
    /// # Errors
    /// If the model does not take the data.
    pub fn step(&self, data: &Dataset) -> Result<Step> {
        self.trace(data, self.largest(data))
    }

    /// What training on `data` will take, before anything runs.
    ///
    /// # Errors
    /// If the model does not take the data.
    pub fn forecast(&self, data: &Dataset) -> Result<Forecast> {
        self.check_lengths(data)?;
        self.forecast_of(&self.known_steps(data, None, &self.device()?)?)
    }

    /// Trains on `data`; `held_out` is only measured, at the end. `watch` is told of every step.
    ///
    /// # Errors
    /// If the data is empty or has numbers that are not finite or labels out of range, the model does not
    /// take it, the budget does not hold the plan, or a loss is not finite.
    pub fn fit(
        &self,
        data: &Dataset,
        held_out: Option<&Dataset>,
        watch: &mut dyn FnMut(&Progress),
    ) -> Result<Trained> {
        let (mut session, forecast) = self.open(data, held_out)?;
        let batches = data.batches(self.batch)?;
        let batches = if self.shuffle { batches.shuffled(self.seed) } else { batches };
        let per_epoch = batches.per_epoch();
        let (epochs, steps) = match self.length {
            Duration::Epochs(epochs) => (epochs, epochs * per_epoch),
            Duration::Steps(steps) => (steps.div_ceil(per_epoch.max(1)), steps),
        };
        let mut losses = Vec::with_capacity(steps);
        let mut cropped = Cropped::new(data.fields(), self.batch);
        let mut clock = Clock::start();
        let mut reservations = None;
        'epochs: for epoch in 0..epochs {
            for batch in batches.epoch(epoch as u64) {
                if losses.len() == steps {
                    break 'epochs;
                }
                let shapes = self.shapes(batch.samples(), losses.len(), true);
                self.ensure(&mut session, data, shapes)?;
                let [loss, _] = run_batch(&mut session, shapes, &batch, &mut cropped)?;
                if !loss.is_finite() {
                    return Err(diverged(loss, losses.len(), epoch));
                }
                losses.push(loss);
                clock.step_done();
                reservations.get_or_insert(session.reservations());
                watch(&Progress {
                    epoch: epoch + 1,
                    epochs,
                    step: losses.len(),
                    steps,
                    loss,
                    steps_per_second: clock.steps_per_second(),
                });
            }
        }
        let steps_per_second = clock.steps_per_second();
        let mut final_metrics = BTreeMap::new();
        if let Some(held_out) = held_out {
            final_metrics = self.evaluate(&mut session, held_out)?;
        } else if let Some(&last) = losses.last() {
            final_metrics.insert("loss".into(), f64::from(last));
        }
        let report = RunReport {
            predicted_peak_bytes: forecast.peak_bytes,
            arena_bytes: session.arena_bytes(),
            allocations_after_first_step: session.reservations()
                - reservations.unwrap_or(session.reservations()),
            ledger: forecast.ledger,
            losses,
            steps_per_second,
            final_metrics,
            batch: self.batch,
            seed: self.seed,
            threads: session.device().threads(),
            precision: self.precision.to_string(),
        };
        Ok(Trained::new(report, &session))
    }

    /// The session of a fit: every step whose shape is known beforehand compiled, the arena reserved, the
    /// first weights in place.
    pub(crate) fn open(
        &self,
        data: &Dataset,
        held_out: Option<&Dataset>,
    ) -> Result<(Session<Shapes>, Forecast)> {
        self.check(data)?;
        if let Some(held_out) = held_out {
            self.check(held_out)?;
        }
        let device = self.device()?;
        let steps = self.known_steps(data, held_out, &device)?;
        let forecast = self.forecast_of(&steps)?;
        self.check_budget(&forecast)?;
        let mut session = Session::new(device, steps, self.budget, self.seed)?;
        for (name, values) in &self.weights {
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
            session.set_state(name, &bytes)?;
        }
        Ok((session, forecast))
    }

    /// The steps whose shapes are known before training, compiled: of full batches, of the last batch of an
    /// epoch, of evaluation, and of the lengths that sequences are cropped to.
    fn known_steps(
        &self,
        data: &Dataset,
        held_out: Option<&Dataset>,
        device: &CpuDevice,
    ) -> Result<Vec<(Shapes, Compiled)>> {
        let largest = self.largest(data);
        let mut wanted = vec![largest];
        match &self.lengths {
            Some(lengths) => {
                // A shorter step can need a larger workspace; trying some lengths finds that out before training.
                let step = (lengths.end() - lengths.start() + 1).div_ceil(LENGTHS_TRIED).max(1);
                wanted.extend(lengths.clone().step_by(step).map(|l| Shapes { length: Some(l), ..largest }));
            }
            None => {
                wanted.extend(self.remainder(data, true));
                if let Some(held_out) = held_out {
                    let samples = self.batch.min(held_out.samples());
                    wanted.push(Shapes { samples, ..self.shapes(1, 0, false) });
                    wanted.extend(self.remainder(held_out, false));
                }
            }
        }
        let mut steps: Vec<(Shapes, Compiled)> = vec![];
        for shapes in wanted {
            if steps.iter().all(|(known, _)| *known != shapes) {
                steps.push((shapes, self.compile(data, shapes, device)?));
            }
        }
        Ok(steps)
    }

    /// The forecast of the step that needs the most.
    fn forecast_of(&self, steps: &[(Shapes, Compiled)]) -> Result<Forecast> {
        // Of steps that need the same, the first: that of a full batch.
        let most = steps.iter().map(|(_, c)| c).rev().max_by_key(|c| c.plan.peak_bytes);
        most.map(Forecast::of).ok_or_else(|| Error::new(ErrorKind::Argument, "there are no steps to run"))
    }

    /// The metrics on a data set with the present weights.
    fn evaluate(&self, session: &mut Session<Shapes>, data: &Dataset) -> Result<BTreeMap<String, f64>> {
        let mut cropped = Cropped::new(data.fields(), self.batch);
        let mut sums = [0.0; 2];
        for batch in data.batches(self.batch)?.epoch(0) {
            let shapes = Shapes { samples: batch.samples(), ..self.shapes(1, 0, false) };
            self.ensure(session, data, shapes)?;
            let values = run_batch(session, shapes, &batch, &mut cropped)?;
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += f64::from(value) * batch.samples() as f64;
            }
        }
        let mean = |sum: f64| sum / data.samples() as f64;
        let mut metrics = BTreeMap::from([("loss".to_string(), mean(sums[0]))]);
        if self.accuracy {
            metrics.insert("accuracy".into(), mean(sums[1]));
        }
        Ok(metrics)
    }

    /// Compiles and loads a step if that has not been done.
    pub(crate) fn ensure(&self, session: &mut Session<Shapes>, data: &Dataset, shapes: Shapes) -> Result<()> {
        if session.has(&shapes) {
            return Ok(());
        }
        let compiled = self.compile(data, shapes, session.device())?;
        session.add(shapes, compiled)
    }

    /// Traces, lowers and plans the step for some shapes.
    fn compile(&self, data: &Dataset, shapes: Shapes, device: &CpuDevice) -> Result<Compiled> {
        let mut step = self.trace(data, Shapes { training: true, ..shapes })?;
        if !shapes.training {
            let training = step;
            step = self.trace(data, shapes)?;
            adopt_states(&mut step, &training)?;
        }
        Compiled::new(step, device)
    }

    fn trace(&self, data: &Dataset, shapes: Shapes) -> Result<Step> {
        let [input, target] = data.fields() else {
            let names: Vec<&str> = data.fields().iter().map(Field::name).collect();
            let message = format!(
                "a data set to train on has two fields, the input and the target; this one has {} ({})",
                names.len(),
                names.join(", ")
            );
            return Err(Error::new(ErrorKind::Data, message));
        };
        let cx = Context::trace(shapes.training, self.precision);
        // First, so that it lies at the same offset whether the model draws random numbers or not.
        cx.declare_random_state()?;
        let x = cx.input(input.name(), &batch_shape(input, shapes), dtype(input))?;
        let y = cx.target(target.name(), &batch_shape(target, shapes), dtype(target))?;
        let prediction = self.model.forward(&cx, &x)?;
        let loss = self.loss.of(&prediction, &y)?;
        cx.output("loss", &loss)?;
        if self.accuracy {
            cx.output("accuracy", &metric::accuracy(&prediction, &y)?)?;
        }
        if shapes.training {
            cx.minimise(&loss, &self.optimizer)?;
        }
        cx.take_step()
    }

    /// Refuses data that cannot be trained on, where it is at hand to be looked at.
    fn check(&self, data: &Dataset) -> Result<()> {
        if self.batch == 0 {
            return Err(Error::new(ErrorKind::Argument, "a batch of 0 samples; use at least 1"));
        }
        self.check_lengths(data)?;
        if data.resident_bytes() == 0 {
            // Nothing is stored: samples are made on the fly, of finite numbers and valid classes.
            return Ok(());
        }
        data.check()?;
        if self.loss == Loss::SparseCrossEntropy && data.fields().len() == 2 {
            let cx = Context::trace(false, self.precision);
            let (input, shapes) = (&data.fields()[0], self.shapes(1, 0, false));
            let x = cx.input(input.name(), &batch_shape(input, shapes), dtype(input))?;
            let logits = self.model.forward(&cx, &x)?;
            if let Some(&classes) = logits.shape().last() {
                data.check_labels(data.fields()[1].name(), classes)?;
            }
        }
        Ok(())
    }

    /// Refuses lengths that the data's sequences do not have.
    fn check_lengths(&self, data: &Dataset) -> Result<()> {
        let Some(lengths) = &self.lengths else { return Ok(()) };
        let longest = data.fields().iter().filter_map(|f| f.shape().first()).min().copied().unwrap_or(0);
        if *lengths.start() > 0 && !lengths.is_empty() && *lengths.end() <= longest {
            return Ok(());
        }
        let (start, end) = (lengths.start(), lengths.end());
        let message =
            format!("lengths {start} to {end} of sequences of {longest}: give 1 or more, up to that");
        Err(Error::new(ErrorKind::Argument, message))
    }

    fn check_budget(&self, forecast: &Forecast) -> Result<()> {
        match self.budget {
            Some(budget) if forecast.peak_bytes > budget => {
                let message = format!(
                    "training takes {} ({} bytes), which is over the budget of {} ({budget} bytes); at the peak:\n{}\
                     use a smaller batch or model, or raise the budget",
                    format_bytes(forecast.peak_bytes),
                    forecast.peak_bytes,
                    format_bytes(budget),
                    forecast.ledger
                );
                Err(Error::new(ErrorKind::Budget, message))
            }
            _ => Ok(()),
        }
    }

    fn device(&self) -> Result<CpuDevice> {
        Ok(CpuDevice::new(self.threads)?)
    }

    pub(crate) fn batch_size(&self) -> usize {
        self.batch
    }

    /// The shapes of the step numbered `step` on that many samples.
    pub(crate) fn shapes(&self, samples: usize, step: usize, training: bool) -> Shapes {
        let length = self.lengths.as_ref().map(|lengths| {
            let choices = (lengths.end() - lengths.start() + 1) as u64;
            let word = random::block(self.seed, step as u64, LENGTHS, 0)[0];
            let drawn = (u64::from(word) * choices) >> 32;
            if training { lengths.start() + drawn as usize } else { *lengths.end() }
        });
        Shapes { samples, length, training }
    }

    /// The shapes of the largest training step.
    pub(crate) fn largest(&self, data: &Dataset) -> Shapes {
        let samples = self.batch.min(data.samples());
        Shapes { samples, length: self.lengths.as_ref().map(|l| *l.end()), training: true }
    }

    /// The shapes of a last batch that is not full, if there is one.
    fn remainder(&self, data: &Dataset, training: bool) -> Option<Shapes> {
        let samples = data.samples() % self.batch;
        (samples > 0).then_some(Shapes { samples, ..self.shapes(1, 0, training) })
    }
}

/// How many lengths are tried before training.
const LENGTHS_TRIED: usize = 32;

/// The stream that lengths are drawn from: one that no op and no parameter has.
const LENGTHS: u64 = 1 << 30;

/// Runs a step on a batch and returns its loss and, if there is one, its accuracy.
pub(crate) fn run_batch(
    session: &mut Session<Shapes>,
    shapes: Shapes,
    batch: &Batch<'_>,
    cropped: &mut Cropped,
) -> Result<[f32; 2]> {
    let mut values = [0.0; 2];
    session.run(
        &shapes,
        |field, out| cropped.read(batch, field, shapes.length, out),
        |index, bytes| {
            if let (Some(value), Ok(number)) = (values.get_mut(index), bytes.try_into()) {
                *value = f32::from_ne_bytes(number);
            }
        },
    )?;
    Ok(values)
}

/// Reads batches, cropping sequences to a length: the first axis of a sample is time.
pub(crate) struct Cropped {
    fields: Vec<Field>,
    whole: Vec<u8>,
}

impl Cropped {
    pub(crate) fn new(fields: &[Field], batch: usize) -> Cropped {
        let largest = fields.iter().map(Field::bytes).max().unwrap_or(0);
        Cropped { fields: fields.to_vec(), whole: vec![0; largest * batch] }
    }

    fn read(&mut self, batch: &Batch<'_>, field: usize, length: Option<usize>, out: &mut [u8]) -> Result<()> {
        let of = &self.fields[field];
        match (length, of.shape().first()) {
            (Some(length), Some(&whole)) if length < whole => {
                let read = batch.read(field, &mut self.whole)?;
                let (row, kept) = (of.bytes(), of.bytes() / whole * length);
                for (from, to) in self.whole[..read].chunks_exact(row).zip(out.chunks_exact_mut(kept)) {
                    to.copy_from_slice(&from[..kept]);
                }
            }
            _ => {
                batch.read(field, out)?;
            }
        }
        Ok(())
    }
}

fn diverged(loss: f32, step: usize, epoch: usize) -> Error {
    let message = format!(
        "the loss is {loss} in step {} of epoch {}: training has diverged; lower the learning rate, clip \
         gradients, or look for inputs outside of the range the model expects",
        step + 1,
        epoch + 1
    );
    Error::new(ErrorKind::Diverged, message)
}

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

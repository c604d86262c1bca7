//! The trainer: a model, a loss, an optimizer and a budget, from forecast to trained weights.

mod advice;
mod buckets;
mod fitting;
mod frontier;
mod runner;
mod steps;

pub use buckets::Buckets;
pub(crate) use runner::Runner;

use crate::compile::Compiled;
use crate::forecast::Forecast;
use crate::layers::Layer;
use crate::loss::Loss;
use crate::remedy::Remedy;
use crate::run::{Clock, LossScale, RunReport, Trained};
use crate::session::Session;
use crate::target::Target;
use crate::{
    Device, Error, ErrorKind, Optimizer, Precision, PredictedVsActual, Result, devices, memory_trace,
};
use fitting::Plans;
use plimsoll_cpu::CpuDevice;
use plimsoll_cuda::{CudaDevice, DeviceId};
use plimsoll_data::Dataset;
use plimsoll_graph::Step;
use plimsoll_memory::{Ledger, TraceFile};
use plimsoll_plan::Profile;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::rc::Rc;
use steps::Shapes;

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
    micro_batches: usize,
    length: Duration,
    seed: u64,
    precision: Precision,
    budget: Option<u64>,
    exact: bool,
    plan_seconds: f64,
    profile: Option<Profile>,
    device: Device,
    threads: Option<usize>,
    lengths: Option<RangeInclusive<usize>>,
    batches: Vec<usize>,
    buckets: Option<Buckets>,
    accuracy: bool,
    shuffle: bool,
    weights: BTreeMap<String, Vec<f32>>,
}

/// The name of the profile of the machine that runs.
const CPU: &str = "cpu";

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
    /// What the run holds.
    pub memory: RunMemory,
}

/// What a run holds of memory.
#[derive(Debug, Clone, Copy)]
pub struct RunMemory {
    /// What the arena's bytes are for when the most of them live in a step.
    pub peak: Ledger,
    /// The same on average over the step's kernels.
    pub mean: Ledger,
    /// The bytes of the arena now.
    pub arena_bytes: u64,
    /// Host memory for what is kept there between its uses.
    pub host_bytes: u64,
    /// The budget, if there is one.
    pub budget_bytes: Option<u64>,
    /// By how much the arena has grown since the first step.
    pub grown_bytes: u64,
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
            micro_batches: 1,
            length: Duration::Epochs(10),
            seed: 0,
            precision: Precision::F32,
            budget: None,
            exact: false,
            plan_seconds: 0.0,
            profile: None,
            device: Device::Cpu,
            threads: None,
            lengths: None,
            batches: vec![],
            buckets: None,
            shuffle: true,
            weights: BTreeMap::new(),
        }
    }

    /// How parameters follow their gradients.
    pub fn optimizer(mut self, optimizer: Optimizer) -> Self {
        self.optimizer = optimizer;
        self
    }

    /// Samples in a step.
    pub fn batch(mut self, samples: usize) -> Self {
        self.batch = samples;
        self
    }

    /// Runs each step in at most so many parts, one after another, that add up gradients for one update. A part has
    /// the samples of the batch over `parts`, rounded up, so that its activations take as much less. The step stays the
    /// same up to rounding, but for layers that normalise by statistics of their batch ([`crate::layers::BatchNorm`]):
    /// they see those of the part.
    pub fn micro_batches(mut self, parts: usize) -> Self {
        self.micro_batches = parts;
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

    /// Whether to fit the budget by exact remedies alone: what is trained is then the same to the bit as without
    /// one. Else a batch may also be split into micro-batches, which sums in another order.
    pub fn exact(mut self, exact: bool) -> Self {
        self.exact = exact;
        self
    }

    /// How long to look for better plans of each step if there is a budget: without this, about as long as it takes
    /// to find good ones.
    pub fn plan_seconds(mut self, seconds: f64) -> Self {
        self.plan_seconds = seconds;
        self
    }

    /// Trains on a CUDA device of this machine instead of its CPU, and plans for it.
    pub fn cuda(self, device: DeviceId) -> Self {
        self.on(Device::Cuda(device))
    }

    /// Trains on a device of this machine, and plans for it: on the CPU unless this says otherwise.
    pub fn on(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// The device to forecast for. Training runs on this machine, by whose device's profile times are weighed when a
    /// budget is to be met: that of the name `cpu`, or the one that is known of its CUDA device.
    pub fn device(mut self, profile: Profile) -> Self {
        self.profile = Some(profile);
        self
    }

    /// How many threads to compute on; where the device is not the CPU, to draw first weights on.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Crops the sequences of each step to a length drawn from this range.
    pub fn lengths(mut self, lengths: RangeInclusive<usize>) -> Self {
        self.lengths = Some(lengths);
        self
    }

    /// Trains each step on a number of samples that is drawn from these: the first so many of a batch.
    pub fn batches(mut self, samples: impl Into<Vec<usize>>) -> Self {
        self.batches = samples.into();
        self
    }

    /// Pads the sequences of each step to the smallest of some lengths that holds them, so that no more steps than these
    /// are compiled: `buckets(32)` for multiples of 32, or `buckets([64, 128, 256])`. Without this every length has a
    /// step of its own, made when it first comes up.
    ///
    /// Padding is masked: what is trained is the same up to rounding, but that dropout draws other numbers. It takes
    /// integer labels for every token and a model in which a token depends on none after it: attention that is not
    /// causal and statistics of the batch are refused, other such models are not recognised.
    pub fn buckets(mut self, buckets: impl Into<Buckets>) -> Self {
        self.buckets = Some(buckets.into());
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
        self.trace(data, self.largest(data, 1))
    }

    /// What training on `data` will take, before anything runs.
    ///
    /// # Errors
    /// If the model does not take the data.
    pub fn forecast(&self, data: &Dataset) -> Result<Forecast> {
        self.check_batch()?;
        self.check_lengths(data)?;
        let (mut plans, fit) = self.plans(data, self.target()?)?;
        let seconds = fit.seconds;
        let steps = self.known_steps(data, None, &mut plans, fit.largest)?;
        self.forecast_of(data, &steps, &plans, seconds)
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
        let (mut runner, forecast, Memory { mean, trace }) = self.open(data, held_out)?;
        let batches = data.batches(self.batch)?;
        let batches = if self.shuffle { batches.shuffled(self.seed) } else { batches };
        let per_epoch = batches.per_epoch();
        let (epochs, steps) = match self.length {
            Duration::Epochs(epochs) => (epochs, epochs * per_epoch),
            Duration::Steps(steps) => (steps.div_ceil(per_epoch.max(1)), steps),
        };
        let mut losses = Vec::with_capacity(steps);
        let mut clock = Clock::start();
        let mut first = None;
        let mut ended = |runner: &mut Runner<'_>| {
            while let Some([loss, _]) = runner.ended() {
                let epoch = losses.len() / per_epoch.max(1);
                if !loss.is_finite() {
                    return Err(diverged(loss, losses.len(), epoch));
                }
                losses.push(loss);
                clock.step_done();
                let arena_bytes = runner.session().arena_bytes();
                let (_, first_bytes) = *first.get_or_insert((runner.session().reservations(), arena_bytes));
                watch(&Progress {
                    epoch: epoch + 1,
                    epochs,
                    step: losses.len(),
                    steps,
                    loss,
                    steps_per_second: clock.steps_per_second(),
                    memory: RunMemory {
                        peak: forecast.ledger,
                        mean,
                        arena_bytes,
                        host_bytes: forecast.host_bytes,
                        budget_bytes: self.budget,
                        grown_bytes: arena_bytes - first_bytes,
                    },
                });
            }
            Ok(())
        };
        for (number, batch) in
            (0..epochs).flat_map(|epoch| batches.epoch(epoch as u64)).take(steps).enumerate()
        {
            runner.train(&batch, number)?;
            ended(&mut runner)?;
        }
        runner.finish()?;
        ended(&mut runner)?;
        let steps_per_second = clock.steps_per_second();
        let mut final_metrics = BTreeMap::new();
        if let Some(held_out) = held_out {
            final_metrics = runner.evaluate(held_out)?;
        } else if let Some(&last) = losses.last() {
            final_metrics.insert("loss".into(), f64::from(last));
        }
        let session = runner.session();
        let report = RunReport {
            predicted_peak_bytes: forecast.peak_bytes,
            arena_bytes: session.arena_bytes(),
            allocations_after_first_step: session.reservations()
                - first.map_or(session.reservations(), |(reservations, _)| reservations),
            ledger: forecast.ledger,
            losses,
            steps_per_second,
            final_metrics,
            batch: self.batch,
            micro_batches: forecast.micro_batches,
            budget_bytes: self.budget,
            remedies: forecast.remedies,
            host_bytes: forecast.host_bytes,
            seed: self.seed,
            device: self.device.to_string(),
            threads: runner.threads(),
            precision: self.precision.to_string(),
            loss_scale: LossScale::of(session)?,
            device_use: PredictedVsActual::of(forecast.device_use, session.books()),
        };
        Trained::new(report, trace, session)
    }

    /// What runs a fit: every step whose shape is known beforehand compiled, the arena reserved, the
    /// first weights in place. And what it will take, as a forecast and, of the step that needs the most, in detail.
    pub(crate) fn open<'a>(
        &'a self,
        data: &'a Dataset,
        held_out: Option<&Dataset>,
    ) -> Result<(Runner<'a>, Forecast, Memory)> {
        self.check(data)?;
        if let Some(held_out) = held_out {
            self.check(held_out)?;
        }
        let target = self.here()?;
        let (mut plans, fit) = self.plans(data, target)?;
        let seconds = fit.seconds;
        let steps = self.known_steps(data, held_out, &mut plans, fit.largest)?;
        let forecast = self.forecast_of(data, &steps, &plans, seconds)?;
        let most = most_of(&steps)?;
        let memory = Memory {
            mean: memory_trace::mean_ledger(most),
            trace: memory_trace::of_plan(most, self.budget, plans.choice.micro_batches),
        };
        let host = plans.target.host(self.threads)?;
        let machine = |bytes| plans.target.machine(bytes, self.budget);
        let mut session = Session::new(machine, steps, &host, self.seed)?;
        for (name, values) in &self.weights {
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
            session.set_state(name, &bytes)?;
        }
        Ok((Runner::new(self, data, plans, session, host), forecast, memory))
    }

    /// The forecast of the step that needs the most, with what is done to all of them.
    fn forecast_of(
        &self,
        data: &Dataset,
        steps: &[(Shapes, Compiled)],
        Plans { target, choice, .. }: &Plans,
        step_seconds: f64,
    ) -> Result<Forecast> {
        let most = most_of(steps)?;
        let largest = &steps[0].1;
        let kernels = |compiled: &Compiled| compiled.plan.order.len() as u64;
        let loaded: u64 = steps.iter().map(|(_, compiled)| kernels(compiled)).sum();
        let later = self.later_steps(data, steps, choice.micro_batches) as u64 * kernels(largest);
        Ok(Forecast {
            device_use: target.device_use(most.plan.peak_bytes, loaded + later)?,
            remedies: Remedy::list(&largest.remedies, choice.micro_batches, choice.chunked),
            micro_batches: choice.micro_batches,
            host_bytes: steps.iter().map(|(_, c)| c.plan.host_bytes).max().unwrap_or(0),
            step_seconds,
            ..Forecast::of(most)
        })
    }

    /// Refuses data that cannot be trained on, where it is at hand to be looked at.
    fn check(&self, data: &Dataset) -> Result<()> {
        self.check_batch()?;
        self.check_lengths(data)?;
        if data.resident_bytes() == 0 {
            // Nothing is stored: samples are made on the fly, of finite numbers and valid classes.
            return Ok(());
        }
        data.check()?;
        if self.loss == Loss::SparseCrossEntropy
            && data.fields().len() == 2
            && let Some(&classes) = self.prediction_shape(data)?.last()
        {
            data.check_labels(data.fields()[1].name(), classes)?;
        }
        Ok(())
    }

    /// Refuses batches that there are not.
    fn check_batch(&self) -> Result<()> {
        let message = match (self.batch, self.micro_batches) {
            (0, _) => "a batch of 0 samples; use at least 1".into(),
            (_, 0) => "a step of 0 micro-batches; use at least 1, which is the whole batch".into(),
            (batch, parts) if parts > batch => {
                format!(
                    "a batch of {batch} samples cannot be run as {parts} micro-batches; use at most {batch}"
                )
            }
            (batch, _) => match self.batches.iter().find(|&&samples| samples == 0 || samples > batch) {
                Some(samples) => {
                    format!("{samples} samples of a batch of {batch}; use at least 1, and no more than that")
                }
                None => return Ok(()),
            },
        };
        Err(Error::new(ErrorKind::Argument, message))
    }

    /// Refuses lengths that the data's sequences do not have, and buckets that do not go with them.
    fn check_lengths(&self, data: &Dataset) -> Result<()> {
        let Some(lengths) = &self.lengths else { return self.check_buckets(data) };
        let longest = data.fields().iter().filter_map(|f| f.shape().first()).min().copied().unwrap_or(0);
        if *lengths.start() > 0 && !lengths.is_empty() && *lengths.end() <= longest {
            return self.check_buckets(data);
        }
        let (start, end) = (lengths.start(), lengths.end());
        let message =
            format!("lengths {start} to {end} of sequences of {longest}: give 1 or more, up to that");
        Err(Error::new(ErrorKind::Argument, message))
    }

    /// The device that is planned for.
    pub(crate) fn target(&self) -> Result<Target> {
        match &self.profile {
            Some(profile) if profile.name != CPU => Ok(Target::described(profile.clone(), self.plan_seconds)),
            _ => self.here(),
        }
    }

    /// The device of this machine that runs, with the profile that was given for it or the one that is known.
    fn here(&self) -> Result<Target> {
        if let Device::Cuda(id) = self.device {
            let device = CudaDevice::open(id)?;
            if self.precision == Precision::Tf32 {
                device.allow_tf32(true)?;
            }
            let profile = match &self.profile {
                Some(profile) => profile.clone(),
                None => devices::of_cuda(id)?,
            };
            return Ok(Target::cuda(device, profile, self.plan_seconds));
        }
        let device = CpuDevice::new(self.threads)?;
        let profile = match self.profile.clone().filter(|profile| profile.name == CPU) {
            Some(profile) => profile,
            None => devices::find(CPU)?,
        };
        Ok(Target::cpu(device, profile, self.plan_seconds))
    }

    pub(crate) fn batch_size(&self) -> usize {
        self.batch
    }
}

/// What the step that needs the most does with memory.
pub(crate) struct Memory {
    mean: Ledger,
    trace: TraceFile,
}

/// The step that needs the most memory. Of those that need the same, the first: that of a full batch.
fn most_of(steps: &[(Shapes, Compiled)]) -> Result<&Compiled> {
    let most = steps.iter().map(|(_, c)| c).rev().max_by_key(|c| c.plan.peak_bytes);
    most.ok_or_else(|| Error::new(ErrorKind::Argument, "there are no steps to run"))
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

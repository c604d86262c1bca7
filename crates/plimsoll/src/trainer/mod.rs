//! The trainer: a model, a loss, an optimizer and a budget, from forecast to trained weights.

mod advice;
mod batch_reader;
mod buckets;
mod report;
mod steps;
mod training;

pub use buckets::Buckets;
pub use report::{LossScale, Trained, TrainingReport, Weight};
pub use training::Training;

use crate::forecast::Forecast;
use crate::forecast::frontier::{FrontierReport, MaxBatch};
use crate::layers::Layer;
use crate::loss::Loss;
use crate::{DeviceName, Error, ErrorKind, Optimizer, Precision, Result};
use plimsoll_data::Dataset;
use plimsoll_memory::Ledger;
use plimsoll_plan::Profile;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::rc::Rc;

/// Trains a model on a data set within a budget.
///
/// The data set's first field is the model's input, its second the target the loss compares with.
///
/// ```
/// use plimsoll::layers::{Activation, Dense, Flatten, Sequential};
/// use plimsoll::loss::Loss;
/// use plimsoll::{Optimizer, RunFolder, Trainer, data};
///
/// let data = data::Dataset::new(data::digits())?.split(0.8, 1)?;
/// let model = Sequential::new()
///     .then(Flatten)
///     .then(Dense::new(32).activation(Activation::Relu))
///     .then(Dense::new(10));
/// let trainer = Trainer::new(model, Loss::SparseCrossEntropy, Optimizer::adam(3e-3))
///     .budget(1 << 20)
///     .epochs(3);
/// let mut training = trainer.compile(&data.train, Some(&data.held_out))?;
/// println!("{}", training.forecast());
/// let report = training.fit(&mut |_| {})?;
/// assert!(report.final_metrics["accuracy"] > 0.8);
/// # let folder = std::env::temp_dir().join(format!("plimsoll-doc-trainer-{}", std::process::id()));
/// training.save(&report, &mut RunFolder::open(&folder)?)?;
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Trainer {
    model: Rc<dyn Layer>,
    loss: Loss,
    optimizer: Optimizer,
    pub(crate) batch: usize,
    micro_batches: usize,
    length: TrainingLength,
    seed: u64,
    precision: Precision,
    budget: Option<u64>,
    spill: Option<PathBuf>,
    exact: bool,
    plan_seconds: f64,
    profile: Option<Profile>,
    device: DeviceName,
    threads: Option<usize>,
    winograd: bool,
    lengths: Option<RangeInclusive<usize>>,
    batches: Vec<usize>,
    buckets: Option<Buckets>,
    accuracy: bool,
    shuffle: bool,
    weights: BTreeMap<String, Vec<f32>>,
}

/// How long to train.
#[derive(Debug, Clone, Copy)]
enum TrainingLength {
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
            length: TrainingLength::Epochs(10),
            seed: 0,
            precision: Precision::F32,
            budget: None,
            spill: None,
            exact: false,
            plan_seconds: 0.0,
            profile: None,
            device: DeviceName::default(),
            threads: None,
            winograd: true,
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
        self.length = TrainingLength::Epochs(epochs);
        self
    }

    /// How many steps to train, instead of epochs.
    pub fn steps(mut self, steps: usize) -> Self {
        self.length = TrainingLength::Steps(steps);
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

    /// The most bytes that training may take: on the CPU of RAM, for the arena, data that is in memory and the batch that
    /// is read; on a GPU of its memory, for the arena. What the program itself takes is told beside it in the forecast:
    /// some 10 MiB on the CPU, the driver's context on a GPU.
    pub fn budget(mut self, bytes: u64) -> Self {
        self.budget = Some(bytes);
        self
    }

    /// Lets values rest in a file in this folder between their uses, where the budget of a CPU demands it: moving them
    /// within RAM would save none of it. The folder's speed is measured; the file has no name and is gone with the process.
    pub fn spill(mut self, folder: impl Into<PathBuf>) -> Self {
        self.spill = Some(folder.into());
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

    /// Trains on a device of this machine, and plans for it: on the CPU unless this says otherwise.
    pub fn on(mut self, device: DeviceName) -> Self {
        self.device = device;
        self
    }

    /// The profile by which times are weighed when a budget is to be met, in place of the one that is known of the device.
    /// That of a device which is not here is planned for instead: such training can be forecast, and not run.
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = Some(profile);
        self
    }

    /// How many threads to compute on; where the device is not the CPU, to draw first weights on.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Whether Winograd's algorithm computes convolutions on the CPU where it is faster, as it does unless this says
    /// otherwise. Without it they are sums of products, whose errors are relative to the terms of each sum.
    pub fn winograd(mut self, winograd: bool) -> Self {
        self.winograd = winograd;
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

    /// Compiles training on `data`, every step and shape of it; `held_out` is only measured. Nothing is reserved before
    /// training begins.
    ///
    /// # Errors
    /// If the model does not take the data, the device cannot be had, or nothing fits the budget: then the error says
    /// what would.
    pub fn compile<'a>(&self, data: &'a Dataset, held_out: Option<&'a Dataset>) -> Result<Training<'a>> {
        Training::new(self, data, held_out)
    }

    /// What training on `data` will take, before anything runs.
    ///
    /// # Errors
    /// As [`Trainer::compile`].
    pub fn forecast(&self, data: &Dataset, held_out: Option<&Dataset>) -> Result<Forecast> {
        Ok(self.compile(data, held_out)?.forecast())
    }

    /// Trains on `data`; `held_out` is only measured, at the end. `watch` is told of every step. The weights are copied to
    /// be returned; [`Trainer::compile`] gives a training that can be saved from where they are.
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
        let mut training = self.compile(data, held_out)?;
        let report = training.fit(watch)?;
        Ok(Trained { report, weights: training.weights()?, memory: training.memory_trace() })
    }

    /// What training on `data` costs in time at budgets from the least to what it takes without one. Every row is a
    /// budget that gives the peak it shows.
    ///
    /// # Errors
    /// If the model does not take the data.
    pub fn frontier(&self, data: &Dataset, held_out: Option<&Dataset>) -> Result<FrontierReport> {
        let trainer = self.cut_to(data);
        trainer.check_shapes(data)?;
        trainer.run(data, held_out)?.frontier()
    }

    /// The largest batch that fits a budget, with and without remedies. Nothing is run.
    ///
    /// # Errors
    /// If the model does not take the data.
    pub fn max_batch(&self, data: &Dataset, held_out: Option<&Dataset>, budget: u64) -> Result<MaxBatch> {
        if budget == 0 {
            return Err(Error::new(ErrorKind::Argument, "nothing fits a budget of 0 bytes"));
        }
        let limit = LARGEST_BATCH.min(data.samples());
        let target = self.run(data, held_out)?.target()?;
        // Split far enough any batch fits that one sample does: the question is what fits at once.
        let fits = |batch: usize, with_remedies: bool| {
            let trainer = self.clone().batch(batch).micro_batches(1).exact(true);
            trainer.run(data, held_out)?.fits(&target, budget, with_remedies)
        };
        let without = largest(limit, |batch| fits(batch, false))?;
        let with = largest(limit, |batch| fits(batch, true))?;
        Ok(MaxBatch {
            budget_bytes: budget,
            without_remedies: without,
            with_remedies: with.max(without),
            limit,
        })
    }

    /// The same trainer with batches of no more samples than there are.
    pub(crate) fn cut_to(&self, data: &Dataset) -> Trainer {
        let batch = self.batch.min(data.samples().max(1));
        // As many parts as there were samples asked for are as many as there are.
        let all = self.micro_batches <= self.batch;
        let micro_batches = if all { self.micro_batches.min(batch) } else { self.micro_batches };
        Trainer { batch, micro_batches, ..self.clone() }
    }

    /// Refuses data that cannot be trained on, where it is at hand to be looked at.
    fn check_data(&self, data: &Dataset) -> Result<()> {
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

    /// Refuses batches and lengths that there are not.
    fn check_shapes(&self, data: &Dataset) -> Result<()> {
        self.check_batch()?;
        self.check_lengths(data)
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
}

/// Batches beyond this are not tried.
const LARGEST_BATCH: usize = 1 << 20;

/// The largest number up to `limit` for which `fits` holds; 0 if for none. It need not hold for all smaller ones:
/// a product of few rows can take more workspace than one of many.
fn largest(limit: usize, fits: impl Fn(usize) -> Result<bool>) -> Result<usize> {
    let (mut good, mut bad) = (0, limit + 1);
    for batch in (0..).map(|n| 1usize << n).take_while(|&batch| batch <= limit) {
        if fits(batch)? {
            good = batch;
        } else if good > 0 {
            bad = batch;
            break;
        }
    }
    while good > 0 && bad - good > 1 {
        let middle = good.midpoint(bad);
        if fits(middle)? { good = middle } else { bad = middle }
    }
    Ok(good)
}

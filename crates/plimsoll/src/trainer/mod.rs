//! The trainer: a model, a loss, an optimizer and a budget, from forecast to trained weights.

mod advice;
mod batch_reader;
mod buckets;
mod divergence;
mod fit;
mod inference;
mod max_batch;
mod measures;
mod observe;
mod parameters;
mod policy;
mod report;
mod settings;
mod steps;
mod training;

pub use advice::Alternative;
pub use buckets::Buckets;
pub use inference::Inference;
pub use observe::{Control, Observer, Observers, Progress, Saved, Started, Validation};
pub use parameters::Parameters;
pub use policy::{EarlyStopping, Every, ReduceOnPlateau, Watched};
pub use report::{DataWait, Ended, LossScale, Trained, TrainingReport, Weight};
pub use training::Training;

use crate::forecast::Forecast;
use crate::forecast::frontier::FrontierReport;
use crate::forecast::summary::Summary;
use crate::layers::Layer;
use crate::loss::Loss;
use crate::metric::Metric;
use crate::model::frozen::Frozen;
use crate::save::RunFolder;
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
/// let report = training.fit(&mut ())?;
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
    host_budget: Option<u64>,
    limit: Option<u64>,
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
    metrics: Vec<Metric>,
    shuffle: bool,
    frozen: Frozen,
    weights: BTreeMap<String, Vec<f32>>,
    validate: Every,
    checkpoint: Every,
    keep: usize,
    early_stopping: Option<EarlyStopping>,
    reduce_on_plateau: Option<ReduceOnPlateau>,
    keep_best: Option<Watched>,
}

/// What becomes of checkpoints in the folder that training is to write into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Training goes on from the last one that is complete; if there is none, it begins.
    Resume,
    /// Training begins. Checkpoints of training that has ended are removed; those of training that has not are not lost,
    /// but an error.
    Anew,
    /// Training begins, and all checkpoints are removed.
    Over,
}

/// How long to train.
#[derive(Debug, Clone, Copy)]
enum TrainingLength {
    Epochs(usize),
    Steps(usize),
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
    /// What is taken elsewhere: on a GPU the memory of the host that is pinned, on the CPU a file.
    pub host_bytes: u64,
    /// The budget, if there is one.
    pub budget_bytes: Option<u64>,
    /// The budget of the host, if there is one.
    pub host_budget_bytes: Option<u64>,
    /// By how much the arena has grown since the first step.
    pub grown_bytes: u64,
}

impl Trainer {
    /// A trainer of batches of 32 for 10 epochs, with seed 0, in `f32`, on all threads, without a budget.
    pub fn new(model: impl Layer + 'static, loss: Loss, optimizer: Optimizer) -> Trainer {
        Trainer {
            model: Rc::new(model),
            metrics: (loss == Loss::SparseCrossEntropy).then(Metric::accuracy).into_iter().collect(),
            loss,
            optimizer,
            batch: 32,
            micro_batches: 1,
            length: TrainingLength::Epochs(10),
            seed: 0,
            precision: Precision::F32,
            budget: None,
            host_budget: None,
            limit: None,
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
            frozen: Frozen::default(),
            weights: BTreeMap::new(),
            validate: Every::Epoch,
            checkpoint: Every::Seconds(60.0),
            keep: 2,
            early_stopping: None,
            reduce_on_plateau: None,
            keep_best: None,
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
    /// some 14 MiB on the CPU, the driver's context on a GPU.
    pub fn budget(mut self, bytes: u64) -> Self {
        self.budget = Some(bytes);
        self
    }

    /// The most bytes of the host's memory that training on a GPU may pin: for states and activations that rest there between
    /// their uses, and to stage inputs and results. What data and the program itself take of RAM is not pinned and comes
    /// beside it. On the CPU there is no such memory, and this is refused.
    ///
    /// ```
    /// use plimsoll::{Spec, devices};
    /// let trainer = Spec::find("gpt2-124m")?.trainer().profile(devices::find("h200")?);
    /// let (data, _) = Spec::find("gpt2-124m")?.datasets()?;
    /// let forecast = trainer.budget(3 << 30).host_budget(1 << 30).forecast(&data, None)?;
    /// assert!(forecast.host_use.is_some_and(|of| of.bytes() <= 1 << 30));
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    pub fn host_budget(mut self, bytes: u64) -> Self {
        self.host_budget = Some(bytes);
        self
    }

    /// Takes as many bytes as it needs, of the device and of the host, whatever budgets were set before.
    pub fn without_budget(mut self) -> Self {
        (self.budget, self.host_budget) = (None, None);
        self
    }

    /// What of the device's memory may be taken in all, the driver's context and code included, if not all of it: forecasts
    /// then say whether training fits this ([`Forecast::fits`]), and [`Training::alternatives`] what would.
    pub fn limit(mut self, bytes: u64) -> Self {
        self.limit = Some(bytes);
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

    /// What to report beside the loss: of each step's batch while training, and of all held-out data. [`Metric::accuracy`]
    /// for class labels, and nothing for numbers, unless this says otherwise.
    pub fn metrics(mut self, metrics: impl IntoIterator<Item = Metric>) -> Self {
        self.metrics = metrics.into_iter().collect();
        self
    }

    /// Whether samples are seen in another order in every epoch, which they are unless this says no.
    pub fn shuffle(mut self, shuffle: bool) -> Self {
        self.shuffle = shuffle;
        self
    }

    /// Freezes the parameters whose names match one of these patterns, such as `embedding` or `*/bias`: they have no gradient,
    /// no slot and no decay, and batch norms whose parameters are frozen run as in inference.
    pub fn freeze(mut self, patterns: impl IntoIterator<Item = impl Into<Box<str>>>) -> Self {
        self.frozen.frozen.extend(patterns);
        self
    }

    /// Freezes all parameters but those whose names match one of these patterns, whatever [`Trainer::freeze`] says.
    pub fn train_only(mut self, patterns: impl IntoIterator<Item = impl Into<Box<str>>>) -> Self {
        self.frozen.trained.extend(patterns);
        self
    }

    /// First weights by name, in place of drawn ones.
    pub fn weights(mut self, weights: BTreeMap<String, Vec<f32>>) -> Self {
        self.weights = weights;
        self
    }

    /// How often held-out data is measured while training: after every epoch unless this says otherwise. It is measured in the
    /// end in any case.
    pub fn validate(mut self, every: Every) -> Self {
        self.validate = every;
        self
    }

    /// How often training into a folder saves a checkpoint: every minute unless this says otherwise. One more is saved in the
    /// end and when training is interrupted.
    pub fn checkpoint(mut self, every: Every) -> Self {
        self.checkpoint = every;
        self
    }

    /// How many checkpoints are kept, the best one not counted: the last two unless this says otherwise.
    pub fn keep(mut self, checkpoints: usize) -> Self {
        self.keep = checkpoints;
        self
    }

    /// Ends training when a metric of held-out data has been no better than its best `patience` times in a row.
    pub fn early_stopping(mut self, metric: impl Into<Watched>, patience: usize, min_delta: f64) -> Self {
        self.early_stopping = Some(EarlyStopping { watched: metric.into(), patience, min_delta });
        self
    }

    /// Multiplies all rates by `factor` whenever a metric of held-out data has been no better than its best `patience` times
    /// in a row.
    pub fn reduce_on_plateau(mut self, metric: impl Into<Watched>, patience: usize, factor: f64) -> Self {
        self.reduce_on_plateau = Some(ReduceOnPlateau { watched: metric.into(), patience, factor });
        self
    }

    /// Keeps the weights whose metric on held-out data was the best, instead of the last: training into a folder saves a
    /// checkpoint of them.
    pub fn keep_best(mut self, metric: impl Into<Watched>) -> Self {
        self.keep_best = Some(metric.into());
        self
    }

    /// Trains on `data` into a folder, and goes on from its last checkpoint, if it has one: whatever ended the run before, the
    /// weights are those of a run that was never ended, to the bit.
    ///
    /// # Errors
    /// As [`Training::fit_into`].
    pub fn resume(
        &self,
        data: &Dataset,
        held_out: Option<&Dataset>,
        folder: &mut RunFolder,
        observer: &mut dyn Observer,
    ) -> Result<TrainingReport> {
        self.compile(data, held_out)?.fit_into(folder, Start::Resume, observer)
    }

    /// What must be the same for training to go on from a checkpoint, and what may be another, by name.
    fn identity(&self, data: &Dataset) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
        let fields: Vec<String> =
            data.fields().iter().map(|f| format!("{}{:?}", f.name(), f.shape())).collect();
        let settings = [
            ("seed", self.seed.to_string()),
            ("batch", self.batch.to_string()),
            ("precision", self.precision.to_string()),
            ("shuffle", self.shuffle.to_string()),
            ("loss", self.loss.to_string()),
            ("lengths", format!("{:?}", self.lengths)),
            ("batches", format!("{:?}", self.batches)),
            ("buckets", format!("{:?}", self.buckets)),
            ("samples", data.samples().to_string()),
            ("fields", fields.join(", ")),
        ];
        let changeable = [
            ("optimizer", self.optimizer.to_string()),
            ("device", self.device.to_string()),
            ("micro_batches", self.micro_batches.to_string()),
        ];
        let named =
            |pairs: &[(&str, String)]| pairs.iter().map(|(n, v)| (n.to_string(), v.clone())).collect();
        (named(&settings), named(&changeable))
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

    /// What each layer makes of a batch of `data`, and what it takes of memory, down to so many levels of layers within layers.
    ///
    /// ```
    /// use plimsoll::layers::{Dense, Flatten, Sequential};
    /// use plimsoll::{Optimizer, Trainer, data, loss::Loss};
    /// let data = data::Dataset::new(data::digits())?;
    /// let model = Sequential::new().then(Flatten).then(Dense::new(10));
    /// let summary = Trainer::new(model, Loss::SparseCrossEntropy, Optimizer::adam(1e-3)).summary(&data, 1)?;
    /// assert_eq!(summary.total.parameters, 650);
    /// assert_eq!(summary.total.weight_bytes, 4 * 650);
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Trainer::compile`].
    pub fn summary(&self, data: &Dataset, depth: usize) -> Result<Summary> {
        let mut training = self.compile(data, None)?;
        let forecast = training.forecast();
        let run = training.run();
        let traced = self.cut_to(data).traced(data)?.take_unfinished()?;
        let summary = Summary::new(&traced, run.main(), &run.states(), depth);
        let (answer, fits) = (forecast.answer(), forecast.fits());
        Ok(Summary { micro_batches: run.main_parts(), answer, fits, ..summary })
    }

    /// Trains on `data`; `held_out` is only measured, at the end. `observer` is told of every step. The weights are copied to
    /// be returned; [`Trainer::compile`] gives a training that can be saved from where they are.
    ///
    /// # Errors
    /// If the data is empty or has numbers that are not finite or labels out of range, the model does not
    /// take it, the budget does not hold the plan, or a loss is not finite.
    pub fn fit(
        &self,
        data: &Dataset,
        held_out: Option<&Dataset>,
        observer: &mut dyn Observer,
    ) -> Result<Trained> {
        let mut training = self.compile(data, held_out)?;
        let report = training.fit(observer)?;
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

    /// The same trainer with batches of no more samples than there are.
    pub(crate) fn cut_to(&self, data: &Dataset) -> Trainer {
        let batch = self.batch.min(data.samples().max(1));
        // As many parts as there were samples asked for are as many as there are.
        let all = self.micro_batches <= self.batch;
        let micro_batches = if all { self.micro_batches.min(batch) } else { self.micro_batches };
        Trainer { batch, micro_batches, ..self.clone() }
    }

    /// Refuses data that cannot be trained on. What its source vouches for is not read: files are checked as they are read.
    fn check_data(&self, data: &Dataset) -> Result<()> {
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

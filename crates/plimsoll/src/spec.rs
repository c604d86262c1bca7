//! Workloads as TOML files: data, model, loss, optimizer and how to train, in a page that can be read, copied
//! and edited by somebody who does not write Rust.
//!
//! A file is understood in full before anything runs, and whatever is wrong in it is shown with the line, the
//! column and what was expected. The workloads in [`workloads`] are built in.
//!
//! ```toml
//! about = "A small network that reads handwritten digits."
//! loss = "sparse_cross_entropy"    # or cross_entropy, mse, l1, smooth_l1, bce_from_logits
//! metrics = ["accuracy"]
//!
//! [data]
//! kind = "digits"                  # or csv, npy, idx, safetensors, text, synthetic, synthetic-tokens
//!
//! [model]
//! kind = "sequential"              # or gpt, llama, unet, resnet50 and other networks for images
//! layers = [
//!     "flatten",
//!     { dense = 100, activation = "relu" },
//!     { dropout = 0.2 },
//!     { dense = 10 },
//! ]
//!
//! [optimizer]
//! kind = "adam"                    # or adamw, sgd, rmsprop, adagrad
//! rate = 0.001
//!
//! [train]
//! batch = 32
//! epochs = 20                      # or steps
//! held_out = 0.2
//! ```
//!
//! # Keys
//!
//! | section | keys |
//! |---|---|
//! | (top) | `about`; `name`, the file's if left out; `loss`; `metrics`, a list |
//! | `[data]` digits | none |
//! | `[data]` csv | `path`, relative to the file; `label` with `classes`, or `target`; `delimiter`; `decimal`, `","` if fractions follow one; `features`, `ignore`, `columns`; `window`, `horizon`; or `text`, `length`, `words`, `tokenizer` |
//! | `[data]` parquet, arrow | `path`; `label` with `classes`, or `target`; `features`, `ignore`, `columns`; or `text`, `length`, `words`, `tokenizer` |
//! | `[data]` npy | `inputs`, `targets`, .npy files or `"data.npz:x"`; `classes`; `scale`, `channels` |
//! | `[data]` idx | `path`; `labels`, if not named as the images; `classes`; `scale`, `channels`; `missing` |
//! | `[data]` safetensors | `path`; `inputs`, `targets`, names of tensors; `classes`; `scale`, `channels` |
//! | `[data]` text | `path`, with `*` for any characters of a name; `length`; `missing` |
//! | `[data]` synthetic | `samples`; `features`, a shape; `classes`, or `target`, a shape |
//! | `[data]` synthetic-tokens | `samples`, `length`, `vocabulary` |
//! | `[model]` sequential | `layers`, a list |
//! | `[model]` gpt | `layers`, `width`, `heads`, `context`, `vocabulary`, `dropout`, `tied_head` |
//! | `[model]` llama | `layers`, `width`, `heads`, `key_value_heads`, `hidden`, `vocabulary`, `base`, of the rotary positions |
//! | `[model]` unet | `channels`, those of its result; `widths` of its levels; `upsampling`: `"nearest"`, `"bilinear"`, `"transposed"` |
//! | `[model]` resnet18, resnet34, resnet50, resnet101, resnext50, vgg11, vgg16, densenet121, googlenet, mobilenet_v2, mobilenet_v3, efficientnet_b0, convnext_t, vit_b16, vit_s16, mixer_b16, deeplab | `classes` |
//! | `[optimizer]` | `rate`, `warmup`, `schedule`, `weight_decay`, `clip`; and the constants of its `kind` |
//! | `[[optimizer.groups]]` | `match`, patterns; `rate`, `warmup`, `schedule`, `rate_scale`, `weight_decay`, `clip`; or `frozen` |
//! | `[train]` | `batch`, `micro_batches`; `epochs` or `steps`; `seed`, `precision`, `held_out`; `lengths`, `batches`, `buckets`; `budget`, `host_budget`, `spill`, `device`, `winograd`; `validate`, `checkpoint`, `keep`, `keep_best`, `early_stopping`, `reduce_on_plateau`; `freeze`, `train_only`, patterns |
//!
//! `classes` is how many there are, or a list of their names: `classes = ["no", "yes"]` of csv, parquet, arrow, jsonl and
//! tfrecord, whose labels are then texts. Of a table all other columns of numbers are features; or those of
//! `features = ["age", "sex"]`, in this order, wherever they stand; or all but those of `ignore`. `[data.columns]` says of
//! columns what they are: `sex = { categories = ["female", "male"] }` becomes a feature for each name, `""` for empty cells
//! among them; `age = { missing = 30, mean = 29.7, deviation = 14.5 }` says what an empty cell stands for, and what numbers
//! are measured in. A file to predict from may lack the column that is predicted. `plimsoll new NAME --data FILE` writes all
//! this for a file.
//!
//! `text = "review"` reads the text in this column or key, of csv, parquet, arrow, jsonl and tfrecord, in place of features: as
//! `length` tokens, cut or filled up by the token 0. Tokens are bytes; or words, in lower case, hashed into `words` numbers,
//! the vocabulary of an `embedding`; or those of a `tokenizer`, a tokenizer.json. Cells of csv files may go over several lines.
//!
//! `window = 24` makes samples of csv rows that follow one another in time: the features of so many rows, `[24, features]`,
//! those of the column that is predicted included, from which that of the row `horizon` after them is predicted, the next if
//! it is not said. What is held out are the last samples.
//!
//! Files of npy, idx, safetensors and text are read in place and not held, except idx files that gzip packed. Samples are
//! the first axis; with `classes` whole numbers are predicted, else floats. `scale` makes floats from 0 to 1 of bytes,
//! `channels` adds the axis that convolutions need, `missing` is said if there is no such file: how to get it. The tokens
//! of text are its bytes, 256 different ones, in windows of `length`.
//!
//! `precision` is `"f32"`, `"bf16"` or `"f16"`, that of activations ([`crate::Precision`]); in `f16` the loss is scaled
//! by as much as gradients bear. `"tf32"` is `f32` whose matrix products a GPU may round.
//!
//! `budget` is the most memory that training may take, such as `"300MiB"`: on the CPU of RAM, for the arena and the data; on
//! a GPU of its memory, for the arena. `host_budget` is the most that training on a GPU may pin of the host's. `device` says
//! where it runs, `"cpu"` unless it says `"cuda:0"` or another CUDA device ([`crate::DeviceName`]).
//!
//! `lengths = [16, 256]` crops the sequences of each step to a length drawn from this range. Each length has a step of
//! its own, unless `buckets` round lengths up, by padding that is masked: `buckets = 32` to multiples of 32, or
//! `buckets = [64, 128, 256]`. `batches = [8, 12, 16]` trains each step on a number of samples drawn from these, the first
//! of its batch.
//!
//! `validate` says how often held-out data is measured, `checkpoint` how often a checkpoint is saved: `"epoch"`, a number of
//! steps, `"never"`, and of checkpoints also a time such as `"60s"`. `keep` is how many checkpoints stay.
//! `keep_best = "accuracy"` keeps the weights whose metric was the best; `early_stopping = { metric = "loss", patience = 5,
//! min_delta = 0.0 }` ends training, and `reduce_on_plateau = { metric = "loss", patience = 3, factor = 0.1 }` multiplies
//! rates, when a metric of held-out data has been no better than its best so many times in a row.
//!
//! A schedule is `{ cosine = steps }`, `{ linear = steps }`, `{ exponential = factor, every = steps }` or
//! `{ staircase = factor, every = steps }`; a clip `{ norm = limit }` or `{ value = limit }`. Constants are
//! `momentum` and `nesterov` of sgd, `smoothing`, `epsilon` and `momentum` of rmsprop, `beta1`, `beta2` and
//! `epsilon` of adam.
//!
//! Groups are parameters with a rate, decay or clip of their own, by patterns of their names ([`plimsoll_graph::pattern`]):
//! `match = ["*/bias", "*/ln*"]` with `weight_decay = 0`. The first group that matches counts; what a group does not say is as
//! `[optimizer]` has it. `freeze = ["embedding"]` leaves parameters as they are, without gradients and slots, as `frozen =
//! true` in a group does, and `train_only = ["head"]` all others. A pattern that matches nothing is an error.
//!
//! Metrics of classes are `accuracy`, `top_5` (or another number), `perplexity`, `macro_precision`, `macro_recall` and
//! `macro_f1`; of numbers `mae`, `rmse` and `r2`; of two classes, or numbers that are 0 or 1, `auc`, `precision`, `recall` and
//! `f1` ([`crate::metric`]).
//!
//! # Layers
//!
//! A layer is a word, `"flatten"`, `"batch_norm"`, `"layer_norm"`, `"global_mean_pool"` or an activation such as
//! `"relu"`; or a table, whose first key says which. Every table may have a `name` for its weights.
//!
//! | layer | further keys |
//! |---|---|
//! | `dense = units` | `activation`, `init`, `bias` |
//! | `conv = filters` | `window`; `stride`, `padding`, `dilation`, `groups`, `activation`, `init`, `bias` |
//! | `conv1d = filters` | `window`; `stride`, `padding`, `causal`, `dilation`, `groups`, `activation`, `init`, `bias` |
//! | `conv_transpose = filters` | `window`; `stride`, `padding`, `dilation`, `groups`, `activation`, `init`, `bias` |
//! | `max_pool = window`, `mean_pool = window` | `stride`, `padding` |
//! | `dropout = rate` | |
//! | `embedding = vocabulary` | `width`; `init` |
//! | `lstm = width`, `gru = width` | `sequences`, whether all states are returned or the last |
//! | `attention = heads`, `block = heads` | `causal`; of the block, `dropout`; of attention, `key_value_heads`, `rotary`, a base, `bias` |
//! | `group_norm = groups`, `squeeze_excite = channels`, `swiglu = width` | |
//! | `reshape = shape`, `upsample = times` | |
//! | `rescale = factor` | `offset`: what is multiplied by and added, such as deviation and mean of the targets |
//! | `residual = layers` | `projection`, layers |

mod data;
mod layer;
mod model;
mod optimizer;
mod propose;
pub(crate) mod read;
pub(crate) mod suggest;
mod train;
mod workloads;

pub use propose::{Predict, PredictFrom, propose};
pub use workloads::{Workload, workload, workloads};

use crate::layers::{Layer, model as layer_of};
use crate::loss::Loss;
use crate::metric::{Metric, Needs};
use crate::{DType, DeviceName, Error, ErrorKind, Optimizer, Result, Trainer};
use data::{Data, Reads};
use plimsoll_data::Dataset;
use plimsoll_memory::read_text;
use read::{Document, TEXT, Table};
use std::fmt;
use std::path::Path;
use std::rc::Rc;
use train::{Duration, Train};

/// A workload, understood: what to train, on what, and how.
///
/// ```
/// use plimsoll::Spec;
/// let spec = Spec::find("digits")?.batch(64);
/// let (train, held_out) = spec.datasets()?;
/// assert_eq!(train.samples(), 1438);
/// assert!(held_out.is_some());
/// let trainer = spec.trainer();
/// # let _ = trainer;
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Clone)]
pub struct Spec {
    /// What it was read from.
    text: String,
    name: String,
    about: String,
    data: Data,
    model: Rc<dyn Layer>,
    loss: Loss,
    metrics: Vec<Metric>,
    optimizer: Optimizer,
    train: Train,
}

/// More than any workload has. What is larger is some other file.
const MOST_BYTES: u64 = 1 << 20;

impl Spec {
    /// The workload that is built in under this name, or that of the file at this path.
    ///
    /// # Errors
    /// If there is neither, or the file cannot be read or understood.
    pub fn find(name_or_path: &str) -> Result<Spec> {
        if let Some(workload) = workloads().iter().find(|workload| workload.name == name_or_path) {
            return Spec::parse(workload.text, Path::new(&format!("{}.toml", workload.name)));
        }
        let path = Path::new(name_or_path);
        let text = read_text(path, MOST_BYTES).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                let known: Vec<&str> = workloads().iter().map(|workload| workload.name).collect();
                let hint = suggest::hint(&known, name_or_path);
                let message = format!("there is no workload and no file `{name_or_path}`; {hint}");
                Error::new(ErrorKind::File, message)
            }
            _ => Error::new(ErrorKind::File, format!("cannot read {name_or_path}: {error}")).caused_by(error),
        })?;
        Spec::parse(&text, path)
    }

    /// The workload that a text describes. `path` is where it stands, or would: errors name it, what the
    /// text calls files is relative to its folder, and its name is the workload's unless the text has one.
    ///
    /// # Errors
    /// If the text cannot be understood.
    pub fn parse(text: &str, path: &Path) -> Result<Spec> {
        Spec::parse_reading(text, path, None)
    }

    /// The workload that a text describes, on the data of another file than it names.
    ///
    /// # Errors
    /// If the text cannot be understood, or its data is not that of a file.
    pub fn parse_on(text: &str, path: &Path, data: &Path) -> Result<Spec> {
        Spec::parse_reading(text, path, Some(Reads { file: data, has_answer: true }))
    }

    /// The workload that a text describes, on the data of another file, which need not have what is to be predicted: samples
    /// have the model's input alone.
    ///
    /// # Errors
    /// As [`Spec::parse_on`].
    pub fn parse_to_predict(text: &str, path: &Path, data: &Path) -> Result<Spec> {
        Spec::parse_reading(text, path, Some(Reads { file: data, has_answer: false }))
    }

    fn parse_reading(text: &str, path: &Path, reads: Option<Reads<'_>>) -> Result<Spec> {
        let file = path.display().to_string();
        let document = Document { what: "the workload", file: &file, text };
        document.read(|table| Ok(Spec { text: text.to_string(), ..Spec::read(&table, path, reads)? }))
    }

    fn read(table: &Table<'_>, path: &Path, reads: Option<Reads<'_>>) -> Result<Spec> {
        table.only(&["name", "about", "loss", "metrics", "data", "model", "optimizer", "train"])?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let data = Data::read(&table.need_section("data", "[data]")?, folder, reads)?;
        let (optimizer, frozen) = optimizer::read(&table.need_section("optimizer", "[optimizer]")?)?;
        let mut train = Train::read(&table.need_section("train", "[train]")?, &data)?;
        train.freeze.extend(frozen);
        Ok(Spec {
            text: String::new(),
            name: read_name(table, path)?,
            about: table.find("about", TEXT)?.unwrap_or_default(),
            model: model::read(&table.need_section("model", "[model]")?, &data)?,
            loss: read_loss(table, &data)?,
            metrics: read_metrics(table, &data)?,
            optimizer,
            train,
            data,
        })
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text that describes it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text that describes it, with the absolute paths of its files: it can stand anywhere on this machine.
    pub fn text_with_absolute_paths(&self) -> String {
        self.data.with_absolute_paths(&self.text)
    }

    /// What it is, in a line.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// The same workload with another batch size.
    pub fn batch(mut self, batch: usize) -> Spec {
        self.train.batch = batch;
        self
    }

    /// The same workload, trained for so many epochs.
    pub fn epochs(mut self, epochs: usize) -> Spec {
        self.train.duration = Duration::Epochs(epochs);
        self
    }

    /// The same workload, trained for so many steps.
    pub fn steps(mut self, steps: usize) -> Spec {
        self.train.duration = Duration::Steps(steps);
        self
    }

    /// The same workload from another seed.
    pub fn seed(mut self, seed: u64) -> Spec {
        self.train.seed = seed;
        self
    }

    /// The same workload within so many bytes.
    pub fn budget(mut self, bytes: u64) -> Spec {
        self.train.budget = Some(bytes);
        self
    }

    /// The same workload on a device.
    pub fn device(mut self, device: DeviceName) -> Spec {
        self.train.device = device;
        self
    }

    /// The same workload on so many threads.
    pub fn threads(mut self, threads: usize) -> Spec {
        self.train.threads = Some(threads);
        self
    }

    /// The trainer that it describes.
    pub fn trainer(&self) -> Trainer {
        let (model, scalar) = (Rc::clone(&self.model), self.data.has_scalar_target());
        let model = layer_of(move |cx, x| {
            let y = model.forward(cx, x).map_err(|error| match x.dtype() {
                DType::U8 => {
                    let message =
                        format!("{error}; samples are bytes: `scale = true` in [data] makes floats of them");
                    Error::new(error.kind(), message).caused_by(error)
                }
                _ => error,
            })?;
            // The target is one number a sample, [batch]; a last layer of one unit gives [batch, 1].
            match y.shape()[..] {
                [batch, 1] if scalar => y.reshape(&[batch]),
                _ => Ok(y),
            }
        });
        let trainer = Trainer::new(model, self.loss, self.optimizer.clone()).metrics(self.metrics.clone());
        self.train.apply(trainer)
    }

    /// Whether what is predicted are logits of classes.
    pub fn predicts_classes(&self) -> bool {
        self.data.has_classes()
    }

    /// What the classes are called, by number, if the workload names them.
    pub fn class_names(&self) -> Option<&[String]> {
        self.data.class_names()
    }

    /// All samples in their own order, none held out.
    ///
    /// # Errors
    /// As [`Spec::datasets`].
    pub fn all_data(&self) -> Result<Dataset> {
        self.data.load_all()
    }

    /// The samples to train on, and those held out, if any are. Which are held out does not depend on the seed,
    /// so that runs can be compared.
    ///
    /// # Errors
    /// If the data cannot be read, is empty, or holds what no model can be trained on.
    pub fn datasets(&self) -> Result<(Dataset, Option<Dataset>)> {
        self.data.load(self.train.held_out)
    }
}

impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spec")
            .field("name", &self.name)
            .field("data", &self.data)
            .field("loss", &self.loss)
            .field("optimizer", &self.optimizer)
            .field("train", &self.train)
            .finish_non_exhaustive()
    }
}

/// The name, which is that of a folder as well: one folder, whatever the file is called.
fn read_name(table: &Table<'_>, path: &Path) -> Result<String> {
    let plain = |c: char| c.is_alphanumeric() || "-_. ".contains(c);
    let Some(value) = table.value("name") else {
        let stem = path.file_stem().map_or(String::new(), |stem| stem.to_string_lossy().into_owned());
        let name: String = stem.chars().map(|c| if plain(c) { c } else { '_' }).collect();
        let name = name.trim_start_matches(|c: char| !c.is_alphanumeric());
        return Ok(if name.is_empty() { "workload".into() } else { name.into() });
    };
    let name = value.get(TEXT)?;
    if name.starts_with(|c: char| c.is_alphanumeric()) && name.chars().all(plain) {
        return Ok(name);
    }
    Err(value.error(
        "`name` is that of a folder too: expected letters, digits, -, _ and dots, a letter or digit first",
    ))
}

fn read_loss(table: &Table<'_>, data: &Data) -> Result<Loss> {
    let value = table.needed("loss", "a loss, such as \"sparse_cross_entropy\" or \"mse\"")?;
    let loss: Loss = value.named()?;
    match (loss, data.has_classes()) {
        (Loss::SparseCrossEntropy, true) => Ok(loss),
        (Loss::SparseCrossEntropy, false) => {
            Err(value.error("this loss is for classes, but what [data] predicts are numbers; \"mse\" is for those"))
        }
        (_, false) => Ok(loss),
        (_, true) => Err(value.error(
            "this loss is for numbers, but what [data] predicts are classes; \"sparse_cross_entropy\" is for those",
        )),
    }
}

fn read_metrics(table: &Table<'_>, data: &Data) -> Result<Vec<Metric>> {
    let Some(value) = table.value("metrics") else { return Ok(vec![]) };
    let mut metrics: Vec<Metric> = vec![];
    for value in value.list()? {
        let metric: Metric = value.named()?;
        let is_wrong = match metric.needs() {
            Needs::Classes if !data.has_classes() => {
                Some("is for classes, but what [data] predicts are numbers")
            }
            Needs::Numbers if data.has_classes() => {
                Some("is for numbers, but what [data] predicts are classes")
            }
            _ if metrics.iter().any(|known| known.name() == metric.name()) => Some("is there twice"),
            _ => None,
        };
        if let Some(why) = is_wrong {
            return Err(value.error(format!("{metric} {why}")));
        }
        metrics.push(metric);
    }
    Ok(metrics)
}

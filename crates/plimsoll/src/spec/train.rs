//! The `[train]` of a workload: how long, in what steps, within what.

use super::data::Data;
use super::read::{COUNT, FLAG, Kind, NOT_NEGATIVE, PATTERNS, POSITIVE, SHAPE, TEXT, Table, WHOLE};
use crate::{
    Buckets, DeviceName, EarlyStopping, Every, Precision, ReduceOnPlateau, Result, Trainer, Watched,
};
use plimsoll_memory::parse_bytes;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// How to train.
#[derive(Debug, Clone)]
pub(super) struct Train {
    pub(super) batch: usize,
    pub(super) micro_batches: usize,
    /// Whether each epoch has the samples in another order.
    shuffle: bool,
    pub(super) duration: Duration,
    pub(super) seed: u64,
    pub(super) precision: Precision,
    pub(super) held_out: Option<f64>,
    pub(super) lengths: Option<RangeInclusive<usize>>,
    pub(super) batches: Vec<usize>,
    pub(super) buckets: Option<Buckets>,
    pub(super) budget: Option<u64>,
    pub(super) host_budget: Option<u64>,
    pub(super) spill: Option<PathBuf>,
    pub(super) device: DeviceName,
    pub(super) threads: Option<usize>,
    pub(super) winograd: bool,
    pub(super) validate: Option<Every>,
    pub(super) checkpoint: Option<Every>,
    pub(super) keep: Option<usize>,
    pub(super) keep_best: Option<Watched>,
    pub(super) early_stopping: Option<EarlyStopping>,
    pub(super) reduce_on_plateau: Option<ReduceOnPlateau>,
    pub(super) freeze: Vec<String>,
    pub(super) train_only: Vec<String>,
}

/// How long to train.
#[derive(Debug, Clone, Copy)]
pub(super) enum Duration {
    Epochs(usize),
    Steps(usize),
}

const SHARE: Kind<f64> =
    Kind { expected: "a number above 0 and below 1", read: |v| (POSITIVE.read)(v).filter(|&x| x < 1.0) };

const LENGTHS: Kind<RangeInclusive<usize>> = Kind {
    expected: "two whole numbers, the shortest and the longest, such as [16, 256]",
    read: |v| match (SHAPE.read)(v)?[..] {
        [shortest, longest] if shortest <= longest => Some(shortest..=longest),
        _ => None,
    },
};

const FOLDER: Kind<String> = Kind { expected: "the path of a folder in quotes", ..TEXT };

const BUCKETS: Kind<Buckets> = Kind {
    expected: "a whole number, at least 1, whose multiples they are, or a rising list, such as [64, 128, 256]",
    read: |v| match v.as_array() {
        None => (COUNT.read)(v).map(Buckets::Multiples),
        Some(_) => (SHAPE.read)(v).map(Buckets::List),
    },
};

impl Train {
    /// Reads the section of a workload with this data.
    pub(super) fn read(table: &Table<'_>, data: &Data) -> Result<Train> {
        table.only(&[
            "batch",
            "micro_batches",
            "epochs",
            "steps",
            "seed",
            "precision",
            "held_out",
            "lengths",
            "batches",
            "buckets",
            "budget",
            "host_budget",
            "spill",
            "device",
            "winograd",
            "validate",
            "checkpoint",
            "keep",
            "keep_best",
            "early_stopping",
            "reduce_on_plateau",
            "freeze",
            "train_only",
            "shuffle",
        ])?;
        let batch = table.need("batch", COUNT)?;
        let duration = match (table.find("epochs", COUNT)?, table.find("steps", COUNT)?) {
            (Some(epochs), None) => Duration::Epochs(epochs),
            (None, Some(steps)) => Duration::Steps(steps),
            _ => return Err(table.error("[train] needs exactly one of `epochs` and `steps`")),
        };
        let lengths = read_lengths(table, data)?;
        Ok(Train {
            batch,
            micro_batches: read_micro_batches(table, batch)?,
            duration,
            seed: table.find_or("seed", WHOLE, 0)?,
            precision: table.find_named("precision")?.unwrap_or_default(),
            held_out: table.find("held_out", SHARE)?,
            buckets: read_buckets(table, lengths.as_ref())?,
            lengths,
            batches: read_batches(table, batch)?,
            budget: read_bytes(table, "budget")?,
            host_budget: read_bytes(table, "host_budget")?,
            spill: table.find("spill", FOLDER)?.map(PathBuf::from),
            device: table.find_named("device")?.unwrap_or_default(),
            threads: None,
            winograd: table.find_or("winograd", FLAG, true)?,
            validate: read_every(table, "validate")?,
            checkpoint: read_every(table, "checkpoint")?,
            keep: table.find("keep", COUNT)?,
            keep_best: read_watched(table, "keep_best")?,
            early_stopping: read_early_stopping(table)?,
            reduce_on_plateau: read_reduce_on_plateau(table)?,
            freeze: table.find_or("freeze", PATTERNS, vec![])?,
            train_only: table.find_or("train_only", PATTERNS, vec![])?,
            shuffle: table.find_or("shuffle", FLAG, true)?,
        })
    }

    /// The trainer that trains so.
    pub(super) fn apply(&self, mut trainer: Trainer) -> Trainer {
        trainer = trainer.batch(self.batch).micro_batches(self.micro_batches).shuffle(self.shuffle);
        trainer = trainer.seed(self.seed).precision(self.precision).on(self.device).winograd(self.winograd);
        trainer = match self.duration {
            Duration::Epochs(epochs) => trainer.epochs(epochs),
            Duration::Steps(steps) => trainer.steps(steps),
        };
        trainer = trainer.freeze(self.freeze.clone()).train_only(self.train_only.clone());
        if let Some(lengths) = &self.lengths {
            trainer = trainer.lengths(lengths.clone());
        }
        trainer = trainer.batches(self.batches.clone());
        if let Some(buckets) = &self.buckets {
            trainer = trainer.buckets(buckets.clone());
        }
        if let Some(budget) = self.budget {
            trainer = trainer.budget(budget);
        }
        if let Some(bytes) = self.host_budget {
            trainer = trainer.host_budget(bytes);
        }
        if let Some(folder) = &self.spill {
            trainer = trainer.spill(folder);
        }
        if let Some(threads) = self.threads {
            trainer = trainer.threads(threads);
        }
        if let Some(every) = self.validate {
            trainer = trainer.validate(every);
        }
        if let Some(every) = self.checkpoint {
            trainer = trainer.checkpoint(every);
        }
        if let Some(checkpoints) = self.keep {
            trainer = trainer.keep(checkpoints);
        }
        if let Some(watched) = &self.keep_best {
            trainer = trainer.keep_best(watched.clone());
        }
        if let Some(EarlyStopping { watched, patience, min_delta }) = self.early_stopping.clone() {
            trainer = trainer.early_stopping(watched, patience, min_delta);
        }
        if let Some(ReduceOnPlateau { watched, patience, factor }) = self.reduce_on_plateau.clone() {
            trainer = trainer.reduce_on_plateau(watched, patience, factor);
        }
        trainer
    }
}

/// How often something is done: a number of steps, or a word.
fn read_every(table: &Table<'_>, key: &str) -> Result<Option<Every>> {
    let Some(value) = table.value(key) else { return Ok(None) };
    match value.is_text() {
        true => value.named().map(Some),
        false => value
            .get(Kind {
                expected: "a number of steps, \"epoch\", a time such as \"60s\", or \"never\"",
                ..COUNT
            })
            .map(|steps| Some(Every::Steps(steps))),
    }
}

/// A metric of held-out data, of which there must be some.
fn read_watched(table: &Table<'_>, key: &str) -> Result<Option<Watched>> {
    let Some(value) = table.value(key) else { return Ok(None) };
    let metric = value.get(Kind { expected: "a metric in quotes, such as \"loss\"", ..TEXT })?;
    need_held_out(table, key)?;
    Ok(Some(metric.into()))
}

fn read_early_stopping(table: &Table<'_>) -> Result<Option<EarlyStopping>> {
    let Some(value) = table.value("early_stopping") else { return Ok(None) };
    let keys = value.table("`early_stopping`", "a table, such as { metric = \"loss\", patience = 5 }")?;
    keys.only(&["metric", "patience", "min_delta"])?;
    need_held_out(table, "early_stopping")?;
    Ok(Some(EarlyStopping {
        watched: keys.find_or("metric", TEXT, "loss".into())?.into(),
        patience: keys.need("patience", COUNT)?,
        min_delta: keys.find_or("min_delta", NOT_NEGATIVE, 0.0)?,
    }))
}

fn read_reduce_on_plateau(table: &Table<'_>) -> Result<Option<ReduceOnPlateau>> {
    let Some(value) = table.value("reduce_on_plateau") else { return Ok(None) };
    let keys = value
        .table("`reduce_on_plateau`", "a table, such as { metric = \"loss\", patience = 5, factor = 0.1 }")?;
    keys.only(&["metric", "patience", "factor"])?;
    need_held_out(table, "reduce_on_plateau")?;
    Ok(Some(ReduceOnPlateau {
        watched: keys.find_or("metric", TEXT, "loss".into())?.into(),
        patience: keys.need("patience", COUNT)?,
        factor: keys.find_or("factor", SHARE, 0.1)?,
    }))
}

/// Refuses to decide by held-out data where there is none.
fn need_held_out(table: &Table<'_>, key: &str) -> Result<()> {
    match (table.find("held_out", SHARE)?, table.value(key)) {
        (None, Some(value)) => {
            Err(value.error(format!("`{key}` looks at held-out data, and there is none: set `held_out`")))
        }
        _ => Ok(()),
    }
}

fn read_micro_batches(table: &Table<'_>, batch: usize) -> Result<usize> {
    let Some(value) = table.value("micro_batches") else { return Ok(1) };
    match value.get(COUNT)? {
        parts if parts <= batch => Ok(parts),
        parts => {
            Err(value.error(format!("a batch of {batch} samples cannot be run as {parts} micro-batches")))
        }
    }
}

fn read_batches(table: &Table<'_>, batch: usize) -> Result<Vec<usize>> {
    let Some(value) = table.value("batches") else { return Ok(vec![]) };
    let batches = value.get(Kind { expected: "a list of whole numbers, such as [8, 16]", ..SHAPE })?;
    match batches.iter().find(|&&samples| samples == 0 || samples > batch) {
        Some(samples) => Err(value.error(format!(
            "`batches` has {samples}, but each is at least 1 and at most `batch`, which is {batch}"
        ))),
        None => Ok(batches),
    }
}

fn read_lengths(table: &Table<'_>, data: &Data) -> Result<Option<RangeInclusive<usize>>> {
    let Some(value) = table.value("lengths") else { return Ok(None) };
    let lengths = value.get(LENGTHS)?;
    match data.tokens().map(|tokens| tokens.length) {
        Some(length) if *lengths.end() <= length => Ok(Some(lengths)),
        Some(length) => Err(value.error(format!(
            "the longest of `lengths` is {}, but the data's sequences have {length} tokens",
            lengths.end()
        ))),
        None => Err(value.error("`lengths` are those of sequences, which this data does not have")),
    }
}

fn read_buckets(table: &Table<'_>, lengths: Option<&RangeInclusive<usize>>) -> Result<Option<Buckets>> {
    let Some(value) = table.value("buckets") else { return Ok(None) };
    let buckets = value.get(BUCKETS)?;
    let Some(lengths) = lengths else {
        return Err(value.error("`buckets` are what `lengths` are rounded up to, and there are none"));
    };
    match buckets.complaint(*lengths.end()) {
        Some(complaint) => Err(value.error(complaint)),
        None => Ok(Some(buckets)),
    }
}

fn read_bytes(table: &Table<'_>, name: &str) -> Result<Option<u64>> {
    let Some(value) = table.value(name) else { return Ok(None) };
    let text = value.get(Kind { expected: "a size in quotes, such as \"300MiB\"", ..TEXT })?;
    parse_bytes(&text).map(Some).map_err(|error| value.error(error))
}

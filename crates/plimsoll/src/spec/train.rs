//! The `[train]` of a workload: how long, in what steps, within what.

use super::data::Data;
use super::read::{COUNT, FLAG, Kind, POSITIVE, SHAPE, TEXT, Table, WHOLE};
use crate::{Buckets, DeviceName, Precision, Result, Trainer};
use plimsoll_memory::parse_bytes;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// How to train.
#[derive(Debug, Clone)]
pub(super) struct Train {
    pub(super) batch: usize,
    pub(super) micro_batches: usize,
    pub(super) duration: Duration,
    pub(super) seed: u64,
    pub(super) precision: Precision,
    pub(super) held_out: Option<f64>,
    pub(super) lengths: Option<RangeInclusive<usize>>,
    pub(super) batches: Vec<usize>,
    pub(super) buckets: Option<Buckets>,
    pub(super) budget: Option<u64>,
    pub(super) spill: Option<PathBuf>,
    pub(super) device: DeviceName,
    pub(super) threads: Option<usize>,
    pub(super) winograd: bool,
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
            "spill",
            "device",
            "winograd",
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
            budget: read_budget(table)?,
            spill: table.find("spill", FOLDER)?.map(PathBuf::from),
            device: table.find_named("device")?.unwrap_or_default(),
            threads: None,
            winograd: table.find_or("winograd", FLAG, true)?,
        })
    }

    /// The trainer that trains so.
    pub(super) fn apply(&self, mut trainer: Trainer) -> Trainer {
        trainer = trainer.batch(self.batch).micro_batches(self.micro_batches);
        trainer = trainer.seed(self.seed).precision(self.precision).on(self.device).winograd(self.winograd);
        trainer = match self.duration {
            Duration::Epochs(epochs) => trainer.epochs(epochs),
            Duration::Steps(steps) => trainer.steps(steps),
        };
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
        if let Some(folder) = &self.spill {
            trainer = trainer.spill(folder);
        }
        if let Some(threads) = self.threads {
            trainer = trainer.threads(threads);
        }
        trainer
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

fn read_budget(table: &Table<'_>) -> Result<Option<u64>> {
    let Some(value) = table.value("budget") else { return Ok(None) };
    let text = value.get(Kind { expected: "a size in quotes, such as \"300MiB\"", ..TEXT })?;
    parse_bytes(&text).map(Some).map_err(|error| value.error(error))
}

//! A model that a run has trained, as commands are given it: the folder of the run, and data.

use crate::Result;
use crate::target::{Place, count};
use crate::train::WORKLOAD;
use plimsoll::data::Dataset;
use plimsoll::{Spec, Trainer};
use plimsoll_memory::parse_bytes;
use std::path::PathBuf;

/// A trained model and what it is to be given.
#[derive(clap::Args)]
pub(crate) struct TrainedModel {
    /// The folder that `plimsoll train` wrote
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The file with the data, of the kind that the workload names; the data that the workload holds out if not given, or all
    /// of it if it holds out none
    #[arg(value_name = "DATA")]
    data: Option<PathBuf>,
    /// Weights to take instead of those in the folder
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Samples at a time; as in training if not given
    #[arg(long, value_name = "N", value_parser = count)]
    batch: Option<usize>,
    /// Threads to compute on; all there are if not given
    #[arg(long, value_name = "N", value_parser = count)]
    threads: Option<usize>,
    #[command(flatten)]
    place: Place,
    /// The most memory to take, such as 300MiB: on the CPU of RAM, for the arena and the data, on a GPU of its memory, for the
    /// arena; as much as it takes if not given
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    budget: Option<u64>,
}

/// A trained model with its data.
pub(crate) struct Opened {
    pub(crate) spec: Spec,
    pub(crate) trainer: Trainer,
    pub(crate) data: Dataset,
    pub(crate) weights: PathBuf,
}

impl TrainedModel {
    /// The model, and data that is to have what is to be predicted, or need not.
    pub(crate) fn open(&self, has_answer: bool) -> Result<Opened> {
        let path = self.folder.join(WORKLOAD);
        let text = std::fs::read_to_string(&path).map_err(|error| {
            format!("{} cannot be read, so what was trained is not known: {error}", path.display())
        })?;
        let spec = match &self.data {
            Some(data) if has_answer => Spec::parse_on(&text, &path, data)?,
            Some(data) => Spec::parse_to_predict(&text, &path, data)?,
            None => Spec::parse(&text, &path)?,
        };
        let mut spec = self.place.of(spec);
        if let Some(batch) = self.batch {
            spec = spec.batch(batch);
        }
        if let Some(threads) = self.threads {
            spec = spec.threads(threads);
        }
        let data = match &self.data {
            Some(_) => spec.all_data()?,
            None => match spec.datasets() {
                Ok((all, held_out)) => held_out.unwrap_or(all),
                // The data may have moved since, or be on another machine.
                Err(error) => {
                    return Err(
                        format!("{error}; say which file to read after {}", self.folder.display()).into()
                    );
                }
            },
        };
        // The budget of training has nothing to do with what a model takes that is not trained.
        let mut trainer = spec.trainer().without_budget();
        if let Some(budget) = self.budget {
            trainer = trainer.budget(budget);
        }
        let weights = self.weights.clone().unwrap_or_else(|| self.folder.join("weights.safetensors"));
        Ok(Opened { spec, trainer, data, weights })
    }
}

//! What all commands about a workload have in common: which one, and at what size.

use crate::files::tell_of_waiting;
use plimsoll::{DeviceName, Spec, Trainer, devices};
use plimsoll_memory::parse_bytes;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A workload to train, forecast or measure.
#[derive(clap::Args)]
pub(crate) struct Target {
    /// A workload's name, as `plimsoll workloads` lists them, or the path of a TOML file
    spec: String,
    /// Samples in a step
    #[arg(long, value_name = "N", value_parser = count)]
    batch: Option<usize>,
    /// Threads to compute on; all there are if not given
    #[arg(long, value_name = "N", value_parser = count)]
    threads: Option<usize>,
}

impl Target {
    pub(crate) fn spec(&self) -> plimsoll::Result<Spec> {
        tell_of_waiting(Path::new(&self.spec));
        let mut spec = Spec::find(&self.spec)?;
        if let Some(batch) = self.batch {
            spec = spec.batch(batch);
        }
        if let Some(threads) = self.threads {
            spec = spec.threads(threads);
        }
        Ok(spec)
    }
}

/// Where a run is to run.
#[derive(clap::Args)]
pub(crate) struct Place {
    /// The device to run on: cpu, or a CUDA device of this machine, such as cuda:0; the workload's if not given
    #[arg(long, value_name = "DEVICE")]
    device: Option<DeviceName>,
}

impl Place {
    /// The workload, made to run there.
    pub(crate) fn of(&self, spec: Spec) -> Spec {
        match self.device {
            Some(device) => spec.device(device),
            None => spec,
        }
    }
}

/// What a run is planned for.
#[derive(clap::Args)]
pub(crate) struct PlannedFor {
    /// The device to plan for: one that `plimsoll devices` lists, the path of a TOML file, or a CUDA device of this
    /// machine, such as cuda:0, which is asked what its kernels need; the workload's if not given
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
}

impl PlannedFor {
    /// The trainer, made to plan for that.
    pub(crate) fn of(&self, trainer: Trainer) -> plimsoll::Result<Trainer> {
        let Some(name) = &self.device else { return Ok(trainer) };
        // What is no device of this machine is the profile of another.
        match name.parse() {
            Ok(device) => Ok(trainer.on(device)),
            // Whatever device the workload names.
            Err(_) => {
                tell_of_waiting(Path::new(name));
                Ok(trainer.on(DeviceName::default()).profile(devices::find(name)?))
            }
        }
    }
}

/// How a run is to fit.
#[derive(clap::Args)]
pub(crate) struct Fitting {
    /// The most memory that training may take, such as 300MiB: on the CPU of RAM, for the arena and the data; on a GPU of its
    /// memory, for the arena
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) budget: Option<u64>,
    /// The most memory of the host that training on a GPU may pin, such as 8GiB: for states and activations that rest there
    /// between their uses, and to stage inputs and results; not for data, nor the program itself
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    host_budget: Option<u64>,
    /// What of the device's memory there is for training in all, if not all of it: on a GPU with the driver's context and code,
    /// on the CPU with all of the process
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) limit: Option<u64>,
    /// A folder for what does not fit the budget in RAM, in a file between its uses (on the CPU)
    #[arg(long, value_name = "DIR")]
    spill: Option<PathBuf>,
    /// Fit by exact remedies alone: no micro-batches, the same bits as without a budget
    #[arg(long)]
    exact: bool,
    /// How long to look for better plans, if there is a budget
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "0")]
    plan_seconds: Duration,
}

impl Fitting {
    /// The trainer of a workload, made to fit so.
    pub(crate) fn trainer(&self, spec: Spec) -> Trainer {
        let spec = match self.budget {
            Some(budget) => spec.budget(budget),
            None => spec,
        };
        let trainer = match &self.spill {
            Some(folder) => spec.trainer().spill(folder),
            None => spec.trainer(),
        };
        let trainer = match self.host_budget {
            Some(bytes) => trainer.host_budget(bytes),
            None => trainer,
        };
        let trainer = match self.limit {
            Some(limit) => trainer.limit(limit),
            None => trainer,
        };
        trainer.exact(self.exact).plan_seconds(self.plan_seconds.as_secs_f64())
    }
}

/// A time that is not negative.
pub(crate) fn seconds(text: &str) -> std::result::Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if (0.0..1e9).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected a number of seconds, 0 or more".to_string()),
    }
}

/// A number of things, of which there must be one at least.
pub(crate) fn count(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("expected a whole number, at least 1".to_string()),
        Ok(count) => Ok(count),
    }
}

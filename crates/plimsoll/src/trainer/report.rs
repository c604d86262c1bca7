//! What training leaves behind: a report, and the trained weights.

use crate::forecast::memory_trace::{MEMORY_TRACE, memory_trace_bytes};
use crate::forecast::remedy::Remedy;
use crate::save::RunFolder;
use crate::tensor_file::{Described, ShowTensor, write_tensors};
use crate::{DType, Error, ErrorKind, HostUse, PredictedVsActual, Result, Run};
use plimsoll_data::Epoch;
use plimsoll_graph::scaling;
use plimsoll_memory::{Ledger, TraceFile};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// What happened in training.
#[derive(Debug, Clone)]
pub struct TrainingReport {
    /// The peak that was forecast.
    pub predicted_peak_bytes: u64,
    /// The bytes of the arena that was reserved.
    pub arena_bytes: u64,
    /// How often memory was reserved after the first step.
    pub allocations_after_first_step: u64,
    /// What the arena's bytes are for at the peak.
    pub ledger: Ledger,
    /// The loss of each step, before its update.
    pub losses: Vec<f32>,
    /// Steps in a second, the first step left out.
    pub steps_per_second: f64,
    /// How many steps there were to be.
    pub steps: usize,
    /// Why it ended.
    pub ended: Ended,
    /// What else there is to say: checkpoints that could not be used, and what was done instead.
    pub notes: Vec<String>,
    /// The steps that an earlier run had done, where this one went on from its checkpoint.
    pub resumed_from: Option<usize>,
    /// What the metrics of held-out data are called.
    pub metrics: Vec<String>,
    /// Metrics of held-out data, with the steps after which they were measured.
    pub validations: Vec<(usize, Vec<f64>)>,
    /// The step whose weights are kept, where the best are.
    pub best_step: Option<usize>,
    /// Metrics on the held-out data of the weights that are kept; without such data, the last loss.
    pub final_metrics: BTreeMap<String, f64>,
    /// Samples in a step.
    pub batch: usize,
    /// How many parts each step was run in.
    pub micro_batches: usize,
    /// The budget, if there was one.
    pub budget_bytes: Option<u64>,
    /// What was done to fit it.
    pub remedies: Vec<Remedy>,
    /// Host memory for what was kept there between its uses.
    pub host_bytes: u64,
    /// What was pinned of the host's memory in all, where the device is a GPU.
    pub host_use: Option<HostUse>,
    /// The budget of that, if there was one.
    pub host_budget_bytes: Option<u64>,
    /// What the run's random numbers were drawn from.
    pub seed: u64,
    /// The device it ran on.
    pub device: String,
    /// The threads it ran on; those that prepare inputs, where the device is not the CPU.
    pub threads: usize,
    /// The element type that the model computed in.
    pub precision: String,
    /// How the loss was scaled, if it was: in `f16`.
    pub loss_scale: Option<LossScale>,
    /// What was foretold of the device's memory, and what its driver counted in the end, where there is one.
    pub device_use: Option<PredictedVsActual>,
    /// What was foretold of the process's memory, and the most that the system counted, where the device is the CPU.
    pub process_use: Option<PredictedVsActual>,
    /// What was waited for data, where that is known: not where samples are read as they are needed, for a device that runs
    /// beside the host.
    pub data_wait: Option<DataWait>,
}

/// The stage of samples that are read as they are needed.
const IN_PLACE: &str = "read";

/// What was waited for data, and what makes it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DataWait {
    /// The seconds that steps waited for their batches: for those that are put together ahead, until they were there; for
    /// others, while they were read into the step's inputs.
    pub seconds: f64,
    /// The most bytes of RAM that the stages held together, or that the samples occupy.
    pub most_bytes: u64,
    /// The stage that bounds how fast samples come, in the last epoch.
    pub slowest_stage: String,
}

impl DataWait {
    /// Nothing so far, with room for a short name: none is taken after the first step.
    pub(super) fn nothing() -> DataWait {
        DataWait { slowest_stage: String::with_capacity(IN_PLACE.len()), ..DataWait::default() }
    }

    /// Adds what an epoch waited: as it says, or where its samples are read as they are needed, the seconds that inputs took and
    /// the bytes that the samples occupy, if they are known.
    pub(super) fn add(&mut self, epoch: &Epoch<'_>, in_place: Option<(f64, u64)>) {
        match (epoch.report(), in_place) {
            (Some(report), _) => {
                self.seconds += epoch.waited_seconds();
                self.most_bytes = self.most_bytes.max(report.most_bytes);
                if let Some(slowest) = report.slowest() {
                    self.slowest_stage.clone_from(&slowest.name);
                }
            }
            (None, Some((seconds, resident))) => {
                self.seconds += seconds;
                self.most_bytes = self.most_bytes.max(resident);
                IN_PLACE.clone_into(&mut self.slowest_stage);
            }
            (None, None) => {}
        }
    }

    /// It, if it is known of any epoch.
    pub(super) fn into_known(self) -> Option<DataWait> {
        (!self.slowest_stage.is_empty()).then_some(self)
    }

    fn to_json(&self) -> Value {
        json!({ "seconds": self.seconds, "most_bytes": self.most_bytes, "slowest_stage": self.slowest_stage })
    }
}

/// Why training ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// After its last step.
    Finished,
    /// Before it, because its metrics or an observer said so: what is there is the result.
    Stopped(String),
    /// To go on at another time.
    Interrupted(String),
}

impl Ended {
    /// As data: `how`, and `why` where there is a reason.
    pub(crate) fn to_json(&self) -> Value {
        match self {
            Ended::Finished => json!({ "how": "finished" }),
            Ended::Stopped(why) => json!({ "how": "stopped", "why": why }),
            Ended::Interrupted(why) => json!({ "how": "interrupted", "why": why }),
        }
    }
}

/// What became of the scale of a loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LossScale {
    /// The scale after the last step.
    pub last: f32,
    /// How many steps changed nothing but the scale, because a gradient was not finite.
    pub skipped_steps: u64,
}

impl LossScale {
    /// That of a run whose steps scale their losses.
    pub(super) fn of(run: &mut Run) -> Result<Option<LossScale>> {
        if !run.states().iter().any(|state| state.name == scaling::SCALE) {
            return Ok(None);
        }
        let (scale, skipped) = (run.state(scaling::SCALE)?, run.state(scaling::SKIPPED_STEPS)?);
        Ok(Some(LossScale { last: scale.item()?, skipped_steps: skipped.item::<i64>()? as u64 }))
    }
}

impl TrainingReport {
    /// The report as data.
    pub fn to_json(&self) -> Value {
        json!({
            "predicted_peak_bytes": self.predicted_peak_bytes,
            "arena_bytes": self.arena_bytes,
            "allocations_after_first_step": self.allocations_after_first_step,
            "ledger": self.ledger,
            "losses": self.losses,
            "steps": self.losses.len(),
            "planned_steps": self.steps,
            "ended": self.ended.to_json(),
            "notes": self.notes,
            "resumed_from": self.resumed_from,
            "validations": self.validations.iter().map(|(step, values)| {
                let metrics: BTreeMap<&String, &f64> = self.metrics.iter().zip(values).collect();
                json!({ "step": step, "metrics": metrics })
            }).collect::<Vec<_>>(),
            "best_step": self.best_step,
            "steps_per_second": self.steps_per_second,
            "final_metrics": self.final_metrics,
            "batch": self.batch,
            "micro_batches": self.micro_batches,
            "budget_bytes": self.budget_bytes,
            "remedies": self.remedies.iter().map(Remedy::to_json).collect::<Vec<_>>(),
            "host_bytes": self.host_bytes,
            "host_use_bytes": self.host_use.map(|of| of.bytes()),
            "host_use": self.host_use.map(|of| of.to_json()),
            "host_budget_bytes": self.host_budget_bytes,
            "seed": self.seed,
            "device": self.device,
            "threads": self.threads,
            "precision": self.precision,
            "loss_scale": self.loss_scale.map(|scale| {
                json!({ "last": scale.last, "skipped_steps": scale.skipped_steps })
            }),
            "predicted_device_bytes": self.device_use.map(|of| of.predicted_bytes),
            "device_used_bytes": self.device_use.map(|of| of.used_bytes),
            "device_difference_percent": self.device_use.map(|of| of.difference_percent()),
            "predicted_process_bytes": self.process_use.map(|of| of.predicted_bytes),
            "process_peak_bytes": self.process_use.map(|of| of.used_bytes),
            "data_wait": self.data_wait.as_ref().map(DataWait::to_json),
            "version": env!("CARGO_PKG_VERSION"),
        })
    }
}

/// A trained model in memory: its weights, and what happened.
#[derive(Debug, Clone)]
pub struct Trained {
    /// What happened.
    pub report: TrainingReport,
    /// Parameters and statistics by name.
    pub weights: BTreeMap<String, Weight>,
    /// What the step that needs the most memory does with it.
    pub memory: TraceFile,
}

/// A parameter or statistic.
#[derive(Debug, Clone, PartialEq)]
pub struct Weight {
    /// Its extents.
    pub shape: Vec<usize>,
    /// Its numbers, row-major.
    pub values: Vec<f32>,
}

impl Trained {
    /// Writes `weights.safetensors`, `run.json` and `memory.jsonl` into a directory, which is made if it is not there.
    /// They are complete or not there at all; files of an earlier run stay until then. `run.json` has the SHA-256 of the
    /// weights beside it.
    ///
    /// # Errors
    /// If the directory cannot be made, another run has it, or a file cannot be written.
    pub fn save(&self, directory: &Path) -> Result<()> {
        let described = |(name, weight): (&String, &Weight)| Described {
            name: name.clone(),
            dtype: DType::F32,
            shape: weight.shape.clone(),
        };
        let tensors: Vec<Described> = self.weights.iter().map(described).collect();
        let values: Vec<&Vec<f32>> = self.weights.values().map(|weight| &weight.values).collect();
        let folder = &mut RunFolder::open(directory)?;
        save(folder, &self.report, &self.memory, &tensors, &mut |index, write| {
            values[index].chunks(PIECE).try_for_each(|piece| {
                let bytes: Vec<u8> = piece.iter().flat_map(|value| value.to_le_bytes()).collect();
                write(&bytes)
            })
        })
    }
}

/// Numbers that are written at a time.
const PIECE: usize = 1 << 16;

/// Writes weights, a report that has their SHA-256, and what the step does with memory, all or nothing.
pub(super) fn save(
    folder: &mut RunFolder,
    report: &TrainingReport,
    memory: &TraceFile,
    tensors: &[Described],
    show: ShowTensor<'_>,
) -> Result<()> {
    let mut files = folder.files();
    let mut weights = files.draft("weights.safetensors")?;
    write_tensors(&mut weights, tensors, show)?;
    let mut report = report.to_json();
    report["weights_sha256"] = weights.finish()?.into();
    let mut report = serde_json::to_vec_pretty(&report).map_err(|error| {
        Error::new(ErrorKind::File, format!("the report cannot be written: {error}")).caused_by(error)
    })?;
    report.push(b'\n');
    files.write("run.json", &report)?;
    files.write(MEMORY_TRACE, &memory_trace_bytes(memory)?)?;
    files.publish()
}

/// Counts steps and the time they take, the first left out: it pays for what later ones find warm.
pub(super) struct Clock {
    steps: u64,
    after_first: Option<Instant>,
}

impl Clock {
    pub(super) fn start() -> Clock {
        Clock { steps: 0, after_first: None }
    }

    pub(super) fn step_done(&mut self) {
        self.steps += 1;
        self.after_first.get_or_insert_with(Instant::now);
    }

    pub(super) fn steps_per_second(&self) -> f64 {
        let seconds = self.after_first.map_or(0.0, |t| t.elapsed().as_secs_f64());
        if self.steps > 1 && seconds > 0.0 { (self.steps - 1) as f64 / seconds } else { 0.0 }
    }
}

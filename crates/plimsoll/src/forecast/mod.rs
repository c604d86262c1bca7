//! The forecast: what training will take, to the byte, before anything runs.

pub(crate) mod device_use;
pub(crate) mod frontier;
pub(crate) mod memory_trace;
pub(crate) mod process_use;
pub(crate) mod remedy;

use crate::forecast::device_use::DeviceUse;
use crate::forecast::process_use::ProcessUse;
use crate::forecast::remedy::{Remedy, in_words};
use crate::run::Compiled;
use plimsoll_memory::{Category, Ledger, format_bytes};
use serde_json::{Value, json};
use std::fmt;

/// How many of the largest values a forecast names.
const LARGEST: usize = 10;

/// How many programs of a run it lists.
const PROGRAMS: usize = 8;

/// What a run will take.
#[derive(Debug, Clone)]
pub struct Forecast {
    /// The bytes of the arena: all that the step will ever use.
    pub peak_bytes: u64,
    /// The most bytes that live at once: no placement of the same step needs fewer.
    pub lower_bound_bytes: u64,
    /// What the bytes are for when the most of them live. Sums to the peak.
    pub ledger: Ledger,
    /// The largest values that live then.
    pub largest: Vec<LiveValue>,
    /// How many kernels a step runs.
    pub kernels: usize,
    /// How many parameters an optimizer changes.
    pub trainable_parameters: u64,
    /// How long lowering and planning took.
    pub plan_seconds: f64,
    /// The seconds that a step takes by the device's profile.
    pub step_seconds: f64,
    /// How many parts each step is run in.
    pub micro_batches: usize,
    /// What is done to fit the budget.
    pub remedies: Vec<Remedy>,
    /// Bytes of host memory for what is kept there between its uses.
    pub host_bytes: u64,
    /// What the device's driver will count as taken, where there is one and what it takes is known.
    pub device_use: Option<DeviceUse>,
    /// What the process will take of the machine's memory, where the device is the CPU.
    pub process_use: Option<ProcessUse>,
    /// What else there is to say.
    pub notes: Vec<String>,
    /// The programs of the run: each step for each shape, in the parts that it is run in.
    pub steps: Vec<StepForecast>,
    /// How many programs were planned to find these, each search for a frontier counted once: without a budget, each once.
    pub plans: u64,
}

/// What one program of a run will take.
#[derive(Debug, Clone)]
pub struct StepForecast {
    /// The name of its step.
    pub name: String,
    /// Its inputs with their types and shapes.
    pub inputs: String,
    /// What it does of its step, if that is not all of it.
    pub part: Option<&'static str>,
    /// What it needs of the arena.
    pub peak_bytes: u64,
    /// How many kernels it runs.
    pub kernels: usize,
}

/// A value that lives at the peak.
#[derive(Debug, Clone)]
pub struct LiveValue {
    /// Its scope and op, or the name it was declared under.
    pub name: String,
    /// Its type and shape, as in `f32[32, 10]`.
    pub shape: String,
    /// What it is for.
    pub category: Category,
    /// How many bytes it takes.
    pub bytes: u64,
}

impl Forecast {
    pub(crate) fn of(compiled: &Compiled) -> Forecast {
        let (program, plan, work) = (compiled.program.program(), compiled.program.plan(), &compiled.work);
        let live = plan.live_at_peak(work);
        let largest = live
            .into_iter()
            .take(LARGEST)
            .filter(|&(_, bytes)| bytes > 0)
            .map(|(index, bytes)| {
                let buffer = &program.buffers[index as usize];
                LiveValue {
                    name: buffer.name.to_string(),
                    shape: format!("{}{}", buffer.dtype, buffer.shape),
                    category: work.buffers[index as usize].role.category(),
                    bytes,
                }
            })
            .collect();
        Forecast {
            peak_bytes: plan.peak_bytes,
            lower_bound_bytes: plan.lower_bound_bytes,
            ledger: plan.ledger(work),
            largest,
            kernels: program.kernels.len(),
            trainable_parameters: compiled.trainable_parameters,
            plan_seconds: compiled.plan_seconds,
            step_seconds: 0.0,
            micro_batches: 1,
            remedies: vec![],
            host_bytes: plan.host_bytes,
            device_use: None,
            process_use: None,
            notes: vec![],
            steps: vec![],
            plans: 0,
        }
    }

    /// Bytes of the peak that no value lives in because of how values were placed, as a part of the peak.
    pub fn fragmentation(&self) -> f64 {
        (self.peak_bytes - self.lower_bound_bytes) as f64 / self.peak_bytes.max(1) as f64
    }

    /// The forecast as data.
    pub fn to_json(&self) -> Value {
        let largest: Vec<Value> = self
            .largest
            .iter()
            .map(|v| json!({"name": v.name, "shape": v.shape, "category": v.category.name(), "bytes": v.bytes}))
            .collect();
        json!({
            "peak_bytes": self.peak_bytes,
            "lower_bound_bytes": self.lower_bound_bytes,
            "fragmentation": self.fragmentation(),
            "ledger": self.ledger,
            "largest": largest,
            "kernels": self.kernels,
            "trainable_parameters": self.trainable_parameters,
            "plan_seconds": self.plan_seconds,
            "step_seconds": self.step_seconds,
            "micro_batches": self.micro_batches,
            "remedies": self.remedies.iter().map(Remedy::to_json).collect::<Vec<_>>(),
            "host_bytes": self.host_bytes,
            "device_use_bytes": self.device_use.map(|of| of.bytes()),
            "device_use": self.device_use.map(|of| of.to_json()),
            "process_use_bytes": self.process_use.map(|of| of.bytes()),
            "process_use": self.process_use.map(|of| of.to_json()),
            "notes": self.notes,
            "steps": self.steps.iter().map(StepForecast::to_json).collect::<Vec<_>>(),
        })
    }
}

impl StepForecast {
    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "inputs": self.inputs,
            "part": self.part,
            "peak_bytes": self.peak_bytes,
            "kernels": self.kernels,
        })
    }
}

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "peak        {:>10}  ({} bytes; no placement needs fewer than {})",
            format_bytes(self.peak_bytes),
            self.peak_bytes,
            format_bytes(self.lower_bound_bytes)
        )?;
        writeln!(f, "fragmentation {:>8.2} %", 100.0 * self.fragmentation())?;
        writeln!(
            f,
            "{} kernels, {} trainable parameters, planned in {:.1} ms",
            self.kernels,
            self.trainable_parameters,
            1e3 * self.plan_seconds
        )?;
        writeln!(f, "step        {:>10.3} ms by the device's profile", 1e3 * self.step_seconds)?;
        for note in &self.notes {
            writeln!(f, "note        {note}")?;
        }
        if !self.remedies.is_empty() {
            writeln!(f, "remedies    {}", in_words(&self.remedies))?;
        }
        if self.host_bytes > 0 {
            let place = if self.process_use.is_some() { "in a file  " } else { "host       " };
            writeln!(f, "{place} {:>10}", format_bytes(self.host_bytes))?;
        }
        if let Some(device_use) = &self.device_use {
            writeln!(f, "device      {device_use}")?;
        }
        if let Some(process_use) = &self.process_use {
            writeln!(f, "process     {process_use}")?;
        }
        writeln!(f, "\nat the peak")?;
        write!(f, "{}", self.ledger)?;
        writeln!(f, "\nlargest at the peak")?;
        for value in &self.largest {
            writeln!(
                f,
                "  {:>10}  {:<12}{:<44} {}",
                format_bytes(value.bytes),
                value.category.name(),
                value.name,
                value.shape
            )?;
        }
        if self.steps.len() > 1 {
            writeln!(f, "\nprograms that share the arena")?;
            for step in self.steps.iter().take(PROGRAMS) {
                let part = step.part.map_or(String::new(), |part| format!(" ({part})"));
                writeln!(f, "  {:>10}  {}{part}: {}", format_bytes(step.peak_bytes), step.name, step.inputs)?;
            }
            if self.steps.len() > PROGRAMS {
                writeln!(f, "  {:>10}  {} more", "", self.steps.len() - PROGRAMS)?;
            }
        }
        Ok(())
    }
}

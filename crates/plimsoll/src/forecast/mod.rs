//! The forecast: what training will take, to the byte, before anything runs.

mod brief;
pub(crate) mod device_use;
pub(crate) mod frontier;
pub(crate) mod host_use;
pub(crate) mod memory_trace;
pub(crate) mod placement;
pub(crate) mod plan_picture;
pub(crate) mod process_use;
pub(crate) mod remedy;
pub(crate) mod room;
pub(crate) mod summary;

use crate::forecast::device_use::DeviceUse;
use crate::forecast::host_use::HostUse;
use crate::forecast::process_use::ProcessUse;
use crate::forecast::remedy::{Remedy, in_words};
use crate::forecast::room::{Needs, Room};
use crate::run::Compiled;
use plimsoll_memory::{Category, Cell, Column, Ledger, Table, cut_end, format_bytes, wrapped};
use serde_json::{Value, json};
use std::fmt;

/// How many of the largest values a forecast names.
const LARGEST: usize = 10;

/// The columns that the names of figures take.
const LABEL: usize = 12;

/// The columns of a forecast that is printed without saying how many there are.
const WIDTH: usize = 120;

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
    /// What no plan of the run takes less than, whatever it recomputes, moves or splits; of a run that was made to fit a budget.
    pub no_plan_below_bytes: Option<u64>,
    /// What the device's driver will count as taken, where there is one and what it takes is known.
    pub device_use: Option<DeviceUse>,
    /// What it will pin of the host's memory, where the device is a GPU.
    pub host_use: Option<HostUse>,
    /// What the process will take of the machine's memory, where the device is the CPU.
    pub process_use: Option<ProcessUse>,
    /// The device, and the memory that there is.
    pub room: Room,
    /// Whether the device's times were measured there; else they are derived from its datasheet.
    pub is_measured: bool,
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
            no_plan_below_bytes: None,
            device_use: None,
            host_use: None,
            process_use: None,
            room: Room::default(),
            is_measured: true,
            notes: vec![],
            steps: vec![],
            plans: 0,
        }
    }

    /// Bytes of the peak that no value lives in because of how values were placed, as a part of the peak.
    pub fn fragmentation(&self) -> f64 {
        (self.peak_bytes - self.lower_bound_bytes) as f64 / self.peak_bytes.max(1) as f64
    }

    /// What the run needs of its device's memory: the arena and, where they are known, the driver's context, code and data.
    pub fn needed_bytes(&self) -> u64 {
        self.needs().of_device
    }

    /// What the run needs of that which a budget bounds: the arena and, on the CPU, the data.
    pub fn bounded_bytes(&self) -> u64 {
        self.needs().of_budget
    }

    /// Whether that is there, and the budget is kept; `None` where nothing says how much there is.
    pub fn fits(&self) -> Option<bool> {
        self.room.holds(self.needs())
    }

    /// Whether it fits, in a line.
    pub fn answer(&self) -> String {
        self.room.answer(self.needs())
    }

    fn needs(&self) -> Needs {
        let device = self.device_use.map(|of| of.bytes());
        let process = self.process_use.map(|of| of.bytes());
        let beside = self.process_use.map_or(0, |of| of.data_bytes.saturating_add(of.batch_bytes));
        Needs {
            of_device: device.or(process).unwrap_or(self.peak_bytes),
            of_budget: self.peak_bytes.saturating_add(beside),
            of_host: self.host_use.map_or(0, |of| of.bytes()),
        }
    }

    /// Where the times are from, in words.
    fn times_from(&self) -> String {
        match self.is_measured {
            true => "by the device's profile".into(),
            false => format!("by the datasheet of {}, not measured", self.room.device),
        }
    }

    /// The forecast as data.
    pub fn to_json(&self) -> Value {
        let largest: Vec<Value> = self
            .largest
            .iter()
            .map(|v| json!({"name": v.name, "shape": v.shape, "category": v.category.name(), "bytes": v.bytes}))
            .collect();
        json!({
            "fits": self.fits(),
            "needed_bytes": self.needed_bytes(),
            "device": self.room.device,
            "memory_bytes": self.room.memory_bytes,
            "budget_bytes": self.room.budget_bytes,
            "host_budget_bytes": self.room.host_budget_bytes,
            "peak_bytes": self.peak_bytes,
            "lower_bound_bytes": self.lower_bound_bytes,
            "fragmentation": self.fragmentation(),
            "ledger": self.ledger,
            "largest": largest,
            "kernels": self.kernels,
            "trainable_parameters": self.trainable_parameters,
            "plan_seconds": self.plan_seconds,
            "step_seconds": self.step_seconds,
            "times_measured": self.is_measured,
            "micro_batches": self.micro_batches,
            "remedies": self.remedies.iter().map(Remedy::to_json).collect::<Vec<_>>(),
            "host_bytes": self.host_bytes,
            "no_plan_below_bytes": self.no_plan_below_bytes,
            "device_use_bytes": self.device_use.map(|of| of.bytes()),
            "device_use": self.device_use.map(|of| of.to_json()),
            "host_use_bytes": self.host_use.map(|of| of.bytes()),
            "host_use": self.host_use.map(|of| of.to_json()),
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

impl Forecast {
    /// All that the forecast says, in lines of at most so many columns.
    pub fn to_text(&self, width: usize) -> String {
        let mut text = format!("{}\n", cut_end(&self.answer(), width));
        for (label, words) in self.figures() {
            for (number, line) in wrapped(&words, width.saturating_sub(LABEL).max(1)).into_iter().enumerate()
            {
                let label = if number == 0 { label } else { "" };
                text += &format!("{label:<LABEL$}{line}\n");
            }
        }
        text + "\nat the peak\n"
            + &ledger_table(&self.ledger).to_text(width)
            + "\nlargest at the peak\n"
            + &self.largest_table().to_text(width)
            + &self.programs_text(width)
    }

    /// The figures, each with its name.
    fn figures(&self) -> Vec<(&'static str, String)> {
        let mut figures = vec![
            (
                "peak",
                format!(
                    "{} ({} bytes; no placement needs fewer than {})",
                    format_bytes(self.peak_bytes),
                    self.peak_bytes,
                    format_bytes(self.lower_bound_bytes)
                ),
            ),
            ("holes", format!("{:.2} % of the peak", 100.0 * self.fragmentation())),
            (
                "plan",
                format!(
                    "{} kernels, {} trainable parameters, planned in {:.1} ms",
                    self.kernels,
                    self.trainable_parameters,
                    1e3 * self.plan_seconds
                ),
            ),
            ("step", format!("{:.3} ms {}", 1e3 * self.step_seconds, self.times_from())),
        ];
        let proved =
            |bytes| ("least", format!("no plan takes less than {} ({bytes} bytes)", format_bytes(bytes)));
        figures.extend(self.no_plan_below_bytes.map(proved));
        figures.extend(self.notes.iter().map(|note| ("note", note.clone())));
        if !self.remedies.is_empty() {
            figures.push(("remedies", in_words(&self.remedies)));
        }
        if self.host_bytes > 0 && self.process_use.is_some() {
            figures.push(("in a file", format_bytes(self.host_bytes)));
        }
        figures.extend(self.device_use.map(|of| ("device", of.to_string())));
        figures.extend(self.host_use.map(|of| ("host", of.to_string())));
        figures.extend(self.process_use.map(|of| ("process", of.to_string())));
        figures
    }

    fn largest_table(&self) -> Table {
        let mut table = Table::new([Column::Right, Column::Left, Column::Cut, Column::Cut]).indent(2);
        for value in &self.largest {
            let (bytes, category) = (format_bytes(value.bytes), value.category.name());
            table.row([
                bytes.into(),
                category.into(),
                value.name.as_str().into(),
                value.shape.as_str().into(),
            ]);
        }
        table
    }

    fn programs_text(&self, width: usize) -> String {
        if self.steps.len() < 2 {
            return String::new();
        }
        let mut table = Table::new([Column::Right, Column::Cut]).indent(2);
        for step in self.steps.iter().take(PROGRAMS) {
            let part = step.part.map_or(String::new(), |part| format!(" ({part})"));
            let name = format!("{}{part}: {}", step.name, step.inputs);
            table.row([format_bytes(step.peak_bytes).into(), name.into()]);
        }
        if self.steps.len() > PROGRAMS {
            table.row(["".into(), format!("{} more", self.steps.len() - PROGRAMS).into()]);
        }
        "\nprograms that share the arena\n".to_string() + &table.to_text(width)
    }
}

/// The lines of a ledger that have bytes, with bars.
fn ledger_table(ledger: &Ledger) -> Table {
    let total = ledger.total().max(1) as f64;
    let mut table = Table::new([Column::Left, Column::Right, Column::Right, Column::Bar]).indent(2);
    for (category, bytes) in ledger.lines().filter(|&(_, bytes)| bytes > 0) {
        let share = bytes as f64 / total;
        let percent = format!("{:.1} %", 100.0 * share);
        table.row([category.name().into(), format_bytes(bytes).into(), percent.into(), Cell::Part(share)]);
    }
    table
}

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(WIDTH))
    }
}

/// A time with three digits: `1.50 s`, `278 ms`.
pub(crate) fn format_seconds(seconds: f64) -> String {
    let (value, unit) = match seconds {
        _ if seconds >= 0.9995 => (seconds, "s"),
        _ if seconds >= 0.9995e-3 => (1e3 * seconds, "ms"),
        _ => (1e6 * seconds, "µs"),
    };
    match value {
        _ if value < 9.995 => format!("{value:.2} {unit}"),
        _ if value < 99.95 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

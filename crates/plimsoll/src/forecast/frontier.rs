//! The frontier between memory and time, to be read by people and programs.

use crate::forecast::WIDTH;
use crate::forecast::remedy::{Remedy, in_words};
use plimsoll_memory::{Cell, Column, Table, format_bytes, wrapped};
use serde_json::{Value, json};
use std::fmt;

/// What less memory costs in time.
#[derive(Debug, Clone)]
pub struct FrontierReport {
    /// Budgets and the fastest plans within them, from the most memory to the least.
    pub points: Vec<FrontierPoint>,
    /// The least that training can be made to take.
    pub floor_bytes: u64,
    /// What that is made of, in words.
    pub floor_reason: String,
    /// What no plan takes less than: between this and the floor nothing is known to fit.
    pub no_plan_below_bytes: u64,
    /// What needs as much, in words.
    pub no_plan_below_reason: String,
    /// The budget that was asked about, if one was.
    pub budget_bytes: Option<u64>,
    /// The budget of the host, which all plans keep, if there is one.
    pub host_budget_bytes: Option<u64>,
    /// What the least takes of the device in all: the arena, and the driver's context and code or, on the CPU, the data and the
    /// process.
    pub floor_needs_bytes: u64,
    /// All of the device's memory, where that is known.
    pub memory_bytes: Option<u64>,
    /// The device that times are for.
    pub device: String,
}

/// The fastest plan within a budget.
#[derive(Debug, Clone, PartialEq)]
pub struct FrontierPoint {
    /// The budget: on a CPU for the data that is in memory as well.
    pub budget_bytes: u64,
    /// The arena that the plan takes of it.
    pub peak_bytes: u64,
    /// What it takes elsewhere: on a GPU the memory of the host that it pins, on the CPU a file.
    pub host_bytes: u64,
    /// The seconds of a step by the device's profile.
    pub step_seconds: f64,
    /// How many parts each step is run in.
    pub micro_batches: usize,
    /// What is done to fit.
    pub remedies: Vec<Remedy>,
}

/// The largest batch that fits a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaxBatch {
    /// The budget.
    pub budget_bytes: u64,
    /// As the step is; 0 if not even one sample fits.
    pub without_remedies: usize,
    /// With exact remedies, all samples at once.
    pub with_remedies: usize,
    /// Smaller batches that do not fit as they are, the first and the last of each stretch: kernels for some sizes take more
    /// workspace than for larger ones, and logits that are small enough are made whole. All smaller ones are looked at, or 32
    /// spread over them where they are more.
    pub gaps: Vec<(usize, usize)>,
    /// The largest batch that was looked at: that of all samples.
    pub limit: usize,
}

impl FrontierReport {
    /// Whether the least fits the device, and the budget that was asked about; `None` where nothing says how much there is.
    pub fn fits(&self) -> Option<bool> {
        let budget = self.budget_bytes.map(|budget| self.floor_bytes <= budget);
        let device = self.memory_bytes.map(|memory| self.floor_needs_bytes <= memory);
        [budget, device].into_iter().flatten().reduce(|a, b| a && b)
    }

    /// Whether it fits, in a line.
    pub fn answer(&self) -> String {
        let (floor, needs) = (format_bytes(self.floor_bytes), format_bytes(self.floor_needs_bytes));
        match (self.memory_bytes, self.budget_bytes) {
            (Some(memory), _) if self.floor_needs_bytes > memory => {
                format!("does not fit: needs {needs} at least, {} has {}", self.device, format_bytes(memory))
            }
            (_, Some(budget)) if self.floor_bytes > budget => {
                format!("does not fit: needs {floor} at least, the budget is {}", format_bytes(budget))
            }
            (_, Some(budget)) => {
                format!("fits: needs {floor} at least of the budget of {}", format_bytes(budget))
            }
            (Some(memory), None) => format!("fits: needs {needs} at least of {}", format_bytes(memory)),
            (None, None) => format!("needs {floor} at least"),
        }
    }

    /// The report as data.
    pub fn to_json(&self) -> Value {
        let points: Vec<Value> = self
            .points
            .iter()
            .map(|p| {
                json!({
                    "budget_bytes": p.budget_bytes,
                    "peak_bytes": p.peak_bytes,
                    "host_bytes": p.host_bytes,
                    "step_seconds": p.step_seconds,
                    "micro_batches": p.micro_batches,
                    "remedies": p.remedies.iter().map(Remedy::to_json).collect::<Vec<_>>(),
                })
            })
            .collect();
        json!({
            "device": self.device,
            "frontier": points,
            "floor_bytes": self.floor_bytes,
            "floor_reason": self.floor_reason,
            "no_plan_below_bytes": self.no_plan_below_bytes,
            "no_plan_below_reason": self.no_plan_below_reason,
            "floor_needs_bytes": self.floor_needs_bytes,
            "memory_bytes": self.memory_bytes,
            "budget_bytes": self.budget_bytes,
            "host_budget_bytes": self.host_budget_bytes,
            "fits": self.fits(),
        })
    }
}

impl FrontierReport {
    /// The report as a chart of at most so many columns.
    pub fn to_text(&self, width: usize) -> String {
        use Column::{Bar, Cut, Right};
        let most = self.points.iter().map(|p| p.peak_bytes).max().unwrap_or(1).max(1);
        let fastest = self.points.iter().map(|p| p.step_seconds).fold(f64::INFINITY, f64::min);
        let mut table = Table::new([Right, Right, Right, Right, Cut, Bar]);
        let step = format!("step on {}", self.device);
        table.row(["budget".into(), "peak".into(), step.into(), "".into(), "remedies".into()]);
        for point in &self.points {
            let slower = 100.0 * (point.step_seconds / fastest - 1.0);
            let remedies =
                if point.remedies.is_empty() { "as it is".into() } else { in_words(&point.remedies) };
            table.row([
                format_bytes(point.budget_bytes).into(),
                format_bytes(point.peak_bytes).into(),
                format!("{:.3} ms", 1e3 * point.step_seconds).into(),
                format!("{slower:+.1} %").into(),
                remedies.into(),
                Cell::Part(point.peak_bytes as f64 / most as f64),
            ]);
        }
        let (floor, bytes) = (format_bytes(self.floor_bytes), self.floor_bytes);
        let floor = format!("floor {floor} ({bytes} bytes), {}", self.floor_reason);
        let (bound, bytes) = (format_bytes(self.no_plan_below_bytes), self.no_plan_below_bytes);
        let bound = format!("no plan takes less than {bound} ({bytes} bytes): {}", self.no_plan_below_reason);
        let lines = [floor, bound].map(|line| wrapped(&line, width).join("\n") + "\n");
        format!("{}\n\n", self.answer()) + &table.to_text(width) + &lines.concat()
    }
}

impl fmt::Display for FrontierReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(WIDTH))
    }
}

impl MaxBatch {
    /// Whether any batch fits.
    pub fn fits(&self) -> bool {
        self.with_remedies > 0
    }

    /// Whether any does, in a line.
    pub fn answer(&self) -> String {
        let budget = format_bytes(self.budget_bytes);
        match self.with_remedies {
            0 => format!("does not fit: not even one sample in {budget}"),
            most => format!("fits: a batch of up to {most} in {budget}"),
        }
    }

    /// The answer as data.
    pub fn to_json(&self) -> Value {
        json!({
            "budget_bytes": self.budget_bytes,
            "max_batch": self.without_remedies,
            "max_batch_with_remedies": self.with_remedies,
            "fits": self.fits(),
            "gaps": self.gaps.iter().map(|&(first, last)| [first, last]).collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for MaxBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = |batch| if batch == self.limit { " (all samples there are)" } else { "" };
        writeln!(f, "{}\n", self.answer())?;
        writeln!(f, "largest batch in {}", format_bytes(self.budget_bytes))?;
        writeln!(f, "  as it is            {}{}", self.without_remedies, limit(self.without_remedies))?;
        let of = |&(first, last): &(usize, usize)| match first == last {
            true => first.to_string(),
            false => format!("{first} to {last}"),
        };
        let gaps: Vec<String> = self.gaps.iter().map(of).collect();
        if !gaps.is_empty() {
            // As narrow as terminals are.
            let lines = wrapped(&format!("but not {}: they take more", gaps.join(", ")), 38);
            lines.iter().try_for_each(|line| writeln!(f, "                      {line}"))?;
        }
        writeln!(f, "  with exact remedies {}{}", self.with_remedies, limit(self.with_remedies))
    }
}

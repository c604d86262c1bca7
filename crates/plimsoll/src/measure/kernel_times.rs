//! What a step's time goes to, kernel by kernel.

use crate::measure::bench::hold;
use crate::run::{FillPart, Run, TimedKernel};
use crate::trainer::Trainer;
use crate::{Array, Error, ErrorKind, Result};
use plimsoll_data::Dataset;
use plimsoll_graph::program::Kernel;
use plimsoll_memory::{Column, Table};
use plimsoll_plan::{EfficiencyTable, Profile};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// How often each kernel is timed; its median counts.
const REPEATS: usize = 7;

/// The kernels of a training step and their times. Each is timed alone, so that they sum to a little more than the
/// step takes. On a CUDA device small loops of one kind are one launch: its time is that of the first of them.
#[derive(Debug, Clone)]
pub struct KernelTimes {
    /// In the order in which they run.
    pub kernels: Vec<KernelTime>,
}

/// A kernel of a step.
#[derive(Debug, Clone)]
pub struct KernelTime {
    /// What it computes.
    pub name: &'static str,
    /// The layer it belongs to.
    pub scope: String,
    /// The types and shapes of what it reads and writes.
    pub operands: String,
    /// The median time of a run.
    pub seconds: f64,
    /// The kind of kernels that it is compared with.
    pub family: String,
    /// The time that the device's profile says it takes.
    pub predicted_seconds: f64,
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes read and written.
    pub bytes: u64,
}

impl Trainer {
    /// Times the kernels of the training step on a full batch.
    ///
    /// # Errors
    /// As [`Trainer::fit`].
    pub fn kernel_times(&self, data: &Dataset) -> Result<KernelTimes> {
        let mut kernels: Vec<KernelTime> = vec![];
        let seconds = self.time_often(data, |timed, profile| {
            kernels = timed.iter().map(|timed| describe(timed, profile)).collect();
        })?;
        kernels.iter_mut().zip(seconds).for_each(|(kernel, seconds)| kernel.seconds = seconds);
        Ok(KernelTimes { kernels })
    }

    /// The kernels of the training step on a full batch as planners see them, with the seconds of each.
    pub(crate) fn planned_kernel_times(&self, data: &Dataset) -> Result<Vec<(plimsoll_ir::Kernel, f64)>> {
        let mut kernels = vec![];
        let seconds = self.time_often(data, |timed, _| {
            kernels = timed.iter().map(|timed| timed.planned.clone()).collect();
        })?;
        Ok(kernels.into_iter().zip(seconds).collect())
    }

    /// Runs the training step on a full batch and times its kernels several times; `first` sees them once. Returns the
    /// median seconds of each.
    fn time_often(
        &self,
        data: &Dataset,
        first: impl FnMut(&[TimedKernel<'_>], &Profile),
    ) -> Result<Vec<f64>> {
        let batch = self.batch.min(data.samples());
        let data = &hold(data, batch)?;
        let mut runner = self.compile(data, None)?;
        runner.must_fit()?;
        let batches = data.batches(batch)?;
        let Some(batch) = batches.epoch(0).next() else {
            return Err(Error::new(ErrorKind::Data, "there is no batch to run"));
        };
        runner.train(&batch, 0)?;
        runner.finish()?;
        runner.with_inputs(&batch, self.longest(), |run, _, fill| run.time_often(fill, first))
    }
}

impl Run {
    /// Times the kernels of its first step, at its largest shapes, on these inputs. It is run several times for that, and
    /// goes on training if it is one that trains.
    ///
    /// # Errors
    /// As [`Run::step`].
    pub fn kernel_times(&mut self, inputs: &[(&str, &Array)]) -> Result<KernelTimes> {
        let mut kernels: Vec<KernelTime> = vec![];
        let seconds = self.time_often_on(inputs, |timed, profile| {
            kernels = timed.iter().map(|timed| describe(timed, profile)).collect();
        })?;
        kernels.iter_mut().zip(seconds).for_each(|(kernel, seconds)| kernel.seconds = seconds);
        Ok(KernelTimes { kernels })
    }

    /// The same kernels as planners see them, with the seconds of each.
    pub(crate) fn planned_kernel_times(
        &mut self,
        inputs: &[(&str, &Array)],
    ) -> Result<Vec<(plimsoll_ir::Kernel, f64)>> {
        let mut kernels = vec![];
        let seconds = self.time_often_on(inputs, |timed, _| {
            kernels = timed.iter().map(|timed| timed.planned.clone()).collect();
        })?;
        Ok(kernels.into_iter().zip(seconds).collect())
    }

    fn time_often_on(
        &mut self,
        inputs: &[(&str, &Array)],
        first: impl FnMut(&[TimedKernel<'_>], &Profile),
    ) -> Result<Vec<f64>> {
        let order = self.order_of_main(inputs)?;
        let fill: FillPart<'_> = &mut |_, index, out| {
            let Some(bytes) = inputs[order[index]].1.bytes().get(..out.len()) else {
                return Err(Error::new(
                    ErrorKind::Shape,
                    "kernels are timed at the largest shapes of a step",
                ));
            };
            out.copy_from_slice(bytes);
            Ok(())
        };
        self.time_often(fill, first)
    }

    /// Runs the step several times; `first` sees its kernels once. Returns the median seconds of each.
    fn time_often(
        &mut self,
        fill: FillPart<'_>,
        mut first: impl FnMut(&[TimedKernel<'_>], &Profile),
    ) -> Result<Vec<f64>> {
        let profile = self.profile().clone();
        let mut seconds: Vec<Vec<f64>> = vec![];
        for repeat in 0..REPEATS {
            let timed = self.time_kernels(fill)?;
            if repeat == 0 {
                first(&timed, &profile);
                seconds = vec![vec![]; timed.len()];
            }
            seconds.iter_mut().zip(timed).for_each(|(all, timed)| all.push(timed.seconds));
        }
        let median = |mut seconds: Vec<f64>| {
            seconds.sort_by(f64::total_cmp);
            seconds[seconds.len() / 2]
        };
        Ok(seconds.into_iter().map(median).collect())
    }
}

fn describe(timed: &TimedKernel<'_>, profile: &Profile) -> KernelTime {
    let kernel: &Kernel = timed.kernel;
    let list = |operands: &[plimsoll_graph::program::Operand]| {
        let each = operands.iter().map(|o| format!("{}{}", o.dtype, o.view.shape));
        each.collect::<Vec<_>>().join(" ")
    };
    KernelTime {
        name: kernel.name(),
        scope: kernel.scope.to_string(),
        operands: format!("{} -> {}", list(&kernel.reads), list(&kernel.writes)),
        seconds: 0.0,
        family: EfficiencyTable::name(timed.planned.family),
        predicted_seconds: profile.seconds(timed.planned),
        flops: kernel.flops,
        bytes: kernel.bytes,
    }
}

impl KernelTimes {
    /// The times as data.
    pub fn to_json(&self) -> Value {
        let kernel = |k: &KernelTime| {
            json!({
                "name": k.name,
                "scope": k.scope,
                "operands": k.operands,
                "seconds": k.seconds,
                "family": k.family,
                "predicted_seconds": k.predicted_seconds,
                "flops": k.flops,
                "bytes": k.bytes,
            })
        };
        json!({ "kernels": self.kernels.iter().map(kernel).collect::<Vec<_>>() })
    }

    /// The times as a table of at most so many columns: kernels of one kind on operands of one shape are a line, the most time
    /// first.
    pub fn to_text(&self, width: usize) -> String {
        use Column::{Cut, Right};
        let mut kinds: BTreeMap<(&str, &str), Vec<&KernelTime>> = BTreeMap::new();
        for kernel in &self.kernels {
            kinds.entry((kernel.name, &kernel.operands)).or_default().push(kernel);
        }
        let seconds = |kernels: &[&KernelTime]| kernels.iter().map(|k| k.seconds).sum::<f64>();
        let mut kinds: Vec<Vec<&KernelTime>> = kinds.into_values().collect();
        kinds.sort_by(|a, b| seconds(b).total_cmp(&seconds(a)));
        let total: f64 = self.kernels.iter().map(|k| k.seconds).sum();
        let mut table = Table::new([Right, Right, Right, Right, Right, Cut]);
        table.row(["ms", "part", "times", "GFLOP/s", "GB/s", "kernel"].map(Into::into));
        for kernels in &kinds {
            let (seconds, first) = (seconds(kernels), kernels[0]);
            let rate = |of: fn(&KernelTime) -> u64| {
                let rate = kernels.iter().map(|k| of(k) as f64).sum::<f64>() / seconds.max(1e-12) * 1e-9;
                format!("{rate:.0}").into()
            };
            table.row([
                format!("{:.3}", 1e3 * seconds).into(),
                format!("{:.1}%", 100.0 * seconds / total.max(1e-12)).into(),
                kernels.len().to_string().into(),
                rate(|k| k.flops),
                rate(|k| k.bytes),
                format!("{} ({}) {}", first.name, first.scope, first.operands).into(),
            ]);
        }
        let kernels = self.kernels.len();
        table.to_text(width) + &format!("{:.3} ms in all, {kernels} kernels\n", 1e3 * total)
    }
}

impl fmt::Display for KernelTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(200))
    }
}

//! What to say when nothing fits: the floor, and what sets it.

use super::compile::Lowered;
use super::fit::Planner;
use crate::{Error, ErrorKind, Result};
use plimsoll_graph::Program;
use plimsoll_graph::program::Home;
use plimsoll_ir::LaunchSource;
use plimsoll_memory::{Category, format_bytes};
use plimsoll_plan::Fitted;
use std::rc::Rc;

/// The least that a run can be made to take.
pub(crate) struct Least {
    pub(crate) bytes: u64,
    /// What its peak is made of, in words.
    pub(crate) because: String,
}

impl Planner<'_> {
    /// The least memory that any candidate takes. A budget of as much is met.
    pub(crate) fn least(&self) -> Result<Least> {
        self.least_of(&self.split_counts())
    }

    /// The least memory of a run that is not split, or split as far as it may be: what a change is judged by.
    pub(crate) fn roughly_least(&self) -> Result<u64> {
        let counts = self.split_counts();
        let ends: Vec<usize> =
            if counts.len() > 1 { vec![counts[0], counts[counts.len() - 1]] } else { counts };
        Ok(self.least_of(&ends)?.bytes)
    }

    fn least_of(&self, counts: &[usize]) -> Result<Least> {
        let plain = self.plain()?;
        let mut least: Option<Least> = None;
        for &count in counts {
            let variant = self.variant(count, self.target.offload())?;
            let Some(fitted) = variant.lowered.smallest(self.target)? else { continue };
            let homes: Rc<[Home]> = variant.lowered.homes(&fitted).into();
            let mut largest = (fitted.plan.peak_bytes, reason(variant.lowered.program(), &fitted));
            let mut add = |lowered: &Lowered| -> Result<()> {
                if let Some(smallest) = lowered.smallest(self.target)?
                    && smallest.plan.peak_bytes > largest.0
                {
                    largest = (smallest.plan.peak_bytes, reason(lowered.program(), &smallest));
                }
                Ok(())
            };
            for key in &variant.others {
                add(&*self.searched(&variant, key, &homes)?)?;
            }
            for step in (0..self.about.len()).filter(|&s| !self.about[s].trains && s != variant.main.step) {
                let most = self.inference_counts(step).into_iter().max().unwrap_or(1);
                for key in self.declared.keys(step, most, false)? {
                    add(&*self.searched(&variant, &key, &homes)?)?;
                }
            }
            if least.as_ref().is_none_or(|least| largest.0 < least.bytes) {
                least = Some(Least { bytes: largest.0, because: largest.1 });
            }
        }
        let least = least.ok_or_else(|| Error::new(ErrorKind::Argument, "there are no steps to run"))?;
        Ok(Least { bytes: least.bytes.min(plain.peak_bytes), ..least })
    }

    /// The error that says why a budget does not do.
    ///
    /// `beside` are the bytes that the budget bounds beside the arena.
    pub(crate) fn infeasible(&self, budget: u64, beside: u64) -> Result<Error> {
        let least = self.least()?;
        let bytes = least.bytes + beside;
        let of_data = match beside {
            0 => String::new(),
            _ => format!(", {} of that for the data that is in memory", format_bytes(beside)),
        };
        let message = format!(
            "the run does not fit the budget of {} ({budget} bytes): it takes at least {} ({bytes} bytes){of_data}, {}\n\
             what would fit:\n  a budget of {} or more",
            format_bytes(budget),
            format_bytes(bytes),
            least.because,
            format_bytes(bytes),
        );
        Ok(Error::new(ErrorKind::Budget, message).at_least(bytes))
    }
}

/// What the peak of a plan is made of.
pub(super) fn reason(program: &Program, fitted: &Fitted) -> String {
    let Fitted { work, plan, sources, origins, .. } = fitted;
    let ledger = plan.ledger(work);
    let states = [Category::Parameters, Category::Gradients, Category::Optimizer];
    let kept: u64 = states.iter().map(|&c| ledger.get(c)).sum();
    let name = |b: u32| &program.buffers[origins[b as usize] as usize].name;
    // At a copy or a wait, what lives is what the next kernel needs.
    let kernel = sources[plan.peak_position.min(sources.len())..].iter().find_map(|source| match source {
        LaunchSource::Kernel(k) | LaunchSource::Again(k) => program.kernels.get(*k as usize),
        LaunchSource::Rematerialize(m) => program.rematerializations.get(*m as usize),
        LaunchSource::Copy | LaunchSource::Wait => None,
    });
    let at = kernel.map_or(String::new(), |k| {
        let scope = if k.scope.is_empty() { "the step" } else { &k.scope };
        format!(" at {} of `{scope}`", k.name())
    });
    let mut largest = plan.live_at_peak(work);
    largest.truncate(3);
    let names: Vec<String> =
        largest.iter().map(|&(b, bytes)| format!("`{}` {}", name(b), format_bytes(bytes))).collect();
    format!(
        "which is set by {} of parameters, gradients and optimizer state and {} of other values{at}; the largest there: {}",
        format_bytes(kept),
        format_bytes(plan.peak_bytes.saturating_sub(kept)),
        names.join(", ")
    )
}

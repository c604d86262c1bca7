//! What to say when nothing fits: the floor, and what sets it.

use super::fit::Planner;
use crate::{Error, ErrorKind, Result};
use plimsoll_graph::Program;
use plimsoll_ir::LaunchSource;
use plimsoll_memory::{Category, format_bytes};
use plimsoll_plan::Fitted;

impl Planner<'_> {
    /// The error that says why a budget does not do.
    pub(crate) fn infeasible(&self, budget: u64) -> Result<Error> {
        let least = self.least()?;
        let message = format!(
            "the run does not fit the budget of {} ({budget} bytes): it takes at least {} ({} bytes), {}\n\
             what would fit:\n  a budget of {} or more",
            format_bytes(budget),
            format_bytes(least.bytes),
            least.bytes,
            least.because,
            format_bytes(least.bytes),
        );
        Ok(Error::new(ErrorKind::Budget, message).at_least(least.bytes))
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

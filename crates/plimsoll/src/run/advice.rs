//! What to say when nothing fits: the floor, which is a plan, and the lower bound, which proves that no plan takes less.

use super::compile::Lowered;
use super::fit::{Planner, Variant};
use crate::{Error, ErrorKind, Result};
use plimsoll_graph::Program;
use plimsoll_graph::program::Home;
use plimsoll_ir::LaunchSource;
use plimsoll_memory::{Category, format_bytes};
use plimsoll_plan::{Fitted, LowerBound};
use std::rc::Rc;

/// The least that a run can be made to take.
pub(crate) struct Least {
    pub(crate) bytes: u64,
    /// What its peak is made of, in words.
    pub(crate) because: String,
}

/// What no plan of a run takes less than.
#[derive(Clone)]
pub(crate) struct Bound {
    pub(crate) bytes: u64,
    /// What needs as much, in words.
    pub(crate) because: String,
}

/// Where a run has more kernels, a budget that is proved to be too small is refused without a search for the floor.
const SEARCHED_IN_NO_TIME: usize = 500;

impl Planner<'_> {
    /// What no plan of the run takes less than. It is known as soon as the steps are lowered.
    pub(crate) fn lower_bound(&self) -> Result<&Bound> {
        if self.bound.get().is_none() {
            let bound = self.lower_bound_of(&self.split_counts())?;
            let _ = self.bound.set(bound);
        }
        self.bound.get().ok_or_else(no_steps)
    }

    /// Whether a search for the floor takes longer than one waits for a refusal.
    fn takes_long_to_search(&self) -> Result<bool> {
        let kernels = self.variant(1, self.target.offload())?.lowered.program().kernels.len();
        Ok(kernels > SEARCHED_IN_NO_TIME)
    }

    fn lower_bound_of(&self, counts: &[usize]) -> Result<Bound> {
        let plain = self.plain()?;
        let mut lowest = Bound { bytes: plain.peak_bytes, because: "as much as without remedies".into() };
        for &count in counts {
            let variant = self.variant(count, self.target.offload())?;
            let bound = self.bound_of_variant(&variant);
            lowest = if bound.bytes < lowest.bytes { bound.clone() } else { lowest };
        }
        Ok(lowest)
    }

    /// What no plan of a run that is split so takes less than.
    pub(super) fn bound_of_variant<'v>(&self, variant: &'v Variant) -> &'v Bound {
        variant.bound.get_or_init(|| {
            let mut highest = variant.lowered.lower_bound(self.target);
            // Parts of other sizes need less than the largest; the end of a window may need more.
            for end in &variant.ends {
                let bound = end.lower_bound(self.target);
                highest = if bound.bytes > highest.bytes { bound } else { highest };
            }
            highest
        })
    }

    /// The least memory that any candidate takes. A budget of as much is met.
    pub(crate) fn least(&self) -> Result<Least> {
        let least = self.least_of(&self.split_counts())?;
        match self.target.host_budget {
            Some(host) => self.least_with_host(least, host),
            None => Ok(least),
        }
    }

    /// The least memory of a run that is not split, or split as far as it may be: what a change is judged by. Where so many
    /// bytes are proved to be too few, the bound will do.
    pub(crate) fn roughly_least(&self, budget: u64) -> Result<u64> {
        let counts = self.split_counts();
        let ends: Vec<usize> =
            if counts.len() > 1 { vec![counts[0], counts[counts.len() - 1]] } else { counts };
        if self.takes_long_to_search()? {
            let bound = self.lower_bound_of(&ends)?;
            if bound.bytes > budget {
                return Ok(bound.bytes);
            }
        }
        Ok(self.least_of(&ends)?.bytes)
    }

    fn least_of(&self, counts: &[usize]) -> Result<Least> {
        let plain = self.plain()?;
        let mut least: Option<Least> = None;
        for &count in counts {
            let variant = self.variant(count, self.target.offload())?;
            // What is proved to take more is not searched.
            let bound = self.bound_of_variant(&variant).bytes;
            if least.as_ref().is_some_and(|least| least.bytes <= bound) {
                continue;
            }
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
        let least = least.ok_or_else(no_steps)?;
        Ok(Least { bytes: least.bytes.min(plain.peak_bytes), ..least })
    }

    /// The error that says why a budget does not do.
    ///
    /// `beside` are the bytes that the budget bounds beside the arena.
    pub(crate) fn infeasible(&self, budget: u64, beside: u64) -> Result<Error> {
        if self.would_fit_with_more_of_host(budget)? {
            return self.too_little_of_host(Some(budget));
        }
        let bound = self.lower_bound()?;
        let of_data = match beside {
            0 => String::new(),
            _ => format!(", {} of that for the data that is in memory", format_bytes(beside)),
        };
        let bytes = bound.bytes + beside;
        let proof =
            format!("no plan takes less than {} ({bytes} bytes): {}", format_bytes(bytes), bound.because);
        let refused = format!("the run does not fit the budget of {} ({budget} bytes)", format_bytes(budget));
        if bound.bytes + beside > budget && self.takes_long_to_search()? {
            let message = format!(
                "{refused}: {proof}{of_data}\nwhat would fit:\n  a larger budget: the frontier (`--frontier`) ends in the least that does"
            );
            return Ok(Error::new(ErrorKind::Budget, message).at_least(bytes));
        }
        let least = self.least()?;
        let bytes = least.bytes + beside;
        let message = format!(
            "{refused}: it takes at least {} ({bytes} bytes){of_data}, {}\n{proof}\n\
             what would fit:\n  a budget of {} or more",
            format_bytes(bytes),
            least.because,
            format_bytes(bytes),
        );
        Ok(Error::new(ErrorKind::Budget, message).at_least(bytes))
    }
}

fn no_steps() -> Error {
    Error::new(ErrorKind::Argument, "there are no steps to run")
}

/// The bound of the plans of a program, and what needs as much.
pub(super) fn bound_of(program: &Program, bound: LowerBound) -> Bound {
    let kernel = bound.kernel.map(|k| &program.kernels[k as usize]);
    let name = kernel.map_or(String::new(), |k| {
        let scope = if k.scope.is_empty() { "the step" } else { &k.scope };
        format!(" {} of `{scope}`", k.name())
    });
    let passing = bound.bytes - bound.persistent_bytes;
    let because = format!(
        "{} stay all the time, and{name} needs {} with what has to wait for it",
        format_bytes(bound.persistent_bytes),
        format_bytes(passing)
    );
    Bound { bytes: bound.bytes, because }
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

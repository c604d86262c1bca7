//! The frontier of a run: what less memory costs in time, and the largest batch that fits.

use super::Trainer;
use super::fitting::{Variant, Within};
use crate::frontier::{FrontierPoint, FrontierReport, MaxBatch};
use crate::remedy::Remedy;
use crate::target::Target;
use crate::{Error, ErrorKind, Result};
use plimsoll_data::Dataset;
use plimsoll_plan::{Offload, Remedies};

/// How many budgets a frontier has, from the least to what is taken without one.
const BUDGETS: u64 = 11;

/// Batches beyond this are not tried.
const LARGEST_BATCH: usize = 1 << 20;

impl Trainer {
    /// What training on `data` costs in time at budgets from the least to what it takes without one.
    ///
    /// # Errors
    /// If the model does not take the data.
    pub fn frontier(&self, data: &Dataset) -> Result<FrontierReport> {
        self.check_batch()?;
        self.check_lengths(data)?;
        let target = self.target()?;
        let plain = self.without_remedies(data, &target)?;
        let variants = self.variants(data, &target)?;
        let floor = self.least_of(data, &target, &variants)?;
        let (most, least) = (plain.peak_bytes, floor.bytes.min(plain.peak_bytes));
        let mut points: Vec<FrontierPoint> = vec![];
        for n in 0..BUDGETS {
            let budget = least + (most - least) * n / (BUDGETS - 1);
            let point = if budget >= most {
                Some(FrontierPoint {
                    budget_bytes: budget,
                    peak_bytes: most,
                    host_bytes: 0,
                    step_seconds: plain.fit.seconds,
                    micro_batches: self.micro_batches,
                    remedies: Remedy::list(&Remedies::default(), 1, plain.fit.choice.chunked),
                })
            } else {
                self.fastest(data, &target, &variants, budget)?
            };
            // A smaller budget's plan fits a larger budget too.
            let previous = points.last().map(|p| FrontierPoint { budget_bytes: budget, ..p.clone() });
            let faster =
                |a: FrontierPoint, b: FrontierPoint| if a.step_seconds <= b.step_seconds { a } else { b };
            points.extend(match (previous, point) {
                (Some(previous), Some(point)) => Some(faster(previous, point)),
                (previous, point) => point.or(previous),
            });
        }
        points.reverse();
        Ok(FrontierReport {
            points,
            floor_bytes: floor.bytes,
            floor_reason: floor.because,
            budget_bytes: self.budget,
            device: target.profile.name.clone(),
        })
    }

    /// The ways to run the step, with all their plans.
    pub(super) fn variants(&self, data: &Dataset, target: &Target) -> Result<Vec<Variant>> {
        let mut variants = vec![];
        variants.extend(self.leanest_variant(data, target, self.micro_batches, Offload::ValuesAndStates)?);
        if self.may_split(data)? {
            for parts in self.splits() {
                variants.extend(self.leanest_variant(data, target, parts, Offload::ValuesAndStates)?);
            }
        }
        Ok(variants)
    }

    fn fastest(
        &self,
        data: &Dataset,
        target: &Target,
        variants: &[Variant],
        budget: u64,
    ) -> Result<Option<FrontierPoint>> {
        let mut best: Option<(&Variant, Within)> = None;
        for variant in variants {
            let fastest = best.as_ref().map_or(f64::INFINITY, |(_, within)| within.seconds);
            if let Some(within) = self.variant_within(data, target, variant, budget, fastest)?
                && within.seconds < fastest
            {
                best = Some((variant, within));
            }
        }
        Ok(best.map(|(variant, within)| FrontierPoint {
            budget_bytes: budget,
            peak_bytes: within.peak_bytes,
            host_bytes: within.fitted.plan.host_bytes,
            step_seconds: within.seconds,
            micro_batches: variant.micro_batches,
            remedies: Remedy::list(&within.fitted.remedies, variant.micro_batches, variant.chunked),
        }))
    }

    /// The largest batch that fits a budget, with and without remedies. Nothing is run.
    ///
    /// # Errors
    /// If the model does not take the data.
    pub fn max_batch(&self, data: &Dataset, budget: u64) -> Result<MaxBatch> {
        if budget == 0 {
            return Err(Error::new(ErrorKind::Argument, "nothing fits a budget of 0 bytes"));
        }
        let target = self.target()?;
        let limit = LARGEST_BATCH.min(data.samples());
        let without = largest(limit, |batch| {
            let trainer = self.clone().batch(batch).micro_batches(1);
            Ok(trainer.without_remedies(data, &target)?.peak_bytes <= budget)
        })?;
        let with = largest(limit, |batch| {
            // Split far enough any batch fits that one sample does: the question is what fits at once.
            let trainer = self.clone().batch(batch).micro_batches(1).exact(true);
            Ok(trainer.fit_within(data, &target, budget)?.is_some())
        })?;
        Ok(MaxBatch {
            budget_bytes: budget,
            without_remedies: without,
            with_remedies: with.max(without),
            limit,
        })
    }
}

/// The largest number up to `limit` for which `fits` holds; 0 if for none. It need not hold for all smaller ones:
/// a product of few rows can take more workspace than one of many.
fn largest(limit: usize, fits: impl Fn(usize) -> Result<bool>) -> Result<usize> {
    let (mut good, mut bad) = (0, limit + 1);
    for batch in (0..).map(|n| 1usize << n).take_while(|&batch| batch <= limit) {
        if fits(batch)? {
            good = batch;
        } else if good > 0 {
            bad = batch;
            break;
        }
    }
    while good > 0 && bad - good > 1 {
        let middle = good.midpoint(bad);
        if fits(middle)? { good = middle } else { bad = middle }
    }
    Ok(good)
}

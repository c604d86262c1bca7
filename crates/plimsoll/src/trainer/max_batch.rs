//! The largest batch that fits a budget, found without a run.

use super::Trainer;
use super::advice::{SLACK, rounded_down};
use crate::forecast::frontier::MaxBatch;
use crate::{Error, ErrorKind, Result};
use plimsoll_data::Dataset;

impl Trainer {
    /// The largest batch that fits the budget, or without one the device, with and without remedies. Nothing is run.
    ///
    /// # Errors
    /// If the model does not take the data, or nothing says how much memory there is.
    pub fn max_batch_that_fits(&self, data: &Dataset, held_out: Option<&Dataset>) -> Result<MaxBatch> {
        let budget = match self.budget {
            Some(budget) => budget,
            None => self.budget_of_device(data, held_out)?,
        };
        if budget == 0 {
            let limit = LARGEST_BATCH.min(data.samples());
            return Ok(MaxBatch {
                budget_bytes: 0,
                without_remedies: 0,
                with_remedies: 0,
                gaps: vec![],
                limit,
            });
        }
        self.max_batch(data, held_out, budget)
    }

    /// What a budget may be on a device of which nothing else is taken but what training takes beside.
    fn budget_of_device(&self, data: &Dataset, held_out: Option<&Dataset>) -> Result<u64> {
        let forecast = self.clone().batch(1).micro_batches(1).forecast(data, held_out)?;
        let Some(memory) = forecast.room.memory_bytes else {
            let message = "it is not known how much memory there is: say how much may be taken, by a budget";
            return Err(Error::new(ErrorKind::Argument, message));
        };
        let beside = forecast.needed_bytes() - forecast.bounded_bytes();
        // Other batches have other kernels, whose code takes a little more or less.
        let slack = SLACK.min(memory / 64);
        Ok(rounded_down(memory.saturating_sub(beside).saturating_sub(slack)))
    }

    /// The largest batch that fits a budget, with and without remedies. Nothing is run.
    ///
    /// # Errors
    /// If the model does not take the data.
    pub fn max_batch(&self, data: &Dataset, held_out: Option<&Dataset>, budget: u64) -> Result<MaxBatch> {
        if budget == 0 {
            return Err(Error::new(ErrorKind::Argument, "nothing fits a budget of 0 bytes"));
        }
        let limit = LARGEST_BATCH.min(data.samples());
        let target = self.run(data, held_out)?.target()?;
        // Split far enough any batch fits that one sample does: the question is what fits at once.
        let at_once = |batch: usize| {
            let trainer = self.clone().batch(batch).micro_batches(1).exact(true);
            trainer.run(data, held_out)
        };
        let fits = |batch: usize| at_once(batch)?.fits(&target, budget, false);
        // Of batches whose logits are made whole the largest needs more than some that are larger: those are searched too.
        let is_whole = |batch: usize| Ok(!at_once(batch)?.chunks_its_loss(&target)?);
        let whole = if is_whole(limit)? { limit } else { halve(0, limit, &is_whole)? };
        let without = match largest(limit - whole, |more| fits(whole + more))? {
            0 => largest(whole, fits)?,
            more => whole + more,
        };
        let with = largest(limit, |batch| at_once(batch)?.fits(&target, budget, true))?;
        let gaps = gaps(&smaller(without, whole), &fits)?;
        Ok(MaxBatch {
            budget_bytes: budget,
            without_remedies: without,
            with_remedies: with.max(without),
            gaps,
            limit,
        })
    }
}

/// Batches beyond this are not tried.
const LARGEST_BATCH: usize = 1 << 20;

/// So many smaller batches are looked at in any case.
const LOOKED_AT: usize = 32;

/// The smaller batches that are looked at, in rising order: all, or where there are many some spread over them, and the largest
/// whose logits are made whole.
fn smaller(found: usize, whole: usize) -> Vec<usize> {
    let count = found.saturating_sub(1);
    let spread = (1..=count.min(LOOKED_AT)).map(|n| n * count / count.min(LOOKED_AT));
    let mut smaller: Vec<usize> = spread.chain((1..found).contains(&whole).then_some(whole)).collect();
    smaller.sort_unstable();
    smaller.dedup();
    smaller
}

/// The stretches of some batches that do not fit: the first and the last of each.
fn gaps(batches: &[usize], fits: &dyn Fn(usize) -> Result<bool>) -> Result<Vec<(usize, usize)>> {
    let mut gaps: Vec<(usize, usize)> = vec![];
    let mut is_open = false;
    for &batch in batches {
        let is_gap = !fits(batch)?;
        match gaps.last_mut() {
            Some(last) if is_gap && is_open => last.1 = batch,
            _ if is_gap => gaps.push((batch, batch)),
            _ => {}
        }
        is_open = is_gap;
    }
    Ok(gaps)
}

/// The largest number up to `limit` for which `fits` holds, as far as that is found by halving; 0 if for none.
///
/// It need not hold for all smaller ones: a product of few rows can take more workspace than one of many, and logits that
/// are large enough are made some rows at a time. Which numbers are tried next depends on nothing but what held before, so
/// where one of them fits a larger budget and not a smaller one, all that is found from there is above what the smaller gives:
/// a larger budget never gives less.
fn largest(limit: usize, fits: impl Fn(usize) -> Result<bool>) -> Result<usize> {
    // First among powers of two, which are few: the number 2ⁿ⁻¹ for n from 1.
    let power = |n: usize| 1usize << (n - 1);
    let powers = limit.checked_ilog2().map_or(0, |n| n as usize + 1);
    match halve(0, powers + 1, &|n| fits(power(n)))? {
        0 => Ok(0),
        n => halve(power(n), power(n + 1).min(limit + 1), &fits),
    }
}

/// A number from `good` up to below `bad` for which it holds, where it does not for the next.
fn halve(mut good: usize, mut bad: usize, holds: &dyn Fn(usize) -> Result<bool>) -> Result<usize> {
    while bad - good > 1 {
        let middle = good.midpoint(bad);
        if holds(middle)? { good = middle } else { bad = middle }
    }
    Ok(good)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_larger_budget_never_gives_less_whatever_batches_need(
            needs in prop::collection::vec(0u32..50, 1..200),
            budgets in [0u32..50, 0u32..50],
        ) {
            let largest = |budget: u32| largest(needs.len(), |batch| Ok(needs[batch - 1] <= budget)).unwrap();
            let [small, large] = [budgets[0].min(budgets[1]), budgets[0].max(budgets[1])];
            prop_assert!(largest(small) <= largest(large));
            let found = largest(large);
            prop_assert!(found == 0 || needs[found - 1] <= large, "what is found fits");
            prop_assert!(found == needs.len() || found == 0 || needs[found] > large, "one more does not");
        }

        #[test]
        fn all_that_do_not_fit_are_in_gaps_where_they_are_few(needs in prop::collection::vec(0u32..50, 1..33), budget in 0u32..50) {
            let fits = |batch: usize| Ok(needs[batch - 1] <= budget);
            let gaps = gaps(&smaller(needs.len(), 0), &fits).unwrap();
            let is_in = |batch: usize| gaps.iter().any(|&(first, last)| (first..=last).contains(&batch));
            for batch in 1..needs.len() {
                prop_assert_eq!(is_in(batch), !fits(batch).unwrap(), "{} of {:?}", batch, gaps);
            }
            prop_assert!(smaller(100_000, 777).contains(&777) && smaller(100_000, 777).len() <= 33);
        }

        #[test]
        fn where_more_need_more_the_largest_is_found(mut needs in prop::collection::vec(0u32..50, 1..200), budget in 0u32..50) {
            needs.sort_unstable();
            let found = largest(needs.len(), |batch| Ok(needs[batch - 1] <= budget)).unwrap();
            prop_assert_eq!(found, needs.iter().filter(|&&need| need <= budget).count());
        }
    }
}

//! The largest batch that fits a budget, found without a run.

use super::Trainer;
use crate::forecast::frontier::MaxBatch;
use crate::{Error, ErrorKind, Result};
use plimsoll_data::Dataset;

impl Trainer {
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
        let fits = |batch: usize, with_remedies: bool| {
            let trainer = self.clone().batch(batch).micro_batches(1).exact(true);
            trainer.run(data, held_out)?.fits(&target, budget, with_remedies)
        };
        let without = largest(limit, |batch| fits(batch, false))?;
        let with = largest(limit, |batch| fits(batch, true))?;
        Ok(MaxBatch {
            budget_bytes: budget,
            without_remedies: without,
            with_remedies: with.max(without),
            limit,
        })
    }
}

/// Batches beyond this are not tried.
const LARGEST_BATCH: usize = 1 << 20;

/// The largest number up to `limit` for which `fits` holds, as far as that is found by halving; 0 if for none.
///
/// It need not hold for all smaller ones: a product of few rows can take more workspace than one of many, and logits that
/// are large enough are made some rows at a time. Which numbers are tried next depends on nothing but what held before, so
/// where one of them fits a larger budget and not a smaller one, all that is found from there is above what the smaller gives:
/// a larger budget never gives less.
fn largest(limit: usize, fits: impl Fn(usize) -> Result<bool>) -> Result<usize> {
    let halve = |mut good: usize, mut bad: usize, fits: &dyn Fn(usize) -> Result<bool>| -> Result<usize> {
        while bad - good > 1 {
            let middle = good.midpoint(bad);
            if fits(middle)? { good = middle } else { bad = middle }
        }
        Ok(good)
    };
    // First among powers of two, which are few: the number 2ⁿ⁻¹ for n from 1.
    let power = |n: usize| 1usize << (n - 1);
    let powers = limit.checked_ilog2().map_or(0, |n| n as usize + 1);
    match halve(0, powers + 1, &|n| fits(power(n)))? {
        0 => Ok(0),
        n => halve(power(n), power(n + 1).min(limit + 1), &fits),
    }
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
        fn where_more_need_more_the_largest_is_found(mut needs in prop::collection::vec(0u32..50, 1..200), budget in 0u32..50) {
            needs.sort_unstable();
            let found = largest(needs.len(), |batch| Ok(needs[batch - 1] <= budget)).unwrap();
            prop_assert_eq!(found, needs.iter().filter(|&&need| need <= budget).count());
        }
    }
}

//! Work of many kernels, whose least plan is found by itself.

use plimsoll_plan::{Effort, Fitted, Frontier, Options};
use proptest::prelude::*;
use steps::{offload, step, verify};

mod steps;

const OPTIONS: Options = Options { alignment: 64, effort: Effort { steps: 10_000 }, together_bytes: 0 };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2))]

    #[test]
    fn the_least_plan_is_a_budget_that_is_met_and_no_smaller_one_is(
        (work, costs) in step(335..340),
        offload in offload(),
        shares in prop::collection::vec(0.0f64..1.0, 2),
    ) {
        prop_assert!(work.kernels.len() > 1000);
        let fresh = || Frontier::new(work.clone(), costs.clone(), &OPTIONS, offload);
        let asked = fresh();
        let smallest = asked.smallest().unwrap().unwrap();
        verify(&work, &smallest)?;
        let least = smallest.plan.peak_bytes;
        prop_assert!(asked.within(least - 1).unwrap().is_none());
        prop_assert!(asked.within(least).unwrap().is_some_and(|fitted| fitted.plan.peak_bytes == least));
        // What a budget gets is the same if nothing was asked before, and more memory is never slower.
        let plan = |fitted: &Fitted| (fitted.plan.peak_bytes, fitted.seconds, fitted.sources.clone());
        let most = asked.point(0).unwrap().0;
        let mut budgets: Vec<u64> = shares.iter().map(|of| least + ((most - least) as f64 * of) as u64).collect();
        budgets.extend([least, least + least / 20]);
        budgets.sort_unstable();
        let mut before = f64::INFINITY;
        for budget in budgets {
            let fitted = asked.within(budget).unwrap().unwrap();
            verify(&work, &fitted)?;
            prop_assert!(fitted.plan.peak_bytes <= budget && fitted.seconds <= before);
            prop_assert_eq!(plan(&fitted), plan(&fresh().within(budget).unwrap().unwrap()));
            // What is taken is a budget that gives the same.
            let again = asked.within(fitted.plan.peak_bytes).unwrap();
            prop_assert_eq!(again.map(|fitted| plan(&fitted)), Some(plan(&fitted)));
            before = fitted.seconds;
        }
        let points: Vec<(u64, f64)> = asked.points().collect();
        prop_assert!(points.windows(2).all(|pair| pair[1].0 < pair[0].0 && pair[1].1 >= pair[0].1), "{points:?}");
    }
}

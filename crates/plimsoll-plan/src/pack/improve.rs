//! The search for what the portfolio leaves to gain.
//!
//! Whether a canonical search ends soon depends on luck with the order, so many are started and none is given
//! much time. Each round tries the plain orders, with twice the steps of the round before, and twice as many
//! shaken ones. In between, in case the target is out of reach, it tries to halve the way to it.
//!
//! Threads share the attempts of a round, and the first one *by number* that succeeds counts, so the result
//! does not depend on which was faster.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::canonical::{self, Setup, Verdict};
use super::part::Part;
use super::rank::{Order, rank};
use super::{parallel, valley};

/// Larger parts are not searched, which would take memory quadratic in their items, but repacked with shaken
/// orders.
const SEARCHED_ITEMS: usize = 2048;
/// The steps of an attempt in the first round, if the part is not so large that one descent takes more.
const ALLOWANCE: u64 = 1 << 20;

/// Orders to search in, the most successful first.
const PLAIN: [Order; 6] =
    [Order::Area, Order::PeakLength, Order::Length, Order::PeakArea, Order::End, Order::Start];
/// Orders that are worth shaking, and how often the first round does.
const SHAKEN: [Order; 2] = [Order::Area, Order::PeakLength];
const SHAKES: u64 = 16;
/// How often a round halves the way to the target, and in how many orders it tries each time.
const HALVINGS: usize = 8;
const HALVING_ATTEMPTS: usize = 3;

/// A search that is under way.
pub(super) struct Improver<'a> {
    /// What is left of the effort.
    pub(super) steps: u64,
    pub(super) keep_going: &'a (dyn Fn() -> bool + Sync),
}

/// One search of a round.
#[derive(Clone, Copy)]
struct Attempt {
    order: Order,
    shake: u64,
    steps: u64,
}

impl Improver<'_> {
    /// Improves the offsets of each part until none is higher than `target`, as far as the effort goes.
    pub(super) fn improve(&mut self, parts: &[Part], offsets: &mut [Vec<u64>], mut target: u64) {
        for round in 0.. {
            let mut done = true;
            for (part, offsets) in parts.iter().zip(&mut *offsets) {
                if part.height(offsets) <= target {
                    continue;
                }
                if self.steps == 0 || !(self.keep_going)() {
                    return;
                }
                done = false;
                if part.len() > SEARCHED_ITEMS {
                    self.repack(part, offsets, round);
                } else {
                    self.search(part, offsets, &mut target, round);
                }
            }
            if done {
                return;
            }
        }
    }

    /// One round for one part. The target rises if it is proven to be out of reach: as this part can be no
    /// lower, there is nothing to gain if another is.
    fn search(&mut self, part: &Part, offsets: &mut Vec<u64>, target: &mut u64, round: u32) {
        let allowance = ALLOWANCE.max((part.len() * part.len()) as u64);
        let growth = 1_u64 << round.min(16);
        let plain = PLAIN.map(|order| Attempt { order, shake: 0, steps: allowance.saturating_mul(growth) });
        let seeds = SHAKES * (growth - 1)..SHAKES * (2 * growth - 1);
        let shaken = seeds.zip(SHAKEN.into_iter().cycle());
        let shaken = shaken.map(|(seed, order)| Attempt { order, shake: seed + 1, steps: allowance });

        if self.reach(part, offsets, target, *target, plain.iter().copied()) {
            return;
        }
        let mut missed = *target;
        for _ in 0..HALVINGS {
            // A packing may turn out lower than was asked for, and lower than what was missed before.
            missed = if missed < part.height(offsets) { missed.max(*target) } else { *target };
            let halfway = missed + part.height(offsets).saturating_sub(missed) / 2;
            if halfway == missed {
                break;
            }
            if !self.reach(part, offsets, target, halfway, plain.iter().copied().take(HALVING_ATTEMPTS)) {
                missed = halfway;
            }
        }
        if part.height(offsets) > *target {
            self.reach(part, offsets, target, *target, shaken);
        }
    }

    /// Makes attempts at packing `part` within `capacity`, for at most half of the steps that are left, and says
    /// whether it is.
    fn reach(
        &mut self,
        part: &Part,
        offsets: &mut Vec<u64>,
        target: &mut u64,
        capacity: u64,
        attempts: impl Iterator<Item = Attempt>,
    ) -> bool {
        let mut left = self.steps.div_ceil(2);
        let affordable = attempts.map_while(|attempt| {
            let steps = attempt.steps.min(left);
            left -= steps;
            (steps > 0).then_some(Attempt { steps, ..attempt })
        });
        match self.first_verdict(part, capacity, &affordable.collect::<Vec<_>>()) {
            Verdict::Packed(better) => *offsets = better,
            Verdict::Impossible => *target = capacity + 1,
            Verdict::Unknown => {}
        }
        part.height(offsets) <= capacity
    }

    /// The verdict of the first attempt that comes to one.
    fn first_verdict(&mut self, part: &Part, capacity: u64, attempts: &[Attempt]) -> Verdict {
        let winner = AtomicUsize::new(usize::MAX);
        let run = |number: usize| {
            let stop = || winner.load(Ordering::Relaxed) < number || !(self.keep_going)();
            if stop() {
                return (Verdict::Unknown, 0);
            }
            let Attempt { order, shake, steps } = attempts[number];
            let setup = Setup {
                capacity,
                ranked: &rank(part, order, shake),
                // One attempt must be such that it can prove that there is no packing.
                jumps: number > 0,
                steps,
                stop: &stop,
            };
            let result = canonical::search(part, &setup);
            if !matches!(result.0, Verdict::Unknown) {
                winner.fetch_min(number, Ordering::Relaxed);
            }
            result
        };
        for (verdict, steps) in parallel::map(attempts.len(), run) {
            self.steps = self.steps.saturating_sub(steps);
            if !matches!(verdict, Verdict::Unknown) {
                return verdict;
            }
        }
        Verdict::Unknown
    }

    /// Repacks a part that is too large to search.
    fn repack(&mut self, part: &Part, offsets: &mut Vec<u64>, round: u32) {
        let run = |number: usize| valley::pack(part, &rank(part, PLAIN[number], u64::from(round) + 1));
        for candidate in parallel::map(PLAIN.len(), run) {
            if part.height(&candidate) < part.height(offsets) {
                *offsets = candidate;
            }
        }
        let cost = part.len() as u64 * u64::from(part.len().ilog2()) * PLAIN.len() as u64;
        self.steps = self.steps.saturating_sub(cost);
    }
}

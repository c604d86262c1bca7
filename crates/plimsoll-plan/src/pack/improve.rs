//! The search for what the portfolio leaves to gain.
//!
//! Whether a canonical search ends soon depends on luck with the order, so many are started and none is given
//! much time. Each round tries the plain orders, with four times the steps of the round before, and twice as
//! many shaken ones. In between, in case the target is out of reach, it tries to halve the way to it.
//!
//! Luck can be helped: the items that an attempt had no room for come earlier in the next. On some problems that
//! is the way out and on others a fixed idea, so half of the attempts with shaken orders do without.
//!
//! Threads share the attempts of a round, and the first one *by number* that succeeds counts, so the result
//! does not depend on which was faster.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::canonical::{self, Report, Setup, Verdict};
use super::part::Part;
use super::rank::{Order, promote, rank};
use super::{layers, parallel, valley};

/// Larger parts are not searched, which would take memory quadratic in their items, but repacked with shaken
/// orders, for a few rounds: more gain next to nothing.
const SEARCHED_ITEMS: usize = 2048;
const REPACKED: u32 = 5;
/// Where a part of more than so many items is over the target by more than this part of it, it is packed in layers first.
const LAYERED_ITEMS: usize = 512;
const LITTLE: u64 = 50;
/// The steps of an attempt, if the part is not so large that one descent takes more: with a plain order in the
/// first round, and with a shaken one in any. Most that succeed do so in few, so the first look is a short one.
const PROBE: u64 = 1 << 18;
const ALLOWANCE: u64 = 1 << 20;

/// Orders to search in, the most successful first.
const PLAIN: [Order; 6] =
    [Order::Area, Order::PeakLength, Order::Length, Order::PeakArea, Order::End, Order::Start];
/// Orders that are worth shaking, and how often the first round shakes each.
const SHAKEN: [Order; 2] = [Order::Area, Order::PeakLength];
const SHAKES: u64 = 16;
/// What an attempt adds to the trouble of the item that was the most; the others get their share of it.
const TROUBLE: u64 = 1 << 16;
/// How often a round halves the way to the target, and in how many orders it tries each time.
const HALVINGS: usize = 8;
const HALVING_ATTEMPTS: usize = 3;

/// A search that is under way.
pub(super) struct Improver<'a> {
    /// What is left of the effort.
    pub(super) steps: u64,
    pub(super) keep_going: &'a (dyn Fn() -> bool + Sync),
    /// Whether parts may be packed in layers: those of a layer are not.
    pub(super) in_layers: bool,
}

/// One search of a round.
#[derive(Clone, Copy)]
struct Attempt<'a> {
    order: Order,
    shake: u64,
    /// How much trouble each item was before, if that should count.
    trouble: Option<&'a [u64]>,
    steps: u64,
}

impl Improver<'_> {
    /// Improves the offsets of each part until none is higher than `target`, as far as the effort goes.
    pub(super) fn improve(&mut self, parts: &[Part], offsets: &mut [Vec<u64>], mut target: u64) {
        for round in 0.. {
            let mut done = true;
            for (part, offsets) in parts.iter().zip(&mut *offsets) {
                let rounds = if part.len() > SEARCHED_ITEMS { REPACKED } else { u32::MAX };
                if part.height(offsets) <= target || round >= rounds {
                    continue;
                }
                if self.steps == 0 || !(self.keep_going)() {
                    return;
                }
                done = false;
                let wasteful = part.len() > LAYERED_ITEMS && part.height(offsets) > target + target / LITTLE;
                if self.in_layers && round == 0 && wasteful {
                    let layered = layers::pack(part, target, self.keep_going);
                    if let Some(better) = layered.filter(|of| part.height(of) < part.height(offsets)) {
                        *offsets = better;
                    }
                }
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
        let descent = (part.len() * part.len()) as u64;
        let growth = 1_u64 << round.min(16);
        let steps = PROBE.max(descent).saturating_mul(growth * growth);
        let plain = PLAIN.map(|order| Attempt { order, shake: 0, trouble: None, steps });

        if self.reach(part, offsets, target, *target, plain.into_iter()).is_ok() {
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
            if self.reach(part, offsets, target, halfway, plain.into_iter().take(HALVING_ATTEMPTS)).is_err() {
                missed = halfway;
            }
        }

        let mut trouble = SHAKEN.map(|_| vec![0; part.len()]);
        for seed in SHAKES * (growth - 1)..SHAKES * (2 * growth - 1) {
            if part.height(offsets) <= *target || self.steps == 0 || !(self.keep_going)() {
                return;
            }
            let shake =
                |(order, trouble)| Attempt { order, shake: seed + 1, trouble, steps: ALLOWANCE.max(descent) };
            let shaken = SHAKEN.map(|order| (order, None));
            let known = trouble.iter().filter(|trouble| trouble.iter().any(|&trouble| trouble > 0));
            let warned = SHAKEN.into_iter().zip(known.map(|trouble| Some(&trouble[..])));
            let attempts = shaken.into_iter().chain(warned).map(shake);
            if let Err(found) = self.reach(part, offsets, target, *target, attempts) {
                for (number, found) in found.iter().enumerate() {
                    remember(&mut trouble[number % SHAKEN.len()], found);
                }
            }
        }
    }

    /// Makes attempts at packing `part` within `capacity`, for at most half of the steps that are left. If that
    /// fails, returns the trouble that each attempt found.
    fn reach<'a>(
        &mut self,
        part: &Part,
        offsets: &mut Vec<u64>,
        target: &mut u64,
        capacity: u64,
        attempts: impl Iterator<Item = Attempt<'a>>,
    ) -> Result<(), Vec<Vec<u64>>> {
        let mut left = self.steps.div_ceil(2);
        let affordable = attempts.map_while(|attempt| {
            let steps = attempt.steps.min(left);
            left -= steps;
            (steps > 0).then_some(Attempt { steps, ..attempt })
        });
        let mut trouble = Vec::new();
        for report in self.run(part, capacity, &affordable.collect::<Vec<_>>()) {
            self.steps = self.steps.saturating_sub(report.steps);
            trouble.push(report.trouble);
            match report.verdict {
                Verdict::Unknown => {}
                Verdict::Packed(better) => {
                    *offsets = better;
                    return Ok(());
                }
                Verdict::Impossible => {
                    *target = capacity + 1;
                    break;
                }
            }
        }
        Err(trouble)
    }

    /// Runs the attempts, or rather those up to the first that comes to a verdict.
    fn run(&self, part: &Part, capacity: u64, attempts: &[Attempt<'_>]) -> Vec<Report> {
        let winner = AtomicUsize::new(usize::MAX);
        parallel::map(attempts.len(), |number| {
            let stop = || winner.load(Ordering::Relaxed) < number || !(self.keep_going)();
            if stop() {
                return Report { verdict: Verdict::Unknown, steps: 0, trouble: vec![] };
            }
            let Attempt { order, shake, trouble, steps } = attempts[number];
            let mut ranked = rank(part, order, shake);
            if let Some(trouble) = trouble {
                promote(&mut ranked, trouble);
            }
            let setup = Setup { capacity, ranked: &ranked, steps, stop: &stop };
            let report = canonical::search(part, &setup);
            if !matches!(report.verdict, Verdict::Unknown) {
                winner.fetch_min(number, Ordering::Relaxed);
            }
            report
        })
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

/// Adds the trouble that an attempt found to what is remembered of earlier ones, which fades.
fn remember(trouble: &mut [u64], found: &[u64]) {
    let most = found.iter().copied().max().unwrap_or(0).max(1);
    for (trouble, found) in trouble.iter_mut().zip(found) {
        *trouble = *trouble * 9 / 10 + found * TROUBLE / most;
    }
}

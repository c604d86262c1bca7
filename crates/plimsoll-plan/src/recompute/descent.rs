//! The descent: from the schedule that takes the most memory down to the least, at the lowest price in time.
//!
//! Buffers wait: between two uses, often from the forward to the backward pass, a buffer does nothing but take
//! bytes. Each such *gap* is an offer: drop the buffer there and make it again, or move it to the host
//! meanwhile, for so many seconds. The descent lowers a target step by step. While the simulated peak is above
//! it, it takes the offers that relieve the most bytes over the most positions above the target for each
//! second they cost; when the target is met, it takes back what turned out not to be needed. What every step
//! leaves is a point of the frontier. Nothing is believed but the simulator: a round of offers that does not
//! bring the schedule closer to its target is undone.

use crate::recompute::offers::{Idle, Remedy, over};
use crate::schedule::search_context::SearchContext;
use crate::schedule::simulate::Simulation;
use crate::schedule::{LaunchId, Schedule};
use crate::transfer::time_copies;
use plimsoll_ir::{BufferIndex, Home, Keep, LaunchSource};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// The most steps of a descent, and the least: each goes down by as much.
const STEPS: [usize; 2] = [48, 14];

/// Kernels times steps of one descent.
const EFFORT: usize = 150_000;

/// A schedule, and what it takes.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    pub(crate) schedule: Schedule,
    /// The most bytes that live at once.
    pub(crate) live_bytes: u64,
    pub(crate) seconds: f64,
}

/// What a second of copying is priced at beside kernels that run meanwhile, in the descents that are made. Where
/// lanes are idle nearly nothing is right; where they are busy, copies are for what would take long to make again.
pub(crate) const COPY_PRICES: [f64; 8] = [0.03, 0.2, 0.01, 0.05, 0.1, 0.005, 0.4, 0.02];

/// What is done for a target, as far as that goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stage {
    /// What a second of copying is priced at beside kernels that run meanwhile.
    pub(crate) copy_price: f64,
    pub(crate) waits: Waits,
}

/// Which copies kernels wait for where they would take bytes over the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    /// Those that were found to be worth it.
    ForSome,
    /// All.
    ForAll,
    /// All, and states that rest within a step are fetched again although the lanes are full.
    AlsoWithin,
}

/// The part of a target that may be left to copies on their way when states are brought back to device memory.
const ROOM_FOR_COPIES: i64 = 16;

/// How many rounds may come to nothing before a target is given up, and how many where there is no other way down.
const FAILURES: [usize; 2] = [16, 64];

/// What may be moved to host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Offload {
    /// Nothing.
    Nothing,
    /// Values inside a step. States stay where they are.
    Values,
    /// Values, and states between steps.
    ValuesAndStates,
}

/// How many prices are worth trying.
pub(crate) fn prices(offload: Offload) -> usize {
    if offload == Offload::Nothing { 1 } else { COPY_PRICES.len() }
}

/// The schedules that descents begin with: the kernels in several orders.
pub(crate) struct Beginnings {
    /// As written, which is of little use to copies.
    pub(crate) written: Schedule,
    /// What frees memory is early, one chain after another.
    pub(crate) early: Schedule,
    /// The same, with updates where their states can have been fetched.
    pub(crate) patient: Schedule,
    /// What frees memory is early, in turn.
    pub(crate) in_turn: Schedule,
}

/// The schedules of the frontier, from the most memory to the least, each slower than the one before. The first is
/// as written or early, without any remedy; those of `known` are among them. Descents are made side by side, at the
/// prices of those numbers.
pub(crate) fn descend(
    context: &SearchContext<'_>,
    from: &Beginnings,
    offload: Offload,
    prices: Range<usize>,
    known: Vec<Point>,
) -> Vec<Point> {
    let Beginnings { written, early, patient, .. } = from;
    let plain = [written, early].map(|schedule| priced(context, schedule.clone()));
    let plain = plain.into_iter().min_by_key(|point| point.live_bytes);
    let from = if offload == Offload::Nothing { [written, early] } else { [early, patient] };
    let prices = &COPY_PRICES[prices];
    let starts = from.into_iter().flat_map(|schedule| prices.iter().map(move |&price| (schedule, price)));
    let descents = side_by_side(starts.map(|(schedule, copy_price)| {
        let stage = Stage { copy_price, waits: Waits::ForSome };
        move || walk(Descent::new(context, schedule.clone(), offload, stage))
    }));
    let points = descents.into_iter().flatten().chain(known).collect();
    frontier(plain, points)
}

/// What several descents come to.
pub(crate) fn side_by_side<T: Send, F: FnOnce() -> T + Send>(descents: impl Iterator<Item = F>) -> Vec<T> {
    std::thread::scope(|scope| {
        let running: Vec<_> = descents.map(|descent| scope.spawn(descent)).collect();
        let results = running
            .into_iter()
            .map(|descent| descent.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        results.collect()
    })
}

/// A schedule, and what it takes at the costs of a context.
pub(crate) fn priced(context: &SearchContext<'_>, schedule: Schedule) -> Point {
    let stage = Stage { copy_price: 0.0, waits: Waits::ForSome };
    Descent::new(context, schedule, Offload::Nothing, stage).point()
}

/// The steps of a descent through work of so many kernels.
fn steps(kernels: usize) -> usize {
    (EFFORT / kernels.max(1)).clamp(STEPS[1], STEPS[0])
}

/// Whether work of so many kernels is gone through in fewer steps than smaller work is.
pub(crate) fn is_brief(kernels: usize) -> bool {
    steps(kernels) < STEPS[0]
}

/// What a descent from so many bytes through work of so many kernels aims at, one after the other.
fn targets(highest: u64, kernels: usize) -> impl Iterator<Item = i64> {
    let (highest, steps) = (highest as i64, steps(kernels) as i64);
    (1..steps).map(move |step| highest - highest * step / steps)
}

/// One descent, all the way down.
fn walk(mut descent: Descent<'_>) -> Vec<Point> {
    let mut points = vec![descent.point()];
    for target in targets(descent.simulation.peak(), descent.context.work.kernels.len()) {
        if descent.simulation.peak() as i64 > target && !descent.go_below(target, &mut points) {
            break;
        }
    }
    points
}

/// The points below the plain one, if there is one, that no other one beats in both memory and time.
pub(crate) fn frontier(plain: Option<Point>, mut points: Vec<Point>) -> Vec<Point> {
    points.retain(|point| plain.as_ref().is_none_or(|plain| point.live_bytes < plain.live_bytes));
    points.sort_by(|a, b| a.live_bytes.cmp(&b.live_bytes).then(a.seconds.total_cmp(&b.seconds)));
    let mut fastest = f64::INFINITY;
    points.retain(|point| {
        let better = point.seconds < fastest * (1.0 - 1e-9);
        fastest = fastest.min(point.seconds);
        better
    });
    // Sums in another order may differ in their last digit.
    points.extend(plain.map(|plain| Point { seconds: plain.seconds.min(fastest), ..plain }));
    points.reverse();
    points
}

pub(crate) struct Descent<'a> {
    pub(crate) context: &'a SearchContext<'a>,
    pub(crate) schedule: Schedule,
    pub(crate) simulation: Simulation,
    pub(crate) offload: Offload,
    pub(crate) stage: Stage,
    /// What was tried alone and did not help.
    pub(crate) refused: HashSet<Idle>,
    /// The seconds that kernels waited when something was to be copied, beyond what that was priced at.
    pub(crate) stalls: HashMap<Idle, f64>,
}

/// What a round did.
struct Round {
    taken: Vec<Idle>,
    copied: Vec<Idle>,
    /// The seconds it was to cost.
    seconds: f64,
}

impl<'a> Descent<'a> {
    pub(crate) fn new(
        context: &'a SearchContext<'a>,
        mut schedule: Schedule,
        offload: Offload,
        stage: Stage,
    ) -> Descent<'a> {
        let simulation = Simulation::new(context, &mut schedule);
        Descent::resume(context, schedule, simulation, offload, stage)
    }

    /// A descent from a schedule that was simulated.
    pub(crate) fn resume(
        context: &'a SearchContext<'a>,
        schedule: Schedule,
        simulation: Simulation,
        offload: Offload,
        stage: Stage,
    ) -> Descent<'a> {
        let (refused, stalls) = (HashSet::new(), HashMap::new());
        Descent { context, schedule, simulation, offload, stage, refused, stalls }
    }

    pub(crate) fn point(&self) -> Point {
        Point {
            schedule: self.schedule.clone(),
            live_bytes: self.simulation.peak(),
            seconds: self.simulation.seconds(),
        }
    }

    pub(crate) fn simulate(&mut self) {
        self.simulation = Simulation::new(self.context, &mut self.schedule);
    }

    /// Gives copies their places for a target, and simulates that.
    fn settle(&mut self, target: i64) {
        if self.stage.waits != Waits::ForSome {
            self.schedule.launches.iter_mut().for_each(|l| l.hurried = true);
        }
        time_copies(self.context, &mut self.schedule, target);
        self.simulate();
    }

    /// Goes down to a target, as far as that is possible, and notes where that is. Returns whether it was reached.
    fn go_below(&mut self, target: i64, points: &mut Vec<Point>) -> bool {
        let reached = self.reach(target);
        let met = (self.simulation.peak() as i64).max(target);
        self.take_back(met);
        points.push(self.point());
        reached
    }

    /// Takes offers until no more than `target` bytes live at once. Returns whether that was possible.
    pub(crate) fn reach(&mut self, target: i64) -> bool {
        self.refused.clear();
        self.stalls.clear();
        self.schedule.launches.iter_mut().for_each(|l| l.hurried = false);
        self.settle(target);
        let mut limit = usize::MAX;
        let mut offers = None;
        let mut failures = 0;
        while self.simulation.peak() as i64 > target {
            let over = over(&self.simulation, target);
            // As long as nothing is taken, the offers stay.
            let ranked = offers.get_or_insert_with(|| self.ranked(&over));
            let before = (self.simulation.excess(&self.schedule, target), self.simulation.peak());
            let seconds = self.simulation.seconds();
            let kept = (self.schedule.clone(), self.simulation.clone());
            let round = self.round(ranked, &over, target, limit);
            if round.taken.is_empty() {
                return false;
            }
            self.settle(target);
            let after = (self.simulation.excess(&self.schedule, target), self.simulation.peak());
            let dearer = self.simulation.seconds() - seconds - round.seconds;
            let stalls =
                self.stage.waits == Waits::ForSome && !round.copied.is_empty() && dearer > 0.002 * seconds;
            if !stalls && after < before {
                limit = limit.saturating_mul(2);
                offers = None;
                continue;
            }
            (self.schedule, self.simulation) = kept;
            failures += 1;
            if failures > FAILURES[usize::from(self.stage.waits != Waits::ForSome)] {
                return false;
            }
            if stalls {
                // Not all are to blame, and those that were worth the least are suspected first.
                let blamed = &round.copied[round.copied.len() / 2..];
                for &idle in blamed {
                    *self.stalls.entry(idle).or_default() += dearer / blamed.len() as f64;
                }
                self.rank_again(ranked, blamed, &over);
            } else {
                if round.taken.len() == 1 {
                    self.refused.extend(round.taken);
                }
                limit = (limit.min(512) / 8).max(1);
            }
        }
        true
    }

    /// What is idle, by how good the offer for it is.
    fn ranked(&self, over: &[u32]) -> Vec<(Idle, f64)> {
        let offers = self.offers(over).into_iter();
        let mut ranked: Vec<(Idle, f64)> = offers.map(|offer| (offer.idle, offer.score)).collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
        ranked
    }

    /// Ranks some anew, whose offers got worse.
    fn rank_again(&self, ranked: &mut Vec<(Idle, f64)>, some: &[Idle], over: &[u32]) {
        for (idle, score) in ranked.iter_mut().filter(|(idle, _)| some.contains(idle)) {
            *score = self.offer(*idle, over).map_or(0.0, |now| now.score);
        }
        ranked.retain(|&(_, score)| score > 0.0);
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    }

    /// Takes the best offers, at most `limit` of them.
    fn round(&mut self, ranked: &[(Idle, f64)], over: &[u32], target: i64, limit: usize) -> Round {
        let mut round = Round { taken: vec![], copied: vec![], seconds: 0.0 };
        for &(idle, score) in ranked {
            if round.taken.len() >= limit || self.simulation.tree.peak() <= target {
                break;
            }
            if !self.is_idle_above(idle, target) {
                continue;
            }
            // Others that were taken may have made this one dearer.
            let Some(offer) = self.offer(idle, over).filter(|now| now.score >= 0.5 * score) else {
                continue;
            };
            if self.take(&offer).is_some() {
                round.taken.push(idle);
                round.seconds += offer.seconds;
                if matches!(offer.remedy, Remedy::Offload(_)) {
                    round.copied.push(idle);
                }
            }
        }
        round
    }

    /// Takes back what is not needed to stay within `target`, the dearest first.
    pub(crate) fn take_back(&mut self, target: i64) {
        self.schedule.sweep_all();
        self.simulate();
        self.bring_states_home_where_faster(target);
        loop {
            let mut inserted: Vec<LaunchId> = self.simulation.order.clone();
            inserted.retain(|&l| {
                matches!(
                    self.schedule.launches[l as usize].source,
                    LaunchSource::Again(_) | LaunchSource::Rematerialize(_) | LaunchSource::Copy
                )
            });
            inserted.sort_by(|&a, &b| self.price(b).total_cmp(&self.price(a)));
            let mut any = false;
            for launch in inserted {
                any |= self.try_without(launch, target);
            }
            if !any {
                break;
            }
            self.simulate();
        }
        let kept = (self.schedule.clone(), self.simulation.clone());
        self.settle(target);
        if self.simulation.peak() as i64 > target || self.simulation.seconds() > kept.1.seconds() {
            (self.schedule, self.simulation) = kept;
        }
    }

    /// Lets states rest on the host, as far as there is room.
    pub(crate) fn send_away(&mut self, states: &[BufferIndex]) {
        let mut room = self.context.costs.host_bytes.saturating_sub(self.simulation.host_bytes);
        for &state in states {
            let Some(left) = room.checked_sub(self.context.bytes(state)) else { continue };
            room = left;
            // A state that nothing uses has nowhere to be fetched to, and stays.
            let _ = self.schedule.offload_state(state);
        }
        self.settle(0);
    }

    /// Lets states stay in device memory for which there is room, but leaves as much of it to copies on their way as makes the
    /// step the fastest.
    fn bring_states_home_where_faster(&mut self, target: i64) {
        if !self.schedule.instances.iter().any(|of| of.keep == Keep::Always && of.home == Home::Host) {
            return;
        }
        let (schedule, simulation) = (self.schedule.clone(), self.simulation.clone());
        let mut fastest: Option<(Schedule, Simulation)> = None;
        for within in [target, target - target / ROOM_FOR_COPIES, 0] {
            (self.schedule, self.simulation) = (schedule.clone(), simulation.clone());
            self.bring_states_home(within);
            self.settle(target);
            let fits = self.simulation.peak() as i64 <= target;
            if fits && fastest.as_ref().is_none_or(|(_, best)| self.simulation.seconds() < best.seconds()) {
                fastest = Some((self.schedule.clone(), self.simulation.clone()));
            }
        }
        (self.schedule, self.simulation) = fastest.unwrap_or((schedule, simulation));
    }

    /// Lets states stay in device memory for which there is room.
    fn bring_states_home(&mut self, target: i64) {
        let mut any = false;
        for buffer in 0..self.context.work.buffers.len() as BufferIndex {
            let of = &self.context.work.buffers[buffer as usize];
            let away = self.schedule.instances[buffer as usize].home == Home::Host;
            if of.keep != Keep::Always || of.home == Home::Host || !away {
                continue;
            }
            let mut stays = vec![];
            let mut from = 0;
            for instance in self.schedule.on_device(buffer) {
                let uses = &self.schedule.instances[instance as usize].uses;
                if let (Some(&first), Some(&last)) = (uses.first(), uses.last()) {
                    stays.push(from..self.simulation.position(first));
                    from = self.simulation.position(last) + 1;
                }
            }
            stays.push(from..self.simulation.order.len());
            let bytes = self.context.bytes(buffer) as i64;
            if stays.iter().all(|range| self.simulation.tree.most(range.clone()) + bytes <= target) {
                stays.into_iter().for_each(|range| self.simulation.tree.add(range, bytes));
                self.schedule.bring_home(buffer);
                any = true;
            }
        }
        if any {
            self.simulate();
        }
    }

    fn price(&self, launch: LaunchId) -> f64 {
        let of = &self.schedule.launches[launch as usize];
        match of.source {
            LaunchSource::Copy => {
                let buffer = self.schedule.instances[of.reads[0] as usize].buffer;
                self.stage.copy_price
                    * self.context.costs.copies.seconds(self.context.work.buffers[buffer as usize].bytes)
            }
            source => self.context.seconds(source),
        }
    }

    /// Keeps what a launch makes again instead, if there is room for it in every gap that opens.
    fn try_without(&mut self, launch: LaunchId, target: i64) -> bool {
        let mut joins = vec![];
        for &made in self.schedule.launches[launch as usize].writes.iter() {
            let instance = &self.schedule.instances[made as usize];
            let at_home = self.context.work.buffers[instance.buffer as usize].home == Home::Device;
            if instance.uses.first() != Some(&launch) || instance.home == Home::Host || !at_home {
                return false;
            }
            if instance.uses.len() == 1 {
                continue;
            }
            let Some(before) = self.schedule.predecessor(made) else { return false };
            let Some(&last) = self.schedule.instances[before as usize].uses.last() else { return false };
            let range = self.simulation.position(last)..self.simulation.position(launch) + 1;
            joins.push((before, made, range, self.context.bytes(instance.buffer) as i64));
        }
        for (n, (_, _, range, bytes)) in joins.iter().enumerate() {
            if self.simulation.tree.most(range.clone()) + bytes > target {
                joins[..n].iter().for_each(|(_, _, range, bytes)| {
                    self.simulation.tree.add(range.clone(), -bytes);
                });
                return false;
            }
            self.simulation.tree.add(range.clone(), *bytes);
        }
        for (before, made, _, _) in &joins {
            self.schedule.join(*before, *made);
        }
        !joins.is_empty()
    }
}

//! The descent: from the schedule that takes the most memory down to the least, at the lowest price in time.
//!
//! Buffers wait: between two uses, often from the forward to the backward pass, a buffer does nothing but take
//! bytes. Each such *gap* is an offer: drop the buffer there and make it again, or move it to the host
//! meanwhile, for so many seconds. The descent lowers a target step by step. While the simulated peak is above
//! it, it takes the offers that relieve the most bytes over the most positions above the target for each
//! second they cost; when the target is met, it takes back what turned out not to be needed. What every step
//! leaves is a point of the frontier. Nothing is believed but the simulator: a round of offers that does not
//! bring the schedule closer to its target is undone.

use crate::recipe::{Kitchen, Recipe};
use crate::schedule::{InstanceId, LaunchId, Schedule, Setting, Source};
use crate::simulate::Simulation;
use crate::work::{BufferIndex, Home, Keep};
use std::collections::HashSet;
use std::ops::Range;

/// One step of the descent goes down by this part of where it began.
const STEPS: i64 = 48;

/// A schedule, and what it takes.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    pub(crate) schedule: Schedule,
    /// The most bytes that live at once.
    pub(crate) live_bytes: u64,
    pub(crate) seconds: f64,
}

/// Bytes that do nothing for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Idle {
    /// An instance between two uses that follow each other.
    Gap(InstanceId, LaunchId, LaunchId),
    /// A state that one launch touches, for the rest of the step.
    State(BufferIndex),
    /// An instance on its way: between the beginning of a copy and the wait for its end.
    Flight(InstanceId, LaunchId, LaunchId),
}

/// What to do with idle bytes.
enum Remedy {
    Recompute(Recipe),
    Offload(Trip),
    /// The launch (a copy that begins later, a wait that ends sooner) and the position it moves before, and
    /// where that frees the bytes.
    Hurry(LaunchId, usize, Range<usize>),
}

/// A way to the host and back.
struct Trip {
    /// When the copies out and back run.
    lanes: [(f64, f64); 2],
    /// The positions before which the copy out begins and has ended, and the copy back begins.
    out: usize,
    out_end: usize,
    back: usize,
}

/// A remedy and its price.
struct Offer {
    idle: Idle,
    remedy: Remedy,
    seconds: f64,
    /// Bytes times positions relieved, a second.
    score: f64,
}

/// Buffers that are a smaller part of the peak than this are left alone.
const SMALLEST: u64 = 20_000;

/// What a second of copying is priced at beside kernels that run meanwhile: copies are for what would take
/// longer to make again, and the lanes are not wasted on what is nearly free.
const COPY_PRICE: f64 = 0.05;

/// The schedules of the frontier, from the most memory to the least, each slower than the one before. The descent
/// is made from each of the given ones.
pub(crate) fn descend(
    setting: &Setting<'_>,
    from: impl IntoIterator<Item = Schedule>,
    offload: bool,
) -> Vec<Point> {
    let mut points = vec![];
    for schedule in from {
        let mut descent = Descent::new(setting, schedule, offload);
        let highest = descent.simulation.peak() as i64;
        points.push(descent.point());
        for step in 1..STEPS {
            let target = highest - highest * step / STEPS;
            if (descent.simulation.peak() as i64) <= target {
                continue;
            }
            let reached = descent.reach(target);
            let met = (descent.simulation.peak() as i64).max(target);
            descent.take_back(met);
            points.push(descent.point());
            if !reached {
                break;
            }
        }
    }
    frontier(points)
}

/// The points that no other one beats in both memory and time.
fn frontier(mut points: Vec<Point>) -> Vec<Point> {
    points.sort_by(|a, b| {
        (a.live_bytes, a.seconds).partial_cmp(&(b.live_bytes, b.seconds)).unwrap_or(std::cmp::Ordering::Equal)
    });
    let mut fastest = f64::INFINITY;
    points.retain(|point| {
        let better = point.seconds < fastest * (1.0 - 1e-9);
        fastest = fastest.min(point.seconds);
        better
    });
    points.reverse();
    points
}

struct Descent<'a> {
    setting: &'a Setting<'a>,
    schedule: Schedule,
    simulation: Simulation,
    offload: bool,
    /// What was tried alone and did not help.
    refused: HashSet<Idle>,
    /// What is not worth copying: copies of it made kernels wait.
    stalled: HashSet<Idle>,
}

/// What a round did.
struct Round {
    taken: Vec<Idle>,
    copied: Vec<Idle>,
    /// The seconds it was to cost.
    seconds: f64,
}

impl<'a> Descent<'a> {
    fn new(setting: &'a Setting<'a>, mut schedule: Schedule, offload: bool) -> Descent<'a> {
        let simulation = Simulation::new(setting, &mut schedule);
        let (refused, stalled) = (HashSet::new(), HashSet::new());
        Descent { setting, schedule, simulation, offload, refused, stalled }
    }

    fn point(&self) -> Point {
        Point {
            schedule: self.schedule.clone(),
            live_bytes: self.simulation.peak(),
            seconds: self.simulation.seconds(),
        }
    }

    fn simulate(&mut self) {
        self.simulation = Simulation::new(self.setting, &mut self.schedule);
    }

    /// Takes offers until no more than `target` bytes live at once. Returns whether that was possible.
    fn reach(&mut self, target: i64) -> bool {
        self.refused.clear();
        self.stalled.clear();
        let mut limit = usize::MAX;
        while self.simulation.peak() as i64 > target {
            let before = (self.simulation.excess(&self.schedule, target), self.simulation.peak());
            let seconds = self.simulation.seconds();
            let kept = (self.schedule.clone(), self.simulation.clone());
            let round = self.round(target, limit);
            if round.taken.is_empty() {
                return false;
            }
            self.simulate();
            let dearer = self.simulation.seconds() - seconds - round.seconds;
            if !round.copied.is_empty() && dearer > 0.002 * seconds {
                (self.schedule, self.simulation) = kept;
                let few = round.copied.len().div_ceil(2);
                self.stalled.extend(&round.copied[round.copied.len() - few..]);
                continue;
            }
            let after = (self.simulation.excess(&self.schedule, target), self.simulation.peak());
            if after < before {
                limit = limit.saturating_mul(2);
                continue;
            }
            (self.schedule, self.simulation) = kept;
            if round.taken.len() == 1 {
                self.refused.extend(round.taken);
            }
            limit = (limit.min(512) / 8).max(1);
        }
        true
    }

    /// Takes the best offers, at most `limit` of them.
    fn round(&mut self, target: i64, limit: usize) -> Round {
        let over = over(&self.simulation, target);
        let mut offers = self.offers(&over);
        offers.sort_by(|a, b| b.score.total_cmp(&a.score));
        let mut round = Round { taken: vec![], copied: vec![], seconds: 0.0 };
        for Offer { idle, score, .. } in offers {
            if round.taken.len() >= limit || self.simulation.tree.peak() <= target {
                break;
            }
            if !self.is_idle_above(idle, target) {
                continue;
            }
            // Others that were taken may have made this one dearer.
            let Some(offer) = self.offer(idle, &over).filter(|now| now.score >= 0.5 * score) else {
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

    /// Whether bytes are still idle, at a position that is still over the target.
    fn is_idle_above(&self, idle: Idle, target: i64) -> bool {
        match idle {
            Idle::Gap(instance, after, before) | Idle::Flight(instance, after, before) => {
                let uses = &self.schedule.instances[instance as usize].uses;
                uses.windows(2).any(|pair| pair == [after, before])
                    && self.simulation.tree.most(self.simulation.between(after, before)) > target
            }
            Idle::State(_) => true,
        }
    }

    /// An offer for everything that is idle over the target.
    fn offers(&self, over: &[u32]) -> Vec<Offer> {
        let mut offers = vec![];
        let least = self.simulation.peak() / SMALLEST;
        for (id, instance) in self.schedule.instances.iter().enumerate() {
            let id = id as InstanceId;
            if self.setting.bytes(instance.buffer) < least {
                continue;
            }
            match (instance.home, instance.keep) {
                (Home::Device, Keep::WhileUsed) => {
                    let idle = instance.uses.windows(2).map(|pair| self.idle(id, pair[0], pair[1]));
                    offers.extend(idle.filter_map(|idle| self.offer(idle?, over)));
                }
                (Home::Device, Keep::Always) if self.offload && instance.uses.len() == 1 => {
                    offers.extend(self.offer(Idle::State(instance.buffer), over));
                }
                _ => {}
            }
        }
        offers
    }

    /// What an instance does between two uses.
    fn idle(&self, instance: InstanceId, after: LaunchId, before: LaunchId) -> Option<Idle> {
        let of = &self.setting.work.buffers[self.schedule.instances[instance as usize].buffer as usize];
        match self.schedule.launches[before as usize].source {
            Source::Wait => Some(Idle::Flight(instance, after, before)),
            // The instances of a state do not all hold the same.
            _ if of.keep == Keep::Always => None,
            _ => Some(Idle::Gap(instance, after, before)),
        }
    }

    /// The best that can be done with idle bytes.
    fn offer(&self, idle: Idle, over: &[u32]) -> Option<Offer> {
        if self.refused.contains(&idle) {
            return None;
        }
        let copy = self.offload && !self.stalled.contains(&idle);
        let scored =
            |remedy, gain: f64, seconds: f64| Offer { idle, remedy, seconds, score: gain / (seconds + 1e-9) };
        let best = match idle {
            Idle::State(buffer) => {
                let (trip, seconds) = copy.then(|| self.trip_of_state(buffer)).flatten()?;
                let everywhere = over.last().copied().unwrap_or(0);
                let there = over[trip.out_end.min(over.len() - 1)] - over[trip.back];
                let gain = self.setting.bytes(buffer) as f64 * f64::from(everywhere - there);
                Some(scored(Remedy::Offload(trip), gain, seconds))
            }
            Idle::Flight(instance, copy, wait) => {
                let (remedy, positions, seconds) = self.hurry(instance, copy, wait, over)?;
                let bytes = self.setting.bytes(self.schedule.instances[instance as usize].buffer) as f64;
                Some(scored(remedy, bytes * f64::from(positions), seconds))
            }
            Idle::Gap(instance, after, before) => {
                let buffer = self.schedule.instances[instance as usize].buffer;
                let gap = self.simulation.between(after, before);
                let bytes = self.setting.bytes(buffer) as f64;
                let relieved = |from: usize, to: usize| bytes * f64::from(over[to.max(from)] - over[from]);
                let gain = relieved(gap.start, gap.end.max(gap.start));
                if gain <= 0.0 {
                    return None;
                }
                let (setting, schedule, simulation) = (self.setting, &self.schedule, &self.simulation);
                let kitchen = Kitchen { setting, schedule, simulation, over, anchor: before, gain };
                let recompute = kitchen.recipe(buffer).map(|recipe| {
                    let (gain, seconds) = (gain - recipe.burden, recipe.seconds);
                    scored(Remedy::Recompute(recipe), gain, seconds)
                });
                let trip = copy.then(|| self.trip(buffer, gap)).flatten();
                let offload = trip.map(|(trip, seconds)| {
                    let gain = relieved(trip.out_end, trip.back);
                    scored(Remedy::Offload(trip), gain, seconds)
                });
                recompute.into_iter().chain(offload).max_by(|a, b| a.score.total_cmp(&b.score))
            }
        };
        best.filter(|offer| offer.score > 0.0)
    }

    /// When to copy a buffer out and back in a gap, and the seconds that costs.
    fn trip(&self, buffer: BufferIndex, gap: Range<usize>) -> Option<(Trip, f64)> {
        let copies = self.setting.costs.copies;
        let seconds = copies.seconds(self.setting.work.buffers[buffer as usize].bytes);
        let simulation = &self.simulation;
        let nothing = [(0.0, 0.0); 2];
        if !copies.overlap {
            let trip = Trip { lanes: nothing, out: gap.start, out_end: gap.start, back: gap.end };
            return Some((trip, 2.0 * seconds));
        }
        let [out, back] = &simulation.lanes;
        let leaving = first_free(out, simulation.start[gap.start], seconds);
        let returning = last_free(back, simulation.start[gap.end], seconds)?;
        let trip = Trip {
            lanes: [leaving, returning],
            out: gap.start,
            out_end: simulation.position_at(leaving.1),
            back: simulation.position_at(returning.0).checked_sub(1)?,
        };
        let fits = gap.start < trip.out_end && trip.out_end < trip.back && trip.back < gap.end;
        fits.then_some((trip, COPY_PRICE * 2.0 * seconds))
    }

    /// How to shorten a flight that is over the target: kernels wait for it instead.
    fn hurry(
        &self,
        instance: InstanceId,
        copy: LaunchId,
        wait: LaunchId,
        over: &[u32],
    ) -> Option<(Remedy, u32, f64)> {
        let simulation = &self.simulation;
        if self.schedule.launches[copy as usize].source != Source::Copy {
            return None;
        }
        let way = simulation.between(copy, wait);
        let is_over = |position: &usize| over[position + 1] > over[*position];
        let (first, last) = (way.clone().find(is_over)?, way.clone().rev().find(is_over)?);
        let arrives = self.schedule.launches[copy as usize].writes.contains(&instance);
        let start = &simulation.start;
        let (launch, position, freed, flight) = if arrives {
            (copy, last + 1, way.start..last + 1, start[way.end] - start[last + 1])
        } else {
            (wait, first, first..way.end, start[first] - start[way.start])
        };
        let buffer = self.schedule.instances[instance as usize].buffer;
        let copies = self.setting.costs.copies.seconds(self.setting.work.buffers[buffer as usize].bytes);
        let positions = over[freed.end] - over[freed.start];
        Some((
            Remedy::Hurry(launch, position, freed),
            positions,
            (copies - flight).max(0.0) + COPY_PRICE * copies,
        ))
    }

    /// When to fetch a state for the one launch that touches it and to store it again, and the seconds that
    /// costs. The trip goes the other way round: back first.
    fn trip_of_state(&self, buffer: BufferIndex) -> Option<(Trip, f64)> {
        let copies = self.setting.costs.copies;
        let seconds = copies.seconds(self.setting.work.buffers[buffer as usize].bytes);
        let simulation = &self.simulation;
        let &user = self.schedule.instances[buffer as usize].uses.first()?;
        let at = simulation.position(user);
        if !copies.overlap {
            let trip = Trip { lanes: [(0.0, 0.0); 2], out: at, out_end: at + 1, back: at };
            return Some((trip, 2.0 * seconds));
        }
        let [out, back] = &simulation.lanes;
        let returning = last_free(back, simulation.start[at], seconds)?;
        let leaving = first_free(out, simulation.start[at + 1], seconds);
        let stall = (leaving.1 - simulation.seconds()).max(0.0);
        let trip = Trip {
            lanes: [leaving, returning],
            out: at,
            out_end: simulation.position_at(leaving.1),
            back: simulation.position_at(returning.0).saturating_sub(1),
        };
        Some((trip, COPY_PRICE * 2.0 * seconds + stall))
    }

    /// The first launch of a range of positions that stays where it is: copies and waits may have moved since
    /// the simulation.
    fn anchor(&self, positions: Range<usize>) -> Option<LaunchId> {
        let moves =
            |l: LaunchId| matches!(self.schedule.launches[l as usize].source, Source::Copy | Source::Wait);
        self.simulation.order[positions].iter().copied().find(|&l| !moves(l))
    }

    fn take(&mut self, offer: &Offer) -> Option<()> {
        let upto = |position: usize, end: LaunchId| {
            self.anchor(position..self.simulation.position(end).max(position)).unwrap_or(end)
        };
        let (bytes, freed, anchor) = match (offer.idle, &offer.remedy) {
            (Idle::Gap(instance, after, before), remedy) => {
                let bytes = self.setting.bytes(self.schedule.instances[instance as usize].buffer);
                let freed = match remedy {
                    Remedy::Recompute(recipe) => {
                        recipe.apply(self.setting, &mut self.schedule, before)?;
                        self.simulation.between(after, before)
                    }
                    Remedy::Offload(trip) => {
                        let [out, out_end, back] =
                            [trip.out, trip.out_end, trip.back].map(|position| upto(position, before));
                        self.schedule.offload(instance, [out, out_end, back, before])?;
                        trip.out_end..trip.back
                    }
                    Remedy::Hurry(..) => return None,
                };
                (bytes as i64, vec![freed], before)
            }
            (Idle::State(buffer), Remedy::Offload(trip)) => {
                let &user = self.schedule.instances[buffer as usize].uses.first()?;
                let fetch = upto(trip.back, user);
                let end = self.simulation.order.len();
                let stored = self.anchor(trip.out_end.min(end)..end);
                self.schedule.offload_state(buffer, fetch, stored)?;
                (self.setting.bytes(buffer) as i64, vec![0..trip.back, trip.out_end.min(end)..end], fetch)
            }
            (Idle::Flight(instance, copy, wait), Remedy::Hurry(moved, position, freed)) => {
                let before_wait = self.anchor(*position..self.simulation.position(wait));
                let anchor = if *moved == copy { before_wait.unwrap_or(wait) } else { before_wait? };
                self.schedule.move_before(*moved, anchor)?;
                let bytes = self.setting.bytes(self.schedule.instances[instance as usize].buffer);
                (bytes as i64, vec![freed.clone()], anchor)
            }
            _ => return None,
        };
        for range in freed {
            self.simulation.tree.add(range, -bytes);
        }
        self.simulation.inserted_before(&self.schedule, anchor);
        if let Remedy::Offload(trip) = &offer.remedy {
            for (lane, &busy) in self.simulation.lanes.iter_mut().zip(&trip.lanes) {
                let at = lane.partition_point(|&(begin, _)| begin < busy.0);
                lane.insert(at, busy);
            }
        }
        Some(())
    }

    /// Takes back what is not needed to stay within `target`, the dearest first.
    fn take_back(&mut self, target: i64) {
        self.schedule.sweep_all();
        self.simulate();
        loop {
            let mut inserted: Vec<LaunchId> = self.simulation.order.clone();
            inserted.retain(|&l| {
                matches!(
                    self.schedule.launches[l as usize].source,
                    Source::Again(_) | Source::Remake(_) | Source::Copy
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
    }

    fn price(&self, launch: LaunchId) -> f64 {
        let of = &self.schedule.launches[launch as usize];
        match of.source {
            Source::Copy => {
                let buffer = self.schedule.instances[of.reads[0] as usize].buffer;
                COPY_PRICE
                    * self.setting.costs.copies.seconds(self.setting.work.buffers[buffer as usize].bytes)
            }
            source => self.setting.seconds(source),
        }
    }

    /// Keeps what a launch makes again instead, if there is room for it in every gap that opens.
    fn try_without(&mut self, launch: LaunchId, target: i64) -> bool {
        let mut joins = vec![];
        for &made in &self.schedule.launches[launch as usize].writes {
            let instance = &self.schedule.instances[made as usize];
            let state = self.setting.work.buffers[instance.buffer as usize].keep == Keep::Always;
            if instance.uses.first() != Some(&launch) || instance.home == Home::Host || state {
                return false;
            }
            if instance.uses.len() == 1 {
                continue;
            }
            let Some(before) = self.schedule.predecessor(made) else { return false };
            let Some(&last) = self.schedule.instances[before as usize].uses.last() else { return false };
            let range = self.simulation.position(last)..self.simulation.position(launch) + 1;
            joins.push((before, made, range, self.setting.bytes(instance.buffer) as i64));
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

/// How many positions are over the target before each position.
fn over(simulation: &Simulation, target: i64) -> Vec<u32> {
    let mut over = Vec::with_capacity(simulation.live.len() + 1);
    let mut count = 0;
    over.push(0);
    for &bytes in &simulation.live {
        count += u32::from(bytes > target);
        over.push(count);
    }
    over
}

/// The first time from `moment` on at which a lane is free for so long.
fn first_free(lane: &[(f64, f64)], moment: f64, seconds: f64) -> (f64, f64) {
    let mut begin = moment;
    for &(from, to) in lane {
        if from >= begin + seconds {
            break;
        }
        begin = begin.max(to);
    }
    (begin, begin + seconds)
}

/// The last time up to `moment` for which a lane is free for so long.
fn last_free(lane: &[(f64, f64)], moment: f64, seconds: f64) -> Option<(f64, f64)> {
    let mut end = moment;
    for &(from, to) in lane.iter().rev() {
        if to <= end - seconds {
            break;
        }
        end = end.min(from);
    }
    (end >= seconds).then_some((end - seconds, end))
}

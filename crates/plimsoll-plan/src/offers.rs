//! What can be done with bytes that do nothing for a while, and what it costs.
//!
//! Between two uses, often from the forward to the backward pass, a buffer only takes bytes. So does a state from
//! its update to its first use in the next step, and a copy on its way. Each such stretch is an offer, scored by
//! the bytes it relieves over the positions that are above the target for each second it costs.

use crate::descend::Descent;
use crate::recipe::{Kitchen, Recipe};
use crate::schedule::{InstanceId, LaunchId, Source};
use crate::simulate::Simulation;
use crate::trips::{first_free, last_free};
use crate::work::{BufferIndex, Home, Keep};
use std::ops::Range;

/// Bytes that do nothing for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Idle {
    /// An instance between two uses that follow each other.
    Gap(InstanceId, LaunchId, LaunchId),
    /// A state from its last use to its first in the next step.
    State(BufferIndex),
    /// A state that the host has as well, between two uses that follow each other.
    Rest(InstanceId, LaunchId, LaunchId),
    /// An instance on its way: between the beginning of a copy and the wait for its end.
    Flight(InstanceId, LaunchId, LaunchId),
}

/// What to do with idle bytes.
pub(crate) enum Remedy {
    Recompute(Recipe),
    Offload(Trip),
    /// Let kernels wait for the copy, which frees the bytes at these positions.
    Hurry(LaunchId, Range<usize>),
}

/// A way to the host and back.
pub(crate) struct Trip {
    /// When the copies out and back run.
    lanes: [Option<(f64, f64)>; 2],
    /// The positions at which the bytes are not in device memory.
    away: Vec<Range<usize>>,
}

/// A remedy and its price.
pub(crate) struct Offer {
    pub(crate) idle: Idle,
    pub(crate) remedy: Remedy,
    pub(crate) seconds: f64,
    /// Bytes times positions relieved, a second.
    pub(crate) score: f64,
}

/// Buffers that are a smaller part of the peak than this are left alone.
const SMALLEST: u64 = 20_000;

/// What a second of copying is priced at beside kernels that run meanwhile: copies are for what would take
/// longer to make again, and the lanes are not wasted on what is nearly free.
pub(crate) const COPY_PRICE: f64 = 0.05;

/// How many positions are over the target before each position.
pub(crate) fn over(simulation: &Simulation, target: i64) -> Vec<u32> {
    let mut over = Vec::with_capacity(simulation.live.len() + 1);
    let mut count = 0;
    over.push(0);
    for &bytes in &simulation.live {
        count += u32::from(bytes > target);
        over.push(count);
    }
    over
}

impl Descent<'_> {
    /// Whether bytes are still idle, at a position that is still over the target.
    pub(crate) fn is_idle_above(&self, idle: Idle, target: i64) -> bool {
        match idle {
            Idle::Gap(instance, after, before)
            | Idle::Rest(instance, after, before)
            | Idle::Flight(instance, after, before) => {
                let uses = &self.schedule.instances[instance as usize].uses;
                uses.windows(2).any(|pair| pair == [after, before])
                    && self.simulation.tree.most(self.simulation.between(after, before)) > target
            }
            Idle::State(_) => true,
        }
    }

    /// An offer for everything that is idle over the target.
    pub(crate) fn offers(&self, over: &[u32]) -> Vec<Offer> {
        let mut offers = vec![];
        let least = self.simulation.peak() / SMALLEST;
        for (id, instance) in self.schedule.instances.iter().enumerate() {
            let id = id as InstanceId;
            if self.setting.bytes(instance.buffer) < least {
                continue;
            }
            match (instance.home, instance.keep) {
                (Home::Device, Keep::WhileUsed) => {
                    let idle = instance.uses.windows(2).filter_map(|pair| self.idle(id, pair[0], pair[1]));
                    offers.extend(idle.filter_map(|idle| self.offer(idle, over)));
                }
                (Home::Device, Keep::Always) if self.offload => {
                    offers.extend(self.offer(Idle::State(instance.buffer), over));
                }
                _ => {}
            }
        }
        offers
    }

    /// What an instance does between two uses.
    fn idle(&self, instance: InstanceId, after: LaunchId, before: LaunchId) -> Option<Idle> {
        let buffer = self.schedule.instances[instance as usize].buffer;
        let of = &self.setting.work.buffers[buffer as usize];
        let [first, second] = [after, before].map(|l| self.schedule.launches[l as usize].source);
        match (first, second) {
            (Source::Copy, Source::Wait) => Some(Idle::Flight(instance, after, before)),
            (_, Source::Copy | Source::Wait) => None,
            _ if of.keep != Keep::Always => Some(Idle::Gap(instance, after, before)),
            _ if of.home == Home::Host => None,
            // Once it is written, the host has another value.
            _ => (!self.schedule.is_updated(buffer, self.schedule.key(before)))
                .then_some(Idle::Rest(instance, after, before)),
        }
    }

    /// The best that can be done with idle bytes.
    pub(crate) fn offer(&self, idle: Idle, over: &[u32]) -> Option<Offer> {
        if self.refused.contains(&idle) {
            return None;
        }
        let copy = self.offload && !self.stalled.contains(&idle);
        let scored =
            |remedy, gain: f64, seconds: f64| Offer { idle, remedy, seconds, score: gain / (seconds + 1e-9) };
        let bytes = |buffer: BufferIndex| self.setting.bytes(buffer) as f64;
        let relieved = |range: &Range<usize>| f64::from(over[range.end.max(range.start)] - over[range.start]);
        let offload = |buffer: BufferIndex, (trip, seconds): (Trip, f64)| {
            let gain = bytes(buffer) * trip.away.iter().map(relieved).sum::<f64>();
            scored(Remedy::Offload(trip), gain, seconds)
        };
        let best = match idle {
            Idle::State(buffer) => {
                let trip = copy.then(|| self.trip_of_state(buffer)).flatten()?;
                Some(offload(buffer, trip))
            }
            Idle::Flight(instance, copy, wait) => {
                let buffer = self.schedule.instances[instance as usize].buffer;
                let (freed, seconds) = self.hurry(instance, copy, wait, over)?;
                let gain = bytes(buffer) * relieved(&freed);
                Some(scored(Remedy::Hurry(copy, freed), gain, seconds))
            }
            Idle::Rest(instance, after, before) => {
                let buffer = self.schedule.instances[instance as usize].buffer;
                let gap = self.simulation.between(after, before);
                if !copy || relieved(&gap) <= 0.0 {
                    return None;
                }
                Some(offload(buffer, self.trip_back(buffer, gap)?))
            }
            Idle::Gap(instance, after, before) => {
                let buffer = self.schedule.instances[instance as usize].buffer;
                let gap = self.simulation.between(after, before);
                let gain = bytes(buffer) * relieved(&gap);
                if gain <= 0.0 {
                    return None;
                }
                let (setting, schedule, simulation) = (self.setting, &self.schedule, &self.simulation);
                let kitchen = Kitchen { setting, schedule, simulation, over, anchor: before, gain };
                let recompute = kitchen.recipe(buffer).map(|recipe| {
                    let (gain, seconds) = (gain - recipe.burden, recipe.seconds);
                    scored(Remedy::Recompute(recipe), gain, seconds)
                });
                let computed = schedule.launches[after as usize].source.computes();
                let trip = (copy && computed).then(|| self.trip(buffer, gap)).flatten();
                let offload = trip.map(|trip| offload(buffer, trip));
                recompute.into_iter().chain(offload).max_by(|a, b| a.score.total_cmp(&b.score))
            }
        };
        best.filter(|offer| offer.score > 0.0)
    }

    /// The seconds that a copy of a buffer takes.
    fn copy_seconds(&self, buffer: BufferIndex) -> f64 {
        self.setting.costs.copies.seconds(self.setting.work.buffers[buffer as usize].bytes)
    }

    /// When to copy a buffer out and back in a gap, and the seconds that costs.
    fn trip(&self, buffer: BufferIndex, gap: Range<usize>) -> Option<(Trip, f64)> {
        let seconds = self.copy_seconds(buffer);
        let simulation = &self.simulation;
        if !self.setting.costs.copies.overlap {
            return Some((Trip { lanes: [None; 2], away: vec![gap] }, 2.0 * seconds));
        }
        let [out, back] = &simulation.lanes;
        let leaving = first_free(out, simulation.start[gap.start], seconds);
        let returning = last_free(back, simulation.start[gap.end], seconds)?;
        let away = simulation.position_at(leaving.1)..simulation.position_at(returning.0).checked_sub(1)?;
        let fits = gap.start < away.end && away.start < away.end && away.end < gap.end;
        let trip = Trip { lanes: [Some(leaving), Some(returning)], away: vec![away] };
        fits.then_some((trip, COPY_PRICE * 2.0 * seconds))
    }

    /// When to fetch a state that the host has as well in a gap, and the seconds that costs.
    fn trip_back(&self, buffer: BufferIndex, gap: Range<usize>) -> Option<(Trip, f64)> {
        let seconds = self.copy_seconds(buffer);
        let simulation = &self.simulation;
        if !self.setting.costs.copies.overlap {
            return Some((Trip { lanes: [None; 2], away: vec![gap] }, seconds));
        }
        let returning = last_free(&simulation.lanes[1], simulation.start[gap.end], seconds)?;
        let away = gap.start..simulation.position_at(returning.0).checked_sub(1)?;
        let fits = away.start < away.end;
        let trip = Trip { lanes: [None, Some(returning)], away: vec![away] };
        fits.then_some((trip, COPY_PRICE * seconds))
    }

    /// When to fetch a state for the first launch that touches it and to store it after the last, and the seconds
    /// that costs.
    fn trip_of_state(&self, buffer: BufferIndex) -> Option<(Trip, f64)> {
        let seconds = self.copy_seconds(buffer);
        let simulation = &self.simulation;
        let uses = &self.schedule.instances[buffer as usize].uses;
        let (first, last) = (simulation.position(*uses.first()?), simulation.position(*uses.last()?));
        let end = simulation.order.len();
        let written = uses.iter().any(|&u| self.schedule.launches[u as usize].writes.contains(&buffer));
        let copies = if written { 2.0 } else { 1.0 };
        if !self.setting.costs.copies.overlap {
            return Some((Trip { lanes: [None; 2], away: vec![0..first, last + 1..end] }, copies * seconds));
        }
        let [out, back] = &simulation.lanes;
        let returning = last_free(back, simulation.start[first], seconds);
        let late = if returning.is_some() { 0.0 } else { seconds - simulation.start[first] };
        let returning = returning.unwrap_or((0.0, seconds));
        let leaving = written.then(|| first_free(out, simulation.start[last + 1], seconds));
        let stall = leaving.map_or(0.0, |l| (l.1 - simulation.seconds()).max(0.0)) + late.max(0.0);
        let gone = leaving.map_or(last + 1, |l| simulation.position_at(l.1)).min(end);
        let fetch = simulation.position_at(returning.0).saturating_sub(1).min(first);
        let trip = Trip { lanes: [leaving, Some(returning)], away: vec![0..fetch, gone..end] };
        Some((trip, COPY_PRICE * copies * seconds + stall))
    }

    /// Where a flight that kernels wait for would be over the target, and the seconds they wait.
    fn hurry(
        &self,
        instance: InstanceId,
        copy: LaunchId,
        wait: LaunchId,
        over: &[u32],
    ) -> Option<(Range<usize>, f64)> {
        let simulation = &self.simulation;
        if self.schedule.launches[copy as usize].hurried {
            return None;
        }
        let way = simulation.between(copy, wait);
        let is_over = |position: &usize| over[position + 1] > over[*position];
        let (first, last) = (way.clone().find(is_over)?, way.clone().rev().find(is_over)?);
        let arrives = self.schedule.launches[copy as usize].writes.contains(&instance);
        let start = &simulation.start;
        let (freed, flight) = if arrives {
            (way.start..last + 1, start[way.end] - start[last + 1])
        } else {
            (first..way.end, start[first] - start[way.start])
        };
        let seconds = self.copy_seconds(self.schedule.instances[instance as usize].buffer);
        Some((freed, (seconds - flight).max(0.0) + COPY_PRICE * seconds))
    }

    /// Takes an offer, and notes what it frees.
    pub(crate) fn take(&mut self, offer: &Offer) -> Option<()> {
        let buffer_of = |i: InstanceId| self.schedule.instances[i as usize].buffer;
        let (buffer, anchor) = match (offer.idle, &offer.remedy) {
            (Idle::Gap(instance, _, before), Remedy::Recompute(recipe)) => {
                let buffer = buffer_of(instance);
                recipe.apply(self.setting, &mut self.schedule, before)?;
                (buffer, before)
            }
            (Idle::Gap(instance, after, before), Remedy::Offload(_)) => {
                let buffer = buffer_of(instance);
                self.schedule.offload(instance, after, before)?;
                (buffer, before)
            }
            (Idle::Rest(instance, _, before), Remedy::Offload(_)) => {
                let buffer = buffer_of(instance);
                self.schedule.fetch(buffer, buffer, before)?;
                (buffer, before)
            }
            (Idle::State(buffer), Remedy::Offload(_)) => {
                let &user = self.schedule.instances[buffer as usize].uses.first()?;
                self.schedule.offload_state(buffer)?;
                (buffer, user)
            }
            (Idle::Flight(instance, _, wait), Remedy::Hurry(copy, _)) => {
                self.schedule.launches[*copy as usize].hurried = true;
                (buffer_of(instance), wait)
            }
            _ => return None,
        };
        let freed = match (&offer.remedy, offer.idle) {
            (Remedy::Offload(trip), _) => trip.away.clone(),
            (Remedy::Hurry(_, freed), _) => vec![freed.clone()],
            (Remedy::Recompute(_), Idle::Gap(_, after, before)) => {
                vec![self.simulation.between(after, before)]
            }
            _ => vec![],
        };
        let bytes = self.setting.bytes(buffer) as i64;
        for range in freed {
            self.simulation.tree.add(range, -bytes);
        }
        self.simulation.inserted_before(&self.schedule, anchor);
        if let Remedy::Offload(trip) = &offer.remedy {
            for (lane, busy) in self.simulation.lanes.iter_mut().zip(&trip.lanes) {
                if let Some(busy) = *busy {
                    let at = lane.partition_point(|&(begin, _)| begin < busy.0);
                    lane.insert(at, busy);
                }
            }
        }
        Some(())
    }
}

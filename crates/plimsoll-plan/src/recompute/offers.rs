//! What can be done with bytes that do nothing for a while, and what it costs.
//!
//! Between two uses, often from the forward to the backward pass, a buffer only takes bytes. So does a state from
//! its update to its first use in the next step, and a copy on its way. Each such stretch is an offer, scored by
//! the bytes it relieves over the positions that are above the target for each second it costs.

use crate::recompute::descent::{Descent, Offload, Waits};
use crate::recompute::{Recomputation, RecomputeSearch};
use crate::schedule::simulate::Simulation;
use crate::schedule::{InstanceId, LaunchId};
use crate::transfer::{first_free, last_free};
use plimsoll_ir::{BufferIndex, Home, Keep, LaunchSource, Role};
use std::ops::Range;

/// Bytes that do nothing for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Idle {
    /// An instance between two uses that follow each other.
    Gap(InstanceId, LaunchId, LaunchId),
    /// A state from its last use to its first in the next step.
    State(BufferIndex),
    /// A state between two uses that follow each other, as long as it is what it was when the step began.
    Rest(InstanceId, LaunchId, LaunchId),
    /// An instance on its way: between the beginning of a copy and the wait for its end.
    Transfer(InstanceId, LaunchId, LaunchId),
}

/// What to do with idle bytes.
pub(crate) enum Remedy {
    Recompute(Recomputation),
    Offload(Trip),
    /// Let kernels wait for the copy, which frees the bytes at these positions.
    Hurry(LaunchId, Range<usize>),
}

/// A way to the host and back.
pub(crate) struct Trip {
    /// When the copies out and back run.
    lanes: [Option<(f64, f64)>; 2],
    /// The positions at which the bytes are not in device memory.
    away: [Range<usize>; 2],
    /// Whether kernels rather wait for the copies than let them take bytes that are not there.
    hurried: bool,
}

/// When bytes could be on the host.
struct Stretch {
    /// The position from which on they are idle.
    from: usize,
    /// The position of the launch that needs them.
    to: usize,
    /// Whether the host does not have them.
    stored: bool,
    /// Whether that launch is in the next step.
    wraps: bool,
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

/// The first position of a range that is over the target.
fn first_over(over: &[u32], range: Range<usize>) -> Option<usize> {
    let counts = over.get(range.start..=range.end)?;
    let at = counts.partition_point(|&count| count == counts[0]);
    (at < counts.len()).then(|| range.start + at - 1)
}

/// The last position of a range that is over the target.
fn last_over(over: &[u32], range: Range<usize>) -> Option<usize> {
    let counts = over.get(range.start..=range.end)?;
    let at = counts.partition_point(|&count| count < counts[counts.len() - 1]);
    (at > 0).then(|| range.start + at - 1)
}

impl Descent<'_> {
    /// Whether bytes are still idle, at a position that is still over the target.
    pub(crate) fn is_idle_above(&self, idle: Idle, target: i64) -> bool {
        match idle {
            Idle::Gap(instance, after, before)
            | Idle::Rest(instance, after, before)
            | Idle::Transfer(instance, after, before) => {
                let uses = &self.schedule.instances[instance as usize].uses;
                uses.windows(2).any(|pair| pair == [after, before])
                    && self.simulation.tree.most(self.simulation.between(after, before)) > target
            }
            Idle::State(buffer) => self.schedule.instances[buffer as usize].home == Home::Device,
        }
    }

    /// An offer for everything that is idle over the target.
    pub(crate) fn offers(&self, over: &[u32]) -> Vec<Offer> {
        let mut offers = vec![];
        let least = self.simulation.peak() / SMALLEST;
        for (id, instance) in self.schedule.instances.iter().enumerate() {
            let id = id as InstanceId;
            if self.context.bytes(instance.buffer) < least {
                continue;
            }
            let state = instance.keep == Keep::Always;
            if instance.home == Home::Host || !(state || instance.keep == Keep::WhileUsed) {
                continue;
            }
            // Where inputs of the next step arrive has to be there all the time.
            if state && self.context.work.buffers[instance.buffer as usize].role == Role::Input {
                continue;
            }
            if state {
                offers.extend(self.offer(Idle::State(instance.buffer), over));
            }
            let idle = instance.uses.windows(2).filter_map(|pair| self.idle(id, pair[0], pair[1]));
            offers.extend(idle.filter_map(|idle| self.offer(idle, over)));
        }
        offers
    }

    /// What an instance does between two uses.
    fn idle(&self, instance: InstanceId, after: LaunchId, before: LaunchId) -> Option<Idle> {
        let buffer = self.schedule.instances[instance as usize].buffer;
        let of = &self.context.work.buffers[buffer as usize];
        let [first, second] = [after, before].map(|l| self.schedule.launches[l as usize].source);
        match (first, second) {
            (LaunchSource::Copy, LaunchSource::Wait) => Some(Idle::Transfer(instance, after, before)),
            (_, LaunchSource::Copy | LaunchSource::Wait) => None,
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
        let (values, states) = (self.offload != Offload::Nothing, self.offload == Offload::ValuesAndStates);
        let stall = self.stalls.get(&idle).copied().unwrap_or(0.0);
        let scored =
            |remedy, gain: f64, seconds: f64| Offer { idle, remedy, seconds, score: gain / (seconds + 1e-9) };
        let bytes = |buffer: BufferIndex| self.context.bytes(buffer) as f64;
        let relieved = |range: &Range<usize>| f64::from(over[range.end.max(range.start)] - over[range.start]);
        let better = |a: &Offer, b: &Offer| a.score.total_cmp(&b.score);
        let room = self.context.costs.host_bytes.saturating_sub(self.simulation.host_bytes);
        let offload = |buffer: BufferIndex, idle: &Stretch| {
            if self.host_bytes_of(buffer) > room {
                return None;
            }
            let trips = self.trips(buffer, idle, over).into_iter().map(|(trip, seconds)| {
                let gain = bytes(buffer) * trip.away.iter().map(relieved).sum::<f64>();
                scored(Remedy::Offload(trip), gain, seconds + stall)
            });
            trips.into_iter().find(|offer| offer.score > 0.0)
        };
        let best = match idle {
            Idle::State(buffer) => states.then(|| offload(buffer, &self.between_steps(buffer)?)).flatten(),
            Idle::Transfer(instance, copy, wait) => {
                let buffer = self.schedule.instances[instance as usize].buffer;
                let (freed, seconds) = self.hurry(instance, copy, wait, over)?;
                let gain = bytes(buffer) * relieved(&freed);
                Some(scored(Remedy::Hurry(copy, freed), gain, seconds))
            }
            Idle::Rest(instance, after, before) => {
                let buffer = self.schedule.instances[instance as usize].buffer;
                let gap = self.simulation.between(after, before);
                if !states || relieved(&gap) <= 0.0 {
                    return None;
                }
                let idle = Stretch { from: gap.start, to: gap.end, stored: false, wraps: false };
                let rest = offload(buffer, &idle)?;
                if self.schedule.instances[buffer as usize].home == Home::Host {
                    return Some(rest);
                }
                // To be fetched again it has to be on the host between steps.
                let (trip, seconds) = self.trips(buffer, &self.between_steps(buffer)?, over).swap_remove(0);
                let gain = bytes(buffer) * trip.away.iter().map(relieved).sum::<f64>();
                let gain = gain + rest.score * (rest.seconds + 1e-9);
                Some(scored(rest.remedy, gain, rest.seconds + seconds))
            }
            Idle::Gap(instance, after, before) => {
                let buffer = self.schedule.instances[instance as usize].buffer;
                let gap = self.simulation.between(after, before);
                let gain = bytes(buffer) * relieved(&gap);
                if gain <= 0.0 {
                    return None;
                }
                let now = (&self.schedule, &self.simulation);
                let search = RecomputeSearch::new(self.context, now, over, before, gain);
                let recompute = search.recomputation(buffer).map(|recomputation| {
                    let (gain, seconds) = (gain - recomputation.burden, recomputation.seconds);
                    scored(Remedy::Recompute(recomputation), gain, seconds)
                });
                let computed = self.schedule.launches[after as usize].source.computes();
                let idle = Stretch { from: gap.start, to: gap.end, stored: true, wraps: false };
                let offload = (values && computed).then(|| offload(buffer, &idle)).flatten();
                recompute.into_iter().chain(offload).max_by(better)
            }
        };
        best.filter(|offer| offer.score > 0.0)
    }

    /// The bytes of the host that offloading a buffer takes: none for a state that rests there already.
    fn host_bytes_of(&self, buffer: BufferIndex) -> u64 {
        let first = &self.schedule.instances[buffer as usize];
        if first.keep == Keep::Always && first.home == Home::Host { 0 } else { self.context.bytes(buffer) }
    }

    /// A state from its last use to its first in the next step.
    fn between_steps(&self, buffer: BufferIndex) -> Option<Stretch> {
        let uses = &self.schedule.instances[buffer as usize].uses;
        let (first, last) = (*uses.first()?, *uses.last()?);
        let stored = uses.iter().any(|&u| self.schedule.launches[u as usize].writes.contains(&buffer));
        let (from, to) = (self.simulation.position(last) + 1, self.simulation.position(first));
        Some(Stretch { from, to, stored, wraps: true })
    }

    /// The seconds that a copy of a buffer takes.
    fn copy_seconds(&self, buffer: BufferIndex) -> f64 {
        self.context.costs.copies.seconds(self.context.work.buffers[buffer as usize].bytes)
    }

    /// The ways to copy a buffer out from one position on and back by another, and the seconds they cost: one that
    /// lets no kernel wait, and one that takes no bytes over the target while it flies.
    fn trips(&self, buffer: BufferIndex, idle: &Stretch, over: &[u32]) -> Vec<(Trip, f64)> {
        let seconds = self.copy_seconds(buffer);
        let simulation = &self.simulation;
        let (start, end) = (&simulation.start, simulation.order.len());
        let &Stretch { from, to, stored, wraps } = idle;
        let away = |gone: usize, back: usize| match wraps {
            true => [0..back, gone.min(end)..end],
            false => [gone..back, end..end],
        };
        let copies = if stored { 2.0 * seconds } else { seconds };
        if !self.context.costs.copies.overlap {
            return vec![(Trip { lanes: [None; 2], away: away(from, to), hurried: false }, copies)];
        }
        let [out, back] = &simulation.lanes;
        let leaving = stored.then(|| first_free(out, start[from], seconds));
        let mut stall = leaving.filter(|_| wraps).map_or(0.0, |l| (l.1 - simulation.seconds()).max(0.0));
        let returning = match last_free(back, start[to], seconds) {
            Some(returning) => returning,
            None if wraps => {
                let before = back.iter().filter(|busy| busy.0 < start[to]);
                stall += (before.map(|busy| busy.1 - busy.0).sum::<f64>() + seconds - start[to]).max(0.0);
                (0.0, seconds)
            }
            // For a state that the host has, all that comes later waits.
            None if self.stage.waits == Waits::AlsoWithin && !stored => {
                stall += seconds;
                (start[to], start[to])
            }
            None => return vec![],
        };
        let gone = leaving.map_or(from, |l| simulation.position_at(l.1));
        let fetch = simulation.position_at(returning.0).saturating_sub(1).min(to);
        let fits = |gone: usize, fetch: usize| wraps || gone < fetch;
        let lanes = [leaving, Some(returning)];
        let price = self.stage.copy_price * copies + stall;
        let mut trips = vec![];
        if fits(gone, fetch) {
            trips.push((Trip { lanes, away: away(gone, fetch), hurried: false }, price));
        }
        let tight_gone = first_over(over, from..gone.min(end));
        let tight_fetch = last_over(over, fetch..to).map(|last| last + 1);
        if tight_gone.or(tight_fetch).is_some() {
            let wait = tight_gone.zip(leaving).map_or(0.0, |(at, leaving)| leaving.1 - start[at]);
            let late = tight_fetch.map_or(0.0, |at| seconds - (start[to] - start[at]));
            let (gone, fetch) = (tight_gone.unwrap_or(gone), tight_fetch.unwrap_or(fetch));
            if fits(gone, fetch) {
                let trip = Trip { lanes, away: away(gone, fetch), hurried: true };
                trips.push((trip, price + wait.max(0.0) + late.max(0.0)));
            }
        }
        trips
    }

    /// Where a transfer that kernels wait for would be over the target, and the seconds they wait.
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
        let (first, last) = (first_over(over, way.clone())?, last_over(over, way.clone())?);
        let arrives = self.schedule.launches[copy as usize].writes.contains(&instance);
        let start = &simulation.start;
        let seconds = self.copy_seconds(self.schedule.instances[instance as usize].buffer);
        let (freed, stall) = if arrives {
            (way.start..last + 1, seconds - (start[way.end] - start[last + 1]))
        } else {
            let to = self.schedule.launches[copy as usize].writes[0];
            (first..way.end, simulation.arrival.get(to as usize)? - start[first])
        };
        Some((freed, stall.max(0.0) + self.stage.copy_price * seconds))
    }

    /// Takes an offer, and notes what it frees.
    pub(crate) fn take(&mut self, offer: &Offer) -> Option<()> {
        let launches = self.schedule.launches.len();
        let buffer_of = |i: InstanceId| self.schedule.instances[i as usize].buffer;
        let (buffer, anchor) = match offer.idle {
            Idle::Gap(instance, _, before) | Idle::Rest(instance, _, before) => (buffer_of(instance), before),
            Idle::Transfer(instance, _, wait) => (buffer_of(instance), wait),
            Idle::State(buffer) => (buffer, *self.schedule.instances[buffer as usize].uses.first()?),
        };
        let of_host = self.host_bytes_of(buffer);
        let taken = self.edit(offer, buffer);
        self.simulation.inserted_before(&self.schedule, anchor);
        taken?;
        let freed = match (&offer.remedy, offer.idle) {
            (Remedy::Offload(trip), _) => trip.away.clone(),
            (Remedy::Hurry(_, freed), _) => [freed.clone(), 0..0],
            (Remedy::Recompute(_), Idle::Gap(_, after, before)) => {
                [self.simulation.between(after, before), 0..0]
            }
            _ => [0..0, 0..0],
        };
        if let Remedy::Offload(Trip { hurried: true, .. }) = &offer.remedy {
            self.schedule.launches[launches..].iter_mut().for_each(|l| l.hurried = true);
        }
        let bytes = self.context.bytes(buffer) as i64;
        for range in freed {
            self.simulation.tree.add(range, -bytes);
        }
        if let Remedy::Offload(trip) = &offer.remedy {
            self.simulation.host_bytes += of_host;
            for (lane, busy) in self.simulation.lanes.iter_mut().zip(&trip.lanes) {
                if let Some(busy) = *busy {
                    let at = lane.partition_point(|&(begin, _)| begin < busy.0);
                    lane.insert(at, busy);
                }
            }
        }
        Some(())
    }

    /// Edits the schedule as an offer says. `None` where keys leave no room: what was inserted makes nothing wrong.
    fn edit(&mut self, offer: &Offer, buffer: BufferIndex) -> Option<()> {
        match (offer.idle, &offer.remedy) {
            (Idle::Gap(_, _, before), Remedy::Recompute(recomputation)) => {
                recomputation.apply(self.context, &mut self.schedule, before).map(|_| ())
            }
            (Idle::Gap(instance, after, before), Remedy::Offload(_)) => {
                self.schedule.offload(instance, after, before)
            }
            (Idle::Rest(_, _, before), Remedy::Offload(_)) => {
                if self.schedule.instances[buffer as usize].home == Home::Device {
                    self.schedule.offload_state(buffer)?;
                }
                self.schedule.fetch(buffer, buffer, before)
            }
            (Idle::State(buffer), Remedy::Offload(_)) => self.schedule.offload_state(buffer),
            (Idle::Transfer(..), Remedy::Hurry(copy, _)) => {
                self.schedule.launches[*copy as usize].hurried = true;
                Some(())
            }
            _ => None,
        }
    }
}

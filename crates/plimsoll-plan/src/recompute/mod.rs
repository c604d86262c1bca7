//! How to have a buffer again at some moment: which launches, from what, and what that costs.
//!
//! What a kernel reads to make a buffer again may itself be gone by then. It can be kept a little longer, or
//! be made again as well, down to what is there. A recomputation is the cheapest such tree.

pub(crate) mod descent;
pub(crate) mod far;
pub(crate) mod offers;
mod segments;

use crate::schedule::search_context::SearchContext;
use crate::schedule::simulate::Simulation;
use crate::schedule::{InstanceId, LaunchId, Schedule};
use plimsoll_ir::{BufferIndex, Home, Keep, LaunchSource};
use std::cell::Cell;

/// Longer chains are broken into several decisions.
const DEEPEST: usize = 48;

/// Buffers that are looked into for one recomputation. Where nearly all has been dropped there are more ways than can be
/// tried.
const PATIENCE: u32 = 200;

/// A launch that makes something again, and where its operands come from.
#[derive(Debug, Clone)]
pub(crate) struct Recomputation {
    source: LaunchSource,
    reads: Vec<Supply>,
    /// The seconds its launches take beyond what the schedule spends already.
    pub(crate) seconds: f64,
    /// Bytes that live longer, times the positions over the target at which they do.
    pub(crate) burden: f64,
}

/// Where an operand comes from.
#[derive(Debug, Clone)]
enum Supply {
    /// It is there, or is kept until then.
    Have(InstanceId),
    /// It is made again.
    Make(BufferIndex, Box<Recomputation>),
}

/// Looks for recomputations at one place of a schedule.
pub(crate) struct RecomputeSearch<'a> {
    context: &'a SearchContext<'a>,
    schedule: &'a Schedule,
    simulation: &'a Simulation,
    /// How many positions are over the target before each position.
    over: &'a [u32],
    /// The launch that what is made comes right before.
    anchor: LaunchId,
    /// The most that operands may burden: what there is to gain.
    gain: f64,
    /// Buffers that may still be looked into.
    patience: Cell<u32>,
}

impl<'a> RecomputeSearch<'a> {
    /// A search for what is made right before a launch.
    pub(crate) fn new(
        context: &'a SearchContext<'a>,
        (schedule, simulation): (&'a Schedule, &'a Simulation),
        over: &'a [u32],
        anchor: LaunchId,
        gain: f64,
    ) -> RecomputeSearch<'a> {
        RecomputeSearch { context, schedule, simulation, over, anchor, gain, patience: Cell::new(PATIENCE) }
    }

    /// The cheapest way to have a buffer again.
    pub(crate) fn recomputation(&self, buffer: BufferIndex) -> Option<Recomputation> {
        self.cook(buffer, &mut vec![])
    }

    fn cook(&self, buffer: BufferIndex, making: &mut Vec<BufferIndex>) -> Option<Recomputation> {
        let patience = self.patience.get().checked_sub(1)?;
        self.patience.set(patience);
        if making.len() >= DEEPEST || making.contains(&buffer) {
            return None;
        }
        making.push(buffer);
        let ways = self.context.ways[buffer as usize].iter();
        let recomputations = ways.filter_map(|&way| self.way(way, making));
        let best = recomputations.min_by(|a, b| self.badness(a).total_cmp(&self.badness(b)));
        making.pop();
        best
    }

    /// Seconds, weighed up with what of the gain is lost.
    fn badness(&self, recomputation: &Recomputation) -> f64 {
        let left = 1.0 - recomputation.burden / self.gain;
        if left > 0.0 { (recomputation.seconds + 1e-9) / left } else { f64::INFINITY }
    }

    fn way(&self, source: LaunchSource, making: &mut Vec<BufferIndex>) -> Option<Recomputation> {
        let kernel = self.context.kernel(source);
        let mut recomputation =
            Recomputation { source, reads: vec![], seconds: self.context.seconds(source), burden: 0.0 };
        for &buffer in &kernel.reads {
            let (supply, seconds, burden) = self.supply(buffer, making)?;
            recomputation.reads.push(supply);
            recomputation.seconds += seconds;
            recomputation.burden += burden;
        }
        (recomputation.burden < self.gain).then_some(recomputation)
    }

    fn supply(&self, buffer: BufferIndex, making: &mut Vec<BufferIndex>) -> Option<(Supply, f64, f64)> {
        let (schedule, key) = (self.schedule, self.schedule.key(self.anchor));
        let is_state = self.context.work.buffers[buffer as usize].keep == Keep::Always;
        if is_state {
            if schedule.is_updated(buffer, key) {
                return None;
            }
            if schedule.instances[buffer as usize].home == Home::Device {
                return Some((Supply::Have(buffer), 0.0, 0.0));
            }
        } else if !self.context.settled[buffer as usize] {
            return None;
        }
        let dropped = making.contains(&buffer);
        let bytes = self.context.bytes(buffer) as f64;
        let alive = schedule.alive(buffer, key).filter(|_| !dropped);
        if let Some(instance) = alive.filter(|&i| schedule.arrival(i, key).is_none()) {
            return Some((Supply::Have(instance), 0.0, 0.0));
        }
        let here = self.simulation.position(self.anchor);
        let kept = schedule.earlier(buffer, key).filter(|_| !dropped).and_then(|i| {
            let &last = schedule.instances[i as usize].uses.last()?;
            Some((Supply::Have(i), 0.0, bytes * self.over_between(self.simulation.position(last) + 1, here)))
        });
        let later = alive.or_else(|| schedule.later(buffer, key).filter(|_| !dropped));
        let fetched = later.and_then(|i| {
            let sooner = self.over_if_sooner(schedule.arrival(i, key)?);
            Some((Supply::Have(i), 0.0, bytes * sooner))
        });
        let kept = kept.into_iter().chain(fetched).min_by(|a, b| a.2.total_cmp(&b.2));
        // Keeping takes no time; it is worth what it leaves of the gain.
        let kept = kept.filter(|(_, _, burden)| *burden < 0.5 * self.gain);
        if kept.is_some() || is_state {
            return kept;
        }
        self.cook(buffer, making).map(|recomputation| {
            let later = schedule.later(buffer, key).filter(|&l| schedule.inserted_maker(l).is_some());
            let (mut seconds, mut burden) = (recomputation.seconds, recomputation.burden);
            if let Some(&first) = later.and_then(|l| schedule.instances[l as usize].uses.first()) {
                // It would be made later anyway; now it is made here, once.
                seconds = 0.0;
                burden += bytes * self.over_between(here, self.simulation.position(first));
            }
            (Supply::Make(buffer, Box::new(recomputation)), seconds, burden)
        })
    }

    /// The positions over the target at which a transfer that has to end at the anchor takes bytes beyond those at
    /// which it does already.
    fn over_if_sooner(&self, (copy, wait): (LaunchId, LaunchId)) -> f64 {
        let [copy, wait] = [copy, wait].map(|l| self.simulation.position(l));
        let start = &self.simulation.start;
        let sooner = start[wait] - start[self.simulation.position(self.anchor)];
        self.over_between(self.simulation.position_at(start[copy] - sooner).saturating_sub(1), copy)
    }

    fn over_between(&self, from: usize, to: usize) -> f64 {
        if from < to { f64::from(self.over[to] - self.over[from]) } else { 0.0 }
    }
}

impl Recomputation {
    /// Puts the recomputation's launches before `anchor`. `None`, and perhaps only some of them, where keys leave no
    /// room: what was inserted makes nothing wrong.
    pub(crate) fn apply(
        &self,
        context: &SearchContext<'_>,
        schedule: &mut Schedule,
        anchor: LaunchId,
    ) -> Option<LaunchId> {
        let mut made = vec![];
        let launch = self.insert(context, schedule, anchor, &mut made);
        // What would have been made later is there now. Only now, when every launch is in its place, is it
        // known what nothing needs any more.
        for (_, instance) in made {
            schedule.join_later(instance);
        }
        launch
    }

    fn insert(
        &self,
        context: &SearchContext<'_>,
        schedule: &mut Schedule,
        anchor: LaunchId,
        made: &mut Vec<(BufferIndex, InstanceId)>,
    ) -> Option<LaunchId> {
        let kernel = context.kernel(self.source);
        let mut reads = Vec::with_capacity(self.reads.len());
        for supply in &self.reads {
            reads.push(match supply {
                Supply::Have(instance) => *instance,
                Supply::Make(buffer, recomputation) => {
                    let known = made.iter().find(|(b, _)| b == buffer).map(|&(_, i)| i);
                    match known {
                        Some(instance) => instance,
                        None => {
                            let launch = recomputation.insert(context, schedule, anchor, made)?;
                            let writes = &schedule.launches[launch as usize].writes;
                            writes
                                .iter()
                                .copied()
                                .find(|&i| schedule.instances[i as usize].buffer == *buffer)?
                        }
                    }
                }
            });
        }
        for &read in &reads {
            schedule.arrive_before(read, anchor)?;
        }
        let launch = schedule.insert_before(anchor, self.source, reads, &kernel.writes)?;
        for &instance in schedule.launches[launch as usize].writes.iter() {
            made.push((schedule.instances[instance as usize].buffer, instance));
        }
        Some(launch)
    }
}

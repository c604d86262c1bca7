//! What a schedule takes: the exact bytes that live at every launch, and when every launch runs.
//!
//! Bytes are those of the arena, alignment, workspaces and what replaces its operand in place included: the
//! figure that packing starts from. Times follow the costs: kernels run one after another, copies run beside
//! them where the device can, in a lane for each direction, and a wait lasts until its copy has ended.

use crate::plan::may_replace;
use crate::schedule::live::LiveBytes;
use crate::schedule::search_context::SearchContext;
use crate::schedule::{LaunchId, Schedule};
use plimsoll_ir::{Home, Keep, LaunchSource};
use std::ops::Range;

/// A schedule, simulated.
#[derive(Debug, Clone)]
pub(crate) struct Simulation {
    /// The launches, in the order they run.
    pub(crate) order: Vec<LaunchId>,
    /// The position of each launch in the order.
    position: Vec<u32>,
    /// The device bytes that live at each position.
    pub(crate) live: Vec<i64>,
    /// The same, to be edited on trial.
    pub(crate) tree: LiveBytes,
    /// The moment each launch starts; one more for the end.
    pub(crate) start: Vec<f64>,
    /// What copies to the host ([0]) and from it ([1]) are busy with: from when to when.
    pub(crate) lanes: [Vec<(f64, f64)>; 2],
    /// The moment at which each instance that is copied to has arrived.
    pub(crate) arrival: Vec<f64>,
    /// The bytes of all that rests on the host, as if all of it did at once: no layout there takes more.
    pub(crate) host_bytes: u64,
}

impl Simulation {
    /// Simulates a schedule, whose keys are spread anew.
    pub(crate) fn new(context: &SearchContext<'_>, schedule: &mut Schedule) -> Simulation {
        let order = schedule.spread();
        let position = positions(schedule, &order);
        let live = live(context, schedule, &order, &position);
        let (start, lanes, arrival) = times(context, schedule, &order);
        let tree = LiveBytes::new(&live);
        let host_bytes = host_bytes(context, schedule);
        Simulation { order, position, live, tree, start, lanes, arrival, host_bytes }
    }

    /// The most bytes that live at once.
    pub(crate) fn peak(&self) -> u64 {
        self.live.iter().copied().max().unwrap_or(0).max(0) as u64
    }

    /// The seconds of a step.
    pub(crate) fn seconds(&self) -> f64 {
        self.start.last().copied().unwrap_or(0.0)
    }

    /// By how much the schedule is over a target, summed over the step's own kernels: those are always as many.
    pub(crate) fn excess(&self, schedule: &Schedule, target: i64) -> i128 {
        let own = |l: LaunchId| matches!(schedule.launches[l as usize].source, LaunchSource::Kernel(_));
        let over = self.order.iter().zip(&self.live).filter(|(l, _)| own(**l));
        over.map(|(_, &bytes)| i128::from((bytes - target).max(0))).sum()
    }

    /// The position of a launch; of one inserted since, that of the launch it was put before.
    pub(crate) fn position(&self, launch: LaunchId) -> usize {
        self.position[launch as usize] as usize
    }

    /// Notes that launches were inserted right before `anchor`.
    pub(crate) fn inserted_before(&mut self, schedule: &Schedule, anchor: LaunchId) {
        let at = self.position[anchor as usize];
        self.position.resize(schedule.launches.len(), at);
    }

    /// The positions between two launches, neither included.
    pub(crate) fn between(&self, after: LaunchId, before: LaunchId) -> Range<usize> {
        self.position(after) + 1..self.position(before)
    }

    /// The first position that starts at `moment` or later.
    pub(crate) fn position_at(&self, moment: f64) -> usize {
        self.start[..self.order.len()].partition_point(|&s| s < moment)
    }
}

/// The bytes of all instances on the host.
fn host_bytes(context: &SearchContext<'_>, schedule: &Schedule) -> u64 {
    let on_host = schedule.instances.iter().filter(|instance| {
        instance.home == Home::Host && (instance.keep == Keep::Always || !instance.uses.is_empty())
    });
    on_host.map(|instance| context.bytes(instance.buffer)).sum()
}

/// The position of each launch in an order.
pub(crate) fn positions(schedule: &Schedule, order: &[LaunchId]) -> Vec<u32> {
    let mut position = vec![u32::MAX; schedule.launches.len()];
    for (p, &launch) in order.iter().enumerate() {
        position[launch as usize] = p as u32;
    }
    position
}

/// The device bytes that live at each position.
pub(crate) fn live(
    context: &SearchContext<'_>,
    schedule: &Schedule,
    order: &[LaunchId],
    position: &[u32],
) -> Vec<i64> {
    let end = order.len();
    let mut change = vec![0i64; end + 1];
    let mut last = vec![0u32; schedule.instances.len()];
    let mut first = vec![u32::MAX; schedule.instances.len()];
    for (id, instance) in schedule.instances.iter().enumerate() {
        if instance.home == Home::Host {
            continue;
        }
        let ends = instance.uses.first().zip(instance.uses.last());
        let uses = ends.map(|(&f, &l)| (position[f as usize], position[l as usize]));
        let (lower, upper) = match (instance.keep, uses) {
            (Keep::Always, _) => (0, end),
            (Keep::FromStart, uses) => (0, uses.map_or(1, |(_, l)| l as usize + 1).min(end)),
            (_, None) => continue,
            (Keep::ToEnd, Some((f, _))) => (f as usize, end),
            (Keep::WhileUsed, Some((f, l))) => (f as usize, l as usize + 1),
        };
        (first[id], last[id]) = (lower as u32, upper as u32);
        let bytes = context.bytes(instance.buffer) as i64;
        change[lower] += bytes;
        change[upper] -= bytes;
    }
    let mut now = 0;
    let mut live: Vec<i64> = change[..end]
        .iter()
        .map(|change| {
            now += change;
            now
        })
        .collect();
    // At a launch that replaces an operand in place the two are one.
    let mut taken = vec![false; schedule.instances.len()];
    let mut placed = vec![false; schedule.instances.len()];
    for (p, &id) in order.iter().enumerate() {
        let launch = &schedule.launches[id as usize];
        live[p] += context.kernel(launch.source).workspace.next_multiple_of(context.alignment) as i64;
        for (new, old) in schedule.in_place(context, launch) {
            let (fresh, dying) = (&schedule.instances[new as usize], &schedule.instances[old as usize]);
            let fits = matches!(fresh.keep, Keep::WhileUsed | Keep::ToEnd)
                && matches!(dying.keep, Keep::WhileUsed | Keep::FromStart)
                && first[new as usize] == p as u32
                && last[old as usize] == p as u32 + 1
                && (first[old as usize] < p as u32 || dying.keep == Keep::FromStart)
                && !taken[old as usize]
                && !placed[new as usize]
                && may_replace(
                    &context.work.buffers[fresh.buffer as usize],
                    &context.work.buffers[dying.buffer as usize],
                    context.alignment,
                );
            if fits {
                (taken[old as usize], placed[new as usize]) = (true, true);
                live[p] -= context.bytes(fresh.buffer) as i64;
            }
        }
    }
    live
}

type Lanes = [Vec<(f64, f64)>; 2];

fn times(
    context: &SearchContext<'_>,
    schedule: &Schedule,
    order: &[LaunchId],
) -> (Vec<f64>, Lanes, Vec<f64>) {
    let copies = context.costs.copies;
    let mut start = Vec::with_capacity(order.len() + 1);
    let mut lanes: Lanes = [vec![], vec![]];
    let mut arrival = vec![0.0; schedule.instances.len()];
    let mut now = 0.0f64;
    for &id in order {
        start.push(now);
        let launch = &schedule.launches[id as usize];
        match launch.source {
            LaunchSource::Copy => {
                let to = launch.writes[0];
                let lane = &mut lanes[usize::from(schedule.instances[to as usize].home == Home::Device)];
                let bytes = context.work.buffers[schedule.instances[to as usize].buffer as usize].bytes;
                let begin = lane.last().map_or(now, |&(_, end)| now.max(end));
                let end = begin + copies.seconds(bytes);
                lane.push((begin, end));
                arrival[to as usize] = end;
                now = if copies.overlap { now + context.costs.copy_share * bytes as f64 } else { end };
            }
            LaunchSource::Wait => now = now.max(arrival[launch.reads[1] as usize]),
            source => now += context.seconds(source),
        }
    }
    start.push(now);
    (start, lanes, arrival)
}

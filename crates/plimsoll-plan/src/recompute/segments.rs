//! Recomputing segment by segment: the schedule that a specialist would write down for a deep network.
//!
//! A descent takes offers one by one, each the best at its moment. Far below the plain peak that leads to values that are
//! made twice where once would do. The other end is known: cut the way to the peak where the fewest bytes cross, keep what
//! crosses, and make all else again, once, when the way back comes to its segment. Descents begin there as well.

use crate::recompute::RecomputeSearch;
use crate::recompute::descent::Descent;
use crate::recompute::offers::over;
use crate::schedule::{InstanceId, LaunchId};
use plimsoll_ir::{BufferIndex, Home, Keep};
use std::collections::HashSet;

/// The way to the peak is cut into two to this many segments, whichever takes the least.
const MOST_SEGMENTS: usize = 256;

/// A value that is made on the way to the peak.
struct Value {
    buffer: BufferIndex,
    bytes: u64,
    /// The positions of its first and last use on the way.
    first: usize,
    last: usize,
    /// Whether it is used after the peak.
    waits: bool,
}

impl Descent<'_> {
    /// Recomputes all that waits over the peak but what crosses from one segment to the next.
    pub(crate) fn recompute_segments(&mut self) {
        let live = &self.simulation.live;
        let Some(peak) = (0..live.len()).rev().max_by_key(|&at| live[at]) else { return };
        let kept = crossing(&self.values_on_the_way_to(peak), peak);
        let everywhere = over(&self.simulation, 0);
        let way: Vec<LaunchId> = self.simulation.order[..=peak].to_vec();
        // What was made last first: what it is made of is still there, and is next.
        for &launch in way.iter().rev() {
            let writes = self.schedule.launches[launch as usize].writes.clone();
            // Of the results of one launch one may be made of another.
            for &made in writes.iter().chain(writes.iter().rev()) {
                let is_value = self.is_value(made);
                if is_value && !kept.contains(&self.schedule.instances[made as usize].buffer) {
                    self.make_again_after(way[peak], made, &everywhere);
                }
            }
        }
        self.schedule.sweep_all();
        self.simulate();
    }

    fn is_value(&self, instance: InstanceId) -> bool {
        let of = &self.schedule.instances[instance as usize];
        of.home == Home::Device && of.keep == Keep::WhileUsed
    }

    fn values_on_the_way_to(&self, peak: usize) -> Vec<Value> {
        let all = (0..self.schedule.instances.len() as InstanceId).filter(|&i| self.is_value(i));
        let value = |instance: InstanceId| {
            let of = &self.schedule.instances[instance as usize];
            let uses = || of.uses.iter().map(|&launch| self.simulation.position(launch));
            let first = uses().next().filter(|&first| first <= peak)?;
            let last = uses().rfind(|&position| position <= peak)?;
            let waits = uses().next_back().is_some_and(|position| position > peak);
            Some(Value { buffer: of.buffer, bytes: self.context.bytes(of.buffer), first, last, waits })
        };
        all.filter_map(value).collect()
    }

    /// Makes an instance again for its first use after a launch, from what is there then.
    fn make_again_after(&mut self, peak: LaunchId, instance: InstanceId, everywhere: &[u32]) {
        let of = &self.schedule.instances[instance as usize];
        let after = of.uses.iter().find(|&&u| self.schedule.key(u) > self.schedule.key(peak));
        let (Some(&before), buffer) = (after, of.buffer) else { return };
        // No gain is too small: what it is made of is made again in its turn.
        let now = (&self.schedule, &self.simulation);
        let search = RecomputeSearch::new(self.context, now, everywhere, before, f64::INFINITY);
        let Some(recomputation) = search.recomputation(buffer) else { return };
        let applied = recomputation.apply(self.context, &mut self.schedule, before);
        self.simulation.inserted_before(&self.schedule, before);
        if applied.is_none() {
            self.schedule.spread();
        }
    }
}

/// What crosses from one segment to the next, where the way to the peak is cut so that this and the largest segment take the
/// least together.
fn crossing(values: &[Value], peak: usize) -> HashSet<BufferIndex> {
    let mut change = vec![0i64; peak + 1];
    let mut made = vec![0u64; peak + 1];
    for value in values {
        change[value.first] += value.bytes as i64;
        change[value.last] -= value.bytes as i64;
        made[value.first] += if value.waits { value.bytes } else { 0 };
    }
    let mut bytes = 0;
    let bytes_after: Vec<i64> = change
        .iter()
        .map(|change| {
            bytes += change;
            bytes
        })
        .collect();
    let total: u64 = made.iter().sum();
    let cut_into = |segments: usize| {
        let (mut kept, mut largest) = (HashSet::new(), 0);
        let (mut at, mut before, mut segment) = (0, 0, 0);
        for n in 1..segments as u64 {
            let (from, share) = (at, (u128::from(total) * u128::from(n) / segments as u128) as u64);
            while at < peak && before < share {
                before += made[at];
                segment += made[at];
                at += 1;
            }
            let Some(cut) = (from..at).rev().min_by_key(|&position| bytes_after[position]) else { continue };
            let rest: u64 = made[cut + 1..at].iter().sum();
            largest = largest.max(segment - rest);
            segment = rest;
            kept.extend(
                values.iter().filter(|v| v.first <= cut && cut < v.last).map(|v| (v.buffer, v.bytes)),
            );
        }
        largest = largest.max(segment + total - before);
        let crosses: u64 = kept.iter().map(|(_, bytes)| bytes).sum();
        (crosses + largest, kept)
    };
    let ways = (1..).map(|power| cut_into(1 << power)).take(MOST_SEGMENTS.ilog2() as usize);
    let (_, kept) = ways.min_by_key(|(bytes, _)| *bytes).unwrap_or_default();
    kept.into_iter().map(|(buffer, _)| buffer).collect()
}

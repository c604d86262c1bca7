//! When copies run: as early as they can to the host, as late as they can from it.
//!
//! Which bytes go to the host is one question, when they fly is another. A copy out begins when its bytes are
//! idle, and they are gone when it has ended; a copy back begins so late that it has just ended when its bytes
//! are needed. With a lane for each direction that holds the fewest bytes without making any kernel wait. Only
//! where a transfer is in a hurry do kernels wait for it: as long as it would take bytes over the target.

use crate::schedule::search_context::SearchContext;
use crate::schedule::simulate::{live, positions};
use crate::schedule::{InstanceId, LaunchId, Schedule};
use plimsoll_ir::{Home, LaunchSource};
use std::collections::HashMap;

/// A copy and the wait for its end. Slot `j` is right before the `j`th launch that stays where it is.
struct Transfer {
    copy: LaunchId,
    wait: LaunchId,
    hurried: bool,
    /// The slot it may begin in: what it copies is there.
    ready: usize,
    /// The slot it has to have ended in.
    due: usize,
    seconds: f64,
    bytes: i64,
    /// The slots it begins and has ended in.
    slots: (usize, usize),
}

/// The launches that stay where they are, and what lives and when at each of them.
struct Ground {
    fixed: Vec<LaunchId>,
    /// The slot of each launch.
    slot: Vec<usize>,
    /// The bytes that live at each slot.
    live: Vec<i64>,
    /// The moment of each slot, and of the end.
    moment: Vec<f64>,
}

impl Ground {
    fn new(context: &SearchContext<'_>, schedule: &Schedule, order: &[LaunchId]) -> Ground {
        let live = live(context, schedule, order, &positions(schedule, order));
        let mut ground =
            Ground { fixed: vec![], slot: vec![0; schedule.launches.len()], live: vec![], moment: vec![] };
        let mut now = 0.0;
        for (&launch, live) in order.iter().zip(live) {
            ground.slot[launch as usize] = ground.fixed.len();
            let source = schedule.launches[launch as usize].source;
            if source.computes() || is_pinned(schedule, launch) {
                ground.fixed.push(launch);
                ground.live.push(live);
                ground.moment.push(now);
                now += context.seconds(source);
            }
        }
        ground.moment.push(now);
        ground
    }

    fn slot(&self, launch: LaunchId) -> usize {
        self.slot[launch as usize]
    }

    fn add(&mut self, slots: (usize, usize), bytes: i64) {
        if slots.0 < slots.1 {
            self.live[slots.0..slots.1].iter_mut().for_each(|live| *live += bytes);
        }
    }

    /// Everything from a slot on is later.
    fn stall(&mut self, slot: usize, seconds: f64) {
        if seconds > 0.0 {
            self.moment[slot..].iter_mut().for_each(|moment| *moment += seconds);
        }
    }
}

/// The use of an instance before a launch that uses it.
fn use_before(schedule: &Schedule, instance: InstanceId, launch: LaunchId) -> Option<LaunchId> {
    let uses = &schedule.instances[instance as usize].uses;
    let at = uses.iter().position(|&u| u == launch)?;
    at.checked_sub(1).map(|before| uses[before])
}

fn arrives(schedule: &Schedule, copy: LaunchId) -> bool {
    schedule.instances[schedule.launches[copy as usize].writes[0] as usize].home == Home::Device
}

/// Whether a copy to the host, or the wait for it, stays where it is: nothing computed with what it copies, so
/// there is no launch it follows.
fn is_pinned(schedule: &Schedule, launch: LaunchId) -> bool {
    let of = &schedule.launches[launch as usize];
    let (from, to) = (of.reads[0], if of.source == LaunchSource::Copy { of.writes[0] } else { of.reads[1] });
    if schedule.instances[to as usize].home == Home::Device {
        return false;
    }
    let copy = if of.source == LaunchSource::Copy { Some(launch) } else { use_before(schedule, to, launch) };
    let before = copy.and_then(|copy| use_before(schedule, from, copy));
    before.is_none_or(|before| !schedule.launches[before as usize].source.computes())
}

/// Gives every copy and every wait its place.
pub(crate) fn time_copies(context: &SearchContext<'_>, schedule: &mut Schedule, target: i64) {
    let order: Vec<LaunchId> = schedule.in_order().collect();
    let copies = order.iter().filter(|&&l| schedule.launches[l as usize].source == LaunchSource::Copy);
    let (back, out): (Vec<LaunchId>, Vec<LaunchId>) = copies.partition(|&&copy| arrives(schedule, copy));
    if !context.costs.copies.overlap || (back.is_empty() && out.is_empty()) {
        return;
    }
    let mut ground = Ground::new(context, schedule, &order);
    let transfers = |ground: &Ground, copies: &[LaunchId]| -> Option<Vec<Transfer>> {
        let moving = copies.iter().filter(|&&copy| !is_pinned(schedule, copy));
        moving.map(|&copy| transfer(context, schedule, ground, copy)).collect()
    };
    let (Some(mut out), Some(mut back)) = (transfers(&ground, &out), transfers(&ground, &back)) else {
        return;
    };
    for transfer in out.iter().chain(&back) {
        ground.add(transfer.slots, -transfer.bytes);
    }
    time_out(&mut ground, &mut out, target);
    // What comes back has to have gone.
    let mut left: HashMap<InstanceId, Vec<&Transfer>> = HashMap::new();
    for transfer in &out {
        left.entry(schedule.launches[transfer.copy as usize].writes[0]).or_default().push(transfer);
    }
    for transfer in &mut back {
        let left = left.get(&schedule.launches[transfer.copy as usize].reads[0]).into_iter().flatten();
        let gone = left.filter(|left| left.ready <= transfer.due).map(|left| left.slots.1).max();
        transfer.ready = transfer.ready.max(gone.unwrap_or(0));
    }
    time_back(&mut ground, &mut back, target);
    let mut places: Vec<(usize, u8, usize, LaunchId)> = vec![];
    for (n, transfer) in out.iter().enumerate() {
        places.push((transfer.slots.0, 0, n, transfer.copy));
        places.push((transfer.slots.1, 1, n, transfer.wait));
    }
    for (n, transfer) in back.iter().enumerate() {
        places.push((transfer.slots.0, 2, n, transfer.copy));
        places.push((transfer.slots.1, 3, n, transfer.wait));
    }
    places.sort_unstable();
    let mut places = places.into_iter().peekable();
    let mut arranged = Vec::with_capacity(order.len());
    for (slot, launch) in ground.fixed.iter().map(Some).chain([None]).enumerate() {
        arranged.extend(std::iter::from_fn(|| places.next_if(|place| place.0 <= slot)).map(|place| place.3));
        arranged.extend(launch);
    }
    schedule.reorder(&arranged);
}

fn transfer(
    context: &SearchContext<'_>,
    schedule: &Schedule,
    ground: &Ground,
    copy: LaunchId,
) -> Option<Transfer> {
    let of = &schedule.launches[copy as usize];
    let (from, to) = (of.reads[0], of.writes[0]);
    let uses = &schedule.instances[to as usize].uses;
    let at = uses.iter().position(|&u| u == copy)?;
    let &wait = uses[at + 1..].iter().find(|&&u| schedule.awaits(u, to))?;
    let buffer = schedule.instances[to as usize].buffer;
    let fixed_slot = |launch: LaunchId| ground.slot(launch) + 1;
    let (ready, due, slots) = if arrives(schedule, copy) {
        let due =
            uses.iter().find(|&&u| u != copy && u != wait).map_or(ground.slot(wait), |&u| ground.slot(u));
        // One instance of a buffer after another.
        let last = schedule.predecessor(to).and_then(|before| {
            let uses = schedule.instances[before as usize].uses.iter().rev();
            uses.copied().find(|&u| ground.fixed.get(ground.slot(u)) == Some(&u))
        });
        (last.map_or(0, fixed_slot), due, (ground.slot(copy), due))
    } else {
        // Until it has to be back, or the end of the step.
        let due = uses[at + 1..]
            .iter()
            .find(|&&u| u != wait && schedule.launches[u as usize].source == LaunchSource::Copy);
        let due = due.map_or(ground.fixed.len(), |&back| {
            let returned = schedule.launches[back as usize].writes[0];
            let need = schedule.instances[returned as usize].uses.get(2);
            ground.slot(*need.unwrap_or(&back))
        });
        let ready = fixed_slot(use_before(schedule, from, copy)?);
        // While others use what is copied it lives anyway.
        let last = schedule.instances[from as usize].uses.iter().rev();
        let last = last.map(|&u| (u, ground.slot(u))).find(|&(u, _)| u != wait && u != copy);
        let lives_until = last.map_or(0, |(u, slot)| slot + usize::from(ground.fixed.get(slot) == Some(&u)));
        (ready, due, (ready.max(lives_until), ground.slot(wait)))
    };
    let bytes = context.bytes(buffer) as i64;
    let seconds = context.costs.copies.seconds(context.work.buffers[buffer as usize].bytes);
    (ready <= due).then_some(Transfer { copy, wait, hurried: of.hurried, ready, due, seconds, bytes, slots })
}

/// First come, first served; each has ended as soon as the lane lets it.
fn time_out(ground: &mut Ground, transfers: &mut [Transfer], target: i64) {
    let mut free = 0.0f64;
    transfers.sort_by_key(|f| f.ready);
    for transfer in transfers {
        let end = free.max(ground.moment[transfer.ready]) + transfer.seconds;
        free = end;
        let ended = ground.moment.partition_point(|&m| m < end - 1e-12).clamp(transfer.ready, transfer.due);
        let lives = transfer.slots.0.max(transfer.ready);
        let is_over = |slot: &usize| ground.live[*slot] + transfer.bytes > target;
        let until = if transfer.hurried { (lives..ended).find(is_over).unwrap_or(ended) } else { ended };
        transfer.slots = (transfer.ready, until);
        ground.stall(until, end - ground.moment[until]);
        ground.add((lives, until), transfer.bytes);
    }
}

/// The last that is needed flies last; each begins as late as the lane lets it.
fn time_back(ground: &mut Ground, transfers: &mut [Transfer], target: i64) {
    let mut free = f64::INFINITY;
    transfers.sort_by_key(|f| f.due);
    for transfer in transfers.iter_mut().rev() {
        let begin = free.min(ground.moment[transfer.due]) - transfer.seconds;
        let latest = ground.moment.partition_point(|&m| m <= begin + 1e-12).saturating_sub(1);
        let latest = latest.clamp(transfer.ready, transfer.due);
        let is_over = |slot: &usize| ground.live[*slot] + transfer.bytes > target;
        let over = (latest..transfer.due).rev().find(is_over).filter(|_| transfer.hurried);
        let from = over.map_or(latest, |slot| slot + 1);
        free = begin.max(ground.moment[from]).min(ground.moment[transfer.due]);
        transfer.slots = (from, transfer.due);
        ground.add(transfer.slots, transfer.bytes);
    }
    // The lane serves them in turn, so none need begin before the one it comes after.
    let mut earliest = 0;
    for transfer in transfers {
        transfer.slots.0 = transfer.slots.0.max(earliest);
        earliest = transfer.slots.0;
    }
}

/// The first time from `moment` on at which a lane is free for so long.
pub(crate) fn first_free(lane: &[(f64, f64)], moment: f64, seconds: f64) -> (f64, f64) {
    let mut begin = moment;
    let past = lane.partition_point(|&(_, to)| to <= moment);
    for &(from, to) in &lane[past..] {
        if from >= begin + seconds {
            break;
        }
        begin = begin.max(to);
    }
    (begin, begin + seconds)
}

/// The last time up to `moment` for which a lane is free for so long.
pub(crate) fn last_free(lane: &[(f64, f64)], moment: f64, seconds: f64) -> Option<(f64, f64)> {
    let mut end = moment;
    let before = lane.partition_point(|&(from, _)| from < moment);
    for &(from, to) in lane[..before].iter().rev() {
        if to <= end - seconds {
            break;
        }
        end = end.min(from);
    }
    (end >= seconds).then_some((end - seconds, end))
}

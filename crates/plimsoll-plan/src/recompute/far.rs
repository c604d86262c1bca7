//! Descents far down, a target at a time.
//!
//! What is taken one by one makes some values twice, and stops where the lanes are full. So these descents begin where every
//! [segment](super::segments) is recomputed and, where that may be, some or all states are on the host. They go from target
//! to target side by side, and only as far down as a budget asks: the targets, and with them the points, are the same for all
//! budgets.

use crate::costs::just_over;
use crate::recompute::descent::{
    Beginnings, COPY_PRICES, Descent, Offload, Point, Stage, Waits, frontier, side_by_side,
};
use crate::schedule::Schedule;
use crate::schedule::search_context::SearchContext;
use crate::schedule::simulate::Simulation;
use plimsoll_ir::{BufferIndex, Home, Keep, Role};
use std::rc::Rc;

/// The stages of a descent that begins with states on the host. Copies that cost no time are taken first, those that kernels
/// wait for next, and then a second of copying costs a second, as on lanes that are always busy. What cannot be reached so is
/// by copying what would rather be made again, and what not even so, by fetching weights twice.
const STATES_AWAY: [Stage; 4] = [
    Stage { copy_price: COPY_PRICES[4], waits: Waits::ForSome },
    Stage { copy_price: 1.0, waits: Waits::ForAll },
    Stage { copy_price: COPY_PRICES[0], waits: Waits::ForAll },
    Stage { copy_price: COPY_PRICES[0], waits: Waits::AlsoWithin },
];

/// Each target is below the one before by this part of it.
const TARGET_SHARE: i64 = 12;

/// How many shares of the optimizers' slots descents begin with on the host: one, two and so on up to all.
const SHARES_AWAY: usize = 2;

/// The part of the least peak that is left free wherever it can be, so that it can be packed.
const ROOM_FOR_PACKING: i64 = 10;

/// The points of a frontier below its near end, known as far down as they were asked for.
pub(crate) struct Far {
    /// What all of these are below: none is said to be faster.
    below: u64,
    slowest_above: f64,
    /// The descents that are under way.
    walks: Vec<Walk>,
    target: i64,
    /// What was found, down to where a descent may still find something better.
    points: Vec<Rc<Point>>,
    /// What was found below that.
    found: Vec<Point>,
    /// Nothing below so many bytes counts but the last of all points and what is above that. It is asked for when the descents
    /// come there; `None` once it was, or where there is none.
    end_below: Option<u64>,
    /// What all points take more than, but for the last.
    least: u64,
}

impl Far {
    /// The points below one, those that are known there among them. Below `end_below`, if that is given, the last is settled.
    pub(crate) fn new(
        context: &SearchContext<'_>,
        start: Schedule,
        offload: Offload,
        below: &Point,
        known: Vec<Point>,
        end_below: Option<u64>,
    ) -> Far {
        let may_go_away = offload == Offload::ValuesAndStates && context.costs.copies.overlap;
        let (away, stages) = match may_go_away {
            true => (states_to_send_away(context, &start), &STATES_AWAY[..]),
            false => (vec![vec![]], &STATES_AWAY[..1]),
        };
        let walk = |states| Walk { at: At::Beginning(start.clone(), states), offload, stages };
        Far {
            below: below.live_bytes,
            slowest_above: below.seconds,
            walks: away.into_iter().map(walk).collect(),
            target: below.live_bytes as i64,
            points: vec![],
            found: known.into_iter().filter(|point| point.live_bytes < below.live_bytes).collect(),
            end_below,
            least: 0,
        }
    }

    /// One of the points, if it is known.
    pub(crate) fn known(&self, point: usize) -> Option<Rc<Point>> {
        self.points.get(point).map(Rc::clone)
    }

    /// Whether there is nothing left to search for.
    pub(crate) fn is_done(&self) -> bool {
        self.walks.is_empty() && self.found.is_empty() && self.end_below.is_none()
    }

    /// One of the points, which is searched for as far down as it takes; `last` is the last of all, where there is one. `None` if
    /// there are not as many.
    pub(crate) fn point(
        &mut self,
        context: &SearchContext<'_>,
        point: usize,
        last: impl Fn() -> Option<Point>,
    ) -> Option<Rc<Point>> {
        while point >= self.points.len() && !self.is_done() {
            if let Some(below) = self.end_below
                && (self.walks.is_empty() || self.next_target() < below as i64)
            {
                self.end(below, last());
            }
            self.go_on(context);
        }
        self.known(point)
    }

    /// Settles the last of all points: nothing takes less, and nothing takes as little as `below` if that does not. Where nothing
    /// is below that, it is one point more.
    fn end(&mut self, below: u64, last: Option<Point>) {
        self.end_below = None;
        if below == 0 {
            return self.found.extend(last.filter(|last| last.live_bytes < self.below));
        }
        let last = last.filter(|last| last.live_bytes < below);
        self.least = last.as_ref().map_or(below.saturating_sub(1), |last| last.live_bytes);
        self.found.retain(|point| point.live_bytes > self.least);
        self.found.extend(last.filter(|last| last.live_bytes < self.below));
    }

    fn next_target(&self) -> i64 {
        self.target - (self.target / TARGET_SHARE).max(1)
    }

    /// What no point from this one on takes less time than, as far as that is known without a search.
    pub(crate) fn seconds_from(&self, point: usize) -> f64 {
        let known = self.points.get(point).or(self.points.last());
        known.map_or(self.slowest_above, |point| point.seconds)
    }

    /// All points.
    pub(crate) fn all(mut self, context: &SearchContext<'_>) -> Vec<Point> {
        while !self.is_done() {
            self.go_on(context);
        }
        self.into_found()
    }

    /// What was found so far.
    pub(crate) fn into_found(self) -> Vec<Point> {
        self.points.iter().map(|point| Point::clone(point)).chain(self.found).collect()
    }

    /// Goes down to the next target. What is above the one before is as good as it gets then: a way to less memory that is
    /// faster as well is found two targets further at most, or does not count.
    fn go_on(&mut self, context: &SearchContext<'_>) {
        let before = self.target;
        self.target = self.next_target();
        if self.target <= self.least as i64 {
            self.walks.clear();
        }
        let target = self.target;
        let walks = std::mem::take(&mut self.walks).into_iter();
        for (points, walk) in side_by_side(walks.map(|walk| move || walk.go_to(context, target))) {
            let counts = |point: &Point| point.live_bytes < self.below && point.live_bytes > self.least;
            self.found.extend(points.into_iter().filter(counts));
            self.walks.extend(walk);
        }
        let least = if self.walks.is_empty() { 0 } else { before as u64 + 1 };
        self.found = frontier(None, std::mem::take(&mut self.found));
        let settled = self.found.partition_point(|point| point.live_bytes >= least);
        for point in self.found.drain(..settled) {
            self.below = point.live_bytes;
            let seconds = point.seconds.max(just_over(self.slowest_above));
            self.slowest_above = seconds;
            self.points.push(Rc::new(Point { seconds, ..point }));
        }
    }
}

/// A descent far down.
struct Walk {
    at: At,
    offload: Offload,
    /// Its stage and those after it.
    stages: &'static [Stage],
}

/// Where a descent is.
enum At {
    /// It has not begun; these states are to be on the host then.
    Beginning(Schedule, Vec<BufferIndex>),
    UnderWay(Schedule, Box<Simulation>),
}

impl Walk {
    /// Goes down to a target, in as many stages as that takes. Returns what it found on the way, and itself if there is more
    /// to find.
    fn go_to(mut self, context: &SearchContext<'_>, target: i64) -> (Vec<Point>, Option<Walk>) {
        let mut descent = match self.at {
            At::Beginning(schedule, away) => {
                let mut descent = Descent::new(context, schedule, self.offload, self.stages[0]);
                descent.recompute_segments();
                descent.send_away(&away);
                descent
            }
            At::UnderWay(schedule, simulation) => {
                Descent::resume(context, schedule, *simulation, self.offload, self.stages[0])
            }
        };
        let mut points = vec![];
        loop {
            let reached = descent.reach(target);
            // What is taken back for one target is none of the next one's business.
            let kept = (descent.schedule.clone(), descent.simulation.clone());
            let met = (descent.simulation.peak() as i64).max(target);
            descent.take_back(met);
            points.push(descent.point());
            (descent.schedule, descent.simulation) = kept;
            if reached {
                self.at = At::UnderWay(descent.schedule, Box::new(descent.simulation));
                return (points, Some(self));
            }
            self.stages = &self.stages[1..];
            let Some(&stage) = self.stages.first() else { return (points, None) };
            descent.stage = stage;
        }
    }
}

/// The point at the end of all, which takes the least: descents that keep nothing they can do without, straight down.
pub(crate) fn straight_down(context: &SearchContext<'_>, from: &Beginnings, offload: Offload) -> Point {
    let in_segments = |away: &[BufferIndex], stages: &'static [Stage]| {
        let mut descent = Descent::new(context, from.in_turn.clone(), offload, stages[0]);
        descent.recompute_segments();
        descent.send_away(away);
        go_down(descent, stages)
    };
    if offload == Offload::ValuesAndStates && context.costs.copies.overlap {
        let away = states_to_send_away(context, &from.in_turn).pop().unwrap_or_default();
        return in_segments(&away, &STATES_AWAY[1..]);
    }
    let stages = &STATES_AWAY[..1];
    let as_it_is = || go_down(Descent::new(context, from.early.clone(), offload, stages[0]), stages);
    let [least, other] = [in_segments(&[], stages), as_it_is()];
    if (least.live_bytes, least.seconds) <= (other.live_bytes, other.seconds) { least } else { other }
}

/// Goes down a share at a time, in as many stages as there are, and leaves room to packing where there is any.
fn go_down(mut descent: Descent<'_>, stages: &[Stage]) -> Point {
    let mut least = (descent.schedule.clone(), descent.simulation.clone());
    for &stage in stages {
        descent.stage = stage;
        loop {
            let peak = descent.simulation.peak() as i64;
            let reached = descent.reach(peak - (peak / TARGET_SHARE).max(1));
            if descent.simulation.peak() < least.1.peak() {
                least = (descent.schedule.clone(), descent.simulation.clone());
            }
            if !reached {
                break;
            }
        }
    }
    (descent.schedule, descent.simulation) = least;
    let peak = descent.simulation.peak() as i64;
    descent.take_back(peak - peak / ROOM_FOR_PACKING);
    descent.point()
}

/// Which states are on the host where a descent begins: a share of those that are used but once a step, as optimizers'
/// slots are, then all of these, then all states. Each is the best for some budgets: what is on the host takes its time on the
/// lanes, what is not takes room in which values could be kept.
fn states_to_send_away(context: &SearchContext<'_>, schedule: &Schedule) -> Vec<Vec<BufferIndex>> {
    let states = (0..context.work.buffers.len() as BufferIndex).filter(|&buffer| {
        let of = &context.work.buffers[buffer as usize];
        // Where inputs of the next step arrive has to be there all the time.
        of.keep == Keep::Always && of.home == Home::Device && of.role != Role::Input
    });
    let uses = |state: BufferIndex| &schedule.instances[state as usize].uses;
    let (mut once, often): (Vec<_>, Vec<_>) = states.partition(|&state| uses(state).len() == 1);
    once.sort_by_key(|&state| schedule.span(state));
    // Those of one launch go together, and launches take turns, so that lanes are as busy early as late.
    let launches: Vec<&[BufferIndex]> = once.chunk_by(|&a, &b| uses(a)[..] == uses(b)[..]).collect();
    let goes =
        |launch: usize, share: usize| launch * share / SHARES_AWAY < (launch + 1) * share / SHARES_AWAY;
    let shares = (1..=SHARES_AWAY).map(|share| {
        let going = launches.iter().enumerate().filter(|&(launch, _)| goes(launch, share));
        going.flat_map(|(_, states)| states.iter().copied()).collect()
    });
    let all = once.iter().chain(&often).copied().collect();
    shares.chain([all]).collect()
}

//! Which of a plan's steps run beside each other.
//!
//! A plan is an order, and a step in it mostly needs only some of those before. On a large device a small kernel leaves
//! most of the processors idle, so steps that do not touch the same bytes are put on lanes that run side by side. What
//! orders two steps is addresses alone: one writes what the other reads or writes. So a plan's reuse of memory is
//! honoured as well as its data flow, and results are the same bits as one after another.

use std::collections::BTreeMap;
use std::ops::Range;

/// How many lanes kernels run on; copies to the device and to the host have one each beside them. More were not faster for
/// any model that was tried, and each takes the host a few microseconds when a graph is launched.
pub(crate) const KERNELS: usize = 2;
/// All lanes.
pub(crate) const LANES: usize = KERNELS + 2;

/// What a step touches.
#[derive(Debug, Default, Clone)]
pub(crate) struct Access {
    pub(crate) reads: Vec<Range<u64>>,
    pub(crate) writes: Vec<Range<u64>>,
    /// The lane that it must be on, if that is not its own choice.
    pub(crate) lane: Option<usize>,
}

/// Where a step runs, and which steps on other lanes must have ended before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) lane: usize,
    pub(crate) waits: Vec<usize>,
}

/// Puts steps on lanes, in their order.
pub(crate) fn place(steps: &[Access]) -> Vec<Placed> {
    let mut touched = Touched::default();
    let mut lanes = [Lane::default(); LANES];
    // What was known to have ended when each step began, itself included.
    let mut known: Vec<[usize; LANES]> = Vec::with_capacity(steps.len());
    let mut placed: Vec<Placed> = Vec::with_capacity(steps.len());
    for (number, step) in steps.iter().enumerate() {
        let needed = touched.needed(number, step);
        let lane = step.lane.unwrap_or_else(|| choose(&lanes, &needed, &placed));
        let mut now = lanes[lane].ended;
        let mut waits = vec![];
        // The latest first: what it waited for need not be waited for again.
        for &before in needed.iter().rev() {
            if now[placed[before].lane] > before {
                continue;
            }
            waits.push(before);
            now.iter_mut().zip(known[before]).for_each(|(now, known)| *now = (*now).max(known));
        }
        now[lane] = number + 1;
        lanes[lane] = Lane { ended: now, last: Some(number) };
        known.push(now);
        placed.push(Placed { lane, waits });
    }
    placed
}

/// For each step, the latest before it that it cannot change places with: one of the two writes what the other touches.
pub(crate) fn latest_needed(steps: &[Access]) -> Vec<Option<usize>> {
    let mut touched = Touched::default();
    steps.iter().enumerate().map(|(number, step)| touched.needed(number, step).pop()).collect()
}

/// A lane while steps are put on it.
#[derive(Clone, Copy, Default)]
struct Lane {
    /// Of each lane, the steps of lower numbers than this have ended when the next begins.
    ended: [usize; LANES],
    last: Option<usize>,
}

/// The lane that ends with the latest of what is needed; else the one that has been left alone longest.
fn choose(lanes: &[Lane; LANES], needed: &[usize], placed: &[Placed]) -> usize {
    let ends_there = |&&before: &&usize| {
        let lane = placed[before].lane;
        lane < KERNELS && lanes[lane].last == Some(before)
    };
    match needed.iter().rev().find(ends_there) {
        Some(&before) => placed[before].lane,
        None => (0..KERNELS).min_by_key(|&lane| lanes[lane].last.map_or(0, |last| last + 1)).unwrap_or(0),
    }
}

/// Who has touched which bytes last: pieces by their beginning, which do not overlap.
#[derive(Default)]
struct Touched {
    pieces: BTreeMap<u64, Piece>,
}

#[derive(Clone)]
struct Piece {
    end: u64,
    writer: Option<usize>,
    readers: Vec<usize>,
}

impl Touched {
    /// The steps that a step comes after, in their order; notes what it touches.
    fn needed(&mut self, number: usize, step: &Access) -> Vec<usize> {
        let mut needed = vec![];
        for range in &step.reads {
            self.each(range, |piece| {
                needed.extend(piece.writer);
                piece.readers.push(number);
            });
        }
        for range in &step.writes {
            self.each(range, |piece| {
                needed.extend(piece.writer);
                needed.append(&mut piece.readers);
                piece.writer = Some(number);
            });
        }
        needed.retain(|&before| before != number);
        needed.sort_unstable();
        needed.dedup();
        needed
    }

    /// Visits the pieces of a range, which are cut at its ends and made where there are none.
    fn each(&mut self, range: &Range<u64>, mut visit: impl FnMut(&mut Piece)) {
        if range.is_empty() {
            return;
        }
        self.cut(range.start);
        self.cut(range.end);
        let mut gaps = vec![];
        let mut at = range.start;
        for (&start, piece) in self.pieces.range_mut(range.clone()) {
            if at < start {
                gaps.push(at..start);
            }
            at = piece.end;
            visit(piece);
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        for gap in gaps {
            let mut piece = Piece { end: gap.end, writer: None, readers: vec![] };
            visit(&mut piece);
            self.pieces.insert(gap.start, piece);
        }
    }

    /// Cuts the piece that an address is inside of.
    fn cut(&mut self, at: u64) {
        let Some((_, piece)) = self.pieces.range_mut(..at).next_back() else { return };
        if piece.end > at {
            let rest = piece.clone();
            piece.end = at;
            self.pieces.insert(at, rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn access(read: Option<Range<u64>>, write: Range<u64>) -> Access {
        Access { reads: read.into_iter().collect(), writes: vec![write], lane: None }
    }

    #[test]
    fn a_chain_stays_on_one_lane_and_waits_for_nothing() {
        let chain: Vec<Access> = (0..5).map(|i| access(Some(i..i + 1), i + 1..i + 2)).collect();
        for placed in place(&chain) {
            assert_eq!(placed, Placed { lane: 0, waits: vec![] });
        }
    }

    #[test]
    fn what_shares_no_bytes_runs_beside_each_other_and_is_waited_for_once() {
        let steps =
            [access(None, 0..4), access(None, 4..8), access(Some(2..6), 8..9), access(Some(4..5), 9..10)];
        let placed = place(&steps);
        assert_ne!(placed[0].lane, placed[1].lane);
        assert_eq!(placed[2].waits.len(), 1, "one of the two is on its own lane");
    }

    fn ranges() -> impl Strategy<Value = Vec<Range<u64>>> {
        prop::collection::vec((0..40u64, 0..12u64).prop_map(|(start, bytes)| start..start + bytes), 0..3)
    }

    proptest! {
        /// What is before what follows from lanes and waits alone, and holds for all steps that must not be exchanged.
        #[test]
        fn steps_that_touch_the_same_bytes_keep_their_order(
            steps in prop::collection::vec((ranges(), ranges(), prop::option::of(KERNELS..LANES)), 1..40),
        ) {
            let steps: Vec<Access> =
                steps.into_iter().map(|(reads, writes, lane)| Access { reads, writes, lane }).collect();
            let placed = place(&steps);
            let mut before = vec![vec![false; steps.len()]; steps.len()];
            for (number, here) in placed.iter().enumerate() {
                prop_assert_eq!(here.lane, steps[number].lane.unwrap_or(here.lane));
                prop_assert!(steps[number].lane.is_some() || here.lane < KERNELS);
                let on_lane = (0..number).rev().find(|&other| placed[other].lane == here.lane);
                for &direct in here.waits.iter().chain(&on_lane) {
                    let known = before[direct].clone();
                    before[number].iter_mut().zip(known).for_each(|(here, there)| *here |= there);
                    before[number][direct] = true;
                }
                let overlap = |a: &[Range<u64>], b: &[Range<u64>]| {
                    a.iter().any(|a| b.iter().any(|b| a.start.max(b.start) < a.end.min(b.end)))
                };
                for (other, there) in steps[..number].iter().enumerate() {
                    let here = &steps[number];
                    let ordered = overlap(&here.reads, &there.writes)
                        || overlap(&here.writes, &there.reads)
                        || overlap(&here.writes, &there.writes);
                    prop_assert!(!ordered || before[number][other], "{} must follow {}", number, other);
                }
            }
        }
    }
}

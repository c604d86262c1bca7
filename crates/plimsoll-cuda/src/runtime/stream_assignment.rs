//! Which stream each launch of a plan is captured on.
//!
//! A plan is a total order, but a launch mostly depends on only a few of those before it. On a large device a small kernel
//! leaves most multiprocessors idle, so launches without conflicts are put on streams that run side by side. Two launches
//! conflict if one writes bytes that the other reads or writes: addresses alone decide. So a plan's reuse of memory is
//! honoured as well as its data flow, and results have the same bits as in the plan's order.

use std::collections::BTreeMap;
use std::ops::Range;

/// How many streams kernels run on; copies to the device and to the host have one each beside them. More were not faster
/// for any model that was measured, and each costs the host a few microseconds when a graph is launched.
pub(crate) const KERNEL_STREAMS: usize = 2;
/// All streams.
pub(crate) const STREAMS: usize = KERNEL_STREAMS + 2;

/// The memory that a launch reads and writes.
#[derive(Debug, Default, Clone)]
pub(crate) struct Access {
    pub(crate) reads: Vec<Range<u64>>,
    pub(crate) writes: Vec<Range<u64>>,
    /// The stream that it must be on, if it must be on one.
    pub(crate) stream: Option<usize>,
}

/// The stream that a launch is on, and the launches on other streams that it waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) stream: usize,
    pub(crate) waits: Vec<usize>,
}

/// Assigns launches to streams, in the plan's order.
pub(crate) fn assign(steps: &[Access]) -> Vec<Assignment> {
    let mut touched = Touched::default();
    let mut streams = [StreamState::default(); STREAMS];
    // For each launch, what has ended on every stream when it has.
    let mut known: Vec<[usize; STREAMS]> = Vec::with_capacity(steps.len());
    let mut placed: Vec<Assignment> = Vec::with_capacity(steps.len());
    for (number, step) in steps.iter().enumerate() {
        let needed = touched.needed(number, step);
        let stream = step.stream.unwrap_or_else(|| choose(&streams, &needed, &placed));
        let mut now = streams[stream].ended;
        let mut waits = vec![];
        // The latest first: what that one waited for need not be waited for again.
        for &before in needed.iter().rev() {
            if now[placed[before].stream] > before {
                continue;
            }
            waits.push(before);
            now.iter_mut().zip(known[before]).for_each(|(now, known)| *now = (*now).max(known));
        }
        now[stream] = number + 1;
        streams[stream] = StreamState { ended: now, last: Some(number) };
        known.push(now);
        placed.push(Assignment { stream, waits });
    }
    placed
}

/// For each launch, the latest before it that it conflicts with.
pub(crate) fn latest_needed(steps: &[Access]) -> Vec<Option<usize>> {
    let mut touched = Touched::default();
    steps.iter().enumerate().map(|(number, step)| touched.needed(number, step).pop()).collect()
}

/// A stream while launches are assigned to it.
#[derive(Clone, Copy, Default)]
struct StreamState {
    /// Of each stream, the launches below this number have ended when the next one here begins.
    ended: [usize; STREAMS],
    last: Option<usize>,
}

/// The stream whose last launch is the latest that is needed, if there is one; else the stream that was used least recently.
fn choose(streams: &[StreamState; STREAMS], needed: &[usize], placed: &[Assignment]) -> usize {
    let ends_there = |&&before: &&usize| {
        let stream = placed[before].stream;
        stream < KERNEL_STREAMS && streams[stream].last == Some(before)
    };
    match needed.iter().rev().find(ends_there) {
        Some(&before) => placed[before].stream,
        None => (0..KERNEL_STREAMS)
            .min_by_key(|&stream| streams[stream].last.map_or(0, |last| last + 1))
            .unwrap_or(0),
    }
}

/// The last writer and readers of all bytes: disjoint pieces by their beginning.
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
    /// The launches that a launch conflicts with, in order; records what it reads and writes.
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

    /// Visits the pieces of a range: pieces are split at its ends, and new ones fill its gaps.
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

    /// Splits the piece that an address is inside of.
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
        Access { reads: read.into_iter().collect(), writes: vec![write], stream: None }
    }

    #[test]
    fn a_chain_stays_on_one_stream_and_waits_for_nothing() {
        let chain: Vec<Access> = (0..5).map(|i| access(Some(i..i + 1), i + 1..i + 2)).collect();
        for placed in assign(&chain) {
            assert_eq!(placed, Assignment { stream: 0, waits: vec![] });
        }
    }

    #[test]
    fn what_shares_no_bytes_runs_beside_each_other_and_is_waited_for_once() {
        let steps =
            [access(None, 0..4), access(None, 4..8), access(Some(2..6), 8..9), access(Some(4..5), 9..10)];
        let placed = assign(&steps);
        assert_ne!(placed[0].stream, placed[1].stream);
        assert_eq!(placed[2].waits.len(), 1, "one of the two is on its own stream");
    }

    fn ranges() -> impl Strategy<Value = Vec<Range<u64>>> {
        prop::collection::vec((0..40u64, 0..12u64).prop_map(|(start, bytes)| start..start + bytes), 0..3)
    }

    proptest! {
        /// Order follows from streams and waits alone, and must hold for all launches that conflict.
        #[test]
        fn launches_that_conflict_keep_their_order(
            steps in prop::collection::vec((ranges(), ranges(), prop::option::of(KERNEL_STREAMS..STREAMS)), 1..40),
        ) {
            let steps: Vec<Access> =
                steps.into_iter().map(|(reads, writes, stream)| Access { reads, writes, stream }).collect();
            let placed = assign(&steps);
            let mut before = vec![vec![false; steps.len()]; steps.len()];
            for (number, here) in placed.iter().enumerate() {
                prop_assert_eq!(here.stream, steps[number].stream.unwrap_or(here.stream));
                prop_assert!(steps[number].stream.is_some() || here.stream < KERNEL_STREAMS);
                let on_stream = (0..number).rev().find(|&other| placed[other].stream == here.stream);
                for &direct in here.waits.iter().chain(&on_stream) {
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

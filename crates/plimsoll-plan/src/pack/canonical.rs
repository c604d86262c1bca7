//! Canonical depth-first search: a proof or a packing, given enough steps.
//!
//! Any packing can be pushed down until each item rests on another or on the floor, and then built from the
//! bottom up, in order of offset and, among equals, of rank. So it is enough to try, at each node, the items
//! that could be next in that order, each at the lowest offset that those below leave open to it: its *floor*.
//! The idea and most of the pruning are those of MiniMalloc (Moffitt, ASPLOS 2023):
//!
//! * *Dominance.* Nothing is placed at or above the lowest end that a waiting item could have: that item could
//!   sink into the gap.
//! * *Twins.* Of items alike in span and size the first by rank is lower, and of two with the same span that lie
//!   directly on each other the larger is.
//! * *Order.* An item that was passed over can only come back on top of another that is still waiting, which
//!   raises its floor.
//! * *Load.* In each section the waiting items whose floors are at least `f` need all of their bytes above `f`.
//! * *Decomposition.* When no waiting item spans two sections any more, the two sides are solved apart.
//! * *Jumps.* A dead end is blamed on the span of time that its proof looked at. Placements elsewhere in time
//!   are not to blame and are undone without trying their alternatives. As those might have let an item that
//!   reaches into the span lie lower, a search that jumps can miss packings; it is not taken as a proof.

use std::collections::HashMap;

use super::part::{Part, Span};

/// What became of a search.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Offsets of no more than the capacity.
    Packed(Vec<u64>),
    /// There are none.
    Impossible,
    /// The steps ran out, or a search that jumps found nothing.
    Unknown,
}

/// How a search goes about it.
pub(super) struct Setup<'a> {
    pub(super) capacity: u64,
    /// The items, best first.
    pub(super) ranked: &'a [u32],
    /// Whether dead ends undo all that is not to blame: faster, but no proof.
    pub(super) jumps: bool,
    /// How many waiting items may be looked at.
    pub(super) steps: u64,
    /// Asked now and then; the search ends when it says so.
    pub(super) stop: &'a (dyn Fn() -> bool + Sync),
}

/// Searches for a packing of `part` within the setup's capacity. Also returns the steps taken.
pub(super) fn search(part: &Part, setup: &Setup<'_>) -> (Verdict, u64) {
    let mut search = Search::new(part, setup);
    let waiting: Vec<Waiting> = (0..part.len() as u32).map(|item| Waiting { floor: 0, item }).collect();
    let whole = Span { lower: 0, upper: part.live.len() as u32 };
    let outcome = search.solve(&waiting, whole, Last { offset: 0, item: 0 });
    let verdict = match outcome {
        Outcome::Packed => {
            let mut offsets = vec![0; part.len()];
            for (&index, offset) in setup.ranked.iter().zip(search.offsets) {
                offsets[index as usize] = offset;
            }
            Verdict::Packed(offsets)
        }
        Outcome::Dead { .. } if !setup.jumps => Verdict::Impossible,
        Outcome::Dead { .. } | Outcome::Stopped => Verdict::Unknown,
    };
    (verdict, search.steps)
}

#[derive(Clone, Copy)]
enum Outcome {
    Packed,
    /// No packing; `blame` is the span of time that shows it.
    Dead {
        blame: Span,
    },
    Stopped,
}

/// An item without a place. Items are known by their rank.
#[derive(Clone, Copy)]
struct Waiting {
    /// The lowest offset that is open to it.
    floor: u64,
    item: u32,
}

/// The latest placement: what comes next is at a higher offset, or at the same one with a higher rank.
#[derive(Clone, Copy)]
struct Last {
    offset: u64,
    item: u32,
}

impl Waiting {
    /// Whether the item had its turn and was not taken.
    fn passed_over(self, last: Last) -> bool {
        (self.floor, self.item) < (last.offset, last.item)
    }
}

const NONE: u32 = u32::MAX;
/// The hull of nothing.
const NOWHERE: Span = Span { lower: u32::MAX, upper: 0 };
/// How many placements are tried between two looks at whether to stop.
const POLL: u64 = 512;

struct Search<'a> {
    setup: &'a Setup<'a>,
    spans: Vec<Span>,
    sizes: Vec<u64>,
    /// Items with one span are of one class.
    class: Vec<u32>,
    /// The item before this one with the same span and size.
    twin: Vec<u32>,

    offsets: Vec<u64>,
    placed: Vec<bool>,
    /// The highest item of each class.
    highest: Vec<u32>,
    /// Placements, each with the highest item of its class before it.
    trail: Vec<(u32, u32)>,
    /// Why each item was passed over.
    blame: Vec<Span>,

    steps: u64,
    tried: u64,
    /// Scratch, kept so that trying a placement allocates nothing.
    load: Vec<u64>,
    reach: Vec<u32>,
    raised: Vec<Waiting>,
    spare: Vec<Vec<Waiting>>,
}

impl<'a> Search<'a> {
    fn new(part: &Part, setup: &'a Setup<'a>) -> Self {
        let spans: Vec<Span> = setup.ranked.iter().map(|&index| part.spans[index as usize]).collect();
        let sizes: Vec<u64> = setup.ranked.iter().map(|&index| part.sizes[index as usize]).collect();
        let (mut classes, mut twins) = (HashMap::new(), HashMap::new());
        let (mut class, mut twin) = (Vec::new(), Vec::new());
        for (item, (&span, &size)) in (0..).zip(spans.iter().zip(&sizes)) {
            let next = classes.len() as u32;
            class.push(*classes.entry(span).or_insert(next));
            twin.push(twins.insert((span, size), item).unwrap_or(NONE));
        }
        let count = spans.len();
        Self {
            setup,
            spans,
            sizes,
            class,
            twin,
            offsets: vec![0; count],
            placed: vec![false; count],
            highest: vec![NONE; classes.len()],
            trail: Vec::with_capacity(count),
            blame: vec![Span { lower: 0, upper: 0 }; count],
            steps: 0,
            tried: 0,
            load: vec![0; part.live.len()],
            reach: vec![0; part.live.len()],
            raised: Vec::new(),
            spare: Vec::new(),
        }
    }

    fn span(&self, item: u32) -> Span {
        self.spans[item as usize]
    }

    fn size(&self, item: u32) -> u64 {
        self.sizes[item as usize]
    }

    /// Places all of `waiting`, which is sorted by floor and lies within `sections`.
    fn solve(&mut self, waiting: &[Waiting], sections: Span, last: Last) -> Outcome {
        if waiting.is_empty() {
            return Outcome::Packed;
        }
        let (candidates, mut blame) = self.candidates(waiting, last);
        let load = self.load_of(waiting, sections);
        for next in candidates {
            self.steps += waiting.len() as u64;
            self.tried += 1;
            if self.steps > self.setup.steps || (self.tried.is_multiple_of(POLL) && (self.setup.stop)()) {
                return Outcome::Stopped;
            }
            let span = self.span(next.item);
            let mark = self.trail.len();
            // Whatever else waits in a section of this item will lie above it.
            let room = self.setup.capacity.saturating_sub(next.floor);
            let full = span.range().find(|&section| load[section - sections.lower as usize] > room);
            let outcome = match full {
                Some(section) => Outcome::Dead { blame: self.hull_in(waiting, section as u32) },
                None => self.place(waiting, sections, next),
            };
            match outcome {
                Outcome::Packed | Outcome::Stopped => return outcome,
                Outcome::Dead { blame: cause } => {
                    self.undo(mark);
                    if self.setup.jumps && !cause.meets(span) {
                        return outcome;
                    }
                    self.blame[next.item as usize] = cause;
                    blame = blame.hull(cause).hull(span);
                }
            }
        }
        Outcome::Dead { blame }
    }

    /// The items that could be next, in the order to try them, and the blame for those that could not.
    fn candidates(&self, waiting: &[Waiting], last: Last) -> (Vec<Waiting>, Span) {
        let mut candidates = Vec::new();
        let mut blame = NOWHERE;
        let mut lowest_end = u64::MAX;
        for one in waiting {
            if one.floor >= lowest_end {
                break;
            }
            lowest_end = lowest_end.min(one.floor + self.size(one.item));
        }
        for one in waiting.iter().take_while(|one| one.floor < lowest_end) {
            if one.passed_over(last) {
                blame = blame.hull(self.span(one.item)).hull(self.blame[one.item as usize]);
            } else if self.out_of_turn(*one) {
                blame = blame.hull(self.span(one.item));
            } else {
                candidates.push(*one);
            }
        }
        candidates.sort_unstable_by_key(|one| (one.floor, one.item));
        (candidates, blame)
    }

    /// Whether an item like this one should be placed first, or should have been.
    fn out_of_turn(&self, one: Waiting) -> bool {
        let twin = self.twin[one.item as usize];
        if twin != NONE && !self.placed[twin as usize] {
            return true;
        }
        let below = self.highest[self.class[one.item as usize] as usize];
        below != NONE
            && self.offsets[below as usize] + self.size(below) == one.floor
            && self.size(below) < self.size(one.item)
    }

    /// Places `next` on its floor and then everything else.
    fn place(&mut self, waiting: &[Waiting], sections: Span, next: Waiting) -> Outcome {
        let mut rest = self.spare.pop().unwrap_or_default();
        self.raise(waiting, next, &mut rest);
        let last = Last { offset: next.floor, item: next.item };
        let outcome = match self.check(&rest, sections, last) {
            Err(blame) => Outcome::Dead { blame },
            Ok(()) => {
                let class = self.class[next.item as usize] as usize;
                self.trail.push((next.item, self.highest[class]));
                self.highest[class] = next.item;
                self.placed[next.item as usize] = true;
                self.offsets[next.item as usize] = next.floor;
                self.solve_apart(&rest, sections, last)
            }
        };
        self.spare.push(rest);
        outcome
    }

    /// Solves each side of the cuts that the latest placement made in time.
    fn solve_apart(&mut self, waiting: &[Waiting], sections: Span, last: Last) -> Outcome {
        let mut cuts = self.cuts(waiting, sections, self.span(last.item));
        if cuts.is_empty() {
            return self.solve(waiting, sections, last);
        }
        cuts.push(sections.upper);
        let mut lower = sections.lower;
        for upper in cuts {
            let side = Span { lower, upper };
            let members: Vec<Waiting> =
                waiting.iter().copied().filter(|one| self.span(one.item).meets(side)).collect();
            match self.solve(&members, side, last) {
                Outcome::Packed => lower = upper,
                outcome => return outcome,
            }
        }
        Outcome::Packed
    }

    /// The sections within `span` that no waiting item reaches into from before.
    fn cuts(&mut self, waiting: &[Waiting], sections: Span, span: Span) -> Vec<u32> {
        self.reach[sections.range()].fill(0);
        for one in waiting {
            let Span { lower, upper } = self.span(one.item);
            let reach = &mut self.reach[lower as usize];
            *reach = upper.max(*reach);
        }
        let mut reach = 0;
        let mut cuts = Vec::new();
        for section in sections.lower..span.upper - 1 {
            reach = reach.max(self.reach[section as usize]);
            if section >= span.lower && reach <= section + 1 {
                cuts.push(section + 1);
            }
        }
        cuts
    }

    /// What waits once `next` is placed, still sorted by floor.
    fn raise(&self, waiting: &[Waiting], next: Waiting, rest: &mut Vec<Waiting>) {
        let end = next.floor + self.size(next.item);
        let span = self.span(next.item);
        let (low, high) = waiting.split_at(waiting.partition_point(|one| one.floor < end));
        let others = || low.iter().filter(|one| one.item != next.item);
        rest.clear();
        rest.extend(others().filter(|one| !self.span(one.item).meets(span)));
        let raised = others().filter(|one| self.span(one.item).meets(span));
        rest.extend(raised.map(|one| Waiting { floor: end, item: one.item }));
        rest.extend_from_slice(high);
    }

    /// Whether what waits may still fit, or the blame if it can not: from the highest floor down, the items of
    /// each section are stacked from the floor to the capacity.
    fn check(&mut self, waiting: &[Waiting], sections: Span, last: Last) -> Result<(), Span> {
        let mut raised = std::mem::take(&mut self.raised);
        raised.clear();
        for one in waiting.iter().take_while(|one| one.floor <= last.offset) {
            if one.passed_over(last) {
                let Some(floor) = self.floor_on_another(waiting, *one, last) else {
                    return Err(self.span(one.item).hull(self.blame[one.item as usize]));
                };
                raised.push(Waiting { floor, ..*one });
            }
        }
        raised.sort_unstable_by_key(|one| one.floor);

        self.load[sections.range()].fill(0);
        let mut in_turn = waiting.iter().rev().filter(|one| !one.passed_over(last)).copied().peekable();
        let mut result = Ok(());
        while let Some(one) = match (in_turn.peek(), raised.last()) {
            (Some(one), Some(other)) if other.floor > one.floor => raised.pop(),
            (Some(_), _) => in_turn.next(),
            (None, _) => raised.pop(),
        } {
            let room = self.setup.capacity.saturating_sub(one.floor);
            let (span, size) = (self.span(one.item), self.size(one.item));
            // Branching once for all sections lets this loop, the hottest there is, work on several at a time.
            let mut overflow = 0;
            for load in &mut self.load[span.range()] {
                *load += size;
                overflow |= room.wrapping_sub(*load);
            }
            if overflow.cast_signed() < 0 {
                let full = (span.lower..).zip(&self.load[span.range()]).find(|&(_, &load)| load > room);
                let section = full.map_or(span.lower, |(section, _)| section);
                result = Err(self.blame_for(waiting, last, one.floor, section));
                break;
            }
        }
        self.raised = raised;
        result
    }

    /// The lowest that an item which was passed over can lie: on another that waits too.
    fn floor_on_another(&self, waiting: &[Waiting], one: Waiting, last: Last) -> Option<u64> {
        let span = self.span(one.item);
        let mut lowest = None;
        for other in waiting {
            if lowest.is_some_and(|lowest| other.floor >= lowest) {
                break;
            }
            if other.item != one.item && self.span(other.item).meets(span) {
                let end = other.floor.max(last.offset) + self.size(other.item);
                lowest = Some(lowest.map_or(end, |lowest: u64| lowest.min(end)));
            }
        }
        lowest
    }

    /// The span of time that decided that the items of `section` with at least this floor do not fit.
    fn blame_for(&self, waiting: &[Waiting], last: Last, floor: u64, section: u32) -> Span {
        let mut blame = Span { lower: section, upper: section + 1 };
        for one in waiting.iter().filter(|one| self.span(one.item).contains(section)) {
            let span = self.span(one.item);
            if one.passed_over(last) {
                // Its floor follows from those of all that it meets.
                let met = waiting.iter().map(|other| self.span(other.item)).filter(|other| other.meets(span));
                blame = met.fold(blame.hull(self.blame[one.item as usize]), Span::hull);
            } else if one.floor >= floor {
                blame = blame.hull(span);
            }
        }
        blame
    }

    /// The hull of all items that wait in a section.
    fn hull_in(&self, waiting: &[Waiting], section: u32) -> Span {
        let spans = waiting.iter().map(|one| self.span(one.item));
        spans.filter(|span| span.contains(section)).fold(NOWHERE, Span::hull)
    }

    /// The bytes that wait in each section.
    fn load_of(&self, waiting: &[Waiting], sections: Span) -> Vec<u64> {
        let mut load = vec![0; sections.len() as usize];
        for one in waiting {
            let Span { lower, upper } = self.span(one.item);
            for load in &mut load[(lower - sections.lower) as usize..(upper - sections.lower) as usize] {
                *load += self.size(one.item);
            }
        }
        load
    }

    /// Takes back all placements but the first `mark`.
    fn undo(&mut self, mark: usize) {
        for (item, below) in self.trail.drain(mark..).rev() {
            self.placed[item as usize] = false;
            self.highest[self.class[item as usize] as usize] = below;
        }
    }
}

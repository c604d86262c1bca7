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
//! * *Jumps.* A dead end is blamed on the placed items that hold up what does not fit. All other placements since
//!   the last of these, most of them elsewhere in time, are undone without trying their alternatives. Why an
//!   item was not to be placed yet (dominance, twins) is left out of the blame, so a search that jumps can miss
//!   packings. If it finds none, another that does not jump has to prove that there are none.

use std::collections::HashMap;

use super::item_set::ItemSet;
use super::part::{Part, Span};

/// What became of a search.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Offsets of no more than the capacity.
    Packed(Vec<u64>),
    /// There are none.
    Impossible,
    /// The steps ran out.
    Unknown,
}

/// How a search goes about it.
pub(super) struct Setup<'a> {
    pub(super) capacity: u64,
    /// The items, best first.
    pub(super) ranked: &'a [u32],
    /// How many waiting items may be looked at.
    pub(super) steps: u64,
    /// Asked now and then; the search ends when it says so.
    pub(super) stop: &'a (dyn Fn() -> bool + Sync),
}

/// What a search found out.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) verdict: Verdict,
    /// How many waiting items were looked at.
    pub(super) steps: u64,
    /// At how many dead ends each item of the part waited in the section that was too full.
    pub(super) trouble: Vec<u64>,
}

/// Searches for a packing of `part` within the setup's capacity.
pub(super) fn search(part: &Part, setup: &Setup<'_>) -> Report {
    let mut search = Search::new(part, setup);
    let ground = part.len() as u32;
    let waiting: Vec<Waiting> = (0..ground).map(|item| Waiting { floor: 0, item, on: ground }).collect();
    let whole = Span { lower: 0, upper: part.live.len() as u32 };
    let nothing = Last { offset: 0, item: 0 };
    let mut outcome = search.solve(&waiting, whole, nothing);
    if matches!(outcome, Outcome::Dead) {
        search.jumps = false;
        search.load.clone_from(&part.live);
        outcome = search.solve(&waiting, whole, nothing);
    }
    let verdict = match outcome {
        Outcome::Packed => Verdict::Packed(by_index(setup.ranked, &search.offsets)),
        Outcome::Dead => Verdict::Impossible,
        Outcome::Stopped => Verdict::Unknown,
    };
    Report { verdict, steps: search.steps, trouble: by_index(setup.ranked, &search.trouble) }
}

/// What is known by rank, in the order of the part's items.
fn by_index(ranked: &[u32], values: &[u64]) -> Vec<u64> {
    let mut sorted = vec![0; ranked.len()];
    for (&index, &value) in ranked.iter().zip(values) {
        sorted[index as usize] = value;
    }
    sorted
}

#[derive(Clone, Copy)]
enum Outcome {
    Packed,
    /// No packing. If the search jumps, `Search::culprits` are to blame.
    Dead,
    Stopped,
}

/// An item without a place. Items are known by their rank.
#[derive(Clone, Copy)]
struct Waiting {
    /// The lowest offset that is open to it.
    floor: u64,
    item: u32,
    /// The placed item that it would lie on. The ground counts as one more item, placed before all others.
    on: u32,
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
/// How many placements are tried between two looks at whether to stop.
const POLL: u64 = 512;

struct Search<'a> {
    setup: &'a Setup<'a>,
    /// Whether dead ends undo all that is not to blame.
    jumps: bool,
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
    /// The placed items that are to blame for the latest dead end.
    culprits: ItemSet,
    /// Those that were to blame when each item was passed over.
    blame: Vec<ItemSet>,
    trouble: Vec<u64>,
    /// The bytes of each section that were stacked by `may_fit`: if all fits, those that wait.
    load: Vec<u64>,

    steps: u64,
    tried: u64,
    /// Scratch, kept so that trying a placement allocates nothing.
    reach: Vec<u32>,
    raised: Vec<Waiting>,
    tall: Vec<u32>,
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
            jumps: true,
            spans,
            sizes,
            class,
            twin,
            offsets: vec![0; count],
            placed: vec![false; count],
            highest: vec![NONE; classes.len()],
            trail: Vec::with_capacity(count),
            culprits: ItemSet::new(count + 1),
            blame: vec![ItemSet::new(count + 1); count],
            trouble: vec![0; count],
            load: part.live.clone(),
            steps: 0,
            tried: 0,
            reach: vec![0; part.live.len()],
            raised: Vec::new(),
            tall: Vec::new(),
            spare: Vec::new(),
        }
    }

    fn span(&self, item: u32) -> Span {
        self.spans[item as usize]
    }

    fn size(&self, item: u32) -> u64 {
        self.sizes[item as usize]
    }

    /// Places all of `waiting`, which is sorted by floor and lies within `sections`. `load` is what waits in each.
    fn solve(&mut self, waiting: &[Waiting], sections: Span, last: Last) -> Outcome {
        if waiting.is_empty() {
            return Outcome::Packed;
        }
        let (candidates, mut culprits) = self.candidates(waiting, last);
        let load = self.load[sections.range()].to_vec();
        for next in candidates {
            self.steps += waiting.len() as u64;
            self.tried += 1;
            if self.steps > self.setup.steps || (self.tried.is_multiple_of(POLL) && (self.setup.stop)()) {
                return Outcome::Stopped;
            }
            let mark = self.trail.len();
            // Whatever else waits in a section of this item will lie above it.
            let room = self.setup.capacity.saturating_sub(next.floor);
            let mut span = self.span(next.item).range();
            let outcome = match span.find(|&section| load[section - sections.lower as usize] > room) {
                Some(section) => {
                    let last = Last { offset: next.floor, item: next.item };
                    self.blame_for(waiting, &[], last, next.floor, section as u32);
                    self.culprits.insert(next.item);
                    Outcome::Dead
                }
                None => self.place(waiting, sections, next),
            };
            match outcome {
                Outcome::Packed | Outcome::Stopped => return outcome,
                Outcome::Dead => self.undo(mark),
            }
            if self.jumps {
                if !self.culprits.contains(next.item) {
                    return outcome;
                }
                // It lay as low as what holds it up allowed.
                self.culprits.remove(next.item);
                self.culprits.insert(next.on);
                culprits.join(&self.culprits);
                self.blame[next.item as usize].copy(&self.culprits);
            }
        }
        self.culprits = culprits;
        Outcome::Dead
    }

    /// The items that could be next, in the order to try them, and what is to blame for those that could not.
    fn candidates(&self, waiting: &[Waiting], last: Last) -> (Vec<Waiting>, ItemSet) {
        let mut candidates = Vec::new();
        let mut culprits = ItemSet::new(self.spans.len() + 1);
        let mut lowest_end = u64::MAX;
        for one in waiting {
            if one.floor >= lowest_end {
                break;
            }
            lowest_end = lowest_end.min(one.floor + self.size(one.item));
        }
        for one in waiting.iter().take_while(|one| one.floor < lowest_end) {
            let passed_over = one.passed_over(last);
            if !passed_over && !self.out_of_turn(*one) {
                candidates.push(*one);
                continue;
            }
            culprits.insert(one.on);
            if passed_over {
                culprits.join(&self.blame[one.item as usize]);
            }
        }
        candidates.sort_unstable_by_key(|one| (one.floor, one.item));
        (candidates, culprits)
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
        let outcome = if self.may_fit(&rest, sections, last) {
            let class = self.class[next.item as usize] as usize;
            self.trail.push((next.item, self.highest[class]));
            self.highest[class] = next.item;
            self.placed[next.item as usize] = true;
            self.offsets[next.item as usize] = next.floor;
            self.solve_apart(&rest, sections, last)
        } else {
            Outcome::Dead
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
        rest.extend(raised.map(|one| Waiting { floor: end, item: one.item, on: next.item }));
        rest.extend_from_slice(high);
    }

    /// Whether what waits may still fit: from the highest floor down, the items of each section are stacked from
    /// the floor to the capacity.
    fn may_fit(&mut self, waiting: &[Waiting], sections: Span, last: Last) -> bool {
        let mut raised = std::mem::take(&mut self.raised);
        raised.clear();
        for one in waiting.iter().take_while(|one| one.floor <= last.offset) {
            if one.passed_over(last) {
                let Some(floor) = self.floor_on_another(waiting, *one, last) else {
                    self.raised = raised;
                    self.culprits.clear();
                    self.blame_passing_over(*one);
                    return false;
                };
                raised.push(Waiting { floor, ..*one });
            }
        }
        raised.sort_unstable_by_key(|one| one.floor);

        self.load[sections.range()].fill(0);
        let mut in_turn = waiting.iter().rev().filter(|one| !one.passed_over(last)).copied().peekable();
        let mut fits = true;
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
                self.blame_for(waiting, &raised, last, one.floor, section);
                fits = false;
                break;
            }
        }
        self.raised = raised;
        fits
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

    /// Blames a dead end on what keeps so many items of `section` at or above `floor` that they do not fit. Those
    /// of `exempt` were passed over too, but are not among them.
    fn blame_for(&mut self, waiting: &[Waiting], exempt: &[Waiting], last: Last, floor: u64, section: u32) {
        if !self.jumps {
            return;
        }
        self.culprits.clear();
        self.tall.clear();
        let placed = self.trail.iter().map(|&(item, _)| item);
        self.tall
            .extend(placed.filter(|&item| self.offsets[item as usize] + self.sizes[item as usize] >= floor));
        for one in waiting {
            let span = self.span(one.item);
            if !span.contains(section) {
                continue;
            }
            self.trouble[one.item as usize] += 1;
            if one.floor >= floor {
                // The earliest placement that is reason enough lets the search jump the farthest.
                let first = self.tall.iter().copied().find(|&item| self.span(item).meets(span));
                self.culprits.insert(first.unwrap_or(one.on));
            } else if one.passed_over(last) && !exempt.iter().any(|other| other.item == one.item) {
                self.blame_passing_over(*one);
            }
        }
    }

    /// Adds what was to blame for passing over an item to the culprits.
    fn blame_passing_over(&mut self, one: Waiting) {
        self.culprits.join(&self.blame[one.item as usize]);
        self.culprits.insert(one.on);
    }

    /// Takes back all placements but the first `mark`.
    fn undo(&mut self, mark: usize) {
        for (item, below) in self.trail.drain(mark..).rev() {
            self.placed[item as usize] = false;
            self.highest[self.class[item as usize] as usize] = below;
        }
    }
}

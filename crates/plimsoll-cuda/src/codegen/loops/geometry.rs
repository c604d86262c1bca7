//! Where the elements of a loop are in memory, as expressions over positions.
//!
//! A kernel counts rows, and elements in a row; a loop without rows is one row. Neighbouring axes that are contiguous in
//! all operands are collapsed into one, so that dense operands cost no division.

use super::nest::Nest;
use plimsoll_graph::program::Scalar;

/// The axes of a loop after collapsing, and the strides of each load.
pub(super) struct Geometry {
    /// The extents of the axes before the rows, and of those in a row.
    extents: [Vec<usize>; 2],
    /// For each register that is a load, its offset and strides.
    walks: Vec<Option<Walk>>,
    /// Whether positions need 64 bits.
    pub(super) wide: bool,
    /// The extent of the last axis, where it is left to the launch as [`RUN`].
    pub(super) given: Option<usize>,
}

/// What the extent of the last axis is called where it follows from batch and length.
pub(super) const RUN: &str = "run";

/// The offset and strides of a load.
pub(super) struct Walk {
    offset: usize,
    /// The strides along the axes before the rows, and along those in a row.
    strides: [Vec<usize>; 2],
}

/// Over what a load varies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reach {
    /// Over nothing: one element for the whole loop.
    Loop,
    /// Over rows.
    Row,
    /// Over the elements of a row.
    Element,
}

/// How a thread loads what several neighbouring elements need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadPattern {
    /// One element, broadcast to all.
    Broadcast,
    /// One vector access.
    Vector,
    /// One access for each.
    Scalar,
}

impl Geometry {
    /// The geometry of the loads in `needed`, with this many axes before the rows.
    pub(super) fn new(nest: &Nest, lead: usize, needed: &[bool]) -> Geometry {
        let domain = &nest.body.domain;
        let loads: Vec<(usize, usize, Vec<usize>)> = (0..needed.len())
            .filter(|&register| needed[register])
            .filter_map(|register| match nest.scalar(register) {
                Scalar::Load { read } => {
                    let strides = nest.strides(register, read)[..domain.rank()].to_vec();
                    Some((register, nest.reads[usize::from(read)].view.offset, strides))
                }
                _ => None,
            })
            .collect();
        let join = |axes: std::ops::Range<usize>| {
            let walks: Vec<&[usize]> = loads.iter().map(|load| &load.2[axes.clone()]).collect();
            // Writes are dense, so that they never keep axes apart; those of rows have no axes in the row.
            join(&domain[axes.clone()], &walks)
        };
        let (before, in_row) = (join(0..lead), join(lead..domain.rank()));
        let mut walks: Vec<Option<Walk>> = (0..needed.len()).map(|_| None).collect();
        let mut farthest = domain.elements();
        for (index, (register, offset, strides)) in loads.iter().enumerate() {
            let steps = |joined: &Joined| joined.strides[index].clone();
            walks[*register] = Some(Walk { offset: *offset, strides: [steps(&before), steps(&in_row)] });
            let last: usize = domain.iter().zip(strides).map(|(d, s)| d.saturating_sub(1) * s).sum();
            farthest = farthest.max(offset + last);
        }
        // Half of what 32 bits hold, so that a grid-stride loop over positions does not overflow.
        let wide = farthest >= 1 << 31;
        let given = repeated(&domain[lead..], &in_row).filter(|_| lead == 0);
        Geometry { extents: [before.extents, in_row.extents], walks, wide, given }
    }

    /// The type of positions.
    pub(super) fn index(&self) -> &'static str {
        if self.wide { "u64" } else { "u32" }
    }

    /// A number of the type of positions.
    pub(super) fn number(&self, value: usize) -> String {
        format!("{value}{}", if self.wide { "ull" } else { "u" })
    }

    /// A number that is an extent, or the elements of one.
    fn extent(&self, value: usize) -> String {
        if self.given == Some(value) { format!("(idx){RUN}") } else { self.number(value) }
    }

    /// The extent of a row's last axis.
    pub(super) fn run(&self) -> usize {
        self.extents[1].last().copied().unwrap_or(1)
    }

    /// Whether all of a row is one axis.
    pub(super) fn is_flat(&self) -> bool {
        self.extents[1].len() <= 1
    }

    fn walk(&self, register: usize) -> Option<&Walk> {
        self.walks[register].as_ref()
    }

    /// Over what a load varies.
    pub(super) fn reach(&self, register: usize) -> Reach {
        let moves =
            |part: usize| self.walk(register).is_some_and(|w| w.strides[part].iter().any(|&s| s != 0));
        match (moves(0), moves(1)) {
            (_, true) => Reach::Element,
            (true, false) => Reach::Row,
            (false, false) => Reach::Loop,
        }
    }

    /// Whether a load is the same for every row.
    pub(super) fn is_of_columns(&self, register: usize) -> bool {
        self.walk(register).is_some_and(|walk| walk.strides[0].iter().all(|&step| step == 0))
    }

    /// How a thread loads `width` neighbours of a row whose first is at a multiple of it.
    pub(super) fn access(&self, register: usize, width: usize) -> LoadPattern {
        let Some(walk) = self.walk(register) else { return LoadPattern::Scalar };
        let whole = self.is_flat() || self.run().is_multiple_of(width);
        let step = walk.strides[1].last().copied().unwrap_or(0);
        let others = walk.strides[0].iter().chain(walk.strides[1].iter().rev().skip(1));
        let aligned =
            walk.offset.is_multiple_of(width) && others.into_iter().all(|s| s.is_multiple_of(width));
        match step {
            0 if whole => LoadPattern::Broadcast,
            1 if whole && aligned => LoadPattern::Vector,
            _ => LoadPattern::Scalar,
        }
    }

    /// Whether neighbours along the last axis before the rows are neighbours in memory, and those of a row are not.
    pub(super) fn is_transposed(&self, register: usize) -> bool {
        let last = |part: usize| {
            self.walk(register).and_then(|walk| walk.strides[part].last().copied()).unwrap_or(0)
        };
        last(0) == 1 && last(1) != 1
    }

    /// The extents of the last two axes of a row, if some load's neighbours in memory are those along the last but one.
    pub(super) fn pane(&self) -> Option<[usize; 2]> {
        let [.., down, across] = self.extents[1][..] else { return None };
        let crosses = |walk: &Walk| matches!(walk.strides[1][..], [.., 1, step] if step > 1);
        self.walks.iter().flatten().any(crosses).then_some([down, across])
    }

    /// Where a load's element is, in elements from the beginning of its buffer.
    pub(super) fn position(&self, register: usize, row: &str, at: &str) -> String {
        let Some(walk) = self.walk(register) else { return "0".into() };
        let mut terms = vec![];
        if walk.offset > 0 {
            terms.push(self.number(walk.offset));
        }
        for (part, variable) in [row, at].into_iter().enumerate() {
            // Axes that are contiguous for this load, though not for others.
            let walked = join(&self.extents[part], &[&walk.strides[part]]);
            let mut inner = 1;
            for (&extent, &stride) in walked.extents.iter().zip(&walked.strides[0]).rev() {
                let outermost = inner * extent == self.extents[part].iter().product::<usize>();
                if stride > 0 {
                    terms.push(self.term(variable, inner, (!outermost).then_some(extent), stride));
                }
                inner *= extent;
            }
        }
        if terms.is_empty() { "0".into() } else { terms.join(" + ") }
    }

    /// One axis' part of a position: the index along it, times the stride.
    fn term(&self, variable: &str, inner: usize, extent: Option<usize>, stride: usize) -> String {
        let index = self.digit(variable, inner, extent);
        if stride == 1 { index } else { format!("{index} * {}", self.number(stride)) }
    }

    /// The index along an axis of a position: an axis with `inner` elements after it, and an extent unless it is
    /// the first.
    pub(super) fn digit(&self, variable: &str, inner: usize, extent: Option<usize>) -> String {
        let mut index = variable.to_owned();
        if inner > 1 {
            index = format!("{index} / {}", self.extent(inner));
        }
        if let Some(extent) = extent {
            index = format!("{index} % {}", self.extent(extent));
        }
        if index == variable { index } else { format!("({index})") }
    }
}

struct Joined {
    extents: Vec<usize>,
    /// The strides of each load along the collapsed axes.
    strides: Vec<Vec<usize>>,
}

/// The extent of the last of two axes, if every load is either broadcast along the first or dense, and if it was collapsed
/// from several axes of the domain: one alone is an extent of the model, but several depend on batch and length.
fn repeated(domain: &[usize], joined: &Joined) -> Option<usize> {
    let [_, run] = joined.extents[..] else { return None };
    let several = domain.iter().rev().find(|extent| **extent != 1) != Some(&run);
    let simple = joined.strides.iter().all(|strides| strides[0] == 0 || strides[0] == strides[1] * run);
    (several && simple).then_some(run)
}

/// Collapses axes that are contiguous in all loads, and leaves out axes of one element.
fn join(domain: &[usize], walks: &[&[usize]]) -> Joined {
    let mut joined = Joined { extents: vec![], strides: vec![vec![]; walks.len()] };
    for (axis, &extent) in domain.iter().enumerate().filter(|(_, extent)| **extent != 1) {
        let joins = !joined.extents.is_empty()
            && joined.strides.iter().zip(walks).all(|(s, walk)| s.last() == Some(&(walk[axis] * extent)));
        if joins {
            if let Some(last) = joined.extents.last_mut() {
                *last *= extent;
            }
        } else {
            joined.extents.push(extent);
        }
        for (strides, walk) in joined.strides.iter_mut().zip(walks) {
            if joins {
                strides.pop();
            }
            strides.push(walk[axis]);
        }
    }
    joined
}

//! Problems taken apart in time.
//!
//! Where nothing is alive, time can be cut: what lies before and after never meets, and each part is packed on
//! its own. Within a part only the order of starts and ends matters, so time is counted in *sections*: the
//! moments at which the set of live items is as large as it gets before something ends. Two lifetimes overlap
//! exactly when their spans of sections do.

use crate::packing::Problem;

/// A half-open span of sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) lower: u32,
    pub(super) upper: u32,
}

impl Span {
    pub(super) fn len(self) -> u32 {
        self.upper - self.lower
    }

    pub(super) fn meets(self, other: Self) -> bool {
        self.lower < other.upper && other.lower < self.upper
    }

    pub(super) fn contains(self, section: u32) -> bool {
        self.lower <= section && section < self.upper
    }

    /// The span as indices into what is kept per section.
    pub(super) fn range(self) -> std::ops::Range<usize> {
        self.lower as usize..self.upper as usize
    }
}

/// Items that meet, directly or through others, and none that they do not. Sizes and offsets of a part are
/// counted in units of the problem's alignment, so that no solver has to think of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    /// Which of the problem's items these are, in order of their start.
    pub(super) items: Vec<usize>,
    pub(super) spans: Vec<Span>,
    pub(super) sizes: Vec<u64>,
    /// The sum of the sizes in each section.
    pub(super) live: Vec<u64>,
}

impl Part {
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn lower_bound(&self) -> u64 {
        self.live.iter().copied().max().unwrap_or(0)
    }

    /// The height of a packing of this part.
    pub(super) fn height(&self, offsets: &[u64]) -> u64 {
        offsets.iter().zip(&self.sizes).map(|(offset, size)| offset + size).max().unwrap_or(0)
    }

    fn close(mut self, sections: u32) -> Self {
        self.live = vec![0; sections as usize];
        for (span, size) in self.spans.iter().zip(&self.sizes) {
            let start = &mut self.live[span.lower as usize];
            *start = start.wrapping_add(*size);
            if let Some(after) = self.live.get_mut(span.upper as usize) {
                *after = after.wrapping_sub(*size);
            }
        }
        let mut sum = 0_u64;
        for live in &mut self.live {
            sum = sum.wrapping_add(*live);
            *live = sum;
        }
        self
    }
}

/// Takes a problem apart. Empty items are in no part: any offset suits them.
pub(super) fn split(problem: &Problem) -> Vec<Part> {
    let mut moments = Vec::with_capacity(2 * problem.items.len());
    for (index, item) in problem.items.iter().enumerate() {
        if !item.is_empty() {
            moments.push((item.lifetime.lower, true, index));
            moments.push((item.lifetime.upper, false, index));
        }
    }
    // At equal times false sorts before true: ends come before starts.
    moments.sort_unstable();

    let mut parts = Vec::new();
    let mut part = Part::default();
    let mut place = vec![0; problem.items.len()];
    let (mut section, mut alive, mut grown) = (0, 0, false);
    for (_, starts, index) in moments {
        if starts {
            place[index] = part.len();
            part.items.push(index);
            part.spans.push(Span { lower: section, upper: section });
            part.sizes.push(problem.items[index].size.div_ceil(problem.alignment));
            alive += 1;
            grown = true;
        } else {
            // The first end after a start closes a section.
            section += u32::from(grown);
            grown = false;
            part.spans[place[index]].upper = section;
            alive -= 1;
            if alive == 0 {
                parts.push(std::mem::take(&mut part).close(section));
                section = 0;
            }
        }
    }
    parts
}

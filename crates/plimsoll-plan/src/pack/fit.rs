//! First fit and best fit: each item in turn goes into a gap between those already placed.
//!
//! Finding the gaps means looking at everything placed so far, which is quadratic in the number of items; the
//! portfolio leaves these out where that would show.

use super::part::{Part, Span};

/// Which of the gaps an item goes into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// The lowest that is large enough.
    First,
    /// The smallest that is large enough.
    Best,
}

/// An item that has its place.
struct Placed {
    offset: u64,
    end: u64,
    span: Span,
}

/// Packs the items of `part` in the order of `ranked`.
pub(super) fn pack(part: &Part, ranked: &[u32], fit: Fit) -> Vec<u64> {
    let mut offsets = vec![0; part.len()];
    pack_onto(part, &[], ranked, fit, &mut offsets);
    offsets
}

/// Packs more items of `part` around some that have their places.
pub(super) fn pack_onto(part: &Part, there: &[u32], ranked: &[u32], fit: Fit, offsets: &mut [u64]) {
    let place = |index: usize, offset: u64| Placed {
        offset,
        end: offset + part.sizes[index],
        span: part.spans[index],
    };
    let mut placed: Vec<Placed> =
        there.iter().map(|&index| place(index as usize, offsets[index as usize])).collect();
    placed.sort_by_key(|placed| placed.offset);
    for &index in ranked {
        let (span, size) = (part.spans[index as usize], part.sizes[index as usize]);
        let mut free_from = 0;
        let mut choice: Option<(u64, u64)> = None;
        for other in placed.iter().filter(|other| other.span.meets(span)) {
            let gap = other.offset.saturating_sub(free_from);
            if gap >= size && choice.is_none_or(|(least, _)| gap < least) {
                choice = Some((gap, free_from));
                if fit == Fit::First {
                    break;
                }
            }
            free_from = free_from.max(other.end);
        }
        let offset = choice.map_or(free_from, |(_, offset)| offset);
        offsets[index as usize] = offset;
        let position = placed.partition_point(|other| other.offset < offset);
        placed.insert(position, place(index as usize, offset));
    }
}

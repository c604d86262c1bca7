//! The orders in which items are considered.
//!
//! Every solver here is greedy at heart: it takes items by rank, and a good rank is most of the answer. No one
//! order is best for all problems, which is why there are several and why a portfolio tries them all.

use std::cmp::Reverse;

use super::part::Part;

/// What makes an item come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The largest.
    Size,
    /// The largest product of size and length.
    Area,
    /// The longest lived.
    Length,
    /// The first to start.
    Start,
    /// The last to end.
    End,
    /// Those alive when the most bytes are; the longest lived of these.
    PeakLength,
    /// Those alive when the most bytes are; the largest product of size and length of these.
    PeakArea,
}

/// The items of `part` in `order`. A `shake` other than zero is a seed: keys are then off by up to a quarter,
/// which gives as many variations of each order as there are seeds, the same ones on every run.
pub(super) fn rank(part: &Part, order: Order, shake: u64) -> Vec<u32> {
    let peak = |index: usize| part.live[part.spans[index].range()].iter().copied().max().unwrap_or(0);
    let key = |index: usize| {
        let (span, size) = (part.spans[index], u128::from(part.sizes[index]));
        let length = u128::from(span.len());
        let (first, second) = match order {
            Order::Size => (0, size),
            Order::Area => (0, size * length),
            Order::Length => (0, length),
            Order::Start => (0, part.live.len() as u128 - u128::from(span.lower)),
            Order::End => (0, u128::from(span.upper)),
            Order::PeakLength => (peak(index), length),
            Order::PeakArea => (peak(index), size * length),
        };
        let second = if shake == 0 { second } else { second * u128::from(1024 + noise(shake, index) % 256) };
        Reverse((first, second, length, size))
    };
    let mut ranked: Vec<u32> = (0..part.len() as u32).collect();
    ranked.sort_by_cached_key(|&index| key(index as usize));
    ranked
}

/// Moves items forward by the trouble they were: the worst by as many places as there are items, the others by
/// their share of that.
pub(super) fn promote(ranked: &mut [u32], trouble: &[u64]) {
    let most = u128::from(trouble.iter().copied().max().unwrap_or(0));
    let count = ranked.len() as u128;
    let mut place = vec![0; ranked.len()];
    for (position, &index) in (1..).zip(&*ranked) {
        // From the back, so that all are positive.
        place[index as usize] = (count - position) * most + count * u128::from(trouble[index as usize]);
    }
    ranked.sort_by_key(|&index| Reverse(place[index as usize]));
}

/// A hash of two numbers (SplitMix64): randomness without a state, so that runs repeat.
fn noise(seed: u64, index: usize) -> u64 {
    let mut bits = seed.wrapping_add(index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_forward_by_their_share_of_the_trouble() {
        let promoted = |trouble: [u64; 4]| {
            let mut ranked = [3, 2, 1, 0];
            promote(&mut ranked, &trouble);
            ranked
        };
        assert_eq!(promoted([0, 0, 0, 0]), [3, 2, 1, 0]);
        assert_eq!(promoted([7, 0, 0, 0]), [0, 3, 2, 1]);
        assert_eq!(promoted([0, 8, 0, 3]), [1, 3, 2, 0]);
        assert_eq!(promoted([4, 0, 0, 8]), [3, 2, 0, 1]);
    }
}

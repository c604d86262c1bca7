//! Large items first, and all others around them.
//!
//! Where thousands of items live, most of the bytes are of a few: a search that would drown in all of them packs these
//! without waste, and the rest finds room in what is left free between and above them. How large is large is tried. Those that
//! are next to nothing, often half of all, come last.

use super::fit::{self, Fit};
use super::improve::Improver;
use super::part::{Part, split};
use super::rank::{Order, rank};
use super::{parallel, portfolio};
use crate::packing::{Item, Problem};

/// Items of more than these parts of the target are packed first.
const SHARES: [u64; 3] = [16, 64, 128];

/// How the others find their places.
const OTHERS: [(Order, Fit); 4] = [
    (Order::Size, Fit::First),
    (Order::Area, Fit::First),
    (Order::Length, Fit::Best),
    (Order::PeakLength, Fit::Best),
];

/// Items of less than this part of the target find room anywhere.
const TINY: u64 = 4096;

/// What the search for the large ones may take.
const STEPS: u64 = 1 << 20;

/// Offsets for the items of a part, the best that are found.
pub(super) fn pack(part: &Part, target: u64, keep_going: &(dyn Fn() -> bool + Sync)) -> Option<Vec<u64>> {
    let mut best: Option<(u64, Vec<u64>)> = None;
    let (tiny, all): (Vec<u32>, Vec<u32>) = rank(part, Order::Size, 0)
        .into_iter()
        .partition(|&index| part.sizes[index as usize] <= target / TINY);
    for share in SHARES.into_iter().filter(|_| keep_going()) {
        let is_large = |index: u32| part.sizes[index as usize] > target / share;
        let large: Vec<u32> = all.iter().copied().filter(|&index| is_large(index)).collect();
        if large.is_empty() || large.len() == part.len() {
            continue;
        }
        let offsets = pack_large(part, &large, target, keep_going)?;
        let with_others = |way: usize| {
            let (order, fit) = OTHERS[way];
            let mut others = rank(part, order, 0);
            others.retain(|&index| !is_large(index) && part.sizes[index as usize] > target / TINY);
            let mut offsets = offsets.clone();
            fit::pack_onto(part, &large, &others, fit, &mut offsets);
            (part.height(&offsets), offsets)
        };
        for found in parallel::map(OTHERS.len(), with_others) {
            if best.as_ref().is_none_or(|best| found.0 < best.0) {
                best = Some(found);
            }
        }
    }
    best.map(|(_, mut offsets)| {
        fit::pack_onto(part, &all, &tiny, Fit::First, &mut offsets);
        offsets
    })
}

/// Offsets for some items of a part; those of the others are zero.
fn pack_large(
    part: &Part,
    large: &[u32],
    target: u64,
    keep_going: &(dyn Fn() -> bool + Sync),
) -> Option<Vec<u64>> {
    let item = |&index: &u32| {
        let span = part.spans[index as usize];
        Item::new(span.lower.into(), span.upper.into(), part.sizes[index as usize])
    };
    let problem = Problem::new(large.iter().map(item).collect(), 1).ok()?;
    let parts = split(&problem);
    let mut packed = portfolio::pack(&parts, target);
    Improver { steps: STEPS, keep_going, in_layers: false }.improve(&parts, &mut packed, target);
    let mut offsets = vec![0; part.len()];
    for (of, packed) in parts.iter().zip(packed) {
        for (&number, offset) in of.items.iter().zip(packed) {
            offsets[large[number] as usize] = offset;
        }
    }
    Some(offsets)
}

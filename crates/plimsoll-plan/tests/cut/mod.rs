//! Hard packing problems that are known to have a solution.

use plimsoll_plan::packing::Item;

/// The height of the rectangle, in bytes, and what all sizes are multiples of.
pub(crate) const HEIGHT: u64 = 1 << 20;
const UNIT: u64 = 1 << 10;
/// The length of the rectangle.
const LENGTH: u64 = 400;

/// A rectangle cut again and again, until it is in so many pieces, some of which are then taken away: as many as
/// together have no more than `spare` percent of its area. What is left fits into [`HEIGHT`] bytes.
pub(crate) fn rectangle(pieces: usize, spare: u64, seed: u64) -> Vec<Item> {
    let mut random = Random(seed);
    let mut items = vec![Item::new(0, LENGTH, HEIGHT)];
    while items.len() < pieces {
        // The larger a piece, the more often it is cut, and never close to its edge unless it is small.
        let mut at = random.below(LENGTH * HEIGHT);
        let hit = items.iter().position(|item| {
            let hit = at < area(item);
            at = at.saturating_sub(area(item));
            hit
        });
        let index = hit.expect("the pieces have the area of the rectangle");
        let Item { lifetime, size } = items[index];
        let (length, units) = (lifetime.upper - lifetime.lower, size / UNIT);
        if random.below(2) == 0 && length >= 4 {
            let cut = lifetime.lower + random.cut(length);
            items[index] = Item::new(lifetime.lower, cut, size);
            items.push(Item::new(cut, lifetime.upper, size));
        } else if units >= 4 {
            let cut = random.cut(units) * UNIT;
            items[index].size = cut;
            items.push(Item::new(lifetime.lower, lifetime.upper, size - cut));
        }
    }
    for last in (1..items.len()).rev() {
        items.swap(last, random.below(last as u64 + 1) as usize);
    }
    let mut left = LENGTH * HEIGHT * spare / 100;
    items.retain(|item| {
        let taken = area(item) <= left;
        left -= if taken { area(item) } else { 0 };
        !taken
    });
    items
}

fn area(item: &Item) -> u64 {
    (item.lifetime.upper - item.lifetime.lower) * item.size
}

/// SplitMix64: the same pieces everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (bits ^ (bits >> 31)) % bound
    }

    /// Where to cut a side.
    fn cut(&mut self, side: u64) -> u64 {
        let margin = (side / 10).max(1);
        margin + self.below(side - 2 * margin + 1)
    }
}

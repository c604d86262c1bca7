//! Random numbers (SplitMix64).

/// A source of random numbers: the same seed gives the same ones again.
pub(crate) struct Random(u64);

impl Random {
    /// The numbers of one mutant, whatever was made before it.
    pub(crate) fn of_mutant(seed: u64, index: u64) -> Random {
        let mut random = Random(seed);
        Random(random.next() ^ index.wrapping_mul(0xd134_2543_de82_ef95))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `end`; 0 if there is none.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// Once in so many times.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// A number up to two to the power of `most`, small ones more often.
    pub(crate) fn up_to_power(&mut self, most: u32) -> usize {
        let end = 1_usize << self.below(most as usize + 1);
        1 + self.below(end)
    }

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

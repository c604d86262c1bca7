//! Random numbers and orders that are computed from a position, not drawn from a state.
//!
//! A value depends on its seed and its place alone, so that any sample can be read at any time, a run can resume in
//! the middle of an epoch, and a shuffle of any length occupies no memory.

/// A well-mixed 64-bit word for each (key, counter): SplitMix64 (Steele, Lea and Flood, 2014) read at a position.
pub(crate) fn word(key: u64, counter: u64) -> u64 {
    let mut z = key.wrapping_add(counter.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What a key is for, so that one seed serves several uses without their numbers being related.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    Values,
    Split,
    Epoch,
    Shuffle,
    Draws,
}

/// The key of the `index`-th stream of a seed for a purpose.
pub(crate) fn key(seed: u64, purpose: Purpose, index: u64) -> u64 {
    word(word(word(0, seed), purpose as u64), index)
}

/// A whole number in `0..bound`, uniform to within `bound` in 2⁶⁴.
pub(crate) fn below(word: u64, bound: u64) -> u64 {
    ((u128::from(word) * u128::from(bound)) >> 64) as u64
}

/// Two independent standard normal values from one word, by Box and Muller.
pub(crate) fn normal_pair(word: u64) -> (f32, f32) {
    const UNIT: f64 = 1.0 / 4_294_967_296.0;
    // Half a unit above the grid, since the logarithm needs a number above zero.
    let radius = (-2.0 * ((f64::from((word >> 32) as u32) + 0.5) * UNIT).ln()).sqrt();
    let (sin, cos) = (std::f64::consts::TAU * f64::from(word as u32) * UNIT).sin_cos();
    ((radius * cos) as f32, (radius * sin) as f32)
}

/// Random numbers for one element of a data set in one epoch, such as where an image is cropped.
///
/// They depend on seed, epoch and element alone: on whatever thread an element is made, and whether a run went through or
/// resumed, it is the same one.
///
/// ```
/// use plimsoll_data::Draws;
///
/// let mut draws = Draws::new(7, 3, 41);
/// let (row, turned) = (draws.below(33), draws.chance(0.5));
/// let mut again = Draws::new(7, 3, 41);
/// assert_eq!((again.below(33), again.chance(0.5)), (row, turned));
/// ```
#[derive(Clone, Debug)]
pub struct Draws {
    key: u64,
    drawn: u64,
}

impl Draws {
    /// The numbers for this element of this epoch.
    pub fn new(seed: u64, epoch: u64, element: u64) -> Draws {
        Draws { key: word(key(seed, Purpose::Draws, epoch), element), drawn: 0 }
    }

    /// A whole number in `0..bound`, each equally likely; 0 if the bound is.
    pub fn below(&mut self, bound: usize) -> usize {
        below(self.next(), bound as u64) as usize
    }

    /// True with this probability: never at 0, always at 1.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// A number from 0 to 1, of which 1 is not one.
    pub fn unit(&mut self) -> f64 {
        // The 53 bits that a float has.
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn next(&mut self) -> u64 {
        self.drawn += 1;
        word(self.key, self.drawn)
    }
}

/// A shuffle of `0..samples` as a function. Samples are laid out in a nearly square grid, and by turns rows are
/// rotated by an amount that depends on the column, and columns by one that depends on the row: a Feistel network,
/// which is a bijection whatever the amounts are. The few results in cells beyond the last sample are sent through
/// again until they fall on a sample ("cycle walking").
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permutation {
    key: u64,
    samples: u64,
    rows: u64,
    columns: u64,
}

impl Permutation {
    const ROUNDS: u64 = 3;
    /// On a smaller grid some orders would be more likely than others.
    const LEAST_SIDE: u64 = 16;

    pub(crate) fn new(key: u64, samples: usize) -> Permutation {
        let samples = samples as u64;
        let rows = samples.isqrt().max(Self::LEAST_SIDE);
        let columns = samples.div_ceil(rows).max(Self::LEAST_SIDE);
        Permutation { key, samples, rows, columns }
    }

    /// What stands at `position`, which is below the number of samples.
    pub(crate) fn at(&self, position: usize) -> usize {
        debug_assert!((position as u64) < self.samples);
        let mut cell = position as u64;
        loop {
            cell = self.exchange(cell);
            if cell < self.samples {
                return cell as usize;
            }
        }
    }

    fn exchange(&self, cell: u64) -> u64 {
        let (mut row, mut column) = (cell / self.columns, cell % self.columns);
        for round in 0..Self::ROUNDS {
            // Rows and columns are below 2³³, so that the words of different turns never coincide.
            row = rotate(row, word(self.key, (2 * round) << 40 | column), self.rows);
            column = rotate(column, word(self.key, (2 * round + 1) << 40 | row), self.columns);
        }
        row * self.columns + column
    }
}

/// `place` moved on by a random distance on a circle of `length` places.
fn rotate(place: u64, word: u64, length: u64) -> u64 {
    let moved = place + below(word, length);
    if moved < length { moved } else { moved - length }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_permutation_visits_every_sample_once(key: u64, samples in 1usize..3000) {
            let permutation = Permutation::new(key, samples);
            let mut seen = vec![false; samples];
            for position in 0..samples {
                let sample = permutation.at(position);
                prop_assert!(!std::mem::replace(&mut seen[sample], true));
            }
        }
    }

    #[test]
    fn draws_of_neighbouring_elements_and_epochs_are_uniform_and_unrelated() {
        let first = |epoch, element| Draws::new(5, epoch, element).unit();
        let mean = (0..10_000).map(|element| first(2, element)).sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.015, "{mean}");
        for (epoch, element) in [(0, 1), (1, 0)] {
            let product = |at| (first(0, at) - 0.5) * (first(epoch, at + element) - 0.5);
            // Of unrelated numbers it is 0 ± 0.0008.
            let covariance = (0..10_000).map(product).sum::<f64>() / 10_000.0;
            assert!(covariance.abs() < 0.004, "{covariance}");
        }
        let mut draws = Draws::new(5, 0, 0);
        let counts = (0..6000).fold([0; 6], |mut counts, _| {
            counts[draws.below(6)] += 1;
            counts
        });
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        assert!((0..100).all(|_| draws.chance(1.0) && !draws.chance(0.0)));
        assert_eq!(draws.below(0), 0);
    }

    #[test]
    fn every_order_of_five_samples_is_about_equally_likely() {
        let mut counts = std::collections::HashMap::new();
        let trials = 120 * 200;
        for seed in 0..trials {
            let permutation = Permutation::new(key(seed, Purpose::Epoch, 0), 5);
            *counts.entry(std::array::from_fn::<usize, 5, _>(|at| permutation.at(at))).or_insert(0u32) += 1;
        }
        assert_eq!(counts.len(), 120);
        // The counts of a fair shuffle are 200 ± 14; five deviations are not left by chance.
        assert!(counts.values().all(|count| (130..270).contains(count)), "{counts:?}");
    }

    #[test]
    fn neighbours_in_a_shuffle_are_not_neighbours_in_the_data() {
        let permutation = Permutation::new(key(3, Purpose::Epoch, 0), 100_000);
        let near = (1..100_000).filter(|&at| permutation.at(at).abs_diff(permutation.at(at - 1)) < 100);
        // By chance 0.2 % of the pairs lie within 100 of one another: 200 ± 14.
        assert!((130..270).contains(&near.count()));
    }

    #[test]
    fn normal_values_have_the_moments_of_a_normal_distribution() {
        let values: Vec<f64> =
            (0..50_000).flat_map(|at| <[f32; 2]>::from(normal_pair(word(9, at)))).map(f64::from).collect();
        let moment = |power| values.iter().map(|value| value.powi(power)).sum::<f64>() / values.len() as f64;
        assert!(moment(1).abs() < 0.02, "mean {}", moment(1));
        assert!((moment(2) - 1.0).abs() < 0.03, "variance {}", moment(2));
        assert!((moment(4) - 3.0).abs() < 0.2, "fourth moment {}", moment(4));
    }
}

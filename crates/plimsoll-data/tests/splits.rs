//! A split's parts are disjoint, together complete, and the same for the same seed.

use plimsoll_data::{Columns, Dataset, ErrorKind, digits};
use proptest::prelude::*;

fn numbered(samples: usize) -> Dataset {
    Dataset::new(Columns::new().column("number", &[], (0..samples as i32).collect()).unwrap()).unwrap()
}

fn read_all(dataset: &Dataset) -> Vec<i32> {
    let mut bytes = [0; 4];
    let mut read = |sample| {
        dataset.source().unwrap().read(sample, 0, &mut bytes).unwrap();
        i32::from_ne_bytes(bytes)
    };
    (0..dataset.samples()).map(&mut read).collect()
}

proptest! {
    #[test]
    fn the_parts_are_disjoint_and_together_complete(
        samples in 2usize..500, fraction in 0.001f64..0.999, seed: u64,
    ) {
        let split = numbered(samples).split(fraction, seed).unwrap();
        let mut all = [read_all(&split.train), read_all(&split.held_out)].concat();
        all.sort_unstable();
        prop_assert_eq!(all, (0..samples as i32).collect::<Vec<_>>());
    }

    #[test]
    fn the_parts_have_the_sizes_asked_for_and_are_never_empty(
        samples in 2usize..500, fraction in 0.001f64..0.999, seed: u64,
    ) {
        let split = numbered(samples).split(fraction, seed).unwrap();
        let train = split.train.samples();
        prop_assert!(train >= 1 && split.held_out.samples() >= 1);
        prop_assert!((train as f64 - samples as f64 * fraction).abs() <= 1.0);
    }

    #[test]
    fn the_seed_decides_the_split(samples in 50usize..500, seed: u64) {
        let train = |seed| read_all(&numbered(samples).split(0.5, seed).unwrap().train);
        prop_assert_eq!(train(seed), train(seed));
        prop_assert_ne!(train(seed), train(seed.wrapping_add(1)));
    }

    #[test]
    fn a_part_can_be_split_again(samples in 8usize..500, seed: u64) {
        let outer = numbered(samples).split(0.75, seed).unwrap();
        let inner = outer.train.split(0.5, seed).unwrap();
        let parts = [&inner.train, &inner.held_out, &outer.held_out].map(read_all);
        let mut all = parts.concat();
        all.sort_unstable();
        prop_assert_eq!(all, (0..samples as i32).collect::<Vec<_>>());
    }

    #[test]
    fn a_sample_keeps_the_number_it_came_with(samples in 4usize..500, seed: u64) {
        let part = numbered(samples).split(0.5, seed).unwrap().train.split(0.5, seed).unwrap().held_out;
        let origins: Vec<i32> = (0..part.samples()).map(|sample| part.source().unwrap().origin(sample) as i32).collect();
        prop_assert_eq!(origins, read_all(&part));
    }
}

#[test]
fn splitting_holds_no_more_memory() {
    let dataset = numbered(1000);
    let split = dataset.split(0.8, 1).unwrap();
    assert_eq!(split.train.resident_bytes(), dataset.resident_bytes());
    assert_eq!(split.held_out.resident_bytes(), dataset.resident_bytes());
}

#[test]
fn both_parts_of_the_digits_have_all_classes() {
    let split = Dataset::new(digits()).unwrap().split(0.8, 7).unwrap();
    assert_eq!((split.train.samples(), split.held_out.samples()), (1438, 359));
    for part in [split.train, split.held_out] {
        let mut label = [0; 4];
        let mut counts = [0; 10];
        for sample in 0..part.samples() {
            part.source().unwrap().read(sample, 1, &mut label).unwrap();
            counts[i32::from_ne_bytes(label) as usize] += 1;
        }
        let even = part.samples() / 10;
        assert!(counts.iter().all(|&count| count > even / 2 && count < even * 2), "{counts:?}");
    }
}

#[test]
fn a_fraction_outside_of_zero_and_one_is_refused() {
    for fraction in [0.0, 1.0, -0.5, 1.5, f64::NAN, f64::INFINITY] {
        let error = numbered(10).split(fraction, 0).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Split { samples: 10, .. }), "{error}");
    }
}

#[test]
fn a_single_sample_cannot_be_split() {
    let error = numbered(1).split(0.5, 0).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Split { samples: 1, .. }), "{error}");
}

#[test]
fn a_sample_beyond_a_part_is_refused_though_the_whole_has_it() {
    let split = numbered(10).split(0.5, 0).unwrap();
    let error = split.train.source().unwrap().read(5, 0, &mut [0; 4]).unwrap_err();
    assert_eq!(error.to_string(), "there is no sample 5; the samples are 0..5");
}

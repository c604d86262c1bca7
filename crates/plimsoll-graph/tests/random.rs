//! The random numbers that every device has to draw.

use plimsoll_graph::DType;
use plimsoll_graph::random::{block, largest_below_one, normal, philox, uniform32, uniform64};

#[test]
fn philox_gives_the_known_answers_of_its_authors() {
    let ones = u32::MAX;
    for (counter, key, expected) in [
        ([0; 4], [0; 2], [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]),
        ([ones; 4], [ones; 2], [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]),
        (
            [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
            [0xa4093822, 0x299f31d0],
            [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
        ),
    ] {
        assert_eq!(philox(counter, key), expected);
    }
}

#[test]
fn seed_step_stream_and_position_each_change_the_numbers() {
    let base = block(1, 2, 3, 4);
    for other in [
        block(1 << 33, 2, 3, 4),
        block(1, 5, 3, 4),
        block(1, 2, 5, 4),
        block(1, 2, 3, 5),
        block(1, 2, 3, 1 << 33),
    ] {
        assert_ne!(base, other);
    }
    assert_eq!(base, block(1, 2, 3, 4));
}

#[test]
fn uniform_numbers_fill_zero_to_one_and_exclude_one() {
    assert_eq!((uniform32([0; 4]), uniform64([0; 4])), (0.0, 0.0));
    assert_eq!(f64::from(uniform32([u32::MAX; 4])), largest_below_one(DType::F32));
    assert_eq!(uniform64([u32::MAX; 4]), largest_below_one(DType::F64));
    assert_eq!(uniform32([1 << 31, 0, 0, 0]), 0.5);
    assert_eq!(uniform64([1 << 31, 0, 0, 0]), 0.5);
}

#[test]
fn half_precision_has_its_own_largest_number_below_one() {
    assert_eq!(largest_below_one(DType::F16), 1.0 - 0.5f64.powi(11));
    assert_eq!(largest_below_one(DType::BF16), 1.0 - 0.5f64.powi(8));
}

#[test]
fn normal_numbers_have_the_moments_of_the_normal_distribution() {
    let n = 200_000;
    let moment = |k: i32| (0..n).map(|i| normal(block(7, 0, 1, i)).powi(k)).sum::<f64>() / n as f64;
    for (k, expected, deviation) in [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0f64)] {
        let error = (moment(k) - expected).abs();
        assert!(error < 5.0 * (deviation / n as f64).sqrt(), "moment {k} is off by {error}");
    }
    // The words that would take the logarithm of zero give the most distant number there is.
    assert!((normal([0; 4]) - (48.0 * 2f64.ln()).sqrt()).abs() < 1e-12);
}

#[test]
fn normal_numbers_are_those_of_box_and_mullers_formula_to_a_few_roundings() {
    let scale = 0.5f64.powi(24);
    let mut corners: Vec<u32> =
        (0..24).flat_map(|bit| [1 << bit, (1 << bit) - 1, (1 << 24) - (1 << bit)]).collect();
    corners.extend((0..8).map(|eighth| eighth << 21));
    let corners = corners.iter().flat_map(|&a| corners.iter().map(move |&b| [a << 8, b << 8, 0, 0]));
    for words in corners.chain((0..100_000).map(|i| block(3, 0, 1, i))) {
        let u = f64::from((words[0] >> 8) + 1) * scale;
        // An angle near which the cosine is small is exact as its distance from where it is 0.
        let angle = std::f64::consts::TAU * ((f64::from(words[1] >> 8) * scale - 0.5).abs() - 0.25);
        let expected = (-2.0 * u.ln()).sqrt() * angle.sin();
        let error = (normal(words) - expected).abs();
        assert!(error <= 8.0 * f64::EPSILON * expected.abs(), "{words:?}: {} {expected}", normal(words));
    }
}

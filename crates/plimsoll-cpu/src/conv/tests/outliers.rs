//! Filters of three by three on data that is not ordinary: numbers much larger than those around them, or not finite.

use super::*;
use crate::testing::Numbers;

const EPSILON: f64 = f32::EPSILON as f64;
/// The most rounding errors of its scale that an element may be off by.
const ROUNDINGS: f64 = 64.0;

/// Layers that Winograd's algorithm computes, with sizes that its tiles do not divide.
fn shapes() -> [ConvShape; 2] {
    let unpadded = ConvShape::new([6, 13, 11, 19], [3, 3, 19, 35], [1; 2], [[0, 2], [1, 0]], [1; 2], 1);
    [same([8, 10, 16, 32], 1), unpadded.unwrap()]
}

/// Numbers of magnitudes around one, so that no sum of many is small.
fn ordinary(shape: &ConvShape, numbers: &mut Numbers) -> Operands<f32> {
    let mut tensor = |len: usize| -> Vec<f32> {
        let mut number = || (0.5 + numbers.float().abs()) * if numbers.chance(50) { 1.0 } else { -1.0 };
        (0..len).map(|_| number() as f32).collect()
    };
    Operands {
        input: tensor(shape.input_len()),
        filter: tensor(shape.filter_len()),
        output_grad: tensor(shape.output_len()),
    }
}

/// Replaces a few numbers by `outliers`, at random.
fn scatter(tensor: &mut [f32], outliers: &[f32], numbers: &mut Numbers) {
    for _ in 0..8 {
        let place = numbers.below(tensor.len());
        tensor[place] = numbers.pick(outliers);
    }
}

/// The results on every instruction set, the same on any number of threads.
fn everywhere(shape: &ConvShape, operands: &Operands<f32>) -> Vec<Results<f32>> {
    let compute = |isa| {
        let one = compute_from(shape, operands, isa, &Pool::new(1).unwrap());
        let three = compute_from(shape, operands, isa, &Pool::new(3).unwrap());
        assert_same_bits(&one.forward, &three.forward);
        assert_same_bits(&one.grad_input, &three.grad_input);
        assert_same_bits(&one.grad_filter, &three.grad_filter);
        one
    };
    isas().map(compute).collect()
}

/// Asserts that errors are no more than a sum of 128 products with each element's own magnitudes may be off, fewer than any
/// of these has.
fn assert_near(name: &str, values: &[f32], sums: &[Sum]) {
    for (i, (&value, sum)) in values.iter().zip(sums).enumerate() {
        let error = (f64::from(value) - sum.value).abs() / sum.magnitude / EPSILON;
        assert!(error <= 128.0, "{name} {i} is {value:?}, not {}: off by {error} roundings", sum.value);
    }
}

#[test]
fn an_outlier_costs_its_neighbours_no_digits() {
    for shape in shapes() {
        for size in [1e4, 1e5, 1e6, 1e7, 1e8] {
            let mut numbers = Numbers::new(size as u64);
            let mut operands = ordinary(&shape, &mut numbers);
            scatter(&mut operands.input, &[size, -size], &mut numbers);
            let exact = exact_from(&shape, &operands);
            for results in everywhere(&shape, &operands) {
                assert_near("output", &results.forward, &exact.forward);
                assert_near("filter gradient", &results.grad_filter, &exact.grad_filter);
            }
            let mut operands = ordinary(&shape, &mut numbers);
            scatter(&mut operands.output_grad, &[size, -size], &mut numbers);
            let exact = exact_from(&shape, &operands);
            for results in everywhere(&shape, &operands) {
                assert_near("input gradient", &results.grad_input, &exact.grad_input);
            }
        }
    }
}

/// What errors are relative to in any case: the length of an element's window times that of its channel of the filter;
/// in the gradient of a filter, the sum over pixels of the gradient times the length of the pixel's window.
fn scales(shape: &ConvShape, operands: &Operands<f32>) -> Results<f64> {
    let Operands { input, filter, output_grad } = operands;
    let square = |number: f32| f64::from(number) * f64::from(number);
    let mut forward = vec![0.0; output_grad.len()];
    let mut grad_input = vec![0.0; input.len()];
    for_each_product(shape, |i, _, o| {
        forward[o] += square(input[i]);
        grad_input[i] += square(output_grad[o]);
    });
    let (channels, out_channels) = (shape.channels, shape.out_channels);
    let (mut rows, mut columns, mut sums) =
        (vec![0.0; channels], vec![0.0; out_channels], vec![0.0; out_channels]);
    for (f, &weight) in filter.iter().enumerate() {
        rows[f / out_channels % channels] += square(weight);
        columns[f % out_channels] += square(weight);
    }
    for (o, &gradient) in output_grad.iter().enumerate() {
        sums[o % out_channels] += f64::from(gradient).abs() * forward[o].sqrt();
    }
    forward
        .iter_mut()
        .enumerate()
        .for_each(|(o, scale)| *scale = (*scale * columns[o % out_channels]).sqrt());
    grad_input.iter_mut().enumerate().for_each(|(i, scale)| *scale = (*scale * rows[i % channels]).sqrt());
    Results { forward, grad_input, grad_filter: (0..filter.len()).map(|f| sums[f % out_channels]).collect() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn errors_are_relative_to_each_elements_own_window_however_magnitudes_are_spread(
        seed: u64,
        decades in 0.0..12f64,
        zeros in 0..100usize,
    ) {
        let mut numbers = Numbers::new(seed);
        for shape in shapes() {
            // Magnitudes differ from pixel to pixel or from number to number; some are zero.
            let mut operands = ordinary(&shape, &mut numbers);
            let Operands { input, filter, output_grad } = &mut operands;
            let tensors = [(input, shape.channels), (filter, 1), (output_grad, shape.out_channels)];
            for (tensor, channels) in tensors {
                let alike = if numbers.chance(50) { channels } else { 1 };
                for pixel in tensor.chunks_mut(alike) {
                    let scale = if numbers.chance(zeros) { 0.0 } else { 10f64.powf(decades * numbers.float() / 2.0) };
                    pixel.iter_mut().for_each(|number| *number *= scale as f32);
                }
            }
            let (exact, scales) = (exact_from(&shape, &operands), scales(&shape, &operands));
            for results in everywhere(&shape, &operands) {
                let near = |name: &str, values: &[f32], sums: &[Sum], scales: &[f64]| {
                    for (i, (&value, sum)) in values.iter().zip(sums).enumerate() {
                        let error = (f64::from(value) - sum.value).abs();
                        assert!(
                            error <= ROUNDINGS * EPSILON * scales[i],
                            "{name} {i} of {shape:?} is {value:?}, not {}: off by {} roundings",
                            sum.value,
                            error / scales[i] / EPSILON
                        );
                    }
                };
                near("output", &results.forward, &exact.forward, &scales.forward);
                near("input gradient", &results.grad_input, &exact.grad_input, &scales.grad_input);
                near("filter gradient", &results.grad_filter, &exact.grad_filter, &scales.grad_filter);
            }
        }
    }
}

/// Asserts that results are NaN, infinite and finite where the sums of their own terms are.
fn assert_as_finite(name: &str, values: &[f32], sums: &[Sum]) {
    for (i, (&value, sum)) in values.iter().zip(sums).enumerate() {
        let expected = sum.value as f32;
        let alike = if expected.is_finite() {
            (f64::from(value) - sum.value).abs() <= 8.0 * EPSILON * sum.magnitude
        } else {
            value == expected || value.is_nan() && expected.is_nan()
        };
        assert!(alike, "{name} {i} is {value:?}, not {expected:?}");
    }
}

#[test]
fn what_is_not_finite_spreads_as_far_as_in_sums_of_products() {
    let strange = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    for shape in shapes() {
        for place in 0..3 {
            let mut numbers = Numbers::new(place);
            let mut operands = ordinary(&shape, &mut numbers);
            let Operands { input, filter, output_grad } = &mut operands;
            match place {
                0 => scatter(input, &strange, &mut numbers),
                1 => filter[numbers.below(16)] = numbers.pick(&strange),
                _ => scatter(output_grad, &strange, &mut numbers),
            }
            let exact = exact_from(&shape, &operands);
            for results in everywhere(&shape, &operands) {
                assert_as_finite("output", &results.forward, &exact.forward);
                assert_as_finite("input gradient", &results.grad_input, &exact.grad_input);
                assert_as_finite("filter gradient", &results.grad_filter, &exact.grad_filter);
            }
        }
    }
}

#[test]
fn what_does_not_overflow_as_a_sum_of_products_is_finite() {
    for shape in shapes() {
        // Signs that the algorithm's first sums make all terms of one sign from, and magnitudes that add up to half of the
        // largest number.
        let numbers = |len: usize, channels: usize, width: usize, magnitude: f32| -> Vec<f32> {
            let is_negative = |pixel: usize| (pixel / width / 2 + pixel % width / 2) % 2 == 1;
            (0..len).map(|i| if is_negative(i / channels) { -magnitude } else { magnitude }).collect()
        };
        let large = |terms: usize| (f32::MAX / 2.0 / terms as f32).sqrt();
        let terms = 9 * shape.channels.max(shape.out_channels);
        let mut operands = Operands {
            input: numbers(shape.input_len(), shape.channels, shape.input[1], large(terms)),
            filter: vec![large(terms); shape.filter_len()],
            output_grad: numbers(shape.output_len(), shape.out_channels, shape.output[1], large(terms)),
        };
        let exact = exact_from(&shape, &operands);
        for results in everywhere(&shape, &operands) {
            assert_as_finite("output", &results.forward, &exact.forward);
            assert_as_finite("input gradient", &results.grad_input, &exact.grad_input);
        }
        let pixels = shape.output_len() / shape.out_channels;
        operands.output_grad.iter_mut().for_each(|number| *number *= terms as f32 / pixels as f32);
        let exact = exact_from(&shape, &operands);
        for results in everywhere(&shape, &operands) {
            assert_as_finite("filter gradient", &results.grad_filter, &exact.grad_filter);
        }
    }
}

#[test]
fn sums_of_zeros_are_zeros() {
    for shape in shapes() {
        let mut numbers = Numbers::new(3);
        let mut operands = ordinary(&shape, &mut numbers);
        let Operands { input, output_grad, .. } = &mut operands;
        for (tensor, channels) in [(input, shape.channels), (output_grad, shape.out_channels)] {
            for pixel in tensor.chunks_mut(channels).filter(|_| numbers.chance(90)) {
                pixel.fill(0.0);
            }
        }
        let exact = exact_from(&shape, &operands);
        for results in everywhere(&shape, &operands) {
            let zeros = |values: &[f32], sums: &[Sum]| {
                assert!(sums.iter().any(|sum| sum.magnitude == 0.0));
                assert!(values.iter().zip(sums).all(|(&value, sum)| sum.magnitude > 0.0 || value == 0.0));
            };
            zeros(&results.forward, &exact.forward);
            zeros(&results.grad_input, &exact.grad_input);
        }
    }
}

#[test]
fn without_winograd_convolutions_of_integers_are_exact() {
    for shape in shapes() {
        let shape = shape.with_winograd(false);
        let mut numbers = Numbers::new(5);
        let mut operands = ordinary(&shape, &mut numbers);
        let Operands { input, filter, output_grad } = &mut operands;
        for number in input.iter_mut().chain(filter).chain(output_grad) {
            *number = numbers.below(33) as f32 - 16.0;
        }
        let exact = exact_from(&shape, &operands);
        for results in everywhere(&shape, &operands) {
            let same = |values: &[f32], sums: &[Sum]| {
                values.iter().zip(sums).for_each(|(&value, sum)| assert_eq!(f64::from(value), sum.value));
            };
            same(&results.forward, &exact.forward);
            same(&results.grad_input, &exact.grad_input);
            same(&results.grad_filter, &exact.grad_filter);
        }
    }
}

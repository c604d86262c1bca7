//! Convolutions and their gradients against direct loops in `f64`.

mod outliers;

use super::{ConvShape, Pass, convolve, workspace};
use crate::runtime::Pool;
use crate::simd::Isa;
use crate::testing::{Bounded, Guarded, assert_same_bits, bound, isas, on_isa, values};
use half::{bf16, f16};
use proptest::prelude::*;

/// Calls `visit` with the offsets of input, filter and output of every product that a convolution sums.
fn for_each_product(shape: &ConvShape, mut visit: impl FnMut(usize, usize, usize)) {
    let (channels, out_channels) = (shape.group_channels(), shape.group_out_channels());
    let [height, width] = shape.input;
    for (image, y, x) in positions(shape.batch, shape.output) {
        for (_, tap_y, tap_x) in positions(1, shape.filter) {
            let inside = |axis: usize, at: usize, tap: usize| {
                let padded = at * shape.stride[axis] + tap * shape.dilation[axis];
                padded.checked_sub(shape.padding[axis][0]).filter(|&at| at < shape.input[axis])
            };
            let (Some(in_y), Some(in_x)) = (inside(0, y, tap_y), inside(1, x, tap_x)) else { continue };
            for out_channel in 0..shape.out_channels {
                let group = out_channel / out_channels;
                for channel in 0..channels {
                    let pixel = (image * height + in_y) * width + in_x;
                    let tap = (tap_y * shape.filter[1] + tap_x) * channels + channel;
                    let output = (image * shape.output[0] + y) * shape.output[1] + x;
                    visit(
                        pixel * shape.channels + group * channels + channel,
                        tap * shape.out_channels + out_channel,
                        output * shape.out_channels + out_channel,
                    );
                }
            }
        }
    }
}

fn positions(images: usize, [height, width]: [usize; 2]) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..images).flat_map(move |i| (0..height).flat_map(move |y| (0..width).map(move |x| (i, y, x))))
}

/// A sum, the sum of its terms' magnitudes, and their number.
#[derive(Clone, Copy, Default)]
struct Sum {
    value: f64,
    magnitude: f64,
    terms: usize,
}

impl Sum {
    fn add(&mut self, product: f64) {
        self.value += product;
        self.magnitude += product.abs();
        self.terms += 1;
    }
}

/// The three kernels' results on operands that depend on the shape alone.
struct Results<T> {
    forward: Vec<T>,
    grad_input: Vec<T>,
    grad_filter: Vec<T>,
}

struct Operands<T> {
    input: Vec<T>,
    filter: Vec<T>,
    output_grad: Vec<T>,
}

fn operands<T: Bounded>(shape: &ConvShape) -> Operands<T> {
    Operands {
        input: values(shape.input_len(), 1),
        filter: values(shape.filter_len(), 2),
        output_grad: values(shape.output_len(), 3),
    }
}

fn compute<T: Bounded>(shape: &ConvShape, isa: Isa, pool: &Pool) -> Results<T> {
    compute_from(shape, &operands(shape), isa, pool)
}

fn compute_from<T: Bounded>(shape: &ConvShape, operands: &Operands<T>, isa: Isa, pool: &Pool) -> Results<T> {
    let Operands { input, filter, output_grad } = operands;
    let nan = T::from_f64(f64::NAN);
    let mut results = Results {
        forward: vec![nan; output_grad.len()],
        grad_input: vec![nan; input.len()],
        grad_filter: vec![nan; filter.len()],
    };
    let (input, filter, output_grad) = (input.as_ptr(), filter.as_ptr(), output_grad.as_ptr());
    on_isa(isa, || {
        for pass in Pass::ALL {
            let (operands, result) = match pass {
                Pass::Forward => ([input, filter], results.forward.as_mut_ptr()),
                Pass::InputGrad => ([output_grad, filter], results.grad_input.as_mut_ptr()),
                Pass::FilterGrad => ([input, output_grad], results.grad_filter.as_mut_ptr()),
            };
            let mut scratch = Guarded::new(workspace::<T>(pass, shape, pool.threads()));
            // SAFETY: the vectors have the lengths of the shape.
            unsafe { convolve(pass, pool, shape, operands, result, scratch.bytes_mut()) };
        }
    });
    results
}

/// The three kernels' results by direct loops.
fn exact<T: Bounded>(shape: &ConvShape) -> Results<Sum> {
    exact_from(shape, &operands::<T>(shape))
}

fn exact_from<T: Bounded>(shape: &ConvShape, operands: &Operands<T>) -> Results<Sum> {
    let Operands { input, filter, output_grad } = operands;
    let mut forward = vec![Sum::default(); output_grad.len()];
    let mut grad_input = vec![Sum::default(); input.len()];
    let mut grad_filter = vec![Sum::default(); filter.len()];
    for_each_product(shape, |i, f, o| {
        forward[o].add(input[i].to_f64() * filter[f].to_f64());
        grad_input[i].add(output_grad[o].to_f64() * filter[f].to_f64());
        grad_filter[f].add(output_grad[o].to_f64() * input[i].to_f64());
    });
    Results { forward, grad_input, grad_filter }
}

fn check<T: Bounded>(shape: &ConvShape, results: &Results<T>) {
    let Results { forward, grad_input, grad_filter } = exact::<T>(shape);
    let compare = |name: &str, values: &[T], sums: &[Sum]| {
        for (i, (value, sum)) in values.iter().zip(sums).enumerate() {
            let error = (value.to_f64() - sum.value).abs();
            let bound = bound::<T>(sum.terms, sum.magnitude, sum.value);
            assert!(
                error <= bound,
                "{name} {i} of {shape:?} is {value:?}, not {}: off by {error}",
                sum.value
            );
        }
    };
    compare("output", &results.forward, &forward);
    compare("input gradient", &results.grad_input, &grad_input);
    compare("filter gradient", &results.grad_filter, &grad_filter);
}

/// Checks results in which errors are relative to the largest terms of neighbouring pixels too, not to those of each
/// sum alone: no error is more than eight rounding errors of the largest sum of magnitudes.
fn check_by_tiles(shape: &ConvShape, results: &Results<f32>) {
    let exact = exact::<f32>(shape);
    let compare = |name: &str, values: &[f32], sums: &[Sum]| {
        let largest = sums.iter().fold(0.0, |largest: f64, sum| largest.max(sum.magnitude));
        for (i, (&value, sum)) in values.iter().zip(sums).enumerate() {
            let error = (f64::from(value) - sum.value).abs();
            assert!(
                error <= 8.0 * f64::from(f32::EPSILON) * largest,
                "{name} {i} of {shape:?} is {value:?}, not {}: off by {error}, in sums of up to {largest}",
                sum.value
            );
        }
    };
    compare("output", &results.forward, &exact.forward);
    compare("input gradient", &results.grad_input, &exact.grad_input);
    compare("filter gradient", &results.grad_filter, &exact.grad_filter);
}

fn check_everywhere<T: Bounded>(shape: &ConvShape) {
    let pool = Pool::new(2).unwrap();
    for isa in isas() {
        check::<T>(shape, &compute(shape, isa, &pool));
    }
}

fn shape() -> impl Strategy<Value = ConvShape> {
    let pair = |most: usize| [1..=most, 1..=most];
    let channels = prop_oneof![
        // Groups, input and output channels of a group.
        3 => (Just(1usize), 1..20usize, 1..40usize),
        1 => (2..4usize, 1..6usize, 1..6usize),
        1 => (2..20usize, Just(1usize), Just(1usize)),
    ];
    let sizes = (0..3usize, pair(9), pair(4), pair(3), pair(3));
    (sizes, [[0..3usize, 0..3usize], [0..3usize, 0..3usize]], channels).prop_filter_map(
        "the filter reaches beyond the image",
        |((batch, [height, width], [down, across], stride, dilation), padding, (groups, input, output))| {
            let image = [batch, height, width, groups * input];
            ConvShape::new(image, [down, across, input, groups * output], stride, padding, dilation, groups)
                .ok()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn convolutions_of_f32_and_their_gradients_match_direct_loops(shape in shape()) {
        check_everywhere::<f32>(&shape);
    }

    #[test]
    fn convolutions_of_f64_and_their_gradients_match_direct_loops(shape in shape()) {
        check_everywhere::<f64>(&shape);
    }

    #[test]
    fn convolutions_of_f16_and_their_gradients_match_direct_loops(shape in shape()) {
        check_everywhere::<f16>(&shape);
    }

    #[test]
    fn convolutions_of_bf16_and_their_gradients_match_direct_loops(shape in shape()) {
        check_everywhere::<bf16>(&shape);
    }
}

/// Filters of three by three over many channels, on many images with odd sizes and paddings.
fn winograd_shape() -> impl Strategy<Value = ConvShape> {
    let padding = [[0..3usize, 0..3usize], [0..3usize, 0..3usize]];
    (32..40usize, [3..10usize, 3..10usize], padding, 16..40usize, 16..72usize).prop_filter_map(
        "the filter reaches beyond the image",
        |(batch, [height, width], padding, channels, out_channels)| {
            let (image, filter) = ([batch, height, width, channels], [3, 3, channels, out_channels]);
            ConvShape::new(image, filter, [1, 1], padding, [1, 1], 1).ok()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn filters_of_three_by_three_match_direct_loops_with_the_same_bits_on_any_number_of_threads(
        shape in winograd_shape()
    ) {
        for isa in isas() {
            let first = compute::<f32>(&shape, isa, &Pool::new(1).unwrap());
            check_by_tiles(&shape, &first);
            for threads in [2, 3] {
                let other = compute::<f32>(&shape, isa, &Pool::new(threads).unwrap());
                assert_same_bits(&first.forward, &other.forward);
                assert_same_bits(&first.grad_input, &other.grad_input);
                assert_same_bits(&first.grad_filter, &other.grad_filter);
            }
        }
    }
}

/// Groups of a few channels, on images wide enough for several pixels and many channels to be summed at once.
fn grouped_shape() -> impl Strategy<Value = ConvShape> {
    let padding = [[0..5usize, 0..5usize], [0..5usize, 0..5usize]];
    let taps = prop_oneof![1..4usize, Just(5usize), Just(7usize), 8..10usize];
    let sizes = (1..3usize, [1..12usize, 1..40usize], [1..4usize, 1..3usize], [1..4usize, 1..4usize]);
    let group = prop_oneof![4 => Just(1usize), 1 => Just(2usize), 2 => Just(4usize), 2 => Just(8usize), 1 => Just(3usize)];
    (sizes, taps, padding, (2..90usize, group)).prop_filter_map(
        "the filter reaches beyond the image",
        |((batch, [height, width], stride, [down, dilation]), across, padding, (channels, group))| {
            let groups = (channels / group).max(2);
            let channels = groups * group;
            let (image, filter) = ([batch, height, width, channels], [down, across, group, channels]);
            ConvShape::new(image, filter, stride, padding, [1, dilation], groups).ok()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn convolutions_in_small_groups_match_direct_loops_with_the_same_bits_on_any_number_of_threads(
        shape in grouped_shape()
    ) {
        for isa in isas() {
            let first = compute::<f32>(&shape, isa, &Pool::new(1).unwrap());
            check(&shape, &first);
            let other = compute::<f32>(&shape, isa, &Pool::new(3).unwrap());
            assert_same_bits(&first.forward, &other.forward);
            assert_same_bits(&first.grad_input, &other.grad_input);
            assert_same_bits(&first.grad_filter, &other.grad_filter);
        }
    }
}

#[test]
fn filters_of_three_by_three_are_as_accurate_as_sums_of_products() {
    let shape = same([8, 8, 48, 64], 1);
    let Operands { input, filter, output_grad } = operands::<f32>(&shape);
    let mut sums = Results {
        forward: vec![0f32; output_grad.len()],
        grad_input: vec![0f32; input.len()],
        grad_filter: vec![0f32; filter.len()],
    };
    for_each_product(&shape, |i, f, o| {
        sums.forward[o] += input[i] * filter[f];
        sums.grad_input[i] += output_grad[o] * filter[f];
        sums.grad_filter[f] += output_grad[o] * input[i];
    });
    let exact = exact::<f32>(&shape);
    let results = compute::<f32>(&shape, Isa::detect(), &Pool::new(2).unwrap());
    let compare = |name: &str, values: &[f32], sums: &[f32], exact: &[Sum]| {
        let errors = |values: &[f32]| -> [f64; 2] {
            let errors = values.iter().zip(exact).map(|(&value, sum)| (f64::from(value) - sum.value).abs());
            errors.fold([0.0; 2], |[squares, most], error| [squares + error * error, most.max(error)])
        };
        let ([squares, most], [sum_squares, sum_most]) = (errors(values), errors(sums));
        assert!(squares.sqrt() <= 2.5 * sum_squares.sqrt(), "{name}: {squares} and {sum_squares}");
        assert!(most <= 4.0 * sum_most, "{name}: {most} and {sum_most}");
    };
    compare("output", &results.forward, &sums.forward, &exact.forward);
    compare("input gradient", &results.grad_input, &sums.grad_input, &exact.grad_input);
    compare("filter gradient", &results.grad_filter, &sums.grad_filter, &exact.grad_filter);
}

fn same([batch, size, channels, out_channels]: [usize; 4], stride: usize) -> ConvShape {
    let (image, filter) = ([batch, size, size, channels], [3, 3, channels, out_channels]);
    ConvShape::new(image, filter, [stride; 2], [[1, 1], [1, 1]], [1, 1], 1).unwrap()
}

#[test]
fn layers_of_real_networks_match_direct_loops_with_the_same_bits_on_any_number_of_threads() {
    let pointwise = ConvShape::new([2, 8, 8, 24], [1, 1, 24, 40], [1, 1], [[0, 0]; 2], [1, 1], 1).unwrap();
    let grouped = ConvShape::new([2, 9, 9, 24], [3, 3, 8, 48], [2, 2], [[1, 1]; 2], [1, 1], 3).unwrap();
    let depthwise = ConvShape::new([3, 17, 15, 20], [3, 3, 1, 20], [1, 1], [[1, 1]; 2], [1, 1], 20).unwrap();
    let shapes = [same([5, 32, 3, 32], 1), same([2, 16, 40, 33], 1), same([2, 15, 20, 70], 2)];
    let pools = [1, 2, 3].map(|threads| Pool::new(threads).unwrap());
    for shape in shapes.into_iter().chain([pointwise, grouped, depthwise]) {
        let first = compute::<f32>(&shape, Isa::detect(), &pools[0]);
        check(&shape, &first);
        for pool in &pools[1..] {
            let other = compute::<f32>(&shape, Isa::detect(), pool);
            assert_same_bits(&first.forward, &other.forward);
            assert_same_bits(&first.grad_input, &other.grad_input);
            assert_same_bits(&first.grad_filter, &other.grad_filter);
        }
        check_everywhere::<bf16>(&shape);
    }
}

#[test]
fn input_pixels_between_the_windows_have_no_gradient() {
    let shape = ConvShape::new([1, 5, 5, 2], [1, 1, 2, 3], [2, 3], [[0, 0]; 2], [1, 1], 1).unwrap();
    let results = compute::<f32>(&shape, Isa::detect(), &Pool::new(2).unwrap());
    for (_, y, x) in positions(1, shape.input) {
        let pixel = &results.grad_input[2 * (5 * y + x)..][..2];
        assert_eq!(pixel != [0.0, 0.0], y % 2 == 0 && x % 3 == 0, "pixel {y}, {x}");
    }
}

#[test]
fn workspace_stays_small_however_large_the_image() {
    for size in [64, 256, 1024] {
        let shape = same([8, size, 64, 64], 1);
        for pass in Pass::ALL {
            let bytes = workspace::<f32>(pass, &shape, 2);
            assert!(bytes <= 4 << 20, "{bytes} bytes for images of {size} by {size}");
        }
    }
}

#[test]
fn sizes_that_make_no_convolution_are_refused_with_the_reason() {
    let refuse = |image, filter, stride, groups| {
        ConvShape::new(image, filter, stride, [[0, 0]; 2], [1, 1], groups).unwrap_err().to_string()
    };
    assert!(refuse([1, 4, 4, 3], [5, 1, 3, 8], [1, 1], 1).contains("reach over 5, more than 4"));
    assert!(
        refuse([1, 4, 4, 3], [3, 3, 4, 8], [1, 1], 1).contains("must have 3 / 1 = 3 input channels, not 4")
    );
    assert!(refuse([1, 4, 4, 3], [3, 3, 1, 8], [1, 1], 2).contains("2 groups must divide 3"));
    assert!(refuse([1, 4, 4, 3], [3, 3, 3, 8], [0, 1], 1).contains("must be at least 1"));
    assert!(refuse([1, 4, 4, 3], [0, 3, 3, 8], [1, 1], 1).contains("no taps"));
    assert!(refuse([usize::MAX, 4, 4, 3], [3, 3, 3, 8], [1, 1], 1).contains("too large"));
}

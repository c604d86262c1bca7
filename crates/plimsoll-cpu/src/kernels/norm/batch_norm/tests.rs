use super::*;
use crate::kernels::testing::*;
use plimsoll_graph::DType;

const EPSILON: f64 = 1e-3;
/// Rows and channels: less than a line, lines with a rest, one channel, more channels than a part has.
const SHAPES: [(usize, usize); 7] = [(1, 1), (2, 3), (1000, 1), (333, 7), (9000, 32), (40, 300), (5, 1025)];

/// Channels far from zero, with the mean and variance of each.
fn case(random: &mut Random, dtype: DType, rows: usize, channels: usize) -> (Tensor, Vec<f64>, Vec<f64>) {
    let x = (0..rows * channels).map(|at| random.float() + (at % channels % 7) as f64).collect();
    let x = Tensor::new(dtype, &[rows, channels], x);
    let values = x.values();
    let over_rows = |of: &dyn Fn(f64, usize) -> f64| -> Vec<f64> {
        let sum = |channel: usize| {
            values.iter().skip(channel).step_by(channels).map(|&x| of(x, channel)).sum::<f64>()
        };
        (0..channels).map(|channel| sum(channel) / rows as f64).collect()
    };
    let mean = over_rows(&|x, _| x);
    let variance = over_rows(&|x, channel| (x - mean[channel]).powi(2));
    (x, mean, variance)
}

fn reciprocal(variance: f64) -> f64 {
    1.0 / (variance + EPSILON).sqrt()
}

#[test]
fn moments_are_those_of_each_channel() {
    for dtype in FLOATS {
        for (rows, channels) in SHAPES {
            let (x, mean, variance) = case(&mut Random::new(rows as u64), dtype, rows, channels);
            let expected: Vec<f64> = variance.iter().map(|&variance| reciprocal(variance)).collect();
            let accumulator = dtype.accumulator();
            let prepare = |reads: &[_], writes: &[_]| prepare_moments(EPSILON, reads, writes);
            let actual = run(prepare, &[&x], &[(accumulator, &[channels][..]); 3], &[]);
            let what = |name| format!("{name} of {dtype}[{rows}, {channels}]");
            assert_close(&actual[0], &mean, 128.0 * unit(accumulator), &what("mean"));
            assert_close(&actual[1], &variance, 128.0 * unit(accumulator), &what("variance"));
            assert_close(&actual[2], &expected, 500.0 * unit(accumulator), &what("reciprocal"));
        }
    }
}

#[test]
fn a_small_variance_survives_a_large_mean() {
    let x: Vec<f64> = (0..6000).map(|at| 4096.0 + f64::from(at % 3)).collect();
    let x = Tensor::new(DType::F32, &[6000, 1], x);
    let prepare = |reads: &[_], writes: &[_]| prepare_moments(EPSILON, reads, writes);
    let actual = run(prepare, &[&x], &[(DType::F32, &[1][..]); 3], &[]);
    assert_close(&actual[0], &[4097.0], 1e-7, "mean");
    assert_close(&actual[1], &[2.0 / 3.0], 1e-5, "variance");
}

#[test]
fn gradients_follow_the_formula_in_place_or_not() {
    for dtype in FLOATS {
        for (rows, channels) in SHAPES {
            let mut random = Random::new(rows as u64);
            let (x, mean, variance) = case(&mut random, dtype, rows, channels);
            let accumulator = dtype.accumulator();
            let (mean, variance) = (
                Tensor::new(accumulator, &[channels], mean),
                Tensor::new(accumulator, &[channels], variance),
            );
            let (gamma, dy) = (random.tensor(dtype, &[channels]), random.tensor(dtype, &[rows, channels]));
            let normal = |row: usize, channel: usize| {
                (x.at(&[row, channel]) - mean.at(&[channel])) * reciprocal(variance.at(&[channel]))
            };
            let over_rows = |of: &dyn Fn(usize, usize) -> f64| -> Vec<f64> {
                (0..channels).map(|channel| (0..rows).map(|row| of(row, channel)).sum()).collect()
            };
            let dgamma = over_rows(&|row, channel| dy.at(&[row, channel]) * normal(row, channel));
            let dbeta = over_rows(&|row, channel| dy.at(&[row, channel]));
            let dx: Vec<f64> = (0..rows * channels)
                .map(|at| {
                    let (row, channel) = (at / channels, at % channels);
                    let along = (dbeta[channel] + normal(row, channel) * dgamma[channel]) / rows as f64;
                    let scale = gamma.at(&[channel]) * reciprocal(variance.at(&[channel]));
                    (dy.at(&[row, channel]) - along) * scale
                })
                .collect();
            let results = [(dtype, &[rows, channels][..]), (dtype, &[channels]), (dtype, &[channels])];
            for in_place in [&[][..], &[(0, 0)], &[(0, 4)]] {
                let prepare = |reads: &[_], writes: &[_]| prepare_grad(EPSILON, reads, writes);
                let actual = run(prepare, &[&x, &gamma, &mean, &variance, &dy], &results, in_place);
                let tolerance = 2.0 * unit(dtype) + 1000.0 * unit(accumulator);
                let what = |name| format!("{name} of {dtype}[{rows}, {channels}]");
                assert_close(&actual[1], &dgamma, tolerance, &what("dgamma"));
                assert_close(&actual[2], &dbeta, tolerance, &what("dbeta"));
                assert_close(&actual[0], &dx, tolerance, &what("dx"));
            }
        }
    }
}

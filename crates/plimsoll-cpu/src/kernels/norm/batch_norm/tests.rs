use crate::testing::*;
use plimsoll_graph::{DType, Op};

const EPSILON: f64 = 1e-3;
const MOMENTS: Op = Op::BatchMoments { epsilon: EPSILON };
/// Rows and channels: less than a line, lines with a rest, one channel, more channels than a part has.
const SHAPES: [(usize, usize); 7] = [(1, 1), (2, 3), (1000, 1), (333, 7), (9000, 32), (40, 300), (5, 1025)];

/// Channels far from zero.
fn rows(numbers: &mut Numbers, dtype: DType, rows: usize, channels: usize) -> Tensor {
    let x = (0..rows * channels).map(|at| numbers.float() + (at % channels % 7) as f64).collect();
    Tensor::new(dtype, &[rows, channels], x)
}

#[test]
fn moments_are_those_of_each_channel() {
    for dtype in FLOATS {
        for (count, channels) in SHAPES {
            let x = rows(&mut Numbers::new(count as u64), dtype, count, channels);
            let sum = unit(dtype.accumulator());
            check(&MOMENTS, &[&x], &[], &[128.0 * sum, 128.0 * sum, 500.0 * sum]);
        }
    }
}

#[test]
fn a_small_variance_survives_a_large_mean() {
    let x: Vec<f64> = (0..6000).map(|at| 4096.0 + f64::from(at % 3)).collect();
    let actual = run_op(&MOMENTS, &[&Tensor::new(DType::F32, &[6000, 1], x)], &[]);
    assert_close(&actual[0], &[4097.0], 1e-7, "mean");
    assert_close(&actual[1], &[2.0 / 3.0], 1e-5, "variance");
}

#[test]
fn moments_far_from_zero_are_as_exact_as_near_it() {
    for offset in [1e4, 1e5] {
        for (count, channels) in SHAPES {
            let mut numbers = Numbers::new(count as u64);
            let x = (0..count * channels).map(|_| offset + 2.0 * numbers.float()).collect();
            let unit = unit(DType::F32);
            let tolerances = [2.0 * unit, 32.0 * unit, 32.0 * unit];
            check(
                &Op::BatchMoments { epsilon: 1.0 },
                &[&Tensor::new(DType::F32, &[count, channels], x)],
                &[],
                &tolerances,
            );
        }
    }
}

#[test]
fn gradients_follow_the_formula_in_place_or_not() {
    for dtype in FLOATS {
        for (count, channels) in SHAPES {
            let mut numbers = Numbers::new(count as u64);
            let accumulator = dtype.accumulator();
            let x = rows(&mut numbers, dtype, count, channels);
            let [mean, variance, _] = reference(&MOMENTS, &[&x]).try_into().unwrap();
            let [mean, variance] =
                [mean, variance].map(|values| Tensor::new(accumulator, &[channels], values));
            let (gamma, dy) = (numbers.tensor(dtype, &[channels]), numbers.tensor(dtype, &[count, channels]));
            let tolerance = 2.0 * unit(dtype) + 1000.0 * unit(accumulator);
            for in_place in [&[][..], &[(0, 0)], &[(0, 4)]] {
                let op = Op::BatchNormGrad { epsilon: EPSILON };
                check(&op, &[&x, &gamma, &mean, &variance, &dy], in_place, &[tolerance; 3]);
            }
        }
    }
}

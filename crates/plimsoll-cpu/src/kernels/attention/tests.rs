//! Attention and its gradient, of dense and of strided operands.

use crate::testing::*;
use plimsoll_graph::op::Attention;
use plimsoll_graph::{DType, Op};

/// Batch, queries, keys, heads, width, causal.
const CASES: [(usize, usize, usize, usize, usize, bool); 10] = [
    (2, 0, 3, 1, 2, true),
    (1, 1, 1, 1, 1, true),
    (2, 5, 7, 3, 4, false),
    (1, 5, 9, 2, 8, true),
    (1, 9, 5, 1, 3, true),
    (1, 70, 70, 2, 16, true),
    (1, 130, 300, 1, 33, true),
    (2, 65, 257, 1, 8, false),
    (1, 3, 600, 2, 24, false),
    (1, 200, 640, 1, 8, true),
];

#[test]
fn outputs_are_values_weighted_by_probabilities_of_dense_or_strided_operands() {
    for dtype in FLOATS {
        for (batch, queries, keys, heads, width, causal) in CASES {
            for order in [[0, 1, 2, 3], [2, 0, 1, 3], [3, 1, 0, 2]] {
                let mut numbers = Numbers::new(queries as u64);
                let q = numbers.strided(dtype, &[batch, queries, heads, width], &order);
                let [k, v] = [0, 1].map(|_| numbers.strided(dtype, &[batch, keys, heads, width], &order));
                let op = Op::Attention(Attention { causal, scale: 1.5 });
                let sum = unit(dtype.accumulator());
                check(&op, &[&q, &k, &v], &[], &[unit(dtype) + 64.0 * sum, 64.0 * sum]);
            }
        }
    }
}

#[test]
fn gradients_follow_the_formula_of_dense_or_strided_operands() {
    for dtype in FLOATS {
        for (batch, queries, keys, heads, width, causal) in CASES {
            for order in [[0, 1, 2, 3], [2, 0, 1, 3]] {
                let mut numbers = Numbers::new(keys as u64);
                let (query_dims, key_dims) = ([batch, queries, heads, width], [batch, keys, heads, width]);
                let q = numbers.strided(dtype, &query_dims, &order);
                let [k, v] = [0, 1].map(|_| numbers.strided(dtype, &key_dims, &order));
                let dout = numbers.strided(dtype, &query_dims, &order);
                let attention = Attention { causal, scale: 0.7 };
                let [output, log_sums] =
                    reference(&Op::Attention(attention), &[&q, &k, &v]).try_into().unwrap();
                let output = Tensor::new(dtype, &query_dims, output);
                let log_sums = Tensor::new(dtype.accumulator(), &[batch, heads, queries], log_sums);
                // The output that a query's mean slope is computed from is rounded to the type.
                let tolerance = 8.0 * unit(dtype) + 200.0 * unit(dtype.accumulator());
                let reads = [&q, &k, &v, &output, &log_sums, &dout];
                check(&Op::AttentionGrad(attention), &reads, &[], &[tolerance; 3]);
            }
        }
    }
}

#[test]
fn large_scores_do_not_overflow() {
    let q = Tensor::new(DType::F32, &[1, 1, 1, 1], vec![100.0]);
    let k = Tensor::new(DType::F32, &[1, 300, 1, 1], (0..300).map(f64::from).collect());
    let op = Op::Attention(Attention { causal: false, scale: 1.0 });
    let actual = run_op(&op, &[&q, &k, &k], &[]);
    assert_close(&actual[0], &[299.0], 1e-6, "output");
    assert_close(&actual[1], &[29900.0], 1e-6, "log-sum");
}

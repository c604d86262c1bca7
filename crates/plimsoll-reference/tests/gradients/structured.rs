use crate::support::{Numbers, check};
use plimsoll_graph::DType;
use plimsoll_graph::op::{Attention, Op, Pool2d, PoolKind};
use plimsoll_reference::Tensor;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn softmaxes_match_differences(seed: u64, rows in 1..3usize, width in 1..5usize) {
        let mut numbers = Numbers(seed);
        for op in [Op::Softmax, Op::LogSoftmax] {
            check(&[numbers.range(&[2, rows, width], -3.0, 3.0)], |g, x| g.apply(op, x));
        }
        check(&[numbers.tensor(&[width])], |g, x| g.apply(Op::Softmax, x));
    }

    #[test]
    fn cross_entropy_matches_differences(seed: u64, n in 1..5usize, classes in 1..5usize) {
        let mut numbers = Numbers(seed);
        // A negative label is one that does not count.
        let operands =
            [numbers.range(&[n, classes], -3.0, 3.0), numbers.integers(&[n], -1, classes as i64)];
        check(&operands, |g, x| g.apply(Op::CrossEntropy, x));
    }

    #[test]
    fn norms_match_differences(seed: u64, rows in 2..5usize, channels in 2..5usize, rank in 2..4usize) {
        let mut numbers = Numbers(seed);
        let shape = if rank == 2 { vec![rows, channels] } else { vec![2, rows, channels] };
        for op in [Op::LayerNorm { epsilon: 0.1 }, Op::BatchNorm { epsilon: 0.1 }] {
            let operands =
                [numbers.tensor(&shape), numbers.tensor(&[channels]), numbers.tensor(&[channels])];
            check(&operands, |g, x| g.apply(op, x));
        }
    }

    #[test]
    fn pooling_matches_differences(
        seed: u64,
        window in [1..4usize, 1..4usize],
        stride in [1..3usize, 1..3usize],
        padding in [0..3usize, 0..3usize, 0..3usize, 0..3usize],
        mean: bool,
    ) {
        let kind = if mean { PoolKind::Mean } else { PoolKind::Max };
        let most = [window[0], window[0], window[1], window[1]];
        let padding = std::array::from_fn(|i| padding[i].min(most[i] - 1));
        let pool = Pool2d { kind, window, stride, padding };
        let images = [2, window[0] + 1, window[1] + 2, 2];
        check(&Numbers(seed).apart::<1>(&images), |g, x| g.apply(Op::Pool2d(pool), x));
    }

    #[test]
    fn attention_matches_differences(
        seed: u64,
        queries in 1..4usize,
        keys in 1..5usize,
        heads in 1..3usize,
        causal: bool,
    ) {
        let mut numbers = Numbers(seed);
        let operands = [
            numbers.tensor(&[2, queries, heads, 2]),
            numbers.tensor(&[2, keys, heads, 2]),
            numbers.tensor(&[2, keys, heads, 2]),
        ];
        check(&operands, |g, x| g.apply(Op::Attention(Attention { causal, scale: 0.7 }), x));
    }

    #[test]
    fn recurrent_layers_match_differences(seed: u64, batch in 1..3usize, time in 1..4usize, hidden in 1..3usize) {
        let mut numbers = Numbers(seed);
        let width = 2;
        let mut operands = |gates: usize| {
            vec![
                numbers.tensor(&[batch, time, width]),
                numbers.tensor(&[width, gates * hidden]),
                numbers.tensor(&[hidden, gates * hidden]),
                numbers.tensor(&[gates * hidden]),
            ]
        };
        let (mut lstm, mut gru) = (operands(4), operands(3));
        lstm.extend([numbers.tensor(&[batch, hidden]), numbers.tensor(&[batch, hidden])]);
        gru.extend([numbers.tensor(&[3 * hidden]), numbers.tensor(&[batch, hidden])]);
        check(&lstm, |g, x| g.apply(Op::Lstm, x));
        check(&gru, |g, x| g.apply(Op::Gru, x));
    }
}

#[test]
fn a_recurrent_layer_without_time_passes_no_gradient_to_its_weights() {
    let mut numbers = Numbers(1);
    let operands = [
        Tensor::new(&[2, 0, 3], DType::F64, vec![]),
        numbers.tensor(&[3, 8]),
        numbers.tensor(&[2, 8]),
        numbers.tensor(&[8]),
        numbers.tensor(&[2, 2]),
        numbers.tensor(&[2, 2]),
    ];
    check(&operands, |g, x| g.apply(Op::Lstm, x));
}

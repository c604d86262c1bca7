use crate::support::{Numbers, check, inputs};
use plimsoll_graph::op::{Conv2d, Op};
use plimsoll_graph::{Graph, Shape, gradients};
use proptest::collection::vec;
use proptest::prelude::*;

/// A matrix shape with leading axes, stored transposed or not.
fn matrix(lead: &[usize], rows: usize, columns: usize, transposed: bool) -> Vec<usize> {
    let last = if transposed { [columns, rows] } else { [rows, columns] };
    [lead, &last].concat()
}

/// A convolution with images and a filter it fits.
fn convolution() -> impl Strategy<Value = (Conv2d, [usize; 4], [usize; 4])> {
    let pair = |range: std::ops::Range<usize>| [range.clone(), range];
    (pair(1..3), pair(0..3), pair(0..2), pair(1..3), 1..3usize, pair(1..3), pair(1..4), 1..3usize).prop_map(
        |(stride, before, after, dilation, groups, window, spare, channels)| {
            let conv =
                Conv2d { stride, padding: [before[0], after[0], before[1], after[1]], dilation, groups };
            let extent = |axis: usize| dilation[axis] * (window[axis] - 1) + spare[axis];
            let images = [2, extent(0), extent(1), groups * channels];
            (conv, images, [window[0], window[1], channels, groups * 2])
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn matrix_products_match_differences(
        seed: u64,
        lead in vec(1..3usize, 0..3),
        m in 1..4usize,
        k in 1..4usize,
        n in 1..4usize,
        transpose_a: bool,
        transpose_b: bool,
    ) {
        let mut numbers = Numbers(seed);
        let a = numbers.tensor(&matrix(&lead, m, k, transpose_a));
        let b = numbers.tensor(&matrix(&lead, k, n, transpose_b));
        check(&[a, b], |g, x| g.dot_general(x[0], x[1], transpose_a, transpose_b));
    }

    #[test]
    fn convolutions_and_their_gradients_match_differences(seed: u64, (conv, images, filter) in convolution()) {
        let mut numbers = Numbers(seed);
        let input = Shape::new(&images).unwrap();
        let taps = Shape::new(&filter).unwrap();
        let output = conv.output(&input, &taps).unwrap();
        let (x, f, dy) = (numbers.tensor(&images), numbers.tensor(&filter), numbers.tensor(&output));
        check(&[x.clone(), f.clone()], |g, v| g.apply(Op::Conv2d(conv), v));
        check(&[f, dy.clone()], |g, v| g.apply(Op::Conv2dInputGrad { conv, input }, v));
        check(&[x, dy], |g, v| g.apply(Op::Conv2dFilterGrad { conv, filter: taps }, v));
    }
}

#[test]
fn gradients_of_matrix_products_are_matrix_products_alone() {
    for (transpose_a, transpose_b) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut g = Graph::new();
        let mut numbers = Numbers(0);
        let a = numbers.tensor(&matrix(&[5], 2, 3, transpose_a));
        let b = numbers.tensor(&matrix(&[5], 3, 4, transpose_b));
        let (x, _) = inputs(&mut g, &[a, b]);
        let y = g.dot_general(x[0], x[1], transpose_a, transpose_b).unwrap();
        let seed = g.full_like(1.0, y).unwrap();
        let before = g.nodes().len();
        gradients(&mut g, &[(y, Some(seed))], &x).unwrap();
        let added: Vec<&str> = g.nodes()[before..].iter().map(|node| node.op.name()).collect();
        assert_eq!(added, ["dot", "dot"]);
    }
}

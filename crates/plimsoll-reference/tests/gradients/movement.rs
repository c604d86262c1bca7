use crate::support::{Numbers, check, inputs};
use plimsoll_graph::op::{Op, Pad, Reduction, Slice};
use plimsoll_graph::{DType, Graph, Shape, gradients};
use plimsoll_reference::{Tensor, evaluate};
use proptest::collection::vec;
use proptest::prelude::*;

fn shape() -> impl Strategy<Value = Vec<usize>> {
    vec(1..4usize, 1..4)
}

fn fixed(dims: Vec<usize>) -> Shape {
    Shape::new(&dims).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn reductions_match_differences(seed: u64, shape in shape(), mask in 1..8usize) {
        let axes: Vec<usize> = (0..shape.len()).filter(|axis| mask >> axis & 1 == 1).collect();
        for kind in [Reduction::Sum, Reduction::Max, Reduction::Min] {
            check(&Numbers(seed).apart::<1>(&shape), |g, x| g.reduce(kind, x[0], &axes));
        }
    }

    #[test]
    fn broadcasts_match_differences(seed: u64, shape in shape(), lead in vec(1..3usize, 0..2), mask in 0..8usize) {
        let from: Vec<usize> =
            shape.iter().enumerate().map(|(axis, &dim)| if mask >> axis & 1 == 1 { 1 } else { dim }).collect();
        let to = [lead, shape].concat();
        check(&[Numbers(seed).tensor(&from)], |g, x| g.broadcast(x[0], &to));
    }

    #[test]
    fn reshapes_match_differences(seed: u64, shape in shape()) {
        let flat = shape.iter().product();
        check(&[Numbers(seed).tensor(&shape)], |g, x| g.reshape(x[0], &[1, flat]));
    }

    #[test]
    fn permutes_match_differences(
        seed: u64,
        shape in vec(1..4usize, 4),
        order in Just(vec![0, 1, 2, 3]).prop_shuffle(),
    ) {
        check(&[Numbers(seed).tensor(&shape)], |g, x| g.permute(x[0], &order));
    }

    #[test]
    fn slices_match_differences(seed: u64, axes in vec((0..3usize, 1..5usize, 0..3usize, 1..4usize), 1..3)) {
        let slice = Slice {
            start: fixed(axes.iter().map(|a| a.0).collect()),
            stop: fixed(axes.iter().map(|a| a.0 + a.1).collect()),
            step: fixed(axes.iter().map(|a| a.3).collect()),
        };
        let shape: Vec<usize> = axes.iter().map(|a| a.0 + a.1 + a.2).collect();
        check(&[Numbers(seed).tensor(&shape)], |g, x| g.apply(Op::Slice(Box::new(slice)), x));
    }

    #[test]
    fn slices_side_by_side_match_differences(
        seed: u64,
        extents in vec(1..4usize, 1..5),
        uses in vec(0..5usize, 1..8),
        axis in 0..3usize,
    ) {
        // Slices that cover an axis, and then some of them again or others that overlap them.
        let ends: Vec<usize> = extents.iter().scan(0, |end, extent| { *end += extent; Some(*end) }).collect();
        let mut shape = [2, 2, 2];
        shape[axis] = ends[ends.len() - 1];
        check(&[Numbers(seed).tensor(&shape)], |g, x| {
            let mut parts = vec![];
            for index in (0..extents.len()).rev().chain(uses) {
                let end = ends[index % ends.len()];
                let start = if index < ends.len() { end - extents[index] } else { end / 2 };
                let part = g.slice_axis(x[0], axis, start..end)?;
                parts.push(if index % 2 == 0 { g.exp(part)? } else { g.sin(part)? });
            }
            g.concat(&parts, axis)
        });
    }

    #[test]
    fn pads_match_differences(seed: u64, axes in vec((0..3usize, 1..4usize, 0..3usize, 0..3usize), 1..3)) {
        let pad = Pad {
            before: fixed(axes.iter().map(|a| a.0).collect()),
            after: fixed(axes.iter().map(|a| a.2).collect()),
            between: fixed(axes.iter().map(|a| a.3).collect()),
            value: 7.0,
        };
        let shape: Vec<usize> = axes.iter().map(|a| a.1).collect();
        check(&[Numbers(seed).tensor(&shape)], |g, x| g.apply(Op::Pad(Box::new(pad)), x));
    }

    #[test]
    fn concats_match_differences(seed: u64, extents in vec(1..4usize, 1..4), axis in 0..3usize) {
        let mut numbers = Numbers(seed);
        let parts: Vec<Tensor> = extents
            .iter()
            .map(|&extent| {
                let mut shape = [2, 2, 2];
                shape[axis] = extent;
                numbers.tensor(&shape)
            })
            .collect();
        check(&parts, |g, x| g.concat(x, axis));
    }

    #[test]
    fn gathers_match_differences(seed: u64, rows in 1..4usize, which in vec(1..3usize, 0..3)) {
        let mut numbers = Numbers(seed);
        let operands = [numbers.tensor(&[rows, 2]), numbers.integers(&which, 0, rows as i64)];
        check(&operands, |g, x| g.apply(Op::Gather, x));
    }

    #[test]
    fn scatters_match_differences(seed: u64, rows in 1..4usize, which in vec(1..3usize, 0..3)) {
        let mut numbers = Numbers(seed);
        let updates = [&which[..], &[2]].concat();
        // Indices on both sides of the table are skipped, and their updates get no gradient.
        let operands = [numbers.integers(&which, -1, rows as i64 + 1), numbers.tensor(&updates)];
        check(&operands, |g, x| g.apply(Op::ScatterAdd { rows }, x));
    }
}

#[test]
fn equally_large_elements_share_the_gradient() {
    for (kind, expected) in [(Reduction::Max, [0.0, 1.0, 1.0, 0.0]), (Reduction::Min, [1.0, 0.0, 0.0, 1.0])] {
        let mut g = Graph::new();
        let (x, values) = inputs(&mut g, &[Tensor::new(&[4], DType::F64, vec![1.0, 3.0, 3.0, 1.0])]);
        let y = g.reduce(kind, x[0], &[0]).unwrap();
        let double = g.constant(2.0, DType::F64).unwrap();
        let found = gradients(&mut g, &[(y, Some(double))], &x).unwrap();
        assert_eq!(evaluate(&g, &values, &[found[0].unwrap()])[0].data, expected);
    }
}

#[test]
fn empty_parts_have_gradients_of_zero() {
    let mut g = Graph::new();
    let (x, values) = inputs(&mut g, &[Tensor::new(&[5], DType::F64, vec![1.0; 5])]);
    let slice = Slice { start: fixed(vec![2]), stop: fixed(vec![2]), step: fixed(vec![3]) };
    let nothing = g.apply(Op::Slice(Box::new(slice)), &x).unwrap();
    let pad = Pad { before: fixed(vec![2]), after: fixed(vec![1]), between: fixed(vec![4]), value: 1.0 };
    let border = g.apply(Op::Pad(Box::new(pad)), &[nothing]).unwrap();
    let found = gradients(&mut g, &[(border, None)], &x).unwrap();
    assert_eq!(evaluate(&g, &values, &[found[0].unwrap()])[0].data, [0.0; 5]);
}

#[test]
fn gradients_of_slices_that_cover_a_value_are_put_together_without_zeros() {
    let mut g = Graph::new();
    let x = g.input("x", &[2, 6], DType::F32).unwrap();
    let parts = [2..3, 0..2, 3..6].map(|range| g.slice_axis(x, 1, range).unwrap());
    let parts = parts.map(|part| g.exp(part).unwrap());
    let before = g.nodes().len();
    let outputs = parts.map(|part| (part, None));
    let found = gradients(&mut g, &outputs, &[x]).unwrap()[0].unwrap();
    assert_eq!((g.op(found).name(), g.shape(found)), ("concat", g.shape(x)));
    let made: Vec<&str> = g.nodes()[before..].iter().map(|node| node.op.name()).collect();
    assert!(!made.contains(&"pad") && !made.contains(&"add"), "{made:?}");
}

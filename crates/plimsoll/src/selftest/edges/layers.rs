//! Products, convolutions, pooling, attention and recurrent layers.

use super::{Bound, Edge, array, floats, ordinary};
use crate::{Array, Result, Tensor};
use plimsoll_graph::op::{Conv2d, Pool2d, PoolKind};

/// Whole numbers that sums of products of stay exact for.
fn whole(at: usize) -> f32 {
    ((at * 29 + 5) % 15) as f32 - 7.0
}

/// Ordinary numbers, with something else at one position.
fn with(shape: &[usize], position: usize, value: f32) -> Array {
    floats(shape, |at| if at == position { value } else { ordinary(at) })
}

pub(super) fn list() -> Vec<Edge> {
    let mut list = vec![];
    products(&mut list);
    windows(&mut list);
    attention(&mut list);
    recurrent(&mut list);
    list
}

fn products(list: &mut Vec<Edge>) {
    let product = |x: &[Tensor]| x[0].matmul(&x[1]);
    let exact = Some(Bound::EXACT);
    for [rows, inner, columns] in [[1, 1, 1], [17, 33, 9], [64, 300, 130], [3, 0, 5], [1, 1000, 1]] {
        let operands = vec![floats(&[rows, inner], whole), floats(&[inner, columns], whole)];
        let name = format!("matmul of whole numbers {rows}×{inner}×{columns}");
        list.push(Edge::new(name, operands, product, Bound::EXACT, exact));
    }
    for (about, value) in [("NaN", f32::NAN), ("an infinity", f32::INFINITY), ("an outlier", 1e20)] {
        let bound = Bound::of_largest(40.0);
        let left = vec![with(&[20, 40], 123, value), floats(&[40, 24], ordinary)];
        list.push(Edge::new(format!("matmul with {about} on the left"), left, product, bound, Some(bound)));
        let right = vec![floats(&[20, 40], ordinary), with(&[40, 24], 321, value)];
        list.push(Edge::new(format!("matmul with {about} on the right"), right, product, bound, Some(bound)));
    }
    let bound = Bound::of_largest(70.0);
    list.push(Edge::new(
        "matmul of a long sum",
        vec![
            floats(&[4, 20_000], |at| 0.5 + 0.1 * ordinary(at)),
            floats(&[20_000, 4], |at| 0.5 + 0.1 * ordinary(at)),
        ],
        product,
        bound,
        Some(bound),
    ));
}

fn windows(list: &mut Vec<Edge>) {
    let same = Conv2d { padding: [1; 4], ..Conv2d::default() };
    let geometries = [
        ("3×3", [2, 9, 10, 4], [3, 3, 4, 6], same),
        ("1×1", [2, 5, 5, 8], [1, 1, 8, 6], Conv2d::default()),
        ("3×3 strided", [2, 9, 9, 4], [3, 3, 4, 6], Conv2d { stride: [2, 2], ..same }),
        ("3×3 dilated", [2, 9, 9, 4], [3, 3, 4, 6], Conv2d { dilation: [2, 2], ..same }),
        ("3×3 by channel", [2, 9, 9, 8], [3, 3, 1, 8], Conv2d { groups: 8, ..same }),
        ("5×5 larger than its image", [1, 3, 3, 4], [5, 5, 4, 6], Conv2d { padding: [2; 4], ..same }),
    ];
    for (about, image, filter, geometry) in geometries {
        let conv = move |x: &[Tensor]| x[0].conv2d(&x[1], geometry);
        let operands = vec![floats(&image, whole), floats(&filter, whole)];
        let name = format!("conv2d {about} of whole numbers");
        list.push(Edge::new(name, operands, conv, Bound::EXACT, Some(Bound::EXACT)));
        for (what, value) in [("NaN", f32::NAN), ("an infinity", f32::NEG_INFINITY)] {
            let bound = Bound::of_largest(64.0);
            let operands = vec![with(&image, 9, value), floats(&filter, ordinary)];
            let name = format!("conv2d {about} with {what}");
            list.push(Edge::new(name, operands, conv, bound, Some(bound)));
        }
    }
    // Enough channels and pixels for an algorithm that transforms tiles: what a window does not see costs it nothing.
    let (image, filter) = ([2, 12, 12, 32], [3, 3, 32, 32]);
    let conv = move |x: &[Tensor]| x[0].conv2d(&x[1], same);
    let bound = Bound { ulps: 256.0, ..Bound::of_one(4096.0) };
    for (what, value) in [("NaN", f32::NAN), ("an infinity", f32::INFINITY), ("an outlier", 1e6)] {
        let operands = vec![with(&image, 2000, value), floats(&filter, ordinary)];
        list.push(Edge::new(format!("conv2d of tiles with {what}"), operands, conv, bound, Some(bound)));
    }
    let half = floats(&image, |at| if at / 32 % 12 < 6 { 0.0 } else { ordinary(at) });
    let operands = vec![half, floats(&filter, ordinary)];
    list.push(Edge::new("conv2d of tiles with zeros", operands, conv, bound, Some(bound)));
    for kind in [PoolKind::Max, PoolKind::Mean] {
        let pool = Pool2d { kind, window: [3, 3], stride: [2, 2], padding: [1; 4] };
        let pooled = move |x: &[Tensor]| x[0].pool2d(pool);
        for (about, image) in [
            ("with NaN", with(&[2, 7, 7, 3], 40, f32::NAN)),
            ("with infinities", with(&[2, 7, 7, 3], 40, f32::NEG_INFINITY)),
            ("of equal numbers", floats(&[2, 7, 7, 3], |_| 2.5)),
        ] {
            let name = format!("{kind:?} pooling {about}");
            list.push(Edge::new(name, vec![image], pooled, Bound::of_one(4.0), Some(Bound::ulps(4.0))));
        }
    }
}

fn attention(list: &mut Vec<Edge>) {
    let shape = [1, 12, 2, 16];
    let inputs = [
        ("of ordinary numbers", [1.0, 1.0], 24.0),
        // Scores of thousands: one key takes all, and their roundings are those of the exponents.
        ("of large scores", [40.0, 40.0], 20_000.0),
        ("of equal keys", [1.0, 0.0], 24.0),
    ];
    for causal in [false, true] {
        let called = if causal { "causal attention" } else { "attention" };
        let attend = move |x: &[Tensor]| x[0].attention(&x[1], &x[2], causal);
        for (about, [queries, keys], roundings) in inputs {
            let operands = vec![
                floats(&shape, |at| queries * ordinary(at)),
                floats(&shape, |at| keys * ordinary(at * 3)),
                floats(&shape, |at| ordinary(at * 7)),
            ];
            let bound = Bound::of_largest(roundings);
            list.push(Edge::new(
                format!("{called} {about}"),
                operands,
                attend,
                bound,
                Some(Bound::of_largest(8.0 * roundings)),
            ));
        }
        let single = vec![floats(&[3, 1, 2, 16], ordinary); 3];
        list.push(Edge::new(
            format!("{called} of one position"),
            single,
            attend,
            Bound::ulps(2.0),
            Some(Bound::of_one(8.0)),
        ));
        // A query that does not see a key has no NaN of it; in gradients nothing times NaN is NaN, as elsewhere.
        let slope = if causal { None } else { Some(Bound::of_largest(200.0)) };
        let nan = vec![floats(&shape, ordinary), with(&shape, 200, f32::NAN), floats(&shape, ordinary)];
        let name = format!("{called} with NaN in a key");
        list.push(Edge::new(name, nan, attend, Bound::of_largest(24.0), slope));
    }
}

fn recurrent(list: &mut Vec<Edge>) {
    let (batch, time, inner, hidden) = (3, 5, 4, 8);
    for (about, scale) in [("ordinary numbers", 0.5), ("saturated gates", 60.0), ("zeros", 0.0)] {
        let operands = |gates: usize, biases: usize| -> Vec<Array> {
            let mut all = vec![
                floats(&[batch, time, inner], |at| scale * ordinary(at)),
                floats(&[inner, gates * hidden], |at| ordinary(at * 3)),
                floats(&[hidden, gates * hidden], |at| ordinary(at * 7)),
            ];
            all.extend((0..biases).map(|bias| floats(&[gates * hidden], |at| ordinary(at + bias))));
            all
        };
        let state = |of: usize| floats(&[batch, hidden], move |at| 0.3 * ordinary(at + of));
        let mut lstm = operands(4, 1);
        lstm.extend([state(0), state(1)]);
        let run =
            |x: &[Tensor]| -> Result<Tensor> { Ok(x[0].lstm(&x[1], &x[2], &x[3], &x[4], &x[5])?[0].clone()) };
        // Roundings of what gates are functions of, which are as large as their inputs, over all steps.
        let bound = Bound::of_largest(256.0);
        list.push(Edge::new(format!("lstm of {about}"), lstm, run, bound, Some(bound)));
        let mut gru = operands(3, 2);
        gru.push(state(0));
        let run = |x: &[Tensor]| x[0].gru(&x[1], &x[2], &x[3], &x[4], &x[5]);
        list.push(Edge::new(format!("gru of {about}"), gru, run, bound, Some(bound)));
    }
    let lengths = vec![
        array(&[1, 1, 1], &[0.5f32]),
        array(&[1, 3], &[0.1f32, 0.2, 0.3]),
        array(&[1, 3], &[0.4f32, 0.5, 0.6]),
    ];
    let zeros = [array(&[3], &[0.0f32; 3]), array(&[3], &[0.0f32; 3]), array(&[1, 1], &[0.0f32])];
    let one: Vec<Array> = lengths.into_iter().chain(zeros).collect();
    let run = |x: &[Tensor]| x[0].gru(&x[1], &x[2], &x[3], &x[4], &x[5]);
    list.push(Edge::new("gru of one step of one", one, run, Bound::of_one(8.0), Some(Bound::of_one(8.0))));
}

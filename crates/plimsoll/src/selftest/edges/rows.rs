//! Sums, means, extremes, softmax, losses, norms and tables.

use super::{Bound, Edge, array, floats, ordinary};
use crate::{Array, DType, Tensor, loss};

/// Rows of six that each have something of their own.
fn odd_rows() -> Array {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let rows: [[f32; 6]; 9] = [
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        [nan, 2.0, 3.0, 4.0, 5.0, 6.0],
        [1.0, 2.0, inf, 4.0, 5.0, 6.0],
        [1.0, -inf, 3.0, 4.0, 5.0, -inf],
        [inf, -inf, 0.0, 0.0, 0.0, 0.0],
        [-inf; 6],
        [0.0, -0.0, 0.0, -0.0, 0.0, -0.0],
        [1e-40, -1e-40, 1e-45, 0.0, 1e-38, -1e-38],
        [7.0; 6],
    ];
    array(&[9, 6], rows.as_flattened())
}

pub(super) fn list() -> Vec<Edge> {
    let mut list = vec![];
    reductions(&mut list);
    softmaxes(&mut list);
    losses(&mut list);
    norms(&mut list);
    moved(&mut list);
    list
}

fn reductions(list: &mut Vec<Edge>) {
    type Reduce = fn(&[Tensor]) -> crate::Result<Tensor>;
    let exact = Some(Bound::EXACT);
    let ways: [(&str, Reduce, Bound, Option<Bound>); 4] = [
        ("sum", |x| x[0].sum(&[1]), Bound::of_largest(2.0), exact),
        ("mean", |x| x[0].mean(&[1]), Bound::of_largest(2.0), Some(Bound::ulps(1.0))),
        ("max", |x| x[0].max(&[1]), Bound::EXACT, exact),
        ("min", |x| x[0].min(&[1]), Bound::EXACT, exact),
    ];
    for (name, reduce, value, slope) in ways {
        let edge = Edge::new(format!("{name} of odd rows"), vec![odd_rows()], reduce, value, slope);
        list.extend([DType::BF16, DType::F16].map(|dtype| edge.in_type(dtype)));
        list.push(edge);
    }
    let positive = |at: usize| 0.1 + (at % 1013) as f32 * 1e-3;
    let million = || vec![floats(&[1 << 10, 1 << 10], positive)];
    list.push(Edge::new("sum of a million", million(), |x| x[0].sum_all(), Bound::ulps(2.0), exact));
    list.push(Edge::new(
        "mean of a million",
        million(),
        |x| x[0].mean_all(),
        Bound::ulps(2.0),
        Some(Bound::ulps(1.0)),
    ));
    list.push(Edge::new(
        "sum of columns of a million",
        million(),
        |x| x[0].sum(&[0]),
        Bound::ulps(2.0),
        exact,
    ));
    list.push(Edge::new(
        "mean of ones",
        vec![floats(&[97, 41], |_| 1.0)],
        |x| x[0].mean(&[1]),
        Bound::EXACT,
        Some(Bound::ulps(1.0)),
    ));
    list.push(Edge::new(
        "sum of nothing",
        vec![floats(&[3, 0], ordinary)],
        |x| x[0].sum(&[1]),
        Bound::EXACT,
        exact,
    ));
    list.push(Edge::new(
        "mean of nothing",
        vec![floats(&[3, 0], ordinary)],
        |x| x[0].mean(&[1]),
        Bound::EXACT,
        exact,
    ));
    let sixes = Edge::new(
        "mean of many sixes",
        vec![floats(&[112, 112], |_| 6.0)],
        |x| x[0].mean_all(),
        Bound::EXACT,
        Some(Bound::ulps(1.0)),
    );
    list.extend([DType::BF16, DType::F16].map(|dtype| sixes.in_type(dtype)));
    // Two roundings of the sum of all without their signs.
    list.push(Edge::new(
        "sum that cancels",
        vec![floats(&[1, 2049], |at| if at == 2048 { 0.125 } else { [1e4, -1e4][at % 2] })],
        |x| x[0].sum(&[1]),
        Bound::of_one(2.0 * 2048e4),
        exact,
    ));
}

fn softmaxes(list: &mut Vec<Edge>) {
    let rows = |offset: f32| floats(&[4, 33], move |at| 4.0 * ordinary(at) + offset);
    let inputs = [
        ("of ordinary rows", rows(0.0)),
        ("of rows at 1000", rows(1000.0)),
        ("of rows at -100000", floats(&[4, 33], |at| (at % 7) as f32 - 1e5)),
        ("of odd rows", odd_rows()),
        ("of one class", floats(&[5, 1], ordinary)),
        ("of wide rows", floats(&[2, 5003], |at| 9.0 * ordinary(at * 31))),
        ("of one class that is certain", floats(&[2, 9], |at| if at % 9 == 3 { 200.0 } else { 0.0 })),
    ];
    for (about, input) in inputs {
        let classes = input.shape()[1];
        // An exponent is a difference, which is rounded: as many ulps as it is large. The gradient has a sum over the row.
        let slope = Some(Bound::of_largest(16.0 + (classes as f64).sqrt()));
        let softmax = Edge::new(
            format!("softmax {about}"),
            vec![input.clone()],
            |x| x[0].softmax(),
            Bound::ulps(24.0),
            slope,
        );
        let log = Edge::new(
            format!("log_softmax {about}"),
            vec![input.clone()],
            |x| x[0].log_softmax(),
            Bound { ulps: 4.0, ..Bound::of_one(8.0) },
            Some(Bound::of_one(16.0 + (classes as f64).sqrt())),
        );
        let labels: Vec<i32> = (0..input.shape()[0] as i32).map(|row| row * 5 % classes as i32).collect();
        let labels = array(&[labels.len()], &labels);
        let entropy = Edge::new(
            format!("cross_entropy {about}"),
            vec![input, labels],
            |x| x[0].cross_entropy(&x[1]),
            Bound { ulps: 4.0, ..Bound::of_one(8.0) },
            Some(Bound::of_one(16.0)),
        );
        list.extend([softmax, log, entropy]);
    }
}

fn losses(list: &mut Vec<Edge>) {
    let logits =
        [-1000.0, -100.0, -80.0, -15.0, -10.0, -1.0, -1e-6, 0.0, 1.0, 10.0, 15.0, 80.0, 100.0, 1000.0];
    for target in [0.0, 1.0, 0.25] {
        let of_each =
            move |x: &[Tensor]| loss::bce_from_logits(&x[0], &x[0].full_like(target)?.stop_gradient()?);
        for logit in logits {
            list.push(Edge::new(
                format!("bce_from_logits of {logit} for {target}"),
                vec![array(&[1], &[logit])],
                of_each,
                Bound::ulps(3.0),
                Some(Bound { ulps: 4.0, ..Bound::of_one(0.25) }),
            ));
        }
    }
    list.push(Edge::new(
        "sparse_cross_entropy with labels that stand for nothing",
        vec![floats(&[6, 9], |at| 50.0 * ordinary(at)), array(&[6], &[3, -1, 8, -100, 0, -1])],
        |x| loss::sparse_cross_entropy(&x[0], &x[1]),
        Bound::ulps(4.0),
        Some(Bound::of_one(8.0)),
    ));
    list.push(Edge::new(
        "sparse_cross_entropy of nothing",
        vec![floats(&[2, 9], ordinary), array(&[2], &[-1, -1])],
        |x| loss::sparse_cross_entropy(&x[0], &x[1]),
        Bound::EXACT,
        Some(Bound::EXACT),
    ));
    list.push(Edge::new(
        "mse of numbers far from zero",
        vec![floats(&[64], |at| 1e4 + ordinary(at)), floats(&[64], |at| 1e4 - ordinary(at))],
        |x| loss::mse(&x[0], &x[1]),
        Bound::ulps(4.0),
        Some(Bound::ulps(4.0)),
    ));
}

fn norms(list: &mut Vec<Edge>) {
    let scales = |count: usize| [floats(&[count], |at| 1.0 + 0.5 * ordinary(at)), floats(&[count], ordinary)];
    let at_offset = |offset: f32| move |at: usize| offset + ordinary(at * 13);
    // A mean is rounded to what an offset leaves.
    for (about, offset, roundings) in [("", 0.0, 16.0), (" at 100", 100.0, 400.0), (" at 10000", 1e4, 4e4)] {
        let [gamma, beta] = scales(32);
        list.push(Edge::new(
            format!("layer_norm{about}"),
            vec![floats(&[8, 32], at_offset(offset)), gamma.clone(), beta.clone()],
            |x| x[0].layer_norm(&x[1], &x[2], 1e-5),
            Bound::of_one(roundings),
            Some(Bound::of_largest(4.0 * roundings)),
        ));
        list.push(Edge::new(
            format!("batch_norm{about}"),
            vec![floats(&[16, 3, 3, 32], at_offset(offset)), gamma, beta],
            |x| Ok(x[0].batch_norm(&x[1], &x[2], 1e-5)?[0].clone()),
            Bound::of_one(roundings),
            Some(Bound::of_largest(4.0 * roundings)),
        ));
    }
    for offset in [0.0, 1e3, 1e5] {
        list.push(Edge::new(
            format!("the variance of a batch at {offset}"),
            vec![floats(&[4096, 4], at_offset(offset)), floats(&[4], |_| 1.0), floats(&[4], |_| 0.0)],
            |x| Ok(x[0].batch_norm(&x[1], &x[2], 1e-5)?[2].clone()),
            Bound::ulps(25.0),
            None,
        ));
    }
    let [gamma, beta] = scales(6);
    let odd =
        [("constant rows", floats(&[4, 6], |at| [0.0, 3.0, -1e6, 1e-30][at / 6])), ("odd rows", odd_rows())];
    for (about, input) in odd {
        list.push(Edge::new(
            format!("layer_norm of {about}"),
            vec![input.clone(), gamma.clone(), beta.clone()],
            |x| x[0].layer_norm(&x[1], &x[2], 1e-5),
            Bound::of_one(16.0),
            Some(Bound::of_largest(64.0)),
        ));
        list.push(Edge::new(
            format!("batch_norm of {about}"),
            vec![input, gamma.clone(), beta.clone()],
            |x| Ok(x[0].batch_norm(&x[1], &x[2], 1e-5)?[0].clone()),
            Bound::of_one(16.0),
            Some(Bound::of_largest(64.0)),
        ));
    }
}

fn moved(list: &mut Vec<Edge>) {
    let odd = || vec![odd_rows()];
    let exact = Some(Bound::EXACT);
    list.push(Edge::new("transpose of odd rows", odd(), |x| x[0].transpose(), Bound::EXACT, exact));
    list.push(Edge::new("slice of odd rows", odd(), |x| x[0].slice(1, 1..4), Bound::EXACT, exact));
    list.push(Edge::new(
        "pad of odd rows",
        odd(),
        |x| x[0].pad(&[(1, 0), (0, 2)], f64::NEG_INFINITY),
        Bound::EXACT,
        exact,
    ));
    list.push(Edge::new(
        "concat of odd rows",
        odd(),
        |x| Tensor::concat(&[&x[0], &x[0]], 0),
        Bound::EXACT,
        exact,
    ));
    list.push(Edge::new(
        "broadcast to many",
        vec![floats(&[1, 3], ordinary)],
        |x| x[0].broadcast(&[5000, 3]),
        Bound::EXACT,
        Some(Bound::of_largest(32.0)),
    ));
    list.push(Edge::new(
        "gather of rows again and again",
        vec![
            floats(&[7, 3], ordinary),
            array(&[3000], &(0..3000).map(|at| at * at % 7).collect::<Vec<i32>>()),
        ],
        |x| x[0].gather(&x[1]),
        Bound::EXACT,
        Some(Bound::of_largest(64.0)),
    ));
}

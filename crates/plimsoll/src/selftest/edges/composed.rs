//! Functions that are made of several ops: norms, elements by position, attention with masks, losses.

use super::{Bound, Edge, array, floats, ordinary};
use crate::{Array, Attend, DType, PadMode, Resize, Result, Tensor, loss};
use plimsoll_graph::op::Conv2d;

type Function = fn(&[Tensor]) -> Result<Tensor>;

/// Whole numbers, of which sums are exact.
fn whole(shape: &[usize]) -> Array {
    floats(shape, |at| ((at * 29 + 5) % 15) as f32 - 7.0)
}

/// Ordinary numbers, with NaN, an infinity and a large number among them.
fn odd(shape: &[usize]) -> Array {
    floats(shape, |at| match at {
        5 => f32::NAN,
        13 => f32::NEG_INFINITY,
        20 => 1e30,
        _ => ordinary(at),
    })
}

fn integers(shape: &[usize], below: usize) -> Array {
    let values: Vec<i32> = (0..shape.iter().product()).map(|at: usize| (at * 7 % below) as i32).collect();
    array(shape, &values)
}

pub(super) fn list() -> Vec<Edge> {
    let mut list = vec![];
    norms(&mut list);
    moved(&mut list);
    products(&mut list);
    attention(&mut list);
    losses(&mut list);
    list
}

fn norms(list: &mut Vec<Edge>) {
    let scales = |count: usize| [floats(&[count], |at| 1.0 + 0.5 * ordinary(at)), floats(&[count], ordinary)];
    let [gamma, beta] = scales(32);
    for (about, scale) in [("ordinary", 1.0), ("large", 1e15), ("small", 1e-15), ("no", 0.0)] {
        list.push(Edge::new(
            format!("rms_norm of {about} numbers"),
            vec![floats(&[8, 32], |at| scale * ordinary(at * 13)), gamma.clone()],
            |x| x[0].rms_norm(&x[1], 1e-5),
            Bound::of_one(16.0),
            Some(Bound::of_largest(64.0)),
        ));
    }
    // A mean is rounded to what an offset leaves, and then scaled by up to 1.5.
    for (about, offset, roundings) in [("", 0.0, 16.0), (" at 100", 100.0, 600.0), (" at 10000", 1e4, 6e4)] {
        list.push(Edge::new(
            format!("group_norm{about}"),
            vec![floats(&[2, 3, 3, 32], |at| offset + ordinary(at * 13)), gamma.clone(), beta.clone()],
            |x| x[0].group_norm(8, &x[1], &x[2], 1e-5),
            Bound::of_one(roundings),
            Some(Bound::of_largest(4.0 * roundings)),
        ));
    }
    let [gamma, beta] = scales(6);
    for (about, input) in [
        ("constant samples", floats(&[4, 5, 6], |at| [0.0, 3.0, -1e6, 1e-30][at / 30])),
        ("odd numbers", odd(&[4, 5, 6])),
    ] {
        list.push(Edge::new(
            format!("group_norm of {about}"),
            vec![input, gamma.clone(), beta.clone()],
            |x| x[0].group_norm(2, &x[1], &x[2], 1e-5),
            Bound::of_one(16.0),
            Some(Bound::of_largest(64.0)),
        ));
    }
    list.push(Edge::new(
        "variance at 10000",
        vec![floats(&[7, 64], |at| 1e4 + ordinary(at * 13))],
        |x| x[0].variance(&[1]),
        Bound::ulps(64.0),
        Some(Bound::of_largest(1e5)),
    ));
}

/// What moves numbers, and at most adds them up.
fn moved(list: &mut Vec<Edge>) {
    const BORDER: [(usize, usize); 4] = [(0, 0), (1, 2), (3, 0), (0, 0)];
    let ways: [(&str, &[usize], Option<Array>, Function); 9] = [
        ("cumsum", &[3, 21], None, |x| x[0].cumsum(1)),
        ("repeat_interleave", &[3, 4, 5], None, |x| x[0].repeat_interleave(1, 3)),
        ("index_select", &[3, 4, 5], Some(integers(&[6], 4)), |x| x[0].index_select(1, &x[1])),
        ("gather_along", &[3, 4, 5], Some(integers(&[3, 6, 5], 4)), |x| x[0].gather_along(1, &x[1])),
        ("scatter_add_along", &[3, 4, 5], Some(integers(&[3, 4, 5], 7)), |x| {
            x[0].scatter_add_along(1, &x[1], 7)
        }),
        ("pad by reflection", &[2, 4, 5, 2], None, |x| x[0].pad_with(&BORDER, PadMode::Reflect)),
        ("pad by replication", &[2, 4, 5, 2], None, |x| x[0].pad_with(&BORDER, PadMode::Replicate)),
        ("pad round", &[2, 4, 5, 2], None, |x| x[0].pad_with(&BORDER, PadMode::Circular)),
        ("resize by the nearest", &[2, 4, 5, 2], None, |x| x[0].resize([7, 10], Resize::Nearest)),
    ];
    for (name, shape, indices, function) in ways {
        for (about, input) in [("whole", whole(shape)), ("odd", odd(shape))] {
            // What is added up of odd numbers is rounded, and may cancel.
            let bound = if about == "odd" { Bound::of_one(4.0) } else { Bound::EXACT };
            let operands = [input].into_iter().chain(indices.clone()).collect();
            let name = format!("{name} of {about} numbers");
            list.push(Edge::new(name, operands, function, bound, Some(Bound::of_largest(4.0))));
        }
    }
    let rows = floats(&[4, 9], |at| if at == 11 { f32::NAN } else { ordinary(at * 13) });
    list.push(Edge::new(
        "top_k with NaN",
        vec![rows],
        |x| Ok(x[0].top_k(3)?[0].clone()),
        Bound::EXACT,
        Some(Bound::EXACT),
    ));
    for (name, how) in [("bilinear", Resize::Bilinear), ("bilinear aligned", Resize::BilinearAligned)] {
        list.push(Edge::new(
            format!("resize {name}"),
            vec![floats(&[2, 4, 5, 3], ordinary)],
            move |x| x[0].resize([7, 3], how),
            Bound::of_largest(16.0),
            Some(Bound::of_largest(32.0)),
        ));
    }
    list.push(Edge::new(
        "one_hot",
        vec![integers(&[3, 4], 7)],
        |x| x[0].one_hot(5, DType::F32),
        Bound::EXACT,
        None,
    ));
}

fn products(list: &mut Vec<Edge>) {
    list.push(Edge::new(
        "einsum of whole numbers",
        vec![whole(&[2, 3, 4]), whole(&[2, 4, 5]), whole(&[5])],
        |x| Tensor::einsum("bij,bjk,k->ib", &[&x[0], &x[1], &x[2]]),
        Bound::EXACT,
        Some(Bound::EXACT),
    ));
    let strided = Conv2d { stride: [2, 2], padding: [1; 4], ..Conv2d::default() };
    for (about, geometry, taps) in
        [("", strided, [4, 4, 6, 4]), (" by groups", Conv2d { groups: 2, ..strided }, [4, 4, 3, 4])]
    {
        list.push(Edge::new(
            format!("conv_transpose2d of whole numbers{about}"),
            vec![whole(&[2, 3, 5, 4]), whole(&taps)],
            move |x| x[0].conv_transpose2d(&x[1], geometry, [2, 6, 10, 6]),
            Bound::EXACT,
            Some(Bound::EXACT),
        ));
    }
    list.push(Edge::new(
        "rotary",
        vec![floats(&[2, 40, 2, 8], ordinary)],
        |x| x[0].rotary(10000.0),
        Bound::of_one(64.0),
        Some(Bound::of_one(64.0)),
    ));
}

fn attention(list: &mut Vec<Edge>) {
    let ways: [(&str, Function); 4] = [
        ("of few keys", |x| Attend::new().causal().of(&x[0], &x[1], &x[2])),
        ("with a mask", |x| {
            let seen = x[3].gt(&x[3].full_like(-0.3)?)?;
            Attend::new().mask(&seen).of(&x[0], &x[1], &x[2])
        }),
        ("with a bias", |x| Attend::new().causal().bias(&x[3]).of(&x[0], &x[1], &x[2])),
        ("in a window with a cap", |x| {
            Attend::new().window(4).soft_cap(2.0).bias(&x[3]).of(&x[0], &x[1], &x[2])
        }),
    ];
    for (name, function) in ways {
        for (about, scale, roundings) in [("ordinary numbers", 1.0, 48.0), ("large scores", 40.0, 40_000.0)] {
            list.push(Edge::new(
                format!("attention {name}, {about}"),
                vec![
                    floats(&[2, 9, 4, 8], |at| scale * ordinary(at)),
                    floats(&[2, 11, 2, 8], |at| scale * ordinary(at * 3)),
                    floats(&[2, 11, 2, 8], |at| ordinary(at * 7)),
                    floats(&[1, 4, 9, 11], |at| ordinary(at * 11)),
                ],
                function,
                Bound::of_largest(roundings),
                Some(Bound::of_largest(8.0 * roundings)),
            ));
        }
    }
}

fn losses(list: &mut Vec<Edge>) {
    let far =
        || vec![floats(&[6, 7], |at| 1e6 * ordinary(at)), floats(&[6, 7], |at| 1e-6 * ordinary(at * 3))];
    let near = || vec![floats(&[6, 7], ordinary), floats(&[6, 7], |at| ordinary(at * 3))];
    let pairs: [(&str, Function); 4] = [
        ("l1", |x| loss::l1(&x[0], &x[1])),
        ("huber", |x| loss::huber(&x[0], &x[1], 0.7)),
        ("smooth_l1", |x| loss::smooth_l1(&x[0], &x[1], 0.7)),
        ("kl_div", |x| loss::kl_div(&x[0].log_softmax()?, &x[1].softmax()?)),
    ];
    for (name, function) in pairs {
        for (about, operands) in [("near", near()), ("far", far())] {
            let name = format!("{name} of what is {about}");
            list.push(Edge::new(name, operands, function, Bound::ulps(16.0), Some(Bound::of_largest(64.0))));
        }
    }
    list.push(Edge::new(
        "cosine_similarity of lengths far apart",
        vec![
            floats(&[4, 8], |at| [1e-9, 1.0, 1e9, 0.0][at / 8] * ordinary(at)),
            floats(&[4, 8], |at| ordinary(at * 3)),
        ],
        |x| loss::cosine_similarity(&x[0], &x[1]),
        Bound::of_one(16.0),
        None,
    ));
    list.push(Edge::new(
        "triplet of equal rows",
        vec![floats(&[5, 6], ordinary), floats(&[5, 6], ordinary), floats(&[5, 6], |at| ordinary(at * 3))],
        |x| loss::triplet(&x[0], &x[1], &x[2], 5.0),
        Bound::ulps(16.0),
        Some(Bound::of_largest(1e3)),
    ));
    list.push(Edge::new(
        "smoothed_cross_entropy of logits at 1000",
        vec![floats(&[6, 9], |at| 1000.0 + 8.0 * ordinary(at)), integers(&[6], 9)],
        |x| loss::smoothed_cross_entropy(&x[0], &x[1], 0.1),
        Bound::ulps(64.0),
        Some(Bound::of_largest(1e3)),
    ));
    list.push(Edge::new(
        "ctc",
        vec![floats(&[2, 9, 5], |at| 4.0 * ordinary(at)), integers(&[2, 3], 4)],
        |x| {
            let labels = x[1].add_scalar(1.0)?;
            let all = |count: f64| labels.max(&[1])?.full_like(count);
            loss::ctc(&x[0].log_softmax()?, &labels, &all(9.0)?, &all(3.0)?)
        },
        Bound::ulps(64.0),
        Some(Bound::of_largest(1e3)),
    ));
}

//! Matrix products, in the ways that operands may lie.

use super::{Case, FLOATS, normals, uniform};
use plimsoll_graph::op::{Slice, Unary};
use plimsoll_graph::{DType, Graph, Op, Shape, ValueId};

pub(super) fn list() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in FLOATS {
        for [m, n, k] in [
            [1, 1, 1],
            [5, 7, 9],
            [33, 1, 100],
            [1, 65, 77],
            [64, 64, 64],
            [128, 256, 512],
            [1000, 10, 784],
            [513, 255, 1027],
        ] {
            let name = format!("dot {dtype} {m}×{k} by {k}×{n}");
            let inputs = vec![normals(dtype, &[m, k]), normals(dtype, &[k, n])];
            cases.push(Case::new(name, inputs, |g, v| Ok(vec![g.dot(v[0], v[1])?])).terms(k));
        }
        for (turn_a, turn_b) in [(true, false), (false, true), (true, true)] {
            let (m, n, k) = (48, 40, 72);
            let name = format!("dot {dtype} {m}×{k} by {k}×{n}, transposed {turn_a} {turn_b}");
            let a = if turn_a { [k, m] } else { [m, k] };
            let b = if turn_b { [n, k] } else { [k, n] };
            let build =
                move |g: &mut Graph, v: &[ValueId]| Ok(vec![g.dot_general(v[0], v[1], turn_a, turn_b)?]);
            cases.push(Case::new(name, vec![normals(dtype, &a), normals(dtype, &b)], build).terms(k));
        }
        for [m, n, k] in [[40, 3, 9000], [1, 70, 8193], [2, 4, 20000]] {
            let name = format!("dot {dtype} of a thin result, {m}×{k} by {k}×{n}");
            let build = |g: &mut Graph, v: &[ValueId]| Ok(vec![g.dot_general(v[0], v[1], true, false)?]);
            cases.push(
                Case::new(name, vec![normals(dtype, &[k, m]), normals(dtype, &[k, n])], build).terms(k),
            );
        }
        let name = format!("dot {dtype} of a batch of 4×3");
        let inputs = vec![normals(dtype, &[4, 3, 17, 23]), normals(dtype, &[4, 3, 23, 19])];
        cases.push(Case::new(name, inputs, |g, v| Ok(vec![g.dot(v[0], v[1])?])).terms(23));
        let name = format!("dot {dtype} of a batch by one matrix");
        let inputs = vec![normals(dtype, &[4, 6, 32]), normals(dtype, &[32, 24])];
        let build = |g: &mut Graph, v: &[ValueId]| {
            let b = g.broadcast(v[1], &[4, 32, 24])?;
            Ok(vec![g.dot(v[0], b)?])
        };
        cases.push(Case::new(name, inputs, build).terms(32));
        let name = format!("dot {dtype} of one matrix by a batch");
        let inputs = vec![normals(dtype, &[6, 32]), normals(dtype, &[4, 32, 24])];
        let build = |g: &mut Graph, v: &[ValueId]| {
            let a = g.broadcast(v[0], &[4, 6, 32])?;
            Ok(vec![g.dot(a, v[1])?])
        };
        cases.push(Case::new(name, inputs, build).terms(32));
        let name = format!("dot {dtype} of heads: axes in another order");
        let inputs = vec![normals(dtype, &[3, 16, 4, 8]), normals(dtype, &[3, 20, 4, 8])];
        let build = |g: &mut Graph, v: &[ValueId]| {
            let q = g.permute(v[0], &[0, 2, 1, 3])?;
            let k = g.permute(v[1], &[0, 2, 1, 3])?;
            Ok(vec![g.dot_general(q, k, false, true)?])
        };
        cases.push(Case::new(name, inputs, build).terms(8));
        let name = format!("dot {dtype} of a part that begins at an odd place");
        let inputs = vec![normals(dtype, &[20, 40]), normals(dtype, &[31, 16])];
        let build = |g: &mut Graph, v: &[ValueId]| {
            let a = g.slice_axis(v[0], 1, 3..34)?;
            Ok(vec![g.dot(a, v[1])?])
        };
        cases.push(Case::new(name, inputs, build).terms(31));
        let name = format!("dot {dtype} of every other column");
        let inputs = vec![normals(dtype, &[20, 40]), normals(dtype, &[20, 16])];
        let build = |g: &mut Graph, v: &[ValueId]| {
            let slice = Slice {
                start: Shape::new(&[0, 1])?,
                stop: Shape::new(&[20, 40])?,
                step: Shape::new(&[1, 2])?,
            };
            let a = g.apply(Op::Slice(Box::new(slice)), &[v[0]])?;
            Ok(vec![g.dot(a, v[1])?])
        };
        cases.push(Case::new(name, inputs, build).terms(20));
        let name = format!("dot {dtype} over nothing");
        let inputs = vec![normals(dtype, &[3, 0]), normals(dtype, &[0, 4])];
        cases.push(Case::new(name, inputs, |g, v| Ok(vec![g.dot(v[0], v[1])?])));
    }
    for dtype in [DType::BF16, DType::F16] {
        large(dtype, &mut cases);
    }
    cases
}

/// Products that fill a large device, with edges that fill no tile, and what may follow them in one kernel.
fn large(dtype: DType, cases: &mut Vec<Case>) {
    let (m, n, k) = (5608, 1528, 200);
    for (turn_a, turn_b) in [(false, false), (true, false), (false, true), (true, true)] {
        let name = format!("dot {dtype} {m}×{k} by {k}×{n}, transposed {turn_a} {turn_b}");
        let a = if turn_a { [k, m] } else { [m, k] };
        let b = if turn_b { [n, k] } else { [k, n] };
        let build = move |g: &mut Graph, v: &[ValueId]| Ok(vec![g.dot_general(v[0], v[1], turn_a, turn_b)?]);
        cases.push(Case::new(name, vec![normals(dtype, &a), normals(dtype, &b)], build).terms(k));
    }
    let m = 5605;
    let mut followed = |what: &str, others: &[&[usize]], build: Follow| {
        let name = format!("dot {dtype} {m}×{k} by {k}×{n}, then {what}");
        let operands = [[m, k], [k, n]].into_iter().map(|dims| uniform(dtype, &dims, -0.2, 0.2));
        let others = others.iter().map(|dims| normals(dtype, dims));
        let build = move |g: &mut Graph, v: &[ValueId]| {
            let product = g.dot(v[0], v[1])?;
            build(g, product, &v[2..])
        };
        // The product may be rounded another way before what follows.
        cases.push(Case::new(name, operands.chain(others).collect(), build).terms(1 << 17));
    };
    followed("a bias", &[&[n]], |g, product, v| Ok(vec![g.add(product, v[0])?]));
    followed("a bias and an activation", &[&[n]], |g, product, v| {
        let sum = g.add(product, v[0])?;
        Ok(vec![sum, g.apply(Op::Unary(Unary::Gelu), &[sum])?])
    });
    followed("a bias and a sum", &[&[n], &[m, n]], |g, product, v| {
        let sum = g.add(product, v[0])?;
        Ok(vec![g.add(sum, v[1])?])
    });
    followed("a slope", &[&[m, n]], |g, product, v| {
        let slope = g.apply(Op::Unary(Unary::GeluSlope), &[v[0]])?;
        Ok(vec![g.mul(product, slope)?])
    });
    followed("a slope in f32", &[&[m, n]], |g, product, v| Ok(vec![sloped(g, product, v[0])?]));
}

/// The gradient of what an activation takes, as it is computed where it is rounded once.
pub(in crate::selftest) fn sloped(
    g: &mut Graph,
    gradient: ValueId,
    of: ValueId,
) -> plimsoll_graph::Result<ValueId> {
    let dtype = g.dtype(gradient);
    let [gradient, of] = [g.cast(gradient, DType::F32)?, g.cast(of, DType::F32)?];
    let slope = g.apply(Op::Unary(Unary::GeluSlope), &[of])?;
    let product = g.mul(gradient, slope)?;
    g.cast(product, dtype)
}

/// What follows a product, with other operands.
type Follow = fn(&mut Graph, ValueId, &[ValueId]) -> plimsoll_graph::Result<Vec<ValueId>>;

//! Matrix products, in the ways that operands may lie.

use super::{Case, FLOATS, normals};
use plimsoll_graph::op::Slice;
use plimsoll_graph::{Graph, Op, Shape, ValueId};

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
    cases
}

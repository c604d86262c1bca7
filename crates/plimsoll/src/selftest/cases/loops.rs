//! Fused loops: functions of elements, and reductions over rows.

use super::{Case, FLOATS, integers, normals, uniform};
use plimsoll_graph::op::{Binary, Comparison, Distribution, Reduction, Unary};
use plimsoll_graph::{DType, Graph, Op, ValueId};

pub(super) fn list() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in FLOATS {
        for &function in Unary::ALL.iter().filter(|function| function.domain().result(dtype).is_some()) {
            let (low, high) = function.tried();
            let input = uniform(dtype, &[37, 129], low, high);
            let build = move |g: &mut Graph, v: &[ValueId]| Ok(vec![g.apply(Op::Unary(function), v)?]);
            cases.push(Case::new(format!("{} {dtype}", function.name()), vec![input], build));
        }
        let powers = vec![uniform(dtype, &[500], 0.1, 4.0), uniform(dtype, &[500], -3.0, 3.0)];
        cases.push(Case::new(format!("pow {dtype}"), powers, |g, v| Ok(vec![g.pow(v[0], v[1])?])).terms(64));
        rows(dtype, &mut cases);
        for distribution in [Distribution::Uniform, Distribution::Normal] {
            let build = move |g: &mut Graph, v: &[ValueId]| {
                Ok(vec![g.random(distribution, v[0], &[41, 77], dtype, 0)?])
            };
            let state = vec![integers(DType::I64, &[3], 1, 1 << 20)];
            cases.push(Case::new(format!("random {dtype} {distribution:?}"), state, build));
        }
    }
    let numbers = [DType::F32, DType::BF16, DType::F16, DType::F64, DType::I32, DType::I64];
    for dtype in numbers {
        let pair = || match dtype.is_float() {
            true => vec![normals(dtype, &[19, 67]), normals(dtype, &[19, 67])],
            false => vec![integers(dtype, &[19, 67], -9, 10), integers(dtype, &[19, 67], -9, 10)],
        };
        for function in Binary::ALL.into_iter().filter(|&f| f != Binary::Pow) {
            let build = move |g: &mut Graph, v: &[ValueId]| Ok(vec![g.apply(Op::Binary(function), v)?]);
            cases.push(Case::new(format!("{} {dtype}", function.name()), pair(), build));
        }
        for function in Comparison::ALL {
            let build = move |g: &mut Graph, v: &[ValueId]| Ok(vec![g.apply(Op::Compare(function), v)?]);
            cases.push(Case::new(format!("{} {dtype}", function.name()), pair(), build));
        }
        let build = |g: &mut Graph, v: &[ValueId]| {
            let less = g.lt(v[0], v[1])?;
            Ok(vec![g.select(less, v[0], v[1])?])
        };
        cases.push(Case::new(format!("select {dtype}"), pair(), build));
        for to in DType::ALL {
            let build = move |g: &mut Graph, v: &[ValueId]| Ok(vec![g.cast(v[0], to)?]);
            cases.push(Case::new(format!("cast {dtype} to {to}"), pair()[..1].to_vec(), build));
        }
        let build = move |g: &mut Graph, v: &[ValueId]| {
            let index = g.iota(&[19, 67], 1, dtype)?;
            Ok(vec![g.add(v[0], index)?])
        };
        cases.push(Case::new(format!("iota {dtype}"), pair()[..1].to_vec(), build));
        let build = |g: &mut Graph, v: &[ValueId]| {
            let turned = g.permute(v[0], &[1, 0])?;
            let other = g.permute(v[1], &[1, 0])?;
            let both = g.add(turned, other)?;
            let part = g.slice_axis(both, 0, 5..60)?;
            Ok(vec![g.add(part, part)?])
        };
        cases.push(Case::new(format!("views {dtype} turned and cut"), pair(), build));
    }
    cases.push(Case::new("a large loop f32", vec![normals(DType::F32, &[1 << 20])], |g, v| {
        let square = g.square(v[0])?;
        let shifted = g.add_scalar(square, 1.0)?;
        Ok(vec![g.sqrt(shifted)?, square])
    }));
    cases.push(Case::new(
        "a bias f32",
        vec![normals(DType::F32, &[64, 33]), normals(DType::F32, &[33])],
        |g, v| {
            let sum = g.add(v[0], v[1])?;
            Ok(vec![g.relu(sum)?])
        },
    ));
    cases
}

/// Loops that reduce over rows.
fn rows(dtype: DType, cases: &mut Vec<Case>) {
    for [count, length] in [[5, 7], [64, 128], [3, 5000], [300, 33]] {
        let input = || vec![normals(dtype, &[count, length])];
        let about = format!("{dtype} {count}×{length}");
        for kind in [Reduction::Sum, Reduction::Max, Reduction::Min] {
            let build = move |g: &mut Graph, v: &[ValueId]| {
                let halved = g.mul_scalar(v[0], 0.5)?;
                Ok(vec![g.reduce(kind, halved, &[1])?])
            };
            cases.push(Case::new(format!("{kind:?} of rows {about}"), input(), build).terms(length));
        }
        let build = |g: &mut Graph, v: &[ValueId]| Ok(vec![g.apply(Op::Softmax, v)?]);
        cases.push(Case::new(format!("softmax {about}"), input(), build).terms(length));
        let build = |g: &mut Graph, v: &[ValueId]| Ok(vec![g.apply(Op::LogSoftmax, v)?]);
        cases.push(Case::new(format!("log_softmax {about}"), input(), build).terms(length));
    }
}

//! Attention and recurrent layers, with their gradients.

use super::{Case, FLOATS, normals, uniform};
use plimsoll_graph::op::Attention;
use plimsoll_graph::{DType, Graph, Op, ValueId};

pub(super) fn list() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in FLOATS {
        for ([batch, queries, keys, heads, width], causal) in [
            ([2, 64, 64, 4, 64], false),
            ([2, 64, 64, 4, 64], true),
            ([2, 100, 100, 3, 64], true),
            ([1, 300, 300, 2, 64], true),
            ([2, 37, 90, 2, 64], false),
            ([2, 37, 90, 2, 64], true),
            ([1, 1, 1, 1, 64], true),
            ([2, 70, 70, 2, 32], true),
            ([2, 70, 70, 2, 80], true),
            ([1, 130, 130, 2, 128], true),
            ([1, 40, 40, 2, 20], false),
            ([1, 300, 300, 2, 256], true),
            ([2, 37, 90, 2, 256], false),
            ([2, 150, 37, 1, 168], true),
            ([1, 130, 130, 2, 192], true),
            ([1, 70, 200, 2, 136], false),
        ] {
            attention(dtype, [batch, queries, keys, heads, width], causal, &mut cases);
        }
        cases.push(one_projection(dtype));
        for [batch, time, input, hidden] in [[4, 7, 12, 16], [3, 20, 33, 40]] {
            recurrent(dtype, [batch, time, input, hidden], &mut cases);
        }
    }
    cases
}

fn attention(dtype: DType, dims: [usize; 5], causal: bool, cases: &mut Vec<Case>) {
    let [batch, queries, keys, heads, width] = dims;
    let attention = Attention { causal, scale: 1.0 / (width as f64).sqrt() };
    let of = |length: usize| normals(dtype, &[batch, length, heads, width]);
    let about = format!("{dtype} {dims:?}{}", if causal { " causal" } else { "" });
    let build = move |g: &mut Graph, v: &[ValueId]| Ok(g.apply_n::<2>(Op::Attention(attention), v)?.to_vec());
    let inputs = vec![of(queries), of(keys), of(keys)];
    cases.push(Case::new(format!("attention {about}"), inputs, build).terms(half_terms(dtype) + keys));
    let build = move |g: &mut Graph, v: &[ValueId]| {
        let [out, log_sum] = g.apply_n(Op::Attention(attention), &v[..3])?;
        let operands = [v[0], v[1], v[2], out, log_sum, v[3]];
        Ok(g.apply_n::<3>(Op::AttentionGrad(attention), &operands)?.to_vec())
    };
    let inputs = vec![of(queries), of(keys), of(keys), of(queries)];
    let terms = half_terms(dtype) + 2 * (queries + keys);
    // A query that sees one key has all its weight there, and gradients of q and k cancel.
    let magnitude = if keys == 1 { 1.0 } else { 0.0 };
    let case = Case::new(format!("attention_grad {about}"), inputs.clone(), build);
    cases.push(case.terms(terms).magnitude(magnitude));
    if queries == keys {
        let build = move |g: &mut Graph, v: &[ValueId]| {
            let [out, log_sum] = g.apply_n(Op::Attention(attention), &v[..3])?;
            let operands = [v[0], v[1], v[2], out, log_sum, v[3]];
            Ok(vec![g.apply(Op::JointAttentionGrad(attention), &operands)?])
        };
        let case = Case::new(format!("joint_attention_grad {about}"), inputs, build);
        cases.push(case.terms(terms).magnitude(magnitude));
    }
}

/// Probabilities are rounded to the operands' type before they are multiplied: that many roundings of sums.
fn half_terms(dtype: DType) -> usize {
    match dtype {
        DType::BF16 => 1 << 17,
        DType::F16 => 1 << 14,
        _ => 64,
    }
}

/// Queries, keys and values as parts of one projection, which is how models have them.
fn one_projection(dtype: DType) -> Case {
    let (batch, length, heads, width) = (2, 96, 4, 64);
    let inputs = vec![normals(dtype, &[batch, length, 3 * heads * width])];
    let build = move |g: &mut Graph, v: &[ValueId]| {
        let mut part = |index: usize| {
            let size = heads * width;
            let part = g.slice_axis(v[0], 2, index * size..(index + 1) * size)?;
            g.reshape(part, &[batch, length, heads, width])
        };
        let operands = [part(0)?, part(1)?, part(2)?];
        let attention = Attention { causal: true, scale: 0.125 };
        Ok(g.apply_n::<2>(Op::Attention(attention), &operands)?.to_vec())
    };
    Case::new(format!("attention {dtype} of one projection"), inputs, build).terms(half_terms(dtype) + length)
}

fn recurrent(dtype: DType, dims: [usize; 4], cases: &mut Vec<Case>) {
    let [batch, time, input, hidden] = dims;
    let weight = |rows: usize, gates: usize| uniform(dtype, &[rows, gates * hidden], -0.3, 0.3);
    let x = || normals(dtype, &[batch, time, input]);
    let state = || uniform(dtype, &[batch, hidden], -0.5, 0.5);
    let bias = |gates: usize| uniform(dtype, &[gates * hidden], -0.3, 0.3);
    let slope = || normals(dtype, &[batch, time, hidden]);
    let terms = half_terms(dtype) + 8 * (time + input + hidden);

    let inputs = || vec![x(), weight(input, 4), weight(hidden, 4), bias(4), state(), state()];
    let build = |g: &mut Graph, v: &[ValueId]| Ok(g.apply_n::<3>(Op::Lstm, v)?.to_vec());
    cases.push(Case::new(format!("lstm {dtype} {dims:?}"), inputs(), build).terms(terms));
    let build = |g: &mut Graph, v: &[ValueId]| {
        let [states, gates, cells] = g.apply_n(Op::Lstm, &v[..6])?;
        let operands = [v[0], v[1], v[2], v[4], v[5], states, gates, cells, v[6]];
        Ok(g.apply_n::<6>(Op::LstmGrad, &operands)?.to_vec())
    };
    let with_slope = inputs().into_iter().chain([slope()]).collect();
    cases.push(Case::new(format!("lstm_grad {dtype} {dims:?}"), with_slope, build).terms(4 * terms));

    let inputs = || vec![x(), weight(input, 3), weight(hidden, 3), bias(3), bias(3), state()];
    let build = |g: &mut Graph, v: &[ValueId]| Ok(g.apply_n::<2>(Op::Gru, v)?.to_vec());
    cases.push(Case::new(format!("gru {dtype} {dims:?}"), inputs(), build).terms(terms));
    let build = |g: &mut Graph, v: &[ValueId]| {
        let [states, gates] = g.apply_n(Op::Gru, &v[..6])?;
        let operands = [v[0], v[1], v[2], v[5], states, gates, v[6]];
        Ok(g.apply_n::<6>(Op::GruGrad, &operands)?.to_vec())
    };
    let with_slope = inputs().into_iter().chain([slope()]).collect();
    cases.push(Case::new(format!("gru_grad {dtype} {dims:?}"), with_slope, build).terms(4 * terms));
}

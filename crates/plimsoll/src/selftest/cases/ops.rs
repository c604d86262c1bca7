//! Ops with kernels of their own: reductions, movement, windows, tables, losses and norms.

use super::{Case, FLOATS, integers, normals, uniform};
use plimsoll_graph::op::{Pad, Pool2d, PoolKind, Reduction};
use plimsoll_graph::{Axes, DType, Graph, Op, Shape, ValueId};

pub(super) fn list() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in FLOATS {
        reductions(dtype, &mut cases);
        movement(dtype, &mut cases);
        windows(dtype, &mut cases);
        tables(dtype, &mut cases);
        losses(dtype, &mut cases);
        norms(dtype, &mut cases);
    }
    cases
}

/// One op on all inputs, all of whose `N` results are compared.
fn op<const N: usize>(
    op: Op,
) -> impl Fn(&mut Graph, &[ValueId]) -> plimsoll_graph::Result<Vec<ValueId>> + Send + Sync + 'static {
    move |g, v| Ok(g.apply_n::<N>(op.clone(), v)?.to_vec())
}

fn reductions(dtype: DType, cases: &mut Vec<Case>) {
    for (dims, axes) in [
        (&[1000, 96][..], &[0][..]),
        (&[7, 33, 5, 8], &[1]),
        (&[7, 33, 5, 8], &[0, 2]),
        (&[7, 33, 5, 8], &[0, 1, 2, 3]),
        (&[70000, 3], &[0]),
        (&[3, 70000], &[1]),
        (&[3, 9, 2, 7, 3, 20], &[2, 4]),
        (&[2, 5, 4, 3, 4, 7], &[2, 4]),
    ] {
        let kinds = [
            (Reduction::Sum, false),
            (Reduction::Sum, true),
            (Reduction::Max, false),
            (Reduction::Min, false),
        ];
        for (kind, wide) in kinds.into_iter().filter(|(_, wide)| !wide || dtype.accumulator() != dtype) {
            let Ok(over) = Axes::new(axes, dims.len()) else { continue };
            let terms = axes.iter().map(|&axis| dims[axis]).product();
            let name = format!("{}{kind:?} {dtype} {dims:?} over {axes:?}", if wide { "wide " } else { "" });
            let build = op::<1>(Op::Reduce { kind, axes: over, wide });
            cases.push(Case::new(name, vec![normals(dtype, dims)], build).terms(terms));
        }
    }
    for axis in 0..3 {
        let name = format!("arg_max {dtype} [5, 70, 9] along {axis}");
        cases.push(Case::new(name, vec![normals(dtype, &[5, 70, 9])], op::<1>(Op::ArgMax { axis })));
    }
}

fn movement(dtype: DType, cases: &mut Vec<Case>) {
    let shape = |dims: &[usize]| Shape::new(dims).unwrap_or(Shape::SCALAR);
    let pad =
        Pad { before: shape(&[1, 0, 2]), after: shape(&[0, 3, 1]), between: shape(&[0, 2, 1]), value: -1.5 };
    let name = format!("pad {dtype} before, after and between");
    cases.push(Case::new(name, vec![normals(dtype, &[4, 5, 6])], op::<1>(Op::Pad(Box::new(pad)))));
    for axis in 0..3 {
        let part = |extent: usize| {
            let mut dims = [6, 7, 8];
            dims[axis] = extent;
            normals(dtype, &dims)
        };
        let name = format!("concat {dtype} of three along {axis}");
        cases.push(Case::new(name, vec![part(3), part(1), part(5)], op::<1>(Op::Concat { axis })));
    }
}

fn windows(dtype: DType, cases: &mut Vec<Case>) {
    for kind in [PoolKind::Max, PoolKind::Mean] {
        for (window, stride, padding) in
            [([2, 2], [2, 2], [0; 4]), ([3, 3], [2, 2], [1; 4]), ([3, 2], [1, 1], [1, 0, 0, 1])]
        {
            let pool = Pool2d { kind, window, stride, padding };
            let (height, width) = (13, 10);
            let out = |size: usize, axis: usize| {
                (size + padding[2 * axis] + padding[2 * axis + 1] - window[axis]) / stride[axis] + 1
            };
            let about = format!("{dtype} windows {window:?} at {stride:?} with {padding:?}");
            let images = || normals(dtype, &[3, height, width, 24]);
            let name = format!("{} {about}", Op::Pool2d(pool).name());
            cases.push(Case::new(name, vec![images()], op::<1>(Op::Pool2d(pool))));
            let dy = normals(dtype, &[3, out(height, 0), out(width, 1), 24]);
            let name = format!("{} {about}", Op::Pool2dGrad(pool).name());
            cases.push(Case::new(name, vec![images(), dy], op::<1>(Op::Pool2dGrad(pool))));
        }
    }
}

fn tables(dtype: DType, cases: &mut Vec<Case>) {
    for (rows, width, count) in [(50, 33, 200), (2000, 768, 3000), (3, 8, 500)] {
        let about = format!("{dtype} {count} of {rows}×{width}");
        // Some are outside the table.
        let indices = || integers(DType::I32, &[count], -1, rows as i64 + 1);
        let name = format!("gather {about}");
        let inputs = vec![normals(dtype, &[rows, width]), indices()];
        cases.push(Case::new(name, inputs, op::<1>(Op::Gather)));
        let name = format!("scatter_add {about}");
        let inputs = vec![indices(), normals(dtype, &[count, width])];
        cases.push(Case::new(name, inputs, op::<1>(Op::ScatterAdd { rows })).terms(4 * count / rows + 8));
    }
}

fn losses(dtype: DType, cases: &mut Vec<Case>) {
    for (rows, classes) in [(33, 10), (20, 1000), (5, 50257)] {
        let about = format!("{dtype} {rows} of {classes} classes");
        let logits = || normals(dtype, &[rows, classes]);
        // Some labels are to be left out, some do not exist.
        let labels = || integers(DType::I32, &[rows], -2, classes as i64 + 1);
        let name = format!("cross_entropy {about}");
        cases.push(Case::new(name, vec![logits(), labels()], op::<2>(Op::CrossEntropy)).terms(64));
        let slope = uniform(dtype.accumulator(), &[rows], 0.5, 2.0);
        let build = |g: &mut Graph, v: &[ValueId]| {
            let [_, log_sum] = g.apply_n(Op::CrossEntropy, &v[..2])?;
            Ok(vec![g.apply(Op::CrossEntropyGrad, &[v[0], v[1], log_sum, v[2]])?])
        };
        let name = format!("cross_entropy_grad {about}");
        cases.push(Case::new(name, vec![logits(), labels(), slope], build).terms(64));
    }
    for transpose_weight in [false, true] {
        let (rows, width, classes) = (300, 40, 500);
        let weight = if transpose_weight { [classes, width] } else { [width, classes] };
        let inputs = vec![
            normals(dtype, &[rows, width]),
            uniform(dtype, &weight, -0.3, 0.3),
            integers(DType::I32, &[rows], -1, classes as i64),
            uniform(dtype.accumulator(), &[rows], 0.001, 0.002),
        ];
        let name = format!("projected_cross_entropy {dtype}, weight transposed {transpose_weight}");
        let build = op::<4>(Op::ProjectedCrossEntropy { transpose_weight, chunk: 64 });
        cases.push(Case::new(name, inputs, build).terms(4 * rows));
    }
}

fn norms(dtype: DType, cases: &mut Vec<Case>) {
    for (rows, width) in [(9, 768), (64, 33), (3, 10000), (500, 64)] {
        let about = format!("{dtype} {rows}×{width}");
        let inputs =
            || vec![normals(dtype, &[rows, width]), normals(dtype, &[width]), normals(dtype, &[width])];
        let name = format!("layer_norm {about}");
        let norm = Op::LayerNorm { epsilon: 1e-5 };
        cases.push(Case::new(name, inputs(), op::<3>(norm.clone())).terms(256));
        for grad in [Op::LayerNormGrad, Op::ResidualLayerNormGrad] {
            let (norm, more) = (norm.clone(), 1 + usize::from(grad == Op::ResidualLayerNormGrad));
            let name = format!("{} {about}", grad.name());
            let build = move |g: &mut Graph, v: &[ValueId]| {
                let [_, mean, deviation] = g.apply_n(norm.clone(), &v[..3])?;
                let operands = [&[v[0], v[1], mean, deviation], &v[3..]].concat();
                Ok(g.apply_n::<3>(grad.clone(), &operands)?.to_vec())
            };
            let like_x = (0..more).map(|_| normals(dtype, &[rows, width]));
            let inputs = inputs().into_iter().chain(like_x).collect();
            cases.push(Case::new(name, inputs, build).terms(256 + 4 * rows));
        }
    }
    for dims in [[4, 6, 5, 32], [2, 30, 30, 7], [1, 1, 1, 64]] {
        let channels = dims[3];
        let elements: usize = dims[..3].iter().product();
        let about = format!("{dtype} {dims:?}");
        let inputs = || {
            let channel = || normals(dtype, &[channels]);
            vec![normals(dtype, &dims), channel(), channel()]
        };
        let norm = Op::BatchNorm { epsilon: 1e-3 };
        let name = format!("batch_norm {about}");
        cases.push(Case::new(name, inputs(), op::<3>(norm.clone())).terms(256 + 4 * elements));
        let build = move |g: &mut Graph, v: &[ValueId]| {
            let [_, mean, variance] = g.apply_n(norm.clone(), &v[..3])?;
            let op = Op::BatchNormGrad { epsilon: 1e-3 };
            Ok(g.apply_n::<3>(op, &[v[0], v[1], mean, variance, v[3]])?.to_vec())
        };
        let mut with_slope = inputs();
        with_slope.push(normals(dtype, &dims));
        let name = format!("batch_norm_grad {about}");
        cases.push(Case::new(name, with_slope, build).terms(256 + 4 * elements));
    }
}

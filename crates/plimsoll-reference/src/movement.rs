//! Moving, repeating and combining elements.

use crate::Tensor;
use crate::elementwise::{larger, smaller};
use crate::tensor::{indices, offset};
use plimsoll_graph::op::{Pad, Reduction, Slice};
use plimsoll_graph::{Axes, Shape};

pub(crate) fn iota(shape: &Shape, axis: usize) -> Vec<f64> {
    indices(shape).map(|index| index[axis] as f64).collect()
}

pub(crate) fn reduce(kind: Reduction, axes: Axes, x: &Tensor, shape: &Shape) -> Vec<f64> {
    let (start, combine): (f64, fn(f64, f64) -> f64) = match kind {
        Reduction::Sum => (0.0, |a, b| a + b),
        Reduction::Max => (f64::NEG_INFINITY, larger),
        Reduction::Min => (f64::INFINITY, smaller),
    };
    let mut out = vec![start; shape.elements()];
    for index in indices(&x.shape) {
        let kept: Vec<usize> = (0..index.len()).filter(|&a| !axes.contains(a)).map(|a| index[a]).collect();
        let slot = &mut out[offset(shape, &kept)];
        *slot = combine(*slot, x.at(&index));
    }
    out
}

/// The first of the largest elements; NaN counts as the largest.
pub(crate) fn arg_max(axis: usize, x: &Tensor, shape: &Shape) -> Vec<f64> {
    let largest = |kept: Vec<usize>| {
        let value = |i: usize| {
            let mut index = kept.clone();
            index.insert(axis, i);
            x.at(&index)
        };
        let mut best = 0;
        for i in 1..x.shape[axis] {
            if value(i) > value(best) || value(i).is_nan() && !value(best).is_nan() {
                best = i;
            }
        }
        best as f64
    };
    indices(shape).map(largest).collect()
}

pub(crate) fn permute(order: &Shape, x: &Tensor, shape: &Shape) -> Vec<f64> {
    let source = |index: Vec<usize>| {
        let mut from = index.clone();
        for (to, &axis) in order.iter().enumerate() {
            from[axis] = index[to];
        }
        x.at(&from)
    };
    indices(shape).map(source).collect()
}

pub(crate) fn broadcast(x: &Tensor, shape: &Shape) -> Vec<f64> {
    let new = shape.rank() - x.shape.rank();
    let source = |index: Vec<usize>| {
        let from: Vec<usize> =
            index[new..].iter().zip(x.shape.iter()).map(|(&i, &dim)| if dim == 1 { 0 } else { i }).collect();
        x.at(&from)
    };
    indices(shape).map(source).collect()
}

pub(crate) fn slice(slice: &Slice, x: &Tensor, shape: &Shape) -> Vec<f64> {
    let source = |index: Vec<usize>| {
        let from: Vec<usize> =
            (0..index.len()).map(|axis| slice.start[axis] + index[axis] * slice.step[axis]).collect();
        x.at(&from)
    };
    indices(shape).map(source).collect()
}

pub(crate) fn pad(pad: &Pad, x: &Tensor, shape: &Shape) -> Vec<f64> {
    let mut out = vec![pad.value; shape.elements()];
    for index in indices(&x.shape) {
        let to: Vec<usize> =
            (0..index.len()).map(|axis| pad.before[axis] + index[axis] * (pad.between[axis] + 1)).collect();
        out[offset(shape, &to)] = x.at(&index);
    }
    out
}

pub(crate) fn concat(axis: usize, parts: &[&Tensor], shape: &Shape) -> Vec<f64> {
    let source = |mut index: Vec<usize>| {
        for part in parts {
            if index[axis] < part.shape[axis] {
                return part.at(&index);
            }
            index[axis] -= part.shape[axis];
        }
        unreachable!("the parts fill the whole")
    };
    indices(shape).map(source).collect()
}

/// The row that an index names, if it is in the table.
fn row(index: f64, rows: usize) -> Option<usize> {
    (index >= 0.0 && index < rows as f64).then_some(index as usize)
}

pub(crate) fn gather(table: &Tensor, which: &Tensor) -> Vec<f64> {
    let width: usize = table.shape[1..].iter().product();
    let outside = if table.dtype.is_float() { f64::NAN } else { 0.0 };
    let row_of = |&index: &f64| match row(index, table.shape[0]) {
        Some(row) => table.data[row * width..][..width].to_vec(),
        None => vec![outside; width],
    };
    which.data.iter().flat_map(row_of).collect()
}

pub(crate) fn scatter_add(rows: usize, which: &Tensor, updates: &Tensor, shape: &Shape) -> Vec<f64> {
    let width: usize = shape[1..].iter().product();
    let mut table = vec![0.0; shape.elements()];
    for (position, &index) in which.data.iter().enumerate() {
        if let Some(row) = row(index, rows) {
            for i in 0..width {
                table[row * width + i] += updates.data[position * width + i];
            }
        }
    }
    table
}

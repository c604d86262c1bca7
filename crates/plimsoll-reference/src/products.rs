//! Matrix products, convolutions and pooling.

use crate::Tensor;
use crate::elementwise::larger;
use crate::tensor::offset;
use plimsoll_graph::Shape;
use plimsoll_graph::op::{Conv2d, Pool2d, PoolKind};

pub(crate) fn dot(transpose_a: bool, transpose_b: bool, a: &Tensor, b: &Tensor, shape: &Shape) -> Vec<f64> {
    let rank = shape.rank();
    let (m, n) = (shape[rank - 2], shape[rank - 1]);
    let k = a.shape[if transpose_a { rank - 2 } else { rank - 1 }];
    let mut out = vec![0.0; shape.elements()];
    for batch in 0..shape[..rank - 2].iter().product() {
        for i in 0..m {
            for j in 0..n {
                for l in 0..k {
                    let from_a = if transpose_a { l * m + i } else { i * k + l };
                    let from_b = if transpose_b { j * k + l } else { l * n + j };
                    out[batch * m * n + i * n + j] +=
                        a.data[batch * m * k + from_a] * b.data[batch * k * n + from_b];
                }
            }
        }
    }
    out
}

/// Calls `visit` with the positions of every image element, filter tap and output element that meet.
fn meetings(
    conv: &Conv2d,
    images: &Shape,
    filter: &Shape,
    output: &Shape,
    mut visit: impl FnMut(usize, usize, usize),
) {
    let [batch, out_height, out_width, out_channels] = std::array::from_fn(|i| output[i]);
    let [height, width, channels, _] = std::array::from_fn(|i| filter[i]);
    for n in 0..batch {
        for (y, x) in pairs(out_height, out_width) {
            for out_channel in 0..out_channels {
                let group = out_channel / (out_channels / conv.groups);
                for (i, j) in pairs(height, width) {
                    let down = y * conv.stride[0] + i * conv.dilation[0];
                    let across = x * conv.stride[1] + j * conv.dilation[1];
                    let (Some(down), Some(across)) = (
                        inside(down, conv.padding[0], images[1]),
                        inside(across, conv.padding[2], images[2]),
                    ) else {
                        continue;
                    };
                    for channel in 0..channels {
                        visit(
                            offset(images, &[n, down, across, group * channels + channel]),
                            offset(filter, &[i, j, channel, out_channel]),
                            offset(output, &[n, y, x, out_channel]),
                        );
                    }
                }
            }
        }
    }
}

fn pairs(rows: usize, columns: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..rows).flat_map(move |i| (0..columns).map(move |j| (i, j)))
}

/// A coordinate of the padded image as one of the image, if it is not in the border.
fn inside(padded: usize, before: usize, extent: usize) -> Option<usize> {
    padded.checked_sub(before).filter(|&i| i < extent)
}

pub(crate) fn conv2d(conv: &Conv2d, images: &Tensor, filter: &Tensor, output: &Shape) -> Vec<f64> {
    let mut out = vec![0.0; output.elements()];
    meetings(conv, &images.shape, &filter.shape, output, |x, f, y| out[y] += images.data[x] * filter.data[f]);
    out
}

pub(crate) fn conv2d_input_grad(conv: &Conv2d, filter: &Tensor, dy: &Tensor, images: &Shape) -> Vec<f64> {
    let mut dx = vec![0.0; images.elements()];
    meetings(conv, images, &filter.shape, &dy.shape, |x, f, y| dx[x] += filter.data[f] * dy.data[y]);
    dx
}

pub(crate) fn conv2d_filter_grad(conv: &Conv2d, images: &Tensor, dy: &Tensor, filter: &Shape) -> Vec<f64> {
    let mut df = vec![0.0; filter.elements()];
    meetings(conv, &images.shape, filter, &dy.shape, |x, f, y| df[f] += images.data[x] * dy.data[y]);
    df
}

/// Calls `visit` with the position of every output element and those of the image elements in its window.
fn windows(pool: &Pool2d, images: &Shape, output: &Shape, mut visit: impl FnMut(usize, &[usize])) {
    for n in 0..output[0] {
        for (y, x) in pairs(output[1], output[2]) {
            for channel in 0..output[3] {
                let mut window = vec![];
                for (i, j) in pairs(pool.window[0], pool.window[1]) {
                    let down = inside(y * pool.stride[0] + i, pool.padding[0], images[1]);
                    let across = inside(x * pool.stride[1] + j, pool.padding[2], images[2]);
                    if let (Some(down), Some(across)) = (down, across) {
                        window.push(offset(images, &[n, down, across, channel]));
                    }
                }
                visit(offset(output, &[n, y, x, channel]), &window);
            }
        }
    }
}

pub(crate) fn pool2d(pool: &Pool2d, images: &Tensor, output: &Shape) -> Vec<f64> {
    let mut out = vec![0.0; output.elements()];
    windows(pool, &images.shape, output, |y, window| {
        let elements = window.iter().map(|&x| images.data[x]);
        out[y] = match pool.kind {
            PoolKind::Max => elements.fold(f64::NEG_INFINITY, larger),
            PoolKind::Mean => elements.sum::<f64>() / window.len() as f64,
        };
    });
    out
}

/// A window's first largest element takes all of its gradient.
pub(crate) fn pool2d_grad(pool: &Pool2d, images: &Tensor, dy: &Tensor) -> Vec<f64> {
    let mut dx = vec![0.0; images.data.len()];
    windows(pool, &images.shape, &dy.shape, |y, window| match pool.kind {
        PoolKind::Max => {
            let largest = window.iter().map(|&x| images.data[x]).fold(f64::NEG_INFINITY, larger);
            let is_largest = |x: f64| x == largest || x.is_nan();
            if let Some(&first) = window.iter().find(|&&x| is_largest(images.data[x])) {
                dx[first] += dy.data[y];
            }
        }
        PoolKind::Mean => {
            for &x in window {
                dx[x] += dy.data[y] / window.len() as f64;
            }
        }
    });
    dx
}

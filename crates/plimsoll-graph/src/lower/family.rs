//! Which kernels are alike: families by what they compute, and classes by what about their shapes decides their speed.
//!
//! Two kernels of one family, with as much arithmetic and as much traffic, should take about as long on any one device. Where
//! some do not on most devices, a class tells them apart: a product of few rows cannot fill the units that wide ones do, a
//! convolution that is made tile by tile wastes what stands over the image, a loop over short rows spends its time between
//! them. Classes say what a kernel is like, and never how a device computes it.

use crate::op::{Conv2d, Op};
use crate::program::{Body, Kernel, Loop, Operand};
use plimsoll_ir::Family;

/// The kind of kernels whose times a kernel's is to be compared with.
pub(crate) fn family(kernel: &Kernel) -> Family {
    let op = match &kernel.body {
        Body::Op(op) => op,
        Body::WithEpilogue(fused) => &fused.op,
        Body::Loop(body) => {
            let name = if body.row_axes > 0 { "rows" } else { "elements" };
            return Family { name, class: class_of_loop(kernel, body), half: is_half(kernel), steps: 1 };
        }
        Body::Copy | Body::Wait => return Family { name: "copy", ..Family::default() },
    };
    let shape = |operand: usize| kernel.reads.get(operand).map_or(&[][..], |read| &read.view.shape);
    let name = match op {
        Op::Conv2d(conv) => {
            let names =
                ["conv", "conv 1x1", "conv dilated", "conv in groups", "conv by channel", "conv narrow"];
            names[kind_of_conv(conv, shape(1))]
        }
        Op::Conv2dInputGrad { conv, .. } => {
            let names = [
                "conv for images",
                "conv for images 1x1",
                "conv for images dilated",
                "conv for images in groups",
                "conv for images by channel",
                "conv for images narrow",
            ];
            names[kind_of_conv(conv, shape(0))]
        }
        Op::Conv2dFilterGrad { conv, filter } => {
            let names = [
                "conv for filters",
                "conv for filters 1x1",
                "conv for filters dilated",
                "conv for filters in groups",
                "conv for filters by channel",
                "conv for filters narrow",
            ];
            names[kind_of_conv(conv, filter)]
        }
        Op::Attention(_) => ["attention 64", "attention 128", "attention 256"][head_class(shape(0))],
        Op::AttentionGrad(_) | Op::JointAttentionGrad(_) => {
            ["attention back 64", "attention back 128", "attention back 256"][head_class(shape(0))]
        }
        Op::Lstm | Op::Gru => "recurrent",
        Op::LstmGrad | Op::GruGrad => "recurrent back",
        Op::Reduce { axes, .. } => {
            let rank = shape(0).len();
            let reduced = |axis: usize| axes.contains(axis);
            let kept = (0..rank).filter(|&axis| !reduced(axis)).count();
            match kept {
                // Axes that stay come first: each row is reduced.
                _ if (0..kept).all(|axis| !reduced(axis)) => "reduce rows",
                _ if (rank - kept..rank).all(|axis| !reduced(axis)) => "reduce columns",
                _ => "reduce windows",
            }
        }
        other => other.name(),
    };
    let steps = match op {
        Op::Lstm | Op::Gru | Op::LstmGrad | Op::GruGrad => shape(0).get(1).copied().unwrap_or(1),
        _ => 1,
    };
    Family {
        name,
        class: class_of_op(kernel, op),
        half: is_half(kernel),
        steps: u32::try_from(steps).unwrap_or(u32::MAX),
    }
}

pub(crate) fn is_half(kernel: &Kernel) -> bool {
    kernel.reads.first().is_some_and(|read| read.dtype.size() == 2)
}

/// Which of the kinds of convolutions that differ in speed: any, of one pixel, with gaps, in groups, by channel, and from or
/// to fewer channels than units for products take at a time.
fn kind_of_conv(conv: &Conv2d, filter: &[usize]) -> usize {
    let [height, width, inner, outer] = filter else { return 0 };
    match (conv.groups, conv.dilation) {
        (2.., _) if *inner == 1 => 4,
        (2.., _) => 3,
        _ if *inner.min(outer) < 16 => 5,
        (_, dilation) if dilation != [1, 1] => 2,
        _ if [*height, *width] == [1, 1] => 1,
        _ => 0,
    }
}

/// Heads of up to 64, up to 128, or more numbers.
fn head_class(queries: &[usize]) -> usize {
    match queries.last() {
        Some(0..=64) | None => 0,
        Some(65..=128) => 1,
        Some(_) => 2,
    }
}

/// The pixels down and across the tiles that fast convolutions with windows of 3 × 3 are made of.
const TILE: usize = 4;
/// Fewer tiles are no work for many units.
const FEW_TILES: usize = 32;
/// Rows with fewer elements are short, and those with so many long.
const SHORT_ROW: usize = 64;
const LONG_ROW: usize = 4096;
/// Heads of up to so many numbers are narrow.
const NARROW_HEAD: usize = 32;
/// A product whose result or sums have fewer of something than this has few; so have reads that jump after fewer elements.
const FEW_ROWS: usize = 8;
const FEW: usize = 16;

fn class_of_op(kernel: &Kernel, op: &Op) -> &'static str {
    let shape = |operand: usize| kernel.reads.get(operand).map_or(&[][..], |read| &read.view.shape);
    let result = kernel.writes.first().map_or(&[][..], |write| &write.view.shape);
    match op {
        Op::Dot { transpose_a, transpose_b } => {
            let ([.., rows, depth], [.., inner, columns]) = (shape(0), shape(1)) else { return "" };
            let (rows, depth) = if *transpose_a { (depth, rows) } else { (rows, depth) };
            let columns = if *transpose_b { inner } else { columns };
            // The optimizer's update takes in the gradient as it is made.
            match (updates(kernel), *rows < FEW_ROWS, *columns < FEW, *depth < FEW) {
                (false, true, ..) => "few rows",
                (false, _, true, _) => "few columns",
                (false, .., true) => "shallow",
                (false, ..) => "",
                (true, true, ..) => "few rows, updates",
                (true, _, true, _) => "few columns, updates",
                (true, .., true) => "shallow, updates",
                (true, ..) => "updates",
            }
        }
        // Where a loop follows, the result is seen as a matrix.
        Op::Conv2d(conv) => class_of_conv(conv, shape_made(&kernel.body).unwrap_or(result), shape(1)),
        Op::Conv2dInputGrad { conv, .. } => class_of_conv(conv, shape(1), shape(0)),
        Op::Conv2dFilterGrad { conv, filter } => class_of_conv(conv, shape(1), filter),
        Op::Attention(_) | Op::AttentionGrad(_) | Op::JointAttentionGrad(_) => {
            match shape(0).last().copied().unwrap_or(0) {
                ..=NARROW_HEAD => "narrow",
                width if !width.is_multiple_of(FEW) => "ragged",
                _ => "",
            }
        }
        Op::Lstm | Op::Gru | Op::LstmGrad | Op::GruGrad if shape(0).first() < Some(&FEW_ROWS) => "few rows",
        Op::CrossEntropy | Op::CrossEntropyGrad | Op::LayerNorm { .. } | Op::LayerNormGrad => {
            class_of_rows(shape(0).last().copied().unwrap_or(1))
        }
        _ => "",
    }
}

/// The extents of what an op makes that a loop takes in.
fn shape_made(body: &Body) -> Option<&[usize]> {
    match body {
        Body::WithEpilogue(then) => Some(&then.shape),
        _ => None,
    }
}

/// The class of a convolution, by the images that its window is moved over to make, or to be seen from.
fn class_of_conv(conv: &Conv2d, images: &[usize], filter: &[usize]) -> &'static str {
    let ([batch, height, width, _], [down, across, ..]) = (images, filter) else { return "" };
    match (*down, *across) {
        _ if conv.stride != [1, 1] => "with strides",
        (3, 3) if conv.dilation == [1, 1] && conv.groups == 1 => {
            let tiles = batch * height.div_ceil(TILE) * width.div_ceil(TILE);
            let filled = (batch * height * width) as f64 / (TILE * TILE * tiles).max(1) as f64;
            match filled {
                _ if tiles < FEW_TILES || filled <= 0.5 => "few tiles",
                _ if filled < 0.8 => "ragged tiles",
                _ => "tiles",
            }
        }
        (down, across) if down != across => "lines",
        (4.., _) => "large",
        _ => "",
    }
}

fn class_of_loop(kernel: &Kernel, body: &Loop) -> &'static str {
    let permuted = kernel.reads.iter().any(|read| is_permuted(read, body.domain.elements()));
    if body.row_axes > 0 {
        let extents = &body.domain[body.domain.rank() - body.row_axes..];
        return if permuted { "permuted" } else { class_of_rows(extents.iter().product()) };
    }
    match kernel.writes.len() {
        _ if updates(kernel) => "updates",
        _ if permuted => "permuted",
        _ if kernel.flops == 0 => "moves",
        3.. => "several",
        _ => "",
    }
}

/// Whether it changes what it reads, as an optimizer does its states.
fn updates(kernel: &Kernel) -> bool {
    kernel.writes.iter().any(|write| kernel.reads.iter().any(|read| read.buffer == write.buffer))
}

fn class_of_rows(elements: usize) -> &'static str {
    match elements {
        ..SHORT_ROW => "short",
        LONG_ROW.. => "long",
        _ => "",
    }
}

/// Whether a read of much of what a loop goes over jumps in memory after a few elements.
fn is_permuted(read: &Operand, elements: usize) -> bool {
    let view = &read.view;
    let mut together = 1;
    for axis in (0..view.shape.rank()).rev().filter(|&axis| view.shape[axis] > 1) {
        if view.strides[axis] != together {
            break;
        }
        together *= view.shape[axis];
    }
    let distinct = view.distinct();
    together < FEW && together < distinct && 2 * distinct >= elements
}

#[cfg(test)]
mod tests {
    use crate::op::Conv2d;
    use crate::{DType, Graph, Op, Result, Step, ValueId, lower};

    /// The families and classes of what a graph of one input is lowered to.
    fn kinds(
        shape: &[usize],
        build: impl Fn(&mut Graph, ValueId) -> Result<ValueId>,
    ) -> Vec<[&'static str; 2]> {
        let mut step = Step::new();
        let x = step.input("x", shape, DType::F32).expect("an input");
        let y = build(&mut step.graph, x).expect("a value");
        step.output("y", y);
        let families = lower(&step).kernels.iter().map(super::family).collect::<Vec<_>>();
        families.into_iter().map(|family| [family.name, family.class]).collect()
    }

    #[test]
    fn products_are_told_apart_by_what_they_have_few_of() {
        let of = |shape: [usize; 2], transposed| {
            kinds(&shape, |g, x| g.dot_general(x, x, transposed, !transposed))[0]
        };
        assert_eq!(of([64, 64], false), ["dot", ""]);
        assert_eq!(of([4, 64], false), ["dot", "few rows"]);
        assert_eq!(of([12, 64], false), ["dot", "few columns"]);
        assert_eq!(of([4, 64], true), ["dot", "shallow"], "a gradient of a small batch");
    }

    #[test]
    fn convolutions_are_told_apart_by_their_windows_and_how_tiles_cover_the_images() {
        let of = |[batch, side]: [usize; 2], window: usize, stride: usize| {
            let kinds = kinds(&[batch, side, side, 32], |g, x| {
                let filter = g.iota(&[window, window, 32, 32], 0, DType::F32)?;
                let conv = Conv2d { padding: [window / 2; 4], stride: [stride; 2], ..Conv2d::default() };
                g.apply(Op::Conv2d(conv), &[x, filter])
            });
            kinds.into_iter().find(|[name, _]| name.starts_with("conv")).expect("a convolution")[1]
        };
        assert_eq!(of([8, 16], 3, 1), "tiles");
        assert_eq!(of([8, 17], 3, 1), "ragged tiles");
        assert_eq!(of([2, 8], 3, 1), "few tiles");
        assert_eq!(of([64, 5], 3, 1), "few tiles", "most of them stands over the image");
        assert_eq!(of([8, 16], 3, 2), "with strides");
        assert_eq!(of([8, 16], 5, 1), "large");
    }

    #[test]
    fn loops_are_told_apart_by_their_rows_and_by_the_order_in_which_they_read() {
        let sums = |columns| {
            kinds(&[8, columns], |g, x| {
                let sum = g.sum(x, &[1])?;
                let sum = g.reshape(sum, &[8, 1])?;
                let sum = g.broadcast(sum, &[8, columns])?;
                g.mul(x, sum)
            })
        };
        assert_eq!(sums(10), [["rows", "short"]]);
        assert_eq!(sums(1000), [["rows", ""]]);
        assert_eq!(sums(5000), [["rows", "long"]]);
        let square = |g: &mut Graph, x| g.mul(x, x);
        assert_eq!(kinds(&[30, 40], square), [["elements", ""]]);
        let turned = |g: &mut Graph, x| {
            let turned = g.permute(x, &[1, 0])?;
            g.mul(turned, turned)
        };
        assert_eq!(kinds(&[30, 40], turned), [["elements", "permuted"]]);
    }
}

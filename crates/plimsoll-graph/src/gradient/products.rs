//! Rules of matrix products and convolutions: bilinear ops, whose gradients are again such products of the
//! upstream gradient with the other operand.

use super::{Contributions, Site};
use crate::op::{Conv2d, Op};
use crate::{Graph, Result};

/// For y = A B: dA = U Bᵀ and dB = Aᵀ U. Where an operand was transposed, its gradient is the transpose of
/// that, (U Bᵀ)ᵀ = B Uᵀ. All of these are products with transposes of their own, so nothing is permuted.
pub(super) fn dot(g: &mut Graph, site: &Site, transpose_a: bool, transpose_b: bool) -> Result<Contributions> {
    let (a, b, u) = (site.operands[0], site.operands[1], site.upstream);
    site.each(|i| match (i, transpose_a, transpose_b) {
        (0, false, _) => g.dot_general(u, b, false, !transpose_b),
        (0, true, _) => g.dot_general(b, u, transpose_b, true),
        (_, _, false) => g.dot_general(a, u, !transpose_a, false),
        (_, _, true) => g.dot_general(u, a, true, transpose_a),
    })
}

/// For y = x ∗ f the two gradients have ops of their own.
pub(super) fn conv2d(g: &mut Graph, site: &Site, conv: Conv2d) -> Result<Contributions> {
    let (x, filter, u) = (site.operands[0], site.operands[1], site.upstream);
    let (input_shape, filter_shape) = (g.shape(x), g.shape(filter));
    site.each(|i| match i {
        0 => g.apply(Op::Conv2dInputGrad { conv, input: input_shape }, &[filter, u]),
        _ => g.apply(Op::Conv2dFilterGrad { conv, filter: filter_shape }, &[x, u]),
    })
}

/// The op is dx(f, dy), with ⟨dx, u⟩ = ⟨dy, u ∗ f⟩ for any images u. So f gets what a convolution of the
/// images u would give it, and dy gets u ∗ f.
pub(super) fn conv2d_input_grad(g: &mut Graph, site: &Site, conv: Conv2d) -> Result<Contributions> {
    let (filter, dy, u) = (site.operands[0], site.operands[1], site.upstream);
    let filter_shape = g.shape(filter);
    site.each(|i| match i {
        0 => g.apply(Op::Conv2dFilterGrad { conv, filter: filter_shape }, &[u, dy]),
        _ => g.apply(Op::Conv2d(conv), &[u, filter]),
    })
}

/// The op is df(x, dy), with ⟨df, u⟩ = ⟨dy, x ∗ u⟩ for any filter u. So x gets what a convolution with the
/// filter u would give it, and dy gets x ∗ u.
pub(super) fn conv2d_filter_grad(g: &mut Graph, site: &Site, conv: Conv2d) -> Result<Contributions> {
    let (x, dy, u) = (site.operands[0], site.operands[1], site.upstream);
    let input = g.shape(x);
    site.each(|i| match i {
        0 => g.apply(Op::Conv2dInputGrad { conv, input }, &[u, dy]),
        _ => g.apply(Op::Conv2d(conv), &[x, u]),
    })
}

//! Rules of the structured ops. Softmax is written with primitives, which fuse to one kernel over rows; the
//! others hand what they kept in the forward pass to a gradient op of their own.

use super::movement::repeat;
use super::{Contributions, Site, precisely};
use crate::op::{Attention, Op, Pool2d, Reduction};
use crate::{Axes, Graph, Result, ValueId};

/// y (u − Σ u y), the sum over the last axis.
pub(super) fn softmax(g: &mut Graph, site: &Site) -> Result<Contributions> {
    let dx = precisely(g, [site.upstream, site.results[0]], |g, [u, y]| {
        let product = g.mul(u, y)?;
        let inner = row_sum(g, product)?;
        let centred = g.sub(u, inner)?;
        g.mul(y, centred)
    })?;
    Ok(vec![Some(dx)])
}

/// u − eʸ Σ u, the sum over the last axis.
pub(super) fn log_softmax(g: &mut Graph, site: &Site) -> Result<Contributions> {
    let dx = precisely(g, [site.upstream, site.results[0]], |g, [u, y]| {
        let total = row_sum(g, u)?;
        let probability = g.exp(y)?;
        let expected = g.mul(probability, total)?;
        g.sub(u, expected)
    })?;
    Ok(vec![Some(dx)])
}

/// The sum over the last axis, repeated along it.
fn row_sum(g: &mut Graph, x: ValueId) -> Result<ValueId> {
    let shape = g.shape(x);
    let axes = Axes::last(1, shape.rank());
    let sum = g.apply(Op::Reduce { kind: Reduction::Sum, axes, wide: false }, &[x])?;
    repeat(g, sum, &shape, axes)
}

/// A window's mean spreads its gradient evenly, its largest element takes it all.
pub(super) fn pool2d(g: &mut Graph, site: &Site, pool: Pool2d) -> Result<Contributions> {
    let dx = g.apply(Op::Pool2dGrad(pool), &[site.operands[0], site.upstream])?;
    Ok(vec![Some(dx)])
}

/// (softmax − one-hot label) u, from the kept log-sum.
pub(super) fn cross_entropy(g: &mut Graph, site: &Site) -> Result<Contributions> {
    let (logits, labels) = (site.operands[0], site.operands[1]);
    let dx = g.apply(Op::CrossEntropyGrad, &[logits, labels, site.results[1], site.upstream])?;
    Ok(vec![Some(dx), None])
}

/// From the kept mean and reciprocal deviation of each row.
pub(super) fn layer_norm(g: &mut Graph, site: &Site) -> Result<Contributions> {
    let (x, gamma) = (site.operands[0], site.operands[1]);
    let operands = [x, gamma, site.results[1], site.results[2], site.upstream];
    Ok(site.all(g.apply_n::<3>(Op::LayerNormGrad, &operands)?))
}

/// From the kept mean and variance of each channel.
pub(super) fn batch_norm(g: &mut Graph, site: &Site, epsilon: f64) -> Result<Contributions> {
    let (x, gamma) = (site.operands[0], site.operands[1]);
    let operands = [x, gamma, site.results[1], site.results[2], site.upstream];
    Ok(site.all(g.apply_n::<3>(Op::BatchNormGrad { epsilon }, &operands)?))
}

/// From the output and the kept log-sums, which give the probabilities again.
pub(super) fn attention(g: &mut Graph, site: &Site, attention: Attention) -> Result<Contributions> {
    let operands = [&site.operands[..], &site.results[..], &[site.upstream]].concat();
    Ok(site.all(g.apply_n::<3>(Op::AttentionGrad(attention), &operands)?))
}

/// Backwards through time, from the kept gates and cells.
pub(super) fn lstm(g: &mut Graph, site: &Site) -> Result<Contributions> {
    let [x, w, u, _bias, hidden, cell] = std::array::from_fn(|i| site.operands[i]);
    let operands = [&[x, w, u, hidden, cell], &site.results[..], &[site.upstream]].concat();
    Ok(site.all(g.apply_n::<6>(Op::LstmGrad, &operands)?))
}

/// Backwards through time, from the kept gates.
pub(super) fn gru(g: &mut Graph, site: &Site) -> Result<Contributions> {
    let [x, w, u, _input_bias, _hidden_bias, hidden] = std::array::from_fn(|i| site.operands[i]);
    let operands = [&[x, w, u, hidden], &site.results[..], &[site.upstream]].concat();
    Ok(site.all(g.apply_n::<6>(Op::GruGrad, &operands)?))
}

//! Rules of ops that work element by element. With upstream gradient u, each gives u times the derivative.

use super::{Contributions, Site, precisely};
use crate::op::Binary;
use crate::{Graph, Op, Result, ValueId};

pub(super) fn binary(g: &mut Graph, site: &Site, function: Binary) -> Result<Contributions> {
    let (a, b, y, u) = (site.operands[0], site.operands[1], site.results[0], site.upstream);
    match function {
        Binary::Add => site.each(|_| Ok(u)),
        Binary::Sub => site.each(|i| if i == 0 { Ok(u) } else { g.neg(u) }),
        Binary::Mul => site.each(|i| g.mul(u, [b, a][i])),
        // (a / b)′ = 1 / b for a, −a / b² = −y / b for b. Dividing by a
        // constant of full precision is a product, which takes less on every element of a mean.
        Binary::Div => site.each(|i| match i {
            0 => match *g.op(b) {
                Op::Constant { value, dtype, .. } if value != 0.0 && dtype == dtype.accumulator() => {
                    g.mul_scalar(u, 1.0 / value)
                }
                _ => g.div(u, b),
            },
            _ => precisely(g, [u, y, b], |g, [u, y, b]| {
                let product = g.mul(u, y)?;
                let quotient = g.div(product, b)?;
                g.neg(quotient)
            }),
        }),
        Binary::Max => site.each(|i| if i == 0 { chosen(g, u, a, b) } else { chosen(g, u, b, a) }),
        Binary::Min => site.each(|i| if i == 0 { chosen(g, u, b, a) } else { chosen(g, u, a, b) }),
        Binary::Pow => {
            site.each(|i| if i == 0 { power_base(g, u, a, b) } else { power_exponent(g, u, a, b, y) })
        }
    }
}

/// Nothing where `winner` is below `loser`, half of the upstream gradient where they are equal, else all of it: beside NaN
/// it must not vanish.
fn chosen(g: &mut Graph, u: ValueId, winner: ValueId, loser: ValueId) -> Result<ValueId> {
    let below = g.lt(winner, loser)?;
    let equal = g.eq(winner, loser)?;
    let half = g.mul_scalar(u, 0.5)?;
    let zero = g.full_like(0.0, u)?;
    let shared = g.select(equal, half, u)?;
    g.select(below, zero, shared)
}

/// u b aᵇ⁻¹; 0 where b is 0, whatever a is.
fn power_base(g: &mut Graph, u: ValueId, a: ValueId, b: ValueId) -> Result<ValueId> {
    precisely(g, [u, a, b], |g, [u, a, b]| {
        let below = g.add_scalar(b, -1.0)?;
        let power = g.pow(a, below)?;
        let slope = g.mul(b, power)?;
        let du = g.mul(u, slope)?;
        let zero = g.full_like(0.0, b)?;
        let flat = g.eq(b, zero)?;
        g.select(flat, zero, du)
    })
}

/// u y ln a; 0 where a is 0 and b is not negative, since 0ᵇ is flat there.
fn power_exponent(g: &mut Graph, u: ValueId, a: ValueId, b: ValueId, y: ValueId) -> Result<ValueId> {
    precisely(g, [u, a, b, y], |g, [u, a, b, y]| {
        let log = g.log(a)?;
        let slope = g.mul(y, log)?;
        let du = g.mul(u, slope)?;
        let zero = g.full_like(0.0, a)?;
        let no_base = g.eq(a, zero)?;
        let no_pole = g.ge(b, zero)?;
        let flat = g.mul(no_base, no_pole)?;
        g.select(flat, zero, du)
    })
}

/// Each operand gets the gradient of the elements that were taken from it.
pub(super) fn select(g: &mut Graph, site: &Site) -> Result<Contributions> {
    let (condition, u) = (site.operands[0], site.upstream);
    site.each(|i| {
        let zero = g.full_like(0.0, u)?;
        if i == 1 { g.select(condition, u, zero) } else { g.select(condition, zero, u) }
    })
}

/// Rounding is taken as the identity; only casts between floats come here.
pub(super) fn cast(g: &mut Graph, site: &Site) -> Result<Contributions> {
    let dtype = g.dtype(site.operands[0]);
    site.each(|_| g.cast(site.upstream, dtype))
}

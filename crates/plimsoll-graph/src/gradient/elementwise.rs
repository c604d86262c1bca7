//! Rules of ops that work element by element. With upstream gradient u, each gives u times the derivative.

use super::{Contributions, Site, precisely};
use crate::op::{Binary, Unary};
use crate::{Graph, Result, ValueId};
use std::f64::consts::{FRAC_2_SQRT_PI, PI};

pub(super) fn unary(g: &mut Graph, site: &Site, function: Unary) -> Result<Contributions> {
    let (x, y, u) = (site.operands[0], site.results[0], site.upstream);
    let dx = match function {
        Unary::Neg => g.neg(u),
        // |x|′ = sign x, and 0 at 0
        Unary::Abs => {
            let sign = g.sign(x)?;
            g.mul(u, sign)
        }
        // (eˣ)′ = y
        Unary::Exp => g.mul(u, y),
        // (ln x)′ = 1 / x
        Unary::Log => g.div(u, x),
        // ln(1 + eˣ)′ = sigmoid x
        Unary::Softplus => precisely(g, [u, x], |g, [u, x]| {
            let slope = g.sigmoid(x)?;
            g.mul(u, slope)
        }),
        // (√x)′ = 1 / 2y
        Unary::Sqrt => precisely(g, [u, y], |g, [u, y]| {
            let half = g.mul_scalar(u, 0.5)?;
            g.div(half, y)
        }),
        // (x^−½)′ = −½ x^−³ᐟ² = −½ y³
        Unary::Rsqrt => precisely(g, [u, y], |g, [u, y]| {
            let square = g.square(y)?;
            let cube = g.mul(square, y)?;
            let slope = g.mul_scalar(cube, -0.5)?;
            g.mul(u, slope)
        }),
        Unary::Sin => precisely(g, [u, x], |g, [u, x]| {
            let slope = g.cos(x)?;
            g.mul(u, slope)
        }),
        Unary::Cos => precisely(g, [u, x], |g, [u, x]| {
            let sine = g.sin(x)?;
            let slope = g.neg(sine)?;
            g.mul(u, slope)
        }),
        // 1 − y²
        Unary::Tanh => precisely(g, [u, y], |g, [u, y]| {
            let square = g.square(y)?;
            let one = g.full_like(1.0, y)?;
            let slope = g.sub(one, square)?;
            g.mul(u, slope)
        }),
        // y (1 − y)
        Unary::Sigmoid => precisely(g, [u, y], |g, [u, y]| {
            let one = g.full_like(1.0, y)?;
            let rest = g.sub(one, y)?;
            let slope = g.mul(y, rest)?;
            g.mul(u, slope)
        }),
        // 2/√π e^−x²
        Unary::Erf => precisely(g, [u, x], |g, [u, x]| {
            let bell = bell(g, x, -1.0, FRAC_2_SQRT_PI)?;
            g.mul(u, bell)
        }),
        // 1 where y > 0, else 0
        Unary::Relu => {
            let zero = g.full_like(0.0, y)?;
            let positive = g.gt(y, zero)?;
            g.select(positive, u, zero)
        }
        Unary::Gelu => precisely(g, [u, x], |g, [u, x]| {
            let slope = g.apply(crate::Op::Unary(Unary::GeluSlope), &[x])?;
            g.mul(u, slope)
        }),
        // (Φ + x φ)′ = φ (2 − x²), with φ′ = −x φ
        Unary::GeluSlope => precisely(g, [u, x], |g, [u, x]| {
            let bell = bell(g, x, -0.5, 1.0 / (2.0 * PI).sqrt())?;
            let two = g.full_like(2.0, x)?;
            let square = g.square(x)?;
            let factor = g.sub(two, square)?;
            let slope = g.mul(bell, factor)?;
            g.mul(u, slope)
        }),
        // Constant almost everywhere, or not of floats.
        Unary::Sign | Unary::Floor | Unary::Not | Unary::IsFinite => return Ok(vec![None]),
    }?;
    Ok(vec![Some(dx)])
}

/// height · e^(rate · x²)
fn bell(g: &mut Graph, x: ValueId, rate: f64, height: f64) -> Result<ValueId> {
    let square = g.square(x)?;
    let exponent = g.mul_scalar(square, rate)?;
    let bell = g.exp(exponent)?;
    g.mul_scalar(bell, height)
}

pub(super) fn binary(g: &mut Graph, site: &Site, function: Binary) -> Result<Contributions> {
    let (a, b, y, u) = (site.operands[0], site.operands[1], site.results[0], site.upstream);
    match function {
        Binary::Add => site.each(|_| Ok(u)),
        Binary::Sub => site.each(|i| if i == 0 { Ok(u) } else { g.neg(u) }),
        Binary::Mul => site.each(|i| g.mul(u, [b, a][i])),
        // (a / b)′ = 1 / b for a, −a / b² = −y / b for b
        Binary::Div => site.each(|i| match i {
            0 => g.div(u, b),
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

/// The upstream gradient where `winner` is above `loser`, half of it where they are equal, else 0.
fn chosen(g: &mut Graph, u: ValueId, winner: ValueId, loser: ValueId) -> Result<ValueId> {
    let above = g.gt(winner, loser)?;
    let equal = g.eq(winner, loser)?;
    let half = g.mul_scalar(u, 0.5)?;
    let zero = g.full_like(0.0, u)?;
    let shared = g.select(equal, half, zero)?;
    g.select(above, u, shared)
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

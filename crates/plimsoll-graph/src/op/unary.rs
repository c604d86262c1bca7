//! Functions of one element, each described in one place: what it is called, which types it takes, what it costs, its
//! value and its derivative. Everything else is made of this table: the methods of graphs and of tensors, type
//! inference, costs, the reference evaluator, and the lists of what tests and self-tests try. A device adds the code.

use crate::gradient::{Contributions, Site, precisely};
use crate::{DType, Graph, Op, Result, ValueId};
use serde::Serialize;
use std::f64::consts::{FRAC_2_SQRT_PI, PI, SQRT_2};

/// Hands the rows of the table to a macro. Each is the function's documentation, its name, its variant of [`Unary`], the
/// [`Domain`] it is of, whether its result is a number of its operand's type without rounding, how many additions take
/// as long in a vectorised loop (to a power of two), and the range of arguments that tests try.
#[doc(hidden)]
#[macro_export]
macro_rules! with_unary_functions {
    ($callback:ident) => {
        $callback! {
            /// −x
            neg Neg Numbers true 1 (-6.0, 6.0);
            /// |x|
            abs Abs Numbers true 1 (-6.0, 6.0);
            /// The sign: −1, 0 or 1; of NaN, NaN.
            sign Sign Numbers true 1 (-6.0, 6.0);
            /// eˣ
            exp Exp Floats false 4 (-6.0, 6.0);
            /// The natural logarithm.
            log Log Floats false 4 (0.01, 6.0);
            /// ln(1 + eˣ)
            softplus Softplus Floats false 16 (-6.0, 6.0);
            /// The square root.
            sqrt Sqrt Floats false 2 (0.01, 6.0);
            /// One over the square root.
            rsqrt Rsqrt Floats false 2 (0.01, 6.0);
            /// The sine.
            sin Sin Floats false 16 (-6.0, 6.0);
            /// The cosine.
            cos Cos Floats false 16 (-6.0, 6.0);
            /// The hyperbolic tangent.
            tanh Tanh Floats false 8 (-6.0, 6.0);
            /// 1 / (1 + e⁻ˣ)
            sigmoid Sigmoid Floats false 8 (-6.0, 6.0);
            /// The error function.
            erf Erf Floats false 8 (-6.0, 6.0);
            /// max(x, 0); of NaN, NaN.
            relu Relu Numbers true 1 (-6.0, 6.0);
            /// x Φ(x), Φ the normal distribution function.
            gelu Gelu Floats false 16 (-6.0, 6.0);
            /// The derivative of `gelu`.
            gelu_slope GeluSlope Floats false 8 (-6.0, 6.0);
            /// Rounds down.
            floor Floor Floats true 1 (-6.0, 6.0);
            /// Logical not, of bools.
            not Not Bools true 1 (0.0, 1.0);
            /// Whether x is neither infinite nor NaN, as bool.
            is_finite IsFinite FloatsToBool true 1 (-6.0, 6.0);
        }
    };
}

macro_rules! define {
    ($($(#[$doc:meta])* $name:ident $function:ident $domain:ident $exact:literal $additions:literal $tried:expr;)*) => {
        /// A function of one element.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Unary {$(
            $(#[$doc])*
            $function,
        )*}

        impl Unary {
            /// Every function.
            pub const ALL: &[Unary] = &[$(Unary::$function),*];

            /// The name, as printed in graphs and errors.
            pub fn name(self) -> &'static str {
                match self { $(Unary::$function => stringify!($name),)* }
            }

            /// The types that it takes and gives.
            pub fn domain(self) -> Domain {
                match self { $(Unary::$function => Domain::$domain,)* }
            }

            /// Whether its result is a number of its operand's type, whatever the type, so that nothing is rounded.
            pub fn is_exact(self) -> bool {
                match self { $(Unary::$function => $exact,)* }
            }

            /// How many additions take as long in a vectorised loop.
            pub(crate) fn additions(self) -> u64 {
                match self { $(Unary::$function => $additions,)* }
            }

            /// The least and the largest argument that tests and self-tests try.
            pub fn tried(self) -> (f64, f64) {
                match self { $(Unary::$function => $tried,)* }
            }
        }

        impl Graph {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// If the element type is not one the function takes.
            pub fn $name(&mut self, x: ValueId) -> Result<ValueId> {
                self.apply(Op::Unary(Unary::$function), &[x])
            }
        )*}
    };
}

with_unary_functions!(define);

/// Which types a function takes, and what it gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domain {
    /// Any but bool; the result is of the same type.
    Numbers,
    /// Floats; the result is of the same type.
    Floats,
    /// Floats; the result is bool.
    FloatsToBool,
    /// Bool, and so is the result.
    Bools,
}

impl Domain {
    /// The type of the result for an operand of this type, or nothing if that is not taken.
    pub fn result(self, operand: DType) -> Option<DType> {
        match self {
            Domain::Numbers => (operand != DType::Bool).then_some(operand),
            Domain::Floats => operand.is_float().then_some(operand),
            Domain::FloatsToBool => operand.is_float().then_some(DType::Bool),
            Domain::Bools => (operand == DType::Bool).then_some(operand),
        }
    }

    /// What it takes, in words.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Domain::Numbers => "numbers",
            Domain::Floats | Domain::FloatsToBool => "floats",
            Domain::Bools => "bool",
        }
    }
}

impl Unary {
    /// The value, to the accuracy of `f64`: what devices are compared with.
    pub fn value(self, x: f64) -> f64 {
        match self {
            Unary::Neg => -x,
            Unary::Abs => x.abs(),
            Unary::Sign if x == 0.0 || x.is_nan() => x,
            Unary::Sign => x.signum(),
            Unary::Exp => x.exp(),
            Unary::Log => x.ln(),
            Unary::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
            Unary::Sqrt => x.sqrt(),
            Unary::Rsqrt => 1.0 / x.sqrt(),
            Unary::Sin => x.sin(),
            Unary::Cos => x.cos(),
            Unary::Tanh => x.tanh(),
            Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Unary::Erf => libm::erf(x),
            Unary::Relu if x.is_nan() => x,
            Unary::Relu => x.max(0.0),
            // Where the distribution is 0 or its density, an infinity is not a factor.
            Unary::Gelu if x < -40.0 => -0.0,
            Unary::Gelu => x * normal_distribution(x),
            Unary::GeluSlope if x.abs() > 40.0 => normal_distribution(x),
            Unary::GeluSlope => normal_distribution(x) + x * (-x * x / 2.0).exp() / (2.0 * PI).sqrt(),
            Unary::Floor => x.floor(),
            Unary::Not => f64::from(x == 0.0),
            Unary::IsFinite => f64::from(x.is_finite()),
        }
    }

    /// Whether its derivative is zero almost everywhere, or it gives no floats.
    pub fn is_flat(self) -> bool {
        matches!(self, Unary::Sign | Unary::Floor | Unary::Not | Unary::IsFinite)
    }

    /// The gradient rule: the upstream gradient u times the derivative.
    pub(crate) fn gradient(self, g: &mut Graph, site: &Site) -> Result<Contributions> {
        let (x, y, u) = (site.operands[0], site.results[0], site.upstream);
        let dx = match self {
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
            // 0 where y ≤ 0, else 1: of NaN, which is neither, the upstream gradient must not vanish.
            Unary::Relu => {
                let zero = g.full_like(0.0, y)?;
                let flat = g.le(y, zero)?;
                g.select(flat, zero, u)
            }
            Unary::Gelu => precisely(g, [u, x], |g, [u, x]| {
                let slope = g.gelu_slope(x)?;
                g.mul(u, slope)
            }),
            // (Φ + x φ)′ = φ (2 − x²), with φ′ = −x φ
            Unary::GeluSlope => precisely(g, [u, x], |g, [u, x]| {
                // Beyond 40 the bell is zero in every type, and a square might be infinite.
                let (least, most) = (g.full_like(-40.0, x)?, g.full_like(40.0, x)?);
                let x = g.max(x, least)?;
                let x = g.min(x, most)?;
                let bell = bell(g, x, -0.5, 1.0 / (2.0 * PI).sqrt())?;
                let two = g.full_like(2.0, x)?;
                let square = g.square(x)?;
                let factor = g.sub(two, square)?;
                let slope = g.mul(bell, factor)?;
                g.mul(u, slope)
            }),
            Unary::Sign | Unary::Floor | Unary::Not | Unary::IsFinite => return Ok(vec![None]),
        }?;
        Ok(vec![Some(dx)])
    }
}

/// height · e^(rate · x²)
fn bell(g: &mut Graph, x: ValueId, rate: f64, height: f64) -> Result<ValueId> {
    let square = g.square(x)?;
    let exponent = g.mul_scalar(square, rate)?;
    let bell = g.exp(exponent)?;
    g.mul_scalar(bell, height)
}

/// Φ, by the complementary error function: exact in relative terms far below zero as well.
fn normal_distribution(x: f64) -> f64 {
    0.5 * libm::erfc(-x / SQRT_2)
}

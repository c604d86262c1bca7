//! Elementary functions that give the same bits on every machine.
//!
//! The system's mathematics library differs between machines, and within one machine between processors. A
//! plan may move a computation, and a test may compare two devices, so the functions are here. Those of
//! [`single`] precision have no branches and no calls, so that a loop over them becomes vector code for
//! whatever instruction set it is compiled for; they multiply and add, and never fuse the two, so that the
//! instruction set does not show in the result. Those of [`double`] precision are scalar.

pub(crate) mod double;
pub(crate) mod single;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod ulps;

/// The elementary functions of a float, for code that is generic over precision.
pub(crate) trait Float: Copy + PartialOrd {
    fn exp(x: Self) -> Self;
    fn ln(x: Self) -> Self;
    fn softplus(x: Self) -> Self;
    fn sin(x: Self) -> Self;
    fn cos(x: Self) -> Self;
    fn tanh(x: Self) -> Self;
    fn sigmoid(x: Self) -> Self;
    fn erf(x: Self) -> Self;
    fn gelu(x: Self) -> Self;
    fn gelu_slope(x: Self) -> Self;
    fn floor(x: Self) -> Self;
    fn pow(x: Self, y: Self) -> Self;
    fn sqrt(x: Self) -> Self;
    fn recip(x: Self) -> Self;
    fn abs(x: Self) -> Self;
    /// −1, 0 or 1; zeros and NaN are returned as they are.
    fn sign(x: Self) -> Self;
    fn relu(x: Self) -> Self;
    fn is_finite(x: Self) -> bool;
}

macro_rules! float {
    ($float:ident, $module:ident) => {
        impl Float for $float {
            float!(@ $module $float exp ln softplus sin cos tanh sigmoid erf gelu gelu_slope floor);

            #[inline(always)]
            fn pow(x: Self, y: Self) -> Self {
                $module::pow(x, y)
            }

            #[inline(always)]
            fn sqrt(x: Self) -> Self {
                x.sqrt()
            }

            #[inline(always)]
            fn recip(x: Self) -> Self {
                1.0 / x
            }

            #[inline(always)]
            fn abs(x: Self) -> Self {
                x.abs()
            }

            #[inline(always)]
            fn sign(x: Self) -> Self {
                if x > 0.0 {
                    1.0
                } else if x < 0.0 {
                    -1.0
                } else {
                    x
                }
            }

            #[inline(always)]
            fn relu(x: Self) -> Self {
                if x <= 0.0 { 0.0 } else { x }
            }

            #[inline(always)]
            fn is_finite(x: Self) -> bool {
                x.abs() < $float::INFINITY
            }
        }
    };
    (@ $module:ident $float:ident $($function:ident)*) => {
        $(
            #[inline(always)]
            fn $function(x: Self) -> Self {
                $module::$function(x)
            }
        )*
    };
}

float!(f32, single);
float!(f64, double);

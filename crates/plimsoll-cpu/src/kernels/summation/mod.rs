//! The order in which elements are combined.
//!
//! Sums of floats depend on their order. So that a sum has the same bits fused or alone, inside a norm or by itself, on
//! any number of threads and any width of vectors, there is one order for all, a function of the extents alone:
//!
//! - Along a [row](rows): in blocks of [`BLOCK`] elements. In a block, element i goes to lane i modulo [`LANES`]; the
//!   lanes are then combined in halves, and the blocks one after another.
//! - Down the [columns] of a matrix: in blocks of [`block_rows`] rows, row by row, and the blocks one after another.
//!
//! Both keep chains of additions short, which is what bounds the error: a row's are of [`BLOCK`] / [`LANES`] elements, and
//! no cut of columns into equal blocks has shorter ones than one into about √rows of √rows rows.
//!
//! Matrix products sum over their depth, in the order that [`gemm`](crate::gemm) states. Statistics of a batch are merged
//! by the formula for that ([`batch_norm`](super::norm::batch_norm)).

pub(crate) mod columns;
mod rows;

use crate::numbers::{Float, Number};
use plimsoll_graph::DType;
use plimsoll_graph::op::Reduction;
use std::marker::PhantomData;

pub(crate) use columns::block_rows;
pub(crate) use rows::{BLOCK, LANES, RowFold, fold_row};

/// A way to combine numbers.
pub(crate) trait Fold: Send + Sync + 'static {
    type Number: Number;

    /// What combines with a number to that number.
    fn identity() -> Self::Number;

    fn combine(a: Self::Number, b: Self::Number) -> Self::Number;
}

/// Defines ways to combine numbers.
macro_rules! folds {
    ($($(#[$doc:meta])* $name:ident<$t:ident: $bound:ident>, $identity:expr, |$a:ident, $b:ident| $combine:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name<$t>(PhantomData<$t>);

        impl<$t: $bound> Fold for $name<$t> {
            type Number = $t;

            #[inline(always)]
            fn identity() -> $t {
                $identity
            }

            #[inline(always)]
            fn combine($a: $t, $b: $t) -> $t {
                $combine
            }
        }
    )*};
}

folds! {
    /// The sum.
    Sum<T: Number>, T::default(), |a, b| T::add(a, b);
    /// The largest; NaN if any is.
    Max<T: Number>, T::LOWEST, |a, b| T::max(a, b);
    /// The smallest; NaN if any is.
    Min<T: Number>, T::HIGHEST, |a, b| T::min(a, b);
    /// The largest that is a number: NaN is passed over.
    MaxNumber<T: Float>, T::LOWEST, |a, b| if b > a { b } else { a };
}

/// The reduction that gives the same result and that numbers know: a sum of bools is their maximum.
pub(crate) fn plain_reduction(reduction: Reduction, dtype: DType) -> Reduction {
    match reduction {
        Reduction::Sum if dtype == DType::Bool => Reduction::Max,
        other => other,
    }
}

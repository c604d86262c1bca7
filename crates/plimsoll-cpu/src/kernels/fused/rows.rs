//! The reduction of rows inside a loop, in the order all reductions have.

use super::map::CHUNK;
use crate::kernels::summation::{Fold, Max, Min, RowFold, Sum, fold_row};
use crate::numbers::{Element, Kind, Number, with_number};
use crate::simd::{Compiled, Function, Isa};
use plimsoll_graph::op::Reduction;
use std::marker::PhantomData;
use std::slice;

/// What a reduction works on: whole rows, or a chunk of one.
pub(super) struct ReduceArgs {
    /// Where the rows' results go.
    pub(super) out: *mut u8,
    /// Whether there is one row, whose result is wanted as a chunk of copies.
    pub(super) single: bool,
    /// Keeps a row's partial result from chunk to chunk; of at least [`STATE`] bytes.
    pub(super) state: *mut u8,
    pub(super) values: *const u8,
    pub(super) rows: usize,
    /// The chunk's first element in its row, and its elements.
    pub(super) start: usize,
    pub(super) count: usize,
    /// The elements of a row.
    pub(super) length: usize,
}

/// The bytes of a partial result of any kind of number.
pub(super) const STATE: usize = size_of::<RowFold<Sum<f64>>>();

struct ReduceRows<F>(PhantomData<F>);

impl<F: Fold> Function for ReduceRows<F> {
    type Args = ReduceArgs;

    #[inline(always)]
    unsafe fn call(args: &ReduceArgs) {
        let out = args.out.cast::<F::Number>();
        let values = args.values.cast::<F::Number>();
        // SAFETY: the caller vouches for the rows' values, for a result for each row or a chunk of results,
        // and for the state, which the first chunk of a row sets.
        unsafe {
            if args.count == args.length {
                for row in 0..args.rows {
                    let row_values = slice::from_raw_parts(values.add(row * args.length), args.length);
                    *out.add(row) = fold_row::<F, F::Number>(row_values);
                }
            } else {
                let state = args.state.cast::<RowFold<F>>();
                let mut fold = if args.start == 0 { RowFold::new() } else { *state };
                fold.add(slice::from_raw_parts(values, args.count));
                *state = fold;
                if args.start + args.count < args.length {
                    return;
                }
                *out = fold.total();
            }
            if args.single {
                let result = *out;
                (1..CHUNK).for_each(|i| *out.add(i) = result);
            }
        }
    }
}

/// The reduction of rows of numbers of `kind`.
pub(super) fn reduce(reduction: Reduction, kind: Kind, isa: Isa) -> Compiled<ReduceArgs> {
    fn of<T: Number + Element<Acc = T>>(reduction: Reduction, isa: Isa) -> Compiled<ReduceArgs> {
        match reduction {
            Reduction::Sum => isa.compiled::<ReduceRows<Sum<T>>>(),
            Reduction::Max => isa.compiled::<ReduceRows<Max<T>>>(),
            Reduction::Min => isa.compiled::<ReduceRows<Min<T>>>(),
        }
    }
    with_number!(kind, T => of::<T>(reduction, isa))
}

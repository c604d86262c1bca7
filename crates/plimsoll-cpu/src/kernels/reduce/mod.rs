//! Reductions over any axes, and the position of the largest element.
//!
//! A reduction is done in passes. Each combines one group of neighbouring axes, the last group first, and sees
//! its operand as `[outer, reduced, inner]`: rows where `inner` is 1, else columns, in the order that all
//! [sums](super::summation) have.

#[cfg(test)]
mod tests;

use crate::kernels::summation::columns::{COLUMNS, fold_columns};
use crate::kernels::summation::{BLOCK, Fold, Max, Min, Sum, block_rows, fold_row, plain_reduction};
use crate::kernels::tasks::share;
use crate::numbers::{Element, Kind, Number, is_acc, with_element};
use crate::runtime::Pool;
use crate::runtime::{Address, Call, Routine};
use crate::simd::{Compiled, Function, Isa};
use plimsoll_graph::op::Reduction;
use plimsoll_graph::program::Operand;
use plimsoll_graph::{Axes, DType, Shape};
use std::marker::PhantomData;
use std::ops::Range;
use std::slice;

/// With fewer rows than this, long rows are shared by threads.
const FEW_ROWS: usize = 32;
/// Reductions of fewer elements run on one thread.
const SMALL: usize = 32 << 10;

/// Prepares [`Op::Reduce`](plimsoll_graph::Op::Reduce).
pub(crate) fn prepare(
    kind: Reduction,
    axes: Axes,
    reads: &[Operand],
    writes: &[Operand],
) -> Box<dyn Routine> {
    let wide = writes[0].dtype != reads[0].dtype;
    Box::new(Reduce::new(kind, axes, &reads[0].view.shape, reads[0].dtype, wide, Isa::detect()))
}

/// Prepares [`Op::ArgMax`](plimsoll_graph::Op::ArgMax).
pub(crate) fn prepare_arg_max(axis: usize, reads: &[Operand]) -> Box<dyn Routine> {
    Box::new(ArgMax::new(axis, &reads[0].view.shape, reads[0].dtype, Isa::detect()))
}

/// A reduction, ready to run.
struct Reduce {
    passes: Vec<ReducePass>,
    /// Turns the result of the last pass into what is stored, if it is not stored as it is computed.
    finish: Option<Compiled<NarrowArgs>>,
    workspace: usize,
}

/// One pass: `[outer, reduced, inner]` to `[outer, inner]`.
struct ReducePass {
    outer: usize,
    reduced: usize,
    inner: usize,
    input: Buffer,
    output: Buffer,
    /// The bytes of an element of the input, and of the output.
    sizes: [usize; 2],
    /// Where in the workspace the blocks' results are, if there are several.
    partial: Option<usize>,
    combine: Compiled<CombineArgs>,
    /// Combines the blocks' results.
    combine_blocks: Compiled<CombineArgs>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Buffer {
    Operand,
    Workspace(usize),
}

impl Reduce {
    fn new(kind: Reduction, axes: Axes, shape: &Shape, dtype: DType, wide: bool, isa: Isa) -> Reduce {
        let stored_as_computed = wide || is_acc(dtype);
        let kind = plain_reduction(kind, dtype);
        let number = Kind::of(dtype).size();
        let groups = groups(shape, axes);
        let count = groups.iter().filter(|group| group.reduced).count();
        let mut reduce = Reduce { passes: vec![], finish: None, workspace: 0 };
        let mut extents: Vec<Group> = groups;
        for pass in 0..count {
            let Some(at) = extents.iter().rposition(|group| group.reduced) else { break };
            let product = |range: Range<usize>| extents[range].iter().map(|g| g.extent).product::<usize>();
            let (outer, reduced, inner) =
                (product(0..at), extents[at].extent, product(at + 1..extents.len()));
            let input = reduce.passes.last().map_or(Buffer::Operand, |pass| pass.output);
            let last = pass + 1 == count;
            let output = if last && stored_as_computed {
                Buffer::Operand
            } else {
                Buffer::Workspace(reduce.reserve(outer * inner * number))
            };
            let blocks = if inner == 1 {
                if outer < FEW_ROWS { reduced.div_ceil(BLOCK) } else { 1 }
            } else {
                reduced.div_ceil(block_rows(reduced))
            };
            let partial = (blocks > 1).then(|| reduce.reserve(outer * blocks * inner * number));
            let (combine, combine_blocks) = if pass == 0 {
                with_element!(dtype, S => instances::<S>(kind, isa))
            } else {
                with_element!(accumulator(dtype), S => instances::<S>(kind, isa))
            };
            let sizes = [if pass == 0 { dtype.size() } else { number }, number];
            reduce.passes.push(ReducePass {
                outer,
                reduced,
                inner,
                input,
                output,
                sizes,
                partial,
                combine,
                combine_blocks,
            });
            extents.remove(at);
        }
        if !stored_as_computed {
            reduce.finish = Some(with_element!(dtype, S => isa.compiled::<Narrow<S>>()));
        }
        reduce
    }

    fn reserve(&mut self, bytes: usize) -> usize {
        let offset = self.workspace;
        self.workspace += bytes.next_multiple_of(64);
        offset
    }
}

/// What sums of a type are kept in.
fn accumulator(dtype: DType) -> DType {
    if dtype == DType::Bool { DType::U8 } else { dtype.accumulator() }
}

/// Neighbouring axes that are all reduced or all kept.
#[derive(Clone, Copy)]
struct Group {
    extent: usize,
    reduced: bool,
}

/// The axes in groups, at least one of them reduced.
fn groups(shape: &Shape, axes: Axes) -> Vec<Group> {
    let mut groups: Vec<Group> = vec![];
    for (axis, &extent) in shape.iter().enumerate() {
        let reduced = axes.contains(axis);
        match groups.last_mut() {
            Some(last) if last.reduced == reduced => last.extent *= extent,
            _ if extent == 1 => {}
            _ => groups.push(Group { extent, reduced }),
        }
    }
    if !groups.iter().any(|group| group.reduced) {
        groups.push(Group { extent: 1, reduced: true });
    }
    groups
}

impl Routine for Reduce {
    fn workspace(&self, _threads: usize) -> usize {
        self.workspace
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let (read, write) = (call.reads[0].cast_mut(), call.writes[0]);
        let find = |place: Buffer, operand: *mut u8| match place {
            Buffer::Operand => operand,
            // SAFETY: places are within the workspace, which the caller vouches for.
            Buffer::Workspace(offset) => unsafe { call.workspace.add(offset) },
        };
        for pass in &self.passes {
            // SAFETY: the operand has `outer · reduced · inner` elements, the result `outer · inner`, and the
            // workspace room for the partial results.
            unsafe { pass.run(find(pass.input, read), find(pass.output, write), call) };
        }
        if let (Some(convert), Some(last)) = (self.finish, self.passes.last()) {
            let args =
                NarrowArgs { from: find(last.output, write), to: write, count: last.outer * last.inner };
            // SAFETY: as above; the machine has the instruction set that was detected.
            unsafe { convert(&args) };
        }
    }
}

impl ReducePass {
    unsafe fn run(&self, input: *mut u8, output: *mut u8, call: &Call<'_>) {
        let small = self.outer * self.reduced * self.inner < SMALL;
        // SAFETY: the caller vouches for the operands, the preparation for the workspace.
        unsafe {
            let Some(partial) = self.partial else {
                let over =
                    Over { reduced: self.reduced, inner: self.inner, block: self.reduced.max(1), small };
                return over.run(
                    self.combine,
                    self.outer,
                    [input, output].map(Address::new),
                    self.sizes,
                    call.pool,
                );
            };
            let partial = call.workspace.add(partial);
            let block = if self.inner == 1 { BLOCK } else { block_rows(self.reduced) };
            let blocks = self.reduced.div_ceil(block);
            let over = Over { reduced: self.reduced, inner: self.inner, block, small };
            over.run(self.combine, self.outer, [input, partial].map(Address::new), self.sizes, call.pool);
            let over = Over { reduced: blocks, inner: self.inner, block: blocks, small: true };
            let sizes = [self.sizes[1]; 2];
            over.run(self.combine_blocks, self.outer, [partial, output].map(Address::new), sizes, call.pool);
        }
    }
}

/// A walk over blocks of `block` of the reduced elements.
struct Over {
    reduced: usize,
    inner: usize,
    block: usize,
    small: bool,
}

impl Over {
    /// Writes `[outer, blocks, inner]`.
    unsafe fn run(
        &self,
        combine: Compiled<CombineArgs>,
        outer: usize,
        [input, output]: [Address<u8>; 2],
        sizes: [usize; 2],
        pool: &Pool,
    ) {
        let blocks = self.reduced.div_ceil(self.block).max(1);
        let strips = self.inner.div_ceil(COLUMNS);
        let pieces = outer * blocks * strips;
        let work = |range: Range<usize>| {
            for piece in range {
                let (strip, block) = (piece % strips, piece / strips % blocks);
                let outer = piece / strips / blocks;
                let first = strip * COLUMNS;
                let start = block * self.block;
                let args = CombineArgs {
                    rows: self.block.min(self.reduced - start),
                    columns: COLUMNS.min(self.inner - first),
                    stride: self.inner,
                    // SAFETY: the piece is within the operand, and its results within the result.
                    input: unsafe {
                        input.pointer().add(((outer * self.reduced + start) * self.inner + first) * sizes[0])
                    },
                    // SAFETY: as above.
                    output: unsafe {
                        output.pointer().add(((outer * blocks + block) * self.inner + first) * sizes[1])
                    },
                };
                // SAFETY: as above; the machine has the instruction set that was detected.
                unsafe { combine(&args) };
            }
        };
        share(pool, pieces, self.small, &work);
    }
}

/// What combines rows: each of `columns` columns to one number.
struct CombineArgs {
    input: *const u8,
    output: *mut u8,
    rows: usize,
    columns: usize,
    /// The elements from one row to the next; 1 if the columns are rows of memory.
    stride: usize,
}

struct Combine<F, S>(PhantomData<(F, S)>);

/// Combines the results of blocks one after another.
struct CombineBlocks<F>(PhantomData<F>);

impl<F: Fold, S: Element<Acc = F::Number>> Function for Combine<F, S> {
    type Args = CombineArgs;

    #[inline(always)]
    unsafe fn call(args: &CombineArgs) {
        // SAFETY: the caller vouches for rows and columns, and for a result for each column.
        unsafe {
            if args.stride == 1 {
                *args.output.cast() = fold_row::<F, S>(slice::from_raw_parts(args.input.cast(), args.rows));
            } else {
                let CombineArgs { input, output, rows, columns, stride } = *args;
                fold_columns::<F, S>(input.cast(), stride, rows, columns, output.cast());
            }
        }
    }
}

impl<F: Fold> Function for CombineBlocks<F> {
    type Args = CombineArgs;

    #[inline(always)]
    unsafe fn call(args: &CombineArgs) {
        let CombineArgs { input, output, rows, columns, stride } = *args;
        // SAFETY: as for `Combine`.
        unsafe { fold_columns::<F, F::Number>(input.cast(), stride, rows, columns, output.cast()) }
    }
}

fn instances<S: Element>(kind: Reduction, isa: Isa) -> (Compiled<CombineArgs>, Compiled<CombineArgs>)
where
    S::Acc: Element<Acc = S::Acc>,
{
    fn of<F: Fold, S: Element<Acc = F::Number>>(isa: Isa) -> (Compiled<CombineArgs>, Compiled<CombineArgs>)
    where
        F::Number: Element<Acc = F::Number>,
    {
        (isa.compiled::<Combine<F, S>>(), isa.compiled::<CombineBlocks<F>>())
    }
    match kind {
        Reduction::Sum => of::<Sum<S::Acc>, S>(isa),
        Reduction::Max => of::<Max<S::Acc>, S>(isa),
        Reduction::Min => of::<Min<S::Acc>, S>(isa),
    }
}

/// What is stored from the numbers it was computed with.
struct NarrowArgs {
    from: *const u8,
    to: *mut u8,
    count: usize,
}

struct Narrow<S>(PhantomData<S>);

impl<S: Element> Function for Narrow<S> {
    type Args = NarrowArgs;

    #[inline(always)]
    unsafe fn call(args: &NarrowArgs) {
        for i in 0..args.count {
            // SAFETY: the caller vouches for `count` elements.
            unsafe { *args.to.cast::<S>().add(i) = S::narrow(*args.from.cast::<S::Acc>().add(i)) };
        }
    }
}

/// The position of the largest element, ready to run.
struct ArgMax {
    outer: usize,
    reduced: usize,
    inner: usize,
    size: usize,
    function: Compiled<CombineArgs>,
}

impl ArgMax {
    fn new(axis: usize, shape: &Shape, dtype: DType, isa: Isa) -> ArgMax {
        let function = with_element!(dtype, S => isa.compiled::<FindMax<S>>());
        ArgMax {
            outer: shape[..axis].iter().product(),
            reduced: shape[axis],
            inner: shape[axis + 1..].iter().product(),
            size: dtype.size(),
            function,
        }
    }
}

impl Routine for ArgMax {
    fn workspace(&self, _threads: usize) -> usize {
        0
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let small = self.outer * self.reduced * self.inner < SMALL;
        let over = Over { reduced: self.reduced, inner: self.inner, block: self.reduced.max(1), small };
        let addresses = [call.reads[0].cast_mut(), call.writes[0]].map(Address::new);
        // SAFETY: the caller vouches for the operands.
        unsafe { over.run(self.function, self.outer, addresses, [self.size, size_of::<i32>()], call.pool) };
    }
}

struct FindMax<S>(PhantomData<S>);

impl<S: Element> Function for FindMax<S> {
    type Args = CombineArgs;

    #[inline(always)]
    unsafe fn call(args: &CombineArgs) {
        // SAFETY: the caller vouches for rows and columns, and for a result for each column.
        unsafe {
            let input = args.input.cast::<S>();
            if args.stride == 1 {
                *args.output.cast::<i32>() = find_in_row(input, args.rows);
                return;
            }
            let mut best = [S::Acc::LOWEST; COLUMNS];
            let mut found = [0i32; COLUMNS];
            let (best, found) = (&mut best[..args.columns], &mut found[..args.columns]);
            for (column, best) in best.iter_mut().enumerate() {
                *best = (*input.add(column)).widen();
            }
            for row in 1..args.rows {
                for column in 0..args.columns {
                    let x = (*input.add(row * args.stride + column)).widen();
                    let better = x.exceeds(best[column]);
                    best[column] = if better { x } else { best[column] };
                    found[column] = if better { row as i32 } else { found[column] };
                }
            }
            std::ptr::copy_nonoverlapping(found.as_ptr(), args.output.cast(), args.columns);
        }
    }
}

/// The position of the first largest of `count` elements. First the largest, then where it is: both go through
/// whole vectors.
///
/// # Safety
/// The elements must be initialised and not be written meanwhile.
#[inline(always)]
#[allow(clippy::eq_op)]
pub(super) unsafe fn find_in_row<S: Element>(row: *const S, count: usize) -> i32 {
    const CHUNK: usize = 64;
    // SAFETY: the caller vouches for `count` elements.
    unsafe {
        let largest = fold_row::<Max<S::Acc>, S>(slice::from_raw_parts(row, count));
        let is_it = |at: usize| {
            let x = (*row.add(at)).widen();
            x == largest || (x != x && largest != largest)
        };
        let mut at = 0;
        while at + CHUNK <= count && !(at..at + CHUNK).fold(false, |any, i| any | is_it(i)) {
            at += CHUNK;
        }
        (at..count).find(|&i| is_it(i)).unwrap_or(0) as i32
    }
}

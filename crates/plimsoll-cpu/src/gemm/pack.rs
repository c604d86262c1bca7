//! Operands are copied into the order in which the innermost loop reads them, unless they are fine as they are.
//!
//! The copy costs one pass over the operand per block and pays for itself: it is contiguous, half precision is
//! widened once, and a convolution's windows are cut from the image on the way, without a matrix of windows ever
//! being made.

use crate::numbers::{Element, Float};
use crate::simd::{Body, InstructionSet, Isa, MAX_LANES, Vector, VectorOf};
use std::ops::Range;

/// Rows or columns of an operand in memory: `lead` counts them, `depth` what the product sums over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout<S> {
    pub(crate) start: *const S,
    pub(crate) lead_stride: isize,
    pub(crate) depth_stride: isize,
}

impl<S> Layout<S> {
    /// The address of an element.
    pub(crate) fn at(&self, lead: usize, depth: usize) -> *const S {
        let offset = lead as isize * self.lead_stride + depth as isize * self.depth_stride;
        self.start.wrapping_offset(offset)
    }
}

/// The distance between packed rows: room for a vector beyond `depth`, and an odd number of vectors, so that rows
/// spread over the sets of a cache.
pub(crate) const fn row_pitch(depth: usize, lanes: usize) -> usize {
    ((depth.div_ceil(lanes) + 1) | 1) * lanes
}

/// How many depths ahead columns are asked for while they are packed: one depth's are a short stretch of memory, and
/// the next depth's too far away for the processor to guess.
const AHEAD: usize = 4;

/// The left operands of a batch of products.
pub(crate) trait Left<S: Float>: Sync {
    /// Copies a block of at most one register tile of rows to `out`, and says how it lies there.
    ///
    /// # Safety
    ///
    /// The machine has the instruction set; the ranges are within the operand, not empty, and `rows` not
    /// more than a register tile has; `out` has [`row_pitch`] scalars for each row, or a vector-aligned register
    /// tile of rows for each depth, whichever is more.
    unsafe fn pack(
        &self,
        isa: Isa,
        batch: usize,
        rows: Range<usize>,
        depth: Range<usize>,
        out: *mut S,
    ) -> Layout<S>;

    /// The operand as it lies in memory, if it is of scalars at fixed distances.
    fn in_place(&self, batch: usize) -> Option<Layout<S>>;
}

/// The right operands of a batch of products.
pub(crate) trait Right<S: Float>: Sync {
    /// Copies a block to `out`, in panels of `width` columns: column `j` of a panel at its depth `p` goes to
    /// `p * width + j`. What lies beyond the last column is unspecified.
    ///
    /// # Safety
    ///
    /// The machine has the instruction set; the ranges are within the operand; `width` is a multiple of its lanes;
    /// `out` has `width` scalars for each depth of each panel.
    unsafe fn pack(
        &self,
        isa: Isa,
        batch: usize,
        columns: Range<usize>,
        depth: Range<usize>,
        out: *mut S,
        width: usize,
    );

    /// The operand as it lies in memory, if it is of scalars at fixed distances.
    fn in_place(&self, batch: usize) -> Option<Layout<S>>;
}

/// [`Left`] operands, written once for all instruction sets.
pub(crate) trait PackLeft<S: Float>: Sync {
    /// [`Left::pack`] with vectors of the instruction set.
    ///
    /// # Safety
    ///
    /// As for that.
    unsafe fn pack<V: Vector<Scalar = S>>(
        &self,
        batch: usize,
        rows: Range<usize>,
        depth: Range<usize>,
        out: *mut S,
    ) -> Layout<S>;

    /// [`Left::in_place`].
    fn in_place(&self, _batch: usize) -> Option<Layout<S>> {
        None
    }
}

/// [`Right`] operands, written once for all instruction sets.
pub(crate) trait PackRight<S: Float>: Sync {
    /// [`Right::pack`] with vectors of the instruction set.
    ///
    /// # Safety
    ///
    /// As for that.
    unsafe fn pack<V: Vector<Scalar = S>>(
        &self,
        batch: usize,
        columns: Range<usize>,
        depth: Range<usize>,
        out: *mut S,
        width: usize,
    );

    /// [`Right::in_place`].
    fn in_place(&self, _batch: usize) -> Option<Layout<S>> {
        None
    }
}

/// A block of an operand to be packed: some rows or columns over some depth.
struct Block<'a, A, S> {
    operand: &'a A,
    batch: usize,
    lead: Range<usize>,
    depth: Range<usize>,
    out: *mut S,
}

struct LeftBlock<'a, A, S>(Block<'a, A, S>);

struct RightBlock<'a, A, S>(Block<'a, A, S>, usize);

impl<S: Float, A: PackLeft<S>> Body for LeftBlock<'_, A, S> {
    type Output = Layout<S>;

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) -> Layout<S> {
        let Self(Block { operand, batch, lead, depth, out }) = self;
        // SAFETY: the contract is the same.
        unsafe { operand.pack::<VectorOf<I, S>>(batch, lead, depth, out) }
    }
}

impl<S: Float, B: PackRight<S>> Body for RightBlock<'_, B, S> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        let Self(Block { operand, batch, lead, depth, out }, width) = self;
        // SAFETY: the contract is the same.
        unsafe { operand.pack::<VectorOf<I, S>>(batch, lead, depth, out, width) }
    }
}

impl<S: Float, A: PackLeft<S>> Left<S> for A {
    unsafe fn pack(
        &self,
        isa: Isa,
        batch: usize,
        rows: Range<usize>,
        depth: Range<usize>,
        out: *mut S,
    ) -> Layout<S> {
        // SAFETY: the contract is the same.
        unsafe { isa.run_unchecked(LeftBlock(Block { operand: self, batch, lead: rows, depth, out })) }
    }

    fn in_place(&self, batch: usize) -> Option<Layout<S>> {
        PackLeft::in_place(self, batch)
    }
}

impl<S: Float, B: PackRight<S>> Right<S> for B {
    unsafe fn pack(
        &self,
        isa: Isa,
        batch: usize,
        columns: Range<usize>,
        depth: Range<usize>,
        out: *mut S,
        width: usize,
    ) {
        let block = Block { operand: self, batch, lead: columns, depth, out };
        // SAFETY: the contract is the same.
        unsafe { isa.run_unchecked(RightBlock(block, width)) }
    }

    fn in_place(&self, batch: usize) -> Option<Layout<S>> {
        PackRight::in_place(self, batch)
    }
}

/// The addresses of a batch in two dimensions, such as sequences and heads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchStrides {
    /// The length of the inner dimension.
    pub(crate) inner: usize,
    /// The distances between neighbours in the outer and the inner dimension.
    pub(crate) strides: [isize; 2],
}

impl BatchStrides {
    pub(crate) fn offset(&self, batch: usize) -> isize {
        (batch / self.inner) as isize * self.strides[0] + (batch % self.inner) as isize * self.strides[1]
    }
}

/// A matrix whose elements are at fixed distances.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strided<T> {
    pub(crate) start: *const T,
    pub(crate) lead_stride: isize,
    pub(crate) depth_stride: isize,
    pub(crate) batch: BatchStrides,
}

// SAFETY: the memory is read only, and only inside a product whose caller vouches for it.
unsafe impl<T: Element<Acc: Float>> Sync for Strided<T> {}

impl<T: Element<Acc: Float>> Strided<T> {
    fn layout(&self, batch: usize) -> Layout<T> {
        let &Self { start, lead_stride, depth_stride, batch: strides } = self;
        Layout { start: start.wrapping_offset(strides.offset(batch)), lead_stride, depth_stride }
    }

    fn scalars(&self, batch: usize) -> Option<Layout<T::Acc>> {
        let Layout { start, lead_stride, depth_stride } = self.layout(batch);
        T::IS_ACC.then_some(Layout { start: start.cast(), lead_stride, depth_stride })
    }
}

impl<T: Element<Acc: Float>> PackLeft<T::Acc> for Strided<T> {
    #[inline(always)]
    unsafe fn pack<V: Vector<Scalar = T::Acc>>(
        &self,
        batch: usize,
        rows: Range<usize>,
        depth: Range<usize>,
        out: *mut T::Acc,
    ) -> Layout<T::Acc> {
        let layout = self.layout(batch);
        // SAFETY: the caller vouches for the ranges and for `out`.
        unsafe {
            if layout.lead_stride == 1 {
                let width = rows.len().next_multiple_of(V::LANES);
                for (i, p) in depth.enumerate() {
                    copy::<V, T>(layout.at(rows.start, p), rows.len(), out.add(i * width));
                }
                return Layout { start: out, lead_stride: 1, depth_stride: width as isize };
            }
            let pitch = row_pitch(depth.len(), V::LANES);
            for (i, row) in rows.enumerate() {
                let out = out.add(i * pitch);
                if layout.depth_stride == 1 {
                    copy::<V, T>(layout.at(row, depth.start), depth.len(), out);
                } else {
                    for (j, p) in depth.clone().enumerate() {
                        *out.add(j) = (*layout.at(row, p)).widen();
                    }
                }
            }
            Layout { start: out, lead_stride: pitch as isize, depth_stride: 1 }
        }
    }

    fn in_place(&self, batch: usize) -> Option<Layout<T::Acc>> {
        self.scalars(batch)
    }
}

impl<T: Element<Acc: Float>> PackRight<T::Acc> for Strided<T> {
    #[inline(always)]
    unsafe fn pack<V: Vector<Scalar = T::Acc>>(
        &self,
        batch: usize,
        columns: Range<usize>,
        depth: Range<usize>,
        out: *mut T::Acc,
        width: usize,
    ) {
        let layout = self.layout(batch);
        let panels = || columns.clone().step_by(width).enumerate();
        let address = |panel: usize, p: usize| out.wrapping_add((panel * depth.len() + p) * width);
        // SAFETY: the caller vouches for the ranges and for `out`.
        unsafe {
            if layout.lead_stride == 1 {
                // Depth by depth, because the columns of one depth are neighbours across panels too.
                for (i, p) in depth.clone().enumerate() {
                    for (panel, first) in panels() {
                        let count = width.min(columns.end - first);
                        for line in (0..count).step_by(64 / size_of::<T>()) {
                            V::prefetch(layout.at(first + line, p + AHEAD).cast());
                        }
                        copy::<V, T>(layout.at(first, p), count, address(panel, i));
                    }
                }
                return;
            }
            for (panel, first) in panels() {
                let count = width.min(columns.end - first);
                if layout.depth_stride == 1 {
                    let column = |j: usize| layout.at(first + j, depth.start);
                    pack_transposed::<V, T>(count, column, depth.len(), address(panel, 0), width);
                } else {
                    for (i, p) in depth.clone().enumerate() {
                        for j in 0..count {
                            *address(panel, i).add(j) = (*layout.at(first + j, p)).widen();
                        }
                    }
                }
            }
        }
    }

    fn in_place(&self, batch: usize) -> Option<Layout<T::Acc>> {
        self.scalars(batch)
    }
}

/// Copies consecutive elements, widened. What remains of the last vector is overwritten too.
///
/// # Safety
///
/// The machine has the instruction set of `V`; `from` has `count` elements, `to` as many scalars, in whole vectors.
#[inline(always)]
pub(crate) unsafe fn copy<V: Vector<Scalar = T::Acc>, T: Element<Acc: Float>>(
    from: *const T,
    count: usize,
    to: *mut T::Acc,
) {
    // SAFETY: the caller vouches for the memory.
    unsafe {
        let whole = count - count % V::LANES;
        for i in (0..whole).step_by(V::LANES) {
            T::load_some::<V>(from.add(i), 0..V::LANES).store(to.add(i));
        }
        if whole < count {
            T::load_some::<V>(from.add(whole), 0..count - whole).store(to.add(whole));
        }
    }
}

/// Packs one panel of columns that lie along the depth, by transposing squares of whole vectors.
///
/// # Safety
///
/// As for [`Right::pack`]; every column has `depth` elements.
#[inline(always)]
pub(crate) unsafe fn pack_transposed<V: Vector<Scalar = T::Acc>, T: Element<Acc: Float>>(
    count: usize,
    column: impl Fn(usize) -> *const T,
    depth: usize,
    out: *mut T::Acc,
    width: usize,
) {
    for first in (0..count).step_by(V::LANES) {
        // A column that is not there is replaced by one that is.
        let starts: [*const T; MAX_LANES] = std::array::from_fn(|j| column((first + j).min(count - 1)));
        for p in (0..depth).step_by(V::LANES) {
            let depths = V::LANES.min(depth - p);
            // SAFETY: the caller vouches for the columns and for `out`.
            unsafe {
                let square = if T::IS_ACC && depths == V::LANES {
                    V::load_transposed(&starts.map(|start| start.add(p).cast()))
                } else {
                    let mut square = [V::splat(T::Acc::ZERO); MAX_LANES];
                    for (vector, start) in square[..V::LANES].iter_mut().zip(&starts) {
                        *vector = T::load_some(start.add(p), 0..depths);
                    }
                    V::transpose(&mut square[..V::LANES]);
                    square
                };
                for (q, vector) in square[..depths].iter().enumerate() {
                    vector.store(out.add((p + q) * width + first));
                }
            }
        }
    }
}

//! Operands are copied into panels, in the order that the innermost loop reads them.
//!
//! The copy costs one pass over the operand per block and pays for itself: the panel is contiguous, its transpose
//! is done once, half precision is widened once, and a convolution's windows are cut from the image on the way,
//! without a matrix of windows ever being made.

use crate::element::{Element, Real};
use crate::simd::Vector;
use std::ops::Range;

/// The most items side by side in a panel.
pub(crate) const MAX_WIDTH: usize = 32;

/// Where a block of an operand is packed: panels of `items` items, one after another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Panels<S> {
    pub(crate) out: *mut S,
    pub(crate) items: usize,
    /// The distance between the depths of a panel.
    pub(crate) width: usize,
}

/// One operand of a batch of products: `lead` counts the rows of the left operand or the columns of the right
/// one, `depth` what the product sums over.
pub(crate) trait Operand<S: Real>: Sync {
    /// Writes item `i` of a panel at its depth `p` to `p * width + i`. What lies between the last item and
    /// `width` is unspecified.
    ///
    /// # Safety
    ///
    /// The machine has the instruction set of `V`; the ranges are within the operand; `items` is at most `width`,
    /// which is a multiple of `V::LANES` and at most [`MAX_WIDTH`]; `out` has `width` scalars for each depth of
    /// each panel.
    unsafe fn pack<V: Vector<Scalar = S>>(
        &self,
        batch: usize,
        lead: Range<usize>,
        depth: Range<usize>,
        panels: Panels<S>,
    );

    /// The operand as it lies in memory, if that is as good as packed.
    fn in_place(&self, _batch: usize) -> Option<InPlace<S>> {
        None
    }
}

/// An operand in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InPlace<S> {
    pub(crate) start: *const S,
    pub(crate) lead_stride: isize,
    pub(crate) depth_stride: isize,
}

impl<S> InPlace<S> {
    /// The address of an element.
    pub(crate) fn at(&self, lead: usize, depth: usize) -> *const S {
        let offset = lead as isize * self.lead_stride + depth as isize * self.depth_stride;
        self.start.wrapping_offset(offset)
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
unsafe impl<T: Element> Sync for Strided<T> {}

impl<T: Element> Operand<T::Acc> for Strided<T> {
    #[inline(always)]
    unsafe fn pack<V: Vector<Scalar = T::Acc>>(
        &self,
        batch: usize,
        lead: Range<usize>,
        depth: Range<usize>,
        panels: Panels<T::Acc>,
    ) {
        let Panels { out, items, width } = panels;
        let start = self
            .start
            .wrapping_offset(self.batch.offset(batch))
            .wrapping_offset(lead.start as isize * self.lead_stride)
            .wrapping_offset(depth.start as isize * self.depth_stride);
        let (lead, depth) = (lead.len(), depth.len());
        // SAFETY: the caller vouches for the ranges and for `out`.
        unsafe {
            if self.lead_stride == 1 {
                // Depth by depth, because the items of one depth are neighbours across panels too.
                for p in 0..depth {
                    let row = start.wrapping_offset(p as isize * self.depth_stride);
                    for (panel, first) in (0..lead).step_by(items).enumerate() {
                        let out = out.add((panel * depth + p) * width);
                        let count = items.min(lead - first);
                        for i in (0..count).step_by(V::LANES) {
                            let lanes = 0..V::LANES.min(count - i);
                            V::prefetch(row.wrapping_offset(4 * self.depth_stride).wrapping_add(first + i).cast());
                            T::load_some::<V>(row.add(first + i), lanes).store(out.add(i));
                        }
                    }
                }
            } else {
                for (panel, first) in (0..lead).step_by(items).enumerate() {
                    let out = out.add(panel * depth * width);
                    let item = |i: usize| start.wrapping_offset((first + i) as isize * self.lead_stride);
                    let count = items.min(lead - first);
                    if self.depth_stride == 1 {
                        let run = |i| Run { start: item(i), valid: 0..depth };
                        pack_runs::<V, T>(count, run, depth, out, width);
                        continue;
                    }
                    for (i, p) in (0..count).flat_map(|i| (0..depth).map(move |p| (i, p))) {
                        let element = item(i).wrapping_offset(p as isize * self.depth_stride);
                        *out.add(p * width + i) = (*element).widen();
                    }
                }
            }
        }
    }

    fn in_place(&self, batch: usize) -> Option<InPlace<T::Acc>> {
        T::IS_ACC.then(|| InPlace {
            start: self.start.wrapping_offset(self.batch.offset(batch)).cast(),
            lead_stride: self.lead_stride,
            depth_stride: self.depth_stride,
        })
    }
}

/// Elements of one item that follow each other in memory over some depth. Those outside `valid` are zero and not
/// in memory.
#[derive(Clone, Debug)]
pub(crate) struct Run<T> {
    /// The address of the first, or where it would be.
    pub(crate) start: *const T,
    pub(crate) valid: Range<usize>,
}

/// Packs a run of each of `items` items, by transposing squares of whole vectors.
///
/// # Safety
///
/// As for [`Operand::pack`], with the first `depth` elements of every run.
#[inline(always)]
pub(crate) unsafe fn pack_runs<V: Vector<Scalar = T::Acc>, T: Element>(
    items: usize,
    run: impl Fn(usize) -> Run<T>,
    depth: usize,
    out: *mut T::Acc,
    width: usize,
) {
    // SAFETY: the caller vouches for the valid part of the runs and for `out`.
    unsafe {
        for first in (0..items).step_by(V::LANES) {
            let count = V::LANES.min(items - first);
            for p in (0..depth).step_by(V::LANES) {
                let mut square = [V::splat(T::Acc::ZERO); MAX_WIDTH];
                for (i, vector) in square[..count].iter_mut().enumerate() {
                    let run = run(first + i);
                    let valid = run.valid.start.max(p)..run.valid.end.min(depth).min(p + V::LANES);
                    if !valid.is_empty() {
                        *vector = T::load_some(run.start.wrapping_add(p), valid.start - p..valid.end - p);
                    }
                }
                V::transpose(&mut square[..V::LANES]);
                for (q, vector) in square[..V::LANES.min(depth - p)].iter().enumerate() {
                    vector.store(out.add((p + q) * width + first));
                }
            }
        }
    }
}

//! Memory that the tasks of a kernel share: addresses, indices, scratch memory in parts, and staged elements.
//!
//! Elements go through small arrays of the accumulator type on the stack, a [`CHUNK`] at a time. That widens
//! halves once, lets a result replace the operand it was computed from, and leaves the compiler loops over plain
//! arrays, which it turns into vector code.

use crate::numbers::Element;
pub(crate) use crate::runtime::Address;
use crate::runtime::{ALIGNMENT, Call};
use plimsoll_graph::DType;

/// Integers of either width that name rows or classes.
#[derive(Clone, Copy)]
pub(crate) struct Indices {
    address: Address<u8>,
    wide: bool,
}

impl Indices {
    /// Read number `index` of the kernel, of type `dtype`.
    pub(crate) fn read(call: &Call<'_>, index: usize, dtype: DType) -> Self {
        Self { address: Address::read(call, index), wide: dtype == DType::I64 }
    }

    /// The index at `position`.
    ///
    /// # Safety
    /// The position must be within the operand.
    #[inline(always)]
    pub(crate) unsafe fn get(self, position: usize) -> i64 {
        // SAFETY: the caller vouches for the position.
        unsafe {
            match self.wide {
                true => *self.address.pointer().cast::<i64>().add(position),
                false => i64::from(*self.address.pointer().cast::<i32>().add(position)),
            }
        }
    }

    /// The index at `position` if it is one of `0..bound`.
    ///
    /// # Safety
    /// The position must be within the operand.
    #[inline(always)]
    pub(crate) unsafe fn below(self, position: usize, bound: usize) -> Option<usize> {
        // SAFETY: the caller vouches for the position.
        let index = unsafe { self.get(position) };
        usize::try_from(index).ok().filter(|&index| index < bound)
    }
}

/// The bytes of `count` elements of workspace, rounded up so that what follows is aligned.
pub(crate) const fn bytes_of<T>(count: usize) -> usize {
    (count * size_of::<T>()).next_multiple_of(ALIGNMENT)
}

/// How many elements are staged at a time.
pub(crate) const CHUNK: usize = 256;

/// Elements of the accumulator type, staged.
pub(crate) type Chunk<A> = [A; CHUNK];

/// The ranges of at most [`CHUNK`] elements that make up `0..width`.
#[inline(always)]
pub(crate) fn chunks(width: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..width).step_by(CHUNK).map(move |start| (start, CHUNK.min(width - start)))
}

/// Stages the `count` elements from `from` on.
///
/// # Safety
/// They must be initialised and not be written meanwhile.
#[inline(always)]
pub(crate) unsafe fn load<T: Element>(from: Address<T>, count: usize, to: &mut Chunk<T::Acc>) {
    // SAFETY: the caller vouches for the elements.
    let from = unsafe { from.slice(count) };
    widen(from, to);
}

/// Writes the first `count` staged elements from `to` on.
///
/// # Safety
/// The memory must be valid and not be accessed meanwhile.
#[inline(always)]
pub(crate) unsafe fn store<T: Element>(from: &Chunk<T::Acc>, to: Address<T>, count: usize) {
    // SAFETY: the caller vouches for the memory.
    let to = unsafe { to.slice_mut(count) };
    round(from, to);
}

/// Widens every element of `from` into the beginning of `to`.
#[inline(always)]
pub(crate) fn widen<T: Element>(from: &[T], to: &mut [T::Acc]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = from.widen();
    }
}

/// Rounds the beginning of `from` into every element of `to`.
#[inline(always)]
pub(crate) fn round<T: Element>(from: &[T::Acc], to: &mut [T]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = T::narrow(*from);
    }
}

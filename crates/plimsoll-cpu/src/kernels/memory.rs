//! Memory that the tasks of a kernel share: addresses, indices, scratch memory in parts, and staged elements.
//!
//! Elements go through small arrays of the accumulator type on the stack, a [`CHUNK`] at a time. That widens
//! halves once, lets a result replace the operand it was computed from, and leaves the compiler loops over plain
//! arrays, which it turns into vector code.

use crate::numbers::Element;
use crate::runtime::{ALIGNMENT, Call};
use plimsoll_graph::DType;

/// An address that the tasks of a kernel share.
pub(crate) struct Address<T>(*mut T);

impl<T> Clone for Address<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Address<T> {}

// SAFETY: it is only an address; every access through it is unsafe and vouches for the memory.
unsafe impl<T: Send> Send for Address<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Address<T> {}

impl<T: Copy> Address<T> {
    /// Where read number `index` of the kernel begins.
    pub(crate) fn read(call: &Call<'_>, index: usize) -> Self {
        Self(call.reads[index].cast_mut().cast())
    }

    /// Where write number `index` of the kernel begins.
    pub(crate) fn write(call: &Call<'_>, index: usize) -> Self {
        Self(call.writes[index].cast())
    }

    /// The address `bytes` into the workspace.
    pub(crate) fn workspace(call: &Call<'_>, bytes: usize) -> Self {
        Self(call.workspace.wrapping_add(bytes).cast())
    }

    /// The address `elements` further on.
    #[inline(always)]
    pub(crate) fn at(self, elements: usize) -> Self {
        Self(self.0.wrapping_add(elements))
    }

    /// The same address for another type.
    #[inline(always)]
    pub(crate) fn cast<U>(self) -> Address<U> {
        Address(self.0.cast())
    }

    /// The plain pointer.
    #[inline(always)]
    pub(crate) fn pointer(self) -> *mut T {
        self.0
    }

    /// The element here.
    ///
    /// # Safety
    /// It must be initialised and not be written meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn get(self) -> T {
        // SAFETY: the caller vouches for the element.
        unsafe { *self.0 }
    }

    /// Writes the element here.
    ///
    /// # Safety
    /// The memory must be valid and not be accessed meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn set(self, value: T) {
        // SAFETY: the caller vouches for the memory.
        unsafe { *self.0 = value }
    }

    /// The `count` elements from here on, to be read.
    ///
    /// # Safety
    /// The memory must be valid and initialised, and not be written while the slice is in use.
    #[inline(always)]
    pub(crate) unsafe fn slice<'a>(self, count: usize) -> &'a [T] {
        // SAFETY: the caller vouches for the memory.
        unsafe { std::slice::from_raw_parts(self.0, count) }
    }

    /// The `count` elements from here on, to be written.
    ///
    /// # Safety
    /// The memory must be valid, and not be accessed otherwise while the slice is in use.
    #[inline(always)]
    pub(crate) unsafe fn slice_mut<'a>(self, count: usize) -> &'a mut [T] {
        // SAFETY: the caller vouches for the memory, and any bits are a number.
        unsafe { std::slice::from_raw_parts_mut(self.0, count) }
    }
}

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

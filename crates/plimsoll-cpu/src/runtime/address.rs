//! Addresses that threads share.

use super::Call;

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

impl<T> Address<T> {
    /// The address that a pointer holds.
    pub(crate) fn new(pointer: *mut T) -> Self {
        Self(pointer)
    }
}

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

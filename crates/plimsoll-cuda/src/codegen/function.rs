//! Compiled functions and how they are launched.

use crate::driver::device::Shared;
use crate::driver::tensor_map::TensorMap;
use crate::error::Result;
use cudarc::driver::sys::{CUdeviceptr, CUfunction, CUfunction_attribute, CUmodule, CUstream};
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

/// Compiled code on a device. It is unloaded when the last function of it is gone.
pub(crate) struct Module {
    pub(crate) shared: Arc<Shared>,
    pub(crate) module: CUmodule,
}

// SAFETY: the handle is only given to the driver, which may be called from any thread.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Drop for Module {
    fn drop(&mut self) {
        _ = self.shared.with_context(|driver| {
            // SAFETY: the module was loaded in this context, and no function of it is left. A failure means that
            // the driver is shutting down and has unloaded it.
            unsafe { (driver.functions.module_unload)(self.module) };
            Ok(())
        });
    }
}

/// A `__global__` function, ready to be launched.
#[derive(Clone)]
pub(crate) struct Function {
    pub(crate) module: Arc<Module>,
    pub(crate) function: CUfunction,
    pub(crate) name: Arc<str>,
}

// SAFETY: the handle is only given to the driver, which may be called from any thread, and lives as long as the
// module.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// What a kernel is given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Argument<'a> {
    /// A pointer.
    Address(CUdeviceptr),
    /// An `unsigned`.
    U32(u32),
    /// An `unsigned long long`.
    U64(u64),
    /// A struct of eight `long long`.
    Extents([i64; 8]),
    /// How a matrix is described to the copy engine.
    Map(TensorMap),
    /// A struct of so many words of eight bytes.
    Words(&'a [u64]),
}

impl Argument<'_> {
    /// Where the value is.
    fn pointer(&self) -> *mut c_void {
        match self {
            Argument::Address(value) => ptr::from_ref(value).cast_mut().cast(),
            Argument::U32(value) => ptr::from_ref(value).cast_mut().cast(),
            Argument::U64(value) => ptr::from_ref(value).cast_mut().cast(),
            Argument::Extents(value) => ptr::from_ref(value).cast_mut().cast(),
            Argument::Map(value) => ptr::from_ref(value).cast_mut().cast(),
            Argument::Words(words) => words.as_ptr().cast_mut().cast(),
        }
    }
}

impl Function {
    /// The registers that each of its threads begins with.
    ///
    /// # Errors
    /// If the driver does not say.
    pub(crate) fn registers(&self) -> Result<u32> {
        self.module.shared.with_context(|driver| {
            let (which, mut registers) = (CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS, 0);
            // SAFETY: the pointer is to a live number, and the function lives as long as its module.
            let code = unsafe { (driver.functions.function_attribute)(&mut registers, which, self.function) };
            driver.check(code, || format!("count the registers of `{}`", self.name))?;
            Ok(registers.max(0) as u32)
        })
    }

    /// Enqueues a launch of `grid` blocks of `block` threads with `shared` bytes of dynamic shared memory, with the
    /// device's context current. A grid without blocks is nothing to do.
    ///
    /// # Errors
    /// If the driver refuses the launch.
    ///
    /// # Safety
    /// The arguments must be those the kernel takes, and addresses among them valid when it runs.
    pub(crate) unsafe fn launch(
        &self,
        stream: CUstream,
        grid: [u32; 3],
        block: u32,
        shared: u32,
        arguments: &[Argument],
    ) -> Result<()> {
        if grid.contains(&0) {
            return Ok(());
        }
        let mut pointers: Vec<*mut c_void> = arguments.iter().map(Argument::pointer).collect();
        let (driver, [x, y, z]) = (self.module.shared.driver, grid);
        let (function, none) = (self.function, ptr::null_mut());
        // SAFETY: the driver reads as many arguments as the function has, which the caller vouches for, and copies
        // them before it returns.
        let code = unsafe {
            let launch = driver.functions.launch_kernel;
            launch(function, x, y, z, block, 1, 1, shared, stream, pointers.as_mut_ptr(), none)
        };
        driver
            .check(code, || format!("launch `{}` on a grid of {grid:?} blocks of {block} threads", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_points_to_its_value() {
        let extents = [1, -2, 3, 4, 5, 6, 7, 8];
        let words = [3, 1 << 50];
        let arguments = [
            Argument::Address(1 << 40),
            Argument::U32(7),
            Argument::U64(8),
            Argument::Extents(extents),
            Argument::Words(&words),
        ];
        // SAFETY: each is read as the type it holds, while the array lives.
        unsafe {
            assert_eq!(*arguments[0].pointer().cast::<u64>(), 1 << 40);
            assert_eq!(*arguments[1].pointer().cast::<u32>(), 7);
            assert_eq!(*arguments[2].pointer().cast::<u64>(), 8);
            assert_eq!(*arguments[3].pointer().cast::<[i64; 8]>(), extents);
            assert_eq!(*arguments[4].pointer().cast::<[u64; 2]>(), words);
        }
    }
}

//! Temporary device memory for autotuning.
//!
//! Kernels that are measured before a plan exists need operands. Their memory is allocated and freed before the arena,
//! which later holds the same operands and more, is reserved: no budget is exceeded.

use crate::driver::device::Shared;
use crate::error::Result;
use cudarc::driver::sys::CUdeviceptr;
use plimsoll_memory::format_bytes;
use std::ptr;
use std::sync::Arc;

/// The bytes after which what memory holds is the same again.
const PATTERN: usize = 1 << 20;

/// Bytes that are small floats of any type, none of them zero, and as varied as those of real matrices: on uniform operands
/// a device draws less power, clocks higher, and measures faster than it will be.
fn varied(bytes: usize) -> Vec<u8> {
    let mut state = 1u32;
    let word = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 16) as u16 & 0x83ff | 0x3c00).to_le_bytes()
    };
    std::iter::repeat_with(word).flatten().take(bytes).collect()
}

/// Memory of a device, given back when dropped.
pub(crate) struct Scratch {
    shared: Arc<Shared>,
    pub(crate) address: CUdeviceptr,
}

impl Scratch {
    /// # Errors
    /// If the device has no such memory.
    pub(crate) fn new(shared: &Arc<Shared>, bytes: u64) -> Result<Scratch> {
        shared.with_context(|driver| {
            let (mut address, bytes) = (0, bytes.max(1) as usize);
            // SAFETY: the pointer is to a live address.
            let code = unsafe { (driver.functions.mem_alloc)(&mut address, bytes) };
            driver.check(code, || format!("take {} of {}", format_bytes(bytes as u64), shared.id))?;
            let scratch = Scratch { shared: shared.clone(), address };
            let pattern = varied(bytes.min(PATTERN));
            // SAFETY: the pattern is as long, and so is what was taken.
            let code =
                unsafe { (driver.functions.copy_to_device)(address, pattern.as_ptr().cast(), pattern.len()) };
            driver.check(code, || format!("copy {} bytes to {}", pattern.len(), shared.id))?;
            let mut done = pattern.len();
            while done < bytes {
                let more = done.min(bytes - done);
                // SAFETY: so many bytes were taken from the address on, and `more` of them are behind those that are done
                // and no more than these.
                let code = unsafe {
                    (driver.functions.copy_async)(address + done as u64, address, more, ptr::null_mut())
                };
                driver.check(code, || format!("copy {more} bytes of {}", shared.id))?;
                done += more;
            }
            // SAFETY: takes no pointer.
            let code = unsafe { (driver.functions.context_synchronize)() };
            driver.check(code, || format!("wait for work on {}", shared.id))?;
            Ok(scratch)
        })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = self.shared.with_context(|driver| {
            // SAFETY: it was taken from the driver, which waits for work that uses it.
            unsafe { (driver.functions.mem_free)(self.address) };
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_of_trials_are_small_and_varied_floats_of_any_type() {
        let bytes = varied(1 << 12);
        let small = |value: f32| (0.007..2.0).contains(&value.abs());
        for word in bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])) {
            assert!(small(f32::from_bits(u32::from(word) << 16)), "as bf16");
            assert_eq!(word >> 10 & 31, 15, "an f16 from one to two, or its negative");
        }
        for four in bytes.chunks_exact(4).map(|four| [four[0], four[1], four[2], four[3]]) {
            assert!(small(f32::from_le_bytes(four)));
        }
        let negative = bytes.iter().skip(1).step_by(2).filter(|&&byte| byte >= 0x80).count();
        assert!((900..1150).contains(&negative), "{negative} of 2048 are negative");
        assert_eq!(varied(3).len(), 3);
    }
}

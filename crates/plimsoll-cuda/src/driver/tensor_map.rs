//! Tensor maps: matrices as they are described to the tensor memory accelerator of Hopper and later GPUs.
//!
//! It copies boxes of a matrix to shared memory asynchronously, with zeros where a box reaches beyond the matrix. The
//! description is 128 bytes, encoded by the driver and passed to a kernel by value.

use crate::driver::functions::Driver;
use crate::error::{Error, ErrorKind, Result};
use cudarc::driver::sys::CUdeviceptr;

/// The edge of a box, in elements: 128 bytes, which is what the swizzled layout of tensor cores has in a line.
pub(crate) const EDGE: u32 = 64;

/// A description, as the driver wrote it.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TensorMap([u64; 16]);

impl TensorMap {
    /// Describes `lines` lines of `length` elements of two bytes each, whose beginnings are `step` elements apart; it is
    /// copied in swizzled boxes of [`EDGE`] by [`EDGE`].
    ///
    /// # Errors
    /// If the driver knows no such descriptions, or takes not this one: the address is no multiple of 16 bytes, or the
    /// step none of 8.
    pub(crate) fn new(
        driver: &Driver,
        address: CUdeviceptr,
        lines: usize,
        length: usize,
        step: usize,
    ) -> Result<TensorMap> {
        /// The numbers of types and modes in the driver's header.
        const TWO_BYTES: u32 = 1;
        const NOT_INTERLEAVED: u32 = 0;
        const SWIZZLED_128_BYTES: u32 = 3;
        const CACHED_256_BYTES: u32 = 3;
        const ZEROS: u32 = 0;
        let attempt = || format!("describe a matrix of {lines} lines of {length} elements, {step} apart");
        let Some(encode) = driver.encode_tensor_map else {
            let message = format!("cannot {}: the driver is too old", attempt());
            return Err(Error::new(ErrorKind::DriverTooOld, message));
        };
        let mut map = TensorMap([0; 16]);
        let (extents, steps) = ([length as u64, lines as u64], [2 * step as u64]);
        let (edges, neighbours) = ([EDGE; 2], [1; 2]);
        // SAFETY: all pointers are to live values: of rank two there are two extents and one step; the address is
        // written down and not read.
        let code = unsafe {
            encode(
                &mut map,
                TWO_BYTES,
                2,
                address,
                extents.as_ptr(),
                steps.as_ptr(),
                edges.as_ptr(),
                neighbours.as_ptr(),
                NOT_INTERLEAVED,
                SWIZZLED_128_BYTES,
                CACHED_256_BYTES,
                ZEROS,
            )
        };
        driver.check(code, attempt)?;
        Ok(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_as_large_and_aligned_as_kernels_take_it() {
        assert_eq!((size_of::<TensorMap>(), align_of::<TensorMap>()), (128, 64));
    }
}

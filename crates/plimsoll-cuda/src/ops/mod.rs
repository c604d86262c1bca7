//! Ops that have kernels of their own.
//!
//! Each is a CUDA C++ template next to its module, which a kernel of a program instantiates with its element types and the
//! model's own extents as constants, so that the compiler unrolls what it can. Extents that depend on batch and sequence
//! length are kernel arguments, so that a step of another length runs the same code. What is launched, on which grids and
//! with how much workspace is decided without a device, as [`stages::Stages`].

pub(crate) mod batch_norm;
pub(crate) mod cross_entropy;
pub(crate) mod gather;
pub(crate) mod layer_norm;
pub(crate) mod movement;
pub(crate) mod pool2d;
pub(crate) mod projected_cross_entropy;
pub(crate) mod reduce;
pub(crate) mod stages;
#[cfg(test)]
pub(crate) mod tests;
mod tiles;

use plimsoll_graph::DType;

/// The name of an element type in CUDA C++.
pub(crate) fn name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "f32",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::F64 => "f64",
        DType::I32 => "i32",
        DType::I64 => "i64",
        DType::U8 => "u8",
        DType::Bool => "truth",
    }
}

/// The name and size of the type that elements are combined in.
fn accumulator(dtype: DType) -> (&'static str, usize) {
    match dtype {
        DType::U8 | DType::Bool => ("u32", 4),
        other => (name(other.accumulator()), other.accumulator().size()),
    }
}

/// How many elements are moved at once, a power of two of at most `bytes` bytes: they must divide every extent.
pub(crate) fn pack(size: usize, bytes: usize, extents: &[usize]) -> usize {
    let mut pack = bytes / size;
    while pack > 1 && extents.iter().any(|extent| !extent.is_multiple_of(pack)) {
        pack /= 2;
    }
    pack.max(1)
}

/// The threads that work on a row together, and those of a block: neighbouring lanes, or a whole block.
fn team(width: usize) -> (u32, u32) {
    match width {
        0..=32 => (4, 128),
        33..=128 => (8, 128),
        129..=2048 => (32, 128),
        2049..=16384 => (256, 256),
        _ => (512, 512),
    }
}

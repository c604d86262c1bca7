//! Kernels that only move elements: borders, and operands one after another.

use super::stages::{Stages, Traits, blocks, count, read, write};
use super::{name, pack};
use crate::codegen::engine::Engine;
use crate::error::Result;
use crate::routine::Routine;
use plimsoll_graph::DType;
use plimsoll_graph::op::Pad;
use plimsoll_graph::program::Operand;
use std::fmt::Write;
use std::sync::Arc;

const TEXT: &str = include_str!("movement.cu");
const BLOCK: u32 = 256;

/// Prepares [`Op::Pad`](plimsoll_graph::Op::Pad).
pub(crate) fn prepare_pad(
    engine: &Arc<Engine>,
    border: &Pad,
    reads: &[Operand],
    writes: &[Operand],
) -> Result<Box<dyn Routine>> {
    pad_stages(border, reads, writes)?.prepare(engine)
}

/// Prepares [`Op::Concat`](plimsoll_graph::Op::Concat).
pub(crate) fn prepare_concat(
    engine: &Arc<Engine>,
    axis: usize,
    reads: &[Operand],
    writes: &[Operand],
) -> Result<Box<dyn Routine>> {
    concat_stages(axis, reads, writes)?.prepare(engine)
}

pub(super) fn pad_stages(border: &Pad, reads: &[Operand], writes: &[Operand]) -> Result<Stages> {
    let (input, output) = (reads[0].view.shape, writes[0].view.shape);
    let (dtype, ty) = (reads[0].dtype, name(reads[0].dtype));
    let mut stages = Stages::new(output.elements(), &[TEXT]);
    // Elements along the last axes that have no border stay together.
    let bordered = |axis: &usize| input[*axis] != output[*axis];
    let axes = (0..input.rank()).rev().find(bordered).map_or(0, |last| last + 1);
    let together: usize = input[axes..].iter().product();
    let pack = pack(dtype.size(), 16, &[together]);
    let run = together / pack;
    let mut source = format!(
        "static __device__ bool source(Index at, Index first, Index &from) {{ bool inside = true; from = at % {0}; \
         at /= {0};",
        run.max(1)
    );
    let mut stride = run;
    for axis in (0..axes).rev() {
        let (extent, before) = (input[axis], border.before[axis]);
        // A single element has no neighbours to be apart from.
        let step = if extent > 1 { border.between[axis] + 1 } else { 1 };
        let all = output[axis].max(1);
        _ = match axis {
            0 => write!(source, " step<{before}, {step}, {stride}>(at, first, from, inside);"),
            _ => write!(
                source,
                " step<{before}, {step}, {stride}>(at % {all}, {extent}, from, inside); at /= {all};"
            ),
        };
        stride *= extent;
    }
    source.push_str(" return inside; }");
    let packs = output.elements() / pack;
    let traits = Traits::new()
        .ty("E", ty)
        .numbers([("N", pack)])
        .text(&source)
        .text(&format!("static __device__ E value() {{ return {}; }}", constant(border.value, dtype)));
    let first = input.first().copied().unwrap_or(1);
    let arguments = [(&*format!("const {ty}"), read(0)), (ty, write(0)), count(packs), count(first)];
    stages.launch("pad", traits, [blocks(packs, BLOCK), 1], BLOCK, arguments)?;
    Ok(stages)
}

/// A number as an element of a type in CUDA C++: rounded to nearest even, or truncated and saturated.
fn constant(value: f64, dtype: DType) -> String {
    match dtype {
        DType::F64 => format!("__longlong_as_double({:#x}ll)", value.to_bits()),
        DType::F32 => format!("__uint_as_float({:#x}u)", (value as f32).to_bits()),
        DType::F16 | DType::BF16 => {
            format!("narrow<E>(__uint_as_float({:#x}u))", round_to_odd(value).to_bits())
        }
        DType::I32 => format!("(i32){}ll", i64::from(value as i32)),
        DType::I64 => format!("(i64){:#x}ull", value as i64),
        DType::U8 => format!("(u8){}", value as u8),
        DType::Bool => format!("truth{{{}}}", u8::from(value != 0.0)),
    }
}

/// The number in single precision, with the last bit set if it is not exact: rounding it again gives what rounding
/// once does.
fn round_to_odd(value: f64) -> f32 {
    let near = value as f32;
    if f64::from(near) == value || value.is_nan() {
        return near;
    }
    let away = f64::from(near).abs() > value.abs();
    f32::from_bits((near.to_bits() - u32::from(away)) | 1)
}

pub(super) fn concat_stages(axis: usize, reads: &[Operand], writes: &[Operand]) -> Result<Stages> {
    let (shape, dtype) = (writes[0].view.shape, writes[0].dtype);
    let mut stages = Stages::new(shape.elements(), &[TEXT]);
    let after: usize = shape[axis + 1..].iter().product();
    let runs: Vec<usize> = reads.iter().map(|read| read.view.shape[axis] * after).collect();
    let (ty, pack) = (name(dtype), pack(dtype.size(), 16, &runs));
    // One run is as good as many of one pack, side by side.
    let whole = shape[..axis].iter().all(|&extent| extent == 1);
    let stride = if whole { 1 } else { shape[axis] * after / pack };
    let mut offset = 0;
    for (index, (operand, run)) in reads.iter().zip(runs).enumerate() {
        let packs = operand.view.shape.elements() / pack;
        let traits = Traits::new().ty("E", ty).numbers([
            ("N", pack),
            ("RUN", if whole { 1 } else { run / pack }),
            ("STRIDE", stride),
        ]);
        let arguments =
            [(&*format!("const {ty}"), read(index)), (ty, write(0)), count(packs), count(offset / pack)];
        stages.launch("place", traits, [blocks(packs, BLOCK), 1], BLOCK, arguments)?;
        offset += run;
    }
    Ok(stages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_is_rounded_once() {
        // Just above the middle between two numbers of bf16, nearer to it than single precision can tell.
        let above = 1.0 + 1.0 / 256.0 + 1e-12;
        assert_eq!(round_to_odd(above).to_bits(), (1.0f32 + 1.0 / 256.0).to_bits() | 1);
        let below = 1.0 + 1.0 / 256.0 - 1e-12;
        assert_eq!(round_to_odd(below).to_bits(), (1.0f32 + 1.0 / 256.0).to_bits() - 1);
        assert_eq!(round_to_odd(-below).to_bits(), (-1.0f32 - 1.0 / 256.0).to_bits() - 1);
        for exact in [0.0, -0.0, 0.5, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(f64::from(round_to_odd(exact)).to_bits(), exact.to_bits());
        }
        assert!(round_to_odd(f64::NAN).is_nan());
        assert_eq!(round_to_odd(1e300), f32::MAX);
        assert_eq!(constant(1e300, DType::I32), "(i32)2147483647ll");
        assert_eq!(constant(f64::NEG_INFINITY, DType::I64), "(i64)0x8000000000000000ull");
    }
}

//! Runs routines in tests: on memory full of NaN between guards, with one to three threads.

use crate::runtime::Pool;
use crate::runtime::{ALIGNMENT, Call, Routine};
use half::{bf16, f16};
use plimsoll_graph::program::{BufferId, Operand, View};
use plimsoll_graph::{DType, Shape};

/// The float types that kernels work on.
pub(super) const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

/// Half a unit in the last place of one: how far rounding to the type moves a number near one.
pub(super) fn unit(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 2f64.powi(-53),
        DType::F32 => 2f64.powi(-24),
        DType::F16 => 2f64.powi(-11),
        _ => 2f64.powi(-8),
    }
}

/// A small generator of the numbers that tests are made of.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number in `-1..1`.
    pub(super) fn float(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 33) as usize % bound
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A dense tensor of numbers in `-1..1`.
    pub(super) fn tensor(&mut self, dtype: DType, dims: &[usize]) -> Tensor {
        let count = dims.iter().product();
        Tensor::new(dtype, dims, (0..count).map(|_| self.float()).collect())
    }

    /// A tensor of numbers in `-1..1` whose axes lie in memory in the given order, with gaps and an offset.
    pub(super) fn strided(&mut self, dtype: DType, dims: &[usize], order: &[usize]) -> Tensor {
        let mut view = View::dense(Shape::new(dims).unwrap());
        let mut step = 1;
        for &axis in order.iter().rev() {
            view.strides[axis] = step;
            step = step * dims[axis] + self.below(3);
        }
        view.offset = self.below(5);
        let buffer = (0..view.offset + step).map(|_| nearest(dtype, self.float())).collect();
        Tensor { dtype, view, buffer }
    }
}

/// A value: a buffer of numbers, rounded to the element type, and the view of it.
#[derive(Clone)]
pub(super) struct Tensor {
    dtype: DType,
    view: View,
    buffer: Vec<f64>,
}

impl Tensor {
    /// A dense tensor of these numbers.
    pub(super) fn new(dtype: DType, dims: &[usize], values: Vec<f64>) -> Self {
        let view = View::dense(Shape::new(dims).unwrap());
        assert_eq!(view.shape.elements(), values.len());
        Self { dtype, view, buffer: values.into_iter().map(|value| nearest(dtype, value)).collect() }
    }

    /// It, repeated along new leading axes.
    pub(super) fn broadcast(&self, dims: &[usize]) -> Self {
        let mut view = View::dense(Shape::new(dims).unwrap());
        let new = dims.len() - self.view.shape.rank();
        view.strides[..new].fill(0);
        view.strides[new..dims.len()].copy_from_slice(&self.view.strides[..dims.len() - new]);
        Self { view, ..self.clone() }
    }

    /// The view of it, as a kernel's read.
    pub(super) fn operand(&self) -> Operand {
        Operand { buffer: BufferId(0), dtype: self.dtype, view: self.view }
    }

    /// The element at an index.
    pub(super) fn at(&self, index: &[usize]) -> f64 {
        let walk: usize = index.iter().zip(&self.view.strides).map(|(i, stride)| i * stride).sum();
        self.buffer[self.view.offset + walk]
    }

    /// All elements, row by row.
    pub(super) fn values(&self) -> Vec<f64> {
        let shape = self.view.shape;
        let dense = shape.strides();
        let index = |position: usize| (0..shape.rank()).map(move |axis| position / dense[axis] % shape[axis]);
        (0..shape.elements()).map(|position| self.at(&index(position).collect::<Vec<_>>())).collect()
    }
}

/// Rounds a number to an element type.
pub(super) fn nearest(dtype: DType, value: f64) -> f64 {
    match dtype {
        DType::F64 => value,
        DType::F32 => f64::from(value as f32),
        DType::F16 => f16::from_f64(value).to_f64(),
        DType::BF16 => bf16::from_f64(value).to_f64(),
        DType::Bool => f64::from(value != 0.0),
        _ => value.trunc(),
    }
}

fn encode(dtype: DType, value: f64) -> Vec<u8> {
    match dtype {
        DType::F64 => value.to_ne_bytes().to_vec(),
        DType::F32 => (value as f32).to_ne_bytes().to_vec(),
        DType::F16 => f16::from_f64(value).to_ne_bytes().to_vec(),
        DType::BF16 => bf16::from_f64(value).to_ne_bytes().to_vec(),
        DType::I32 => (value as i32).to_ne_bytes().to_vec(),
        DType::I64 => (value as i64).to_ne_bytes().to_vec(),
        DType::U8 | DType::Bool => vec![value as u8],
    }
}

fn decode(dtype: DType, bytes: &[u8]) -> f64 {
    match dtype {
        DType::F64 => f64::from_ne_bytes(bytes.try_into().unwrap()),
        DType::F32 => f64::from(f32::from_ne_bytes(bytes.try_into().unwrap())),
        DType::F16 => f16::from_ne_bytes(bytes.try_into().unwrap()).to_f64(),
        DType::BF16 => bf16::from_ne_bytes(bytes.try_into().unwrap()).to_f64(),
        DType::I32 => f64::from(i32::from_ne_bytes(bytes.try_into().unwrap())),
        DType::I64 => i64::from_ne_bytes(bytes.try_into().unwrap()) as f64,
        DType::U8 | DType::Bool => f64::from(bytes[0]),
    }
}

/// A byte of NaN, in any float type.
const POISON: u8 = 0xff;

/// Aligned memory between guards.
struct Guarded {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Guarded {
    fn poisoned(len: usize) -> Self {
        let memory = vec![POISON; len + 3 * ALIGNMENT];
        let start = ALIGNMENT + memory.as_ptr().align_offset(ALIGNMENT);
        Self { memory, start, len }
    }

    fn of(tensor: &Tensor) -> Self {
        let bytes: Vec<u8> = tensor.buffer.iter().flat_map(|&value| encode(tensor.dtype, value)).collect();
        let mut guarded = Self::poisoned(bytes.len());
        guarded.memory[guarded.start..][..bytes.len()].copy_from_slice(&bytes);
        guarded
    }

    fn address(&mut self) -> *mut u8 {
        self.memory[self.start..].as_mut_ptr()
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..][..self.len]
    }

    fn check(&self) {
        let (before, rest) = self.memory.split_at(self.start);
        assert!(
            before.iter().chain(&rest[self.len..]).all(|&byte| byte == POISON),
            "a kernel wrote out of bounds"
        );
    }
}

/// Runs a routine on one, two and three threads, checks that results are the same to the bit and that nothing
/// else is written, and returns the results. `in_place` pairs writes with the reads whose memory they take.
pub(super) fn run(
    prepare: impl Fn(&[Operand], &[Operand]) -> Box<dyn Routine>,
    reads: &[&Tensor],
    writes: &[(DType, &[usize])],
    in_place: &[(usize, usize)],
) -> Vec<Vec<f64>> {
    let operands: Vec<Operand> = reads.iter().map(|read| read.operand()).collect();
    let results: Vec<Operand> = (writes.iter())
        .map(|(dtype, dims)| Tensor::new(*dtype, dims, vec![0.0; dims.iter().product()]).operand())
        .collect();
    let routine = prepare(&operands, &results);
    let mut first: Option<Vec<Vec<u8>>> = None;
    for threads in 1..=3 {
        let pool = Pool::new(threads).unwrap();
        let mut inputs: Vec<Guarded> = reads.iter().map(|read| Guarded::of(read)).collect();
        let size = |(dtype, dims): &(DType, &[usize])| dims.iter().product::<usize>() * dtype.size();
        let mut outputs: Vec<Guarded> = writes.iter().map(|write| Guarded::poisoned(size(write))).collect();
        let mut workspace = Guarded::poisoned(routine.workspace(threads));
        let read_at: Vec<*const u8> = inputs.iter_mut().map(|input| input.address().cast_const()).collect();
        let mut write_at: Vec<*mut u8> = outputs.iter_mut().map(Guarded::address).collect();
        for &(write, read) in in_place {
            write_at[write] = read_at[read].cast_mut();
        }
        let scratch = workspace.address();
        // SAFETY: every operand has memory of its size, and results share that of reads only where the test says
        // that the kernel allows it.
        unsafe {
            routine.run(&Call { reads: &read_at, writes: &write_at, workspace: scratch, pool: &pool });
        }
        let mut bytes: Vec<Vec<u8>> = outputs.iter().map(|output| output.bytes().to_vec()).collect();
        for &(write, read) in in_place {
            bytes[write] = inputs[read].bytes().to_vec();
        }
        for (index, (input, read)) in inputs.iter().zip(reads).enumerate() {
            let overwritten = in_place.iter().any(|pair| pair.1 == index);
            assert!(
                overwritten || input.bytes() == Guarded::of(read).bytes(),
                "a kernel wrote to its read {index}"
            );
        }
        inputs.iter().chain(&outputs).chain([&workspace]).for_each(Guarded::check);
        let first = first.get_or_insert_with(|| bytes.clone());
        assert!(*first == bytes, "results on {threads} threads differ from those on one");
    }
    let decoded = first.unwrap_or_default().into_iter().zip(writes);
    decoded
        .map(|(bytes, (dtype, _))| bytes.chunks(dtype.size()).map(|bytes| decode(*dtype, bytes)).collect())
        .collect()
}

/// Checks that numbers differ by no more than `tolerance`, relative for numbers above one; NaN equals NaN.
#[track_caller]
pub(super) fn assert_close(actual: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    for (position, (&actual, &expected)) in actual.iter().zip(expected).enumerate() {
        let same = actual == expected || (actual.is_nan() && expected.is_nan());
        let close = (actual - expected).abs() <= tolerance * expected.abs().max(1.0);
        assert!(
            same || close,
            "{what} at {position}: {actual} instead of {expected}, tolerance {tolerance:e}"
        );
    }
}

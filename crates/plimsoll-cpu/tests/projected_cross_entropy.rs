//! A projection to logits with its cross-entropy, some rows at a time, has the bits of the ops it stands for.

use half::{bf16, f16};
use plimsoll_cpu::CpuDevice;
use plimsoll_device::Device;
use plimsoll_graph::op::Op;
use plimsoll_graph::random::philox;
use plimsoll_graph::{DType, Result, Step, ValueId, lower};
use plimsoll_memory::Pool;
use proptest::prelude::*;
use std::rc::Rc;

#[derive(Clone, Copy, Debug)]
struct Case {
    rows: usize,
    width: usize,
    classes: usize,
    chunk: usize,
    transpose_weight: bool,
    dtype: DType,
    labels: DType,
}

type Outputs = [ValueId; 4];

impl Case {
    fn step(&self, build: impl FnOnce(&Case, &mut Step, [ValueId; 4]) -> Result<Outputs>) -> Step {
        let Case { rows, width, classes, dtype, .. } = *self;
        let weight = if self.transpose_weight { [classes, width] } else { [width, classes] };
        let mut step = Step::new();
        let x = step.input("x", &[rows, width], dtype).unwrap();
        let weight = step.input("weight", &weight, dtype).unwrap();
        let labels = step.input("labels", &[rows], self.labels).unwrap();
        let slope = step.input("slope", &[rows], dtype.accumulator()).unwrap();
        let outputs = build(self, &mut step, [x, weight, labels, slope]).unwrap();
        for (name, value) in ["loss", "prediction", "dx", "dweight"].into_iter().zip(outputs) {
            step.output(name, value);
        }
        step
    }

    /// The ops one by one.
    fn plain(&self) -> Step {
        self.step(|case, step, [x, weight, labels, slope]| {
            let (g, turned) = (&mut step.graph, case.transpose_weight);
            let logits = g.dot_general(x, weight, false, turned)?;
            let [loss, log_sum] = g.apply_n(Op::CrossEntropy, &[logits, labels])?;
            let prediction = g.arg_max(logits, 1)?;
            let u = g.apply(Op::CrossEntropyGrad, &[logits, labels, log_sum, slope])?;
            let dx = g.dot_general(u, weight, false, !turned)?;
            let (a, b) = if turned { (u, x) } else { (x, u) };
            Ok([loss, prediction, dx, g.dot_general(a, b, true, false)?])
        })
    }

    /// The one op.
    fn projected(&self) -> Step {
        self.step(|case, step, operands| {
            let Case { transpose_weight, chunk, .. } = *case;
            step.graph.apply_n(Op::ProjectedCrossEntropy { transpose_weight, chunk }, &operands)
        })
    }

    /// The bytes of the operands. Some labels are negative.
    fn operands(&self) -> Vec<Vec<u8>> {
        let Case { rows, width, classes, dtype, .. } = *self;
        let wide = dtype.accumulator();
        let floats = |count: usize, dtype, seed| {
            (0..count).flat_map(|i| float(dtype, uniform(i, seed) * 2.0 - 1.0)).collect::<Vec<u8>>()
        };
        let label = |row: usize| match uniform(row, 3) {
            ignored if ignored < 0.1 => -1i64,
            chosen => (chosen * classes as f64) as i64,
        };
        let labels = (0..rows).flat_map(|row| match self.labels {
            DType::I64 => label(row).to_ne_bytes().to_vec(),
            _ => (label(row) as i32).to_ne_bytes().to_vec(),
        });
        vec![
            floats(rows * width, dtype, 1),
            floats(width * classes, dtype, 2),
            labels.collect(),
            floats(rows, wide, 4),
        ]
    }

    /// Checks that both give the same bits, on any number of threads.
    fn check(&self) {
        let operands = self.operands();
        let expected = run(&self.plain(), &operands, 1);
        for threads in 1..=3 {
            let results = run(&self.projected(), &operands, threads);
            for ((name, expected), result) in
                ["loss", "prediction", "dx", "dweight"].iter().zip(&expected).zip(&results)
            {
                assert!(expected == result, "{name} of {self:?} on {threads} threads");
            }
        }
    }
}

fn uniform(i: usize, seed: u32) -> f64 {
    f64::from(philox([i as u32, seed, 0, 0], [7, 9])[0]) / 2f64.powi(32)
}

fn float(dtype: DType, value: f64) -> Vec<u8> {
    match dtype {
        DType::F64 => value.to_ne_bytes().to_vec(),
        DType::F16 => f16::from_f64(value).to_ne_bytes().to_vec(),
        DType::BF16 => bf16::from_f64(value).to_ne_bytes().to_vec(),
        _ => (value as f32).to_ne_bytes().to_vec(),
    }
}

fn run(step: &Step, operands: &[Vec<u8>], threads: usize) -> Vec<Vec<u8>> {
    let pool = Pool::new(None);
    let block = |bytes: &Vec<u8>| {
        let mut block = pool.allocate(bytes.len() as u64).unwrap();
        block.as_mut_slice().copy_from_slice(bytes);
        Rc::new(block)
    };
    let inputs: Vec<_> = operands.iter().map(block).collect();
    let device = CpuDevice::new(Some(threads)).unwrap();
    let outputs = device.run_once(&lower(step), &inputs, &pool).unwrap();
    outputs.iter().map(|block| block.as_slice().to_vec()).collect()
}

#[test]
fn a_head_of_many_blocks_of_rows_has_the_bits_of_the_plain_ops() {
    for (rows, chunk) in [(1300, 200), (1300, 600), (2048, 1024)] {
        for dtype in [DType::F32, DType::BF16] {
            for transpose_weight in [false, true] {
                Case { rows, width: 48, classes: 203, chunk, transpose_weight, dtype, labels: DType::I32 }
                    .check();
            }
        }
    }
}

#[test]
fn sums_over_rows_that_are_split_have_the_bits_of_the_plain_ops() {
    for dtype in [DType::F32, DType::BF16] {
        for transpose_weight in [false, true] {
            let labels = DType::I64;
            // Few results and many rows: the weight's gradient is summed in parts.
            Case { rows: 9001, width: 7, classes: 37, chunk: 1500, transpose_weight, dtype, labels }.check();
            // Few results and many classes, or a great width: so are rows of dx, and logits.
            Case { rows: 37, width: 5, classes: 9001, chunk: 5, transpose_weight, dtype, labels }.check();
            Case { rows: 37, width: 9001, classes: 5, chunk: 5, transpose_weight, dtype, labels }.check();
        }
    }
}

#[test]
fn no_rows_have_no_gradient() {
    let case = Case {
        rows: 0,
        width: 3,
        classes: 4,
        chunk: 2,
        transpose_weight: false,
        dtype: DType::BF16,
        labels: DType::I32,
    };
    assert_eq!(run(&case.projected(), &case.operands(), 2)[3], [0; 24]);
    case.check();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_chunk_of_any_head_has_the_bits_of_the_plain_ops(
        rows in 1usize..700,
        width in 1usize..70,
        classes in 1usize..150,
        chunk in 1usize..200,
        transpose_weight: bool,
        dtype in prop::sample::select(&[DType::F32, DType::BF16, DType::F16, DType::F64][..]),
    ) {
        Case { rows, width, classes, chunk, transpose_weight, dtype, labels: DType::I32 }.check();
    }
}

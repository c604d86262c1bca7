//! Checks of programs that run without a plan, in blocks of a pool that are used again while work is under way.

use crate::driver::device::CudaDevice;
use plimsoll_device::SelfTest;
use plimsoll_device::selftest::{Failure, Outcome, check, ensure};
use plimsoll_graph::program::{Body, Buffer, BufferId, Home, Keep, Kernel, Operand, Role, View};
use plimsoll_graph::{DType, Program, Shape, Step, lower};
use plimsoll_memory::{Block, Pool};
use std::rc::Rc;

/// Tries them all.
pub(super) fn run(device: &CudaDevice, checks: &mut Vec<SelfTest>) {
    check(checks, "blocks are used again in the order of one stream", || reuse(device));
    check(checks, "a program without a plan copies buffers, empty ones too", || copies(device));
    check(checks, "a program that runs out of memory names the buffer, and the next one runs", || {
        full(device)
    });
}

/// A block that holds these numbers.
fn block_of(device: &CudaDevice, pool: &Pool, numbers: &[f32]) -> Result<Rc<Block>, Failure> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let block = pool.allocate(bytes.len() as u64)?;
    device.write_block(&block, &bytes)?;
    Ok(Rc::new(block))
}

/// The numbers that a block holds.
fn numbers_of(device: &CudaDevice, block: &Block) -> Result<Vec<f32>, Failure> {
    let mut bytes = vec![0; block.bytes() as usize];
    device.read_block(block, &mut bytes)?;
    Ok(bytes
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        .collect())
}

/// `x + 1`.
fn increment(elements: usize) -> Result<Program, Failure> {
    let mut step = Step::new();
    let x = step.input("x", &[elements], DType::F32)?;
    let one = step.graph.constant(1.0, DType::F32)?;
    let sum = step.graph.add(x, one)?;
    step.output("sum", sum);
    Ok(lower(&step))
}

fn reuse(device: &CudaDevice) -> Outcome {
    const STEPS: usize = 500;
    const ELEMENTS: usize = 3 << 20;
    let pool = device.pool(None)?;
    let program = increment(ELEMENTS)?;
    let mut x = block_of(device, &pool, &vec![0.0; ELEMENTS])?;
    for _ in 0..STEPS {
        // The block before is freed here, and taken by the next run but one, while both are under way.
        x = device.run_once(&program, &[x], &pool)?.remove(0);
    }
    let found = numbers_of(device, &x)?;
    let wrong = found.iter().position(|&number| number != STEPS as f32);
    ensure(wrong.is_none(), || format!("element {wrong:?} is {:?}", wrong.map(|at| found[at])))?;
    let peak = pool.statistics().peak_bytes;
    ensure(peak <= 2 * 4 * ELEMENTS as u64, || format!("{peak} bytes were live at once"))?;
    Ok(format!("{STEPS} runs in {peak} bytes"))
}

/// A program that copies one buffer of so many elements to another.
fn copy(elements: usize) -> Result<Program, Failure> {
    let shape = Shape::new(&[elements])?;
    let buffer = |name: &str, role| Buffer {
        name: name.into(),
        shape,
        dtype: DType::F32,
        role,
        keep: Keep::WhileUsed,
        home: Home::Device,
    };
    let operand = |number| Operand { buffer: BufferId(number), dtype: DType::F32, view: View::dense(shape) };
    let kernel = Kernel {
        scope: "selftest".into(),
        body: Body::Copy,
        reads: vec![operand(0)],
        writes: vec![operand(1)],
        in_place: vec![],
        flops: 0,
        bytes: 8 * elements as u64,
    };
    Ok(Program {
        buffers: vec![buffer("from", Role::Input), buffer("to", Role::Activation)],
        kernels: vec![kernel],
        inputs: vec![BufferId(0)],
        outputs: vec![BufferId(1)],
        ..Program::default()
    })
}

fn copies(device: &CudaDevice) -> Outcome {
    let pool = device.pool(None)?;
    let sizes = [0, 1, 1000, 1 << 20];
    for elements in sizes {
        let numbers: Vec<f32> = (0..elements).map(|number| number as f32).collect();
        let from = block_of(device, &pool, &numbers)?;
        let copied = device.run_once(&copy(elements)?, std::slice::from_ref(&from), &pool)?.remove(0);
        ensure(copied.start() != from.start(), || format!("{elements} elements were not copied"))?;
        ensure(numbers_of(device, &copied)? == numbers, || {
            format!("{elements} elements came out otherwise")
        })?;
        let sum = device.run_once(&increment(elements)?, &[copied], &pool)?.remove(0);
        let expected: Vec<f32> = numbers.iter().map(|number| number + 1.0).collect();
        ensure(numbers_of(device, &sum)? == expected, || format!("{elements} sums are wrong"))?;
    }
    Ok(format!("of {sizes:?} elements"))
}

fn full(device: &CudaDevice) -> Outcome {
    let pool = device.pool(Some(6000))?;
    let x = block_of(device, &pool, &[2.0; 1000])?;
    let refused = device.run_once(&increment(1000)?, std::slice::from_ref(&x), &pool);
    let error = refused.err().ok_or("8000 bytes were had of 6000")?;
    let text = error.to_string();
    ensure(text.contains("f32[1000] of `"), || format!("the buffer is not named: {text}"))?;
    drop(x);
    let x = block_of(device, &pool, &[2.0; 700])?;
    let sum = device.run_once(&increment(700)?, &[x], &pool)?.remove(0);
    ensure(numbers_of(device, &sum)? == [3.0; 700], || "sums are wrong after a refusal".into())?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_that_are_tried_are_of_one_kernel() {
        for elements in [0, 1000] {
            let [sum, copy] = [increment(elements), copy(elements)].map(|made| made.expect("a program"));
            assert_eq!((sum.kernels.len(), copy.kernels.len()), (1, 1));
            assert_eq!((sum.inputs.len(), sum.outputs.len()), (1, 1));
            assert_ne!(sum.inputs, sum.outputs);
        }
    }
}

//! What the execution of programs is relied on for, beside what kernels compute.

use super::cases::sloped;
use super::run_on_both::{Data, Trouble, run_on};
use super::{Report, Verdict};
use crate::Optimizer;
use plimsoll_device::{CheckedProgram, Device};
use plimsoll_graph::op::Unary;
use plimsoll_graph::program::{Body, Buffer, BufferId, Home, Keep, Kernel, Operand, Program, Role, View};
use plimsoll_graph::random::{block, normal};
use plimsoll_graph::step::Initial;
use plimsoll_graph::{DType, Op, Shape, Step, lower};
use std::collections::BTreeMap;
use std::time::Instant;

/// Something to try: what was seen, or why it failed.
type Attempt = fn(&dyn Device) -> Result<String, Trouble>;

pub(super) fn all(device: &dyn Device) -> Vec<(&'static str, Report)> {
    let checks: [(&'static str, Attempt); 4] = [
        ("what goes to the host and back is what it was", through_the_host),
        ("running takes no memory", running_takes_nothing),
        ("a loop that follows a product has the bits it has by itself", followed_as_apart),
        ("updates that are launched together have the bits they have by themselves", together_as_apart),
    ];
    let run = |check: Attempt| {
        let start = Instant::now();
        let (verdict, detail) = match check(device) {
            Ok(detail) => (Verdict::Passed, detail),
            Err(trouble) => (trouble.verdict, trouble.message),
        };
        Report { verdict, error: 0.0, microseconds: 0.0, detail, seconds: start.elapsed().as_secs_f64() }
    };
    checks.into_iter().map(|(name, check)| (name, run(check))).collect()
}

fn failed(message: String) -> Trouble {
    Trouble { verdict: Verdict::Failed, message }
}

/// An input that is copied to the host, and from there to an output.
fn round_trip(elements: usize) -> Result<Program, Trouble> {
    let shape = Shape::new(&[elements])?;
    let buffer = |name: &str, keep, home| Buffer {
        name: name.into(),
        shape,
        dtype: DType::F32,
        role: Role::Activation,
        keep,
        home,
    };
    let operand = |id: u32| Operand { buffer: BufferId(id), dtype: DType::F32, view: View::dense(shape) };
    let kernel = |body, reads: &[u32], writes: &[u32]| Kernel {
        scope: "round trip".into(),
        body,
        reads: reads.iter().map(|&id| operand(id)).collect(),
        writes: writes.iter().map(|&id| operand(id)).collect(),
        in_place: vec![],
        flops: 0,
        bytes: 8 * elements as u64,
    };
    Ok(Program {
        buffers: vec![
            buffer("here", Keep::FromStart, Home::Device),
            buffer("away", Keep::WhileUsed, Home::Host),
            buffer("back", Keep::ToEnd, Home::Device),
        ],
        kernels: vec![
            kernel(Body::Copy, &[0], &[1]),
            kernel(Body::Wait, &[0, 1], &[]),
            kernel(Body::Copy, &[1], &[2]),
            kernel(Body::Wait, &[1, 2], &[]),
        ],
        rematerializations: vec![],
        states: vec![],
        inputs: vec![BufferId(0)],
        outputs: vec![BufferId(2)],
    })
}

fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|index| (index as u8).wrapping_mul(31).wrapping_add((index >> 8) as u8) ^ seed).collect()
}

fn through_the_host(device: &dyn Device) -> Result<String, Trouble> {
    let elements = (64 << 20) / 4;
    let checked = CheckedProgram::planned(round_trip(elements)?, device)?;
    let mut memory = device.reserve(checked.arena_bytes(), None)?;
    let loaded = memory.load(&checked)?;
    for seed in [1, 2, 3] {
        let sent = pattern(4 * elements, seed);
        memory.fill(0xff)?;
        memory.begin(loaded, &mut |_, room| {
            room.copy_from_slice(&sent);
            Ok(())
        })?;
        let mut returned = vec![];
        memory.collect(loaded, &mut |_, bytes| returned = bytes.to_vec())?;
        if let Some(byte) = returned.iter().zip(&sent).position(|(a, b)| a != b) {
            let (is, was) = (returned[byte], sent[byte]);
            return Err(failed(format!("run {seed}: byte {byte} came back as {is:#04x}, not {was:#04x}")));
        }
    }
    Ok(format!("3 runs of {} MiB each way", (4 * elements) >> 20))
}

fn running_takes_nothing(device: &dyn Device) -> Result<String, Trouble> {
    let checked = CheckedProgram::planned(round_trip(1 << 20)?, device)?;
    let mut memory = device.reserve(checked.arena_bytes(), None)?;
    let loaded = memory.load(&checked)?;
    let mut run = || -> Result<(), Trouble> {
        memory.begin(loaded, &mut |_, _| Ok(()))?;
        Ok(memory.collect(loaded, &mut |_, _| {})?)
    };
    run()?;
    let before = device.books()?;
    (0..100).try_for_each(|_| run())?;
    let after = device.books()?;
    if before != after {
        return Err(failed(format!("the books were {before:?}, and are {after:?} after 100 runs")));
    }
    Ok(format!("100 runs, and the books are as they were: {after:?}"))
}

/// What comes after a product and its bias.
#[derive(Clone, Copy)]
enum Follows {
    Activation,
    Sum,
    Slope,
}

/// A product with what follows it, and the same where the product is asked for as well and nothing can follow within it:
/// a bias, and then an activation, a sum with another matrix, or an activation's slope there.
fn followed_as_apart(device: &dyn Device) -> Result<String, Trouble> {
    let dims: [&[usize]; 4] = [&[5605, 200], &[200, 1528], &[1528], &[5605, 1528]];
    let step = |follows: Follows, apart: bool| -> Result<Step, Trouble> {
        let mut step = Step::new();
        let mut inputs = Vec::new();
        for (index, dims) in dims.iter().enumerate() {
            inputs.push(step.input(&format!("input {index}"), dims, DType::BF16)?);
        }
        let product = step.graph.dot(inputs[0], inputs[1])?;
        let sum = step.graph.add(product, inputs[2])?;
        let result = match follows {
            Follows::Activation => step.graph.apply(Op::Unary(Unary::Gelu), &[sum])?,
            Follows::Sum => step.graph.add(sum, inputs[3])?,
            Follows::Slope => sloped(&mut step.graph, sum, inputs[3])?,
        };
        step.output("sum", sum);
        step.output("result", result);
        if apart {
            step.output("product", product);
        }
        Ok(step)
    };
    let inputs = dims.iter().zip(0..).map(|(dims, stream)| {
        let values = (0..dims.iter().product::<usize>() as u64).map(|at| normal(block(1, 1, stream, at)));
        values.flat_map(|value| half::bf16::from_f64(value).to_le_bytes()).collect()
    });
    let data = Data { inputs: inputs.collect(), states: vec![], runs: 1 };
    let mut kernels = [0; 2];
    for follows in [Follows::Activation, Follows::Sum, Follows::Slope] {
        let (followed, apart) = (lower(&step(follows, false)?), lower(&step(follows, true)?));
        let [one, two] = [run_on(device, &followed, &data)?, run_on(device, &apart, &data)?];
        for (output, (have, want)) in one.results[0].iter().zip(&two.results[0]).enumerate() {
            if have != want {
                let difference = super::first_difference(want, have);
                return Err(failed(format!("output {output} has other bits: {difference}")));
            }
        }
        kernels = [kernels[0] + followed.kernels.len(), kernels[1] + apart.kernels.len()];
    }
    Ok(format!("the same bits from {} kernels and from {}", kernels[0], kernels[1]))
}

/// The updates of more small parameters than one launch takes, of sizes that fill blocks and that do not, in one program, and
/// each in a program of its own.
fn together_as_apart(device: &dyn Device) -> Result<String, Trouble> {
    const SIZES: [usize; 8] = [1, 7, 100, 255, 256, 257, 3072, 1 << 16];
    let sizes: Vec<usize> = SIZES.into_iter().cycle().take(130).collect();
    let numbers = |size: usize, stream: u64| {
        let values = (0..size as u64).map(|at| normal(block(2, 1, stream, at)) as f32);
        values.flat_map(f32::to_le_bytes).collect::<Vec<u8>>()
    };
    let updated = |parameters: &[usize]| -> Result<BTreeMap<Box<str>, Vec<u8>>, Trouble> {
        let mut step = Step::new();
        let (mut gradients, mut data) = (vec![], Data { inputs: vec![], states: vec![], runs: 3 });
        for &number in parameters {
            let (name, dims) = (format!("parameter {number}"), [sizes[number]]);
            step.state(&name, Role::Parameter, &dims, DType::F32, Initial::Constant(1.0))?;
            gradients.push(step.input(&format!("gradient {number}"), &dims, DType::F32)?);
            data.inputs.push(numbers(sizes[number], number as u64));
        }
        step.apply_gradients(gradients, &Optimizer::adamw(0.01))?;
        for state in &step.states {
            let ty = step.graph.ty(state.value);
            data.states.push(match state.role {
                Role::Parameter => numbers(ty.shape.elements(), 1 << 32),
                // The factor of rates.
                _ if ty.dtype == DType::F64 => 1f64.to_ne_bytes().to_vec(),
                _ => vec![0; ty.shape.elements() * ty.dtype.size()],
            });
        }
        let [results, _] = run_on(device, &lower(&step), &data)?.results;
        Ok(step.states.iter().map(|state| state.name.clone()).zip(results).collect())
    };
    let together = updated(&(0..sizes.len()).collect::<Vec<usize>>())?;
    for number in 0..sizes.len() {
        for (name, apart) in updated(&[number])? {
            let have = together.get(&name).map_or(&[][..], |bytes| bytes);
            if *have != apart[..] {
                let difference = super::first_difference(&apart, have);
                return Err(failed(format!("{name} has other bits: {difference}")));
            }
        }
    }
    Ok(format!("the same bits of {} states from one program and from {}", together.len(), sizes.len()))
}

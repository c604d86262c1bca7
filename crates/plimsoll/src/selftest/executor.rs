//! What the execution of programs is relied on for, beside what kernels compute.

use super::sides::{Trouble, planned};
use super::{Report, Verdict};
use plimsoll_cuda::{ALIGNMENT, CudaDevice};
use plimsoll_graph::program::{Body, Buffer, BufferId, Home, Keep, Kernel, Operand, Program, Role, View};
use plimsoll_graph::{DType, Shape};
use std::time::Instant;

/// Something to try: what was seen, or why it failed.
type Attempt = fn(&CudaDevice) -> Result<String, Trouble>;

pub(super) fn all(cuda: &CudaDevice) -> Vec<(&'static str, Report)> {
    let checks: [(&'static str, Attempt); 3] = [
        ("what goes to the host and back is what it was", through_the_host),
        ("an arena grows and what is loaded in it runs on", growing),
        ("running takes no memory", running_takes_nothing),
    ];
    let run = |check: Attempt| {
        let start = Instant::now();
        let (verdict, detail) = match check(cuda) {
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
        remakes: vec![],
        states: vec![],
        inputs: vec![BufferId(0)],
        outputs: vec![BufferId(2)],
    })
}

fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|index| (index as u8).wrapping_mul(31).wrapping_add((index >> 8) as u8) ^ seed).collect()
}

/// Runs a round trip in memory that grows before the second run if `grow` says so.
fn trips(cuda: &CudaDevice, elements: usize, grow: u64) -> Result<u64, Trouble> {
    let program = round_trip(elements)?;
    let plan = planned(&program, ALIGNMENT, |_| 0)?;
    let mut memory = cuda.reserve(plan.peak_bytes, plan.host_bytes, None)?;
    let executable = cuda.load(&program, &plan, &mut memory)?;
    for seed in [1, 2, 3] {
        let sent = pattern(4 * elements, seed);
        memory.fill(0xff)?;
        executable.begin(&mut memory, |_, room| {
            room.copy_from_slice(&sent);
            Ok::<(), Trouble>(())
        })?;
        let mut returned = vec![];
        executable.collect(&mut memory, |_, bytes| returned = bytes.to_vec())?;
        if let Some(byte) = returned.iter().zip(&sent).position(|(a, b)| a != b) {
            let (is, was) = (returned[byte], sent[byte]);
            return Err(failed(format!("run {seed}: byte {byte} came back as {is:#04x}, not {was:#04x}")));
        }
        memory.grow(memory.device_bytes() + grow, 0, 0, None)?;
    }
    Ok(memory.device_bytes())
}

fn through_the_host(cuda: &CudaDevice) -> Result<String, Trouble> {
    let elements = (64 << 20) / 4;
    trips(cuda, elements, 0)?;
    Ok(format!("3 runs of {} MiB each way", (4 * elements) >> 20))
}

fn growing(cuda: &CudaDevice) -> Result<String, Trouble> {
    let bytes = trips(cuda, 1000, 300 << 20)?;
    Ok(format!("grown to {} MiB between runs", bytes >> 20))
}

fn running_takes_nothing(cuda: &CudaDevice) -> Result<String, Trouble> {
    let program = round_trip(1 << 20)?;
    let plan = planned(&program, ALIGNMENT, |_| 0)?;
    let mut memory = cuda.reserve(plan.peak_bytes, plan.host_bytes, None)?;
    let executable = cuda.load(&program, &plan, &mut memory)?;
    let mut run = || -> Result<(), Trouble> {
        executable.begin(&mut memory, |_, _| Ok::<(), Trouble>(()))?;
        Ok(executable.collect(&mut memory, |_, _| {})?)
    };
    run()?;
    let before = cuda.books()?;
    (0..100).try_for_each(|_| run())?;
    let after = cuda.books()?;
    if before != after {
        return Err(failed(format!("the books were {before:?}, and are {after:?} after 100 runs")));
    }
    Ok(format!("100 runs, and the books are as they were: {after:?}"))
}

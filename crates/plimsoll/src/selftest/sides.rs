//! One program on either device.

use super::Verdict;
use crate::compile::work;
use plimsoll_cpu::{CpuDevice, Memory};
use plimsoll_cuda::{CudaDevice, ErrorKind};
use plimsoll_graph::Program;
use plimsoll_graph::program::{Buffer, Kernel};
use plimsoll_plan::{Effort, Options, Plan, plan};
use std::cell::RefCell;
use std::time::Instant;

/// Why a case could not be compared.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) verdict: Verdict,
    pub(super) message: String,
}

impl From<plimsoll_cuda::Error> for Trouble {
    fn from(error: plimsoll_cuda::Error) -> Trouble {
        let verdict = match error.kind() {
            ErrorKind::Unsupported | ErrorKind::NoLibrary => Verdict::Missing,
            // What kernels do wrong is seen at the next call of the driver, and at every one after that.
            ErrorKind::Driver => Verdict::Broken,
            _ => Verdict::Failed,
        };
        Trouble { verdict, message: error.to_string() }
    }
}

macro_rules! failures {
    ($($error:ty),*) => {$(
        impl From<$error> for Trouble {
            fn from(error: $error) -> Trouble {
                Trouble { verdict: Verdict::Failed, message: error.to_string() }
            }
        }
    )*};
}
failures!(
    crate::Error,
    plimsoll_graph::Error,
    plimsoll_plan::Error,
    plimsoll_cpu::Error,
    plimsoll_memory::Error
);

/// What a program is run on.
pub(super) struct Data {
    pub(super) inputs: Vec<Vec<u8>>,
    /// The states before the first run.
    pub(super) states: Vec<Vec<u8>>,
    /// How many runs follow each other.
    pub(super) runs: usize,
}

/// What came of a program on a CUDA device.
pub(super) struct Ran {
    /// The results of two attempts.
    pub(super) results: [Vec<Vec<u8>>; 2],
    pub(super) microseconds: f64,
}

/// A plan for a device whose kernels need `workspace`.
pub(super) fn planned(
    program: &Program,
    alignment: u64,
    workspace: impl Fn(&Kernel) -> u64,
) -> Result<Plan, Trouble> {
    Ok(plan(&work(program, workspace), &Options { alignment, effort: Effort::default(), together_bytes: 0 })?)
}

/// The buffers whose bytes are a program's results: its outputs, then its states.
pub(super) fn results(program: &Program) -> impl Iterator<Item = &Buffer> {
    program.outputs.iter().chain(&program.states).map(|id| &program.buffers[id.index()])
}

/// The results of a program on the CPU.
pub(super) fn on_cpu(device: &CpuDevice, program: &Program, data: &Data) -> Result<Vec<Vec<u8>>, Trouble> {
    let plan = planned(program, plimsoll_cpu::ALIGNMENT as u64, |kernel| device.workspace(kernel))?;
    let mut memory = Memory::reserve(plan.peak_bytes, plan.host_bytes, None)?;
    let executable = device.load(program, &plan, &memory)?;
    for (index, state) in data.states.iter().enumerate() {
        executable.state_mut(&mut memory, index).copy_from_slice(state);
    }
    for _ in 0..data.runs {
        for (index, input) in data.inputs.iter().enumerate() {
            executable.input_mut(&mut memory, index).copy_from_slice(input);
        }
        executable.run(&mut memory);
    }
    let outputs = (0..program.outputs.len()).map(|index| executable.output(&memory, index).to_vec());
    let states = (0..program.states.len()).map(|index| executable.state(&memory, index).to_vec());
    Ok(outputs.chain(states).collect())
}

/// The results of a program on a CUDA device.
pub(super) fn on_cuda(device: &CudaDevice, program: &Program, data: &Data) -> Result<Ran, Trouble> {
    /// As floats, NaN; and large numbers.
    const GARBAGE: [u8; 2] = [0xff, 0x7b];
    const REPEATS: u32 = 10;
    let refused = RefCell::new(None);
    let plan = planned(program, plimsoll_cuda::ALIGNMENT, |kernel| {
        device.workspace(kernel).unwrap_or_else(|error| {
            refused.borrow_mut().get_or_insert(error);
            0
        })
    })?;
    if let Some(error) = refused.into_inner() {
        return Err(error.into());
    }
    let mut memory = device.reserve(plan.peak_bytes, plan.host_bytes, None)?;
    let executable = device.load(program, &plan, &mut memory)?;
    let fill = |index: usize, room: &mut [u8]| {
        room.copy_from_slice(&data.inputs[index]);
        Ok::<(), plimsoll_cuda::Error>(())
    };
    let room = || results(program).map(|buffer| vec![0; buffer.bytes()]).collect::<Vec<Vec<u8>>>();
    let mut attempts = [room(), room()];
    for (attempt, garbage) in attempts.iter_mut().zip(GARBAGE) {
        memory.fill(garbage)?;
        for (index, state) in data.states.iter().enumerate() {
            executable.write_state(&mut memory, index, state)?;
        }
        let (outputs, states) = attempt.split_at_mut(program.outputs.len());
        for _ in 0..data.runs {
            executable.begin(&mut memory, fill)?;
            executable.collect(&mut memory, |index, bytes| outputs[index].copy_from_slice(bytes))?;
        }
        for (index, state) in states.iter_mut().enumerate() {
            executable.read_state(&memory, index, state)?;
        }
    }
    let start = Instant::now();
    for _ in 0..REPEATS {
        executable.begin(&mut memory, fill)?;
        executable.collect(&mut memory, |_, _| {})?;
    }
    let microseconds = start.elapsed().as_secs_f64() * 1e6 / f64::from(REPEATS);
    Ok(Ran { results: attempts, microseconds })
}

//! One program on any device.

use super::Verdict;
use plimsoll_device::{CheckedProgram, Device, ErrorKind};
use plimsoll_graph::Program;
use plimsoll_graph::program::Buffer;
use std::time::Instant;

/// Why a case could not be compared.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) verdict: Verdict,
    pub(super) message: String,
}

impl From<plimsoll_device::Error> for Trouble {
    fn from(error: plimsoll_device::Error) -> Trouble {
        let verdict = match error.kind() {
            ErrorKind::Unsupported => Verdict::Missing,
            // What kernels do wrong is seen at the next call of the driver, and at every one after that.
            ErrorKind::Failed => Verdict::Broken,
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
failures!(crate::Error, plimsoll_graph::Error);

/// What a program is run on.
pub(super) struct Data {
    pub(super) inputs: Vec<Vec<u8>>,
    /// The states before the first run.
    pub(super) states: Vec<Vec<u8>>,
    /// How many runs follow each other.
    pub(super) runs: usize,
}

/// What came of a program on a device.
pub(super) struct Ran {
    /// The results of two attempts.
    pub(super) results: [Vec<Vec<u8>>; 2],
    pub(super) microseconds: f64,
}

/// The buffers whose bytes are a program's results: its outputs, then its states.
pub(super) fn results(program: &Program) -> impl Iterator<Item = &Buffer> {
    program.outputs.iter().chain(&program.states).map(|id| &program.buffers[id.index()])
}

/// The results of a program on a device, from memory that is full of garbage, and of other garbage.
pub(super) fn run_on(device: &dyn Device, program: &Program, data: &Data) -> Result<Ran, Trouble> {
    /// As floats, NaN; and large numbers.
    const GARBAGE: [u8; 2] = [0xff, 0x7b];
    const REPEATS: u32 = 10;
    let checked = CheckedProgram::planned(program.clone(), device)?;
    let mut memory = device.reserve(checked.arena_bytes(), None)?;
    let loaded = memory.load(&checked)?;
    let mut fill = |index: usize, room: &mut [u8]| {
        room.copy_from_slice(&data.inputs[index]);
        Ok(())
    };
    let room = || results(program).map(|buffer| vec![0; buffer.bytes()]).collect::<Vec<Vec<u8>>>();
    let mut attempts = [room(), room()];
    for (attempt, garbage) in attempts.iter_mut().zip(GARBAGE) {
        memory.fill(garbage)?;
        for (index, state) in data.states.iter().enumerate() {
            memory.write_state(loaded, index, &mut |first, piece| {
                piece.copy_from_slice(&state[first..][..piece.len()])
            })?;
        }
        let (outputs, states) = attempt.split_at_mut(program.outputs.len());
        for _ in 0..data.runs {
            memory.begin(loaded, &mut fill)?;
            memory.collect(loaded, &mut |index, bytes| outputs[index].copy_from_slice(bytes))?;
        }
        for (index, state) in states.iter_mut().enumerate() {
            state.clear();
            memory.read_state(loaded, index, &mut |piece| state.extend_from_slice(piece))?;
        }
    }
    let start = Instant::now();
    for _ in 0..REPEATS {
        memory.begin(loaded, &mut fill)?;
        memory.collect(loaded, &mut |_, _| {})?;
    }
    let microseconds = start.elapsed().as_secs_f64() * 1e6 / f64::from(REPEATS);
    Ok(Ran { results: attempts, microseconds })
}

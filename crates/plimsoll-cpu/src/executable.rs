//! A plan bound to one arena: running it allocates nothing.

use crate::error::{Error, ErrorKind, Result};
use crate::pool::Pool;
use crate::prepare::prepare;
use crate::routine::{Call, Routine};
use plimsoll_graph::Program;
use plimsoll_graph::program::{Body, BufferId, Home};
use plimsoll_memory::Arena;
use plimsoll_plan::Plan;
use std::sync::Arc;
use std::time::Instant;

/// The memory that programs run in: the device's arena, and the host's for what is kept there.
///
/// On the CPU both are host memory; they are apart so that a budget means the same as on other devices.
#[derive(Debug)]
pub struct Memory {
    /// The device's.
    pub device: Arena,
    /// The host's.
    pub host: Arena,
}

/// A program, ready to run at fixed addresses of one arena.
///
/// Several executables may be bound to one arena; running one takes the arena mutably, so they run one at a
/// time. What survives a step lies at the same offsets in all plans of one model.
pub struct Executable {
    pool: Arc<Pool>,
    launches: Vec<Launch>,
    /// How many kernels the plan has.
    positions: usize,
    starts: [*const u8; 2],
    states: Vec<Place>,
    inputs: Vec<Place>,
    outputs: Vec<Place>,
}

/// A kernel with its addresses.
struct Launch {
    /// Where it is in the plan's order.
    position: usize,
    routine: Box<dyn Routine>,
    reads: Box<[*const u8]>,
    writes: Box<[*mut u8]>,
    workspace: *mut u8,
}

#[derive(Clone, Copy)]
struct Place {
    home: Home,
    offset: u64,
    bytes: u64,
}

impl Executable {
    pub(crate) fn new(
        pool: Arc<Pool>,
        program: &Program,
        plan: &Plan,
        memory: &Memory,
    ) -> Result<Executable> {
        let fits = plan.offsets.len() == program.buffers.len()
            && plan.workspace_offsets.len() == program.kernels.len()
            && plan.order.len() == program.kernels.len()
            && plan.alignment.is_multiple_of(crate::routine::ALIGNMENT as u64);
        if !fits {
            return Err(Error::new(ErrorKind::Plan, "the plan was not made for this program on this device"));
        }
        let outside = |what: &str, bytes: u64| {
            let message = format!(
                "{what} of {bytes} bytes lies outside the arena of {} bytes (on the host {}); the plan needs {} ({})",
                memory.device.bytes(),
                memory.host.bytes(),
                plan.peak_bytes,
                plan.host_bytes
            );
            Error::new(ErrorKind::Plan, message)
        };
        let place = |id: BufferId| Place {
            home: program.buffers[id.index()].home,
            offset: plan.offsets[id.index()],
            bytes: program.buffers[id.index()].bytes() as u64,
        };
        let address = |id: BufferId| {
            let Place { home, offset, bytes } = place(id);
            memory
                .of(home)
                .address(offset, bytes)
                .ok_or_else(|| outside(&program.buffers[id.index()].name, bytes))
        };
        let mut launches = Vec::with_capacity(program.kernels.len());
        for (position, &index) in plan.order.iter().enumerate() {
            let kernel = &program.kernels[index as usize];
            if matches!(kernel.body, Body::Wait) {
                // Here a copy has ended when it returns.
                continue;
            }
            let routine = prepare(kernel);
            let bytes = routine.workspace(pool.threads()) as u64;
            let workspace = memory
                .device
                .address(plan.workspace_offsets[index as usize], bytes)
                .ok_or_else(|| outside("a workspace", bytes))?;
            let reads: Result<Box<[*const u8]>> =
                kernel.reads.iter().map(|o| address(o.buffer).map(|a| a.cast_const())).collect();
            let writes: Result<Box<[*mut u8]>> = kernel.writes.iter().map(|o| address(o.buffer)).collect();
            launches.push(Launch { position, routine, reads: reads?, writes: writes?, workspace });
        }
        let places = |ids: &[BufferId]| ids.iter().map(|&id| place(id)).collect();
        Ok(Executable {
            pool,
            launches,
            positions: plan.order.len(),
            starts: memory.starts(),
            states: places(&program.states),
            inputs: places(&program.inputs),
            outputs: places(&program.outputs),
        })
    }

    /// Runs the program once.
    ///
    /// # Panics
    /// If `memory` is not the one it was loaded for.
    pub fn run(&self, memory: &mut Memory) {
        assert_eq!(memory.starts(), self.starts, "an executable runs only in the arenas it was loaded for");
        self.launches.iter().for_each(|launch| self.run_one(launch));
    }

    /// Runs the program once, and returns the seconds of each kernel, in the plan's order. Waiting takes none.
    ///
    /// # Panics
    /// If `memory` is not the one it was loaded for.
    pub fn time_kernels(&self, memory: &mut Memory) -> Vec<f64> {
        assert_eq!(memory.starts(), self.starts, "an executable runs only in the arenas it was loaded for");
        let mut seconds = vec![0.0; self.positions];
        for launch in &self.launches {
            let start = Instant::now();
            self.run_one(launch);
            seconds[launch.position] = start.elapsed().as_secs_f64();
        }
        seconds
    }

    /// Runs a kernel; the memory it was loaded for is borrowed mutably by the caller.
    fn run_one(&self, launch: &Launch) {
        let call = Call {
            reads: &launch.reads,
            writes: &launch.writes,
            workspace: launch.workspace,
            pool: &self.pool,
        };
        // SAFETY: the addresses are inside the arenas, which are borrowed mutably and so used by nobody else,
        // and aligned, as the plan's alignment is; every buffer is large enough for its operand. That
        // buffers which live at once do not overlap, and reads come after their writes, is what
        // `plimsoll_plan::check` verifies of every plan.
        unsafe { launch.routine.run(&call) };
    }

    /// How many inputs there are.
    pub fn inputs(&self) -> usize {
        self.inputs.len()
    }

    /// How many outputs there are.
    pub fn outputs(&self) -> usize {
        self.outputs.len()
    }

    /// The bytes of a state.
    pub fn state<'a>(&self, memory: &'a Memory, index: usize) -> &'a [u8] {
        bytes(memory, self.states[index])
    }

    /// The bytes of a state, to write before a step.
    pub fn state_mut<'a>(&self, memory: &'a mut Memory, index: usize) -> &'a mut [u8] {
        bytes_mut(memory, self.states[index])
    }

    /// The bytes of an input, to write before each step.
    pub fn input_mut<'a>(&self, memory: &'a mut Memory, index: usize) -> &'a mut [u8] {
        bytes_mut(memory, self.inputs[index])
    }

    /// The bytes of an output, to read after a step and before anything else is written to the arena.
    pub fn output<'a>(&self, memory: &'a Memory, index: usize) -> &'a [u8] {
        bytes(memory, self.outputs[index])
    }
}

impl Memory {
    /// The arenas of a plan's bytes, of which the device's must not be over `limit`.
    ///
    /// # Errors
    /// If it is, or the system refuses.
    pub fn reserve(device: u64, host: u64, limit: Option<u64>) -> plimsoll_memory::Result<Memory> {
        Ok(Memory { device: Arena::reserve(device, limit)?, host: Arena::reserve(host, None)? })
    }

    fn of(&self, home: Home) -> &Arena {
        match home {
            Home::Device => &self.device,
            Home::Host => &self.host,
        }
    }

    fn of_mut(&mut self, home: Home) -> &mut Arena {
        match home {
            Home::Device => &mut self.device,
            Home::Host => &mut self.host,
        }
    }

    fn starts(&self) -> [*const u8; 2] {
        [Home::Device, Home::Host]
            .map(|home| self.of(home).address(0, 0).map_or(std::ptr::null(), |a| a.cast_const()))
    }
}

// Places were inside the arenas when the executable was loaded, and arenas do not shrink.
fn bytes(memory: &Memory, place: Place) -> &[u8] {
    memory.of(place.home).slice(place.offset, place.bytes).unwrap_or(&[])
}

fn bytes_mut(memory: &mut Memory, place: Place) -> &mut [u8] {
    memory.of_mut(place.home).slice_mut(place.offset, place.bytes).unwrap_or(&mut [])
}

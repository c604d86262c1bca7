//! A plan bound to one arena: running it allocates nothing.

use crate::error::{Error, ErrorKind, Result};
use crate::pool::Pool;
use crate::prepare::prepare;
use crate::routine::{Call, Routine};
use plimsoll_graph::Program;
use plimsoll_graph::program::BufferId;
use plimsoll_memory::Arena;
use plimsoll_plan::Plan;
use std::sync::Arc;

/// A program, ready to run at fixed addresses of one arena.
///
/// Several executables may be bound to one arena; running one takes the arena mutably, so they run one at a
/// time. What survives a step lies at the same offsets in all plans of one model.
pub struct Executable {
    pool: Arc<Pool>,
    launches: Vec<Launch>,
    arena_start: *const u8,
    states: Vec<Place>,
    inputs: Vec<Place>,
    outputs: Vec<Place>,
}

/// A kernel with its addresses.
struct Launch {
    routine: Box<dyn Routine>,
    reads: Box<[*const u8]>,
    writes: Box<[*mut u8]>,
    workspace: *mut u8,
}

#[derive(Clone, Copy)]
struct Place {
    offset: u64,
    bytes: u64,
}

impl Executable {
    pub(crate) fn new(pool: Arc<Pool>, program: &Program, plan: &Plan, arena: &Arena) -> Result<Executable> {
        let fits = plan.offsets.len() == program.buffers.len()
            && plan.workspace_offsets.len() == program.kernels.len()
            && plan.order.len() == program.kernels.len()
            && plan.alignment.is_multiple_of(crate::routine::ALIGNMENT as u64);
        if !fits {
            return Err(Error::new(ErrorKind::Plan, "the plan was not made for this program on this device"));
        }
        let outside = |what: &str, bytes: u64| {
            let message = format!(
                "{what} of {bytes} bytes lies outside the arena of {} bytes; the plan needs {}",
                arena.bytes(),
                plan.peak_bytes
            );
            Error::new(ErrorKind::Plan, message)
        };
        let place = |id: BufferId| Place {
            offset: plan.offsets[id.index()],
            bytes: program.buffers[id.index()].bytes() as u64,
        };
        let address = |id: BufferId| {
            let Place { offset, bytes } = place(id);
            arena.address(offset, bytes).ok_or_else(|| outside(&program.buffers[id.index()].name, bytes))
        };
        let mut launches = Vec::with_capacity(program.kernels.len());
        for &index in &plan.order {
            let kernel = &program.kernels[index as usize];
            let routine = prepare(kernel);
            let bytes = routine.workspace(pool.threads()) as u64;
            let workspace = arena
                .address(plan.workspace_offsets[index as usize], bytes)
                .ok_or_else(|| outside("a workspace", bytes))?;
            let reads: Result<Box<[*const u8]>> =
                kernel.reads.iter().map(|o| address(o.buffer).map(|a| a.cast_const())).collect();
            let writes: Result<Box<[*mut u8]>> = kernel.writes.iter().map(|o| address(o.buffer)).collect();
            launches.push(Launch { routine, reads: reads?, writes: writes?, workspace });
        }
        let places = |ids: &[BufferId]| ids.iter().map(|&id| place(id)).collect();
        Ok(Executable {
            pool,
            launches,
            arena_start: start(arena),
            states: places(&program.states),
            inputs: places(&program.inputs),
            outputs: places(&program.outputs),
        })
    }

    /// Runs the program once.
    ///
    /// # Panics
    /// If `arena` is not the one it was loaded for.
    pub fn run(&self, arena: &mut Arena) {
        assert_eq!(start(arena), self.arena_start, "an executable runs only in the arena it was loaded for");
        for launch in &self.launches {
            let call = Call {
                reads: &launch.reads,
                writes: &launch.writes,
                workspace: launch.workspace,
                pool: &self.pool,
            };
            // SAFETY: the addresses are inside the arena, which is borrowed mutably and so used by nobody else,
            // and aligned, as the plan's alignment is; every buffer is large enough for its operand. That
            // buffers which live at once do not overlap, and reads come after their writes, is what
            // `plimsoll_plan::check` verifies of every plan.
            unsafe { launch.routine.run(&call) };
        }
    }

    /// The bytes of a state.
    pub fn state<'a>(&self, arena: &'a Arena, index: usize) -> &'a [u8] {
        bytes(arena, self.states[index])
    }

    /// The bytes of a state, to write before a step.
    pub fn state_mut<'a>(&self, arena: &'a mut Arena, index: usize) -> &'a mut [u8] {
        bytes_mut(arena, self.states[index])
    }

    /// The bytes of an input, to write before each step.
    pub fn input_mut<'a>(&self, arena: &'a mut Arena, index: usize) -> &'a mut [u8] {
        bytes_mut(arena, self.inputs[index])
    }

    /// The bytes of an output, to read after a step and before anything else is written to the arena.
    pub fn output<'a>(&self, arena: &'a Arena, index: usize) -> &'a [u8] {
        bytes(arena, self.outputs[index])
    }
}

fn start(arena: &Arena) -> *const u8 {
    arena.address(0, 0).map_or(std::ptr::null(), |a| a.cast_const())
}

// Places were inside the arena when the executable was loaded, and arenas do not shrink.
fn bytes(arena: &Arena, place: Place) -> &[u8] {
    arena.slice(place.offset, place.bytes).unwrap_or(&[])
}

fn bytes_mut(arena: &mut Arena, place: Place) -> &mut [u8] {
    arena.slice_mut(place.offset, place.bytes).unwrap_or(&mut [])
}

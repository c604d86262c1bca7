//! The device: threads, what kernels need on them, and the two ways to run a program.

use crate::error::{Error, ErrorKind, Result};
use crate::executable::{Executable, Memory};
use crate::pool::Pool;
use crate::prepare::prepare;
use crate::routine::Call;
use plimsoll_graph::Program;
use plimsoll_graph::program::{Buffer, BufferId, Kernel, Role};
use plimsoll_memory::{Block, Category};
use plimsoll_plan::Plan;
use std::rc::Rc;
use std::sync::Arc;

/// The CPU as a device: a fixed number of threads.
///
/// Results do not depend on the number of threads: the same program on the same data gives the same bits.
#[derive(Clone)]
pub struct CpuDevice {
    pub(crate) pool: Arc<Pool>,
}

impl CpuDevice {
    /// A device of `threads` threads; of as many as the machine runs at once if that is `None`.
    ///
    /// # Errors
    /// If the system does not start the threads.
    pub fn new(threads: Option<usize>) -> Result<CpuDevice> {
        let available = || std::thread::available_parallelism().map_or(1, |n| n.get());
        let threads = threads.unwrap_or_else(available).max(1);
        let pool = Pool::new(threads).map_err(|e| {
            Error::new(ErrorKind::Threads, format!("the system did not start {threads} threads: {e}"))
        })?;
        Ok(CpuDevice { pool: Arc::new(pool) })
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Calls `task` with every number below `tasks`, on all threads at once.
    pub fn in_parallel(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        self.pool.run(tasks, &|_, number| task(number));
    }

    /// The scratch bytes a kernel needs on this device.
    pub fn workspace(&self, kernel: &Kernel) -> u64 {
        prepare(kernel).workspace(self.threads()) as u64
    }

    /// Binds a program and its plan to memory.
    ///
    /// # Errors
    /// If the plan is not one of this program, or does not fit the memory.
    pub fn load(&self, program: &Program, plan: &Plan, memory: &Memory) -> Result<Executable> {
        Executable::new(self.pool.clone(), program, plan, memory)
    }

    /// Runs a program once, each buffer in a block of its own that is freed after its last use. `inputs` are
    /// the blocks of the program's inputs; returned are those of its outputs. A block's owner is what its buffer is for,
    /// and the scope and op it comes from.
    ///
    /// # Errors
    /// If memory runs out, in which case what was made so far is freed and the pool stays usable, or the program has states, which need an arena to survive in.
    pub fn run_once(
        &self,
        program: &Program,
        inputs: &[Rc<Block>],
        memory: &plimsoll_memory::Pool,
    ) -> Result<Vec<Rc<Block>>> {
        if !program.states.is_empty() || inputs.len() != program.inputs.len() {
            let message = format!(
                "a program of {} states and {} inputs cannot run once on {} inputs",
                program.states.len(),
                program.inputs.len(),
                inputs.len()
            );
            return Err(Error::new(ErrorKind::Plan, message));
        }
        let mut blocks: Vec<Option<Rc<Block>>> = vec![None; program.buffers.len()];
        let mut last_use = vec![usize::MAX; program.buffers.len()];
        for (position, kernel) in program.kernels.iter().enumerate() {
            for operand in kernel.reads.iter().chain(&kernel.writes) {
                last_use[operand.buffer.index()] = position;
            }
        }
        for output in &program.outputs {
            last_use[output.index()] = usize::MAX;
        }
        for (input, block) in program.inputs.iter().zip(inputs) {
            self.check_block(program, *input, block)?;
            blocks[input.index()] = Some(block.clone());
        }
        for (position, kernel) in program.kernels.iter().enumerate() {
            for operand in &kernel.writes {
                let buffer = &program.buffers[operand.buffer.index()];
                let owner = memory.owner(&owner(buffer));
                let block = memory.allocate_for(owner, buffer.bytes() as u64).map_err(|error| {
                    Error::short_of_memory(
                        &format!("{}{} of `{}`", buffer.dtype, buffer.shape, buffer.name),
                        error,
                    )
                })?;
                blocks[operand.buffer.index()] = Some(Rc::new(block));
            }
            let routine = prepare(kernel);
            let place = format!("{}/{}/{}", Category::Workspace.name(), kernel.scope, kernel.name());
            let workspace = memory
                .allocate_for(memory.owner(&place), routine.workspace(self.threads()) as u64)
                .map_err(|error| Error::short_of_memory(&format!("`{place}`"), error))?;
            let address =
                |id: BufferId| blocks[id.index()].as_ref().map_or(std::ptr::null_mut(), |b| b.start());
            let reads: Vec<*const u8> = kernel.reads.iter().map(|o| address(o.buffer).cast_const()).collect();
            let writes: Vec<*mut u8> = kernel.writes.iter().map(|o| address(o.buffer)).collect();
            let call =
                Call { reads: &reads, writes: &writes, workspace: workspace.start(), pool: &self.pool };
            // SAFETY: every operand has a block of its buffer's size, aligned as an arena is; reads come from
            // inputs or earlier kernels, as the program's order promises; the writes are fresh blocks that no
            // one else holds; the workspace is as large as asked for.
            unsafe { routine.run(&call) };
            for operand in kernel.reads.iter().chain(&kernel.writes) {
                if last_use[operand.buffer.index()] == position {
                    blocks[operand.buffer.index()] = None;
                }
            }
        }
        let missing = || Error::new(ErrorKind::Plan, "a program that does not write one of its outputs");
        program.outputs.iter().map(|o| blocks[o.index()].clone().ok_or_else(missing)).collect()
    }

    fn check_block(&self, program: &Program, id: BufferId, block: &Block) -> Result<()> {
        let buffer = &program.buffers[id.index()];
        if block.bytes() == buffer.bytes() as u64 {
            return Ok(());
        }
        let message = format!(
            "input `{}` is {}{} of {} bytes, was given {}",
            buffer.name,
            buffer.dtype,
            buffer.shape,
            buffer.bytes(),
            block.bytes()
        );
        Err(Error::new(ErrorKind::Plan, message))
    }
}

/// The line of a ledger that buffers of a role are booked on.
pub fn category(role: Role) -> Category {
    match role {
        Role::Parameter => Category::Parameters,
        Role::Gradient => Category::Gradients,
        Role::Optimizer => Category::Optimizer,
        Role::Input => Category::Inputs,
        Role::Activation => Category::Activations,
        Role::Metric => Category::Metrics,
        Role::Random => Category::Random,
    }
}

/// Who asks for a buffer: what it is for, then the scope and op it comes from.
fn owner(buffer: &Buffer) -> String {
    format!("{}/{}", category(buffer.role).name(), buffer.name.replace(':', "/"))
}

//! The device: threads, what kernels need on them, and the two ways to run a program.

use crate::runtime::executable::CpuMemory;
use crate::runtime::pool::Pool;
use crate::runtime::prepare::prepare;
use crate::runtime::routine::{ALIGNMENT, Call, Options};
use crate::{Error, ErrorKind, Result};
use plimsoll_device::selftest::{Host, pools};
use plimsoll_device::{
    ArenaBytes, Books, Device, DeviceMemory, PlanningTraits, SelfTest, check_unplanned, describe, last_uses,
    owner, workspace_owner,
};
use plimsoll_graph::Program;
use plimsoll_graph::program::{Body, BufferId, Kernel};
use plimsoll_memory::Block;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// Smaller logits stay in a cache from the kernel that makes them to those that use them, and the whole weight's gradient
/// can be fused with its update.
const CHUNK_LOGITS_BYTES: usize = 24 << 20;

/// The CPU as a device: a fixed number of threads.
///
/// Results do not depend on the number of threads: the same program on the same data gives the same bits.
#[derive(Clone)]
pub struct CpuDevice {
    pub(crate) pool: Arc<Pool>,
    pub(crate) options: Options,
    /// The folder for what rests in a file between its uses.
    pub(crate) spill: Option<Arc<Path>>,
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
            Error::new(ErrorKind::Unavailable, format!("the system did not start {threads} threads: {e}"))
        })?;
        Ok(CpuDevice { pool: Arc::new(pool), options: Options::default(), spill: None })
    }

    /// The same device, with Winograd's algorithm for convolutions that it is faster for, or with sums of products for
    /// all. The algorithm is there unless this says otherwise.
    pub fn winograd(mut self, winograd: bool) -> CpuDevice {
        self.options.winograd = winograd;
        self
    }

    /// The same device, with a folder in which values may rest between their uses, in a file that is gone with the process.
    #[must_use]
    pub fn spill_to(mut self, folder: &Path) -> CpuDevice {
        self.spill = Some(folder.into());
        self
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Calls `task` with every number below `tasks`, on all threads at once.
    pub fn in_parallel(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        self.pool.run(tasks, &|_, number| task(number));
    }
}

impl Device for CpuDevice {
    fn name(&self) -> String {
        "cpu".into()
    }

    fn model(&self) -> String {
        "this machine's processor".into()
    }

    fn planning_traits(&self) -> PlanningTraits {
        PlanningTraits {
            alignment: ALIGNMENT as u64,
            stages_inputs: false,
            // What was just made is in a cache.
            group_bytes: 0,
            // Moving things within the same memory saves none of it.
            rests_elsewhere: self.spill.is_some(),
            memory_is_scarce: false,
            chunk_logits_bytes: CHUNK_LOGITS_BYTES,
        }
    }

    fn workspaces(&self, program: &Program) -> Result<[Vec<u64>; 2]> {
        program.check_kernels()?;
        let need = |kernel: &Kernel| match kernel.body {
            Body::Wait => 0,
            _ => prepare(kernel, self.options).workspace(self.threads()) as u64,
        };
        Ok([&program.kernels, &program.rematerializations].map(|all| all.iter().map(need).collect()))
    }

    fn books(&self) -> Result<Option<Books>> {
        Ok(None)
    }

    fn reserve(&self, bytes: ArenaBytes, limit: Option<u64>) -> Result<Box<dyn DeviceMemory>> {
        Ok(Box::new(CpuMemory::reserve(self, bytes, limit)?))
    }

    fn pool(&self, limit: Option<u64>) -> Result<plimsoll_memory::Pool> {
        Ok(plimsoll_memory::Pool::new(limit))
    }

    fn run_once(
        &self,
        program: &Program,
        inputs: &[Rc<Block>],
        memory: &plimsoll_memory::Pool,
    ) -> Result<Vec<Rc<Block>>> {
        check_unplanned(program, inputs)?;
        let refused = |message: &str| Err(Error::new(ErrorKind::InvalidPlan, message));
        if !memory.is_host() {
            return refused("a pool of memory that is not the process's cannot hold tensors of the CPU");
        }
        if !inputs.iter().all(|block| block.is_host()) {
            return refused("a block of memory that is not the process's is no input of the CPU");
        }
        let mut blocks: Vec<Option<Rc<Block>>> = vec![None; program.buffers.len()];
        let last_use = last_uses(program);
        for (input, block) in program.inputs.iter().zip(inputs) {
            blocks[input.index()] = Some(block.clone());
        }
        for (position, kernel) in program.kernels.iter().enumerate() {
            for operand in &kernel.writes {
                let buffer = &program.buffers[operand.buffer.index()];
                let owner = memory.owner(&owner(buffer));
                let block = memory
                    .allocate_for(owner, buffer.bytes() as u64)
                    .map_err(|error| Error::short_of_memory(&describe(buffer), error))?;
                blocks[operand.buffer.index()] = Some(Rc::new(block));
            }
            // A copy has ended when it returns: there is nothing to wait for.
            if !matches!(kernel.body, Body::Wait) {
                let routine = prepare(kernel, self.options);
                let place = workspace_owner(kernel);
                let workspace = memory
                    .allocate_for(memory.owner(&place), routine.workspace(self.threads()) as u64)
                    .map_err(|error| Error::short_of_memory(&format!("`{place}`"), error))?;
                let address =
                    |id: BufferId| blocks[id.index()].as_ref().map_or(std::ptr::null_mut(), |b| b.start());
                let reads: Vec<*const u8> =
                    kernel.reads.iter().map(|o| address(o.buffer).cast_const()).collect();
                let writes: Vec<*mut u8> = kernel.writes.iter().map(|o| address(o.buffer)).collect();
                let call =
                    Call { reads: &reads, writes: &writes, workspace: workspace.start(), pool: &self.pool };
                // SAFETY: every operand lies in a block of its buffer's size, aligned as an arena is, of host memory; reads
                // come from inputs or earlier kernels; the writes are fresh blocks that no one else holds: all of that
                // was checked above or by `check_unplanned`. The workspace is as large as asked for.
                unsafe { routine.run(&call) };
            }
            for operand in kernel.reads.iter().chain(&kernel.writes) {
                if last_use[operand.buffer.index()] == Some(position) {
                    blocks[operand.buffer.index()] = None;
                }
            }
        }
        let missing =
            || Error::new(ErrorKind::InvalidPlan, "a program that does not write one of its outputs");
        program.outputs.iter().map(|o| blocks[o.index()].clone().ok_or_else(missing)).collect()
    }

    fn write_block(&self, block: &mut Block, bytes: &[u8]) -> Result<()> {
        check_length(block, bytes.len())?;
        block.as_mut_slice().copy_from_slice(bytes);
        Ok(())
    }

    fn read_block(&self, block: &Block, bytes: &mut [u8]) -> Result<()> {
        check_length(block, bytes.len())?;
        bytes.copy_from_slice(block.as_slice());
        Ok(())
    }

    fn selftest(&self) -> Vec<SelfTest> {
        let mut checks = vec![];
        pools(&Host, &mut checks);
        checks
    }
}

/// Refuses bytes that are not as many as a block's, and blocks that are not the process's memory.
fn check_length(block: &Block, bytes: usize) -> Result<()> {
    if block.is_host() && block.bytes() == bytes as u64 {
        return Ok(());
    }
    let message = format!("{bytes} bytes for a block of {} of the CPU", block.bytes());
    Err(Error::new(ErrorKind::InvalidPlan, message))
}

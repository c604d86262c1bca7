//! Programs run at once, with each buffer in a block of a pool.
//!
//! Eager mode has no plan: ops come one by one, and a tensor lives as long as somebody holds it. All of it is enqueued
//! on one stream of the device, which is what lets a block go back to its pool as soon as its last use is *enqueued*:
//! whoever is given its bytes next comes later on the same stream. Preparing a kernel (writing its source, compiling,
//! autotuning) takes far longer than running it, so what was prepared is kept by what the kernel computes on which
//! types and views, never by addresses.

use crate::codegen::engine::Engine;
use crate::driver::device::{CudaDevice, Shared};
use crate::driver::source::CudaSource;
use crate::driver::stream::Stream;
use crate::error::{Error, ErrorKind, Result};
use crate::prepare::prepare;
use crate::routine::{Call, Routine};
use crate::runtime::copy_within::CopyWithin;
use cudarc::driver::sys::CUdeviceptr;
use plimsoll_device::{check_unplanned, describe, last_uses, owner, workspace_owner};
use plimsoll_graph::Program;
use plimsoll_graph::program::{Body, BufferId, Kernel, Operand};
use plimsoll_memory::{Block, Pool, PoolSettings};
use std::collections::HashMap;
use std::fmt::Write;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most kernels that are kept prepared: those of a few models at many shapes.
const MOST_PREPARED: usize = 4096;

/// What eager execution on one device needs: the stream that all of it is enqueued on, and kernels that were prepared.
pub(crate) struct Eager {
    stream: Stream,
    prepared: Mutex<Recent<Box<dyn Routine>>>,
}

impl CudaDevice {
    /// A pool of the device's memory, for eager execution, whose blocks are never more than `limit` bytes together.
    ///
    /// # Errors
    /// If the device cannot map memory behind addresses.
    pub fn pool(&self, limit: Option<u64>) -> Result<Pool> {
        let source = CudaSource::new(self)?;
        let settings =
            PoolSettings { name: self.id().to_string(), live_limit: limit, ..PoolSettings::default() };
        Ok(Pool::on(Box::new(source), settings))
    }

    /// Runs a program once, each buffer in a block of its own that is freed after its last use. `inputs` are the blocks
    /// of the program's inputs; returned are those of its outputs. A block's owner is what its buffer is for, and the
    /// scope and op it comes from.
    ///
    /// The kernels are enqueued, not waited for: [`read_block`](CudaDevice::read_block) waits.
    ///
    /// # Errors
    /// If memory runs out, in which case what was made so far is freed and the pool stays usable; if the program has
    /// states or buffers on the host, which need a plan; if a block is not this device's memory; if the device has no
    /// kernel for something; or if work that was enqueued before has failed.
    pub fn run_once(&self, program: &Program, inputs: &[Rc<Block>], pool: &Pool) -> Result<Vec<Rc<Block>>> {
        check_unplanned(program, inputs)
            .map_err(|error| Error::new(ErrorKind::Plan, error.to_string()).caused_by(error))?;
        let (engine, eager) = (self.engine()?, self.eager()?);
        let mut blocks: Vec<Option<(Rc<Block>, CUdeviceptr)>> = vec![None; program.buffers.len()];
        for (input, block) in program.inputs.iter().zip(inputs) {
            blocks[input.index()] = Some((block.clone(), self.address(block)?));
        }
        let last_use = last_uses(program);
        // Held throughout, so that what one thread has looked up no other drops before its launch is enqueued.
        let mut prepared = eager.prepared();
        for (position, kernel) in program.kernels.iter().enumerate() {
            for operand in &kernel.writes {
                let buffer = &program.buffers[operand.buffer.index()];
                let block = pool
                    .allocate_for(pool.owner(&owner(buffer)), buffer.bytes() as u64)
                    .map_err(|error| Error::short_of_memory(&describe(buffer), error))?;
                let address = self.address(&block)?;
                blocks[operand.buffer.index()] = Some((Rc::new(block), address));
            }
            // Copies are on the stream of all else, and whatever uses their bytes comes after them.
            if !matches!(kernel.body, Body::Wait) {
                let address = |operand: &Operand| {
                    let block = blocks[operand.buffer.index()].as_ref();
                    block.map(|(_, address)| *address).ok_or_else(|| unwritten(program, operand.buffer))
                };
                let reads: Vec<CUdeviceptr> = kernel.reads.iter().map(address).collect::<Result<_>>()?;
                let writes: Vec<CUdeviceptr> = kernel.writes.iter().map(address).collect::<Result<_>>()?;
                let routine = eager.prepare(&mut prepared, engine, program, kernel)?;
                let workspace = self.workspace_block(pool, kernel, routine.workspace())?;
                let call = Call {
                    reads: &reads,
                    writes: &writes,
                    workspace: workspace.as_ref().map_or(0, |(_, address)| *address),
                    stream: eager.stream.stream,
                };
                // SAFETY: every operand has a block of its buffer's size that this device has mapped, aligned to 256
                // bytes as pools align; reads come from inputs or earlier kernels, as `check_unplanned` vouches;
                // writes are fresh blocks that no one else holds, and the workspace is as large as asked for. Blocks
                // are freed while work that uses them may still be under way, which is safe on one stream: whatever is
                // given the same bytes next, by this pool or, once their page has been unmapped, by anyone, is
                // enqueued after it (`run_once` and `write_block` use this stream alone), and unmapping a page waits
                // for all work on the device.
                self.shared.with_context(|_| unsafe { routine.run(&call) })?;
            }
            for operand in kernel.reads.iter().chain(&kernel.writes) {
                if last_use[operand.buffer.index()] == Some(position) {
                    blocks[operand.buffer.index()] = None;
                }
            }
        }
        let output = |id: &BufferId| match &blocks[id.index()] {
            Some((block, _)) => Ok(block.clone()),
            None => Err(unwritten(program, *id)),
        };
        program.outputs.iter().map(output).collect()
    }

    /// Writes all bytes of a block, after everything that [`run_once`](CudaDevice::run_once) has enqueued, and returns
    /// when they are there.
    ///
    /// # Errors
    /// If the block has another number of bytes or is not this device's memory, or work before it has failed.
    pub fn write_block(&self, block: &Block, bytes: &[u8]) -> Result<()> {
        same_length(block, bytes.len())?;
        if bytes.is_empty() {
            return Ok(());
        }
        let (to, stream) = (self.address(block)?, &self.eager()?.stream);
        // SAFETY: the block is mapped and of so many bytes, the source is a live slice of as many, and the stream is waited
        // for before either can go away.
        unsafe { stream.copy_to_device(to, bytes.as_ptr(), bytes.len())? };
        stream.synchronize()
    }

    /// Reads all bytes of a block, after everything that [`run_once`](CudaDevice::run_once) has enqueued.
    ///
    /// # Errors
    /// If the block has another number of bytes or is not this device's memory, or work before it has failed.
    pub fn read_block(&self, block: &Block, out: &mut [u8]) -> Result<()> {
        same_length(block, out.len())?;
        if out.is_empty() {
            return Ok(());
        }
        let (from, stream) = (self.address(block)?, &self.eager()?.stream);
        // SAFETY: the block is mapped and of so many bytes, the destination is a live slice of as many, and the stream is
        // waited for before either can go away.
        unsafe { stream.copy_to_host(out.as_mut_ptr(), from, out.len())? };
        stream.synchronize()
    }

    /// Where a block is, if this device has mapped all of it. A pool keeps it mapped while the block lives.
    fn address(&self, block: &Block) -> Result<CUdeviceptr> {
        let address = block.start().addr() as CUdeviceptr;
        self.shared.address_book().check_mapped(address, block.bytes()).map_err(|error| {
            let message = format!(
                "a block of {} bytes at {address:#x} is not memory of this {}; take blocks from a pool that it made \
                 ({error})",
                block.bytes(),
                self.id()
            );
            Error::new(ErrorKind::BadRange, message)
        })?;
        Ok(address)
    }

    /// Scratch memory for one run of a kernel, if it needs any.
    fn workspace_block(
        &self,
        pool: &Pool,
        kernel: &Kernel,
        bytes: u64,
    ) -> Result<Option<(Block, CUdeviceptr)>> {
        if bytes == 0 {
            return Ok(None);
        }
        let path = workspace_owner(kernel);
        let block = pool
            .allocate_for(pool.owner(&path), bytes)
            .map_err(|error| Error::short_of_memory(&format!("`{path}`"), error))?;
        let address = self.address(&block)?;
        Ok(Some((block, address)))
    }
}

impl Eager {
    pub(crate) fn new(shared: &Arc<Shared>) -> Result<Eager> {
        Ok(Eager { stream: Stream::new(shared)?, prepared: Mutex::new(Recent::new(MOST_PREPARED)) })
    }

    /// What was prepared. A panic elsewhere leaves it whole.
    fn prepared(&self) -> MutexGuard<'_, Recent<Box<dyn Routine>>> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The routine of a kernel, prepared unless it was before.
    fn prepare<'a>(
        &self,
        prepared: &'a mut Recent<Box<dyn Routine>>,
        engine: &Arc<Engine>,
        program: &Program,
        kernel: &Kernel,
    ) -> Result<&'a dyn Routine> {
        let key = key(program, kernel, engine.tf32());
        if !prepared.contains(&key) {
            let routine = match kernel.body {
                Body::Copy => {
                    let bytes = program.buffers[kernel.reads[0].buffer.index()].bytes() as u64;
                    Box::new(CopyWithin::new(engine, bytes)?)
                }
                Body::Loop(_) | Body::Op(_) | Body::WithEpilogue(_) | Body::Wait => prepare(engine, kernel)?,
            };
            if prepared.is_full() {
                // Launches of what is let go may still be under way.
                self.stream.synchronize()?;
                prepared.forget_older_half();
            }
            prepared.insert(key.clone(), routine);
        }
        let missing = || Error::new(ErrorKind::Plan, "a kernel that was prepared is gone");
        prepared.get(&key).map(|routine| &**routine).ok_or_else(missing)
    }
}

impl Drop for Eager {
    fn drop(&mut self) {
        // What still runs uses the code that goes with the kernels.
        _ = self.stream.synchronize();
    }
}

/// Values by key, of which those not asked for in a long time are let go.
struct Recent<V> {
    /// Each value, and when it was last asked for.
    by_key: HashMap<String, (V, u64)>,
    most: usize,
    clock: u64,
}

impl<V> Recent<V> {
    fn new(most: usize) -> Recent<V> {
        Recent { by_key: HashMap::new(), most, clock: 0 }
    }

    fn contains(&self, key: &str) -> bool {
        self.by_key.contains_key(key)
    }

    fn is_full(&self) -> bool {
        self.by_key.len() >= self.most
    }

    fn insert(&mut self, key: String, value: V) {
        self.clock += 1;
        self.by_key.insert(key, (value, self.clock));
    }

    fn get(&mut self, key: &str) -> Option<&V> {
        let (value, used) = self.by_key.get_mut(key)?;
        self.clock += 1;
        *used = self.clock;
        Some(value)
    }

    /// Drops that half of the values that was asked for longest ago.
    fn forget_older_half(&mut self) {
        let mut times: Vec<u64> = self.by_key.values().map(|(_, used)| *used).collect();
        times.sort_unstable();
        if let Some(&middle) = times.get(times.len() / 2) {
            self.by_key.retain(|_, (_, used)| *used >= middle);
        }
    }
}

/// What a kernel is prepared from: what it computes, and the types and views of its operands. Which of them share a buffer
/// counts, which buffers those are does not.
fn key(program: &Program, kernel: &Kernel, tf32: bool) -> String {
    let mut key = String::new();
    // Writing to a string does not fail.
    _ = match kernel.body {
        Body::Copy => write!(key, "copy {}", program.buffers[kernel.reads[0].buffer.index()].bytes()),
        _ => write!(key, "{:?} {:?} {tf32}", kernel.body, kernel.in_place),
    };
    let mut buffers: Vec<BufferId> = vec![];
    for (operands, end) in [(&kernel.reads, " to"), (&kernel.writes, "")] {
        for Operand { buffer, dtype, view } in operands {
            let number = buffers.iter().position(|known| known == buffer).unwrap_or_else(|| {
                buffers.push(*buffer);
                buffers.len() - 1
            });
            let strides = &view.strides[..view.shape.rank()];
            _ = write!(key, " {number}:{dtype}{}+{}{strides:?}", view.shape, view.offset);
        }
        key.push_str(end);
    }
    key
}

fn same_length(block: &Block, bytes: usize) -> Result<()> {
    if block.bytes() == bytes as u64 {
        return Ok(());
    }
    let message = format!("{bytes} bytes were given for a block of {}", block.bytes());
    Err(Error::new(ErrorKind::BadRange, message))
}

fn unwritten(program: &Program, id: BufferId) -> Error {
    let message = format!("nothing has written {} before its use", describe(&program.buffers[id.index()]));
    Error::new(ErrorKind::Plan, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_graph::{DType, Step, lower};

    /// The program of `(x · y) · (x · y)`.
    fn program(elements: usize) -> Program {
        let mut step = Step::new();
        let x = step.input("x", &[elements, 3], DType::F32).expect("a shape");
        let y = step.input("y", &[3, elements], DType::F32).expect("a shape");
        let product = step.graph.dot(x, y).expect("matrices");
        let square = step.graph.dot(product, product).expect("a square");
        step.output("square", square);
        lower(&step)
    }

    #[test]
    fn a_kernel_is_known_by_what_it_computes_and_not_by_its_buffers() {
        let one = program(4);
        let mut other = one.clone();
        for kernel in &mut other.kernels {
            for operand in kernel.reads.iter_mut().chain(&mut kernel.writes) {
                operand.buffer.0 += 7;
            }
        }
        let keys = |program: &Program| -> Vec<String> {
            program.kernels.iter().map(|kernel| key(program, kernel, false)).collect()
        };
        assert_eq!(keys(&one), keys(&other));
        assert_ne!(keys(&one)[0], keys(&one)[1], "a product of one matrix with itself is another kernel");
        assert_ne!(keys(&one), keys(&program(5)), "other shapes");
        assert_ne!(key(&one, &one.kernels[0], false), key(&one, &one.kernels[0], true), "another precision");
        let mut transposed = one.clone();
        transposed.kernels[0].reads[0].view.strides[..2].copy_from_slice(&[1, 4]);
        assert_ne!(keys(&one), keys(&transposed), "another view");
    }

    #[test]
    fn what_was_asked_for_longest_ago_is_forgotten_first() {
        let mut recent = Recent::new(4);
        for number in 0..4 {
            assert!(!recent.is_full());
            recent.insert(number.to_string(), number);
        }
        assert!(recent.is_full());
        assert_eq!(recent.get("0"), Some(&0));
        recent.forget_older_half();
        let kept: Vec<bool> = (0..4).map(|number| recent.contains(&number.to_string())).collect();
        assert_eq!(kept, [true, false, false, true]);
        assert!(!recent.is_full());
    }
}

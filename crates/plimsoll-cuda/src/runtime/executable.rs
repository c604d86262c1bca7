//! A plan bound to one memory: running it is one launch of a CUDA graph.
//!
//! Launching a kernel takes the host longer than many kernels take the device. So the launches of a plan are captured
//! once, when it is loaded, with the copies to and from the host as branches beside them; a step is then one launch.

use crate::codegen::engine::Engine;
use crate::codegen::loops::{self, SmallLoop};
use crate::driver::device::CudaDevice;
use crate::driver::stream::{Event, Graph, Stream};
use crate::error::{Error, ErrorKind, Result};
use crate::prepare::prepare;
use crate::routine::{ALIGNMENT, Call, Routine};
use crate::runtime::copy_within::CopyWithin;
use crate::runtime::in_flight::InFlight;
#[cfg(doc)]
use crate::runtime::in_flight::UNDER_WAY;
use crate::runtime::launch_groups;
use crate::runtime::memory::{Memory, Placement};
use crate::runtime::small_results::SmallResultsKernel;
use crate::runtime::stream_assignment::{self, Access, Assignment, KERNEL_STREAMS, STREAMS};
use cudarc::driver::sys::CUdeviceptr;
use plimsoll_device::CheckedProgram;
use plimsoll_device::staging::STAGING_ALIGNMENT;
use plimsoll_graph::Program;
use plimsoll_graph::program::{Body, BufferId, Home, Keep, Kernel, Operand};
use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The streams of copies.
const TO_DEVICE: usize = KERNEL_STREAMS;
const TO_HOST: usize = KERNEL_STREAMS + 1;

/// A program, ready to run at fixed addresses of one memory.
///
/// Several executables may be bound to one memory; running one takes it mutably, so they run one at a time. What
/// survives a step lies at the same offsets in all plans of one model.
pub(crate) struct Executable {
    /// The launches that were captured: what they use lives as long as the graph.
    steps: Vec<PlannedLaunch>,
    small_results_kernel: SmallResultsKernel,
    graph: Graph,
    starts: [u64; 2],
    states: Vec<Placement>,
    inputs: Vec<Placement>,
    outputs: Vec<Placement>,
    /// Where inputs and outputs lie in the memory of a staging slot.
    input_offsets: Vec<u64>,
    output_offsets: Vec<u64>,
    /// Whether inputs may be copied in before the previous run has ended.
    ahead: bool,
    /// What tells it from all others.
    identity: u64,
}

/// What one kernel of the plan does to the device.
enum PlannedLaunch {
    Kernel {
        routine: Box<dyn Routine>,
        reads: Box<[CUdeviceptr]>,
        writes: Box<[CUdeviceptr]>,
        workspace: CUdeviceptr,
        /// The bytes of workspace.
        scratch: u64,
    },
    /// A copy of a buffer between device and host.
    Copy { from: Placement, to: Placement },
    /// A copy has ended. What uses its bytes waits for it in any case.
    Wait,
    /// Part of an earlier launch.
    Grouped,
}

impl CudaDevice {
    /// The scratch bytes a kernel needs on this device. What is compiled for it is kept.
    ///
    /// # Errors
    /// If the device has no kernel for it, or what is needed to make it is missing.
    pub fn workspace(&self, kernel: &Kernel) -> Result<u64> {
        match kernel.body {
            Body::Copy | Body::Wait => Ok(0),
            Body::Loop(_) | Body::Op(_) | Body::WithEpilogue(_) => {
                Ok(prepare(self.engine()?, kernel)?.workspace())
            }
        }
    }

    /// Compiles what the kernels of a program need, on all processors of the machine at once. What is asked for
    /// afterwards is there.
    ///
    /// # Errors
    /// If the device has no kernel for one, or what is needed to make it is missing.
    pub fn compile(&self, program: &Program) -> Result<()> {
        let engine = self.engine()?;
        let kernels: Vec<&Kernel> = program.kernels.iter().chain(&program.rematerializations).collect();
        let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
        let threads = thread::available_parallelism().map_or(1, |n| n.get()).min(kernels.len());
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some(kernel) = kernels.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if matches!(kernel.body, Body::Copy | Body::Wait) {
                            continue;
                        }
                        if let Err(error) = prepare(engine, kernel) {
                            failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                            next.store(kernels.len(), Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    /// Whether matrix products of f32 that are loaded from now on may round their operands to the 19 bits of TF32, which
    /// is several times as fast. They may not unless this says so.
    ///
    /// # Errors
    /// If the device cannot be asked what it can do.
    pub fn allow_tf32(&self, allowed: bool) -> Result<()> {
        self.engine()?.allow_tf32(allowed);
        Ok(())
    }

    /// Binds a program and its plan to memory.
    ///
    /// # Errors
    /// If the plan is not one of this program or does not fit the memory, or the device has no kernel for something in
    /// it.
    pub(crate) fn load(&self, program: &CheckedProgram, memory: &mut Memory) -> Result<Executable> {
        self.compile(program.program())?;
        Executable::new(self.engine()?, program, memory)
    }
}

impl Executable {
    fn new(engine: &Arc<Engine>, checked: &CheckedProgram, memory: &mut Memory) -> Result<Executable> {
        let (program, plan) = (checked.program(), checked.plan());
        let outside = |what: &str, bytes: u64| {
            let message = format!(
                "{what} of {bytes} bytes lies outside the arena of {} bytes (on the host {}); the plan needs {} ({})",
                memory.device_bytes(),
                memory.host_bytes(),
                plan.peak_bytes,
                plan.host_bytes
            );
            Error::new(ErrorKind::Plan, message)
        };
        let place = |id: BufferId| {
            let buffer = &program.buffers[id.index()];
            let place = Placement {
                home: buffer.home,
                offset: plan.offsets[id.index()],
                bytes: buffer.bytes() as u64,
            };
            let inside = match place.home {
                Home::Device => memory.device.address(place.offset, place.bytes).is_some(),
                Home::Host => memory.host.address(place.offset, place.bytes).is_some(),
            };
            if inside { Ok(place) } else { Err(outside(&buffer.name, place.bytes)) }
        };
        let address = |kernel: &Kernel, id: BufferId| {
            let buffer = &program.buffers[id.index()];
            let Placement { home, offset, bytes } = place(id)?;
            let address = memory.device.address(offset, bytes).filter(|_| home == Home::Device);
            address.ok_or_else(|| {
                let message = format!(
                    "`{}` of `{}` uses `{}`, which is on the host",
                    kernel.name(),
                    kernel.scope,
                    buffer.name
                );
                Error::new(ErrorKind::Plan, message)
            })
        };
        let span = |place: &Placement| {
            let start = match place.home {
                Home::Device => memory.device.address(place.offset, place.bytes),
                Home::Host => memory.host.address(place.offset, place.bytes).map(|address| address as u64),
            };
            let start = start.unwrap_or(0);
            start..start + place.bytes
        };
        let range = |operand: &Operand| Ok(span(&place(operand.buffer)?));
        let mut steps = Vec::with_capacity(program.kernels.len());
        let mut accesses = Vec::with_capacity(program.kernels.len());
        let mut needs = vec![0; program.kernels.len()];
        for &index in &plan.order {
            let kernel = &program.kernels[index as usize];
            steps.push(match kernel.body {
                Body::Copy => {
                    let [from, to] = [place(kernel.reads[0].buffer)?, place(kernel.writes[0].buffer)?];
                    if from.bytes != to.bytes {
                        let message =
                            format!("a copy of {} bytes goes to a buffer of {}", from.bytes, to.bytes);
                        return Err(Error::new(ErrorKind::Plan, message));
                    }
                    match (from.home, to.home) {
                        (Home::Device, Home::Device) => PlannedLaunch::Kernel {
                            routine: Box::new(CopyWithin::new(engine, from.bytes)?),
                            reads: [address(kernel, kernel.reads[0].buffer)?].into(),
                            writes: [address(kernel, kernel.writes[0].buffer)?].into(),
                            workspace: 0,
                            scratch: 0,
                        },
                        _ => PlannedLaunch::Copy { from, to },
                    }
                }
                Body::Wait => PlannedLaunch::Wait,
                Body::Loop(_) | Body::Op(_) | Body::WithEpilogue(_) => {
                    let routine = prepare(engine, kernel)?;
                    let bytes = routine.workspace();
                    needs[index as usize] = bytes;
                    let workspace = memory
                        .device
                        .address(plan.workspace_offsets[index as usize], bytes)
                        .ok_or_else(|| outside("a workspace", bytes))?;
                    let reads: Result<_> = kernel.reads.iter().map(|o| address(kernel, o.buffer)).collect();
                    // The view lies in its buffer, as `CheckedProgram` vouches.
                    let writes: Result<_> = kernel
                        .writes
                        .iter()
                        .map(|o| Ok(address(kernel, o.buffer)? + o.first_byte() as u64))
                        .collect();
                    PlannedLaunch::Kernel {
                        routine,
                        reads: reads?,
                        writes: writes?,
                        workspace,
                        scratch: bytes,
                    }
                }
            });
            let mut access = Access {
                reads: kernel.reads.iter().map(range).collect::<Result<_>>()?,
                writes: kernel.writes.iter().map(range).collect::<Result<_>>()?,
                stream: None,
            };
            match steps.last() {
                Some(PlannedLaunch::Kernel { workspace, scratch, .. }) => {
                    access.writes.push(*workspace..workspace + scratch);
                }
                Some(PlannedLaunch::Copy { to, .. }) => {
                    access.stream = Some(if to.home == Home::Host { TO_HOST } else { TO_DEVICE });
                }
                Some(PlannedLaunch::Wait) => access = Access::default(),
                _ => {}
            }
            accesses.push(access);
        }
        checked
            .check_device(ALIGNMENT, needs.into_iter())
            .map_err(|error| Error::new(ErrorKind::Plan, error.to_string()).caused_by(error))?;
        let kernels = plan.order.iter().map(|&index| &program.kernels[index as usize]);
        group_launches(engine, kernels, &mut steps, &mut accesses)?;
        let places = |ids: &[BufferId]| ids.iter().map(|&id| place(id)).collect::<Result<Vec<Placement>>>();
        let (states, inputs, outputs) =
            (places(&program.states)?, places(&program.inputs)?, places(&program.outputs)?);
        if let Some(place) = inputs.iter().chain(&outputs).find(|place| place.home == Home::Host) {
            let message = format!("an input or output of {} bytes is kept on the host", place.bytes);
            return Err(Error::new(ErrorKind::Plan, message));
        }
        let ((input_offsets, input_bytes), (output_offsets, output_bytes)) =
            (offsets(&inputs), offsets(&outputs));
        // What survives a step is used for nothing else while another runs.
        let ahead = program.inputs.iter().all(|id| program.buffers[id.index()].keep == Keep::Always);
        let spans = |places: &[Placement]| places.iter().map(span).collect::<Vec<Range<u64>>>();
        let (arrivals, results) = (spans(&inputs), spans(&outputs));
        let small_results_kernel = SmallResultsKernel::new(engine, &results)?;
        memory
            .in_flight
            .make_room(input_bytes, if small_results_kernel.has_results { 0 } else { output_bytes })?;
        static LOADED: AtomicU64 = AtomicU64::new(0);
        Ok(Executable {
            graph: capture(&steps, accesses, arrivals, (&small_results_kernel, results), memory)?,
            steps,
            small_results_kernel,
            starts: starts(memory),
            states,
            inputs,
            outputs,
            input_offsets,
            output_offsets,
            ahead,
            identity: LOADED.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// Begins a run of the program, once `fill` has written each of its inputs; at most [`UNDER_WAY`] are under way at
    /// a time, and each is collected in its slot.
    ///
    /// # Errors
    /// If as many runs are under way already, an input cannot be had, the driver refuses, or something before it failed.
    ///
    /// # Panics
    /// If `memory` is not the one it was loaded for.
    pub(crate) fn begin<E: From<Error>>(
        &self,
        memory: &mut Memory,
        mut fill: impl FnMut(usize, &mut [u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.check(memory);
        let slot = memory.in_flight.next()?;
        for (index, (input, &offset)) in self.inputs.iter().zip(&self.input_offsets).enumerate() {
            let room = slot.inputs.address(offset, input.bytes).ok_or_else(outside_of_slot)?;
            // SAFETY: so many bytes are there. The run whose slot this was before has been collected, so that no copy from
            // there is under way, and the slot is borrowed from a memory that is borrowed mutably.
            fill(index, unsafe { slice_mut(room, input.bytes) })?;
        }
        self.launch(memory)?;
        memory.in_flight.begin(self.identity);
        Ok(())
    }

    /// Enqueues the copies of inputs, the graph, and the copies of outputs.
    fn launch(&self, memory: &Memory) -> Result<()> {
        let Memory { in_flight, stream, device, .. } = memory;
        let slot = in_flight.next()?;
        // Inputs with buffers of their own are copied while the previous run computes, once it no longer reads its own.
        if !(self.ahead && in_flight.last == Some(self.identity)) {
            in_flight.taken.record(stream)?;
        }
        in_flight.copies.wait(&in_flight.taken)?;
        for (input, &offset) in self.inputs.iter().zip(&self.input_offsets) {
            let from = slot.inputs.address(offset, input.bytes).ok_or_else(outside_of_slot)?;
            let to = device.address(input.offset, input.bytes).ok_or_else(outside_of_slot)?;
            // SAFETY: both are so long. What is copied from is not written before this run is collected; what is copied to is
            // not used before the copy has arrived, nor any more by what came before.
            unsafe { in_flight.copies.copy_to_device(to, from, input.bytes as usize)? };
        }
        in_flight.arrived.record(&in_flight.copies)?;
        stream.wait(&in_flight.arrived)?;
        // SAFETY: every address in the graph is inside the arenas, which live as long as the memory does and are borrowed
        // mutably by `begin`, and are not unmapped before all work is done. That buffers which live at once do not
        // overlap, and reads come after their writes, is what `CheckedProgram` vouches for.
        unsafe { self.graph.launch(stream) }?;
        let copied = if self.small_results_kernel.has_results { &[] } else { &*self.outputs };
        for (output, &offset) in copied.iter().zip(&self.output_offsets) {
            let from = device.address(output.offset, output.bytes).ok_or_else(outside_of_slot)?;
            let to = slot.outputs.address(offset, output.bytes).ok_or_else(outside_of_slot)?;
            // SAFETY: both are so long, and what is copied to is not read before the run has been waited for.
            unsafe { stream.copy_to_host(to, from, output.bytes as usize)? };
        }
        slot.done.record(stream)
    }

    /// Waits for the oldest run under way, which was one of this executable, and shows its outputs.
    ///
    /// # Errors
    /// If none is under way, or the run failed.
    ///
    /// # Panics
    /// If `memory` is not the one it was loaded for.
    pub(crate) fn collect(&self, memory: &mut Memory, mut read: impl FnMut(usize, &[u8])) -> Result<()> {
        self.check(memory);
        let number = memory.in_flight.collect()?;
        let InFlight { slots, small_results, .. } = &memory.in_flight;
        for (index, (output, &offset)) in self.outputs.iter().zip(&self.output_offsets).enumerate() {
            let from = match self.small_results_kernel.has_results {
                true => small_results.result(number, index, output.bytes),
                false => slots[number as usize].outputs.address(offset, output.bytes),
            };
            let from = from.ok_or_else(outside_of_slot)?;
            // SAFETY: so many bytes are there, and what wrote them has ended.
            read(index, unsafe { slice_mut(from, output.bytes) });
        }
        Ok(())
    }

    /// Runs the program once on what `fill` writes for each input, one kernel after another, and returns the seconds of each in the
    /// plan's order. Kernels that are launched together have their time at the first of them, and next to none at the others.
    ///
    /// # Errors
    /// If the driver refuses it.
    ///
    /// # Panics
    /// If `memory` is not the one it was loaded for.
    pub(crate) fn time_kernels<E: From<Error>>(
        &self,
        memory: &mut Memory,
        mut fill: impl FnMut(usize, &mut [u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<Vec<f64>, E> {
        self.check(memory);
        memory.synchronize()?;
        for (index, &input) in self.inputs.iter().enumerate() {
            let mut bytes = vec![0; input.bytes as usize];
            fill(index, &mut bytes)?;
            memory.write(input, &bytes)?;
        }
        Ok(self.time_each(memory)?)
    }

    /// Runs the program once on inputs that are there, and returns the seconds of each kernel.
    fn time_each(&self, memory: &mut Memory) -> Result<Vec<f64>> {
        let shared = &memory.shared;
        let times = || (0..=self.steps.len()).map(|_| Event::timed(shared)).collect::<Result<Vec<Event>>>();
        let marks = times()?;
        // As a graph, so that no kernel waits for the host to launch it.
        let graph = memory.stream.capture(|| {
            marks[0].record_in_graph(&memory.stream)?;
            for (step, mark) in self.steps.iter().zip(&marks[1..]) {
                enqueue(step, memory, &memory.stream)?;
                mark.record_in_graph(&memory.stream)?;
            }
            Ok(())
        })?;
        // SAFETY: the addresses are those of the arenas, which are borrowed until the stream is waited for below.
        unsafe { graph.launch(&memory.stream)? };
        let seconds = |pair: &[Event]| Ok(f64::from(pair[0].milliseconds_to(&pair[1])?) * 1e-3);
        let seconds = marks.windows(2).map(seconds).collect();
        memory.synchronize()?;
        seconds
    }

    /// The bytes of a state.
    pub(crate) fn state_bytes(&self, index: usize) -> usize {
        self.states[index].bytes as usize
    }

    /// Writes a piece of a state before a run, which begins at so many bytes of it.
    ///
    /// # Errors
    /// If the state ends before the piece does, or the driver refuses.
    pub(crate) fn write_state(
        &self,
        memory: &mut Memory,
        index: usize,
        first: usize,
        piece: &[u8],
    ) -> Result<()> {
        self.check(memory);
        memory.write(self.piece(index, first, piece.len())?, piece)
    }

    /// Reads a piece of a state after a run, which begins at so many bytes of it.
    ///
    /// # Errors
    /// If the state ends before the piece does, or the run failed.
    pub(crate) fn read_state(
        &self,
        memory: &Memory,
        index: usize,
        first: usize,
        piece: &mut [u8],
    ) -> Result<()> {
        self.check(memory);
        memory.read(self.piece(index, first, piece.len())?, piece)
    }

    fn piece(&self, index: usize, first: usize, bytes: usize) -> Result<Placement> {
        let Placement { home, offset, bytes: all } = self.states[index];
        let (first, bytes) = (first as u64, bytes as u64);
        match first.checked_add(bytes).is_some_and(|end| end <= all) {
            true => Ok(Placement { home, offset: offset + first, bytes }),
            false => Err(Error::new(ErrorKind::BadRange, "a piece outside its state")),
        }
    }

    fn check(&self, memory: &Memory) {
        assert_eq!(starts(memory), self.starts, "an executable runs only in the memory it was loaded for");
    }
}

fn outside_of_slot() -> Error {
    Error::new(ErrorKind::BadRange, "an input or output outside its memory")
}

/// # Safety
/// So many bytes must be there, and used by no one else.
unsafe fn slice_mut<'a>(start: *mut u8, bytes: u64) -> &'a mut [u8] {
    // SAFETY: the caller vouches for it.
    unsafe { std::slice::from_raw_parts_mut(start, bytes as usize) }
}

/// The offsets of buffers that lie one after another, and their end.
fn offsets(places: &[Placement]) -> (Vec<u64>, u64) {
    let mut end = 0;
    let offsets = places.iter().map(|place| {
        let start: u64 = end;
        end = (start + place.bytes).next_multiple_of(STAGING_ALIGNMENT);
        start
    });
    (offsets.collect(), end)
}

fn starts(memory: &Memory) -> [u64; 2] {
    [memory.device.address(0, 0).unwrap_or(0), memory.host.address(0, 0).map_or(0, |address| address as u64)]
}

/// Replaces each group of kernels that can share a launch by one, in the place of the first of them.
fn group_launches<'a>(
    engine: &Arc<Engine>,
    kernels: impl Iterator<Item = &'a Kernel>,
    steps: &mut [PlannedLaunch],
    accesses: &mut [Access],
) -> Result<()> {
    let small_loops: Vec<Option<SmallLoop>> = kernels.map(loops::small_loop).collect();
    let kinds: Vec<Option<&str>> = small_loops.iter().map(|one| Some(one.as_ref()?.source())).collect();
    for group in launch_groups::groups(&kinds, accesses) {
        let (mut all_reads, mut all_writes, mut access) = (vec![], vec![], Access::default());
        for &member in &group {
            if let PlannedLaunch::Kernel { reads, writes, .. } =
                mem::replace(&mut steps[member], PlannedLaunch::Grouped)
            {
                all_reads.extend(reads);
                all_writes.extend(writes);
            }
            let Access { reads, writes, .. } = mem::take(&mut accesses[member]);
            access.reads.extend(reads);
            access.writes.extend(writes);
        }
        let members: Vec<&SmallLoop> =
            group.iter().filter_map(|&member| small_loops[member].as_ref()).collect();
        steps[group[0]] = PlannedLaunch::Kernel {
            routine: loops::prepare_multi_tensor(engine, &members)?,
            reads: all_reads.into(),
            writes: all_writes.into(),
            workspace: 0,
            scratch: 0,
        };
        accesses[group[0]] = access;
    }
    Ok(())
}

/// Captures a plan's launches as a graph, on several streams as far as their conflicts allow. The event that frees the
/// input buffers is recorded after the last launch that reads them, and small results are written once they are there.
fn capture(
    steps: &[PlannedLaunch],
    mut accesses: Vec<Access>,
    arrivals: Vec<Range<u64>>,
    (small_results_kernel, results): (&SmallResultsKernel, Vec<Range<u64>>),
    memory: &Memory,
) -> Result<Graph> {
    let shared = &memory.shared;
    // The event is placed like a write of the inputs right after the last launch that reads them.
    let reads = |access: &Access| access.reads.iter().any(|read| arrivals.contains(read));
    let taken = accesses.iter().rposition(reads).map_or(0, |last| last + 1);
    accesses.insert(taken, Access { reads: vec![], writes: arrivals, stream: Some(TO_HOST) });
    accesses.push(Access { reads: results, writes: vec![], stream: Some(TO_HOST) });
    let end = accesses.len();
    let assigned = stream_assignment::assign(&accesses);
    let mut awaited = vec![false; end];
    assigned.iter().flat_map(|assigned| &assigned.waits).for_each(|&number| awaited[number] = true);
    let streams = (0..STREAMS).map(|_| Stream::new(shared)).collect::<Result<Vec<Stream>>>()?;
    let begun = Event::new(shared)?;
    let mut ended: Vec<Option<Event>> = (0..end).map(|_| None).collect();
    streams[0].capture(|| {
        begun.record(&streams[0])?;
        for stream in &streams[1..] {
            stream.wait(&begun)?;
        }
        let mut steps = steps.iter();
        for (number, Assignment { stream, waits }) in assigned.iter().enumerate() {
            let stream = &streams[*stream];
            for before in waits.iter().filter_map(|&before| ended[before].as_ref()) {
                stream.wait(before)?;
            }
            if number == taken {
                memory.in_flight.taken.record_in_graph(stream)?;
            } else if let Some(step) = steps.next() {
                enqueue(step, memory, stream)?;
            } else {
                // SAFETY: outputs are inside the arena and kept to the end of the plan, their host memory lives as long
                // as the arena's, and runs are one after another, each with one such kernel.
                unsafe { small_results_kernel.run(&memory.in_flight.small_results, stream.stream)? };
            }
            if awaited[number] {
                let event = Event::new(shared)?;
                event.record(stream)?;
                ended[number] = Some(event);
            }
        }
        // A graph ends when all its branches have, and each has begun in it.
        for stream in &streams[1..] {
            let event = Event::new(shared)?;
            event.record(stream)?;
            streams[0].wait(&event)?;
            ended.push(Some(event));
        }
        Ok(())
    })
}

/// Enqueues one launch.
fn enqueue(step: &PlannedLaunch, memory: &Memory, stream: &Stream) -> Result<()> {
    match step {
        PlannedLaunch::Kernel { routine, reads, writes, workspace, .. } => {
            let call = Call { reads, writes, workspace: *workspace, stream: stream.stream };
            // SAFETY: the addresses are inside the device's arena and aligned, as the plan's alignment is, and every
            // buffer is large enough for its operand. What is enqueued here runs under the promises of
            // `Executable::launch`, or in a memory that is borrowed mutably, after everything whose bytes it uses.
            unsafe { routine.run(&call) }
        }
        PlannedLaunch::Copy { from, to } => copy(memory, *from, *to, stream),
        PlannedLaunch::Wait | PlannedLaunch::Grouped => Ok(()),
    }
}

/// Enqueues the copy of a buffer between device and host.
fn copy(memory: &Memory, from: Placement, to: Placement, stream: &Stream) -> Result<()> {
    let bytes = from.bytes as usize;
    if bytes == 0 {
        return Ok(());
    }
    let outside = || Error::new(ErrorKind::Plan, format!("a copy of {bytes} bytes lies outside the arenas"));
    let device = |place: Placement| memory.device.address(place.offset, place.bytes).ok_or_else(outside);
    let host = |place: Placement| memory.host.address(place.offset, place.bytes).ok_or_else(outside);
    // SAFETY: both buffers are inside their arenas and of these bytes, and the plan keeps both until the copy is waited for.
    unsafe {
        match (from.home, to.home) {
            (Home::Device, Home::Host) => stream.copy_to_host(host(to)?, device(from)?, bytes),
            (Home::Host, Home::Device) => stream.copy_to_device(device(to)?, host(from)?, bytes),
            (Home::Device, Home::Device) | (Home::Host, Home::Host) => {
                let message = "a copy between device and host has one of them at each end";
                Err(Error::new(ErrorKind::Plan, message))
            }
        }
    }
}

//! A plan bound to one arena: running it allocates nothing.

use crate::runtime::prepare::prepare;
use crate::runtime::routine::{ALIGNMENT, Call, Routine};
use crate::runtime::spill::{Spill, Ticket};
use crate::{CpuDevice, Error, ErrorKind, Result};
use plimsoll_device::{
    ArenaBytes, CheckedProgram, DeviceMemory, FillInput, Handle, LoadedPrograms, WritePiece, in_pieces,
};
use plimsoll_graph::program::{Body, BufferId, Home, Kernel};
use plimsoll_memory::Arena;
use std::collections::HashMap;
use std::time::Instant;

/// The memory that programs run in, and those that are loaded: the arena, and a place for what rests between its uses.
pub(crate) struct CpuMemory {
    device: CpuDevice,
    /// Their addresses point into the arenas, which live as long and never move.
    loaded: LoadedPrograms<Executable>,
    /// Dropped before the arenas, as it waits for what is still copied to and from them.
    spill: Option<Spill>,
    /// Those of [`Home::Device`] and, where nothing is spilled to a file, [`Home::Host`].
    arenas: [Arena; 2],
}

/// A program, ready to run at fixed addresses.
struct Executable {
    launches: Vec<Launch>,
    /// The last copy of each that the program has to or from a file.
    copies: Vec<Ticket>,
    /// How many kernels the plan has.
    positions: usize,
    states: Vec<Place>,
    inputs: Vec<Place>,
    outputs: Vec<Place>,
}

/// Something to do, and where it is in the plan's order.
struct Launch {
    position: usize,
    work: Work,
}

enum Work {
    /// A kernel with its addresses.
    Kernel {
        routine: Box<dyn Routine>,
        reads: Box<[*const u8]>,
        writes: Box<[*mut u8]>,
        workspace: *mut u8,
    },
    /// A copy between an address and a file begins, or is waited for.
    Spill {
        copy: usize,
        to_file: bool,
        offset: u64,
        address: *mut u8,
        bytes: usize,
    },
    Wait {
        copy: usize,
    },
}

#[derive(Clone, Copy)]
struct Place {
    home: Home,
    offset: u64,
    bytes: u64,
}

impl CpuMemory {
    /// Reserves an arena, which must not be over `limit`, and what rests elsewhere.
    pub(crate) fn reserve(device: &CpuDevice, bytes: ArenaBytes, limit: Option<u64>) -> Result<CpuMemory> {
        let spill = match &device.spill {
            Some(folder) if bytes.host > 0 => Some(Spill::new(folder, bytes.host)?),
            _ => None,
        };
        let host = if spill.is_some() { 0 } else { bytes.host };
        let arenas = [Arena::reserve(bytes.device, limit)?, Arena::reserve(host, None)?];
        Ok(CpuMemory { device: device.clone(), loaded: LoadedPrograms::default(), spill, arenas })
    }

    fn bind(&self, checked: &CheckedProgram) -> Result<Executable> {
        let (program, plan) = (checked.program(), checked.plan());
        let outside = |what: &str, bytes: u64| {
            let ArenaBytes { device, host } = self.bytes();
            let message = format!(
                "{what} of {bytes} bytes lies outside the arena of {device} bytes (elsewhere {host}); the plan needs {} \
                 ({})",
                plan.peak_bytes, plan.host_bytes
            );
            Error::new(ErrorKind::InvalidPlan, message)
        };
        let place = |id: BufferId| {
            let buffer = &program.buffers[id.index()];
            Place { home: buffer.home, offset: plan.offsets[id.index()], bytes: buffer.bytes() as u64 }
        };
        let address = |id: BufferId| {
            let Place { home, offset, bytes } = place(id);
            let address = self.arenas[home as usize].address(offset, bytes);
            address.ok_or_else(|| outside(&program.buffers[id.index()].name, bytes))
        };
        let in_file = |id: BufferId| {
            let place = place(id);
            match place.offset.checked_add(place.bytes).is_some_and(|end| end <= self.bytes().host) {
                true => Ok(place),
                false => Err(outside(&program.buffers[id.index()].name, place.bytes)),
            }
        };
        let is_spilled = |id: BufferId| self.spill.is_some() && place(id).home == Home::Host;
        let spills =
            |kernel: &Kernel| kernel.reads.iter().chain(&kernel.writes).any(|o| is_spilled(o.buffer));
        // A copy within memory has ended when it returns, so that there is nothing to wait for.
        let runs = |kernel: &Kernel| !matches!(kernel.body, Body::Wait) && !spills(kernel);
        let mut routines: Vec<Option<Box<dyn Routine>>> = program
            .kernels
            .iter()
            .map(|kernel| runs(kernel).then(|| prepare(kernel, self.device.options)))
            .collect();
        let threads = self.device.threads();
        let needs = routines.iter().map(|r| r.as_ref().map_or(0, |r| r.workspace(threads) as u64));
        checked.check_device(ALIGNMENT as u64, needs)?;
        let mut launches = Vec::with_capacity(program.kernels.len());
        // The numbers of copies to or from a file, by the buffers that they are between.
        let mut copies: HashMap<[BufferId; 2], usize> = HashMap::new();
        for (position, &index) in plan.order.iter().enumerate() {
            let kernel = &program.kernels[index as usize];
            if spills(kernel) {
                let (from, to) = match (&kernel.body, &kernel.reads[..], &kernel.writes[..]) {
                    (Body::Copy, [from], [to]) => (from.buffer, to.buffer),
                    (Body::Wait, [from, to, ..], _) => (from.buffer, to.buffer),
                    _ => return Err(outside(kernel.name(), 0)),
                };
                let work = match (&kernel.body, copies.get(&[from, to])) {
                    (Body::Copy, known) => {
                        let copy = known.copied().unwrap_or(copies.len());
                        copies.insert([from, to], copy);
                        let to_file = is_spilled(to);
                        let (near, far) = if to_file { (from, to) } else { (to, from) };
                        let Place { offset, bytes, .. } = in_file(far)?;
                        Work::Spill { copy, to_file, offset, address: address(near)?, bytes: bytes as usize }
                    }
                    (_, Some(&copy)) => Work::Wait { copy },
                    (_, None) => continue,
                };
                launches.push(Launch { position, work });
                continue;
            }
            let Some(routine) = routines[index as usize].take() else { continue };
            let bytes = plan.workspace_bytes[index as usize];
            let workspace = self.arenas[Home::Device as usize]
                .address(plan.workspace_offsets[index as usize], bytes)
                .ok_or_else(|| outside("a workspace", bytes))?;
            let reads: Result<Box<[*const u8]>> =
                kernel.reads.iter().map(|o| address(o.buffer).map(|a| a.cast_const())).collect();
            // The view lies in its buffer, as `CheckedProgram` vouches.
            let writes: Result<Box<[*mut u8]>> =
                kernel.writes.iter().map(|o| Ok(address(o.buffer)?.wrapping_add(o.first_byte()))).collect();
            let work = Work::Kernel { routine, reads: reads?, writes: writes?, workspace };
            launches.push(Launch { position, work });
        }
        for &id in program.states.iter().chain(&program.inputs).chain(&program.outputs) {
            match is_spilled(id) {
                false => _ = address(id)?,
                true => _ = in_file(id)?,
            }
        }
        let places = |ids: &[BufferId]| ids.iter().map(|&id| place(id)).collect();
        Ok(Executable {
            launches,
            copies: vec![Ticket::ENDED; copies.len()],
            positions: plan.order.len(),
            states: places(&program.states),
            inputs: places(&program.inputs),
            outputs: places(&program.outputs),
        })
    }

    fn slice(&self, place: Place) -> &[u8] {
        // It was inside the arena when it was loaded.
        self.arenas[place.home as usize].slice(place.offset, place.bytes).unwrap_or(&[])
    }

    fn slice_mut(&mut self, place: Place) -> &mut [u8] {
        self.arenas[place.home as usize].slice_mut(place.offset, place.bytes).unwrap_or(&mut [])
    }

    fn fill_inputs(&mut self, program: Handle, fill: FillInput<'_>) -> Result<()> {
        for index in 0..self.loaded.get(program)?.inputs.len() {
            let input = self.slice_mut(self.loaded.get(program)?.inputs[index]);
            fill(index, input)
                .map_err(|_| Error::new(ErrorKind::Input, format!("input {index} was not given")))?;
        }
        Ok(())
    }

    /// Runs the kernels of a program, and calls `done` with the position of each in the plan's order.
    fn run(&mut self, program: Handle, mut done: impl FnMut(usize)) -> Result<()> {
        let CpuMemory { device, loaded, spill, .. } = self;
        let Executable { launches, copies, .. } = loaded.get_mut(program)?;
        for Launch { position, work } in launches {
            match (work, &mut *spill) {
                (Work::Kernel { routine, reads, writes, workspace }, _) => {
                    let call = Call { reads, writes, workspace: *workspace, pool: &device.pool };
                    // SAFETY: the addresses are inside the arenas, which are borrowed mutably with `self` and so used by
                    // nobody else, and aligned, as the plan's alignment is; every operand lies in its buffer, buffers
                    // that live at once do not overlap, and reads come after their writes, as `CheckedProgram` vouches;
                    // no routine needs more workspace than the plan has for it, as was checked when it was loaded.
                    unsafe { routine.run(&call) };
                }
                (Work::Spill { copy, to_file, offset, address, bytes }, Some(spill)) => {
                    // SAFETY: the address is inside the arena, which outlives the copy, as the spill is dropped first; the
                    // buffer lives and is not written until the copy is waited for, as `CheckedProgram` vouches.
                    copies[*copy] = unsafe { spill.begin(*to_file, *offset, *address, *bytes) };
                }
                (Work::Wait { copy }, Some(spill)) => spill.wait(copies[*copy])?,
                (Work::Spill { .. } | Work::Wait { .. }, None) => {}
            }
            done(*position);
        }
        spill.as_ref().map_or(Ok(()), Spill::finish)
    }
}

impl DeviceMemory for CpuMemory {
    fn bytes(&self) -> ArenaBytes {
        let [device, host] = &self.arenas;
        let spilled = self.spill.as_ref().map_or(0, |spill| spill.file().bytes());
        ArenaBytes { device: device.bytes(), host: host.bytes() + spilled }
    }

    fn load(&mut self, program: &CheckedProgram) -> Result<Handle> {
        Ok(self.loaded.insert(self.bind(program)?))
    }

    fn unload(&mut self, program: Handle) {
        self.loaded.remove(program);
    }

    fn ahead(&self) -> usize {
        0
    }

    fn begin(&mut self, program: Handle, fill: FillInput<'_>) -> Result<()> {
        self.fill_inputs(program, fill)?;
        self.run(program, |_| {})
    }

    fn collect(&mut self, program: Handle, read: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        for (index, &output) in self.loaded.get(program)?.outputs.iter().enumerate() {
            read(index, self.slice(output));
        }
        Ok(())
    }

    fn time_kernels(&mut self, program: Handle, fill: FillInput<'_>) -> Result<Vec<f64>> {
        self.fill_inputs(program, fill)?;
        // Waiting for a copy within memory takes no time.
        let mut seconds = vec![0.0; self.loaded.get(program)?.positions];
        let mut last = Instant::now();
        self.run(program, |position| {
            let now = Instant::now();
            seconds[position] = (now - last).as_secs_f64();
            last = now;
        })?;
        Ok(seconds)
    }

    fn write_state(&mut self, program: Handle, index: usize, write: WritePiece<'_>) -> Result<()> {
        let state = self.loaded.get(program)?.states[index];
        match &self.spill {
            Some(spill) if state.home == Home::Host => {
                in_pieces(state.bytes as usize, |first, piece| {
                    write(first, piece);
                    Ok(spill.file().write(state.offset + first as u64, piece)?)
                })?;
            }
            // The arena is zeros where nothing was written, and what stays so is not touched.
            _ => write(0, self.slice_mut(state)),
        }
        Ok(())
    }

    fn read_state(&self, program: Handle, index: usize, read: &mut dyn FnMut(&[u8])) -> Result<()> {
        let state = self.loaded.get(program)?.states[index];
        match &self.spill {
            Some(spill) if state.home == Home::Host => {
                in_pieces(state.bytes as usize, |first, piece| {
                    spill.file().read(state.offset + first as u64, piece)?;
                    read(piece);
                    Ok(())
                })?;
            }
            _ => read(self.slice(state)),
        }
        Ok(())
    }

    fn fill(&mut self, value: u8) -> Result<()> {
        let [device, _] = &mut self.arenas;
        let bytes = device.bytes();
        if let Some(all) = device.slice_mut(0, bytes) {
            all.fill(value);
        }
        Ok(())
    }
}

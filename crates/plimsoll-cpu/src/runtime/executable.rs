//! A plan bound to one arena: running it allocates nothing.

use crate::runtime::prepare::prepare;
use crate::runtime::routine::{ALIGNMENT, Call, Routine};
use crate::{CpuDevice, Error, ErrorKind, Result};
use plimsoll_device::{ArenaBytes, CheckedProgram, DeviceMemory, FillInput, Handle, WritePiece};
use plimsoll_graph::program::{Body, BufferId, Home, Kernel};
use plimsoll_memory::Arena;
use std::time::Instant;

/// The memory that programs run in, and those that are loaded: the device's arena, and the host's for what is kept there.
///
/// On the CPU both are host memory; they are apart so that a budget means the same as on other devices.
pub(crate) struct CpuMemory {
    device: CpuDevice,
    /// Those of [`Home::Device`] and [`Home::Host`].
    arenas: [Arena; 2],
    /// Their addresses point into the arenas, which live as long and never move.
    loaded: Vec<Executable>,
}

/// A program, ready to run at fixed addresses.
struct Executable {
    launches: Vec<Launch>,
    /// How many kernels the plan has.
    positions: usize,
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

impl CpuMemory {
    /// Reserves arenas, of which the device's must not be over `limit`.
    pub(crate) fn reserve(device: &CpuDevice, bytes: ArenaBytes, limit: Option<u64>) -> Result<CpuMemory> {
        let arenas = [Arena::reserve(bytes.device, limit)?, Arena::reserve(bytes.host, None)?];
        Ok(CpuMemory { device: device.clone(), arenas, loaded: vec![] })
    }

    fn bind(&self, checked: &CheckedProgram) -> Result<Executable> {
        let (program, plan) = (checked.program(), checked.plan());
        let outside = |what: &str, bytes: u64| {
            let [device, host] = &self.arenas;
            let message = format!(
                "{what} of {bytes} bytes lies outside the arena of {} bytes (on the host {}); the plan needs {} ({})",
                device.bytes(),
                host.bytes(),
                plan.peak_bytes,
                plan.host_bytes
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
        // In this device's runs a copy has ended when it returns.
        let runs = |kernel: &Kernel| !matches!(kernel.body, Body::Wait);
        let routines: Vec<Option<Box<dyn Routine>>> =
            program.kernels.iter().map(|kernel| runs(kernel).then(|| prepare(kernel))).collect();
        let threads = self.device.threads();
        let needs = routines.iter().map(|r| r.as_ref().map_or(0, |r| r.workspace(threads) as u64));
        checked.check_device(ALIGNMENT as u64, needs)?;
        let mut launches = Vec::with_capacity(program.kernels.len());
        let mut routines = routines;
        for (position, &index) in plan.order.iter().enumerate() {
            let kernel = &program.kernels[index as usize];
            let Some(routine) = routines[index as usize].take() else { continue };
            let bytes = plan.workspace_bytes[index as usize];
            let workspace = self.arenas[Home::Device as usize]
                .address(plan.workspace_offsets[index as usize], bytes)
                .ok_or_else(|| outside("a workspace", bytes))?;
            let reads: Result<Box<[*const u8]>> =
                kernel.reads.iter().map(|o| address(o.buffer).map(|a| a.cast_const())).collect();
            let writes: Result<Box<[*mut u8]>> = kernel.writes.iter().map(|o| address(o.buffer)).collect();
            launches.push(Launch { position, routine, reads: reads?, writes: writes?, workspace });
        }
        for id in program.states.iter().chain(&program.inputs).chain(&program.outputs) {
            address(*id)?;
        }
        let places = |ids: &[BufferId]| ids.iter().map(|&id| place(id)).collect();
        Ok(Executable {
            launches,
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

    /// Runs the kernels of a program, and calls `done` with the position of each in the plan's order.
    fn run(&mut self, program: Handle, mut done: impl FnMut(usize)) {
        for launch in &self.loaded[program.0].launches {
            let call = Call {
                reads: &launch.reads,
                writes: &launch.writes,
                workspace: launch.workspace,
                pool: &self.device.pool,
            };
            // SAFETY: the addresses are inside the arenas, which are borrowed mutably with `self` and so used by nobody
            // else, and aligned, as the plan's alignment is; every operand lies in its buffer, buffers that live at once
            // do not overlap, and reads come after their writes, as `CheckedProgram` vouches; no routine needs more
            // workspace than the plan has for it, as was checked when it was loaded.
            unsafe { launch.routine.run(&call) };
            done(launch.position);
        }
    }
}

impl DeviceMemory for CpuMemory {
    fn bytes(&self) -> ArenaBytes {
        let [device, host] = &self.arenas;
        ArenaBytes { device: device.bytes(), host: host.bytes() }
    }

    fn load(&mut self, program: &CheckedProgram) -> Result<Handle> {
        self.loaded.push(self.bind(program)?);
        Ok(Handle(self.loaded.len() - 1))
    }

    fn ahead(&self) -> usize {
        0
    }

    fn begin(&mut self, program: Handle, fill: FillInput<'_>) -> Result<()> {
        for index in 0..self.loaded[program.0].inputs.len() {
            let input = self.slice_mut(self.loaded[program.0].inputs[index]);
            fill(index, input)
                .map_err(|_| Error::new(ErrorKind::Input, format!("input {index} was not given")))?;
        }
        self.run(program, |_| {});
        Ok(())
    }

    fn collect(&mut self, program: Handle, read: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        for (index, &output) in self.loaded[program.0].outputs.iter().enumerate() {
            read(index, self.slice(output));
        }
        Ok(())
    }

    fn time_kernels(&mut self, program: Handle) -> Result<Vec<f64>> {
        // Waiting for a copy takes no time.
        let mut seconds = vec![0.0; self.loaded[program.0].positions];
        let mut last = Instant::now();
        self.run(program, |position| {
            let now = Instant::now();
            seconds[position] = (now - last).as_secs_f64();
            last = now;
        });
        Ok(seconds)
    }

    fn write_state(&mut self, program: Handle, index: usize, write: WritePiece<'_>) -> Result<()> {
        // The arena is zeros where nothing was written, and what stays so is not touched.
        let state = self.loaded[program.0].states[index];
        write(0, self.slice_mut(state));
        Ok(())
    }

    fn read_state(&self, program: Handle, index: usize, read: &mut dyn FnMut(&[u8])) -> Result<()> {
        read(self.slice(self.loaded[program.0].states[index]));
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

//! The CPU: arenas of the process's own memory.

use super::{Fill, Handle, Machine};
use crate::Result;
use plimsoll_cpu::{CpuDevice, Executable, Memory};
use plimsoll_cuda::Books;
use plimsoll_graph::Program;
use plimsoll_plan::Plan;

pub(crate) struct CpuMachine {
    device: CpuDevice,
    limit: Option<u64>,
    memory: Memory,
    loaded: Vec<Executable>,
}

impl CpuMachine {
    /// Reserves arenas of so many bytes, of which the device's must not be over `limit`.
    pub(crate) fn new(device: CpuDevice, [arena, host]: [u64; 2], limit: Option<u64>) -> Result<CpuMachine> {
        Ok(CpuMachine { device, limit, memory: Memory::reserve(arena, host, limit)?, loaded: vec![] })
    }
}

impl Machine for CpuMachine {
    fn bytes(&self) -> [u64; 2] {
        [self.memory.device.bytes(), self.memory.host.bytes()]
    }

    fn grow(&mut self, bytes: [u64; 2], kept: [u64; 2]) -> Result<bool> {
        let [was, on_host] = self.bytes();
        let mut memory = Memory::reserve(bytes[0].max(was), bytes[1].max(on_host), self.limit)?;
        let Memory { device, host } = &self.memory;
        for ((old, new), kept) in
            [(device, &mut memory.device), (host, &mut memory.host)].into_iter().zip(kept)
        {
            if let (Some(old), Some(new)) = (old.slice(0, kept), new.slice_mut(0, kept)) {
                new.copy_from_slice(old);
            }
        }
        self.memory = memory;
        self.loaded.clear();
        Ok(false)
    }

    fn load(&mut self, program: &Program, plan: &Plan) -> Result<Handle> {
        self.loaded.push(self.device.load(program, plan, &self.memory)?);
        Ok(Handle(self.loaded.len() - 1))
    }

    fn ahead(&self) -> usize {
        0
    }

    fn begin(&mut self, step: Handle, fill: Fill<'_>) -> Result<()> {
        let executable = &self.loaded[step.0];
        for index in 0..executable.inputs() {
            fill(index, executable.input_mut(&mut self.memory, index))?;
        }
        executable.run(&mut self.memory);
        Ok(())
    }

    fn collect(&mut self, step: Handle, read: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let executable = &self.loaded[step.0];
        for index in 0..executable.outputs() {
            read(index, executable.output(&self.memory, index));
        }
        Ok(())
    }

    fn time_kernels(&mut self, step: Handle) -> Result<Vec<f64>> {
        Ok(self.loaded[step.0].time_kernels(&mut self.memory))
    }

    fn set_state(&mut self, step: Handle, index: usize, write: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        // The arena is zeros where nothing was written, and what stays so is not touched.
        write(self.loaded[step.0].state_mut(&mut self.memory, index));
        Ok(())
    }

    fn state(&self, step: Handle, index: usize) -> Result<Vec<u8>> {
        Ok(self.loaded[step.0].state(&self.memory, index).to_vec())
    }

    fn books(&self) -> Option<Books> {
        None
    }
}

//! A CUDA device: an arena of its memory, and runs that go on while the host does other things.

use super::{Fill, Handle, Machine};
use crate::Result;
use plimsoll_cuda::{Books, CudaDevice, Executable, Memory, UNDER_WAY};
use plimsoll_graph::Program;
use plimsoll_plan::Plan;

pub(crate) struct CudaMachine {
    device: CudaDevice,
    limit: Option<u64>,
    /// Dropped before what was loaded in it, as it waits for what still runs.
    memory: Memory,
    loaded: Vec<Executable>,
}

impl CudaMachine {
    /// Reserves arenas of so many bytes, of which the device's must not be over `limit`.
    pub(crate) fn new(
        device: CudaDevice,
        [arena, host]: [u64; 2],
        limit: Option<u64>,
    ) -> Result<CudaMachine> {
        let memory = device.reserve(arena, host, limit)?;
        Ok(CudaMachine { device, limit, memory, loaded: vec![] })
    }
}

impl Machine for CudaMachine {
    fn bytes(&self) -> [u64; 2] {
        [self.memory.device_bytes(), self.memory.host_bytes()]
    }

    fn grow(&mut self, [arena, host]: [u64; 2], kept: [u64; 2]) -> Result<bool> {
        let stays = self.memory.grow(arena, host, kept[1], self.limit)?;
        if !stays {
            self.loaded.clear();
        }
        Ok(stays)
    }

    fn load(&mut self, program: &Program, plan: &Plan) -> Result<Handle> {
        self.loaded.push(self.device.load(program, plan, &mut self.memory)?);
        Ok(Handle(self.loaded.len() - 1))
    }

    fn ahead(&self) -> usize {
        UNDER_WAY as usize - 1
    }

    fn begin(&mut self, step: Handle, fill: Fill<'_>) -> Result<()> {
        self.loaded[step.0].begin(&mut self.memory, fill)
    }

    fn collect(&mut self, step: Handle, read: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        Ok(self.loaded[step.0].collect(&mut self.memory, read)?)
    }

    fn time_kernels(&mut self, step: Handle) -> Result<Vec<f64>> {
        Ok(self.loaded[step.0].time_kernels(&mut self.memory)?)
    }

    fn set_state(&mut self, step: Handle, index: usize, write: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let mut state = vec![0; self.loaded[step.0].state_bytes(index)];
        write(&mut state);
        Ok(self.loaded[step.0].write_state(&mut self.memory, index, &state)?)
    }

    fn state(&self, step: Handle, index: usize) -> Result<Vec<u8>> {
        let mut state = vec![0; self.loaded[step.0].state_bytes(index)];
        self.loaded[step.0].read_state(&self.memory, index, &mut state)?;
        Ok(state)
    }

    fn books(&self) -> Option<Books> {
        self.device.books().ok()
    }
}

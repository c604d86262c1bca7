//! A CUDA device as every device is: what plans must know of it, and what runs need.

use crate::driver::device::CudaDevice;
use crate::driver::devices::devices;
use crate::error::{Error, ErrorKind};
use crate::routine::ALIGNMENT;
use crate::runtime::executable::Executable;
use crate::runtime::in_flight::UNDER_WAY;
use crate::runtime::memory::Memory;
use crate::selftest::selftest;
use plimsoll_device::{
    ArenaBytes, Books, CheckedProgram, Device, DeviceMemory, FillInput, Handle, LoadedPrograms,
    PlanningTraits, Result, SelfTest, WritePiece, in_pieces,
};
use plimsoll_graph::Program;
use plimsoll_graph::program::Kernel;
use plimsoll_memory::{Block, Pool};
use std::rc::Rc;

impl From<Error> for plimsoll_device::Error {
    fn from(error: Error) -> Self {
        use plimsoll_device::ErrorKind as Kind;
        let kind = match error.kind() {
            ErrorKind::NoDriver | ErrorKind::DriverTooOld | ErrorKind::NoDevice | ErrorKind::NotADevice => {
                Kind::Unavailable
            }
            ErrorKind::Unsupported | ErrorKind::NoLibrary => Kind::Unsupported,
            ErrorKind::OutOfMemory => Kind::OutOfMemory,
            ErrorKind::OverLimit => Kind::OverLimit,
            ErrorKind::Plan | ErrorKind::BadRange => Kind::InvalidPlan,
            ErrorKind::Input => Kind::Input,
            ErrorKind::Driver | ErrorKind::Library | ErrorKind::Compile => Kind::Failed,
        };
        plimsoll_device::Error::new(kind, error.to_string()).caused_by(error)
    }
}

impl Device for CudaDevice {
    fn name(&self) -> String {
        self.id().to_string()
    }

    fn model(&self) -> String {
        let found = devices().ok().and_then(|all| all.into_iter().find(|device| device.id == self.id()));
        found.map_or_else(|| self.id().to_string(), |device| device.name)
    }

    fn planning_traits(&self) -> PlanningTraits {
        PlanningTraits::of_gpu(ALIGNMENT)
    }

    fn workspaces(&self, program: &Program) -> Result<[Vec<u64>; 2]> {
        program.check_kernels()?;
        self.compile(program)?;
        let of = |kernels: &[Kernel]| -> Result<Vec<u64>> {
            kernels.iter().map(|kernel| Ok(self.workspace(kernel)?)).collect()
        };
        Ok([of(&program.kernels)?, of(&program.rematerializations)?])
    }

    fn books(&self) -> Result<Option<Books>> {
        Ok(Some(CudaDevice::books(self)?))
    }

    fn reserve(&self, bytes: ArenaBytes, limit: Option<u64>) -> Result<Box<dyn DeviceMemory>> {
        let memory = CudaDevice::reserve(self, bytes.device, bytes.host, limit)?;
        Ok(Box::new(CudaMemory { device: self.clone(), memory, loaded: LoadedPrograms::default() }))
    }

    fn pool(&self, limit: Option<u64>) -> Result<Pool> {
        Ok(CudaDevice::pool(self, limit)?)
    }

    fn run_once(&self, program: &Program, inputs: &[Rc<Block>], pool: &Pool) -> Result<Vec<Rc<Block>>> {
        Ok(CudaDevice::run_once(self, program, inputs, pool)?)
    }

    fn write_block(&self, block: &mut Block, bytes: &[u8]) -> Result<()> {
        Ok(CudaDevice::write_block(self, block, bytes)?)
    }

    fn read_block(&self, block: &Block, bytes: &mut [u8]) -> Result<()> {
        Ok(CudaDevice::read_block(self, block, bytes)?)
    }

    fn selftest(&self) -> Vec<SelfTest> {
        selftest(self)
    }
}

/// An arena of the device's memory, and runs that go on while the host does other things.
struct CudaMemory {
    device: CudaDevice,
    /// Dropped before what was loaded in it, as it waits for what still runs.
    memory: Memory,
    loaded: LoadedPrograms<Executable>,
}

impl DeviceMemory for CudaMemory {
    fn bytes(&self) -> ArenaBytes {
        ArenaBytes { device: self.memory.device_bytes(), host: self.memory.host_bytes() }
    }

    fn load(&mut self, program: &CheckedProgram) -> Result<Handle> {
        Ok(self.loaded.insert(self.device.load(program, &mut self.memory)?))
    }

    fn unload(&mut self, program: Handle) {
        self.loaded.remove(program);
    }

    fn ahead(&self) -> usize {
        UNDER_WAY as usize - 1
    }

    fn begin(&mut self, program: Handle, fill: FillInput<'_>) -> Result<()> {
        let given = |index: usize, bytes: &mut [u8]| {
            fill(index, bytes)
                .map_err(|_| Error::new(ErrorKind::Input, format!("input {index} was not given")))
        };
        Ok(self.loaded.get(program)?.begin(&mut self.memory, given)?)
    }

    fn collect(&mut self, program: Handle, read: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        Ok(self.loaded.get(program)?.collect(&mut self.memory, read)?)
    }

    fn time_kernels(&mut self, program: Handle, fill: FillInput<'_>) -> Result<Vec<f64>> {
        let given = |index: usize, bytes: &mut [u8]| {
            fill(index, bytes)
                .map_err(|_| Error::new(ErrorKind::Input, format!("input {index} was not given")))
        };
        Ok(self.loaded.get(program)?.time_kernels(&mut self.memory, given)?)
    }

    fn write_state(&mut self, program: Handle, index: usize, write: WritePiece<'_>) -> Result<()> {
        let program = self.loaded.get(program)?;
        in_pieces(program.state_bytes(index), |first, piece| {
            write(first, piece);
            Ok(program.write_state(&mut self.memory, index, first, piece)?)
        })
    }

    fn read_state(&self, program: Handle, index: usize, read: &mut dyn FnMut(&[u8])) -> Result<()> {
        let program = self.loaded.get(program)?;
        in_pieces(program.state_bytes(index), |first, piece| {
            program.read_state(&self.memory, index, first, piece)?;
            read(piece);
            Ok(())
        })
    }

    fn fill(&mut self, value: u8) -> Result<()> {
        Ok(self.memory.fill(value)?)
    }
}

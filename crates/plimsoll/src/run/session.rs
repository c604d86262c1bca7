//! A run in memory: one arena, its programs bound to it, and its states.
//!
//! Programs for other batch sizes, lengths or purposes are planned apart and share the arena: what survives a step lies
//! at its bottom, at the same offsets in every plan.

use super::compile::{Compiled, Signature};
use super::declared::Key;
use super::fit::{Choice, Fit};
use crate::device::target::Target;
use crate::{Array, DType, Error, ErrorKind, Result};
use plimsoll_cpu::CpuDevice;
use plimsoll_device::{ArenaBytes, DeviceMemory, Handle, InputRefused};
use plimsoll_graph::program::Kernel;
use plimsoll_graph::step::{Initial, State};
use plimsoll_graph::{StateTable, ValueType};
use plimsoll_memory::return_freed_memory;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

/// Programs of one run in one arena.
pub(crate) struct Session {
    memory: Box<dyn DeviceMemory>,
    loaded: HashMap<Key, Loaded>,
    /// The programs whose runs were begun and not collected, oldest first.
    in_flight: VecDeque<Handle>,
    table: Rc<StateTable>,
    /// For each state, its buffers by the numbers that devices know them by, each with the byte of the state it begins at.
    buffers: Vec<Vec<(usize, usize)>>,
    /// Any program, to reach states by.
    any: Handle,
    /// How often memory has been reserved.
    reservations: u64,
    /// Programs that came up later, the one that was used last at the end.
    later: Vec<Later>,
}

/// A program that came up later.
struct Later {
    key: Key,
    kernels: u64,
}

/// The most kernels of programs that come up later that are kept: those used longest ago are let go of, and planned again
/// if they come up again. On the host they take some 64 MiB, and on a GPU with their places in graphs four times as much.
pub(crate) const LATER_KERNELS: u64 = 1 << 15;

/// A kernel that was timed.
pub(crate) struct TimedKernel<'a> {
    pub(crate) kernel: &'a Kernel,
    /// What the planner sees of it.
    pub(crate) planned: &'a plimsoll_ir::Kernel,
    pub(crate) seconds: f64,
}

/// A program, bound to the arena.
struct Loaded {
    handle: Handle,
    signature: Rc<Signature>,
    /// Its kernels and plan, of a program that the run was compiled with: of those that come later, nothing is kept that
    /// running does not need.
    compiled: Option<Rc<Compiled>>,
}

impl Session {
    /// Reserves memory for a run, loads its programs, and gives states their first values, drawn on the host's threads.
    pub(crate) fn new(fit: &Fit, target: &Target, limit: Option<u64>, seed: u64) -> Result<Session> {
        let bytes = ArenaBytes { device: fit.peak_bytes, host: fit.host_bytes };
        return_freed_memory();
        let mut session = Session {
            memory: target.device.reserve(bytes, limit)?,
            loaded: HashMap::new(),
            in_flight: VecDeque::new(),
            table: Rc::clone(&fit.choice.table),
            buffers: buffers(&fit.choice),
            any: Handle(0),
            reservations: 1,
            later: vec![],
        };
        for (key, compiled) in &fit.programs {
            let handle = session.memory.load(&compiled.program)?;
            let (signature, compiled) = (Rc::clone(&compiled.signature), Some(Rc::clone(compiled)));
            session.loaded.insert(key.clone(), Loaded { handle, signature, compiled });
        }
        session.any = session.loaded[&fit.programs[0].0].handle;
        session.initialize(&target.host, seed)?;
        Ok(session)
    }

    /// What the program of that key takes and gives, if it is loaded.
    pub(crate) fn signature(&self, key: &Key) -> Option<&Rc<Signature>> {
        self.loaded.get(key).map(|loaded| &loaded.signature)
    }

    /// Binds a program that came up later to the arena. No run may be in flight.
    pub(crate) fn load(&mut self, key: Key, compiled: Compiled) -> Result<()> {
        let kernels = compiled.program.plan().order.len() as u64;
        while !self.later.is_empty()
            && self.later.iter().map(|of| of.kernels).sum::<u64>() + kernels > LATER_KERNELS
        {
            if let Some(Loaded { handle, .. }) = self.loaded.remove(&self.later.remove(0).key) {
                self.memory.unload(handle);
            }
        }
        let handle = self.memory.load(&compiled.program)?;
        self.loaded.insert(key.clone(), Loaded { handle, signature: compiled.signature, compiled: None });
        self.later.push(Later { key, kernels });
        Ok(())
    }

    /// Notes that a program is used, if it is one that came up later.
    fn touch(&mut self, key: &Key) {
        if let Some(position) = self.later.iter().rposition(|later| later.key == *key) {
            self.later[position..].rotate_left(1);
        }
    }

    /// Begins a run of a program: `fill` writes each input's bytes. Runs are collected in the order in which they begin.
    pub(crate) fn begin(
        &mut self,
        key: &Key,
        fill: &mut dyn FnMut(usize, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let Some(&Loaded { handle, .. }) = self.loaded.get(key) else {
            return Err(Error::new(ErrorKind::Internal, "a program that was not loaded, which is a bug"));
        };
        let mut refused = None;
        let begun = self.memory.begin(handle, &mut |index, bytes| {
            fill(index, bytes).map_err(|error| {
                refused = Some(error);
                InputRefused
            })
        });
        if let Some(error) = refused {
            return Err(error);
        }
        begun?;
        self.touch(key);
        self.in_flight.push_back(handle);
        Ok(())
    }

    /// How many runs are in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// How many runs may be in flight when the next begins.
    pub(crate) fn ahead(&self) -> usize {
        self.memory.ahead()
    }

    /// Waits for the oldest run in flight, if there is one; `read` sees each output's bytes.
    pub(crate) fn collect(&mut self, read: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let Some(handle) = self.in_flight.pop_front() else { return Ok(()) };
        Ok(self.memory.collect(handle, read)?)
    }

    /// Runs a program on what `fill` writes for each input: its kernels in the plan's order, with the seconds of each. No
    /// run may be in flight.
    pub(crate) fn time_kernels(
        &mut self,
        key: &Key,
        fill: &mut dyn FnMut(usize, &mut [u8]) -> Result<()>,
    ) -> Result<Vec<TimedKernel<'_>>> {
        let Some(Loaded { handle, compiled: Some(compiled), .. }) = self.loaded.get(key) else {
            return Err(Error::new(ErrorKind::Internal, "a program that was not loaded, which is a bug"));
        };
        let mut refused = None;
        let timed = self.memory.time_kernels(*handle, &mut |index, bytes| {
            fill(index, bytes).map_err(|error| {
                refused = Some(error);
                InputRefused
            })
        });
        if let Some(error) = refused {
            return Err(error);
        }
        let seconds = timed?;
        let (program, plan) = (compiled.program.program(), compiled.program.plan());
        let timed = |(&index, seconds): (&u32, f64)| TimedKernel {
            kernel: &program.kernels[index as usize],
            planned: &compiled.work.kernels[index as usize],
            seconds,
        };
        Ok(plan.order.iter().zip(seconds).map(timed).collect())
    }

    /// The bytes of the device's arena.
    pub(crate) fn arena_bytes(&self) -> u64 {
        self.memory.bytes().device
    }

    /// How often memory has been reserved.
    pub(crate) fn reservations(&self) -> u64 {
        self.reservations
    }

    /// A state. No run may be in flight.
    pub(crate) fn state(&self, index: usize) -> Result<Array> {
        let Some((_, ty)) = self.table.iter().nth(index) else {
            return Err(Error::new(ErrorKind::Name, "there is no such state"));
        };
        let mut bytes = Vec::with_capacity(ty.shape.elements() * ty.dtype.size());
        for &(buffer, _) in &self.buffers[index] {
            self.memory.read_state(self.any, buffer, &mut |piece| bytes.extend_from_slice(piece))?;
        }
        Ok(Array::of_bytes(&ty.shape, ty.dtype, bytes))
    }

    /// Shows the bytes of a state, one piece after another, until `read` fails. No run may be in flight.
    pub(crate) fn show_state(&self, index: usize, read: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut shown = Ok(());
        for &(buffer, _) in &self.buffers[index] {
            self.memory.read_state(self.any, buffer, &mut |piece| {
                if shown.is_ok() {
                    shown = read(piece);
                }
            })?;
        }
        shown
    }

    /// Overwrites a state: `write` is given one piece after another, and the byte of the state that it begins at, until it
    /// fails. No run may be in flight.
    pub(crate) fn write_state(
        &mut self,
        index: usize,
        write: &mut dyn FnMut(usize, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let mut written = Ok(());
        for &(buffer, begins) in &self.buffers[index] {
            self.memory.write_state(self.any, buffer, &mut |first, piece| {
                if written.is_ok() {
                    written = write(begins + first, piece);
                }
            })?;
        }
        written
    }

    fn initialize(&mut self, host: &CpuDevice, seed: u64) -> Result<()> {
        for ((state, ty), buffers) in self.table.iter().zip(&self.buffers) {
            for &(buffer, begins) in buffers {
                let mut write = |first: usize, piece: &mut [u8]| match (ty.dtype, state.initial) {
                    (DType::I64, Initial::Seed) => piece[..8].copy_from_slice(&seed.to_ne_bytes()),
                    (dtype, initial) => {
                        draw(host, initial, seed, (&state.name, dtype), begins + first, piece);
                    }
                };
                self.memory.write_state(self.any, buffer, &mut write)?;
            }
        }
        Ok(())
    }
}

/// For each state of a run, its buffers by the numbers that devices know them by, each with the byte it begins at.
fn buffers(choice: &Choice) -> Vec<Vec<(usize, usize)>> {
    let mut next = 0..;
    let of_state = |(state, (_, ty)): (usize, &(State, ValueType))| {
        let firsts = choice.cut.firsts(state, &ty.shape).into_iter().map(|first| first * ty.dtype.size());
        firsts.zip(next.by_ref()).map(|(first, buffer)| (buffer, first)).collect()
    };
    choice.table.iter().enumerate().map(of_state).collect()
}

/// Gives a piece of a state of that name and type, from its byte `first` on and of zeros, its first values: functions of
/// the seed, the state's name and the position alone, so that adding a layer leaves the others' first weights as they were.
/// What is drawn is `f32`; `f64` states begin with a constant, those of other types at zero.
pub(crate) fn draw(
    host: &CpuDevice,
    initial: Initial,
    seed: u64,
    (name, dtype): (&str, DType),
    first: usize,
    zeros: &mut [u8],
) {
    match (dtype, initial) {
        (DType::F32, initial) => host.initialize(initial, seed, stream(name), first as u64 / 4, zeros),
        (DType::F64, Initial::Constant(value)) => {
            zeros.as_chunks_mut().0.iter_mut().for_each(|number| *number = value.to_ne_bytes());
        }
        _ => {}
    }
}

/// A number for a name (FNV-1a), with the upper half of the 32 bits a stream has set, where no op's are.
fn stream(name: &str) -> u64 {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
    u64::from(hash | 1 << 31)
}

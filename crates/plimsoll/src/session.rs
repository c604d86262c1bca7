//! A model in an arena: its compiled steps for every shape that is needed, and its states.
//!
//! Steps for other batch sizes, sequence lengths or for evaluation are planned apart and share one arena:
//! what survives a step lies at its bottom, at the same offsets in every plan.

use crate::compile::Compiled;
use crate::{Error, ErrorKind, Result};
use plimsoll_cpu::{CpuDevice, Executable, Memory};
use plimsoll_graph::program::{Home, Keep, Role};
use plimsoll_graph::step::{Initial, State};
use plimsoll_graph::{DType, ValueType};
use plimsoll_plan::Plan;
use std::collections::HashMap;
use std::hash::Hash;

/// Compiled steps of one model, by key, in one arena.
pub(crate) struct Session<K> {
    device: CpuDevice,
    limit: Option<u64>,
    memory: Memory,
    reservations: u64,
    steps: HashMap<K, Loaded>,
    /// The states, as the first step declares them; all steps agree.
    states: Vec<State>,
    types: Vec<ValueType>,
}

/// A compiled step, bound to the arena.
pub(crate) struct Loaded {
    pub(crate) compiled: Compiled,
    pub(crate) executable: Executable,
}

impl<K: Eq + Hash + Clone> Session<K> {
    /// Reserves an arena for the largest of the steps, loads them all, and gives states their first values.
    pub(crate) fn new(
        device: CpuDevice,
        steps: Vec<(K, Compiled)>,
        limit: Option<u64>,
        seed: u64,
    ) -> Result<Session<K>> {
        let Some((_, first)) = steps.first() else {
            return Err(Error::new(ErrorKind::Argument, "a session needs at least one step"));
        };
        let states = first.step.states.clone();
        let types = states.iter().map(|s| first.step.graph.ty(s.value)).collect();
        let most = |bytes: fn(&Plan) -> u64| steps.iter().map(|(_, c)| bytes(&c.plan)).max().unwrap_or(0);
        let memory = Memory::reserve(most(|p| p.peak_bytes), most(|p| p.host_bytes), limit)?;
        let mut session =
            Session { device, limit, memory, reservations: 1, steps: HashMap::new(), states, types };
        for (key, compiled) in steps {
            session.load(key, compiled)?;
        }
        session.initialize(seed);
        Ok(session)
    }

    /// The device it runs on.
    pub(crate) fn device(&self) -> &CpuDevice {
        &self.device
    }

    /// Whether a step of that key is loaded.
    pub(crate) fn has(&self, key: &K) -> bool {
        self.steps.contains_key(key)
    }

    /// Adds a step. If it needs more than the arena has, the arena is replaced by a larger one.
    pub(crate) fn add(&mut self, key: K, compiled: Compiled) -> Result<()> {
        let Plan { peak_bytes, host_bytes, .. } = compiled.plan;
        if peak_bytes > self.memory.device.bytes() || host_bytes > self.memory.host.bytes() {
            self.grow(peak_bytes, host_bytes)?;
        }
        self.load(key, compiled)
    }

    fn load(&mut self, key: K, compiled: Compiled) -> Result<()> {
        self.check_states(&compiled)?;
        let executable = self.device.load(&compiled.program, &compiled.plan, &self.memory)?;
        self.steps.insert(key, Loaded { compiled, executable });
        Ok(())
    }

    /// All steps must find the same states at the same offsets.
    fn check_states(&self, compiled: &Compiled) -> Result<()> {
        let same = compiled.step.states.len() == self.states.len()
            && compiled.step.states.iter().zip(&self.states).all(|(a, b)| a.name == b.name)
            && compiled
                .step
                .states
                .iter()
                .zip(&self.types)
                .all(|(s, t)| compiled.step.graph.ty(s.value) == *t);
        if same {
            return Ok(());
        }
        let message = "the model declares other parameters at another batch size, length or in evaluation; \
                       parameters may not depend on the batch";
        Err(Error::new(ErrorKind::Shape, message))
    }

    fn grow(&mut self, device: u64, host: u64) -> Result<()> {
        let Memory { device: old_device, host: old_host } = &self.memory;
        let (device, host) = (device.max(old_device.bytes()), host.max(old_host.bytes()));
        let mut memory = Memory::reserve(device, host, self.limit)?;
        self.reservations += 1;
        for (home, old, new) in
            [(Home::Device, old_device, &mut memory.device), (Home::Host, old_host, &mut memory.host)]
        {
            let kept = self.state_bytes(home);
            if let (Some(old), Some(new)) = (old.slice(0, kept), new.slice_mut(0, kept)) {
                new.copy_from_slice(old);
            }
        }
        self.memory = memory;
        let loaded: Vec<(K, Loaded)> = self.steps.drain().collect();
        loaded.into_iter().try_for_each(|(key, loaded)| self.load(key, loaded.compiled))
    }

    /// The bytes at the bottom of an arena that survive a step.
    fn state_bytes(&self, home: Home) -> u64 {
        let Some(loaded) = self.steps.values().next() else { return 0 };
        let Compiled { program, plan, .. } = &loaded.compiled;
        let buffers = program.buffers.iter().zip(&plan.offsets);
        let kept = buffers.filter(|(b, _)| b.keep == Keep::Always && b.home == home);
        kept.map(|(b, offset)| offset + b.bytes() as u64).max().unwrap_or(0)
    }

    /// Runs one step: `fill` writes each input's bytes, `read` sees each output's.
    pub(crate) fn run(
        &mut self,
        key: &K,
        mut fill: impl FnMut(usize, &mut [u8]) -> Result<()>,
        mut read: impl FnMut(usize, &[u8]),
    ) -> Result<()> {
        let Some(Loaded { executable, compiled }) = self.steps.get(key) else {
            return Err(Error::new(ErrorKind::Argument, "a step that was not loaded"));
        };
        for index in 0..compiled.step.inputs.len() {
            fill(index, executable.input_mut(&mut self.memory, index))?;
        }
        executable.run(&mut self.memory);
        for index in 0..compiled.step.outputs.len() {
            read(index, executable.output(&self.memory, index));
        }
        Ok(())
    }

    /// The bytes of the arena.
    pub(crate) fn arena_bytes(&self) -> u64 {
        self.memory.device.bytes()
    }

    /// How often memory has been reserved.
    pub(crate) fn reservations(&self) -> u64 {
        self.reservations
    }

    /// The states' names, types and bytes, in their order.
    pub(crate) fn states(&self) -> impl Iterator<Item = (&State, DType, Vec<usize>, &[u8])> {
        let loaded = self.steps.values().next();
        self.states.iter().zip(&self.types).enumerate().filter_map(move |(index, (state, ty))| {
            loaded.map(|l| (state, ty.dtype, ty.shape.to_vec(), l.executable.state(&self.memory, index)))
        })
    }

    /// Overwrites the state of that name.
    pub(crate) fn set_state(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let index = self.states.iter().position(|s| &*s.name == name);
        let (Some(index), Some(loaded)) = (index, self.steps.values().next()) else {
            let known: Vec<&str> = self.parameter_names().take(8).collect();
            let message = format!("the model has no parameter `{name}`; it has {}, …", known.join(", "));
            return Err(Error::new(ErrorKind::Name, message));
        };
        let target = loaded.executable.state_mut(&mut self.memory, index);
        if target.len() != bytes.len() {
            let message = format!("parameter `{name}` has {} bytes, was given {}", target.len(), bytes.len());
            return Err(Error::new(ErrorKind::Shape, message));
        }
        target.copy_from_slice(bytes);
        Ok(())
    }

    /// The names of parameters and statistics.
    pub(crate) fn parameter_names(&self) -> impl Iterator<Item = &str> {
        self.states.iter().filter(|s| s.role == Role::Parameter).map(|s| &*s.name)
    }

    fn initialize(&mut self, seed: u64) {
        let Some(loaded) = self.steps.values().next() else { return };
        for (index, state) in self.states.iter().enumerate() {
            let bytes = loaded.executable.state_mut(&mut self.memory, index);
            match (self.types[index].dtype, state.initial) {
                (DType::I64, Initial::Seed) => {
                    bytes[..8].copy_from_slice(&seed.to_ne_bytes());
                    bytes[8..].fill(0);
                }
                (DType::F32, initial) => draw(&self.device, initial, seed, &state.name, bytes),
                // Parameters and slots are f32; other states begin at zero, as the arena does.
                _ => {}
            }
        }
    }
}

/// Gives an `f32` state of zeros its first values, functions of the seed, the state's name and the position alone, so
/// that adding a layer leaves the others' first weights as they were.
pub(crate) fn draw(device: &CpuDevice, initial: Initial, seed: u64, name: &str, zeros: &mut [u8]) {
    device.initialize(initial, seed, stream(name), zeros);
}

/// A number for a name (FNV-1a), with the upper half of the 32 bits a stream has set, where no op's are.
fn stream(name: &str) -> u64 {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
    u64::from(hash | 1 << 31)
}

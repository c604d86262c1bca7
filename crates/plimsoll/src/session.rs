//! A model in an arena: its compiled steps for every shape that is needed, and its states.
//!
//! Steps for other batch sizes, sequence lengths or for evaluation are planned apart and share one arena:
//! what survives a step lies at its bottom, at the same offsets in every plan.

use crate::compile::Compiled;
use crate::machine::{Fill, Handle, Machine};
use crate::{Error, ErrorKind, Result};
use plimsoll_cpu::CpuDevice;
use plimsoll_cuda::Books;
use plimsoll_graph::program::{Home, Keep, Kernel, Role};
use plimsoll_graph::step::{Initial, State};
use plimsoll_graph::{DType, Program, ValueType};
use plimsoll_plan::Plan;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Compiled steps of one model, by key, in one arena.
pub(crate) struct Session<K> {
    machine: Box<dyn Machine>,
    reservations: u64,
    steps: HashMap<K, Loaded>,
    /// The steps whose runs were begun and not collected, oldest first.
    under_way: VecDeque<Handle>,
    /// The states, as the first step declares them; all steps agree.
    states: Vec<State>,
    types: Vec<ValueType>,
}

/// A step, bound to the arena. Of what was compiled it keeps what loading it again would take: there may be hundreds.
struct Loaded {
    program: Program,
    plan: Plan,
    handle: Handle,
}

impl<K: Eq + Hash + Clone> Session<K> {
    /// Reserves memory for the largest of the steps by `machine`, which is given the bytes on the device and on the
    /// host, loads them all, and gives states their first values, drawn on `host`.
    pub(crate) fn new(
        machine: impl FnOnce([u64; 2]) -> Result<Box<dyn Machine>>,
        steps: Vec<(K, Compiled)>,
        host: &CpuDevice,
        seed: u64,
    ) -> Result<Session<K>> {
        let Some((_, first)) = steps.first() else {
            return Err(Error::new(ErrorKind::Argument, "a session needs at least one step"));
        };
        let states = first.step.states.clone();
        let types = states.iter().map(|s| first.step.graph.ty(s.value)).collect();
        let most = |bytes: fn(&Plan) -> u64| steps.iter().map(|(_, c)| bytes(&c.plan)).max().unwrap_or(0);
        let machine = machine([most(|p| p.peak_bytes), most(|p| p.host_bytes)])?;
        let mut session = Session {
            machine,
            reservations: 1,
            steps: HashMap::new(),
            under_way: VecDeque::new(),
            states,
            types,
        };
        for (key, compiled) in steps {
            session.load(key, compiled)?;
        }
        session.initialize(host, seed)?;
        Ok(session)
    }

    /// Whether a step of that key is loaded.
    pub(crate) fn has(&self, key: &K) -> bool {
        self.steps.contains_key(key)
    }

    /// Adds a step. If it needs more than the arena has, the arena grows. No run may be under way.
    pub(crate) fn add(&mut self, key: K, compiled: Compiled) -> Result<()> {
        let needed = [compiled.plan.peak_bytes, compiled.plan.host_bytes];
        let there = self.machine.bytes();
        if needed[0] > there[0] || needed[1] > there[1] {
            self.reservations += 1;
            let kept = [self.state_bytes(Home::Device), self.state_bytes(Home::Host)];
            if !self.machine.grow(needed, kept)? {
                for loaded in self.steps.values_mut() {
                    loaded.handle = self.machine.load(&loaded.program, &loaded.plan)?;
                }
            }
        }
        self.load(key, compiled)
    }

    fn load(&mut self, key: K, compiled: Compiled) -> Result<()> {
        self.check_states(&compiled)?;
        let Compiled { mut program, plan, .. } = compiled;
        // Those that the plan uses are among its kernels.
        program.rematerializations = vec![];
        program.kernels.shrink_to_fit();
        program.buffers.shrink_to_fit();
        let handle = self.machine.load(&program, &plan)?;
        self.steps.insert(key, Loaded { program, plan, handle });
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

    /// The bytes at the bottom of an arena that survive a step.
    fn state_bytes(&self, home: Home) -> u64 {
        let Some(loaded) = self.steps.values().next() else { return 0 };
        let Loaded { program, plan, .. } = loaded;
        let buffers = program.buffers.iter().zip(&plan.offsets);
        let kept = buffers.filter(|(b, _)| b.keep == Keep::Always && b.home == home);
        kept.map(|(b, offset)| offset + b.bytes() as u64).max().unwrap_or(0)
    }

    /// Begins a run of a step: `fill` writes each input's bytes. Runs are collected in the order in which they begin.
    pub(crate) fn begin(&mut self, key: &K, fill: Fill<'_>) -> Result<()> {
        let Some(&Loaded { handle, .. }) = self.steps.get(key) else {
            return Err(Error::new(ErrorKind::Argument, "a step that was not loaded"));
        };
        self.machine.begin(handle, fill)?;
        self.under_way.push_back(handle);
        Ok(())
    }

    /// How many runs are under way.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// How many runs may be under way when the next begins.
    pub(crate) fn ahead(&self) -> usize {
        self.machine.ahead()
    }

    /// Waits for the oldest run under way, if there is one; `read` sees each output's bytes.
    pub(crate) fn collect(&mut self, read: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let Some(handle) = self.under_way.pop_front() else { return Ok(()) };
        self.machine.collect(handle, read)
    }

    /// Runs a step once more, on the inputs that are there: its kernels in the plan's order, with the seconds of each. No
    /// run may be under way.
    pub(crate) fn time_kernels(&mut self, key: &K) -> Result<Vec<(&Kernel, f64)>> {
        let Some(Loaded { program, plan, handle }) = self.steps.get(key) else {
            return Err(Error::new(ErrorKind::Argument, "a step that was not loaded"));
        };
        let seconds = self.machine.time_kernels(*handle)?;
        let kernels = plan.order.iter().map(|&index| &program.kernels[index as usize]);
        Ok(kernels.zip(seconds).collect())
    }

    /// The bytes of the arena.
    pub(crate) fn arena_bytes(&self) -> u64 {
        self.machine.bytes()[0]
    }

    /// What the device's bytes are taken by, as its driver counts, where there is one.
    pub(crate) fn books(&self) -> Option<Books> {
        self.machine.books()
    }

    /// How often memory has been reserved.
    pub(crate) fn reservations(&self) -> u64 {
        self.reservations
    }

    /// The parameters and statistics, with their types and bytes. No run may be under way.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = Result<(&State, &ValueType, Vec<u8>)>> {
        let handle = self.steps.values().next().map(|loaded| loaded.handle);
        let states = self.states.iter().zip(&self.types).enumerate();
        states.filter(|(_, (state, _))| state.role == Role::Parameter).filter_map(
            move |(index, (state, ty))| {
                let bytes = self.machine.state(handle?, index);
                Some(bytes.map(|bytes| (state, ty, bytes)))
            },
        )
    }

    /// The bytes of the state of that name, if there is one. No run may be under way.
    pub(crate) fn state(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let index = self.states.iter().position(|state| &*state.name == name);
        let (Some(index), Some(loaded)) = (index, self.steps.values().next()) else { return Ok(None) };
        self.machine.state(loaded.handle, index).map(Some)
    }

    /// Overwrites the state of that name.
    pub(crate) fn set_state(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let index = self.states.iter().position(|s| &*s.name == name);
        let (Some(index), Some(loaded)) = (index, self.steps.values().next()) else {
            let known: Vec<&str> = self.parameter_names().take(8).collect();
            let message = format!("the model has no parameter `{name}`; it has {}, …", known.join(", "));
            return Err(Error::new(ErrorKind::Name, message));
        };
        let room = self.types[index].bytes();
        if room != bytes.len() {
            let message = format!("parameter `{name}` has {room} bytes, was given {}", bytes.len());
            return Err(Error::new(ErrorKind::Shape, message));
        }
        self.machine.set_state(loaded.handle, index, &mut |state| state.copy_from_slice(bytes))
    }

    /// The names of parameters and statistics.
    pub(crate) fn parameter_names(&self) -> impl Iterator<Item = &str> {
        self.states.iter().filter(|s| s.role == Role::Parameter).map(|s| &*s.name)
    }

    fn initialize(&mut self, host: &CpuDevice, seed: u64) -> Result<()> {
        let Some(&Loaded { handle, .. }) = self.steps.values().next() else { return Ok(()) };
        for (index, (state, ty)) in self.states.iter().zip(&self.types).enumerate() {
            let mut write = |bytes: &mut [u8]| match (ty.dtype, state.initial) {
                (DType::I64, Initial::Seed) => bytes[..8].copy_from_slice(&seed.to_ne_bytes()),
                (DType::F32, initial) => draw(host, initial, seed, &state.name, bytes),
                // Parameters and slots are f32; other states begin at zero.
                _ => {}
            };
            self.machine.set_state(handle, index, &mut write)?;
        }
        Ok(())
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

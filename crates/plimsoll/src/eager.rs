//! Eager mode: the same ops, run at once, one by one.
//!
//! It is for looking around and for what cannot be traced. An op is built as a small graph, lowered and run
//! by the very kernels that compiled steps use, on memory from a pool; so the same model function gives the
//! same numbers, and what differs is only when they are computed and how long they are kept. A tensor's memory is
//! freed when the last handle to it is dropped.

use crate::memory_trace::{MEMORY_TRACE, memory_trace_bytes};
use crate::save::Files;
use crate::session::draw;
use crate::tape::{GradientTape, Record};
use crate::{Context, DType, Error, ErrorKind, Optimizer, Precision, Result, Shape, Tensor};
use plimsoll_cpu::CpuDevice;
use plimsoll_graph::program::{Buffer, Role};
use plimsoll_graph::step::{Initial, Named};
use plimsoll_graph::{Graph, Step, ValueId, lower};
use plimsoll_memory::{Block, Category, OwnerStatistics, Pool, PoolStatistics, TraceFile};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

/// A place where tensors are real: a device, a pool of memory, and the parameters that models have asked for.
///
/// ```
/// use plimsoll::{Eager, Result};
/// let eager = Eager::new()?;
/// let x = eager.tensor(&[2, 2], &[1.0, 2.0, 3.0, 4.0])?;
/// let mut tape = eager.tape();
/// let loss = x.square()?.sum_all()?;
/// assert_eq!(loss.to_vec()?, [30.0]);
/// let gradients = tape.gradient(&loss, &[&x])?;
/// assert_eq!(gradients[0].to_vec()?, [2.0, 4.0, 6.0, 8.0]);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Clone)]
pub struct Eager {
    pub(crate) home: Rc<Home>,
}

/// What all tensors of one eager mode share.
pub(crate) struct Home {
    device: CpuDevice,
    pool: Pool,
    seed: u64,
    /// Training steps done; random numbers are drawn anew in each.
    step: Cell<u64>,
    names: Cell<u64>,
    pub(crate) scope: RefCell<String>,
    pub(crate) variables: RefCell<BTreeMap<String, Variable>>,
    slots: RefCell<BTreeMap<String, Tensor>>,
    pub(crate) tapes: RefCell<Vec<Rc<RefCell<Record>>>>,
}

/// A parameter or statistic that a model has asked for.
#[derive(Clone)]
pub(crate) struct Variable {
    pub(crate) value: Tensor,
    pub(crate) trainable: bool,
}

/// The memory of an eager tensor.
#[derive(Clone)]
pub(crate) struct Real {
    pub(crate) home: Rc<Home>,
    pub(crate) block: Rc<Block>,
    /// Tells tensors apart, for tapes.
    pub(crate) name: u64,
}

impl Eager {
    /// Eager mode on all threads, with seed 0 and without a limit on memory.
    ///
    /// # Errors
    /// If the device cannot be had.
    pub fn new() -> Result<Eager> {
        Ok(Eager::with(CpuDevice::new(None)?, 0, None))
    }

    /// Eager mode on a device, with the seed that first weights and random numbers are drawn from, and the most
    /// bytes that tensors may take together.
    pub fn with(device: CpuDevice, seed: u64, limit: Option<u64>) -> Eager {
        Eager::on(device, seed, Pool::new(limit))
    }

    /// Eager mode on a device, with tensors in memory from a pool, which must be the host's: a part of a
    /// [`plimsoll_memory::PhysicalDevice`], perhaps.
    pub fn on(device: CpuDevice, seed: u64, pool: Pool) -> Eager {
        let home = Home {
            device,
            pool,
            seed,
            step: Cell::new(0),
            names: Cell::new(0),
            scope: RefCell::default(),
            variables: RefCell::default(),
            slots: RefCell::default(),
            tapes: RefCell::default(),
        };
        Eager { home: Rc::new(home) }
    }

    /// A tensor of these numbers.
    ///
    /// # Errors
    /// If their count is not the shape's, or memory runs out.
    pub fn tensor(&self, shape: &[usize], values: &[f32]) -> Result<Tensor> {
        self.of_bytes(shape, DType::F32, values.iter().flat_map(|v| v.to_ne_bytes()).collect())
    }

    /// A tensor of these integers.
    ///
    /// # Errors
    /// If their count is not the shape's, or memory runs out.
    pub fn integers(&self, shape: &[usize], values: &[i32]) -> Result<Tensor> {
        self.of_bytes(shape, DType::I32, values.iter().flat_map(|v| v.to_ne_bytes()).collect())
    }

    fn of_bytes(&self, shape: &[usize], dtype: DType, bytes: Vec<u8>) -> Result<Tensor> {
        let shape = Shape::new(shape)?;
        if bytes.len() != shape.elements() * dtype.size() {
            let given = bytes.len() / dtype.size();
            let message = format!("{dtype}{shape} has {} elements, was given {given}", shape.elements());
            return Err(Error::new(ErrorKind::Shape, message));
        }
        self.home.real(shape, dtype, &bytes, Category::Inputs, "")
    }

    /// A context to run a model function in, for training or not. Parameters are made on first use and kept
    /// for later contexts.
    pub fn context(&self, training: bool) -> Context {
        Context::eager(self, training, Precision::F32)
    }

    /// A tape that records from here on and can be asked for gradients once.
    pub fn tape(&self) -> GradientTape {
        GradientTape::new(self, false)
    }

    /// A tape that can be asked for gradients again and again, and keeps every tensor it saw until it is dropped.
    pub fn persistent_tape(&self) -> GradientTape {
        GradientTape::new(self, true)
    }

    /// The parameters that models have asked for and an optimizer may change, by name, as they are now.
    pub fn parameters(&self) -> BTreeMap<String, Tensor> {
        let variables = self.home.variables.borrow();
        let trainable = variables.iter().filter(|(_, v)| v.trainable);
        trainable.map(|(name, v)| (name.clone(), v.value.clone())).collect()
    }

    /// Replaces a parameter or statistic.
    ///
    /// # Errors
    /// If there is none of that name and shape yet.
    pub fn set(&self, name: &str, values: &[f32]) -> Result<()> {
        let shape = match self.home.variables.borrow().get(name) {
            Some(variable) => variable.value.shape(),
            None => return Err(Error::new(ErrorKind::Name, format!("there is no parameter `{name}`"))),
        };
        let value = self.tensor(&shape, values)?;
        if let Some(variable) = self.home.variables.borrow_mut().get_mut(name) {
            variable.value = value;
        }
        Ok(())
    }

    /// Lets an optimizer change parameters by their gradients, given by name, and begins the next step.
    ///
    /// # Errors
    /// If a name or shape is wrong, or memory runs out.
    pub fn apply_gradients(&self, optimizer: &Optimizer, gradients: &[(&str, &Tensor)]) -> Result<()> {
        let home = &self.home;
        let mut step = Step::new();
        let clock = step.random_state()?;
        let parameters = self.parameters();
        for (name, gradient) in gradients {
            let Some(parameter) = parameters.get(*name) else {
                return Err(Error::new(ErrorKind::Name, format!("there is no parameter `{name}`")));
            };
            step.state(name, Role::Parameter, &parameter.shape(), parameter.dtype(), Initial::Constant(0.0))?;
            if gradient.shape() != parameter.shape() {
                let message = format!("`{name}` is {parameter}, its gradient {gradient}");
                return Err(Error::new(ErrorKind::Shape, message));
            }
        }
        let mut given = vec![];
        for (name, gradient) in gradients {
            given.push(step.input(name, &gradient.shape(), gradient.dtype())?);
        }
        step.apply_gradients(given, clock, optimizer)?;
        // Run as a function: states become inputs, what they become is the output.
        let mut function = Step { graph: step.graph.clone(), ..Step::new() };
        let mut operands = vec![];
        for state in &step.states {
            function.inputs.push(Named { name: state.name.clone(), value: state.value });
            operands.push(self.state(&step, &state.name, state.value, &parameters)?);
            if let Some(next) = state.next {
                function.outputs.push(Named { name: state.name.clone(), value: next });
            }
        }
        for (input, (_, gradient)) in step.inputs.iter().zip(gradients) {
            function.inputs.push(input.clone());
            operands.push((*gradient).clone());
        }
        let results = home.run(&function, &operands, |index, buffer| {
            let output = &function.outputs[index];
            buffer.name = output.name.clone();
            buffer.role =
                if parameters.contains_key(&*output.name) { Role::Parameter } else { Role::Optimizer };
        })?;
        for (output, tensor) in function.outputs.iter().zip(results) {
            let mut variables = home.variables.borrow_mut();
            match variables.get_mut(&*output.name) {
                Some(variable) => variable.value = tensor,
                None => {
                    home.slots.borrow_mut().insert(output.name.to_string(), tensor);
                }
            }
        }
        home.step.set(home.step.get() + 1);
        home.pool.mark("step");
        Ok(())
    }

    /// The present value of a state: the clock, a parameter, a slot, or zeros for a slot's first time.
    fn state(
        &self,
        step: &Step,
        name: &str,
        value: ValueId,
        parameters: &BTreeMap<String, Tensor>,
    ) -> Result<Tensor> {
        let ty = step.graph.ty(value);
        if step.states.iter().any(|s| s.value == value && s.role == Role::Random) {
            return self.home.random_state();
        }
        if let Some(known) = parameters.get(name).or(self.home.slots.borrow().get(name)) {
            return Ok(known.clone());
        }
        self.home.real(ty.shape, ty.dtype, &vec![0; ty.bytes()], Category::Optimizer, name)
    }

    /// What the pool of memory has served.
    pub fn memory(&self) -> PoolStatistics {
        self.home.pool.statistics()
    }

    /// What each owner (what a tensor is for, then the scope and op it comes from) holds and held, those that hold the
    /// most first.
    pub fn memory_by_owner(&self) -> Vec<OwnerStatistics> {
        self.home.pool.owner_statistics()
    }

    /// Lets the peaks of [`memory`](Eager::memory) begin again at what is live now.
    pub fn reset_peak_memory(&self) {
        self.home.pool.reset_peak();
    }

    /// Gives pages of memory that hold no tensor back to the system, and returns how many bytes that were.
    pub fn trim_memory(&self) -> u64 {
        self.home.pool.trim()
    }

    /// What happened to memory lately, with a mark at the end of each training step, and what lies where now.
    pub fn memory_trace(&self) -> TraceFile {
        let mut trace = self.home.pool.dump();
        trace.notes.push(("steps".into(), self.home.step.get().to_string()));
        trace
    }

    /// Writes [`memory_trace`](Eager::memory_trace) as `memory.jsonl` into a directory, which is made if it is not
    /// there, for `plimsoll explain`.
    ///
    /// # Errors
    /// If the directory cannot be made or the file cannot be written.
    pub fn save_memory_trace(&self, directory: &Path) -> Result<()> {
        let mut files = Files::in_directory(directory)?;
        files.write(directory.join(MEMORY_TRACE), &memory_trace_bytes(&self.memory_trace())?)?;
        files.publish()
    }
}

impl Home {
    /// A tensor of these bytes, which are for that and of that name; if it has none, the present scope's.
    fn real(
        self: &Rc<Self>,
        shape: Shape,
        dtype: DType,
        bytes: &[u8],
        category: Category,
        name: &str,
    ) -> Result<Tensor> {
        let scope = self.scope.borrow();
        let name = if name.is_empty() { scope.as_str() } else { name };
        let owner = self.pool.owner(&format!("{}/{name}", category.name()));
        let mut block = self.pool.allocate_for(owner, bytes.len() as u64).map_err(|error| {
            let named = if name.is_empty() { String::new() } else { format!(" of `{name}`") };
            let message = format!("no memory for {dtype}{shape}{named}: {error}");
            Error::new(ErrorKind::Budget, message).caused_by(error)
        })?;
        block.as_mut_slice().copy_from_slice(bytes);
        Ok(self.own(shape, dtype, Rc::new(block)))
    }

    fn own(self: &Rc<Self>, shape: Shape, dtype: DType, block: Rc<Block>) -> Tensor {
        self.names.set(self.names.get() + 1);
        Tensor::real_tensor(shape, dtype, Real { home: Rc::clone(self), block, name: self.names.get() })
    }

    /// The `i64[3]` of seed, step and first sample, which is 0: a batch is not run in parts here.
    pub(crate) fn random_state(self: &Rc<Self>) -> Result<Tensor> {
        let bytes = [self.seed, self.step.get(), 0].map(u64::to_ne_bytes).concat();
        self.real(Shape::new(&[3])?, DType::I64, &bytes, Category::Random, "random")
    }

    /// The first value of a parameter or statistic: that which compiled training begins with.
    pub(crate) fn initial(self: &Rc<Self>, name: &str, shape: Shape, initial: Initial) -> Result<Tensor> {
        let mut bytes = vec![0; shape.elements() * size_of::<f32>()];
        draw(&self.device, initial, self.seed, name, &mut bytes);
        self.real(shape, DType::F32, &bytes, Category::Parameters, name)
    }

    /// Runs ops given as graph code, and lets the tapes see them.
    pub(crate) fn apply<const N: usize>(
        self: &Rc<Self>,
        operands: &[&Tensor],
        build: impl Fn(&mut Graph, &[ValueId]) -> plimsoll_graph::Result<[ValueId; N]>,
    ) -> Result<[Tensor; N]> {
        let mut step = Step::new();
        let mut values = vec![];
        for (index, operand) in operands.iter().enumerate() {
            operand.real_in(self)?;
            values.push(step.input(&index.to_string(), &operand.shape(), operand.dtype())?);
        }
        let scope = self.scope.borrow().clone();
        let mark = step.graph.enter(&scope);
        let results = build(&mut step.graph, &values)?;
        step.graph.leave(mark);
        // An op that changes nothing returns its operand, which needs no copy.
        let computed = results.iter().filter(|r| !values.contains(r));
        step.outputs = computed.map(|&value| Named { name: format!("{scope}:copy").into(), value }).collect();
        let owned: Vec<Tensor> = operands.iter().map(|&t| t.clone()).collect();
        let mut tensors = vec![].into_iter();
        if !step.outputs.is_empty() {
            tensors = self.run(&step, &owned, |_, buffer| buffer.role = Role::Activation)?.into_iter();
        }
        let missing = || Error::new(ErrorKind::Internal, "an op without a result, which is a bug");
        let mut list = Vec::with_capacity(N);
        for result in results {
            list.push(match values.iter().position(|&v| v == result) {
                Some(index) => owned[index].clone(),
                None => tensors.next().ok_or_else(missing)?,
            });
        }
        let tensors: [Tensor; N] = list.try_into().map_err(|_| missing())?;
        for tape in self.tapes.borrow().iter() {
            tape.borrow_mut().record(&scope, operands, &tensors, &build)?;
        }
        Ok(tensors)
    }

    /// Runs a step of inputs and outputs alone. `label` says what an output is for.
    pub(crate) fn run(
        self: &Rc<Self>,
        step: &Step,
        operands: &[Tensor],
        label: impl Fn(usize, &mut Buffer),
    ) -> Result<Vec<Tensor>> {
        let mut program = lower(step);
        for (index, output) in program.outputs.iter().enumerate() {
            label(index, &mut program.buffers[output.index()]);
        }
        let mut blocks = vec![];
        for operand in operands {
            blocks.push(operand.real_in(self)?.block.clone());
        }
        let results = self.device.run_once(&program, &blocks, &self.pool)?;
        let types = step.outputs.iter().map(|o| step.graph.ty(o.value));
        Ok(types.zip(results).map(|(ty, block)| self.own(ty.shape, ty.dtype, block)).collect())
    }
}

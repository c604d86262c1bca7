//! Eager mode: the same ops, run at once, one by one, on any device and in any precision.
//!
//! It is for looking around and for what cannot be traced. An op is built as a small graph, lowered and run
//! by the very kernels that compiled steps use, on memory from a pool; so the same model function gives the
//! same numbers, and what differs is only when they are computed and how long they are kept. A tensor's memory is
//! freed when the last handle to it is dropped.

pub(crate) mod tape;

use crate::eager::tape::{GradientTape, Record};
use crate::forecast::memory_trace::{MEMORY_TRACE, memory_trace_bytes};
use crate::run::{draw, tightest};
use crate::save::RunFolder;
use crate::{
    Array, Context, DType, DeviceName, Error, ErrorKind, Optimizer, Precision, Result, Shape, Tensor, device,
};
use plimsoll_cpu::CpuDevice;
use plimsoll_device::Device;
use plimsoll_graph::program::{Buffer, Role};
use plimsoll_graph::step::{Initial, Named};
use plimsoll_graph::{Graph, Step, ValueId, ValueType, lower};
use plimsoll_memory::{Block, Category, OwnerStatistics, Pool, PoolStatistics, TraceFile};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Weak as WeakIdentity;
use std::sync::atomic::{AtomicU64, Ordering};

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
    pub(crate) state: Rc<EagerState>,
}

/// Eager mode that is being described.
#[derive(Clone, Default)]
pub struct EagerBuilder {
    device: DeviceName,
    threads: Option<usize>,
    without_winograd: bool,
    precision: Precision,
    seed: u64,
    limit: Option<u64>,
    pool: Option<Pool>,
}

/// What all tensors of one eager mode share. Nothing in it holds on to it, so that it goes with the last tensor and
/// handle.
pub(crate) struct EagerState {
    device: Rc<dyn Device>,
    host: CpuDevice,
    pool: Pool,
    precision: Precision,
    seed: u64,
    /// Forward passes that have drawn random numbers: each draws its own.
    passes: Cell<u64>,
    /// Updates done.
    updates: Cell<u64>,
    pub(crate) scope: RefCell<String>,
    pub(crate) variables: RefCell<BTreeMap<String, Variable>>,
    optimizers: RefCell<Vec<OptimizerState>>,
    pub(crate) tapes: RefCell<Vec<Rc<RefCell<Record>>>>,
}

/// The slots and the clock of an optimizer, for as long as somebody has it.
struct OptimizerState {
    optimizer: WeakIdentity<()>,
    states: BTreeMap<String, Stored>,
}

/// A parameter or statistic that a model has asked for.
#[derive(Clone)]
pub(crate) struct Variable {
    pub(crate) value: Stored,
    pub(crate) trainable: bool,
}

/// A tensor's memory, without the eager mode it is of.
#[derive(Clone)]
pub(crate) struct Stored {
    ty: ValueType,
    block: Rc<Block>,
    /// Tells tensors of all eager modes apart, for tapes.
    pub(crate) id: u64,
    /// The least and the largest of its integers, where they came from the host.
    range: Option<(i64, i64)>,
}

impl Stored {
    /// Its shape and element type.
    pub(crate) fn ty(&self) -> ValueType {
        self.ty
    }
}

/// An eager tensor's memory.
#[derive(Clone)]
pub(crate) struct Real {
    pub(crate) state: Rc<EagerState>,
    pub(crate) stored: Stored,
}

impl EagerBuilder {
    /// Computes on a device of this machine: on the CPU unless this says otherwise.
    pub fn on(self, device: DeviceName) -> EagerBuilder {
        EagerBuilder { device, ..self }
    }

    /// How many threads to compute on; where the device is not the CPU, to draw first weights on.
    pub fn threads(self, threads: usize) -> EagerBuilder {
        EagerBuilder { threads: Some(threads), ..self }
    }

    /// Whether Winograd's algorithm computes convolutions on the CPU where it is faster, as it does unless this says
    /// otherwise. Without it they are sums of products, whose errors are relative to the terms of each sum.
    pub fn winograd(self, winograd: bool) -> EagerBuilder {
        EagerBuilder { without_winograd: !winograd, ..self }
    }

    /// The element type that models compute in.
    pub fn precision(self, precision: Precision) -> EagerBuilder {
        EagerBuilder { precision, ..self }
    }

    /// What first weights and random numbers are drawn from.
    pub fn seed(self, seed: u64) -> EagerBuilder {
        EagerBuilder { seed, ..self }
    }

    /// The most bytes that tensors may take together.
    pub fn limit(self, bytes: u64) -> EagerBuilder {
        EagerBuilder { limit: Some(bytes), ..self }
    }

    /// Takes tensors' memory from a pool: a part of a [`plimsoll_memory::PhysicalDevice`], perhaps. It must be one of the
    /// device's memory.
    pub fn pool(self, pool: Pool) -> EagerBuilder {
        EagerBuilder { pool: Some(pool), ..self }
    }

    /// Opens the device and its memory.
    ///
    /// # Errors
    /// If the device cannot be had.
    pub fn build(self) -> Result<Eager> {
        let host = CpuDevice::new(self.threads)?.winograd(!self.without_winograd);
        let device = device::open(&self.device, &host, self.precision)?;
        let pool = match self.pool {
            Some(pool) => pool,
            None => device.pool(self.limit)?,
        };
        let state = EagerState {
            device,
            host,
            pool,
            precision: self.precision,
            seed: self.seed,
            passes: Cell::new(0),
            updates: Cell::new(0),
            scope: RefCell::default(),
            variables: RefCell::default(),
            optimizers: RefCell::default(),
            tapes: RefCell::default(),
        };
        Ok(Eager { state: Rc::new(state) })
    }
}

impl Eager {
    /// Eager mode on the CPU's threads in `f32`, with seed 0 and without a limit on memory.
    ///
    /// # Errors
    /// If the device cannot be had.
    pub fn new() -> Result<Eager> {
        Eager::builder().build()
    }

    /// Eager mode to be described: on another device, in another precision, with a limit.
    pub fn builder() -> EagerBuilder {
        EagerBuilder::default()
    }

    /// A tensor of these numbers.
    ///
    /// # Errors
    /// If their count is not the shape's, or memory runs out.
    pub fn tensor(&self, shape: &[usize], values: &[f32]) -> Result<Tensor> {
        self.array(&Array::new(shape, values)?)
    }

    /// A tensor of these integers.
    ///
    /// # Errors
    /// If their count is not the shape's, or memory runs out.
    pub fn integers(&self, shape: &[usize], values: &[i32]) -> Result<Tensor> {
        self.array(&Array::new(shape, values)?)
    }

    /// A tensor of an array's numbers.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn array(&self, array: &Array) -> Result<Tensor> {
        let ty = ValueType { shape: Shape::new(array.shape())?, dtype: array.dtype() };
        let stored = self.state.store(ty, array.bytes(), Category::Inputs, "")?;
        Ok(self.state.tensor(Stored { range: range(array.dtype(), array.bytes()), ..stored }))
    }

    /// A context to run a model function in, for training or not: one forward pass, which draws random numbers of its
    /// own. Parameters are made on first use and kept for later contexts.
    pub fn context(&self, training: bool) -> Context {
        Context::eager(self, training, None)
    }

    /// A context that draws the random numbers which the pass of that number drew, or will: passes that draw any are
    /// counted from 0.
    pub fn context_of_pass(&self, training: bool, pass: u64) -> Context {
        Context::eager(self, training, Some(pass))
    }

    /// The element type that models compute in.
    pub fn precision(&self) -> Precision {
        self.state.precision
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
        let variables = self.state.variables.borrow();
        let trainable = variables.iter().filter(|(_, v)| v.trainable);
        trainable.map(|(name, v)| (name.clone(), self.state.tensor(v.value.clone()))).collect()
    }

    /// Replaces a parameter or statistic.
    ///
    /// # Errors
    /// If there is none of that name and shape yet.
    pub fn set(&self, name: &str, values: &[f32]) -> Result<()> {
        let ty = match self.state.variables.borrow().get(name) {
            Some(variable) => variable.value.ty,
            None => return Err(Error::new(ErrorKind::Name, format!("there is no parameter `{name}`"))),
        };
        if ty.shape.elements() != values.len() {
            let message = format!("`{name}` is {ty}, was given {} numbers", values.len());
            return Err(Error::new(ErrorKind::Shape, message));
        }
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
        let value = self.state.store(ty, &bytes, Category::Parameters, name)?;
        if let Some(variable) = self.state.variables.borrow_mut().get_mut(name) {
            variable.value = value;
        }
        Ok(())
    }

    /// Lets an optimizer change parameters by their gradients, given by name. Its slots and its count of updates are its
    /// own, and are kept as long as it or a clone of it is.
    ///
    /// # Errors
    /// If a name or shape is wrong, or memory runs out.
    pub fn apply_gradients(&self, optimizer: &Optimizer, gradients: &[(&str, &Tensor)]) -> Result<()> {
        let state = &self.state;
        let mut step = Step::new();
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
        let (mut given, mut operands) = (vec![], vec![]);
        for (name, gradient) in gradients {
            let value = step.input(name, &gradient.shape(), gradient.dtype())?;
            let parameter = parameters[*name].dtype();
            given.push(step.graph.cast(value, parameter)?);
        }
        step.apply_gradients(given, optimizer)?;
        // Run as a function: states become inputs, what they become is the output.
        let mut function = Step { graph: step.graph.clone(), ..Step::new() };
        let mut slots = state.slots_of(optimizer);
        for of in &step.states {
            function.inputs.push(Named { name: of.name.clone(), value: of.value });
            let known =
                parameters.get(&*of.name).map(|parameter| parameter.real_in(state).map(|r| r.stored.clone()));
            operands.push(match (known, slots.get(&*of.name)) {
                (Some(parameter), _) => parameter?,
                (None, Some(slot)) => slot.clone(),
                (None, None) => {
                    let ty = step.graph.ty(of.value);
                    state.initial(&of.name, ty, of.initial, Category::Optimizer)?
                }
            });
            if let Some(next) = of.next {
                function.outputs.push(Named { name: of.name.clone(), value: next });
            }
        }
        for (input, (_, gradient)) in step.inputs.iter().zip(gradients) {
            function.inputs.push(input.clone());
            operands.push(gradient.real_in(state)?.stored.clone());
        }
        let results = state.run(&function, &operands, |index, buffer| {
            let output = &function.outputs[index];
            buffer.name = output.name.clone();
            buffer.role =
                if parameters.contains_key(&*output.name) { Role::Parameter } else { Role::Optimizer };
        })?;
        let mut variables = state.variables.borrow_mut();
        for (output, value) in function.outputs.iter().zip(results) {
            match variables.get_mut(&*output.name) {
                Some(variable) => variable.value = value,
                None => _ = slots.insert(output.name.to_string(), value),
            }
        }
        state.keep_slots(optimizer, slots);
        state.updates.set(state.updates.get() + 1);
        state.pool.mark("step");
        Ok(())
    }

    /// What the pool of memory has served.
    pub fn memory(&self) -> PoolStatistics {
        self.state.pool.statistics()
    }

    /// What each owner (what a tensor is for, then the scope and op it comes from) holds and held, those that hold the
    /// most first.
    pub fn memory_by_owner(&self) -> Vec<OwnerStatistics> {
        self.state.pool.owner_statistics()
    }

    /// Lets the peaks of [`memory`](Eager::memory) begin again at what is live now.
    pub fn reset_peak_memory(&self) {
        self.state.pool.reset_peak();
    }

    /// Gives pages of memory that hold no tensor back to the system, and returns how many bytes that were.
    pub fn trim_memory(&self) -> u64 {
        self.state.pool.trim()
    }

    /// What happened to memory lately, with a mark at the end of each training step, and what lies where now.
    pub fn memory_trace(&self) -> TraceFile {
        let mut trace = self.state.pool.dump();
        trace.notes.push(("steps".into(), self.state.updates.get().to_string()));
        trace
    }

    /// Writes [`memory_trace`](Eager::memory_trace) as `memory.jsonl` into a directory, which is made if it is not
    /// there, for `plimsoll explain`.
    ///
    /// # Errors
    /// If the directory cannot be made or the file cannot be written.
    pub fn save_memory_trace(&self, directory: &Path) -> Result<()> {
        let mut folder = RunFolder::open(directory)?;
        let mut files = folder.files();
        files.write(MEMORY_TRACE, &memory_trace_bytes(&self.memory_trace())?)?;
        files.publish()
    }
}

impl EagerState {
    /// Memory for these bytes, which are for that and of that name; if it has none, the present scope's.
    fn store(&self, ty: ValueType, bytes: &[u8], category: Category, name: &str) -> Result<Stored> {
        let scope = self.scope.borrow();
        let name = if name.is_empty() { scope.as_str() } else { name };
        let owner = self.pool.owner(&format!("{}/{name}", category.name()));
        let mut block = self.pool.allocate_for(owner, bytes.len() as u64).map_err(|error| {
            let named = if name.is_empty() { String::new() } else { format!(" of `{name}`") };
            Error::from(plimsoll_device::Error::short_of_memory(&format!("{ty}{named}"), error))
        })?;
        self.device.write_block(&mut block, bytes)?;
        Ok(Stored { ty, block: Rc::new(block), id: next_id(), range: None })
    }

    /// A tensor of some memory.
    pub(crate) fn tensor(self: &Rc<Self>, stored: Stored) -> Tensor {
        let ValueType { shape, dtype } = stored.ty;
        Tensor::real_tensor(shape, dtype, Real { state: Rc::clone(self), stored })
    }

    /// The bytes of a tensor.
    pub(crate) fn read(&self, stored: &Stored) -> Result<Vec<u8>> {
        let mut bytes = vec![0; stored.ty.bytes()];
        self.device.read_block(&stored.block, &mut bytes)?;
        Ok(bytes)
    }

    /// The number of a pass that has not drawn yet.
    pub(crate) fn next_pass(&self) -> u64 {
        let pass = self.passes.get();
        self.passes.set(pass + 1);
        pass
    }

    /// The `i64[3]` of seed, pass and first sample, which is 0: a batch is not run in parts here.
    pub(crate) fn random_state(self: &Rc<Self>, pass: u64) -> Result<Tensor> {
        let bytes = [self.seed, pass, 0].map(u64::to_ne_bytes).concat();
        let ty = ValueType { shape: Shape::new(&[3])?, dtype: DType::I64 };
        Ok(self.tensor(self.store(ty, &bytes, Category::Random, "random")?))
    }

    /// The first value of a state: that which compiled training begins with.
    pub(crate) fn initial(
        &self,
        name: &str,
        ty: ValueType,
        initial: Initial,
        category: Category,
    ) -> Result<Stored> {
        let mut bytes = vec![0; ty.bytes()];
        draw(&self.host, initial, self.seed, (name, ty.dtype), 0, &mut bytes);
        self.store(ty, &bytes, category, name)
    }

    /// The states of an optimizer, taken out.
    fn slots_of(&self, optimizer: &Optimizer) -> BTreeMap<String, Stored> {
        let identity = optimizer.watch();
        let mut all = self.optimizers.borrow_mut();
        // Those of optimizers that nobody has any more go.
        all.retain(|known| known.optimizer.strong_count() > 0);
        let known = all.iter().position(|known| known.optimizer.ptr_eq(&identity));
        known.map(|index| all.swap_remove(index).states).unwrap_or_default()
    }

    fn keep_slots(&self, optimizer: &Optimizer, states: BTreeMap<String, Stored>) {
        self.optimizers.borrow_mut().push(OptimizerState { optimizer: optimizer.watch(), states });
    }

    /// Runs ops given as graph code, and lets the tapes see them.
    pub(crate) fn apply<const N: usize>(
        self: &Rc<Self>,
        operands: &[&Tensor],
        build: impl Fn(&mut Graph, &[ValueId]) -> plimsoll_graph::Result<[ValueId; N]>,
    ) -> Result<[Tensor; N]> {
        let mut step = Step::new();
        let mut values = vec![];
        let mut stored = vec![];
        for (index, operand) in operands.iter().enumerate() {
            stored.push(operand.real_in(self)?.stored.clone());
            values.push(step.input(&index.to_string(), &operand.shape(), operand.dtype())?);
        }
        let scope = self.scope.borrow().clone();
        let mark = step.graph.enter(&scope);
        let results = build(&mut step.graph, &values)?;
        step.graph.leave(mark);
        self.check_lookups(&step, &stored)?;
        // An op that changes nothing returns its operand, which needs no copy.
        let computed = results.iter().filter(|r| !values.contains(r));
        step.outputs = computed.map(|&value| Named { name: format!("{scope}:copy").into(), value }).collect();
        let mut made = vec![].into_iter();
        if !step.outputs.is_empty() {
            made = self.run(&step, &stored, |_, buffer| buffer.role = Role::Activation)?.into_iter();
        }
        let missing = || Error::new(ErrorKind::Internal, "an op without a result, which is a bug");
        let mut list = Vec::with_capacity(N);
        for result in results {
            list.push(match values.iter().position(|&v| v == result) {
                Some(index) => operands[index].clone(),
                None => self.tensor(made.next().ok_or_else(missing)?),
            });
        }
        let tensors: [Tensor; N] = list.try_into().map_err(|_| missing())?;
        for tape in self.tapes.borrow().iter() {
            tape.borrow_mut().record(&scope, operands, &tensors, &build)?;
        }
        Ok(tensors)
    }

    /// Refuses integers that something would be looked up by out of range.
    fn check_lookups(&self, step: &Step, operands: &[Stored]) -> Result<()> {
        for (input, stored) in step.inputs.iter().zip(operands) {
            let Some(bound) = tightest(&step.graph, input.value) else { continue };
            let fits = |(least, most): (i64, i64)| {
                (least >= 0 || bound.may_be_negative) && most < bound.below as i64
            };
            if stored.range.is_some_and(fits) {
                continue;
            }
            let bytes = self.read(stored)?;
            if let Some((position, number)) = bound.find(integers(stored.ty.dtype, &bytes)) {
                return Err(bound.error("indices", &stored.ty.shape, position, number));
            }
        }
        Ok(())
    }

    /// Runs a step of inputs and outputs alone. `label` says what an output is for.
    pub(crate) fn run(
        &self,
        step: &Step,
        operands: &[Stored],
        label: impl Fn(usize, &mut Buffer),
    ) -> Result<Vec<Stored>> {
        let mut program = lower(step);
        for (index, output) in program.outputs.iter().enumerate() {
            label(index, &mut program.buffers[output.index()]);
        }
        let blocks: Vec<Rc<Block>> = operands.iter().map(|operand| Rc::clone(&operand.block)).collect();
        let results = self.device.run_once(&program, &blocks, &self.pool)?;
        let types = step.outputs.iter().map(|o| step.graph.ty(o.value));
        let stored = |(ty, block)| Stored { ty, block, id: next_id(), range: None };
        Ok(types.zip(results).map(stored).collect())
    }

    /// Something that tells whether this eager mode is still there.
    #[cfg(test)]
    pub(crate) fn watch(self: &Rc<Self>) -> std::rc::Weak<EagerState> {
        Rc::downgrade(self)
    }
}

/// A number that no other tensor has.
fn next_id() -> u64 {
    static IDS: AtomicU64 = AtomicU64::new(0);
    IDS.fetch_add(1, Ordering::Relaxed)
}

/// Integers of a type, as numbers; none of other types.
fn integers(dtype: DType, bytes: &[u8]) -> Box<dyn Iterator<Item = i64> + '_> {
    match dtype {
        DType::I32 => Box::new(bytes.as_chunks::<4>().0.iter().map(|&b| i64::from(i32::from_ne_bytes(b)))),
        DType::I64 => Box::new(bytes.as_chunks::<8>().0.iter().map(|&b| i64::from_ne_bytes(b))),
        DType::U8 => Box::new(bytes.iter().map(|&b| i64::from(b))),
        _ => Box::new(std::iter::empty()),
    }
}

/// The least and the largest of some integers.
fn range(dtype: DType, bytes: &[u8]) -> Option<(i64, i64)> {
    let (mut least, mut most) = (i64::MAX, i64::MIN);
    for number in integers(dtype, bytes) {
        (least, most) = (least.min(number), most.max(number));
    }
    (least <= most).then_some((least, most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Init;

    #[test]
    fn an_eager_mode_with_parameters_and_slots_goes_when_nobody_has_it() {
        let eager = Eager::new().expect("the CPU");
        let there = eager.state.watch();
        let cx = eager.context(true);
        let w = cx.parameter("w", &[3], Init::Ones).expect("a parameter");
        let mut tape = eager.tape();
        let loss = w.square().and_then(|square| square.sum_all()).expect("a loss");
        let gradient = tape.gradient(&loss, &[&w]).expect("a gradient");
        let adam = Optimizer::adam(1e-2);
        eager.apply_gradients(&adam, &[("w", &gradient[0])]).expect("an update");
        drop((eager, cx, w, tape, loss, gradient));
        assert!(there.upgrade().is_none());
    }
}

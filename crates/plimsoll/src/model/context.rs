//! The context: where a model function gets its parameters, statistics and random numbers from.
//!
//! Layers are descriptions without weights. What they own is asked of the context by name, so that the same
//! description can be traced for training, for inference, in another precision or at another batch size,
//! and always means the same weights.

use crate::eager::{Eager, EagerState};
use crate::layers::Layer;
use crate::model::frozen::Frozen;
use crate::model::trace::Trace;
use crate::{DType, Error, ErrorKind, Init, Optimizer, Precision, Result, Shape, Tensor};
use plimsoll_graph::op::Distribution;
use plimsoll_graph::optimizer::UNNAMED;
use plimsoll_graph::program::Role;
use plimsoll_graph::step::State;
use plimsoll_graph::{Graph, Op, Step, ValueId, ValueType};
use plimsoll_memory::Category;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

/// What a model function is given beside its input.
///
/// ```
/// use plimsoll::{Context, DType, Init, Precision, Result, Tensor};
///
/// fn model(cx: &Context, x: &Tensor) -> Result<Tensor> {
///     let scale = cx.scope("gain", |cx| cx.parameter("scale", &[10], Init::Ones))?;
///     x.mul(&scale)
/// }
///
/// let cx = Context::trace(true, Precision::F32);
/// let x = cx.input("x", &[32, 10], DType::F32)?;
/// let y = model(&cx, &x)?;
/// cx.output("y", &y)?;
/// let step = cx.take_step()?;
/// assert_eq!(&*step.states[0].name, "gain/scale");
/// # Ok::<(), plimsoll::Error>(())
/// ```
pub struct Context {
    training: bool,
    precision: Precision,
    place: Place,
    /// The current scope, as a path.
    scope: RefCell<String>,
    /// What a trace has been asked for.
    variables: RefCell<HashMap<String, Variable>>,
    /// Random ops so far, which tells their numbers apart in eager mode as the graph does in a trace.
    streams: Cell<u64>,
    /// In eager mode, the number of the forward pass that this is, once it has drawn.
    pass: Cell<Option<u64>>,
    /// What is known of the run that is traced.
    run: RunTraits,
    /// What is known of the whole that the step's batch is a part of.
    part: Option<BatchPart>,
}

/// Where a model function runs.
enum Place {
    Trace(Rc<Trace>),
    Eager(Rc<EagerState>),
}

/// What all traces of one run share.
#[derive(Clone, Default)]
pub(crate) struct RunTraits {
    pub(crate) optimizers: OptimizerNames,
    pub(crate) frozen: Rc<Frozen>,
}

/// The optimizers of a run: each has a name that no other has, the same in all its steps.
#[derive(Clone, Default)]
pub(crate) struct OptimizerNames(Rc<RefCell<Vec<Optimizer>>>);

impl OptimizerNames {
    /// Those that have been used.
    pub(crate) fn all(&self) -> Vec<Optimizer> {
        self.0.borrow().clone()
    }

    /// An optimizer with its name in the run.
    fn named(&self, optimizer: &Optimizer) -> Result<Optimizer> {
        let mut known = self.0.borrow_mut();
        if let Some(known) = known.iter().find(|known| known.is(optimizer)) {
            return Ok(optimizer.clone().named(known.name()));
        }
        let taken = |name: &str| known.iter().any(|known| known.name() == name);
        let mut name = optimizer.name().to_string();
        if taken(&name) && name != UNNAMED {
            let message = format!("two optimizers are called `{name}`: their slots need names of their own");
            return Err(Error::new(ErrorKind::Name, message));
        }
        let mut number = 2;
        while taken(&name) {
            name = format!("{UNNAMED}.{number}");
            number += 1;
        }
        let named = optimizer.clone().named(&name);
        known.push(named.clone());
        Ok(named)
    }
}

/// A part of a batch: its samples, and what the model draws for another number of them, in its order.
struct BatchPart {
    samples: usize,
    others: Vec<Shape>,
}

/// A parameter or statistic that has been asked for.
struct Variable {
    trainable: bool,
    /// The state's value before the step.
    state: ValueId,
    /// What the name stands for now: a statistic that has been set is its new value.
    current: Tensor,
    /// The same in the compute type, once that has been asked for.
    converted: Option<Tensor>,
}

impl Context {
    /// A context that traces a model function into a step, for training or for inference.
    pub fn trace(training: bool, precision: Precision) -> Context {
        Context::in_run(training, precision, &RunTraits::default())
    }

    /// A context that traces a step of a run.
    pub(crate) fn in_run(training: bool, precision: Precision, run: &RunTraits) -> Context {
        Context::tracing(Trace::new(false), training, precision, run)
    }

    /// A context that traces a step of inference on a part of a batch.
    pub(crate) fn part_of_inference(precision: Precision, run: &RunTraits) -> Context {
        Context::tracing(Trace::new(true), false, precision, run)
    }

    fn tracing(trace: Trace, training: bool, precision: Precision, run: &RunTraits) -> Context {
        let context = Context::new(training, precision, Place::Trace(Rc::new(trace)));
        Context { run: run.clone(), ..context }
    }

    /// A context that runs a model function at once; it draws the random numbers of a pass, or of the next.
    pub(crate) fn eager(eager: &Eager, training: bool, pass: Option<u64>) -> Context {
        let context = Context::new(training, eager.precision(), Place::Eager(Rc::clone(&eager.state)));
        Context { pass: Cell::new(pass), ..context }
    }

    fn new(training: bool, precision: Precision, place: Place) -> Context {
        Context {
            training,
            precision,
            place,
            scope: RefCell::default(),
            variables: RefCell::default(),
            streams: Cell::new(0),
            pass: Cell::new(None),
            run: RunTraits::default(),
            part: None,
        }
    }

    /// A context that traces a training step on samples which are a part of a batch and draw what they would in the
    /// whole. `other` is a step of the same model on another number of samples: what it draws in another shape is
    /// drawn for samples.
    pub(crate) fn trace_part(precision: Precision, run: &RunTraits, samples: usize, other: &Step) -> Context {
        let shape = |op: &Op| if let Op::Random { shape, .. } = op { Some(*shape) } else { None };
        let others = other.graph.nodes().iter().filter_map(|node| shape(&node.op)).collect();
        let part = Some(BatchPart { samples, others });
        Context { part, ..Context::tracing(Trace::new(true), true, precision, run) }
    }

    /// The trace, for what only a trace has.
    fn traced(&self) -> Result<&Rc<Trace>> {
        match &self.place {
            Place::Trace(trace) => Ok(trace),
            Place::Eager(_) => {
                let message = "only a traced step has declared inputs and outputs; eager tensors are made and read \
                               directly";
                Err(self.error(ErrorKind::Trace, message))
            }
        }
    }

    /// Whether layers should behave as in training (dropout, batch statistics).
    pub fn training(&self) -> bool {
        self.training
    }

    /// Whether the parameter `name` of the current scope is frozen in the run that is traced: layers with statistics of
    /// such scopes behave as in inference.
    pub fn is_frozen(&self, name: &str) -> bool {
        self.run.frozen.has(&self.path(name))
    }

    /// The precision that parameters are given in.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// A batch that the model computes with. Floats are converted to the compute type.
    ///
    /// # Errors
    /// If the name is taken or the shape is beyond limits.
    pub fn input(&self, name: &str, shape: &[usize], dtype: DType) -> Result<Tensor> {
        let input = self.target(name, shape, dtype)?;
        if dtype.is_float() { input.cast(self.precision.compute()) } else { Ok(input) }
    }

    /// A batch that the loss or a metric compares with. It is left as it comes: a target loses no digits to
    /// the precision of the model.
    ///
    /// # Errors
    /// If the name is taken or the shape is beyond limits.
    pub fn target(&self, name: &str, shape: &[usize], dtype: DType) -> Result<Tensor> {
        let trace = self.traced()?;
        trace.extend(|step| {
            let value = step.input(name, shape, dtype)?;
            Ok(Tensor::traced(trace, &step.graph, value))
        })
    }

    /// The parameter `name` of the current scope, in the compute type. Asking for the same name again gives
    /// the same parameter: that is how weights are shared.
    ///
    /// # Errors
    /// If the name is not usable or stands for something of another shape or kind.
    pub fn parameter(&self, name: &str, shape: &[usize], init: Init) -> Result<Tensor> {
        let master = self.master_parameter(name, shape, init)?;
        let compute = self.precision.compute();
        if master.dtype() == compute {
            return Ok(master);
        }
        let path = self.path(name);
        let known = self.variables.borrow().get(&path).and_then(|variable| variable.converted.clone());
        if let Some(converted) = known {
            return Ok(converted);
        }
        let converted = master.cast(compute)?;
        if let Some(variable) = self.variables.borrow_mut().get_mut(&path) {
            variable.converted = Some(converted.clone());
        }
        Ok(converted)
    }

    /// [`Context::parameter`] in `f32` whatever the precision, for where few of its elements are used (as in
    /// embeddings) or digits matter.
    ///
    /// # Errors
    /// If the name is not usable or stands for something of another shape or kind.
    pub fn master_parameter(&self, name: &str, shape: &[usize], init: Init) -> Result<Tensor> {
        self.variable(name, shape, init, true)
    }

    /// The statistic `name` of the current scope: `f32` numbers that are kept and saved with the weights but
    /// that no optimizer touches. Once set, asking again gives the new value.
    ///
    /// # Errors
    /// If the name is not usable or stands for something of another shape or kind.
    pub fn statistic(&self, name: &str, shape: &[usize], init: Init) -> Result<Tensor> {
        self.variable(name, shape, init, false)
    }

    /// Makes `new` the value of a statistic from here on and for the next step. `old` is the value that
    /// [`Context::statistic`] gave.
    ///
    /// # Errors
    /// If `old` is not a statistic's present value, or `new` has another shape or element type.
    pub fn set_statistic(&self, old: &Tensor, new: &Tensor) -> Result<()> {
        match &self.place {
            Place::Trace(trace) => {
                let [before, after] = [old.traced_in(trace)?, new.traced_in(trace)?];
                for variable in self.variables.borrow_mut().values_mut() {
                    if !variable.trainable && variable.current.traced_in(trace)? == before {
                        trace.extend(|step| Ok(step.update(variable.state, after)?))?;
                        variable.current = new.clone();
                        return Ok(());
                    }
                }
            }
            Place::Eager(eager) => {
                let before = old.real_in(eager)?.stored.id;
                let after = &new.real_in(eager)?.stored;
                for variable in eager.variables.borrow_mut().values_mut() {
                    let same_type = (old.shape(), old.dtype()) == (new.shape(), new.dtype());
                    if !variable.trainable && same_type && variable.value.id == before {
                        variable.value = after.clone();
                        return Ok(());
                    }
                }
            }
        }
        Err(self.error(ErrorKind::Argument, format!("{old} is not the present value of a statistic")))
    }

    /// Runs `build` with `name` (perhaps a path, as `mlp/up`) appended to the scope, which names parameters
    /// and places in errors.
    ///
    /// # Errors
    /// If the name is not usable, or as `build` does.
    pub fn scope<T>(&self, name: &str, build: impl FnOnce(&Context) -> Result<T>) -> Result<T> {
        self.check_name(name)?;
        let inner = self.path(name);
        match &self.place {
            Place::Trace(trace) => {
                let mark = trace.extend(|step| Ok(step.graph.enter(name)))?;
                let outer = self.scope.replace(inner);
                let result = build(self);
                self.scope.replace(outer);
                // Where `build` has taken the step away there is no scope to return to.
                let _ = trace.extend(|step| {
                    step.graph.leave(mark);
                    Ok(())
                });
                result
            }
            Place::Eager(eager) => {
                eager.scope.replace(inner.clone());
                let outer = self.scope.replace(inner);
                let result = build(self);
                eager.scope.replace(outer.clone());
                self.scope.replace(outer);
                result
            }
        }
    }

    /// A layer in a scope of its own: `cx.layer("hidden", Dense::new(100), &x)`.
    ///
    /// # Errors
    /// If the name is not usable, or as the layer does.
    pub fn layer(&self, name: &str, layer: impl Layer, x: &Tensor) -> Result<Tensor> {
        self.scope(name, |cx| layer.forward(cx, x))
    }

    /// The same number everywhere.
    ///
    /// # Errors
    /// If the shape is beyond limits.
    pub fn constant(&self, value: f64, shape: &[usize], dtype: DType) -> Result<Tensor> {
        let shape = Shape::new(shape)?;
        self.source(|g| g.apply(Op::Constant { value, shape, dtype }, &[]))
    }

    /// The index along `axis`.
    ///
    /// # Errors
    /// If the shape is beyond limits or there is no such axis.
    pub fn iota(&self, shape: &[usize], axis: usize, dtype: DType) -> Result<Tensor> {
        self.source(|g| g.iota(shape, axis, dtype))
    }

    /// New random `f32` numbers for every step, even in `[0, 1)`.
    ///
    /// A step that is run as micro-batches draws the same: where the shape grows with the batch, numbers belong to
    /// samples (which the first axis counts, perhaps with others, as in `[batch * time, width]`) and are drawn by
    /// their place in the whole batch; other numbers are the same for all micro-batches of a step.
    ///
    /// # Errors
    /// If the shape is beyond limits.
    pub fn uniform(&self, shape: &[usize]) -> Result<Tensor> {
        self.random(Distribution::Uniform, shape)
    }

    /// New random `f32` numbers for every step, normal with mean 0 and deviation 1, drawn as those of
    /// [`Context::uniform`].
    ///
    /// # Errors
    /// If the shape is beyond limits.
    pub fn normal(&self, shape: &[usize]) -> Result<Tensor> {
        self.random(Distribution::Normal, shape)
    }

    /// Reports a tensor under a name after every step.
    ///
    /// # Errors
    /// If the name is taken or the tensor is of another trace.
    pub fn output(&self, name: &str, tensor: &Tensor) -> Result<()> {
        let trace = self.traced()?;
        let value = tensor.traced_in(trace)?;
        trace.extend(|step| {
            if step.outputs.iter().any(|output| &*output.name == name) {
                let message = format!("there is already an output named `{name}`");
                return Err(Error::new(ErrorKind::Name, message));
            }
            step.output(name, value);
            Ok(())
        })
    }

    /// Reports a sum over the samples of a batch under a name: where a batch is run in parts, theirs are added up.
    ///
    /// # Errors
    /// As [`Context::output`].
    pub fn output_sum(&self, name: &str, tensor: &Tensor) -> Result<()> {
        self.output(name, tensor)?;
        self.traced()?.extend(|step| {
            step.sums.push(step.outputs.len() - 1);
            Ok(())
        })
    }

    /// Has the step minimise a loss by an optimizer: it takes the gradients for the parameters in the optimizer's group
    /// and updates them. Several losses, by several optimizers, can be minimised in one step, as long as no two change the
    /// same parameter; losses of one optimizer are added up.
    ///
    /// # Errors
    /// If `loss` is not a float scalar.
    pub fn minimise(&self, loss: &Tensor, optimizer: &Optimizer) -> Result<()> {
        let trace = self.traced()?;
        let value = loss.traced_in(trace)?;
        let optimizer = self.run.optimizers.named(optimizer)?;
        trace.extend(|step| Ok(step.minimise(value, &optimizer)?))
    }

    /// The gradients of a scalar for other tensors of the same trace, as tensors to compute on with: a penalty on a
    /// gradient is a loss like any other. Zeros where it does not depend on one. In eager mode a tape gives gradients.
    ///
    /// # Errors
    /// If the context does not trace, a tensor is not of it, or something on the way has no gradient.
    pub fn gradients(&self, of: &Tensor, wrt: &[&Tensor]) -> Result<Vec<Tensor>> {
        let trace = self.traced()?;
        let value = of.traced_in(trace)?;
        let wrt: Vec<ValueId> = wrt.iter().map(|tensor| tensor.traced_in(trace)).collect::<Result<_>>()?;
        trace.extend(|step| {
            let found = plimsoll_graph::gradient(&mut step.graph, value, &wrt)?;
            Ok(found.into_iter().map(|value| Tensor::traced(trace, &step.graph, value)).collect())
        })
    }

    /// Ends the trace and returns the step, complete: with gradients and updates, if something is minimised.
    ///
    /// # Errors
    /// If it has been taken before, a loss has no gradient, or an optimizer has nothing to train.
    pub fn take_step(&self) -> Result<Step> {
        let mut step = self.take_unfinished()?;
        if step.objectives.is_empty() {
            step.advance_random_state()?;
        } else {
            self.scale_loss(&mut step)?;
            step.update_parameters()?;
        }
        Ok(step)
    }

    /// Ends the trace and returns the step as it was traced.
    pub(crate) fn take_unfinished(&self) -> Result<Step> {
        self.traced()?.take()
    }

    /// Ends the trace and returns a step on so many samples that adds its gradients to those of a window.
    pub(crate) fn take_accumulating(&self, samples: usize) -> Result<Step> {
        let mut step = self.take_unfinished()?;
        self.scale_loss(&mut step)?;
        step.accumulate(samples)?;
        Ok(step)
    }

    /// Has a step scale its losses where gradients of activations would vanish.
    fn scale_loss(&self, step: &mut Step) -> Result<()> {
        if self.precision == Precision::F16 {
            step.scale_loss()?;
        }
        Ok(())
    }

    /// An error that says in which scope it happened.
    pub fn error(&self, kind: ErrorKind, message: impl Into<String>) -> Error {
        Error::new(kind, message).in_scope(&self.scope.borrow())
    }

    /// Requires `x` to have as many axes as `layout` names, as in `["batch", "time", "width"]`.
    pub(crate) fn expect_axes(&self, layer: &str, x: &Tensor, layout: &[&str]) -> Result<()> {
        if x.rank() == layout.len() {
            return Ok(());
        }
        let message = format!("{layer}: the input is [{}], this is {x}", layout.join(", "));
        Err(self.error(ErrorKind::Shape, message))
    }

    /// A tensor from no other.
    fn source(&self, build: impl Fn(&mut Graph) -> plimsoll_graph::Result<ValueId>) -> Result<Tensor> {
        match &self.place {
            Place::Trace(trace) => trace.extend(|step| {
                let value = build(&mut step.graph)?;
                Ok(Tensor::traced(trace, &step.graph, value))
            }),
            Place::Eager(eager) => {
                let [tensor] = eager.apply(&[], |g, _| Ok([build(g)?]))?;
                Ok(tensor)
            }
        }
    }

    fn random(&self, distribution: Distribution, shape: &[usize]) -> Result<Tensor> {
        let shape = Shape::new(shape)?;
        self.streams.set(self.streams.get() + 1);
        match &self.place {
            Place::Trace(trace) => trace.extend(|step| {
                let state = step.random_state()?;
                let per_sample = self.elements_per_sample(&shape);
                let value = step.graph.random(distribution, state, &shape, DType::F32, per_sample)?;
                Ok(Tensor::traced(trace, &step.graph, value))
            }),
            Place::Eager(eager) => {
                let stream = self.streams.get();
                let op = Op::Random { distribution, shape, dtype: DType::F32, stream, per_sample: 0 };
                let pass = self.pass.get().unwrap_or_else(|| eager.next_pass());
                self.pass.set(Some(pass));
                let [tensor] =
                    eager.apply(&[&eager.random_state(pass)?], |g, v| Ok([g.apply(op.clone(), v)?]))?;
                Ok(tensor)
            }
        }
    }

    /// How many elements of the latest draw belong to each sample of a part; 0 where they do not, or where the batch
    /// is whole and samples are counted from 0 anyway.
    fn elements_per_sample(&self, shape: &Shape) -> u64 {
        let Some(part) = &self.part else { return 0 };
        match part.others.get(self.streams.get() as usize - 1) {
            Some(other) if other != shape => (shape.elements() / part.samples) as u64,
            _ => 0,
        }
    }

    /// A known parameter or statistic, or a new one.
    fn variable(&self, name: &str, shape: &[usize], init: Init, trainable: bool) -> Result<Tensor> {
        let path = self.path(name);
        if let Some((known, is_trainable)) = self.known(&path) {
            if known.shape()[..] == *shape && is_trainable == trainable {
                return Ok(known);
            }
            let kind = |trainable| if trainable { "parameter" } else { "statistic" };
            let message = format!(
                "there is already a {} `{path}` of shape {}; a {} of shape {shape:?} needs a name or scope of its own",
                kind(is_trainable),
                known.shape(),
                kind(trainable),
            );
            return Err(Error::new(ErrorKind::Name, message));
        }
        self.check_name(name)?;
        if path == "random" {
            let message = "the name `random` is that of the random state; put the parameter in a scope";
            return Err(Error::new(ErrorKind::Name, message));
        }
        let shape = Shape::new(shape)?;
        let initial = init.initial(&shape).map_err(|error| error.in_scope(&path))?;
        let trace = match &self.place {
            Place::Trace(trace) => trace,
            Place::Eager(eager) => {
                let ty = ValueType { shape, dtype: DType::F32 };
                let value = eager.initial(&path, ty, initial, Category::Parameters)?;
                let variable = crate::eager::Variable { value: value.clone(), trainable };
                eager.variables.borrow_mut().insert(path, variable);
                return Ok(eager.tensor(value));
            }
        };
        let (state, current) = trace.extend(|step| {
            // The graph is in the scope already, so the input's own scope becomes the path as well.
            let value = step.graph.input(name, &shape, DType::F32)?;
            let (name, role) = (path.as_str().into(), Role::Parameter);
            let trainable = trainable && !self.run.frozen.has(&path);
            step.states.push(State { name, role, value, next: None, initial, trainable });
            Ok((value, Tensor::traced(trace, &step.graph, value)))
        })?;
        let variable = Variable { trainable, state, current: current.clone(), converted: None };
        self.variables.borrow_mut().insert(path, variable);
        Ok(current)
    }

    /// The present value of a parameter or statistic that has been asked for, and whether it is trainable.
    fn known(&self, path: &str) -> Option<(Tensor, bool)> {
        match &self.place {
            Place::Trace(_) => self.variables.borrow().get(path).map(|v| (v.current.clone(), v.trainable)),
            Place::Eager(eager) => {
                eager.variables.borrow().get(path).map(|v| (eager.tensor(v.value.clone()), v.trainable))
            }
        }
    }

    /// The full name of something in the current scope.
    fn path(&self, name: &str) -> String {
        match self.scope.borrow().as_str() {
            "" => name.to_string(),
            scope => format!("{scope}/{name}"),
        }
    }

    fn check_name(&self, name: &str) -> Result<()> {
        if name.contains(':') || name.split('/').any(str::is_empty) {
            let message = format!(
                "`{name}` is not a usable name: parts between `/` are not empty, and `:` is for optimizers"
            );
            return Err(self.error(ErrorKind::Name, message));
        }
        Ok(())
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("training", &self.training)
            .field("precision", &self.precision)
            .field("scope", &self.scope.borrow())
            .finish_non_exhaustive()
    }
}

//! What a run is made of: steps as functions, the shapes that each is compiled for, and tracing them.
//!
//! A step is a function of a context and named inputs. It is traced anew for every shape, for the parts that a batch may
//! be split into, and for each way the run is tried; all traces declare states by name, so that they mean the same ones.

use crate::model::context::RunTraits;
use crate::{Context, DType, Error, ErrorKind, Precision, Result, Shape, Tensor};
use plimsoll_graph::Step;
use std::rc::Rc;

/// An input of a step: a name, a shape and an element type.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    pub(crate) name: Box<str>,
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: DType,
    pub(crate) exact: bool,
}

impl Input {
    /// An input that the model computes with: floats are converted to the run's precision.
    pub fn new(name: &str, shape: &[usize], dtype: DType) -> Input {
        Input { name: name.into(), shape: shape.to_vec(), dtype, exact: false }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its extents.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The same input left in its own type: a target loses no digits to the precision of the model.
    pub fn exact(self) -> Input {
        Input { exact: true, ..self }
    }
}

/// The inputs of a step that is being traced.
pub struct Inputs {
    named: Vec<(Box<str>, Tensor)>,
}

impl Inputs {
    /// The input of that name.
    ///
    /// # Errors
    /// If there is none.
    pub fn get(&self, name: &str) -> Result<&Tensor> {
        let found = self.named.iter().find(|(known, _)| &**known == name);
        found.map(|(_, tensor)| tensor).ok_or_else(|| {
            let known: Vec<&str> = self.named.iter().map(|(name, _)| &**name).collect();
            let message = format!("the step has no input `{name}`; it has: {}", known.join(", "));
            Error::new(ErrorKind::Name, message)
        })
    }

    /// All inputs, in the order in which they were declared: `let [x, y] = inputs.all()?`.
    ///
    /// # Errors
    /// If there are not as many.
    pub fn all<const N: usize>(&self) -> Result<[&Tensor; N]> {
        let tensors: Vec<&Tensor> = self.named.iter().map(|(_, tensor)| tensor).collect();
        tensors.try_into().map_err(|tensors: Vec<&Tensor>| {
            let message = format!("the step has {} inputs, not {N}", tensors.len());
            Error::new(ErrorKind::Argument, message)
        })
    }
}

/// What a step returns: tensors by name.
#[derive(Default)]
pub struct Outputs {
    named: Vec<(String, Tensor)>,
    sums: Vec<(String, Tensor)>,
}

impl Outputs {
    /// And a sum over samples: where a batch is run in parts, theirs are added up.
    pub fn with_sum(mut self, name: &str, sum: Tensor) -> Outputs {
        self.sums.push((name.into(), sum));
        self
    }
}

impl<S: Into<String>, const N: usize> From<[(S, Tensor); N]> for Outputs {
    fn from(named: [(S, Tensor); N]) -> Outputs {
        let named = named.into_iter().map(|(name, tensor)| (name.into(), tensor)).collect();
        Outputs { named, sums: vec![] }
    }
}

impl From<Vec<(String, Tensor)>> for Outputs {
    fn from(named: Vec<(String, Tensor)>) -> Outputs {
        Outputs { named, sums: vec![] }
    }
}

impl From<()> for Outputs {
    fn from((): ()) -> Outputs {
        Outputs::default()
    }
}

/// A step as a function.
pub(crate) type StepFunction = Rc<dyn Fn(&Context, &Inputs) -> Result<Outputs>>;

/// The shape of each of a step's inputs.
pub(crate) type InputShapes = Rc<[Shape]>;

/// A step of a run.
#[derive(Clone)]
pub(crate) struct DeclaredStep {
    pub(crate) name: Box<str>,
    /// Whether layers behave as in training.
    pub(crate) training: bool,
    pub(crate) inputs: Vec<Input>,
    /// What it is compiled for: the largest first.
    pub(crate) shapes: Vec<InputShapes>,
    pub(crate) split: Split,
    pub(crate) function: StepFunction,
}

/// Whether the samples of a step may be run in parts. Its losses and float scalars are then means over samples, which
/// the first axis of every other input and output counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Split {
    Never,
    /// Into so many parts.
    Into(usize),
    /// As far as a budget demands.
    AsNeeded,
}

/// What tells the programs of a run apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) step: usize,
    pub(crate) kind: Kind,
    pub(crate) shapes: InputShapes,
}

/// What a program does of its step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// All of it.
    Whole,
    /// All of it on a part of a batch, where nothing is trained.
    Part,
    /// Adds the gradients of a part of a batch to those of its window.
    Accumulate,
    /// Updates parameters by the gradients of a window. The shapes are those it was traced with, and of no matter.
    Apply,
    /// Counts what is not finite of some values, from the first to before the last, and changes nothing.
    Examine { first: usize, last: usize },
}

impl Kind {
    /// What a program does on a part of a batch.
    pub(crate) fn of_part(trains: bool) -> Kind {
        if trains { Kind::Accumulate } else { Kind::Part }
    }
}

/// The steps of a run, and what they are traced with.
#[derive(Clone)]
pub(crate) struct Declared {
    pub(crate) steps: Vec<DeclaredStep>,
    pub(crate) precision: Precision,
    pub(crate) traits: RunTraits,
}

impl DeclaredStep {
    /// The samples of inputs of some shapes: the extent of the first axis of those that have one.
    pub(crate) fn samples(shapes: &InputShapes) -> usize {
        shapes.iter().find(|shape| shape.rank() > 0).map_or(1, |shape| shape[0])
    }

    /// The shapes of so many samples.
    pub(crate) fn with_samples(shapes: &InputShapes, samples: usize) -> Result<InputShapes> {
        let resized = |shape: &Shape| {
            let mut extents = shape.to_vec();
            if let Some(first) = extents.first_mut() {
                *first = samples;
            }
            Ok(Shape::new(&extents)?)
        };
        shapes.iter().map(resized).collect()
    }

    /// The samples that are run at once if a batch of the largest shape is split into so many parts.
    pub(crate) fn samples_at_once(&self, parts: usize) -> usize {
        DeclaredStep::samples(&self.shapes[0]).div_ceil(parts.max(1)).max(1)
    }

    /// The parts that samples of some shapes are run in: how many samples each has.
    pub(crate) fn parts(&self, shapes: &InputShapes, parts: usize) -> impl Iterator<Item = usize> + use<> {
        let (samples, most) = (DeclaredStep::samples(shapes), self.samples_at_once(parts));
        (0..samples.div_ceil(most)).map(move |part| most.min(samples - part * most))
    }

    /// Inputs of some shapes, in words.
    pub(crate) fn describe(&self, shapes: &InputShapes) -> String {
        let inputs = self.inputs.iter().zip(shapes.iter());
        let words: Vec<String> =
            inputs.map(|(input, shape)| format!("`{}` {}{shape}", input.name, input.dtype)).collect();
        if words.is_empty() { "no inputs".into() } else { words.join(", ") }
    }

    /// The largest number of parts there can be.
    pub(crate) fn most_parts(&self) -> usize {
        DeclaredStep::samples(&self.shapes[0])
    }
}

impl Declared {
    /// The programs of a step that is run in so many parts, for some shapes.
    pub(crate) fn keys_for(
        &self,
        step: usize,
        shapes: &InputShapes,
        parts: usize,
        trains: bool,
    ) -> Result<Vec<Key>> {
        let declared = &self.steps[step];
        if parts <= 1 {
            return Ok(vec![Key { step, kind: Kind::Whole, shapes: shapes.clone() }]);
        }
        let kind = Kind::of_part(trains);
        let mut keys: Vec<Key> = vec![];
        for samples in declared.parts(shapes, parts) {
            let key = Key { step, kind, shapes: DeclaredStep::with_samples(shapes, samples)? };
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        if trains {
            keys.push(self.end_of_window(step, parts)?);
        }
        Ok(keys)
    }

    /// The program that ends a window.
    pub(crate) fn end_of_window(&self, step: usize, parts: usize) -> Result<Key> {
        let declared = &self.steps[step];
        let shapes = DeclaredStep::with_samples(&declared.shapes[0], declared.samples_at_once(parts))?;
        Ok(Key { step, kind: Kind::Apply, shapes })
    }

    /// All programs of a step that is run in so many parts, without repeats; that of the largest shape first.
    pub(crate) fn keys(&self, step: usize, parts: usize, trains: bool) -> Result<Vec<Key>> {
        let mut keys: Vec<Key> = vec![];
        for shapes in &self.steps[step].shapes {
            for key in self.keys_for(step, shapes, parts, trains)? {
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        Ok(keys)
    }

    /// Traces a program.
    pub(crate) fn trace(&self, key: &Key) -> Result<Step> {
        let declared = &self.steps[key.step];
        let traced = match key.kind {
            Kind::Whole => {
                let cx = Context::in_run(declared.training, self.precision, &self.traits);
                declared.call(&cx, &key.shapes).and_then(|()| cx.take_step())
            }
            Kind::Part => {
                let cx = Context::part_of_inference(self.precision, &self.traits);
                declared.call(&cx, &key.shapes).and_then(|()| cx.take_step())
            }
            Kind::Examine { first, last } => {
                let whole = Key { kind: Kind::Whole, ..key.clone() };
                return Ok(self.trace(&whole)?.examination(first..last)?);
            }
            Kind::Accumulate => self.accumulate(declared, &key.shapes),
            Kind::Apply => self.accumulate(declared, &key.shapes).and_then(|step| Ok(step.end_of_window()?)),
        };
        traced.map_err(|error| error.in_step(&declared.name))
    }

    /// A step that adds gradients to those of its window, without the optimizers' states.
    fn accumulate(&self, declared: &DeclaredStep, shapes: &InputShapes) -> Result<Step> {
        let samples = DeclaredStep::samples(shapes);
        let other = Context::in_run(declared.training, self.precision, &self.traits);
        declared.call(&other, &DeclaredStep::with_samples(shapes, samples + 1)?)?;
        let cx = Context::trace_part(self.precision, &self.traits, samples, &other.take_unfinished()?);
        declared.call(&cx, shapes)?;
        cx.take_accumulating(samples)
    }
}

impl DeclaredStep {
    /// Calls the function on inputs of some shapes, and declares what it returns.
    fn call(&self, cx: &Context, shapes: &InputShapes) -> Result<()> {
        let mut named = vec![];
        for (input, shape) in self.inputs.iter().zip(shapes.iter()) {
            let tensor = match input.exact {
                true => cx.target(&input.name, shape, input.dtype)?,
                false => cx.input(&input.name, shape, input.dtype)?,
            };
            named.push((input.name.clone(), tensor));
        }
        let outputs = (self.function)(cx, &Inputs { named })?;
        outputs.named.iter().try_for_each(|(name, tensor)| cx.output(name, tensor))?;
        outputs.sums.iter().try_for_each(|(name, sum)| cx.output_sum(name, sum))
    }
}

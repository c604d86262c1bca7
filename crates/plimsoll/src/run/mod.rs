//! The run: named steps over one set of states in one arena, compiled once, for a device and a budget.
//!
//! Training, evaluation, prediction, the two halves of a GAN, a bare function: all are steps. The forecast of a run is
//! what it reserves, because it is made of the very plans that are loaded.

mod advice;
mod builder;
mod candidate;
mod compile;
mod declared;
mod examine;
mod fit;
mod frontier;
mod host_advice;
mod limits;
mod results;
mod session;
mod states;

pub use builder::RunBuilder;
pub(crate) use compile::Compiled;
pub use declared::{Input, Inputs, Outputs};
pub(crate) use declared::{InputShapes, Key};
pub use examine::NotFinite;
pub(crate) use limits::tightest;
pub(crate) use results::EndedStep;
pub use results::StepOutputs;
pub(crate) use session::{LATER_KERNELS, TimedKernel, draw};
pub use states::{StateInfo, TakenStates};

use crate::device::target::Target;
use crate::forecast::device_use::DeviceUse;
use crate::forecast::process_use::ProcessUse;
use crate::forecast::remedy::Remedy;
use crate::forecast::room::Room;
use crate::forecast::{Forecast, StepForecast};
use crate::{Array, DType, DeviceName, Error, ErrorKind, Result, Shape};
use compile::Signature;
use declared::{Declared, DeclaredStep, Kind};
use fit::{Fit, Planner, StepTraits};
use limits::InputLimit;
use plimsoll_data::{Element, Field, Record};
use plimsoll_device::Books;
use plimsoll_memory::{let_go_of_code, return_freed_memory};
use plimsoll_plan::Profile;
use results::StepResult;
use session::Session;
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;

/// How a run is compiled.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) device: DeviceName,
    pub(crate) profile: Option<Profile>,
    pub(crate) threads: Option<usize>,
    pub(crate) without_winograd: bool,
    pub(crate) seed: u64,
    pub(crate) budget: Option<u64>,
    /// The most bytes that may be pinned of the host of a GPU.
    pub(crate) host_budget: Option<u64>,
    /// What of the device's memory may be taken, if not all of it.
    pub(crate) limit: Option<u64>,
    /// What a budget of a CPU bounds beside the arena: data that is in memory, and the batch that is read.
    pub(crate) beside: u64,
    /// The folder for what rests in a file between its uses, on a CPU.
    pub(crate) spill: Option<PathBuf>,
    pub(crate) exact: bool,
    pub(crate) plan_seconds: f64,
}

impl Settings {
    /// What the budget leaves for the arena.
    pub(crate) fn arena_budget(&self) -> Option<u64> {
        self.budget.map(|budget| budget.saturating_sub(self.beside))
    }
}

/// Named steps over one set of states in one arena, compiled once.
///
/// ```
/// use plimsoll::layers::{Activation, Dense, Layer, Sequential};
/// use plimsoll::{Array, DType, Input, Optimizer, Run, loss};
///
/// let model = Sequential::new().then(Dense::new(8).activation(Activation::Tanh)).then(Dense::new(1));
/// let adam = Optimizer::adam(1e-2);
/// let mut run = Run::builder()
///     .step("train", [Input::new("x", &[4, 2], DType::F32), Input::new("y", &[4, 1], DType::F32)], move |cx, inputs| {
///         let [x, y] = inputs.all()?;
///         let loss = loss::mse(&model.forward(cx, x)?, y)?;
///         cx.minimise(&loss, &adam)?;
///         Ok([("loss", loss)])
///     })
///     .budget(64 << 10)
///     .compile()?;
/// println!("{}", run.forecast());
///
/// let x = Array::new(&[4, 2], &[0.0f32, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0])?;
/// let y = Array::new(&[4, 1], &[0.0f32, 1.0, 1.0, 0.0])?;
/// let first = run.step("train", &[("x", &x), ("y", &y)])?["loss"].item::<f32>()?;
/// for _ in 0..200 {
///     run.step("train", &[("x", &x), ("y", &y)])?;
/// }
/// let last = run.step("train", &[("x", &x), ("y", &y)])?["loss"].item::<f32>()?;
/// assert!(last < 0.5 * first);
/// # Ok::<(), plimsoll::Error>(())
/// ```
pub struct Run {
    declared: Declared,
    target: Target,
    settings: Settings,
    fit: Rc<Fit>,
    known: Vec<StepTraits>,
    plans: u64,
    device_use: Option<DeviceUse>,
    session: Option<Session>,
    /// What each run in flight is of its step.
    parts: VecDeque<PartInFlight>,
    /// What came of the last run of each step.
    results: Vec<StepResult>,
    /// Steps that have ended, and what is left of others to note them in.
    ended: VecDeque<EndedStep>,
    spare: Vec<EndedStep>,
    /// The labels of a batch, and how many of them count, where parts of it take means over the whole's.
    labels: Vec<u8>,
    counts: Vec<usize>,
    /// The shapes of parts, by those of the whole and the samples of the part, so that stepping makes none.
    part_shapes: HashMap<(InputShapes, usize), InputShapes>,
}

fn brief_note(kernels: usize) -> String {
    format!(
        "plans of {kernels} kernels were searched for less closely than those of a smaller step: give it more time \
         (--plan-seconds) for a better one"
    )
}

/// A run that is planned for a target that is still the caller's.
pub(crate) struct PlannedRun {
    declared: Declared,
    settings: Settings,
    fit: Rc<Fit>,
    known: Vec<StepTraits>,
    plans: u64,
    device_use: Option<DeviceUse>,
}

/// A part of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchPart {
    /// The position of its first sample.
    pub(crate) first: usize,
    pub(crate) samples: usize,
    /// Its samples over those of the batch.
    pub(crate) weight: f64,
}

/// Writes an input of a part, by its position.
pub(crate) type FillPart<'a> = &'a mut dyn FnMut(BatchPart, usize, &mut [u8]) -> Result<()>;

/// A run in flight as a part of a step.
struct PartInFlight {
    key: Key,
    part: BatchPart,
    /// The samples of the whole.
    samples: usize,
    /// Whether it is the step's first, and its last.
    first: bool,
    last: bool,
}

/// An input of a step as it is given: its bytes are asked for by its position.
struct Given {
    name: String,
    shape: Vec<usize>,
    dtype: DType,
}

/// Arrays as inputs of a step.
fn given(inputs: &[(&str, &Array)]) -> Vec<Given> {
    let of = |(name, array): &(&str, &Array)| Given {
        name: (*name).to_string(),
        shape: array.shape().to_vec(),
        dtype: array.dtype(),
    };
    inputs.iter().map(of).collect()
}

/// The element type of a field in a run.
pub(crate) fn element_dtype(element: Element) -> DType {
    match element {
        Element::F32 => DType::F32,
        Element::I32 => DType::I32,
        Element::U8 => DType::U8,
        Element::F64 => DType::F64,
        Element::I64 => DType::I64,
    }
}

impl Run {
    /// A run to be described.
    pub fn builder() -> RunBuilder {
        RunBuilder::new()
    }

    /// Plans a run.
    pub(crate) fn plan(declared: Declared, target: &Target, settings: Settings) -> Result<PlannedRun> {
        let planner = Planner::new(&declared, target, settings.exact)?;
        let fit = match (settings.budget, settings.arena_budget()) {
            (Some(budget), Some(of_arena)) => match planner.fit(of_arena)? {
                Some(fit) => fit,
                None => return Err(planner.infeasible(budget, settings.beside)?),
            },
            _ => match planner.unbounded()? {
                fit if planner.has_room_on_host(fit.host_use) => fit,
                _ => match planner.fit(u64::MAX)? {
                    Some(fit) => fit,
                    None => return Err(planner.too_little_of_host(None)?),
                },
            },
        };
        let plans = planner.plans();
        let known = planner.into_known_steps();
        let fit = if settings.budget.is_some() && target.is_process() {
            // What is freed in pieces becomes whole again only by this, and what is moved goes there.
            return_freed_memory();
            Fit::moved(fit)
        } else {
            fit
        };
        let kernels: usize = fit.programs.iter().map(|(_, c)| c.program.plan().order.len()).sum();
        let device_use = target.device_use(fit.peak_bytes, kernels as u64)?;
        Ok(PlannedRun { declared, settings, fit, known, plans, device_use })
    }

    /// What this run reserves, and what each byte of that is for: all its steps and shapes included.
    pub fn forecast(&self) -> Forecast {
        let Fit { programs, seconds, peak_bytes, host_bytes, .. } = &*self.fit;
        let main = &programs[0].1;
        let of_step = |(key, compiled): &(Key, Rc<Compiled>)| StepForecast {
            name: self.declared.steps[key.step].name.to_string(),
            inputs: self.declared.steps[key.step].describe(&key.shapes),
            part: match key.kind {
                Kind::Whole => None,
                Kind::Part => Some("a part of a batch"),
                Kind::Accumulate => Some("a part that adds up gradients"),
                Kind::Apply => Some("the update at the end"),
                Kind::Examine { .. } => Some("a search for what is not finite"),
            },
            peak_bytes: compiled.peak_bytes(),
            kernels: compiled.program.plan().order.len(),
        };
        Forecast {
            peak_bytes: *peak_bytes,
            host_bytes: *host_bytes,
            no_plan_below_bytes: self.fit.bound_bytes,
            step_seconds: *seconds,
            micro_batches: self.fit.main_parts(),
            remedies: Remedy::list(&main.remedies, self.fit.main_parts(), self.fit.choice.chunked),
            device_use: self.device_use,
            host_use: (!self.target.is_process()).then_some(self.fit.host_use),
            process_use: self.process_use(),
            room: Room {
                device: self.target.device.name(),
                memory_bytes: self.target.memory_bytes,
                budget_bytes: self.settings.budget,
                host_budget_bytes: self.settings.host_budget,
            },
            is_measured: self.target.is_measured,
            notes: self.fit.brief.map(brief_note).into_iter().collect(),
            plan_seconds: programs.iter().map(|(_, compiled)| compiled.plan_seconds).sum(),
            steps: programs.iter().map(of_step).collect(),
            plans: self.plans,
            ..Forecast::of(self.fit.most())
        }
    }

    /// What the process takes of the machine's memory for this run, where that is what it runs in.
    fn process_use(&self) -> Option<ProcessUse> {
        let kernels = self.fit.programs.iter().map(|(_, c)| c.program.plan().order.len() as u64).sum();
        self.target.is_process().then(|| ProcessUse::new(self.fit.peak_bytes, kernels))
    }

    /// The bytes of the arena, once it is reserved.
    pub fn reserved_bytes(&self) -> Option<u64> {
        self.session.as_ref().map(Session::arena_bytes)
    }

    /// Runs a step on arrays, given by the names of its inputs in any order, and returns what it reports.
    ///
    /// # Errors
    /// If there is no such step, an input is missing, has another type or a shape that the step was not compiled for,
    /// or holds numbers that something would be looked up by out of range; or if the device refuses.
    pub fn step(&mut self, name: &str, inputs: &[(&str, &Array)]) -> Result<StepOutputs> {
        self.step_given(name, &given(inputs), |index| inputs[index].1.bytes())
    }

    /// Runs a step on a record of a data set, a batch most of the time, whose fields are the step's inputs by name. Its bytes
    /// go straight to the inputs.
    ///
    /// # Errors
    /// As [`Run::step`].
    pub fn step_on(&mut self, name: &str, record: &Record) -> Result<StepOutputs> {
        let of = |(at, field): (usize, &Field)| Given {
            name: field.name().to_string(),
            shape: record.shape(at).to_vec(),
            dtype: element_dtype(field.element()),
        };
        let given: Vec<Given> = record.fields().iter().enumerate().map(of).collect();
        self.step_given(name, &given, |index| record.bytes(index))
    }

    fn step_given<'b>(
        &mut self,
        name: &str,
        given: &[Given],
        bytes_of: impl Fn(usize) -> &'b [u8],
    ) -> Result<StepOutputs> {
        let step = self.find(name)?;
        let (order, shapes) = self.arrange(step, given)?;
        // All of it is looked at before any part of it is run.
        if let Some((_, compiled)) = self.fit.programs.iter().find(|(key, _)| key.step == step) {
            for (limit, &index) in compiled.signature.limits.iter().zip(&order) {
                let check = |limit: &InputLimit| limit.check_shaped(&given[index].shape, bytes_of(index));
                limit.as_ref().map_or(Ok(()), check)?;
            }
        }
        self.begin(step, &shapes, &mut |part, index, out| {
            let (shape, bytes) = (&given[order[index]].shape, bytes_of(order[index]));
            let sample = bytes.len() / shape.first().copied().unwrap_or(1).max(1);
            let from = if shape.is_empty() { 0 } else { part.first * sample };
            out.copy_from_slice(&bytes[from..][..out.len()]);
            Ok(())
        })?;
        self.finish()?;
        self.ended.clear();
        let StepResult { names, arrays, .. } = &self.results[step];
        Ok(StepOutputs { named: names.iter().map(|n| n.to_string()).zip(arrays.iter().cloned()).collect() })
    }

    fn find(&self, name: &str) -> Result<usize> {
        self.declared.steps.iter().position(|step| &*step.name == name).ok_or_else(|| {
            let known: Vec<&str> = self.declared.steps.iter().map(|step| &*step.name).collect();
            let message = format!("the run has no step `{name}`; it has: {}", known.join(", "));
            Error::new(ErrorKind::Name, message)
        })
    }

    /// Which of the given arrays each input is, and the shapes, if the step was compiled for them.
    fn arrange(&self, step: usize, given: &[Given]) -> Result<(Vec<usize>, InputShapes)> {
        let declared = &self.declared.steps[step];
        let wrong = |kind, message: String| Err(Error::new(kind, message).in_step(&declared.name));
        let (mut order, mut shapes) = (vec![], vec![]);
        for input in &declared.inputs {
            let Some(index) = given.iter().position(|given| *given.name == *input.name) else {
                return wrong(ErrorKind::Name, format!("the input `{}` is missing", input.name));
            };
            let Given { shape, dtype, .. } = &given[index];
            if *dtype != input.dtype {
                let message =
                    format!("the input `{}` is {}, was given {dtype}{shape:?}", input.name, input.dtype);
                return wrong(ErrorKind::DType, message);
            }
            order.push(index);
            shapes.push(Shape::new(shape)?);
        }
        if given.len() > declared.inputs.len() {
            let extra =
                given.iter().find(|given| declared.inputs.iter().all(|input| *input.name != *given.name));
            let message = format!("there is no input `{}`", extra.map_or("", |extra| &extra.name));
            return wrong(ErrorKind::Name, message);
        }
        let shapes: InputShapes = shapes.into();
        if !declared.shapes.contains(&shapes) {
            let known: Vec<String> = declared.shapes.iter().map(|known| declared.describe(known)).collect();
            let message = format!(
                "it was not compiled for {}; it was for {}",
                declared.describe(&shapes),
                known.join(" and for ")
            );
            return wrong(ErrorKind::Shape, message);
        }
        Ok((order, shapes))
    }

    // What loops over runs use, which fill inputs in place and read results as they come.

    /// Where a budget bounds what the process takes, gives back what was freed and lets go of code that was run: before what
    /// comes next takes memory of its own.
    pub(crate) fn let_go_of_memory(&self) {
        if self.target.is_process() && self.settings.budget.is_some() {
            return_freed_memory();
            let_go_of_code();
        }
    }

    /// The memory with everything loaded, which is reserved now if it was not.
    pub(crate) fn session(&mut self) -> Result<&mut Session> {
        if self.session.is_none() {
            self.let_go_of_memory();
            let session =
                Session::new(&self.fit, &self.target, self.settings.arena_budget(), self.settings.seed)?;
            self.session = Some(session);
            self.let_go_of_memory();
            for (step, parts) in self.fit.choice.parts.clone().into_iter().enumerate() {
                for shapes in self.declared.steps[step].shapes.clone() {
                    let counts = self.declared.steps[step].parts(&shapes, parts);
                    counts.map(|samples| self.part_shapes(&shapes, samples)).collect::<Result<Vec<_>>>()?;
                }
            }
        }
        self.session.as_mut().ok_or_else(|| Error::new(ErrorKind::Internal, "no session, which is a bug"))
    }

    /// Begins to run a step on inputs of some shapes, part by part: `fill` writes each input of each part. On a device
    /// that runs beside the host it may end later; [`Run::finish`] waits for it.
    pub(crate) fn begin(&mut self, step: usize, shapes: &InputShapes, fill: FillPart<'_>) -> Result<()> {
        let parts = self.fit.choice.parts[step];
        let samples = DeclaredStep::samples(shapes);
        let trains = parts > 1 && self.accumulates(step);
        let kind = if parts > 1 { Kind::of_part(trains) } else { Kind::Whole };
        self.count_labels(step, kind, shapes, fill)?;
        let mut counts = self.declared.steps[step].parts(shapes, parts).enumerate().peekable();
        let mut first = 0;
        while let Some((number, count)) = counts.next() {
            let of_part = self.part_shapes(shapes, count)?;
            let weight = count as f64 / samples.max(1) as f64;
            let part = BatchPart { first, samples: count, weight };
            let key = Key { step, kind, shapes: of_part };
            let (begins, ends) = (number == 0, counts.peek().is_none() && !trains);
            self.begin_part(key, part, samples, [begins, ends], fill)?;
            first += count;
        }
        if trains {
            let end = self.fit.programs.iter().find(|(key, _)| key.step == step && key.kind == Kind::Apply);
            let Some(key) = end.map(|(key, _)| key.clone()) else { return Ok(()) };
            let part = BatchPart { first, samples: 0, weight: 0.0 };
            self.begin_part(key, part, samples, [false, true], fill)?;
        }
        Ok(())
    }

    /// Counts the labels of a whole batch that is run in parts, where these take means over them.
    fn count_labels(
        &mut self,
        step: usize,
        kind: Kind,
        shapes: &InputShapes,
        fill: FillPart<'_>,
    ) -> Result<()> {
        self.counts.clear();
        let program = self.fit.programs.iter().find(|(key, _)| key.step == step && key.kind == kind);
        let Some(compiled) = program.map(|(_, compiled)| Rc::clone(compiled)) else { return Ok(()) };
        let samples = DeclaredStep::samples(shapes);
        for &input in &compiled.signature.counted {
            let dtype = self.declared.steps[step].inputs[input].dtype;
            self.labels.resize(shapes[input].elements() * dtype.size(), 0);
            fill(BatchPart { first: 0, samples, weight: 1.0 }, input, &mut self.labels)?;
            self.counts.push(limits::count_labels(dtype, &self.labels).max(1));
        }
        Ok(())
    }

    /// The shapes of so many samples.
    fn part_shapes(&mut self, shapes: &InputShapes, samples: usize) -> Result<InputShapes> {
        let key = (shapes.clone(), samples);
        if let Some(known) = self.part_shapes.get(&key) {
            return Ok(known.clone());
        }
        let made = match samples == DeclaredStep::samples(shapes) {
            true => shapes.clone(),
            false => DeclaredStep::with_samples(shapes, samples)?,
        };
        self.part_shapes.insert(key, made.clone());
        Ok(made)
    }

    /// Whether a step that is split adds up gradients.
    fn accumulates(&self, step: usize) -> bool {
        self.fit.programs.iter().any(|(key, _)| key.step == step && key.kind == Kind::Apply)
    }

    fn begin_part(
        &mut self,
        key: Key,
        part: BatchPart,
        samples: usize,
        [first, last]: [bool; 2],
        fill: FillPart<'_>,
    ) -> Result<()> {
        let signature = self.ensure(&key)?;
        let inputs = self.declared.steps[key.step].inputs.len();
        let counts = std::mem::take(&mut self.counts);
        self.session()?.begin(&key, &mut |index, bytes| {
            if index < inputs {
                fill(part, index, bytes)?;
            } else {
                // How many labels count for this part, or the part of the window that it is.
                let count = counts.get(index - inputs).map_or(1.0, |&count| count as f64);
                bytes.copy_from_slice(&((count * part.weight) as f32).to_ne_bytes());
            }
            signature.limits[index].as_ref().map_or(Ok(()), |limit| limit.check(bytes))
        })?;
        self.counts = counts;
        self.parts.push_back(PartInFlight { key, part, samples, first, last });
        while self.session()?.in_flight() > self.session()?.ahead() {
            self.collect()?;
        }
        Ok(())
    }

    /// The program of a key, which is compiled and loaded if that has not been done.
    fn ensure(&mut self, key: &Key) -> Result<Rc<Signature>> {
        if let Some(signature) = self.session()?.signature(key) {
            return Ok(Rc::clone(signature));
        }
        self.finish()?;
        let arena_bytes = self.session()?.arena_bytes();
        let Run { declared, target, settings, known, .. } = self;
        let planner = Planner::of_known_steps(declared, target, settings.exact, known.clone());
        let compiled = planner.later(&self.fit.choice, key, [arena_bytes, self.fit.host_bytes])?;
        let signature = Rc::clone(&compiled.signature);
        self.session()?.load(key.clone(), compiled)?;
        Ok(signature)
    }

    /// Waits for everything that has begun.
    pub(crate) fn finish(&mut self) -> Result<()> {
        while !self.parts.is_empty() {
            self.collect()?;
        }
        Ok(())
    }

    /// Waits for the oldest part in flight.
    fn collect(&mut self) -> Result<()> {
        let Some(PartInFlight { key, part, samples, first, last }) = self.parts.pop_front() else {
            return Ok(());
        };
        let (Some(session), result) = (&mut self.session, &mut self.results[key.step]) else { return Ok(()) };
        let signature = session.signature(&key).map(Rc::clone);
        let outputs = signature.as_ref().map_or(&[][..], |signature| &signature.outputs);
        if key.kind != Kind::Apply {
            result.prepare(outputs, samples, part, first);
        }
        session.collect(&mut |index, bytes| result.take(index, bytes, outputs, part, [first, last]))?;
        if last {
            let noted = self.spare.pop().unwrap_or_default().note(result);
            self.ended.push_back(noted);
        }
        Ok(())
    }

    /// The next step that has ended.
    pub(crate) fn ended(&mut self) -> Option<EndedStep> {
        self.ended.pop_front()
    }

    /// Takes back a step that has ended, to note another in.
    pub(crate) fn reuse(&mut self, ended: EndedStep) {
        self.spare.push(ended);
    }

    /// The first output of the last run of a step.
    pub(crate) fn last_output(&self, step: usize) -> Result<&Array> {
        let output = self.results.get(step).and_then(|result| result.arrays.first());
        output.ok_or_else(|| Error::new(ErrorKind::Internal, "a step that was not run, which is a bug"))
    }

    /// How often memory has been reserved.
    pub(crate) fn reservations(&self) -> u64 {
        self.session.as_ref().map_or(0, Session::reservations)
    }

    /// Whether a step was compiled for inputs of these shapes.
    pub(crate) fn is_declared(&self, step: usize, shapes: &[Vec<usize>]) -> bool {
        let same =
            |known: &InputShapes| known.iter().map(|shape| &shape[..]).eq(shapes.iter().map(|s| &s[..]));
        self.declared.steps[step].shapes.iter().any(same)
    }

    /// How many runs may be in flight when the next begins.
    pub(crate) fn ahead(&mut self) -> Result<usize> {
        Ok(self.session()?.ahead())
    }

    /// The program of the main step's largest shape, run on what `fill` writes: its kernels in the plan's order, with the
    /// seconds of each.
    pub(crate) fn time_kernels(&mut self, fill: FillPart<'_>) -> Result<Vec<TimedKernel<'_>>> {
        self.finish()?;
        let main = self.fit.programs[0].0.clone();
        let signature = self.ensure(&main)?;
        let part = BatchPart { first: 0, samples: DeclaredStep::samples(&main.shapes), weight: 1.0 };
        let inputs = self.declared.steps[main.step].inputs.len();
        self.session()?.time_kernels(&main, &mut |index, bytes| {
            match index < inputs {
                true => fill(part, index, bytes)?,
                false => bytes.copy_from_slice(&1.0f32.to_ne_bytes()),
            }
            signature.limits[index].as_ref().map_or(Ok(()), |limit| limit.check(bytes))
        })
    }

    /// Which of these inputs each of the main step's is.
    pub(crate) fn order_of_main(&self, inputs: &[(&str, &Array)]) -> Result<Vec<usize>> {
        Ok(self.arrange(self.fit.programs[0].0.step, &given(inputs))?.0)
    }

    /// How many parts batches of the main step are run in.
    pub(crate) fn main_parts(&self) -> usize {
        self.fit.main_parts()
    }

    /// The program that needs the most memory.
    pub(crate) fn most(&self) -> &Compiled {
        self.fit.most()
    }

    /// All programs, the main one first, in the order in which the forecast tells them.
    pub(crate) fn programs(&self) -> impl Iterator<Item = &Compiled> {
        self.fit.programs.iter().map(|(_, compiled)| &**compiled)
    }

    /// The program of the main step's largest shape: the one that is timed.
    pub(crate) fn main(&self) -> &Compiled {
        &self.fit.programs[0].1
    }

    /// What times are weighed by.
    pub(crate) fn profile(&self) -> &Profile {
        &self.target.profile
    }

    /// What it was planned for.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    pub(crate) fn host(&self) -> &plimsoll_cpu::CpuDevice {
        &self.target.host
    }

    /// What the device's bytes are taken by, where a driver counts them.
    pub(crate) fn books(&self) -> Option<Books> {
        self.target.device.books().ok().flatten().filter(|_| self.session.is_some())
    }
}

impl PlannedRun {
    /// The run on the target that it was planned for.
    pub(crate) fn on(self, target: Target) -> Run {
        let PlannedRun { declared, settings, fit, known, plans, device_use } = self;
        let results = declared.steps.iter().map(|_| StepResult::default()).collect();
        let (parts, ended, part_shapes) = (VecDeque::new(), VecDeque::new(), HashMap::new());
        Run {
            declared,
            target,
            settings,
            fit,
            known,
            plans,
            device_use,
            session: None,
            parts,
            results,
            ended,
            spare: vec![],
            labels: vec![],
            counts: vec![],
            part_shapes,
        }
    }
}

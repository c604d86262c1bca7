//! Describing a run before it is compiled.

use super::declared::{Declared, DeclaredStep, Input, Inputs, Outputs, Split};
use super::fit::Planner;
use super::{PlannedRun, Run, Settings};
use crate::device::target::Target;
use crate::model::context::RunTraits;
use crate::model::frozen::Frozen;
use crate::{Context, DeviceName, Error, ErrorKind, FrontierReport, Precision, Result, Shape};
use plimsoll_plan::Profile;
use std::path::PathBuf;
use std::rc::Rc;

/// A run that is being described: its steps, device, precision and budget.
#[derive(Clone)]
pub struct RunBuilder {
    steps: Vec<DeclaredStep>,
    precision: Precision,
    pub(crate) frozen: Frozen,
    pub(crate) settings: Settings,
    /// The first thing that is wrong with the description.
    error: Option<Rc<str>>,
}

impl Default for RunBuilder {
    fn default() -> Self {
        RunBuilder::new()
    }
}

impl RunBuilder {
    /// A run without steps, on the CPU, in `f32`, from seed 0, without a budget.
    pub fn new() -> RunBuilder {
        RunBuilder {
            steps: vec![],
            precision: Precision::F32,
            frozen: Frozen::default(),
            settings: Settings::default(),
            error: None,
        }
    }

    /// Adds a step in which layers behave as in training. `function` is traced, once or more often; what it returns is
    /// what the step reports. To train, it calls [`Context::minimise`].
    pub fn step<O: Into<Outputs>>(
        self,
        name: &str,
        inputs: impl IntoIterator<Item = Input>,
        function: impl Fn(&Context, &Inputs) -> Result<O> + 'static,
    ) -> RunBuilder {
        self.add(name, inputs, true, function)
    }

    /// Adds a step in which layers behave as in inference: no dropout, running statistics.
    pub fn inference<O: Into<Outputs>>(
        self,
        name: &str,
        inputs: impl IntoIterator<Item = Input>,
        function: impl Fn(&Context, &Inputs) -> Result<O> + 'static,
    ) -> RunBuilder {
        self.add(name, inputs, false, function)
    }

    fn add<O: Into<Outputs>>(
        mut self,
        name: &str,
        inputs: impl IntoIterator<Item = Input>,
        training: bool,
        function: impl Fn(&Context, &Inputs) -> Result<O> + 'static,
    ) -> RunBuilder {
        let inputs: Vec<Input> = inputs.into_iter().collect();
        if self.steps.iter().any(|step| &*step.name == name) {
            self.wrong(format!("there is already a step `{name}`"));
        }
        let shapes: std::result::Result<Vec<Shape>, _> =
            inputs.iter().map(|input| Shape::new(&input.shape)).collect();
        match shapes {
            Ok(shapes) => self.steps.push(DeclaredStep {
                name: name.into(),
                training,
                inputs,
                shapes: vec![shapes.into()],
                split: Split::Never,
                function: Rc::new(move |cx, inputs| function(cx, inputs).map(Into::into)),
            }),
            Err(error) => self.wrong(format!("step `{name}`: {error}")),
        }
        self
    }

    /// Compiles a step for other shapes of its inputs as well: a last batch of fewer samples, other lengths. The shapes
    /// it was declared with are the largest.
    pub fn shapes(mut self, step: &str, shapes: &[&[usize]]) -> RunBuilder {
        let made: std::result::Result<Vec<Shape>, _> = shapes.iter().map(|shape| Shape::new(shape)).collect();
        let message = match (self.steps.iter_mut().find(|known| &*known.name == step), made) {
            (Some(known), Ok(made)) if made.len() == known.inputs.len() => {
                let made = made.into();
                if !known.shapes.contains(&made) {
                    known.shapes.push(made);
                }
                return self;
            }
            (Some(known), Ok(made)) => {
                format!("step `{step}` has {} inputs, was given {} shapes", known.inputs.len(), made.len())
            }
            (Some(_), Err(error)) => format!("step `{step}`: {error}"),
            (None, _) => format!("there is no step `{step}` to compile for other shapes"),
        };
        self.wrong(message);
        self
    }

    /// Lets the samples of a step be run in parts where a budget demands it. The first axis of every input that has one
    /// counts samples; losses and other float scalars that the step reports are means over them, other scalars sums, and
    /// all else has a first axis of samples too. A training step then gives the same up to rounding, as long as samples
    /// are not normalised by statistics of their batch.
    pub fn may_split(self, step: &str) -> RunBuilder {
        self.split_as(step, Split::AsNeeded)
    }

    /// Runs the samples of a step in so many parts, whatever the budget: see [`RunBuilder::may_split`].
    pub fn split(self, step: &str, parts: usize) -> RunBuilder {
        self.split_as(step, Split::Into(parts))
    }

    fn split_as(mut self, step: &str, split: Split) -> RunBuilder {
        match self.steps.iter_mut().find(|known| &*known.name == step) {
            Some(known) => known.split = split,
            None => self.wrong(format!("there is no step `{step}` to split")),
        }
        self
    }

    /// Freezes the parameters whose names match one of these patterns (`*/bias`, `embedding`; see
    /// [`plimsoll_graph::pattern`]) in all steps: they have no gradient, no slot and no decay, and batch norms whose
    /// parameters are frozen run as in inference. To unfreeze them, another run takes over the states:
    /// [`Run::take_states_from`].
    pub fn freeze(mut self, patterns: impl IntoIterator<Item = impl Into<Box<str>>>) -> RunBuilder {
        self.frozen.frozen.extend(patterns);
        self
    }

    /// Freezes all parameters but those whose names match one of these patterns, whatever [`RunBuilder::freeze`] says.
    pub fn train_only(mut self, patterns: impl IntoIterator<Item = impl Into<Box<str>>>) -> RunBuilder {
        self.frozen.trained.extend(patterns);
        self
    }

    /// Runs on a device of this machine: on the CPU unless this says otherwise.
    pub fn on(mut self, device: DeviceName) -> RunBuilder {
        self.settings.device = device;
        self
    }

    /// The profile by which times are weighed; of a device that is not here, the one that is planned for: such a run can
    /// be forecast, and not run.
    pub fn profile(mut self, profile: Profile) -> RunBuilder {
        self.settings.profile = Some(profile);
        self
    }

    /// The element type that models compute in.
    pub fn precision(mut self, precision: Precision) -> RunBuilder {
        self.precision = precision;
        self
    }

    /// What first weights and random numbers are drawn from.
    pub fn seed(mut self, seed: u64) -> RunBuilder {
        self.settings.seed = seed;
        self
    }

    /// The most bytes that the run's arena may take: of a GPU's memory, or on the CPU of RAM. Arrays that steps are given
    /// are the caller's.
    pub fn budget(mut self, bytes: u64) -> RunBuilder {
        self.settings.budget = Some(bytes);
        self
    }

    /// The most bytes of the host's memory that a run on a GPU may pin: for states and values that rest there between their
    /// uses, and to stage inputs and results. On the CPU there is no such memory, and this is refused.
    pub fn host_budget(mut self, bytes: u64) -> RunBuilder {
        self.settings.host_budget = Some(bytes);
        self
    }

    /// Lets values rest in a file in this folder between their uses, where the budget of a CPU demands it: moving them
    /// within RAM would save none of it. The folder's speed is measured; the file has no name and is gone with the process.
    pub fn spill(mut self, folder: impl Into<PathBuf>) -> RunBuilder {
        self.settings.spill = Some(folder.into());
        self
    }

    /// Whether to fit the budget by exact remedies alone: results are then the same to the bit as without one.
    pub fn exact(mut self, exact: bool) -> RunBuilder {
        self.settings.exact = exact;
        self
    }

    /// How long to look for better plans of each program if there is a budget: without this, about as long as it takes
    /// to find good ones.
    pub fn plan_seconds(mut self, seconds: f64) -> RunBuilder {
        self.settings.plan_seconds = seconds;
        self
    }

    /// How many threads to compute on; where the device is not the CPU, to prepare inputs on.
    pub fn threads(mut self, threads: usize) -> RunBuilder {
        self.settings.threads = Some(threads);
        self
    }

    /// Whether Winograd's algorithm computes convolutions on the CPU where it is faster, as it does unless this says
    /// otherwise. Without it they are sums of products, whose errors are relative to the terms of each sum.
    pub fn winograd(mut self, winograd: bool) -> RunBuilder {
        self.settings.without_winograd = !winograd;
        self
    }

    /// Traces, lowers and plans all steps. Nothing is reserved before the first step, or the first look at a state.
    ///
    /// # Errors
    /// If the description is wrong, a step cannot be traced, the device cannot be had, or nothing fits the budget: then
    /// the error says how much would.
    pub fn compile(self) -> Result<Run> {
        let target = self.target()?;
        Ok(self.compile_for(&target)?.on(target))
    }

    /// Traces, lowers and plans all steps for a target.
    pub(crate) fn compile_for(self, target: &Target) -> Result<PlannedRun> {
        let settings = self.settings.clone();
        Run::plan(self.declared()?, target, settings)
    }

    /// What the run costs in time at budgets from the least to what it takes without one. Every row is a budget that
    /// gives the peak it shows.
    ///
    /// # Errors
    /// As [`RunBuilder::compile`], but for the budget.
    pub fn frontier(self) -> Result<FrontierReport> {
        let (target, settings) = (self.target()?, self.settings.clone());
        let declared = self.declared()?;
        Planner::new(&declared, &target, settings.exact)?.report(settings.budget, settings.beside)
    }

    /// The least memory of a run that is not split, or split as far as it may be; a bound of it where that is over a budget.
    pub(crate) fn roughly_least(self, target: &Target, budget: u64) -> Result<u64> {
        let (exact, beside) = (self.settings.exact, self.settings.beside);
        let of_arena = budget.saturating_sub(beside);
        let declared = self.declared()?;
        let planner = Planner::new(&declared, target, exact)?;
        let least = planner.roughly_least(of_arena)?;
        // Of the host it may need more than there is: then it is not said to fit.
        let host_is_short =
            target.host_budget.is_some() && least <= of_arena && planner.fit(of_arena)?.is_none();
        Ok(if host_is_short { u64::MAX } else { least + beside })
    }

    /// Whether the run's logits are made some rows at a time without any budget.
    pub(crate) fn chunks_its_loss(self, target: &Target) -> Result<bool> {
        let (exact, declared) = (self.settings.exact, self.declared()?);
        Ok(Planner::new(&declared, target, exact)?.plain()?.choice.chunked)
    }

    /// The bytes that the run takes without remedies, and whether it fits so many with them.
    pub(crate) fn fits(self, target: &Target, budget: u64, with_remedies: bool) -> Result<bool> {
        let budget = budget.saturating_sub(self.settings.beside);
        let (exact, declared) = (self.settings.exact, self.declared()?);
        let planner = Planner::new(&declared, target, exact)?;
        match with_remedies {
            true => Ok(planner.fit(budget)?.is_some()),
            false => {
                let plain = planner.plain()?;
                Ok(plain.peak_bytes <= budget && planner.has_room_on_host(plain.host_use))
            }
        }
    }

    /// The device that is planned for.
    pub(crate) fn target(&self) -> Result<Target> {
        Target::open(&self.settings, self.precision)
    }

    fn declared(self) -> Result<Declared> {
        let argument = |message: String| Err(Error::new(ErrorKind::Argument, message));
        if let Some(error) = self.error {
            return argument(error.to_string());
        }
        if self.steps.is_empty() {
            return argument("a run needs at least one step".into());
        }
        for step in &self.steps {
            let uneven = |shapes: &&std::rc::Rc<[Shape]>| {
                let samples = DeclaredStep::samples(shapes);
                shapes.iter().any(|shape| shape.rank() > 0 && shape[0] != samples)
            };
            if step.split != Split::Never
                && let Some(shapes) = step.shapes.iter().find(uneven)
            {
                let shapes: Vec<String> = shapes.iter().map(|shape| shape.to_string()).collect();
                return argument(format!(
                    "step `{}` is to be split by samples, but the first axes of its inputs differ: {}",
                    step.name,
                    shapes.join(", ")
                ));
            }
            if step.split == Split::Into(0) {
                return argument(format!("step `{}` cannot be run in 0 parts; use at least 1", step.name));
            }
        }
        let traits = RunTraits { frozen: Rc::new(self.frozen), ..RunTraits::default() };
        Ok(Declared { steps: self.steps, precision: self.precision, traits })
    }

    fn wrong(&mut self, message: String) {
        self.error.get_or_insert_with(|| message.into());
    }
}

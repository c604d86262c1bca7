//! Fitting a whole run into a budget.
//!
//! The outermost choice is how many parts batches are split into; inside each such variant the planner knows the whole
//! frontier of rematerializing and offloading of the training step that needs the most, the *main* one. A candidate is a
//! point of that frontier together with the plans of all other programs of the run (other steps, shapes, the last batch,
//! the end of a window, evaluation), which agree on where the states rest. The candidates do not depend on the budget: a
//! budget takes the fastest of those that fit. So a larger budget is never slower, a smaller one never takes more, and
//! the peak that a budget gives is itself a budget that gives the same.

use super::advice::Bound;
use super::compile::{Compiled, HostShare, Lowered};
use super::declared::{Declared, DeclaredStep, Key, Kind, Split};
use crate::device::target::{LEAST_LOGITS, Target};
use crate::forecast::host_use::HostUse;
use crate::{Error, ErrorKind, Result};
use plimsoll_device::Staging;
use plimsoll_graph::program::{Home, Role};
use plimsoll_graph::step::State;
use plimsoll_graph::{Program, StateParts, StateTable, Step, chunk_loss, cut_updates};
use plimsoll_plan::Offload;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Instant;

/// What is done to a whole run so that it fits.
#[derive(Clone)]
pub(crate) struct Choice {
    /// How many parts the batches of each step are run in.
    pub(crate) parts: Vec<usize>,
    /// Whether logits of training steps are made and used up some rows at a time.
    pub(crate) chunked: bool,
    /// Which states are in parts.
    pub(crate) cut: Rc<StateParts>,
    /// Where each state rests, or each of its parts.
    pub(crate) homes: Rc<[Home]>,
    /// All states, in the order in which every program has them.
    pub(crate) table: Rc<StateTable>,
}

/// A run that fits.
pub(crate) struct Fit {
    pub(crate) choice: Choice,
    /// Its programs, the main one first.
    pub(crate) programs: Vec<(Key, Rc<Compiled>)>,
    /// The modelled seconds of the main step, all its parts included.
    pub(crate) seconds: f64,
    /// The bytes of its arena: what the program that needs the most takes.
    pub(crate) peak_bytes: u64,
    pub(crate) host_bytes: u64,
    /// What it takes of the host of a GPU.
    pub(crate) host_use: HostUse,
    /// What no plan of the run takes less than, where that was asked for a budget.
    pub(crate) bound_bytes: Option<u64>,
    /// The kernels of the main step, if its plans were searched for less closely for their number.
    pub(crate) brief: Option<usize>,
}

/// What is known of a step before it is planned.
#[derive(Clone, Copy)]
pub(crate) struct StepTraits {
    pub(super) trains: bool,
    /// Whether a part of a batch gives other numbers than the whole: statistics of the batch, or labels that are computed
    /// and counted.
    depends_on_batch: bool,
    /// Whether what it counts is computed in it, so that it cannot be run in parts at all.
    pub(super) has_computed_labels: bool,
}

/// Plans a run for a target. What was lowered and searched is kept, so that several budgets can be asked for.
pub(crate) struct Planner<'a> {
    pub(crate) declared: &'a Declared,
    pub(crate) target: &'a Target,
    exact: bool,
    pub(super) about: Vec<StepTraits>,
    /// Traces of whole steps at their largest shapes, which were made to know about the steps and are used once.
    traces: RefCell<HashMap<Key, Step>>,
    plain: OnceCell<Rc<Fit>>,
    pub(super) bound: OnceCell<Bound>,
    variants: RefCell<HashMap<(usize, Offload), Rc<Variant>>>,
    /// How many programs have been planned, each search counted once.
    pub(super) plans: Cell<u64>,
}

/// A run whose batches are split into so many parts, with all plans of its main step.
pub(crate) struct Variant {
    pub(super) parts: Vec<usize>,
    pub(super) chunked: bool,
    pub(super) table: Rc<StateTable>,
    /// Which states are in parts, in all programs alike.
    pub(super) cut: Rc<StateParts>,
    /// The program that ends a window, wherever states rest, if there is one.
    pub(super) ends: Vec<Lowered>,
    pub(super) main: Key,
    pub(super) lowered: Lowered,
    pub(super) bound: OnceCell<Bound>,
    /// How many parts the main step is run in.
    main_parts: usize,
    /// The modelled seconds of the end of the main step's window without any remedy.
    end_seconds: f64,
    /// The other programs of training steps.
    pub(super) others: Vec<Key>,
    pub(super) plain: RefCell<HashMap<Key, Rc<Compiled>>>,
    pub(super) searched: RefCell<HashMap<Placed, Rc<Lowered>>>,
}

/// A program with states that rest where these say.
type Placed = (Key, Rc<[Home]>);

/// The price in time of what is done without a budget where memory is scarce. Nothing leaves the device for it.
const NEARLY_FREE: f64 = 1.02;

impl<'a> Planner<'a> {
    /// A planner of a run; `exact` leaves out what changes rounding.
    pub(crate) fn new(declared: &'a Declared, target: &'a Target, exact: bool) -> Result<Planner<'a>> {
        let (mut about, mut traces) = (vec![], HashMap::new());
        for (step, of) in declared.steps.iter().enumerate() {
            let key = Key { step, kind: Kind::Whole, shapes: of.shapes[0].clone() };
            let traced = declared.trace(&key)?;
            about.push(StepTraits {
                trains: !traced.objectives.is_empty(),
                depends_on_batch: traced.has_batch_statistics() || traced.counted.has_computed,
                has_computed_labels: traced.counted.has_computed,
            });
            traces.insert(key, traced);
        }
        let states = traces.values().flat_map(|traced| &traced.states);
        let mut parameters: Vec<&State> = states.filter(|state| state.role == Role::Parameter).collect();
        parameters.sort_by_key(|state| &state.name);
        let names: Vec<&str> = parameters.iter().map(|state| &*state.name).collect();
        declared.traits.frozen.check(&declared.traits.optimizers.all(), &names)?;
        let traces = RefCell::new(traces);
        Ok(Planner { traces, ..Planner::of_known_steps(declared, target, exact, about) })
    }

    /// A planner of a run whose steps are known already.
    pub(crate) fn of_known_steps(
        declared: &'a Declared,
        target: &'a Target,
        exact: bool,
        about: Vec<StepTraits>,
    ) -> Planner<'a> {
        Planner {
            declared,
            target,
            exact,
            about,
            traces: RefCell::default(),
            plain: OnceCell::new(),
            bound: OnceCell::new(),
            variants: RefCell::default(),
            plans: Cell::new(0),
        }
    }

    /// What is known of the steps.
    pub(crate) fn into_known_steps(self) -> Vec<StepTraits> {
        self.about
    }

    /// How many programs have been planned, each search counted once.
    pub(crate) fn plans(&self) -> u64 {
        self.plans.get()
    }

    /// Whether batches may be split without the user's word: not where that would change what is computed.
    fn may_split(&self) -> bool {
        let splits = |step: usize| self.declared.steps[step].split == Split::AsNeeded;
        let trained = || (0..self.about.len()).filter(|&step| self.about[step].trains);
        !self.exact
            && trained().any(splits)
            && trained().all(|s| !splits(s) || !self.about[s].depends_on_batch)
    }

    /// The numbers of parts that training steps may be split into: first as the user says.
    pub(super) fn split_counts(&self) -> Vec<usize> {
        let mut counts = vec![1];
        if self.may_split() {
            let splits = |step: &usize| {
                self.about[*step].trains && self.declared.steps[*step].split == Split::AsNeeded
            };
            let most =
                (0..self.about.len()).filter(splits).map(|step| self.declared.steps[step].most_parts()).max();
            counts.extend((1..).map(|n| 1usize << n).take_while(|&parts| parts <= most.unwrap_or(1)));
        }
        counts
    }

    /// The parts of each step, if training steps that may be are split into so many.
    fn parts(&self, count: usize) -> Vec<usize> {
        let of_step = |(declared, about): (&DeclaredStep, &StepTraits)| match declared.split {
            Split::Into(parts) => parts.min(declared.most_parts()).max(1),
            Split::AsNeeded if about.trains => count.min(declared.most_parts()),
            Split::AsNeeded | Split::Never => 1,
        };
        self.declared.steps.iter().zip(&self.about).map(of_step).collect()
    }

    /// The run as it is without a budget.
    pub(crate) fn plain(&self) -> Result<Rc<Fit>> {
        if let Some(plain) = self.plain.get() {
            return Ok(Rc::clone(plain));
        }
        let parts = self.parts(1);
        let table = Rc::new(self.state_table(&parts)?);
        let mut programs: Vec<(Key, Rc<Compiled>)> = vec![];
        let mut chunked = false;
        for (step, &count) in parts.iter().enumerate() {
            for key in self.declared.keys(step, count, self.about[step].trains)? {
                let (traced, rewritten) = self.traced(&key, &table, self.target.traits.chunk_logits_bytes)?;
                chunked |= rewritten;
                programs.push((key, Rc::new(self.plan_plain(&traced, &StateParts::default())?)));
            }
        }
        let homes: Rc<[Home]> = vec![Home::Device; table.iter().len()].into();
        let main = self.main_of(&programs);
        programs.swap(0, main);
        let seconds = self.step_seconds(&programs[0].0, programs[0].1.seconds, &parts, |key| {
            programs.iter().find(|(other, _)| other == key).map(|(_, compiled)| compiled.seconds)
        })?;
        let choice = Choice { parts, chunked, cut: Rc::default(), homes, table };
        let staging = programs.iter().map(|(_, c)| Staging::of(c.program.program()));
        let host_use = self.target.host_use(0, 0, staging.fold(Staging::default(), Staging::shared));
        let fit = Rc::new(Fit {
            host_use,
            peak_bytes: programs.iter().map(|(_, c)| c.peak_bytes()).max().unwrap_or(0),
            host_bytes: programs.iter().map(|(_, c)| c.program.plan().host_bytes).max().unwrap_or(0),
            choice,
            programs,
            seconds,
            bound_bytes: None,
            brief: None,
        });
        Ok(Rc::clone(self.plain.get_or_init(|| fit)))
    }

    /// The position of the main program: of the training steps, or else of all, the one that needs the most. Of those
    /// that need the same, the first.
    fn main_of(&self, programs: &[(Key, Rc<Compiled>)]) -> usize {
        let weight = |index: usize| {
            let (key, compiled) = &programs[index];
            let first = key.kind != Kind::Apply && key.shapes == self.largest(key);
            (self.about[key.step].trains, first, compiled.peak_bytes())
        };
        (0..programs.len()).rev().max_by_key(|&index| weight(index)).unwrap_or(0)
    }

    /// The largest shapes of a program's step, in the parts that it is of.
    fn largest(&self, key: &Key) -> super::declared::InputShapes {
        let declared = &self.declared.steps[key.step];
        let whole = &declared.shapes[0];
        match key.kind {
            Kind::Whole => whole.clone(),
            _ => {
                let samples = DeclaredStep::samples(&key.shapes);
                DeclaredStep::with_samples(whole, samples).unwrap_or_else(|_| whole.clone())
            }
        }
    }

    /// The modelled seconds of a step whose part takes so long, all parts and the end of the window included.
    pub(super) fn step_seconds(
        &self,
        main: &Key,
        part: f64,
        parts: &[usize],
        seconds: impl Fn(&Key) -> Option<f64>,
    ) -> Result<f64> {
        if main.kind != Kind::Accumulate {
            return Ok(part);
        }
        let end = self.declared.end_of_window(main.step, parts[main.step])?;
        Ok(part * parts[main.step] as f64 + seconds(&end).unwrap_or(0.0))
    }

    /// The states of all steps that are run in so many parts each.
    fn state_table(&self, parts: &[usize]) -> Result<StateTable> {
        let mut table = StateTable::default();
        for (step, declared) in self.declared.steps.iter().enumerate() {
            let key = if self.about[step].trains && parts[step] > 1 {
                // The end of a window has the states of its parts as well.
                self.declared.end_of_window(step, parts[step])?
            } else {
                Key { step, kind: Kind::Whole, shapes: declared.shapes[0].clone() }
            };
            match self.traces.borrow().get(&key) {
                Some(traced) => table.extend(traced)?,
                None => table.extend(&self.declared.trace(&key)?)?,
            }
        }
        Ok(table)
    }

    /// Traces a program with the states of its run, its logits chunked where they have at least so many bytes; and
    /// whether any are.
    pub(super) fn traced(&self, key: &Key, table: &StateTable, logits: usize) -> Result<(Step, bool)> {
        let known = self.traces.borrow_mut().remove(key);
        let mut step = known.map_or_else(|| self.declared.trace(key), Ok)?;
        let trains = self.about[key.step].trains && key.kind != Kind::Apply;
        let rewritten = trains.then(|| chunk_loss(&step, logits)).flatten();
        let chunked = rewritten.is_some();
        step = rewritten.unwrap_or(step);
        let name = &self.declared.steps[key.step].name;
        step.adopt_states(table).map_err(|error| Error::from(error).in_step(name))?;
        Ok((step, chunked))
    }

    pub(super) fn plan_plain(&self, step: &Step, cut: &StateParts) -> Result<Compiled> {
        self.plans.set(self.plans.get() + 1);
        Lowered::new(step, self.target, cut, None, Offload::Nothing)?.plain(self.target)
    }

    /// The run split into so many parts, its logits chunked where there are any worth it.
    pub(crate) fn variant(&self, count: usize, offload: Offload) -> Result<Rc<Variant>> {
        if let Some(variant) = self.variants.borrow().get(&(count, offload)) {
            return Ok(Rc::clone(variant));
        }
        let parts = self.parts(count);
        let table = Rc::new(self.state_table(&parts)?);
        let plain = self.plain()?;
        let main_step = plain.programs[0].0.step;
        let trains = self.about[main_step].trains;
        let main = self.declared.keys(main_step, parts[main_step], trains)?.swap_remove(0);
        let (step, chunked) = self.traced(&main, &table, LEAST_LOGITS)?;
        self.plans.set(self.plans.get() + 1);
        let start = Instant::now();
        let program = self.target.lower(&step);
        let mut others = vec![];
        for step in
            (0..self.declared.steps.len()).filter(|&step| self.about[step].trains || step == main_step)
        {
            let keys = self.declared.keys(step, parts[step], self.about[step].trains)?;
            others.extend(keys.into_iter().filter(|key| *key != main));
        }
        let beside = self.updates_beside(&main, &others, &table)?;
        let cut = match offload {
            Offload::ValuesAndStates => {
                let programs: Vec<&Program> =
                    std::iter::once(&program).chain(beside.iter().map(|(.., program)| program)).collect();
                StateParts::of(&programs)
            }
            Offload::Nothing | Offload::Values => StateParts::default(),
        };
        let main_parts = if main.kind == Kind::Accumulate { parts[main_step] } else { 1 };
        let (mut ends, mut end_seconds) = (vec![], 0.0);
        for (key, step, program) in beside.into_iter().filter(|(key, ..)| key.kind == Kind::Apply) {
            let end = Lowered::of(cut_updates(program, &cut)?, &step, self.target, None, offload, start)?;
            if main_parts > 1 && key == self.declared.end_of_window(main_step, main_parts)? {
                end_seconds = end.seconds();
            }
            ends.push(end);
        }
        let lowered = Lowered::of(cut_updates(program, &cut)?, &step, self.target, None, offload, start)?;
        let variant = Rc::new(Variant {
            main_parts,
            end_seconds,
            parts,
            chunked,
            table,
            cut: Rc::new(cut),
            ends,
            main,
            lowered,
            bound: OnceCell::new(),
            others,
            plain: RefCell::default(),
            searched: RefCell::default(),
        });
        self.variants.borrow_mut().insert((count, offload), Rc::clone(&variant));
        Ok(variant)
    }

    /// The programs beside the main one that update states, as they were traced and lowered: the end of its window, and other
    /// steps.
    fn updates_beside(
        &self,
        main: &Key,
        others: &[Key],
        table: &StateTable,
    ) -> Result<Vec<(Key, Step, Program)>> {
        let updates =
            |key: &&Key| key.kind == Kind::Apply || (key.kind == Kind::Whole && key.step != main.step);
        let lowered = |key: &Key| -> Result<(Key, Step, Program)> {
            let (step, _) = self.traced(key, table, LEAST_LOGITS)?;
            let program = self.target.lower(&step);
            Ok((key.clone(), step, program))
        };
        others.iter().filter(updates).map(lowered).collect()
    }

    /// The run within a budget, if there is a way.
    pub(crate) fn fit(&self, budget: u64) -> Result<Option<Rc<Fit>>> {
        let plain = self.plain()?;
        if plain.peak_bytes <= budget && self.has_room_on_host(plain.host_use) {
            return Ok(Some(plain));
        }
        if self.lower_bound()?.bytes > budget {
            return Ok(None);
        }
        self.candidate(budget)?.map(|candidate| self.fit_of(candidate).map(Rc::new)).transpose()
    }

    /// Whether the host's budget, if there is one, holds so much.
    pub(super) fn has_room_on_host(&self, of: HostUse) -> bool {
        self.target.host_budget.is_none_or(|budget| of.bytes() <= budget)
    }

    /// The run without a budget: as it is, or with the remedies that are nearly free where memory is scarce.
    pub(crate) fn unbounded(&self) -> Result<Rc<Fit>> {
        let plain = self.plain()?;
        if !self.target.traits.memory_is_scarce {
            return Ok(plain);
        }
        let variant = self.variant(1, Offload::Nothing)?;
        let frontier = variant.lowered.frontier(self.target);
        let points: Vec<(u64, f64)> = frontier.points().take(frontier.near()).collect();
        let fastest = points.iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
        let cheap = points.iter().filter(|point| point.1 <= NEARLY_FREE * fastest);
        let Some(least) = cheap.map(|point| point.0).min() else { return Ok(plain) };
        // Placement may need a little more than what lives at once.
        let aim = least + least / 200;
        match self.within(&variant, [aim, u64::MAX], HostShare::All, f64::INFINITY)? {
            Some(candidate) if candidate.peak_bytes < plain.peak_bytes => {
                Ok(Rc::new(self.fit_of(candidate)?))
            }
            _ => Ok(plain),
        }
    }

    /// A program whose shapes were not known when a run was fitted, within the bytes that the run has, and has on the host.
    pub(crate) fn later(
        &self,
        choice: &Choice,
        key: &Key,
        [arena_bytes, host]: [u64; 2],
    ) -> Result<Compiled> {
        let logits = if choice.chunked { self.target.traits.chunk_logits_bytes } else { usize::MAX };
        if !choice.homes.contains(&Home::Host) {
            let plain = self.plan_plain(&self.traced(key, &choice.table, logits)?.0, &choice.cut)?;
            if plain.peak_bytes() <= arena_bytes {
                return Ok(plain);
            }
        }
        let (step, _) = self.traced(key, &choice.table, LEAST_LOGITS)?;
        self.plans.set(self.plans.get() + 1);
        let offload = if choice.homes.contains(&Home::Host) { Offload::Values } else { Offload::Nothing };
        let lowered = Lowered::new(&step, self.target, &choice.cut, Some(&choice.homes), offload)?;
        match lowered.within_both(self.target, arena_bytes, host)? {
            Some(fitted) => lowered.compiled(fitted),
            None => {
                let of = &self.declared.steps[key.step];
                let message = format!(
                    "the step `{}` for {} does not fit the {arena_bytes} bytes that the run has: compile it for this \
                     shape as well",
                    of.name,
                    of.describe(&key.shapes)
                );
                Err(Error::new(ErrorKind::Budget, message))
            }
        }
    }
}

impl Variant {
    /// The least that the main step takes if a part of it takes so long.
    pub(super) fn seconds(&self, part: f64) -> f64 {
        part * self.main_parts as f64 + self.end_seconds
    }
}

impl Fit {
    /// The same in memory beside all that was planned and let go of, so that pages that held it go back to the system: where a
    /// budget is RAM, they count. Nothing else must hold what it is made of.
    pub(crate) fn moved(fit: Rc<Fit>) -> Rc<Fit> {
        Rc::try_unwrap(fit).map_or_else(
            |shared| shared,
            |fit| {
                let moved = |(key, compiled): (Key, Rc<Compiled>)| match Rc::try_unwrap(compiled) {
                    Ok(compiled) => (key, Rc::new(compiled.moved())),
                    Err(shared) => (key, shared),
                };
                Rc::new(Fit { programs: fit.programs.into_iter().map(moved).collect(), ..fit })
            },
        )
    }

    /// How many parts batches of the main step are run in.
    pub(crate) fn main_parts(&self) -> usize {
        self.choice.parts[self.programs[0].0.step]
    }

    /// The program that needs the most memory. Of those that need the same, the first.
    pub(crate) fn most(&self) -> &Compiled {
        let most = self.programs.iter().map(|(_, compiled)| compiled).rev().max_by_key(|c| c.peak_bytes());
        most.unwrap_or(&self.programs[0].1)
    }
}

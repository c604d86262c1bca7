//! Making a run fit its budget: which remedies, and the plans of all its steps.
//!
//! The outermost choice is how many micro-batches a step is split into and whether logits exist whole; inside
//! each such variant the planner knows the whole frontier of recomputing and offloading. The fastest that fits
//! is taken. Other steps of the run (the last batch, evaluation, other lengths) then fit around it: they agree
//! on where the states are.

use super::Trainer;
use super::steps::{Kind, Shapes};
use crate::compile::{Compiled, Lowered, homes};
use crate::target::{LEAST_LOGITS, Target};
use crate::{Error, ErrorKind, Result};
use plimsoll_data::Dataset;
use plimsoll_graph::program::Home;
use plimsoll_graph::{Step, chunk_loss};
use plimsoll_memory::format_bytes;
use plimsoll_plan::{Fitted, Offload};

/// What is done to a whole run so that it fits.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Choice {
    /// How many parts each step is run in.
    pub(crate) micro_batches: usize,
    /// Whether logits are made and used up some rows at a time, where they are large or a step does not fit as it is.
    pub(crate) chunked: bool,
    /// Where each state is; empty for all on the device.
    pub(crate) homes: Vec<Home>,
    /// Samples that are evaluated at once.
    pub(crate) evaluated: usize,
}

/// What is planned for all steps of a run.
pub(crate) struct Plans {
    pub(crate) target: Target,
    pub(crate) budget: Option<u64>,
    /// What steps stay within if they can, where there is no budget.
    pub(crate) aim: Option<u64>,
    pub(crate) choice: Choice,
}

/// A run that fits: what is done, and its largest training step.
pub(crate) struct Fit {
    pub(crate) choice: Choice,
    pub(crate) largest: (Shapes, Compiled),
    /// The modelled seconds of a step, all its micro-batches included.
    pub(crate) seconds: f64,
}

/// A run without remedies.
pub(crate) struct Plain {
    pub(crate) fit: Fit,
    /// The bytes of its arena.
    pub(crate) peak_bytes: u64,
}

/// One way to run a step, with all plans of it.
pub(crate) struct Variant {
    pub(crate) micro_batches: usize,
    pub(crate) chunked: bool,
    pub(crate) shapes: Shapes,
    pub(crate) main: Lowered,
}

/// A variant within a budget.
pub(crate) struct Within {
    pub(crate) fitted: Fitted,
    pub(crate) homes: Vec<Home>,
    /// The bytes of the arena: that of the step and that of its update.
    pub(crate) peak_bytes: u64,
    pub(crate) seconds: f64,
}

/// The price in time of what is done on a GPU without a budget, where memory is dear. Nothing leaves the device for it.
const NEXT_TO_NOTHING: f64 = 1.02;

/// A plan this much slower than one without a budget is worth a look at smaller batches.
const WORTH_SPLITTING: f64 = 1.02;

impl Trainer {
    /// The way of a run that fits the budget, if there is one.
    pub(crate) fn fit_within(&self, data: &Dataset, target: &Target, budget: u64) -> Result<Option<Fit>> {
        let plain = self.without_remedies(data, target)?;
        if plain.peak_bytes <= budget {
            return Ok(Some(plain.fit));
        }
        let mut best: Option<(Variant, Within)> = None;
        if let Some(variant) =
            self.leanest_variant(data, target, self.micro_batches, Offload::ValuesAndStates)?
        {
            keep_faster(&mut best, self.within(data, target, variant, budget)?);
        }
        let fast = WORTH_SPLITTING * plain.fit.seconds;
        if self.may_split(data)? && best.as_ref().is_none_or(|(_, within)| within.seconds > fast) {
            for parts in self.splits() {
                let before = best.as_ref().map(|(_, within)| within.seconds);
                if let Some(variant) = self.leanest_variant(data, target, parts, Offload::ValuesAndStates)? {
                    keep_faster(&mut best, self.within(data, target, variant, budget)?);
                }
                // Smaller parts only get slower once they have begun to.
                if before.is_some() && best.as_ref().map(|(_, within)| within.seconds) == before {
                    break;
                }
            }
        }
        Ok(best.map(|(variant, within)| self.fit_of(variant, within)))
    }

    fn fit_of(&self, variant: Variant, within: Within) -> Fit {
        let Variant { micro_batches, chunked, shapes, main } = variant;
        let evaluated = self.samples_at_once(micro_batches);
        let choice = Choice { micro_batches, chunked, homes: within.homes, evaluated };
        Fit { choice, seconds: within.seconds, largest: (shapes, main.compiled(within.fitted)) }
    }

    /// The run without a budget: as it is, or with the remedies that cost next to nothing where memory is dear, and there
    /// the size that other steps should stay within.
    fn unbounded(&self, data: &Dataset, target: &Target) -> Result<(Fit, Option<u64>)> {
        let plain = self.without_remedies(data, target)?;
        if !target.memory_is_dear() {
            return Ok((plain.fit, None));
        }
        let as_it_is = Some(plain.peak_bytes);
        let Some(variant) = self.leanest_variant(data, target, self.micro_batches, Offload::Nothing)? else {
            return Ok((plain.fit, as_it_is));
        };
        let points: Vec<(u64, f64)> = variant.main.points().collect();
        let fastest = points.iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
        let cheap = points.iter().filter(|point| point.1 <= NEXT_TO_NOTHING * fastest);
        let Some(least) = cheap.map(|point| point.0).min() else { return Ok((plain.fit, as_it_is)) };
        // Placement may need a little more than what lives at once.
        let aim = least + least / 200;
        match self.within(data, target, variant, aim)? {
            Some((variant, within)) if within.peak_bytes < plain.peak_bytes => {
                let aim = within.peak_bytes;
                Ok((self.fit_of(variant, within), Some(aim)))
            }
            _ => Ok((plain.fit, as_it_is)),
        }
    }

    /// The run as it is without a budget.
    pub(crate) fn without_remedies(&self, data: &Dataset, target: &Target) -> Result<Plain> {
        let shapes = self.largest(data, self.micro_batches);
        let mut step = self.trace(data, shapes)?;
        let rewritten = chunk_loss(&step, target.logits_to_chunk());
        let chunked = rewritten.is_some();
        step = rewritten.unwrap_or(step);
        let compiled = Compiled::for_target(step, target)?;
        let seconds_of =
            |compiled: &Compiled| target.profile.costs(&compiled.work).kernels.iter().sum::<f64>();
        let (mut peak_bytes, mut seconds) = (compiled.plan.peak_bytes, seconds_of(&compiled));
        if self.micro_batches > 1 {
            let end = self.trace(data, self.end_of_window(data, self.micro_batches))?;
            let end = Compiled::for_target(end, target)?;
            peak_bytes = peak_bytes.max(end.plan.peak_bytes);
            seconds = seconds * self.micro_batches as f64 + seconds_of(&end);
        }
        let choice = Choice {
            micro_batches: self.micro_batches,
            chunked,
            homes: vec![Home::Device; compiled.step.states.len()],
            evaluated: self.samples_at_once(self.micro_batches),
        };
        Ok(Plain { fit: Fit { choice, largest: (shapes, compiled), seconds }, peak_bytes })
    }

    /// The variant of so many parts that needs the least: with chunked logits where there are any, which costs next to
    /// nothing.
    pub(crate) fn leanest_variant(
        &self,
        data: &Dataset,
        target: &Target,
        micro_batches: usize,
        offload: Offload,
    ) -> Result<Option<Variant>> {
        match self.variant(data, target, micro_batches, true, offload)? {
            Some(variant) => Ok(Some(variant)),
            None => self.variant(data, target, micro_batches, false, offload),
        }
    }

    /// A way to run the step; `None` for one with chunked logits where there are none.
    pub(crate) fn variant(
        &self,
        data: &Dataset,
        target: &Target,
        micro_batches: usize,
        chunked: bool,
        offload: Offload,
    ) -> Result<Option<Variant>> {
        let shapes = self.largest(data, micro_batches);
        let mut step = self.trace(data, shapes)?;
        if chunked {
            let Some(rewritten) = chunk_loss(&step, LEAST_LOGITS) else { return Ok(None) };
            step = rewritten;
        }
        Ok(Some(Variant { micro_batches, chunked, shapes, main: Lowered::new(step, target, None, offload)? }))
    }

    /// A variant within a budget, the update at the end of its window included.
    fn within(
        &self,
        data: &Dataset,
        target: &Target,
        variant: Variant,
        budget: u64,
    ) -> Result<Option<(Variant, Within)>> {
        let within = self.variant_within(data, target, &variant, budget, f64::INFINITY)?;
        Ok(within.map(|within| (variant, within)))
    }

    /// A variant within a budget, if its step takes less than `faster_than` seconds.
    pub(crate) fn variant_within(
        &self,
        data: &Dataset,
        target: &Target,
        variant: &Variant,
        budget: u64,
        faster_than: f64,
    ) -> Result<Option<Within>> {
        let Some(fitted) = variant.main.within(budget)? else { return Ok(None) };
        if fitted.seconds * variant.micro_batches as f64 >= faster_than {
            return Ok(None);
        }
        let homes = homes(&variant.main.program, &fitted);
        let (mut peak_bytes, mut seconds) = (fitted.plan.peak_bytes, fitted.seconds);
        if variant.micro_batches > 1 {
            let end = self.trace(data, self.end_of_window(data, variant.micro_batches))?;
            // All steps agree on where states are.
            let end = Lowered::new(end, target, Some(&homes), Offload::Values)?;
            let Some(end) = end.within(budget)? else { return Ok(None) };
            seconds = seconds * variant.micro_batches as f64 + end.seconds;
            peak_bytes = peak_bytes.max(end.plan.peak_bytes);
        }
        Ok(Some(Within { fitted, homes, peak_bytes, seconds }))
    }

    /// Whether a batch may be split without the user's word: not where that would change what is computed.
    pub(crate) fn may_split(&self, data: &Dataset) -> Result<bool> {
        if self.exact || self.micro_batches > 1 || self.batch == 1 {
            return Ok(false);
        }
        Ok(!self.step(data)?.has_batch_statistics())
    }

    /// The numbers of parts that are tried.
    pub(crate) fn splits(&self) -> impl Iterator<Item = usize> {
        let batch = self.batch;
        (1..).map(|n| 1usize << n).take_while(move |&parts| parts <= batch)
    }

    /// What is planned for all steps of a run, and its largest training step where that is planned already.
    ///
    /// # Errors
    /// If nothing fits the budget: the error says what would.
    pub(super) fn plans(&self, data: &Dataset, target: Target) -> Result<(Plans, Fit)> {
        let (fit, aim) = match self.budget {
            None => self.unbounded(data, &target)?,
            Some(budget) => match self.fit_within(data, &target, budget)? {
                Some(fit) => (fit, None),
                None => return Err(self.infeasible(data, &target, budget)?),
            },
        };
        Ok((Plans { target, budget: self.budget, aim, choice: fit.choice.clone() }, fit))
    }

    /// Traces, lowers and plans one of the run's steps.
    pub(super) fn compile(&self, data: &Dataset, shapes: Shapes, plans: &Plans) -> Result<Compiled> {
        let compiled = self.compile_if_it_fits(data, shapes, plans)?;
        compiled.ok_or_else(|| too_large(shapes, plans.budget.unwrap_or(u64::MAX)))
    }

    fn compile_if_it_fits(&self, data: &Dataset, shapes: Shapes, plans: &Plans) -> Result<Option<Compiled>> {
        let Plans { target, choice, .. } = plans;
        let mut step = self.trace(data, shapes)?;
        let chunked = |step: &Step, least| match choice.chunked {
            true if matches!(shapes.kind, Kind::Train | Kind::Accumulate) => chunk_loss(step, least),
            _ => None,
        };
        step = chunked(&step, target.logits_to_chunk()).unwrap_or(step);
        let Some(bytes) = plans.budget.or(plans.aim) else {
            return Compiled::for_target(step, target).map(Some);
        };
        if !choice.homes.contains(&Home::Host) {
            let compiled = Compiled::for_target(step.clone(), target)?;
            if compiled.plan.peak_bytes <= bytes {
                return Ok(Some(compiled));
            }
        }
        step = chunked(&step, LEAST_LOGITS).unwrap_or(step);
        let offload = if plans.budget.is_some() { Offload::Values } else { Offload::Nothing };
        let lowered = Lowered::new(step, target, Some(&choice.homes), offload)?;
        let fitted = match (lowered.within(bytes)?, plans.budget) {
            (None, None) => lowered.within(u64::MAX)?,
            (fitted, _) => fitted,
        };
        Ok(fitted.map(|fitted| lowered.compiled(fitted)))
    }

    /// The steps whose shapes are known before training, compiled: the largest training step first. Finds how
    /// many samples can be evaluated at once.
    pub(super) fn known_steps(
        &self,
        data: &Dataset,
        held_out: Option<&Dataset>,
        plans: &mut Plans,
        largest: (Shapes, Compiled),
    ) -> Result<Vec<(Shapes, Compiled)>> {
        let mut steps = vec![largest];
        if let Some(held_out) = held_out {
            plans.choice.evaluated = plans.choice.evaluated.min(held_out.samples()).max(1);
            while plans.choice.evaluated > 1 {
                let shapes = self.evaluation(plans.choice.evaluated, plans.choice.micro_batches);
                if let Some(compiled) = self.compile_if_it_fits(held_out, shapes, plans)? {
                    steps.push((shapes, compiled));
                    break;
                }
                plans.choice.evaluated = plans.choice.evaluated.div_ceil(2);
            }
        }
        let Choice { micro_batches, evaluated, .. } = plans.choice;
        for shapes in self.known_shapes(data, held_out, micro_batches, evaluated) {
            if steps.iter().all(|(done, _)| *done != shapes) {
                steps.push((shapes, self.compile(data, shapes, plans)?));
            }
        }
        Ok(steps)
    }
}

/// Keeps the faster of two.
fn keep_faster(best: &mut Option<(Variant, Within)>, other: Option<(Variant, Within)>) {
    if let Some(other) = other
        && best.as_ref().is_none_or(|(_, within)| other.1.seconds < within.seconds)
    {
        *best = Some(other);
    }
}

fn too_large(shapes: Shapes, budget: u64) -> Error {
    let length = shapes.length.map_or(String::new(), |l| format!(" of length {l}"));
    let message = format!(
        "the largest step fits the budget of {}, but the one for {} samples{length} does not; raise the budget a little",
        format_bytes(budget),
        shapes.samples,
    );
    Error::new(ErrorKind::Budget, message)
}

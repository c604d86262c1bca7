//! Dynamic loss scaling: gradients in `f16` that neither vanish nor overflow.
//!
//! The smallest number of `f16` is about 6e-8, and gradients of activations are often smaller. A step that scales its
//! loss takes the gradients of a multiple of it, and divides by that multiple in the type of the parameters, where
//! small numbers have room. How large a multiple the model bears is found by trying: it is doubled after many steps
//! in which all gradients were finite, and halved in one in which some were not. That step changes nothing else: every
//! parameter, statistic and slot stays as it was, and the optimizer's time stands still. The rule and its constants are
//! those of PyTorch's `GradScaler`, but that the scale starts at 2¹⁵ and never falls below one.
//!
//! All of it is graph code over three states, so that a step stays one program on every device and the host decides
//! nothing. The scale is a power of two: scaling and dividing round nothing but what is too small to be told from zero.

use crate::op::{Op, Reduction};
use crate::program::Role;
use crate::step::{Initial, Step, Update};
use crate::{DType, Graph, Result, ValueId};

/// The name of the state that is the present scale: `f32[]`.
pub const SCALE: &str = "loss:scale";
/// The name of the state that counts the steps with finite gradients since the scale last changed: `i64[]`.
pub const GOOD_STEPS: &str = "loss:good_steps";
/// The name of the state that counts all steps whose gradients were not finite: `i64[]`.
pub const SKIPPED_STEPS: &str = "loss:skipped_steps";

/// The first scale.
const FIRST: f64 = 32_768.0;
/// After so many good steps the scale is doubled.
const PATIENCE: f64 = 2_000.0;
const LEAST: f64 = 1.0;
/// One over it is the smallest normal number of `f32`. Only gradients that are all zero let the scale grow so far.
const MOST: f64 = (1u128 << 126) as f64;

/// Longer rows are reduced by a kernel that needs its operand in memory.
const MAX_ROW: usize = 65_536;

impl Step {
    /// From here on, gradients of this step are of a multiple of the loss, and applied if they are finite: the next
    /// [`Step::update_parameters`], [`Step::accumulate`] and [`Step::end_of_window`] scale, check and divide. Declares the states
    /// [`SCALE`], [`GOOD_STEPS`] and [`SKIPPED_STEPS`].
    ///
    /// In a window the scale is that of its first micro-batch, and what is checked is the sum. What micro-batches do
    /// to running statistics is done by then, and stays.
    ///
    /// # Errors
    /// None in practice.
    pub fn scale_loss(&mut self) -> Result<()> {
        if Scaling::of(self).is_none() {
            self.state(SCALE, Role::Optimizer, &[], DType::F32, Initial::Constant(FIRST))?;
            for count in [GOOD_STEPS, SKIPPED_STEPS] {
                self.state(count, Role::Optimizer, &[], DType::I64, Initial::Constant(0.0))?;
            }
        }
        Ok(())
    }
}

/// The states of a step that scales its loss.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scaling {
    scale: ValueId,
    good_steps: ValueId,
    skipped_steps: ValueId,
}

impl Scaling {
    /// Those of a step, if it scales its loss.
    pub(crate) fn of(step: &Step) -> Option<Scaling> {
        let find =
            |name: &str| step.states.iter().find(|state| &*state.name == name).map(|state| state.value);
        Some(Scaling {
            scale: find(SCALE)?,
            good_steps: find(GOOD_STEPS)?,
            skipped_steps: find(SKIPPED_STEPS)?,
        })
    }

    /// What the gradients of a loss start from instead of one.
    pub(crate) fn seed(&self, graph: &mut Graph, loss: ValueId) -> Result<ValueId> {
        graph.cast(self.scale, graph.dtype(loss))
    }

    /// Extends `step` with updates by scaled gradients, unless one of these is not finite, and with what becomes of the
    /// scale. The optimizers' clocks are among what stands still in a step that is skipped.
    pub(crate) fn apply(&self, step: &mut Step, updates: Vec<Update>) -> Result<()> {
        let gradients = updates.iter().flat_map(|update| &update.gradients);
        // All gradients exist until the last is known to be finite: better in the type that they were computed in.
        step.gradients = gradients.map(|&gradient| before_widening(&step.graph, gradient)).collect();
        let checked = step.gradients.clone();
        let (finite, inverse) = step.graph.scoped("loss_scale", |g| {
            let finite = all_finite(g, &checked)?;
            let one = g.full_like(1.0, self.scale)?;
            Ok((finite, g.div(one, self.scale)?))
        })?;
        for update in updates {
            let unscaled = step.graph.scoped("loss_scale", |g| {
                let unscale = |&gradient: &ValueId| {
                    let inverse = g.cast(inverse, g.dtype(gradient))?;
                    g.mul(gradient, inverse)
                };
                update.gradients.iter().map(unscale).collect::<Result<Vec<ValueId>>>()
            })?;
            Update { gradients: unscaled, ..update }.extend(step)?;
        }
        let kept = |index: &usize| matches!(step.states[*index].role, Role::Parameter | Role::Optimizer);
        let kept: Vec<usize> = (0..step.states.len()).filter(kept).collect();
        step.keep_unless(finite, kept.into_iter())?;
        self.follow(step, finite)
    }

    /// What the states become.
    fn follow(&self, step: &mut Step, finite: ValueId) -> Result<()> {
        let Scaling { scale, good_steps, skipped_steps } = *self;
        let next = step.graph.scoped("loss_scale", |g| {
            let good = g.add_scalar(good_steps, 1.0)?;
            let (enough, none) = (g.full_like(PATIENCE, good)?, g.full_like(0.0, good)?);
            let grows = g.ge(good, enough)?;
            let (least, most) = (g.full_like(LEAST, scale)?, g.full_like(MOST, scale)?);
            let [halved, doubled] = [g.mul_scalar(scale, 0.5)?, g.mul_scalar(scale, 2.0)?];
            let [halved, doubled] = [g.max(halved, least)?, g.min(doubled, most)?];
            let grown = g.select(grows, doubled, scale)?;
            let counted = g.select(grows, none, good)?;
            let missed = g.not(finite)?;
            let missed = g.cast(missed, DType::I64)?;
            Ok([
                (scale, g.select(finite, grown, halved)?),
                (good_steps, g.select(finite, counted, none)?),
                (skipped_steps, g.add(skipped_steps, missed)?),
            ])
        })?;
        next.into_iter().try_for_each(|(state, next)| step.update(state, next))
    }
}

/// The value that a gradient was converted from, if every finite number of that is one of the gradient's type.
fn before_widening(graph: &Graph, gradient: ValueId) -> ValueId {
    let node = graph.node(graph.producer(gradient));
    match node.op {
        Op::Cast { .. } if graph.dtype(node.operands[0]) == DType::F16 => node.operands[0],
        _ => gradient,
    }
}

/// Whether all elements of all values are finite: the smallest of truths. It is a truth and no largest absolute value
/// because devices differ in what the larger of NaN and a number is.
fn all_finite(g: &mut Graph, values: &[ValueId]) -> Result<ValueId> {
    let mut all = None;
    for &value in values.iter().filter(|&&value| g.shape(value).elements() > 0).collect::<Vec<_>>() {
        let shape = g.shape(value);
        let finite = g.is_finite(value)?;
        // Rows first: they fuse with what is asked of each element, so that the truths need no memory.
        let mut row = 1usize;
        let fits = |extent: &&usize| {
            row = row.saturating_mul(**extent);
            row <= MAX_ROW
        };
        let axes = shape.iter().rev().take_while(fits).count().max(1).min(shape.rank());
        let rows =
            g.reduce(Reduction::Min, finite, &(shape.rank() - axes..shape.rank()).collect::<Vec<_>>())?;
        let one = g.reduce(Reduction::Min, rows, &(0..shape.rank() - axes).collect::<Vec<_>>())?;
        // The product of truths is whether both hold.
        all = Some(match all {
            Some(all) => g.mul(all, one)?,
            None => one,
        });
    }
    all.map_or_else(|| g.constant(1.0, DType::Bool), Ok)
}

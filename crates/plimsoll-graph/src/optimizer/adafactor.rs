//! Adafactor (Shazeer and Stern, "Adafactor: adaptive learning rates with sublinear memory cost", 2018), with the constants and
//! the small departures of PyTorch's.

use super::slot::{Range, Slots};
use crate::step::Step;
use crate::{DType, Graph, Result, ValueId};

/// Below this, parameters count as this large.
const SMALLEST_PARAMETER: f64 = 1e-3;
/// The number of updates to this power is how much of a mean of squares each renews.
const RENEWAL: f64 = -0.8;

/// The rate, bounded by one over the root of the updates up to this one, and how much of means is new; both in `f64`, given
/// the number of updates before.
pub(super) fn time(g: &mut Graph, rate: ValueId, count: ValueId) -> Result<(ValueId, ValueId)> {
    let updates = g.add_scalar(count, 1.0)?;
    let bound = g.rsqrt(updates)?;
    let bounded = g.min(rate, bound)?;
    let power = g.constant(RENEWAL, DType::F64)?;
    Ok((bounded, g.pow(updates, power)?))
}

/// What a parameter moves against, to be multiplied with the rate.
pub(super) fn direction(
    step: &mut Step,
    slots: &Slots<'_>,
    parameter: ValueId,
    gradient: ValueId,
    renewed: ValueId,
) -> Result<ValueId> {
    let epsilon = match step.graph.dtype(parameter) {
        DType::F64 => f64::EPSILON,
        DType::BF16 => 2f64.powi(-7),
        DType::F16 => 2f64.powi(-10),
        _ => f64::from(f32::EPSILON),
    };
    let size = root_mean_square(&mut step.graph, parameter)?;
    let least = step.graph.full_like(SMALLEST_PARAMETER, size)?;
    let size = step.graph.max(size, least)?;
    let square = step.graph.square(gradient)?;
    let shape = step.graph.shape(gradient);
    let rank = shape.rank();
    let estimate = if rank > 1 {
        let mut mean_over = |axis: usize, slot: &str| {
            let mut kept = shape.to_vec();
            kept[axis] = 1;
            let mean = step.graph.mean(square, &[axis])?;
            let mean = step.graph.reshape(mean, &kept)?;
            let old = slots.state(step, slot, &kept, step.graph.dtype(mean))?;
            let new = towards(&mut step.graph, old, mean, renewed)?;
            step.update(old, new)?;
            Ok::<ValueId, crate::Error>(new)
        };
        let (rows, columns) = (mean_over(rank - 1, "rows")?, mean_over(rank - 2, "columns")?);
        let g = &mut step.graph;
        let mean = g.mean(rows, &[rank - 2])?;
        let mut of_rows = g.shape(rows).to_vec();
        of_rows[rank - 2] = 1;
        let mean = g.reshape(mean, &of_rows)?;
        let least = g.full_like(epsilon, mean)?;
        let mean = g.max(mean, least)?;
        let rows = g.div(rows, mean)?;
        g.mul(rows, columns)?
    } else {
        slots.update(step, "square", Range::Positive, |g, old| towards(g, old, square, renewed))?
    };
    let g = &mut step.graph;
    let least = g.full_like(epsilon * epsilon, estimate)?;
    let estimate = g.max(estimate, least)?;
    let root = g.sqrt(estimate)?;
    let update = g.div(gradient, root)?;
    let length = root_mean_square(g, update)?;
    let one = g.full_like(1.0, length)?;
    let length = g.max(length, one)?;
    let factor = g.div(size, length)?;
    g.mul(update, factor)
}

/// `old + (new − old) · part`
fn towards(g: &mut Graph, old: ValueId, new: ValueId, part: ValueId) -> Result<ValueId> {
    let difference = g.sub(new, old)?;
    let change = g.mul(difference, part)?;
    g.add(old, change)
}

/// The root of the mean of all squares, without axes.
fn root_mean_square(g: &mut Graph, x: ValueId) -> Result<ValueId> {
    let square = g.square(x)?;
    let mean = g.mean_all(square)?;
    g.sqrt(mean)
}

//! The `[optimizer]` of a workload.

use super::read::{COUNT, FLAG, FRACTION, NOT_NEGATIVE, POSITIVE, Table, WHOLE};
use crate::{Clip, Optimizer, Result, Schedule};

#[derive(Clone, Copy)]
enum Rule {
    Sgd,
    RmsProp,
    Adagrad,
    Adam,
    AdamW,
}

/// Reads the section.
pub(super) fn read(table: &Table<'_>) -> Result<Optimizer> {
    let rule = table.need_choice(
        "kind",
        &[
            ("sgd", Rule::Sgd),
            ("rmsprop", Rule::RmsProp),
            ("adagrad", Rule::Adagrad),
            ("adam", Rule::Adam),
            ("adamw", Rule::AdamW),
        ],
    )?;
    let constants: &[&str] = match rule {
        Rule::Sgd => &["momentum", "nesterov"],
        Rule::RmsProp => &["smoothing", "epsilon", "momentum"],
        Rule::Adam => &["beta1", "beta2", "epsilon"],
        Rule::Adagrad | Rule::AdamW => &[],
    };
    table.only(&[&["kind", "rate", "warmup", "schedule", "weight_decay", "clip"], constants].concat())?;

    let rate = read_rate(table)?;
    let mut optimizer = match rule {
        Rule::Sgd => {
            let nesterov = table.find_or("nesterov", FLAG, false)?;
            Optimizer::momentum(rate, table.find_or("momentum", FRACTION, 0.0)?, nesterov)
        }
        Rule::RmsProp => Optimizer::rmsprop_with(
            rate,
            table.find_or("smoothing", FRACTION, 0.99)?,
            table.find_or("epsilon", POSITIVE, 1e-8)?,
            table.find_or("momentum", FRACTION, 0.0)?,
        ),
        Rule::Adagrad => Optimizer::adagrad(rate),
        Rule::Adam => Optimizer::adam_with(
            rate,
            table.find_or("beta1", FRACTION, 0.9)?,
            table.find_or("beta2", FRACTION, 0.999)?,
            table.find_or("epsilon", POSITIVE, 1e-8)?,
        ),
        Rule::AdamW => Optimizer::adamw(rate),
    };
    if let Some(strength) = table.find("weight_decay", NOT_NEGATIVE)? {
        optimizer = optimizer.weight_decay(strength);
    }
    if let Some(clip) = table.value("clip") {
        let clip = clip.table("`clip`", "a table, such as { norm = 1.0 }")?;
        let (key, limit) =
            clip.kind("clip", &[("value", Clip::Value as fn(f64) -> Clip), ("norm", Clip::GlobalNorm)])?;
        clip.only(&[key])?;
        optimizer = optimizer.clip(limit(clip.need(key, POSITIVE)?));
    }
    Ok(optimizer)
}

/// How a learning rate goes on from where it starts.
#[derive(Clone, Copy)]
enum Course {
    /// Down to zero in so many steps.
    Over(fn(f64, u64) -> Schedule),
    /// Times a factor every so many steps.
    Every(fn(f64, f64, u64) -> Schedule),
}

fn read_rate(table: &Table<'_>) -> Result<Schedule> {
    let base = table.need("rate", POSITIVE)?;
    let warmup = table.find_or("warmup", WHOLE, 0)?;
    let Some(schedule) = table.value("schedule") else { return Ok(Schedule::from(base).warmup(warmup)) };
    let schedule = schedule.table("`schedule`", "a table, such as { cosine = 1000 }")?;
    let (key, course) = schedule.kind(
        "schedule",
        &[
            ("cosine", Course::Over(Schedule::cosine)),
            ("linear", Course::Over(Schedule::linear)),
            ("exponential", Course::Every(Schedule::exponential)),
            ("staircase", Course::Every(Schedule::steps)),
        ],
    )?;
    let course = match course {
        Course::Over(course) => {
            schedule.only(&[key])?;
            course(base, schedule.need(key, COUNT)? as u64)
        }
        Course::Every(course) => {
            schedule.only(&[key, "every"])?;
            course(base, schedule.need(key, POSITIVE)?, schedule.need("every", COUNT)? as u64)
        }
    };
    Ok(course.warmup(warmup))
}

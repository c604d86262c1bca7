//! The `[optimizer]` of a workload.

use super::read::{COUNT, FLAG, FRACTION, NOT_NEGATIVE, PATTERNS, POSITIVE, Table, WHOLE};
use crate::{Clip, Group, Optimizer, Result, Schedule, SlotFormat};

#[derive(Clone, Copy)]
enum Rule {
    Sgd,
    RmsProp,
    Adagrad,
    Adam,
    AdamW,
    Adafactor,
}

/// Reads the section: the optimizer, and the patterns of parameters that groups freeze.
pub(super) fn read(table: &Table<'_>) -> Result<(Optimizer, Vec<String>)> {
    let rule = table.need_choice(
        "kind",
        &[
            ("sgd", Rule::Sgd),
            ("rmsprop", Rule::RmsProp),
            ("adagrad", Rule::Adagrad),
            ("adam", Rule::Adam),
            ("adamw", Rule::AdamW),
            ("adafactor", Rule::Adafactor),
        ],
    )?;
    let constants: &[&str] = match rule {
        Rule::Sgd => &["momentum", "nesterov", "slots"],
        Rule::RmsProp => &["smoothing", "epsilon", "momentum", "slots"],
        Rule::Adam => &["beta1", "beta2", "epsilon", "slots"],
        Rule::Adagrad | Rule::AdamW => &["slots"],
        Rule::Adafactor => &[],
    };
    table.only(
        &[&["kind", "rate", "warmup", "schedule", "weight_decay", "clip", "groups"], constants].concat(),
    )?;

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
        Rule::Adafactor => Optimizer::adafactor(rate),
    };
    let formats = [SlotFormat::Full, SlotFormat::Bf16, SlotFormat::EightBit].map(|f| (f.name(), f));
    if let Some(format) = table.choice("slots", &formats)? {
        optimizer = optimizer.slot_format(format);
    }
    if let Some(strength) = table.find("weight_decay", NOT_NEGATIVE)? {
        optimizer = optimizer.weight_decay(strength);
    }
    if let Some(clip) = read_clip(table)? {
        optimizer = optimizer.clip(clip);
    }
    let mut frozen = vec![];
    for group in table.value("groups").map_or(Ok(vec![]), |groups| groups.list())? {
        let group = group.table("[[optimizer.groups]]", "tables, such as [[optimizer.groups]]")?;
        match group.find_or("frozen", FLAG, false)? {
            true => {
                group.only(&["match", "frozen"])?;
                frozen.extend(group.need("match", PATTERNS)?);
            }
            false => optimizer = optimizer.group(read_group(&group)?),
        }
    }
    Ok((optimizer, frozen))
}

fn read_group(table: &Table<'_>) -> Result<Group> {
    table.only(&["match", "rate", "rate_scale", "warmup", "schedule", "weight_decay", "clip", "frozen"])?;
    let mut group = Group::of(table.need("match", PATTERNS)?);
    if table.value("rate").is_some() {
        group = group.rate(read_rate(table)?);
    } else if let Some(key) = ["warmup", "schedule"].iter().find_map(|key| table.value(key)) {
        return Err(key.error("the schedule of a group is that of its own `rate`, which is not there"));
    }
    if let Some(scale) = table.find("rate_scale", POSITIVE)? {
        group = group.rate_scale(scale);
    }
    if let Some(strength) = table.find("weight_decay", NOT_NEGATIVE)? {
        group = group.weight_decay(strength);
    }
    match read_clip(table)? {
        Some(clip) => Ok(group.clip(clip)),
        None => Ok(group),
    }
}

fn read_clip(table: &Table<'_>) -> Result<Option<Clip>> {
    let Some(clip) = table.value("clip") else { return Ok(None) };
    let clip = clip.table("`clip`", "a table, such as { norm = 1.0 }")?;
    let (key, limit) =
        clip.kind("clip", &[("value", Clip::Value as fn(f64) -> Clip), ("norm", Clip::GlobalNorm)])?;
    clip.only(&[key])?;
    Ok(Some(limit(clip.need(key, POSITIVE)?)))
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

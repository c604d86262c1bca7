//! Advice: what to change, tested by replay.
//!
//! Settings are called by their framework's own names. For each, the recorded sequence of requests is replayed
//! under the allocator that the setting selects, within the same limit, and the advice says what came of it.
//! Where there is no sequence to replay, arithmetic on the layout decides if it can; else the advice says that
//! it cannot tell. One bound needs no replay: if what was live and what was requested exceed the limit, no
//! setting of any allocator helps, and that is said too.

mod counterfactual;
mod planned;
mod settings;

pub use planned::{Planned, planned};

use crate::analyse::call_site::call_site;
use crate::analyse::facts::{BoundBy, Facts};
use crate::analyse::verdict::Leak;
use crate::explanation::{Advice, Verdict, VerdictKind};
use crate::recording::Framework;
use counterfactual::{freed_after_their_step, half_the_batch};
use plimsoll_memory::{FailedAt, Model, Outcome, Start, Trace, format_bytes, replay};

/// What to change, the best first. A healthy program is left alone.
pub(crate) fn advice(facts: &Facts<'_>, verdicts: &[Verdict], leak: Option<&Leak>) -> Vec<Advice> {
    let is = |kind| verdicts.iter().any(|verdict| verdict.kind == kind);
    if is(VerdictKind::Healthy) {
        return Vec::new();
    }
    let mut advice = Vec::new();
    advice.extend(leak.and_then(|leak| stop_leak(facts, leak)));
    if is(VerdictKind::OtherProcess) {
        advice.extend(make_others_leave(facts));
    }
    if is(VerdictKind::LimitLow) && leak.is_none() {
        advice.extend(raise_the_limit(facts));
    }
    if is(VerdictKind::TooBig) || is(VerdictKind::TransientPeak) {
        advice.extend(smaller_batch(facts, is(VerdictKind::TransientPeak)));
    }
    if leak.is_none() {
        advice.extend(settings::advice(facts, is(VerdictKind::ReservedIdle)));
        advice.extend(plan_ahead(facts));
    }
    if facts.device.trace.is_some() && !facts.may_replay() {
        let change = "replay the trace under one allocator at a time (`plimsoll replay --allocator`)";
        let because = "it is so long that the time for explaining it was over before all was tried";
        advice.push(argued(change, None, None, because));
    }
    advice.retain(|advice| is_worth_telling(facts, advice));
    // What helps comes first; what replay could not decide before what it found useless.
    advice.sort_by_key(|advice| match advice.would_survive {
        Some(true) => 0,
        None => 1,
        Some(false) => 2,
    });
    advice
}

/// Whether advice makes a difference. After a failure it is also good to know what would not have helped; without
/// one only what reserves less than the pool did is worth a change.
fn is_worth_telling(facts: &Facts<'_>, advice: &Advice) -> bool {
    match (facts.is_refusal(), advice.peak_reserved_bytes.zip(facts.peak_reserved())) {
        (false, Some((then, now))) => then < now,
        _ => true,
    }
}

/// Replays a trace under an allocator, within the limit that the program had when it failed. The allocator that
/// made the recording goes on from what it had; any other starts afresh. `None` if the time for replays is over.
fn replayed(facts: &Facts<'_>, trace: &Trace, model: &Model) -> Option<Outcome> {
    facts.may_replay().then(|| replay(trace, model, replay_limit(facts), start(facts, model)))
}

fn start(facts: &Facts<'_>, model: &Model) -> Start {
    if facts.device.model.as_ref() == Some(model) { Start::Recorded } else { Start::Afresh }
}

/// The limit to replay within: only a refusal makes it matter.
fn replay_limit(facts: &Facts<'_>) -> Option<u64> {
    facts.bound.filter(|_| facts.is_refusal()).map(|bound| bound.bytes)
}

/// Advice that a replay has tested.
fn tested(change: impl Into<String>, outcome: &Outcome, why: &str) -> Advice {
    let said = match outcome.failed_at {
        None => format!("replay: survives with at most {} reserved", format_bytes(outcome.peak_reserved)),
        Some(FailedAt { event: Some(event), bytes }) => {
            format!("replay: event {} is refused {}", event + 1, format_bytes(bytes))
        }
        Some(FailedAt { event: None, bytes }) => {
            format!("replay: {} that were live when recording began do not fit", format_bytes(bytes))
        }
    };
    let points = outcome.timeline.iter().map(|at| (at.event as u32, at.live, at.reserved));
    Advice {
        change: change.into(),
        would_survive: Some(outcome.survived()),
        peak_reserved_bytes: Some(outcome.peak_reserved),
        because: if why.is_empty() { said } else { format!("{said}; {why}") },
        timeline: Some(points.collect()),
    }
}

/// Advice whose effect follows from arithmetic, or cannot be told.
fn argued(
    change: impl Into<String>,
    would_survive: Option<bool>,
    peak: Option<u64>,
    because: impl Into<String>,
) -> Advice {
    Advice {
        change: change.into(),
        would_survive,
        peak_reserved_bytes: peak,
        because: because.into(),
        timeline: None,
    }
}

/// Release what leaks.
fn stop_leak(facts: &Facts<'_>, leak: &Leak) -> Option<Advice> {
    let trace = facts.device.trace.as_ref()?;
    let steps = facts.history.as_ref()?.steps.as_ref()?;
    let (site_of, how) = (call_site(&facts.device.owners, leak.under), how_to_release(facts.framework));
    let location = match leak.call_sites.first() {
        _ if leak.under != plimsoll_memory::OwnerId::UNKNOWN => site_of.location,
        Some((site, ..)) => site.location.clone(),
        None => return None,
    };
    let change = format!("release what {location} allocates in each step: {how}");
    let why = "with each step's share freed when the step ends";
    match &facts.device.model {
        Some(model) => {
            let counterfactual = freed_after_their_step(trace, steps, &leak.requests);
            Some(tested(change, &replayed(facts, &counterfactual, model)?, why))
        }
        None => {
            let (live, _) = freed_after_their_step(trace, steps, &leak.requests).peak_live();
            let because = format!(
                "live bytes stay below {}; the allocator is not known, so its fragmentation is not either",
                format_bytes(live)
            );
            Some(argued(change, None, None, because))
        }
    }
}

fn how_to_release(framework: Framework) -> &'static str {
    match framework {
        Framework::PyTorch => {
            "append loss.item() or tensor.detach().cpu(), not the tensor with its graph; clear the list"
        }
        Framework::TensorFlow => {
            "keep float(loss) or tensor.numpy(), use the tape once, and give tf.function one input signature"
        }
        Framework::Jax | Framework::TensorFlowOrJax => "keep float(x) or jax.device_get(x), or x.delete() it",
        Framework::Plimsoll => "drop the tensor, or keep its numbers (`to_vec`)",
    }
}

/// Free the device of other processes.
fn make_others_leave(facts: &Facts<'_>) -> Option<Advice> {
    let names: Vec<&str> = facts.device.others.iter().map(|(name, _)| name.as_str()).collect();
    let who = if names.is_empty() { "the other processes".to_string() } else { names.join(", ") };
    let needed = facts.reserved?.saturating_add(facts.refused?);
    let others = facts.others();
    let because = match others {
        Some(others) => {
            format!("they hold {}; the request needs {}", format_bytes(others), format_bytes(facts.refused?))
        }
        None => "what they hold was not recorded; `nvidia-smi` lists them".into(),
    };
    let survives =
        others.and_then(|others| Some(facts.device.device_free?.saturating_add(others) >= facts.refused?));
    Some(argued(format!("end {who}, or use another device"), survives, Some(needed), because))
}

/// Raise the limit as far as the program needs.
fn raise_the_limit(facts: &Facts<'_>) -> Option<Advice> {
    let refused = facts.refused?;
    let needed = match (&facts.device.trace, &facts.device.model) {
        (Some(trace), Some(model)) if facts.may_replay() => {
            replay(trace, model, None, start(facts, model)).peak_reserved
        }
        _ => facts.live?.saturating_add(refused),
    };
    let from =
        facts.bound.filter(|bound| bound.by == BoundBy::ConfiguredLimit).map_or(0, |bound| bound.bytes);
    let name = settings::limit(facts, needed);
    let beyond = || facts.device.capacity.and_then(|capacity| capacity.checked_sub(from));
    let free = facts.device.device_free.or_else(beyond);
    let fits = free.map(|free| needed <= facts.reserved.unwrap_or(0).saturating_add(free));
    let because = format!("the program needs {} to serve the refused request", format_bytes(needed));
    Some(argued(name, fits, Some(needed), because))
}

/// Half the batch, twice as often.
fn smaller_batch(facts: &Facts<'_>, transient: bool) -> Option<Advice> {
    let change = "halve the batch and accumulate the gradients of 2 batches a step";
    let assumption = "assuming that what lives less than a step halves with the batch";
    let steps = facts.history.as_ref().and_then(|history| history.steps.as_ref());
    let tells = transient || steps.is_some();
    let (Some(trace), Some(model), true) = (&facts.device.trace, &facts.device.model, tells) else {
        let because = "what scales with the batch cannot be told without a trace of at least one step";
        return Some(argued(change, None, None, because));
    };
    let outcome = replayed(facts, &half_the_batch(trace, steps), model)?;
    Some(tested(change, &outcome, assumption))
}

/// The best that knowing all lifetimes ahead can do.
fn plan_ahead(facts: &Facts<'_>) -> Option<Advice> {
    let trace = facts.device.trace.as_ref().filter(|_| settings::hopeless(facts).is_none())?;
    if !facts.may_replay() {
        return None;
    }
    let planned = planned(trace);
    let survives = Some(replay_limit(facts).is_none_or(|limit| planned.peak_bytes <= limit));
    let because = format!(
        "all requests packed offline: {}; lower bound for any allocator: {}",
        format_bytes(planned.peak_bytes),
        format_bytes(planned.lower_bound)
    );
    Some(argued(
        "plan the offsets ahead of the run, as Plimsoll does",
        survives,
        Some(planned.peak_bytes),
        because,
    ))
}

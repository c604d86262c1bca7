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
mod words;

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
    let first = verdicts.first().map(|verdict| verdict.kind);
    let mut advice = first.map_or_else(Vec::new, |first| words::advice(facts, first));
    let decided =
        [VerdictKind::HostMemory, VerdictKind::NotMemory, VerdictKind::RefusedWithRoom, VerdictKind::Full];
    if first.is_some_and(|first| decided.contains(&first)) {
        return advice;
    }
    advice.extend(leak.and_then(|leak| stop_leak(facts, leak)));
    // Without a trace nothing is tried, and the order is that of the verdicts.
    let words_only = facts.device.trace.is_none() && facts.layout.is_none();
    if words_only && first == Some(VerdictKind::Fragmented) {
        advice.extend(settings::advice(facts, false, true));
    }
    if is(VerdictKind::OtherProcess) {
        advice.extend(make_others_leave(facts));
    }
    if is(VerdictKind::LimitLow) && leak.is_none() {
        advice.extend(raise_the_limit(facts));
    }
    if is(VerdictKind::TooBig) || is(VerdictKind::TransientPeak) {
        advice.extend(smaller_batch(facts, is(VerdictKind::TransientPeak)));
        advice.extend(settings::raise_a_visible_limit(facts).filter(|_| !is(VerdictKind::LimitLow)));
    }
    let other = words_only && matches!(first, Some(VerdictKind::OtherProcess | VerdictKind::TooBig));
    if leak.is_none() && !other && !(words_only && first == Some(VerdictKind::Fragmented)) {
        let fragmented = is(VerdictKind::Fragmented);
        advice.extend(settings::advice(facts, is(VerdictKind::ReservedIdle), fragmented));
        advice.extend(plan_ahead(facts));
    }
    if facts.device.trace.is_some() && !facts.may_replay() {
        let change = "replay the trace under one allocator at a time (`plimsoll replay --allocator`)";
        let because = "it is so long that the time for explaining it was over before all was tried";
        advice.push(argued(change, None, None, because));
    }
    advice.retain(|advice| is_worth_telling(facts, advice));
    if words_only {
        return advice;
    }
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
        _ => "drop what is no longer needed",
    }
}

/// The most that the context of a process and its libraries take on a device.
const CONTEXT: u64 = 3 << 29;

/// Free the device of other processes.
fn make_others_leave(facts: &Facts<'_>) -> Option<Advice> {
    let names: Vec<&str> = facts.device.others.iter().map(|(name, _)| name.as_str()).collect();
    let who = if names.is_empty() {
        format!("the other processes ({} lists them)", facts.device.program.process_list())
    } else {
        names.join(", ")
    };
    let needed = facts.reserved.or(facts.live)?.saturating_add(facts.refused?);
    let others = facts.others();
    let because = match others {
        Some(others) => {
            format!(
                "{} are held beside this program; the request needs {}",
                format_bytes(others),
                format_bytes(facts.refused?)
            )
        }
        None => "what they hold was not recorded".into(),
    };
    let ranks = facts.device.program.ranks && names.len() > 1;
    let change = match ranks {
        true => format!(
            "give each rank a device of its own (torch.cuda.set_device(local_rank), before anything else uses a device), or end what \
             is not of this job: {who}"
        ),
        false => format!("end {who}, if yours, or use another device"),
    };
    // Of what no process is named for, a part may be this one's context.
    let own = if facts.device.others.is_empty() && facts.device.process.is_none() { CONTEXT } else { 0 };
    let survives = others.and_then(|others| {
        let free = facts.device.device_free?.saturating_add(others.saturating_sub(own));
        (free >= facts.refused?).then_some(true)
    });
    Some(argued(change, survives, Some(needed), because))
}

/// Raise the limit as far as the program needs.
fn raise_the_limit(facts: &Facts<'_>) -> Option<Advice> {
    let refused = facts.refused?;
    let needed = match (&facts.device.trace, &facts.device.model) {
        (Some(trace), Some(model)) if facts.may_replay() => {
            replay(trace, model, None, start(facts, model)).peak_reserved
        }
        // The pool keeps what it has reserved.
        _ => facts.live?.max(facts.reserved.unwrap_or(0)).saturating_add(refused),
    };
    // No advice lowers a limit.
    let needed = needed.max(facts.device.limit.map_or(0, |limit| limit.saturating_add(refused)));
    let from =
        facts.bound.filter(|bound| bound.by == BoundBy::ConfiguredLimit).map_or(0, |bound| bound.bytes);
    let name = settings::limit(facts, needed);
    let name = match facts.device.trace {
        Some(_) => name,
        // What comes after the request is not known.
        None => format!("remove the limit that was set, or raise it: at least {name}"),
    };
    let beyond = || facts.device.capacity.and_then(|capacity| capacity.checked_sub(from));
    let free = facts.device.device_free.or_else(beyond);
    let fits = free.map(|free| needed <= facts.reserved.unwrap_or(0).saturating_add(free));
    let because = format!("the program needs {} to serve the refused request", format_bytes(needed));
    Some(argued(name, fits, Some(needed), because))
}

/// Less work at once: half the batch, twice as often, where a trace can tell what comes of it.
fn smaller_batch(facts: &Facts<'_>, transient: bool) -> Vec<Advice> {
    if facts.device.trace.is_none() {
        return words::smaller_work(facts);
    }
    let change = "halve the batch and accumulate the gradients of 2 batches a step";
    let assumption = "assuming that what lives less than a step halves with the batch";
    let steps = facts.history.as_ref().and_then(|history| history.steps.as_ref());
    let tells = transient || steps.is_some();
    let (Some(trace), Some(model), true) = (&facts.device.trace, &facts.device.model, tells) else {
        let because = "what scales with the batch cannot be told without a trace of at least one step";
        return vec![argued(change, None, None, because)];
    };
    let outcome = replayed(facts, &half_the_batch(trace, steps), model);
    outcome.map(|outcome| tested(change, &outcome, assumption)).into_iter().collect()
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

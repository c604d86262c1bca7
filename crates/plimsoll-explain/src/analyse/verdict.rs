//! Verdicts: what is wrong, in a sentence, with the numbers that show it.
//!
//! Each kind is a test of its own over the same facts, and several can hold. They are listed in the order in which
//! a person would want to hear them: first what the program does wrong, then what stands in its way, then what is
//! merely so.

mod fragmented;
mod leaking;
mod refused;
mod reserved_idle;
mod told;

pub(crate) use leaking::Leak;
pub(crate) use told::is_of_ray;

use crate::analyse::call_site::call_site;
use crate::analyse::facts::Facts;
use crate::explanation::{Verdict, VerdictKind};
use crate::recording::Origin;
use plimsoll_memory::quoted;
use plimsoll_memory::{Action, Model, OwnerId, format_bytes};

/// All that holds; never empty.
pub(crate) fn verdicts(facts: &Facts<'_>, leak: Option<&Leak>) -> Vec<Verdict> {
    if let Some(verdict) = told::verdict(facts).or_else(|| refused::with_room(facts)) {
        return vec![with_who(facts, verdict)];
    }
    let mut verdicts = Vec::new();
    // Who holds most of the device is in the way of everything else; so is a limit, as far as a message can tell.
    verdicts.extend(refused::other_process(facts).filter(|_| refused::others_come_first(facts)));
    if verdicts.is_empty() && facts.device.trace.is_none() && facts.layout.is_none() {
        verdicts.extend(refused::limit_low(facts));
    }
    verdicts.extend(leak.map(|leak| leak.verdict(facts)).or_else(|| leaking::many_equal_blocks(facts)));
    if !has(&verdicts, VerdictKind::OtherProcess) && !has(&verdicts, VerdictKind::LimitLow) {
        verdicts.extend(fragmented::verdict(facts));
        verdicts.extend(refused::other_process(facts));
    }
    // A leak outgrows any limit: then the leak is the finding, and no limit is too low.
    if leak.is_none() && !has(&verdicts, VerdictKind::LimitLow) {
        verdicts.extend(refused::limit_low(facts));
    }
    if leak.is_none() && !has(&verdicts, VerdictKind::OtherProcess) {
        verdicts.extend(refused::transient_peak(facts));
        verdicts.extend(refused::too_big(facts));
    }
    verdicts.extend(reserved_idle::verdict(facts));
    if verdicts.is_empty() {
        verdicts.push(if facts.failed() { told::full(facts) } else { healthy(facts) });
    }
    let first = verdicts.remove(0);
    verdicts.insert(0, with_who(facts, first));
    verdicts
}

/// With who asked for what was refused, where that is known.
fn with_who(facts: &Facts<'_>, mut verdict: Verdict) -> Verdict {
    if let Some(who) = who_was_refused(facts) {
        verdict.proof.push(format!("the request that was refused: {who}"));
    }
    verdict
}

/// What holds of a recording of which a part is missing, whatever that part says: that it is missing, and a refusal that
/// no rest can undo, since what was in use is at least what was read. A log that shows a failure is answered with that.
pub(crate) fn verdicts_of_a_part(facts: &Facts<'_>, origin: &Origin) -> Vec<Verdict> {
    let missing = origin.gaps.iter().cloned();
    if facts.failed() && facts.device.trace.is_none() {
        let certain = told::verdict(facts).or_else(|| refused::too_big_in_any_case(facts));
        let verdict = certain.unwrap_or_else(|| told::full(facts));
        return vec![with_who(facts, verdict)];
    }
    let sentence =
        "Incomplete: a part of the recording is missing, and with it what most verdicts would rest on; \
                    what follows is of the part that could be read."
            .to_string();
    let mut verdicts = vec![Verdict { kind: VerdictKind::Incomplete, sentence, proof: missing.collect() }];
    verdicts.extend(refused::too_big_in_any_case(facts));
    if let (Some(refused), 1) = (facts.refused, verdicts.len()) {
        verdicts[0].proof.push(format!("a request that was refused: {}", format_bytes(refused)));
    }
    verdicts
}

/// Who asked for what was refused, where that is known.
fn who_was_refused(facts: &Facts<'_>) -> Option<String> {
    let device = facts.device;
    let owner = match (facts.refusal_event(), &device.trace) {
        (Some(event), Some(trace)) => match trace.events.get(event)?.action {
            Action::Refuse(id) => trace.request(id).owner,
            _ => OwnerId::UNKNOWN,
        },
        _ => OwnerId::UNKNOWN,
    };
    match (owner, device.failure.as_ref().and_then(|failure| failure.op.as_ref())) {
        (OwnerId::UNKNOWN, op) => op.filter(|op| !op.is_empty()).map(|op| quoted(op).into_owned()),
        (owner, _) => Some(call_site(&device.owners, owner).location),
    }
}

fn has(verdicts: &[Verdict], kind: VerdictKind) -> bool {
    verdicts.iter().any(|verdict| verdict.kind == kind)
}

/// Whether the pool takes memory as it goes, not all at the start.
fn grows(facts: &Facts<'_>) -> bool {
    match &facts.device.model {
        Some(Model::Bfc(settings)) => settings.growth,
        _ => true,
    }
}

/// What is said of a program in which nothing is wrong.
fn healthy(facts: &Facts<'_>) -> Verdict {
    let live = facts.live.unwrap_or(0);
    let mut proof = Vec::new();
    if let Some(peak) = facts.peak_live() {
        proof.push(format!("most in use at once: {peak} bytes"));
    }
    if let Some(history) = &facts.history
        && let (Some(first), Some(last)) = (history.step_ends.get(1), history.step_ends.last())
    {
        let steps = history.step_ends.len();
        proof.push(format!("live at the end of step 2: {first} bytes; of step {steps}: {last} bytes"));
    }
    // Only steps can show that nothing grows; one moment cannot.
    let steps = facts.history.as_ref().is_some_and(|history| history.steps.is_some());
    let end = if steps { "nothing grows" } else { "nothing was refused" };
    let sentence = match (facts.peak_live(), facts.peak_reserved()) {
        (Some(peak), Some(reserved)) if reserved > 0 => {
            proof.push(format!("most reserved by the pool: {reserved} bytes"));
            format!(
                "Healthy: at its peak the program used {} of the {} its pool had reserved, and {end}.",
                format_bytes(peak),
                format_bytes(reserved)
            )
        }
        (Some(peak), _) => {
            format!("Healthy: the program used {} at its peak, and {end}.", format_bytes(peak))
        }
        _ => format!("Healthy: {} are in use, and {end}.", format_bytes(live)),
    };
    if !steps {
        proof.push("growth cannot be told: the recording has no steps".into());
    }
    Verdict { kind: VerdictKind::Healthy, sentence, proof }
}

//! A request was refused: too big, a limit, another process, or a short overlap at the peak.

use crate::analyse::call_site::call_site;
use crate::analyse::facts::{BoundBy, Facts, PoolBound};
use crate::analyse::history::live_after;
use crate::analyse::usage::total;
use crate::explanation::{Verdict, VerdictKind};
use crate::text::counted;
use plimsoll_memory::{Action, OwnerId, RequestId, Trace, format_bytes};
use std::collections::HashSet;

/// What another process must hold of the device to be worth a verdict.
const OTHERS: f64 = 0.05;

/// Another process holds what the request needed.
pub(crate) fn other_process(facts: &Facts<'_>) -> Option<Verdict> {
    let refused = facts.refused?;
    let device = facts.device;
    let mut proof = Vec::new();
    let sentence = match (facts.others(), device.capacity) {
        (Some(others), Some(capacity)) if others as f64 >= OTHERS * capacity as f64 => {
            let free = device.device_free.unwrap_or(0);
            if free >= refused || free.saturating_add(others) < refused {
                return None;
            }
            for (name, bytes) in &device.others {
                proof.push(format!("{name}: {}", format_bytes(*bytes)));
            }
            proof.push(format!(
                "free on the device: {}; requested: {}",
                format_bytes(free),
                format_bytes(refused)
            ));
            format!(
                "Another process: {} of the device's {} are held by others; without them the requested {} would fit.",
                format_bytes(others),
                format_bytes(capacity),
                format_bytes(refused)
            )
        }
        // A pool that may still grow and cannot: another process holds what the limit promised.
        _ => {
            let (limit, reserved) = (device.limit?, facts.reserved?);
            let promised = limit.saturating_sub(reserved);
            if !super::grows(facts) || promised < refused || facts.framework == crate::Framework::Plimsoll {
                return None;
            }
            if device.device_free.is_some_and(|free| free >= refused) {
                return None;
            }
            proof.push(format!("limit {limit} bytes, reserved {reserved} bytes, requested {refused} bytes"));
            format!(
                "Another process: the pool may reserve {} more and the device refused {}, so another process holds them.",
                format_bytes(promised),
                format_bytes(refused)
            )
        }
    };
    Some(Verdict { kind: VerdictKind::OtherProcess, sentence, proof })
}

/// A limit was reached while the device had free memory.
pub(crate) fn limit_low(facts: &Facts<'_>) -> Option<Verdict> {
    let (refused, bound) = (facts.refused?, facts.bound?);
    let needed = facts.live?.saturating_add(refused);
    if bound.by == BoundBy::Device {
        return None;
    }
    let device = facts.device;
    // What the device had beyond the limit.
    let free = match (device.device_free, device.capacity) {
        (Some(free), _) => free,
        (None, Some(capacity)) => capacity.checked_sub(bound.bytes)?,
        (None, None) => return None,
    };
    let taken = facts.reserved?;
    if free < refused {
        return None;
    }
    let limit = limit_in_words(facts, bound, refused);
    let sentence = format!(
        "Limit set low: {} were refused at {limit} while {} of the device were free.",
        format_bytes(refused),
        format_bytes(free)
    );
    let mut proof = vec![
        format!(
            "reserved by the pool: {taken} bytes; requested: {refused} bytes; free on the device: {free} bytes"
        ),
        format!(
            "needed at that moment: {} in use + {} requested = {}",
            format_bytes(needed - refused),
            format_bytes(refused),
            format_bytes(needed)
        ),
    ];
    if bound.by == BoundBy::InferredLimit {
        proof.push(
            "the limit is inferred from a refusal while the device had free memory; its size was not recorded".into(),
        );
    }
    Some(Verdict { kind: VerdictKind::LimitLow, sentence, proof })
}

/// A limit, or what is known of one that was not recorded.
fn limit_in_words(facts: &Facts<'_>, bound: PoolBound, refused: u64) -> String {
    match (bound.by, facts.reserved) {
        (BoundBy::InferredLimit, Some(reserved)) => {
            let (low, high) = (format_bytes(bound.bytes), format_bytes(reserved.saturating_add(refused)));
            format!("a limit between {low} and {high}")
        }
        _ => format!("the limit of {}", format_bytes(bound.bytes)),
    }
}

/// What is live at once, with the request, is more than there is: no allocator could have served it.
pub(crate) fn too_big(facts: &Facts<'_>) -> Option<Verdict> {
    let refused = facts.refused?;
    let asked = facts.requested.or(facts.live);
    let (sentence, proof) = match (asked, facts.bound) {
        (Some(asked), Some(bound)) => {
            let needed = asked.saturating_add(refused);
            if needed <= bound.bytes && !facts.is_nearly_full() {
                return None;
            }
            let bound_in_words = match bound.by {
                BoundBy::Device => {
                    format!("the {} that the device has for this pool", format_bytes(bound.bytes))
                }
                _ => limit_in_words(facts, bound, refused),
            };
            let against = if needed > bound.bytes { "over" } else { "which nearly fill" };
            let sentence = format!(
                "Too big: {} in use and {} requested are {}, {against} {bound_in_words}.",
                format_bytes(asked),
                format_bytes(refused),
                format_bytes(needed)
            );
            let by = match bound.by {
                BoundBy::ConfiguredLimit => "the configured limit",
                BoundBy::InferredLimit => "the most that the pool ever reserved",
                BoundBy::Device => "what the device has for this pool",
            };
            (sentence, vec![format!("{asked} + {refused} = {needed} bytes; {} bytes: {by}", bound.bytes)])
        }
        _ => {
            let sentence = format!(
                "Too big: {} were requested and refused; what else was in use was not recorded.",
                format_bytes(refused)
            );
            (sentence, vec![format!("requested: {refused} bytes")])
        }
    };
    let mut proof = proof;
    for held in facts.holders.iter().take(5) {
        let (bytes, count) = (format_bytes(held.bytes), counted(held.count, "allocation"));
        proof.push(format!("in use: {bytes} in {count} at {}", held.site.location));
    }
    proof.extend(equal_blocks(facts));
    Some(Verdict { kind: VerdictKind::TooBig, sentence, proof })
}

/// The same of a part of a recording: what was read as in use, with the request, is over a bound that was told as such.
pub(crate) fn too_big_in_any_case(facts: &Facts<'_>) -> Option<Verdict> {
    let (refused, device) = (facts.refused?, facts.device);
    let bound = device.limit.or(device.capacity)?;
    let asked = facts.requested.or(facts.live).unwrap_or(0);
    let needed = asked.saturating_add(refused);
    let sentence = format!(
        "Too big: at least {} in use and {} requested are over the {} that there are.",
        format_bytes(asked),
        format_bytes(refused),
        format_bytes(bound)
    );
    let proof = vec![format!("{asked} + {refused} = {needed} bytes; {bound} bytes: the limit or the device")];
    (needed > bound).then_some(Verdict { kind: VerdictKind::TooBig, sentence, proof })
}

/// Many blocks of one size that hold most of the memory: what a list that grows looks like in a single dump.
fn equal_blocks(facts: &Facts<'_>) -> Option<String> {
    let (size, count, share) = facts.dominant_block_size()?;
    (count >= 16 && share >= 0.5).then(|| {
        format!(
            "{count} blocks of {} each are {:.0} % of what is in use: if their number grows with the steps, they leak (a \
             dump cannot tell; a snapshot or profile over several steps can)",
            format_bytes(size),
            100.0 * share
        )
    })
}

/// The share of what was needed that must be short-lived for the peak to be called transient.
const SHORT: f64 = 0.5;
/// A short overlap sets the peak: most of what was needed at once lives less than a step.
pub(crate) fn transient_peak(facts: &Facts<'_>) -> Option<Verdict> {
    let (trace, history, refused) = (facts.device.trace.as_ref()?, facts.history.as_ref()?, facts.refused?);
    let event = facts.refusal_event()?;
    let asked = facts.requested?;
    let needed = asked.saturating_add(refused);
    if facts.bound.is_some_and(|bound| needed <= bound.bytes) {
        return None;
    }
    let start =
        history.steps.as_ref().and_then(|steps| steps.boundaries.iter().rfind(|&&b| b <= event)).copied();
    let short = short_lived(trace, start, event);
    let passing = total(short.iter().map(|&id| trace.request(id).bytes)).saturating_add(refused);
    if (passing as f64) < SHORT * needed as f64 || short.is_empty() {
        return None;
    }
    let lasting = needed.saturating_sub(passing);
    let sentence = format!(
        "Transient peak: of the {} needed at once, {} live for less than a step; {} persist.",
        format_bytes(needed),
        format_bytes(passing),
        format_bytes(lasting)
    );
    let mut largest = short.clone();
    largest.sort_by_key(|&id| std::cmp::Reverse(trace.request(id).bytes));
    let mut proof = vec![format!(
        "{} short-lived allocations overlap the refused {}:",
        short.len(),
        format_bytes(refused)
    )];
    proof.extend(largest.iter().take(6).map(|&id| {
        let request = trace.request(id);
        let location = call_site(&facts.device.owners, request.owner).location;
        format!("{} allocated at {location}", format_bytes(request.bytes))
    }));
    Some(Verdict { kind: VerdictKind::TransientPeak, sentence, proof })
}

/// What is live at `event` and lives briefly: asked for in the step under way by an owner whose earlier requests were
/// freed again, or freed when the refusal unwound the program.
fn short_lived(trace: &Trace, start: Option<usize>, event: usize) -> Vec<RequestId> {
    let start = start.unwrap_or(0);
    let mut frees: HashSet<OwnerId> = HashSet::new();
    let mut under_way = vec![false; trace.requests.len()];
    let mut unwound = vec![false; trace.requests.len()];
    for (index, at) in trace.events.iter().enumerate() {
        match at.action {
            Action::Allocate(id) if (start..event).contains(&index) => under_way[id.0 as usize] = true,
            Action::Free(id) if index < start => {
                frees.insert(trace.request(id).owner);
            }
            Action::Free(id) if index > event => unwound[id.0 as usize] = true,
            _ => {}
        }
    }
    let brief = |id: &RequestId| {
        let at = id.0 as usize;
        under_way[at] && (unwound[at] || frees.contains(&trace.request(*id).owner))
    };
    live_after(trace, event).into_iter().filter(brief).collect()
}

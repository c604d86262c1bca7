//! A request was refused: too big, a limit, another process, or a short overlap at the peak.

use crate::analyse::call_site::call_site;
use crate::analyse::facts::{BoundBy, Facts, PoolBound};
use crate::analyse::history::live_after;
use crate::analyse::usage::total;
use crate::explanation::{Verdict, VerdictKind};
use crate::program::Backend;
use crate::recording::Framework;
use crate::text::counted;
use plimsoll_memory::{Action, OwnerId, RequestId, Trace, format_bytes};
use std::collections::HashSet;

/// What others must hold of the device to be worth a verdict.
const OTHERS: f64 = 0.1;
/// What a driver may keep of a device's last free bytes.
const KEPT: f64 = 0.02;
const KEPT_BYTES: u64 = 64 << 20;

/// One request of this size is a thing to cut by itself, whatever else is held. llama.cpp asks for whole models and caches
/// at once; of PyTorch's messages without figures the rest is missing, which may say that others are in the way.
fn huge(framework: Framework) -> u64 {
    match framework {
        Framework::LlamaCpp => 2 << 30,
        Framework::PyTorch => 8 << 30,
        _ => 4 << 30,
    }
}

/// The driver refused although enough is free, and no limit was set.
pub(crate) fn with_room(facts: &Facts<'_>) -> Option<Verdict> {
    if let Some(verdict) = over_the_largest_piece(facts) {
        return Some(verdict);
    }
    let (device, refused, free) = (facts.device, facts.refused?, facts.device.device_free?);
    if device.trace.is_some() || device.limit.is_some() || device.layout.is_some() {
        return None;
    }
    if !has_room(facts, free, refused) {
        return None;
    }
    let sentence = format!(
        "Refused with room: the driver refused {} while it reported {} free. The device was not full.",
        format_bytes(refused),
        format_bytes(free)
    );
    let mut proof =
        vec![format!("requested: {}; free on the device: {}", format_bytes(refused), format_bytes(free))];
    if let Some(capacity) = device.capacity.filter(|&capacity| free > capacity) {
        proof.push(format!(
            "more is reported free than the device has ({}): it shares the host's memory, and the two figures are of \
             different parts of it",
            format_bytes(capacity)
        ));
    }
    let limit = match facts.framework {
        Framework::PyTorch => {
            ", a limit that the program set itself (torch.cuda.set_per_process_memory_fraction)"
        }
        _ => "",
    };
    proof.push(format!(
        "what does this: the operating system may not promise more memory (on Windows: the paging file), one allocation is \
         larger than the driver gives at once, the process has too many mappings{limit}, or another process took memory for a \
         moment and gave it back"
    ));
    Some(Verdict { kind: VerdictKind::RefusedWithRoom, sentence, proof })
}

/// Intel's driver gives at most so much in one piece, unless it is told otherwise.
const XPU_PIECE: u64 = 4 << 30;

/// Intel's device that this program leaves mostly empty and whose free memory was not told.
fn over_the_largest_piece(facts: &Facts<'_>) -> Option<Verdict> {
    let (device, refused, capacity) = (facts.device, facts.refused?, facts.device.capacity?);
    let mine = facts.reserved.or(facts.live)?;
    let needed = mine.saturating_add(refused);
    let piece = refused >= XPU_PIECE && needed <= capacity / 4 * 3;
    let untold = device.program.backend == Some(Backend::Xpu) && device.device_free.is_none();
    if !untold || !piece && needed > capacity / 4 {
        return None;
    }
    let why = if piece {
        "Intel's driver gives less than 4 GiB in one piece unless it is told otherwise"
    } else {
        "the driver may give less in one piece, or another program hold the rest"
    };
    let sentence = format!(
        "Refused with room: {} were requested of a device of {} of which this program held {}; {why}.",
        format_bytes(refused),
        format_bytes(capacity),
        format_bytes(mine)
    );
    let proof = vec!["what was free is not in the message: another program may hold it instead".into()];
    Some(Verdict { kind: VerdictKind::RefusedWithRoom, sentence, proof })
}

/// Whether a request fits into what is free, with what a driver may keep of that.
fn has_room(facts: &Facts<'_>, free: u64, refused: u64) -> bool {
    let share = facts.device.capacity.map_or(0, |capacity| (KEPT * capacity as f64) as u64);
    free >= refused.saturating_add(KEPT_BYTES.max(share))
}

/// Whether other processes hold more than half of the device, or what a pool may still take.
pub(crate) fn others_come_first(facts: &Facts<'_>) -> bool {
    others_hold_most(facts) || promised(facts).is_some()
}

/// What a pool may still take by its limit, where that is enough and the device refused it.
fn promised(facts: &Facts<'_>) -> Option<u64> {
    let (device, refused) = (facts.device, facts.refused?);
    let (limit, reserved) = (device.limit?, facts.reserved?);
    let promised = limit.saturating_sub(reserved);
    let alone = [Framework::Plimsoll, Framework::PyTorch].contains(&facts.framework);
    let free = device.device_free.is_some_and(|free| free >= refused);
    (super::grows(facts) && promised >= refused && !alone && !free).then_some(promised)
}

/// Whether other processes hold more than half of the device.
fn others_hold_most(facts: &Facts<'_>) -> bool {
    let (Some(others), Some(capacity)) = (facts.others(), facts.device.capacity) else { return false };
    others > capacity / 2
}

/// Another process holds what the request needed.
pub(crate) fn other_process(facts: &Facts<'_>) -> Option<Verdict> {
    let refused = facts.refused?;
    let device = facts.device;
    let mut proof = Vec::new();
    let sentence = match (facts.others(), device.capacity) {
        (Some(others), Some(capacity)) if others as f64 >= OTHERS * capacity as f64 => {
            let free = device.device_free.unwrap_or(0);
            // So little is free that the driver may keep it, if others hold most.
            let kept = free >= refused && others_hold_most(facts) && !has_room(facts, free, refused);
            if free >= refused && !kept {
                return None;
            }
            if free.saturating_add(others) < refused {
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
            let named = !device.others.is_empty() || device.process.is_some();
            if !named {
                proof.push(
                    "they are what is neither free nor reserved by this program's pool; up to 1.3 GiB of them may be its \
                     own context"
                        .into(),
                );
            }
            let (others, capacity, refused) =
                (format_bytes(others), format_bytes(capacity), format_bytes(refused));
            if named {
                format!(
                    "Another process: {others} of the device's {capacity} are held by others; without them the requested \
                     {refused} would fit."
                )
            } else {
                format!(
                    "Another process: {others} of the device's {capacity} are neither free nor in this program's pool, more than a \
                     context takes; without others the requested {refused} would fit."
                )
            }
        }
        // A pool that may still grow and cannot: another process holds what the limit promised.
        _ => {
            let promised = promised(facts)?;
            let (limit, reserved) = (device.limit?, facts.reserved?);
            proof.push(format!(
                "limit {}, reserved {}, requested {}",
                facts.told(limit),
                facts.told(reserved),
                facts.told(refused)
            ));
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
            "reserved by the pool: {}; requested: {}; free on the device: {}",
            facts.told(taken),
            facts.told(refused),
            facts.told(free)
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
    if let Some(limit) = facts.device.limit.filter(|&limit| {
        let apart = format_bytes(limit) != format_bytes(bound.bytes);
        bound.by == BoundBy::ConfiguredLimit && limit > bound.bytes && apart
    }) {
        return format!(
            "the {} that the limit of {} leaves beside what this process holds outside the pool",
            format_bytes(bound.bytes),
            format_bytes(limit)
        );
    }
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
    let (sentence, mut proof) = too_big_by_an_engine(facts)
        .or_else(|| too_big_by_figures(facts))
        .or_else(|| too_big_by_process(facts))
        .or_else(|| too_big_alone(facts))?;
    for held in facts.holders.iter().take(5) {
        let (bytes, count) = (format_bytes(held.bytes), counted(held.count, "allocation"));
        proof.push(format!("in use: {bytes} in {count} at {}", held.site.location));
    }
    proof.extend(beside_the_pool(facts));
    proof.extend(equal_blocks(facts));
    Some(Verdict { kind: VerdictKind::TooBig, sentence, proof })
}

/// What the process itself holds outside its pool, where that is more than a context.
fn beside_the_pool(facts: &Facts<'_>) -> Option<String> {
    const CONTEXT: u64 = 3 << 29;
    let device = facts.device;
    let beside = device.process?.checked_sub(facts.reserved?).filter(|&bytes| bytes > CONTEXT)?;
    let own = facts.framework == Framework::PyTorch && device.program.backend != Some(Backend::Mps);
    own.then(|| {
        format!(
            "this process holds {} outside PyTorch's pool, more than a context takes: buffers of NCCL, workspaces of libraries, or another framework in it",
            format_bytes(beside)
        )
    })
}

/// By what an engine in the same process holds beside the pool.
fn too_big_by_an_engine(facts: &Facts<'_>) -> Option<(String, Vec<String>)> {
    let (device, beside, refused) = (facts.device, facts.held_by_an_engine()?, facts.refused?);
    let sentence = format!(
        "Too big: this process held {} of the device's {}, {} of it outside PyTorch's pool, and {} more were requested.",
        format_bytes(device.process?),
        format_bytes(device.capacity?),
        format_bytes(beside),
        format_bytes(refused)
    );
    (device.device_free? < refused).then_some((sentence, Vec::new()))
}

/// By what is in use and what there is for the pool.
fn too_big_by_figures(facts: &Facts<'_>) -> Option<(String, Vec<String>)> {
    let (asked, bound, device) = (facts.requested.or(facts.live)?, facts.bound?, facts.device);
    let Some(refused) = facts.refused else {
        // Something was refused, and what is not told.
        let sentence = format!(
            "Too big: {} were in use of the {} that there are for this pool, and a request was refused.",
            format_bytes(asked),
            format_bytes(bound.bytes)
        );
        let proof = vec![format!("in use: {}; for the pool: {}", facts.told(asked), facts.told(bound.bytes))];
        return (facts.failed() && facts.is_nearly_full()).then_some((sentence, proof));
    };
    let needed = asked.saturating_add(refused);
    if let Some(capacity) = device.capacity.filter(|&capacity| asked > capacity) {
        let sentence = format!(
            "Too big: {} are in use, more than all of the device's {}: the driver has moved a part to the host's memory.",
            format_bytes(asked),
            format_bytes(capacity)
        );
        let proof = vec![format!("requested on top: {}", format_bytes(refused))];
        return Some((sentence, proof));
    }
    // Of a message the figures are rounded, and a pool cannot join its holes with what is free beside it.
    let message = facts.layout.is_none() && device.trace.is_none();
    let nearly = message && needed as f64 >= 0.95 * bound.bytes as f64;
    if needed <= bound.bytes && !nearly && !facts.is_nearly_full() && !is_most_of_the_device(facts, refused) {
        return None;
    }
    let there = match bound.by {
        BoundBy::Device => format!("the {} that the device has for this pool", format_bytes(bound.bytes)),
        _ => limit_in_words(facts, bound, refused),
    };
    // Rounded alike, they are about the same.
    let same = format_bytes(needed) == format_bytes(bound.bytes);
    let against = match () {
        () if same => "which is all of",
        () if needed > bound.bytes => "over",
        () => "which nearly fill",
    };
    let sentence = format!(
        "Too big: {} in use and {} requested are {}, {against} {there}.",
        format_bytes(asked),
        format_bytes(refused),
        format_bytes(needed)
    );
    let by = match bound.by {
        BoundBy::ConfiguredLimit => "the configured limit",
        BoundBy::InferredLimit => "the most that the pool ever reserved",
        BoundBy::Device => "what the device has for this pool",
    };
    let proof = format!(
        "{} + {} = {}; {}: {by}",
        facts.told(asked),
        facts.told(refused),
        facts.told(needed),
        facts.told(bound.bytes)
    );
    Some((sentence, vec![proof]))
}

/// By what the process holds, where the figures of its pool are missing.
fn too_big_by_process(facts: &Facts<'_>) -> Option<(String, Vec<String>)> {
    let (device, refused) = (facts.device, facts.refused?);
    let (process, capacity) = (device.process?, device.capacity?);
    let fills = facts.live.is_none() && process > capacity / 2 && process.saturating_add(refused) > capacity;
    let sentence = format!(
        "Too big: this process held {} of the device's {}, and {} more were requested.",
        format_bytes(process),
        format_bytes(capacity),
        format_bytes(refused)
    );
    fills.then_some((sentence, Vec::new()))
}

/// Whether one request is more than half of the device.
fn is_most_of_the_device(facts: &Facts<'_>, refused: u64) -> bool {
    facts.device.capacity.is_some_and(|capacity| refused > capacity / 2)
}

/// What the compiled program would hold, the largest first.
fn planned(facts: &Facts<'_>) -> Vec<String> {
    let device = facts.device;
    let mut held = if device.reported_at_peak { device.live_by_owner.clone() } else { Vec::new() };
    held.sort_by_key(|&(_, bytes, _)| std::cmp::Reverse(bytes));
    let words = |&(owner, bytes, count): &(OwnerId, u64, u64)| {
        let (bytes, count) = (format_bytes(bytes), counted(count, "buffer"));
        format!("the compiler planned {bytes} in {count} at {}", call_site(&device.owners, owner).location)
    };
    held.iter().take(5).map(words).collect()
}

/// By the request, or the program, alone.
fn too_big_alone(facts: &Facts<'_>) -> Option<(String, Vec<String>)> {
    let (device, refused) = (facts.device, facts.refused.unwrap_or(0));
    let there = device.limit.or(device.capacity);
    let asked = facts.refused.map_or_else(|| "an untold amount".to_string(), format_bytes);
    if let Some(program) = device
        .program_bytes
        .filter(|&bytes| bytes >= huge(facts.framework) || there.is_some_and(|there| bytes > there))
    {
        let needs = format!("Too big: the compiled program needs {} in all", format_bytes(program));
        let sentence = match there.filter(|&there| program > there) {
            Some(there) => format!("{needs}, over the {} that there are.", format_bytes(there)),
            None => format!("{needs}, and {asked} of it was refused."),
        };
        let asked = facts.refused.map(|bytes| format!("requested: {}", facts.told(bytes)));
        return Some((sentence, asked.into_iter().chain(planned(facts)).collect()));
    }
    if let Some(there) = there.filter(|&there| refused > there / 2) {
        let sentence = format!(
            "Too big: {} were requested at once, of a device or pool of {}.",
            format_bytes(refused),
            format_bytes(there)
        );
        return Some((sentence, vec![format!("requested: {}", facts.told(refused))]));
    }
    if let Some(picture) = device.picture.filter(|picture| picture.used >= 90) {
        let sentence = format!(
            "Too big: {asked} was requested of a pool of which {} % were in use; the largest gap is {} % of it.",
            picture.used, picture.largest_gap
        );
        return Some((sentence, vec!["by the map that ends the allocator's dump".into()]));
    }
    (refused >= huge(facts.framework) && facts.bound.is_none()).then(|| {
        let beside = match facts.live.filter(|&live| live >= 1 << 20) {
            Some(live) => format!("at least {} were in use already", format_bytes(live)),
            None => "what else was in use was not recorded".into(),
        };
        let sentence =
            format!("Too big: {} were requested at once and refused; {beside}.", format_bytes(refused));
        (sentence, vec![format!("requested: {}", facts.told(refused))])
    })
}

/// The same of a part of a recording: what was read as in use, with the request, is over a bound that was told as such.
pub(crate) fn too_big_in_any_case(facts: &Facts<'_>) -> Option<Verdict> {
    let (refused, device) = (facts.refused?, facts.device);
    let Some(bound) = device.limit.or(device.capacity) else {
        let (sentence, proof) = too_big_alone(facts).filter(|_| device.trace.is_none())?;
        return Some(Verdict { kind: VerdictKind::TooBig, sentence, proof });
    };
    if let Some((sentence, proof)) = too_big_by_process(facts) {
        return Some(Verdict { kind: VerdictKind::TooBig, sentence, proof });
    }
    let asked = facts.requested.or(facts.live).unwrap_or(0);
    let needed = asked.saturating_add(refused);
    let sentence = format!(
        "Too big: at least {} in use and {} requested are over the {} that there are.",
        format_bytes(asked),
        format_bytes(refused),
        format_bytes(bound)
    );
    let proof = format!(
        "{} + {} = {}; {}: the limit or the device",
        facts.told(asked),
        facts.told(refused),
        facts.told(needed),
        facts.told(bound)
    );
    (needed > bound).then_some(Verdict { kind: VerdictKind::TooBig, sentence, proof: vec![proof] })
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

//! Counterfactual traces: the recorded requests as they would have been, had the program done one thing differently.

use crate::analyse::steps::Steps;
use plimsoll_memory::{Action, RequestId, Trace};
use std::collections::HashSet;

/// The trace, had some requests been freed at the end of the step that asked for them.
pub(crate) fn freed_after_their_step(trace: &Trace, steps: &Steps, requests: &[RequestId]) -> Trace {
    let freed: HashSet<RequestId> = requests.iter().copied().collect();
    let mut changed = Trace { events: Vec::with_capacity(trace.events.len()), ..without_events(trace) };
    let mut boundaries = steps.boundaries.iter().peekable();
    let mut waiting = Vec::new();
    for (index, event) in trace.events.iter().enumerate() {
        while boundaries.next_if(|&&boundary| boundary <= index).is_some() {
            waiting.drain(..).for_each(|id| changed.push(event.time, Action::Free(id)));
        }
        match event.action {
            Action::Allocate(id) if freed.contains(&id) => waiting.push(id),
            Action::Free(id) if freed.contains(&id) => continue,
            _ => {}
        }
        changed.events.push(*event);
    }
    changed
}

/// The trace, had what lives for less than a step been half as large, as it is with half the batch. What was
/// refused is halved too. Without steps, what was freed again counts as living less than one.
pub(crate) fn half_the_batch(trace: &Trace, steps: Option<&Steps>) -> Trace {
    let mut changed = trace.clone();
    let mut granted = vec![None; trace.requests.len()];
    let step = |event| steps.map_or(0, |steps| steps.of(event));
    let mut halve = |id: RequestId| {
        if let Some(request) = changed.requests.get_mut(id.0 as usize) {
            request.bytes = request.bytes.div_ceil(2);
        }
    };
    let mut refused = None;
    for (index, event) in trace.events.iter().enumerate() {
        match event.action {
            Action::Allocate(id) => granted[id.0 as usize] = Some(index),
            // Nothing that lived through a whole step scales with the batch.
            Action::Free(id)
                if granted[id.0 as usize].take().is_some_and(|from| step(index) <= step(from) + 1) =>
            {
                halve(id);
            }
            Action::Refuse(id) => {
                halve(id);
                refused = Some(index);
            }
            _ => {}
        }
    }
    // Of the step that was cut short, the frees are missing.
    if let (Some(refused), Some(steps)) = (refused, steps) {
        let under_way = steps.of(refused);
        for (at, from) in granted.iter().enumerate() {
            if from.is_some_and(|from| step(from) == under_way) {
                halve(RequestId(at as u32));
            }
        }
    }
    changed
}

/// All of a trace but its events.
fn without_events(trace: &Trace) -> Trace {
    Trace {
        requests: trace.requests.clone(),
        initial: trace.initial.clone(),
        initial_reserved: trace.initial_reserved.clone(),
        events: Vec::new(),
        marks: trace.marks.clone(),
        complete: trace.complete,
    }
}

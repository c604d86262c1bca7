//! The settings of each framework's allocator, by their real names, and the models they stand for.

use super::{argued, replay_limit, replayed, tested};
use crate::analyse::facts::Facts;
use crate::analyse::usage::total;
use crate::explanation::Advice;
use crate::recording::Framework;
use plimsoll_memory::{
    BfcSettings, CachingSettings, Model, Outcome, PieceState, Start, Trace, format_bytes, replay,
};

/// What `cuda_malloc_async` and expandable segments map memory in.
const PAGE: u64 = 2 << 20;

/// Settings of the allocator that might help.
pub(crate) fn advice(facts: &Facts<'_>, idle: bool) -> Vec<Advice> {
    match facts.framework {
        Framework::PyTorch => pytorch(facts, idle),
        Framework::TensorFlow | Framework::Jax | Framework::TensorFlowOrJax => xla(facts, idle),
        Framework::Plimsoll => Vec::new(),
    }
}

/// The setting that gives the pool a limit of `bytes`.
pub(crate) fn limit(facts: &Facts<'_>, bytes: u64) -> String {
    let size = format_bytes(bytes);
    let share = facts.device.capacity.map(|capacity| (bytes as f64 / capacity as f64 + 0.0005).min(1.0));
    match (facts.framework, share) {
        (Framework::PyTorch, Some(share)) => {
            format!("torch.cuda.set_per_process_memory_fraction({share:.3}): {size}")
        }
        (Framework::PyTorch, None) => {
            format!("torch.cuda.set_per_process_memory_fraction, to {size} ({bytes} bytes) of the device")
        }
        (Framework::Jax, Some(share)) => format!("XLA_PYTHON_CLIENT_MEM_FRACTION={share:.3}: {size}"),
        (Framework::Jax, None) => {
            format!("XLA_PYTHON_CLIENT_MEM_FRACTION, to {size} ({bytes} bytes) of the device")
        }
        (Framework::TensorFlow, _) => {
            format!("tf.config.LogicalDeviceConfiguration(memory_limit={}): {size}", bytes.div_ceil(1 << 20))
        }
        (Framework::TensorFlowOrJax, _) => format!(
            "a pool of {size} (JAX: XLA_PYTHON_CLIENT_MEM_FRACTION; TensorFlow: LogicalDeviceConfiguration's \
             memory_limit={})",
            bytes.div_ceil(1 << 20)
        ),
        (Framework::Plimsoll, _) => format!("a limit of {size} ({bytes} bytes)"),
    }
}

/// Whether no allocator can help, whatever its settings: what was live and what was requested exceed the bound.
pub(crate) fn hopeless(facts: &Facts<'_>) -> Option<String> {
    let bound = facts.bound.filter(|_| facts.is_refusal())?;
    let asked = facts.requested.or(facts.live)?;
    let needed = asked.saturating_add(facts.refused?);
    (needed > bound.bytes).then(|| {
        format!(
            "no allocator can: {} in use and requested, {} available",
            format_bytes(needed),
            format_bytes(bound.bytes)
        )
    })
}

fn pytorch(facts: &Facts<'_>, idle: bool) -> Vec<Advice> {
    let mut advice = Vec::new();
    let own = match &facts.device.model {
        Some(Model::Caching(settings)) => settings.clone(),
        _ => CachingSettings::default(),
    };
    let expandable = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True";
    let (trace, hopeless) = (facts.device.trace.as_ref(), hopeless(facts));
    match (trace, hopeless) {
        (_, Some(why)) if !own.expandable => advice.push(argued(expandable, Some(false), None, why)),
        (_, Some(_)) => {}
        (Some(trace), None) => {
            let again = |settings: CachingSettings| replayed(facts, trace, &Model::Caching(settings));
            let why = begun(trace);
            if !own.expandable {
                let outcome = again(CachingSettings { expandable: true, ..CachingSettings::default() });
                advice.extend(outcome.map(|outcome| tested(expandable, &outcome, why)));
                advice.extend(split_limit(&own, again));
            }
            if replay_limit(facts).is_some() && own.garbage_collection_threshold == 0.0 {
                let settings =
                    CachingSettings { garbage_collection_threshold: 0.8, ..CachingSettings::default() };
                let change = "PYTORCH_CUDA_ALLOC_CONF=garbage_collection_threshold:0.8";
                advice.extend(again(settings).map(|outcome| tested(change, &outcome, why)));
            }
        }
        (None, None) => {
            let free = facts.reserved.zip(facts.live).map(|(reserved, live)| reserved.saturating_sub(live));
            let because = match free {
                Some(free) => format!(
                    "{} are free in holes whose addresses are not in the message: record a snapshot \
                     (torch.cuda.memory._record_memory_history, _dump_snapshot) to have this replayed",
                    format_bytes(free)
                ),
                None => "nothing to replay was recorded".into(),
            };
            advice.push(argued(expandable, None, None, because));
        }
    }
    if idle {
        advice.push(empty_cache(facts));
    }
    advice
}

/// The caveat of a replay that starts with an empty pool in the middle of a program.
fn begun(trace: &Trace) -> &'static str {
    if trace.complete { "" } else { "from an empty pool, since recording began after the program had" }
}

/// Giving back what is wholly free.
fn empty_cache(facts: &Facts<'_>) -> Advice {
    let change = "torch.cuda.empty_cache() where a phase ends";
    let Some(layout) = &facts.layout else {
        return argued(
            change,
            Some(true),
            None,
            "it releases empty segments; which are empty was not recorded",
        );
    };
    let empty = layout.segments.iter().filter(|s| s.pieces.iter().all(|p| p.state == PieceState::Free));
    let bytes = total(empty.map(|segment| segment.bytes));
    let because = format!(
        "at the end of the recording that releases {}, and the next large step reserves them again",
        format_bytes(bytes)
    );
    argued(change, Some(true), Some(layout.reserved_bytes().saturating_sub(bytes)), because)
}

/// The split limit under which the pool reserved least.
fn split_limit(own: &CachingSettings, again: impl Fn(CachingSettings) -> Option<Outcome>) -> Option<Advice> {
    if own.max_split_bytes.is_some() {
        return None;
    }
    let tried = [64, 256].map(|mib: u64| {
        let settings = CachingSettings { max_split_bytes: Some(mib << 20), ..CachingSettings::default() };
        again(settings).map(|outcome| (mib, outcome))
    });
    let [Some(small), Some(large)] = tried else { return None };
    let (mib, outcome) =
        [small, large].into_iter().min_by_key(|(_, outcome)| (!outcome.survived(), outcome.peak_reserved))?;
    let why = "the better of 64 and 256";
    Some(tested(format!("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:{mib}"), &outcome, why))
}

fn xla(facts: &Facts<'_>, idle: bool) -> Vec<Advice> {
    let Some(Model::Bfc(own)) = &facts.device.model else { return Vec::new() };
    let growth = match facts.framework {
        Framework::Jax => "XLA_PYTHON_CLIENT_PREALLOCATE=false",
        Framework::TensorFlow => "TF_FORCE_GPU_ALLOW_GROWTH=true",
        _ => "TF_FORCE_GPU_ALLOW_GROWTH=true (JAX: XLA_PYTHON_CLIENT_PREALLOCATE=false)",
    };
    let pages = "TF_GPU_ALLOCATOR=cuda_malloc_async";
    if let Some(why) = hopeless(facts) {
        return vec![argued(pages, Some(false), None, why.clone()), argued(growth, Some(false), None, why)];
    }
    let mut advice = Vec::new();
    match &facts.device.trace {
        Some(trace) => {
            if !own.growth {
                let model = Model::Bfc(BfcSettings { growth: true, ..own.clone() });
                let outcome = replayed(facts, trace, &model);
                advice.extend(outcome.map(|outcome| tested(growth, &outcome, begun(trace))));
                if idle {
                    advice.extend(smallest_limit(facts, own));
                }
            }
            if !idle {
                let outcome = replayed(facts, trace, &Model::Paged);
                let why = "modelled as pages mapped on demand";
                advice.extend(outcome.map(|outcome| tested(pages, &outcome, why)));
            }
        }
        None => {
            advice.extend(pages_of_holes(facts, pages));
            if !own.growth {
                let because = "a dump shows one moment, and growth changes every address: record a \
                               profile (jax.profiler.trace, tf.profiler) to have this replayed";
                advice.push(argued(growth, None, None, because));
            }
        }
    }
    advice
}

/// Whether the whole pages in the holes would have sufficed, mapped contiguously.
fn pages_of_holes(facts: &Facts<'_>, change: &str) -> Option<Advice> {
    let (refused, live, bound) = (facts.refused?, facts.live?, facts.bound?);
    let layout = match &facts.layout {
        Some(layout) => layout,
        None => {
            let because = format!(
                "{} are free, but at which addresses is not in the log",
                format_bytes(bound.bytes.saturating_sub(live))
            );
            return Some(argued(change, None, None, because));
        }
    };
    let holes = layout.pieces().filter(|piece| piece.state == PieceState::Free);
    let whole = total(holes.map(|hole| {
        let first = hole.address.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        let end = hole.address.saturating_add(hole.bytes);
        end.saturating_sub(first) / PAGE * PAGE
    }));
    let untaken = bound.bytes.saturating_sub(layout.reserved_bytes());
    let survives = whole.saturating_add(untaken) >= refused;
    let because = format!(
        "the holes have {} in whole pages of {}, which can be mapped contiguously; {} were requested",
        format_bytes(whole),
        format_bytes(PAGE),
        format_bytes(refused)
    );
    Some(argued(change, Some(survives), survives.then_some(live.saturating_add(refused)), because))
}

/// The smallest pool, reserved at the start, in which the replay survives: within 2 %.
fn smallest_limit(facts: &Facts<'_>, own: &BfcSettings) -> Option<Advice> {
    let trace = facts.device.trace.as_ref()?;
    let model = Model::Bfc(own.clone());
    let (mut low, _) = trace.peak_live();
    let mut high = facts.reserved?;
    if !facts.may_replay() || !replay(trace, &model, Some(high), Start::Afresh).survived() {
        return None;
    }
    while high > low.saturating_add((high / 50).max(PAGE)) {
        if !facts.may_replay() {
            return None;
        }
        let middle = low + (high - low) / 2;
        if replay(trace, &model, Some(middle), Start::Afresh).survived() {
            high = middle;
        } else {
            low = middle;
        }
    }
    let outcome = replay(trace, &model, Some(high), Start::Afresh);
    Some(tested(limit(facts, high), &outcome, "the smallest pool in which the replay survives"))
}

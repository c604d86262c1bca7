//! The settings of each framework's allocator, by their real names, and the models they stand for.

use super::{argued, replay_limit, replayed, tested};
use crate::analyse::facts::Facts;
use crate::analyse::usage::total;
use crate::explanation::Advice;
use crate::program::{Backend, Platform, Program};
use crate::recording::Framework;
use plimsoll_memory::{
    BfcSettings, CachingSettings, Model, Outcome, PieceState, Start, Trace, format_bytes, replay,
};

/// What `cuda_malloc_async` and expandable segments map memory in.
const PAGE: u64 = 2 << 20;

/// Settings of the allocator that might help.
pub(crate) fn advice(facts: &Facts<'_>, idle: bool, fragmented: bool) -> Vec<Advice> {
    match facts.framework {
        Framework::PyTorch => pytorch(facts, idle, fragmented),
        Framework::TensorFlow | Framework::Jax | Framework::TensorFlowOrJax => xla(facts, idle),
        _ => Vec::new(),
    }
}

/// The setting that raises a limit which the log shows, where whether the device has more is not known.
pub(crate) fn raise_a_visible_limit(facts: &Facts<'_>) -> Option<Advice> {
    let device = facts.device;
    let limit = device.limit.filter(|_| facts.is_refusal() && device.trace.is_none())?;
    if device.program.backend == Some(Backend::Mps) {
        let change =
            "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 lifts the limit, where the machine has memory to spare";
        let because = format!(
            "the limit is {}, a share of the machine's memory; beyond it all programs are swapped out",
            format_bytes(limit)
        );
        return Some(argued(change, None, None, because));
    }
    if device.program.backend == Some(Backend::Other) {
        return None;
    }
    let because =
        format!("the pool's limit is {}; whether the device has more is not in the log", format_bytes(limit));
    let change = match facts.framework {
        Framework::Jax => {
            "XLA_PYTHON_CLIENT_MEM_FRACTION=.95 raises the pool's limit, if it was .75, the default"
        }
        Framework::TensorFlow if device.program.is_before((2, 0)) => {
            "config.gpu_options.per_process_gpu_memory_fraction raises the pool's limit, if it was set"
        }
        Framework::TensorFlow => {
            "LogicalDeviceConfiguration(memory_limit=…) raises the pool's limit, if it was set; else end what else uses the device"
        }
        Framework::TensorFlowOrJax => {
            "raise the pool's limit (JAX: XLA_PYTHON_CLIENT_MEM_FRACTION=.95; TensorFlow: LogicalDeviceConfiguration's memory_limit)"
        }
        _ => return None,
    };
    Some(argued(change, None, None, because))
}

/// The setting that is against fragmentation in this version of PyTorch on this platform; `None` where there is none.
fn against_fragmentation(program: &Program) -> Option<String> {
    let variable = match (program.settings_variable, program.backend) {
        (Some(named), _) => named,
        (None, Some(Backend::Hip)) => "PYTORCH_HIP_ALLOC_CONF",
        (None, _) if program.is_at_least((2, 9)) => "PYTORCH_ALLOC_CONF",
        (None, _) => "PYTORCH_CUDA_ALLOC_CONF",
    };
    let split = format!("{variable}=max_split_size_mb:128");
    match program.backend {
        Some(Backend::Mps | Backend::Cpu | Backend::Xpu | Backend::Tpu | Backend::Other) => None,
        Some(Backend::Npu) => Some("PYTORCH_NPU_ALLOC_CONF=max_split_size_mb:128".into()),
        _ if program.is_before((1, 10)) => None,
        // Segments that grow are there from 2.1 on, and not on these platforms.
        Some(Backend::Hip) => Some(split),
        _ if program.platform == Some(Platform::Windows) => Some(split),
        _ if program.is_before((2, 1)) && !program.is_at_least((1, 10)) => {
            Some(format!("{split} (PyTorch 1.10 or newer)"))
        }
        // The message of 2.1 names this one, and it is there on every platform.
        _ if program.is_before((2, 3)) => Some(split),
        _ if program.platform == Some(Platform::Linux) => {
            Some(format!("{variable}=expandable_segments:True"))
        }
        _ => Some(format!("{variable}=expandable_segments:True (on Windows: max_split_size_mb:128)")),
    }
}

/// The setting that gives the pool a limit of `bytes`.
pub(crate) fn limit(facts: &Facts<'_>, bytes: u64) -> String {
    let size = format_bytes(bytes);
    let share = facts
        .device
        .capacity
        .map(|capacity| ((1000.0 * bytes as f64 / capacity as f64).ceil() / 1000.0).min(1.0));
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
        (Framework::TensorFlow, Some(share)) if facts.device.program.is_before((2, 0)) => {
            format!("config.gpu_options.per_process_gpu_memory_fraction = {share:.3}: {size}")
        }
        (Framework::TensorFlow, _) => {
            format!("tf.config.LogicalDeviceConfiguration(memory_limit={}): {size}", bytes.div_ceil(1 << 20))
        }
        (Framework::TensorFlowOrJax, _) => format!(
            "a pool of {size} (JAX: XLA_PYTHON_CLIENT_MEM_FRACTION; TensorFlow: LogicalDeviceConfiguration's \
             memory_limit={})",
            bytes.div_ceil(1 << 20)
        ),
        _ => format!("a limit of {size} ({bytes} bytes)"),
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

fn pytorch(facts: &Facts<'_>, idle: bool, fragmented: bool) -> Vec<Advice> {
    let mut advice = Vec::new();
    let own = match &facts.device.model {
        Some(Model::Caching(settings)) => settings.clone(),
        _ => CachingSettings::default(),
    };
    let (trace, hopeless) = (facts.device.trace.as_ref(), hopeless(facts));
    if trace.is_none() && facts.device.layout.is_none() {
        return if fragmented { without_trace(facts) } else { Vec::new() };
    }
    let expandable = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True";
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
        (None, None) => {}
    }
    if idle {
        advice.push(empty_cache(facts));
    }
    advice
}

/// Against fragmentation that only a message tells of.
fn without_trace(facts: &Facts<'_>) -> Vec<Advice> {
    let program = &facts.device.program;
    let idle = facts.reserved.zip(facts.live).map_or(0, |(reserved, live)| reserved.saturating_sub(live));
    let because = format!(
        "{} are reserved and not in use, in pieces; where they lie is not in the message, so the effect is not known",
        format_bytes(idle)
    );
    let mut advice: Vec<Advice> = against_fragmentation(program)
        .map(|change| argued(change, None, None, because))
        .into_iter()
        .collect();
    if advice.is_empty() && program.is_before((1, 10)) {
        let because = "this version of PyTorch has no setting for it; 1.10 has max_split_size_mb, 2.1 has expandable_segments";
        advice.push(argued("use a newer PyTorch", None, None, because));
    }
    let because = "shapes that differ from step to step leave pieces behind that the next shape does not fit";
    advice.push(argued("pad inputs to a few fixed shapes, the largest first", None, None, because));
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
    let program = &facts.device.program;
    let growth = match facts.framework {
        Framework::TensorFlow if program.is_before((2, 0)) => "config.gpu_options.allow_growth = True",
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

//! Leaking: what is kept grows with every step.
//!
//! Every step leaves something alive: weights and optimizer state do in the first, activations in the one under
//! way. A leak is what steps *in between* leave: requests that were granted in one step, are live long after it,
//! and recur in most of the other steps.

use crate::analyse::call_site::call_site;
use crate::analyse::facts::Facts;
use crate::analyse::history::live_after;
use crate::analyse::steps::Steps;
use crate::analyse::usage::total;
use crate::explanation::{Verdict, VerdictKind};
use crate::moment::CallSite;
use crate::text::counted;
use plimsoll_memory::{Action, OwnerId, Owners, RequestId, Trace, format_bytes};
use std::collections::{HashMap, HashSet};

/// Allocations that steps in between leave live.
pub(crate) struct Leak {
    /// The requests that steps left behind.
    pub(crate) requests: Vec<RequestId>,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Bytes that a step adds: the slope of live bytes at step ends, and half its 95 % interval.
    pub(crate) per_step: f64,
    pub(crate) per_step_error: f64,
    /// The steps that were looked at: after the warm-up, before the one under way.
    pub(crate) steps: usize,
    /// The innermost line under which nearly all of it was asked for.
    pub(crate) under: OwnerId,
    /// What each call site leaked, in bytes and allocations, the most first.
    pub(crate) call_sites: Vec<(CallSite, u64, usize)>,
}

/// Steps at the start in which a program still warms up: states are made, caches fill.
const WARM_UP: usize = 2;
/// Steps at the end whose requests may be alive in their own right.
const UNDER_WAY: usize = 2;
/// Fewer steps in between prove nothing.
const FEWEST: usize = 4;
/// The share of stretches of the run in which a call site must have leaked.
const STEADY: f64 = 0.7;
/// Less than this share of live bytes, and less than these bytes, is no leak worth a verdict.
const SHARE: f64 = 0.01;
const BYTES: u64 = 16 << 20;
/// The share of leaked bytes that must be under one line for it to be named.
const NEARLY_ALL: f64 = 0.9;

impl Leak {
    /// What leaks in a recording with a trace of enough steps.
    pub(crate) fn find(facts: &Facts<'_>) -> Option<Leak> {
        let (trace, history) = (facts.device.trace.as_ref()?, facts.history.as_ref()?);
        let steps = history.steps.as_ref()?;
        let owners = &facts.device.owners;
        let until = facts.refusal_event().unwrap_or(trace.events.len());
        let last = steps.of(until).checked_sub(UNDER_WAY)?;
        let between = last.checked_sub(WARM_UP).filter(|&steps| steps >= FEWEST)?;
        let left = left_behind(trace, steps, until, WARM_UP..last);
        let mut by_owner: HashMap<OwnerId, Vec<(RequestId, usize)>> = HashMap::new();
        for (id, step) in left {
            by_owner.entry(trace.request(id).owner).or_default().push((id, step));
        }
        by_owner.retain(|_, left| is_steady(left, WARM_UP, between));

        let requests: Vec<RequestId> = by_owner.values().flatten().map(|&(id, _)| id).collect();
        let bytes = total(requests.iter().map(|&id| trace.request(id).bytes));
        let live = facts.requested.or(facts.live).unwrap_or(0);
        if bytes < BYTES && (bytes as f64) < SHARE * live as f64 || bytes == 0 {
            return None;
        }
        let ends = history.step_ends.get(WARM_UP..last.min(history.step_ends.len()))?;
        let (per_step, per_step_error) = slope(ends)?;
        // Live bytes that do not grow over the run are no leak, however old some of them are.
        if per_step <= per_step_error || per_step * (between as f64) < 0.5 * bytes as f64 {
            return None;
        }
        let leaked: HashMap<OwnerId, (u64, usize)> = by_owner
            .iter()
            .map(|(&owner, left)| {
                let sum = total(left.iter().map(|&(id, _)| trace.request(id).bytes));
                (owner, (sum, left.len()))
            })
            .collect();
        let under = common_line(owners, &leaked, bytes);
        let call_sites = by_call_site(owners, &leaked);
        Some(Leak { requests, bytes, per_step, per_step_error, steps: between, under, call_sites })
    }

    /// The verdict, with when it will run out or did.
    pub(crate) fn verdict(&self, facts: &Facts<'_>) -> Verdict {
        let owners = &facts.device.owners;
        let history = facts.history.as_ref();
        let rate = format_bytes(self.per_step as u64);
        let line = call_site(owners, self.under);
        let top = self.call_sites.first().map(|(site, ..)| site.clone());
        let place = match (&top, self.under) {
            (Some(top), OwnerId::UNKNOWN) => format!("most at {}", name(top)),
            (Some(top), _) if top.location != line.location => {
                format!("allocated under {}, most at {}", line.location, top.location)
            }
            (Some(top), _) => format!("allocated at {}", name(top)),
            (None, _) => "no stack was recorded".into(),
        };
        let end = match (facts.is_refusal(), self.runs_out(facts)) {
            (true, _) => {
                let step = history.and_then(|h| h.steps.as_ref()).map_or(0, Steps::ended);
                format!("; memory ran out after {step} steps")
            }
            (false, Some((step, error))) => {
                format!("; memory will run out at about step {step:.0} ± {error:.0}")
            }
            (false, None) => String::new(),
        };
        let sentence = format!("Leaking: every step leaves {rate} behind, {place}{end}.");

        let mut proof = vec![format!(
            "{} steps examined: {} in {} of their allocations were never freed",
            self.steps,
            format_bytes(self.bytes),
            self.requests.len()
        )];
        if let Some(history) = history {
            let ends = &history.step_ends;
            if let (Some(first), Some(last)) = (ends.get(WARM_UP), ends.last()) {
                proof.push(format!(
                    "live at the end of step {}: {}; of step {}: {}; growth per step {} ± {} (95 %)",
                    WARM_UP + 1,
                    format_bytes(*first),
                    ends.len(),
                    format_bytes(*last),
                    format_bytes(self.per_step as u64),
                    format_bytes(self.per_step_error as u64)
                ));
            }
            if let Some(steps) = &history.steps {
                proof.push(format!("steps are delimited by {}", steps.found_by));
            }
        }
        for (site, bytes, count) in self.call_sites.iter().take(6) {
            let share = 100.0 * *bytes as f64 / self.bytes.max(1) as f64;
            let (bytes, count) = (format_bytes(*bytes), counted(*count as u64, "allocation"));
            proof.push(format!("{}: {bytes} in {count} ({share:.0} %)", name(site)));
        }
        if let Some((step, error)) = self.runs_out(facts) {
            let bound = format_bytes(facts.bound.map_or(0, |bound| bound.bytes));
            let seen = if facts.is_refusal() { "predicted from the first half of the steps: " } else { "" };
            proof.push(format!("{seen}{bound} are used up at step {step:.0} ± {error:.0}"));
        }
        Verdict { kind: VerdictKind::Leaking, sentence, proof }
    }

    /// The step at which the pool outgrows its bound, and half its 95 % interval: by the first half of the steps
    /// where the end is known, so that it can be compared, and by all where it is not.
    pub(crate) fn runs_out(&self, facts: &Facts<'_>) -> Option<(f64, f64)> {
        let bound = facts.bound?.bytes as f64;
        let history = facts.history.as_ref()?;
        // What the pool takes is what meets the limit; live bytes stand in for it where it was not recorded.
        let taken = if history.peak_reserved > 0 { &history.step_reserved } else { &history.step_peaks };
        let taken = taken.get(WARM_UP..)?;
        let seen = if facts.is_refusal() { &taken[..taken.len().div_ceil(2)] } else { taken };
        let (slope, error) = slope(seen)?;
        if slope <= 0.0 {
            return None;
        }
        let mean = seen.iter().map(|&bytes| bytes as f64).sum::<f64>() / seen.len() as f64;
        let middle = (seen.len() - 1) as f64 / 2.0;
        let steps = (bound - mean) / slope + middle;
        Some((steps + WARM_UP as f64 + 1.0, (steps - middle).abs() * error / slope))
    }
}

/// Many equal blocks in a dump that has no history: most of the memory in blocks of one size, and one more was
/// requested.
pub(crate) fn many_equal_blocks(facts: &Facts<'_>) -> Option<Verdict> {
    let refused = facts.refused.filter(|_| facts.device.trace.is_none())?;
    let (size, count, share) = facts.dominant_block_size()?;
    let alike = refused <= size && refused as f64 >= 0.9 * size as f64;
    if !alike || count < ALIKE || share < ALIKE_SHARE {
        return None;
    }
    let block = format_bytes(size);
    let sentence = format!(
        "Probably leaking: {count} blocks of {block} are live, {:.0} % of what is in use, and one more was \
         requested.",
        100.0 * share
    );
    let mut proof = vec![
        format!("{count} blocks of {size} bytes each; refused: {refused} bytes"),
        "a dump has no history: a profile or snapshot over several steps would name the line and the rate"
            .into(),
    ];
    for held in facts.holders.iter().take(3) {
        let (bytes, count) = (format_bytes(held.bytes), counted(held.count, "allocation"));
        proof.push(format!("in use: {bytes} in {count} at {}", held.site.location));
    }
    Some(Verdict { kind: VerdictKind::Leaking, sentence, proof })
}

/// So many blocks of one size, and such a share of what is live, suggest a list that grows.
const ALIKE: u64 = 32;
const ALIKE_SHARE: f64 = 0.8;

fn name(site: &CallSite) -> String {
    match &site.caller {
        Some(from) => format!("{} (from {from})", site.location),
        None => site.location.clone(),
    }
}

/// The requests of some steps that are still live after `until` events, with their step.
fn left_behind(
    trace: &Trace,
    steps: &Steps,
    until: usize,
    between: std::ops::Range<usize>,
) -> Vec<(RequestId, usize)> {
    let mut is_live = vec![false; trace.requests.len()];
    for id in live_after(trace, until) {
        is_live[id.0 as usize] = true;
    }
    let granted =
        trace.events.iter().enumerate().take(until).filter_map(|(index, event)| match event.action {
            Action::Allocate(id) if is_live.get(id.0 as usize) == Some(&true) => Some((id, steps.of(index))),
            _ => None,
        });
    granted.filter(|(_, step)| between.contains(step)).collect()
}

/// Whether a call site leaked throughout the run, in each step or now and then: in most of as many equal stretches
/// as there are steps that leaked.
fn is_steady(left: &[(RequestId, usize)], first: usize, steps: usize) -> bool {
    let that_left: HashSet<usize> = left.iter().map(|&(_, step)| step).collect();
    if that_left.len() < FEWEST {
        return false;
    }
    let stretches = that_left.len().min(16);
    let seen: HashSet<usize> = that_left.iter().map(|step| (step - first) * stretches / steps).collect();
    seen.len() as f64 >= STEADY * stretches as f64
}

/// The innermost frame under which nearly all leaked bytes were asked for.
fn common_line(owners: &Owners, leaked: &HashMap<OwnerId, (u64, usize)>, total: u64) -> OwnerId {
    let mut under = vec![0_u64; owners.count()];
    for (&owner, &(bytes, _)) in leaked {
        if let Some(sum) = under.get_mut(owner.0 as usize) {
            *sum = bytes;
        }
    }
    // A caller has a lower number than those it calls, so that one pass from the last to the first adds all up. All of
    // that is under one line lies on one stack, and the highest number is the innermost.
    let mut innermost = OwnerId::UNKNOWN;
    for at in (1..under.len()).rev() {
        let owner = OwnerId(at as u32);
        let (bytes, parent) = (under[at], owners.parent(owner).0 as usize);
        under[parent.min(at)] = under[parent.min(at)].saturating_add(if parent < at { bytes } else { 0 });
        if innermost == OwnerId::UNKNOWN && bytes as f64 >= NEARLY_ALL * total as f64 {
            innermost = owner;
        }
    }
    innermost
}

/// What each call site leaked, in bytes and allocations, the most first.
fn by_call_site(owners: &Owners, leaked: &HashMap<OwnerId, (u64, usize)>) -> Vec<(CallSite, u64, usize)> {
    let mut sums: HashMap<CallSite, (u64, usize)> = HashMap::new();
    for (&owner, &(bytes, count)) in leaked {
        let sum = sums.entry(call_site(owners, owner)).or_default();
        *sum = (sum.0.saturating_add(bytes), sum.1 + count);
    }
    let mut ranked: Vec<_> = sums.into_iter().map(|(site, (bytes, count))| (site, bytes, count)).collect();
    ranked.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    ranked
}

/// The slope of bytes over steps by least squares, and half its 95 % interval.
fn slope(bytes: &[u64]) -> Option<(f64, f64)> {
    let count = bytes.len() as f64;
    if bytes.len() < 3 {
        return None;
    }
    let mean_x = (count - 1.0) / 2.0;
    let mean_y = bytes.iter().map(|&b| b as f64).sum::<f64>() / count;
    let points = bytes.iter().enumerate().map(|(x, &y)| (x as f64 - mean_x, y as f64 - mean_y));
    let spread = points.clone().map(|(x, _)| x * x).sum::<f64>();
    let slope = points.clone().map(|(x, y)| x * y).sum::<f64>() / spread;
    let residual = points.map(|(x, y)| (y - slope * x).powi(2)).sum::<f64>() / (count - 2.0);
    Some((slope, 1.96 * (residual / spread).sqrt()))
}

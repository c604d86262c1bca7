//! Reserved but idle: the pool holds much that nothing uses.

use crate::analyse::facts::Facts;
use crate::explanation::{Verdict, VerdictKind};
use crate::recording::Framework;
use plimsoll_memory::{Model, format_bytes};

/// The share of what a pool holds that a usual step must leave idle.
const IDLE: f64 = 0.5;
/// Less than this is not worth a verdict.
const BYTES: u64 = 64 << 20;

/// A pool of which a usual step uses less than half.
pub(crate) fn verdict(facts: &Facts<'_>) -> Option<Verdict> {
    if facts.is_refusal() || facts.framework == Framework::Plimsoll {
        return None;
    }
    let reserved = facts.reserved?;
    let live = facts.live.unwrap_or(0);
    let usual = match &facts.history {
        Some(history) => history.typical_peak().max(live),
        None => facts.peak_live()?,
    };
    let idle = reserved.saturating_sub(usual);
    if idle < BYTES || (idle as f64) < IDLE * reserved as f64 {
        return None;
    }
    let why = match &facts.device.model {
        Some(Model::Bfc(settings)) if !settings.growth => "it reserves its whole limit at the start",
        Some(Model::Caching(_)) => "it caches freed blocks for later requests",
        _ => "it keeps what it has reserved",
    };
    let sentence = format!(
        "Reserved but idle: the pool holds {}, {} are in use and a typical step needs {} at most; {why}.",
        format_bytes(reserved),
        format_bytes(live),
        format_bytes(usual)
    );
    let mut proof = vec![
        format!("reserved by the pool: {reserved} bytes"),
        format!("in use: {live} bytes"),
        format!(
            "needed by a typical step: {usual} bytes, so {idle} bytes ({:.0} %) are idle",
            100.0 * idle as f64 / reserved as f64
        ),
    ];
    if let Some(peak) = facts.peak_live() {
        proof.push(format!("most ever in use at once: {peak} bytes"));
    }
    Some(Verdict { kind: VerdictKind::ReservedIdle, sentence, proof })
}

//! The JSON that TensorBoard's memory profile tool makes of a profile: what each pool held at its peak, by op,
//! and a timeline that is whole for short profiles and thinned out for long ones.

use super::pool_trace::{self, AllocatorEvent, PoolRecord};
use crate::error::{Error, ErrorKind, Result};
use crate::read::input::Input;
use crate::recording::{Format, Framework, Origin, Recording};
use plimsoll_memory::{Frame, OwnerId};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::io::Read;

/// The tool keeps a thousand snapshots or so of each pool; a file larger than this is none of its.
const LARGEST: u64 = 1 << 28;

/// Whether this is a JSON object that speaks of pools.
pub(super) fn looks(start: &[u8]) -> bool {
    let key = b"\"memoryProfilePerAllocator\"";
    start.trim_ascii_start().starts_with(b"{") && start.windows(key.len()).any(|part| part == key)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    #[serde(default)]
    memory_profile_per_allocator: BTreeMap<String, PoolProfile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct PoolProfile {
    memory_profile_snapshots: Vec<ProfileSnapshot>,
    sampled_timeline_snapshots: Vec<ProfileSnapshot>,
    profile_summary: Summary,
    active_allocations: Vec<Active>,
    special_allocations: Vec<Activity>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ProfileSnapshot {
    #[serde(deserialize_with = "number")]
    time_offset_ps: u64,
    aggregation_stats: AggregationStats,
    activity_metadata: Activity,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct AggregationStats {
    #[serde(deserialize_with = "number")]
    stack_reserved_bytes: u64,
    #[serde(deserialize_with = "number")]
    heap_allocated_bytes: u64,
    #[serde(deserialize_with = "number")]
    free_memory_bytes: u64,
    #[serde(deserialize_with = "number")]
    peak_bytes_in_use: u64,
    fragmentation: f64,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Activity {
    memory_activity: String,
    #[serde(deserialize_with = "number")]
    requested_bytes: u64,
    #[serde(deserialize_with = "number")]
    allocation_bytes: u64,
    #[serde(deserialize_with = "number")]
    address: u64,
    tf_op_name: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Summary {
    #[serde(deserialize_with = "number")]
    peak_bytes_usage_lifetime: u64,
    peak_stats: AggregationStats,
    #[serde(deserialize_with = "number")]
    memory_capacity: u64,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Active {
    #[serde(deserialize_with = "index")]
    snapshot_index: Option<usize>,
    #[serde(deserialize_with = "index")]
    special_index: Option<usize>,
    #[serde(deserialize_with = "number")]
    num_occurrences: u64,
}

/// A number, which JSON made from a protocol buffer writes as a string where it has 64 bits.
#[derive(Deserialize)]
#[serde(untagged)]
enum JsonNumber {
    Number(f64),
    Text(String),
}

impl JsonNumber {
    fn value(&self) -> f64 {
        match self {
            JsonNumber::Number(value) => *value,
            JsonNumber::Text(text) => text.trim().parse().unwrap_or(0.0),
        }
    }
}

fn number<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<u64, D::Error> {
    Ok(match JsonNumber::deserialize(from)? {
        // Addresses have more digits than a float holds.
        JsonNumber::Text(text) => text.trim().parse().unwrap_or(0),
        // A negative one becomes nothing, as it should.
        JsonNumber::Number(value) => value as u64,
    })
}

fn index<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<usize>, D::Error> {
    let value = JsonNumber::deserialize(from)?.value();
    Ok((value >= 0.0).then_some(value as usize))
}

/// Reads the JSON to its end.
pub(super) fn read(input: &mut Input<'_>) -> Result<Recording> {
    let profile: Profile = serde_json::from_reader(input.take(LARGEST)).map_err(|error| {
        Error::new(ErrorKind::Malformed, format!("is a memory profile that cannot be read: {error}"))
    })?;
    let mut gaps = Vec::new();
    let mut devices = Vec::new();
    for (name, pool) in profile.memory_profile_per_allocator.into_iter().take(256) {
        let summary = &pool.profile_summary;
        let peak =
            summary.peak_stats.heap_allocated_bytes.saturating_add(summary.peak_stats.stack_reserved_bytes);
        let (record, live_by_owner) = record(&pool);
        if !record.whole && !record.events.is_empty() {
            gaps.push(format!("{name}: the timeline is thinned out, so what was asked when is not known."));
        }
        let mut device = pool_trace::device(&name, record, &[], Framework::TensorFlow, &mut gaps);
        let known = |bytes: u64| Some(bytes).filter(|&bytes| bytes > 0);
        device.limit = known(summary.memory_capacity).or(device.limit);
        device.peak_live = known(summary.peak_bytes_usage_lifetime.max(peak)).max(device.peak_live);
        // The list is of the peak, and so is the figure beside it.
        device.live = known(peak).or(device.live);
        device.live_by_owner = live_by_owner;
        device.reported_at_peak = peak > 0;
        if device.live.is_some() || device.limit.is_some() {
            devices.push(device);
        }
    }
    if devices.is_empty() {
        return Err(Error::new(ErrorKind::Empty, "is a memory profile without a pool in it"));
    }
    let (formats, framework) = (vec![Format::MemoryProfile], Framework::TensorFlow);
    Ok(Recording { origin: Origin { files: Vec::new(), formats, framework, gaps }, devices })
}

/// The timeline of a pool, and what it held at its peak by op.
fn record(pool: &PoolProfile) -> (PoolRecord, Vec<(OwnerId, u64, u64)>) {
    let mut record = PoolRecord::default();
    let mut owner = |activity: &Activity| {
        let name = activity.tf_op_name.clone();
        match name.is_empty() {
            true => OwnerId::UNKNOWN,
            false => record.owners.child(OwnerId::UNKNOWN, Frame { name, ..Frame::default() }),
        }
    };
    let mut held: BTreeMap<OwnerId, (u64, u64)> = BTreeMap::new();
    for active in &pool.active_allocations {
        let snapshot = active.snapshot_index.and_then(|at| pool.memory_profile_snapshots.get(at));
        let special = || active.special_index.and_then(|at| pool.special_allocations.get(at));
        let Some(activity) = snapshot.map(|snapshot| &snapshot.activity_metadata).or_else(special) else {
            continue;
        };
        let (bytes, count) = held.entry(owner(activity)).or_default();
        let occurrences = active.num_occurrences.max(1);
        *bytes = bytes.saturating_add(activity.allocation_bytes.saturating_mul(occurrences));
        *count = count.saturating_add(occurrences);
    }
    let mut events: Vec<AllocatorEvent> = Vec::new();
    for ProfileSnapshot { time_offset_ps, aggregation_stats: stats, activity_metadata: activity } in
        &pool.sampled_timeline_snapshots
    {
        events.push(AllocatorEvent {
            time_ps: *time_offset_ps,
            frees: activity.memory_activity == "DEALLOCATION",
            address: activity.address,
            requested: activity.requested_bytes,
            taken: activity.allocation_bytes,
            live: stats.heap_allocated_bytes,
            room: stats.free_memory_bytes.saturating_add(stats.stack_reserved_bytes),
            peak: stats.peak_bytes_in_use,
            fragmentation: stats.fragmentation,
            owner: owner(activity),
        });
    }
    events.sort_by_key(|event| event.time_ps);
    // Thinned out or not: each event must lead to the next.
    record.whole = !events.is_empty()
        && events.iter().all(|event| event.address > 0)
        && events.windows(2).all(|pair| {
            let (before, event) = (pair[0].live, &pair[1]);
            let after =
                if event.frees { before.checked_sub(event.taken) } else { before.checked_add(event.taken) };
            after == Some(event.live)
        });
    record.events = events;
    (record, held.into_iter().map(|(owner, (bytes, count))| (owner, bytes, count)).collect())
}

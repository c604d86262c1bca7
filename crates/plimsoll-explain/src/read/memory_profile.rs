//! The JSON that TensorBoard's memory profile tool makes of a profile: what each pool held at its peak, by op,
//! and a timeline that is whole for short profiles and thinned out for long ones.

use super::budget::{Budget, Charge};
use super::places::Places;
use super::pool_trace::{self, AllocatorEvent, PoolRecord};
use crate::error::{Error, ErrorKind, Result};
use crate::read::input::Input;
use crate::recording::{Device, Format, Framework, Origin, Recording};
use plimsoll_memory::OwnerId;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

/// Pools of one program.
const MOST_POOLS: usize = 256;

/// Whether this is a JSON object that speaks of pools.
pub(super) fn looks(start: &[u8]) -> bool {
    let key = b"\"memoryProfilePerAllocator\"";
    start.trim_ascii_start().starts_with(b"{") && start.windows(key.len()).any(|part| part == key)
}

/// What is told of one pool.
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

/// JSON on its way to the parser. No text in it is kept that was not paid for here; lists are as they grow.
struct Charged<'i, 'd> {
    input: &'i mut Input<'d>,
    held: &'i mut Charge,
}

impl Read for Charged<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut next = self.input.fill_buf()?;
        let count = next.read(buffer)?;
        self.input.consume(count);
        let room = self.held.take(2 * count as u64);
        if room { Ok(count) } else { Err(self.input.budget().error()) }
    }
}

/// The outermost object, pool by pool into what is kept: what was read stays when the file breaks off.
struct ProfileVisitor<'p> {
    pools: &'p mut BTreeMap<String, PoolProfile>,
    budget: &'p Budget,
}

impl<'de> Visitor<'de> for ProfileVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with memoryProfilePerAllocator")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == "memoryProfilePerAllocator" {
                map.next_value_seed(PoolsSeed { pools: self.pools, budget: self.budget })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// The pools, by name.
struct PoolsSeed<'p> {
    pools: &'p mut BTreeMap<String, PoolProfile>,
    budget: &'p Budget,
}

impl<'de> DeserializeSeed<'de> for PoolsSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> std::result::Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for PoolsSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("pools by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            if self.pools.len() >= MOST_POOLS && !self.pools.contains_key(&name) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let pool = self.pools.entry(name).or_default();
            map.next_value_seed(PoolSeed { pool, budget: self.budget })?;
        }
        Ok(())
    }
}

/// One pool.
struct PoolSeed<'p> {
    pool: &'p mut PoolProfile,
    budget: &'p Budget,
}

impl<'de> DeserializeSeed<'de> for PoolSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> std::result::Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for PoolSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a pool")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
        let PoolSeed { pool, budget } = self;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "memoryProfileSnapshots" => {
                    map.next_value_seed(ListSeed { list: &mut pool.memory_profile_snapshots, budget })?;
                }
                "sampledTimelineSnapshots" => {
                    map.next_value_seed(ListSeed { list: &mut pool.sampled_timeline_snapshots, budget })?;
                }
                "activeAllocations" => {
                    map.next_value_seed(ListSeed { list: &mut pool.active_allocations, budget })?;
                }
                "specialAllocations" => {
                    map.next_value_seed(ListSeed { list: &mut pool.special_allocations, budget })?;
                }
                "profileSummary" => pool.profile_summary = map.next_value()?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// A list, as far as there is room for it.
struct ListSeed<'p, T> {
    list: &'p mut Vec<T>,
    budget: &'p Budget,
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for ListSeed<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> std::result::Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for ListSeed<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<(), A::Error> {
        while let Some(item) = seq.next_element()? {
            if !self.budget.push(self.list, item) {
                return Err(A::Error::custom(self.budget));
            }
        }
        Ok(())
    }
}

/// Reads the JSON to its end, or to where it breaks off.
pub(super) fn read(input: &mut Input<'_>) -> Result<Recording> {
    let budget = input.budget().clone();
    let mut held = Charge::new(&budget);
    let mut pools = BTreeMap::new();
    let text = BufReader::new(Charged { input, held: &mut held });
    let mut json = serde_json::Deserializer::from_reader(text);
    let read = json.deserialize_map(ProfileVisitor { pools: &mut pools, budget: &budget });
    let broken = read.and_then(|()| json.end()).err().map(|error| error.to_string());
    let partial = broken.is_some();
    let mut gaps: Vec<String> = broken
        .map(|error| format!("the memory profile breaks off ({error}): what comes after is missing"))
        .into_iter()
        .collect();
    let mut owners = Places::new(&budget);
    let mut devices = Vec::new();
    for (name, pool) in pools {
        let summary = &pool.profile_summary;
        let peak =
            summary.peak_stats.heap_allocated_bytes.saturating_add(summary.peak_stats.stack_reserved_bytes);
        let (record, live_by_owner) = record(&pool, &mut owners, &budget);
        if !record.whole && !record.events.is_empty() {
            gaps.push(format!("{name}: the timeline is thinned out, so what was asked when is not known."));
        }
        let mut device = pool_trace::device(&name, record, &[], Framework::TensorFlow, &mut gaps, &budget);
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
        return Err(match gaps.first().filter(|_| partial) {
            Some(gap) => Error::new(
                ErrorKind::Malformed,
                format!("is a memory profile of which no pool is told: {gap}"),
            ),
            None => Error::new(ErrorKind::Empty, "is a memory profile without a pool in it"),
        });
    }
    let owners = owners.finish();
    devices.iter_mut().for_each(|device: &mut Device| device.owners = owners.clone());
    let (formats, framework) = (vec![Format::MemoryProfile], Framework::TensorFlow);
    Ok(Recording { origin: Origin { files: Vec::new(), formats, framework, gaps, partial }, devices })
}

/// The timeline of a pool, and what it held at its peak by op.
fn record(
    pool: &PoolProfile,
    owners: &mut Places,
    budget: &Budget,
) -> (PoolRecord, Vec<(OwnerId, u64, u64)>) {
    let mut record = PoolRecord::default();
    let mut owner = |activity: &Activity| {
        let name = &activity.tf_op_name;
        if name.is_empty() { OwnerId::UNKNOWN } else { owners.named(name.clone()) }
    };
    let mut held: BTreeMap<OwnerId, (u64, u64)> = BTreeMap::new();
    for active in &pool.active_allocations {
        if !budget.work() {
            break;
        }
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
        let event = AllocatorEvent {
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
        };
        if !budget.push(&mut events, event) {
            break;
        }
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

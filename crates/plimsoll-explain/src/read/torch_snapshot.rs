//! PyTorch's memory snapshots: every segment and block at one moment, and the last so many events before it.
//!
//! The pickle that `torch.cuda.memory._dump_snapshot` writes, of any version so far: a dict of `segments`,
//! `device_traces`, `allocator_settings` and `external_annotations`, or in old versions the list of segments
//! alone. Reading is streaming; see [`pickle`](super::pickle) for how a file of gigabytes stays in little.

mod records;
mod trace;

use self::records::{ANNOTATION, EVENT, RawSegment, Records, SEGMENT, WORDS, Words};
use self::trace::TraceBuilder;
use super::budget::{Budget, PIECE};
use super::pickle::{Heap, PickleValue, Str, unpickle};
use crate::error::{Error, ErrorKind, Result};
use crate::read::input::Input;
use crate::recording::{Device, Format, Framework, Origin, Recording};
use plimsoll_memory::{CachingSettings, Layout, Model, OwnerId, Piece, PieceState, Segment, SegmentClass};
use std::collections::{BTreeMap, HashMap};

/// The most bytes that all segments of a device are believed to have.
const MAX_RESERVED: u64 = 1 << 60;
/// Devices of higher numbers are not believed.
const MAX_DEVICES: usize = 128;

/// Longer values of settings lose their end.
const MAX_SETTING: usize = 1024;

/// Whether a stream that begins so is a pickle of a dict or a list.
pub(super) fn looks(start: &[u8]) -> bool {
    match start {
        [0x80, 2..=5, ..] => true,
        // The first two protocols have no signature: an empty dict or list that is put into the memo or filled.
        [b'}' | b']', b'q' | b'(' | b'.' | b'r', ..] => true,
        [b'(', b'd' | b'l', b'p' | b'.' | b'S' | b'V' | b'(', ..] => true,
        _ => false,
    }
}

/// Reads a snapshot to its end, or to where it is broken.
pub(super) fn read(input: &mut Input<'_>) -> Result<Recording> {
    let budget = input.budget().clone();
    let mut records = Records::new(&budget);
    let unpickled = unpickle(input, WORDS, &mut records)?;
    let (root, heap) = (unpickled.root, unpickled.heap);
    let owners = records.finish_reading();

    let mut gaps = Vec::new();
    let within = unpickled.cut.as_ref().and_then(|cut| cut.within);
    // A snapshot that breaks off in its segments has no events; one that breaks off in its events lacks the
    // last of them, and so where they lead.
    let (traces_cut, segments_cut) = match &unpickled.cut {
        None => (false, false),
        Some(_) => (within == Some(Words::DEVICE_TRACES), within.is_none_or(|key| key == Words::SEGMENTS)),
    };
    let (segments, traces) = match root {
        PickleValue::Dict(_) => {
            (lookup(&heap, root, Words::SEGMENTS), lookup(&heap, root, Words::DEVICE_TRACES))
        }
        other => (other, PickleValue::None),
    };
    let mut devices = segments_by_device(&mut records, &heap, segments, &mut gaps, &budget);
    let traces: Vec<&[PickleValue]> =
        heap.items(traces).iter().take(MAX_DEVICES).map(|&list| heap.items(list)).collect();
    let known = devices.keys().next_back().map_or(0, |&last| last as usize + 1);
    if let Some(cut) = &unpickled.cut {
        let events = traces.iter().copied().flatten().any(|item| matches!(item, PickleValue::Run(EVENT, ..)));
        if devices.is_empty() && !events {
            let message = format!("a pickle {}, before anything of a memory snapshot", cut.why);
            return Err(Error::new(ErrorKind::Malformed, message));
        }
        let lacks = match (segments_cut, traces_cut) {
            (true, _) => "segments after that and all events are missing",
            (_, true) => "events after that are missing, so it is not known what was live before the first",
            _ => "settings or marks after that are missing",
        };
        gaps.push(format!("the snapshot is {}: {lacks}", cut.why));
    } else if !matches!(segments, PickleValue::List(_) | PickleValue::None) || lookup_is_missing(&heap, root)
    {
        let message = "a pickle of plain data, but no memory snapshot: it has no `segments`";
        return Err(Error::new(ErrorKind::UnknownFormat, message));
    }

    let settings = lookup(&heap, root, Words::ALLOCATOR_SETTINGS);
    let annotations = heap.items(lookup(&heap, root, Words::EXTERNAL_ANNOTATIONS));
    let mut marks = Vec::new();
    for id in runs(annotations, ANNOTATION) {
        let Some(&mark) = records.annotations.get(id as usize) else { continue };
        if !budget.push(&mut marks, mark) {
            break;
        }
    }
    let settings_text = settings_text(&heap, settings);
    let count = known.max(traces.len()).min(MAX_DEVICES);
    let mut recording = Vec::new();
    for index in 0..count {
        let layout = devices.remove(&(index as u32));
        let mut builder = TraceBuilder::new(&budget);
        for id in runs(traces.get(index).copied().unwrap_or_default(), EVENT) {
            if !budget.work() {
                break;
            }
            if let Some(event) = records.event(id) {
                builder.event(event);
            }
        }
        let device = Device {
            name: format!("GPU {index}"),
            index: Some(index as u32),
            model: Some(model(&heap, settings, layout.as_ref())),
            settings: settings_text.clone(),
            owners: owners.clone(),
            ..Device::default()
        };
        // Without all events it is not known where they lead.
        let cut = traces_cut || budget.is_spent();
        recording.extend(finish(device, builder, layout, cut, &heap, &mut gaps, |builder| {
            let marks = marks.iter().filter(|mark| mark.device as usize == index).copied().collect();
            builder.annotations(marks);
        }));
    }
    say_left_out(&records, &heap, &mut gaps);
    if recording.is_empty() {
        let message = "a memory snapshot without segments or events: nothing was allocated on a GPU, or the \
                       history was not recorded (torch.cuda.memory._record_memory_history)";
        return Err(Error::new(ErrorKind::Empty, message));
    }
    let origin = Origin {
        files: Vec::new(),
        formats: vec![Format::TorchSnapshot],
        framework: Framework::PyTorch,
        gaps,
        partial: unpickled.cut.is_some(),
    };
    Ok(Recording { origin, devices: recording })
}

/// A device with its trace and layout; `None` if it has neither.
fn finish(
    mut device: Device,
    mut builder: TraceBuilder,
    layout: Option<Layout>,
    cut: bool,
    heap: &Heap,
    gaps: &mut Vec<String>,
    annotate: impl FnOnce(&mut TraceBuilder),
) -> Option<Device> {
    if builder.is_empty() && layout.is_none() {
        return None;
    }
    let name = &device.name;
    for (count, what) in [
        (
            builder.requests.unfreed,
            "allocations at an address that was never freed; they were taken as freed by then",
        ),
        (builder.requests.left_out, "events that contradict those before, or are more than can be counted"),
    ] {
        if count > 0 {
            gaps.push(format!("{name}: {count} {what}"));
        }
    }
    if !builder.is_empty() {
        annotate(&mut builder);
        device.failure = builder.failure.take();
        device.device_free = builder.device_free;
        let none = Layout::default();
        let end = if cut { None } else { Some(layout.as_ref().unwrap_or(&none)) };
        device.trace = Some(builder.finish(end, heap));
    }
    device.layout = layout;
    Some(device)
}

/// The ids in runs of records of a kind.
fn runs(items: &[PickleValue], kind: u8) -> impl Iterator<Item = u32> {
    items.iter().flat_map(move |item| match *item {
        PickleValue::Run(of, first, count) if of == kind => first..first.saturating_add(count),
        _ => 0..0,
    })
}

fn lookup(heap: &Heap, dict: PickleValue, key: Str) -> PickleValue {
    let PickleValue::Dict(_) = dict else { return PickleValue::None };
    let mut pairs = heap.items(dict).chunks_exact(2).rev();
    pairs.find(|pair| pair[0] == PickleValue::Str(key)).map_or(PickleValue::None, |pair| pair[1])
}

/// Whether this is a dict without what every snapshot has, or a list of anything but segments.
fn lookup_is_missing(heap: &Heap, root: PickleValue) -> bool {
    match root {
        PickleValue::Dict(_) => {
            let keys = [Words::SEGMENTS, Words::DEVICE_TRACES];
            !heap
                .items(root)
                .chunks_exact(2)
                .any(|pair| keys.iter().any(|&key| pair[0] == PickleValue::Str(key)))
        }
        PickleValue::List(_) => !matches!(heap.items(root), [] | [PickleValue::Run(SEGMENT, ..), ..]),
        _ => true,
    }
}

/// The layout of each device.
fn segments_by_device(
    records: &mut Records,
    heap: &Heap,
    segments: PickleValue,
    gaps: &mut Vec<String>,
    budget: &Budget,
) -> BTreeMap<u32, Layout> {
    let mut raw: Vec<RawSegment> = Vec::new();
    for id in runs(heap.items(segments), SEGMENT) {
        let Some(&segment) = records.segments.get(id as usize) else { continue };
        if !budget.push(&mut raw, segment) {
            break;
        }
    }
    raw.sort_by_key(|segment| (segment.device, segment.address));
    let mut layouts: BTreeMap<u32, Layout> = BTreeMap::new();
    let (mut reserved, mut end, mut device) = (0_u64, 0, None);
    let (mut misfits, mut filled, mut left_out) = (0_u64, 0_u64, 0_u64);
    for segment in raw {
        if device != Some(segment.device) {
            (reserved, end, device) = (0, 0, Some(segment.device));
        }
        let total = reserved.saturating_add(segment.bytes);
        let unbelievable = total > MAX_RESERVED || segment.device as usize >= MAX_DEVICES;
        if segment.bytes == 0 || segment.address < end || unbelievable {
            left_out += 1;
            continue;
        }
        (reserved, end) = (total, segment.address.saturating_add(segment.bytes));
        let class = match (segment.expandable, segment.size_class) {
            (true, _) => SegmentClass::Expandable,
            (_, Some(Words::SMALL)) => SegmentClass::Small,
            (_, Some(Words::LARGE)) => SegmentClass::Large,
            _ => SegmentClass::Any,
        };
        let Some((pieces, wrong, gap)) = pieces(records, &segment, budget) else { break };
        misfits += wrong;
        filled += gap;
        let RawSegment { address, bytes, stream, .. } = segment;
        let segment = Segment { address, bytes, stream, class, pieces };
        layouts.entry(device.unwrap_or(0)).or_default().segments.push(segment);
    }
    records.blocks = Vec::new();
    for (count, what) in [
        (left_out, "segments overlap others, are empty or larger than any device: left out"),
        (misfits, "blocks do not fit into their segment: left out"),
        (filled, "bytes of segments belong to no block: taken as free"),
    ] {
        if count > 0 {
            gaps.push(format!("{count} {what}"));
        }
    }
    layouts
}

/// The pieces of a segment without gaps, how many blocks did not fit, and the bytes that no block had. `None` if there is
/// no room for them: segments may name the same blocks.
fn pieces(records: &Records, segment: &RawSegment, budget: &Budget) -> Option<(Vec<Piece>, u64, u64)> {
    let (first, count) = segment.blocks;
    let blocks = first as usize..first.saturating_add(count) as usize;
    let blocks = records.blocks.get(blocks).unwrap_or(&[]);
    let end = segment.address.saturating_add(segment.bytes);
    let mut pieces = Vec::new();
    let (mut at, mut misfits, mut filled) = (segment.address, 0, 0);
    let free = |address: u64, bytes| Piece {
        address,
        bytes,
        requested: 0,
        state: PieceState::Free,
        owner: OwnerId::UNKNOWN,
    };
    for block in blocks {
        if !budget.work() {
            return None;
        }
        // Old snapshots give no addresses: blocks lie one after the other.
        let address = block.address.unwrap_or(at);
        let after = address.saturating_add(block.bytes);
        if address < at || after > end {
            misfits += 1;
            continue;
        }
        if !budget.take(2 * PIECE) {
            return None;
        }
        if address > at {
            pieces.push(free(at, address - at));
            filled += address - at;
        }
        pieces.push(Piece {
            address,
            bytes: block.bytes,
            requested: block.requested,
            state: block.state,
            owner: block.owner,
        });
        at = after;
    }
    if at < end {
        pieces.push(free(at, end - at));
        filled += end - at;
    }
    Some((pieces, misfits, filled))
}

/// The allocator's rules, as the snapshot's settings give them.
fn model(heap: &Heap, settings: PickleValue, layout: Option<&Layout>) -> Model {
    let expandable = match lookup(heap, settings, Words::EXPANDABLE_SEGMENTS) {
        PickleValue::Bool(yes) => yes,
        _ => layout.is_some_and(|l| l.segments.iter().any(|s| s.class == SegmentClass::Expandable)),
    };
    let max_split_bytes = match lookup(heap, settings, Words::MAX_SPLIT_SIZE) {
        // No limit is -1, or as many bytes as there can be.
        PickleValue::Int(bytes) => u64::try_from(bytes).ok().filter(|&bytes| bytes < i64::MAX as u64),
        _ => None,
    };
    let garbage_collection_threshold = match lookup(heap, settings, Words::GC_THRESHOLD) {
        PickleValue::Float(share) if (0.0..=1.0).contains(&share) => share,
        _ => 0.0,
    };
    let divisions: HashMap<u64, u64> = heap
        .items(lookup(heap, settings, Words::ROUNDUP))
        .chunks_exact(2)
        .filter_map(|pair| match pair {
            [PickleValue::Str(power), PickleValue::Int(divisions)] => {
                Some((heap.text(*power).parse().ok()?, u64::try_from(*divisions).ok()?))
            }
            _ => None,
        })
        .collect();
    let division = |power: u32| divisions.get(&(1 << power)).copied().unwrap_or(0);
    let roundup_power2_divisions = (0..16).map(division).collect();
    Model::Caching(CachingSettings {
        expandable,
        max_split_bytes,
        garbage_collection_threshold,
        roundup_power2_divisions,
    })
}

/// The settings as the framework names them; of those in parts, the parts that are set.
fn settings_text(heap: &Heap, settings: PickleValue) -> Vec<(String, String)> {
    let scalar = |value: PickleValue| match value {
        PickleValue::Bool(yes) => Some(if yes { "True" } else { "False" }.to_string()),
        PickleValue::Int(number) => Some(number.to_string()),
        PickleValue::Float(number) => Some(number.to_string()),
        PickleValue::Str(text) => Some(heap.text(text).chars().take(MAX_SETTING).collect()),
        PickleValue::None => Some("None".to_string()),
        _ => None,
    };
    let text = |value: PickleValue| match value {
        PickleValue::Dict(_) => {
            let parts = heap.items(value).chunks_exact(2).filter(|pair| pair[1] != PickleValue::Int(0));
            let parts = parts.take(16).filter_map(|p| Some(format!("{}:{}", scalar(p[0])?, scalar(p[1])?)));
            Some(parts.collect::<Vec<_>>().join(","))
        }
        other => scalar(other),
    };
    let pairs = heap.items(settings).chunks_exact(2).take(64);
    pairs.filter_map(|pair| Some((scalar(pair[0])?, text(pair[1])?))).collect()
}

fn say_left_out(records: &Records, heap: &Heap, gaps: &mut Vec<String>) {
    for (count, what) in [
        (records.unknown, "events of kinds that are not known: left out"),
        (records.unusable, "entries without a size or address, or of sizes that no device has: left out"),
        (records.stacks_left_out, "different call stacks beyond those that are told apart: left out"),
        (records.beyond, "entries beyond what can be counted or held: left out"),
        (records.named_again, "events named by more than one list: told once"),
        (heap.texts_left_out(), "different names beyond 64 MiB of them: left out"),
    ] {
        if count > 0 {
            gaps.push(format!("{count} {what}"));
        }
    }
}

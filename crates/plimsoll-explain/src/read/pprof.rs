//! JAX's device memory profile (`jax.profiler.save_device_memory_profile`): what is held on each device, by the
//! Python stack that made it. The format is that of `pprof`.

use super::protobuf::{FieldValue, MessageFields, text, whole};
use crate::error::{Error, ErrorKind, Result};
use crate::read::input::Input;
use crate::recording::{Device, Format, Framework, Origin, Recording};
use plimsoll_memory::{Frame, OwnerId};
use std::collections::{BTreeMap, HashMap};

/// A profile names each place once, so it stays small however much is held.
const LARGEST: u64 = 1 << 28;
const MOST_DEVICES: usize = 4096;
/// Frames of a stack that are kept, the innermost ones.
const DEEPEST: usize = 256;
/// Frames of all stacks together that are told; a profile has some thousands of stacks.
const MOST_FRAMES: usize = 1 << 22;

/// Whether this begins with what is counted: messages of two small numbers, then samples.
pub(super) fn looks(start: &[u8]) -> bool {
    let mut types = 0;
    for (field, value) in MessageFields::new(start) {
        match (field, value) {
            (1, FieldValue::Bytes(kind)) if kind.len() <= 12 => {
                let mut numbers = MessageFields::new(kind);
                let right = numbers.by_ref().all(|(f, value)| f <= 2 && value.number().is_some());
                if kind.is_empty() || !right || numbers.broken() {
                    return false;
                }
                types += 1;
            }
            (2, FieldValue::Bytes(sample)) => {
                let mut fields = MessageFields::new(sample);
                let right = fields.by_ref().all(|(f, _)| (1..=3).contains(&f));
                return types > 0 && right && !fields.broken();
            }
            // A profile of nothing goes on with its tables.
            (3..=14, _) => return types > 0,
            _ => return false,
        }
    }
    false
}

/// A device and what is held on it: bytes and pieces by owner.
#[derive(Default)]
struct Holder {
    device: Device,
    by_owner: BTreeMap<OwnerId, (u64, u64)>,
}

/// The tables of a profile.
#[derive(Default)]
struct Tables<'b> {
    strings: Vec<&'b [u8]>,
    /// Lines of each location: function and line number, innermost first.
    locations: HashMap<u64, Vec<(u64, u64)>>,
    /// Name and file of each function, as strings.
    functions: HashMap<u64, (u64, u64)>,
    types: Vec<(u64, u64)>,
    samples: Vec<&'b [u8]>,
}

impl<'b> Tables<'b> {
    fn of(profile: &'b [u8]) -> (Tables<'b>, bool) {
        let mut tables = Tables::default();
        let mut fields = MessageFields::new(profile);
        for (field, value) in fields.by_ref() {
            let FieldValue::Bytes(bytes) = value else { continue };
            match field {
                1 => tables.types.push(pair(bytes, 1, 2)),
                2 => tables.samples.push(bytes),
                4 => {
                    let lines = MessageFields::new(bytes).filter(|(field, _)| *field == 4);
                    let lines = lines.filter_map(|(_, line)| line.bytes()).map(|line| pair(line, 1, 2));
                    tables.locations.insert(pair(bytes, 1, 1).0, lines.collect());
                }
                5 => {
                    let (id, name) = pair(bytes, 1, 2);
                    tables.functions.insert(id, (name, pair(bytes, 4, 4).0));
                }
                6 => tables.strings.push(bytes),
                _ => {}
            }
        }
        let broken = fields.broken();
        (tables, broken)
    }

    fn string(&self, id: u64) -> String {
        let bytes = usize::try_from(id).ok().and_then(|at| self.strings.get(at));
        bytes.map_or(String::new(), |bytes| text(bytes))
    }

    /// Which value of a sample is called so.
    fn column(&self, name: &str) -> Option<usize> {
        self.types.iter().position(|(kind, _)| self.string(*kind) == name)
    }

    /// The frames of a sample, outermost first.
    fn frames(&self, locations: &[u64]) -> Vec<Frame> {
        let lines = locations.iter().filter_map(|id| self.locations.get(id)).flatten();
        let mut frames: Vec<Frame> = lines
            .take(DEEPEST)
            .map(|(function, line)| {
                let (name, file) = self.functions.get(function).copied().unwrap_or_default();
                Frame {
                    name: self.string(name),
                    file: self.string(file),
                    line: u32::try_from(*line).unwrap_or(0),
                }
            })
            .collect();
        frames.reverse();
        frames
    }
}

/// Two numbers of a message, by their fields.
fn pair(message: &[u8], first: u64, second: u64) -> (u64, u64) {
    let mut found = (0, 0);
    for (field, value) in MessageFields::new(message) {
        let Some(number) = value.number() else { continue };
        if field == first {
            found.0 = number;
        }
        if field == second {
            found.1 = number;
        }
    }
    found
}

/// A list of numbers, packed or one by one.
fn numbers(message: &[u8], wanted: u64) -> Vec<u64> {
    let mut found = Vec::new();
    for (_, value) in MessageFields::new(message).filter(|(field, _)| *field == wanted) {
        match value {
            FieldValue::Number(number) => found.push(number),
            FieldValue::Bytes(packed) => found.extend(unpacked(packed)),
            _ => {}
        }
    }
    found
}

fn unpacked(packed: &[u8]) -> Vec<u64> {
    let (mut numbers, mut value, mut shift) = (Vec::new(), 0_u64, 0_u32);
    for &byte in packed {
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        shift = shift.saturating_add(7);
        if byte < 0x80 {
            numbers.push(value);
            (value, shift) = (0, 0);
        }
    }
    numbers
}

/// Reads a profile to its end.
pub(super) fn read(input: &mut Input<'_>) -> Result<Recording> {
    let bytes = whole(input, LARGEST)?;
    let (tables, broken) = Tables::of(&bytes);
    let mut gaps = Vec::new();
    if broken {
        gaps.push(format!("The profile is cut short or broken ({} bytes could be unpacked).", bytes.len()));
    }
    let Some(space) = tables.column("space").or_else(|| tables.column("inuse_space")) else {
        let message = if broken {
            "is a pprof profile that is cut short before its names, without which nothing in it can be told"
        } else {
            "is a pprof profile that does not count bytes of memory: save one with \
             jax.profiler.save_device_memory_profile"
        };
        return Err(Error::new(if broken { ErrorKind::Malformed } else { ErrorKind::Empty }, message));
    };
    let count = tables.column("allocations").or_else(|| tables.column("inuse_objects"));
    let mut devices: BTreeMap<String, Holder> = BTreeMap::new();
    let mut told = 0;
    for sample in &tables.samples {
        let values = numbers(sample, 2);
        let held = values.get(space).copied().unwrap_or(0);
        let pieces = count.and_then(|count| values.get(count)).copied().unwrap_or(1);
        // Programs on a device are listed too, most with nothing that is counted.
        if held == 0 || i64::try_from(held).is_err() {
            continue;
        }
        let labels = MessageFields::new(sample)
            .filter(|(field, _)| *field == 3)
            .filter_map(|(_, label)| label.bytes());
        let labels: Vec<_> = labels.map(|label| pair(label, 1, 2)).collect();
        let label = |name: &str| {
            let found = labels.iter().find(|(key, _)| tables.string(*key) == name);
            found.map(|(_, value)| tables.string(*value))
        };
        let name = label("device").unwrap_or_else(|| "device".to_string());
        if devices.len() >= MOST_DEVICES && !devices.contains_key(&name) {
            continue;
        }
        let Holder { device, by_owner } = devices.entry(name).or_default();
        let mut owner = OwnerId::UNKNOWN;
        if told < MOST_FRAMES {
            for frame in tables.frames(&numbers(sample, 1)) {
                owner = device.owners.child(owner, frame);
                told += 1;
            }
        }
        if label("kind").as_deref() == Some("executable") {
            owner = device.owners.child(owner, Frame { name: "executable".into(), ..Frame::default() });
        }
        let (bytes, number) = by_owner.entry(owner).or_default();
        *bytes = bytes.saturating_add(held);
        *number = number.saturating_add(pieces);
    }
    if devices.is_empty() {
        return Err(Error::new(ErrorKind::Empty, "is a device memory profile in which nothing is held"));
    }
    let devices = devices
        .into_iter()
        .map(|(name, Holder { mut device, by_owner })| {
            // Only accelerators are numbered in other files of the run.
            let host = name.to_ascii_lowercase().contains("cpu");
            device.index = name.rsplit([':', '_']).next().and_then(|n| n.parse().ok()).filter(|_| !host);
            device.name = name;
            device.live = Some(by_owner.values().fold(0, |sum, (bytes, _)| u64::saturating_add(sum, *bytes)));
            device.live_by_owner =
                by_owner.into_iter().map(|(owner, (bytes, n))| (owner, bytes, n)).collect();
            device
        })
        .collect();
    let (formats, framework) = (vec![Format::Pprof], Framework::Jax);
    Ok(Recording { origin: Origin { files: Vec::new(), formats, framework, gaps }, devices })
}

//! JAX's device memory profile (`jax.profiler.save_device_memory_profile`): what is held on each device, by the
//! Python stack that made it. The format is that of `pprof`.

use super::budget::{Budget, Charge};
use super::places::Places;
use super::protobuf::{FieldValue, MessageFields, text, whole};
use crate::error::{Error, ErrorKind, Result};
use crate::read::input::Input;
use crate::recording::{Device, Format, Framework, Origin, Recording};
use plimsoll_memory::{Frame, OwnerId};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

const MOST_DEVICES: usize = 4096;
/// Frames of a stack that are kept, the innermost ones.
const DEEPEST: usize = 256;
/// Locations of a sample that are looked at.
const MOST_LOCATIONS: usize = 1 << 16;
/// What an entry of a table takes beside its lists.
const ENTRY: u64 = 160;

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
    /// The tables, and whether all of the profile could be read.
    fn of(profile: &'b [u8], budget: &Budget) -> (Tables<'b>, bool) {
        let mut tables = Tables::default();
        let mut fields = MessageFields::new(profile);
        for (field, value) in fields.by_ref() {
            let FieldValue::Bytes(bytes) = value else { continue };
            let kept = match field {
                1 => budget.push(&mut tables.types, pair(bytes, 1, 2)),
                2 => budget.push(&mut tables.samples, bytes),
                4 => {
                    let lines = MessageFields::new(bytes).filter(|(field, _)| *field == 4);
                    let lines = lines.filter_map(|(_, line)| line.bytes()).map(|line| pair(line, 1, 2));
                    let lines: Vec<_> = lines.take(DEEPEST).collect();
                    let room = budget.take(ENTRY + 32 * lines.len() as u64);
                    room && tables.locations.insert(pair(bytes, 1, 1).0, lines).is_none_or(|_| true)
                }
                5 => {
                    let (id, name) = pair(bytes, 1, 2);
                    let function = (name, pair(bytes, 4, 4).0);
                    budget.take(ENTRY) && tables.functions.insert(id, function).is_none_or(|_| true)
                }
                6 => budget.push(&mut tables.strings, bytes),
                _ => true,
            };
            if !kept {
                return (tables, false);
            }
        }
        let whole = !fields.broken();
        (tables, whole)
    }

    fn string(&self, id: u64) -> &'b [u8] {
        usize::try_from(id).ok().and_then(|at| self.strings.get(at)).copied().unwrap_or_default()
    }

    /// Which value of a sample is called so.
    fn column(&self, name: &str) -> Option<usize> {
        self.types.iter().position(|(kind, _)| self.string(*kind) == name.as_bytes())
    }

    /// The lines of a sample, outermost first.
    fn lines(&self, sample: &[u8]) -> Vec<(u64, u64)> {
        let locations = numbers(sample, 1).take(MOST_LOCATIONS);
        let lines = locations.filter_map(|id| self.locations.get(&id)).flatten();
        let mut lines: Vec<_> = lines.copied().take(DEEPEST).collect();
        lines.reverse();
        lines
    }

    fn frame(&self, (function, line): (u64, u64)) -> Frame {
        let (name, file) = self.functions.get(&function).copied().unwrap_or_default();
        let (name, file) = (text(self.string(name)), text(self.string(file)));
        Frame { name, file, line: u32::try_from(line).unwrap_or(0) }
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
fn numbers(message: &[u8], wanted: u64) -> impl Iterator<Item = u64> {
    let fields = MessageFields::new(message).filter(move |(field, _)| *field == wanted);
    fields
        .flat_map(|(_, value)| value.number().into_iter().chain(unpacked(value.bytes().unwrap_or_default())))
}

fn unpacked(packed: &[u8]) -> impl Iterator<Item = u64> {
    let (mut value, mut shift) = (0_u64, 0_u32);
    packed.iter().filter_map(move |&byte| {
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        shift = shift.saturating_add(7);
        (byte < 0x80).then(|| {
            shift = 0;
            std::mem::take(&mut value)
        })
    })
}

/// Reads a profile to its end.
pub(super) fn read(input: &mut Input<'_>) -> Result<Recording> {
    let budget = input.budget().clone();
    let mut held = Charge::new(&budget);
    let (bytes, read) = whole(input, &mut held)?;
    let (tables, understood) = Tables::of(&bytes, &budget);
    let partial = !(read && understood);
    let mut gaps = Vec::new();
    if partial {
        gaps.push(format!("The profile is cut short or broken ({} bytes could be unpacked).", bytes.len()));
    }
    let Some(space) = tables.column("space").or_else(|| tables.column("inuse_space")) else {
        let message = if partial {
            "is a pprof profile that is cut short before its names, without which nothing in it can be told"
        } else {
            "is a pprof profile that does not count bytes of memory: save one with \
             jax.profiler.save_device_memory_profile"
        };
        return Err(Error::new(if partial { ErrorKind::Malformed } else { ErrorKind::Empty }, message));
    };
    let count = tables.column("allocations").or_else(|| tables.column("inuse_objects"));
    let mut owners = Places::new(&budget);
    let mut called: HashMap<(OwnerId, u64, u64), OwnerId> = HashMap::new();
    // What is held on each device: bytes and pieces by owner.
    let mut devices: BTreeMap<&[u8], BTreeMap<OwnerId, (u64, u64)>> = BTreeMap::new();
    for sample in &tables.samples {
        if !budget.work() {
            break;
        }
        let held = numbers(sample, 2).nth(space).unwrap_or(0);
        let pieces = count.and_then(|count| numbers(sample, 2).nth(count)).unwrap_or(1);
        // Programs on a device are listed too, most with nothing that is counted.
        if held == 0 || i64::try_from(held).is_err() {
            continue;
        }
        let label = |name: &str| {
            let labels = MessageFields::new(sample).filter(|(field, _)| *field == 3);
            let mut labels = labels.filter_map(|(_, label)| label.bytes()).map(|label| pair(label, 1, 2));
            let found = labels.find(|(key, _)| tables.string(*key) == name.as_bytes());
            found.map(|(_, value)| tables.string(value))
        };
        let name = label("device").unwrap_or(b"device");
        if devices.len() >= MOST_DEVICES && !devices.contains_key(name) {
            continue;
        }
        let mut owner = OwnerId::UNKNOWN;
        for (function, line) in tables.lines(sample) {
            owner = match called.entry((owner, function, line)) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(_) if !budget.take(ENTRY) => break,
                Entry::Vacant(new) => *new.insert(owners.child(owner, tables.frame((function, line)))),
            };
        }
        if label("kind") == Some(b"executable") {
            owner = owners.child(owner, Frame { name: "executable".into(), ..Frame::default() });
        }
        let by_owner = devices.entry(name).or_default();
        if !by_owner.contains_key(&owner) && !budget.take(ENTRY) {
            break;
        }
        let (bytes, number) = by_owner.entry(owner).or_default();
        *bytes = bytes.saturating_add(held);
        *number = number.saturating_add(pieces);
    }
    if devices.is_empty() {
        return Err(Error::new(ErrorKind::Empty, "is a device memory profile in which nothing is held"));
    }
    let owners = owners.finish();
    let devices = devices
        .into_iter()
        .map(|(name, by_owner)| {
            let name = text(name);
            // Only accelerators are numbered in other files of the run.
            let host = name.to_ascii_lowercase().contains("cpu");
            Device {
                index: name.rsplit([':', '_']).next().and_then(|n| n.parse().ok()).filter(|_| !host),
                name,
                live: Some(by_owner.values().fold(0, |sum, (bytes, _)| u64::saturating_add(sum, *bytes))),
                live_by_owner: by_owner.into_iter().map(|(owner, (bytes, n))| (owner, bytes, n)).collect(),
                owners: owners.clone(),
                ..Device::default()
            }
        })
        .collect();
    let (formats, framework) = (vec![Format::Pprof], Framework::Jax);
    Ok(Recording { origin: Origin { files: Vec::new(), formats, framework, gaps, partial }, devices })
}

//! Logs: whatever a program wrote while it ran, with an out-of-memory message or an allocator's dump somewhere
//! in it. Most people who ran out of memory have nothing else.
//!
//! A log is read line by line in bounded memory, however long it or its lines are. Whatever is not about
//! memory is passed over, so this reader is also the last one to try on any text.

mod bfc;
mod lines;
mod parse;
mod torch_message;
mod xla;

use crate::error::{Error, ErrorKind, Result};
use crate::read::budget::Budget;
use crate::read::input::Input;
use crate::recording::{Device, Failure, Format, Framework, Origin, Recording};
use aho_corasick::AhoCorasick;
use bfc::{Dump, Dumps, PoolDumps};
use lines::Lines;
use parse::{Size, Traceback};
use plimsoll_memory::{BfcSettings, Model, OwnerId, Owners, format_bytes};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use torch_message::Messages;
use xla::{FRAMEWORKS, ListedBuffer, RuntimeMessages};

/// Whether this is text, and not JSON: few bytes that no log has.
pub(super) fn looks(start: &[u8]) -> bool {
    let wide = start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff]);
    let odd = |b: u8| (b < 0x20 && !matches!(b, b'\n' | b'\r' | b'\t' | 0x08 | 0x0c | 0x1b)) || b == 0x7f;
    let odd = start.iter().filter(|&&b| odd(b) && !(wide && b == 0)).count();
    let torn = start.iter().filter(|&&b| b >= 0xf8).count();
    !start.is_empty() && !looks_json(start) && (odd + torn) * 50 <= start.len() + 49
}

/// Whether this is one JSON document. Lines that are a document each are a log.
fn looks_json(start: &[u8]) -> bool {
    let mut bytes = start.iter().copied().filter(|b| !b.is_ascii_whitespace());
    let json = match (bytes.next(), bytes.next()) {
        (Some(b'{'), Some(next)) => matches!(next, b'"' | b'}'),
        (Some(b'['), Some(next)) => matches!(next, b'{' | b'"'),
        _ => false,
    };
    let mut lines = start.split(|&b| b == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let log = lines.next().is_some_and(|line| line.ends_with(b"}"))
        && lines.next().is_some_and(|line| line.starts_with(b"{"));
    json && !log
}

/// Reads a log to its end.
pub(super) fn read(input: &mut Input<'_>) -> Result<Recording> {
    let budget = input.budget().clone();
    let mut log = Log::new(&budget);
    let mut lines = Lines::new(input);
    let words = &*WORDS;
    let broken = loop {
        if !log.expects_more()
            && let Err(error) = lines.skip_without(&words.telling)
        {
            break Some(error);
        }
        match lines.next() {
            Ok(Some(line)) => {
                log.cut = line.cut;
                // A figure of a dump may be cut with its line.
                if !(line.cut && log.dumps.is_open()) {
                    log.line(&line.text, words, line.number);
                }
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    if let Some(error) = broken {
        log.gaps.push(format!("The log could be read only up to line {}: {error}.", lines.number()));
        log.partial = true;
    }
    log.finish(lines.number())
}

/// Words that every line of interest has one of, outside of dumps.
const TELLING: [&str; 13] = [
    "emory",
    "OOM",
    "bfc_allocator",
    "bytes_in_use",
    "alloc",
    "File ",
    "Traceback",
    "jax",
    "ensor",
    "XLA",
    "pjrt",
    "Created device",
    "Cell In[",
];

/// Words of which every line has one that begins anything; others only go on with what was begun.
const BEGINNING: [&str; 24] = [
    "ut of memory",
    "OUT_OF_MEMORY",
    "OOM when",
    "tried to allocate",
    "runtime error (2)",
    "bfc_allocator",
    "BFCAllocator",
    "Bin (256)",
    "Created ",
    " on device ",
    "otal memory: ",
    "totalMemory: ",
    "bytes_in_use",
    "Failed to allocate",
    "{{node ",
    "[[node ",
    "[[Node: ",
    "[Op:",
    "Peak buffers:",
    "Current usage from",
    "Traceback (",
    "File ",
    "Cell ",
    "memory allocating",
];

/// Searches for many words at once: logs are long, and most of their lines have none. Made once: that takes longer than
/// reading a message.
static WORDS: LazyLock<Words> = LazyLock::new(Words::new);

struct Words {
    /// The telling words, and bytes that may hide one: zeros between characters, and colours.
    telling: AhoCorasick,
    beginning: AhoCorasick,
    frameworks: AhoCorasick,
}

impl Words {
    fn new() -> Words {
        let search = |words: &[&str]| AhoCorasick::new(words).expect("a search for a few words");
        let telling = [&TELLING[..], &["\0", "\x1b"]].concat();
        let frameworks = search(&FRAMEWORKS);
        Words { telling: search(&telling), beginning: search(&BEGINNING), frameworks }
    }
}

/// What was found so far.
#[derive(Debug)]
struct Log {
    dumps: Dumps,
    messages: Messages,
    runtime: RuntimeMessages,
    traceback: Traceback,
    gaps: Vec<String>,
    /// Whether what is missing may change what the rest says.
    partial: bool,
    /// Whether the last line was cut.
    cut: bool,
    /// Lines that belong to what a telling line began.
    following: u32,
    refused_at: u64,
}

impl Log {
    fn new(budget: &Budget) -> Log {
        Log {
            dumps: Dumps::new(budget),
            messages: Messages::default(),
            runtime: RuntimeMessages::default(),
            traceback: Traceback::default(),
            gaps: Vec::new(),
            partial: false,
            cut: false,
            following: 0,
            refused_at: 0,
        }
    }

    /// Whether lines that tell nothing by themselves may belong to what came before.
    fn expects_more(&self) -> bool {
        self.following > 0 || self.dumps.is_open()
    }

    /// Takes a line.
    fn line(&mut self, line: &str, words: &Words, at: u64) {
        if words.telling.is_match(line) {
            self.following = 64;
        } else if self.following > 0 {
            self.following -= 1;
        } else if !self.dumps.is_open() {
            return;
        }
        let goes_on = self.dumps.is_open() || self.messages.is_gathering() || self.runtime.is_listing();
        let begins = words.beginning.is_match(line);
        if (goes_on || begins) && self.dumps.line(line, at) {
            self.runtime.written_by(line);
            self.refused_at = at;
            return;
        }
        if self.following == 0 {
            return;
        }
        words.frameworks.find_iter(line).for_each(|found| self.runtime.names(found.pattern().as_usize()));
        if !(goes_on || begins) {
            return self.runtime.pass();
        }
        let traceback = &self.traceback;
        self.messages.line(line, at, || traceback.innermost());
        self.runtime.line(line, at);
        self.traceback.line(line);
        // XLA's list of buffers is long, and none of its lines says what it is of.
        if !self.runtime.buffers.is_empty() && line.starts_with(['\t', ' ']) {
            self.following = self.following.max(8);
        }
    }

    fn finish(mut self, lines: u64) -> Result<Recording> {
        self.messages.end_of_log();
        self.dumps.finish();
        let torch_at = self.messages.found.iter().map(|message| message.at).max();
        let bfc_at =
            self.runtime.exhausted.as_ref().map(|e| e.at).into_iter().chain(Some(self.refused_at)).max();
        let bfc_at = bfc_at.filter(|&at| at > 0);
        let has_bfc = bfc_at.is_some() || self.runtime.stats.is_some();
        let recording = match torch_at {
            Some(torch_at) if !has_bfc || Some(torch_at) > bfc_at => {
                if has_bfc {
                    self.gaps
                        .push("The log also speaks of TensorFlow's or JAX's pool; that is left out.".into());
                }
                self.torch()
            }
            Some(_) => {
                self.gaps
                    .push("The log also holds an out-of-memory message of PyTorch; that is left out.".into());
                self.bfc()
            }
            None => self.bfc(),
        };
        if recording.devices.is_empty() {
            return Err(self.nothing(lines));
        }
        Ok(recording)
    }

    fn nothing(&self, lines: u64) -> Error {
        let message = match self.messages.without_sizes {
            Some(at) => format!(
                "line {at} says that memory ran out, but nothing in the log says how much was asked, held or free: \
                 record a snapshot (torch.cuda.memory._record_memory_history) and give that"
            ),
            None => format!(
                "is text of {lines} lines in which nothing about a device's memory was found: neither PyTorch's \
                 out-of-memory message, nor the dump of TensorFlow's or JAX's allocator (written at log level 0: \
                 TF_CPP_MIN_LOG_LEVEL=0), nor their RESOURCE_EXHAUSTED error, nor printed memory_stats()"
            ),
        };
        Error::new(ErrorKind::Empty, message)
    }

    fn recording(&mut self, format: Format, framework: Framework, devices: Vec<Device>) -> Recording {
        let gaps = std::mem::take(&mut self.gaps);
        let origin =
            Origin { files: Vec::new(), formats: vec![format], framework, gaps, partial: self.partial };
        Recording { origin, devices }
    }

    fn torch(&mut self) -> Recording {
        let mut messages = std::mem::take(&mut self.messages.found);
        messages.sort_by_key(|message| message.at);
        if self.messages.count > messages.len() as u64 {
            let at = messages.iter().map(|message| message.at.to_string()).collect::<Vec<_>>().join(", ");
            self.gaps.push(format!(
                "The log holds {} out-of-memory messages; the last of each device is explained (line {at}).",
                self.messages.count
            ));
        }
        if messages.iter().any(|message| message.cut) {
            self.partial = true;
            self.gaps.push(
                "The log ends within an out-of-memory message: the figures after that are missing.".into(),
            );
        }
        let devices = messages.into_iter().map(|message| message.device).collect();
        self.recording(Format::TorchMessage, Framework::PyTorch, devices)
    }

    fn bfc(&mut self) -> Recording {
        let framework = match (self.runtime.jax, self.runtime.tensorflow) {
            (true, false) => Framework::Jax,
            (false, true) => Framework::TensorFlow,
            _ => Framework::TensorFlowOrJax,
        };
        let pools = std::mem::take(&mut self.dumps.pools);
        let alone = pools.len() <= 1;
        let mut devices: Vec<Device> = Vec::new();
        for (_, pool) in pools {
            if let Some(device) = self.pool(pool, alone, framework) {
                devices.push(device);
            }
        }
        if devices.is_empty() {
            devices.extend(self.without_dump(framework));
        }
        self.recording(Format::BfcLog, framework, devices)
    }

    /// The device of a pool, from the last dump that is whole.
    fn pool(&mut self, pool: PoolDumps, alone: bool, framework: Framework) -> Option<Device> {
        let PoolDumps { count, complete, partial, first_live } = pool;
        if let (Some(partial), Some(complete)) = (&partial, &complete) {
            self.gaps.push(format!(
                "The dump at line {} is cut short; the one before it, at line {}, is explained.",
                partial.line, complete.line
            ));
        } else if let Some(partial) = &partial {
            self.partial = true;
            self.gaps.push(format!(
                "The dump at line {} is cut short: what it says of the pool is partial.",
                partial.line
            ));
        }
        let mut dump = complete.or(partial)?;
        if count > 1 {
            let grown = first_live.zip(dump.live()).map_or(String::new(), |(first, last)| {
                format!("; in use were {} at the first and {} at that one", show(first), show(last))
            });
            self.gaps.push(format!(
                "The log holds {count} dumps of {}; the last whole one, at line {}, is explained{grown}.",
                if dump.allocator.is_empty() { "the pool" } else { &dump.allocator },
                dump.line
            ));
        }
        Some(self.device(&mut dump, alone, framework))
    }

    fn device(&mut self, dump: &mut Dump, alone: bool, framework: Framework) -> Device {
        let state = dump.state();
        self.gaps.extend(state.gap);
        let runtime = &self.runtime;
        let exhausted = runtime.exhausted.clone().filter(|exhausted| {
            alone || exhausted.allocator.as_deref().is_some_and(|name| name == dump.allocator)
        });
        if dump.allocator.is_empty()
            && let Some(name) = exhausted.as_ref().and_then(|exhausted| exhausted.allocator.clone())
        {
            dump.allocator = name;
        }
        let index = bfc::device_of(&dump.allocator).or_else(|| exhausted.as_ref().and_then(|e| e.device));
        let set_up = runtime.pools.get(&index.unwrap_or(0)).copied();
        let stats = runtime.stats.clone().filter(|_| alone).unwrap_or_default();
        // A figure that was rounded for print is replaced by one to the byte that prints the same.
        let exact = |stated: Option<Size>, others: &[Option<u64>]| {
            let same = |stated: Size| others.iter().flatten().copied().find(|&bytes| stated.may_be(bytes));
            match stated {
                Some(stated) if stated.exact => Some(stated.bytes),
                Some(stated) => same(stated).or(Some(stated.bytes)),
                None => others.iter().flatten().next().copied(),
            }
        };
        let set_up_bytes = set_up.filter(|(size, _)| size.exact).map(|(size, _)| size.bytes);
        let reserved = exact(state.reserved, &[set_up_bytes, stats.pool]);
        let limit =
            exact(dump.limit, &[set_up_bytes, stats.limit, reserved.filter(|_| dump.growth == Some(false))]);
        let limit = limit.or(set_up.map(|(size, _)| size.bytes));
        let regions = state.layout.as_ref().map(|layout| layout.segments.len());
        let growth =
            dump.growth.or(set_up.filter(|(size, _)| size.exact).map(|(_, taken)| !taken)).or_else(|| {
                // One region as large as the limit was taken at the start; several were taken one by one.
                let (reserved, limit) = (reserved?, limit?);
                Some(regions.is_some_and(|count| count > 1) || reserved < limit - limit / 64)
            });
        let mut owners = std::mem::take(&mut dump.owners);
        let mut live_by_owner = state.live_by_owner;
        if state.layout.is_none() && live_by_owner.iter().all(|(owner, ..)| *owner == OwnerId::UNKNOWN) {
            let listed = self.listed(&mut owners, live_by_owner.is_empty());
            live_by_owner = if listed.is_empty() { live_by_owner } else { listed };
        }
        let failure = self.failure(dump, exhausted.as_ref());
        if failure.is_none() {
            self.partial = true;
            self.gaps.push(format!(
                "The dump at line {} was written because a request was refused; which one, the log does not say.",
                dump.line
            ));
        }
        Device {
            name: if dump.allocator.is_empty() { "BFC pool".into() } else { dump.allocator.clone() },
            index,
            capacity: self.runtime.capacity.map(|size| size.bytes),
            limit,
            reserved,
            live: state.live.map(|size| size.bytes),
            peak_live: exact(dump.peak, &[stats.peak, state.live.map(|size| size.bytes)]),
            largest_free: state.largest_free.map(|size| size.bytes),
            model: growth.map(|growth| model(growth, framework)),
            layout: state.layout,
            failure,
            owners: Arc::new(owners),
            live_by_owner,
            ..Device::default()
        }
    }

    /// What the log lists as held, by owner: tensors in use, or the buffers that XLA planned.
    fn listed(&mut self, owners: &mut Owners, planned: bool) -> Vec<(OwnerId, u64, u64)> {
        if self.runtime.usage.is_empty() && planned && !self.runtime.buffers.is_empty() {
            self.gaps.push(
                "What is listed as held is what XLA's program would have held at its peak: its largest buffers, as \
                 its buffer assignment printed them."
                    .into(),
            );
            return held(&self.runtime.buffers, owners);
        }
        held(&self.runtime.usage, owners)
    }

    /// What was refused: the dump knows it to the byte, the error knows who asked.
    fn failure(&self, dump: &Dump, exhausted: Option<&xla::Exhausted>) -> Option<Failure> {
        let of_shape = |stated: Option<Size>| {
            // An older wording gives a tensor's shape without its type.
            let elements = exhausted?.elements?;
            let sizes = [4, 8, 2, 1, 16].into_iter().filter_map(|bytes| elements.checked_mul(bytes));
            sizes.map(Size::exact).find(|size| stated.is_some_and(|stated| stated.may_be(size.bytes)))
        };
        let asked = match (dump.asked, exhausted) {
            (Some(asked), _) if asked.exact => asked,
            (asked, Some(exhausted)) if exhausted.elements.is_some() => of_shape(asked).or(asked)?,
            (Some(asked), Some(exhausted))
                if exhausted.asked.exact && asked.may_be(exhausted.asked.bytes) =>
            {
                exhausted.asked
            }
            (Some(asked), _) => asked,
            (None, Some(exhausted)) => exhausted.asked,
            (None, None) => return None,
        };
        let op = dump.op.clone().or_else(|| exhausted.and_then(|exhausted| exhausted.op.clone()));
        let op = op.or_else(|| exhausted.and_then(|_| self.traceback.innermost()));
        Some(Failure { requested: asked.bytes, exact: asked.exact, event: None, op })
    }

    /// What is known where no dump was written: the error, the pool as it was set up, printed figures.
    fn without_dump(&mut self, framework: Framework) -> Option<Device> {
        let exhausted = self.runtime.exhausted.clone().filter(|e| e.elements.is_none() && e.asked.bytes > 0);
        let driver = self.runtime.driver.clone().filter(|_| self.runtime.stats.is_none());
        if let (None, Some(driver)) = (&exhausted, &driver) {
            self.gaps.push(format!(
                "Line {} says that the device refused memory to the pool itself; whether the program went on with \
                 less is not told.",
                driver.at
            ));
        }
        let exhausted = exhausted.or(driver);
        if exhausted.is_none() && self.runtime.stats.is_none() {
            return None;
        }
        if self.cut {
            self.partial = true;
            self.gaps.push("The log ends within a line, and what came after may have said more.".into());
        }
        let stats = self.runtime.stats.clone().unwrap_or_default();
        let index = exhausted.as_ref().and_then(|exhausted| exhausted.device);
        let set_up = self.runtime.pools.get(&index.unwrap_or(0)).copied();
        let name = exhausted.as_ref().and_then(|exhausted| exhausted.allocator.clone());
        let failure = exhausted.map(|exhausted| Failure {
            requested: exhausted.asked.bytes,
            exact: exhausted.asked.exact,
            event: None,
            op: exhausted.op.or_else(|| self.traceback.innermost()),
        });
        let mut device = Device {
            name: name.unwrap_or_else(|| format!("GPU_{}_bfc", index.unwrap_or(0))),
            index: Some(index.unwrap_or(0)),
            capacity: self.runtime.capacity.map(|size| size.bytes),
            limit: stats.limit.or(set_up.map(|(size, _)| size.bytes)),
            reserved: stats.pool.or(set_up.filter(|(_, taken)| *taken).map(|(size, _)| size.bytes)),
            live: stats.live,
            peak_live: stats.peak,
            largest_free: stats.largest_free,
            failure,
            ..Device::default()
        };
        let growth = set_up.filter(|(size, _)| size.exact).map(|(_, taken)| !taken);
        let growth = growth.or(stats.pool.zip(stats.limit).map(|(pool, limit)| pool < limit));
        device.model = growth.map(|growth| model(growth, framework));
        device.live_by_owner = self.listed(Arc::make_mut(&mut device.owners), true);
        Some(device)
    }
}

/// The allocator's rules. TensorFlow gives empty regions back before it gives up; XLA's runtime does not, and
/// divides a pool that does not grow.
fn model(growth: bool, framework: Framework) -> Model {
    let tensorflow = framework == Framework::TensorFlow;
    Model::Bfc(BfcSettings { growth, garbage_collection: tensorflow, partitioned: !tensorflow && !growth })
}

/// A list of what is held, by owner.
fn held(list: &[ListedBuffer], owners: &mut Owners) -> Vec<(OwnerId, u64, u64)> {
    let mut sums: BTreeMap<OwnerId, (u64, u64)> = BTreeMap::new();
    for ListedBuffer { frame, bytes } in list {
        let (sum, count) = sums.entry(owners.child(OwnerId::UNKNOWN, frame.clone())).or_default();
        *sum = sum.saturating_add(*bytes);
        *count += 1;
    }
    sums.into_iter().map(|(owner, (bytes, count))| (owner, bytes, count)).collect()
}

fn show(size: Size) -> String {
    if size.exact { format!("{} bytes", size.bytes) } else { format_bytes(size.bytes) }
}

//! Logs: whatever a program wrote while it ran, with an out-of-memory message or an allocator's dump somewhere
//! in it. Most people who ran out of memory have nothing else.
//!
//! A log is read line by line in bounded memory, however long it or its lines are. Whatever is not about
//! memory is passed over, so this reader is also the last one to try on any text.

mod accelerator;
mod arena;
mod bfc;
mod clues;
mod cuda;
mod found;
mod ggml;
mod host;
mod lines;
mod parse;
mod pools;
mod scratch;
mod server;
mod smi;
mod torch_message;
mod unspecified;
mod wide;
mod xla;

use crate::error::{Error, ErrorKind, Result};
use crate::read::budget::Budget;
use crate::read::input::Input;
use crate::recording::{Device, Format, Framework, Origin, Recording};
use crate::sign::SignKind;
use aho_corasick::AhoCorasick;
use bfc::Dumps;
use clues::Clues;
use found::{Found, Weight};
use ggml::Listing;
use lines::Lines;
use parse::Traceback;
use smi::Tables;
use std::io::{BufRead, Read};
use std::sync::LazyLock;
use torch_message::Messages;
use xla::{FRAMEWORKS, RuntimeMessages};

/// Whether this is text, and not JSON: few bytes that no log has.
pub(super) fn looks(start: &[u8]) -> bool {
    let wide = wide::order(start).is_some();
    let odd =
        |b: u8| (b < 0x20 && !matches!(b, b'\n' | b'\r' | b'\t' | 0x07 | 0x08 | 0x0c | 0x1b)) || b == 0x7f;
    let odd = start.iter().filter(|&&b| odd(b) && !wide).count();
    let torn = start.iter().filter(|&&b| b >= 0xf8 && !wide).count();
    !start.is_empty() && !looks_json(start) && (odd + torn) * 50 <= start.len() + 49
}

/// Whether this is one JSON document. Lines that are a document each are a log.
pub(super) fn looks_json(start: &[u8]) -> bool {
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
    // A short text is kept, to be looked at again if its lines were broken at a column.
    let short = input.peek()?.to_vec();
    let Some(order) = wide::order(&short) else { return read_lines(input, &short, &budget) };
    let mut narrow = Vec::new();
    // Bytes that are at hand cannot fail to be read; the last may be half a character.
    wide::narrow(&short[..], order).read_to_end(&mut narrow).ok();
    read_lines(wide::narrow(input, order), &narrow, &budget)
}

/// Reads the lines of a log, whose start is `short`.
fn read_lines(input: impl BufRead, short: &[u8], budget: &Budget) -> Result<Recording> {
    let mut log = Log::new(budget);
    let mut lines = Lines::new(input);
    let words = &*WORDS;
    let broken = loop {
        if !log.expects_more()
            && let Err(error) = lines.skip_without(&words.telling)
        {
            break Some(error);
        }
        if let Some(time) = lines.take_passed().and_then(|line| parse::time(&line)) {
            log.time = Some(time);
        }
        match lines.next() {
            Ok(Some(line)) => {
                log.cut = line.cut;
                // A figure of a dump may be cut with its line.
                if !(line.cut && log.dumps.is_open()) {
                    log.take(&line.text, words, line.number);
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
    let guessed = log.is_a_guess();
    let recording = log.finish(lines.number());
    // Figures are what breaking lines destroys.
    let without_figures =
        |recording: &Recording| recording.devices.iter().all(|device| device.failure.is_none());
    if recording.as_ref().is_ok_and(|recording| !without_figures(recording)) {
        return recording;
    }
    let again = unbroken(short).and_then(|text| read_texts(budget, std::iter::once(text.as_str())).ok());
    if let Some(again) = again.filter(|again| !without_figures(again)) {
        return Ok(again);
    }
    if !guessed {
        return recording;
    }
    // A sentence may be broken between two of its words.
    let joined = in_pairs(short);
    match (read_texts(budget, joined.iter().map(String::as_str)), recording) {
        (Ok(joined), Ok(recording)) if without_figures(&joined) => Ok(recording),
        (joined, recording) => joined.or(recording),
    }
}

/// A text with its lines joined that were broken at a column, if any were: those are all of one length, or one shorter
/// where a blank at the column was lost.
fn unbroken(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let lines: Vec<(&str, usize)> = text.lines().map(|line| (line, line.chars().count())).collect();
    let width = lines.iter().map(|&(_, length)| length).max()?;
    let broken = lines.iter().filter(|&&(_, length)| length == width).count();
    if width < 20 || lines.len() < 2 || broken < 2 && lines.len() > 3 {
        return None;
    }
    let mut joined = String::with_capacity(text.len());
    for (line, length) in lines {
        joined.push_str(line);
        if length + 1 == width {
            joined.push(' ');
        } else if length < width {
            joined.push('\n');
        }
    }
    Some(joined)
}

/// Every line of a text with the one after it.
fn in_pairs(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.windows(2).map(|pair| pair.join(" ")).collect()
}

/// Reads texts that something else has kept apart, each as lines of one log.
pub(super) fn read_texts<'t>(budget: &Budget, texts: impl Iterator<Item = &'t str>) -> Result<Recording> {
    let mut log = Log::new(budget);
    let mut number = 0;
    for line in texts.flat_map(str::lines) {
        number += 1;
        log.take(&lines::plain(line.into()), &WORDS, number);
    }
    log.finish(number)
}

/// Words that every line of interest has one of, outside of dumps.
const TELLING: [&str; 53] = [
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
    "rror",
    "illed",
    "SIGKILL",
    "137",
    "-9",
    "ignal",
    "oom",
    "shm",
    "1455",
    "页面文件",
    "STATUS_",
    "NCCL",
    "resource",
    "cudaMalloc",
    "KV cache",
    "cache blocks",
    "MiB",
    "RAM",
    "OUT_OF",
    "MEMLIMIT",
    "onnxruntime",
    "ggml",
    "torch",
    "limit",
    "terminated",
    "return code",
    "exitcode",
    "SIGBUS",
    "135",
    "VRAM",
    "已杀死",
    "已砍掉",
    "強制終了",
    "죽었음",
    "Убито",
    "Getötet",
    "Processus arrêté",
    "Ucciso",
    "Morto",
    "Java heap",
];

/// Words of which every line has one that begins anything; others only go on with what was begun.
const BEGINNING: [&str; 29] = [
    "ut of memory",
    "OUT_OF_MEMORY",
    "OOM when",
    "tried to allocate",
    "Tried to allocate ",
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
    "llocate memory",
    "Bin for ",
    "total allocation:",
    "ree memory: ",
];

/// Searches for many words at once: logs are long, and most of their lines have none. Made once: that takes longer than
/// reading a message.
static WORDS: LazyLock<Words> = LazyLock::new(Words::new);

struct Words {
    /// The telling words, and bytes that may hide one: zeros between characters, and colours.
    telling: AhoCorasick,
    beginning: AhoCorasick,
    frameworks: AhoCorasick,
    /// Words of the families that say outright what happened.
    families: AhoCorasick,
}

impl Words {
    fn new() -> Words {
        let search = |words: &[&str]| AhoCorasick::new(words).expect("a search for a few words");
        let telling = [&TELLING[..], &["\0", "\x1b"]].concat();
        let frameworks = search(&FRAMEWORKS);
        let families = [
            accelerator::WORDS,
            arena::WORDS,
            cuda::WORDS,
            ggml::WORDS,
            host::WORDS,
            scratch::WORDS,
            server::WORDS,
            smi::WORDS,
            unspecified::WORDS,
        ];
        let families = search(&families.concat());
        Words { telling: search(&telling), beginning: search(&BEGINNING), frameworks, families }
    }
}

/// What was found so far.
#[derive(Debug)]
struct Log {
    dumps: Dumps,
    messages: Messages,
    runtime: RuntimeMessages,
    traceback: Traceback,
    clues: Clues,
    tables: Tables,
    listing: Listing,
    /// What families of messages say outright, the first of each kind.
    found: Vec<Found>,
    gaps: Vec<String>,
    /// Whether what is missing may change what the rest says.
    partial: bool,
    /// Whether the last line was cut.
    cut: bool,
    /// The time that was logged last.
    time: Option<String>,
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
            clues: Clues::default(),
            tables: Tables::default(),
            listing: Listing::default(),
            found: Vec::new(),
            gaps: Vec::new(),
            partial: false,
            cut: false,
            time: None,
            following: 0,
            refused_at: 0,
        }
    }

    /// Whether lines that tell nothing by themselves may belong to what came before.
    fn expects_more(&self) -> bool {
        self.following > 0 || self.dumps.is_open()
    }

    /// Takes a line. One that is a JSON object stands for the texts in it.
    fn take(&mut self, line: &str, words: &Words, at: u64) {
        let object = line.trim_start().starts_with("{\"") && line.trim_end().ends_with('}');
        if object
            && words.telling.is_match(line)
            && let Ok(serde_json::Value::Object(entries)) = serde_json::from_str(line)
        {
            let texts = entries.values().filter_map(serde_json::Value::as_str);
            for text in texts.filter(|text| text.contains([' ', '\t'])).flat_map(str::lines) {
                self.line(&lines::plain(text.into()), words, at);
            }
            // Figures that a program printed as an object are keys and numbers.
            if entries.values().any(serde_json::Value::is_number) {
                self.line(line, words, at);
            }
            return;
        }
        self.line(line, words, at);
    }

    fn line(&mut self, line: &str, words: &Words, at: u64) {
        if words.telling.is_match(line) {
            self.following = 64;
        } else if self.following > 0 {
            self.following -= 1;
        } else if !self.dumps.is_open() {
            return;
        }
        self.time = parse::time(line).or(self.time.take());
        if words.families.is_match(line) {
            self.outright(line, at);
        }
        let goes_on = self.dumps.is_open() || self.messages.is_gathering() || self.runtime.is_listing();
        let begins = words.beginning.is_match(line);
        if line.contains("not a failure") {
            return self.runtime.line(line, at);
        }
        if (goes_on || begins) && self.dumps.line(line, at) {
            self.runtime.written_by(line);
            self.refused_at = at;
            return;
        }
        if self.following == 0 {
            return;
        }
        self.clues.line(line);
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

    /// Takes what a line says outright, whatever the program is.
    fn outright(&mut self, line: &str, at: u64) {
        self.tables.read(line, at);
        let found = self
            .listing
            .read(line, at)
            .or_else(|| scratch::read(line, at))
            .or_else(|| server::read(line, at))
            .or_else(|| accelerator::read(line, at))
            .or_else(|| arena::read(line, at))
            .or_else(|| cuda::read(line, at))
            .or_else(|| host::read(line, at))
            .or_else(|| host::semaphore(line, at).filter(|_| self.clues.makes_semaphores))
            .or_else(|| unspecified::read(line, at));
        let kind = |found: &Found| found.device.sign.as_ref().map(|sign| sign.kind);
        if ggml::is_tried_again(line) {
            let refused = |known: &Found| {
                known.framework == Framework::LlamaCpp && kind(known) == Some(SignKind::DeviceFull)
            };
            self.found.retain(|known| !refused(known));
            self.found.push(Found::sign(SignKind::Warning, "GPU", line, at).by(Framework::LlamaCpp));
            return;
        }
        self.take_found(found, line, at);
        let mut refused = self.found.iter_mut().filter(|found| found.framework == Framework::LlamaCpp);
        if let (Some(purpose), Some(failure)) =
            (ggml::purpose(line), refused.find_map(|found| found.device.failure.as_mut()))
        {
            failure.op.get_or_insert_with(|| purpose.into());
        }
    }

    /// Keeps a finding, unless one of its kind says as much.
    fn take_found(&mut self, found: Option<Found>, line: &str, at: u64) {
        let Some(mut found) = found else { return };
        let kind = |found: &Found| found.device.sign.as_ref().map(|sign| sign.kind);
        if kind(&found) == Some(SignKind::DeviceFull) && self.clues.pins {
            // The frames above lock memory of the host; the device was not asked.
            found = Found::sign(SignKind::PinnedMemory, "host", line, at).by(found.framework);
        }
        // The first counts, what follows is its consequence; but a later one may say how much was asked.
        let known = self.found.iter_mut().find(|known| kind(known) == kind(&found));
        match known {
            Some(known) if known.weight < found.weight => *known = found,
            Some(known) if known.device.failure.is_none() && found.device.failure.is_some() => *known = found,
            Some(_) => {}
            None => self.found.push(found),
        }
    }

    /// Whose pool the runtime's messages are of.
    fn runtime_framework(&self) -> Framework {
        match (self.runtime.jax, self.runtime.tensorflow) {
            (true, false) => Framework::Jax,
            (false, true) => Framework::TensorFlow,
            _ => Framework::TensorFlowOrJax,
        }
    }

    fn finish(mut self, lines: u64) -> Result<Recording> {
        self.messages.end_of_log();
        self.dumps.finish();
        let torch_at = self.messages.found.iter().map(|message| message.at).max();
        let bfc_at =
            self.runtime.exhausted.as_ref().map(|e| e.at).into_iter().chain(Some(self.refused_at)).max();
        let bfc_at = bfc_at.filter(|&at| at > 0);
        let mut best = self.best_found();
        let outright = best.as_ref().is_some_and(|found| found.weight > Weight::Hint);
        let refused = bfc_at.is_some() || self.runtime.without_size.is_some() && !outright;
        let has_bfc = refused || self.runtime.stats.is_some() && !outright;
        let recording = match torch_at {
            Some(torch_at) if !has_bfc || Some(torch_at) > bfc_at => {
                if has_bfc {
                    self.gaps
                        .push("The log also speaks of TensorFlow's or JAX's pool; that is left out.".into());
                }
                self.note(best.as_ref());
                self.torch()
            }
            Some(_) => {
                self.gaps
                    .push("The log also holds an out-of-memory message of PyTorch; that is left out.".into());
                self.bfc()
            }
            None if has_bfc => {
                self.note(best.as_ref());
                self.bfc()
            }
            None => {
                if !outright {
                    best = self.warned().or(best);
                }
                self.said_outright(best)
            }
        };
        if recording.devices.is_empty() {
            return Err(nothing(lines));
        }
        Ok(recording)
    }

    /// Whether nothing was understood, or only that an error speaks of memory.
    fn is_a_guess(&self) -> bool {
        let told = self.messages.is_gathering()
            || !self.messages.found.is_empty()
            || self.dumps.is_open()
            || self.refused_at > 0
            || self.runtime.exhausted.is_some()
            || self.runtime.without_size.is_some();
        !told && self.best_found().is_none_or(|found| found.weight == Weight::Hint)
    }

    /// The finding that counts: the one that says most, and of those the first.
    fn best_found(&self) -> Option<Found> {
        let sized = |found: &Found| found.device.failure.is_some();
        self.found.iter().rev().max_by_key(|found| (found.weight, sized(found))).cloned()
    }

    /// Says that something else is in the log, which may have to do with it.
    fn note(&mut self, found: Option<&Found>) {
        let Some(sign) =
            found.filter(|found| found.weight == Weight::Cause).and_then(|f| f.device.sign.as_ref())
        else {
            return;
        };
        if self.messages.found.iter().all(|message| message.at != sign.line) {
            self.gaps.push(format!("Line {} also says: {}", sign.line, sign.quote));
        }
    }

    /// What is left if nothing failed: requests that were tried again with less, and warnings.
    fn warned(&self) -> Option<Found> {
        let framework = self.runtime_framework();
        if let Some(driver) = &self.runtime.driver {
            // Logged as an error until TensorFlow 2.1; later as information, since less is tried next.
            let kind = if self.runtime.driver_is_error { SignKind::Reservation } else { SignKind::Warning };
            let asked = self.runtime.driver_least.unwrap_or(driver.asked.bytes);
            let quote = format!(
                "the device refused {} to the pool",
                plimsoll_memory::format_bytes(driver.asked.bytes)
            );
            let mut found =
                Found::sign(kind, "GPU", &quote, driver.at).by(framework).bytes(Some(asked), None);
            found.device.capacity = self.runtime.capacity.map(|size| size.bytes);
            return Some(found);
        }
        let (quote, at) = self.runtime.not_a_failure.as_ref()?;
        Some(Found::sign(SignKind::Warning, "GPU", quote, *at).by(framework))
    }

    /// The recording of what is said outright.
    fn said_outright(&mut self, found: Option<Found>) -> Recording {
        let Some(Found { mut framework, mut device, .. }) = found else {
            return self.recording(Format::Log, Framework::Unknown, Vec::new());
        };
        if framework == Framework::Unknown && (self.runtime.jax || self.runtime.tensorflow) {
            framework = self.runtime_framework();
        }
        if framework == Framework::Unknown && device.name != "host" {
            framework = self.clues.framework().unwrap_or(framework);
        }
        let program = match framework {
            Framework::PyTorch => self.clues.of_torch(),
            Framework::TensorFlow | Framework::TensorFlowOrJax => self.clues.of_tensorflow(),
            _ => self.clues.of_any(),
        };
        device.program.complete(&program);
        if let Some(failure) = &mut device.failure {
            failure.op = self.traceback.innermost().or(failure.op.take());
        }
        self.add_table(&mut device);
        self.note_growth();
        self.recording(Format::Log, framework, vec![device])
    }

    /// Adds who holds the device, where a table beside the error shows that.
    fn add_table(&self, device: &mut Device) {
        let Some(shown) = self.tables.devices.get(&device.index.unwrap_or(0)) else { return };
        if device.others.is_empty() && device.failure.is_none() {
            device.capacity = device.capacity.or(Some(shown.total)).filter(|&total| total > 0);
            device.others = shown.processes.clone();
        }
    }

    /// Says that what a device holds grew from table to table.
    fn note_growth(&mut self) {
        let used = &self.tables.used;
        if used.len() >= 3
            && used.is_sorted()
            && used.last().zip(used.first()).is_some_and(|(last, first)| *last > first * 2)
        {
            let used: Vec<String> = used.iter().map(|&bytes| plimsoll_memory::format_bytes(bytes)).collect();
            self.gaps.push(format!(
                "Tables in the log show the device's memory in use grow: {}. If each step adds to it, something keeps what the \
                 steps make: results with their graphs, or an evaluation without torch.no_grad().",
                used.join(", ")
            ));
        }
    }

    fn recording(&mut self, format: Format, framework: Framework, mut devices: Vec<Device>) -> Recording {
        devices.iter_mut().for_each(|device| device.failed_at = self.time.clone());
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
        let program = self.clues.of_torch();
        let with_program = |mut device: Device| {
            device.program.complete(&program);
            device
        };
        let devices = messages.into_iter().map(|message| with_program(message.device)).collect();
        self.recording(Format::TorchMessage, Framework::PyTorch, devices)
    }
}

fn nothing(lines: u64) -> Error {
    let message = format!(
        "is text of {lines} lines in which nothing about a device's memory or the host's was found: no error, warning or dump of PyTorch, \
         TensorFlow, JAX, a server, a driver or the operating system. If the program ended without a word, look for \
         `Killed process` in `sudo dmesg`"
    );
    Error::new(ErrorKind::Empty, message)
}

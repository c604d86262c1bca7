//! Logs: whatever a program wrote while it ran, with an out-of-memory message or an allocator's dump somewhere
//! in it. Most people who ran out of memory have nothing else.
//!
//! A log is read line by line in bounded memory, however long it or its lines are. Whatever is not about
//! memory is passed over, so this reader is also the last one to try on any text.

mod accelerator;
mod arena;
mod bfc;
mod broken;
mod clues;
mod conclude;
mod cuda;
mod figures;
mod found;
mod ggml;
mod host;
mod lines;
mod parse;
mod pools;
mod refusal;
mod scratch;
mod server;
mod smi;
mod torch_message;
mod unspecified;
mod wide;
mod words;
mod xla;

use crate::error::Result;
use crate::read::budget::Budget;
use crate::read::input::Input;
use crate::recording::{Framework, Recording};
use crate::sign::SignKind;
use bfc::Dumps;
use broken::{in_pairs, unbroken};
use clues::Clues;
use found::{Found, Weight};
use ggml::Listing;
use lines::Lines;
use parse::Traceback;
use smi::Tables;
use std::io::{BufRead, Read};
use torch_message::Messages;
use words::{WORDS, Words};
use xla::RuntimeMessages;

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
    let joined = log_of(budget, joined.iter().map(String::as_str));
    let causes = joined.0.best_found().is_some_and(|found| found.weight == Weight::Cause);
    let guessed = joined.0.is_a_guess();
    match (joined.0.finish(joined.1), recording) {
        (Ok(_), Ok(recording)) if guessed => Ok(recording),
        (Ok(joined), Ok(recording)) if without_figures(&joined) && !causes => Ok(recording),
        (Ok(mut joined), Err(_)) if guessed => {
            // Figures of one line are none of the sentence in the next.
            for device in &mut joined.devices {
                (device.failure, device.device_free) = (None, None);
            }
            Ok(joined)
        }
        (joined, recording) => joined.or(recording),
    }
}

/// Reads texts that something else has kept apart, each as lines of one log.
pub(super) fn read_texts<'t>(budget: &Budget, texts: impl Iterator<Item = &'t str>) -> Result<Recording> {
    let (log, lines) = log_of(budget, texts);
    log.finish(lines)
}

/// What is found in texts, and how many lines they have.
fn log_of<'t>(budget: &Budget, texts: impl Iterator<Item = &'t str>) -> (Log, u64) {
    let mut log = Log::new(budget);
    let mut number = 0;
    for line in texts.flat_map(str::lines) {
        number += 1;
        log.take(&lines::plain(line.into()), &WORDS, number);
    }
    (log, number)
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
    /// The limit that the process had itself.
    own_limit: Option<host::OwnLimit>,
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
            own_limit: None,
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
        if words.families.is_match(line) || refusal::may_be_in(line) {
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
        self.tables.failed = self.found.iter().any(|found| found.weight >= Weight::Error);
        self.tables.read(line, at);
        self.own_limit = host::OwnLimit::read(line, at).or(self.own_limit.take());
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
        // What CUDA told of the device when its own pool refused.
        if let Some((free, rest)) =
            parse::after(line, "Free memory/Total memory: ").and_then(|text| text.trim().split_once('/'))
            && let Some(found) = self.found.iter_mut().find(|found| found.device.failure.is_some())
        {
            found.device.device_free = free.parse().ok();
            found.device.capacity = parse::number(rest);
        }
        let mut refused = self.found.iter_mut().filter(|found| found.framework == Framework::LlamaCpp);
        if let (Some(purpose), Some(failure)) =
            (ggml::purpose(line), refused.find_map(|found| found.device.failure.as_mut()))
        {
            // All buffers are made by the same function, which is called as if they were weights; a later line knows better.
            if failure.op.as_deref().is_none_or(|op| op == ggml::WEIGHTS) {
                failure.op = Some(purpose.into());
            }
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

    /// Whether nothing was understood, or only that an error speaks of memory.
    fn is_a_guess(&self) -> bool {
        let told = self.messages.is_gathering()
            || !self.messages.found.is_empty()
            || self.dumps.is_open()
            || self.refused_at > 0
            || self.runtime.exhausted.is_some()
            || self.runtime.without_size.is_some();
        !told && self.best_found().is_none_or(|found| found.weight <= Weight::Hint)
    }
}

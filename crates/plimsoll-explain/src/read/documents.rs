//! JSON documents that hold text: notebooks with the output of their cells, the answer of a server, the state of a pod.
//!
//! What a program printed stands in strings of such a document, line ends and all. They are read as one log, in the order
//! of the document. Of a notebook only outputs are read: its source may speak of memory without having any.

use super::input::Input;
use super::log;
use crate::error::{Error, ErrorKind, Result};
use serde_json::Value;
use std::io::Read;

/// What a byte of a document takes while it is read: the text, and its values.
const PER_BYTE: u64 = 8;
/// Values within values.
const DEEPEST: usize = 64;

/// Whether this is one JSON document, or begins like one.
pub(super) fn looks(start: &[u8]) -> bool {
    log::looks_json(start) && std::str::from_utf8(&start[..start.len().min(64)]).is_ok()
}

/// Reads a document to its end.
pub(super) fn read(input: &mut Input<'_>) -> Result<crate::Recording> {
    let budget = input.budget().clone();
    let mut text = Vec::new();
    let mut piece = vec![0; 1 << 16];
    loop {
        let count = match input.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(count) => count,
        };
        if !budget.take(count as u64 * PER_BYTE) {
            break;
        }
        text.extend_from_slice(&piece[..count]);
    }
    let text = String::from_utf8_lossy(&text);
    let mut strings = Vec::new();
    match serde_json::from_str::<Value>(&text) {
        Ok(document) => collect(&document, document.get("nbformat").is_some(), DEEPEST, &mut strings),
        // Cut or broken: what stands on its lines is still text.
        Err(_) => strings.push(text.to_string()),
    }
    log::read_texts(&budget, strings.iter().map(String::as_str)).map_err(|error| match error.kind() {
        ErrorKind::Empty => Error::new(ErrorKind::UnknownFormat, super::UNKNOWN),
        _ => error,
    })
}

/// The texts of a value, in order. Of a notebook, those of its outputs.
fn collect(value: &Value, notebook: bool, depth: usize, strings: &mut Vec<String>) {
    if depth == 0 {
        return;
    }
    match value {
        Value::String(text) => strings.push(text.clone()),
        // A list of strings is one text, cut at its line ends.
        Value::Array(items) if !items.is_empty() && items.iter().all(Value::is_string) => {
            let ended = items.iter().filter_map(Value::as_str).any(|line| line.ends_with('\n'));
            let lines: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            strings.push(lines.join(if ended { "" } else { "\n" }));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, notebook, depth - 1, strings)),
        Value::Object(entries) => {
            let told =
                |key: &str| !notebook || !matches!(key, "source" | "metadata" | "attachments" | "image/png");
            // The traceback of an error holds its message too.
            let twice = |key: &str| notebook && key == "evalue" && entries.contains_key("traceback");
            for (_, item) in entries.iter().filter(|(key, _)| told(key) && !twice(key)) {
                collect(item, notebook, depth - 1, strings);
            }
        }
        _ => {}
    }
}

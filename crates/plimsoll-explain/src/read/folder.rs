//! A folder of logs: one run of many processes, each of which wrote its own.
//!
//! When one rank fails, the others die of it: of a missing peer, of a signal. So the logs are read one by one, and the
//! first that shows a cause is explained; what the others say is told in a line.

use super::budget::Budget;
use super::input::{Input, Progress};
use super::read_input;
use crate::error::{Error, ErrorKind, Result};
use crate::recording::{Device, Recording};
use crate::sign::SignKind;
use std::fs;
use std::path::{Path, PathBuf};

/// Logs that are read of one folder, and folders within it.
const MOST: usize = 512;
const DEEPEST: usize = 5;

/// Reads the logs of a folder, and takes the one that tells what failed first.
pub(super) fn read(folder: &Path, progress: &Progress, budget: &Budget) -> Result<Recording> {
    let mut paths = Vec::new();
    list(folder, DEEPEST, &mut paths);
    paths.sort();
    let mut failed = Vec::new();
    let mut quiet = None;
    let count = paths.len();
    for path in paths {
        let name = path.display().to_string();
        let read =
            Input::open_within(&path, progress, budget.clone()).and_then(|input| read_input(input, &name));
        match read {
            Ok(recording) if recording.devices.iter().any(|device| strength(device) > 0) => {
                failed.push(recording)
            }
            Ok(recording) => quiet = quiet.or(Some(recording)),
            Err(_) => {}
        }
    }
    let first = failed.iter().enumerate().min_by_key(|(_, recording)| {
        let device = gravest(recording);
        (std::cmp::Reverse(device.map_or(0, strength)), device.and_then(|device| device.failed_at.clone()))
    });
    let Some(at) = first.map(|(at, _)| at) else {
        return quiet.ok_or_else(|| {
            let message = format!(
                "is a folder without a memory.jsonl of a Plimsoll run, and in none of its {count} logs anything about memory was \
                 found; give a file of the run"
            );
            Error::new(ErrorKind::Empty, message).in_file(&folder.display().to_string())
        });
    };
    let others: Vec<String> =
        failed.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, r)| said(r)).collect();
    let shared = shared_device(&failed);
    let mut recording = failed.swap_remove(at);
    let when = gravest(&recording).and_then(|device| device.failed_at.clone());
    let when = when.map_or(String::new(), |time| format!(", at {time}"));
    recording.origin.gaps.insert(
        0,
        format!(
            "Of {count} logs {} show a failure; this is the first that shows a cause{when}.",
            others.len() + 1
        ),
    );
    recording.origin.gaps.extend(others.into_iter().take(16));
    recording.origin.gaps.extend(shared);
    Ok(recording)
}

fn list(folder: &Path, depth: usize, paths: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() && depth > 0 {
            list(&path, depth - 1, paths);
        } else if kind.is_file() && is_log(&path) && paths.len() < MOST {
            paths.push(path);
        }
    }
}

fn is_log(path: &Path) -> bool {
    let kind = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    let kinds = ["log", "txt", "out", "err", "stdout", "stderr", "jsonl", "ipynb", "gz"];
    kind.is_none_or(|kind| kinds.contains(&kind.as_str()) || kind.parse::<u32>().is_ok())
}

/// How much a device says of a cause: figures, an error, the end of a process, nothing.
fn strength(device: &Device) -> u8 {
    match (&device.failure, device.sign.as_ref().map(|sign| sign.kind)) {
        (Some(_), _) => 3,
        (None, Some(SignKind::Warning)) => 0,
        (None, Some(SignKind::Killed)) => 1,
        (None, Some(_)) => 2,
        (None, None) => 0,
    }
}

fn gravest(recording: &Recording) -> Option<&Device> {
    recording.devices.iter().max_by_key(|device| strength(device))
}

/// What another log says, in a line.
fn said(recording: &Recording) -> String {
    let file = recording.origin.files.join(", ");
    let Some(device) = gravest(recording) else { return file };
    let when = device.failed_at.as_ref().map_or(String::new(), |time| format!(" at {time}"));
    let what = match (&device.failure, &device.sign) {
        (Some(failure), _) => {
            format!("{} were refused on {}", plimsoll_memory::format_bytes(failure.requested), device.name)
        }
        (None, Some(sign)) => sign.quote.clone(),
        (None, None) => String::new(),
    };
    format!("{file}{when}: {what}")
}

/// Whether several processes ran out on one device that each of them saw others on.
fn shared_device(failed: &[Recording]) -> Option<String> {
    let devices: Vec<&Device> =
        failed.iter().filter_map(gravest).filter(|device| !device.others.is_empty()).collect();
    let first = devices.first().and_then(|device| device.index)?;
    let same = devices.iter().filter(|device| device.index == Some(first)).count();
    (same > 1).then(|| {
        format!(
            "{same} of these processes ran out on GPU {first} and saw others on it: they may share one device. Give each its own \
             (torch.cuda.set_device(LOCAL_RANK))."
        )
    })
}

//! A step as a trace, for Perfetto (<https://ui.perfetto.dev>) and `chrome://tracing`.
//!
//! The file is a JSON object of trace events, times in microseconds. Kernels are complete events on a track of their own,
//! in the plan's order and one after another, each as long as it took alone; copies between device and host are on tracks
//! beside it, from when they are begun to when they have been waited for. Counters tell the bytes that are live while each
//! kernel runs, by category.

use crate::forecast::plan_picture::{PlanPicture, Purpose};
use crate::save::io_error;
use crate::{Error, ErrorKind, Result};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;

/// The kernels of a training step with their times and what is live meanwhile.
#[derive(Debug, Clone)]
pub struct StepTrace {
    picture: PlanPicture,
    /// The median seconds of each kernel, in the plan's order.
    seconds: Vec<f64>,
}

/// The one process of the trace, and its track of kernels. Tracks of copies are numbered after it.
const PROCESS: u32 = 1;
const KERNELS: usize = 1;

impl StepTrace {
    /// How often each kernel is timed; its median counts.
    pub const REPEATS: usize = 7;

    /// A plan and the seconds of its kernels, measured several times.
    pub(crate) fn new(picture: PlanPicture, measured: &[Vec<f64>]) -> StepTrace {
        let median = |kernel: usize| {
            let mut seconds: Vec<f64> = measured.iter().filter_map(|all| all.get(kernel).copied()).collect();
            seconds.sort_by(f64::total_cmp);
            seconds.get(seconds.len() / 2).copied().unwrap_or(0.0)
        };
        let seconds = (0..picture.kernels.len()).map(median).collect();
        StepTrace { picture, seconds }
    }

    /// The trace as data.
    pub fn to_json(&self) -> Value {
        let picture = &self.picture;
        let mut events =
            vec![name("process_name", 0, "a training step"), name("thread_name", KERNELS, "kernels")];
        let mut copies = Copies::default();
        let mut now = 0.0;
        for (position, (kernel, &seconds)) in picture.kernels.iter().zip(&self.seconds).enumerate() {
            let live: serde_json::Map<String, Value> = picture.live[position]
                .lines()
                .map(|(category, bytes)| (category.name().into(), bytes.into()))
                .collect();
            events.push(json!({ "ph": "C", "name": "live bytes", "pid": PROCESS, "ts": now, "args": live }));
            let buffers: Vec<String> = kernel
                .operands
                .iter()
                .map(|&operand| {
                    let buffer = &picture.buffers[operand];
                    format!("{} {} at {}, {} bytes", buffer.name, buffer.shape, buffer.offset, buffer.bytes)
                })
                .collect();
            let micros = 1e6 * seconds;
            let event = json!({
                "ph": "X",
                "name": kernel.title(),
                "cat": kernel.purpose.name(),
                "pid": PROCESS,
                "tid": KERNELS,
                "ts": now,
                "dur": micros,
                "args": {
                    "kernel": position + 1,
                    "flops": kernel.flops,
                    "bytes": kernel.bytes,
                    "predicted_us": 1e6 * kernel.seconds,
                    "live_bytes": picture.live[position].total(),
                    "buffers": buffers,
                },
            });
            if let Some(buffer) = kernel.copied_to {
                match kernel.purpose {
                    Purpose::Wait => copies.end(buffer, now + micros, &mut events),
                    _ => copies.begin(buffer, now, event.clone()),
                }
            }
            events.push(event);
            now += micros;
        }
        copies.end_all(now, &mut events);
        for lane in 0..copies.lanes.len() {
            events.push(name("thread_name", KERNELS + 1 + lane, "copies between device and host"));
        }
        json!({
            "traceEvents": events,
            "displayTimeUnit": "ms",
            "otherData": {
                "plimsoll": env!("CARGO_PKG_VERSION"),
                "times": format!("of each kernel alone, the median of {}", StepTrace::REPEATS),
                "peak_bytes": picture.peak_bytes,
            },
        })
    }

    /// Writes the trace to a file, which is whole or absent.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let bytes = serde_json::to_vec(&self.to_json()).map_err(|error| {
            Error::new(ErrorKind::File, format!("the trace cannot be written: {error}")).caused_by(error)
        })?;
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            // A pipe or a terminal has no place beside it.
            return std::fs::write(path, bytes).map_err(|error| io_error("cannot write", path, error));
        }
        super::write_whole(path, &bytes)
    }
}

fn name(what: &str, track: usize, name: &str) -> Value {
    json!({ "ph": "M", "name": what, "pid": PROCESS, "tid": track, "args": { "name": name } })
}

/// Copies under way, each on a track on which no other is meanwhile.
#[derive(Default)]
struct Copies {
    /// Whether a copy is under way on each track.
    lanes: Vec<bool>,
    /// By the buffer that is copied to: the track, when it began, and what is told of it.
    under_way: HashMap<u32, (usize, f64, Value)>,
}

impl Copies {
    fn begin(&mut self, buffer: u32, now: f64, event: Value) {
        let lane = self.lanes.iter().position(|taken| !taken).unwrap_or(self.lanes.len());
        if lane == self.lanes.len() {
            self.lanes.push(true);
        }
        self.lanes[lane] = true;
        self.under_way.insert(buffer, (lane, now, event));
    }

    fn end(&mut self, buffer: u32, now: f64, events: &mut Vec<Value>) {
        let Some((lane, begun, mut event)) = self.under_way.remove(&buffer) else { return };
        self.lanes[lane] = false;
        event["tid"] = (KERNELS + 1 + lane).into();
        event["dur"] = (now - begun).into();
        events.push(event);
    }

    fn end_all(&mut self, now: f64, events: &mut Vec<Value>) {
        let buffers: Vec<u32> = self.under_way.keys().copied().collect();
        buffers.into_iter().for_each(|buffer| self.end(buffer, now, events));
    }
}

//! Plimsoll's own trace as a file: what a pool or a plan did with memory, to be explained later or elsewhere.
//!
//! A line of JSON for each fact, so that a file of any length is written and read one line at a time, one that was
//! cut short is good up to there, and a person can look into it with any text tool. The first line is a
//! [`TraceHeader`], all others are [`TraceLine`]s.

use crate::layout::{Layout, PieceState, SegmentClass};
use crate::owners::{OwnerId, Owners};
use crate::trace::{Action, RequestId, Trace};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::{self, Write};

/// What a pool or a plan did with memory.
#[derive(Debug, Clone)]
pub struct TraceFile {
    /// The name of the device, or of the pool on it.
    pub device: String,
    /// Whether tensors came one by one or a plan was carried out.
    pub kind: RunKind,
    /// All of the device's bytes, where they are known.
    pub capacity: Option<u64>,
    /// The most that the pool or plan may take.
    pub limit: Option<u64>,
    /// What else is to be known, by name.
    pub notes: Vec<(String, String)>,
    /// Who asked: what owners in the trace and layout stand for.
    pub owners: Owners,
    /// What was asked, in order.
    pub trace: Trace,
    /// What lay where at the end.
    pub layout: Option<Layout>,
}

/// How a program ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunKind {
    /// Tensor by tensor, on memory from a pool.
    Eager,
    /// As a plan in an arena.
    Compiled,
}

/// The version of the format.
pub const TRACE_VERSION: u32 = 1;

/// The first line of a trace file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceHeader {
    /// The version of the format, [`TRACE_VERSION`].
    #[serde(rename = "plimsoll-trace")]
    pub version: u32,
    /// As in [`TraceFile`].
    pub device: String,
    /// As in [`TraceFile`].
    pub kind: RunKind,
    /// As in [`TraceFile`].
    pub capacity: Option<u64>,
    /// As in [`TraceFile`].
    pub limit: Option<u64>,
    /// As in [`Trace`].
    pub complete: bool,
    /// As in [`Trace`].
    pub marks: Vec<String>,
    /// As in [`TraceFile`].
    pub notes: Vec<(String, String)>,
}

/// A line of a trace file after the first. Requests are numbered from 0 and owners from 1, as they come; owner 0 is
/// nobody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceLine {
    /// An owner: its parent, name, file and line.
    Owner(u32, String, String, u32),
    /// Memory that was taken from the device before the first event: address and bytes.
    Reserved(u64, u64),
    /// A request that was live before the first event: bytes, address, owner, stream.
    Initial(u64, u64, u32, u32),
    /// A request that was granted: time, bytes, address, owner, stream.
    Allocate(u64, u64, u64, u32, u32),
    /// Memory that came back: time, request.
    Free(u64, u32),
    /// A request that was refused: time, bytes, owner, stream.
    Refuse(u64, u64, u32, u32),
    /// Memory that was taken from the device: time, address, bytes.
    Reserve(u64, u64, u64),
    /// Memory that was given back to the device: time, address, bytes.
    Release(u64, u64, u64),
    /// A mark: time, and which of the header's.
    Mark(u64, u32),
    /// A segment of the layout at the end: address, bytes, stream, class.
    Segment(u64, u64, u32, SegmentClass),
    /// A piece of the segment before: address, bytes, bytes asked for, state, owner.
    Piece(u64, u64, u64, PieceState, u32),
    /// The last line, and whether there was a layout: nothing was cut off.
    End(bool),
}

impl TraceFile {
    /// Writes it all.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let TraceFile { owners, trace, .. } = self;
        let header = TraceHeader {
            version: TRACE_VERSION,
            device: self.device.clone(),
            kind: self.kind,
            capacity: self.capacity,
            limit: self.limit,
            complete: trace.complete,
            marks: trace.marks.clone(),
            notes: self.notes.clone(),
        };
        line(out, &header)?;
        for index in 1..owners.count() as u32 {
            let frame = owners.frame(OwnerId(index)).cloned().unwrap_or_default();
            let parent = owners.parent(OwnerId(index));
            line(out, &TraceLine::Owner(parent.0, frame.name, frame.file, frame.line))?;
        }
        for &(address, bytes) in &trace.initial_reserved {
            line(out, &TraceLine::Reserved(address, bytes))?;
        }
        // Requests are numbered as they appear in the file.
        let mut numbers: HashMap<RequestId, u32> = HashMap::new();
        for &id in &trace.initial {
            let request = trace.request(id);
            numbers.insert(id, numbers.len() as u32);
            line(out, &TraceLine::Initial(request.bytes, request.address, request.owner.0, request.stream))?;
        }
        for event in &trace.events {
            let time = event.time;
            let next = match event.action {
                Action::Allocate(id) | Action::Refuse(id) => {
                    let r = trace.request(id);
                    numbers.insert(id, numbers.len() as u32);
                    if event.action == Action::Refuse(id) {
                        TraceLine::Refuse(time, r.bytes, r.owner.0, r.stream)
                    } else {
                        TraceLine::Allocate(time, r.bytes, r.address, r.owner.0, r.stream)
                    }
                }
                Action::Free(id) => match numbers.get(&id) {
                    Some(&number) => TraceLine::Free(time, number),
                    None => continue,
                },
                Action::Reserve { address, bytes } => TraceLine::Reserve(time, address, bytes),
                Action::Release { address, bytes } => TraceLine::Release(time, address, bytes),
                Action::Mark(mark) => TraceLine::Mark(time, mark),
            };
            line(out, &next)?;
        }
        for segment in self.layout.iter().flat_map(|layout| &layout.segments) {
            line(out, &TraceLine::Segment(segment.address, segment.bytes, segment.stream, segment.class))?;
            for p in &segment.pieces {
                line(out, &TraceLine::Piece(p.address, p.bytes, p.requested, p.state, p.owner.0))?;
            }
        }
        line(out, &TraceLine::End(self.layout.is_some()))
    }
}

fn line(out: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

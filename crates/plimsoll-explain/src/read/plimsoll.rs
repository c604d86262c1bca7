//! Plimsoll's own traces: the lines that [`plimsoll_memory::TraceFile`] writes.
//!
//! Read one line at a time, up to one that cannot be understood. A line that does not hold together with those before
//! it (a request that was never made is freed, an owner was not told yet) is left out and counted.

use super::budget::{Budget, EVENT, PIECE};
use super::places::Places;
use crate::error::{Error, ErrorKind, Result};
use crate::read::input::Input;
use crate::recording::{Device, Failure, Format, Framework, Origin, Recording};
use plimsoll_memory::{
    Action, Frame, Layout, Model, OwnerId, Piece, PieceState, Request, RequestId, RunKind, Segment,
    TRACE_VERSION, Trace, TraceHeader, TraceLine,
};
use std::io::{BufRead, Read};

/// What the first line of every trace begins with.
const START: &[u8] = b"{\"plimsoll-trace\"";

/// No line is longer, but for one that was made to be.
const LONGEST: u64 = 1 << 20;

/// No program nests scopes deeper, but for one that was made to.
const DEEPEST: u32 = 256;

pub(super) fn looks(start: &[u8]) -> bool {
    start.starts_with(START)
}

pub(super) fn read(input: &mut Input<'_>) -> Result<Recording> {
    let mut buffer = vec![];
    let header = match next_line(input, &mut buffer) {
        Next::Line => serde_json::from_slice::<TraceHeader>(&buffer).ok(),
        Next::End | Next::Cut(_) => None,
    };
    let malformed = |message: String| Error::new(ErrorKind::Malformed, message);
    let header = header
        .ok_or_else(|| malformed("begins like a Plimsoll trace, but its first line is broken".into()))?;
    if header.version != TRACE_VERSION {
        let message = format!("is a trace of version {}, this reads version {TRACE_VERSION}", header.version);
        return Err(malformed(message));
    }
    let budget = input.budget().clone();
    let mut reading = Reading::new(&header, &budget);
    let mut gaps = vec![];
    let mut broken: Option<(u64, u64)> = None;
    let mut number = 1;
    loop {
        match next_line(input, &mut buffer) {
            Next::End => break,
            Next::Cut(why) => {
                gaps.push(format!("line {} {why}; what comes after is not read", number + 1));
                break;
            }
            Next::Line => {}
        }
        number += 1;
        let Ok(line) = serde_json::from_slice(&buffer) else {
            // It may have been a request, and those are numbered as they come.
            gaps.push(format!("line {number} cannot be understood; it and what comes after are not read"));
            break;
        };
        if reading.take(line).is_none() {
            broken.get_or_insert((number, 0)).1 += 1;
        }
    }
    if let Some((first, count)) = broken {
        gaps.push(format!(
            "{count} lines do not hold together with the others and are left out, the first is line {first}"
        ));
    }
    if !reading.ended {
        gaps.push(format!("the file is cut short after line {number}"));
    }
    let partial = !reading.ended || broken.is_some();
    let device = reading.device(header, &mut gaps)?;
    let origin = Origin {
        files: vec![],
        formats: vec![Format::Plimsoll],
        framework: Framework::Plimsoll,
        gaps,
        partial,
    };
    Ok(Recording { origin, devices: vec![device] })
}

/// What comes next in a file.
enum Next {
    Line,
    End,
    /// Nothing that can be read, and why.
    Cut(String),
}

/// Reads a line.
fn next_line(input: &mut Input<'_>, buffer: &mut Vec<u8>) -> Next {
    buffer.clear();
    match input.by_ref().take(LONGEST).read_until(b'\n', buffer) {
        Err(error) => Next::Cut(format!("cannot be read: {error}")),
        Ok(0) => Next::End,
        Ok(_) if buffer.ends_with(b"\n") => Next::Line,
        Ok(count) if count as u64 == LONGEST => Next::Cut(format!("is longer than {LONGEST} bytes")),
        Ok(_) => Next::Cut("is cut short".into()),
    }
}

/// What has been read.
struct Reading {
    trace: Trace,
    owners: Places,
    budget: Budget,
    /// What the file's numbers of owners stand for, and how deep each is.
    owner_ids: Vec<(OwnerId, u32)>,
    /// Whether each request is live.
    live: Vec<bool>,
    /// The bytes of all requests, which are to fit a number.
    requested: u64,
    reserved: u64,
    segments: Vec<Segment>,
    has_layout: bool,
    ended: bool,
}

impl Reading {
    fn new(header: &TraceHeader, budget: &Budget) -> Reading {
        let trace = Trace { marks: header.marks.clone(), complete: header.complete, ..Trace::default() };
        Reading {
            trace,
            owners: Places::new(budget),
            budget: budget.clone(),
            owner_ids: vec![(OwnerId::UNKNOWN, 0)],
            live: vec![],
            requested: 0,
            reserved: 0,
            segments: vec![],
            has_layout: false,
            ended: false,
        }
    }

    /// Takes a line, if it holds together with those before it.
    fn take(&mut self, line: TraceLine) -> Option<()> {
        // Owners are paid for as they are told.
        let bytes = match line {
            TraceLine::Segment(..) | TraceLine::Piece(..) => PIECE,
            _ => EVENT,
        };
        if self.ended || !self.budget.take(bytes) {
            return None;
        }
        match line {
            TraceLine::Owner(parent, name, file, line) => {
                let &(parent, depth) = self.owner_ids.get(parent as usize).filter(|(_, d)| *d < DEEPEST)?;
                let owner = self.owners.child(parent, Frame { name, file, line });
                self.owner_ids.push((owner, depth + 1));
            }
            TraceLine::Reserved(address, bytes) => {
                self.reserve(address, bytes)?;
                self.trace.initial_reserved.push((address, bytes));
            }
            TraceLine::Initial(bytes, address, owner, stream) => {
                let id = self.request(bytes, address, owner, stream, true)?;
                self.trace.initial.push(id);
            }
            TraceLine::Allocate(time, bytes, address, owner, stream) => {
                let id = self.request(bytes, address, owner, stream, true)?;
                self.push(time, Action::Allocate(id));
            }
            TraceLine::Refuse(time, bytes, owner, stream) => {
                let id = self.request(bytes, 0, owner, stream, false)?;
                self.push(time, Action::Refuse(id));
            }
            TraceLine::Free(time, request) => {
                let live = self.live.get_mut(request as usize).filter(|live| **live)?;
                *live = false;
                self.push(time, Action::Free(RequestId(request)));
            }
            TraceLine::Reserve(time, address, bytes) => {
                self.reserve(address, bytes)?;
                self.push(time, Action::Reserve { address, bytes });
            }
            TraceLine::Release(time, address, bytes) => {
                address.checked_add(bytes)?;
                self.reserved = self.reserved.checked_sub(bytes)?;
                self.push(time, Action::Release { address, bytes });
            }
            TraceLine::Mark(time, mark) => {
                self.trace.marks.get(mark as usize)?;
                self.push(time, Action::Mark(mark));
            }
            TraceLine::Segment(address, bytes, stream, class) => {
                let before = self.segments.last().map_or(0, |segment| segment.address + segment.bytes);
                address.checked_add(bytes).filter(|_| address >= before)?;
                self.segments.push(Segment { address, bytes, stream, class, pieces: vec![] });
            }
            TraceLine::Piece(address, bytes, requested, state, owner) => {
                let owner = self.owner(owner)?;
                let segment = self.segments.last_mut()?;
                let at = end_of_pieces(segment);
                let end = address.checked_add(bytes).filter(|_| address == at && requested <= bytes)?;
                if end > segment.address + segment.bytes || (state == PieceState::Free && requested > 0) {
                    return None;
                }
                segment.pieces.push(Piece { address, bytes, requested, state, owner });
            }
            TraceLine::End(has_layout) => (self.ended, self.has_layout) = (true, has_layout),
        }
        Some(())
    }

    fn owner(&self, number: u32) -> Option<OwnerId> {
        self.owner_ids.get(number as usize).map(|&(owner, _)| owner)
    }

    /// Adds a request. Those in the file are numbered as they come, also those that are left out for their bytes.
    fn request(
        &mut self,
        bytes: u64,
        address: u64,
        owner: u32,
        stream: u32,
        live: bool,
    ) -> Option<RequestId> {
        u32::try_from(self.live.len()).ok().filter(|&next| next < u32::MAX)?;
        let sound = self.requested.checked_add(bytes).filter(|_| address.checked_add(bytes).is_some());
        let kept = sound.is_some();
        self.requested = sound.unwrap_or(self.requested);
        let owner = self.owner(owner).unwrap_or(OwnerId::UNKNOWN);
        let bytes = if kept { bytes } else { 0 };
        let id = self.trace.push_request(Request {
            bytes,
            address: if kept { address } else { 0 },
            stream,
            owner,
        });
        self.live.push(live && kept);
        kept.then_some(id)
    }

    fn reserve(&mut self, address: u64, bytes: u64) -> Option<()> {
        address.checked_add(bytes)?;
        self.reserved = self.reserved.checked_add(bytes)?;
        Some(())
    }

    /// Adds an event. Its time is never before that of the last.
    fn push(&mut self, time: u64, action: Action) {
        let last = self.trace.events.last().map_or(0, |event| event.time);
        self.trace.push(time.max(last), action);
    }

    /// All of it as a device.
    fn device(self, header: TraceHeader, gaps: &mut Vec<String>) -> Result<Device> {
        let whole = |segment: &Segment| end_of_pieces(segment) == segment.address + segment.bytes;
        let sound = self.ended && self.segments.iter().all(whole);
        if !sound && !self.segments.is_empty() {
            gaps.push("the layout at the end is incomplete and is left out".into());
        }
        let layout = (sound && self.has_layout).then_some(Layout { segments: self.segments });
        let refused =
            self.trace.events.iter().enumerate().rev().find_map(|(index, event)| match event.action {
                Action::Refuse(id) => Some((index, *self.trace.request(id))),
                _ => None,
            });
        if layout.is_none() && self.trace.requests.is_empty() {
            return Err(Error::new(ErrorKind::Empty, "is a Plimsoll trace without a single request"));
        }
        let owners = self.owners.finish();
        let failure = refused.map(|(index, request)| {
            let mut names: Vec<&str> = owners.stack(request.owner).map(|f| f.name.as_str()).collect();
            names.reverse();
            let op = (!names.is_empty()).then(|| names.join("/"));
            Failure { requested: request.bytes, exact: true, event: Some(index), op }
        });
        let kind = match header.kind {
            RunKind::Eager => "eager",
            RunKind::Compiled => "compiled",
        };
        let mut settings = vec![("kind".to_string(), kind.to_string())];
        settings.extend(header.notes);
        Ok(Device {
            name: header.device,
            capacity: header.capacity,
            limit: header.limit,
            model: (header.kind == RunKind::Eager).then_some(Model::Paged),
            settings,
            layout,
            trace: Some(self.trace),
            failure,
            owners,
            ..Device::default()
        })
    }
}

/// Where the next piece of a segment begins.
fn end_of_pieces(segment: &Segment) -> u64 {
    segment.pieces.last().map_or(segment.address, |piece| piece.address + piece.bytes)
}

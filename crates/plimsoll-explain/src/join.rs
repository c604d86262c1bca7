//! Several files of one run, as one recording: the snapshot knows the blocks, the message knows the device.

use crate::error::{Error, ErrorKind, Result};
use crate::recording::{Device, Framework, Recording};
use plimsoll_memory::{Action, Frame, OwnerId, Owners, Request};

/// Joins recordings of one run, device by device. Where two know the same thing, the first file is believed.
pub(crate) fn join(recordings: Vec<Recording>) -> Result<Recording> {
    let mut recordings = recordings.into_iter();
    let mut joined =
        recordings.next().ok_or_else(|| Error::new(ErrorKind::Empty, "no file was given to explain"))?;
    for next in recordings {
        let framework = same_framework(joined.origin.framework, next.origin.framework).ok_or_else(|| {
            let message = format!(
                "{} is of {}, {} of {}: give the files of one run",
                joined.origin.files.join(", "),
                joined.origin.framework.name(),
                next.origin.files.join(", "),
                next.origin.framework.name()
            );
            Error::new(ErrorKind::Mixed, message)
        })?;
        joined.origin.framework = framework;
        joined.origin.files.extend(next.origin.files);
        joined.origin.formats.extend(next.origin.formats);
        joined.origin.gaps.extend(next.origin.gaps);
        for device in next.devices {
            match joined.devices.iter_mut().find(|known| same_device(known, &device)) {
                Some(known) => complete(known, device),
                None => joined.devices.push(device),
            }
        }
    }
    Ok(joined)
}

fn same_framework(a: Framework, b: Framework) -> Option<Framework> {
    use Framework::{Jax, TensorFlow, TensorFlowOrJax};
    match (a, b) {
        _ if a == b => Some(a),
        (TensorFlowOrJax, Jax | TensorFlow) => Some(b),
        (Jax | TensorFlow, TensorFlowOrJax) => Some(a),
        _ => None,
    }
}

fn same_device(a: &Device, b: &Device) -> bool {
    match (a.index, b.index) {
        (Some(a), Some(b)) => a == b,
        _ => a.name == b.name,
    }
}

/// Adds to a device what another file knows of it.
fn complete(known: &mut Device, other: Device) {
    fn fill<T>(known: &mut Option<T>, other: Option<T>) {
        if known.is_none() {
            *known = other;
        }
    }
    fill(&mut known.capacity, other.capacity);
    fill(&mut known.limit, other.limit);
    fill(&mut known.device_free, other.device_free);
    fill(&mut known.process, other.process);
    fill(&mut known.reserved, other.reserved);
    fill(&mut known.live, other.live);
    fill(&mut known.peak_live, other.peak_live);
    fill(&mut known.largest_free, other.largest_free);
    fill(&mut known.model, other.model);
    match (&mut known.failure, other.failure) {
        (Some(known), Some(other)) if !known.exact && other.exact => *known = other,
        (known, other) => fill(known, other),
    }
    if known.others.is_empty() {
        known.others = other.others;
    }
    for setting in other.settings {
        if !known.settings.iter().any(|(name, _)| *name == setting.0) {
            known.settings.push(setting);
        }
    }
    // Owners are numbered per file.
    let owner = adopt(&mut known.owners, &other.owners);
    let renumbered = |id: OwnerId| owner.get(id.0 as usize).copied().unwrap_or(OwnerId::UNKNOWN);
    if known.layout.is_none() {
        known.layout = other.layout.map(|mut layout| {
            let pieces = layout.segments.iter_mut().flat_map(|segment| &mut segment.pieces);
            pieces.for_each(|piece| piece.owner = renumbered(piece.owner));
            layout
        });
    }
    if known.trace.is_none() {
        known.trace = other.trace.map(|mut trace| {
            trace.requests.iter_mut().for_each(|request| request.owner = renumbered(request.owner));
            trace
        });
    }
    if known.live_by_owner.is_empty() {
        let held = other.live_by_owner.into_iter();
        known.live_by_owner = held.map(|(id, bytes, count)| (renumbered(id), bytes, count)).collect();
    }
    end_with_the_failure(known);
}

/// Takes over the owners of another file, and returns what each is called here.
fn adopt(owners: &mut Owners, other: &Owners) -> Vec<OwnerId> {
    let mut names = vec![OwnerId::UNKNOWN];
    for id in (1..other.count() as u32).map(OwnerId) {
        // A caller has a lower number than those it calls.
        let parent = names.get(other.parent(id).0 as usize).copied().unwrap_or(OwnerId::UNKNOWN);
        names.push(other.frame(id).map_or(OwnerId::UNKNOWN, |frame| owners.child(parent, frame.clone())));
    }
    names
}

/// Adds the request that a log saw refused to the end of a trace that did not see it.
fn end_with_the_failure(device: &mut Device) {
    let (Some(trace), Some(failure)) = (&mut device.trace, &mut device.failure) else { return };
    if failure.event.is_some() || trace.events.iter().any(|event| matches!(event.action, Action::Refuse(_))) {
        return;
    }
    let frame = failure.op.as_ref().map(|op| Frame { name: op.clone(), ..Frame::default() });
    let owner = frame.map_or(OwnerId::UNKNOWN, |frame| device.owners.child(OwnerId::UNKNOWN, frame));
    let time = trace.events.last().map_or(0, |event| event.time);
    let id = trace.push_request(Request { bytes: failure.requested, address: 0, stream: 0, owner });
    trace.push(time, Action::Refuse(id));
    failure.event = Some(trace.events.len() - 1);
}

//! Several files of one run, as one recording: the snapshot knows the blocks, the message knows the device.

use crate::error::{Error, ErrorKind, Result};
use crate::program::Backend;
use crate::recording::{Device, Framework, Recording};
use plimsoll_memory::{Action, OwnerId, Owners, Request};
use std::sync::Arc;

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
        joined.origin.partial |= next.origin.partial;
        let mut adoptions = Vec::new();
        for device in next.devices {
            match joined.devices.iter_mut().find(|known| same_device(known, &device)) {
                Some(known) => complete(known, device, &mut adoptions),
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
        (a, Framework::Unknown) => Some(a),
        (Framework::Unknown, b) => Some(b),
        (TensorFlowOrJax, Jax | TensorFlow) => Some(b),
        (Jax | TensorFlow, TensorFlowOrJax) => Some(a),
        _ => None,
    }
}

fn same_device(a: &Device, b: &Device) -> bool {
    match (a.index, b.index) {
        (Some(a), Some(b)) => a == b,
        _ => a.name == b.name || is_unnamed(a) && is_host(b) || is_unnamed(b) && is_host(a),
    }
}

/// Whether an error told no more of its device than a number, if that. JAX words what the host refused to its CPU devices alike.
fn is_unnamed(device: &Device) -> bool {
    device.failure.is_some() && (device.name == "device" || device.name.starts_with("device "))
}

/// Whether a profile is of the host, as a device.
fn is_host(device: &Device) -> bool {
    device.name.starts_with("cpu:") || device.name.starts_with("TFRT_CPU")
}

/// Adds to a device what another file knows of it.
fn complete(known: &mut Device, other: Device, adoptions: &mut Vec<Adoption>) {
    fn fill<T>(known: &mut Option<T>, other: Option<T>) {
        if known.is_none() {
            *known = other;
        }
    }
    let host = is_unnamed(known) && is_host(&other) || is_unnamed(&other) && is_host(known);
    if host {
        known.name = if is_host(known) { std::mem::take(&mut known.name) } else { other.name.clone() };
        known.program.backend = Some(Backend::Cpu);
    }
    fill(&mut known.capacity, other.capacity);
    fill(&mut known.limit, other.limit);
    fill(&mut known.device_free, other.device_free);
    fill(&mut known.process, other.process);
    fill(&mut known.reserved, other.reserved);
    fill(&mut known.peak_live, other.peak_live);
    fill(&mut known.largest_free, other.largest_free);
    // What was in use is taken from files that tell of one moment. A peak tells nothing of a refusal or of an end.
    if known.reported_at_peak && !other.reported_at_peak && tells_what_was_in_use(&other) {
        known.live = None;
        known.live_by_owner.clear();
        known.reported_at_peak = false;
    }
    let same_moment = if tells_what_was_in_use(known) {
        known.reported_at_peak == other.reported_at_peak
    } else {
        known.reported_at_peak = other.reported_at_peak;
        true
    };
    if same_moment {
        fill(&mut known.live, other.live);
    }
    fill(&mut known.model, other.model);
    fill(&mut known.program_bytes, other.program_bytes);
    fill(&mut known.picture, other.picture);
    known.program.complete(&other.program);
    // Figures say more than words.
    if known.failure.is_none() && other.failure.is_none() {
        fill(&mut known.sign, other.sign);
    } else if other.failure.is_some() && other.sign.is_none() {
        known.sign = None;
    }
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
    let adoption = adopt(&known.owners, &other.owners, adoptions);
    known.owners = adoption.owners.clone();
    let renumbered = |id: OwnerId| adoption.names.get(id.0 as usize).copied().unwrap_or(OwnerId::UNKNOWN);
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
    if known.live_by_owner.is_empty() && same_moment {
        let held = other.live_by_owner.into_iter();
        known.live_by_owner = held.map(|(id, bytes, count)| (renumbered(id), bytes, count)).collect();
    }
    end_with_the_failure(known);
}

/// Whether a file says how much was in use at the moment it is of.
fn tells_what_was_in_use(device: &Device) -> bool {
    device.layout.is_some() || device.live.is_some() || !device.live_by_owner.is_empty()
}

/// The owners of two files as one, which all devices that shared those two share again.
struct Adoption {
    known: Arc<Owners>,
    other: Arc<Owners>,
    owners: Arc<Owners>,
    /// What each of the other file's owners is called now.
    names: Vec<OwnerId>,
}

/// Takes over the owners of another file, once for all devices.
fn adopt<'a>(known: &Arc<Owners>, other: &Arc<Owners>, adoptions: &'a mut Vec<Adoption>) -> &'a Adoption {
    let same = |done: &Adoption| Arc::ptr_eq(&done.known, known) && Arc::ptr_eq(&done.other, other);
    let at = adoptions.iter().position(same).unwrap_or_else(|| {
        let mut owners = known.clone();
        let names = renumber(Arc::make_mut(&mut owners), other);
        adoptions.push(Adoption { known: known.clone(), other: other.clone(), owners, names });
        adoptions.len() - 1
    });
    &adoptions[at]
}

fn renumber(owners: &mut Owners, other: &Owners) -> Vec<OwnerId> {
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
    // Who asked is said by the failure itself.
    let owner = OwnerId::UNKNOWN;
    let time = trace.events.last().map_or(0, |event| event.time);
    let id = trace.push_request(Request { bytes: failure.requested, address: 0, stream: 0, owner });
    trace.push(time, Action::Refuse(id));
    failure.event = Some(trace.events.len() - 1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Failure, Format, Origin};

    fn of(device: Device) -> Recording {
        let formats = vec![Format::BfcLog];
        let origin = Origin {
            files: Vec::new(),
            formats,
            framework: Framework::TensorFlow,
            gaps: Vec::new(),
            partial: false,
        };
        Recording { origin, devices: vec![Device { index: Some(0), ..device }] }
    }

    #[test]
    fn what_the_host_refused_to_its_own_device_is_of_the_host() {
        let failure = Failure { requested: 9, exact: true, event: None, op: None };
        let log = Device { name: "device".into(), failure: Some(failure), ..Device::default() };
        let profile = Device { name: "cpu:0".into(), live: Some(4), ..Device::default() };
        let mut of_host = of(profile);
        of_host.devices[0].index = None;
        for files in [vec![of(log.clone()), of_host.clone()], vec![of_host, of(log)]] {
            let joined = join(files).unwrap();
            let [device] = &joined.devices[..] else { panic!("{:?}", joined.devices) };
            assert_eq!((device.name.as_str(), device.program.backend), ("cpu:0", Some(Backend::Cpu)));
            assert_eq!((device.live, device.failure.is_some()), (Some(4), true));
        }
    }

    #[test]
    fn a_peak_never_stands_in_for_what_was_in_use_when_a_request_was_refused() {
        let failure = Failure { requested: 9, exact: true, event: None, op: None };
        let log = Device { live: Some(70), failure: Some(failure), ..Device::default() };
        let owners = vec![(OwnerId::UNKNOWN, 100, 1)];
        let peak =
            Device { live: Some(100), live_by_owner: owners, reported_at_peak: true, ..Device::default() };
        for files in [[log.clone(), peak.clone()], [peak.clone(), log]] {
            let joined = join(files.map(of).to_vec()).unwrap();
            let device = &joined.devices[0];
            assert_eq!((device.live, device.reported_at_peak), (Some(70), false));
            assert!(device.live_by_owner.is_empty());
        }
        let joined = join(vec![of(Device::default()), of(peak)]).unwrap();
        assert_eq!((joined.devices[0].live, joined.devices[0].reported_at_peak), (Some(100), true));
        assert_eq!(joined.devices[0].live_by_owner.len(), 1);
    }
}

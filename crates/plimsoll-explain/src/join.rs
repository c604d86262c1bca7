//! Several files of one run, as one recording: the snapshot knows the blocks, the message knows the device.

use crate::error::{Error, ErrorKind, Result};
use crate::recording::{Device, Framework, Recording};

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
    // Owners are numbered per file, so all that speaks of them comes from one.
    let knows_owners = known.layout.is_some() || known.trace.is_some() || !known.live_by_owner.is_empty();
    if !knows_owners {
        known.owners = other.owners;
        known.layout = other.layout;
        known.trace = other.trace;
        known.live_by_owner = other.live_by_owner;
    }
}

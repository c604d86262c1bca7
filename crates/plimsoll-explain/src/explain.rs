//! From a recording to an explanation: facts once, then books, verdicts and advice from them.

use crate::advise::advice;
use crate::analyse::books::books;
use crate::analyse::facts::Facts;
use crate::analyse::usage::timeline;
use crate::analyse::verdict::{Leak, verdicts, verdicts_of_a_part};
use crate::explanation::Explanation;
use crate::recording::{Device, Recording};
use std::time::{Duration, Instant};

/// How long advice may be tried by replay, of all devices together. A trace of a million events takes a second or so for
/// each setting; with millions of them, what could not be tried by then is not told.
const REPLAYING: Duration = Duration::from_secs(6);

/// Explains a recording: the device that ran out of memory, or else the one whose pool holds most, with the
/// others after it.
///
/// Of a recording that is only a part ([`Origin::partial`](crate::Origin::partial)) that is the first verdict, and of the
/// others only those are given that the missing part cannot change; no advice is.
///
/// ```no_run
/// use plimsoll_explain::{Progress, explain, read_files};
/// let recording = read_files(&["snapshot.pickle".into()], &Progress::default())?;
/// let explanation = explain(&recording);
/// println!("{}", explanation.verdicts[0].sentence);
/// # Ok::<(), plimsoll_explain::Error>(())
/// ```
pub fn explain(recording: &Recording) -> Explanation {
    let mut devices: Vec<&Device> = recording.devices.iter().collect();
    devices.sort_by_key(|device| {
        let held = device.reserved_bytes().max(device.live_bytes()).unwrap_or(0);
        // What runs out is the accelerator; pinned host memory is its servant.
        std::cmp::Reverse((device.failure.is_some(), !device.name.contains("host"), held))
    });
    let until = Instant::now() + REPLAYING;
    let mut explanations = devices.into_iter().map(|device| explain_device(recording, device, until));
    let nothing = Device::default();
    let first = explanations.next();
    let mut explanation = first.unwrap_or_else(|| explain_device(recording, &nothing, until));
    explanation.others = explanations.collect();
    explanation
}

fn explain_device(recording: &Recording, device: &Device, until: Instant) -> Explanation {
    let facts = Facts::new(device, recording.origin.framework, until);
    let leak = Leak::find(&facts);
    let (verdicts, advice) = if recording.origin.partial {
        (verdicts_of_a_part(&facts, &recording.origin), Vec::new())
    } else {
        let verdicts = verdicts(&facts, leak.as_ref());
        let advice = advice(&facts, &verdicts, leak.as_ref());
        (verdicts, advice)
    };
    let mut books = books(&facts);
    if recording.origin.partial {
        books.of += ", as far as it could be read";
    }
    Explanation {
        origin: recording.origin.clone(),
        device: device.name.clone(),
        verdicts,
        books,
        advice,
        peak: facts.peak(),
        timeline: device.trace.as_ref().map(timeline),
        snapshot: facts.into_snapshot(),
        others: Vec::new(),
    }
}

//! From a recording to an explanation: facts once, then books, verdicts and advice from them.

use crate::advise::advice;
use crate::analyse::books::books;
use crate::analyse::facts::Facts;
use crate::analyse::usage::timeline;
use crate::analyse::verdict::{Leak, verdicts, verdicts_of_a_part};
use crate::explanation::{BookLine, Books, Explanation, VerdictKind};
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
        std::cmp::Reverse((
            device.failure.is_some() || device.sign.is_some(),
            !device.name.contains("host"),
            held,
        ))
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
        let verdicts = verdicts_of_a_part(&facts, &recording.origin);
        // What the missing part cannot change can be acted on.
        let advice = if verdicts[0].kind == VerdictKind::Incomplete {
            Vec::new()
        } else {
            advice(&facts, &verdicts, None)
        };
        (verdicts, advice)
    } else {
        let verdicts = verdicts(&facts, leak.as_ref());
        let advice = advice(&facts, &verdicts, leak.as_ref());
        (verdicts, advice)
    };
    let mut books = books(&facts);
    if recording.origin.partial {
        books.of += ", as far as it could be read";
    }
    // Of the first lines of a dump nothing follows for all of it.
    let is_list = device.trace.is_none() && device.layout.is_none() && device.live.is_none();
    let is_part = recording.origin.partial && is_list;
    if is_part {
        let nothing = BookLine { name: "unknown".into(), bytes: 0 };
        books = Books { total_bytes: 0, lines: vec![nothing], ..books };
    }
    let (peak, mut snapshot) = (facts.peak(), facts.into_snapshot());
    if is_part {
        (snapshot.live_bytes, snapshot.holders) = (None, Vec::new());
    }
    Explanation {
        origin: recording.origin.clone(),
        device: device.name.clone(),
        verdicts,
        books,
        advice,
        peak,
        timeline: device.trace.as_ref().map(timeline),
        snapshot,
        others: Vec::new(),
    }
}

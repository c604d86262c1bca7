//! Replay of whole traces.

use plimsoll_memory::{Action, CachingSettings, Model, OwnerId, Request, RequestId, Start, Trace, replay};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn request(bytes: u64, address: u64) -> Request {
    Request { bytes, address, stream: 0, owner: OwnerId::UNKNOWN }
}

/// A trace of requests, and frees of the request so many back.
fn traces() -> impl Strategy<Value = Trace> {
    let step = (any::<bool>(), 1..30 * MIB, any::<usize>(), any::<bool>());
    prop::collection::vec(step, 0..1500).prop_map(|steps| {
        let mut trace = Trace { complete: true, ..Trace::default() };
        let mut live: Vec<RequestId> = Vec::new();
        for (free, bytes, at, small) in steps {
            if free && !live.is_empty() {
                let id = live.swap_remove(at % live.len());
                trace.push(0, Action::Free(id));
            } else {
                let id = trace.push_request(request(if small { bytes % 4096 } else { bytes }, 0));
                live.push(id);
                trace.push(0, Action::Allocate(id));
            }
        }
        trace
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn replay_is_deterministic_and_its_figures_agree(trace in traces(), limit in 1..2000 * MIB) {
        for name in Model::NAMES {
            let model: Model = name.parse().unwrap();
            for limit in [None, Some(limit)] {
                let outcome = replay(&trace, &model, limit, Start::Afresh);
                prop_assert_eq!(&outcome, &replay(&trace, &model, limit, Start::Afresh));
                prop_assert!(limit.is_none_or(|limit| outcome.peak_reserved <= limit));
                prop_assert!(outcome.peak_live <= outcome.peak_reserved);
                prop_assert!(outcome.end_reserved <= outcome.peak_reserved);
                prop_assert!((0.0..=1.0).contains(&outcome.fragmentation));
                prop_assert!(outcome.timeline.len() <= 500);
                prop_assert!(outcome.timeline.is_sorted_by_key(|m| m.event));
                let highest = outcome.timeline.iter().map(|m| m.reserved).max().unwrap_or(0);
                prop_assert_eq!(highest, outcome.peak_reserved);
                let most_live = outcome.timeline.iter().map(|m| m.live).max().unwrap_or(0);
                prop_assert_eq!(most_live, outcome.peak_live);
                prop_assert_eq!(outcome.lower_bound, trace.peak_live().0);
                if limit.is_none() {
                    prop_assert!(outcome.survived());
                }
                if outcome.survived() {
                    prop_assert_eq!(outcome.peak_live, outcome.lower_bound);
                }
            }
        }
    }
}

#[test]
fn a_request_that_was_refused_is_tried() {
    let mut trace = Trace { complete: true, ..Trace::default() };
    let kept = trace.push_request(request(60 * MIB, 0));
    let refused = trace.push_request(request(30 * MIB, 0));
    trace.push(0, Action::Allocate(kept));
    trace.push(1, Action::Refuse(refused));
    let model = Model::Caching(CachingSettings::default());
    let outcome = replay(&trace, &model, Some(100 * MIB), Start::Afresh);
    assert!(outcome.survived());
    assert_eq!(
        (outcome.peak_live, outcome.lower_bound, outcome.peak_reserved),
        (90 * MIB, 90 * MIB, 90 * MIB)
    );
    let outcome = replay(&trace, &model, Some(80 * MIB), Start::Afresh);
    let failed = outcome.failed_at.unwrap();
    assert_eq!((failed.event, failed.bytes, outcome.peak_reserved), (Some(1), 30 * MIB, 60 * MIB));
    assert_eq!((outcome.peak_live, outcome.lower_bound), (60 * MIB, 90 * MIB));
}

/// A recording that begins with two segments of 60 and 20 MiB, of which the first is full of holes.
fn begun() -> Trace {
    let mut trace = Trace::default();
    let base = 0x7f00_0000_0000;
    trace.initial_reserved = vec![(base, 60 * MIB), (base + (1 << 32), 20 * MIB)];
    for mib in [0, 20, 40] {
        let id = trace.push_request(request(10 * MIB, base + mib * MIB));
        trace.initial.push(id);
    }
    let id = trace.push_request(request(5 * MIB, base + (1 << 32)));
    trace.initial.push(id);
    trace
}

#[test]
fn a_recording_that_begins_in_the_middle_is_resumed_as_it_was() {
    let mut trace = begun();
    // Two of the holes of 10 MiB, and the 15 MiB of the other segment.
    for mib in [10, 10, 10, 15] {
        let id = trace.push_request(request(mib * MIB, 0));
        trace.push(0, Action::Allocate(id));
    }
    for name in ["caching", "expandable", "bfc-growth"] {
        let model: Model = name.parse().unwrap();
        let recorded = replay(&trace, &model, None, Start::Recorded);
        assert_eq!(recorded.peak_reserved, 80 * MIB, "{name}");
        assert_eq!(recorded.peak_live, 80 * MIB, "{name}");
    }
    // Begun afresh, the four that were live come first, in segments of 10 and 20 MiB; what is left of the last
    // one holds one of the others.
    let model: Model = "caching".parse().unwrap();
    let afresh = replay(&trace, &model, None, Start::Afresh);
    assert_eq!(afresh.peak_reserved, (3 * 10 + 20 + 2 * 10 + 16) * MIB);
}

#[test]
fn a_recording_that_does_not_fit_the_limit_is_begun_afresh() {
    let trace = begun();
    let model: Model = "caching".parse().unwrap();
    let outcome = replay(&trace, &model, Some(50 * MIB), Start::Recorded);
    assert!(outcome.survived());
    assert_eq!(outcome.end_reserved, 50 * MIB);
    let outcome = replay(&trace, &model, Some(40 * MIB), Start::Recorded);
    assert_eq!(outcome.failed_at.unwrap().event, None);
}

#[test]
fn what_cannot_have_been_recorded_is_placed_anyway() {
    let mut trace = begun();
    let base = trace.initial_reserved[0].0;
    // Overlapping segments and requests, some beyond all addresses.
    trace.initial_reserved.extend([(base + 1, 3), (u64::MAX - 5, 100), (7, 0), (base, u64::MAX)]);
    for (bytes, address) in [(u64::MAX, base + 5), (9 * MIB, base + MIB), (4, u64::MAX), (0, base + 10 * MIB)]
    {
        let id = trace.push_request(request(bytes.min(1 << 40), address));
        trace.initial.push(id);
    }
    for name in Model::NAMES {
        let outcome = replay(&trace, &name.parse().unwrap(), None, Start::Recorded);
        assert!(outcome.survived() || outcome.failed_at.unwrap().event.is_none(), "{name}");
    }
}

//! The JSON of TensorFlow's memory profile tool.

use plimsoll_explain::{ErrorKind, Format, Framework, Input, read_input};
use proptest::prelude::*;
use std::io::Read;

const PROFILE: &[u8] = include_bytes!("data/profile/tensorflow.memory_profile.json.gz");

fn text() -> String {
    let mut text = String::new();
    Input::bytes(PROFILE).unwrap().read_to_string(&mut text).unwrap();
    text
}

#[test]
fn what_was_held_at_the_peak_sums_to_the_peak() {
    let recording = read_input(Input::bytes(PROFILE).unwrap(), "profile").unwrap();
    assert_eq!(recording.origin.framework, Framework::TensorFlow);
    assert_eq!(recording.origin.formats, [Format::MemoryProfile]);
    assert_eq!(recording.devices.len(), 1);
    let device = &recording.devices[0];
    assert_eq!((device.name.as_str(), device.index), ("mklcpu", None));
    assert_eq!(device.limit, Some(25_274_793_984));
    assert_eq!((device.live, device.peak_live), (Some(7_340_032), Some(7_340_032)));
    let held: Vec<_> = device
        .live_by_owner
        .iter()
        .map(|(owner, bytes, count)| (device.owners.frame(*owner).unwrap().name.as_str(), *bytes, *count))
        .collect();
    let expected = [
        ("unused preallocated device memory", 2_899_968, 1),
        ("Mul", 1_785_856, 1),
        ("RandomStandardNormal", 1_605_632, 1),
        ("AddV2", 1_048_576, 1),
    ];
    assert_eq!(held, expected);
    assert_eq!(held.iter().map(|held| held.1).sum::<u64>(), 7_340_032);
    assert_eq!(device.trace.as_ref().unwrap().events.len(), 33);
}

#[test]
fn a_timeline_with_moments_left_out_is_no_trace() {
    let mut profile: serde_json::Value = serde_json::from_str(&text()).unwrap();
    let pool = &mut profile["memoryProfilePerAllocator"]["mklcpu"];
    pool["sampledTimelineSnapshots"].as_array_mut().unwrap().remove(7);
    let thinned = profile.to_string();
    let recording = read_input(Input::bytes(thinned.as_bytes()).unwrap(), "profile").unwrap();
    assert!(recording.devices[0].trace.is_none());
    assert!(recording.origin.gaps[0].contains("thinned"), "{:?}", recording.origin.gaps);
    assert_eq!(recording.devices[0].live_by_owner.len(), 4);
}

#[test]
fn broken_json_says_where_it_broke() {
    let text = text();
    let half = read_input(Input::bytes(&text.as_bytes()[..text.len() / 2]).unwrap(), "profile").unwrap();
    assert!(half.origin.partial);
    assert!(half.origin.gaps[0].contains("column"), "{:?}", half.origin.gaps);
    let error =
        read_input(Input::bytes(br#"{"memoryProfilePerAllocator":{"a"#).unwrap(), "profile").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Malformed);
    assert!(error.to_string().contains("column"), "{error}");
    let empty = br#"{"memoryProfilePerAllocator": {}}"#;
    assert_eq!(read_input(Input::bytes(empty).unwrap(), "profile").unwrap_err().kind(), ErrorKind::Empty);
    let deep = format!("{{\"memoryProfilePerAllocator\": {}", "[".repeat(100_000));
    assert!(read_input(Input::bytes(deep.as_bytes()).unwrap(), "profile").is_err());
    let odd = br#"{"memoryProfilePerAllocator": {"p": {"activeAllocations": [{"snapshotIndex": "-1"}, {"specialIndex":
        1e30, "numOccurrences": "99999999999999999999"}], "profileSummary": {"memoryCapacity": -5}}}}"#;
    assert_eq!(read_input(Input::bytes(odd).unwrap(), "profile").unwrap_err().kind(), ErrorKind::Empty);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn broken_profiles_never_panic(
        flips in prop::collection::vec((any::<prop::sample::Index>(), prop::char::range(' ', '~')), 1..6),
    ) {
        let mut bytes = text().into_bytes();
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value as u8;
        }
        let _ = read_input(Input::bytes(&bytes).unwrap(), "profile");
    }
}

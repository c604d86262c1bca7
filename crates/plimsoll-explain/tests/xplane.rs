//! Profiles with memory events, against what the programs that made them printed of their own pools.
//!
//! The profiles of JAX were cut down with `scripts/shrink_xplane.py`; the figures of each are those of the
//! `memory_stats()` that the recorded program printed, or of `scripts/xplane_figures.py`.

use plimsoll_explain::{Device, Error, ErrorKind, Format, Framework, Input, Recording, read_input};
use plimsoll_memory::{Action, Model, Trace};
use proptest::prelude::*;
use std::io::Read;

fn read(bytes: &[u8]) -> Result<Recording, Error> {
    read_input(Input::bytes(bytes)?, "profile")
}

fn unpacked(packed: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Input::bytes(packed).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

fn device<'r>(recording: &'r Recording, name: &str) -> &'r Device {
    recording.devices.iter().find(|device| device.name == name).unwrap()
}

/// What is live at the end, as it was asked for.
fn live_at_end(trace: &Trace) -> u64 {
    let mut live: u64 = trace.initial.iter().map(|&id| trace.request(id).bytes).sum();
    for event in &trace.events {
        match event.action {
            Action::Allocate(id) => live += trace.request(id).bytes,
            Action::Free(id) => live -= trace.request(id).bytes,
            _ => {}
        }
    }
    live
}

/// A profile, bytes in use at the end and at the peak, the same as they were asked for, and whether the pool grew,
/// if that can be told.
type Case = (&'static str, &'static [u8], [u64; 2], [u64; 2], Option<bool>);

const JAX: [Case; 6] = [
    (
        "seq",
        include_bytes!("data/xplane/jax-seq.xplane.pb.gz"),
        [788_529_152, 788_529_152],
        [681_574_400, 681_574_400],
        Some(false),
    ),
    (
        "seq-grow",
        include_bytes!("data/xplane/jax-seq-grow.xplane.pb.gz"),
        [789_577_728, 789_577_728],
        [681_574_400, 681_574_400],
        Some(true),
    ),
    (
        "train",
        include_bytes!("data/xplane/jax-train.xplane.pb.gz"),
        [29_622_272, 161_742_848],
        [25_952_256, 158_335_232],
        Some(false),
    ),
    (
        "train-grow",
        include_bytes!("data/xplane/jax-train-grow.xplane.pb.gz"),
        [26_738_176, 182_451_968],
        [25_952_256, 158_335_232],
        Some(true),
    ),
    // Its program went on after it had printed; 1.17 GiB more were in use in the end.
    (
        "frag",
        include_bytes!("data/xplane/jax-frag.xplane.pb.gz"),
        [2_591_031_296, 2_616_197_120],
        [2_591_031_296, 2_616_197_120],
        Some(false),
    ),
    (
        "toobig",
        include_bytes!("data/xplane/jax-toobig.xplane.pb.gz"),
        [209_715_200, 209_715_712],
        [209_715_200, 209_715_202],
        None,
    ),
];

#[test]
fn pools_of_jax_end_where_their_programs_said() {
    for (name, packed, [live, peak], asked, growth) in JAX {
        let recording = read(packed).unwrap();
        assert_eq!(recording.origin.framework, Framework::Jax);
        assert_eq!(recording.origin.formats, [Format::XPlane]);
        assert!(recording.origin.gaps.is_empty(), "{name}: {:?}", recording.origin.gaps);
        let device = device(&recording, "GPU_0_bfc");
        assert_eq!(device.index, Some(0));
        assert_eq!(device.limit, Some(4_504_682_496), "{name}");
        assert_eq!((device.live, device.peak_live), (Some(live), Some(peak)), "{name}");
        let grows =
            device.model.as_ref().map(|model| matches!(model, Model::Bfc(settings) if settings.growth));
        assert_eq!(grows, growth, "{name}");
        assert_eq!(device.reserved, device.limit.filter(|_| growth == Some(false)), "{name}");
        let trace = device.trace.as_ref().unwrap();
        assert!(trace.complete && trace.initial.is_empty(), "{name}");
        assert!(trace.events.windows(2).all(|pair| pair[0].time <= pair[1].time), "{name}");
        assert_eq!([live_at_end(trace), trace.peak_live().0], asked, "{name}");
    }
}

#[test]
fn an_allocation_is_owned_by_the_scopes_around_it_outermost_first() {
    let recording = read(JAX[0].1).unwrap();
    let device = device(&recording, "GPU_0_bfc");
    let trace = device.trace.as_ref().unwrap();
    let owners = &device.owners;
    let named = |wanted: &str| {
        let has = |r: &&plimsoll_memory::Request| owners.stack(r.owner).any(|frame| frame.name == wanted);
        trace.requests.iter().filter(has).count()
    };
    assert_eq!(named("block"), trace.requests.len()); // the function of the program that asked
    let stack: Vec<_> = owners.stack(trace.requests[0].owner).collect();
    let at = stack.iter().position(|frame| frame.name == "block").unwrap();
    assert_eq!((stack[at].file.as_str(), stack[at].line), ("jax_rec.py", 7));
    assert!(at > 0, "what it called is further in");

    // Threads that compile know nothing of who asked them to.
    let recording = read(JAX[2].1).unwrap();
    let device = self::device(&recording, "GPU_0_bfc");
    let requests = &device.trace.as_ref().unwrap().requests;
    let outermost =
        |r: &plimsoll_memory::Request| device.owners.stack(r.owner).last().map(|f| f.name.as_str());
    let compiling = requests.iter().filter(|r| outermost(r) == Some("tf_pjrt_compile_thread_pool")).count();
    assert_eq!((compiling, requests.len()), (824, 1086));
}

#[test]
fn a_profile_of_tensorflow_agrees_with_its_own_memory_profile_tool() {
    let recording = read(include_bytes!("data/xplane/tensorflow.xplane.pb.gz")).unwrap();
    assert_eq!(recording.origin.framework, Framework::TensorFlow);
    let tool = read(include_bytes!("data/profile/tensorflow.memory_profile.json.gz")).unwrap();
    let (profile, tool) = (device(&recording, "mklcpu"), device(&tool, "mklcpu"));
    assert_eq!(profile.limit, Some(25_274_793_984));
    assert_eq!(profile.limit, tool.limit);
    assert_eq!(profile.peak_live, Some(7_340_032));
    assert_eq!(profile.peak_live, tool.peak_live);
    assert!(profile.model.is_none());
    let (trace, timeline) = (profile.trace.as_ref().unwrap(), tool.trace.as_ref().unwrap());
    // The tool leaves out when each thread's clock began, so times differ by some microseconds.
    let actions = |trace: &Trace| {
        let actions = trace.events.iter().map(|event| event.action);
        actions.filter(|action| !matches!(action, Action::Mark(_))).collect::<Vec<_>>()
    };
    assert_eq!(actions(trace), actions(timeline));
    let requests = |device: &Device| {
        let named =
            |r: &plimsoll_memory::Request| device.owners.frame(r.owner).map(|frame| frame.name.clone());
        let requests = device.trace.as_ref().unwrap().requests.iter();
        requests.map(|r| (r.bytes, r.address, named(r))).collect::<Vec<_>>()
    };
    assert_eq!(requests(profile), requests(tool));
    // 2,899,968 bytes were there before and stayed.
    assert!(!trace.complete);
    assert_eq!(trace.initial.len(), 1);
    assert_eq!(trace.request(trace.initial[0]).bytes, 2_899_968);
    assert!(recording.origin.gaps[0].contains("2899968"));
    // Three steps, told by their ends.
    assert_eq!(trace.marks, ["train"]);
    assert_eq!(trace.events.iter().filter(|event| matches!(event.action, Action::Mark(0))).count(), 3);
    let names: Vec<_> = trace.requests.iter().filter_map(|r| profile.owners.frame(r.owner)).collect();
    assert!(names.iter().any(|frame| frame.name == "gradient_tape/sequential_1/dense_1/MatMul/MatMul"));
}

#[test]
fn a_profile_without_memory_events_says_how_to_get_them() {
    // One plane, `/host:CPU`, with nothing in it.
    let error = read(b"\x0a\x0b\x12\x09/host:CPU").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Empty);
    assert!(error.to_string().contains("host tracer"), "{error}");
}

#[test]
fn a_profile_cut_anywhere_is_an_error_or_says_what_is_missing() {
    let bytes = unpacked(JAX[5].1);
    let whole = read(&bytes).unwrap();
    let mut partial = 0;
    for end in 0..bytes.len() {
        match read(&bytes[..end]) {
            Ok(recording) if recording.origin.gaps.is_empty() => {
                let found = device(&recording, "GPU_0_bfc");
                assert_eq!(found.live, device(&whole, "GPU_0_bfc").live, "at {end}");
            }
            Ok(_) => partial += 1,
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    assert!(partial > 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn broken_profiles_never_panic_and_free_only_what_is_live(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let mut bytes = unpacked(JAX[5].1);
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(recording) = read(&bytes) {
            for trace in recording.devices.iter().filter_map(|device| device.trace.as_ref()) {
                let mut live: std::collections::HashSet<_> = trace.initial.iter().copied().collect();
                for event in &trace.events {
                    match event.action {
                        Action::Allocate(id) => prop_assert!(live.insert(id)),
                        Action::Free(id) => prop_assert!(live.remove(&id)),
                        _ => {}
                    }
                }
            }
        }
    }
}

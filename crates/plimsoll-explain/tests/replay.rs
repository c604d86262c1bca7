//! Models of allocators against what really happened: a recording replayed under its own allocator takes of the
//! device what was recorded, to the byte.
//!
//! The figures are those that the recorded programs printed: `torch.cuda.memory_stats()`'s
//! `reserved_bytes.all.peak` and `.current`, and JAX's `memory_stats()`' `peak_pool_bytes` and `pool_bytes`.

mod common;

use common::{packed, read};
use plimsoll_explain::Device;
use plimsoll_memory::{Action, CountedDevice, Model, Outcome, PieceState, Start, replay};

const GIB: f64 = (1u64 << 30) as f64;

fn device(file: &str, name: &str) -> Device {
    let recording = read(&packed(file)).unwrap();
    recording.devices.into_iter().find(|device| device.name == name).unwrap()
}

fn replayed(device: &Device, limit: Option<u64>) -> Outcome {
    let (trace, model) = (device.trace.as_ref().unwrap(), device.model.as_ref().unwrap());
    replay(trace, model, limit, Start::Recorded)
}

/// Replays a snapshot under its own settings and compares what was taken, at most and at the end.
fn assert_takes(file: &str, limit: Option<f64>, peak: u64, end: u64) -> (Device, Outcome) {
    let device = device(file, "GPU 0");
    let outcome = replayed(&device, limit.map(|bytes| bytes as u64));
    assert_eq!((outcome.peak_reserved, outcome.end_reserved), (peak, end), "{file}");
    (device, outcome)
}

#[test]
fn snapshots_that_were_recorded_whole_take_what_was_recorded() {
    for (file, peak) in [
        ("torch-healthy.pickle.gz", 1_222_639_616),
        ("torch-streams.pickle.gz", 184_549_376),
        ("replay/torch-healthy2.pickle.gz", 115_343_360),
        ("replay/torch-idle.pickle.gz", 6_538_919_936),
        ("replay/torch-varlen.pickle.gz", 1_121_976_320),
        ("replay/torch-varlen-pow2.pickle.gz", 1_033_895_936),
        ("torch-varlen-expandable.pickle.gz", 687_865_856),
    ] {
        let (device, outcome) = assert_takes(file, None, peak, peak);
        assert!(device.trace.unwrap().complete && outcome.survived(), "{file}");
    }
}

#[test]
fn a_snapshot_that_begins_in_the_middle_goes_on_as_it_was() {
    let (device, outcome) = assert_takes("torch-frag.pickle.gz", None, 4_414_504_960, 4_414_504_960);
    assert!(!device.trace.unwrap().complete && outcome.survived());
}

#[test]
fn limited_splitting_and_garbage_collection_give_back_what_was_given_back() {
    let limit = Some(1.15 * GIB);
    let (device, outcome) =
        assert_takes("replay/torch-varlen-split-capped.pickle.gz", limit, 994_050_048, 947_912_704);
    assert!(outcome.survived());
    let events = device.trace.unwrap().events;
    assert_eq!(events.iter().filter(|e| matches!(e.action, Action::Release { .. })).count(), 163);
}

#[test]
fn programs_that_ran_out_of_memory_run_out_at_the_same_request() {
    for (file, limit, peak, end) in [
        ("torch-toobig.pickle.gz", 4.0 * GIB, 855_638_016, 157_286_400),
        ("torch-leak.pickle.gz", 11.18 * GIB, 11_995_709_440, 11_991_515_136),
        ("replay/torch-transient.pickle.gz", 3.2 * GIB, 2_453_667_840, 2_453_667_840),
        // What it had and what the device had left at the end.
        ("replay/torch-other.pickle.gz", 38_811_992_064.0 + 2_587_426_816.0, 39_510_343_680, 38_811_992_064),
    ] {
        let (device, outcome) = assert_takes(file, Some(limit), peak, end);
        let failure = device.failure.unwrap();
        let failed = outcome.failed_at.unwrap();
        assert_eq!((failed.event, failed.bytes), (failure.event, failure.requested), "{file}");
    }
}

#[test]
fn other_allocators_would_have_taken_less_of_a_fragmented_device() {
    let device = device("torch-frag.pickle.gz", "GPU 0");
    let trace = device.trace.as_ref().unwrap();
    let own = replayed(&device, None);
    for name in ["expandable", "paged"] {
        let model: Model = name.parse().unwrap();
        let outcome = replay(trace, &model, None, Start::Afresh);
        assert!(outcome.survived() && outcome.peak_reserved < own.peak_reserved, "{name}: {outcome:?}");
        assert!(outcome.peak_reserved >= outcome.lower_bound);
        assert_eq!(outcome.lower_bound, own.lower_bound);
    }
}

/// A profile of JAX, and what its pool held at most and at the end, in use at the end, and the largest hole then.
fn assert_pool(file: &str, pool: u64, in_use: u64, largest_free: u64, placed_as_recorded: bool) {
    let device = device(file, "GPU_0_bfc");
    let outcome = replayed(&device, device.limit);
    assert!(outcome.survived(), "{file}: {outcome:?}");
    assert_eq!((outcome.peak_reserved, outcome.end_reserved), (pool, pool), "{file}");
    // The same again by hand, to see where things lie.
    let trace = device.trace.as_ref().unwrap();
    let mut pool = device.model.as_ref().unwrap().build(device.limit);
    let mut memory = CountedDevice::new(device.limit.unwrap(), 256);
    let mut places = vec![0; trace.requests.len()];
    let mut base = None;
    for event in &trace.events {
        match event.action {
            Action::Allocate(id) => {
                let request = trace.request(id);
                let place = pool.allocate(request.bytes, request.stream, &mut memory).unwrap();
                places[id.0 as usize] = place;
                let base = *base.get_or_insert(request.address - place);
                assert!(!placed_as_recorded || place + base == request.address, "{file}: {event:?}");
            }
            Action::Free(id) => pool.free(places[id.0 as usize], &mut memory),
            _ => {}
        }
    }
    let layout = pool.layout();
    let live = layout.pieces().filter(|p| p.state == PieceState::Live).map(|p| p.bytes).sum::<u64>();
    assert_eq!((live, layout.largest_free()), (in_use, largest_free), "{file}");
}

#[test]
fn a_bfc_pool_that_was_taken_at_once_places_every_request_where_it_was() {
    let limit = 4_504_682_496;
    assert_pool("xplane/jax-seq.xplane.pb.gz", limit, 788_529_152, 3_655_335_936, true);
    assert_pool("xplane/jax-train.xplane.pb.gz", limit, 29_622_272, 4_475_059_712, true);
    // The program printed its figures before its last requests; these are of the profile's last event.
    assert_pool("xplane/jax-frag.xplane.pb.gz", limit, 2_591_031_296, 630_194_176, true);
}

#[test]
fn a_bfc_pool_that_grows_takes_the_regions_it_took() {
    assert_pool("xplane/jax-seq-grow.xplane.pb.gz", 1 << 30, 789_577_728, 214_958_080, false);
    assert_pool("xplane/jax-train-grow.xplane.pb.gz", 266_338_304, 26_738_176, 134_217_728, false);
}

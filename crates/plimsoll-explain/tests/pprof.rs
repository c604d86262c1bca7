//! JAX's device memory profile.

use plimsoll_explain::{Error, ErrorKind, Format, Framework, Input, Recording, read_input};
use proptest::prelude::*;
use std::io::Read;

const PROFILE: &[u8] = include_bytes!("data/profile/jax-fragmented.pprof.gz");

fn read(bytes: &[u8]) -> Result<Recording, Error> {
    read_input(Input::bytes(bytes)?, "profile")
}

fn unpacked() -> Vec<u8> {
    let mut bytes = Vec::new();
    Input::bytes(PROFILE).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn what_is_held_is_told_by_the_stack_that_made_it() {
    let recording = read(PROFILE).unwrap();
    assert_eq!(recording.origin.framework, Framework::Jax);
    assert_eq!(recording.origin.formats, [Format::Pprof]);
    assert!(recording.origin.gaps.is_empty());
    assert_eq!(recording.devices.len(), 1);
    let device = &recording.devices[0];
    assert_eq!((device.name.as_str(), device.index), ("cuda:0", Some(0)));
    // 25 buffers: what the log of the same run has in use but for two pieces of 256 bytes.
    assert_eq!(device.live, Some(1_829_765_376 - 256));
    assert_eq!(device.live_by_owner.len(), 1);
    let (owner, bytes, pieces) = device.live_by_owner[0];
    assert_eq!((bytes, pieces), (1_829_765_120, 25));
    let stack: Vec<_> = device.owners.stack(owner).collect();
    assert_eq!(stack.len(), 15);
    assert_eq!((stack[0].name.as_str(), stack[0].line), ("__call__", 420));
    let outermost = stack[14];
    assert!(outermost.file.ends_with("train.py"), "{outermost:?}");
    assert_eq!((outermost.name.as_str(), outermost.line), ("<module>", 53));
}

#[test]
fn it_joins_the_log_of_the_same_run_by_device() {
    let folder = tempfile::tempdir().unwrap();
    let (log, profile) = (folder.path().join("a.log"), folder.path().join("b.pprof"));
    std::fs::write(&log, include_bytes!("data/log/jax-fragmented.log.gz")).unwrap();
    std::fs::write(&profile, PROFILE).unwrap();
    let joined =
        plimsoll_explain::read_files(&[log, profile], &plimsoll_explain::Progress::default()).unwrap();
    assert_eq!(joined.devices.len(), 1);
    assert_eq!(joined.devices[0].name, "GPU_0_bfc");
}

#[test]
fn several_lines_of_a_location_are_several_frames_and_devices_are_apart() {
    // Strings: "", space, bytes, device, cuda:0, TFRT_CPU_0, outer, inner, a.py
    let mut profile = vec![0x0a, 4, 8, 1, 16, 2];
    for device in [4, 5] {
        // Location 1 by itself, 24 bytes, label device.
        profile.extend([0x12, 10, 8, 1, 16, 24, 0x1a, 4, 8, 3, 16, device]);
    }
    profile.extend([0x22, 14, 8, 1, 0x22, 4, 8, 2, 16, 7, 0x22, 4, 8, 1, 16, 9]);
    profile.extend([0x2a, 6, 8, 1, 16, 6, 32, 8, 0x2a, 6, 8, 2, 16, 7, 32, 8]);
    for string in ["", "space", "bytes", "device", "cuda:0", "TFRT_CPU_0", "outer", "inner", "a.py"] {
        profile.extend([0x32, string.len() as u8]);
        profile.extend(string.as_bytes());
    }
    let recording = read(&profile).unwrap();
    let found: Vec<_> = recording.devices.iter().map(|d| (d.name.as_str(), d.index, d.live)).collect();
    assert_eq!(found, [("TFRT_CPU_0", None, Some(24)), ("cuda:0", Some(0), Some(24))]);
    let device = &recording.devices[1];
    let stack: Vec<_> =
        device.owners.stack(device.live_by_owner[0].0).map(|f| (f.name.as_str(), f.line)).collect();
    assert_eq!(stack, [("inner", 7), ("outer", 9)]);
}

#[test]
fn a_profile_cut_anywhere_is_an_error_or_says_so() {
    let bytes = unpacked();
    for end in 0..bytes.len() {
        match read(&bytes[..end]) {
            Ok(recording) => {
                let whole = recording.devices[0].live == Some(1_829_765_120);
                assert!(whole || !recording.origin.gaps.is_empty(), "at {end}");
            }
            Err(error) => assert_ne!(error.kind(), ErrorKind::Io),
        }
    }
    for end in 0..PROFILE.len() {
        let _ = read(&PROFILE[..end]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn broken_profiles_never_panic(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let mut bytes = unpacked();
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let _ = read(&bytes);
    }
}

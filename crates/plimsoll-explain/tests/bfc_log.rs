//! The dump of TensorFlow's and JAX's allocator, in logs as people have them.

use plimsoll_explain::{
    Device, Error, ErrorKind, Format, Framework, Input, Recording, SignKind, VerdictKind, explain, read_input,
};
use plimsoll_memory::{Model, PieceState};
use proptest::prelude::*;
use std::io::Read;

fn read(bytes: &[u8]) -> Result<Recording, Error> {
    read_input(Input::bytes(bytes).unwrap(), "log")
}

fn text(packed: &[u8]) -> String {
    let mut text = String::new();
    Input::bytes(packed).unwrap().read_to_string(&mut text).unwrap();
    text
}

fn fragmented() -> String {
    text(include_bytes!("data/log/jax-fragmented.log.gz"))
}

fn only(recording: &Recording) -> &Device {
    assert_eq!(recording.devices.len(), 1);
    &recording.devices[0]
}

fn same(a: &Device, b: &Device) -> bool {
    format!("{:?}", (&a.name, &a.limit, &a.reserved, &a.live, &a.peak_live, &a.largest_free, &a.layout))
        == format!(
            "{:?}",
            (&b.name, &b.limit, &b.reserved, &b.live, &b.peak_live, &b.largest_free, &b.layout)
        )
        && a.failure == b.failure
        && a.model == b.model
}

#[test]
fn a_fragmented_pool_of_jax_is_read_to_the_byte() {
    let recording = read(include_bytes!("data/log/jax-fragmented.log.gz")).unwrap();
    assert_eq!(recording.origin.framework, Framework::Jax);
    assert_eq!(recording.origin.formats, [Format::BfcLog]);
    assert!(recording.origin.gaps.is_empty(), "{:?}", recording.origin.gaps);
    let device = only(&recording);
    assert_eq!((device.name.as_str(), device.index), ("GPU_0_bfc", Some(0)));
    let failure = device.failure.as_ref().unwrap();
    assert_eq!((failure.requested, failure.exact), (1_572_864_000, true));
    assert_eq!(failure.op.as_deref(), Some("jit_broadcast_in_dim"));
    assert_eq!(device.limit, Some(4_504_682_496));
    assert_eq!(device.reserved_bytes(), Some(4_504_682_496));
    assert_eq!(device.live_bytes(), Some(1_829_765_376)); // the chunk lines, summed
    assert_eq!(device.peak_live, Some(3_633_316_096)); // peak_bytes_in_use
    assert_eq!(device.largest_free, Some(871_366_144)); // 831 MiB
    let Some(Model::Bfc(settings)) = &device.model else { panic!("{:?}", device.model) };
    assert!(!settings.growth);
    let layout = device.layout.as_ref().unwrap();
    assert_eq!(layout.segments.len(), 1);
    assert_eq!(layout.segments[0].pieces.len(), 53);
    let free: u64 = layout.pieces().filter(|p| p.state == PieceState::Free).map(|p| p.bytes).sum();
    assert_eq!(free, 4_504_682_496 - 1_829_765_376); // 2.49 GiB
    let owner = layout.pieces().find(|p| p.address == 0x0003_0480_0200).unwrap().owner;
    assert_eq!(device.owners.frame(owner).unwrap().name, "jit_broadcast_in_dim");
}

#[test]
fn the_last_of_several_dumps_is_explained_and_all_are_counted() {
    let recording = read(include_bytes!("data/log/jax-leak-grow.log.gz")).unwrap();
    let device = only(&recording);
    assert_eq!(device.failure.as_ref().unwrap().requested, 25_165_824);
    assert_eq!(device.layout.as_ref().unwrap().segments.len(), 9);
    assert_eq!(device.reserved_bytes(), Some(4_504_682_496));
    assert_eq!(device.live_bytes(), Some(4_504_682_496));
    let Some(Model::Bfc(settings)) = &device.model else { panic!() };
    assert!(settings.growth);
    assert_eq!(recording.origin.gaps.len(), 1);
    let gap = &recording.origin.gaps[0];
    assert!(gap.contains("5 dumps of GPU_0_bfc") && gap.contains("at line 948"), "{gap}");
}

#[test]
fn a_request_larger_than_the_pool_is_read_with_the_room_there_was() {
    let recording = read(include_bytes!("data/log/jax-toobig.log.gz")).unwrap();
    let device = only(&recording);
    assert_eq!(device.failure.as_ref().unwrap().requested, 6_442_450_944);
    assert_eq!(device.layout.as_ref().unwrap().largest_free(), 4_294_966_784);
    assert_eq!(device.live_bytes(), Some(209_715_456));
}

#[test]
fn the_wording_of_2016_names_what_was_asked_after_the_dump() {
    let recording = read(include_bytes!("data/log/tensorflow-0.8.log")).unwrap();
    assert_eq!(recording.origin.framework, Framework::TensorFlow);
    let device = only(&recording);
    assert_eq!(device.limit, Some(1_490_198_528));
    assert_eq!(device.live, Some(1_477_023_232));
    assert_eq!(device.peak_live, Some(1_477_423_360));
    let failure = device.failure.as_ref().unwrap();
    // 10000 × 1 × 28 × 28 elements of four bytes print as 29.91MiB.
    assert_eq!((failure.requested, failure.exact, failure.op.as_deref()), (31_360_000, true, Some("Conv2D")));
}

#[test]
fn the_wordings_of_2018_and_2019_give_chunks_in_other_orders() {
    let recording = read(include_bytes!("data/log/tensorflow-1.4-chunks.log")).unwrap();
    let device = only(&recording);
    assert_eq!(device.live_by_owner, [(plimsoll_memory::OwnerId::UNKNOWN, 9_320_183_808, 5)]);
    assert!(recording.origin.gaps.iter().any(|gap| gap.contains("cut short")), "{:?}", recording.origin.gaps);

    let recording = read(include_bytes!("data/log/tensorflow-1.14-chunks.log")).unwrap();
    let device = only(&recording);
    assert_eq!(device.live_by_owner, [(plimsoll_memory::OwnerId::UNKNOWN, 4_864, 5)]);
    assert_eq!(device.failure.as_ref().unwrap().requested, 16_777_216);
}

#[test]
fn chunk_lines_left_out_of_a_log_leave_the_figures() {
    let recording = read(include_bytes!("data/log/tensorflow-2.4-elided.log")).unwrap();
    assert_eq!(recording.origin.framework, Framework::TensorFlow);
    assert!(recording.origin.gaps[0].contains("does not list every chunk"), "{:?}", recording.origin.gaps);
    let device = only(&recording);
    assert!(device.layout.is_none());
    assert_eq!(
        (device.limit, device.reserved, device.live, device.peak_live),
        (Some(1_843_986_432), Some(1_148_427_008), Some(917_285_632), Some(1_420_726_272))
    );
    let failure = device.failure.as_ref().unwrap();
    assert_eq!((failure.requested, failure.op.as_deref()), (536_870_912, Some("transpose_op")));
    let Some(Model::Bfc(settings)) = &device.model else { panic!() };
    assert!(settings.growth && settings.garbage_collection);
}

#[test]
fn figures_in_bytes_and_a_pool_without_a_hole_large_enough() {
    let recording = read(include_bytes!("data/log/xla-2025.log")).unwrap();
    let device = only(&recording);
    assert_eq!(device.reserved_bytes(), Some(18_995_773_440));
    assert_eq!(device.live_bytes(), Some(16_000_000_000));
    assert_eq!(device.largest_free, Some(2_995_773_440));
    assert_eq!(device.failure.as_ref().unwrap().requested, 4_000_000_000);
}

#[test]
fn ops_recorded_with_chunks_are_their_owners() {
    let log = "\
2021-01-01 00:00:00.0: W tensorflow/core/common_runtime/bfc_allocator.cc:431] Allocator (GPU_1_bfc) ran out of \
memory trying to allocate 2.0KiB (rounded to 2048)requested by op model/dense/MatMul
2021-01-01 00:00:00.0: I tensorflow/core/common_runtime/bfc_allocator.cc:970] Next region of size 1024
2021-01-01 00:00:00.0: I tensorflow/core/common_runtime/bfc_allocator.cc:990] InUse at 7f00 of size 512 by op \
model/dense/bias action_count 12 step 3 next 1
2021-01-01 00:00:00.0: I tensorflow/core/common_runtime/bfc_allocator.cc:990] Free  at 8100 of size 512 by op \
UNUSED action_count 13 step 3 next 18446744073709551615
Stats:
Limit:                        1024
InUse:                         512
MaxInUse:                     1024
NumAllocs:                       2
MaxAllocSize:                  512
";
    let recording = read(log.as_bytes()).unwrap();
    let device = only(&recording);
    assert_eq!(device.index, Some(1));
    assert_eq!(device.failure.as_ref().unwrap().op.as_deref(), Some("model/dense/MatMul"));
    let layout = device.layout.as_ref().unwrap();
    let owner = layout.segments[0].pieces[0].owner;
    assert_eq!(device.owners.frame(owner).unwrap().name, "model/dense/bias");
}

#[test]
fn two_devices_that_dump_at_the_same_time_are_told_apart_by_thread() {
    let log = fragmented();
    let start = log.find("W1115 07:05:46.785152").unwrap();
    let end = log.find("EXC JaxRuntimeError").unwrap();
    let one = &log[start..end];
    let two = one.replace("     541 bfc", "     777 bfc").replace("GPU_0", "GPU_1");
    let mut mixed = String::new();
    for (a, b) in one.lines().zip(two.lines()) {
        mixed.extend([a, "\n", b, "\n"]);
    }
    let recording = read(mixed.as_bytes()).unwrap();
    assert_eq!(recording.devices.len(), 2);
    for device in &recording.devices {
        assert_eq!(device.layout.as_ref().unwrap().segments[0].pieces.len(), 53, "{}", device.name);
    }
}

#[test]
fn what_launchers_and_terminals_add_changes_nothing() {
    let plain = fragmented();
    let expected = read(plain.as_bytes()).unwrap();
    let ranked: String = plain.lines().map(|line| format!("[1,0]<stderr>:{line}\n")).collect();
    let coloured: String = plain.lines().map(|line| format!("\u{1b}[31m{line}\u{1b}[0m\n")).collect();
    let stamped: String =
        plain.lines().enumerate().map(|(n, line)| format!("2026-11-15T07:05:{n:03}Z {line}\n")).collect();
    let container: String = plain
        .lines()
        .map(|line| serde_json::json!({"log": format!("{line}\n"), "stream": "stderr"}).to_string() + "\n")
        .collect();
    let wide: Vec<u8> = format!("\u{feff}{plain}").encode_utf16().flat_map(u16::to_le_bytes).collect();
    let twice: String = plain.lines().map(|line| format!("{line}\n{line}\n")).collect();
    let variants = [
        plain.replace('\n', "\r\n").into_bytes(),
        ranked.into_bytes(),
        coloured.into_bytes(),
        stamped.into_bytes(),
        container.into_bytes(),
        wide,
    ];
    for (index, variant) in variants.iter().enumerate() {
        let recording = read(variant).unwrap();
        assert!(same(only(&recording), only(&expected)), "variant {index}: {:?}", recording.origin.gaps);
    }
    let doubled = read(twice.as_bytes()).unwrap();
    assert_eq!(only(&doubled).layout, only(&expected).layout);
}

#[test]
fn a_log_cut_after_any_line_gives_a_stated_partial_answer_or_an_error() {
    let log = fragmented();
    let full = read(log.as_bytes()).unwrap();
    let mut at = 0;
    let (mut partial, mut whole) = (0, 0);
    for line in log.split_inclusive('\n') {
        at += line.len();
        match read(&log.as_bytes()[..at]) {
            Ok(recording) => {
                let device = only(&recording);
                if device.failure.is_some() && device.layout.is_none() {
                    assert!(recording.origin.gaps.iter().any(|gap| gap.contains("cut short")), "at {at}");
                    partial += 1;
                } else if device.failure.is_some() {
                    assert_eq!(device.layout, only(&full).layout);
                    whole += 1;
                }
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Empty),
        }
    }
    assert!(partial > 50 && whole > 10, "{partial} partial, {whole} whole");
}

#[test]
fn errors_without_a_dump_are_read() {
    let jax = "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate \
               6291456 bytes.\nBufferAssignment OOM Debugging.\nBufferAssignment stats:\n             parameter \
               allocation:    6.00MiB\n                 total allocation:   12.00MiB\nPeak buffers:\n\tBuffer 1:\n\
               \t\tSize: 6.00MiB\n\t\tOperator: op_name=\"jit(concatenate)/jit(main)/concatenate[dimension=0]\" \
               source_file=\"internal/models.py\" source_line=689\n\t\tXLA Label: concatenate\n\t\tShape: \
               f32[4096,128,3]\n\t\t==========================\n\n\tBuffer 2:\n\t\tSize: 384.0KiB\n\t\tEntry \
               Parameter Subshape: f32[256,128,3]\n\t\t==========================\n";
    let recording = read(jax.as_bytes()).unwrap();
    assert_eq!(recording.origin.framework, Framework::Jax);
    let device = only(&recording);
    assert_eq!(device.failure.as_ref().unwrap().requested, 6_291_456);
    assert!(device.failure.as_ref().unwrap().exact);
    assert_eq!(device.live_by_owner.iter().map(|held| held.1).collect::<Vec<_>>(), [6_291_456, 393_216]);
    let frame = device.owners.frame(device.live_by_owner[0].0).unwrap();
    assert_eq!((frame.file.as_str(), frame.line), ("internal/models.py", 689));

    // The same below a dump of which only the warnings were logged.
    let warned = format!(
        "2022-10-25 21:52:08.219469: W external/org_tensorflow/tensorflow/tsl/framework/bfc_allocator.cc:479] \
         Allocator (GPU_1_bfc) ran out of memory trying to allocate 6.00MiB (rounded to 6291456)requested by op \n\
         2022-10-25 21:52:08.220328: W external/org_tensorflow/tensorflow/tsl/framework/bfc_allocator.cc:491] *{}\n{jax}",
        "_".repeat(99)
    );
    let recording = read(warned.as_bytes()).unwrap();
    let device = only(&recording);
    assert_eq!((device.name.as_str(), device.failure.as_ref().unwrap().requested), ("GPU_1_bfc", 6_291_456));
    assert_eq!(device.live_by_owner.len(), 2);

    let tensorflow = "ResourceExhaustedError: OOM when allocating tensor with shape[32,64,250,250] and type float \
                      on /job:localhost/replica:0/task:0/device:GPU:1 by allocator GPU_1_bfc [Op:Conv2D]\n";
    let recording = read(tensorflow.as_bytes()).unwrap();
    assert_eq!(recording.origin.framework, Framework::TensorFlow);
    let device = only(&recording);
    assert_eq!((device.name.as_str(), device.index), ("GPU_1_bfc", Some(1)));
    let failure = device.failure.as_ref().unwrap();
    assert_eq!(
        (failure.requested, failure.exact, failure.op.as_deref()),
        (512_000_000, true, Some("Conv2D"))
    );

    let usage = "Resource exhausted: OOM when allocating tensor with shape[1024] and type float on \
                 /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc\n\n\
                 Current usage from device: /job:localhost/replica:0/task:0/device:GPU:0, allocator: GPU_0_bfc\n  \
                 250.00MiB from network/conv2d_5/Conv2D\n  10.00MiB from network/conv2d_5/Conv2D\n  \
                 2.00MiB from network/conv2d_11/Conv2D\n  Remaining 1252 nodes with 98.80MiB\n";
    let recording = read(usage.as_bytes()).unwrap();
    let held = &only(&recording).live_by_owner;
    assert_eq!(held.iter().map(|h| (h.1 >> 20, h.2)).collect::<Vec<_>>(), [(260, 2), (2, 1)]);

    let tpu = "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20.13G of \
               15.48G hbm. Exceeded hbm capacity by 4.65G.\n";
    let recording = read(tpu.as_bytes()).unwrap();
    let device = only(&recording);
    assert_eq!((device.name.as_str(), device.capacity), ("TPU hbm", Some(16_621_523_436)));
    assert_eq!(device.failure.as_ref().unwrap().requested, 21_614_422_917);

    let driver = "2023-01-02 03:04:05.6: I tensorflow/compiler/xla/stream_executor/cuda/cuda_driver.cc:733] failed to \
                  allocate 14.49G (15556766720 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n\
                  2023-01-02 03:04:05.7: I tensorflow/compiler/xla/stream_executor/cuda/cuda_driver.cc:733] failed to \
                  allocate 13.04G (14001090560 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n";
    // Less is tried next; logged as an error, as it once was, it may have been the end.
    let recording = read(driver.as_bytes()).unwrap();
    assert_eq!(only(&recording).failure, None);
    assert_eq!(only(&recording).sign.as_ref().unwrap().kind, SignKind::Warning);
    let recording = read(driver.replace(": I ", ": E ").as_bytes()).unwrap();
    let sign = only(&recording).sign.as_ref().unwrap();
    assert_eq!((sign.kind, sign.needed), (SignKind::Reservation, Some(14_001_593_385)));

    let request =
        "RESOURCE_EXHAUSTED: Failed to allocate request for 3.00GiB (3221225472B) on device ordinal 2\n";
    let recording = read(request.as_bytes()).unwrap();
    let device = only(&recording);
    assert_eq!((device.index, device.failure.as_ref().unwrap().requested), (Some(2), 3_221_225_472));

    let stats = "{'num_allocs': 60, 'bytes_in_use': 1332740096, 'peak_bytes_in_use': 2616197120, 'bytes_limit': \
                 4504682496, 'largest_free_block_bytes': 1888485376, 'pool_bytes': 4504682496}\n";
    let recording = read(stats.as_bytes()).unwrap();
    let device = only(&recording);
    assert_eq!((device.live, device.peak_live), (Some(1_332_740_096), Some(2_616_197_120)));
    assert!(device.failure.is_none());
}

#[test]
fn warnings_that_are_no_failure_and_text_about_nothing_say_so() {
    let warning = "2020-04-29 16:25:36.594950: W tensorflow/core/common_runtime/bfc_allocator.cc:243] Allocator \
                   (GPU_0_bfc) ran out of memory trying to allocate 1.25GiB with freed_by_count=0. The caller \
                   indicates that this is not a failure, but may mean that there could be performance gains if \
                   more memory were available.\n";
    let recording = read(warning.as_bytes()).unwrap();
    assert_eq!(only(&recording).sign.as_ref().unwrap().kind, SignKind::Warning);
    assert_eq!(explain(&recording).verdicts[0].kind, VerdictKind::Healthy);
    for text in ["epoch 1 loss 0.3\n", "\n", "x"] {
        let error = read(text.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Empty, "{text}");
        assert!(error.to_string().contains("memory"), "{error}");
    }
    for json in ["{\"a\": 1}", "[{\"ph\": \"X\"}]"] {
        assert_eq!(read(json.as_bytes()).unwrap_err().kind(), ErrorKind::UnknownFormat);
    }
    assert_eq!(read(&[0, 1, 2, 3, 255, 254, 9, 0, 0]).unwrap_err().kind(), ErrorKind::UnknownFormat);
}

#[test]
fn a_dump_behind_endless_lines_is_found_in_bounded_memory() {
    let mut log = vec![b'='; 20 << 20];
    log.push(b'\n');
    log.extend("\r 10% 12.1it/s loss=0.1".repeat(200_000).into_bytes());
    log.extend(b"\n");
    log.extend(fragmented().into_bytes());
    let recording = read(&log).unwrap();
    assert_eq!(only(&recording).largest_free, Some(871_366_144));
}

/// Lines that other threads and the program itself write.
fn unrelated() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[a-zA-Z0-9 .:=%|/_*-]{0,120}".prop_map(|line| line.replace("Bin (256)", "")),
        Just("I1115 07:05:46.785400     999 cuda_dnn.cc:442] Loaded cuDNN version 91900".into()),
        Just("epoch 3: 45%|####      | 12/40 [00:01<00:03, 8.81it/s]".into()),
        Just("Traceback (most recent call last):".into()),
        Just("  File \"train.py\", line 7, in main".into()),
        Just("_________________________________________________________________".into()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lines_of_others_inside_a_dump_change_nothing(
        inserted in prop::collection::vec((any::<prop::sample::Index>(), unrelated()), 1..40),
    ) {
        let log = fragmented();
        let expected = read(log.as_bytes()).unwrap();
        let mut lines: Vec<String> = log.lines().map(str::to_string).collect();
        for (at, line) in inserted {
            lines.insert(at.index(lines.len()), line);
        }
        let recording = read(lines.join("\n").as_bytes()).unwrap();
        prop_assert!(same(only(&recording), only(&expected)), "{:?}", recording.origin.gaps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn broken_bytes_never_panic_and_never_make_a_layout_with_holes(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..30),
        end in any::<prop::sample::Index>(),
    ) {
        let mut log = fragmented().into_bytes();
        for (at, value) in flips {
            let at = at.index(log.len());
            log[at] = value;
        }
        log.truncate(end.index(log.len()) + 1);
        if let Ok(recording) = Input::bytes(&log).and_then(|input| read_input(input, "log")) {
            for layout in recording.devices.iter().filter_map(|device| device.layout.as_ref()) {
                for segment in &layout.segments {
                    let mut at = segment.address;
                    for piece in &segment.pieces {
                        prop_assert_eq!(piece.address, at);
                        at += piece.bytes;
                    }
                    prop_assert_eq!(at, segment.address + segment.bytes);
                }
            }
        }
    }
}

//! PyTorch's out-of-memory message, in every wording it has had, alone and inside logs. The messages are real
//! ones that people posted in public.

use plimsoll_explain::{Device, Format, Framework, Input, Recording, SignKind, read_input};
use proptest::prelude::*;

const MIB: f64 = 1_048_576.0;
const GIB: f64 = 1024.0 * MIB;

fn read(text: &str) -> Recording {
    let recording = read_input(Input::bytes(text.as_bytes()).unwrap(), "message").unwrap();
    assert_eq!(recording.origin.framework, Framework::PyTorch);
    assert_eq!(recording.origin.formats, [Format::TorchMessage]);
    recording
}

fn only(text: &str) -> Device {
    let mut devices = read(text).devices;
    assert_eq!(devices.len(), 1);
    devices.remove(0)
}

fn near(bytes: Option<u64>, expected: f64) -> bool {
    bytes.is_some_and(|bytes| (bytes as f64 - expected).abs() < 1.0)
}

const CURRENT: &str = "CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 139.80 GiB of \
    which 2.41 GiB is free. Process 1108 has 100.51 GiB memory in use. Including non-PyTorch memory, this process \
    has 36.87 GiB memory in use. Of the allocated memory 36.06 GiB is allocated by PyTorch, and 85.00 MiB is \
    reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting \
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory \
    Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage)";

#[test]
fn the_current_wording_tells_the_device_this_process_and_others() {
    let device = only(CURRENT);
    assert_eq!((device.name.as_str(), device.index), ("GPU 0", Some(0)));
    let failure = device.failure.as_ref().unwrap();
    assert_eq!((failure.requested, failure.exact), (4 << 30, false));
    assert!(near(device.capacity, 139.80 * GIB));
    assert!(near(device.device_free, 2.41 * GIB));
    assert!(near(device.process, 36.87 * GIB));
    assert!(near(device.live, 36.06 * GIB));
    assert!(near(device.reserved, 36.06 * GIB + 85.0 * MIB));
    assert_eq!(device.others.len(), 1);
    assert_eq!(device.others[0].0, "process 1108");
    assert!(near(Some(device.others[0].1), 100.51 * GIB));
    assert_eq!(device.limit, None);
}

#[test]
fn a_limit_set_by_the_program_is_told_as_allowed() {
    let text = "CUDA out of memory. Tried to allocate 126.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which \
        127.90 GiB is free. Including non-PyTorch memory, this process has 11.89 GiB memory in use. 11.18 GiB \
        allowed; Of the allocated memory 10.96 GiB is allocated by PyTorch, and 209.78 MiB is reserved by PyTorch \
        but unallocated. If reserved but unallocated memory is large try setting";
    let device = only(text);
    assert!(near(device.limit, 11.18 * GIB));
    assert!(near(device.device_free, 127.90 * GIB));
    assert!(near(device.reserved, 10.96 * GIB + 209.78 * MIB), "{:?}", device.reserved);
    assert!(device.others.is_empty());
}

#[test]
fn the_wordings_in_brackets_are_read_from_1_0_on() {
    let device = only(
        "RuntimeError: CUDA out of memory. Tried to allocate 32.00 MiB (GPU 1; 7.79 GiB total capacity; 6.64 GiB \
         already allocated; 21.00 MiB free; 150.86 MiB cached)",
    );
    assert_eq!(device.index, Some(1));
    assert!(near(device.capacity, 7.79 * GIB) && near(device.device_free, 21.0 * MIB));
    assert!(near(device.reserved, 6.64 * GIB + 150.86 * MIB)); // cached was what is held without being used

    let device = only(
        "RuntimeError: CUDA out of memory. Tried to allocate 64.00 MiB (GPU 0; 4.00 GiB total capacity; 3.35 GiB \
         already allocated; 0 bytes free; 3.41 GiB reserved in total by PyTorch) If reserved memory is >> allocated \
         memory try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and \
         PYTORCH_CUDA_ALLOC_CONF",
    );
    assert!(near(device.reserved, 3.41 * GIB) && near(device.live, 3.35 * GIB));
    assert_eq!(device.device_free, Some(0));

    let device = only(
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.78 GiB total \
         capacity; 1.21 GiB already allocated; 13.19 GiB free; 2.00 GiB allowed; 1.43 GiB reserved in total by \
         PyTorch)",
    );
    assert!(near(device.limit, 2.0 * GIB) && near(device.device_free, 13.19 * GIB));
}

#[test]
fn a_misspelt_capacity_of_2_1_is_read_too() {
    let device = only(
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 27.12 GiB. GPU 0 has a total capacty of \
         11.99 GiB of which 0 bytes is free. Of the allocated memory 16.16 GiB is allocated by PyTorch, and 144.59 \
         MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting \
         max_split_size_mb to avoid fragmentation.",
    );
    assert!(near(device.capacity, 11.99 * GIB));
    assert_eq!(device.device_free, Some(0));
    assert!(near(device.live, 16.16 * GIB));
}

#[test]
fn other_backends_are_read() {
    let device = only(
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 1.88 GiB. GPU 0 has a total capacity of 23.98 \
         GiB of which 1.70 GiB is free. Of the allocated memory 21.65 GiB is allocated by PyTorch, and 279.78 MiB \
         is reserved by PyTorch but unallocated.",
    );
    assert!(near(device.live, 21.65 * GIB));
    let device = only(
        "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.56 \
         GiB. Of the allocated memory 13.20 GiB is allocated by PyTorch, and 3.00 MiB is reserved by PyTorch but \
         unallocated. Please use `empty_cache` to release all unoccupied cached memory.",
    );
    assert!(near(device.capacity, 15.56 * GIB));
    assert_eq!(device.device_free, None);
    let device = only(
        "RuntimeError: MPS backend out of memory (MPS allocated: 9.57 GiB, other allocations: 17.35 GiB, max \
         allowed: 27.20 GiB). Tried to allocate 292.50 MiB on private pool. Use \
         PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations",
    );
    assert_eq!(device.name, "mps");
    assert!(near(device.limit, 27.20 * GIB) && near(device.reserved, 9.57 * GIB));
    // What Metal holds beside the pool is this process's own.
    assert!(device.others.is_empty() && near(device.process, (9.57 + 17.35) * GIB));
    assert!(near(device.failure.map(|failure| failure.requested), 292.5 * MIB));
    let device = only(
        "RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: you \
         tried to allocate 8589934592 bytes. Error code 12 (Cannot allocate memory)",
    );
    assert_eq!((device.name.as_str(), device.failure.unwrap().exact), ("cpu", true));
}

#[test]
fn the_asynchronous_allocator_tells_its_figures_on_lines_of_their_own() {
    let device = only(
        "torch.cuda.OutOfMemoryError: Allocation on device 5 would exceed allowed memory. (out of memory)\n\
         Currently allocated     : 54.14 GiB\n\
         Requested               : 686.41 MiB\n\
         Device limit            : 79.35 GiB\n\
         Free (according to CUDA): 27.19 MiB\n\
         PyTorch limit (set by user-supplied memory fraction)\n                        : 17179869184.00 GiB\n",
    );
    assert_eq!(device.index, Some(5));
    assert!(near(device.live, 54.14 * GIB) && near(device.capacity, 79.35 * GIB));
    assert!(near(device.failure.map(|failure| failure.requested), 686.41 * MIB));
    assert_eq!(device.limit, None);
}

#[test]
fn the_users_line_in_the_traceback_is_who_asked() {
    let log = format!(
        "step 12 loss 0.4\nTraceback (most recent call last):\n  File \"train.py\", line 41, in <module>\n    \
         main()\n  File \"train.py\", line 15, in loss\n    return f(x)\n  File \
         \"/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py\", line 125, in forward\n    return \
         F.linear(input, self.weight, self.bias)\ntorch.OutOfMemoryError: {CURRENT}\nsrun: error: task 0 failed\n"
    );
    let device = only(&log);
    assert_eq!(device.failure.unwrap().op.as_deref(), Some("train.py:15 loss"));
}

#[test]
fn a_message_wrapped_over_lines_is_one_message() {
    let wrapped = "Exception: Capture cuda graph failed: CUDA out of memory.\nTried to allocate 672.00 MiB.\n\n\
        GPU 0 has a total capacity of 140.06 GiB of which 200.75 MiB is free.\nProcess 1939284 has 139.86 GiB memory \
        in use.\nOf the allocated memory 128.50 GiB is allocated by PyTorch,\nwith 3.23 GiB allocated in private \
        pools (e.g., CUDA Graphs),\nand 1.01 GiB is reserved by PyTorch but unallocated.\n";
    let device = only(wrapped);
    assert!(near(device.live, 128.5 * GIB));
    assert!(near(device.process, 139.86 * GIB)); // its own, by a number of the host
}

#[test]
fn the_last_message_of_each_device_counts() {
    let first = CURRENT.replace("4.00 GiB. GPU", "1.00 GiB. GPU");
    let other = CURRENT.replace("GPU 0", "GPU 3");
    let recording = read(&format!("{first}\nretrying\n{other}\nretrying\n{CURRENT}\n"));
    let names: Vec<_> = recording.devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["GPU 3", "GPU 0"]);
    assert_eq!(recording.devices[1].failure.as_ref().unwrap().requested, 4 << 30);
    assert!(recording.origin.gaps[0].contains("3 out-of-memory messages"), "{:?}", recording.origin.gaps);
}

#[test]
fn an_error_without_sizes_is_read_as_such() {
    let text =
        "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported\n";
    let recording = read_input(Input::bytes(text.as_bytes()).unwrap(), "log").unwrap();
    assert_eq!(
        (recording.origin.framework, &recording.origin.formats[..]),
        (Framework::PyTorch, &[Format::Log][..])
    );
    let sign = recording.devices[0].sign.as_ref().unwrap();
    assert_eq!((sign.kind, sign.line), (SignKind::DeviceFull, 1));
    assert_eq!(recording.devices[0].failure, None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn broken_messages_never_panic(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
        end in any::<prop::sample::Index>(),
    ) {
        let mut text = CURRENT.as_bytes().to_vec();
        for (at, value) in flips {
            let at = at.index(text.len());
            text[at] = value;
        }
        text.truncate(end.index(text.len()) + 1);
        if let Ok(input) = Input::bytes(&text) {
            let _ = read_input(input, "message");
        }
    }
}

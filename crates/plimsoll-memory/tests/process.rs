//! The memory of the process, in one of its own, so that no other test's memory comes and goes meanwhile.
#![cfg(target_os = "linux")]

use plimsoll_memory::{machine_bytes, peak_resident_bytes, resident_bytes};

#[test]
fn memory_that_was_written_is_resident_and_the_peak_remembers_it() {
    let bytes = 64 << 20;
    let start = resident_bytes().unwrap();
    let written = std::hint::black_box(vec![1u8; bytes]);
    let most = resident_bytes().unwrap();
    drop(written);
    assert!(most >= start + bytes as u64 / 10 * 9, "{most} {start}");
    assert!(resident_bytes().unwrap() < most);
    assert!(machine_bytes().unwrap() >= most);
    assert!(peak_resident_bytes().unwrap() >= start + bytes as u64 / 10 * 9);
}

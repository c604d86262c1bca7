//! What a device tries of itself, on memory that every machine has.

use plimsoll_cpu::CpuDevice;
use plimsoll_device::Device;

#[test]
fn every_check_of_pools_passes_on_the_hosts_memory() {
    let checks = CpuDevice::new(Some(1)).expect("a thread").selftest();
    assert!(!checks.is_empty());
    for check in checks {
        assert!(check.passed, "{}: {}", check.name, check.detail);
        assert!(!check.detail.is_empty());
    }
}

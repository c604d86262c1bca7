//! The checks themselves, on memory that every machine has.

use plimsoll_cuda::selftest_host;

#[test]
fn every_check_of_pools_passes_on_the_hosts_memory() {
    let checks = selftest_host();
    assert!(!checks.is_empty());
    for check in checks {
        assert!(check.passed, "{}: {}", check.name, check.detail);
        assert!(!check.detail.is_empty());
    }
}

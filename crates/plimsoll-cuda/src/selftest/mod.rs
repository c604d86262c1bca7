//! What a device's memory is relied on for, tried on the device at hand: its pages, and what all devices' pools and eager
//! execution need of them.

mod eager;
mod memory;
mod pages;

use crate::driver::device::CudaDevice;
use plimsoll_device::SelfTest;
use plimsoll_device::selftest::{Failure, Host, pools, pools_of_all_memory};

/// Tries everything that the device's memory is relied on for, and the host's, which inputs and offloaded buffers are
/// in. It fills the device for a moment, so nothing else should be using it; a check that fails does not keep the others
/// from running.
pub(crate) fn selftest(device: &CudaDevice) -> Vec<SelfTest> {
    let mut checks = Vec::new();
    pools(&Host, &mut checks);
    pages::run(device, &mut checks);
    pools(device, &mut checks);
    pools_of_all_memory(device, &mut checks);
    eager::run(device, &mut checks);
    checks
}

/// A failure unless the result is an error of one of these kinds; its text if it is.
fn ensure_refused<T>(
    what: &str,
    result: plimsoll_memory::Result<T>,
    kinds: &[plimsoll_memory::ErrorKind],
) -> Result<String, Failure> {
    match result {
        Ok(_) => Err(Failure(format!("{what} was not refused"))),
        Err(error) if kinds.contains(&error.kind()) => Ok(error.to_string()),
        Err(error) => Err(Failure(format!("{what} was refused as {:?}: {error}", error.kind()))),
    }
}

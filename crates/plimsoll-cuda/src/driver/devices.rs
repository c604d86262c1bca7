//! What CUDA devices this machine has.

use crate::driver::device::{self, CudaDevice, DeviceId};
use crate::driver::functions::Driver;
use crate::error::Result;
use cudarc::driver::sys::CUdevice_attribute_enum as Attribute;

/// What the driver says about a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Which it is.
    pub id: DeviceId,
    /// What it is called.
    pub name: String,
    /// Its compute capability, major and minor.
    pub capability: (u32, u32),
    /// All of its memory.
    pub total_bytes: u64,
    /// What is free of it while a context of this process is on it. An error if none can be made, as on a device
    /// that is full or taken by another process.
    pub free_bytes: Result<u64>,
    /// Whether memory can be mapped behind addresses, which a [`CudaSource`](crate::CudaSource) needs.
    pub virtual_memory: bool,
    /// The unit in which it is mapped; 0 where it cannot be.
    pub granularity_bytes: u64,
}

/// The newest CUDA that the driver of this machine serves, major and minor.
///
/// # Errors
/// If there is no driver, or one that is too old.
pub fn driver_version() -> Result<(u32, u32)> {
    Ok(Driver::get()?.version())
}

/// All devices that this process may use.
///
/// # Errors
/// If there is no driver, one that is too old, no device at all, or the driver does not describe one.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    let driver = Driver::get()?;
    let count = device::count(driver)?.min(u32::from(u16::MAX)) as u16;
    (0..count).map(|index| describe(driver, DeviceId(index))).collect()
}

fn describe(driver: &Driver, id: DeviceId) -> Result<DeviceInfo> {
    let device = device::find(driver, id)?;
    let attribute = |which| device::attribute(driver, id, device, which);
    let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let virtual_memory = attribute(Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)? != 0;
    Ok(DeviceInfo {
        id,
        name: device::name(driver, id, device)?,
        capability: (major.max(0) as u32, minor.max(0) as u32),
        total_bytes: device::total_bytes(driver, id, device)?,
        free_bytes: CudaDevice::open(id).and_then(|device| Ok(device.memory_info()?.free_bytes)),
        virtual_memory,
        granularity_bytes: if virtual_memory { device::granularity(driver, id, device)? } else { 0 },
    })
}

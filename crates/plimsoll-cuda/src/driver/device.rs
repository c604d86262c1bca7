//! One CUDA device that is in use: its context, and the book of its addresses.

use crate::codegen::engine::Engine;
use crate::driver::address_book::AddressBook;
use crate::driver::functions::Driver;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::Eager;
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute_enum as Attribute,
    CUmemAllocationGranularity_flags_enum as Granularity, CUmemAllocationHandleType, CUmemAllocationProp,
    CUmemAllocationProp_st__bindgen_ty_1 as AllocationFlags, CUmemAllocationType_enum as AllocationType,
    CUmemLocation, CUmemLocationType_enum as LocationType,
};
use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::ptr;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Which CUDA device, by the driver's count: `cuda:0` is the first.
///
/// ```
/// use plimsoll_cuda::DeviceId;
/// assert_eq!("cuda:1".parse(), Ok(DeviceId(1)));
/// assert_eq!(DeviceId(0).to_string(), "cuda:0");
/// assert!("gpu0".parse::<DeviceId>().unwrap_err().to_string().contains("cuda:0"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(pub u16);

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cuda:{}", self.0)
    }
}

impl FromStr for DeviceId {
    type Err = Error;

    fn from_str(text: &str) -> Result<DeviceId> {
        let number = text.strip_prefix("cuda:").filter(|n| n.bytes().all(|b| b.is_ascii_digit()));
        number.and_then(|number| number.parse().ok()).map(DeviceId).ok_or_else(|| {
            let message =
                format!("`{text}` is not a CUDA device: write cuda: and its number, such as cuda:0");
            Error::new(ErrorKind::NotADevice, message)
        })
    }
}

/// A CUDA device in use. Its context is kept as long as this, a copy of it or memory on it is.
#[derive(Clone)]
pub struct CudaDevice {
    pub(crate) shared: Arc<Shared>,
    /// What compiles and runs kernels; made when the first is asked for, as most of what it loads is not needed
    /// to look at memory.
    engine: Arc<OnceLock<Result<Arc<Engine>>>>,
    /// What runs programs without a plan; made when the first is run.
    eager: Arc<OnceLock<Result<Eager>>>,
}

pub(crate) struct Shared {
    pub(crate) driver: &'static Driver,
    pub(crate) id: DeviceId,
    pub(crate) device: CUdevice,
    context: CUcontext,
    address_book: Mutex<AddressBook>,
    /// Bytes that are mapped by arenas.
    pub(crate) arenas: AtomicU64,
    /// Bytes of the device that were taken when it was opened.
    pub(crate) at_open: u64,
}

// SAFETY: the context is only handed to the driver, which may be called from any thread; it is pushed and popped
// around every call, so that no thread depends on what another has current.
unsafe impl Send for Shared {}
// SAFETY: as above; all that changes is behind a lock.
unsafe impl Sync for Shared {}

/// A device's memory as its driver counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes that nobody has taken: neither this process nor another.
    pub free_bytes: u64,
    /// All there are.
    pub total_bytes: u64,
}

impl CudaDevice {
    /// Takes the device into use, which makes a context on it unless this process has one already; that takes a
    /// few hundred MiB of its memory.
    ///
    /// # Errors
    /// If there is no driver or no such device, or no context can be made: the device is full or taken.
    pub fn open(id: DeviceId) -> Result<CudaDevice> {
        let driver = Driver::get()?;
        let count = count(driver)?;
        if u32::from(id.0) >= count {
            let there_is = match count {
                0 => "none is here, or CUDA_VISIBLE_DEVICES hides them".into(),
                1 => "there is one, cuda:0".into(),
                _ => format!("there are {count}, cuda:0 to cuda:{}", count - 1),
            };
            return Err(Error::new(ErrorKind::NoDevice, format!("there is no device {id}: {there_is}")));
        }
        let device = find(driver, id)?;
        let mut context: CUcontext = ptr::null_mut();
        // SAFETY: the pointer is to a live pointer, and the device is one that the driver returned.
        let code = unsafe { (driver.functions.primary_context_retain)(&mut context, device) };
        driver
            .check(code, || format!("make a context on {id}, which takes a few hundred MiB of its memory"))?;
        let (address_book, arenas) = (Mutex::default(), AtomicU64::new(0));
        let mut shared = Shared { driver, id, device, context, address_book, arenas, at_open: 0 };
        let info = shared.memory_info()?;
        shared.at_open = info.total_bytes.saturating_sub(info.free_bytes);
        Ok(CudaDevice { shared: Arc::new(shared), engine: Arc::default(), eager: Arc::default() })
    }

    /// What compiles and runs kernels on the device.
    pub(crate) fn engine(&self) -> Result<&Arc<Engine>> {
        let make = || Engine::new(self.shared.clone()).map(Arc::new);
        self.engine.get_or_init(make).as_ref().map_err(Clone::clone)
    }

    /// What runs programs on the device without a plan.
    pub(crate) fn eager(&self) -> Result<&Eager> {
        self.eager.get_or_init(|| Eager::new(&self.shared)).as_ref().map_err(Clone::clone)
    }

    /// Which device this is.
    pub fn id(&self) -> DeviceId {
        self.shared.id
    }

    /// What the driver says about the device's memory now. All processes count.
    ///
    /// # Errors
    /// If the driver does not say.
    pub fn memory_info(&self) -> Result<MemoryInfo> {
        self.shared.memory_info()
    }

    /// Bytes of the device that are mapped behind addresses by this handle and its copies.
    pub fn mapped_bytes(&self) -> u64 {
        self.shared.address_book().mapped_bytes() + self.shared.arenas.load(Ordering::Relaxed)
    }

    /// The least unit in which memory is mapped.
    ///
    /// # Errors
    /// If the driver does not say, or the device cannot map memory.
    pub fn granularity_bytes(&self) -> Result<u64> {
        granularity(self.shared.driver, self.shared.id, self.shared.device)
    }
}

impl fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaDevice({})", self.shared.id)
    }
}

impl Shared {
    /// The address book. A panic elsewhere leaves it as it was between two calls of the driver, which is valid.
    pub(crate) fn address_book(&self) -> MutexGuard<'_, AddressBook> {
        self.address_book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` with the device's context current on this thread, and puts back the one that was.
    pub(crate) fn with_context<T>(&self, work: impl FnOnce(&'static Driver) -> Result<T>) -> Result<T> {
        let functions = &self.driver.functions;
        // SAFETY: the context is retained as long as `self` lives.
        let code = unsafe { (functions.context_push)(self.context) };
        self.driver.check(code, || format!("use the context on {}", self.id))?;
        let result = work(self.driver);
        let mut popped: CUcontext = ptr::null_mut();
        // SAFETY: the pointer is to a live pointer; what is popped was pushed above.
        let code = unsafe { (functions.context_pop)(&mut popped) };
        self.driver.check(code, || format!("leave the context on {}", self.id))?;
        result
    }

    pub(crate) fn memory_info(&self) -> Result<MemoryInfo> {
        self.with_context(|driver| {
            let (mut free, mut total) = (0, 0);
            // SAFETY: the pointers are to live integers.
            let code = unsafe { (driver.functions.mem_get_info)(&mut free, &mut total) };
            driver.check(code, || format!("ask how much memory of {} is free", self.id))?;
            Ok(MemoryInfo { free_bytes: free as u64, total_bytes: total as u64 })
        })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: it was retained when this was made, and nothing that uses it is left. A failure means that the
        // driver is shutting down and has taken the context already.
        unsafe { (self.driver.functions.primary_context_release)(self.device) };
    }
}

/// How many devices there are.
pub(crate) fn count(driver: &Driver) -> Result<u32> {
    let mut count = 0;
    // SAFETY: the pointer is to a live integer.
    let code = unsafe { (driver.functions.device_get_count)(&mut count) };
    driver.check(code, || "count the CUDA devices".into())?;
    Ok(count.max(0) as u32)
}

/// The driver's handle of a device.
pub(crate) fn find(driver: &Driver, id: DeviceId) -> Result<CUdevice> {
    let mut device: CUdevice = 0;
    // SAFETY: the pointer is to a live integer.
    let code = unsafe { (driver.functions.device_get)(&mut device, c_int::from(id.0)) };
    driver.check(code, || format!("find the device {id}"))?;
    Ok(device)
}

/// The name that the driver has for a device.
pub(crate) fn name(driver: &Driver, id: DeviceId, device: CUdevice) -> Result<String> {
    let mut text = [0; 256];
    // SAFETY: the pointer is to as many characters as are named, and they are set to a C text.
    let code = unsafe { (driver.functions.device_get_name)(text.as_mut_ptr(), text.len() as c_int, device) };
    driver.check(code, || format!("ask for the name of {id}"))?;
    let bytes = text.map(|character: c_char| character as u8);
    Ok(CStr::from_bytes_until_nul(&bytes).unwrap_or_default().to_string_lossy().into_owned())
}

/// One of the numbers that describe a device.
pub(crate) fn attribute(driver: &Driver, id: DeviceId, device: CUdevice, which: Attribute) -> Result<i32> {
    let mut value = 0;
    // SAFETY: the pointer is to a live integer.
    let code = unsafe { (driver.functions.device_get_attribute)(&mut value, which, device) };
    driver.check(code, || format!("ask for {which:?} of {id}"))?;
    Ok(value)
}

/// All of a device's memory, in bytes.
pub(crate) fn total_bytes(driver: &Driver, id: DeviceId, device: CUdevice) -> Result<u64> {
    let mut bytes = 0;
    // SAFETY: the pointer is to a live integer.
    let code = unsafe { (driver.functions.device_total_mem)(&mut bytes, device) };
    driver.check(code, || format!("ask how much memory {id} has"))?;
    Ok(bytes as u64)
}

/// The unit in which a device's memory is mapped.
pub(crate) fn granularity(driver: &Driver, id: DeviceId, device: CUdevice) -> Result<u64> {
    let (properties, mut bytes) = (properties(device), 0);
    let least = Granularity::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    // SAFETY: the pointers are to a live integer and to live properties.
    let code = unsafe { (driver.functions.mem_get_granularity)(&mut bytes, &properties, least) };
    driver.check(code, || format!("ask in what units memory of {id} is mapped"))?;
    Ok((bytes as u64).max(1))
}

/// Memory of a device, as it is asked for.
pub(crate) fn properties(device: CUdevice) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: AllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
        location: location(device),
        win32HandleMetaData: ptr::null_mut(),
        allocFlags: AllocationFlags {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}

/// Where a device's memory is.
pub(crate) fn location(device: CUdevice) -> CUmemLocation {
    CUmemLocation { type_: LocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device }
}

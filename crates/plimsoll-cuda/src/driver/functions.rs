//! The driver's functions, found at run time.
//!
//! The bindings would panic at the first call of a function that the driver lacks, and take every code that it
//! returns for one that they know. So their types are used and their functions are not: every function is
//! looked up once, before the first call, and a code is a number until it has been compared.

use crate::driver::tensor_map::TensorMap;
use crate::error::{Error, ErrorKind, Result};
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction, CUfunction_attribute, CUgraph,
    CUgraphExec, CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationProp,
    CUmemGenericAllocationHandle, CUmodule, CUstream, CUstreamCaptureMode, culib, is_culib_present,
};
use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};
use std::ptr;
use std::sync::OnceLock;

/// What a function of the driver returns; 0 is success.
type Code = c_uint;

/// The code for memory that is not to be had.
const OUT_OF_MEMORY: Code = 2;
/// The code for a machine without devices, or one where all are hidden.
const NO_DEVICE: Code = 100;
/// The first version of the driver that has all functions that are used: CUDA 11.4.
const OLDEST: c_int = 11_040;

macro_rules! functions {
    ($($(#[$doc:meta])* $field:ident = $symbol:literal ($($argument:ty),*);)*) => {
        /// The functions of the driver that are used.
        pub(crate) struct Functions {
            $($(#[$doc])* pub(crate) $field: unsafe extern "C" fn($($argument),*) -> Code,)*
        }

        /// Every symbol that is looked up.
        const SYMBOLS: &[&CStr] = &[$($symbol),*];

        /// Finds every function with `find`, which returns its address or null.
        ///
        /// # Safety
        /// An address that `find` returns must be that of the CUDA driver's function of that name.
        unsafe fn resolve(find: impl Fn(&CStr) -> *const c_void) -> Result<Functions> {
            $(let $field = find($symbol);)*
            let missing: Vec<&str> = [$($field),*]
                .iter()
                .zip(SYMBOLS)
                .filter(|(address, _)| address.is_null())
                .filter_map(|(_, symbol)| symbol.to_str().ok())
                .collect();
            if !missing.is_empty() {
                let message = format!(
                    "the NVIDIA driver is too old: it lacks {}; install one for CUDA 11.4 or newer",
                    missing.join(", ")
                );
                return Err(Error::new(ErrorKind::DriverTooOld, message));
            }
            Ok(Functions {
                // SAFETY: none is null, the caller vouches for the rest, and each signature is the one in
                // `cuda.h` with the result as the number that the C enumeration is.
                $($field: unsafe {
                    std::mem::transmute::<*const c_void, unsafe extern "C" fn($($argument),*) -> Code>($field)
                },)*
            })
        }
    };
}

functions! {
    init = c"cuInit" (c_uint);
    driver_get_version = c"cuDriverGetVersion" (*mut c_int);
    get_error_name = c"cuGetErrorName" (Code, *mut *const c_char);
    get_error_string = c"cuGetErrorString" (Code, *mut *const c_char);
    device_get_count = c"cuDeviceGetCount" (*mut c_int);
    device_get = c"cuDeviceGet" (*mut CUdevice, c_int);
    device_get_name = c"cuDeviceGetName" (*mut c_char, c_int, CUdevice);
    device_get_attribute = c"cuDeviceGetAttribute" (*mut c_int, CUdevice_attribute, CUdevice);
    device_total_mem = c"cuDeviceTotalMem_v2" (*mut usize, CUdevice);
    primary_context_retain = c"cuDevicePrimaryCtxRetain" (*mut CUcontext, CUdevice);
    primary_context_release = c"cuDevicePrimaryCtxRelease_v2" (CUdevice);
    context_push = c"cuCtxPushCurrent_v2" (CUcontext);
    context_pop = c"cuCtxPopCurrent_v2" (*mut CUcontext);
    context_synchronize = c"cuCtxSynchronize" ();
    mem_get_info = c"cuMemGetInfo_v2" (*mut usize, *mut usize);
    mem_get_granularity = c"cuMemGetAllocationGranularity"
        (*mut usize, *const CUmemAllocationProp, CUmemAllocationGranularity_flags);
    mem_address_reserve = c"cuMemAddressReserve" (*mut CUdeviceptr, usize, usize, CUdeviceptr, c_ulonglong);
    mem_address_free = c"cuMemAddressFree" (CUdeviceptr, usize);
    mem_create = c"cuMemCreate"
        (*mut CUmemGenericAllocationHandle, usize, *const CUmemAllocationProp, c_ulonglong);
    mem_release = c"cuMemRelease" (CUmemGenericAllocationHandle);
    mem_map = c"cuMemMap" (CUdeviceptr, usize, usize, CUmemGenericAllocationHandle, c_ulonglong);
    mem_set_access = c"cuMemSetAccess" (CUdeviceptr, usize, *const CUmemAccessDesc, usize);
    mem_unmap = c"cuMemUnmap" (CUdeviceptr, usize);
    copy_to_device = c"cuMemcpyHtoD_v2" (CUdeviceptr, *const c_void, usize);
    copy_to_host = c"cuMemcpyDtoH_v2" (*mut c_void, CUdeviceptr, usize);
    set_bytes = c"cuMemsetD8_v2" (CUdeviceptr, c_uchar, usize);
    mem_alloc = c"cuMemAlloc_v2" (*mut CUdeviceptr, usize);
    mem_free = c"cuMemFree_v2" (CUdeviceptr);
    host_alloc = c"cuMemHostAlloc" (*mut *mut c_void, usize, c_uint);
    host_free = c"cuMemFreeHost" (*mut c_void);
    copy_to_device_async = c"cuMemcpyHtoDAsync_v2" (CUdeviceptr, *const c_void, usize, CUstream);
    copy_to_host_async = c"cuMemcpyDtoHAsync_v2" (*mut c_void, CUdeviceptr, usize, CUstream);
    copy_async = c"cuMemcpyDtoDAsync_v2" (CUdeviceptr, CUdeviceptr, usize, CUstream);
    set_bytes_async = c"cuMemsetD8Async" (CUdeviceptr, c_uchar, usize, CUstream);
    module_load_data = c"cuModuleLoadData" (*mut CUmodule, *const c_void);
    module_unload = c"cuModuleUnload" (CUmodule);
    module_get_function = c"cuModuleGetFunction" (*mut CUfunction, CUmodule, *const c_char);
    function_attribute = c"cuFuncGetAttribute" (*mut c_int, CUfunction_attribute, CUfunction);
    function_set_attribute = c"cuFuncSetAttribute" (CUfunction, CUfunction_attribute, c_int);
    launch_kernel = c"cuLaunchKernel"
        (CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void,
         *mut *mut c_void);
    stream_create = c"cuStreamCreate" (*mut CUstream, c_uint);
    stream_destroy = c"cuStreamDestroy_v2" (CUstream);
    stream_synchronize = c"cuStreamSynchronize" (CUstream);
    stream_wait_event = c"cuStreamWaitEvent" (CUstream, CUevent, c_uint);
    stream_begin_capture = c"cuStreamBeginCapture_v2" (CUstream, CUstreamCaptureMode);
    stream_end_capture = c"cuStreamEndCapture" (CUstream, *mut CUgraph);
    event_create = c"cuEventCreate" (*mut CUevent, c_uint);
    event_destroy = c"cuEventDestroy_v2" (CUevent);
    event_record = c"cuEventRecord" (CUevent, CUstream);
    event_record_with_flags = c"cuEventRecordWithFlags" (CUevent, CUstream, c_uint);
    event_synchronize = c"cuEventSynchronize" (CUevent);
    event_elapsed_time = c"cuEventElapsedTime" (*mut f32, CUevent, CUevent);
    graph_instantiate = c"cuGraphInstantiateWithFlags" (*mut CUgraphExec, CUgraph, c_ulonglong);
    graph_destroy = c"cuGraphDestroy" (CUgraph);
    graph_exec_destroy = c"cuGraphExecDestroy" (CUgraphExec);
    graph_launch = c"cuGraphLaunch" (CUgraphExec, CUstream);
}

/// `cuTensorMapEncodeTiled`: the description to write, type and rank of the tensor, its address, extents and strides,
/// the extents and strides of a box, and how boxes are interleaved, swizzled, cached and filled up.
pub(crate) type EncodeTensorMap = unsafe extern "C" fn(
    *mut TensorMap,
    c_uint,
    c_uint,
    CUdeviceptr,
    *const u64,
    *const u64,
    *const u32,
    *const u32,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
) -> Code;

/// The NVIDIA driver, loaded and initialised.
pub(crate) struct Driver {
    pub(crate) functions: Functions,
    /// What describes tensors to the device's copy engine; drivers before CUDA 12 do not know such.
    pub(crate) encode_tensor_map: Option<EncodeTensorMap>,
    /// Thousands are the major version of CUDA, tens the minor.
    version: c_int,
}

impl Driver {
    /// The driver of this machine. It is loaded by the first call and kept for good.
    pub(crate) fn get() -> Result<&'static Driver> {
        static DRIVER: OnceLock<Result<Driver>> = OnceLock::new();
        DRIVER.get_or_init(Driver::load).as_ref().map_err(Clone::clone)
    }

    fn load() -> Result<Driver> {
        // SAFETY: loading it runs what the installed driver does on loading, which is all that it is for.
        if !unsafe { is_culib_present() } {
            let message = "there is no NVIDIA driver on this machine: its library (libcuda.so, libcuda.so.1 or \
                           nvcuda.dll) is not where libraries are looked for, or cannot be loaded; install the \
                           driver, or give a container access to the GPU";
            return Err(Error::new(ErrorKind::NoDriver, message));
        }
        // SAFETY: as above; it was found a moment ago.
        let library = unsafe { culib() };
        let find = |symbol: &CStr| {
            // SAFETY: the symbol is only taken as an address here, which has no signature to get wrong.
            let found = unsafe { library.get::<*const c_void>(symbol.to_bytes_with_nul()) };
            found.map_or(ptr::null(), |address| *address)
        };
        // SAFETY: the addresses are those of the driver's library, which is never unloaded.
        let functions = unsafe { resolve(find) }?;
        let encode = find(c"cuTensorMapEncodeTiled");
        // SAFETY: the address is that of the driver's function, and the signature is the one in `cuda.h`, with the
        // address and the enumerations as the numbers they are.
        let encode_tensor_map = (!encode.is_null())
            .then(|| unsafe { std::mem::transmute::<*const c_void, EncodeTensorMap>(encode) });
        let mut driver = Driver { functions, encode_tensor_map, version: 0 };
        // SAFETY: takes no pointer.
        let code = unsafe { (driver.functions.init)(0) };
        driver.check(code, || "start the NVIDIA driver".into())?;
        // SAFETY: the pointer is to a live integer.
        let code = unsafe { (driver.functions.driver_get_version)(&mut driver.version) };
        driver.check(code, || "ask the NVIDIA driver for its version".into())?;
        if driver.version < OLDEST {
            let (major, minor) = driver.version();
            let message = format!(
                "the NVIDIA driver is too old: it is for CUDA {major}.{minor}, and 11.4 is the least that can launch \
                 a step as one graph; install a newer one"
            );
            return Err(Error::new(ErrorKind::DriverTooOld, message));
        }
        Ok(driver)
    }

    /// The newest CUDA that the driver serves, major and minor.
    pub(crate) fn version(&self) -> (u32, u32) {
        let version = self.version.max(0) as u32;
        (version / 1000, version % 1000 / 10)
    }

    /// Success, or an error that says what was attempted and what the driver called the failure.
    pub(crate) fn check(&self, code: Code, attempt: impl FnOnce() -> String) -> Result<()> {
        let kind = match code {
            0 => return Ok(()),
            OUT_OF_MEMORY => ErrorKind::OutOfMemory,
            NO_DEVICE => ErrorKind::NoDevice,
            _ => ErrorKind::Driver,
        };
        let name = self.text(self.functions.get_error_name, code);
        let about = self.text(self.functions.get_error_string, code);
        let name = name.unwrap_or_else(|| format!("code {code}"));
        let about = about.map(|about| format!(", {about}")).unwrap_or_default();
        let advice = match kind {
            ErrorKind::NoDevice => "; no GPU is here, or CUDA_VISIBLE_DEVICES hides it",
            _ => "",
        };
        Err(Error::new(kind, format!("cannot {}: {name}{about}{advice}", attempt())))
    }

    /// What the driver says about a code.
    fn text(
        &self,
        function: unsafe extern "C" fn(Code, *mut *const c_char) -> Code,
        code: Code,
    ) -> Option<String> {
        let mut text = ptr::null();
        // SAFETY: the pointer is to a live pointer, which is set to a text that is never freed, or to null.
        let code = unsafe { function(code, &mut text) };
        if code != 0 || text.is_null() {
            return None;
        }
        // SAFETY: not null, and C texts end in a zero.
        Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_are_missing_are_named() {
        // SAFETY: no address is returned.
        let error = unsafe { resolve(|_| ptr::null()) }.err().expect("nothing was found");
        assert_eq!(error.kind(), ErrorKind::DriverTooOld);
        for name in ["cuInit", "cuMemCreate", "cuMemsetD8_v2"] {
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}

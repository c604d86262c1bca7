//! cuBLASLt, found at run time: the functions that matrix products use, and the handle of one device.

use crate::driver::device::Shared;
use crate::driver::library::{Library, Name, library};
use crate::error::{Error, ErrorKind, Result};
use cudarc::cublaslt::sys::{
    cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatmulPreference_t, cublasLtMatrixLayout_t,
};
use cudarc::driver::sys::CUstream;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::{Arc, OnceLock};

/// What a function of cuBLASLt returns; 0 is success.
type Code = c_uint;

/// How a product is computed. The library says that it may be kept as bytes for the same version of it.
pub(crate) type Algorithm = [u64; 8];

/// An algorithm for a product, as the library proposes it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GemmCandidate {
    pub(crate) algorithm: Algorithm,
    pub(crate) workspace: usize,
    pub(crate) state: c_uint,
    waves: f32,
    reserved: [c_int; 4],
}

library! {
    /// The functions of cuBLASLt that are used.
    Functions {
        version = c"cublasLtGetVersion" () -> usize;
        status_string = c"cublasLtGetStatusString" (Code) -> *const c_char;
        create = c"cublasLtCreate" (*mut cublasLtHandle_t) -> Code;
        destroy = c"cublasLtDestroy" (cublasLtHandle_t) -> Code;
        product_create = c"cublasLtMatmulDescCreate" (*mut cublasLtMatmulDesc_t, c_uint, c_uint) -> Code;
        product_set = c"cublasLtMatmulDescSetAttribute"
            (cublasLtMatmulDesc_t, c_uint, *const c_void, usize) -> Code;
        product_destroy = c"cublasLtMatmulDescDestroy" (cublasLtMatmulDesc_t) -> Code;
        layout_create = c"cublasLtMatrixLayoutCreate" (*mut cublasLtMatrixLayout_t, c_uint, u64, u64, i64) -> Code;
        layout_set = c"cublasLtMatrixLayoutSetAttribute"
            (cublasLtMatrixLayout_t, c_uint, *const c_void, usize) -> Code;
        layout_destroy = c"cublasLtMatrixLayoutDestroy" (cublasLtMatrixLayout_t) -> Code;
        preference_create = c"cublasLtMatmulPreferenceCreate" (*mut cublasLtMatmulPreference_t) -> Code;
        preference_set = c"cublasLtMatmulPreferenceSetAttribute"
            (cublasLtMatmulPreference_t, c_uint, *const c_void, usize) -> Code;
        preference_destroy = c"cublasLtMatmulPreferenceDestroy" (cublasLtMatmulPreference_t) -> Code;
        candidates = c"cublasLtMatmulAlgoGetHeuristic"
            (cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
             cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, c_int, *mut GemmCandidate,
             *mut c_int) -> Code;
        check = c"cublasLtMatmulAlgoCheck"
            (cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
             cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, *const Algorithm, *mut GemmCandidate) -> Code;
        multiply = c"cublasLtMatmul"
            (cublasLtHandle_t, cublasLtMatmulDesc_t, *const c_void, u64, cublasLtMatrixLayout_t, u64,
             cublasLtMatrixLayout_t, *const c_void, u64, cublasLtMatrixLayout_t, u64, cublasLtMatrixLayout_t,
             *const Algorithm, u64, usize, CUstream) -> Code;
    }
}

/// cuBLASLt on one device.
pub(crate) struct Blas {
    pub(crate) functions: &'static Functions,
    pub(crate) handle: cublasLtHandle_t,
    shared: Arc<Shared>,
}

// SAFETY: the library's calls may come from any thread, also with one handle.
unsafe impl Send for Blas {}
// SAFETY: as above.
unsafe impl Sync for Blas {}

impl Blas {
    /// # Errors
    /// If there is no cuBLASLt on this machine, or it does not start on the device.
    pub(crate) fn new(shared: &Arc<Shared>) -> Result<Blas> {
        static FUNCTIONS: OnceLock<Result<Functions>> = OnceLock::new();
        let load = || {
            let library = Library::open(&Name {
                what: "the library for matrix products, cuBLASLt,",
                stem: "cublasLt",
                versions: &[13, 12],
                package: "nvidia-cublas",
            })?;
            // SAFETY: the library is cuBLASLt, and the signatures are those of `cublasLt.h`, with addresses of the
            // device as the numbers they are.
            unsafe { Functions::find(library) }
        };
        let functions = FUNCTIONS.get_or_init(load).as_ref().map_err(Clone::clone)?;
        shared.with_context(|_| {
            let mut handle: cublasLtHandle_t = ptr::null_mut();
            // SAFETY: the pointer is to a live pointer, and the device's context is current.
            let code = unsafe { (functions.create)(&mut handle) };
            check(functions, code, || format!("start on {}", shared.id))?;
            Ok(Blas { functions, handle, shared: shared.clone() })
        })
    }

    /// The version of the library.
    pub(crate) fn version(&self) -> usize {
        // SAFETY: takes nothing.
        unsafe { (self.functions.version)() }
    }

    /// Success, or an error that says what was attempted.
    pub(crate) fn check(&self, code: Code, attempt: impl FnOnce() -> String) -> Result<()> {
        check(self.functions, code, attempt)
    }
}

fn check(functions: &Functions, code: Code, attempt: impl FnOnce() -> String) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: takes no pointer and returns a text that is never freed, or null.
    let text = unsafe { (functions.status_string)(code) };
    let text = match text.is_null() {
        true => format!("code {code}"),
        // SAFETY: not null, and C texts end in a zero.
        false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
    };
    Err(Error::new(ErrorKind::Library, format!("cuBLASLt does not {}: {text}", attempt())))
}

impl Drop for Blas {
    fn drop(&mut self) {
        _ = self.shared.with_context(|_| {
            // SAFETY: the handle was made by this library and is used no more.
            unsafe { (self.functions.destroy)(self.handle) };
            Ok(())
        });
    }
}

//! cuDNN, found at run time: the convolutions, and the handle of one device.

use crate::driver::device::Shared;
use crate::driver::library::{Library, Name, library};
use crate::error::{Error, ErrorKind, Result};
use cudarc::driver::sys::CUstream;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// What a function of cuDNN returns; 0 is success.
pub(crate) type Code = c_uint;
/// A handle or a description that the library made.
pub(crate) type Opaque = *mut c_void;

/// An algorithm for a convolution, as the library proposes it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ConvCandidate {
    pub(crate) algorithm: c_int,
    pub(crate) state: Code,
    time: f32,
    pub(crate) workspace: usize,
    pub(crate) deterministic: c_int,
    pub(crate) math: c_uint,
    reserved: [c_int; 3],
}

/// Proposes algorithms: handle, first and second operand, convolution, result, room, found, candidates.
type Propose = unsafe extern "C" fn(
    Opaque,
    Opaque,
    Opaque,
    Opaque,
    Opaque,
    c_int,
    *mut c_int,
    *mut ConvCandidate,
) -> Code;
/// Says what workspace an algorithm needs: handle, first and second operand, convolution, result, algorithm, bytes.
type Workspace = unsafe extern "C" fn(Opaque, Opaque, Opaque, Opaque, Opaque, c_int, *mut usize) -> Code;
/// Computes: handle, factor, first and second operand with their addresses, convolution, algorithm, workspace and its
/// bytes, factor of what was there, result and its address.
type Compute = unsafe extern "C" fn(
    Opaque,
    *const c_void,
    Opaque,
    u64,
    Opaque,
    u64,
    Opaque,
    c_int,
    u64,
    usize,
    *const c_void,
    Opaque,
    u64,
) -> Code;

library! {
    /// The functions of cuDNN that are used.
    Functions {
        error_string = c"cudnnGetErrorString" (Code) -> *const c_char;
        create = c"cudnnCreate" (*mut Opaque) -> Code;
        destroy = c"cudnnDestroy" (Opaque) -> Code;
        set_stream = c"cudnnSetStream" (Opaque, CUstream) -> Code;
        tensor_create = c"cudnnCreateTensorDescriptor" (*mut Opaque) -> Code;
        tensor_set = c"cudnnSetTensor4dDescriptor" (Opaque, c_uint, c_uint, c_int, c_int, c_int, c_int) -> Code;
        tensor_destroy = c"cudnnDestroyTensorDescriptor" (Opaque) -> Code;
        filter_create = c"cudnnCreateFilterDescriptor" (*mut Opaque) -> Code;
        filter_set = c"cudnnSetFilter4dDescriptor" (Opaque, c_uint, c_uint, c_int, c_int, c_int, c_int) -> Code;
        filter_destroy = c"cudnnDestroyFilterDescriptor" (Opaque) -> Code;
        convolution_create = c"cudnnCreateConvolutionDescriptor" (*mut Opaque) -> Code;
        convolution_set = c"cudnnSetConvolution2dDescriptor"
            (Opaque, c_int, c_int, c_int, c_int, c_int, c_int, c_uint, c_uint) -> Code;
        convolution_groups = c"cudnnSetConvolutionGroupCount" (Opaque, c_int) -> Code;
        convolution_math = c"cudnnSetConvolutionMathType" (Opaque, c_uint) -> Code;
        convolution_destroy = c"cudnnDestroyConvolutionDescriptor" (Opaque) -> Code;
        forward_propose = c"cudnnGetConvolutionForwardAlgorithm_v7"
            (Opaque, Opaque, Opaque, Opaque, Opaque, c_int, *mut c_int, *mut ConvCandidate) -> Code;
        forward_workspace = c"cudnnGetConvolutionForwardWorkspaceSize"
            (Opaque, Opaque, Opaque, Opaque, Opaque, c_int, *mut usize) -> Code;
        forward = c"cudnnConvolutionForward"
            (Opaque, *const c_void, Opaque, u64, Opaque, u64, Opaque, c_int, u64, usize, *const c_void, Opaque, u64)
            -> Code;
        input_propose = c"cudnnGetConvolutionBackwardDataAlgorithm_v7"
            (Opaque, Opaque, Opaque, Opaque, Opaque, c_int, *mut c_int, *mut ConvCandidate) -> Code;
        input_workspace = c"cudnnGetConvolutionBackwardDataWorkspaceSize"
            (Opaque, Opaque, Opaque, Opaque, Opaque, c_int, *mut usize) -> Code;
        input = c"cudnnConvolutionBackwardData"
            (Opaque, *const c_void, Opaque, u64, Opaque, u64, Opaque, c_int, u64, usize, *const c_void, Opaque, u64)
            -> Code;
        filter_propose = c"cudnnGetConvolutionBackwardFilterAlgorithm_v7"
            (Opaque, Opaque, Opaque, Opaque, Opaque, c_int, *mut c_int, *mut ConvCandidate) -> Code;
        filter_workspace = c"cudnnGetConvolutionBackwardFilterWorkspaceSize"
            (Opaque, Opaque, Opaque, Opaque, Opaque, c_int, *mut usize) -> Code;
        filter = c"cudnnConvolutionBackwardFilter"
            (Opaque, *const c_void, Opaque, u64, Opaque, u64, Opaque, c_int, u64, usize, *const c_void, Opaque, u64)
            -> Code;
    }
}

/// Which of a convolution's three functions: the images filtered, or the gradient for the images or the filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Input,
    Filter,
}

impl Functions {
    /// What computes in a direction, and how.
    pub(crate) fn of(&self, direction: Direction) -> (Propose, Workspace, Compute) {
        match direction {
            Direction::Forward => (self.forward_propose, self.forward_workspace, self.forward),
            Direction::Input => (self.input_propose, self.input_workspace, self.input),
            Direction::Filter => (self.filter_propose, self.filter_workspace, self.filter),
        }
    }
}

/// cuDNN on one device.
pub(crate) struct Dnn {
    pub(crate) functions: &'static Functions,
    /// The handle is told the stream of each call, so calls are made one at a time.
    handle: Mutex<Handle>,
    shared: Arc<Shared>,
}

/// A handle of the library.
pub(crate) struct Handle(pub(crate) Opaque);

// SAFETY: the library's handles may be used from any thread, one at a time.
unsafe impl Send for Handle {}

impl Dnn {
    /// # Errors
    /// If there is no cuDNN on this machine, or it does not start on the device.
    pub(crate) fn new(shared: &Arc<Shared>) -> Result<Dnn> {
        static FUNCTIONS: OnceLock<Result<Functions>> = OnceLock::new();
        let load = || {
            let library = Library::open(&Name {
                what: "the library for convolutions, cuDNN,",
                stem: "cudnn",
                versions: &[9],
                package: "nvidia-cudnn-cu13",
            })?;
            // SAFETY: the library is cuDNN, and the signatures are those of `cudnn.h`, with addresses of the device as
            // the numbers they are and descriptions as pointers.
            unsafe { Functions::find(library) }
        };
        let functions = FUNCTIONS.get_or_init(load).as_ref().map_err(Clone::clone)?;
        shared.with_context(|_| {
            let mut handle: Opaque = ptr::null_mut();
            // SAFETY: the pointer is to a live pointer, and the device's context is current.
            let code = unsafe { (functions.create)(&mut handle) };
            check(functions, code, || format!("start on {}", shared.id))?;
            Ok(Dnn { functions, handle: Mutex::new(Handle(handle)), shared: shared.clone() })
        })
    }

    /// The handle, to make calls with.
    pub(crate) fn handle(&self) -> MutexGuard<'_, Handle> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Success, or an error that says what was attempted.
    pub(crate) fn check(&self, code: Code, attempt: impl FnOnce() -> String) -> Result<()> {
        check(self.functions, code, attempt)
    }
}

pub(crate) fn check(functions: &Functions, code: Code, attempt: impl FnOnce() -> String) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: takes no pointer and returns a text that is never freed, or null.
    let text = unsafe { (functions.error_string)(code) };
    let text = match text.is_null() {
        true => format!("code {code}"),
        // SAFETY: not null, and C texts end in a zero.
        false => unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned(),
    };
    Err(Error::new(ErrorKind::Library, format!("cuDNN does not {}: {text}", attempt())))
}

impl Drop for Dnn {
    fn drop(&mut self) {
        _ = self.shared.with_context(|_| {
            // SAFETY: the handle was made by this library and is used no more.
            unsafe { (self.functions.destroy)(self.handle().0) };
            Ok(())
        });
    }
}

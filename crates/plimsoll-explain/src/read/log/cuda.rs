//! Errors of drivers and libraries that say that a device's memory ran out, and nothing of how much.
//!
//! CUDA's runtime and driver word error 2 as `out of memory`, `cudaErrorMemoryAllocation` and
//! `CUDA_ERROR_OUT_OF_MEMORY`; every framework has a prefix of its own before it (`CUDA error: ` in PyTorch from 1.0,
//! `cuda runtime error (2) : ` of THC before, `Check failed: error == cudaSuccess (2 vs. 0)` in Caffe, `CUDA failure 2: ` in
//! ONNX Runtime, `Cuda failure 'out of memory'` in NCCL). HIP, Level Zero, Vulkan, Metal and DirectML have codes of their own.
//! Libraries ask for memory when their handle is made, and report a status: `CUBLAS_STATUS_ALLOC_FAILED`,
//! `CUBLAS_STATUS_NOT_INITIALIZED`, `CUDNN_STATUS_ALLOC_FAILED`.

use super::found::{Found, Weight, has};
use super::parse::{after, number, size, size_after};
use crate::program::{Backend, Platform};
use crate::recording::Framework;
use crate::sign::SignKind;

/// Words of which one is in every line of interest.
pub(super) const WORDS: &[&str] = &[
    "ut of memory",
    "Free memory/Total memory",
    "ut of GPU memory",
    "ut of Memory",
    "Not enough memory left",
    "maximum buffer size",
    "OBJECT_ALLOCATION_FAIL",
    "CUDA calloc",
    "CUDA malloc",
    "OutOfMemory",
    "OUT_OF_MEMORY",
    "OUTOFMEMORY",
    "cudaErrorMemoryAllocation",
    "runtime error (2)",
    "_ALLOC_FAILED",
    "AllocFailed",
    "_NOT_INITIALIZED",
    "cusolverDnCreate",
    "cudnn handle",
    "cublas handle",
    "INSUFFICIENT_RESOURCES",
    "OUT_OF_DEVICE_MEMORY",
    "OUT_OF_RESOURCES",
    "OutOfDeviceMemory",
    "memory_error",
    "Dst tensor is not initialized",
    "video memory available",
    "Allocation on device",
    "GPU memory (",
    "Insufficient Memory",
    "equested memory: ",
    "launch failed",
    "initialization failed",
    "cuDNN failed to initialize",
    "kipping tactic",
    "to use tactic",
    "equested size was ",
    "PrimaryCtxRetain",
    "cuCtxCreate",
    "initializing StreamExecutor",
    "cudaSuccess (2 vs. 0)",
    "malloc_or_wait",
    "[metal::malloc]",
    "create metal resource",
];

/// Statuses of libraries that got no memory for their handle or workspace.
const LIBRARIES: [&str; 20] = [
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_NOT_INITIALIZED",
    "CUSOLVER_STATUS_ALLOC_FAILED",
    "CUSPARSE_STATUS_ALLOC_FAILED",
    "CUSPARSE_STATUS_INSUFFICIENT_RESOURCES",
    "CUFFT_ALLOC_FAILED",
    "HIPBLAS_STATUS_ALLOC_FAILED",
    "rocblas_status_memory_error",
    "miopenStatusAllocFailed",
    "ould not create cudnn handle",
    "ailed to create cublas handle",
    "FFT_STATUS_ALLOC_FAILED",
    "calling `cusolverDnCreate",
    // TensorFlow, when it uses a library of which it has no handle.
    "Blas GEMM launch failed",
    "Blas SGEMM launch failed",
    "Blas xGEMM launch failed",
    "cuDNN failed to initialize",
    "DNN library initialization failed",
];

/// Words that say that the device refused memory.
const DEVICES: [&str; 39] = [
    "Failed to create metal resource: Buffer",
    "CUDA error: out of memory",
    "CUDA error:out of memory",
    "CUDA Error: out of memory",
    "CUDA driver error: out of memory",
    "CUDA Driver error: out of memory",
    "CUDA: out of memory",
    "cuda runtime error (2)",
    "error=2 : out of memory",
    "error=2: out of memory",
    "cudaErrorMemoryAllocation",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "CUDA failure 2",
    "Cuda failure 'out of memory'",
    "Cuda failure 2 'out of memory'",
    "Cuda Runtime (out of memory)",
    "cudaSuccess (2 vs. 0)",
    "cudaMalloc retry failed",
    "cudaMalloc failed: out of memory",
    "HIP error: out of memory",
    "hipErrorOutOfMemory",
    "hipErrorMemoryAllocation",
    "UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
    "UR_RESULT_ERROR_OUT_OF_RESOURCES",
    "PI_ERROR_OUT_OF_RESOURCES",
    "PI_ERROR_OUT_OF_DEVICE_MEMORY",
    "ErrorOutOfDeviceMemory",
    "CommandBufferCallbackErrorOutOfMemory",
    "Dst tensor is not initialized",
    "not enough GPU video memory available",
    "OutOfMemoryError: Allocation on device",
    "llocation is out of device memory",
    // CUDA.jl, LightGBM, OpenCL, wgpu.
    "Out of GPU memory trying to allocate",
    "[CUDA] out of memory",
    "MEM_OBJECT_ALLOCATION_FAILURE",
    "wgpu error: Out of Memory",
    "wgpu error: Out of memory",
    // ROCm's runtime, faiss.
    "HSA_STATUS_ERROR_OUT_OF_RESOURCES",
    "cudaMalloc error out of memory",
];

/// What a line says, if it is one of these.
pub(super) fn read(line: &str, at: u64) -> Option<Found> {
    // TensorFlow's reservation, which is tried again for less, is read with what TensorFlow says besides.
    if line.contains("from device: ") && super::xla::is_of_a_pool(line) || line.contains("not a failure") {
        return None;
    }
    // Locking memory of the host fails with the same code.
    if has(line, &LOCKING) {
        return None;
    }
    // TensorRT tries another implementation.
    if line.contains("kipping tactic") || line.contains("insufficient to use tactic") {
        return Some(Found::sign(SignKind::Warning, "GPU", line, at));
    }
    if let Some(found) = mlx(line, at) {
        return Some(found);
    }
    if has(line, &["PrimaryCtxRetain", "cuCtxCreate", "initializing StreamExecutor"])
        && has(line, &["OUT_OF_MEMORY", "out of memory"])
    {
        return Some(Found::sign(SignKind::NoContext, "GPU", line, at));
    }
    if has(line, &["in-memory CUBIN", "in-memory PTX", "cuModuleLoad"])
        && has(line, &["OUT_OF_MEMORY", "out of memory"])
    {
        // XLA's kernels are loaded beside the pool, which may have taken all.
        return Some(Found::sign(SignKind::LibraryFull, "GPU", line, at).by(Framework::TensorFlowOrJax));
    }
    if has(line, &LIBRARIES) {
        let framework = if has(line, &["external/xla/", "XlaRuntimeError", "JaxRuntimeError"]) {
            // So its sources are called in JAX's library, and otherwise in TensorFlow's.
            Framework::Jax
        } else if line.contains("cuda_blas.cc") || line.contains("cuda_dnn.cc") {
            Framework::TensorFlow
        } else if has(line, &["when calling `", "RuntimeError: cuDNN", "RuntimeError: CUDA error"]) {
            Framework::PyTorch
        } else {
            Framework::Unknown
        };
        return Some(Found::sign(SignKind::LibraryFull, "GPU", line, at).by(framework));
    }
    let nccl = has(line, &["NCCL", "nccl"]) && line.contains("out of memory")
        || line.contains("Failed to CUDA calloc")
        || line.contains("Failed to CUDA malloc");
    if nccl {
        return Some(Found::sign(SignKind::LibraryFull, "GPU", line, at));
    }
    let tensorrt = size_after(line, "equested amount of GPU memory (")
        .or_else(|| size_after(line, "equested size was ").filter(|_| line.contains("OutOfMemory")));
    if let Some(asked) = tensorrt {
        // TensorRT.
        let found = Found::sign(SignKind::DeviceFull, "GPU", line, at);
        return Some(found.refused(Some(asked.bytes), asked.exact));
    }
    if let Some(found) = told_free(line, at).or_else(|| wgpu(line, at)) {
        return Some(found);
    }
    let asked =
        size_after(line, "Could not allocate tensor with ").or_else(|| size_after(line, "ried to allocate "));
    // TensorFlow's and JAX's pool of pages.
    let asked = asked
        .or_else(|| size_after(line, "cuMemAllocAsync failed to allocate "))
        .or_else(|| size_after(line, "GPU memory trying to allocate "))
        .or_else(|| size_after(line, " size ").filter(|_| line.contains("StandardGpuResources")));
    let framework = match () {
        () if has(
            line,
            &[
                "torch",
                "THC",
                "RuntimeError: CUDA",
                "RuntimeError: HIP",
                "AcceleratorError",
                "out of memory. Tried to",
            ],
        ) =>
        {
            Framework::PyTorch
        }
        () if has(line, &["onnxruntime", "CUDA failure 2"]) => Framework::OnnxRuntime,
        () if line.contains("Dst tensor") => Framework::TensorFlow,
        () if line.contains("cuMemAllocAsync failed") => Framework::TensorFlowOrJax,
        () if line.contains("cupy") => Framework::CuPy,
        () => Framework::Unknown,
    };
    let bare =
        has(line, &["CUDA out of memory", "HIP out of memory", "XPU out of memory", "cuda out of memory"])
            || line.trim_end().ends_with("OutOfMemoryError") && !line.contains("java");
    let known = has(line, &DEVICES);
    // Advice and conditions have the words, too.
    if bare && !known && super::refusal::read(line).is_none() {
        return None;
    }
    (bare || known).then(|| {
        let mut found = Found::sign(SignKind::DeviceFull, "GPU", line, at).by(framework);
        // People write about the error in its words, too.
        let written = line.trim_start().starts_with(['C', 'c', 'H', 'X', '`', '>', '#', '|'])
            || has(line, &["rror:", "Error", "xception"]);
        // A class by itself says less than its message, which may stand beside it.
        let name = line.trim_end().ends_with("OutOfMemoryError");
        if (name || bare && !written) && !known {
            found.weight = Weight::Hint;
        }
        found.device.program.backend = backend(line);
        if line.contains("not enough GPU video memory") {
            // DirectML runs on any vendor's device.
            found.device.program.backend = Some(Backend::Other);
            found.device.program.platform = Some(Platform::Windows);
        }
        if line.contains("THC") {
            found.device.program.version_before = Some((1, 11));
        }
        found.refused(asked.map(|size| size.bytes), asked.is_some_and(|size| size.exact))
    })
}

/// wgpu, under Burn and others: a device refuses a buffer, or a buffer is larger than the limit that was asked for at the start.
fn wgpu(line: &str, at: u64) -> Option<Found> {
    let mut found = if line.trim() == "Not enough memory left" {
        Found::sign(SignKind::DeviceFull, "GPU", line, at)
    } else {
        let rest = after(line, "Buffer size ")?;
        let cap = after(rest, "is greater than the maximum buffer size (").and_then(number)?;
        Found::sign(SignKind::AllocationCap, "GPU", line, at).bytes(number(rest), Some(cap))
    };
    found.device.program.backend = Some(Backend::Other);
    Some(found)
}

/// MLX asks Metal for memory, of which the host and the device have one.
fn mlx(line: &str, at: u64) -> Option<Found> {
    if !has(line, &["[malloc_or_wait]", "[metal::malloc]"]) {
        return None;
    }
    let cap = size_after(line, "maximum allowed buffer size of ");
    let asked =
        size_after(line, "nable to allocate ").or_else(|| size_after(line, "ttempting to allocate "))?;
    let kind = if cap.is_some() { SignKind::AllocationCap } else { SignKind::DeviceFull };
    let mut found = Found::sign(kind, "Metal", line, at);
    found.device.program.backend = Some(Backend::Mps);
    Some(match cap {
        Some(cap) => found.bytes(Some(asked.bytes), Some(cap.bytes)),
        None => found.refused(Some(asked.bytes), asked.exact),
    })
}

/// What drives the device that a line is of.
pub(super) fn backend(line: &str) -> Option<Backend> {
    match () {
        () if has(line, &["HIP", "hipE", "hipM", "hip error", "hip_", "rocm", "ROCm", "HSA_STATUS"]) => {
            Some(Backend::Hip)
        }
        () if has(
            line,
            &[
                "XPU",
                "xpu",
                "UR_RESULT",
                "PI_ERROR",
                "level_zero",
                "evel Zero",
                "intel_gpu",
                "openvino",
                "OpenVINO",
            ],
        ) =>
        {
            Some(Backend::Xpu)
        }
        () if has(line, &["NPU", "npu", "rtMalloc", "aclrt", "scend"]) => Some(Backend::Npu),
        () if has(line, &["DirectML", "DmlExecution", "dml_", "\\dml\\", "D3D12"]) => Some(Backend::Other),
        () if has(line, &["TPU", "tpu_"]) => Some(Backend::Tpu),
        () if has(line, &["CommandBuffer", "Metal", "metal resource"]) => Some(Backend::Mps),
        () if has(line, &["vk::", "ulkan", "wgpu", "MEM_OBJECT"]) => Some(Backend::Other),
        () if has(line, &["CUDA", "cuda", "Cuda"]) => Some(Backend::Cuda),
        () => None,
    }
}

/// XGBoost and libraries like it give what was free and what was asked.
fn told_free(line: &str, at: u64) -> Option<Found> {
    let asked = size_after(line, "Requested memory: ")?;
    let free = size_after(line, "Free memory: ").or_else(|| size_after(line, "free memory: "))?;
    let mut found =
        Found::sign(SignKind::DeviceFull, "GPU", line, at).refused(Some(asked.bytes), asked.exact);
    found.device.device_free = Some(free.bytes);
    Some(found)
}

/// A CUDA error of PyTorch's that comes from locking the host's memory, not from the device: the frames say so.
pub(super) fn is_of_pinned_memory(line: &str) -> bool {
    has(line, &["pin memory thread", "_utils/pin_memory.py", "_utils\\pin_memory.py", ".pin_memory()"])
        || has(line, &LOCKING) && size(line).is_none()
}

/// Functions that lock memory of the host for a device.
pub(super) const LOCKING: [&str; 9] = [
    "cudaHostAlloc",
    "cudaMallocHost",
    "cudaHostRegister",
    "cuMemHostAlloc",
    "cuMemAllocHost",
    "cuMemHostRegister",
    "hipHostMalloc",
    "hipHostAlloc",
    "hipHostRegister",
];

//! llama.cpp, ONNX Runtime, Paddle, CuPy: programs with pools of their own.

use super::{Case, case};
use plimsoll_explain::VerdictKind::*;

pub(super) const CASES: &[Case] = &[
    case(
        "llama.cpp",
        TooBig,
        &["-ngl"],
        &["gradients", "expandable"],
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 20480.00 MiB on device 0: cudaMalloc failed: out of memory\n\
         alloc_tensor_range: failed to allocate CUDA0 buffer of size 21474836480\nllama_model_load: error loading model: unable to allocate CUDA0 buffer",
    ),
    case(
        "llama.cpp, a small buffer",
        Full,
        &["-ngl"],
        &[],
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 304.75 MiB on device 0: cudaMalloc failed: out of memory\n\
         ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 319553536",
    ),
    case(
        "llama.cpp beside another",
        OtherProcess,
        &[],
        &[],
        "  Device 0: NVIDIA GeForce RTX 3060, compute capability 8.6, VMM: yes, VRAM: 12287 MiB\n\
         llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 3060) - 1021 MiB free\n\
         ggml_backend_cuda_buffer_type_alloc_buffer: allocating 3584.00 MiB on device 0: cudaMalloc failed: out of memory",
    ),
    case(
        "llama.cpp, locked memory is a warning",
        Healthy,
        &[],
        &[],
        "ggml_cuda_host_malloc: failed to allocate 1024.00 MiB of pinned memory: out of memory",
    ),
    case(
        "Ollama, the host",
        HostMemory,
        &[],
        &["nvidia-smi"],
        "Error: model requires more system memory (5.5 GiB) than is available (3.1 GiB)",
    ),
    case(
        "ONNX Runtime",
        Full,
        &["arena_extend_strategy"],
        &["expandable"],
        "onnxruntime.capi.onnxruntime_pybind11_state.RuntimeException: [ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code \
         returned while running Conv node. Name:'Conv_12' Status Message: /onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:342 void* \
         onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) Failed to allocate memory for requested buffer of size 536870912",
    ),
    case(
        "ONNX Runtime, a limit",
        LimitLow,
        &["gpu_mem_limit"],
        &[],
        "bfc_arena.cc:368 void* onnxruntime::BFCArena::AllocateRawInternal Available memory of 1048576 is smaller than requested bytes of 134217728",
    ),
    case(
        "Paddle",
        TooBig,
        &["smaller batch"],
        &["expandable"],
        "ResourceExhaustedError: \n\nOut of memory error on GPU 0. Cannot allocate 120.000000MB memory on GPU 0, 5.726685GB memory has been \
         allocated and available memory is only 41.250000MB.\n\nPlease check whether there is any other process using GPU 0.",
    ),
    case(
        "CuPy",
        TooBig,
        &["free_all_blocks"],
        &[],
        "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 12,000,000,000 bytes (allocated so far: 9,000,000,512 bytes).",
    ),
    case(
        "CuPy, a limit",
        LimitLow,
        &["CUPY_GPU_MEMORY_LIMIT"],
        &[],
        "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 1,000,000,000 bytes (allocated so far: 3,900,000,256 bytes, limit set \
         to: 4,294,967,296 bytes).",
    ),
    case(
        "llama.cpp, its cache",
        Full,
        &["--ctx-size"],
        &["gradients"],
        "llama_kv_cache_init: failed to allocate buffer for kv cache\nllama_new_context_with_model: llama_kv_cache_init() failed for \
         self-attention cache",
    ),
    case(
        "llama.cpp, by its file",
        Full,
        &["-ngl"],
        &["gradients"],
        "CUDA error: out of memory\n  current device: 0, in function alloc at ggml-cuda.cu:291\n  cuMemCreate(&handle, reserve_size, \
         &prop, 0)",
    ),
    case(
        "CuPy of old",
        Full,
        &["free_all_blocks"],
        &[],
        "cupy.cuda.memory.OutOfMemoryError: out of memory to allocate 1073741824 bytes (total 9663676416 bytes)",
    ),
    case(
        "llama.cpp, a cache by way of a tensor",
        TooBig,
        &["use a shorter context"],
        &["the weights"],
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 12288.00 MiB on device 0: cudaMalloc failed: out of memory\n\
         alloc_tensor_range: failed to allocate CUDA0 buffer of size 12884901888\n\
         llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache",
    ),
    case(
        "CUDA.jl",
        TooBig,
        &[],
        &["Host memory"],
        "ERROR: LoadError: Out of GPU memory trying to allocate 5.960 GiB\n\
         Effective GPU memory usage: 98.11% (7.780 GiB/7.930 GiB)\n\
         Memory pool usage: 6.110 GiB (6.500 GiB reserved)",
    ),
    case(
        "LightGBM",
        Full,
        &["nvidia-smi"],
        &["Host memory"],
        "[LightGBM] [Fatal] [CUDA] out of memory /tmp/lgb/src/io/cuda/cuda_metadata.cpp 55",
    ),
    case(
        "faiss",
        TooBig,
        &[],
        &["Host memory"],
        "RuntimeError: Error in virtual void* faiss::gpu::StandardGpuResourcesImpl::allocMemory(const AllocRequest&): Error: 'err == cudaSuccess' failed: StandardGpuResources: alloc fail type FlatData dev 0 space Device stream 0x51 size 30720000000 bytes (cudaMalloc error out of memory [2])",
    ),
    case(
        "wgpu, full",
        Full,
        &[],
        &["nvidia-smi"],
        "thread 'main' panicked at wgpu-22.1.0/src/backend/wgpu_core.rs:2314:5:\n\
         wgpu error: Validation Error\n\
         \n\
         Caused by:\n\
           In Device::create_buffer\n\
             Not enough memory left",
    ),
    case(
        "wgpu, a limit on one buffer",
        RefusedWithRoom,
        &["cut the one allocation"],
        &["nvidia-smi"],
        "wgpu error: Validation Error\n\
         \n\
         Caused by:\n\
           In Device::create_buffer, label = 'weights'\n\
             Buffer size 536870912 is greater than the maximum buffer size (268435456)",
    ),
];

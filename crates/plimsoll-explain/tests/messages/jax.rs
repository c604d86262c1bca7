//! JAX: XLA's messages on GPUs and TPUs, and kernels and programs that are too large.

use super::{Case, case};
use plimsoll_explain::VerdictKind::*;

pub(super) const CASES: &[Case] = &[
    case(
        "a program that is too large",
        TooBig,
        &["smaller"],
        &[],
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 3221225472 bytes.\n\
         BufferAssignment OOM Debugging.\nBufferAssignment stats:\n             parameter allocation:    2.10GiB\n                 total \
         allocation:   21.80GiB\n",
    ),
    case(
        "a small program in a full pool",
        Full,
        &["save_device_memory_profile"],
        &["compiled program needs"],
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4194304 bytes.\n\
         BufferAssignment OOM Debugging.\nBufferAssignment stats:\n                 total allocation:    8.00MiB\n",
    ),
    case(
        "HBM of a TPU",
        TooBig,
        &[],
        &["nvidia-smi", "PREALLOCATE"],
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. \
         Used 22.91G of 15.48G hbm. Exceeded hbm capacity by 7.43G.\n\nTotal hbm usage >= 23.43G:\n    reserved        530.00M\n    program          22.91G\n",
    ),
    case(
        "a buffer on a TPU",
        TooBig,
        &[],
        &[],
        "RuntimeError: RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate 2.00G. That was not possible. There are \
         1.18G free.; (0x0x0_HBM0)",
    ),
    case(
        "scratch memory of a TPU",
        NotMemory,
        &["smaller blocks"],
        &["nvidia-smi"],
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem. Used 130.00M of 128.00M vmem. Exceeded vmem capacity by 2.00M.",
    ),
    case(
        "shared memory of a kernel",
        NotMemory,
        &["num_stages"],
        &["batch"],
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: 101376. Reducing block \
         sizes or `num_stages` may help.",
    ),
    case(
        "shared memory in XLA",
        NotMemory,
        &[],
        &[],
        "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: Shared memory size limit exceeded: requested 131072, available: 101376",
    ),
    case(
        "an illegal access",
        NotMemory,
        &["CUDA_LAUNCH_BLOCKING=1"],
        &[],
        "RuntimeError: CUDA error: an illegal memory access was encountered",
    ),
    case(
        "a library's handle, in JAX's own sources",
        Full,
        &["XLA_PYTHON_CLIENT_PREALLOCATE=false"],
        &["allow_growth"],
        "E0000 00:00:1751000000.2 77 cuda_dnn.cc:522] Loaded cuDNN version 91001\n\
         2025-07-01 10:11:13.000000: E external/xla/xla/stream_executor/cuda/cuda_dnn.cc:535] Could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED\n\
         jaxlib.xla_extension.XlaRuntimeError: FAILED_PRECONDITION: DNN library initialization failed. Look at the errors above for more details.",
    ),
    case(
        "a program on a TPU beside others",
        TooBig,
        &[],
        &["GPU", "nvidia-smi"],
        "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Error loading program 'jit_update': Attempting to reserve 11.02G at the bottom of memory. That was not possible. There are 4.75G free, 0B reserved, and 4.75G reservable.",
    ),
    case(
        "no room for a kernel beside the pool",
        Full,
        &["PREALLOCATE=false"],
        &[],
        "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: Failed to load in-memory CUBIN: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    ),
    case(
        "all temporaries of a program",
        TooBig,
        &["one compiled program"],
        &["one tensor"],
        "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9663676416 bytes.",
    ),
    case(
        "CUDA's own pool, and what it told of the device",
        TooBig,
        &[],
        &["one tensor"],
        "E0102 03:04:05.678901 77 gpu_cudamallocasync_allocator.cc:361] gpu_async_0 cuMemAllocAsync failed to allocate 137438953472 bytes: \
         RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of memory\n Reported by CUDA: Free memory/Total memory: 41875931136/85095874560\n",
    ),
];

//! Drivers and libraries over them, which say that memory ran out and not how much there was.

use super::{Case, case};
use plimsoll_explain::VerdictKind::*;

pub(super) const CASES: &[Case] = &[
    case(
        "CUDA's error of PyTorch",
        Full,
        &["nvidia-smi", "_record_memory_history"],
        &["Healthy"],
        "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call.",
    ),
    case(
        "THC's error",
        Full,
        &["nvidia-smi"],
        &[],
        "RuntimeError: cuda runtime error (2) : out of memory at /opt/conda/conda-bld/pytorch_1524586445097/work/aten/src/THC/generic/THCStorage.cu:58",
    ),
    case(
        "cuBLAS gets no handle",
        Full,
        &["nvidia-smi"],
        &[],
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    ),
    case(
        "cuBLAS is not initialized",
        Full,
        &[],
        &[],
        "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    ),
    case("cuDNN", Full, &[], &[], "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    case(
        "NCCL",
        Full,
        &[],
        &[],
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1331, unhandled cuda \
         error, NCCL version 2.19.3\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 'out of memory'",
    ),
    case("HIP's error", Full, &["rocm-smi"], &[], "RuntimeError: HIP error: out of memory"),
    case(
        "Level Zero",
        Full,
        &[],
        &[],
        "RuntimeError: level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
    ),
    case(
        "a block over 4 GB",
        RefusedWithRoom,
        &[],
        &["paging file"],
        "RuntimeError: Current platform can NOT allocate memory block with size larger than 4GB! Tried to allocate 5.00 GiB (GPU  0; \
         15.56 GiB total capacity; 3.00 GiB already allocated; 3.10 GiB reserved in total by PyTorch)",
    ),
    case(
        "Caffe",
        Full,
        &[],
        &[],
        "F0412 11:02:33.123456  2711 syncedmem.cpp:71] Check failed: error == cudaSuccess (2 vs. 0)  out of memory\n*** Check failure stack trace: ***",
    ),
    case(
        "XGBoost",
        TooBig,
        &[],
        &["Refused with room"],
        "xgboost.core.XGBoostError: [10:11:12] ../src/c_api/../common/device_helpers.cuh:431: Memory allocation error on worker 0: \
         std::bad_alloc: cudaErrorMemoryAllocation: out of memory\n- Free memory: 301989888- Requested memory: 9126805504",
    ),
    case(
        "TensorRT",
        Full,
        &[],
        &[],
        "[TRT] [E] 1: [defaultAllocator.cpp::allocate::20] Error Code 1: Cuda Runtime (out of memory)\n[TRT] [E] Requested amount of \
         GPU memory (1073741824 bytes) could not be allocated. There may not be enough free memory for allocation to succeed.",
    ),
    case(
        "nvidia-smi above the error",
        OtherProcess,
        &["nvidia-smi"],
        &[],
        "+-----------------------------------------------------------------------------+\n\
         |   0  Tesla V100-SXM2...  On   | 00000000:00:1E.0 Off |                    0 |\n\
         | N/A   45C    P0    68W / 300W |  15109MiB / 16160MiB |      0%      Default |\n\
         +-----------------------------------------------------------------------------+\n\
         | Processes:                                                                  |\n\
         |    0   N/A  N/A      4242      C   python3                         15097MiB |\n\
         +-----------------------------------------------------------------------------+\n\
         RuntimeError: CUDA error: out of memory\n",
    ),
    case(
        "NCCL, a buffer of its own",
        Full,
        &["nvidia-smi"],
        &["Host memory"],
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:77, unhandled cuda error\n\
         ncclUnhandledCudaError: Call to CUDA function failed.\n\
         Last error:\n\
         Failed to CUDA calloc async 4864 bytes",
    ),
    case(
        "ROCm's runtime",
        Full,
        &["rocm-smi"],
        &["nvidia-smi"],
        ":0:rocdevice.cpp :2726: 90112 us: [pid:77 tid:0x7f01] Callback: Queue 0x7f0bb4 Aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources. Code: 0x1008 Available Free mem : 0 MB",
    ),
    case(
        "ROCm, a bad address",
        NotMemory,
        &["AMD_SERIALIZE_KERNEL=3"],
        &["CUDA_LAUNCH_BLOCKING"],
        "Memory access fault by GPU node-2 (Agent handle: 0x5581) on address 0x7e4c000000. Reason: Unknown.",
    ),
    case(
        "OpenCL",
        Full,
        &[],
        &["Host memory", "nvidia-smi"],
        "pyopencl._cl.MemoryError: clEnqueueWriteBuffer failed: MEM_OBJECT_ALLOCATION_FAILURE",
    ),
    case(
        "cuSOLVER's handle",
        Full,
        &["nvidia-smi"],
        &[],
        "torch._C._LinAlgError: cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR, when calling `cusolverDnCreate(handle)`",
    ),
];

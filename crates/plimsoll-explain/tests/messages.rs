//! What people have when a program ran out: messages of every family, written here in the wordings of the frameworks'
//! sources, with the first verdict that is right and words that the advice must and must not have.

use plimsoll_explain::VerdictKind::{self, *};
use plimsoll_explain::{
    Explanation, Input, Progress, Style, explain, read_files, read_input, show, write_html,
};
use proptest::prelude::*;

#[path = "messages/rare.rs"]
mod rare;

/// A message: its text, the first verdict, words of the advice, words that no view may have.
struct Case {
    name: &'static str,
    text: &'static str,
    kind: VerdictKind,
    advised: &'static [&'static str],
    never: &'static [&'static str],
}

const fn case(
    name: &'static str,
    kind: VerdictKind,
    advised: &'static [&'static str],
    never: &'static [&'static str],
    text: &'static str,
) -> Case {
    Case { name, text, kind, advised, never }
}

const CASES: &[Case] = &[
    // PyTorch's caching allocator.
    case(
        "1.1, full of its own",
        TooBig,
        &["smaller batch"],
        &["expandable", "max_split", "other process", "Another process"],
        "RuntimeError: CUDA out of memory. Tried to allocate 54.00 MiB (GPU 0; 11.17 GiB total capacity; 10.52 GiB already \
         allocated; 13.88 MiB free; 128.31 MiB cached)",
    ),
    case(
        "1.3, holes",
        Fragmented,
        &["newer PyTorch"],
        &["expandable_segments:True", "max_split_size_mb:"],
        "RuntimeError: CUDA out of memory. Tried to allocate 1.20 GiB (GPU 1; 15.90 GiB total capacity; 8.40 GiB already \
         allocated; 200.50 MiB free; 6.10 GiB cached)",
    ),
    case(
        "1.7, holes",
        Fragmented,
        &["max_split_size_mb:128 (PyTorch 1.10 or newer)"],
        &["expandable_segments:True"],
        "RuntimeError: CUDA out of memory. Tried to allocate 2.50 GiB (GPU 0; 23.70 GiB total capacity; 14.00 GiB already \
         allocated; 90.56 MiB free; 22.10 GiB reserved in total by PyTorch)",
    ),
    case(
        "1.12, holes",
        Fragmented,
        &["PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128"],
        &["expandable_segments"],
        "RuntimeError: CUDA out of memory. Tried to allocate 3.00 GiB (GPU 0; 23.70 GiB total capacity; 13.20 GiB already \
         allocated; 40.56 MiB free; 22.30 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try \
         setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF",
    ),
    case(
        "2.0, another holds the device",
        OtherProcess,
        &["nvidia-smi"],
        &["fragmentation, holes", "expandable"],
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 23.69 GiB total capacity; 2.11 \
         GiB already allocated; 98.06 MiB free; 2.20 GiB reserved in total by PyTorch) If reserved memory is >> allocated \
         memory try setting max_split_size_mb to avoid fragmentation.",
    ),
    case(
        "2.0, a context is no other process",
        TooBig,
        &[],
        &["Another process"],
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB (GPU 0; 7.79 GiB total capacity; 6.61 GiB \
         already allocated; 30.12 MiB free; 6.70 GiB reserved in total by PyTorch)",
    ),
    case(
        "2.0, the driver refuses with room",
        RefusedWithRoom,
        &["paging file", "max_map_count"],
        &["set_per_process_memory_fraction", "expandable"],
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 14.00 MiB (GPU 0; 11.99 GiB total capacity; 1.40 GiB \
         already allocated; 9.31 GiB free; 1.52 GiB reserved in total by PyTorch)",
    ),
    case(
        "the same on Windows",
        RefusedWithRoom,
        &["paging file"],
        &["max_map_count", "set_per_process_memory_fraction"],
        "  File \"D:\\sd\\venv\\lib\\site-packages\\torch\\nn\\modules\\conv.py\", line 459, in _conv_forward\n\
         torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 23.99 GiB total capacity; 5.40 GiB \
         already allocated; 15.31 GiB free; 6.52 GiB reserved in total by PyTorch)",
    ),
    case(
        "2.1, spilled to the host",
        TooBig,
        &[],
        &["Fragmented"],
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 540.00 MiB. GPU 0 has a total capacty of 8.00 GiB of \
         which 0 bytes is free. Of the allocated memory 14.20 GiB is allocated by PyTorch, and 720.59 MiB is reserved by \
         PyTorch but unallocated. If reserved but unallocated memory is large try setting max_split_size_mb to avoid \
         fragmentation.",
    ),
    case(
        "2.4, full of its own",
        TooBig,
        &[],
        &["Another process", "Fragmented:"],
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU 0 has a total capacity of 23.54 GiB of \
         which 190.38 MiB is free. Including non-PyTorch memory, this process has 23.34 GiB memory in use. Of the allocated \
         memory 22.81 GiB is allocated by PyTorch, and 86.40 MiB is reserved by PyTorch but unallocated. If reserved but \
         unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.",
    ),
    case(
        "2.4, short by a little, in a list of its own",
        TooBig,
        &["make the one tensor"],
        &["Fragmented", "Another process"],
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 6.10 GiB. GPU 0 has a total capacity of 22.17 GiB of which 5.90 \
         GiB is free. Process 29726 has 16.25 GiB memory in use. Of the allocated memory 15.70 GiB is allocated by PyTorch, and \
         310.50 MiB is reserved by PyTorch but unallocated.",
    ),
    case(
        "2.4, training",
        TooBig,
        &["halve the batch"],
        &["serve"],
        "Traceback (most recent call last):\n  File \"/home/me/train.py\", line 90, in <module>\n    loss.backward()\n\
         torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 79.15 GiB of which \
         620.38 MiB is free. Including non-PyTorch memory, this process has 78.53 GiB memory in use. Of the allocated memory \
         76.90 GiB is allocated by PyTorch, and 900.00 MiB is reserved by PyTorch but unallocated.",
    ),
    case(
        "2.4, evaluation",
        TooBig,
        &["torch.no_grad()"],
        &["halve the batch"],
        "Traceback (most recent call last):\n  File \"/home/me/run.py\", line 90, in evaluate\n    out = model(x)\n\
         torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 79.15 GiB of which \
         620.38 MiB is free. Including non-PyTorch memory, this process has 78.53 GiB memory in use. Of the allocated memory \
         76.90 GiB is allocated by PyTorch, and 900.00 MiB is reserved by PyTorch but unallocated.",
    ),
    case(
        "2.4, a server",
        TooBig,
        &["--max-model-len"],
        &["halve the batch", "gradients"],
        "  File \"/opt/venv/lib/python3.12/site-packages/vllm/v1/worker/gpu_worker.py\", line 185, in load_model\n\
         torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 270.00 MiB. GPU 0 has a total capacity of 23.54 GiB of which \
         120.38 MiB is free. Including non-PyTorch memory, this process has 23.41 GiB memory in use. Of the allocated memory \
         22.91 GiB is allocated by PyTorch, and 16.40 MiB is reserved by PyTorch but unallocated.",
    ),
    case(
        "2.6, holes",
        Fragmented,
        &["PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"],
        &["Another process"],
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 2 has a total capacity of 79.15 GiB of which \
         1.20 GiB is free. Including non-PyTorch memory, this process has 77.94 GiB memory in use. Of the allocated memory \
         61.00 GiB is allocated by PyTorch, and 16.10 GiB is reserved by PyTorch but unallocated. If reserved but unallocated \
         memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.",
    ),
    case(
        "2.9, holes",
        Fragmented,
        &["PYTORCH_ALLOC_CONF=expandable_segments:True"],
        &["PYTORCH_CUDA_ALLOC_CONF"],
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 2 has a total capacity of 79.15 GiB of which \
         1.20 GiB is free. Including non-PyTorch memory, this process has 77.94 GiB memory in use. Of the allocated memory \
         61.00 GiB is allocated by PyTorch, and 16.10 GiB is reserved by PyTorch but unallocated. If reserved but unallocated \
         memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.",
    ),
    case(
        "2.5, several processes",
        OtherProcess,
        &["process 3001"],
        &["expandable"],
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 44.53 GiB of which \
         1.10 GiB is free. Process 3001 has 20.40 GiB memory in use. Process 3002 has 12.51 GiB memory in use. Process 3003 has \
         10.48 GiB memory in use. Of the allocated memory 9.90 GiB is allocated by PyTorch, and 110.40 MiB is reserved by \
         PyTorch but unallocated.",
    ),
    case(
        "2.5, a lone process is this one",
        TooBig,
        &[],
        &["Another process"],
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB. GPU 0 has a total capacity of 44.53 GiB of which \
         40.10 MiB is free. Process 881 has 44.48 GiB memory in use. Of the allocated memory 43.80 GiB is allocated by PyTorch, \
         and 180.40 MiB is reserved by PyTorch but unallocated.",
    ),
    case(
        "2.5, a limit that was set",
        LimitLow,
        &["set_per_process_memory_fraction"],
        &[],
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which \
         70.00 GiB is free. Including non-PyTorch memory, this process has 8.41 GiB memory in use. 8.00 GiB allowed; Of the \
         allocated memory 7.20 GiB is allocated by PyTorch, and 300.00 MiB is reserved by PyTorch but unallocated.",
    ),
    case(
        "one tensor is most of the device",
        TooBig,
        &["make the one tensor"],
        &["Fragmented"],
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 55.20 GiB. GPU 0 has a total capacity of 79.15 GiB of which \
         30.00 GiB is free. Including non-PyTorch memory, this process has 49.14 GiB memory in use. Of the allocated memory 20.20 \
         GiB is allocated by PyTorch, and 28.10 GiB is reserved by PyTorch but unallocated.",
    ),
    case(
        "a slice with a figure that wrapped around",
        TooBig,
        &[],
        &["Another process"],
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of 19.62 GiB of \
         which 20.00 MiB is free. Including non-PyTorch memory, this process has 17179869184.00 GiB memory in use. Of the \
         allocated memory 19.02 GiB is allocated by PyTorch, and 110.00 MiB is reserved by PyTorch but unallocated.",
    ),
    case(
        "HIP, holes",
        Fragmented,
        &["PYTORCH_HIP_ALLOC_CONF=max_split_size_mb:128"],
        &["PYTORCH_CUDA"],
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 23.98 GiB of which \
         300.00 MiB is free. Of the allocated memory 15.00 GiB is allocated by PyTorch, and 8.02 GiB is reserved by PyTorch but \
         unallocated. If reserved but unallocated memory is large try setting PYTORCH_HIP_ALLOC_CONF=expandable_segments:True",
    ),
    case(
        "XPU",
        TooBig,
        &[],
        &["expandable", "nvidia-smi", "CUDA"],
        "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total capacity of 15.56 GiB. Of the \
         allocated memory 14.80 GiB is allocated by PyTorch, and 120.00 MiB is reserved by PyTorch but unallocated. Please use \
         `empty_cache` to release all unoccupied cached memory.",
    ),
    case(
        "NPU, in brackets with one figure more",
        TooBig,
        &[],
        &["expandable"],
        "RuntimeError: NPU out of memory. Tried to allocate 1.16 GiB (NPU 0; 60.97 GiB total capacity; 58.01 GiB already allocated; \
         58.01 GiB current active; 505.71 MiB free; 59.03 GiB reserved in total by PyTorch) If reserved memory is >> allocated \
         memory try setting max_split_size_mb to avoid fragmentation.",
    ),
    case(
        "MPS",
        TooBig,
        &["PYTORCH_MPS_HIGH_WATERMARK_RATIO"],
        &["Another process", "expandable", "nvidia-smi"],
        "RuntimeError: MPS backend out of memory (MPS allocated: 15.20 GiB, other allocations: 2.70 GiB, max allowed: 18.13 GiB). \
         Tried to allocate 320.00 MiB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for \
         memory allocations (may cause system failure).",
    ),
    case(
        "MPS, one buffer",
        RefusedWithRoom,
        &["cut the one allocation"],
        &["expandable"],
        "RuntimeError: Invalid buffer size: 18.05 GB",
    ),
    case(
        "MPS, beyond 32 bits",
        NotMemory,
        &["split the tensor"],
        &[],
        "/AppleInternal/Library/BuildRoots/MetalPerformanceShaders/MPSCore/Types/MPSNDArray.mm:705: failed assertion `[MPSNDArray \
         initWithDevice:descriptor:] Error: total bytes of NDArray > 2**32'",
    ),
    case(
        "the asynchronous allocator",
        TooBig,
        &[],
        &["expandable"],
        "torch.cuda.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     \
         : 22.14 GiB\nRequested               : 900.00 MiB\nDevice limit            : 23.65 GiB\nFree (according to CUDA): 27.19 \
         MiB\nPyTorch limit (set by user-supplied memory fraction)\n                        : 17179869184.00 GiB",
    ),
    case(
        "only what was asked",
        Full,
        &["nvidia-smi"],
        &["Healthy"],
        "RuntimeError: CUDA out of memory. Tried to allocate 384.00 MiB",
    ),
    case(
        "a size that was corrupted",
        NotMemory,
        &["collectives"],
        &["smaller batch", "nvidia-smi"],
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory.",
    ),
    case(
        "escaped for a page",
        Fragmented,
        &["max_split_size_mb:128"],
        &["&gt;"],
        "RuntimeError: CUDA out of memory. Tried to allocate 3.00 GiB (GPU 0; 23.70 GiB total capacity; 13.20 GiB already \
         allocated; 40.56 MiB free; 22.30 GiB reserved in total by PyTorch) If reserved memory is &gt;&gt; allocated memory try \
         setting max_split_size_mb to avoid fragmentation.",
    ),
    // Drivers and libraries without figures.
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
    // TensorFlow.
    case(
        "an old shape without a type",
        Full,
        &[],
        &["Healthy"],
        "ResourceExhaustedError (see above for traceback): OOM when allocating tensor with shape[256,1024,7,7]\n\
         \t [[Node: gradients/conv5/Conv2D_grad = Conv2DBackpropInput[T=DT_FLOAT]]]",
    ),
    case(
        "a shape of 10 GiB",
        TooBig,
        &["make the one tensor"],
        &[],
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[40,8,2896,2896] and \
         type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:BatchMatMulV2]",
    ),
    case(
        "no size at all",
        Full,
        &[],
        &["Healthy"],
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: {{function_node __wrapped__AddV2_device_/job:localhost/\
         replica:0/task:0/device:GPU:0}} failed to allocate memory [Op:AddV2]",
    ),
    case(
        "figures on one line",
        TooBig,
        &[],
        &["Healthy"],
        "2019-01-02 10:00:00.1: I tensorflow/core/common_runtime/bfc_allocator.cc:647] Stats: Limit: 7820083200 InUse: 7711229952 \
         MaxInUse: 7790000128 NumAllocs: 3111 MaxAllocSize: 3221225472\n2019-01-02 10:00:00.2: W tensorflow/core/framework/op_kernel.cc:1275] OP_REQUIRES \
         failed at conv_ops.cc:693 : Resource exhausted: OOM when allocating tensor with shape[64,256,56,56] and type float on \
         /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
    ),
    case(
        "a dump cut after its request",
        TooBig,
        &["make the one tensor"],
        &["Healthy"],
        "2020-05-14 07:18:40.243934: I tensorflow/core/common_runtime/bfc_allocator.cc:957] Bin for 9.50GiB was 256.00MiB, Chunk State:\n\
         2020-05-14 07:18:40.243949: I tensorflow/core/common_runtime/bfc_allocator.cc:970] Next region of size 1048576\n\
         2020-05-14 07:18:40.243962: I tensorflow/core/common_runtime/bfc_allocator.cc:990] InUse at 1203be0000 of size 1280 next 1\n",
    ),
    case(
        "a cut dump of a small request",
        Full,
        &["TF_CPP_MIN_LOG_LEVEL"],
        &["Healthy"],
        "2021-03-04 07:18:40.2: W tensorflow/core/common_runtime/bfc_allocator.cc:456] Allocator (GPU_0_bfc) ran out of memory trying to \
         allocate 24.00MiB (rounded to 25165824)requested by op model/conv/Conv2D\n\
         2021-03-04 07:18:40.3: I tensorflow/core/common_runtime/bfc_allocator.cc:1058] Next region of size 1048576\n",
    ),
    case(
        "a reservation that was tried again",
        Healthy,
        &[],
        &[],
        "2022-01-24 16:22:13.0: I tensorflow/stream_executor/cuda/cuda_driver.cc:739] failed to allocate 3.66G (3929014272 bytes) from \
         device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n2022-01-24 16:22:14.0: I tensorflow/stream_executor/cuda/cuda_driver.cc:739] failed to allocate 3.29G \
         (3536112640 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\nEpoch 1/10\n",
    ),
    case(
        "not a failure",
        Healthy,
        &[],
        &[],
        "2020-04-29 16:25:36.5: W tensorflow/core/common_runtime/bfc_allocator.cc:245] Allocator (GPU_0_bfc) ran out of memory trying to \
         allocate 2.21GiB with freed_by_count=0. The caller indicates that this is not a failure, but may mean that there could be \
         performance gains if more memory were available.\n",
    ),
    case(
        "a warning of the host",
        Healthy,
        &[],
        &[],
        "2020-04-29 16:25:36.5: W tensorflow/core/framework/cpu_allocator_impl.cc:82] Allocation of 1207959552 exceeds 10% of free system memory.\n",
    ),
    case(
        "no handle after refusals",
        Full,
        &[],
        &["Healthy"],
        "2019-07-21 23:23:06.2: E tensorflow/stream_executor/cuda/cuda_driver.cc:828] failed to allocate 64.00M (67108864 bytes) from \
         device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n2019-07-21 23:23:06.3: E tensorflow/stream_executor/cuda/cuda_dnn.cc:329] Could not create cudnn handle: \
         CUDNN_STATUS_ALLOC_FAILED\n",
    ),
    // JAX and TPUs.
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
    // Servers.
    case(
        "vLLM, a cache too small",
        TooBig,
        &["--max-model-len"],
        &["halve the batch"],
        "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored in KV cache (22176). \
         Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.",
    ),
    case(
        "vLLM, with figures",
        TooBig,
        &["--max-model-len"],
        &[],
        "ValueError: To serve at least one request with the models's max seq len (32768), (8.00 GiB KV cache is needed, which is larger \
         than the available KV cache memory (4.46 GiB). Based on the available memory, the estimated maximum model length is 18256.",
    ),
    case(
        "vLLM, no blocks",
        TooBig,
        &["--gpu-memory-utilization"],
        &[],
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.",
    ),
    case(
        "vLLM, at the start",
        OtherProcess,
        &["nvidia-smi"],
        &[],
        "ValueError: Free memory on device cuda:0 (5.31/23.56 GiB) on startup is less than desired GPU memory utilization (0.9, 21.2 GiB). \
         Decrease GPU memory utilization or reduce GPU memory used by other processes.",
    ),
    case(
        "vLLM, while it measured",
        OtherProcess,
        &[],
        &[],
        "AssertionError: Error in memory profiling. Initial free memory 40.2 GiB, current free memory 41.0 GiB. This happens when other \
         processes sharing the same container release GPU memory while vLLM is profiling during initialization.",
    ),
    case(
        "SGLang",
        TooBig,
        &["--mem-fraction-static"],
        &[],
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. self.server_args.mem_fraction_static=0.79",
    ),
    // llama.cpp, ONNX Runtime, Paddle, CuPy.
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
    // The host.
    case(
        "the kernel",
        HostMemory,
        &["hold less at once"],
        &["nvidia-smi"],
        "[123456.789012] Out of memory: Killed process 4242 (python) total-vm:98765432kB, anon-rss:61234567kB, file-rss:1024kB, shmem-rss:0kB, UID:1000",
    ),
    case(
        "a cgroup",
        HostMemory,
        &[],
        &[],
        "[ 8190.123] Memory cgroup out of memory: Killed process 990 (python3) total-vm:21000000kB, anon-rss:16700000kB",
    ),
    case(
        "Slurm",
        HostMemory,
        &["--mem="],
        &[],
        "slurmstepd: error: Detected 2 oom_kill events in StepId=990.0. Some of the step tasks have been OOM Killed.\nsrun: error: node3: task 0: Out Of Memory",
    ),
    case(
        "Kubernetes",
        HostMemory,
        &["resources.limits.memory"],
        &[],
        "    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n",
    ),
    case("a shell", HostMemory, &["dmesg"], &[], "Loading checkpoint shards:  33%|###   | 1/3\nKilled\n"),
    case(
        "code -9",
        HostMemory,
        &["dmesg"],
        &[],
        "torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: -9) local_rank: 0 (pid: 7001) of binary: /usr/bin/python3",
    ),
    case(
        "a loader's worker",
        HostMemory,
        &["num_workers"],
        &[],
        "RuntimeError: DataLoader worker (pid 3231) is killed by signal: Killed.",
    ),
    case(
        "shm",
        HostMemory,
        &["--shm-size"],
        &["nvidia-smi"],
        "RuntimeError: DataLoader worker (pid 13) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. \
         Please try to raise your shared memory limit.",
    ),
    case(
        "shm, a file",
        HostMemory,
        &["--shm-size"],
        &[],
        "RuntimeError: unable to write to file </torch_1204_2563121>",
    ),
    case(
        "Windows 1455",
        HostMemory,
        &["paging file"],
        &["nvidia-smi"],
        "OSError: [WinError 1455] The paging file is too small for this operation to complete. Error loading \"C:\\py\\lib\\site-packages\\torch\\lib\\cudnn_cnn_infer64_8.dll\"",
    ),
    case(
        "the CPU's allocator",
        HostMemory,
        &[],
        &["expandable", "nvidia-smi"],
        "RuntimeError: [enforce fail at C:\\cb\\pytorch_1000000000000\\work\\c10\\core\\impl\\alloc_cpu.cpp:72] data. DefaultCPUAllocator: not enough \
         memory: you tried to allocate 2415919104 bytes.",
    ),
    case(
        "the CPU's allocator of old",
        HostMemory,
        &[],
        &[],
        "RuntimeError: $ Torch: not enough memory: you tried to allocate 12GB. Buy new RAM! at /pytorch/aten/src/TH/THGeneral.cpp:204",
    ),
    case(
        "NumPy",
        HostMemory,
        &["numpy.memmap"],
        &[],
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 37.3 GiB for an array with shape (100000, 50000) and data type float64",
    ),
    case(
        "C++",
        HostMemory,
        &[],
        &[],
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\nAborted (core dumped)",
    ),
    case(
        "locked memory",
        HostMemory,
        &["pin_memory=False"],
        &["nvidia-smi"],
        "RuntimeError: Caught RuntimeError in pin memory thread for device 0.\n  File \"/usr/lib/python3/dist-packages/torch/utils/data/_utils/pin_memory.py\", \
         line 37, in do_one_step\nRuntimeError: CUDA error: out of memory",
    ),
    case(
        "DeepSpeed's launcher",
        HostMemory,
        &["dmesg"],
        &[],
        "[2024-01-01 10:00:00,100] [ERROR] [launch.py:321:sigkill_handler] ['/usr/bin/python', '-u', 'train.py'] exits with return code = -9",
    ),
    case(
        "a hosted notebook",
        HostMemory,
        &[],
        &["nvidia-smi"],
        "Your session crashed after using all available RAM.",
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
        "Python",
        HostMemory,
        &["free -h"],
        &["refused of"],
        "Traceback (most recent call last):\n  File \"load.py\", line 3, in <module>\nMemoryError",
    ),
    case(
        "a worker that vanished",
        HostMemory,
        &["num_workers"],
        &["nvidia-smi"],
        "RuntimeError: DataLoader worker (pid(s) 3071) exited unexpectedly",
    ),
    case(
        "a shell, with its line",
        HostMemory,
        &["dmesg"],
        &[],
        "./train.sh: line 12: 7001 Killed python train.py --epochs 3",
    ),
    case(
        "a size of 4 EB",
        NotMemory,
        &["look at the shapes"],
        &["smaller batch", "-ngl"],
        "onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) Failed to allocate memory for requested buffer of size \
         4611686018427387904",
    ),
    case(
        "TensorFlow's pool of pages",
        TooBig,
        &[],
        &[],
        "E1103 18:23:55.103160 34137 gpu_cudamallocasync_allocator.cc:361] gpu_async_0 cuMemAllocAsync failed to allocate 85899345920 \
         bytes: RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of memory\n Reported by CUDA: Free memory/Total memory: \
         22635544576/85095874560",
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
        "TensorFlow 1 without cuBLAS",
        Full,
        &["nvidia-smi"],
        &["got no memory"],
        "tensorflow.python.framework.errors_impl.InternalError: Blas GEMM launch failed : a.shape=(100, 784), b.shape=(784, 256), m=100, \
         n=256, k=784",
    ),
    case(
        "chunks without head and tail",
        Full,
        &[],
        &["Healthy"],
        "2018-06-09 22:01:01.7: I tensorflow/core/common_runtime/bfc_allocator.cc:665] Chunk at 0000000501D69200 of size 256\n\
         2018-06-09 22:01:01.8: I tensorflow/core/common_runtime/bfc_allocator.cc:665] Chunk at 0000000501D69300 of size 256\n",
    ),
    case(
        "a signal after the cause",
        TooBig,
        &[],
        &["Host memory:"],
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB (GPU 0; 7.79 GiB total capacity; 6.61 GiB already \
         allocated; 30.12 MiB free; 6.70 GiB reserved in total by PyTorch)\nERROR: failed (exitcode: -9) local_rank: 1 (pid: 7001)\n",
    ),
];

fn cases() -> impl Iterator<Item = &'static Case> {
    CASES.iter().chain(rare::CASES)
}

fn explained(text: &[u8]) -> Option<Explanation> {
    let recording = read_input(Input::bytes(text).ok()?, "log").ok()?;
    let explanation = explain(&recording);
    let mut page = Vec::new();
    write_html(&recording, &explanation, &mut page).unwrap();
    Some(explanation)
}

fn shown(explanation: &Explanation) -> String {
    let mut out = Vec::new();
    show(explanation, Style { width: 2000, colour: false }, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn every_wording_gets_its_verdict_and_advice_that_exists_for_it() {
    let mut wrong = Vec::new();
    for case in cases() {
        let Some(explanation) = explained(case.text.as_bytes()) else {
            wrong.push(format!("{}: nothing is said", case.name));
            continue;
        };
        let text = shown(&explanation);
        let first = explanation.verdicts[0].kind;
        if first != case.kind {
            wrong.push(format!("{}: {first:?}, not {:?}:\n{text}", case.name, case.kind));
        }
        let advice: Vec<&str> = explanation.advice.iter().map(|advice| advice.change.as_str()).collect();
        for words in case.advised {
            if !advice.iter().any(|change| change.contains(words)) {
                wrong.push(format!("{}: no advice has `{words}`: {advice:#?}", case.name));
            }
        }
        let said: String = explanation
            .verdicts
            .iter()
            .map(|verdict| verdict.sentence.clone())
            .chain(advice.iter().map(|a| a.to_string()))
            .collect::<Vec<_>>()
            .join("\n");
        for words in case.never {
            if said.contains(words) {
                wrong.push(format!("{}: it has `{words}`:\n{said}", case.name));
            }
        }
        // Of figures with two decimals no bytes are told.
        let rounded = case.text.contains("already allocated") || case.text.contains("allocated by PyTorch");
        let exact = text.split_whitespace().any(|word| word.matches(',').count() >= 3);
        if rounded && (exact || text.contains("000 bytes")) {
            wrong.push(format!("{}: bytes that were not told:\n{text}", case.name));
        }
        if first != Healthy && explanation.advice.is_empty() {
            wrong.push(format!("{}: no advice", case.name));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases().count(), wrong.join("\n\n"));
}

/// A text as a terminal breaks it: at a column, wherever that is.
fn broken_at(text: &str, width: usize) -> String {
    let broken = |line: &str| {
        let characters: Vec<char> = line.chars().collect();
        characters.chunks(width).map(|piece| piece.iter().collect::<String>()).collect::<Vec<_>>().join("\n")
    };
    text.lines().map(broken).collect::<Vec<_>>().join("\n") + "\n"
}

#[test]
fn messages_broken_at_a_column_say_the_same() {
    let torch = cases().filter(|case| {
        case.text.contains("reserved in total") || case.text.contains("is reserved by PyTorch")
    });
    for case in torch.filter(|case| !case.text.contains("larger than 4GB")) {
        for width in [33, 47, 50, 60, 78, 80, 120] {
            let explanation = explained(broken_at(case.text, width).as_bytes());
            let kind = explanation.map(|explanation| explanation.verdicts[0].kind);
            assert_eq!(kind, Some(case.kind), "{} at {width}:\n{}", case.name, broken_at(case.text, width));
            // Editors and forums drop blanks at the ends of lines.
            let stripped: Vec<String> =
                broken_at(case.text, width).lines().map(|line| line.trim_end().to_string()).collect();
            let kind =
                explained(stripped.join("\n").as_bytes()).map(|explanation| explanation.verdicts[0].kind);
            assert_eq!(kind, Some(case.kind), "{} at {width}, stripped:\n{}", case.name, stripped.join("\n"));
        }
    }
}

#[test]
fn a_sentence_broken_between_its_words_is_understood() {
    let kind = |text: &str| explained(text.as_bytes()).map(|explanation| explanation.verdicts[0].kind);
    let jax = "    jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to\n    allocate 30.25GiB. \
               [executable_name='jit_step']\n      train.py fit -> loss\n";
    assert_eq!(kind(jax), Some(TooBig));
    let old = "E external/org_tensorflow/tensorflow/compiler/xla/python/local_client.cc:672] Execution of replica 0 failed: Resource \
               exhausted: Out \nof memory while trying to allocate 9663676416 bytes.\n";
    assert_eq!(kind(old), Some(TooBig));
    // What no pair of lines makes clearer stays what it was.
    assert_eq!(kind("solver: fatal error: out of memory\nin phase 3\n"), Some(Full));
}

#[test]
fn logs_of_objects_notebooks_and_sixteen_bits_say_the_same() {
    for case in cases() {
        let kind = |bytes: &[u8]| explained(bytes).map(|explanation| explanation.verdicts[0].kind);
        let object =
            serde_json::json!({"level": "error", "time": "2026-01-02T03:04:05Z", "message": case.text});
        let lines = format!("{{\"level\": \"info\", \"message\": \"start up\"}}\n{object}\n");
        assert_eq!(kind(lines.as_bytes()), Some(case.kind), "{}: {lines}", case.name);
        let traceback: Vec<String> =
            case.text.lines().map(|line| format!("\u{1b}[0;31m{line}\u{1b}[0m")).collect();
        let output = serde_json::json!({"output_type": "error", "ename": "RuntimeError", "evalue": case.text, "traceback": traceback});
        let source = ["# CUDA error: out of memory, and Killed\n"];
        let cells =
            serde_json::json!([{"cell_type": "code", "source": source, "metadata": {}, "outputs": [output]}]);
        let notebook =
            serde_json::json!({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5});
        assert_eq!(kind(format!("{notebook:#}").as_bytes()), Some(case.kind), "{} in a notebook", case.name);
        let wide: Vec<u8> = format!("{}\n", case.text).encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(kind(&wide), Some(case.kind), "{} in sixteen bits", case.name);
    }
}

#[test]
fn of_a_folder_of_logs_the_first_that_shows_a_cause_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let out_of_memory = |gpu: u32| {
        format!(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU {gpu} has a total capacity of 44.53 GiB of \
             which 1.10 GiB is free. Process 3001 has 30.40 GiB memory in use. Including non-PyTorch memory, this process has \
             13.00 GiB memory in use. Of the allocated memory 12.00 GiB is allocated by PyTorch, and 110.40 MiB is reserved by \
             PyTorch but unallocated.\n"
        )
    };
    std::fs::create_dir(folder.path().join("attempt_0")).unwrap();
    let write =
        |name: &str, text: String| std::fs::write(folder.path().join("attempt_0").join(name), text).unwrap();
    write("rank0.log", "2026-01-02 10:00:01 step 1\n2026-01-02 10:00:09 exitcode: -9 (pid: 1)\n".into());
    write("rank1.log", format!("2026-01-02 10:00:07 step 4\n{}", out_of_memory(0)));
    write("rank2.log", format!("2026-01-02 10:00:05 step 3\n{}", out_of_memory(0)));
    write("rank3.log", "2026-01-02 10:00:05 step 3, loss 0.1\n".into());
    let recording = read_files(&[folder.path().to_path_buf()], &Progress::default()).unwrap();
    assert!(recording.origin.files[0].ends_with("rank2.log"), "{:?}", recording.origin.files);
    let gaps = recording.origin.gaps.join("\n");
    assert!(gaps.contains("Of 4 logs 3 show a failure") && gaps.contains("10:00:05"), "{gaps}");
    assert!(gaps.contains("rank1.log at 2026-01-02 10:00:07: 2.00 GiB were refused on GPU 0"), "{gaps}");
    assert!(gaps.contains("2 of these processes ran out on GPU 0"), "{gaps}");
    assert_eq!(explain(&recording).verdicts[0].kind, OtherProcess);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Cut, joined and damaged in any way: something is said or nothing, and what is said adds up.
    #[test]
    fn no_damage_to_any_message_breaks_anything(
        parts in prop::collection::vec((0..CASES.len(), any::<[prop::sample::Index; 2]>()), 1..4),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        newline in any::<bool>(),
    ) {
        let mut bytes = Vec::new();
        for (case, [from, to]) in parts {
            let text = CASES[case].text.as_bytes();
            let (from, to) = (from.index(text.len()), to.index(text.len()));
            bytes.extend_from_slice(&text[from.min(to)..=from.max(to)]);
            if newline {
                bytes.push(b'\n');
            }
        }
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(explanation) = explained(&bytes) {
            let sum: u64 = explanation.books.lines.iter().map(|line| line.bytes).sum();
            prop_assert_eq!(sum, explanation.books.total_bytes);
            let text = shown(&explanation);
            prop_assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{}", text);
        }
    }
}

//! PyTorch's caching allocators, from the first to the newest wording, on every kind of device that has one.

use super::{Case, case};
use plimsoll_explain::VerdictKind::*;

pub(super) const CASES: &[Case] = &[
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
    case(
        "a size of 4 EB",
        NotMemory,
        &["look at the shapes"],
        &["smaller batch", "-ngl"],
        "onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) Failed to allocate memory for requested buffer of size \
         4611686018427387904",
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

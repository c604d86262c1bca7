//! Wordings that are met less often: other vendors' devices, other libraries, other languages, and errors of no family.

use super::{Case, case};
use plimsoll_explain::VerdictKind::*;

pub(super) const CASES: &[Case] = &[
    // Devices that are not NVIDIA's.
    case(
        "Ascend, others",
        OtherProcess,
        &["npu-smi"],
        &["nvidia-smi", "GPU"],
        "RuntimeError: NPU out of memory. Tried to allocate 40.00 MiB (NPU 2; 61.00 GiB total capacity; 8.10 GiB already allocated; \
         8.10 GiB current active; 22.10 MiB free; 8.40 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory \
         try setting max_split_size_mb to avoid fragmentation.",
    ),
    case(
        "Ascend, holes",
        Fragmented,
        &["PYTORCH_NPU_ALLOC_CONF=max_split_size_mb:128"],
        &["CUDA"],
        "RuntimeError: NPU out of memory. Tried to allocate 4.00 GiB (NPU 0; 61.00 GiB total capacity; 46.00 GiB already allocated; \
         46.00 GiB current active; 1.10 GiB free; 57.20 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory \
         try setting max_split_size_mb to avoid fragmentation.",
    ),
    case(
        "Intel, one piece of an empty device",
        RefusedWithRoom,
        &["RELAXED_ALLOCATION_LIMITS", "xpu-smi"],
        &["nvidia-smi", "batch"],
        "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 6.00 GiB. GPU 0 has a total capacity of 15.50 GiB. Of the \
         allocated memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated. Please use \
         `empty_cache` to release all unoccupied cached memory.",
    ),
    case(
        "Intel, more than there is",
        TooBig,
        &["smaller"],
        &["RELAXED"],
        "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 6.00 GiB. GPU 0 has a total capacity of 15.50 GiB. Of the \
         allocated memory 13.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated. Please use \
         `empty_cache` to release all unoccupied cached memory.",
    ),
    case(
        "DirectML",
        Full,
        &["Task Manager"],
        &["nvidia-smi"],
        "RuntimeError: Could not allocate tensor with 73400320 bytes. There is not enough GPU video memory available!",
    ),
    // Device errors of libraries.
    case(
        "MXNet",
        Full,
        &["nvidia-smi"],
        &["-ngl", "ctx"],
        "mxnet.base.MXNetError: [10:11:12] src/storage/./pooled_storage_manager.h:161: cudaMalloc failed: out of memory",
    ),
    case(
        "TensorRT 7",
        Full,
        &["nvidia-smi"],
        &["Host memory"],
        "[01/02/2021-03:04:05] [E] [TRT] ../rtSafe/safeRuntime.cpp (25) - Cuda Error in allocate: 2 (out of memory)",
    ),
    case(
        "TensorRT, a tactic that is passed over",
        Healthy,
        &[],
        &["Full"],
        "[W] [TRT] Skipping tactic 3 due to insufficient memory on requested size of 9663676416 detected for tactic 0x0000000000000003.",
    ),
    case(
        "TensorRT 8, its size",
        TooBig,
        &[],
        &[],
        "[E] 2: [virtualMemoryBuffer.cpp::resizePhysical::140] Error Code 2: OutOfMemory (Requested size was 17179869184 bytes.)",
    ),
    case(
        "no context",
        Full,
        &["nvidia-smi"],
        &["batch"],
        "2023-01-02 03:04:05.678901: W external/xla/xla/service/platform_util.cc:198] unable to create StreamExecutor for CUDA:0: \
         failed initializing StreamExecutor for CUDA device ordinal 0: INTERNAL: failed call to cuDevicePrimaryCtxRetain: \
         CUDA_ERROR_OUT_OF_MEMORY: out of memory; total memory reported: 25438715904",
    ),
    case(
        "cuDNN beside TensorFlow's pool",
        Full,
        &["allow_growth"],
        &[],
        "2019-05-06 07:08:09.101112: E tensorflow/stream_executor/cuda/cuda_dnn.cc:334] Could not create cudnn handle: \
         CUDNN_STATUS_INTERNAL_ERROR\ntensorflow.python.framework.errors_impl.UnknownError: Failed to get convolution algorithm. This \
         is probably because cuDNN failed to initialize, so try looking to see if a warning log message was printed above.",
    ),
    // llama.cpp's three kinds of buffers.
    case(
        "llama.cpp, the cache",
        TooBig,
        &["shorter context"],
        &["-ub"],
        "0.01.234.567 E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 6144.00 MiB on device 1: cudaMalloc failed: out of memory\n\
         0.01.234.570 E llama_kv_cache_init: failed to allocate buffer for kv cache\n",
    ),
    case(
        "llama.cpp, the weights",
        TooBig,
        &["-ngl", "quantization"],
        &["-ub", "shorter context"],
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 30720.00 MiB on device 0: cudaMalloc failed: out of memory\n\
         alloc_tensor_range: failed to allocate CUDA0 buffer of size 32212254720\n\
         llama_model_load: error loading model: unable to allocate CUDA0 buffer\n",
    ),
    case(
        "llama.cpp, tried again",
        Healthy,
        &[],
        &["Too big"],
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 5120.00 MiB on device 0: cudaMalloc failed: out of memory\n\
         ggml_gallocr_reserve_n_impl: failed to allocate CUDA0 buffer of size 5368709120\n\
         graph_reserve: failed to allocate compute buffers\n\
         sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism\n\
         srv    load_model: initializing, n_slots = 4\n",
    ),
    case(
        "llama.cpp, tried again in vain",
        TooBig,
        &["-ub"],
        &["Healthy"],
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 5120.00 MiB on device 0: cudaMalloc failed: out of memory\n\
         sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism\n\
         ggml_backend_cuda_buffer_type_alloc_buffer: allocating 2560.00 MiB on device 0: cudaMalloc failed: out of memory\n\
         ggml_gallocr_reserve_n_impl: failed to allocate CUDA0 buffer of size 2684354560\n\
         graph_reserve: failed to allocate compute buffers\n",
    ),
    // Servers.
    case(
        "TGI, tokens of all requests",
        TooBig,
        &["--max-batch-total-tokens"],
        &["prefill"],
        "Error: Warmup(Generation(\"Not enough memory to handle 32000 total tokens with 4096 prefill tokens. You need to decrease \
         `--max-batch-total-tokens` or `--max-batch-prefill-tokens`\"))",
    ),
    // Other pools.
    case(
        "ONNX Runtime, whose arena is not said",
        Full,
        &["free -h"],
        &["the device's memory ran out"],
        "2024-01-02 03:04:05.678 [E:onnxruntime:, sequential_executor.cc:514 ExecuteKernel] Non-zero status code returned while running \
         Conv node. Name:'Conv_7' Status Message: bfc_arena.cc:376 onnxruntime::BFCArena::AllocateRawInternal Failed to allocate memory \
         for requested buffer of size 1048576",
    ),
    case(
        "ONNX Runtime, the CPU's arena",
        HostMemory,
        &["free -h"],
        &["nvidia-smi", "CUDA"],
        "2022-01-02 03:04:05.678 [E:onnxruntime:, sequential_executor.cc:339 Execute] Non-zero status code returned while running Conv \
         node. Name:'12_nchwc' Status Message: bfc_arena.cc:330 onnxruntime::BFCArena::AllocateRawInternal Failed to allocate memory for \
         requested buffer of size 268435456",
    ),
    // The host.
    case("a shell in Chinese", HostMemory, &["dmesg"], &[], "step 120, loss 0.71\n已杀死\n"),
    case("a shell in German", HostMemory, &["dmesg"], &[], "step 120, loss 0.71\nGetötet\n"),
    case(
        "a shell with a line number, in Russian",
        HostMemory,
        &["dmesg"],
        &[],
        "run.sh: строка 7: 4711 Убито\n",
    ),
    case("emphasis", HostMemory, &["dmesg"], &[], "step 120, loss 0.71\n\n**Killed**\n"),
    case(
        "a bus error of a launched process",
        HostMemory,
        &["--shm-size"],
        &["ran out."],
        "[2024-01-02 03:04:05,678] [INFO] [launch.py:315:sigkill_handler] Killing subprocess 77\n\
         [2024-01-02 03:04:05,678] [ERROR] [launch.py:321:sigkill_handler] ['python', 'main.py'] exits with return code = -7\n",
    ),
    case(
        "joblib",
        HostMemory,
        &["dmesg"],
        &["num_workers"],
        "joblib.externals.loky.process_executor.TerminatedWorkerError: A worker process managed by the executor was unexpectedly \
         terminated. This could be caused by a segmentation fault while calling the function or by an excessive memory usage causing \
         the Operating System to kill the worker. The exit codes of the workers are {SIGKILL(-9)}",
    ),
    case(
        "Ray of old",
        HostMemory,
        &["fewer tasks"],
        &["container"],
        "ray.memory_monitor.RayOutOfMemoryError: More than 95% of the memory on node box is used (60.9 / 62.7 GB).",
    ),
    case(
        "YARN",
        HostMemory,
        &["memoryOverhead"],
        &["docker", "resources.limits"],
        "ERROR YarnScheduler: Lost executor 3 on node7: Container killed by YARN for exceeding memory limits. 10.4 GB of 10 GB physical \
         memory used. Consider boosting spark.yarn.executor.memoryOverhead.",
    ),
    case(
        "Java's heap",
        HostMemory,
        &["spark.executor.memory", "-Xmx"],
        &["nvidia-smi"],
        "ERROR Executor: Exception in task 1.0 in stage 2.0 (TID 3)\njava.lang.OutOfMemoryError: Java heap space\n\tat java.util.Arrays.copyOf",
    ),
    case(
        "NumPy 1.17",
        HostMemory,
        &["free -h"],
        &["num_workers", "nvidia-smi"],
        "MemoryError: Unable to allocate array with shape (30000, 20000) and data type float64",
    ),
    case(
        "PyTorch's CPU allocator on Windows",
        HostMemory,
        &["paging file"],
        &["nvidia-smi"],
        "RuntimeError: [enforce fail at alloc_cpu.cpp:114] data. DefaultCPUAllocator: not enough memory: you tried to allocate 52428800 bytes.",
    ),
    case(
        "MXNet on the CPU",
        HostMemory,
        &["free -h"],
        &["nvidia-smi"],
        "mxnet.base.MXNetError: [10:11:12] src/storage/./cpu_device_storage.h:75: Failed to allocate CPU Memory",
    ),
    case(
        "too many mappings",
        HostMemory,
        &["vm.max_map_count"],
        &["--shm-size", "ran out"],
        "RuntimeError: unable to mmap 4096 bytes from file </torch_77_1234567890_64001>: Cannot allocate memory (12)",
    ),
    case(
        "a semaphore without room",
        HostMemory,
        &["--shm-size"],
        &[],
        "  File \"/usr/lib/python3.10/multiprocessing/synchronize.py\", line 162, in __init__\n    SemLock.__init__(self, SEMAPHORE, 1, 1, \
         ctx=ctx)\nOSError: [Errno 28] No space left on device\n",
    ),
    case(
        "a guard of the host",
        HostMemory,
        &["swap"],
        &["nvidia-smi"],
        "Jan 02 03:04:05 box systemd-oomd[99]: Killed /user.slice/app.slice/train.scope due to memory pressure for /user.slice being 71.05% > \
         50.00% for > 20s with reclaim activity",
    ),
    case("PBS", HostMemory, &["qsub"], &[], "=>> PBS: job killed: mem 33554500kb exceeded limit 33554432kb"),
    case(
        "TensorFlow's tensors on the CPU",
        HostMemory,
        &["free -h"],
        &["nvidia-smi"],
        "ResourceExhaustedError: OOM when allocating tensor with shape[1000,2000] and type float on \
         /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu [Op:Mul]",
    ),
    case(
        "TensorFlow's locked memory",
        HostMemory,
        &["TF_GPU_HOST_MEM_LIMIT_IN_MB"],
        &["nvidia-smi", "move the model"],
        "2020-01-02 03:04:05.678901: W tensorflow/core/common_runtime/bfc_allocator.cc:439] Allocator (cuda_host_bfc) ran out of memory \
         trying to allocate 2.00GiB (rounded to 2147483648)  Current allocation summary follows.",
    ),
    // What is no lack of memory.
    case(
        "a crash",
        NotMemory,
        &["faulthandler"],
        &["nvidia-smi", "batch"],
        "RuntimeError: DataLoader worker (pid 77) is killed by signal: Segmentation fault.",
    ),
    case(
        "a failed check of a kernel",
        NotMemory,
        &["CUDA_LAUNCH_BLOCKING=1"],
        &["batch"],
        "RuntimeError: CUDA error: device-side assert triggered",
    ),
    // Figures of the process alone.
    case(
        "a message that was cut before the pool's figures",
        TooBig,
        &["smaller"],
        &["does not say who held it"],
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 11.99 GiB of which 300.00 MiB \
         is free. Including non-PyTorch memory, this process has 11.60 GiB memory in use.",
    ),
    case(
        "Caffe of 2014",
        Full,
        &["nvidia-smi"],
        &[],
        "F0102 03:04:05.678901  4711 syncedmem.cpp:45] Check failed: (cudaMalloc(&gpu_ptr_, size_)) == cudaSuccess (2 vs. 0) ",
    ),
    case(
        "PyTorch's allocator warns",
        Full,
        &["nvidia-smi"],
        &["Host memory"],
        "[W102 03:04:05.678 CUDACachingAllocator.cpp:3900] memory allocation failed with OOM on device 0 while trying to allocate 536870912 \
         bytes (free: 104857600, total: 25769803776).",
    ),
    case(
        "more in use than there is, with holes",
        TooBig,
        &["smaller"],
        &["Fragmented", "max_split"],
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 6.00 GiB total capacity; 11.20 GiB already \
         allocated; 0 bytes free; 13.40 GiB reserved in total by PyTorch)",
    ),
    case(
        "figures on a line of their own",
        TooBig,
        &["smaller"],
        &["does not say who held it"],
        "CUDA out of memory\nTried to allocate 20.00 MiB (GPU 0; 3.95 GiB total capacity; 3.10 GiB already allocated; 10.88 MiB free; 3.14 GiB \
         reserved in total by PyTorch)",
    ),
    case(
        "a running vLLM",
        TooBig,
        &["lower --gpu-memory-utilization", "--max-num-batched-tokens"],
        &["raise --gpu-memory-utilization"],
        "(EngineCore pid=77) ERROR 01-02 03:04:05 [core.py:700]   File \"/opt/vllm/vllm/v1/worker/gpu_model_runner.py\", line 9, in run\n\
         (EngineCore pid=77) ERROR 01-02 03:04:05 [core.py:700] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.20 GiB. GPU 0 has \
         a total capacity of 79.25 GiB of which 500.00 MiB is free. Including non-PyTorch memory, this process has 78.70 GiB memory in use. Of \
         the allocated memory 77.80 GiB is allocated by PyTorch, and 120.00 MiB is reserved by PyTorch but unallocated.",
    ),
    case(
        "a quantized model",
        TooBig,
        &["load_in_4bit", "nvidia-smi"],
        &["batch", "smallest piece"],
        "ValueError: Some modules are dispatched on the CPU or the disk. Make sure you have enough GPU RAM to fit the quantized model.",
    ),
    case(
        "RAPIDS in a notebook",
        Full,
        &["nvidia-smi"],
        &["Host memory"],
        "MemoryError                               Traceback (most recent call last)\n<ipython-input-3-0> in <module>\n----> 1 \
         rmm.DeviceBuffer(size=1)\nMemoryError: std::bad_alloc: CUDA error at: include/rmm/mr/device/cuda_memory_resource.hpp:70: \
         cudaErrorMemoryAllocation out of memory\n",
    ),
    case(
        "Vulkan, whose memory could not be locked",
        Healthy,
        &[],
        &["Full"],
        "ggml_vulkan: Failed to allocate pinned memory.\nggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory\nllama_new_context: \
         Vulkan_Host output buffer size = 0.24 MiB\n",
    ),
    case(
        "Vulkan, full",
        Full,
        &["vendor's tool", "-ngl"],
        &["nvidia-smi"],
        "ggml_vulkan: Device memory allocation of size 104857600 failed.\nggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory\n",
    ),
    case(
        "TensorFlow on DirectML",
        TooBig,
        &["smaller batch"],
        &["nvidia-smi", "LogicalDevice"],
        "2021-01-02 03:04:05.678901: W tensorflow/core/common_runtime/bfc_allocator.cc:440] Allocator (DmlAllocator) ran out of memory trying \
         to allocate 8.00MiB (rounded to 8388608).\n2021-01-02 03:04:05.678901: I tensorflow/core/common_runtime/bfc_allocator.cc:950] Stats: \n\
         Limit:                  4294967296\nInUse:                  4292870144\nMaxInUse:               4292870144\n",
    ),
    case(
        "TensorFlow's locked memory, from the driver",
        HostMemory,
        &["TF_GPU_HOST_MEM_LIMIT_IN_MB"],
        &["pin_memory"],
        "2022-01-02 03:04:05.678901: W ./tensorflow/core/common_runtime/device/device_host_allocator.h:46] could not allocate pinned host \
         memory of size: 17179869184\n",
    ),
    case(
        "an old kernel",
        HostMemory,
        &["swap"],
        &[],
        "[  401.500000] Killed process 77 (python) total-vm:9136560kB, anon-rss:8021040kB, file-rss:0kB, shmem-rss:0kB\n\
         [  402.000000] oom_reaper: reaped process 77 (python), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB\n",
    ),
    case(
        "a reservation without its head, and a question",
        Full,
        &["allow_growth"],
        &["Healthy"],
        "failed to allocate 9.50G (10200547328 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n\nWith a batch of 1 I still get \
         the cuda out of memory error. Any ideas?\n",
    ),
    case(
        "llama.cpp, indented",
        TooBig,
        &["shorter context"],
        &["Full"],
        "   ggml_backend_cuda_buffer_type_alloc_buffer: allocating 90112.00 MiB on device 0: cudaMalloc failed: out of memory\n   \
         llama_kv_cache_init: failed to allocate buffer for kv cache\n",
    ),
    case(
        "a library of the host",
        HostMemory,
        &["free -h"],
        &["nvidia-smi"],
        "Traceback (most recent call last):\n  File \"run.py\", line 7, in <module>\nRuntimeError: mkl_malloc: failed to allocate memory\n",
    ),
    case(
        "TensorFlow, without a size",
        Full,
        &["nvidia-smi"],
        &["Host memory"],
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: failed to allocate memory [Op:AddV2]",
    ),
    case(
        "MLX",
        Full,
        &["Activity Monitor"],
        &["Host memory", "nvidia-smi"],
        "libc++abi: terminating due to uncaught exception of type std::runtime_error: [malloc_or_wait] Unable to allocate 268435456 bytes.",
    ),
    case(
        "MLX, one buffer",
        RefusedWithRoom,
        &["pieces"],
        &["nvidia-smi"],
        "RuntimeError: [metal::malloc] Attempting to allocate 21474836480 bytes which is greater than the maximum allowed buffer size of \
         14302248960 bytes.",
    ),
    case(
        "another vendor's runtime",
        Full,
        &["free -h"],
        &["Host memory"],
        "2025-01-02 03:04:05.678 | critical | Out of Memory: Not enough space to allocate 536870912 B DRAM buffer across 12 banks",
    ),
    case(
        "a small reservation",
        Full,
        &["nvidia-smi"],
        &["at its start"],
        "2019-01-02 03:04:05.678901: E tensorflow/stream_executor/cuda/cuda_driver.cc:806] failed to allocate 32.00M (33554432 bytes) from \
         device: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    ),
    case(
        "an engine beside PyTorch",
        TooBig,
        &["engine"],
        &["batch", "Another process"],
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 128.00 MiB. GPU 0 has a total capacity of 15.77 GiB of which 40.00 MiB is \
         free. Including non-PyTorch memory, this process has 15.72 GiB memory in use. Of the allocated memory 400.00 MiB is allocated by \
         PyTorch, and 0 bytes is reserved by PyTorch but unallocated.",
    ),
    // No family.
    case(
        "a device, by its words",
        Full,
        &["nvidia-smi"],
        &["Host memory"],
        "renderer: error: GPU buffer allocation failed for layer 7",
    ),
    case(
        "neither device nor host",
        Full,
        &["free -h"],
        &["Host memory", "the device's memory ran out"],
        "solver: fatal error: out of memory in phase 3",
    ),
    // Accelerators and engines with words of their own.
    case(
        "OpenVINO, one buffer",
        RefusedWithRoom,
        &["cut the one allocation"],
        &["paging file"],
        "[GPU] Exceeded max size of memory object allocation: requested 5368709120 bytes, but max alloc size supported by device is \
         4294959104 bytes.Please try to reduce batch size or use lower precision.",
    ),
    case(
        "OpenVINO, the sum",
        TooBig,
        &["smaller"],
        &[],
        "[GPU] Exceeded max size of memory allocation: Required 2147483648 bytes, already occupied : 6442450944 bytes, but available \
         memory size is 7516192768 bytes",
    ),
    case(
        "Neuron",
        Full,
        &["vendor"],
        &["nvidia-smi", "CUDA"],
        "2024-Jan-02 03:04:05.678 90:91 ERROR  TDRV:dmem_alloc_internal   Failed to alloc DEVICE memory: 268435456",
    ),
    case(
        "Gaudi",
        TooBig,
        &[],
        &["nvidia-smi", "CUDA"],
        "RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::34359738368 (32768)MB",
    ),
    case(
        "MLC, its own count",
        TooBig,
        &["serve fewer"],
        &["nvidia-smi"],
        "ValueError: Insufficient GPU memory error: The available single GPU memory is 8100.000 MB, which is less than the sum of model \
         weight size (6500.250 MB) and temporary buffer size (3200.500 MB).",
    ),
    case(
        "Paddle's share of 2018",
        Full,
        &["FLAGS_fraction_of_gpu_memory_to_use"],
        &["allow_growth"],
        "paddle.fluid.core.EnforceNotMet: enforce allocating <= available failed, 11003462067 > 1201702144\n\
         at [/paddle/paddle/fluid/platform/gpu_info.cc:119]",
    ),
    case(
        "XGBoost",
        Full,
        &["max_bin"],
        &["sequences", "Host memory"],
        "xgboost.core.XGBoostError: [01:02:03] /workspace/src/common/device_helpers.cuh:432: Memory allocation error on worker 0: \
         std::bad_alloc: cudaErrorMemoryAllocation: out of memory\n- Free memory: 9437184\n- Requested memory: 8388608\n",
    ),
    case(
        "a checkpoint, to the device it came from",
        Full,
        &["map_location"],
        &[],
        "  File \"/opt/c/lib/python3.8/site-packages/torch/serialization.py\", line 157, in _cuda_deserialize\n\
         RuntimeError: CUDA error: out of memory",
    ),
    case(
        "ranks on one device",
        OtherProcess,
        &["set_device(local_rank)"],
        &[],
        "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of 31.73 GiB of which \
         20.00 MiB is free. Process 11 has 14.10 GiB memory in use. Process 12 has 14.20 GiB memory in use. Including non-PyTorch memory, \
         this process has 3.30 GiB memory in use. Of the allocated memory 2.80 GiB is allocated by PyTorch, and 10.00 MiB is reserved by \
         PyTorch but unallocated.",
    ),
    case(
        "a worker of vLLM",
        TooBig,
        &["--gpu-memory-utilization"],
        &["accumulate"],
        "(VllmWorker rank=0 pid=31) ERROR 01-02 03:04:05 torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a \
         total capacity of 23.57 GiB of which 500.00 MiB is free. Process 31 has 23.08 GiB memory in use. Of the allocated memory 21.90 GiB \
         is allocated by PyTorch, and 90.00 MiB is reserved by PyTorch but unallocated.",
    ),
    case(
        "CUDA's own pool, whose idle part is not told",
        TooBig,
        &["smaller"],
        &["Another process"],
        "torch.cuda.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 9.90 \
         GiB\nRequested               : 64.00 MiB\nDevice limit            : 11.76 GiB\nFree (according to CUDA): 0 bytes\nPyTorch limit (set \
         by user-supplied memory fraction)\n                        : 17179869184.00 GiB\n",
    ),
    case(
        "ROCm, refused with room",
        RefusedWithRoom,
        &["max_map_count"],
        &["paging file larger"],
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 6.00 GiB. GPU 0 has a total capacity of 96.00 GiB of which 17.00 GiB is \
         free. Of the allocated memory 70.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.",
    ),
];

//! Servers of language models, which divide a device into weights and a cache before the first request.

use super::{Case, case};
use plimsoll_explain::VerdictKind::*;

pub(super) const CASES: &[Case] = &[
    case(
        "SGLang, its cache in the host's memory",
        HostMemory,
        &["--hicache-size"],
        &["memmap", "rows", "batch"],
        "[2026-01-02 07:04:51 TP1] Allocating 48.00 GB host memory for hierarchical KV cache.\n\
         Traceback (most recent call last):\n\
         \x20 File \"/srv/sglang/python/sglang/srt/mem_cache/memory_pool_host.py\", line 88, in __init__\n\
         ValueError: Not enough host memory available. Requesting 48.00 GB but only have 20.50 GB free. Please reduce the size of \
         the hierarchical cache.",
    ),
    case(
        "vLLM, its graphs beside the cache",
        TooBig,
        &["gpu-memory-utilization"],
        &["gradients", "training"],
        "INFO [kv_cache_utils.py:870] GPU KV cache size: 141,200 tokens\n\
         ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 128.00 MiB. GPU 0 has a total capacity of 23.50 GiB of \
         which 71.00 MiB is free. Including non-PyTorch memory, this process has 23.40 GiB memory in use. Of the allocated memory \
         21.90 GiB is allocated by PyTorch, with 100.00 MiB allocated in private pools (e.g., CUDA Graphs), and 220.00 MiB is \
         reserved by PyTorch but unallocated.",
    ),
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
    case(
        "SGLang, while it answers",
        TooBig,
        &["--max-running-requests"],
        &["raise --mem-fraction-static if the start fails"],
        "[2025-06-02 11:02:51 TP1] Decode out of memory. Try to lower your batch size.\n\
         Try to allocate 64 tokens.\n\
         Available tokens: 12",
    ),
    case(
        "SGLang, its graphs",
        TooBig,
        &["lower --mem-fraction-static", "--cuda-graph-max-bs"],
        &["raise --mem-fraction-static", "accumulate"],
        "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of 47.54 GiB of \
         which 30.00 MiB is free. Process 5 has 47.50 GiB memory in use. Of the allocated memory 46.40 GiB is allocated by PyTorch, and \
         90.00 MiB is reserved by PyTorch but unallocated.\nPossible solutions:\n1. set --mem-fraction-static to a smaller value (e.g., 0.8)\n",
    ),
    case(
        "Text Generation Inference, the warm-up's own error",
        TooBig,
        &["--max-batch-prefill-tokens"],
        &["accumulate"],
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 22.20 GiB total capacity; 20.50 GiB already \
         allocated; 0.90 GiB free; 20.60 GiB reserved in total by PyTorch)\n\
         RuntimeError: Not enough memory to handle 8192 prefill tokens. You need to decrease `--max-batch-prefill-tokens`\n",
    ),
];

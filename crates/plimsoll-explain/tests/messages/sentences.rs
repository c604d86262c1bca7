//! Sentences of programs that no reader knows by name: known by their words and the distance between them, in any order, case and
//! language; and text that has such words and tells of no failure.

use super::{Case, case, explained, shown};
use plimsoll_explain::VerdictKind::*;

pub(super) const CASES: &[Case] = &[
    // Memory is out, exhausted, not enough.
    case(
        "an allocator's own words",
        Full,
        &["nvidia-smi"],
        &["free -h"],
        "CudaSlabAllocator out of memory\n [requestedSpace: 97517568 B]",
    ),
    case("a constant", Full, &["nvidia-smi"], &[], "E       libslab_cffi.SlabError: CUDA_SLAB_OUT_OF_MEMORY"),
    case(
        "host between the words",
        HostMemory,
        &["free -h"],
        &["nvidia-smi"],
        "solver.basic.SolverError: Out of Host Memory",
    ),
    case(
        "device between the words",
        Full,
        &["nvidia-smi"],
        &["free -h"],
        "Fatal: ran out of video memory while it built level 3",
    ),
    case("not enough", Full, &["nvidia-smi"], &[], "error: not enough free device memory for 3 layers"),
    case(
        "none available",
        Full,
        &[],
        &["Host memory"],
        "pool failed because no memory is available (slab.py:12)",
    ),
    case("exhausted", Full, &[], &[], "mesher: fatal: memory exhausted in refine()"),
    case(
        "insufficient, first",
        HostMemory,
        &[],
        &["nvidia-smi"],
        "FATAL: insufficient system memory to start 12 workers",
    ),
    case(
        "not enough space of a context's memory",
        Full,
        &[],
        &[],
        "slab_new_object: not enough space in the context's memory pool (needed 421545072, available 419430400)",
    ),
    case("both kinds", Full, &["free -h"], &[], "Error: System is out of GPU and shared host memory"),
    case(
        "figures of the line before are none of the request",
        Full,
        &["nvidia-smi"],
        &["were requested", "GiB"],
        "Fra:1 Mem:4101.20M (Peak 4101.20M) | Mem:9517.36M, Peak:9517.36M | Updating Images\nSystem is out of GPU memory",
    ),
    // Something could not be allocated.
    case("can't", HostMemory, &[], &["nvidia-smi"], "postern: can't allocate memory for 12 threads: malloc"),
    case(
        "an allocation that failed",
        Full,
        &["nvidia-smi"],
        &[],
        "vk_renderer: GPU memory allocation failed",
    ),
    case(
        "could not be allocated",
        Full,
        &["nvidia-smi"],
        &[],
        "ERROR a buffer of 512 MiB could not be allocated on the GPU",
    ),
    case(
        "a runtime's function",
        Full,
        &["npu-smi"],
        &["nvidia-smi"],
        "ERROR 01-02 [engine.py:9] Call rtMalloc fail, purpose: weights, type = 2, size:2147483648, device_id:0[FUNC:Alloc]",
    ),
    case(
        "locked by HIP",
        HostMemory,
        &["ulimit -l"],
        &["rocm-smi"],
        ":3:hip_memory.cpp :713 : 77 us: 12 : [7f] hipHostRegister: Returned hipErrorOutOfMemory :",
    ),
    case(
        "RAPIDS without its cause",
        Full,
        &["nvidia-smi", "rmm.reinitialize"],
        &["Host memory", "cupy"],
        "MemoryError: std::bad_alloc: out_of_memory: CUDA error at: /opt/conda/include/rmm/mr/device/cuda_memory_resource.hpp",
    ),
    case(
        "a page",
        HostMemory,
        &[],
        &["nvidia-smi"],
        "Uncaught (in promise) RangeError: Array buffer allocation failed\n    at new ArrayBuffer (<anonymous>)",
    ),
    // A limit was exceeded, a process ended.
    case(
        "more than a pool",
        Full,
        &[],
        &[],
        "[ERROR] PRE(1,7f,python):2026-01-02 [slab.cc:39] Grow] Used : 4194304000 plus alloc size : 268435456 is more than total mem size : 4294967296.",
    ),
    case("exceeding", Full, &[], &[], "error: request of 600 MiB exceeds the remaining memory of the pool"),
    case(
        "ended, with a count",
        HostMemory,
        &["memory="],
        &["nvidia-smi"],
        "(raylet) node_manager.cc:30: 3 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons at node",
    ),
    case(
        "evicted",
        HostMemory,
        &[],
        &["nvidia-smi"],
        "status: Failed, message: task was evicted because of low memory",
    ),
    case(
        "a server's plan",
        HostMemory,
        &["smaller model"],
        &["nvidia-smi"],
        "time=2026-01-02 level=WARN source=server.go:10 msg=\"model request too large for system\" requested=\"96.1 GiB\" available=\"62.0 GiB\"",
    ),
    case(
        "a GPU's resources",
        Full,
        &["xpu-smi"],
        &["nvidia-smi"],
        "Exception from src/plugins/intel_gpu/src/runtime/ocl/ocl_engine.cpp:90:\n[GPU] out of GPU resources",
    ),
    case(
        "what the message advises",
        Full,
        &["the message itself says: Please set a smaller number for `--max-slots"],
        &[],
        "RuntimeError: alloc_slots runs out of memory. Please set a smaller number for `--max-slots`. free=1",
    ),
    case(
        "Windows, no device named",
        Full,
        &["Task Manager", "Event Viewer"],
        &["dmesg", "free -h"],
        "RuntimeError: Check 'false' failed at C:\\b\\src\\core.cpp:117: Failed to allocate 3221225472 bytes of memory",
    ),
    case("R", HostMemory, &["fread"], &["numpy", "float32"], "Error: cannot allocate vector of size 7.5 Gb"),
    case(
        "a hosted notebook",
        HostMemory,
        &["session with more memory"],
        &["--memory"],
        "Your notebook tried to allocate more memory than is available. It has restarted.",
    ),
    // In the language of the system.
    case(
        "Chinese, device",
        Full,
        &["nvidia-smi"],
        &[],
        "[ERROR] train.py:12 device 0: 显存不足，请减小批大小",
    ),
    case("Chinese, host", HostMemory, &[], &["nvidia-smi"], "-bash: fork: 无法分配内存"),
    case(
        "Russian",
        HostMemory,
        &[],
        &["nvidia-smi"],
        "[error] C:/work/train.exe, line 12: Недостаточно памяти",
    ),
    case(
        "German",
        HostMemory,
        &[],
        &["nvidia-smi"],
        "Fehler: Nicht genügend Arbeitsspeicherressourcen verfügbar",
    ),
    case("Japanese", HostMemory, &[], &["nvidia-smi"], "[ERROR] C:/work/train.py line 12: メモリ不足です"),
    // The head of a message is lost, or its end.
    case(
        "TensorFlow's class in a notebook's heading",
        Full,
        &[],
        &[],
        "ResourceExhaustedErrorTraceback (most recent call last)\n<ipython-input-2> in <module>()\n---> 12 model.fit(x, y)",
    ),
    case(
        "candle on Metal",
        Full,
        &["Activity Monitor"],
        &["nvidia-smi"],
        "Error: Metal error Failed to create metal resource: Buffer",
    ),
    case(
        "XLA's buffers without the error above",
        Full,
        &[],
        &["Healthy"],
        "        XLA Label: fusion\n        Shape: f32[64,1080,1920]\n        ==========================\n\n    Buffer 9:\n        Size: 506.25MiB\n        \
         XLA Label: custom-call\n        Shape: f32[1,64,1080,1920]\n        ==========================\n",
    ),
    case(
        "a callback that failed",
        Full,
        &["nvidia-smi"],
        &[],
        "Exception in callback step(): GPU out of memory",
    ),
    case(
        "what is to be tried again",
        Full,
        &[],
        &[],
        "error: not enough memory, close programs and try again",
    ),
    // What is no failure, or no failure of memory.
    case(
        "freed and went on",
        Healthy,
        &[],
        &["Full"],
        "WARNING: CUDA memory allocation failed; attempting to free up memory...\n... running a quick GC (freed 3.1 GiB)\nepoch 2",
    ),
    case(
        "a tactic by its size",
        Healthy,
        &[],
        &["Full"],
        "[TensorRT] ERROR: Tactic Device request: 2304MB Available: 1536MB. Device memory is insufficient to use tactic.",
    ),
    case(
        "a worker that aborted",
        NotMemory,
        &["faulthandler"],
        &["dmesg"],
        "RuntimeError: DataLoader worker (pid 99) is killed by signal: Aborted. \nRuntimeError: DataLoader worker (pid(s) 99) exited unexpectedly",
    ),
];

#[test]
fn text_that_only_has_the_words_gets_no_verdict_of_memory() {
    for text in [
        "If you run out of memory, use smaller batches.\nThis prevents CUDA out of memory errors in long runs.\n",
        "- handle CUDA out of memory by trying again with less\n- fix out of memory errors in the loader\n",
        "12ab9cd Avoid out of memory in evaluation\n",
        "test_out_of_memory_is_told ... ok\ntests/test_oom.py::test_not_enough_memory PASSED\n",
        "    except torch.cuda.OutOfMemoryError:\n        if \"out of memory\" in str(e):\nValueError: 3 is not 4\n",
        "ImportError: cannot import name 'OutOfMemoryError' from 'torch.cuda'\n",
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/out_of_memory/a.json'\n",
        "      --oom-kill-disable   Disable OOM Killer\n  -m, --memory bytes       Memory limit\n",
        "INFO Executor: starting with -Xmx8g -XX:+HeapDumpOnOutOfMemoryError\n",
        "Error: failed to allocate IP address for pod: no available addresses in subnet\n",
        "srun: error: Unable to allocate resources: Requested node configuration is not available\n",
        "ValueError: Sequence length 137000 is larger than the maximum 131072 tokens of this model\n",
        "KeyError: 'max_memory_allocated'\nERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n",
        "We keep 10% of device 0 for the buffer to avoid OOM. You can set `max_memory` to use more memory.\n",
        "step 1370 | loss 2e-9 | mem 23.4GB of 79.1GB | 137 ms\nallocated: 10.2 GiB, reserved: 12.1 GiB, max allocated: 11.9 GiB\n",
        "python(12) malloc: *** error for object 0x7f: pointer being freed was not allocated\n",
        "There is enough memory for 4 more models, and no model has more memory than it needs.\n",
    ] {
        let said = explained(text.as_bytes()).map(|explanation| shown(&explanation));
        assert_eq!(said, None, "{text}");
    }
}

#[test]
fn figures_beside_a_refusal_are_told_as_what_their_words_say() {
    let told = |text: &str| shown(&explained(text.as_bytes()).unwrap());
    let text = told(
        "what() -> \"slab_pool.h:303: Error: Out of memory on GPU. Requested 1880 MB; Free 902.061425 MB\"\n",
    );
    assert!(text.contains("(1.84 GiB were refused, 902 MiB were free)"), "{text}");
    let text = told("(caught) OutOfMemory: 3 GB GPU memory requested, 512 MB available\n");
    assert!(text.contains("(3.00 GiB were refused, 512 MiB were free)"), "{text}");
}

#[test]
fn numbers_that_are_no_sizes_are_not_told_as_sizes() {
    for text in [
        "ERROR 04-09 21:56:46 [PID: 210907] GPU_Allocation_Failure(EL0004): Failed to allocate memory requested by GE module.\n",
        "(caller: 00007FFA8336D326) Exception(1) tid(479000) 8007000E Not enough GPU memory resources are available.\n",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00-1.09 GiB.\n",
        "2026-01-02T03:04:05.123456Z ERROR gpu: out of memory (pid 4194304, build 20260102)\n",
    ] {
        let text = shown(&explained(text.as_bytes()).unwrap());
        assert!(!text.contains(" were refused"), "{text}");
    }
}

#[test]
fn a_long_line_is_quoted_around_the_words_that_say_it() {
    let line = format!(
        "ERROR in callback functools.partial({}) exception='cuMemAlloc: out of memory on GPU')",
        "<object at 0x7f> ".repeat(60)
    );
    let text = shown(&explained(line.as_bytes()).unwrap());
    assert!(text.contains("cuMemAlloc: out of memory on GPU"), "{text}");
}

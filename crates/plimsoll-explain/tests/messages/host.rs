//! The host's memory: the kernel, schedulers, containers, launchers, Windows, and pages that cannot be had.

use super::{Case, case};
use plimsoll_explain::VerdictKind::*;

pub(super) const CASES: &[Case] = &[
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
        "TensorFlow's pool of pages",
        TooBig,
        &[],
        &[],
        "E1103 18:23:55.103160 34137 gpu_cudamallocasync_allocator.cc:361] gpu_async_0 cuMemAllocAsync failed to allocate 85899345920 \
         bytes: RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of memory\n Reported by CUDA: Free memory/Total memory: \
         22635544576/85095874560",
    ),
    case(
        "HTCondor",
        HostMemory,
        &["request_memory"],
        &["sbatch"],
        "012 (77.000.000) 2024-05-04 12:10:01 Job was held.\n\
         \tJob has gone over cgroup memory limit of 8192 megabytes. Last measured usage: 8190 megabytes. Consider resubmitting with a higher request_memory.",
    ),
    case(
        "Kubernetes, a node that ran low",
        HostMemory,
        &["hold less at once"],
        &["the device ran out"],
        "  Warning  Evicted  41s  kubelet  The node was low on resource: memory. Threshold quantity: 100Mi, available: 71200Ki. Container main was using 60218424Ki, request is 0, has larger consumption of memory.",
    ),
    case(
        "Dask",
        HostMemory,
        &["--memory-limit"],
        &["sbatch"],
        "2024-03-02 10:00:03,201 - distributed.nanny.memory - WARNING - Worker tcp://10.0.0.4:40001 (pid=91) exceeded 95% memory budget. Restarting...",
    ),
    case(
        "a model's file that cannot be mapped",
        HostMemory,
        &["overcommit_memory"],
        &["max_map_count", "the one tensor"],
        "RuntimeError: unable to mmap 9976578928 bytes from file </data/pytorch_model-00002-of-00003.bin>: Cannot allocate memory (12)",
    ),
];

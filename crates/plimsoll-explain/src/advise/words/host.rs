//! Advice on the host's memory: limits of jobs and containers, shared and locked memory, paging files, heaps.

use super::{Lines, line, one_tensor};
use crate::analyse::facts::Facts;
use crate::analyse::verdict::is_of_ray;
use crate::program::{Backend, Job, Platform, Program, Server};
use crate::recording::Framework;
use crate::sign::{Sign, SignKind};
use plimsoll_memory::format_bytes;

/// What shows how much of the host's memory is in use.
pub(super) fn table(program: &Program) -> &'static str {
    match program.platform {
        Some(Platform::Windows) => "Task Manager (Performance, Memory)",
        Some(Platform::MacOs) => "Activity Monitor (Memory)",
        _ => "`free -h`",
    }
}

/// What keeps a record of processes that were ended and requests that were refused.
pub(super) fn records(program: &Program) -> &'static str {
    match program.platform {
        Some(Platform::Windows) => "Event Viewer (Windows Logs, System: Resource-Exhaustion-Detector)",
        Some(Platform::MacOs) => "Console (Crash Reports: JetsamEvent)",
        _ => "`sudo dmesg -T`",
    }
}

/// What to change where the host refused a request.
pub(super) fn request(facts: &Facts<'_>) -> Lines {
    let mut lines = Vec::new();
    if facts.device.sign.as_ref().is_some_and(|sign| sign.quote.contains("(ulimit -v)")) {
        lines.push(line(
            "raise the limit on addresses: `ulimit -v unlimited` before the program is started (resource.RLIMIT_AS within it)",
            "it counts what is mapped, not what is used, and libraries map many times what they use",
        ));
    }
    if facts.device.program.platform == Some(Platform::Windows)
        && facts.refused.is_none_or(|bytes| bytes < 4 << 30)
    {
        lines.push(line(
            "make the paging file larger (System, Advanced, Performance, Virtual memory), and end programs that are not needed",
            "Windows refuses what it could not keep, even if memory is free",
        ));
    }
    let says = |words: &str| facts.device.sign.as_ref().is_some_and(|sign| sign.quote.contains(words));
    let large = facts.refused.is_some_and(|bytes| bytes >= 4 << 30) && facts.framework == Framework::Unknown;
    if says("annot allocate vector of size") {
        lines.push(line(
            "work on fewer rows or columns at once (fread(select = …), arrow::open_dataset), remove what is not needed (rm(), gc()), or keep \
             zeros out of matrices (Matrix)",
            "R copies an object when it is changed, and its numbers take eight bytes each",
        ));
    } else if let Some(setting) = server_cache(facts.device.program.server) {
        lines.push(line(
            setting,
            "it is the server's own cache in the host's memory, which each rank has for itself",
        ));
    } else if large {
        lines.push(line(
            "make the array smaller: chunks of rows, a smaller type (float32 for float64), or numpy.memmap",
            format!("it alone is {}", format_bytes(facts.refused.unwrap_or(0))),
        ));
    }
    if facts.device.name.contains("host_bfc") {
        lines.push(line(
            "raise the pool's limit: TF_GPU_HOST_MEM_LIMIT_IN_MB (before TensorFlow 1.14: TF_CUDA_HOST_MEM_LIMIT_IN_MB), or copy less at once to and from the device",
            "this pool is of locked memory of the host, 64 GiB at most by default",
        ));
    } else if facts.device.sign.as_ref().is_some_and(|sign| sign.quote.contains("unable to mmap")) {
        lines.push(line(
            "add memory or swap, or let the system promise more than it has: sudo sysctl -w vm.overcommit_memory=1",
            "a mapping that the program may write to counts as memory, as large as the file, before any of it is read",
        ));
        lines.push(line(
            "compare `ulimit -v` and the container's memory limit with the size of the file",
            "they bound what a process may map",
        ));
    } else if facts.device.program.backend == Some(Backend::Cpu) || facts.framework == Framework::PyTorch {
        lines.extend(one_tensor(facts));
        lines.push(line(
            "run smaller inputs, or fewer at once; or move the model to a device",
            "on the CPU, activations are in the host's memory",
        ));
    }
    lines.push(line(
        match facts.device.program.platform {
            Some(Platform::Windows | Platform::MacOs) => {
                format!("look at {} while the program runs", table(&facts.device.program))
            }
            _ => "run `free -h` (Windows: Task Manager) while the program runs".into(),
        },
        "it tells whether the host is full, or only this program's limit",
    ));
    lines
}

/// What a server keeps in the host's memory is set by.
fn server_cache(server: Option<Server>) -> Option<&'static str> {
    match server? {
        Server::Vllm => {
            Some("lower --swap-space (GiB for each GPU), --cpu-offload-gb or --kv-offloading-size")
        }
        Server::Sglang => Some(
            "lower --hicache-size (GB for each rank) or --hicache-ratio, or leave out --enable-hierarchical-cache",
        ),
        _ => None,
    }
}

/// Whether a process was ended on macOS: its shells print the number of the signal.
fn is_of_mac(facts: &Facts<'_>, sign: &Sign) -> bool {
    facts.device.program.platform == Some(Platform::MacOs) || sign.quote.contains("Killed: 9")
}

/// What to change where the host's memory ran out, by the words that say so.
pub(super) fn advice(facts: &Facts<'_>, sign: &Sign) -> Lines {
    let quote = sign.quote.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| quote.contains(word));
    let loads = has(&["dataloader"])
        || matches!(facts.device.program.job, Some(Job::Training | Job::Evaluation | Job::DataLoading))
        || matches!(facts.framework, Framework::PyTorch | Framework::TensorFlow);
    let workers = if loads {
        line(
            "load less at once: fewer loader workers (num_workers), smaller prefetch, data read lazily",
            "each worker is a process that holds its own copy of what it has read",
        )
    } else {
        line(
            "hold less at once: read data in chunks or lazily, and run fewer processes side by side",
            "each process has its own copy of what it has read",
        )
    };
    match sign.kind {
        SignKind::KilledByLimit => {
            let raise = match () {
                () if has(&[
                    "slurm",
                    "srun",
                    "stepid",
                    "job memory limit",
                    "step memory limit",
                    "exceeded memory limit",
                    "out_of_me",
                ]) =>
                {
                    line(
                        "ask for more memory: sbatch --mem=… (or --mem-per-cpu)",
                        "the job's limit was reached; `sacct -j JOB -o MaxRSS` tells what it used",
                    )
                }
                () if has(&["term_memlimit", "lsf"]) => {
                    line("ask for more memory: bsub -M … -R \"rusage[mem=…]\"", "the job's limit was reached")
                }
                () if has(&["gone over"]) => line(
                    "ask for more memory: request_memory in the submit file (condor_qedit JOB RequestMemory … for a held job)",
                    "the job's limit was reached",
                ),
                () if has(&["memory budget"]) => line(
                    "give each worker more memory: dask worker --memory-limit (LocalCluster(memory_limit=…)), and run fewer workers",
                    "Dask ends a worker that reaches 95 % of its limit, an equal share of the machine by default",
                ),
                () if has(&["your notebook", "your session"]) => line(
                    "use a session with more memory: another kind of machine (Colab: Runtime, Change runtime type; Kaggle: Settings, Accelerator)",
                    "a hosted notebook's memory is fixed when it starts",
                ),
                () if has(&["pbs"]) => line(
                    "ask for more memory: qsub -l select=1:mem=… (or -l mem=…)",
                    "the job's limit was reached",
                ),
                () if has(&["yarn", "executor", "physical memory limits"]) => line(
                    "raise spark.executor.memoryOverhead (spark.yarn.executor.memoryOverhead before Spark 2.3), or spark.executor.memory",
                    "YARN counts all that the container's processes hold, Python's and native memory beside Java's heap",
                ),
                () if has(&["oomkilled", "pod", "container"]) => line(
                    "raise resources.limits.memory of the container (docker run --memory)",
                    "the container's limit was reached; the machine may have more",
                ),
                () if is_of_ray(sign) => line(
                    "run fewer tasks at once: reserve what each needs (@ray.remote(memory=…)), or more CPUs for each",
                    "Ray ends tasks when the node has little memory left",
                ),
                () => line(
                    "raise the memory limit of the job or container",
                    "it was reached; the machine may have more",
                ),
            };
            vec![raise, workers]
        }
        SignKind::KilledByKernel => {
            vec![workers, line("add memory or swap, or run on a larger machine", "the whole host was full")]
        }
        SignKind::JavaHeap if sign.quote.contains("JavaScript") => vec![
            line(
                "raise the limit of Node's heap: NODE_OPTIONS=--max-old-space-size=8192 (MiB)",
                "the heap cannot grow beyond it, whatever the machine has",
            ),
            line("hold less at once: streams, or data in chunks", "what is reachable is not collected"),
        ],
        SignKind::JavaHeap => vec![
            line(
                "give Java more: spark.executor.memory and spark.driver.memory, or -Xmx",
                "the heap cannot grow beyond it, whatever the machine has",
            ),
            line(
                "cut the work into more partitions, and collect less on the driver",
                "each task holds its partition on the heap",
            ),
        ],
        SignKind::Killed if is_of_mac(facts, sign) => vec![
            line(
                "look into Console (Crash Reports: JetsamEvent), and at Activity Monitor (Memory) while the program runs",
                "they tell whether memory was the reason, and how much the process held",
            ),
            workers,
        ],
        SignKind::Killed => vec![
            line(
                "run `sudo dmesg -T | grep -i 'killed process'` (in a container: look for OOMKilled)",
                "it tells whether memory was the reason, and how much the process held",
            ),
            workers,
        ],
        SignKind::Mappings => vec![
            line(
                "raise the number of mappings: sudo sysctl -w vm.max_map_count=262144 (65530 by default)",
                "every tensor that is shared is a mapping; `wc -l /proc/PID/maps` tells how many there are",
            ),
            line(
                "or share less: keep data as a few large tensors, copy what a queue hands over, fewer num_workers",
                "a list of many small tensors is a mapping for each",
            ),
        ],
        SignKind::SharedMemory => vec![
            line(
                "give the container more shared memory: docker run --shm-size=8g (or --ipc=host; Kubernetes: an emptyDir with medium: Memory at /dev/shm)",
                "containers have 64 MiB of it by default; `df -h /dev/shm` tells",
            ),
            if sign.quote.contains("nccl") {
                line(
                    "or have NCCL not use it: NCCL_SHM_DISABLE=1",
                    "ranks of one machine then exchange data through devices' links or the network, which may be slower",
                )
            } else {
                line(
                    "or hand over less: fewer num_workers, or num_workers=0",
                    "each worker puts whole batches there",
                )
            },
        ],
        SignKind::PageFile => vec![
            line(
                "make the paging file larger (System, Advanced, Performance, Virtual memory), on a drive with room",
                "Windows refuses what it could not keep, even if memory is free",
            ),
            line(
                "use fewer loader workers, or num_workers=0",
                "each worker is a new process that loads the framework's libraries again",
            ),
        ],
        SignKind::PinnedMemory if facts.framework == Framework::TensorFlow => vec![
            line(
                "keep TensorFlow's pool of locked memory to what the host can lock: TF_GPU_HOST_MEM_LIMIT_IN_MB (before TensorFlow 1.14: TF_CUDA_HOST_MEM_LIMIT_IN_MB)",
                "the pool doubles each time it grows, and asks for it in one piece",
            ),
            line(
                "copy less at once to and from the device: smaller batches, less prefetching",
                "what is copied passes through locked memory",
            ),
        ],
        SignKind::PinnedMemory if sign.quote.contains("ibv_") => vec![
            line(
                "let the job lock memory: `ulimit -l unlimited` (docker run --ulimit memlock=-1; memlock in /etc/security/limits.conf; Slurm: PropagateResourceLimitsExcept=MEMLOCK)",
                "InfiniBand's queues and buffers are locked pages, and 64 KiB to 8 MiB may be locked by default",
            ),
            line("run `ulimit -l` where the job runs", "limits of a shell are not always those of a job"),
        ],
        SignKind::PinnedMemory => vec![
            line(
                "set pin_memory=False in the loader, or use fewer workers",
                "locked pages cannot be swapped, and the driver may lock only a part of the host's memory",
            ),
            line(
                "look at `ulimit -l` and `free -h`",
                "they tell how much may be locked and how much is left",
            ),
        ],
        _ if facts.framework == Framework::LlamaCpp => vec![
            line(
                "use a smaller model or quantization, or a shorter context",
                "weights that are not on a device are in the host's memory",
            ),
            line(
                match facts.device.program.platform {
                    Some(Platform::Windows | Platform::MacOs) => {
                        format!("look at {}", table(&facts.device.program))
                    }
                    _ => "run `free -h`".into(),
                },
                "it tells what others hold",
            ),
        ],
        _ => request(facts).into_iter().chain([workers]).collect(),
    }
}

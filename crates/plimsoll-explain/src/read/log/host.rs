//! The host's memory: what operating systems, batch systems, containers and languages say when it runs out.
//!
//! Linux' OOM killer words it in the kernel's log (`Out of memory: Killed process 1234 (python)`, `Kill process` until
//! 4.20, `Memory cgroup out of memory` for a limit), and the process itself says nothing: its shell prints `Killed`, its
//! parent sees signal 9 or code 137. Slurm, LSF, PBS, Kubernetes and Ray have sentences of their own. Python's `MemoryError`,
//! NumPy's `Unable to allocate`, C++'s `std::bad_alloc` and PyTorch's `DefaultCPUAllocator` are refusals by the host.
//! PyTorch's loader hands batches over in `/dev/shm`, which a container has 64 MiB of. Windows refuses what it cannot
//! promise (error 1455), whatever is free. Locking pages for a device fails for reasons of the host as well.

use super::found::{Found, has};
use super::parse::{Size, after, number, size_after, word};
use crate::recording::{Device, Framework};
use crate::sign::SignKind;

/// Words of which one is in every line of interest.
pub(super) const WORDS: &[&str] = &[
    "illed",
    "exited unexpectedly",
    "return code = -9",
    "available RAM",
    "more memory than is available",
    "illing",
    "Kill process",
    "oom-kill",
    "oom_kill",
    "oom_reaper",
    "OOMKill",
    "OUT_OF_ME",
    "ut Of Memory",
    "137",
    "code -9",
    "=9/KILL",
    "annot allocate vector",
    "too large for system",
    "Array buffer alloc",
    "vector memory exhausted",
    "runtime: out of memory",
    "nsufficient memory",
    "LLVM ERROR",
    "exit code -9",
    "exitcode: -9",
    "exitcode  : -9",
    "exit code: -9",
    "exit status -9",
    "SIGKILL",
    "ignal 9",
    "ignal: 9",
    "memory limit",
    "memory budget",
    "on resource: memory",
    "MEMLIMIT",
    "memory pressure",
    "low on memory",
    "(shm)",
    "shared memory",
    "/dev/shm",
    "</torch_",
    "us error",
    "1455",
    "paging file",
    "页面文件太小",
    "bad_alloc",
    "bad allocation",
    "MemoryError",
    "not enough memory",
    "annot allocate memory",
    "Unable to allocate",
    "can't allocate memory",
    "Errno 12]",
    "WinError 8]",
    "os error 12",
    "malloc of size",
    "ut of memory: ",
    "pinned",
    "HostAlloc",
    "HostRegister",
    "AllocHost",
    "MallocHost",
    "HostMalloc",
    "alloc host",
    "bytes on host",
    "system memory",
    "RAM!",
    "pin memory",
    "pin_memory",
    "memory allocation of",
    "ulimit",
    "may map at most",
    "RLIMIT",
    "exceeded limit",
    "heap out of memory",
    "OUT_OF_HOST_MEMORY",
    "exceeds 10% of",
    "OutOfMemoryError",
    "Java heap",
    "GC overhead",
    "exceeding memory limits",
    "memory on node",
    "SIGKILL(",
    "unexpectedly terminated",
    "terminated abruptly",
    "= -7",
    ": -7",
    "SIGBUS",
    "code 135",
    "CPU Memory",
    "earlyoom[",
    "systemd-oomd",
    "total-vm:",
    "egmentation fault",
    "killed by signal",
    "SIGSEGV",
    "= -11",
    ": -11",
    "code 139",
    "device-side assert",
    "Errno 28]",
    "已杀死",
    "已砍掉",
    "強制終了",
    "죽었음",
    "Убито",
    "Getötet",
    "Processus arrêté",
    "Terminado (killed)",
    "Ucciso",
    "Morto",
];

/// What a line says, if it is one of these.
pub(super) fn read(line: &str, at: u64) -> Option<Found> {
    if line.contains("exceeds 10% of") && line.contains("system memory") {
        return Some(Found::sign(SignKind::Warning, "host", line, at).by(Framework::TensorFlow));
    }
    killed(line, at)
        .or_else(|| windows(line, at))
        .or_else(|| shared_memory(line, at))
        .or_else(|| pinned(line, at))
        .or_else(|| refused(line, at))
        .or_else(|| ended(line, at))
        .or_else(|| crashed(line, at))
}

fn host(kind: SignKind, line: &str, at: u64) -> Option<Found> {
    Some(Found::sign(kind, "host", line, at))
}

/// Killed for memory, and somebody says so.
fn killed(line: &str, at: u64) -> Option<Found> {
    const LIMITS: [&str; 31] = [
        "emory cgroup out of memory",
        "CONSTRAINT_MEMCG",
        "oom-kill event",
        "oom_kill event",
        "OOM Killed",
        "OOM-killed",
        "cgroup out-of-memory handler",
        "OOMKilled",
        "Exceeded job memory limit",
        "Exceeded step memory limit",
        "exceeded memory limit",
        "exceeded job memory limit",
        "TERM_MEMLIMIT",
        // A column of sacct is that wide.
        "OUT_OF_ME+",
        "State: OUT_OF_MEMORY",
        "State=OUT_OF_MEMORY",
        "Reason=OutOfMemory",
        "running beyond physical memory limits",
        "exceeding memory limits",
        "of the memory on node",
        "killed due to memory pressure",
        "killed due to the node running low on memory",
        "running low on memory",
        "was killed due to low memory",
        "Node out of memory",
        "exceeding memory limit",
        "resources_used.mem",
        // HTCondor, Dask.
        "Job has gone over ",
        "% memory budget. Restarting",
        // Notebooks that are hosted.
        "using all available RAM",
        "tried to allocate more memory than is available",
    ];
    const KERNEL: [&str; 12] = [
        "Out of memory: Killed process",
        "Out of memory: Kill process",
        "invoked oom-killer",
        "oom-kill:",
        "oom_reaper: reaped process",
        "killed by the OOM killer",
        "result 'oom-kill'",
        "systemd-oomd killed",
        "systemd-oomd[",
        "earlyoom[",
        ") total-vm:",
        "The node was low on resource: memory",
    ];
    // A container that was not killed is described in the same words.
    let described = after(line, "OOMKilled\":").or_else(|| after(line, "OOMKilled:"));
    if described.is_some_and(|rest| rest.trim_start().starts_with("false")) {
        return None;
    }
    // What `plimsoll run` counted.
    if line.contains("oom_kill rose by ") {
        let limit = size_after(line, "that is limited to ").map(|size| size.bytes);
        let kind = if limit.is_some() { SignKind::KilledByLimit } else { SignKind::KilledByKernel };
        return host(kind, line, at).map(|found| found.bytes(None, limit));
    }
    if has(line, &LIMITS) || line.contains("mem ") && line.contains(" exceeded limit ") {
        // `Job 12 exceeded memory limit (4200000 > 4194304), being killed`: kilobytes.
        let (used, limit) = after(line, "exceeded memory limit (").map_or((None, None), |rest| {
            let kib = |text: Option<&str>| text.and_then(number).and_then(|n| n.checked_mul(1024));
            (kib(Some(rest)), kib(after(rest, " > ")))
        });
        // `Job has gone over memory limit of 4096 megabytes. Peak usage: 4123 megabytes.`
        let mib = |marker| after(line, marker).and_then(number).and_then(|n| n.checked_mul(1 << 20));
        let condor = line.contains("Job has gone over ") && line.contains(" megabytes");
        let (used, limit) = match condor {
            true => (mib(" usage: "), mib("memory limit of ")),
            false => (used, limit),
        };
        return host(SignKind::KilledByLimit, line, at).map(|found| found.bytes(used, limit));
    }
    if let Some(found) = java(line, at) {
        return Some(found);
    }
    if line.contains("srun: error:") && line.contains("Out Of Memory") {
        return host(SignKind::KilledByLimit, line, at);
    }
    // Daemons that end processes before the kernel does say more than that.
    let idle =
        has(line, &["systemd-oomd[", "earlyoom["]) && !has(line, &["Killed", "sending SIG", "low memory!"]);
    if has(line, &KERNEL) && !idle {
        let held = after(line, "anon-rss:")
            .or_else(|| after(line, " was using "))
            .and_then(number)
            .and_then(|kib| kib.checked_mul(1024));
        let held = held.filter(|&bytes| bytes > 0);
        return host(SignKind::KilledByKernel, line, at).map(|found| found.bytes(held, None));
    }
    None
}

/// Java's machine has a heap of its own, whose limit is set when it starts, and so has Node's.
fn java(line: &str, at: u64) -> Option<Found> {
    let said = line.contains("java.lang.OutOfMemoryError")
        || has(line, &["Java heap space", "GC overhead limit exceeded", "JavaScript heap out of memory"]);
    said.then(|| Found::sign(SignKind::JavaHeap, "host", line, at))
}

/// Ended by signal 9, and nobody says why.
fn ended(line: &str, at: u64) -> Option<Found> {
    const SIGNALS: [&str; 26] = [
        "exit code 137",
        "exit code: 137",
        "Exit Code: 137",
        "exitCode: 137",
        "Exit status 137",
        "exit status 137",
        "exited with code 137",
        "Exited (137)",
        "non-zero code: 137",
        "\"ExitCode\": 137",
        "status=9/KILL",
        "was sent SIGKILL",
        "Negsignal.SIGKILL",
        "return code -9",
        "code=137",
        "exit code -9",
        "exit code: -9",
        "exitcode: -9",
        "exitcode  : -9",
        "exit status -9",
        "return code = -9",
        "(SIGKILL)",
        "SIGKILL(-9)",
        "SIGKILL: 9",
        "ignal 9",
        "ignal: 9",
    ];
    // As people paste it, and in the languages of shells.
    let words = line.trim_matches(|c: char| c.is_whitespace() || matches!(c, '*' | '`' | '>' | '"'));
    let shell = matches!(words, "Killed" | "Killed." | "killed" | "Killed: 9" | "^C Killed")
        || KILLED_ABROAD.iter().any(|killed| words == *killed || words.ends_with(&format!(" {killed}")))
        || is_ended_worker(line)
        || has(
            line,
            &[
                ": killed  ",
                "zsh: killed",
                "is killed by signal: Killed",
                "is killed by signal: killed",
                "is killed by signal:Killed",
                "is killed by signal:killed",
                "signal terminated program cc1plus",
            ],
        )
        || line.contains(" Killed  ")
        || line.contains(" killed  ")
        || line.contains(": line ") && line.contains(" Killed ")
        || line.contains("DataLoader worker") && line.contains("exited unexpectedly")
        || line.contains("signal: killed");
    (shell || has(line, &SIGNALS)).then(|| Found::sign(SignKind::Killed, "host", line, at))
}

/// What shells print where they speak other languages.
const KILLED_ABROAD: [&str; 10] = [
    "已杀死",
    "已砍掉",
    "強制終了",
    "죽었음",
    "Убито",
    "Getötet",
    "Processus arrêté",
    "Terminado (killed)",
    "Ucciso",
    "Morto",
];

/// Python's pools of processes, when one of theirs is gone and nothing says that it crashed by itself.
fn is_ended_worker(line: &str) -> bool {
    has(
        line,
        &[
            "terminated abruptly while the future was running",
            "managed by the executor was unexpectedly terminated",
        ],
    ) && !has(line, &["SIGSEGV", "SIGABRT", "SIGILL", "EXIT("])
}

/// Windows may not promise more.
fn windows(line: &str, at: u64) -> Option<Found> {
    let said = has(
        line,
        &["WinError 1455]", "os error 1455", "error 1455", "paging file is too small", "页面文件太小"],
    ) || has(line, &["WinError 8]", "code 1455"]);
    said.then(|| Found::sign(SignKind::PageFile, "host", line, at))
}

/// A process crashed by itself, which is another thing than being ended for memory.
fn crashed(line: &str, at: u64) -> Option<Found> {
    let said = has(
        line,
        &[
            "Segmentation fault",
            "SIGSEGV",
            "return code = -11",
            "exitcode: -11",
            "exitcode  : -11",
            "exit code 139",
            "exited with code 139",
            "device-side assert triggered",
            "is killed by signal: Aborted",
            "is killed by signal: Segmentation",
            "is killed by signal: Illegal",
            "is killed by signal: Floating",
        ],
    );
    said.then(|| Found::sign(SignKind::Crashed, "program", line, at))
}

/// A mapping of so many bytes is not refused because there are many.
const LARGE: u64 = 256 << 20;

/// `/dev/shm` is full.
fn shared_memory(line: &str, at: u64) -> Option<Found> {
    // Too many files are open: that is another limit.
    if line.contains("Too many open files") {
        return None;
    }
    let said = has(
        line,
        &[
            "insufficient shared memory (shm)",
            "out of shared memory",
            "allocate shared memory(shm)",
            "unable to open shared memory object",
            "unable to write to file </torch_",
            "unable to resize file </torch_",
            "is killed by signal: Bus error",
            "return code = -7",
            "exitcode: -7",
            "exitcode  : -7",
            "Signal 7 (SIGBUS)",
            "Bus error (core dumped)",
            "Signal: Bus error (7)",
            "Python error: Bus error",
            "zsh: bus error",
            "exit code 135",
            "Exited (135)",
        ],
    ) || matches!(line.trim(), "Bus error" | "Bus error: 7");
    // Error 12 is that of a mapping, 28 that of a file system.
    if let Some(rest) =
        after(line, "unable to mmap ").filter(|_| line.contains("Cannot allocate memory (12)"))
    {
        // Of shared memory there are many small ones; a model's file is one large one.
        if let Some(bytes) = number(rest).filter(|&bytes| bytes >= LARGE && !line.contains("</torch_")) {
            let found = Found::sign(SignKind::HostFull, "host", line, at).by(Framework::PyTorch);
            return Some(found.refused(Some(bytes), true));
        }
        return Some(Found::sign(SignKind::Mappings, "host", line, at).by(Framework::PyTorch));
    }
    let file = line.contains("</torch_")
        && has(line, &["unable to mmap", "No space left", "Cannot allocate memory"]);
    // NCCL's own segments.
    let nccl = line.contains("/dev/shm/nccl") && has(line, &["No space left", "rror"]);
    let store = line.contains("/dev/shm") && has(line, &["No space left on device", "Errno 28"]);
    (said || file || nccl || store).then(|| {
        // A process of any kind may end by this signal.
        let anyone = nccl || store || line.contains("us error") && !line.contains("DataLoader");
        let framework = if anyone { Framework::Unknown } else { Framework::PyTorch };
        Found::sign(SignKind::SharedMemory, "host", line, at).by(framework)
    })
}

/// No room for a file, which was a semaphore if the frames above say so: those lie in `/dev/shm`.
pub(super) fn semaphore(line: &str, at: u64) -> Option<Found> {
    line.contains("[Errno 28]").then(|| Found::sign(SignKind::SharedMemory, "host", line, at))
}

/// Pages could not be locked for a device.
fn pinned(line: &str, at: u64) -> Option<Found> {
    // InfiniBand's queues and buffers are locked, too.
    if line.contains("ibv_") && line.contains("annot allocate memory") {
        return Some(Found::sign(SignKind::PinnedMemory, "host", line, at));
    }
    let tensorflow =
        line.contains("could not allocate pinned host memory") || line.contains("bytes on host: CUDA_ERROR");
    let ggml = line.contains("of pinned memory") || line.contains("ggml") && line.contains("pinned memory");
    if ggml {
        // llama.cpp goes on with memory that is not locked.
        return Some(Found::sign(SignKind::Warning, "host", line, at).by(Framework::LlamaCpp));
    }
    let locks = has(line, &super::cuda::LOCKING) && has(line, &["rror", "fail"]);
    let thread = line.contains("in pin memory thread");
    (tensorflow || locks || thread).then(|| {
        let torch = thread || has(line, &["torch", "c10", "RuntimeError: "]);
        let framework = match () {
            () if tensorflow => Framework::TensorFlow,
            () if torch => Framework::PyTorch,
            () => Framework::Unknown,
        };
        let asked =
            size_after(line, "host memory of size: ").or_else(|| size_after(line, "failed to alloc "));
        let found = Found::sign(SignKind::PinnedMemory, "host", line, at).by(framework);
        found.refused(asked.map(|size| size.bytes), asked.is_some_and(|size| size.exact))
    })
}

/// The limit on addresses that a process had itself, and what it had mapped, as Plimsoll's package writes them.
#[derive(Debug, Clone)]
pub(super) struct OwnLimit {
    limit: u64,
    mapped: u64,
    line: String,
    at: u64,
}

impl OwnLimit {
    pub(super) fn read(line: &str, at: u64) -> Option<OwnLimit> {
        let limit = size_after(line, "this process may map at most ")?.bytes;
        let mapped = size_after(line, "and had mapped ")?.bytes;
        Some(OwnLimit { limit, mapped, line: line.to_string(), at })
    }

    /// Says so of a request that the host refused, if the limit was near.
    pub(super) fn explain(&self, device: &mut Device) {
        let ours = device.sign.as_ref().is_none_or(|sign| sign.kind == SignKind::HostFull);
        let asked = device.failure.as_ref().map(|failure| failure.requested);
        let needed = self.mapped.saturating_add(asked.unwrap_or(self.limit / 10));
        if ours && needed > self.limit && matches!(device.name.as_str(), "cpu" | "host") {
            let found = Found::sign(SignKind::HostFull, "host", &self.line, self.at);
            device.sign = found.bytes(Some(needed), Some(self.limit)).device.sign;
        }
    }
}

/// The bytes of an array whose shape stands at the start of a text and its type behind it.
fn array_bytes(text: &str) -> Option<u64> {
    let (shape, rest) = text.split_once(')')?;
    let kind = word(after(rest, "data type ")?);
    let bits = kind.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let bytes = if kind == "bool" { 1 } else { number(bits)?.checked_div(8)? };
    let lengths = shape.split(',').map(str::trim).filter(|length| !length.is_empty());
    lengths.map(number).try_fold(bytes, |bytes, length| bytes.checked_mul(length?))
}

/// The host refused a request.
fn refused(line: &str, at: u64) -> Option<Found> {
    let sized = |asked: Option<Size>, framework| {
        let found = Found::sign(SignKind::HostFull, "host", line, at).by(framework);
        Some(found.refused(asked.map(|size| size.bytes), asked.is_some_and(|size| size.exact)))
    };
    if line.contains("DefaultCPUAllocator") || line.contains("Torch: not enough memory") {
        let asked = size_after(line, "ried to allocate ");
        let mut found = sized(asked, Framework::PyTorch)?;
        found.weight = super::found::Weight::Cause;
        return Some(found);
    }
    if let (Some(asked), true) =
        (size_after(line, "Unable to allocate "), line.contains(" for an array with"))
    {
        return sized(Some(asked), Framework::Unknown);
    }
    if let Some(rest) = after(line, "Unable to allocate array with shape (") {
        // NumPy 1.17 says how many numbers of which type.
        return sized(array_bytes(rest).map(Size::exact), Framework::Unknown);
    }
    if let Some(rest) = after(line, "requires more system memory (") {
        // Ollama.
        let need = size_after(rest, "").map(|size| size.bytes);
        let there = size_after(rest, "than is available (").map(|size| size.bytes);
        let found = Found::sign(SignKind::HostFull, "host", line, at).by(Framework::LlamaCpp);
        return Some(found.bytes(need, there));
    }
    if line.contains("model request too large for system") {
        // Ollama, before it refuses.
        let figure = |marker: &str| size_after(line, marker).map(|size| size.bytes);
        let found = Found::sign(SignKind::HostFull, "host", line, at).by(Framework::LlamaCpp);
        return Some(found.bytes(figure("requested=\""), figure("available=\"")));
    }
    if let Some(rest) = after(line, "annot allocate vector of size ") {
        // R's units are powers of 1024.
        let bits = [(" Gb", " GB"), (" Mb", " MB"), (" Kb", " KB")];
        let rest = bits.iter().fold(rest.to_string(), |rest, (r, ours)| rest.replace(r, ours));
        return sized(size_after(&rest, ""), Framework::Unknown);
    }
    if line.contains("nsufficient memory") && line.contains("Failed to allocate ") {
        // OpenCV's arrays on the host; those of a device have a code of their own.
        return sized(size_after(line, "Failed to allocate "), Framework::Unknown);
    }
    if has(line, &["malloc of size ", "memory allocation of "]) && line.contains("failed") {
        let asked = size_after(line, "malloc of size ").or_else(|| size_after(line, "memory allocation of "));
        return sized(asked, Framework::Unknown);
    }
    // A device's allocator may throw the same words for its own memory.
    let device = has(line, &["CUDA", "cuda", "rmm", "hip"]);
    // A notebook's heading names the error; what it says stands at the end.
    if line.contains("Traceback (most recent call last)") {
        return None;
    }
    // Within a group of exceptions every line is behind a bar.
    let error = word(line.trim_start_matches([' ', '\t', '|']));
    let python =
        error == "MemoryError" || error.starts_with("MemoryError:") || line.contains("ArrayMemoryError");
    let said = python
        || has(
            line,
            &[
                "std::bad_alloc",
                "bad allocation",
                "[Errno 12]",
                "Cannot allocate memory",
                "os error 12)",
                "MemoryError: Unable to allocate",
                "insufficient memory for the Java",
                "vector memory exhausted",
                "runtime: out of memory",
                "OUT_OF_HOST_MEMORY",
                // A compiler runs on the host.
                "LLVM ERROR: out of memory",
                "Failed to allocate CPU Memory",
                // A browser's page.
                "Array buffer allocation failed",
            ],
        );
    if said && !device { sized(None, Framework::Unknown) } else { None }
}

//! What is suspicious about a machine, in plain words, with what to do.

use crate::cgroup::Place;
use crate::gpu::{Gpu, State};
use crate::settings::Settings;
use crate::system::System;
use plimsoll_memory::format_bytes;
use serde::Serialize;

/// Docker's default size of shared memory.
const SMALL_SHM: u64 = 64 << 20;
/// The default limit of locked memory of many systems and of Docker.
const SMALL_LOCKED: u64 = 64 << 10;
/// Less room than this for temporary files is too little to work with.
const LITTLE_DISK: u64 = 1 << 30;
/// More of a GPU than this held by nobody is more than contexts and rounding.
const UNOWNED: u64 = 1 << 30;

/// Something suspicious.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A name for programs.
    pub kind: &'static str,
    /// What is so, with its numbers.
    pub what: String,
    /// What to do.
    pub do_this: String,
}

/// What is suspicious, the most likely cause of a failure first.
pub fn find(system: &System, gpus: &[Gpu], settings: &Settings) -> Vec<Finding> {
    let mut found = vec![];
    let mut say = |kind, what: String, do_this: String| found.push(Finding { kind, what, do_this });
    gpu_findings(gpus, &mut say);
    group_findings(system, &mut say);
    host_findings(system, &mut say);
    limit_findings(system, &mut say);
    for setting in &settings.all {
        if let Some(wrong) = &setting.wrong {
            let value = setting.value.as_ref().map_or(String::new(), |value| format!("={value}"));
            say(
                "setting",
                format!("{}{value}: {wrong}", setting.name),
                "correct the variable, or unset it".into(),
            );
        }
    }
    found
}

fn gpu_findings(gpus: &[Gpu], say: &mut impl FnMut(&'static str, String, String)) {
    for gpu in gpus {
        let index = gpu.index;
        for process in gpu.processes.iter().filter(|process| process.state == State::Zombie) {
            let held = process.used_bytes.map_or("memory".into(), format_bytes);
            say(
                "gpu-zombie",
                format!("GPU {index}: process {} has ended and still holds {held} of it", process.pid),
                "end the process that started it, or whose threads it shares (ps -o ppid= -p PID)".into(),
            );
        }
        if let Some(bytes) = gpu.unowned_bytes().filter(|&bytes| bytes > UNOWNED) {
            say(
                "gpu-unowned",
                format!("GPU {index}: {} of it are held by no process that can be seen", format_bytes(bytes)),
                format!(
                    "look for processes in other containers or of other users: fuser -v /dev/nvidia{index}, as root on \
                     the host"
                ),
            );
        }
        let largest = gpu
            .processes
            .iter()
            .filter_map(|process| Some((process.used_bytes?, process)))
            .max_by_key(|(bytes, _)| *bytes);
        if let Some((bytes, process)) = largest.filter(|(bytes, _)| *bytes > gpu.total_bytes / 2) {
            let of = process.user.as_deref().map_or(String::new(), |user| format!(" of {user}"));
            say(
                "gpu-taken",
                format!(
                    "GPU {index}: process {} ({}{of}) holds {} of {}",
                    process.pid,
                    process.command,
                    format_bytes(bytes),
                    format_bytes(gpu.total_bytes)
                ),
                "use another GPU (CUDA_VISIBLE_DEVICES), or end that process if it is yours and not needed"
                    .into(),
            );
        }
        match gpu.compute_mode.as_deref() {
            Some("Prohibited") => say(
                "gpu-prohibited",
                format!("GPU {index} is set to run nothing"),
                format!("nvidia-smi -i {index} -c DEFAULT, as root"),
            ),
            Some("Exclusive_Process") if !gpu.processes.is_empty() => say(
                "gpu-exclusive",
                format!("GPU {index} takes one process at a time, and has one"),
                format!("wait for it, or nvidia-smi -i {index} -c DEFAULT, as root"),
            ),
            _ => {}
        }
        if gpu.divided == Some(true) {
            say(
                "gpu-divided",
                format!(
                    "GPU {index} is divided into instances (MIG): a process has the memory of one of them"
                ),
                "nvidia-smi -L lists the instances; CUDA_VISIBLE_DEVICES=MIG-... picks one".into(),
            );
        }
    }
}

fn group_findings(system: &System, say: &mut impl FnMut(&'static str, String, String)) {
    let place = system.place.unwrap_or(Place::Group);
    let Some(group) = system.tightest() else { return };
    let (Some(limit), total) = (group.limit_bytes, system.memory.total) else { return };
    if let Some(used) = group.used_bytes.filter(|used| {
        // Cached files are given back before anybody is killed.
        used.saturating_sub(group.file_bytes.unwrap_or(0)) > limit / 10 * 9
    }) {
        say(
            "cgroup-full",
            format!(
                "{} of the {} that the control group {} may take are taken: the next request may get a process killed",
                format_bytes(used),
                format_bytes(limit),
                group.path
            ),
            place.raise_limit().into(),
        );
    }
    if limit < total / 2 {
        say(
            "cgroup-limit",
            format!(
                "this process may take {} of the machine's {}: the control group {} limits it",
                format_bytes(limit),
                format_bytes(total),
                group.path
            ),
            place.raise_limit().into(),
        );
    }
    if system.killed() > 0 {
        let count = system.killed();
        say(
            "cgroup-killed",
            format!(
                "{count} {} in the control group of this one {} killed because memory ran out",
                if count == 1 { "process" } else { "processes" },
                if count == 1 { "was" } else { "were" }
            ),
            format!(
                "give programs here less to hold (fewer workers, smaller prefetch), or {}",
                place.raise_limit()
            ),
        );
    }
}

fn host_findings(system: &System, say: &mut impl FnMut(&'static str, String, String)) {
    let memory = &system.memory;
    if memory.total > 0 && memory.available < memory.total / 20 {
        say(
            "host-full",
            format!(
                "{} of {} of the host's memory are available",
                format_bytes(memory.available),
                format_bytes(memory.total)
            ),
            "end what is not needed (ps aux --sort=-rss | head)".into(),
        );
    }
    if memory.swap_total > 0 && memory.swap_free < memory.swap_total / 10 {
        say(
            "swap-full",
            format!(
                "{} of {} of swap are left",
                format_bytes(memory.swap_free),
                format_bytes(memory.swap_total)
            ),
            "the host is short of memory: end what is not needed".into(),
        );
    }
    let overcommit = &system.overcommit;
    if overcommit.policy == Some(2) {
        let numbers = match (overcommit.committed_bytes, overcommit.limit_bytes) {
            (Some(committed), Some(limit)) => {
                format!(": {} of {} are promised", format_bytes(committed), format_bytes(limit))
            }
            _ => String::new(),
        };
        say(
            "overcommit",
            format!("the host promises no more memory than it has (vm.overcommit_memory=2){numbers}"),
            "requests are refused while memory is free: sysctl vm.overcommit_memory=0, or a larger \
             vm.overcommit_ratio, as root"
                .into(),
        );
    }
    if let Some(shm) = &system.shm {
        let enlarge = system.place.unwrap_or(Place::Group).enlarge_shm();
        if shm.total_bytes <= SMALL_SHM && shm.total_bytes > 0 {
            say(
                "shm-small",
                format!(
                    "shared memory is {} in all: workers that load data for PyTorch, and NCCL, run out of it",
                    format_bytes(shm.total_bytes)
                ),
                format!("{enlarge}; or num_workers=0"),
            );
        } else if shm.free_bytes < shm.total_bytes / 10 {
            say(
                "shm-full",
                format!(
                    "{} of {} of shared memory are left",
                    format_bytes(shm.free_bytes),
                    format_bytes(shm.total_bytes)
                ),
                format!("remove what ended programs left in /dev/shm; or {enlarge}"),
            );
        }
    }
    if let Some(space) = system.temporary.as_ref().filter(|space| space.free_bytes < LITTLE_DISK) {
        say(
            "disk-full",
            format!("{} are left for temporary files in {}", format_bytes(space.free_bytes), space.at),
            "make room there, or set TMPDIR to a folder with more".into(),
        );
    }
}

fn limit_findings(system: &System, say: &mut impl FnMut(&'static str, String, String)) {
    let limits = &system.limits;
    if let Some(bytes) = limits.address_space_bytes {
        say(
            "address-space",
            format!("a process may have {} of addresses (ulimit -v)", format_bytes(bytes)),
            "CUDA reserves many times the memory it uses: ulimit -v unlimited".into(),
        );
    }
    if let Some(bytes) = limits.locked_bytes.filter(|&bytes| bytes <= SMALL_LOCKED || system.has_rdma) {
        say(
            "locked-memory",
            format!("a process may lock {} in place (ulimit -l)", format_bytes(bytes)),
            "InfiniBand, and NCCL over it, need to lock what they send: ulimit -l unlimited, or start the container with \
             --ulimit memlock=-1"
                .into(),
        );
    }
    if let Some(files) = limits.open_files.filter(|&files| files < 1024) {
        say(
            "open-files",
            format!("a process may have {files} files open (ulimit -n)"),
            "workers that load data hand tensors over as files: ulimit -n 65536".into(),
        );
    }
}

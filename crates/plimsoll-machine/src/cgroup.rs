//! Control groups: the limits that containers, schedulers and services put on a process, up the hierarchy.
//!
//! A limit of any group above holds, so all of them are read. Version 1 has the hierarchy of `memory` for itself, version 2
//! one for all; a machine may have both, and then the memory controller is where version 1 names it.

use crate::tree::{Tree, value};
use serde::Serialize;

/// Version 1 writes no limit as the largest multiple of a page; no machine has this much.
const UNLIMITED: u64 = 1 << 60;

/// A control group with what it says of memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cgroup {
    /// Its path in the hierarchy, as it is seen from here.
    pub path: String,
    /// 1 or 2.
    pub version: u8,
    /// What the processes in it may take together.
    pub limit_bytes: Option<u64>,
    /// Above this they are slowed down and pressed to give memory back (version 2 alone).
    pub high_bytes: Option<u64>,
    /// What they take, file cache included.
    pub used_bytes: Option<u64>,
    /// Of that, memory of the processes themselves.
    pub anonymous_bytes: Option<u64>,
    /// Of that, cached files, which are given back when memory is short.
    pub file_bytes: Option<u64>,
    /// Of that, shared memory and files in `/dev/shm`, which are not.
    pub shared_bytes: Option<u64>,
    /// How often a process was killed because the limit was reached.
    pub killed: Option<u64>,
}

/// What put a process where it is, as far as the names of its groups tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Place {
    /// A pod of Kubernetes.
    Kubernetes,
    /// A job of Slurm.
    Slurm,
    /// A container of Docker.
    Docker,
    /// A container of Podman.
    Podman,
    /// Some other container.
    Container,
    /// A service or session of systemd with a limit, or a group of another's making.
    Group,
}

impl Place {
    /// How the limit of memory is raised there.
    pub fn raise_limit(self) -> &'static str {
        match self {
            Place::Kubernetes => "raise resources.limits.memory of the pod",
            Place::Slurm => {
                "ask for more with --mem, --mem-per-cpu or --mem-per-gpu when the job is submitted"
            }
            Place::Docker => "start the container with a larger --memory, or without it",
            Place::Podman => "start the container with a larger --memory, or without it",
            Place::Container => "raise the memory limit of the container",
            Place::Group => "raise memory.max of the group (systemctl set-property NAME MemoryMax=...)",
        }
    }

    /// How shared memory is enlarged there.
    pub fn enlarge_shm(self) -> &'static str {
        match self {
            Place::Kubernetes => "mount an emptyDir with medium: Memory at /dev/shm",
            Place::Docker | Place::Podman => {
                "start the container with --shm-size=8g or --ipc=host (shm_size: 8g in a compose file)"
            }
            _ => "mount -o remount,size=8G /dev/shm, as root",
        }
    }
}

/// The groups of a process that account for memory, from its own to the root. `process` is a number or `self`.
pub(crate) fn read(tree: Tree<'_>, process: &str) -> Vec<Cgroup> {
    let Some((version, mount, own)) = hierarchy(tree, process) else { return vec![] };
    // In a container the path may be the host's while the mount begins at the container's own group.
    let own = if tree.has(&format!("{mount}/{own}")) { own } else { String::new() };
    let steps: Vec<&str> = own.split('/').filter(|step| !step.is_empty()).collect();
    (0..=steps.len())
        .rev()
        .map(|count| {
            let path = format!("/{}", steps[..count].join("/"));
            let file = |name: &str| format!("{mount}{path}/{name}");
            match version {
                1 => version_1(tree, path.clone(), file),
                _ => version_2(tree, path.clone(), file),
            }
        })
        .collect()
}

/// The version of the hierarchy that has the memory controller, where it is mounted, and the group of the process in it.
fn hierarchy(tree: Tree<'_>, process: &str) -> Option<(u8, &'static str, String)> {
    let text = tree.text(&format!("/proc/{process}/cgroup"))?;
    let fields = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1).map(str::to_owned);
        Some((fields.next()?, fields.next()?))
    };
    let groups: Vec<(String, String)> = text.lines().filter_map(fields).collect();
    let controlled = groups.iter().find(|(controllers, _)| controllers.split(',').any(|one| one == "memory"));
    if let Some((_, path)) = controlled {
        return Some((1, "/sys/fs/cgroup/memory", path.clone()));
    }
    let (_, path) = groups.into_iter().find(|(controllers, _)| controllers.is_empty())?;
    Some((2, "/sys/fs/cgroup", path))
}

fn version_1(tree: Tree<'_>, path: String, file: impl Fn(&str) -> String) -> Cgroup {
    let statistics = tree.text(&file("memory.stat")).unwrap_or_default();
    Cgroup {
        path,
        version: 1,
        limit_bytes: tree.number(&file("memory.limit_in_bytes")).filter(|&bytes| bytes < UNLIMITED),
        high_bytes: None,
        used_bytes: tree.number(&file("memory.usage_in_bytes")),
        anonymous_bytes: value(&statistics, "total_rss"),
        // Version 1 counts shared memory as cache.
        file_bytes: value(&statistics, "total_cache")
            .map(|cache| cache.saturating_sub(value(&statistics, "total_shmem").unwrap_or(0))),
        shared_bytes: value(&statistics, "total_shmem"),
        killed: tree.value(&file("memory.oom_control"), "oom_kill"),
    }
}

fn version_2(tree: Tree<'_>, path: String, file: impl Fn(&str) -> String) -> Cgroup {
    let statistics = tree.text(&file("memory.stat")).unwrap_or_default();
    let shared = value(&statistics, "shmem");
    Cgroup {
        path,
        version: 2,
        // `max` is no number, and no limit.
        limit_bytes: tree.number(&file("memory.max")),
        high_bytes: tree.number(&file("memory.high")),
        used_bytes: tree.number(&file("memory.current")),
        anonymous_bytes: value(&statistics, "anon"),
        file_bytes: value(&statistics, "file").map(|file| file.saturating_sub(shared.unwrap_or(0))),
        shared_bytes: shared,
        killed: tree.value(&file("memory.events"), "oom_kill"),
    }
}

/// What put a process with these groups where it is; none for the groups that every session has.
pub(crate) fn place(tree: Tree<'_>, groups: &str, in_kubernetes: bool) -> Option<Place> {
    let named = |word: &str| groups.contains(word);
    Some(match () {
        () if in_kubernetes || named("kubepods") => Place::Kubernetes,
        () if named("slurm") => Place::Slurm,
        () if named("libpod") || tree.has("/run/.containerenv") => Place::Podman,
        () if named("docker") || tree.has("/.dockerenv") => Place::Docker,
        () if named("lxc") || named("containerd") || named("crio") => Place::Container,
        () => return None,
    })
}

/// The container of a process by the names of its groups: the first twelve digits of the identifier, as `docker ps` shows it.
pub(crate) fn container(groups: &str) -> Option<String> {
    let steps = groups.split(['/', ':', '-', '.', '\n']);
    let is_identifier = |step: &&str| step.len() == 64 && step.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut identifiers = steps.filter(is_identifier);
    identifiers.next().map(|identifier| identifier[..12].to_owned())
}

//! The host: its memory, what limits a process on it, and the groups that this process is in.

use crate::books::Book;
use crate::cgroup::{self, Cgroup, Place};
use crate::space::Space;
use crate::tree::Tree;
use serde::Serialize;
use std::path::Path;

/// What a machine says of its memory and its limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct System {
    /// The kernel's release.
    pub kernel: Option<String>,
    /// Processors that are there.
    pub processors: Option<usize>,
    /// The version of NVIDIA's kernel driver.
    pub nvidia_driver: Option<String>,
    /// The host's memory.
    pub memory: HostMemory,
    /// How much more may be promised than there is.
    pub overcommit: Overcommit,
    /// What this process may take.
    pub limits: Limits,
    /// The groups of this process, from its own to the root.
    pub cgroups: Vec<Cgroup>,
    /// What put this process where it is.
    pub place: Option<Place>,
    /// Shared memory.
    pub shm: Option<Space>,
    /// Where temporary files go.
    pub temporary: Option<Space>,
    /// Whether the machine has InfiniBand or another network that locks pages.
    pub has_rdma: bool,
    /// The books of all this memory.
    pub books: Vec<Book>,
}

/// The host's memory, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "they are called as the kernel calls them")]
pub struct HostMemory {
    pub total: u64,
    pub available: u64,
    pub swap_total: u64,
    pub swap_free: u64,
}

/// How much more memory may be promised than there is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Overcommit {
    /// 0: as seems reasonable; 1: always; 2: never above the limit.
    pub policy: Option<u64>,
    /// What may be promised in all, if the policy is 2.
    pub limit_bytes: Option<u64>,
    /// What was promised.
    pub committed_bytes: Option<u64>,
}

/// What a process may take; none where it is not limited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Of addresses (`ulimit -v`).
    pub address_space_bytes: Option<u64>,
    /// Of memory that is locked in place (`ulimit -l`).
    pub locked_bytes: Option<u64>,
    /// Of open files (`ulimit -n`).
    pub open_files: Option<u64>,
}

impl System {
    /// Reads a machine from its files under a root: `/` for this one. What cannot be read is left out.
    pub fn read(root: &Path) -> System {
        let tree = Tree::new(root);
        let memory = tree.text("/proc/meminfo").unwrap_or_default();
        let of = |name: &str| kibibytes(&memory, name);
        let groups = tree.text("/proc/self/cgroup").unwrap_or_default();
        let environment = tree.text("/proc/self/environ").unwrap_or_default();
        let in_kubernetes =
            environment.split('\0').any(|entry| entry.starts_with("KUBERNETES_SERVICE_HOST="));
        let mut system = System {
            kernel: tree.text("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned()),
            processors: tree
                .text("/proc/cpuinfo")
                .map(|text| text.lines().filter(|line| line.starts_with("processor")).count()),
            nvidia_driver: tree.text("/proc/driver/nvidia/version").as_deref().and_then(driver_version),
            memory: HostMemory {
                total: of("MemTotal").unwrap_or(0),
                available: of("MemAvailable").unwrap_or(0),
                swap_total: of("SwapTotal").unwrap_or(0),
                swap_free: of("SwapFree").unwrap_or(0),
            },
            overcommit: Overcommit {
                policy: tree.number("/proc/sys/vm/overcommit_memory"),
                limit_bytes: of("CommitLimit"),
                committed_bytes: of("Committed_AS"),
            },
            limits: limits(&tree.text("/proc/self/limits").unwrap_or_default()),
            cgroups: cgroup::read(tree, "self"),
            place: cgroup::place(tree, &groups, in_kubernetes),
            shm: Space::read(&tree.path("/dev/shm")),
            temporary: Space::read(&match root == Path::new("/") {
                true => std::env::temp_dir(),
                false => tree.path("/tmp"),
            }),
            has_rdma: !tree.names("/sys/class/infiniband").is_empty(),
            books: vec![],
        };
        system.books.extend(host_book(&memory));
        system.books.extend(system.tightest().and_then(group_book));
        system.books.extend([&system.shm, &system.temporary].into_iter().flatten().map(space_book));
        system
    }

    /// The group whose limit is reached first: the one with the least room.
    pub fn tightest(&self) -> Option<&Cgroup> {
        let room = |group: &&Cgroup| {
            let limit = group.limit_bytes.unwrap_or(u64::MAX);
            limit.saturating_sub(group.used_bytes.unwrap_or(0))
        };
        self.cgroups.iter().filter(|group| group.limit_bytes.is_some()).min_by_key(room)
    }

    /// How often processes in the group of this one were killed for memory: a count that only grows. It is of the first
    /// group that counts, on the way up.
    pub fn killed(&self) -> u64 {
        self.cgroups.iter().find_map(|group| group.killed).unwrap_or(0)
    }
}

/// A line of `/proc/meminfo`, which is in units of 1024 bytes.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn limits(text: &str) -> Limits {
    // The name has blanks; the soft limit is the first word after it.
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    Limits {
        address_space_bytes: of("Max address space"),
        locked_bytes: of("Max locked memory"),
        open_files: of("Max open files"),
    }
}

/// `NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar ...`, with other words in other releases.
fn driver_version(text: &str) -> Option<String> {
    let is_version =
        |word: &&str| word.contains('.') && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    text.lines().next()?.split_whitespace().find(is_version).map(str::to_owned)
}

fn host_book(memory: &str) -> Option<Book> {
    let of = |name: &str| kibibytes(memory, name).unwrap_or(0);
    let total = kibibytes(memory, "MemTotal")?;
    let shared = of("Shmem");
    let kernel = ["Slab", "KernelStack", "PageTables", "Percpu", "VmallocUsed"].map(of);
    let lines = [
        ("free", of("MemFree")),
        ("memory of processes", of("AnonPages")),
        ("shared memory and files in /dev/shm", shared),
        // Shared memory is counted as cached.
        (
            "cached files, given back when needed",
            of("Cached").saturating_sub(shared).saturating_add(of("Buffers")),
        ),
        ("kernel", kernel.into_iter().fold(0, u64::saturating_add)),
        ("huge pages", of("Hugetlb")),
    ];
    Some(Book::close("the host's memory", total, lines.map(|(name, bytes)| (name.to_owned(), bytes))))
}

fn group_book(group: &Cgroup) -> Option<Book> {
    let limit = group.limit_bytes?;
    let free = limit.saturating_sub(group.used_bytes?);
    let lines = [
        ("free below the limit", free),
        ("memory of processes", group.anonymous_bytes.unwrap_or(0)),
        ("shared memory and files in /dev/shm", group.shared_bytes.unwrap_or(0)),
        ("cached files, given back when needed", group.file_bytes.unwrap_or(0)),
    ];
    let of = format!("the limit of the control group {}", group.path);
    Some(Book::close(of, limit, lines.map(|(name, bytes)| (name.to_owned(), bytes))))
}

fn space_book(space: &Space) -> Book {
    let lines = [("free", space.free_bytes), ("files", space.used_bytes)];
    let mut book =
        Book::close(space.at.clone(), space.total_bytes, lines.map(|(name, bytes)| (name.to_owned(), bytes)));
    if let Some(rest) = book.lines.last_mut() {
        rest.name = "kept for the system".into();
    }
    book
}

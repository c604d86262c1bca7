//! Captured machines, as files: what is read of them, and what is found suspicious.

use plimsoll_machine::gpu::{self, State};
use plimsoll_machine::{Cgroup, Place, Settings, Space, System, find};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// A machine of these files.
fn machine(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in [("proc/meminfo", MEMORY), ("proc/self/limits", LIMITS)].iter().chain(files) {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

const MEMORY: &str = "MemTotal:       65536000 kB\nMemFree:        10240000 kB\nMemAvailable:   40960000 kB\n\
    Buffers:          102400 kB\nCached:         30720000 kB\nAnonPages:      20480000 kB\nShmem:           1024000 kB\n\
    Slab:            2048000 kB\nKernelStack:       20480 kB\nPageTables:       102400 kB\nSwapTotal:       0 kB\n\
    SwapFree:               0 kB\nCommitLimit:    32768000 kB\nCommitted_AS:   30000000 kB\n";

const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units     \n\
    Max open files            1024                 524288               files     \n\
    Max locked memory         8388608              8388608              bytes     \n\
    Max address space         unlimited            unlimited            bytes     \n";

/// The kinds of what is found on a machine without GPUs and settings.
fn kinds(root: &Path) -> Vec<&'static str> {
    // How full the disk is that the tests run on is no matter here.
    let found = find(&System::read(root), &[], &Settings::default());
    found.iter().map(|finding| finding.kind).filter(|kind| *kind != "disk-full").collect()
}

fn assert_books_sum(system: &System) {
    assert!(!system.books.is_empty());
    for book in &system.books {
        assert_eq!(book.lines.iter().map(|line| line.bytes).sum::<u64>(), book.total_bytes, "{book:?}");
    }
}

#[test]
fn a_plain_host_has_nothing_suspicious() {
    let root = machine(&[
        ("proc/self/cgroup", "0::/user.slice/user-1000.slice/session-2.scope\n"),
        ("sys/fs/cgroup/user.slice/user-1000.slice/session-2.scope/memory.max", "max\n"),
        ("sys/fs/cgroup/user.slice/user-1000.slice/session-2.scope/memory.current", "1073741824\n"),
        ("sys/fs/cgroup/user.slice/memory.max", "max\n"),
        ("proc/sys/vm/overcommit_memory", "0\n"),
        (
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar 5\n",
        ),
    ]);
    let system = System::read(root.path());
    assert_eq!(system.nvidia_driver.as_deref(), Some("550.54.15"));
    assert_eq!((system.memory.total, system.limits.open_files), (65536000 * 1024, Some(1024)));
    assert_eq!(system.limits.address_space_bytes, None);
    assert_eq!(system.cgroups.len(), 4, "{:?}", system.cgroups);
    assert_eq!((system.tightest(), system.place), (None, None));
    assert_books_sum(&system);
    assert_eq!(kinds(root.path()), Vec::<&str>::new());
}

#[test]
fn the_host_s_book_has_what_nobody_knows_as_its_last_line() {
    let root = machine(&[]);
    let system = System::read(root.path());
    let book = &system.books[0];
    assert_eq!((book.of.as_str(), book.total_bytes), ("the host's memory", 65536000 * 1024));
    let of = |name: &str| book.lines.iter().find(|line| line.name.starts_with(name)).unwrap().bytes / 1024;
    assert_eq!([of("free"), of("memory of processes"), of("cached")], [10240000, 20480000, 29798400]);
    let last = book.lines.last().unwrap();
    assert_eq!((last.name.as_str(), last.bytes / 1024), ("unknown", 1822720));
}

#[test]
fn a_limit_anywhere_up_the_hierarchy_of_version_2_is_seen() {
    let pod = "kubepods.slice/kubepods-pod1.slice";
    let own = format!("{pod}/cri-containerd-{}.scope", "ab".repeat(32));
    let file = |group: &str, name: &str| format!("sys/fs/cgroup/{group}/{name}");
    let files = [
        ("proc/self/cgroup".to_owned(), format!("0::/{own}\n")),
        (file(&own, "memory.max"), "max\n".into()),
        (file(&own, "memory.current"), (2 * GIB).to_string()),
        (file(&own, "memory.events"), "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\n".into()),
        (file(pod, "memory.max"), (8 * GIB).to_string()),
        (file(pod, "memory.current"), (7 * GIB + 900 * MIB).to_string()),
        (file(pod, "memory.stat"), format!("anon {}\nfile {}\nshmem {}\n", 6 * GIB, 1800 * MIB, 1700 * MIB)),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let root = machine(&files);
    let system = System::read(root.path());
    let tightest = system.tightest().unwrap();
    assert_eq!(
        (tightest.path.as_str(), tightest.limit_bytes),
        ("/kubepods.slice/kubepods-pod1.slice", Some(8 * GIB))
    );
    assert_eq!(tightest.file_bytes, Some(100 * MIB), "shared memory is not given back");
    assert_eq!((system.place, system.killed()), (Some(Place::Kubernetes), 2));
    assert_books_sum(&system);
    assert_eq!(kinds(root.path()), ["cgroup-full", "cgroup-limit", "cgroup-killed"]);
    let found = find(&system, &[], &Settings::default());
    assert!(found[1].what.contains("8.00 GiB of the machine's 62.5 GiB"), "{}", found[1].what);
    assert!(found[1].do_this.contains("resources.limits.memory"), "{}", found[1].do_this);
}

#[test]
fn a_group_that_is_full_of_cached_files_is_not_full() {
    let root = machine(&[
        ("proc/self/cgroup", "0::/\n"),
        ("sys/fs/cgroup/memory.max", "51539607552\n"),
        ("sys/fs/cgroup/memory.current", "51539607552\n"),
        ("sys/fs/cgroup/memory.stat", "anon 1073741824\nfile 50465865728\nshmem 0\n"),
    ]);
    assert_eq!(kinds(root.path()), Vec::<&str>::new());
}

#[test]
fn a_container_of_version_1_is_read_from_where_its_mount_begins() {
    let id = "0123456789abcdef".repeat(4);
    let groups = format!("5:cpu,cpuacct:/docker/{id}\n4:memory:/docker/{id}\n0::/system.slice\n");
    let root = machine(&[
        ("proc/self/cgroup", groups.as_str()),
        (".dockerenv", ""),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "4294967296\n"),
        ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n"),
        (
            "sys/fs/cgroup/memory/memory.stat",
            "cache 5\ntotal_rss 536870912\ntotal_cache 300\ntotal_shmem 100\n",
        ),
        ("sys/fs/cgroup/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"),
    ]);
    let system = System::read(root.path());
    let expected = Cgroup {
        path: "/".into(),
        version: 1,
        limit_bytes: Some(4 * GIB),
        high_bytes: None,
        used_bytes: Some(GIB),
        anonymous_bytes: Some(GIB / 2),
        file_bytes: Some(200),
        shared_bytes: Some(100),
        killed: Some(1),
    };
    assert_eq!((&system.cgroups, system.place), (&vec![expected], Some(Place::Docker)));
    assert_eq!(kinds(root.path()), ["cgroup-limit", "cgroup-killed"]);
}

#[test]
fn no_limit_of_version_1_is_no_limit() {
    let root = machine(&[
        ("proc/self/cgroup", "4:memory:/\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
    ]);
    assert_eq!(System::read(root.path()).tightest(), None);
}

#[test]
fn a_job_of_slurm_is_told_how_to_ask_for_more() {
    let job = "system.slice/slurmstepd.scope/job_4711/step_0/user/task_0";
    let root = machine(&[
        ("proc/self/cgroup", &format!("0::/{job}\n")),
        (&format!("sys/fs/cgroup/{job}/memory.max"), "max\n"),
        ("sys/fs/cgroup/system.slice/slurmstepd.scope/job_4711/memory.max", "17179869184\n"),
        ("sys/fs/cgroup/system.slice/slurmstepd.scope/job_4711/memory.current", "1073741824\n"),
    ]);
    let system = System::read(root.path());
    assert_eq!(system.place, Some(Place::Slurm));
    let found = find(&system, &[], &Settings::default());
    assert!(found.iter().any(|finding| finding.kind == "cgroup-limit" && finding.do_this.contains("--mem")));
}

#[test]
fn limits_that_refuse_memory_while_there_is_some_are_found() {
    let root = machine(&[
        ("proc/sys/vm/overcommit_memory", "2\n"),
        (
            "proc/self/limits",
            "Max open files            256                  524288               files     \n\
             Max locked memory         65536                65536                bytes     \n\
             Max address space         8589934592           unlimited            bytes     \n",
        ),
    ]);
    assert_eq!(kinds(root.path()), ["overcommit", "address-space", "locked-memory", "open-files"]);
}

#[test]
fn locked_memory_matters_more_where_there_is_infiniband() {
    let root = machine(&[("sys/class/infiniband/mlx5_0/node_guid", "0\n")]);
    assert_eq!(kinds(root.path()), ["locked-memory"]);
}

#[test]
fn little_shared_memory_is_found_with_what_enlarges_it_there() {
    let root = machine(&[("run/.containerenv", "")]);
    let mut system = System::read(root.path());
    let shm =
        |total_bytes, free_bytes| Space { at: "/dev/shm".into(), total_bytes, used_bytes: 0, free_bytes };
    for (total, free, kind) in [(64 * MIB, 64 * MIB, "shm-small"), (GIB, 50 * MIB, "shm-full")] {
        system.shm = Some(shm(total, free));
        let found = find(&system, &[], &Settings::default());
        let found = found.iter().find(|finding| finding.kind == kind).unwrap();
        assert!(found.do_this.contains("--shm-size"), "{}", found.do_this);
    }
    system.shm = Some(shm(GIB, GIB));
    assert!(!find(&system, &[], &Settings::default()).iter().any(|finding| finding.kind.starts_with("shm")));
}

#[test]
fn files_that_are_no_numbers_are_left_out() {
    let root = machine(&[
        ("proc/meminfo", "MemTotal: 18446744073709551615 kB\nMemFree: many kB\nCached\n"),
        ("proc/self/cgroup", "0\n::\n0::/../../etc\nx:memory\n"),
        ("sys/fs/cgroup/memory.max", "-1\n"),
        ("proc/self/limits", "Max open files\nMax locked memory  x y z\n"),
    ]);
    let system = System::read(root.path());
    assert_eq!((system.memory.total, system.tightest()), (0, None));
}

const GPUS: &str = "index, uuid, driver_version, memory.total [MiB], memory.reserved [MiB], memory.used [MiB], \
    memory.free [MiB], compute_mode, persistence_mode, mig.mode.current, name\n\
    0, GPU-a, 550.54.15, 81559, 551, 72110, 8898, Default, Enabled, Disabled, NVIDIA H100 80GB HBM3\n\
    1, GPU-b, 550.54.15, 81559, 551, 20480, 60528, Exclusive_Process, Disabled, Enabled, NVIDIA H100 80GB HBM3\n";

const PROCESSES: &str = "gpu_uuid, pid, used_gpu_memory [MiB], process_name\n\
    GPU-a, 100, 70000, /usr/bin/python, with a comma\nGPU-a, 101, 2048, python\nGPU-b, 102, [N/A], [Not Found]\n";

#[test]
fn the_memory_of_gpus_is_told_by_process_and_container() {
    let groups = format!("0::/docker/{}\n", "0123456789abcdef".repeat(4));
    let root = machine(&[
        ("proc/100/status", "Name:\tpython\nState:\tS (sleeping)\nUid:\t1000\t1000\t1000\t1000\n"),
        ("proc/100/cmdline", "/opt/bin/python3\0-u\0train.py\0--token=hush\0"),
        ("proc/100/cgroup", &groups),
        ("proc/101/status", "Name:\tpython\nState:\tZ (zombie)\nUid:\t1001\t1001\t1001\t1001\n"),
        ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\n"),
    ]);
    let gpus = gpu::read(root.path(), GPUS, PROCESSES);
    let [first, second] = &gpus[..] else { panic!("{gpus:?}") };
    let process = &first.processes[0];
    assert_eq!((process.command.as_str(), process.user.as_deref()), ("python3 train.py", Some("ada")));
    assert_eq!((process.container.as_deref(), process.state), (Some("0123456789ab"), State::Alive));
    assert_eq!((first.processes[1].user.as_deref(), first.processes[1].state), (Some("1001"), State::Zombie));
    assert_eq!(second.processes[0].state, State::Unseen);
    assert_eq!((first.unowned_bytes(), second.unowned_bytes()), (Some(62 * MIB), None));
    for gpu in &gpus {
        let book = gpu.book();
        assert_eq!(book.lines.iter().map(|line| line.bytes).sum::<u64>(), 81559 * MIB);
        assert_eq!(book.lines.last().unwrap().name, "unknown");
    }
    let shown = format!("{gpus:?}");
    assert!(!shown.contains("hush"), "arguments are not shown: {shown}");
    let found = find(&System::read(root.path()), &gpus, &Settings::default());
    let kinds: Vec<&str> =
        found.iter().map(|finding| finding.kind).filter(|kind| kind.starts_with("gpu")).collect();
    assert_eq!(kinds, ["gpu-zombie", "gpu-taken", "gpu-exclusive", "gpu-divided"]);
    assert!(found[1].what.contains("process 100 (python3 train.py of ada) holds 68.4 GiB of 79.6 GiB"));
}

#[test]
fn memory_that_no_process_owns_up_to_is_found() {
    let gpus = gpu::read(Path::new("/nowhere"), GPUS, "gpu_uuid, pid, used_gpu_memory [MiB], process_name\n");
    let found = find(&System::read(Path::new("/nowhere")), &gpus[..1], &Settings::default());
    assert_eq!(found[0].kind, "gpu-unowned");
    assert!(found[0].what.contains("70.4 GiB"), "{}", found[0].what);
}

#[test]
fn tables_that_are_none_have_no_gpus() {
    for text in
        ["", "\n", "No devices were found\n", "index, uuid\n0\n", "index, memory.total [MiB]\nx, y\n,,,,\n"]
    {
        assert_eq!(gpu::read(Path::new("/nowhere"), text, text), []);
    }
}

#[test]
fn settings_that_do_not_exist_are_found_and_secrets_are_not_read() {
    let wrong = |name: &str, value: &str| {
        let settings = Settings::read([(name.to_owned(), value.to_owned())]);
        settings.all.first().and_then(|setting| setting.wrong.clone())
    };
    for (name, value) in [
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:128"),
        ("PYTORCH_CUDA_ALLOC_CONF", "roundup_power2_divisions:[256:1,512:2,>:8],backend:native"),
        ("XLA_PYTHON_CLIENT_MEM_FRACTION", ".75"),
        ("XLA_PYTHON_CLIENT_PREALLOCATE", "false"),
        ("TF_FORCE_GPU_ALLOW_GROWTH", "true"),
        ("CUDA_VISIBLE_DEVICES", "0,1"),
    ] {
        assert_eq!(wrong(name, value), None, "{name}={value}");
    }
    for (name, value, part) in [
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segment:True", "no setting `expandable_segment`"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:true", "True or False"),
        ("PYTORCH_ALLOC_CONF", "max_split_size_mb", "key:value"),
        ("PYTORCH_CUDA_ALLOC_CONFIG", "a:b", "PYTORCH_CUDA_ALLOC_CONF"),
        ("XLA_PYTHON_CLIENT_MEM_FRACTION", "75%", ".75"),
        ("XLA_PYTHON_CLIENT_PREALOCATE", "false", "XLA_PYTHON_CLIENT_PREALLOCATE"),
        ("TF_GPU_ALLOCATOR", "cuda_async", "cuda_malloc_async"),
        ("CUDA_VISIBLE_DEVICES", "-1", "hides every GPU"),
        ("PLIMSOLL_EXPLIAN", "1", "PLIMSOLL_EXPLAIN"),
    ] {
        let said = wrong(name, value).unwrap_or_default();
        assert!(said.contains(part), "{name}={value}: {said}");
    }
    let both = [("XLA_CLIENT_MEM_FRACTION", ".5"), ("XLA_PYTHON_CLIENT_MEM_FRACTION", ".5")];
    let both = Settings::read(both.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert!(both.all[1].wrong.as_deref().is_some_and(|wrong| wrong.contains("refuses to start")), "{both:?}");
    let secret = ("WANDB_API_KEY".to_owned(), "hush".to_owned());
    let misspelt = ("PLIMSOLL_TOKEN".to_owned(), "hush".to_owned());
    let settings = Settings::read([secret, misspelt]);
    assert!(!format!("{settings:?}").contains("hush"), "{settings:?}");
}

//! What the system counts as this process's memory: an arena is what was planned, this is what it came to, code,
//! data and threads included.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The memory of this process that is there now, where the system tells.
pub fn resident_bytes() -> Option<u64> {
    status("VmRSS:")
}

/// The most memory of this process that was ever there, where the system tells.
pub fn peak_resident_bytes() -> Option<u64> {
    status("VmHWM:")
}

/// The memory that there is for this process: all of the machine's, or what its control group may take of that. `None` where
/// the system does not tell.
pub fn machine_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let total = kibibytes(&text, "MemTotal:")?;
    Some(group_limits().fold(total, u64::min))
}

/// The limits of the control groups that this process is in, the innermost first.
fn group_limits() -> impl Iterator<Item = u64> {
    let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = text.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let folder = Path::new("/sys/fs/cgroup").join(group);
    let folders: Vec<PathBuf> = folder.ancestors().map(Path::to_path_buf).collect();
    // A group without a limit says `max`.
    folders
        .into_iter()
        .filter_map(|f| std::fs::read_to_string(f.join("memory.max")).ok()?.trim().parse().ok())
}

/// Gives memory that was freed back to the system, where the allocator keeps it for later: what planning took is no longer
/// needed when the arena is reserved.
pub fn return_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes no pointer, and may be called at any time, from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Has all threads that begin from now on take memory from one heap, where the allocator would give each its own: what several
/// of them keep after planning counts where every byte does. It makes allocating on many threads at once slower.
pub fn use_one_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes no pointer; a setting that the allocator does not know is left as it is.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// A line of the system's description of this process.
fn status(line: &str) -> Option<u64> {
    // Whoever watches a run asks often, and a run allocates nothing: this is read to the stack.
    let mut text = [0; 1 << 13];
    let read = File::open("/proc/self/status").and_then(|mut file| file.read(&mut text)).ok()?;
    kibibytes(str::from_utf8(&text[..read]).ok()?, line)
}

/// The bytes of a line, which Linux writes in units of 1024.
fn kibibytes(text: &str, line: &str) -> Option<u64> {
    let amount = text.lines().find_map(|text| text.strip_prefix(line))?;
    amount.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

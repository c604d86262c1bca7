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
    let group =
        |of: &str| text.lines().find_map(|line| line.split_once(of).map(|(_, group)| group.to_string()));
    let limits = |root: &str, group: Option<String>, file: &'static str| {
        let folder = Path::new(root).join(group.unwrap_or_default());
        let folders: Vec<PathBuf> = folder.ancestors().map(Path::to_path_buf).collect();
        // A group without a limit says `max`, or more than any machine has.
        folders
            .into_iter()
            .filter_map(move |f| std::fs::read_to_string(f.join(file)).ok()?.trim().parse().ok())
    };
    let unified = limits("/sys/fs/cgroup", group("0::/"), "memory.max");
    unified.chain(limits("/sys/fs/cgroup/memory", group(":memory:/"), "memory.limit_in_bytes"))
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

/// Has all threads that begin from now on take memory from one heap beside the first thread's, where the allocator would give
/// each its own: what several of them keep after planning counts where every byte does. It makes allocating on many threads at
/// once slower.
pub fn use_two_heaps() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes no pointer; a setting that the allocator does not know is left as it is.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}

/// Lets go of the pages of the program's code that have been run so far, where the system counts them as this process's memory:
/// reading settings and planning run far more of it than training does. What is run again comes back from the file.
pub fn let_go_of_code() {
    #[cfg(target_os = "linux")]
    if let Some(code) = code_around(let_go_of_code as *const () as usize) {
        // SAFETY: the range is a mapping of a file that can be run and not written, so that its pages are those of the file,
        // which the system reads again when they are missed.
        unsafe {
            libc::madvise(code.start as *mut libc::c_void, code.len(), libc::MADV_DONTNEED);
        }
    }
}

/// The mapping of a file with an address in it, if it can be run and not written.
#[cfg(target_os = "linux")]
fn code_around(address: usize) -> Option<std::ops::Range<usize>> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let range = usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
        let is_code = words.next()? == "r-xp" && words.nth(3).is_some_and(|file| file.starts_with('/'));
        (is_code && range.contains(&address)).then_some(range)
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn code_that_was_let_go_of_runs_again() {
        let code = code_around(code_around as *const () as usize).expect("code is mapped from a file");
        assert!(code.len() > 4096 && code_around(&code as *const _ as usize).is_none(), "a stack is no code");
        let before = resident_bytes();
        (0..3).for_each(|_| let_go_of_code());
        assert!(before.is_some() && resident_bytes().is_some());
        assert_eq!(code_around(code.start), Some(code));
    }
}

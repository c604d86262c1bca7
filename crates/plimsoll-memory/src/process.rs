//! What the system counts as this process's memory: an arena is what was planned, this is what it came to, code,
//! data and threads included.

/// The memory of this process that is there now, where the system tells.
pub fn resident_bytes() -> Option<u64> {
    status("VmRSS:")
}

/// The most memory of this process that was ever there, where the system tells.
pub fn peak_resident_bytes() -> Option<u64> {
    status("VmHWM:")
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

/// A line of the system's description of this process, which Linux writes in units of 1024 bytes.
fn status(line: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let amount = text.lines().find_map(|text| text.strip_prefix(line))?;
    amount.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

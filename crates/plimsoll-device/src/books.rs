//! The books of a device: what its bytes are taken by.

/// What the bytes of a device are taken by, as far as one process can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Books {
    /// All there are.
    pub total_bytes: u64,
    /// Taken by anyone, as the driver counts.
    pub used_bytes: u64,
    /// Taken when the device was opened, by other processes and by this one's context.
    pub at_open_bytes: u64,
    /// Mapped by this process: arenas and pools.
    pub mapped_bytes: u64,
    /// The rest: compiled code and libraries of this process, and what others took (or, below zero, gave back) since
    /// the device was opened.
    pub rest_bytes: i64,
    /// The unit in which memory is mapped.
    pub page_bytes: u64,
}

//! Signs: what a text says outright, where it gives no figures of a pool.
//!
//! Most messages of the world are not PyTorch's: a library that gets no handle, a kernel that kills a process, a server
//! that finds no room for its cache. Each says by its words alone what happened; readers put that into one of these kinds,
//! and verdicts and advice are drawn from the kind.

/// What a text says outright.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sign {
    /// What it says.
    pub kind: SignKind,
    /// The words that say it, as they stand in the log. Untrusted.
    pub quote: String,
    /// The line at which they stand, counted from 1.
    pub line: u64,
    /// What was asked for or used, in bytes, where that is said.
    pub needed: Option<u64>,
    /// What there was for it, in bytes, where that is said.
    pub available: Option<u64>,
}

/// What a [`Sign`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SignKind {
    /// A driver refused memory of the device; who held it is not said.
    DeviceFull,
    /// A driver refused a pool the share that it takes at its start.
    Reservation,
    /// Not even a context could be made on the device.
    NoContext,
    /// A library got no memory for its handle or workspace: cuBLAS, cuDNN, NCCL.
    LibraryFull,
    /// Work of the device needs more than all of it.
    DeviceTooSmall,
    /// A server has no room for the cache of one request, or for any cache.
    ServerCache,
    /// A server found less memory free at its start than it was told to take.
    ServerStart,
    /// Free memory changed while a server measured it.
    ServerMeasure,
    /// A limit that was set for a pool was reached.
    PoolLimit,
    /// One allocation is larger than any may be, whatever is free.
    AllocationCap,
    /// The kernel of the operating system killed a process for memory.
    KilledByKernel,
    /// A limit on the memory of a job or container was reached, and it was killed.
    KilledByLimit,
    /// A process was killed, most often for memory; by whom is not said.
    Killed,
    /// Java's machine, or Node, reached the limit of its own heap.
    JavaHeap,
    /// The host refused another mapping of shared memory.
    Mappings,
    /// Shared memory of the host is full: `/dev/shm`.
    SharedMemory,
    /// Windows may not promise more memory: the paging file is too small.
    PageFile,
    /// The host refused memory.
    HostFull,
    /// Memory ran out; whether the device's or the host's is not said.
    Unspecified,
    /// The host's memory cannot be locked for a device.
    PinnedMemory,
    /// A size that no program means.
    CorruptedSize,
    /// A kernel needs more of a device's scratch memory than a block has.
    KernelResources,
    /// A compiler found no room in a device's scratch memory.
    CompilerScratch,
    /// An array is larger than an operation can address.
    AddressRange,
    /// A bad address, which has nothing to do with how much memory there is.
    BadAccess,
    /// A process crashed: a bad address, or a check that failed.
    Crashed,
    /// A warning, or a request that was tried again: the program went on.
    Warning,
}

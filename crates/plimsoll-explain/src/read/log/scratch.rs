//! Errors that speak of memory and are not about how much of it there is.
//!
//! A block of a CUDA kernel has some 48 to 228 KiB of shared memory: Triton words too large a tile as
//! `out of resource: shared memory, Required: 132096, Hardware limit: 101376`, XLA as `Shared memory size limit exceeded`,
//! `ptxas` as `uses too much shared data`. A TPU has scratch memories (`smem`, `vmem`, `sflag`) beside its `hbm`. PyTorch takes a
//! negative or overflown size for `more than 1EB`. Metal's arrays are addressed with 32 bits. An illegal access is a bad
//! address.

use super::found::{Found, has};
use super::parse::{after, number, size, size_after, word};
use crate::program::Backend;
use crate::recording::Framework;
use crate::sign::SignKind;

/// Words of which one is in every line of interest.
pub(super) const WORDS: &[&str] = &[
    "out of resource",
    "OutOfResources",
    "memory space ",
    "hared memory",
    "shared data",
    "more than 1EB",
    "2**32",
    "llegal memory access",
    "emory access fault",
    "isaligned address",
    "misaligned address",
    "resources requested for launch",
    "scoped vmem",
    "nvalid buffer size",
    "NDArray",
];

/// What a line says, if it is one of these.
pub(super) fn read(line: &str, at: u64) -> Option<Found> {
    let of = |kind, framework| Found::sign(kind, "GPU", line, at).by(framework);
    if line.contains("more than 1EB memory") {
        return Some(of(SignKind::CorruptedSize, Framework::PyTorch));
    }
    if let Some(rest) = after(line, "out of resource: ") {
        let figure = |marker| after(rest, marker).and_then(number);
        return Some(
            of(SignKind::KernelResources, Framework::PyTorch)
                .bytes(figure("Required: "), figure("Hardware limit: ")),
        );
    }
    if let Some(rest) = after(line, "Ran out of memory in memory space ") {
        let space = word(rest).trim_end_matches('.');
        let mut found = match space {
            "hbm" => return None,
            _ => Found::sign(SignKind::CompilerScratch, "TPU", line, at).by(Framework::Jax),
        };
        let used = after(rest, "Used ").and_then(size);
        let there = used.and_then(|(_, rest)| size_after(rest, "of "));
        found = found.bytes(used.map(|(size, _)| size.bytes), there.map(|size| size.bytes));
        found.device.program.backend = Some(Backend::Tpu);
        return Some(found);
    }
    if line.contains("scoped vmem limit") || line.contains("Scoped vmem") {
        return Some(Found::sign(SignKind::CompilerScratch, "TPU", line, at).by(Framework::Jax));
    }
    let shared = line.contains("hared memory size limit exceeded")
        || line.contains("uses too much shared data")
        || line.contains("too many resources requested for launch");
    if shared {
        let (needed, there) =
            (after(line, "requested ").and_then(number), after(line, "available: ").and_then(number));
        let framework = match () {
            () if line.contains("memory size limit exceeded") => Framework::TensorFlowOrJax,
            () if line.contains("RuntimeError: CUDA error: ") => Framework::PyTorch,
            () => Framework::Unknown,
        };
        return Some(of(SignKind::KernelResources, framework).bytes(needed, there));
    }
    if line.contains("NDArray > 2**32") || line.contains("NDArray dimension length > INT_MAX") {
        let mut found = Found::sign(SignKind::AddressRange, "mps", line, at).by(Framework::PyTorch);
        found.device.program.backend = Some(Backend::Mps);
        return Some(found);
    }
    if let Some(asked) = size_after(line, "nvalid buffer size: ") {
        // Metal gives one buffer at most a part of the memory.
        let mut found = Found::sign(SignKind::AllocationCap, "mps", line, at).by(Framework::PyTorch);
        found.device.program.backend = Some(Backend::Mps);
        return Some(found.bytes(Some(asked.bytes), None));
    }
    has(
        line,
        &["illegal memory access", "ILLEGAL_ADDRESS", "misaligned address", "Memory access fault by GPU"],
    )
    .then(|| {
        let mut found = of(SignKind::BadAccess, Framework::Unknown);
        if has(line, &["Agent handle", "HIP", "hip"]) {
            found.device.program.backend = Some(Backend::Hip);
        }
        found
    })
}

//! Accelerators whose runtime words a refusal by itself: TPUs, Intel's devices with a cap on one allocation, AWS Neuron, Gaudi.
//!
//! A TPU's runtime says `Attempting to allocate 2.00G. That was not possible. There are 1.18G free.` for a buffer, and
//! `Attempting to reserve 5.52G at the bottom of memory` for a program. XLA says what a program needs and that it
//! `Can't reduce memory use below …`. Intel's extension refuses blocks over 4 GB on devices that have no larger ones, and
//! OpenVINO says `Exceeded max size of memory object allocation`, or `… of memory allocation` where the sum is too much. Neuron's
//! runtime fails to `alloc DEVICE memory: 134217728`; Gaudi's bridge has `PT_DEVMEM Allocation failed for size::…`.

use super::found::Found;
use super::parse::{after, number, size, size_after};
use crate::program::Backend;
use crate::recording::Framework;
use crate::sign::SignKind;

/// Words of which one is in every line of interest.
pub(super) const WORDS: &[&str] = &[
    "ttempting to ",
    "larger than 4GB",
    "memory block with size",
    "reduce memory use below",
    "Exceeded max size of memory",
    "alloc DEVICE memory",
    "PT_DEVMEM",
];

/// What a line says, if it is one of these.
pub(super) fn read(line: &str, at: u64) -> Option<Found> {
    let asked =
        size_after(line, "ttempting to allocate ").or_else(|| size_after(line, "ttempting to reserve "));
    if let Some(asked) = asked.filter(|_| line.contains("That was not possible")) {
        let free = size_after(line, "There are ");
        let fits = free.is_some_and(|free| free.bytes >= asked.bytes);
        let kind = if fits { SignKind::DeviceFull } else { SignKind::DeviceTooSmall };
        let mut found = Found::sign(kind, "TPU", line, at).by(Framework::Jax);
        found.device.program.backend = Some(Backend::Tpu);
        found.weight = super::found::Weight::Cause;
        return Some(found.bytes(Some(asked.bytes), free.map(|size| size.bytes)));
    }
    if line.contains("NOT allocate memory block with size larger than 4GB") {
        let asked = size_after(line, "ried to allocate ");
        let mut found = Found::sign(SignKind::AllocationCap, "XPU", line, at).by(Framework::PyTorch);
        found.device.program.backend = Some(Backend::Xpu);
        return Some(found.bytes(asked.map(|size| size.bytes), Some(4 << 30)));
    }
    if let Some(rest) = after(line, "Exceeded max size of memory ") {
        let lower = rest.to_ascii_lowercase();
        let figure = |marker: &str| after(&lower, marker).and_then(number);
        let mut found = if lower.starts_with("object allocation") {
            let cap = figure("supported by device is ").or_else(|| figure("max alloc size is "));
            Found::sign(SignKind::AllocationCap, "GPU", line, at).bytes(figure("requested "), cap)
        } else {
            let needed =
                figure("required ").map(|more| more.saturating_add(figure("occupied : ").unwrap_or(0)));
            let there = figure("available memory size is ");
            Found::sign(SignKind::DeviceTooSmall, "GPU", line, at).bytes(needed, there)
        };
        found.device.program.backend = Some(Backend::Xpu);
        return Some(found);
    }
    let neuron = line.contains("ailed to alloc DEVICE memory");
    if neuron || line.contains("PT_DEVMEM Allocation failed") {
        let asked = after(line, "DEVICE memory: ").or_else(|| after(line, "for size::")).and_then(number);
        let name = if neuron { "NeuronCore" } else { "HPU" };
        let mut found = Found::sign(SignKind::DeviceFull, name, line, at).by(Framework::PyTorch);
        found.device.program.backend = Some(Backend::Other);
        return Some(found.refused(asked, true));
    }
    let rest = after(line, "reduce memory use below ")?;
    let (there, rest) = size(rest)?;
    let reduced = size_after(rest, "only reduced to ")?;
    let mut found = Found::sign(SignKind::Warning, "GPU", line, at).by(Framework::TensorFlowOrJax);
    found.device.program_bytes = Some(reduced.bytes);
    Some(found.bytes(Some(reduced.bytes), Some(there.bytes)))
}

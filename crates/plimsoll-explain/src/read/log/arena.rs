//! Arenas of other libraries: ONNX Runtime's, Paddle's, CuPy's and RAPIDS'.
//!
//! ONNX Runtime's `bfc_arena.cc` is a copy of TensorFlow's allocator with sentences of its own: `Failed to allocate memory for
//! requested buffer of size 1073741824`, and `Available memory of 0 is smaller than requested bytes of …` where `gpu_mem_limit`
//! is set. Paddle (`cuda_allocator.cc`) tells what the device has in use and free. CuPy tells what its pool holds and its
//! limit. RAPIDS' pool has a maximum.

use super::found::{Found, has};
use super::parse::{after, number, size_after};
use crate::recording::Framework;
use crate::sign::SignKind;

/// Words of which one is in every line of interest.
pub(super) const WORDS: &[&str] = &[
    "requested buffer of size",
    "smaller than requested bytes",
    "Cannot allocate",
    "Out of memory allocating",
    "ut of memory to allocate",
    "Maximum pool size exceeded",
    "pool size exceeded",
    "allocating <= available",
];

/// More than any device has: a figure that wrapped around.
const ABSURD: u64 = 1 << 44;

/// What a line says, if it is one of these.
pub(super) fn read(line: &str, at: u64) -> Option<Found> {
    if let Some(there) = size_after(line, "Available memory of ") {
        let asked = size_after(line, "requested bytes of ");
        let found = Found::sign(SignKind::PoolLimit, "GPU", line, at).by(Framework::OnnxRuntime);
        return Some(found.bytes(asked.map(|size| size.bytes), Some(there.bytes)));
    }
    if let Some(asked) = size_after(line, "Failed to allocate memory for requested buffer of size ") {
        // Nodes of the CPU provider are renamed for their layout; the arena does not say whose it is.
        let host = has(line, &["_nchwc", "for Cpu "]);
        let (kind, name) = if host { (SignKind::HostFull, "host") } else { (SignKind::DeviceFull, "arena") };
        let found = Found::sign(kind, name, line, at).by(Framework::OnnxRuntime);
        return Some(found.refused(Some(asked.bytes), asked.exact));
    }
    if let Some(rest) = after(line, "Out of memory error on ").filter(|_| line.contains("Cannot allocate")) {
        let asked = size_after(line, "Cannot allocate ");
        let mut found = Found::sign(SignKind::DeviceFull, "GPU", line, at).by(Framework::Paddle);
        let device = &mut found.device;
        device.index = after(rest, "GPU ").and_then(number).and_then(|n| u32::try_from(n).ok());
        if let Some(index) = device.index {
            device.name = format!("GPU {index}");
        }
        let used = line.find(" memory has been allocated").and_then(|end| {
            let start = line[..end].rfind(", ").map_or(0, |at| at + 2);
            super::parse::size(&line[start..end]).map(|(size, _)| size.bytes)
        });
        let free = size_after(line, "available memory is only ").map(|size| size.bytes);
        device.device_free = free.filter(|&bytes| bytes < ABSURD && used != Some(0));
        // What it calls allocated is all that is not free, whoever holds it.
        device.capacity = used.zip(free).filter(|&(used, _)| (1..ABSURD).contains(&used)).map(|(u, f)| u + f);
        return Some(found.refused(asked.map(|size| size.bytes), false));
    }
    // Paddle until 1.5, which takes a share of the device in one piece.
    if let Some((asked, rest)) =
        after(line, "enforce allocating <= available failed, ").and_then(super::parse::size)
    {
        let found = Found::sign(SignKind::Reservation, "GPU", line, at).by(Framework::Paddle);
        let free = after(rest, "> ").and_then(number);
        return Some(found.bytes(Some(asked.bytes), free));
    }
    if let Some(rest) = after(line, "Out of memory allocating ").filter(|rest| rest.contains(" bytes")) {
        let figure = |text: &str| {
            let digits: String = text
                .chars()
                .take_while(|c| c.is_ascii_digit() || *c == ',')
                .filter(char::is_ascii_digit)
                .collect();
            digits.parse::<u64>().ok()
        };
        let asked = figure(rest)?;
        // XLA words it alike, without the pool.
        let held = after(rest, "allocated so far: ").and_then(figure);
        let limit = after(rest, "limit set to: ").and_then(figure);
        held?;
        let kind = if limit.is_some() { SignKind::PoolLimit } else { SignKind::DeviceFull };
        let mut found = Found::sign(kind, "GPU", line, at).by(Framework::CuPy);
        found.device.live = held;
        found.device.limit = limit;
        let bytes = (limit.is_some()).then_some(asked);
        return Some(
            found.bytes(bytes.map(|b| b.saturating_add(held.unwrap_or(0))), limit).refused(Some(asked), true),
        );
    }
    // CuPy until 5, and Chainer.
    if let Some((asked, rest)) = after(line, "ut of memory to allocate ").and_then(super::parse::size) {
        let mut found = Found::sign(SignKind::DeviceFull, "GPU", line, at).by(Framework::CuPy);
        // Its total is what the pool would have held with the request.
        let total = size_after(rest, "(total ").map(|size| size.bytes);
        found.device.live = total.and_then(|total| total.checked_sub(asked.bytes));
        return Some(found.refused(Some(asked.bytes), asked.exact));
    }
    has(line, &["Maximum pool size exceeded", "pool size exceeded"])
        .then(|| Found::sign(SignKind::PoolLimit, "GPU", line, at).by(Framework::CuPy))
}

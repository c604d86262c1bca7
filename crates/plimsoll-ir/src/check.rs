//! The independent check of a plan.
//!
//! It shares no code with the planner: it runs the plan on paper. Every byte of the arena has an owner; a
//! kernel must find each buffer it reads still owning all of its bytes, and what it writes takes bytes from
//! whoever had them. Any overlap, use before definition or lost update shows as a read that finds another
//! owner. Device and host have addresses of their own; only copies touch both.

use crate::plan::Plan;
use crate::work::{Buffer, Home, Keep, Kernel, Work};
use crate::{Error, ErrorKind};
use std::collections::BTreeMap;

/// Runs `plan` on paper.
///
/// # Errors
/// If a kernel is missing, runs twice, reads bytes that are not those it should find, or anything lies
/// outside the peak or off its alignment. The message names the kernel, the buffer and the address.
pub fn check(work: &Work, plan: &Plan) -> Result<(), Error> {
    let wrong = |message: String| Err(Error::new(ErrorKind::InvalidPlan, message));
    let mut sorted = plan.order.clone();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..work.kernels.len() as u32) {
        return wrong(format!("the order does not run each of {} kernels once", work.kernels.len()));
    }
    let counts = [plan.offsets.len(), plan.workspace_offsets.len(), plan.workspace_bytes.len()];
    if counts != [work.buffers.len(), work.kernels.len(), work.kernels.len()] {
        return wrong(format!(
            "the plan has {} buffers and {} workspaces of {} offsets; the work has {} buffers and {} kernels",
            counts[0],
            counts[2],
            counts[1],
            work.buffers.len(),
            work.kernels.len()
        ));
    }
    if !plan.alignment.is_power_of_two() {
        return wrong(format!("an alignment of {} bytes", plan.alignment));
    }
    let known = |b: &u32| (*b as usize) < work.buffers.len();
    let pairs = |k: &Kernel| k.in_place.iter().all(|(w, r)| k.writes.contains(w) && k.reads.contains(r));
    if let Some(k) = work.kernels.iter().position(|k| !(k.operands().all(|b| known(&b)) && pairs(k))) {
        return wrong(format!(
            "kernel {k} names a buffer that there is not, or replaces what it does not read"
        ));
    }
    let mut owners = Owners::default();
    let host_starts = plan.peak_bytes.checked_next_multiple_of(plan.alignment);
    let host_ends = host_starts.and_then(|start| start.checked_add(plan.host_bytes));
    let (Some(host_starts), Some(_)) = (host_starts, host_ends) else {
        return wrong("the arenas end beyond what can be addressed".into());
    };
    // Host addresses are counted on from where the device's end.
    let mut addresses = vec![0; work.buffers.len()];
    for (b, &Buffer { bytes, home, keep, .. }) in work.buffers.iter().enumerate() {
        let (start, end) = match home {
            Home::Host => (host_starts, host_starts + plan.host_bytes),
            Home::Device => (0, plan.peak_bytes),
        };
        let offset = plan.offsets[b];
        let inside = |address: &u64| address.checked_add(bytes).is_some_and(|last| last <= end);
        let Some(address) = start.checked_add(offset).filter(inside) else {
            return wrong(format!(
                "buffer {b} at {offset} of {bytes} bytes is outside {} bytes",
                end - start
            ));
        };
        if !offset.is_multiple_of(plan.alignment) {
            return wrong(format!("buffer {b} at {offset} is no multiple of {}", plan.alignment));
        }
        addresses[b] = address;
        if matches!(keep, Keep::Always | Keep::FromStart) {
            owners.take(address, bytes, b as u32);
        }
    }
    let place = |b: u32| (addresses[b as usize], work.buffers[b as usize].bytes);
    // What lives at the start must not have taken from each other.
    for (b, buffer) in work.buffers.iter().enumerate() {
        let (offset, bytes) = place(b as u32);
        if matches!(buffer.keep, Keep::Always | Keep::FromStart) && !owners.has(offset, bytes, b as u32) {
            return wrong(format!("buffer {b} shares its bytes with another from the start"));
        }
    }
    for (position, &k) in plan.order.iter().enumerate() {
        let kernel = &work.kernels[k as usize];
        for &b in &kernel.reads {
            let (offset, bytes) = place(b);
            if !owners.has(offset, bytes, b) {
                return wrong(format!(
                    "kernel {k} at position {position} does not find buffer {b} at {offset}"
                ));
            }
        }
        let scratch = (plan.workspace_offsets[k as usize], plan.workspace_bytes[k as usize]);
        if scratch.1 < kernel.workspace {
            return wrong(format!(
                "kernel {k} needs {} bytes of workspace where the plan has {}",
                kernel.workspace, scratch.1
            ));
        }
        if scratch.0.checked_add(scratch.1).is_none_or(|end| end > plan.peak_bytes)
            || !scratch.0.is_multiple_of(plan.alignment)
        {
            return wrong(format!("the workspace of kernel {k} is outside of the arena or misaligned"));
        }
        owners.take(scratch.0, scratch.1, u32::MAX);
        for &b in &kernel.writes {
            let (offset, bytes) = place(b);
            owners.take(offset, bytes, b);
        }
        // While the kernel runs, its workspace, its writes and its reads must all be intact, but for reads
        // that a write at the very same address may replace.
        if !owners.has(scratch.0, scratch.1, u32::MAX) {
            return wrong(format!("kernel {k} at position {position} writes over its own workspace"));
        }
        for &b in &kernel.writes {
            let (offset, bytes) = place(b);
            if !owners.has(offset, bytes, b) {
                return wrong(format!("kernel {k} at position {position} writes two results to one address"));
            }
        }
        for &b in &kernel.reads {
            let (offset, bytes) = place(b);
            let replaces = |&&(w, r): &&(u32, u32)| r == b && place(w).0 == offset && place(w).1 <= bytes;
            let replaced =
                kernel.in_place.iter().filter(replaces).map(|&(w, _)| place(w).1).max().unwrap_or(0);
            let intact = owners.has(offset + replaced, bytes - replaced, b);
            if !intact {
                return wrong(format!(
                    "kernel {k} at position {position} writes over buffer {b} that it reads"
                ));
            }
        }
        owners.release(scratch.0, scratch.1);
    }
    let mut written = vec![false; work.buffers.len()];
    work.kernels.iter().flat_map(|kernel| &kernel.writes).for_each(|&b| written[b as usize] = true);
    for (b, buffer) in work.buffers.iter().enumerate() {
        let (offset, bytes) = place(b as u32);
        let kept = buffer.keep == Keep::Always || (buffer.keep == Keep::ToEnd && written[b]);
        if kept && !owners.has(offset, bytes, b as u32) {
            return wrong(format!("buffer {b} is lost before the end of the step"));
        }
    }
    Ok(())
}

/// Who owns which bytes: disjoint ranges by their first byte.
#[derive(Default)]
struct Owners {
    ranges: BTreeMap<u64, (u64, u32)>,
}

impl Owners {
    /// Frees a range, cutting what reaches into it.
    fn release(&mut self, start: u64, bytes: u64) {
        let end = start + bytes;
        while let Some((&first, &(last, owner))) = self.ranges.range(..end).next_back() {
            if last <= start {
                break;
            }
            self.ranges.remove(&first);
            if last > end {
                self.ranges.insert(end, (last, owner));
            }
            if first < start {
                self.ranges.insert(first, (start, owner));
            }
        }
    }

    fn take(&mut self, start: u64, bytes: u64, owner: u32) {
        if bytes > 0 {
            self.release(start, bytes);
            self.ranges.insert(start, (start + bytes, owner));
        }
    }

    /// Whether every byte of the range has that owner.
    fn has(&self, start: u64, bytes: u64, owner: u32) -> bool {
        let (mut at, end) = (start, start + bytes);
        while at < end {
            match self.ranges.range(..=at).next_back() {
                Some((_, &(last, who))) if last > at && who == owner => at = last,
                _ => return false,
            }
        }
        true
    }
}

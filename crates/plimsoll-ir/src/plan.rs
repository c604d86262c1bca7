//! The plan: when every kernel runs and where every buffer lies.

use crate::work::{BufferIndex, Home, Keep, KernelIndex, Work};
use plimsoll_memory::{Category, Ledger};

/// A half-open stretch of logical time: alive at `lower`, gone at `upper`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lifetime {
    /// The first moment of life.
    pub lower: u64,
    /// The first moment after it.
    pub upper: u64,
}

impl Lifetime {
    /// Whether there is a moment at which both are alive. Empty lifetimes overlap nothing.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.lower.max(other.lower) < self.upper.min(other.upper)
    }
}

/// When every kernel runs and where every buffer lies, and what that takes.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The kernels, in the order they run.
    pub order: Vec<KernelIndex>,
    /// Where each buffer lies, in bytes from the start of the arena of its home.
    pub offsets: Vec<u64>,
    /// Where each kernel's workspace lies.
    pub workspace_offsets: Vec<u64>,
    /// The bytes of workspace that each kernel was taken to need. A device whose kernels need more, because it runs
    /// them on more threads or by other code, must refuse the plan.
    pub workspace_bytes: Vec<u64>,
    /// What all offsets are multiples of.
    pub alignment: u64,
    /// The bytes of the arena in device memory.
    pub peak_bytes: u64,
    /// The bytes of the arena in host memory, for what is kept there between its uses.
    pub host_bytes: u64,
    /// The most bytes that live at once, alignment included: no placement in this order needs fewer.
    pub lower_bound_bytes: u64,
    /// The position in the order at which the most bytes live.
    pub peak_position: usize,
}

impl Plan {
    /// What the arena's bytes are for at the moment when the most of them live. Sums to the peak.
    pub fn ledger(&self, work: &Work) -> Ledger {
        let mut ledger = Ledger::default();
        for (index, bytes) in self.live_at_peak(work) {
            ledger.add(work.buffers[index as usize].role.category(), bytes);
        }
        if let Some(&kernel) = self.order.get(self.peak_position) {
            ledger.add(Category::Workspace, work.kernels[kernel as usize].workspace);
        }
        ledger.close(self.peak_bytes);
        ledger
    }

    /// From which position in the order to which each buffer must keep its bytes, half-open.
    pub fn lifetimes(&self, work: &Work) -> Vec<Lifetime> {
        lifetimes(work, &self.order)
    }

    /// The buffers that live when the most bytes do, largest first, each with the bytes it adds: a result
    /// that replaces its operand adds nothing.
    pub fn live_at_peak(&self, work: &Work) -> Vec<(BufferIndex, u64)> {
        let lifetimes = lifetimes(work, &self.order);
        let now = self.peak_position as u64;
        let mut live: Vec<(BufferIndex, u64)> = (0..work.buffers.len() as u32)
            .filter(|&b| work.buffers[b as usize].home == Home::Device)
            .filter(|&b| {
                let lifetime = lifetimes[b as usize];
                work.buffers[b as usize].keep == Keep::Always
                    || (lifetime.lower <= now && now < lifetime.upper)
            })
            .map(|b| (b, work.buffers[b as usize].bytes))
            .collect();
        // At the kernel that replaces an operand in place both live, at one address: the larger one counts.
        live.sort_by_key(|&(b, bytes)| (self.offsets[b as usize], std::cmp::Reverse(bytes), b));
        live.dedup_by(|next, kept| {
            kept.1 > 0 && next.1 > 0 && self.offsets[next.0 as usize] == self.offsets[kept.0 as usize]
        });
        live.sort_by_key(|&(b, bytes)| (std::cmp::Reverse(bytes), b));
        live
    }
}

/// From which position of an order to which each buffer must keep its bytes, half-open.
pub fn lifetimes(work: &Work, order: &[KernelIndex]) -> Vec<Lifetime> {
    let end = order.len() as u64;
    let mut lifetimes = vec![Lifetime { lower: end, upper: 0 }; work.buffers.len()];
    for (position, &kernel) in order.iter().enumerate() {
        for b in work.kernels[kernel as usize].operands() {
            let lifetime = &mut lifetimes[b as usize];
            lifetime.lower = lifetime.lower.min(position as u64);
            lifetime.upper = lifetime.upper.max(position as u64 + 1);
        }
    }
    for (lifetime, buffer) in lifetimes.iter_mut().zip(&work.buffers) {
        match buffer.keep {
            Keep::Always => *lifetime = Lifetime { lower: 0, upper: end },
            // The host writes it before the step, even if no kernel reads it.
            Keep::FromStart => *lifetime = Lifetime { lower: 0, upper: lifetime.upper.max(1) },
            Keep::ToEnd => lifetime.upper = end.max(lifetime.lower),
            Keep::WhileUsed => lifetime.upper = lifetime.upper.max(lifetime.lower),
        }
    }
    lifetimes
}

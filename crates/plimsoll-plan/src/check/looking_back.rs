//! How what a kernel needs came to be there, looking back from it.
//!
//! While a kernel runs, all that it reads is there at once. One of these values was written last; while that was written,
//! the others were there already, beside all that the kernel which wrote it needs. And what was there then came to be there
//! in its turn. Which was last is the plan's choice, so the bound of a moment is the least over the ways back from it of the
//! most that is met on the way: a search for the cheapest way, which is a bound wherever it ends.

use plimsoll_ir::{BufferIndex, Home, Keep, Kernel, KernelIndex, Work};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

/// Moments that are looked at for one kernel.
const PATIENCE: usize = 400;

/// Values that are a smaller part of what the hungriest kernel needs than this are not looked back for.
const SMALLEST: u64 = 500;

/// Looks back from kernels.
pub(super) struct LookingBack<'a> {
    work: &'a Work,
    /// The aligned bytes of each buffer; 0 for those that are no values.
    bytes: Vec<u64>,
    /// The kernels that write each value, rematerializations among them.
    writers: Vec<Vec<&'a Kernel>>,
    alignment: u64,
    smallest: u64,
}

impl<'a> LookingBack<'a> {
    /// Looks back in work where no value can rest on the host, and where the hungriest kernel needs so much.
    pub(super) fn new(work: &'a Work, alignment: u64, hungriest: u64) -> LookingBack<'a> {
        let value = |b: &plimsoll_ir::Buffer| b.home == Home::Device && b.keep != Keep::Always;
        let bytes =
            work.buffers.iter().map(|b| if value(b) { b.bytes.next_multiple_of(alignment) } else { 0 });
        let mut writers = vec![vec![]; work.buffers.len()];
        for kernel in work.kernels.iter().chain(&work.rematerializations) {
            kernel.writes.iter().for_each(|&b| writers[b as usize].push(kernel));
        }
        LookingBack { work, bytes: bytes.collect(), writers, alignment, smallest: hungriest / SMALLEST }
    }

    fn is_large(&self, b: BufferIndex) -> bool {
        self.bytes[b as usize] > self.smallest
    }

    /// The bytes of values and workspace that are met on every way back from a kernel, beside which these inputs wait.
    pub(super) fn from(&self, kernel: KernelIndex, inputs: &[BufferIndex]) -> u64 {
        let reads = &self.work.kernels[kernel as usize].reads;
        let mut there: Vec<BufferIndex> =
            reads.iter().chain(inputs).copied().filter(|&b| self.is_large(b)).collect();
        there.sort_unstable();
        there.dedup();
        let (mut most, mut looked) = (0, 0);
        let mut known = HashSet::from([there.clone()]);
        let mut open = BinaryHeap::from([Reverse((0, self.sum(&there), there))]);
        while let Some(Reverse((met, _, there))) = open.pop() {
            most = most.max(met);
            looked += 1;
            let mut written = there.iter().flat_map(|&b| &self.writers[b as usize]).peekable();
            // Nothing but inputs is there, as it is before the step.
            if looked > PATIENCE || written.peek().is_none() {
                break;
            }
            for writer in written {
                let met = met.max(self.needs(writer, &there));
                let before = self.before(writer, &there);
                if known.insert(before.clone()) {
                    open.push(Reverse((met, self.sum(&before), before)));
                }
            }
        }
        most
    }

    fn sum(&self, values: &[BufferIndex]) -> u64 {
        values.iter().map(|&b| self.bytes[b as usize]).sum()
    }

    /// What a kernel needs while values are there that it must not touch, but for those that it writes.
    fn needs(&self, kernel: &Kernel, there: &[BufferIndex]) -> u64 {
        let is_there = |b: BufferIndex| there.binary_search(&b).is_ok();
        let operands =
            kernel.operands().filter(|&b| !is_there(b)).map(|b| self.bytes[b as usize]).sum::<u64>();
        let may_replace = |&&(w, r): &&(BufferIndex, BufferIndex)| {
            let [new, old] = [w, r].map(|b| self.bytes[b as usize]);
            new == old && !is_there(r) && !kernel.reads.contains(&w)
        };
        let mut replacing: Vec<BufferIndex> =
            kernel.in_place.iter().filter(may_replace).map(|&(w, _)| w).collect();
        replacing.sort_unstable();
        replacing.dedup();
        self.sum(there) + operands - self.sum(&replacing) + kernel.workspace.next_multiple_of(self.alignment)
    }

    /// What was there before a kernel wrote some of what is there now.
    fn before(&self, kernel: &Kernel, there: &[BufferIndex]) -> Vec<BufferIndex> {
        let stays = there.iter().filter(|b| !kernel.writes.contains(b));
        let mut before: Vec<BufferIndex> =
            stays.chain(&kernel.reads).copied().filter(|&b| self.is_large(b)).collect();
        before.sort_unstable();
        before.dedup();
        before
    }
}

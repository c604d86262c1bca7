//! What a search is about: the work, its costs, and what follows from both.
//!
//! None of it changes while schedules do, so it is found out once.

use crate::costs::Costs;
use plimsoll_ir::{Buffer, BufferIndex, Home, Keep, Kernel, LaunchSource, Work};

/// What is planned and does not change while it is.
pub(crate) struct SearchContext<'a> {
    pub(crate) work: &'a Work,
    pub(crate) costs: &'a Costs,
    pub(crate) alignment: u64,
    /// The ways to make each buffer again.
    pub(crate) ways: Vec<Vec<LaunchSource>>,
    /// Whether each buffer holds one value only, once it is written.
    pub(crate) settled: Vec<bool>,
    wait: Kernel,
}

impl<'a> SearchContext<'a> {
    pub(crate) fn new(work: &'a Work, costs: &'a Costs, alignment: u64) -> SearchContext<'a> {
        let mut writers = vec![0; work.buffers.len()];
        for &b in work.kernels.iter().flat_map(|k| &k.writes) {
            writers[b as usize] += 1;
        }
        let single = |b: u32| writers[b as usize] == 1 && is_passing(&work.buffers[b as usize]);
        // Running a kernel again must change nothing but what it makes: not a state, not an update.
        let repeatable = |k: &Kernel| k.writes.iter().all(|&b| single(b) && !k.reads.contains(&b));
        let mut ways = vec![vec![]; work.buffers.len()];
        for (k, kernel) in work.kernels.iter().enumerate().filter(|(_, k)| repeatable(k)) {
            for &b in &kernel.writes {
                ways[b as usize].push(LaunchSource::Again(k as u32));
            }
        }
        for (m, rematerialization) in
            work.rematerializations.iter().enumerate().filter(|(_, k)| repeatable(k))
        {
            for &b in &rematerialization.writes {
                ways[b as usize].push(LaunchSource::Rematerialize(m as u32));
            }
        }
        let settled = writers.iter().map(|&w| w <= 1).collect();
        SearchContext { work, costs, alignment, ways, settled, wait: Kernel::default() }
    }

    /// The bytes a buffer takes in an arena.
    pub(crate) fn bytes(&self, buffer: BufferIndex) -> u64 {
        self.work.buffers[buffer as usize].bytes.next_multiple_of(self.alignment)
    }

    /// What a launch runs; for copies and waits a kernel of nothing.
    pub(crate) fn kernel(&self, source: LaunchSource) -> &Kernel {
        match source {
            LaunchSource::Kernel(k) | LaunchSource::Again(k) => &self.work.kernels[k as usize],
            LaunchSource::Rematerialize(m) => &self.work.rematerializations[m as usize],
            LaunchSource::Copy | LaunchSource::Wait => &self.wait,
        }
    }

    /// What a launch takes on the device; copies and waits have a time line of their own.
    pub(crate) fn seconds(&self, source: LaunchSource) -> f64 {
        match source {
            LaunchSource::Kernel(k) | LaunchSource::Again(k) => self.costs.kernels[k as usize],
            LaunchSource::Rematerialize(m) => self.costs.rematerializations[m as usize],
            LaunchSource::Copy | LaunchSource::Wait => 0.0,
        }
    }
}

/// Whether a buffer lives only inside a step and is written there.
fn is_passing(buffer: &Buffer) -> bool {
    matches!(buffer.keep, Keep::WhileUsed | Keep::ToEnd) && buffer.home == Home::Device
}

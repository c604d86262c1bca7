//! How inputs and results of steps are staged on the host of a device with memory of its own, and what that takes there.
//!
//! While one step computes, the inputs of the next are copied to the device and the host writes those of the one after. So
//! there are as many places for them as steps may be under way. A device stages so, and a forecast counts so.

use plimsoll_graph::Program;
use plimsoll_graph::program::BufferId;

/// How many steps may be under way: one that computes, one whose inputs come in, and one whose inputs are written.
pub const STEPS_UNDER_WAY: u64 = 3;

/// What places of inputs and results are multiples of.
pub const STAGING_ALIGNMENT: u64 = 256;

/// The most results of a step that a kernel writes to the host by itself, and the most bytes of each.
pub const SMALL_RESULTS: usize = 8;
/// See [`SMALL_RESULTS`].
pub const SMALL_RESULT_BYTES: u64 = 256;

/// The bytes that small results take on the host: a count, and the results of all steps under way.
pub const SMALL_RESULTS_BYTES: u64 = (1 + STEPS_UNDER_WAY * SMALL_RESULTS as u64) * SMALL_RESULT_BYTES;

/// What a step under way has on the host beside its states and values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Staging {
    /// Its inputs, before they are copied to the device.
    pub input_bytes: u64,
    /// Its results, after they were.
    pub result_bytes: u64,
}

impl Staging {
    /// That of a program.
    pub fn of(program: &Program) -> Staging {
        let bytes = |id: &BufferId| program.buffers[id.index()].bytes() as u64;
        let all = |ids: &[BufferId]| ids.iter().map(|id| bytes(id).next_multiple_of(STAGING_ALIGNMENT)).sum();
        let results =
            if few_and_small(program.outputs.iter().map(bytes)) { 0 } else { all(&program.outputs) };
        Staging { input_bytes: all(&program.inputs), result_bytes: results }
    }

    /// What programs need that share their places.
    #[must_use]
    pub fn shared(self, other: Staging) -> Staging {
        Staging {
            input_bytes: self.input_bytes.max(other.input_bytes),
            result_bytes: self.result_bytes.max(other.result_bytes),
        }
    }

    /// The bytes of all places.
    pub fn bytes(self) -> u64 {
        let step = self.input_bytes.saturating_add(self.result_bytes);
        step.saturating_mul(STEPS_UNDER_WAY).saturating_add(SMALL_RESULTS_BYTES)
    }
}

/// Whether a kernel writes results of so many bytes to the host by itself.
pub fn few_and_small(mut results: impl ExactSizeIterator<Item = u64>) -> bool {
    results.len() <= SMALL_RESULTS && results.all(|bytes| bytes <= SMALL_RESULT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_small_results_are_written_by_a_kernel() {
        assert!(few_and_small([4, 4].into_iter()));
        assert!(few_and_small([256; 8].into_iter()));
        assert!(few_and_small([0; 0].into_iter()));
        assert!(!few_and_small([257].into_iter()), "too large");
        assert!(!few_and_small([4; 9].into_iter()), "too many");
    }
}

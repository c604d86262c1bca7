//! What kernels and copies cost in seconds.
//!
//! A device is described by a [`Profile`]: its memory, its rates and its bandwidths, as data. A kernel takes as
//! long as the slower of its arithmetic and its traffic would ideally, over how near to that its kind comes, plus a
//! launch. Times that were measured can take the place of modelled ones kernel by kernel.

use crate::efficiency::{EfficiencyTable, Measured};
use plimsoll_ir::{Arithmetic, Kernel, Work};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// What a device can do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The name it is asked for by.
    pub name: String,
    /// What it is, in a line.
    pub about: String,
    /// The bytes of its memory.
    pub memory_bytes: u64,
    /// What every address in it is a multiple of.
    pub alignment: u64,
    /// The scratch bytes that a matrix product or a convolution takes, where the device's own library has not
    /// been asked.
    pub workspace_bytes: u64,
    /// The bytes that its driver takes for a process that runs there, and the libraries it loads; 0 where there is none.
    pub context_bytes: u64,
    /// The time a kernel takes to do nothing.
    pub launch_seconds: f64,
    /// Bytes a second between memory and kernels.
    pub bandwidth: f64,
    /// Operations a second.
    pub rates: Rates,
    /// Copies between device and host.
    pub copies: Copies,
    /// What each of the steps of a recurrent layer takes that wait for each other, whatever is computed in them.
    pub step_seconds: f64,
    /// How near to the rates and the bandwidth kernels come. Empty where that was not measured: then all do.
    pub efficiency: EfficiencyTable,
}

/// Floating-point operations a second, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    /// One element at a time.
    pub elementwise: f64,
    /// Products of matrices of four bytes an element.
    pub matrix: f64,
    /// Products of matrices of two bytes an element.
    pub matrix_half: f64,
    /// Convolutions of four bytes an element.
    pub convolution: f64,
    /// Convolutions of two bytes an element.
    pub convolution_half: f64,
    /// Attention.
    pub attention: f64,
}

/// What copies between device and host cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Copies {
    /// Bytes a second, each way.
    pub bandwidth: f64,
    /// The time a copy of nothing takes.
    pub latency_seconds: f64,
    /// Whether kernels run while copies do.
    pub overlap: bool,
}

impl Copies {
    /// The time a copy takes.
    pub fn seconds(&self, bytes: u64) -> f64 {
        in_ticks(self.latency_seconds + bytes as f64 / self.bandwidth)
    }
}

/// How many ticks a second has: a power of two, so that whole ticks are added without rounding, up to two hours.
const TICKS: f64 = (1u64 << 40) as f64;

/// A time in whole ticks, which are a little less than a picosecond. The same kernels in another order then take the same
/// time to the bit, and a plan that does more never seems faster.
fn in_ticks(seconds: f64) -> f64 {
    (seconds * TICKS).round() / TICKS
}

/// The least that takes longer than so many seconds.
pub(crate) fn just_over(seconds: f64) -> f64 {
    in_ticks(seconds) + 1.0 / TICKS
}

impl Profile {
    /// What a kernel would take if it came as near to the rates and the bandwidth as can be.
    fn ideal(&self, kernel: &Kernel) -> Ideal {
        let rate = match kernel.arithmetic {
            Arithmetic::Elementwise => self.rates.elementwise,
            Arithmetic::Matrix | Arithmetic::Projection => self.rates.matrix,
            Arithmetic::MatrixHalf | Arithmetic::ProjectionHalf => self.rates.matrix_half,
            Arithmetic::Convolution => self.rates.convolution,
            Arithmetic::ConvolutionHalf => self.rates.convolution_half,
            Arithmetic::Attention => self.rates.attention,
        };
        let (arithmetic, traffic) = (kernel.flops as f64 / rate, kernel.bytes as f64 / self.bandwidth);
        let turns = matches!(kernel.arithmetic, Arithmetic::Projection | Arithmetic::ProjectionHalf);
        let waits = f64::from(kernel.family.steps.saturating_sub(1)) * self.step_seconds;
        let ideal = if turns { arithmetic + traffic } else { arithmetic.max(traffic) };
        Ideal { arithmetic, traffic, waits, seconds: ideal }
    }

    /// The time a kernel takes. It is launched while the one before it runs, so that launching shows only where there is
    /// nothing else to take time; where that was not measured, kernels are taken to pay for it.
    pub fn seconds(&self, kernel: &Kernel) -> f64 {
        let Ideal { arithmetic, traffic, waits, seconds } = self.ideal(kernel);
        if self.efficiency.is_empty() {
            return in_ticks(self.launch_seconds + waits + seconds);
        }
        let worked = waits + seconds / self.efficiency.of(kernel.family, arithmetic, traffic);
        in_ticks(worked.max(self.launch_seconds))
    }

    /// What the time of a kernel that was measured alone, its launch included, says about its kind.
    pub fn measured(&self, kernel: &Kernel, seconds: f64) -> Option<Measured> {
        let Ideal { arithmetic, traffic, waits, seconds: ideal } = self.ideal(kernel);
        let worked = seconds - waits - self.launch_seconds;
        // A small kernel that takes not much more than a launch tells nothing about larger ones.
        let large = ideal > self.launch_seconds || seconds > 10.0 * self.launch_seconds;
        let tells = large && ideal > 0.0 && worked > 0.0;
        tells.then(|| Measured { arithmetic, traffic, efficiency: ideal / worked })
    }

    /// What some work costs on this device.
    pub fn costs(&self, work: &Work) -> Costs {
        // Networks are made of blocks that are alike.
        let mut known = HashMap::new();
        let mut seconds = |k: &Kernel| {
            let alike = (k.family, k.arithmetic, k.flops, k.bytes);
            *known.entry(alike).or_insert_with(|| self.seconds(k))
        };
        Costs {
            kernels: work.kernels.iter().map(&mut seconds).collect(),
            rematerializations: work.rematerializations.iter().map(&mut seconds).collect(),
            copies: self.copies,
            copy_share: if self.copies.overlap { 1.0 / self.bandwidth } else { 0.0 },
            host_bytes: u64::MAX,
        }
    }
}

/// What a kernel would take ideally.
struct Ideal {
    arithmetic: f64,
    traffic: f64,
    /// For steps that wait for each other.
    waits: f64,
    /// Arithmetic and traffic, at once or in turns.
    seconds: f64,
}

/// What some work costs, kernel by kernel, and what it may take of the host.
#[derive(Debug, Clone)]
pub struct Costs {
    /// Seconds of each of the work's kernels.
    pub kernels: Vec<f64>,
    /// Seconds of each of the work's rematerializations.
    pub rematerializations: Vec<f64>,
    /// What copies between device and host cost.
    pub copies: Copies,
    /// The seconds that each byte copied takes from kernels that run meanwhile: they share the device's memory.
    pub copy_share: f64,
    /// The most bytes that may rest on the host.
    pub host_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_same_kernels_take_the_same_time_in_every_order(
            work in prop::collection::vec((1u64..1 << 40, 1u64..1 << 36), 1..60),
            launch_seconds in 0.0f64..1e-4,
        ) {
            let profile = Profile {
                name: String::new(),
                about: String::new(),
                memory_bytes: 1 << 30,
                alignment: 64,
                workspace_bytes: 0,
                context_bytes: 0,
                launch_seconds,
                bandwidth: 3.35e12,
                rates: Rates {
                    elementwise: 3.1e13,
                    matrix: 4.7e13,
                    matrix_half: 7.3e14,
                    convolution: 2.9e13,
                    convolution_half: 5.3e14,
                    attention: 3.7e14,
                },
                copies: Copies { bandwidth: 5.5e10, latency_seconds: 1e-5, overlap: true },
                step_seconds: 0.0,
                efficiency: EfficiencyTable::default(),
            };
            let kernel = |&(flops, bytes): &(u64, u64)| Kernel { flops, bytes, ..Kernel::default() };
            let mut kernels: Vec<Kernel> = work.iter().map(kernel).collect();
            let total = |kernels: &[Kernel]| -> f64 { kernels.iter().map(|k| profile.seconds(k)).sum() };
            let forwards = total(&kernels);
            kernels.reverse();
            prop_assert_eq!(forwards, total(&kernels));
            kernels.sort_by_key(|kernel| kernel.flops % 97);
            prop_assert_eq!(forwards, total(&kernels));
        }
    }
}

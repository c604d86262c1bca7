//! What a device's driver will count as taken, and how near that comes.
//!
//! The arena is not all: a driver takes memory for each process that runs on its device, and libraries and compiled code
//! take some. Whoever asks whether training fits a device asks for all of it. What is here already is measured before the
//! arena is; what is still to come is foretold from the arena and the number of kernels.

use crate::forecast::process_use::ProcessUse;
use plimsoll_device::Books;
use plimsoll_memory::{format_bytes, peak_resident_bytes};
use serde_json::{Value, json};
use std::fmt;

/// What a device's driver will count as taken when training has run, by what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceUse {
    /// The arena, in whole pages of the device.
    pub arena_bytes: u64,
    /// The driver's context and the libraries. On a device that is here, all that is taken of it before the arena is, by
    /// other processes as well.
    pub context_bytes: u64,
    /// Code and graphs of the steps that will be loaded, in whole pages.
    pub code_bytes: u64,
}

/// What steps take beside the arena: code, and their kernels' places in graphs. A mean of what an H200 (driver 580) took: 6
/// MiB for the 18 kernels of `mlp-small`, 12 MiB for the 561 of `gpt2-124m`, 50 to 78 MiB for the 6,736 of the 16 steps of
/// `gpt2-varlen`.
const CODE_BYTES: u64 = 2 << 20;
const KERNEL_BYTES: u64 = 9 << 10;
/// Code of programs that are loaded later comes in units of this.
const LATER_PAGE: u64 = 2 << 20;

impl DeviceUse {
    /// Once an arena of so many bytes is reserved in pages of `page` and steps of so many kernels in all are loaded, on a
    /// device of which `context_bytes` are taken.
    pub(crate) fn new(arena_bytes: u64, kernels: u64, context_bytes: u64, page: u64) -> DeviceUse {
        let pages = |bytes: u64| bytes.checked_next_multiple_of(page.max(1)).unwrap_or(u64::MAX);
        let code = kernels.saturating_mul(KERNEL_BYTES).saturating_add(CODE_BYTES);
        DeviceUse { arena_bytes: pages(arena_bytes), context_bytes, code_bytes: pages(code) }
    }

    /// The same, with so many kernels loaded besides.
    pub(crate) fn with_later_kernels(self, kernels: u64) -> DeviceUse {
        let bytes = kernels.saturating_mul(KERNEL_BYTES);
        let pages = bytes.checked_next_multiple_of(LATER_PAGE).unwrap_or(u64::MAX);
        DeviceUse { code_bytes: self.code_bytes.saturating_add(pages), ..self }
    }

    /// All of it.
    pub fn bytes(&self) -> u64 {
        self.arena_bytes.saturating_add(self.context_bytes).saturating_add(self.code_bytes)
    }

    /// The parts as data.
    pub fn to_json(&self) -> Value {
        json!({
            "arena_bytes": self.arena_bytes,
            "context_bytes": self.context_bytes,
            "code_bytes": self.code_bytes,
        })
    }
}

impl fmt::Display for DeviceUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({} arena, {} context and libraries, {} code and graphs)",
            format_bytes(self.bytes()),
            format_bytes(self.arena_bytes),
            format_bytes(self.context_bytes),
            format_bytes(self.code_bytes)
        )
    }
}

/// What was foretold of a device's memory, and what its driver counted in the end.
///
/// ```
/// use plimsoll::PredictedVsActual;
/// let foretold = PredictedVsActual { predicted_bytes: 1010, used_bytes: 1000 };
/// assert_eq!(foretold.difference_percent(), 1.0);
/// assert_eq!(foretold.to_string(), "1010 B predicted, 1000 B used, a difference of +1.00 %");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PredictedVsActual {
    /// What was foretold before the arena was reserved.
    pub predicted_bytes: u64,
    /// What the driver counts as taken, by all processes.
    pub used_bytes: u64,
}

impl PredictedVsActual {
    /// A prediction with the books of the device that it was of, where there are both.
    pub(crate) fn of(predicted: Option<DeviceUse>, books: Option<Books>) -> Option<PredictedVsActual> {
        let (predicted_bytes, used_bytes) = (predicted?.bytes(), books?.used_bytes);
        Some(PredictedVsActual { predicted_bytes, used_bytes })
    }

    /// A prediction of the process's memory with the most that the system has counted, where it tells.
    pub(crate) fn of_process(predicted: Option<ProcessUse>) -> Option<PredictedVsActual> {
        let (predicted_bytes, used_bytes) = (predicted?.bytes(), peak_resident_bytes()?);
        Some(PredictedVsActual { predicted_bytes, used_bytes })
    }

    /// By how many per cent of what is used more was foretold, or less.
    pub fn difference_percent(&self) -> f64 {
        let (predicted, used) = (self.predicted_bytes as f64, self.used_bytes.max(1) as f64);
        100.0 * (predicted - used) / used
    }
}

impl fmt::Display for PredictedVsActual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} predicted, {} used, a difference of {:+.2} %",
            format_bytes(self.predicted_bytes),
            format_bytes(self.used_bytes),
            self.difference_percent()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Measured on an H200 (driver 580) by `plimsoll bench`: the arena, the kernels of all steps, and what the driver
    /// counted in the end.
    const MEASURED: [(&str, u64, u64, u64); 7] = [
        ("gpt2-124m", 6_358_041_088, 561, 6_923_550_720),
        ("gpt2-124m within 3 GiB", 3_133_009_408, 561, 3_700_228_096),
        ("resnet50", 10_078_280_960, 766, 10_660_675_584),
        ("resnet50 within 8 GiB", 8_434_132_736, 766, 9_012_314_112),
        ("mlp-large", 6_241_575_680, 29, 6_804_013_056),
        ("mlp-small", 2_778_368, 18, 562_888_704),
        ("gpt2-varlen", 4_627_448_832, 16 * 421, 5_262_606_336),
    ];

    #[test]
    fn what_an_h200_took_was_foretold_within_a_hundredth() {
        let context = crate::devices::find("h200").expect("a profile").context_bytes;
        for (name, arena, kernels, used_bytes) in MEASURED {
            let predicted_bytes = DeviceUse::new(arena, kernels, context, 2 << 20).bytes();
            let foretold = PredictedVsActual { predicted_bytes, used_bytes };
            assert!(foretold.difference_percent().abs() < 1.0, "{name}: {foretold}");
        }
    }

    #[test]
    fn more_than_can_be_counted_is_as_much_as_can_be() {
        let all = DeviceUse::new(u64::MAX, u64::MAX, 1, 2 << 20);
        assert_eq!(all.bytes(), u64::MAX);
        assert_eq!(DeviceUse::new(0, 0, 7, 0).bytes(), 7 + CODE_BYTES);
    }
}

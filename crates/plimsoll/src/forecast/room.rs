//! Whether a run fits where it is to run: the first thing that a forecast says.

use plimsoll_memory::format_bytes;

/// The memory that a run has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Room {
    /// The name of the device.
    pub device: String,
    /// All of the device's memory, where that is known.
    pub memory_bytes: Option<u64>,
    /// The budget, if there is one.
    pub budget_bytes: Option<u64>,
    /// The budget of pinned memory on the host of a GPU, if there is one.
    pub host_budget_bytes: Option<u64>,
}

/// What a run needs of its room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Of the device: arena, driver, code and, on the CPU, data.
    pub(crate) of_device: u64,
    /// Of what a budget bounds.
    pub(crate) of_budget: u64,
    /// Of the host of a GPU.
    pub(crate) of_host: u64,
}

impl Room {
    /// Whether so much fits; `None` where nothing says how much there is.
    pub(crate) fn holds(&self, needs: Needs) -> Option<bool> {
        let device = self.memory_bytes.map(|memory| needs.of_device <= memory);
        let budget = self.budget_bytes.map(|budget| needs.of_budget <= budget);
        let host = self.host_budget_bytes.map(|budget| needs.of_host <= budget);
        [device, budget, host].into_iter().flatten().reduce(|a, b| a && b)
    }

    /// The answer, in a line.
    pub(crate) fn answer(&self, needs: Needs) -> String {
        let fits = |needed: u64, of: u64, whose: &str| {
            let spare = format_bytes(of - needed);
            format!("fits: {} of {whose}{}, {spare} to spare", format_bytes(needed), format_bytes(of))
        };
        let of_host = match self.host_budget_bytes {
            Some(budget) if needs.of_host > budget => {
                let (needed, budget) = (format_bytes(needs.of_host), format_bytes(budget));
                return format!("does not fit: needs {needed} of the host, the host budget is {budget}");
            }
            Some(budget) => {
                format!("; {} of {} on the host", format_bytes(needs.of_host), format_bytes(budget))
            }
            None => String::new(),
        };
        let answer = match (self.memory_bytes, self.budget_bytes) {
            (Some(memory), _) if needs.of_device > memory => format!(
                "does not fit: needs {}, {} has {}",
                format_bytes(needs.of_device),
                self.device,
                format_bytes(memory)
            ),
            // What is left of the tighter of the two is what there is to spare.
            (Some(memory), Some(budget))
                if needs.of_budget <= budget && memory - needs.of_device < budget - needs.of_budget =>
            {
                fits(needs.of_device, memory, &format!("the memory of {}, ", self.device))
            }
            (_, Some(budget)) if needs.of_budget <= budget => fits(needs.of_budget, budget, "the budget of "),
            (_, Some(budget)) => format!(
                "does not fit: needs {}, the budget is {}",
                format_bytes(needs.of_budget),
                format_bytes(budget)
            ),
            (Some(memory), None) => fits(needs.of_device, memory, ""),
            (None, None) => format!("needs {}", format_bytes(needs.of_device)),
        };
        answer + &of_host
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn room(memory_bytes: Option<u64>, budget_bytes: Option<u64>) -> Room {
        Room { device: "t4".into(), memory_bytes, budget_bytes, host_budget_bytes: None }
    }

    #[test]
    fn the_tightest_bound_decides_and_is_named() {
        let needs = Needs { of_device: 3 * GIB, of_budget: 2 * GIB, of_host: GIB };
        for (memory, budget, holds, answer) in [
            (None, None, None, "needs 3.00 GiB"),
            (Some(4), None, Some(true), "fits: 3.00 GiB of 4.00 GiB, 1.00 GiB to spare"),
            (Some(2), None, Some(false), "does not fit: needs 3.00 GiB, t4 has 2.00 GiB"),
            (Some(4), Some(2), Some(true), "fits: 2.00 GiB of the budget of 2.00 GiB, 0 B to spare"),
            (Some(4), Some(9), Some(true), "fits: 3.00 GiB of the memory of t4, 4.00 GiB, 1.00 GiB to spare"),
            (Some(2), Some(2), Some(false), "does not fit: needs 3.00 GiB, t4 has 2.00 GiB"),
            (None, Some(1), Some(false), "does not fit: needs 2.00 GiB, the budget is 1.00 GiB"),
        ] {
            let room = room(memory.map(|n| n * GIB), budget.map(|n| n * GIB));
            assert_eq!((room.holds(needs), room.answer(needs).as_str()), (holds, answer));
        }
    }

    #[test]
    fn the_host_is_a_bound_of_its_own() {
        let needs = Needs { of_device: 3 * GIB, of_budget: 2 * GIB, of_host: 2 * GIB };
        let of_host =
            |budget: u64| Room { host_budget_bytes: Some(budget * GIB), ..room(None, Some(4 * GIB)) };
        let fits =
            "fits: 2.00 GiB of the budget of 4.00 GiB, 2.00 GiB to spare; 2.00 GiB of 3.00 GiB on the host";
        assert_eq!((of_host(3).holds(needs), of_host(3).answer(needs).as_str()), (Some(true), fits));
        let short = "does not fit: needs 2.00 GiB of the host, the host budget is 1.00 GiB";
        assert_eq!((of_host(1).holds(needs), of_host(1).answer(needs).as_str()), (Some(false), short));
    }
}

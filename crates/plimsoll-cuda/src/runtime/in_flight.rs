//! Steps in flight: launched, and not yet collected.
//!
//! While one step computes, the inputs of the next are copied to the device beside it, and the host writes those of the
//! one after that. So inputs and outputs are staged in three slots of pinned memory, which steps use in rotation, and
//! copies have a stream of their own next to that of the kernels.

use crate::driver::device::Shared;
use crate::driver::pinned::Pinned;
use crate::driver::stream::{Event, Stream};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::small_results::SmallResults;
use plimsoll_device::staging::STEPS_UNDER_WAY;
use std::sync::Arc;

/// How many runs may be under way.
pub(crate) const UNDER_WAY: u64 = STEPS_UNDER_WAY;

/// The steps of one memory that are in flight, and what stages their inputs and outputs.
pub(crate) struct InFlight {
    shared: Arc<Shared>,
    pub(crate) copies: Stream,
    pub(crate) slots: [StagingSlot; UNDER_WAY as usize],
    pub(crate) small_results: SmallResults,
    /// Passed when the latest step no longer reads its inputs, so that the next inputs may overwrite them.
    pub(crate) taken: Event,
    /// Passed when the latest inputs are on the device.
    pub(crate) arrived: Event,
    /// The executable that was launched last, if any was.
    pub(crate) last: Option<u64>,
    begun: u64,
    collected: u64,
}

/// Pinned staging memory of one step in flight.
pub(crate) struct StagingSlot {
    pub(crate) inputs: Pinned,
    pub(crate) outputs: Pinned,
    /// Passed when the step has ended and its outputs are here.
    pub(crate) done: Event,
}

impl InFlight {
    pub(crate) fn new(shared: &Arc<Shared>) -> Result<InFlight> {
        let slot = || {
            let [inputs, outputs] = [Pinned::new(shared, 0)?, Pinned::new(shared, 0)?];
            Ok(StagingSlot { inputs, outputs, done: Event::new(shared)? })
        };
        Ok(InFlight {
            shared: shared.clone(),
            copies: Stream::new(shared)?,
            slots: [slot()?, slot()?, slot()?],
            small_results: SmallResults::new(shared)?,
            taken: Event::new(shared)?,
            arrived: Event::new(shared)?,
            last: None,
            begun: 0,
            collected: 0,
        })
    }

    /// Makes every slot large enough for so many bytes of inputs and of outputs.
    pub(crate) fn make_room(&mut self, inputs: u64, outputs: u64) -> Result<()> {
        for index in 0..self.slots.len() {
            let slot = &mut self.slots[index];
            if slot.inputs.bytes() >= inputs && slot.outputs.bytes() >= outputs {
                continue;
            }
            if self.begun != self.collected {
                let message = "a larger step cannot be loaded while runs are under way; collect them first";
                return Err(Error::new(ErrorKind::Plan, message));
            }
            self.copies.synchronize()?;
            slot.inputs = Pinned::new(&self.shared, inputs.max(slot.inputs.bytes()))?;
            slot.outputs = Pinned::new(&self.shared, outputs.max(slot.outputs.bytes()))?;
        }
        Ok(())
    }

    /// The slot that the next step uses.
    pub(crate) fn next(&self) -> Result<&StagingSlot> {
        if self.begun - self.collected == UNDER_WAY {
            let message = format!("{UNDER_WAY} runs are under way; collect one before the next begins");
            return Err(Error::new(ErrorKind::Plan, message));
        }
        Ok(&self.slots[(self.begun % UNDER_WAY) as usize])
    }

    /// Notes that the step in the next slot was launched.
    pub(crate) fn begin(&mut self, executable: u64) {
        self.last = Some(executable);
        self.begun += 1;
    }

    /// Waits for the oldest step in flight and returns the number of its slot, which keeps its outputs until it is reused.
    pub(crate) fn collect(&mut self) -> Result<u64> {
        if self.begun == self.collected {
            return Err(Error::new(ErrorKind::Plan, "no run is under way whose results could be collected"));
        }
        let number = self.collected % UNDER_WAY;
        self.slots[number as usize].done.wait()?;
        self.collected += 1;
        Ok(number)
    }

    /// Waits for all copies.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.copies.synchronize()
    }
}

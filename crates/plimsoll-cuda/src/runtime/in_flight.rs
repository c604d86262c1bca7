//! Runs that are under way: what goes in and comes out of them waits in memory that the device copies by itself.
//!
//! While one run computes, the inputs of the next are copied beside it, and those of the one after are written. So there
//! are three places for inputs and outputs, which runs take in turns, and a stream of copies next to that of kernels.

use crate::driver::device::Shared;
use crate::driver::pinned::Pinned;
use crate::driver::stream::{Event, Stream};
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::small_results::Outbox;
use std::sync::Arc;

/// How many runs may be under way: one that computes, one whose inputs come in, and one whose inputs are written.
pub const UNDER_WAY: u64 = 3;

/// The runs of one memory that have begun and were not collected.
pub(crate) struct Queue {
    shared: Arc<Shared>,
    pub(crate) copies: Stream,
    pub(crate) turns: [Turn; UNDER_WAY as usize],
    pub(crate) outbox: Outbox,
    /// Passed when the run that was begun last has taken its inputs, if they may be replaced then.
    pub(crate) taken: Event,
    /// Passed when the inputs that were copied last are on the device.
    pub(crate) arrived: Event,
    /// What was run last, if anything was.
    pub(crate) last: Option<u64>,
    begun: u64,
    collected: u64,
}

/// What runs use in turns.
pub(crate) struct Turn {
    pub(crate) inputs: Pinned,
    pub(crate) outputs: Pinned,
    /// Passed when the run has ended and its outputs are here.
    pub(crate) done: Event,
}

impl Queue {
    pub(crate) fn new(shared: &Arc<Shared>) -> Result<Queue> {
        let turn = || {
            let [inputs, outputs] = [Pinned::new(shared, 0)?, Pinned::new(shared, 0)?];
            Ok(Turn { inputs, outputs, done: Event::new(shared)? })
        };
        Ok(Queue {
            shared: shared.clone(),
            copies: Stream::new(shared)?,
            turns: [turn()?, turn()?, turn()?],
            outbox: Outbox::new(shared)?,
            taken: Event::new(shared)?,
            arrived: Event::new(shared)?,
            last: None,
            begun: 0,
            collected: 0,
        })
    }

    /// Sees to it that so many bytes of inputs and outputs have a place in every turn.
    pub(crate) fn make_room(&mut self, inputs: u64, outputs: u64) -> Result<()> {
        for index in 0..self.turns.len() {
            let turn = &mut self.turns[index];
            if turn.inputs.bytes() >= inputs && turn.outputs.bytes() >= outputs {
                continue;
            }
            if self.begun != self.collected {
                let message = "a larger step cannot be loaded while runs are under way; collect them first";
                return Err(Error::new(ErrorKind::Plan, message));
            }
            self.copies.synchronize()?;
            turn.inputs = Pinned::new(&self.shared, inputs.max(turn.inputs.bytes()))?;
            turn.outputs = Pinned::new(&self.shared, outputs.max(turn.outputs.bytes()))?;
        }
        Ok(())
    }

    /// The turn of the next run.
    pub(crate) fn next(&self) -> Result<&Turn> {
        if self.begun - self.collected == UNDER_WAY {
            let message = format!("{UNDER_WAY} runs are under way; collect one before the next begins");
            return Err(Error::new(ErrorKind::Plan, message));
        }
        Ok(&self.turns[(self.begun % UNDER_WAY) as usize])
    }

    /// Says that the run has begun whose turn it was.
    pub(crate) fn begin(&mut self, executable: u64) {
        self.last = Some(executable);
        self.begun += 1;
    }

    /// Waits for the oldest run under way and tells whose turn it was; its outputs are there until that comes round again.
    pub(crate) fn collect(&mut self) -> Result<u64> {
        if self.begun == self.collected {
            return Err(Error::new(ErrorKind::Plan, "no run is under way whose results could be collected"));
        }
        let number = self.collected % UNDER_WAY;
        self.turns[number as usize].done.wait()?;
        self.collected += 1;
        Ok(number)
    }

    /// Waits for all copies.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.copies.synchronize()
    }
}

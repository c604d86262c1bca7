//! The parameters of a model that is being trained, as observers see them.

use crate::{DType, Result, Run};

/// The parameters as they are after a step.
pub struct Parameters<'a> {
    /// Steps done.
    pub step: usize,
    pub(super) run: &'a mut Run,
}

/// Numbers that are shown at a time.
const PIECE: usize = 1 << 10;

impl Parameters<'_> {
    /// Shows every parameter that an optimizer changes, by name, some of its numbers at a time and in order.
    ///
    /// # Errors
    /// If the device fails, or what `see` returns.
    pub fn show(&mut self, see: &mut dyn FnMut(&str, &[f32]) -> Result<()>) -> Result<()> {
        let shown =
            self.run.states().into_iter().filter(|state| state.trainable && state.dtype == DType::F32);
        for state in shown {
            self.run.show_state(&state.name, &mut |bytes| {
                let mut numbers = [0.0; PIECE];
                bytes.chunks(4 * PIECE).try_for_each(|piece| {
                    let (whole, _) = piece.as_chunks::<4>();
                    numbers
                        .iter_mut()
                        .zip(whole)
                        .for_each(|(number, &bytes)| *number = f32::from_le_bytes(bytes));
                    see(&state.name, &numbers[..whole.len()])
                })
            })?;
        }
        Ok(())
    }
}

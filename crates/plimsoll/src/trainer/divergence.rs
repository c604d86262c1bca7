//! Training that has diverged: which step it was, and where in it numbers ceased to be finite.

use super::training::{TRAINING, Training};
use crate::{Error, ErrorKind, NotFinite, Result};
use plimsoll_data::Batches;

impl Training<'_> {
    /// The error for a loss that is not finite in the step of that number, on its batch of `batches`. The step has left
    /// parameters and slots as they were, so its batch is looked through again, value by value; on a device that runs ahead,
    /// after an update by the step that had begun behind it. `checkpoint` is the last one before it.
    pub(super) fn diverged(
        &mut self,
        loss: f32,
        number: usize,
        batches: &Batches,
        checkpoint: Option<&str>,
    ) -> Error {
        let epoch = number / batches.per_epoch().max(1);
        let why = match self.examine(number, batches) {
            Ok(Some(found)) => format!("{found}"),
            Ok(None) => "every value before it is finite when the step is run again".into(),
            Err(error) => format!("where that began cannot be said ({error})"),
        };
        let mut message = format!(
            "the loss is {loss} in step {} of epoch {}: training has diverged; {why}; lower the learning rate, clip gradients, \
             or look for inputs outside of the range the model expects",
            number + 1,
            epoch + 1
        );
        if let Some(checkpoint) = checkpoint {
            message += &format!("; the last checkpoint before it is {checkpoint}");
        }
        Error::new(ErrorKind::Diverged, message)
    }

    /// The first value of the training step of that number that is not finite.
    fn examine(&mut self, number: usize, batches: &Batches) -> Result<Option<NotFinite>> {
        self.finish()?;
        let mut behind = 1;
        while self.run().ended().is_some() {
            behind += 1;
        }
        let per_epoch = batches.per_epoch().max(1);
        let Some(batch) = batches.epoch((number / per_epoch) as u64).nth(number % per_epoch) else {
            return Ok(None);
        };
        let (batch, length) = self.cut(&batch, number);
        self.with_inputs(&batch, length, |run, shapes, fill| run.examine(TRAINING, shapes, behind, fill))
    }
}

//! The trace: a step under construction, shared by the context and all tensors of one model function.

use crate::{Error, ErrorKind, Result};
use plimsoll_graph::Step;
use std::cell::RefCell;

/// A step under construction; `None` once it has been taken.
pub(crate) struct Trace {
    step: RefCell<Option<Step>>,
    /// Whether the step is on a part of a batch.
    pub(crate) is_part: bool,
}

impl Trace {
    pub(crate) fn new(is_part: bool) -> Self {
        Trace { step: RefCell::new(Some(Step::new())), is_part }
    }

    /// Lets `build` extend the step. It must not use the trace itself.
    pub(crate) fn extend<T>(&self, build: impl FnOnce(&mut Step) -> Result<T>) -> Result<T> {
        match &mut *self.step.borrow_mut() {
            Some(step) => build(step),
            None => Err(Error::new(
                ErrorKind::Trace,
                "this tensor belongs to a step that has already been taken; build the model in a new context",
            )),
        }
    }

    /// Ends the trace.
    pub(crate) fn take(&self) -> Result<Step> {
        let taken = self.step.borrow_mut().take();
        taken.ok_or_else(|| Error::new(ErrorKind::Trace, "the step of this context has already been taken"))
    }
}

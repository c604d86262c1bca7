//! The trace: a step under construction, shared by the context and all tensors of one model function.

use crate::{Error, ErrorKind, Result};
use plimsoll_graph::Step;
use std::cell::RefCell;

/// A step under construction; `None` once it has been taken.
pub(crate) struct Trace(RefCell<Option<Step>>);

impl Trace {
    pub(crate) fn new() -> Self {
        Trace(RefCell::new(Some(Step::new())))
    }

    /// Lets `build` extend the step. It must not use the trace itself.
    pub(crate) fn extend<T>(&self, build: impl FnOnce(&mut Step) -> Result<T>) -> Result<T> {
        match &mut *self.0.borrow_mut() {
            Some(step) => build(step),
            None => Err(Error::new(
                ErrorKind::Trace,
                "this tensor belongs to a step that has already been taken; build the model in a new context",
            )),
        }
    }

    /// Ends the trace.
    pub(crate) fn take(&self) -> Result<Step> {
        let taken = self.0.borrow_mut().take();
        taken.ok_or_else(|| Error::new(ErrorKind::Trace, "the step of this context has already been taken"))
    }
}

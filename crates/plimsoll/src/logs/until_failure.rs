//! Observers that training does not depend on.

use crate::{
    Control, Error, Observer, Parameters, Progress, Result, Saved, Started, TrainingReport, Validation,
};

/// An observer that training goes on without if it fails: a full disk under a log is no reason to lose hours of work.
///
/// What goes wrong when training begins is an error as ever, since nothing is lost by it. After that the first failure is
/// told, and the observer is told nothing more.
pub struct UntilFailure<O, F> {
    observer: O,
    tell: F,
    has_failed: bool,
}

impl<O: Observer, F: FnMut(&Error)> UntilFailure<O, F> {
    /// An observer, and whom to tell of its failure.
    pub fn new(observer: O, tell: F) -> UntilFailure<O, F> {
        UntilFailure { observer, tell, has_failed: false }
    }

    fn unless_failed(&mut self, event: impl FnOnce(&mut O) -> Result<()>) -> Result<()> {
        if !self.has_failed
            && let Err(error) = event(&mut self.observer)
        {
            self.has_failed = true;
            (self.tell)(&error);
        }
        Ok(())
    }
}

impl<O: Observer, F: FnMut(&Error)> Observer for UntilFailure<O, F> {
    fn started(&mut self, started: &Started<'_>) -> Result<()> {
        self.observer.started(started)
    }

    fn step(&mut self, progress: &Progress<'_>, control: &mut Control) -> Result<()> {
        self.unless_failed(|observer| observer.step(progress, control))
    }

    fn parameters(&mut self, parameters: &mut Parameters<'_>) -> Result<()> {
        self.unless_failed(|observer| observer.parameters(parameters))
    }

    fn validated(&mut self, validation: &Validation<'_>, control: &mut Control) -> Result<()> {
        self.unless_failed(|observer| observer.validated(validation, control))
    }

    fn saved(&mut self, saved: &Saved<'_>) -> Result<()> {
        self.unless_failed(|observer| observer.saved(saved))
    }

    fn ended(&mut self, report: &TrainingReport) -> Result<()> {
        self.unless_failed(|observer| observer.ended(report))
    }
}

//! What training tells those who watch it, and what they can ask of it.
//!
//! A loop over a run has few moments that anybody outside wants to see: it begins, a step ends, held-out data was measured,
//! a checkpoint is on the disk, it is over. Bars, logs, pages, early stopping and a person's own callbacks are all observers
//! of these, and none of them is known to the loop.

use super::{Parameters, RunMemory, TrainingReport};
use crate::Result;
use crate::forecast::Forecast;
use std::path::Path;

/// Watches training, and may stop it or change its rates.
///
/// Every method does nothing unless it is written. An error ends training and is what `fit` returns. A closure over
/// [`Progress`] is an observer of steps, `()` one of nothing, and [`Observers`] many in one.
///
/// ```
/// use plimsoll::{Control, Observer, Progress, Result};
///
/// /// Stops as soon as the loss is small.
/// struct GoodEnough(f32);
///
/// impl Observer for GoodEnough {
///     fn step(&mut self, progress: &Progress<'_>, control: &mut Control) -> Result<()> {
///         if progress.loss < self.0 {
///             control.stop("the loss is small enough");
///         }
///         Ok(())
///     }
/// }
/// # let _ = GoodEnough(0.1);
/// ```
pub trait Observer {
    /// Training is about to take its first step, or to go on.
    ///
    /// # Errors
    /// As the observer likes; training ends by it.
    fn started(&mut self, _: &Started<'_>) -> Result<()> {
        Ok(())
    }

    /// A step has ended.
    ///
    /// # Errors
    /// As [`Observer::started`].
    fn step(&mut self, _: &Progress<'_>, _: &mut Control) -> Result<()> {
        Ok(())
    }

    /// The parameters, because some observer has asked to be shown them ([`Control::show_parameters`]).
    ///
    /// # Errors
    /// As [`Observer::started`].
    fn parameters(&mut self, _: &mut Parameters<'_>) -> Result<()> {
        Ok(())
    }

    /// Held-out data was measured.
    ///
    /// # Errors
    /// As [`Observer::started`].
    fn validated(&mut self, _: &Validation<'_>, _: &mut Control) -> Result<()> {
        Ok(())
    }

    /// A checkpoint is on the disk.
    ///
    /// # Errors
    /// As [`Observer::started`].
    fn saved(&mut self, _: &Saved<'_>) -> Result<()> {
        Ok(())
    }

    /// Training has ended as it should.
    ///
    /// # Errors
    /// As [`Observer::started`].
    fn ended(&mut self, _: &TrainingReport) -> Result<()> {
        Ok(())
    }
}

/// The beginning of training.
#[derive(Debug, Clone, Copy)]
pub struct Started<'a> {
    /// What it will take.
    pub forecast: &'a Forecast,
    /// Steps that a run before this one has done, where training goes on from a checkpoint.
    pub step: usize,
    /// How many steps there will be in all.
    pub steps: usize,
    /// Steps in an epoch.
    pub steps_per_epoch: usize,
    /// What the run holds.
    pub memory: RunMemory,
    /// What there is to say of the checkpoint that training goes on from: settings that are others, damaged ones.
    pub notes: &'a [String],
}

/// Where training stands after a step.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// The epoch, from 1.
    pub epoch: usize,
    /// How many epochs there will be.
    pub epochs: usize,
    /// Steps done.
    pub step: usize,
    /// How many steps there will be.
    pub steps: usize,
    /// The loss of the last step, before its update.
    pub loss: f32,
    /// The metrics of the last step's batch by name, the loss left out.
    pub metrics: &'a [(String, f64)],
    /// Steps in a second, the first step left out.
    pub steps_per_second: f64,
    /// Samples in a second, likewise.
    pub samples_per_second: f64,
    /// What the run holds.
    pub memory: RunMemory,
}

/// What was measured on held-out data.
#[derive(Debug, Clone, Copy)]
pub struct Validation<'a> {
    /// The epoch, from 1.
    pub epoch: usize,
    /// Steps done.
    pub step: usize,
    /// Loss and metrics by name.
    pub metrics: &'a [(String, f64)],
}

/// A checkpoint that is on the disk.
#[derive(Debug, Clone, Copy)]
pub struct Saved<'a> {
    /// Its folder.
    pub path: &'a Path,
    /// Steps done.
    pub step: usize,
    /// The bytes of all its states.
    pub bytes: u64,
    /// Whether its metrics are the best so far.
    pub best: bool,
}

/// What an observer asks of training.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Control {
    pub(super) stop: Option<String>,
    pub(super) interrupt: Option<String>,
    pub(super) rate_factor: Option<f64>,
    pub(super) parameters: bool,
}

impl Control {
    /// Ends training after what is under way, as if it had come to its last step. `why` is told in the report.
    pub fn stop(&mut self, why: impl Into<String>) {
        self.stop.get_or_insert(why.into());
    }

    /// Ends training after what is under way, to go on at another time: a checkpoint is saved if training is into a folder,
    /// and nothing else. `why` is told in the report.
    pub fn interrupt(&mut self, why: impl Into<String>) {
        self.interrupt.get_or_insert(why.into());
    }

    /// Whether no further step is to begin.
    pub(super) fn ends(&self) -> bool {
        self.stop.is_some() || self.interrupt.is_some()
    }

    /// Multiplies the rates of all optimizers from the next step on, whatever their schedules say.
    pub fn scale_rates(&mut self, factor: f64) {
        *self.rate_factor.get_or_insert(1.0) *= factor;
    }

    /// Has observers shown the parameters ([`Observer::parameters`]) when what is under way has ended. On a device that runs
    /// beside the host this waits for it.
    pub fn show_parameters(&mut self) {
        self.parameters = true;
    }
}

impl Observer for () {}

impl<F: FnMut(&Progress<'_>)> Observer for F {
    fn step(&mut self, progress: &Progress<'_>, _: &mut Control) -> Result<()> {
        self(progress);
        Ok(())
    }
}

/// Observers that are told one after another.
#[derive(Default)]
pub struct Observers<'a>(Vec<Box<dyn Observer + 'a>>);

impl<'a> Observers<'a> {
    /// None yet.
    pub fn new() -> Observers<'a> {
        Observers::default()
    }

    /// And this one.
    pub fn with(mut self, observer: impl Observer + 'a) -> Observers<'a> {
        self.0.push(Box::new(observer));
        self
    }
}

impl Observer for Observers<'_> {
    fn started(&mut self, started: &Started<'_>) -> Result<()> {
        self.0.iter_mut().try_for_each(|observer| observer.started(started))
    }

    fn step(&mut self, progress: &Progress<'_>, control: &mut Control) -> Result<()> {
        self.0.iter_mut().try_for_each(|observer| observer.step(progress, control))
    }

    fn parameters(&mut self, parameters: &mut Parameters<'_>) -> Result<()> {
        self.0.iter_mut().try_for_each(|observer| observer.parameters(parameters))
    }

    fn validated(&mut self, validation: &Validation<'_>, control: &mut Control) -> Result<()> {
        self.0.iter_mut().try_for_each(|observer| observer.validated(validation, control))
    }

    fn saved(&mut self, saved: &Saved<'_>) -> Result<()> {
        self.0.iter_mut().try_for_each(|observer| observer.saved(saved))
    }

    fn ended(&mut self, report: &TrainingReport) -> Result<()> {
        self.0.iter_mut().try_for_each(|observer| observer.ended(report))
    }
}

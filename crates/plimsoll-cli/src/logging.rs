//! What a run leaves for others to look at: which logs, how often, and where.

use crate::serve::{Address, Server};
use crate::{Result, complain};
use plimsoll::logs::{JsonLog, Pace, RunPage, TensorBoard, UntilFailure};
use plimsoll::{Observers, Training};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::target::count;

/// What is logged of a run.
#[derive(clap::Args)]
pub(crate) struct Logging {
    /// Log every N steps; as often as costs next to nothing if not given
    #[arg(long, value_name = "N", value_parser = count)]
    log_every: Option<usize>,
    /// Write event files for TensorBoard, as is done unless --no-tensorboard says otherwise
    #[arg(long, overrides_with = "no_tensorboard")]
    tensorboard: bool,
    /// Write no event files for TensorBoard
    #[arg(long)]
    no_tensorboard: bool,
    /// Add histograms of all parameters to the event files every N steps
    #[arg(long, value_name = "N", value_parser = count, conflicts_with = "no_tensorboard")]
    histograms: Option<usize>,
    /// Serve a page that shows training live, such as at 127.0.0.1:0 for any free port
    #[arg(long, value_name = "ADDRESS")]
    serve: Option<Address>,
    /// Time the kernels of a step after training, and write them as a trace for Perfetto or chrome://tracing
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// Logs of a run, to be told of it.
pub(crate) struct Logs {
    pub(crate) observers: Observers<'static>,
    /// Serves for as long as it is there.
    server: Option<Server>,
}

impl Logs {
    /// The page's address, where it is served.
    pub(crate) fn address(&self) -> Option<String> {
        self.server.as_ref().map(Server::url)
    }
}

impl Logging {
    /// The logs of a training in the folder of its run.
    pub(crate) fn logs(
        &self,
        title: &str,
        settings: &[(String, String)],
        training: &Training<'_>,
        folder: &Path,
    ) -> Result<Logs> {
        let pace = || self.log_every.map_or_else(Pace::by_time, Pace::every);
        let mut observers = Observers::new();
        if !self.no_tensorboard || self.tensorboard {
            let log = TensorBoard::new(folder).pace(pace());
            let log = if let Some(every) = self.histograms { log.histograms(every) } else { log };
            observers = observers.with(UntilFailure::new(log, tell));
        }
        observers = observers.with(UntilFailure::new(JsonLog::new(folder).pace(pace()), tell));
        let page = RunPage::new(title, settings, &training.plan_picture()).save_to(folder);
        let server = self.serve.as_ref().map(|address| Server::start(address, page.reader())).transpose()?;
        observers = observers.with(UntilFailure::new(page, tell));
        Ok(Logs { observers, server })
    }

    /// Writes the trace of a step, if one was asked for. What is to be kept of the weights has been saved.
    pub(crate) fn trace(&self, training: &mut Training<'_>, quiet: bool, out: &mut dyn Write) -> Result {
        let Some(path) = &self.trace else { return Ok(()) };
        training.step_trace()?.save(path)?;
        if !quiet {
            writeln!(out, "{:<10} {}", "written", path.display())?;
        }
        Ok(())
    }
}

/// A log that fails is no reason to end training.
fn tell(error: &plimsoll::Error) {
    complain("warning", error);
}

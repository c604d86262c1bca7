//! The page of a run: what a person wants to see while it trains, and afterwards.
//!
//! An observer keeps what the page shows, in memory that does not grow. Whoever serves the page has a [`PageReader`] of it
//! on another thread; when training ends, the page is written into the run's folder with its data inside, and opens
//! without a network.

use super::pages;
use super::series::Series;
use crate::forecast::plan_picture::PlanPicture;
use crate::save::io_error;
use crate::{
    Control, Ended, Observer, Progress, Result, RunMemory, Saved, Started, TrainingReport, Validation,
};
use plimsoll_memory::resident_bytes;
use serde_json::{Map, Value, json};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Keeps what the page of a run shows, and writes it when training ends.
pub struct RunPage {
    reader: PageReader,
    folder: Option<PathBuf>,
}

/// The page of a run that is under way, for whoever serves it.
#[derive(Clone)]
pub struct PageReader {
    about: Arc<About>,
    state: Arc<Mutex<State>>,
}

/// What does not change while training.
struct About {
    title: String,
    settings: Value,
    plan: Value,
}

/// What does.
#[derive(Clone)]
struct State {
    status: Status,
    begun: Instant,
    /// When training ended.
    seconds: Option<f64>,
    step: usize,
    steps: usize,
    epoch: usize,
    epochs: usize,
    loss: f64,
    metrics: Vec<(String, f64)>,
    steps_per_second: f64,
    samples_per_second: f64,
    memory: Option<RunMemory>,
    /// Loss, metrics and steps in a second, in this order.
    points: Option<Series>,
    validations: Vec<(usize, Vec<(String, f64)>)>,
    saved: Option<Value>,
    final_metrics: Value,
    /// Why it ended before its last step, if it did.
    why: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Waiting,
    Training,
    Ended,
    Stopped,
}

/// The most validations that are kept: of more, every second one goes.
const VALIDATIONS: usize = 512;

impl RunPage {
    /// The file's name.
    pub const FILE: &'static str = "page.html";

    /// The page of a run of this name, with settings to be shown and the plan that is carried out.
    pub fn new(title: impl Into<String>, settings: &[(String, String)], plan: &PlanPicture) -> RunPage {
        let settings = settings.iter().map(|(name, value)| json!([name, value])).collect();
        let about = About { title: title.into(), settings, plan: plan.to_json() };
        let state = State {
            status: Status::Waiting,
            begun: Instant::now(),
            seconds: None,
            step: 0,
            steps: 0,
            epoch: 0,
            epochs: 0,
            loss: f64::NAN,
            metrics: vec![],
            steps_per_second: 0.0,
            samples_per_second: 0.0,
            memory: None,
            points: None,
            validations: vec![],
            saved: None,
            final_metrics: json!({}),
            why: None,
        };
        let reader = PageReader { about: Arc::new(about), state: Arc::new(Mutex::new(state)) };
        RunPage { reader, folder: None }
    }

    /// Writes `page.html` into this folder when training ends.
    pub fn save_to(mut self, folder: impl Into<PathBuf>) -> RunPage {
        self.folder = Some(folder.into());
        self
    }

    /// The page, for whoever serves it.
    pub fn reader(&self) -> PageReader {
        self.reader.clone()
    }

    fn end(&mut self, status: Status, final_metrics: Value) -> Result<()> {
        let mut state = self.reader.state();
        state.status = status;
        state.seconds = Some(state.begun.elapsed().as_secs_f64());
        state.final_metrics = final_metrics;
        drop(state);
        let Some(folder) = self.folder.take() else { return Ok(()) };
        let path = folder.join(RunPage::FILE);
        let mut page = vec![];
        let written = pages::write_run_page(&self.reader.about(Some(self.reader.data(0))), &mut page);
        written.map_err(|error| io_error("cannot write", &path, error))?;
        super::write_whole(&path, &page)
    }
}

impl PageReader {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn about(&self, data: Option<Value>) -> Value {
        let About { title, settings, plan } = &*self.about;
        json!({ "title": title, "settings": settings, "plan": plan, "data": data })
    }

    /// The page, which asks `data?since=N` for what it shows.
    ///
    /// # Errors
    /// None that can be told; writing to memory is what can fail.
    pub fn html(&self) -> io::Result<Vec<u8>> {
        let mut page = vec![];
        pages::write_run_page(&self.about(None), &mut page)?;
        Ok(page)
    }

    /// Where training stands, with the points after a step. A reader whose points have another `stride` drops those of
    /// steps that are no multiples of it.
    pub fn data(&self, since: usize) -> Value {
        // Training waits for the lock: nothing is done under it but copying.
        let state = self.state().clone();
        let metrics: Map<String, Value> =
            state.metrics.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let columns: Vec<&str> = ["loss"]
            .into_iter()
            .chain(state.metrics.iter().map(|(name, _)| name.as_str()))
            .chain(["steps_per_second"])
            .collect();
        let points: Vec<Value> = state
            .points
            .iter()
            .flat_map(|points| points.after(since))
            .map(|(step, row)| std::iter::once(json!(step)).chain(row.iter().map(|&n| n.into())).collect())
            .collect();
        let validations: Vec<Value> = state
            .validations
            .iter()
            .map(|(step, metrics)| {
                let metrics: Map<String, Value> =
                    metrics.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
                json!([step, metrics])
            })
            .collect();
        let left = (state.status == Status::Training && state.steps_per_second > 0.0)
            .then(|| state.steps.saturating_sub(state.step) as f64 / state.steps_per_second);
        json!({
            "status": state.status.name(),
            "step": state.step,
            "steps": state.steps,
            "epoch": state.epoch,
            "epochs": state.epochs,
            "loss": state.loss,
            "metrics": metrics,
            "steps_per_second": state.steps_per_second,
            "samples_per_second": state.samples_per_second,
            "seconds": state.seconds.unwrap_or_else(|| state.begun.elapsed().as_secs_f64()),
            "seconds_left": left,
            "memory": state.memory.map(|memory| json!({
                "peak": memory.peak,
                "mean": memory.mean,
                "arena_bytes": memory.arena_bytes,
                "host_bytes": memory.host_bytes,
                "budget_bytes": memory.budget_bytes,
                "grown_bytes": memory.grown_bytes,
                "process_bytes": resident_bytes(),
            })),
            "stride": state.points.as_ref().map_or(1, Series::stride),
            "columns": columns,
            "points": points,
            "validations": validations,
            "saved": state.saved,
            "final_metrics": state.final_metrics,
            "why": state.why,
        })
    }

    /// Whether training has ended, well or not.
    pub fn has_ended(&self) -> bool {
        matches!(self.state().status, Status::Ended | Status::Stopped)
    }
}

impl Status {
    const fn name(self) -> &'static str {
        match self {
            Status::Waiting => "waiting",
            Status::Training => "training",
            Status::Ended => "ended",
            Status::Stopped => "stopped",
        }
    }
}

impl Observer for RunPage {
    fn started(&mut self, started: &Started<'_>) -> Result<()> {
        let mut state = self.reader.state();
        state.status = Status::Training;
        state.begun = Instant::now();
        (state.step, state.steps) = (started.step, started.steps);
        state.memory = Some(started.memory);
        Ok(())
    }

    fn step(&mut self, progress: &Progress<'_>, _: &mut Control) -> Result<()> {
        let mut state = self.reader.state();
        let state = &mut *state;
        (state.step, state.steps) = (progress.step, progress.steps);
        (state.epoch, state.epochs) = (progress.epoch, progress.epochs);
        state.loss = f64::from(progress.loss);
        if state.metrics.len() == progress.metrics.len() {
            state.metrics.iter_mut().zip(progress.metrics).for_each(|(kept, now)| kept.1 = now.1);
        } else {
            state.metrics = progress.metrics.to_vec();
        }
        state.steps_per_second = progress.steps_per_second;
        state.samples_per_second = progress.samples_per_second;
        state.memory = Some(progress.memory);
        let metrics = progress.metrics.iter().map(|&(_, value)| value);
        let row = std::iter::once(state.loss).chain(metrics).chain([progress.steps_per_second]);
        state.points.get_or_insert_with(|| Series::new(progress.metrics.len() + 2)).push(progress.step, row);
        Ok(())
    }

    fn validated(&mut self, validation: &Validation<'_>, _: &mut Control) -> Result<()> {
        let mut state = self.reader.state();
        if state.validations.len() == VALIDATIONS {
            let mut index = 0;
            state.validations.retain(|_| {
                index += 1;
                index % 2 == 0
            });
        }
        state.validations.push((validation.step, validation.metrics.to_vec()));
        Ok(())
    }

    fn saved(&mut self, saved: &Saved<'_>) -> Result<()> {
        let path = saved.path.to_string_lossy();
        let about = json!({ "step": saved.step, "path": path, "bytes": saved.bytes, "best": saved.best });
        self.reader.state().saved = Some(about);
        Ok(())
    }

    fn ended(&mut self, report: &TrainingReport) -> Result<()> {
        self.reader.state().why = match &report.ended {
            Ended::Finished => None,
            Ended::Stopped(why) | Ended::Interrupted(why) => Some(why.clone()),
        };
        self.end(Status::Ended, json!(report.final_metrics))
    }
}

impl Drop for RunPage {
    fn drop(&mut self) {
        if self.reader.state().status == Status::Training {
            // Training has failed, and has told why to whoever began it.
            let _ = self.end(Status::Stopped, json!({}));
        }
    }
}

//! Training under way: a loop over a run.

use super::batch_reader::BatchReader;
use super::fit::{Before, Fitting};
use super::measures::Measures;
use super::report::save;
use super::steps::two_fields;
use super::{Ended, Observer, Start, Trainer, TrainingReport, Weight};
use crate::checkpoint::{Checkpoint, Checkpoints, Manifest};
use crate::device::target::Target;
use crate::forecast::Forecast;
use crate::forecast::memory_trace;
use crate::forecast::placement::placement_text;
use crate::forecast::plan_picture::PlanPicture;
use crate::forecast::process_use::ProcessUse;
use crate::logs::StepTrace;
use crate::run::{FillPart, InputShapes, LATER_KERNELS};
use crate::save::RunFolder;
use crate::tensor_file::Described;
use crate::{DType, Error, ErrorKind, Result, Run, Shape};
use plimsoll_data::{Batch, Dataset, Position};
use plimsoll_memory::TraceFile;
use std::collections::BTreeMap;

/// Training that is compiled: its forecast is what it will reserve.
pub struct Training<'a> {
    pub(super) trainer: Trainer,
    pub(super) data: &'a Dataset,
    pub(super) held_out: Option<&'a Dataset>,
    pub(super) run: Run,
    notes: Vec<String>,
    reader: Option<BatchReader>,
    /// The shapes of steps that have come up, by samples and length.
    shapes: BTreeMap<(usize, Option<usize>), InputShapes>,
}

/// The positions of the steps in their run.
pub(super) const TRAINING: usize = 0;
const EVALUATION: usize = 1;

impl<'a> Training<'a> {
    pub(super) fn new(
        trainer: &Trainer,
        data: &'a Dataset,
        held_out: Option<&'a Dataset>,
    ) -> Result<Training<'a>> {
        let cut = trainer.cut_to(data);
        cut.check_shapes(data)?;
        cut.check_data(data)?;
        if let Some(held_out) = held_out {
            cut.check_data(held_out)?;
        }
        let target = cut.run(data, held_out)?.target()?;
        match Training::on(trainer, data, held_out, target.clone()) {
            Err(refused) => Err(cut.advised(data, held_out, &target, refused)?),
            planned => planned,
        }
    }

    /// Training on data that has been looked at, planned for a target.
    pub(super) fn on(
        trainer: &Trainer,
        data: &'a Dataset,
        held_out: Option<&'a Dataset>,
        target: Target,
    ) -> Result<Training<'a>> {
        let asked = trainer.batch;
        let trainer = trainer.cut_to(data);
        let run = trainer.run(data, held_out)?.compile_for(&target)?.on(target);
        let mut notes = vec![];
        if asked > trainer.batch {
            notes
                .push(format!("a batch of {asked} is more than the {} samples: cut to that", data.samples()));
        }
        let (reader, shapes) = (None, BTreeMap::new());
        Ok(Training { trainer, data, held_out, run, notes, reader, shapes })
    }

    /// What training will take: exactly what it reserves.
    pub fn forecast(&self) -> Forecast {
        let forecast = self.run.forecast();
        let later = self.later_kernels(&forecast);
        let device_use = forecast.device_use.map(|of| of.with_later_kernels(later));
        let (data_bytes, batch_bytes) =
            self.trainer.data_use(self.data, self.held_out).map_or((0, 0), |of| (of.data, of.batch));
        let process_use = forecast.process_use.map(|of| ProcessUse { data_bytes, batch_bytes, ..of });
        let process_use = process_use.map(|of| of.with_later_kernels(later));
        let notes = [&self.notes[..], &forecast.notes].concat();
        Forecast { notes, device_use, process_use, ..forecast }
    }

    /// How many kernels will be loaded while training because their shapes come up then, and kept.
    fn later_kernels(&self, forecast: &Forecast) -> u64 {
        let known = |samples: usize, length: Option<usize>| {
            let Ok(fields) = two_fields(self.data) else { return true };
            let shapes = self.trainer.input_shapes(fields, samples, length);
            self.run.is_declared(TRAINING, &shapes)
        };
        let later = self.trainer.coming_shapes(self.data).into_iter().filter(|&(s, l)| !known(s, l)).count();
        let kernels = forecast.steps.first().map_or(0, |step| step.kernels);
        (later as u64 * kernels as u64).min(LATER_KERNELS)
    }

    /// The run that is looped over: its states, its steps `train` and, with held-out data, `evaluate`.
    pub fn run(&mut self) -> &mut Run {
        &mut self.run
    }

    /// Trains; `observer` is told of every step, and may end training. Nothing is written to a disk:
    /// [`Training::fit_into`] does that.
    ///
    /// # Errors
    /// If memory cannot be reserved, data cannot be read, a loss is not finite, or an observer fails.
    pub fn fit(&mut self, observer: &mut dyn Observer) -> Result<TrainingReport> {
        if self.trainer.keep_best.is_some() {
            let message = "the best weights are kept as a checkpoint: train into a folder to keep them";
            return Err(Error::new(ErrorKind::Argument, message));
        }
        Ok(Fitting::new(self, observer, Before::default(), None)?.run()?.0)
    }

    /// Trains, and writes into a folder what is needed to go on after any end: checkpoints as often as the trainer says,
    /// and in the end what [`Training::save`] does. `start` says what becomes of checkpoints that are there.
    ///
    /// If an observer interrupts training, a checkpoint is saved, and no weights and no report: they come when training
    /// has gone on to its end.
    ///
    /// # Errors
    /// As [`Training::fit`]; if a file cannot be written; or if the folder has a checkpoint that is of other training, or
    /// would be lost.
    pub fn fit_into(
        &mut self,
        folder: &mut RunFolder,
        start: Start,
        observer: &mut dyn Observer,
    ) -> Result<TrainingReport> {
        let checkpoints = Checkpoints::of(folder);
        let before = self.begin_from(&checkpoints, start)?;
        let disk = Some((checkpoints, &mut *folder));
        let (report, unsaved) = Fitting::new(self, observer, before, disk)?.run()?;
        if !matches!(report.ended, Ended::Interrupted(_)) {
            let saved = self.save(&report, folder);
            unsaved.map_or(saved, Err)?;
        }
        Ok(report)
    }

    /// Takes over the states of a checkpoint, if training is to go on from one, and returns what was done until then.
    fn begin_from(&mut self, checkpoints: &Checkpoints, start: Start) -> Result<Before> {
        let (latest, damaged) = checkpoints.latest();
        let mut notes: Vec<String> =
            damaged.iter().map(|error| format!("a checkpoint was passed over: {error}")).collect();
        match (start, latest) {
            (Start::Resume, Some(checkpoint)) => {
                notes.extend(checkpoint.manifest.check(&self.manifest(0, 0, 1), &checkpoint.path)?);
                self.open()?;
                checkpoint.restore(&mut self.run, false)?;
                let position = &checkpoint.manifest.data_position;
                let position =
                    (!position.is_empty()).then(|| Position::from_numbers(position)).transpose()?;
                let history = checkpoint.history()?;
                Ok(Before { history, checkpoint: Some(checkpoint.path), notes, position })
            }
            (Start::Resume, None) => Ok(Before { notes, ..Before::default() }),
            (Start::Anew, Some(Checkpoint { path, manifest })) if !manifest.is_finished() => {
                let message = format!(
                    "{} is of training that has come to step {} of {}: resume it (--resume), or start over and lose it \
                     (--restart)",
                    path.display(),
                    manifest.step,
                    manifest.steps
                );
                Err(Error::new(ErrorKind::File, message))
            }
            (Start::Anew | Start::Over, _) => {
                checkpoints.remove_all()?;
                Ok(Before::default())
            }
        }
    }

    /// What a checkpoint after so many steps says of this training.
    pub(super) fn manifest(&self, step: usize, steps: usize, steps_per_epoch: usize) -> Manifest {
        let mut manifest = Manifest::new(step as u64, steps as u64, steps_per_epoch as u64);
        (manifest.settings, manifest.changeable) = self.trainer.identity(self.data);
        manifest
    }

    /// What the main step has placed where: every state and large buffer with its home, offset and bytes, and where each kernel
    /// runs, in lines of at most so many columns.
    pub fn placement(&self, width: usize) -> String {
        let elsewhere = if self.run.target().is_process() { "file" } else { "host" };
        placement_text(self.run.main(), &self.run.target().device.name(), elsewhere, width)
    }

    /// What the step that needs the most memory does with it.
    pub fn memory_trace(&self) -> TraceFile {
        memory_trace::of_plan(self.run.most(), self.trainer.budget, self.run.main_parts())
    }

    /// The plan of the step that needs the most memory, to be drawn.
    pub fn plan_picture(&self) -> PlanPicture {
        PlanPicture::of_run(&self.run, &self.forecast(), self.trainer.budget)
    }

    /// Times the kernels of the training step on its first full batch and lays them out as a trace. This trains on that
    /// batch a few times more: whatever is to be kept of the weights must have been saved before.
    ///
    /// # Errors
    /// As [`Training::fit`].
    pub fn step_trace(&mut self) -> Result<StepTrace> {
        let batches = self.data.batches(self.trainer.batch)?;
        let Some(batch) = batches.epoch(0).next() else {
            return Err(Error::new(ErrorKind::Data, "there is no batch to run"));
        };
        self.finish()?;
        let mut seconds: Vec<Vec<f64>> = vec![];
        for _ in 0..StepTrace::REPEATS {
            let of_run = self.with_inputs(&batch, self.trainer.longest(), |run, _, fill| {
                Ok(run.time_kernels(fill)?.iter().map(|kernel| kernel.seconds).collect())
            })?;
            seconds.push(of_run);
        }
        let picture = PlanPicture::of_main(&self.run, &self.forecast(), self.trainer.budget);
        Ok(StepTrace::new(picture, &seconds))
    }

    /// Parameters and statistics by name, copied: to save them, [`Training::save`] takes no second copy of them.
    ///
    /// # Errors
    /// If the device fails.
    pub fn weights(&mut self) -> Result<BTreeMap<String, Weight>> {
        let mut weights = BTreeMap::new();
        for Described { name, shape, .. } in self.saved() {
            let values = self.run.state(&name)?.to_vec()?;
            weights.insert(name, Weight { shape, values });
        }
        Ok(weights)
    }

    /// Writes `weights.safetensors`, `run.json` and `memory.jsonl` into a folder, as [`super::Trained::save`] does, from where the
    /// weights are, in pieces of a few MiB.
    ///
    /// # Errors
    /// If a file cannot be written, or the device fails.
    pub fn save(&mut self, report: &TrainingReport, folder: &mut RunFolder) -> Result<()> {
        self.run.let_go_of_memory();
        let (tensors, memory) = (self.saved(), self.memory_trace());
        let run = &mut self.run;
        save(folder, report, &memory, &tensors, &mut |index, write| {
            run.show_state(&tensors[index].name, write)
        })
    }

    /// The states that are saved: those the model is made of, by name.
    fn saved(&self) -> Vec<Described> {
        let states = self.run.states().into_iter();
        let mut saved: Vec<Described> = states
            .filter(|state| state.of_model && state.dtype == DType::F32)
            .map(|state| Described { name: state.name, dtype: state.dtype, shape: state.shape })
            .collect();
        saved.sort_by(|a, b| a.name.cmp(&b.name));
        saved
    }

    /// Reserves memory, unless that is done, and gives states their first values.
    pub(crate) fn open(&mut self) -> Result<()> {
        if self.reader.is_some() {
            return Ok(());
        }
        for (name, values) in &self.trainer.weights {
            let state = self.run.states().into_iter().find(|state| state.name == *name);
            let Some(state) = state else {
                let known: Vec<String> =
                    self.run.states().into_iter().filter(|s| s.of_model).take(8).map(|s| s.name).collect();
                let message = format!("the model has no parameter `{name}`; it has {}, …", known.join(", "));
                return Err(Error::new(ErrorKind::Name, message));
            };
            if values.len() != state.shape.iter().product::<usize>() {
                let message = format!(
                    "parameter `{name}` is {}{:?}, was given {} numbers",
                    state.dtype,
                    state.shape,
                    values.len()
                );
                return Err(Error::new(ErrorKind::Shape, message));
            }
            self.run.set_state(name, &crate::Array::new(&state.shape, values)?)?;
        }
        let leaves = self.run.ahead()? > 0;
        let crops = self.trainer.lengths.is_some();
        let samples = self.held_out.map_or(0, Dataset::samples).max(self.data.samples());
        let most = self.trainer.batch.min(samples);
        let (full, longest) = (self.trainer.batch.min(self.data.samples()), self.trainer.longest());
        let rest = self.held_out.map(|held_out| held_out.samples() % full.max(1)).filter(|&rest| rest > 0);
        let evaluated = rest.map(|rest| (rest, longest));
        for (samples, length) in
            self.trainer.training_shapes(self.data).into_iter().chain([(full, longest)]).chain(evaluated)
        {
            self.shapes_of(samples, length)?;
        }
        self.reader =
            Some(BatchReader::new(self.data.fields(), most, self.run.host().clone(), leaves, crops));
        Ok(())
    }

    /// The threads that the host's part is done on.
    pub(crate) fn threads(&self) -> usize {
        self.run.host().threads()
    }

    /// Begins to train on a batch in the step of that number. On a device that runs beside the host it may end later.
    pub(crate) fn train(&mut self, batch: &Batch<'_>, number: usize) -> Result<()> {
        let (batch, length) = self.cut(batch, number);
        self.begin(TRAINING, &batch, length)
    }

    /// The seconds that training steps waited for their inputs to be written since this was last asked, where they did.
    pub(super) fn take_input_seconds(&mut self) -> Option<f64> {
        self.reader.as_mut().and_then(BatchReader::take_seconds)
    }

    /// What the step of that number takes of a batch, and the length that its sequences are cropped to.
    pub(super) fn cut<'b>(&self, batch: &Batch<'b>, number: usize) -> (Batch<'b>, Option<usize>) {
        let samples = self.trainer.samples(number, batch.samples());
        (batch.part(0, samples), self.trainer.length(number))
    }

    fn begin(&mut self, step: usize, batch: &Batch<'_>, length: Option<usize>) -> Result<()> {
        self.with_inputs(batch, length, |run, shapes, fill| run.begin(step, shapes, fill))
    }

    /// Gives the run the shapes of a batch, and what writes its inputs.
    pub(crate) fn with_inputs<T>(
        &mut self,
        batch: &Batch<'_>,
        length: Option<usize>,
        take: impl FnOnce(&mut Run, &InputShapes, FillPart<'_>) -> Result<T>,
    ) -> Result<T> {
        self.open()?;
        let bucket = length.map(|length| self.trainer.bucket(length));
        let shapes = self.shapes_of(batch.samples(), bucket)?;
        let reader = &mut self.reader;
        take(&mut self.run, &shapes, &mut |part, input, out| match reader {
            Some(reader) => reader.fill(&batch.part(part.first, part.samples), input, length, out),
            None => Ok(()),
        })
    }

    fn shapes_of(&mut self, samples: usize, length: Option<usize>) -> Result<InputShapes> {
        if let Some(known) = self.shapes.get(&(samples, length)) {
            return Ok(known.clone());
        }
        let fields = two_fields(self.data)?;
        let shapes = self.trainer.input_shapes(fields, samples, length);
        let shapes: InputShapes =
            shapes.iter().map(|shape| Ok(Shape::new(shape)?)).collect::<Result<Vec<Shape>>>()?.into();
        self.shapes.insert((samples, length), shapes.clone());
        Ok(shapes)
    }

    /// Waits for everything that has begun.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.run.finish()
    }

    /// The metrics on the held-out data with the present weights.
    pub(super) fn evaluate(&mut self) -> Result<BTreeMap<String, f64>> {
        let Some(held_out) = self.held_out else { return Ok(BTreeMap::new()) };
        self.finish()?;
        let mut measures = Measures::new(self.trainer.held_out_metrics());
        let at_once = self.trainer.batch.min(held_out.samples()).max(1);
        for batch in held_out.batches(at_once)?.epoch(0) {
            self.begin(EVALUATION, &batch, self.trainer.longest())?;
            self.finish()?;
            if let Some(ended) = self.run.ended() {
                measures.add(&ended);
                self.run.reuse(ended);
            }
        }
        // No training step waited for these.
        self.take_input_seconds();
        Ok(measures.take().iter().cloned().collect())
    }
}

//! Training under way: a loop over a run.

use super::batch_reader::BatchReader;
use super::report::{Clock, save};
use super::steps::two_fields;
use super::{LossScale, Progress, RunMemory, Trainer, TrainingLength, TrainingReport, Weight};
use crate::forecast::Forecast;
use crate::forecast::memory_trace;
use crate::forecast::process_use::ProcessUse;
use crate::loss::Loss;
use crate::run::{InputShapes, LATER_KERNELS, TimedKernel, count_labels};
use crate::save::RunFolder;
use crate::tensor_file::Described;
use crate::{DType, Error, ErrorKind, PredictedVsActual, Result, Run, Shape};
use plimsoll_data::{Batch, Dataset};
use plimsoll_memory::TraceFile;
use std::collections::BTreeMap;

/// Training that is compiled: its forecast is what it will reserve.
pub struct Training<'a> {
    trainer: Trainer,
    data: &'a Dataset,
    held_out: Option<&'a Dataset>,
    run: Run,
    notes: Vec<String>,
    reader: Option<BatchReader>,
    /// The shapes of steps that have come up, by samples and length.
    shapes: BTreeMap<(usize, Option<usize>), InputShapes>,
}

/// The positions of the steps in their run.
const TRAINING: usize = 0;
const EVALUATION: usize = 1;

impl<'a> Training<'a> {
    pub(super) fn new(
        trainer: &Trainer,
        data: &'a Dataset,
        held_out: Option<&'a Dataset>,
    ) -> Result<Training<'a>> {
        let asked = trainer.batch;
        let trainer = trainer.cut_to(data);
        trainer.check_shapes(data)?;
        trainer.check_data(data)?;
        if let Some(held_out) = held_out {
            trainer.check_data(held_out)?;
        }
        let described = trainer.run(data, held_out)?;
        let target = described.target()?;
        let run = match described.compile_for(&target) {
            Ok(compiled) => compiled.on(target),
            Err(refused) => return Err(trainer.advised(data, held_out, &target, refused)?),
        };
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
            self.trainer.host_use(self.data, self.held_out).map_or((0, 0), |of| (of.data, of.batch));
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

    /// Trains; `watch` is told of every step.
    ///
    /// # Errors
    /// If memory cannot be reserved, data cannot be read, or a loss is not finite.
    pub fn fit(&mut self, watch: &mut dyn FnMut(&Progress)) -> Result<TrainingReport> {
        self.open()?;
        let forecast = self.forecast();
        let mean = memory_trace::mean_ledger(self.run.most());
        let trainer = self.trainer.clone();
        let batches = self.data.batches(trainer.batch)?;
        let batches = if trainer.shuffle { batches.shuffled(trainer.seed) } else { batches };
        let per_epoch = batches.per_epoch();
        let (epochs, steps) = match trainer.length {
            TrainingLength::Epochs(epochs) => (epochs, epochs * per_epoch),
            TrainingLength::Steps(steps) => (steps.div_ceil(per_epoch.max(1)), steps),
        };
        let mut losses = Vec::with_capacity(steps);
        let mut clock = Clock::start();
        let mut first = None;
        let mut ended = |training: &mut Training<'_>| {
            while let Some(ended) = training.run.ended() {
                let loss = ended.scalars().first().copied().unwrap_or(f32::NAN);
                let epoch = losses.len() / per_epoch.max(1);
                if !loss.is_finite() {
                    return Err(diverged(loss, losses.len(), epoch));
                }
                losses.push(loss);
                clock.step_done();
                let arena_bytes = training.run.reserved_bytes().unwrap_or(0);
                let (_, first_bytes) = *first.get_or_insert((training.run.reservations(), arena_bytes));
                watch(&Progress {
                    epoch: epoch + 1,
                    epochs,
                    step: losses.len(),
                    steps,
                    loss,
                    steps_per_second: clock.steps_per_second(),
                    memory: RunMemory {
                        peak: forecast.ledger,
                        mean,
                        arena_bytes,
                        host_bytes: forecast.host_bytes,
                        budget_bytes: trainer.budget,
                        grown_bytes: arena_bytes - first_bytes,
                    },
                });
            }
            Ok(())
        };
        for (number, batch) in
            (0..epochs).flat_map(|epoch| batches.epoch(epoch as u64)).take(steps).enumerate()
        {
            self.train(&batch, number)?;
            ended(self)?;
        }
        self.finish()?;
        ended(self)?;
        let steps_per_second = clock.steps_per_second();
        let mut final_metrics = BTreeMap::new();
        if self.held_out.is_some() {
            final_metrics = self.evaluate()?;
        } else if let Some(&last) = losses.last() {
            final_metrics.insert("loss".into(), f64::from(last));
        }
        let reservations = self.run.reservations();
        Ok(TrainingReport {
            predicted_peak_bytes: forecast.peak_bytes,
            arena_bytes: self.run.reserved_bytes().unwrap_or(0),
            allocations_after_first_step: reservations - first.map_or(reservations, |(before, _)| before),
            ledger: forecast.ledger,
            losses,
            steps_per_second,
            final_metrics,
            batch: trainer.batch,
            micro_batches: forecast.micro_batches,
            budget_bytes: trainer.budget,
            remedies: forecast.remedies,
            host_bytes: forecast.host_bytes,
            seed: trainer.seed,
            device: trainer.device.to_string(),
            threads: self.threads(),
            precision: trainer.precision.to_string(),
            loss_scale: LossScale::of(&mut self.run)?,
            device_use: PredictedVsActual::of(forecast.device_use, self.run.books()),
            process_use: PredictedVsActual::of_process(forecast.process_use),
        })
    }

    /// What the step that needs the most memory does with it.
    pub fn memory_trace(&self) -> TraceFile {
        memory_trace::of_plan(self.run.most(), self.trainer.budget, self.run.forecast().micro_batches)
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
        let samples = self.trainer.samples(number, batch.samples());
        let length = self.trainer.length(number);
        let batch = batch.part(0, samples);
        self.begin(TRAINING, &batch, length)
    }

    fn begin(&mut self, step: usize, batch: &Batch<'_>, length: Option<usize>) -> Result<()> {
        self.open()?;
        let bucket = length.map(|length| self.trainer.bucket(length));
        let shapes = self.shapes_of(batch.samples(), bucket)?;
        let Some(reader) = &mut self.reader else { return Ok(()) };
        self.run.begin(step, &shapes, &mut |part, input, out| {
            reader.fill(&batch.part(part.first, part.samples), input, length, out)
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
    fn evaluate(&mut self) -> Result<BTreeMap<String, f64>> {
        let Some(held_out) = self.held_out else { return Ok(BTreeMap::new()) };
        self.finish()?;
        let (mut sums, mut weights) = ([0.0; 2], 0.0);
        let at_once = self.trainer.batch.min(held_out.samples()).max(1);
        for batch in held_out.batches(at_once)?.epoch(0) {
            self.begin(EVALUATION, &batch, self.trainer.longest())?;
            self.finish()?;
            let Some(ended) = self.run.ended() else { continue };
            let weight = self.counted(&batch)?;
            for (sum, &value) in sums.iter_mut().zip(ended.scalars()) {
                *sum += f64::from(value) * weight;
            }
            weights += weight;
        }
        let mean = |sum: f64| sum / weights.max(1.0);
        let mut metrics = BTreeMap::from([("loss".to_string(), mean(sums[0]))]);
        if self.trainer.accuracy {
            metrics.insert("accuracy".into(), mean(sums[1]));
        }
        Ok(metrics)
    }

    /// How much a batch counts in means over several: by its labels that are not negative, if it has labels.
    fn counted(&mut self, batch: &Batch<'_>) -> Result<f64> {
        let shapes = self.shapes_of(batch.samples(), self.trainer.longest())?;
        let dtype = self.run.input_dtype(EVALUATION, 1);
        let Some(reader) = &mut self.reader else { return Ok(0.0) };
        if self.trainer.loss != Loss::SparseCrossEntropy {
            return Ok(batch.samples() as f64);
        }
        let mut labels = vec![0; shapes[1].elements() * dtype.size()];
        reader.fill(batch, 1, self.trainer.longest(), &mut labels)?;
        Ok(count_labels(dtype, &labels) as f64)
    }

    /// Runs the step for a full batch, the largest there is, once more: its kernels in the plan's order, with the seconds
    /// of each.
    pub(crate) fn time_kernels(&mut self) -> Result<Vec<TimedKernel<'_>>> {
        self.finish()?;
        self.run.time_kernels()
    }
}

fn diverged(loss: f32, step: usize, epoch: usize) -> Error {
    let message = format!(
        "the loss is {loss} in step {} of epoch {}: training has diverged; lower the learning rate, clip \
         gradients, or look for inputs outside of the range the model expects",
        step + 1,
        epoch + 1
    );
    Error::new(ErrorKind::Diverged, message)
}

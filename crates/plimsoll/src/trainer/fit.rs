//! The loop of training: steps, measurements of held-out data, checkpoints, and those who watch.

use super::measures::Measures;
use super::observe::{Control, Observer, Progress, Saved, Started, Validation};
use super::report::{Clock, DataWait, Ended, LossScale, TrainingReport};
use super::training::Training;
use super::{Every, Parameters, RunMemory, TrainingLength};
use crate::checkpoint::{Checkpoints, History, Measured};
use crate::forecast::{Forecast, memory_trace};
use crate::save::RunFolder;
use crate::{Array, DType, Error, ErrorKind, PredictedVsActual, Result};
use plimsoll_data::{Batches, Epoch, Position};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

/// What the states are called that rates are multiplied by, after their optimizer.
const RATE: &str = ":rate";

/// What was done before training goes on.
#[derive(Default)]
pub(super) struct Before {
    pub(super) history: History,
    /// The checkpoint that training goes on from.
    pub(super) checkpoint: Option<PathBuf>,
    /// What there is to say of it.
    pub(super) notes: Vec<String>,
    /// Where in its epoch it ended, where stages make the samples.
    pub(super) position: Option<Position>,
}

/// Training under way.
pub(super) struct Fitting<'t, 'a, 'o> {
    training: &'t mut Training<'a>,
    observer: &'o mut dyn Observer,
    /// Where checkpoints go, if they go anywhere.
    disk: Option<(Checkpoints, &'o mut RunFolder)>,
    forecast: Forecast,
    memory: RunMemory,
    batches: Batches,
    epochs: usize,
    steps: usize,
    history: History,
    /// The steps that were done before, and what there is to say of them.
    first_step: usize,
    notes: Vec<String>,
    /// The metrics of the last step.
    measures: Measures,
    clock: Clock,
    /// How often memory had been reserved when the first step ended.
    reservations: Option<u64>,
    control: Control,
    /// When the last checkpoint was saved, or training began.
    saved: Instant,
    /// Where in the data training is when it is saved.
    position: Option<Position>,
    data: DataWait,
    /// The step of the last checkpoint, which was saved or gone on from.
    saved_step: Option<usize>,
    /// The last one that was saved, or gone on from, for whoever asks what is left.
    last_checkpoint: Option<String>,
}

impl<'t, 'a, 'o> Fitting<'t, 'a, 'o> {
    /// Training that goes on after what was measured.
    pub(super) fn new(
        training: &'t mut Training<'a>,
        observer: &'o mut dyn Observer,
        Before { mut history, checkpoint, notes, position }: Before,
        disk: Option<(Checkpoints, &'o mut RunFolder)>,
    ) -> Result<Self> {
        if let Every::Seconds(_) = training.trainer.validate {
            let message = "held-out data is measured after epochs or steps, and not by the clock: what follows from it must \
                           be the same in a run that stops and goes on";
            return Err(Error::new(ErrorKind::Argument, message));
        }
        training.open()?;
        let forecast = training.forecast();
        let trainer = &training.trainer;
        let batches = training.data.batches(trainer.batch)?;
        let batches = if trainer.shuffle { batches.shuffled(trainer.seed) } else { batches };
        let per_epoch = batches.per_epoch();
        let (epochs, steps) = match trainer.length {
            TrainingLength::Epochs(epochs) => (epochs, epochs.saturating_mul(per_epoch)),
            TrainingLength::Steps(steps) => (steps.div_ceil(per_epoch.max(1)), steps),
        };
        let memory = RunMemory {
            peak: forecast.ledger,
            mean: memory_trace::mean_ledger(training.run.most()),
            arena_bytes: training.run.reserved_bytes().unwrap_or(0),
            host_bytes: forecast.host_use.map_or(forecast.host_bytes, |of| of.bytes()),
            budget_bytes: trainer.budget,
            host_budget_bytes: trainer.host_budget,
            grown_bytes: 0,
        };
        let measures = Measures::new(trainer.metrics.iter().cloned());
        let first_step = history.losses.len();
        history.losses.reserve(steps.saturating_sub(first_step));
        Ok(Fitting {
            training,
            observer,
            disk,
            forecast,
            memory,
            batches,
            epochs,
            steps,
            history,
            first_step,
            notes,
            measures,
            clock: Clock::start(),
            reservations: None,
            control: Control::default(),
            saved: Instant::now(),
            position,
            data: DataWait::nothing(),
            saved_step: (first_step > 0).then_some(first_step),
            last_checkpoint: checkpoint.map(|path| path.display().to_string()),
        })
    }

    /// Trains to the end, or to where somebody stops it. The error, if there is one, is that of the last checkpoint.
    pub(super) fn run(mut self) -> Result<(TrainingReport, Option<Error>)> {
        let (per_epoch, memory) = (self.batches.per_epoch().max(1), self.memory);
        let started = Started {
            forecast: &self.forecast,
            step: self.first_step,
            steps: self.steps,
            steps_per_epoch: per_epoch,
            memory,
            notes: &self.notes,
        };
        self.observer.started(&started)?;
        self.decide()?;
        let batches = self.batches.clone();
        let mut number = self.first_step;
        'training: for epoch in self.first_step / per_epoch..self.epochs {
            let mut coming = self.coming(&batches, epoch as u64, number % per_epoch);
            loop {
                if number >= self.steps || self.control.ends() {
                    self.leave(&coming);
                    break 'training;
                }
                let Some(batch) = coming.next() else { break };
                self.training.train(&batch, number)?;
                number += 1;
                self.take_ended()?;
                self.between_steps(number, &coming)?;
            }
            self.leave(&coming);
        }
        self.training.finish()?;
        self.take_ended()?;
        self.end()
    }

    fn step(&self) -> usize {
        self.history.losses.len()
    }

    /// The batches of an epoch after the first so many: from where an earlier run was, if that is known.
    fn coming<'b>(&mut self, batches: &'b Batches, epoch: u64, done: usize) -> Epoch<'b> {
        match self.position.take() {
            Some(position) if position.epoch() == epoch && position.records() == done as u64 => {
                batches.epoch_from(&position)
            }
            _ => {
                let mut coming = batches.epoch(epoch);
                if let Some(last) = done.checked_sub(1) {
                    coming.nth(last);
                }
                coming
            }
        }
    }

    /// Takes note of where an epoch was left, and of what its stages did.
    fn leave(&mut self, coming: &Epoch<'_>) {
        self.position = Some(coming.position());
        let resident = self.training.data.resident_bytes();
        let inputs = self.training.take_input_seconds().map(|seconds| (seconds, resident));
        self.data.add(coming, inputs);
    }

    /// Takes note of the steps that have ended.
    fn take_ended(&mut self) -> Result<()> {
        while let Some(ended) = self.training.run.ended() {
            let loss = ended.scalars().first().copied().unwrap_or(f32::NAN);
            let epoch = self.step() / self.batches.per_epoch().max(1);
            if !loss.is_finite() {
                let (step, last) = (self.step(), self.last_checkpoint.as_deref());
                return Err(self.training.diverged(loss, step, &self.batches, last));
            }
            self.history.losses.push(loss);
            self.clock.step_done();
            self.measures.add(&ended);
            self.training.run.reuse(ended);
            let arena_bytes = self.training.run.reserved_bytes().unwrap_or(0);
            self.reservations.get_or_insert(self.training.run.reservations());
            let steps_per_second = self.clock.steps_per_second();
            let step = self.step();
            let progress = Progress {
                epoch: epoch + 1,
                epochs: self.epochs,
                step,
                steps: self.steps,
                loss,
                metrics: self.measures.take(),
                steps_per_second,
                samples_per_second: steps_per_second * self.training.trainer.batch as f64,
                memory: RunMemory {
                    arena_bytes,
                    grown_bytes: arena_bytes - self.memory.arena_bytes,
                    ..self.memory
                },
            };
            self.observer.step(&progress, &mut self.control)?;
        }
        Ok(())
    }

    /// Does what is due after the step of that number has begun: measures held-out data, saves a checkpoint.
    fn between_steps(&mut self, number: usize, coming: &Epoch<'_>) -> Result<()> {
        let per_epoch = self.batches.per_epoch();
        let trainer = &self.training.trainer;
        let validates = trainer.validate.is_due(number, per_epoch, || 0.0);
        let seconds = || self.saved.elapsed().as_secs_f64();
        let saves = self.disk.is_some() && trainer.checkpoint.is_due(number, per_epoch, seconds);
        let mut is_best = false;
        if validates && self.training.held_out.is_some() {
            self.settle()?;
            is_best = self.validate()?;
        }
        if saves || is_best && self.disk.is_some() {
            self.settle()?;
            self.position = Some(coming.position());
            self.save(self.control.stop.is_some() || number == self.steps)?;
        }
        if std::mem::take(&mut self.control.parameters) {
            self.settle()?;
            let step = self.step();
            self.observer.parameters(&mut Parameters { step, run: &mut self.training.run })?;
        }
        self.apply_rates()
    }

    /// Waits for all steps that have begun, and takes note of them.
    fn settle(&mut self) -> Result<()> {
        self.training.finish()?;
        self.take_ended()?;
        self.apply_rates()
    }

    /// Multiplies rates as was asked for.
    fn apply_rates(&mut self) -> Result<()> {
        let Some(factor) = self.control.rate_factor.take() else { return Ok(()) };
        let run = &mut self.training.run;
        let is_rate = |name: &str| name.ends_with(RATE);
        let states = run.states().into_iter();
        for state in states.filter(|s| !s.of_model && is_rate(&s.name) && s.dtype == DType::F64) {
            let rate: f64 = run.state(&state.name)?.item()?;
            run.set_state(&state.name, &Array::new(&[], &[rate * factor])?)?;
        }
        Ok(())
    }

    /// Measures held-out data, unless that was done after this very step, and does what follows from it. Returns whether the
    /// weights are the best so far and to be kept.
    fn validate(&mut self) -> Result<bool> {
        let step = self.step() as u64;
        if self.history.validations.last().is_some_and(|last| last.step == step) {
            return Ok(false);
        }
        let metrics: Vec<(String, f64)> = self.training.evaluate()?.into_iter().collect();
        self.history.names = metrics.iter().map(|(name, _)| name.clone()).collect();
        let values = metrics.iter().map(|(_, value)| *value).collect();
        self.history.validations.push(Measured { step, values });
        let epoch = self.step().div_ceil(self.batches.per_epoch().max(1));
        let validation = Validation { epoch, step: self.step(), metrics: &metrics };
        self.observer.validated(&validation, &mut self.control)?;
        let trainer = self.training.trainer.clone();
        if let Some(plateau) = trainer.reduce_on_plateau.filter(|plateau| plateau.is_due(&self.history)) {
            self.control.scale_rates(plateau.factor);
        }
        self.apply_rates()?;
        self.decide()?;
        Ok(self.best_step() == Some(step))
    }

    /// The step with the best weights of those that can be kept: they are in a checkpoint, or there now. A run that was not
    /// to keep the best until it went on may have had better ones.
    fn best_step(&self) -> Option<u64> {
        let (watched, now) = (self.training.trainer.keep_best.as_ref()?, self.step() as u64);
        let is_there =
            |step| step == now || self.disk.as_ref().is_some_and(|(checkpoints, _)| checkpoints.has(step));
        watched.best(&self.history, is_there).map(|(step, _)| step)
    }

    /// Stops training where the metrics so far say so.
    fn decide(&mut self) -> Result<()> {
        let trainer = &self.training.trainer;
        let stopping = trainer.early_stopping.as_ref();
        if !self.history.names.is_empty() {
            let watched = [
                stopping.map(|stopping| &stopping.watched),
                trainer.keep_best.as_ref(),
                trainer.reduce_on_plateau.as_ref().map(|plateau| &plateau.watched),
            ];
            watched.into_iter().flatten().try_for_each(|watched| watched.check(&self.history))?;
        }
        if let Some(reason) = stopping.and_then(|stopping| stopping.reason(&self.history)) {
            self.control.stop(reason);
        }
        Ok(())
    }

    /// Saves a checkpoint, unless there is one of this very step.
    fn save(&mut self, finished: bool) -> Result<()> {
        let (step, steps) = (self.step(), self.steps);
        if self.saved_step == Some(step) {
            return Ok(());
        }
        let best_step = self.best_step();
        let Some((checkpoints, folder)) = &mut self.disk else { return Ok(()) };
        let mut manifest = self.training.manifest(step, steps, self.batches.per_epoch());
        (manifest.finished, manifest.best_step) = (finished, best_step);
        if self.batches.dataset().source().is_none() {
            manifest.data_position = self.position.as_ref().map_or_else(Vec::new, Position::to_numbers);
        }
        let (path, bytes) = checkpoints.save(&mut self.training.run, &manifest, &self.history)?;
        folder.set_used()?;
        checkpoints.keep(self.training.trainer.keep, best_step)?;
        (self.saved, self.saved_step) = (Instant::now(), Some(step));
        self.last_checkpoint = Some(path.display().to_string());
        self.observer.saved(&Saved { path: &path, step, bytes, best: best_step == Some(step as u64) })
    }

    /// Measures and saves what is there in the end. A checkpoint that the disk has no room for is no reason to lose the
    /// weights, which take less: the error is returned beside the report.
    fn end(mut self) -> Result<(TrainingReport, Option<Error>)> {
        let ended = match (self.control.interrupt.take(), self.control.stop.take()) {
            _ if self.step() >= self.steps => Ended::Finished,
            (Some(why), _) => Ended::Interrupted(why),
            (None, Some(why)) => Ended::Stopped(why),
            (None, None) => Ended::Finished,
        };
        let steps_per_second = self.clock.steps_per_second();
        let mut final_metrics = BTreeMap::new();
        self.training.run.let_go_of_memory();
        let interrupted = matches!(ended, Ended::Interrupted(_));
        if !interrupted && self.training.held_out.is_some() {
            self.validate()?;
        }
        let mut unsaved = None;
        if self.training.trainer.checkpoint != Every::Never || interrupted {
            match self.save(!interrupted) {
                Err(error) if !interrupted && error.kind() == ErrorKind::File => unsaved = Some(error),
                saved => saved?,
            }
        }
        let best_step = self.take_best(interrupted)?;
        let best = best_step.and_then(|step| self.history.validations.iter().find(|of| of.step == step));
        let reported = if interrupted { None } else { best.or(self.history.validations.last()) };
        if let Some(of) = reported {
            final_metrics.extend(self.history.names.iter().cloned().zip(of.values.iter().copied()));
        } else if let Some(&last) = self.history.losses.last() {
            final_metrics.insert("loss".into(), f64::from(last));
        }
        let Fitting { training, observer, forecast, history, first_step, steps, .. } = self;
        let (trainer, reservations) = (training.trainer.clone(), training.run.reservations());
        let report = TrainingReport {
            predicted_peak_bytes: forecast.peak_bytes,
            arena_bytes: training.run.reserved_bytes().unwrap_or(0),
            allocations_after_first_step: reservations - self.reservations.unwrap_or(reservations),
            ledger: forecast.ledger,
            losses: history.losses,
            metrics: history.names,
            validations: history
                .validations
                .into_iter()
                .map(|Measured { step, values }| (step as usize, values))
                .collect(),
            ended,
            notes: self.notes,
            resumed_from: (first_step > 0).then_some(first_step),
            steps,
            best_step: best_step.map(|step| step as usize),
            steps_per_second,
            final_metrics,
            batch: trainer.batch,
            micro_batches: forecast.micro_batches,
            budget_bytes: trainer.budget,
            remedies: forecast.remedies,
            host_bytes: forecast.host_bytes,
            host_use: forecast.host_use,
            host_budget_bytes: trainer.host_budget,
            seed: trainer.seed,
            device: trainer.device.to_string(),
            threads: training.threads(),
            precision: trainer.precision.to_string(),
            loss_scale: LossScale::of(&mut training.run)?,
            device_use: PredictedVsActual::of(forecast.device_use, training.run.books()),
            process_use: PredictedVsActual::of_process(forecast.process_use),
            data_wait: self.data.into_known(),
        };
        observer.ended(&report)?;
        Ok((report, unsaved))
    }

    /// Takes back the weights of the best checkpoint, if they are to be kept, and returns its step. One that is spoiled is
    /// passed over, and in the end the last weights are kept: they are not to be lost for better ones.
    fn take_best(&mut self, interrupted: bool) -> Result<Option<u64>> {
        let Some(watched) = self.training.trainer.keep_best.clone().filter(|_| !interrupted) else {
            return Ok(None);
        };
        let (now, mut passed_over) = (self.step() as u64, vec![]);
        let Some((best, value)) = watched.best(&self.history, |_| true) else { return Ok(None) };
        let kept = loop {
            let is_there = |step: u64| match &self.disk {
                _ if step == now => true,
                Some((checkpoints, _)) => checkpoints.has(step) && !passed_over.contains(&step),
                None => false,
            };
            let step = watched.best(&self.history, is_there).map_or(now, |(step, _)| step);
            let Some((checkpoints, _)) = self.disk.as_ref().filter(|_| step != now) else { break now };
            match checkpoints.of_step(step) {
                Ok(checkpoint) => {
                    checkpoint.restore(&mut self.training.run, true)?;
                    break step;
                }
                Err(error) => {
                    self.notes.push(format!("a checkpoint was passed over: {error}"));
                    passed_over.push(step);
                }
            }
        };
        if kept != best {
            let metric = &watched.metric;
            self.notes.push(format!(
                "the weights of step {kept} are kept: those of step {best} were better, with {metric} {value:.6}, but there \
                 is no checkpoint of them"
            ));
        }
        Ok(Some(kept))
    }
}

//! What training does by what it measures, by what observers ask, and what it refuses to go on from.

use plimsoll::data::Dataset;
use plimsoll::layers::{Dense, Flatten, Sequential};
use plimsoll::loss::Loss;
use plimsoll::{
    Control, Ended, ErrorKind, Every, Observer, Optimizer, Progress, Result, RunFolder, Start, Trainer,
    TrainingReport, data,
};
use std::path::Path;

fn datasets() -> (Dataset, Dataset) {
    let split = Dataset::new(data::digits()).unwrap().split(0.1, 1).unwrap();
    (split.train, split.held_out.split(0.1, 2).unwrap().train)
}

/// A rate of `0` never improves anything.
fn trainer(rate: f64) -> Trainer {
    let model = Sequential::new().then(Flatten).then(Dense::new(10));
    Trainer::new(model, Loss::SparseCrossEntropy, Optimizer::sgd(rate)).batch(32).epochs(8).threads(1)
}

fn fit(
    trainer: &Trainer,
    folder: &Path,
    start: Start,
    observer: &mut dyn Observer,
) -> Result<TrainingReport> {
    let (train, held_out) = datasets();
    let mut training = trainer.compile(&train, Some(&held_out))?;
    training.fit_into(&mut RunFolder::open(folder)?, start, observer)
}

#[test]
fn training_stops_when_held_out_data_gets_no_better_and_stays_stopped() {
    let place = tempfile::tempdir().unwrap();
    let trainer = trainer(0.0).early_stopping("loss", 2, 0.0);
    let report = fit(&trainer, place.path(), Start::Anew, &mut ()).unwrap();
    let per_epoch = report.steps / 8;
    assert_eq!(report.losses.len(), 3 * per_epoch, "one to begin with, and two that are no better");
    assert!(matches!(&report.ended, Ended::Stopped(why) if why.contains("loss has not been better")));
    let again = fit(&trainer, place.path(), Start::Resume, &mut ()).unwrap();
    assert_eq!((again.losses, again.validations), (report.losses, report.validations));
    // What has ended is not in the way of what begins.
    assert!(fit(&trainer, place.path(), Start::Anew, &mut ()).is_ok());
}

#[test]
fn rates_fall_on_a_plateau_and_stay_low_in_the_checkpoint() {
    let place = tempfile::tempdir().unwrap();
    let (train, held_out) = datasets();
    let falling = trainer(0.0).reduce_on_plateau("loss", 3, 0.5);
    let mut training = falling.compile(&train, Some(&held_out)).unwrap();
    training.fit_into(&mut RunFolder::open(place.path()).unwrap(), Start::Anew, &mut ()).unwrap();
    let rate = |training: &mut plimsoll::Training<'_>| -> f64 {
        training.run().state("optimizer:rate").unwrap().item().unwrap()
    };
    assert_eq!(rate(&mut training), 0.25, "after epochs 4 and 7");
    drop(training);
    let mut resumed = falling.compile(&train, Some(&held_out)).unwrap();
    resumed.fit_into(&mut RunFolder::open(place.path()).unwrap(), Start::Resume, &mut ()).unwrap();
    assert_eq!(rate(&mut resumed), 0.25);
}

#[test]
fn an_observer_stops_training_or_interrupts_it_to_go_on() {
    struct After(usize, bool);
    impl Observer for After {
        fn step(&mut self, progress: &Progress<'_>, control: &mut Control) -> Result<()> {
            if progress.step == self.0 {
                if self.1 { control.interrupt("for lunch") } else { control.stop("good enough") }
            }
            Ok(())
        }
    }
    let place = tempfile::tempdir().unwrap();
    let [stopped, interrupted, whole] =
        ["stopped", "interrupted", "whole"].map(|name| place.path().join(name));
    let report = fit(&trainer(0.1), &stopped, Start::Anew, &mut After(7, false)).unwrap();
    assert_eq!((report.losses.len(), report.ended), (7, Ended::Stopped("good enough".into())));
    assert!(stopped.join("weights.safetensors").exists(), "what is there is the result");
    let report = fit(&trainer(0.1), &interrupted, Start::Anew, &mut After(7, true)).unwrap();
    assert_eq!((report.losses.len(), report.ended), (7, Ended::Interrupted("for lunch".into())));
    assert!(!interrupted.join("weights.safetensors").exists());
    let error = fit(&trainer(0.1), &interrupted, Start::Anew, &mut ()).unwrap_err();
    assert!(error.kind() == ErrorKind::File && error.to_string().contains("step 7 of"), "{error}");
    fit(&trainer(0.1), &interrupted, Start::Resume, &mut ()).unwrap();
    fit(&trainer(0.1), &whole, Start::Anew, &mut ()).unwrap();
    let weights = |folder: &Path| std::fs::read(folder.join("weights.safetensors")).unwrap();
    assert!(weights(&interrupted) == weights(&whole));
}

#[test]
fn a_finished_run_goes_on_for_more_epochs_as_if_it_had_been_longer() {
    let place = tempfile::tempdir().unwrap();
    let [short, long] = ["short", "long"].map(|name| place.path().join(name));
    fit(&trainer(0.1).epochs(3), &short, Start::Anew, &mut ()).unwrap();
    let report = fit(&trainer(0.1).epochs(5), &short, Start::Resume, &mut ()).unwrap();
    let expected = fit(&trainer(0.1).epochs(5), &long, Start::Anew, &mut ()).unwrap();
    assert_eq!(report.losses, expected.losses);
    let weights = |folder: &Path| std::fs::read(folder.join("weights.safetensors")).unwrap();
    assert!(weights(&short) == weights(&long));
}

/// Multiplies rates after a step.
struct ScaleRates {
    after: usize,
    factor: f64,
}

impl Observer for ScaleRates {
    fn step(&mut self, progress: &Progress<'_>, control: &mut Control) -> Result<()> {
        if progress.step == self.after {
            control.scale_rates(self.factor);
        }
        Ok(())
    }
}

#[test]
fn a_run_that_is_to_keep_the_best_only_when_it_goes_on_keeps_the_best_that_it_has() {
    let place = tempfile::tempdir().unwrap();
    let (train, _) = datasets();
    let per_epoch = train.samples().div_ceil(32);
    // It climbs from the end of the second epoch on, and only the fourth has a checkpoint.
    let mut climb = ScaleRates { after: 2 * per_epoch, factor: -1.0 };
    let plain = trainer(0.1).keep(1);
    let first = fit(&plain.clone().epochs(4), place.path(), Start::Anew, &mut climb).unwrap();
    let weights = || std::fs::read(place.path().join("weights.safetensors")).unwrap();
    let fourth = weights();
    let index = first.metrics.iter().position(|name| name == "loss").unwrap();
    let loss = |epoch: usize| first.validations[epoch - 1].1[index];
    assert!(loss(2) < loss(3) && loss(3) < loss(4), "{:?}", first.validations);
    assert!(first.notes.is_empty(), "{:?}", first.notes);

    let report = fit(&plain.epochs(6).keep_best("loss"), place.path(), Start::Resume, &mut ()).unwrap();
    assert_eq!(report.best_step, Some(4 * per_epoch));
    assert_eq!(report.final_metrics["loss"], loss(4));
    assert!(weights() == fourth);
    let said = report.notes.join("\n");
    assert!(said.contains(&format!("those of step {} were better", 2 * per_epoch)), "{said}");
}

#[test]
fn a_best_checkpoint_that_is_spoiled_costs_no_weights() {
    let place = tempfile::tempdir().unwrap();
    let (train, _) = datasets();
    let per_epoch = train.samples().div_ceil(32);
    let mut climb = ScaleRates { after: 2 * per_epoch, factor: -1.0 };
    let keeping = trainer(0.1).keep(1).keep_best("loss");
    fit(&keeping.clone().epochs(4), place.path(), Start::Anew, &mut climb).unwrap();
    let states = format!("checkpoints/step-{:010}/states.safetensors", 2 * per_epoch);
    std::fs::write(place.path().join(states), "spoiled").unwrap();
    let report = fit(&keeping.epochs(5), place.path(), Start::Resume, &mut ()).unwrap();
    assert_eq!(report.best_step, Some(5 * per_epoch), "the last");
    assert!(place.path().join("weights.safetensors").exists());
    assert!(report.notes.iter().any(|note| note.contains("not as it was written")), "{:?}", report.notes);
}

#[test]
fn what_diverges_after_going_on_names_the_checkpoint_that_it_went_on_from() {
    let place = tempfile::tempdir().unwrap();
    let report = fit(&trainer(0.1).epochs(1), place.path(), Start::Anew, &mut ()).unwrap();
    let mut burst = ScaleRates { after: report.losses.len() + 1, factor: 1e39 };
    let error = fit(&trainer(0.1).epochs(2), place.path(), Start::Resume, &mut burst).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Diverged, "{error}");
    let checkpoint = place.path().join(format!("checkpoints/step-{:010}", report.losses.len()));
    assert!(error.to_string().contains(&checkpoint.display().to_string()), "{error}");
}

#[test]
fn a_checkpoint_of_other_training_is_refused_with_what_differs() {
    let place = tempfile::tempdir().unwrap();
    fit(&trainer(0.1).epochs(1), place.path(), Start::Anew, &mut ()).unwrap();
    let refused =
        |trainer: &Trainer| fit(trainer, place.path(), Start::Resume, &mut ()).unwrap_err().to_string();
    assert!(refused(&trainer(0.1).seed(1)).contains("seed was 0 and is 1"));
    assert!(refused(&trainer(0.1).batch(16)).contains("batch was 32 and is 16"));
    let adam = trainer(0.1).optimizer(Optimizer::adam(0.1));
    assert!(refused(&adam).contains("the model or the optimizer is another"));
}

#[test]
fn checkpoints_and_measurements_take_no_byte_of_the_arena() {
    let place = tempfile::tempdir().unwrap();
    let (train, held_out) = datasets();
    let often = trainer(0.1).epochs(2).checkpoint(Every::Steps(1)).validate(Every::Steps(1));
    let saved = fit(&often, place.path(), Start::Anew, &mut ()).unwrap();
    let plain = trainer(0.1).epochs(2).compile(&train, Some(&held_out)).unwrap().fit(&mut ()).unwrap();
    assert_eq!((saved.arena_bytes, saved.allocations_after_first_step), (plain.arena_bytes, 0));
}

#[test]
fn what_cannot_be_decided_by_is_said() {
    let place = tempfile::tempdir().unwrap();
    let refused =
        |trainer: Trainer| fit(&trainer, place.path(), Start::Over, &mut ()).unwrap_err().to_string();
    assert!(refused(trainer(0.1).validate(Every::Seconds(1.0))).contains("not by the clock"));
    assert!(refused(trainer(0.1).early_stopping("bleu", 2, 0.0)).contains("`bleu` is not measured"));
}

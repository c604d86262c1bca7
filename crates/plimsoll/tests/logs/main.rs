//! Logs, pages and traces of training, read back by code that shares nothing with what wrote them.

mod events;
mod json_log;
mod pages;
mod plan_picture;
mod step_trace;

use plimsoll::logs::UntilFailure;
use plimsoll::{
    Control, Error, ErrorKind, Forecast, Observer, Progress, Result, RunMemory, Spec, Started, TrainingReport,
};

/// The moments of a run, told to observers without one.
struct Told {
    forecast: Forecast,
    memory: RunMemory,
    report: TrainingReport,
}

impl Told {
    fn new() -> Told {
        let spec = Spec::find("digits").expect("a workload").steps(2);
        let (data, _) = spec.datasets().expect("data");
        let mut training = spec.trainer().compile(&data, None).expect("a plan");
        let forecast = training.forecast();
        let mut memory = None;
        let report =
            training.fit(&mut |progress: &Progress<'_>| memory = Some(progress.memory)).expect("training");
        Told { forecast, memory: memory.expect("steps"), report }
    }

    fn start(&self, observer: &mut dyn Observer, step: usize, steps: usize) {
        let started = Started {
            forecast: &self.forecast,
            step,
            steps,
            steps_per_epoch: 10,
            memory: self.memory,
            notes: &[],
        };
        observer.started(&started).expect("it starts");
    }

    /// Tells of steps, each with its number as its loss.
    fn steps(&self, observer: &mut dyn Observer, range: std::ops::RangeInclusive<usize>, steps: usize) {
        for step in range {
            let metrics = [("accuracy".to_string(), step as f64 / 1e6)];
            let progress = Progress {
                epoch: 1 + step / 10,
                epochs: 1 + steps / 10,
                step,
                steps,
                loss: step as f32,
                metrics: &metrics,
                steps_per_second: 100.0,
                samples_per_second: 3200.0,
                memory: self.memory,
            };
            observer.step(&progress, &mut Control::default()).expect("a step");
        }
    }
}

#[test]
fn a_log_that_fails_is_told_of_once_and_training_goes_on() {
    struct Failing(usize);
    impl Observer for Failing {
        fn step(&mut self, _: &Progress<'_>, _: &mut Control) -> Result<()> {
            self.0 += 1;
            Err(Error::new(ErrorKind::File, format!("no space left at step {}", self.0)))
        }
    }
    let spec = Spec::find("digits").expect("a workload").steps(5);
    let (data, _) = spec.datasets().expect("data");
    let mut told = vec![];
    let mut log = UntilFailure::new(Failing(0), |error: &Error| told.push(error.to_string()));
    let trained = spec.trainer().fit(&data, None, &mut log).expect("training goes on");
    assert_eq!(trained.report.losses.len(), 5);
    assert_eq!(told, ["no space left at step 1"]);
}

//! Training on data sets whose samples are made by stages: shuffled with a buffer, mapped on threads, filtered, packed.

use plimsoll::data::{self, Dataset, Element, Field, Pack, RamBudget, Record, Workers};
use plimsoll::layers::{Activation, Dense, Embedding, Flatten, Sequential};
use plimsoll::loss::Loss;
use plimsoll::{
    Control, DType, Ended, ErrorKind, Every, Input, Observer, Optimizer, Progress, Result, Run, RunFolder,
    Start, Trainer,
};
use std::path::Path;

fn fields() -> Vec<Field> {
    vec![
        Field::new("features", Element::F32, &[64]).unwrap(),
        Field::new("label", Element::I32, &[]).unwrap(),
    ]
}

/// The digits without the nines, scaled and with noise, from a shuffle buffer.
fn digits(workers: usize) -> Dataset {
    Dataset::new(data::digits())
        .unwrap()
        .shuffle(300, 5)
        .filter(|digit| Ok(digit.get::<i32>("label")?[0] != 9))
        .map_random(Workers::Threads(workers), &fields(), 3, |digit, out, draws| {
            let from = digit.get::<f32>("features")?;
            let to = out.resize::<f32>("features", &[64])?;
            to.iter_mut().zip(from).for_each(|(to, from)| *to = from / 16.0 + draws.unit() as f32 * 0.1);
            out.set("label", &[], digit.get::<i32>("label")?)
        })
        .unwrap()
        .take(700)
        .counted()
        .unwrap()
}

fn trainer() -> Trainer {
    let model = Sequential::new()
        .then(Flatten)
        .then(Dense::new(32).activation(Activation::Relu))
        .then(Dense::new(10));
    Trainer::new(model, Loss::SparseCrossEntropy, Optimizer::adam(1e-2)).batch(64).epochs(3).seed(4)
}

/// Interrupts after a step.
struct InterruptAt(usize);

impl Observer for InterruptAt {
    fn step(&mut self, progress: &Progress<'_>, control: &mut Control) -> Result<()> {
        if progress.step == self.0 {
            control.interrupt("to see whether it goes on");
        }
        Ok(())
    }
}

fn weights(folder: &Path) -> Vec<u8> {
    std::fs::read(folder.join("weights.safetensors")).unwrap()
}

#[test]
fn training_that_is_interrupted_within_an_epoch_goes_on_to_the_same_bits_on_any_number_of_threads() {
    let whole = tempfile::tempdir().unwrap();
    let mut folder = RunFolder::open(whole.path()).unwrap();
    let data = digits(1);
    let report = trainer().compile(&data, None).unwrap().fit_into(&mut folder, Start::Anew, &mut ()).unwrap();
    assert_eq!(report.losses.len(), 33);
    let wait = report.data_wait.unwrap();
    assert!(wait.most_bytes > 0 && !wait.slowest_stage.is_empty(), "{wait:?}");
    for (workers, step) in [(0, 1), (2, 5), (7, 11), (1, 17), (2, 32)] {
        let parts = tempfile::tempdir().unwrap();
        let (first, second) = (digits(workers), digits(2));
        for (data, step) in [(&first, step), (&second, usize::MAX)] {
            let mut folder = RunFolder::open(parts.path()).unwrap();
            let mut training = trainer().checkpoint(Every::Steps(4)).compile(data, None).unwrap();
            let report = training.fit_into(&mut folder, Start::Resume, &mut InterruptAt(step)).unwrap();
            assert_eq!(matches!(report.ended, Ended::Interrupted(_)), step < 33);
        }
        assert!(
            weights(parts.path()) == weights(whole.path()),
            "{workers} workers, interrupted after step {step}"
        );
    }
}

/// Sequences of tokens, filtered, mapped on threads, shuffled with a buffer and packed into rows, each with what follows.
fn packed(workers: usize) -> Dataset {
    let tokens = [Field::open("tokens", Element::I32, &[Field::OPEN]).unwrap()];
    let pairs = [
        Field::new("tokens", Element::I32, &[16]).unwrap(),
        Field::new("next", Element::I32, &[16]).unwrap(),
    ];
    let texts = Dataset::from_function(&tokens, 400, |number, out| {
        let tokens: Vec<i32> = (0..number % 23).map(|at| ((number * 7 + at * at) % 60) as i32).collect();
        out.set("tokens", &[tokens.len()], &tokens)
    });
    let texts = texts.unwrap().filter(|text| Ok(text.get::<i32>("tokens")?.len() > 2));
    let shifted = texts.map_random(Workers::Threads(workers), &tokens, 8, |from, to, draws| {
        let more = draws.below(4) as i32;
        let tokens: Vec<i32> = from.get::<i32>("tokens")?.iter().map(|token| token + more).collect();
        to.set("tokens", &[tokens.len()], &tokens)
    });
    let rows = shifted.unwrap().shuffle(50, 2).pack(17, Pack::Cut, &[]).unwrap();
    let pairs = rows.map(Workers::Threads(workers), &pairs, |row, out| {
        let tokens = row.get::<i32>("tokens")?;
        out.set("tokens", &[16], &tokens[..16])?;
        out.set("next", &[16], &tokens[1..])
    });
    pairs.unwrap().repeat_forever().take(320)
}

fn train_packed(workers: usize, folder: &Path) {
    let model = Sequential::new().then(Embedding::new(64, 12)).then(Dense::new(64));
    let trainer = Trainer::new(model, Loss::SparseCrossEntropy, Optimizer::adam(1e-2)).batch(8).epochs(3);
    let trainer = trainer.checkpoint(Every::Steps(3));
    let data = packed(workers);
    let mut folder = RunFolder::open(folder).unwrap();
    trainer.compile(&data, None).unwrap().fit_into(&mut folder, Start::Resume, &mut ()).unwrap();
}

/// The child of the test below: trains until it is killed.
#[test]
fn a_child_that_trains_where_its_parent_says() {
    let (Ok(folder), Ok(workers)) =
        (std::env::var("PLIMSOLL_TEST_FOLDER"), std::env::var("PLIMSOLL_TEST_WORKERS"))
    else {
        return;
    };
    train_packed(workers.parse().unwrap(), Path::new(&folder));
}

#[test]
fn a_shuffled_packed_parallel_pipeline_that_is_killed_goes_on_with_the_same_samples() {
    let whole = tempfile::tempdir().unwrap();
    train_packed(0, whole.path());
    for workers in [1, 2, 7] {
        let killed = tempfile::tempdir().unwrap();
        let mut kills = 0u32;
        loop {
            let mut child = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "a_child_that_trains_where_its_parent_says"])
                .env("PLIMSOLL_TEST_FOLDER", killed.path())
                .env("PLIMSOLL_TEST_WORKERS", workers.to_string())
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap();
            // Later each time, so that some come to a checkpoint and one to the end.
            std::thread::sleep(std::time::Duration::from_millis(20 + 15 * u64::from(kills)));
            match child.try_wait().unwrap() {
                Some(status) => {
                    assert!(status.success());
                    break;
                }
                None => child.kill().unwrap(),
            }
            child.wait().unwrap();
            kills += 1;
        }
        assert!(kills > 0, "it was never killed");
        assert!(weights(killed.path()) == weights(whole.path()), "{workers} workers, killed {kills} times");
    }
}

#[test]
fn the_forecast_counts_the_budget_of_the_pipeline() {
    let data = digits(2).within(RamBudget::bytes(3 << 20)).unwrap();
    let with = trainer().compile(&data, None).unwrap().forecast().process_use.unwrap().data_bytes;
    assert!((3 << 20..(3 << 20) + (1 << 18)).contains(&with), "{with}");
    let report = trainer().compile(&data, None).unwrap().fit(&mut ()).unwrap();
    assert!(report.data_wait.unwrap().most_bytes <= 3 << 20);
}

#[test]
fn the_report_says_what_steps_waited_for_samples_that_are_read_where_they_are_needed() {
    let data = Dataset::new(data::digits()).unwrap();
    let report = trainer().compile(&data, None).unwrap().fit(&mut ()).unwrap();
    let wait = report.data_wait.unwrap();
    assert_eq!((wait.slowest_stage.as_str(), wait.most_bytes), ("read", data.resident_bytes()));
    assert!(wait.seconds > 0.0, "{wait:?}");
}

#[test]
fn samples_that_are_not_counted_or_have_open_shapes_are_refused_with_what_to_do() {
    let refused = |data: &Dataset| trainer().compile(data, None).map(|_| ()).unwrap_err();
    let filtered = Dataset::new(data::digits()).unwrap().filter(|_| Ok(true));
    let error = refused(&filtered);
    assert_eq!(error.kind(), ErrorKind::Data);
    assert!(error.to_string().contains("Dataset::counted"), "{error}");
    let open = [Field::open("x", Element::F32, &[Field::OPEN]).unwrap(), fields()[1].clone()];
    let open = Dataset::from_function(&open, 10, |_, out: &mut Record| {
        out.set("x", &[3], &[0f32; 3])?;
        out.set("label", &[], &[0])
    });
    assert!(refused(&open.unwrap()).to_string().contains("x: f32 [?]"));
    let endless = filtered.repeat_forever().take(128);
    assert_eq!(trainer().compile(&endless, None).unwrap().fit(&mut ()).unwrap().losses.len(), 6);
}

#[test]
fn an_error_of_a_stage_ends_training_with_the_element() {
    let data = Dataset::new(data::digits()).unwrap().map(2, &fields(), |digit, out| {
        out.set("features", &[64], digit.get::<f32>("features")?)?;
        let label = digit.get::<i32>("label")?;
        assert!(label[0] != 9, "a nine");
        out.set("label", &[], label)
    });
    let error = trainer().compile(&data.unwrap(), None).unwrap().fit(&mut ()).unwrap_err();
    assert!(error.to_string().contains("the function panicked: a nine"), "{error}");
}

#[test]
fn batches_of_named_fields_go_straight_into_a_run() {
    // Sequences of bytes packed into rows, with two fields that packing adds.
    let text = [Field::open("tokens", Element::I32, &[Field::OPEN]).unwrap()];
    let data = Dataset::from_function(&text, 200, |number, out| {
        let tokens: Vec<i32> = (0..number % 11).map(|at| ((number + at) % 50) as i32).collect();
        out.set("tokens", &[tokens.len()], &tokens)
    });
    let batches = data.unwrap().pack(16, Pack::Cut, &[]).unwrap().batch(4, true).unwrap().prefetch(2);
    let shape = [4, 16];
    let inputs = ["tokens", "segment", "position"].map(|name| Input::new(name, &shape, DType::I32));
    let mut run = Run::builder()
        .inference("sum", inputs, |_, inputs| {
            let [tokens, segment, position] = inputs.all()?;
            let sum = |of: &plimsoll::Tensor| of.cast(DType::F32)?.sum_all();
            Ok([("tokens", sum(tokens)?), ("segment", sum(segment)?), ("position", sum(position)?)])
        })
        .compile()
        .unwrap();
    let mut records = batches.records(0).unwrap();
    let mut seen = 0;
    while let Some(batch) = records.read().unwrap() {
        let out = run.step_on("sum", batch).unwrap();
        for name in ["tokens", "segment", "position"] {
            let expected: i32 = batch.get::<i32>(name).unwrap().iter().sum();
            let got: f32 = out.iter().find(|(of, _)| *of == name).unwrap().1.item().unwrap();
            assert_eq!(got, expected as f32, "{name}");
        }
        seen += 1;
    }
    assert_eq!(seen, batches.count().unwrap());
}

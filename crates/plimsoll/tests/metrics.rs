//! Metrics are those of scikit-learn, whatever the batches and parts that samples come in.
//!
//! The reference is made by `tests/reference/metrics.py`.

mod common;

use common::AsItIs;
use plimsoll::data::{Columns, Dataset};
use plimsoll::layers::model;
use plimsoll::loss::Loss;
use plimsoll::metric::Metric;
use plimsoll::spec::Spec;
use plimsoll::{Init, Optimizer, Progress, Trainer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Predictions and targets, and the values of metrics.
struct Case {
    data: Dataset,
    values: BTreeMap<String, f64>,
}

fn numbers(value: &Value) -> Vec<f64> {
    match value.as_array() {
        Some(list) => list.iter().flat_map(numbers).collect(),
        None => vec![value.as_f64().unwrap()],
    }
}

impl Case {
    fn read(name: &str) -> Case {
        let all: Value = serde_json::from_str(include_str!("reference/metrics.json")).unwrap();
        let case = &all[name];
        let shape = |of: &Value| of[0].as_array().map_or(vec![], |row| vec![row.len()]);
        let floats = |of: &Value| numbers(of).into_iter().map(|x| x as f32).collect::<Vec<f32>>();
        let (prediction, target) = (&case["prediction"], &case["target"]);
        let columns = Columns::new().column("prediction", &shape(prediction), floats(prediction)).unwrap();
        let labels = || numbers(target).into_iter().map(|x| x as i32).collect::<Vec<i32>>();
        let columns = match name.contains("classes") {
            true => columns.column("target", &shape(target), labels()),
            false => columns.column("target", &shape(target), floats(target)),
        };
        let values = case["values"].as_object().unwrap();
        Case {
            data: Dataset::new(AsItIs(columns.unwrap())).unwrap(),
            values: values.iter().map(|(name, value)| (name.clone(), value.as_f64().unwrap())).collect(),
        }
    }

    /// A model that predicts what it is given, and can be trained.
    fn trainer(&self, loss: Loss, metrics: &[&str]) -> Trainer {
        let given = model(|cx, x| x.add(&cx.parameter("shift", &[], Init::Zeros)?));
        let metrics: Vec<Metric> = metrics.iter().map(|name| name.parse().unwrap()).collect();
        Trainer::new(given, loss, Optimizer::sgd(0.0)).metrics(metrics).steps(1).threads(1)
    }

    /// Measures in batches of so many samples, each run in so many parts.
    fn measure(&self, trainer: &Trainer, batch: usize, parts: usize) -> BTreeMap<String, f64> {
        let trainer = trainer.clone().batch(batch).micro_batches(parts);
        let trained = trainer.fit(&self.data, Some(&self.data), &mut ()).unwrap();
        trained.report.final_metrics
    }

    /// Compares with the reference, for batches of one sample, of some, of all, and in parts.
    fn check(&self, loss: Loss, metrics: &[&str], tolerance: f64) {
        let trainer = self.trainer(loss, metrics);
        for (batch, parts) in [(1, 1), (7, 1), (7, 3), (97, 1), (97, 10)] {
            let measured = self.measure(&trainer, batch, parts);
            assert_eq!(measured.len(), metrics.len() + 1, "{measured:?}");
            for (name, value) in &measured {
                let Some(expected) = self.values.get(name) else { continue };
                let apart = (value - expected).abs() / expected.abs().max(1.0);
                assert!(apart <= tolerance, "{name} in batches of {batch}: {value}, not {expected}");
            }
        }
    }
}

#[test]
fn metrics_of_classes_are_scikit_learns_whatever_the_batch() {
    let case = Case::read("classes");
    let counts = ["accuracy", "top_2", "top_5", "macro_precision", "macro_recall", "macro_f1"];
    case.check(Loss::SparseCrossEntropy, &[&counts[..], &["perplexity"]].concat(), 1e-6);
    // Counts are exact.
    let Case { data, values } = case;
    let values = values.into_iter().filter(|(name, _)| counts.contains(&name.as_str())).collect();
    Case { data, values }.check(Loss::SparseCrossEntropy, &counts, 1e-14);
}

#[test]
fn metrics_of_numbers_are_scikit_learns_whatever_the_batch() {
    let case = Case::read("numbers");
    let metrics = ["mae", "rmse", "r2"];
    case.check(Loss::Mse, &metrics, 1e-6);
    let Case { data, mut values } = case;
    values.remove("loss");
    Case { data, values }.check(Loss::Mse, &metrics, 1e-11);
}

#[test]
fn metrics_of_yes_and_no_are_scikit_learns_whatever_the_batch() {
    for (name, loss) in [("two_classes", Loss::SparseCrossEntropy), ("binary", Loss::BceFromLogits)] {
        let case = Case::read(name);
        case.check(loss, &["precision", "recall", "f1"], 1e-14);
        case.check(loss, &["auc"], shared_bins(name) + 1e-14);
    }
}

/// Half the fraction of pairs of a positive and a negative whose different scores share one of the bins of `auc`.
fn shared_bins(name: &str) -> f64 {
    let all: Value = serde_json::from_str(include_str!("reference/metrics.json")).unwrap();
    let prediction = all[name]["prediction"].as_array().unwrap();
    let scores = prediction.iter().map(|row| match numbers(row)[..] {
        [no, yes] => yes - no,
        ref one => one[0],
    });
    let of = |label: f64| -> Vec<f64> {
        let labelled = scores.clone().zip(numbers(&all[name]["target"]));
        labelled.filter(|(_, target)| *target == label).map(|(score, _)| score).collect()
    };
    let (yes, no) = (of(1.0), of(0.0));
    let bin = |x: f64| ((x / (1.0 + x.abs()) + 1.0) * 2048.0).floor();
    let pairs = yes.iter().flat_map(|a| no.iter().map(move |b| (a, b)));
    let shared = pairs.filter(|(a, b)| a != b && (bin(**a) - bin(**b)).abs() < 1.0).count();
    assert!(shared < 20, "hardly any pair is not told apart");
    shared as f64 / (2 * yes.len() * no.len()) as f64
}

#[test]
fn a_metric_of_ones_own_is_two_functions() {
    let case = Case::read("numbers");
    let largest_mean = Metric::new(
        "largest_mean",
        |prediction, _| Ok(vec![prediction.sum(&[0])?, prediction.full_like(1.0)?.sum(&[0])?]),
        |sums| (0..3).map(|column| sums[column] / sums[3 + column]).fold(f64::MIN, f64::max),
    );
    let trainer = case.trainer(Loss::Mse, &[]).metrics([largest_mean]);
    let [one, all] = [1, 97].map(|batch| case.measure(&trainer, batch, 1)["largest_mean"]);
    assert!((one - all).abs() < 1e-4 && (39.0..41.0).contains(&one), "{one} and {all}");
}

#[test]
fn each_training_step_reports_the_metrics_of_its_batch_in_parts_too() {
    let case = Case::read("classes");
    let per_step = |batch: usize, parts: usize| {
        let mut seen = vec![];
        let trainer = case.trainer(Loss::SparseCrossEntropy, &["accuracy", "macro_f1"]);
        let trainer = trainer.shuffle(false).epochs(1).batch(batch).micro_batches(parts);
        let mut note = |progress: &Progress<'_>| seen.push(progress.metrics.to_vec());
        trainer.fit(&case.data, None, &mut note).unwrap();
        seen
    };
    assert_eq!(per_step(20, 1), per_step(20, 3));
    assert_eq!(per_step(20, 1).len(), 5);
    let all = per_step(97, 1);
    for (name, value) in &all[0] {
        assert!((value - case.values[name]).abs() < 1e-14, "{name}");
    }
}

#[test]
fn metrics_that_do_not_go_with_the_data_are_refused() {
    let (classes, numbers) = (Case::read("classes"), Case::read("numbers"));
    for (case, loss, metric, part) in [
        (&classes, Loss::SparseCrossEntropy, "mae", "mae: prediction and target are numbers of one shape"),
        (&classes, Loss::SparseCrossEntropy, "auc", "logits [.., 2]"),
        (&numbers, Loss::Mse, "accuracy", "logits are [.., classes]"),
        (&numbers, Loss::Mse, "top_2", "f32[32, 3]"),
    ] {
        let message = case.trainer(loss, &[metric]).forecast(&case.data, None).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
    let text = |metrics: &str| {
        format!(
            "loss = \"sparse_cross_entropy\"\nmetrics = {metrics}\n[data]\nkind = \"digits\"\n[model]\nkind = \
             \"sequential\"\nlayers = [\"flatten\", {{ dense = 10 }}]\n[optimizer]\nkind = \"sgd\"\nrate = \
             0.1\n[train]\nbatch = 8\nsteps = 2\n"
        )
    };
    for (metrics, part) in [
        ("[\"rmse\"]", "2:12: rmse is for numbers"),
        ("[\"accuracy\", \"acuracy\"]", "there is no metric named `acuracy`"),
        ("[\"top_3\", \"top_3\"]", "top_3 is there twice"),
        ("[\"top_0\"]", "there is no metric named `top_0`"),
    ] {
        let message = Spec::parse(&text(metrics), Path::new("w.toml")).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
    let spec = Spec::parse(&text("[\"top_3\", \"perplexity\"]"), Path::new("w.toml")).unwrap();
    let (data, _) = spec.datasets().unwrap();
    let trained = spec.trainer().fit(&data, Some(&data), &mut ()).unwrap();
    let names: Vec<&str> = trained.report.final_metrics.keys().map(String::as_str).collect();
    assert_eq!(names, ["loss", "perplexity", "top_3"]);
}

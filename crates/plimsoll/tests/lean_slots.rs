//! Optimizers whose slots take fewer bytes: what is stored, what is trained, and that nothing but rounding changes.
//!
//! The reference of Adafactor is made by `tests/reference/adafactor.py`, in `f64`.

use plimsoll::data::{Dataset, digits};
use plimsoll::layers::{Activation, Dense, Flatten, Sequential};
use plimsoll::loss::Loss;
use plimsoll::memory::Category;
use plimsoll::{
    Array, DType, Eager, Init, Input, Optimizer, Run, RunFolder, SlotFormat, Spec, Start, Trainer,
};
use proptest::prelude::*;
use serde_json::Value;
use std::path::Path;

const LEAN: [SlotFormat; 2] = [SlotFormat::Bf16, SlotFormat::EightBit];

fn numbers(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
}

/// One parameter `w` of a shape, all ones, that follows gradients it is given.
fn run_of(shape: &[usize], optimizer: Optimizer) -> Run {
    let shape = shape.to_vec();
    Run::builder()
        .threads(2)
        .step("train", [Input::new("gradient", &shape, DType::F32)], move |cx, inputs| {
            let w = cx.parameter("w", &shape, Init::Ones)?;
            let loss = w.mul(inputs.get("gradient")?)?.sum_all()?;
            cx.minimise(&loss, &optimizer)
        })
        .compile()
        .unwrap()
}

fn weights(run: &mut Run) -> Vec<f32> {
    run.state("w").unwrap().to_vec().unwrap()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn adafactor_steps_as_in_pytorch() {
    let reference: Value = serde_json::from_str(include_str!("reference/adafactor.json")).unwrap();
    for case in reference["cases"].as_array().unwrap() {
        let shape: Vec<usize> = numbers(&case["shape"]).into_iter().map(|x| x as usize).collect();
        let get = |key: &str| case[key].as_f64().unwrap();
        let optimizer = Optimizer::adafactor(get("rate")).weight_decay(get("weight_decay"));
        let mut run = run_of(&shape, optimizer);
        run.set_state("w", &Array::new(&shape, &numbers(&case["initial"])).unwrap()).unwrap();
        let steps = case["gradients"].as_array().unwrap().iter().zip(case["path"].as_array().unwrap());
        for (step, (gradient, expected)) in steps.enumerate() {
            let gradient = Array::new(&shape, &numbers(gradient)).unwrap();
            run.step("train", &[("gradient", &gradient)]).unwrap();
            for (got, expected) in weights(&mut run).into_iter().zip(numbers(expected)) {
                let close = (got - expected).abs() <= 2e-6 * expected.abs().max(1.0);
                assert!(close, "{shape:?}, step {step}: {got}, PyTorch's {expected}");
            }
        }
    }
}

#[test]
fn the_slots_of_adafactor_are_a_row_and_a_column() {
    let run = run_of(&[200, 300], Optimizer::adafactor(1e-2));
    let slots: Vec<(String, Vec<usize>)> = run
        .states()
        .into_iter()
        .filter(|state| state.name.starts_with("w:"))
        .map(|s| (s.name, s.shape))
        .collect();
    assert_eq!(slots, [("w:rows".into(), vec![200, 1]), ("w:columns".into(), vec![1, 300])]);
}

#[test]
fn slots_take_a_quarter_in_eight_bits_and_a_half_in_bf16_and_the_forecast_is_what_is_reserved() {
    let bytes = |format: SlotFormat| {
        let mut run = run_of(&[64, 1024], Optimizer::adam(1e-3).slot_format(format));
        run.step("train", &[("gradient", &Array::new(&[64, 1024], &[0.0f32; 65536]).unwrap())]).unwrap();
        let forecast = run.forecast();
        assert_eq!(run.reserved_bytes(), Some(forecast.peak_bytes));
        let slots = run.states().into_iter().filter(|state| state.name.starts_with("w:"));
        let slots: usize = slots.map(|s| s.shape.iter().product::<usize>() * s.dtype.size()).sum();
        let ledger = forecast.ledger.get(Category::Optimizer);
        assert!(ledger >= slots as u64, "{format:?}: {ledger} of {slots}");
        slots
    };
    let full = bytes(SlotFormat::Full);
    assert_eq!(full, 2 * 4 * 64 * 1024);
    assert_eq!(bytes(SlotFormat::Bf16), full / 2);
    // A scale of four bytes for each block of 256.
    assert_eq!(bytes(SlotFormat::EightBit), full / 4 + full / 256);
}

#[test]
fn small_parameters_and_those_that_no_block_divides_keep_full_slots() {
    for shape in [vec![63, 64], vec![4099]] {
        let adam = |format| run_of(&shape, Optimizer::adam(1e-3).slot_format(format));
        let types = |run: Run| -> Vec<(String, DType)> {
            run.states().into_iter().map(|state| (state.name, state.dtype)).collect()
        };
        assert_eq!(types(adam(SlotFormat::EightBit)), types(adam(SlotFormat::Full)), "{shape:?}");
    }
    let run = run_of(&[98, 100], Optimizer::adam(1e-3).slot_format(SlotFormat::EightBit));
    let codes = run.states().into_iter().find(|state| state.name == "w:mean").unwrap();
    assert_eq!((codes.shape, codes.dtype), (vec![20, 490], DType::U8), "490 divides 9,800");
}

/// Gradients of very different sizes side by side: a running mean that is rounded to nearest would not move where its
/// steps are shorter than half the distance of two stored numbers, and mean squares that became zero would divide.
#[test]
fn updates_by_lean_slots_are_those_by_full_slots_in_the_mean() {
    let shape = [16, 512];
    let elements = shape[0] * shape[1];
    let size = |at: usize| 10f32.powf(-(at as f32 * 0.618).fract() * 3.0);
    let travelled = |optimizer: Optimizer| {
        let mut run = run_of(&shape, optimizer);
        for step in 0..300u32 {
            let gradient = |at: usize| {
                let noise = ((at as u32).wrapping_mul(0x9e37_79b9) ^ step.wrapping_mul(0x85eb_ca6b))
                    .wrapping_mul(0xc2b2_ae35);
                size(at) * (0.3 + noise as f32 / u32::MAX as f32)
            };
            let gradient: Vec<f32> = (0..elements).map(gradient).collect();
            run.step("train", &[("gradient", &Array::new(&shape, &gradient).unwrap())]).unwrap();
        }
        weights(&mut run).into_iter().map(|w| 1.0 - w).collect::<Vec<f32>>()
    };
    for optimizer in [Optimizer::adam(1e-3), Optimizer::momentum(1e-3, 0.9, false), Optimizer::rmsprop(1e-3)]
    {
        let full = travelled(optimizer.clone());
        for format in LEAN {
            let lean = travelled(optimizer.clone().slot_format(format));
            let ratios: Vec<f32> = lean.iter().zip(&full).map(|(lean, full)| lean / full).collect();
            let mean = ratios.iter().sum::<f32>() / elements as f32;
            let variance = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum::<f32>() / elements as f32;
            // What is divided by a root that is rounded around its mean is larger in the mean.
            let (off, spread) = if format == SlotFormat::Bf16 { (1e-3, 0.02) } else { (0.02, 0.15) };
            assert!((mean - 1.0).abs() < off, "{optimizer}, {format:?}: {mean} times as far in the mean");
            assert!(variance.sqrt() < spread, "{optimizer}, {format:?}: spread by {}", variance.sqrt());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever gradients are, finite ones give finite updates not far beyond what Adam's own can be, and zeros none.
    #[test]
    fn no_update_of_lean_adam_is_out_of_bounds(
        exponents in prop::collection::vec(-18i32..4, 64),
        zeros in 0usize..4,
        seed in any::<u32>(),
    ) {
        let shape = [8, 512];
        for format in LEAN {
            let mut run = run_of(&shape, Optimizer::adam(1.0).slot_format(format));
            for step in 0..6u32 {
                let before = weights(&mut run);
                let gradient: Vec<f32> = (0..4096u32).map(|at| {
                    let word = (at ^ seed).wrapping_mul(0x9e37_79b9).wrapping_add(step).wrapping_mul(0x85eb_ca6b);
                    let silent = (at as usize) % 4 < zeros;
                    let size = 10f32.powi(exponents[at as usize % 64]);
                    if silent { 0.0 } else { size * (word as f32 / u32::MAX as f32 - 0.5) }
                }).collect();
                run.step("train", &[("gradient", &Array::new(&shape, &gradient).unwrap())]).unwrap();
                for (at, (after, before)) in weights(&mut run).into_iter().zip(before).enumerate() {
                    let update = (after - before).abs();
                    // Adam's largest step is (1 − β₁) / √(1 − β₂), 3.2 rates. What is far below the largest of its block
                    // is rounded: a mean up to four times too large, a root down to a fourth.
                    prop_assert!(update.is_finite() && update <= 16.0 * 3.2, "{format:?}, step {step}, {at}: {update}");
                    prop_assert!(at % 4 >= zeros || update == 0.0, "{format:?}: {at} has no gradient");
                }
            }
        }
    }
}

#[test]
fn eager_and_compiled_updates_of_lean_slots_have_the_same_bits() {
    let shape = [64, 128];
    let gradient: Vec<f32> = (0..8192).map(|at| (at as f32 * 0.37).sin()).collect();
    for format in LEAN {
        let mut run = run_of(&shape, Optimizer::adamw(1e-2).slot_format(format));
        let optimizer = Optimizer::adamw(1e-2).slot_format(format);
        let eager = Eager::new().unwrap();
        eager.context(true).parameter("w", &shape, Init::Ones).unwrap();
        for _ in 0..5 {
            run.step("train", &[("gradient", &Array::new(&shape, &gradient).unwrap())]).unwrap();
            let gradient = eager.tensor(&shape, &gradient).unwrap();
            eager.apply_gradients(&optimizer, &[("w", &gradient)]).unwrap();
        }
        let eagerly = eager.parameters()["w"].to_vec().unwrap();
        assert_eq!(bits(&weights(&mut run)), bits(&eagerly), "{format:?}");
    }
}

/// A perceptron on digits whose weights are large enough for eight bits.
fn trainer(optimizer: Optimizer) -> Trainer {
    let model = Sequential::new()
        .then(Flatten)
        .then(Dense::new(128).activation(Activation::Relu))
        .then(Dense::new(64).activation(Activation::Relu))
        .then(Dense::new(10));
    Trainer::new(model, Loss::SparseCrossEntropy, optimizer).batch(64).threads(2)
}

#[test]
fn training_with_lean_state_ends_near_the_loss_of_full_state() {
    let data = Dataset::new(digits()).unwrap().split(0.8, 1).unwrap();
    let measured = |optimizer: Optimizer| {
        let trainer = trainer(optimizer).epochs(8);
        let report = trainer.compile(&data.train, Some(&data.held_out)).unwrap().fit(&mut ()).unwrap();
        (report.losses.iter().rev().take(20).sum::<f32>() / 20.0, report.final_metrics["accuracy"])
    };
    let (full, accuracy) = measured(Optimizer::adam(2e-3));
    assert!(accuracy > 0.93, "{accuracy}");
    let adam = |format| Optimizer::adam(2e-3).slot_format(format);
    for optimizer in [adam(SlotFormat::Bf16), adam(SlotFormat::EightBit), Optimizer::adafactor(0.2)] {
        let name = optimizer.to_string();
        let (loss, lean) = measured(optimizer);
        assert!(lean > accuracy - 0.02, "{name}: accuracy {lean}, {accuracy} with full slots");
        assert!(loss < full + 0.05, "{name}: {loss}, {full} with full slots");
    }
}

#[test]
fn training_with_eight_bit_slots_that_was_stopped_goes_on_to_the_same_bits() {
    let data = Dataset::new(digits()).unwrap();
    let trainer = trainer(Optimizer::adam(2e-3).slot_format(SlotFormat::EightBit));
    let weights = |trainer: &Trainer, place: &Path, start: Start| {
        let mut training = trainer.compile(&data, None).unwrap();
        training.fit_into(&mut RunFolder::open(place).unwrap(), start, &mut ()).unwrap();
        training.weights().unwrap()
    };
    let [whole, parted] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let expected = weights(&trainer.clone().steps(30), whole.path(), Start::Anew);
    weights(&trainer.clone().steps(11), parted.path(), Start::Anew);
    assert_eq!(weights(&trainer.steps(30), parted.path(), Start::Resume), expected);
}

#[test]
fn within_a_budget_lean_slots_give_the_same_bits() {
    let data = Dataset::new(digits()).unwrap();
    for format in LEAN {
        let trainer = trainer(Optimizer::adam(2e-3).slot_format(format)).steps(12).exact(true);
        let least = trainer.frontier(&data, None).unwrap().floor_bytes;
        let weights = |trainer: &Trainer| {
            let mut training = trainer.compile(&data, None).unwrap();
            training.fit(&mut ()).unwrap();
            training.weights().unwrap()
        };
        assert_eq!(weights(&trainer.clone().budget(least)), weights(&trainer), "{format:?}");
    }
}

#[test]
fn a_workload_says_how_slots_are_stored() {
    let digits = Spec::find("digits").unwrap();
    let (data, _) = digits.datasets().unwrap();
    let bytes = |optimizer: &str| {
        let text = digits.text().replace("kind = \"adam\"", optimizer);
        let spec = Spec::parse(&text, Path::new("lean.toml")).map_err(|error| error.to_string())?;
        Ok::<u64, String>(spec.trainer().forecast(&data, None).unwrap().ledger.get(Category::Optimizer))
    };
    let full = bytes("kind = \"adam\"\nslots = \"full\"").unwrap();
    assert_eq!(full, bytes("kind = \"adam\"").unwrap());
    let half = bytes("kind = \"adamw\"\nslots = \"bf16\"").unwrap();
    assert!((full * 4 / 10..full * 6 / 10).contains(&half), "{half} of {full}");
    assert!(bytes("kind = \"adafactor\"").unwrap() < full / 4);
    let message = bytes("kind = \"adam\"\nslots = \"4-bit\"").unwrap_err();
    assert!(message.contains("slots") && message.contains("8-bit"), "{message}");
    let message = bytes("kind = \"adafactor\"\nslots = \"8-bit\"").unwrap_err();
    assert!(message.contains("slots"), "{message}");
}

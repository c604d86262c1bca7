//! Eager mode on a device against eager mode on the CPU: ops one by one, tapes, optimizers.

use super::run_on_both::Trouble;
use super::{Report, Verdict};
use crate::layers::{Activation, Conv2d, Dense, Dropout, Embedding, Flatten, Layer, LayerNorm, Sequential};
use crate::{DeviceName, Eager, Optimizer, Precision, Result, Tensor, loss};
use std::time::Instant;

/// A training in eager mode: the losses, and the parameters in the end.
type Attempt = fn(&Eager) -> Result<Vec<f32>>;

/// How far numbers may be apart, relative to their size: a few roundings of the type, grown over the steps.
const F32: f32 = 1e-4;
const BF16: f32 = 4e-2;

/// Tries those whose names are wanted, and tells of each what came of it.
pub(super) fn all(device: DeviceName, wanted: &dyn Fn(&str) -> bool, tell: &mut dyn FnMut(String, Report)) {
    let attempts: [(&str, Precision, f32, Attempt); 6] = [
        ("a perceptron with dropout", Precision::F32, F32, perceptron),
        ("a perceptron with dropout in bf16", Precision::Bf16, BF16, perceptron),
        ("convolutions", Precision::F32, F32, convolutions),
        ("an embedding and a norm", Precision::F32, F32, tokens),
        ("two optimizers", Precision::F32, F32, two_optimizers),
        ("a gradient of a gradient", Precision::F32, F32, second_derivative),
    ];
    for (name, precision, tolerance, attempt) in attempts {
        let name = format!("eager {name}");
        if !wanted(&name) {
            continue;
        }
        let start = Instant::now();
        let (verdict, error, detail) = match compare(device, precision, attempt) {
            Ok((apart, count)) => {
                let verdict = if apart <= tolerance { Verdict::Passed } else { Verdict::Failed };
                (verdict, f64::from(apart / tolerance), format!("{count} numbers, at most {apart:.1e} apart"))
            }
            Err(Trouble { verdict, message }) => (verdict, f64::INFINITY, message),
        };
        let seconds = start.elapsed().as_secs_f64();
        tell(name, Report { verdict, error, microseconds: 0.0, detail, seconds });
    }
}

/// The largest difference between both devices, and how many numbers were compared.
fn compare(
    device: DeviceName,
    precision: Precision,
    attempt: Attempt,
) -> std::result::Result<(f32, usize), Trouble> {
    let on = |device: DeviceName| attempt(&Eager::builder().on(device).precision(precision).seed(3).build()?);
    let [expected, actual] = [on(DeviceName::default())?, on(device)?];
    let apart = expected.iter().zip(&actual).map(|(a, b)| {
        // NaN is apart from everything.
        if (a - b).is_nan() { f32::INFINITY } else { (a - b).abs() / a.abs().max(0.1) }
    });
    Ok((apart.fold(0.0, f32::max), expected.len()))
}

/// Numbers that follow from their positions.
fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|at| ((at * 37 + 11) % 101) as f32 / 50.0 - 1.0).collect()
}

/// Trains a model for a few steps, and returns the losses and the sum of each parameter's squares.
fn train(
    eager: &Eager,
    optimizer: &Optimizer,
    steps: usize,
    loss: impl Fn(&crate::Context) -> Result<Tensor>,
) -> Result<Vec<f32>> {
    let mut seen = vec![];
    for _ in 0..steps {
        let mut tape = eager.tape();
        let value = loss(&eager.context(true))?;
        let parameters = eager.parameters();
        let wrt: Vec<&Tensor> = parameters.values().collect();
        let gradients = tape.gradient(&value, &wrt)?;
        let named: Vec<(&str, &Tensor)> = parameters.keys().map(String::as_str).zip(&gradients).collect();
        eager.apply_gradients(optimizer, &named)?;
        seen.extend(value.to_vec()?);
    }
    for parameter in eager.parameters().values() {
        seen.extend(parameter.square()?.sum_all()?.to_vec()?);
    }
    Ok(seen)
}

fn perceptron(eager: &Eager) -> Result<Vec<f32>> {
    let model = Sequential::new()
        .then(Dense::new(48).activation(Activation::Gelu))
        .then(Dropout(0.25))
        .then(Dense::new(7));
    let x = eager.tensor(&[16, 24], &numbers(16 * 24))?.cast(eager.precision().compute())?;
    let labels = eager.integers(&[16], &(0..16).map(|at| at % 7).collect::<Vec<i32>>())?;
    train(eager, &Optimizer::adam(1e-3), 6, |cx| loss::sparse_cross_entropy(&model.forward(cx, &x)?, &labels))
}

fn convolutions(eager: &Eager) -> Result<Vec<f32>> {
    let model = Sequential::new()
        .then(Conv2d::new(16, [3, 3]).activation(Activation::Relu))
        .then(Flatten)
        .then(Dense::new(5));
    let x = eager.tensor(&[4, 10, 10, 3], &numbers(4 * 300))?;
    let target = eager.tensor(&[4, 5], &numbers(20))?;
    train(eager, &Optimizer::momentum(1e-2, 0.9, true), 4, |cx| loss::mse(&model.forward(cx, &x)?, &target))
}

fn tokens(eager: &Eager) -> Result<Vec<f32>> {
    let model = Sequential::new().then(Embedding::new(50, 32)).then(LayerNorm::new()).then(Dense::new(50));
    let tokens = eager.integers(&[3, 9], &(0..27).map(|at| at * 13 % 50).collect::<Vec<i32>>())?;
    let labels = eager.integers(&[3, 9], &(0..27).map(|at| at * 7 % 50).collect::<Vec<i32>>())?;
    train(eager, &Optimizer::adamw(1e-3), 4, |cx| {
        loss::sparse_cross_entropy(&model.forward(cx, &tokens)?, &labels)
    })
}

fn two_optimizers(eager: &Eager) -> Result<Vec<f32>> {
    let optimizers =
        [Optimizer::adam(1e-2).only(["first"]), Optimizer::momentum(1e-2, 0.9, false).only(["second"])];
    let x = eager.tensor(&[8, 6], &numbers(48))?;
    let mut seen = vec![];
    for step in 0..6 {
        let mut tape = eager.tape();
        let cx = eager.context(true);
        let hidden = cx.layer("first", Dense::new(12).activation(Activation::Tanh), &x)?;
        let value = cx.layer("second", Dense::new(1), &hidden)?.square()?.mean_all()?;
        let parameters = eager.parameters();
        let gradients = tape.gradient(&value, &parameters.values().collect::<Vec<_>>())?;
        let turn = &optimizers[step % 2];
        let named: Vec<(&str, &Tensor)> = parameters.keys().map(String::as_str).zip(&gradients).collect();
        let own: Vec<(&str, &Tensor)> = named.into_iter().filter(|(name, _)| turn.trains(name)).collect();
        eager.apply_gradients(turn, &own)?;
        seen.extend(value.to_vec()?);
    }
    Ok(seen)
}

fn second_derivative(eager: &Eager) -> Result<Vec<f32>> {
    let x = eager.tensor(&[5], &numbers(5))?;
    let (mut outer, mut inner) = (eager.tape(), eager.tape());
    let value = x.tanh()?.mul(&x.square()?)?.sum_all()?;
    let slope = inner.gradient(&value, &[&x])?.remove(0);
    let curvature = outer.gradient(&slope, &[&x])?.remove(0);
    Ok([slope.to_vec()?, curvature.to_vec()?].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attempt_runs_on_the_cpu_and_agrees_with_itself() {
        let mut tried = 0;
        all(DeviceName::default(), &|_| true, &mut |name, report| {
            assert_eq!((report.verdict, report.error), (Verdict::Passed, 0.0), "{name}: {}", report.detail);
            tried += 1;
        });
        assert_eq!(tried, 6);
    }
}

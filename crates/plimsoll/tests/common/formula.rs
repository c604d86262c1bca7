//! Numbers that follow from a name and a position, the same here and in `tests/reference/formula.py`, so that reference
//! files hold results alone.

use plimsoll::{Context, Eager, Result, Tensor};
use serde_json::Value;
use std::collections::BTreeMap;

/// Evenly in [−1, 1), by a hash of the name and of each position.
pub(crate) fn uniform(name: &str, count: usize) -> Vec<f64> {
    let key = name.bytes().fold(2166136261u32, |key, byte| (key ^ u32::from(byte)).wrapping_mul(16777619));
    let number = |at: usize| {
        let mut x = (at as u32).wrapping_mul(0x9E37_79B1).wrapping_add(key);
        x = (x ^ (x >> 16)).wrapping_mul(0x85EB_CA6B);
        x = (x ^ (x >> 13)).wrapping_mul(0xC2B2_AE35);
        f64::from((x ^ (x >> 16)) >> 8) / f64::from(1 << 23) - 1.0
    };
    (0..count).map(number).collect()
}

/// An input of floats.
pub(crate) fn numbers(name: &str, count: usize) -> Vec<f32> {
    uniform(name, count).into_iter().map(|u| (2.0 * u) as f32).collect()
}

/// An input of whole numbers from 0 on.
pub(crate) fn integers(name: &str, below: usize, count: usize) -> Vec<i32> {
    uniform(name, count).into_iter().map(|u| ((u + 1.0) / 2.0 * below as f64).floor() as i32).collect()
}

/// The first value of a parameter.
pub(crate) fn parameter(name: &str, shape: &[usize]) -> Vec<f32> {
    let last = name.rsplit('/').next().unwrap_or(name);
    let leading: usize = shape.iter().rev().skip(1).product();
    let value = |u: f64| match (last, shape.len()) {
        ("mean", 1) => 0.0,
        ("variance", 1) => 1.0,
        ("gamma", _) => 1.0 + 0.2 * u,
        (_, 1) => 0.2 * u,
        _ => u * (3.0 / leading as f64).sqrt(),
    };
    uniform(name, shape.iter().product()).into_iter().map(|u| value(u) as f32).collect()
}

/// How long an array is, and how far it reaches in a direction that follows from its name.
pub(crate) fn checksum(name: &str, values: &[f32]) -> [f64; 2] {
    let norm = values.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>().sqrt();
    let along = values.iter().zip(uniform(name, values.len())).map(|(&v, u)| f64::from(v) * u).sum();
    [norm, along]
}

/// What is wrong with an array, if it is further from its checksum than `tolerance`, relative to how long it is.
pub(crate) fn off(name: &str, values: &[f32], expected: &Value, tolerance: f64) -> Option<String> {
    let [norm, along] = checksum(name, values);
    let [expected_norm, expected_along] = [0, 1].map(|at| expected[at].as_f64().unwrap());
    let apart = (norm - expected_norm).abs().max((along - expected_along).abs());
    // What should be nothing is so but for rounding.
    let off = apart / expected_norm.max(1e-3);
    // NaN is off too.
    let close = off <= tolerance;
    (!close).then(|| {
        format!("{name}: length {norm} and reach {along}, PyTorch's {expected_norm} and {expected_along}")
    })
}

/// A function in eager mode, its parameters being those of their names.
pub(crate) struct Prepared {
    pub(crate) eager: Eager,
}

impl Prepared {
    /// Runs `forward` once, so that it asks for its parameters, and sets these.
    pub(crate) fn new(eager: Eager, forward: impl Fn(&Context) -> Result<Tensor>) -> Prepared {
        forward(&eager.context(true)).unwrap();
        for (name, value) in eager.parameters() {
            eager.set(&name, &parameter(&name, &value.shape())).unwrap();
        }
        Prepared { eager }
    }

    /// The result, and the gradients of `loss` of it for all parameters and for `inputs`, by name.
    pub(crate) fn differentiate(
        &self,
        inputs: &BTreeMap<String, Tensor>,
        forward: impl Fn(&Context) -> Result<Tensor>,
        loss: impl Fn(&Tensor) -> Tensor,
    ) -> (Tensor, BTreeMap<String, Vec<f32>>) {
        let mut tape = self.eager.tape();
        let result = forward(&self.eager.context(true)).unwrap();
        let loss = loss(&result);
        let mut leaves = self.eager.parameters();
        leaves
            .extend(inputs.iter().filter(|(_, x)| x.dtype().is_float()).map(|(n, x)| (n.clone(), x.clone())));
        let gradients = tape.gradient(&loss, &leaves.values().collect::<Vec<_>>()).unwrap();
        let values = gradients.iter().map(|gradient| gradient.to_vec().unwrap());
        (result, leaves.keys().cloned().zip(values).collect())
    }
}

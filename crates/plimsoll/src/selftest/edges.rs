//! Ops where it is easy to lose digits or to hide what is not finite, against double precision.
//!
//! The other cases compare a device with the CPU on ordinary numbers. Here every op, on the CPU as well, meets zeros of
//! both signs, the smallest and largest numbers, infinities, NaN, offsets that cancel, confident predictions, constant
//! rows and nothing at all, and is compared with the same op in `f64`, each element within a bound that PROMISES.md
//! states. Each is run eagerly and compiled, and so are its gradients for all its operands.

mod composed;
mod elements;
mod layers;
mod rows;

use super::compare::{decode, smallest, unit};
use super::run_on_both::Trouble;
use super::{Report, Verdict};
use crate::{Array, DType, DeviceName, Eager, Input, Result, Run, Tensor};
use std::rc::Rc;
use std::time::Instant;

/// What is tried.
type Function = dyn Fn(&[Tensor]) -> Result<Tensor>;

/// A function of tensors that is tried on one set of numbers.
struct Edge {
    name: String,
    /// What it is called with: floats become `dtype` first, integers stay.
    operands: Vec<Array>,
    dtype: DType,
    function: Rc<Function>,
    /// How far a result may be from that in double precision.
    value: Bound,
    /// Likewise for the gradients for the floats, where it has any.
    slope: Option<Bound>,
}

/// How far an element may be from what it should be. What is infinite or NaN must be just that.
#[derive(Debug, Clone, Copy)]
struct Bound {
    /// Distances between neighbouring numbers, at the element.
    ulps: f64,
    /// Of the largest finite element of the result, in roundings of the type that sums are in.
    of_largest: f64,
    /// Whatever the numbers are, in roundings at one.
    of_one: f64,
}

impl Bound {
    /// The nearest number there is.
    const EXACT: Bound = Bound::ulps(0.5);

    /// So many distances between neighbouring numbers.
    const fn ulps(ulps: f64) -> Bound {
        Bound { ulps, of_largest: 0.0, of_one: 0.0 }
    }

    /// The rounding of the result, and so many roundings of numbers as large as the largest.
    const fn of_largest(of_largest: f64) -> Bound {
        Bound { of_largest, ..Bound::ulps(1.0) }
    }

    /// The rounding of the result, and so many roundings of one.
    const fn of_one(of_one: f64) -> Bound {
        Bound { of_one, ..Bound::ulps(1.0) }
    }
}

impl Edge {
    fn new(
        name: impl Into<String>,
        operands: Vec<Array>,
        function: impl Fn(&[Tensor]) -> Result<Tensor> + 'static,
        value: Bound,
        slope: Option<Bound>,
    ) -> Edge {
        let (name, function) = (name.into(), Rc::new(function));
        Edge { name, operands, dtype: DType::F32, function, value, slope }
    }

    /// The same in another type.
    fn in_type(&self, dtype: DType) -> Edge {
        let (name, operands) = (format!("{} in {dtype}", self.name), self.operands.clone());
        let function = Rc::clone(&self.function);
        Edge { name, operands, dtype, function, value: self.value, slope: self.slope }
    }

    /// The operands as the function takes them, computed with in `dtype`.
    fn taken(&self, operands: Vec<Tensor>, dtype: DType) -> Result<Vec<Tensor>> {
        let taken = |operand: Tensor| match operand.dtype().is_float() {
            true => operand.cast(self.dtype)?.cast(dtype),
            false => Ok(operand),
        };
        operands.into_iter().map(taken).collect()
    }

    /// The result and the gradients for the floats, op by op.
    fn eagerly(&self, device: DeviceName, dtype: DType) -> Result<Vec<Array>> {
        let eager = Eager::builder().on(device).build()?;
        let operands = self.operands.iter().map(|operand| eager.array(operand)).collect::<Result<_>>()?;
        let operands = self.taken(operands, dtype)?;
        let mut tape = eager.tape();
        let result = (self.function)(&operands)?;
        let mut found = vec![result.to_array()?];
        if self.slope.is_some() {
            let weights = eager.array(&weights(&result.shape())?)?;
            let loss = weighted(&result, &weights)?;
            let wrt: Vec<&Tensor> = operands.iter().filter(|operand| operand.dtype().is_float()).collect();
            for gradient in tape.gradient(&loss, &wrt)? {
                found.push(gradient.to_array()?);
            }
        }
        Ok(found)
    }

    /// The result and the gradients for the floats, as a step; `shape` is that of the result.
    fn compiled(&self, device: DeviceName, shape: &[usize]) -> Result<Vec<Array>> {
        let names: Vec<String> = (0..self.operands.len()).map(|index| format!("operand {index}")).collect();
        let of_operands = names
            .iter()
            .zip(&self.operands)
            .map(|(name, operand)| Input::new(name, operand.shape(), operand.dtype()));
        let inputs: Vec<Input> = of_operands.chain([Input::new("weights", shape, DType::F32)]).collect();
        let edge = self.in_type(self.dtype);
        let called = names.clone();
        let step = move |cx: &crate::Context, inputs: &crate::Inputs| {
            let operands = called.iter().map(|name| inputs.get(name).cloned()).collect::<Result<_>>()?;
            let operands = edge.taken(operands, edge.dtype)?;
            let result = (edge.function)(&operands)?;
            // What nothing is computed from could not be an input.
            let loss = weighted(&result, inputs.get("weights")?)?;
            let mut found = vec![("0".to_string(), result), ("loss".to_string(), loss.clone())];
            if edge.slope.is_some() {
                let wrt: Vec<&Tensor> =
                    operands.iter().filter(|operand| operand.dtype().is_float()).collect();
                let gradients = cx.gradients(&loss, &wrt)?.into_iter().enumerate();
                found.extend(gradients.map(|(index, gradient)| ((index + 1).to_string(), gradient)));
            }
            Ok(found)
        };
        let mut run = Run::builder().step("edge", inputs, step).on(device).compile()?;
        let weights = weights(shape)?;
        let given: Vec<(&str, &Array)> =
            names.iter().map(String::as_str).zip(&self.operands).chain([("weights", &weights)]).collect();
        let results = run.step("edge", &given)?;
        let floats = self.operands.iter().filter(|operand| operand.dtype().is_float()).count();
        let count = if self.slope.is_some() { 1 + floats } else { 1 };
        Ok((0..count).map(|index| results[&*index.to_string()].clone()).collect())
    }

    /// The largest error over what it may be.
    fn attempt(&self, device: DeviceName) -> std::result::Result<f64, Trouble> {
        let reference = DeviceName::default();
        let expected = self.eagerly(reference, DType::F64)?;
        let eager = self.eagerly(device, self.dtype)?;
        let compiled = self.compiled(device, expected[0].shape())?;
        let mut worst = 0.0f64;
        for (way, found) in [("eagerly", &eager), ("compiled", &compiled)] {
            for (index, (expected, found)) in expected.iter().zip(found).enumerate() {
                let bound = if index == 0 { Some(self.value) } else { self.slope };
                let Some(bound) = bound else { continue };
                // The functions of a GPU's own library are bounded by twice what the CPU's are.
                let ratio = apart(expected, found, bound) / if device == reference { 1.0 } else { 2.0 };
                worst = worst.max(ratio);
                if ratio > 1.0 {
                    let what = if index == 0 { "the result".into() } else { format!("gradient {index}") };
                    let message = format!("{way}, {what}: {}", first_off(expected, found, bound));
                    return Err(Trouble { verdict: Verdict::Failed, message });
                }
            }
        }
        let same = eager.iter().zip(&compiled).all(|(a, b)| same_bits(a, b));
        if device == reference && !same {
            let message = "eager mode and a compiled step differ in bits".into();
            return Err(Trouble { verdict: Verdict::Failed, message });
        }
        Ok(worst)
    }
}

/// The sum of a result's elements, each with a weight of its own, so that gradients tell elements apart.
fn weighted(result: &Tensor, weights: &Tensor) -> Result<Tensor> {
    // A number that is not finite makes no other's weight so.
    result.mul(&weights.cast(result.dtype())?)?.sum_all()
}

/// Weights that every type holds without rounding.
fn weights(shape: &[usize]) -> Result<Array> {
    let count = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|at| ((at * 7 + 3) % 17) as f32 / 8.0 - 0.9375).collect();
    Array::new(shape, &values)
}

fn same_bits(a: &Array, b: &Array) -> bool {
    let nan = |array: &Array, at: usize| element(array, at).is_nan();
    a.bytes() == b.bytes() || (0..count(a)).all(|at| bits(a, at) == bits(b, at) || (nan(a, at) && nan(b, at)))
}

fn bits(array: &Array, at: usize) -> &[u8] {
    let size = array.dtype().size();
    &array.bytes()[at * size..][..size]
}

fn element(array: &Array, at: usize) -> f64 {
    decode(array.dtype(), bits(array, at))
}

fn count(array: &Array) -> usize {
    array.bytes().len() / array.dtype().size()
}

/// The largest error of an array over what it may be.
fn apart(expected: &Array, found: &Array, bound: Bound) -> f64 {
    errors(expected, found, bound).fold(0.0, f64::max)
}

/// The error of each element over what it may be.
fn errors(expected: &Array, found: &Array, bound: Bound) -> impl Iterator<Item = f64> {
    let dtype = found.dtype();
    let finite = (0..count(expected)).map(|at| element(expected, at)).filter(|value| value.is_finite());
    let largest = finite.fold(0.0f64, |most, value| most.max(value.abs()));
    let rounding = unit(dtype.accumulator());
    let anywhere = bound.of_largest * rounding * largest + bound.of_one * unit(dtype) + smallest(dtype);
    let limit = largest_number(dtype);
    (0..count(expected)).map(move |at| {
        let (want, have) = (element(expected, at), element(found, at));
        let allowed = 2.0 * bound.ulps * unit(dtype) * want.abs() + anywhere;
        if want.is_nan() || have.is_nan() {
            return if want.is_nan() == have.is_nan() { 0.0 } else { f64::INFINITY };
        }
        if want == have {
            return 0.0;
        }
        if have.is_infinite() {
            // Beyond the largest number, or so near to it that rounding may go either way.
            let beyond = want.abs() + allowed >= limit && want.signum() == have.signum();
            return if beyond { 0.0 } else { f64::INFINITY };
        }
        (want - have).abs() / allowed
    })
}

fn largest_number(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65504.0,
        DType::F64 => f64::MAX,
        DType::BF16 => f64::from(half::bf16::MAX),
        _ => f64::from(f32::MAX),
    }
}

fn first_off(expected: &Array, found: &Array, bound: Bound) -> String {
    let off: Vec<usize> =
        errors(expected, found, bound).enumerate().filter(|(_, off)| *off > 1.0).map(|(at, _)| at).collect();
    let at = off.first().copied().unwrap_or(0);
    let (want, have) = (element(expected, at), element(found, at));
    format!(
        "{} of {} elements of {found} are off, the first at {at}: {have:e} is not {want:e}",
        off.len(),
        count(found)
    )
}

fn list() -> impl Iterator<Item = Edge> {
    [elements::list(), rows::list(), layers::list(), composed::list()].into_iter().flatten()
}

/// Tries those whose names are wanted, and tells of each what came of it.
pub(super) fn all(device: DeviceName, wanted: &dyn Fn(&str) -> bool, tell: &mut dyn FnMut(String, Report)) {
    for edge in list().filter(|edge| wanted(&edge.name)) {
        let start = Instant::now();
        let (verdict, error, detail) = match edge.attempt(device) {
            Ok(error) => (Verdict::Passed, error, "in double precision".into()),
            Err(Trouble { verdict, message }) => (verdict, f64::INFINITY, message),
        };
        let seconds = start.elapsed().as_secs_f64();
        tell(edge.name, Report { verdict, error, microseconds: 0.0, detail, seconds });
    }
}

/// Numbers of `f32`; there are as many as the shape has.
fn floats(shape: &[usize], value: impl Fn(usize) -> f32) -> Array {
    let values: Vec<f32> = (0..shape.iter().product()).map(value).collect();
    array(shape, &values)
}

fn array<T: crate::array::Number>(shape: &[usize], values: &[T]) -> Array {
    Array::new(shape, values).expect("a table's numbers are as many as its shape has")
}

/// Ordinary numbers around zero, which follow from their positions.
fn ordinary(at: usize) -> f32 {
    ((at * 37 + 11) % 101) as f32 / 50.0 - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Context, Precision};
    use plimsoll_reference::evaluate;

    #[test]
    fn every_op_is_within_its_bound_of_double_precision() {
        let (mut tried, mut failed) = (0, vec![]);
        all(DeviceName::default(), &|_| true, &mut |name, report| {
            tried += 1;
            if report.verdict != Verdict::Passed {
                failed.push(format!("{name}: {}", report.detail));
            }
        });
        assert!(failed.is_empty(), "{} of {tried}:\n{}", failed.len(), failed.join("\n"));
    }

    /// What definitions give in double precision, by an evaluator that shares nothing with any device.
    fn by_definition(edge: &Edge) -> Result<Vec<Array>> {
        let cx = Context::trace(true, Precision::F32);
        let mut operands = vec![];
        let mut given = vec![];
        for (index, operand) in edge.operands.iter().enumerate() {
            operands.push(cx.input(&format!("operand {index}"), operand.shape(), operand.dtype())?);
            given.push(in_reference(operand));
        }
        let operands = edge.taken(operands, DType::F64)?;
        let result = (edge.function)(&operands)?;
        let weights = weights(&result.shape())?;
        given.push(in_reference(&weights));
        let loss = weighted(&result, &cx.input("weights", weights.shape(), DType::F32)?)?;
        let mut wanted = vec![result];
        if edge.slope.is_some() {
            let wrt: Vec<&Tensor> = operands.iter().filter(|operand| operand.dtype().is_float()).collect();
            wanted.extend(cx.gradients(&loss, &wrt)?);
        }
        for (index, tensor) in wanted.iter().enumerate() {
            cx.output(&index.to_string(), tensor)?;
        }
        let step = cx.take_step()?;
        let inputs = step.inputs.iter().map(|input| input.value).zip(given).collect();
        let outputs: Vec<_> = step.outputs.iter().map(|output| output.value).collect();
        let found = evaluate(&step.graph, &inputs, &outputs).into_iter();
        found.map(|tensor| Array::new(&tensor.shape, &tensor.data)).collect()
    }

    fn in_reference(array: &Array) -> plimsoll_reference::Tensor {
        let values = (0..count(array)).map(|at| element(array, at)).collect();
        plimsoll_reference::Tensor::new(array.shape(), array.dtype(), values)
    }

    #[test]
    fn double_precision_on_the_cpu_is_what_definitions_give() {
        let mut failed = vec![];
        for edge in list() {
            let found = edge.eagerly(DeviceName::default(), DType::F64).unwrap();
            let expected = by_definition(&edge).unwrap();
            for (index, (expected, found)) in expected.iter().zip(&found).enumerate() {
                let wide =
                    |array: &Array| floats64(array.shape(), (0..count(array)).map(|at| element(array, at)));
                let (expected, found) = (wide(expected), wide(found));
                // Roundings are so much smaller that a multiple of them tells wrong from inexact.
                let bound = if index == 0 { edge.value } else { edge.slope.unwrap_or(Bound::EXACT) };
                let bound = Bound {
                    ulps: 1e5 * bound.ulps,
                    of_largest: 1e5 * bound.of_largest,
                    of_one: 1e5 * bound.of_one,
                };
                let off = apart(&expected, &found, bound);
                if off > 1.0 {
                    let about = first_off(&expected, &found, bound);
                    failed.push(format!("{}, {index}: {about}", edge.name));
                }
            }
        }
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    }

    fn floats64(shape: &[usize], values: impl Iterator<Item = f64>) -> Array {
        array(shape, &values.collect::<Vec<f64>>())
    }
}

//! Ops on a device against the same ops on the CPU.
//!
//! Most machines that build this have no GPU, so what its kernels compute cannot be a test of the usual kind. It is part
//! of the program instead: every case is a small step that is lowered, planned and run on both devices, and their
//! outputs and states are compared within what rounding allows. The device's memory is filled with garbage before each run, and the
//! second run has other garbage and must give the same bits.

mod cases;
mod compare;
mod eager;
mod edges;
mod executor;
mod run_on_both;
mod trainings;

use crate::{DeviceName, Precision, device};
use compare::compare;
use plimsoll_cpu::CpuDevice;
use plimsoll_device::Device;
pub use plimsoll_device::SelfTest;
use plimsoll_graph::random::{block, normal, uniform64};
use plimsoll_graph::step::Initial;
use plimsoll_graph::{DType, Graph, Program, Step, ValueId, lower};
use run_on_both::{Data, Trouble, results, run_on};
use std::rc::Rc;
use std::time::Instant;

/// One thing to try: a step, the outputs and states of which should be the same on both devices.
pub struct Case {
    name: String,
    step: Build,
    /// What inputs hold; those past the end are normally distributed, or whole numbers below `classes`.
    fills: Vec<Fill>,
    classes: i64,
    terms: f64,
    /// How large what is added up is, where it cancels.
    magnitude: f64,
    /// How many runs follow each other.
    runs: usize,
}

/// Builds what is tried.
type Build = Box<dyn Fn() -> Result<Step, Trouble> + Send + Sync>;

/// An input of a case.
#[derive(Debug, Clone)]
struct Input {
    dims: Vec<usize>,
    dtype: DType,
    fill: Fill,
}

/// What an input holds.
#[derive(Debug, Clone, Copy)]
enum Fill {
    /// Normally distributed around zero.
    Normal,
    /// Evenly distributed between two numbers.
    Uniform(f64, f64),
    /// Whole numbers from one up to another, the last not among them.
    Integers(i64, i64),
}

/// What came of a [`Case`].
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// What came of it.
    pub verdict: Verdict,
    /// The largest difference between the devices, over what it may be.
    pub error: f64,
    /// Microseconds of a run on the device, if it ran.
    pub microseconds: f64,
    /// What was seen: inputs and outputs, or what is wrong.
    pub detail: String,
    /// How long it took to find out, compiling included.
    pub seconds: f64,
}

/// What came of a [`Case`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The devices agree.
    Passed,
    /// They do not, or the device refuses.
    Failed,
    /// The device has no kernel for it.
    Missing,
    /// The device cannot be used any more by this process: what comes after needs a new one.
    Broken,
}

impl Case {
    /// A case that builds values from inputs; what it returns is compared.
    fn new(
        name: impl Into<String>,
        inputs: Vec<Input>,
        build: impl Fn(&mut Graph, &[ValueId]) -> plimsoll_graph::Result<Vec<ValueId>> + Send + Sync + 'static,
    ) -> Case {
        let fills = inputs.iter().map(|input| input.fill).collect();
        let step = move || {
            let mut step = Step::new();
            let mut values = Vec::new();
            for (index, input) in inputs.iter().enumerate() {
                values.push(step.input(&format!("input {index}"), &input.dims, input.dtype)?);
            }
            for (index, value) in build(&mut step.graph, &values)?.into_iter().enumerate() {
                step.output(&format!("output {index}"), value);
            }
            Ok(step)
        };
        Case {
            name: name.into(),
            step: Box::new(step),
            fills,
            classes: 0,
            terms: 16.0,
            magnitude: 0.0,
            runs: 1,
        }
    }

    /// A case that runs a step a few times. Inputs that are whole numbers are below `classes`.
    fn of_step(
        name: impl Into<String>,
        classes: i64,
        step: impl Fn() -> crate::Result<Step> + Send + Sync + 'static,
    ) -> Case {
        let step = move || Ok(step()?);
        let (name, step, fills) = (name.into(), Box::new(step), vec![]);
        Case { name, step, fills, classes, terms: 4096.0, magnitude: 0.0, runs: 3 }
    }

    /// How many roundings in the type of sums may differ: the terms of a sum, or what functions are off by.
    fn terms(self, terms: usize) -> Case {
        Case { terms: 16.0 + terms as f64, ..self }
    }

    /// How large what is added up is, where it cancels and results are next to nothing.
    fn magnitude(self, magnitude: f64) -> Case {
        Case { magnitude, ..self }
    }

    /// What it is called: the op, the type and the shapes.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The program of the case, and what it is run on: the same for every run of a case.
    fn program(&self) -> Result<(Program, Data), Trouble> {
        let step = (self.step)()?;
        let seed = self.name.bytes().fold(7u64, |seed, byte| seed.wrapping_mul(31) ^ u64::from(byte));
        let input = |(stream, value): (usize, ValueId)| {
            let ty = step.graph.ty(value);
            let usual =
                if ty.dtype.is_float() { Fill::Normal } else { Fill::Integers(0, self.classes.max(1)) };
            let fill = self.fills.get(stream).copied().unwrap_or(usual);
            Input { dims: ty.shape.to_vec(), dtype: ty.dtype, fill }.bytes(seed, stream as u64)
        };
        let inputs = step.inputs.iter().map(|input| input.value).enumerate().map(input).collect();
        let states = step.states.iter().enumerate().map(|(stream, state)| {
            let ty = step.graph.ty(state.value);
            let fill = match state.initial {
                Initial::Constant(value) => Fill::Uniform(value, value),
                Initial::Uniform { limit } => Fill::Uniform(-limit, limit),
                Initial::Normal { deviation } => Fill::Uniform(-deviation, deviation),
                Initial::Seed => Fill::Integers(0, 1),
            };
            Input { dims: ty.shape.to_vec(), dtype: ty.dtype, fill }.bytes(seed, 1000 + stream as u64)
        });
        let states = states.collect();
        Ok((lower(&step), Data { inputs, states, runs: self.runs }))
    }

    /// Tries it on both devices.
    pub fn run(&self, subject: &Subject) -> Report {
        let start = Instant::now();
        let report = self.attempt(subject);
        let seconds = start.elapsed().as_secs_f64();
        match report {
            Ok(report) => Report { seconds, ..report },
            Err(trouble) => Report {
                verdict: trouble.verdict,
                error: f64::INFINITY,
                microseconds: 0.0,
                detail: trouble.message,
                seconds,
            },
        }
    }

    fn attempt(&self, subject: &Subject) -> Result<Report, Trouble> {
        let (program, data) = self.program()?;
        let ran = run_on(&*subject.device, &program, &data)?;
        let [expected, _] = run_on(&subject.reference, &program, &data)?.results;
        let mut kernels: Vec<&str> = program.kernels.iter().map(|kernel| kernel.name()).collect();
        kernels.dedup();
        let mut report = self.judge(&program, &expected, &ran.results[0]);
        report.microseconds = ran.microseconds;
        report.detail = format!("{} ({})", report.detail, kernels.join(", "));
        let changed = ran.results[0].iter().zip(&ran.results[1]).position(|(a, b)| a != b);
        if let (Verdict::Passed, Some(output)) = (report.verdict, changed) {
            report.verdict = Verdict::Failed;
            report.detail = format!(
                "result {output} has other bits in a second run with other garbage in memory: {}",
                first_difference(&ran.results[0][output], &ran.results[1][output])
            );
        }
        Ok(report)
    }

    /// Whether outputs are what is expected.
    fn judge(&self, program: &Program, expected: &[Vec<u8>], actual: &[Vec<u8>]) -> Report {
        let mut report = Report {
            verdict: Verdict::Passed,
            error: 0.0,
            microseconds: 0.0,
            detail: String::new(),
            seconds: 0.0,
        };
        for (index, buffer) in results(program).enumerate() {
            let results = [&expected[index][..], &actual[index]];
            let comparison = compare(buffer.dtype, &buffer.shape, results, self.terms, self.magnitude);
            report.error = report.error.max(comparison.ratio);
            if comparison.bad > 0 {
                report.verdict = Verdict::Failed;
            }
            // Of a step with many results, those that are wrong are of interest.
            if comparison.bad > 0 || self.runs == 1 {
                let about =
                    format!("{} {}{}: {}", buffer.name, buffer.dtype, buffer.shape, comparison.detail);
                let separator = if report.detail.is_empty() { "" } else { "; " };
                report.detail.push_str(separator);
                report.detail.push_str(&about);
            }
        }
        report
    }
}

fn first_difference(a: &[u8], b: &[u8]) -> String {
    match a.iter().zip(b).position(|(a, b)| a != b) {
        Some(byte) => format!("byte {byte} is {:#04x}, then {:#04x}", a[byte], b[byte]),
        None => format!("{} bytes, then {}", a.len(), b.len()),
    }
}

impl Input {
    fn bytes(&self, seed: u64, stream: u64) -> Vec<u8> {
        let elements: usize = self.dims.iter().product();
        let mut bytes = Vec::with_capacity(elements * self.dtype.size());
        for position in 0..elements as u64 {
            let words = block(seed, 1, stream, position);
            let value = match self.fill {
                Fill::Normal => normal(words),
                Fill::Uniform(low, high) => low + (high - low) * uniform64(words),
                Fill::Integers(low, high) => (low as f64 + (high - low) as f64 * uniform64(words)).floor(),
            };
            compare::encode(self.dtype, value, &mut bytes);
        }
        bytes
    }
}

/// Numbers around zero.
fn normals(dtype: DType, dims: &[usize]) -> Input {
    Input { dims: dims.into(), dtype, fill: Fill::Normal }
}

/// Numbers between two others.
fn uniform(dtype: DType, dims: &[usize], low: f64, high: f64) -> Input {
    Input { dims: dims.into(), dtype, fill: Fill::Uniform(low, high) }
}

/// Whole numbers from one up to another, the last not among them.
fn integers(dtype: DType, dims: &[usize], low: i64, high: i64) -> Input {
    Input { dims: dims.into(), dtype, fill: Fill::Integers(low, high) }
}

/// Everything there is to try, in order.
pub fn cases() -> Vec<Case> {
    cases::all()
}

/// A device that is tried, and the CPU that it is compared with.
pub struct Subject {
    name: DeviceName,
    device: Rc<dyn Device>,
    reference: CpuDevice,
}

impl Subject {
    /// Opens a device to be tried.
    ///
    /// # Errors
    /// If it is not here, or cannot be used.
    pub fn open(name: DeviceName) -> crate::Result<Subject> {
        let reference = CpuDevice::new(None)?;
        Ok(Subject { name, device: device::open(&name, &reference, Precision::F32)?, reference })
    }

    /// Whether it is the very device that others are compared with: its kernels have nothing to be compared to.
    pub fn is_reference(&self) -> bool {
        self.name == DeviceName::default()
    }

    /// Tries what its memory is relied on for. A device of its own is filled for a moment, so nothing else should be using
    /// it.
    pub fn memory(&self) -> Vec<SelfTest> {
        self.device.selftest()
    }

    /// Tries what the execution of programs is relied on for, beside what kernels compute: copies between device and
    /// host, that running takes no memory, and fused launches. Each is a name with what came of it.
    pub fn executor(&self) -> Vec<(&'static str, Report)> {
        executor::all(&*self.device)
    }

    /// Runs eager mode, tapes and optimizers on both devices, those whose names are `wanted`, and tells of each what came
    /// of it.
    pub fn eager(&self, wanted: &dyn Fn(&str) -> bool, tell: &mut dyn FnMut(String, Report)) {
        eager::all(self.name, wanted, tell);
    }

    /// Tries every op where digits are easily lost or what is not finite is hidden, against double precision: those whose
    /// names are `wanted`; and tells of each what came of it. The CPU, too, can be tried so.
    pub fn edges(&self, wanted: &dyn Fn(&str) -> bool, tell: &mut dyn FnMut(String, Report)) {
        edges::all(self.name, wanted, tell);
    }

    /// Trains models of every kind on both devices, those whose names are `wanted`, and tells of each what came of it.
    pub fn trainings(&self, wanted: &dyn Fn(&str) -> bool, tell: &mut dyn FnMut(String, Report)) {
        trainings::all(self.name, wanted, tell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_case_runs_on_the_cpu_and_agrees_with_itself() {
        let cpu = CpuDevice::new(Some(1)).expect("one thread starts");
        let mut names = HashSet::new();
        for case in cases() {
            assert!(names.insert(case.name.clone()), "two cases are called {}", case.name);
            let (program, data) = case.program().unwrap_or_else(|e| panic!("{}: {}", case.name, e.message));
            let ran = run_on(&cpu, &program, &data);
            let [outputs, _] = ran.unwrap_or_else(|e| panic!("{}: {}", case.name, e.message)).results;
            let report = case.judge(&program, &outputs, &outputs);
            assert_eq!(report.verdict, Verdict::Passed, "{}: {}", case.name, report.detail);
            assert_eq!(report.error, 0.0);
        }
    }

    #[test]
    fn an_output_that_is_off_fails_with_its_place_and_both_values() {
        let cpu = CpuDevice::new(Some(1)).expect("one thread starts");
        let case = Case::new("negated", vec![normals(DType::F32, &[2, 3])], |g, v| Ok(vec![g.neg(v[0])?]));
        let (program, data) = case.program().expect("it lowers");
        let [expected, _] = run_on(&cpu, &program, &data).expect("it runs").results;
        let mut actual = expected.clone();
        actual[0][16..20].copy_from_slice(&1e3f32.to_le_bytes());
        let report = case.judge(&program, &expected, &actual);
        assert_eq!(report.verdict, Verdict::Failed);
        assert!(report.detail.contains("[1, 1]") && report.detail.contains("1000"), "{}", report.detail);
    }
}

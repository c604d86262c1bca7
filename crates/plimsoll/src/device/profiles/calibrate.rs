//! Measuring what this machine can do.
//!
//! What a datasheet says of a processor tells little of what kernels reach on it, and nothing of the other programs
//! that run there. So the figures are taken from the very kernels that training runs, by way of small steps that are
//! lowered, planned and run as a model's are. How near to these figures kernels of each kind and size come is then read
//! off whole training steps of [`networks`].

use super::{Copies, EfficiencyTable, Profile, Rates, networks};
use crate::Result;
use plimsoll_cpu::{ALIGNMENT, CpuDevice};
use plimsoll_device::{CheckedProgram, Device};
use plimsoll_graph::op::{Attention, Conv2d};
use plimsoll_graph::program::{Body, Buffer, BufferId, Home, Keep, Kernel, Operand, Role, View};
use plimsoll_graph::step::Initial;
use plimsoll_graph::{DType, Op, Program, Shape, Step, lower};
use plimsoll_memory::machine_bytes;
use std::time::{Duration, Instant};

/// Runs that are not counted, so that caches and clocks have settled.
const WARM_UP: usize = 2;
/// A figure is the median of at least so many runs, and of as many more as there is time for.
const FEWEST: usize = 7;
const MOST: usize = 200;
const TIME: Duration = Duration::from_millis(400);

/// More than any last-level cache holds, so that every byte comes from memory and goes there.
const LARGE: usize = 128 << 20;
/// Of a system that does not say how much memory it has.
const USUAL_MEMORY: u64 = 8 << 30;

/// Measures this machine as so many threads use it, all if that is `None`: rates and bandwidths by single kernels, and then how
/// near to them each kind of kernels comes, within steps of networks of many kinds. On two cores that takes half a minute
/// and some hundred MiB. Other programs that run meanwhile make it look slower.
///
/// The memory is all that Linux says there is for this process; on other systems, where nothing in the standard library tells,
/// it is taken to be 8 GiB.
///
/// # Errors
/// If memory runs out.
pub fn calibrate(threads: Option<usize>) -> Result<Profile> {
    let device = &CpuDevice::new(threads)?;
    let figures = |step: Result<Step>| step.and_then(|step| measure(step, device));
    let launch = figures(tiny_kernels())?;
    let launch_seconds = rounded(launch.seconds / launch.kernels as f64);
    let matrix = figures(products(DType::F32))?;
    let matrix_half = figures(products(DType::BF16))?;
    let convolution = figures(convolutions(DType::F32))?;
    let convolution_half = figures(convolutions(DType::BF16))?;
    let workspaces = [&matrix, &matrix_half, &convolution, &convolution_half].map(|f| f.workspace);
    let known = Profile {
        name: "cpu".into(),
        about: match device.threads() {
            1 => "this machine's processor, 1 thread, measured".into(),
            threads => format!("this machine's processor, {threads} threads, measured"),
        },
        memory_bytes: machine_bytes().unwrap_or(USUAL_MEMORY),
        alignment: ALIGNMENT as u64,
        workspace_bytes: workspaces.into_iter().max().unwrap_or(0),
        context_bytes: 0,
        launch_seconds,
        bandwidth: figures(stream())?.bytes_a_second(),
        rates: Rates {
            elementwise: figures(elementwise())?.flops_a_second(),
            matrix: matrix.flops_a_second(),
            matrix_half: matrix_half.flops_a_second(),
            convolution: convolution.flops_a_second(),
            convolution_half: convolution_half.flops_a_second(),
            attention: figures(attention())?.flops_a_second(),
        },
        copies: Copies {
            bandwidth: measure_copy(device)?.bytes_a_second(),
            latency_seconds: launch_seconds,
            overlap: false,
        },
        // Steps of a recurrent layer are products like others, and rates were measured on the kernels themselves.
        step_seconds: 0.0,
        efficiency: EfficiencyTable::default(),
    };
    let (efficiency, apart) = efficiency(threads, &known)?;
    let about = format!("{} twice, {:.0} % apart", known.about, 100.0 * apart);
    Ok(Profile { about, efficiency, ..known })
}

/// How near to a profile's figures kernels of each kind come within training steps, and by what part two measurements of
/// the same kernels differ. The shorter counts: what runs beside for a while makes only one of them longer.
fn efficiency(threads: Option<usize>, known: &Profile) -> Result<(EfficiencyTable, f64)> {
    let pass = || -> Result<Vec<(plimsoll_ir::Kernel, f64)>> {
        let of_each = networks::all().into_iter().map(|network| network.kernel_times(threads, known));
        Ok(of_each.collect::<Result<Vec<_>>>()?.concat())
    };
    let (first, second) = (pass()?, pass()?);
    // A processor launches no kernel while another runs: a kernel's time is all that it takes.
    let without_launch = Profile { launch_seconds: 0.0, ..known.clone() };
    let mut table = EfficiencyTable::default();
    let (mut apart, mut all) = (0.0, 0.0);
    for ((kernel, first), (_, second)) in first.iter().zip(&second) {
        let seconds = first.min(*second);
        (apart, all) = (apart + (first - second).abs(), all + seconds);
        if let Some(measured) = without_launch.measured(kernel, seconds) {
            table.add(EfficiencyTable::name(kernel.family), measured);
        }
    }
    Ok((table.condensed(), apart / all.max(1e-9)))
}

/// What a program did, and how long it took.
struct Figures {
    seconds: f64,
    kernels: usize,
    flops: u64,
    bytes: u64,
    /// The most scratch that a kernel asked for.
    workspace: u64,
}

impl Figures {
    fn flops_a_second(&self) -> f64 {
        rounded(self.flops as f64 / self.seconds)
    }

    fn bytes_a_second(&self) -> f64 {
        rounded(self.bytes as f64 / self.seconds)
    }
}

fn measure(step: Step, device: &CpuDevice) -> Result<Figures> {
    measure_program(lower(&step), device)
}

/// Of a copy from the device's memory to the host's.
fn measure_copy(device: &CpuDevice) -> Result<Figures> {
    let shape = Shape::new(&[LARGE / 4])?;
    let buffer = |home, keep| Buffer {
        name: "copied".into(),
        shape,
        dtype: DType::F32,
        role: Role::Activation,
        keep,
        home,
    };
    let operand = |index| Operand { buffer: BufferId(index), dtype: DType::F32, view: View::dense(shape) };
    let copy = Kernel {
        scope: "".into(),
        body: Body::Copy,
        reads: vec![operand(0)],
        writes: vec![operand(1)],
        in_place: vec![],
        flops: 0,
        bytes: LARGE as u64,
    };
    let program = Program {
        buffers: vec![buffer(Home::Device, Keep::FromStart), buffer(Home::Host, Keep::ToEnd)],
        kernels: vec![copy],
        inputs: vec![BufferId(0)],
        outputs: vec![BufferId(1)],
        ..Program::default()
    };
    measure_program(program, device)
}

fn measure_program(program: Program, device: &CpuDevice) -> Result<Figures> {
    let checked = CheckedProgram::planned(program, device)?;
    let mut memory = device.reserve(checked.arena_bytes(), None)?;
    let loaded = memory.load(&checked)?;
    for index in 0..checked.program().states.len() {
        memory.write_state(loaded, index, &mut |_, piece| fill(piece))?;
    }
    // Inputs are written once: what is measured is running.
    memory.begin(loaded, &mut |_, bytes| {
        fill(bytes);
        Ok(())
    })?;
    let mut run = || memory.begin(loaded, &mut |_, _| Ok(()));
    for _ in 0..WARM_UP {
        run()?;
    }
    let (begin, mut times) = (Instant::now(), Vec::with_capacity(MOST));
    while times.len() < FEWEST || (times.len() < MOST && begin.elapsed() < TIME) {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(Figures {
        // A clock that stood still would give rates without end.
        seconds: times[times.len() / 2].max(1e-9),
        kernels: checked.program().kernels.len(),
        flops: checked.program().kernels.iter().map(|kernel| kernel.flops).sum(),
        bytes: checked.program().kernels.iter().map(|kernel| kernel.bytes).sum(),
        workspace: checked.plan().workspace_bytes.iter().copied().max().unwrap_or(0),
    })
}

/// Fills a buffer with numbers near a half. Memory that was never written is not there yet, and arithmetic on zeros
/// may be faster than on others.
fn fill(bytes: &mut [u8]) {
    // A half in bf16; two of them are about a half in f32.
    bytes.chunks_exact_mut(2).for_each(|half| half.copy_from_slice(&0x3f00_u16.to_ne_bytes()));
}

/// Two kernels a layer that have next to nothing to do.
fn tiny_kernels() -> Result<Step> {
    let mut step = Step::new();
    let mut x = step.input("x", &[4, 4], DType::F32)?;
    let weight = step.input("weight", &[4, 4], DType::F32)?;
    for _ in 0..1000 {
        let product = step.graph.dot(x, weight)?;
        x = step.graph.tanh(product)?;
    }
    step.output("x", x);
    Ok(step)
}

/// A product and those that its gradients need.
fn products(dtype: DType) -> Result<Step> {
    let mut step = Step::new();
    let a = step.input("a", &[1024, 1024], dtype)?;
    let b = step.input("b", &[1024, 1024], dtype)?;
    for (name, transpose_a, transpose_b) in
        [("product", false, false), ("first", false, true), ("second", true, false)]
    {
        let product = step.graph.dot_general(a, b, transpose_a, transpose_b)?;
        step.output(name, product);
    }
    Ok(step)
}

/// A convolution and its gradients.
fn convolutions(dtype: DType) -> Result<Step> {
    let mut step = Step::new();
    let images = step.input("images", &[16, 32, 32, 64], dtype)?;
    let filter = step.input("filter", &[3, 3, 64, 64], dtype)?;
    let conv = Conv2d { padding: [1; 4], ..Conv2d::default() };
    let graph = &mut step.graph;
    let (input, shape) = (graph.shape(images), graph.shape(filter));
    let result = graph.apply(Op::Conv2d(conv), &[images, filter])?;
    let image_grad = graph.apply(Op::Conv2dInputGrad { conv, input }, &[filter, images])?;
    let filter_grad = graph.apply(Op::Conv2dFilterGrad { conv, filter: shape }, &[images, images])?;
    step.output("result", result);
    step.output("image_grad", image_grad);
    step.output("filter_grad", filter_grad);
    Ok(step)
}

/// Causal attention and its gradients.
fn attention() -> Result<Step> {
    let mut step = Step::new();
    let shape = [8, 256, 4, 64];
    let q = step.input("q", &shape, DType::F32)?;
    let k = step.input("k", &shape, DType::F32)?;
    let v = step.input("v", &shape, DType::F32)?;
    let causal = Attention { causal: true, scale: 0.125 };
    let [y, log_sum] = step.graph.apply_n(Op::Attention(causal), &[q, k, v])?;
    let grads: [_; 3] = step.graph.apply_n(Op::AttentionGrad(causal), &[q, k, v, y, log_sum, y])?;
    step.output("y", y);
    for (name, grad) in ["q_grad", "k_grad", "v_grad"].into_iter().zip(grads) {
        step.output(name, grad);
    }
    Ok(step)
}

/// A loop of many cheap functions over what fits a cache.
fn elementwise() -> Result<Step> {
    let mut step = Step::new();
    let x = step.input("x", &[64, 1024], DType::F32)?;
    let mut y = x;
    for _ in 0..8 {
        y = step.graph.mul(y, x)?;
        y = step.graph.add(y, x)?;
    }
    step.output("y", y);
    Ok(step)
}

/// A loop that reads and writes much and computes next to nothing.
fn stream() -> Result<Step> {
    let mut step = Step::new();
    // A state stays as it is, so that the result is somewhere else.
    let shape = [LARGE / 4];
    let x = step.state("x", Role::Parameter, &shape, DType::F32, Initial::Constant(0.0))?;
    let y = step.graph.mul_scalar(x, 0.5)?;
    step.output("y", y);
    Ok(step)
}

/// To the three digits that a measurement is good for.
fn rounded(x: f64) -> f64 {
    format!("{x:.2e}").parse().unwrap_or(x)
}

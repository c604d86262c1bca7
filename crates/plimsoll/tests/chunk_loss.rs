//! Training with logits that never exist whole gives the same bits in less memory.

use plimsoll::layers::Layer;
use plimsoll::models::Gpt;
use plimsoll::{Context, DType, Initial, Optimizer, Precision, Step, loss, metric};
use plimsoll_cpu::CpuDevice;
use plimsoll_device::{CheckedProgram, Device};
use plimsoll_graph::random::philox;
use plimsoll_graph::{chunk_loss, lower};

/// The bytes from which on logits are chunked here.
const LEAST: usize = 1 << 20;

const VOCAB: usize = 600;
const TOKENS: usize = 64;

/// A training step of a small language model.
fn step(batch: usize, tied_head: bool, precision: Precision) -> Step {
    let model =
        Gpt { layers: 1, width: 32, heads: 4, context: TOKENS, vocab: VOCAB, dropout: 0.1, tied_head };
    let cx = Context::trace(true, precision);
    let tokens = cx.input("tokens", &[batch, TOKENS], DType::I32).unwrap();
    let labels = cx.target("labels", &[batch, TOKENS], DType::I32).unwrap();
    let logits = model.forward(&cx, &tokens).unwrap();
    let loss = loss::sparse_cross_entropy(&logits, &labels).unwrap();
    cx.output("loss", &loss).unwrap();
    cx.output("accuracy", &metric::accuracy(&logits, &labels).unwrap()).unwrap();
    cx.minimise(&loss, &Optimizer::adam(1e-3)).unwrap();
    cx.take_step().unwrap()
}

fn uniform(i: usize, seed: usize) -> f64 {
    f64::from(philox([i as u32, seed as u32, 0, 0], [7, 9])[0]) / 2f64.powi(32)
}

/// What training leaves behind: the outputs of every step, the states after the last, and the bytes it took.
struct Trace {
    outputs: Vec<Vec<u8>>,
    states: Vec<Vec<u8>>,
    peak_bytes: u64,
}

fn train(step: Step, steps: usize) -> Trace {
    let device = CpuDevice::new(Some(2)).unwrap();
    let program = CheckedProgram::planned(lower(&step), &device).unwrap();
    let mut memory = device.reserve(program.arena_bytes(), None).unwrap();
    let loaded = memory.load(&program).unwrap();
    for (index, state) in step.states.iter().enumerate() {
        let number = |i: usize| match state.initial {
            Initial::Constant(value) => value,
            Initial::Uniform { limit } => (uniform(i, index) * 2.0 - 1.0) * limit,
            Initial::Normal { deviation } => (uniform(i, index) * 2.0 - 1.0) * 1.7 * deviation,
            Initial::Seed => 0.0,
        };
        let mut write = |_: usize, bytes: &mut [u8]| match step.graph.dtype(state.value) {
            DType::F32 => bytes.as_chunks_mut().0.iter_mut().enumerate().for_each(|(i, element)| {
                *element = (number(i) as f32).to_ne_bytes();
            }),
            _ => bytes.fill(0),
        };
        memory.write_state(loaded, index, &mut write).unwrap();
    }
    let mut outputs = vec![];
    for number in 0..steps {
        let mut fill = |input: usize, bytes: &mut [u8]| {
            for (i, token) in bytes.as_chunks_mut().0.iter_mut().enumerate() {
                *token = ((uniform(i, 100 * number + input) * VOCAB as f64) as i32).to_ne_bytes();
            }
            Ok(())
        };
        memory.begin(loaded, &mut fill).unwrap();
        memory.collect(loaded, &mut |_, bytes| outputs.push(bytes.to_vec())).unwrap();
    }
    let mut states = vec![];
    for index in 0..step.states.len() {
        memory.read_state(loaded, index, &mut |bytes| states.push(bytes.to_vec())).unwrap();
    }
    Trace { outputs, states, peak_bytes: program.plan().peak_bytes }
}

#[test]
fn a_gpt_trains_to_the_same_bits_in_less_memory() {
    for (batch, tied_head, precision) in [
        (8, true, Precision::F32),
        (8, false, Precision::F32),
        (20, true, Precision::F32),
        (20, false, Precision::F32),
        (20, true, Precision::Bf16),
        (20, false, Precision::Bf16),
        (20, true, Precision::F16),
        (20, false, Precision::F16),
    ] {
        let what = format!("batch {batch}, tied: {tied_head}, {precision:?}");
        let plain = step(batch, tied_head, precision);
        let chunked = chunk_loss(&plain, LEAST).expect("there is a head");
        for (before, after) in plain.states.iter().zip(&chunked.states) {
            assert_eq!(
                (&before.name, before.role, before.trainable),
                (&after.name, after.role, after.trainable)
            );
        }
        let (plain, chunked) = (train(plain, 20), train(chunked, 20));
        assert!(plain.outputs == chunked.outputs, "losses of {what}");
        assert!(plain.states == chunked.states, "weights of {what}");
        assert_ne!(plain.outputs[0], plain.outputs[38], "{what} should train");
        assert!(chunked.peak_bytes < plain.peak_bytes, "bytes of {what}");
    }
}

#[test]
fn few_logits_stay_as_they_are() {
    assert!(chunk_loss(&step(2, true, Precision::F32), LEAST).is_none());
}

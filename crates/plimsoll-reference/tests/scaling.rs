//! A step that scales its loss finds the scale by itself, and a gradient that is not finite changes nothing else.

use plimsoll_graph::optimizer::{Clip, Optimizer};
use plimsoll_graph::program::{Keep, Role};
use plimsoll_graph::scaling::{GOOD_STEPS, SCALE, SKIPPED_STEPS};
use plimsoll_graph::schedule::Schedule;
use plimsoll_graph::step::{Initial, StateTable};
use plimsoll_graph::{DType, Program, Step, ValueId, lower};
use plimsoll_reference::{Tensor, run};
use proptest::prelude::*;

/// The optimizer's count of updates.
const CLOCK: &str = "optimizer:updates";

/// The loss is Σ w·x, so that the gradient of w is x; a statistic adds up what x has been.
fn plain_step() -> (Step, ValueId) {
    let mut step = Step::new();
    step.random_state().unwrap();
    let w = step.state("w", Role::Parameter, &[3], DType::F32, Initial::Constant(0.25)).unwrap();
    let seen = step.state("seen", Role::Parameter, &[3], DType::F32, Initial::Constant(0.0)).unwrap();
    step.states[2].trainable = false;
    let x = step.input("x", &[3], DType::F32).unwrap();
    let product = step.graph.mul(w, x).unwrap();
    let loss = step.graph.sum_all(product).unwrap();
    let sum = step.graph.add(seen, x).unwrap();
    step.update(seen, sum).unwrap();
    step.output("loss", loss);
    (step, loss)
}

fn scaled_step(optimizer: &Optimizer) -> Step {
    let (mut step, loss) = plain_step();
    step.scale_loss().unwrap();
    step.train(loss, optimizer).unwrap();
    step
}

/// A step with its states.
struct Running {
    step: Step,
    program: Program,
    states: Vec<Tensor>,
}

impl Running {
    fn new(step: Step) -> Running {
        let first = |state: &plimsoll_graph::step::State| {
            let ty = step.graph.ty(state.value);
            let value = if let Initial::Constant(value) = state.initial { value } else { 0.0 };
            Tensor::new(&ty.shape, ty.dtype, vec![value; ty.shape.elements()])
        };
        let states = step.states.iter().map(first).collect();
        Running { program: lower(&step), step, states }
    }

    /// Trains with this gradient of the weights; returns the loss.
    fn train(&mut self, gradient: [f64; 3]) -> f64 {
        let x = Tensor::new(&[3], DType::F32, gradient.to_vec());
        let (states, outputs) = run(&self.program, &self.states, &[x]);
        self.states = states;
        outputs[0].data[0]
    }

    fn state(&mut self, name: &str) -> &mut Tensor {
        let index = self.step.states.iter().position(|state| &*state.name == name).unwrap();
        &mut self.states[index]
    }

    fn scalars(&mut self) -> [f64; 3] {
        [SCALE, GOOD_STEPS, SKIPPED_STEPS].map(|name| self.state(name).data[0])
    }

    /// What scaling must not change: parameters, statistics, slots and the optimizer's clock.
    fn trained(&self) -> Vec<(&str, &Tensor)> {
        let states = self.step.states.iter().zip(&self.states);
        let kept = states.filter(|(state, _)| state.role != Role::Random && !state.name.starts_with("loss:"));
        kept.map(|(state, tensor)| (&*state.name, tensor)).collect()
    }
}

fn optimizer(choice: u32) -> Optimizer {
    match choice % 5 {
        0 => Optimizer::sgd(0.1),
        1 => Optimizer::momentum(Schedule::linear(0.1, 30).warmup(3), 0.9, true).weight_decay(0.1),
        2 => Optimizer::adamw(Schedule::cosine(0.01, 50)).clip(Clip::GlobalNorm(0.5)),
        3 => Optimizer::rmsprop(0.01).clip(Clip::Value(0.2)),
        _ => Optimizer::adam(0.01),
    }
}

/// Numbers a gradient may have: of which those beyond 1e34 overflow when they are scaled, by some scales.
fn numbers() -> impl Strategy<Value = f64> {
    prop_oneof![
        6 => -2.0..2.0f64,
        1 => Just(3e38),
        1 => prop::sample::select(vec![f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -1e36, 0.0, 1e-30]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_scale_halves_on_what_is_not_finite_and_doubles_after_2000_good_steps(
        gradients in prop::collection::vec(numbers(), 1..60),
        exponent in 0..18,
        before in 1940..2000u32,
    ) {
        let mut running = Running::new(scaled_step(&Optimizer::sgd(0.1)));
        prop_assert_eq!(running.scalars(), [32_768.0, 0.0, 0.0]);
        let [mut scale, mut good, mut skipped] = [2f64.powi(exponent), f64::from(before), 0.0];
        running.state(SCALE).data[0] = scale;
        running.state(GOOD_STEPS).data[0] = good;
        for gradient in gradients {
            running.train([1.0, gradient, -1.0]);
            if (gradient as f32 * scale as f32).is_finite() {
                good += 1.0;
                if good == 2000.0 {
                    (scale, good) = (scale * 2.0, 0.0);
                }
            } else {
                (scale, good, skipped) = (f64::max(scale / 2.0, 1.0), 0.0, skipped + 1.0);
            }
            prop_assert_eq!(running.scalars(), [scale, good, skipped]);
        }
    }

    /// Also through bias corrections and schedules: time stands still in a skipped step.
    #[test]
    fn training_is_to_the_bit_as_if_skipped_steps_had_not_been(
        gradients in prop::collection::vec([numbers(), numbers(), numbers()], 1..20),
        choice in any::<u32>(),
    ) {
        let step = scaled_step(&optimizer(choice));
        let clock = step.states.iter().position(|state| &*state.name == CLOCK).unwrap();
        let (mut all, mut finite) = (Running::new(step.clone()), Running::new(step));
        for gradient in gradients {
            let before = all.states.clone();
            let [scale, _, skipped] = all.scalars();
            all.train(gradient);
            if all.scalars()[2] == skipped {
                finite.state(SCALE).data[0] = scale;
                finite.train(gradient);
            }
            let applied = if all.scalars()[2] == skipped { 1.0 } else { 0.0 };
            prop_assert_eq!(all.state("random").data[1], before[0].data[1] + 1.0);
            prop_assert_eq!(all.state(CLOCK).data[0], before[clock].data[0] + applied);
            prop_assert_eq!(all.trained(), finite.trained());
        }
    }

    /// The scale is a power of two, and cancels.
    #[test]
    fn what_does_not_overflow_trains_to_the_bits_of_a_step_without_scaling(
        gradients in prop::collection::vec([-2.0..2.0f64, -2.0..2.0f64, -2.0..2.0f64], 1..20),
        choice in any::<u32>(),
    ) {
        let (mut plain, loss) = plain_step();
        plain.train(loss, &optimizer(choice)).unwrap();
        let (mut plain, mut scaled) = (Running::new(plain), Running::new(scaled_step(&optimizer(choice))));
        for gradient in gradients {
            prop_assert_eq!(plain.train(gradient), scaled.train(gradient), "the loss is reported as it is");
            prop_assert_eq!(plain.trained(), scaled.trained());
        }
    }
}

#[test]
fn a_scale_that_nothing_stops_stays_finite() {
    let mut running = Running::new(scaled_step(&Optimizer::sgd(0.1)));
    running.state(SCALE).data[0] = 2f64.powi(126);
    running.state(GOOD_STEPS).data[0] = 1999.0;
    running.train([0.0; 3]);
    assert_eq!(running.scalars(), [2f64.powi(126), 0.0, 0.0]);
}

/// A window of two halves, each with its gradient.
fn window(gradients: [[f64; 3]; 2]) -> (Running, Step) {
    let (mut part, loss) = plain_step();
    part.scale_loss().unwrap();
    part.minimise(loss, &Optimizer::adam(0.01)).unwrap();
    part.accumulate(2).unwrap();
    let end = part.end_of_window().unwrap();
    let mut states = StateTable::default();
    states.extend(&end).unwrap();
    part.adopt_states(&states).unwrap();
    let mut running = Running::new(part);
    for gradient in gradients {
        let x = Tensor::new(&[3], DType::F32, gradient.to_vec());
        let half = Tensor::new(&[], DType::F32, vec![0.5]);
        (running.states, _) = run(&running.program, &running.states, &[x, half]);
    }
    (running.states, _) = run(&lower(&end), &running.states, &[]);
    (running, end)
}

#[test]
fn a_window_is_scaled_and_checked_as_one_step() {
    let gradient = [0.5, -1.0, 2.0];
    let (mut split, end) = window([gradient, gradient]);
    let mut whole = Running::new(scaled_step(&Optimizer::adam(0.01)));
    whole.train(gradient);
    assert_eq!(split.state("w"), whole.state("w"));
    assert_eq!(split.scalars(), [32_768.0, 1.0, 0.0]);
    let names = |step: &Step| step.states.iter().map(|s| s.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(&split.step), names(&end));
    let scaling = end.states.iter().filter(|state| state.name.starts_with("loss:"));
    assert!(scaling.clone().all(|state| state.role == Role::Optimizer && !state.trainable));
    assert_eq!(scaling.count(), 3);
}

/// As without scaling: the check needs no memory, and updates are made where the states are.
#[test]
fn the_end_of_a_scaled_window_needs_little_beside_its_states() {
    let mut part = Step::new();
    for (name, shape) in [("matrix", &[500, 700][..]), ("vector", &[5000]), ("scalar", &[])] {
        part.state(name, Role::Parameter, shape, DType::F32, Initial::Constant(1.0)).unwrap();
    }
    let mut loss = part.graph.constant(0.0, DType::F32).unwrap();
    for index in 0..3 {
        let square = part.graph.square(part.states[index].value).unwrap();
        let sum = part.graph.sum_all(square).unwrap();
        loss = part.graph.add(loss, sum).unwrap();
    }
    part.scale_loss().unwrap();
    part.minimise(loss, &Optimizer::adam(0.1)).unwrap();
    part.accumulate(4).unwrap();
    let end = part.end_of_window().unwrap();
    let largest = lower(&end).buffers.iter().filter(|b| b.keep != Keep::Always).map(|b| b.bytes()).max();
    assert!(largest.unwrap_or(0) <= 500, "a buffer of {largest:?} bytes");
}

#[test]
fn one_micro_batch_that_is_not_finite_skips_its_window() {
    for gradients in [[[3e38, 0.0, 0.0], [1.0; 3]], [[1.0; 3], [0.0, -3e38, 0.0]]] {
        let (mut split, _) = window(gradients);
        assert_eq!(split.scalars(), [16_384.0, 0.0, 1.0]);
        assert_eq!(split.state("w").data, [0.25; 3]);
        for slot in ["w:gradient", "w:mean", "w:square"] {
            assert_eq!(split.state(slot).data, [0.0; 3], "{slot}");
        }
        assert_eq!(split.state(CLOCK).data, [0.0], "an update that was not made is not counted");
        assert_eq!(split.state("random").data, [0.0, 1.0, 0.0], "the next step draws other numbers");
    }
}

/// A step of one product in `f16`.
fn half_step() -> Step {
    let mut step = Step::new();
    let x = step.input("x", &[32, 64], DType::F16).unwrap();
    let w = step.state("w", Role::Parameter, &[64, 96], DType::F32, Initial::Constant(0.1)).unwrap();
    let g = &mut step.graph;
    let converted = g.cast(w, DType::F16).unwrap();
    let y = g.dot(x, converted).unwrap();
    let y = g.cast(y, DType::F32).unwrap();
    let square = g.square(y).unwrap();
    let loss = g.mean_all(square).unwrap();
    step.scale_loss().unwrap();
    step.train(loss, &Optimizer::adam(0.1)).unwrap();
    step
}

#[test]
fn gradients_wait_for_their_check_in_f16() {
    let program = lower(&half_step());
    let waits = |bytes: usize| {
        program.buffers.iter().filter(move |b| b.keep == Keep::WhileUsed && b.bytes() >= bytes)
    };
    // The converted weights and their gradient.
    let bytes = 64 * 96 * DType::F16.size();
    assert_eq!(waits(bytes).map(|b| b.dtype).collect::<Vec<_>>(), [DType::F16; 2]);
    assert_eq!(waits(bytes).filter(|b| b.role == Role::Gradient).count(), 1);
}

/// The loss's gradient is 2y/n, at most 2e-8 here: as `f16` it would be zero.
#[test]
fn the_scale_is_there_before_gradients_are_rounded_to_f16() {
    let mut running = Running::new(half_step());
    running.state("w").data.fill(1e-5);
    let x = Tensor::new(&[32, 64], DType::F16, vec![0.05; 32 * 64]);
    (running.states, _) = run(&running.program, &running.states, &[x]);
    assert_eq!(running.scalars()[2], 0.0);
    let mean = running.state("w:mean").data[0];
    // Adam's mean is a tenth of Σ x·2y/n over 32 rows, with y = 64·0.05·1e-5.
    let expected = 0.1 * 32.0 * 0.05 * 2.0 * (64.0 * 0.05 * 1e-5) / (32.0 * 96.0);
    assert!((mean / expected - 1.0).abs() < 0.01, "{mean}, not {expected}");
}

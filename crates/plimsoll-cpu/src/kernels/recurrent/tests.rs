//! Recurrent layers against the textbook's formulas, and their gradients against differences of those.

use super::{Gru, Lstm, prepare, prepare_grad};
use crate::kernels::testing::*;
use plimsoll_graph::DType;

/// Batch, time, input and hidden extents.
const CASES: [[usize; 4]; 6] =
    [[2, 0, 3, 4], [1, 1, 1, 1], [2, 3, 4, 5], [3, 1, 2, 17], [17, 6, 3, 33], [2, 4, 9, 270]];

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// A layer's results from its operands, by the book.
type Forward = fn([usize; 4], &[Vec<f64>]) -> Vec<Vec<f64>>;

/// `row · weight` in one column.
fn product(row: &[f64], weight: &[f64], columns: usize, column: usize) -> f64 {
    row.iter().enumerate().map(|(i, x)| x * weight[i * columns + column]).sum()
}

fn naive_lstm([batch, time, input, hidden]: [usize; 4], operands: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let [x, input_weight, hidden_weight, bias, first_hidden, first_cell] = operands else { unreachable!() };
    let mut results = [1, 4, 1].map(|width| vec![0.0; batch * time * width * hidden]);
    for b in 0..batch {
        let mut state = first_hidden[b * hidden..][..hidden].to_vec();
        let mut cell = first_cell[b * hidden..][..hidden].to_vec();
        for t in 0..time {
            let row = b * time + t;
            let x = &x[row * input..][..input];
            let gate = |gate: usize, unit: usize| {
                let column = gate * hidden + unit;
                let sum = product(x, input_weight, 4 * hidden, column) + bias[column];
                let sum = sum + product(&state, hidden_weight, 4 * hidden, column);
                if gate == 2 { sum.tanh() } else { sigmoid(sum) }
            };
            let gates: Vec<[f64; 4]> = (0..hidden).map(|unit| [0, 1, 2, 3].map(|g| gate(g, unit))).collect();
            for (unit, gates) in gates.iter().enumerate() {
                cell[unit] = gates[1] * cell[unit] + gates[0] * gates[2];
                state[unit] = gates[3] * cell[unit].tanh();
                results[0][row * hidden + unit] = state[unit];
                results[2][row * hidden + unit] = cell[unit];
                for (g, value) in gates.iter().enumerate() {
                    results[1][(row * 4 + g) * hidden + unit] = *value;
                }
            }
        }
    }
    results.to_vec()
}

fn naive_gru([batch, time, input, hidden]: [usize; 4], operands: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let [x, input_weight, hidden_weight, input_bias, hidden_bias, first] = operands else { unreachable!() };
    let mut results = [1, 4].map(|width| vec![0.0; batch * time * width * hidden]);
    for b in 0..batch {
        let mut state = first[b * hidden..][..hidden].to_vec();
        for t in 0..time {
            let row = b * time + t;
            let x = &x[row * input..][..input];
            let gate = |unit: usize| {
                let from_input = |gate: usize| {
                    let column = gate * hidden + unit;
                    product(x, input_weight, 3 * hidden, column) + input_bias[column]
                };
                let from_state = |gate: usize| {
                    let column = gate * hidden + unit;
                    product(&state, hidden_weight, 3 * hidden, column) + hidden_bias[column]
                };
                let [reset, update] = [0, 1].map(|gate| sigmoid(from_input(gate) + from_state(gate)));
                [reset, update, (from_input(2) + reset * from_state(2)).tanh(), from_state(2)]
            };
            let gates: Vec<[f64; 4]> = (0..hidden).map(gate).collect();
            for (unit, gates) in gates.iter().enumerate() {
                state[unit] = (1.0 - gates[1]) * gates[2] + gates[1] * state[unit];
                results[0][row * hidden + unit] = state[unit];
                for (g, value) in gates.iter().enumerate() {
                    results[1][(row * 4 + g) * hidden + unit] = *value;
                }
            }
        }
    }
    results.to_vec()
}

/// The shapes of the operands of a layer with weights of `gates` gates: biases and states as many as it has.
fn operand_dims([batch, time, input, hidden]: [usize; 4], gates: usize) -> [Vec<usize>; 6] {
    let (bias, state) = (vec![gates * hidden], vec![batch, hidden]);
    let middle = if gates == 3 { bias.clone() } else { state.clone() };
    let weights = [input, hidden].map(|rows| vec![rows, gates * hidden]);
    let [input_weight, hidden_weight] = weights;
    [vec![batch, time, input], input_weight, hidden_weight, bias, middle, state]
}

fn operands(dtype: DType, extents: [usize; 4], gates: usize) -> Vec<Tensor> {
    let mut random = Random::new(extents[3] as u64);
    // Weights such that a unit's sums stay of the order of one however many units there are.
    let scale = [1.0, 1.0, 2.0 / (extents[3] as f64).sqrt(), 1.0, 1.0, 1.0];
    let dims = operand_dims(extents, gates);
    let tensor = |(dims, scale): (&Vec<usize>, f64)| {
        let count = dims.iter().product();
        Tensor::new(dtype, dims, (0..count).map(|_| random.float() * scale).collect())
    };
    dims.iter().zip(scale).map(tensor).collect()
}

fn values(tensors: &[Tensor]) -> Vec<Vec<f64>> {
    tensors.iter().map(Tensor::values).collect()
}

#[test]
fn states_and_gates_follow_the_formulas() {
    for dtype in FLOATS {
        for extents in CASES {
            let [batch, time, _, hidden] = extents;
            let (narrow, wide) = ([batch, time, hidden], [batch, time, 4 * hidden]);
            // A half is rounded at every step, and the roundings add up over the steps.
            let tolerance = 8.0 * unit(dtype) + 64.0 * unit(dtype.accumulator());
            let tensors = operands(dtype, extents, 4);
            let results = [(dtype, &narrow[..]), (dtype, &wide), (dtype, &narrow)];
            let actual =
                run(|reads, _| prepare::<Lstm>(reads), &tensors.iter().collect::<Vec<_>>(), &results, &[]);
            for (actual, expected) in actual.iter().zip(naive_lstm(extents, &values(&tensors))) {
                assert_close(actual, &expected, tolerance, &format!("lstm {dtype} {extents:?}"));
            }
            let tensors = operands(dtype, extents, 3);
            let actual = run(
                |reads, _| prepare::<Gru>(reads),
                &tensors.iter().collect::<Vec<_>>(),
                &results[..2],
                &[],
            );
            for (actual, expected) in actual.iter().zip(naive_gru(extents, &values(&tensors))) {
                assert_close(actual, &expected, tolerance, &format!("gru {dtype} {extents:?}"));
            }
        }
    }
}

/// Checks gradients of the sum of `dy · states` against differences, for some elements of each operand.
fn check_gradients(
    forward: Forward,
    extents: [usize; 4],
    tensors: &[Tensor],
    dy: &Tensor,
    actual: &[Vec<f64>],
    tolerance: f64,
) {
    const STEP: f64 = 1e-4;
    let (operands, slopes) = (values(tensors), dy.values());
    let loss = |operand: usize, at: usize, step: f64| -> f64 {
        let mut operands = operands.clone();
        operands[operand][at] += step;
        forward(extents, &operands)[0].iter().zip(&slopes).map(|(state, slope)| state * slope).sum()
    };
    for (operand, actual) in actual.iter().enumerate() {
        assert_eq!(actual.len(), operands[operand].len());
        assert!(actual.iter().all(|gradient| gradient.is_finite()), "gradient of operand {operand}");
        let step = (actual.len() / 25).max(1);
        for at in (0..actual.len()).step_by(step) {
            let expected = (loss(operand, at, STEP) - loss(operand, at, -STEP)) / (2.0 * STEP);
            let what = format!("gradient of operand {operand} at {at} of {extents:?}");
            assert_close(&[actual[at]], &[expected], tolerance, &what);
        }
    }
}

#[test]
fn gradients_are_the_limits_of_differences() {
    for dtype in FLOATS {
        for extents in CASES.into_iter().take(5) {
            let [batch, time, ..] = extents;
            let hidden = extents[3];
            let (narrow, wide) = ([batch, time, hidden], [batch, time, 4 * hidden]);
            let dy = Random::new(9).tensor(dtype, &narrow);
            // States and gates that were rounded, and sums over batch and time.
            let tolerance = 40.0 * unit(dtype) + 200.0 * unit(dtype.accumulator()) + 1e-7;

            let tensors = operands(dtype, extents, 4);
            let results = naive_lstm(extents, &values(&tensors));
            let tensor = |index: usize, dims: &[usize]| Tensor::new(dtype, dims, results[index].clone());
            let [states, gates, cells] = [tensor(0, &narrow), tensor(1, &wide), tensor(2, &narrow)];
            let [x, input_weight, hidden_weight, _, first_hidden, first_cell] = &tensors[..] else {
                unreachable!()
            };
            let reads =
                [x, input_weight, hidden_weight, first_hidden, first_cell, &states, &gates, &cells, &dy];
            let dims = operand_dims(extents, 4);
            let writes: Vec<(DType, &[usize])> = dims.iter().map(|dims| (dtype, &dims[..])).collect();
            let actual = run(|reads, _| prepare_grad::<Lstm>(reads), &reads, &writes, &[]);
            check_gradients(naive_lstm, extents, &tensors, &dy, &actual, tolerance);

            let tensors = operands(dtype, extents, 3);
            let results = naive_gru(extents, &values(&tensors));
            let tensor = |index: usize, dims: &[usize]| Tensor::new(dtype, dims, results[index].clone());
            let [states, gates] = [tensor(0, &narrow), tensor(1, &wide)];
            let [x, input_weight, hidden_weight, _, _, first] = &tensors[..] else { unreachable!() };
            let reads = [x, input_weight, hidden_weight, first, &states, &gates, &dy];
            let dims = operand_dims(extents, 3);
            let writes: Vec<(DType, &[usize])> = dims.iter().map(|dims| (dtype, &dims[..])).collect();
            let actual = run(|reads, _| prepare_grad::<Gru>(reads), &reads, &writes, &[]);
            check_gradients(naive_gru, extents, &tensors, &dy, &actual, tolerance);
        }
    }
}

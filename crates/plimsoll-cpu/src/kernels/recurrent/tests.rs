//! Recurrent layers and their gradients.

use crate::testing::*;
use plimsoll_graph::{DType, Op};

/// Batch, time, input and hidden extents.
const CASES: [[usize; 4]; 6] =
    [[2, 0, 3, 4], [1, 1, 1, 1], [2, 3, 4, 5], [3, 1, 2, 17], [17, 6, 3, 33], [2, 4, 9, 270]];

/// The operands of a layer with weights of `gates` gates: biases and states as many as it has.
fn operands(dtype: DType, [batch, time, input, hidden]: [usize; 4], gates: usize) -> [Tensor; 6] {
    let mut numbers = Numbers::new(hidden as u64);
    let (bias, state) = (vec![gates * hidden], vec![batch, hidden]);
    let middle = if gates == 3 { bias.clone() } else { state.clone() };
    // Weights such that a unit's sums stay of the order of one however many units there are.
    let scale = 2.0 / (hidden as f64).sqrt();
    [
        (vec![batch, time, input], 1.0),
        (vec![input, gates * hidden], 1.0),
        (vec![hidden, gates * hidden], scale),
        (bias, 1.0),
        (middle, 1.0),
        (state, 1.0),
    ]
    .map(|(dims, scale)| {
        let count = dims.iter().product();
        Tensor::new(dtype, &dims, (0..count).map(|_| numbers.float() * scale).collect())
    })
}

#[test]
fn states_and_gates_follow_the_formulas() {
    for dtype in FLOATS {
        for extents in CASES {
            // A half is rounded at every step, and the roundings add up over the steps.
            let tolerance = 8.0 * unit(dtype) + 64.0 * unit(dtype.accumulator());
            check(&Op::Lstm, &operands(dtype, extents, 4).each_ref(), &[], &[tolerance; 3]);
            check(&Op::Gru, &operands(dtype, extents, 3).each_ref(), &[], &[tolerance; 2]);
        }
    }
}

#[test]
fn gradients_follow_the_formulas() {
    for dtype in FLOATS {
        for extents in CASES {
            let [batch, time, _, hidden] = extents;
            let dy = Numbers::new(9).tensor(dtype, &[batch, time, hidden]);
            // States and gates that were rounded, and sums over batch and time.
            let tolerance = 40.0 * unit(dtype) + 200.0 * unit(dtype.accumulator()) + 1e-7;
            let results = |op: &Op, reads: &[&Tensor]| -> Vec<Tensor> {
                let results = reference(op, reads).into_iter().zip([1, 4, 1]);
                results
                    .map(|(values, width)| Tensor::new(dtype, &[batch, time, width * hidden], values))
                    .collect()
            };
            let layer = operands(dtype, extents, 4);
            let forward = results(&Op::Lstm, &layer.each_ref());
            let [x, input_weight, hidden_weight, _, hidden_state, cell] = &layer;
            let [states, gates, cells] = &forward[..] else { unreachable!() };
            let reads = [x, input_weight, hidden_weight, hidden_state, cell, states, gates, cells, &dy];
            check(&Op::LstmGrad, &reads, &[], &[tolerance; 6]);

            let layer = operands(dtype, extents, 3);
            let forward = results(&Op::Gru, &layer.each_ref());
            let [x, input_weight, hidden_weight, _, _, first] = &layer;
            let reads = [x, input_weight, hidden_weight, first, &forward[0], &forward[1], &dy];
            check(&Op::GruGrad, &reads, &[], &[tolerance; 6]);
        }
    }
}

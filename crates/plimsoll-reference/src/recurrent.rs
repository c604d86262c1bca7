//! Recurrent layers, one sequence and one moment at a time.

use crate::Tensor;
use plimsoll_graph::op::Unary;

/// `bias + v · matrix`, for a matrix of `bias.len()` columns.
fn affine(v: &[f64], matrix: &Tensor, bias: &[f64]) -> Vec<f64> {
    (0..bias.len()).map(|j| bias[j] + (0..v.len()).map(|i| v[i] * matrix.at(&[i, j])).sum::<f64>()).collect()
}

/// `matrix · v`: the gradient of the left factor of a product whose gradient is `v`.
fn transposed(matrix: &Tensor, v: &[f64]) -> Vec<f64> {
    (0..matrix.shape[0]).map(|i| (0..v.len()).map(|j| matrix.at(&[i, j]) * v[j]).sum()).collect()
}

/// Adds the outer product of `a` and `b` to a matrix.
fn add_outer(matrix: &mut [f64], a: &[f64], b: &[f64]) {
    for i in 0..a.len() {
        for j in 0..b.len() {
            matrix[i * b.len() + j] += a[i] * b[j];
        }
    }
}

fn add(to: &mut [f64], from: &[f64]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
}

/// The vector at one moment of one sequence in `[batch, time, width]`.
fn moment(x: &Tensor, sequence: usize, time: usize) -> &[f64] {
    let width = x.shape[2];
    &x.data[(sequence * x.shape[1] + time) * width..][..width]
}

/// The vector before a moment: the first state, then what was computed.
fn before<'a>(first: &'a Tensor, states: &'a Tensor, sequence: usize, time: usize) -> &'a [f64] {
    if time == 0 { first_state(first, sequence) } else { moment(states, sequence, time - 1) }
}

fn first_state(first: &Tensor, sequence: usize) -> &[f64] {
    let width = first.shape[1];
    &first.data[sequence * width..][..width]
}

/// Operands: x, w, u, bias, first hidden, first cell.
///
/// i, f, o = sigmoid and g = tanh of x w + h u + bias; c′ = f c + i g; h′ = o tanh c′.
pub(crate) fn lstm(operands: &[&Tensor]) -> Vec<Vec<f64>> {
    let [x, w, u, bias, first_hidden, first_cell] = std::array::from_fn(|i| operands[i]);
    let width = first_hidden.shape[1];
    let (mut hiddens, mut gates, mut cells) = (vec![], vec![], vec![]);
    for sequence in 0..x.shape[0] {
        let mut hidden = first_state(first_hidden, sequence).to_vec();
        let mut cell = first_state(first_cell, sequence).to_vec();
        for time in 0..x.shape[1] {
            let from_input = affine(moment(x, sequence, time), w, &bias.data);
            let sums = affine(&hidden, u, &from_input);
            let gate = |which: usize, j: usize| sums[which * width + j];
            for j in 0..width {
                let (input, forget, output) = (sigmoid(gate(0, j)), sigmoid(gate(1, j)), sigmoid(gate(3, j)));
                cell[j] = forget * cell[j] + input * gate(2, j).tanh();
                hidden[j] = output * cell[j].tanh();
            }
            for (j, &sum) in sums.iter().enumerate() {
                gates.push(if j / width == 2 { sum.tanh() } else { sigmoid(sum) });
            }
            hiddens.extend(&hidden);
            cells.extend(&cell);
        }
    }
    vec![hiddens, gates, cells]
}

/// Operands: x, w, u, first hidden, first cell, hiddens, gates, cells, upstream.
pub(crate) fn lstm_grad(operands: &[&Tensor]) -> Vec<Vec<f64>> {
    let [x, w, u, first_hidden, first_cell, hiddens, gates, cells, upstream] =
        std::array::from_fn(|i| operands[i]);
    let width = first_hidden.shape[1];
    let mut dx = vec![0.0; x.data.len()];
    let (mut dw, mut du, mut dbias) =
        (vec![0.0; w.data.len()], vec![0.0; u.data.len()], vec![0.0; 4 * width]);
    let (mut dfirst_hidden, mut dfirst_cell) = (vec![], vec![]);
    for sequence in 0..x.shape[0] {
        let (mut dhidden, mut dcell) = (vec![0.0; width], vec![0.0; width]);
        for time in (0..x.shape[1]).rev() {
            let gate = moment(gates, sequence, time);
            let cell = moment(cells, sequence, time);
            let hidden_before = before(first_hidden, hiddens, sequence, time);
            let cell_before = before(first_cell, cells, sequence, time);
            add(&mut dhidden, moment(upstream, sequence, time));
            let mut dsums = vec![0.0; 4 * width];
            for j in 0..width {
                let [input, forget, new, output] = [0, 1, 2, 3].map(|which| gate[which * width + j]);
                let tanh = cell[j].tanh();
                dcell[j] += dhidden[j] * output * (1.0 - tanh * tanh);
                dsums[j] = dcell[j] * new * input * (1.0 - input);
                dsums[width + j] = dcell[j] * cell_before[j] * forget * (1.0 - forget);
                dsums[2 * width + j] = dcell[j] * input * (1.0 - new * new);
                dsums[3 * width + j] = dhidden[j] * tanh * output * (1.0 - output);
                dcell[j] *= forget;
            }
            let from = (sequence * x.shape[1] + time) * x.shape[2];
            dx[from..][..x.shape[2]].copy_from_slice(&transposed(w, &dsums));
            add_outer(&mut dw, moment(x, sequence, time), &dsums);
            add_outer(&mut du, hidden_before, &dsums);
            add(&mut dbias, &dsums);
            dhidden = transposed(u, &dsums);
        }
        dfirst_hidden.extend(dhidden);
        dfirst_cell.extend(dcell);
    }
    vec![dx, dw, du, dbias, dfirst_hidden, dfirst_cell]
}

/// Operands: x, w, u, input bias, hidden bias, first hidden.
///
/// With a = x w + input bias and b = h u + hidden bias: r, z = sigmoid(a + b), n = tanh(a + r b),
/// h′ = (1 − z) n + z h.
pub(crate) fn gru(operands: &[&Tensor]) -> Vec<Vec<f64>> {
    let [x, w, u, input_bias, hidden_bias, first_hidden] = std::array::from_fn(|i| operands[i]);
    let width = first_hidden.shape[1];
    let (mut hiddens, mut gates) = (vec![], vec![]);
    for sequence in 0..x.shape[0] {
        let mut hidden = first_state(first_hidden, sequence).to_vec();
        for time in 0..x.shape[1] {
            let a = affine(moment(x, sequence, time), w, &input_bias.data);
            let b = affine(&hidden, u, &hidden_bias.data);
            let mut gate = vec![0.0; 4 * width];
            for j in 0..width {
                let [new, update] = [2 * width + j, width + j];
                let r = sigmoid(a[j] + b[j]);
                let z = sigmoid(a[update] + b[update]);
                let n = (a[new] + r * b[new]).tanh();
                hidden[j] = (1.0 - z) * n + z * hidden[j];
                for (which, value) in [r, z, n, b[new]].into_iter().enumerate() {
                    gate[which * width + j] = value;
                }
            }
            hiddens.extend(&hidden);
            gates.extend(gate);
        }
    }
    vec![hiddens, gates]
}

/// Operands: x, w, u, first hidden, hiddens, gates, upstream.
pub(crate) fn gru_grad(operands: &[&Tensor]) -> Vec<Vec<f64>> {
    let [x, w, u, first_hidden, hiddens, gates, upstream] = std::array::from_fn(|i| operands[i]);
    let width = first_hidden.shape[1];
    let mut dx = vec![0.0; x.data.len()];
    let (mut dw, mut du) = (vec![0.0; w.data.len()], vec![0.0; u.data.len()]);
    let (mut dinput_bias, mut dhidden_bias) = (vec![0.0; 3 * width], vec![0.0; 3 * width]);
    let mut dfirst_hidden = vec![];
    for sequence in 0..x.shape[0] {
        let mut dhidden = vec![0.0; width];
        for time in (0..x.shape[1]).rev() {
            let gate = moment(gates, sequence, time);
            let hidden_before = before(first_hidden, hiddens, sequence, time);
            add(&mut dhidden, moment(upstream, sequence, time));
            let (mut da, mut db) = (vec![0.0; 3 * width], vec![0.0; 3 * width]);
            for j in 0..width {
                let [r, z, n, b] = [0, 1, 2, 3].map(|which| gate[which * width + j]);
                let dn = dhidden[j] * (1.0 - z) * (1.0 - n * n);
                let dz = dhidden[j] * (hidden_before[j] - n) * z * (1.0 - z);
                let dr = dn * b * r * (1.0 - r);
                for (which, (to_a, to_b)) in [(dr, dr), (dz, dz), (dn, dn * r)].into_iter().enumerate() {
                    da[which * width + j] = to_a;
                    db[which * width + j] = to_b;
                }
                dhidden[j] *= z;
            }
            let from = (sequence * x.shape[1] + time) * x.shape[2];
            dx[from..][..x.shape[2]].copy_from_slice(&transposed(w, &da));
            add_outer(&mut dw, moment(x, sequence, time), &da);
            add_outer(&mut du, hidden_before, &db);
            add(&mut dinput_bias, &da);
            add(&mut dhidden_bias, &db);
            add(&mut dhidden, &transposed(u, &db));
        }
        dfirst_hidden.extend(dhidden);
    }
    vec![dx, dw, du, dinput_bias, dhidden_bias, dfirst_hidden]
}

fn sigmoid(x: f64) -> f64 {
    Unary::Sigmoid.value(x)
}

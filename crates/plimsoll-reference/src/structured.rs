//! Softmax, cross-entropy and the norms, by their textbook formulas.

use crate::Tensor;
use crate::elementwise::larger;
use crate::movement::arg_max;
use crate::products::dot;

/// The largest, and the logarithm of the sum of exponentials relative to it.
fn log_sum(row: &[f64]) -> [f64; 2] {
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, larger);
    if largest == f64::NEG_INFINITY {
        return [largest, 0.0];
    }
    [largest, row.iter().map(|v| (v - largest).exp()).sum::<f64>().ln()]
}

pub(crate) fn log_softmax(x: &Tensor) -> Vec<f64> {
    let row = |row: &[f64]| {
        let [largest, log] = log_sum(row);
        row.iter().map(|v| v - largest - log).collect::<Vec<f64>>()
    };
    x.data.chunks(x.row().max(1)).flat_map(row).collect()
}

pub(crate) fn softmax(x: &Tensor) -> Vec<f64> {
    log_softmax(x).iter().map(|v| v.exp()).collect()
}

pub(crate) fn cross_entropy(logits: &Tensor, labels: &Tensor) -> Vec<Vec<f64>> {
    let rows = || logits.data.chunks(logits.row());
    let sums: Vec<[f64; 2]> = rows().map(log_sum).collect();
    let loss = |((row, &label), [largest, log]): ((&[f64], &f64), &[f64; 2])| match label {
        label if label < 0.0 => 0.0,
        label => row.get(label as usize).map_or(f64::NAN, |logit| log - (logit - largest)),
    };
    vec![rows().zip(&labels.data).zip(&sums).map(loss).collect(), sums.concat()]
}

pub(crate) fn cross_entropy_grad(logits: &Tensor, labels: &Tensor, sums: &Tensor, u: &Tensor) -> Vec<f64> {
    let classes = logits.row();
    let mut dx = vec![0.0; logits.data.len()];
    for (n, &label) in labels.data.iter().enumerate() {
        for class in 0..classes {
            let (largest, log) = (sums.data[2 * n], sums.data[2 * n + 1]);
            let probability = (logits.data[n * classes + class] - largest - log).exp();
            let hit = f64::from(class as f64 == label);
            dx[n * classes + class] = match label {
                label if label < 0.0 => 0.0,
                label if label >= classes as f64 => f64::NAN,
                _ => (probability - hit) * u.data[n],
            };
        }
    }
    dx
}

/// The ops that it stands for, one after another.
pub(crate) fn projected_cross_entropy(transpose_weight: bool, operands: &[&Tensor]) -> Vec<Vec<f64>> {
    let [x, weight, labels, u] = [0, 1, 2, 3].map(|i| operands[i]);
    let classes = weight.shape[if transpose_weight { 0 } else { 1 }];
    let shape = x.shape.with(1, classes);
    let logits = Tensor::rounded(shape, x.dtype, dot(false, transpose_weight, x, weight, &shape));
    let [loss, sums] = cross_entropy(&logits, labels).try_into().expect("a loss and its sums");
    let sums = Tensor::rounded(x.shape.with(1, 2), u.dtype, sums);
    let dlogits = Tensor::rounded(shape, x.dtype, cross_entropy_grad(&logits, labels, &sums, u));
    let dweight = match transpose_weight {
        true => dot(true, false, &dlogits, x, &weight.shape),
        false => dot(true, false, x, &dlogits, &weight.shape),
    };
    let dx = dot(false, !transpose_weight, &dlogits, weight, &x.shape);
    vec![loss, arg_max(1, &logits, &labels.shape), dx, dweight]
}

/// How the elements of a tensor are grouped by a norm: the group and the channel of each.
#[derive(Clone, Copy)]
enum Groups {
    /// One group for each row, of all its channels.
    Rows,
    /// One group for each channel, over all rows.
    Channels,
}

impl Groups {
    fn of(self, position: usize, channels: usize) -> usize {
        match self {
            Groups::Rows => position / channels,
            Groups::Channels => position % channels,
        }
    }

    fn count(self, x: &Tensor) -> usize {
        match self {
            Groups::Rows => x.data.len() / x.row().max(1),
            Groups::Channels => x.row(),
        }
    }

    /// For each group, the mean of `value` over its elements.
    fn means(self, x: &Tensor, value: impl Fn(usize) -> f64) -> Vec<f64> {
        let mut sums = vec![0.0; self.count(x)];
        for position in 0..x.data.len() {
            sums[self.of(position, x.row())] += value(position);
        }
        let members = x.data.len() as f64 / sums.len() as f64;
        sums.iter().map(|sum| sum / members).collect()
    }
}

/// Mean and biased variance of each group.
fn statistics(groups: Groups, x: &Tensor) -> [Vec<f64>; 2] {
    let mean = groups.means(x, |i| x.data[i]);
    let variance = groups.means(x, |i| (x.data[i] - mean[groups.of(i, x.row())]).powi(2));
    [mean, variance]
}

/// γ (x − mean) / deviation + β
fn normalise(
    groups: Groups,
    x: &Tensor,
    gamma: &Tensor,
    beta: &Tensor,
    mean: &[f64],
    reciprocal: &[f64],
) -> Vec<f64> {
    let element = |i: usize| {
        let (group, channel) = (groups.of(i, x.row()), i % x.row());
        gamma.data[channel] * (x.data[i] - mean[group]) * reciprocal[group] + beta.data[channel]
    };
    (0..x.data.len()).map(element).collect()
}

/// With n the normalised x and g = γ u: dx = (g − mean g − n mean(g n)) / deviation, dγ = Σ u n, dβ = Σ u.
fn normalise_grad(
    groups: Groups,
    x: &Tensor,
    gamma: &Tensor,
    mean: &[f64],
    reciprocal: &[f64],
    u: &Tensor,
) -> Vec<Vec<f64>> {
    let channels = x.row();
    let group = |i: usize| groups.of(i, channels);
    let n = |i: usize| (x.data[i] - mean[group(i)]) * reciprocal[group(i)];
    let g = |i: usize| gamma.data[i % channels] * u.data[i];
    let mean_g = groups.means(x, g);
    let mean_gn = groups.means(x, |i| g(i) * n(i));
    let dx = |i: usize| (g(i) - mean_g[group(i)] - n(i) * mean_gn[group(i)]) * reciprocal[group(i)];
    let (mut dgamma, mut dbeta) = (vec![0.0; channels], vec![0.0; channels]);
    for i in 0..x.data.len() {
        dgamma[i % channels] += u.data[i] * n(i);
        dbeta[i % channels] += u.data[i];
    }
    vec![(0..x.data.len()).map(dx).collect(), dgamma, dbeta]
}

fn reciprocal_deviation(variance: &[f64], epsilon: f64) -> Vec<f64> {
    variance.iter().map(|v| 1.0 / (v + epsilon).sqrt()).collect()
}

pub(crate) fn layer_norm(epsilon: f64, x: &Tensor, gamma: &Tensor, beta: &Tensor) -> Vec<Vec<f64>> {
    let [mean, variance] = statistics(Groups::Rows, x);
    let reciprocal = reciprocal_deviation(&variance, epsilon);
    vec![normalise(Groups::Rows, x, gamma, beta, &mean, &reciprocal), mean, reciprocal]
}

pub(crate) fn layer_norm_grad(
    x: &Tensor,
    gamma: &Tensor,
    mean: &Tensor,
    reciprocal: &Tensor,
    u: &Tensor,
) -> Vec<Vec<f64>> {
    normalise_grad(Groups::Rows, x, gamma, &mean.data, &reciprocal.data, u)
}

pub(crate) fn batch_norm(epsilon: f64, x: &Tensor, gamma: &Tensor, beta: &Tensor) -> Vec<Vec<f64>> {
    let [mean, variance] = statistics(Groups::Channels, x);
    let reciprocal = reciprocal_deviation(&variance, epsilon);
    vec![normalise(Groups::Channels, x, gamma, beta, &mean, &reciprocal), mean, variance]
}

pub(crate) fn batch_moments(epsilon: f64, x: &Tensor) -> Vec<Vec<f64>> {
    let [mean, variance] = statistics(Groups::Channels, x);
    let reciprocal = reciprocal_deviation(&variance, epsilon);
    vec![mean, variance, reciprocal]
}

pub(crate) fn batch_norm_grad(
    epsilon: f64,
    x: &Tensor,
    gamma: &Tensor,
    mean: &Tensor,
    variance: &Tensor,
    u: &Tensor,
) -> Vec<Vec<f64>> {
    let reciprocal = reciprocal_deviation(&variance.data, epsilon);
    normalise_grad(Groups::Channels, x, gamma, &mean.data, &reciprocal, u)
}

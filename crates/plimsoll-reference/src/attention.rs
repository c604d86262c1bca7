//! Scaled dot-product attention, one query at a time.

use crate::Tensor;
use crate::tensor::offset;
use plimsoll_graph::op::Attention;

/// The queries that attention is evaluated for, and the keys each sees.
struct Walk<'a> {
    attention: &'a Attention,
    q: &'a Tensor,
    k: &'a Tensor,
}

impl Walk<'_> {
    /// Calls `visit` with batch, head and position of every query.
    fn queries(&self, mut visit: impl FnMut(usize, usize, usize)) {
        for batch in 0..self.q.shape[0] {
            for head in 0..self.q.shape[2] {
                (0..self.q.shape[1]).for_each(|query| visit(batch, head, query));
            }
        }
    }

    /// How many keys a query sees, from the first on.
    fn visible(&self, query: usize) -> usize {
        let (queries, keys) = (self.q.shape[1], self.k.shape[1]);
        let last = query + keys.saturating_sub(queries);
        if self.attention.causal { keys.min(last + 1) } else { keys }
    }

    fn width(&self) -> usize {
        self.q.shape[3]
    }

    fn score(&self, batch: usize, head: usize, query: usize, key: usize) -> f64 {
        let q = |i| self.q.at(&[batch, query, head, i]);
        let k = |i| self.k.at(&[batch, key, head, i]);
        self.attention.scale * (0..self.width()).map(|i| q(i) * k(i)).sum::<f64>()
    }
}

pub(crate) fn forward(attention: &Attention, q: &Tensor, k: &Tensor, v: &Tensor) -> Vec<Vec<f64>> {
    let walk = Walk { attention, q, k };
    let mut out = vec![0.0; q.data.len()];
    let mut log_sums = vec![];
    walk.queries(|batch, head, query| {
        let scores: Vec<f64> =
            (0..walk.visible(query)).map(|key| walk.score(batch, head, query, key)).collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let log_sum = largest + scores.iter().map(|s| (s - largest).exp()).sum::<f64>().ln();
        for (key, score) in scores.iter().enumerate() {
            for i in 0..walk.width() {
                let probability = (score - log_sum).exp();
                out[offset(&q.shape, &[batch, query, head, i])] += probability * v.at(&[batch, key, head, i]);
            }
        }
        log_sums.push(log_sum);
    });
    vec![out, log_sums]
}

/// Operands: q, k, v, output, log-sum, u. With probabilities p and d = Σ u · output of a query:
/// dv = Σ p u; the score's gradient is s = p (u · v − d); dq = scale Σ s k and dk = scale Σ s q.
pub(crate) fn backward(attention: &Attention, x: &[&Tensor]) -> Vec<Vec<f64>> {
    let [q, k, v, output, log_sums, u] = std::array::from_fn(|i| x[i]);
    let walk = Walk { attention, q, k };
    let (mut dq, mut dk, mut dv) =
        (vec![0.0; q.data.len()], vec![0.0; k.data.len()], vec![0.0; v.data.len()]);
    walk.queries(|batch, head, query| {
        let at_query = |i| [batch, query, head, i];
        let d: f64 = (0..walk.width()).map(|i| u.at(&at_query(i)) * output.at(&at_query(i))).sum();
        for key in 0..walk.visible(query) {
            let at_key = |i| [batch, key, head, i];
            let probability =
                (walk.score(batch, head, query, key) - log_sums.at(&[batch, head, query])).exp();
            let inner: f64 = (0..walk.width()).map(|i| u.at(&at_query(i)) * v.at(&at_key(i))).sum();
            let score = probability * (inner - d);
            for i in 0..walk.width() {
                dv[offset(&v.shape, &at_key(i))] += probability * u.at(&at_query(i));
                dq[offset(&q.shape, &at_query(i))] += attention.scale * score * k.at(&at_key(i));
                dk[offset(&k.shape, &at_key(i))] += attention.scale * score * q.at(&at_query(i));
            }
        }
    });
    vec![dq, dk, dv]
}

/// The same, of each position one after another: those of q, of k and of v.
pub(crate) fn joint_backward(attention: &Attention, x: &[&Tensor]) -> Vec<Vec<f64>> {
    let parts = backward(attention, x);
    let row = x[0].shape[2] * x[0].shape[3];
    let positions = x[0].shape[0] * x[0].shape[1];
    let rows = (0..positions).flat_map(|at| parts.iter().map(move |part| &part[at * row..(at + 1) * row]));
    vec![rows.flatten().copied().collect()]
}

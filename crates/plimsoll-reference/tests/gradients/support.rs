//! Numbers to differentiate at, and the comparison with central differences.

use plimsoll_graph::{DType, Graph, Result, ValueId, gradients};
use plimsoll_reference::{Tensor, evaluate};
use std::collections::HashMap;

/// A stream of numbers that a seed determines.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.word() % end as u64) as usize
    }

    /// A tensor of numbers from a range.
    pub(crate) fn range(&mut self, shape: &[usize], low: f64, high: f64) -> Tensor {
        let data = (0..shape.iter().product()).map(|_| self.between(low, high)).collect();
        Tensor::new(shape, DType::F64, data)
    }

    /// A tensor of numbers between −1 and 1.
    pub(crate) fn tensor(&mut self, shape: &[usize]) -> Tensor {
        self.range(shape, -1.0, 1.0)
    }

    /// A tensor of numbers with magnitudes from 0.2 to 2.
    pub(crate) fn away_from_zero(&mut self, shape: &[usize]) -> Tensor {
        let mut x = self.range(shape, 0.2, 2.0);
        x.data.iter_mut().for_each(|v| *v = if self.word() & 1 == 0 { *v } else { -*v });
        x
    }

    /// Tensors whose numbers, all together, are at least 0.05 apart.
    pub(crate) fn apart<const N: usize>(&mut self, shape: &[usize]) -> [Tensor; N] {
        let count: usize = shape.iter().product();
        let mut numbers: Vec<f64> =
            (0..N * count).map(|i| 0.1 * i as f64 + self.between(0.0, 0.05)).collect();
        for i in (1..numbers.len()).rev() {
            numbers.swap(i, self.below(i + 1));
        }
        std::array::from_fn(|i| Tensor::new(shape, DType::F64, numbers[i * count..][..count].to_vec()))
    }

    /// Integers from a range.
    pub(crate) fn integers(&mut self, shape: &[usize], low: i64, high: i64) -> Tensor {
        let data = (0..shape.iter().product())
            .map(|_| (low + self.below((high - low) as usize) as i64) as f64)
            .collect();
        Tensor::new(shape, DType::I64, data)
    }
}

/// The inputs of a graph, one for each tensor, and their values.
pub(crate) fn inputs(g: &mut Graph, tensors: &[Tensor]) -> (Vec<ValueId>, HashMap<ValueId, Tensor>) {
    let ids: Vec<ValueId> = tensors.iter().map(|t| g.input("x", &t.shape, t.dtype).unwrap()).collect();
    let values = ids.iter().copied().zip(tensors.iter().cloned()).collect();
    (ids, values)
}

/// Checks the gradients of Σ seed · y, for the y that `build` makes from inputs, against central differences
/// for every float input. The seed is random, so that every element of the Jacobian counts.
pub(crate) fn check(tensors: &[Tensor], build: impl FnOnce(&mut Graph, &[ValueId]) -> Result<ValueId>) {
    let mut g = Graph::new();
    let (ids, mut values) = inputs(&mut g, tensors);
    let y = build(&mut g, &ids).unwrap();
    assert_eq!(g.dtype(y), DType::F64);
    let seed = g.input("seed", &g.shape(y), DType::F64).unwrap();
    let seeds = Numbers(g.len() as u64).tensor(&g.shape(y));
    values.insert(seed, seeds.clone());
    let wrt: Vec<ValueId> = ids.iter().copied().filter(|&id| g.dtype(id).is_float()).collect();
    let found = gradients(&mut g, &[(y, Some(seed))], &wrt).unwrap();
    let found: Vec<ValueId> = found.into_iter().map(|id| id.expect("a path")).collect();
    let analytic = evaluate(&g, &values, &found);

    for (&id, analytic) in wrt.iter().zip(&analytic) {
        assert_eq!((analytic.shape, analytic.dtype), (g.shape(id), g.dtype(id)));
        for i in 0..analytic.data.len() {
            let x = values[&id].data[i];
            let mut along = |h: f64| {
                values.get_mut(&id).unwrap().data[i] = x + h;
                let y = &evaluate(&g, &values, &[y])[0];
                y.data.iter().zip(&seeds.data).map(|(y, seed)| y * seed).sum::<f64>()
            };
            // Differences at h and 2h, combined so that the error is of fourth order.
            let h = 1e-4;
            let numeric = (8.0 * (along(h) - along(-h)) - (along(2.0 * h) - along(-2.0 * h))) / (12.0 * h);
            along(0.0);
            let error = (numeric - analytic.data[i]).abs();
            assert!(
                error <= 1e-7 * (1.0 + numeric.abs()),
                "{}: element {i} of {}: rule {}, differences {numeric}",
                g.op(y).name(),
                g.ty(id),
                analytic.data[i]
            );
        }
    }
}

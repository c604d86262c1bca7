//! The op in guarded memory, with the gradient of x in the place of x or not. That it has the bits of the ops it
//! stands for is tested from outside.

use crate::testing::*;
use plimsoll_graph::{DType, Op};

#[test]
fn workspace_is_as_declared_and_the_gradient_may_replace_x() {
    for dtype in FLOATS {
        for (rows, width, classes, chunk) in [(0, 2, 3, 4), (1, 1, 1, 1), (70, 9, 33, 8), (600, 5, 20, 300)] {
            for transposed in [false, true] {
                let mut numbers = Numbers::new((rows + classes) as u64);
                let x = numbers.tensor(dtype, &[rows, width]);
                let shape = if transposed { [classes, width] } else { [width, classes] };
                let weight = numbers.tensor(dtype, &shape);
                // The loss of a negative label is none.
                let label = |row: usize| match row {
                    0 if rows > 1 => -1.0,
                    _ => numbers.below(classes) as f64,
                };
                let labels = Tensor::new(DType::I64, &[rows], (0..rows).map(label).collect());
                let slope = numbers.tensor(dtype.accumulator(), &[rows]);
                let op = Op::ProjectedCrossEntropy { transpose_weight: transposed, chunk };
                let [apart, in_place] = [&[][..], &[(2, 0)]]
                    .map(|in_place| run_op(&op, &[&x, &weight, &labels, &slope], in_place));
                assert_eq!(apart, in_place);
            }
        }
    }
}

//! The op in guarded memory, with the gradient of x in the place of x or not. That it has the bits of the ops it
//! stands for is tested from outside.

use super::prepare;
use crate::kernels::testing::*;
use plimsoll_graph::DType;

#[test]
fn workspace_is_as_declared_and_the_gradient_may_replace_x() {
    for dtype in FLOATS {
        for (rows, width, classes, chunk) in [(0, 2, 3, 4), (1, 1, 1, 1), (70, 9, 33, 8), (600, 5, 20, 300)] {
            for transposed in [false, true] {
                let mut random = Random::new((rows + classes) as u64);
                let x = random.tensor(dtype, &[rows, width]);
                let shape = if transposed { [classes, width] } else { [width, classes] };
                let weight = random.tensor(dtype, &shape);
                // The loss of a negative label is none.
                let label = |row: usize| match row {
                    0 if rows > 1 => -1.0,
                    _ => random.below(classes) as f64,
                };
                let labels = Tensor::new(DType::I64, &[rows], (0..rows).map(label).collect());
                let slope = random.tensor(dtype.accumulator(), &[rows]);
                let results: [(DType, &[usize]); 4] = [
                    (dtype.accumulator(), &[rows]),
                    (DType::I32, &[rows]),
                    (dtype, &[rows, width]),
                    (dtype, &shape),
                ];
                let [apart, in_place] = [&[][..], &[(2, 0)]].map(|in_place| {
                    let prepare = |reads: &[_], _: &[_]| prepare(transposed, chunk, reads);
                    run(prepare, &[&x, &weight, &labels, &slope], &results, in_place)
                });
                assert_eq!(apart, in_place);
            }
        }
    }
}

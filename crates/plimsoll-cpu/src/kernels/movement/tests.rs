//! Borders and concatenations against indices worked out one by one.

use super::{prepare_concat, prepare_pad};
use crate::testing::scalar::Scalar;
use crate::testing::{self, Numbers, operand};
use plimsoll_graph::op::Pad;
use plimsoll_graph::{DType, Shape};
use proptest::prelude::*;

fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).expect("a small shape")
}

fn contents(dtype: DType, elements: usize, numbers: &mut Numbers) -> Vec<u8> {
    (0..elements).flat_map(|_| Scalar::random(dtype, numbers).store(dtype)).collect()
}

fn index(mut at: usize, dims: &[usize]) -> Vec<usize> {
    let mut index = vec![0; dims.len()];
    for axis in (0..dims.len()).rev() {
        index[axis] = at % dims[axis];
        at /= dims[axis];
    }
    index
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_border_surrounds_the_elements(seed: u64) {
        let mut numbers = Numbers::new(seed);
        let rank = numbers.below(5);
        let dtype = numbers.pick(&DType::ALL);
        let mut some = |choices: &[usize]| (0..rank).map(|_| numbers.pick(choices)).collect::<Vec<usize>>();
        let dims = some(&[0, 1, 2, 3, 5, 9, 20]);
        let (before, after, between) = (some(&[0, 0, 1, 4]), some(&[0, 0, 1, 3]), some(&[0, 0, 0, 1, 2]));
        let output: Vec<usize> = (0..rank)
            .map(|a| before[a] + dims[a] + dims[a].saturating_sub(1) * between[a] + after[a])
            .collect();
        let value = numbers.pick(&[0.0, 1.0, -2.5, f64::NEG_INFINITY]);
        let bytes = contents(dtype, dims.iter().product(), &mut numbers);
        let pad = Pad { before: shape(&before), after: shape(&after), between: shape(&between), value };
        let routine = prepare_pad(&pad, &[operand(0, dtype, &dims)], &[operand(1, dtype, &output)]);
        let elements: usize = output.iter().product();
        let threads = 1 + numbers.below(3);
        let size = elements * dtype.size();
        let result = testing::run(&*routine, std::slice::from_ref(&bytes), &[size], &[], threads).remove(0);
        let border = Scalar::Double(value).cast(DType::F64, dtype);
        for element in 0..elements {
            let mut source = Some(0);
            for (axis, i) in index(element, &output).into_iter().enumerate() {
                let step = between[axis] + 1;
                let inside = i >= before[axis] && (i - before[axis]) % step == 0 && (i - before[axis]) / step < dims[axis];
                source = source.filter(|_| inside).map(|s| s * dims[axis] + (i - before[axis]) / step);
            }
            let expected = source.map_or(border, |s| Scalar::load(&bytes, s, dtype));
            prop_assert!(Scalar::load(&result, element, dtype).is_same(expected));
        }
    }

    #[test]
    fn operands_follow_one_another(seed: u64) {
        let mut numbers = Numbers::new(seed);
        let rank = 1 + numbers.below(4);
        let axis = numbers.below(rank);
        let dtype = numbers.pick(&DType::ALL);
        let mut dims: Vec<usize> = (0..rank).map(|_| numbers.pick(&[1, 2, 3, 7, 20])).collect();
        let extents: Vec<usize> =
            (0..1 + numbers.below(4)).map(|_| numbers.pick(&[0, 1, 2, 5, 300, 3000])).collect();
        let mut reads = vec![];
        let mut all = vec![];
        for (i, &extent) in extents.iter().enumerate() {
            dims[axis] = extent;
            reads.push(operand(i, dtype, &dims));
            all.push(contents(dtype, dims.iter().product(), &mut numbers));
        }
        dims[axis] = extents.iter().sum();
        let elements: usize = dims.iter().product();
        let routine = prepare_concat(axis, &reads);
        let threads = 1 + numbers.below(3);
        let result = testing::run(&*routine, &all, &[elements * dtype.size()], &[], threads).remove(0);
        for element in 0..elements {
            let mut index = index(element, &dims);
            let mut from = 0;
            while index[axis] >= extents[from] {
                index[axis] -= extents[from];
                from += 1;
            }
            let source = index.iter().zip(reads[from].view.shape.iter()).fold(0, |at, (i, extent)| at * extent + i);
            let expected = Scalar::load(&all[from], source, dtype);
            prop_assert!(Scalar::load(&result, element, dtype).is_same(expected));
        }
    }
}

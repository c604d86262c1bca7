//! Reductions against a combination one by one, and against those of fused loops.

use super::{ArgMax, Reduce};
use crate::kernels::fused;
use crate::simd::Isa;
use crate::testing::scalar::{Scalar, combine, identity, reduce_row};
use crate::testing::{self, Numbers, operand};
use plimsoll_graph::op::Reduction;
use plimsoll_graph::program::{Instruction, Level, Loop};
use plimsoll_graph::{Axes, DType, Shape, program};
use proptest::prelude::*;

fn contents(dtype: DType, elements: usize, numbers: &mut Numbers) -> Vec<u8> {
    (0..elements).flat_map(|_| Scalar::random(dtype, numbers).store(dtype)).collect()
}

/// Some extents and the axes to reduce over.
fn dims_and_axes(numbers: &mut Numbers) -> (Vec<usize>, Vec<usize>) {
    let rank = 1 + numbers.below(5);
    let mut dims: Vec<usize> = (0..rank).map(|_| numbers.pick(&[1, 2, 3, 5, 8, 17, 40])).collect();
    if numbers.chance(50) {
        let axis = numbers.below(rank);
        dims[axis] = numbers.pick(&[1, 100, 257, 600, 1000, 4096, 4100, 20_000]);
    }
    while dims.iter().product::<usize>() > 60_000 {
        let axis = numbers.below(rank);
        dims[axis] = (dims[axis] / 2).max(1);
    }
    let axes = (0..rank).filter(|_| numbers.chance(50)).collect();
    (dims, axes)
}

/// The reduction on every instruction set and several numbers of threads, which must not differ.
fn reduced(kind: Reduction, dims: &[usize], axes: &[usize], dtype: DType, bytes: &[u8]) -> Vec<u8> {
    let set = Axes::new(axes, dims.len()).expect("axes of the shape");
    let kept: usize = (0..dims.len()).filter(|axis| !axes.contains(axis)).map(|axis| dims[axis]).product();
    let shape = Shape::new(dims).expect("a small shape");
    let mut results = vec![];
    for isa in testing::isas() {
        let routine = Reduce::new(kind, set, &shape, dtype, false, isa);
        for threads in 1..=3 {
            results.extend(testing::run(&routine, &[bytes.to_vec()], &[kept * dtype.size()], &[], threads));
        }
    }
    let same =
        |i: usize, other: &[u8]| Scalar::load(&results[0], i, dtype).is_same(Scalar::load(other, i, dtype));
    for other in &results {
        assert!((0..kept).all(|i| same(i, other)), "instruction sets or threads differ");
    }
    results.remove(0)
}

/// The elements of each result, in order.
fn members(dims: &[usize], axes: &[usize]) -> Vec<Vec<usize>> {
    let kept: usize = (0..dims.len()).filter(|a| !axes.contains(a)).map(|a| dims[a]).product();
    let mut members = vec![vec![]; kept];
    for element in 0..dims.iter().product() {
        let (mut rest, mut result, mut step) = (element, 0, 1);
        for axis in (0..dims.len()).rev() {
            if !axes.contains(&axis) {
                result += rest % dims[axis] * step;
                step *= dims[axis];
            }
            rest /= dims[axis];
        }
        members[result].push(element);
    }
    members
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_reduction_over_any_axes_combines_their_elements(seed: u64) {
        let mut numbers = Numbers::new(seed);
        let (dims, axes) = dims_and_axes(&mut numbers);
        let dtype = numbers.pick(&DType::ALL);
        let kind = numbers.pick(&[Reduction::Sum, Reduction::Max, Reduction::Min]);
        let bytes = contents(dtype, dims.iter().product(), &mut numbers);
        let result = reduced(kind, &dims, &axes, dtype, &bytes);
        for (i, members) in members(&dims, &axes).into_iter().enumerate() {
            let elements: Vec<Scalar> = members.iter().map(|&e| Scalar::load(&bytes, e, dtype)).collect();
            let got = Scalar::load(&result, i, dtype);
            if kind == Reduction::Sum && dtype.is_float() {
                // Any order is as good as another, within what rounding can do.
                let exact: f64 = elements.iter().map(|&e| Scalar::to_f64(e)).sum();
                let magnitude: f64 = elements.iter().map(|&e| Scalar::to_f64(e).abs()).sum();
                let epsilon = match dtype {
                    DType::F64 => 1e-13,
                    DType::F32 => 1e-5,
                    DType::F16 => 1e-3,
                    _ => 8e-3,
                };
                let close = (Scalar::to_f64(got) - exact).abs() <= epsilon * magnitude + 1e-30;
                // Where elements add up to more than the type holds, partial sums may pass its largest number on
                // either side, and meet as infinities of opposite signs.
                let largest = match dtype {
                    DType::F16 => 65_504.0,
                    DType::F64 => f64::MAX,
                    _ => f64::from(f32::MAX),
                };
                let overflows = !Scalar::to_f64(got).is_finite() && magnitude >= 0.99 * largest;
                prop_assert!(close || overflows || exact.is_nan() && Scalar::to_f64(got).is_nan(), "{got:?} for {exact}");
            } else {
                let nothing = identity(kind, dtype);
                let expected = elements.iter().fold(nothing, |a, &b| combine(kind, a, b, dtype));
                prop_assert!(Scalar::to_f64(got) == Scalar::to_f64(expected) || Scalar::to_f64(got).is_nan() && Scalar::to_f64(expected).is_nan());
            }
        }
    }

    #[test]
    fn a_reduction_over_the_last_axes_has_the_order_of_rows(seed: u64) {
        let mut numbers = Numbers::new(seed);
        let (dims, _) = dims_and_axes(&mut numbers);
        let row_axes = 1 + numbers.below(dims.len());
        let axes: Vec<usize> = (dims.len() - row_axes..dims.len()).collect();
        let dtype = numbers.pick(&[DType::F32, DType::BF16, DType::F64]);
        let bytes = contents(dtype, dims.iter().product(), &mut numbers);
        let alone = reduced(Reduction::Sum, &dims, &axes, dtype, &bytes);
        let lead = &dims[..dims.len() - row_axes];
        for (i, members) in members(&dims, &axes).into_iter().enumerate() {
            let row: Vec<Scalar> = members.iter().map(|&e| Scalar::load(&bytes, e, dtype)).collect();
            prop_assert!(Scalar::load(&alone, i, dtype).is_same(reduce_row(Reduction::Sum, &row, dtype)));
        }
        let instruction = |scalar, level| Instruction { scalar, dtype, level };
        let body = Loop {
            domain: Shape::new(&dims).expect("a small shape"),
            row_axes,
            instructions: vec![
                instruction(program::Scalar::Load { read: 0 }, Level::Element),
                instruction(program::Scalar::Reduce(Reduction::Sum, 0), Level::Row),
            ],
            stores: vec![1],
        };
        let routine = fused::prepare(&body, &[operand(0, dtype, &dims)], &[operand(1, dtype, lead)], &[]);
        let size = lead.iter().product::<usize>() * dtype.size();
        let fused = testing::run(&*routine, &[bytes], &[size], &[], 2).remove(0);
        for i in 0..size / dtype.size() {
            prop_assert!(Scalar::load(&fused, i, dtype).is_same(Scalar::load(&alone, i, dtype)));
        }
    }

    #[test]
    fn the_first_of_the_largest_elements_is_found(seed: u64) {
        let mut numbers = Numbers::new(seed);
        let (dims, _) = dims_and_axes(&mut numbers);
        let axis = numbers.below(dims.len());
        let dtype = numbers.pick(&DType::ALL);
        let bytes = contents(dtype, dims.iter().product(), &mut numbers);
        let isa = numbers.pick(&Isa::ALL);
        let isa = if isa.is_available() { isa } else { Isa::Portable };
        let routine = ArgMax::new(axis, &Shape::new(&dims).expect("a small shape"), dtype, isa);
        let results: usize = dims.iter().product::<usize>() / dims[axis];
        let threads = 1 + numbers.below(3);
        let found = testing::run(&routine, std::slice::from_ref(&bytes), &[results * 4], &[], threads).remove(0);
        for (i, members) in members(&dims, &[axis]).into_iter().enumerate() {
            let value = |at: usize| Scalar::to_f64(Scalar::load(&bytes, members[at], dtype));
            let mut best = 0;
            for at in 1..members.len() {
                if value(at) > value(best) || value(at).is_nan() && !value(best).is_nan() {
                    best = at;
                }
            }
            prop_assert!(Scalar::to_f64(Scalar::load(&found, i, DType::I32)) == best as f64);
        }
    }
}

#[test]
fn the_sum_of_nothing_is_zero() {
    let result = reduced(Reduction::Sum, &[3, 0, 2], &[1], DType::BF16, &[]);
    assert_eq!(result, [0; 12]);
}

use crate::support::{Numbers, check, inputs};
use plimsoll_graph::op::{Binary, Op, Reduction, Unary};
use plimsoll_graph::{Axes, DType, Graph, gradients};
use plimsoll_reference::{Tensor, evaluate};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn functions_of_one_element_match_differences(seed: u64, n in 1..8usize) {
        let mut numbers = Numbers(seed);
        for &function in Unary::ALL.iter().filter(|function| !function.is_flat()) {
            // Differences are blind to a corner at zero, and coarse where a function is steep.
            let (low, high) = function.tried();
            let x = match function {
                Unary::Abs | Unary::Relu => numbers.away_from_zero(&[n]),
                _ => numbers.range(&[n], if low > 0.0 { 0.3 } else { low / 2.0 }, high / 2.0),
            };
            check(&[x], |g, x| g.apply(Op::Unary(function), &[x[0]]));
        }
    }

    #[test]
    fn functions_of_two_elements_match_differences(seed: u64, n in 1..6usize) {
        let mut numbers = Numbers(seed);
        for function in [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div] {
            let operands = [numbers.tensor(&[2, n]), numbers.away_from_zero(&[2, n])];
            check(&operands, |g, x| g.apply(Op::Binary(function), x));
        }
        for function in [Binary::Max, Binary::Min] {
            check(&numbers.apart::<2>(&[2, n]), |g, x| g.apply(Op::Binary(function), x));
        }
        let operands = [numbers.range(&[n], 0.3, 2.0), numbers.range(&[n], -2.0, 2.0)];
        check(&operands, |g, x| g.pow(x[0], x[1]));
    }

    #[test]
    fn functions_of_two_elements_match_differences_where_they_broadcast(seed: u64, n in 1..4usize) {
        let mut numbers = Numbers(seed);
        check(&[numbers.tensor(&[3, 1, n]), numbers.tensor(&[2, 1])], |g, x| g.mul(x[0], x[1]));
        check(&[numbers.tensor(&[n]), numbers.away_from_zero(&[2, n])], |g, x| g.div(x[0], x[1]));
    }

    #[test]
    fn select_matches_differences(seed: u64, n in 1..8usize) {
        let mut numbers = Numbers(seed);
        let operands = [numbers.integers(&[n], 0, 2), numbers.tensor(&[n]), numbers.tensor(&[n])];
        check(&operands, |g, x| {
            let condition = g.cast(x[0], DType::Bool)?;
            g.select(condition, x[1], x[2])
        });
    }
}

/// The gradients of Σ y for inputs of these numbers.
fn slopes<const N: usize>(tensors: [Tensor; N], op: Op) -> [Vec<f64>; N] {
    let mut g = Graph::new();
    let (ids, values) = inputs(&mut g, &tensors);
    let y = g.apply(op, &ids).unwrap();
    let found = gradients(&mut g, &[(y, None)], &ids).unwrap();
    let found: Vec<_> = found.into_iter().map(Option::unwrap).collect();
    let found = evaluate(&g, &values, &found);
    std::array::from_fn(|i| found[i].data.clone())
}

fn row(data: &[f64]) -> Tensor {
    Tensor::new(&[data.len()], DType::F64, data.to_vec())
}

#[test]
fn equal_operands_of_a_maximum_get_half_each() {
    for function in [Binary::Max, Binary::Min] {
        let found = slopes([row(&[1.0, 2.0]), row(&[1.0, 2.0])], Op::Binary(function));
        assert_eq!(found, [[0.5, 0.5], [0.5, 0.5]]);
    }
}

#[test]
fn slopes_at_kinks_are_zero() {
    assert_eq!(slopes([row(&[0.0])], Op::Unary(Unary::Abs)), [[0.0]]);
    assert_eq!(slopes([row(&[0.0])], Op::Unary(Unary::Relu)), [[0.0]]);
}

#[test]
fn no_gradient_vanishes_beside_nan() {
    let nan = || row(&[f64::NAN]);
    let vanishes = |slopes: &[f64]| slopes.contains(&0.0);
    for &function in Unary::ALL.iter().filter(|function| !function.is_flat()) {
        let [found] = slopes([nan()], Op::Unary(function));
        assert!(!vanishes(&found), "{function:?} {found:?}");
    }
    for function in Binary::ALL {
        for operands in [[nan(), row(&[2.0])], [row(&[2.0]), nan()]] {
            let found = slopes(operands, Op::Binary(function));
            assert!(!found.iter().any(|slopes| vanishes(slopes)), "{function:?} {found:?}");
        }
    }
    for kind in [Reduction::Max, Reduction::Min] {
        let x = row(&[1.0, f64::NAN, 2.0]);
        let [found] = slopes([x], Op::Reduce { kind, axes: Axes::new(&[0], 1).unwrap(), wide: false });
        assert!(!vanishes(&found), "{kind:?} {found:?}");
    }
}

#[test]
fn powers_have_finite_slopes_at_zero() {
    let bases = row(&[0.0, 0.0, 0.0, -2.0]);
    let exponents = row(&[0.0, 1.0, 2.0, 2.0]);
    let [for_base, for_exponent] = slopes([bases, exponents], Op::Binary(Binary::Pow));
    assert_eq!(for_base, [0.0, 1.0, 0.0, -4.0]);
    assert_eq!(for_exponent[..3], [0.0, 0.0, 0.0]);
}

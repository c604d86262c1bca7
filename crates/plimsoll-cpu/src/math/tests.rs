//! The functions of single precision against double precision, over all of their operands' range.

use super::{double, single, ulps::ulps};
use std::f32::consts::{FRAC_1_SQRT_2, SQRT_2};

/// Numbers from all over the line, evenly among the representable ones, and those where something changes.
fn samples(step: usize) -> impl Iterator<Item = f32> {
    let special = [0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN];
    let around = [0.625, 0.927_734_4, FRAC_1_SQRT_2, SQRT_2, 16.0, 88.722_84, -87.336_54, -103.972_08, 1.0];
    let around =
        around.into_iter().flat_map(|x: f32| (0..64).map(move |i| f32::from_bits(x.to_bits() - 32 + i)));
    let subnormal = (0..64).map(f32::from_bits);
    (0..=u32::MAX).step_by(step).map(f32::from_bits).chain(special).chain(around).chain(subnormal)
}

const STEP: usize = 1021;

fn check(function: fn(f32) -> f32, exact: fn(f64) -> f64, limit: f64) {
    for x in samples(STEP) {
        let (got, expected) = (function(x), exact(f64::from(x)));
        let error = ulps(got, expected);
        assert!(error <= limit, "of {x:e}: {got:e} is {error:.2} ulp from {expected:e}");
    }
}

#[test]
fn exp_is_within_one_ulp() {
    check(single::exp, double::exp, 1.0);
}

#[test]
fn ln_is_within_one_ulp() {
    check(single::ln, double::ln, 1.0);
}

#[test]
fn softplus_is_within_two_ulp() {
    check(single::softplus, double::softplus, 2.0);
}

#[test]
fn tanh_is_within_two_ulp() {
    check(single::tanh, double::tanh, 2.0);
}

#[test]
fn sigmoid_is_within_three_ulp() {
    check(single::sigmoid, double::sigmoid, 3.0);
}

#[test]
fn erf_is_within_two_ulp() {
    check(single::erf, double::erf, 2.0);
}

#[test]
fn sin_is_within_one_ulp() {
    check(single::sin, double::sin, 1.0);
}

#[test]
fn cos_is_within_one_ulp() {
    check(single::cos, double::cos, 1.0);
}

#[test]
fn gelu_is_within_four_ulp() {
    check(single::gelu, double::gelu, 4.0);
}

#[test]
fn floor_is_exact() {
    check(single::floor, f64::floor, 0.0);
}

#[test]
fn gelu_slope_is_within_four_ulp_or_a_rounding_error_of_one() {
    for x in samples(STEP) {
        let (got, expected) = (single::gelu_slope(x), double::gelu_slope(f64::from(x)));
        let near = (-1.3..-0.4).contains(&x) && (f64::from(got) - expected).abs() < f64::from(f32::EPSILON);
        let error = ulps(got, expected);
        assert!(near || error <= 4.0, "of {x:e}: {got:e} is {error:.2} ulp from {expected:e}");
    }
}

#[test]
fn pow_is_within_one_ulp() {
    let special =
        [0.0, 1.0, 2.0, 3.0, 0.5, 1.5, 10.0, 1e-3, 1e30, 1e-40, 16_777_215.0, f32::INFINITY, f32::NAN];
    let special = || special.into_iter().chain(special.map(|x| -x));
    let bases = || samples(STEP * 1021).chain(special());
    let exponents = || (0..400).map(|i| (i as f32 - 200.3) * 0.37).chain(special());
    for x in bases() {
        for y in exponents() {
            let (got, expected) = (single::pow(x, y), f64::from(x).powf(f64::from(y)));
            let error = ulps(got, expected);
            assert!(error <= 1.0, "{x:e} to the {y:e}: {got:e} is {error:.2} ulp from {expected:e}");
        }
    }
}

#[test]
fn functions_keep_the_sign_of_zero() {
    for function in [single::sin, single::tanh, single::erf, single::gelu, single::floor] {
        assert!(function(-0.0).is_sign_negative() && function(0.0).is_sign_positive());
    }
}

#[test]
fn double_precision_functions_have_their_limits_at_infinity() {
    let (low, high) = (f64::NEG_INFINITY, f64::INFINITY);
    assert_eq!(
        [double::gelu(low), double::gelu_slope(low), double::sigmoid(low), double::softplus(low)],
        [0.0; 4]
    );
    assert_eq!([double::gelu(high), double::softplus(high)], [high; 2]);
    assert_eq!(
        [double::gelu_slope(high), double::sigmoid(high), double::tanh(high), double::erf(high)],
        [1.0; 4]
    );
    assert_eq!([double::floor(-0.5), double::floor(1e300), double::floor(2.5)], [-1.0, 1e300, 2.0]);
}

#[test]
fn double_precision_functions_agree_with_correctly_rounded_results() {
    let function = |name: &str| -> fn(f64) -> f64 {
        match name {
            "exp" => double::exp,
            "ln" => double::ln,
            "softplus" => double::softplus,
            "sin" => double::sin,
            "cos" => double::cos,
            "tanh" => double::tanh,
            "sigmoid" => double::sigmoid,
            "erf" => double::erf,
            "gelu" => double::gelu,
            "gelu_slope" => double::gelu_slope,
            other => panic!("the table has a function {other}"),
        }
    };
    for line in include_str!("exact.txt").lines() {
        let [name, x, exact] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let number = |bits| f64::from_bits(u64::from_str_radix(bits, 16).unwrap());
        let (x, exact) = (number(x), number(exact));
        let got = function(name)(x);
        // Where it crosses zero the slope is a difference, and its error that of a quarter.
        let size = if name == "gelu_slope" && (-1.3..-0.4).contains(&x) { 0.25 } else { exact.abs() };
        let error = (got - exact).abs() / (size.next_up() - size);
        // In the tail, the rounding of one operation counts x² times: still a millionth of an ulp of single precision.
        let limit = if name == "gelu" { 256.0 } else { 4.0 };
        assert!(error <= limit, "{name} of {x:e}: {got:e} is {error} ulp from {exact:e}");
    }
}

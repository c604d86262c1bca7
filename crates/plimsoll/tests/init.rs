//! What parameters hold before the first step.

mod common;

use common::trace;
use plimsoll::layers::*;
use plimsoll::{DType, Init, Initial};
use proptest::prelude::*;

fn deviation(init: Init, shape: &[usize]) -> f64 {
    match init.initial(shape).unwrap() {
        Initial::Normal { deviation } => deviation,
        Initial::Uniform { limit } => limit / 3f64.sqrt(),
        other => panic!("{other:?} is not random"),
    }
}

#[test]
fn scaled_initialisers_follow_the_fans() {
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
    for (init, of_dense) in [
        (Init::GlorotUniform, (2.0 / 500.0f64).sqrt()),
        (Init::GlorotNormal, (2.0 / 500.0f64).sqrt()),
        (Init::HeUniform, (2.0 / 300.0f64).sqrt()),
        (Init::HeNormal, (2.0 / 300.0f64).sqrt()),
        (Init::LecunNormal, (1.0 / 300.0f64).sqrt()),
    ] {
        close(deviation(init, &[300, 200]), of_dense);
    }
    // A filter sees its area times its channels.
    close(deviation(Init::HeNormal, &[3, 3, 16, 32]), (2.0 / 144.0f64).sqrt());
    close(deviation(Init::GlorotNormal, &[3, 3, 16, 32]), (2.0 / (144.0 + 288.0f64)).sqrt());
    close(deviation(Init::HeNormal, &[50]), (2.0 / 50.0f64).sqrt());
}

#[test]
fn layers_start_with_their_documented_defaults() {
    let initial = |layer: &dyn Layer, shape: &[usize], dtype| -> Vec<Initial> {
        trace(layer, shape, dtype).unwrap().1.states.iter().map(|s| s.initial).collect()
    };
    let (zero, one) = (Initial::Constant(0.0), Initial::Constant(1.0));
    let glorot = Initial::Uniform { limit: (6.0f64 / 8.0).sqrt() };
    assert_eq!(initial(&Dense::new(5), &[2, 3], DType::F32), [glorot, zero]);
    let he = Initial::Normal { deviation: (2.0f64 / 9.0).sqrt() };
    assert_eq!(initial(&Conv2d::new(5, [3, 3]), &[1, 4, 4, 1], DType::F32), [he, zero]);
    assert_eq!(initial(&BatchNorm::new(), &[2, 3], DType::F32), [one, zero, zero, one]);
    let table = Initial::Normal { deviation: 0.02 };
    assert_eq!(initial(&Embedding::new(9, 3), &[2], DType::I32), [table]);
    let half = Initial::Uniform { limit: 0.5 };
    assert_eq!(initial(&Lstm::new(4), &[2, 5, 3], DType::F32), [half, half, zero]);
    assert_eq!(initial(&Dense::new(5).init(Init::Ones), &[2, 3], DType::F32), [one, zero]);
}

#[test]
fn numbers_that_cannot_be_are_refused() {
    for init in [Init::Normal(-1.0), Init::Uniform(f64::NAN), Init::Constant(f64::INFINITY)] {
        let error = trace(Dense::new(5).init(init), &[2, 3], DType::F32).unwrap_err().to_string();
        assert!(error.contains("must be finite") && error.contains("`weight`"), "{error}");
    }
}

#[test]
fn what_is_no_initialiser_is_answered_with_those_there_are() {
    for text in ["glorot", "normal(", "normal(x)", "zeros(1)", "normal(1) ", ""] {
        let error = text.parse::<Init>().unwrap_err().to_string();
        assert!(error.contains("glorot_uniform"), "{error}");
    }
}

proptest! {
    #[test]
    fn an_initialiser_is_read_back_from_its_name(which in 0usize..10, number in any::<f64>()) {
        prop_assume!(!number.is_nan());
        let init = [
            Init::Zeros,
            Init::Ones,
            Init::Constant(number),
            Init::GlorotUniform,
            Init::GlorotNormal,
            Init::HeUniform,
            Init::HeNormal,
            Init::LecunNormal,
            Init::Normal(number),
            Init::Uniform(number),
        ][which];
        prop_assert_eq!(init.to_string().parse::<Init>().unwrap(), init);
    }
}

//! Numbers where it is easy to lose them: means, large offsets, confident predictions, NaN; each eagerly and compiled,
//! against double precision.

use plimsoll::layers::{Dropout, Layer, model};
use plimsoll::{
    Array, Clip, Context, DType, Eager, Input, Optimizer, Precision, Result, Run, Schedule, Tensor, loss, op,
};
use proptest::prelude::*;

/// What a function of one tensor gives eagerly; what a compiled step gives must be the same bits.
fn both(
    shape: &[usize],
    values: &[f32],
    f: impl Fn(&Tensor) -> Result<Tensor> + Clone + 'static,
) -> Vec<f32> {
    let eager = Eager::new().unwrap();
    let y = f(&eager.tensor(shape, values).unwrap()).unwrap();
    let mut run = Run::builder()
        .step("f", [Input::new("x", shape, DType::F32)], move |_, inputs| Ok([("y", f(inputs.get("x")?)?)]))
        .compile()
        .unwrap();
    let x = Array::new(shape, values).unwrap();
    let compiled: Vec<f32> = run.step("f", &[("x", &x)]).unwrap()["y"].to_vec().unwrap();
    let eager = y.to_vec().unwrap();
    assert!(eager.iter().zip(&compiled).all(|(a, b)| a.to_bits() == b.to_bits()), "{eager:?} {compiled:?}");
    compiled
}

/// The gradient of the sum of a function of one tensor, eagerly.
fn gradient(shape: &[usize], values: &[f32], f: impl Fn(&Tensor) -> Result<Tensor>) -> Vec<f32> {
    let eager = Eager::new().unwrap();
    let x = eager.tensor(shape, values).unwrap();
    let mut tape = eager.tape();
    let y = f(&x).unwrap().sum_all().unwrap();
    tape.gradient(&y, &[&x]).unwrap()[0].to_vec().unwrap()
}

fn relative(actual: f32, expected: f64) -> f64 {
    (f64::from(actual) - expected).abs() / expected.abs()
}

#[test]
fn the_mean_of_ones_is_one() {
    for count in (1..200).chain([1000, 4097, 50_001]) {
        assert_eq!(both(&[count], &vec![1.0; count], |x| x.mean_all()), [1.0], "{count}");
    }
    assert_eq!(both(&[41, 3], &[1.0; 123], |x| x.mean(&[0])), [1.0; 3]);
}

#[test]
fn the_mean_of_nothing_is_nan() {
    let found = both(&[2, 0], &[], |x| x.mean(&[1]));
    assert!(found.len() == 2 && found.iter().all(|mean| mean.is_nan()), "{found:?}");
}

#[test]
fn a_mean_in_half_precision_is_rounded_once() {
    for dtype in [DType::F16, DType::BF16] {
        // Their sum is beyond the largest number of f16, and rounds by hundreds in bf16.
        let sixes = vec![6.0; 2 * 112 * 112];
        for axes in [&[0][..], &[1], &[0, 1]] {
            let f = move |x: &Tensor| x.cast(dtype)?.mean(axes)?.cast(DType::F32);
            let means = both(&[112, 224], &sixes, f);
            assert!(means.iter().all(|&mean| mean == 6.0), "{dtype} {axes:?}: {:?}", &means[..1]);
        }
    }
}

#[test]
fn the_sum_of_a_million_numbers_is_as_exact_as_a_few_roundings() {
    let values: Vec<f32> = (0..1 << 20).map(|i| 0.1 + (i % 1013) as f32 * 1e-3).collect();
    let exact: f64 = values.iter().map(|&x| f64::from(x)).sum();
    for shape in [&[1 << 20][..], &[1 << 10, 1 << 10], &[1 << 19, 2]] {
        let sum = both(shape, &values, |x| x.sum_all())[0];
        assert!(relative(sum, exact) < 3e-7, "{shape:?}: {:e}", relative(sum, exact));
    }
    let columns = both(&[1 << 19, 2], &values, |x| x.sum(&[0]));
    let exact: f64 = values.iter().step_by(2).map(|&x| f64::from(x)).sum();
    assert!(relative(columns[0], exact) < 3e-7, "{:e}", relative(columns[0], exact));
}

#[test]
fn binary_cross_entropy_is_exact_where_a_model_is_confident() {
    let logits = [-80.0, -15.0, -10.0, -1.0, 0.0, 1.0, 10.0, 15.0, 80.0];
    for target in [0.0, 1.0] {
        let each = move |x: &Tensor| {
            let shape = x.shape();
            let each: Vec<Tensor> = (0..shape[0])
                .map(|i| {
                    let x = x.slice(0, i..i + 1)?;
                    loss::bce_from_logits(&x, &x.full_like(target)?)?.reshape(&[1])
                })
                .collect::<Result<_>>()?;
            Tensor::concat(&each.iter().collect::<Vec<_>>(), 0)
        };
        let (losses, slopes) = (both(&[9], &logits, each), gradient(&[9], &logits, each));
        for (i, x) in logits.iter().map(|&x| f64::from(x)).enumerate() {
            // ln(1 + e^±x), whose slope is ± the other's probability.
            let signed = if target == 1.0 { -x } else { x };
            let expected = signed.max(0.0) + (-signed.abs()).exp().ln_1p();
            let slope = (if target == 1.0 { -1.0 } else { 1.0 }) / (1.0 + (-signed).exp());
            assert!(relative(losses[i], expected) < 3e-7, "x {x}, target {target}: {}", losses[i]);
            assert!(relative(slopes[i], slope) < 3e-7, "x {x}, target {target}: {}", slopes[i]);
        }
    }
}

#[test]
fn a_common_offset_of_the_logits_changes_no_bit_of_a_loss_or_its_gradient() {
    let logits: Vec<f32> = (0..64).map(|i| ((i * 29 % 64) as f32 - 32.0) / 8.0).collect();
    let f = |x: &Tensor| {
        let labels = x.slice(1, 0..1)?.reshape(&[4])?.mul_scalar(0.0)?.cast(DType::I32)?;
        loss::sparse_cross_entropy(x, &labels)
    };
    let at = |offset: f32| {
        let logits: Vec<f32> = logits.iter().map(|x| x + offset).collect();
        (both(&[4, 16], &logits, f), gradient(&[4, 16], &logits, f))
    };
    for offset in [128.0, 1024.0, -16384.0] {
        assert_eq!(at(offset), at(0.0), "{offset}");
    }
}

#[test]
fn without_winograd_convolutions_of_integers_are_exact() {
    // Large enough for Winograd's algorithm. The integers of x and of the filter depend on their pixel and channel.
    let (images, taps) = ([8, 16, 16, 16], [3, 3, 16, 16]);
    let integers =
        |len: usize, step: usize| -> Vec<f32> { (0..len).map(|i| (i * step % 61) as f32 - 30.0).collect() };
    let (x, filter) = (integers(8 * 16 * 16 * 16, 7), integers(9 * 16 * 16, 11));
    let expected = |image: usize, y: usize, x_: usize, column: usize| -> f64 {
        let terms = (0..9 * 16).map(|term| {
            let (tap, channel) = (term / 16, term % 16);
            let pixel = (image * 16 + y + tap / 3) * 16 + x_ + tap % 3;
            f64::from(x[pixel * 16 + channel]) * f64::from(filter[term * 16 + column])
        });
        terms.sum()
    };
    let check = |found: &[f32]| {
        for (place, &value) in found.iter().enumerate() {
            let (pixel, column) = (place / 16, place % 16);
            let right = expected(pixel / 196, pixel / 14 % 14, pixel % 14, column);
            assert_eq!(f64::from(value), right, "{place}");
        }
    };
    let eager = Eager::builder().winograd(false).build().unwrap();
    let (a, b) = (eager.tensor(&images, &x).unwrap(), eager.tensor(&taps, &filter).unwrap());
    check(&a.conv2d(&b, op::Conv2d::default()).unwrap().to_vec().unwrap());
    let inputs = [Input::new("x", &images, DType::F32), Input::new("filter", &taps, DType::F32)];
    let mut run = Run::builder()
        .winograd(false)
        .step("conv", inputs, |_, inputs| {
            Ok([("y", inputs.get("x")?.conv2d(inputs.get("filter")?, op::Conv2d::default())?)])
        })
        .compile()
        .unwrap();
    let (a, b) = (Array::new(&images, &x).unwrap(), Array::new(&taps, &filter).unwrap());
    let found: Vec<f32> = run.step("conv", &[("x", &a), ("filter", &b)]).unwrap()["y"].to_vec().unwrap();
    check(&found);
}

#[test]
fn staircase_schedules_drop_at_their_steps() {
    // A parameter that falls by the rate in each step shows it.
    for every in [3, 7, 41, 47, 49, 97] {
        let optimizer = Optimizer::sgd(Schedule::steps(1.0, 0.5, every));
        let mut run = Run::builder()
            .step("train", [Input::new("one", &[1], DType::F32)], move |cx, inputs| {
                let w = cx.parameter("w", &[1], plimsoll::Init::Zeros)?;
                let loss = w.mul(inputs.get("one")?)?.sum_all()?;
                cx.minimise(&loss, &optimizer)?;
                Ok([("loss", loss)])
            })
            .compile()
            .unwrap();
        let one = Array::new(&[1], &[1.0f32]).unwrap();
        let mut before = 0.0;
        for step in 0..3 * every {
            run.step("train", &[("one", &one)]).unwrap();
            let now = run.state("w").unwrap().to_vec::<f32>().unwrap()[0];
            assert_eq!(before - now, 0.5f32.powi((step / every) as i32), "every {every}, step {step}");
            before = now;
        }
    }
}

#[test]
fn a_clipped_norm_is_the_same_bits_eagerly_and_compiled() {
    let (features, width) = (33, 257);
    let optimizer = || Optimizer::sgd(1.0).clip(Clip::GlobalNorm(0.5));
    let of = model(move |cx: &Context, x: &Tensor| cx.layer("dense", plimsoll::layers::Dense::new(width), x));
    let x: Vec<f32> = (0..8 * features).map(|i| ((i * 37 % 101) as f32 - 50.0) / 25.0).collect();
    let eager = Eager::new().unwrap();
    let input = eager.tensor(&[8, features], &x).unwrap();
    let mut tape = eager.tape();
    let loss = of.forward(&eager.context(true), &input).unwrap().square().unwrap().mean_all().unwrap();
    let parameters = eager.parameters();
    let gradients = tape.gradient(&loss, &parameters.values().collect::<Vec<_>>()).unwrap();
    let named: Vec<(&str, &Tensor)> = parameters.keys().map(String::as_str).zip(&gradients).collect();
    eager.apply_gradients(&optimizer(), &named).unwrap();
    let sgd = optimizer();
    let mut run = Run::builder()
        .step("train", [Input::new("x", &[8, features], DType::F32)], move |cx, inputs| {
            let loss = of.forward(cx, inputs.get("x")?)?.square()?.mean_all()?;
            cx.minimise(&loss, &sgd)
        })
        .compile()
        .unwrap();
    run.step("train", &[("x", &Array::new(&[8, features], &x).unwrap())]).unwrap();
    for (name, value) in eager.parameters() {
        assert_eq!(value.to_vec().unwrap(), run.state(&name).unwrap().to_vec::<f32>().unwrap(), "{name}");
    }
}

#[test]
fn dropout_scales_by_its_rate_in_every_precision() {
    for (precision, unit) in
        [(Precision::F32, 1e-7), (Precision::Bf16, 1.0 / 256.0), (Precision::F16, 1.0 / 2048.0)]
    {
        let eager = Eager::builder().precision(precision).build().unwrap();
        let x = eager.tensor(&[1000], &[1.0; 1000]).unwrap().cast(precision.compute()).unwrap();
        let kept = Dropout(0.1).forward(&eager.context(true), &x).unwrap();
        let kept = kept.cast(DType::F32).unwrap().to_vec().unwrap();
        let off = |&y: &f32| y != 0.0 && relative(y, 1.0 / 0.9) > unit / 2.0 * 1.01;
        assert!(!kept.iter().any(off), "{precision:?}: {:?}", kept.iter().find(|y| off(y)));
    }
}

#[test]
fn second_derivatives_are_right_or_refused() {
    let eager = Eager::new().unwrap();
    let x = eager.tensor(&[1], &[3.0]).unwrap();
    let mut outer = eager.tape();
    let mut inner = eager.tape();
    let y = x.square().unwrap().mul(&x).unwrap();
    let first = inner.gradient(&y, &[&x]).unwrap().remove(0);
    let second = outer.gradient(&first, &[&x]).unwrap().remove(0);
    assert_eq!((first.to_vec().unwrap(), second.to_vec().unwrap()), (vec![27.0], vec![18.0]));

    let x = eager.tensor(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 7.0]).unwrap();
    let ones = eager.tensor(&[3], &[1.0; 3]).unwrap();
    let mut outer = eager.tape();
    let mut inner = eager.tape();
    let y = x.layer_norm(&ones, &ones, 1e-5).unwrap().square().unwrap().sum_all().unwrap();
    let first = inner.gradient(&y, &[&x]).unwrap().remove(0);
    let error = outer.gradient(&first.square().unwrap().sum_all().unwrap(), &[&x]).unwrap_err();
    assert!(error.to_string().contains("second derivatives of layer_norm are not defined"), "{error}");
}

#[test]
fn a_tape_refuses_tensors_of_another_eager_mode() {
    let (one, two) = (Eager::new().unwrap(), Eager::new().unwrap());
    let (x, other) = (one.tensor(&[1], &[3.0]).unwrap(), two.tensor(&[1], &[5.0]).unwrap());
    let mut tape = one.tape();
    let y = x.square().unwrap();
    assert!(tape.gradient(&y, &[&other]).is_err());
    assert!(x.add(&other).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_moments_of_a_batch_do_not_depend_on_its_offset(seed in 0u32..1000, exponent in 0i32..18, rows in 2usize..400) {
        let offset = 2f32.powi(exponent);
        let noise = |i: usize| ((i as u32).wrapping_mul(2_654_435_761).wrapping_add(seed * 977) >> 8) as f32 / (1 << 24) as f32;
        let values: Vec<f32> = (0..rows * 3).map(|i| offset + noise(i)).collect();
        let variance = move |x: &Tensor| {
            let ones = x.slice(0, 0..1)?.reshape(&[3])?.full_like(1.0)?;
            let [_, _, variance] = x.batch_norm(&ones, &ones, 1e-5)?;
            Ok(variance)
        };
        let found = both(&[rows, 3], &values, variance);
        for (channel, &variance) in found.iter().enumerate() {
            let column: Vec<f64> = values.iter().skip(channel).step_by(3).map(|&x| f64::from(x)).collect();
            let mean = column.iter().sum::<f64>() / rows as f64;
            let expected = column.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / rows as f64;
            prop_assert!((f64::from(variance) - expected).abs() <= 3e-6 * expected + 1e-12,
                "offset {offset}: {variance} against {expected}");
        }
    }
}

#[test]
fn a_last_batch_of_one_sample_leaves_the_running_statistics_as_they_are() {
    let eager = Eager::new().unwrap();
    let norm = plimsoll::layers::BatchNorm::new();
    let see = |values: &[f32]| {
        let x = eager.tensor(&[values.len() / 2, 2], values).unwrap();
        norm.forward(&eager.context(true), &x).unwrap();
        let x = eager.tensor(&[1, 2], &[0.25, 4.0]).unwrap();
        norm.forward(&eager.context(false), &x).unwrap().to_vec().unwrap()
    };
    let before = see(&[1.0, 2.0, 3.0, 5.0, 2.0, 2.5]);
    assert_eq!(see(&[100.0, -100.0]), before);
    assert_ne!(see(&[1.0, 2.0, 3.0, 5.0]), before);
}

/// Logits of five classes by a dense layer, their loss and accuracy, on 12 samples; split into so many parts.
fn labelled(parts: usize) -> Run {
    let inputs = [Input::new("x", &[12, 3], DType::F32), Input::new("labels", &[12], DType::I32)];
    let report = |cx: &Context, inputs: &plimsoll::Inputs| -> Result<[(&'static str, Tensor); 3]> {
        let [x, labels] = inputs.all()?;
        let logits = cx.layer("dense", plimsoll::layers::Dense::new(5), x)?;
        let loss = loss::sparse_cross_entropy(&logits, labels)?;
        Ok([
            ("loss", loss),
            ("accuracy", plimsoll::metric::accuracy(&logits, labels)?),
            ("size", logits.abs()?.mean_all()?),
        ])
    };
    let sgd = Optimizer::sgd(0.5);
    Run::builder()
        .step("train", inputs.clone(), move |cx, inputs| {
            let report = report(cx, inputs)?;
            // A second term, which is a mean over all samples.
            cx.minimise(&report[0].1.add(&report[2].1)?, &sgd)?;
            Ok(report)
        })
        .inference("evaluate", inputs, report)
        .split("train", parts)
        .split("evaluate", parts)
        .compile()
        .unwrap()
}

#[test]
fn labels_that_stand_for_nothing_do_not_count_however_a_batch_is_split() {
    let x: Vec<f32> = (0..36).map(|i| ((i * 11 % 17) as f32 - 8.0) / 4.0).collect();
    let x = Array::new(&[12, 3], &x).unwrap();
    // All of them in one part, none in another.
    let labels = [-1, -1, -1, -7, 0, 4, 2, 1, -1, 3, 3, 0];
    let labels = Array::new(&[12], &labels).unwrap();
    let of = |parts: usize| {
        let mut run = labelled(parts);
        let mut seen = vec![];
        for step in ["train", "evaluate", "train"] {
            let out = run.step(step, &[("x", &x), ("labels", &labels)]).unwrap();
            seen.extend(["loss", "accuracy", "size"].map(|name| out[name].item::<f32>().unwrap()));
        }
        seen.extend(run.state("dense/weight").unwrap().to_vec::<f32>().unwrap());
        seen
    };
    let whole = of(1);
    for parts in [2, 3, 12] {
        for (i, (a, b)) in whole.iter().zip(of(parts)).enumerate() {
            assert!((a - b).abs() < 1e-5, "{parts} parts, {i}: {a} and {b}");
        }
    }
    // Seven labels count.
    assert!([0, 1, 2, 3, 4, 5, 6, 7].map(|right| right as f32 / 7.0).contains(&whole[1]), "{}", whole[1]);
}

#[test]
fn a_batch_without_labels_has_no_loss() {
    let eager = Eager::new().unwrap();
    let logits = eager.tensor(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let labels = eager.integers(&[2], &[-1, -1]).unwrap();
    assert_eq!(loss::sparse_cross_entropy(&logits, &labels).unwrap().to_vec().unwrap(), [0.0]);
}

//! What the built-in sources give, hold and refuse.

use plimsoll_data::{Columns, Dataset, Digits, Element, ErrorKind, Field, Source, Synthetic, digits};
use proptest::prelude::*;

fn read(source: &impl Source, sample: usize, field: usize) -> Vec<u8> {
    let mut bytes = vec![0; source.fields()[field].bytes()];
    source.read(sample, field, &mut bytes).unwrap();
    bytes
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|bytes| f32::from_ne_bytes(bytes.try_into().unwrap())).collect()
}

fn integers(bytes: &[u8]) -> Vec<i32> {
    bytes.chunks_exact(4).map(|bytes| i32::from_ne_bytes(bytes.try_into().unwrap())).collect()
}

proptest! {
    #[test]
    fn columns_give_back_what_was_put_in(values in prop::collection::vec(any::<f32>(), 1..100), width in 1usize..5) {
        let samples = values.len().div_ceil(width);
        let mut padded = values;
        padded.resize(samples * width, 0.0);
        let bytes: Vec<u8> = padded.iter().map(|value| *value as u8).collect();
        let whole: Vec<i32> = padded.iter().map(|value| value.to_bits() as i32).collect();
        let columns = Columns::new()
            .column("f", &[width], padded.clone()).unwrap()
            .column("i", &[width], whole.clone()).unwrap()
            .column("u", &[width], bytes.clone()).unwrap();
        for sample in 0..samples {
            let range = sample * width..(sample + 1) * width;
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&floats(&read(&columns, sample, 0))), bits(&padded[range.clone()]));
            prop_assert_eq!(integers(&read(&columns, sample, 1)), &whole[range.clone()]);
            prop_assert_eq!(read(&columns, sample, 2), &bytes[range]);
        }
    }

    #[test]
    fn synthetic_values_depend_on_the_seed_the_field_and_the_sample(seed: u64, sample in 0usize..1000) {
        let source = |seed| Synthetic::new(2000, seed).normal("a", &[5]).unwrap().normal("b", &[5]).unwrap();
        let value = read(&source(seed), sample, 0);
        prop_assert_eq!(&value, &read(&source(seed), sample, 0));
        prop_assert_ne!(&value, &read(&source(seed.wrapping_add(1)), sample, 0));
        prop_assert_ne!(&value, &read(&source(seed), sample + 1, 0));
        prop_assert_ne!(&value, &read(&source(seed), sample, 1));
    }

    #[test]
    fn the_next_tokens_are_the_tokens_one_later(
        seed: u64, sample in 0usize..100, length in 1usize..50, vocabulary in 1usize..100,
    ) {
        let text = Synthetic::new(100, seed).tokens("tokens", "next", length, vocabulary).unwrap();
        let (tokens, next) = (integers(&read(&text, sample, 0)), integers(&read(&text, sample, 1)));
        prop_assert_eq!(&tokens[1..], &next[..length - 1]);
        prop_assert!(tokens.iter().chain(&next).all(|token| (0..vocabulary as i32).contains(token)));
    }
}

#[test]
fn synthetic_classes_are_uniform() {
    let source = Synthetic::new(10_000, 3).classes("label", 10).unwrap();
    let mut counts = [0; 10];
    for sample in 0..source.samples() {
        counts[integers(&read(&source, sample, 0))[0] as usize] += 1;
    }
    // 1000 ± 30 by chance.
    assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
}

#[test]
fn synthetic_features_are_standard_normal() {
    let source = Synthetic::new(100, 3).normal("features", &[8, 8, 3]).unwrap();
    let values: Vec<f32> = (0..100).flat_map(|sample| floats(&read(&source, sample, 0))).collect();
    let mean = values.iter().sum::<f32>() / values.len() as f32;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f32>() / values.len() as f32;
    assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
}

#[test]
fn synthetic_values_stay_what_they_are() {
    let source = Synthetic::new(10, 42).normal("features", &[3]).unwrap().classes("label", 1000).unwrap();
    assert_eq!(floats(&read(&source, 7, 0)), [-2.4846375, -0.43180418, 0.51048875]);
    assert_eq!(integers(&read(&source, 7, 1)), [434]);
}

#[test]
fn synthetic_data_holds_nothing_however_much_there_is() {
    let source = Synthetic::new(usize::MAX, 0).normal("features", &[1 << 20]).unwrap();
    assert_eq!(source.resident_bytes(), 0);
}

#[test]
fn synthetic_classes_must_fit_an_i32() {
    for classes in [0, 1 << 31] {
        let error = Synthetic::new(1, 0).classes("label", classes).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Field { .. }), "{error}");
    }
}

#[test]
fn the_digits_are_1797_images_with_their_labels() {
    let digits = digits();
    assert_eq!(digits.samples(), 1797);
    let [features, label] = digits.fields() else { panic!("two fields") };
    assert_eq!(features, &Field::new("features", Element::F32, &[8, 8, 1]).unwrap());
    assert_eq!(label, &Field::new("label", Element::I32, &[]).unwrap());
    assert_eq!(digits.resident_bytes(), 1797 * 65);

    // The first image is the zero that begins the UCI file.
    let row = |values: &[u8]| values.iter().map(|&value| f32::from(value) / 16.0).collect::<Vec<_>>();
    let image = floats(&read(&digits, 0, 0));
    assert_eq!(image[..16], row(&[0, 0, 5, 13, 9, 1, 0, 0, 0, 0, 13, 15, 10, 15, 5, 0]));
    let labels: Vec<i32> = (0..10).map(|sample| integers(&read(&digits, sample, 1))[0]).collect();
    assert_eq!(labels, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn the_digits_have_the_known_number_of_each_class() {
    let mut counts = [0; 10];
    for sample in 0..Digits.samples() {
        let pixels = floats(&read(&Digits, sample, 0));
        assert!(pixels.iter().all(|pixel| (0.0..=1.0).contains(pixel)));
        counts[integers(&read(&Digits, sample, 1))[0] as usize] += 1;
    }
    assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
}

#[test]
fn values_that_do_not_divide_into_samples_are_refused() {
    let error = Columns::new().column("features", &[4], vec![0.0; 10]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "field `features`: 10 values do not divide into samples of shape [4], 4 elements each"
    );
}

#[test]
fn columns_of_different_lengths_are_refused() {
    let columns = Columns::new().column("features", &[2], vec![0.0; 10]).unwrap();
    let error = columns.column("label", &[], vec![0; 4]).unwrap_err();
    assert_eq!(error.to_string(), "field `label`: it has 4 samples where `features` has 5");
}

#[test]
fn two_fields_of_one_name_are_refused() {
    let columns = Columns::new().column("x", &[], vec![0; 4]).unwrap();
    let error = columns.column("x", &[], vec![0.0; 4]).unwrap_err();
    assert_eq!(error.to_string(), "field `x`: there already is a field of this name");
    let error = Synthetic::new(4, 0).tokens("x", "x", 3, 3).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Field { .. }), "{error}");
}

#[test]
fn shapes_that_hold_nothing_or_too_much_are_refused() {
    for shape in [&[3, 0][..], &[usize::MAX, 2], &[usize::MAX / 4]] {
        let error = Field::new("x", Element::F32, shape).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Field { .. }), "{error}");
    }
    assert!(Field::new("", Element::F32, &[1]).is_err());
}

#[test]
fn a_data_set_without_samples_or_fields_is_refused() {
    let no_samples = Columns::new().column("x", &[], Vec::<f32>::new()).unwrap();
    for source in [Columns::new(), no_samples] {
        let error = Dataset::new(source).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Empty { .. }), "{error}");
    }
    assert!(Dataset::new(Synthetic::new(0, 0).classes("label", 2).unwrap()).is_err());
}

#[test]
fn more_samples_than_can_be_ordered_are_refused() {
    let error = Dataset::new(Synthetic::new(usize::MAX, 0).classes("label", 2).unwrap()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TooManySamples { .. }), "{error}");
}

#[test]
fn reading_beyond_the_end_is_refused_by_every_source() {
    fn refuses(source: &dyn Source) {
        let bytes = source.fields()[0].bytes();
        let samples = source.samples();
        let kind = |sample, field, bytes| source.read(sample, field, &mut vec![0; bytes]).unwrap_err();
        assert!(matches!(kind(samples, 0, bytes).kind(), ErrorKind::NoSuchSample { .. }));
        assert!(matches!(kind(0, source.fields().len(), bytes).kind(), ErrorKind::NoSuchField { .. }));
        assert!(matches!(kind(0, 0, bytes + 1).kind(), ErrorKind::Buffer { .. }));
        assert!(matches!(kind(0, 0, bytes - 1).kind(), ErrorKind::Buffer { .. }));
    }
    refuses(&digits());
    refuses(&Columns::new().column("x", &[3], vec![0u8; 9]).unwrap());
    refuses(&Synthetic::new(3, 0).normal("x", &[3]).unwrap());
}

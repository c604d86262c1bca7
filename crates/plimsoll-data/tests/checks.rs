//! Looking through the samples first: what would ruin training is found, with its place.

use plimsoll_data::{Columns, Dataset, ErrorKind, Synthetic, digits};
use proptest::prelude::*;

fn features(values: Vec<f32>) -> Dataset {
    Dataset::new(Columns::new().column("features", &[3], values).unwrap()).unwrap()
}

proptest! {
    #[test]
    fn a_value_that_is_not_finite_is_found_wherever_it_is(
        samples in 1usize..60, place: prop::sample::Index, bad in prop::sample::select(vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY]),
    ) {
        let mut values = vec![0.5; samples * 3];
        features(values.clone()).check().unwrap();
        let place = place.index(values.len());
        values[place] = bad;
        let error = features(values).check().unwrap_err();
        let ErrorKind::NotFinite { field, sample, element, .. } = error.kind() else { panic!("{error}") };
        prop_assert_eq!((field.as_str(), *sample, *element), ("features", place / 3, place % 3));
    }

    #[test]
    fn a_label_out_of_range_is_found_wherever_it_is(
        samples in 1usize..60, place: prop::sample::Index, bad in prop_oneof![i32::MIN..0, 10..=i32::MAX],
    ) {
        let mut labels: Vec<i32> = (0..samples as i32).map(|sample| sample % 10).collect();
        let place = place.index(samples);
        labels[place] = bad;
        let dataset = Dataset::new(Columns::new().column("label", &[], labels).unwrap()).unwrap();
        let error = dataset.check_labels("label", 10).unwrap_err();
        let ErrorKind::Label { sample, value, classes, .. } = error.kind() else { panic!("{error}") };
        prop_assert_eq!((*sample, *value, *classes), (place, i64::from(bad), 10));
    }
}

#[test]
fn the_built_in_data_passes_its_checks() {
    let digits = Dataset::new(digits()).unwrap();
    digits.check().unwrap();
    digits.check_labels("label", 10).unwrap();
    let text = Dataset::new(Synthetic::new(100, 0).tokens("tokens", "next", 16, 64).unwrap()).unwrap();
    text.check().unwrap();
    text.check_labels("next", 64).unwrap();
}

#[test]
fn the_errors_say_which_sample_what_value_and_what_to_do() {
    let error = features(vec![0.0, 1.0, 2.0, 3.0, f32::NAN, 5.0]).check().unwrap_err();
    assert_eq!(
        error.to_string(),
        "field `features`, sample 1, element 1 is NaN: one such value makes every weight NaN; remove the sample or \
         replace the value"
    );
    let labels = Columns::new().column("label", &[], vec![0u8, 9, 10]).unwrap();
    let error = Dataset::new(labels).unwrap().check_labels("label", 10).unwrap_err();
    assert_eq!(
        error.to_string(),
        "field `label`, sample 2: the label 10 is outside of 0..10; number the classes from 0, or declare more of them"
    );
}

#[test]
fn in_a_split_the_error_names_the_sample_by_its_number_in_the_source() {
    let mut values = vec![0.0; 300];
    values[3 * 71] = f32::NAN;
    let split = features(values).split(0.5, 9).unwrap();
    let checks = [split.train.check(), split.held_out.check()];
    let [error] = &checks.into_iter().filter_map(Result::err).collect::<Vec<_>>()[..] else {
        panic!("one error")
    };
    assert!(matches!(error.kind(), ErrorKind::NotFinite { sample: 71, .. }), "{error}");
}

#[test]
fn labels_must_be_whole_numbers_of_a_field_that_exists() {
    let dataset = features(vec![0.0; 3]);
    assert!(matches!(dataset.check_labels("features", 2).unwrap_err().kind(), ErrorKind::Field { .. }));
    assert!(matches!(dataset.check_labels("label", 2).unwrap_err().kind(), ErrorKind::NoSuchField { .. }));
}

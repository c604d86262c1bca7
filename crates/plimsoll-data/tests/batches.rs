//! What an epoch's batches promise: every sample once, in an order that the seed and the epoch decide.

use plimsoll_data::{Batch, Columns, Csv, Dataset, Element, ErrorKind, Field, Synthetic};
use proptest::prelude::*;

/// Samples whose only field is their own number.
fn numbered(samples: usize) -> Dataset {
    Dataset::new(Columns::new().column("number", &[], (0..samples as i32).collect()).unwrap()).unwrap()
}

/// The numbers of an epoch's samples, read through a buffer, batch by batch.
fn read_epoch(dataset: &Dataset, batch: usize, seed: Option<u64>, epoch: u64) -> Vec<Vec<i32>> {
    let batches = dataset.batches(batch).unwrap();
    let batches = seed.into_iter().fold(batches, |batches, seed| batches.shuffled(seed));
    let mut buffer = vec![0; batches.buffer_bytes(0)];
    let numbers = |batch: plimsoll_data::Batch<'_>| {
        let written = batch.read(0, &mut buffer).unwrap();
        assert_eq!(written, batch.samples() * 4);
        buffer[..written].chunks(4).map(|bytes| i32::from_ne_bytes(bytes.try_into().unwrap())).collect()
    };
    batches.epoch(epoch).map(numbers).collect()
}

proptest! {
    #[test]
    fn every_epoch_has_every_sample_exactly_once(
        samples in 1usize..400, batch in 1usize..500, seed: u64, epoch: u64,
    ) {
        let mut seen = read_epoch(&numbered(samples), batch, Some(seed), epoch).concat();
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..samples as i32).collect::<Vec<_>>());
    }

    #[test]
    fn all_batches_are_full_but_the_last(samples in 1usize..400, batch in 1usize..500) {
        let dataset = numbered(samples);
        let batches = dataset.batches(batch).unwrap();
        let sizes: Vec<usize> = batches.epoch(0).map(|batch| batch.samples()).collect();
        prop_assert_eq!(sizes.len(), batches.per_epoch());
        prop_assert_eq!(sizes.iter().sum::<usize>(), samples);
        let (last, full) = sizes.split_last().unwrap();
        prop_assert!(full.iter().all(|&size| size == batch));
        prop_assert!((1..=batch).contains(last));
    }

    #[test]
    fn the_seed_and_the_epoch_decide_the_order(samples in 50usize..400, seed: u64, epoch in 0u64..1000) {
        let dataset = numbered(samples);
        let order = |seed, epoch| read_epoch(&dataset, 16, Some(seed), epoch);
        prop_assert_eq!(order(seed, epoch), order(seed, epoch));
        prop_assert_ne!(order(seed, epoch), order(seed, epoch + 1));
        prop_assert_ne!(order(seed, epoch), order(seed.wrapping_add(1), epoch));
    }

    #[test]
    fn the_parts_of_a_batch_are_the_batch(
        samples in 1usize..200, batch in 1usize..100, part in 1usize..120, seed: u64,
    ) {
        let dataset = numbered(samples);
        for batch in dataset.batches(batch).unwrap().shuffled(seed).epoch(1) {
            let sizes: Vec<usize> = batch.parts(part).map(|part| part.samples()).collect();
            let (last, full) = sizes.split_last().unwrap();
            prop_assert!(full.iter().all(|&size| size == part) && (1..=part).contains(last));
            let indices: Vec<usize> = batch.parts(part).flat_map(|part| part.indices().collect::<Vec<_>>()).collect();
            prop_assert_eq!(indices, batch.indices().collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_batch_size_does_not_change_the_order(samples in 1usize..400, batch in 1usize..100, seed: u64) {
        let dataset = numbered(samples);
        let order = |batch| read_epoch(&dataset, batch, Some(seed), 3).concat();
        prop_assert_eq!(order(batch), order(samples));
    }

    #[test]
    fn an_epoch_can_be_resumed_in_its_middle(samples in 1usize..400, batch in 1usize..50, skip in 0usize..50) {
        let dataset = numbered(samples);
        let batches = dataset.batches(batch).unwrap().shuffled(5);
        let indices = |batch: plimsoll_data::Batch<'_>| batch.indices().collect::<Vec<_>>();
        let whole: Vec<_> = batches.epoch(1).map(indices).collect();
        let rest: Vec<_> = batches.epoch(1).skip(skip).map(indices).collect();
        prop_assert_eq!(&whole[skip.min(whole.len())..], &rest[..]);
    }
}

#[test]
fn without_a_shuffle_samples_come_in_their_own_order() {
    assert_eq!(read_epoch(&numbered(5), 2, None, 7), [vec![0, 1], vec![2, 3], vec![4]]);
}

#[test]
fn the_fields_of_a_batch_belong_together() {
    let samples: Vec<i32> = (0..100).collect();
    let doubled: Vec<f32> = samples.iter().flat_map(|&n| [n as f32, 2.0 * n as f32]).collect();
    let columns =
        Columns::new().column("pair", &[2], doubled).unwrap().column("number", &[], samples).unwrap();
    let batches = Dataset::new(columns).unwrap().batches(7).unwrap().shuffled(1);
    let (mut pairs, mut numbers) = (vec![0; batches.buffer_bytes(0)], vec![0; batches.buffer_bytes(1)]);
    for batch in batches.epoch(0) {
        batch.read(0, &mut pairs).unwrap();
        batch.read(1, &mut numbers).unwrap();
        for (at, sample) in batch.indices().enumerate() {
            let float = |at: usize| f32::from_ne_bytes(pairs[at * 4..][..4].try_into().unwrap());
            assert_eq!(float(2 * at), sample as f32);
            assert_eq!(float(2 * at + 1), 2.0 * sample as f32);
            assert_eq!(numbers[at * 4..][..4], (sample as i32).to_ne_bytes());
        }
    }
}

#[test]
fn a_partial_batch_leaves_the_rest_of_the_buffer_as_it_was() {
    let dataset = numbered(3);
    let mut buffer = vec![0xAA; 8];
    let last = dataset.batches(2).unwrap();
    let last = last.epoch(0).nth(1).unwrap();
    assert_eq!(last.read(0, &mut buffer).unwrap(), 4);
    assert_eq!(buffer, [2i32.to_ne_bytes(), [0xAA; 4]].concat());
}

#[test]
fn a_batch_larger_than_the_data_set_is_one_partial_batch() {
    let dataset = numbered(3);
    let batches = dataset.batches(100).unwrap();
    assert_eq!(batches.epoch(0).map(|batch| batch.samples()).collect::<Vec<_>>(), [3]);
}

#[test]
fn a_batch_of_no_samples_is_refused() {
    let error = numbered(3).batches(0).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::BatchSize { batch: 0, .. }), "{error}");
}

#[test]
fn a_batch_beyond_all_memory_is_refused() {
    let error = numbered(3).batches(usize::MAX).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::BatchSize { .. }), "{error}");
}

#[test]
fn a_buffer_that_is_too_small_is_refused_with_both_sizes() {
    let dataset = numbered(4);
    let batches = dataset.batches(4).unwrap();
    let error = batches.epoch(0).next().unwrap().read(0, &mut [0; 15]).unwrap_err();
    assert_eq!(error.to_string(), "field `number`: the buffer has 15 bytes where 16 are needed");
}

#[test]
fn a_field_that_is_not_there_is_refused_with_those_that_are() {
    let dataset = numbered(4);
    let error = dataset.field("lable").unwrap_err();
    assert_eq!(error.to_string(), "there is no field `lable`; the fields are: number");
    let batches = dataset.batches(4).unwrap();
    assert_eq!(batches.buffer_bytes(1), 0);
    let error = batches.epoch(0).next().unwrap().read(1, &mut []).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NoSuchField { .. }), "{error}");
}

#[test]
fn a_shuffle_of_any_length_holds_no_memory() {
    let samples = isize::MAX as usize;
    let dataset = Dataset::new(Synthetic::new(samples, 0).classes("label", 10).unwrap()).unwrap();
    let split = dataset.split(0.9, 1).unwrap();
    let batches = split.train.batches(64).unwrap().shuffled(2);
    assert_eq!(batches.resident_bytes(), 0);
    let batch = batches.epoch(0).nth(batches.per_epoch() - 1).unwrap();
    assert!(batch.indices().all(|index| index < split.train.samples()));
}

/// A csv too large to be kept: its samples are parsed ahead, and are those of the same batches all the same.
fn parsed(folder: &tempfile::TempDir) -> Dataset {
    let path = folder.path().join("rows.csv");
    let mut text = "x,label\n".to_string();
    for row in 0..70_000 {
        text.push_str(&format!("{row}{},{}\n", ".".to_string() + &"0".repeat(60), row % 3));
    }
    std::fs::write(&path, text).unwrap();
    Dataset::new(Csv::label("label").open(path).unwrap()).unwrap()
}

#[test]
fn samples_that_are_parsed_ahead_come_in_the_order_of_the_seed_from_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = parsed(&folder);
    assert!(dataset.source().unwrap().reads_whole_records());
    for seed in [None, Some(4)] {
        let batches =
            seed.into_iter().fold(dataset.batches(512).unwrap(), |batches, seed| batches.shuffled(seed));
        let values = |batch: &Batch<'_>| {
            let mut bytes = vec![0; batches.buffer_bytes(0)];
            let read = batch.read(0, &mut bytes).unwrap();
            let values = bytes[..read].as_chunks().0.iter().map(|&value| f32::from_ne_bytes(value) as usize);
            values.collect::<Vec<_>>()
        };
        let whole: Vec<_> =
            batches.epoch(2).map(|batch| (batch.indices().collect::<Vec<_>>(), values(&batch))).collect();
        assert_eq!(whole.len(), batches.per_epoch());
        for (indices, values) in &whole {
            assert_eq!(indices, values);
        }
        let last = batches.per_epoch() - 1;
        for first in [1, 40, last] {
            let mut coming = batches.epoch(2);
            let batch = coming.nth(first).unwrap();
            assert_eq!(values(&batch), whole[first].1, "{first}");
            let position = coming.position();
            assert_eq!(position.records(), first as u64 + 1);
            let rest: Vec<_> = batches.epoch_from(&position).map(|batch| values(&batch)).collect();
            assert!(rest.iter().eq(whole[first + 1..].iter().map(|(_, values)| values)), "{first}");
        }
        assert!(batches.epoch(2).nth(last + 1).is_none());
    }
}

#[test]
fn only_floats_are_looked_at_for_what_is_not_finite() {
    // As floats, these would be NaN.
    let fields =
        [Field::new("pixels", Element::U8, &[4]).unwrap(), Field::new("label", Element::I32, &[]).unwrap()];
    let white = Dataset::from_function(&fields, 3, |_, out| {
        out.set("pixels", &[4], &[255u8; 4])?;
        out.set("label", &[], &[-1i32])
    });
    let white = white.unwrap().filter(|_| Ok(true)).counted().unwrap();
    for batch in white.batches(2).unwrap().epoch(0) {
        batch.read(0, &mut [0; 8]).unwrap();
        batch.read(1, &mut [0; 8]).unwrap();
    }
}

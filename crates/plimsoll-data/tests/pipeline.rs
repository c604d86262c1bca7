//! Pipelines of any stages: what they give is what a plain list would, on any number of threads; a position anywhere goes on
//! with exactly what was to come; and no budget is passed.

use plimsoll_data::{
    Cache, Dataset, Depth, Element, ErrorKind, Field, Pack, Position, RamBudget, Record, RecordReader,
    Result, Source, Workers,
};
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Sequences of different lengths: sample i is `id` i and `tokens` i, i + 1, … of length `i % 7`.
struct Sequences {
    fields: Vec<Field>,
    samples: usize,
    reads: Arc<AtomicU64>,
}

fn tokens_of(id: i32) -> Vec<i32> {
    (id..id + id % 7).collect()
}

impl Sequences {
    fn new(samples: usize) -> Sequences {
        let fields = vec![
            Field::new("id", Element::I32, &[]).unwrap(),
            Field::open("tokens", Element::I32, &[Field::OPEN]).unwrap(),
        ];
        Sequences { fields, samples, reads: Arc::default() }
    }
}

impl Source for Sequences {
    fn samples(&self) -> usize {
        self.samples
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, _: usize, _: usize, _: &mut [u8]) -> Result<()> {
        panic!("open fields are read as records")
    }

    fn read_record(&self, sample: usize, out: &mut Record) -> Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let tokens = tokens_of(sample as i32);
        out.set("id", &[], &[sample as i32])?;
        out.set("tokens", &[tokens.len()], &tokens)
    }

    fn resident_bytes(&self) -> u64 {
        0
    }
}

/// The same one after the other, as a program would make them.
struct Counting {
    next: i32,
    samples: i32,
}

impl RecordReader for Counting {
    fn next(&mut self, out: &mut Record) -> Result<bool> {
        if self.next == self.samples {
            return Ok(false);
        }
        let tokens = tokens_of(self.next);
        out.set("id", &[], &[self.next])?;
        out.set("tokens", &[tokens.len()], &tokens)?;
        self.next += 1;
        Ok(true)
    }
}

/// All values of a record, with shapes.
fn values(record: &Record) -> Vec<(Vec<usize>, Vec<u8>)> {
    (0..record.fields().len()).map(|at| (record.shape(at).to_vec(), record.bytes(at).to_vec())).collect()
}

type Values = Vec<(Vec<usize>, Vec<u8>)>;

/// The rest of an epoch.
fn rest(records: &mut plimsoll_data::Records) -> Vec<Values> {
    let mut all = vec![];
    while let Some(record) = records.read().unwrap() {
        all.push(values(record));
    }
    all
}

fn ids(dataset: &Dataset, epoch: u64) -> Vec<i32> {
    let mut records = dataset.records(epoch).unwrap();
    let mut ids = vec![];
    while let Some(record) = records.read().unwrap() {
        ids.extend(record.get::<i32>("id").unwrap());
    }
    ids
}

/// A stage, by its options.
#[derive(Clone, Debug)]
enum Stage {
    ShuffleAll(u64),
    Shuffle(usize, u64),
    Map { is_random: bool },
    Unordered,
    Filter(i32),
    Take(usize),
    Skip(usize),
    Shard(usize, usize),
    Repeat(u64),
    Concat,
    Interleave(usize, u64),
    CacheMemory,
    CacheFile,
    Prefetch(Depth),
    SkipErrors,
}

fn stage() -> impl Strategy<Value = Stage> {
    prop_oneof![
        any::<u64>().prop_map(Stage::ShuffleAll),
        (1usize..20, any::<u64>()).prop_map(|(buffer, seed)| Stage::Shuffle(buffer, seed)),
        any::<bool>().prop_map(|is_random| Stage::Map { is_random }),
        Just(Stage::Unordered),
        (2i32..5).prop_map(Stage::Filter),
        (0usize..40).prop_map(Stage::Take),
        (0usize..20).prop_map(Stage::Skip),
        (1usize..4, 0usize..4).prop_map(|(of, index)| Stage::Shard(of, index % of)),
        (0u64..3).prop_map(Stage::Repeat),
        Just(Stage::Concat),
        (1usize..4, 1u64..4).prop_map(|(at_once, block)| Stage::Interleave(at_once, block)),
        Just(Stage::CacheMemory),
        Just(Stage::CacheFile),
        prop_oneof![Just(Depth::Auto), (1usize..6).prop_map(Depth::Records)].prop_map(Stage::Prefetch),
        Just(Stage::SkipErrors),
    ]
}

/// What comes last.
#[derive(Clone, Debug)]
enum Last {
    Records,
    Padded(usize, bool),
    Buckets(usize, bool),
    Packed(usize, bool),
    Zipped,
}

fn last() -> impl Strategy<Value = Last> {
    prop_oneof![
        Just(Last::Records),
        (1usize..6, any::<bool>()).prop_map(|(size, drop)| Last::Padded(size, drop)),
        (1usize..4, any::<bool>()).prop_map(|(size, drop)| Last::Buckets(size, drop)),
        (3usize..12, any::<bool>()).prop_map(|(length, cuts)| Last::Packed(length, cuts)),
        Just(Last::Zipped),
    ]
}

/// The stages over samples, with so many workers, caches in a folder.
fn build(
    samples: usize,
    is_reader: bool,
    stages: &[Stage],
    last: &Last,
    workers: usize,
    folder: &Path,
) -> Dataset {
    let source = Sequences::new(samples);
    let fields = source.fields.clone();
    let mut data = match is_reader {
        false => Dataset::new(source).unwrap(),
        true => Dataset::from_reader(&fields, None, move |_| {
            Ok(Box::new(Counting { next: 0, samples: samples as i32 }) as Box<dyn RecordReader>)
        })
        .unwrap(),
    };
    for (number, stage) in stages.iter().enumerate() {
        let workers = Workers::Threads(workers);
        let add = |from: &Record, to: &mut Record, more: i32| {
            to.set("id", &[], from.get::<i32>("id")?)?;
            let tokens: Vec<i32> = from.get::<i32>("tokens")?.iter().map(|token| token + more).collect();
            to.set("tokens", &[tokens.len()], &tokens)
        };
        data = match stage.clone() {
            Stage::ShuffleAll(seed) => data.shuffle_all(seed).unwrap_or_else(|_| data.clone()),
            Stage::Shuffle(buffer, seed) => data.shuffle(buffer, seed),
            Stage::Map { is_random: false } => {
                data.map(workers, &fields, move |from, to| add(from, to, 1)).unwrap()
            }
            Stage::Map { is_random: true } => data
                .map_random(workers, &fields, 5, move |from, to, draws| {
                    let more = draws.below(1000) as i32;
                    add(from, to, more)
                })
                .unwrap(),
            Stage::Unordered => {
                data.map_unordered(workers, &fields, move |from, to| add(from, to, 2)).unwrap()
            }
            Stage::Filter(by) => data.filter(move |record| Ok(record.get::<i32>("id")?[0] % by != 0)),
            Stage::Take(count) => data.take(count),
            Stage::Skip(count) => data.skip(count),
            Stage::Shard(of, index) => data.shard(of, index).unwrap(),
            Stage::Repeat(times) => data.repeat(times),
            Stage::Concat => Dataset::concat(&[data.clone(), data.skip(3)]).unwrap(),
            Stage::Interleave(at_once, block) => {
                Dataset::interleave(&[data.clone(), data.take(5), data.skip(4)], at_once, block).unwrap()
            }
            Stage::CacheMemory => data.cache(Cache::Memory, 1 << 20),
            Stage::CacheFile => data.cache(Cache::File(&folder.join(format!("cache{number}"))), 1 << 20),
            Stage::Prefetch(depth) => data.prefetch(depth),
            Stage::SkipErrors => data.skip_errors(5),
        };
    }
    let padding = [("tokens", -1.0)];
    match *last {
        Last::Records => data,
        Last::Padded(size, drop) => data.padded_batch(size, drop, &padding).unwrap(),
        Last::Buckets(size, drop) => {
            data.bucket_by_length("tokens", &[2, 4, 6], size, drop, &padding).unwrap()
        }
        Last::Packed(length, cuts) => {
            let tokens = [fields[1].clone()];
            let alone = data
                .map(0, &tokens, |from, to| {
                    let tokens = from.get::<i32>("tokens")?;
                    to.set("tokens", &[tokens.len()], tokens)
                })
                .unwrap();
            alone.pack(length, if cuts { Pack::Cut } else { Pack::Whole }, &padding).unwrap()
        }
        Last::Zipped => {
            let other =
                Dataset::from_function(&[Field::new("n", Element::I64, &[2]).unwrap()], 25, |n, out| {
                    out.set("n", &[2], &[n as i64, -1])
                });
            Dataset::zip(&[data, other.unwrap()]).unwrap()
        }
    }
}

fn has_order(stages: &[Stage]) -> bool {
    !stages.iter().any(|stage| matches!(stage, Stage::Unordered))
}

fn sorted(mut values: Vec<Values>) -> Vec<Values> {
    values.sort();
    values
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_epoch_is_the_same_on_any_number_of_threads_and_after_stopping_anywhere(
        samples in 1usize..40,
        is_reader: bool,
        stages in prop::collection::vec(stage(), 0..5),
        last in last(),
        epoch in 0u64..3,
        stop in 0usize..30,
        workers in prop::sample::select(vec![1usize, 2, 7]),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        let plain = build(samples, is_reader, &stages, &last, 0, folder.path());
        let all = rest(&mut plain.records(epoch).unwrap());
        if plain.samples() > 0 {
            prop_assert_eq!(plain.samples(), all.len());
        }
        // On threads, and stopped after some records.
        let threaded = build(samples, is_reader, &stages, &last, workers, other.path());
        if epoch > 0 {
            // Caches are full.
            rest(&mut threaded.records(0).unwrap());
        }
        let mut records = threaded.records(epoch).unwrap();
        let mut seen = vec![];
        for _ in 0..stop {
            seen.extend(records.read().unwrap().map(values));
        }
        let position = records.position();
        drop(records);
        let kept = Position::from_numbers(&position.to_numbers()).unwrap();
        prop_assert_eq!(&kept, &position);
        // Another process goes on.
        drop(threaded);
        let resumed = build(samples, is_reader, &stages, &last, 2, other.path());
        let mut records = resumed.records_from(&kept).unwrap();
        seen.extend(rest(&mut records));
        if has_order(&stages) {
            prop_assert_eq!(seen, all);
        } else if matches!(last, Last::Records) && !stages.iter().any(|stage| matches!(stage, Stage::Take(_) | Stage::Skip(_) | Stage::Shard(..) | Stage::Map { is_random: true } | Stage::Concat | Stage::Interleave(..))) {
            prop_assert_eq!(sorted(seen), sorted(all));
        }
    }

    #[test]
    fn stages_do_what_a_list_would(samples in 1usize..60, take in 0usize..70, skip in 0usize..70, of in 1usize..5, by in 2i32..5) {
        let data = || Dataset::new(Sequences::new(samples)).unwrap();
        let all: Vec<i32> = (0..samples as i32).collect();
        let taken: Vec<i32> = all.iter().copied().take(take).collect();
        if !taken.is_empty() {
            prop_assert_eq!(ids(&data().take(take), 0), taken);
        }
        let filtered = data().filter(move |record| Ok(record.get::<i32>("id")?[0] % by == 0));
        let kept: Vec<i32> = all.iter().copied().filter(|id| id % by == 0).collect();
        prop_assert_eq!(ids(&filtered, 0), kept.clone());
        prop_assert_eq!(filtered.count().unwrap(), kept.len() as u64);
        let range: Vec<i32> = kept.iter().copied().skip(skip).take(take).collect();
        prop_assert_eq!(ids(&filtered.skip(skip).take(take), 0), range);
        for index in 0..of {
            let expected: Vec<i32> = all.iter().copied().skip(index).step_by(of).collect();
            prop_assert_eq!(ids(&data().shard(of, index).unwrap(), 0), expected);
            let expected: Vec<i32> = kept.iter().copied().skip(index).step_by(of).collect();
            prop_assert_eq!(ids(&filtered.shard(of, index).unwrap(), 0), expected);
        }
        let twice: Vec<i32> = [&all[..], &all].concat();
        prop_assert_eq!(ids(&data().repeat(2), 0), twice.clone());
        prop_assert_eq!(ids(&Dataset::concat(&[data(), data()]).unwrap(), 0), twice);
    }

    #[test]
    fn shuffles_give_every_sample_once_in_another_order_each_epoch(samples in 20usize..200, buffer in 10usize..250, seed: u64) {
        for data in [
            Dataset::new(Sequences::new(samples)).unwrap().shuffle(buffer, seed),
            Dataset::new(Sequences::new(samples)).unwrap().shuffle_all(seed).unwrap(),
        ] {
            let [first, second] = [0, 1].map(|epoch| ids(&data, epoch));
            prop_assert_ne!(&first, &second);
            prop_assert_eq!(&ids(&data, 0), &first);
            let mut all = first.clone();
            all.sort_unstable();
            prop_assert_eq!(all, (0..samples as i32).collect::<Vec<_>>());
        }
    }

    #[test]
    fn packed_rows_hold_every_token_once_with_its_sequence_and_place(samples in 1usize..60, length in 3usize..20, cuts: bool) {
        let tokens = [Field::open("tokens", Element::I32, &[Field::OPEN]).unwrap()];
        let data = Dataset::new(Sequences::new(samples)).unwrap().map(0, &tokens, |from, to| {
            let tokens = from.get::<i32>("tokens")?;
            to.set("tokens", &[tokens.len()], tokens)
        });
        let packed = data.unwrap().pack(length, if cuts { Pack::Cut } else { Pack::Whole }, &[("tokens", -1.0)]).unwrap();
        let mut records = packed.records(0).unwrap();
        let (mut seen, mut padding, mut rows) = (vec![], 0, 0);
        while let Some(row) = records.read().unwrap() {
            let [tokens, segments, positions] = ["tokens", "segment", "position"].map(|name| row.get::<i32>(name).unwrap());
            rows += 1;
            for at in 0..length {
                if segments[at] == 0 {
                    prop_assert_eq!(tokens[at], -1);
                    padding += 1;
                    continue;
                }
                seen.push(tokens[at]);
                let continues = at > 0 && segments[at - 1] == segments[at];
                if continues {
                    prop_assert_eq!(positions[at], positions[at - 1] + 1);
                } else if !cuts && length >= 6 {
                    prop_assert_eq!(positions[at], 0);
                }
            }
        }
        let expected: Vec<i32> = (0..samples as i32).flat_map(tokens_of).collect();
        if cuts {
            prop_assert!(padding < length);
            prop_assert_eq!(rows, expected.len().div_ceil(length));
        }
        prop_assert_eq!(seen, expected);
    }

    #[test]
    fn a_budget_is_never_passed(samples in 1usize..200, buffer in 1usize..100, limit in 0u64..20_000, workers in 0usize..5) {
        let fields = [Field::open("tokens", Element::I32, &[Field::OPEN]).unwrap()];
        let data = Dataset::new(Sequences::new(samples)).unwrap().shuffle(buffer, 3);
        let data = data.map(workers, &fields, |from, to| {
            let tokens = from.get::<i32>("tokens")?;
            to.set("tokens", &[tokens.len()], tokens)
        });
        let data = data.unwrap().prefetch(4).within(RamBudget::bytes(limit)).unwrap();
        let mut records = data.records(0).unwrap();
        let mut made = 0;
        let ended = loop {
            match records.read() {
                Ok(Some(_)) => made += 1,
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        prop_assert!(records.report().most_bytes <= limit, "{}", records.report());
        match ended {
            None => prop_assert_eq!(made, samples),
            Some(error) => prop_assert!(matches!(error.kind(), ErrorKind::OverBudget { .. }), "{error}"),
        }
    }
}

#[test]
fn what_was_given_out_is_not_read_again_after_resuming() {
    for buffer in [1, 16, 1000] {
        let source = Sequences::new(500);
        let data = Dataset::new(source).unwrap().shuffle(buffer, 9);
        let mut records = data.records(0).unwrap();
        let mut seen: Vec<i32> = vec![];
        for _ in 0..200 {
            seen.extend(records.read().unwrap().unwrap().get::<i32>("id").unwrap());
        }
        let position = records.position();
        let again = Sequences::new(500);
        let reads = Arc::clone(&again.reads);
        let data = Dataset::new(again).unwrap().shuffle(buffer, 9);
        let mut records = data.records_from(&position).unwrap();
        while let Some(record) = records.read().unwrap() {
            seen.extend(record.get::<i32>("id").unwrap());
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..500).collect::<Vec<_>>(), "a buffer of {buffer}");
        assert_eq!(reads.load(Ordering::Relaxed), 300, "a buffer of {buffer}");
    }
}

#[test]
fn what_comes_one_after_the_other_is_gone_through_once_to_go_on() {
    let opened = Arc::new(AtomicU64::new(0));
    let build = || {
        let count = Arc::clone(&opened);
        let data = Dataset::from_reader(&Sequences::new(1).fields, None, move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(Box::new(Counting { next: 0, samples: 2000 }) as Box<dyn RecordReader>)
        });
        data.unwrap().shuffle(300, 1)
    };
    let mut records = build().records(0).unwrap();
    (0..1000).for_each(|_| _ = records.read().unwrap());
    let position = records.position();
    opened.store(0, Ordering::Relaxed);
    let mut resumed = build().records_from(&position).unwrap();
    assert_eq!(opened.load(Ordering::Relaxed), 1);
    assert_eq!(rest(&mut resumed), rest(&mut records));
}

#[test]
fn a_function_that_fails_panics_or_forgets_is_an_error_with_the_element() {
    let fields =
        [Field::new("id", Element::I32, &[]).unwrap(), Field::new("other", Element::I32, &[]).unwrap()];
    for workers in [0, 1, 3] {
        let data = Dataset::new(Sequences::new(100)).unwrap().map(workers, &fields, |from, to| {
            let id = from.get::<i32>("id")?[0];
            to.set("id", &[], &[id])?;
            match id {
                7 => to.set("id", &[2], &[1, 2]),
                11 => panic!("eleven"),
                13 => Ok(()),
                _ => to.set("other", &[], &[id]),
            }
        });
        let mut records = data.unwrap().records(0).unwrap();
        let (mut good, mut errors) = (0, vec![]);
        loop {
            match records.read() {
                Ok(None) => break,
                Ok(Some(_)) => good += 1,
                Err(error) => errors.push(error.to_string()),
            }
        }
        assert_eq!((good, errors.len()), (97, 3), "{errors:?}");
        assert!(errors[0].contains("element 7: field `id`: a sample of shape [2]"), "{}", errors[0]);
        assert!(errors[1].contains("element 11: the function panicked: eleven"), "{}", errors[1]);
        assert!(
            errors[2].contains("element 13: the function did not set the field `other`"),
            "{}",
            errors[2]
        );
    }
}

#[test]
fn what_fails_is_left_out_and_counted_when_asked_for() {
    let fields = [Field::new("id", Element::I32, &[]).unwrap()];
    let build = |most| {
        let data = Dataset::new(Sequences::new(50)).unwrap().map(2, &fields, |from, to| {
            let id = from.get::<i32>("id")?;
            assert!(id[0] % 10 != 3, "no");
            to.set("id", &[], id)
        });
        data.unwrap().skip_errors(most)
    };
    let data = build(5);
    let mut records = data.records(0).unwrap();
    assert_eq!(rest(&mut records).len(), 45);
    assert_eq!(records.report().stages.iter().map(|stage| stage.skipped).sum::<u64>(), 5);
    let data = build(2);
    let mut records = data.records(0).unwrap();
    let failed = std::iter::from_fn(|| records.read().map(|record| record.map(|_| ())).transpose())
        .find(|read| read.is_err());
    assert!(failed.unwrap().unwrap_err().to_string().contains("element 23"));
}

#[test]
fn no_thread_is_left_behind() {
    let threads = || std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    let data = Dataset::new(Sequences::new(10_000)).unwrap();
    let fields: Vec<Field> = data.fields().to_vec();
    let data = data.map(3, &fields, |from, to| {
        to.copy_from(from);
        Ok(())
    });
    let data = data.unwrap().prefetch(2).prefetch(2);
    let before = threads();
    for _ in 0..20 {
        let mut records = data.records(0).unwrap();
        for _ in 0..10 {
            records.read().unwrap();
        }
    }
    // Other tests of this program have threads, too: of twenty rounds, five threads each would show.
    assert!(threads() < before + 50, "{before} threads before, {} after", threads());
}

#[test]
fn an_element_that_is_larger_than_the_budget_is_an_error_that_says_so() {
    let big = Field::open("x", Element::F32, &[Field::OPEN]).unwrap();
    let data = Dataset::from_function(&[big], 10, |n, out| {
        let length = if n == 6 { 1 << 20 } else { 10 };
        out.set("x", &[length], &vec![0f32; length])
    });
    for data in [data.as_ref().unwrap().prefetch(2), data.as_ref().unwrap().shuffle(3, 1)] {
        let data = data.within(RamBudget::bytes(1 << 20)).unwrap();
        let mut records = data.records(0).unwrap();
        let failed = std::iter::from_fn(|| records.read().map(|record| record.map(|_| ())).transpose())
            .find(|read| read.is_err());
        let error = failed.unwrap().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::OverBudget { .. }), "{error}");
        assert!(error.to_string().contains("budget of 1048576"), "{error}");
    }
}

#[test]
fn what_can_be_read_by_number_is_shuffled_and_split_before_functions() {
    let fields = [Field::new("id", Element::I32, &[]).unwrap()];
    let made = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&made);
    let data = Dataset::new(Sequences::new(100)).unwrap().map(2, &fields, move |from, to| {
        count.fetch_add(1, Ordering::Relaxed);
        to.set("id", &[], from.get::<i32>("id")?)
    });
    let data = data.unwrap();
    let split = data.split(0.8, 3).unwrap();
    let mut all = ids(&split.train.shuffle_all(1).unwrap(), 4);
    all.extend(ids(&split.held_out.skip(5), 0));
    assert_eq!(made.load(Ordering::Relaxed), 95);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 95);
    let filtered = data.filter(|_| Ok(true));
    assert!(filtered.split(0.5, 1).unwrap_err().to_string().contains("before other stages"));
    // Whether a sample stays does not depend on the order.
    let odd = data.filter(|record| Ok(record.get::<i32>("id")?[0] % 2 == 1)).counted().unwrap();
    let mut shuffled = ids(&odd.shuffle_all(1).unwrap(), 0);
    assert_ne!(shuffled, ids(&odd, 0));
    shuffled.sort_unstable();
    assert_eq!(shuffled, (0..50).map(|n| 2 * n + 1).collect::<Vec<_>>());
    assert!(data.shuffle(3, 1).shuffle_all(1).is_err());
}

#[test]
fn a_cache_that_would_be_too_large_gives_up_and_says_so() {
    let data = Dataset::new(Sequences::new(100)).unwrap().cache(Cache::Memory, 500);
    for epoch in 0..2 {
        let mut records = data.records(epoch).unwrap();
        assert_eq!(rest(&mut records).len(), 100);
        let says = records.report().to_string().contains("no cache: more than 500 bytes");
        assert_eq!(says, epoch == 1, "{}", records.report());
    }
    let reads = Sequences::new(100);
    let count = Arc::clone(&reads.reads);
    let data = Dataset::new(reads).unwrap().cache(Cache::Memory, 1 << 20);
    for _ in 0..3 {
        assert_eq!(ids(&data, 0), (0..100).collect::<Vec<_>>());
    }
    assert_eq!(count.load(Ordering::Relaxed), 100);
}

#[test]
fn positions_of_other_pipelines_are_refused() {
    let data = Dataset::new(Sequences::new(20)).unwrap();
    let mut records = data.shuffle(5, 1).records(0).unwrap();
    records.read().unwrap();
    let position = records.position();
    for other in [data.clone(), data.batch(3, true).unwrap_or(data.clone()), data.repeat(2)] {
        let refused = other.records_from(&position).map(|_| ()).unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::Position { .. }), "{refused}");
    }
    assert!(Position::from_numbers(&[1]).is_err());
}

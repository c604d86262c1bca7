//! Laws that every allocator keeps, and rules of each that show in a few requests.

use plimsoll_memory::{
    Allocator, BfcSettings, CachingSettings, CountedDevice, ErrorKind, Model, PieceState, Result, Source,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;

/// A device that is only counted and checks that it is used as it may be.
struct CheckedDevice {
    device: CountedDevice,
    ranges: BTreeMap<u64, u64>,
    /// What is mapped: where each run of bytes begins and ends, joined where they touch.
    mapped: BTreeMap<u64, u64>,
}

impl CheckedDevice {
    fn new(limit: Option<u64>, page: u64) -> CheckedDevice {
        let device = CountedDevice::new(limit.unwrap_or(u64::MAX), page);
        CheckedDevice { device, ranges: BTreeMap::new(), mapped: BTreeMap::new() }
    }

    fn run_at(&self, address: u64) -> Option<(u64, u64)> {
        let (&start, &end) = self.mapped.range(..=address).next_back()?;
        (address < end).then_some((start, end))
    }

    fn covers(&self, address: u64, bytes: u64) -> bool {
        self.run_at(address).is_some_and(|(_, end)| address + bytes <= end)
    }

    fn check_pages(&self, address: u64, bytes: u64) {
        let page = self.page_bytes();
        assert!(bytes > 0 && address.is_multiple_of(page) && bytes.is_multiple_of(page), "whole pages");
        let (start, range) = self.ranges.range(..=address).next_back().expect("a reserved range");
        assert!(address + bytes <= (start + range).next_multiple_of(page), "within a reserved range");
    }
}

impl Source for CheckedDevice {
    fn page_bytes(&self) -> u64 {
        self.device.page_bytes()
    }

    fn reserve(&mut self, bytes: u64) -> Result<u64> {
        let address = self.device.reserve(bytes)?;
        self.ranges.insert(address, bytes);
        Ok(address)
    }

    fn map(&mut self, address: u64, bytes: u64) -> Result<()> {
        self.check_pages(address, bytes);
        self.device.map(address, bytes)?;
        let last = self.mapped.range(..address + bytes).next_back();
        assert!(last.is_none_or(|(_, &end)| end <= address), "mapped twice");
        let end = self.mapped.remove(&(address + bytes)).unwrap_or(address + bytes);
        match self.mapped.range_mut(..address).next_back().filter(|(_, end)| **end == address) {
            Some((_, before)) => *before = end,
            None => _ = self.mapped.insert(address, end),
        }
        Ok(())
    }

    fn unmap(&mut self, address: u64, bytes: u64) {
        self.check_pages(address, bytes);
        assert!(self.covers(address, bytes), "only what is mapped is unmapped");
        let (start, end) = self.run_at(address).unwrap();
        self.mapped.remove(&start);
        for (start, end) in [(start, address), (address + bytes, end)] {
            if start < end {
                self.mapped.insert(start, end);
            }
        }
        self.device.unmap(address, bytes);
    }

    fn release(&mut self, address: u64, bytes: u64) {
        assert_eq!(self.ranges.remove(&address), Some(bytes), "released as it was reserved");
        let within = self.mapped.range(..address + bytes).next_back();
        assert!(within.is_none_or(|(_, &end)| end <= address), "nothing is mapped any more");
        self.device.release(address, bytes);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Allocate(u64, u32),
    Free(usize),
    Trim,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![0..5000u64, 1..3 * MIB, 1..48 * MIB];
    let step = prop_oneof![
        6 => (bytes, 0..3u32).prop_map(|(bytes, stream)| Step::Allocate(bytes, stream)),
        5 => any::<usize>().prop_map(Step::Free),
        1 => Just(Step::Trim),
    ];
    prop::collection::vec(step, 1..120)
}

fn models() -> impl Strategy<Value = Model> {
    let bfc = any::<[bool; 3]>().prop_map(|[growth, garbage_collection, partitioned]| {
        Model::Bfc(BfcSettings { growth, garbage_collection, partitioned })
    });
    let split = prop_oneof![Just(None), Just(Some(20 * MIB)), Just(Some(30 * MIB))];
    let threshold = prop_oneof![Just(0.0), 0.1..0.9];
    let divisions = prop_oneof![Just(vec![]), Just(vec![4; 16]), Just(vec![1, 2, 8, 0])];
    let caching = (any::<bool>(), split, threshold, divisions).prop_map(
        |(expandable, max_split_bytes, garbage_collection_threshold, roundup_power2_divisions)| {
            Model::Caching(CachingSettings {
                expandable,
                max_split_bytes,
                garbage_collection_threshold,
                roundup_power2_divisions,
            })
        },
    );
    prop_oneof![2 => bfc, 4 => caching, 1 => Just(Model::TwoEnded), 1 => Just(Model::Paged)]
}

fn limits() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![Just(None), (0..300 * MIB).prop_map(Some)]
}

/// Takes one step; what was freed or placed is kept in `live` as address and bytes.
fn take_step(
    step: &Step,
    pool: &mut dyn Allocator,
    device: &mut dyn Source,
    live: &mut Vec<(u64, u64)>,
) -> Option<u64> {
    match *step {
        Step::Allocate(bytes, stream) => {
            let address = pool.allocate(bytes, stream, device).ok()?;
            live.push((address, bytes));
            Some(address)
        }
        Step::Free(at) if !live.is_empty() => {
            let (address, _) = live.swap_remove(at % live.len());
            pool.free(address, device);
            None
        }
        Step::Free(_) => None,
        Step::Trim => {
            let before = pool.reserved_bytes();
            let given = pool.trim(device);
            assert_eq!(pool.reserved_bytes(), before - given);
            None
        }
    }
}

/// Layout, live blocks and device say the same.
fn check(pool: &dyn Allocator, device: &CheckedDevice, live: &[(u64, u64)], limit: Option<u64>) {
    let layout = pool.layout();
    assert_eq!(layout.reserved_bytes(), pool.reserved_bytes());
    assert_eq!(device.device.mapped_bytes(), pool.reserved_bytes());
    assert!(limit.is_none_or(|limit| pool.reserved_bytes() <= limit));
    let mut end = 0;
    for segment in &layout.segments {
        assert!(segment.address >= end, "segments are in order and do not overlap");
        end = segment.address;
        for piece in &segment.pieces {
            assert_eq!(piece.address, end, "pieces follow each other without gaps");
            assert!(piece.bytes > 0 && piece.requested <= piece.bytes);
            assert!(device.covers(piece.address, piece.bytes), "memory is behind every piece");
            end += piece.bytes;
        }
        assert_eq!(end, segment.address + segment.bytes);
    }
    let mut expected = live.to_vec();
    expected.sort_unstable();
    let pieces = layout.pieces().filter(|p| p.state == PieceState::Live);
    assert_eq!(pieces.map(|p| (p.address, p.requested)).collect::<Vec<_>>(), expected);
}

proptest! {
    #[test]
    fn live_blocks_are_apart_and_backed_and_the_layout_says_so(
        model in models(), limit in limits(), steps in steps(), page in prop_oneof![Just(256), Just(2 * MIB)]
    ) {
        let mut device = CheckedDevice::new(limit, page);
        let mut pool = model.build(limit);
        let mut live = Vec::new();
        for step in &steps {
            take_step(step, pool.as_mut(), &mut device, &mut live);
            check(pool.as_ref(), &device, &live, limit);
        }
    }

    #[test]
    fn freeing_all_and_trimming_gives_everything_back(model in models(), limit in limits(), steps in steps()) {
        let mut device = CheckedDevice::new(limit, 2 * MIB);
        let mut pool = model.build(limit);
        let mut live = Vec::new();
        for step in &steps {
            take_step(step, pool.as_mut(), &mut device, &mut live);
        }
        for (address, _) in live {
            pool.free(address, &mut device);
        }
        pool.trim(&mut device);
        prop_assert_eq!(pool.reserved_bytes(), 0);
        prop_assert!(device.mapped.is_empty());
    }

    #[test]
    fn the_same_requests_are_placed_the_same(model in models(), limit in limits(), steps in steps()) {
        let run = || {
            let mut device = CountedDevice::new(limit.unwrap_or(u64::MAX), 2 * MIB);
            let (mut pool, mut live) = (model.build(limit), Vec::new());
            steps.iter().map(|s| take_step(s, pool.as_mut(), &mut device, &mut live)).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(), run());
    }

    /// With a central gap placement does not depend on how much there is.
    #[test]
    fn a_larger_limit_never_fails_a_partitioned_pool(
        limit in 0..300 * MIB, more in 0..300 * MIB, steps in steps()
    ) {
        let model = Model::Bfc(BfcSettings { growth: false, garbage_collection: false, partitioned: true });
        let (mut small, mut large) = (model.build(Some(limit)), model.build(Some(limit + more)));
        let mut small_device = CountedDevice::new(limit, 256);
        let mut large_device = CountedDevice::new(limit + more, 256);
        let (mut small_live, mut large_live) = (Vec::new(), Vec::new());
        for step in steps.iter().filter(|s| !matches!(s, Step::Trim)) {
            let placed = take_step(step, small.as_mut(), &mut small_device, &mut small_live);
            let other = take_step(step, large.as_mut(), &mut large_device, &mut large_live);
            if matches!(step, Step::Allocate(..)) && placed.is_none() {
                break;
            }
            prop_assert_eq!(placed, other);
        }
    }

    #[test]
    fn nothing_is_too_large_to_be_refused(model in models(), bytes in (1u64 << 40)..) {
        let mut device = CountedDevice::new(1 << 30, 2 * MIB);
        let mut pool = model.build(Some(1 << 30));
        prop_assert!(pool.allocate(bytes, 0, &mut device).is_err());
        prop_assert!(pool.allocate(1000, 0, &mut device).is_ok());
    }
}

fn model(name: &str) -> Model {
    name.parse().unwrap()
}

/// Reserved bytes after each request.
fn reserved(model: &Model, limit: Option<u64>, requests: &[u64]) -> Vec<u64> {
    let mut device = CountedDevice::new(limit.unwrap_or(u64::MAX), 256);
    let mut pool = model.build(limit);
    let after = requests.iter().map(|&bytes| {
        pool.allocate(bytes, 0, &mut device).unwrap();
        pool.reserved_bytes()
    });
    after.collect()
}

#[test]
fn models_are_parsed_by_the_names_they_have() {
    for name in Model::NAMES {
        assert_eq!(model(name).name(), name);
    }
    let error = "malloc".parse::<Model>().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownAllocator);
    assert!(error.to_string().contains("bfc, bfc-growth, caching, expandable, two-ended, paged"), "{error}");
}

#[test]
fn caching_segments_are_of_2_mib_20_mib_or_their_own_size() {
    let requests = [1, MIB, MIB, MIB + 1, 9 * MIB, 10 * MIB, 10 * MIB + 1];
    let expected = [2, 2, 4, 24, 24, 34, 46].map(|mib| mib * MIB);
    assert_eq!(reserved(&model("caching"), None, &requests), expected);
}

#[test]
fn expandable_segments_grow_by_pages() {
    let requests = [1, MIB, MIB, MIB + 1, 9 * MIB, 10 * MIB, 10 * MIB + 1];
    let expected = [2, 2, 4, 24, 24, 44, 44].map(|mib| mib * MIB);
    assert_eq!(reserved(&model("expandable"), None, &requests), expected);
}

#[test]
fn bfc_regions_double_or_are_all_there_is() {
    let requests = [1, 2 * MIB, 3 * MIB, 20 * MIB, 20 * MIB];
    // 2 MiB, then 4, then 8 is not needed, then 32, then 32 again as the last was enlarged for the request.
    let expected = [2, 6, 14, 46, 78].map(|mib| mib * MIB);
    assert_eq!(reserved(&model("bfc-growth"), None, &requests), expected);
    assert_eq!(reserved(&model("bfc"), Some(100 * MIB), &requests), [100 * MIB; 5]);
}

#[test]
fn bfc_asks_for_less_when_the_device_refuses() {
    let mut device = CountedDevice::new(50 * MIB, 256);
    let mut pool = model("bfc-growth").build(Some(1 << 30));
    pool.allocate(33 * MIB, 0, &mut device).unwrap();
    // 64 MiB less a tenth, three times.
    assert_eq!(pool.reserved_bytes(), 48_922_624);
}

#[test]
fn roundup_divides_powers_of_two() {
    let settings = CachingSettings { roundup_power2_divisions: vec![4; 16], ..CachingSettings::default() };
    let mut device = CountedDevice::new(u64::MAX, 256);
    let mut pool = Model::Caching(settings).build(None);
    for bytes in [100 * MIB, 112 * MIB, 112 * MIB + 1] {
        pool.allocate(bytes, 0, &mut device).unwrap();
    }
    let pieces: Vec<u64> = pool.layout().pieces().map(|p| p.bytes / MIB).collect();
    assert_eq!(pieces, [112, 112, 128]);
}

#[test]
fn a_refused_caching_allocator_gives_idle_segments_back_and_tries_again() {
    for name in ["caching", "expandable"] {
        let mut device = CountedDevice::new(100 * MIB, 2 * MIB);
        let mut pool = model(name).build(Some(100 * MIB));
        let first = pool.allocate(60 * MIB, 0, &mut device).unwrap();
        pool.free(first, &mut device);
        assert_eq!(pool.reserved_bytes(), 60 * MIB);
        pool.allocate(60 * MIB, 1, &mut device).expect("another stream takes over");
        assert_eq!(pool.reserved_bytes(), 60 * MIB);
        assert!(pool.allocate(60 * MIB, 0, &mut device).is_err());
    }
}

#[test]
fn two_ends_keep_what_is_soon_freed_apart() {
    let mut device = CountedDevice::new(1 << 30, 2 * MIB);
    let mut pool = model("two-ended").build(Some(1 << 30));
    let mut steps: Vec<u64> = Vec::new();
    let mut kept = Vec::new();
    for _ in 0..20 {
        for address in steps.drain(..) {
            pool.free(address, &mut device);
        }
        steps.extend([12, 13, 14, 15].map(|mib| pool.allocate(mib * MIB, 0, &mut device).unwrap()));
        kept.push(pool.allocate(MIB, 0, &mut device).unwrap());
    }
    let lowest_step = *steps.iter().min().unwrap();
    assert!(kept.iter().all(|&address| address < lowest_step));
}

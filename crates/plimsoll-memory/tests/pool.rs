//! The pool through its public interface: real memory that is nobody else's, books that sum, limits that hold and
//! are survived, and a ring from which what happened can be told.

use plimsoll_memory::{
    Action, Block, Cause, CountedDevice, ErrorKind, OwnerId, PhysicalDevice, PieceState, Pool, PoolSettings,
    Trace, TraceFile,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;

/// What a trace says is live at its end: bytes and owner by address; and the bytes taken from the device.
fn end_of(trace: &Trace) -> (BTreeMap<u64, (u64, OwnerId)>, u64) {
    let mut live = BTreeMap::new();
    let mut reserved: u64 = trace.initial_reserved.iter().map(|&(_, bytes)| bytes).sum();
    let allocate = |live: &mut BTreeMap<u64, (u64, OwnerId)>, id| {
        let request = trace.request(id);
        assert!(
            live.insert(request.address, (request.bytes, request.owner)).is_none(),
            "{request:?} is live twice"
        );
    };
    for &id in &trace.initial {
        allocate(&mut live, id);
    }
    for event in &trace.events {
        match event.action {
            Action::Allocate(id) => allocate(&mut live, id),
            Action::Free(id) => assert!(live.remove(&trace.request(id).address).is_some(), "freed twice"),
            Action::Reserve { bytes, .. } => reserved += bytes,
            Action::Release { bytes, .. } => reserved -= bytes,
            Action::Refuse(_) | Action::Mark(_) => {}
        }
    }
    (live, reserved)
}

fn assert_dump_ends_in_now(dump: &TraceFile, pool: &Pool) {
    let (live, reserved) = end_of(&dump.trace);
    let layout = dump.layout.as_ref().unwrap();
    let now =
        layout.pieces().filter(|p| p.state == PieceState::Live).map(|p| (p.address, (p.requested, p.owner)));
    assert_eq!(live, now.collect());
    let statistics = pool.statistics();
    assert_eq!(live.values().map(|&(bytes, _)| bytes).sum::<u64>(), statistics.live_bytes);
    assert_eq!(reserved, statistics.reserved_bytes);
    assert_eq!(reserved, layout.reserved_bytes());
    assert!(dump.trace.events.windows(2).all(|pair| pair[0].time <= pair[1].time));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn blocks_keep_their_bytes_books_sum_and_the_ring_ends_in_what_is_live(
        steps in prop::collection::vec((0u8..12, 0usize..1000, 0u64..3_000_000), 1..60),
        events in 0usize..40,
    ) {
        let pool = Pool::host(PoolSettings { events, live_limit: Some(20 * MIB), ..PoolSettings::default() });
        let mut blocks: Vec<(Block, u8)> = vec![];
        let (mut peak, mut served, mut happened) = (0, 0, 0);
        for (number, (what, which, bytes)) in steps.into_iter().enumerate() {
            // Small and large ones.
            let bytes = if bytes % 3 == 0 { bytes / 1000 } else { bytes };
            match what {
                0 => _ = pool.trim(),
                1 => {
                    pool.mark("step");
                    happened += 1;
                }
                2..=4 if !blocks.is_empty() => {
                    let (block, tag) = blocks.swap_remove(which % blocks.len());
                    prop_assert!(block.as_slice().iter().all(|&byte| byte == tag));
                    happened += 1;
                }
                _ => {
                    let owner = pool.owner(["a", "a/b", "c/d"][which % 3]);
                    let before = pool.statistics();
                    happened += 1;
                    match pool.allocate_for(owner, bytes) {
                        Ok(mut block) => {
                            prop_assert_eq!(block.start() as usize % 64, 0);
                            prop_assert_eq!(block.bytes(), bytes);
                            block.as_mut_slice().fill(number as u8);
                            blocks.push((block, number as u8));
                            served += 1;
                        }
                        Err(error) => {
                            prop_assert_eq!(error.kind(), ErrorKind::OverLimit);
                            prop_assert!(before.live_bytes + bytes > 20 * MIB);
                            prop_assert_eq!(pool.statistics().live_bytes, before.live_bytes);
                        }
                    }
                }
            }
            let statistics = pool.statistics();
            let live: u64 = blocks.iter().map(|(block, _)| block.bytes()).sum();
            peak = peak.max(live);
            prop_assert_eq!((statistics.live_bytes, statistics.peak_bytes), (live, peak));
            prop_assert_eq!(statistics.allocations, served);
            prop_assert!(statistics.reserved_bytes <= statistics.peak_reserved_bytes);
            let by_owner = pool.owner_statistics();
            prop_assert_eq!(by_owner.iter().map(|owner| owner.live_bytes).sum::<u64>(), live);
            prop_assert_eq!(by_owner.iter().map(|owner| owner.allocations).sum::<u64>(), served);
        }
        let dump = pool.dump();
        assert_dump_ends_in_now(&dump, &pool);
        prop_assert!(dump.trace.events.len() <= events);
        prop_assert!(!dump.trace.complete || dump.trace.events.len() >= happened);
        for (block, tag) in &blocks {
            prop_assert!(block.as_slice().iter().all(|byte| byte == tag));
        }
        blocks.clear();
        pool.trim();
        let statistics = pool.statistics();
        prop_assert_eq!((statistics.live_bytes, statistics.reserved_bytes), (0, 0));
        pool.reset_peak();
        prop_assert_eq!((pool.statistics().peak_bytes, pool.statistics().peak_reserved_bytes), (0, 0));
    }
}

#[test]
fn threads_share_a_pool_and_never_a_byte() {
    let pool = Pool::new(None);
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let pool = pool.clone();
            scope.spawn(move || {
                let mut kept = vec![];
                for round in 0..300usize {
                    let mut block = pool.allocate((round * 37 % 5000 * 64) as u64).unwrap();
                    block.as_mut_slice().fill(thread);
                    kept.push(block);
                    if kept.len() > 8 {
                        let old = kept.swap_remove(round % 8);
                        assert!(old.as_slice().iter().all(|&byte| byte == thread));
                    }
                }
            });
        }
    });
    assert_eq!(pool.statistics().live_bytes, 0);
    assert_eq!(pool.statistics().allocations, 1200);
    assert_dump_ends_in_now(&pool.dump(), &pool);
}

#[test]
fn a_block_outlives_the_handles_to_its_pool() {
    let mut block = Pool::new(None).allocate(5 * MIB).unwrap();
    block.as_mut_slice().fill(3);
    assert_eq!(block.as_slice()[5 * MIB as usize - 1], 3);
}

#[test]
fn out_of_memory_says_who_holds_it_and_what_to_do_and_the_program_goes_on() {
    let pool = Pool::new(Some(10 * MIB));
    let [weights, cache] = ["model/weights", "train/kept"].map(|path| pool.owner(path));
    let held = [pool.allocate_for(weights, 2 * MIB).unwrap(), pool.allocate_for(cache, 7 * MIB).unwrap()];
    let error = pool.allocate_for(weights, 3 * MIB).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OverLimit);
    let shortage = error.shortage().unwrap();
    assert_eq!((shortage.requested_bytes, shortage.live_bytes), (3 * MIB, 9 * MIB));
    assert_eq!(shortage.limit_bytes, Some(10 * MIB));
    assert_eq!(shortage.holders[0], ("train/kept".into(), 7 * MIB));
    assert_eq!(shortage.holders[1], ("model/weights".into(), 2 * MIB));
    let text = error.to_string();
    for said in ["3145728 bytes", "9437184 of 10485760 bytes", "train/kept", &(12 * MIB).to_string()] {
        assert!(text.contains(said), "{said} is missing in: {text}");
    }
    // A machine that runs these tests has 3 MiB left, where that can be asked.
    assert!(matches!(shortage.cause, Cause::LimitLow | Cause::TooBig));
    drop(held);
    pool.allocate(10 * MIB).unwrap();
    assert_eq!(pool.statistics().refusals, 1);
    let dump = pool.dump();
    assert!(dump.trace.events.iter().any(|event| matches!(event.action, Action::Refuse(_))));
}

#[test]
fn each_cause_of_a_shortage_is_told_apart() {
    let on = |device_bytes: u64, limit: Option<u64>| {
        let settings = PoolSettings { reserved_limit: limit, ..PoolSettings::default() };
        Pool::on(Box::new(CountedDevice::new(device_bytes, 2 * MIB)), settings)
    };
    let cause = |pool: &Pool, bytes| pool.allocate(bytes).unwrap_err().shortage().unwrap().cause;
    // The device is larger than the limit.
    assert_eq!(cause(&on(100 * MIB, Some(10 * MIB)), 20 * MIB), Cause::LimitLow);
    assert_eq!(cause(&on(100 * MIB, Some(10 * MIB)), 200 * MIB), Cause::TooBig);
    // Nothing limits the pool but what the device has.
    let full = on(10 * MIB, None);
    assert_eq!(cause(&full, 20 * MIB), Cause::DeviceFull);
    // Every page is in use for a few bytes of it.
    let holed = on(10 * MIB, Some(10 * MIB));
    let all: Vec<Block> = (0..10).map(|_| holed.allocate(MIB).unwrap()).collect();
    let _kept: Vec<Block> = all.into_iter().step_by(2).collect();
    assert_eq!(cause(&holed, 4 * MIB), Cause::Fragmented);
    // The bytes are the device's: there is nothing to see from here.
    assert!(full.allocate(100).unwrap().as_slice().is_empty());
}

#[test]
fn logical_devices_have_what_they_were_promised_and_give_it_back() {
    let device = PhysicalDevice::host(20 * MIB);
    let (first, second) =
        (device.logical("first", 12 * MIB).unwrap(), device.logical("second", 8 * MIB).unwrap());
    assert_eq!(device.logical("third", MIB).unwrap_err().kind(), ErrorKind::OverLimit);
    let error = second.allocate(9 * MIB).unwrap_err();
    assert_eq!(error.shortage().unwrap().cause, Cause::LimitLow, "the device is empty: {error}");
    let mut block = first.allocate(12 * MIB).unwrap();
    block.as_mut_slice().fill(1);
    let other = second.allocate(8 * MIB).unwrap();
    assert_eq!(device.reserved_bytes(), 20 * MIB);
    assert_eq!(second.allocate(MIB).unwrap_err().shortage().unwrap().cause, Cause::TooBig);
    drop((second, other));
    assert_eq!((device.reserved_bytes(), device.unclaimed_bytes()), (12 * MIB, Some(8 * MIB)));
    device.logical("third", 8 * MIB).unwrap().allocate(8 * MIB).unwrap();
    assert!(block.as_slice().iter().all(|&byte| byte == 1));
    drop(first);
    assert_eq!(device.unclaimed_bytes(), Some(8 * MIB), "a block keeps its pool");
    drop(block);
    assert_eq!((device.reserved_bytes(), device.unclaimed_bytes()), (0, Some(20 * MIB)));
}

#[test]
fn a_ring_that_has_wrapped_knows_what_was_live_before_it_began() {
    let pool = Pool::host(PoolSettings { events: 8, ..PoolSettings::default() });
    let owner = pool.owner("kept");
    let kept: Vec<Block> = (1..=5).map(|n| pool.allocate_for(owner, n * 1000).unwrap()).collect();
    for _ in 0..20 {
        pool.allocate(500).unwrap();
        pool.mark("step");
    }
    let dump = pool.dump();
    assert!(!dump.trace.complete);
    assert_eq!(dump.trace.events.len(), 8);
    let initial: Vec<u64> = dump.trace.initial.iter().map(|&id| dump.trace.request(id).bytes).collect();
    assert_eq!(initial.iter().filter(|&&bytes| bytes >= 1000).sum::<u64>(), 15_000);
    assert_eq!(dump.trace.marks, ["step"]);
    assert_dump_ends_in_now(&dump, &pool);
    drop(kept);
}

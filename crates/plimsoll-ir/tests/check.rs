//! The checker refuses every plan that is not one of the work, with the reason, and never panics: plans come from files
//! and from other people's planners.

use plimsoll_ir::{Buffer, ErrorKind, Home, Keep, Kernel, Plan, Role, Work, check};
use proptest::prelude::*;

fn buffer(bytes: u64, keep: Keep) -> Buffer {
    Buffer { bytes, role: Role::Activation, keep, home: Home::Device }
}

fn kernel(reads: &[u32], writes: &[u32], workspace: u64) -> Kernel {
    Kernel { reads: reads.to_vec(), writes: writes.to_vec(), workspace, ..Kernel::default() }
}

/// An input, a kernel with a workspace, a value, another kernel, a result.
fn chain() -> Work {
    Work {
        buffers: vec![buffer(64, Keep::FromStart), buffer(64, Keep::WhileUsed), buffer(64, Keep::ToEnd)],
        kernels: vec![kernel(&[0], &[1], 128), kernel(&[1], &[2], 0)],
        rematerializations: vec![],
    }
}

/// The result lies where the first kernel's workspace was.
fn plan_of_chain() -> Plan {
    Plan {
        order: vec![0, 1],
        offsets: vec![0, 64, 128],
        workspace_offsets: vec![128, 0],
        workspace_bytes: vec![128, 0],
        alignment: 64,
        peak_bytes: 256,
        host_bytes: 0,
        lower_bound_bytes: 256,
        peak_position: 0,
    }
}

/// Why the chain's plan is refused after a change.
fn refused(change: impl FnOnce(&mut Work, &mut Plan)) -> String {
    let (mut work, mut plan) = (chain(), plan_of_chain());
    check(&work, &plan).expect("it is sound before the change");
    change(&mut work, &mut plan);
    let error = check(&work, &plan).expect_err("it is not sound after the change");
    assert_eq!(error.kind(), ErrorKind::InvalidPlan);
    error.to_string()
}

#[test]
fn a_workspace_smaller_than_its_kernel_needs_is_refused() {
    let why = refused(|_, plan| plan.workspace_bytes[0] = 127);
    assert_eq!(why, "kernel 0 needs 128 bytes of workspace where the plan has 127");
    let why = refused(|work, _| work.kernels[1].workspace = 1);
    assert_eq!(why, "kernel 1 needs 1 bytes of workspace where the plan has 0");
}

#[test]
fn a_workspace_may_be_larger_than_its_kernel_needs() {
    let (mut work, plan) = (chain(), plan_of_chain());
    work.kernels[0].workspace = 1;
    check(&work, &plan).expect("the plan has room");
}

#[test]
fn a_workspace_over_a_live_buffer_or_outside_of_the_arena_is_refused() {
    let why = refused(|_, plan| plan.workspace_offsets[0] = 64);
    assert!(why.contains("writes over its own workspace"), "{why}");
    let why = refused(|work, plan| {
        (work.kernels[0].workspace, plan.workspace_bytes[0], plan.workspace_offsets[0]) = (64, 64, 0);
    });
    assert!(why.contains("writes over buffer 0 that it reads"), "{why}");
    for (offset, bytes) in [(192, 128), (u64::MAX - 63, 128), (0, u64::MAX), (256, 128)] {
        let why = refused(|_, plan| {
            (plan.workspace_offsets[0], plan.workspace_bytes[0]) = (offset, bytes);
        });
        assert!(why.contains("workspace of kernel 0 is outside"), "{why}");
    }
}

#[test]
fn offsets_and_sizes_that_overflow_are_refused() {
    for offset in [u64::MAX, u64::MAX - 63, 256, 193] {
        for b in 0..3 {
            let why = refused(|_, plan| plan.offsets[b] = offset);
            assert!(why.contains(&format!("buffer {b} at {offset}")), "{why}");
        }
    }
    let why = refused(|work, _| work.buffers[1].bytes = u64::MAX);
    assert!(why.contains("buffer 1 at 64"), "{why}");
    let why = refused(|_, plan| plan.peak_bytes = u64::MAX);
    assert!(why.contains("beyond what can be addressed"), "{why}");
    let why = refused(|_, plan| plan.host_bytes = u64::MAX);
    assert!(why.contains("beyond what can be addressed"), "{why}");
    let why = refused(|work, plan| {
        work.buffers[1].home = Home::Host;
        (plan.offsets[1], plan.host_bytes) = (u64::MAX - 127, 64);
    });
    assert!(why.contains("buffer 1 at"), "{why}");
}

#[test]
fn an_alignment_that_is_none_is_refused() {
    for alignment in [0, 3, 65] {
        let why = refused(|_, plan| plan.alignment = alignment);
        assert!(why.contains(&format!("an alignment of {alignment} bytes")), "{why}");
    }
    let why = refused(|_, plan| plan.alignment = 128);
    assert!(why.contains("buffer 1 at 64 is no multiple of 128"), "{why}");
}

#[test]
fn other_counts_than_the_works_are_refused() {
    let changes: [fn(&mut Plan); 6] = [
        |plan| plan.offsets.truncate(2),
        |plan| plan.offsets.push(0),
        |plan| plan.workspace_offsets.truncate(1),
        |plan| plan.workspace_bytes.truncate(1),
        |plan| plan.workspace_bytes.push(0),
        |plan| plan.workspace_offsets.clear(),
    ];
    for change in changes {
        let why = refused(|_, plan| change(plan));
        assert!(why.contains("the work has 3 buffers and 2 kernels"), "{why}");
    }
    for order in [vec![], vec![0], vec![0, 0], vec![0, 1, 1], vec![0, 2], vec![0, u32::MAX]] {
        let why = refused(|_, plan| plan.order = order);
        assert_eq!(why, "the order does not run each of 2 kernels once");
    }
}

#[test]
fn a_kernel_that_names_what_there_is_not_is_refused() {
    let changes: [fn(&mut Kernel); 5] = [
        |kernel| kernel.reads.push(3),
        |kernel| kernel.writes.push(u32::MAX),
        |kernel| kernel.in_place.push((2, 9)),
        |kernel| kernel.in_place.push((1, 1)),
        |kernel| kernel.in_place.push((2, 0)),
    ];
    for change in changes {
        let why = refused(|work, _| change(&mut work.kernels[1]));
        assert!(why.starts_with("kernel 1 names a buffer that there is not"), "{why}");
    }
}

#[test]
fn a_read_before_its_write_is_refused() {
    let why = refused(|_, plan| plan.order = vec![1, 0]);
    assert!(why.contains("kernel 1 at position 0 does not find buffer 1"), "{why}");
}

/// Two results may each replace the operand; the larger lies elsewhere, and the smaller in its place.
#[test]
fn the_result_that_replaces_an_operand_is_the_one_at_its_address() {
    let replacing = Kernel { in_place: vec![(1, 0), (2, 0)], ..kernel(&[0], &[1, 2], 0) };
    let keeps = [(64, Keep::FromStart), (128, Keep::ToEnd), (64, Keep::ToEnd)];
    let work = Work {
        buffers: keeps.map(|(bytes, keep)| buffer(bytes, keep)).to_vec(),
        kernels: vec![replacing],
        rematerializations: vec![],
    };
    let plan = Plan {
        order: vec![0],
        offsets: vec![0, 64, 0],
        workspace_offsets: vec![0],
        workspace_bytes: vec![0],
        peak_bytes: 192,
        ..plan_of_chain()
    };
    check(&work, &plan).expect("only one result is where the operand was");
}

/// Sizes and offsets: mostly those of a small arena, sometimes at the end of what a number holds.
fn extent() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => (0..6u64).prop_map(|units| units * 64),
        1 => 0..300u64,
        1 => (0..200u64).prop_map(|below| u64::MAX - below),
        1 => any::<u64>(),
    ]
}

/// Indices: mostly of what there is.
fn index(count: usize) -> impl Strategy<Value = u32> {
    let count = count.max(1) as u32;
    prop_oneof![12 => 0..count, 1 => 0..count + 3, 1 => any::<u32>()]
}

/// As many numbers as there should be, mostly.
fn numbers(count: usize) -> impl Strategy<Value = Vec<u64>> {
    let exactly = prop::collection::vec(extent(), count);
    prop_oneof![12 => exactly, 1 => prop::collection::vec(extent(), 0..8)]
}

fn any_buffer() -> impl Strategy<Value = Buffer> {
    let keeps = vec![Keep::Always, Keep::FromStart, Keep::ToEnd, Keep::WhileUsed];
    let homes = vec![Home::Device, Home::Device, Home::Host];
    (extent(), prop::sample::select(keeps), prop::sample::select(homes))
        .prop_map(|(bytes, keep, home)| Buffer { bytes, role: Role::Activation, keep, home })
}

fn any_kernel(buffers: usize) -> impl Strategy<Value = Kernel> {
    let list = || prop::collection::vec(index(buffers), 0..4);
    // Pairs are of what is read and written, mostly.
    let pairs = prop::collection::vec((0..4usize, 0..4usize, any::<u8>()), 0..3);
    (list(), list(), pairs, extent()).prop_map(|(reads, writes, pairs, workspace)| {
        let pick = |of: &[u32], at: usize| of.get(at % of.len().max(1)).copied().unwrap_or(0);
        let pair = |(w, r, odd): (usize, usize, u8)| {
            if odd < 16 { (w as u32, r as u32) } else { (pick(&writes, w), pick(&reads, r)) }
        };
        let in_place = pairs.into_iter().map(pair).collect();
        Kernel { reads, writes, in_place, workspace, ..Kernel::default() }
    })
}

fn any_work_and_plan() -> impl Strategy<Value = (Work, Plan)> {
    (0..6usize, 0..5usize).prop_flat_map(|(buffers, kernels)| {
        let work = (
            prop::collection::vec(any_buffer(), buffers),
            prop::collection::vec(any_kernel(buffers), kernels),
        );
        let order = Just((0..kernels as u32).collect::<Vec<u32>>()).prop_shuffle();
        let order = prop_oneof![12 => order, 1 => prop::collection::vec(index(kernels), 0..6)];
        let alignment = prop_oneof![12 => Just(64u64), 1 => Just(1u64), 1 => any::<u64>()];
        let bytes = || prop_oneof![8 => Just(1u64 << 10), 1 => extent(), 1 => Just(u64::MAX)];
        let places = (numbers(buffers), numbers(kernels), numbers(kernels));
        (work, order, places, alignment, bytes(), bytes()).prop_map(
            |((buffers, kernels), order, places, alignment, peak_bytes, host_bytes)| {
                let (offsets, workspace_offsets, workspace_bytes) = places;
                let plan = Plan {
                    order,
                    offsets,
                    workspace_offsets,
                    workspace_bytes,
                    alignment,
                    peak_bytes,
                    host_bytes,
                    lower_bound_bytes: 0,
                    peak_position: 0,
                };
                (Work { buffers, kernels, rematerializations: vec![] }, plan)
            },
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// What passes keeps its promise that all offsets are inside of the arenas, in numbers that do not wrap.
    #[test]
    fn garbage_is_refused_without_a_panic((work, plan) in any_work_and_plan()) {
        if check(&work, &plan).is_ok() {
            for (buffer, &offset) in work.buffers.iter().zip(&plan.offsets) {
                let arena = if buffer.home == Home::Host { plan.host_bytes } else { plan.peak_bytes };
                prop_assert!(offset.checked_add(buffer.bytes).is_some_and(|end| end <= arena));
                prop_assert_eq!(offset % plan.alignment, 0);
            }
            for (k, kernel) in work.kernels.iter().enumerate() {
                let (offset, bytes) = (plan.workspace_offsets[k], plan.workspace_bytes[k]);
                prop_assert!(bytes >= kernel.workspace);
                prop_assert!(offset.checked_add(bytes).is_some_and(|end| end <= plan.peak_bytes));
            }
        }
    }
}

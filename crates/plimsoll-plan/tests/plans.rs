//! Plans of random work pass the independent check, and broken plans do not.

use plimsoll_ir::{Buffer, ErrorKind, Home, Keep, Kernel, Plan, Role, Work, check};
use plimsoll_plan::{Effort, Options, plan};
use proptest::prelude::*;

const OPTIONS: Options = Options { alignment: 64, effort: Effort { steps: 10_000 }, together_bytes: 0 };

/// Work whose kernels each read some earlier buffers, update a persistent one now and then, and write one or
/// two new buffers, perhaps in place.
fn random_work() -> impl Strategy<Value = Work> {
    let kernel =
        (prop::collection::vec(any::<prop::sample::Index>(), 0..4), 1usize..3, 0u64..300, any::<u8>());
    (prop::collection::vec(kernel, 1..40), prop::collection::vec(1u64..2000, 80), 0usize..4).prop_map(
        |(kernels, sizes, persistent)| {
            let mut sizes = sizes.into_iter().cycle();
            let mut size = move || sizes.next().unwrap_or(1);
            let mut work = Work::default();
            for _ in 0..persistent {
                let buffer =
                    Buffer { bytes: size(), role: Role::Parameter, keep: Keep::Always, home: Home::Device };
                work.buffers.push(buffer);
            }
            work.buffers.push(Buffer {
                bytes: size(),
                role: Role::Input,
                keep: Keep::FromStart,
                home: Home::Device,
            });
            for (picks, results, workspace, flags) in kernels {
                let known = work.buffers.len();
                let mut reads: Vec<u32> = picks.iter().map(|p| p.index(known) as u32).collect();
                reads.dedup();
                let mut writes = vec![];
                for _ in 0..results {
                    let keep = if flags % 11 == 0 { Keep::ToEnd } else { Keep::WhileUsed };
                    work.buffers.push(Buffer {
                        bytes: size(),
                        role: Role::Activation,
                        keep,
                        home: Home::Device,
                    });
                    writes.push(work.buffers.len() as u32 - 1);
                }
                let in_place = if flags % 2 == 0 {
                    reads.iter().filter(|&&r| r as usize >= persistent).map(|&r| (writes[0], r)).collect()
                } else {
                    vec![]
                };
                if persistent > 0 && flags % 5 == 0 {
                    writes.push(u32::from(flags) % persistent as u32);
                }
                work.kernels.push(Kernel { reads, writes, in_place, workspace, ..Kernel::default() });
            }
            work
        },
    )
}

/// The most bytes that live at once when kernels run as written, every buffer apart.
fn naive_peak(work: &Work) -> u64 {
    let aligned = |b: usize| work.buffers[b].bytes.next_multiple_of(64);
    let touches = |k: usize, b: usize| {
        let kernel = &work.kernels[k];
        kernel.reads.contains(&(b as u32)) || kernel.writes.contains(&(b as u32))
    };
    let n = work.kernels.len();
    (0..n)
        .map(|now| {
            let live = (0..work.buffers.len()).filter(|&b| {
                let first = (0..n).find(|&k| touches(k, b));
                let last = (0..n).rev().find(|&k| touches(k, b));
                match work.buffers[b].keep {
                    Keep::Always => true,
                    Keep::FromStart => last.unwrap_or(0) >= now,
                    Keep::ToEnd => first.is_some_and(|f| f <= now),
                    Keep::WhileUsed => first.is_some_and(|f| f <= now) && last.is_some_and(|l| l >= now),
                }
            });
            live.map(aligned).sum::<u64>() + work.kernels[now].workspace.next_multiple_of(64)
        })
        .max()
        .unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn every_plan_passes_the_check(work in random_work()) {
        let plan = plan(&work, &OPTIONS).unwrap();
        prop_assert!(check(&work, &plan).is_ok(), "{:?}", check(&work, &plan));
        prop_assert!(plan.peak_bytes >= plan.lower_bound_bytes);
        prop_assert!(plan.lower_bound_bytes <= naive_peak(&work));
    }

    #[test]
    fn the_ledger_sums_to_the_peak(work in random_work()) {
        let plan = plan(&work, &OPTIONS).unwrap();
        prop_assert_eq!(plan.ledger(&work).total(), plan.peak_bytes);
    }

    #[test]
    fn what_survives_lies_at_the_bottom_in_its_declared_order(work in random_work()) {
        let plan = plan(&work, &OPTIONS).unwrap();
        let mut end = 0;
        for (b, buffer) in work.buffers.iter().enumerate().filter(|(_, b)| b.keep == Keep::Always) {
            prop_assert_eq!(plan.offsets[b], end);
            end += buffer.bytes.next_multiple_of(64);
        }
    }

    /// Moving any one buffer that is used elsewhere either stays valid or is found out; a validator that
    /// accepts everything fails the directed tests below.
    #[test]
    fn a_kernel_moved_before_what_it_reads_is_found_out(work in random_work()) {
        let good = plan(&work, &OPTIONS).unwrap();
        let reader = good.order.iter().position(|&k| {
            let first = work.kernels[k as usize].reads.iter();
            first.into_iter().any(|&r| work.buffers[r as usize].keep == Keep::WhileUsed)
        });
        if let Some(position) = reader.filter(|&p| p > 0) {
            let mut bad = good.clone();
            let kernel = bad.order.remove(position);
            bad.order.insert(0, kernel);
            prop_assert_eq!(check(&work, &bad).unwrap_err().kind(), ErrorKind::InvalidPlan);
        }
    }
}

fn activation(bytes: u64) -> Buffer {
    Buffer { bytes, role: Role::Activation, keep: Keep::WhileUsed, home: Home::Device }
}

fn kernel(reads: &[u32], writes: &[u32]) -> Kernel {
    Kernel { reads: reads.into(), writes: writes.into(), ..Kernel::default() }
}

fn a_chain() -> (Work, Plan) {
    let work = Work {
        buffers: vec![activation(640), activation(640), activation(640)],
        kernels: vec![kernel(&[], &[0]), kernel(&[0], &[1]), kernel(&[0, 1], &[2]), kernel(&[2], &[])],
        rematerializations: vec![],
    };
    let plan = plan(&work, &OPTIONS).unwrap();
    (work, plan)
}

#[test]
fn two_live_buffers_at_one_address_are_found_out() {
    let (work, mut plan) = a_chain();
    plan.offsets[1] = plan.offsets[0];
    assert_eq!(check(&work, &plan).unwrap_err().kind(), ErrorKind::InvalidPlan);
}

#[test]
fn a_buffer_beyond_the_peak_is_found_out() {
    let (work, mut plan) = a_chain();
    plan.offsets[2] = plan.peak_bytes;
    assert!(check(&work, &plan).is_err());
}

#[test]
fn a_buffer_off_its_alignment_is_found_out() {
    let (work, mut plan) = a_chain();
    plan.offsets[0] += 1;
    assert!(check(&work, &plan).is_err());
}

#[test]
fn a_kernel_that_runs_twice_is_found_out() {
    let (work, mut plan) = a_chain();
    plan.order[3] = 0;
    assert!(check(&work, &plan).is_err());
}

#[test]
fn a_result_over_an_operand_that_is_not_declared_replaceable_is_found_out() {
    let work = Work {
        buffers: vec![activation(640), activation(640)],
        kernels: vec![kernel(&[], &[0]), kernel(&[0], &[1]), kernel(&[1], &[])],
        rematerializations: vec![],
    };
    let mut plan = plan(&work, &OPTIONS).unwrap();
    plan.offsets = vec![0, 0];
    assert!(check(&work, &plan).is_err());
    let mut allowed = work.clone();
    allowed.kernels[1].in_place = vec![(1, 0)];
    assert!(check(&allowed, &plan).is_ok());
}

#[test]
fn a_workspace_over_a_live_buffer_is_found_out() {
    let mut work = a_chain().0;
    work.kernels[1].workspace = 64;
    let mut plan = plan(&work, &OPTIONS).unwrap();
    assert!(check(&work, &plan).is_ok());
    plan.workspace_offsets[1] = plan.offsets[0];
    assert!(check(&work, &plan).is_err());
}

#[test]
fn a_lost_update_is_found_out() {
    let work = Work {
        buffers: vec![
            Buffer { bytes: 64, role: Role::Parameter, keep: Keep::Always, home: Home::Device },
            activation(64),
        ],
        kernels: vec![kernel(&[0], &[0]), kernel(&[], &[1])],
        rematerializations: vec![],
    };
    let mut plan = plan(&work, &OPTIONS).unwrap();
    assert!(check(&work, &plan).is_ok());
    plan.offsets[1] = plan.offsets[0];
    assert!(check(&work, &plan).is_err());
}

#[test]
fn a_result_replaces_its_operand_where_that_is_allowed() {
    let mut work = Work {
        buffers: vec![activation(6400), activation(6400)],
        kernels: vec![kernel(&[], &[0]), kernel(&[0], &[1]), kernel(&[1], &[])],
        rematerializations: vec![],
    };
    assert_eq!(plan(&work, &OPTIONS).unwrap().peak_bytes, 12_800);
    work.kernels[1].in_place = vec![(1, 0)];
    assert_eq!(plan(&work, &OPTIONS).unwrap().peak_bytes, 6_400);
}

/// Ten layers whose gradients are only used by an update each, all written after the last gradient: kernel `11 + layer`.
fn layers_and_updates(gradient: impl Fn(u32) -> u64) -> Work {
    let mut work = Work::default();
    for _ in 0..10 {
        work.buffers.push(Buffer {
            bytes: 64,
            role: Role::Parameter,
            keep: Keep::Always,
            home: Home::Device,
        });
    }
    work.buffers.push(activation(64));
    work.kernels.push(kernel(&[], &[10]));
    for layer in 0..10 {
        work.buffers.push(activation(gradient(layer)));
        work.kernels.push(kernel(&[layer, 10], &[11 + layer]));
    }
    for layer in 0..10 {
        work.kernels.push(kernel(&[layer, 11 + layer], &[layer]));
    }
    work
}

#[test]
fn updates_run_as_soon_as_their_gradients_are_there() {
    let work = layers_and_updates(|_| 6400);
    let plan = plan(&work, &OPTIONS).unwrap();
    check(&work, &plan).unwrap();
    assert_eq!(plan.peak_bytes, 10 * 64 + 64 + 6400);
}

#[test]
fn updates_by_small_gradients_come_last_where_that_is_asked_for() {
    let work = layers_and_updates(|layer| if layer % 2 == 0 { 640 } else { 6400 });
    let plan = plan(&work, &Options { together_bytes: 640, ..OPTIONS }).unwrap();
    check(&work, &plan).unwrap();
    let mut last = plan.order[plan.order.len() - 5..].to_vec();
    last.sort_unstable();
    assert_eq!(last, [11, 13, 15, 17, 19]);
    assert_eq!(plan.peak_bytes, 10 * 64 + 64 + 5 * 640 + 6400, "one large gradient at a time, as before");
}

#[test]
fn small_copies_of_parameters_come_first_where_that_is_asked_for() {
    let parameter = |bytes| Buffer { bytes, role: Role::Parameter, keep: Keep::Always, home: Home::Device };
    let mut work = Work {
        buffers: vec![parameter(64), parameter(6400), parameter(64)],
        kernels: vec![
            kernel(&[], &[3]),
            kernel(&[0], &[4]),
            kernel(&[3, 4], &[2]),
            kernel(&[1], &[5]),
            kernel(&[2], &[6]),
            kernel(&[0], &[7]),
            kernel(&[5, 6, 7], &[]),
        ],
        rematerializations: vec![],
    };
    work.buffers.extend([64, 64, 6400, 64, 64].map(activation));
    let plan = plan(&work, &Options { together_bytes: 64, ..OPTIONS }).unwrap();
    check(&work, &plan).unwrap();
    let mut first = plan.order[..2].to_vec();
    first.sort_unstable();
    assert_eq!(first, [1, 5], "neither the large copy nor that of what was updated");
}

#[test]
fn work_without_kernels_needs_only_what_survives() {
    let work = Work {
        buffers: vec![Buffer { bytes: 100, role: Role::Parameter, keep: Keep::Always, home: Home::Device }],
        kernels: vec![],
        rematerializations: vec![],
    };
    let plan = plan(&work, &OPTIONS).unwrap();
    check(&work, &plan).unwrap();
    assert_eq!(plan.peak_bytes, 128);
}

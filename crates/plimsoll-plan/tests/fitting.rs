//! Fitted work passes both independent checks at every budget, and the frontier is monotone.

use plimsoll_ir::{Buffer, Home, Keep, Kernel, LaunchSource, Role, Work};
use plimsoll_plan::{Copies, Costs, Effort, Fitted, Frontier, Offload, Options, check_remedies, lower_bound};
use proptest::prelude::*;
use steps::{offload, step, verify};

const OPTIONS: Options = Options { alignment: 64, effort: Effort { steps: 10_000 }, together_bytes: 0 };

mod steps;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_point_of_the_frontier_passes_both_checks(
        (work, costs) in step(1..14),
        offload in offload(),
        together_bytes in prop_oneof![Just(0), 1u64..5000],
    ) {
        let options = Options { together_bytes, ..OPTIONS };
        let frontier = Frontier::new(work.clone(), costs.clone(), &options, offload);
        for point in 0..frontier.points().count() {
            let fitted = frontier.at(point).unwrap().unwrap();
            verify(&work, &fitted)?;
        }
    }

    #[test]
    fn the_frontier_is_monotone((work, costs) in step(1..14), offload in offload()) {
        let frontier = Frontier::new(work.clone(), costs.clone(), &OPTIONS, offload);
        let points: Vec<(u64, f64)> = frontier.points().collect();
        for (n, pair) in points.windows(2).enumerate() {
            // What copies take besides kernels may cost nothing: then only memory tells it from the plain step.
            let slower = pair[1].1 > pair[0].1 || (n == 0 && pair[1].1 == pair[0].1);
            prop_assert!(pair[1].0 < pair[0].0 && slower, "{points:?}");
        }
        let (most, least) = (points[0].0, points[points.len() - 1].0);
        let mut previous: Option<Fitted> = None;
        for part in 0..=20 {
            let budget = most + 64 - (most - least) * part / 20;
            let Some(fitted) = frontier.within(budget).unwrap() else {
                // Nothing smaller fits either.
                prop_assert!(frontier.within(least.saturating_sub(1)).unwrap().is_none());
                break;
            };
            prop_assert!(fitted.plan.peak_bytes <= budget);
            if let Some(previous) = previous {
                prop_assert!(fitted.plan.peak_bytes <= previous.plan.peak_bytes);
                prop_assert!(fitted.seconds >= previous.seconds);
            }
            previous = Some(fitted);
        }
    }

    /// Far down is searched as far as it is asked for, and what is found there is the same however it was asked.
    #[test]
    fn what_a_budget_gets_does_not_depend_on_what_was_asked_before(
        (work, costs) in step(1..14),
        offload in offload(),
        budgets in prop::collection::vec(0u64..20_000, 1..4),
    ) {
        let all: Vec<(u64, f64)> = Frontier::new(work.clone(), costs.clone(), &OPTIONS, offload).points().collect();
        let asked = Frontier::new(work.clone(), costs.clone(), &OPTIONS, offload);
        for budget in budgets {
            let fresh = Frontier::new(work.clone(), costs.clone(), &OPTIONS, offload).within(budget).unwrap();
            let plan = |fitted: Option<Fitted>| fitted.map(|of| (of.plan.peak_bytes, of.seconds, of.sources));
            prop_assert_eq!(plan(asked.within(budget).unwrap()), plan(fresh));
            for (point, (_, seconds)) in all.iter().enumerate() {
                prop_assert!(asked.seconds_from(point) <= *seconds);
            }
        }
        prop_assert_eq!(asked.points().collect::<Vec<_>>(), all);
    }

    #[test]
    fn no_plan_takes_more_of_the_host_than_it_may(
        (work, costs) in step(1..14),
        offload in offload(),
        part in 0.0f64..1.0,
    ) {
        let frontier = Frontier::new(work.clone(), costs.clone(), &OPTIONS, offload);
        let taken = |frontier: &Frontier| -> Vec<u64> {
            (0..frontier.points().count()).map(|p| frontier.at(p).unwrap().unwrap().plan.host_bytes).collect()
        };
        // Some states rest on the host in any case.
        let of_states: u64 = work.buffers.iter().filter(|b| b.home == Home::Host).map(|b| b.bytes.next_multiple_of(64)).sum();
        let most = taken(&frontier).into_iter().max().unwrap_or(0);
        let host_bytes = of_states + ((most - of_states) as f64 * part) as u64;
        let frontier = Frontier::new(work.clone(), Costs { host_bytes, ..costs }, &OPTIONS, offload);
        prop_assert!(taken(&frontier).into_iter().all(|bytes| bytes <= host_bytes), "{:?}", taken(&frontier));
        for point in 0..frontier.points().count() {
            verify(&work, &frontier.at(point).unwrap().unwrap())?;
        }
    }

    #[test]
    fn no_plan_goes_below_the_lower_bound((work, costs) in step(1..14), offload in offload()) {
        let bound = lower_bound(&work, OPTIONS.alignment, offload).bytes;
        let frontier = Frontier::new(work, costs, &OPTIONS, offload);
        let points: Vec<(u64, f64)> = frontier.points().collect();
        prop_assert!(points.iter().all(|p| p.0 >= bound), "{points:?} below {bound}");
    }

    #[test]
    fn no_way_to_run_a_tiny_program_takes_less_than_the_bound(
        values in prop::collection::vec((1u64..1000, any::<u8>(), 0u64..300), 1..7),
    ) {
        let mut work = Work::default();
        for (i, &(bytes, reads, workspace)) in values.iter().enumerate() {
            work.buffers.push(activation(bytes));
            let reads = (0..i as u32).filter(|&earlier| reads >> earlier & 1 == 1).collect();
            work.kernels.push(Kernel { reads, writes: vec![i as u32], workspace, ..Kernel::default() });
        }
        let bound = lower_bound(&work, OPTIONS.alignment, Offload::Nothing).bytes;
        prop_assert!(bound <= least_of_all_ways(&work), "{bound} of {work:?}");
    }

    /// Taking anything away from what was fitted, or exchanging what is read, is found out.
    #[test]
    fn a_lost_or_exchanged_launch_is_found_out((work, costs) in step(1..14), pick in any::<prop::sample::Index>()) {
        let frontier = Frontier::new(work.clone(), costs.clone(), &OPTIONS, Offload::ValuesAndStates);
        let mut fitted = frontier.at(frontier.points().count() - 1).unwrap().unwrap();
        let made_again: Vec<usize> = (0..fitted.sources.len())
            .filter(|&p| matches!(fitted.sources[p], LaunchSource::Again(_) | LaunchSource::Rematerialize(_) | LaunchSource::Copy))
            .collect();
        if made_again.is_empty() {
            return Ok(());
        }
        let lost = made_again[pick.index(made_again.len())];
        fitted.work.kernels.remove(lost);
        fitted.sources.remove(lost);
        fitted.plan.order.pop();
        prop_assert!(check_remedies(&work, &fitted).is_err());
    }
}

fn activation(bytes: u64) -> Buffer {
    Buffer { bytes, role: Role::Activation, keep: Keep::WhileUsed, home: Home::Device }
}

/// The least bytes in which each kernel can be run at least once, whatever is dropped and made again: by trying all ways. Each
/// kernel writes the buffer of its number and no other.
fn least_of_all_ways(work: &Work) -> u64 {
    let n = work.kernels.len();
    let bytes = |set: usize| -> u64 {
        let live = (0..n).filter(|i| set >> i & 1 == 1);
        live.map(|i| work.buffers[i].bytes.next_multiple_of(OPTIONS.alignment)).sum()
    };
    // By what is there and what has been run: the least peak of a way to it.
    let mut least = vec![u64::MAX; 1 << (2 * n)];
    let mut open = std::collections::BTreeSet::from([(0, 0)]);
    least[0] = 0;
    while let Some((peak, state)) = open.pop_first() {
        let (live, done) = (state >> n, state & ((1 << n) - 1));
        if done == (1 << n) - 1 {
            return peak;
        }
        let drops = (0..n).filter(|i| live >> i & 1 == 1).map(|i| (peak, (live & !(1 << i)) << n | done));
        let runs = (0..n).filter(|&k| work.kernels[k].reads.iter().all(|&r| live >> r & 1 == 1)).map(|k| {
            let after = live | 1 << k;
            let needs = bytes(after) + work.kernels[k].workspace.next_multiple_of(OPTIONS.alignment);
            (peak.max(needs), after << n | done | 1 << k)
        });
        for (peak, state) in drops.chain(runs).collect::<Vec<_>>() {
            if peak < least[state] {
                least[state] = peak;
                open.insert((peak, state));
            }
        }
    }
    unreachable!("all kernels can be run one after another")
}

#[test]
fn the_bound_counts_what_waits_while_the_last_operand_is_made() {
    // Two operands, each made of much: while the second is, the first is there.
    let mut work = Work::default();
    for (bytes, reads) in [(640, vec![]), (128, vec![0]), (640, vec![]), (128, vec![2]), (64, vec![1, 3])] {
        work.buffers.push(activation(bytes));
        let made = work.buffers.len() as u32 - 1;
        work.kernels.push(Kernel { reads, writes: vec![made], ..Kernel::default() });
    }
    assert_eq!(lower_bound(&work, OPTIONS.alignment, Offload::Nothing).bytes, 128 + 640 + 128);
    // From the host the first can come later.
    assert_eq!(lower_bound(&work, OPTIONS.alignment, Offload::Values).bytes, 640 + 128);
}

#[test]
fn a_chain_that_is_needed_backwards_fits_in_a_fraction_of_its_memory() {
    // 32 layers of 1000 bytes, each needed again on the way back.
    let mut work = Work::default();
    for i in 0..32u32 {
        work.buffers.push(activation(1024));
        let reads = if i == 0 { vec![] } else { vec![i - 1] };
        work.kernels.push(Kernel { reads, writes: vec![i], ..Kernel::default() });
    }
    for i in (0..32u32).rev() {
        work.buffers.push(activation(64));
        let made = work.buffers.len() as u32 - 1;
        let reads = if i == 31 { vec![i] } else { vec![i, made - 1] };
        work.kernels.push(Kernel { reads, writes: vec![made], ..Kernel::default() });
    }
    let copies = Copies { bandwidth: 1e9, latency_seconds: 0.0, overlap: false };
    let costs = Costs {
        kernels: vec![1.0; 64],
        rematerializations: vec![],
        copies,
        copy_share: 1e-12,
        host_bytes: u64::MAX,
    };
    let frontier = Frontier::new(work.clone(), costs.clone(), &OPTIONS, Offload::Nothing);
    let (most, _) = frontier.points().next().unwrap();
    let (least, slowest) = frontier.points().last().unwrap();
    assert!(most >= 32 * 1024, "{most}");
    assert!(least <= 14 * 1024, "{least}");
    assert!(slowest <= 64.0 + 2.0 * 32.0, "{slowest}");
}

#[test]
fn a_weight_that_rests_while_memory_is_short_is_fetched_again_and_never_stored() {
    // Read first and last, with two large values in between.
    let mut work = Work { buffers: vec![activation(4096); 5], ..Work::default() };
    work.buffers[0] = Buffer { keep: Keep::Always, role: Role::Parameter, ..work.buffers[0] };
    (work.buffers[1].bytes, work.buffers[4].bytes) = (64, 64);
    let kernel = |reads: &[u32], writes: &[u32]| Kernel {
        reads: reads.into(),
        writes: writes.into(),
        ..Kernel::default()
    };
    work.kernels = vec![
        kernel(&[0], &[1]),
        kernel(&[1], &[2]),
        kernel(&[2], &[3]),
        kernel(&[3], &[4]),
        kernel(&[4], &[4]),
        kernel(&[0, 4], &[]),
    ];
    let copies = Copies { bandwidth: 8192.0, latency_seconds: 0.0, overlap: true };
    let costs = Costs {
        kernels: vec![1.0; 6],
        rematerializations: vec![],
        copies,
        copy_share: 1e-12,
        host_bytes: u64::MAX,
    };
    let frontier = Frontier::new(work.clone(), costs.clone(), &OPTIONS, Offload::ValuesAndStates);
    let (most, least) = (frontier.points().next().unwrap(), frontier.points().last().unwrap());
    assert_eq!(most.0, 3 * 4096);
    assert_eq!(least.0, 2 * 4096);
    let fitted = frontier.at(frontier.points().count() - 1).unwrap().unwrap();
    verify(&work, &fitted).unwrap();
    let to_host = |k: &&Kernel| k.writes.iter().any(|&b| fitted.work.buffers[b as usize].home == Home::Host);
    assert_eq!(fitted.work.kernels.iter().filter(to_host).count(), 0);
    assert_eq!(fitted.remedies.offloaded_state_bytes, 4096);
}

#[test]
fn a_hundred_states_that_one_launch_updates_all_go_to_the_host() {
    let state = Buffer { keep: Keep::Always, role: Role::Optimizer, ..activation(1024) };
    let mut work = Work { buffers: vec![state; 100], ..Work::default() };
    work.buffers.extend([activation(100 * 1024), activation(64)]);
    let states: Vec<u32> = (0..100).collect();
    let kernel = |reads: Vec<u32>, writes: Vec<u32>| Kernel { reads, writes, ..Kernel::default() };
    let update = kernel([&states[..], &[101]].concat(), states.clone());
    work.kernels = vec![kernel(vec![], vec![100]), kernel(vec![100], vec![101]), update];
    for overlap in [false, true] {
        let copies = Copies { bandwidth: 1e6, latency_seconds: 0.0, overlap };
        let costs = Costs {
            kernels: vec![1.0; 3],
            rematerializations: vec![],
            copies,
            copy_share: 1e-12,
            host_bytes: u64::MAX,
        };
        let frontier = Frontier::new(work.clone(), costs.clone(), &OPTIONS, Offload::ValuesAndStates);
        for point in 0..frontier.points().count() {
            verify(&work, &frontier.at(point).unwrap().unwrap()).unwrap();
        }
        let (least, _) = frontier.points().last().unwrap();
        assert!(least <= 105 * 1024, "{least}");
    }
}

/// A model larger than the device on a slow bus: no copy of a state hides behind kernels, but all can be waited for.
#[test]
fn states_that_copies_cannot_keep_up_with_go_to_the_host_all_the_same() {
    const LAYERS: u32 = 24;
    let state = Buffer { keep: Keep::Always, role: Role::Optimizer, ..activation(1 << 20) };
    let mut work = Work { buffers: vec![state; 3 * LAYERS as usize], ..Work::default() };
    let kernel = |reads: Vec<u32>, writes: Vec<u32>| Kernel { reads, writes, ..Kernel::default() };
    let value = |work: &mut Work| {
        work.buffers.push(activation(64 << 10));
        work.buffers.len() as u32 - 1
    };
    let mut outputs = vec![value(&mut work)];
    work.kernels.push(kernel(vec![], vec![outputs[0]]));
    for layer in 0..LAYERS {
        let (input, output) = (outputs[layer as usize], value(&mut work));
        work.kernels.push(kernel(vec![3 * layer, input], vec![output]));
        outputs.push(output);
    }
    let mut gradient = outputs[LAYERS as usize];
    for layer in (0..LAYERS).rev() {
        let [weight, mean, square] = [0, 1, 2].map(|slot| 3 * layer + slot);
        let (input, next) = (outputs[layer as usize], value(&mut work));
        work.kernels.push(kernel(vec![weight, gradient, input], vec![next]));
        work.kernels.push(kernel(vec![weight, mean, square, gradient], vec![weight, mean, square]));
        gradient = next;
    }
    let copies = Copies { bandwidth: 1e6, latency_seconds: 0.0, overlap: true };
    let kernels = vec![1e-3; work.kernels.len()];
    let costs =
        Costs { kernels, rematerializations: vec![], copies, copy_share: 1e-12, host_bytes: u64::MAX };
    let frontier = Frontier::new(work.clone(), costs, &OPTIONS, Offload::ValuesAndStates);
    for point in 0..frontier.points().count() {
        verify(&work, &frontier.at(point).unwrap().unwrap()).unwrap();
    }
    // One layer's states at its update, and next to nothing beside them; of 72 MiB in all.
    let little = frontier.points().filter(|(bytes, _)| *bytes <= 6 << 20);
    let seconds = little.map(|(_, seconds)| seconds).fold(f64::INFINITY, f64::min);
    // Weights are fetched for each pass, slots once, and all are stored, one after the other where there is room for no
    // more: 7 MiB a layer.
    assert!(seconds <= 1.2 * f64::from((7 * LAYERS) << 20) / 1e6, "{seconds}");
}

/// Layers with a wide value inside, and copies fast enough for every slot: what a specialist would write down is to keep what
/// goes from layer to layer, make the rest again, and leave slots on the host.
#[test]
fn a_deep_network_at_a_third_of_its_memory_makes_every_value_again_once() {
    const LAYERS: u32 = 24;
    const MIB: u64 = 1 << 20;
    let mut work = Work::default();
    let mut seconds = vec![];
    let mut kernel = |work: &mut Work, takes: f64, reads: Vec<u32>, writes: Vec<u32>| {
        work.kernels.push(Kernel { reads, writes, ..Kernel::default() });
        seconds.push(takes);
    };
    let value = |work: &mut Work, bytes: u64| {
        work.buffers.push(activation(bytes));
        work.buffers.len() as u32 - 1
    };
    let state = |role| Buffer { keep: Keep::Always, role, ..activation(MIB) };
    for _ in 0..LAYERS {
        work.buffers.extend([state(Role::Parameter), state(Role::Optimizer), state(Role::Optimizer)]);
    }
    let mut narrow = vec![value(&mut work, MIB / 16)];
    kernel(&mut work, 0.1, vec![], vec![narrow[0]]);
    let mut wide = vec![];
    for layer in 0..LAYERS {
        wide.push(value(&mut work, 2 * MIB));
        kernel(&mut work, 1.0, vec![3 * layer, narrow[layer as usize]], vec![wide[layer as usize]]);
        narrow.push(value(&mut work, MIB / 16));
        kernel(&mut work, 1.0, vec![wide[layer as usize]], vec![narrow[layer as usize + 1]]);
    }
    let mut gradient = narrow[LAYERS as usize];
    for layer in (0..LAYERS).rev() {
        let [weight, mean, square] = [0, 1, 2].map(|slot| 3 * layer + slot);
        let (input, inside) = (narrow[layer as usize], wide[layer as usize]);
        let next = value(&mut work, MIB / 16);
        kernel(&mut work, 4.0, vec![weight, gradient, input, inside], vec![next]);
        let update = vec![weight, mean, square, gradient, input];
        kernel(&mut work, 0.2, update, vec![weight, mean, square]);
        gradient = next;
    }
    let free: f64 = seconds.iter().sum();
    let copies = Copies { bandwidth: MIB as f64, latency_seconds: 0.0, overlap: true };
    let costs = Costs {
        kernels: seconds,
        rematerializations: vec![],
        copies,
        copy_share: 1e-12,
        host_bytes: u64::MAX,
    };
    let frontier = Frontier::new(work.clone(), costs, &OPTIONS, Offload::ValuesAndStates);
    let (most, _) = frontier.points().next().unwrap();
    let fitted = frontier.within(most / 3).unwrap().unwrap();
    verify(&work, &fitted).unwrap();
    let again = fitted.sources.iter().filter(|source| matches!(source, LaunchSource::Again(_))).count();
    assert!(again <= LAYERS as usize, "{again}");
    assert!(fitted.seconds <= free + 1.1 * f64::from(LAYERS), "{} of {free}", fitted.seconds);
}

/// Updates that read little are put together at the end; one that reads a large value would keep it until then.
#[test]
fn an_update_by_a_large_value_comes_before_that_value_would_be_kept_for_it() {
    let mut work = Work { buffers: vec![activation(64); 2], ..Work::default() };
    (work.buffers[0].keep, work.buffers[1].keep) = (Keep::Always, Keep::Always);
    let kernel = |reads: Vec<u32>, writes: Vec<u32>| Kernel { reads, writes, ..Kernel::default() };
    work.buffers.extend([activation(4096), activation(4096), activation(4096), activation(64)]);
    work.kernels = vec![
        kernel(vec![], vec![2]),
        // It is not the last to read the large value: moving it would make it so.
        kernel(vec![0, 2], vec![0]),
        kernel(vec![2], vec![3]),
        kernel(vec![3], vec![4]),
        kernel(vec![4], vec![5]),
        kernel(vec![1, 5], vec![1]),
    ];
    let copies = Copies { bandwidth: 1e9, latency_seconds: 0.0, overlap: false };
    let costs = Costs {
        kernels: vec![1.0; 6],
        rematerializations: vec![],
        copies,
        copy_share: 0.0,
        host_bytes: u64::MAX,
    };
    let options = Options { together_bytes: 1024, ..OPTIONS };
    let frontier = Frontier::new(work, costs, &options, Offload::Nothing);
    let (most, _) = frontier.points().next().unwrap();
    assert_eq!(most, 2 * 64 + 2 * 4096);
}

proptest! {
    // Each case searches four times.
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// A disk that others use is slower for a while. What is found as if it were not fits at any speed.
    #[test]
    fn what_fits_as_if_copies_were_fast_fits_however_slow_they_are(
        (work, costs) in step(1..14),
        halvings in prop::array::uniform2(0u32..24),
    ) {
        let fast = Copies { bandwidth: 1e10, latency_seconds: 0.0, overlap: true };
        let least = |frontier: &Frontier| frontier.points().last().map(|(bytes, _)| bytes);
        let mut found = vec![];
        for halvings in halvings {
            let copies = Copies { bandwidth: fast.bandwidth / f64::from(1 << halvings), ..fast };
            let costs = Costs { copies, ..costs.clone() };
            let mut frontier = Frontier::new(work.clone(), costs, &OPTIONS, Offload::ValuesAndStates);
            let before: Vec<(u64, f64)> = frontier.points().collect();
            let alone = least(&frontier);
            frontier.improve_as_if(fast);
            for (bytes, seconds) in before {
                prop_assert!(frontier.points().any(|(b, s)| b <= bytes && s <= seconds * (1.0 + 1e-8)));
            }
            for point in 0..frontier.points().count() {
                verify(&work, &frontier.at(point).unwrap().unwrap())?;
            }
            found.push((alone, least(&frontier)));
        }
        for (one, other) in [(0, 1), (1, 0)] {
            let ((alone, improved), (_, elsewhere)) = (found[one], found[other]);
            prop_assert!(improved == alone || elsewhere <= improved, "{found:?}");
        }
    }
}

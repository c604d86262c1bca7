//! Verdicts on programs whose fault is known, because they were made here.

use plimsoll_explain::{
    Device, Explanation, Failure, Format, Framework, Origin, Recording, VerdictKind, explain,
};
use plimsoll_memory::{
    Action, BfcSettings, CachingSettings, Frame, Layout, Model, OwnerId, Piece, PieceState, Request,
    RequestId, Segment, SegmentClass, Trace,
};
use std::sync::Arc;

const MIB: u64 = 1 << 20;

/// A program on a device: it asks and frees, and its pool takes a segment for each new high of live bytes.
struct Program {
    device: Device,
    trace: Trace,
    reserved: u64,
    live: u64,
    next: u64,
}

impl Program {
    fn new() -> Program {
        let device = Device {
            name: "GPU 0".into(),
            index: Some(0),
            model: Some(Model::Caching(CachingSettings::default())),
            ..Device::default()
        };
        let trace = Trace { marks: vec!["step".into()], complete: true, ..Trace::default() };
        Program { device, trace, reserved: 0, live: 0, next: 1 << 30 }
    }

    fn line(&mut self, name: &str, line: u32) -> OwnerId {
        let main = Frame { name: "<module>".into(), file: "train.py".into(), line: 7 };
        let main = Arc::make_mut(&mut self.device.owners).child(OwnerId::UNKNOWN, main);
        Arc::make_mut(&mut self.device.owners)
            .child(main, Frame { name: name.into(), file: "train.py".into(), line })
    }

    fn ask(&mut self, bytes: u64, owner: OwnerId) -> RequestId {
        self.live += bytes;
        if self.live > self.reserved {
            let more = (self.live - self.reserved).next_multiple_of(2 * MIB);
            self.trace.push(0, Action::Reserve { address: self.next, bytes: more });
            self.next += more;
            self.reserved += more;
        }
        let id = self.trace.push_request(Request { bytes, address: 0, stream: 0, owner });
        self.trace.push(0, Action::Allocate(id));
        id
    }

    fn free(&mut self, id: RequestId) {
        self.live -= self.trace.request(id).bytes;
        self.trace.push(0, Action::Free(id));
    }

    fn step(&mut self) {
        self.trace.push(0, Action::Mark(0));
    }

    fn refuse(&mut self, bytes: u64, owner: OwnerId) {
        let id = self.trace.push_request(Request { bytes, address: 0, stream: 0, owner });
        self.trace.push(0, Action::Refuse(id));
        let event = Some(self.trace.events.len() - 1);
        self.device.failure = Some(Failure { requested: bytes, exact: true, event, op: None });
    }

    fn explain(mut self) -> Explanation {
        self.device.reserved = Some(self.reserved);
        self.device.trace = Some(self.trace);
        explained(Framework::PyTorch, self.device)
    }
}

fn explained(framework: Framework, device: Device) -> Explanation {
    let origin = Origin {
        files: vec!["made here".into()],
        formats: vec![Format::TorchSnapshot],
        framework,
        gaps: Vec::new(),
        partial: false,
    };
    let explanation = explain(&Recording { origin, devices: vec![device] });
    let sum: u64 = explanation.books.lines.iter().map(|line| line.bytes).sum();
    assert_eq!(sum, explanation.books.total_bytes, "{:?}", explanation.books);
    explanation
}

fn kinds(explanation: &Explanation) -> Vec<VerdictKind> {
    explanation.verdicts.iter().map(|verdict| verdict.kind).collect()
}

/// Weights, then steps that each need `step` bytes in four pieces, and keep `kept` of them.
fn loop_of(program: &mut Program, steps: usize, step: u64, kept: u64) {
    let (weights, forward, list) =
        (program.line("build", 10), program.line("forward", 20), program.line("log", 30));
    program.ask(64 * MIB, weights);
    for _ in 0..steps {
        let pieces: Vec<RequestId> = (0..4).map(|_| program.ask(step / 4, forward)).collect();
        if kept > 0 {
            program.ask(kept, list);
        }
        pieces.into_iter().for_each(|id| program.free(id));
        program.step();
    }
}

#[test]
fn a_steady_loop_is_healthy_and_gets_no_advice() {
    let mut program = Program::new();
    loop_of(&mut program, 20, 200 * MIB, 0);
    let explanation = program.explain();
    assert_eq!(kinds(&explanation), [VerdictKind::Healthy]);
    assert!(explanation.advice.is_empty());
}

#[test]
fn a_list_that_grows_is_a_leak_named_by_line_with_its_rate_and_its_end() {
    let mut program = Program::new();
    program.device.limit = Some(1024 * MIB);
    loop_of(&mut program, 40, 200 * MIB, 3 * MIB);
    let explanation = program.explain();
    assert_eq!(kinds(&explanation), [VerdictKind::Leaking]);
    let verdict = &explanation.verdicts[0];
    assert!(verdict.sentence.contains("3.00 MiB"), "{verdict:?}");
    assert!(verdict.sentence.contains("train.py:30"), "{verdict:?}");
    // 64 + 200 + 3 n passes 1024 at n = 253.3.
    assert!(verdict.sentence.contains("step 254") || verdict.sentence.contains("step 253"), "{verdict:?}");
    let fix = &explanation.advice[0];
    assert!(fix.change.contains("train.py:30") && fix.would_survive == Some(true), "{fix:?}");
    assert!(fix.peak_reserved_bytes.unwrap() < 300 * MIB, "{fix:?}");
}

#[test]
fn a_leak_without_marks_is_found_by_the_place_that_recurs() {
    let mut program = Program::new();
    let (forward, list) = (program.line("forward", 20), program.line("log", 30));
    for _ in 0..30 {
        let id = program.ask(100 * MIB, forward);
        program.ask(2 * MIB, list);
        program.free(id);
    }
    let explanation = program.explain();
    assert_eq!(kinds(&explanation), [VerdictKind::Leaking]);
    assert!(explanation.verdicts[0].sentence.contains("2.00 MiB"), "{:?}", explanation.verdicts[0]);
}

#[test]
fn a_leak_in_every_fourth_step_is_a_leak_too() {
    let mut program = Program::new();
    let (forward, list) = (program.line("forward", 20), program.line("log", 30));
    for step in 0..80 {
        let id = program.ask(100 * MIB, forward);
        if step % 4 == 0 {
            program.ask(8 * MIB, list);
        }
        program.free(id);
        program.step();
    }
    let explanation = program.explain();
    assert_eq!(kinds(&explanation), [VerdictKind::Leaking]);
    let sentence = &explanation.verdicts[0].sentence;
    assert!(sentence.contains("2.00 MiB") || sentence.contains("1.9"), "{sentence}");
}

#[test]
fn state_made_in_the_first_steps_is_no_leak() {
    let mut program = Program::new();
    let (forward, state) = (program.line("forward", 20), program.line("optimizer", 40));
    for step in 0..20 {
        let id = program.ask(100 * MIB, forward);
        if step < 2 {
            program.ask(50 * MIB, state);
        }
        program.free(id);
        program.step();
    }
    assert_eq!(kinds(&program.explain()), [VerdictKind::Healthy]);
}

#[test]
fn weights_that_are_replaced_in_every_step_are_no_leak() {
    let mut program = Program::new();
    let weights = program.line("update", 20);
    let mut old = program.ask(100 * MIB, weights);
    for _ in 0..20 {
        let new = program.ask(100 * MIB, weights);
        program.free(old);
        old = new;
        program.step();
    }
    assert_eq!(kinds(&program.explain()), [VerdictKind::Healthy]);
}

#[test]
fn a_pool_that_a_usual_step_leaves_idle_is_named_so() {
    let mut program = Program::new();
    let evaluate = program.line("evaluate", 50);
    let id = program.ask(4000 * MIB, evaluate);
    program.free(id);
    loop_of(&mut program, 20, 200 * MIB, 0);
    let explanation = program.explain();
    assert_eq!(kinds(&explanation), [VerdictKind::ReservedIdle]);
    assert!(!explanation.advice.is_empty());
}

#[test]
fn a_step_whose_overlap_is_refused_is_a_transient_peak_and_half_the_batch_is_tried() {
    let mut program = Program::new();
    program.device.limit = Some(900 * MIB);
    loop_of(&mut program, 6, 400 * MIB, 0);
    let forward = program.line("forward", 20);
    program.ask(300 * MIB, forward);
    program.ask(300 * MIB, forward);
    program.refuse(300 * MIB, forward);
    let explanation = program.explain();
    assert_eq!(kinds(&explanation), [VerdictKind::TransientPeak, VerdictKind::TooBig]);
    let half = explanation.advice.iter().find(|advice| advice.change.contains("halve")).unwrap();
    assert_eq!(half.would_survive, Some(true), "{half:?}");
    let expandable = explanation.advice.iter().find(|advice| advice.change.contains("expandable")).unwrap();
    assert_eq!(expandable.would_survive, Some(false), "no allocator can: {expandable:?}");
}

#[test]
fn weights_that_do_not_fit_are_too_big() {
    let mut program = Program::new();
    program.device.limit = Some(900 * MIB);
    let build = program.line("build", 10);
    for _ in 0..8 {
        program.ask(100 * MIB, build);
    }
    program.refuse(200 * MIB, build);
    let explanation = program.explain();
    assert!(kinds(&explanation).contains(&VerdictKind::TooBig), "{:?}", explanation.verdicts);
    assert!(
        explanation
            .advice
            .iter()
            .all(|advice| advice.would_survive != Some(true) || advice.change.contains("halve"))
    );
}

#[test]
fn a_limit_below_what_the_device_had_free_is_low() {
    let device = Device {
        name: "GPU 0".into(),
        capacity: Some(80 << 30),
        limit: Some(4 << 30),
        device_free: Some(75 << 30),
        reserved: Some(3 << 30),
        live: Some(3 << 30),
        failure: Some(Failure { requested: 2 << 30, exact: true, event: None, op: None }),
        ..Device::default()
    };
    let explanation = explained(Framework::PyTorch, device);
    assert_eq!(kinds(&explanation)[0], VerdictKind::LimitLow);
    assert_eq!(explanation.advice[0].would_survive, Some(true), "{:?}", explanation.advice);
    assert!(explanation.advice[0].change.contains("set_per_process_memory_fraction"));
}

#[test]
fn another_process_that_holds_the_device_is_named_with_its_bytes() {
    let device = Device {
        name: "GPU 0".into(),
        capacity: Some(80 << 30),
        device_free: Some(1 << 30),
        process: Some(10 << 30),
        others: vec![("Process 1108".into(), 69 << 30)],
        reserved: Some(9 << 30),
        live: Some(9 << 30),
        failure: Some(Failure { requested: 4 << 30, exact: true, event: None, op: None }),
        ..Device::default()
    };
    let explanation = explained(Framework::PyTorch, device);
    assert_eq!(kinds(&explanation), [VerdictKind::OtherProcess]);
    assert!(explanation.books.lines.iter().any(|line| line.name.contains("1108") && line.bytes == 69 << 30));
    assert_eq!(explanation.advice[0].would_survive, Some(true));
    assert!(explanation.advice[0].change.contains("1108"));
}

/// A pool of one region in which live pieces of 1 MiB stand between holes of 99.
fn comb(teeth: u64) -> Layout {
    let mut pieces = Vec::new();
    for at in 0..teeth {
        let address = (1 << 30) + at * 100 * MIB;
        let free = |address, bytes| Piece {
            address,
            bytes,
            requested: 0,
            state: PieceState::Free,
            owner: OwnerId::UNKNOWN,
        };
        let owner = OwnerId::UNKNOWN;
        pieces.push(Piece { address, bytes: MIB, requested: MIB, state: PieceState::Live, owner });
        pieces.push(free(address + MIB, 99 * MIB));
    }
    let bytes = teeth * 100 * MIB;
    Layout {
        segments: vec![Segment { address: 1 << 30, bytes, stream: 0, class: SegmentClass::Any, pieces }],
    }
}

#[test]
fn enough_free_in_holes_that_are_too_small_is_fragmented_with_the_blocks_that_are_in_the_way() {
    let device = Device {
        name: "GPU_0_bfc".into(),
        limit: Some(2000 * MIB),
        model: Some(Model::Bfc(BfcSettings { growth: false, garbage_collection: false, partitioned: false })),
        layout: Some(comb(20)),
        failure: Some(Failure { requested: 250 * MIB, exact: true, event: None, op: None }),
        ..Device::default()
    };
    let explanation = explained(Framework::Jax, device);
    assert_eq!(kinds(&explanation), [VerdictKind::Fragmented]);
    let verdict = &explanation.verdicts[0];
    assert!(verdict.sentence.contains("250 MiB") && verdict.sentence.contains("99.0 MiB"), "{verdict:?}");
    let proof = verdict.proof.join("\n");
    // Any 250 MiB reach over three holes, so two pins are in the way.
    assert!(proof.contains("2.00 MiB in use in 2 blocks"), "{proof}");
    assert!(proof.contains("splits what would be a hole of 199 MiB"), "{proof}");
    let pages = explanation.advice.iter().find(|advice| advice.change.contains("cuda_malloc_async")).unwrap();
    assert_eq!(pages.would_survive, Some(true));
    let growth = explanation.advice.iter().find(|advice| advice.change.contains("PREALLOCATE")).unwrap();
    assert_eq!(growth.would_survive, None, "a dump cannot be replayed");
}

#[test]
fn a_pool_that_takes_all_at_the_start_is_idle_and_the_smallest_that_would_do_is_found() {
    let mut program = Program::new();
    loop_of(&mut program, 20, 200 * MIB, 0);
    let mut device = program.device;
    device.model =
        Some(Model::Bfc(BfcSettings { growth: false, garbage_collection: false, partitioned: false }));
    program.trace.initial_reserved = vec![(1 << 20, 8 << 30)];
    program.trace.events.retain(|event| !matches!(event.action, Action::Reserve { .. }));
    device.trace = Some(program.trace);
    device.reserved = Some(8 << 30);
    device.limit = Some(8 << 30);
    let explanation = explained(Framework::Jax, device);
    assert_eq!(kinds(&explanation), [VerdictKind::ReservedIdle]);
    let smallest = explanation.advice.iter().find(|advice| advice.change.contains("MEM_FRACTION")).unwrap();
    let bytes = smallest.peak_reserved_bytes.unwrap();
    assert!((264 * MIB..600 * MIB).contains(&bytes), "{smallest:?}");
    let growth =
        explanation.advice.iter().find(|advice| advice.change.contains("PREALLOCATE=false")).unwrap();
    assert!(growth.peak_reserved_bytes.unwrap() < 1 << 30, "{growth:?}");
}

mod laws {
    use super::*;
    use proptest::prelude::*;

    fn maybe(most: u64) -> impl Strategy<Value = Option<u64>> {
        prop_oneof![Just(None), (0..most).prop_map(Some)]
    }

    proptest! {
        /// Whatever a recording claims, however it contradicts itself: the books sum, and something is said.
        #[test]
        fn books_sum_and_verdicts_exist_for_any_claims(
            capacity in maybe(1 << 40), limit in maybe(1 << 40), free in maybe(1 << 40), process in maybe(1 << 40),
            reserved in maybe(1 << 40), live in maybe(1 << 40), largest in maybe(1 << 40), refused in maybe(u64::MAX),
            other in 0_u64..1 << 40, growth in any::<bool>(), layout in any::<bool>(),
        ) {
            let device = Device {
                name: "GPU 0".into(), capacity, limit, device_free: free, process, reserved, live,
                largest_free: largest,
                others: if other % 2 == 0 { vec![("Process 1".into(), other)] } else { Vec::new() },
                failure: refused.map(|requested| Failure { requested, exact: true, event: None, op: None }),
                model: Some(Model::Bfc(BfcSettings { growth, garbage_collection: true, partitioned: false })),
                layout: layout.then(|| comb(7)),
                ..Device::default()
            };
            for framework in [Framework::PyTorch, Framework::Jax, Framework::TensorFlow, Framework::Plimsoll] {
                let explanation = explained(framework, device.clone());
                prop_assert!(!explanation.verdicts.is_empty());
                if refused.is_some() {
                    prop_assert!(!kinds(&explanation).contains(&VerdictKind::Healthy));
                }
            }
        }
    }

    /// Sizes and addresses as files may claim them.
    fn claim() -> impl Strategy<Value = u64> {
        prop_oneof![
            0_u64..4096,
            0_u64..1 << 40,
            (0_u64..64).prop_map(|bit| 1 << bit),
            Just(u64::MAX),
            any::<u64>()
        ]
    }

    fn state() -> impl Strategy<Value = PieceState> {
        prop_oneof![Just(PieceState::Live), Just(PieceState::Pending), Just(PieceState::Free)]
    }

    fn layouts() -> impl Strategy<Value = Option<Layout>> {
        let piece = (claim(), claim(), claim(), state(), 0_u32..9).prop_map(
            |(address, bytes, requested, state, owner)| Piece {
                address,
                bytes,
                requested,
                state,
                owner: OwnerId(owner),
            },
        );
        let segment = (claim(), claim(), 0_u32..3, prop::collection::vec(piece, 0..6));
        let segment = segment.prop_map(|(address, bytes, stream, pieces)| Segment {
            address,
            bytes,
            stream,
            class: SegmentClass::Large,
            pieces,
        });
        let layout = prop::collection::vec(segment, 0..4).prop_map(|segments| Layout { segments });
        prop::option::of(layout)
    }

    fn traces() -> impl Strategy<Value = Option<Trace>> {
        let request = (claim(), claim(), 0_u32..3, 0_u32..9).prop_map(|(bytes, address, stream, owner)| {
            Request { bytes, address, stream, owner: OwnerId(owner) }
        });
        let event =
            (0_u8..7, 0_u32..24, claim(), claim()).prop_map(|(what, id, address, bytes)| match what {
                0 | 1 => Action::Allocate(RequestId(id)),
                2 | 3 => Action::Free(RequestId(id)),
                4 => Action::Refuse(RequestId(id)),
                5 if id % 2 == 0 => Action::Reserve { address, bytes },
                5 => Action::Release { address, bytes },
                _ => Action::Mark(id % 3),
            });
        let requests = prop::collection::vec(request, 24);
        let trace =
            (requests, prop::collection::vec(event, 0..120), prop::collection::vec((claim(), claim()), 0..3));
        let trace = trace.prop_map(|(requests, actions, initial_reserved)| {
            let marks = vec!["step".to_string(), "ProfilerStep#7".into(), "other".into()];
            let initial = vec![RequestId(0), RequestId(1)];
            let mut trace = Trace { requests, initial, initial_reserved, marks, ..Trace::default() };
            actions.into_iter().for_each(|action| trace.push(0, action));
            trace
        });
        prop::option::of(trace)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1500))]

        /// Readers check what they can; what they let through must not break what comes after.
        #[test]
        fn nothing_that_a_recording_may_hold_breaks_explaining_or_showing(
            layout in layouts(), trace in traces(), limit in prop::option::of(claim()), capacity in prop::option::of(claim()),
            free in prop::option::of(claim()), refused in prop::option::of(claim()), expandable in any::<bool>(),
            bfc in any::<bool>(),
        ) {
            let caching = Model::Caching(CachingSettings { expandable, ..CachingSettings::default() });
            let pool = Model::Bfc(BfcSettings { growth: expandable, garbage_collection: true, partitioned: false });
            let mut device = Device {
                name: "GPU 0".into(), limit, capacity, device_free: free, layout, trace,
                model: Some(if bfc { pool } else { caching }),
                failure: refused.map(|requested| Failure { requested, exact: false, event: None, op: None }),
                ..Device::default()
            };
            for line in 0..9 {
                Arc::make_mut(&mut device.owners).child(OwnerId(line), Frame { name: "f".into(), file: "train.py".into(), line });
            }
            let framework = if bfc { Framework::Jax } else { Framework::PyTorch };
            let explanation = explained(framework, device.clone());
            let origin = explanation.origin.clone();
            let recording = Recording { origin, devices: vec![device] };
            let mut out = Vec::new();
            plimsoll_explain::show(&explanation, plimsoll_explain::Style { width: 100, colour: false }, &mut out)?;
            plimsoll_explain::write_html(&recording, &explanation, &mut out)?;
            prop_assert!(explanation.to_json().is_object());
        }
    }
}

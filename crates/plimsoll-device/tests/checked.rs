//! Only what is sound can be loaded: every way in which a program or its plan may reach beyond its bytes is refused.

mod common;

use common::profile;
use plimsoll_device::{CheckedProgram, Device, ErrorKind, ProfiledDevice};
use plimsoll_graph::optimizer::Optimizer;
use plimsoll_graph::program::{Body, BufferId, Home, Kernel, Role, Scalar};
use plimsoll_graph::step::Initial;
use plimsoll_graph::{DType, Op, Program, Step, lower, stage_inputs};
use plimsoll_ir::Plan;
use plimsoll_plan::{Effort, Frontier, Offload, Options};

fn device() -> ProfiledDevice {
    ProfiledDevice::new(profile())
}

/// A product of an input with a parameter whose softmax is reported: a kernel of one op, and a loop over rows.
fn program(rows: usize) -> Program {
    let mut step = Step::new();
    let x = step.input("x", &[rows, 3], DType::F32).unwrap();
    let w = step.state("w", Role::Parameter, &[3, 5], DType::F32, Initial::Constant(0.1)).unwrap();
    let y = step.graph.dot(x, w).unwrap();
    let y = step.graph.apply(Op::Softmax, &[y]).unwrap();
    step.output("y", y);
    lower(&step)
}

fn planned(rows: usize) -> (Program, Plan) {
    let checked = CheckedProgram::planned(program(rows), &device()).unwrap();
    (checked.program().clone(), checked.plan().clone())
}

/// Why a program that was sound is refused after a change.
fn refused(change: impl FnOnce(&mut Program, &mut Plan)) -> String {
    let (mut program, mut plan) = planned(4);
    CheckedProgram::new(program.clone(), plan.clone()).expect("it is sound before the change");
    change(&mut program, &mut plan);
    let error = CheckedProgram::new(program, plan).expect_err("it is not sound after the change");
    assert_eq!(error.kind(), ErrorKind::InvalidPlan);
    error.to_string()
}

/// The product.
fn dot(program: &mut Program) -> &mut Kernel {
    program.kernels.iter_mut().find(|kernel| kernel.name() == "dot").expect("a product")
}

/// The loop over rows.
fn rows(program: &mut Program) -> &mut Kernel {
    program.kernels.iter_mut().find(|kernel| kernel.name() == "fused_rows").expect("a loop")
}

#[test]
fn a_view_beyond_its_buffer_is_refused() {
    let changes: [fn(&mut Kernel); 3] = [
        |kernel| kernel.reads[0].view.offset = 1,
        |kernel| kernel.reads[0].view.strides[0] = 4,
        |kernel| kernel.reads[0].view.strides[1] = usize::MAX,
    ];
    for change in changes {
        let why = refused(|program, _| change(dot(program)));
        assert!(why.contains("dot of ``: a view of `x` goes beyond [4, 3]"), "{why}");
    }
}

#[test]
fn an_op_that_no_device_has_a_kernel_of_is_refused() {
    let why = refused(|program, _| dot(program).body = Body::Op(Op::Softmax));
    assert!(why.contains("softmax of ``: no device has a kernel of it"), "{why}");
}

#[test]
fn another_element_type_is_refused() {
    let why = refused(|program, _| dot(program).reads[1].dtype = DType::F64);
    assert!(why.contains("`w` is f32, read or written as f64"), "{why}");
    let why = refused(|program, _| {
        let w = program.states[0].index();
        program.buffers[w].dtype = DType::I32;
    });
    assert!(why.contains("`w` is i32, read or written as f32"), "{why}");
}

#[test]
fn a_buffer_that_there_is_not_is_refused() {
    let why = refused(|program, _| dot(program).reads[0].buffer = BufferId(77));
    assert!(why.contains("there is no buffer 77"), "{why}");
    let lists: [fn(&mut Program) -> &mut Vec<BufferId>; 3] =
        [|program| &mut program.states, |program| &mut program.inputs, |program| &mut program.outputs];
    for list in lists {
        let why = refused(|program, _| list(program).push(BufferId(78)));
        assert!(why.contains("there is no buffer 78 to be a state, input or output"), "{why}");
    }
    let why = refused(|program, _| rows(program).in_place.push((0, 9)));
    assert!(why.contains("a result replaces an operand that there is not"), "{why}");
}

/// Devices size their loops by shapes: views that lie in their buffers are not enough.
#[test]
fn operands_that_an_op_does_not_take_are_refused() {
    let why = refused(|program, _| {
        dot(program).reads.truncate(1);
    });
    assert!(why.contains("dot of ``"), "{why}");
    // A product of two rows of `x` has no four rows.
    let why = refused(|program, _| {
        let x = &mut dot(program).reads[0].view;
        x.shape = plimsoll_graph::Shape::new(&[2, 3]).unwrap();
    });
    assert!(why.contains("its results are f32[2, 5], not f32[4, 5]"), "{why}");
    let why = refused(|program, _| dot(program).writes[0].view.strides[0] = 0);
    assert!(why.contains("is not densely packed"), "{why}");
}

#[test]
fn a_loop_that_reads_or_stores_what_it_has_not_is_refused() {
    fn body(program: &mut Program) -> &mut plimsoll_graph::program::Loop {
        match &mut rows(program).body {
            Body::Loop(body) => body,
            other => panic!("a loop, not {other:?}"),
        }
    }
    let why = refused(|program, _| {
        let body = body(program);
        let load = body.instructions.iter_mut().find(|i| matches!(i.scalar, Scalar::Load { .. })).unwrap();
        load.scalar = Scalar::Load { read: 9 };
    });
    assert!(why.contains("loads operand 9"), "{why}");
    let why = refused(|program, _| body(program).stores[0] = 999);
    assert!(why.contains("there is no value 999 to store"), "{why}");
    let why = refused(|program, _| body(program).stores.clear());
    assert!(why.contains("0 values are stored in 1 results"), "{why}");
    let why = refused(|program, _| body(program).row_axes = 3);
    assert!(why.contains("rows of 3 axes"), "{why}");
    let why = refused(|program, _| {
        body(program).domain = plimsoll_graph::Shape::new(&[400, 5]).unwrap();
    });
    assert!(why.contains("f32[400, 5] from f32[4, 5]"), "{why}");
    let why = refused(|program, _| {
        let body = body(program);
        let last = body.instructions.len() as u16 - 1;
        body.instructions[1].scalar = Scalar::Cast(last);
    });
    assert!(why.contains("instruction 1 uses a value that is not there yet"), "{why}");
}

#[test]
fn only_copies_reach_the_host() {
    let why = refused(|program, _| {
        let w = program.states[0].index();
        program.buffers[w].home = Home::Host;
    });
    assert!(why.contains("`w` is on the host, which only copies reach"), "{why}");
}

#[test]
fn a_copy_is_between_buffers_of_one_size() {
    let copying = |program: &mut Program, to: BufferId| {
        let source = dot(program).reads[0];
        let kernel = dot(program);
        kernel.body = Body::Copy;
        kernel.reads = vec![source];
        kernel.writes.truncate(1);
        kernel.writes[0].buffer = to;
    };
    let why = refused(|program, _| {
        let to = dot(program).writes[0].buffer;
        copying(program, to);
    });
    assert!(why.contains("a copy of 48 bytes goes to a buffer of 80"), "{why}");
    let why = refused(|program, _| {
        dot(program).body = Body::Copy;
    });
    assert!(why.contains("a copy has one operand and one result"), "{why}");
}

#[test]
fn a_plan_of_another_program_is_refused() {
    // The same kernels on more rows.
    let why = refused(|program, _| *program = planned(400).0);
    assert!(why.contains("outside"), "{why}");
    let why = refused(|program, _| {
        let kernel = program.kernels[0].clone();
        program.kernels.push(kernel);
    });
    assert!(why.contains("a plan of 2 kernels cannot be one of a program of 3"), "{why}");
    let why = refused(|_, plan| plan.order.reverse());
    assert!(why.contains("does not find buffer"), "{why}");
    let why = refused(|_, plan| plan.peak_bytes -= 256);
    assert!(why.contains("outside"), "{why}");
}

#[test]
fn a_device_that_needs_larger_workspaces_or_alignments_is_refused() {
    let checked = CheckedProgram::planned(program(4), &device()).unwrap();
    let needs = checked.plan().workspace_bytes.clone();
    assert!(needs.contains(&4096), "the product has a workspace");
    let with = |alignment: u64, needs: &[u64]| checked.check_device(alignment, needs.iter().copied());
    with(256, &needs).expect("what it was planned for");
    with(64, &vec![0; needs.len()]).expect("less is fine");
    let error = with(512, &needs).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidPlan);
    assert_eq!(error.to_string(), "the plan's offsets are multiples of 256 bytes, the device needs 512");
    let names = ["dot", "fused_rows"];
    for (index, kernel) in checked.program().kernels.iter().enumerate() {
        let mut more = needs.clone();
        more[index] += 1;
        let error = with(256, &more).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidPlan);
        let expected =
            format!("{} of `` needs {} bytes of workspace on this device", kernel.name(), more[index]);
        assert!(error.to_string().contains(&expected), "{error}");
        assert!(names.contains(&kernel.name()));
    }
}

#[test]
fn arenas_are_as_large_as_the_plan_says() {
    let checked = CheckedProgram::planned(program(4), &device()).unwrap();
    let bytes = checked.arena_bytes();
    assert_eq!((bytes.device, bytes.host), (checked.plan().peak_bytes, checked.plan().host_bytes));
    assert!(bytes.device >= 4096 && bytes.host == 0);
    assert_eq!(device().planning_traits().alignment, checked.plan().alignment);
}

/// Whatever a planner does to fit a budget (launches again, copies to the host and back) is a sound program.
#[test]
fn every_plan_of_a_frontier_makes_a_program_that_can_be_loaded() {
    let mut step = Step::new();
    let mut x = step.input("x", &[64, 128], DType::F32).unwrap();
    for layer in 0..4 {
        let name = format!("layer{layer}/w");
        let w = step.state(&name, Role::Parameter, &[128, 128], DType::F32, Initial::Constant(0.1)).unwrap();
        let product = step.graph.dot(x, w).unwrap();
        x = step.graph.tanh(product).unwrap();
    }
    let loss = step.graph.sum_all(x).unwrap();
    step.output("loss", loss);
    step.train(loss, &Optimizer::adam(0.1)).unwrap();
    let (program, device) = (stage_inputs(lower(&step)), device());
    let work = program.work(device.workspaces(&program).unwrap());
    let options = Options { alignment: 256, effort: Effort::default(), together_bytes: 0 };
    let costs = profile().costs(&work);
    let frontier = Frontier::new(work, costs, &options, Offload::ValuesAndStates);
    let mut hosted = 0;
    for point in 0..frontier.points().count() {
        let fitted = frontier.at(point).unwrap().expect("a point of the frontier");
        let relaunched = program.relaunched(&fitted.work, &fitted.sources, &fitted.origins);
        let checked = CheckedProgram::new(relaunched, fitted.plan).unwrap_or_else(|e| panic!("{point}: {e}"));
        hosted += usize::from(checked.arena_bytes().host > 0);
    }
    assert!(hosted > 0, "something was copied to the host");
}

//! A device that is known by its profile alone answers what plans ask, and refuses what needs it to be there.

mod common;

use common::profile;
use plimsoll_device::{ArenaBytes, Device, ErrorKind, ProfiledDevice};
use plimsoll_graph::{DType, Op, Program, Step, lower};
use plimsoll_memory::Pool;
use plimsoll_plan::Profile;

/// A product, and its softmax.
fn program() -> Program {
    let mut step = Step::new();
    let x = step.input("x", &[8, 8], DType::F32).unwrap();
    let product = step.graph.dot(x, x).unwrap();
    let rows = step.graph.apply(Op::Softmax, &[product]).unwrap();
    step.output("product", product);
    step.output("rows", rows);
    lower(&step)
}

#[test]
fn it_answers_what_plans_ask() {
    let device = ProfiledDevice::new(profile());
    assert_eq!((device.name(), device.model()), ("far-away".into(), "Example 9000".into()));
    let traits = device.planning_traits();
    assert_eq!(traits.alignment, 256);
    assert!(traits.stages_inputs && traits.memory_is_scarce);
    let program = program();
    let [kernels, rematerializations] = device.workspaces(&program).unwrap();
    assert_eq!(kernels.len(), program.kernels.len());
    assert_eq!(rematerializations.len(), program.rematerializations.len());
    for (kernel, bytes) in program.kernels.iter().zip(kernels) {
        assert_eq!(bytes, if kernel.name() == "dot" { 4096 } else { 0 }, "{}", kernel.name());
    }
    let books = device.books().unwrap().expect("a driver takes memory there");
    assert_eq!((books.total_bytes, books.used_bytes), (8 << 30, 300 << 20));
    assert_eq!((books.at_open_bytes, books.mapped_bytes, books.rest_bytes), (300 << 20, 0, 0));
    let without = ProfiledDevice::new(Profile { context_bytes: 0, ..profile() });
    assert_eq!(without.books().unwrap(), None, "no driver, no books");
}

#[test]
fn it_refuses_to_run_by_its_name() {
    let device = ProfiledDevice::new(profile());
    let pool = Pool::new(None);
    let mut block = pool.allocate(4).unwrap();
    let refusals = [
        device.reserve(ArenaBytes::default(), None).err(),
        device.pool(None).err(),
        device.run_once(&program(), &[], &pool).err(),
        device.write_block(&mut block, &[0; 4]).err(),
        device.read_block(&block, &mut [0; 4]).err(),
    ];
    for error in refusals {
        let error = error.expect("nothing runs on it");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().starts_with("far-away is known by its profile alone"), "{error}");
    }
    assert!(device.selftest().is_empty(), "there is nothing to try");
}

//! The one way to test a kernel.
//!
//! A kernel is run as an executor would: prepared from operands, in memory of exactly the declared sizes between guards,
//! full of NaN where nothing was written. It is run on every instruction set of the machine and on one, two and three
//! threads, which must not change a bit; and what it gives is compared with the reference evaluator's, computed from the
//! same operands without rounding ([`check`]). Kernels that are not of an op are [`run`] on bytes, and compared by
//! whoever tests them.

mod bounds;
mod memory;
pub(crate) mod scalar;
mod tensor;

use crate::runtime::prepare::prepare_op;
use crate::runtime::{Call, Options, Pool, Routine};
use crate::simd::Isa;
use plimsoll_graph::program::{BufferId, Operand, View};
use plimsoll_graph::{DType, Graph, Op, Shape, ValueId};

pub(crate) use bounds::{Bounded, assert_same_bits, bound, values};
pub(crate) use memory::Guarded;
pub(crate) use tensor::{FLOATS, Numbers, Tensor, assert_close, nearest, unit};

/// The numbers of threads that results must not depend on.
const THREADS: [usize; 3] = [1, 2, 3];

/// The instruction sets that this machine has.
pub(crate) fn isas() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available())
}

/// What `test` gives on an instruction set: kernels that it prepares, and products that it computes, are of that.
pub(crate) fn on_isa<R>(isa: Isa, test: impl FnOnce() -> R) -> R {
    let before = Isa::force(Some(isa));
    let result = test();
    Isa::force(before);
    result
}

/// A dense operand in a buffer.
pub(crate) fn operand(buffer: usize, dtype: DType, dims: &[usize]) -> Operand {
    let view = View::dense(Shape::new(dims).expect("a small shape"));
    Operand { buffer: BufferId(buffer as u32), dtype, view }
}

/// Runs a routine on the bytes of its reads and returns those of its writes, each of `writes` bytes. A write in
/// `in_place` has the address of the read it is paired with.
pub(crate) fn run(
    routine: &dyn Routine,
    reads: &[Vec<u8>],
    writes: &[usize],
    in_place: &[(usize, usize)],
    threads: usize,
) -> Vec<Vec<u8>> {
    let pool = Pool::new(threads).expect("threads for a test");
    let mut inputs: Vec<Guarded> = reads.iter().map(|read| Guarded::of(read)).collect();
    let mut outputs: Vec<Guarded> = writes.iter().map(|&bytes| Guarded::new(bytes)).collect();
    let mut workspace = Guarded::new(routine.workspace(threads));
    let read_at: Vec<*const u8> =
        inputs.iter_mut().map(|input| input.bytes_mut().as_mut_ptr().cast_const()).collect();
    let mut write_at: Vec<*mut u8> =
        outputs.iter_mut().map(|output| output.bytes_mut().as_mut_ptr()).collect();
    for &(write, read) in in_place {
        write_at[write] = read_at[read].cast_mut();
    }
    let workspace = workspace.bytes_mut().as_mut_ptr();
    // SAFETY: every operand has memory of its size, and results share that of reads only where the test says that the
    // kernel allows it.
    unsafe { routine.run(&Call { reads: &read_at, writes: &write_at, workspace, pool: &pool }) };
    for (index, (input, read)) in inputs.iter().zip(reads).enumerate() {
        let replaced = in_place.iter().any(|pair| pair.1 == index);
        assert!(replaced || input.bytes() == read, "operand {index} was changed");
    }
    let partner = |write: usize| in_place.iter().find(|pair| pair.0 == write).map(|pair| pair.1);
    let result = |(write, output): (usize, &Guarded)| match partner(write) {
        Some(read) => inputs[read].bytes()[..output.bytes().len()].to_vec(),
        None => output.bytes().to_vec(),
    };
    outputs.iter().enumerate().map(result).collect()
}

/// Runs an op's kernel on every number of threads, which must give the same bits, and returns its results.
pub(crate) fn run_op(op: &Op, reads: &[&Tensor], in_place: &[(usize, usize)]) -> Vec<Vec<f64>> {
    let operands: Vec<Operand> = reads.iter().map(|read| read.operand()).collect();
    let (graph, results) = graph_of(op, reads, |dtype| dtype);
    let types: Vec<_> = results.iter().map(|&result| graph.ty(result)).collect();
    let writes: Vec<Operand> = types.iter().map(|ty| operand(0, ty.dtype, &ty.shape)).collect();
    let routine = prepare_op(op, &operands, &writes, Options::default());
    let reads: Vec<Vec<u8>> = reads.iter().map(|read| read.bytes()).collect();
    let bytes: Vec<usize> = types.iter().map(|ty| ty.shape.elements() * ty.dtype.size()).collect();
    let [one, others @ ..] = THREADS.map(|threads| run(&*routine, &reads, &bytes, in_place, threads));
    assert!(others.iter().all(|other| *other == one), "threads change the bits of {}", op.name());
    types.iter().zip(one).map(|(ty, bytes)| tensor::decode(ty.dtype, &bytes)).collect()
}

/// The results of an op by the reference evaluator. Floats are taken as `f64`, so that nothing is rounded.
pub(crate) fn reference(op: &Op, reads: &[&Tensor]) -> Vec<Vec<f64>> {
    let wide = |dtype: DType| if dtype.is_float() { DType::F64 } else { dtype };
    let (graph, results) = graph_of(op, reads, wide);
    let inputs = graph.nodes().iter().flat_map(|node| node.results()).zip(reads);
    let given = inputs.map(|(value, read)| {
        let (shape, dtype) = (graph.shape(value), graph.dtype(value));
        (value, plimsoll_reference::Tensor::new(&shape, dtype, read.values()))
    });
    let results = plimsoll_reference::evaluate(&graph, &given.collect(), &results);
    results.into_iter().map(|result| result.data).collect()
}

/// A graph of an op on inputs like `reads`, first in it, with types mapped; and the op's results.
fn graph_of(op: &Op, reads: &[&Tensor], types: impl Fn(DType) -> DType) -> (Graph, Vec<ValueId>) {
    let mut graph = Graph::new();
    let inputs: Vec<ValueId> = (reads.iter())
        .map(|read| read.operand())
        .map(|read| graph.input("x", &read.view.shape, types(read.dtype)).expect("an input"))
        .collect();
    let node = graph.push(op.clone(), &inputs).expect("an op that takes these operands");
    let results = graph.node(node).results().collect();
    (graph, results)
}

/// Checks that the results of an op's kernel, on every instruction set, are within a tolerance each of the reference
/// evaluator's. `in_place` pairs writes with the reads whose memory they take.
#[track_caller]
pub(crate) fn check(op: &Op, reads: &[&Tensor], in_place: &[(usize, usize)], tolerances: &[f64]) {
    let expected = reference(op, reads);
    assert_eq!(expected.len(), tolerances.len(), "the results of {}", op.name());
    for isa in isas() {
        let actual = on_isa(isa, || run_op(op, reads, in_place));
        for (result, ((actual, expected), tolerance)) in
            actual.iter().zip(&expected).zip(tolerances).enumerate()
        {
            let types: Vec<String> =
                reads.iter().map(|read| format!("{}{}", read.dtype(), read.operand().view.shape)).collect();
            let what = format!("result {result} of {} of {} on {isa:?}", op.name(), types.join(", "));
            assert_close(actual, expected, *tolerance, &what);
        }
    }
}

//! What is launched, without a device: that every op has launches on grids that cover it, for every type it takes, and
//! what workspace they take.

use super::stages::{Stages, write};
use super::*;
use crate::codegen::compiler::Compiler;
use crate::codegen::engine::Properties;
use crate::codegen::launches::LaunchArgument;
use crate::error::Result;
use crate::routine::PointerTo;
use plimsoll_graph::op::{Pad, Pool2d, PoolKind, Reduction};
use plimsoll_graph::program::{BufferId, Operand, View};
use plimsoll_graph::{Axes, DType, Graph, Op, Shape};
use std::collections::HashSet;

/// The multiprocessors of an H200.
const PROCESSORS: u32 = 132;

const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

/// An op and the types of its operands.
pub(super) struct Case {
    pub(super) op: Op,
    pub(super) reads: Vec<Operand>,
    pub(super) writes: Vec<Operand>,
}

impl Case {
    pub(super) fn new(op: Op, operands: &[(DType, &[usize])]) -> Case {
        let mut graph = Graph::new();
        let mut operand = |&(dtype, shape): &(DType, &[usize])| graph.input("operand", shape, dtype);
        let ids: Vec<_> = operands.iter().map(|o| operand(o).expect("a shape within limits")).collect();
        let node = graph.push(op.clone(), &ids).expect("operands that the op takes");
        let of =
            |id| Operand { buffer: BufferId(0), dtype: graph.dtype(id), view: View::dense(graph.shape(id)) };
        let reads = ids.iter().map(|&id| of(id)).collect();
        Case { op, reads, writes: graph.node(node).results().map(of).collect() }
    }

    pub(super) fn stages(&self, processors: u32) -> Result<Stages> {
        stages(&self.op, &self.reads, &self.writes, processors)
    }
}

fn stages(op: &Op, reads: &[Operand], writes: &[Operand], processors: u32) -> Result<Stages> {
    match op {
        Op::Reduce { kind, axes, .. } => {
            let device = Properties { processors, ..Properties::h100() };
            reduce::stages(&device, *kind, *axes, reads, writes[0].dtype)
        }
        Op::ArgMax { axis } => reduce::arg_max_stages(*axis, reads),
        Op::Pad(pad) => movement::pad_stages(pad, reads, writes),
        Op::Concat { axis } => movement::concat_stages(*axis, reads, writes),
        Op::Gather => gather::stages(reads),
        Op::ScatterAdd { rows } => gather::scatter_add_stages(*rows, reads),
        Op::Pool2d(pool) => pool2d::stages(*pool, reads, writes),
        Op::Pool2dGrad(pool) => pool2d::grad_stages(*pool, reads),
        Op::CrossEntropy => cross_entropy::stages(reads),
        Op::CrossEntropyGrad => cross_entropy::grad_stages(reads),
        Op::LayerNorm { epsilon } => layer_norm::stages(*epsilon, reads),
        Op::LayerNormGrad | Op::ResidualLayerNormGrad => layer_norm::grad_stages(processors, reads),
        Op::BatchMoments { epsilon } => batch_norm::moments_stages(processors, *epsilon, reads),
        Op::BatchNormGrad { epsilon } => batch_norm::grad_stages(processors, *epsilon, reads),
        op => unreachable!("{} is not tried here", op.name()),
    }
}

/// The sources that an op is compiled from, but those of matrix products.
pub(crate) fn sources(
    op: &Op,
    reads: &[Operand],
    writes: &[Operand],
    device: &Properties,
) -> Result<Vec<String>> {
    let stages = match *op {
        Op::ProjectedCrossEntropy { transpose_weight, chunk } => {
            projected_cross_entropy::own_stages(transpose_weight, chunk, reads, device)?
        }
        _ => vec![stages(op, reads, writes, device.processors)?],
    };
    Ok(stages.into_iter().map(|stages| stages.source).collect())
}

pub(super) fn reduction(kind: Reduction, axes: &[usize], dtype: DType, shape: &[usize]) -> Case {
    let axes = Axes::new(axes, shape.len()).expect("axes of the shape");
    Case::new(Op::Reduce { kind, axes, wide: false }, &[(dtype, shape)])
}

pub(super) fn arg_max(axis: usize, dtype: DType, shape: &[usize]) -> Case {
    Case::new(Op::ArgMax { axis }, &[(dtype, shape)])
}

fn padding(border: [&[usize]; 3], value: f64, dtype: DType, shape: &[usize]) -> Case {
    let [before, after, between] = border.map(|extents| Shape::new(extents).expect("a small shape"));
    Case::new(Op::Pad(Box::new(Pad { before, after, between, value })), &[(dtype, shape)])
}

pub(super) fn pools(pool: Pool2d, dtype: DType, images: &[usize]) -> [Case; 2] {
    let forward = Case::new(Op::Pool2d(pool), &[(dtype, images)]);
    let pooled = forward.writes[0].view.shape;
    [forward, Case::new(Op::Pool2dGrad(pool), &[(dtype, images), (dtype, &pooled)])]
}

pub(super) fn cross_entropies(dtype: DType, label: DType, rows: usize, classes: usize) -> [Case; 2] {
    let (logits, number) = ((dtype, &[rows, classes][..]), dtype.accumulator());
    let (labels, numbers) = ((label, &[rows][..]), (number, &[rows][..]));
    [
        Case::new(Op::CrossEntropy, &[logits, labels]),
        Case::new(Op::CrossEntropyGrad, &[logits, labels, (number, &[rows, 2]), numbers]),
    ]
}

pub(super) fn layer_norms(dtype: DType, shape: &[usize]) -> [Case; 3] {
    let (lead, width) = shape.split_at(shape.len() - 1);
    let (x, column, row) = ((dtype, shape), (dtype, width), (dtype.accumulator(), lead));
    [
        Case::new(Op::LayerNorm { epsilon: 1e-5 }, &[x, column, column]),
        Case::new(Op::LayerNormGrad, &[x, column, row, row, x]),
        Case::new(Op::ResidualLayerNormGrad, &[x, column, row, row, x, x]),
    ]
}

pub(super) fn batch_norms(dtype: DType, shape: &[usize]) -> [Case; 2] {
    let channels = &shape[shape.len() - 1..];
    let (x, column, statistic) = ((dtype, shape), (dtype, channels), (dtype.accumulator(), channels));
    [
        Case::new(Op::BatchMoments { epsilon: 1e-5 }, &[x]),
        Case::new(Op::BatchNormGrad { epsilon: 1e-5 }, &[x, column, statistic, statistic, x]),
    ]
}

/// Every op, with shapes that take each of its ways and types that it takes.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for dtype in DType::ALL {
        for kind in [Reduction::Sum, Reduction::Max, Reduction::Min] {
            cases.push(reduction(kind, &[0], dtype, &[700, 24]));
            cases.push(reduction(kind, &[1], dtype, &[9, 301]));
            cases.push(reduction(kind, &[0, 2], dtype, &[3, 5, 7, 2]));
        }
        cases.push(arg_max(1, dtype, &[5, 333]));
        cases.push(arg_max(0, dtype, &[9, 3, 4]));
        cases.push(padding([&[1, 0], &[2, 0], &[1, 0]], 1.5, dtype, &[3, 8]));
        cases.push(Case::new(
            Op::Concat { axis: 1 },
            &[(dtype, &[3, 4, 2]), (dtype, &[3, 0, 2]), (dtype, &[3, 1, 2])],
        ));
        for index in [DType::I32, DType::I64] {
            cases.push(Case::new(Op::Gather, &[(dtype, &[7, 24]), (index, &[5, 3])]));
            let operands = [(index, &[90][..]), (dtype, &[90, 24])];
            cases.push(Case::new(Op::ScatterAdd { rows: 300 }, &operands));
        }
    }
    for kind in [Reduction::Sum, Reduction::Max] {
        cases.push(reduction(kind, &[0], DType::F32, &[40000]));
        cases.push(reduction(kind, &[1], DType::BF16, &[2, 20011]));
        cases.push(reduction(kind, &[0], DType::F32, &[5000, 3]));
        cases.push(reduction(kind, &[1], DType::F16, &[4, 33, 40]));
        cases.push(reduction(kind, &[], DType::F32, &[4, 5]));
        cases.push(reduction(kind, &[1, 3], DType::F32, &[1, 6, 4, 10, 1]));
        cases.push(reduction(kind, &[2, 4], DType::BF16, &[3, 5, 2, 7, 2, 24]));
        cases.push(reduction(kind, &[2, 4], DType::U8, &[2, 4, 3, 5, 1, 10]));
        cases.push(reduction(kind, &[1], DType::F16, &[50, 4, 33]));
        cases.push(reduction(kind, &[0, 1], DType::F64, &[1, 1]));
    }
    cases.push(reduction(Reduction::Sum, &[0], DType::BF16, &[0, 5]));
    cases.push(reduction(Reduction::Sum, &[1], DType::F32, &[4, 0]));
    cases.push(reduction(Reduction::Sum, &[1], DType::F32, &[0, 4]));
    cases.push(reduction(Reduction::Sum, &[0, 2], DType::F32, &[3, 5, 0]));
    cases.push(arg_max(1, DType::BF16, &[3, 3001]));
    cases.push(arg_max(0, DType::F32, &[20000]));
    cases.push(arg_max(0, DType::F32, &[1, 40]));
    cases.push(padding([&[1, 2, 0], &[0, 3, 1], &[0, 2, 1]], f64::NEG_INFINITY, DType::F32, &[2, 3, 4]));
    cases.push(padding([&[0, 1, 1, 0], &[0, 1, 1, 0], &[0; 4]], 0.0, DType::BF16, &[2, 5, 4, 16]));
    cases.push(padding([&[2], &[1], &[0]], 7.0, DType::F32, &[0]));
    cases.push(padding([&[0, 0], &[0, 0], &[0, 0]], 7.0, DType::F32, &[3, 4]));
    cases.push(Case::new(Op::Concat { axis: 0 }, &[(DType::F32, &[3]), (DType::F32, &[4])]));
    cases.push(Case::new(Op::Concat { axis: 1 }, &[(DType::BF16, &[6, 64]), (DType::BF16, &[6, 128])]));
    cases.push(Case::new(Op::Gather, &[(DType::F32, &[4]), (DType::I32, &[9])]));
    cases.push(Case::new(Op::Gather, &[(DType::F32, &[4, 3]), (DType::I32, &[0])]));
    // A row of many updates, a table of several ranges, widths of one and of more packs than a block has threads.
    let scattered = [(DType::I32, &[3000][..]), (DType::BF16, &[3000, 20])];
    cases.push(Case::new(Op::ScatterAdd { rows: 600 }, &scattered));
    cases
        .push(Case::new(Op::ScatterAdd { rows: 3 }, &[(DType::I64, &[2, 70]), (DType::F32, &[2, 70, 1100])]));
    cases.push(Case::new(Op::ScatterAdd { rows: 5 }, &[(DType::I32, &[40]), (DType::F32, &[40])]));
    cases.push(Case::new(Op::ScatterAdd { rows: 5 }, &[(DType::I32, &[0]), (DType::F32, &[0, 6])]));
    for dtype in FLOATS {
        for kind in [PoolKind::Max, PoolKind::Mean] {
            let pool = Pool2d { kind, window: [3, 3], stride: [2, 2], padding: [1, 1, 1, 1] };
            cases.extend(pools(pool, dtype, &[2, 7, 9, 16]));
            let pool = Pool2d { kind, window: [2, 3], stride: [1, 2], padding: [0, 1, 2, 0] };
            cases.extend(pools(pool, dtype, &[2, 6, 5, 3]));
            let pool = Pool2d { kind, window: [5, 5], stride: [5, 4], padding: [0; 4] };
            cases.extend(pools(pool, dtype, &[1, 11, 14, 4]));
            let pool = Pool2d { kind, window: [1, 1], stride: [2, 2], padding: [0; 4] };
            cases.extend(pools(pool, dtype, &[1, 4, 4, 1]));
        }
        cases.extend(cross_entropies(dtype, DType::I32, 70, 10));
        cases.extend(cross_entropies(dtype, DType::I64, 9, 777));
        cases.extend(cross_entropies(dtype, DType::I32, 5, 5001));
        cases.extend(cross_entropies(dtype, DType::I64, 3, 20003));
        for shape in
            [&[67, 33][..], &[5, 7, 256], &[30, 768], &[4, 1600], &[3, 2501], &[2, 8200], &[3, 1], &[0, 4]]
        {
            cases.extend(layer_norms(dtype, shape));
        }
        for shape in [&[67, 33][..], &[4, 9, 9, 64], &[3000, 3], &[2, 520], &[1, 1], &[0, 5]] {
            cases.extend(batch_norms(dtype, shape));
        }
    }
    cases
}

#[test]
fn every_op_has_launches_of_functions_of_its_source() {
    for case in cases() {
        let stages = case.stages(PROCESSORS).expect("a case within limits");
        let what = format!("{} {:?}", case.op.name(), case.reads);
        let writes = case.writes.iter().map(|write| write.view.shape.elements()).sum::<usize>();
        assert_eq!(stages.launches.is_empty(), writes == 0, "{what}");
        for launch in &stages.launches {
            assert!(stages.source.contains(&format!(" {}(", launch.name)), "{what}");
            assert!(
                launch.grid.iter().all(|&blocks| blocks > 0) && launch.block.is_multiple_of(32),
                "{what}"
            );
            for place in &launch.arguments {
                let within = match *place {
                    LaunchArgument::Pointer(PointerTo::Read(index)) => index < case.reads.len(),
                    LaunchArgument::Pointer(PointerTo::Write(index)) => index < case.writes.len(),
                    LaunchArgument::Pointer(PointerTo::Workspace(offset)) => {
                        offset <= stages.workspace && offset.is_multiple_of(256)
                    }
                    LaunchArgument::Count(_) | LaunchArgument::Extents(_) => true,
                };
                assert!(within, "{what}: {place:?}");
            }
        }
    }
}

/// Compiling takes no device, only the compiler. Where that is not installed there is nothing to try; `.ci/kernels` installs
/// it and insists.
#[test]
fn every_source_compiles_for_old_and_new_devices() {
    let compiler = match Compiler::get() {
        Ok(compiler) => compiler,
        Err(error) if std::env::var_os("PLIMSOLL_INSIST_ON_NVRTC").is_some() => panic!("{error}"),
        Err(_) => return,
    };
    let mut compiled = HashSet::new();
    for case in cases() {
        let stages = case.stages(PROCESSORS).expect("a case within limits");
        if stages.launches.is_empty() || !compiled.insert(stages.source.clone()) {
            continue;
        }
        // Devices before Ampere have no instructions for `bf16`.
        let old = if case.reads.iter().any(|read| read.dtype == DType::BF16) { (8, 0) } else { (7, 5) };
        for capability in [old, (9, 0)] {
            let options = compiler.options(capability);
            let code = compiler.compile(&stages.source, case.op.name(), &options);
            assert!(!code.unwrap_or_else(|error| panic!("{error}")).is_empty(), "{}", case.op.name());
        }
    }
}

#[test]
fn every_result_is_written_by_some_launch() {
    for case in cases() {
        let stages = case.stages(PROCESSORS).expect("a case within limits");
        for (index, result) in case.writes.iter().enumerate() {
            let written = stages.launches.iter().any(|launch| launch.arguments.contains(&write(index)));
            let empty = result.view.shape.elements() == 0;
            assert!(written || empty, "result {index} of {} {:?}", case.op.name(), case.reads);
        }
    }
}

#[test]
fn sources_name_no_headers() {
    for case in cases() {
        let stages = case.stages(PROCESSORS).expect("a case within limits");
        assert!(!stages.source.contains("#include"));
    }
}

#[test]
fn sources_are_the_same_for_any_batch() {
    let pool = Pool2d { kind: PoolKind::Max, window: [3, 3], stride: [2, 2], padding: [1, 1, 1, 1] };
    let of = |batch: usize| {
        let (ints, halves) = (DType::I32, DType::BF16);
        let mut cases = vec![
            reduction(Reduction::Sum, &[0, 1], halves, &[batch, 64, 768]),
            reduction(Reduction::Sum, &[0], halves, &[batch, 64, 768]),
            reduction(Reduction::Max, &[1], halves, &[batch * 200, 768]),
            reduction(Reduction::Sum, &[0], DType::F32, &[batch * 4096]),
            reduction(Reduction::Sum, &[1], DType::F32, &[batch * 10, 49, 512]),
            reduction(Reduction::Sum, &[2, 4], halves, &[batch, 32, 2, 32, 2, 64]),
            arg_max(1, halves, &[batch, 50257]),
            arg_max(1, halves, &[batch, 50, 7]),
            padding([&[0, 0], &[5, 0], &[0, 0]], 0.0, halves, &[batch, 768]),
            padding([&[0, 1, 1, 0], &[0, 1, 1, 0], &[0; 4]], 0.0, halves, &[batch, 14, 14, 64]),
            Case::new(Op::Concat { axis: 0 }, &[(halves, &[batch, 64]), (halves, &[2 * batch, 64])]),
            Case::new(Op::Concat { axis: 1 }, &[(halves, &[batch, 64]), (halves, &[batch, 128])]),
            Case::new(Op::Gather, &[(halves, &[300, 64]), (ints, &[batch, 7])]),
            Case::new(Op::ScatterAdd { rows: 300 }, &[(ints, &[batch, 7]), (halves, &[batch, 7, 64])]),
        ];
        cases.extend(pools(pool, halves, &[batch, 14, 14, 64]));
        cases.extend(cross_entropies(halves, ints, batch, 50257));
        cases.extend(layer_norms(halves, &[batch, 64, 768]));
        cases.extend(layer_norms(DType::F32, &[batch, 8200]));
        cases.extend(batch_norms(halves, &[batch, 14, 14, 64]));
        cases
    };
    for (one, other) in of(16).iter().zip(&of(23)) {
        let [a, b] = [one, other].map(|case| case.stages(PROCESSORS).expect("within limits"));
        assert!(a.source == b.source, "{} {:?}", one.op.name(), one.reads);
    }
}

#[test]
fn elements_are_counted_in_64_bits_only_where_they_must_be() {
    let index = |rows| {
        let stages = cross_entropies(DType::BF16, DType::I32, rows, 50257)[0].stages(PROCESSORS);
        stages.expect("within limits").source.lines().next().map(str::to_owned)
    };
    assert_eq!(index(16384).as_deref(), Some("typedef unsigned Index;"));
    assert_eq!(index(65536).as_deref(), Some("typedef unsigned long long Index;"));
}

#[test]
fn windows_are_combined_at_once_and_long_ones_in_passes() {
    let launches = |axes: &[usize], shape: &[usize]| {
        let stages = reduction(Reduction::Sum, axes, DType::BF16, shape).stages(PROCESSORS);
        let stages = stages.expect("within limits");
        (
            stages.launches.iter().map(|launch| launch.name.clone()).collect::<Vec<_>>().join(" "),
            stages.workspace,
        )
    };
    assert_eq!(launches(&[2, 4], &[64, 64, 2, 64, 2, 32]), ("windows_0".into(), 0));
    assert_eq!(launches(&[1], &[64, 16, 32]), ("windows_0".into(), 0));
    assert!(launches(&[2, 4], &[64, 8, 9, 8, 8, 32]).0.starts_with("columns_0 columns_1"));
    assert_eq!(launches(&[1], &[64, 49, 32]).0, "columns_0");
}

#[test]
fn a_bias_gradient_keeps_the_device_busy_with_little_workspace() {
    let stages = reduction(Reduction::Sum, &[0], DType::BF16, &[16384, 768]).stages(PROCESSORS);
    let stages = stages.expect("within limits");
    let [across, down] = stages.launches[0].grid;
    assert_eq!(across, 3);
    assert!(across * down >= 2 * PROCESSORS, "{down} chunks");
    assert_eq!(stages.workspace, u64::from(4 * PROCESSORS / across) * 768 * 4);
    assert!(u64::from(down) * 768 * 4 <= stages.workspace);
    assert!(stages.workspace < 1 << 20);
    assert_eq!(stages.launches[1].grid, [768 / 8, 1]);
    // Columns of many matrices keep the device busy four at an access.
    let stages = reduction(Reduction::Sum, &[1], DType::BF16, &[16, 1024, 768]).stages(PROCESSORS);
    assert_eq!(stages.expect("within limits").launches[1].grid, [16 * 768 / (8 * 4), 1]);
}

#[test]
fn a_sum_leaves_in_the_cache_what_fits_there() {
    for (width, passing) in [(768, 0), (3072, 1)] {
        let stages = reduction(Reduction::Sum, &[0], DType::BF16, &[16384, width]).stages(PROCESSORS);
        let launches = stages.expect("within limits").launches;
        assert_eq!(launches[0].arguments.last(), Some(&LaunchArgument::Count(passing as u64)));
        assert_eq!(launches[1].arguments.last(), Some(&LaunchArgument::Count(0)));
    }
}

#[test]
fn a_sum_over_all_elements_is_shared_by_the_device() {
    let stages = reduction(Reduction::Sum, &[0, 1], DType::F32, &[4096, 4096]).stages(PROCESSORS);
    let stages = stages.expect("within limits");
    assert_eq!(stages.launches.len(), 2);
    assert!(stages.launches[0].grid[0] >= 2 * PROCESSORS);
    assert_eq!(stages.launches[1].grid, [1, 1]);
    assert!(stages.workspace <= 4096);
}

#[test]
fn rows_that_are_many_need_no_workspace() {
    for case in [
        reduction(Reduction::Max, &[1], DType::F32, &[16384, 768]),
        reduction(Reduction::Sum, &[1], DType::F32, &[500, 40, 512]),
        arg_max(1, DType::BF16, &[16384, 50257]),
    ] {
        let stages = case.stages(PROCESSORS).expect("within limits");
        assert_eq!((stages.launches.len(), stages.workspace), (1, 0));
    }
}

#[test]
fn nothing_takes_more_workspace_than_the_same_of_more_rows() {
    let rows =
        || (1..2000).step_by(7).chain([4096, 8191, 8192, 8193, 20_000, 1 << 16, (1 << 22) - 1, 1 << 22]);
    let grow = |about: &str, case: &dyn Fn(usize) -> Case| {
        let taken = |rows| case(rows).stages(PROCESSORS).expect("within limits").workspace;
        let taken: Vec<u64> = rows().map(taken).collect();
        assert!(taken.is_sorted(), "{about}: {taken:?}");
    };
    for (dtype, width) in [(DType::BF16, 768), (DType::F32, 10), (DType::F32, 3), (DType::F64, 130)] {
        let sum = |axes: &[usize], shape: &[usize]| reduction(Reduction::Sum, axes, dtype, shape);
        grow("columns", &|rows| sum(&[0], &[rows, width]));
        grow("columns of several matrices", &|rows| sum(&[1], &[5, rows, width]));
        grow("columns of more matrices", &|rows| sum(&[1], &[rows.min(3000), 400, width]));
        grow("all", &|rows| sum(&[0, 1], &[rows, width]));
        grow("the rest", &|rows| sum(&[0, 2], &[rows.min(3000), 7, width]));
        grow("moments", &|rows| Case::new(Op::BatchMoments { epsilon: 1e-5 }, &[(dtype, &[rows, width])]));
        grow("a norm's gradient", &|rows| {
            layer_norms(dtype, &[rows, width]).into_iter().nth(1).expect("three")
        });
    }
    grow("long rows", &|rows| reduction(Reduction::Max, &[1], DType::BF16, &[rows.min(3000), 50_257]));
    grow("one long row", &|length| reduction(Reduction::Max, &[0], DType::F32, &[length]));
    let wide = |rows: usize| layer_norms(DType::F32, &[rows.min(3000), 70_000]);
    grow("the gradient of a wide norm", &|rows| wide(rows).into_iter().nth(1).expect("three"));
}

#[test]
fn adding_to_a_table_takes_a_number_for_each_row_and_each_index() {
    let operands = [(DType::I32, &[16, 1024][..]), (DType::BF16, &[16, 1024, 768])];
    let stages =
        Case::new(Op::ScatterAdd { rows: 50257 }, &operands).stages(PROCESSORS).expect("within limits");
    let [sort, sum] = &stages.launches[..] else { panic!("{} launches", stages.launches.len()) };
    assert_eq!((sort.grid, sort.block), ([197, 1], 1024));
    assert_eq!((sum.grid, sum.block), ([6283, 1], 256));
    let aligned = |bytes: u64| bytes.next_multiple_of(256);
    assert_eq!(stages.workspace, aligned(4 * 50258) + aligned(4 * 16384));
}

#[test]
fn more_indices_than_can_be_counted_are_an_error() {
    let operands = [(DType::I32, &[1 << 31][..]), (DType::F32, &[1 << 31])];
    let error = Case::new(Op::ScatterAdd { rows: 2 }, &operands).stages(PROCESSORS).err();
    assert!(error.expect("too many").to_string().contains("2147483648 indices"));
}

#[test]
fn a_norm_of_rows_keeps_one_row_in_a_warp_or_a_block() {
    let [forward, backward, residual] = layer_norms(DType::BF16, &[16384, 768]);
    let forward = forward.stages(PROCESSORS).expect("within limits");
    assert_eq!((forward.launches[0].grid, forward.launches[0].block), ([2048, 1], 256));
    assert_eq!(forward.workspace, 0);
    let residual = residual.stages(PROCESSORS).expect("within limits");
    assert_eq!((residual.launches[0].grid, residual.launches[0].block), ([PROCESSORS, 1], 384));
    let backward = backward.stages(PROCESSORS).expect("within limits");
    // A multiprocessor has registers for one block of 512 threads, and so for the sums of one.
    assert_eq!((backward.launches[0].grid, backward.launches[0].block), ([PROCESSORS, 1], 512));
    assert_eq!(backward.workspace, u64::from(PROCESSORS) * 2 * 768 * 4);

    let wide =
        layer_norms(DType::F32, &[4096, 8192]).map(|case| case.stages(PROCESSORS).expect("within limits"));
    assert!(wide.iter().all(|stages| stages.source.contains("HELD = true")));
    let wider =
        layer_norms(DType::F32, &[4096, 8200]).map(|case| case.stages(PROCESSORS).expect("within limits"));
    assert!(wider.iter().all(|stages| stages.source.contains("HELD = false")));
    // The columns are summed before the gradient of x may take the place of x.
    assert!(wider[1].launches[0].name.starts_with("slope_sums"));
}

#[test]
fn sums_of_channels_are_over_before_x_is_overwritten() {
    for case in batch_norms(DType::BF16, &[256, 56, 56, 64]) {
        let stages = case.stages(PROCESSORS).expect("within limits");
        assert!(stages.workspace < 1 << 20, "{}", stages.workspace);
        assert!(stages.launches[0].grid[1] >= 2 * PROCESSORS);
        let of_x = stages.launches.iter().position(|launch| {
            matches!(case.op, Op::BatchNormGrad { .. }) && launch.arguments.contains(&write(0))
        });
        assert!(of_x.is_none_or(|at| at == stages.launches.len() - 1));
    }
}

#[test]
fn the_gradient_of_pooling_takes_as_much_of_an_image_as_a_window_moves_on() {
    let pool = Pool2d { kind: PoolKind::Max, window: [3, 3], stride: [2, 2], padding: [1, 1, 1, 1] };
    let [_, gradient] = pools(pool, DType::BF16, &[256, 112, 112, 64]);
    let stages = gradient.stages(PROCESSORS).expect("within limits");
    assert!(stages.source.contains("CELL_HEIGHT = 2;") && stages.source.contains("CELL_WIDTH = 2;"));
    // 57 cells each way, and 8 packs of channels.
    assert_eq!(stages.launches[0].grid, [(256u32 * 57 * 57 * 8).div_ceil(256), 1]);
    assert_eq!(stages.workspace, 0);
}

#[test]
fn losses_of_a_chunk_are_one_launch_over_its_logits() {
    let rows = cross_entropy::LossRows {
        rows: 2048,
        classes: 50257,
        pitch: 50304,
        logits: DType::BF16,
        labels: DType::I32,
    };
    let device = Properties::h100();
    let stages = rows.losses(&device).expect("within limits");
    assert_eq!((stages.launches[0].grid, stages.launches[0].block), ([2048, 1], 512));
    assert_eq!(stages.workspace, 0);
    assert_eq!(stages.launches[0].shared, 2 * 50257, "a row is held, and another beside it");
    let small = Properties { shared_per_processor: 100 << 10, shared_per_block: 99 << 10, ..device.clone() };
    assert_eq!(rows.losses(&small).expect("within limits").launches[0].shared, 0);
    let wide = cross_entropy::LossRows { classes: 60_000, pitch: 60_032, ..rows };
    assert_eq!(wide.losses(&device).expect("within limits").launches[0].shared, 0);
    let few = cross_entropy::LossRows { classes: 1000, pitch: 1024, ..rows };
    assert_eq!(few.losses(&device).expect("within limits").launches[0].shared, 0, "several rows in a block");
}

#[test]
fn numbers_become_elements_four_at_once() {
    let stages = reduce::convert(DType::BF16, 50257 * 768).expect("within limits");
    assert_eq!(stages.launches[0].grid, [(50257 * 768u32).div_ceil(256 * 4), 1]);
    assert!(stages.source.contains("Index N = 4;"));
    assert!(reduce::convert(DType::BF16, 50257).expect("within limits").source.contains("Index N = 1;"));
}

//! Loops of one body over several tensors, as one launch.
//!
//! As in "multi-tensor apply": the addresses and sizes of all tensors are a table, which is passed as a kernel argument. So
//! the source depends on the body alone, with an element for each thread. Loops with the same source can share a launch,
//! and their elements have the same bits as in launches of their own.

use super::geometry::Geometry;
use super::nest::Nest;
use super::writer::{PRELUDE, Pass, Span, Writer};
use crate::codegen::engine::Engine;
use crate::codegen::function::{Argument, Function};
use crate::error::{Error, ErrorKind, Result};
use crate::routine::{Call, PointerTo, Routine};
use plimsoll_graph::Shape;
use plimsoll_graph::program::{Body, Kernel, Level, Operand, Scalar, View};
use std::sync::Arc;

const NAME: &str = "together";
const THREADS: u32 = 256;
/// The most elements of a loop that is launched with others: longer ones fill the device by themselves.
const MOST: usize = 1 << 16;
/// The bytes of parameters that a kernel may have on every device.
const PARAMETERS: usize = 4096;

/// A loop that can be launched with others of the same source.
#[derive(Debug)]
pub(crate) struct SmallLoop {
    /// The kernel, without what every source begins with.
    source: String,
    /// What the pointers of a row of the table point to.
    pointers: Vec<PointerTo>,
    /// How many reads and writes its kernel has.
    operands: [usize; 2],
    /// How many elements it is over.
    count: u32,
}

impl SmallLoop {
    /// The kernel, which is that of all loops that it can be launched with.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }
}

/// A kernel as a loop that can share a launch: short, over elements, with every operand densely packed or one element.
pub(crate) fn small_loop(kernel: &Kernel) -> Option<SmallLoop> {
    let Body::Loop(body) = &kernel.body else { return None };
    let count = body.domain.elements();
    let by_position =
        |scalar: Scalar| matches!(scalar, Scalar::Iota { .. } | Scalar::Random { .. } | Scalar::Reduce(..));
    let suits = body.row_axes == 0
        && (1..=MOST).contains(&count)
        && !body.stores.is_empty()
        && !body.instructions.iter().any(|instruction| by_position(instruction.scalar));
    if !suits {
        return None;
    }
    // The same loop with an extent that stands for any.
    let some = Shape::new(&[2]).ok()?;
    let flat = |operand: &Operand| {
        let mut view = View { offset: operand.view.offset, ..View::dense(some) };
        view.strides[0] = step(&operand.view)?;
        Some(Operand { view, ..*operand })
    };
    let [reads, writes] = [&kernel.reads, &kernel.writes]
        .map(|operands| operands.iter().map(flat).collect::<Option<Vec<Operand>>>());
    let mut nest = Nest::new(body, &reads?, &writes?);
    nest.body.domain = some;
    let (source, pointers) = source(&nest).ok()?;
    let operands = [kernel.reads.len(), kernel.writes.len()];
    Some(SmallLoop { source, pointers, operands, count: count as u32 })
}

/// How far apart in memory neighbours of a view are: 1 if it is densely packed, 0 if it is one element, `None` if
/// it is neither.
fn step(view: &View) -> Option<usize> {
    let mut strides = view.strides[..view.shape.rank()].iter().zip(view.shape.iter());
    let is_dense = View { offset: 0, ..*view }.is_dense();
    // Of one element both hold; the strides say which its neighbours would be.
    if view.shape.elements() == 1 {
        return Some(usize::from(strides.any(|(&stride, _)| stride > 0)));
    }
    match strides.all(|(&stride, &extent)| stride == 0 || extent == 1) {
        true => Some(0),
        false => is_dense.then_some(1),
    }
}

/// How many rows the table has whose rows have so many pointers.
fn rows_of(pointers: usize) -> usize {
    PARAMETERS / (8 * (pointers + 1))
}

/// The kernel of a loop, and what the pointers in its table's rows point to. A row is for the blocks from its first on.
fn source(nest: &Nest) -> Result<(String, Vec<PointerTo>)> {
    let needed = nest.needed((0..nest.writes.len()).map(|write| nest.stored(write)));
    let geometry = Geometry::new(nest, 0, &needed);
    let mut writer = Writer::new(nest, &geometry, &needed, "0u", nest.body.domain.elements());
    writer.prologue()?;
    let pass =
        Pass { computed: writer.of_elements(), stores: nest.writes_of(Level::Element), ..Pass::default() };
    writer.line("if (at < table.rows[row].count) {");
    let span = Span { width: 1, packed: false, limit: None, exist: None, at: "at", index: "0" };
    writer.elements(&pass, span)?;
    writer.line("}");
    let (code, parameters) = writer.code();
    let rows = rows_of(parameters.len());
    if rows == 0 {
        let message = format!("a loop of {} operands is not launched with others", parameters.len());
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let (mut members, mut pointers) = (String::new(), String::new());
    for (declaration, _) in &parameters {
        let name = declaration.rsplit('*').next().unwrap_or_default();
        members += &format!("    {declaration};\n");
        pointers += &format!("    {declaration} = table.rows[row].{name};\n");
    }
    let (index, half) = (geometry.index(), rows.next_power_of_two() / 2);
    let source = format!(
        "typedef {index} idx;\n\nstruct Row {{\n{members}    u32 first, count;\n}};\n\n\
         struct Table {{\n    Row rows[{rows}];\n}};\n\n\
         extern \"C\" __global__ void __launch_bounds__({THREADS}) {NAME}(const Table table) {{\n    u32 row = 0u;\n    \
         for (u32 step = {half}u; step > 0u; step /= 2u) {{\n        \
         if (row + step < {rows}u && table.rows[row + step].first <= blockIdx.x) row += step;\n    }}\n{pointers}    \
         const idx at = (blockIdx.x - table.rows[row].first) * {THREADS}u + threadIdx.x;\n{code}}}\n"
    );
    Ok((source, parameters.into_iter().map(|parameter| parameter.1).collect()))
}

/// Prepares loops of one source as one kernel, whose reads are those of all loops one after another, and so its writes.
///
/// # Errors
/// If it does not compile.
pub(crate) fn prepare_multi_tensor(engine: &Arc<Engine>, loops: &[&SmallLoop]) -> Result<Box<dyn Routine>> {
    let Some(first) = loops.first() else {
        return Err(Error::new(ErrorKind::Plan, "a launch of nothing"));
    };
    let function = engine.compile(&format!("{PRELUDE}\n{}", first.source), NAME, 0)?;
    let counts = loops.iter().map(|one| one.count).collect();
    Ok(Box::new(MultiTensor { function, pointers: first.pointers.clone(), operands: first.operands, counts }))
}

/// Loops of one source, ready to run.
struct MultiTensor {
    function: Function,
    pointers: Vec<PointerTo>,
    operands: [usize; 2],
    /// The elements of each.
    counts: Vec<u32>,
}

impl Routine for MultiTensor {
    fn workspace(&self) -> u64 {
        0
    }

    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let [reads, writes] = self.operands;
        let rows: Vec<(Vec<u64>, u32)> = (self.counts.iter().enumerate())
            .map(|(number, &count)| {
                // The operands of one loop after those of the loops before it.
                let own = Call {
                    reads: &call.reads[number * reads..],
                    writes: &call.writes[number * writes..],
                    ..*call
                };
                (self.pointers.iter().map(|pointer| pointer.address(&own)).collect(), count)
            })
            .collect();
        for loops in rows.chunks(rows_of(self.pointers.len())) {
            let (table, blocks) = table(loops, self.pointers.len());
            let arguments = [Argument::Words(&table)];
            // SAFETY: the kernel's parameter is a table of so many rows, each of the addresses of one loop's operands, which
            // the caller vouches for, and of the number of its elements, within which its threads stay.
            unsafe { self.function.launch(call.stream, [blocks, 1, 1], THREADS, 0, &arguments)? };
        }
        Ok(())
    }
}

/// The table of a launch, from the addresses and the number of elements of each loop, and its blocks. Rows that are left
/// over begin where no block is.
fn table(loops: &[(Vec<u64>, u32)], pointers: usize) -> (Vec<u64>, u32) {
    let word = |first: u32, count: u32| u64::from(first) | u64::from(count) << 32;
    let mut table = Vec::with_capacity(PARAMETERS / 8);
    let mut blocks = 0;
    for (addresses, count) in loops {
        table.extend(addresses);
        table.push(word(blocks, *count));
        blocks += count.div_ceil(THREADS);
    }
    for _ in loops.len()..rows_of(pointers) {
        table.extend(std::iter::repeat_n(0, pointers));
        table.push(word(u32::MAX, 0));
    }
    (table, blocks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::launch_groups::groups;
    use crate::runtime::stream_assignment::Access;
    use plimsoll_graph::optimizer::Optimizer;
    use plimsoll_graph::program::Role;
    use plimsoll_graph::step::Initial;
    use plimsoll_graph::{DType, Program, Step, lower};

    /// The updates of parameters of these shapes by gradients that come in.
    fn updates(optimizer: &Optimizer, shapes: &[&[usize]], gradient: DType) -> Program {
        let mut step = Step::new();
        let mut gradients = vec![];
        for (index, shape) in shapes.iter().enumerate() {
            let name = format!("parameter {index}");
            step.state(&name, Role::Parameter, shape, DType::F32, Initial::Constant(1.0)).expect("a state");
            let incoming = step.input(&format!("gradient {index}"), shape, gradient).expect("an input");
            gradients.push(step.graph.cast(incoming, DType::F32).expect("a conversion"));
        }
        step.apply_gradients(gradients, optimizer).expect("updates");
        lower(&step)
    }

    /// The loops that update parameters with their slots; not the one that counts them.
    fn loops(program: &Program) -> Vec<SmallLoop> {
        let of_parameters = |kernel: &&Kernel| {
            let role = |write: &Operand| program.buffers[write.buffer.index()].role;
            kernel.writes.iter().all(|write| program.states.contains(&write.buffer))
                && kernel.writes.iter().any(|write| role(write) == Role::Parameter)
        };
        program.kernels.iter().filter(of_parameters).filter_map(small_loop).collect()
    }

    const SHAPES: [&[usize]; 6] = [&[1], &[7], &[1, 1], &[10, 10], &[3072], &[1, 1, 64, 64]];

    #[test]
    fn updates_of_parameters_of_any_shape_are_one_kernel() {
        let optimizers = [
            Optimizer::adamw(1e-3),
            Optimizer::sgd(1e-3),
            Optimizer::momentum(1e-3, 0.9, true).weight_decay(0.1),
            Optimizer::rmsprop(1e-3),
        ];
        let mut sources = vec![];
        for optimizer in &optimizers {
            for gradient in [DType::F32, DType::BF16] {
                let loops = loops(&updates(optimizer, &SHAPES, gradient));
                let counts: Vec<u32> = loops.iter().map(|one| one.count).collect();
                assert_eq!(counts, [1, 7, 1, 100, 3072, 4096]);
                for one in &loops[1..] {
                    assert_eq!(one.source, loops[0].source);
                    assert_eq!(one.pointers, loops[0].pointers);
                }
                sources.push(loops[0].source.clone());
            }
        }
        sources.sort();
        sources.dedup();
        assert_eq!(sources.len(), 2 * optimizers.len(), "other bodies and types are other kernels");
    }

    #[test]
    fn all_updates_of_a_step_are_one_group() {
        let shapes: Vec<&[usize]> = SHAPES.into_iter().cycle().take(100).collect();
        let program = updates(&Optimizer::adam(1e-3), &shapes, DType::BF16);
        let range = |operand: &Operand| {
            let start = u64::from(operand.buffer.0) << 32;
            start..start + program.buffers[operand.buffer.index()].bytes() as u64
        };
        let access = |kernel: &Kernel| Access {
            reads: kernel.reads.iter().map(range).collect(),
            writes: kernel.writes.iter().map(range).collect(),
            stream: None,
        };
        let loops: Vec<Option<SmallLoop>> = program.kernels.iter().map(small_loop).collect();
        let kinds: Vec<Option<&str>> = loops.iter().map(|one| Some(one.as_ref()?.source())).collect();
        let groups = groups(&kinds, &program.kernels.iter().map(access).collect::<Vec<_>>());
        assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [100]);
    }

    #[test]
    fn what_all_elements_share_is_read_before_them_and_no_size_is_in_the_text() {
        let loops = loops(&updates(&Optimizer::adamw(1e-3), &SHAPES, DType::BF16));
        let code = &loops[0].source;
        let (before, after) =
            code.split_once("if (at < table.rows[row].count) {").expect("the elements that exist");
        assert_eq!(before.matches("= load(in").count(), 3, "the scalars of a step: {code}");
        assert_eq!(after.matches("= load(in").count(), 4, "a parameter, its gradient and two slots: {code}");
        assert_eq!(after.matches("[at], r").count(), 3, "what they become: {code}");
        assert!(!code.contains("3072") && !code.contains("4096"), "{code}");
    }

    #[test]
    fn loops_that_are_long_or_know_where_they_are_stay_alone() {
        let optimizer = Optimizer::adamw(1e-3);
        let of = |shape: &[usize]| loops(&updates(&optimizer, &[shape], DType::F32)).len();
        assert_eq!([of(&[MOST]), of(&[MOST + 1]), of(&[0])], [1, 0, 0]);
        let mut step = Step::new();
        let x = step.input("x", &[4, 6], DType::F32).expect("an input");
        let row = step.input("row", &[6], DType::F32).expect("an input");
        let across = step.graph.permute(x, &[1, 0]).expect("a view");
        let index = step.graph.iota(&[4, 6], 0, DType::F32).expect("numbers");
        let results = [step.graph.add(x, row), step.graph.neg(across), step.graph.mul(x, index)];
        for (number, result) in results.into_iter().enumerate() {
            step.output(&format!("result {number}"), result.expect("a value"));
        }
        let program = lower(&step);
        assert!(
            !program.kernels.is_empty() && program.kernels.iter().all(|kernel| small_loop(kernel).is_none())
        );
    }

    #[test]
    fn a_table_has_a_row_for_each_loop_and_fits_the_parameters_of_a_kernel() {
        let loops = [(vec![16, 32], 1), (vec![48, 64], 600), (vec![80, 96], 256)];
        let (words, blocks) = table(&loops, 2);
        assert_eq!(blocks, 1 + 3 + 1);
        assert_eq!(words[..9], [16, 32, 1 << 32, 48, 64, 600 << 32 | 1, 80, 96, 256 << 32 | 4]);
        assert!(words[9..].chunks(3).all(|row| row == [0, 0, u64::from(u32::MAX)]), "rows for no block");
        for pointers in 1..40 {
            let bytes = 8 * table(&[], pointers).0.len();
            assert!(bytes <= PARAMETERS && bytes + 8 * (pointers + 1) > PARAMETERS);
        }
    }

    #[test]
    fn every_block_finds_its_row() {
        for (pointers, counts) in [(9, vec![1, 7, 100, 3072, 256, 257]), (4, vec![300; 102]), (9, vec![5])] {
            let loops: Vec<(Vec<u64>, u32)> =
                counts.iter().map(|&count| (vec![0; pointers], count)).collect();
            let (words, blocks) = table(&loops, pointers);
            let rows = rows_of(pointers);
            let first = |row: usize| words[row * (pointers + 1) + pointers] as u32;
            let expected = (0..).zip(&counts).flat_map(|(row, &n)| vec![row; n.div_ceil(THREADS) as usize]);
            for (block, expected) in (0..blocks).zip(expected) {
                // As the kernel does.
                let (mut row, mut step) = (0, rows.next_power_of_two() / 2);
                while step > 0 {
                    if row + step < rows && first(row + step) <= block {
                        row += step;
                    }
                    step /= 2;
                }
                assert_eq!(row, expected, "block {block} of {counts:?}");
            }
        }
    }
}

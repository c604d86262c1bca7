//! Programs that run once, without a plan: what every device checks of them first, how long it keeps each buffer, and whose
//! name is on the blocks of a pool.
//!
//! Kernels that run in blocks of a pool rely on the same as those in an arena: that operands lie in their buffers, and
//! that what is read was written. There is no plan to vouch for it, so each program is checked when it is run.

use crate::error::{Error, ErrorKind, Result};
use plimsoll_graph::Program;
use plimsoll_graph::program::{Buffer, BufferId, Home, Kernel};
use plimsoll_memory::{Block, Category};
use std::rc::Rc;

/// Checks that a program can run once, each buffer in a block of its own: it passes its own check, has nothing that needs
/// an arena, is given what its inputs are, and writes every other buffer once, before it is read. Whether the blocks are
/// memory of the device is for the device to check.
///
/// # Errors
/// If one of these is not so: the message names the buffer.
pub fn check_unplanned(program: &Program, inputs: &[Rc<Block>]) -> Result<()> {
    let refused = |message: String| Err(Error::new(ErrorKind::InvalidPlan, message));
    program.check()?;
    if !program.states.is_empty() || inputs.len() != program.inputs.len() {
        return refused(format!(
            "a program of {} states and {} inputs cannot run once on {} inputs",
            program.states.len(),
            program.inputs.len(),
            inputs.len()
        ));
    }
    if let Some(buffer) = program.buffers.iter().find(|buffer| buffer.home == Home::Host) {
        return refused(format!("{} is on the host, where only a plan has memory", describe(buffer)));
    }
    let mut written = vec![false; program.buffers.len()];
    for (id, block) in program.inputs.iter().zip(inputs) {
        let buffer = &program.buffers[id.index()];
        if block.bytes() != buffer.bytes() as u64 {
            return refused(format!(
                "input {} is of {} bytes, was given {}",
                describe(buffer),
                buffer.bytes(),
                block.bytes()
            ));
        }
        written[id.index()] = true;
    }
    let find = |written: &[bool], id: BufferId| match written[id.index()] {
        true => Ok(()),
        false => {
            let buffer = describe(&program.buffers[id.index()]);
            refused(format!("nothing has written {buffer} before its use"))
        }
    };
    for kernel in &program.kernels {
        kernel.reads.iter().try_for_each(|operand| find(&written, operand.buffer))?;
        for operand in &kernel.writes {
            if std::mem::replace(&mut written[operand.buffer.index()], true) {
                let buffer = describe(&program.buffers[operand.buffer.index()]);
                return refused(format!("{buffer} is written twice, and only a plan keeps it in between"));
            }
        }
    }
    program.outputs.iter().try_for_each(|&output| find(&written, output))
}

/// The position of the last kernel that uses each buffer; none for those that nobody uses, and for outputs.
pub fn last_uses(program: &Program) -> Vec<Option<usize>> {
    let mut last = vec![None; program.buffers.len()];
    for (position, kernel) in program.kernels.iter().enumerate() {
        for operand in kernel.reads.iter().chain(&kernel.writes) {
            last[operand.buffer.index()] = Some(position);
        }
    }
    for output in &program.outputs {
        last[output.index()] = None;
    }
    last
}

/// A buffer in messages: its type and where it comes from.
pub fn describe(buffer: &Buffer) -> String {
    format!("{}{} of `{}`", buffer.dtype, buffer.shape, buffer.name)
}

/// Who asks a pool for a buffer: what it is for, then the scope and op it comes from.
pub fn owner(buffer: &Buffer) -> String {
    format!("{}/{}", buffer.role.category().name(), buffer.name.replace(':', "/"))
}

/// Who asks a pool for a kernel's workspace.
pub fn workspace_owner(kernel: &Kernel) -> String {
    format!("{}/{}/{}", Category::Workspace.name(), kernel.scope, kernel.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_graph::program::Role;
    use plimsoll_graph::step::Initial;
    use plimsoll_graph::{DType, Step, lower};
    use plimsoll_memory::Pool;

    /// The program of `(x · y) · (x · y)`, with the inner product an output or not.
    fn program(keep_product: bool) -> Program {
        let mut step = Step::new();
        let x = step.input("x", &[4, 3], DType::F32).expect("a shape");
        let y = step.input("y", &[3, 4], DType::F32).expect("a shape");
        let product = step.graph.dot(x, y).expect("matrices");
        let square = step.graph.dot(product, product).expect("a square");
        if keep_product {
            step.output("product", product);
        }
        step.output("square", square);
        lower(&step)
    }

    fn blocks(bytes: &[u64]) -> Vec<Rc<Block>> {
        let pool = Pool::new(None);
        bytes.iter().map(|&bytes| Rc::new(pool.allocate(bytes).expect("a few bytes"))).collect()
    }

    /// Why the program is refused on these blocks after a change.
    fn refused(bytes: &[u64], change: impl FnOnce(&mut Program)) -> String {
        let mut program = program(false);
        check_unplanned(&program, &blocks(&[48, 48])).expect("it can run before the change");
        change(&mut program);
        let error = check_unplanned(&program, &blocks(bytes)).expect_err("it cannot after it");
        assert_eq!(error.kind(), ErrorKind::InvalidPlan);
        error.to_string()
    }

    #[test]
    fn a_buffer_is_kept_to_its_last_use_and_an_output_for_good() {
        for keep in [false, true] {
            let program = program(keep);
            let last = last_uses(&program);
            let product = program.kernels[0].writes[0].buffer.index();
            let square = program.kernels[1].writes[0].buffer.index();
            assert_eq!(last[product], if keep { None } else { Some(1) });
            assert_eq!(last[square], None);
            assert_eq!(last[program.inputs[0].index()], Some(0));
        }
    }

    #[test]
    fn inputs_that_are_not_as_many_or_not_as_large_are_refused() {
        let why = refused(&[48], |_| {});
        assert!(why.contains("0 states and 2 inputs cannot run once on 1 inputs"), "{why}");
        let why = refused(&[48, 44], |_| {});
        assert_eq!(why, "input f32[3, 4] of `y` is of 48 bytes, was given 44");
    }

    #[test]
    fn what_needs_an_arena_is_refused() {
        let mut step = Step::new();
        step.state("w", Role::Parameter, &[2], DType::F32, Initial::Constant(0.0)).expect("a state");
        let error = check_unplanned(&lower(&step), &[]).expect_err("states need an arena");
        assert!(error.to_string().contains("a program of 1 states"), "{error}");
        let unused = |program: &mut Program| {
            let buffer = Buffer { home: Home::Host, ..program.buffers[0].clone() };
            program.buffers.push(buffer);
        };
        let why = refused(&[48, 48], unused);
        assert!(why.contains("is on the host"), "{why}");
    }

    #[test]
    fn what_is_read_was_written_and_nothing_is_written_twice() {
        let why = refused(&[48, 48], |program| program.kernels.swap(0, 1));
        assert!(why.contains("nothing has written f32[4, 4]"), "{why}");
        let why = refused(&[48, 48], |program| program.kernels.truncate(1));
        assert!(why.contains("nothing has written f32[4, 4]"), "{why}");
        let why = refused(&[48, 48], |program| program.kernels.push(program.kernels[0].clone()));
        assert!(why.contains("is written twice"), "{why}");
    }

    #[test]
    fn a_program_that_is_not_sound_is_refused() {
        let why = refused(&[48, 48], |program| program.kernels[0].reads[0].view.offset = 1);
        assert!(why.contains("a view of `x` goes beyond [4, 3]"), "{why}");
    }

    #[test]
    fn blocks_are_owned_by_what_they_are_for() {
        let program = program(false);
        let owners: Vec<String> = program.buffers.iter().map(owner).collect();
        assert!(owners.contains(&"inputs/x".to_string()), "{owners:?}");
        assert_eq!(workspace_owner(&program.kernels[0]), "workspace//dot");
    }
}

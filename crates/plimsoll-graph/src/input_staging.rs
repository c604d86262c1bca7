//! Places for what comes in: on a device with memory of its own, the inputs of the next step are copied there while
//! this one runs.
//!
//! So every input has a buffer that is used for nothing else, at any time, and a step begins by taking what has
//! arrived there. After that it may be overwritten.

use crate::Program;
use crate::program::{Body, Buffer, BufferId, Keep, Kernel, Operand, View};

/// The program with a place of its own for each input, which is its input from then on.
pub fn stage_inputs(mut program: Program) -> Program {
    let mut taken = vec![];
    for input in program.inputs.clone() {
        let buffer = &mut program.buffers[input.index()];
        if buffer.keep == Keep::FromStart {
            buffer.keep = Keep::WhileUsed;
        }
        let arrived =
            Buffer { keep: Keep::Always, name: format!("{}:next", buffer.name).into(), ..buffer.clone() };
        let place = BufferId(program.buffers.len() as u32);
        let whole = |id| Operand { buffer: id, dtype: arrived.dtype, view: View::dense(arrived.shape) };
        taken.push(Kernel {
            scope: arrived.name.clone(),
            body: Body::Copy,
            reads: vec![whole(place)],
            writes: vec![whole(input)],
            in_place: vec![],
            flops: 0,
            bytes: 2 * arrived.bytes() as u64,
        });
        program.buffers.push(arrived);
    }
    let places = program.buffers.len() - program.inputs.len();
    for (index, input) in program.inputs.iter_mut().enumerate() {
        *input = BufferId((places + index) as u32);
    }
    program.kernels.splice(0..0, taken);
    program
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Step, lower};

    #[test]
    fn inputs_arrive_in_buffers_of_their_own_after_all_others_and_are_taken_first() {
        let mut step = Step::new();
        let x = step.input("x", &[2, 3], DType::F32).expect("an input");
        let unused = step.input("unused", &[5], DType::I32).expect("an input");
        let doubled = step.graph.add(x, x).expect("a sum");
        step.output("doubled", doubled);
        let _ = unused;
        let plain = lower(&step);
        let staged = stage_inputs(plain.clone());
        assert_eq!(staged.buffers.len(), plain.buffers.len() + 2);
        for (index, (&old, &new)) in plain.inputs.iter().zip(&staged.inputs).enumerate() {
            assert_eq!(new.index(), plain.buffers.len() + index);
            let (was, is) = (&staged.buffers[old.index()], &staged.buffers[new.index()]);
            assert_eq!((was.keep, is.keep), (Keep::WhileUsed, Keep::Always));
            assert_eq!((was.shape, was.dtype), (is.shape, is.dtype));
            let copy = &staged.kernels[index];
            assert!(matches!(copy.body, Body::Copy));
            assert_eq!((copy.reads[0].buffer, copy.writes[0].buffer), (new, old));
        }
        assert_eq!(staged.kernels.len(), plain.kernels.len() + 2);
        assert_eq!(staged.outputs, plain.outputs);
    }
}

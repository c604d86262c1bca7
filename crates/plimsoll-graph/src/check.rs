//! The check of a program: that no kernel reaches beyond its buffers.
//!
//! Devices follow the addresses of operands by code that checks nothing, and size their loops by the operands' shapes. So
//! a program is sound if every view lies in its buffer, every operand is of the shape and type that the body computes on,
//! and what code expects densely packed is. Nothing here knows how programs are made: anyone's can be checked.

use crate::infer::{ValueType, infer};
use crate::program::{Body, Home, Kernel, Level, Loop, Operand, Scalar, View};
use crate::{DType, Error, Op, Program, Result, Shape, op_without_kernel};

impl Program {
    /// Checks that every operand is a view of a buffer that there is, of its type, with no element outside of it, and
    /// that each kernel's operands are those that its body computes on: what devices rely on when they follow addresses.
    ///
    /// # Errors
    /// If one is not: the message names the kernel and the buffer.
    pub fn check(&self) -> Result<()> {
        self.check_kernels()?;
        self.check_each(|kernel| self.check_homes(kernel))?;
        let named = self.states.iter().chain(&self.inputs).chain(&self.outputs);
        match named.map(|id| id.index()).find(|&index| index >= self.buffers.len()) {
            Some(index) => {
                Err(Error::argument(format!("there is no buffer {index} to be a state, input or output")))
            }
            None => Ok(()),
        }
    }

    /// Checks the same of each kernel by itself, wherever its buffers rest: what it takes to say what a kernel needs,
    /// before there are copies that bring what rests elsewhere.
    ///
    /// # Errors
    /// If one is not sound: the message names the kernel and the buffer.
    pub fn check_kernels(&self) -> Result<()> {
        self.check_each(|kernel| self.check_operands(kernel).and_then(|()| self.check_body(kernel)))
    }

    fn check_each(&self, check: impl Fn(&Kernel) -> std::result::Result<(), String>) -> Result<()> {
        self.kernels.iter().chain(&self.rematerializations).try_for_each(|kernel| {
            check(kernel)
                .map_err(|what| Error::argument(format!("{} of `{}`: {what}", kernel.name(), kernel.scope)))
        })
    }

    /// Whether a kernel reaches what it reads and writes where that rests.
    fn check_homes(&self, kernel: &Kernel) -> std::result::Result<(), String> {
        let operands = kernel.reads.iter().chain(&kernel.writes);
        let mut buffers = operands.map(|operand| &self.buffers[operand.buffer.index()]);
        match buffers.find(|buffer| buffer.home == Home::Host) {
            Some(buffer) if !matches!(kernel.body, Body::Copy | Body::Wait) => {
                Err(format!("`{}` is on the host, which only copies reach", buffer.name))
            }
            _ => Ok(()),
        }
    }

    /// Whether the operands of a kernel lie in their buffers.
    fn check_operands(&self, kernel: &Kernel) -> std::result::Result<(), String> {
        for operand in kernel.reads.iter().chain(&kernel.writes) {
            let Some(buffer) = self.buffers.get(operand.buffer.index()) else {
                return Err(format!("there is no buffer {}", operand.buffer.0));
            };
            if operand.dtype != buffer.dtype {
                return Err(format!(
                    "`{}` is {}, read or written as {}",
                    buffer.name, buffer.dtype, operand.dtype
                ));
            }
            if operand.view.end().is_none_or(|end| end > buffer.shape.elements()) {
                return Err(format!("a view of `{}` goes beyond {}", buffer.name, buffer.shape));
            }
        }
        // Loops may write some rows of a buffer; where those begin is for whoever binds operands to addresses.
        let is_loop = matches!(kernel.body, Body::Loop(_));
        let dense =
            |view: View| if is_loop { View { offset: 0, ..view }.is_dense() } else { view.is_dense() };
        if let Some(write) = kernel.writes.iter().find(|write| !dense(write.view)) {
            let buffer = &self.buffers[write.buffer.index()];
            return Err(format!("a result in `{}` is not densely packed", buffer.name));
        }
        let pair = |&(w, r): &(usize, usize)| w < kernel.writes.len() && r < kernel.reads.len();
        if !kernel.in_place.iter().all(pair) {
            return Err("a result replaces an operand that there is not".into());
        }
        Ok(())
    }

    /// Whether the operands of a kernel, which lie in their buffers, are those that its body computes on.
    fn check_body(&self, Kernel { body, reads, writes, .. }: &Kernel) -> std::result::Result<(), String> {
        match body {
            Body::Loop(body) => check_loop(body, reads, writes),
            Body::Op(op) => check_op(op, reads, &writes.iter().map(ty).collect::<Vec<_>>()),
            Body::WithEpilogue(fused) => {
                let Some(operands) = reads.get(..fused.operands) else {
                    return Err(format!("an op of {} operands has {}", fused.operands, reads.len()));
                };
                check_op(&fused.op, operands, &[ty(&fused.made())])?;
                if fused.body.domain.elements() != fused.shape.elements() {
                    return Err(format!("a loop over {} follows {}", fused.body.domain, fused.shape));
                }
                check_loop(&fused.body, &fused.loop_reads(reads), writes)
            }
            Body::Copy => {
                let ([from], [to]) = (&reads[..], &writes[..]) else {
                    return Err("a copy has one operand and one result".into());
                };
                let bytes = [from, to].map(|operand| self.buffers[operand.buffer.index()].bytes());
                // Whole buffers are copied, and a device may take their extent from either operand.
                let whole = [from, to].map(|operand| ty(operand).bytes());
                if bytes != [bytes[0]; 2] || whole != bytes {
                    return Err(format!("a copy of {} bytes goes to a buffer of {}", bytes[0], bytes[1]));
                }
                Ok(())
            }
            Body::Wait => Ok(()),
        }
    }
}

fn ty(operand: &Operand) -> ValueType {
    ValueType { shape: operand.view.shape, dtype: operand.dtype }
}

/// Whether an op takes these operands and has these results.
fn check_op(op: &Op, reads: &[Operand], results: &[ValueType]) -> std::result::Result<(), String> {
    if matches!(op, op_without_kernel!()) {
        return Err(
            "no device has a kernel of it; `lower` puts it into a loop, a view or other kernels".into()
        );
    }
    let operands: Vec<ValueType> = reads.iter().map(ty).collect();
    let expected = infer(op, &operands).map_err(|error| error.to_string())?;
    if expected != results {
        let list = |types: &[ValueType]| types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        return Err(format!("its results are {}, not {}", list(&expected), list(results)));
    }
    let strided =
        matches!(op, Op::Dot { .. } | Op::Attention(_) | Op::AttentionGrad(_) | Op::JointAttentionGrad(_));
    match reads.iter().position(|read| !strided && !read.view.is_dense()) {
        Some(index) => Err(format!("operand {index} is not densely packed")),
        None => Ok(()),
    }
}

/// Whether a loop has all it names, and walks over operands and results of its own extents.
fn check_loop(body: &Loop, reads: &[Operand], writes: &[Operand]) -> std::result::Result<(), String> {
    let Some(rows) = body.domain.rank().checked_sub(body.row_axes) else {
        return Err(format!("rows of {} axes in a loop over {}", body.row_axes, body.domain));
    };
    let extents = |level: Level| match level {
        Level::Element => body.domain,
        Level::Row => Shape::from_slice(&body.domain[..rows]),
    };
    for (index, instruction) in body.instructions.iter().enumerate() {
        if instruction.scalar.operands().any(|register| usize::from(register) >= index) {
            return Err(format!("instruction {index} uses a value that is not there yet"));
        }
        let read = |read: u16| {
            reads.get(usize::from(read)).ok_or_else(|| format!("instruction {index} loads operand {read}"))
        };
        match instruction.scalar {
            Scalar::Load { read: loaded } => {
                let (found, shape) = (ty(read(loaded)?), extents(instruction.level));
                let expected = ValueType { shape, dtype: instruction.dtype };
                if found != expected {
                    return Err(format!("instruction {index} loads {expected} from {found}"));
                }
            }
            Scalar::Random { state, .. } => {
                let state = read(state)?;
                if state.dtype != DType::I64 || state.view.shape[..] != [3] || !state.view.is_dense() {
                    return Err(format!("instruction {index} draws from {}", ty(state)));
                }
            }
            Scalar::Iota { axis } if usize::from(axis) >= body.domain.rank() => {
                return Err(format!("instruction {index} counts along axis {axis} of {}", body.domain));
            }
            _ => {}
        }
    }
    if body.stores.len() != writes.len() {
        return Err(format!("{} values are stored in {} results", body.stores.len(), writes.len()));
    }
    for (&register, write) in body.stores.iter().zip(writes) {
        let Some(stored) = body.instructions.get(usize::from(register)) else {
            return Err(format!("there is no value {register} to store"));
        };
        let (stored, shape) = (stored.dtype, extents(stored.level));
        if (stored, shape.elements()) != (write.dtype, write.view.shape.elements()) {
            return Err(format!("{stored}{shape} is stored as {}", ty(write)));
        }
    }
    Ok(())
}

//! Programs, run as plainly as graphs are evaluated: to see that lowering changes no number.

use crate::tensor::{indices, offset};
use crate::{Tensor, compute, elementwise};
use plimsoll_graph::op::Unary;
use plimsoll_graph::program::{Body, BufferId, Level, Loop, Operand, Program, Scalar, View, WithEpilogue};
use plimsoll_graph::{Op, Shape};

/// Runs a program on its states and inputs, given in its order. Returns the states and the outputs after it.
///
/// # Panics
/// If a tensor is missing or of another type, or a kernel reads what no kernel has written.
pub fn run(program: &Program, states: &[Tensor], inputs: &[Tensor]) -> (Vec<Tensor>, Vec<Tensor>) {
    let mut buffers: Vec<Option<Tensor>> = vec![None; program.buffers.len()];
    let given = program.states.iter().zip(states).chain(program.inputs.iter().zip(inputs));
    for (id, tensor) in given {
        let buffer = &program.buffers[id.index()];
        assert_eq!((buffer.shape, buffer.dtype), (tensor.shape, tensor.dtype), "`{}`", buffer.name);
        buffers[id.index()] = Some(tensor.clone());
    }
    for kernel in &program.kernels {
        let reads: Vec<Tensor> = kernel.reads.iter().map(|operand| read(&buffers, operand)).collect();
        let results = match &kernel.body {
            Body::Op(op) => run_op(op, &kernel.writes[0], &reads),
            Body::Loop(body) => run_loop(body, &reads),
            Body::WithEpilogue(then) => run_with_epilogue(then, &reads),
            Body::Copy => vec![reads[0].data.clone()],
            Body::Wait => vec![],
        };
        for (write, result) in kernel.writes.iter().zip(results) {
            let buffer = &program.buffers[write.buffer.index()];
            let View { offset, .. } = write.view;
            assert!(View { offset: 0, ..write.view }.is_dense(), "results are written densely");
            let result = Tensor::rounded(write.view.shape, buffer.dtype, result).data;
            let of = &mut buffers[write.buffer.index()];
            let blank = || Tensor {
                shape: buffer.shape,
                dtype: buffer.dtype,
                data: vec![f64::NAN; buffer.shape.elements()],
            };
            of.get_or_insert_with(blank).data[offset..][..result.len()].copy_from_slice(&result);
        }
    }
    let after = |id: &BufferId| buffers[id.index()].clone().expect("it was written");
    (program.states.iter().map(after).collect(), program.outputs.iter().map(after).collect())
}

/// The program with each of its rematerializations run right after the kernel whose result it makes again, into a buffer of
/// its own. Returned with it are the pairs of outputs that must be the same: the result, and it made again.
pub fn with_rematerializations(program: &Program) -> (Program, Vec<[usize; 2]>) {
    let mut with = Program { kernels: vec![], rematerializations: vec![], ..program.clone() };
    let mut pairs = vec![];
    for kernel in &program.kernels {
        with.kernels.push(kernel.clone());
        for rematerialization in &program.rematerializations {
            let made = rematerialization.writes[0].buffer;
            if !kernel.writes.iter().any(|write| write.buffer == made) {
                continue;
            }
            let again = BufferId(with.buffers.len() as u32);
            with.buffers.push(with.buffers[made.index()].clone());
            let mut rematerialization = rematerialization.clone();
            rematerialization.writes[0].buffer = again;
            with.kernels.push(rematerialization);
            pairs.push([with.outputs.len(), with.outputs.len() + 1]);
            with.outputs.extend([made, again]);
        }
    }
    (with, pairs)
}

/// What a kernel sees of a buffer.
fn read(buffers: &[Option<Tensor>], operand: &Operand) -> Tensor {
    let buffer = buffers[operand.buffer.index()].as_ref().expect("an earlier kernel wrote it");
    let View { shape, offset, strides } = operand.view;
    let position =
        |index: &[usize]| offset + index.iter().zip(strides).map(|(i, stride)| i * stride).sum::<usize>();
    let data = indices(&shape).map(|index| buffer.data[position(&index)]).collect();
    Tensor { shape, dtype: buffer.dtype, data }
}

fn run_op(op: &Op, first: &Operand, reads: &[Tensor]) -> Vec<Vec<f64>> {
    compute(op, first.view.shape, first.dtype, &reads.iter().collect::<Vec<_>>())
}

fn run_with_epilogue(then: &WithEpilogue, reads: &[Tensor]) -> Vec<Vec<f64>> {
    let (operands, rest) = reads.split_at(then.operands);
    let made = run_op(&then.op, &then.made(), operands).swap_remove(0);
    let made = Tensor::rounded(then.body.domain, then.dtype, made);
    run_loop(&then.body, &[&[made], rest].concat())
}

fn run_loop(body: &Loop, reads: &[Tensor]) -> Vec<Vec<f64>> {
    let lead = body.domain.rank() - body.row_axes;
    let rows = Shape::new(&body.domain[..lead]).expect("part of a shape");
    let mut registers: Vec<(Level, Tensor)> = vec![];
    for instruction in &body.instructions {
        let shape = if instruction.level == Level::Row { rows } else { body.domain };
        // A register as this instruction sees it: a row's value is repeated for each element.
        let seen = |register: u16| {
            let (level, tensor) = &registers[register as usize];
            match (level, instruction.level) {
                (Level::Row, Level::Element) => {
                    let data = indices(&shape).map(|i| tensor.data[offset(&rows, &i[..lead])]).collect();
                    Tensor { shape, dtype: tensor.dtype, data }
                }
                (Level::Element, Level::Row) => panic!("a row instruction reads elements"),
                _ => tensor.clone(),
            }
        };
        let unary = |f: Unary, x: u16| seen(x).data.iter().map(|&v| f.value(v)).collect();
        let data: Vec<f64> = match instruction.scalar {
            Scalar::Load { read } => {
                assert_eq!(reads[read as usize].shape, shape, "the view of a load");
                reads[read as usize].data.clone()
            }
            Scalar::Constant(value) => vec![elementwise::cast(value, instruction.dtype); shape.elements()],
            Scalar::Iota { axis } => indices(&shape).map(|i| i[axis as usize] as f64).collect(),
            Scalar::Random { distribution, state, stream, per_sample } => {
                let state = &reads[state as usize];
                elementwise::random(distribution, state, (stream, per_sample), &shape, instruction.dtype)
            }
            Scalar::Unary(f, x) => unary(f, x),
            Scalar::Binary(f, a, b) => elementwise::binary(f, &seen(a), &seen(b)),
            Scalar::Compare(f, a, b) => elementwise::compare(f, &seen(a), &seen(b)),
            Scalar::Select(c, a, b) => elementwise::select(&seen(c), &seen(a), &seen(b)),
            Scalar::Cast(x) => {
                seen(x).data.iter().map(|&v| elementwise::cast(v, instruction.dtype)).collect()
            }
            Scalar::Reduce(kind, x) => {
                let (level, elements) = &registers[x as usize];
                assert_eq!((*level, instruction.level), (Level::Element, Level::Row), "a reduction of rows");
                let axes = plimsoll_graph::Axes::last(body.row_axes, body.domain.rank());
                crate::movement::reduce(kind, axes, elements, &rows)
            }
        };
        registers.push((instruction.level, Tensor::rounded(shape, instruction.dtype, data)));
    }
    body.stores.iter().map(|&register| registers[register as usize].1.data.clone()).collect()
}

//! Random steps for property tests: chains of ops that fuse, view, copy, reduce and multiply in all the ways
//! that lowering must get right.

use crate::Tensor;
use plimsoll_graph::op::{Binary, Comparison, Distribution, Op, Reduction, Unary};
use plimsoll_graph::program::Role;
use plimsoll_graph::step::Initial;
use plimsoll_graph::{DType, Graph, Step, ValueId};

/// A source of choices that shrinks: the test case is the list of numbers.
pub struct Choices<'a> {
    numbers: std::slice::Iter<'a, u32>,
}

impl<'a> Choices<'a> {
    /// Choices by these numbers, and the first of everything once they are used up.
    pub fn new(numbers: &'a [u32]) -> Self {
        Choices { numbers: numbers.iter() }
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.numbers.next().copied().unwrap_or(0) as usize % n.max(1)
    }
}

const SHAPES: [&[usize]; 5] = [&[2, 3], &[2, 3, 4], &[4], &[], &[3, 1]];

/// A step of random ops over two states, the random state and three inputs, with up to four outputs.
///
/// # Panics
/// If the graph refuses what it should take.
pub fn random_step(choices: &mut Choices<'_>, ops: usize) -> Step {
    let mut step = Step::new();
    let mut values = vec![];
    for (i, shape) in SHAPES.iter().enumerate() {
        let value = if i < 2 {
            step.state(&format!("state{i}"), Role::Parameter, shape, DType::F32, Initial::Constant(0.0))
        } else {
            step.input(&format!("input{i}"), shape, DType::F32)
        };
        values.push(value.expect("a valid step"));
    }
    let random = step.random_state().expect("a valid step");
    for _ in 0..ops {
        let x = values[choices.below(values.len())];
        let y = values[choices.below(values.len())];
        if let Ok(value) = random_op(&mut step.graph, choices, random, x, y) {
            values.push(value);
        }
    }
    for i in 0..2 {
        let old = step.states[i].value;
        let same: Vec<ValueId> =
            values.iter().copied().filter(|&v| step.graph.ty(v) == step.graph.ty(old)).collect();
        step.update(old, same[choices.below(same.len())]).expect("a valid step");
    }
    for i in 0..1 + choices.below(4) {
        let value = values[choices.below(values.len())];
        step.output(&format!("output{i}"), value);
    }
    step
}

fn random_op(
    g: &mut Graph,
    choices: &mut Choices<'_>,
    state: ValueId,
    x: ValueId,
    y: ValueId,
) -> plimsoll_graph::Result<ValueId> {
    let shape = g.shape(x);
    let axis = choices.below(shape.rank());
    match choices.below(22) {
        0 => g.tanh(x),
        1 => g.apply(Op::Unary(Unary::Relu), &[x]),
        2 => g.add(x, y),
        3 => g.mul(x, y),
        4 => g.apply(Op::Binary(Binary::Max), &[x, y]),
        5 => {
            let c = g.apply(Op::Compare(Comparison::Lt), &[x, y])?;
            g.select(c, x, y)
        }
        6 => g.add_scalar(x, 0.5),
        7 => g.reduce(Reduction::Sum, x, &[axis]),
        8 => g.reduce(Reduction::Max, x, &[shape.rank().wrapping_sub(1)]),
        9 => {
            // Normalised over the last axis: a reduction that comes back to its elements.
            let last = shape.rank().wrapping_sub(1);
            let sum = g.reduce(Reduction::Sum, x, &[last])?;
            let mut kept = shape.to_vec();
            kept[last] = 1;
            let sum = g.reshape(sum, &kept)?;
            g.sub(x, sum)
        }
        10 => g.apply(Op::Softmax, &[x]),
        11 => g.reshape(x, &[shape.elements()]),
        12 => {
            let order: Vec<usize> = (0..shape.rank()).rev().collect();
            g.permute(x, &order)
        }
        13 => g.slice_axis(x, axis, 0..shape.get(axis).map_or(0, |&d| d.div_ceil(2))),
        14 => g.concat(&[x, x], axis),
        15 => g.broadcast(x, &[&[2], &shape[..]].concat()),
        16 => g.iota(&shape, axis, DType::F32),
        17 => g.random(Distribution::Uniform, state, &shape, DType::F32, choices.below(5) as u64),
        18 => {
            let narrow = g.cast(x, DType::BF16)?;
            let doubled = g.mul_scalar(narrow, 2.0)?;
            g.cast(doubled, DType::F32)
        }
        19 => g.dot_general(x, y, false, true),
        20 => g.full_like(2.0, x),
        _ => {
            let everything: Vec<usize> = (0..shape.rank()).collect();
            g.sum(x, &everything)
        }
    }
}

/// Numbers of both signs for a value, different for each seed.
pub fn sample(g: &Graph, value: ValueId, seed: usize) -> Tensor {
    let ty = g.ty(value);
    let data = (0..ty.shape.elements()).map(|i| ((i * 37 + seed * 11) % 19) as f64 / 7.0 - 1.2).collect();
    Tensor::new(&ty.shape, ty.dtype, data)
}

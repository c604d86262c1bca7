//! What a rematerialization makes again has the very bits of the original, so that a plan may drop and rematerialization as it likes.

use half::bf16;
use plimsoll_cpu::CpuDevice;
use plimsoll_device::Device;
use plimsoll_graph::op::{Distribution, Op};
use plimsoll_graph::step::Named;
use plimsoll_graph::{DType, Graph, Result, Step, ValueId, lower};
use plimsoll_memory::{Block, Pool};
use plimsoll_reference::random_step::{Choices, random_step};
use plimsoll_reference::with_rematerializations;
use proptest::prelude::*;
use std::rc::Rc;

/// Numbers of both signs, as the bytes of a value.
fn bytes(g: &Graph, value: ValueId, seed: usize) -> Vec<u8> {
    let ty = g.ty(value);
    let number = |i: usize| {
        let word = plimsoll_graph::random::philox([i as u32, seed as u32, 0, 0], [7, 9])[0];
        (word >> 8) as f32 / (1 << 22) as f32 - 2.0
    };
    let bytes = |i: usize| match ty.dtype {
        DType::F32 => number(i).to_ne_bytes().to_vec(),
        DType::BF16 => bf16::from_f32(number(i)).to_ne_bytes().to_vec(),
        DType::I64 => (i as i64 + 3).to_ne_bytes().to_vec(),
        other => panic!("no numbers of {other}"),
    };
    (0..ty.shape.elements()).flat_map(bytes).collect()
}

/// Runs a step without states and all its rematerializations. Returns how many there are.
fn check(step: &Step) -> usize {
    let (program, pairs) = with_rematerializations(&lower(step));
    for threads in [1, 3] {
        let device = CpuDevice::new(Some(threads)).unwrap();
        let pool = Pool::new(None);
        let inputs: Vec<Rc<Block>> = step
            .inputs
            .iter()
            .enumerate()
            .map(|(seed, input)| {
                let bytes = bytes(&step.graph, input.value, seed);
                let mut block = pool.allocate(bytes.len() as u64).unwrap();
                block.as_mut_slice().copy_from_slice(&bytes);
                Rc::new(block)
            })
            .collect();
        let outputs = device.run_once(&program, &inputs, &pool).unwrap();
        for &[made, again] in &pairs {
            let name = &program.buffers[program.outputs[made].index()].name;
            assert!(outputs[made].as_slice() == outputs[again].as_slice(), "`{name}` of\n{}", step.graph);
        }
    }
    pairs.len()
}

/// Reports a product with each value, which has to be in memory for that.
fn use_by_products(step: &mut Step, values: &[ValueId]) -> Result<()> {
    for &value in values {
        let product = step.graph.dot_general(value, value, true, false)?;
        step.output("product", product);
    }
    Ok(())
}

const TYPES: [DType; 2] = [DType::F32, DType::BF16];

#[test]
fn a_bias_and_an_activation_are_made_again() -> Result<()> {
    // A product that is handed on is nowhere: only the activation can be made again, from the sum. If it is kept: the
    // sum; and the activation, from the sum and from the product.
    for (dtype, (kept, expected)) in TYPES.into_iter().flat_map(|t| [(t, (false, 1)), (t, (true, 3))]) {
        let mut step = Step::new();
        let x = step.input("x", &[70, 33], dtype)?;
        let w = step.input("w", &[33, 130], dtype)?;
        let b = step.input("b", &[130], dtype)?;
        let g = &mut step.graph;
        let product = g.dot(x, w)?;
        let h = g.add(product, b)?;
        let y = g.gelu(h)?;
        if kept {
            step.output("kept", product);
        }
        use_by_products(&mut step, &[h, y])?;
        assert_eq!(check(&step), expected);
    }
    Ok(())
}

#[test]
fn a_dropout_mask_and_what_it_lets_through_are_made_again() -> Result<()> {
    for dtype in TYPES {
        let mut step = Step::new();
        let state = step.input("state", &[3], DType::I64)?;
        let x = step.input("x", &[50, 9, 37], dtype)?;
        let g = &mut step.graph;
        let chance = g.random(Distribution::Uniform, state, &[50, 9, 37], DType::F32, 0)?;
        let rate = g.full_like(0.3, chance)?;
        let mask = g.ge(chance, rate)?;
        let scaled = g.mul_scalar(x, 1.0 / 0.7)?;
        let zero = g.full_like(0.0, x)?;
        let y = g.select(mask, scaled, zero)?;
        // As backward: the mask is used again on something that comes from the result.
        let product = g.dot_general(y, y, false, true)?;
        let u = g.dot(product, y)?;
        let masked = g.select(mask, u, zero)?;
        step.output("masked", masked);
        // The mask; and the result, from the mask and from the numbers.
        assert_eq!(check(&step), 3);
    }
    Ok(())
}

#[test]
fn softmax_and_sums_of_rows_are_made_again() -> Result<()> {
    for dtype in TYPES {
        for row in [5, 300, 5000] {
            let mut step = Step::new();
            let x = step.input("x", &[20, row], dtype)?;
            let g = &mut step.graph;
            let y = g.apply(Op::Softmax, &[x])?;
            let z = g.mul(y, x)?;
            let sum = g.sum(z, &[1])?;
            let sum = g.reshape(sum, &[20, 1])?;
            let shifted = g.sub(z, sum)?;
            use_by_products(&mut step, &[y, sum, shifted])?;
            // The softmax from x; the sum and the shifted from the results before them and from x.
            assert_eq!(check(&step), 5);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn rematerializations_of_random_graphs_have_the_same_bits(choices in prop::collection::vec(any::<u32>(), 40..200)) {
        let mut choices = Choices::new(&choices);
        let step = random_step(&mut choices, 24);
        let mut function = Step { graph: step.graph.clone(), ..Step::new() };
        let states = step.states.iter().map(|s| Named { name: s.name.clone(), value: s.value });
        function.inputs = states.chain(step.inputs.iter().cloned()).collect();
        function.outputs = step.outputs.clone();
        check(&function);
    }
}

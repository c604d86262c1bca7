//! A product that hands its result on to a loop gives the bits of the two apart.
//!
//! A result that is also an output needs an address, so that asking for it keeps the two apart.

use plimsoll_cpu::CpuDevice;
use plimsoll_device::Device;
use plimsoll_graph::op::Conv2d;
use plimsoll_graph::program::{Body, Program};
use plimsoll_graph::{DType, Graph, Op, Result, Step, ValueId, lower};
use plimsoll_memory::Pool;
use std::rc::Rc;

/// Bytes of numbers from -1 to 1 without a pattern.
fn numbers(count: usize, dtype: DType, seed: u32) -> Vec<u8> {
    let number = |i: usize| {
        let word = plimsoll_graph::random::philox([i as u32, seed, 0, 0], [7, 9])[0];
        f64::from(word >> 8) / f64::from(1 << 23) - 1.0
    };
    let bytes = |v: f64| match dtype {
        DType::F64 => v.to_ne_bytes().to_vec(),
        DType::F16 => half::f16::from_f64(v).to_ne_bytes().to_vec(),
        DType::BF16 => half::bf16::from_f64(v).to_ne_bytes().to_vec(),
        _ => (v as f32).to_ne_bytes().to_vec(),
    };
    (0..count).flat_map(|i| bytes(number(i))).collect()
}

/// The bytes of a program's outputs, on inputs that are the same for programs of the same inputs.
fn run(program: &Program, threads: usize) -> Vec<Vec<u8>> {
    let (device, pool) = (CpuDevice::new(Some(threads)).unwrap(), Pool::new(None));
    let inputs: Vec<_> = program
        .inputs
        .iter()
        .map(|input| {
            let buffer = &program.buffers[input.index()];
            let bytes = numbers(buffer.shape.elements(), buffer.dtype, input.0);
            let mut block = pool.allocate(bytes.len() as u64).unwrap();
            block.as_mut_slice().copy_from_slice(&bytes);
            Rc::new(block)
        })
        .collect();
    let outputs = device.run_once(program, &inputs, &pool).unwrap();
    outputs.iter().map(|block| block.as_slice().to_vec()).collect()
}

fn follows(program: &Program) -> bool {
    program.kernels.iter().any(|kernel| matches!(kernel.body, Body::WithEpilogue(_)))
}

/// Checks a product followed by some loops against the two apart. `build` returns the product and what is made of it.
#[track_caller]
fn check(what: &str, build: impl Fn(&mut Step) -> Result<(ValueId, Vec<ValueId>)>) {
    let program = |apart: bool| {
        let mut step = Step::new();
        let (product, made) = build(&mut step).expect(what);
        made.iter().for_each(|&value| step.output("made", value));
        if apart {
            step.output("product", product);
        }
        lower(&step)
    };
    let (together, apart) = (program(false), program(true));
    assert!(follows(&together) && !follows(&apart), "{what}: lowering joins the two, and only where it may");
    let mut expected = run(&apart, 1);
    expected.pop();
    for threads in 1..=3 {
        assert!(run(&together, threads) == expected, "{what} on {threads} threads");
    }
}

/// A bias, an activation that is stored beside its operand, a number for each row, and something else of every element.
fn after(g: &mut Graph, y: ValueId, bias: ValueId, row: ValueId, other: ValueId) -> Result<Vec<ValueId>> {
    let biased = g.add(y, bias)?;
    let active = g.gelu(biased)?;
    let scaled = g.mul(active, row)?;
    Ok(vec![biased, g.add(scaled, other)?])
}

#[test]
fn matrix_products_of_any_size_and_type_hand_on_the_bits_they_would_have_written() {
    // Columns at and around what is handed on at once and at the pitch of its rows; depths of one block and of
    // several; sums in parts; too few rows to hand on.
    let sizes = [
        [40, 7, 3],
        [33, 511, 5],
        [64, 512, 20],
        [64, 528, 3],
        [100, 1056, 2],
        [50, 600, 700],
        [300, 40, 1100],
        [34, 20, 5000],
        [9, 30, 12],
        [260, 1030, 530],
    ];
    for dtype in [DType::F32, DType::BF16, DType::F16, DType::F64] {
        for [m, n, k] in sizes {
            for transposed in [false, true] {
                check(&format!("{dtype} {m} x {n} over {k}, transposed {transposed}"), |step| {
                    let x = step.input("x", &if transposed { [k, m] } else { [m, k] }, dtype)?;
                    let w = step.input("w", &[k, n], dtype)?;
                    let bias = step.input("bias", &[n], dtype)?;
                    let row = step.input("row", &[m, 1], dtype)?;
                    let other = step.input("other", &[m, n], dtype)?;
                    let g = &mut step.graph;
                    let y = g.apply(Op::Dot { transpose_a: transposed, transpose_b: false }, &[x, w])?;
                    Ok((y, after(g, y, bias, row, other)?))
                });
            }
        }
    }
}

#[test]
fn convolutions_hand_on_their_outputs_and_the_gradients_of_their_images() {
    for dtype in [DType::F32, DType::BF16] {
        for ([batch, size, channels, filters], padding) in
            [([2, 6, 3, 5], 1), ([3, 9, 64, 40], 1), ([1, 12, 17, 600], 0), ([5, 14, 20, 40], 1)]
        {
            let conv = Conv2d { padding: [padding; 4], ..Conv2d::default() };
            let out = size + 2 * padding - 2;
            check(&format!("{dtype} {batch} images of {size}, {channels} to {filters}"), |step| {
                let x = step.input("x", &[batch, size, size, channels], dtype)?;
                let w = step.input("w", &[3, 3, channels, filters], dtype)?;
                let bias = step.input("bias", &[filters], dtype)?;
                let row = step.input("row", &[batch, out, out, 1], dtype)?;
                let other = step.input("other", &[batch, out, out, filters], dtype)?;
                let g = &mut step.graph;
                let y = g.apply(Op::Conv2d(conv), &[x, w])?;
                Ok((y, after(g, y, bias, row, other)?))
            });
            check(&format!("{dtype} the gradient of {batch} images of {size}, {channels}"), |step| {
                let w = step.input("w", &[3, 3, channels, filters], dtype)?;
                let dy = step.input("dy", &[batch, out, out, filters], dtype)?;
                let shape = plimsoll_graph::Shape::new(&[batch, size, size, channels])?;
                let x = step.input("x", &shape, dtype)?;
                let g = &mut step.graph;
                let dx = g.apply(Op::Conv2dInputGrad { conv, input: shape }, &[w, dy])?;
                let zero = g.mul(x, x)?;
                Ok((dx, vec![g.mul(dx, x)?, zero]))
            });
        }
    }
}

#[test]
fn the_rows_of_a_table_that_were_added_to_are_handed_on_and_so_are_the_others() {
    // Rows that are handed on all at once, several at a time and one by one; too wide to hand on; hardly any updates.
    for dtype in [DType::F32, DType::BF16, DType::F64] {
        for [rows, width, count] in [[5, 3, 40], [3000, 32, 50], [40, 700, 90], [30, 512, 7], [2000, 17, 1]] {
            check(&format!("{dtype} {count} rows of {width} into {rows}"), |step| {
                let bytes = step.input("indices", &[count], dtype)?;
                let updates = step.input("updates", &[count, width], dtype)?;
                let old = step.input("old", &[rows, width], dtype)?;
                let g = &mut step.graph;
                // Numbers from -1 to 1 as rows, some of them outside.
                let (wide, shift) = (g.cast(bytes, DType::F32)?, rows as f64 / 2.0);
                let scaled = g.mul_scalar(wide, 1.1 * shift)?;
                let moved = g.add_scalar(scaled, shift)?;
                let indices = g.cast(moved, DType::I32)?;
                let gradient = g.apply(Op::ScatterAdd { rows }, &[indices, updates])?;
                let scaled = g.mul(gradient, old)?;
                Ok((gradient, vec![scaled, g.sub(scaled, old)?]))
            });
        }
    }
}

#[test]
fn a_product_over_nothing_is_zeros_for_what_follows() {
    check("over nothing", |step| {
        let x = step.input("x", &[40, 0], DType::F32)?;
        let w = step.input("w", &[0, 8], DType::F32)?;
        let other = step.input("other", &[40, 8], DType::F32)?;
        let g = &mut step.graph;
        let y = g.dot(x, w)?;
        Ok((y, vec![g.add(y, other)?]))
    });
}

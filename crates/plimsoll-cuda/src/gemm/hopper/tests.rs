//! Which products are taken, and what they and their epilogues become, by their text.

use super::*;
use crate::codegen::loops::{Epilogue, tile_epilogue};
use crate::routine::PointerTo;
use plimsoll_graph::op::{Binary, Unary};
use plimsoll_graph::program::{BufferId, Instruction, Level, Loop, Operand, Register, Scalar, View};
use plimsoll_graph::{MAX_RANK, Shape};
use proptest::prelude::*;

/// A product of dense matrices.
fn gemm(m: usize, n: usize, k: usize) -> Gemm {
    Gemm::dense(m, n, k, DType::BF16)
}

#[test]
fn products_that_fill_the_device_suit() {
    let suits = |gemm: Gemm| suits(&gemm, &Properties::h100());
    for [n, k] in [[2304, 768], [768, 768], [3072, 768], [768, 3072]] {
        assert!(suits(gemm(16384, n, k)), "{n} {k}");
        assert!(suits(Gemm { b: [1, k, 0], ..gemm(16384, n, k) }), "transposed: {n} {k}");
        assert!(suits(Gemm { dtype: DType::F16, result: DType::F16, ..gemm(16384, n, k) }));
    }
    assert!(suits(gemm(5604, 1528, 200)), "tiles that are not full, two for each processor");
    assert!(!suits(gemm(768, 3072, 16384)), "few deep tiles");
    assert!(!suits(gemm(1408, 1408, 768)), "nothing hides the epilogue of a single tile");
    assert!(!suits(gemm(2900, 1536, 768)), "a second round of few");
}

#[test]
fn products_that_the_kernel_cannot_compute_do_not_suit() {
    let product = gemm(16384, 768, 768);
    let suits = |gemm: Gemm| suits(&gemm, &Properties::h100());
    assert!(suits(product));
    assert!(!suits(Gemm { dtype: DType::F32, result: DType::F32, ..product }));
    assert!(!suits(Gemm { result: DType::F32, ..product }), "sums that are not rounded");
    assert!(!suits(Gemm { accumulate: true, ..product }));
    assert!(!suits(Gemm { batch: 2, ..product }));
    assert!(!suits(Gemm { alignment: [8, 256, 256], ..product }));
    assert!(!suits(Gemm { a: [772, 1, 0], ..product }), "rows that begin at odd places");
    assert!(!suits(Gemm { c: [1024, 0], ..product }), "a result that is not dense");
    assert!(!suits(gemm(16384, 764, 768)));
    assert!(!suits(gemm(16384, 768, 0)));
    assert!(!super::suits(&product, &Properties { capability: (10, 0), ..Properties::h100() }));
    assert!(!super::suits(&product, &Properties { capability: (8, 0), ..Properties::h100() }));
    assert!(!super::suits(&product, &Properties { shared_per_block: 99 << 10, ..Properties::h100() }));
}

#[test]
fn operands_are_lines_along_the_depth_or_across() {
    let straight = Lines { count: 256, length: 64, step: 72, turned: false };
    assert_eq!(Lines::of(256, 64, [72, 1]), Some(straight));
    let turned = Lines { count: 64, length: 256, step: 256, turned: true };
    assert_eq!(Lines::of(256, 64, [1, 256]), Some(turned));
    assert_eq!(Lines::of(256, 64, [128, 2]), None, "every other element");
    assert_eq!(Lines::of(256, 64, [8, 1]), None, "lines that overlap");
    let [a, b] = Lines::both(&gemm(512, 256, 128)).expect("dense matrices");
    assert_eq!((a.turned, b.turned), (false, true));
}

#[test]
fn stages_and_what_is_handed_on_fit_into_shared_memory() {
    assert_eq!(SHARED, 3 * 48 * 1024 + 64 * 1024 + 48);
    assert!(SHARED <= Properties::h100().shared_per_block);
}

#[test]
fn groups_ask_for_no_more_registers_than_a_block_begins_with() {
    let asked = |text: &str| {
        let numbers =
            PRODUCT.split(text).skip(1).filter_map(|rest| rest.split(';').next()?.parse::<u32>().ok());
        numbers.collect::<Vec<u32>>()
    };
    let (more, fewer) =
        (asked("setmaxnreg.inc.sync.aligned.u32 "), asked("setmaxnreg.dec.sync.aligned.u32 "));
    let (&[multiply], &[epilogue, copy]) = (&*more, &*fewer) else { panic!("{more:?} {fewer:?}") };
    let all = 128 * (2 * multiply + 2 * epilogue + copy);
    assert_eq!(all, REGISTERS);
    // What the compiler gives to as many threads, of the 65,536 of a multiprocessor.
    let given = (1 << 16) / THREADS / 8 * 8;
    assert!(all <= given * THREADS, "{all} of {given} for each of {THREADS} threads");
}

#[test]
fn shallow_products_may_be_slower_for_what_they_hand_on() {
    assert_eq!(allowance(64), MOST_SLOWER);
    assert!((0.2..0.25).contains(&allowance(768)));
    assert!(allowance(16384) < 0.02);
}

#[test]
fn the_source_says_how_operands_lie_and_nothing_of_their_extents() {
    for (dtype, name) in [(DType::BF16, "bf16"), (DType::F16, "f16")] {
        for turned in [[false, false], [false, true], [true, false], [true, true]] {
            let text = source(dtype, turned, PLAIN);
            let [a, b] = turned.map(u8::from);
            assert!(text.contains(&format!("#define A_TURNED {a}\n#define B_TURNED {b}\n")));
            assert!(text.contains(&format!("#define HALF {name}\n")));
        }
    }
}

/// The place of a tile, as the kernel's `locate` has it.
fn locate(work: usize, down: usize, across: usize) -> (usize, usize) {
    let first = work / (BAND * across) * BAND;
    let (rest, height) = (work - first * across, (down - first).min(BAND));
    (first + rest % height, rest / height)
}

proptest! {
    #[test]
    fn every_tile_is_taken_once(down in 1usize..70, across in 1usize..40) {
        let mut taken = vec![false; down * across];
        for work in 0..down * across {
            let (y, x) = locate(work, down, across);
            prop_assert!(y < down && x < across, "{y} {x}");
            prop_assert!(!std::mem::replace(&mut taken[y * across + x], true), "twice: {y} {x}");
        }
    }
}

/// A loop over a product's result, its read 0, and other operands.
struct LoopBuilder {
    body: Loop,
    reads: Vec<Operand>,
    writes: Vec<Operand>,
}

impl LoopBuilder {
    fn new(rows: usize, columns: usize) -> LoopBuilder {
        let domain = Shape::new(&[rows, columns]).expect("a small shape");
        let body = Loop { domain, row_axes: 0, instructions: vec![], stores: vec![] };
        let mut builder = LoopBuilder { body, reads: vec![], writes: vec![] };
        builder.load(DType::BF16, [columns, 1]);
        builder
    }

    fn push(&mut self, scalar: Scalar, dtype: DType) -> Register {
        self.body.instructions.push(Instruction { scalar, dtype, level: Level::Element });
        self.body.instructions.len() as Register - 1
    }

    fn load(&mut self, dtype: DType, steps: [usize; 2]) -> Register {
        let mut strides = [0; MAX_RANK];
        strides[..2].copy_from_slice(&steps);
        let view = View { shape: self.body.domain, offset: 0, strides };
        self.reads.push(Operand { buffer: BufferId(0), dtype, view });
        self.push(Scalar::Load { read: self.reads.len() as u16 - 1 }, dtype)
    }

    fn store(&mut self, register: Register) {
        let dtype = self.body.instructions[usize::from(register)].dtype;
        let view = View::dense(self.body.domain);
        self.body.stores.push(register);
        self.writes.push(Operand { buffer: BufferId(1), dtype, view });
    }

    fn add(&mut self, a: Register, b: Register) -> Register {
        self.push(Scalar::Binary(Binary::Add, a, b), DType::BF16)
    }

    fn epilogue(&self) -> Option<Epilogue> {
        tile_epilogue(&self.body, &self.reads, &self.writes).expect("functions that there are")
    }

    fn text(&self) -> Epilogue {
        self.epilogue().expect("a loop that can be an epilogue")
    }
}

/// Bias and activation, of which both sides are kept.
fn activation(rows: usize) -> LoopBuilder {
    let mut builder = LoopBuilder::new(rows, 3072);
    let bias = builder.load(DType::BF16, [0, 1]);
    let sum = builder.add(0, bias);
    let active = builder.push(Scalar::Unary(Unary::Gelu, sum), DType::BF16);
    builder.store(sum);
    builder.store(active);
    builder
}

#[test]
fn a_bias_is_brought_once_for_all_rows_of_a_tile() {
    let Epilogue { text, arguments } = activation(16384).text();
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no `{part}` in {text}"));
    assert!(at("p1 = load_pack<8>(in1 + (at));") < at("void follow("), "before the tile is computed");
    assert!(at("p0 = load_pack<8>(staged_at(staged, batch + u));") < at("half_gelu(r2)"));
    assert!(text.contains("store_pack<8>(out1 + ((idx)row * 3072u + at), q1);"), "{text}");
    assert_eq!(arguments, [PointerTo::Read(1), PointerTo::Write(0), PointerTo::Write(1)]);
    assert!(text.contains("#define ARGUMENTS in1, out0, out1\n"), "{text}");
}

/// What is added to the product and how many operands' rows are brought for it.
fn sum_with(operands: usize) -> LoopBuilder {
    let mut builder = LoopBuilder::new(16384, 768);
    let mut sum = 0;
    for _ in 0..operands {
        let other = builder.load(DType::BF16, [768, 1]);
        sum = builder.add(sum, other);
    }
    builder.store(sum);
    builder
}

#[test]
fn rows_of_another_operand_are_brought_while_those_before_are_worked_on() {
    let text = sum_with(1).text().text;
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no `{part}` in {text}"));
    assert!(at("Pack<bf16, 8> l1[2];") < at("void bring_ahead("));
    assert!(at("ahead.l1[u] = p1;") < at("void follow("), "the first before the product is there");
    assert!(at("row = least(first + 2u * (batch + 2 + u), rows - 1);") < at("next.l1[u] = p1;"));
    assert!(at("next.l1[u] = p1;") < at("p1 = ahead.l1[u];"));
    assert!(at("if (exists) store_pack<8>(out0") < at("ahead.l1[u] = next.l1[u];"));
}

#[test]
fn rows_of_more_operands_are_brought_one_at_a_time() {
    let text = sum_with(2).text().text;
    assert!(text.contains("Pack<bf16, 8> l1[1];\n    Pack<bf16, 8> l3[1];"), "{text}");
    assert!(text.contains("batch += 1"), "{text}");
}

#[test]
fn products_of_more_rows_have_the_same_epilogue() {
    assert_eq!(activation(16384).text(), activation(20000).text());
}

#[test]
fn loops_that_would_stall_a_product_are_no_epilogue() {
    let with = |scalar: fn(Register) -> Scalar, dtype: DType| {
        let mut builder = LoopBuilder::new(16384, 768);
        let x = builder.push(Scalar::Cast(0), dtype);
        let y = builder.push(scalar(x), dtype);
        builder.store(y);
        builder.epilogue()
    };
    assert!(with(|x| Scalar::Unary(Unary::Gelu, x), DType::F16).is_some());
    assert!(with(|x| Scalar::Unary(Unary::Gelu, x), DType::F32).is_some());
    assert!(with(|x| Scalar::Unary(Unary::Tanh, x), DType::BF16).is_none());
    assert!(with(|x| Scalar::Binary(Binary::Div, x, x), DType::F32).is_none());
    assert!(with(|x| Scalar::Binary(Binary::Mul, x, x), DType::F32).is_some());
    assert!(with(|x| Scalar::Binary(Binary::Mul, x, x), DType::F64).is_none());

    let mut across = LoopBuilder::new(16384, 768);
    let turned = across.load(DType::BF16, [1, 16384]);
    let sum = across.add(0, turned);
    across.store(sum);
    assert!(across.epilogue().is_none(), "an operand that is read across");

    let mut narrow = LoopBuilder::new(16384, 772);
    narrow.store(0);
    assert!(narrow.epilogue().is_none(), "rows that do not begin at multiples of 16 bytes");

    let mut rows = activation(16384);
    rows.body.row_axes = 1;
    assert!(rows.epilogue().is_none(), "a loop over rows");
}

#[test]
fn an_epilogue_may_read_one_number_for_each_row() {
    let mut builder = LoopBuilder::new(16384, 768);
    let scale = builder.load(DType::F32, [1, 0]);
    let wide = builder.push(Scalar::Cast(0), DType::F32);
    let scaled = builder.push(Scalar::Binary(Binary::Mul, wide, scale), DType::F32);
    builder.store(scaled);
    let text = builder.text().text;
    assert!(text.contains("r1 = load(in1[row]);"), "{text}");
}

#[test]
fn a_slope_is_computed_to_the_precision_that_is_seen_of_it() {
    let with = |finish: fn(&mut LoopBuilder, Register) -> Register| {
        let mut builder = LoopBuilder::new(16384, 3072);
        let before = builder.load(DType::BF16, [3072, 1]);
        let [upstream, x] = [0, before].map(|half| builder.push(Scalar::Cast(half), DType::F32));
        let slope = builder.push(Scalar::Unary(Unary::GeluSlope, x), DType::F32);
        let product = builder.push(Scalar::Binary(Binary::Mul, upstream, slope), DType::F32);
        let last = finish(&mut builder, product);
        builder.store(last);
        builder.text().text
    };
    let rounded = with(|builder, product| builder.push(Scalar::Cast(product), DType::BF16));
    assert!(rounded.contains("= half_gelu_slope(r3);"), "{rounded}");
    let stored = with(|_, product| product);
    assert!(stored.contains("= gelu_slope(r3);"), "{stored}");
    // A difference may be left with little but what its parts were rounded by.
    let cancelled = with(|builder, product| {
        let rest = builder.push(Scalar::Binary(Binary::Sub, product, product), DType::F32);
        builder.push(Scalar::Cast(rest), DType::BF16)
    });
    assert!(cancelled.contains("= gelu_slope(r3);"), "{cancelled}");
    let kept = with(|builder, product| {
        builder.store(product);
        builder.push(Scalar::Cast(product), DType::BF16)
    });
    assert!(kept.contains("= gelu_slope(r3);"), "{kept}");
}

//! What loops become, by their text: it is compiled and run only where there is a device.

use super::writer::LoopLaunch;
use super::{LoopPlan, plan};
use crate::codegen::engine::Properties;
use crate::routine::PointerTo;
use plimsoll_graph::op::{Binary, Comparison, Distribution, Reduction, Unary};
use plimsoll_graph::program::{Body, BufferId, Instruction, Level, Loop, Operand, Register, Scalar, View};
use plimsoll_graph::{DType, Shape, lower};
use plimsoll_reference::random_step::{Choices, random_step};
use proptest::prelude::*;

fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).expect("a small shape")
}

/// A loop with its operands.
#[derive(Debug)]
struct Case {
    body: Loop,
    reads: Vec<Operand>,
    /// The elements of each read's buffer.
    elements: Vec<usize>,
    writes: Vec<Operand>,
}

impl Case {
    fn new(dims: &[usize], row_axes: usize) -> Case {
        let body = Loop { domain: shape(dims), row_axes, instructions: vec![], stores: vec![] };
        Case { body, reads: vec![], elements: vec![], writes: vec![] }
    }

    fn rows(&self) -> &[usize] {
        &self.body.domain[..self.body.domain.rank() - self.body.row_axes]
    }

    fn push(&mut self, scalar: Scalar, dtype: DType, level: Level) -> Register {
        self.body.instructions.push(Instruction { scalar, dtype, level });
        self.body.instructions.len() as Register - 1
    }

    fn load(&mut self, dtype: DType, level: Level, view: View, elements: usize) -> Register {
        let read = self.reads.len();
        self.reads.push(Operand { buffer: BufferId(read as u32), dtype, view });
        self.elements.push(elements);
        self.push(Scalar::Load { read: read as u16 }, dtype, level)
    }

    /// A load of a densely packed operand of the domain.
    fn dense(&mut self, dtype: DType) -> Register {
        let domain = self.body.domain;
        self.load(dtype, Level::Element, View::dense(domain), domain.elements())
    }

    fn store(&mut self, register: Register) {
        let of = self.body.instructions[usize::from(register)];
        let to = if of.level == Level::Row { shape(self.rows()) } else { self.body.domain };
        let buffer = BufferId(100 + self.writes.len() as u32);
        self.body.stores.push(register);
        self.writes.push(Operand { buffer, dtype: of.dtype, view: View::dense(to) });
    }

    fn plan(&self) -> LoopPlan {
        plan(&self.body, &self.reads, &self.writes, &Properties::h100()).expect("a loop that can be planned")
    }
}

/// The code after the prelude.
fn code(launch: &LoopLaunch) -> &str {
    let at = launch.source.find("typedef u32 idx;").or_else(|| launch.source.find("typedef u64 idx;"));
    &launch.source[at.expect("the kernel's own code")..]
}

fn only(plan: &LoopPlan) -> &LoopLaunch {
    assert_eq!(plan.launches.len(), 1);
    assert_eq!(plan.workspace, 0);
    &plan.launches[0]
}

#[test]
fn a_dense_loop_moves_sixteen_bytes_at_once() {
    for (dtype, width) in [(DType::F32, 4), (DType::BF16, 8), (DType::F64, 2), (DType::Bool, 8)] {
        let mut case = Case::new(&[4096, 2048], 0);
        let a = case.dense(dtype);
        let b = case.dense(dtype);
        let sum = case.push(Scalar::Binary(Binary::Add, a, b), dtype, Level::Element);
        case.store(sum);
        let plan = case.plan();
        let code = code(only(&plan));
        assert_eq!(code.matches(&format!("= load_pack<{width}>(in")).count(), 2, "{code}");
        assert_eq!(code.matches(&format!("store_pack<{width}>(out0 + at, ")).count(), 1, "{code}");
        assert!(!code.contains('%'), "joined axes need no division: {code}");
    }
}

#[test]
fn what_is_left_of_a_dense_loop_is_done_one_by_one() {
    let mut case = Case::new(&[1_000_003], 0);
    let a = case.dense(DType::F32);
    case.store(a);
    let plan = case.plan();
    let code = code(only(&plan));
    assert!(code.contains("i < 250000u") && code.contains("if (at < 1000003u)"), "{code}");
}

#[test]
fn a_value_that_is_the_same_everywhere_is_loaded_before_the_loop() {
    let mut case = Case::new(&[1024, 1024], 0);
    let x = case.dense(DType::F32);
    let domain = case.body.domain;
    let scalar = View { shape: domain, offset: 3, strides: [0; 8] };
    let s = case.load(DType::F32, Level::Element, scalar, 4);
    let bias = View { shape: domain, offset: 0, strides: [1, 0, 0, 0, 0, 0, 0, 0] };
    let b = case.load(DType::F32, Level::Element, bias, 1024);
    let scaled = case.push(Scalar::Binary(Binary::Mul, x, s), DType::F32, Level::Element);
    let sum = case.push(Scalar::Binary(Binary::Add, scaled, b), DType::F32, Level::Element);
    case.store(sum);
    let plan = case.plan();
    let code = code(only(&plan));
    let at = |text: &str| code.find(text).unwrap_or_else(|| panic!("no `{text}` in {code}"));
    assert!(at("r1 = load(in1[3u]);") < at("for (idx i"));
    // Along the vector it is one value, brought once.
    assert!(at("for (idx i") < at("r2 = load(in2[") && at("r2 = load(in2[") < at("for (int j"));
}

#[test]
fn positions_take_64_bits_where_32_do_not_hold_them() {
    let of = |rows: usize| {
        let mut case = Case::new(&[rows, 1 << 20], 0);
        let x = case.dense(DType::BF16);
        case.store(x);
        code(only(&case.plan())).contains("typedef u64 idx;")
    };
    assert!(!of(2047) && of(2048));
}

#[test]
fn an_operand_that_is_read_across_is_read_in_tiles() {
    let mut case = Case::new(&[8, 512, 256], 0);
    let view = View { shape: case.body.domain, offset: 0, strides: [512 * 256, 1, 512, 0, 0, 0, 0, 0] };
    let x = case.load(DType::F32, Level::Element, view, 8 * 512 * 256);
    case.store(x);
    let plan = case.plan();
    let launch = only(&plan);
    assert_eq!((launch.threads, launch.blocks), (1024, 2 * 132));
    assert!(code(launch).contains("const idx tile = i / 1024u"), "{}", code(launch));
}

/// Softmax over rows.
fn softmax(rows: usize, length: usize) -> Case {
    let mut case = Case::new(&[rows, length], 1);
    let (dtype, element, row) = (DType::F32, Level::Element, Level::Row);
    let x = case.dense(dtype);
    let most = case.push(Scalar::Reduce(Reduction::Max, x), dtype, row);
    let less = case.push(Scalar::Binary(Binary::Sub, x, most), dtype, element);
    let e = case.push(Scalar::Unary(Unary::Exp, less), dtype, element);
    let sum = case.push(Scalar::Reduce(Reduction::Sum, e), dtype, row);
    let y = case.push(Scalar::Binary(Binary::Div, e, sum), dtype, element);
    case.store(y);
    case
}

#[test]
fn a_row_that_fits_is_loaded_once_and_kept() {
    for (length, threads) in [(8, 128), (300, 128), (1000, 64), (4096, 256), (16_384, 1024)] {
        let plan = softmax(4096, length).plan();
        let launch = only(&plan);
        let code = code(launch);
        assert_eq!((launch.name, launch.threads), ("rows", threads));
        assert_eq!(code.matches("(in0").count(), 1, "{code}");
        assert_eq!(code.matches("exponential(").count(), 1, "{code}");
    }
}

#[test]
fn a_row_that_does_not_fit_is_loaded_again_in_each_pass() {
    let plan = softmax(4096, 50_000).plan();
    let [launch] = &plan.launches[..] else { panic!("{} launches", plan.launches.len()) };
    let code = code(launch);
    assert_eq!(code.matches("(in0").count(), 3, "{code}");
}

#[test]
fn a_single_long_row_is_split_over_blocks() {
    let mut case = Case::new(&[1 << 22], 1);
    let x = case.dense(DType::F32);
    let square = case.push(Scalar::Binary(Binary::Mul, x, x), DType::F32, Level::Element);
    let sum = case.push(Scalar::Reduce(Reduction::Sum, square), DType::F32, Level::Row);
    case.store(sum);
    let plan = case.plan();
    let names: Vec<&str> = plan.launches.iter().map(|launch| launch.name).collect();
    assert_eq!(names, ["segments", "rows", "elements"]);
    assert_eq!(plan.launches[0].blocks, 8192 / 8);
    assert_eq!(plan.workspace, 8192 * 4 + 256);
}

#[test]
fn no_loop_takes_more_workspace_than_one_of_more_rows() {
    for length in [768, 32 << 10, 50_000] {
        let taken: Vec<u64> = (1..300).map(|rows| softmax(rows, length).plan().workspace).collect();
        assert!(taken.is_sorted(), "{taken:?}");
    }
}

#[test]
fn rows_whose_neighbours_are_other_rows_are_read_across() {
    // The sum over the first axis of a matrix, as the gradient of a bias is.
    let (rows, length) = (768, 8192);
    let mut case = Case::new(&[rows, length], 1);
    let view = View { shape: case.body.domain, offset: 0, strides: [1, rows, 0, 0, 0, 0, 0, 0] };
    let x = case.load(DType::F32, Level::Element, view, rows * length);
    let sum = case.push(Scalar::Reduce(Reduction::Sum, x), DType::F32, Level::Row);
    case.store(sum);
    let plan = case.plan();
    assert_eq!(plan.launches[0].name, "segments");
    assert_eq!(plan.launches[0].blocks, 768 / 32 * 16);
    assert!(code(&plan.launches[0]).contains("threadIdx.x % 32u, part = threadIdx.x / 32u"));
}

#[test]
fn the_order_of_a_sum_depends_on_the_length_of_the_row_alone() {
    // The same row alone and among others, held and not: the lanes are those of segments of 512 each time.
    for (rows, length) in [(1, 3000), (5000, 3000), (1, 100_000), (5000, 100_000)] {
        let mut case = Case::new(&[rows, length], 1);
        let x = case.dense(DType::F32);
        let sum = case.push(Scalar::Reduce(Reduction::Sum, x), DType::F32, Level::Row);
        case.store(sum);
        let plan = case.plan();
        let code = code(&plan.launches[0]);
        assert!(code.contains("segment * 512u + k * 128u + thread * 4u"), "{code}");
        assert!(code.contains("combine_threads<Sum, 32>(combine_lanes<Sum>(a1))"), "{code}");
    }
}

#[test]
fn an_empty_loop_launches_nothing() {
    let mut case = Case::new(&[0, 7], 0);
    let x = case.dense(DType::F32);
    case.store(x);
    assert!(case.plan().launches.is_empty());
}

#[test]
fn a_sum_of_nothing_is_still_written() {
    let mut case = Case::new(&[7, 0], 1);
    let x = case.dense(DType::F32);
    let sum = case.push(Scalar::Reduce(Reduction::Sum, x), DType::F32, Level::Row);
    case.store(sum);
    assert_eq!(only(&case.plan()).name, "rows");
}

#[test]
fn a_function_that_a_type_does_not_have_is_an_error_that_names_it() {
    let mut case = Case::new(&[4], 0);
    let x = case.dense(DType::I32);
    let y = case.push(Scalar::Unary(Unary::Exp, x), DType::I32, Level::Element);
    case.store(y);
    let error = plan(&case.body, &case.reads, &case.writes, &Properties::h100())
        .expect_err("no exponential of integers");
    assert!(error.to_string().contains("Exp") && error.to_string().contains("i32"), "{error}");
}

/// Makes a loop of a seed.
struct Generator {
    state: u64,
    case: Case,
}

impl Generator {
    fn case(seed: u64, with_rows: bool) -> Case {
        let mut generator = Generator { state: seed, case: Case::new(&[], 0) };
        let rank = 1 + generator.below(4);
        let row_axes = if with_rows { 1 + generator.below(rank) } else { 0 };
        let mut dims: Vec<usize> =
            (0..rank).map(|_| generator.pick(&[1, 2, 3, 4, 5, 7, 8, 10, 16, 33, 64])).collect();
        if generator.chance(40) {
            let axis = generator.below(rank);
            dims[axis] = generator.pick(&[0, 129, 500, 600, 1024, 2048, 2500, 4096, 5000, 9000, 20_000]);
        }
        while dims.iter().product::<usize>() > 24_000 {
            let axis = generator.below(rank);
            dims[axis] = (dims[axis] / 2).max(1);
        }
        generator.case = Case::new(&dims, row_axes);
        for _ in 0..1 + generator.below(4) {
            generator.load();
        }
        for _ in 0..generator.below(14) {
            generator.instruction();
        }
        let registers = generator.case.body.instructions.len();
        for _ in 0..1 + generator.below(3) {
            // Mostly late registers, so that much is needed.
            let back = generator.below(registers).min(generator.below(registers));
            generator.case.store((registers - 1 - back) as Register);
        }
        generator.case
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn level(&mut self) -> Level {
        if self.case.body.row_axes > 0 && self.chance(25) { Level::Row } else { Level::Element }
    }

    /// A load of a view that is dense, repeated, permuted, cut out, or all of it.
    fn load(&mut self) {
        let dtype = self.pick(&DType::ALL);
        let level = self.level();
        let domain = if level == Level::Row { shape(self.case.rows()) } else { self.case.body.domain };
        let mut view = View::dense(domain);
        let mut elements = domain.elements();
        if self.chance(60) {
            let mut order: Vec<usize> = (0..domain.rank()).collect();
            if self.chance(50) {
                (1..order.len()).for_each(|i| order.swap(i, self.below(i + 1)));
            }
            let mut step = 1;
            for &axis in order.iter().rev() {
                if self.chance(30) {
                    view.strides[axis] = 0;
                    continue;
                }
                let skip = if self.chance(20) { 1 + self.below(3) } else { 1 };
                let margin = if self.chance(20) { self.below(5) } else { 0 };
                view.strides[axis] = step * skip;
                view.offset += step * margin;
                step *= domain[axis] * skip + margin;
            }
            elements = step;
        }
        self.case.load(dtype, level, view, elements);
    }

    /// An earlier register, if there is one, of a type, at no lower a level.
    fn register(&mut self, dtype: Option<DType>, level: Level) -> Option<Register> {
        let instructions = &self.case.body.instructions;
        let fits = |&r: &usize| {
            let of = &instructions[r];
            dtype.is_none_or(|dtype| of.dtype == dtype) && (level == Level::Element || of.level == Level::Row)
        };
        let fitting: Vec<Register> = (0..instructions.len()).filter(fits).map(|r| r as Register).collect();
        (!fitting.is_empty()).then(|| self.pick(&fitting))
    }

    fn instruction(&mut self) {
        let level = self.level();
        let Some(a) = self.register(None, level) else { return self.load() };
        let dtype = self.case.body.instructions[usize::from(a)].dtype;
        let b = self.register(Some(dtype), level).unwrap_or(a);
        let scalar_and_type = match self.below(13) {
            0 => return self.load(),
            1 => {
                let value = self.pick(&[0.0, 1.0, -1.5, 0.1, 300.7, 1e9, 1e-9]);
                (Scalar::Constant(value), self.pick(&DType::ALL))
            }
            2 => {
                let rank =
                    if level == Level::Row { self.case.rows().len() } else { self.case.body.domain.rank() };
                if rank == 0 {
                    return;
                }
                let axis = self.below(rank) as u8;
                (
                    Scalar::Iota { axis },
                    self.pick(&[DType::I32, DType::I64, DType::F32, DType::BF16, DType::U8]),
                )
            }
            3 => {
                let state = self.case.reads.len() as u16;
                let view = View::dense(shape(&[3]));
                self.case.reads.push(Operand { buffer: BufferId(state.into()), dtype: DType::I64, view });
                self.case.elements.push(3);
                let distribution = self.pick(&[Distribution::Uniform, Distribution::Normal]);
                let (stream, per_sample) = (self.next() & 0xff, self.next() & 0xf);
                let dtype = self.pick(&[DType::F32, DType::F16, DType::BF16, DType::F64]);
                (Scalar::Random { distribution, state, stream, per_sample }, dtype)
            }
            4 | 5 => {
                let fitting: Vec<Unary> =
                    Unary::ALL.iter().copied().filter(|f| f.domain().result(dtype).is_some()).collect();
                let function = self.pick(&fitting);
                (Scalar::Unary(function, a), function.domain().result(dtype).expect("a type that it takes"))
            }
            6 | 7 => {
                let function = match dtype {
                    DType::Bool => self.pick(&[Binary::Add, Binary::Mul, Binary::Max, Binary::Min]),
                    _ if dtype.is_float() => self.pick(&Binary::ALL),
                    _ => self.pick(&Binary::ALL[..6]),
                };
                (Scalar::Binary(function, a, b), dtype)
            }
            8 => (Scalar::Compare(self.pick(&Comparison::ALL), a, b), DType::Bool),
            9 => match self.register(Some(DType::Bool), level) {
                Some(condition) => (Scalar::Select(condition, a, b), dtype),
                None => return,
            },
            10 => (Scalar::Cast(a), self.pick(&DType::ALL)),
            _ => return self.reduction(),
        };
        self.case.push(scalar_and_type.0, scalar_and_type.1, level);
    }

    fn reduction(&mut self) {
        let instructions = &self.case.body.instructions;
        let elements: Vec<Register> = (0..instructions.len())
            .filter(|&r| instructions[r].level == Level::Element)
            .map(|r| r as Register)
            .collect();
        if self.case.body.row_axes == 0 || elements.is_empty() {
            return;
        }
        let a = self.pick(&elements);
        // There is no largest of nothing.
        let choices = if self.case.body.domain.contains(&0) { 1 } else { 3 };
        let kind = self.pick(&[Reduction::Sum, Reduction::Max, Reduction::Min][..choices]);
        let dtype = self.case.body.instructions[usize::from(a)].dtype;
        self.case.push(Scalar::Reduce(kind, a), dtype, Level::Row);
    }
}

fn check(case: &Case) {
    let plan = case.plan();
    let results = case.writes.iter().any(|write| write.view.shape.elements() > 0);
    assert_eq!(plan.launches.is_empty(), !results);
    for launch in &plan.launches {
        assert!(launch.blocks > 0);
        assert!((32..=1024).contains(&launch.threads) && launch.threads.is_multiple_of(32));
        let code = code(launch);
        assert_eq!(code.matches('{').count(), code.matches('}').count());
        let signature = code.lines().find(|line| line.contains("__global__")).expect("a kernel");
        assert!(signature.contains(&format!(" {}(", launch.name)));
        assert_eq!(signature.matches('*').count(), launch.arguments.len());
        for place in &launch.arguments {
            match *place {
                PointerTo::Read(read) => assert!(read < case.reads.len()),
                PointerTo::Write(write) => assert!(write < case.writes.len()),
                PointerTo::Workspace(offset) => {
                    assert!(offset < plan.workspace && offset.is_multiple_of(256))
                }
            }
        }
    }
    // Every result is written by some launch, and once.
    for write in (0..case.writes.len()).filter(|&write| case.writes[write].view.shape.elements() > 0) {
        let writers =
            plan.launches.iter().filter(|launch| launch.arguments.contains(&PointerTo::Write(write)));
        assert_eq!(writers.count(), 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn every_loop_of_a_lowered_step_has_kernels(numbers in prop::collection::vec(any::<u32>(), 0..80)) {
        let step = random_step(&mut Choices::new(&numbers), 20);
        let program = lower(&step);
        for kernel in program.kernels.iter().chain(&program.rematerializations) {
            if let Body::Loop(body) = &kernel.body {
                prop_assert!(plan(body, &kernel.reads, &kernel.writes, &Properties::h100()).is_ok());
            }
        }
    }
}

#[test]
fn loops_that_differ_in_the_number_of_elements_alone_are_compiled_once() {
    let of = |rows: usize| {
        let mut case = Case::new(&[rows, 768], 0);
        let x = case.dense(DType::BF16);
        let y = case.push(Scalar::Unary(Unary::Gelu, x), DType::BF16, Level::Element);
        case.store(y);
        let mut launches = case.plan().launches;
        assert_eq!(launches.len(), 1);
        launches.remove(0)
    };
    let (some, more) = (of(16384), of(20000));
    assert_eq!(some.source, more.source);
    assert_eq!((&some.numbers[..], &more.numbers[..]), (&[16384 * 768 / 8][..], &[20000 * 768 / 8][..]));
}

/// The mean of a row, and what each element is above it.
fn deviations(rows: usize, length: usize) -> Case {
    let mut case = Case::new(&[rows, length], 1);
    let (dtype, row) = (DType::F32, Level::Row);
    let x = case.dense(dtype);
    let sum = case.push(Scalar::Reduce(Reduction::Sum, x), dtype, row);
    let share = case.push(Scalar::Constant(1.0 / length as f64), dtype, row);
    let mean = case.push(Scalar::Binary(Binary::Mul, sum, share), dtype, row);
    let above = case.push(Scalar::Binary(Binary::Sub, x, mean), dtype, Level::Element);
    case.store(mean);
    case.store(above);
    case
}

fn sources_of(case: &Case) -> Vec<String> {
    case.plan().launches.into_iter().map(|launch| launch.source).collect()
}

#[test]
fn the_mean_of_all_elements_is_compiled_once_for_many_lengths() {
    for [one, other] in [[12_000, 16_384], [17_000, 24_576], [98_000, 100_000]] {
        assert!(sources_of(&deviations(1, one)) == sources_of(&deviations(1, other)), "{one} and {other}");
    }
    let plan = deviations(1, 12_000).plan();
    let factor = u64::from((1.0f32 / 12_000.0).to_bits());
    assert_eq!(only(&plan).numbers, [factor, 12_000]);
}

#[test]
fn rows_are_compiled_once_for_any_number_of_them() {
    for length in [64, 768, 4096, 50_000] {
        assert!(sources_of(&softmax(300, length)) == sources_of(&softmax(4096, length)), "{length}");
    }
    let columns = |length: usize| {
        let mut case = Case::new(&[768, length], 1);
        let view = View { shape: case.body.domain, offset: 0, strides: [1, 768, 0, 0, 0, 0, 0, 0] };
        let x = case.load(DType::BF16, Level::Element, view, 768 * length);
        let sum = case.push(Scalar::Reduce(Reduction::Sum, x), DType::BF16, Level::Row);
        case.store(sum);
        sources_of(&case)
    };
    // What segments give is combined by another one.
    assert!(columns(16_384)[0] == columns(12_800)[0]);
}

#[test]
fn what_is_repeated_for_each_of_a_batch_is_compiled_once_for_any_length() {
    let of = |tokens: usize, width: usize| {
        let mut case = Case::new(&[16, tokens, width], 0);
        let x = case.dense(DType::BF16);
        let view = View { shape: case.body.domain, offset: 0, strides: [0, width, 1, 0, 0, 0, 0, 0] };
        let positions = case.load(DType::BF16, Level::Element, view, tokens * width);
        let sum = case.push(Scalar::Binary(Binary::Add, x, positions), DType::BF16, Level::Element);
        case.store(sum);
        case.plan()
    };
    let (some, more) = (of(768, 512), of(1000, 512));
    assert!(only(&some).source == only(&more).source);
    assert_eq!(only(&more).numbers, [1000 * 512, 16 * 1000 * 512 / 8]);
    let code = code(only(&some));
    assert!(code.contains("in0 + (at))") && code.contains("in1 + ((at % (idx)run)))"), "{code}");
    // A bias is a part of the model.
    let code = of(1, 4096).launches.remove(0).source;
    assert!(code.contains("(at % 4096u)"), "{code}");
}

#[test]
fn rows_that_are_reduced_for_results_of_no_elements_launch_nothing() {
    check(&Generator::case(10914534402007579659, true));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 0, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_loop_over_elements_has_a_kernel(seed: u64) {
        check(&Generator::case(seed, false));
    }

    #[test]
    fn every_loop_over_rows_has_kernels(seed: u64) {
        check(&Generator::case(seed, true));
    }
}

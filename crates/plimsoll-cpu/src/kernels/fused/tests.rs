//! Random loops against an evaluation element by element.

use super::Fused;
use crate::simd::Isa;
use crate::testing::scalar::{Scalar as Value, reduce_row};
use crate::testing::{self, Numbers};
use plimsoll_graph::op::{Binary, Comparison, Distribution, Reduction, Unary};
use plimsoll_graph::program::{BufferId, Instruction, Level, Loop, Operand, Register, Scalar, View};
use plimsoll_graph::{DType, MAX_RANK, Shape, random};
use proptest::prelude::*;

/// A loop with its operands and their contents.
struct Case {
    body: Loop,
    reads: Vec<Operand>,
    contents: Vec<Vec<u8>>,
    writes: Vec<Operand>,
    in_place: Vec<(usize, usize)>,
}

fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).expect("a small shape")
}

impl Case {
    /// The extents before the rows, and of a row.
    fn split(&self) -> (&[usize], &[usize]) {
        self.body.domain.split_at(self.body.domain.rank() - self.body.row_axes)
    }

    fn run(&self, isa: Isa, threads: usize) -> Vec<Vec<u8>> {
        let routine = Fused::new(&self.body, &self.reads, &self.writes, &self.in_place, isa);
        let bytes: Vec<usize> =
            self.writes.iter().map(|w| w.view.shape.elements() * w.dtype.size()).collect();
        testing::run(&routine, &self.contents, &bytes, &self.in_place, threads)
    }

    /// Each write's values, computed one by one.
    fn expected(&self) -> Vec<Vec<Value>> {
        let (lead, row) = self.split();
        let mut results = vec![vec![]; self.writes.len()];
        for outer in indices(lead) {
            let mut registers: Vec<Vec<Value>> = vec![];
            for instruction in &self.body.instructions {
                let values = match instruction.level {
                    Level::Row => vec![self.value(instruction, &registers, &outer, 0)],
                    Level::Element => indices(row)
                        .enumerate()
                        .map(|(i, inner)| {
                            self.value(instruction, &registers, &[&outer[..], &inner].concat(), i)
                        })
                        .collect(),
                };
                registers.push(values);
            }
            for (result, &store) in results.iter_mut().zip(&self.body.stores) {
                result.extend_from_slice(&registers[usize::from(store)]);
            }
        }
        results
    }

    fn value(&self, of: &Instruction, registers: &[Vec<Value>], index: &[usize], i: usize) -> Value {
        // A row's register has one value.
        let get = |register: Register| {
            let values = &registers[usize::from(register)];
            values[if values.len() == 1 { 0 } else { i }]
        };
        let dtype = of.dtype;
        let type_of = |register: Register| self.body.instructions[usize::from(register)].dtype;
        match of.scalar {
            Scalar::Load { read } => {
                let Operand { view, dtype, .. } = self.reads[usize::from(read)];
                let along: usize = index.iter().zip(view.strides).map(|(i, stride)| i * stride).sum();
                Value::load(&self.contents[usize::from(read)], view.offset + along, dtype)
            }
            Scalar::Constant(x) => Value::Double(x).cast(DType::F64, dtype),
            Scalar::Iota { axis } => Value::Integer(index[usize::from(axis)] as i64).cast(DType::I64, dtype),
            Scalar::Random { distribution, state, stream, per_sample } => {
                let state = &self.contents[usize::from(state)];
                let word = |at| match Value::load(state, at, DType::I64) {
                    Value::Integer(x) => x as u64,
                    other => panic!("{other:?} is no state"),
                };
                let position =
                    index.iter().zip(self.body.domain.iter()).fold(0, |at, (i, extent)| at * extent + i);
                let position = word(2).wrapping_mul(per_sample).wrapping_add(position as u64);
                let block = random::block(word(0), word(1), stream, position);
                match (distribution, dtype) {
                    (Distribution::Normal, _) => Value::Double(random::normal(block)).cast(DType::F64, dtype),
                    (_, DType::F64) => Value::Double(random::uniform64(block)),
                    _ => match Value::Single(random::uniform32(block)).rounded(dtype) {
                        Value::Single(x) => Value::Single(x.min(random::largest_below_one(dtype) as f32)),
                        other => other,
                    },
                }
            }
            Scalar::Unary(f, a) => get(a).unary(f, dtype),
            Scalar::Binary(f, a, b) => get(a).binary(f, get(b), dtype),
            Scalar::Compare(f, a, b) => get(a).compare(f, get(b)),
            Scalar::Select(c, a, b) => {
                if get(c).is_true() {
                    get(a)
                } else {
                    get(b)
                }
            }
            Scalar::Cast(a) => get(a).cast(type_of(a), dtype),
            Scalar::Reduce(f, a) => {
                let length: usize = self.split().1.iter().product();
                let values = &registers[usize::from(a)];
                let row: Vec<Value> =
                    (0..length).map(|i| values[if values.len() == 1 { 0 } else { i }]).collect();
                reduce_row(f, &row, dtype)
            }
        }
    }

    fn check(&self) {
        let expected = self.expected();
        let mut first: Option<Vec<Vec<u8>>> = None;
        for isa in testing::isas() {
            for threads in 1..=3 {
                let results = self.run(isa, threads);
                if let Some(first) = &first {
                    for ((a, b), write) in first.iter().zip(&results).zip(&self.writes) {
                        assert!(same_bits(a, b, write.dtype), "{isa:?} on {threads} threads differs");
                    }
                    continue;
                }
                for (write, (result, expected)) in results.iter().zip(&expected).enumerate() {
                    let dtype = self.writes[write].dtype;
                    for (i, &expected) in expected.iter().enumerate() {
                        let got = Value::load(result, i, dtype);
                        assert!(
                            got.is_same(expected),
                            "write {write}, element {i}: {got:?} instead of {expected:?}\n{:?}\n{:?}",
                            self.body,
                            self.reads
                        );
                    }
                }
                first = Some(results);
            }
        }
    }
}

/// Whether two results are the same to the bit, but for which NaN a NaN is.
fn same_bits(a: &[u8], b: &[u8], dtype: DType) -> bool {
    a == b || (0..a.len() / dtype.size()).all(|i| Value::load(a, i, dtype).is_same(Value::load(b, i, dtype)))
}

/// All indices into extents, in order.
fn indices(extents: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    (0..extents.iter().product::<usize>()).map(move |mut at| {
        let mut index = vec![0; extents.len()];
        for axis in (0..extents.len()).rev() {
            index[axis] = at % extents[axis];
            at /= extents[axis];
        }
        index
    })
}

/// Makes a case of a seed.
struct Generator {
    numbers: Numbers,
    case: Case,
}

impl Generator {
    fn case(seed: u64, with_rows: bool) -> Case {
        let mut numbers = Numbers::new(seed);
        let rank = 1 + numbers.below(4);
        let row_axes = if with_rows { 1 + numbers.below(rank) } else { 0 };
        let mut dims: Vec<usize> =
            (0..rank).map(|_| numbers.pick(&[1, 2, 3, 4, 5, 7, 10, 16, 33, 65])).collect();
        if numbers.chance(30) {
            let axis = numbers.below(rank);
            dims[axis] = numbers.pick(&[0, 129, 500, 600, 2048, 2500, 4096, 5000, 9000]);
        }
        while dims.iter().product::<usize>() > 12_000 {
            let axis = numbers.below(rank);
            dims[axis] = (dims[axis] / 2).max(1);
        }
        let body = Loop { domain: shape(&dims), row_axes, instructions: vec![], stores: vec![] };
        let case = Case { body, reads: vec![], contents: vec![], writes: vec![], in_place: vec![] };
        let mut generator = Generator { numbers, case };
        for _ in 0..1 + generator.numbers.below(4) {
            generator.load();
        }
        for _ in 0..generator.numbers.below(14) {
            generator.instruction();
        }
        generator.stores();
        generator.case
    }

    fn push(&mut self, scalar: Scalar, dtype: DType, level: Level) {
        self.case.body.instructions.push(Instruction { scalar, dtype, level });
    }

    fn level(&mut self) -> Level {
        if self.case.body.row_axes > 0 && self.numbers.chance(25) { Level::Row } else { Level::Element }
    }

    fn contents(&mut self, dtype: DType, elements: usize) {
        let mut bytes = vec![];
        for _ in 0..elements {
            bytes.extend(Value::random(dtype, &mut self.numbers).store(dtype));
        }
        self.case.contents.push(bytes);
    }

    /// A load of a view that is dense, repeated, permuted, cut out, or all of it.
    fn load(&mut self) {
        let dtype = self.numbers.pick(&DType::ALL);
        let level = self.level();
        let (lead, _) = self.case.split();
        let domain = match level {
            Level::Row => shape(lead),
            Level::Element => self.case.body.domain,
        };
        let mut view = View::dense(domain);
        let mut elements = domain.elements();
        if self.numbers.chance(60) {
            let mut order: Vec<usize> = (0..domain.rank()).collect();
            if self.numbers.chance(50) {
                (1..order.len()).for_each(|i| order.swap(i, self.numbers.below(i + 1)));
            }
            let mut step = 1;
            for &axis in order.iter().rev() {
                if self.numbers.chance(30) {
                    view.strides[axis] = 0;
                    continue;
                }
                let skip = if self.numbers.chance(20) { 1 + self.numbers.below(3) } else { 1 };
                let margin = if self.numbers.chance(20) { self.numbers.below(4) } else { 0 };
                view.strides[axis] = step * skip;
                view.offset += step * margin;
                step *= domain[axis] * skip + margin;
            }
            elements = step;
        }
        let buffer = BufferId(self.case.reads.len() as u32);
        let read = self.case.reads.len() as u16;
        self.case.reads.push(Operand { buffer, dtype, view });
        self.contents(dtype, elements);
        self.push(Scalar::Load { read }, dtype, level);
    }

    /// An earlier register, if there is one, of a type, at no lower a level.
    fn register(&mut self, dtype: Option<DType>, level: Level) -> Option<Register> {
        let fitting: Vec<Register> = (0..self.case.body.instructions.len())
            .filter(|&r| {
                let of = &self.case.body.instructions[r];
                dtype.is_none_or(|dtype| of.dtype == dtype)
                    && (level == Level::Element || of.level == Level::Row)
            })
            .map(|r| r as Register)
            .collect();
        (!fitting.is_empty()).then(|| self.numbers.pick(&fitting))
    }

    fn instruction(&mut self) {
        let level = self.level();
        let Some(a) = self.register(None, level) else { return self.load() };
        let dtype = self.case.body.instructions[usize::from(a)].dtype;
        let b = self.register(Some(dtype), level).unwrap_or(a);
        match self.numbers.below(12) {
            0 => self.load(),
            1 => {
                let value = self.numbers.pick(&[0.0, 1.0, -1.5, 0.1, 300.7, 1e9]);
                let dtype = self.numbers.pick(&DType::ALL);
                self.push(Scalar::Constant(value), dtype, level);
            }
            2 => {
                let rank = match level {
                    Level::Row => self.case.split().0.len(),
                    Level::Element => self.case.body.domain.rank(),
                };
                if rank > 0 {
                    let axis = self.numbers.below(rank) as u8;
                    let dtype =
                        self.numbers.pick(&[DType::I32, DType::I64, DType::F32, DType::BF16, DType::U8]);
                    self.push(Scalar::Iota { axis }, dtype, level);
                }
            }
            3 => self.random(),
            4 | 5 => {
                let fitting: Vec<Unary> =
                    Unary::ALL.iter().copied().filter(|f| f.domain().result(dtype).is_some()).collect();
                let function = self.numbers.pick(&fitting);
                let result = function.domain().result(dtype).expect("a type that it takes");
                self.push(Scalar::Unary(function, a), result, level);
            }
            6 | 7 => {
                let function = match dtype {
                    DType::Bool => self.numbers.pick(&[Binary::Add, Binary::Mul, Binary::Max, Binary::Min]),
                    _ if dtype.is_float() => self.numbers.pick(&Binary::ALL),
                    _ => self.numbers.pick(&Binary::ALL[..6]),
                };
                self.push(Scalar::Binary(function, a, b), dtype, level);
            }
            8 => {
                let comparison = self.numbers.pick(&Comparison::ALL);
                self.push(Scalar::Compare(comparison, a, b), DType::Bool, level);
            }
            9 => {
                if level == Level::Element && self.numbers.chance(50) {
                    self.truth_for_all();
                }
                if let Some(condition) = self.register(Some(DType::Bool), level) {
                    self.push(Scalar::Select(condition, a, b), dtype, level);
                }
            }
            10 => {
                let to = self.numbers.pick(&DType::ALL);
                self.push(Scalar::Cast(a), to, level);
            }
            _ if self.case.body.row_axes > 0 => {
                // There is no largest of nothing.
                let choices = if self.case.split().1.contains(&0) { 1 } else { 3 };
                let reduction =
                    self.numbers.pick(&[Reduction::Sum, Reduction::Max, Reduction::Min][..choices]);
                if let Some(a) = self.register(None, Level::Element) {
                    let of = self.case.body.instructions[usize::from(a)];
                    if of.level == Level::Element {
                        self.push(Scalar::Reduce(reduction, a), of.dtype, Level::Row);
                    }
                }
            }
            _ => {}
        }
    }

    /// Loads one truth for all elements.
    fn truth_for_all(&mut self) {
        let read = self.case.reads.len() as u16;
        let (buffer, domain) = (BufferId(read.into()), self.case.body.domain);
        let view = View { strides: [0; MAX_RANK], ..View::dense(domain) };
        self.case.reads.push(Operand { buffer, dtype: DType::Bool, view });
        self.contents(DType::Bool, 1);
        self.push(Scalar::Load { read }, DType::Bool, Level::Element);
    }

    fn random(&mut self) {
        let state = self.case.reads.len() as u16;
        let buffer = BufferId(state.into());
        let view = View::dense(shape(&[3]));
        self.case.reads.push(Operand { buffer, dtype: DType::I64, view });
        self.contents(DType::I64, 3);
        let distribution = self.numbers.pick(&[Distribution::Uniform, Distribution::Normal]);
        let dtype = self.numbers.pick(&[DType::F32, DType::F16, DType::BF16, DType::F64]);
        let (stream, per_sample) = (self.numbers.next() & 0xff, self.numbers.next() & 0xf);
        self.push(Scalar::Random { distribution, state, stream, per_sample }, dtype, Level::Element);
    }

    fn stores(&mut self) {
        let registers = self.case.body.instructions.len();
        for _ in 0..1 + self.numbers.below(3) {
            // Mostly late registers, so that much is needed.
            let back = self.numbers.below(registers).min(self.numbers.below(registers));
            let register = registers - 1 - back;
            let of = self.case.body.instructions[register];
            let to = match of.level {
                Level::Row => shape(self.case.split().0),
                Level::Element => self.case.body.domain,
            };
            let buffer = BufferId(100 + self.case.writes.len() as u32);
            self.case.body.stores.push(register as Register);
            self.case.writes.push(Operand { buffer, dtype: of.dtype, view: View::dense(to) });
        }
        for write in 0..self.case.writes.len() {
            let candidates: Vec<usize> = (0..self.case.reads.len())
                .filter(|&read| {
                    let (read_of, write_of) = (&self.case.reads[read], &self.case.writes[write]);
                    read_of.view == write_of.view
                        && read_of.view.shape == self.case.body.domain
                        && self.case.contents[read].len()
                            == read_of.view.shape.elements() * read_of.dtype.size()
                        && read_of.dtype.size() == write_of.dtype.size()
                        && self.case.in_place.iter().all(|pair| pair.1 != read)
                })
                .collect();
            if !candidates.is_empty() && self.numbers.chance(70) {
                let read = self.numbers.pick(&candidates);
                self.case.in_place.push((write, read));
                if self.numbers.chance(50) {
                    self.case.writes[write].buffer = self.case.reads[read].buffer;
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 0, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_loop_over_elements_computes_what_each_element_says(seed: u64) {
        Generator::case(seed, false).check();
    }

    #[test]
    fn a_loop_over_rows_computes_what_each_row_says(seed: u64) {
        Generator::case(seed, true).check();
    }
}

//! The source of one kernel: its parameters, and the code for elements and rows that all kinds of kernels share.

use super::geometry::{Geometry, LoadPattern, RUN, Reach};
use super::nest::Nest;
use super::scalar::{computed, constant, reduction, stored, value};
use crate::error::{Error, ErrorKind, Result};
use crate::routine::PointerTo;
use plimsoll_graph::DType;
use plimsoll_graph::op::Distribution;
use plimsoll_graph::program::{Level, Scalar};
use plimsoll_graph::random::largest_below_one;
use std::fmt::Write;

pub(crate) const PRELUDE: &str = include_str!("../prelude.cu");

/// One launch of a loop: the kernel's text and how it is launched.
#[derive(Debug, Clone)]
pub(super) struct LoopLaunch {
    pub(super) source: String,
    pub(super) name: &'static str,
    pub(super) blocks: u32,
    pub(super) threads: u32,
    /// What its parameters point to.
    pub(super) arguments: Vec<PointerTo>,
    /// The parameters after them, which depend on batch and length: the same code serves all.
    pub(super) numbers: Vec<u64>,
}

/// What is done for each element in one pass over a row.
#[derive(Debug, Clone, Default)]
pub(super) struct Pass {
    /// The registers that are computed, in order.
    pub(super) computed: Vec<usize>,
    /// Those of them that later passes use.
    pub(super) kept: Vec<usize>,
    /// The registers of earlier passes that are used.
    pub(super) recalled: Vec<usize>,
    /// The reductions that it feeds.
    pub(super) reductions: Vec<usize>,
    /// The writes that it makes.
    pub(super) stores: Vec<usize>,
}

/// Neighbouring elements of a row that a thread works on at once.
#[derive(Clone, Copy)]
pub(super) struct Span<'a> {
    pub(super) width: usize,
    /// Whether memory may be accessed in vectors of so many.
    pub(super) packed: bool,
    /// The number of elements that exist, where the span may go beyond them.
    pub(super) limit: Option<&'a str>,
    /// The condition that the elements exist at all; if they do not, nothing is stored in packs.
    pub(super) exist: Option<&'a str>,
    /// The variable with the first one's position in the row.
    pub(super) at: &'a str,
    /// Which of the thread's spans it is, for what is kept.
    pub(super) index: &'a str,
}

/// Writes one kernel.
pub(super) struct Writer<'a> {
    pub(super) nest: &'a Nest,
    pub(super) geometry: &'a Geometry,
    /// The variable with the row's number, and the elements of a row; a loop without rows is one.
    pub(super) row: &'a str,
    pub(super) length: usize,
    pub(super) needed: &'a [bool],
    /// The registers that may be computed to half precision, though they are floats.
    coarse: Vec<bool>,
    text: String,
    indent: usize,
    parameters: Vec<(String, PointerTo)>,
    /// The names and values of the parameters that are numbers.
    numbers: Vec<(String, u64)>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        nest: &'a Nest,
        geometry: &'a Geometry,
        needed: &'a [bool],
        row: &'a str,
        length: usize,
    ) -> Self {
        let coarse = nest.end_as_halves();
        let (text, parameters, numbers) = (String::new(), vec![], vec![]);
        let mut writer =
            Writer { nest, geometry, row, length, needed, coarse, text, indent: 1, parameters, numbers };
        if let Some(run) = geometry.given {
            writer.number(RUN, run as u64);
        }
        writer
    }

    /// A line of code, indented by the braces before it.
    pub(super) fn line(&mut self, text: impl AsRef<str>) {
        let text = text.as_ref();
        if text.starts_with('}') {
            self.indent -= 1;
        }
        _ = writeln!(self.text, "{:1$}{text}", "", 4 * self.indent);
        if text.ends_with('{') {
            self.indent += 1;
        }
    }

    /// The whole kernel.
    pub(super) fn launch(self, name: &'static str, blocks: u64, threads: u32) -> LoopLaunch {
        let index = self.geometry.index();
        let mut list: Vec<&str> = self.parameters.iter().map(|parameter| parameter.0.as_str()).collect();
        let numbers: Vec<String> = self.numbers.iter().map(|(name, _)| format!("const u64 {name}")).collect();
        list.extend(numbers.iter().map(String::as_str));
        let source = format!(
            "{PRELUDE}\ntypedef {index} idx;\n\nextern \"C\" __global__ void __launch_bounds__({threads}) \
             {name}({}) {{\n{}}}\n",
            list.join(", "),
            self.text
        );
        let arguments = self.parameters.into_iter().map(|parameter| parameter.1).collect();
        // The most blocks of a grid; no loop comes near.
        let blocks = blocks.min(0x7fff_ffff) as u32;
        let numbers = self.numbers.into_iter().map(|(_, number)| number).collect();
        LoopLaunch { source, name, blocks, threads, arguments, numbers }
    }

    /// The code alone, and the parameters it names: how each is declared, and what it points to. Numbers are constants
    /// there.
    pub(super) fn code(self) -> (String, Vec<(String, PointerTo)>) {
        let constant = |(name, number): &(String, u64)| format!("    const u64 {name} = {number}ull;\n");
        let constants: String = self.numbers.iter().map(constant).collect();
        (constants + &self.text, self.parameters)
    }

    /// Leaves a number of elements to the launch, so that loops which differ in it alone are compiled once.
    pub(super) fn count(&mut self, count: usize) -> String {
        self.size("count", count)
    }

    /// Leaves any size to the launch, under a name of its own.
    pub(super) fn size(&mut self, name: &str, size: usize) -> String {
        self.number(name, size as u64);
        format!("(idx){name}")
    }

    fn number(&mut self, name: &str, number: u64) {
        if !self.numbers.iter().any(|(known, _)| known == name) {
            self.numbers.push((name.to_owned(), number));
        }
    }

    /// Whether the loop has rows and there is only one, whose length depends on the batch.
    pub(super) fn is_one_row(&self) -> bool {
        self.nest.body.row_axes > 0 && self.nest.rows() == 1
    }

    /// Whether a constant is used once in the whole loop. It may depend on the batch, as the factor of a mean does, and the
    /// compiler gains nothing from knowing it.
    fn is_used_once(&self, register: usize) -> bool {
        let once = self.is_one_row() && self.nest.level(register) == Level::Row;
        self.nest.dtype(register) == DType::F32 && (once || self.nest.body.domain.elements() == 1)
    }

    fn read(&mut self, read: usize) -> String {
        let bound = self.nest.reads[read];
        let name = format!("in{read}");
        self.parameter(format!("const {} *{name}", stored(bound.dtype)), bound.place);
        name
    }

    pub(super) fn write(&mut self, write: usize) -> String {
        let bound = self.nest.writes[write];
        let name = format!("out{write}");
        self.parameter(format!("{} *{name}", stored(bound.dtype)), bound.place);
        name
    }

    pub(super) fn parameter(&mut self, declaration: String, place: PointerTo) {
        if !self.parameters.iter().any(|(name, _)| *name == declaration) {
            self.parameters.push((declaration, place));
        }
    }

    /// Whether a register has one value for the whole loop and comes from memory.
    pub(super) fn is_fixed(&self, register: usize) -> bool {
        matches!(self.nest.scalar(register), Scalar::Load { .. })
            && self.geometry.reach(register) == Reach::Loop
    }

    /// The registers that are computed for each element where there are no rows.
    pub(super) fn of_elements(&self) -> Vec<usize> {
        (0..self.needed.len()).filter(|&register| self.needed[register] && !self.is_fixed(register)).collect()
    }

    /// Whether a register is computed once for a row.
    pub(super) fn is_of_rows(&self, register: usize) -> bool {
        let of_row = matches!(self.nest.scalar(register), Scalar::Load { .. })
            && self.geometry.reach(register) == Reach::Row;
        of_row || self.nest.level(register) == Level::Row
    }

    /// Loads what is the same for all elements, before the first.
    pub(super) fn prologue(&mut self) -> Result<()> {
        for register in (0..self.needed.len()).filter(|&r| self.needed[r]).collect::<Vec<_>>() {
            match self.nest.scalar(register) {
                Scalar::Load { .. } if self.is_fixed(register) => self.compute(register, "0u")?,
                Scalar::Random { state, per_sample, .. } => {
                    let view = self.nest.reads[usize::from(state)].view;
                    let name = self.read(usize::from(state));
                    let at = |i: usize| format!("(u64){name}[{}ull]", view.offset + i * view.strides[0]);
                    let (seed, step, first) = (at(0), at(1), at(2));
                    self.line(format!("const u64 seed{register} = {seed}, step{register} = {step};"));
                    self.line(format!("const u64 first{register} = {first} * {per_sample}ull;"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Computes registers of the row, in order.
    pub(super) fn rows(&mut self, registers: impl IntoIterator<Item = usize>) -> Result<()> {
        for register in registers {
            if !self.is_fixed(register) && self.nest.reduction(register).is_none() {
                self.compute(register, "0u")?;
            }
        }
        Ok(())
    }

    /// Defines a register, for the element at position `at` of the row.
    fn compute(&mut self, register: usize, at: &str) -> Result<()> {
        let instruction = self.nest.body.instructions[register];
        let dtype = instruction.dtype;
        let expression = match instruction.scalar {
            Scalar::Load { read } => {
                let position = self.geometry.position(register, self.row, at);
                format!("load({}[{position}])", self.read(usize::from(read)))
            }
            Scalar::Iota { axis } => self.iota(register, usize::from(axis), at),
            Scalar::Random { .. } => self.random(register, at),
            Scalar::Constant(x) if self.is_used_once(register) => {
                let name = format!("constant{register}");
                self.number(&name, u64::from((x as f32).to_bits()));
                format!("__uint_as_float((u32){name})")
            }
            scalar => value(scalar, dtype, self.coarse[register], |r| self.nest.dtype(usize::from(r)))
                .ok_or_else(|| self.unsupported(register))?,
        };
        self.line(format!("const {} r{register} = {expression};", computed(dtype)));
        Ok(())
    }

    fn unsupported(&self, register: usize) -> Error {
        let instruction = self.nest.body.instructions[register];
        let of: Vec<&str> = self.nest.operands(register).map(|r| self.nest.dtype(r).name()).collect();
        let message = format!(
            "a loop computes {:?} to {} of {}: there is no such function of these types",
            instruction.scalar,
            instruction.dtype,
            of.join(" and ")
        );
        Error::new(ErrorKind::Unsupported, message)
    }

    /// The position of an element in the domain, or of a row among rows.
    fn place(&self, register: usize, at: &str) -> String {
        let length = self.geometry.number(self.length);
        let split = self.nest.body.row_axes > 0 && self.length == self.nest.row();
        match self.nest.level(register) {
            Level::Row if split => self.row.to_owned(),
            // The rows of a loop that is run over as one.
            Level::Row => format!("({at} / {})", self.geometry.number(self.nest.row().max(1))),
            Level::Element if self.row == "0u" || self.is_one_row() => at.to_owned(),
            Level::Element => format!("((idx){} * {length} + {at})", self.row),
        }
    }

    fn iota(&self, register: usize, axis: usize, at: &str) -> String {
        let domain = &self.nest.body.domain;
        let end = if self.nest.level(register) == Level::Row { self.nest.lead() } else { domain.rank() };
        let inner = domain[axis + 1..end].iter().product();
        let place = self.place(register, at);
        let digit = self.geometry.digit(&place, inner, (axis > 0).then_some(domain[axis]));
        let dtype = self.nest.dtype(register);
        if dtype == DType::I64 {
            format!("(i64){digit}")
        } else {
            format!("to_{}((i64){digit})", dtype.name())
        }
    }

    fn random(&self, register: usize, at: &str) -> String {
        let Scalar::Random { distribution, stream, .. } = self.nest.scalar(register) else {
            return String::new();
        };
        let dtype = self.nest.dtype(register);
        let place = self.place(register, at);
        let words =
            format!("philox(seed{register}, step{register}, {stream}ull, first{register} + (u64){place})");
        match (distribution, dtype) {
            (Distribution::Normal, DType::F64) => format!("normal_f64({words})"),
            (Distribution::Normal, _) => format!("to_{}(normal_f64({words}))", dtype.name()),
            (Distribution::Uniform, DType::F64) => format!("uniform_f64({words})"),
            (Distribution::Uniform, _) => {
                let most = constant(largest_below_one(dtype), DType::F32);
                let number = format!("uniform_f32({words}, {most})");
                if dtype == DType::F32 { number } else { format!("to_{}({number})", dtype.name()) }
            }
        }
    }

    /// How a register's elements of a span are loaded.
    fn access(&self, register: usize, span: Span<'_>) -> LoadPattern {
        match self.nest.scalar(register) {
            Scalar::Load { .. } => match self.geometry.access(register, span.width) {
                LoadPattern::Vector if !span.packed || span.width == 1 => LoadPattern::Scalar,
                // Beyond the last element there is nothing to load.
                LoadPattern::Broadcast if span.limit.is_some() => LoadPattern::Scalar,
                other => other,
            },
            _ => LoadPattern::Scalar,
        }
    }

    /// Loads what all elements of a span share, or what one vector access loads.
    pub(super) fn bring(&mut self, register: usize, span: Span<'_>) -> Result<()> {
        let Scalar::Load { read } = self.nest.scalar(register) else { return Ok(()) };
        match self.access(register, span) {
            LoadPattern::Broadcast => self.compute(register, span.at)?,
            LoadPattern::Vector => {
                let position = self.geometry.position(register, self.row, span.at);
                let (name, width) = (self.read(usize::from(read)), span.width);
                self.line(format!("const auto p{register} = load_pack<{width}>({name} + ({position}));"));
            }
            LoadPattern::Scalar => {}
        }
        Ok(())
    }

    /// Does what a pass does for the elements of a span.
    pub(super) fn elements(&mut self, pass: &Pass, span: Span<'_>) -> Result<()> {
        pass.computed.iter().try_for_each(|&register| self.bring(register, span))?;
        self.brought(pass, span)
    }

    /// Does what a pass does for the elements of a span, whose vectors are loaded.
    pub(super) fn brought(&mut self, pass: &Pass, span: Span<'_>) -> Result<()> {
        let Span { width, at, .. } = span;
        let packs = span.packed && width > 1;
        for &write in pass.stores.iter().filter(|_| packs) {
            let stored = stored(self.nest.writes[write].dtype);
            self.line(format!("Pack<{stored}, {width}> q{write};"));
        }
        let single = width == 1;
        if !single {
            self.line("#pragma unroll");
            self.line(format!("for (int j = 0; j < {width}; ++j) {{"));
        }
        let each = if single { at.to_owned() } else { format!("({at} + j)") };
        if let Some(limit) = span.limit {
            self.line(format!("if ({each} < {limit}) {{"));
        }
        let slot = if single { span.index.to_owned() } else { format!("{} * {width} + j", span.index) };
        for &register in &pass.recalled {
            self.line(format!(
                "const {} r{register} = h{register}[{slot}];",
                computed(self.nest.dtype(register))
            ));
        }
        for &register in &pass.computed {
            match self.access(register, span) {
                LoadPattern::Broadcast => {}
                LoadPattern::Vector => {
                    let of = computed(self.nest.dtype(register));
                    self.line(format!("const {of} r{register} = load(p{register}.at[j]);"));
                }
                LoadPattern::Scalar => self.compute(register, &each)?,
            }
        }
        for &register in &pass.kept {
            self.line(format!("h{register}[{slot}] = r{register};"));
        }
        for &register in &pass.reductions {
            let Some((kind, of)) = self.nest.reduction(register) else { continue };
            let (kind, lane) = (reduction(kind), if single { "0" } else { "j" });
            self.line(format!("a{register}[{lane}] = {kind}::combine(a{register}[{lane}], r{of});"));
        }
        for &write in &pass.stores {
            let register = self.nest.stored(write);
            let to = if packs {
                format!("q{write}.at[j]")
            } else {
                format!("{}[{}]", self.write(write), self.destination(&each))
            };
            self.line(format!("store_exact({to}, r{register});"));
        }
        if span.limit.is_some() {
            self.line("}");
        }
        if !single {
            self.line("}");
        }
        for &write in pass.stores.iter().filter(|_| packs) {
            let (to, place) = (self.write(write), self.destination(at));
            let exist = span.exist.map(|exist| format!("if ({exist}) ")).unwrap_or_default();
            self.line(format!("{exist}store_pack<{width}>({to} + {place}, q{write});"));
        }
        Ok(())
    }

    /// Where an element is written: results are densely packed.
    fn destination(&self, at: &str) -> String {
        if self.row == "0u" || self.is_one_row() {
            return at.to_owned();
        }
        format!("((idx){} * {} + {at})", self.row, self.geometry.number(self.length))
    }

    /// Begins the running results of reductions, of `width` lanes each.
    pub(super) fn begin(&mut self, reductions: &[usize], width: usize) {
        for &register in reductions {
            let Some((kind, of)) = self.nest.reduction(register) else { continue };
            let (kind, of) = (reduction(kind), computed(self.nest.dtype(of)));
            self.line(format!("{of} a{register}[{width}];"));
            self.line("#pragma unroll");
            self.line(format!(
                "for (int j = 0; j < {width}; ++j) a{register}[j] = {kind}::identity<{of}>();"
            ));
        }
    }
}

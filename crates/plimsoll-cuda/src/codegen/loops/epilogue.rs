//! Epilogues: loops over the result of a product, as part of the product's own kernel.
//!
//! A large product hands its result on in rows of a tile, in shared memory. Its epilogue is one function that prefetches
//! other operands before the tile is computed, and one that does the work for eight neighbours of a few rows at a time.
//! After a small product each thread has one element. The code for elements is that of every other loop, so that they
//! have the same bits.

use super::geometry::{Geometry, LoadPattern, Reach};
use super::nest::Nest;
use super::scalar::stored;
use super::writer::{Pass, Span, Writer};
use crate::error::Result;
use crate::routine::PointerTo;
use plimsoll_graph::DType;
use plimsoll_graph::op::{Binary, Distribution, Unary};
use plimsoll_graph::program::{Loop, Operand, Scalar};

/// The neighbours that a thread takes at once, and the rows of a tile that it has, every other one.
const WIDTH: usize = 8;
const ROWS: usize = 8;
/// The most bytes of other operands that a thread prefetches at once, and the most rows it prefetches them for, while it
/// works on the rows before: there are registers for as much.
const PREFETCHED_BYTES: usize = 32;
const MOST_ROWS: usize = 2;

/// An epilogue, as the text of a product's kernel includes it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Epilogue {
    /// The functions, and the definitions of PARAMETERS and ARGUMENTS.
    pub(crate) text: String,
    /// What the parameters point to: the loop's reads and writes.
    pub(crate) arguments: Vec<PointerTo>,
}

impl Epilogue {
    /// Functions that take these parameters.
    fn new(geometry: &Geometry, parameters: Vec<(String, PointerTo)>, code: &str) -> Epilogue {
        let (declared, arguments): (Vec<String>, Vec<PointerTo>) = parameters.into_iter().unzip();
        let names: Vec<String> = arguments.iter().map(name).collect();
        let text = format!(
            "typedef {} idx;\n#define PARAMETERS {}\n#define ARGUMENTS {}\n\n{code}",
            geometry.index(),
            declared.join(", "),
            names.join(", ")
        );
        Epilogue { text, arguments }
    }
}

/// The loop as the epilogue of a product that works in tiles, if it can be: it has no reductions, what it reads lies as the
/// product's rows do or is the same for all of them, and its functions are light enough for eight elements at a time.
///
/// # Errors
/// If the loop has a function of a type that there is none of.
pub(crate) fn tile_epilogue(body: &Loop, reads: &[Operand], writes: &[Operand]) -> Result<Option<Epilogue>> {
    if body.row_axes != 0 || body.domain.rank() != 2 || !body.domain[1].is_multiple_of(WIDTH) {
        return Ok(None);
    }
    let nest = Nest::new(body, reads, writes);
    let stores: Vec<usize> = (0..writes.len()).collect();
    let needed = nest.needed(stores.iter().map(|&write| nest.stored(write)));
    let geometry = Geometry::new(&nest, 1, &needed);
    let needs = || (0..needed.len()).filter(|&register| needed[register]);
    let suits = needs().all(|register| is_light(&nest, register) && is_near(&nest, &geometry, register));
    if stores.is_empty() || !suits {
        return Ok(None);
    }

    let loads = Loads::of(&nest, &geometry, &needed);
    let writer = || Writer::new(&nest, &geometry, &needed, "row", body.domain[1]);
    let (early, mut parameters) = ahead(writer(), &loads)?;
    let (work, of_work) = work(writer(), &loads)?;
    for parameter in of_work {
        if !parameters.contains(&parameter) {
            parameters.push(parameter);
        }
    }
    let code = format!(
        "struct Ahead {{\n{}}};\n\n\
         __device__ __forceinline__ void bring_ahead(Ahead &ahead, u32 first, u32 rows, idx at, PARAMETERS) {{\n\
         {early}}}\n\n\
         __device__ __forceinline__ void follow(Ahead &ahead, const HALF *staged, u32 first, u32 rows, u32, idx at, \
         PARAMETERS) {{\n{work}}}\n\n",
        loads.held(&nest)
    );
    Ok(Some(Epilogue::new(&geometry, parameters, &code)))
}

/// The loop as an epilogue element by element: a function `follow(in0, at, ARGUMENTS)` for the element whose position is
/// `at` and which is at `in0[at]`. None if the loop has reductions.
///
/// # Errors
/// If the loop has a function of a type that there is none of.
pub(crate) fn element_epilogue(
    body: &Loop,
    reads: &[Operand],
    writes: &[Operand],
) -> Result<Option<Epilogue>> {
    let reduces = body.instructions.iter().any(|i| matches!(i.scalar, Scalar::Reduce(..)));
    if body.row_axes != 0 || reduces || writes.is_empty() {
        return Ok(None);
    }
    let nest = Nest::new(body, reads, writes);
    let stores: Vec<usize> = (0..writes.len()).collect();
    let needed = nest.needed(stores.iter().map(|&write| nest.stored(write)));
    let geometry = Geometry::new(&nest, 0, &needed);
    let mut writer = Writer::new(&nest, &geometry, &needed, "0u", body.domain.elements());
    writer.prologue()?;
    let computed = writer.of_elements();
    let span = Span { width: 1, packed: false, limit: None, exist: None, at: "at", index: "0" };
    writer.elements(&Pass { computed, stores, ..Pass::default() }, span)?;
    let (code, parameters) = writer.code();
    let others = parameters.into_iter().filter(|(_, place)| *place != PointerTo::Read(0)).collect();
    let code = format!(
        "__device__ __forceinline__ void follow(const float *in0, idx at, PARAMETERS) {{\n{code}}}\n\n"
    );
    Ok(Some(Epilogue::new(&geometry, others, &code)))
}

/// Eight neighbours of a row that may not exist.
const SPAN: Span<'_> =
    Span { width: WIDTH, packed: true, limit: None, exist: Some("exists"), at: "at", index: "0" };

/// The loads of a loop, by how they are made.
#[derive(Default)]
struct Loads {
    /// Those of the product's result.
    staged: Vec<usize>,
    /// Those of pieces that all rows share, prefetched once.
    columns: Vec<usize>,
    /// Those of a piece of each row, prefetched for some rows while those before are worked on.
    rows: Vec<usize>,
    /// Those of one element of each row.
    single: Vec<usize>,
    /// How many rows are worked on at once.
    rows_at_once: usize,
}

impl Loads {
    fn of(nest: &Nest, geometry: &Geometry, needed: &[bool]) -> Loads {
        let mut loads = Loads::default();
        for register in (0..needed.len()).filter(|&register| needed[register]) {
            let Scalar::Load { read } = nest.scalar(register) else { continue };
            if geometry.reach(register) == Reach::Loop {
                continue;
            }
            let list = if read == 0 {
                &mut loads.staged
            } else if geometry.access(register, WIDTH) != LoadPattern::Vector {
                &mut loads.single
            } else if geometry.is_of_columns(register) {
                &mut loads.columns
            } else {
                &mut loads.rows
            };
            list.push(register);
        }
        let bytes: usize = loads.rows.iter().map(|&register| nest.dtype(register).size() * WIDTH).sum();
        loads.rows_at_once = (PREFETCHED_BYTES / bytes.max(1)).clamp(1, MOST_ROWS);
        loads
    }

    /// What is held of operands, as members of a struct.
    fn held(&self, nest: &Nest) -> String {
        let pack = |register: usize| format!("    Pack<{}, {WIDTH}>", stored(nest.dtype(register)));
        let columns = self.columns.iter().map(|&register| format!("{} p{register};\n", pack(register)));
        let row = |&register: &usize| format!("{} l{register}[{}];\n", pack(register), self.rows_at_once);
        let rows = self.rows.iter().map(row);
        columns.chain(rows).collect()
    }
}

/// The code that prefetches operands before the product is there, and its parameters.
fn ahead(mut writer: Writer<'_>, loads: &Loads) -> Result<(String, Vec<(String, PointerTo)>)> {
    for &register in &loads.columns {
        writer.bring(register, SPAN)?;
        writer.line(format!("ahead.p{register} = p{register};"));
    }
    bring_rows(&mut writer, loads, "0", "ahead")?;
    Ok(writer.code())
}

/// The code for all rows that a thread has, and its parameters.
fn work(mut writer: Writer<'_>, loads: &Loads) -> Result<(String, Vec<(String, PointerTo)>)> {
    writer.prologue()?;
    for register in &loads.columns {
        writer.line(format!("const auto p{register} = ahead.p{register};"));
    }
    let at_once = loads.rows_at_once;
    writer.line("#pragma unroll 1");
    writer.line(format!("for (int batch = 0; batch < {ROWS}; batch += {at_once}) {{"));
    if !loads.rows.is_empty() {
        writer.line("Ahead next;");
        writer.line(format!("if (batch + {at_once} < {ROWS}) {{"));
        bring_rows(&mut writer, loads, &format!("batch + {at_once}"), "next")?;
        writer.line("}");
    }
    begin_rows(&mut writer, at_once, "batch");
    writer.line("const bool exists = first + 2u * (batch + u) < rows;");
    for register in &loads.staged {
        writer.line(format!("const auto p{register} = load_pack<{WIDTH}>(staged_at(staged, batch + u));"));
    }
    for register in &loads.rows {
        writer.line(format!("const auto p{register} = ahead.l{register}[u];"));
    }
    loads.single.iter().try_for_each(|&register| writer.bring(register, SPAN))?;
    let computed = writer.of_elements();
    let stores = (0..writer.nest.writes.len()).collect();
    writer.brought(&Pass { computed, stores, ..Pass::default() }, SPAN)?;
    writer.line("}");
    for register in &loads.rows {
        writer.line("#pragma unroll");
        writer
            .line(format!("for (int u = 0; u < {at_once}; ++u) ahead.l{register}[u] = next.l{register}[u];"));
    }
    writer.line("}");
    Ok(writer.code())
}

/// Prefetches the pieces of rows from some row on to where they are held.
fn bring_rows(writer: &mut Writer<'_>, loads: &Loads, from: &str, held: &str) -> Result<()> {
    if loads.rows.is_empty() {
        return Ok(());
    }
    begin_rows(writer, loads.rows_at_once, from);
    for &register in &loads.rows {
        writer.bring(register, SPAN)?;
        writer.line(format!("{held}.l{register}[u] = p{register};"));
    }
    writer.line("}");
    Ok(())
}

/// Opens a loop over rows of a batch. Rows beyond the end are clamped to the last one and not stored: code without branches
/// can be interleaved for several rows.
fn begin_rows(writer: &mut Writer<'_>, count: usize, from: &str) {
    writer.line("#pragma unroll");
    writer.line(format!("for (int u = 0; u < {count}; ++u) {{"));
    writer.line(format!("const idx row = least(first + 2u * ({from} + u), rows - 1);"));
}

/// What the writer calls an operand.
fn name(place: &PointerTo) -> String {
    match place {
        PointerTo::Read(read) => format!("in{read}"),
        PointerTo::Write(write) => format!("out{write}"),
        PointerTo::Workspace(offset) => format!("at{offset}"),
    }
}

/// Whether an instruction is a few simple operations without branches. A product's kernel has too low an occupancy to hide
/// the latency of others.
fn is_light(nest: &Nest, register: usize) -> bool {
    if nest.dtype(register) == DType::F64 {
        return false;
    }
    match nest.scalar(register) {
        Scalar::Reduce(..) => false,
        Scalar::Random { distribution, .. } => distribution == Distribution::Uniform,
        Scalar::Binary(function, ..) => !matches!(function, Binary::Div | Binary::Pow),
        Scalar::Unary(function, _) => matches!(
            function,
            Unary::Neg
                | Unary::Abs
                | Unary::Sign
                | Unary::Relu
                | Unary::Not
                | Unary::Floor
                | Unary::IsFinite
                | Unary::Exp
                | Unary::Gelu
                | Unary::GeluSlope
        ),
        Scalar::Load { .. }
        | Scalar::Constant(_)
        | Scalar::Iota { .. }
        | Scalar::Compare(..)
        | Scalar::Select(..)
        | Scalar::Cast(_) => true,
    }
}

/// Whether a load is a broadcast or one vector access.
fn is_near(nest: &Nest, geometry: &Geometry, register: usize) -> bool {
    match nest.scalar(register) {
        Scalar::Load { .. } if geometry.reach(register) == Reach::Loop => true,
        Scalar::Load { .. } => geometry.access(register, WIDTH) != LoadPattern::Scalar,
        _ => true,
    }
}

//! Loops with row reductions, each row reduced by a part of a warp, a warp, or a block.
//!
//! A loop makes several passes over its row, each of which ends with the reductions that the next one needs. Rows that fit
//! are kept in registers from pass to pass; for longer ones each pass loads and recomputes what it needs.
//!
//! Whatever the threads, element i of a row belongs to the one that holds lane i modulo 128 of its segment of 512, in
//! the order of reductions that the prelude defines.

use super::geometry::Geometry;
use super::nest::Nest;
use super::scalar::{cast, computed, reduction};
use super::writer::{LoopLaunch, Pass, Span, Writer};
use crate::codegen::engine::Properties;
use crate::error::Result;
use plimsoll_graph::DType;
use plimsoll_graph::program::{Level, Scalar};

/// The elements of a segment.
pub(super) const SEGMENT: usize = 512;
/// The lanes of a segment.
pub(super) const LANES: usize = 128;
/// The neighbouring lanes that a thread holds.
pub(super) const WIDTH: usize = 4;
/// The threads of a block that works on several rows.
const THREADS: usize = 128;
/// The warps that work on a row which is not kept.
const WARPS: usize = 16;
/// The most segments whose results a block combines.
pub(super) const MOST_SEGMENTS: usize = SEGMENT;
/// The bytes of shared memory that every block may have.
const SHARED: usize = 48 << 10;

/// How many threads work on a row, and how often.
struct Team {
    /// Threads of a row: a power of two below 32, or whole warps.
    threads: usize,
    segments: usize,
    /// Spans that each thread takes of a segment.
    spans: usize,
    /// Whether values are kept from pass to pass: each warp then has one segment at most.
    keeps: bool,
}

impl Team {
    fn warps(&self) -> usize {
        self.threads / 32
    }
}

/// What is done in each pass over the rows. If values are kept, each register is computed in the first pass that
/// needs it.
fn passes(nest: &Nest, writer: &Writer<'_>, stages: &[usize], keeps: bool) -> Vec<Pass> {
    let needed = writer.needed;
    let reductions: Vec<usize> =
        (0..needed.len()).filter(|&r| needed[r] && nest.reduction(r).is_some()).collect();
    let stores = nest.writes_of(Level::Element);
    let stored = stores.iter().map(|&write| stages[nest.stored(write)]);
    let last = reductions.iter().map(|&r| stages[r] - 1).chain(stored).max().unwrap_or(0);
    let per_element = |r: usize| !writer.is_of_rows(r) && !writer.is_fixed(r);
    let free = |r: usize| matches!(nest.scalar(r), Scalar::Constant(_) | Scalar::Iota { .. });
    let mut passes: Vec<Pass> = vec![];
    // In which pass a register was computed first.
    let mut made = vec![None; needed.len()];
    for stage in 0..=last {
        let mut pass = Pass::default();
        pass.reductions.extend(reductions.iter().copied().filter(|&r| stages[r] == stage + 1));
        // What replaces an operand may do so only when nothing is loaded any more: in the last pass.
        if stage == last {
            pass.stores.clone_from(&stores);
        }
        let mut wanted = vec![false; needed.len()];
        let fed = pass.reductions.iter().filter_map(|&r| nest.reduction(r)).map(|(_, of)| of);
        for root in fed.chain(pass.stores.iter().map(|&write| nest.stored(write))) {
            wanted[root] = true;
        }
        for register in (0..wanted.len()).rev() {
            if !wanted[register] || !per_element(register) {
                continue;
            }
            if let Some(earlier) = made[register].filter(|_| keeps && !free(register)) {
                pass.recalled.push(register);
                let earlier: &mut Pass = &mut passes[earlier];
                if !earlier.kept.contains(&register) {
                    earlier.kept.push(register);
                }
                continue;
            }
            made[register] = made[register].or(Some(stage));
            pass.computed.push(register);
            nest.operands(register).for_each(|operand| wanted[operand] = true);
        }
        pass.computed.reverse();
        pass.recalled.reverse();
        passes.push(pass);
    }
    passes
}

/// The bytes of shared memory that a row's reductions take, if a block works on it.
pub(super) fn shared(nest: &Nest, needed: &[bool]) -> usize {
    let segments = nest.row().div_ceil(SEGMENT);
    let each =
        |register: usize| nest.reduction(register).map_or(0, |(_, of)| size(nest.dtype(of)) * segments);
    (0..needed.len()).filter(|&register| needed[register]).map(each).sum()
}

/// Whether the rows' reductions are within what a block can combine.
pub(super) fn fits(nest: &Nest, needed: &[bool]) -> bool {
    nest.row().div_ceil(SEGMENT) <= MOST_SEGMENTS && shared(nest, needed) <= SHARED
}

/// The bytes of a number of a type as it is computed with.
fn size(dtype: DType) -> usize {
    dtype.accumulator().size()
}

/// The kernel of a loop with reductions whose rows [fit](fits).
pub(super) fn plan(nest: &Nest, device: &Properties) -> Result<Option<LoopLaunch>> {
    let (rows, length) = (nest.rows(), nest.row());
    if rows == 0 {
        return Ok(None);
    }
    let needed = nest.needed((0..nest.writes.len()).map(|write| nest.stored(write)));
    let geometry = Geometry::new(nest, nest.lead(), &needed);
    let mut writer = Writer::new(nest, &geometry, &needed, "row", length);
    let stages = nest.stages();
    let mut passes_kept = passes(nest, &writer, &stages, true);
    let team = team(nest, &passes_kept);
    if !team.keeps {
        passes_kept = passes(nest, &writer, &stages, false);
    }
    let threads = if team.threads > 32 { team.threads } else { THREADS };
    let together = threads / team.threads;
    write(&mut writer, &team, &passes_kept, &stages, together)?;
    let resident =
        u64::from(device.processors) * (device.threads_per_processor as usize / threads).max(1) as u64;
    let blocks = (rows.div_ceil(together) as u64).min(resident);
    Ok(Some(writer.launch("rows", blocks, threads as u32)))
}

fn team(nest: &Nest, passes: &[Pass]) -> Team {
    let length = nest.row();
    let mut segments = length.div_ceil(SEGMENT).max(1);
    if segments == 1 {
        let threads = length.div_ceil(WIDTH).max(1).next_power_of_two().min(32);
        return Team { threads, segments, spans: length.div_ceil(LANES).max(1), keeps: true };
    }
    // The length of a single row depends on the batch: rounding it up with empty segments, which change nothing, makes for
    // fewer different sources.
    let needed = nest.needed((0..nest.writes.len()).map(|write| nest.stored(write)));
    let rounded = segments.next_power_of_two();
    if nest.rows() == 1 && shared(nest, &needed) / segments * rounded <= SHARED {
        segments = rounded;
    }
    // A thread keeps 16 elements of a register; a block of 1024 has 64 registers for each thread.
    let kept: usize = passes
        .iter()
        .flat_map(|pass| &pass.kept)
        .map(|&register| if size(nest.dtype(register)) > 4 { 2 } else { 1 })
        .sum();
    let keeps = segments <= 16 && kept <= 4 || segments <= 32 && kept <= 2;
    let warps = if keeps { segments } else { segments.min(WARPS) };
    Team { threads: warps * 32, segments, spans: SEGMENT / LANES, keeps }
}

fn write(
    writer: &mut Writer<'_>,
    team: &Team,
    passes: &[Pass],
    stages: &[usize],
    together: usize,
) -> Result<()> {
    let nest = writer.nest;
    let geometry = writer.geometry;
    let needed = writer.needed;
    let rows = match nest.rows() {
        1 => geometry.number(1),
        rows => writer.size("rows", rows),
    };
    writer.prologue()?;
    let reductions = || passes.iter().flat_map(|pass| &pass.reductions).copied();
    if team.warps() > 1 {
        for register in reductions() {
            let Some((_, of)) = nest.reduction(register) else { continue };
            writer.line(format!("__shared__ {} s{register}[{}];", computed(nest.dtype(of)), team.segments));
        }
    }
    writer.line(format!("const u32 thread = threadIdx.x % {}u;", team.threads.min(32)));
    writer.line(format!(
        "for (idx first = (idx)blockIdx.x * {together}u; first < {rows}; first += (idx)gridDim.x * {together}u) {{"
    ));
    // Threads without a row work on the last one as well, since warp shuffles need all threads; only the row's own threads
    // write.
    writer.line(format!("const idx mine = first + threadIdx.x / {}u;", team.threads));
    writer.line(format!("const bool live = mine < {rows};"));
    writer.line(format!("const idx row = live ? mine : {rows} - 1u;"));
    for pass in passes {
        for &register in &pass.kept {
            let of = computed(nest.dtype(register));
            writer.line(format!("{of} h{register}[{}];", team.spans * WIDTH));
        }
    }
    for (stage, pass) in passes.iter().enumerate() {
        let known: Vec<usize> =
            (0..needed.len()).filter(|&r| needed[r] && writer.is_of_rows(r) && stages[r] == stage).collect();
        writer.rows(known)?;
        write_pass(writer, team, pass)?;
    }
    let known: Vec<usize> = (0..needed.len())
        .filter(|&r| needed[r] && writer.is_of_rows(r) && stages[r] >= passes.len())
        .collect();
    writer.rows(known)?;
    let of_rows = nest.writes_of(Level::Row);
    if !of_rows.is_empty() {
        let leader = if team.threads > 32 { "threadIdx.x == 0u" } else { "live && thread == 0u" };
        writer.line(format!("if ({leader}) {{"));
        for write in of_rows {
            let (to, register) = (writer.write(write), nest.stored(write));
            writer.line(format!("store_exact({to}[row], r{register});"));
        }
        writer.line("}");
    }
    if team.warps() > 1 && reductions().next().is_some() {
        writer.line("__syncthreads();");
    }
    writer.line("}");
    Ok(())
}

/// One pass over the row, and the reductions that end it.
fn write_pass(writer: &mut Writer<'_>, team: &Team, pass: &Pass) -> Result<()> {
    let nest = writer.nest;
    let length = match writer.is_one_row() {
        true => writer.size("length", nest.row()),
        false => writer.geometry.number(nest.row()),
    };
    let warps = team.warps();
    let stores = !pass.stores.is_empty();
    if pass.reductions.is_empty() && !stores {
        return Ok(());
    }
    if !team.keeps {
        writer.line(format!(
            "for (u32 segment = threadIdx.x / 32u; segment < {}u; segment += {warps}u) {{",
            team.segments
        ));
    } else if warps > 1 {
        writer.line("{");
        writer.line("const u32 segment = threadIdx.x / 32u;");
    }
    writer.begin(&pass.reductions, WIDTH);
    if team.spans > 1 {
        writer.line("#pragma unroll");
    }
    writer.line(format!("for (int k = 0; k < {}; ++k) {{", team.spans));
    let base = if warps > 1 { format!("segment * {SEGMENT}u + ") } else { String::new() };
    writer.line(format!("const idx at = {base}k * {LANES}u + thread * {WIDTH}u;"));
    let packed = nest.row().is_multiple_of(WIDTH);
    // Threads of one warp or less may have no row of their own.
    let guard = if stores && warps <= 1 { "live && " } else { "" };
    writer.line(format!("if ({guard}at < {length}) {{"));
    let limit = (!packed).then_some(&*length);
    writer.elements(pass, Span { width: WIDTH, packed, limit, exist: None, at: "at", index: "k" })?;
    writer.line("}");
    writer.line("}");
    for &register in &pass.reductions {
        let Some((kind, of)) = nest.reduction(register) else { continue };
        let (kind, number) = (reduction(kind), nest.dtype(of).accumulator());
        let lanes = format!("combine_lanes<{kind}>(a{register})");
        if warps > 1 {
            writer.line(format!(
                "const {} c{register} = combine_threads<{kind}, 32>({lanes});",
                computed(number)
            ));
            writer.line(format!("if (thread == 0u) s{register}[segment] = c{register};"));
        } else {
            let value = format!("combine_threads<{kind}, {}>({lanes})", team.threads);
            result(writer, register, number, &value);
        }
    }
    if warps > 1 {
        writer.line("}");
        if !pass.reductions.is_empty() {
            writer.line("__syncthreads();");
        }
        for &register in &pass.reductions {
            let Some((kind, of)) = nest.reduction(register) else { continue };
            let value = format!("combine_shared<{}, {}>(s{register})", reduction(kind), team.segments);
            result(writer, register, nest.dtype(of).accumulator(), &value);
        }
    }
    Ok(())
}

/// Defines the register of a reduction, in its own type.
fn result(writer: &mut Writer<'_>, register: usize, number: DType, value: &str) {
    let dtype = writer.nest.dtype(register);
    let value = cast(number, dtype, value);
    writer.line(format!("const {} r{register} = {value};", computed(dtype)));
}

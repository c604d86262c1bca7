//! Split reductions: loops whose rows are few and long, or strided so that neighbours in memory belong to different rows,
//! and would be slow with one block for each row.
//!
//! Each pass over the rows is a kernel whose blocks reduce segments of them and write partial results to the workspace;
//! those are rows again, of a loop that only reduces. In the end elementwise loops load the results and make the writes.
//! The order of reductions is the same as without splitting, and so are the bits.

use super::geometry::Geometry;
use super::nest::{Bound, Nest};
use super::rows::{LANES, SEGMENT, WIDTH};
use super::scalar::{cast, computed, reduction, stored};
use super::writer::{LoopLaunch, Pass, Span, Writer};
use super::{LoopPlan, elements};
use crate::codegen::engine::Properties;
use crate::error::Result;
use crate::routine::{ALIGNMENT, PointerTo};
use plimsoll_graph::program::{Instruction, Level, Loop, Scalar, View};
use plimsoll_graph::{DType, Shape};

const THREADS: usize = 256;
/// The lanes of a row that a thread holds where neighbouring threads are on neighbouring rows.
const COLUMN: usize = 16;

/// How threads are assigned to rows and their segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SplitLayout {
    /// A warp on each segment.
    Along,
    /// Neighbouring threads on neighbouring rows.
    Across,
}

/// Plans a loop with reductions as kernels over segments.
pub(super) fn plan(nest: &Nest, layout: SplitLayout, device: &Properties, plan: &mut LoopPlan) -> Result<()> {
    let mut nest = nest.clone();
    let (rows, segments) = (nest.rows(), nest.row().div_ceil(SEGMENT).max(1));
    let shape = |dims: &[usize]| Shape::new(dims).map_err(super::too_large);
    let needed = nest.needed((0..nest.writes.len()).map(|write| nest.stored(write)));
    let stages = nest.stages();
    let reductions: Vec<usize> =
        (0..needed.len()).filter(|&r| needed[r] && nest.reduction(r).is_some()).collect();
    for stage in 1..=reductions.iter().map(|&r| stages[r]).max().unwrap_or(0) {
        let ending: Vec<usize> = reductions.iter().copied().filter(|&r| stages[r] == stage).collect();
        let mut partial = vec![];
        for &register in &ending {
            let number = nest.dtype(nest.reduction(register).map_or(register, |(_, of)| of)).accumulator();
            let dtype = if segments == 1 { nest.dtype(register) } else { number };
            partial.push(Bound {
                place: plan.reserve(rows * segments, dtype),
                dtype,
                view: View::dense(shape(&[rows, segments])?),
            });
        }
        plan.launches.extend(segments_kernel(&nest, layout, &ending, &partial)?);
        for (&register, partial) in ending.iter().zip(&partial) {
            let dtype = nest.dtype(register);
            let place = if segments == 1 {
                partial.place
            } else {
                combine(&nest, register, partial, layout, device, plan)?
            };
            // From here on, the reduction's result is loaded.
            let lead = Shape::new(&nest.body.domain[..nest.lead()]).map_err(super::too_large)?;
            let read = nest.reads.len() as u16;
            nest.reads.push(Bound { place, dtype, view: View::dense(lead) });
            nest.body.instructions[register].scalar = Scalar::Load { read };
        }
    }
    plan_writes(&nest, device, plan)
}

/// Combines the results of segments to those of rows, and returns where they are.
fn combine(
    nest: &Nest,
    register: usize,
    partial: &Bound,
    layout: SplitLayout,
    device: &Properties,
    plan: &mut LoopPlan,
) -> Result<PointerTo> {
    let (rows, segments) = (partial.view.shape[0], partial.view.shape[1]);
    let Some((kind, _)) = nest.reduction(register) else { return Ok(partial.place) };
    let (dtype, level) = (nest.dtype(register), Level::Row);
    let place = plan.reserve(rows, dtype);
    let mut read = *partial;
    if layout == SplitLayout::Across {
        read.view.strides[..2].copy_from_slice(&[1, rows]);
    }
    let instructions = vec![
        Instruction { scalar: Scalar::Load { read: 0 }, dtype: partial.dtype, level: Level::Element },
        Instruction { scalar: Scalar::Reduce(kind, 0), dtype: partial.dtype, level },
        Instruction { scalar: Scalar::Cast(1), dtype, level },
    ];
    let body = Loop {
        domain: Shape::new(&[rows, segments]).map_err(super::too_large)?,
        row_axes: 1,
        instructions,
        stores: vec![2],
    };
    let view = View::dense(Shape::new(&[rows]).map_err(super::too_large)?);
    let next = Nest { body, reads: vec![read], writes: vec![Bound { place, dtype, view }] };
    super::plan_into(&next, device, plan)?;
    Ok(place)
}

/// Plans the writes of a loop without reductions: those of elements, then those of rows.
pub(super) fn plan_writes(nest: &Nest, device: &Properties, plan: &mut LoopPlan) -> Result<()> {
    plan.launches.extend(elements::plan(nest, device)?);
    let of_rows = nest.writes_of(Level::Row);
    if of_rows.is_empty() {
        return Ok(());
    }
    let mut rows = nest.clone();
    rows.body.domain = Shape::new(&nest.body.domain[..nest.lead()]).map_err(super::too_large)?;
    rows.body.row_axes = 0;
    rows.body.stores = of_rows.iter().map(|&write| nest.body.stores[write]).collect();
    rows.writes = of_rows.iter().map(|&write| nest.writes[write]).collect();
    plan.launches.extend(elements::plan(&rows, device)?);
    Ok(())
}

/// The kernel that reduces each segment of each row.
fn segments_kernel(
    nest: &Nest,
    layout: SplitLayout,
    reductions: &[usize],
    partial: &[Bound],
) -> Result<Option<LoopLaunch>> {
    let (rows, length) = (nest.rows(), nest.row());
    let segments = length.div_ceil(SEGMENT).max(1);
    if rows == 0 {
        return Ok(None);
    }
    let needed = nest.needed(reductions.iter().filter_map(|&r| nest.reduction(r)).map(|(_, of)| of));
    let geometry = Geometry::new(nest, nest.lead(), &needed);
    let mut writer = Writer::new(nest, &geometry, &needed, "row", length);
    for (&register, bound) in reductions.iter().zip(partial) {
        writer.parameter(format!("{} *part{register}", stored(bound.dtype)), bound.place);
    }
    writer.prologue()?;
    let of_rows: Vec<usize> = (0..needed.len()).filter(|&r| needed[r] && writer.is_of_rows(r)).collect();
    let computed =
        (0..needed.len()).filter(|&r| needed[r] && !writer.is_of_rows(r) && !writer.is_fixed(r)).collect();
    let pass = Pass { computed, reductions: reductions.to_vec(), ..Pass::default() };
    let blocks = match layout {
        SplitLayout::Along => along(&mut writer, &pass, &of_rows, rows, segments)?,
        SplitLayout::Across => across(&mut writer, &pass, &of_rows, rows, segments)?,
    };
    for (&register, bound) in reductions.iter().zip(partial) {
        let Some((_, of)) = nest.reduction(register) else { continue };
        let value = cast(nest.dtype(of).accumulator(), bound.dtype, &format!("c{register}"));
        let at = match layout {
            SplitLayout::Along => "unit".to_owned(),
            SplitLayout::Across => format!("segment * {} + row", writer.size("rows", rows)),
        };
        writer.line(format!("if (writes) store(part{register}[{at}], {value});"));
    }
    Ok(Some(writer.launch("segments", blocks as u64, THREADS as u32)))
}

/// A warp on each segment, each thread on four neighbours.
fn along(
    writer: &mut Writer<'_>,
    pass: &Pass,
    of_rows: &[usize],
    rows: usize,
    segments: usize,
) -> Result<usize> {
    let packed = writer.length.is_multiple_of(WIDTH);
    let length = writer.size("length", writer.length);
    let warps = THREADS / 32;
    let units = rows * segments;
    let all = writer.size("units", units);
    writer.line(format!("const idx unit = (idx)blockIdx.x * {warps}u + threadIdx.x / 32u;"));
    writer.line(format!("if (unit >= {all}) return;"));
    writer.line("const u32 thread = threadIdx.x % 32u;");
    writer.line(match rows {
        1 => "const idx row = 0u, segment = unit;".to_owned(),
        _ => format!("const idx row = unit / {segments}u, segment = unit % {segments}u;"),
    });
    writer.line("const bool writes = thread == 0u;");
    writer.rows(of_rows.iter().copied())?;
    writer.begin(&pass.reductions, WIDTH);
    writer.line("#pragma unroll");
    writer.line(format!("for (int k = 0; k < {}; ++k) {{", SEGMENT / LANES));
    writer.line(format!("const idx at = segment * {SEGMENT}u + k * {LANES}u + thread * {WIDTH}u;"));
    writer.line(format!("if (at < {length}) {{"));
    let limit = (!packed).then_some(&*length);
    writer.elements(pass, Span { width: WIDTH, packed, limit, exist: None, at: "at", index: "k" })?;
    writer.line("}");
    writer.line("}");
    for &register in &pass.reductions {
        let Some((kind, of)) = writer.nest.reduction(register) else { continue };
        let (kind, of) = (reduction(kind), computed(writer.nest.dtype(of)));
        let lanes = format!("combine_lanes<{kind}>(a{register})");
        writer.line(format!("const {of} c{register} = combine_threads<{kind}, 32>({lanes});"));
    }
    Ok(units.div_ceil(warps))
}

/// Neighbouring threads on neighbouring rows, each on sixteen lanes; several share a row's segment.
fn across(
    writer: &mut Writer<'_>,
    pass: &Pass,
    of_rows: &[usize],
    rows: usize,
    segments: usize,
) -> Result<usize> {
    let length = writer.length;
    let share = length.div_ceil(COLUMN).next_power_of_two().clamp(1, LANES / COLUMN);
    let columns = THREADS / share;
    let across = rows.div_ceil(columns);
    let spans = length.div_ceil(LANES).clamp(1, SEGMENT / LANES);
    let (count, end) = (writer.size("rows", rows), writer.size("length", length));
    writer.line(format!("const u32 across = (u32)(({count} + {columns}u - 1u) / {columns}u);"));
    writer.line("const idx segment = blockIdx.x / across;");
    writer.line(format!("const u32 column = threadIdx.x % {columns}u, part = threadIdx.x / {columns}u;"));
    writer.line(format!("const idx mine = (idx)(blockIdx.x % across) * {columns}u + column;"));
    writer.line(format!("const idx row = mine < {count} ? mine : {count} - 1u;"));
    writer.line(format!("const bool writes = mine < {count} && part == 0u;"));
    writer.rows(of_rows.iter().copied())?;
    writer.begin(&pass.reductions, COLUMN);
    writer.line(format!("for (int k = 0; k < {spans}; ++k) {{"));
    writer.line(format!("const idx at = segment * {SEGMENT}u + k * {LANES}u + part * {COLUMN}u;"));
    let limit = (!length.is_multiple_of(COLUMN)).then_some(&*end);
    let span = Span { width: COLUMN, packed: false, limit, exist: None, at: "at", index: "k" };
    writer.line(format!("if (at < {end}) {{"));
    writer.elements(pass, span)?;
    writer.line("}");
    writer.line("}");
    for &register in &pass.reductions {
        let Some((kind, of)) = writer.nest.reduction(register) else { continue };
        let (kind, of) = (reduction(kind), computed(writer.nest.dtype(of)));
        writer.line(format!("{of} c{register} = combine_lanes<{kind}>(a{register});"));
        if share > 1 {
            writer.line(format!("__shared__ {of} s{register}[{share}][{columns}];"));
            writer.line(format!("s{register}[part][column] = c{register};"));
        }
    }
    if share > 1 {
        writer.line("__syncthreads();");
        writer.line("if (part == 0u) {");
        for &register in &pass.reductions {
            let Some((kind, of)) = writer.nest.reduction(register) else { continue };
            let (kind, of) = (reduction(kind), computed(writer.nest.dtype(of)));
            writer.line(format!("{of} t{register}[{share}];"));
            writer.line("#pragma unroll");
            writer
                .line(format!("for (int j = 0; j < {share}; ++j) t{register}[j] = s{register}[j][column];"));
            writer.line(format!("c{register} = combine_lanes<{kind}>(t{register});"));
        }
        writer.line("}");
    }
    Ok(across * segments)
}

/// How a loop's threads should be assigned to its rows, if these should be split.
pub(super) fn layout(nest: &Nest, device: &Properties) -> Option<SplitLayout> {
    let needed = nest.needed((0..nest.writes.len()).map(|write| nest.stored(write)));
    let geometry = Geometry::new(nest, nest.lead(), &needed);
    let bytes = |transposed: bool| -> usize {
        (0..needed.len())
            .filter(|&r| needed[r] && matches!(nest.scalar(r), Scalar::Load { .. }))
            .filter(|&r| geometry.reach(r) == super::geometry::Reach::Element)
            .filter(|&r| geometry.is_transposed(r) == transposed)
            .map(|r| nest.dtype(r).size())
            .sum()
    };
    if bytes(true) > bytes(false) && nest.rows() >= WARP_OF_ROWS {
        return Some(SplitLayout::Across);
    }
    let idle = nest.rows() < device.processors as usize && nest.row() >= LONG;
    (idle || !super::rows::fits(nest, &needed)).then_some(SplitLayout::Along)
}

/// The workspace of the largest number of rows that is split only for the sake of occupancy. A loop of more rows asks for it
/// as well, without using it, so that a larger batch never takes less workspace than a smaller one.
pub(super) fn workspace_of_fewer_rows(nest: &Nest, device: &Properties) -> u64 {
    let rows = (device.processors as usize - 1).min(nest.rows());
    if nest.row() < LONG {
        return 0;
    }
    let needed = nest.needed((0..nest.writes.len()).map(|write| nest.stored(write)));
    let (segments, mut plan) = (nest.row().div_ceil(SEGMENT), LoopPlan::default());
    for register in (0..needed.len()).filter(|&register| needed[register]) {
        if let Some((_, of)) = nest.reduction(register) {
            plan.reserve(rows * segments, nest.dtype(of).accumulator());
            plan.reserve(rows, nest.dtype(register));
        }
    }
    plan.workspace
}

/// With fewer rows than this, neighbouring threads are not put on neighbouring rows.
const WARP_OF_ROWS: usize = 16;
/// Rows of fewer elements are reduced by one block even if that leaves others idle.
const LONG: usize = 32 << 10;

impl LoopPlan {
    /// Room for numbers in the workspace.
    fn reserve(&mut self, count: usize, dtype: DType) -> PointerTo {
        let begin = self.workspace;
        let bytes = (count as u64).saturating_mul(dtype.size() as u64);
        self.workspace = begin.saturating_add(bytes).next_multiple_of(ALIGNMENT);
        PointerTo::Workspace(begin)
    }
}

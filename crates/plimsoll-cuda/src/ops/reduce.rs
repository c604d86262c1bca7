//! Reductions over any axes, and the position of the largest element.
//!
//! A reduction is done in passes. Each combines one group of neighbouring axes, the last group first, and sees its
//! operand as `[outer, reduced, inner]`: rows where `inner` is 1, columns where not. Where there are too few of them to
//! fill the device, they are split into parts whose partial results are combined by a pass of their own. Where each result
//! is of few elements, those of a window of an image for example, a thread combines them at once.

use super::stages::{Stages, Traits, blocks, count, read, write};
use super::tiles::{self, Tiles};
use super::{accumulator, name, pack, team};
use crate::codegen::engine::{Engine, Properties};
use crate::codegen::launches::LaunchArgument;
use crate::error::Result;
use crate::routine::Routine;
use plimsoll_graph::op::Reduction;
use plimsoll_graph::program::Operand;
use plimsoll_graph::{Axes, DType, Shape};
use std::sync::Arc;

/// The templates of reductions.
pub(super) const TEXT: &str = include_str!("reduce.cu");

/// The blocks for each multiprocessor that rows are cut for.
const BLOCKS_PER_PROCESSOR: usize = 4;
/// The elements of a row that a part has at least, and a multiple of which it has, so that it begins at an address that
/// packs may begin at if the row does.
const LEAST_PART: usize = 8192;

/// The elements of a result at most that one thread combines, and those of neighbouring rows alone.
const MOST_OF_A_WINDOW: usize = 64;
const MOST_OF_ROWS: usize = 16;

/// Prepares [`Op::Reduce`](plimsoll_graph::Op::Reduce).
pub(crate) fn prepare(
    engine: &Arc<Engine>,
    kind: Reduction,
    axes: Axes,
    reads: &[Operand],
    writes: &[Operand],
) -> Result<Box<dyn Routine>> {
    stages(engine.properties(), kind, axes, reads, writes[0].dtype)?.prepare(engine)
}

/// Prepares [`Op::ArgMax`](plimsoll_graph::Op::ArgMax).
pub(crate) fn prepare_arg_max(
    engine: &Arc<Engine>,
    axis: usize,
    reads: &[Operand],
    _writes: &[Operand],
) -> Result<Box<dyn Routine>> {
    arg_max_stages(axis, reads)?.prepare(engine)
}

/// Neighbouring axes as one: their extent, and whether they are reduced over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Group {
    extent: usize,
    reduced: bool,
}

/// The groups of a shape, alternately kept and reduced. Axes of extent one belong to any.
fn groups(shape: &Shape, axes: Axes) -> Vec<Group> {
    let mut groups: Vec<Group> = vec![];
    for (axis, &extent) in shape.iter().enumerate().filter(|&(_, &extent)| extent != 1) {
        let reduced = axes.contains(axis);
        match groups.last_mut() {
            Some(last) if last.reduced == reduced => last.extent *= extent,
            _ => groups.push(Group { extent, reduced }),
        }
    }
    groups
}

/// Few elements for each result: an operand `[outer, high, middle, wide, inner]` that is reduced over `high` and `wide`.
struct Window {
    outer: usize,
    high: usize,
    middle: usize,
    wide: usize,
    inner: usize,
}

impl Window {
    fn of(groups: &[Group]) -> Option<Window> {
        let extents: Vec<usize> = groups.iter().map(|group| group.extent).collect();
        let kept_first = groups.first().is_some_and(|group| !group.reduced);
        let (window, most) = match extents[..] {
            [outer, high, inner] => (Window { outer, high, middle: 1, wide: 1, inner }, MOST_OF_ROWS),
            [outer, high, middle, wide, inner] => {
                (Window { outer, high, middle, wide, inner }, MOST_OF_A_WINDOW)
            }
            _ => return None,
        };
        let few = (1..=most).contains(&window.high.saturating_mul(window.wide));
        (kept_first && few).then_some(window)
    }
}

/// What a pass reads or writes: a type in CUDA C++, the bytes of an element, and where.
type Side = (&'static str, usize, LaunchArgument);

/// The stages of a reduction whose result is of type `result`: that of the elements, or their accumulator.
pub(super) fn stages(
    device: &Properties,
    kind: Reduction,
    axes: Axes,
    reads: &[Operand],
    result: DType,
) -> Result<Stages> {
    let (shape, dtype) = (reads[0].view.shape, reads[0].dtype);
    let mut reduce = Reduce {
        stages: Stages::new(shape.elements(), &[TEXT]),
        processors: device.processors,
        cache: device.cache_bytes,
        fold: match kind {
            Reduction::Sum => "Sum",
            Reduction::Max => "Max",
            Reduction::Min => "Min",
        },
        accumulator: accumulator(dtype),
        width: shape.last().copied().unwrap_or(1),
    };
    let mut groups = groups(&shape, axes);
    let mut from: Side = (name(dtype), dtype.size(), read(0));
    let to: Side = (name(result), result.size(), write(0));
    if let Some(window) = Window::of(&groups) {
        reduce.windows(window, from, to)?;
        return Ok(reduce.stages);
    }
    loop {
        let at = groups.iter().rposition(|group| group.reduced);
        let last = groups.iter().filter(|group| group.reduced).count() <= 1;
        let extent = |groups: &[Group]| groups.iter().map(|group| group.extent).product::<usize>();
        // Without axes to reduce over, elements go where they belong as columns of one row.
        let (outer, reduced, inner) = match at {
            Some(at) => (extent(&groups[..at]), groups[at].extent, extent(&groups[at + 1..])),
            None => (1, 1, extent(&groups)),
        };
        let (ty, size) = reduce.accumulator;
        let target = if last { to } else { (ty, size, reduce.stages.reserve(outer * inner * size)) };
        match inner {
            1 => reduce.rows(outer, reduced, from, target)?,
            _ => reduce.columns(outer, reduced, inner, from, target)?,
        }
        if last {
            return Ok(reduce.stages);
        }
        if let Some(at) = at {
            // The kept axes before and after it become one group.
            groups.remove(at);
            if at > 0 && at < groups.len() {
                groups[at - 1].extent *= groups.remove(at).extent;
            }
        }
        from = target;
    }
}

struct Reduce {
    stages: Stages,
    processors: u32,
    /// The bytes of the cache.
    cache: u64,
    fold: &'static str,
    /// The type that elements are combined in, and its bytes.
    accumulator: (&'static str, usize),
    /// So many columns are a constant of the code, since they are an extent of the model; others may depend on the batch.
    width: usize,
}

impl Reduce {
    /// A place for so many parts' results.
    fn parts(&mut self, count: usize) -> Side {
        let (ty, size) = self.accumulator;
        (ty, size, self.stages.reserve(count * size))
    }

    /// Combines the elements of each window.
    fn windows(&mut self, window: Window, from: Side, to: Side) -> Result<()> {
        const BLOCK: u32 = 256;
        let Window { outer, high, middle, wide, inner } = window;
        let pack = pack(from.1.max(to.1), 16, &[inner]);
        let packs = outer * middle * (inner / pack);
        let traits = Traits::new()
            .ty("In", from.0)
            .ty("Out", to.0)
            .ty("Fold", self.fold)
            .numbers([("INNER", if inner == self.width { inner } else { 0 })])
            .numbers([("N", pack), ("HIGH", high), ("WIDE", wide)]);
        let constant = format!("const {}", from.0);
        let arguments = [(&*constant, from.2), (to.0, to.2), count(packs), count(middle), count(inner)];
        self.stages.launch("windows", traits, [blocks(packs, BLOCK), 1], BLOCK, arguments)
    }

    /// Combines each of `rows` rows.
    fn rows(&mut self, rows: usize, width: usize, from: Side, to: Side) -> Result<()> {
        let wanted = BLOCKS_PER_PROCESSOR * self.processors as usize / rows.max(1);
        let part = width.div_ceil(wanted.max(1)).max(1).next_multiple_of(LEAST_PART);
        let parts = width.div_ceil(part);
        // Fewer rows are split into more parts; reserve the most that any number of rows up to this one takes.
        let most = width.div_ceil(LEAST_PART);
        let room =
            if most > 1 { (BLOCKS_PER_PROCESSOR * self.processors as usize).min(rows * most) } else { 0 };
        let partial = self.parts(room);
        if parts <= 1 {
            return self.row_parts(rows, width, width.max(1), from, to);
        }
        self.row_parts(rows, width, part, from, partial)?;
        self.row_parts(rows, parts, parts, partial, to)
    }

    /// Combines each part of each row.
    fn row_parts(&mut self, rows: usize, width: usize, part: usize, from: Side, to: Side) -> Result<()> {
        let parts = width.div_ceil(part).max(1);
        let (team, block) = team(part);
        let traits = Traits::new()
            .ty("In", from.0)
            .ty("Out", to.0)
            .ty("Fold", self.fold)
            .flag("WHOLE", parts == 1)
            .numbers([("TEAM", team as usize)]);
        let grid = [blocks(rows * parts, block / team), 1];
        let arguments = [
            (&*format!("const {}", from.0), from.2),
            (to.0, to.2),
            count(rows * parts),
            count(width),
            count(parts),
            count(part),
        ];
        self.stages.launch("rows", traits, grid, block, arguments)
    }

    /// Combines the columns of each of `outer` matrices.
    fn columns(&mut self, outer: usize, rows: usize, columns: usize, from: Side, to: Side) -> Result<()> {
        let tiles = Tiles::new(self.processors, from.1, outer, rows, columns);
        let partial = self.parts(tiles.room * columns);
        if tiles.chunks == 1 {
            return self.column_chunks(tiles, outer, rows, columns, from, to);
        }
        self.column_chunks(tiles, outer, rows, columns, from, partial)?;
        let combined = Tiles::low(self.processors, partial.1, tiles.chunks, outer * columns);
        self.column_chunks(combined, 1, tiles.chunks, outer * columns, partial, to)
    }

    fn column_chunks(
        &mut self,
        tiles: Tiles,
        outer: usize,
        rows: usize,
        columns: usize,
        from: Side,
        to: Side,
    ) -> Result<()> {
        // Of an operand larger than the L2 cache nothing is left there for the next kernel.
        let passing = (outer * rows * columns * from.1) as u64 > self.cache;
        let traits = Traits::new()
            .ty("In", from.0)
            .ty("Out", to.0)
            .ty("Fold", self.fold)
            .numbers([("INNER", if columns == self.width { columns } else { 0 })])
            .numbers([("N", tiles.pack), ("ACROSS", tiles.across)]);
        let arguments = [
            (&*format!("const {}", from.0), from.2),
            (to.0, to.2),
            count(rows),
            count(tiles.chunk),
            count(columns),
            count(passing.into()),
        ];
        self.stages.launch("columns", traits, tiles.grid(), tiles::BLOCK, arguments)
    }
}

/// So many numbers of the accumulator type as elements.
pub(super) fn convert(dtype: DType, numbers: usize) -> Result<Stages> {
    const BLOCK: u32 = 256;
    let accumulator = accumulator(dtype);
    let mut stages = Stages::new(numbers, &[TEXT]);
    let pack = pack(accumulator.1, 16, &[numbers]);
    let traits = Traits::new().ty("E", name(dtype)).numbers([("N", pack)]);
    let packs = numbers / pack;
    let arguments = [(&*format!("const {}", accumulator.0), read(0)), (name(dtype), write(0)), count(packs)];
    stages.launch("convert", traits, [blocks(packs, BLOCK), 1], BLOCK, arguments)?;
    Ok(stages)
}

pub(super) fn arg_max_stages(axis: usize, reads: &[Operand]) -> Result<Stages> {
    let (shape, dtype) = (reads[0].view.shape, reads[0].dtype);
    let mut stages = Stages::new(shape.elements(), &[TEXT]);
    let outer: usize = shape[..axis].iter().product();
    let inner: usize = shape[axis + 1..].iter().product();
    let (width, ty) = (shape[axis], name(dtype));
    let traits = Traits::new().ty("E", ty);
    let results = outer * inner;
    let arguments = [(&*format!("const {ty}"), read(0)), ("i32", write(0)), count(results)];
    if inner == 1 {
        let (team, block) = team(width);
        let traits = traits.numbers([("WIDTH", width), ("TEAM", team as usize)]);
        stages.launch("arg_max_rows", traits, [blocks(outer, block / team), 1], block, arguments)?;
    } else {
        let traits = traits.numbers([("AXIS", width), ("INNER", inner)]);
        stages.launch("arg_max_columns", traits, [blocks(results, 256), 1], 256, arguments)?;
    }
    Ok(stages)
}

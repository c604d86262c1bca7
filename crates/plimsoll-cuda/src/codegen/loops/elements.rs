//! Elementwise loops: each thread takes a vector of neighbours, in a grid-stride loop.

use super::geometry::{Geometry, LoadPattern};
use super::nest::Nest;
use super::writer::{LoopLaunch, Pass, Span, Writer};
use crate::codegen::engine::Properties;
use crate::error::Result;
use plimsoll_graph::program::{Level, Scalar};

const THREADS: usize = 256;
/// The edge of a tile where some operand is transposed: cache lines that one thread loads into L1 are used by others of its
/// block.
const TILE: usize = 32;
/// The widest access to memory, in bytes.
const ACCESS: usize = 16;
/// The most elements that a thread takes at once.
const WIDEST: usize = 8;
/// Loops of more instructions take fewer elements at once, to limit register pressure.
const LONG: usize = 32;

/// The kernel of the loop's writes of elements; none if there is nothing to write.
pub(super) fn plan(nest: &Nest, device: &Properties) -> Result<Option<LoopLaunch>> {
    let count = nest.body.domain.elements();
    let stores = nest.writes_of(Level::Element);
    if count == 0 || stores.is_empty() {
        return Ok(None);
    }
    let needed = nest.needed(stores.iter().map(|&write| nest.stored(write)));
    let geometry = Geometry::new(nest, 0, &needed);
    let pane = geometry.pane().filter(|pane| pane.iter().all(|extent| extent.is_multiple_of(TILE)));
    let (width, threads) = match pane {
        Some(_) => (1, TILE * TILE),
        None => (width(nest, &geometry, &needed, &stores, device), THREADS),
    };
    let mut writer = Writer::new(nest, &geometry, &needed, "0u", count);
    writer.prologue()?;
    let computed = writer.of_elements();
    let pass = Pass { computed, stores, ..Pass::default() };
    let whole = count / width;
    if whole > 0 {
        // The tail and tiles have other numbers in them that follow from the count.
        let apart = pane.is_none() && count.is_multiple_of(width);
        let end = if apart { writer.count(whole) } else { geometry.number(whole) };
        writer.line(format!(
            "for (idx i = (idx)blockIdx.x * {threads}u + threadIdx.x; i < {end}; i += (idx)gridDim.x * {threads}u) {{"
        ));
        match pane {
            Some(pane) => tiled(&mut writer, pane),
            None => writer.line(format!("const idx at = i * {width}u;")),
        }
        writer
            .elements(&pass, Span { width, packed: true, limit: None, exist: None, at: "at", index: "0" })?;
        writer.line("}");
    }
    if !count.is_multiple_of(width) {
        let (begin, end) = (geometry.number(whole * width), geometry.number(count));
        writer.line(format!("const idx at = {begin} + (idx)blockIdx.x * {threads}u + threadIdx.x;"));
        writer.line(format!("if (at < {end}) {{"));
        writer.elements(
            &pass,
            Span { width: 1, packed: false, limit: None, exist: None, at: "at", index: "0" },
        )?;
        writer.line("}");
    }
    // Enough blocks to fill the device; the grid-stride loop does the rest.
    let resident =
        u64::from(device.processors) * u64::from(device.threads_per_processor / threads as u32).max(1);
    let blocks = whole.max(1).div_ceil(threads) as u64;
    Ok(Some(writer.launch("elements", blocks.min(resident), threads as u32)))
}

/// The position of element `i` where a block's elements are a tile of the last two axes.
fn tiled(writer: &mut Writer<'_>, [down, across]: [usize; 2]) {
    let number = |value: usize| writer.geometry.number(value);
    let (along, beside) = (number(across / TILE), number(down / TILE));
    let (edge, length) = (number(TILE), number(across));
    let lines = [
        format!("const idx tile = i / {}, y = i / {edge} % {edge}, x = i % {edge};", number(TILE * TILE)),
        format!("const idx pane = tile / {along} / {beside}, line = tile / {along} % {beside} * {edge} + y;"),
        format!("const idx at = (pane * {} + line) * {length} + tile % {along} * {edge} + x;", number(down)),
    ];
    lines.iter().for_each(|line| writer.line(line));
}

/// How many neighbours a thread takes: as many of the smallest elements as one vector access loads, but few enough to keep
/// every multiprocessor busy.
fn width(nest: &Nest, geometry: &Geometry, needed: &[bool], stores: &[usize], device: &Properties) -> usize {
    let loads = (0..needed.len()).filter(|&register| needed[register]).filter_map(|register| {
        let packed = geometry.access(register, 1) == LoadPattern::Vector;
        (packed && matches!(nest.scalar(register), Scalar::Load { .. })).then(|| nest.dtype(register).size())
    });
    let smallest =
        loads.chain(stores.iter().map(|&write| nest.writes[write].dtype.size())).min().unwrap_or(4);
    let long = needed.iter().filter(|needed| **needed).count() > LONG;
    let mut width = (ACCESS / smallest).min(if long { WIDEST / 2 } else { WIDEST });
    let count = nest.body.domain.elements();
    let busy = u64::from(device.processors) * u64::from(device.threads_per_processor) / 2;
    while width > 1 && ((count / width) as u64) < busy {
        width /= 2;
    }
    while width > 1 && !geometry.is_flat() && !geometry.run().is_multiple_of(width) {
        width /= 2;
    }
    width
}

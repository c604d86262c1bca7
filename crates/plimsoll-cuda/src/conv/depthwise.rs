//! Convolutions whose every channel has filters of its own or that read few channels, and their gradients for the images.
//!
//! They multiply so little that they are as fast as memory, if every element is read about once: tensor cores have nothing
//! to share out, and a library that treats each channel as a small convolution reads its lines a tap at a time. Here lanes
//! are neighbouring channels, a thread has several places of a line at once, and what lines below each other share is
//! found in the first-level cache.

use super::ConvShape;
use crate::conv::dnn::Direction;
use crate::error::Result;
use crate::ops::name;
use crate::ops::stages::{Stages, Traits, count, read, write};
use plimsoll_graph::DType;

pub(super) const PACKS: &str = include_str!("packs.cu");
const TEXT: &str = include_str!("depthwise.cu");
/// The threads of a block: about so many, unless more share what they read.
const THREADS: usize = 128;
const MOST_THREADS: usize = 256;
/// The lines of a block at least, if it has not more than the most threads.
const LEAST_WORKERS: usize = 4;
/// The packs of a block at most: what they read together is contiguous.
const MOST_PACKS: usize = 64;
/// The results that a thread has of a place, at most, unless one channel alone has more.
const MOST_RESULTS: usize = 4;
/// The results that a channel may have.
const MOST_TIMES: usize = 8;
/// Channels or results that are few.
pub(super) const FEW: usize = 4;
/// The taps times the fewer of channels and results at most: of more, tensor cores are the faster even if most of a
/// tile is empty.
pub(super) const MOST_OF_FEW: usize = 36;
/// The taps of a line for all results of a channel that a thread has in registers.
const MOST_TAPS: usize = 31;
/// The places of a line that a thread has at once.
const TILE: usize = 8;

/// Whether each channel has filters of its own, of which there are kernels here.
pub(super) fn suits(geometry: &ConvShape) -> bool {
    let ConvShape { dtype, channels, results, filter, conv, .. } = *geometry;
    let of_one = conv.groups == channels && channels > 1;
    let floats = matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
    let times = results / channels.max(1);
    floats && of_one && times <= MOST_TIMES && filter[1].saturating_mul(times) <= MOST_TAPS
}

/// The channels that a thread has, such that it has no more than `most` results of a place where it can.
pub(super) fn channels_of_a_thread(geometry: &ConvShape, most: usize) -> usize {
    let times = geometry.results / geometry.channels;
    crate::ops::pack(1, (most / times).max(1), &[geometry.channels])
}

/// The places of a tile and the tiles of a line: as few places past the end as there can be.
pub(super) fn tiles(places: usize, most: usize, multiple: usize) -> (usize, usize) {
    let tile = places.div_ceil(places.div_ceil(most)).next_multiple_of(multiple);
    (tile, places.div_ceil(tile))
}

/// The packs of a block and the slices that makes of all.
pub(super) fn slices(packs: usize) -> (usize, usize) {
    let slices = packs.div_ceil(MOST_PACKS);
    (packs.div_ceil(slices), slices)
}

/// The elements of a place that a thread reads and writes, and whether each result belongs to one channel, where there are
/// kernels here for that.
fn held(direction: Direction, geometry: &ConvShape) -> Option<([usize; 2], bool)> {
    let ConvShape { dtype, channels, results, filter, conv, .. } = *geometry;
    let turned = |sides: [usize; 2]| if direction == Direction::Input { [sides[1], sides[0]] } else { sides };
    if suits(geometry) {
        let each = channels_of_a_thread(geometry, MOST_RESULTS);
        return Some((turned([each, each * (results / channels)]), true));
    }
    let [few, all] = turned([channels, results]);
    let of_few = few <= FEW && filter[0] * filter[1] * few <= MOST_OF_FEW && filter != [1, 1];
    let plain = conv.groups == 1 && matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
    (of_few && plain).then(|| ([few, crate::ops::pack(1, MOST_RESULTS, &[all])], false))
}

/// What is launched for a convolution, or for its gradient for the images; `None` if it is none of those that there are
/// kernels of here.
///
/// # Errors
/// If there are more blocks than a grid may have.
pub(super) fn stages(direction: Direction, geometry: &ConvShape) -> Result<Option<Stages>> {
    let Some(([reads, writes], paired)) = held(direction, geometry) else { return Ok(None) };
    let ConvShape { dtype, batch, image, channels, results, out, conv, .. } = *geometry;
    let back = direction == Direction::Input;
    let (from, to) = if back { (out, image) } else { (image, out) };
    let stride = conv.stride[1];
    // Places that are written begin where one meets the first tap.
    let (before, multiple) = if back { (conv.padding[2] % stride, stride) } else { (0, 1) };
    let (tile, tiles) = tiles(to[1] + before, TILE, multiple);
    let [all_read, all_written] = if back { [results, channels] } else { [channels, results] };
    let packs = all_written / writes;
    let (slice, slices) = slices(packs);
    let workers = (THREADS / slice).max(LEAST_WORKERS).min(MOST_THREADS / slice);
    let lines = batch * to[0] * tiles;
    let ty = name(dtype);
    let traits = Traits::new()
        .ty("E", ty)
        .flag("BACK", back)
        .flag("PAIRED", paired)
        .numbers([("READ", reads), ("WRITTEN", writes), ("PACKS", packs)])
        .numbers([("ALL_READ", all_read), ("ALL_WRITTEN", all_written)])
        .numbers([("SLICE", slice), ("WORKERS", workers), ("TILE", tile), ("TILES", tiles)])
        .numbers([("HEIGHT", from[0]), ("WIDTH", from[1]), ("DOWN", to[0]), ("ACROSS", to[1])])
        .numbers(geometry.windows());
    let mut stages = Stages::new(geometry.most_elements(), &[PACKS, TEXT]);
    let constant = format!("const {ty}");
    let (image, taps) = if back { (read(1), read(0)) } else { (read(0), read(1)) };
    let arguments = [(&*constant, image), (&*constant, taps), (ty, write(0)), count(lines)];
    let block = (slice * workers).next_multiple_of(32) as u32;
    stages.launch("depthwise", traits, [lines.div_ceil(workers), slices], block, arguments)?;
    Ok(Some(stages))
}

//! The gradient of a filter of which few elements belong to one channel: where every channel has filters of its own, or
//! where there are few channels or few results.
//!
//! As a matrix product it is of next to no rows or columns and as deep as all images have places: tiles of products are
//! nearly empty, and their depth is one block's. Here the depth is shared out among all blocks, which go through the images
//! as fast as memory is read. The parts that blocks have are added up in an order that is fixed for a device.

use super::ConvShape;
use super::depthwise::{self, FEW, MOST_OF_FEW, PACKS};
use crate::error::Result;
use crate::ops::name;
use crate::ops::stages::{Stages, Traits, count, read, write};
use plimsoll_graph::DType;

const TEXT: &str = include_str!("filter_sums.cu");
/// The threads of a block, about: more where a thread needs few registers.
const THREADS: usize = 256;
const THREADS_OF_MANY_TAPS: usize = 128;
const MANY_TAPS: usize = 10;
/// The threads of the blocks that add up the parts.
const SUM_THREADS: u32 = 256;
/// The sums that a thread has in registers; fewer where channels have results of their own and lines have few taps, which
/// more threads at once are the faster for.
const MOST_SUMS: usize = 84;
const MOST_SUMS_OF_FEW_TAPS: usize = 56;
const FEW_TAPS: usize = 5;
/// The sums up to which a thread has four of what is laned rather than two, where channels or results are few.
const SUMS_OF_FOUR: usize = 72;
/// The places of a line that a thread has at once.
const TILE: usize = 8;
/// Registers of a thread beside its sums and the slopes of its tile, about.
const OTHER_REGISTERS: usize = 48;
/// The places that each worker has at least: what it holds is added up after them.
const LEAST_PLACES: usize = 32;
/// The floats of a block's shared memory at most.
const MOST_HELD: usize = 12 << 10;

/// How what a thread holds is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    /// Whether each result belongs to one channel.
    paired: bool,
    /// The elements of the images and of the results' gradient that a thread has of a place.
    images: usize,
    slopes: usize,
    /// Whether each thread has others.
    images_laned: bool,
    slopes_laned: bool,
    /// How many threads have all of them.
    packs: usize,
}

impl Held {
    /// What suits a convolution, if it is one of those that there are kernels of here.
    fn of(geometry: &ConvShape) -> Option<Held> {
        let ConvShape { dtype, channels, results, filter, conv, .. } = *geometry;
        if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
            return None;
        }
        let taps = filter[0] * filter[1];
        if depthwise::suits(geometry) {
            let most = if filter[1] * 4 <= MOST_SUMS { 4 } else { 2 };
            let images = depthwise::channels_of_a_thread(geometry, most);
            let slopes = images * (results / channels);
            let packs = channels / images;
            return Some(Held {
                paired: true,
                images,
                slopes,
                images_laned: true,
                slopes_laned: true,
                packs,
            });
        }
        let few = channels.min(results);
        if conv.groups != 1 || few > FEW || taps * few > MOST_OF_FEW {
            return None;
        }
        let most = if taps * few * 4 <= SUMS_OF_FOUR { 4 } else { 2 };
        let lanes = crate::ops::pack(1, most, &[channels.max(results)]);
        let packs = channels.max(results) / lanes;
        let images_laned = results <= channels;
        let (images, slopes) = if images_laned { (lanes, few) } else { (few, lanes) };
        Some(Held { paired: false, images, slopes, images_laned, slopes_laned: !images_laned, packs })
    }

    /// The sums of a thread for each tap.
    fn pairs(&self) -> usize {
        if self.paired { self.slopes } else { self.images * self.slopes }
    }
}

/// What is launched for a filter's gradient; `None` if it is none of those that there are
/// kernels of here.
///
/// # Errors
/// If there are more blocks than a grid may have.
pub(super) fn stages(processors: u32, geometry: &ConvShape) -> Result<Option<Stages>> {
    let Some(held) = Held::of(geometry) else { return Ok(None) };
    let ConvShape { dtype, batch, image, channels, filter, results, out, .. } = *geometry;
    let pairs = held.pairs();
    let few_taps = held.paired && filter[1] <= FEW_TAPS;
    let most_sums = if few_taps { MOST_SUMS_OF_FEW_TAPS } else { MOST_SUMS };
    let most_rows = (most_sums / (filter[1] * pairs)).clamp(1, filter[0]);
    let groups = filter[0].div_ceil(most_rows);
    let tap_rows = filter[0].div_ceil(groups);
    let (tile, tiles) = depthwise::tiles(out[1], TILE, 1);
    let (slice, slices) = depthwise::slices(held.packs);
    let threads = if filter[0] * filter[1] < MANY_TAPS { THREADS } else { THREADS_OF_MANY_TAPS };
    let threads = threads.min(MOST_HELD / (filter[1] * pairs));
    let workers = (threads / slice).max(1);
    let block = (slice * workers).next_multiple_of(32);

    // As many blocks as run at once, each with as much to do. What fewer places need is never more than what many do.
    let registers = (tap_rows * filter[1] * pairs + TILE * held.slopes + OTHER_REGISTERS).next_multiple_of(8);
    let at_once = processors as usize * ((64 << 10) / (registers.min(255) * block)).clamp(1, 16);
    let lines = batch * out[0] * tiles;
    let least = LEAST_PLACES.div_ceil(tile);
    let room = (at_once / (slices * groups)).clamp(1, lines.div_ceil(least * workers));
    let run = lines.div_ceil(room * workers).max(least);
    let parts = lines.div_ceil(run * workers);
    let elements = geometry.filter_elements();

    let ty = name(dtype);
    let traits = Traits::new()
        .ty("E", ty)
        .flag("PAIRED", held.paired)
        .flag("IMAGES_LANED", held.images_laned)
        .flag("SLOPES_LANED", held.slopes_laned)
        .numbers([("IMAGES", held.images), ("SLOPES", held.slopes), ("PACKS", held.packs)])
        .numbers([("SLICE", slice), ("WORKERS", workers), ("TILE", tile), ("TILES", tiles)])
        .numbers([("TAP_ROWS", tap_rows), ("GROUPS", groups), ("CHANNELS", channels), ("RESULTS", results)])
        .numbers([("HEIGHT", image[0]), ("WIDTH", image[1]), ("DOWN", out[0]), ("ACROSS", out[1])])
        .numbers(geometry.windows());
    let mut stages = Stages::new(geometry.most_elements().max(room * elements), &[PACKS, TEXT]);
    let sums = stages.reserve(room * elements * size_of::<f32>());
    let constant = format!("const {ty}");
    let arguments = [(&*constant, read(0)), (&*constant, read(1)), ("f32", sums), count(lines), count(run)];
    stages.launch("filter_parts", traits, [parts, slices * groups], block as u32, arguments)?;
    let traits = Traits::new().ty("E", ty).numbers([("ELEMENTS", elements)]);
    let arguments = [("const f32", sums), (ty, write(0)), count(parts)];
    stages.launch("filter_sum", traits, [elements.div_ceil(32), 1], SUM_THREADS, arguments)?;
    Ok(Some(stages))
}

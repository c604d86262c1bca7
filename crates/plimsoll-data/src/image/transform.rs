//! What is done to images: resizing, cutting out, turning over, and scaling their values.

use super::{Image, ImageMut, refuse};
use crate::{Draws, Result, Value};
use fast_image_resize::images::{Image as Target, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions};
use std::cell::RefCell;

pub(crate) use fast_image_resize::Resizer;

/// Resizes an image to the size of another, as Pillow's `BILINEAR` does: where it gets smaller, every pixel that it had
/// counts, so that fine patterns do not turn into coarse ones.
///
/// Each thread that resizes keeps the memory for one pass between the axes: at most the height before times the width after.
///
/// # Errors
/// If the images differ in their channels, which must be 1 to 4, or one is empty.
///
/// ```
/// use plimsoll_data::image::{Image, ImageMut, resize};
///
/// let mut small = [0; 1];
/// resize(Image::new(&[10, 20, 30, 40], [2, 2, 1])?, &mut ImageMut::new(&mut small, [1, 1, 1])?)?;
/// assert_eq!(small, [25]);
/// # Ok::<(), plimsoll_data::Error>(())
/// ```
pub fn resize(from: Image<'_, u8>, to: &mut ImageMut<'_, u8>) -> Result<()> {
    thread_local! {
        static RESIZER: RefCell<Resizer> = RefCell::new(Resizer::new());
    }
    RESIZER.with_borrow_mut(|resizer| resize_with(resizer, from, to))
}

/// [`resize`] with memory that is the caller's.
pub(crate) fn resize_with(
    resizer: &mut Resizer,
    from: Image<'_, u8>,
    to: &mut ImageMut<'_, u8>,
) -> Result<()> {
    let channels = same_channels(from.shape, to.shape)?;
    if from.shape == to.shape {
        to.pixels.copy_from_slice(from.pixels);
        return Ok(());
    }
    let kind = match channels {
        1 => PixelType::U8,
        2 => PixelType::U8x2,
        3 => PixelType::U8x3,
        4 => PixelType::U8x4,
        _ => {
            return Err(refuse(format!("images of 1 to 4 channels can be resized; this one has {channels}")));
        }
    };
    if from.pixels.is_empty() || to.pixels.is_empty() {
        return Err(refuse(format!("{:?} cannot be resized to {:?}: one is empty", from.shape, to.shape)));
    }
    let too_large = |_| refuse(format!("{:?} or {:?} is too large to be resized", from.shape, to.shape));
    let extent = |extent: usize| u32::try_from(extent).map_err(too_large);
    let failed = |reason: String| refuse(format!("{:?} to {:?}: {reason}", from.shape, to.shape));
    let source = ImageRef::new(extent(from.shape[1])?, extent(from.shape[0])?, from.pixels, kind)
        .map_err(|error| failed(error.to_string()))?;
    let (width, height) = (extent(to.shape[1])?, extent(to.shape[0])?);
    let mut target =
        Target::from_slice_u8(width, height, to.pixels, kind).map_err(|error| failed(error.to_string()))?;
    // A second or fourth channel is one like the others here, not how much of them is to be seen.
    let bilinear = ResizeAlg::Convolution(FilterType::Bilinear);
    let options = ResizeOptions::new().resize_alg(bilinear).use_alpha(false);
    resizer.resize(&source, &mut target, &options).map_err(|error| failed(error.to_string()))
}

/// Cuts out of an image what begins at this row and column and has the size of another.
///
/// # Errors
/// If it is not all within the image, or the images differ in their channels.
pub fn crop<T: Value>(from: Image<'_, T>, top: usize, left: usize, to: &mut ImageMut<'_, T>) -> Result<()> {
    let channels = same_channels(from.shape, to.shape)?;
    let ([rows, columns, _], [height, width, _]) = (from.shape, to.shape);
    let fits =
        |first: usize, extent: usize, all: usize| first.checked_add(extent).is_some_and(|end| end <= all);
    if !fits(top, height, rows) || !fits(left, width, columns) {
        return Err(refuse(format!(
            "{height} x {width} pixels from row {top} and column {left} on are not within {rows} x {columns}; resize it first"
        )));
    }
    if to.pixels.is_empty() {
        return Ok(());
    }
    for (row, to) in to.pixels.chunks_exact_mut(width * channels).enumerate() {
        let first = ((top + row) * columns + left) * channels;
        to.copy_from_slice(&from.pixels[first..][..width * channels]);
    }
    Ok(())
}

/// Cuts out of an image, at a random place, what has the size of another.
///
/// # Errors
/// If the image is smaller, or has other channels.
pub fn random_crop<T: Value>(from: Image<'_, T>, to: &mut ImageMut<'_, T>, draws: &mut Draws) -> Result<()> {
    let place = |draws: &mut Draws, all: usize, extent: usize| draws.below(all.saturating_sub(extent) + 1);
    let top = place(draws, from.shape[0], to.shape[0]);
    let left = place(draws, from.shape[1], to.shape[1]);
    crop(from, top, left, to)
}

/// Turns an image over, left to right.
pub fn flip<T: Value>(image: &mut ImageMut<'_, T>) {
    let [_, width, channels] = image.shape;
    if image.pixels.is_empty() {
        return;
    }
    for row in image.pixels.chunks_exact_mut(width * channels) {
        // Those that there mostly are: of a known size, pixels are moved as wholes.
        match channels {
            1 => row.reverse(),
            3 => row.as_chunks_mut::<3>().0.reverse(),
            4 => row.as_chunks_mut::<4>().0.reverse(),
            _ => {
                for column in 0..width / 2 {
                    let (left, right) = row.split_at_mut((width - 1 - column) * channels);
                    left[column * channels..][..channels].swap_with_slice(&mut right[..channels]);
                }
            }
        }
    }
}

/// Makes bytes floats from 0 to 1, then subtracts the mean of their channel and divides by its standard deviation.
///
/// # Errors
/// If the images are not of the same shape, there is not one mean and deviation for each channel, or one is not finite or a
/// deviation not above 0.
pub fn normalize(
    from: Image<'_, u8>,
    mean: &[f32],
    deviation: &[f32],
    to: &mut ImageMut<'_, f32>,
) -> Result<()> {
    let channels = from.shape[2];
    if from.shape != to.shape {
        return Err(refuse(format!(
            "an image of {:?} cannot be written as one of {:?}",
            from.shape, to.shape
        )));
    }
    let is_usable = mean.iter().all(|mean| mean.is_finite())
        && deviation.iter().all(|deviation| deviation.is_finite() && *deviation > 0.0);
    if mean.len() != channels || deviation.len() != channels || !is_usable {
        return Err(refuse(format!(
            "{channels} channels need as many finite means and deviations above 0, not {mean:?} and {deviation:?}"
        )));
    }
    if channels == 0 {
        return Ok(());
    }
    let pixels = to.pixels.chunks_exact_mut(channels).zip(from.pixels.chunks_exact(channels));
    for (to, from) in pixels {
        for channel in 0..channels {
            to[channel] = (f32::from(from[channel]) / 255.0 - mean[channel]) / deviation[channel];
        }
    }
    Ok(())
}

fn same_channels(from: [usize; 3], to: [usize; 3]) -> Result<usize> {
    if from[2] == to[2] {
        return Ok(from[2]);
    }
    Err(refuse(format!("an image of {} channels cannot become one of {}", from[2], to[2])))
}

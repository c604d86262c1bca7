//! Images: decoding files, and what is done to images before they are trained on.
//!
//! Functions here write where they are told to, so that in a pipeline they work on the memory of records. What is random
//! takes its numbers from [`Draws`](crate::Draws), a function of seed, epoch and element: a run that resumes changes no
//! image.
//!
//! ```
//! use plimsoll_data::image::{Image, ImageMut, flip, normalize, random_crop};
//! use plimsoll_data::{Draws, Element, Field, Record};
//!
//! let before = [Field::open("features", Element::U8, &[Field::OPEN, Field::OPEN, 3])?];
//! let after = [Field::new("features", Element::F32, &[4, 4, 3])?];
//! let (mut before, mut after) = (Record::new(&before.into()), Record::new(&after.into()));
//! before.set("features", &[6, 5, 3], &[51u8; 6 * 5 * 3])?;
//!
//! let mut draws = Draws::new(7, 0, 0);
//! let mut cropped = [0u8; 4 * 4 * 3];
//! let mut cropped = ImageMut::new(&mut cropped, [4, 4, 3])?;
//! random_crop(Image::of(&before, "features")?, &mut cropped, &mut draws)?;
//! if draws.chance(0.5) {
//!     flip(&mut cropped);
//! }
//! let mut features = ImageMut::of(&mut after, "features")?;
//! normalize(cropped.as_image(), &[0.5, 0.5, 0.5], &[0.5, 0.5, 0.5], &mut features)?;
//! assert!((after.get::<f32>("features")?[0] + 0.6).abs() < 1e-6);
//! # Ok::<(), plimsoll_data::Error>(())
//! ```

mod decode;
mod orientation;
mod transform;

pub(crate) use decode::{Buffers, decode_into, measure};
pub use decode::{Channels, MOST_PIXELS, decode};
pub(crate) use transform::{Resizer, resize_with};
pub use transform::{crop, flip, normalize, random_crop, resize};

use crate::{ErrorKind, Record, Result, Value};

/// An image to be read: rows of pixels from the top, pixels from the left, the values of their channels.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a, T> {
    pixels: &'a [T],
    shape: [usize; 3],
}

/// An image to be written, as [`Image`].
#[derive(Debug)]
pub struct ImageMut<'a, T> {
    pixels: &'a mut [T],
    shape: [usize; 3],
}

impl<'a, T: Value> Image<'a, T> {
    /// An image of this height, width and number of channels.
    ///
    /// # Errors
    /// If there is another number of values.
    pub fn new(pixels: &'a [T], shape: [usize; 3]) -> Result<Image<'a, T>> {
        check(pixels.len(), shape)?;
        Ok(Image { pixels, shape })
    }

    /// The image in a field of a record.
    ///
    /// # Errors
    /// If there is no such field, or it is of another type or has not three axes.
    pub fn of(record: &'a Record, field: &str) -> Result<Image<'a, T>> {
        let shape = three_axes(field, record.shape_of(field)?)?;
        Ok(Image { pixels: record.get(field)?, shape })
    }
}

impl<'a, T> Image<'a, T> {
    /// Height, width and number of channels.
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// Its values.
    pub fn pixels(&self) -> &'a [T] {
        self.pixels
    }
}

impl<'a, T: Value> ImageMut<'a, T> {
    /// An image of this height, width and number of channels.
    ///
    /// # Errors
    /// If there is another number of values.
    pub fn new(pixels: &'a mut [T], shape: [usize; 3]) -> Result<ImageMut<'a, T>> {
        check(pixels.len(), shape)?;
        Ok(ImageMut { pixels, shape })
    }

    /// The image in a field of a record, as it is.
    ///
    /// # Errors
    /// If there is no such field, or it is of another type or has not three axes.
    pub fn of(record: &'a mut Record, field: &str) -> Result<ImageMut<'a, T>> {
        let shape = three_axes(field, record.shape_of(field)?)?;
        Ok(ImageMut { pixels: record.get_mut(field)?, shape })
    }

    /// The image in a field of a record, after the field is given this shape.
    ///
    /// # Errors
    /// If there is no such field, it is of another type, or cannot have this shape.
    pub fn shaped(record: &'a mut Record, field: &str, shape: [usize; 3]) -> Result<ImageMut<'a, T>> {
        Ok(ImageMut { pixels: record.resize(field, &shape)?, shape })
    }
}

impl<T> ImageMut<'_, T> {
    /// Height, width and number of channels.
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// Its values.
    pub fn pixels(&mut self) -> &mut [T] {
        self.pixels
    }

    /// The same image, to be read.
    pub fn as_image(&self) -> Image<'_, T> {
        Image { pixels: self.pixels, shape: self.shape }
    }
}

/// The error about an image.
fn refuse(reason: impl Into<String>) -> crate::Error {
    ErrorKind::Image { reason: reason.into() }.into()
}

fn check(values: usize, shape: [usize; 3]) -> Result<()> {
    match shape.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent)) {
        Some(product) if product == values => Ok(()),
        _ => Err(refuse(format!("{values} values are given for the shape {shape:?}"))),
    }
}

fn three_axes(field: &str, shape: &[usize]) -> Result<[usize; 3]> {
    shape.try_into().map_err(|_| {
        let reason = format!("an image has height, width and channels; this sample is of shape {shape:?}");
        ErrorKind::Field { name: field.to_string(), reason }.into()
    })
}

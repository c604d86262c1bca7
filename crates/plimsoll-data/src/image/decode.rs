//! Image files to pixels.
//!
//! Whatever a file holds, what comes out is upright and has the channels that were asked for. How large an image claims to
//! be is held against a limit, and against how much its bytes can hold, before memory is taken for it.

use super::orientation::Orientation;
use super::refuse;
use crate::Result;
use png::{ColorType, Transformations};
use std::io::Cursor;
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

/// The most pixels of an image, unless another limit is given: 64 Mi, 8192 x 8192.
pub const MOST_PIXELS: usize = 64 << 20;

/// No byte of a JPEG file stands for more pixels than this: each block of 8 x 8 takes a bit at least, and where the channels
/// have fewer pixels by different axes, there is a block to 16 x 8.
const MOST_PIXELS_OF_A_BYTE: usize = 1024;
/// No byte of a PNG file becomes more bytes than this, which is the limit of DEFLATE.
const MOST_PACKED: usize = 1032;
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";
const JPEG: &[u8] = b"\xff\xd8\xff";

/// What the pixels of an image are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Channels {
    /// Red, green and blue.
    #[default]
    Rgb,
    /// Brightness alone: 0.299 of the red, 0.587 of the green and 0.114 of the blue.
    Grey,
}

impl Channels {
    /// How many there are.
    pub fn count(self) -> usize {
        match self {
            Channels::Rgb => 3,
            Channels::Grey => 1,
        }
    }
}

/// Decodes a PNG or JPEG file into `out`, which is cleared first; returns height, width and number of channels.
///
/// - Grey images become RGB with three equal channels; palettes are looked up; one to four bits are spread over the range of a
///   byte, and of sixteen the upper eight are kept; alpha and transparent colours are dropped, not blended; CMYK and YCCK
///   become RGB as Adobe stores them; of an animation the first image is taken. Colour profiles are ignored.
/// - The image is turned upright as its EXIF orientation says.
/// - A file that is cut off or breaks its format is refused. Extra bytes at the end, which some published images have, are not
///   looked at.
///
/// # Errors
/// If it is no such file, broken, or has more pixels than `most_pixels` or than its bytes can hold.
///
/// ```
/// use plimsoll_data::image::{Channels, MOST_PIXELS, decode};
///
/// let error = decode(b"GIF89a", Channels::Rgb, MOST_PIXELS, &mut Vec::new()).unwrap_err();
/// assert!(error.to_string().contains("neither a PNG nor a JPEG"));
/// ```
pub fn decode(file: &[u8], channels: Channels, most_pixels: usize, out: &mut Vec<u8>) -> Result<[usize; 3]> {
    let mut buffers = Buffers { pixels: std::mem::take(out), spare: Vec::new() };
    let shape = decode_into(file, channels, most_pixels, &mut buffers);
    *out = buffers.pixels;
    shape
}

/// Memory to decode with, kept from one image to the next.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// The decoded image.
    pub(crate) pixels: Vec<u8>,
    /// What it was before it had its channels, or was turned.
    spare: Vec<u8>,
}

impl Buffers {
    /// Bytes of RAM that are held.
    pub(crate) fn held_bytes(&self) -> usize {
        self.pixels.capacity() + self.spare.capacity()
    }
}

/// [`decode`] with memory that is the caller's.
pub(crate) fn decode_into(
    file: &[u8],
    channels: Channels,
    most_pixels: usize,
    buffers: &mut Buffers,
) -> Result<[usize; 3]> {
    let (shape, orientation) = if file.starts_with(PNG) {
        decode_png(file, channels, most_pixels, buffers)?
    } else if file.starts_with(JPEG) {
        decode_jpeg(file, channels, most_pixels, buffers)?
    } else if file.is_empty() {
        return Err(refuse("it is empty"));
    } else {
        let first = &file[..file.len().min(4)];
        return Err(refuse(format!(
            "it begins with {first:02x?}: it is neither a PNG nor a JPEG; convert it, or remove it"
        )));
    };
    if orientation.is_upright() {
        return Ok(shape);
    }
    room(&mut buffers.spare, buffers.pixels.len());
    let shape = orientation.turn(&buffers.pixels, shape, &mut buffers.spare);
    std::mem::swap(&mut buffers.pixels, &mut buffers.spare);
    Ok(shape)
}

/// The bytes of RAM that decoding a file takes, about: what it is read into not included. Nothing if it is no image.
pub(crate) fn measure(file: &[u8], channels: Channels) -> Option<usize> {
    if file.starts_with(PNG) {
        let mut decoder = png::Decoder::new(Cursor::new(file));
        let info = decoder.read_header_info().ok()?;
        // Pixels as they are in the file, of up to four channels, then as they are asked for.
        return Some(info.width as usize * info.height as usize * (4 + channels.count()));
    }
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), jpeg_options());
    decoder.decode_headers().ok()?;
    let info = decoder.info()?;
    let pixels = usize::from(info.width) * usize::from(info.height);
    // A progressive file is decoded into the coefficients of the whole image first, each of two bytes.
    let coefficients = if info.sof.is_sequential_dct() { 0 } else { 2 * usize::from(info.components) };
    let turned = decoder.exif().is_some_and(|exif| !Orientation::read(exif).is_upright());
    Some(pixels * (channels.count() * (1 + usize::from(turned)) + coefficients))
}

/// Makes a buffer so long, without more memory than that. What is in it is to be overwritten.
fn room(buffer: &mut Vec<u8>, bytes: usize) {
    buffer.truncate(bytes);
    buffer.reserve_exact(bytes - buffer.len());
    buffer.resize(bytes, 0);
}

/// The number of pixels of an image of this size, if it is within the limits.
fn pixels(height: usize, width: usize, most: usize, held: usize) -> Result<usize> {
    match height.checked_mul(width).filter(|&pixels| pixels <= most) {
        None => Err(refuse(format!(
            "it claims {height} x {width} pixels, more than the limit of {most}: scale it down, or raise the limit"
        ))),
        Some(pixels) if pixels > held => Err(refuse(format!(
            "it claims {height} x {width} pixels, more than its bytes can hold: it is cut off or spoiled"
        ))),
        Some(pixels) => Ok(pixels),
    }
}

fn decode_png(
    file: &[u8],
    channels: Channels,
    most_pixels: usize,
    buffers: &mut Buffers,
) -> Result<([usize; 3], Orientation)> {
    let failed = |error: png::DecodingError| refuse(format!("the PNG cannot be decoded: {error}"));
    let mut decoder = png::Decoder::new(Cursor::new(file));
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let info = decoder.read_header_info().map_err(failed)?;
    let (height, width) = (info.height as usize, info.width as usize);
    let held = file.len().saturating_mul(MOST_PACKED * 8) / info.bits_per_pixel();
    let pixels = pixels(height, width, most_pixels, held)?;
    let mut reader = decoder.read_info().map_err(failed)?;
    let orientation = reader
        .info()
        .exif_metadata
        .as_ref()
        .map_or_else(Orientation::default, |exif| Orientation::read(exif));
    let stored = reader.output_color_type().0;
    let bytes = pixels * stored.samples();
    room(&mut buffers.spare, bytes);
    let frame = reader.next_frame(&mut buffers.spare).map_err(failed)?;
    if (frame.height as usize, frame.width as usize, frame.buffer_size()) != (height, width, bytes) {
        return Err(refuse(format!(
            "its first image has {} x {} pixels where {height} x {width} are claimed",
            frame.height, frame.width
        )));
    }
    room(&mut buffers.pixels, pixels * channels.count());
    convert(stored, &buffers.spare, channels, &mut buffers.pixels);
    Ok(([height, width, channels.count()], orientation))
}

/// Pixels with the channels of a PNG file to those that are asked for. Alpha is dropped.
fn convert(stored: ColorType, from: &[u8], channels: Channels, to: &mut [u8]) {
    let count = stored.samples();
    let has_colour = matches!(stored, ColorType::Rgb | ColorType::Rgba);
    let pixels = from.chunks_exact(count);
    match (channels, has_colour) {
        (Channels::Rgb, true) => {
            pixels.zip(to.chunks_exact_mut(3)).for_each(|(from, to)| to.copy_from_slice(&from[..3]))
        }
        (Channels::Rgb, false) => pixels.zip(to.chunks_exact_mut(3)).for_each(|(from, to)| to.fill(from[0])),
        (Channels::Grey, true) => pixels.zip(to).for_each(|(from, to)| *to = brightness(from)),
        (Channels::Grey, false) => pixels.zip(to).for_each(|(from, to)| *to = from[0]),
    }
}

/// The brightness of a colour by ITU-R BT.601, in the same whole numbers as Pillow.
fn brightness(rgb: &[u8]) -> u8 {
    let part = |channel: usize, weight: u32| u32::from(rgb[channel]) * weight;
    ((part(0, 19595) + part(1, 38470) + part(2, 7471) + 0x8000) >> 16) as u8
}

fn jpeg_options() -> DecoderOptions {
    let most = usize::from(u16::MAX);
    DecoderOptions::default().set_strict_mode(true).set_max_width(most).set_max_height(most)
}

/// Whether the mark of a JPEG's end follows its first scan. The decoder makes up the last rows where it is missing.
fn is_whole(file: &[u8]) -> bool {
    let mut place = 2;
    // Each segment before the scan: a mark of two bytes, and its length without them. A preview may be within one.
    while let Some(&[0xff, mark, high, low]) = file.get(place..place + 4) {
        match mark {
            0xda => break,
            0xff => place += 1,
            _ => place += 2 + usize::from(u16::from_be_bytes([high, low])),
        }
    }
    file.get(place..).is_some_and(|rest| rest.windows(2).rev().any(|pair| pair == [0xff, 0xd9]))
}

fn decode_jpeg(
    file: &[u8],
    channels: Channels,
    most_pixels: usize,
    buffers: &mut Buffers,
) -> Result<([usize; 3], Orientation)> {
    let failed =
        |error: zune_jpeg::errors::DecodeErrors| refuse(format!("the JPEG cannot be decoded: {error}"));
    if !is_whole(file) {
        return Err(refuse("the JPEG is cut off: the mark of its end is missing"));
    }
    let options = jpeg_options();
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), options);
    decoder.decode_headers().map_err(failed)?;
    let (Some((width, height)), Some(stored)) = (decoder.dimensions(), decoder.input_colorspace()) else {
        return Err(refuse("the JPEG has no header"));
    };
    let pixels = pixels(height, width, most_pixels, file.len().saturating_mul(MOST_PIXELS_OF_A_BYTE))?;
    let orientation = decoder.exif().map_or_else(Orientation::default, |exif| Orientation::read(exif));
    let shape = [height, width, channels.count()];
    // Brightness is stored as such, except where red, green and blue are, or inks.
    let has_brightness = matches!(stored, ColorSpace::YCbCr | ColorSpace::Luma);
    let is_direct = channels == Channels::Rgb || has_brightness;
    let decoded = if is_direct { channels } else { Channels::Rgb };
    let colours = if decoded == Channels::Rgb { ColorSpace::RGB } else { ColorSpace::Luma };
    decoder.set_options(options.jpeg_set_out_colorspace(colours));
    let into = if is_direct { &mut buffers.pixels } else { &mut buffers.spare };
    room(into, pixels * decoded.count());
    decoder.decode_into(into).map_err(failed)?;
    if !is_direct {
        room(&mut buffers.pixels, pixels);
        convert(ColorType::Rgb, &buffers.spare, channels, &mut buffers.pixels);
    }
    Ok((shape, orientation))
}

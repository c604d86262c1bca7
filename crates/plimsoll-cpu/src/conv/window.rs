//! The windows of a convolution as an operand of a product.
//!
//! Written out, the windows would be a matrix of one row per output pixel, as many times the size of the image as
//! the filter has taps. Here the rows, or the columns, that a block of the product needs are cut from the image
//! while they are packed.

use crate::gemm::{Layout, MAX_ROWS, PackLeft, PackRight, copy, row_pitch};
use crate::numbers::{Element, Float};
use crate::simd::Vector;
use std::ops::Range;

/// All windows of a batch of images. A batch of products is the groups of channels.
///
/// Tap `t` of the window at `y` is at `y * stride + t * dilation + offset` of the image, zero if that is outside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows<T> {
    pub(crate) images: *const T,
    /// The height and width of an image.
    pub(crate) size: [usize; 2],
    /// The channels of an image, and of one group.
    pub(crate) channels: usize,
    pub(crate) group_channels: usize,
    /// The windows down and across an image.
    pub(crate) grid: [usize; 2],
    /// The taps down and across a window.
    pub(crate) taps: [usize; 2],
    pub(crate) stride: [usize; 2],
    pub(crate) dilation: [usize; 2],
    pub(crate) offset: [isize; 2],
}

// SAFETY: the images are only read, inside a product whose caller vouches for them.
unsafe impl<T: Element<Acc: Float>> Sync for Windows<T> {}

/// The pixel of a window's first tap: where it is, or would be, among the images' elements, and in its image.
#[derive(Clone, Copy)]
struct Corner {
    element: isize,
    y: isize,
    x: isize,
}

/// Part of the taps and channels of a window: elements that follow each other in memory, from the same place in
/// every window.
#[derive(Clone)]
struct WindowPart {
    /// The distance of its first tap from the corner.
    y: isize,
    x: isize,
    /// The distance of its first element from the corner's.
    element: isize,
    /// The elements, counted from its first tap.
    range: Range<usize>,
}

/// A part of one window.
struct Run<T> {
    /// The address of its first element, or where that would be.
    start: *const T,
    /// Its elements that are in the image. The others are zero.
    valid: Range<usize>,
}

impl<T: Element<Acc: Float>> Windows<T> {
    /// The taps whose elements follow each other in memory, in one window and one row.
    fn span(&self) -> usize {
        let merged = self.dilation[1] == 1 && self.group_channels == self.channels;
        if merged { self.taps[1] } else { 1 }
    }

    /// The distance of a pixel from the first in elements.
    fn element(&self, y: isize, x: isize) -> isize {
        (y * self.size[1] as isize + x) * self.channels as isize
    }

    /// The corner of a window.
    fn corner(&self, window: usize) -> Corner {
        let (rest, x) = (window / self.grid[1], window % self.grid[1]);
        let (image, y) = (rest / self.grid[0], rest % self.grid[0]);
        let y = (y * self.stride[0]) as isize + self.offset[0];
        let x = (x * self.stride[1]) as isize + self.offset[1];
        Corner { element: self.element((image * self.size[0]) as isize + y, x), y, x }
    }

    /// The corners of a register tile of windows.
    fn corners(&self, windows: Range<usize>) -> [Corner; MAX_ROWS] {
        let mut corners = [self.corner(windows.start); MAX_ROWS];
        let step = self.stride[1] as isize;
        for (i, window) in windows.enumerate().skip(1) {
            corners[i] = if window.is_multiple_of(self.grid[1]) {
                self.corner(window)
            } else {
                let Corner { element, y, x } = corners[i - 1];
                Corner { element: element + step * self.channels as isize, y, x: x + step }
            };
        }
        corners
    }

    /// Cuts a range over taps and channels of a group into parts.
    fn parts(&self, group: usize, range: Range<usize>) -> impl Iterator<Item = WindowPart> {
        let len = self.span() * self.group_channels;
        let across = self.taps[1] / self.span();
        (range.start / len..range.end.div_ceil(len)).map(move |span| {
            let y = (span / across * self.dilation[0]) as isize;
            let x = (span % across * self.dilation[1]) as isize;
            let range =
                range.start.max(span * len) - span * len..range.end.min((span + 1) * len) - span * len;
            let element = self.element(y, x) + (group * self.group_channels + range.start) as isize;
            WindowPart { y, x, element, range }
        })
    }

    /// The part of a window.
    #[inline(always)]
    fn run(&self, corner: Corner, part: &WindowPart) -> Run<T> {
        let start = self.images.wrapping_offset(corner.element + part.element);
        let (y, x) = (corner.y + part.y, corner.x + part.x);
        let [height, width] = self.size.map(|size| size as isize);
        if y < 0 || y >= height {
            return Run { start, valid: 0..0 };
        }
        let Range { start: first, end } = part.range;
        let inside = |at: isize| (at.max(0) as usize * self.group_channels).clamp(first, end) - first;
        Run { start, valid: inside(-x)..inside(width - x) }
    }
}

/// The windows as rows, over taps and channels.
impl<T: Element<Acc: Float>> PackLeft<T::Acc> for Windows<T> {
    #[inline(always)]
    unsafe fn pack<V: Vector<Scalar = T::Acc>>(
        &self,
        batch: usize,
        rows: Range<usize>,
        depth: Range<usize>,
        out: *mut T::Acc,
    ) -> Layout<T::Acc> {
        let pitch = row_pitch(depth.len(), V::LANES);
        let corners = self.corners(rows.clone());
        let mut first = out;
        for part in self.parts(batch, depth) {
            let len = part.range.len();
            for (i, &corner) in corners[..rows.len()].iter().enumerate() {
                let Run { start, valid } = self.run(corner, &part);
                let out = first.wrapping_add(i * pitch);
                // From left to right, because whole vectors are written.
                // SAFETY: the valid part of a run is in its image; the caller vouches for `out`.
                unsafe {
                    clear::<V>(out, valid.start);
                    copy::<V, T>(start.wrapping_add(valid.start), valid.len(), out.add(valid.start));
                    clear::<V>(out.add(valid.end), len - valid.end);
                }
            }
            first = first.wrapping_add(len);
        }
        Layout { start: out, lead_stride: pitch as isize, depth_stride: 1 }
    }

    fn in_place(&self, batch: usize) -> Option<Layout<T::Acc>> {
        let plain = self.taps == [1, 1] && self.stride == [1, 1] && self.offset == [0, 0];
        (T::IS_ACC && plain && self.grid == self.size).then(|| Layout {
            start: self.images.wrapping_add(batch * self.group_channels).cast(),
            lead_stride: self.channels as isize,
            depth_stride: 1,
        })
    }
}

/// Sets `count` scalars to zero, and what remains of the last vector.
#[inline(always)]
unsafe fn clear<V: Vector>(to: *mut V::Scalar, count: usize) {
    for i in (0..count).step_by(V::LANES) {
        // SAFETY: the caller vouches for the memory.
        unsafe { V::splat(V::Scalar::ZERO).store(to.add(i)) };
    }
}

/// The windows as columns, of one row per tap and channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowColumns<T>(pub(crate) Windows<T>);

impl<T: Element<Acc: Float>> PackRight<T::Acc> for WindowColumns<T> {
    #[inline(always)]
    unsafe fn pack<V: Vector<Scalar = T::Acc>>(
        &self,
        batch: usize,
        columns: Range<usize>,
        depth: Range<usize>,
        out: *mut T::Acc,
        width: usize,
    ) {
        let windows = &self.0;
        for (panel, first) in columns.clone().step_by(width).enumerate() {
            let out = out.wrapping_add(panel * depth.len() * width);
            let mut lane = 0;
            for part in windows.parts(batch, first..columns.end.min(first + width)) {
                for at in part.range.clone().step_by(V::LANES) {
                    let range = at..part.range.end.min(at + V::LANES);
                    let piece = WindowPart {
                        element: part.element + (at - part.range.start) as isize,
                        range,
                        ..part
                    };
                    // SAFETY: the caller vouches for the ranges and for `out`.
                    unsafe {
                        self.pack_piece::<V>(&piece, depth.clone(), out.add(lane), width, width - lane)
                    };
                    lane += piece.range.len();
                }
            }
        }
    }

    fn in_place(&self, batch: usize) -> Option<Layout<T::Acc>> {
        let Layout { start, lead_stride, depth_stride } = self.0.in_place(batch)?;
        Some(Layout { start, lead_stride: depth_stride, depth_stride: lead_stride })
    }
}

impl<T: Element<Acc: Float>> WindowColumns<T> {
    /// Packs at most a vector of neighbouring columns, row of windows by row of windows. What a vector has beyond
    /// them is overwritten by the columns that follow; there is room for `room` of them.
    #[inline(always)]
    unsafe fn pack_piece<V: Vector<Scalar = T::Acc>>(
        &self,
        piece: &WindowPart,
        depth: Range<usize>,
        mut out: *mut T::Acc,
        width: usize,
        room: usize,
    ) {
        let windows = &self.0;
        let across = windows.grid[1];
        let step = windows.stride[1] * windows.channels;
        let mut window = depth.start;
        while window < depth.end {
            let row_end = depth.end.min((window / across + 1) * across);
            let corner = windows.corner(window);
            let Run { start, valid } = windows.run(corner, piece);
            // The windows from here on that are alike: above or below the image, or with the piece inside it.
            let (y, x) = (corner.y + piece.y, corner.x + piece.x);
            let alike = if y < 0 || y >= windows.size[0] as isize {
                row_end - window
            } else if valid == (0..piece.range.len()) {
                let last = x + ((piece.range.end - 1) / windows.group_channels) as isize;
                let right = (windows.size[1] as isize - last) as usize;
                right.div_ceil(windows.stride[1]).min(row_end - window)
            } else {
                1
            };
            // SAFETY: the valid part of a run is in its image; the caller vouches for `out`.
            unsafe {
                for i in 0..alike {
                    let vector = T::load_some::<V>(start.wrapping_add(i * step), valid.clone());
                    if room >= V::LANES {
                        vector.store(out)
                    } else {
                        vector.store_first(out, room)
                    }
                    out = out.wrapping_add(width);
                }
            }
            window += alike;
        }
    }
}

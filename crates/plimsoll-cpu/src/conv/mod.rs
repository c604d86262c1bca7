//! Two-dimensional convolutions of channels-last images, as products that read the image where it is.
//!
//! The usual way to convolve by matrix product first copies every window of the image into a matrix, which is the
//! largest buffer of the whole step. Here the product packs its blocks straight from the image, so that the only
//! workspace is that of a product. Convolutions in small groups have no products to speak of and loops of their own;
//! filters of three by three over many channels, which most are, go by Winograd's algorithm, which saves
//! multiplications.

mod grad_input;
mod grouped;
mod shape;
#[cfg(test)]
mod tests;
mod window;
mod winograd;

use crate::gemm::{
    self, BatchStrides, Epilogue, Left, Product, Right, Shape, Strided, StridedMut, Target, ToEpilogue,
};
use crate::numbers::{Element, Float};
use crate::runtime::Pool;
use crate::simd::Isa;
use grad_input::{FlippedFilter, PhasePixels, phases};
pub use shape::{ConvError, ConvShape};
use window::{WindowColumns, Windows};

/// Which of a convolution's three products is computed, and from which two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The output, from the input and the filter.
    Forward,
    /// The gradient of the input, from that of the output and the filter.
    InputGrad,
    /// The gradient of the filter, from the input and the gradient of the output.
    FilterGrad,
}

impl Pass {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Forward, Self::InputGrad, Self::FilterGrad];
}

/// Where the result of a convolution goes.
#[derive(Clone, Copy)]
enum To<'a, T> {
    /// To memory.
    Memory(*mut T),
    /// To whoever takes it, in rows of pixels.
    Epilogue(&'a dyn Epilogue),
}

/// How a convolution is computed.
enum Way {
    Grouped,
    Winograd,
    Product,
}

impl Way {
    fn of<T: Element<Acc: Float>>(shape: &ConvShape) -> Self {
        if grouped::fits::<T>(shape) {
            Self::Grouped
        } else if shape.may_use_winograd && winograd::fits::<T>(shape) {
            Self::Winograd
        } else {
            Self::Product
        }
    }
}

/// The bytes of workspace that [`convolve`] needs on a pool of `threads`. The same on every machine.
pub fn workspace<T: Element<Acc: Float>>(pass: Pass, shape: &ConvShape, threads: usize) -> usize {
    workspace_to::<T>(pass, shape, false, threads)
}

/// The bytes of workspace that [`convolve_with_epilogue`] needs.
pub(crate) fn epilogue_workspace<T: Element<Acc: Float>>(
    pass: Pass,
    shape: &ConvShape,
    threads: usize,
) -> usize {
    workspace_to::<T>(pass, shape, true, threads)
}

fn workspace_to<T: Element<Acc: Float>>(
    pass: Pass,
    shape: &ConvShape,
    to_epilogue: bool,
    threads: usize,
) -> usize {
    let product = |shape: Shape, in_rows: bool| match to_epilogue {
        true => gemm::epilogue_workspace::<T>(shape, threads),
        false => gemm::workspace::<T>(shape, in_rows, threads),
    };
    match (Way::of::<T>(shape), pass) {
        (Way::Grouped, Pass::Forward) => 0,
        (Way::Grouped, Pass::InputGrad) => grouped::grad_input_workspace(shape),
        (Way::Grouped, Pass::FilterGrad) => grouped::grad_filter_workspace::<T>(shape),
        (Way::Winograd, Pass::FilterGrad) => winograd::grad_filter_workspace(shape, threads),
        (Way::Winograd, _) => {
            let (from, to) = channels(pass, shape);
            winograd::convolution_workspace(from, to, to_epilogue, threads)
        }
        (Way::Product, Pass::Forward) => product(forward_product(shape), true),
        (Way::Product, Pass::InputGrad) => {
            phases(shape).map(|phase| product(phase.product(), phase.is_whole())).max().unwrap_or(0)
        }
        (Way::Product, Pass::FilterGrad) => product(grad_filter_product(shape), false),
    }
}

/// Whether the result can be given to an epilogue, pixel by pixel.
pub(crate) fn takes_epilogue<T: Element<Acc: Float>>(pass: Pass, shape: &ConvShape) -> bool {
    match (Way::of::<T>(shape), pass) {
        (_, Pass::FilterGrad) | (Way::Grouped, _) => false,
        (Way::Winograd, _) => {
            let (from, to) = channels(pass, shape);
            winograd::takes_epilogue(from, to)
        }
        (Way::Product, Pass::Forward) => shape.groups == 1 && forward_product(shape).k > 0,
        (Way::Product, Pass::InputGrad) => {
            shape.groups == 1 && phases(shape).all(|phase| phase.is_whole() && phase.product().k > 0)
        }
    }
}

/// The channels of the pixels that an output or the gradient of an input is computed from, and of its own.
fn channels(pass: Pass, shape: &ConvShape) -> (usize, usize) {
    match pass {
        Pass::InputGrad => (shape.out_channels, shape.channels),
        _ => (shape.channels, shape.out_channels),
    }
}

/// Computes a product of a convolution from two operands.
///
/// # Panics
///
/// When `scratch` is smaller than [`workspace`] says, or not aligned to
/// [`WORKSPACE_ALIGN`](crate::gemm::WORKSPACE_ALIGN).
///
/// # Safety
///
/// The pointers are to as many elements as `shape` says, the operands' initialised and not written meanwhile, the
/// result's used by nobody else; it overlaps neither the operands nor the workspace.
pub unsafe fn convolve<T: Element<Acc: Float>>(
    pass: Pass,
    pool: &Pool,
    shape: &ConvShape,
    operands: [*const T; 2],
    result: *mut T,
    scratch: &mut [u8],
) {
    // SAFETY: the contract is the same.
    unsafe { convolve_to(pass, pool, shape, operands, To::Memory(result), scratch) }
}

/// [`convolve`] into an epilogue, if it [can](takes_epilogue): its rows are pixels.
///
/// # Safety
///
/// As for [`convolve`], with the workspace that [`epilogue_workspace`] says.
pub(crate) unsafe fn convolve_with_epilogue<T: Element<Acc: Float>>(
    pass: Pass,
    pool: &Pool,
    shape: &ConvShape,
    operands: [*const T; 2],
    epilogue: &dyn Epilogue,
    scratch: &mut [u8],
) {
    // SAFETY: the contract is the same.
    unsafe { convolve_to(pass, pool, shape, operands, To::Epilogue(epilogue), scratch) }
}

unsafe fn convolve_to<T: Element<Acc: Float>>(
    pass: Pass,
    pool: &Pool,
    shape: &ConvShape,
    [a, b]: [*const T; 2],
    to: To<'_, T>,
    scratch: &mut [u8],
) {
    let isa = Isa::detect();
    let (memory, epilogue) = match to {
        To::Memory(memory) => (memory, None),
        To::Epilogue(epilogue) => (std::ptr::null_mut(), Some(ToEpilogue(epilogue))),
    };
    type Operands<'a, S> = (&'a dyn Left<S>, &'a dyn Right<S>);
    let multiply = |shape, (a, b): Operands<'_, T::Acc>, target: &dyn Target<T>, scratch: &mut [u8]| {
        let target = epilogue.as_ref().map_or(target, |epilogue| epilogue);
        // SAFETY: the caller vouches for the pointers.
        unsafe {
            Product { shape, a, b, target, alpha: T::Acc::ONE, accumulate: false }.run(pool, isa, scratch)
        }
    };
    let batch = groups_of(shape, shape.group_out_channels());
    let out_channels = shape.out_channels as isize;
    // SAFETY: the caller vouches for the pointers, which are to `f32` where Winograd's algorithm is chosen.
    unsafe {
        match (Way::of::<T>(shape), pass) {
            (Way::Grouped, Pass::Forward) => grouped::forward(isa, pool, shape, [a, b], memory),
            (Way::Grouped, Pass::InputGrad) => grouped::grad_input(isa, pool, shape, [a, b], memory, scratch),
            (Way::Grouped, Pass::FilterGrad) => {
                grouped::grad_filter(isa, pool, shape, [a, b], memory, scratch)
            }
            (Way::Winograd, Pass::FilterGrad) => {
                winograd::grad_filter(isa, pool, shape, a.cast(), b.cast(), memory.cast(), scratch)
            }
            (Way::Winograd, _) => {
                let to = match to {
                    To::Memory(memory) => To::Memory(memory.cast()),
                    To::Epilogue(epilogue) => To::Epilogue(epilogue),
                };
                winograd_convolution(pass, shape, a.cast(), b.cast(), to).run(isa, pool, scratch)
            }
            (Way::Product, Pass::Forward) => {
                let windows = input_windows(shape, a);
                let filter = Strided { start: b, lead_stride: 1, depth_stride: out_channels, batch };
                let target = StridedMut { start: memory, row_stride: out_channels, column_stride: 1, batch };
                multiply(forward_product(shape), (&windows, &filter), &target, scratch)
            }
            (Way::Product, Pass::InputGrad) => {
                for phases in phases(shape) {
                    let (windows, filter) = (phases.windows(a), FlippedFilter { phases, filter: b });
                    let target = PhasePixels { phases, input_grad: memory };
                    multiply(phases.product(), (&windows, &filter), &target, scratch)
                }
            }
            (Way::Product, Pass::FilterGrad) => {
                let gradient = Strided { start: b, lead_stride: 1, depth_stride: out_channels, batch };
                let windows = WindowColumns(input_windows(shape, a));
                let target = StridedMut { start: memory, row_stride: 1, column_stride: out_channels, batch };
                multiply(grad_filter_product(shape), (&gradient, &windows), &target, scratch)
            }
        }
    }
}

/// A convolution of `f32` by Winograd's algorithm. The gradient of the input is one too: every input pixel is seen by
/// the windows around it, through the taps from the last to the first.
fn winograd_convolution<'a>(
    pass: Pass,
    shape: &ConvShape,
    from: *const f32,
    filter: *const f32,
    to: To<'a, f32>,
) -> winograd::Convolution<'a> {
    let flipped = pass == Pass::InputGrad;
    let (channels, to_channels) = channels(pass, shape);
    let between_taps = channels * to_channels;
    let (size, to_size, strides) = match flipped {
        false => (shape.input, shape.output, [between_taps, shape.out_channels, 1]),
        true => (shape.output, shape.input, [between_taps, 1, shape.out_channels]),
    };
    let corner = |[before, _]: [usize; 2]| if flipped { before as isize - 2 } else { -(before as isize) };
    winograd::Convolution {
        batch: shape.batch,
        from: winograd::Images { start: from, size, channels },
        filter: winograd::Filter { start: filter, strides, flipped },
        corner: shape.padding.map(corner),
        to,
        to_size,
        to_channels,
    }
}

/// The rows are output pixels, the columns output channels; summed over taps and input channels.
fn forward_product(shape: &ConvShape) -> Shape {
    Shape {
        batch: shape.groups,
        m: shape.batch * shape.output[0] * shape.output[1],
        n: shape.group_out_channels(),
        k: shape.filter[0] * shape.filter[1] * shape.group_channels(),
    }
}

/// The gradient transposed: the rows are output channels, which need no packing, the columns taps and input
/// channels; summed over output pixels.
fn grad_filter_product(shape: &ConvShape) -> Shape {
    let Shape { batch, m, n, k } = forward_product(shape);
    Shape { batch, m: n, n: k, k: m }
}

/// The windows of the input that the output pixels see.
fn input_windows<T>(shape: &ConvShape, input: *const T) -> Windows<T> {
    Windows {
        images: input,
        size: shape.input,
        channels: shape.channels,
        group_channels: shape.group_channels(),
        grid: shape.output,
        taps: shape.filter,
        stride: shape.stride,
        dilation: shape.dilation,
        offset: shape.padding.map(|[before, _]| -(before as isize)),
    }
}

/// A batch of groups whose channels are `stride` apart.
fn groups_of(shape: &ConvShape, stride: usize) -> BatchStrides {
    BatchStrides { inner: shape.groups, strides: [0, stride as isize] }
}

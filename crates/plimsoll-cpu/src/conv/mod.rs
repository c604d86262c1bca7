//! Two-dimensional convolutions of channels-last images, as products that read the image where it is.
//!
//! The usual way to convolve by matrix product first copies every window of the image into a matrix, which is the
//! largest buffer of the whole step. Here the product packs its blocks straight from the image, so that the only
//! workspace is that of a product. Convolutions of single channels have no product to speak of and loops of their
//! own; filters of three by three over many channels, which most are, go by Winograd's algorithm, which saves
//! multiplications.

mod depthwise;
mod grad_input;
mod shape;
#[cfg(test)]
mod tests;
mod window;
mod winograd;

use crate::gemm::{
    BatchStrides, Epilogue, Product, Shape, Strided, StridedMut, Target, ToEpilogue, epilogue_workspace,
    workspace,
};
use crate::numbers::{Element, Float};
use crate::runtime::Pool;
use crate::simd::Isa;
use grad_input::{FlippedFilter, PhasePixels, Phases, phases};
pub use shape::{ConvError, ConvShape};
use window::{WindowColumns, Windows};
use winograd::To;

/// The bytes of workspace that [`conv_forward`] needs on a pool of `threads`. The same on every machine.
pub fn conv_forward_workspace<T: Element<Acc: Float>>(shape: &ConvShape, threads: usize) -> usize {
    if depthwise::fits(shape) {
        0
    } else if winograd::fits::<T>(shape) {
        winograd::convolution_workspace(shape.channels, shape.out_channels, false, threads)
    } else {
        workspace::<T>(forward_product(shape), true, threads)
    }
}

/// Computes a convolution: `output` from `input` and `filter`.
///
/// # Panics
///
/// When `workspace` is smaller than [`conv_forward_workspace`] says, or not aligned to
/// [`WORKSPACE_ALIGN`](crate::gemm::WORKSPACE_ALIGN).
///
/// # Safety
///
/// The pointers are to as many elements as `shape` says, `input` and `filter` initialised and not written
/// meanwhile, `output` used by nobody else; it overlaps neither the operands nor `workspace`.
pub unsafe fn conv_forward<T: Element<Acc: Float>>(
    pool: &Pool,
    shape: &ConvShape,
    input: *const T,
    filter: *const T,
    output: *mut T,
    workspace: &mut [u8],
) {
    let isa = Isa::detect();
    if depthwise::fits(shape) {
        // SAFETY: the caller vouches for the pointers.
        unsafe { depthwise::forward(isa, pool, shape, input, filter, output) };
        return;
    }
    if winograd::fits::<T>(shape) {
        let convolution = winograd_forward(shape, input, filter, To::Images(output.cast()));
        // SAFETY: the elements are `f32`, and the caller vouches for the pointers.
        unsafe { convolution.run(isa, pool, workspace) };
        return;
    }
    let target = StridedMut {
        start: output,
        row_stride: shape.out_channels as isize,
        column_stride: 1,
        batch: groups_of(shape, shape.group_out_channels()),
    };
    // SAFETY: the caller vouches for the pointers.
    unsafe { forward_to(isa, pool, shape, input, filter, &target, workspace) }
}

/// Computes a convolution, by product, to a target.
unsafe fn forward_to<T: Element<Acc: Float>>(
    isa: Isa,
    pool: &Pool,
    shape: &ConvShape,
    input: *const T,
    filter: *const T,
    target: &dyn Target<T>,
    workspace: &mut [u8],
) {
    let filter = Strided {
        start: filter,
        lead_stride: 1,
        depth_stride: shape.out_channels as isize,
        batch: groups_of(shape, shape.group_out_channels()),
    };
    let product = Product {
        shape: forward_product(shape),
        a: &input_windows(shape, input),
        b: &filter,
        target,
        alpha: T::Acc::ONE,
        accumulate: false,
    };
    // SAFETY: the caller vouches for the pointers.
    unsafe { product.run(pool, isa, workspace) }
}

/// A convolution of `f32` by Winograd's algorithm.
fn winograd_forward<'a, T>(
    shape: &ConvShape,
    input: *const T,
    filter: *const T,
    to: To<'a>,
) -> winograd::Convolution<'a> {
    winograd::Convolution {
        batch: shape.batch,
        from: winograd::Images { start: input.cast(), size: shape.input, channels: shape.channels },
        filter: winograd::Filter {
            start: filter.cast(),
            strides: [shape.channels * shape.out_channels, shape.out_channels, 1],
            flipped: false,
        },
        corner: shape.padding.map(|[before, _]| -(before as isize)),
        to,
        to_size: shape.output,
        to_channels: shape.out_channels,
    }
}

/// The gradient of the input of a convolution of `f32`, as a convolution by Winograd's algorithm: every input pixel is
/// seen by the windows around it, through the taps from the last to the first.
fn winograd_grad_input<'a, T>(
    shape: &ConvShape,
    output_grad: *const T,
    filter: *const T,
    to: To<'a>,
) -> winograd::Convolution<'a> {
    winograd::Convolution {
        batch: shape.batch,
        from: winograd::Images {
            start: output_grad.cast(),
            size: shape.output,
            channels: shape.out_channels,
        },
        filter: winograd::Filter {
            start: filter.cast(),
            strides: [shape.channels * shape.out_channels, 1, shape.out_channels],
            flipped: true,
        },
        corner: shape.padding.map(|[before, _]| before as isize - 2),
        to,
        to_size: shape.input,
        to_channels: shape.channels,
    }
}

/// Whether a convolution can give its output to an epilogue, pixel by pixel.
pub(crate) fn output_takes_epilogue<T: Element<Acc: Float>>(shape: &ConvShape) -> bool {
    if winograd::fits::<T>(shape) {
        return winograd::takes_epilogue(shape.channels, shape.out_channels);
    }
    shape.groups == 1 && !depthwise::fits(shape) && forward_product(shape).k > 0
}

/// The bytes of workspace that [`conv_forward_with_epilogue`] needs.
pub(crate) fn conv_forward_epilogue_workspace<T: Element<Acc: Float>>(
    shape: &ConvShape,
    threads: usize,
) -> usize {
    if winograd::fits::<T>(shape) {
        return winograd::convolution_workspace(shape.channels, shape.out_channels, true, threads);
    }
    epilogue_workspace::<T>(forward_product(shape), threads)
}

/// [`conv_forward`] into an epilogue, if it [can](output_takes_epilogue): its rows are pixels.
///
/// # Safety
///
/// As for [`conv_forward`], with the workspace that [`conv_forward_epilogue_workspace`] says.
pub(crate) unsafe fn conv_forward_with_epilogue<T: Element<Acc: Float>>(
    pool: &Pool,
    shape: &ConvShape,
    input: *const T,
    filter: *const T,
    epilogue: &dyn Epilogue,
    workspace: &mut [u8],
) {
    let isa = Isa::detect();
    // SAFETY: the contract is the same.
    unsafe {
        if winograd::fits::<T>(shape) {
            winograd_forward(shape, input, filter, To::Epilogue(epilogue)).run(isa, pool, workspace);
        } else {
            forward_to(isa, pool, shape, input, filter, &ToEpilogue(epilogue), workspace);
        }
    }
}

/// The bytes of workspace that [`conv_grad_input`] needs on a pool of `threads`. The same on every machine.
pub fn conv_grad_input_workspace<T: Element<Acc: Float>>(shape: &ConvShape, threads: usize) -> usize {
    if depthwise::fits(shape) {
        return 0;
    }
    if winograd::fits::<T>(shape) {
        return winograd::convolution_workspace(shape.out_channels, shape.channels, false, threads);
    }
    let bytes = phases(shape).map(|phase| workspace::<T>(phase.product(), phase.is_whole(), threads));
    bytes.max().unwrap_or(0)
}

/// Computes the gradient of a convolution with respect to its input: `input_grad` from `output_grad` and `filter`.
///
/// # Panics
///
/// When `workspace` is smaller than [`conv_grad_input_workspace`] says, or not aligned to
/// [`WORKSPACE_ALIGN`](crate::gemm::WORKSPACE_ALIGN).
///
/// # Safety
///
/// The pointers are to as many elements as `shape` says, `output_grad` and `filter` initialised and not written
/// meanwhile, `input_grad` used by nobody else; it overlaps neither the operands nor `workspace`.
pub unsafe fn conv_grad_input<T: Element<Acc: Float>>(
    pool: &Pool,
    shape: &ConvShape,
    output_grad: *const T,
    filter: *const T,
    input_grad: *mut T,
    workspace: &mut [u8],
) {
    let isa = Isa::detect();
    if depthwise::fits(shape) {
        // SAFETY: the caller vouches for the pointers.
        unsafe { depthwise::grad_input(isa, pool, shape, output_grad, filter, input_grad) };
        return;
    }
    if winograd::fits::<T>(shape) {
        let convolution = winograd_grad_input(shape, output_grad, filter, To::Images(input_grad.cast()));
        // SAFETY: the elements are `f32`, and the caller vouches for the pointers.
        unsafe { convolution.run(isa, pool, workspace) };
        return;
    }
    for phases in phases(shape) {
        // SAFETY: the caller vouches for the pointers.
        unsafe {
            let target = PhasePixels { phases, input_grad };
            phase_to(isa, pool, phases, output_grad, filter, &target, workspace);
        }
    }
}

/// Computes one phase of the gradient of the input to a target.
unsafe fn phase_to<T: Element<Acc: Float>>(
    isa: Isa,
    pool: &Pool,
    phases: Phases,
    output_grad: *const T,
    filter: *const T,
    target: &dyn Target<T>,
    workspace: &mut [u8],
) {
    let product = Product {
        shape: phases.product(),
        a: &phases.windows(output_grad),
        b: &FlippedFilter { phases, filter },
        target,
        alpha: T::Acc::ONE,
        accumulate: false,
    };
    // SAFETY: the caller vouches for the pointers.
    unsafe { product.run(pool, isa, workspace) }
}

/// The only phase of a gradient of the input, if an epilogue can take it pixel by pixel.
fn epilogue_phase(shape: &ConvShape) -> Option<Phases> {
    let mut all = phases(shape);
    let first = all.next().filter(|phase| phase.is_whole() && phase.product().k > 0);
    first.filter(|_| shape.groups == 1 && !depthwise::fits(shape) && all.next().is_none())
}

/// Whether the gradient of the input can be given to an epilogue, pixel by pixel.
pub(crate) fn grad_input_takes_epilogue<T: Element<Acc: Float>>(shape: &ConvShape) -> bool {
    if winograd::fits::<T>(shape) {
        return winograd::takes_epilogue(shape.out_channels, shape.channels);
    }
    epilogue_phase(shape).is_some()
}

/// The bytes of workspace that [`conv_grad_input_with_epilogue`] needs.
pub(crate) fn conv_grad_input_epilogue_workspace<T: Element<Acc: Float>>(
    shape: &ConvShape,
    threads: usize,
) -> usize {
    if winograd::fits::<T>(shape) {
        return winograd::convolution_workspace(shape.out_channels, shape.channels, true, threads);
    }
    epilogue_phase(shape).map_or(0, |phase| epilogue_workspace::<T>(phase.product(), threads))
}

/// [`conv_grad_input`] into an epilogue, if it [can](grad_input_takes_epilogue): its rows are pixels.
///
/// # Safety
///
/// As for [`conv_grad_input`], with the workspace that [`conv_grad_input_epilogue_workspace`] says.
pub(crate) unsafe fn conv_grad_input_with_epilogue<T: Element<Acc: Float>>(
    pool: &Pool,
    shape: &ConvShape,
    output_grad: *const T,
    filter: *const T,
    epilogue: &dyn Epilogue,
    workspace: &mut [u8],
) {
    let isa = Isa::detect();
    // SAFETY: the contract is the same.
    unsafe {
        if winograd::fits::<T>(shape) {
            winograd_grad_input(shape, output_grad, filter, To::Epilogue(epilogue)).run(isa, pool, workspace);
        } else if let Some(phases) = epilogue_phase(shape) {
            phase_to(isa, pool, phases, output_grad, filter, &ToEpilogue(epilogue), workspace);
        }
    }
}

/// The bytes of workspace that [`conv_grad_filter`] needs on a pool of `threads`. The same on every machine.
pub fn conv_grad_filter_workspace<T: Element<Acc: Float>>(shape: &ConvShape, threads: usize) -> usize {
    if depthwise::fits(shape) {
        depthwise::grad_filter_workspace::<T>(shape)
    } else if winograd::fits::<T>(shape) {
        winograd::grad_filter_workspace(shape, threads)
    } else {
        workspace::<T>(grad_filter_product(shape), false, threads)
    }
}

/// Computes the gradient of a convolution with respect to its filter: `filter_grad` from `input` and `output_grad`.
///
/// # Panics
///
/// When `workspace` is smaller than [`conv_grad_filter_workspace`] says, or not aligned to
/// [`WORKSPACE_ALIGN`](crate::gemm::WORKSPACE_ALIGN).
///
/// # Safety
///
/// The pointers are to as many elements as `shape` says, `input` and `output_grad` initialised and not written
/// meanwhile, `filter_grad` used by nobody else; it overlaps neither the operands nor `workspace`.
pub unsafe fn conv_grad_filter<T: Element<Acc: Float>>(
    pool: &Pool,
    shape: &ConvShape,
    input: *const T,
    output_grad: *const T,
    filter_grad: *mut T,
    workspace: &mut [u8],
) {
    let isa = Isa::detect();
    if depthwise::fits(shape) {
        // SAFETY: the caller vouches for the pointers.
        unsafe { depthwise::grad_filter(isa, pool, shape, input, output_grad, filter_grad, workspace) };
        return;
    }
    if winograd::fits::<T>(shape) {
        let (input, output_grad, filter_grad) = (input.cast(), output_grad.cast(), filter_grad.cast());
        // SAFETY: the elements are `f32`, and the caller vouches for the pointers.
        unsafe { winograd::grad_filter(isa, pool, shape, input, output_grad, filter_grad, workspace) };
        return;
    }
    let product = Product {
        shape: grad_filter_product(shape),
        a: &Strided {
            start: output_grad,
            lead_stride: 1,
            depth_stride: shape.out_channels as isize,
            batch: groups_of(shape, shape.group_out_channels()),
        },
        b: &WindowColumns(input_windows(shape, input)),
        target: &StridedMut {
            start: filter_grad,
            row_stride: 1,
            column_stride: shape.out_channels as isize,
            batch: groups_of(shape, shape.group_out_channels()),
        },
        alpha: T::Acc::ONE,
        accumulate: false,
    };
    // SAFETY: the caller vouches for the pointers.
    unsafe { product.run(pool, isa, workspace) }
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

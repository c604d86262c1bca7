//! Convolutions and their gradients, as routines.

use crate::conv::{self, ConvShape, Pass};
use crate::gemm::Epilogue;
use crate::kernels::memory::*;
use crate::kernels::product::epilogue::CanFuseEpilogue;
use crate::numbers::{Element, Float, with_float};
use crate::runtime::{Call, Options, Routine};
use plimsoll_graph::Shape;
use plimsoll_graph::op::Conv2d;
use plimsoll_graph::program::Operand;
use std::marker::PhantomData;

/// Prepares `Op::Conv2d`.
pub(crate) fn prepare(conv: Conv2d, reads: &[Operand], options: Options) -> Box<dyn Routine> {
    let shape = sizes(conv, &reads[0].view.shape, &reads[1].view.shape, options);
    with_float!(reads[0].dtype, T => Box::new(Convolution::<T>::new(Pass::Forward, shape)))
}

/// Prepares `Op::Conv2dInputGrad`.
pub(crate) fn prepare_input_grad(
    conv: Conv2d,
    reads: &[Operand],
    writes: &[Operand],
    options: Options,
) -> Box<dyn Routine> {
    let shape = sizes(conv, &writes[0].view.shape, &reads[0].view.shape, options);
    with_float!(reads[0].dtype, T => Box::new(Convolution::<T>::new(Pass::InputGrad, shape)))
}

/// Prepares `Op::Conv2dFilterGrad`.
pub(crate) fn prepare_filter_grad(
    conv: Conv2d,
    reads: &[Operand],
    writes: &[Operand],
    options: Options,
) -> Box<dyn Routine> {
    let shape = sizes(conv, &reads[0].view.shape, &writes[0].view.shape, options);
    with_float!(reads[0].dtype, T => Box::new(Convolution::<T>::new(Pass::FilterGrad, shape)))
}

/// Prepares `Op::Conv2d` with an epilogue, if it can have one.
pub(crate) fn prepare_with_epilogue(
    conv: Conv2d,
    reads: &[Operand],
    options: Options,
) -> Option<Box<dyn CanFuseEpilogue>> {
    let shape = sizes(conv, &reads[0].view.shape, &reads[1].view.shape, options);
    let routine: Box<dyn CanFuseEpilogue> =
        with_float!(reads[0].dtype, T => Box::new(Convolution::<T>::new(Pass::Forward, shape)));
    routine.can_fuse().then_some(routine)
}

/// Prepares `Op::Conv2dInputGrad` with an epilogue, if it can have one.
pub(crate) fn prepare_input_grad_with_epilogue(
    conv: Conv2d,
    reads: &[Operand],
    input: &Shape,
    options: Options,
) -> Option<Box<dyn CanFuseEpilogue>> {
    let shape = sizes(conv, input, &reads[0].view.shape, options);
    let routine: Box<dyn CanFuseEpilogue> =
        with_float!(reads[0].dtype, T => Box::new(Convolution::<T>::new(Pass::InputGrad, shape)));
    routine.can_fuse().then_some(routine)
}

/// The sizes of a convolution that the graph has checked.
fn sizes(conv: Conv2d, images: &Shape, filter: &Shape, options: Options) -> ConvShape {
    let four = |shape: &Shape| [0, 1, 2, 3].map(|axis| shape[axis]);
    let [top, bottom, left, right] = conv.padding;
    let padding = [[top, bottom], [left, right]];
    let shape = ConvShape::new(four(images), four(filter), conv.stride, padding, conv.dilation, conv.groups);
    let shape = shape.unwrap_or_else(|error| unreachable!("the graph let this through: {error}"));
    shape.with_winograd(options.winograd)
}

struct Convolution<T> {
    pass: Pass,
    shape: ConvShape,
    element: PhantomData<T>,
}

impl<T: Element<Acc: Float>> Convolution<T> {
    fn new(pass: Pass, shape: ConvShape) -> Self {
        Self { pass, shape, element: PhantomData }
    }

    /// The operands of a call, as the pass takes them. The filter is the first operand of the gradient of the input.
    fn operands(&self, call: &Call<'_>) -> [*const T; 2] {
        let order = if self.pass == Pass::InputGrad { [1, 0] } else { [0, 1] };
        order.map(|index| Address::<T>::read(call, index).pointer().cast_const())
    }
}

impl<T: Element<Acc: Float>> Routine for Convolution<T> {
    fn workspace(&self, threads: usize) -> usize {
        conv::workspace::<T>(self.pass, &self.shape, threads)
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let (operands, result) = (self.operands(call), Address::<T>::write(call, 0).pointer());
        // SAFETY: the operands are dense and of the sizes that the graph has checked, and the workspace is as large
        // as was asked for.
        unsafe {
            let workspace = Address::workspace(call, 0).slice_mut(self.workspace(call.pool.threads()));
            conv::convolve(self.pass, call.pool, &self.shape, operands, result, workspace);
        }
    }
}

impl<T: Element<Acc: Float>> CanFuseEpilogue for Convolution<T> {
    fn can_fuse(&self) -> bool {
        conv::takes_epilogue::<T>(self.pass, &self.shape)
    }

    fn sum_bytes(&self) -> usize {
        size_of::<T::Acc>()
    }

    fn epilogue_workspace(&self, threads: usize) -> usize {
        conv::epilogue_workspace::<T>(self.pass, &self.shape, threads)
    }

    unsafe fn run_with_epilogue(&self, call: &Call<'_>, epilogue: &dyn Epilogue, workspace: &mut [u8]) {
        let operands = self.operands(call);
        // SAFETY: the operands are dense and of the sizes that the graph has checked.
        unsafe {
            conv::convolve_with_epilogue(self.pass, call.pool, &self.shape, operands, epilogue, workspace);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use plimsoll_graph::op::Conv2d;
    use plimsoll_graph::{Op, Shape};

    /// Images, filter, and convolution; the arithmetic is tested where it is, this is about which operand is which.
    fn cases() -> [([usize; 4], [usize; 4], Conv2d); 3] {
        let strided = Conv2d { stride: [2, 1], padding: [1, 0, 2, 1], dilation: [1, 2], groups: 1 };
        let grouped = Conv2d { groups: 2, padding: [1; 4], ..Conv2d::default() };
        [
            ([1, 1, 1, 1], [1, 1, 1, 1], Conv2d::default()),
            ([2, 7, 6, 3], [3, 2, 3, 5], strided),
            ([2, 5, 4, 6], [3, 3, 3, 4], grouped),
        ]
    }

    #[test]
    fn the_three_products_of_a_convolution_go_to_the_right_operands() {
        for dtype in FLOATS {
            for (images, filter, conv) in cases() {
                let [image_shape, filter_shape] = [images, filter].map(|dims| Shape::new(&dims).unwrap());
                let output = conv.output(&image_shape, &filter_shape).unwrap();
                let mut numbers = Numbers::new(images[1] as u64);
                let (x, w) = (numbers.tensor(dtype, &images), numbers.tensor(dtype, &filter));
                let dy = numbers.tensor(dtype, &output);
                let tolerance = [2.0 * unit(dtype) + 64.0 * unit(dtype.accumulator())];
                check(&Op::Conv2d(conv), &[&x, &w], &[], &tolerance);
                check(&Op::Conv2dInputGrad { conv, input: image_shape }, &[&w, &dy], &[], &tolerance);
                check(&Op::Conv2dFilterGrad { conv, filter: filter_shape }, &[&x, &dy], &[], &tolerance);
            }
        }
    }
}

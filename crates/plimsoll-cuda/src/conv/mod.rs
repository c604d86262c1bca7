//! Convolutions of images and their two gradients.
//!
//! Where every channel has filters of its own, or few are read, there are kernels for that here (`depthwise`), and for the
//! gradients of such filters and of others that are thin (`filter_sums`). A filter of one tap is a matrix product. Others go to cuDNN, whose
//! filters have the output channels first: ours are transposed on the way in and out. What it does not take (f64, groups
//! of few channels, and what it refuses) has a kernel here, which is plain and right rather than fast.

mod cudnn_conv;
mod depthwise;
mod direct;
pub(crate) mod dnn;
mod filter_sums;

use crate::codegen::engine::Engine;
use crate::conv::dnn::Direction;
use crate::error::{ErrorKind, Result};
use crate::gemm::Gemm;
use crate::gemm::cublaslt_gemm::CublasLtGemm;
use crate::ops::stages::Stages;
use crate::routine::{Call, Routine};
use plimsoll_graph::DType;
use plimsoll_graph::op::Conv2d;
use plimsoll_graph::program::Operand;
use std::sync::Arc;

/// Groups of fewer channels than this are not worth tensor cores.
const FEW_CHANNELS: usize = 8;

/// Products of less depth are the library's.
const LEAST_DEPTH: usize = 8192;

/// The extents of a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ConvShape {
    dtype: DType,
    batch: usize,
    /// Height and width of the images.
    image: [usize; 2],
    channels: usize,
    /// Height and width of the filter.
    filter: [usize; 2],
    results: usize,
    /// Height and width of what comes out.
    out: [usize; 2],
    conv: Conv2d,
}

impl ConvShape {
    fn new(conv: Conv2d, image: &Operand, filter: &Operand, out: &Operand) -> ConvShape {
        let (i, f, o) = (image.view.shape, filter.view.shape, out.view.shape);
        ConvShape {
            dtype: image.dtype,
            batch: i[0],
            image: [i[1], i[2]],
            channels: i[3],
            filter: [f[0], f[1]],
            results: f[3],
            out: [o[1], o[2]],
            conv,
        }
    }

    fn image_elements(&self) -> usize {
        self.batch * self.image[0] * self.image[1] * self.channels
    }

    fn filter_elements(&self) -> usize {
        self.filter[0] * self.filter[1] * (self.channels / self.conv.groups.max(1)) * self.results
    }

    fn out_elements(&self) -> usize {
        self.batch * self.out[0] * self.out[1] * self.results
    }

    /// Those of the largest operand.
    fn most_elements(&self) -> usize {
        self.image_elements().max(self.filter_elements()).max(self.out_elements())
    }

    /// How windows lie on the images, as kernels are told.
    fn windows(&self) -> [(&'static str, usize); 8] {
        let Conv2d { stride, padding, dilation, .. } = self.conv;
        [
            ("TAPS_Y", self.filter[0]),
            ("TAPS_X", self.filter[1]),
            ("STRIDE_Y", stride[0]),
            ("STRIDE_X", stride[1]),
            ("DILATION_Y", dilation[0]),
            ("DILATION_X", dilation[1]),
            ("TOP", padding[0]),
            ("LEFT", padding[2]),
        ]
    }

    fn elements(&self, direction: Direction) -> usize {
        match direction {
            Direction::Forward => self.out_elements(),
            Direction::Input => self.image_elements(),
            Direction::Filter => self.filter_elements(),
        }
    }

    /// Whether every pixel is multiplied with one matrix.
    fn is_product(&self) -> bool {
        let Conv2d { stride, padding, groups, .. } = self.conv;
        self.filter == [1, 1] && stride == [1, 1] && padding == [0; 4] && groups == 1
    }
}

/// Prepares `Op::Conv2d` and its two gradients; operands are in the op's order.
pub(crate) fn prepare(
    engine: &Arc<Engine>,
    direction: Direction,
    conv: Conv2d,
    reads: &[Operand],
    writes: &[Operand],
) -> Result<Box<dyn Routine>> {
    let (image, filter, out) = match direction {
        Direction::Forward => (&reads[0], &reads[1], &writes[0]),
        Direction::Input => (&writes[0], &reads[0], &reads[1]),
        Direction::Filter => (&reads[0], &writes[0], &reads[1]),
    };
    let geometry = ConvShape::new(conv, image, filter, out);
    if [geometry.image_elements(), geometry.filter_elements(), geometry.out_elements()].contains(&0) {
        let bytes = geometry.elements(direction) * geometry.dtype.size();
        return Ok(Box::new(Zero { engine: engine.clone(), bytes: bytes as u64 }));
    }
    if let Some(stages) = own_stages(engine.properties().processors, direction, &geometry)? {
        return stages.prepare(engine);
    }
    if geometry.is_product() {
        return Ok(Box::new(Pointwise::new(engine, direction, &geometry)?));
    }
    let few = geometry.conv.groups > 1 && geometry.channels / geometry.conv.groups < FEW_CHANNELS;
    if geometry.dtype == DType::F64 || few {
        return Ok(Box::new(direct::Direct::new(engine, direction, &geometry)?));
    }
    match cudnn_conv::Planned::new(engine, direction, &geometry) {
        Ok(planned) => Ok(Box::new(planned)),
        Err(error) if error.kind() == ErrorKind::NoLibrary => Err(error),
        Err(_) => Ok(Box::new(direct::Direct::new(engine, direction, &geometry)?)),
    }
}

/// What is launched where a convolution has kernels of its own.
fn own_stages(processors: u32, direction: Direction, geometry: &ConvShape) -> Result<Option<Stages>> {
    match direction {
        Direction::Filter => filter_sums::stages(processors, geometry),
        Direction::Forward | Direction::Input => depthwise::stages(direction, geometry),
    }
}

/// What multiplies a matrix of many rows, transposed, with another where one of them has few columns: a filter's gradient of
/// one tap, for which the library would share out next to nothing. `None` where that is not so.
///
/// # Errors
/// If it cannot be compiled.
pub(crate) fn thin_product(engine: &Arc<Engine>, gemm: &Gemm) -> Result<Option<Box<dyn Routine>>> {
    let Some(geometry) = of_thin_product(gemm) else { return Ok(None) };
    let stages = filter_sums::stages(engine.properties().processors, &geometry)?;
    stages.map(|stages| stages.prepare(engine)).transpose()
}

/// The convolution whose filter's gradient is such a product.
fn of_thin_product(gemm: &Gemm) -> Option<ConvShape> {
    let Gemm { m, n, k, batch, a, b, c, dtype, result, accumulate, alignment } = *gemm;
    let aligned = alignment[..2].iter().all(|alignment| alignment.is_multiple_of(16));
    let plain = batch == 1 && !accumulate && result == dtype && aligned;
    let rows_of_both = a[..2] == [1, m] && b[..2] == [n, 1] && c[0] == n;
    if !plain || !rows_of_both || k < LEAST_DEPTH {
        return None;
    }
    // Rows side by side, of which a thread has several at once.
    let width = [8, 4, 2].into_iter().find(|width| k.is_multiple_of(*width)).unwrap_or(1);
    let image = [1, width];
    let conv = Conv2d::default();
    Some(ConvShape {
        dtype,
        batch: k / width,
        image,
        channels: m,
        filter: [1, 1],
        results: n,
        out: image,
        conv,
    })
}

/// A gradient of nothing.
struct Zero {
    engine: Arc<Engine>,
    bytes: u64,
}

impl Routine for Zero {
    fn workspace(&self) -> u64 {
        0
    }

    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        // SAFETY: the result has so many bytes.
        unsafe { self.engine.zero(call.writes[0], self.bytes, call.stream) }
    }
}

/// A filter of one tap: a product of pixels and channels.
struct Pointwise(CublasLtGemm);

impl Pointwise {
    fn new(engine: &Arc<Engine>, direction: Direction, geometry: &ConvShape) -> Result<Pointwise> {
        let ConvShape { batch, image: [height, width], channels, results, dtype, .. } = *geometry;
        let pixels = batch * height * width;
        let (extents, a, b) = match direction {
            Direction::Forward => ([pixels, results, channels], [channels, 1], [results, 1]),
            // The gradient is the second read: the operands are exchanged in `run`.
            Direction::Input => ([pixels, channels, results], [results, 1], [1, results]),
            Direction::Filter => ([channels, results, pixels], [1, channels], [results, 1]),
        };
        let gemm = Gemm::new(dtype, extents, a, b);
        let product = CublasLtGemm::new(engine, &gemm)?;
        Ok(match direction {
            Direction::Input => Pointwise(product.exchanged()),
            _ => Pointwise(product),
        })
    }
}

impl Routine for Pointwise {
    fn workspace(&self) -> u64 {
        self.0.workspace()
    }

    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        // SAFETY: the operands are dense matrices of the extents that were described.
        unsafe { self.0.run([call.reads[0], call.reads[1], call.writes[0]], call.workspace, call.stream) }
    }
}

#[cfg(test)]
mod tests;

//! Convolutions by cuDNN.

use super::{ConvShape, FEW_CHANNELS};
use crate::codegen::engine::Engine;
use crate::conv::dnn::{ConvCandidate, Direction, Dnn, Functions, Opaque};
use crate::error::{Error, ErrorKind, Result};
use crate::gemm::gather_strided::GatherStrided;
use crate::routine::{ALIGNMENT, Call, Routine};
use plimsoll_graph::DType;
use plimsoll_graph::op::Conv2d;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

/// The most workspace that is taken for the sake of speed.
const WORKSPACE_LIMIT: u64 = 64 << 20;
const CANDIDATES: usize = 8;
/// Channels are neighbours.
const NHWC: c_uint = 1;
/// Filters are not mirrored.
const CROSS_CORRELATION: c_uint = 1;
const DETERMINISTIC: c_int = 1;
const MATH_TENSOR: c_uint = 1;
/// Tensor cores, on operands that are rounded for them.
const MATH_CONVERTED: c_uint = 2;
/// Full f32: other modes may round operands to TF32.
const MATH_FMA: c_uint = 3;

/// A convolution that cuDNN computes.
pub(super) struct Planned {
    engine: Arc<Engine>,
    direction: Direction,
    descriptions: Descriptions,
    algorithm: c_int,
    /// Transposes the filter to cuDNN's layout, with the output channels first, or back.
    turn: GatherStrided,
    /// Copies the images into padded ones, or out of them, and where the first pixel is in those; needed where the padding
    /// differs between sides, or tensor cores take no pixels of so few channels.
    border: Option<(GatherStrided, u64)>,
    /// Whether channels of zeros follow the filter's own.
    widened: bool,
    /// Bytes of the transposed filter, the images with a border, and the library's own.
    parts: [u64; 3],
}

impl Planned {
    pub(super) fn new(engine: &Arc<Engine>, direction: Direction, geometry: &ConvShape) -> Result<Planned> {
        let dnn = engine.dnn()?;
        let size = geometry.dtype.size();
        let Conv2d { padding: [top, bottom, left, right], groups, stride, dilation } = geometry.conv;
        // Padding that no window sees may be left out or added.
        let [down, across] = [0, 1].map(|axis| {
            let reach = dilation[axis] * (geometry.filter[axis] - 1) + 1;
            let before = [top, left][axis];
            let padded = geometry.image[axis] + 2 * before;
            padded >= reach && (padded - reach) / stride[axis] + 1 == geometry.out[axis]
        });
        let mut described = *geometry;
        let mut border = None;
        let widened =
            direction == Direction::Forward && size == 2 && groups == 1 && geometry.channels < FEW_CHANNELS;
        if widened {
            described.channels = FEW_CHANNELS;
        }
        if !(down && across) {
            described.image = [geometry.image[0] + top + bottom, geometry.image[1] + left + right];
            described.conv.padding = [0; 4];
        }
        if described != *geometry {
            border = Some(bordered(engine, direction, geometry, &described)?);
        }
        let descriptions = Descriptions::new(dnn, direction, &described)?;
        let (algorithm, workspace) = engine.shared.with_context(|_| choose(dnn, direction, &descriptions))?;
        let ([height, width], inner, results) =
            (geometry.filter, geometry.channels / groups, geometry.results);
        let turn = match direction {
            Direction::Filter => {
                let axes =
                    [(height, width * inner), (width, inner), (inner, 1), (results, height * width * inner)];
                GatherStrided::new(engine, size, &axes)?
            }
            _ => {
                let wide = described.channels / groups;
                let axes = [
                    (results, 1, height * width * wide),
                    (height, width * inner * results, width * wide),
                    (width, inner * results, wide),
                    (inner, results, 1),
                ];
                GatherStrided::between(engine, size, &axes)?
            }
        };
        let whole = |bytes: usize| (bytes as u64).next_multiple_of(ALIGNMENT);
        let images = if border.is_some() { described.image_elements() } else { 0 };
        let parts = [whole(described.filter_elements() * size), whole(images * size), workspace as u64];
        let engine = engine.clone();
        Ok(Planned { engine, direction, descriptions, algorithm, turn, border, widened, parts })
    }
}

/// The copy between images and those with a border, and the place of the first pixel in these, in bytes.
fn bordered(
    engine: &Arc<Engine>,
    direction: Direction,
    geometry: &ConvShape,
    described: &ConvShape,
) -> Result<(GatherStrided, u64)> {
    let size = geometry.dtype.size();
    let steps = |of: &ConvShape| {
        let row = of.image[1] * of.channels;
        [of.image[0] * row, row, of.channels]
    };
    let [plain, framed] = [steps(geometry), steps(described)];
    let [from, to] = if direction == Direction::Input { [framed, plain] } else { [plain, framed] };
    let axes = [
        (geometry.batch, from[0], to[0]),
        (geometry.image[0], from[1], to[1]),
        (geometry.image[1], from[2], to[2]),
        (geometry.channels, 1, 1),
    ];
    let [top, _, left, _] = if described.conv == geometry.conv { [0; 4] } else { geometry.conv.padding };
    let first = top * framed[1] + left * framed[2];
    Ok((GatherStrided::between(engine, size, &axes)?, (first * size) as u64))
}

/// The first deterministic algorithm that the library proposes within the limit, or the one with the least workspace.
fn choose(dnn: &Dnn, direction: Direction, descriptions: &Descriptions) -> Result<(c_int, usize)> {
    let (propose, workspace, _) = dnn.functions.of(direction);
    let Descriptions { convolution, operands: [first, second, result], math, .. } = *descriptions;
    let handle = dnn.handle();
    let (mut found, mut count) = ([ConvCandidate::default(); CANDIDATES], 0);
    // SAFETY: the descriptions live, and there is room for as many candidates as are asked for.
    let code = unsafe {
        let room = CANDIDATES as c_int;
        propose(handle.0, first, second, convolution, result, room, &mut count, found.as_mut_ptr())
    };
    dnn.check(code, || format!("propose algorithms for {direction:?}"))?;
    let found = found.iter().take(count.max(0) as usize);
    // The convolution says what math is allowed; an algorithm that needs tensor cores for f32 would round to TF32.
    let allowed = |way: &ConvCandidate| math != MATH_FMA || !matches!(way.math, MATH_TENSOR | MATH_CONVERTED);
    let sound = found.filter(|way| way.state == 0 && way.deterministic == DETERMINISTIC && allowed(way));
    let mut least: Option<(c_int, usize)> = None;
    for way in sound {
        let mut bytes = 0;
        // SAFETY: the descriptions live, and the pointer is to a live number.
        let code =
            unsafe { workspace(handle.0, first, second, convolution, result, way.algorithm, &mut bytes) };
        if code != 0 {
            continue;
        }
        if bytes as u64 <= WORKSPACE_LIMIT {
            return Ok((way.algorithm, bytes));
        }
        if least.is_none_or(|(_, fewest)| bytes < fewest) {
            least = Some((way.algorithm, bytes));
        }
    }
    least.ok_or_else(|| Error::new(ErrorKind::Unsupported, "cuDNN has no deterministic algorithm for it"))
}

impl Routine for Planned {
    fn workspace(&self) -> u64 {
        self.parts.iter().sum()
    }

    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let dnn = self.engine.dnn()?;
        let [turned_bytes, framed_bytes, scratch_bytes] = self.parts;
        let turned = call.workspace;
        let framed = turned + turned_bytes;
        let scratch = framed + framed_bytes;
        let (mut first, mut second, mut result) = (call.reads[0], call.reads[1], call.writes[0]);
        // SAFETY: the filter and the images with a border are in parts of the workspace of their own, and every copy is
        // of the extents it was made for.
        unsafe {
            let into_frame = |from: &mut u64| -> Result<()> {
                let Some((border, place)) = &self.border else { return Ok(()) };
                self.engine.zero(framed, framed_bytes, call.stream)?;
                border.run(*from, framed + place, call.stream)?;
                *from = framed;
                Ok(())
            };
            match self.direction {
                Direction::Forward => {
                    if self.widened {
                        self.engine.zero(turned, turned_bytes, call.stream)?;
                    }
                    self.turn.run(second, turned, call.stream)?;
                    second = turned;
                    into_frame(&mut first)?;
                }
                Direction::Input => {
                    self.turn.run(first, turned, call.stream)?;
                    first = turned;
                    if self.border.is_some() {
                        result = framed;
                    }
                }
                Direction::Filter => {
                    into_frame(&mut first)?;
                    result = turned;
                }
            }
        }
        let (one, zero) = (1.0f32, 0.0f32);
        let [alpha, beta]: [*const c_void; 2] = [ptr::from_ref(&one).cast(), ptr::from_ref(&zero).cast()];
        let Descriptions { convolution, operands: [a, b, c], .. } = self.descriptions;
        {
            let handle = dnn.handle();
            // SAFETY: the handle and the stream are of the device whose context is current.
            let code = unsafe { (dnn.functions.set_stream)(handle.0, call.stream) };
            dnn.check(code, || "take a stream".into())?;
            let (_, _, compute) = dnn.functions.of(self.direction);
            // SAFETY: the descriptions live; the addresses are of tensors as they describe; the workspace is as
            // long as the library asked for; factors of f32 are those of every type but f64, and are read before
            // this returns.
            let code = unsafe {
                compute(
                    handle.0,
                    alpha,
                    a,
                    first,
                    b,
                    second,
                    convolution,
                    self.algorithm,
                    scratch,
                    scratch_bytes as usize,
                    beta,
                    c,
                    result,
                )
            };
            dnn.check(code, || format!("enqueue a convolution ({:?})", self.direction))?;
        }
        // SAFETY: as above.
        unsafe {
            match (self.direction, &self.border) {
                (Direction::Filter, _) => self.turn.run(turned, call.writes[0], call.stream),
                (Direction::Input, Some((border, place))) => {
                    border.run(framed + place, call.writes[0], call.stream)
                }
                _ => Ok(()),
            }
        }
    }
}

/// The library's descriptions of a convolution, its two operands and its result.
struct Descriptions {
    functions: &'static Functions,
    convolution: Opaque,
    operands: [Opaque; 3],
    /// Which of the operands is the filter.
    filter: usize,
    math: c_uint,
}

// SAFETY: descriptions do not change once they are made, and the library reads them from any thread.
unsafe impl Send for Descriptions {}
// SAFETY: as above.
unsafe impl Sync for Descriptions {}

impl Descriptions {
    fn new(dnn: &Dnn, direction: Direction, geometry: &ConvShape) -> Result<Descriptions> {
        let attempt = || format!("describe {geometry:?}");
        let check = |code| dnn.check(code, attempt);
        let too_large = |_| Error::new(ErrorKind::Unsupported, format!("too large for cuDNN: {geometry:?}"));
        let int = |value: usize| c_int::try_from(value).map_err(too_large);
        let dtype: c_uint = match geometry.dtype {
            DType::F32 => 0,
            DType::F16 => 2,
            DType::BF16 => 9,
            _ => return Err(Error::new(ErrorKind::Unsupported, attempt())),
        };
        let math = if geometry.dtype == DType::F32 { MATH_FMA } else { MATH_TENSOR };
        let filter = match direction {
            Direction::Forward => 1,
            Direction::Input => 0,
            Direction::Filter => 2,
        };
        let functions = dnn.functions;
        let mut made = Descriptions {
            functions,
            convolution: ptr::null_mut(),
            operands: [ptr::null_mut(); 3],
            filter,
            math,
        };
        let Conv2d { stride, padding, dilation, groups } = geometry.conv;
        let image = [geometry.batch, geometry.channels, geometry.image[0], geometry.image[1]];
        let taps = [geometry.results, geometry.channels / groups, geometry.filter[0], geometry.filter[1]];
        let out = [geometry.batch, geometry.results, geometry.out[0], geometry.out[1]];
        let shapes = match direction {
            Direction::Forward => [image, taps, out],
            Direction::Input => [taps, out, image],
            Direction::Filter => [image, out, taps],
        };
        // SAFETY: every pointer is to a live pointer, and every description is set after it was made.
        unsafe {
            check((functions.convolution_create)(&mut made.convolution))?;
            let [down, across] = [int(padding[0])?, int(padding[2])?];
            let ([u, v], [y, x]) =
                ([int(stride[0])?, int(stride[1])?], [int(dilation[0])?, int(dilation[1])?]);
            let set = functions.convolution_set;
            check(set(made.convolution, down, across, u, v, y, x, CROSS_CORRELATION, 0))?;
            check((functions.convolution_groups)(made.convolution, int(groups)?))?;
            check((functions.convolution_math)(made.convolution, math))?;
            for (index, [n, c, h, w]) in shapes.into_iter().enumerate() {
                let (n, c, h, w) = (int(n)?, int(c)?, int(h)?, int(w)?);
                if index == filter {
                    check((functions.filter_create)(&mut made.operands[index]))?;
                    check((functions.filter_set)(made.operands[index], dtype, NHWC, n, c, h, w))?;
                } else {
                    check((functions.tensor_create)(&mut made.operands[index]))?;
                    check((functions.tensor_set)(made.operands[index], NHWC, dtype, n, c, h, w))?;
                }
            }
        }
        Ok(made)
    }
}

impl Drop for Descriptions {
    fn drop(&mut self) {
        for (index, &operand) in self.operands.iter().enumerate().filter(|(_, operand)| !operand.is_null()) {
            let destroy = if index == self.filter {
                self.functions.filter_destroy
            } else {
                self.functions.tensor_destroy
            };
            // SAFETY: it was made by the library and is used no more.
            unsafe { destroy(operand) };
        }
        if !self.convolution.is_null() {
            // SAFETY: as above.
            unsafe { (self.functions.convolution_destroy)(self.convolution) };
        }
    }
}

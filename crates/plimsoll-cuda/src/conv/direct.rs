//! Convolutions as they are defined, for what the library does not take.

use super::ConvShape;
use crate::codegen::engine::Engine;
use crate::codegen::function::{Argument, Function};
use crate::conv::dnn::Direction;
use crate::error::Result;
use crate::routine::{Call, Routine};
use plimsoll_graph::DType;
use plimsoll_graph::op::Conv2d;
use std::sync::Arc;

const THREADS: u32 = 256;
/// Results that a block of the filter's gradient sums.
const LANES: usize = 32;

/// A convolution by a kernel of its own.
pub(super) struct Direct {
    function: Function,
    grid: [u32; 3],
    /// What adds up the parts of the filter's gradient, in how many blocks.
    sum: Option<(Function, u32)>,
    workspace: u64,
}

impl Direct {
    pub(super) fn new(engine: &Arc<Engine>, direction: Direction, geometry: &ConvShape) -> Result<Direct> {
        let processors = engine.properties().processors;
        let blocks =
            |elements: usize| elements.div_ceil(THREADS as usize).min(processors as usize * 32).max(1) as u32;
        let inner = geometry.channels / geometry.conv.groups;
        let (lanes, places) =
            (geometry.results.div_ceil(LANES), geometry.filter[0] * geometry.filter[1] * inner);
        let positions = geometry.batch * geometry.out[0] * geometry.out[1];
        // Enough blocks for all processors several times over, and no part of fewer positions than warps take at once.
        let parts =
            (processors as usize * 8).div_ceil((lanes * places).max(1)).clamp(1, positions.div_ceil(64));
        let source = source(geometry, parts);
        let compile = |name| engine.compile(&source, name, 0);
        Ok(match direction {
            Direction::Forward => Direct {
                function: compile("forward")?,
                grid: [blocks(geometry.out_elements()), 1, 1],
                sum: None,
                workspace: 0,
            },
            Direction::Input => Direct {
                function: compile("input")?,
                grid: [blocks(geometry.image_elements()), 1, 1],
                sum: None,
                workspace: 0,
            },
            Direction::Filter => {
                let elements = geometry.filter_elements();
                Direct {
                    function: compile("filter_parts")?,
                    grid: [(lanes * places) as u32, parts as u32, 1],
                    sum: Some((compile("filter_sum")?, blocks(elements))),
                    workspace: (parts * elements * geometry.dtype.accumulator().size()) as u64,
                }
            }
        })
    }
}

impl Routine for Direct {
    fn workspace(&self) -> u64 {
        self.workspace
    }

    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let [first, second] = [Argument::Address(call.reads[0]), Argument::Address(call.reads[1])];
        let (result, parts) = (Argument::Address(call.writes[0]), Argument::Address(call.workspace));
        // SAFETY: the kernels take these pointers, to tensors of the extents they were written for.
        unsafe {
            let Some((sum, blocks)) = &self.sum else {
                return self.function.launch(call.stream, self.grid, THREADS, 0, &[first, second, result]);
            };
            self.function.launch(call.stream, self.grid, THREADS, 0, &[first, second, parts])?;
            sum.launch(call.stream, [*blocks, 1, 1], THREADS, 0, &[parts, result])
        }
    }
}

/// The kernels for a convolution.
fn source(geometry: &ConvShape, parts: usize) -> String {
    let ConvShape { batch, image, channels, filter, results, out, conv, .. } = *geometry;
    let Conv2d { stride, padding, dilation, groups } = conv;
    let types = match geometry.dtype {
        DType::F64 => {
            "#define ELEMENT double\n#define SUM double\n#define LOAD(x) (x)\n#define STORE(x, y) x = (y)\n"
        }
        DType::F32 => {
            "#define ELEMENT float\n#define SUM float\n#define LOAD(x) (x)\n#define STORE(x, y) x = (y)\n"
        }
        DType::BF16 => {
            "#define ELEMENT unsigned short\n#define SUM float\n\
             __device__ float load(unsigned short x) { return __uint_as_float((unsigned)x << 16); }\n\
             #define LOAD(x) load(x)\n\
             #define STORE(x, y) asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(x) : \"f\"(y))\n"
        }
        _ => {
            "#define ELEMENT unsigned short\n#define SUM float\n\
             __device__ float load(unsigned short x) { float y; asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(y) : \"h\"(x)); \
             return y; }\n\
             #define LOAD(x) load(x)\n\
             #define STORE(x, y) asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(x) : \"f\"(y))\n"
        }
    };
    let sizes = [
        ("BATCH", batch),
        ("HEIGHT", image[0]),
        ("WIDTH", image[1]),
        ("CHANNELS", channels),
        ("TAPS_Y", filter[0]),
        ("TAPS_X", filter[1]),
        ("RESULTS", results),
        ("OUT_Y", out[0]),
        ("OUT_X", out[1]),
        ("STRIDE_Y", stride[0]),
        ("STRIDE_X", stride[1]),
        ("TOP", padding[0]),
        ("LEFT", padding[2]),
        ("DILATION_Y", dilation[0]),
        ("DILATION_X", dilation[1]),
        ("INNER", channels / groups),
        ("OUTER", results / groups),
        ("PARTS", parts),
    ];
    let sizes: String = sizes.iter().map(|(name, size)| format!("#define {name} {size}\n")).collect();
    format!("{types}{sizes}{}", include_str!("direct.cu"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_are_written_for_the_extents_of_the_convolution() {
        let conv = Conv2d { stride: [2, 1], padding: [1, 0, 2, 2], dilation: [1, 3], groups: 4 };
        let geometry = ConvShape {
            dtype: DType::BF16,
            batch: 2,
            image: [9, 11],
            channels: 8,
            filter: [3, 2],
            results: 12,
            out: [4, 12],
            conv,
        };
        let text = source(&geometry, 5);
        for line in ["INNER 2", "OUTER 3", "TOP 1", "LEFT 2", "PARTS 5", "DILATION_X 3", "SUM float"] {
            assert!(text.contains(&format!("#define {line}\n")), "{line} in {text}");
        }
    }
}

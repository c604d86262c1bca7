//! Small matrix products of `f32`.
//!
//! The library's kernels have large tiles, of which a small product fills few; each then adds up its whole depth alone,
//! for ten microseconds and more. Here tiles are small, the threads of a block split the depth, and the epilogue is part
//! of the kernel: launches are most of the time of so small a product.

use crate::codegen::engine::Engine;
use crate::codegen::function::{Argument, Function};
use crate::codegen::loops::PRELUDE;
use crate::error::Result;
use crate::gemm::Gemm;
use cudarc::driver::sys::{CUdeviceptr, CUstream};
use plimsoll_graph::DType;
use std::sync::Arc;

const TEXT: &str = include_str!("small_gemm.cu");
/// The epilogue of a product without one: it stores the result.
const PLAIN: &str = "typedef long long idx;\n#define PARAMETERS float *out0\n#define ARGUMENTS out0\n\n\
    __device__ __forceinline__ void follow(const float *in0, idx at, PARAMETERS) { out0[at] = in0[at]; }\n\n";
const TILE: usize = 16;
const THREADS: u32 = 256;
const GROUPS: usize = 16;
/// The depth that a block holds at once, at most: several blocks share a multiprocessor.
const MOST_DEPTH: usize = 448;
/// The elements that are read at once where all rows or columns begin at a multiple of so many.
const PACK: usize = 4;
/// Products of more multiplications are the library's.
const MOST_MULTIPLICATIONS: usize = 1 << 25;

/// A small product, ready to run.
pub(crate) struct SmallGemm {
    engine: Arc<Engine>,
    gemm: Gemm,
    function: Function,
    shared: u32,
}

impl SmallGemm {
    /// Whether a product is small enough, and of numbers that are added up as they are.
    pub(crate) fn suits(gemm: &Gemm, tf32: bool) -> bool {
        let Gemm { m, n, k, c, batch, dtype, result, accumulate, .. } = *gemm;
        let plain = dtype == DType::F32 && result == DType::F32 && !tf32 && !accumulate;
        let plain = plain && batch == 1 && c[0] == n;
        plain && m.saturating_mul(n).saturating_mul(k) <= MOST_MULTIPLICATIONS
    }

    /// # Errors
    /// If it does not compile.
    pub(crate) fn new(engine: &Arc<Engine>, gemm: &Gemm) -> Result<SmallGemm> {
        SmallGemm::compiled(engine, gemm, PLAIN)
    }

    /// The same product with an epilogue.
    ///
    /// # Errors
    /// If it does not compile.
    pub(crate) fn with_epilogue(&self, epilogue: &str) -> Result<SmallGemm> {
        SmallGemm::compiled(&self.engine, &self.gemm, epilogue)
    }

    fn compiled(engine: &Arc<Engine>, gemm: &Gemm, epilogue: &str) -> Result<SmallGemm> {
        let (source, shared) = source(gemm, epilogue);
        let function = engine.compile(&source, "small_product", shared)?;
        Ok(SmallGemm { engine: engine.clone(), gemm: *gemm, function, shared })
    }

    /// Enqueues the product, with the device's context current. `arguments` are the epilogue's: the result's address, if
    /// there is none.
    ///
    /// # Safety
    /// The addresses must be those of matrices as they were described, and the arguments those that the epilogue takes,
    /// valid when it runs.
    pub(crate) unsafe fn run(
        &self,
        operands: [CUdeviceptr; 2],
        arguments: &[Argument],
        stream: CUstream,
    ) -> Result<()> {
        let blocks = |extent: usize| extent.div_ceil(TILE) as u32;
        let grid = [blocks(self.gemm.n) * blocks(self.gemm.m), 1, 1];
        let Gemm { m, n, k, a, b, .. } = self.gemm;
        let extents = [m, n, k, a[0], a[1], b[0], b[1], 0].map(|extent| extent as i64);
        let [left, right] = operands.map(Argument::Address);
        let mut all = vec![left, right, Argument::Extents(extents)];
        all.extend_from_slice(arguments);
        // SAFETY: the kernel takes two addresses, the extents and the epilogue's arguments, and stays within the matrices
        // that the caller vouches for.
        unsafe { self.function.launch(stream, grid, THREADS, self.shared, &all) }
    }
}

/// The kernel of a product, and its shared memory in bytes.
fn source(gemm: &Gemm, epilogue: &str) -> (String, u32) {
    // Few kinds of kernels do for all products.
    let passes = gemm.k.div_ceil(MOST_DEPTH).max(1);
    let depth = gemm.k.div_ceil(passes).next_multiple_of(4 * GROUPS).max(4 * GROUPS);
    let pitch = depth + 4;
    let Gemm { m, n, k, a, b, alignment, .. } = *gemm;
    // Of a single column, its rows' distance is all there is.
    let [a_along, b_along] = [a[1] == 1 || k == 1, b[1] == 1 || n == 1];
    // Along what is next to each other in memory, and to the next row or column of it.
    let [a_extents, b_extents] =
        [if a_along { [k, a[0]] } else { [m, a[1]] }, if b_along { [n, b[0]] } else { [k, b[1]] }];
    let pack = |extents: [usize; 2], alignment: u64| {
        let whole = extents.iter().all(|extent| extent.is_multiple_of(PACK));
        if whole && alignment.is_multiple_of((PACK * size_of::<f32>()) as u64) { PACK } else { 1 }
    };
    let constants = [
        ("A_ALONG", usize::from(a_along)),
        ("B_ALONG", usize::from(b_along)),
        ("A_PACK", pack(a_extents, alignment[0])),
        ("B_PACK", pack(b_extents, alignment[1])),
        ("DEPTH", depth),
        ("PITCH", pitch),
    ];
    let constants: String =
        constants.iter().map(|(name, value)| format!("constexpr int {name} = {value};\n")).collect();
    let shared = (2 * TILE * pitch).max(GROUPS * TILE * TILE) * size_of::<f32>();
    (format!("{PRELUDE}\n{epilogue}{constants}{TEXT}"), shared as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::loops::{Epilogue, element_epilogue};
    use crate::routine::PointerTo;
    use plimsoll_graph::Shape;
    use plimsoll_graph::op::{Binary, Unary};
    use plimsoll_graph::program::{BufferId, Instruction, Level, Loop, Operand, Scalar, View};

    fn gemm(m: usize, n: usize, k: usize) -> Gemm {
        Gemm::dense(m, n, k, DType::F32)
    }

    #[test]
    fn small_products_of_whole_precision_are_taken() {
        assert!(SmallGemm::suits(&gemm(256, 100, 784), false));
        assert!(!SmallGemm::suits(&gemm(256, 100, 784), true), "rounded operands are the library's");
        assert!(!SmallGemm::suits(&gemm(1024, 1024, 1024), false), "too large");
        assert!(!SmallGemm::suits(&Gemm { dtype: DType::BF16, ..gemm(16, 16, 16) }, false));
        assert!(!SmallGemm::suits(&Gemm { accumulate: true, ..gemm(16, 16, 16) }, false));
        assert!(!SmallGemm::suits(&Gemm { c: [24, 0], ..gemm(16, 16, 16) }, false), "rows with gaps");
    }

    #[test]
    fn shared_memory_holds_the_operands_and_then_the_groups_sums() {
        assert_eq!(source(&gemm(256, 100, 784), PLAIN).1, 4 * 2 * 16 * (448 + 4));
        assert_eq!(source(&gemm(256, 10, 5), PLAIN).1, 4 * 16 * 256, "the sums need more");
    }

    #[test]
    fn four_elements_are_read_at_once_where_all_of_them_are_aligned() {
        let of = |gemm: Gemm| {
            let (source, _) = source(&gemm, PLAIN);
            ["A_PACK = 4;", "B_PACK = 4;"].map(|text| source.contains(text))
        };
        assert_eq!(of(gemm(256, 100, 784)), [true, true]);
        assert_eq!(of(gemm(255, 10, 100)), [true, false], "columns of ten");
        assert_eq!(of(Gemm { a: [1, 256, 0], ..gemm(256, 100, 7) }), [true, true], "a lies by columns");
        assert_eq!(of(Gemm { b: [1, 9, 0], ..gemm(16, 8, 8) }), [true, false], "columns nine apart");
        assert_eq!(of(Gemm { alignment: [256, 8, 256], ..gemm(16, 8, 8) }), [true, false]);
    }

    #[test]
    fn a_single_column_is_read_by_the_distance_of_its_rows() {
        let of = |gemm: Gemm| {
            let (source, _) = source(&gemm, PLAIN);
            ["A_ALONG = 1;", "B_ALONG = 1;"].map(|text| source.contains(text))
        };
        assert_eq!(of(Gemm { a: [5, 3, 0], ..gemm(16, 8, 1) }), [true, true]);
        assert_eq!(of(Gemm { b: [5, 3, 0], c: [1, 0], ..gemm(16, 1, 8) }), [true, true]);
        assert_eq!(of(Gemm { a: [1, 16, 0], b: [1, 8, 0], ..gemm(16, 8, 8) }), [false, false]);
    }

    #[test]
    fn products_of_other_batches_are_compiled_once() {
        let sources = [100, 250, 256].map(|rows| source(&gemm(rows, 100, 784), PLAIN));
        assert!(sources.iter().all(|source| *source == sources[0]));
    }

    #[test]
    fn a_bias_and_an_activation_are_an_epilogue_of_the_kernel() {
        let domain = Shape::new(&[256, 100]).expect("a small shape");
        let element = |scalar| Instruction { scalar, dtype: DType::F32, level: Level::Element };
        let instructions = [
            Scalar::Load { read: 0 },
            Scalar::Load { read: 1 },
            Scalar::Binary(Binary::Add, 0, 1),
            Scalar::Unary(Unary::Relu, 2),
        ];
        let instructions = instructions.map(element).to_vec();
        let body = Loop { domain, row_axes: 0, instructions, stores: vec![3] };
        let dense = View::dense(domain);
        let mut bias = dense;
        bias.strides[0] = 0;
        let operand = |view| Operand { buffer: BufferId(0), dtype: DType::F32, view };
        let epilogue = element_epilogue(&body, &[operand(dense), operand(bias)], &[operand(dense)]);
        let Epilogue { text, arguments } = epilogue.expect("functions that there are").expect("it follows");
        assert_eq!(arguments, [PointerTo::Read(1), PointerTo::Write(0)]);
        let (source, _) = source(&gemm(256, 100, 784), &text);
        assert!(source.contains("#define PARAMETERS const float *in1, float *out0\n"), "{text}");
        assert!(source.contains("follow(own - at, at, ARGUMENTS);"));
        assert!(source.contains("in1[(at % 100u)]"), "{text}");
    }
}

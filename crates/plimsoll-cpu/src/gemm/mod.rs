//! Matrix products in memory that the caller provides.
//!
//! Every layer's time is in here, and so is the memory that other libraries hide: packed copies of operands. This
//! one declares them as workspace, takes them from the caller, and gives the same bits on any number of threads.
//! Its operands need not be matrices in memory: anything that can be copied into panels will do, which is how
//! convolutions use it.

mod blocking;
mod kernel;
mod pack;
mod parts;
mod product;
#[cfg(test)]
mod tests;

use crate::numbers::{Element, Float};
use crate::runtime::Pool;
use crate::simd::Isa;
use blocking::Order;
pub(crate) use blocking::{EPILOGUE_COLUMNS, EPILOGUE_ELEMENTS, Shape, epilogue_pitch};
pub(crate) use kernel::{MAX_ROWS, Tile, max_rows};
pub(crate) use pack::{
    BatchStrides, Layout, Left, PackLeft, PackRight, Right, Strided, copy, pack_transposed, row_pitch,
};
pub(crate) use parts::{DepthSum, gemm_rows, gemm_rows_workspace};
pub use product::WORKSPACE_ALIGN;
pub(crate) use product::{
    Epilogue, Product, StridedMut, Target, ToEpilogue, cut, epilogue_workspace, workspace,
};

/// A batch of matrices to read, with all distances in elements. Transposed, broadcast and reversed matrices are
/// matters of strides.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<T> {
    /// The address of the first element of the first matrix.
    pub start: *const T,
    /// The distance from one row to the next.
    pub row_stride: isize,
    /// The distance from one column to the next.
    pub column_stride: isize,
    /// The distances from one matrix to the next in the outer and the inner batch dimension.
    pub batch_strides: [isize; 2],
}

/// A batch of matrices to write, with all distances in elements. The elements of a row follow each other.
#[derive(Clone, Copy, Debug)]
pub struct MatrixMut<T> {
    /// The address of the first element of the first matrix.
    pub start: *mut T,
    /// The distance from one row to the next.
    pub row_stride: isize,
    /// The distances from one matrix to the next in the outer and the inner batch dimension.
    pub batch_strides: [isize; 2],
}

/// A batch of products `c = alpha * a · b` or `c += alpha * a · b`, of `m × k` by `k × n`.
///
/// Sums are kept in [`Acc`](Element::Acc) over the whole of `k` and rounded to `T` once. How they are
/// ordered depends on the sizes alone, so results do not depend on the number of threads.
#[derive(Clone, Copy, Debug)]
pub struct Gemm<T: Element> {
    /// The matrices in the outer and the inner batch dimension.
    pub batch: [usize; 2],
    /// The rows of `a` and `c`.
    pub m: usize,
    /// The columns of `b` and `c`.
    pub n: usize,
    /// The columns of `a` and the rows of `b`.
    pub k: usize,
    /// The factor of every product.
    pub alpha: T::Acc,
    /// The left operands.
    pub a: Matrix<T>,
    /// The right operands.
    pub b: Matrix<T>,
    /// The results.
    pub c: MatrixMut<T>,
    /// Whether to add to `c` or to replace it.
    pub accumulate: bool,
}

/// The most rows of a product that may be computed as the columns of its transpose.
pub(crate) const NARROW: usize = 32;

/// The bytes of workspace that [`gemm`] needs for `batch` products of `m × k` by `k × n` on a pool of `threads`.
/// The same on every machine.
pub fn gemm_workspace<T: Element<Acc: Float>>(
    batch: usize,
    m: usize,
    n: usize,
    k: usize,
    threads: usize,
) -> usize {
    part_workspace::<T>(Shape { batch, m, n, k }, m, threads)
}

/// [`gemm_workspace`] for rows of products that have `whole` rows in all.
fn part_workspace<T: Element<Acc: Float>>(shape: Shape, whole: usize, threads: usize) -> usize {
    let Shape { batch, m, n, k } = shape;
    let bytes = |shape: Shape, whole: Shape, in_rows: bool| {
        product::workspace_in::<T>(Order::of(whole, size_of::<T::Acc>()), shape, in_rows, threads)
    };
    let straight = bytes(shape, Shape { m: whole, ..shape }, true);
    let (transposed, whole) = (Shape { batch, m: n, n: m, k }, Shape { batch, m: n, n: whole, k });
    if n == 1 {
        straight.max(bytes(transposed, whole, true)).max(bytes(transposed, whole, false))
    } else if m <= NARROW {
        straight.max(bytes(transposed, whole, false))
    } else {
        straight
    }
}

/// Computes a batch of products.
///
/// # Panics
///
/// When `workspace` is smaller than [`gemm_workspace`] says, or not aligned to [`WORKSPACE_ALIGN`].
///
/// # Safety
///
/// Every element that the sizes and strides of `args` reach is valid memory: `a` and `b` initialised and not
/// written meanwhile, `c` written by nobody else, and initialised if it is accumulated to. No element of `c` is
/// reached twice, and `c` overlaps neither the operands nor `workspace`.
pub unsafe fn gemm<T: Element<Acc: Float>>(pool: &Pool, args: &Gemm<T>, workspace: &mut [u8]) {
    // SAFETY: the contract is the same.
    unsafe { gemm_on(Isa::detect(), pool, args, workspace) }
}

/// [`gemm`] on an instruction set that was chosen before.
///
/// # Panics
///
/// As [`gemm`], and when the machine does not have the instruction set.
///
/// # Safety
///
/// As for [`gemm`].
pub(crate) unsafe fn gemm_on<T: Element<Acc: Float>>(
    isa: Isa,
    pool: &Pool,
    args: &Gemm<T>,
    workspace: &mut [u8],
) {
    // SAFETY: the contract is the same.
    unsafe { gemm_part(isa, pool, args, args.m, workspace) }
}

/// The bytes of workspace that [`gemm_with_epilogue`] needs.
pub(crate) fn gemm_epilogue_workspace<T: Element<Acc: Float>>(
    m: usize,
    n: usize,
    k: usize,
    threads: usize,
) -> usize {
    epilogue_workspace::<T>(Shape { batch: 1, m, n, k }, threads)
}

/// Computes one product of more than one row over some depth into an epilogue, to the bits that [`gemm`] gives it.
///
/// # Safety
///
/// As for [`gemm`], with the workspace that [`gemm_epilogue_workspace`] says.
pub(crate) unsafe fn gemm_with_epilogue<T: Element<Acc: Float>>(
    pool: &Pool,
    [m, n, k]: [usize; 3],
    a: Matrix<T>,
    b: Matrix<T>,
    epilogue: &dyn Epilogue,
    workspace: &mut [u8],
) {
    let batch = BatchStrides { inner: 1, strides: [0; 2] };
    let rows = Strided { start: a.start, lead_stride: a.row_stride, depth_stride: a.column_stride, batch };
    let columns = Strided { start: b.start, lead_stride: b.column_stride, depth_stride: b.row_stride, batch };
    let product = Product::<T> {
        shape: Shape { batch: 1, m, n, k },
        a: &rows,
        b: &columns,
        target: &ToEpilogue(epilogue),
        alpha: T::Acc::ONE,
        accumulate: false,
    };
    // SAFETY: the caller vouches for the operands.
    unsafe { product.run(pool, Isa::detect(), workspace) }
}

/// Computes rows of products that have `whole` rows in all, to the bits that they have there.
///
/// # Safety
///
/// As for [`gemm`], with the workspace that [`part_workspace`] says.
unsafe fn gemm_part<T: Element<Acc: Float>>(
    isa: Isa,
    pool: &Pool,
    args: &Gemm<T>,
    whole: usize,
    workspace: &mut [u8],
) {
    let Gemm { batch, m, n, k, alpha, a, b, c, accumulate } = *args;
    let strides = |strides| BatchStrides { inner: batch[1].max(1), strides };
    let rows = Strided {
        start: a.start,
        lead_stride: a.row_stride,
        depth_stride: a.column_stride,
        batch: strides(a.batch_strides),
    };
    let columns = Strided {
        start: b.start,
        lead_stride: b.column_stride,
        depth_stride: b.row_stride,
        batch: strides(b.batch_strides),
    };
    let batch = batch[0] * batch[1];
    let target = StridedMut {
        start: c.start,
        row_stride: c.row_stride,
        column_stride: 1,
        batch: strides(c.batch_strides),
    };
    // A column is a row of the transposed product, which fills its vectors. And in the transposed product, right
    // operands along the depth need no packing.
    let along_depth = T::IS_ACC && b.row_stride == 1 && b.column_stride != 1;
    let (shape, whole, a, b, target) = if n == 1 || along_depth && (2..=NARROW).contains(&m) {
        let target = StridedMut { row_stride: 1, column_stride: c.row_stride, ..target };
        (Shape { batch, m: n, n: m, k }, Shape { batch, m: n, n: whole, k }, columns, rows, target)
    } else {
        (Shape { batch, m, n, k }, Shape { batch, m: whole, n, k }, rows, columns, target)
    };
    let order = Order::of(whole, size_of::<T::Acc>());
    let product = Product { shape, a: &a, b: &b, target: &target, alpha, accumulate };
    // SAFETY: the caller vouches for the operands and the result.
    unsafe { product.run_in(order, pool, isa, workspace) }
}

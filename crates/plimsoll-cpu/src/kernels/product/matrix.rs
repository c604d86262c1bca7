//! Products of matrices inside kernels.
//!
//! A kernel that multiplies in the middle of other work does it here: on the pool's threads between its own
//! phases, or on the calling thread alone within a task. Operands and results may differ in their element type as
//! long as they are summed in the same one, so that intermediate results need not be rounded.

use crate::gemm::{self, BatchStrides, Gemm, Left, MatrixMut, Product, Right, Strided, StridedMut};
use crate::kernels::memory::*;
use crate::numbers::{Element, Float};
use crate::runtime::ALIGNMENT;
use crate::runtime::Pool;
use crate::simd::Isa;
use std::sync::LazyLock;

/// The pool of the calling thread alone.
pub(crate) fn alone() -> &'static Pool {
    static ALONE: LazyLock<Pool> =
        LazyLock::new(|| Pool::new(1).expect("a pool of the calling thread starts no other"));
    &ALONE
}

/// A matrix in memory, with the distances between its rows and between its columns in elements.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<T> {
    pub(crate) start: Address<T>,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

impl<T: Copy> Matrix<T> {
    /// A matrix whose rows are contiguous and `stride` apart.
    pub(crate) fn new(start: Address<T>, stride: usize) -> Self {
        Self { start, rows: stride, columns: 1 }
    }

    /// Rows and columns exchanged.
    pub(crate) fn transposed(self) -> Self {
        Self { start: self.start, rows: self.columns, columns: self.rows }
    }

    /// The matrix from another element on.
    pub(crate) fn at(self, row: usize, column: usize) -> Self {
        Self { start: self.start.at(row * self.rows + column * self.columns), ..self }
    }
}

/// The size of a product of `m × k` by `k × n`.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
}

impl Size {
    fn shape(self) -> gemm::Shape {
        gemm::Shape { batch: 1, m: self.m, n: self.n, k: self.k }
    }

    /// The workspace of a product into elements `T` on that many threads, in bytes.
    pub(crate) fn workspace<T: Element<Acc: Float>>(self, threads: usize) -> usize {
        let Size { m, n, k } = self;
        gemm::gemm_workspace::<T>(1, m, n, k, threads).next_multiple_of(ALIGNMENT)
    }
}

/// Where and how a product is computed.
#[derive(Clone, Copy)]
pub(crate) struct Multiply<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) isa: Isa,
    pub(crate) workspace: Address<u8>,
}

impl Multiply<'_> {
    /// `c = alpha a · b`, or `c += alpha a · b`. The columns of `c` must be contiguous.
    ///
    /// # Safety
    /// The matrices must be valid for the size, `c` overlap nothing else, and the workspace be valid for
    /// [`Size::workspace`].
    pub(crate) unsafe fn run<A, B, C>(
        self,
        size: Size,
        alpha: C::Acc,
        a: Matrix<A>,
        b: Matrix<B>,
        c: Matrix<C>,
        accumulate: bool,
    ) where
        A: Element<Acc = C::Acc>,
        B: Element<Acc = C::Acc>,
        C: Element<Acc: Float>,
    {
        if !(A::IS_ACC && B::IS_ACC && C::IS_ACC) {
            // SAFETY: the contract is the same.
            return unsafe { self.run_packed(size, alpha, &a.left(), &b.right(), c, accumulate) };
        }
        let Size { m, n, k } = size;
        let c =
            MatrixMut { start: c.start.pointer().cast(), row_stride: c.rows as isize, batch_strides: [0; 2] };
        let args =
            Gemm::<C::Acc> { batch: [1; 2], m, n, k, alpha, a: a.operand(), b: b.operand(), c, accumulate };
        // SAFETY: all three are memory of `C::Acc`, and the caller vouches for it and for the workspace.
        unsafe { gemm::gemm_on(self.isa, self.pool, &args, self.scratch::<C>(size)) };
    }

    /// The same for operands that need not be matrices in memory.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    pub(crate) unsafe fn run_packed<C: Element<Acc: Float>>(
        self,
        size: Size,
        alpha: C::Acc,
        a: &dyn Left<C::Acc>,
        b: &dyn Right<C::Acc>,
        c: Matrix<C>,
        accumulate: bool,
    ) {
        let (start, row_stride) = (c.start.pointer(), c.rows as isize);
        let target = StridedMut { start, row_stride, column_stride: 1, batch: SINGLE };
        let product = Product::<C> { shape: size.shape(), a, b, target: &target, alpha, accumulate };
        // SAFETY: the caller vouches for the operands and the workspace.
        unsafe { product.run(self.pool, self.isa, self.scratch::<C>(size)) };
    }

    /// The workspace of a product into `C`.
    unsafe fn scratch<'a, C: Element<Acc: Float>>(self, size: Size) -> &'a mut [u8] {
        // SAFETY: the caller vouches for the workspace.
        unsafe { self.workspace.slice_mut(size.workspace::<C>(self.pool.threads())) }
    }
}

/// The strides of a batch of one.
const SINGLE: BatchStrides = BatchStrides { inner: 1, strides: [0; 2] };

impl<T: Copy> Matrix<T> {
    /// The matrix as the left operand of a product.
    pub(crate) fn left(self) -> Strided<T> {
        let start = self.start.pointer().cast_const();
        Strided { start, lead_stride: self.rows as isize, depth_stride: self.columns as isize, batch: SINGLE }
    }

    /// The matrix as an operand of a plain product in its accumulator type, which its elements must be of.
    fn operand<S>(self) -> gemm::Matrix<S> {
        gemm::Matrix {
            start: self.start.pointer().cast_const().cast(),
            row_stride: self.rows as isize,
            column_stride: self.columns as isize,
            batch_strides: [0; 2],
        }
    }

    /// The matrix as the right operand of a product.
    pub(crate) fn right(self) -> Strided<T> {
        self.transposed().left()
    }
}

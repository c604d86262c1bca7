//! Matrix products: views of any strides (`dot`) as batches of plain products, each by whichever way measured fastest:
//! cuBLASLt's (`cublaslt_gemm`), our own for small ones (`small_gemm`), or our own for Hopper GPUs (`hopper`).

pub(crate) mod autotune;
pub(crate) mod blas;
pub(crate) mod cublaslt_gemm;
pub(crate) mod dot;
pub(crate) mod gather_strided;
mod gemm_or_zeros;
pub(crate) mod hopper;
mod shape;
pub(crate) mod small_gemm;

pub(crate) use gemm_or_zeros::GemmOrZeros;
pub(crate) use shape::Gemm;

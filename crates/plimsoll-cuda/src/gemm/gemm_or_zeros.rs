//! Products of which any extent may be zero.
//!
//! The library takes no empty matrices. A product of no depth is zeros, and one without rows or columns is nothing.

use crate::codegen::engine::Engine;
use crate::error::Result;
use crate::gemm::Gemm;
use crate::gemm::cublaslt_gemm::CublasLtGemm;
use cudarc::driver::sys::{CUdeviceptr, CUstream};
use std::sync::Arc;

/// A product by the library, or the zeros it is where there is nothing to multiply.
pub(crate) struct GemmOrZeros {
    engine: Arc<Engine>,
    product: Option<CublasLtGemm>,
    /// The bytes of the result that are zero where there is no product.
    zeros: u64,
}

impl GemmOrZeros {
    /// # Errors
    /// If the library is missing, or cannot compute it.
    pub(crate) fn new(engine: &Arc<Engine>, gemm: &Gemm) -> Result<GemmOrZeros> {
        let some = gemm.m > 0 && gemm.n > 0 && gemm.k > 0;
        let product = some.then(|| CublasLtGemm::new(engine, gemm)).transpose()?;
        Ok(GemmOrZeros { engine: engine.clone(), product, zeros: zeros(gemm) })
    }

    /// The scratch bytes a run needs, at an address aligned to 256.
    pub(crate) fn workspace(&self) -> u64 {
        self.product.as_ref().map_or(0, CublasLtGemm::workspace)
    }

    /// Enqueues the product of the matrices at the first two addresses, with the device's context current.
    ///
    /// # Safety
    /// The addresses must be those of matrices as they were described, and of workspace, valid when it runs; the last row
    /// of the result must have as many elements as the others are apart.
    pub(crate) unsafe fn run(
        &self,
        matrices: [CUdeviceptr; 3],
        workspace: CUdeviceptr,
        stream: CUstream,
    ) -> Result<()> {
        // SAFETY: the caller vouches for the addresses.
        unsafe {
            match &self.product {
                Some(product) => product.run(matrices, workspace, stream),
                None => self.engine.zero(matrices[2], self.zeros, stream),
            }
        }
    }
}

/// The bytes of a result of no depth, rows with what lies between them; none where it is added to what is there.
fn zeros(gemm: &Gemm) -> u64 {
    let Gemm { m, n, k, c, result, accumulate, .. } = *gemm;
    if m > 0 && n > 0 && k == 0 && !accumulate { (m * c[0] * result.size()) as u64 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_graph::DType;

    #[test]
    fn a_product_of_no_depth_is_zeros_unless_it_is_added() {
        let gemm = |m, n, k| Gemm::dense(m, n, k, DType::BF16);
        assert_eq!(zeros(&gemm(3, 5, 0)), 3 * 5 * 2);
        assert_eq!(zeros(&Gemm { c: [8, 0], ..gemm(3, 5, 0) }), 3 * 8 * 2, "rows with gaps");
        assert_eq!(zeros(&Gemm { result: DType::F32, ..gemm(3, 5, 0) }), 3 * 5 * 4);
        assert_eq!(zeros(&Gemm { accumulate: true, ..gemm(3, 5, 0) }), 0);
        assert_eq!([zeros(&gemm(0, 5, 0)), zeros(&gemm(3, 0, 0)), zeros(&gemm(3, 5, 7))], [0; 3]);
    }
}

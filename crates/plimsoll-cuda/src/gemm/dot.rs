//! Matrix products of views.
//!
//! Transposed, permuted and broadcast operands are a matter of strides. What remains is to map a batch over any number of
//! axes to the one batch axis that the library has: axes that are contiguous in all operands are collapsed, a batch of
//! rows against one matrix is a longer matrix, the longest axis that is left is the batch, and the rest are loops. An operand
//! whose strides the library cannot express is gathered into workspace first.

use crate::codegen::engine::Engine;
use crate::codegen::function::Argument;
use crate::codegen::loops::{Epilogue, element_epilogue, tile_epilogue};
use crate::conv;
use crate::error::Result;
use crate::gemm::Gemm;
use crate::gemm::cublaslt_gemm::{CublasLtGemm, MatrixLayout};
use crate::gemm::gather_strided::{GatherStrided, ViewAxis};
use crate::gemm::hopper::HopperGemm;
use crate::gemm::small_gemm::SmallGemm;
use crate::routine::{ALIGNMENT, Call, PointerTo, Routine};
use cudarc::driver::sys::{CUdeviceptr, CUstream};
use plimsoll_graph::DType;
use plimsoll_graph::products::{BatchAxis, Products};
use plimsoll_graph::program::{Loop, Operand, WithEpilogue};
use std::sync::Arc;

/// Prepares `Op::Dot`. Operands may be strided views.
pub(crate) fn prepare(
    engine: &Arc<Engine>,
    transpose_a: bool,
    transpose_b: bool,
    reads: &[Operand],
) -> Result<Box<dyn Routine>> {
    let products = Products::new(transpose_a, transpose_b, &reads[0], &reads[1]);
    Ok(Box::new(Dot::new(engine, products, reads[0].dtype)?))
}

/// Prepares `Op::Dot` with its epilogue as one kernel, if there is one: the product is computed by a kernel of our own, and
/// that can take the epilogue in. Reads are the product's, and then the epilogue's from its second on.
pub(crate) fn prepare_with_epilogue(
    engine: &Arc<Engine>,
    transpose_a: bool,
    transpose_b: bool,
    fused: &WithEpilogue,
    reads: &[Operand],
    writes: &[Operand],
) -> Result<Option<Box<dyn Routine>>> {
    let products = Products::new(transpose_a, transpose_b, &reads[0], &reads[1]);
    let dot = Dot::new(engine, products, reads[0].dtype)?;
    let Some(GemmKernel::Own(own)) = &dot.product else { return Ok(None) };
    if !dot.products.axes.is_empty() {
        return Ok(None);
    }
    let Some((product, arguments)) = own.with_epilogue(&fused.body, &fused.loop_reads(reads), writes)? else {
        return Ok(None);
    };
    Ok(Some(Box::new(DotWithEpilogue { dot, product, operands: fused.operands, arguments })))
}

/// Whether there is nothing to compute.
fn is_empty(products: &Products) -> bool {
    products.m == 0 || products.n == 0 || products.axes.iter().any(|axis| axis.count == 0)
}

/// Makes an operand a dense copy; returns the axes of the view that is copied, the innermost last. An axis along which it
/// is broadcast is not copied.
fn pack(products: &mut Products, operand: usize) -> Vec<ViewAxis> {
    let (rows, columns, place) = match operand {
        0 => (products.m, products.k, &mut products.a),
        _ => (products.k, products.n, &mut products.b),
    };
    let mut axes = vec![(columns, place[2]), (rows, place[1])];
    *place = [0, columns, 1];
    let mut step = rows * columns;
    for axis in &mut products.axes {
        if axis.steps[operand] != 0 {
            axes.push((axis.count, axis.steps[operand]));
            axis.steps[operand] = step;
            step *= axis.count;
        }
    }
    axes.reverse();
    axes
}

/// What multiplies matrices.
enum GemmKernel {
    Library(CublasLtGemm),
    Own(OwnGemm),
    /// Of few rows or columns and much depth.
    Thin(Box<dyn Routine>),
}

/// Kernels of our own, which take epilogues in.
enum OwnGemm {
    Small(SmallGemm),
    Hopper(HopperGemm),
}

impl OwnGemm {
    /// The same product with an epilogue, and the arguments that takes; none if the kernel cannot take it in.
    fn with_epilogue(
        &self,
        body: &Loop,
        reads: &[Operand],
        writes: &[Operand],
    ) -> Result<Option<(OwnGemm, Vec<PointerTo>)>> {
        Ok(match self {
            OwnGemm::Small(product) => match element_epilogue(body, reads, writes)? {
                Some(Epilogue { text, arguments }) => {
                    Some((OwnGemm::Small(product.with_epilogue(&text)?), arguments))
                }
                None => None,
            },
            OwnGemm::Hopper(product) => match tile_epilogue(body, reads, writes)? {
                Some(Epilogue { text, arguments }) => {
                    product.with_epilogue(&text)?.map(|product| (OwnGemm::Hopper(product), arguments))
                }
                None => None,
            },
        })
    }

    /// # Safety
    /// The addresses must be those of matrices as they were described, and the arguments those of the epilogue (without
    /// one, the result's address), valid when it runs.
    unsafe fn run(&self, operands: [CUdeviceptr; 2], arguments: &[Argument], stream: CUstream) -> Result<()> {
        match self {
            // SAFETY: as the caller vouches.
            OwnGemm::Small(product) => unsafe { product.run(operands, arguments, stream) },
            // SAFETY: as the caller vouches.
            OwnGemm::Hopper(product) => unsafe { product.run(operands, arguments, stream) },
        }
    }
}

impl GemmKernel {
    fn new(engine: &Arc<Engine>, gemm: &Gemm) -> Result<GemmKernel> {
        if SmallGemm::suits(gemm, engine.tf32()) {
            return Ok(GemmKernel::Own(OwnGemm::Small(SmallGemm::new(engine, gemm)?)));
        }
        if let Some(thin) = conv::thin_product(engine, gemm)? {
            return Ok(GemmKernel::Thin(thin));
        }
        let library = CublasLtGemm::new(engine, gemm)?;
        let own = HopperGemm::instead_of(&library, engine, gemm)?;
        Ok(own.map_or(GemmKernel::Library(library), |own| GemmKernel::Own(OwnGemm::Hopper(own))))
    }

    fn workspace(&self) -> u64 {
        match self {
            GemmKernel::Library(product) => product.workspace(),
            GemmKernel::Own(_) => 0,
            GemmKernel::Thin(product) => product.workspace(),
        }
    }

    /// # Safety
    /// The addresses must be those of matrices as they were described, and of workspace, valid when it runs.
    unsafe fn run(
        &self,
        addresses: [CUdeviceptr; 3],
        workspace: CUdeviceptr,
        stream: CUstream,
    ) -> Result<()> {
        match self {
            // SAFETY: as the caller vouches.
            GemmKernel::Library(product) => unsafe { product.run(addresses, workspace, stream) },
            GemmKernel::Own(own) => {
                let [a, b, c] = addresses;
                // SAFETY: as the caller vouches.
                unsafe { own.run([a, b], &[Argument::Address(c)], stream) }
            }
            GemmKernel::Thin(product) => {
                let [a, b, c] = addresses;
                // SAFETY: as the caller vouches, of dense matrices.
                unsafe { product.run(&Call { reads: &[a, b], writes: &[c], workspace, stream }) }
            }
        }
    }
}

struct Dot {
    products: Products,
    /// The bytes of an element.
    size: usize,
    product: Option<GemmKernel>,
    /// The axis that is batched, which is not looped over.
    batched: Option<usize>,
    /// For a and b: the gather, the offset of what it reads, and where in the workspace it writes.
    packs: [Option<(GatherStrided, usize, u64)>; 2],
    workspace: u64,
    /// What enqueues zeros, where there is nothing to add up.
    engine: Arc<Engine>,
}

impl Dot {
    fn new(engine: &Arc<Engine>, mut products: Products, dtype: DType) -> Result<Dot> {
        let size = dtype.size();
        let (mut packs, mut end) = ([None, None], 0);
        if is_empty(&products) || products.k == 0 {
            return Ok(Dot {
                products,
                size,
                product: None,
                batched: None,
                packs,
                workspace: 0,
                engine: engine.clone(),
            });
        }
        for (operand, gather) in packs.iter_mut().enumerate() {
            let (rows, columns, [offset, row, column]) = match operand {
                0 => (products.m, products.k, products.a),
                _ => (products.k, products.n, products.b),
            };
            if MatrixLayout::of(rows, columns, [row, column, 0]).is_some() {
                continue;
            }
            let axes = pack(&mut products, operand);
            let bytes = axes.iter().map(|axis| axis.0).product::<usize>() * size;
            *gather = Some((GatherStrided::new(engine, size, &axes)?, offset, end));
            end = (end + bytes as u64).next_multiple_of(ALIGNMENT);
        }
        let longest = (0..products.axes.len()).max_by_key(|&axis| products.axes[axis].count);
        let (batch, steps) =
            longest.map_or((1, [0; 3]), |i| (products.axes[i].count, products.axes[i].steps));
        let Products { m, n, k, a, b, .. } = products;
        // The alignment of every address of an operand, from its offset and the strides of the axes that are looped over.
        let looped = products.axes.iter().enumerate().filter(|(i, _)| Some(*i) != longest);
        let looped: Vec<BatchAxis> = looped.map(|(_, axis)| *axis).collect();
        let alignment = [a[0], b[0], 0].into_iter().enumerate().map(|(operand, offset)| {
            let places = looped.iter().map(|axis| axis.steps[operand]).chain([offset]);
            places.fold(ALIGNMENT, |least, place| least.min(aligned((place * size) as u64)))
        });
        let alignment: Vec<u64> = alignment.collect();
        let gemm = Gemm {
            m,
            n,
            k,
            batch,
            a: [a[1], a[2], steps[0]],
            b: [b[1], b[2], steps[1]],
            c: [n, steps[2]],
            dtype,
            result: dtype,
            accumulate: false,
            alignment: [alignment[0], alignment[1], alignment[2]],
        };
        let product = GemmKernel::new(engine, &gemm)?;
        let workspace = end + product.workspace();
        let product = Some(product);
        Ok(Dot { products, size, product, batched: longest, packs, workspace, engine: engine.clone() })
    }
}

impl Dot {
    /// Where the operands' first matrices are, once those that the library cannot take have been gathered.
    ///
    /// # Safety
    /// As for [`Routine::run`], of what is read and the workspace.
    unsafe fn operands(
        &self,
        reads: &[CUdeviceptr],
        workspace: CUdeviceptr,
        stream: CUstream,
    ) -> Result<[CUdeviceptr; 2]> {
        let mut starts = [reads[0], reads[1]];
        let offsets = [self.products.a[0], self.products.b[0]];
        for (operand, offset) in offsets.into_iter().enumerate() {
            starts[operand] += (offset * self.size) as u64;
        }
        for (operand, pack) in self.packs.iter().enumerate() {
            let Some((pack, offset, place)) = pack else { continue };
            let from = reads[operand] + (offset * self.size) as u64;
            starts[operand] = workspace + place;
            // SAFETY: the view is within its buffer, and the copy is within the workspace.
            unsafe { pack.run(from, starts[operand], stream) }?;
        }
        Ok(starts)
    }
}

/// The largest power of two that divides an offset, up to the alignment of buffers.
fn aligned(offset: u64) -> u64 {
    if offset == 0 { ALIGNMENT } else { (1 << offset.trailing_zeros().min(63)).min(ALIGNMENT) }
}

impl Routine for Dot {
    fn workspace(&self) -> u64 {
        self.workspace
    }

    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let Products { m, n, axes, .. } = &self.products;
        let Some(product) = &self.product else {
            let bytes = axes.iter().map(|axis| axis.count).product::<usize>() * m * n * self.size;
            // SAFETY: the result has so many bytes.
            return unsafe { self.engine.zero(call.writes[0], bytes as u64, call.stream) };
        };
        // SAFETY: as the caller vouches.
        let [a, b] = unsafe { self.operands(call.reads, call.workspace, call.stream) }?;
        let starts = [a, b, call.writes[0]];
        // Gathered operands come first in the workspace.
        let scratch = call.workspace + (self.workspace - product.workspace());
        let looped =
            || axes.iter().enumerate().filter(|(i, _)| Some(*i) != self.batched).map(|(_, axis)| axis);
        for repeat in 0..looped().map(|axis| axis.count).product() {
            let (mut addresses, mut rest): (_, usize) = (starts, repeat);
            for axis in looped() {
                let index = rest % axis.count;
                rest /= axis.count;
                for (address, step) in addresses.iter_mut().zip(axis.steps) {
                    *address += (index * step * self.size) as u64;
                }
            }
            // SAFETY: the views are within their buffers, and the result is dense in its own.
            unsafe { product.run(addresses, scratch, call.stream) }?;
        }
        Ok(())
    }
}

/// A product with its epilogue, as one kernel.
struct DotWithEpilogue {
    dot: Dot,
    product: OwnGemm,
    /// How many of the reads are the product's.
    operands: usize,
    /// What the epilogue's arguments point to: its reads and writes.
    arguments: Vec<PointerTo>,
}

impl Routine for DotWithEpilogue {
    fn workspace(&self) -> u64 {
        self.dot.workspace
    }

    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        // SAFETY: as the caller vouches.
        let operands = unsafe { self.dot.operands(call.reads, call.workspace, call.stream) }?;
        // The epilogue's reads are those after the product's; its first is the product's result, which has no address.
        let of_epilogue = Call { reads: &call.reads[self.operands - 1..], ..*call };
        let address = |pointer: &PointerTo| Argument::Address(pointer.address(&of_epilogue));
        let arguments: Vec<Argument> = self.arguments.iter().map(address).collect();
        // SAFETY: the epilogue takes the addresses of these operands, for which the caller vouches as for the product's.
        unsafe { self.product.run(operands, &arguments, call.stream) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_graph::program::{BufferId, View};
    use plimsoll_graph::{MAX_RANK, Shape};

    fn operand(dims: &[usize], strides: &[usize]) -> Operand {
        let shape = Shape::new(dims).expect("a shape");
        let mut all = [0; MAX_RANK];
        all[..strides.len()].copy_from_slice(strides);
        Operand { buffer: BufferId(0), dtype: DType::F32, view: View { shape, offset: 0, strides: all } }
    }

    #[test]
    fn packing_copies_each_matrix_once_and_leaves_it_dense() {
        // Every other column of a, repeated over the outer axis.
        let a = operand(&[2, 3, 4, 5], &[0, 40, 10, 2]);
        let b = operand(&[2, 3, 5, 6], &[90, 30, 6, 1]);
        let mut products = Products::new(false, false, &a, &b);
        assert_eq!(pack(&mut products, 0), vec![(3, 40), (4, 10), (5, 2)]);
        assert_eq!(products.a, [0, 5, 1]);
        let steps: Vec<[usize; 3]> = products.axes.iter().map(|axis| axis.steps).collect();
        assert_eq!(steps, vec![[20, 30, 24], [0, 90, 72]]);
    }

    #[test]
    fn addresses_are_as_aligned_as_their_offsets() {
        assert_eq!([0, 2, 48, 256, 1 << 40].map(aligned), [256, 2, 16, 256, 256]);
    }
}

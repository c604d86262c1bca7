//! A projection to logits, their cross-entropy and all its gradients, some rows at a time.
//!
//! The logits exist for one chunk of rows: made in workspace, turned into losses and predictions and replaced by their
//! gradient in one launch, and used up for that of the operands. The weight's gradient is added up over the chunks in
//! the accumulator type and rounded once.
//!
//! Products of an odd number of classes are several times slower. So where the weight has a row for each class it is
//! copied once and padded with rows of zeros, whose logits and gradients are zeros and change nothing.

use super::cross_entropy::LossRows;
use super::reduce;
use super::stages::Stages;
use crate::codegen::engine::{Engine, Properties};
use crate::error::Result;
use crate::gemm::{Gemm, GemmOrZeros};
use crate::routine::{ALIGNMENT, Call, Routine};
use plimsoll_graph::DType;
use plimsoll_graph::program::Operand;
use std::sync::Arc;

/// What the rows of a chunk are a multiple of: rows of any width then begin at aligned addresses.
const CHUNK_STEP: usize = ALIGNMENT as usize;
/// What the distance between rows of logits is a multiple of, in elements: without that the tensor cores' kernels would
/// not take a vocabulary of an odd size.
const PITCH_STEP: usize = 64;
/// The bytes of logits up to which a chunk has more rows than it must: every chunk reads and writes the sums of the
/// weight's gradient.
const LARGE_CHUNK: usize = 256 << 20;

/// Prepares [`Op::ProjectedCrossEntropy`](plimsoll_graph::Op::ProjectedCrossEntropy), whose gradient of x may overwrite
/// x.
pub(crate) fn prepare(
    engine: &Arc<Engine>,
    transpose_weight: bool,
    chunk: usize,
    reads: &[Operand],
    _writes: &[Operand],
) -> Result<Box<dyn Routine>> {
    let layout = ChunkLayout::new(transpose_weight, chunk, reads);
    let chunks =
        layout.sizes().map(|rows| Chunk::prepare(engine, &layout, rows)).collect::<Result<Vec<_>>>()?;
    let products = chunks.iter().map(Chunk::workspace).max().unwrap_or(0);
    let round = layout.round()?.map(|stages| stages.prepare(engine)).transpose()?;
    Ok(Box::new(Projected { engine: engine.clone(), layout, chunks, round, products }))
}

/// All launches but those of products.
#[cfg(test)]
pub(super) fn own_stages(
    transpose_weight: bool,
    chunk: usize,
    reads: &[Operand],
    device: &Properties,
) -> Result<Vec<Stages>> {
    let layout = ChunkLayout::new(transpose_weight, chunk, reads);
    layout.sizes().map(|rows| layout.losses(rows, device)).chain(layout.round().transpose()).collect()
}

/// The extents, and where things are in the workspace.
#[derive(Debug, Clone, Copy)]
struct ChunkLayout {
    rows: usize,
    width: usize,
    classes: usize,
    /// The elements from one row of logits to the next.
    pitch: usize,
    dtype: DType,
    labels: DType,
    /// Whether the weight is `[classes, width]`.
    transposed: bool,
    /// The rows of every chunk but the last.
    chunk: usize,
}

impl ChunkLayout {
    fn new(transposed: bool, chunk: usize, reads: &[Operand]) -> Self {
        let (x, weight) = (reads[0].view.shape, reads[1].view.shape);
        let classes = weight[if transposed { 0 } else { 1 }];
        let pitch = classes.next_multiple_of(PITCH_STEP);
        let large = LARGE_CHUNK / (pitch * reads[0].dtype.size()).max(1);
        let large = if large > 0 { 1 << large.ilog2() } else { 1 };
        let chunk = chunk.max(large).checked_next_multiple_of(CHUNK_STEP).unwrap_or(x[0]).min(x[0]).max(1);
        Self {
            rows: x[0],
            width: x[1],
            classes,
            pitch,
            dtype: reads[0].dtype,
            labels: reads[2].dtype,
            transposed,
            chunk,
        }
    }

    /// The different sizes of chunks, in the order they come.
    fn sizes(&self) -> impl Iterator<Item = usize> + use<> {
        let rest = self.rows % self.chunk;
        [(self.rows >= self.chunk).then_some(self.chunk), (rest > 0).then_some(rest)].into_iter().flatten()
    }

    /// Whether the weight is copied to have rows of zeros after its own.
    fn padded(&self) -> bool {
        self.transposed && self.pitch != self.classes
    }

    /// The classes that logits are made for.
    fn made(&self) -> usize {
        if self.padded() { self.pitch } else { self.classes }
    }

    /// Where in the workspace the copy of the weight, the sums for its gradient and the products' own workspace are; the
    /// logits are at its beginning.
    fn places(&self) -> [u64; 3] {
        let aligned = |elements: usize, size: usize| ((elements * size) as u64).next_multiple_of(ALIGNMENT);
        let copy = aligned(self.chunk.min(self.rows) * self.pitch, self.dtype.size());
        let copied = if self.padded() { self.width * self.pitch } else { 0 };
        let sums = copy + aligned(copied, self.dtype.size());
        let apart = if self.sums_apart() { self.width * self.made() } else { 0 };
        [copy, sums, sums + aligned(apart, self.dtype.accumulator().size())]
    }

    /// Whether sums over chunks are kept in another type than the result's, and so elsewhere.
    fn sums_apart(&self) -> bool {
        self.rows > self.chunk && self.dtype.accumulator() != self.dtype
    }

    /// The logits of a chunk of so many rows.
    fn logits(&self, rows: usize) -> Gemm {
        let weight = if self.transposed { [1, self.width] } else { [self.classes, 1] };
        let gemm = Gemm::new(self.dtype, [rows, self.made(), self.width], [self.width, 1], weight);
        Gemm { c: [self.pitch, 0], ..gemm }
    }

    /// The launches that turn the logits of a chunk into losses, predictions and gradients.
    fn losses(&self, rows: usize, device: &Properties) -> Result<Stages> {
        let ChunkLayout { classes, pitch, dtype: logits, labels, .. } = *self;
        LossRows { rows, classes, pitch, logits, labels }.losses(device)
    }

    /// The launches that make the weight's gradient of sums that are kept apart.
    fn round(&self) -> Result<Option<Stages>> {
        self.sums_apart().then(|| reduce::convert(self.dtype, self.width * self.classes)).transpose()
    }

    /// The gradient of x.
    fn input(&self, rows: usize) -> Gemm {
        let weight = if self.transposed { [self.width, 1] } else { [1, self.classes] };
        Gemm::new(self.dtype, [rows, self.width, self.made()], [self.pitch, 1], weight)
    }

    /// The gradient of the weight, or what a chunk adds to it.
    fn weight(&self, rows: usize, accumulate: bool) -> Gemm {
        let Self { width, pitch, .. } = *self;
        let classes = if self.sums_apart() { self.made() } else { self.classes };
        let gemm = match self.transposed {
            true => Gemm::new(self.dtype, [classes, width, rows], [1, pitch], [width, 1]),
            false => Gemm::new(self.dtype, [width, classes, rows], [1, width], [pitch, 1]),
        };
        let result = if self.sums_apart() { self.dtype.accumulator() } else { self.dtype };
        Gemm { result, accumulate, ..gemm }
    }
}

/// The kernels of chunks of one size.
struct Chunk {
    logits: GemmOrZeros,
    losses: Box<dyn Routine>,
    /// The first chunk's, and what others add.
    weight: [GemmOrZeros; 2],
    input: GemmOrZeros,
}

impl Chunk {
    fn prepare(engine: &Arc<Engine>, layout: &ChunkLayout, rows: usize) -> Result<Self> {
        let product = |gemm: Gemm| GemmOrZeros::new(engine, &gemm);
        Ok(Self {
            logits: product(layout.logits(rows))?,
            losses: layout.losses(rows, engine.properties())?.prepare(engine)?,
            weight: [product(layout.weight(rows, false))?, product(layout.weight(rows, true))?],
            input: product(layout.input(rows))?,
        })
    }

    fn workspace(&self) -> u64 {
        let [first, other] = &self.weight;
        [&self.logits, first, other, &self.input].map(GemmOrZeros::workspace).into_iter().max().unwrap_or(0)
    }
}

struct Projected {
    engine: Arc<Engine>,
    layout: ChunkLayout,
    /// Those of the full size, then of the last.
    chunks: Vec<Chunk>,
    /// Makes the weight's gradient of sums that are kept apart.
    round: Option<Box<dyn Routine>>,
    /// The bytes of workspace that the products need.
    products: u64,
}

impl Routine for Projected {
    fn workspace(&self) -> u64 {
        self.layout.places()[2] + self.products
    }

    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let ChunkLayout { rows, width, classes, dtype, labels, transposed, chunk, .. } = self.layout;
        let [x, weight, label, slope] = [0, 1, 2, 3].map(|index| call.reads[index]);
        let [loss, prediction, dx, dweight] = [0, 1, 2, 3].map(|index| call.writes[index]);
        let [copy, sums, products] = self.layout.places().map(|offset| call.workspace + offset);
        let (logits, stream) = (call.workspace, call.stream);
        let sums = if self.layout.sums_apart() { sums } else { dweight };
        if rows == 0 {
            let bytes = (width * classes * dtype.size()) as u64;
            // SAFETY: the gradient of the weight has so many bytes.
            return unsafe { self.engine.zero(dweight, bytes, stream) };
        }
        let weight = if self.layout.padded() {
            let size = (width * dtype.size()) as u64;
            let (own, zeros) = (classes as u64 * size, (self.layout.pitch - classes) as u64 * size);
            // SAFETY: the weight has so many bytes, and its copy in the workspace has room for these and the zeros.
            unsafe {
                self.engine.copy(weight, copy, own, stream)?;
                self.engine.zero(copy + own, zeros, stream)?;
            }
            copy
        } else {
            weight
        };
        for start in (0..rows).step_by(chunk) {
            let kernels = &self.chunks[if rows - start >= chunk { 0 } else { self.chunks.len() - 1 }];
            let at = |address: u64, size: usize| address + (start * size) as u64;
            let number = dtype.accumulator().size();
            let (x, dx) = (at(x, width * dtype.size()), at(dx, width * dtype.size()));
            let operands = if transposed { [logits, x, sums] } else { [x, logits, sums] };
            let of_weight = &kernels.weight[usize::from(start > 0)];
            let reads = [logits, at(label, labels.size()), at(slope, number)];
            let writes = [at(loss, number), at(prediction, 4)];
            // SAFETY: the addresses are those of operands, moved on to the rows of the chunk, and of parts of the
            // workspace that overlap nothing else. Rows of dx, which may be those of x, are written after the last use
            // of those of x.
            unsafe {
                kernels.logits.run([x, weight, logits], products, stream)?;
                kernels.losses.run(&Call { reads: &reads, writes: &writes, workspace: products, stream })?;
                of_weight.run(operands, products, stream)?;
                kernels.input.run([logits, weight, dx], products, stream)?;
            }
        }
        match &self.round {
            // SAFETY: the sums are within the workspace, and over all rows.
            Some(round) => unsafe {
                round.run(&Call { reads: &[sums], writes: &[dweight], workspace: products, stream })
            },
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_graph::Shape;
    use plimsoll_graph::program::{BufferId, View};

    fn layout(dtype: DType, rows: usize, transposed: bool, chunk: usize) -> ChunkLayout {
        let weight = if transposed { [50257, 768] } else { [768, 50257] };
        let operand = |dtype, extents: &[usize]| {
            let shape = Shape::new(extents).expect("a shape within limits");
            Operand { buffer: BufferId(0), dtype, view: View::dense(shape) }
        };
        let reads = [operand(dtype, &[rows, 768]), operand(dtype, &weight), operand(DType::I32, &[rows])];
        ChunkLayout::new(transposed, chunk, &reads)
    }

    #[test]
    fn chunks_begin_at_aligned_rows_and_cover_all() {
        for (rows, chunk, sizes) in [
            (16384, 2048, vec![2048]),
            (16384, 1, vec![2048]),
            (10000, 3000, vec![3072, 784]),
            (100, 1, vec![100]),
            (2049, 1, vec![2048, 1]),
            (40, usize::MAX, vec![40]),
            (0, 7, vec![]),
        ] {
            let layout = layout(DType::BF16, rows, true, chunk);
            assert_eq!(layout.sizes().collect::<Vec<_>>(), sizes);
            assert!(layout.chunk.is_multiple_of(CHUNK_STEP) || layout.chunk >= rows);
        }
    }

    #[test]
    fn sums_of_halves_are_kept_apart_only_if_there_are_several() {
        let logits = |rows: u64, size: u64| rows * 50304 * size;
        let weight = 50304 * 768;
        let copied = logits(2048, 2) + weight * 2;
        assert_eq!(
            layout(DType::BF16, 4096, true, 2048).places(),
            [logits(2048, 2), copied, copied + weight * 4]
        );
        let copied = logits(1024, 2) + weight * 2;
        assert_eq!(layout(DType::BF16, 1024, true, 1024).places(), [logits(1024, 2), copied, copied]);
        let copied = logits(1024, 4) + weight * 4;
        assert_eq!(layout(DType::F32, 4096, true, 1024).places(), [logits(1024, 4), copied, copied]);
        assert_eq!(layout(DType::BF16, 4096, true, 1024).weight(1024, true).result, DType::F32);
        assert_eq!(layout(DType::BF16, 1024, true, 1024).weight(1024, false).result, DType::BF16);
    }

    #[test]
    fn products_agree_on_where_the_weight_lies() {
        let (rows, width, classes) = (512, 768, 50257);
        for transposed in [false, true] {
            let layout = layout(DType::F32, rows, transposed, rows);
            let (logits, input, weight) =
                (layout.logits(rows), layout.input(rows), layout.weight(rows, false));
            let made = if transposed { 50304 } else { classes };
            assert_eq!([logits.m, logits.n, logits.k], [rows, made, width]);
            assert_eq!([input.m, input.n, input.k], [rows, width, made]);
            // Element (k, n) of the one is element (n, k) of the other.
            assert_eq!(logits.b[..2], [input.b[1], input.b[0]]);
            let extents = if transposed { [classes, width] } else { [width, classes] };
            assert_eq!([weight.m, weight.n, weight.k], [extents[0], extents[1], rows]);
            assert_eq!(weight.c[0], extents[1]);
        }
    }
}

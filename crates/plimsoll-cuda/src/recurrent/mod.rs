//! Recurrent layers and their gradients.
//!
//! The products with the inputs of all steps are one product, and so are the gradients of the weights; only the
//! products with the hidden state go step by step, each followed by one elementwise launch. The operands of a step's
//! product are dense, apart from the results of all steps, so that one prepared product serves every step. Halves are
//! computed with in single precision and rounded where they are stored: the states, and the products with the inputs.

pub(crate) mod gru;
pub(crate) mod lstm;

use crate::codegen::dtype_defines::dtype_defines;
use crate::codegen::engine::Engine;
use crate::codegen::function::{Argument, Function};
use crate::error::{Error, ErrorKind, Result};
use crate::gemm::{Gemm, GemmOrZeros};
use crate::prepare::prepare;
use crate::routine::{ALIGNMENT, Call, Routine};
use cudarc::driver::sys::CUdeviceptr;
use plimsoll_graph::op::Reduction;
use plimsoll_graph::program::{Body, BufferId, Kernel, Operand, View};
use plimsoll_graph::{Axes, DType, Op, Shape};
use std::sync::Arc;

/// Threads of a block.
const THREADS: u32 = 256;

/// The extents of a layer over time.
#[derive(Debug, Clone, Copy)]
struct Layer {
    dtype: DType,
    batch: usize,
    time: usize,
    input: usize,
    hidden: usize,
    /// The columns of the weights: the hidden extent for every gate.
    columns: usize,
}

impl Layer {
    /// The layer of these inputs, and of its input and hidden weight.
    fn new(reads: &[Operand]) -> Result<Self> {
        let (x, hidden_weight) = (reads[0].view.shape, reads[2].view.shape);
        let layer = Self {
            dtype: reads[0].dtype,
            batch: x[0],
            time: x[1],
            input: x[2],
            hidden: hidden_weight[0],
            columns: hidden_weight[1],
        };
        if layer.batch.saturating_mul(layer.hidden) > i32::MAX as usize || layer.time > i32::MAX as usize {
            let message = format!(
                "a recurrent layer on a CUDA device has at most {} hidden numbers and steps, not {} by {} over {}",
                i32::MAX,
                layer.batch,
                layer.hidden,
                layer.time
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(layer)
    }

    /// The rows of all steps.
    fn rows(&self) -> usize {
        self.batch * self.time
    }

    /// The bytes of elements.
    fn bytes(&self, elements: usize) -> u64 {
        (elements * self.dtype.size()) as u64
    }

    /// The bytes of numbers that are computed with.
    fn number_bytes(&self, numbers: usize) -> u64 {
        (numbers * self.dtype.accumulator().size()) as u64
    }

    /// The product of all inputs with the input weight, in rows of `row` elements.
    fn inputs_by_weight(&self, row: usize) -> Gemm {
        let Layer { dtype, input, columns, .. } = *self;
        gemm(dtype, [self.rows(), columns, input], rows_of(input), rows_of(columns), row)
    }

    /// The product of a step's state with the hidden weight.
    fn state_by_weight(&self) -> Gemm {
        let Layer { dtype, batch, hidden, columns, .. } = *self;
        unrounded(gemm(dtype, [batch, columns, hidden], rows_of(hidden), rows_of(columns), columns))
    }

    /// The product of the gradients of a step's gates with the hidden weight.
    fn gates_by_weight(&self) -> Gemm {
        let Layer { dtype, batch, hidden, columns, .. } = *self;
        unrounded(gemm(dtype, [batch, hidden, columns], rows_of(columns), columns_of(columns), hidden))
    }

    /// The source of the kernels of a step.
    fn source(&self) -> String {
        let Layer { batch, hidden, columns, .. } = *self;
        // Gates have up to four columns for one of the hidden state.
        let elements = self.rows().saturating_mul(columns.max(4 * hidden)).max(batch * hidden);
        // Half of the range is left for threads past the end.
        let index = if elements <= i32::MAX as usize { "unsigned" } else { "unsigned long long" };
        format!(
            "{}#define HIDDEN {hidden}\n#define Index {index}\n{}",
            dtype_defines(self.dtype),
            include_str!("recurrent.cu")
        )
    }

    /// A kernel of a step.
    fn function(&self, engine: &Engine, name: &str) -> Result<Function> {
        engine.compile(&self.source(), name, 0)
    }

    /// Launches a kernel of a step with a thread for every element of the states.
    ///
    /// # Safety
    /// The arguments must be those the kernel takes before batch and time.
    unsafe fn launch(&self, function: &Function, call: &Call<'_>, arguments: &[Argument]) -> Result<()> {
        let blocks = (self.batch * self.hidden).div_ceil(THREADS as usize) as u32;
        let extents = [self.batch, self.time].map(|extent| Argument::U64(extent as u64));
        let arguments = [arguments, &extents].concat();
        // SAFETY: the caller vouches for the arguments.
        unsafe { function.launch(call.stream, [blocks, 1, 1], THREADS, 0, &arguments) }
    }

    /// Launches a kernel with addresses and the step.
    ///
    /// # Safety
    /// The addresses must be those the kernel takes.
    unsafe fn launch_step(
        &self,
        function: &Function,
        call: &Call<'_>,
        addresses: &[CUdeviceptr],
        step: usize,
    ) -> Result<()> {
        let addresses = addresses.iter().map(|&address| Argument::Address(address));
        let arguments: Vec<_> = addresses.chain([Argument::U32(step as u32)]).collect();
        // SAFETY: the caller vouches for the arguments.
        unsafe { self.launch(function, call, &arguments) }
    }
}

/// Hands out scratch memory, each piece aligned.
struct ScratchLayout {
    next: u64,
}

impl ScratchLayout {
    fn new() -> Self {
        Self { next: 0 }
    }

    /// Where the next so many bytes are, from the beginning of the workspace.
    fn take(&mut self, bytes: u64) -> u64 {
        let place = self.next;
        self.next += bytes.next_multiple_of(ALIGNMENT);
        place
    }
}

/// What runs a layer of either kind: the products with the weights, and the launch that follows each of a step.
struct Forward {
    layer: Layer,
    places: ForwardScratch,
    /// The products of all inputs, and of a step's state, with the weights.
    inputs: GemmOrZeros,
    state: GemmOrZeros,
    step: Function,
}

/// Where scratch memory has a step's product, its state, and what products need.
#[derive(Debug, Clone, Copy)]
struct ForwardScratch {
    product: u64,
    state: u64,
    products: u64,
}

impl ForwardScratch {
    fn new(layer: &Layer) -> Self {
        let mut scratch = ScratchLayout::new();
        let product = scratch.take(layer.number_bytes(layer.batch * layer.columns));
        let state = scratch.take(layer.bytes(layer.batch * layer.hidden));
        Self { product, state, products: scratch.next }
    }
}

impl Forward {
    /// A layer whose gates are rows of so many times the hidden extent, and whose steps end with the kernel `step`.
    fn new(engine: &Arc<Engine>, reads: &[Operand], gates: usize, step: &str) -> Result<Self> {
        let layer = Layer::new(reads)?;
        Ok(Self {
            layer,
            places: ForwardScratch::new(&layer),
            inputs: GemmOrZeros::new(engine, &layer.inputs_by_weight(gates * layer.hidden))?,
            state: GemmOrZeros::new(engine, &layer.state_by_weight())?,
            step: layer.function(engine, step)?,
        })
    }

    fn workspace(&self) -> u64 {
        self.places.products + self.inputs.workspace().max(self.state.workspace())
    }

    /// Enqueues the products of the inputs with their weight, for the gates, and of each step's state with its own; after
    /// each the step's kernel, on the addresses that `arguments` gives for those of the product and of the state.
    ///
    /// # Safety
    /// The addresses must be those of the operands `[x, input weight, hidden weight, first state, gates]` and of what the
    /// kernel takes.
    unsafe fn run<const N: usize>(
        &self,
        call: &Call<'_>,
        [x, input_weight, hidden_weight, first, gates]: [CUdeviceptr; 5],
        arguments: impl FnOnce(CUdeviceptr, CUdeviceptr) -> [CUdeviceptr; N],
    ) -> Result<()> {
        let ForwardScratch { product, state, products } = self.places;
        let [product, state, products] = [product, state, products].map(|at| call.workspace + at);
        let addresses = arguments(product, state);
        // SAFETY: the operands and scratch memory have the extents that the products and the kernel were made for.
        unsafe {
            self.inputs.run([x, input_weight, gates], products, call.stream)?;
            for step in 0..self.layer.time {
                let before = if step == 0 { first } else { state };
                self.state.run([before, hidden_weight, product], products, call.stream)?;
                self.layer.launch_step(&self.step, call, &addresses, step)?;
            }
        }
        Ok(())
    }
}

/// What gradients of a layer of either kind are computed with, step by step and then for all steps.
struct Backward {
    layer: Layer,
    /// The product of the gradients of a step's gates with the hidden weight.
    state: GemmOrZeros,
    gradients: Gradients,
    step: Function,
    /// What makes the gradient of the first state of what the steps leave.
    first: Function,
    scratch: GradScratch,
}

/// Where scratch memory has what gradients need: offsets from the beginning of the workspace, or addresses.
#[derive(Debug, Clone, Copy)]
struct GradScratch {
    /// The gradients of all steps' products with the inputs, and with the states: the same, unless a layer does more with
    /// one than add it to the other.
    input_slopes: u64,
    hidden_slopes: u64,
    /// The states before each step.
    befores: u64,
    /// A step's gradients of its gates, as the product with the hidden weight takes them, and that product.
    slopes: u64,
    product: u64,
    /// A step's gradient that goes to the step before it by another way than the gates: of the cell, or past the gates.
    carried: u64,
    /// What products need.
    products: u64,
}

impl GradScratch {
    /// For a layer that keeps the gradients of products with inputs and with states apart, or not.
    fn new(layer: &Layer, apart: bool) -> Self {
        let Layer { batch, hidden, columns, .. } = *layer;
        let mut scratch = ScratchLayout::new();
        let input_slopes = scratch.take(layer.bytes(layer.rows() * columns));
        let hidden_slopes =
            if apart { scratch.take(layer.bytes(layer.rows() * columns)) } else { input_slopes };
        Self {
            input_slopes,
            hidden_slopes,
            befores: scratch.take(layer.bytes(layer.rows() * hidden)),
            slopes: scratch.take(layer.bytes(batch * columns)),
            product: scratch.take(layer.number_bytes(batch * hidden)),
            carried: scratch.take(layer.number_bytes(batch * hidden)),
            products: scratch.next,
        }
    }

    /// The addresses in a workspace.
    fn at(&self, workspace: CUdeviceptr) -> Self {
        Self {
            input_slopes: workspace + self.input_slopes,
            hidden_slopes: workspace + self.hidden_slopes,
            befores: workspace + self.befores,
            slopes: workspace + self.slopes,
            product: workspace + self.product,
            carried: workspace + self.carried,
            products: workspace + self.products,
        }
    }
}

impl Backward {
    /// The gradient of a layer with these kernels, which keeps the gradients of products with inputs and with states apart,
    /// or not.
    fn new(engine: &Arc<Engine>, reads: &[Operand], step: &str, first: &str, apart: bool) -> Result<Self> {
        let layer = Layer::new(reads)?;
        Ok(Self {
            layer,
            scratch: GradScratch::new(&layer, apart),
            state: GemmOrZeros::new(engine, &layer.gates_by_weight())?,
            gradients: Gradients::prepare(engine, &layer)?,
            step: layer.function(engine, step)?,
            first: layer.function(engine, first)?,
        })
    }

    /// The scratch bytes of the gradient.
    fn workspace(&self) -> u64 {
        self.scratch.products + self.state.workspace().max(self.gradients.workspace())
    }

    /// Enqueues the steps, the last first: the step's kernel on these addresses, and the product of what it leaves in
    /// `slopes` with the hidden weight.
    ///
    /// # Safety
    /// The addresses must be those of what the kernel takes and of the hidden weight.
    unsafe fn run_steps(
        &self,
        call: &Call<'_>,
        addresses: &[CUdeviceptr],
        hidden_weight: CUdeviceptr,
    ) -> Result<()> {
        let GradScratch { slopes, product, products, .. } = self.scratch.at(call.workspace);
        for step in (0..self.layer.time).rev() {
            // SAFETY: the caller vouches for the addresses, and the scratch memory has the extents of the product.
            unsafe {
                self.layer.launch_step(&self.step, call, addresses, step)?;
                self.state.run([slopes, hidden_weight, product], products, call.stream)?;
            }
        }
        Ok(())
    }

    /// Enqueues the gradients of the inputs and of both weights, once all steps are.
    ///
    /// # Safety
    /// The addresses must be those of the operands `[x, input weight]` and of the gradients of x and of both weights.
    unsafe fn run_products(
        &self,
        call: &Call<'_>,
        [x, input_weight]: [CUdeviceptr; 2],
        [dx, dinput_weight, dhidden_weight]: [CUdeviceptr; 3],
    ) -> Result<()> {
        let GradScratch { input_slopes, hidden_slopes, befores, products, .. } =
            self.scratch.at(call.workspace);
        let Gradients { inputs, input_weight: by_inputs, hidden_weight: by_states, .. } = &self.gradients;
        // SAFETY: the caller vouches for the addresses, and the scratch memory has the extents of the products.
        unsafe {
            inputs.run([input_slopes, input_weight, dx], products, call.stream)?;
            by_inputs.run([x, input_slopes, dinput_weight], products, call.stream)?;
            by_states.run([befores, hidden_slopes, dhidden_weight], products, call.stream)
        }
    }
}

/// Where a matrix has its elements: the distances between rows and between columns.
type Strides = [usize; 2];

/// Densely packed rows of so many columns.
fn rows_of(columns: usize) -> Strides {
    [columns, 1]
}

/// The transpose of densely packed rows of so many columns.
fn columns_of(columns: usize) -> Strides {
    [1, columns]
}

/// A product whose result has rows of `row` elements.
fn gemm(dtype: DType, extents: [usize; 3], a: Strides, b: Strides, row: usize) -> Gemm {
    Gemm { c: [row, 0], ..Gemm::new(dtype, extents, a, b) }
}

/// The same with a result that is not rounded.
fn unrounded(gemm: Gemm) -> Gemm {
    Gemm { result: gemm.dtype.accumulator(), ..gemm }
}

/// The sum of all rows of a matrix.
fn sum_rows(engine: &Arc<Engine>, dtype: DType, rows: usize, columns: usize) -> Result<Box<dyn Routine>> {
    let (from, to) = (dense(0, dtype, &[rows, columns])?, dense(1, dtype, &[columns])?);
    let axes = Axes::new(&[0], 2).map_err(not_a_shape)?;
    let kernel = Kernel {
        scope: "recurrent".into(),
        body: Body::Op(Op::Reduce { kind: Reduction::Sum, axes, wide: false }),
        reads: vec![from],
        writes: vec![to],
        in_place: vec![],
        flops: (rows * columns) as u64,
        bytes: ((rows + 1) * columns * dtype.size()) as u64,
    };
    prepare(engine, &kernel)
}

fn dense(buffer: u32, dtype: DType, dims: &[usize]) -> Result<Operand> {
    let view = View::dense(Shape::new(dims).map_err(not_a_shape)?);
    Ok(Operand { buffer: BufferId(buffer), dtype, view })
}

fn not_a_shape(error: plimsoll_graph::Error) -> Error {
    Error::new(ErrorKind::Unsupported, format!("the gates of a recurrent layer are too large: {error}"))
}

/// What gradients of a layer are made of when those of its gates are known: the products that belong to all steps.
struct Gradients {
    engine: Arc<Engine>,
    inputs: GemmOrZeros,
    input_weight: GemmOrZeros,
    hidden_weight: GemmOrZeros,
    bias: Box<dyn Routine>,
}

impl Gradients {
    fn prepare(engine: &Arc<Engine>, layer: &Layer) -> Result<Self> {
        let Layer { dtype, input, hidden, columns, .. } = *layer;
        let rows = layer.rows();
        let inputs = gemm(dtype, [rows, input, columns], rows_of(columns), columns_of(columns), input);
        let by =
            |width: usize| gemm(dtype, [width, columns, rows], columns_of(width), rows_of(columns), columns);
        Ok(Self {
            engine: engine.clone(),
            inputs: GemmOrZeros::new(engine, &inputs)?,
            input_weight: GemmOrZeros::new(engine, &by(input))?,
            hidden_weight: GemmOrZeros::new(engine, &by(hidden))?,
            bias: sum_rows(engine, dtype, rows, columns)?,
        })
    }

    fn workspace(&self) -> u64 {
        let products = [&self.inputs, &self.input_weight, &self.hidden_weight].map(GemmOrZeros::workspace);
        products.into_iter().fold(self.bias.workspace(), u64::max)
    }

    /// Enqueues zeros for the gradient of a first state that no step has seen.
    ///
    /// # Safety
    /// The address must be that of the gradient.
    unsafe fn zero_state(&self, call: &Call<'_>, layer: &Layer, state: CUdeviceptr) -> Result<()> {
        let bytes = layer.bytes(layer.batch * layer.hidden);
        // SAFETY: the caller vouches for the address.
        unsafe { self.engine.zero(state, bytes, call.stream) }
    }

    /// Enqueues the sum of the gradients of the gates of all steps.
    ///
    /// # Safety
    /// The addresses must be those of the gradients, the sum and the workspace.
    unsafe fn run_bias(
        &self,
        call: &Call<'_>,
        slopes: CUdeviceptr,
        bias: CUdeviceptr,
        workspace: CUdeviceptr,
    ) -> Result<()> {
        let call = Call { reads: &[slopes], writes: &[bias], workspace, stream: call.stream };
        // SAFETY: the caller vouches for the addresses.
        unsafe { self.bias.run(&call) }
    }
}

#[cfg(test)]
mod tests;

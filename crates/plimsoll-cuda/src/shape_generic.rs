//! That a training step of sequences of another length is made of the same code: lengths change from step to step, and
//! each source that changes with them is compiled and loaded again, and its code stays on the device.

use crate::codegen::engine::Properties;
use crate::codegen::loops;
use crate::{attention, ops};
use plimsoll_graph::op::Attention;
use plimsoll_graph::optimizer::Optimizer;
use plimsoll_graph::program::{Body, Kernel, Role};
use plimsoll_graph::step::Initial;
use plimsoll_graph::{DType, Op, Result, Step, ValueId, chunk_loss, lower};
use std::collections::BTreeMap;

const WIDTH: usize = 768;
const HEADS: usize = 12;
const CONTEXT: usize = 1024;
const VOCABULARY: usize = 50257;
const LAYERS: usize = 2;

/// The training step of a language model under construction.
struct Model(Step);

impl Model {
    fn master(&mut self, name: &str, shape: &[usize]) -> Result<ValueId> {
        self.0.state(name, Role::Parameter, shape, DType::F32, Initial::Constant(0.0))
    }

    fn parameter(&mut self, name: &str, shape: &[usize]) -> Result<ValueId> {
        let master = self.master(name, shape)?;
        self.0.graph.cast(master, DType::BF16)
    }

    fn norm(&mut self, name: &str, x: ValueId) -> Result<ValueId> {
        let gamma = self.parameter(&format!("{name}/gamma"), &[WIDTH])?;
        let beta = self.parameter(&format!("{name}/beta"), &[WIDTH])?;
        let [y, _, _] = self.0.graph.apply_n(Op::LayerNorm { epsilon: 1e-5 }, &[x, gamma, beta])?;
        Ok(y)
    }

    fn dense(&mut self, name: &str, x: ValueId, units: usize) -> Result<ValueId> {
        let [batch, tokens, inputs] = [0, 1, 2].map(|axis| self.0.graph.shape(x)[axis]);
        let weight = self.parameter(&format!("{name}/weight"), &[inputs, units])?;
        let bias = self.parameter(&format!("{name}/bias"), &[units])?;
        let g = &mut self.0.graph;
        let rows = g.reshape(x, &[batch * tokens, inputs])?;
        let product = g.dot(rows, weight)?;
        let product = g.reshape(product, &[batch, tokens, units])?;
        g.add(product, bias)
    }

    fn block(&mut self, name: &str, x: ValueId) -> Result<ValueId> {
        let [batch, tokens, width] = [0, 1, 2].map(|axis| self.0.graph.shape(x)[axis]);
        let y = self.norm(&format!("{name}/ln1"), x)?;
        let qkv = self.dense(&format!("{name}/qkv"), y, 3 * width)?;
        let mut parts = vec![];
        for part in 0..3 {
            let part = self.0.graph.slice_axis(qkv, 2, part * width..(part + 1) * width)?;
            parts.push(self.0.graph.reshape(part, &[batch, tokens, HEADS, width / HEADS])?);
        }
        let [mixed, _] =
            self.0.graph.apply_n(Op::Attention(Attention { causal: true, scale: 0.125 }), &parts)?;
        let mixed = self.0.graph.reshape(mixed, &[batch, tokens, width])?;
        let y = self.dense(&format!("{name}/out"), mixed, width)?;
        let x = self.0.graph.add(x, y)?;

        let y = self.norm(&format!("{name}/ln2"), x)?;
        let y = self.dense(&format!("{name}/up"), y, 4 * width)?;
        let y = self.0.graph.gelu(y)?;
        let y = self.dense(&format!("{name}/down"), y, width)?;
        self.0.graph.add(x, y)
    }

    /// The step of so many sequences of so many tokens.
    fn step(batch: usize, tokens: usize) -> Result<Step> {
        let mut model = Model(Step::new());
        let input = model.0.input("tokens", &[batch, tokens], DType::I32)?;
        let labels = model.0.input("labels", &[batch, tokens], DType::I32)?;
        let table = model.master("table", &[VOCABULARY, WIDTH])?;
        let positions = model.master("positions", &[CONTEXT, WIDTH])?;
        let g = &mut model.0.graph;
        let embedded = g.apply(Op::Gather, &[table, input])?;
        let embedded = g.cast(embedded, DType::BF16)?;
        let positions = g.slice_axis(positions, 0, 0..tokens)?;
        let positions = g.cast(positions, DType::BF16)?;
        let mut x = g.add(embedded, positions)?;
        for layer in 0..LAYERS {
            x = model.block(&format!("block{layer}"), x)?;
        }
        let x = model.norm("ln", x)?;
        let g = &mut model.0.graph;
        let rows = g.reshape(x, &[batch * tokens, WIDTH])?;
        let head = g.cast(table, DType::BF16)?;
        let logits = g.dot_general(rows, head, false, true)?;
        let labels = g.reshape(labels, &[batch * tokens])?;
        let [loss, _] = g.apply_n(Op::CrossEntropy, &[logits, labels])?;
        let loss = g.mean_all(loss)?;
        model.0.output("loss", loss);
        model.0.train(loss, &Optimizer::adam(3e-4))?;
        Ok(model.0)
    }
}

/// The sources of a kernel but those of matrix products.
fn sources(kernel: &Kernel, device: &Properties) -> crate::Result<Vec<String>> {
    let Kernel { body, reads, writes, .. } = kernel;
    match body {
        Body::Loop(body) => loops::sources(body, reads, writes, device),
        // An epilogue is part of its product's kernel, or a loop of its own.
        Body::WithEpilogue(fused) => {
            let reads = fused.loop_reads(reads);
            let epilogue = loops::tile_epilogue(&fused.body, &reads, writes)?;
            let mut all = loops::sources(&fused.body, &reads, writes, device)?;
            all.extend(epilogue.map(|epilogue| epilogue.text));
            Ok(all)
        }
        Body::Op(Op::Dot { .. }) | Body::Copy | Body::Wait => Ok(vec![]),
        Body::Op(op) => match attention::source(op, reads, writes, device) {
            Some(source) => source.map(|source| vec![source]),
            None => ops::tests::sources(op, reads, writes, device),
        },
    }
}

/// The sources of a step of so many sequences of so many tokens, each with what it is of. The logits are made all at once
/// or some rows at a time.
fn all_sources([batch, tokens]: [usize; 2], chunked: bool) -> BTreeMap<String, String> {
    let device = Properties::h100();
    let mut step = Model::step(batch, tokens).expect("a step within limits");
    if chunked {
        // Few rows are left as they are.
        step = chunk_loss(&step, 0).unwrap_or(step);
    }
    let mut all = BTreeMap::new();
    for kernel in &lower(&step).kernels {
        let operands = kernel.reads.iter().chain(&kernel.writes);
        let operands: Vec<String> = operands.map(|o| format!("{}{}", o.dtype, o.view.shape)).collect();
        for source in sources(kernel, &device).expect("a kernel within limits") {
            all.insert(source, format!("{} ({})", kernel.name(), operands.join(", ")));
        }
    }
    all
}

#[test]
fn steps_of_other_lengths_and_batches_are_made_of_the_same_code() {
    for [a, b] in [[[16, 1000], [16, 768]], [[16, 512], [20, 400]], [[16, 1022], [14, 710]]] {
        for chunked in [false, true] {
            let [one, other] = [a, b].map(|shape| all_sources(shape, chunked));
            let apart: Vec<&String> =
                one.iter().filter(|(source, _)| !other.contains_key(*source)).map(|(_, of)| of).collect();
            assert_eq!((apart, one.len()), (vec![], other.len()), "{a:?} and {b:?}");
        }
    }
}

#[test]
fn a_training_on_many_lengths_takes_little_more_code_than_one_step() {
    let mut all = BTreeMap::new();
    for batch in [8, 12, 16, 24] {
        for tokens in (64..=CONTEXT).step_by(64) {
            all.extend(all_sources([batch, tokens], true));
        }
    }
    // Loops take fewer elements at once where there are few, and a mean's threads are a power of two.
    let one = all_sources([24, CONTEXT], true).len();
    assert!(all.len() < 2 * one, "{} sources, and {one} of one step", all.len());
}

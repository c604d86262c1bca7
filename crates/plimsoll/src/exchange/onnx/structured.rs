//! Ops that have a node of their own in ONNX, or several: convolutions, pooling, norms, attention, recurrent layers.

use super::batch::Dim;
use super::convert::{Converter, number, numbers};
use super::model_file::Attribute;
use crate::{DType, Op, Result};
use plimsoll_graph::op::{Attention, Conv2d, Pool2d, PoolKind};
use plimsoll_graph::{Node, ValueId};

/// The order of a filter's axes in ONNX: out, in, height, width.
const FILTER: [usize; 4] = [3, 2, 0, 1];

impl Converter<'_> {
    pub(super) fn structured(&mut self, node: &Node) -> Result<()> {
        match &node.op {
            Op::Conv2d(conv) => self.conv(node, conv),
            Op::Conv2dInputGrad { conv, input } => self.conv_transpose(node, conv, input),
            Op::Pool2d(pool) => self.pool(node, pool),
            Op::LayerNorm { epsilon } => {
                let [x, gamma, beta] = [0, 1, 2].map(|i| self.plain(node.operands[i]));
                let attributes = [number("axis", -1), ("epsilon", Attribute::Float(*epsilon as f32))];
                let inputs = [&*x?, &*gamma?, &*beta?];
                let y = self.file.node(self.scope(node), "LayerNormalization", &inputs, &attributes);
                self.set_plain(node, y);
                Ok(())
            }
            Op::Attention(attention) => self.attention(node, attention),
            // Ours are input, forget, cell, output; theirs input, output, forget, cell.
            Op::Lstm => self.recurrent(node, "LSTM", &[0, 3, 1, 2]),
            // Ours are reset, update, new; theirs update, reset, new.
            _ => self.recurrent(node, "GRU", &[1, 0, 2]),
        }
    }

    fn conv(&mut self, node: &Node, conv: &Conv2d) -> Result<()> {
        let images = self.channels_first(node.operands[0])?;
        let filter = self.arranged(node.operands[1], &FILTER)?;
        let attributes = [
            numbers("strides", conv.stride),
            pads(conv.padding),
            numbers("dilations", conv.dilation),
            number("group", conv.groups as i64),
        ];
        let result = self.file.node(self.scope(node), "Conv", &[&images, &filter], &attributes);
        self.set_channels_first(node, result);
        Ok(())
    }

    /// What is a gradient in training is a transposed convolution in a model.
    fn conv_transpose(&mut self, node: &Node, conv: &Conv2d, result: &[usize]) -> Result<()> {
        let filter = self.arranged(node.operands[0], &FILTER)?;
        let images = self.channels_first(node.operands[1])?;
        let [taps, from] = [0, 1].map(|operand| self.graph().shape(node.operands[operand]));
        let mut rest = [0; 2];
        for axis in 0..2 {
            let spread = (from[1 + axis] - 1) * conv.stride[axis] + conv.reach(axis, taps[axis])?;
            rest[axis] = result[1 + axis] + conv.padding[2 * axis] + conv.padding[2 * axis + 1] - spread;
        }
        let attributes = [
            numbers("strides", conv.stride),
            pads(conv.padding),
            numbers("output_padding", rest),
            numbers("dilations", conv.dilation),
            number("group", conv.groups as i64),
        ];
        let result = self.file.node(self.scope(node), "ConvTranspose", &[&images, &filter], &attributes);
        self.set_channels_first(node, result);
        Ok(())
    }

    fn pool(&mut self, node: &Node, pool: &Pool2d) -> Result<()> {
        let images = self.channels_first(node.operands[0])?;
        // Means are over what is inside of the image, which is what ONNX does unless told otherwise.
        let op = match pool.kind {
            PoolKind::Max => "MaxPool",
            PoolKind::Mean => "AveragePool",
        };
        let attributes =
            [numbers("kernel_shape", pool.window), numbers("strides", pool.stride), pads(pool.padding)];
        let result = self.file.node(self.scope(node), op, &[&images], &attributes);
        self.set_channels_first(node, result);
        Ok(())
    }

    fn attention(&mut self, node: &Node, attention: &Attention) -> Result<()> {
        let scope = self.scope(node);
        let dtype = self.graph().dtype(node.operands[0]);
        // [batch, heads, tokens, width], and keys transposed.
        let q = self.arranged(node.operands[0], &[0, 2, 1, 3])?;
        let k = self.arranged(node.operands[1], &[0, 2, 3, 1])?;
        let v = self.arranged(node.operands[2], &[0, 2, 1, 3])?;
        let scale = self.number(attention.scale, dtype);
        let scores = self.file.node(scope, "MatMul", &[&q, &k], &[]);
        let mut scores = self.file.node(scope, "Mul", &[&scores, &scale], &[]);
        if attention.causal {
            let [Dim::Fixed(queries), Dim::Fixed(keys)] = [0, 1].map(|i| self.dims(node.operands[i])[1])
            else {
                return Err(self.refused(node, "its tokens are samples"));
            };
            let mask = self.causal_mask(queries, keys);
            let never = self.number(f64::NEG_INFINITY, dtype);
            scores = self.file.node(scope, "Where", &[&mask, &scores, &never], &[]);
        }
        let weights = self.file.node(scope, "Softmax", &[&scores], &[number("axis", -1)]);
        let mixed = self.file.node(scope, "MatMul", &[&weights, &v], &[]);
        let result = self.file.node(scope, "Transpose", &[&mixed], &[numbers("perm", [0, 2, 1, 3])]);
        self.set_plain(node, result);
        Ok(())
    }

    /// Which keys each query sees: those up to itself, aligned at the end.
    fn causal_mask(&mut self, queries: usize, keys: usize) -> String {
        if let Some(name) = self.masks.get(&[queries, keys]) {
            return name.clone();
        }
        let sees = |query: usize, key: usize| u8::from(key + queries <= query + keys);
        let bytes = (0..queries).flat_map(|query| (0..keys).map(move |key| sees(query, key))).collect();
        let name = self.file.constant("causal_mask", DType::Bool, &[queries, keys], bytes);
        self.masks.insert([queries, keys], name.clone());
        name
    }

    /// A recurrent layer in one direction; `gates` are the positions of theirs among ours.
    fn recurrent(&mut self, node: &Node, op: &str, gates: &[usize]) -> Result<()> {
        let scope = self.scope(node);
        let operands = node.operands.to_vec();
        let is_lstm = op == "LSTM";
        let shape = self.graph().shape(operands[2]);
        let hidden = shape[0];
        let x = self.arranged(operands[0], &[1, 0, 2])?;
        let input_weight = self.gates(scope, operands[1], true, gates)?;
        let hidden_weight = self.gates(scope, operands[2], true, gates)?;
        let bias = self.gates(scope, operands[3], false, gates)?;
        let (hidden_bias, states) = match is_lstm {
            true => {
                let dtype = self.graph().dtype(operands[3]);
                let zeros = vec![0; gates.len() * hidden * dtype.size()];
                (self.file.constant("zeros", dtype, &[1, gates.len() * hidden], zeros), &operands[4..])
            }
            false => (self.gates(scope, operands[4], false, gates)?, &operands[5..]),
        };
        let bias = self.file.node(scope, "Concat", &[&bias, &hidden_bias], &[number("axis", 1)]);
        let mut inputs = vec![x, input_weight, hidden_weight, bias, String::new()];
        for &state in states {
            // Without a first state it is zero.
            inputs.push(match self.graph().op(state) {
                Op::Constant { value: 0.0, .. } => String::new(),
                _ => {
                    let state = self.plain(state)?;
                    let axes = self.file.numbers("axes", &[0]);
                    self.file.node(scope, "Unsqueeze", &[&state, &axes], &[])
                }
            });
        }
        while inputs.last().is_some_and(String::is_empty) {
            inputs.pop();
        }
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        // Of a GRU: the reset gate multiplies the hidden product with its bias.
        let attributes = [number("hidden_size", hidden as i64), number("linear_before_reset", 1)];
        let attributes = if is_lstm { &attributes[..1] } else { &attributes[..] };
        let states = self.file.node(scope, op, &inputs, attributes);
        let axes = self.file.numbers("axes", &[1]);
        let states = self.file.node(scope, "Squeeze", &[&states, &axes], &[]);
        let states = self.file.node(scope, "Transpose", &[&states], &[numbers("perm", [1, 0, 2])]);
        self.set_plain(node, states);
        Ok(())
    }

    /// A weight `[in, gates]`, or a bias `[gates]`, as ONNX has it for one direction: `[1, gates, in]`, `[1, gates]`, the
    /// gates in its order.
    fn gates(&mut self, scope: &str, value: ValueId, is_matrix: bool, gates: &[usize]) -> Result<String> {
        let x = if is_matrix { self.arranged(value, &[1, 0])? } else { self.plain(value)? };
        let axis = number("axis", 0);
        let parts: Vec<String> = match gates.len() {
            4 => self.file.node_of::<4>(scope, "Split", &[&x], std::slice::from_ref(&axis)).into(),
            _ => self.file.node_of::<3>(scope, "Split", &[&x], std::slice::from_ref(&axis)).into(),
        };
        let parts: Vec<&str> = gates.iter().map(|&gate| parts[gate].as_str()).collect();
        let joined = self.file.node(scope, "Concat", &parts, &[axis]);
        let axes = self.file.numbers("axes", &[0]);
        Ok(self.file.node(scope, "Unsqueeze", &[&joined, &axes], &[]))
    }
}

/// Rows and columns around images: ours top, bottom, left, right; theirs top, left, bottom, right.
fn pads([top, bottom, left, right]: [usize; 4]) -> (&'static str, Attribute) {
    numbers("pads", [top, left, bottom, right])
}

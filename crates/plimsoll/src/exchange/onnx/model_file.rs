//! The model as a file: nodes, tensors and their names, and the weights streamed behind them.

use super::batch::Dim;
use super::protobuf::Message;
use crate::exchange::load::show_tensor;
use crate::exchange::shared_box::{SharedBox, Written, shape_of_theirs};
use crate::exchange::{PIECE_BYTES, TensorFile};
use crate::whole_file::WholeFile;
use crate::{DType, Result};
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// The version of the operators.
pub(super) const OPSET: i64 = 17;
/// The version of the format that came with it.
const IR_VERSION: i64 = 8;

/// Models with more bytes of tensors than this have their weights in a file beside: what reads a model takes at most 2 GiB.
const MOST_INSIDE: u64 = 3 << 29;

/// What a number means to ONNX.
pub(super) fn type_number(dtype: DType) -> i64 {
    match dtype {
        DType::F32 => 1,
        DType::U8 => 2,
        DType::I32 => 6,
        DType::I64 => 7,
        DType::Bool => 9,
        DType::F16 => 10,
        DType::F64 => 11,
        DType::BF16 => 16,
    }
}

/// An argument of a node that is no tensor.
#[derive(Debug, Clone)]
pub(super) enum Attribute {
    Number(i64),
    Float(f32),
    Numbers(Vec<i64>),
}

/// Nodes and tensors that are collected, and then written.
#[derive(Default)]
pub(super) struct ModelFile {
    nodes: Vec<Message>,
    tensors: Vec<Tensor>,
    inputs: Vec<Message>,
    outputs: Vec<Message>,
    names: HashMap<String, usize>,
    /// What nodes take.
    used: HashSet<String>,
}

/// A tensor of a model.
struct Tensor {
    name: String,
    dtype: DType,
    shape: Vec<usize>,
    data: Data,
}

enum Data {
    Bytes(Vec<u8>),
    /// A weight, by its position in a file, of a shape there, with its axes in an order.
    Weight {
        index: usize,
        ours: Vec<usize>,
        order: Vec<usize>,
    },
}

impl Tensor {
    /// Whether it is in the model's file in any case: readers look into shapes and axes before they read tensors.
    fn is_small(&self) -> bool {
        matches!(self.data, Data::Bytes(_))
    }

    fn bytes(&self) -> u64 {
        (self.shape.iter().product::<usize>() * self.dtype.size()) as u64
    }
}

impl ModelFile {
    /// A name that nothing else has.
    pub(super) fn fresh(&mut self, wish: &str) -> String {
        let number = self.names.entry(wish.to_string()).or_default();
        *number += 1;
        match *number {
            1 => wish.to_string(),
            number => {
                let name = format!("{wish}.{number}");
                self.fresh(&name)
            }
        }
    }

    /// A node of one result.
    pub(super) fn node(
        &mut self,
        scope: &str,
        op: &str,
        inputs: &[&str],
        attributes: &[(&str, Attribute)],
    ) -> String {
        let [result] = self.node_of(scope, op, inputs, attributes);
        result
    }

    /// A node of several results.
    pub(super) fn node_of<const N: usize>(
        &mut self,
        scope: &str,
        op: &str,
        inputs: &[&str],
        attributes: &[(&str, Attribute)],
    ) -> [String; N] {
        let wish = if scope.is_empty() { op.to_string() } else { format!("{scope}/{op}") };
        let results: [String; N] = std::array::from_fn(|_| self.fresh(&wish));
        self.push(op, inputs, &results, attributes);
        results
    }

    fn push(&mut self, op: &str, inputs: &[&str], outputs: &[String], attributes: &[(&str, Attribute)]) {
        let node = Message::new().texts(1, inputs).texts(2, outputs);
        let node = node.text(3, outputs.first().map_or("", String::as_str)).text(4, op);
        let node = attributes.iter().fold(node, |node, (name, attribute)| {
            let message = Message::new().text(1, name);
            let message = match attribute {
                Attribute::Float(value) => message.float(2, *value).number(20, 1),
                Attribute::Number(value) => message.number(3, *value).number(20, 2),
                Attribute::Numbers(values) => {
                    values.iter().fold(message, |message, &value| message.number(8, value)).number(20, 7)
                }
            };
            node.message(5, &message)
        });
        self.nodes.push(node);
        self.used.extend(inputs.iter().map(|&input| input.to_string()));
    }

    /// Gives a tensor a name that the outside knows.
    pub(super) fn output(&mut self, name: &str, tensor: &str, dtype: DType, dims: &[Dim]) {
        self.push("Identity", &[tensor], &[name.to_string()], &[]);
        self.outputs.push(described(name, dtype, dims));
    }

    /// A tensor that comes from outside.
    pub(super) fn input(&mut self, name: &str, dtype: DType, dims: &[Dim]) {
        self.inputs.push(described(name, dtype, dims));
    }

    /// A tensor of the model that is known here.
    pub(super) fn constant(&mut self, wish: &str, dtype: DType, shape: &[usize], bytes: Vec<u8>) -> String {
        let name = self.fresh(wish);
        let data = Data::Bytes(bytes);
        self.tensors.push(Tensor { name: name.clone(), dtype, shape: shape.to_vec(), data });
        name
    }

    /// Whole numbers.
    pub(super) fn numbers(&mut self, wish: &str, numbers: &[i64]) -> String {
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.constant(wish, DType::I64, &[numbers.len()], bytes)
    }

    /// A weight of a file, with its axes in an order.
    pub(super) fn weight(&mut self, wish: &str, index: usize, ours: &[usize], order: &[usize]) -> String {
        let name = self.fresh(wish);
        let shape = shape_of_theirs(ours, order, 1);
        let data = Data::Weight { index, ours: ours.to_vec(), order: order.to_vec() };
        self.tensors.push(Tensor { name: name.clone(), dtype: DType::F32, shape, data });
        name
    }

    /// How many nodes there are.
    pub(super) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Writes the model, and its tensors beside it if they are too many for one file. Returns the bytes of both.
    pub(super) fn write(&self, title: &str, weights: &TensorFile, path: &Path) -> Result<[u64; 2]> {
        self.write_with(title, weights, path, MOST_INSIDE)
    }

    fn write_with(&self, title: &str, weights: &TensorFile, path: &Path, most: u64) -> Result<[u64; 2]> {
        let tensors: Vec<&Tensor> =
            self.tensors.iter().filter(|tensor| self.used.contains(&tensor.name)).collect();
        let inside = tensors.iter().map(|tensor| tensor.bytes()).sum::<u64>() <= most;
        let mut beside_path = path.as_os_str().to_owned();
        beside_path.push(".data");
        let beside_path = Path::new(&beside_path);
        let location = beside_path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        let mut first = 0;
        let heads: Vec<Message> = tensors
            .iter()
            .map(|tensor| {
                let head = tensor.shape.iter().fold(Message::new(), |head, &dim| head.number(1, dim as i64));
                let head = head.number(2, type_number(tensor.dtype)).text(8, &tensor.name);
                if inside || tensor.is_small() {
                    return head.begin_bytes(9, tensor.bytes());
                }
                let entry = |key: &str, value: String| Message::new().text(1, key).text(2, &value);
                let head = head
                    .message(13, &entry("location", location.clone()))
                    .message(13, &entry("offset", first.to_string()))
                    .message(13, &entry("length", tensor.bytes().to_string()))
                    .number(14, 1);
                first += tensor.bytes();
                head
            })
            .collect();
        let graph =
            self.nodes.iter().fold(Message::new(), |graph, node| graph.message(1, node)).text(2, title);
        let graph = self.inputs.iter().fold(graph, |graph, input| graph.message(11, input));
        let graph = self.outputs.iter().fold(graph, |graph, output| graph.message(12, output));
        // Tensors are the last of the graph: what is before them is small.
        let begin = |head: &Message, tensor: &Tensor| {
            let bytes = if inside || tensor.is_small() { tensor.bytes() } else { 0 };
            (Message::new().begin_bytes(5, head.len() + bytes), bytes)
        };
        let length = heads.iter().zip(&tensors).fold(graph.len(), |length, (head, tensor)| {
            let (key, bytes) = begin(head, tensor);
            length + key.len() + head.len() + bytes
        });
        let model = Message::new()
            .number(1, IR_VERSION)
            .text(2, "plimsoll")
            .text(3, env!("CARGO_PKG_VERSION"))
            .message(8, &Message::new().text(1, "").number(2, OPSET))
            .begin_bytes(7, length);
        let mut file = WholeFile::create(path)?;
        let mut beside = if inside { None } else { Some(WholeFile::create(beside_path)?) };
        file.write(model.as_bytes())?;
        file.write(graph.as_bytes())?;
        for (head, tensor) in heads.iter().zip(&tensors) {
            file.write(begin(head, tensor).0.as_bytes())?;
            file.write(head.as_bytes())?;
            let beside = beside.as_mut().filter(|_| !tensor.is_small());
            tensor.write(weights, beside.unwrap_or(&mut file))?;
        }
        let beside = beside.map_or(Ok(0), WholeFile::publish)?;
        Ok([file.publish()?, beside])
    }
}

impl Tensor {
    /// Writes its bytes, in pieces.
    fn write(&self, weights: &TensorFile, file: &mut WholeFile) -> Result<()> {
        let (index, ours, order) = match &self.data {
            Data::Bytes(bytes) => return file.write(bytes),
            Data::Weight { index, ours, order } => (*index, ours, order),
        };
        let shared = SharedBox::from_ours(ours, order, 0, 1);
        let bytes = self.bytes() as usize;
        let mut room = vec![0; PIECE_BYTES.min(bytes)];
        for first in (0..bytes).step_by(PIECE_BYTES) {
            let piece = &mut room[..PIECE_BYTES.min(bytes - first)];
            let show = &mut |range, see: &mut dyn FnMut(usize, &[u8]) -> Result<()>| {
                show_tensor(weights, index, range, see)
            };
            shared.move_into(first / size_of::<f32>(), piece, DType::F32, Written::Instead, show)?;
            file.write(piece)?;
        }
        Ok(())
    }
}

/// A tensor from or for outside, with its type and shape.
fn described(name: &str, dtype: DType, dims: &[Dim]) -> Message {
    let shape = dims.iter().fold(Message::new(), |shape, dim| {
        let dim = match dim {
            Dim::Fixed(extent) => Message::new().number(1, *extent as i64),
            Dim::Samples(1) => Message::new().text(2, "samples"),
            Dim::Samples(times) => Message::new().text(2, &format!("{times}*samples")),
        };
        shape.message(1, &dim)
    });
    let tensor = Message::new().number(1, type_number(dtype)).message(2, &shape);
    Message::new().text(1, name).message(2, &Message::new().message(1, &tensor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_that_are_too_many_for_one_file_lie_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let [weights, inside, beside] =
            ["weights", "inside.onnx", "beside.onnx"].map(|name| folder.path().join(name));
        let header = r#"{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}"#;
        let values: Vec<u8> = (0..6).flat_map(|value| (value as f32).to_le_bytes()).collect();
        let length = (header.len() as u64).to_le_bytes();
        std::fs::write(&weights, [&length[..], header.as_bytes(), &values].concat()).unwrap();
        let weights = TensorFile::open(&weights).unwrap();
        let mut file = ModelFile::default();
        let unused = file.numbers("unused", &[1, 2, 3]);
        let number = file.constant("number", DType::F32, &[], 7.0_f32.to_le_bytes().to_vec());
        let weight = file.weight("w", 0, &[2, 3], &[1, 0]);
        let sum = file.node("scope", "Add", &[&weight, &number], &[]);
        file.output("y", &sum, DType::F32, &[Dim::Fixed(3), Dim::Fixed(2)]);
        let whole = file.write_with("model", &weights, &inside, 28).unwrap();
        let parts = file.write_with("model", &weights, &beside, 27).unwrap();
        assert_eq!((whole[1], parts[1]), (0, 24));
        let transposed = [0.0, 3.0, 1.0, 4.0, 2.0, 5.0_f32].map(f32::to_le_bytes).concat();
        assert_eq!(std::fs::read(folder.path().join("beside.onnx.data")).unwrap(), transposed);
        let text = |path: &Path| String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
        assert!(text(&beside).contains("beside.onnx.data") && !text(&inside).contains("location"));
        assert!(!text(&inside).contains(&unused));
        assert_eq!(std::fs::metadata(&inside).unwrap().len(), whole[0]);
    }

    #[test]
    fn names_are_given_once() {
        let mut file = ModelFile::default();
        let names = ["a", "a.2", "a", "a"].map(|wish| file.fresh(wish));
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), 4, "{names:?}");
    }
}

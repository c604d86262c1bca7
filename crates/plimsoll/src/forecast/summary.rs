//! A model layer by layer: what each makes, and what it takes of memory, as it is planned.
//!
//! A layer is a scope. Its weights, slots, gradients and activations are the buffers of the program that trains, so that the
//! sums are those of the forecast: what has no address, because it never leaves a kernel, takes nothing here either.

use crate::run::Compiled;
use crate::{Op, StateInfo, Step};
use plimsoll_graph::Program;
use plimsoll_graph::program::{Body, Role};
use plimsoll_memory::{Column, Table, format_bytes};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What the layers of a model take, in the order in which they are run.
#[derive(Debug, Clone)]
pub struct Summary {
    /// The layers; what belongs to none, such as the loss, comes last under an empty name.
    pub layers: Vec<LayerSummary>,
    /// The sums.
    pub total: LayerSummary,
    /// How many parts each step is run in: activations are those of a part.
    pub micro_batches: usize,
    /// Whether the run fits where it is to run, in a line: as [its forecast](crate::Forecast::answer) has it.
    pub answer: String,
    /// Whether it does; `None` where nothing says how much there is.
    pub fits: Option<bool>,
}

/// What a layer makes and takes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LayerSummary {
    /// Its scope.
    pub name: String,
    /// The extents of the last value that it makes of a whole batch.
    pub output: Option<Vec<usize>>,
    /// How many numbers an optimizer changes.
    pub parameters: u64,
    /// Bytes of weights, and of statistics that inference needs.
    pub weight_bytes: u64,
    /// Bytes that the optimizer remembers between steps.
    pub slot_bytes: u64,
    /// Bytes of gradients that have a place in memory: those that only an update reads, as it is made, have none.
    pub gradient_bytes: u64,
    /// Bytes of activations that are made on the way to the loss and kept for gradients.
    pub saved_bytes: u64,
}

impl Summary {
    /// Of a step as it was traced and as it is planned, with the states of its run, down to so many levels of scopes.
    pub(crate) fn new(step: &Step, compiled: &Compiled, states: &[StateInfo], depth: usize) -> Summary {
        let program = compiled.program.program();
        let mut layers = Layers::of_outputs(step, depth);
        for id in &program.states {
            let buffer = &program.buffers[id.index()];
            let bytes = buffer.bytes() as u64;
            let layer = layers.of(scope_of_state(&buffer.name));
            match buffer.role {
                Role::Parameter => layer.weight_bytes += bytes,
                Role::Optimizer => layer.slot_bytes += bytes,
                Role::Gradient => layer.gradient_bytes += bytes,
                _ => {}
            }
        }
        for state in states {
            if state.trainable {
                let layer = layers.of(scope_of_state(&state.name));
                layer.parameters += state.shape.iter().product::<usize>() as u64;
            }
        }
        let saved = saved(program);
        for (index, buffer) in program.buffers.iter().enumerate() {
            let is_state = program.states.iter().any(|state| state.index() == index);
            let layer = layers.of(buffer.name.rsplit_once(':').map_or("", |(scope, _)| scope));
            match buffer.role {
                Role::Gradient if !is_state => layer.gradient_bytes += buffer.bytes() as u64,
                Role::Activation if saved[index] => layer.saved_bytes += buffer.bytes() as u64,
                _ => {}
            }
        }
        let layers = layers.in_order();
        let mut total = LayerSummary { name: "total".into(), ..LayerSummary::default() };
        for layer in &layers {
            total.parameters += layer.parameters;
            total.weight_bytes += layer.weight_bytes;
            total.slot_bytes += layer.slot_bytes;
            total.gradient_bytes += layer.gradient_bytes;
            total.saved_bytes += layer.saved_bytes;
        }
        Summary { layers, total, micro_batches: 1, answer: String::new(), fits: None }
    }

    /// The summary as data.
    pub fn to_json(&self) -> Value {
        json!({
            "layers": self.layers.iter().map(LayerSummary::to_json).collect::<Vec<_>>(),
            "total": self.total.to_json(),
            "micro_batches": self.micro_batches,
            "fits": self.fits,
        })
    }

    /// The summary as a table of at most so many columns.
    pub fn to_text(&self, width: usize) -> String {
        use Column::{Cut, Right};
        let is_narrow = width < 92;
        let bytes = |bytes: u64| match is_narrow {
            true => format_bytes(bytes).replace(" ", "").replace("iB", ""),
            false => format_bytes(bytes),
        };
        let count = |n: u64| if is_narrow { short_count(n) } else { n.to_string() };
        let mut table = Table::new([Cut, Cut, Right, Right, Right, Right, Right]);
        let heads = ["layer", "output", "params", "weights", "slots", "grads", "saved"];
        table.row(heads.map(Into::into));
        for layer in self.layers.iter().chain([&self.total]) {
            let extents = layer.output.iter().flatten().map(usize::to_string).collect::<Vec<_>>();
            table.row([
                if layer.name.is_empty() { "(no layer)".into() } else { layer.name.as_str().into() },
                extents.join("×").into(),
                count(layer.parameters).into(),
                bytes(layer.weight_bytes).into(),
                bytes(layer.slot_bytes).into(),
                bytes(layer.gradient_bytes).into(),
                bytes(layer.saved_bytes).into(),
            ]);
        }
        table.to_text(width)
    }
}

impl LayerSummary {
    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "output": self.output,
            "parameters": self.parameters,
            "weight_bytes": self.weight_bytes,
            "slot_bytes": self.slot_bytes,
            "gradient_bytes": self.gradient_bytes,
            "saved_bytes": self.saved_bytes,
        })
    }

    fn is_empty(&self) -> bool {
        let LayerSummary { parameters, weight_bytes, slot_bytes, gradient_bytes, saved_bytes, .. } = *self;
        self.output.is_none() && [parameters, weight_bytes, slot_bytes, gradient_bytes, saved_bytes] == [0; 5]
    }
}

/// Layers as they are found, by the position at which each ends.
struct Layers {
    depth: usize,
    found: BTreeMap<String, (usize, LayerSummary)>,
}

impl Layers {
    /// The scopes in which a step computes its loss, with the shapes of what they make last.
    fn of_outputs(step: &Step, depth: usize) -> Layers {
        let mut layers = Layers { depth, found: BTreeMap::new() };
        let graph = &step.graph;
        let loss = step.outputs.first().map_or(0, |loss| graph.producer(loss.value).index());
        for (index, node) in graph.nodes().iter().enumerate().take(loss + 1) {
            let Some(result) = node.results().next() else { continue };
            if graph.scope(result).is_empty() || matches!(node.op, Op::Input { .. }) {
                continue;
            }
            let name = layers.name(graph.scope(result)).to_string();
            let (first, layer) = layers.found.entry(name.clone()).or_insert((index, LayerSummary::default()));
            *first = (*first).min(index);
            (layer.name, layer.output) = (name, Some(graph.shape(result).to_vec()));
        }
        layers
    }

    /// The first levels of a scope.
    fn name<'s>(&self, scope: &'s str) -> &'s str {
        let end = scope.match_indices('/').nth(self.depth.saturating_sub(1)).map(|(end, _)| end);
        &scope[..end.unwrap_or(scope.len())]
    }

    fn of(&mut self, scope: &str) -> &mut LayerSummary {
        let name = self.name(scope).to_string();
        let new = || (usize::MAX, LayerSummary { name: name.clone(), ..LayerSummary::default() });
        &mut self.found.entry(name.clone()).or_insert_with(new).1
    }

    fn in_order(self) -> Vec<LayerSummary> {
        let mut found: Vec<(usize, LayerSummary)> = self.found.into_values().collect();
        found.sort_by_key(|(position, layer)| (*position, layer.name.is_empty()));
        found.into_iter().map(|(_, layer)| layer).filter(|layer| !layer.is_empty()).collect()
    }
}

/// The layer of a state: `dense0` of `dense0/weight`, and of its slot `dense0/weight:mean`.
fn scope_of_state(name: &str) -> &str {
    let parameter = name.split_once(':').map_or(name, |(parameter, _)| parameter);
    parameter.rsplit_once('/').map_or("", |(scope, _)| scope)
}

/// Which buffers are written by kernels that what is reported depends on, and read by others: these are there for gradients.
fn saved(program: &Program) -> Vec<bool> {
    let mut needed = vec![false; program.buffers.len()];
    program.outputs.iter().for_each(|output| needed[output.index()] = true);
    let (mut written, mut saved) = (vec![false; needed.len()], vec![false; needed.len()]);
    for kernel in program.kernels.iter().rev() {
        let reads = kernel.reads.iter().map(|read| read.buffer.index());
        if kernel.writes.iter().any(|write| needed[write.buffer.index()]) {
            reads.for_each(|read| needed[read] = true);
            kernel.writes.iter().for_each(|write| written[write.buffer.index()] = true);
        } else if !matches!(kernel.body, Body::Copy | Body::Wait) {
            reads.for_each(|read| saved[read] = true);
        }
    }
    saved.iter().zip(written).map(|(&read, written)| read && written).collect()
}

/// A number with three digits or so: `124 M`.
fn short_count(count: u64) -> String {
    let (value, unit) = match count {
        0..10_000 => return count.to_string(),
        10_000..1_000_000 => (count as f64 / 1e3, "k"),
        1_000_000..1_000_000_000 => (count as f64 / 1e6, "M"),
        _ => (count as f64 / 1e9, "G"),
    };
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$}{unit}")
}

//! Graphs as text, as JSON and as drawings.
//!
//! A stage whose output cannot be read cannot be trusted. The text is for people and for diffs, JSON for
//! programs, and the drawing for Graphviz. All three take an op's attributes from its serialised form, so a new
//! op prints itself.

use crate::{Graph, Node, Op, ValueId};
use serde_json::{Map, Value, json};
use std::fmt::{self, Write};

/// One line for each node: its results, their types, the op on its operands, the attributes that the types do
/// not tell, and the scope.
///
/// ```
/// use plimsoll_graph::{DType, Graph};
/// let mut g = Graph::new();
/// let x = g.input("x", &[32, 784], DType::F32)?;
/// let w = g.input("w", &[10, 784], DType::F32)?;
/// g.scoped("dense", |g| g.dot_general(x, w, false, true))?;
/// assert_eq!(g.to_string().lines().last(), Some("%2 = f32[32, 10] dot(%0, %1) {transpose_b}  # dense"));
/// # Ok::<(), plimsoll_graph::Error>(())
/// ```
impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for node in self.nodes() {
            let results: Vec<ValueId> = node.results().collect();
            let types = join(&results, |f, value| write!(f, "{}", self.ty(*value)));
            let (names, operands) = (names(&results), names(&node.operands));
            write!(f, "{names} = {types} {}({operands})", node.op.name())?;
            let attributes = brief(&node.op);
            if !attributes.is_empty() {
                write!(f, " {{{}}}", attributes.join(", "))?;
            }
            match self.scope(results[0]) {
                "" => f.write_char('\n')?,
                scope => writeln!(f, "  # {scope}")?,
            }
        }
        Ok(())
    }
}

impl Graph {
    /// The graph as a JSON object: `nodes` in order, each with its `op`, `attributes`, `operands` (by value
    /// number), `results` (number, `dtype` and `shape`) and `scope`. Numbers that JSON does not have are the
    /// strings `"inf"`, `"-inf"` and `"NaN"`.
    pub fn to_json(&self) -> Value {
        let node = |node: &Node| {
            let results: Vec<Value> = node
                .results()
                .map(|value| json!({"id": value.0, "dtype": self.dtype(value), "shape": self.shape(value)}))
                .collect();
            json!({
                "op": node.op.name(),
                "attributes": attributes(&node.op),
                "operands": node.operands.iter().map(|operand| operand.0).collect::<Vec<u32>>(),
                "results": results,
                "scope": node.results().next().map_or("", |value| self.scope(value)),
            })
        };
        json!({"nodes": self.nodes().iter().map(node).collect::<Vec<Value>>()})
    }

    /// The graph in Graphviz's language: a box for each node, an arrow for each operand with its type.
    pub fn to_dot(&self) -> String {
        let mut out = String::from("digraph {\n  node [shape=box, fontname=\"monospace\"];\n");
        for (index, node) in self.nodes().iter().enumerate() {
            let scope = node.results().next().map_or("", |value| self.scope(value));
            let lines = [scope.to_string(), node.op.name().to_string(), brief(&node.op).join(", ")];
            let lines: Vec<String> = lines.into_iter().filter(|line| !line.is_empty()).map(escape).collect();
            writeln!(out, "  n{index} [label=\"{}\"];", lines.join("\\n")).expect("strings take all text");
            for &operand in &node.operands {
                let (from, ty) = (self.producer(operand).index(), self.ty(operand));
                writeln!(out, "  n{from} -> n{index} [label=\"{ty}\"];").expect("strings take all text");
            }
        }
        out.push_str("}\n");
        out
    }
}

fn escape(text: String) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

fn names(values: &[ValueId]) -> String {
    join(values, |f, value| write!(f, "%{}", value.0))
}

fn join<T>(items: &[T], item: impl Fn(&mut String, &T) -> fmt::Result) -> String {
    let mut out = String::new();
    for (i, it) in items.iter().enumerate() {
        out.push_str(if i == 0 { "" } else { ", " });
        item(&mut out, it).expect("strings take all text");
    }
    out
}

/// The attributes of an op, by name: the fields of its serialised form, those of nested parts among them.
fn attributes(op: &Op) -> Map<String, Value> {
    let mut found = Map::new();
    if let Ok(Value::Object(variant)) = serde_json::to_value(op) {
        variant.into_iter().for_each(|(_, fields)| flatten(fields, &mut found));
    }
    // JSON has no infinities, and masks are made of them.
    let value = match op {
        Op::Constant { value, .. } => Some(*value),
        Op::Pad(pad) => Some(pad.value),
        _ => None,
    };
    if let Some(value) = value.filter(|value| !value.is_finite()) {
        found.insert("value".into(), value.to_string().into());
    }
    found
}

/// Adds an object's fields. The variants of functions are bare strings; the op's name tells them already.
fn flatten(fields: Value, found: &mut Map<String, Value>) {
    let Value::Object(fields) = fields else { return };
    for (name, value) in fields {
        if value.is_object() {
            flatten(value, found);
        } else {
            found.insert(name, value);
        }
    }
}

/// The attributes in short: flags by name if set, others as `name=value`, without those that the op's name
/// and the type of its result tell.
fn brief(op: &Op) -> Vec<String> {
    // A gradient's result has the shape of the input, filter or table rows it is the gradient of.
    let told = |name: &str| matches!(name, "shape" | "dtype" | "kind" | "input" | "filter" | "rows");
    let text = |(name, value): (String, Value)| match value {
        Value::Bool(set) => set.then_some(name),
        Value::Array(items) => Some(format!("{name}=[{}]", join(&items, |f, item| write!(f, "{item}")))),
        Value::String(word) => Some(format!("{name}={word}")),
        value => Some(format!("{name}={value}")),
    };
    attributes(op).into_iter().filter(|(name, _)| !told(name)).filter_map(text).collect()
}

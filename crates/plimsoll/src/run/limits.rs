//! What the numbers of an input must be below, because something is looked up by them.
//!
//! A token beyond the vocabulary or a label beyond the classes would read what it should not, or become a loss that is no
//! number many steps later. Which inputs are looked up by follows from the graph, so every batch is looked at on the host
//! before a device sees it.

use crate::{DType, Error, ErrorKind, Result};
use plimsoll_graph::{Graph, Op, Step, ValueId};

/// A limit on the numbers of an input.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct InputLimit {
    pub(crate) name: Box<str>,
    pub(crate) shape: Vec<usize>,
    dtype: DType,
    bound: Bound,
}

/// What numbers must be below, and what for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bound {
    pub(crate) below: usize,
    /// Whether a negative number stands for none.
    pub(crate) may_be_negative: bool,
    /// The op and the scope that looks something up.
    pub(crate) user: String,
}

/// The limit of each of a step's inputs, where there is one.
pub(crate) fn input_limits(step: &Step) -> Vec<Option<InputLimit>> {
    let limits = step.inputs.iter().map(|input| {
        let ty = step.graph.ty(input.value);
        let bound = tightest(&step.graph, input.value)?;
        Some(InputLimit { name: input.name.clone(), shape: ty.shape.to_vec(), dtype: ty.dtype, bound })
    });
    limits.collect()
}

/// The tightest bound on the numbers of an integer value.
pub(crate) fn tightest(graph: &Graph, value: ValueId) -> Option<Bound> {
    if !matches!(graph.dtype(value), DType::I32 | DType::I64 | DType::U8) {
        return None;
    }
    // Numbers stay what they are through these.
    let mut same = vec![value];
    let mut bound: Option<Bound> = None;
    for node in graph.nodes() {
        let uses =
            |position: usize| node.operands.get(position).is_some_and(|operand| same.contains(operand));
        let found = match node.op {
            Op::Reshape { .. } | Op::Permute { .. } | Op::Slice(_) | Op::Cast { .. } if uses(0) => {
                let result = node.results().next();
                same.extend(result.filter(|&result| !graph.dtype(result).is_float()));
                None
            }
            Op::Gather if uses(1) => Some((graph.shape(node.operands[0])[0], false)),
            Op::CrossEntropy if uses(1) => {
                graph.shape(node.operands[0]).last().map(|&classes| (classes, true))
            }
            _ => None,
        };
        let Some((below, may_be_negative)) = found else { continue };
        let scope = node.results().next().map_or("", |result| graph.scope(result));
        let place = if scope.is_empty() { String::new() } else { format!(" of `{scope}`") };
        let new = Bound { below, may_be_negative, user: format!("{}{place}", node.op.name()) };
        if bound.as_ref().is_none_or(|bound| new.below < bound.below) {
            bound = Some(new);
        }
    }
    bound
}

/// How many labels are not negative.
pub(crate) fn count_labels(dtype: DType, bytes: &[u8]) -> usize {
    match dtype {
        DType::I32 => {
            bytes.as_chunks::<4>().0.iter().filter(|&&label| i32::from_ne_bytes(label) >= 0).count()
        }
        DType::I64 => {
            bytes.as_chunks::<8>().0.iter().filter(|&&label| i64::from_ne_bytes(label) >= 0).count()
        }
        _ => bytes.len() / dtype.size(),
    }
}

impl InputLimit {
    /// Refuses bytes with a number that is out of range: the error names its position in an array of the input's shape.
    pub(crate) fn check(&self, bytes: &[u8]) -> Result<()> {
        self.check_shaped(&self.shape, bytes)
    }

    /// Refuses bytes with a number that is out of range: the error names its position in an array of that shape.
    pub(crate) fn check_shaped(&self, shape: &[usize], bytes: &[u8]) -> Result<()> {
        let found = match self.dtype {
            DType::I32 => {
                self.bound.find(bytes.as_chunks::<4>().0.iter().map(|&b| i64::from(i32::from_ne_bytes(b))))
            }
            DType::I64 => self.bound.find(bytes.as_chunks::<8>().0.iter().map(|&b| i64::from_ne_bytes(b))),
            _ => self.bound.find(bytes.iter().map(|&b| i64::from(b))),
        };
        match found {
            None => Ok(()),
            Some((position, number)) => Err(self.bound.error(&self.name, shape, position, number)),
        }
    }
}

impl Bound {
    /// The first number that is out of range, and its position.
    pub(crate) fn find(&self, mut numbers: impl Iterator<Item = i64>) -> Option<(usize, i64)> {
        let below = self.below as i64;
        let wrong = |number: i64| number >= below || (number < 0 && !self.may_be_negative);
        let mut first = None;
        numbers
            .position(|number| {
                let wrong = wrong(number);
                first = Some(number);
                wrong
            })
            .zip(first)
    }

    /// The error about a number that is out of range.
    pub(crate) fn error(&self, name: &str, shape: &[usize], position: usize, number: i64) -> Error {
        let mut rest = position;
        let mut index: Vec<usize> = shape
            .iter()
            .rev()
            .map(|&extent| {
                let along = rest % extent.max(1);
                rest /= extent.max(1);
                along
            })
            .collect();
        index.reverse();
        let message = format!(
            "`{name}`{index:?} is {number}: {} takes 0 to {}{}; look at how the data was encoded",
            self.user,
            self.below.saturating_sub(1),
            if self.may_be_negative { ", or negative numbers for none" } else { "" }
        );
        Error::new(ErrorKind::Data, message)
    }
}

//! The ledger: what bytes are for. Its lines always sum to its total.

use crate::bytes::format_bytes;
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::fmt;

/// What bytes are for: the lines of a [`Ledger`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Category {
    /// Weights, and statistics that inference needs.
    Parameters,
    /// Gradients of parameters.
    Gradients,
    /// What an optimizer remembers between steps.
    Optimizer,
    /// Values between the first op and the last.
    Activations,
    /// What a kernel needs while it runs.
    Workspace,
    /// Batches from outside.
    Inputs,
    /// Numbers that are reported.
    Metrics,
    /// The state of random numbers.
    Random,
    /// Alignment, and holes between buffers.
    Padding,
}

impl Category {
    /// All categories, in the order of a ledger's lines.
    pub const ALL: [Category; 9] = [
        Category::Parameters,
        Category::Gradients,
        Category::Optimizer,
        Category::Activations,
        Category::Workspace,
        Category::Inputs,
        Category::Metrics,
        Category::Random,
        Category::Padding,
    ];

    /// The name, as printed and as a JSON key.
    pub const fn name(self) -> &'static str {
        match self {
            Category::Parameters => "parameters",
            Category::Gradients => "gradients",
            Category::Optimizer => "optimizer",
            Category::Activations => "activations",
            Category::Workspace => "workspace",
            Category::Inputs => "inputs",
            Category::Metrics => "metrics",
            Category::Random => "random",
            Category::Padding => "padding",
        }
    }
}

/// Bytes by category.
///
/// ```
/// use plimsoll_memory::{Category, Ledger};
/// let mut ledger = Ledger::default();
/// ledger.add(Category::Parameters, 1000);
/// ledger.close(1024); // what is not accounted for is padding
/// assert_eq!(ledger.get(Category::Padding), 24);
/// assert_eq!(ledger.total(), 1024);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ledger {
    bytes: [u64; Category::ALL.len()],
}

impl Ledger {
    /// Adds bytes to a line.
    pub fn add(&mut self, category: Category, bytes: u64) {
        self.bytes[category as usize] += bytes;
    }

    /// The bytes of a line.
    pub fn get(&self, category: Category) -> u64 {
        self.bytes[category as usize]
    }

    /// The sum of all lines.
    pub fn total(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// Books what is missing to `total` as padding, so that the lines sum to it.
    pub fn close(&mut self, total: u64) {
        let missing = total.saturating_sub(self.total());
        self.add(Category::Padding, missing);
    }

    /// The lines, in order.
    pub fn lines(&self) -> impl Iterator<Item = (Category, u64)> {
        Category::ALL.into_iter().zip(self.bytes)
    }
}

impl Serialize for Ledger {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(Category::ALL.len()))?;
        for (category, bytes) in self.lines() {
            map.serialize_entry(category.name(), &bytes)?;
        }
        map.end()
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total().max(1);
        for (category, bytes) in self.lines().filter(|&(_, bytes)| bytes > 0) {
            let share = bytes as f64 / total as f64;
            let bar = "█".repeat((share * 30.0).round() as usize);
            writeln!(
                f,
                "  {:<12}{:>10}  {:>5.1} %  {bar}",
                category.name(),
                format_bytes(bytes),
                100.0 * share
            )?;
        }
        Ok(())
    }
}

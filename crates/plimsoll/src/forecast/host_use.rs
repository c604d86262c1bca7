//! What a run on a GPU takes of the host: pinned memory, which the system may neither move nor give to others.

use plimsoll_memory::format_bytes;
use serde_json::{Value, json};
use std::fmt;

/// The pinned memory of the host that a run on a GPU takes, by what it is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostUse {
    /// States that rest there between their uses: parameters, gradients that are added up, optimizers' slots.
    pub state_bytes: u64,
    /// Activations and other values of a step that go there and come back in it.
    pub activation_bytes: u64,
    /// Inputs and results of the steps that are under way.
    pub staging_bytes: u64,
}

impl HostUse {
    /// All of it.
    pub fn bytes(&self) -> u64 {
        let parts = [self.state_bytes, self.activation_bytes, self.staging_bytes];
        parts.into_iter().fold(0, u64::saturating_add)
    }

    /// The parts as data.
    pub fn to_json(&self) -> Value {
        json!({
            "state_bytes": self.state_bytes,
            "activation_bytes": self.activation_bytes,
            "staging_bytes": self.staging_bytes,
        })
    }
}

impl fmt::Display for HostUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.state_bytes, "states"),
            (self.activation_bytes, "activations"),
            (self.staging_bytes, "staging of inputs and results"),
        ];
        let parts = parts.into_iter().filter(|(bytes, _)| *bytes > 0);
        let parts: Vec<String> = parts.map(|(bytes, of)| format!("{} {of}", format_bytes(bytes))).collect();
        write!(f, "{} pinned ({})", format_bytes(self.bytes()), parts.join(", "))
    }
}

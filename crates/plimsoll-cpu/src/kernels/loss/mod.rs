//! Losses, and their gradients.

pub(crate) mod cross_entropy;
pub(crate) mod projected_cross_entropy;

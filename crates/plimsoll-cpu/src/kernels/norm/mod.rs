//! Normalisation, and its gradients.

pub(crate) mod batch_norm;
pub(crate) mod layer_norm;

//! The kernels, one module for each kind.

pub(crate) mod attention;
pub(crate) mod fused;
pub(crate) mod gather;
pub(crate) mod loss;
mod memory;
pub(crate) mod movement;
pub(crate) mod norm;
pub(crate) mod pool2d;
pub(crate) mod product;
pub(crate) mod recurrent;
pub(crate) mod reduce;
mod summation;
mod tasks;

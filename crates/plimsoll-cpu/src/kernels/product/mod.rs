//! Matrix products and convolutions as kernels, with and without an epilogue, and products inside other kernels.

pub(crate) mod conv2d;
pub(crate) mod dot;
pub(crate) mod epilogue;
pub(crate) mod matrix;

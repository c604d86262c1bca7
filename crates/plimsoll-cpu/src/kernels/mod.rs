//! The kernels, one module for each kind.

pub(crate) mod attention;
pub(crate) mod attention_grad;
pub(crate) mod batch_norm;
mod common;
pub(crate) mod conv2d;
pub(crate) mod cross_entropy;
pub(crate) mod dot;
pub(crate) mod epilogue;
pub(crate) mod fused;
pub(crate) mod gather;
pub(crate) mod layer_norm;
mod matrix;
pub(crate) mod movement;
pub(crate) mod pool2d;
pub(crate) mod projected_cross_entropy;
pub(crate) mod recurrent;
pub(crate) mod reduce;
mod summation;

#[cfg(test)]
mod harness;
#[cfg(test)]
mod scalar;
#[cfg(test)]
mod testing;

use crate::pool::Pool;
use std::ops::Range;

/// Splits `pieces` of work among the threads, or does it here if it is little.
pub(crate) fn share(pool: &Pool, pieces: usize, small: bool, work: &(dyn Fn(Range<usize>) + Sync)) {
    let tasks = if small { 1 } else { pieces.min(pool.threads() * 4) };
    if tasks <= 1 {
        return work(0..pieces);
    }
    pool.run(tasks, &|_, task| work(pieces * task / tasks..pieces * (task + 1) / tasks));
}

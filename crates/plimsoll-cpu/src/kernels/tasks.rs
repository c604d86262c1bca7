//! How work is cut into tasks for the threads.
//!
//! Results must not depend on the thread count: where a cut decides the order of a sum, it is by the shapes alone.

use crate::runtime::Pool;
use std::ops::Range;

/// Calls `task` for ranges of at most `step` items that make up `0..items`, and for the worker that runs it.
pub(crate) fn each_range(
    pool: &Pool,
    items: usize,
    step: usize,
    task: &(dyn Fn(usize, Range<usize>) + Sync),
) {
    pool.run(items.div_ceil(step), &|worker, index| {
        task(worker, index * step..items.min((index + 1) * step))
    });
}

/// How many rows of `width` elements make a task worth handing to a thread.
pub(crate) fn rows_per_task(width: usize) -> usize {
    (16 * 1024 / width.max(1)).max(1)
}

/// Splits `pieces` of work among the threads, or does it here if it is little.
pub(crate) fn share(pool: &Pool, pieces: usize, small: bool, work: &(dyn Fn(Range<usize>) + Sync)) {
    let tasks = if small { 1 } else { pieces.min(pool.threads() * 4) };
    if tasks <= 1 {
        return work(0..pieces);
    }
    pool.run(tasks, &|_, task| work(pieces * task / tasks..pieces * (task + 1) / tasks));
}

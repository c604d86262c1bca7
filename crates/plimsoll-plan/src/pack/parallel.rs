//! Jobs on a few threads, with the results in the order of the jobs.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// More threads than this are not worth their memory: attempts beyond the first few rarely decide.
const MAX_THREADS: usize = 4;
/// The searches recurse once per item.
const STACK_BYTES: usize = 16 << 20;

/// Runs `job` for each number below `jobs`, lower numbers first.
pub(super) fn map<T: Send>(jobs: usize, job: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<T>>> = (0..jobs).map(|_| Mutex::new(None)).collect();
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(result) = results.get(number) else { break };
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(job(number));
        }
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS).min(jobs);
        let spawn = |_| thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work).is_ok();
        // Where no thread is to be had, this one does the work.
        if (0..threads).map(spawn).filter(|&spawned| spawned).count() == 0 {
            work();
        }
    });
    results
        .into_iter()
        .filter_map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner))
        .collect()
}

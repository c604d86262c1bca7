//! A fixed set of threads that share the tasks of one kernel at a time.
//!
//! A training step is some dozens of kernels of a few microseconds to a few milliseconds each, run one after
//! another. General-purpose pools queue, steal and allocate; this one hands a borrowed closure to threads that
//! are still spinning from the kernel before, claims tasks from one counter, and allocates nothing. Threads that
//! find no work for a while go to sleep, and a kernel never waits for a sleeper that has not joined it.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long an idle worker looks for the next kernel before it sleeps.
const SPIN: Duration = Duration::from_micros(50);

/// The closure of one parallel-for: called with the worker's index and the task's index.
type Task<'a> = dyn Fn(usize, usize) + Sync + 'a;

/// A pool of threads, of which the caller is one.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Pool {
    /// A pool of `threads` threads (at least one): the caller and `threads - 1` workers. All of them run when it returns: a
    /// thread allocates as it starts, which is not to happen in the middle of what uses the pool.
    ///
    /// # Errors
    ///
    /// When the system refuses to start a thread.
    pub fn new(threads: usize) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(threads.saturating_sub(1)));
        let mut pool = Self { shared, workers: Vec::new() };
        for index in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let builder = thread::Builder::new().name(format!("plimsoll-{index}"));
            pool.workers.push(builder.spawn(move || shared.serve(index))?);
        }
        while pool.shared.started.load(Ordering::Acquire) < pool.workers.len() {
            thread::yield_now();
        }
        Ok(pool)
    }

    /// The number of threads, the caller included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `task(worker, index)` once for every `index < tasks` and returns when all calls have returned.
    ///
    /// `worker` is below [`threads`](Self::threads) and is never held by two calls of one `run` at a time, so it
    /// can select a slice of workspace. The order of the tasks and the worker of each are not defined.
    ///
    /// A pool that is busy, because a task of it calls `run` again or another thread uses it, runs the tasks
    /// on the calling thread as worker 0.
    ///
    /// # Panics
    ///
    /// With the first panic of a task, after all running tasks have ended; unclaimed tasks are not run.
    pub fn run(&self, tasks: usize, task: &Task<'_>) {
        if tasks <= 1 || self.workers.is_empty() || self.shared.busy.swap(true, Ordering::Acquire) {
            (0..tasks).for_each(|index| task(0, index));
            return;
        }
        self.shared.publish(tasks, task);
        for (worker, sleeper) in self.workers.iter().zip(&self.shared.asleep).take(tasks - 1) {
            if sleeper.load(Ordering::SeqCst) {
                worker.thread().unpark();
            }
        }
        self.shared.work(0, tasks, task);
        self.shared.close();
        let panic = self.shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.shared.busy.store(false, Ordering::Release);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker catches the panics of its tasks, so it has none of its own to report.
            let _ = worker.join();
        }
    }
}

/// The job in progress: the closure, with its lifetime erased, and the number of its tasks.
#[derive(Clone, Copy)]
struct Job {
    tasks: usize,
    task: *const Task<'static>,
}

/// The gate's low bits count the workers inside a job, this bit says that more may enter, and the bits above it
/// number the jobs. One compare-and-swap therefore enters a given job or fails, however late the worker is.
const OPEN: u64 = 1 << 31;
const NEXT_JOB: u64 = 1 << 32;

struct Shared {
    gate: AtomicU64,
    job: std::cell::UnsafeCell<Option<Job>>,
    next: AtomicUsize,
    busy: AtomicBool,
    /// How many workers run.
    started: AtomicUsize,
    stop: AtomicBool,
    asleep: Vec<AtomicBool>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `job` is written only by the thread that holds `busy`, while the gate is closed and no worker is inside;
// it is read only by workers that entered the gate after it was opened with release ordering.
unsafe impl Sync for Shared {}
// SAFETY: the pointer in `job` is to a `Sync` closure and is followed only while `run` borrows it.
unsafe impl Send for Shared {}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("busy", &self.busy).finish_non_exhaustive()
    }
}

impl Shared {
    fn new(workers: usize) -> Self {
        Self {
            gate: AtomicU64::new(0),
            job: std::cell::UnsafeCell::new(None),
            next: AtomicUsize::new(0),
            busy: AtomicBool::new(false),
            started: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            asleep: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            panic: Mutex::new(None),
        }
    }

    /// Opens the gate on a new job. The caller holds `busy`.
    fn publish(&self, tasks: usize, task: &Task<'_>) {
        let task: *const Task<'_> = task;
        // SAFETY: only the lifetime changes. `run` does not return before `close` has seen every worker leave,
        // so the pointer is not followed after the borrow ends.
        let task = unsafe { std::mem::transmute::<*const Task<'_>, *const Task<'static>>(task) };
        // SAFETY: the gate is closed and empty, so nobody reads `job`; `busy` keeps other writers out.
        unsafe { *self.job.get() = Some(Job { tasks, task }) };
        self.next.store(0, Ordering::Relaxed);
        let job = (self.gate.load(Ordering::Relaxed) & !(NEXT_JOB - 1)).wrapping_add(NEXT_JOB);
        // Sequentially consistent, with the load of `asleep` that follows: either this thread sees the worker
        // asleep and wakes it, or the worker sees the open gate and does not sleep.
        self.gate.store(job | OPEN, Ordering::SeqCst);
    }

    /// Claims and runs tasks until none is left.
    fn work(&self, worker: usize, tasks: usize, task: &Task<'_>) {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            loop {
                let index = self.next.fetch_add(1, Ordering::Relaxed);
                if index >= tasks {
                    break;
                }
                task(worker, index);
            }
        }));
        if let Err(panic) = outcome {
            self.next.store(tasks, Ordering::Relaxed);
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
        }
    }

    /// Lets no more workers in and waits for those inside.
    fn close(&self) {
        self.gate.fetch_and(!OPEN, Ordering::Relaxed);
        let mut turns = 0u32;
        while self.gate.load(Ordering::Acquire) & (OPEN - 1) != 0 {
            turns += 1;
            // A worker that the system has taken off its core needs one to finish on.
            if turns.is_multiple_of(1 << 10) { thread::yield_now() } else { std::hint::spin_loop() }
        }
    }

    /// The life of a worker: wait for a job it has not seen, enter it, work, leave.
    fn serve(&self, worker: usize) {
        self.started.fetch_add(1, Ordering::Release);
        let mut seen = 0;
        while let Some(gate) = self.wait(worker, seen) {
            if self.gate.compare_exchange(gate, gate + 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
                continue;
            }
            seen = gate >> 32;
            // SAFETY: inside the gate, `job` was published and is not written again before this worker leaves.
            if let Some(Job { tasks, task }) = unsafe { *self.job.get() } {
                // SAFETY: `run` keeps the closure borrowed until this worker has left the gate.
                self.work(worker, tasks, unsafe { &*task });
            }
            self.gate.fetch_sub(1, Ordering::Release);
        }
    }

    /// The state of the gate once it is open on a job other than `seen`, or nothing when the pool is dropped.
    fn wait(&self, worker: usize, seen: u64) -> Option<u64> {
        let asleep = &self.asleep[worker - 1];
        let mut since = Instant::now();
        let mut turns = 0u32;
        loop {
            let gate = self.gate.load(Ordering::SeqCst);
            if gate & OPEN != 0 && gate >> 32 != seen {
                asleep.store(false, Ordering::Relaxed);
                return Some(gate);
            }
            if self.stop.load(Ordering::SeqCst) {
                return None;
            }
            if asleep.load(Ordering::Relaxed) {
                thread::park();
                asleep.store(false, Ordering::Relaxed);
                since = Instant::now();
            } else {
                turns += 1;
                std::hint::spin_loop();
                // Announce the sleep, then look at the gate once more before sleeping.
                if turns.is_multiple_of(1 << 6) && since.elapsed() > SPIN {
                    asleep.store(true, Ordering::SeqCst);
                }
            }
        }
    }
}

//! The thread pool: every task once, on a worker of its own, whatever the tasks do.

use plimsoll_cpu::pool::Pool;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

/// Counts the calls of every task of one run.
fn counts(pool: &Pool, tasks: usize) -> Vec<usize> {
    let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
    pool.run(tasks, &|_, task| {
        counts[task].fetch_add(1, Ordering::Relaxed);
    });
    counts.into_iter().map(AtomicUsize::into_inner).collect()
}

#[test]
fn every_task_runs_exactly_once() {
    for threads in [0, 1, 2, 3, 8] {
        let pool = Pool::new(threads).unwrap();
        assert_eq!(pool.threads(), threads.max(1));
        for tasks in [0, 1, 2, 3, 7, 100, 1000] {
            assert_eq!(counts(&pool, tasks), vec![1; tasks]);
        }
    }
}

#[test]
fn many_short_runs_lose_no_task_and_see_each_other_in_order() {
    let pool = Pool::new(4).unwrap();
    let total = AtomicUsize::new(0);
    for run in 0..20_000 {
        let tasks = run % 7;
        let before = total.load(Ordering::Relaxed);
        pool.run(tasks, &|_, _| {
            total.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(total.load(Ordering::Relaxed), before + tasks);
    }
}

#[test]
fn runs_after_a_pause_wake_the_sleeping_workers() {
    let pool = Pool::new(3).unwrap();
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(2));
        // All three tasks have to be under way at once to pass the barrier.
        let barrier = Barrier::new(3);
        pool.run(3, &|_, _| {
            barrier.wait();
        });
    }
}

#[test]
fn no_two_tasks_hold_a_worker_index_at_the_same_time() {
    let pool = Pool::new(4).unwrap();
    let held: Vec<AtomicBool> = (0..4).map(|_| AtomicBool::new(false)).collect();
    for _ in 0..200 {
        pool.run(50, &|worker, _| {
            assert!(!held[worker].swap(true, Ordering::Acquire));
            std::hint::spin_loop();
            held[worker].store(false, Ordering::Release);
        });
    }
}

#[test]
fn a_run_within_a_run_is_done_by_the_thread_that_asks() {
    let pool = Pool::new(3).unwrap();
    let total = AtomicUsize::new(0);
    pool.run(10, &|_, _| {
        let asking = std::thread::current().id();
        pool.run(10, &|worker, _| {
            assert_eq!((worker, std::thread::current().id()), (0, asking));
            total.fetch_add(1, Ordering::Relaxed);
        });
    });
    assert_eq!(total.into_inner(), 100);
}

#[test]
fn threads_that_share_a_pool_do_not_wait_for_each_other() {
    let pool = Arc::new(Pool::new(2).unwrap());
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let pool = Arc::clone(&pool);
            std::thread::spawn(move || (0..500).for_each(|_| assert_eq!(counts(&pool, 20), vec![1; 20])))
        })
        .collect();
    callers.into_iter().for_each(|caller| caller.join().unwrap());
}

#[test]
fn a_panic_of_any_task_reaches_the_caller_and_leaves_the_pool_usable() {
    for threads in [1, 2, 4] {
        let pool = Pool::new(threads).unwrap();
        for bad in 0..20 {
            let run = || pool.run(20, &|_, task| assert!(task != bad, "task {task} fails"));
            let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
            let message = panic.downcast_ref::<String>().unwrap();
            assert_eq!(message, &format!("task {bad} fails"));
            assert_eq!(counts(&pool, 20), vec![1; 20]);
        }
    }
}

#[test]
fn a_panic_waits_for_the_tasks_that_are_under_way() {
    let pool = Pool::new(2).unwrap();
    let (both, done) = (Barrier::new(2), AtomicBool::new(false));
    let run = || {
        pool.run(2, &|_, task| {
            both.wait();
            assert!(task != 0, "the first task fails");
            std::thread::sleep(Duration::from_millis(20));
            done.store(true, Ordering::Release);
        });
    };
    assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
    assert!(done.load(Ordering::Acquire));
}

#[test]
fn pools_start_and_stop_at_once() {
    for threads in 0..50 {
        let pool = Pool::new(threads % 5).unwrap();
        if threads % 2 == 0 {
            assert_eq!(counts(&pool, 5), vec![1; 5]);
        }
    }
}

//! Records made ahead: how much memory they take, and when a thread makes them.

use plimsoll_data::{Dataset, Depth, Element, Field, Record, Result, Workers};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

/// Records of one number, made one after the other by a function that takes its time, with the threads that made them.
fn made(count: usize, pause: Duration) -> Result<(Dataset, Arc<Mutex<Vec<ThreadId>>>)> {
    let threads = Arc::new(Mutex::new(vec![]));
    let fields = [Field::new("x", Element::I32, &[])?];
    let source = Dataset::from_function(&fields, count, |sample, out| out.set("x", &[], &[sample as i32]))?;
    let by = Arc::clone(&threads);
    let made = source.map(Workers::Threads(0), &fields, move |from, to| {
        by.lock().unwrap().push(std::thread::current().id());
        std::thread::sleep(pause);
        to.copy_from(from);
        Ok(())
    })?;
    Ok((made, threads))
}

#[test]
fn a_record_that_was_used_is_the_next_that_is_filled() -> Result<()> {
    let (data, _) = made(200, Duration::ZERO)?;
    let mut records = data.prefetch(Depth::Records(1)).records(0)?;
    let (mut addresses, mut record) = (BTreeSet::new(), Record::new(&data.fields().into()));
    for expected in 0..200 {
        assert!(records.read_into(&mut record)?);
        assert_eq!(record.get::<i32>("x")?, [expected]);
        addresses.insert(record.bytes(0).as_ptr() as usize);
    }
    // The one that is made, and the one that is used.
    assert_eq!(addresses.len(), 2);
    Ok(())
}

#[test]
fn a_thread_makes_records_once_both_sides_have_waited_for_each_other() -> Result<()> {
    let (data, threads) = made(60, Duration::from_millis(1))?;
    let own = std::thread::current().id();
    let mut records = data.prefetch(Depth::Auto).records(0)?;
    for expected in 0..60 {
        let Some(record) = records.read()? else { panic!("{expected} is missing") };
        assert_eq!(record.get::<i32>("x")?, [expected]);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(records.read()?.is_none());
    let threads = threads.lock().unwrap();
    // Until it has cost time, the caller needs no other.
    assert_eq!(threads[0], own);
    assert_ne!(*threads.last().unwrap(), own);
    let report = records.report();
    assert!(report.stages.last().is_some_and(|stage| stage.depth > 0), "{report}");
    Ok(())
}

#[test]
fn a_position_is_the_same_before_and_after_a_thread_has_started() -> Result<()> {
    let (data, _) = made(60, Duration::from_millis(1))?;
    let ahead = data.prefetch(Depth::Auto);
    for stop in [0, 1, 2, 30, 60] {
        let mut records = ahead.records(0)?;
        for _ in 0..stop {
            records.read()?;
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut rest = ahead.records_from(&records.position())?;
        let mut left = vec![];
        while let Some(record) = rest.read()? {
            left.extend_from_slice(record.get::<i32>("x")?);
        }
        assert_eq!(left, (stop..60).collect::<Vec<_>>());
    }
    Ok(())
}

//! Reads files of one run and prints what they hold: what a reader costs, without what explaining costs.

use plimsoll_explain::{Progress, read_files};
use std::path::PathBuf;
use std::time::Instant;

#[expect(clippy::print_stdout, reason = "printing is all it is for")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let start = Instant::now();
    let recording = read_files(&paths, &Progress::default())?;
    let seconds = start.elapsed().as_secs_f64();
    println!("{:?} of {} in {seconds:.3} s", recording.origin.formats, recording.origin.framework.name());
    for gap in &recording.origin.gaps {
        println!("  gap: {gap}");
    }
    for device in &recording.devices {
        println!("{}: {} owners, failure {:?}", device.name, device.owners.count(), device.failure);
        if let Some(layout) = &device.layout {
            let (reserved, live) = (layout.reserved_bytes(), layout.live_bytes());
            let (segments, pieces) = (layout.segments.len(), layout.pieces().count());
            println!("  {segments} segments, {pieces} pieces, {reserved} B reserved, {live} B live");
        }
        if let Some(trace) = &device.trace {
            let (events, requests, initial) = (trace.events.len(), trace.requests.len(), trace.initial.len());
            println!("  {events} events, {requests} requests, {initial} of them before the first event");
            let (peak, complete) = (trace.peak_live().0, trace.complete);
            println!("  peak of {peak} B live, complete: {complete}");
        }
    }
    Ok(())
}

//! Order on a device: streams, the events between them, and graphs of work that is launched as one.

use crate::driver::device::Shared;
use crate::error::Result;
use cudarc::driver::sys::{CUdeviceptr, CUevent, CUgraph, CUgraphExec, CUstream, CUstreamCaptureMode};
use std::ptr;
use std::sync::Arc;

/// Does not wait for the stream that all others wait for.
const NON_BLOCKING: u32 = 1;
/// An event without a time is recorded and waited for faster.
const WITHOUT_TIME: u32 = 2;
/// An event that work outside of the graph waits for.
const OUTSIDE: u32 = 1;

/// A queue of work; one piece runs after another.
pub(crate) struct Stream {
    shared: Arc<Shared>,
    pub(crate) stream: CUstream,
}

/// A mark in a stream.
pub(crate) struct Event {
    shared: Arc<Shared>,
    event: CUevent,
}

/// Work that was captured, ready to be launched as one.
pub(crate) struct Graph {
    shared: Arc<Shared>,
    graph: CUgraphExec,
}

macro_rules! handle {
    ($name:ident, $field:ident, $destroy:ident) => {
        // SAFETY: the handle is only given to the driver, which may be called from any thread.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}

        impl Drop for $name {
            fn drop(&mut self) {
                _ = self.shared.with_context(|driver| {
                    // SAFETY: it was made in this context and is used no more; the driver keeps what still runs
                    // until it has. A failure means that the driver is shutting down.
                    unsafe { (driver.functions.$destroy)(self.$field) };
                    Ok(())
                });
            }
        }
    };
}
handle!(Stream, stream, stream_destroy);
handle!(Event, event, event_destroy);
handle!(Graph, graph, graph_exec_destroy);

impl Stream {
    pub(crate) fn new(shared: &Arc<Shared>) -> Result<Stream> {
        shared.with_context(|driver| {
            let mut stream = ptr::null_mut();
            // SAFETY: the pointer is to a live pointer.
            let code = unsafe { (driver.functions.stream_create)(&mut stream, NON_BLOCKING) };
            driver.check(code, || format!("make a stream on {}", shared.id))?;
            Ok(Stream { shared: shared.clone(), stream })
        })
    }

    /// Waits until all that was enqueued is done.
    ///
    /// # Errors
    /// If any of it failed: an address that nothing is mapped behind, say.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.shared.with_context(|driver| {
            // SAFETY: the stream lives.
            let code = unsafe { (driver.functions.stream_synchronize)(self.stream) };
            driver.check(code, || format!("finish work on {}", self.shared.id))
        })
    }

    /// Enqueues a copy of so many bytes from the host to the device. Unless the host's memory is pinned, the driver has read
    /// it when this returns.
    ///
    /// # Safety
    /// Both must be valid for so many bytes until the copy has run, and nothing else may write them meanwhile.
    pub(crate) unsafe fn copy_to_device(&self, to: CUdeviceptr, from: *const u8, bytes: usize) -> Result<()> {
        self.shared.with_context(|driver| {
            // SAFETY: as the caller vouches.
            let code =
                unsafe { (driver.functions.copy_to_device_async)(to, from.cast(), bytes, self.stream) };
            driver.check(code, || format!("copy {bytes} bytes to {}", self.shared.id))
        })
    }

    /// Enqueues a copy of so many bytes from the device to the host.
    ///
    /// # Safety
    /// Both must be valid for so many bytes until the copy has run, and what is copied to may not be used before.
    pub(crate) unsafe fn copy_to_host(&self, to: *mut u8, from: CUdeviceptr, bytes: usize) -> Result<()> {
        self.shared.with_context(|driver| {
            // SAFETY: as the caller vouches.
            let code = unsafe { (driver.functions.copy_to_host_async)(to.cast(), from, bytes, self.stream) };
            driver.check(code, || format!("copy {bytes} bytes from {}", self.shared.id))
        })
    }

    /// What is enqueued from here on begins after the event.
    pub(crate) fn wait(&self, event: &Event) -> Result<()> {
        self.shared.with_context(|driver| {
            // SAFETY: both live, and are of this context.
            let code = unsafe { (driver.functions.stream_wait_event)(self.stream, event.event, 0) };
            driver.check(code, || format!("wait for an event on {}", self.shared.id))
        })
    }

    /// Makes a graph of what `work` enqueues on this stream, and on others that wait for it, instead of running it.
    /// Other streams must have been waited for when it returns.
    pub(crate) fn capture(&self, work: impl FnOnce() -> Result<()>) -> Result<Graph> {
        let shared = &self.shared;
        shared.with_context(|driver| {
            let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            // SAFETY: the stream lives.
            let code = unsafe { (driver.functions.stream_begin_capture)(self.stream, mode) };
            driver.check(code, || format!("begin a graph on {}", shared.id))?;
            let done = work();
            let mut captured: CUgraph = ptr::null_mut();
            // SAFETY: the stream is capturing, and the pointer is to a live pointer.
            let code = unsafe { (driver.functions.stream_end_capture)(self.stream, &mut captured) };
            let ended = driver.check(code, || format!("end a graph on {}", shared.id));
            let mut graph: CUgraphExec = ptr::null_mut();
            let made = done.and(ended).and_then(|()| {
                // SAFETY: the graph was captured above, and the pointer is to a live pointer.
                let code = unsafe { (driver.functions.graph_instantiate)(&mut graph, captured, 0) };
                driver.check(code, || format!("make a graph ready on {}", shared.id))
            });
            if !captured.is_null() {
                // SAFETY: it is used no more; what was made ready is a copy.
                unsafe { (driver.functions.graph_destroy)(captured) };
            }
            made.map(|()| Graph { shared: shared.clone(), graph })
        })
    }
}

impl Event {
    pub(crate) fn new(shared: &Arc<Shared>) -> Result<Event> {
        Event::with(shared, WITHOUT_TIME)
    }

    /// An event that notes when it was passed.
    pub(crate) fn timed(shared: &Arc<Shared>) -> Result<Event> {
        Event::with(shared, 0)
    }

    fn with(shared: &Arc<Shared>, flags: u32) -> Result<Event> {
        shared.with_context(|driver| {
            let mut event = ptr::null_mut();
            // SAFETY: the pointer is to a live pointer.
            let code = unsafe { (driver.functions.event_create)(&mut event, flags) };
            driver.check(code, || format!("make an event on {}", shared.id))?;
            Ok(Event { shared: shared.clone(), event })
        })
    }

    /// Marks the end of what is enqueued on a stream so far.
    pub(crate) fn record(&self, stream: &Stream) -> Result<()> {
        self.shared.with_context(|driver| {
            // SAFETY: both live, and are of this context.
            let code = unsafe { (driver.functions.event_record)(self.event, stream.stream) };
            driver.check(code, || format!("record an event on {}", self.shared.id))
        })
    }

    /// Marks the end of what was captured on a stream so far: every launch of the graph records the event, for work
    /// outside of it to wait for.
    pub(crate) fn record_in_graph(&self, stream: &Stream) -> Result<()> {
        self.shared.with_context(|driver| {
            // SAFETY: both live, and are of this context.
            let code =
                unsafe { (driver.functions.event_record_with_flags)(self.event, stream.stream, OUTSIDE) };
            driver.check(code, || format!("record an event in a graph on {}", self.shared.id))
        })
    }

    /// Waits until the event is passed; it is if it was never recorded.
    pub(crate) fn wait(&self) -> Result<()> {
        self.shared.with_context(|driver| {
            // SAFETY: the event lives.
            let code = unsafe { (driver.functions.event_synchronize)(self.event) };
            driver.check(code, || format!("wait for an event on {}", self.shared.id))
        })
    }

    /// The milliseconds from this event to a later one, once both are passed.
    pub(crate) fn milliseconds_to(&self, end: &Event) -> Result<f32> {
        end.wait()?;
        self.shared.with_context(|driver| {
            let mut milliseconds = 0.0;
            // SAFETY: both events live and have times, and the pointer is to a live number.
            let code =
                unsafe { (driver.functions.event_elapsed_time)(&mut milliseconds, self.event, end.event) };
            driver.check(code, || format!("time work on {}", self.shared.id))?;
            Ok(milliseconds)
        })
    }
}

impl Graph {
    /// Enqueues all of the graph.
    ///
    /// # Safety
    /// The addresses that its work uses must be valid until it has run.
    pub(crate) unsafe fn launch(&self, stream: &Stream) -> Result<()> {
        self.shared.with_context(|driver| {
            // SAFETY: both live, and the caller vouches for what is in the graph.
            let code = unsafe { (driver.functions.graph_launch)(self.graph, stream.stream) };
            driver.check(code, || format!("launch a graph on {}", self.shared.id))
        })
    }
}

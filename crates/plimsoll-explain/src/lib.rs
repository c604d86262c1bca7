//! Why is my memory full? Readers of what TensorFlow, JAX, PyTorch, Plimsoll and other programs leave behind, closed
//! books on the device's memory, verdicts with proofs, and advice that was tested by replay.
//!
//! One direction: files are read (`read/`) into a [`Recording`]; what follows from it (`analyse/`) and what to change
//! (`advise/`) make an [`Explanation`], which is shown (`view/`). Nothing here runs models or touches a device.

mod advise;
mod analyse;
mod error;
mod explain;
mod explanation;
mod moment;
mod program;
mod read;
mod recording;
mod sign;
mod text;
mod view;

pub use advise::{Planned, planned};
pub use analyse::call_site::call_site;
pub use analyse::usage::curve;
pub use error::{Error, ErrorKind, Result};
pub use explain::explain;
pub use explanation::{Advice, BookLine, Books, Explanation, Verdict, VerdictKind};
pub use moment::{CallSite, Curve, Fragmentation, Moment, MomentKind, Peak, SiteUsage, Snapshot, Timeline};
pub use program::{Backend, Job, Platform, Program, Server};
pub use read::{Input, Limits, Progress, read_files, read_files_within, read_input};
pub use recording::{Device, Failure, Format, Framework, Origin, PoolPicture, Recording};
pub use sign::{Sign, SignKind};
pub use view::{Style, show, write_html};

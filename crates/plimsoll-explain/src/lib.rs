//! Why is my memory full? Readers of what TensorFlow, JAX, PyTorch and Plimsoll programs leave behind, closed
//! books on the device's memory, verdicts with proofs, and advice that was tested by replay.
//!
//! One direction: files are read into a [`Recording`], which is explained as an [`Explanation`], which is
//! shown. Nothing here runs models or touches a device.

mod advice;
mod books;
mod error;
mod explain;
mod facts;
mod history;
mod html;
mod input;
mod join;
mod json;
mod moment;
mod planned;
mod read;
mod recording;
mod report;
mod show;
mod site;
mod steps;
mod usage;
mod verdict;

pub use error::{Error, ErrorKind, Result};
pub use explain::explain;
pub use html::write_html;
pub use input::{Input, Progress};
pub use moment::{Fragmentation, Moment, MomentKind, Peak, Snapshot, Timeline};
pub use planned::{Planned, planned};
pub use read::{read_files, read_input};
pub use recording::{Device, Failure, Format, Framework, Origin, Recording};
pub use report::{Advice, BookLine, Books, Explanation, Verdict, VerdictKind};
pub use show::{Style, show};
pub use site::{Site, plain, site};
pub use usage::{Curve, SiteUsage, curve};

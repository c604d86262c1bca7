//! What follows from a recording: a trace is walked once, the facts of one moment are derived from it, and books and
//! verdicts are drawn from those facts alone.

pub(crate) mod books;
pub(crate) mod call_site;
pub(crate) mod facts;
pub(crate) mod history;
mod rebuild_layout;
pub(crate) mod steps;
pub(crate) mod usage;
pub(crate) mod verdict;

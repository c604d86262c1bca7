//! The views of an explanation: for people at a terminal, for other programs, and as a page to explore.
//!
//! A view prints what the explanation holds and finds nothing out by itself, so that all views say the same.

mod html;
mod json;
mod terminal;

pub use html::write_html;
pub use terminal::{Style, show};

//! Elementary functions that give the same bits on every machine.
//!
//! The system's mathematics library differs between machines, and within one machine between processors. A
//! plan may move a computation, and a test may compare two devices, so the functions are here. Those of
//! [`single`] precision have no branches and no calls, so that a loop over them becomes vector code for
//! whatever instruction set it is compiled for; they multiply and add, and never fuse the two, so that the
//! instruction set does not show in the result. Those of [`double`] precision are scalar.

pub(crate) mod double;
pub(crate) mod single;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod ulps;

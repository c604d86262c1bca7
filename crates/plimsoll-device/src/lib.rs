//! What a device is, whichever it is.
//!
//! A [`Device`] has two halves. What plans must know: alignment, workspaces, which rewrites pay there. And what runs
//! need: memory to reserve, programs to load into it and run, and what the driver counts. A device that is known by its
//! profile alone, a [`ProfiledDevice`], has the first half only, so that plans can be made for machines that are not
//! here.
//!
//! Only a [`CheckedProgram`] can be loaded: a program with a plan that the independent checker has run on paper. That is
//! what `unsafe` code in devices relies on. Eager mode runs programs without a plan; [`check_unplanned`] vouches for those.
//! What is relied on beside, of memory and its pools, [`selftest`] tries where it runs.

mod books;
mod checked;
mod device;
mod error;
mod loaded;
mod nontemporal_copy;
mod profiled;
pub mod selftest;
pub mod staging;
mod unplanned;

pub use books::Books;
pub use checked::CheckedProgram;
pub use device::{
    ArenaBytes, Device, DeviceMemory, FillInput, Handle, InputRefused, PIECE_BYTES, PlanningTraits, SelfTest,
    WritePiece,
};
pub use error::{Error, ErrorKind, Result};
pub use loaded::{LoadedPrograms, in_pieces};
pub use nontemporal_copy::write_nontemporal;
pub use profiled::ProfiledDevice;
pub use staging::Staging;
pub use unplanned::{check_unplanned, describe, last_uses, owner, workspace_owner};

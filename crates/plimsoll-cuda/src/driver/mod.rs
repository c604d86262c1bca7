//! The NVIDIA driver, and what it hands out: devices, memory, streams.
//!
//! Everything here is a safe wrapper of one kind of handle or address. Nothing knows of kernels or programs; what does
//! is in the rooms above, and reaches the device through these types alone.

pub(crate) mod address_book;
pub(crate) mod copy;
pub(crate) mod device;
pub(crate) mod devices;
pub(crate) mod functions;
pub(crate) mod library;
pub(crate) mod pinned;
pub(crate) mod scratch;
pub(crate) mod source;
pub(crate) mod stream;
pub(crate) mod tensor_map;

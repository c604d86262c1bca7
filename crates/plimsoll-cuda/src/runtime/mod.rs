//! How programs run on the device.

mod eager;

pub(crate) use eager::Eager;

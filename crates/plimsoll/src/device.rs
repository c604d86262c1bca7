//! The device that training runs on, by name, as workload files and command lines have it.

use crate::{Error, ErrorKind, Result};
use plimsoll_cuda::DeviceId;
use std::fmt;
use std::str::FromStr;

/// A device of this machine to train on: `cpu`, or `cuda:` and a number.
///
/// ```
/// use plimsoll::{Device, DeviceId};
/// assert_eq!("cpu".parse::<Device>()?, Device::Cpu);
/// assert_eq!("cuda:1".parse::<Device>()?, Device::Cuda(DeviceId(1)));
/// assert_eq!(Device::Cuda(DeviceId(1)).to_string(), "cuda:1");
/// let error = "gpu".parse::<Device>().unwrap_err();
/// assert!(error.to_string().contains("cpu, cuda:0"), "{error}");
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Device {
    /// The CPU.
    #[default]
    Cpu,
    /// A CUDA device, by the driver's count.
    Cuda(DeviceId),
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(id) => id.fmt(f),
        }
    }
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(name: &str) -> Result<Device> {
        if name == "cpu" {
            return Ok(Device::Cpu);
        }
        name.parse().map(Device::Cuda).map_err(|_| {
            let message = format!(
                "there is no device `{name}` to run on; there are: cpu, cuda:0, cuda:1 and so on, of which \
                 `plimsoll devices --cuda` lists those of this machine"
            );
            Error::new(ErrorKind::Name, message)
        })
    }
}

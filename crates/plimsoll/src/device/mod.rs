//! The devices of this machine, by name, and opening them.
//!
//! Each kind of device is a crate, and one entry of the table here: nothing else in the workspace asks which it is.

pub mod profiles;
pub(crate) mod target;
mod visible;

use crate::{Error, ErrorKind, Precision, Result};
use plimsoll_cpu::CpuDevice;
use plimsoll_cuda::{CudaDevice, DeviceId};
use plimsoll_device::Device;
use std::fmt;
use std::rc::Rc;
use std::str::FromStr;

/// A kind of device.
struct Backend {
    /// What its names begin with: `cuda:0`.
    name: &'static str,
    /// Whether there may be several, so that names have a number.
    numbered: bool,
    /// The device of that number. `host` is the machine's threads.
    open: fn(number: u16, host: &CpuDevice, precision: Precision) -> Result<Rc<dyn Device>>,
    /// The devices of this kind that are here.
    list: fn() -> Result<Vec<DeviceInfo>>,
}

/// All kinds of devices.
static BACKENDS: [Backend; 2] = [
    Backend { name: "cpu", numbered: false, open: open_cpu, list: list_cpu },
    Backend { name: "cuda", numbered: true, open: open_cuda, list: list_cuda },
];

fn open_cpu(_: u16, host: &CpuDevice, _: Precision) -> Result<Rc<dyn Device>> {
    Ok(Rc::new(host.clone()))
}

fn list_cpu() -> Result<Vec<DeviceInfo>> {
    Ok(vec![DeviceInfo {
        name: DeviceName::default(),
        about: "this machine's processor".into(),
        total_bytes: None,
        details: vec![],
    }])
}

fn open_cuda(number: u16, _: &CpuDevice, precision: Precision) -> Result<Rc<dyn Device>> {
    let device = CudaDevice::open(DeviceId(number))?;
    if precision == Precision::Tf32 {
        device.allow_tf32(true)?;
    }
    Ok(Rc::new(device))
}

fn list_cuda() -> Result<Vec<DeviceInfo>> {
    let (major, minor) = plimsoll_cuda::driver_version()?;
    let info = |device: plimsoll_cuda::DeviceInfo| DeviceInfo {
        name: DeviceName { backend: 1, number: device.id.0 },
        about: device.name,
        total_bytes: Some(device.total_bytes),
        details: vec![
            ("driver", format!("CUDA {major}.{minor}")),
            ("capability", format!("{}.{}", device.capability.0, device.capability.1)),
            (
                "free_bytes",
                match device.free_bytes {
                    Ok(bytes) => bytes.to_string(),
                    Err(error) => error.to_string(),
                },
            ),
            ("virtual_memory", device.virtual_memory.to_string()),
            ("granularity_bytes", device.granularity_bytes.to_string()),
        ],
    };
    Ok(plimsoll_cuda::devices()?.into_iter().map(info).collect())
}

/// A device of this machine, by name: `cpu`, or `cuda:` and a number. Whether it is here is seen when it is opened.
///
/// ```
/// use plimsoll::DeviceName;
/// assert_eq!("cpu".parse::<DeviceName>()?, DeviceName::default());
/// assert_eq!("cuda:1".parse::<DeviceName>()?.to_string(), "cuda:1");
/// let error = "gpu".parse::<DeviceName>().unwrap_err();
/// assert!(error.to_string().contains("cpu, cuda:0"), "{error}");
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct DeviceName {
    /// The kind, by its position in the table.
    backend: usize,
    number: u16,
}

/// A device that is here.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceInfo {
    /// What to call it.
    pub name: DeviceName,
    /// What it is.
    pub about: String,
    /// All of its memory, where a driver says.
    pub total_bytes: Option<u64>,
    /// What else its driver says, by name.
    pub details: Vec<(&'static str, String)>,
}

impl DeviceName {
    /// Whether it is the machine's own processor.
    pub(crate) fn is_cpu(&self) -> bool {
        self.backend == 0
    }
}

/// The devices that are here and may be used, kind by kind; where a kind has none to show, why.
///
/// Where `PLIMSOLL_VISIBLE_DEVICES` is set, only the GPUs that it names, as in `cuda:0,cuda:2` or `0,2`, may be.
pub fn here() -> Vec<(&'static str, Result<Vec<DeviceInfo>>)> {
    let seen = |found: Vec<DeviceInfo>| -> Result<Vec<DeviceInfo>> {
        found
            .into_iter()
            .filter_map(|device| match visible::check(&device.name) {
                Err(hidden) if hidden.kind() == ErrorKind::Device => None,
                checked => Some(checked.map(|()| device)),
            })
            .collect()
    };
    BACKENDS.iter().map(|backend| (backend.name, (backend.list)().and_then(seen))).collect()
}

/// The variables that hide GPUs, with what they say, where they are set: ours, and the one of the CUDA driver, which numbers
/// those that it shows from 0.
pub fn hidden_by() -> Vec<(&'static str, String)> {
    let of_driver = || std::env::var_os(CUDA_VARIABLE).map(|value| value.to_string_lossy().into_owned());
    let ours = visible::said().map(|said| (visible::VARIABLE, said));
    ours.into_iter().chain(of_driver().map(|said| (CUDA_VARIABLE, said))).collect()
}

/// What the CUDA driver is told by which devices to show.
const CUDA_VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

/// Opens a device.
///
/// # Errors
/// If it is not here, hidden, or cannot be used.
pub(crate) fn open(name: &DeviceName, host: &CpuDevice, precision: Precision) -> Result<Rc<dyn Device>> {
    visible::check(name)?;
    (BACKENDS[name.backend].open)(name.number, host, precision)
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Backend { name, numbered, .. } = BACKENDS[self.backend];
        if numbered { write!(f, "{name}:{}", self.number) } else { f.write_str(name) }
    }
}

impl FromStr for DeviceName {
    type Err = Error;

    fn from_str(text: &str) -> Result<DeviceName> {
        let found = BACKENDS.iter().enumerate().find_map(|(backend, of)| match of.numbered {
            false => (text == of.name).then_some(DeviceName { backend, number: 0 }),
            true => {
                let number = text.strip_prefix(of.name)?.strip_prefix(':')?;
                let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
                digits.then(|| number.parse().ok()).flatten().map(|number| DeviceName { backend, number })
            }
        });
        found.ok_or_else(|| {
            let message = format!(
                "there is no device `{text}` to run on; there are: cpu, cuda:0, cuda:1 and so on, of which \
                 `plimsoll devices --here` lists those of this machine"
            );
            Error::new(ErrorKind::Name, message)
        })
    }
}

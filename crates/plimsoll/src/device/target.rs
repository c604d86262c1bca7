//! What a run is planned for: a device that is here, or one that is only known by its profile.

use crate::forecast::device_use::DeviceUse;
use crate::forecast::host_use::HostUse;
use crate::run::Settings;
use crate::{Error, ErrorKind, Precision, Result, device, devices};
use plimsoll_cpu::CpuDevice;
use plimsoll_device::{Device, PlanningTraits, ProfiledDevice, Staging};
use plimsoll_graph::{Program, Step, lower, stage_inputs};
use plimsoll_memory::{SpillFile, machine_bytes};
use plimsoll_plan::{Copies, Effort, Offload, Options, Profile};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};

/// Logits of fewer bytes are not worth making some rows at a time, however little memory there is.
pub(crate) const LEAST_LOGITS: usize = 1 << 20;

/// The name of the profile of the machine that runs.
pub(crate) const CPU: &str = "cpu";

/// A device to plan for, what is known of its times, and the host's threads.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) device: Rc<dyn Device>,
    pub(crate) traits: PlanningTraits,
    pub(crate) profile: Profile,
    /// Whether its times were measured.
    pub(crate) is_measured: bool,
    /// The bytes of its memory that may be taken, where that is known.
    pub(crate) memory_bytes: Option<u64>,
    /// The most bytes that may be pinned of a GPU's host, if that is bounded.
    pub(crate) host_budget: Option<u64>,
    /// Whether what does not fit goes to a file, as fast as its disk was found to be.
    pub(crate) spills: bool,
    /// How long to look for better plans of each program, beyond what is done in any case.
    pub(crate) plan_seconds: f64,
    /// What prepares inputs and draws first weights; the device itself where that is the CPU.
    pub(crate) host: CpuDevice,
}

impl Target {
    /// The device that a run is to be planned for.
    ///
    /// # Errors
    /// If it cannot be had, or nothing is known of its times.
    pub(crate) fn open(settings: &Settings, precision: Precision) -> Result<Target> {
        let mut host = CpuDevice::new(settings.threads)?.winograd(!settings.without_winograd);
        let elsewhere =
            settings.profile.as_ref().filter(|profile| profile.name != CPU && settings.device.is_cpu());
        let (device, profile): (Rc<dyn Device>, Profile) = match elsewhere {
            Some(profile) => {
                let complete = devices::completed(profile.clone())?;
                (Rc::new(ProfiledDevice::new(complete)), profile.clone())
            }
            None => {
                let measured = match &settings.spill {
                    Some(folder) => Some(spill_bandwidth(folder, &settings.device)?),
                    None => None,
                };
                if let Some(folder) = &settings.spill {
                    host = host.spill_to(folder);
                }
                let device = device::open(&settings.device, &host, precision)?;
                let mut profile = match &settings.profile {
                    Some(profile) => profile.clone(),
                    None => devices::of_device(&*device, &settings.device)?,
                };
                if let Some(bandwidth) = measured {
                    profile.copies = Copies { bandwidth, latency_seconds: SPILL_LATENCY, overlap: true };
                }
                (device, profile)
            }
        };
        let is_measured = devices::is_measured(&profile);
        let profile = devices::completed(profile)?;
        let traits = device.planning_traits();
        let all = if device.name() == CPU { machine_bytes() } else { Some(profile.memory_bytes) };
        let memory_bytes = all.into_iter().chain(settings.limit).min();
        if device.name() == CPU && settings.host_budget.is_some() {
            return Err(Error::new(ErrorKind::Argument, NO_HOST));
        }
        Ok(Target {
            device,
            traits,
            profile,
            is_measured,
            memory_bytes,
            host_budget: settings.host_budget,
            spills: settings.spill.is_some(),
            plan_seconds: settings.plan_seconds,
            host,
        })
    }

    /// Whether runs take the memory of this process: the CPU's do.
    pub(crate) fn is_process(&self) -> bool {
        self.device.name() == CPU
    }

    /// What a run takes of the host of a GPU: so many bytes of states and, with these, so many of an arena for what rests there,
    /// and what its programs stage. On the CPU, nothing: what rests elsewhere is in a file.
    pub(crate) fn host_use(&self, states: u64, arena: u64, staging: Staging) -> HostUse {
        if self.is_process() {
            return HostUse::default();
        }
        HostUse {
            state_bytes: states.min(arena),
            activation_bytes: arena.saturating_sub(states),
            staging_bytes: staging.bytes(),
        }
    }

    /// What may rest elsewhere between its uses.
    pub(crate) fn offload(&self) -> Offload {
        if self.traits.rests_elsewhere { Offload::ValuesAndStates } else { Offload::Nothing }
    }

    /// What the device's driver will count as taken, once an arena of so many bytes is reserved and steps of so many kernels
    /// in all are loaded. It is asked before that, when what kernels need has been asked for, so that libraries and code are
    /// there. `None` where no driver counts, or what it takes is not known.
    ///
    /// # Errors
    /// If the driver does not say what is taken.
    pub(crate) fn device_use(&self, arena: u64, kernels: u64) -> Result<Option<DeviceUse>> {
        let books = self.device.books()?;
        Ok(books.map(|books| DeviceUse::new(arena, kernels, books.used_bytes, books.page_bytes)))
    }

    /// The kernels of a step. Where inputs are copied to the device they have a place of their own there, so that those
    /// of the next step come in while this one runs.
    pub(crate) fn lower(&self, step: &Step) -> Program {
        let program = lower(step);
        if self.traits.stages_inputs { stage_inputs(program) } else { program }
    }

    /// How to plan for it.
    pub(crate) fn options(&self) -> Options {
        let PlanningTraits { alignment, group_bytes, .. } = self.traits;
        Options { alignment, effort: Effort::default(), together_bytes: group_bytes }
    }
}

/// Why a CPU has no budget of the host.
const NO_HOST: &str = "a host budget bounds the memory of the host that training on a GPU pins, and there is none on the CPU: there \
                       `budget` bounds RAM, and with `spill` what does not fit is in a file; leave the host budget out, or \
                       name a GPU";

/// The time that a copy of nothing takes to a file and back: a wake of the thread that copies, and two calls.
const SPILL_LATENCY: f64 = 20e-6;

/// The bytes a second that what is spilled to a folder takes, to a power of two: a plan is to be the same again. A folder is
/// measured once.
fn spill_bandwidth(folder: &Path, device: &crate::DeviceName) -> Result<f64> {
    if !device.is_cpu() {
        let message =
            format!("only the CPU spills to a folder; on {device} what does not fit rests on the host");
        return Err(Error::new(ErrorKind::Argument, message));
    }
    static MEASURED: Mutex<BTreeMap<PathBuf, f64>> = Mutex::new(BTreeMap::new());
    let mut measured = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(&known) = measured.get(folder) {
        return Ok(known);
    }
    let bandwidth = SpillFile::bandwidth(folder)
        .map_err(|error| Error::new(ErrorKind::File, error.to_string()).caused_by(error))?;
    let rounded = 2f64.powf(bandwidth.log2().floor());
    measured.insert(folder.to_path_buf(), rounded);
    Ok(rounded)
}

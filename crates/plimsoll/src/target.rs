//! What plans are made for: a device that is here, or one that is only known by its profile.

use crate::compile::work_with;
use crate::device_use::DeviceUse;
use crate::machine::{CpuMachine, CudaMachine, Machine};
use crate::{Error, ErrorKind, Result};
use plimsoll_cpu::CpuDevice;
use plimsoll_cuda::CudaDevice;
use plimsoll_graph::program::{Body, Kernel};
use plimsoll_graph::{Op, Program, Step, lower, stage_inputs};
use plimsoll_plan::{Effort, Options, Profile, Work};

/// Logits of fewer bytes are not worth making some rows at a time, however little memory there is.
pub(crate) const LEAST_LOGITS: usize = 1 << 20;

/// On a GPU a copy of a parameter is made at the beginning of the step, and a gradient waits for its end, where they have
/// at most so many bytes: copies are launched together, and updates. What is kept of such a parameter at all times is
/// mostly several times as much.
const SMALL: u64 = 64 << 10;

/// A device to plan for.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) profile: Profile,
    /// How long to look for better plans of each step, beyond what is done in any case.
    pub(crate) plan_seconds: f64,
    /// The device itself, where it is at hand to be asked.
    device: Device,
}

#[derive(Clone)]
enum Device {
    Cpu(CpuDevice),
    Cuda(CudaDevice),
    Elsewhere,
}

impl Target {
    /// The CPU, with rates and bandwidths from its profile.
    pub(crate) fn cpu(device: CpuDevice, profile: Profile, plan_seconds: f64) -> Target {
        Target { profile, plan_seconds, device: Device::Cpu(device) }
    }

    /// A CUDA device of this machine, with rates and bandwidths from its profile.
    pub(crate) fn cuda(device: CudaDevice, profile: Profile, plan_seconds: f64) -> Target {
        Target { profile, plan_seconds, device: Device::Cuda(device) }
    }

    /// A device that is known by its profile alone.
    pub(crate) fn described(profile: Profile, plan_seconds: f64) -> Target {
        Target { profile, plan_seconds, device: Device::Elsewhere }
    }

    /// The device with so many bytes reserved on it and on the host, the former within `limit`.
    ///
    /// # Errors
    /// If it is only known by its profile, or has not so many.
    pub(crate) fn machine(&self, bytes: [u64; 2], limit: Option<u64>) -> Result<Box<dyn Machine>> {
        match &self.device {
            Device::Cpu(device) => Ok(Box::new(CpuMachine::new(device.clone(), bytes, limit)?)),
            Device::Cuda(device) => Ok(Box::new(CudaMachine::new(device.clone(), bytes, limit)?)),
            Device::Elsewhere => {
                let message =
                    format!("plans for {} cannot run here: name a device that is", self.profile.name);
                Err(Error::new(ErrorKind::Argument, message))
            }
        }
    }

    /// What the device's driver will count as taken, once an arena of so many bytes is reserved and steps of so many kernels
    /// in all are loaded. It is asked before that, when what kernels need has been asked for, so that libraries and code are
    /// there. `None` where no driver counts, or what it takes is not known.
    ///
    /// # Errors
    /// If the driver does not say what is taken.
    pub(crate) fn device_use(&self, arena: u64, kernels: u64) -> Result<Option<DeviceUse>> {
        /// The pages of most CUDA devices.
        const PAGE: u64 = 2 << 20;
        let (taken, page) = match &self.device {
            Device::Cuda(device) => (device.books()?.used_bytes, device.granularity_bytes()?),
            Device::Elsewhere if self.profile.context_bytes > 0 => (self.profile.context_bytes, PAGE),
            _ => return Ok(None),
        };
        Ok(Some(DeviceUse::new(arena, kernels, taken, page)))
    }

    /// The threads of the host, for what is done there: the CPU's own where that is the device.
    ///
    /// # Errors
    /// If the system does not start them.
    pub(crate) fn host(&self, threads: Option<usize>) -> Result<CpuDevice> {
        match &self.device {
            Device::Cpu(device) => Ok(device.clone()),
            _ => Ok(CpuDevice::new(threads)?),
        }
    }

    /// The kernels of a step. Where inputs are copied to the device they have a place of their own there, so that those
    /// of the next step come in while this one runs.
    pub(crate) fn lower(&self, step: &Step) -> Program {
        match self.device {
            Device::Cpu(_) => lower(step),
            _ => stage_inputs(lower(step)),
        }
    }

    /// Whether memory is dear: remedies that cost next to nothing are then taken without a budget.
    pub(crate) fn memory_is_dear(&self) -> bool {
        !matches!(self.device, Device::Cpu(_))
    }

    /// From how many bytes on logits are better made some rows at a time in any case. On a CPU smaller ones stay in a
    /// cache from the kernel that makes them to those that use them, and the whole weight's gradient can be handed on to
    /// its update. On a GPU those of a chunk can have rows that begin at addresses its tensor cores take, and are all the
    /// time in a part of memory that does not grow with the batch.
    pub(crate) fn logits_to_chunk(&self) -> usize {
        match self.device {
            Device::Cpu(_) => 24 << 20,
            _ => LEAST_LOGITS,
        }
    }

    /// What the planner sees of a program.
    ///
    /// # Errors
    /// If the device has no kernel for something in it.
    pub(crate) fn work(&self, program: &Program) -> Result<Work> {
        if let Device::Cuda(device) = &self.device {
            device.compile(program)?;
        }
        let of = |kernels: &[Kernel]| kernels.iter().map(|k| self.workspace(k)).collect::<Result<Vec<u64>>>();
        Ok(work_with(program, [of(&program.kernels)?, of(&program.rematerializations)?]))
    }

    /// The scratch bytes a kernel needs.
    fn workspace(&self, kernel: &Kernel) -> Result<u64> {
        match &self.device {
            Device::Cpu(device) => Ok(device.workspace(kernel)),
            Device::Cuda(device) => Ok(device.workspace(kernel)?),
            Device::Elsewhere => Ok(self.usual_workspace(kernel)),
        }
    }

    /// The scratch bytes that a kernel is taken to need on a device that cannot be asked.
    fn usual_workspace(&self, kernel: &Kernel) -> u64 {
        match &kernel.body {
            Body::Op(
                Op::Dot { .. }
                | Op::Conv2d(_)
                | Op::Conv2dInputGrad { .. }
                | Op::Conv2dFilterGrad { .. }
                | Op::Lstm
                | Op::LstmGrad
                | Op::Gru
                | Op::GruGrad,
            ) => self.profile.workspace_bytes,
            // The logits of the rows that are worked on at once, and sums of the weight's gradient.
            Body::Op(Op::ProjectedCrossEntropy { chunk, .. }) => {
                let classes = kernel.writes[3].view.shape.elements() / kernel.reads[0].view.shape[1].max(1);
                let size = kernel.reads[0].dtype.size();
                let sums = if size < 4 { 4 * kernel.writes[3].view.shape.elements() } else { 0 };
                self.profile.workspace_bytes + (chunk * classes * size + sums) as u64
            }
            // The op's result, where no library hands it on.
            Body::WithEpilogue(then) => {
                self.profile.workspace_bytes + (then.shape.elements() * then.dtype.size()) as u64
            }
            _ => 0,
        }
    }

    /// How to plan for it.
    pub(crate) fn options(&self) -> Options {
        let (alignment, together_bytes) = match self.device {
            // What was just made is in a cache.
            Device::Cpu(_) => (plimsoll_cpu::ALIGNMENT as u64, 0),
            Device::Cuda(_) => (plimsoll_cuda::ALIGNMENT, SMALL),
            Device::Elsewhere => (self.profile.alignment, SMALL),
        };
        Options { alignment, effort: Effort::default(), together_bytes }
    }
}

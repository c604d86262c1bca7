//! What plans are made for: a device that is here, or one that is only known by its profile.

use crate::{Error, ErrorKind, Result};
use plimsoll_cpu::{ALIGNMENT, CpuDevice};
use plimsoll_graph::Op;
use plimsoll_graph::program::{Body, Kernel};
use plimsoll_plan::{Effort, Options, Profile};

/// A device to plan for.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) profile: Profile,
    /// How long to look for better plans of each step, beyond what is done in any case.
    pub(crate) plan_seconds: f64,
    /// The device itself, where it is at hand to be asked.
    cpu: Option<CpuDevice>,
}

impl Target {
    /// The CPU, with rates and bandwidths from its profile.
    pub(crate) fn cpu(device: CpuDevice, profile: Profile, plan_seconds: f64) -> Target {
        Target { profile, plan_seconds, cpu: Some(device) }
    }

    /// A device that is known by its profile alone.
    pub(crate) fn described(profile: Profile, plan_seconds: f64) -> Target {
        Target { profile, plan_seconds, cpu: None }
    }

    /// The device, to run on.
    ///
    /// # Errors
    /// If it is only known by its profile.
    pub(crate) fn device(&self) -> Result<CpuDevice> {
        let message = || format!("plans for {} cannot run here: only those for cpu can", self.profile.name);
        self.cpu.clone().ok_or_else(|| Error::new(ErrorKind::Argument, message()))
    }

    /// The scratch bytes a kernel needs.
    pub(crate) fn workspace(&self, kernel: &Kernel) -> u64 {
        match (&self.cpu, &kernel.body) {
            (Some(device), _) => device.workspace(kernel),
            (
                None,
                Body::Op(
                    Op::Dot { .. }
                    | Op::Conv2d(_)
                    | Op::Conv2dInputGrad { .. }
                    | Op::Conv2dFilterGrad { .. }
                    | Op::Lstm
                    | Op::LstmGrad
                    | Op::Gru
                    | Op::GruGrad,
                ),
            ) => self.profile.workspace_bytes,
            // The logits of the rows that are worked on at once, and sums of the weight's gradient.
            (None, Body::Op(Op::ProjectedCrossEntropy { chunk, .. })) => {
                let classes = kernel.writes[3].view.shape.elements() / kernel.reads[0].view.shape[1].max(1);
                let size = kernel.reads[0].dtype.size();
                let sums = if size < 4 { 4 * kernel.writes[3].view.shape.elements() } else { 0 };
                self.profile.workspace_bytes + (chunk * classes * size + sums) as u64
            }
            // The op's result, where no library hands it on.
            (None, Body::Then(then)) => {
                self.profile.workspace_bytes + (then.shape.elements() * then.dtype.size()) as u64
            }
            (None, _) => 0,
        }
    }

    /// How to plan for it.
    pub(crate) fn options(&self) -> Options {
        let alignment = if self.cpu.is_some() { ALIGNMENT as u64 } else { self.profile.alignment };
        Options { alignment, effort: Effort::default() }
    }
}

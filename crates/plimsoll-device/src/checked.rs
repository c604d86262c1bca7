//! Programs that may be loaded: each with a plan that has been checked against it.
//!
//! Devices run kernels at addresses that a plan names, by code that cannot check them. So they accept nothing but this
//! type, which is made in one way: the program's own operands are verified to lie in their buffers, and the plan is run
//! on paper against exactly the work that the program is.

use crate::device::{ArenaBytes, Device, PlanningTraits};
use crate::error::{Error, ErrorKind, Result};
use plimsoll_graph::Program;
use plimsoll_ir::{Plan, check};
use plimsoll_plan::{Effort, Options, plan};

/// A program, and a plan of it that passed its check.
#[derive(Debug, Clone)]
pub struct CheckedProgram {
    program: Program,
    plan: Plan,
}

impl CheckedProgram {
    /// Checks a plan of a program: that all operands lie in their buffers, no kernel finds other bytes than it should,
    /// and nothing lies outside of the arenas or off its alignment. What the plan took workspaces to be is part of it;
    /// a device compares that with what its kernels need.
    ///
    /// # Errors
    /// If the program or the plan is not sound: the message names the kernel and the buffer.
    pub fn new(program: Program, plan: Plan) -> Result<CheckedProgram> {
        program.check()?;
        if plan.workspace_bytes.len() != program.kernels.len() {
            let message = format!(
                "a plan of {} kernels cannot be one of a program of {}",
                plan.workspace_bytes.len(),
                program.kernels.len()
            );
            return Err(Error::new(ErrorKind::InvalidPlan, message));
        }
        let rematerializations = vec![0; program.rematerializations.len()];
        check(&program.work([plan.workspace_bytes.clone(), rematerializations]), &plan)?;
        Ok(CheckedProgram { program, plan })
    }

    /// A program with a plan of its own for a device, without a budget.
    ///
    /// # Errors
    /// If the program is not sound, the device has no kernel for something in it, or it needs more bytes than can be
    /// addressed.
    pub fn planned(program: Program, device: &dyn Device) -> Result<CheckedProgram> {
        // Devices look at operands to say what a kernel needs.
        program.check()?;
        let PlanningTraits { alignment, group_bytes, .. } = device.planning_traits();
        let options = Options { alignment, effort: Effort::default(), together_bytes: group_bytes };
        let plan = plan(&program.work(device.workspaces(&program)?), &options)?;
        CheckedProgram::new(program, plan)
    }

    /// The bytes that it needs of arenas.
    pub fn arena_bytes(&self) -> ArenaBytes {
        ArenaBytes { device: self.plan.peak_bytes, host: self.plan.host_bytes }
    }

    /// What is computed.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// When and where.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Refuses a device whose alignment or workspaces are more than was planned for. `needs` is what each kernel needs
    /// there, in the program's order.
    ///
    /// # Errors
    /// If one needs more: the message names it.
    pub fn check_device(&self, alignment: u64, needs: impl Iterator<Item = u64>) -> Result<()> {
        let refused = |message: String| Err(Error::new(ErrorKind::InvalidPlan, message));
        let planned = self.plan.alignment;
        if !planned.is_multiple_of(alignment) {
            return refused(format!(
                "the plan's offsets are multiples of {planned} bytes, the device needs {alignment}"
            ));
        }
        for ((kernel, &planned), needed) in
            self.program.kernels.iter().zip(&self.plan.workspace_bytes).zip(needs)
        {
            if needed > planned {
                return refused(format!(
                    "{} of `{}` needs {needed} bytes of workspace on this device, the plan has {planned}: it was made \
                     for another device or number of threads",
                    kernel.name(),
                    kernel.scope
                ));
            }
        }
        Ok(())
    }
}

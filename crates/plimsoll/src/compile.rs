//! From a step to a plan: lowering it, asking the device what kernels need, and planning.

use crate::Result;
use crate::target::Target;
use plimsoll_cpu::{ALIGNMENT, CpuDevice, category};
use plimsoll_graph::program::{Body, Buffer, BufferId, Home, Keep, Kernel, Operand};
use plimsoll_graph::{Op, Program, Step, lower};
use plimsoll_plan::{
    Arithmetic, Effort, Fitted, Frontier, Offload, Options, Plan, Remedies, Source, Work, check,
    check_remedies, plan,
};
use std::time::Instant;

/// A step that has been lowered and planned for a device.
#[derive(Debug)]
pub struct Compiled {
    /// What is computed, and the names of what goes in and out.
    pub step: Step,
    /// Its kernels.
    pub program: Program,
    /// What the planner saw of them.
    pub work: Work,
    /// When and where.
    pub plan: Plan,
    /// What was done to fit it.
    pub remedies: Remedies,
    /// How long lowering and planning took.
    pub plan_seconds: f64,
}

impl Compiled {
    /// Lowers and plans a step for a device, without a budget.
    ///
    /// # Errors
    /// If the step needs more bytes than can be addressed. In debug builds every plan is checked as well.
    pub fn new(step: Step, device: &CpuDevice) -> Result<Compiled> {
        let start = Instant::now();
        let program = lower(&step);
        let work = work(&program, |kernel| device.workspace(kernel));
        let options = Options { alignment: ALIGNMENT as u64, effort: Effort::default(), together_bytes: 0 };
        Compiled::plain(step, program, work, &options, start)
    }

    /// Lowers and plans a step for a target, without a budget.
    pub(crate) fn for_target(step: Step, target: &Target) -> Result<Compiled> {
        let start = Instant::now();
        let program = target.lower(&step);
        let work = target.work(&program)?;
        Compiled::plain(step, program, work, &target.options(), start)
    }

    fn plain(
        step: Step,
        program: Program,
        work: Work,
        options: &Options,
        start: Instant,
    ) -> Result<Compiled> {
        let plan = plan(&work, options)?;
        if cfg!(debug_assertions) {
            check(&work, &plan)?;
        }
        let plan_seconds = start.elapsed().as_secs_f64();
        Ok(Compiled { step, program, work, plan, remedies: Remedies::default(), plan_seconds })
    }
}

/// A step that has been lowered for a device, to be planned within budgets.
pub(crate) struct Lowered {
    pub(crate) step: Step,
    pub(crate) program: Program,
    frontier: Frontier,
    seconds: f64,
}

impl Lowered {
    /// Lowers a step and finds its frontier. `homes` says where each state is, if that is settled; what may be moved to the
    /// host besides is for the caller to say.
    pub(crate) fn new(
        step: Step,
        target: &Target,
        homes: Option<&[Home]>,
        offload: Offload,
    ) -> Result<Lowered> {
        let start = Instant::now();
        let mut program = target.lower(&step);
        if let Some(homes) = homes {
            for (state, &home) in program.states.clone().into_iter().zip(homes) {
                program.buffers[state.index()].home = home;
            }
        }
        let work = target.work(&program)?;
        let costs = target.profile.costs(&work);
        let mut frontier = Frontier::new(work, costs, &target.options(), offload);
        frontier.improve(&|| start.elapsed().as_secs_f64() < target.plan_seconds);
        Ok(Lowered { step, program, frontier, seconds: start.elapsed().as_secs_f64() })
    }

    /// The most bytes that live at once and the seconds of a step, from the most memory to the least.
    pub(crate) fn points(&self) -> impl Iterator<Item = (u64, f64)> {
        self.frontier.points()
    }

    /// The smallest plan there is.
    pub(crate) fn smallest(&self) -> Result<Option<Fitted>> {
        Ok(self.frontier.at(self.frontier.points().len().saturating_sub(1))?)
    }

    /// What the planner sees.
    pub(crate) fn work(&self) -> &Work {
        self.frontier.work()
    }

    /// The fastest plan within a budget.
    pub(crate) fn within(&self, budget: u64) -> Result<Option<Fitted>> {
        let fitted = self.frontier.within(budget)?;
        if let (Some(fitted), true) = (&fitted, cfg!(debug_assertions)) {
            check(&fitted.work, &fitted.plan)?;
            check_remedies(self.work(), fitted)?;
        }
        Ok(fitted)
    }

    /// The step with one of its plans.
    pub(crate) fn compiled(self, fitted: Fitted) -> Compiled {
        let program = fitted_program(&self.program, &fitted);
        let Fitted { work, plan, remedies, .. } = fitted;
        Compiled { step: self.step, program, work, plan, remedies, plan_seconds: self.seconds }
    }
}

/// Where a fitted plan has each of a program's states.
pub(crate) fn homes(program: &Program, fitted: &Fitted) -> Vec<Home> {
    let home = |id: &BufferId| home(fitted.work.buffers[id.index()].home);
    program.states.iter().map(home).collect()
}

fn home(home: plimsoll_plan::Home) -> Home {
    match home {
        plimsoll_plan::Home::Device => Home::Device,
        plimsoll_plan::Home::Host => Home::Host,
    }
}

/// The program with the launches and buffers of a fitted plan.
fn fitted_program(program: &Program, fitted: &Fitted) -> Program {
    let buffers = fitted.work.buffers.iter().zip(&fitted.origins).map(|(planned, &origin)| Buffer {
        keep: keep_in_program(planned.keep),
        home: home(planned.home),
        ..program.buffers[origin as usize].clone()
    });
    let whole = |id: u32| {
        let of = &program.buffers[fitted.origins[id as usize] as usize];
        let view = plimsoll_graph::program::View::dense(of.shape);
        Operand { buffer: BufferId(id), dtype: of.dtype, view }
    };
    let kernels = fitted.work.kernels.iter().zip(&fitted.sources).map(|(planned, &source)| {
        let original = match source {
            Source::Kernel(k) | Source::Again(k) => &program.kernels[k as usize],
            Source::Rematerialize(m) => &program.rematerializations[m as usize],
            Source::Copy | Source::Wait => {
                let body = if source == Source::Copy { Body::Copy } else { Body::Wait };
                let scope = program.buffers[fitted.origins[planned.reads[0] as usize] as usize].name.clone();
                return Kernel {
                    scope,
                    body,
                    reads: planned.reads.iter().map(|&b| whole(b)).collect(),
                    writes: planned.writes.iter().map(|&b| whole(b)).collect(),
                    in_place: vec![],
                    flops: 0,
                    bytes: planned.bytes,
                };
            }
        };
        let placed = |operands: &[Operand], ids: &[u32]| -> Vec<Operand> {
            operands.iter().zip(ids).map(|(o, &id)| Operand { buffer: BufferId(id), ..*o }).collect()
        };
        Kernel {
            reads: placed(&original.reads, &planned.reads),
            writes: placed(&original.writes, &planned.writes),
            ..original.clone()
        }
    });
    Program {
        buffers: buffers.collect(),
        kernels: kernels.collect(),
        rematerializations: vec![],
        states: program.states.clone(),
        inputs: program.inputs.clone(),
        outputs: program.outputs.clone(),
    }
}

fn keep_in_program(keep: plimsoll_plan::Keep) -> Keep {
    match keep {
        plimsoll_plan::Keep::Always => Keep::Always,
        plimsoll_plan::Keep::FromStart => Keep::FromStart,
        plimsoll_plan::Keep::ToEnd => Keep::ToEnd,
        plimsoll_plan::Keep::WhileUsed => Keep::WhileUsed,
    }
}

/// What the planner sees of a program on a device whose kernels need `workspace`.
pub fn work(program: &Program, workspace: impl Fn(&Kernel) -> u64) -> Work {
    let of = |kernels: &[Kernel]| kernels.iter().map(&workspace).collect::<Vec<u64>>();
    work_with(program, [of(&program.kernels), of(&program.rematerializations)])
}

/// What the planner sees of a program whose kernels, and those that rematerialization what was left out, need these workspaces.
pub(crate) fn work_with(program: &Program, [kernels, rematerializations]: [Vec<u64>; 2]) -> Work {
    let buffer = |b: &Buffer| plimsoll_plan::Buffer {
        bytes: b.bytes() as u64,
        category: category(b.role),
        keep: match b.keep {
            Keep::Always => plimsoll_plan::Keep::Always,
            Keep::FromStart => plimsoll_plan::Keep::FromStart,
            Keep::ToEnd => plimsoll_plan::Keep::ToEnd,
            Keep::WhileUsed => plimsoll_plan::Keep::WhileUsed,
        },
        home: match b.home {
            Home::Device => plimsoll_plan::Home::Device,
            Home::Host => plimsoll_plan::Home::Host,
        },
    };
    let kernel = |(k, workspace): (&Kernel, u64)| plimsoll_plan::Kernel {
        reads: k.reads.iter().map(|o| o.buffer.0).collect(),
        writes: k.writes.iter().map(|o| o.buffer.0).collect(),
        in_place: k.in_place.iter().map(|&(w, r)| (k.writes[w].buffer.0, k.reads[r].buffer.0)).collect(),
        workspace,
        flops: k.flops,
        bytes: k.bytes,
        arithmetic: arithmetic(k),
    };
    Work {
        buffers: program.buffers.iter().map(buffer).collect(),
        kernels: program.kernels.iter().zip(kernels).map(kernel).collect(),
        rematerializations: program.rematerializations.iter().zip(rematerializations).map(kernel).collect(),
    }
}

/// What kind of operations a kernel's flops are.
fn arithmetic(kernel: &Kernel) -> Arithmetic {
    let op = match &kernel.body {
        Body::Op(op) => op,
        Body::WithEpilogue(then) => &then.op,
        _ => return Arithmetic::Elementwise,
    };
    let half = kernel.reads.first().is_some_and(|r| r.dtype.size() == 2);
    match op {
        Op::ProjectedCrossEntropy { .. } if half => Arithmetic::ProjectionHalf,
        Op::ProjectedCrossEntropy { .. } => Arithmetic::Projection,
        Op::Dot { .. } | Op::Lstm | Op::LstmGrad | Op::Gru | Op::GruGrad => {
            if half {
                Arithmetic::MatrixHalf
            } else {
                Arithmetic::Matrix
            }
        }
        Op::Conv2d(_) | Op::Conv2dInputGrad { .. } | Op::Conv2dFilterGrad { .. } => {
            if half {
                Arithmetic::ConvolutionHalf
            } else {
                Arithmetic::Convolution
            }
        }
        Op::Attention(_) | Op::AttentionGrad(_) | Op::JointAttentionGrad(_) => Arithmetic::Attention,
        _ => Arithmetic::Elementwise,
    }
}

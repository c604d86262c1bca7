//! From a step to a plan: lowering it, asking the device what kernels need, and planning.

use crate::Result;
use plimsoll_cpu::{ALIGNMENT, CpuDevice};
use plimsoll_graph::program::{Body, Buffer, Keep, Kernel, Role};
use plimsoll_graph::{Op, Program, Step, lower};
use plimsoll_memory::Category;
use plimsoll_plan::{Arithmetic, Effort, Home, Options, Plan, Work, check, plan};
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
    /// How long lowering and planning took.
    pub plan_seconds: f64,
}

impl Compiled {
    /// Lowers and plans a step for a device.
    ///
    /// # Errors
    /// If the step needs more bytes than can be addressed. In debug builds every plan is checked as well.
    pub fn new(step: Step, device: &CpuDevice) -> Result<Compiled> {
        let start = Instant::now();
        let program = lower(&step);
        let work = work(&program, |kernel| device.workspace(kernel));
        let options = Options { alignment: ALIGNMENT as u64, effort: Effort::default() };
        let plan = plan(&work, &options)?;
        let plan_seconds = start.elapsed().as_secs_f64();
        if cfg!(debug_assertions) {
            check(&work, &plan)?;
        }
        Ok(Compiled { step, program, work, plan, plan_seconds })
    }
}

/// What the planner sees of a program on a device whose kernels need `workspace`.
pub fn work(program: &Program, workspace: impl Fn(&Kernel) -> u64) -> Work {
    let buffer = |b: &Buffer| plimsoll_plan::Buffer {
        bytes: b.bytes() as u64,
        category: match b.role {
            Role::Parameter => Category::Parameters,
            Role::Gradient => Category::Gradients,
            Role::Optimizer => Category::Optimizer,
            Role::Input => Category::Inputs,
            Role::Activation => Category::Activations,
            Role::Metric => Category::Metrics,
            Role::Random => Category::Random,
        },
        keep: match b.keep {
            Keep::Always => plimsoll_plan::Keep::Always,
            Keep::FromStart => plimsoll_plan::Keep::FromStart,
            Keep::ToEnd => plimsoll_plan::Keep::ToEnd,
            Keep::WhileUsed => plimsoll_plan::Keep::WhileUsed,
        },
        home: Home::Device,
    };
    let kernel = |k: &Kernel| plimsoll_plan::Kernel {
        reads: k.reads.iter().map(|o| o.buffer.0).collect(),
        writes: k.writes.iter().map(|o| o.buffer.0).collect(),
        in_place: k.in_place.iter().map(|&(w, r)| (k.writes[w].buffer.0, k.reads[r].buffer.0)).collect(),
        workspace: workspace(k),
        flops: k.flops,
        bytes: k.bytes,
        arithmetic: arithmetic(k),
    };
    Work {
        buffers: program.buffers.iter().map(buffer).collect(),
        kernels: program.kernels.iter().map(kernel).collect(),
        remakes: program.remakes.iter().map(kernel).collect(),
    }
}

/// What kind of operations a kernel's flops are.
fn arithmetic(kernel: &Kernel) -> Arithmetic {
    let Body::Op(op) = &kernel.body else { return Arithmetic::Elementwise };
    let half = kernel.reads.first().is_some_and(|r| r.dtype.size() == 2);
    match op {
        Op::Dot { .. } | Op::Lstm | Op::LstmGrad | Op::Gru | Op::GruGrad if half => Arithmetic::MatrixHalf,
        Op::Dot { .. } | Op::Lstm | Op::LstmGrad | Op::Gru | Op::GruGrad => Arithmetic::Matrix,
        Op::Conv2d(_) | Op::Conv2dInputGrad { .. } | Op::Conv2dFilterGrad { .. } if half => {
            Arithmetic::ConvolutionHalf
        }
        Op::Conv2d(_) | Op::Conv2dInputGrad { .. } | Op::Conv2dFilterGrad { .. } => Arithmetic::Convolution,
        Op::Attention(_) | Op::AttentionGrad(_) => Arithmetic::Attention,
        _ => Arithmetic::Elementwise,
    }
}

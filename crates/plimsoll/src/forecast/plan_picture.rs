//! A plan as a picture: what lies where in the arena while which kernel runs.
//!
//! The picture is data first: kernels in their order, buffers with offsets and lifetimes, and what is live by category
//! while each kernel runs. Pages draw it, traces count by it, and other programs read it as JSON.

use crate::forecast::remedy::in_words;
use crate::forecast::{Forecast, Remedy, StepForecast};
use crate::run::Compiled;
use crate::{Run, logs};
use plimsoll_graph::program::{Body, Kernel};
use plimsoll_ir::Home;
use plimsoll_memory::{Category, Ledger, format_bytes};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The plan of one program of a run, with everything in it by name.
///
/// ```
/// use plimsoll::Spec;
/// let spec = Spec::find("digits")?;
/// let (data, held_out) = spec.datasets()?;
/// let picture = spec.trainer().compile(&data, held_out.as_ref())?.plan_picture();
/// let live = picture.live[picture.peak_position].total();
/// assert!(live <= picture.peak_bytes);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct PlanPicture {
    /// The program: that of the run that needs the most memory.
    pub program: StepForecast,
    /// How many programs the run has.
    pub programs: usize,
    /// The bytes of the arena.
    pub peak_bytes: u64,
    /// The most bytes that live at once.
    pub lower_bound_bytes: u64,
    /// The position in the order at which they do.
    pub peak_position: usize,
    /// What the arena's bytes are for then. Sums to the peak.
    pub ledger: Ledger,
    /// The budget, if there is one.
    pub budget_bytes: Option<u64>,
    /// Host memory for what is kept there between its uses.
    pub host_bytes: u64,
    /// What is done to fit.
    pub remedies: Vec<Remedy>,
    /// The kernels in the order in which they run.
    pub kernels: Vec<PlannedKernel>,
    /// What has a place in the arena, workspaces of kernels included.
    pub buffers: Vec<PlacedBuffer>,
    /// What is live while each kernel runs, in their order. A result that replaces its operand counts once.
    pub live: Vec<Ledger>,
}

/// A kernel of a plan.
#[derive(Debug, Clone)]
pub struct PlannedKernel {
    /// What it computes.
    pub name: &'static str,
    /// The layer it belongs to.
    pub scope: String,
    /// What it is there for.
    pub purpose: Purpose,
    /// The time that the device's profile says it takes.
    pub seconds: f64,
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// What it reads and writes, by position among the picture's buffers. What is in host memory is left out.
    pub operands: Vec<usize>,
    /// Of a copy and of the wait for it, the program's buffer that is copied to.
    pub(crate) copied_to: Option<u32>,
}

/// What a kernel is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To compute.
    Compute,
    /// To make again what was dropped.
    Recompute,
    /// To copy to host memory.
    CopyOut,
    /// To copy back.
    CopyBack,
    /// To wait for a copy.
    Wait,
}

/// A buffer in the arena.
#[derive(Debug, Clone)]
pub struct PlacedBuffer {
    /// Its scope and op, or the name it was declared under.
    pub name: String,
    /// Its type and shape, as in `f32[32, 10]`; nothing of a workspace.
    pub shape: String,
    /// What it is for.
    pub category: Category,
    /// How many bytes it takes.
    pub bytes: u64,
    /// Where it begins.
    pub offset: u64,
    /// The position of the first kernel that it lives at.
    pub lower: usize,
    /// The position of the first kernel after that.
    pub upper: usize,
    /// What was done with it to fit: it is made again, comes back from host memory, or goes there.
    pub remedy: Option<Purpose>,
}

impl PlanPicture {
    /// The picture of the program that needs the most memory.
    pub(crate) fn of_run(run: &Run, forecast: &Forecast, budget: Option<u64>) -> PlanPicture {
        let most = run.most();
        let at = run.programs().position(|compiled| std::ptr::eq(compiled, most)).unwrap_or(0);
        PlanPicture::of(run, most, at, forecast, budget)
    }

    /// The picture of the main step, which is the one that is timed.
    pub(crate) fn of_main(run: &Run, forecast: &Forecast, budget: Option<u64>) -> PlanPicture {
        PlanPicture::of(run, run.main(), 0, forecast, budget)
    }

    fn of(run: &Run, of: &Compiled, at: usize, forecast: &Forecast, budget: Option<u64>) -> PlanPicture {
        let (program, plan, work) = (of.program.program(), of.program.plan(), &of.work);
        let mut buffers: Vec<PlacedBuffer> = vec![];
        // Where each of the program's buffers is in the picture.
        let mut places: Vec<Option<usize>> = vec![None; work.buffers.len()];
        for (index, lifetime) in plan.lifetimes(work).into_iter().enumerate() {
            let (planned, named) = (&work.buffers[index], &program.buffers[index]);
            if planned.home == Home::Device && planned.bytes > 0 && lifetime.lower < lifetime.upper {
                places[index] = Some(buffers.len());
                buffers.push(PlacedBuffer {
                    name: named.name.to_string(),
                    shape: format!("{}{}", named.dtype, named.shape),
                    category: planned.role.category(),
                    bytes: planned.bytes,
                    offset: plan.offsets[index],
                    lower: lifetime.lower as usize,
                    upper: lifetime.upper as usize,
                    remedy: None,
                });
            }
        }
        let mut kernels = vec![];
        for (position, &index) in plan.order.iter().enumerate() {
            let (kernel, planned) = (&program.kernels[index as usize], &work.kernels[index as usize]);
            let purpose =
                purpose(kernel, of.recomputing.binary_search(&index).is_ok(), |b| work.buffers[b].home);
            let mut operands: Vec<usize> =
                planned.operands().filter_map(|buffer| places[buffer as usize]).collect();
            let (reads, writes) = (&planned.reads, &planned.writes);
            let marked = match purpose {
                Purpose::CopyOut => reads,
                Purpose::Recompute | Purpose::CopyBack => writes,
                Purpose::Compute | Purpose::Wait => &vec![],
            };
            for place in marked.iter().filter_map(|&buffer| places[buffer as usize]) {
                buffers[place].remedy = Some(purpose);
            }
            if planned.workspace > 0 {
                operands.push(buffers.len());
                buffers.push(PlacedBuffer {
                    name: titled(kernel.name(), &kernel.scope),
                    shape: String::new(),
                    category: Category::Workspace,
                    bytes: planned.workspace,
                    offset: plan.workspace_offsets[index as usize],
                    lower: position,
                    upper: position + 1,
                    remedy: None,
                });
            }
            kernels.push(PlannedKernel {
                name: kernel.name(),
                scope: kernel.scope.to_string(),
                purpose,
                seconds: run.profile().seconds(planned),
                flops: planned.flops,
                bytes: planned.bytes,
                operands,
                copied_to: match purpose {
                    Purpose::CopyOut | Purpose::CopyBack => planned.writes.first().copied(),
                    Purpose::Wait => planned.reads.get(1).copied(),
                    Purpose::Compute | Purpose::Recompute => None,
                },
            });
        }
        let live = live_bytes(&buffers, kernels.len());
        let unknown = || StepForecast {
            name: String::new(),
            inputs: String::new(),
            part: None,
            peak_bytes: plan.peak_bytes,
            kernels: kernels.len(),
        };
        PlanPicture {
            program: forecast.steps.get(at).cloned().unwrap_or_else(unknown),
            programs: forecast.steps.len(),
            peak_bytes: plan.peak_bytes,
            lower_bound_bytes: plan.lower_bound_bytes,
            peak_position: plan.peak_position,
            ledger: plan.ledger(work),
            budget_bytes: budget,
            host_bytes: plan.host_bytes,
            remedies: forecast.remedies.clone(),
            kernels,
            buffers,
            live,
        }
    }

    /// What takes the memory, in a sentence.
    pub fn headline(&self) -> String {
        let most = self.ledger.lines().max_by_key(|&(_, bytes)| bytes);
        let (category, bytes) = most.unwrap_or((Category::Padding, 0));
        let share = 100.0 * bytes as f64 / self.peak_bytes.max(1) as f64;
        let mut text = format!(
            "A step takes {}, and {share:.0} % of it is {}",
            format_bytes(self.peak_bytes),
            category.name()
        );
        if let Some(kernel) = self.kernels.get(self.peak_position) {
            let (number, count) = (self.peak_position + 1, self.kernels.len());
            text += &format!(" when the most is live: at kernel {number} of {count}, {}", kernel.title());
        }
        text + "."
    }

    /// How it was made to fit, in a sentence.
    pub fn fitting(&self) -> String {
        let budget = match self.budget_bytes {
            Some(budget) => format!("The budget is {}", format_bytes(budget)),
            None => "There is no budget".into(),
        };
        match self.remedies.is_empty() {
            true => format!("{budget}; nothing had to be done to fit."),
            false => format!("{budget}; to fit: {}.", in_words(&self.remedies)),
        }
    }

    /// The picture as data. Kernels, buffers and live bytes are columns, and `category` is a position in `categories`.
    pub fn to_json(&self) -> Value {
        let (kernels, buffers) = (&self.kernels, &self.buffers);
        let column = |of: &dyn Fn(&PlacedBuffer) -> Value| buffers.iter().map(of).collect::<Value>();
        let row = |of: &dyn Fn(&PlannedKernel) -> Value| kernels.iter().map(of).collect::<Value>();
        let live: serde_json::Map<String, Value> = Category::ALL
            .into_iter()
            .filter(|&category| self.live.iter().any(|ledger| ledger.get(category) > 0))
            .map(|category| {
                let bytes = self.live.iter().map(|ledger| ledger.get(category)).collect::<Vec<_>>();
                (category.name().into(), bytes.into())
            })
            .collect();
        json!({
            "headline": self.headline(),
            "fitting": self.fitting(),
            "program": {
                "name": self.program.name,
                "inputs": self.program.inputs,
                "part": self.program.part,
                "programs": self.programs,
            },
            "peak_bytes": self.peak_bytes,
            "lower_bound_bytes": self.lower_bound_bytes,
            "peak_position": self.peak_position,
            "budget_bytes": self.budget_bytes,
            "host_bytes": self.host_bytes,
            "seconds": self.kernels.iter().map(|kernel| kernel.seconds).sum::<f64>(),
            "ledger": self.ledger,
            "remedies": self.remedies.iter().map(Remedy::to_json).collect::<Vec<_>>(),
            "categories": Category::ALL.map(Category::name),
            "kernels": {
                "name": row(&|k| k.name.into()),
                "scope": row(&|k| k.scope.as_str().into()),
                "purpose": row(&|k| k.purpose.name().into()),
                "seconds": row(&|k| k.seconds.into()),
                "flops": row(&|k| k.flops.into()),
                "bytes": row(&|k| k.bytes.into()),
            },
            "buffers": {
                "name": column(&|b| b.name.as_str().into()),
                "shape": column(&|b| b.shape.as_str().into()),
                "category": column(&|b| (b.category as usize).into()),
                "bytes": column(&|b| b.bytes.into()),
                "offset": column(&|b| b.offset.into()),
                "lower": column(&|b| b.lower.into()),
                "upper": column(&|b| b.upper.into()),
                "remedy": column(&|b| b.remedy.map(Purpose::name).into()),
            },
            "live": live,
        })
    }

    /// Writes the picture as one HTML page that needs nothing else.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn write_html(&self, title: &str, out: &mut dyn Write) -> io::Result<()> {
        logs::write_plan_page(self, title, out)
    }
}

impl PlannedKernel {
    /// What it computes, and of which layer, if it belongs to one.
    pub fn title(&self) -> String {
        titled(self.name, &self.scope)
    }
}

impl Purpose {
    /// The name, as a JSON value.
    pub const fn name(self) -> &'static str {
        match self {
            Purpose::Compute => "compute",
            Purpose::Recompute => "recompute",
            Purpose::CopyOut => "copy_out",
            Purpose::CopyBack => "copy_back",
            Purpose::Wait => "wait",
        }
    }
}

/// What a kernel computes, and of which layer, if it belongs to one.
fn titled(name: &str, scope: &str) -> String {
    if scope.is_empty() { name.into() } else { format!("{name} of {scope}") }
}

fn purpose(kernel: &Kernel, recomputes: bool, home: impl Fn(usize) -> Home) -> Purpose {
    match kernel.body {
        Body::Wait => Purpose::Wait,
        Body::Copy => match kernel.writes.first().map(|operand| home(operand.buffer.index())) {
            Some(Home::Host) => Purpose::CopyOut,
            _ => Purpose::CopyBack,
        },
        _ if recomputes => Purpose::Recompute,
        _ => Purpose::Compute,
    }
}

/// What is live while each kernel runs. Of what lies at one offset at one moment, an operand and the result that replaces
/// it, the larger counts.
fn live_bytes(buffers: &[PlacedBuffer], kernels: usize) -> Vec<Ledger> {
    let mut events: Vec<Vec<(bool, usize)>> = vec![vec![]; kernels + 1];
    for (index, buffer) in buffers.iter().enumerate() {
        events[buffer.lower.min(kernels)].push((true, index));
        events[buffer.upper.min(kernels)].push((false, index));
    }
    let mut there: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let mut live = [0u64; Category::ALL.len()];
    let counted = |at: &[usize]| {
        at.iter().copied().max_by_key(|&index| (buffers[index].bytes, std::cmp::Reverse(index)))
    };
    let mut ledgers = Vec::with_capacity(kernels);
    for events in &events[..kernels] {
        for &(begins, index) in events {
            let at = there.entry(buffers[index].offset).or_default();
            if let Some(before) = counted(at) {
                live[buffers[before].category as usize] -= buffers[before].bytes;
            }
            if begins {
                at.push(index);
            } else {
                at.retain(|&other| other != index);
            }
            if let Some(now) = counted(at) {
                live[buffers[now].category as usize] += buffers[now].bytes;
            }
        }
        let mut ledger = Ledger::default();
        Category::ALL.into_iter().zip(live).for_each(|(category, bytes)| ledger.add(category, bytes));
        ledgers.push(ledger);
    }
    ledgers
}

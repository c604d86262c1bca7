//! From a traced step to a checked plan: lowering it, asking the device what kernels need, planning.

use super::advice::{Bound, bound_of};
use super::limits::{InputLimit, input_limits};
use crate::Result;
use crate::device::target::Target;
use plimsoll_device::{CheckedProgram, Staging};
use plimsoll_graph::program::Home;
use plimsoll_graph::step::Named;
use plimsoll_graph::{Program, StateParts, Step, ValueType, cut_updates};
use plimsoll_ir::{Buffer, Keep, LaunchSource, Work};
use plimsoll_plan::{Copies, Costs, Fitted, Frontier, Offload, Remedies, check_remedies, lower_bound, plan};
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Instant;

/// A step that has been lowered and planned for a device.
#[derive(Debug)]
pub(crate) struct Compiled {
    /// Its kernels, and when and where they run.
    pub(crate) program: CheckedProgram,
    /// What the planner saw of them.
    pub(crate) work: Work,
    /// What was done to fit it.
    pub(crate) remedies: Remedies,
    /// The kernels that make again what was dropped, in rising order.
    pub(crate) recomputing: Vec<u32>,
    /// The modelled seconds of a run.
    pub(crate) seconds: f64,
    /// How long lowering and planning took.
    pub(crate) plan_seconds: f64,
    /// How many elements optimizers change.
    pub(crate) trainable_parameters: u64,
    /// What it takes and gives.
    pub(crate) signature: Rc<Signature>,
}

/// What a step takes and gives: all that stepping needs to know once it is loaded.
#[derive(Debug)]
pub(crate) struct Signature {
    /// What is reported.
    pub(crate) outputs: Vec<OutputType>,
    /// What the numbers of each input must be below, where they are looked up by.
    pub(crate) limits: Vec<Option<InputLimit>>,
    /// The inputs whose labels are counted over the whole batch, in the order of the inputs that say how many there are.
    pub(crate) counted: Vec<usize>,
}

/// What is known of an output.
#[derive(Debug)]
pub(crate) struct OutputType {
    pub(crate) name: Box<str>,
    pub(crate) ty: ValueType,
    /// Whether it is a sum over samples.
    pub(crate) is_sum: bool,
}

/// How much of the host a search may take. Plans for a budget of the host are chosen from searches that do not depend on it, so
/// that a larger one is never slower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HostShare {
    /// As much as helps.
    All,
    /// Half of the bytes that plans take without remedies.
    Half,
    Quarter,
    Eighth,
    Nothing,
}

impl HostShare {
    /// From the most to the least.
    pub(crate) const ALL: [HostShare; 5] =
        [HostShare::All, HostShare::Half, HostShare::Quarter, HostShare::Eighth, HostShare::Nothing];

    /// Those from which plans are chosen where so many bytes of the host may be taken.
    pub(crate) fn within(host: u64, bytes: impl Fn(HostShare) -> u64) -> impl Iterator<Item = HostShare> {
        HostShare::ALL.into_iter().filter(move |&share| share == HostShare::All || bytes(share) <= host)
    }
}

/// What is kept of a step besides its kernels.
#[derive(Clone)]
struct About {
    trainable_parameters: u64,
    signature: Rc<Signature>,
}

/// A step that has been lowered for a device, to be planned.
pub(crate) struct Lowered {
    program: Program,
    work: Work,
    costs: Costs,
    about: About,
    offload: Offload,
    /// By how much of the host they may take.
    frontiers: [OnceCell<Frontier>; HostShare::ALL.len()],
    /// What plans take of the device and of the host, by their number.
    taken: RefCell<HashMap<(HostShare, usize), [u64; 2]>>,
    lower_seconds: f64,
}

impl Lowered {
    /// Lowers a step, some of whose states are in parts. `homes` says where each part is, if that is settled; what may be
    /// moved to the host besides is for the caller to say.
    pub(crate) fn new(
        step: &Step,
        target: &Target,
        cut: &StateParts,
        homes: Option<&[Home]>,
        offload: Offload,
    ) -> Result<Lowered> {
        let start = Instant::now();
        let program = cut_updates(target.lower(step), cut)?;
        Lowered::of(program, step, target, homes, offload, start)
    }

    /// The same of a step that was lowered, which began at that moment.
    pub(crate) fn of(
        mut program: Program,
        step: &Step,
        target: &Target,
        homes: Option<&[Home]>,
        offload: Offload,
        start: Instant,
    ) -> Result<Lowered> {
        if let Some(homes) = homes {
            for (state, &home) in program.states.clone().into_iter().zip(homes) {
                program.buffers[state.index()].home = home;
            }
        }
        let work = program.work(target.device.workspaces(&program)?);
        let costs = target.profile.costs(&work);
        let trainable = step.states.iter().filter(|state| state.trainable);
        let output = |(position, of): (usize, &Named)| OutputType {
            name: of.name.clone(),
            ty: step.graph.ty(of.value),
            is_sum: step.sums.contains(&position),
        };
        let signature = Rc::new(Signature {
            outputs: step.outputs.iter().enumerate().map(output).collect(),
            limits: input_limits(step),
            counted: step.counted.inputs.clone(),
        });
        let trainable_parameters = trainable.map(|s| step.graph.shape(s.value).elements() as u64).sum();
        let about = About { trainable_parameters, signature };
        let (frontiers, lower_seconds) = (Default::default(), start.elapsed().as_secs_f64());
        let taken = RefCell::default();
        Ok(Lowered { program, work, costs, about, offload, frontiers, taken, lower_seconds })
    }

    /// The modelled seconds without any remedy. No plan is faster.
    pub(crate) fn seconds(&self) -> f64 {
        self.costs.kernels.iter().sum()
    }

    /// Whether values may rest on the host.
    pub(crate) fn offloads(&self) -> bool {
        self.offload != Offload::Nothing
    }

    /// The kernels.
    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    /// What no plan takes less than.
    pub(crate) fn lower_bound(&self, target: &Target) -> Bound {
        let bound = lower_bound(&self.work, target.options().alignment, self.offload);
        bound_of(&self.program, bound)
    }

    /// The plan without remedies.
    pub(crate) fn plain(self, target: &Target) -> Result<Compiled> {
        let start = Instant::now();
        let plan = plan(&self.work, &target.options())?;
        let Lowered { mut program, work, about, lower_seconds, .. } = self;
        let seconds = self.costs.kernels.iter().sum();
        program.rematerializations = vec![];
        let program = CheckedProgram::new(program, plan)?;
        let plan_seconds = lower_seconds + start.elapsed().as_secs_f64();
        Ok(Compiled::new(program, work, (Remedies::default(), vec![]), seconds, plan_seconds, about))
    }

    /// All plans, from the most memory to the least.
    pub(crate) fn frontier(&self, target: &Target) -> &Frontier {
        self.frontier_with(target, HostShare::All)
    }

    /// The plans that take no more of the host than this.
    pub(crate) fn frontier_with(&self, target: &Target, share: HostShare) -> &Frontier {
        self.frontiers[share as usize].get_or_init(|| {
            let start = Instant::now();
            let host_bytes = match share {
                HostShare::All => u64::MAX,
                _ => self.host_bytes(target, share),
            };
            let costs = Costs { host_bytes, ..self.costs.clone() };
            let mut frontier = Frontier::new(self.work.clone(), costs, &target.options(), self.offload);
            if target.spills {
                let bandwidth = target.profile.bandwidth;
                frontier.improve_as_if(Copies { bandwidth, latency_seconds: 0.0, overlap: true });
            }
            frontier.improve(&|| start.elapsed().as_secs_f64() < target.plan_seconds);
            frontier
        })
    }

    /// The most bytes of the host that plans take which were searched for with so much of it.
    pub(crate) fn host_bytes(&self, target: &Target, share: HostShare) -> u64 {
        let of_all = |part| self.frontier(target).point(0).map_or(0, |(live, _)| live / part);
        match share {
            HostShare::All => u64::MAX,
            HostShare::Half => of_all(2),
            HostShare::Quarter => of_all(4),
            HostShare::Eighth => of_all(8),
            HostShare::Nothing => 0,
        }
    }

    /// The bytes of the states that are on the device.
    pub(crate) fn state_bytes(&self) -> u64 {
        let stays = |b: &&Buffer| b.keep == Keep::Always && b.home == Home::Device;
        self.work.buffers.iter().filter(stays).map(|b| b.bytes).sum()
    }

    /// What its inputs and results take of the host of a GPU.
    pub(crate) fn staging(&self) -> Staging {
        Staging::of(&self.program)
    }

    /// The fastest plan within a budget.
    pub(crate) fn within(&self, target: &Target, budget: u64) -> Result<Option<Fitted>> {
        Ok(self.frontier(target).within(budget)?)
    }

    /// The fastest plan within a budget that takes no more than so much of the host.
    pub(crate) fn within_both(&self, target: &Target, budget: u64, host: u64) -> Result<Option<Fitted>> {
        // Where nothing may rest on the host all searches are one.
        let shares = if self.offloads() { HostShare::ALL.len() } else { 1 };
        for share in HostShare::within(host, |share| self.host_bytes(target, share)).take(shares) {
            let frontier = self.frontier_with(target, share);
            if frontier.is_out_of_reach(budget)? {
                continue;
            }
            for point in 0.. {
                let Some((live, _)) = frontier.point(point) else { break };
                if live > budget {
                    continue;
                }
                if let Some(fitted) = self.at(target, (share, point), [budget, host])? {
                    return Ok(Some(fitted));
                }
            }
        }
        Ok(None)
    }

    /// The plan of a point, if it takes no more than so many bytes of the device and of the host. What it takes is found out once.
    pub(crate) fn at(
        &self,
        target: &Target,
        (share, point): (HostShare, usize),
        [device, host]: [u64; 2],
    ) -> Result<Option<Fitted>> {
        let fits = |&[of_device, of_host]: &[u64; 2]| of_device <= device && of_host <= host;
        if self.taken.borrow().get(&(share, point)).is_some_and(|taken| !fits(taken)) {
            return Ok(None);
        }
        let Some(fitted) = self.frontier_with(target, share).at(point)? else { return Ok(None) };
        let taken = [fitted.plan.peak_bytes, fitted.plan.host_bytes];
        self.taken.borrow_mut().insert((share, point), taken);
        Ok(Some(fitted).filter(|_| fits(&taken)))
    }

    /// The smallest plan there is.
    pub(crate) fn smallest(&self, target: &Target) -> Result<Option<Fitted>> {
        Ok(self.frontier(target).smallest()?)
    }

    /// The step with one of its plans.
    pub(crate) fn compiled(&self, fitted: Fitted) -> Result<Compiled> {
        let start = Instant::now();
        check_remedies(&self.work, &fitted)?;
        let program = self.program.relaunched(&fitted.work, &fitted.sources, &fitted.origins);
        let again =
            |source: &LaunchSource| matches!(source, LaunchSource::Again(_) | LaunchSource::Rematerialize(_));
        let recomputing = (0..).zip(&fitted.sources).filter(|(_, source)| again(source)).map(|(at, _)| at);
        let recomputing: Vec<u32> = recomputing.collect();
        let Fitted { work, plan, remedies, seconds, .. } = fitted;
        let program = CheckedProgram::new(program, plan)?;
        let plan_seconds = self.lower_seconds + start.elapsed().as_secs_f64();
        Ok(Compiled::new(program, work, (remedies, recomputing), seconds, plan_seconds, self.about.clone()))
    }

    /// Where a plan has each of the states.
    pub(crate) fn homes(&self, fitted: &Fitted) -> Vec<Home> {
        self.program.states.iter().map(|id| fitted.work.buffers[id.index()].home).collect()
    }
}

impl Compiled {
    fn new(
        program: CheckedProgram,
        work: Work,
        (remedies, recomputing): (Remedies, Vec<u32>),
        seconds: f64,
        plan_seconds: f64,
        about: About,
    ) -> Compiled {
        let About { trainable_parameters, signature } = about;
        Compiled {
            program,
            work,
            remedies,
            recomputing,
            seconds,
            plan_seconds,
            trainable_parameters,
            signature,
        }
    }

    /// The same, copied by another thread: allocators give threads heaps of their own, where there are no holes of what was
    /// planned before.
    pub(super) fn moved(self) -> Compiled {
        let copy = || (self.program.clone(), self.work.clone(), self.recomputing.clone());
        match std::thread::scope(|scope| scope.spawn(copy).join()) {
            Ok((program, work, recomputing)) => Compiled { program, work, recomputing, ..self },
            Err(_) => self,
        }
    }

    /// The bytes of its arena.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.program.plan().peak_bytes
    }
}

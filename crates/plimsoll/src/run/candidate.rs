//! The candidates among which a budget chooses: points of the frontier of a run's main step, each with plans of all other
//! programs that have room beside it and agree with it on where the states rest.

use super::compile::{Compiled, HostShare, Lowered};
use super::declared::{Key, Split};
use super::fit::{Choice, Fit, Planner, Variant};
use crate::Result;
use crate::device::target::LEAST_LOGITS;
use crate::forecast::host_use::HostUse;
use plimsoll_device::Staging;
use plimsoll_graph::program::Home;
use plimsoll_ir::{Buffer, Keep};
use plimsoll_plan::{Fitted, Offload};
use std::collections::HashSet;
use std::rc::Rc;

/// Plans of programs, and the parts that each step is run in.
type Around = (Vec<(Key, Planned)>, Vec<usize>);

/// A point of a variant's frontier, with plans of everything else.
pub(crate) struct Candidate {
    variant: Rc<Variant>,
    pub(crate) fitted: Fitted,
    homes: Rc<[Home]>,
    others: Vec<(Key, Planned)>,
    parts: Vec<usize>,
    pub(crate) peak_bytes: u64,
    pub(crate) host_use: HostUse,
    pub(crate) seconds: f64,
}

/// A program within a budget: as it is, or by a plan of its frontier.
enum Planned {
    Plain(Rc<Compiled>),
    Fitted(Rc<Lowered>, Box<Fitted>),
}

impl Planned {
    fn peak_bytes(&self) -> u64 {
        match self {
            Planned::Plain(compiled) => compiled.peak_bytes(),
            Planned::Fitted(_, fitted) => fitted.plan.peak_bytes,
        }
    }

    fn host_bytes(&self) -> u64 {
        match self {
            Planned::Plain(compiled) => compiled.program.plan().host_bytes,
            Planned::Fitted(_, fitted) => fitted.plan.host_bytes,
        }
    }

    fn staging(&self) -> Staging {
        match self {
            Planned::Plain(compiled) => Staging::of(compiled.program.program()),
            Planned::Fitted(lowered, _) => lowered.staging(),
        }
    }

    fn seconds(&self) -> f64 {
        match self {
            Planned::Plain(compiled) => compiled.seconds,
            Planned::Fitted(_, fitted) => fitted.seconds,
        }
    }
}

impl Planner<'_> {
    /// The fastest candidate that fits, other than the run as it is.
    pub(crate) fn candidate(&self, budget: u64) -> Result<Option<Candidate>> {
        self.candidate_within(budget, self.target.host_budget)
    }

    /// The fastest candidate that fits, and takes no more of the host than it may. Only where the fastest of all takes more are
    /// others looked for, and none of those is said to be faster: so a larger budget of the host is never slower either.
    pub(super) fn candidate_within(&self, budget: u64, host: Option<u64>) -> Result<Option<Candidate>> {
        let free = self.fastest(budget, None)?;
        let (Some(host), Some(fastest)) = (host, &free) else { return Ok(free) };
        if fastest.host_use.bytes() <= host {
            return Ok(free);
        }
        let bounded = self.fastest(budget, Some(host))?;
        Ok(bounded.map(|of| Candidate { seconds: of.seconds.max(fastest.seconds), ..of }))
    }

    fn fastest(&self, budget: u64, host: Option<u64>) -> Result<Option<Candidate>> {
        let mut best: Option<Candidate> = None;
        for count in self.split_counts() {
            let variant = self.variant(count, self.target.offload())?;
            let lowered = &variant.lowered;
            let staged = self.target.host_use(0, 0, lowered.staging()).bytes();
            let Some(room) = host.unwrap_or(u64::MAX).checked_sub(staged) else { continue };
            let share_bytes = |share| lowered.host_bytes(self.target, share);
            let shares = match host {
                None => vec![HostShare::All],
                Some(_) => HostShare::within(room, share_bytes).collect(),
            };
            for share in shares {
                let fastest = best.as_ref().map_or(f64::INFINITY, |best| best.seconds);
                // What states there is no room for on the host has to be on the device.
                let of_states = lowered.state_bytes().saturating_sub(share_bytes(share));
                if variant.seconds(lowered.seconds()) >= fastest || of_states > budget {
                    continue;
                }
                if let Some(candidate) =
                    self.within(&variant, [budget, host.unwrap_or(u64::MAX)], share, fastest)?
                {
                    best = Some(candidate);
                }
            }
        }
        Ok(best)
    }

    /// The fastest point of a variant that fits with all other programs within a budget of the device and one of the host, if it
    /// is faster than `fastest`. Where states rest decides how long the end of a window takes, so a point that is slower by
    /// itself may be faster with it.
    pub(super) fn within(
        &self,
        variant: &Rc<Variant>,
        [budget, host]: [u64; 2],
        share: HostShare,
        fastest: f64,
    ) -> Result<Option<Candidate>> {
        if self.bound_of_variant(variant).bytes > budget {
            return Ok(None);
        }
        let frontier = variant.lowered.frontier_with(self.target, share);
        if frontier.is_out_of_reach(budget)? {
            return Ok(None);
        }
        let staged = self.target.host_use(0, 0, variant.lowered.staging()).bytes();
        let room = [budget, if host == u64::MAX { host } else { host.saturating_sub(staged) }];
        let mut tried: HashSet<Rc<[Home]>> = HashSet::new();
        let mut best: Option<Candidate> = None;
        for point in 0.. {
            // Far down is searched only where nothing else fits, and as far as it may be of use.
            if point == frontier.near() && best.is_some() {
                break;
            }
            let fastest = best.as_ref().map_or(fastest, |best| best.seconds);
            if variant.seconds(frontier.seconds_from(point)) >= fastest {
                break;
            }
            let Some((live, seconds)) = frontier.point(point) else { break };
            if variant.seconds(seconds) >= fastest {
                break;
            }
            if live > budget {
                continue;
            }
            let Some(fitted) = variant.lowered.at(self.target, (share, point), room)? else { continue };
            // Of those that have states in the same places, the first is the fastest.
            let homes: Rc<[Home]> = variant.lowered.homes(&fitted).into();
            if !tried.insert(Rc::clone(&homes)) {
                continue;
            }
            // Other programs take no more of the host than the main one does.
            let host_bytes = (host != u64::MAX).then_some(fitted.plan.host_bytes);
            if let Some((others, parts)) = self.others_within(variant, &homes, budget, host_bytes)? {
                let candidate = self.candidate_of(variant, fitted, homes, others, parts)?;
                if candidate.host_use.bytes() <= host && candidate.seconds < fastest {
                    best = Some(candidate);
                }
            }
        }
        Ok(best)
    }

    fn candidate_of(
        &self,
        variant: &Rc<Variant>,
        fitted: Fitted,
        homes: Rc<[Home]>,
        others: Vec<(Key, Planned)>,
        parts: Vec<usize>,
    ) -> Result<Candidate> {
        let largest = others.iter().map(|(_, planned)| planned.peak_bytes()).max().unwrap_or(0);
        let seconds = self.step_seconds(&variant.main, fitted.seconds, &parts, |key| {
            others.iter().find(|(other, _)| other == key).map(|(_, planned)| planned.seconds())
        })?;
        let peak_bytes = fitted.plan.peak_bytes.max(largest);
        let planned = || others.iter().map(|(_, planned)| planned);
        let host_bytes = planned().map(Planned::host_bytes).max().unwrap_or(0).max(fitted.plan.host_bytes);
        let on_host = |b: &&Buffer| b.home == Home::Host && b.keep == Keep::Always;
        let aligned = |b: &Buffer| b.bytes.next_multiple_of(self.target.traits.alignment);
        let states = fitted.work.buffers.iter().filter(on_host).map(aligned).sum();
        let staging = planned().map(Planned::staging).fold(variant.lowered.staging(), Staging::shared);
        let host_use = self.target.host_use(states, host_bytes, staging);
        Ok(Candidate {
            variant: Rc::clone(variant),
            fitted,
            homes,
            others,
            parts,
            peak_bytes,
            host_use,
            seconds,
        })
    }

    /// Plans of all programs but the main one within a budget, and the parts of each step: inference is split as far as
    /// it must be.
    fn others_within(
        &self,
        variant: &Variant,
        homes: &Rc<[Home]>,
        budget: u64,
        host_bytes: Option<u64>,
    ) -> Result<Option<Around>> {
        let (mut planned, mut parts) = (vec![], variant.parts.clone());
        for key in &variant.others {
            match self.other_within(variant, key, homes, (budget, host_bytes))? {
                Some(plan) => planned.push((key.clone(), plan)),
                None => return Ok(None),
            }
        }
        for step in (0..parts.len()).filter(|&s| !self.about[s].trains && s != variant.main.step) {
            let mut fits = None;
            let staged = variant.lowered.staging().bytes();
            for count in self.inference_counts(step) {
                let Some(plans) = self.inference_within(variant, step, count, homes, (budget, host_bytes))?
                else {
                    continue;
                };
                // Where the host is bounded, inference stages no more at once than training does, if it can be split so far.
                let most = plans.iter().map(|(_, plan)| plan.staging().bytes()).max().unwrap_or(0);
                fits = Some((count, plans));
                if host_bytes.is_none() || most <= staged {
                    break;
                }
            }
            let Some((count, plans)) = fits else { return Ok(None) };
            parts[step] = count;
            planned.extend(plans);
        }
        Ok(Some((planned, parts)))
    }

    /// The numbers of parts that a step of inference may be run in.
    pub(super) fn inference_counts(&self, step: usize) -> Vec<usize> {
        let declared = &self.declared.steps[step];
        match declared.split {
            Split::Into(parts) => vec![parts.min(declared.most_parts()).max(1)],
            Split::Never => vec![1],
            Split::AsNeeded if self.about[step].has_computed_labels => vec![1],
            Split::AsNeeded => {
                (0..).map(|n| 1usize << n).take_while(|&parts| parts < 2 * declared.most_parts()).collect()
            }
        }
    }

    fn inference_within(
        &self,
        variant: &Variant,
        step: usize,
        count: usize,
        homes: &Rc<[Home]>,
        bounds: (u64, Option<u64>),
    ) -> Result<Option<Vec<(Key, Planned)>>> {
        let mut plans = vec![];
        for key in self.declared.keys(step, count, false)? {
            match self.other_within(variant, &key, homes, bounds)? {
                Some(plan) => plans.push((key, plan)),
                None => return Ok(None),
            }
        }
        Ok(Some(plans))
    }

    /// A plan of one program within a budget and, where that is bounded, so many bytes of the host, with states where they
    /// rest.
    fn other_within(
        &self,
        variant: &Variant,
        key: &Key,
        homes: &Rc<[Home]>,
        (budget, host_bytes): (u64, Option<u64>),
    ) -> Result<Option<Planned>> {
        if !homes.contains(&Home::Host) {
            let plain = self.plain_of(variant, key)?;
            if plain.peak_bytes() <= budget {
                return Ok(Some(Planned::Plain(plain)));
            }
        }
        let lowered = self.searched(variant, key, homes)?;
        let fitted = match host_bytes {
            Some(host) => lowered.within_both(self.target, budget, host)?,
            None => lowered.within(self.target, budget)?,
        };
        Ok(fitted.map(|fitted| Planned::Fitted(lowered, Box::new(fitted))))
    }

    /// A program of a variant without remedies.
    fn plain_of(&self, variant: &Variant, key: &Key) -> Result<Rc<Compiled>> {
        if let Some(plain) = variant.plain.borrow().get(key) {
            return Ok(Rc::clone(plain));
        }
        let logits = self.target.traits.chunk_logits_bytes;
        let (step, _) = self.traced(key, &variant.table, logits)?;
        let plain = Rc::new(self.plan_plain(&step, &variant.cut)?);
        variant.plain.borrow_mut().insert(key.clone(), Rc::clone(&plain));
        Ok(plain)
    }

    /// A program of a variant with all its plans.
    pub(super) fn searched(&self, variant: &Variant, key: &Key, homes: &Rc<[Home]>) -> Result<Rc<Lowered>> {
        let id = (key.clone(), Rc::clone(homes));
        if let Some(lowered) = variant.searched.borrow().get(&id) {
            return Ok(Rc::clone(lowered));
        }
        let (step, _) = self.traced(key, &variant.table, LEAST_LOGITS)?;
        self.plans.set(self.plans.get() + 1);
        let offload = if variant.lowered.offloads() { Offload::Values } else { Offload::Nothing };
        let lowered = Rc::new(Lowered::new(&step, self.target, &variant.cut, Some(homes), offload)?);
        variant.searched.borrow_mut().insert(id, Rc::clone(&lowered));
        Ok(lowered)
    }

    pub(super) fn fit_of(&self, candidate: Candidate) -> Result<Fit> {
        let Candidate { variant, fitted, homes, others, parts, peak_bytes, host_use, seconds } = candidate;
        let mut programs = vec![(variant.main.clone(), Rc::new(variant.lowered.compiled(fitted)?))];
        for (key, planned) in others {
            let compiled = match planned {
                Planned::Plain(compiled) => compiled,
                Planned::Fitted(lowered, fitted) => Rc::new(lowered.compiled(*fitted)?),
            };
            programs.push((key, compiled));
        }
        let host_bytes = programs.iter().map(|(_, c)| c.program.plan().host_bytes).max().unwrap_or(0);
        let (cut, table) = (Rc::clone(&variant.cut), Rc::clone(&variant.table));
        let choice = Choice { parts, chunked: variant.chunked, cut, homes, table };
        let frontier = variant.lowered.frontier(self.target);
        let brief = frontier.is_brief().then(|| frontier.work().kernels.len());
        let bound_bytes = self.bound.get().map(|bound| bound.bytes);
        Ok(Fit { choice, programs, seconds, peak_bytes, host_bytes, host_use, bound_bytes, brief })
    }
}

impl Candidate {
    /// What is done to fit: remedies of the main step, the parts it is run in, and whether its logits are chunked.
    pub(crate) fn remedies(&self) -> Vec<crate::Remedy> {
        crate::Remedy::list(&self.fitted.remedies, self.main_parts(), self.variant.chunked)
    }

    /// How many parts batches of the main step are run in.
    pub(crate) fn main_parts(&self) -> usize {
        self.parts[self.variant.main.step]
    }

    /// What rests elsewhere: of the host of a GPU all that is pinned, on the CPU what is in a file.
    pub(crate) fn host_bytes(&self) -> u64 {
        self.host_use.bytes().max(self.fitted.plan.host_bytes)
    }
}

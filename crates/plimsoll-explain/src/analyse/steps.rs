//! Steps: where one iteration of a training loop ends and the next begins.
//!
//! Growth and peaks mean something per step. Some recordings mark steps; in others the loop shows itself, since
//! most call sites in a loop's body allocate equally often.

use crate::analyse::call_site::call_site;
use plimsoll_memory::{Action, OwnerId, Owners, Trace};
use std::collections::HashMap;

/// The steps of a trace.
#[derive(Debug, Clone)]
pub(crate) struct Steps {
    /// The event at which each step ends and the next begins, in order. What comes before the first is a step
    /// too, cut short or with the program's start in it.
    pub(crate) boundaries: Vec<usize>,
    /// How they were found, for a proof: `marks Optimizer.step#Adam.step`.
    pub(crate) found_by: String,
}

/// Fewer are no loop.
const FEWEST: usize = 4;
/// Of iterations that free next to nothing, fewer than these are no loop.
const FEWEST_THAT_KEEP_ALL: usize = 16;
/// A loop's body has several call sites; that fewer agree on the number of iterations is chance.
const ALIKE: usize = 2;
/// Call sites whose distances vary more do not allocate once per iteration.
const UNEVEN: f64 = 1.0;

impl Steps {
    /// Finds the steps of a trace; `None` where there is no loop of at least four iterations.
    pub(crate) fn find(trace: &Trace, owners: &Owners) -> Option<Steps> {
        Steps::marked(trace).or_else(|| Steps::recurring(trace, owners))
    }

    /// Steps by the marks that the framework's optimizer or the user made. Of several names the one that tells
    /// of steps wins, then the most frequent. Names that count, such as `ProfilerStep#7`, are one.
    fn marked(trace: &Trace) -> Option<Steps> {
        let mut sites: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, event) in trace.events.iter().enumerate() {
            if let Action::Mark(mark) = event.action
                && let Some(name) = trace.marks.get(mark as usize)
            {
                let name = name.trim_end_matches(|c: char| c.is_ascii_digit());
                sites.entry(name).or_default().push(index);
            }
        }
        sites.retain(|name, at| name.to_ascii_lowercase().contains("step") && at.len() >= FEWEST);
        let (name, boundaries) =
            sites.into_iter().max_by_key(|(name, boundaries)| (boundaries.len(), *name))?;
        Some(Steps { boundaries, found_by: format!("marks `{name}`") })
    }

    /// Steps by a call site that allocates once in each. The number of steps is the count that divides the counts of
    /// most call sites; of those with that very count, the one with the most even distances is the boundary.
    fn recurring(trace: &Trace, owners: &Owners) -> Option<Steps> {
        let mut sites: HashMap<OwnerId, Vec<usize>> = HashMap::new();
        let mut building: HashMap<OwnerId, bool> = HashMap::new();
        for (index, event) in trace.events.iter().enumerate() {
            if let Action::Allocate(id) = event.action
                && let Some(request) = trace.requests.get(id.0 as usize)
                && request.owner != OwnerId::UNKNOWN
                && !*building.entry(request.owner).or_insert_with(|| builds(owners, request.owner))
            {
                sites.entry(request.owner).or_default().push(index);
            }
        }
        sites.retain(|_, at| at.len() >= FEWEST);
        // A call site in the loop's body allocates once per iteration, or twice, or three times.
        let mut counts: HashMap<usize, usize> = HashMap::new();
        for at in sites.values() {
            *counts.entry(at.len()).or_default() += 1;
        }
        let with_multiple_of = |count: usize| -> usize {
            counts.iter().filter(|(other, _)| *other % count == 0).map(|(_, sites)| sites).sum()
        };
        let (alike, count) = counts.keys().map(|&count| (with_multiple_of(count), count)).max()?;
        if alike < ALIKE {
            return None;
        }
        let (&owner, boundaries) = sites
            .iter()
            .filter(|(_, at)| at.len() == count && unevenness(at) < UNEVEN)
            .min_by(|a, b| unevenness(a.1).total_cmp(&unevenness(b.1)).then(a.0.cmp(b.0)))?;
        // A short loop that frees next to nothing may be one that builds a model, layer by layer.
        let round = &trace.events[boundaries[0]..boundaries[boundaries.len() - 1]];
        let count = |is: fn(&Action) -> bool| round.iter().filter(|event| is(&event.action)).count();
        let (asked, freed) =
            (count(|a| matches!(a, Action::Allocate(_))), count(|a| matches!(a, Action::Free(_))));
        if freed * 4 < asked && boundaries.len() < FEWEST_THAT_KEEP_ALL {
            return None;
        }
        let location = call_site(owners, owner).location;
        Some(Steps {
            boundaries: boundaries.clone(),
            found_by: format!("{location}, which allocates once in each"),
        })
    }

    /// The step that an event belongs to, counted from 0.
    pub(crate) fn of(&self, event: usize) -> usize {
        self.boundaries.partition_point(|&boundary| boundary <= event)
    }

    /// How many steps ended.
    pub(crate) fn ended(&self) -> usize {
        self.boundaries.len()
    }
}

/// Whether a call site makes a model's weights or moves them to a device.
fn builds(owners: &Owners, owner: OwnerId) -> bool {
    const NAMES: [&str; 6] = ["__init__", "_apply", "convert", "reset_parameters", "load_state_dict", "init"];
    owners.stack(owner).take(64).any(|frame| NAMES.contains(&frame.name.as_str()))
}

/// How far distances between events are from even: variance over squared mean.
fn unevenness(at: &[usize]) -> f64 {
    let distances = at.windows(2).map(|pair| (pair[1] - pair[0]) as f64);
    let count = (at.len() - 1).max(1) as f64;
    let mean = distances.clone().sum::<f64>() / count;
    distances.map(|d| (d - mean).powi(2)).sum::<f64>() / count / (mean * mean).max(1.0)
}

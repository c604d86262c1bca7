//! Steps: where one round of a training loop ends and the next begins.
//!
//! Growth and peaks mean something per step. Some recordings mark steps; in others the loop shows itself, since
//! most places in a loop's body ask for memory equally often.

use plimsoll_memory::{Action, OwnerId, Owners, Trace};
use std::collections::HashMap;

/// The steps of a trace.
#[derive(Debug, Clone)]
pub(crate) struct Steps {
    /// The event at which each step ends and the next begins, in order. What comes before the first is a step
    /// too, cut short or with the program's start in it.
    pub(crate) borders: Vec<usize>,
    /// How they were found, for a proof: `marks Optimizer.step#Adam.step`.
    pub(crate) found_by: String,
}

/// Fewer are no loop.
const FEWEST: usize = 4;
/// Of rounds that free next to nothing, fewer than these are no loop.
const FEWEST_THAT_KEEP_ALL: usize = 16;
/// A loop's body has several places; that fewer are in step is chance.
const ALIKE: usize = 2;
/// Places further from even are not passed once in a round.
const UNEVEN: f64 = 1.0;

impl Steps {
    /// Finds the steps of a trace; `None` where there is no loop of at least four rounds.
    pub(crate) fn find(trace: &Trace, owners: &Owners) -> Option<Steps> {
        Steps::marked(trace).or_else(|| Steps::recurring(trace, owners))
    }

    /// Steps by the marks that the framework's optimizer or the user made. Of several names the one that tells
    /// of steps wins, then the most frequent. Names that count, such as `ProfilerStep#7`, are one.
    fn marked(trace: &Trace) -> Option<Steps> {
        let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, event) in trace.events.iter().enumerate() {
            if let Action::Mark(mark) = event.action
                && let Some(name) = trace.marks.get(mark as usize)
            {
                let name = name.trim_end_matches(|c: char| c.is_ascii_digit());
                places.entry(name).or_default().push(index);
            }
        }
        places.retain(|name, at| name.to_ascii_lowercase().contains("step") && at.len() >= FEWEST);
        let (name, borders) = places.into_iter().max_by_key(|(name, borders)| (borders.len(), *name))?;
        Some(Steps { borders, found_by: format!("marks `{name}`") })
    }

    /// Steps by a place that asks once in each: of all counts, the one that most places are in step with is the number
    /// of steps, and of the places with that count the one with the most even distances is the border.
    fn recurring(trace: &Trace, owners: &Owners) -> Option<Steps> {
        let mut places: HashMap<OwnerId, Vec<usize>> = HashMap::new();
        let mut building: HashMap<OwnerId, bool> = HashMap::new();
        for (index, event) in trace.events.iter().enumerate() {
            if let Action::Allocate(id) = event.action
                && let Some(request) = trace.requests.get(id.0 as usize)
                && request.owner != OwnerId::UNKNOWN
                && !*building.entry(request.owner).or_insert_with(|| builds(owners, request.owner))
            {
                places.entry(request.owner).or_default().push(index);
            }
        }
        places.retain(|_, at| at.len() >= FEWEST);
        // A place in the loop's body is passed once in each round, or twice, or three times.
        let mut counts: HashMap<usize, usize> = HashMap::new();
        for at in places.values() {
            *counts.entry(at.len()).or_default() += 1;
        }
        let in_step_with = |count: usize| -> usize {
            counts.iter().filter(|(other, _)| *other % count == 0).map(|(_, places)| places).sum()
        };
        let (alike, count) = counts.keys().map(|&count| (in_step_with(count), count)).max()?;
        if alike < ALIKE {
            return None;
        }
        let (&owner, borders) = places
            .iter()
            .filter(|(_, at)| at.len() == count && unevenness(at) < UNEVEN)
            .min_by(|a, b| unevenness(a.1).total_cmp(&unevenness(b.1)).then(a.0.cmp(b.0)))?;
        // A short loop that frees next to nothing may be one that builds a model, layer by layer.
        let round = &trace.events[borders[0]..borders[borders.len() - 1]];
        let count = |is: fn(&Action) -> bool| round.iter().filter(|event| is(&event.action)).count();
        let (asked, freed) =
            (count(|a| matches!(a, Action::Allocate(_))), count(|a| matches!(a, Action::Free(_))));
        if freed * 4 < asked && borders.len() < FEWEST_THAT_KEEP_ALL {
            return None;
        }
        let place = crate::analyse::call_site::call_site(owners, owner).location;
        Some(Steps { borders: borders.clone(), found_by: format!("{place}, which asks once in each") })
    }

    /// The step that an event belongs to, counted from 0.
    pub(crate) fn of(&self, event: usize) -> usize {
        self.borders.partition_point(|&border| border <= event)
    }

    /// How many steps ended.
    pub(crate) fn ended(&self) -> usize {
        self.borders.len()
    }
}

/// Whether a place makes a model's weights or brings them to a device.
fn builds(owners: &Owners, owner: OwnerId) -> bool {
    const NAMES: [&str; 6] = ["__init__", "_apply", "convert", "reset_parameters", "load_state_dict", "init"];
    owners.stack(owner).take(64).any(|frame| NAMES.contains(&frame.name.as_str()))
}

/// How far distances between places are from even: variance over squared mean.
fn unevenness(at: &[usize]) -> f64 {
    let distances = at.windows(2).map(|pair| (pair[1] - pair[0]) as f64);
    let count = (at.len() - 1).max(1) as f64;
    let mean = distances.clone().sum::<f64>() / count;
    distances.map(|d| (d - mean).powi(2)).sum::<f64>() / count / (mean * mean).max(1.0)
}

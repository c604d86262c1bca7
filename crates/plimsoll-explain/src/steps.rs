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

    /// Steps by a place that asks once in each: of all counts, the one that most places share is the number of
    /// steps, and of those places the one with the most even distances is the border.
    fn recurring(trace: &Trace, owners: &Owners) -> Option<Steps> {
        let mut places: HashMap<OwnerId, Vec<usize>> = HashMap::new();
        for (index, event) in trace.events.iter().enumerate() {
            if let Action::Allocate(id) = event.action
                && let Some(request) = trace.requests.get(id.0 as usize)
                && request.owner != OwnerId::UNKNOWN
            {
                places.entry(request.owner).or_default().push(index);
            }
        }
        places.retain(|_, at| at.len() >= FEWEST);
        let mut sharing: HashMap<usize, usize> = HashMap::new();
        for at in places.values() {
            *sharing.entry(at.len()).or_default() += 1;
        }
        let (&count, _) =
            sharing.iter().max_by_key(|&(&count, &places)| (places, std::cmp::Reverse(count)))?;
        let (&owner, borders) = places
            .iter()
            .filter(|(_, at)| at.len() == count)
            .min_by(|a, b| unevenness(a.1).total_cmp(&unevenness(b.1)).then(a.0.cmp(b.0)))?;
        // A loop that frees next to nothing builds a model, layer by layer.
        let round = &trace.events[borders[0]..borders[borders.len() - 1]];
        let count = |is: fn(&Action) -> bool| round.iter().filter(|event| is(&event.action)).count();
        let (asked, freed) =
            (count(|a| matches!(a, Action::Allocate(_))), count(|a| matches!(a, Action::Free(_))));
        if freed * 4 < asked {
            return None;
        }
        let place = crate::site::site(owners, owner).place;
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

/// How far distances between places are from even: variance over squared mean.
fn unevenness(at: &[usize]) -> f64 {
    let distances = at.windows(2).map(|pair| (pair[1] - pair[0]) as f64);
    let count = (at.len() - 1).max(1) as f64;
    let mean = distances.clone().sum::<f64>() / count;
    distances.map(|d| (d - mean).powi(2)).sum::<f64>() / count / (mean * mean).max(1.0)
}

//! The history: a trace walked once, with the figures that verdicts and books rest on.

use crate::analyse::steps::Steps;
use crate::analyse::usage::total;
use plimsoll_memory::{Action, Owners, RequestId, Trace};

/// What a walk through a trace found. Bytes are as requested, without rounding.
#[derive(Debug, Clone)]
pub(crate) struct History {
    /// Steps, where there is a loop.
    pub(crate) steps: Option<Steps>,
    /// The most bytes live at once, and after how many events that was.
    pub(crate) peak_live: u64,
    /// How many events had happened at that peak.
    pub(crate) peak_at: usize,
    /// The most the pool had reserved.
    pub(crate) peak_reserved: u64,
    /// The most live bytes in each step that ended, in order.
    pub(crate) step_peaks: Vec<u64>,
    /// The bytes live at the end of each step, in order.
    pub(crate) step_ends: Vec<u64>,
    /// The bytes the pool had reserved at the end of each step, in order; all 0 where that was not recorded.
    pub(crate) step_reserved: Vec<u64>,
    /// The refusal that ended the program, or the last one.
    pub(crate) refusal: Option<Refusal>,
    /// Bytes live at the end.
    pub(crate) end_live: u64,
}

/// A request that was refused, and the pool's figures then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refusal {
    /// The event.
    pub(crate) event: usize,
    /// Bytes requested.
    pub(crate) requested: u64,
    /// Bytes live then.
    pub(crate) live: u64,
    /// Bytes the pool had reserved then; 0 where that was not recorded.
    pub(crate) reserved: u64,
}

impl History {
    pub(crate) fn new(trace: &Trace, owners: &Owners) -> History {
        let steps = Steps::find(trace, owners);
        let mut live = total(trace.initial.iter().map(|&id| bytes(trace, id)));
        let mut reserved = total(trace.initial_reserved.iter().map(|&(_, bytes)| bytes));
        let mut history = History {
            steps: None,
            peak_live: live,
            peak_at: 0,
            peak_reserved: reserved,
            step_peaks: Vec::new(),
            step_ends: Vec::new(),
            step_reserved: Vec::new(),
            refusal: None,
            end_live: 0,
        };
        let boundaries = steps.as_ref().map_or(&[][..], |steps| &steps.boundaries);
        let mut next = boundaries.iter().peekable();
        let mut step_peak = live;
        for (index, event) in trace.events.iter().enumerate() {
            while next.next_if(|&&boundary| boundary <= index).is_some() {
                history.step_peaks.push(step_peak);
                history.step_ends.push(live);
                history.step_reserved.push(reserved);
                step_peak = live;
            }
            match event.action {
                Action::Allocate(id) => live = live.saturating_add(bytes(trace, id)),
                Action::Free(id) => live = live.saturating_sub(bytes(trace, id)),
                Action::Reserve { bytes, .. } => reserved = reserved.saturating_add(bytes),
                Action::Release { bytes, .. } => reserved = reserved.saturating_sub(bytes),
                Action::Refuse(id) => {
                    let requested = bytes(trace, id);
                    history.refusal = Some(Refusal { event: index, requested, live, reserved });
                }
                Action::Mark(_) => {}
            }
            step_peak = step_peak.max(live);
            history.peak_reserved = history.peak_reserved.max(reserved);
            if live > history.peak_live {
                (history.peak_live, history.peak_at) = (live, index + 1);
            }
        }
        history.end_live = live;
        history.steps = steps;
        history
    }

    /// The median of the most live bytes in each step, over the later half of the steps: what a step needs when
    /// the program has settled. The peak of all where there are no steps.
    pub(crate) fn typical_peak(&self) -> u64 {
        let mut settled = self.step_peaks[self.step_peaks.len() / 2..].to_vec();
        settled.sort_unstable();
        settled.get(settled.len() / 2).copied().unwrap_or(self.peak_live)
    }
}

fn bytes(trace: &Trace, id: RequestId) -> u64 {
    trace.requests.get(id.0 as usize).map_or(0, |request| request.bytes)
}

/// The requests that are live after so many events, by address where addresses are known.
pub(crate) fn live_after(trace: &Trace, events: usize) -> Vec<RequestId> {
    let mut is_live = vec![false; trace.requests.len()];
    let mut set = |id: RequestId, live: bool| {
        if let Some(flag) = is_live.get_mut(id.0 as usize) {
            *flag = live;
        }
    };
    trace.initial.iter().for_each(|&id| set(id, true));
    for event in trace.events.iter().take(events) {
        match event.action {
            Action::Allocate(id) => set(id, true),
            Action::Free(id) => set(id, false),
            _ => {}
        }
    }
    let ids = (0..trace.requests.len()).filter(|&at| is_live[at]).map(|at| RequestId(at as u32));
    let mut ids: Vec<RequestId> = ids.collect();
    ids.sort_by_key(|&id| trace.request(id).address);
    ids
}

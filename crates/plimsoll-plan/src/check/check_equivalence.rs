//! The independent check that remedies change when and where, never what.
//!
//! It shares no code with the search: it runs both the step and what became of it on paper, with names for
//! values in place of numbers. A kernel's result is named by the kernel and by its writes; running it again on
//! the same values gives the same name. What is made again must be what it was, every kernel must find the
//! values it found before, and states and results must end as they did.

use crate::frontier::Fitted;
use crate::{Error, ErrorKind};
use plimsoll_ir::{BufferIndex, Home, Keep, LaunchSource, Work};
use std::collections::{HashMap, HashSet};

/// The name of a value: the buffer it was first written to, and how often that had been written by then.
type Value = (BufferIndex, u32);

/// Runs some work and what was fitted of it on paper.
///
/// # Errors
/// If a kernel of the work is missing, runs twice or finds other values than it should, if what is made again
/// is not what it was, if a copy is used before it has ended, or if a state or result ends as something else.
pub fn check_remedies(work: &Work, fitted: &Fitted) -> Result<(), Error> {
    let wrong = |message: String| Err(Error::new(ErrorKind::InvalidPlan, message));
    let step = Step::of(work);
    let fitted_work = &fitted.work;
    let lengths = fitted.sources.len() == fitted_work.kernels.len()
        && fitted.origins.len() == fitted_work.buffers.len()
        && fitted.plan.order.iter().copied().eq(0..fitted_work.kernels.len() as u32);
    if !lengths {
        return wrong("the plan does not belong to its work".into());
    }
    let mut holds: Vec<Option<Value>> = vec![None; fitted_work.buffers.len()];
    for (b, buffer) in work.buffers.iter().enumerate() {
        if matches!(buffer.keep, Keep::Always | Keep::FromStart) {
            holds[b] = Some((b as u32, 0));
        }
    }
    let mut done = vec![false; work.kernels.len()];
    let mut flying: HashMap<BufferIndex, BufferIndex> = HashMap::new();
    let mut sources_of_transfers: HashSet<BufferIndex> = HashSet::new();
    for (position, (kernel, &source)) in fitted_work.kernels.iter().zip(&fitted.sources).enumerate() {
        let at = || format!("launch {position} ({source:?})");
        let host = |b: &u32| fitted_work.buffers[*b as usize].home == Home::Host;
        match source {
            LaunchSource::Copy => {
                let (from, to) = (kernel.reads[0], kernel.writes[0]);
                if fitted.origins[from as usize] != fitted.origins[to as usize] || host(&from) == host(&to) {
                    return wrong(format!("{} copies buffer {from} to {to}", at()));
                }
                if flying.contains_key(&from) {
                    return wrong(format!("{} copies buffer {from} before it has arrived", at()));
                }
                holds[to as usize] = holds[from as usize];
                flying.insert(to, from);
                sources_of_transfers.insert(from);
                continue;
            }
            LaunchSource::Wait => {
                let to = kernel.reads[1];
                if let Some(from) = flying.remove(&to) {
                    sources_of_transfers.remove(&from);
                }
                continue;
            }
            LaunchSource::Kernel(_) | LaunchSource::Again(_) | LaunchSource::Rematerialize(_) => {}
        }
        if let Some(b) = kernel.reads.iter().chain(&kernel.writes).find(|b| host(b) || flying.contains_key(b))
        {
            return wrong(format!("{} uses buffer {b}, which is not in device memory yet", at()));
        }
        if let Some(b) = kernel.writes.iter().find(|b| sources_of_transfers.contains(b)) {
            return wrong(format!("{} writes to buffer {b} while that is being copied", at()));
        }
        let (original, finds, gives) = match source {
            LaunchSource::Kernel(k) if done.get(k as usize) == Some(&false) => {
                done[k as usize] = true;
                (&work.kernels[k as usize], step.finds[k as usize].clone(), step.gives[k as usize].clone())
            }
            LaunchSource::Again(k) if (k as usize) < done.len() => {
                (&work.kernels[k as usize], step.finds[k as usize].clone(), step.gives[k as usize].clone())
            }
            LaunchSource::Rematerialize(m) if (m as usize) < work.rematerializations.len() => {
                let rematerialization = &work.rematerializations[m as usize];
                let gives: Vec<Value> = rematerialization.writes.iter().map(|&b| (b, 1)).collect();
                (rematerialization, step.before_rematerialization(work, rematerialization), gives)
            }
            _ => return wrong(format!("{} is no kernel of the step, or runs twice", at())),
        };
        let same_buffers = |ours: &[u32], theirs: &[u32]| {
            ours.iter().map(|&b| fitted.origins[b as usize]).eq(theirs.iter().copied())
        };
        if !same_buffers(&kernel.reads, &original.reads) || !same_buffers(&kernel.writes, &original.writes) {
            return wrong(format!("{} has other operands than the kernel it runs", at()));
        }
        for (&b, value) in kernel.reads.iter().zip(&finds) {
            if holds[b as usize] != Some(*value) {
                return wrong(format!("{} finds {:?} in buffer {b}, not {value:?}", at(), holds[b as usize]));
            }
        }
        for (&b, &value) in kernel.writes.iter().zip(&gives) {
            holds[b as usize] = Some(value);
        }
    }
    if let Some(k) = done.iter().position(|done| !done) {
        return wrong(format!("kernel {k} never runs"));
    }
    for (b, buffer) in work.buffers.iter().enumerate() {
        let ends = matches!(buffer.keep, Keep::Always | Keep::ToEnd);
        if ends && (holds[b] != step.ends[b] || flying.contains_key(&(b as u32))) {
            return wrong(format!("buffer {b} ends as {:?}, not as {:?}", holds[b], step.ends[b]));
        }
    }
    Ok(())
}

/// The step as it was written, on paper.
struct Step {
    /// The values that each kernel finds in what it reads.
    finds: Vec<Vec<Value>>,
    /// The values that each kernel leaves in what it writes.
    gives: Vec<Vec<Value>>,
    /// What each buffer holds in the end.
    ends: Vec<Option<Value>>,
    /// The kernel that first writes each buffer.
    writer: Vec<Option<usize>>,
}

impl Step {
    fn of(work: &Work) -> Step {
        let mut written = vec![0u32; work.buffers.len()];
        let mut writer = vec![None; work.buffers.len()];
        let (mut finds, mut gives) = (vec![], vec![]);
        for (k, kernel) in work.kernels.iter().enumerate() {
            finds.push(kernel.reads.iter().map(|&b| (b, written[b as usize])).collect());
            for &b in &kernel.writes {
                written[b as usize] += 1;
                writer[b as usize].get_or_insert(k);
            }
            gives.push(kernel.writes.iter().map(|&b| (b, written[b as usize])).collect());
        }
        let exists =
            |b: usize| written[b] > 0 || matches!(work.buffers[b].keep, Keep::Always | Keep::FromStart);
        let ends = (0..work.buffers.len()).map(|b| exists(b).then(|| (b as u32, written[b]))).collect();
        Step { finds, gives, ends, writer }
    }

    /// What a rematerialization must find: what the kernel whose result it makes read, or wrote beside it.
    fn before_rematerialization(&self, work: &Work, rematerialization: &plimsoll_ir::Kernel) -> Vec<Value> {
        let Some(k) = rematerialization.writes.first().and_then(|&b| self.writer[b as usize]) else {
            return vec![];
        };
        let kernel = &work.kernels[k];
        let beside = |b: u32| kernel.writes.iter().position(|&w| w == b).map(|i| self.gives[k][i]);
        let read = |b: u32| kernel.reads.iter().position(|&r| r == b).map(|i| self.finds[k][i]);
        rematerialization
            .reads
            .iter()
            .map(|&b| read(b).or_else(|| beside(b)).unwrap_or((b, u32::MAX)))
            .collect()
    }
}

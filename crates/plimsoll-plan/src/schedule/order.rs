//! Orders of execution.
//!
//! Any order that keeps each kernel after those it depends on gives the same numbers; they differ in how many
//! bytes live at once. A step as it was traced keeps every gradient until the optimizer comes at the end;
//! running what frees memory as soon as it can run is often a quarter less.

use crate::costs::Costs;
use plimsoll_ir::{Keep, KernelIndex, Role, Work};
use std::collections::VecDeque;

/// The kernels each kernel waits for, as lists of those that wait for it.
pub(crate) struct Dependencies {
    /// `followers[starts[k]..starts[k + 1]]` wait for `k`.
    starts: Vec<u32>,
    followers: Vec<KernelIndex>,
    /// How many kernels each one waits for.
    waits: Vec<u32>,
}

impl Dependencies {
    /// Reads follow the write before them; a write follows the write and all reads before it.
    pub(crate) fn of(work: &Work) -> Dependencies {
        const NONE: u32 = u32::MAX;
        let mut edges: Vec<(u32, u32)> = vec![];
        let mut writer = vec![NONE; work.buffers.len()];
        let mut readers: Vec<Vec<u32>> = vec![vec![]; work.buffers.len()];
        for (k, kernel) in work.kernels.iter().enumerate() {
            let k = k as u32;
            for &b in &kernel.reads {
                if writer[b as usize] != NONE {
                    edges.push((writer[b as usize], k));
                }
                readers[b as usize].push(k);
            }
            for &b in &kernel.writes {
                if writer[b as usize] != NONE {
                    edges.push((writer[b as usize], k));
                }
                edges.extend(readers[b as usize].drain(..).filter(|&r| r != k).map(|r| (r, k)));
                writer[b as usize] = k;
            }
        }
        edges.sort_unstable();
        edges.dedup();
        let mut starts = vec![0u32; work.kernels.len() + 1];
        let mut waits = vec![0u32; work.kernels.len()];
        for &(from, to) in &edges {
            starts[from as usize + 1] += 1;
            waits[to as usize] += 1;
        }
        for k in 1..starts.len() {
            starts[k] += starts[k - 1];
        }
        Dependencies { starts, followers: edges.into_iter().map(|(_, to)| to).collect(), waits }
    }

    fn followers(&self, kernel: KernelIndex) -> &[KernelIndex] {
        &self.followers[self.starts[kernel as usize] as usize..self.starts[kernel as usize + 1] as usize]
    }
}

/// The order in which the work was written.
pub(crate) fn as_written(work: &Work) -> Vec<KernelIndex> {
    (0..work.kernels.len() as u32).collect()
}

/// A kernel that allocates next to nothing beyond what it frees: the scalars that all of an optimizer's updates
/// wait for are no reason to keep every gradient.
const NEGLIGIBLE_GROWTH_BYTES: i64 = 1024;

/// A kernel that makes a sixteenth of what it reads: the gradient of a filter, say, which has two large operands
/// live until it has run.
const LITTLE_OF_MUCH: i64 = 16;

/// Which of the kernels that can run and free memory is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The one that could not run before: one chain after another.
    Newest,
    /// The one that could run first: an update comes right after its gradient, although the way back goes on as well.
    Oldest,
}

/// As written, except that a kernel which frees as much as it allocates, or next to it, or which makes little of
/// much, runs as soon as it can.
pub(crate) fn freeing_early(work: &Work, dependencies: &Dependencies, turn: Turn) -> Vec<KernelIndex> {
    let n = work.kernels.len();
    let mut waits = dependencies.waits.clone();
    let mut uses = Uses::of(work);
    let mut done = vec![false; n];
    let mut queue: VecDeque<KernelIndex> = VecDeque::new();
    let mut order = Vec::with_capacity(n);
    let frees = |k: u32, uses: &Uses| {
        let reads = work.kernels[k as usize].reads.iter().map(|&b| &work.buffers[b as usize]);
        let passing = reads.filter(|b| b.keep != Keep::Always).map(|b| b.bytes as i64);
        uses.growth(work, k) <= NEGLIGIBLE_GROWTH_BYTES.max(passing.sum::<i64>() / LITTLE_OF_MUCH)
    };
    queue.extend((0..n as u32).filter(|&k| waits[k as usize] == 0 && frees(k, &uses)));
    if turn == Turn::Newest {
        queue.make_contiguous().reverse();
    }
    let mut next = 0;
    while order.len() < n {
        let ready = if turn == Turn::Newest { queue.pop_back() } else { queue.pop_front() };
        let kernel = match ready {
            Some(k) if done[k as usize] => continue,
            Some(k) => k,
            None => {
                // In the written order the first kernel that is left waits for nothing that is left.
                while done[next as usize] {
                    next += 1;
                }
                next
            }
        };
        done[kernel as usize] = true;
        order.push(kernel);
        uses.run(work, kernel, |last_user, uses| {
            if waits[last_user as usize] == 0 && !done[last_user as usize] && frees(last_user, uses) {
                queue.push_back(last_user);
            }
        });
        for &follower in dependencies.followers(kernel) {
            waits[follower as usize] -= 1;
            if waits[follower as usize] == 0 && frees(follower, &uses) {
                queue.push_back(follower);
            }
        }
    }
    order
}

/// The same order, except that what is made of parameters alone comes first, where that takes no buffer of more than so
/// many bytes and nothing has changed the parameters.
pub(crate) fn early_copies(work: &Work, order: Vec<KernelIndex>, bytes: u64) -> Vec<KernelIndex> {
    let mut first = vec![usize::MAX; work.buffers.len()];
    let mut written = first.clone();
    for (position, &k) in order.iter().enumerate().rev() {
        let kernel = &work.kernels[k as usize];
        kernel.operands().for_each(|b| first[b as usize] = position);
        kernel.writes.iter().for_each(|&b| written[b as usize] = position);
    }
    let is_early = |position: usize, k: KernelIndex| {
        let kernel = &work.kernels[k as usize];
        let is_parameter = |b: &u32| {
            let buffer = &work.buffers[*b as usize];
            buffer.keep == Keep::Always && buffer.role == Role::Parameter
        };
        let is_small = |b: &u32| {
            let buffer = &work.buffers[*b as usize];
            buffer.keep == Keep::WhileUsed && buffer.bytes <= bytes && first[*b as usize] == position
        };
        !kernel.reads.is_empty()
            && !kernel.writes.is_empty()
            && kernel.reads.iter().all(|b| is_parameter(b) && written[*b as usize] > position)
            && kernel.writes.iter().all(is_small)
    };
    let (mut early, others): (Vec<_>, Vec<_>) =
        order.into_iter().enumerate().partition(|&(p, k)| is_early(p, k));
    early.extend(others);
    early.into_iter().map(|(_, k)| k).collect()
}

/// The same order, except that updates of states by values of no more than so many bytes come last, where no later kernel
/// needs the new state: a larger value would be kept for them. What is made again after them would otherwise find another
/// state than it was made from.
pub(crate) fn late_updates(work: &Work, order: Vec<KernelIndex>, bytes: u64) -> Vec<KernelIndex> {
    let mut last = vec![0usize; work.buffers.len()];
    let mut written = last.clone();
    for (position, &k) in order.iter().enumerate() {
        let kernel = &work.kernels[k as usize];
        kernel.operands().for_each(|b| last[b as usize] = position);
        kernel.writes.iter().for_each(|&b| written[b as usize] = position);
    }
    let is_late = |position: usize, k: KernelIndex| {
        let kernel = &work.kernels[k as usize];
        let is_state = |b: &u32| work.buffers[*b as usize].keep == Keep::Always;
        let is_large = |b: &u32| !is_state(b) && work.buffers[*b as usize].bytes > bytes;
        !kernel.writes.is_empty()
            && kernel.writes.iter().all(|b| is_state(b) && last[*b as usize] == position)
            && kernel.reads.iter().all(|b| !is_large(b) && written[*b as usize] <= position)
    };
    let (late, mut others): (Vec<_>, Vec<_>) =
        order.into_iter().enumerate().partition(|&(p, k)| is_late(p, k));
    others.extend(late);
    others.into_iter().map(|(_, k)| k).collect()
}

/// The same order, except that an update of states waits until those could have been fetched from the host since
/// its gradient was known, each after those before it. A gradient that is made of less than it takes is made
/// as late as its update.
pub(crate) fn patient_updates(work: &Work, costs: &Costs, order: &[KernelIndex]) -> Vec<KernelIndex> {
    let mut users = vec![vec![]; work.buffers.len()];
    let mut position = vec![0; work.kernels.len()];
    for (p, &k) in order.iter().enumerate() {
        position[k as usize] = p;
        work.kernels[k as usize].operands().for_each(|b| users[b as usize].push(k));
    }
    let buffer = |b: u32| &work.buffers[b as usize];
    let is_state = |b: &&u32| buffer(**b).keep == Keep::Always;
    let bytes =
        |list: &[u32]| -> u64 { list.iter().filter(|b| !is_state(b)).map(|&b| buffer(b).bytes).sum() };
    let is_last = |k: u32, b: u32| users[b as usize].last() == Some(&k);
    let rewritten = |k: u32, b: u32| {
        users[b as usize].iter().any(|&u| {
            position[u as usize] > position[k as usize] && work.kernels[u as usize].writes.contains(&b)
        })
    };
    let may_wait = |k: u32| {
        let kernel = &work.kernels[k as usize];
        !kernel.writes.is_empty()
            && kernel.writes.iter().all(|b| is_state(&b) && is_last(k, *b))
            && kernel.reads.iter().all(|&b| !rewritten(k, b))
    };
    // The kernel that makes what only an update reads.
    let maker = |update: u32| {
        work.kernels[update as usize].reads.iter().find_map(|&b| match users[b as usize][..] {
            [maker, user] if user == update => {
                let kernel = &work.kernels[maker as usize];
                let alone = kernel.writes == [b] && kernel.reads.iter().all(|&r| !rewritten(maker, r));
                (alone && bytes(&kernel.reads) < bytes(&kernel.writes)).then_some(maker)
            }
            _ => None,
        })
    };
    let mut made_late = vec![None; work.kernels.len()];
    for update in order.iter().copied().filter(|&k| may_wait(k)) {
        if let Some(maker) = maker(update) {
            made_late[maker as usize] = Some(update);
        }
    }
    let mut waiting: VecDeque<(f64, Vec<KernelIndex>)> = Default::default();
    let mut late: Vec<Option<KernelIndex>> = vec![None; work.kernels.len()];
    let (mut now, mut fetched) = (0.0f64, 0.0f64);
    let mut patient = Vec::with_capacity(order.len());
    for &k in order {
        while waiting.front().is_some_and(|(due, _)| *due <= now) {
            let (_, kernels) = waiting.pop_front().unwrap_or_default();
            now += kernels.iter().map(|&k| costs.kernels[k as usize]).sum::<f64>();
            patient.extend(kernels);
        }
        if let Some(update) = made_late[k as usize] {
            late[update as usize] = Some(k);
            continue;
        }
        if may_wait(k) {
            let states = work.kernels[k as usize].writes.iter().map(|&b| buffer(b).bytes);
            fetched = fetched.max(now) + states.map(|bytes| costs.copies.seconds(bytes)).sum::<f64>();
            waiting.push_back((fetched, late[k as usize].into_iter().chain([k]).collect()));
            continue;
        }
        now += costs.kernels[k as usize];
        patient.push(k);
    }
    patient.extend(waiting.into_iter().flat_map(|(_, kernels)| kernels));
    patient
}

/// How many kernels still use each buffer.
struct Uses {
    left: Vec<u32>,
    /// The exclusive or of the kernels that are left: the last one, when one is left.
    who: Vec<u32>,
    written: Vec<bool>,
}

impl Uses {
    fn of(work: &Work) -> Uses {
        let mut uses = Uses {
            left: vec![0; work.buffers.len()],
            who: vec![0; work.buffers.len()],
            written: vec![false; work.buffers.len()],
        };
        for (k, kernel) in work.kernels.iter().enumerate() {
            for b in kernel.operands() {
                uses.left[b as usize] += 1;
                uses.who[b as usize] ^= k as u32;
            }
        }
        uses
    }

    /// Bytes that live after the kernel less bytes that lived before.
    fn growth(&self, work: &Work, kernel: KernelIndex) -> i64 {
        let of = &work.kernels[kernel as usize];
        let mut growth = 0;
        for b in of.operands() {
            let buffer = &work.buffers[b as usize];
            let lived = self.written[b as usize] || buffer.keep == Keep::FromStart;
            let dies = self.left[b as usize] == 1 && matches!(buffer.keep, Keep::FromStart | Keep::WhileUsed);
            match (lived, dies) {
                _ if buffer.keep == Keep::Always => {}
                (true, true) => growth -= buffer.bytes as i64,
                (false, false) => growth += buffer.bytes as i64,
                _ => {}
            }
        }
        growth
    }

    /// Runs a kernel, and tells of each kernel that is now the last to use one of its buffers.
    fn run(&mut self, work: &Work, kernel: KernelIndex, mut last: impl FnMut(KernelIndex, &Uses)) {
        let of = &work.kernels[kernel as usize];
        for b in of.operands() {
            self.left[b as usize] -= 1;
            self.who[b as usize] ^= kernel;
        }
        for &b in &of.writes {
            self.written[b as usize] = true;
        }
        for b in of.operands() {
            if self.left[b as usize] == 1 {
                last(self.who[b as usize], self);
            }
        }
    }
}

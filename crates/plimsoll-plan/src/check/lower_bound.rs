//! What no plan can do with less of: a proof that a budget is too small, found without looking for a plan.
//!
//! It shares no code with the search. Whatever a plan recomputes or moves away, each kernel of the step runs once, and while
//! it runs its operands, its results and its workspace are on the device. So is what the planner never lets rest elsewhere:
//! states that may not leave, inputs until their last use and results from their first write on. The hungriest kernel with
//! all of that is a bound from below, and so is what its operands take to come to be there ([`LookingBack`]). The floor, which is
//! a plan, is one from above.

use super::looking_back::LookingBack;
use crate::recompute::descent::Offload;
use plimsoll_ir::{BufferIndex, Home, Keep, Kernel, KernelIndex, Role, Work};
use std::cmp::Reverse;

/// From how many of the hungriest kernels the way back is looked for.
const LOOKED_BACK_FROM: usize = 64;

/// Bytes that no plan of some work does without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LowerBound {
    /// What stays on the device all the time and the hungriest kernel, with what waits for it or while its operands are made.
    pub bytes: u64,
    /// Of that, what stays all the time.
    pub persistent_bytes: u64,
    /// The kernel.
    pub kernel: Option<KernelIndex>,
}

/// The bound of all plans of some work in which so much may rest on the host.
pub fn lower_bound(work: &Work, alignment: u64, offload: Offload) -> LowerBound {
    let aligned = |bytes: u64| bytes.next_multiple_of(alignment);
    let bytes = |b: BufferIndex| aligned(work.buffers[b as usize].bytes);
    let mut used = vec![false; work.buffers.len()];
    work.kernels.iter().flat_map(Kernel::operands).for_each(|b| used[b as usize] = true);
    let stays = |b: BufferIndex| {
        let of = &work.buffers[b as usize];
        let may_leave = offload == Offload::ValuesAndStates && of.role != Role::Input && used[b as usize];
        of.keep == Keep::Always && of.home == Home::Device && !may_leave
    };
    let all = || 0..work.buffers.len() as BufferIndex;
    let persistent_bytes = all().filter(|&b| stays(b)).map(bytes).sum();
    let waiting = waiting(work);
    let needs = |k: KernelIndex| {
        let kernel = &work.kernels[k as usize];
        let operands: u64 = kernel.operands().filter(|&b| !stays(b)).map(bytes).sum();
        let waits: u64 = waiting[k as usize].iter().map(|&b| bytes(b)).sum();
        operands - replaced(kernel, |b| !stays(b), bytes) + aligned(kernel.workspace) + waits
    };
    let mut hungry: Vec<(u64, KernelIndex)> =
        (0..work.kernels.len() as KernelIndex).map(|k| (needs(k), k)).collect();
    hungry.sort_by_key(|&(bytes, k)| (Reverse(bytes), Reverse(k)));
    let mut hungriest = hungry.first().copied();
    // What may rest on the host can come from there.
    if let (Offload::Nothing, Some((most, _))) = (offload, hungriest) {
        let looking_back = LookingBack::new(work, alignment, most);
        for &(_, k) in hungry.iter().take(LOOKED_BACK_FROM) {
            let met = looking_back.from(k, &waiting[k as usize]);
            hungriest = hungriest.max(Some((met, k)));
        }
    }
    let (kernel_bytes, kernel) = hungriest.map_or((0, None), |(bytes, k)| (bytes, Some(k)));
    LowerBound { bytes: persistent_bytes + kernel_bytes, persistent_bytes, kernel }
}

/// The most bytes of results that may take the place of operands while a kernel runs.
fn replaced(
    kernel: &Kernel,
    passes: impl Fn(BufferIndex) -> bool,
    bytes: impl Fn(BufferIndex) -> u64,
) -> u64 {
    let may = |&&(w, r): &&(BufferIndex, BufferIndex)| {
        passes(w) && passes(r) && !kernel.reads.contains(&w) && bytes(w) == bytes(r)
    };
    let mut results: Vec<BufferIndex> = kernel.in_place.iter().filter(may).map(|&(w, _)| w).collect();
    results.sort_unstable();
    results.dedup();
    results.into_iter().map(bytes).sum()
}

/// For each kernel, the inputs and results that are there while it runs, although it does not use them: inputs of
/// which a use comes after it in any order, and results that were written before it in any order.
fn waiting(work: &Work) -> Vec<Vec<BufferIndex>> {
    let n = work.kernels.len();
    let edges = edges(work);
    let after = by_first(n, edges.iter().copied());
    let before = by_first(n, edges.iter().map(|&(first, then)| (then, first)));
    let mut waiting = vec![vec![]; n];
    for (b, buffer) in (0..).zip(&work.buffers) {
        let users = |written: bool| {
            let kernels = (0..).zip(&work.kernels);
            let uses =
                kernels.filter(move |(_, k)| k.writes.contains(&b) || (!written && k.reads.contains(&b)));
            uses.map(|(k, _)| k).collect::<Vec<KernelIndex>>()
        };
        let reached = match buffer.keep {
            _ if buffer.home == Home::Host => continue,
            Keep::FromStart => reachable(&before, users(false)),
            Keep::ToEnd => reachable(&after, users(true)),
            Keep::Always | Keep::WhileUsed => continue,
        };
        for k in (0..n).filter(|&k| reached[k] && !work.kernels[k].operands().any(|used| used == b)) {
            waiting[k].push(b);
        }
    }
    waiting
}

/// Which kernel comes before which in every order: a read after the write before it, a write after what touched the same
/// buffer since.
fn edges(work: &Work) -> Vec<(KernelIndex, KernelIndex)> {
    let mut edges = vec![];
    let mut written: Vec<Option<KernelIndex>> = vec![None; work.buffers.len()];
    let mut read_since: Vec<Vec<KernelIndex>> = vec![vec![]; work.buffers.len()];
    for (k, kernel) in (0..).zip(&work.kernels) {
        for &b in &kernel.reads {
            edges.extend(written[b as usize].map(|writer| (writer, k)));
            read_since[b as usize].push(k);
        }
        for &b in &kernel.writes {
            edges.extend(written[b as usize].map(|writer| (writer, k)));
            edges.extend(read_since[b as usize].drain(..).map(|reader| (reader, k)));
            written[b as usize] = Some(k);
        }
    }
    edges.retain(|&(first, then)| first != then);
    edges
}

/// The second kernels of edges by their first.
fn by_first(
    kernels: usize,
    edges: impl Iterator<Item = (KernelIndex, KernelIndex)>,
) -> Vec<Vec<KernelIndex>> {
    let mut lists = vec![vec![]; kernels];
    edges.for_each(|(first, then)| lists[first as usize].push(then));
    lists
}

/// The kernels that are reached from some, these among them.
fn reachable(neighbours: &[Vec<KernelIndex>], mut from: Vec<KernelIndex>) -> Vec<bool> {
    let mut reached = vec![false; neighbours.len()];
    while let Some(k) = from.pop() {
        if !std::mem::replace(&mut reached[k as usize], true) {
            from.extend(&neighbours[k as usize]);
        }
    }
    reached
}

//! The plan: when every kernel runs and where every buffer lies.
//!
//! Planning is three choices, one after another: an order (the one whose live bytes peak lowest), which
//! results replace their operands in place, and the offsets. What must survive the step lies at the bottom
//! of the arena in its declared order, so that plans for other batches or lengths of the same model agree on
//! where the weights are and can share one arena.

use crate::Error;
use crate::pack::{Effort, pack};
use crate::packing::{Item, Problem};
use crate::schedule::order::{self, Dependencies, Turn, early_copies, late_updates};
use plimsoll_ir::{Buffer, BufferIndex, Home, Keep, KernelIndex, Lifetime, Plan, Work, lifetimes};

/// How to plan.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// What all offsets are multiples of; a power of two.
    pub alignment: u64,
    /// How long to search for better offsets.
    pub effort: Effort,
    /// What keeps no buffer of more bytes than this for longer is put next to its like: copies of parameters come first,
    /// updates of states last. A device that launches neighbours together gains by it; zero where a value is better off
    /// right before or after what it is for.
    pub together_bytes: u64,
}

/// Plans some work.
///
/// ```
/// use plimsoll_ir::{Buffer, Home, Keep, Kernel, Role, Work, check};
/// use plimsoll_plan::{Effort, Options, plan};
/// let activation = |bytes| Buffer {
///     bytes, role: Role::Activation, keep: Keep::WhileUsed, home: Home::Device,
/// };
/// let kernel = |reads: &[u32], writes: &[u32]| Kernel {
///     reads: reads.into(), writes: writes.into(), ..Kernel::default()
/// };
/// let work = Work {
///     buffers: vec![activation(1024), activation(512), activation(512), activation(256)],
///     kernels: vec![kernel(&[], &[0]), kernel(&[0], &[1]), kernel(&[1], &[2]), kernel(&[2], &[3])],
///     rematerializations: vec![],
/// };
/// let plan = plan(&work, &Options { alignment: 64, effort: Effort::default(), together_bytes: 0 })?;
/// assert_eq!(plan.peak_bytes, 1536);
/// check(&work, &plan)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the work needs more bytes than can be addressed.
pub fn plan(work: &Work, options: &Options) -> Result<Plan, Error> {
    let peak =
        |order: &Vec<KernelIndex>| Layout::new(work, order, options.alignment, Home::Device).live_peak().0;
    let together = |order: Vec<KernelIndex>| match options.together_bytes {
        0 => order,
        bytes => late_updates(work, early_copies(work, order, bytes), bytes),
    };
    let [written, early] = orders(work).map(together);
    let best = if peak(&early) < peak(&written) { early } else { written };
    plan_in_order(work, best, options)
}

/// Plans some work whose order is settled.
pub(crate) fn plan_in_order(work: &Work, order: Vec<KernelIndex>, options: &Options) -> Result<Plan, Error> {
    let device = Layout::new(work, &order, options.alignment, Home::Device);
    let (lower_bound_bytes, peak_position) = device.live_peak();
    let host = Layout::new(work, &order, options.alignment, Home::Host);
    let mut plan = Plan {
        offsets: vec![0; work.buffers.len()],
        workspace_offsets: vec![0; work.kernels.len()],
        workspace_bytes: work.kernels.iter().map(|kernel| kernel.workspace).collect(),
        alignment: options.alignment,
        peak_bytes: 0,
        host_bytes: 0,
        lower_bound_bytes,
        peak_position,
        order: vec![],
    };
    plan.peak_bytes = device.place(options.effort, &mut plan)?;
    plan.host_bytes = host.place(options.effort, &mut plan)?;
    plan.order = order;
    Ok(plan)
}

/// The orders that are tried: as written, and with whatever frees memory as early as it can be.
pub(crate) fn orders(work: &Work) -> [Vec<KernelIndex>; 2] {
    [order::as_written(work), order::freeing_early(work, &Dependencies::of(work), Turn::Newest)]
}

/// The buffers of one home in some order, and which of them share an address.
struct Layout<'a> {
    work: &'a Work,
    home: Home,
    positions: usize,
    alignment: u64,
    /// What must be placed: a lifetime and aligned bytes. Slots of buffers come first, then workspaces.
    slots: Vec<Item>,
    /// The slot of each buffer; `None` for what survives the step.
    slot_of: Vec<Option<u32>>,
    /// The slot of each kernel's workspace.
    workspace_of: Vec<Option<u32>>,
    persistent_bytes: u64,
}

impl<'a> Layout<'a> {
    fn new(work: &'a Work, order: &[KernelIndex], alignment: u64, home: Home) -> Layout<'a> {
        let lifetimes = lifetimes(work, order);
        let aligned = |bytes: u64| bytes.next_multiple_of(alignment);
        let mut layout = Layout {
            work,
            home,
            positions: order.len(),
            alignment,
            slots: vec![],
            slot_of: vec![None; work.buffers.len()],
            workspace_of: vec![None; work.kernels.len()],
            persistent_bytes: 0,
        };
        let here = |b: &Buffer| b.home == home;
        for buffer in work.buffers.iter().filter(|b| here(b) && b.keep == Keep::Always) {
            layout.persistent_bytes += aligned(buffer.bytes);
        }
        let replaced = replacements(work, order, &lifetimes, alignment);
        // A buffer that replaces another was written later, so walking in the order of definition finds the
        // slot of what it replaces.
        let mut by_definition: Vec<u32> = (0..work.buffers.len() as u32).collect();
        by_definition.sort_by_key(|&b| lifetimes[b as usize].lower);
        for b in by_definition {
            let (buffer, lifetime) = (&work.buffers[b as usize], lifetimes[b as usize]);
            if !here(buffer) || buffer.keep == Keep::Always || lifetime.lower >= lifetime.upper {
                continue;
            }
            let shared = replaced[b as usize].and_then(|old| layout.slot_of[old as usize]);
            layout.slot_of[b as usize] = Some(match shared {
                Some(slot) => {
                    let item = &mut layout.slots[slot as usize];
                    item.lifetime.upper = item.lifetime.upper.max(lifetime.upper);
                    slot
                }
                None => layout.slot(Item { lifetime, size: aligned(buffer.bytes) }),
            });
        }
        if home == Home::Device {
            for (position, &kernel) in order.iter().enumerate() {
                let bytes = work.kernels[kernel as usize].workspace;
                if bytes > 0 {
                    let lifetime = Lifetime { lower: position as u64, upper: position as u64 + 1 };
                    let slot = layout.slot(Item { lifetime, size: aligned(bytes) });
                    layout.workspace_of[kernel as usize] = Some(slot);
                }
            }
        }
        layout
    }

    fn slot(&mut self, item: Item) -> u32 {
        self.slots.push(item);
        self.slots.len() as u32 - 1
    }

    /// The most bytes that live at once, and the first position at which they do.
    fn live_peak(&self) -> (u64, usize) {
        let mut change = vec![0i64; self.positions + 1];
        for item in &self.slots {
            change[item.lifetime.lower as usize] += item.size as i64;
            change[item.lifetime.upper as usize] -= item.size as i64;
        }
        let (mut live, mut peak, mut at) = (0i64, 0i64, 0);
        for (position, change) in change.into_iter().enumerate() {
            live += change;
            if live > peak {
                (peak, at) = (live, position);
            }
        }
        (peak as u64 + self.persistent_bytes, at)
    }

    /// Gives every slot an offset above what survives the step, and returns the bytes of the arena.
    fn place(self, effort: Effort, plan: &mut Plan) -> Result<u64, Error> {
        let problem = Problem::new(self.slots, self.alignment)?;
        let packing = pack(&problem, None, effort);
        let at = |slot: u32| self.persistent_bytes + packing.offsets[slot as usize];
        let mut survivors = 0;
        for (b, buffer) in self.work.buffers.iter().enumerate().filter(|(_, b)| b.home == self.home) {
            if let Some(slot) = self.slot_of[b] {
                plan.offsets[b] = at(slot);
            } else if buffer.keep == Keep::Always {
                plan.offsets[b] = survivors;
                survivors += buffer.bytes.next_multiple_of(self.alignment);
            }
        }
        for (offset, slot) in plan.workspace_offsets.iter_mut().zip(&self.workspace_of) {
            if let Some(slot) = *slot {
                *offset = at(slot);
            }
        }
        Ok(self.persistent_bytes + packing.height)
    }
}

/// Whether sizes and homes let a buffer take the place of another. A smaller one would hold on to all of the
/// bytes for as long as it lives.
pub(crate) fn may_replace(fresh: &Buffer, dying: &Buffer, alignment: u64) -> bool {
    fresh.home == dying.home
        && fresh.bytes.next_multiple_of(alignment) == dying.bytes.next_multiple_of(alignment)
        && fresh.bytes <= dying.bytes
        && fresh.bytes > 0
}

/// For each buffer, the one it takes the place of: an operand that dies at the kernel that writes it.
fn replacements(
    work: &Work,
    order: &[KernelIndex],
    lifetimes: &[Lifetime],
    alignment: u64,
) -> Vec<Option<BufferIndex>> {
    let mut replaced = vec![None; work.buffers.len()];
    let mut taken = vec![false; work.buffers.len()];
    for (position, &k) in order.iter().enumerate() {
        let now = position as u64;
        for &(new, old) in &work.kernels[k as usize].in_place {
            let (fresh, dying) = (&work.buffers[new as usize], &work.buffers[old as usize]);
            let fits = matches!(fresh.keep, Keep::WhileUsed | Keep::ToEnd)
                && matches!(dying.keep, Keep::WhileUsed | Keep::FromStart)
                && lifetimes[new as usize].lower == now
                && lifetimes[old as usize].upper == now + 1
                && (lifetimes[old as usize].lower < now || dying.keep == Keep::FromStart)
                && may_replace(fresh, dying, alignment)
                && !taken[old as usize]
                && replaced[new as usize].is_none();
            if fits {
                replaced[new as usize] = Some(old);
                taken[old as usize] = true;
            }
        }
    }
    replaced
}

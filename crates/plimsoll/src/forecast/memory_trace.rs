//! A plan as a trace: what one training step does with the arena, in the terms that explain any program's memory.
//!
//! A compiled step asks no pool for anything, so nothing is recorded while it runs. It need not be: the plan says
//! what lives when and where. The trace is a whole step and a second one up to the moment when the most is live, which
//! is where the layout is taken.

use crate::run::Compiled;
use crate::{Error, ErrorKind, Result};
use plimsoll_ir::{Home, Keep, Lifetime};
use plimsoll_memory::{
    Action, Category, Frame, Layout, Ledger, OwnerId, Owners, Piece, PieceState, Request, RequestId, RunKind,
    Segment, SegmentClass, Trace, TraceFile,
};
use std::collections::BTreeMap;

/// The file of a run that holds what it did with memory.
pub(crate) const MEMORY_TRACE: &str = "memory.jsonl";

/// A trace as the bytes of its file.
pub(crate) fn memory_trace_bytes(trace: &TraceFile) -> Result<Vec<u8>> {
    let mut bytes = vec![];
    trace.write(&mut bytes).map_err(|error| {
        Error::new(ErrorKind::File, format!("the memory trace cannot be written: {error}")).caused_by(error)
    })?;
    Ok(bytes)
}

/// Where the arena begins in a trace. An address of 0 would stand for one that is not known.
const ARENA: u64 = 1 << 32;

/// What a compiled step does with its arena under a budget.
pub(crate) fn of_plan(compiled: &Compiled, budget: Option<u64>, micro_batches: usize) -> TraceFile {
    let (work, plan) = (&compiled.work, compiled.program.plan());
    let here = |b: &usize| work.buffers[*b].home == Home::Device && work.buffers[*b].bytes > 0;
    let survives = |b: &usize| work.buffers[*b].keep == Keep::Always;
    let (states, others): (Vec<usize>, Vec<usize>) = (0..work.buffers.len()).filter(here).partition(survives);
    let trace = Trace { complete: true, marks: vec!["step".into()], ..Trace::default() };
    let mut walk = Walk { compiled, owners: Owners::default(), trace, live: BTreeMap::new(), time: 0 };
    if plan.peak_bytes > 0 {
        walk.push(Action::Reserve { address: ARENA, bytes: plan.peak_bytes });
    }
    states.into_iter().for_each(|state| walk.allocate_buffer(state));
    walk.step(&others, None);
    walk.step(&others, Some(plan.peak_position));
    let layout = walk.layout();
    let notes = [
        ("micro_batches", micro_batches.to_string()),
        ("host_bytes", plan.host_bytes.to_string()),
        ("kernels", plan.order.len().to_string()),
        ("times", "positions in the order of kernels".into()),
        ("layout", "at the peak of the second step".into()),
    ];
    TraceFile {
        device: "cpu".into(),
        kind: RunKind::Compiled,
        capacity: None,
        limit: budget,
        notes: notes.map(|(name, value)| (name.to_string(), value)).into(),
        owners: walk.owners,
        trace: walk.trace,
        layout: Some(layout),
    }
}

/// What lives on average over the kernels of a compiled step, closed to the arena: holes are padding.
pub(crate) fn mean_ledger(compiled: &Compiled) -> Ledger {
    let (work, plan) = (&compiled.work, compiled.program.plan());
    let positions = plan.order.len().max(1) as u128;
    let mean = |bytes: u64, times: u64| (u128::from(bytes) * u128::from(times) / positions) as u64;
    let mut ledger = Ledger::default();
    for (buffer, lifetime) in work.buffers.iter().zip(plan.lifetimes(work)) {
        if buffer.home == Home::Device {
            ledger.add(
                buffer.role.category(),
                mean(buffer.bytes, lifetime.upper.saturating_sub(lifetime.lower)),
            );
        }
    }
    for kernel in &work.kernels {
        ledger.add(Category::Workspace, mean(kernel.workspace, 1));
    }
    ledger.close(plan.peak_bytes);
    ledger
}

/// A step that is gone through kernel by kernel.
struct Walk<'a> {
    compiled: &'a Compiled,
    owners: Owners,
    trace: Trace,
    /// What is live, by address: a buffer, or the workspace of the kernel that runs.
    live: BTreeMap<u64, (RequestId, Option<usize>)>,
    time: u64,
}

impl Walk<'_> {
    fn push(&mut self, action: Action) {
        self.trace.push(self.time, action);
    }

    /// Goes through a step of these buffers, or up to where the kernel at position `end` runs.
    fn step(&mut self, buffers: &[usize], end: Option<usize>) {
        let (work, plan) = (&self.compiled.work, self.compiled.program.plan());
        let program = self.compiled.program.program();
        let lifetimes = plan.lifetimes(work);
        let mut begins = vec![vec![]; plan.order.len()];
        let mut ends = vec![vec![]; plan.order.len()];
        for &buffer in buffers {
            let Lifetime { lower, upper } = lifetimes[buffer];
            if lower < upper {
                begins[lower as usize].push(buffer);
                ends[upper as usize - 1].push(buffer);
            }
        }
        self.push(Action::Mark(0));
        for (position, &kernel) in plan.order.iter().enumerate() {
            begins[position].iter().for_each(|&buffer| self.allocate_buffer(buffer));
            let bytes = work.kernels[kernel as usize].workspace;
            let workspace = ARENA + plan.workspace_offsets[kernel as usize];
            if bytes > 0 {
                let of = &program.kernels[kernel as usize];
                let owner = format!("{}/{}/{}", Category::Workspace.name(), of.scope, of.name());
                self.allocate(workspace, bytes, None, &owner);
            }
            if end == Some(position) {
                return;
            }
            self.time += 1;
            if bytes > 0 {
                self.free(workspace);
            }
            for &buffer in &ends[position] {
                let at = ARENA + plan.offsets[buffer];
                // Where a result has taken its place it is gone already.
                if self.live.get(&at).is_some_and(|&(_, there)| there == Some(buffer)) {
                    self.free(at);
                }
            }
        }
    }

    fn allocate_buffer(&mut self, buffer: usize) {
        let (work, plan) = (&self.compiled.work, self.compiled.program.plan());
        let program = self.compiled.program.program();
        let of = &work.buffers[buffer];
        let owner =
            format!("{}/{}", of.role.category().name(), program.buffers[buffer].name.replace(':', "/"));
        self.allocate(ARENA + plan.offsets[buffer], of.bytes, Some(buffer), &owner);
    }

    fn allocate(&mut self, address: u64, bytes: u64, buffer: Option<usize>, owner: &str) {
        // A result that replaces an operand ends it a kernel early.
        while let Some((&at, &(id, _))) = self.live.range(..address + bytes).next_back()
            && address < at + self.trace.request(id).bytes
        {
            self.free(at);
        }
        let names = owner.split('/').filter(|name| !name.is_empty());
        let owner = names.fold(OwnerId::UNKNOWN, |parent, name| {
            self.owners.child(parent, Frame { name: name.into(), ..Frame::default() })
        });
        let id = self.trace.push_request(Request { bytes, address, stream: 0, owner });
        self.push(Action::Allocate(id));
        self.live.insert(address, (id, buffer));
    }

    fn free(&mut self, address: u64) {
        if let Some((id, _)) = self.live.remove(&address) {
            self.push(Action::Free(id));
        }
    }

    /// What lies where in the arena now.
    fn layout(&self) -> Layout {
        let bytes = self.compiled.peak_bytes();
        let mut pieces: Vec<Piece> = vec![];
        let mut at = ARENA;
        let free = |address: u64, end: u64| Piece {
            address,
            bytes: end - address,
            requested: 0,
            state: PieceState::Free,
            owner: OwnerId::UNKNOWN,
        };
        for (&address, &(id, _)) in &self.live {
            let &Request { bytes, owner, .. } = self.trace.request(id);
            if at < address {
                pieces.push(free(at, address));
            }
            pieces.push(Piece { address, bytes, requested: bytes, state: PieceState::Live, owner });
            at = address + bytes;
        }
        if at < ARENA + bytes {
            pieces.push(free(at, ARENA + bytes));
        }
        let segment = Segment { address: ARENA, bytes, stream: 0, class: SegmentClass::Any, pieces };
        Layout { segments: if bytes > 0 { vec![segment] } else { vec![] } }
    }
}

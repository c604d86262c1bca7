//! A device that is known by its profile alone: plans can be made for it, and nothing runs.

use crate::books::Books;
use crate::device::{ArenaBytes, Device, DeviceMemory, PlanningTraits, SelfTest};
use crate::error::{Error, ErrorKind, Result};
use plimsoll_graph::program::{Body, Kernel};
use plimsoll_graph::{Op, Program};
use plimsoll_memory::{Block, Pool};
use plimsoll_plan::Profile;
use std::rc::Rc;

/// On a GPU a copy of a parameter is made at the beginning of the step, and a gradient waits for its end, where they have
/// at most so many bytes: copies are launched together, and updates. What is kept of such a parameter at all times is
/// mostly several times as much.
const GROUP_BYTES: u64 = 64 << 10;

/// Logits of a chunk can have rows that begin at addresses that tensor cores take, and are all the time in a part of
/// memory that does not grow with the batch: fewer bytes than these are not worth it.
const CHUNK_LOGITS_BYTES: usize = 1 << 20;

/// The pages of most GPUs.
const PAGE_BYTES: u64 = 2 << 20;

impl PlanningTraits {
    /// Those of a GPU whose addresses are multiples of `alignment`.
    pub fn of_gpu(alignment: u64) -> PlanningTraits {
        PlanningTraits {
            alignment,
            stages_inputs: true,
            group_bytes: GROUP_BYTES,
            rests_elsewhere: true,
            memory_is_scarce: true,
            chunk_logits_bytes: CHUNK_LOGITS_BYTES,
        }
    }
}

/// A device that is not here.
#[derive(Debug, Clone)]
pub struct ProfiledDevice {
    profile: Profile,
}

impl ProfiledDevice {
    /// The device that a profile describes.
    pub fn new(profile: Profile) -> ProfiledDevice {
        ProfiledDevice { profile }
    }

    fn workspace(&self, kernel: &Kernel) -> u64 {
        match &kernel.body {
            Body::Op(op) if is_of_libraries(op) => self.profile.workspace_bytes,
            // The logits of the rows that are worked on at once, and sums of the weight's gradient.
            Body::Op(Op::ProjectedCrossEntropy { chunk, .. }) => {
                let classes = kernel.writes[3].view.shape.elements() / kernel.reads[0].view.shape[1].max(1);
                let size = kernel.reads[0].dtype.size();
                let sums = if size < 4 { 4 * kernel.writes[3].view.shape.elements() } else { 0 };
                self.profile.workspace_bytes + (chunk * classes * size + sums) as u64
            }
            // The op's result, where no library fuses the epilogue.
            Body::WithEpilogue(fused) => {
                let own = if is_of_libraries(&fused.op) { self.profile.workspace_bytes } else { 0 };
                own + (fused.shape.elements() * fused.dtype.size()) as u64
            }
            Body::Op(_) | Body::Loop(_) | Body::Copy | Body::Wait => 0,
        }
    }

    fn not_here<T>(&self) -> Result<T> {
        let message =
            format!("{} is known by its profile alone: name a device that is here", self.profile.name);
        Err(Error::new(ErrorKind::Unavailable, message))
    }
}

/// Whether libraries compute an op, in workspace of theirs.
fn is_of_libraries(op: &Op) -> bool {
    matches!(
        op,
        Op::Dot { .. }
            | Op::Conv2d(_)
            | Op::Conv2dInputGrad { .. }
            | Op::Conv2dFilterGrad { .. }
            | Op::Lstm
            | Op::LstmGrad
            | Op::Gru
            | Op::GruGrad
    )
}

impl Device for ProfiledDevice {
    fn name(&self) -> String {
        self.profile.name.clone()
    }

    fn model(&self) -> String {
        self.profile.about.split(',').next().unwrap_or_default().to_string()
    }

    fn planning_traits(&self) -> PlanningTraits {
        PlanningTraits::of_gpu(self.profile.alignment)
    }

    fn workspaces(&self, program: &Program) -> Result<[Vec<u64>; 2]> {
        let of = |kernels: &[Kernel]| kernels.iter().map(|kernel| self.workspace(kernel)).collect();
        Ok([of(&program.kernels), of(&program.rematerializations)])
    }

    fn books(&self) -> Result<Option<Books>> {
        let Profile { context_bytes, memory_bytes, .. } = self.profile;
        Ok((context_bytes > 0).then_some(Books {
            total_bytes: memory_bytes,
            used_bytes: context_bytes,
            at_open_bytes: context_bytes,
            mapped_bytes: 0,
            rest_bytes: 0,
            page_bytes: PAGE_BYTES,
        }))
    }

    fn reserve(&self, _: ArenaBytes, _: Option<u64>) -> Result<Box<dyn DeviceMemory>> {
        self.not_here()
    }

    fn pool(&self, _: Option<u64>) -> Result<Pool> {
        self.not_here()
    }

    fn run_once(&self, _: &Program, _: &[Rc<Block>], _: &Pool) -> Result<Vec<Rc<Block>>> {
        self.not_here()
    }

    fn write_block(&self, _: &mut Block, _: &[u8]) -> Result<()> {
        self.not_here()
    }

    fn read_block(&self, _: &Block, _: &mut [u8]) -> Result<()> {
        self.not_here()
    }

    fn selftest(&self) -> Vec<SelfTest> {
        vec![]
    }
}

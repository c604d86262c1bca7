//! What a planner sees of a program, and the program that a planner's choices make of it.
//!
//! A planner works on sizes alone and may add launches (a kernel run again, a copy to the host) and buffers (what those
//! make). Every one of them has an origin in the program, which is all that is needed to write the program that runs.

use crate::Program;
use crate::lower::{arithmetic, family};
use crate::program::{Body, Buffer, BufferId, Kernel, Operand, View};
use plimsoll_ir::{BufferIndex, LaunchSource, Work};

impl Program {
    /// What a planner sees of this program on a device whose kernels need these workspaces: those of
    /// [`Program::kernels`], and those of [`Program::rematerializations`].
    pub fn work(&self, [kernels, rematerializations]: [Vec<u64>; 2]) -> Work {
        let buffer = |b: &Buffer| plimsoll_ir::Buffer {
            bytes: b.bytes() as u64,
            role: b.role,
            keep: b.keep,
            home: b.home,
        };
        let kernel = |(k, workspace): (&Kernel, u64)| plimsoll_ir::Kernel {
            reads: k.reads.iter().map(|o| o.buffer.0).collect(),
            writes: k.writes.iter().map(|o| o.buffer.0).collect(),
            in_place: k.in_place.iter().map(|&(w, r)| (k.writes[w].buffer.0, k.reads[r].buffer.0)).collect(),
            workspace,
            flops: k.flops,
            bytes: k.bytes,
            arithmetic: arithmetic(k),
            family: family(k),
        };
        Work {
            buffers: self.buffers.iter().map(buffer).collect(),
            kernels: self.kernels.iter().zip(kernels).map(kernel).collect(),
            rematerializations: self.rematerializations.iter().zip(rematerializations).map(kernel).collect(),
        }
    }

    /// The program of some work that a planner made of this one: `sources` says which kernel each launch runs,
    /// `origins` which buffer each buffer is, or is a copy of.
    pub fn relaunched(&self, work: &Work, sources: &[LaunchSource], origins: &[BufferIndex]) -> Program {
        let origin = |id: u32| &self.buffers[origins[id as usize] as usize];
        let buffers = work.buffers.iter().zip(0..).map(|(planned, id)| Buffer {
            keep: planned.keep,
            home: planned.home,
            ..origin(id).clone()
        });
        let whole = |&id: &u32| {
            let of = origin(id);
            Operand { buffer: BufferId(id), dtype: of.dtype, view: View::dense(of.shape) }
        };
        let kernels = work.kernels.iter().zip(sources).map(|(planned, &source)| {
            let copied = |body| Kernel {
                scope: origin(planned.reads[0]).name.clone(),
                body,
                reads: planned.reads.iter().map(whole).collect(),
                writes: planned.writes.iter().map(whole).collect(),
                in_place: vec![],
                flops: 0,
                bytes: planned.bytes,
            };
            let original = match source {
                LaunchSource::Kernel(k) | LaunchSource::Again(k) => &self.kernels[k as usize],
                LaunchSource::Rematerialize(m) => &self.rematerializations[m as usize],
                LaunchSource::Copy => return copied(Body::Copy),
                LaunchSource::Wait => return copied(Body::Wait),
            };
            let placed = |operands: &[Operand], ids: &[u32]| -> Vec<Operand> {
                operands.iter().zip(ids).map(|(o, &id)| Operand { buffer: BufferId(id), ..*o }).collect()
            };
            Kernel {
                reads: placed(&original.reads, &planned.reads),
                writes: placed(&original.writes, &planned.writes),
                ..original.clone()
            }
        });
        Program {
            buffers: buffers.collect(),
            kernels: kernels.collect(),
            rematerializations: vec![],
            states: self.states.clone(),
            inputs: self.inputs.clone(),
            outputs: self.outputs.clone(),
        }
    }
}

//! From a schedule to work of its own, which plans, devices and checks know how to deal with.

use crate::schedule::search_context::SearchContext;
use crate::schedule::{InstanceId, Schedule};
use plimsoll_ir::{Buffer, BufferIndex, Kernel, LaunchSource, Work};

impl Schedule {
    /// The schedule as work of its own, and where its kernels and buffers come from. Buffers that the original
    /// work has keep their numbers.
    pub(crate) fn expand(&self, context: &SearchContext<'_>) -> (Work, Vec<LaunchSource>, Vec<BufferIndex>) {
        let originals = context.work.buffers.len();
        let mut number: Vec<u32> = (0..originals as u32).collect();
        let mut origins = number.clone();
        for instance in &self.instances[originals..] {
            number.push(origins.len() as u32);
            if !instance.uses.is_empty() {
                origins.push(instance.buffer);
            }
        }
        let mut buffers = context.work.buffers.clone();
        let living = self.instances[originals..].iter().filter(|i| !i.uses.is_empty());
        buffers.extend(living.map(|i| Buffer {
            keep: i.keep,
            home: i.home,
            ..context.work.buffers[i.buffer as usize]
        }));
        for (buffer, instance) in buffers.iter_mut().zip(&self.instances[..originals]) {
            (buffer.keep, buffer.home) = (instance.keep, instance.home);
        }
        let numbered =
            |list: &[InstanceId]| -> Vec<u32> { list.iter().map(|&i| number[i as usize]).collect() };
        let mut sources = Vec::with_capacity(self.len());
        let mut kernels = Vec::with_capacity(self.len());
        for id in self.in_order() {
            let launch = &self.launches[id as usize];
            let of = context.kernel(launch.source);
            let bytes =
                |i: &InstanceId| context.work.buffers[self.instances[*i as usize].buffer as usize].bytes;
            kernels.push(Kernel {
                reads: numbered(&launch.reads),
                writes: numbered(&launch.writes),
                in_place: self
                    .in_place(context, launch)
                    .map(|(w, r)| (number[w as usize], number[r as usize]))
                    .collect(),
                bytes: if launch.source == LaunchSource::Copy {
                    2 * bytes(&launch.reads[0])
                } else {
                    of.bytes
                },
                ..of.clone()
            });
            sources.push(launch.source);
        }
        (Work { buffers, kernels, rematerializations: vec![] }, sources, origins)
    }
}

//! Work that looks like training steps, for tests of what fits.

use plimsoll_ir::{Buffer, Home, Keep, Kernel, Role, Work, check};
use plimsoll_plan::{Copies, Costs, Fitted, Offload, check_remedies};
use proptest::prelude::*;
use std::ops::Range;

/// Builds something like a training step: layers forward, some that skip, then backward in reverse, each weight
/// updated as its gradient is known, with one or two optimizer slots.
struct Builder {
    work: Work,
    seconds: Vec<f64>,
    rematerialize_seconds: Vec<f64>,
}

impl Builder {
    fn buffer(&mut self, bytes: u64, role: Role, keep: Keep) -> u32 {
        self.work.buffers.push(Buffer { bytes, role, keep, home: Home::Device });
        self.work.buffers.len() as u32 - 1
    }

    fn activation(&mut self, bytes: u64) -> u32 {
        self.buffer(bytes, Role::Activation, Keep::WhileUsed)
    }

    fn kernel(&mut self, seconds: f64, kernel: Kernel) {
        self.seconds.push(seconds);
        self.work.kernels.push(kernel);
    }
}

#[derive(Debug, Clone)]
struct Layer {
    bytes: u64,
    weight: u64,
    workspace: u64,
    seconds: f64,
    /// How many layers back its second operand is; 0 for none.
    skip: usize,
    slots: usize,
    /// Whether it also stores what a rematerialization can make it from.
    pair: bool,
    /// Where its slots are.
    home: Home,
}

fn layer() -> impl Strategy<Value = Layer> {
    let home = prop_oneof![8 => Just(Home::Device), 1 => Just(Home::Host)];
    (1u64..4000, 1u64..1000, 0u64..500, 1u32..1000, 0usize..5, 0usize..3, any::<bool>(), home).prop_map(
        |(bytes, weight, workspace, seconds, skip, slots, pair, home)| Layer {
            bytes,
            weight,
            workspace,
            seconds: f64::from(seconds) * 1e-6,
            skip,
            slots,
            pair,
            home,
        },
    )
}

/// Steps of so many layers.
pub(crate) fn step(layers: Range<usize>) -> impl Strategy<Value = (Work, Costs)> {
    (prop::collection::vec(layer(), layers), any::<bool>()).prop_map(|(layers, overlap)| {
        let mut b = Builder { work: Work::default(), seconds: vec![], rematerialize_seconds: vec![] };
        let clock = b.buffer(16, Role::Random, Keep::Always);
        let weights: Vec<u32> =
            layers.iter().map(|l| b.buffer(l.weight, Role::Parameter, Keep::Always)).collect();
        let slots: Vec<Vec<u32>> = layers
            .iter()
            .map(|l| (0..l.slots).map(|_| b.buffer(l.weight, Role::Optimizer, Keep::Always)).collect())
            .collect();
        for (layer, slots) in layers.iter().zip(&slots) {
            slots.iter().for_each(|&slot| b.work.buffers[slot as usize].home = layer.home);
        }
        let input = b.buffer(500, Role::Input, Keep::FromStart);
        let mut values = vec![input];
        let mut inner = vec![];
        for (i, l) in layers.iter().enumerate() {
            let x = *values.last().unwrap();
            let mut reads = vec![x, weights[i], clock];
            if l.skip > 0 && values.len() > l.skip {
                reads.push(values[values.len() - 1 - l.skip]);
            }
            let y = b.activation(l.bytes);
            let mut writes = vec![y];
            if l.pair {
                let h = b.activation(l.bytes);
                writes.push(h);
                inner.push(Some(h));
                b.work.rematerializations.push(Kernel {
                    reads: vec![h],
                    writes: vec![y],
                    ..Kernel::default()
                });
                b.rematerialize_seconds.push(l.seconds / 10.0);
            } else {
                inner.push(None);
            }
            b.kernel(l.seconds, Kernel { reads, writes, workspace: l.workspace, ..Kernel::default() });
            values.push(y);
        }
        let loss = b.buffer(4, Role::Metric, Keep::ToEnd);
        let mut gradient = b.activation(layers.last().unwrap().bytes);
        b.kernel(
            1e-6,
            Kernel {
                reads: vec![*values.last().unwrap()],
                writes: vec![loss, gradient],
                ..Kernel::default()
            },
        );
        for (i, l) in layers.iter().enumerate().rev() {
            let mut reads = vec![gradient, values[i], values[i + 1], weights[i]];
            reads.extend(inner[i]);
            let bytes = if i == 0 { 1 } else { layers[i - 1].bytes };
            let next = b.activation(bytes);
            let grad = b.buffer(l.weight, Role::Gradient, Keep::WhileUsed);
            let in_place = vec![(next, gradient)];
            let writes = vec![next, grad];
            b.kernel(
                2.0 * l.seconds,
                Kernel { reads, writes, in_place, workspace: l.workspace, ..Kernel::default() },
            );
            gradient = next;
            let mut touched = vec![weights[i]];
            touched.extend(&slots[i]);
            let mut reads = touched.clone();
            reads.push(grad);
            b.kernel(1e-6, Kernel { reads, writes: touched, ..Kernel::default() });
        }
        b.kernel(1e-7, Kernel { reads: vec![clock], writes: vec![clock], ..Kernel::default() });
        let copies = Copies { bandwidth: 1e9, latency_seconds: 1e-7, overlap };
        (
            b.work,
            Costs {
                kernels: b.seconds,
                rematerializations: b.rematerialize_seconds,
                copies,
                copy_share: 1e-12,
                host_bytes: u64::MAX,
            },
        )
    })
}

/// What may be moved to the host.
pub(crate) fn offload() -> impl Strategy<Value = Offload> {
    prop_oneof![Just(Offload::Nothing), Just(Offload::Values), Just(Offload::ValuesAndStates)]
}

/// Runs both checks.
pub(crate) fn verify(work: &Work, fitted: &Fitted) -> Result<(), TestCaseError> {
    let checked = check(&fitted.work, &fitted.plan);
    prop_assert!(checked.is_ok(), "{checked:?}");
    let faithful = check_remedies(work, fitted);
    prop_assert!(faithful.is_ok(), "{faithful:?}");
    Ok(())
}

//! What was placed where: a log of a plan, to be read when one wonders.

use crate::run::Compiled;
use plimsoll_graph::program::{Body, Home};
use plimsoll_memory::{Column, Table, format_bytes};

/// Buffers of fewer bytes are not listed, unless they survive the step.
const LARGE: u64 = 1 << 20;

/// Every state and large buffer of a program with its home, offset and bytes, and every kernel in the order in which they run,
/// with where it runs; in lines of at most so many columns. What is not on the device rests `elsewhere`.
pub(crate) fn placement_text(compiled: &Compiled, device: &str, elsewhere: &str, width: usize) -> String {
    use Column::{Cut, Left, Right};
    let (program, plan) = (compiled.program.program(), compiled.program.plan());
    let mut buffers = Table::new([Left, Right, Right, Left, Cut]).indent(2);
    buffers.row(["home", "offset", "bytes", "for", "name"].map(Into::into));
    for (index, (buffer, placed)) in program.buffers.iter().zip(&compiled.work.buffers).enumerate() {
        let is_state = program.states.iter().any(|state| state.index() == index);
        if !is_state && placed.bytes < LARGE {
            continue;
        }
        buffers.row([
            if placed.home == Home::Device { device.into() } else { elsewhere.into() },
            plan.offsets[index].to_string().into(),
            format_bytes(placed.bytes).into(),
            placed.role.category().name().into(),
            (&*buffer.name).into(),
        ]);
    }
    let mut kernels = Table::new([Right, Left, Left, Cut]).indent(2);
    kernels.row(["", "on", "kernel", "of"].map(Into::into));
    for (position, &kernel) in plan.order.iter().enumerate() {
        let kernel = &program.kernels[kernel as usize];
        let place = match kernel.body {
            Body::Copy | Body::Wait => format!("{device}/{elsewhere}"),
            _ => device.to_string(),
        };
        kernels.row([
            (position + 1).to_string().into(),
            place.into(),
            kernel.name().into(),
            (&*kernel.scope).into(),
        ]);
    }
    format!(
        "states, and buffers of {} or more\n{}\nkernels in their order\n{}",
        format_bytes(LARGE),
        buffers.to_text(width),
        kernels.to_text(width)
    )
}

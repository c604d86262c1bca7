//! Fused loops as generated CUDA C++.
//!
//! A fused loop is a straight-line program over elements. Each becomes the source of a kernel in which extents, strides
//! and types are constants, so that nothing is interpreted and the compiler can optimise all of it. Extents that depend
//! on batch and length alone are kernel arguments where that costs nothing, so that a step of another length runs the
//! same code. Generating the source is a pure function of the loop and of the device's properties: it is tested without
//! a device.
//!
//! Each register is rounded to its type, and reductions have one order, which the length of a row alone decides. So a
//! value has the same bits whichever loop computes it, and however the work is divided among threads.

mod elements;
mod epilogue;
mod geometry;
mod multi_tensor;
mod nest;
mod rows;
mod scalar;
mod split;
#[cfg(test)]
mod tests;
mod writer;

use crate::codegen::engine::{Engine, Properties};
use crate::codegen::launches::{CompiledLaunch, LaunchArgument, LaunchSequence};
use crate::error::{Error, ErrorKind, Result};
use crate::routine::Routine;
pub(crate) use epilogue::{Epilogue, element_epilogue, tile_epilogue};
pub(crate) use multi_tensor::{SmallLoop, prepare_multi_tensor, small_loop};
use nest::Nest;
use plimsoll_graph::program::{Loop, Operand};
use std::sync::Arc;
use writer::LoopLaunch;
pub(crate) use writer::PRELUDE;

/// What is launched for a loop, one after another, and the bytes of workspace it takes.
#[derive(Debug, Default)]
struct LoopPlan {
    launches: Vec<LoopLaunch>,
    workspace: u64,
}

/// Prepares a fused loop.
///
/// # Errors
/// If the loop has a function of a type that there is none of, or does not compile.
pub(crate) fn prepare(
    engine: &Arc<Engine>,
    body: &Loop,
    reads: &[Operand],
    writes: &[Operand],
) -> Result<Box<dyn Routine>> {
    let plan = plan(body, reads, writes, engine.properties())?;
    let mut launches = Vec::with_capacity(plan.launches.len());
    for launch in plan.launches {
        let function = engine.compile(&launch.source, launch.name, 0)?;
        let LoopLaunch { blocks, threads, arguments, numbers, .. } = launch;
        let pointers = arguments.into_iter().map(LaunchArgument::Pointer);
        let arguments = pointers.chain(numbers.into_iter().map(LaunchArgument::Count)).collect();
        launches.push(CompiledLaunch { function, grid: [blocks, 1, 1], threads, shared: 0, arguments });
    }
    // SAFETY: a kernel's parameters are the addresses of these operands and the numbers that it was written with; each thread
    // stays within the views, and the views within the buffers.
    Ok(Box::new(unsafe { LaunchSequence::new(launches, plan.workspace) }))
}

/// The launches of a loop.
fn plan(body: &Loop, reads: &[Operand], writes: &[Operand], device: &Properties) -> Result<LoopPlan> {
    let mut plan = LoopPlan::default();
    if writes.iter().all(|write| write.view.shape.elements() == 0) {
        return Ok(plan);
    }
    plan_into(&Nest::new(body, reads, writes), device, &mut plan)?;
    Ok(plan)
}

/// The sources that a loop is compiled from.
#[cfg(test)]
pub(crate) fn sources(
    body: &Loop,
    reads: &[Operand],
    writes: &[Operand],
    device: &Properties,
) -> Result<Vec<String>> {
    Ok(plan(body, reads, writes, device)?.launches.into_iter().map(|launch| launch.source).collect())
}

fn plan_into(nest: &Nest, device: &Properties, plan: &mut LoopPlan) -> Result<()> {
    let needed = nest.needed((0..nest.writes.len()).map(|write| nest.stored(write)));
    if !(0..needed.len()).any(|register| needed[register] && nest.reduction(register).is_some()) {
        return split::plan_writes(nest, device, plan);
    }
    match split::layout(nest, device) {
        Some(layout) => split::plan(nest, layout, device, plan)?,
        None => {
            plan.launches.extend(rows::plan(nest, device)?);
            plan.workspace = plan.workspace.max(split::workspace_of_fewer_rows(nest, device));
        }
    }
    Ok(())
}

fn too_large(error: plimsoll_graph::Error) -> Error {
    Error::new(ErrorKind::Unsupported, error.to_string())
}

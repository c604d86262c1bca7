//! Routines that are launches of compiled functions, one after another.
//!
//! Fused loops, attention and most other ops differ in what they compile and how they divide the work into blocks. Once
//! they are prepared they are alike: functions, grids and arguments, some of which are addresses that each call has.

use crate::codegen::function::{Argument, Function};
use crate::error::Result;
use crate::routine::{Call, PointerTo, Routine};

/// An argument of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LaunchArgument {
    /// The address of an operand or of workspace.
    Pointer(PointerTo),
    /// A number of elements or rows. What changes with batch and length is left to the launch, so that code is compiled
    /// once for all of them.
    Count(u64),
    /// Several such numbers, as a struct of eight `long long`.
    Extents([i64; 8]),
}

/// A function and how it is launched.
pub(crate) struct CompiledLaunch {
    pub(crate) function: Function,
    pub(crate) grid: [u32; 3],
    pub(crate) threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub(crate) shared: u32,
    pub(crate) arguments: Vec<LaunchArgument>,
}

/// Launches one after another, which share a workspace.
pub(crate) struct LaunchSequence {
    launches: Vec<CompiledLaunch>,
    workspace: u64,
}

impl LaunchSequence {
    /// A routine of these launches and so many bytes of workspace.
    ///
    /// # Safety
    /// Each function must take arguments of these kinds and, run on this grid with a call's addresses, stay within the
    /// operands of the kernel that the routine is prepared for and within the workspace.
    pub(crate) unsafe fn new(launches: Vec<CompiledLaunch>, workspace: u64) -> LaunchSequence {
        LaunchSequence { launches, workspace }
    }
}

impl Routine for LaunchSequence {
    fn workspace(&self) -> u64 {
        self.workspace
    }

    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        for CompiledLaunch { function, grid, threads, shared, arguments } in &self.launches {
            let resolve = |argument: &LaunchArgument| match *argument {
                LaunchArgument::Pointer(pointer) => Argument::Address(pointer.address(call)),
                LaunchArgument::Count(count) => Argument::U64(count),
                LaunchArgument::Extents(extents) => Argument::Extents(extents),
            };
            let arguments: Vec<Argument> = arguments.iter().map(resolve).collect();
            // SAFETY: whoever made the sequence vouches for the function and its arguments, and the caller for the
            // addresses.
            unsafe { function.launch(call.stream, *grid, *threads, *shared, &arguments)? };
        }
        Ok(())
    }
}

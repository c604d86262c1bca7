//! Copies within the device, by a kernel.
//!
//! A step begins by copying its inputs from the buffers they are staged in. A copy by the driver is a memcpy node of the
//! graph, which runs on a copy engine, and the kernels after it wait for the switch between engines; a kernel that copies
//! is done before that.

use crate::codegen::engine::Engine;
use crate::codegen::function::{Argument, Function};
use crate::error::Result;
use crate::routine::{Call, Routine};
use std::sync::Arc;

const TEXT: &str = include_str!("copy_within.cu");
const THREADS: u32 = 256;
/// The bytes that a thread copies at once.
const PACK: u64 = 16;
/// The most blocks for each multiprocessor; their threads stride over what is left.
const BLOCKS_EACH: u64 = 16;

/// A copy of all bytes of what is read to what is written.
pub(crate) struct CopyWithin {
    function: Function,
    bytes: u64,
    blocks: u32,
}

impl CopyWithin {
    /// # Errors
    /// If it does not compile.
    pub(crate) fn new(engine: &Arc<Engine>, bytes: u64) -> Result<CopyWithin> {
        let function = engine.compile(TEXT, "copy_within", 0)?;
        let most = u64::from(engine.properties().processors) * BLOCKS_EACH;
        let blocks = bytes.div_ceil(PACK * u64::from(THREADS)).clamp(1, most) as u32;
        Ok(CopyWithin { function, bytes, blocks })
    }
}

impl Routine for CopyWithin {
    fn workspace(&self) -> u64 {
        0
    }

    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let [from, to] = [call.reads[0], call.writes[0]].map(Argument::Address);
        let arguments = [from, to, Argument::U64(self.bytes)];
        // SAFETY: the kernel takes two addresses, which the caller vouches for to be aligned and of so many bytes each.
        unsafe { self.function.launch(call.stream, [self.blocks, 1, 1], THREADS, 0, &arguments) }
    }
}

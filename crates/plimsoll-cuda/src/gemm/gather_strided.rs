//! Gathers of strided views into dense memory, for libraries that cannot take operands as they lie.

use crate::codegen::engine::Engine;
use crate::codegen::function::{Argument, Function};
use crate::error::Result;
use cudarc::driver::sys::{CUdeviceptr, CUstream};
use std::fmt::Write;
use std::sync::Arc;

const THREADS: u32 = 256;

/// A gather of a view into dense memory, ready to run.
pub(crate) struct GatherStrided {
    function: Function,
    blocks: u32,
}

/// An axis of a view: how many elements, and how far apart.
pub(crate) type ViewAxis = (usize, usize);

impl GatherStrided {
    /// A copy of elements of `size` bytes (1, 2, 4 or 8) along axes, of which the last is the innermost. The copy is
    /// dense in their order.
    ///
    /// # Errors
    /// If it does not compile.
    pub(crate) fn new(engine: &Arc<Engine>, size: usize, axes: &[ViewAxis]) -> Result<GatherStrided> {
        GatherStrided::between(engine, size, &densely(axes))
    }

    /// A copy of elements of `size` bytes along axes of which each has a count, a distance in what is copied and a
    /// distance in the copy; the last is the innermost.
    ///
    /// # Errors
    /// If it does not compile.
    pub(crate) fn between(
        engine: &Arc<Engine>,
        size: usize,
        axes: &[(usize, usize, usize)],
    ) -> Result<GatherStrided> {
        let count: usize = axes.iter().map(|axis| axis.0).product();
        let function = engine.compile(&source(size, axes), "pack", 0)?;
        let enough = count.div_ceil(THREADS as usize) as u64;
        let most = u64::from(engine.properties().processors) * 16;
        Ok(GatherStrided { function, blocks: enough.min(most) as u32 })
    }

    /// Enqueues the copy, with the device's context current.
    ///
    /// # Safety
    /// Both must be valid for what was described, and not overlap.
    pub(crate) unsafe fn run(&self, from: CUdeviceptr, to: CUdeviceptr, stream: CUstream) -> Result<()> {
        let arguments = [Argument::Address(from), Argument::Address(to)];
        // SAFETY: the kernel takes these two pointers, and the caller vouches for them.
        unsafe { self.function.launch(stream, [self.blocks, 1, 1], THREADS, 0, &arguments) }
    }
}

/// Axes of a copy whose elements lie one after another.
fn densely(axes: &[ViewAxis]) -> Vec<(usize, usize, usize)> {
    let mut inner = 1;
    let mut dense = Vec::with_capacity(axes.len());
    for &(count, step) in axes.iter().rev() {
        dense.push((count, step, inner));
        inner *= count;
    }
    dense.reverse();
    dense
}

/// The kernel for a copy.
fn source(size: usize, axes: &[(usize, usize, usize)]) -> String {
    let element = match size {
        1 => "unsigned char",
        2 => "unsigned short",
        4 => "unsigned",
        _ => "unsigned long long",
    };
    let count: usize = axes.iter().map(|axis| axis.0).product();
    let extent = |step: fn(&(usize, usize, usize)) -> usize| -> usize {
        axes.iter().map(|axis| axis.0.saturating_sub(1) * step(axis)).sum()
    };
    // One step of all threads past the end must not wrap.
    let wide = count.max(extent(|axis| axis.1)).max(extent(|axis| axis.2)) > (1 << 31) - 1;
    let (index, suffix) = if wide { ("unsigned long long", "ull") } else { ("unsigned", "u") };
    let (mut from, mut to, mut inner) = (String::from("0"), String::from("0"), 1);
    for (count, step, target) in axes.iter().rev() {
        _ = write!(from, " + (i) / {inner}{suffix} % {count}{suffix} * {step}{suffix}");
        _ = write!(to, " + (i) / {inner}{suffix} % {count}{suffix} * {target}{suffix}");
        inner *= count;
    }
    format!(
        "#define ELEMENT {element}\n#define INDEX {index}\n#define COUNT {count}{suffix}\n#define SOURCE(i) ({from})\n\
         #define TARGET(i) ({to})\n{}",
        include_str!("gather_strided.cu")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_of_the_copy_comes_from_its_place_in_the_view() {
        let text = source(2, &densely(&[(3, 40), (4, 1), (5, 8)]));
        assert!(text.contains("#define ELEMENT unsigned short"), "{text}");
        assert!(text.contains("#define COUNT 60u"), "{text}");
        let place = "(0 + (i) / 1u % 5u * 8u + (i) / 5u % 4u * 1u + (i) / 20u % 3u * 40u)";
        assert!(text.contains(place), "{text}");
        assert!(text.contains("% 4u * 5u + (i) / 20u % 3u * 20u)"), "{text}");
        assert!(source(4, &[(1 << 20, 1 << 20, 1)]).contains("#define INDEX unsigned long long"));
    }
}

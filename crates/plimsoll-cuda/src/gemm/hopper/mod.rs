//! Large products of half precision on Hopper, by a kernel of our own.
//!
//! The library's products are as fast as these but take no general epilogue: the loop after a product would read its
//! result from memory again, and write as much. Here the epilogue is part of the kernel, and runs on some warps while
//! others multiply. The library has a few epilogues, but rounds once where a loop rounds each register, and a value must
//! have the same bits whichever kernel makes it. For the same reason the product alone, not its epilogue, decides which
//! kernel computes it: ours, if it was measured to be about as fast as the library's for a product like it.

#[cfg(test)]
mod tests;

use crate::codegen::cache::{self, Key};
use crate::codegen::engine::{Engine, Properties};
use crate::codegen::function::{Argument, Function};
use crate::codegen::loops::PRELUDE;
use crate::driver::tensor_map::{EDGE, TensorMap};
use crate::error::Result;
use crate::gemm::Gemm;
use crate::gemm::autotune::GemmTimer;
use crate::gemm::cublaslt_gemm::CublasLtGemm;
use cudarc::driver::sys::{CUdeviceptr, CUstream};
use plimsoll_graph::DType;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

const STAGED: &str = include_str!("staged.cu");
const PLAIN: &str = include_str!("plain.cu");
const INSTRUCTIONS: &str = include_str!("instructions.cu");
const PRODUCT: &str = include_str!("product.cu");

/// The rows and columns of a tile of the result, and the depth of a stage.
const TILE: [usize; 2] = [128, 256];
const DEPTH: usize = EDGE as usize;
const STAGES: usize = 3;
/// How many tiles of a column are taken before the next column.
const BAND: usize = 16;
const THREADS: u32 = 640;
/// The registers that its groups of 128 threads have: two that multiply, two of the epilogue, and one that copies. A group
/// waits for those it has not begun with, for ever if the block has not so many.
const REGISTERS: u32 = 128 * (2 * 160 + 2 * 64 + 24);
/// The stages, a tile that is handed to the epilogue, and two barriers for each stage.
const SHARED: u32 = (STAGES * (TILE[0] + TILE[1]) * DEPTH * 2 + TILE[0] * TILE[1] * 2 + STAGES * 16) as u32;
/// The least part of the multiplications that the device could do meanwhile.
const LEAST_USE: f64 = 0.8;
/// The depth at which a loop in a kernel of its own takes about as long as the product: as many elements are read and
/// written again as are multiplied meanwhile.
const DEPTH_OF_A_LOOP: f32 = 360.0;
/// How much slower than the library's a product may be, as a part of what an epilogue saves.
const PART_OF_GAIN: f32 = 0.5;
/// The most that it may be slower.
const MOST_SLOWER: f32 = 0.25;

/// The milliseconds after which a device that is hard at work has slowed down as much as it will.
const LONG: f32 = 10.0;

/// A product, perhaps with an epilogue, ready to run.
pub(crate) struct HopperGemm {
    engine: Arc<Engine>,
    gemm: Gemm,
    function: Function,
}

/// An operand of a product as it lies in memory.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Lines {
    /// How many there are, of how many elements, and how far apart they begin.
    count: usize,
    length: usize,
    step: usize,
    /// Whether they do not go along the depth.
    turned: bool,
}

impl Lines {
    /// An operand of which there are `across` rows or columns, `deep` each, with these distances between neighbours.
    fn of(across: usize, deep: usize, [along_across, along_depth]: [usize; 2]) -> Option<Lines> {
        let straight = Lines { count: across, length: deep, step: along_across, turned: false };
        let turned = Lines { count: deep, length: across, step: along_depth, turned: true };
        let lines = match (along_across, along_depth) {
            (_, 1) => straight,
            (1, _) => turned,
            _ => return None,
        };
        (lines.step >= lines.length && lines.step.is_multiple_of(8)).then_some(lines)
    }

    /// Those of both operands.
    fn both(gemm: &Gemm) -> Option<[Lines; 2]> {
        let Gemm { m, n, k, a, b, .. } = *gemm;
        Some([Lines::of(m, k, [a[0], a[1]])?, Lines::of(n, k, [b[1], b[0]])?])
    }
}

/// Whether a device has what the kernel needs, and a product fills it.
fn suits(gemm: &Gemm, device: &Properties) -> bool {
    /// What positions and counts are kept far below of.
    const MOST: usize = 1 << 30;
    let Gemm { m, n, k, batch, c, dtype, result, accumulate, alignment, .. } = *gemm;
    let able = device.capability == (9, 0) && device.shared_per_block >= SHARED;
    let kind = matches!(dtype, DType::BF16 | DType::F16) && result == dtype && !accumulate && batch == 1;
    let place = c[0] == n && n.is_multiple_of(8) && alignment.iter().all(|bytes| bytes.is_multiple_of(16));
    let extents = [m, n, k].iter().all(|extent| (1..MOST).contains(extent));
    if !(able && kind && place && extents) || Lines::both(gemm).is_none() {
        return false;
    }
    let processors = device.processors as usize;
    // The epilogue of a tile is hidden behind the next one.
    let rounds = tiles(gemm).div_ceil(processors);
    let room = rounds * processors * TILE[0] * TILE[1];
    rounds >= 2 && (m * n) as f64 >= LEAST_USE * room as f64
}

/// How many tiles a result has.
fn tiles(gemm: &Gemm) -> usize {
    gemm.m.div_ceil(TILE[0]) * gemm.n.div_ceil(TILE[1])
}

/// How much slower than the library's a product of this depth may be, for what an epilogue would save.
fn allowance(depth: usize) -> f32 {
    (PART_OF_GAIN * DEPTH_OF_A_LOOP / depth as f32).min(MOST_SLOWER)
}

/// The kernel of products of these types and layouts, with this epilogue.
fn source(dtype: DType, turned: [bool; 2], epilogue: &str) -> String {
    let name = if dtype == DType::BF16 { "bf16" } else { "f16" };
    let [a, b] = turned.map(u8::from);
    format!(
        "{PRELUDE}\n#define HALF {name}\n#define HALF_TYPE \"{name}\"\n#define A_TURNED {a}\n#define B_TURNED {b}\n\
         #define STAGES {STAGES}\n#define BAND {BAND}\n\n{STAGED}{epilogue}{INSTRUCTIONS}\n{PRODUCT}"
    )
}

impl HopperGemm {
    /// The kernel for a product, if it is to replace the library's: the device and the product suit it, and it was measured
    /// to be about as fast.
    ///
    /// # Errors
    /// If it does not compile.
    pub(crate) fn instead_of(
        library: &CublasLtGemm,
        engine: &Arc<Engine>,
        gemm: &Gemm,
    ) -> Result<Option<HopperGemm>> {
        if !suits(gemm, engine.properties()) || engine.shared.driver.encode_tensor_map.is_none() {
            return Ok(None);
        }
        let Some(own) = HopperGemm::new(engine, gemm, PLAIN)? else { return Ok(None) };
        let key = cache::digest(&[
            format!("{gemm:?}").as_bytes(),
            format!("{:?} {}", engine.properties(), engine.blas()?.version()).as_bytes(),
            [STAGED, PLAIN, INSTRUCTIONS, PRODUCT].concat().as_bytes(),
        ]);
        // One at a time: two that run at once would slow each other down.
        let mut choices = engine.choices.lock().unwrap_or_else(PoisonError::into_inner);
        let hopper = &mut choices.hopper;
        let kept = || engine.choices_cache.get(key).map(|bytes| bytes == [1]);
        let known = hopper.of.get(&key).copied().or_else(kept).or_else(|| hopper.like(gemm));
        let won = match known {
            Some(won) => won,
            None => match own.keeps_up_with(library) {
                Ok(won) => {
                    engine.choices_cache.put(key, &[u8::from(won)]);
                    hopper.measured.push((*gemm, won));
                    won
                }
                // On a device without memory to measure in, it stays the library's.
                Err(_) => false,
            },
        };
        hopper.of.insert(key, won);
        drop(choices);
        Ok(won.then_some(own))
    }

    /// Compiles a product with an epilogue; none if the operands do not lie so, or the compiler left too few registers.
    fn new(engine: &Arc<Engine>, gemm: &Gemm, epilogue: &str) -> Result<Option<HopperGemm>> {
        let Some(lines) = Lines::both(gemm) else { return Ok(None) };
        let source = source(gemm.dtype, lines.map(|lines| lines.turned), epilogue);
        let function = engine.compile(&source, "product", SHARED)?;
        let enough = function.registers()? * THREADS >= REGISTERS;
        Ok(enough.then(|| HopperGemm { engine: engine.clone(), gemm: *gemm, function }))
    }

    /// The same product with an epilogue.
    ///
    /// # Errors
    /// If it does not compile.
    pub(crate) fn with_epilogue(&self, epilogue: &str) -> Result<Option<HopperGemm>> {
        HopperGemm::new(&self.engine, &self.gemm, epilogue)
    }

    /// Whether it is about as fast as the library's.
    fn keeps_up_with(&self, library: &CublasLtGemm) -> Result<bool> {
        let timer = GemmTimer::new(&self.engine.shared, &self.gemm, library.workspace())?;
        // SAFETY: the timer has memory for all three matrices and the workspace.
        let theirs = timer
            .milliseconds(LONG, |matrices, space, stream| unsafe { library.run(matrices, space, stream) });
        // SAFETY: as above.
        let ours = timer.milliseconds(LONG, |[a, b, c], _, stream| unsafe {
            self.run([a, b], &[Argument::Address(c)], stream)
        });
        Ok(ours <= theirs * (1.0 + allowance(self.gemm.k)))
    }

    /// Enqueues the product, with the device's context current. `arguments` are the epilogue's: the result's address, if
    /// there is none.
    ///
    /// # Safety
    /// The addresses must be those of matrices as they were described, and the arguments those that the epilogue takes,
    /// valid when it runs.
    pub(crate) unsafe fn run(
        &self,
        operands: [CUdeviceptr; 2],
        arguments: &[Argument],
        stream: CUstream,
    ) -> Result<()> {
        let Gemm { m, n, k, .. } = self.gemm;
        let (driver, mut all) = (self.engine.shared.driver, Vec::with_capacity(5 + arguments.len()));
        for (lines, address) in Lines::both(&self.gemm).into_iter().flatten().zip(operands) {
            let Lines { count, length, step, .. } = lines;
            all.push(Argument::Map(TensorMap::new(driver, address, count, length, step)?));
        }
        all.extend([m, n, k.div_ceil(DEPTH)].map(|extent| Argument::U32(extent as u32)));
        all.extend_from_slice(arguments);
        let blocks = tiles(&self.gemm).min(self.engine.properties().processors as usize);
        // SAFETY: the kernel takes two descriptions, three extents and the epilogue's arguments; it stays within the matrices
        // that were described, for whose addresses the caller vouches.
        unsafe { self.function.launch(stream, [blocks as u32, 1, 1], THREADS, SHARED, &all) }
    }
}

/// Which products were timed against the library's, and whether ours was about as fast.
#[derive(Default)]
pub(crate) struct HopperChoices {
    of: HashMap<Key, bool>,
    /// Those that were measured by this process.
    measured: Vec<(Gemm, bool)>,
}

impl HopperChoices {
    /// What was measured for the product that is most like this one, but for the number of samples.
    fn like(&self, gemm: &Gemm) -> Option<bool> {
        let alike = self.measured.iter().filter_map(|(other, won)| Some((gemm.unlike(other)?, *won)));
        alike.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, won)| won)
    }
}

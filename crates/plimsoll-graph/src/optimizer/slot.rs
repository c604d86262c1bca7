//! What an optimizer remembers of each parameter, and the bytes it takes.
//!
//! Adam's two slots are twice the bytes of the weights: of a large model they are most of what stays between steps. They
//! need far fewer digits than weights do, if they are rounded so that no error adds up: at random, up as often as makes
//! the mean right. A running mean that is rounded to nearest stands still where its steps are shorter than half the
//! distance between numbers; rounded at random it moves as it should in the mean.
//!
//! The numbers that round are drawn by the optimizer's clock and the slot's name, so that a run that goes on, is
//! recomputed or is eager rounds as any other does.

use super::{Optimizer, UNNAMED};
use crate::op::{Distribution, Reduction};
use crate::program::Role;
use crate::step::{Initial, Step};
use crate::{DType, Graph, Op, Result, ValueId, ValueType};

/// How the slots of an optimizer are stored. Updates are computed in the type of the parameter in any case.
///
/// ```
/// use plimsoll_graph::optimizer::{Optimizer, SlotFormat};
/// let adam = Optimizer::adam(1e-3).slot_format(SlotFormat::EightBit);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SlotFormat {
    /// As parameters are.
    #[default]
    Full,
    /// `bf16`, rounded at random: half of the bytes of `f32`.
    Bf16,
    /// Eight bits and a scale for each block of about 256 elements, rounded at random: a quarter of the bytes of `f32`. A
    /// parameter of less than [`SMALLEST_IN_EIGHT_BITS`] elements, or of a number of elements that no blocks divide, keeps
    /// full slots.
    EightBit,
}

/// The elements of the smallest parameter whose slots are stored in eight bits: those of biases and norms are few, and
/// steps are sensitive to them.
pub const SMALLEST_IN_EIGHT_BITS: usize = 4096;

/// The elements that share a scale, where they divide a parameter.
const BLOCK: usize = 256;
/// The fewest and the most elements of a block where those do not.
const BLOCKS: [usize; 2] = [64, 512];

/// What tells the numbers that round slots from all others.
const SEED: f64 = 0x736c_6f74 as f64;

impl SlotFormat {
    /// What workloads and messages call it.
    pub fn name(self) -> &'static str {
        match self {
            SlotFormat::Full => "full",
            SlotFormat::Bf16 => "bf16",
            SlotFormat::EightBit => "8-bit",
        }
    }

    /// A parameter as rows of blocks, where its slots are stored so.
    pub(super) fn blocks(self, parameter: &ValueType) -> Option<[usize; 2]> {
        let elements = parameter.shape.elements();
        let in_blocks = self == SlotFormat::EightBit
            && elements >= SMALLEST_IN_EIGHT_BITS
            && parameter.dtype.size() >= DType::F32.size();
        let block = in_blocks.then(|| block_of(elements))??;
        Some([elements / block, block])
    }
}

/// The length of the blocks of so many elements.
fn block_of(elements: usize) -> Option<usize> {
    let divides = |block: &usize| elements.is_multiple_of(*block);
    Some(BLOCK).filter(divides).or_else(|| (BLOCKS[0]..=BLOCKS[1]).rev().find(divides))
}

/// Which numbers a slot has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Range {
    /// Any: means of gradients.
    Signed,
    /// Zero and above: means of squares, by whose root something is divided.
    Positive,
}

/// What the slots of one parameter have in common.
pub(super) struct Slots<'a> {
    optimizer: &'a Optimizer,
    /// The parameter's name.
    parameter: &'a str,
    /// The type of what is remembered.
    ty: ValueType,
    lean: Option<Lean>,
}

/// How slots are stored in fewer bytes.
#[derive(Clone, Copy)]
struct Lean {
    /// Whether they are `bf16`, or eight bits for rows of blocks.
    is_bf16: bool,
    /// Numbers in `[0, 1)`, others for every parameter and update. All slots of a parameter are rounded by the same: where
    /// the mean of a gradient happens to be rounded up, so is mostly the root that it will be divided by.
    random: ValueId,
}

/// The state that the numbers which round slots are drawn from, given the number of updates before this one.
pub(super) fn random_state(g: &mut Graph, clock: ValueId) -> Result<ValueId> {
    let (seed, first) = (g.constant(SEED, DType::I64)?, g.constant(0.0, DType::I64)?);
    let mut words = [seed, clock, first];
    for word in &mut words {
        *word = g.reshape(*word, &[1])?;
    }
    g.concat(&words, 0)
}

impl<'a> Slots<'a> {
    /// The slots of a parameter, which is rows of blocks if `in_blocks` says so. `random` is what [`random_state`] gave.
    pub(super) fn new(
        g: &mut Graph,
        optimizer: &'a Optimizer,
        parameter: &'a str,
        ty: ValueType,
        in_blocks: bool,
        random: Option<ValueId>,
    ) -> Result<Slots<'a>> {
        let is_bf16 = optimizer.slot_format == SlotFormat::Bf16 && ty.dtype.size() > DType::BF16.size();
        let mut slots = Slots { optimizer, parameter, ty, lean: None };
        if let Some(state) = random.filter(|_| is_bf16 || in_blocks) {
            let stream = stream_of(&slots.name_of("round"));
            let (shape, dtype) = (ty.shape, ty.dtype);
            let op = Op::Random { distribution: Distribution::Uniform, shape, dtype, stream, per_sample: 0 };
            slots.lean = Some(Lean { is_bf16, random: g.apply(op, &[state])? });
        }
        Ok(slots)
    }

    /// A slot and what it becomes, which is handed back as it was before rounding.
    pub(super) fn update(
        &self,
        step: &mut Step,
        slot: &str,
        range: Range,
        next: impl FnOnce(&mut Graph, ValueId) -> Result<ValueId>,
    ) -> Result<ValueId> {
        let ty = self.ty;
        match self.lean {
            None => {
                let old = self.state(step, slot, &ty.shape, ty.dtype)?;
                let new = next(&mut step.graph, old)?;
                step.update(old, new)?;
                Ok(new)
            }
            Some(Lean { is_bf16: true, random }) => {
                let old = self.state(step, slot, &ty.shape, DType::BF16)?;
                let g = &mut step.graph;
                let decoded = g.cast(old, ty.dtype)?;
                let new = next(g, decoded)?;
                let stored = to_bf16(g, new, random)?;
                step.update(old, stored)?;
                Ok(new)
            }
            Some(Lean { is_bf16: false, random }) => {
                let codes = self.state(step, slot, &ty.shape, DType::U8)?;
                let scales = self.state(step, &format!("{slot}/scale"), &[ty.shape[0], 1], ty.dtype)?;
                let g = &mut step.graph;
                let decoded = decode(g, codes, scales, range)?;
                let new = next(g, decoded)?;
                let (stored, scale) = encode(g, new, random, range)?;
                step.update(codes, stored)?;
                step.update(scales, scale)?;
                Ok(new)
            }
        }
    }

    /// A state of zeros that is named after the parameter. In eight bits zeros are the code 0 with a scale of zero.
    pub(super) fn state(
        &self,
        step: &mut Step,
        slot: &str,
        shape: &[usize],
        dtype: DType,
    ) -> Result<ValueId> {
        step.state(&self.name_of(slot), Role::Optimizer, shape, dtype, Initial::Constant(0.0))
    }

    fn name_of(&self, slot: &str) -> String {
        match &*self.optimizer.name {
            UNNAMED => format!("{}:{slot}", self.parameter),
            name => format!("{}:{name}/{slot}", self.parameter),
        }
    }
}

/// The stream of a name: its FNV-1a hash, of the 32 bits that streams have.
fn stream_of(name: &str) -> u64 {
    name.bytes().fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)).into()
}

/// Rounds to `bf16`, up or down at random with the right mean: noise as wide as the distance between two numbers is added
/// before rounding to nearest.
fn to_bf16(g: &mut Graph, x: ValueId, random: ValueId) -> Result<ValueId> {
    let dtype = g.dtype(x);
    let rounded = |g: &mut Graph, x: ValueId| {
        let x = g.cast(x, DType::BF16)?;
        g.cast(x, dtype)
    };
    let near = rounded(g, x)?;
    // A little over half of the distance to the next number: half to a whole of it, wherever within its power of two.
    let beyond = g.mul_scalar(near, 1.0 + 2f64.powi(-8) * (1.0 + 2f64.powi(-7)))?;
    let beyond = rounded(g, beyond)?;
    let distance = g.sub(beyond, near)?;
    let offset = g.add_scalar(random, -0.5)?;
    let noise = g.mul(offset, distance)?;
    let noisy = g.add(x, noise)?;
    g.cast(noisy, DType::BF16)
}

/// The middle of the codes of signed numbers, which stands for zero.
const MIDDLE: f64 = 128.0;

impl Range {
    /// The levels above zero. Where numbers are signed, they are the squares of equidistant ones, and where not, their
    /// fourth powers: so a mean of squares has levels where the mean of what is squared has some.
    fn levels(self) -> f64 {
        match self {
            Range::Signed => 127.0,
            Range::Positive => 255.0,
        }
    }

    /// What a level stands for, unscaled.
    fn power(self, g: &mut Graph, level: ValueId) -> Result<ValueId> {
        let square = g.square(level)?;
        match self {
            Range::Signed => Ok(square),
            Range::Positive => g.square(square),
        }
    }

    fn root(self, g: &mut Graph, x: ValueId) -> Result<ValueId> {
        let root = g.sqrt(x)?;
        match self {
            Range::Signed => Ok(root),
            Range::Positive => g.sqrt(root),
        }
    }

    /// What the largest level stands for, unscaled.
    fn whole(self) -> f64 {
        match self {
            Range::Signed => self.levels().powi(2),
            Range::Positive => self.levels().powi(4),
        }
    }
}

/// The numbers that codes stand for: `[blocks, length]`, given the largest of each block, `[blocks, 1]`.
fn decode(g: &mut Graph, codes: ValueId, scales: ValueId, range: Range) -> Result<ValueId> {
    let mut level = g.cast(codes, g.dtype(scales))?;
    let mut sign = None;
    if range == Range::Signed {
        // Where nothing was stored yet codes are zero, and so is the scale.
        level = g.add_scalar(level, -MIDDLE)?;
        sign = Some(g.sign(level)?);
    }
    let power = range.power(g, level)?;
    let fraction = g.mul_scalar(power, 1.0 / range.whole())?;
    let magnitude = g.mul(fraction, scales)?;
    sign.map_or(Ok(magnitude), |sign| g.mul(magnitude, sign))
}

/// The codes of numbers in blocks, `[blocks, length]`, and the largest magnitude of each block, `[blocks, 1]`. Between two
/// levels the upper is taken as often as makes the mean right. What is positive never becomes zero: its root divides.
fn encode(g: &mut Graph, x: ValueId, random: ValueId, range: Range) -> Result<(ValueId, ValueId)> {
    let magnitude = if range == Range::Signed { g.abs(x)? } else { x };
    let scale = g.reduce(Reduction::Max, magnitude, &[1])?;
    let scale = g.reshape(scale, &[g.shape(x)[0], 1])?;
    let least = g.full_like(f64::from(f32::MIN_POSITIVE), scale)?;
    let divisor = g.max(scale, least)?;
    let fraction = g.div(magnitude, divisor)?;
    let root = range.root(g, fraction)?;
    let level = g.mul_scalar(root, range.levels())?;
    let lower = g.floor(level)?;
    let upper = g.add_scalar(lower, 1.0)?;
    let (below, above) = (range.power(g, lower)?, range.power(g, upper)?);
    let exact = g.mul_scalar(fraction, range.whole())?;
    let over = g.sub(exact, below)?;
    let gap = g.sub(above, below)?;
    let chance = g.div(over, gap)?;
    let rises = g.lt(random, chance)?;
    let mut level = g.select(rises, upper, lower)?;
    if range == Range::Signed {
        let sign = g.sign(x)?;
        level = g.mul(level, sign)?;
        level = g.add_scalar(level, MIDDLE)?;
    } else {
        let zero = g.full_like(0.0, x)?;
        let is_positive = g.gt(x, zero)?;
        let one = g.full_like(1.0, x)?;
        let at_least_one = g.max(level, one)?;
        level = g.select(is_positive, at_least_one, level)?;
    }
    Ok((g.cast(level, DType::U8)?, scale))
}

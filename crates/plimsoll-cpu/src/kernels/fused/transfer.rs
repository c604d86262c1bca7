//! Between memory and tiles: strided loads and stores, positions, random numbers, repeated row values.

use super::map::CHUNK;
use crate::numbers::{Element, Number};
use crate::simd::Function;
use plimsoll_graph::{MAX_RANK, random};
use std::marker::PhantomData;

/// A box of elements in memory: element `[i, j, ..]` is `i · strides[0] + j · strides[1] + ..` elements from the
/// first. In its tile it is densely packed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Block {
    pub(super) rank: usize,
    pub(super) extents: [usize; MAX_RANK],
    pub(super) strides: [usize; MAX_RANK],
}

impl Block {
    /// The planes of the last two axes.
    #[inline(always)]
    fn panes(&self) -> Panes<'_> {
        let (extents, strides) = match self.rank {
            0 => ([1, 1], [0, 0]),
            1 => ([1, self.extents[0]], [0, self.strides[0]]),
            rank => {
                let last = |of: &[usize; MAX_RANK]| [of[rank - 2], of[rank - 1]];
                (last(&self.extents), last(&self.strides))
            }
        };
        let outer = self.rank.saturating_sub(2);
        let is_empty = self.extents[..self.rank].contains(&0);
        let next = (!is_empty).then_some(Pane { in_tile: 0, in_memory: 0, extents, strides });
        Panes { block: self, outer, index: [0; MAX_RANK], next }
    }
}

/// A plane of a block.
#[derive(Clone, Copy)]
struct Pane {
    /// Where it begins in the tile, and in memory.
    in_tile: usize,
    in_memory: usize,
    extents: [usize; 2],
    strides: [usize; 2],
}

/// A walk over the planes of a block.
struct Panes<'a> {
    block: &'a Block,
    outer: usize,
    index: [usize; MAX_RANK],
    next: Option<Pane>,
}

impl Panes<'_> {
    #[inline(always)]
    fn next(&mut self) -> Option<Pane> {
        let pane = self.next.take()?;
        let mut next = Pane { in_tile: pane.in_tile + pane.extents[0] * pane.extents[1], ..pane };
        let mut axis = self.outer;
        while axis > 0 {
            axis -= 1;
            self.index[axis] += 1;
            next.in_memory += self.block.strides[axis];
            if self.index[axis] < self.block.extents[axis] {
                self.next = Some(next);
                break;
            }
            next.in_memory -= self.index[axis] * self.block.strides[axis];
            self.index[axis] = 0;
        }
        Some(pane)
    }
}

/// What a load or store works on.
pub(super) struct TransferArgs {
    pub(super) tile: *mut u8,
    /// The block's first element.
    pub(super) memory: *mut u8,
    pub(super) block: Block,
}

/// Brings a block from memory to a tile.
pub(super) struct Load<S>(PhantomData<S>);

impl<S: Element> Function for Load<S> {
    type Args = TransferArgs;

    #[inline(always)]
    unsafe fn call(args: &TransferArgs) {
        let mut panes = args.block.panes();
        while let Some(pane) = panes.next() {
            let ([rows, columns], [down, across]) = (pane.extents, pane.strides);
            // SAFETY: the caller vouches for the block in memory and for as many elements in the tile.
            unsafe {
                let tile = args.tile.cast::<S::Acc>().add(pane.in_tile);
                let memory = args.memory.cast_const().cast::<S>().add(pane.in_memory);
                if across > 1 && down == 1 {
                    load_transposed(tile, memory, pane.extents, across);
                    continue;
                }
                if down == 0 && rows > 1 {
                    load_run(tile, memory, columns, across);
                    repeat_first(tile, rows * columns, columns);
                    continue;
                }
                for row in 0..rows {
                    load_run(tile.add(row * columns), memory.add(row * down), columns, across);
                }
            }
        }
    }
}

/// Fills a tile with copies of its first elements, each time with all that is there.
///
/// # Safety
/// The tile has `count` elements, of which the first `there`, one at least, are there.
#[inline(always)]
unsafe fn repeat_first<N>(tile: *mut N, count: usize, mut there: usize) {
    while there < count {
        let more = there.min(count - there);
        // SAFETY: the copies are behind what is there, and within the tile.
        unsafe { tile.add(there).copy_from_nonoverlapping(tile, more) };
        there += more;
    }
}

/// # Safety
/// The tile has `count` elements, and so has memory at every `across`th.
#[inline(always)]
unsafe fn load_run<S: Element>(tile: *mut S::Acc, memory: *const S, count: usize, across: usize) {
    // SAFETY: the caller vouches for the elements; there is at least one.
    unsafe {
        match across {
            0 => fill(tile, count, (*memory).widen()),
            1 if S::IS_ACC && count >= LONG => std::ptr::copy_nonoverlapping(memory.cast(), tile, count),
            1 => {
                for i in 0..count {
                    *tile.add(i) = (*memory.add(i)).widen();
                }
            }
            _ => {
                for i in 0..count {
                    *tile.add(i) = (*memory.add(i * across)).widen();
                }
            }
        }
    }
}

/// From how many elements on a copy is worth a call.
const LONG: usize = 64;

/// Walks along memory and strides in the tile, which is in the cache.
///
/// # Safety
/// As for [`load_run`], for each row; rows are neighbours in memory.
#[inline(always)]
unsafe fn load_transposed<S: Element>(
    tile: *mut S::Acc,
    memory: *const S,
    [rows, columns]: [usize; 2],
    across: usize,
) {
    for column in 0..columns {
        for row in 0..rows {
            // SAFETY: the caller vouches for rows and columns.
            unsafe { *tile.add(row * columns + column) = (*memory.add(column * across + row)).widen() };
        }
    }
}

/// Takes a block from a tile to memory.
pub(super) struct Store<S>(PhantomData<S>);

impl<S: Element> Function for Store<S> {
    type Args = TransferArgs;

    #[inline(always)]
    unsafe fn call(args: &TransferArgs) {
        let mut panes = args.block.panes();
        while let Some(pane) = panes.next() {
            let ([rows, columns], [down, across]) = (pane.extents, pane.strides);
            // SAFETY: as for loads.
            unsafe {
                let tile = args.tile.cast_const().cast::<S::Acc>().add(pane.in_tile);
                let memory = args.memory.cast::<S>().add(pane.in_memory);
                for row in 0..rows {
                    store_run(tile.add(row * columns), memory.add(row * down), columns, across);
                }
            }
        }
    }
}

/// # Safety
/// As for [`load_run`].
#[inline(always)]
unsafe fn store_run<S: Element>(tile: *const S::Acc, memory: *mut S, count: usize, across: usize) {
    for i in 0..count {
        // SAFETY: the caller vouches for the elements.
        unsafe { *memory.add(if across == 1 { i } else { i * across }) = S::narrow(*tile.add(i)) };
    }
}

/// Makes a chunk of copies of one element in memory.
pub(super) struct Splat<S>(PhantomData<S>);

impl<S: Element> Function for Splat<S> {
    type Args = TransferArgs;

    #[inline(always)]
    unsafe fn call(args: &TransferArgs) {
        // SAFETY: the caller vouches for the element and for a chunk in the tile.
        unsafe { fill(args.tile.cast(), CHUNK, (*args.memory.cast_const().cast::<S>()).widen()) }
    }
}

/// What positions are made from.
pub(super) struct PositionArgs {
    pub(super) tile: *mut u8,
    /// The position of the first.
    pub(super) first: usize,
    pub(super) block: Block,
}

/// Fills a tile with the positions of a block's elements: what a load would bring if every element of memory
/// held its own index.
pub(super) struct Positions;

impl Function for Positions {
    type Args = PositionArgs;

    #[inline(always)]
    unsafe fn call(args: &PositionArgs) {
        let mut panes = args.block.panes();
        while let Some(pane) = panes.next() {
            let ([rows, columns], [down, across]) = (pane.extents, pane.strides);
            for row in 0..rows {
                let first = (args.first + pane.in_memory + row * down) as i64;
                for column in 0..columns {
                    // SAFETY: the caller vouches for as many elements in the tile as the block has.
                    unsafe {
                        let tile = args.tile.cast::<i64>().add(pane.in_tile + row * columns);
                        *tile.add(column) = first + (column * across) as i64;
                    }
                }
            }
        }
    }
}

/// What random numbers are made from.
pub(super) struct RandomArgs {
    pub(super) out: *mut u8,
    /// One position for each number.
    pub(super) positions: *const i64,
    pub(super) count: usize,
    pub(super) seed: u64,
    pub(super) step: u64,
    pub(super) stream: u64,
    /// What positions are counted from.
    pub(super) before: u64,
}

/// Uniform numbers of single precision.
pub(super) struct UniformSingle;
/// Uniform numbers of double precision.
pub(super) struct UniformDouble;
/// Normal numbers.
pub(super) struct Normal<T>(PhantomData<T>);

macro_rules! random {
    ($($name:ty => $out:ident: $number:expr;)*) => {
        $(impl Function for $name {
            type Args = RandomArgs;

            #[inline(always)]
            unsafe fn call(args: &RandomArgs) {
                for i in 0..args.count {
                    // SAFETY: the caller vouches for `count` positions and results.
                    unsafe {
                        let position = args.before.wrapping_add(*args.positions.add(i) as u64);
                        let block = random::block(args.seed, args.step, args.stream, position);
                        *args.out.cast::<$out>().add(i) = $number(block);
                    }
                }
            }
        })*
    };
}

random! {
    UniformSingle => f32: random::uniform32;
    UniformDouble => f64: random::uniform64;
    Normal<f32> => f32: |block| random::normal(block) as f32;
    Normal<f64> => f64: random::normal;
}

/// What repeats the values of rows.
pub(super) struct RepeatArgs {
    pub(super) tile: *mut u8,
    pub(super) values: *const u8,
    pub(super) rows: usize,
    pub(super) length: usize,
}

/// Gives every element of a row the row's value.
pub(super) struct Repeat<T>(PhantomData<T>);

impl<T: Number> Function for Repeat<T> {
    type Args = RepeatArgs;

    #[inline(always)]
    unsafe fn call(args: &RepeatArgs) {
        for row in 0..args.rows {
            // SAFETY: the caller vouches for `rows` values and for as many rows in the tile.
            unsafe {
                let value = *args.values.cast::<T>().add(row);
                fill(args.tile.cast::<T>().add(row * args.length), args.length, value);
            }
        }
    }
}

#[inline(always)]
unsafe fn fill<T: Copy>(to: *mut T, count: usize, value: T) {
    for i in 0..count {
        // SAFETY: the caller vouches for `count` elements.
        unsafe { *to.add(i) = value };
    }
}

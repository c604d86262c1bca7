//! The innermost loop: a tile of the result that stays in registers for the whole depth of a block.

use crate::numbers::Float;
use crate::simd::{Body, InstructionSet, Isa, Vector, VectorOf};

/// The most rows of a register tile, which is then two vectors wide: what remains beside one row of vectors and
/// one broadcast scalar.
pub(crate) const fn max_rows(isa: Isa) -> usize {
    (isa.registers() - 1) / 2 - 1
}

/// The most rows of a register tile on any machine.
pub(crate) const MAX_ROWS: usize = max_rows(Isa::Avx512);

/// The vectors across a register tile of `rows` rows: the more, the fewer the rows, so that there are always
/// enough independent sums and memory is read in long stretches.
pub(crate) const fn vectors(isa: Isa, rows: usize) -> usize {
    let mut vectors = MAX_VECTORS;
    while vectors > 2 && (rows + 1) * vectors + 1 > isa.registers() {
        vectors /= 2;
    }
    vectors
}

/// The most vectors across a register tile.
const MAX_VECTORS: usize = 8;

/// How far ahead of the rows memory is asked for.
const PREFETCH_BYTES: usize = 128;

/// One register tile of a product.
#[derive(Clone, Copy)]
pub(crate) struct Tile<S> {
    /// The products that are summed.
    pub(crate) depth: usize,
    /// Row `i` of depth `p` is at `i * a_row + p * a_depth`.
    pub(crate) a: *const S,
    pub(crate) a_row: isize,
    pub(crate) a_depth: isize,
    /// The columns of depth `p` are at `p * b_depth`, whole vectors of them.
    pub(crate) b: *const S,
    pub(crate) b_depth: isize,
    /// The result; row `i` is at `i * c_row`.
    pub(crate) c: *mut S,
    pub(crate) c_row: isize,
    pub(crate) rows: usize,
    /// The columns to write. A tile reads the least power of two of vectors that they fit.
    pub(crate) columns: usize,
    pub(crate) alpha: S,
    /// Whether to add to the result or replace it.
    pub(crate) add: bool,
    /// Whether the sums begin with what is in the result instead of with zeros.
    pub(crate) resume: bool,
}

impl<S: Float> Tile<S> {
    /// Computes the tile.
    ///
    /// # Safety
    ///
    /// The machine has the instruction set of `V`; `rows` is from 1 to `max_rows`, `columns` from 1 to what
    /// [`vectors`] allows; the pointers are valid for what the fields say is read and written.
    #[inline(always)]
    pub(crate) unsafe fn run<V: Vector<Scalar = S>>(&self) {
        // Only tiles that fit the registers are compiled: the others are never asked for, and large.
        macro_rules! sized {
            ($rows:literal, $vectors:literal) => {
                if const { $rows <= max_rows(V::ISA) && $vectors <= vectors(V::ISA, $rows) } {
                    V::Set::run(Sized::<S, $rows, $vectors>(self))
                }
            };
        }
        macro_rules! by_size {
            ($($rows:literal)*) => {
                match (self.rows, self.columns.div_ceil(V::LANES).next_power_of_two()) {
                    $(
                        ($rows, 1) => sized!($rows, 1),
                        ($rows, 2) => sized!($rows, 2),
                        ($rows, 4) => sized!($rows, 4),
                        ($rows, 8) => sized!($rows, 8),
                    )*
                    _ => unreachable!("a register tile of {} rows", self.rows),
                }
            };
        }
        // SAFETY: the caller vouches for the instruction set and the tile.
        unsafe { by_size!(1 2 3 4 5 6 7 8 9 10 11 12 13 14) }
    }

    /// The vectors of the result that have columns to write: their address, how many of their lanes that are, and where
    /// they are among the sums of the tile, in rows of `width`.
    #[inline(always)]
    fn written(&self, width: usize, lanes: usize) -> impl Iterator<Item = (*mut S, usize, usize)> {
        (0..self.rows).flat_map(move |row| {
            let c = self.c.wrapping_offset(row as isize * self.c_row);
            let columns = (0..self.columns).step_by(lanes);
            columns.map(move |at| (c.wrapping_add(at), lanes.min(self.columns - at), row * width + at))
        })
    }
}

/// Reads the sums of a tile that does not write all the columns it reads from its result. Not part of the tiles of each
/// size, which many are and few at an edge.
struct ReadEdge<'a, S> {
    tile: &'a Tile<S>,
    sums: *mut S,
    width: usize,
}

impl<S: Float> Body for ReadEdge<'_, S> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        for (c, count, at) in self.tile.written(self.width, VectorOf::<I, S>::LANES) {
            // SAFETY: there are sums for all rows and columns, and the caller of `Tile::run` vouches for the result.
            unsafe { VectorOf::<I, S>::load_some(c, 0..count).store(self.sums.add(at)) };
        }
    }
}

/// Writes the result of such a tile from its sums.
struct WriteEdge<'a, S> {
    tile: &'a Tile<S>,
    sums: *const S,
    width: usize,
}

impl<S: Float> Body for WriteEdge<'_, S> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        let Self { tile, sums, width } = self;
        // SAFETY: there are sums for all rows and columns, and the caller of `Tile::run` vouches for the result.
        unsafe {
            let (alpha, zero) = (VectorOf::<I, S>::splat(tile.alpha), VectorOf::<I, S>::splat(S::ZERO));
            for (c, count, at) in tile.written(width, VectorOf::<I, S>::LANES) {
                let old = if tile.add { VectorOf::<I, S>::load_some(c, 0..count) } else { zero };
                alpha.mul_add(VectorOf::<I, S>::load(sums.add(at)), old).store_first(c, count);
            }
        }
    }
}

/// Repeats a block with a constant for `$index`, for every index below `$end`. A loop would do, if compilers could
/// be relied on to unroll it and keep arrays that it indexes in registers.
macro_rules! unroll {
    ($index:ident below $end:ident in $($value:literal)* $body:block) => {
        $(if const { $value < $end } {
            const $index: usize = $value;
            $body
        })*
    };
    (row $index:ident below $end:ident $body:block) => {
        unroll!($index below $end in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 $body)
    };
    (column $index:ident below $end:ident $body:block) => {
        unroll!($index below $end in 0 1 2 3 4 5 6 7 $body)
    };
}

/// A tile of constant size, so that its sums get a register each.
struct Sized<'a, S, const ROWS: usize, const VECTORS: usize>(&'a Tile<S>);

impl<S: Float, const ROWS: usize, const VECTORS: usize> Body for Sized<'_, S, ROWS, VECTORS> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        // SAFETY: the contract is the same.
        unsafe { self.compute::<VectorOf<I, S>>() }
    }
}

impl<S: Float, const ROWS: usize, const VECTORS: usize> Sized<'_, S, ROWS, VECTORS> {
    #[inline(always)]
    unsafe fn compute<V: Vector<Scalar = S>>(self) {
        let &Tile { depth, mut a, a_row, a_depth, mut b, b_depth, c, c_row, columns, alpha, .. } = self.0;
        let &Tile { add, resume, .. } = self.0;
        let width = VECTORS * V::LANES;
        // SAFETY: the caller of `Tile::run` vouches for the instruction set and the pointers.
        unsafe {
            let mut sums = [[V::splat(S::ZERO); VECTORS]; ROWS];
            unroll!(row I below ROWS {
                let c = c.offset(I as isize * c_row);
                unroll!(column J below VECTORS {
                    V::prefetch(c.wrapping_add(J * V::LANES));
                });
            });
            if resume {
                let mut edge = sums;
                let (mut c, mut c_row) = (c, c_row);
                if columns < width {
                    V::Set::run(ReadEdge { tile: self.0, sums: edge.as_mut_ptr().cast(), width });
                    (c, c_row) = (edge.as_mut_ptr().cast(), width as isize);
                }
                unroll!(row I below ROWS {
                    let c = c.offset(I as isize * c_row);
                    unroll!(column J below VECTORS {
                        sums[I][J] = V::load(c.add(J * V::LANES));
                    });
                });
            }
            for _ in 0..depth {
                let mut row = [V::splat(S::ZERO); VECTORS];
                unroll!(column J below VECTORS {
                    row[J] = V::load(b.add(J * V::LANES));
                });
                unroll!(row I below ROWS {
                    let scalar = V::splat(*a.wrapping_offset(I as isize * a_row));
                    unroll!(column J below VECTORS {
                        sums[I][J] = scalar.mul_add(row[J], sums[I][J]);
                    });
                });
                // If rows are neighbours, this is where the next tiles' are: too far apart for the processor to guess.
                V::prefetch(a.wrapping_add(PREFETCH_BYTES / size_of::<S>()));
                a = a.wrapping_offset(a_depth);
                b = b.wrapping_offset(b_depth);
            }
            if columns < width {
                // A copy, because what has an address is not in registers.
                let edge = sums;
                return V::Set::run(WriteEdge { tile: self.0, sums: edge.as_ptr().cast(), width });
            }
            let alpha = V::splat(alpha);
            unroll!(row I below ROWS {
                let c = c.offset(I as isize * c_row);
                unroll!(column J below VECTORS {
                    let c = c.add(J * V::LANES);
                    let old = if add { V::load(c) } else { V::splat(S::ZERO) };
                    alpha.mul_add(sums[I][J], old).store(c);
                });
            });
        }
    }
}

/// Some columns of a product with one row, where both operands lie in memory along the depth.
#[derive(Clone, Copy)]
pub(crate) struct Dots<S> {
    pub(crate) depth: usize,
    pub(crate) a: *const S,
    /// Column `j` starts at `j * b_column`.
    pub(crate) b: *const S,
    pub(crate) b_column: isize,
    pub(crate) c: *mut S,
    pub(crate) columns: usize,
    pub(crate) alpha: S,
    /// Whether to add to the result or replace it.
    pub(crate) add: bool,
}

/// The columns that are summed side by side.
const DOTS: usize = 8;

impl<S: Float> Body for Dots<S> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        // SAFETY: the contract is the same.
        unsafe { self.compute::<VectorOf<I, S>>() }
    }
}

impl<S: Float> Dots<S> {
    #[inline(always)]
    unsafe fn compute<V: Vector<Scalar = S>>(self) {
        let Self { depth, a, b, b_column, c, columns, alpha, add } = self;
        // SAFETY: the caller vouches for the instruction set and the pointers.
        unsafe {
            for first in (0..columns).step_by(DOTS) {
                // A column that is not there is replaced by one that is.
                let column = |j: usize| b.wrapping_offset((first + j).min(columns - 1) as isize * b_column);
                let mut sums = [V::splat(S::ZERO); DOTS];
                for p in (0..depth).step_by(V::LANES) {
                    let lanes = 0..V::LANES.min(depth - p);
                    let vector = S::load_some::<V>(a.add(p), lanes.clone());
                    unroll!(column J below DOTS {
                        sums[J] = vector.mul_add(S::load_some(column(J).add(p), lanes.clone()), sums[J]);
                    });
                }
                for (j, sum) in sums.into_iter().enumerate().take(columns - first) {
                    let c = c.add(first + j);
                    let old = if add { *c } else { S::ZERO };
                    *c = alpha.mul_add(sum.sum(), old);
                }
            }
        }
    }
}

//! The innermost loop: a tile of the result that stays in registers for the whole depth of a block.

use crate::element::Real;
use crate::simd::{Body, Isa, Vector};

/// The vectors across a register tile.
pub(crate) const VECTORS: usize = 2;

/// The most rows of a register tile: what remains beside one row of vectors and one broadcast scalar.
pub(crate) const fn max_rows(isa: Isa) -> usize {
    (isa.registers() - 1) / VECTORS - 1
}

/// The distance from one depth to the next in a packed panel of rows: whole vectors, so that panels are written
/// by whole vectors.
pub(crate) const fn row_panel(isa: Isa, size: usize) -> usize {
    max_rows(isa).next_multiple_of(isa.lanes(size))
}

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
    /// The columns to write. A tile of at most one vector of columns reads only one vector of each depth.
    pub(crate) columns: usize,
    pub(crate) alpha: S,
    /// Whether to add to the result or replace it.
    pub(crate) add: bool,
}

impl<S: Real> Tile<S> {
    /// Computes the tile.
    ///
    /// # Safety
    ///
    /// The machine has the instruction set of `V`; `rows` is from 1 to `max_rows`, `columns` from 1 to `VECTORS`
    /// vectors; the pointers are valid for what the fields say is read and written.
    #[inline(always)]
    pub(crate) unsafe fn run<V: Vector<Scalar = S>>(self) {
        macro_rules! by_rows {
            ($($rows:literal)*) => {
                match (self.rows, self.columns > V::LANES) {
                    $(
                        ($rows, true) => V::enter(Sized::<S, $rows, VECTORS>(self)),
                        ($rows, false) => V::enter(Sized::<S, $rows, 1>(self)),
                    )*
                    _ => unreachable!("a register tile of {} rows", self.rows),
                }
            };
        }
        // SAFETY: the caller vouches for the instruction set and the tile.
        unsafe { by_rows!(1 2 3 4 5 6 7 8 9 10 11 12 13 14) }
    }
}

/// Repeats a block with a constant for `$index`, for every index below `$end`. A loop would do, if compilers could
/// be relied on to unroll it and keep arrays that it indexes in registers.
macro_rules! unroll {
    ($index:ident below $end:ident $body:block) => {
        unroll!(@ $index $end $body 0 1 2 3 4 5 6 7 8 9 10 11 12 13)
    };
    (@ $index:ident $end:ident $body:block $($value:literal)*) => {
        $(if $value < $end {
            const $index: usize = $value;
            $body
        })*
    };
}

/// A tile of constant size, so that its sums get a register each.
struct Sized<S, const ROWS: usize, const VECTORS: usize>(Tile<S>);

impl<S: Real, const ROWS: usize, const VECTORS: usize> Body<S> for Sized<S, ROWS, VECTORS> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = S>>(self) {
        if ROWS > max_rows(V::ISA) {
            return;
        }
        let Tile { depth, mut a, a_row, a_depth, mut b, b_depth, c, c_row, columns, alpha, add, .. } = self.0;
        // SAFETY: the caller of `Tile::run` vouches for the instruction set and the pointers.
        unsafe {
            unroll!(I below ROWS {
                unroll!(J below VECTORS {
                    V::prefetch(c.wrapping_offset(I as isize * c_row).wrapping_add(J * V::LANES));
                });
            });
            let mut sums = [[V::splat(S::ZERO); VECTORS]; ROWS];
            for _ in 0..depth {
                let mut row = [V::splat(S::ZERO); VECTORS];
                unroll!(J below VECTORS {
                    row[J] = V::load(b.add(J * V::LANES));
                });
                unroll!(I below ROWS {
                    let scalar = V::splat(*a.wrapping_offset(I as isize * a_row));
                    unroll!(J below VECTORS {
                        sums[I][J] = scalar.mul_add(row[J], sums[I][J]);
                    });
                });
                a = a.wrapping_offset(a_depth);
                b = b.wrapping_offset(b_depth);
            }
            let alpha = V::splat(alpha);
            unroll!(I below ROWS {
                let c = c.offset(I as isize * c_row);
                unroll!(J below VECTORS {
                    let c = c.wrapping_add(J * V::LANES);
                    let count = columns.saturating_sub(J * V::LANES);
                    if count >= V::LANES {
                        let old = if add { V::load(c) } else { V::splat(S::ZERO) };
                        alpha.mul_add(sums[I][J], old).store(c);
                    } else {
                        let old = if add { V::load_some(c, 0..count) } else { V::splat(S::ZERO) };
                        alpha.mul_add(sums[I][J], old).store_first(c, count);
                    }
                });
            });
        }
    }
}

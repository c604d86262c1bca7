//! One batch of products, from packed operands to its result, on the threads of a pool.

use super::blocking::{Blocking, EPILOGUE_COLUMNS, Order, Shape, Sums, epilogue_pitch};
use super::kernel::{Dots, Tile};
use super::pack::{BatchStrides, Layout, Left, Right};
use crate::numbers::{Element, Float};
use crate::runtime::Pool;
use crate::simd::{Body, InstructionSet, Isa, MAX_LANES, Vector, VectorOf};
use std::ops::Range;

/// The alignment of workspace in bytes.
pub const WORKSPACE_ALIGN: usize = 64;

/// Where a batch of products goes.
pub(crate) trait Target<T>: Sync {
    /// The address of the first element of row `row` and the distance to the next.
    fn row(&self, batch: usize, row: usize) -> (*mut T, isize);

    /// The distance between rows, if it is the same for all and the elements of a row follow each other.
    fn row_stride(&self) -> Option<isize>;

    /// Whether the elements of a column follow each other, so that rows are written best several at a time.
    fn is_in_columns(&self) -> bool {
        false
    }

    /// The epilogue that takes the result of the only product instead of its going to memory.
    fn epilogue(&self) -> Option<&dyn Epilogue> {
        None
    }
}

/// What takes the result of a product while it is in cache.
pub(crate) trait Epilogue: Sync {
    /// Takes rows of some columns: all, or at most [`EPILOGUE_COLUMNS`] if there are more. They are elements of the
    /// product's type, the first at `values`, and rows are [`epilogue_pitch`] sums apart.
    ///
    /// # Safety
    ///
    /// The rectangle is there; no two calls at a time have the same worker, and no two any element in common.
    unsafe fn take(&self, worker: usize, rows: Range<usize>, columns: Range<usize>, values: *const u8);

    /// Prefetches the memory that taking these rows and columns will need.
    fn prefetch(&self, rows: Range<usize>, columns: Range<usize>);
}

/// A target that is no memory: the result goes to an epilogue.
pub(crate) struct ToEpilogue<'a>(pub(crate) &'a dyn Epilogue);

impl<T> Target<T> for ToEpilogue<'_> {
    fn row(&self, _: usize, _: usize) -> (*mut T, isize) {
        (std::ptr::null_mut(), 1)
    }

    fn row_stride(&self) -> Option<isize> {
        None
    }

    fn epilogue(&self) -> Option<&dyn Epilogue> {
        Some(self.0)
    }
}

/// A matrix whose elements are at fixed distances.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StridedMut<T> {
    pub(crate) start: *mut T,
    pub(crate) row_stride: isize,
    pub(crate) column_stride: isize,
    pub(crate) batch: BatchStrides,
}

// SAFETY: tasks write disjoint elements, inside a product whose caller vouches for them.
unsafe impl<T: Element<Acc: Float>> Sync for StridedMut<T> {}

impl<T: Element<Acc: Float>> Target<T> for StridedMut<T> {
    fn row(&self, batch: usize, row: usize) -> (*mut T, isize) {
        let offset = self.batch.offset(batch) + row as isize * self.row_stride;
        (self.start.wrapping_offset(offset), self.column_stride)
    }

    fn row_stride(&self) -> Option<isize> {
        (self.column_stride == 1).then_some(self.row_stride)
    }

    fn is_in_columns(&self) -> bool {
        self.row_stride == 1
    }
}

/// `target = alpha * a · b`, or `target += alpha * a · b`.
///
/// Operands and target are asked for what a block needs, so that the loops over blocks are compiled once for a type of
/// element, whatever they are.
pub(crate) struct Product<'a, T: Element<Acc: Float>> {
    pub(crate) shape: Shape,
    pub(crate) a: &'a dyn Left<T::Acc>,
    pub(crate) b: &'a dyn Right<T::Acc>,
    pub(crate) target: &'a dyn Target<T>,
    pub(crate) alpha: T::Acc,
    pub(crate) accumulate: bool,
}

/// The bytes of workspace of a product into `T`, on any instruction set. `in_rows` says that the target
/// has a [`row_stride`](Target::row_stride).
pub(crate) fn workspace<T: Element<Acc: Float>>(shape: Shape, in_rows: bool, threads: usize) -> usize {
    workspace_in::<T>(Order::of(shape, size_of::<T::Acc>()), shape, in_rows, threads)
}

/// The bytes of workspace of a product into `T` whose result is [`ToEpilogue`] on.
pub(crate) fn epilogue_workspace<T: Element<Acc: Float>>(shape: Shape, threads: usize) -> usize {
    let order = Order::of(shape, size_of::<T::Acc>());
    workspace_to::<T>(order, shape, Sums::ToEpilogue, threads)
}

/// [`workspace`] of a product with an order of summation of its own.
pub(crate) fn workspace_in<T: Element<Acc: Float>>(
    order: Order,
    shape: Shape,
    in_rows: bool,
    threads: usize,
) -> usize {
    workspace_to::<T>(order, shape, Sums::of::<T>(in_rows, false), threads)
}

fn workspace_to<T: Element<Acc: Float>>(order: Order, shape: Shape, sums: Sums, threads: usize) -> usize {
    let size = size_of::<T::Acc>();
    let len = |isa| Blocking::new(shape, order, isa, size, sums, threads).len(threads);
    let Shape { batch, m, n, k } = shape;
    if [batch, m, n, k].contains(&0) {
        return 0;
    }
    Isa::ALL.map(len).into_iter().max().unwrap_or(0) * size
}

impl<T: Element<Acc: Float>> Product<'_, T> {
    /// Computes the product.
    ///
    /// # Panics
    ///
    /// When `workspace` is smaller than [`workspace`] says or not aligned to [`WORKSPACE_ALIGN`].
    ///
    /// # Safety
    ///
    /// The operands and the target are valid for the shape; the target overlaps neither the operands nor itself.
    pub(crate) unsafe fn run(&self, pool: &Pool, isa: Isa, workspace: &mut [u8]) {
        // SAFETY: the contract is the same.
        unsafe { self.run_in(Order::of(self.shape, size_of::<T::Acc>()), pool, isa, workspace) }
    }

    /// Computes the product with its sums in `order`, which is that of a larger product of which this is a part.
    ///
    /// # Panics
    ///
    /// When `workspace` is smaller than [`workspace_in`] says or not aligned to [`WORKSPACE_ALIGN`].
    ///
    /// # Safety
    ///
    /// As for [`run`](Self::run); and if the order is resumed, the target is of sums, initialised and in rows, and
    /// `alpha` is one.
    pub(crate) unsafe fn run_in(&self, order: Order, pool: &Pool, isa: Isa, workspace: &mut [u8]) {
        let Shape { batch, m, n, k } = self.shape;
        let threads = pool.threads();
        if [batch, m, n].contains(&0) {
            return;
        }
        let sums = Sums::of::<T>(self.target.row_stride().is_some(), self.target.epilogue().is_some());
        let size = size_of::<T::Acc>();
        let blocking = Blocking::new(self.shape, order, isa, size, sums, threads);
        let bytes = if k == 0 { 0 } else { blocking.len(threads) * size };
        let scratch = workspace.as_mut_ptr();
        assert!(
            workspace.len() >= bytes,
            "a product needs {bytes} bytes of workspace, not {}",
            workspace.len()
        );
        assert!(bytes == 0 || scratch.addr().is_multiple_of(WORKSPACE_ALIGN), "workspace is not aligned");
        let job = Job { product: self, blocking, sums, scratch: scratch.cast::<T::Acc>() };

        if k == 0 {
            assert!(sums != Sums::ToEpilogue, "a product over nothing has nothing to hand on");
            if !self.accumulate {
                // SAFETY: the caller vouches for the target.
                unsafe { job.clear() };
            }
            return;
        }
        let Blocking { order: Order { splits, .. }, grid, tiles_per_task, .. } = blocking;
        let tiles = batch * splits * grid[0] * grid[1];
        pool.run(tiles.div_ceil(tiles_per_task), &|worker, task| {
            let first = task * tiles_per_task;
            let tiles = first..tiles.min(first + tiles_per_task);
            isa.run(Tiles { job: &job, worker, tiles });
        });
        if splits > 1 {
            let rows_per_task = 4096usize.div_ceil(n);
            pool.run((batch * m).div_ceil(rows_per_task), &|worker, task| {
                let first = task * rows_per_task;
                let rows = first..(batch * m).min(first + rows_per_task);
                isa.run(Totals { job: &job, worker, rows });
            });
        }
    }
}

/// A product while it runs.
struct Job<'a, T: Element<Acc: Float>> {
    product: &'a Product<'a, T>,
    blocking: Blocking,
    sums: Sums,
    /// Partial sums, then the workspace of each thread.
    scratch: *mut T::Acc,
}

// SAFETY: tasks write disjoint partial sums, and each thread writes its own workspace.
unsafe impl<T: Element<Acc: Float>> Sync for Job<'_, T> {}

/// Some tiles, for one thread.
struct Tiles<'a, T: Element<Acc: Float>> {
    job: &'a Job<'a, T>,
    worker: usize,
    tiles: Range<usize>,
}

impl<T: Element<Acc: Float>> Body for Tiles<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        for tile in self.tiles {
            // SAFETY: the caller vouches for the instruction set, and the product's for the rest.
            unsafe { self.job.tile::<VectorOf<I, T::Acc>>(self.worker, tile) };
        }
    }
}

/// Some rows of the result, from their partial sums.
struct Totals<'a, T: Element<Acc: Float>> {
    job: &'a Job<'a, T>,
    worker: usize,
    rows: Range<usize>,
}

impl<T: Element<Acc: Float>> Body for Totals<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        let Job { product, blocking, scratch, .. } = self.job;
        let Shape { m, n, .. } = product.shape;
        for row in self.rows {
            let (batch, row) = (row / m, row % m);
            let splits = blocking.order.splits;
            let sums = scratch.wrapping_add((batch * splits * m + row) * n);
            // SAFETY: every tile has been computed, so all partial sums of the row are there, and the thread's
            // workspace has room for the columns that an epilogue takes at once.
            unsafe {
                let Some(epilogue) = product.target.epilogue() else {
                    self.job.write(batch, row, 0..n, sums, splits, m * n);
                    continue;
                };
                let whole = self.job.own_sums(self.worker).cast::<T>();
                for columns in cut(0..n, EPILOGUE_COLUMNS) {
                    let parts = sums.wrapping_add(columns.start);
                    self.job.total(columns.len(), parts, splits, m * n, |at, total| {
                        whole.add(at).write(T::narrow(total.mul_add(product.alpha, T::Acc::ZERO)));
                    });
                    epilogue.take(self.worker, row..row + 1, columns, whole.cast_const().cast());
                }
            }
        }
    }
}

/// Where a tile's register tiles are summed up, and how.
struct Accumulator<S> {
    start: *mut S,
    stride: isize,
    alpha: S,
    add: bool,
}

impl<T: Element<Acc: Float>> Job<'_, T> {
    /// Computes one tile over one part of the depth.
    #[inline(always)]
    unsafe fn tile<V: Vector<Scalar = T::Acc>>(&self, worker: usize, index: usize) {
        let Shape { m, n, k, .. } = self.product.shape;
        let Blocking { order: Order { splits, split_depth, .. }, grid, tile_m, tile_n, .. } = self.blocking;
        let (unit, tile) = (index / (grid[0] * grid[1]), index % (grid[0] * grid[1]));
        let (batch, split) = (unit / splits, unit % splits);
        let (down, across) = (tile / grid[1], tile % grid[1]);
        let rows = down * tile_m..m.min((down + 1) * tile_m);
        let columns = across * tile_n..n.min((across + 1) * tile_n);
        let depth = split * split_depth..k.min((split + 1) * split_depth);

        let sums = self.own_sums(worker);
        let place = if splits > 1 {
            let start = self.scratch.wrapping_add((unit * m + rows.start) * n + columns.start);
            Accumulator { start, stride: n as isize, alpha: T::Acc::ONE, add: false }
        } else if self.sums == Sums::InPlace {
            let start = self.product.target.row(batch, rows.start).0.wrapping_add(columns.start).cast();
            let stride = self.product.target.row_stride().unwrap_or(0);
            Accumulator { start, stride, alpha: self.product.alpha, add: self.product.accumulate }
        } else {
            let stride = if self.sums == Sums::ToEpilogue { epilogue_pitch(n) } else { tile_n };
            Accumulator { start: sums, stride: stride as isize, alpha: T::Acc::ONE, add: false }
        };
        // SAFETY: the ranges are within the product, and the place has room for the tile.
        unsafe {
            self.blocks::<V>(worker, batch, rows.clone(), columns.clone(), depth, place);
            if splits == 1 && self.sums == Sums::InTile {
                if T::IS_ACC && self.product.target.is_in_columns() && !self.product.accumulate {
                    return self.write_columns::<V>(batch, rows, columns, sums);
                }
                for (i, row) in rows.enumerate() {
                    self.write(batch, row, columns.clone(), sums.add(i * tile_n), 1, 0);
                }
            }
        }
    }

    /// A thread's own workspace.
    fn own(&self, worker: usize) -> *mut T::Acc {
        self.scratch.wrapping_add(self.blocking.partial_len + worker * self.blocking.worker_len())
    }

    /// The part of a thread's own workspace that is for sums.
    fn own_sums(&self, worker: usize) -> *mut T::Acc {
        self.own(worker).wrapping_add(self.blocking.a_len + self.blocking.b_len)
    }

    /// Sums up a tile, block by block.
    #[inline(always)]
    unsafe fn blocks<V: Vector<Scalar = T::Acc>>(
        &self,
        worker: usize,
        batch: usize,
        rows: Range<usize>,
        columns: Range<usize>,
        depth: Range<usize>,
        place: Accumulator<T::Acc>,
    ) {
        let (a, b) = (self.product.a, self.product.b);
        let packed_a = self.own(worker);
        let packed_b = packed_a.wrapping_add(self.blocking.a_len);
        let a_in_place = a.in_place(batch);
        // Rows at a distance of pages compete for one set of a first-level cache, which has room for eight lines.
        let crowded =
            a_in_place.is_some_and(|a| (a.lead_stride.unsigned_abs() * size_of::<T>()).is_multiple_of(4096));
        let tile_rows = if crowded { self.blocking.rows.min(8) } else { self.blocking.rows };
        let tile_columns = self.blocking.columns;
        // Few rows do not repay the packing of columns that can be read in place.
        let b_in_place = b.in_place(batch).filter(|b| rows.len() <= 2 * tile_rows && b.lead_stride == 1);
        let order = self.blocking.order;
        if let (true, Some(a), Some(b)) = (order.in_lanes, a_in_place, b.in_place(batch))
            && (a.depth_stride, b.depth_stride) == (1, 1)
        {
            for block in cut(depth.clone(), order.depth) {
                let dots = Dots {
                    depth: block.len(),
                    a: a.at(rows.start, block.start),
                    b: b.at(columns.start, block.start),
                    b_column: b.lead_stride,
                    c: place.start,
                    columns: columns.len(),
                    alpha: place.alpha,
                    add: place.add || block.start > depth.start,
                };
                // SAFETY: all ranges are within the product.
                unsafe { V::Set::run(dots) };
            }
            return;
        }
        // Only whole register tiles of columns can be read in place.
        let packed_from = match b_in_place {
            Some(_) => columns.end - columns.len() % tile_columns,
            None => columns.start,
        };
        let epilogue = self.product.target.epilogue().filter(|_| order.splits == 1);
        // Rows that are finished in one block need a place only until the epilogue has taken them.
        let keeps_rows = epilogue.is_none() || depth.len() > order.depth;
        // SAFETY: all ranges are within the product; each packed part is within the thread's workspace.
        unsafe {
            for block in cut(depth.clone(), order.depth) {
                b.pack(V::ISA, batch, packed_from..columns.end, block.clone(), packed_b, tile_columns);
                let epilogue = epilogue.filter(|_| block.end == depth.end);
                let mut held = rows.start;

                for row_tile in cut(rows.clone(), tile_rows) {
                    let a = match a_in_place {
                        Some(a) => Layout { start: a.at(row_tile.start, block.start), ..a },
                        None => a.pack(V::ISA, batch, row_tile.clone(), block.clone(), packed_a),
                    };
                    let first = if keeps_rows { rows.start } else { held };
                    let row = (row_tile.start - first) as isize;
                    let c = place.start.wrapping_offset(row * place.stride);
                    for column_tile in cut(columns.clone(), tile_columns) {
                        let (b, b_depth) = match b_in_place {
                            Some(b) if column_tile.start < packed_from => {
                                (b.at(column_tile.start, block.start), b.depth_stride)
                            }
                            _ => {
                                let panel = packed_b.add((column_tile.start - packed_from) * block.len());
                                (panel.cast_const(), tile_columns as isize)
                            }
                        };
                        if let Some(epilogue) = epilogue {
                            epilogue.prefetch(row_tile.clone(), column_tile.clone());
                        }
                        Tile {
                            depth: block.len(),
                            a: a.start,
                            a_row: a.lead_stride,
                            a_depth: a.depth_stride,
                            b,
                            b_depth,
                            c: c.wrapping_add(column_tile.start - columns.start),
                            c_row: place.stride,
                            rows: row_tile.len(),
                            columns: column_tile.len(),
                            alpha: place.alpha,
                            add: place.add || block.start > depth.start,
                            resume: order.resumed && block.start == depth.start,
                        }
                        .run::<V>();
                    }
                    let is_full = row_tile.end - held + tile_rows > self.blocking.held;
                    if let Some(epilogue) = epilogue.filter(|_| is_full || row_tile.end == rows.end) {
                        let c = place.start.wrapping_offset((held - first) as isize * place.stride);
                        self.narrow(c, place.stride, row_tile.end - held, columns.len());
                        epilogue.take(worker, held..row_tile.end, columns.clone(), c.cast_const().cast());
                        held = row_tile.end;
                    }
                }
            }
        }
    }

    /// Rounds sums to elements where they are: an element is never larger than its sum.
    #[inline(always)]
    unsafe fn narrow(&self, sums: *mut T::Acc, stride: isize, rows: usize, columns: usize) {
        if T::IS_ACC {
            return;
        }
        for row in 0..rows as isize {
            let sums = sums.wrapping_offset(row * stride);
            for column in 0..columns {
                // SAFETY: the sums are the thread's own, and each is read before an element is written over it.
                unsafe {
                    let total = *sums.add(column);
                    let element = T::narrow(total.mul_add(self.product.alpha, T::Acc::ZERO));
                    sums.cast::<T>().add(column).write(element);
                }
            }
        }
    }

    /// Writes a tile of a result whose columns follow each other in memory, in squares of vectors: element by element, each
    /// would be in a line of memory of its own.
    #[inline(always)]
    unsafe fn write_columns<V: Vector<Scalar = T::Acc>>(
        &self,
        batch: usize,
        rows: Range<usize>,
        columns: Range<usize>,
        sums: *const T::Acc,
    ) {
        let (target, column_stride) = self.product.target.row(batch, rows.start);
        let pitch = self.blocking.tile_n;
        // SAFETY: the sums have a scalar for every element of the tile, which is the caller's to write.
        unsafe {
            let (alpha, zero) = (V::splat(self.product.alpha), V::splat(T::Acc::ZERO));
            for across in cut(0..columns.len(), V::LANES) {
                for down in cut(0..rows.len(), V::LANES) {
                    // A row that is not there is replaced by one that is.
                    let mut square = [zero; MAX_LANES];
                    for (row, vector) in square[..V::LANES].iter_mut().enumerate() {
                        let row = down.start + row.min(down.len() - 1);
                        *vector = T::Acc::load_some(sums.add(row * pitch + across.start), 0..across.len());
                    }
                    V::transpose(&mut square[..V::LANES]);
                    for (column, vector) in square[..across.len()].iter().enumerate() {
                        let column = (columns.start + across.start + column) as isize;
                        let to = target.wrapping_offset(column * column_stride).wrapping_add(down.start);
                        vector.mul_add(alpha, zero).store_first(to.cast(), down.len());
                    }
                }
            }
        }
    }

    /// Writes `columns` of a row of the result: the sum of `parts` rows of sums, `part_stride` apart.
    #[inline(always)]
    unsafe fn write(
        &self,
        batch: usize,
        row: usize,
        columns: Range<usize>,
        sums: *const T::Acc,
        parts: usize,
        part_stride: usize,
    ) {
        let (target, stride) = self.product.target.row(batch, row);
        // SAFETY: the sums have a scalar for every column, and the row is the caller's to write.
        unsafe {
            self.total(columns.len(), sums, parts, part_stride, |at, total| {
                let element = target.wrapping_offset((columns.start + at) as isize * stride);
                let old = if self.product.accumulate { (*element).widen() } else { T::Acc::ZERO };
                *element = T::narrow(total.mul_add(self.product.alpha, old));
            });
        }
    }

    /// Calls `done` with the position and the sum of each of `count` columns: that of `parts` rows of sums,
    /// `part_stride` apart.
    #[inline(always)]
    unsafe fn total(
        &self,
        count: usize,
        sums: *const T::Acc,
        parts: usize,
        part_stride: usize,
        mut done: impl FnMut(usize, T::Acc),
    ) {
        const CHUNK: usize = 64;
        for chunk in cut(0..count, CHUNK) {
            let mut total = [T::Acc::ZERO; CHUNK];
            for part in 0..parts {
                let sums = sums.wrapping_add(part * part_stride + chunk.start);
                for (j, total) in total[..chunk.len()].iter_mut().enumerate() {
                    // SAFETY: the caller vouches for a scalar for every column of every part.
                    *total += unsafe { *sums.add(j) };
                }
            }
            for (&total, column) in total.iter().zip(chunk) {
                done(column, total);
            }
        }
    }

    /// Sets the result to zero.
    unsafe fn clear(&self) {
        let Shape { batch, m, n, .. } = self.product.shape;
        for index in 0..batch * m {
            let (row, stride) = self.product.target.row(index / m, index % m);
            for column in 0..n {
                // SAFETY: the row is the caller's to write.
                unsafe { *row.wrapping_offset(column as isize * stride) = T::default() };
            }
        }
    }
}

/// Cuts a range into pieces of `step` and a last one of what remains.
#[inline(always)]
pub(crate) fn cut(range: Range<usize>, step: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(step).map(move |start| start..end.min(start + step))
}

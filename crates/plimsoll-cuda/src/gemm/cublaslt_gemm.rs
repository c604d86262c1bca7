//! A batch of matrix products by cuBLASLt, ready to run.
//!
//! The library has many algorithms for a product, and a heuristic that says which is fastest. It is off by as much as a
//! factor of two, so the likeliest are autotuned: measured once, on the device, and the choice is kept in memory and on
//! disk. Of algorithms that are about as fast, the one with the least workspace is taken.
//!
//! Where every step has another length, the arena is that of the longest. So a product of fewer samples never takes more,
//! operands and workspace together, than one of more samples that came before it.

use crate::codegen::cache::{self, Key};
use crate::codegen::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::gemm::Gemm;
use crate::gemm::autotune::GemmTimer;
use crate::gemm::blas::{Algorithm, Blas, GemmCandidate};
use crate::gemm::hopper::HopperChoices;
use crate::routine::ALIGNMENT;
use cudarc::cublaslt::sys::{cublasLtMatmulDesc_t, cublasLtMatmulPreference_t, cublasLtMatrixLayout_t};
use cudarc::driver::sys::{CUdeviceptr, CUstream};
use plimsoll_graph::DType;
use std::collections::HashMap;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::{Arc, PoisonError};

/// The most workspace that a product may ask for.
const WORKSPACE_LIMIT: u64 = 32 << 20;
/// How many algorithms are measured at most.
const CANDIDATES: usize = 8;
/// How much slower than the fastest an algorithm may be that needs less workspace.
const ABOUT_AS_FAST: f32 = 1.03;

/// A matrix as the library sees it: columns that are `leading` apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MatrixLayout {
    rows: usize,
    columns: usize,
    leading: usize,
    transposed: bool,
}

impl MatrixLayout {
    /// The transpose of a matrix that has its rows and columns so far apart, or None if the library has no name for it.
    pub(crate) fn of(rows: usize, columns: usize, [row, column, _]: [usize; 3]) -> Option<MatrixLayout> {
        let straight = (column == 1 || columns == 1) && (rows == 1 || row >= columns.max(1));
        let straight = straight.then_some(MatrixLayout {
            rows: columns,
            columns: rows,
            leading: if rows == 1 { columns } else { row },
            transposed: false,
        });
        let turned = (row == 1 || rows == 1) && (columns == 1 || column >= rows.max(1));
        let turned = turned.then_some(MatrixLayout {
            rows,
            columns,
            leading: if columns == 1 { rows } else { column },
            transposed: true,
        });
        // A vector is one long column rather than many of one element.
        if columns == 1 { turned.or(straight) } else { straight.or(turned) }
    }
}

/// A product, ready to run.
pub(crate) struct CublasLtGemm {
    engine: Arc<Engine>,
    descriptors: Descriptors,
    choice: Choice,
    double: bool,
    accumulate: bool,
    /// Whether b is given before a.
    exchanged: bool,
}

/// How a product is computed, and the scratch bytes that takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Choice {
    algorithm: Algorithm,
    workspace: u64,
}

/// The library's names for a type.
fn type_number(dtype: DType) -> Option<c_uint> {
    match dtype {
        DType::F32 => Some(0),
        DType::F64 => Some(1),
        DType::F16 => Some(2),
        DType::BF16 => Some(14),
        _ => None,
    }
}

impl CublasLtGemm {
    /// # Errors
    /// If the library is missing, or cannot compute it.
    pub(crate) fn new(engine: &Arc<Engine>, gemm: &Gemm) -> Result<CublasLtGemm> {
        let blas = engine.blas()?;
        let descriptors = engine.shared.with_context(|_| Descriptors::new(blas, gemm, engine.tf32()))?;
        let mut product = CublasLtGemm {
            engine: engine.clone(),
            descriptors,
            choice: Choice { algorithm: [0; 8], workspace: 0 },
            double: gemm.dtype == DType::F64,
            accumulate: gemm.accumulate,
            exchanged: false,
        };
        let key = cache::digest(&[
            format!("{gemm:?} {}", engine.tf32()).as_bytes(),
            format!("{:?} {}", engine.properties(), blas.version()).as_bytes(),
        ]);
        // One at a time: two that run at once would slow each other down.
        let mut choices = engine.choices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = choices.of.get(&key) {
            product.choice = *known;
            return Ok(product);
        }
        let limit = choices.limit(gemm);
        let within = |choice: &Choice| choice.workspace <= limit;
        let known = product.kept(key).filter(within);
        let known = known.or_else(|| product.like_another(gemm, &choices.measured).filter(within));
        product.choice = match known {
            Some(choice) => choice,
            None => {
                let choice = product.choose(gemm, limit)?;
                // With more workspace another algorithm may be faster.
                if limit >= workspace_limit(gemm) {
                    engine.choices_cache.put(key, &choice.to_bytes());
                }
                choices.measured.push((*gemm, choice));
                choice
            }
        };
        choices.of.insert(key, product.choice);
        choices.taken.push((*gemm, product.choice.workspace));
        drop(choices);
        Ok(product)
    }

    /// The same product, run with b's address before a's.
    pub(crate) fn exchanged(self) -> CublasLtGemm {
        CublasLtGemm { exchanged: !self.exchanged, ..self }
    }

    /// The scratch bytes a run needs, at an address aligned to 256.
    pub(crate) fn workspace(&self) -> u64 {
        self.choice.workspace
    }

    /// Enqueues the product, with the device's context current.
    ///
    /// # Safety
    /// The addresses must be those of matrices as they were described, valid when it runs.
    pub(crate) unsafe fn run(
        &self,
        [first, second, c]: [CUdeviceptr; 3],
        workspace: CUdeviceptr,
        stream: CUstream,
    ) -> Result<()> {
        let [a, b] = if self.exchanged { [second, first] } else { [first, second] };
        // SAFETY: as the caller vouches.
        unsafe { self.run_as(&self.choice, [a, b, c], workspace, stream) }
    }

    unsafe fn run_as(
        &self,
        choice: &Choice,
        [a, b, c]: [CUdeviceptr; 3],
        workspace: CUdeviceptr,
        stream: CUstream,
    ) -> Result<()> {
        let blas = self.engine.blas()?;
        let scale = |value: f64, single: &mut f32, double: &mut f64| -> *const c_void {
            (*single, *double) = (value as f32, value);
            if self.double { ptr::from_ref(double).cast() } else { ptr::from_ref(single).cast() }
        };
        let ([mut one, mut zero], [mut one_double, mut zero_double]) = ([0.0; 2], [0.0; 2]);
        let alpha = scale(1.0, &mut one, &mut one_double);
        let beta = scale(f64::from(u8::from(self.accumulate)), &mut zero, &mut zero_double);
        let Descriptors { product, left, right, result, .. } = self.descriptors;
        // SAFETY: the descriptors live; the factors are of the type that was said and read before this returns; the
        // caller vouches for the addresses, and the workspace is as long as the algorithm asked for. What is a
        // row for us is a column for the library: it computes the transpose, with the operands exchanged.
        let code = unsafe {
            (blas.functions.multiply)(
                blas.handle,
                product,
                alpha,
                b,
                left,
                a,
                right,
                beta,
                c,
                result,
                c,
                result,
                &choice.algorithm,
                workspace,
                choice.workspace as usize,
                stream,
            )
        };
        blas.check(code, || "enqueue a matrix product".into())
    }

    /// What was chosen in an earlier process.
    fn kept(&self, key: Key) -> Option<Choice> {
        self.taken(Choice::from_bytes(&self.engine.choices_cache.get(key)?)?)
    }

    /// What was chosen for a product that is like this one but for the number of samples. Measuring takes as long as
    /// hundreds of products, so that where every step is of another length it is done for few of them.
    fn like_another(&self, gemm: &Gemm, measured: &[(Gemm, Choice)]) -> Option<Choice> {
        let alike = measured.iter().filter_map(|(other, choice)| Some((gemm.unlike(other)?, choice)));
        let (_, choice) = alike.min_by(|a, b| a.0.total_cmp(&b.0))?;
        self.taken(*choice)
    }

    /// A choice, if the library takes it for this product.
    fn taken(&self, choice: Choice) -> Option<Choice> {
        let Descriptors { product, left, right, result, .. } = self.descriptors;
        let blas = self.engine.blas().ok()?;
        let mut candidate = GemmCandidate::default();
        let checked = self.engine.shared.with_context(|_| {
            // SAFETY: the descriptors live, and the pointers are to live values of the library's types.
            let code = unsafe {
                let check = blas.functions.check;
                check(blas.handle, product, left, right, result, result, &choice.algorithm, &mut candidate)
            };
            blas.check(code, || "take a choice from the cache".into())
        });
        (checked.is_ok() && candidate.workspace as u64 <= choice.workspace).then_some(choice)
    }

    /// The fastest of the algorithms that the library proposes, measured.
    fn choose(&self, gemm: &Gemm, limit: u64) -> Result<Choice> {
        let usual = workspace_limit(gemm);
        let mut candidates = self.engine.shared.with_context(|_| self.candidates(gemm, limit.min(usual)))?;
        if candidates.is_empty() && limit < usual {
            candidates = self.engine.shared.with_context(|_| self.candidates(gemm, usual))?;
        }
        let Some(&first) = candidates.first() else {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("cuBLASLt has no way to compute {gemm:?}"),
            ));
        };
        // On a device without memory to measure in, the library's heuristic decides.
        let Ok(times) = self.measure(gemm, &candidates) else { return Ok(first) };
        let best = times.iter().copied().fold(f32::INFINITY, f32::min);
        let fast = candidates.iter().zip(times).filter(|(_, time)| *time <= best * ABOUT_AS_FAST);
        Ok(fast.map(|(choice, _)| *choice).min_by_key(|choice| choice.workspace).unwrap_or(first))
    }

    /// The algorithms that the library proposes within so many bytes of workspace.
    fn candidates(&self, gemm: &Gemm, limit: u64) -> Result<Vec<Choice>> {
        let blas = self.engine.blas()?;
        let Descriptors { product, left, right, result, .. } = self.descriptors;
        let preference = Preference::new(blas, gemm, limit)?;
        let (mut found, mut count) = ([GemmCandidate::default(); CANDIDATES], 0);
        // SAFETY: the descriptors live, and there is room for as many candidates as are asked for.
        let code = unsafe {
            (blas.functions.candidates)(
                blas.handle,
                product,
                left,
                right,
                result,
                result,
                preference.preference,
                CANDIDATES as c_int,
                found.as_mut_ptr(),
                &mut count,
            )
        };
        blas.check(code, || format!("propose ways to compute {gemm:?}"))?;
        let found = found.iter().take(count.max(0) as usize).filter(|candidate| candidate.state == 0);
        Ok(found.map(|c| Choice { algorithm: c.algorithm, workspace: c.workspace as u64 }).collect())
    }

    /// The milliseconds that each algorithm takes; infinite for one that does not run.
    fn measure(&self, gemm: &Gemm, choices: &[Choice]) -> Result<Vec<f32>> {
        let workspace = choices.iter().map(|choice| choice.workspace).max().unwrap_or(0);
        let timer = GemmTimer::new(&self.engine.shared, gemm, workspace)?;
        let measured = |choice: &Choice| {
            // SAFETY: the timer has memory for all three matrices and the workspace.
            timer.milliseconds(1.0, |matrices, space, stream| unsafe {
                self.run_as(choice, matrices, space, stream)
            })
        };
        Ok(choices.iter().map(measured).collect())
    }
}

/// The workspace that algorithms for a product may use: enough for the partial sums of a small split-K.
fn workspace_limit(gemm: &Gemm) -> u64 {
    let result = (gemm.m * gemm.n * gemm.batch * gemm.dtype.accumulator().size()) as u64;
    result.saturating_mul(8).clamp(64 << 10, WORKSPACE_LIMIT)
}

impl Choice {
    fn to_bytes(self) -> Vec<u8> {
        self.algorithm.iter().chain([&self.workspace]).flat_map(|word| word.to_le_bytes()).collect()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Choice> {
        let words = bytes.chunks_exact(8).map(|word| Some(u64::from_le_bytes(word.try_into().ok()?)));
        let words: Vec<u64> = words.collect::<Option<_>>()?;
        let (workspace, algorithm) = words.split_last()?;
        let sound = bytes.len() == 72 && *workspace <= WORKSPACE_LIMIT;
        sound.then_some(Choice { algorithm: algorithm.try_into().ok()?, workspace: *workspace })
    }
}

/// The library's descriptions of a product and its matrices.
struct Descriptors {
    blas: &'static crate::gemm::blas::Functions,
    product: cublasLtMatmulDesc_t,
    left: cublasLtMatrixLayout_t,
    right: cublasLtMatrixLayout_t,
    result: cublasLtMatrixLayout_t,
}

// SAFETY: descriptions do not change once they are made, and the library reads them from any thread.
unsafe impl Send for Descriptors {}
// SAFETY: as above.
unsafe impl Sync for Descriptors {}

impl Descriptors {
    fn new(blas: &Blas, gemm: &Gemm, tf32: bool) -> Result<Descriptors> {
        /// The numbers of attributes and types of sums in the library's headers.
        const TRANSPOSE_LEFT: c_uint = 3;
        const TRANSPOSE_RIGHT: c_uint = 4;
        const SUMS_F32: c_uint = 68;
        const SUMS_F64: c_uint = 70;
        const SUMS_TF32: c_uint = 77;
        let unsupported = |why: &str| Error::new(ErrorKind::Unsupported, format!("{why}: {gemm:?}"));
        let number = |dtype| {
            type_number(dtype).ok_or_else(|| unsupported("a matrix product of such a type has no kernel"))
        };
        let strided = || unsupported("cuBLASLt cannot take matrices that lie so");
        let left = MatrixLayout::of(gemm.k, gemm.n, gemm.b).ok_or_else(strided)?;
        let right = MatrixLayout::of(gemm.m, gemm.k, gemm.a).ok_or_else(strided)?;
        let result = MatrixLayout { rows: gemm.n, columns: gemm.m, leading: gemm.c[0], transposed: false };
        let sums = match gemm.dtype {
            DType::F64 => SUMS_F64,
            DType::F32 if tf32 => SUMS_TF32,
            _ => SUMS_F32,
        };
        let mut descriptors = Descriptors {
            blas: blas.functions,
            product: ptr::null_mut(),
            left: ptr::null_mut(),
            right: ptr::null_mut(),
            result: ptr::null_mut(),
        };
        let scale = number(gemm.dtype.accumulator())?;
        // SAFETY: the pointer is to a live pointer.
        let code = unsafe { (blas.functions.product_create)(&mut descriptors.product, sums, scale) };
        blas.check(code, || format!("describe {gemm:?}"))?;
        for (which, layout) in [(TRANSPOSE_LEFT, left), (TRANSPOSE_RIGHT, right)] {
            let turned = c_int::from(layout.transposed);
            // SAFETY: the product was described above, and the attribute is an integer of this size.
            let code = unsafe {
                let set = blas.functions.product_set;
                set(descriptors.product, which, ptr::from_ref(&turned).cast(), size_of::<c_int>())
            };
            blas.check(code, || format!("describe {gemm:?}"))?;
        }
        descriptors.left = describe(blas, left, number(gemm.dtype)?, gemm.batch, gemm.b[2])?;
        descriptors.right = describe(blas, right, number(gemm.dtype)?, gemm.batch, gemm.a[2])?;
        descriptors.result = describe(blas, result, number(gemm.result)?, gemm.batch, gemm.c[1])?;
        Ok(descriptors)
    }
}

/// The library's description of a batch of matrices.
fn describe(
    blas: &Blas,
    layout: MatrixLayout,
    dtype: c_uint,
    batch: usize,
    step: usize,
) -> Result<cublasLtMatrixLayout_t> {
    const BATCH_COUNT: c_uint = 5;
    const BATCH_STEP: c_uint = 6;
    let attempt = || format!("describe a matrix: {layout:?}");
    let mut made: cublasLtMatrixLayout_t = ptr::null_mut();
    let (rows, columns) = (layout.rows as u64, layout.columns as u64);
    // SAFETY: the pointer is to a live pointer.
    let code =
        unsafe { (blas.functions.layout_create)(&mut made, dtype, rows, columns, layout.leading as i64) };
    blas.check(code, attempt)?;
    let too_many = |_| Error::new(ErrorKind::Unsupported, format!("a batch of {batch} matrix products"));
    let (count, step) = (i32::try_from(batch).map_err(too_many)?, step as i64);
    let set = blas.functions.layout_set;
    // SAFETY: the layout was made above, and the attributes are integers of these sizes.
    let codes = unsafe {
        [
            set(made, BATCH_COUNT, ptr::from_ref(&count).cast(), size_of::<i32>()),
            set(made, BATCH_STEP, ptr::from_ref(&step).cast(), size_of::<i64>()),
        ]
    };
    for code in codes {
        if code != 0 {
            // SAFETY: it was made above and is used no more.
            unsafe { (blas.functions.layout_destroy)(made) };
        }
        blas.check(code, attempt)?;
    }
    Ok(made)
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        for layout in [self.left, self.right, self.result] {
            if !layout.is_null() {
                // SAFETY: it was made by the library and is used no more.
                unsafe { (self.blas.layout_destroy)(layout) };
            }
        }
        if !self.product.is_null() {
            // SAFETY: as above.
            unsafe { (self.blas.product_destroy)(self.product) };
        }
    }
}

/// What the library may propose.
struct Preference {
    blas: &'static crate::gemm::blas::Functions,
    preference: cublasLtMatmulPreference_t,
}

impl Preference {
    fn new(blas: &Blas, gemm: &Gemm, workspace: u64) -> Result<Preference> {
        const WORKSPACE: c_uint = 1;
        const REDUCTIONS: c_uint = 3;
        const ALIGNMENT: [c_uint; 4] = [5, 6, 7, 8];
        /// Partial sums are added in the type of the sums, never in that of the result.
        const IN_TYPE_OF_SUMS: u32 = 2;
        let mut preference = Preference { blas: blas.functions, preference: ptr::null_mut() };
        // SAFETY: the pointer is to a live pointer.
        let code = unsafe { (blas.functions.preference_create)(&mut preference.preference) };
        blas.check(code, || "say what it may propose".into())?;
        let set = |which: c_uint, value: &[u8]| {
            let set = blas.functions.preference_set;
            // SAFETY: the preference was made above, and the value is of the attribute's size.
            let code = unsafe { set(preference.preference, which, value.as_ptr().cast(), value.len()) };
            blas.check(code, || "say what it may propose".into())
        };
        set(WORKSPACE, &workspace.to_ne_bytes())?;
        set(REDUCTIONS, &IN_TYPE_OF_SUMS.to_ne_bytes())?;
        let [a, b, c] = gemm.alignment.map(|bytes| bytes.clamp(1, 256) as u32);
        for (which, bytes) in ALIGNMENT.into_iter().zip([b, a, c, c]) {
            set(which, &bytes.to_ne_bytes())?;
        }
        Ok(preference)
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: it was made by the library and is used no more.
        unsafe { (self.blas.preference_destroy)(self.preference) };
    }
}

/// What was chosen for products.
#[derive(Default)]
pub(crate) struct Choices {
    of: HashMap<Key, Choice>,
    /// Those that were measured by this process.
    measured: Vec<(Gemm, Choice)>,
    /// The workspace of all that were asked for.
    taken: Vec<(Gemm, u64)>,
    /// Where the library was timed against our kernel for Hopper GPUs.
    pub(crate) hopper: HopperChoices,
}

impl Choices {
    /// The workspace with which a product takes no more than any of more samples, operands and workspace together.
    fn limit(&self, gemm: &Gemm) -> u64 {
        let more =
            self.taken.iter().filter(|(other, _)| gemm.samples_over(other).is_some_and(|over| over < 1.0));
        let room = more.map(|(other, workspace)| {
            (other.operand_bytes() + workspace).saturating_sub(gemm.operand_bytes()) / ALIGNMENT * ALIGNMENT
        });
        room.min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_more_or_fewer_samples_are_alike() {
        let forward = Gemm::dense(1000, 768, 3072, DType::BF16);
        assert_eq!(forward.unlike(&Gemm { m: 1250, ..forward }), Some(1.25));
        assert_eq!(forward.unlike(&Gemm { m: 4000, ..forward }), None, "far more samples");
        assert_eq!(forward.unlike(&Gemm { k: 2304, a: [2304, 1, 0], ..forward }), None, "another weight");
        let gradient = Gemm { m: 3072, k: 1000, a: [1, 3072, 0], ..forward };
        assert_eq!(gradient.unlike(&Gemm { k: 1250, ..gradient }), Some(1.25));
        assert_eq!(gradient.unlike(&Gemm { m: 2304, a: [1, 2304, 0], ..gradient }), None, "another weight");

        // Fewer samples leave what their operands save for workspace, and more are not limited.
        let mut choices = Choices::default();
        choices.taken.extend([(forward, 4096), (gradient, 0)]);
        let saved = 100 * (3072 + 768) * 2;
        assert_eq!(choices.limit(&Gemm { m: 900, ..forward }), 4096 + saved);
        assert_eq!(choices.limit(&Gemm { k: 900, ..gradient }), saved);
        assert_eq!(choices.limit(&Gemm { m: 1100, ..forward }), u64::MAX);
        assert_eq!(choices.limit(&Gemm { n: 2304, c: [2304, 0], b: [2304, 1, 0], ..forward }), u64::MAX);
        choices.taken.push((Gemm { m: 950, ..forward }, 0));
        assert_eq!(choices.limit(&Gemm { m: 900, ..forward }), 50 * (3072 + 768) * 2, "the tightest counts");
    }

    #[test]
    fn matrices_are_named_by_the_distance_of_what_lies_apart() {
        let layout =
            |rows, columns, leading, transposed| Some(MatrixLayout { rows, columns, leading, transposed });
        assert_eq!(MatrixLayout::of(3, 5, [5, 1, 0]), layout(5, 3, 5, false));
        assert_eq!(MatrixLayout::of(3, 5, [8, 1, 0]), layout(5, 3, 8, false), "with a gap between rows");
        assert_eq!(MatrixLayout::of(3, 5, [1, 3, 0]), layout(3, 5, 3, true));
        assert_eq!(MatrixLayout::of(1, 5, [0, 1, 0]), layout(5, 1, 5, false), "one row has no distance");
        assert_eq!(MatrixLayout::of(5, 1, [1, 0, 0]), layout(5, 1, 5, true), "a vector is one column");
        assert_eq!(MatrixLayout::of(5, 1, [7, 1, 0]), layout(1, 5, 7, false), "a column of a larger matrix");
        assert_eq!(MatrixLayout::of(1, 5, [1, 7, 0]), layout(1, 5, 7, true));
        assert_eq!(MatrixLayout::of(3, 5, [0, 1, 0]), None, "rows that are repeated");
        assert_eq!(MatrixLayout::of(3, 5, [2, 1, 0]), None, "rows that overlap");
        assert_eq!(MatrixLayout::of(3, 5, [10, 2, 0]), None, "every other element");
    }

    #[test]
    fn a_choice_is_read_back_as_it_was_kept() {
        let choice = Choice { algorithm: [1, 2, 3, 4, 5, 6, 7, u64::MAX], workspace: 4096 };
        assert_eq!(Choice::from_bytes(&choice.to_bytes()), Some(choice));
        assert_eq!(Choice::from_bytes(&choice.to_bytes()[1..]), None);
        assert_eq!(Choice::from_bytes(&[0xff; 72]), None, "no product needs so much workspace");
    }
}

//! Functions of elements, applied to tiles.
//!
//! A tile is worked on in chunks of [`CHUNK`] elements, a constant, so that the compiler turns each chunk into
//! straight vector code. An operand that is the same for all elements is kept as one chunk of copies, which
//! every chunk of the tile reads again.

use crate::simd::Function;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// Elements that are worked on at once.
pub(super) const CHUNK: usize = 64;

/// Where the elements of an operand are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The first.
    pub(super) address: *mut u8,
    /// How many elements further the next chunk is: [`CHUNK`], or 0 for one chunk of copies.
    pub(super) step: usize,
}

/// What a map works on.
pub(super) struct MapArgs {
    /// Where results go; they overlap no operand.
    pub(super) out: *mut u8,
    pub(super) operands: [Place; 3],
    pub(super) count: usize,
}

/// A function of one element.
pub(super) trait Map1 {
    type In: Copy + Default;
    type Out: Copy + Default;

    fn apply(x: Self::In) -> Self::Out;
}

/// A function of two elements of one kind.
pub(super) trait Map2 {
    type In: Copy + Default;
    type Out: Copy + Default;

    fn apply(a: Self::In, b: Self::In) -> Self::Out;
}

/// The kernel of a [`Map1`].
pub(super) struct One<M>(PhantomData<M>);
/// The kernel of a [`Map2`].
pub(super) struct Two<M>(PhantomData<M>);
/// The kernel that chooses by a byte that is 0 or 1.
pub(super) struct Choose<T>(PhantomData<T>);

impl<M: Map1> Function for One<M> {
    type Args = MapArgs;

    #[inline(always)]
    unsafe fn call(args: &MapArgs) {
        #[inline(always)]
        fn chunk<M: Map1>(x: &[M::In; CHUNK], out: &mut [M::Out; CHUNK]) {
            for i in 0..CHUNK {
                out[i] = M::apply(x[i]);
            }
        }
        let mut pad = MaybeUninit::uninit();
        let mut chunks = Chunks::new(args);
        while let Some((at, count, out)) = chunks.next() {
            // SAFETY: the caller vouches for the operands and the result.
            unsafe {
                let x = source(&args.operands[0], at, count, &mut pad);
                chunk::<M>(&*x, &mut *out);
            }
        }
    }
}

impl<M: Map2> Function for Two<M> {
    type Args = MapArgs;

    #[inline(always)]
    unsafe fn call(args: &MapArgs) {
        #[inline(always)]
        fn chunk<M: Map2>(a: &[M::In; CHUNK], b: &[M::In; CHUNK], out: &mut [M::Out; CHUNK]) {
            for i in 0..CHUNK {
                out[i] = M::apply(a[i], b[i]);
            }
        }
        let mut pads = [MaybeUninit::uninit(), MaybeUninit::uninit()];
        let mut chunks = Chunks::new(args);
        while let Some((at, count, out)) = chunks.next() {
            // SAFETY: as for one operand.
            unsafe {
                let a = source(&args.operands[0], at, count, &mut pads[0]);
                let b = source(&args.operands[1], at, count, &mut pads[1]);
                chunk::<M>(&*a, &*b, &mut *out);
            }
        }
    }
}

/// Elements as bits, to choose between.
pub(super) trait Bits: Copy + Default {
    /// `a` if `condition` is not 0, else `b`, by arithmetic: of a branch the compiler makes a load of the one that is chosen,
    /// which is a gather.
    fn choose(condition: u8, a: Self, b: Self) -> Self;
}

macro_rules! bits {
    ($($t:ident)*) => {
        $(impl Bits for $t {
            #[inline(always)]
            fn choose(condition: u8, a: Self, b: Self) -> Self {
                let mask = $t::from(condition != 0).wrapping_neg();
                b ^ ((a ^ b) & mask)
            }
        })*
    };
}

bits! { u8 i32 i64 }

impl<T: Bits> Function for Choose<T> {
    type Args = MapArgs;

    #[inline(always)]
    unsafe fn call(args: &MapArgs) {
        #[inline(always)]
        fn chunk<T: Bits>(c: &[u8; CHUNK], a: &[T; CHUNK], b: &[T; CHUNK], out: &mut [T; CHUNK]) {
            for i in 0..CHUNK {
                out[i] = T::choose(c[i], a[i], b[i]);
            }
        }
        let mut condition = MaybeUninit::uninit();
        let mut pads = [MaybeUninit::uninit(), MaybeUninit::uninit()];
        let mut chunks = Chunks::new(args);
        while let Some((at, count, out)) = chunks.next() {
            // SAFETY: as for one operand.
            unsafe {
                let c = source(&args.operands[0], at, count, &mut condition);
                let a = source(&args.operands[1], at, count, &mut pads[0]);
                let b = source(&args.operands[2], at, count, &mut pads[1]);
                chunk::<T>(&*c, &*a, &*b, &mut *out);
            }
        }
    }
}

/// A walk over the chunks of a result. It is no iterator, since iterators want closures, and closures are not
/// always inlined.
struct Chunks<'a, T> {
    args: &'a MapArgs,
    next: usize,
    pad: MaybeUninit<[T; CHUNK]>,
}

impl<'a, T: Copy> Chunks<'a, T> {
    #[inline(always)]
    fn new(args: &'a MapArgs) -> Self {
        Chunks { args, next: 0, pad: MaybeUninit::uninit() }
    }

    /// The next chunk: the position of its first element, the count of elements from there to the end, and
    /// where its results go, all of which must be written before the next call. Results beyond the count go
    /// nowhere.
    #[inline(always)]
    fn next(&mut self) -> Option<(usize, usize, *mut [T; CHUNK])> {
        let (at, count) = (self.next, self.args.count);
        // SAFETY: the caller of the kernel vouches for `count` results; the pad was written as the chunk before
        // if that was not whole.
        unsafe {
            let target = self.args.out.cast::<T>();
            if at > count {
                let last = at - CHUNK;
                std::ptr::copy_nonoverlapping(self.pad.as_ptr().cast(), target.add(last), count - last);
            }
            if at >= count {
                return None;
            }
            self.next = at + CHUNK;
            let whole = count - at >= CHUNK;
            let out = if whole { target.add(at).cast() } else { self.pad.as_mut_ptr() };
            Some((at, count - at, out))
        }
    }
}

/// The chunk of an operand from element `at` on. If only `count` elements are left, fewer than a chunk, they
/// are brought to `pad`, so that nothing behind them is touched.
#[inline(always)]
unsafe fn source<T: Copy + Default>(
    place: &Place,
    at: usize,
    count: usize,
    pad: &mut MaybeUninit<[T; CHUNK]>,
) -> *const [T; CHUNK] {
    // SAFETY: the caller vouches for the elements.
    unsafe {
        let first = place.address.cast_const().cast::<T>().add(at / CHUNK * place.step);
        if count >= CHUNK {
            return first.cast();
        }
        let pad = pad.write([T::default(); CHUNK]);
        std::ptr::copy_nonoverlapping(first, pad.as_mut_ptr(), count);
        pad
    }
}

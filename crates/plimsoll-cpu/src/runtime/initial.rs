//! First weights, drawn on all threads.
//!
//! A model has millions of weights, and drawing them one by one takes longer than training on the first batch. Here
//! are threads and vector instructions; the numbers are those of [`random`], whoever draws them.

use crate::runtime::device::CpuDevice;
use crate::simd::{Function, Isa};
use plimsoll_graph::random;
use plimsoll_graph::step::Initial;
use std::sync::{Mutex, PoisonError};

/// The elements that a thread draws at a time.
const PART: usize = 1 << 14;

impl CpuDevice {
    /// Gives a piece of a state, from its element `first` on, its first values: `f32`, each a function of seed, stream and
    /// position alone, and none of the number of threads. The piece must be zeros, so that memory which shall stay zeros
    /// need not be touched.
    pub fn initialize(&self, initial: Initial, seed: u64, stream: u64, first: u64, piece: &mut [u8]) {
        let isa = Isa::detect();
        self.in_parts(piece, &|at, part| fill(isa, initial, seed, stream, first + at, part));
    }

    /// Calls `fill` with each part of a state and the position of its first element, on all threads.
    fn in_parts(&self, state: &mut [u8], fill: &(dyn Fn(u64, &mut [[u8; 4]]) + Sync)) {
        let parts: Vec<_> = state.as_chunks_mut().0.chunks_mut(PART).map(Mutex::new).collect();
        self.pool.run(parts.len(), &|_, index| {
            let mut part = parts[index].lock().unwrap_or_else(PoisonError::into_inner);
            fill((index * PART) as u64, &mut part);
        });
    }
}

/// Writes the first values of the elements from position `first` on over zeros.
fn fill(isa: Isa, initial: Initial, seed: u64, stream: u64, first: u64, out: &mut [[u8; 4]]) {
    let (kernel, scale) = match initial {
        Initial::Uniform { limit } => (isa.compiled::<Uniform>(), limit),
        Initial::Normal { deviation } => (isa.compiled::<Normal>(), deviation),
        Initial::Constant(value) if (value as f32).to_bits() != 0 => {
            return out.fill((value as f32).to_ne_bytes());
        }
        Initial::Constant(_) | Initial::Seed => return,
    };
    let args = Args { out: out.as_mut_ptr().cast(), count: out.len(), first, seed, stream, scale };
    // SAFETY: there are `count` elements at `out`, borrowed mutably, and the machine has the instruction set.
    unsafe { kernel(&args) }
}

/// What first values are made from.
struct Args {
    /// Where they go, at any alignment.
    out: *mut f32,
    count: usize,
    /// The position of the first.
    first: u64,
    seed: u64,
    stream: u64,
    scale: f64,
}

impl Args {
    /// The words of the element at an index.
    #[inline(always)]
    fn words(&self, index: usize) -> [u32; 4] {
        random::block(self.seed, 0, self.stream, self.first.wrapping_add(index as u64))
    }

    /// # Safety
    /// The index must be below the count, and the memory there.
    #[inline(always)]
    unsafe fn write(&self, index: usize, value: f64) {
        // SAFETY: the caller vouches for the index.
        unsafe { self.out.add(index).write_unaligned(value as f32) };
    }
}

/// Numbers evenly distributed in ± the scale.
struct Uniform;

impl Function for Uniform {
    type Args = Args;

    #[inline(always)]
    unsafe fn call(args: &Args) {
        for index in 0..args.count {
            let value = (2.0 * f64::from(random::uniform32(args.words(index))) - 1.0) * args.scale;
            // SAFETY: the caller vouches for `count` elements.
            unsafe { args.write(index, value) };
        }
    }
}

/// Normal numbers with the scale as their deviation.
struct Normal;

impl Function for Normal {
    type Args = Args;

    #[inline(always)]
    unsafe fn call(args: &Args) {
        for index in 0..args.count {
            // SAFETY: the caller vouches for `count` elements.
            unsafe { args.write(index, random::normal(args.words(index)) * args.scale) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The first value of one element, by the formulas.
    fn expected(initial: Initial, seed: u64, stream: u64, position: u64) -> f32 {
        let block = random::block(seed, 0, stream, position);
        let value = match initial {
            Initial::Constant(value) => value,
            Initial::Uniform { limit } => (2.0 * f64::from(random::uniform32(block)) - 1.0) * limit,
            Initial::Normal { deviation } => random::normal(block) * deviation,
            Initial::Seed => 0.0,
        };
        value as f32
    }

    fn any_initial() -> impl Strategy<Value = Initial> {
        prop_oneof![
            prop::sample::select(vec![0.0, -0.0, 1.0, 0.3]).prop_map(Initial::Constant),
            (0.001..10.0).prop_map(|limit| Initial::Uniform { limit }),
            (0.001..10.0).prop_map(|deviation| Initial::Normal { deviation }),
            Just(Initial::Seed),
        ]
    }

    /// Positions anywhere, and often where their upper half begins to count.
    fn any_position() -> impl Strategy<Value = u64> {
        prop_oneof![any::<u64>(), (u64::from(u32::MAX) - 300)..u64::from(u32::MAX)]
    }

    proptest! {
        #[test]
        fn every_instruction_set_draws_the_numbers_of_the_formulas(
            initial in any_initial(),
            seed: u64,
            stream: u64,
            first in any_position(),
            count in 0usize..400,
        ) {
            for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                let mut out = vec![[0; 4]; count];
                fill(isa, initial, seed, stream, first, &mut out);
                for (index, bytes) in out.into_iter().enumerate() {
                    let expected = expected(initial, seed, stream, first.wrapping_add(index as u64));
                    prop_assert_eq!(f32::from_ne_bytes(bytes).to_bits(), expected.to_bits(), "{:?} {}", isa, index);
                }
            }
        }
    }

    #[test]
    fn the_number_of_threads_and_the_alignment_do_not_show_in_a_state() {
        let initial = Initial::Normal { deviation: 0.02 };
        let elements = 3 * PART + 5;
        for threads in [1, 3] {
            let device = CpuDevice::new(Some(threads)).unwrap();
            let mut bytes = vec![0; 4 * elements + 1];
            device.initialize(initial, 5, 7, 0, &mut bytes[1..]);
            for (index, bytes) in bytes[1..].as_chunks().0.iter().enumerate() {
                assert_eq!(f32::from_ne_bytes(*bytes), expected(initial, 5, 7, index as u64), "{index}");
            }
        }
    }
}

//! Writing what the host will not read again.
//!
//! The inputs of a step are written once and then copied to the device by its own engine. Were they written to the
//! processor's caches, that engine would have to fetch each line from the core that wrote it, at half the speed of the
//! bus, and the next run's inputs would first take the lines back.

/// Copies bytes to memory that the device copies from, with non-temporal stores where the processor has them.
///
/// # Panics
/// If the two are not of one length.
pub fn write_nontemporal(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "bytes are copied to as many");
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
        const WIDTH: usize = size_of::<__m128i>();
        let before = to.as_ptr().align_offset(WIDTH).min(to.len());
        let (first, to) = to.split_at_mut(before);
        let (first_from, from) = from.split_at(before);
        first.copy_from_slice(first_from);
        let (blocks, rest) = to.as_chunks_mut::<WIDTH>();
        let (blocks_from, rest_from) = from.as_chunks::<WIDTH>();
        for (to, from) in blocks.iter_mut().zip(blocks_from) {
            // SAFETY: both are of 16 bytes, what is written to is aligned to as many, and every processor of this
            // architecture has these instructions.
            unsafe { _mm_stream_si128(to.as_mut_ptr().cast(), _mm_loadu_si128(from.as_ptr().cast())) };
        }
        rest.copy_from_slice(rest_from);
        // Non-temporal stores are ordered before what this thread says next: that it is there.
        // SAFETY: as above.
        unsafe { _mm_sfence() };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    to.copy_from_slice(from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_arrive_whatever_their_alignment_and_no_others_are_touched() {
        let from: Vec<u8> = (0..300).map(|i| (i * 7 % 251) as u8).collect();
        for (start, bytes) in
            (0..20).flat_map(|start| [0, 1, 15, 16, 17, 64, 200].map(|bytes| (start, bytes)))
        {
            let mut to = vec![0xee; 300];
            write_nontemporal(&mut to[start..start + bytes], &from[start / 2..][..bytes]);
            assert_eq!(to[start..start + bytes], from[start / 2..][..bytes]);
            assert!(to[..start].iter().chain(&to[start + bytes..]).all(|&byte| byte == 0xee));
        }
    }
}

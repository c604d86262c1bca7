//! Memory that shows misuse.

use crate::runtime::ALIGNMENT;

/// What memory holds before it is written: NaN, in every float type.
const POISON: u8 = 0xff;
/// What lies before and behind it, and must not change.
const CANARY: u8 = 0xa5;
/// The bytes of a guard.
const GUARD: usize = 4 * ALIGNMENT;

/// Aligned memory of an exact size between guards, which are checked when it is dropped.
pub(crate) struct Guarded {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Guarded {
    /// Memory that has not been written.
    pub(crate) fn new(len: usize) -> Self {
        let mut memory = vec![CANARY; len + ALIGNMENT + 2 * GUARD];
        let start = GUARD + memory.as_ptr().align_offset(ALIGNMENT);
        memory[start..start + len].fill(POISON);
        Self { memory, start, len }
    }

    /// Memory of this content.
    pub(crate) fn of(content: &[u8]) -> Self {
        let mut guarded = Self::new(content.len());
        guarded.bytes_mut().copy_from_slice(content);
        guarded
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..][..self.len]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.len]
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let mut outside = self.memory[..self.start].iter().chain(&self.memory[self.start + self.len..]);
            assert!(outside.all(|&byte| byte == CANARY), "a kernel wrote out of bounds");
        }
    }
}

//! What the memories of all devices keep alike: the programs that are loaded, and states that are gone through in pieces.

use crate::device::{Handle, PIECE_BYTES};
use crate::error::{Error, ErrorKind, Result};

/// Programs by their handles. One that is let go of leaves a gap, which the next to be loaded fills.
#[derive(Debug)]
pub struct LoadedPrograms<T> {
    slots: Vec<Option<T>>,
}

impl<T> Default for LoadedPrograms<T> {
    fn default() -> Self {
        LoadedPrograms { slots: vec![] }
    }
}

impl<T> LoadedPrograms<T> {
    /// Keeps a program.
    pub fn insert(&mut self, program: T) -> Handle {
        let slot = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[slot] = Some(program);
        Handle(slot)
    }

    /// Lets go of a program, if it is there.
    pub fn remove(&mut self, program: Handle) {
        if let Some(slot) = self.slots.get_mut(program.0) {
            *slot = None;
        }
    }

    /// A program.
    ///
    /// # Errors
    /// If it is not loaded.
    pub fn get(&self, program: Handle) -> Result<&T> {
        self.slots.get(program.0).and_then(Option::as_ref).ok_or_else(not_loaded)
    }

    /// A program, to be run.
    ///
    /// # Errors
    /// If it is not loaded.
    pub fn get_mut(&mut self, program: Handle) -> Result<&mut T> {
        self.slots.get_mut(program.0).and_then(Option::as_mut).ok_or_else(not_loaded)
    }
}

fn not_loaded() -> Error {
    Error::new(ErrorKind::InvalidPlan, "a program that is not loaded")
}

/// Goes through so many bytes in pieces of at most [`PIECE_BYTES`]: `each` is given where a piece begins, and zeros of its
/// length.
///
/// # Errors
/// The first of `each`.
pub fn in_pieces(bytes: usize, mut each: impl FnMut(usize, &mut [u8]) -> Result<()>) -> Result<()> {
    let mut room = vec![0; bytes.min(PIECE_BYTES)];
    for first in (0..bytes).step_by(PIECE_BYTES) {
        let piece = &mut room[..PIECE_BYTES.min(bytes - first)];
        piece.fill(0);
        each(first, piece)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_was_let_go_of_is_not_found_and_its_place_is_taken_again() {
        let mut loaded = LoadedPrograms::default();
        let [first, second] = ["first", "second"].map(|program| loaded.insert(program));
        loaded.remove(first);
        assert_eq!(loaded.get(first).unwrap_err().kind(), ErrorKind::InvalidPlan);
        assert_eq!((loaded.insert("third"), loaded.insert("fourth")), (first, Handle(2)));
        assert_eq!(loaded.get(second).unwrap(), &"second");
        assert!(loaded.get_mut(Handle(3)).is_err());
    }

    #[test]
    fn pieces_are_all_bytes_in_their_order_and_begin_as_zeros() {
        for bytes in [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES + 7] {
            let mut seen = 0;
            in_pieces(bytes, |first, piece| {
                assert_eq!(first, seen);
                assert!(piece.iter().all(|&byte| byte == 0) && piece.len() <= PIECE_BYTES);
                piece.fill(1);
                seen += piece.len();
                Ok(())
            })
            .unwrap();
            assert_eq!(seen, bytes);
        }
    }
}

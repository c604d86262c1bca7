//! Lists of launches or instances, nearly all of which are short.
//!
//! A search copies schedules as often as it tries something. Short lists lie where they are used, so that copying them is
//! copying memory; the few long ones are shared between copies until they are edited.

use std::ops::Deref;
use std::sync::Arc;

/// How many numbers are kept in place.
const FEW: usize = 7;

/// A list of numbers.
#[derive(Debug, Clone)]
pub(crate) struct List(Held);

#[derive(Debug, Clone)]
enum Held {
    Few(u8, [u32; FEW]),
    Many(Arc<[u32]>),
}

impl Default for List {
    fn default() -> List {
        List(Held::Few(0, [0; FEW]))
    }
}

impl Deref for List {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        match &self.0 {
            Held::Few(len, numbers) => &numbers[..usize::from(*len)],
            Held::Many(numbers) => numbers,
        }
    }
}

impl From<&[u32]> for List {
    fn from(numbers: &[u32]) -> List {
        if numbers.len() > FEW {
            return List(Held::Many(numbers.into()));
        }
        let mut few = [0; FEW];
        few[..numbers.len()].copy_from_slice(numbers);
        List(Held::Few(numbers.len() as u8, few))
    }
}

impl From<Vec<u32>> for List {
    fn from(numbers: Vec<u32>) -> List {
        numbers.as_slice().into()
    }
}

impl List {
    /// Changes the list.
    pub(crate) fn edit(&mut self, change: impl FnOnce(&mut Vec<u32>)) {
        let mut numbers = self.to_vec();
        change(&mut numbers);
        *self = numbers.into();
    }

    /// Puts another number wherever one is.
    pub(crate) fn replace(&mut self, from: u32, to: u32) {
        let replace = |numbers: &mut [u32]| {
            numbers.iter_mut().filter(|number| **number == from).for_each(|number| *number = to);
        };
        match &mut self.0 {
            Held::Few(len, numbers) => replace(&mut numbers[..usize::from(*len)]),
            Held::Many(numbers) if numbers.contains(&from) => {
                let mut changed = numbers.to_vec();
                replace(&mut changed);
                *numbers = changed.into();
            }
            Held::Many(_) => {}
        }
    }
}

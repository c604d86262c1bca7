//! Launches in an order: which comes before and after each.
//!
//! A search inserts and removes thousands, and copies the order as often as it tries something: a list of neighbours is edited
//! in no time and copied as fast as memory is.

use crate::schedule::LaunchId;

/// No launch: before the first and after the last.
const NONE: LaunchId = LaunchId::MAX;

/// A launch that is not in the order.
const ABSENT: [LaunchId; 2] = [LaunchId::MAX - 1; 2];

/// Launches, each with the one before it and the one after it.
#[derive(Debug, Clone)]
pub(super) struct Neighbours {
    of: Vec<[LaunchId; 2]>,
    first: LaunchId,
    last: LaunchId,
    len: usize,
}

impl Default for Neighbours {
    fn default() -> Self {
        Neighbours { of: vec![], first: NONE, last: NONE, len: 0 }
    }
}

impl Neighbours {
    /// How many launches there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The launches, one after the other.
    pub(super) fn iter(&self) -> impl Iterator<Item = LaunchId> {
        let some = |launch: LaunchId| (launch != NONE).then_some(launch);
        std::iter::successors(some(self.first), move |&launch| some(self.of[launch as usize][1]))
    }

    /// Whether a launch is among them.
    pub(super) fn contains(&self, launch: LaunchId) -> bool {
        self.of.get(launch as usize).is_some_and(|of| *of != ABSENT)
    }

    /// The launch right before one.
    pub(super) fn before(&self, launch: LaunchId) -> Option<LaunchId> {
        Some(self.of[launch as usize][0]).filter(|&before| before != NONE)
    }

    /// The launch right after one.
    pub(super) fn after(&self, launch: LaunchId) -> Option<LaunchId> {
        Some(self.of[launch as usize][1]).filter(|&after| after != NONE)
    }

    /// Inserts a launch that is not there before another, or at the end.
    pub(super) fn insert(&mut self, launch: LaunchId, next: Option<LaunchId>) {
        if self.of.len() <= launch as usize {
            self.of.resize(launch as usize + 1, ABSENT);
        }
        let next = next.unwrap_or(NONE);
        let before = if next == NONE { self.last } else { self.of[next as usize][0] };
        self.of[launch as usize] = [before, next];
        self.set_after(before, launch);
        self.set_before(next, launch);
        self.len += 1;
    }

    /// Removes a launch, if it is there.
    pub(super) fn remove(&mut self, launch: LaunchId) {
        if self.contains(launch) {
            let [before, after] = std::mem::replace(&mut self.of[launch as usize], ABSENT);
            self.set_after(before, after);
            self.set_before(after, before);
            self.len -= 1;
        }
    }

    /// Puts the launches into another order: each where it is named last.
    pub(super) fn arrange(&mut self, order: &[LaunchId]) {
        let launches = self.of.len();
        *self = Neighbours { of: vec![ABSENT; launches], ..Neighbours::default() };
        let mut next = None;
        for &launch in order.iter().rev() {
            if !self.contains(launch) {
                self.insert(launch, next);
                next = Some(launch);
            }
        }
    }

    fn set_after(&mut self, launch: LaunchId, after: LaunchId) {
        match launch {
            NONE => self.first = after,
            _ => self.of[launch as usize][1] = after,
        }
    }

    fn set_before(&mut self, launch: LaunchId, before: LaunchId) {
        match launch {
            NONE => self.last = before,
            _ => self.of[launch as usize][0] = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn edits_and_questions_agree_with_a_plain_list(
            edits in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..40),
            turn in 0usize..40,
        ) {
            let (mut neighbours, mut list) = (Neighbours::default(), vec![]);
            for (launch, (inserts, index)) in (0..).zip(edits) {
                if inserts || list.is_empty() {
                    let at = index.index(list.len() + 1);
                    neighbours.insert(launch, list.get(at).copied());
                    list.insert(at, launch);
                } else {
                    neighbours.remove(list.remove(index.index(list.len())));
                }
            }
            prop_assert_eq!(neighbours.iter().collect::<Vec<_>>(), &list[..]);
            let turn = turn % list.len().max(1);
            list.rotate_left(turn);
            neighbours.arrange(&list);
            prop_assert_eq!(neighbours.iter().collect::<Vec<_>>(), &list[..]);
            prop_assert_eq!(neighbours.len(), list.len());
            for (at, &launch) in list.iter().enumerate() {
                prop_assert!(neighbours.contains(launch));
                prop_assert_eq!(neighbours.before(launch), at.checked_sub(1).map(|at| list[at]));
                prop_assert_eq!(neighbours.after(launch), list.get(at + 1).copied());
            }
        }
    }
}

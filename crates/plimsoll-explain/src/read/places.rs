//! Owners as they are read: told once for all devices of a file, and within the budget.
//!
//! A name of kilobytes in a file may be the name of a million places, so what counts is what keeping a place takes,
//! not what it took in the file.

use super::budget::Budget;
use plimsoll_memory::{Frame, OwnerId, Owners};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// What a place takes, and what a frame does beside its two texts, which are kept twice; with the columns and names
/// that a page has of each.
const PLACE: u64 = 320;
/// What each frame above a place counts: its stack is walked again and again, which takes no memory but time.
const CALLER: u64 = 8;
const FRAME: u64 = 1024;

/// Owners under construction.
pub(super) struct Places {
    owners: Owners,
    /// How deep each place is.
    depths: Vec<u32>,
    /// Frames that were paid for.
    frames: HashSet<u64>,
    budget: Budget,
    full: bool,
}

impl Places {
    pub(super) fn new(budget: &Budget) -> Places {
        Places {
            owners: Owners::default(),
            depths: vec![0],
            frames: HashSet::new(),
            budget: budget.clone(),
            full: false,
        }
    }

    /// The owner that is `frame` called from `parent`; `parent` itself once there is no room for more.
    pub(super) fn child(&mut self, parent: OwnerId, frame: Frame) -> OwnerId {
        if self.full {
            return parent;
        }
        let before = self.owners.count();
        let owner = self.owners.child(parent, frame);
        if self.owners.count() > before {
            let depth = self.depths.get(parent.0 as usize).map_or(1, |above| above.saturating_add(1));
            self.depths.push(depth);
            let mut bytes = PLACE + CALLER * u64::from(depth);
            if let Some(frame) = self.owners.frame(owner) {
                let mut hasher = DefaultHasher::new();
                frame.hash(&mut hasher);
                if self.frames.insert(hasher.finish()) {
                    bytes += FRAME + 2 * (frame.name.len() + frame.file.len()) as u64;
                }
            }
            // What goes over by this one place is told yet; the next is not.
            self.full = !self.budget.take(bytes);
        }
        owner
    }

    /// The owner that is called so and was called by nobody.
    pub(super) fn named(&mut self, name: String) -> OwnerId {
        self.child(OwnerId::UNKNOWN, Frame { name, ..Frame::default() })
    }

    pub(super) fn count(&self) -> usize {
        self.owners.count()
    }

    /// All owners, for all devices.
    pub(super) fn finish(self) -> Arc<Owners> {
        Arc::new(self.owners)
    }
}

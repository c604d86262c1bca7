//! Owners: who asked for memory. A call stack, a scope name or an op, each told once.
//!
//! A million requests come from a few hundred places, so places are kept in a tree from the outermost frame
//! inwards and a request holds a number. The tree is also what a flame graph draws.

use std::collections::HashMap;

/// A place in [`Owners`]: a frame and all that called it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerId(pub u32);

impl OwnerId {
    /// The root: nobody in particular.
    pub const UNKNOWN: OwnerId = OwnerId(0);
}

/// One place in a program: a function in a file, a scope of a model, or an op.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Frame {
    /// The function, scope or op.
    pub name: String,
    /// The source file, empty where there is none.
    pub file: String,
    /// The line in that file, 0 where there is none.
    pub line: u32,
}

/// All places that asked for memory, as a tree.
///
/// ```
/// use plimsoll_memory::{Frame, OwnerId, Owners};
/// let mut owners = Owners::default();
/// let main = owners.child(OwnerId::UNKNOWN, Frame { name: "main".into(), file: "train.py".into(), line: 32 });
/// let loss = owners.child(main, Frame { name: "loss".into(), file: "train.py".into(), line: 15 });
/// assert_eq!(owners.child(OwnerId::UNKNOWN, owners.frame(main).unwrap().clone()), main);
/// let names: Vec<_> = owners.stack(loss).map(|f| f.name.as_str()).collect();
/// assert_eq!(names, ["loss", "main"]); // innermost first
/// ```
#[derive(Debug, Clone, Default)]
pub struct Owners {
    frames: Vec<Frame>,
    frame_ids: HashMap<Frame, u32>,
    /// Parent and frame of each owner but the root, which has neither: owner `n` is entry `n - 1`.
    nodes: Vec<(OwnerId, u32)>,
    node_ids: HashMap<(OwnerId, u32), OwnerId>,
}

impl Owners {
    /// The owner that is `frame` called from `parent`; the same one each time.
    pub fn child(&mut self, parent: OwnerId, frame: Frame) -> OwnerId {
        let frame = match self.frame_ids.get(&frame) {
            Some(&id) => id,
            None => {
                let id = self.frames.len() as u32;
                self.frames.push(frame.clone());
                self.frame_ids.insert(frame, id);
                id
            }
        };
        let next = OwnerId(self.nodes.len() as u32 + 1);
        let id = *self.node_ids.entry((parent, frame)).or_insert(next);
        if id == next {
            self.nodes.push((parent, frame));
        }
        id
    }

    /// The innermost frame of an owner; `None` for the root.
    pub fn frame(&self, owner: OwnerId) -> Option<&Frame> {
        let &(_, frame) = self.nodes.get((owner.0 as usize).checked_sub(1)?)?;
        self.frames.get(frame as usize)
    }

    /// Who called an owner; the root for the root.
    pub fn parent(&self, owner: OwnerId) -> OwnerId {
        let node = (owner.0 as usize).checked_sub(1).and_then(|at| self.nodes.get(at));
        node.map_or(OwnerId::UNKNOWN, |&(parent, _)| parent)
    }

    /// The frames of an owner, innermost first.
    pub fn stack(&self, owner: OwnerId) -> impl Iterator<Item = &Frame> {
        let mut at = owner;
        std::iter::from_fn(move || {
            let frame = self.frame(at)?;
            at = self.parent(at);
            Some(frame)
        })
    }

    /// How many owners there are, the root counted: ids are below this.
    pub fn count(&self) -> usize {
        self.nodes.len() + 1
    }
}

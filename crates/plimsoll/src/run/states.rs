//! The states of a run: listing them, looking at them, and overwriting them.

use super::Run;
use crate::tensor_file::Described;
use crate::{Array, DType, Error, ErrorKind, Result};
use plimsoll_graph::program::Role;
use std::collections::HashMap;

/// A state of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct StateInfo {
    /// What it is called.
    pub name: String,
    /// Its extents.
    pub shape: Vec<usize>,
    /// Its element type.
    pub dtype: DType,
    /// Whether it is a parameter or a statistic, which models are made of; else it is an optimizer's, or counts something.
    pub of_model: bool,
    /// Whether an optimizer changes it.
    pub trainable: bool,
}

/// What [`Run::take_states_from`] did with each state, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TakenStates {
    /// Those that are now as they were there.
    pub taken: Vec<String>,
    /// Those that the other run does not have, and that stay as they were here.
    pub not_there: Vec<String>,
    /// Those that have another shape or type there, and that stay as they were here.
    pub of_other_type: Vec<String>,
}

impl Run {
    /// The states, in the order in which they were declared.
    pub fn states(&self) -> Vec<StateInfo> {
        let info = |(state, ty): &(plimsoll_graph::step::State, plimsoll_graph::ValueType)| StateInfo {
            name: state.name.to_string(),
            shape: ty.shape.to_vec(),
            dtype: ty.dtype,
            of_model: state.role == Role::Parameter,
            trainable: state.trainable,
        };
        self.fit.choice.table.iter().map(info).collect()
    }

    /// The present value of a state.
    ///
    /// # Errors
    /// If there is none of that name, or the device fails.
    pub fn state(&mut self, name: &str) -> Result<Array> {
        let index = self.find_state(name)?;
        self.finish()?;
        self.session()?.state(index)
    }

    /// Shows the bytes of a state, one piece after another, until `read` fails.
    pub(crate) fn show_state(&mut self, name: &str, read: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let index = self.find_state(name)?;
        self.finish()?;
        self.session()?.show_state(index, read)
    }

    /// The states that survive an update, by name: all but sums of gradients, which are zero between updates.
    pub(crate) fn lasting_states(&self) -> Vec<Described> {
        let lasting = self.fit.choice.table.iter().filter(|(state, _)| state.role != Role::Gradient);
        let mut states: Vec<Described> = lasting
            .map(|(state, ty)| Described {
                name: state.name.to_string(),
                dtype: ty.dtype,
                shape: ty.shape.to_vec(),
            })
            .collect();
        states.sort_by(|a, b| a.name.cmp(&b.name));
        states
    }

    /// Overwrites a state.
    ///
    /// # Errors
    /// If there is none of that name, shape and type, or the device fails.
    pub fn set_state(&mut self, name: &str, value: &Array) -> Result<()> {
        let index = self.find_state(name)?;
        if let Some((_, ty)) = self.fit.choice.table.iter().nth(index)
            && (ty.shape[..] != *value.shape() || ty.dtype != value.dtype())
        {
            let message = format!("`{name}` is {ty}, was given {value}");
            return Err(Error::new(ErrorKind::Shape, message));
        }
        let bytes = value.bytes();
        self.write_state(name, &mut |first, piece| {
            piece.copy_from_slice(&bytes[first..][..piece.len()]);
            Ok(())
        })
    }

    /// Overwrites a state: `write` is given one piece after another, and the byte of the state that it begins at, until it
    /// fails.
    pub(crate) fn write_state(
        &mut self,
        name: &str,
        write: &mut dyn FnMut(usize, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let index = self.find_state(name)?;
        self.finish()?;
        self.session()?.write_state(index, write)
    }

    /// Takes over all states of another run that have the same name, shape and type here: what was trained with some
    /// parameters frozen goes on with others.
    ///
    /// # Errors
    /// If a device fails.
    pub fn take_states_from(&mut self, other: &mut Run) -> Result<TakenStates> {
        let theirs: HashMap<String, StateInfo> =
            other.states().into_iter().map(|state| (state.name.clone(), state)).collect();
        let mut taken = TakenStates::default();
        for own in self.states() {
            match theirs.get(&own.name) {
                Some(known) if (&known.shape, known.dtype) == (&own.shape, own.dtype) => {
                    self.set_state(&own.name, &other.state(&own.name)?)?;
                    taken.taken.push(own.name);
                }
                Some(_) => taken.of_other_type.push(own.name),
                None => taken.not_there.push(own.name),
            }
        }
        Ok(taken)
    }

    fn find_state(&self, name: &str) -> Result<usize> {
        let table = &self.fit.choice.table;
        table.position(name).ok_or_else(|| {
            let known: Vec<&str> = table.iter().map(|(state, _)| &*state.name).take(8).collect();
            let message = format!("the run has no state `{name}`; it has {}, …", known.join(", "));
            Error::new(ErrorKind::Name, message)
        })
    }
}

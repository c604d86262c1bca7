//! Parameters that stay as they are: a run is told which by patterns of their names, before its steps are traced.
//!
//! A frozen parameter is a state that no optimizer trains, so that there is no gradient for it, no slot and no decay: neither
//! in a plan nor in its ledger. Where nothing that is trained comes before a layer, the backward pass ends there, and
//! activations die in the forward pass. Batch norms whose parameters are frozen run as in inference: by their running
//! statistics, which stay as they are too. Dropout goes on, as it has no parameters to tell its scope by.

use crate::spec::suggest::nearest;
use crate::{Error, ErrorKind, Result};
use plimsoll_graph::optimizer::Optimizer;
use plimsoll_graph::pattern::{self, Patterns};

/// Which parameters of a run stay as they are.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Frozen {
    /// These do.
    pub(crate) frozen: Patterns,
    /// If there are any, all but these do.
    pub(crate) trained: Patterns,
}

impl Frozen {
    /// Whether a parameter of that name stays as it is.
    pub(crate) fn has(&self, parameter: &str) -> bool {
        match self.trained.is_empty() {
            true => self.frozen.matches(parameter),
            false => !self.trained.matches(parameter),
        }
    }

    /// Refuses patterns that no parameter of a run matches: those of what is frozen, and those of optimizers' groups.
    pub(crate) fn check(&self, optimizers: &[Optimizer], parameters: &[&str]) -> Result<()> {
        if parameters.is_empty() {
            return Ok(());
        }
        check("what is frozen", &self.frozen, parameters)?;
        check("what is trained", &self.trained, parameters)?;
        for optimizer in optimizers {
            for group in optimizer.groups() {
                check(&format!("a group of the {optimizer}"), group.members(), parameters)?;
            }
        }
        Ok(())
    }
}

fn check(what: &str, patterns: &Patterns, parameters: &[&str]) -> Result<()> {
    let unmatched = |one: &&str| !parameters.iter().any(|parameter| pattern::matches(one, parameter));
    let Some(one) = patterns.iter().find(unmatched) else { return Ok(()) };
    // What could have been meant: parameters, their scopes, and all that end alike.
    let scopes =
        |name: &str| name.match_indices('/').map(|(at, _)| name[..at].to_string()).collect::<Vec<_>>();
    let ends = |name: &str| name.rsplit_once('/').map(|(_, last)| format!("*/{last}"));
    let known: Vec<String> = parameters
        .iter()
        .flat_map(|name| [name.to_string()].into_iter().chain(scopes(name)).chain(ends(name)))
        .collect();
    let hint = match nearest(known.iter().map(String::as_str), one) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("there are `{}`, …", parameters[..parameters.len().min(4)].join("`, `")),
    };
    let message = format!("`{one}` of {what} matches no parameter; {hint}");
    Err(Error::new(ErrorKind::Name, message))
}

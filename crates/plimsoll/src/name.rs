//! Choosing by name, as workload files do.

use crate::{Error, ErrorKind, Result};

/// The entry of `table` called `name`; otherwise an error that lists what there is.
pub(crate) fn find<T: Copy>(what: &str, table: &[(&str, T)], name: &str) -> Result<T> {
    let found = table.iter().find(|(known, _)| *known == name);
    found.map(|&(_, value)| value).ok_or_else(|| unknown(what, table.iter().map(|(known, _)| *known), name))
}

/// The error for a name that is not among those known.
pub(crate) fn unknown<'a>(what: &str, known: impl Iterator<Item = &'a str>, name: &str) -> Error {
    let known: Vec<&str> = known.collect();
    Error::new(ErrorKind::Name, format!("there is no {what} named `{name}`; there are: {}", known.join(", ")))
}

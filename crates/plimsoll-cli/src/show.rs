//! What several commands print alike.

use crate::Result;
use plimsoll::Spec;
use plimsoll_explain::Style;
use std::env;
use std::io::{self, IsTerminal, Write};

/// The workload's name, and what it is.
pub(crate) fn title(spec: &Spec, out: &mut dyn Write) -> Result {
    match spec.about() {
        "" => writeln!(out, "{}\n", spec.name())?,
        about => writeln!(out, "{}: {about}\n", spec.name())?,
    }
    Ok(())
}

/// Data for other programs.
pub(crate) fn json(value: &serde_json::Value, out: &mut dyn Write) -> Result {
    Ok(writeln!(out, "{value:#}")?)
}

/// How to write for whoever reads the standard output: colours only on a terminal that has not declined them
/// (`NO_COLOR`), as wide as the shell says (`COLUMNS`).
pub(crate) fn style() -> Style {
    let terminal = io::stdout().is_terminal();
    let declined = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || env::var_os("TERM").is_some_and(|kind| kind == "dumb");
    let columns = env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    Style { colour: terminal && !declined, width: columns.unwrap_or(Style::default().width).min(400) }
}

//! What several commands print alike.

use crate::Result;
use plimsoll::Spec;
use std::io::Write;

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

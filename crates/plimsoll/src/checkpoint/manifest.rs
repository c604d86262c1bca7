//! What a checkpoint says of itself: how far training had come, and what must be the same for it to go on.

use crate::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The manifest's file.
pub(super) const MANIFEST: &str = "manifest.json";

/// The version of checkpoints that this writes and reads.
const FORMAT: u32 = 1;

/// How far a run had come, and of what it was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// The version of the checkpoint's files.
    format: u32,
    /// The version of the program that wrote it.
    version: String,
    /// Steps done.
    pub(crate) step: u64,
    /// How many steps there were to be.
    pub(crate) steps: u64,
    /// Epochs done, and batches of the next: the position in the data.
    pub(crate) epoch: u64,
    /// Batches of that epoch that were seen.
    pub(crate) batch_in_epoch: u64,
    /// Where in the stages that make samples that is, in their numbers; nothing where samples are read by number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) data_position: Vec<u64>,
    /// Whether training had come to its end, by its last step or because it was stopped.
    pub(crate) finished: bool,
    /// The step whose metrics were the best, if that is looked at.
    pub(crate) best_step: Option<u64>,
    /// What must be the same for training to go on as if it had not stopped, by name.
    pub(crate) settings: BTreeMap<String, String>,
    /// What may be changed when training goes on, and is said then.
    pub(crate) changeable: BTreeMap<String, String>,
}

impl Manifest {
    /// A manifest of training that has done so many steps.
    pub(crate) fn new(step: u64, steps: u64, steps_per_epoch: u64) -> Manifest {
        Manifest {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").into(),
            step,
            steps,
            epoch: step / steps_per_epoch.max(1),
            batch_in_epoch: step % steps_per_epoch.max(1),
            data_position: vec![],
            finished: false,
            best_step: None,
            settings: BTreeMap::new(),
            changeable: BTreeMap::new(),
        }
    }

    /// Whether training had come to its end.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished || self.step >= self.steps
    }

    /// Refuses to go on with other settings, and returns what is said of those that may change.
    ///
    /// # Errors
    /// If a setting is another, with both.
    pub(crate) fn check(&self, now: &Manifest, path: &Path) -> Result<Vec<String>> {
        let differences = |before: &BTreeMap<String, String>, now: &BTreeMap<String, String>| {
            let names: std::collections::BTreeSet<&String> = before.keys().chain(now.keys()).collect();
            let show = |found: Option<&String>| found.map_or("not set".to_string(), Clone::clone);
            let pair = |name: &String| (show(before.get(name)), show(now.get(name)));
            let differing = names.into_iter().map(|name| (name, pair(name))).filter(|(_, (a, b))| a != b);
            differing.map(|(name, (a, b))| format!("{name} was {a} and is {b}")).collect::<Vec<String>>()
        };
        let wrong = differences(&self.settings, &now.settings);
        if !wrong.is_empty() {
            let message = format!(
                "training cannot go on from {}: {}; go on with what it was, or begin anew",
                path.display(),
                wrong.join(", ")
            );
            return Err(Error::new(ErrorKind::Argument, message));
        }
        Ok(differences(&self.changeable, &now.changeable))
    }

    pub(super) fn to_text(&self) -> Result<String> {
        let text = serde_json::to_string_pretty(self).map_err(|error| {
            Error::new(ErrorKind::File, format!("the manifest cannot be written: {error}")).caused_by(error)
        })?;
        Ok(text + "\n")
    }

    pub(super) fn parse(text: &str, path: &Path) -> Result<Manifest> {
        let wrong = |message: String| Error::new(ErrorKind::File, format!("{}: {message}", path.display()));
        let manifest: Manifest =
            serde_json::from_str(text).map_err(|error| wrong(format!("not a manifest: {error}")))?;
        if manifest.format != FORMAT {
            let message = format!(
                "a checkpoint of format {}, written by version {}; this program reads format {FORMAT}",
                manifest.format, manifest.version
            );
            return Err(wrong(message));
        }
        Ok(manifest)
    }
}

//! Weights of a file to begin with, and what files call them.

use crate::Result;
use plimsoll::Training;
use plimsoll::exchange::{LoadReport, Names, Partial};
use std::path::PathBuf;

/// Weights to begin with.
#[derive(clap::Args)]
pub(crate) struct Weights {
    /// Begin with the weights of a safetensors file
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    #[command(flatten)]
    names: NamesOfFile,
    /// Take what there is in the file, and draw all other weights
    #[arg(long, requires = "weights")]
    partial: bool,
}

/// What a file calls weights.
#[derive(clap::Args)]
pub(crate) struct NamesOfFile {
    /// What the file calls weights: plimsoll, torch, hf-gpt2, torchvision-resnet, hf-resnet, or a TOML or JSON file
    #[arg(long, value_name = "NAMES")]
    names: Option<String>,
    /// Parts of names that are others in the file, as in `dense*=layers.*`; may be given several times
    #[arg(long, value_name = "OURS=THEIRS", value_parser = pair)]
    rename: Vec<(String, String)>,
}

impl NamesOfFile {
    pub(crate) fn find(&self) -> plimsoll::Result<Names> {
        let names = self.names.as_deref().map_or_else(|| Ok(Names::plimsoll()), Names::find)?;
        self.rename.iter().try_fold(names, |names, (ours, theirs)| names.rename(ours, theirs))
    }

    /// Whether any were.
    pub(crate) fn is_given(&self) -> bool {
        self.names.is_some() || !self.rename.is_empty()
    }
}

fn pair(text: &str) -> std::result::Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(ours, theirs)| !ours.is_empty() && !theirs.is_empty());
    pair.map(|(ours, theirs)| (ours.into(), theirs.into()))
        .ok_or_else(|| "expected OURS=THEIRS, as in `head=fc`".into())
}

impl Weights {
    /// Puts the weights that were asked for into a training, and returns what there is to say of it.
    pub(crate) fn load(&self, training: &mut Training<'_>) -> Result<Option<LoadReport>> {
        let Some(path) = &self.weights else {
            if self.names.is_given() {
                return Err(
                    "--names and --rename are of the file that --weights gives, and there is none".into()
                );
            }
            return Ok(None);
        };
        let partial = if self.partial { Partial::Allowed } else { Partial::Refused };
        let report = training.load_weights(path, &self.names.find()?, partial);
        Ok(Some(report.map_err(|error| match self.partial {
            true => error.to_string(),
            false => error.to_string().replace("allow a partial load", "give --partial"),
        })?))
    }
}

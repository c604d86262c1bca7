//! The `[data]` of a workload: where samples come from.

use super::kept;
use super::read::{COUNT, Kind, SHAPE, TEXT, Table};
use crate::{Error, ErrorKind, Result};
use plimsoll_data::{Csv, Dataset, Synthetic, digits};
use std::path::{Path, PathBuf};

/// Where samples come from.
#[derive(Debug, Clone)]
pub(super) enum Data {
    /// The handwritten digits that are built in.
    Digits,
    /// Numbers from a file.
    Csv { path: PathBuf, delimiter: char, answer: Column },
    /// Random numbers.
    Synthetic { samples: usize, features: Vec<usize>, answer: Answer },
    /// Random tokens, and for each the one that follows.
    SyntheticTokens { samples: usize, length: usize, vocabulary: usize },
}

/// The column of a file that is to be predicted.
#[derive(Debug, Clone)]
pub(super) enum Column {
    Label { name: String, classes: usize },
    Target { name: String },
}

/// What random features are to be answered with.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    Classes(usize),
    Target(Vec<usize>),
}

/// All runs hold out the same samples and see the same random ones, whatever their seed, so that they can be
/// compared.
const SEED: u64 = 0;

const DELIMITER: Kind<char> = Kind {
    expected: "one character in quotes, such as \";\"",
    read: |v| v.as_str().filter(|text| text.chars().count() == 1)?.chars().next(),
};

impl Data {
    /// Reads the section. Paths in it are relative to `folder`.
    pub(super) fn read(table: &Table<'_>, folder: &Path) -> Result<Data> {
        let read = table.need_choice(
            "kind",
            &[
                ("digits", read_digits as fn(&Table<'_>, &Path) -> Result<Data>),
                ("csv", read_csv),
                ("synthetic", read_synthetic),
                ("synthetic-tokens", read_tokens),
            ],
        )?;
        read(table, folder)
    }

    /// Whether what is to be predicted are classes, as opposed to numbers.
    pub(super) fn has_classes(&self) -> bool {
        !matches!(
            self,
            Data::Csv { answer: Column::Target { .. }, .. }
                | Data::Synthetic { answer: Answer::Target(_), .. }
        )
    }

    /// Whether what is to be predicted is a single number per sample, without an axis.
    pub(super) fn has_scalar_target(&self) -> bool {
        matches!(self, Data::Csv { answer: Column::Target { .. }, .. })
    }

    /// How many different tokens there are, if samples are tokens.
    pub(super) fn vocabulary(&self) -> Option<usize> {
        match self {
            Data::SyntheticTokens { vocabulary, .. } => Some(*vocabulary),
            _ => None,
        }
    }

    /// How many tokens a sample has, if samples are tokens.
    pub(super) fn length(&self) -> Option<usize> {
        match self {
            Data::SyntheticTokens { length, .. } => Some(*length),
            _ => None,
        }
    }

    /// The samples to train on, and those held out if a fraction is.
    pub(super) fn load(&self, held_out: Option<f64>) -> Result<(Dataset, Option<Dataset>)> {
        let load = || -> plimsoll_data::Result<(Dataset, Option<Dataset>)> {
            let all = self.samples()?;
            match held_out {
                None => Ok((all, None)),
                Some(fraction) => {
                    let split = all.split(1.0 - fraction, SEED)?;
                    Ok((split.train, Some(split.held_out)))
                }
            }
        };
        load().map_err(|error| {
            let mut message = error.to_string();
            if let Data::Csv { path, .. } = self {
                let file = path.display().to_string();
                if !message.contains(&file) {
                    message = format!("{file}: {message}");
                }
            }
            Error::new(ErrorKind::Data, message).caused_by(error)
        })
    }

    fn samples(&self) -> plimsoll_data::Result<Dataset> {
        match self {
            Data::Digits => Dataset::new(digits()),
            Data::Csv { path, delimiter, answer: Column::Label { name, classes } } => {
                let data = Dataset::new(Csv::label(name).delimiter(*delimiter).open(path)?)?;
                data.check_labels("label", *classes)?;
                Ok(data)
            }
            Data::Csv { path, delimiter, answer: Column::Target { name } } => {
                Dataset::new(Csv::target(name).delimiter(*delimiter).open(path)?)
            }
            Data::Synthetic { samples, features, answer } => {
                let data = Synthetic::new(*samples, SEED).normal("features", features)?;
                kept::dataset(match answer {
                    Answer::Classes(classes) => data.classes("label", *classes)?,
                    Answer::Target(shape) => data.normal("target", shape)?,
                })
            }
            Data::SyntheticTokens { samples, length, vocabulary } => kept::dataset(
                Synthetic::new(*samples, SEED).tokens("tokens", "next", *length, *vocabulary)?,
            ),
        }
    }
}

fn read_digits(table: &Table<'_>, _: &Path) -> Result<Data> {
    table.only(&["kind"])?;
    Ok(Data::Digits)
}

fn read_csv(table: &Table<'_>, folder: &Path) -> Result<Data> {
    table.only(&["kind", "path", "label", "classes", "target", "delimiter"])?;
    let path = folder.join(table.need("path", TEXT)?);
    let delimiter = table.find_or("delimiter", DELIMITER, ',')?;
    let answer = match (table.find("label", TEXT)?, table.find("target", TEXT)?) {
        (Some(name), None) => Column::Label { name, classes: table.need("classes", COUNT)? },
        (None, Some(name)) => match table.value("classes") {
            None => Column::Target { name },
            Some(classes) => {
                return Err(classes.error("`classes` are those of a `label`; a `target` has none"));
            }
        },
        _ => {
            let message = "[data] needs exactly one of `label`, a column of class numbers to predict, and `target`, a \
                           column of any numbers";
            return Err(table.error(message));
        }
    };
    Ok(Data::Csv { path, delimiter, answer })
}

fn read_synthetic(table: &Table<'_>, _: &Path) -> Result<Data> {
    table.only(&["kind", "samples", "features", "classes", "target"])?;
    let (samples, features) = (table.need("samples", COUNT)?, table.need("features", SHAPE)?);
    let answer = match (table.find("classes", COUNT)?, table.find("target", SHAPE)?) {
        (Some(classes), None) => Answer::Classes(classes),
        (None, Some(shape)) => Answer::Target(shape),
        _ => {
            let message = "[data] needs exactly one of `classes`, how many there are to predict, and `target`, the \
                           shape of the numbers to predict";
            return Err(table.error(message));
        }
    };
    Ok(Data::Synthetic { samples, features, answer })
}

fn read_tokens(table: &Table<'_>, _: &Path) -> Result<Data> {
    table.only(&["kind", "samples", "length", "vocabulary"])?;
    Ok(Data::SyntheticTokens {
        samples: table.need("samples", COUNT)?,
        length: table.need("length", COUNT)?,
        vocabulary: table.need("vocabulary", COUNT)?,
    })
}

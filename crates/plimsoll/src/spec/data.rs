//! The `[data]` of a workload: which source samples come from, and with what options.

use super::read::{COUNT, Kind, SHAPE, TEXT, Table};
use crate::{Error, ErrorKind, Result};
use plimsoll_data::sources::{Answer, Description, KINDS, Options, Tokens};
use plimsoll_data::{Dataset, ErrorKind as DataErrorKind};
use std::cell::RefCell;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Where samples come from.
#[derive(Debug, Clone)]
pub(super) struct Data {
    source: Rc<dyn Description>,
    /// The file that it reads, if it reads one.
    file: Option<PathBuf>,
}

/// All runs hold out the same samples, whatever their seed, so that they can be compared.
const SEED: u64 = 0;

const CHARACTER: Kind<char> = Kind {
    expected: "one character in quotes, such as \";\"",
    read: |v| v.as_str().filter(|text| text.chars().count() == 1)?.chars().next(),
};

impl Data {
    /// Reads the section. Paths in it are relative to `folder`.
    pub(super) fn read(table: &Table<'_>, folder: &Path) -> Result<Data> {
        let kind = table.need_choice("kind", &KINDS.map(|kind| (kind.name, kind)))?;
        table.only(&[&["kind"], kind.keys].concat())?;
        let keys = Keys { table, folder, file: RefCell::default() };
        let source = (kind.describe)(&keys).map_err(data_error)?.into();
        Ok(Data { source, file: keys.file.into_inner() })
    }

    /// Whether what is to be predicted are classes, as opposed to numbers.
    pub(super) fn has_classes(&self) -> bool {
        self.source.answer() == Answer::Classes
    }

    /// Whether what is to be predicted is a single number per sample, without an axis.
    pub(super) fn has_scalar_target(&self) -> bool {
        self.source.answer() == Answer::Number
    }

    /// The tokens, if samples are tokens.
    pub(super) fn tokens(&self) -> Option<Tokens> {
        self.source.tokens()
    }

    /// The samples to train on, and those held out if a fraction is.
    pub(super) fn load(&self, held_out: Option<f64>) -> Result<(Dataset, Option<Dataset>)> {
        let load = || -> plimsoll_data::Result<(Dataset, Option<Dataset>)> {
            let all = self.source.open()?;
            match held_out {
                None => Ok((all, None)),
                Some(fraction) => {
                    let split = all.split(1.0 - fraction, SEED)?;
                    Ok((split.train, Some(split.held_out)))
                }
            }
        };
        load().map_err(|error| {
            let message = error.to_string();
            let file = self.file.as_ref().map(|file| file.display().to_string());
            match file.filter(|file| !message.contains(file)) {
                Some(file) => Error::new(ErrorKind::Data, format!("{file}: {message}")).caused_by(error),
                None => data_error(error),
            }
        })
    }
}

/// The error of a source: about the workload if that is where the fault is, else about the data.
fn data_error(error: plimsoll_data::Error) -> Error {
    match error.kind() {
        DataErrorKind::Option { message } => Error::new(ErrorKind::Spec, message.clone()),
        _ => Error::new(ErrorKind::Data, error.to_string()).caused_by(error),
    }
}

/// The keys of the section, as a source asks for them.
struct Keys<'a> {
    table: &'a Table<'a>,
    folder: &'a Path,
    /// The path that was asked for.
    file: RefCell<Option<PathBuf>>,
}

impl Keys<'_> {
    fn find<T>(&self, key: &'static str, kind: Kind<T>) -> plimsoll_data::Result<Option<T>> {
        self.table.find(key, kind).map_err(of_option)
    }

    fn need<T>(&self, key: &'static str, kind: Kind<T>) -> plimsoll_data::Result<T> {
        self.table.need(key, kind).map_err(of_option)
    }
}

fn of_option(error: impl Display) -> plimsoll_data::Error {
    DataErrorKind::Option { message: error.to_string() }.into()
}

impl Options for Keys<'_> {
    fn find_text(&self, key: &'static str) -> plimsoll_data::Result<Option<String>> {
        self.find(key, TEXT)
    }

    fn find_character(&self, key: &'static str) -> plimsoll_data::Result<Option<char>> {
        self.find(key, CHARACTER)
    }

    fn find_count(&self, key: &'static str) -> plimsoll_data::Result<Option<usize>> {
        self.find(key, COUNT)
    }

    fn need_count(&self, key: &'static str) -> plimsoll_data::Result<usize> {
        self.need(key, COUNT)
    }

    fn find_shape(&self, key: &'static str) -> plimsoll_data::Result<Option<Vec<usize>>> {
        self.find(key, SHAPE)
    }

    fn need_shape(&self, key: &'static str) -> plimsoll_data::Result<Vec<usize>> {
        self.need(key, SHAPE)
    }

    fn need_path(&self, key: &'static str) -> plimsoll_data::Result<PathBuf> {
        let path = self.folder.join(self.need(key, TEXT)?);
        *self.file.borrow_mut() = Some(path.clone());
        Ok(path)
    }

    fn refuse(&self, key: Option<&'static str>, message: &str) -> plimsoll_data::Error {
        of_option(match key.and_then(|key| self.table.value(key)) {
            Some(value) => value.error(message),
            None => self.table.error(message),
        })
    }
}

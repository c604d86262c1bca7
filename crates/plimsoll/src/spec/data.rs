//! The `[data]` of a workload: which source samples come from, and with what options.

use super::read::{BYTES, COUNT, FLAG, Kind, NUMBER, SHAPE, TEXT, TEXTS, Table};
use crate::{Error, ErrorKind, Result};
use plimsoll_data::sources::{Answer, Classes, Description, KINDS, Options, Tokens};
use plimsoll_data::{Dataset, ErrorKind as DataErrorKind, RamBudget};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::fmt::Display;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Where samples come from.
#[derive(Debug, Clone)]
pub(super) struct Data {
    source: Rc<dyn Description>,
    /// The files that it reads.
    files: Vec<DataFile>,
    /// What the classes are called, if they have names.
    class_names: Option<Vec<String>>,
    stages: Stages,
}

/// The file that is read in place of what a workload names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reads<'a> {
    pub(super) file: &'a Path,
    /// Whether it is to have what is to be predicted.
    pub(super) has_answer: bool,
}

/// What is done to the samples of every source, if it is asked for.
#[derive(Debug, Clone, Default)]
struct Stages {
    /// How many samples there are at most.
    take: Option<usize>,
    /// How many samples that cannot be read may be left out.
    skip_errors: Option<usize>,
    /// The size of a buffer that samples are shuffled with.
    shuffle_buffer: Option<usize>,
    /// Bytes of RAM that all stages may hold together.
    memory: Option<u64>,
}

/// Samples that cannot be read by number are shuffled with a buffer of so many, or fewer if they take more than so many
/// bytes, or half of what all stages may hold.
const USUAL_BUFFER: usize = 10_000;
const USUAL_BUFFER_BYTES: u64 = 64 << 20;

/// The keys of stages.
const STAGE_KEYS: [&str; 4] = ["take", "skip_errors", "shuffle_buffer", "memory"];

impl Stages {
    fn read(table: &Table<'_>) -> Result<Stages> {
        Ok(Stages {
            take: table.find("take", COUNT)?,
            skip_errors: table.find("skip_errors", COUNT)?,
            shuffle_buffer: table.find("shuffle_buffer", COUNT)?,
            memory: table.find("memory", BYTES)?,
        })
    }

    /// What belongs to the samples themselves, before any is held out.
    fn of_samples(&self, mut data: Dataset) -> plimsoll_data::Result<Dataset> {
        if let Some(take) = self.take {
            data = data.take(take);
        }
        Ok(data)
    }

    /// What is done on the way to a model, which needs to know how many samples there are.
    fn after(&self, mut data: Dataset) -> plimsoll_data::Result<Dataset> {
        if let Some(most) = self.skip_errors {
            data = data.skip_errors(most as u64);
        }
        data = data.counted()?;
        if data.samples() == 0 {
            return Err(DataErrorKind::Empty { what: "there are no samples".to_string() }.into());
        }
        match self.memory {
            Some(bytes) => data.within(RamBudget::bytes(bytes)),
            None => Ok(data),
        }
    }

    /// The samples to train on, which are to come in an order of their own each epoch.
    fn to_train_on(&self, data: Dataset) -> plimsoll_data::Result<Dataset> {
        let data = self.after(data)?;
        match self.shuffle_buffer {
            Some(buffer) => Ok(data.shuffle(buffer, SEED)),
            None if is_by_number(&data) => Ok(data),
            None => {
                let bytes = self.memory.map_or(USUAL_BUFFER_BYTES, |memory| memory / 2);
                let buffer =
                    usize::try_from(bytes / data.shuffled_record_bytes().max(1)).unwrap_or(usize::MAX);
                Ok(data.shuffle(buffer.clamp(1, USUAL_BUFFER), SEED))
            }
        }
    }
}

/// Whether samples can be read in any order, so that they can be split, and shuffled without a buffer.
fn is_by_number(data: &Dataset) -> bool {
    data.shuffle_all(SEED).is_ok()
}

/// A file that a workload names.
#[derive(Debug, Clone)]
struct DataFile {
    path: PathBuf,
    /// Where the value that names it stands in the text.
    span: Range<usize>,
    /// That value with the absolute path in it; `None` if the path is not text.
    absolute: Option<String>,
}

/// All runs hold out the same samples, whatever their seed, so that they can be compared.
const SEED: u64 = 0;

const CLASSES: Kind<Classes> = Kind {
    expected: "how many classes there are, or a list of their names, such as [\"no\", \"yes\"]",
    read: |v| match v.as_array() {
        None => (COUNT.read)(v).map(Classes::Numbered),
        Some(_) => (TEXTS.read)(v).filter(|names| !names.is_empty()).map(Classes::Named),
    },
};

const CHARACTER: Kind<char> = Kind {
    expected: "one character in quotes, such as \";\"",
    read: |v| v.as_str().filter(|text| text.chars().count() == 1)?.chars().next(),
};

impl Data {
    /// Reads the section. Paths in it are relative to `folder`, unless another file is read, whatever it names.
    pub(super) fn read(table: &Table<'_>, folder: &Path, reads: Option<Reads<'_>>) -> Result<Data> {
        let kind = table.need_choice("kind", &KINDS.map(|kind| (kind.name, kind)))?;
        table.only(&[&["kind"], kind.keys, &STAGE_KEYS].concat())?;
        let stages = Stages::read(table)?;
        let keys = Keys { table: table.clone(), folder, reads, files: RefCell::default() };
        let source = (kind.describe)(&keys).map_err(data_error)?.into();
        let files = keys.files.into_inner();
        if let (Some(Reads { file: instead, .. }), true) = (reads, files.is_empty()) {
            let message = format!(
                "the workload's data is {}, which is no file: {} cannot be read instead; leave it out",
                kind.name,
                instead.display()
            );
            return Err(Error::new(ErrorKind::Data, message));
        }
        let class_names = match table.value("classes").map(|classes| classes.get(CLASSES)) {
            Some(Ok(Classes::Named(names))) => Some(names),
            _ => None,
        };
        Ok(Data { source, files, class_names, stages })
    }

    /// The text that the section is in, with paths that do not depend on where it stands.
    pub(super) fn with_absolute_paths(&self, text: &str) -> String {
        let mut text = text.to_string();
        let mut files: Vec<&DataFile> = self.files.iter().collect();
        // What is replaced moves what follows it.
        files.sort_by_key(|file| Reverse(file.span.start));
        for DataFile { span, absolute, .. } in files {
            if let Some(value) = absolute {
                text.replace_range(span.clone(), &toml_text(value));
            }
        }
        text
    }

    /// Whether what is to be predicted are classes, as opposed to numbers.
    pub(super) fn has_classes(&self) -> bool {
        self.source.answer() == Answer::Classes
    }

    /// What the classes are called, by number, if the workload names them.
    pub(super) fn class_names(&self) -> Option<&[String]> {
        self.class_names.as_deref()
    }

    /// Whether what is to be predicted is a single number per sample, without an axis.
    pub(super) fn has_scalar_target(&self) -> bool {
        self.source.answer() == Answer::Number
    }

    /// The tokens, if samples are tokens.
    pub(super) fn tokens(&self) -> Option<Tokens> {
        self.source.tokens()
    }

    /// All samples, in their own order.
    pub(super) fn load_all(&self) -> Result<Dataset> {
        let load = || self.stages.after(self.samples()?);
        load().map_err(|error| self.blame(error))
    }

    /// The samples to train on, and those held out if a fraction is.
    pub(super) fn load(&self, held_out: Option<f64>) -> Result<(Dataset, Option<Dataset>)> {
        let load = || -> plimsoll_data::Result<(Dataset, Option<Dataset>)> {
            let all = self.samples()?;
            match held_out {
                None => Ok((self.stages.to_train_on(all)?, None)),
                Some(_) if !is_by_number(&all) => {
                    let reason = "packed files and large tables are read in their order, so `held_out` cannot pick samples \
                                  of them: unpack what is packed, or leave `held_out` out and evaluate with a file that \
                                  has other samples";
                    let path = self.files.first().map(|file| file.path.clone()).unwrap_or_default();
                    let (sample, offset, reason) = (None, None, reason.to_string());
                    Err(DataErrorKind::File { path, sample, offset, reason }.into())
                }
                Some(fraction) => {
                    let split = match self.source.is_in_time() {
                        true => all.split_in_order(1.0 - fraction)?,
                        false => all.split(1.0 - fraction, SEED)?,
                    };
                    Ok((self.stages.to_train_on(split.train)?, Some(self.stages.after(split.held_out)?)))
                }
            }
        };
        load().map_err(|error| self.blame(error))
    }

    fn samples(&self) -> plimsoll_data::Result<Dataset> {
        self.stages.of_samples(self.source.open()?)
    }

    /// The error about the data, which names the file.
    fn blame(&self, error: plimsoll_data::Error) -> Error {
        let message = error.to_string();
        let file = self.files.first().map(|file| file.path.display().to_string());
        // What is about a file, of which there may be several, says which.
        let is_named = matches!(error.kind(), DataErrorKind::File { .. });
        match file.filter(|file| !is_named && !message.contains(file)) {
            Some(file) => Error::new(ErrorKind::Data, format!("{file}: {message}")).caused_by(error),
            None => data_error(error),
        }
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
    table: Table<'a>,
    folder: &'a Path,
    reads: Option<Reads<'a>>,
    /// The files that were asked for.
    files: RefCell<Vec<DataFile>>,
}

impl Keys<'_> {
    fn find<T>(&self, key: &'static str, kind: Kind<T>) -> plimsoll_data::Result<Option<T>> {
        self.table.find(key, kind).map_err(of_option)
    }

    fn need<T>(&self, key: &'static str, kind: Kind<T>) -> plimsoll_data::Result<T> {
        self.table.need(key, kind).map_err(of_option)
    }

    /// Keeps which file the value of a key names.
    fn note(&self, key: &'static str, name: &str, path: &Path) {
        let Some(value) = self.table.value(key) else { return };
        let absolute = std::path::absolute(path).ok();
        let absolute = absolute.and_then(|path| {
            let text = value.get(TEXT).ok()?;
            Some(text.replacen(name, path.to_str()?, 1))
        });
        self.files.borrow_mut().push(DataFile { path: path.to_path_buf(), span: value.span(), absolute });
    }
}

/// Text as TOML has it, in quotes.
pub(super) fn toml_text(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            _ if character.is_control() => quoted += &format!("\\u{:04X}", u32::from(character)),
            _ => quoted.push(character),
        }
    }
    quoted + "\""
}

fn of_option(error: impl Display) -> plimsoll_data::Error {
    DataErrorKind::Option { message: error.to_string() }.into()
}

impl Options for Keys<'_> {
    fn has(&self, key: &'static str) -> bool {
        self.table.value(key).is_some()
    }

    fn find_text(&self, key: &'static str) -> plimsoll_data::Result<Option<String>> {
        self.find(key, TEXT)
    }

    fn need_text(&self, key: &'static str) -> plimsoll_data::Result<String> {
        self.need(key, TEXT)
    }

    fn find_flag(&self, key: &'static str) -> plimsoll_data::Result<Option<bool>> {
        self.find(key, FLAG)
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

    fn find_classes(&self, key: &'static str) -> plimsoll_data::Result<Option<Classes>> {
        self.find(key, CLASSES)
    }

    fn need_classes(&self, key: &'static str) -> plimsoll_data::Result<Classes> {
        self.need(key, CLASSES)
    }

    fn find_number(&self, key: &'static str) -> plimsoll_data::Result<Option<f64>> {
        self.find(key, NUMBER)
    }

    fn find_texts(&self, key: &'static str) -> plimsoll_data::Result<Option<Vec<String>>> {
        self.find(key, TEXTS)
    }

    fn find_sections(
        &self,
        key: &'static str,
        keys: &[&str],
    ) -> plimsoll_data::Result<Vec<(String, Box<dyn Options + '_>)>> {
        let Some(sections) = self.table.value(key) else { return Ok(Vec::new()) };
        let read = || -> Result<Vec<(String, Box<dyn Options + '_>)>> {
            let sections = sections.table("a section of [data]", "a section of sections")?;
            let section = |name: &str| -> Result<(String, Box<dyn Options + '_>)> {
                let table = sections
                    .needed(name, "a section")?
                    .table("a section of [data]", "a section in braces")?;
                table.only(keys)?;
                let keys = Keys { table, folder: self.folder, reads: self.reads, files: RefCell::default() };
                Ok((name.to_string(), Box::new(keys)))
            };
            sections.keys().map(section).collect()
        };
        read().map_err(of_option)
    }

    fn find_shape(&self, key: &'static str) -> plimsoll_data::Result<Option<Vec<usize>>> {
        self.find(key, SHAPE)
    }

    fn need_shape(&self, key: &'static str) -> plimsoll_data::Result<Vec<usize>> {
        self.need(key, SHAPE)
    }

    fn file(&self, key: &'static str, name: &str) -> PathBuf {
        let path = self.reads.map_or_else(|| self.folder.join(name), |reads| reads.file.to_path_buf());
        self.note(key, name, &path);
        path
    }

    fn wants_answer(&self) -> bool {
        self.reads.is_none_or(|reads| reads.has_answer)
    }

    fn find_companion(&self, key: &'static str) -> plimsoll_data::Result<Option<PathBuf>> {
        let Some(name) = self.find_text(key)? else { return Ok(None) };
        let path = self.folder.join(&name);
        self.note(key, &name, &path);
        Ok(Some(path))
    }

    fn refuse(&self, key: Option<&'static str>, message: &str) -> plimsoll_data::Error {
        of_option(match key.and_then(|key| self.table.value(key)) {
            Some(value) => value.error(message),
            None => self.table.error(message),
        })
    }
}

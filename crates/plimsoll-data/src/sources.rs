//! Where samples come from, and what workload files call it.
//!
//! A source is a file here and an entry of [`KINDS`]: it reads its own options, says what can be predicted from it
//! before a byte of it is read, and opens itself. Nothing else knows which sources there are.

#[cfg(feature = "tokenizers")]
mod byte_level;
mod bytes;
mod collected;
mod columns;
mod concatenated;
mod csv;
mod csv_rows;
mod decimal;
mod digits;
mod files;
#[cfg(any(feature = "parquet", feature = "tokenizers"))]
mod guard;
mod idx;
mod image_folder;
mod json;
mod json_lines;
mod kept;
mod npy;
mod npz;
mod number;
mod predicted;
mod protobuf;
mod records;
mod safetensors;
mod stored;
mod synthetic;
#[cfg(feature = "parquet")]
mod table;
mod table_columns;
mod table_kinds;
mod table_survey;
mod text;
mod text_tokens;
mod tfrecord;
#[cfg(feature = "tokenizers")]
mod tokens;
mod windows;

pub use columns::{Columns, Value};
pub use concatenated::Concatenated;
pub use csv::Csv;
pub use digits::{Digits, digits};
pub use files::Paths;
pub use idx::idx;
pub use image_folder::ImageFolder;
pub use json_lines::JsonLines;
pub use npy::npy;
pub use records::{Key, RecordFiles, Streamed};
pub use safetensors::safetensors;
pub use stored::{Inputs, Stored, Targets};
pub use synthetic::Synthetic;
#[cfg(feature = "parquet")]
pub use table::{Table, arrow, parquet};
pub use table_columns::TableColumn;
pub use table_survey::{ColumnSurvey, MOST_VALUES, TableSurvey};
pub use text::Text;
pub use text_tokens::TextTokens;
pub use tfrecord::TfRecord;
#[cfg(feature = "tokenizers")]
pub use tokens::{TokenizedText, Tokenizer};
pub use windows::Windows;

use crate::{Dataset, Error, Result};
use std::fmt::Debug;
use std::path::PathBuf;

/// The sources that a workload file can name.
pub const KINDS: [SourceKind; 13] = [
    digits::KIND,
    csv::KIND,
    json_lines::KIND,
    tfrecord::KIND,
    table_kinds::PARQUET,
    table_kinds::ARROW,
    npy::KIND,
    idx::KIND,
    safetensors::KIND,
    text::KIND,
    image_folder::KIND,
    synthetic::KIND,
    synthetic::TOKENS,
];

/// A kind of source.
#[derive(Clone, Copy, Debug)]
pub struct SourceKind {
    /// What workload files call it.
    pub name: &'static str,
    /// The keys of its options.
    pub keys: &'static [&'static str],
    /// Reads its options.
    pub describe: fn(&dyn Options) -> Result<Box<dyn Description>>,
}

/// The seed of every source: all runs see the same random samples, whatever their own seed, so that they can be compared.
const SEED: u64 = 0;

/// A source as a workload describes it, not yet opened.
pub trait Description: Debug {
    /// What there is to predict.
    fn answer(&self) -> Answer;

    /// How many tokens a sample has and how many different ones there are, if samples are tokens.
    fn tokens(&self) -> Option<Tokens> {
        None
    }

    /// Whether samples follow one another in time, so that those held out are the last.
    fn is_in_time(&self) -> bool {
        false
    }

    /// The samples. Those of packed files can only be read in their order, and are not counted yet.
    ///
    /// # Errors
    /// If they cannot be read, or hold what no model can be trained on.
    fn open(&self) -> Result<Dataset>;
}

/// What there is to predict of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A class, or one for every position.
    Classes,
    /// Numbers.
    Numbers,
    /// One number, without an axis.
    Number,
}

/// The classes that a label is one of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Classes {
    /// Numbers below this one.
    Numbered(usize),
    /// Names, which stand for 0, 1, 2 and so on.
    Named(Vec<String>),
}

impl Classes {
    /// How many there are.
    pub fn count(&self) -> usize {
        match self {
            Classes::Numbered(count) => *count,
            Classes::Named(names) => names.len(),
        }
    }
}

/// The tokens of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// How many a sample has.
    pub length: usize,
    /// How many different ones there are.
    pub vocabulary: usize,
}

/// What a workload says of its data, by key. An error of these names the key and its place in the file.
pub trait Options {
    /// Whether the key is there.
    fn has(&self, key: &'static str) -> bool;
    /// Text, if the key is there.
    fn find_text(&self, key: &'static str) -> Result<Option<String>>;
    /// Text.
    fn need_text(&self, key: &'static str) -> Result<String>;
    /// Yes or no, if the key is there.
    fn find_flag(&self, key: &'static str) -> Result<Option<bool>>;
    /// A single character, if the key is there.
    fn find_character(&self, key: &'static str) -> Result<Option<char>>;
    /// A number of things, at least 1, if the key is there.
    fn find_count(&self, key: &'static str) -> Result<Option<usize>>;
    /// A number of things, at least 1.
    fn need_count(&self, key: &'static str) -> Result<usize>;
    /// Classes, as their number or a list of their names, if the key is there.
    fn find_classes(&self, key: &'static str) -> Result<Option<Classes>>;
    /// Classes, as their number or a list of their names.
    fn need_classes(&self, key: &'static str) -> Result<Classes>;
    /// A finite number, if the key is there.
    fn find_number(&self, key: &'static str) -> Result<Option<f64>>;
    /// A list of texts, if the key is there.
    fn find_texts(&self, key: &'static str) -> Result<Option<Vec<String>>>;
    /// The sections within the section that the key holds, each with its name and no keys but these; none if it is not
    /// there.
    fn find_sections(&self, key: &'static str, keys: &[&str])
    -> Result<Vec<(String, Box<dyn Options + '_>)>>;
    /// A shape, if the key is there.
    fn find_shape(&self, key: &'static str) -> Result<Option<Vec<usize>>>;
    /// A shape.
    fn need_shape(&self, key: &'static str) -> Result<Vec<usize>>;
    /// The path of a file, which the workload gives relative to itself.
    fn need_path(&self, key: &'static str) -> Result<PathBuf> {
        Ok(self.file(key, &self.need_text(key)?))
    }
    /// The path of a file that the workload calls so in the value of a key, or of the one that is to be read instead.
    fn file(&self, key: &'static str, name: &str) -> PathBuf;
    /// Whether samples are to have what is to be predicted of them. Without it they have their first field alone, and a file
    /// may lack the rest.
    fn wants_answer(&self) -> bool {
        true
    }
    /// The path of a file that goes with the data, if the key is there. It is read whatever is read instead of the data.
    fn find_companion(&self, key: &'static str) -> Result<Option<PathBuf>>;
    /// The error for what is wrong with the value of a key, or with all of them.
    fn refuse(&self, key: Option<&'static str>, message: &str) -> Error;
}

/// Whether samples that cannot be read are left out: a stage of workloads, which sources that would refuse them before heed.
fn skips_errors(options: &dyn Options) -> Result<bool> {
    Ok(options.find_count("skip_errors")?.is_some())
}

/// What to do where something needs a feature that this build was made without.
#[cfg(not(all(feature = "parquet", feature = "tokenizers")))]
fn needs_feature(what: &str, feature: &str) -> String {
    format!(
        "{what} needs the feature `{feature}`, which this build is without: build it again with `--features {feature}`, such \
         as `cargo install --path crates/plimsoll-cli --features {feature}`"
    )
}

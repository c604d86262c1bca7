//! Parquet and Arrow files in workload files, which know them also where they cannot be read.

#[cfg(feature = "parquet")]
use super::predicted::Predicted;
#[cfg(feature = "parquet")]
use super::table_columns::Selection;
use super::{Description, Options, SourceKind};
use crate::Result;

pub(super) const PARQUET: SourceKind =
    SourceKind { name: "parquet", keys: KEYS, describe: |options| describe(options, Form::Parquet) };

pub(super) const ARROW: SourceKind =
    SourceKind { name: "arrow", keys: KEYS, describe: |options| describe(options, Form::Arrow) };

const KEYS: &[&str] = &[
    "path",
    "label",
    "classes",
    "target",
    "features",
    "ignore",
    "columns",
    "text",
    "length",
    "words",
    "tokenizer",
];

/// The form of a file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    Parquet,
    Arrow,
}

#[cfg(feature = "parquet")]
fn describe(options: &dyn Options, form: Form) -> Result<Box<dyn Description>> {
    let (path, predicted) = (options.need_path("path")?, Predicted::read(options)?);
    let (selection, wants_answer) = (Selection::read(options)?, options.wants_answer());
    Ok(Box::new(super::table::Described { path, form, predicted, selection, wants_answer }))
}

#[cfg(not(feature = "parquet"))]
fn describe(options: &dyn Options, _: Form) -> Result<Box<dyn Description>> {
    Err(options.refuse(Some("kind"), &super::needs_feature("this kind of file", "parquet")))
}

//! Files of records that have different lengths: lines of text, or messages with their length before them.
//!
//! A [`format`] says where a record ends and what it holds. From that come two readers: [`RecordFiles`], by number,
//! over an [`index`] that one pass makes; and [`Streamed`], in order, for files that are packed. [`dataset`] takes the one
//! that files allow.

pub(crate) mod format;
pub(crate) mod index;
pub(crate) mod input;
pub(crate) mod key;
mod packing;
mod record_files;
mod streamed;

pub use key::Key;
pub use record_files::RecordFiles;
pub use streamed::Streamed;

use crate::{Dataset, RamBudget, Result};
use format::{Format, Unchecked};
use std::path::PathBuf;
use std::sync::Arc;

/// The records of files: by number, or if any file is packed, in their order and not counted. If errors are to be skipped,
/// a record that is not what it should be is refused when it is read, not when the file is opened.
pub(super) fn dataset(paths: &[PathBuf], format: Arc<dyn Format>, skips_errors: bool) -> Result<Dataset> {
    for path in paths {
        if input::Input::open(path, |start| format.recognises(start))?.is_packed() {
            return Streamed::new(paths.to_vec(), checked(format, skips_errors)).dataset();
        }
    }
    Dataset::new(by_number(paths, format, skips_errors)?)
}

/// The records of files that are not packed.
pub(super) fn by_number(
    paths: &[PathBuf],
    format: Arc<dyn Format>,
    skips_errors: bool,
) -> Result<RecordFiles> {
    RecordFiles::open(paths, checked(format, skips_errors), RamBudget::UNLIMITED)
}

/// The same format, whose records are looked at when they are read if errors are to be skipped.
fn checked(format: Arc<dyn Format>, skips_errors: bool) -> Arc<dyn Format> {
    if skips_errors { Arc::new(Unchecked(format)) } else { format }
}

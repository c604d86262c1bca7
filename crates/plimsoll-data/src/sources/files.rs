//! Which files are meant: by name, by pattern, or a list of both.

use crate::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};

/// One or several files. A name in which `*`, `?` or `[…]` stand means all files that match it, in the order of their
/// names, unless there is a file of that very name.
///
/// ```
/// use plimsoll_data::sources::Paths;
///
/// let one = Paths::from("train.csv");
/// let some = Paths::from(["first.csv", "second.csv"]);
/// let matching = Paths::from("shards/train-*.csv");
/// assert!(matching.files().is_err());
/// # Ok::<(), plimsoll_data::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths(Vec<PathBuf>);

impl Paths {
    /// The files that are meant: at least one.
    ///
    /// # Errors
    /// If a pattern matches no file, or there is no path at all.
    pub fn files(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for path in &self.0 {
            match path.to_str().filter(|text| text.contains(['*', '?', '[']) && !path.exists()) {
                Some(pattern) => files.append(&mut matching(path, pattern)?),
                None => files.push(path.clone()),
            }
        }
        if files.is_empty() {
            return Err(ErrorKind::Empty { what: "the list of files is empty".to_string() }.into());
        }
        Ok(files)
    }

    /// Whether at least one file is meant, and all that are exist.
    pub(super) fn are_there(&self) -> bool {
        self.files().is_ok_and(|files| files.iter().all(|file| file.exists()))
    }
}

fn matching(path: &Path, pattern: &str) -> Result<Vec<PathBuf>> {
    let refuse = |reason: String| -> Error {
        ErrorKind::File { path: path.to_path_buf(), sample: None, offset: None, reason }.into()
    };
    let found =
        glob::glob(pattern).map_err(|error| refuse(format!("this is no pattern of files: {error}")))?;
    let mut files = Vec::new();
    for file in found {
        let file = file.map_err(|error| {
            Error::from(ErrorKind::Io { what: error.path().display().to_string(), error: error.into() })
        })?;
        if !file.is_dir() {
            files.push(file);
        }
    }
    if files.is_empty() {
        return Err(refuse("no file matches this pattern".to_string()));
    }
    files.sort();
    Ok(files)
}

impl From<&str> for Paths {
    fn from(path: &str) -> Paths {
        Paths(vec![path.into()])
    }
}

impl From<&Path> for Paths {
    fn from(path: &Path) -> Paths {
        Paths(vec![path.to_path_buf()])
    }
}

impl From<&PathBuf> for Paths {
    fn from(path: &PathBuf) -> Paths {
        Paths(vec![path.clone()])
    }
}

impl From<PathBuf> for Paths {
    fn from(path: PathBuf) -> Paths {
        Paths(vec![path])
    }
}

impl<P: AsRef<Path>> From<&[P]> for Paths {
    fn from(paths: &[P]) -> Paths {
        Paths(paths.iter().map(|path| path.as_ref().to_path_buf()).collect())
    }
}

impl<P: AsRef<Path>, const COUNT: usize> From<[P; COUNT]> for Paths {
    fn from(paths: [P; COUNT]) -> Paths {
        Paths::from(&paths[..])
    }
}

impl<P: AsRef<Path>> From<Vec<P>> for Paths {
    fn from(paths: Vec<P>) -> Paths {
        Paths::from(&paths[..])
    }
}

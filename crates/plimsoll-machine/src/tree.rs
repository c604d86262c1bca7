//! Files of a machine under some root: `/` for this one, a folder for one that was captured.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Files of `/proc` and `/sys` are short; whatever is longer is not one of them.
const LONGEST: u64 = 1 << 20;

/// A machine's files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tree<'a> {
    root: &'a Path,
}

impl<'a> Tree<'a> {
    pub(crate) fn new(root: &'a Path) -> Tree<'a> {
        Tree { root }
    }

    /// Where a file of the machine lies. Steps upwards in a path that was read are left out.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        let steps = path.split('/').filter(|step| !matches!(*step, "" | "." | ".."));
        steps.fold(self.root.to_owned(), |path, step| path.join(step))
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// The text of a file, if it can be read.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        let mut bytes = vec![];
        File::open(self.path(path)).ok()?.take(LONGEST).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The number that a file has.
    pub(crate) fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.trim().parse().ok()
    }

    /// The number after a word, in a file of such lines: `oom_kill 3`.
    pub(crate) fn value(&self, path: &str, word: &str) -> Option<u64> {
        value(&self.text(path)?, word)
    }

    /// The names in a folder, in order.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

/// The number after a word that begins a line.
pub(crate) fn value(text: &str, word: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_whitespace);
    lines.find_map(|mut words| (words.next() == Some(word)).then(|| words.next()?.parse().ok()).flatten())
}

//! `[data]` sections of workload files, as the sources' own tests write them.
#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]

use plimsoll_data::sources::{Answer, Classes, Description, KINDS, Options};
use plimsoll_data::{Dataset, Error, ErrorKind, Result};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// A `[data]` section of texts and numbers.
struct Section {
    folder: PathBuf,
    values: HashMap<&'static str, &'static str>,
}

fn refused(message: &str) -> Error {
    ErrorKind::Option { message: message.to_string() }.into()
}

impl Options for Section {
    fn has(&self, key: &'static str) -> bool {
        self.values.contains_key(key)
    }
    fn find_text(&self, key: &'static str) -> Result<Option<String>> {
        Ok(self.values.get(key).map(|text| text.to_string()))
    }
    fn need_text(&self, key: &'static str) -> Result<String> {
        self.find_text(key)?.ok_or_else(|| refused(key))
    }
    fn find_flag(&self, key: &'static str) -> Result<Option<bool>> {
        Ok(self.values.get(key).map(|text| *text == "true"))
    }
    fn find_character(&self, key: &'static str) -> Result<Option<char>> {
        Ok(self.values.get(key).and_then(|text| text.chars().next()))
    }
    fn find_count(&self, key: &'static str) -> Result<Option<usize>> {
        Ok(self.values.get(key).map(|text| text.parse().unwrap()))
    }
    fn need_count(&self, key: &'static str) -> Result<usize> {
        self.find_count(key)?.ok_or_else(|| refused(key))
    }
    fn find_classes(&self, key: &'static str) -> Result<Option<Classes>> {
        Ok(self.find_texts(key)?.map(|texts| match texts[0].parse() {
            Ok(count) => Classes::Numbered(count),
            Err(_) => Classes::Named(texts),
        }))
    }
    fn need_classes(&self, key: &'static str) -> Result<Classes> {
        self.find_classes(key)?.ok_or_else(|| refused(key))
    }
    fn find_number(&self, key: &'static str) -> Result<Option<f64>> {
        Ok(self.values.get(key).map(|text| text.parse().unwrap()))
    }
    fn find_texts(&self, key: &'static str) -> Result<Option<Vec<String>>> {
        Ok(self.values.get(key).map(|text| text.split(',').map(String::from).collect()))
    }
    /// The section `columns` has the keys `columns.NAME.KEY`.
    fn find_sections(
        &self,
        section: &'static str,
        keys: &[&str],
    ) -> Result<Vec<(String, Box<dyn Options + '_>)>> {
        let mut sections: BTreeMap<&str, HashMap<&'static str, &'static str>> = BTreeMap::new();
        for (key, value) in &self.values {
            let mut parts = key.split('.');
            if let (Some(of), Some(name), Some(key)) = (parts.next(), parts.next(), parts.next())
                && of == section
            {
                assert!(keys.contains(&key));
                sections.entry(name).or_default().insert(key, value);
            }
        }
        let boxed = |(name, values): (&str, _)| {
            let section: Box<dyn Options> = Box::new(Section { folder: self.folder.clone(), values });
            (name.to_string(), section)
        };
        Ok(sections.into_iter().map(boxed).collect())
    }
    fn find_shape(&self, key: &'static str) -> Result<Option<Vec<usize>>> {
        Ok(self.values.get(key).map(|text| text.split(',').map(|extent| extent.parse().unwrap()).collect()))
    }
    fn need_shape(&self, key: &'static str) -> Result<Vec<usize>> {
        self.find_shape(key)?.ok_or_else(|| refused(key))
    }
    fn file(&self, _: &'static str, name: &str) -> PathBuf {
        self.folder.join(name)
    }
    fn find_companion(&self, key: &'static str) -> Result<Option<PathBuf>> {
        Ok(self.find_text(key)?.map(|name| self.folder.join(name)))
    }
    fn refuse(&self, _: Option<&'static str>, message: &str) -> Error {
        refused(message)
    }
}

/// The folder of files that other programs wrote.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// What a `[data]` section describes.
pub fn describe(
    kind: &str,
    folder: &Path,
    values: &[(&'static str, &'static str)],
) -> Result<Box<dyn Description>> {
    let kind = KINDS.into_iter().find(|known| known.name == kind).unwrap();
    assert!(values.iter().all(|(key, _)| kind.keys.contains(&key.split('.').next().unwrap_or(key))));
    (kind.describe)(&Section { folder: folder.to_path_buf(), values: values.iter().copied().collect() })
}

/// The data of a section, and what there is to predict.
pub fn open(kind: &str, folder: &Path, values: &[(&'static str, &'static str)]) -> Result<(Answer, Dataset)> {
    let description = describe(kind, folder, values)?;
    Ok((description.answer(), description.open()?))
}

//! Reading TOML so that every complaint names its place.
//!
//! Deserialising into types forgets positions as soon as one key decides what the others mean, as `kind` does
//! here, and tells what was expected in the words of Rust. So the parsed tree is walked by hand: a [`Table`] is
//! asked for its keys, a [`Kind`] says in plain words what a value must be, and whatever is wrong is shown with
//! the file, the line and the column.

use super::suggest::{hint, nearest};
use crate::{Error, ErrorKind, Result};
use std::fmt::Display;
use std::ops::Range;
use std::str::FromStr;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// A text and what to call it.
pub(crate) struct Document<'a> {
    /// What it describes, as `the workload`.
    pub(crate) what: &'static str,
    pub(crate) file: &'a str,
    pub(crate) text: &'a str,
}

impl Document<'_> {
    /// Parses the text and has `build` make something of it.
    pub(crate) fn read<T>(&self, build: impl FnOnce(Table<'_>) -> Result<T>) -> Result<T> {
        let entries = DeTable::parse(self.text).map_err(|error| {
            // The messages of a parser may have several lines; the place is told by the span.
            self.error(error.span().unwrap_or(0..0), error.message().replace('\n', ", "))
        })?;
        build(Table { document: self, name: self.what, span: 0..0, entries: entries.get_ref() })
    }

    /// An error about a part of the text, with the line and a mark under the part.
    fn error(&self, span: Range<usize>, message: impl Display) -> Error {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let (line, column) =
            (before.matches('\n').count() + 1, before.chars().rev().take_while(|&c| c != '\n').count());
        let source = self.text.lines().nth(line - 1).unwrap_or("").trim_end();
        let marked =
            self.text.get(span).unwrap_or("").lines().next().unwrap_or("").trim_end().chars().count();
        let (margin, file) = (" ".repeat(line.to_string().len()), self.file);
        let (indent, mark) = (" ".repeat(column), "^".repeat(marked.max(1)));
        let message = format!(
            "{file}:{line}:{}: {message}\n{margin} |\n{line} | {source}\n{margin} | {indent}{mark}",
            column + 1
        );
        Error::new(ErrorKind::Spec, message)
    }
}

/// Keys and their values.
#[derive(Clone)]
pub(crate) struct Table<'a> {
    document: &'a Document<'a>,
    /// What to call it, as `[train]`.
    name: &'static str,
    span: Range<usize>,
    entries: &'a DeTable<'a>,
}

impl<'a> Table<'a> {
    /// The keys, in no order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(|key| key.get_ref().as_ref())
    }

    /// Refuses keys that are not among these.
    pub(crate) fn only(&self, known: &[&str]) -> Result<()> {
        let unknown = self.entries.keys().filter(|key| !known.contains(&key.get_ref().as_ref()));
        match unknown.min_by_key(|key| key.span().start) {
            None => Ok(()),
            Some(key) => {
                let hint = hint(known, key.get_ref());
                let message = format!("unknown key `{}` in {}; {hint}", key.get_ref(), self.name);
                Err(self.document.error(key.span(), message))
            }
        }
    }

    /// The value of a key, if there is one.
    pub(crate) fn value(&self, key: &str) -> Option<Value<'a>> {
        let (key, value) = self.entries.get_key_value(key)?;
        Some(Value { document: self.document, key: key.get_ref(), inner: value })
    }

    /// The value of a key that must be there.
    pub(crate) fn needed(&self, key: &str, expected: &str) -> Result<Value<'a>> {
        if let Some(value) = self.value(key) {
            return Ok(value);
        }
        // A misspelled key is both missing and unknown; it is shown where it stands.
        if let Some(entry) = self.entries.keys().find(|entry| nearest([key], entry.get_ref()).is_some()) {
            let message =
                format!("unknown key `{}` in {}; did you mean `{key}`?", entry.get_ref(), self.name);
            return Err(self.document.error(entry.span(), message));
        }
        Err(self
            .document
            .error(self.span.clone(), format!("{} has no `{key}`: expected {expected}", self.name)))
    }

    /// What a key holds, which must be there.
    pub(crate) fn need<T>(&self, key: &str, kind: Kind<T>) -> Result<T> {
        self.needed(key, kind.expected)?.get(kind)
    }

    /// What a key holds, if it is there.
    pub(crate) fn find<T>(&self, key: &str, kind: Kind<T>) -> Result<Option<T>> {
        self.value(key).map(|value| value.get(kind)).transpose()
    }

    /// What a key holds, or `usual` if it is not there.
    pub(crate) fn find_or<T>(&self, key: &str, kind: Kind<T>, usual: T) -> Result<T> {
        Ok(self.find(key, kind)?.unwrap_or(usual))
    }

    /// What the name that a key holds stands for, if it is there.
    pub(crate) fn find_named<T: FromStr<Err = Error>>(&self, key: &str) -> Result<Option<T>> {
        self.value(key).map(|value| value.named()).transpose()
    }

    /// What the name that a key holds stands for, which must be there and among the `choices`.
    pub(crate) fn need_choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Result<T> {
        self.needed(key, &one_of(choices))?.choice(choices)
    }

    /// What the word under a key stands for, if it is there.
    pub(crate) fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Result<Option<T>> {
        self.value(key).map(|value| value.choice(choices)).transpose()
    }

    /// The section that a key holds, which must be there. `name` is what to call it, as `[train]`.
    pub(crate) fn need_section(&self, key: &str, name: &'static str) -> Result<Table<'a>> {
        self.needed(key, &format!("a section {name}"))?.table(name, "a section")
    }

    /// The first key here that is among `kinds`, and what it stands for: it says which kind of `what` the table
    /// is, and what the other keys mean.
    pub(crate) fn kind<T: Copy>(&self, what: &str, kinds: &[(&'static str, T)]) -> Result<(&'static str, T)> {
        let mut keys: Vec<&Spanned<DeString<'_>>> = self.entries.keys().collect();
        keys.sort_by_key(|key| key.span().start);
        let found = keys.iter().find_map(|key| kinds.iter().find(|(kind, _)| kind == key.get_ref()));
        found.copied().ok_or_else(|| {
            let names: Vec<&str> = kinds.iter().map(|(name, _)| *name).collect();
            let hint = hint(&names, keys.first().map_or("", |key| key.get_ref()));
            self.error(format!("no key here says which {what} this is; {hint}"))
        })
    }

    /// An error about this table as a whole.
    pub(crate) fn error(&self, message: impl Display) -> Error {
        self.document.error(self.span.clone(), message)
    }
}

/// What stands after a key or in a list.
#[derive(Clone)]
pub(crate) struct Value<'a> {
    document: &'a Document<'a>,
    key: &'a str,
    inner: &'a Spanned<DeValue<'a>>,
}

impl<'a> Value<'a> {
    /// What it holds, if that is of this kind.
    pub(crate) fn get<T>(&self, kind: Kind<T>) -> Result<T> {
        (kind.read)(self.inner.get_ref()).ok_or_else(|| self.unexpected(kind.expected))
    }

    /// What the name that it holds stands for.
    pub(crate) fn named<T: FromStr<Err = Error>>(&self) -> Result<T> {
        self.get(TEXT)?.parse().map_err(|error| self.error(error))
    }

    fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T> {
        let text = self.get(TEXT)?;
        let found = choices.iter().find(|(name, _)| *name == text);
        found.map(|&(_, choice)| choice).ok_or_else(|| self.unexpected(&one_of(choices)))
    }

    /// Its elements, if it is a list.
    pub(crate) fn list(&self) -> Result<Vec<Value<'a>>> {
        let DeValue::Array(array) = self.inner.get_ref() else {
            return Err(self.unexpected("a list in brackets"));
        };
        Ok(array.iter().map(|inner| Value { inner, ..*self }).collect())
    }

    /// Its keys and values, if it is a table. `name` is what to call it.
    pub(crate) fn table(&self, name: &'static str, expected: &str) -> Result<Table<'a>> {
        let DeValue::Table(entries) = self.inner.get_ref() else {
            return Err(self.unexpected(expected));
        };
        Ok(Table { document: self.document, name, span: self.inner.span(), entries })
    }

    /// Where it stands in the document.
    pub(crate) fn span(&self) -> Range<usize> {
        self.inner.span()
    }

    /// Whether it is text.
    pub(crate) fn is_text(&self) -> bool {
        self.inner.get_ref().is_str()
    }

    /// An error about this value.
    pub(crate) fn error(&self, message: impl Display) -> Error {
        self.document.error(self.inner.span(), message)
    }

    fn unexpected(&self, expected: &str) -> Error {
        let shown = match self.inner.get_ref() {
            DeValue::Array(_) => "a list".to_string(),
            DeValue::Table(_) => "a table".to_string(),
            _ => self.document.text.get(self.inner.span()).unwrap_or("").to_string(),
        };
        self.error(format!("`{}` is {shown}; expected {expected}", self.key))
    }
}

/// What a value must be: in words, and how it is recognised.
pub(crate) struct Kind<T> {
    pub(crate) expected: &'static str,
    pub(crate) read: fn(&DeValue<'_>) -> Option<T>,
}

pub(crate) const TEXT: Kind<String> =
    Kind { expected: "text in quotes", read: |v| v.as_str().map(String::from) };
pub(crate) const BYTES: Kind<u64> = Kind {
    expected: "a number of bytes, such as \"64MiB\"",
    read: |v| plimsoll_memory::parse_bytes(v.as_str()?).ok(),
};
pub(crate) const FLAG: Kind<bool> = Kind { expected: "true or false", read: |v| v.as_bool() };
pub(crate) const WHOLE: Kind<u64> = Kind { expected: "a whole number, 0 or more", read: whole };
pub(crate) const COUNT: Kind<usize> = Kind { expected: "a whole number, at least 1", read: count };
pub(crate) const POSITIVE: Kind<f64> =
    Kind { expected: "a number above 0", read: |v| number(v).filter(|&x| x > 0.0) };
pub(crate) const NOT_NEGATIVE: Kind<f64> =
    Kind { expected: "a number, 0 or more", read: |v| number(v).filter(|&x| x >= 0.0) };
pub(crate) const FRACTION: Kind<f64> =
    Kind { expected: "a number from 0 to below 1", read: |v| number(v).filter(|x| (0.0..1.0).contains(x)) };
pub(crate) const SHAPE: Kind<Vec<usize>> = Kind {
    expected: "a list of whole numbers, each at least 1, such as [28, 28, 1]",
    read: |v| v.as_array()?.iter().map(|extent| count(extent.get_ref())).collect(),
};
pub(crate) const NUMBER: Kind<f64> = Kind { expected: "a finite number", read: number };
pub(crate) const TEXTS: Kind<Vec<String>> = Kind {
    expected: "a list of texts in quotes, such as [\"a\", \"b\"]",
    read: |v| v.as_array()?.iter().map(|text| text.get_ref().as_str().map(String::from)).collect(),
};
pub(crate) const PATTERNS: Kind<Vec<String>> = Kind {
    expected: "a list of names of parameters or scopes, with * for any characters, such as [\"*/bias\", \"head\"]",
    read: |v| {
        let patterns = v.as_array()?.iter().map(|pattern| pattern.get_ref().as_str().map(String::from));
        patterns.collect::<Option<Vec<String>>>().filter(|patterns| !patterns.is_empty())
    },
};
pub(crate) const PAIR: Kind<[usize; 2]> = Kind {
    expected: "a whole number, at least 1, or two: [down, across]",
    read: |v| match v.as_array() {
        None => count(v).map(|n| [n, n]),
        Some(_) => (SHAPE.read)(v)?.try_into().ok(),
    },
};

fn whole(value: &DeValue<'_>) -> Option<u64> {
    let integer = value.as_integer()?;
    u64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

fn count(value: &DeValue<'_>) -> Option<usize> {
    whole(value).and_then(|n| usize::try_from(n).ok()).filter(|&n| n > 0)
}

/// A finite number, with or without a decimal point.
fn number(value: &DeValue<'_>) -> Option<f64> {
    let number = match value {
        DeValue::Float(float) => float.as_str().parse().ok()?,
        integer => {
            i64::from_str_radix(integer.as_integer()?.as_str(), integer.as_integer()?.radix()).ok()? as f64
        }
    };
    number.is_finite().then_some(number)
}

fn one_of<T>(choices: &[(&str, T)]) -> String {
    let names: Vec<String> = choices.iter().map(|(name, _)| format!("\"{name}\"")).collect();
    match &names[..] {
        [one] => one.clone(),
        names => format!("one of {}", names.join(", ")),
    }
}

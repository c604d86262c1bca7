//! What the columns of a person's table hold, so that a workload can be written for it: which are numbers and of what size,
//! which are names of categories, and which tell nothing.
//!
//! A file is read once, in memory that does not grow with its rows.

use super::csv_rows::{Delimiter, read_header, row_error, unquote, with_point};
use super::files::Paths;
use super::records::format::{Fault, frame_row};
use super::records::input::Input;
use super::table_columns::is_nothing;
use super::text_tokens::count_words;
use crate::Result;
use std::collections::BTreeMap;
use std::path::Path;

/// What a table holds.
#[derive(Clone, Debug, PartialEq)]
pub struct TableSurvey {
    /// How many rows there are.
    pub rows: u64,
    /// What stands between cells.
    pub delimiter: char,
    /// Whether fractions follow a comma.
    pub has_decimal_commas: bool,
    /// Whether a file is packed, so that rows can only be read in their order.
    pub is_packed: bool,
    /// The columns, in the order of the file.
    pub columns: Vec<ColumnSurvey>,
}

/// What a column holds.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnSurvey {
    /// Its name.
    pub name: String,
    /// How many cells are empty, or say that there is nothing.
    pub missing: u64,
    /// How many of the others are finite numbers.
    pub numbers: u64,
    /// The mean of those.
    pub mean: f64,
    /// Their standard deviation.
    pub deviation: f64,
    /// Whether all of them are whole.
    pub are_whole: bool,
    /// Whether they count the rows one by one.
    pub counts_rows: bool,
    /// A cell that is no number, if there is one.
    pub text: Option<String>,
    /// How many words cells have that are no numbers, as [`TextTokens::words`](super::TextTokens::words) takes them: all
    /// together, and the most in a cell.
    pub words: u64,
    /// See [`words`](ColumnSurvey::words).
    pub most_words: u64,
    /// What its cells say, missing ones left out, and how often; `None` if that is more than [`MOST_VALUES`] things.
    pub values: Option<BTreeMap<String, u64>>,
}

/// The most different things that cells of a column may say and be listed.
pub const MOST_VALUES: usize = 1000;
/// So many rows are looked at to say what fractions follow.
const LOOKED_AT: usize = 1000;
/// The most bytes of a cell that is listed.
const MOST_BYTES: usize = 256;

impl TableSurvey {
    /// Looks at csv files that have the same columns, packed or not. What stands between cells is what the header has most
    /// of, if it is not said.
    ///
    /// ```
    /// use plimsoll_data::sources::TableSurvey;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("flowers.csv");
    /// std::fs::write(&path, "length;kind\n5.1;setosa\n6.2;virginica\n").unwrap();
    /// let survey = TableSurvey::csv(&path, None)?;
    /// assert_eq!((survey.rows, survey.delimiter, survey.columns[0].numbers), (2, ';', 2));
    /// # Ok::<(), plimsoll_data::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a file cannot be read, or is no table.
    pub fn csv(paths: impl Into<Paths>, delimiter: Option<char>) -> Result<TableSurvey> {
        let paths = paths.into().files()?;
        let delimiter = match (delimiter, paths.first()) {
            (None, Some(path)) => likely_delimiter(path)?,
            (delimiter, _) => delimiter.unwrap_or(','),
        };
        let has_decimal_commas = match paths.first() {
            Some(path) => has_decimal_commas(path, delimiter)?,
            None => false,
        };
        let mut survey =
            TableSurvey { rows: 0, delimiter, has_decimal_commas, is_packed: false, columns: Vec::new() };
        for path in paths {
            let mut input = Input::open(&path, |_| false)?;
            survey.is_packed |= input.is_packed();
            let header = read_header(&mut input, delimiter)?;
            if survey.columns.is_empty() {
                survey.columns = header.names.iter().map(|name| ColumnSurvey::new(name)).collect();
            }
            while input.next(frame_row, 0)? {
                let added = survey.add(input.record(), Delimiter::new(delimiter));
                added.map_err(|fault| row_error(Some(&path), input.line(), fault))?;
            }
        }
        survey.columns.iter_mut().for_each(ColumnSurvey::finish);
        Ok(survey)
    }

    fn add(&mut self, line: &[u8], delimiter: Delimiter) -> std::result::Result<(), Fault> {
        let (mut at, mut count) = (0, 0);
        loop {
            let length = delimiter.cell_length(&line[at..]);
            if let Some(column) = self.columns.get_mut(count) {
                let cell = unquote(&line[at..at + length], at)?;
                let number = if self.has_decimal_commas { with_point(cell.clone(), at).ok() } else { None };
                let number = number.as_deref().unwrap_or(&cell).parse();
                column.add(&cell, number.ok(), self.rows);
            }
            count += 1;
            at += length;
            if at >= line.len() {
                break;
            }
            at += delimiter.character.len_utf8();
        }
        if count != self.columns.len() {
            let reason = format!("it has {count} cells where the header has {}", self.columns.len());
            return Err(Fault::new(0, reason));
        }
        self.rows += 1;
        Ok(())
    }
}

impl ColumnSurvey {
    fn new(name: &str) -> ColumnSurvey {
        ColumnSurvey {
            name: name.to_string(),
            missing: 0,
            numbers: 0,
            mean: 0.0,
            deviation: 0.0,
            are_whole: true,
            counts_rows: true,
            text: None,
            words: 0,
            most_words: 0,
            values: Some(BTreeMap::new()),
        }
    }

    /// `deviation` is the sum of squares until the end.
    fn add(&mut self, cell: &str, number: Option<f64>, row: u64) {
        if is_nothing(cell) {
            self.missing += 1;
            self.counts_rows = false;
            return;
        }
        match number.filter(|number| number.is_finite()) {
            Some(number) => {
                self.numbers += 1;
                let from_mean = number - self.mean;
                self.mean += from_mean / self.numbers as f64;
                self.deviation += from_mean * (number - self.mean);
                self.are_whole &= number.fract() == 0.0;
                self.counts_rows &= number == row as f64 || number == row as f64 + 1.0;
            }
            None => {
                self.counts_rows = false;
                let words = count_words(cell);
                self.words += words;
                self.most_words = self.most_words.max(words);
                self.text.get_or_insert_with(|| cell.chars().take(40).collect());
            }
        }
        if let Some(values) = &mut self.values {
            if let Some(count) = values.get_mut(cell) {
                *count += 1;
            } else if values.len() == MOST_VALUES || cell.len() > MOST_BYTES {
                self.values = None;
            } else {
                values.insert(cell.to_string(), 1);
            }
        }
    }

    fn finish(&mut self) {
        self.deviation = (self.deviation / self.numbers.max(1) as f64).sqrt();
        self.are_whole &= self.numbers > 0;
        self.counts_rows &= self.numbers > 1;
    }

    /// Whether every cell that says something says a number.
    pub fn is_numbers(&self) -> bool {
        self.numbers > 0 && self.text.is_none()
    }
}

/// What the first line has most of, outside of quotes.
fn likely_delimiter(path: &Path) -> Result<char> {
    let mut input = Input::open(path, |_| false)?;
    if !input.next(frame_row, 0)? {
        return Ok(',');
    }
    let (mut counts, mut is_quoted) = ([(b',', 0), (b'\t', 0), (b';', 0), (b'|', 0)], false);
    for &byte in input.record() {
        is_quoted ^= byte == b'"';
        if let Some((_, count)) = counts.iter_mut().find(|(character, _)| *character == byte && !is_quoted) {
            *count += 1;
        }
    }
    // The first of those that there are most of.
    let most = counts.iter().rev().max_by_key(|(_, count)| *count);
    Ok(most.map_or(',', |(character, _)| char::from(*character)))
}

/// Whether more numbers of the first rows have a comma before their fraction than a point.
fn has_decimal_commas(path: &Path, delimiter: char) -> Result<bool> {
    let mut input = Input::open(path, |_| false)?;
    let delimiter = Delimiter::new(delimiter);
    let (mut commas, mut points) = (0, 0);
    for _ in 0..=LOOKED_AT {
        if !input.next(frame_row, 0)? {
            break;
        }
        let (line, mut at) = (input.record(), 0);
        while at < line.len() {
            let length = delimiter.cell_length(&line[at..]);
            // What is no text is an error with its line when it is read.
            let cell = unquote(&line[at..at + length], at).unwrap_or_default();
            let has_one = |point: char| cell.matches(point).count() == 1;
            points += usize::from(has_one('.') && cell.parse::<f64>().is_ok());
            commas += usize::from(has_one(',') && cell.replace(',', ".").parse::<f64>().is_ok());
            at += length + delimiter.character.len_utf8();
        }
    }
    Ok(commas > points)
}

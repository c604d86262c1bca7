//! Numbers from csv and tsv files with a header line: what most people's data is.
//!
//! Files are read once when they are opened, to check every row in constant memory, and stay where they are: rows are
//! parsed as they are read. Text that is at hand is read twice: the first pass counts lines, so that the memory that it
//! will take is known, and refused if need be, before any of it is taken; the second parses straight into columns of
//! exactly that size. Every complaint names the line and the column.

use std::io::{BufRead, Seek};
use std::path::PathBuf;
use std::sync::Arc;

use super::csv_rows::{Header, Rows, row_error};
use super::files::Paths;
use super::predicted::Predicted;
use super::records::format::{Fault, Format, Frame, MOST_QUOTED_BYTES, Out, frame_row};
use super::records::{self, RecordFiles, Streamed};
use super::table_columns::{Selection, TableColumn};
use super::{
    Answer, Classes, Columns, Description, Options, SourceKind, TextTokens, Tokens, Windows, skips_errors,
};
use crate::{Dataset, Error, ErrorKind, RamBudget, Record, Result};

/// How to read a csv file: which column is to be predicted, and from the others.
///
/// It gives two fields: `features`, `f32`, all other columns in their order unless something else is said
/// ([`Csv::features`], [`Csv::ignore`], [`Csv::column`]); and `label`, `i32` ([`Csv::label`]), or `target`, `f32`
/// ([`Csv::target`]).
///
/// ```
/// use std::io::Cursor;
/// use plimsoll_data::{Csv, Dataset};
///
/// let text = "length,width,species\n5.1,3.5,0\n6.2,2.9,1\n";
/// let flowers = Dataset::new(Csv::label("species").read(Cursor::new(text))?)?;
/// assert_eq!(flowers.samples(), 2);
/// # Ok::<(), plimsoll_data::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Csv {
    pub(super) answer: String,
    pub(super) is_label: bool,
    pub(super) classes: Option<Classes>,
    pub(super) selection: Selection,
    /// Whether there are features alone.
    pub(super) is_without_answer: bool,
    /// Whether what is to be predicted may be a feature too.
    pub(super) is_answer_known: bool,
    delimiter: Option<char>,
    /// Whether fractions follow a comma.
    pub(super) is_comma: bool,
    pub(super) budget: RamBudget,
}

/// A csv file that a workload names.
#[derive(Debug)]
struct CsvFile {
    path: PathBuf,
    csv: Csv,
    answer: Answer,
    /// How many rows a window has, and how many after it the answer is, if samples are windows.
    window: Option<(usize, usize)>,
    skips_errors: bool,
}

pub(super) const KIND: SourceKind = SourceKind {
    name: "csv",
    keys: &[
        "path",
        "label",
        "classes",
        "target",
        "delimiter",
        "decimal",
        "window",
        "horizon",
        "features",
        "ignore",
        "columns",
        "text",
        "length",
        "words",
        "tokenizer",
    ],
    describe,
};

fn describe(options: &dyn Options) -> Result<Box<dyn Description>> {
    let path = options.need_path("path")?;
    let predicted = Predicted::read(options)?;
    let answer = predicted.answer();
    let mut csv = match predicted.classes {
        Some(classes) => Csv { classes: Some(classes), ..Csv::label(&predicted.column) },
        None => Csv::target(&predicted.column),
    };
    csv.is_without_answer = !options.wants_answer();
    csv.delimiter = options.find_character("delimiter")?;
    csv.is_comma = match options.find_character("decimal")? {
        None | Some('.') => false,
        Some(',') => true,
        Some(_) => {
            let message = "fractions follow a point, as in 3.14, or a comma, as in 3,14: \".\" or \",\"";
            return Err(options.refuse(Some("decimal"), message));
        }
    };
    csv.selection = Selection::read(options)?;
    let skips_errors = skips_errors(options)?;
    let window = read_window(options)?;
    csv.is_answer_known = window.is_some();
    Ok(Box::new(CsvFile { path, csv, answer, window, skips_errors }))
}

/// Reads `window` and `horizon`.
fn read_window(options: &dyn Options) -> Result<Option<(usize, usize)>> {
    match (options.find_count("window")?, options.find_count("horizon")?) {
        (Some(_), _) if options.has("text") => {
            Err(options.refuse(Some("window"), "a window is one of rows of numbers, and a `text` is none"))
        }
        (Some(window), horizon) => Ok(Some((window, horizon.unwrap_or(1)))),
        (None, Some(_)) => {
            let message = "the `horizon` is that of a `window`, and there is none";
            Err(options.refuse(Some("horizon"), message))
        }
        (None, None) => Ok(None),
    }
}

impl Description for CsvFile {
    fn answer(&self) -> Answer {
        self.answer
    }

    fn tokens(&self) -> Option<Tokens> {
        self.csv.selection.tokens()
    }

    fn is_in_time(&self) -> bool {
        self.window.is_some()
    }

    fn open(&self) -> Result<Dataset> {
        let (paths, rows) = self.csv.rows(Paths::from(&self.path))?;
        match self.window {
            None => records::dataset(&paths, rows, self.skips_errors),
            Some((window, horizon)) => {
                let rows = records::by_number(&paths, rows, self.skips_errors)?;
                Dataset::new(Windows::new(rows, window, horizon)?)
            }
        }
    }
}

impl Csv {
    /// The column to be predicted holds class numbers: whole, from 0; or names ([`Csv::class_names`]).
    pub fn label(column: &str) -> Csv {
        Csv {
            answer: column.to_string(),
            is_label: true,
            classes: None,
            selection: Selection::default(),
            is_without_answer: false,
            is_answer_known: false,
            delimiter: None,
            is_comma: false,
            budget: RamBudget::UNLIMITED,
        }
    }

    /// The column to be predicted holds real numbers.
    pub fn target(column: &str) -> Csv {
        Csv { is_label: false, ..Csv::label(column) }
    }

    /// There are so many classes: a label that is none of them is refused.
    pub fn classes(self, classes: usize) -> Csv {
        Csv { classes: Some(Classes::Numbered(classes)), ..self }
    }

    /// Labels are these names, which stand for the classes 0, 1, 2 and so on; any other is refused.
    pub fn class_names<S: Into<String>>(self, names: impl IntoIterator<Item = S>) -> Csv {
        Csv { classes: Some(Classes::Named(names.into_iter().map(Into::into).collect())), ..self }
    }

    /// The columns that become features, in this order, wherever they stand in the file. All others are ignored.
    pub fn features<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Csv {
        self.selection.features = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Columns that are not read.
    pub fn ignore<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Csv {
        self.selection.columns.extend(names.into_iter().map(|name| (name.into(), TableColumn::ignored())));
        self
    }

    /// What becomes of a column that is not a feature as it stands.
    pub fn column(mut self, name: &str, column: TableColumn) -> Csv {
        self.selection.columns.push((name.to_string(), column));
        self
    }

    /// Gives `tokens`, `i32`, those of the text in this column, in place of `features`. All other columns are ignored.
    pub fn text(mut self, column: &str, tokens: TextTokens) -> Csv {
        self.selection.text = Some((column.to_string(), tokens));
        self
    }

    /// Gives `features` alone, of files that have the column that is to be predicted or not.
    pub fn without_answer(self) -> Csv {
        Csv { is_without_answer: true, ..self }
    }

    /// What is to be predicted is a feature too, for [`Windows`]: in these it is what earlier rows say.
    pub fn with_known_answer(self) -> Csv {
        Csv { is_answer_known: true, ..self }
    }

    /// What stands between cells, if not a comma, or a tab in files whose names end in `.tsv`.
    pub fn delimiter(self, delimiter: char) -> Csv {
        Csv { delimiter: Some(delimiter), ..self }
    }

    /// Fractions follow a comma, as in `3,14`. Where a comma also stands between cells, such a number is in quotes.
    pub fn decimal_comma(self) -> Csv {
        Csv { is_comma: true, ..self }
    }

    /// The most RAM that may be held: by columns and the line being read, or by what it takes to find the rows of
    /// files.
    pub fn budget(self, budget: RamBudget) -> Csv {
        Csv { budget, ..self }
    }

    /// The rows of files, which all have the same columns. They stay in the files, unless these are small.
    ///
    /// # Errors
    /// If any row of them is not what it should be.
    pub fn open(&self, paths: impl Into<Paths>) -> Result<RecordFiles> {
        let (paths, rows) = self.rows(paths.into())?;
        RecordFiles::open(&paths, rows, self.budget)
    }

    /// The rows of files in their order, packed or not.
    pub fn stream(&self, paths: impl Into<Paths>) -> Result<Streamed> {
        let (paths, rows) = self.rows(paths.into())?;
        Ok(Streamed::new(paths, rows))
    }

    fn rows(&self, paths: Paths) -> Result<(Vec<PathBuf>, Arc<dyn Format>)> {
        let paths = paths.files()?;
        let first = &paths[0];
        let is_packed = first.extension().is_some_and(|extension| extension == "gz" || extension == "zst");
        let unpacked = if is_packed { first.with_extension("") } else { first.clone() };
        let usual = if unpacked.extension().is_some_and(|extension| extension == "tsv") { '\t' } else { ',' };
        let rows = Rows::open(self, first, self.delimiter.unwrap_or(usual))?;
        Ok((paths, Arc::new(rows)))
    }

    /// Reads text that is already at hand, or anything else that can be read twice, into memory.
    pub fn read(&self, mut text: impl BufRead + Seek) -> Result<Columns> {
        let what = "the csv text";
        let failed = |error| Error::from(ErrorKind::Io { what: what.to_string(), error });
        let start = text.stream_position().map_err(failed)?;
        let extent = Extent::measure(&mut text).map_err(failed)?;
        text.seek(std::io::SeekFrom::Start(start)).map_err(failed)?;
        let remedy =
            "use fewer rows or columns, raise the budget, or read the text from a file, which is not held";
        self.budget.admit(what, extent.longest_line, remedy)?;

        let mut lines =
            Lines { text, number: 0, line: reserve(extent.longest_line, what)?, given: 0, more_lines: 0 };
        let Some(header) = lines.next().map_err(failed)? else {
            return Err(ErrorKind::Empty { what: format!("{what} has no header line") }.into());
        };
        let delimiter = self.delimiter.unwrap_or(',');
        let header =
            Header::parse(header, delimiter).map_err(|fault| row_error(None, lines.number, fault))?;
        let table = Rows::new(self, header, delimiter, None, lines.number)?;
        // The header is a line of text too, but not a row.
        let rows = extent.text_lines.saturating_sub(1);
        let features = table.features() as u64;
        let bytes = rows.saturating_mul(4 * (features + 1)).saturating_add(extent.longest_line);
        self.budget.admit(what, bytes, remedy)?;

        let (mut all_features, mut tokens): (Vec<f32>, Vec<i32>) = (vec![], vec![]);
        match self.selection.text {
            None => all_features = reserve(rows.saturating_mul(features), what)?,
            Some(_) => tokens = reserve(rows.saturating_mul(features), what)?,
        }
        let (mut labels, mut targets): (Vec<i32>, Vec<f32>) = (vec![], vec![]);
        let (is_label, is_target) = match table.fields().len() {
            1 => (false, false),
            _ => (self.is_label, !self.is_label),
        };
        if is_label {
            labels = reserve(rows, what)?;
        } else if is_target {
            targets = reserve(rows, what)?;
        }
        let mut record = Record::new(table.fields());
        let mut read = 0;
        while let Some(line) = lines.next().map_err(failed)? {
            read += 1;
            let parsed = if read <= rows {
                table.parse(line, &mut Out::Record(&mut record))
            } else {
                Err(Fault::new(0, "the text grew while it was read; read it again"))
            };
            parsed.map_err(|fault| row_error(None, lines.number, fault))?;
            match self.selection.text {
                None => all_features.extend_from_slice(record.get("features")?),
                Some(_) => tokens.extend_from_slice(record.get("tokens")?),
            }
            if is_label {
                labels.extend_from_slice(record.get("label")?);
            } else if is_target {
                targets.extend_from_slice(record.get("target")?);
            }
        }
        if read == 0 {
            return Err(ErrorKind::Empty { what: format!("{what} has a header but no rows") }.into());
        }
        drop(lines);
        let (columns, shape) = (Columns::within(self.budget), [features as usize]);
        let columns = match self.selection.text {
            None => columns.column("features", &shape, all_features)?,
            Some(_) => columns.column("tokens", &shape, tokens)?,
        };
        match (is_label, is_target) {
            (true, _) => columns.column("label", &[], labels),
            (_, true) => columns.column("target", &[], targets),
            _ => Ok(columns),
        }
    }
}

fn reserve<T>(elements: u64, what: &str) -> Result<Vec<T>> {
    let mut values = Vec::new();
    match values.try_reserve_exact(usize::try_from(elements).unwrap_or(usize::MAX)) {
        Ok(()) => Ok(values),
        Err(_) => {
            let bytes = elements.saturating_mul(size_of::<T>() as u64);
            Err(ErrorKind::OutOfMemory { holder: what.to_string(), bytes }.into())
        }
    }
}

/// What the first pass learns, in constant memory.
struct Extent {
    /// Lines that hold more than white space: there are no more rows.
    text_lines: u64,
    /// No row has more bytes.
    longest_line: u64,
}

impl Extent {
    fn measure(text: &mut impl BufRead) -> std::io::Result<Extent> {
        let mut extent = Extent { text_lines: 0, longest_line: 0 };
        let (mut line, mut has_text, mut is_quoted, mut may_go_on) = (0u64, false, false, false);
        loop {
            let bytes = text.fill_buf()?;
            if bytes.is_empty() {
                break;
            }
            for &byte in bytes {
                line += 1;
                extent.longest_line = extent.longest_line.max(line);
                is_quoted ^= byte == b'"';
                if byte == b'\n' {
                    may_go_on |= is_quoted;
                    (line, has_text, is_quoted) = (0, false, false);
                } else if !has_text && !byte.is_ascii_whitespace() {
                    has_text = true;
                    extent.text_lines += 1;
                }
            }
            let read = bytes.len();
            text.consume(read);
        }
        if may_go_on {
            extent.longest_line += MOST_QUOTED_BYTES as u64;
        }
        Ok(extent)
    }
}

/// The rows of a text, in one buffer that is used again.
struct Lines<R> {
    text: R,
    /// The first line of the row that was read last.
    number: u64,
    /// What was read, and how much of it was given.
    line: Vec<u8>,
    given: usize,
    more_lines: u64,
}

impl<R: BufRead> Lines<R> {
    fn next(&mut self) -> std::io::Result<Option<&[u8]>> {
        self.number += std::mem::take(&mut self.more_lines);
        self.line.drain(..std::mem::take(&mut self.given));
        let mut is_end = false;
        loop {
            match frame_row(&self.line[self.given..], is_end) {
                Ok(Frame::Record { end, next, lines }) => {
                    let row = self.given..self.given + end;
                    self.given += next;
                    (self.number, self.more_lines) = (self.number + 1, lines - 1);
                    return Ok(Some(&self.line[row]));
                }
                Ok(Frame::Filling(bytes)) => {
                    self.number += 1;
                    self.given += bytes;
                }
                Ok(Frame::More) => {
                    self.line.drain(..std::mem::take(&mut self.given));
                    // Twice as much as was looked at in vain.
                    let enough = (2 * self.line.len()).min(MOST_QUOTED_BYTES + 1);
                    while !is_end && (self.line.is_empty() || self.line.len() < enough) {
                        is_end = self.text.read_until(b'\n', &mut self.line)? == 0;
                    }
                }
                Ok(Frame::End) | Err(_) => return Ok(None),
            }
        }
    }
}

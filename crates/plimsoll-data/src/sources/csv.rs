//! Numbers from a csv file with a header line: what most people's data is.
//!
//! The file is read twice. The first pass counts lines, so that the memory it will take is known, and refused if need
//! be, before any of it is taken; the second parses straight into columns of exactly that size. Every complaint names
//! the line and the column.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek};
use std::path::{Path, PathBuf};

use super::{Answer, Columns, Description, Options, SourceKind};
use crate::{Dataset, Error, ErrorKind, RamBudget, Result};

/// How to read a csv file: which column is to be predicted, and from the others.
///
/// It gives two fields: `features`, `f32`, all other columns in their order; and `label`, `i32` ([`Csv::label`]), or
/// `target`, `f32` ([`Csv::target`]).
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
    answer: String,
    is_label: bool,
    delimiter: char,
    budget: RamBudget,
}

/// A csv file that a workload names.
#[derive(Debug)]
struct CsvFile {
    path: PathBuf,
    csv: Csv,
    /// How many classes the label has.
    classes: Option<usize>,
}

pub(super) const KIND: SourceKind =
    SourceKind { name: "csv", keys: &["path", "label", "classes", "target", "delimiter"], describe };

fn describe(options: &dyn Options) -> Result<Box<dyn Description>> {
    let path = options.need_path("path")?;
    let (label, target) = (options.find_text("label")?, options.find_text("target")?);
    let delimiter = options.find_character("delimiter")?.unwrap_or(',');
    let (csv, classes) = match (label, target) {
        (Some(column), None) => (Csv::label(&column), Some(options.need_count("classes")?)),
        (None, Some(column)) => match options.find_count("classes")? {
            None => (Csv::target(&column), None),
            Some(_) => {
                let message = "`classes` are those of a `label`; a `target` has none";
                return Err(options.refuse(Some("classes"), message));
            }
        },
        _ => {
            let message = "[data] needs exactly one of `label`, a column of class numbers to predict, and `target`, a \
                           column of any numbers";
            return Err(options.refuse(None, message));
        }
    };
    Ok(Box::new(CsvFile { path, csv: csv.delimiter(delimiter), classes }))
}

impl Description for CsvFile {
    fn answer(&self) -> Answer {
        if self.classes.is_some() { Answer::Classes } else { Answer::Number }
    }

    fn open(&self) -> Result<Dataset> {
        let data = Dataset::new(self.csv.open(&self.path)?)?;
        if let Some(classes) = self.classes {
            data.check_labels("label", classes)?;
        }
        Ok(data)
    }
}

impl Csv {
    /// The column to be predicted holds class numbers: whole, from 0.
    pub fn label(column: &str) -> Csv {
        Csv { answer: column.to_string(), is_label: true, delimiter: ',', budget: RamBudget::UNLIMITED }
    }

    /// The column to be predicted holds real numbers.
    pub fn target(column: &str) -> Csv {
        Csv { is_label: false, ..Csv::label(column) }
    }

    /// What stands between cells, if not a comma.
    pub fn delimiter(self, delimiter: char) -> Csv {
        Csv { delimiter, ..self }
    }

    /// The most RAM that the columns and the line being read may hold.
    pub fn budget(self, budget: RamBudget) -> Csv {
        Csv { budget, ..self }
    }

    /// Reads a file.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Columns> {
        let path = path.as_ref();
        let what = path.display().to_string();
        // It is read twice, and to its end.
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(io_error(&what, std::io::Error::other("it is no regular file")));
        }
        let file = File::open(path).map_err(|error| io_error(&what, error))?;
        self.read_named(BufReader::new(file), &what)
    }

    /// Reads text that is already at hand, or anything else that can be read twice.
    pub fn read(&self, text: impl BufRead + Seek) -> Result<Columns> {
        self.read_named(text, "the csv text")
    }

    fn read_named(&self, mut text: impl BufRead + Seek, what: &str) -> Result<Columns> {
        let start = text.stream_position().map_err(|error| io_error(what, error))?;
        let extent = Extent::measure(&mut text).map_err(|error| io_error(what, error))?;
        text.seek(std::io::SeekFrom::Start(start)).map_err(|error| io_error(what, error))?;
        let remedy = "use fewer rows or columns, raise the budget, or convert the file to a form that need not be \
                      held, and implement `Source` over it";
        self.budget.admit(what, extent.longest_line, remedy)?;

        let mut lines = Lines { text, what, number: 0, line: reserve(extent.longest_line, what)? };
        let Some(header) = lines.next()? else {
            return Err(ErrorKind::Empty { what: format!("{what} has no header line") }.into());
        };
        let header = Header::parse(header, self)?;
        // The header is a line of text too, but not a row.
        let rows = extent.text_lines.saturating_sub(1);
        let features = header.names.len() as u64 - 1;
        let bytes = rows.saturating_mul(4 * (features + 1)).saturating_add(extent.longest_line);
        self.budget.admit(what, bytes, remedy)?;

        let mut columns = Parsed {
            features: reserve(rows.saturating_mul(features), what)?,
            labels: vec![],
            targets: vec![],
        };
        if self.is_label {
            columns.labels = reserve(rows, what)?;
        } else {
            columns.targets = reserve(rows, what)?;
        }
        let mut read = 0;
        while let Some(line) = lines.next()? {
            read += 1;
            if read > rows {
                return Err(line_error(
                    line.number,
                    "the file grew while it was read; read it again".to_string(),
                ));
            }
            header.parse_row(line, self, &mut columns)?;
        }
        if read == 0 {
            return Err(ErrorKind::Empty { what: format!("{what} has a header but no rows") }.into());
        }
        drop(lines);
        let result =
            Columns::within(self.budget).column("features", &[features as usize], columns.features)?;
        if self.is_label {
            result.column("label", &[], columns.labels)
        } else {
            result.column("target", &[], columns.targets)
        }
    }
}

/// The values read so far. Of the last two, one stays empty.
struct Parsed {
    features: Vec<f32>,
    labels: Vec<i32>,
    targets: Vec<f32>,
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
    /// Lines that hold more than white space.
    text_lines: u64,
    /// Bytes of the longest line.
    longest_line: u64,
}

impl Extent {
    fn measure(text: &mut impl BufRead) -> std::io::Result<Extent> {
        let mut extent = Extent { text_lines: 0, longest_line: 0 };
        let (mut line, mut has_text) = (0u64, false);
        loop {
            let bytes = text.fill_buf()?;
            if bytes.is_empty() {
                break;
            }
            for &byte in bytes {
                line += 1;
                extent.longest_line = extent.longest_line.max(line);
                if byte == b'\n' {
                    (line, has_text) = (0, false);
                } else if !has_text && !byte.is_ascii_whitespace() {
                    has_text = true;
                    extent.text_lines += 1;
                }
            }
            let read = bytes.len();
            text.consume(read);
        }
        Ok(extent)
    }
}

/// The lines that hold more than white space, in one buffer that is used again.
struct Lines<'a, R> {
    text: R,
    what: &'a str,
    number: u64,
    line: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Line<'a> {
    number: u64,
    text: &'a str,
}

impl<R: BufRead> Lines<'_, R> {
    fn next(&mut self) -> Result<Option<Line<'_>>> {
        loop {
            self.line.clear();
            let read =
                self.text.read_until(b'\n', &mut self.line).map_err(|error| io_error(self.what, error))?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            if !self.line.trim_ascii().is_empty() {
                break;
            }
        }
        let text = std::str::from_utf8(&self.line).map_err(|_| {
            line_error(self.number, "this is not UTF-8 text; save the file as UTF-8".to_string())
        })?;
        let text = text.trim_start_matches('\u{feff}').trim_end_matches(['\n', '\r']);
        Ok(Some(Line { number: self.number, text }))
    }
}

struct Header {
    names: Vec<String>,
    answer: usize,
}

impl Header {
    fn parse(line: Line<'_>, csv: &Csv) -> Result<Header> {
        let (mut names, mut seen) = (Vec::new(), HashSet::new());
        for cell in cells(line.text, csv.delimiter) {
            let name = unquote(cell).ok_or_else(|| line_error(line.number, unended(cell)))?.into_owned();
            if !seen.insert(name.clone()) {
                return Err(line_error(line.number, format!("two columns are named `{name}`")));
            }
            names.push(name);
        }
        let Some(answer) = names.iter().position(|name| *name == csv.answer) else {
            return Err(ErrorKind::NoSuchField {
                asked: format!("`{}` in the header", csv.answer),
                known: names,
            }
            .into());
        };
        if names.len() < 2 {
            let reason = format!("`{}` is the only column; there is nothing to predict it from", csv.answer);
            return Err(line_error(line.number, reason));
        }
        Ok(Header { names, answer })
    }

    fn parse_row(&self, line: Line<'_>, csv: &Csv, columns: &mut Parsed) -> Result<()> {
        let mut count = 0;
        for cell in cells(line.text, csv.delimiter) {
            if let Some(name) = self.names.get(count) {
                let fail = |reason| -> Error {
                    ErrorKind::Parse { line: line.number, column: Some(name.clone()), reason }.into()
                };
                let cell = unquote(cell).ok_or_else(|| fail(unended(cell)))?;
                if count != self.answer {
                    columns.features.push(real(&cell).map_err(fail)?);
                } else if csv.is_label {
                    columns.labels.push(whole(&cell).map_err(fail)?);
                } else {
                    columns.targets.push(real(&cell).map_err(fail)?);
                }
            }
            count += 1;
        }
        if count != self.names.len() {
            let reason = format!("it has {count} cells where the header has {}", self.names.len());
            return Err(line_error(line.number, reason));
        }
        Ok(())
    }
}

fn real(cell: &str) -> std::result::Result<f32, String> {
    match cell.parse::<f32>() {
        _ if cell.is_empty() => Err("the cell is empty; fill it, or remove the row".to_string()),
        Ok(value) if value.is_finite() => Ok(value),
        Ok(_) => Err(format!("`{cell}` is not a finite f32; replace it, or remove the row")),
        Err(_) => Err(format!("`{cell}` is not a number; only numeric columns can be read")),
    }
}

/// A whole number; `3.0` is one, since other programs write integers so.
fn whole(cell: &str) -> std::result::Result<i32, String> {
    let written_as_real = || {
        let value = cell.parse::<f64>().ok()?;
        (value.fract() == 0.0 && f64::from(value as i32) == value).then_some(value as i32)
    };
    match cell.parse::<i32>().ok().or_else(written_as_real) {
        Some(value) => Ok(value),
        None => Err(format!("`{cell}` is not a class number; number the classes 0, 1, 2 and so on")),
    }
}

/// The cells of a line, split where a delimiter stands outside of quotes.
fn cells(line: &str, delimiter: char) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    line.split(move |c: char| {
        quoted ^= c == '"';
        c == delimiter && !quoted
    })
}

/// What a cell says, without white space and quotes around it; nothing if its quotes do not end on the line.
fn unquote(cell: &str) -> Option<Cow<'_, str>> {
    let cell = cell.trim();
    let Some(opened) = cell.strip_prefix('"') else { return Some(Cow::Borrowed(cell)) };
    let inner = opened.strip_suffix('"')?.trim();
    Some(if inner.contains("\"\"") { Cow::Owned(inner.replace("\"\"", "\"")) } else { Cow::Borrowed(inner) })
}

fn unended(cell: &str) -> String {
    format!("the quotes of `{}` do not end on the line; cells over several lines cannot be read", cell.trim())
}

fn line_error(line: u64, reason: String) -> Error {
    ErrorKind::Parse { line, column: None, reason }.into()
}

fn io_error(what: &str, error: std::io::Error) -> Error {
    ErrorKind::Io { what: what.to_string(), error }.into()
}

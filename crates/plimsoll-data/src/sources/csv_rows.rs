//! The rows of a csv file: its header, and how a line becomes numbers.
//!
//! Almost every cell is a plain number, which is parsed where it stands and must end at a delimiter. What is not
//! (quotes, odd white space, things that are no number) is cut out by the rules of csv and looked at closely, so that
//! the quick way decides nothing that the careful one would decide otherwise.

use super::Classes;
use super::csv::Csv;
use super::decimal::{parse_short, parse_single};
use super::records::format::{Fault, Format, Framing, Out, Parsed, Place, frame_row};
use super::records::input::Input;
use super::records::key::no_class;
use super::table_columns::{Cells, Names, real};
use crate::{Element, Error, ErrorKind, Field, Result};
use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The fields' positions.
const FEATURES: usize = 0;
const ANSWER: usize = 1;

/// Rows with the columns of a header.
#[derive(Debug)]
pub(super) struct Rows {
    fields: Arc<[Field]>,
    header: Header,
    /// What each column of the header becomes.
    columns: Vec<Column>,
    /// The column that is to be predicted, if it is read.
    answer: Option<usize>,
    /// How many different tokens there are, if features are tokens.
    vocabulary: Option<usize>,
    labels: Labels,
    delimiter: Delimiter,
    /// Whether fractions follow a comma.
    is_comma: bool,
    /// The file whose header this is.
    path: PathBuf,
}

/// What becomes of a column.
#[derive(Debug)]
struct Column {
    cells: Cells,
    /// The first of its features, among those of a row.
    first: usize,
}

/// What the answers are.
#[derive(Debug)]
enum Labels {
    /// Any numbers: no labels.
    None,
    /// Whole numbers, below this one if it is said.
    Numbered(Option<usize>),
    Named(Names),
}

/// The names of columns.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) names: Vec<String>,
}

impl Header {
    pub(super) fn parse(line: &[u8], delimiter: char) -> Parsed<Header> {
        let delimiter = Delimiter::new(delimiter);
        let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        let (mut names, mut seen) = (Vec::new(), HashSet::new());
        let mut at = 0;
        loop {
            let cell = &line[at..][..delimiter.cell_length(&line[at..])];
            let name = unquote(cell, at)?.into_owned();
            if !seen.insert(name.clone()) {
                return Err(Fault::new(at, format!("two columns are named `{name}`")));
            }
            names.push(name);
            at += cell.len();
            if at == line.len() {
                return Ok(Header { names });
            }
            at += delimiter.character.len_utf8();
        }
    }
}

impl Rows {
    /// The rows of files that have the header of this one.
    pub(super) fn open(csv: &Csv, path: &Path, delimiter: char) -> Result<Rows> {
        let mut input = Input::open(path, |_| false)?.within(csv.budget);
        let header = read_header(&mut input, delimiter)?;
        Rows::new(csv, header, delimiter, Some(path), input.line())
    }

    /// The rows below a header, which is on this line.
    pub(super) fn new(
        csv: &Csv,
        header: Header,
        delimiter: char,
        path: Option<&Path>,
        line: u64,
    ) -> Result<Rows> {
        let names = &header.names;
        let found = names.iter().position(|name| *name == csv.answer);
        if found.is_none() && !csv.is_without_answer {
            if let Some(reason) = not_parted(&header, &csv.answer) {
                return Err(row_error(path, line, Fault::new(0, reason)));
            }
            let asked = format!("`{}` in the header", csv.answer);
            return Err(ErrorKind::NoSuchField { asked, known: header.names }.into());
        }
        let answer = found.filter(|_| !csv.is_without_answer);
        let columns = columns(csv, names, found)?;
        let features: usize = columns.iter().map(|column| column.cells.width()).sum();
        if features == 0 {
            let reason = format!("it has no column to predict `{}` from", csv.answer);
            return Err(row_error(path, line, Fault::new(0, reason)));
        }
        let features = csv.selection.field(features)?;
        let (name, element) = if csv.is_label { ("label", Element::I32) } else { ("target", Element::F32) };
        let mut fields = vec![features];
        if answer.is_some() {
            fields.push(Field::new(name, element, &[])?);
        }
        let fields = fields.into();
        let labels = match &csv.classes {
            _ if !csv.is_label => Labels::None,
            None => Labels::Numbered(None),
            Some(Classes::Numbered(classes)) => Labels::Numbered(Some(*classes)),
            Some(Classes::Named(names)) => Labels::Named(Names::new(names).map_err(|reason| {
                Error::from(ErrorKind::Field {
                    name: csv.answer.clone(),
                    reason: format!("classes: {reason}"),
                })
            })?),
        };
        let path = path.map(Path::to_path_buf).unwrap_or_default();
        let (delimiter, is_comma) = (Delimiter::new(delimiter), csv.is_comma);
        let vocabulary = csv.selection.tokens().map(|tokens| tokens.vocabulary);
        Ok(Rows { fields, header, columns, answer, vocabulary, labels, delimiter, is_comma, path })
    }

    /// The features of a row.
    pub(super) fn features(&self) -> usize {
        self.fields[FEATURES].elements()
    }

    /// Writes the features of a row; returns where the cell of the answer is.
    fn parse_features(&self, line: &[u8], out: &mut [[u8; 4]]) -> Parsed<Range<usize>> {
        let (mut answer, mut at, mut column) = (0..0, 0, 0);
        loop {
            let text = &line[at..];
            let length = match self.columns.get(column) {
                Some(Column { cells: Cells::Plain, first }) => {
                    match self.delimiter.quick_real(text, self.is_comma) {
                        Some((value, length)) => {
                            out[*first] = value.to_ne_bytes();
                            length
                        }
                        None => self.careful(text, at, column, out)?,
                    }
                }
                Some(Column { cells: Cells::Answer, .. }) => {
                    let length = self.delimiter.cell_length(text);
                    answer = at..at + length;
                    length
                }
                Some(Column { cells: Cells::Ignored, .. }) | None => self.delimiter.cell_length(text),
                Some(_) => self.careful(text, at, column, out)?,
            };
            column += 1;
            at += length;
            if at >= line.len() {
                break;
            }
            at += self.delimiter.character.len_utf8();
        }
        if column != self.columns.len() {
            let reason = format!("it has {column} cells where the header has {}", self.columns.len());
            return Err(Fault::new(0, reason));
        }
        Ok(answer)
    }

    /// Writes the features of a cell that is more than a plain number; returns the cell's length.
    fn careful(&self, text: &[u8], at: usize, column: usize, out: &mut [[u8; 4]]) -> Parsed<usize> {
        let length = self.delimiter.cell_length(text);
        let Column { cells, first } = &self.columns[column];
        let out = &mut out[*first..first + cells.width()];
        let written = self.read_cell(&text[..length], at, cells.are_numbers());
        let written = written.and_then(|cell| cells.write(&cell, at, out));
        written.map_err(|fault| self.blame(fault, column))?;
        Ok(length)
    }

    /// What a cell says. A number is written with a point.
    fn read_cell<'a>(&self, cell: &'a [u8], at: usize, is_number: bool) -> Parsed<Cow<'a, str>> {
        let cell = unquote(cell, at)?;
        if is_number && self.is_comma { with_point(cell, at) } else { Ok(cell) }
    }

    /// Where the cell of the answer is.
    fn find_answer(&self, line: &[u8]) -> Range<usize> {
        let mut at = 0;
        for _ in 0..self.answer.unwrap_or(0) {
            at += self.delimiter.cell_length(&line[at..]) + self.delimiter.character.len_utf8();
            at = at.min(line.len());
        }
        at..at + self.delimiter.cell_length(&line[at..])
    }

    fn parse_answer(&self, line: &[u8], cell: Range<usize>) -> Parsed<[u8; 4]> {
        let (text, at) = (&line[cell.clone()], cell.start);
        let parse = || -> Parsed<[u8; 4]> {
            let classes = match &self.labels {
                Labels::None => return Ok(real(&self.read_cell(text, at, true)?, at)?.to_ne_bytes()),
                Labels::Named(names) => {
                    let class = names.find(&unquote(text, at)?).map_err(|reason| Fault::new(at, reason))?;
                    // There are no more names than lines of a workload.
                    return Ok((class as i32).to_ne_bytes());
                }
                Labels::Numbered(classes) => *classes,
            };
            let label = match quick_whole(text) {
                Some(label) => label,
                None => whole(&self.read_cell(text, at, true)?, at)?,
            };
            match classes {
                Some(classes) if usize::try_from(label).map_or(true, |label| label >= classes) => {
                    Err(Fault::new(at, no_class(label.into(), classes)))
                }
                _ => Ok(label.to_ne_bytes()),
            }
        };
        parse().map_err(|fault| match self.answer {
            Some(answer) => self.blame(fault, answer),
            None => fault,
        })
    }

    /// The same fault, of a column, unless the text as such is at fault.
    fn blame(&self, fault: Fault, column: usize) -> Fault {
        if fault.reason == NOT_TEXT { fault } else { fault.of(&self.header.names[column]) }
    }
}

impl Format for Rows {
    fn fields(&self) -> &Arc<[Field]> {
        &self.fields
    }

    fn begin(&self, input: &mut Input) -> Result<()> {
        let header = read_header(input, self.delimiter.character)?;
        if header == self.header {
            return Ok(());
        }
        let other = self.path.display();
        let pairs = header.names.iter().zip(&self.header.names).enumerate();
        let reason = match pairs.into_iter().find(|(_, (own, other))| own != other) {
            Some((at, (name, expected))) => {
                format!("its column {} is `{name}` where that of {other} is `{expected}`", at + 1)
            }
            None => format!(
                "its header has {} columns where that of {other} has {}",
                header.names.len(),
                self.columns.len()
            ),
        };
        let (path, reason) = (
            input.path().to_path_buf(),
            format!("{reason}: files that are read as one have the same columns"),
        );
        Err(ErrorKind::File { path, sample: None, offset: None, reason }.into())
    }

    fn framing(&self) -> Framing {
        frame_row
    }

    fn parse(&self, line: &[u8], out: &mut Out<'_>) -> Parsed<()> {
        let failed = |error: Error| Fault::new(0, error.to_string());
        let answer = if out.wants(FEATURES) {
            let room = out.room(FEATURES, self.fields[FEATURES].shape()).map_err(failed)?;
            self.parse_features(line, room.as_chunks_mut().0)?
        } else {
            self.find_answer(line)
        };
        if let Some(column) = self.answer.filter(|_| out.wants(ANSWER)) {
            let is_feature = !matches!(self.columns[column].cells, Cells::Answer);
            let answer = if is_feature { self.find_answer(line) } else { answer };
            let value = self.parse_answer(line, answer)?;
            out.room(ANSWER, &[]).map_err(failed)?.copy_from_slice(&value);
        }
        Ok(())
    }

    fn is_checked_when_opened(&self) -> bool {
        true
    }

    fn classes(&self, position: usize) -> Option<usize> {
        match &self.labels {
            _ if position != ANSWER => self.vocabulary,
            Labels::None => None,
            Labels::Numbered(classes) => *classes,
            Labels::Named(names) => Some(names.count()),
        }
    }

    fn no_records(&self, paths: &[PathBuf]) -> Error {
        let path = paths.first().unwrap_or(&self.path).display();
        let what = match paths.len() {
            0 | 1 => format!("{path} has a header but no rows"),
            files => format!("{path} and {} more files have headers but no rows", files - 1),
        };
        ErrorKind::Empty { what }.into()
    }

    fn error(&self, place: Place<'_>, fault: Fault) -> Error {
        match place.line {
            Some(line) => row_error(Some(place.path), line, fault),
            None => place.file_error(fault),
        }
    }
}

/// What becomes of the columns of a header, of which one is the answer if it is there.
fn columns(csv: &Csv, names: &[String], answer: Option<usize>) -> Result<Vec<Column>> {
    let mut columns: Vec<Column> = names.iter().map(|_| Column { cells: Cells::Ignored, first: 0 }).collect();
    if let Some(answer) = answer.filter(|_| !csv.is_without_answer) {
        columns[answer].cells = Cells::Answer;
    }
    let mut first = 0;
    let excluded = answer.filter(|_| !csv.is_answer_known);
    for (at, cells) in csv.selection.resolve(names, excluded, |_| true)? {
        let width = cells.width();
        columns[at] = Column { first, cells };
        first += width;
    }
    Ok(columns)
}

/// Characters that often stand between cells.
const DELIMITERS: [(char, &str); 4] = [(';', ";"), ('\t', "\\t"), (',', ","), ('|', "|")];

/// What is to be done about a header without the column that is asked for, if it would have it were it parted otherwise.
fn not_parted(header: &Header, asked: &str) -> Option<String> {
    if header.names.iter().any(|name| name.contains('\r')) {
        return Some("its lines end with CR alone: save the file with LF or CR LF between lines".to_string());
    }
    let [only] = &header.names[..] else { return None };
    let parts = |&(delimiter, _): &(char, &str)| {
        only.split(delimiter).any(|name| name.trim().trim_matches('"') == asked) && only.contains(delimiter)
    };
    let (_, written) = DELIMITERS.iter().find(|delimiter| parts(delimiter))?;
    Some(format!(
        "the header is one column, `{only}`: say what stands between cells, as `delimiter = \"{written}\"`"
    ))
}

pub(super) fn read_header(input: &mut Input, delimiter: char) -> Result<Header> {
    if !input.next(frame_row, 0)? {
        return Err(
            ErrorKind::Empty { what: format!("{} has no header line", input.path().display()) }.into()
        );
    }
    let header = Header::parse(input.record(), delimiter);
    header.map_err(|fault| row_error(Some(input.path()), input.line(), fault))
}

/// The error that names line and column.
pub(super) fn row_error(path: Option<&Path>, line: u64, fault: Fault) -> Error {
    let path = path.map(Path::to_path_buf);
    ErrorKind::Parse { path, line, column: fault.key, reason: fault.reason }.into()
}

/// What stands between cells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delimiter {
    pub(super) character: char,
    /// The same, if it is one byte that is no part of a number or of quotes.
    plain: Option<u8>,
}

impl Delimiter {
    pub(super) fn new(character: char) -> Delimiter {
        let is_plain = character.is_ascii()
            && !character.is_ascii_alphanumeric()
            && !['+', '-', '.', '"'].contains(&character);
        Delimiter { character, plain: is_plain.then_some(character as u8) }
    }

    /// The length of the cell that these bytes begin with: up to a delimiter outside of quotes.
    pub(super) fn cell_length(self, text: &[u8]) -> usize {
        if let Some(delimiter) = self.plain {
            match memchr::memchr2(delimiter, b'"', text) {
                None => return text.len(),
                Some(at) if text[at] == delimiter => return at,
                Some(_) => {}
            }
        }
        let mut encoded = [0; 4];
        let delimiter = self.character.encode_utf8(&mut encoded).as_bytes();
        let mut quoted = false;
        for at in 0..text.len() {
            quoted ^= text[at] == b'"';
            if !quoted && text[at..].starts_with(delimiter) {
                return at;
            }
        }
        text.len()
    }

    /// The finite number that is all of the first cell of these bytes, and the cell's length.
    #[inline]
    fn quick_real(self, text: &[u8], is_comma: bool) -> Option<(f32, usize)> {
        let delimiter = self.plain?;
        let spaces = match text.first() {
            Some(b' ') if delimiter != b' ' => text.iter().take_while(|&&byte| byte == b' ').count(),
            _ => 0,
        };
        let (value, length) = match (is_comma, delimiter) {
            (false, _) => parse_single(&text[spaces..])?,
            // Only quotes tell a fraction from the next cell.
            (true, b',') => return None,
            (true, _) => parse_short(&text[spaces..], b',')?,
        };
        let length = spaces + length;
        let is_all = text.get(length).is_none_or(|&byte| byte == delimiter);
        (is_all && value.is_finite()).then_some((value, length))
    }
}

/// A class number that is nothing but a few digits.
fn quick_whole(cell: &[u8]) -> Option<i32> {
    if cell.is_empty() || cell.len() > 9 || !cell.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(cell.iter().fold(0, |value, digit| value * 10 + i32::from(digit - b'0')))
}

/// A whole number; `3.0` is one, since other programs write integers so.
fn whole(cell: &str, at: usize) -> Parsed<i32> {
    let written_as_real = || {
        let value = cell.parse::<f64>().ok()?;
        (value.fract() == 0.0 && f64::from(value as i32) == value).then_some(value as i32)
    };
    cell.parse::<i32>().ok().or_else(written_as_real).ok_or_else(|| {
        Fault::new(at, format!("`{cell}` is not a class number; number the classes 0, 1, 2 and so on, or list their names as the classes"))
    })
}

/// The same number with a point before its fraction in place of a comma.
pub(super) fn with_point(cell: Cow<'_, str>, at: usize) -> Parsed<Cow<'_, str>> {
    if cell.contains('.') && cell.bytes().any(|byte| byte.is_ascii_digit()) {
        let reason = format!(
            "`{cell}` has a point, where fractions follow a comma: write numbers without points between thousands, as 1234,5"
        );
        return Err(Fault::new(at, reason));
    }
    Ok(if cell.contains(',') { Cow::Owned(cell.replace(',', ".")) } else { cell })
}

const NOT_TEXT: &str = "this is not UTF-8 text; save the file as UTF-8";

/// What a cell says, without white space and quotes around it.
pub(super) fn unquote(cell: &[u8], at: usize) -> Parsed<Cow<'_, str>> {
    let cell = std::str::from_utf8(cell).map_err(|_| Fault::new(at, NOT_TEXT))?.trim();
    let Some(opened) = cell.strip_prefix('"') else { return Ok(Cow::Borrowed(cell)) };
    let Some(inner) = opened.strip_suffix('"').map(str::trim) else {
        let reason =
            format!("the quotes of `{cell}` are not closed: write a quote that is part of a cell twice");
        return Err(Fault::new(at, reason));
    };
    Ok(if inner.contains("\"\"") { Cow::Owned(inner.replace("\"\"", "\"")) } else { Cow::Borrowed(inner) })
}

//! The rows of a csv file: its header, and how a line becomes numbers.
//!
//! Almost every cell is a plain number, which is parsed where it stands and must end at a delimiter. What is not
//! (quotes, odd white space, things that are no number) is cut out by the rules of csv and looked at closely, so that
//! the quick way decides nothing that the careful one would decide otherwise.

use super::csv::Csv;
use super::decimal::parse_single;
use super::records::format::{Fault, Format, Framing, Out, Place, frame_line};
use super::records::input::Input;
use super::records::key::no_class;
use crate::{Element, Error, ErrorKind, Field, Result};
use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The fields' positions.
const FEATURES: usize = 0;
const ANSWER: usize = 1;

type Parsed<T> = std::result::Result<T, Fault>;

/// Rows with the columns of a header.
#[derive(Debug)]
pub(super) struct Rows {
    fields: Arc<[Field]>,
    header: Header,
    /// The column that is to be predicted.
    answer: usize,
    is_label: bool,
    /// How many classes there are, if others are refused.
    classes: Option<usize>,
    delimiter: Delimiter,
    /// The file whose header this is.
    path: PathBuf,
}

/// The names of columns.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    names: Vec<String>,
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
        let Some(answer) = names.iter().position(|name| *name == csv.answer) else {
            if let Some(reason) = not_parted(&header, &csv.answer) {
                return Err(row_error(path, line, Fault::new(0, reason)));
            }
            let asked = format!("`{}` in the header", csv.answer);
            return Err(ErrorKind::NoSuchField { asked, known: header.names }.into());
        };
        if names.len() < 2 {
            let reason = format!("`{}` is the only column; there is nothing to predict it from", csv.answer);
            return Err(row_error(path, line, Fault::new(0, reason)));
        }
        let features = Field::new("features", Element::F32, &[names.len() - 1])?;
        let (name, element) = if csv.is_label { ("label", Element::I32) } else { ("target", Element::F32) };
        let fields = [features, Field::new(name, element, &[])?].into();
        let path = path.map(Path::to_path_buf).unwrap_or_default();
        let Csv { is_label, classes, .. } = *csv;
        let delimiter = Delimiter::new(delimiter);
        Ok(Rows { fields, header, answer, is_label, classes, delimiter, path })
    }

    /// Columns, that of the answer included.
    pub(super) fn columns(&self) -> usize {
        self.header.names.len()
    }

    /// Writes the features of a row; returns where the cell of the answer is.
    fn parse_features(&self, line: &[u8], out: &mut [[u8; 4]]) -> Parsed<Range<usize>> {
        let (mut answer, mut at, mut column) = (0..0, 0, 0);
        let mut out = out.iter_mut();
        loop {
            let text = &line[at..];
            let length = if column == self.answer {
                let length = self.delimiter.cell_length(text);
                answer = at..at + length;
                length
            } else if let Some((value, length)) = self.delimiter.quick_real(text) {
                if let Some(out) = out.next() {
                    *out = value.to_ne_bytes();
                }
                length
            } else {
                self.careful_real(text, at, column, out.next())?
            };
            column += 1;
            at += length;
            if at >= line.len() {
                break;
            }
            at += self.delimiter.character.len_utf8();
        }
        if column != self.columns() {
            let reason = format!("it has {column} cells where the header has {}", self.columns());
            return Err(Fault::new(0, reason));
        }
        Ok(answer)
    }

    /// Writes a cell that is no plain number, unless it is beyond the header's; returns its length.
    #[cold]
    fn careful_real(
        &self,
        text: &[u8],
        at: usize,
        column: usize,
        out: Option<&mut [u8; 4]>,
    ) -> Parsed<usize> {
        let length = self.delimiter.cell_length(text);
        if let Some(out) = out {
            let value = unquote(&text[..length], at).and_then(|cell| real(&cell, at));
            *out = value.map_err(|fault| self.blame(fault, column))?.to_ne_bytes();
        }
        Ok(length)
    }

    /// Where the cell of the answer is.
    fn find_answer(&self, line: &[u8]) -> Range<usize> {
        let mut at = 0;
        for _ in 0..self.answer {
            at += self.delimiter.cell_length(&line[at..]) + self.delimiter.character.len_utf8();
            at = at.min(line.len());
        }
        at..at + self.delimiter.cell_length(&line[at..])
    }

    fn parse_answer(&self, line: &[u8], cell: Range<usize>) -> Parsed<[u8; 4]> {
        let (text, at) = (&line[cell.clone()], cell.start);
        let parse = || -> Parsed<[u8; 4]> {
            if !self.is_label {
                return Ok(real(&unquote(text, at)?, at)?.to_ne_bytes());
            }
            let label = match quick_whole(text) {
                Some(label) => label,
                None => whole(&unquote(text, at)?, at)?,
            };
            match self.classes {
                Some(classes) if usize::try_from(label).map_or(true, |label| label >= classes) => {
                    Err(Fault::new(at, no_class(label.into(), classes)))
                }
                _ => Ok(label.to_ne_bytes()),
            }
        };
        parse().map_err(|fault| self.blame(fault, self.answer))
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
                self.columns()
            ),
        };
        let (path, reason) = (
            input.path().to_path_buf(),
            format!("{reason}: files that are read as one have the same columns"),
        );
        Err(ErrorKind::File { path, sample: None, offset: None, reason }.into())
    }

    fn framing(&self) -> Framing {
        frame_line
    }

    fn parse(&self, line: &[u8], out: &mut Out<'_>) -> Parsed<()> {
        let failed = |error: Error| Fault::new(0, error.to_string());
        let answer = if out.wants(FEATURES) {
            let room = out.room(FEATURES, self.fields[FEATURES].shape()).map_err(failed)?;
            self.parse_features(line, room.as_chunks_mut().0)?
        } else {
            self.find_answer(line)
        };
        if out.wants(ANSWER) {
            let value = self.parse_answer(line, answer)?;
            out.room(ANSWER, &[]).map_err(failed)?.copy_from_slice(&value);
        }
        Ok(())
    }

    fn is_checked_when_opened(&self) -> bool {
        true
    }

    fn classes(&self, position: usize) -> Option<usize> {
        self.classes.filter(|_| position == ANSWER && self.is_label)
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

fn read_header(input: &mut Input, delimiter: char) -> Result<Header> {
    if !input.next(frame_line, 0)? {
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
struct Delimiter {
    character: char,
    /// The same, if it is one byte that is no part of a number or of quotes.
    plain: Option<u8>,
}

impl Delimiter {
    fn new(character: char) -> Delimiter {
        let is_plain = character.is_ascii()
            && !character.is_ascii_alphanumeric()
            && !['+', '-', '.', '"'].contains(&character);
        Delimiter { character, plain: is_plain.then_some(character as u8) }
    }

    /// The length of the cell that these bytes begin with: up to a delimiter outside of quotes.
    fn cell_length(self, text: &[u8]) -> usize {
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
    fn quick_real(self, text: &[u8]) -> Option<(f32, usize)> {
        let delimiter = self.plain?;
        let spaces = match text.first() {
            Some(b' ') if delimiter != b' ' => text.iter().take_while(|&&byte| byte == b' ').count(),
            _ => 0,
        };
        let (value, length) = parse_single(&text[spaces..])?;
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

fn real(cell: &str, at: usize) -> Parsed<f32> {
    let reason = match cell.parse::<f32>() {
        _ if cell.is_empty() => "the cell is empty; fill it, or remove the row".to_string(),
        Ok(value) if value.is_finite() => return Ok(value),
        Ok(_) => format!("`{cell}` is not a finite f32; replace it, or remove the row"),
        Err(_) if cell.replace(',', "").parse::<f32>().is_ok() => {
            format!("`{cell}` is not a number as it is read; write it with a point and no commas, as 1234.5")
        }
        Err(_) => format!("`{cell}` is not a number; only numeric columns can be read"),
    };
    Err(Fault::new(at, reason))
}

/// A whole number; `3.0` is one, since other programs write integers so.
fn whole(cell: &str, at: usize) -> Parsed<i32> {
    let written_as_real = || {
        let value = cell.parse::<f64>().ok()?;
        (value.fract() == 0.0 && f64::from(value as i32) == value).then_some(value as i32)
    };
    cell.parse::<i32>().ok().or_else(written_as_real).ok_or_else(|| {
        Fault::new(at, format!("`{cell}` is not a class number; number the classes 0, 1, 2 and so on"))
    })
}

const NOT_TEXT: &str = "this is not UTF-8 text; save the file as UTF-8";

/// What a cell says, without white space and quotes around it.
fn unquote(cell: &[u8], at: usize) -> Parsed<Cow<'_, str>> {
    let cell = std::str::from_utf8(cell).map_err(|_| Fault::new(at, NOT_TEXT))?.trim();
    let Some(opened) = cell.strip_prefix('"') else { return Ok(Cow::Borrowed(cell)) };
    let Some(inner) = opened.strip_suffix('"').map(str::trim) else {
        let reason =
            format!("the quotes of `{cell}` do not end on the line; cells over several lines cannot be read");
        return Err(Fault::new(at, reason));
    };
    Ok(if inner.contains("\"\"") { Cow::Owned(inner.replace("\"\"", "\"")) } else { Cow::Borrowed(inner) })
}

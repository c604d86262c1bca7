//! Tables as workloads have them: one column is predicted from others, by default from all that hold numbers.
//!
//! A row cannot be had without unpacking its block, which in a random order would be a block for each row. So the values of a
//! small table are kept, and the rows of a large one are given in their order.

use super::super::concatenated::differing;
use super::super::files::Paths;
use super::super::predicted::Predicted;
use super::super::records::key::no_class;
use super::super::table_columns::{Cells, Names, Selection};
use super::super::table_kinds::Form;
use super::super::{Answer, Classes, Columns, Description, Tokens};
use super::{Block, Table, arrow, error, parquet};
use crate::source::{Promise, RecordReader, field_named};
use crate::{Dataset, Element, Error, ErrorKind, Field, Record, Result, Source};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The most bytes of values that are kept.
const MOST_KEPT_BYTES: u64 = 64 << 20;

/// Files that a workload names.
#[derive(Clone, Debug)]
pub(in super::super) struct Described {
    pub(in super::super) path: PathBuf,
    pub(in super::super) form: Form,
    pub(in super::super) predicted: Predicted,
    pub(in super::super) selection: Selection,
    /// Whether there is a column to be predicted.
    pub(in super::super) wants_answer: bool,
}

impl Description for Described {
    fn answer(&self) -> Answer {
        self.predicted.answer()
    }

    fn tokens(&self) -> Option<Tokens> {
        self.selection.tokens()
    }

    fn open(&self) -> Result<Dataset> {
        let files = Files { paths: Paths::from(&self.path).files()?, of: self.clone() };
        let (first, mut samples) = (files.open(0)?.fields, 0usize);
        for (file, path) in files.paths.iter().enumerate() {
            let rows = files.open(file)?;
            if rows.fields != first {
                let name = |path: &Path| path.display().to_string();
                return Err(differing(&name(path), &rows.fields, &name(&files.paths[0]), &first));
            }
            samples = samples.saturating_add(rows.samples());
        }
        let files = Arc::new(files);
        let row_bytes: u64 = first.iter().map(|field| field.bytes() as u64).sum();
        if row_bytes.saturating_mul(samples as u64) <= MOST_KEPT_BYTES {
            return Dataset::new(kept(InOrder::new(&files), &first)?);
        }
        Dataset::from_reader(&first, None, move |_| Ok(Box::new(InOrder::new(&files))))
    }
}

/// Files that are read as one. They are opened one at a time, since each keeps some of its rows.
struct Files {
    paths: Vec<PathBuf>,
    of: Described,
}

impl Files {
    fn open(&self, file: usize) -> Result<Rows> {
        let table = match self.of.form {
            Form::Parquet => parquet(&self.paths[file])?,
            Form::Arrow => arrow(&self.paths[file])?,
        };
        Rows::new(table, &self.of)
    }
}

/// All rows in memory.
fn kept(mut rows: InOrder, fields: &[Field]) -> Result<Columns> {
    let mut record = Record::new(&fields.into());
    let (mut features, mut tokens) = (Vec::new(), Vec::new());
    let (mut labels, mut targets) = (Vec::new(), Vec::new());
    let are_tokens = fields[FEATURES].element() == Element::I32;
    let answer = fields.get(ANSWER).map(Field::element);
    while rows.next(&mut record)? {
        match are_tokens {
            true => tokens.extend_from_slice(record.get::<i32>("tokens")?),
            false => features.extend_from_slice(record.get::<f32>("features")?),
        }
        match answer {
            Some(Element::I32) => labels.extend_from_slice(record.get::<i32>("label")?),
            Some(_) => targets.extend_from_slice(record.get::<f32>("target")?),
            None => {}
        }
    }
    let shape = fields[FEATURES].shape();
    let columns = match are_tokens {
        true => Columns::new().column("tokens", shape, tokens)?,
        false => Columns::new().column("features", shape, features)?,
    };
    match answer {
        Some(Element::I32) => columns.column("label", &[], labels),
        Some(_) => columns.column("target", &[], targets),
        None => Ok(columns),
    }
}

/// Rows one after the other.
struct InOrder {
    files: Arc<Files>,
    /// The file that is opened next.
    file: usize,
    /// What is read, and the row of it that comes next.
    rows: Option<(Rows, usize)>,
}

impl InOrder {
    fn new(files: &Arc<Files>) -> InOrder {
        InOrder { files: Arc::clone(files), file: 0, rows: None }
    }
}

impl RecordReader for InOrder {
    fn next(&mut self, out: &mut Record) -> Result<bool> {
        loop {
            if let Some((rows, next)) = &mut self.rows {
                if *next < rows.samples() {
                    *next += 1;
                    rows.read_record(*next - 1, out)?;
                    return Ok(true);
                }
                self.rows = None;
            }
            if self.file == self.files.paths.len() {
                return Ok(false);
            }
            self.file += 1;
            self.rows = Some((self.files.open(self.file - 1)?, 0));
        }
    }
}

/// The fields' positions.
const FEATURES: usize = 0;
const ANSWER: usize = 1;

/// The rows of a table as `features`, `f32`, or `tokens`, `i32`, and `label`, `i32`, or `target`, `f32`, if it has that column.
struct Rows {
    /// With the answer as its last column.
    table: Table,
    fields: Vec<Field>,
    /// What becomes of each column that is a feature.
    cells: Vec<Cells>,
    /// How many different tokens there are, if features are tokens.
    vocabulary: Option<usize>,
    labels: Labels,
}

/// What the answers are.
enum Labels {
    /// Any numbers: no labels.
    None,
    Numbered(usize),
    Named(Names),
}

impl Rows {
    fn new(table: Table, of: &Described) -> Result<Rows> {
        let Predicted { column: answer, classes } = &of.predicted;
        let refused =
            |name: &str, reason: String| Err(ErrorKind::Field { name: name.to_string(), reason }.into());
        let position = match of.wants_answer {
            true => Some(field_named(table.fields(), answer)?),
            false => None,
        };
        let labels = match classes {
            None => Labels::None,
            Some(Classes::Numbered(classes)) => Labels::Numbered(*classes),
            Some(Classes::Named(names)) => match Names::new(names) {
                Ok(names) => Labels::Named(names),
                Err(reason) => return refused(answer, format!("classes: {reason}")),
            },
        };
        if let Some(at) = position
            && !(table.is_number(at) || matches!(labels, Labels::Named(_)) && table.is_text(at))
        {
            let reason = format!("it is to be predicted, but is no column of numbers: {}", table.fields[at]);
            return refused(answer, reason);
        }
        let names: Vec<String> = table.fields.iter().map(|field| field.name().to_string()).collect();
        let usual = |at: usize| table.columns[at].is_numbers();
        let answered = names.iter().position(|name| name == answer);
        let mut chosen = of.selection.resolve(&names, answered, usual)?;
        for (at, cells) in &chosen {
            let fits = match cells {
                Cells::Categories(_) => table.is_text(*at) || table.is_number(*at),
                Cells::Text(_) => table.is_text(*at),
                Cells::Number { .. } => table.is_number(*at),
                _ => usual(*at),
            };
            if !fits && matches!(cells, Cells::Text(_)) {
                return refused(&names[*at], format!("it is no column of texts: {}", table.fields[*at]));
            }
            if !fits {
                let reason = format!(
                    "it is no column of numbers: {}; list the `categories` that it has, or `ignore` it",
                    table.fields[*at]
                );
                return refused(&names[*at], reason);
            }
        }
        if chosen.is_empty() {
            let reason = format!("it has no column of numbers to predict `{answer}` from");
            return Err(error(table.blocks.path(), None, reason));
        }
        let width = |(at, cells): &(usize, Cells)| match cells {
            Cells::Plain => table.fields[*at].elements(),
            cells => cells.width(),
        };
        let features = chosen.iter().map(width).sum();
        let mut fields = vec![of.selection.field(features)?];
        if position.is_some() {
            fields.push(match classes {
                Some(_) => Field::new("label", Element::I32, &[])?,
                None => Field::new("target", Element::F32, &[])?,
            });
        }
        let columns = chosen.iter().map(|(at, _)| *at).chain(position);
        let columns: Vec<&str> = columns.map(|at| names[at].as_str()).collect();
        let table = table.columns(&columns)?;
        let vocabulary = of.selection.tokens().map(|tokens| tokens.vocabulary);
        let cells = chosen.drain(..).map(|(_, cells)| cells).collect();
        Ok(Rows { table, fields, cells, vocabulary, labels })
    }

    /// Writes the features of a row.
    fn write_features(&self, block: &Block, sample: usize, out: &mut [[u8; 4]]) -> Result<()> {
        let (mut first, mut row) = (0, Vec::new());
        for (column, cells) in self.cells.iter().enumerate() {
            let blame = |reason| self.table.blame(sample, column, reason);
            if let Cells::Plain = cells {
                let of = &self.table.fields[column];
                row.resize(of.bytes(), 0);
                self.table.write(block, sample, column, &mut row)?;
                for bytes in row.chunks_exact(of.element().bytes()) {
                    let value = single(number(of.element(), bytes)).map_err(blame)?;
                    out[first] = value.to_ne_bytes();
                    first += 1;
                }
                continue;
            }
            let room = &mut out[first..first + cells.width()];
            first += cells.width();
            let written = match self.table.text(block, sample, column, &mut row)? {
                Some(text) => cells.write(text, 0, room),
                None => cells.write("", 0, room),
            };
            written.map_err(|fault| blame(fault.reason))?;
        }
        Ok(())
    }

    /// The answer of a row.
    fn answer(&self, block: &Block, sample: usize) -> Result<[u8; 4]> {
        let (column, mut row) = (self.cells.len(), Vec::new());
        let blame = |reason| self.table.blame(sample, column, reason);
        if let Labels::Named(names) = &self.labels {
            let text = self.table.text(block, sample, column, &mut row)?;
            let class = names.find(text.unwrap_or("")).map_err(blame)?;
            return Ok((class as i32).to_ne_bytes());
        }
        let of = &self.table.fields[column];
        row.resize(of.bytes(), 0);
        self.table.write(block, sample, column, &mut row)?;
        let value = number(of.element(), &row);
        match &self.labels {
            Labels::Numbered(classes) => Rows::class(value, *classes).map(i32::to_ne_bytes),
            _ => single(value).map(f32::to_ne_bytes),
        }
        .map_err(blame)
    }

    /// The class that a number stands for.
    fn class(value: f64, classes: usize) -> std::result::Result<i32, String> {
        if value.fract() != 0.0 || f64::from(value as i32) != value {
            return Err(format!(
                "{value} is not a class number; number the classes 0, 1, 2 and so on, or list their names as the classes"
            ));
        }
        match usize::try_from(value as i32) {
            Ok(class) if class < classes => Ok(value as i32),
            _ => Err(no_class(value as i64, classes)),
        }
    }
}

impl Table {
    /// Whether a row of this column is one number.
    fn is_number(&self, column: usize) -> bool {
        self.columns[column].is_numbers() && self.fields[column].shape().is_empty()
    }

    /// Whether a row of this column is a text.
    fn is_text(&self, column: usize) -> bool {
        self.fields[column].element() == Element::U8 && self.fields[column].shape() == [Field::OPEN]
    }

    /// What a row of a column of texts or single numbers says, if it is not null.
    fn text<'a>(
        &self,
        block: &Block,
        sample: usize,
        column: usize,
        room: &'a mut Vec<u8>,
    ) -> Result<Option<&'a str>> {
        let (field, values, row) = (&self.fields[column], &block.columns[column], sample - block.first);
        if values.is_null(row) {
            return Ok(None);
        }
        let is_text = self.is_text(column);
        let elements = if is_text { self.columns[column].length(values, row) } else { 1 };
        room.resize(elements * field.element().bytes(), 0);
        self.write(block, sample, column, room)?;
        if !is_text {
            let value = number(field.element(), room).to_string();
            room.clear();
            room.extend_from_slice(value.as_bytes());
        }
        let text = std::str::from_utf8(room);
        let text = text.map_err(|_| self.blame(sample, column, "the text is not UTF-8".to_string()))?;
        Ok(Some(text.trim()))
    }

    /// The error that names the column.
    fn blame(&self, sample: usize, column: usize, reason: String) -> Error {
        let reason = format!("column `{}`: {reason}", self.fields[column].name());
        error(self.blocks.path(), Some(sample), reason)
    }
}

/// A number as a float that can be trained on.
fn single(value: f64) -> std::result::Result<f32, String> {
    match value as f32 {
        single if single.is_finite() => Ok(single),
        _ => Err(format!("{value} is not a finite f32; replace it, or leave the row out")),
    }
}

fn number(element: Element, bytes: &[u8]) -> f64 {
    match element {
        Element::F32 => bytes.try_into().map_or(0.0, f32::from_ne_bytes).into(),
        Element::F64 => bytes.try_into().map_or(0.0, f64::from_ne_bytes),
        Element::I32 => bytes.try_into().map_or(0, i32::from_ne_bytes).into(),
        Element::I64 => bytes.try_into().map_or(0, i64::from_ne_bytes) as f64,
        Element::U8 => bytes[0].into(),
    }
}

impl Source for Rows {
    fn samples(&self) -> usize {
        self.table.samples()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, sample: usize, field: usize, out: &mut [u8]) -> Result<()> {
        self.locate(sample, field, out)?;
        let block = self.table.block(sample)?;
        if field == ANSWER {
            out.copy_from_slice(&self.answer(&block, sample)?);
            return Ok(());
        }
        self.write_features(&block, sample, out.as_chunks_mut().0)
    }

    fn reading_bytes(&self) -> u64 {
        self.table.reading_bytes()
    }

    fn resident_bytes(&self) -> u64 {
        self.table.resident_bytes()
    }

    fn promise(&self, field: usize) -> Promise {
        match &self.labels {
            Labels::Numbered(classes) if field == ANSWER => Promise::Below(*classes),
            Labels::Named(names) if field == ANSWER => Promise::Below(names.count()),
            _ => match self.vocabulary.filter(|_| field == FEATURES) {
                Some(vocabulary) => Promise::Below(vocabulary),
                None => Promise::Finite,
            },
        }
    }
}

//! Tables as workloads have them: one column is predicted from all others that hold numbers.
//!
//! A row cannot be had without unpacking its block, which in a random order would be a block for each row. So the values of a
//! small table are kept, and the rows of a large one are given in their order.

use super::super::concatenated::differing;
use super::super::files::Paths;
use super::super::predicted::Predicted;
use super::super::records::key::no_class;
use super::super::table_kinds::Form;
use super::super::{Answer, Columns, Description};
use super::{Table, arrow, error, parquet};
use crate::source::{Promise, RecordReader, field_named};
use crate::{Dataset, Element, ErrorKind, Field, Record, Result, Source};
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
}

impl Description for Described {
    fn answer(&self) -> Answer {
        self.predicted.answer()
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
        Rows::new(table, &self.of.predicted)
    }
}

/// All rows in memory.
fn kept(mut rows: InOrder, fields: &[Field; 2]) -> Result<Columns> {
    let mut record = Record::new(&fields.clone().into());
    let (mut features, mut labels, mut targets) = (Vec::new(), Vec::new(), Vec::new());
    let is_label = fields[1].element() == Element::I32;
    while rows.next(&mut record)? {
        features.extend_from_slice(record.get::<f32>("features")?);
        if is_label {
            labels.extend_from_slice(record.get::<i32>("label")?);
        } else {
            targets.extend_from_slice(record.get::<f32>("target")?);
        }
    }
    let columns = Columns::new().column("features", fields[0].shape(), features)?;
    if is_label { columns.column("label", &[], labels) } else { columns.column("target", &[], targets) }
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

/// The rows of a table as `features`, `f32`, and `label`, `i32`, or `target`, `f32`.
struct Rows {
    /// With the answer as its last column.
    table: Table,
    fields: [Field; 2],
    classes: Option<usize>,
}

impl Rows {
    fn new(table: Table, predicted: &Predicted) -> Result<Rows> {
        let Predicted { column: answer, classes } = predicted;
        let position = field_named(table.fields(), answer)?;
        if !table.columns[position].is_numbers() || !table.fields[position].shape().is_empty() {
            let reason =
                format!("it is to be predicted, but is no column of numbers: {}", table.fields[position]);
            return Err(ErrorKind::Field { name: answer.clone(), reason }.into());
        }
        let is_feature = |&at: &usize| at != position && table.columns[at].is_numbers();
        let mut names: Vec<String> = (0..table.fields.len())
            .filter(is_feature)
            .map(|at| table.fields[at].name().to_string())
            .collect();
        if names.is_empty() {
            let reason =
                format!("`{answer}` is the only column of numbers; there is nothing to predict it from");
            return Err(error(table.blocks.path(), None, reason));
        }
        names.push(answer.clone());
        let table = table.columns(&names.iter().map(String::as_str).collect::<Vec<_>>())?;
        let elements = |field: &Field| field.shape().iter().product::<usize>();
        let features = table.fields[..names.len() - 1].iter().map(elements).sum();
        let answer = match classes {
            Some(_) => Field::new("label", Element::I32, &[])?,
            None => Field::new("target", Element::F32, &[])?,
        };
        Ok(Rows {
            table,
            fields: [Field::new("features", Element::F32, &[features])?, answer],
            classes: *classes,
        })
    }

    /// The class that a number stands for.
    fn class(value: f64, classes: usize) -> std::result::Result<i32, String> {
        if value.fract() != 0.0 || f64::from(value as i32) != value {
            return Err(format!("{value} is not a class number; number the classes 0, 1, 2 and so on"));
        }
        match usize::try_from(value as i32) {
            Ok(class) if class < classes => Ok(value as i32),
            _ => Err(no_class(value as i64, classes)),
        }
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
        let answer = self.table.fields.len() - 1;
        let block = self.table.block(sample)?;
        let columns = if field == 0 { 0..answer } else { answer..answer + 1 };
        let mut out = out.as_chunks_mut::<4>().0.iter_mut();
        let mut row = Vec::new();
        for column in columns {
            let (of, element) = (&self.table.fields[column], self.table.fields[column].element());
            row.resize(of.bytes(), 0);
            self.table.write(&block, sample, column, &mut row)?;
            for (bytes, out) in row.chunks_exact(element.bytes()).zip(&mut out) {
                let value = number(element, bytes);
                let written = match self.classes.filter(|_| field == 1) {
                    Some(classes) => Rows::class(value, classes).map(i32::to_ne_bytes),
                    None => single(value).map(f32::to_ne_bytes),
                };
                *out = written.map_err(|reason| {
                    let reason = format!("column `{}`: {reason}", of.name());
                    error(self.table.blocks.path(), Some(sample), reason)
                })?;
            }
        }
        Ok(())
    }

    fn reading_bytes(&self) -> u64 {
        self.table.reading_bytes()
    }

    fn resident_bytes(&self) -> u64 {
        self.table.resident_bytes()
    }

    fn promise(&self, field: usize) -> Promise {
        match self.classes {
            Some(classes) if field == 1 => Promise::Below(classes),
            _ => Promise::Finite,
        }
    }
}

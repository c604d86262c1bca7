//! What becomes of the columns of a table that are not numbers as a model wants them: names of categories, numbers that
//! are missing or far from one, and columns that tell nothing.
//!
//! All of it is said before the table is read: a later file, with other rows, is read as the one that was trained on.

use super::records::format::{Fault, Parsed};
use super::{Options, TextTokens, Tokens};
use crate::{Element, Error, ErrorKind, Field, Result};
use std::collections::HashMap;
use std::num::ParseFloatError;
use std::sync::Arc;

/// What becomes of a column of a table.
///
/// ```
/// use std::io::Cursor;
/// use plimsoll_data::sources::TableColumn;
/// use plimsoll_data::{Csv, Dataset, Record, Source};
///
/// let csv = Csv::label("survived")
///     .column("ticket", TableColumn::ignored())
///     .column("sex", TableColumn::categories(["female", "male"]))
///     .column("age", TableColumn::number().missing(30.0).standardised(30.0, 10.0));
/// let people = csv.read(Cursor::new("ticket,sex,age,survived\nA/5 21171,male,,0\nPC 17599,female,40,1\n"))?;
/// let mut row = [0; 12];
/// people.read(1, 0, &mut row)?;
/// assert_eq!(row, [1f32, 0.0, 1.0].map(f32::to_ne_bytes).concat()[..]);
/// # Ok::<(), plimsoll_data::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct TableColumn(Treatment);

#[derive(Clone, Debug, PartialEq)]
enum Treatment {
    Ignored,
    Categories(Vec<String>),
    Number(Number),
}

/// How a number becomes a feature.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Number {
    /// What an empty cell stands for.
    missing: Option<f64>,
    mean: f64,
    deviation: f64,
}

/// Words that stand for nothing, as other programs write and read them: those of pandas, and UCI's `?`.
const NOTHING: [&str; 20] = [
    "", "NA", "N/A", "n/a", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "None", "<NA>", "#N/A", "#N/A N/A",
    "#NA", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN", "?",
];

/// Whether a cell says that there is no value.
pub(super) fn is_nothing(cell: &str) -> bool {
    NOTHING.contains(&cell)
}

impl TableColumn {
    /// It is not read: a number of the row, a name, whatever else tells nothing about the answer.
    pub fn ignored() -> TableColumn {
        TableColumn(Treatment::Ignored)
    }

    /// Its cells are one of these, and become a feature for each: 1 for the one that it is, 0 for the others. A cell that
    /// is none of them is refused; `""` stands for empty cells.
    pub fn categories<S: Into<String>>(names: impl IntoIterator<Item = S>) -> TableColumn {
        TableColumn(Treatment::Categories(names.into_iter().map(Into::into).collect()))
    }

    /// Its cells are numbers, as those of columns that nothing is said of.
    pub fn number() -> TableColumn {
        TableColumn(Treatment::Number(Number { missing: None, mean: 0.0, deviation: 1.0 }))
    }

    /// What cells stand for that are empty or say `NA`, `NaN`, `null`, `?` or the like. Of categories, which name the empty
    /// cell themselves, it changes nothing.
    pub fn missing(self, value: f64) -> TableColumn {
        self.with_number(|number| number.missing = Some(value))
    }

    /// The feature is how many deviations a number is above the mean.
    pub fn standardised(self, mean: f64, deviation: f64) -> TableColumn {
        self.with_number(|number| (number.mean, number.deviation) = (mean, deviation))
    }

    fn with_number(mut self, change: impl FnOnce(&mut Number)) -> TableColumn {
        if let Treatment::Number(number) = &mut self.0 {
            change(number);
        }
        self
    }
}

/// Which columns of a table become features, and how.
#[derive(Clone, Debug, Default)]
pub(super) struct Selection {
    /// The columns that become features, in this order, if not all that can in theirs.
    pub(super) features: Option<Vec<String>>,
    /// What is said of columns.
    pub(super) columns: Vec<(String, TableColumn)>,
    /// The column whose text is read in place of features, and its tokens.
    pub(super) text: Option<(String, TextTokens)>,
}

/// What can be said of a column.
const COLUMN_KEYS: &[&str] = &["categories", "missing", "mean", "deviation"];

impl Selection {
    /// Reads `features`, `ignore` and `columns` of a workload.
    pub(super) fn read(options: &dyn Options) -> Result<Selection> {
        let ignored = options.find_texts("ignore")?.unwrap_or_default();
        let mut columns: Vec<(String, TableColumn)> =
            ignored.into_iter().map(|name| (name, TableColumn::ignored())).collect();
        for (name, section) in options.find_sections("columns", COLUMN_KEYS)? {
            columns.push((name, TableColumn::read(&*section)?));
        }
        let text = TextTokens::described(options)?;
        Ok(Selection { features: options.find_texts("features")?, columns, text })
    }

    /// The tokens of a row, if it is read as a text.
    pub(super) fn tokens(&self) -> Option<Tokens> {
        self.text.as_ref().map(|(_, text)| text.tokens())
    }

    /// The field that so many features of a row are.
    pub(super) fn field(&self, features: usize) -> Result<Field> {
        match &self.text {
            None => Field::new("features", Element::F32, &[features]),
            Some((_, text)) => text.field(),
        }
    }

    /// The columns among these that become features, in the order of these, and how. Those that nothing is said of do as
    /// they stand if they are `usual`.
    pub(super) fn resolve(
        &self,
        names: &[String],
        answer: Option<usize>,
        usual: impl Fn(usize) -> bool,
    ) -> Result<Vec<(usize, Cells)>> {
        let position = |name: &String| {
            names.iter().position(|known| known == name).ok_or_else(|| {
                let asked = format!("`{name}`");
                Error::from(ErrorKind::NoSuchField { asked, known: names.to_vec() })
            })
        };
        let refused = |at: usize, reason: &str| {
            Err(ErrorKind::Field { name: names[at].clone(), reason: reason.to_string() }.into())
        };
        if let Some((name, text)) = &self.text {
            let at = position(name)?;
            return match Some(at) == answer {
                true => refused(at, "it is what is to be predicted, and not the text"),
                false => Ok(vec![(at, Cells::Text(text.clone()))]),
            };
        }
        let mut said: Vec<Option<&TableColumn>> = vec![None; names.len()];
        for (name, column) in &self.columns {
            let at = position(name)?;
            if Some(at) == answer {
                return refused(at, "it is what is to be predicted, and no feature");
            }
            if said[at].replace(column).is_some() {
                return refused(at, "it is described or ignored twice");
            }
        }
        let order = match &self.features {
            Some(features) => features.iter().map(position).collect::<Result<Vec<usize>>>()?,
            None => (0..names.len())
                .filter(|&at| Some(at) != answer && (said[at].is_some() || usual(at)))
                .collect(),
        };
        let (mut resolved, mut taken) = (Vec::new(), vec![false; names.len()]);
        for at in order {
            if Some(at) == answer {
                return refused(at, "it is what is to be predicted, and no feature");
            }
            if std::mem::replace(&mut taken[at], true) {
                return refused(at, "it is listed as a feature twice");
            }
            let cells = said[at].map_or(Ok(Cells::Plain), |column| Cells::new(&names[at], column))?;
            match cells {
                Cells::Ignored if self.features.is_some() => {
                    return refused(at, "it is listed as a feature, and ignored");
                }
                Cells::Ignored => {}
                cells => resolved.push((at, cells)),
            }
        }
        Ok(resolved)
    }
}

impl TableColumn {
    /// Reads what a workload says of a column.
    fn read(options: &dyn Options) -> Result<TableColumn> {
        let (mean, deviation) = (options.find_number("mean")?, options.find_number("deviation")?);
        let missing = options.find_number("missing")?;
        if let Some(categories) = options.find_texts("categories")? {
            if missing.is_some() || mean.is_some() || deviation.is_some() {
                let message =
                    "a column of `categories` has no numbers: \"\" among them stands for empty cells";
                return Err(options.refuse(None, message));
            }
            return Ok(TableColumn::categories(categories));
        }
        let column = TableColumn::number().standardised(mean.unwrap_or(0.0), deviation.unwrap_or(1.0));
        Ok(missing.map_or(column.clone(), |missing| column.missing(missing)))
    }
}

/// A column of a file, ready to read cells of it.
#[derive(Debug)]
pub(super) enum Cells {
    /// Plain numbers.
    Plain,
    /// What is to be predicted.
    Answer,
    Ignored,
    Categories(Names),
    Text(TextTokens),
    Number {
        missing: Option<[u8; 4]>,
        mean: f64,
        deviation: f64,
    },
}

impl Cells {
    /// # Errors
    /// If a column of this name cannot be treated so.
    pub(super) fn new(name: &str, column: &TableColumn) -> Result<Cells> {
        let refused = |reason: String| Err(ErrorKind::Field { name: name.to_string(), reason }.into());
        match &column.0 {
            Treatment::Ignored => Ok(Cells::Ignored),
            Treatment::Categories(names) => match Names::new(names) {
                Ok(names) => Ok(Cells::Categories(names)),
                Err(reason) => refused(reason),
            },
            Treatment::Number(Number { missing, mean, deviation }) => {
                let (mean, deviation) = (*mean, *deviation);
                if !mean.is_finite() || !deviation.is_finite() || deviation <= 0.0 {
                    return refused(format!(
                        "its mean is {mean} and its deviation {deviation}: they are finite, and a deviation is above 0"
                    ));
                }
                let missing = missing.map(|value| ((value - mean) / deviation) as f32);
                if missing.is_some_and(|value| !value.is_finite()) {
                    return refused("what stands for a missing number is not a finite f32".to_string());
                }
                Ok(Cells::Number { missing: missing.map(f32::to_ne_bytes), mean, deviation })
            }
        }
    }

    /// Whether cells are numbers, rather than names.
    pub(super) fn are_numbers(&self) -> bool {
        !matches!(self, Cells::Categories(_) | Cells::Text(_))
    }

    /// How many features a cell becomes.
    pub(super) fn width(&self) -> usize {
        match self {
            Cells::Plain | Cells::Number { .. } => 1,
            Cells::Answer | Cells::Ignored => 0,
            Cells::Categories(names) => names.count(),
            Cells::Text(text) => text.tokens().length,
        }
    }

    /// Writes the features of a cell, of which there are as many as the width of a column that has any.
    pub(super) fn write(&self, cell: &str, at: usize, out: &mut [[u8; 4]]) -> Parsed<()> {
        match self {
            Cells::Categories(names) => {
                let category = names.find(cell).map_err(|reason| Fault::new(at, reason))?;
                out.fill(0f32.to_ne_bytes());
                out[category] = 1f32.to_ne_bytes();
            }
            Cells::Text(text) => text.write(cell, out).map_err(|reason| Fault::new(at, reason))?,
            Cells::Number { missing: Some(missing), .. } if is_nothing(cell) => out[0] = *missing,
            Cells::Number { mean, deviation, .. } => {
                let value = cell.parse().map(|value: f64| ((value - mean) / deviation) as f32);
                out[0] = finite(cell, at, value)?.to_ne_bytes();
            }
            Cells::Plain | Cells::Answer | Cells::Ignored => out[0] = real(cell, at)?.to_ne_bytes(),
        }
        Ok(())
    }
}

/// The finite number that a cell says.
pub(super) fn real(cell: &str, at: usize) -> Parsed<f32> {
    finite(cell, at, cell.parse())
}

/// What was made of a cell, if it is a finite number.
fn finite(cell: &str, at: usize, value: std::result::Result<f32, ParseFloatError>) -> Parsed<f32> {
    let reason = match value {
        Ok(value) if value.is_finite() => return Ok(value),
        _ if cell.is_empty() => {
            "the cell is empty; fill it, remove the row, or say what is `missing` in the column".to_string()
        }
        _ if is_nothing(cell) => {
            format!(
                "`{cell}` is no number; replace it, remove the row, or say what is `missing` in the column"
            )
        }
        Ok(_) => format!("`{cell}` is not a finite f32; replace it, or remove the row"),
        Err(_) if cell.matches(',').count() == 1 && cell.replace(',', ".").parse::<f32>().is_ok() => {
            format!(
                "`{cell}` is not a number as it is read: say `decimal = \",\"` if fractions follow a comma, or write it with a \
                 point and no commas, as 1234.5"
            )
        }
        Err(_) if cell.replace(',', "").parse::<f32>().is_ok() => {
            format!("`{cell}` is not a number as it is read; write it with a point and no commas, as 1234.5")
        }
        Err(_) => format!("`{cell}` is not a number; list the column's `categories`, or `ignore` it"),
    };
    Err(Fault::new(at, reason))
}

/// Names in an order that gives each a number.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    numbers: HashMap<Arc<str>, usize>,
    in_order: Vec<Arc<str>>,
}

/// So many names are listed where none of them fits.
const MOST_LISTED: usize = 12;

impl Names {
    /// # Errors
    /// If there are none, or two are the same; the reason.
    pub(super) fn new(names: &[String]) -> std::result::Result<Names, String> {
        let in_order: Vec<Arc<str>> = names.iter().map(|name| name.trim().into()).collect();
        let mut numbers = HashMap::new();
        for (number, name) in in_order.iter().enumerate() {
            if numbers.insert(Arc::clone(name), number).is_some() {
                return Err(format!("`{name}` is listed twice"));
            }
        }
        if in_order.is_empty() {
            return Err("no name is listed".to_string());
        }
        Ok(Names { numbers, in_order })
    }

    pub(super) fn count(&self) -> usize {
        self.in_order.len()
    }

    /// The number of a name, or why it has none.
    pub(super) fn find(&self, name: &str) -> std::result::Result<usize, String> {
        let found = self.numbers.get(name).or_else(|| self.numbers.get("").filter(|_| is_nothing(name)));
        found.copied().ok_or_else(|| {
            let listed: Vec<String> =
                self.in_order.iter().take(MOST_LISTED).map(|name| format!("`{name}`")).collect();
            let more = self.count().saturating_sub(MOST_LISTED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!(
                "`{name}` is none of the names that are listed: {}{more}; list it, or remove the row",
                listed.join(", ")
            )
        })
    }
}

//! A workload for a file that somebody has: what a table or a folder of images holds is looked at, and everything that was
//! found is written down as keys that can be read and changed. Nothing is decided again when it trains.

use super::data::toml_text;
use crate::{Error, ErrorKind, Result};
use plimsoll_data::sources::{Classes, ColumnSurvey, ImageFolder, TableSurvey};
use std::fmt::Write;
use std::path::Path;

/// What is to be predicted of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Predict {
    /// The last column: classes if it has names or few whole numbers, else a number.
    Last,
    /// The classes in this column.
    Label(String),
    /// The numbers in this column.
    Target(String),
}

/// What of a table it is predicted from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PredictFrom {
    /// The other columns of a row, or the longest text if there is nothing else.
    #[default]
    Row,
    /// The text in this column.
    Text(String),
    /// All columns of so many rows before the one that is predicted, rows following one another in time.
    Window(usize),
}

/// Whole numbers of up to so many different values are taken for classes.
const MOST_GUESSED_CLASSES: usize = 20;
/// A text of up to so many different values is taken for categories.
const MOST_CATEGORIES: usize = 50;
/// Networks are trained for about so many steps.
const STEPS: u64 = 2000;
const BATCH: u64 = 32;
/// Images are resized to so many pixels down and across.
const PIXELS: usize = 64;

/// What becomes of a column, or why it is left out.
enum Column<'a> {
    Number(&'a ColumnSurvey),
    Categories(&'a ColumnSurvey, Vec<String>),
    LeftOut(&'a ColumnSurvey, String),
}

/// The text of a workload for a file: a csv or tsv table, packed or not, or a folder of images with a folder for each class.
/// `path` is what the workload will call it.
///
/// ```
/// use plimsoll::Spec;
/// use plimsoll::spec::{Predict, PredictFrom, propose};
///
/// # let folder = tempfile::tempdir()?;
/// let table = folder.path().join("flowers.csv");
/// std::fs::write(&table, "length,colour,kind\n5.1,red,a\n6.2,blue,b\n4.9,red,a\n6.0,blue,b\n")?;
/// let text = propose(&table, "flowers.csv", &Predict::Last, &PredictFrom::Row)?;
/// assert!(text.contains("classes = [\"a\", \"b\"]"));
/// let spec = Spec::parse(&text, &folder.path().join("flowers.toml"))?;
/// assert_eq!(spec.all_data()?.fields()[0].shape(), [3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the file cannot be read, is of no such kind, or has nothing to predict, or nothing to predict it from.
pub fn propose(file: &Path, path: &str, predict: &Predict, from: &PredictFrom) -> Result<String> {
    let failed =
        |error: plimsoll_data::Error| Error::new(ErrorKind::Data, error.to_string()).caused_by(error);
    if file.is_dir() {
        if *predict != Predict::Last || *from != PredictFrom::Row {
            let message =
                "the classes of images are the folders they are in: leave out which columns are meant";
            return Err(Error::new(ErrorKind::Argument, message));
        }
        let images = ImageFolder::new(file).map_err(failed)?;
        return Ok(for_images(path, images.classes().len()));
    }
    let name = file.to_string_lossy().to_lowercase();
    let name = name.strip_suffix(".gz").or(name.strip_suffix(".zst")).unwrap_or(&name);
    if ![".csv", ".tsv", ".txt", ".data"].iter().any(|end| name.ends_with(end)) {
        let message = format!(
            "{}: workloads are written for tables, .csv or .tsv, packed by gzip or zstd or not, and for folders of images; for \
             other files begin with `plimsoll new NAME` and change its [data]",
            file.display()
        );
        return Err(Error::new(ErrorKind::Argument, message));
    }
    let survey = TableSurvey::csv(file, None).map_err(failed)?;
    for_table(&survey, file, path, predict, from)
}

fn for_table(
    survey: &TableSurvey,
    file: &Path,
    path: &str,
    predict: &Predict,
    from: &PredictFrom,
) -> Result<String> {
    let refused = |message: String| Error::new(ErrorKind::Data, format!("{}: {message}", file.display()));
    if survey.rows == 0 {
        return Err(refused("it has a header but no rows".to_string()));
    }
    let named = |name: &str| {
        survey.columns.iter().find(|column| column.name == name).ok_or_else(|| {
            let known: Vec<&str> = survey.columns.iter().map(|column| column.name.as_str()).collect();
            refused(format!("there is no column `{name}`; there are: {}", known.join(", ")))
        })
    };
    let (answer, classes) = match predict {
        Predict::Label(name) => (named(name)?, Some(classes(named(name)?).map_err(refused)?)),
        Predict::Target(name) => (named(name)?, None),
        Predict::Last => {
            let Some(last) = survey.columns.last() else {
                return Err(refused("it has no columns".to_string()));
            };
            let few = last.values.as_ref().is_some_and(|values| values.len() <= MOST_GUESSED_CLASSES);
            let is_label = !last.is_numbers() || last.are_whole && few;
            (last, if is_label { Some(classes(last).map_err(refused)?) } else { None })
        }
    };
    if answer.missing > 0 {
        return Err(refused(format!(
            "column `{}`, which is to be predicted, has {} empty cells: remove their rows; a trained model can predict \
             what is missing there",
            answer.name, answer.missing
        )));
    }
    if classes.is_none() && !answer.is_numbers() {
        let cell = answer.text.as_deref().unwrap_or("");
        return Err(refused(format!(
            "column `{}` is no column of numbers, with cells such as `{cell}`: it is a label, not a target",
            answer.name
        )));
    }
    let window = match from {
        PredictFrom::Window(rows) => Some(*rows),
        _ => None,
    };
    // Of earlier rows what is to be predicted is known.
    let others = || survey.columns.iter().filter(|column| window.is_some() || column.name != answer.name);
    let columns: Vec<Column<'_>> = others().map(|column| column_of(column, survey.rows)).collect();
    let of = Of { survey, path, answer, classes: classes.as_ref(), window };
    let is_without_features = columns.iter().all(|column| matches!(column, Column::LeftOut(..)));
    let text = match from {
        PredictFrom::Text(name) if *name == answer.name => {
            return Err(refused(format!("column `{name}` is what is to be predicted, and not the text")));
        }
        PredictFrom::Text(name) => Some(named(name)?),
        PredictFrom::Row if is_without_features => {
            others().filter(|column| is_text(column, survey.rows)).max_by_key(|column| column.words)
        }
        PredictFrom::Row | PredictFrom::Window(_) => None,
    };
    let mut out = String::new();
    let written = match text {
        Some(text) => write_text_to(&mut out, &of, text),
        None if is_without_features => {
            return Err(refused(format!("there is no column to predict `{}` from", answer.name)));
        }
        None => write_table_to(&mut out, &of, &columns),
    };
    debug_assert!(written.is_ok(), "writing to a string cannot fail");
    Ok(out)
}

/// A table, and what is to be predicted of it.
#[derive(Clone, Copy)]
struct Of<'a> {
    survey: &'a TableSurvey,
    path: &'a str,
    answer: &'a ColumnSurvey,
    classes: Option<&'a Classes>,
    /// How many rows of which it is predicted, if not of one.
    window: Option<usize>,
}

/// Whether cells are texts of several words, rather than names.
fn is_text(column: &ColumnSurvey, rows: u64) -> bool {
    column.words >= 3 * (rows - column.missing).max(1)
}

/// The classes of a column: numbered if its cells are the whole numbers from 0.
fn classes(column: &ColumnSurvey) -> std::result::Result<Classes, String> {
    let Some(values) = &column.values else {
        return Err(format!(
            "column `{}` has more than a thousand different values, which are no classes; say which column is the label, or \
             the target if it is a number",
            column.name
        ));
    };
    if values.len() < 2 {
        return Err(format!("all rows have the same `{}`: there is nothing to predict", column.name));
    }
    let count = values.len();
    if (0..count).all(|class| values.contains_key(&class.to_string())) {
        return Ok(Classes::Numbered(count));
    }
    let mut names: Vec<String> = values.keys().cloned().collect();
    if column.is_numbers() {
        let number = |name: &String| name.parse().unwrap_or(f64::NAN);
        names.sort_by(|a, b| number(a).total_cmp(&number(b)));
    }
    Ok(Classes::Named(names))
}

fn column_of(column: &ColumnSurvey, rows: u64) -> Column<'_> {
    let different = column.values.as_ref().map(|values| values.len());
    let said = column.numbers + u64::from(column.text.is_some());
    if said == 0 || different == Some(1) && column.missing == 0 {
        return Column::LeftOut(column, "says the same in every row".to_string());
    }
    if column.counts_rows && column.numbers == rows {
        return Column::LeftOut(column, "counts the rows".to_string());
    }
    if column.is_numbers() {
        return Column::Number(column);
    }
    if column.values.as_ref().is_some_and(|values| values.keys().all(|text| is_moment(text))) {
        return Column::LeftOut(column, "holds dates or times".to_string());
    }
    match &column.values {
        Some(values) if values.len() <= MOST_CATEGORIES && values.len() as u64 * 2 <= rows.max(4) => {
            let empty = (column.missing > 0).then(String::new);
            Column::Categories(column, empty.into_iter().chain(values.keys().cloned()).collect())
        }
        Some(values) => Column::LeftOut(column, format!("has {} different texts", values.len())),
        None if is_text(column, rows) => {
            Column::LeftOut(column, "holds texts: `plimsoll new` reads one with --text".to_string())
        }
        None => Column::LeftOut(column, "has very many different texts".to_string()),
    }
}

/// Whether a text is a date or a time, such as 2024-05-31, 31.5.24 or 2024-05-31T12:00:00Z: a network that is given one as a
/// category learns nothing of the others.
fn is_moment(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let between = text.matches(['-', '/', '.', ':']).count();
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '-' | '/' | '.' | ':' | ' ' | 'T' | 'Z' | '+');
    text.starts_with(|c: char| c.is_ascii_digit()) && digits >= 4 && between >= 2 && text.chars().all(is_part)
}

/// Writes what a workload begins with, and the file and what is to be predicted of it.
fn write_answer_to(out: &mut String, of: &Of<'_>, from: &str) -> std::fmt::Result {
    let Of { survey, path, answer, classes, .. } = *of;
    head(out, &format!("a table of {} rows", survey.rows))?;
    let about = format!("a network that predicts {} from {from} of {path}", answer.name);
    writeln!(out, "about = {}", toml_text(&about))?;
    match classes {
        Some(labels) => {
            let more = if labels.count() == 2 { ", \"auc\"" } else { ", \"macro_f1\"" };
            writeln!(out, "loss = \"sparse_cross_entropy\"\nmetrics = [\"accuracy\"{more}]")?;
        }
        None => writeln!(out, "loss = \"mse\"\nmetrics = [\"mae\", \"r2\"]")?,
    }
    writeln!(out, "\n[data]\nkind = \"csv\"\npath = {}", toml_text(path))?;
    if survey.delimiter != usual_delimiter(path) {
        writeln!(out, "delimiter = {}", toml_text(&survey.delimiter.to_string()))?;
    }
    if survey.has_decimal_commas {
        writeln!(out, "decimal = \",\"")?;
    }
    let name = toml_text(&answer.name);
    match classes {
        Some(Classes::Numbered(count)) => writeln!(out, "label = {name}\nclasses = {count}"),
        Some(Classes::Named(names)) => writeln!(out, "label = {name}\nclasses = {}", list(names)),
        None => writeln!(out, "target = {name}"),
    }
}

/// Writes the end of a network, how it is trained, and for how long.
fn write_training_to(out: &mut String, of: &Of<'_>) -> std::fmt::Result {
    let Of { survey, answer, classes, .. } = *of;
    writeln!(out, "    {{ dense = {} }},", classes.map_or(1, Classes::count))?;
    if classes.is_none() {
        let deviation = if answer.deviation > 0.0 { answer.deviation } else { 1.0 };
        let (mean, deviation) = (rounded(answer.mean), rounded(deviation));
        writeln!(out, "    {{ rescale = {deviation}, offset = {mean} }},    # to the units of the target")?;
    }
    writeln!(out, "]\n\n[optimizer]\nkind = \"adamw\"\nrate = 0.001\n")?;
    train(out, survey.rows, !survey.is_packed && survey.rows >= 10)?;
    if survey.is_packed {
        writeln!(
            out,
            "# unpack the file for held_out = 0.2: rows that are packed can only be read in their order"
        )?;
    }
    Ok(())
}

/// Words are hashed to so many numbers, each of which has a vector of so many.
const WORDS: usize = 20_000;
const WIDTH: usize = 64;
/// The most words of a text that are read.
const MOST_LENGTH: u64 = 512;

fn write_text_to(out: &mut String, of: &Of<'_>, text: &ColumnSurvey) -> std::fmt::Result {
    let Of { survey, answer, .. } = *of;
    write_answer_to(out, of, &format!("the text in {}", text.name))?;
    let mean = text.words.div_ceil((survey.rows - text.missing).max(1));
    let length = text.most_words.min(2 * mean).next_multiple_of(8).clamp(8, MOST_LENGTH);
    writeln!(out, "text = {}", toml_text(&text.name))?;
    let (length_is, words_are) = (format!("length = {length}"), format!("words = {WORDS}"));
    writeln!(out, "{length_is:<31} # words: the mean is {mean}, the most are {}", text.most_words)?;
    writeln!(out, "{words_are:<31} # so many are told apart; without it bytes are read")?;
    for column in survey.columns.iter().filter(|column| ![&answer.name, &text.name].contains(&&column.name)) {
        writeln!(out, "# not read: {}", shown(&column.name))?;
    }
    writeln!(out, "\n[model]\nkind = \"sequential\"\nlayers = [")?;
    writeln!(
        out,
        "    {{ embedding = {WORDS}, width = {WIDTH} }},\n    \"global_mean_pool\",\n    \"layer_norm\","
    )?;
    writeln!(out, "    {{ dense = 64, activation = \"relu\" }},")?;
    write_training_to(out, of)
}

fn write_table_to(out: &mut String, of: &Of<'_>, columns: &[Column<'_>]) -> std::fmt::Result {
    match of.window {
        None => write_answer_to(out, of, "the other columns")?,
        Some(rows) => {
            write_answer_to(out, of, &format!("the {rows} rows before"))?;
            writeln!(out, "window = {rows}")?;
            writeln!(
                out,
                "horizon = 1                     # the answer is that of the row so many after the window"
            )?;
        }
    }
    let taken = columns.iter().filter_map(|column| match column {
        Column::Number(column) | Column::Categories(column, _) => Some(column.name.clone()),
        Column::LeftOut(..) => None,
    });
    writeln!(out, "features = {}", list(&taken.collect::<Vec<_>>()))?;
    for column in columns {
        if let Column::LeftOut(column, reason) = column {
            writeln!(out, "# not among them: {}, which {reason}", shown(&column.name))?;
        }
    }
    writeln!(
        out,
        "\n[data.columns]               # what cells become: numbers near one, a feature for each category"
    )?;
    for column in columns {
        match column {
            Column::Number(column) => {
                let name = toml_text(&column.name);
                let deviation = if column.deviation > 0.0 { column.deviation } else { 1.0 };
                let (mean, deviation) = (rounded(column.mean), rounded(deviation));
                let missing = match column.missing {
                    0 => String::new(),
                    _ => format!("missing = {mean}, "),
                };
                write!(out, "{name} = {{ {missing}mean = {mean}, deviation = {deviation} }}")?;
                match column.missing {
                    0 => writeln!(out)?,
                    missing => writeln!(out, "    # missing in {missing} rows")?,
                }
            }
            Column::Categories(column, names) => {
                writeln!(out, "{} = {{ categories = {} }}", toml_text(&column.name), list(names))?;
            }
            Column::LeftOut(..) => {}
        }
    }
    writeln!(out, "\n[model]\nkind = \"sequential\"\nlayers = [")?;
    if of.window.is_some() {
        writeln!(out, "    \"flatten\",")?;
    }
    writeln!(
        out,
        "    {{ dense = 64, activation = \"relu\" }},\n    {{ dense = 64, activation = \"relu\" }},"
    )?;
    write_training_to(out, of)
}

fn for_images(path: &str, classes: usize) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_images_to(&mut text, path, classes);
    text
}

fn write_images_to(out: &mut String, path: &str, classes: usize) -> std::fmt::Result {
    head(out, &format!("images of {classes} classes, each in a folder of its own"))?;
    let about = format!("a convolutional network that tells the images of {path} apart");
    writeln!(out, "about = {}", toml_text(&about))?;
    writeln!(out, "loss = \"sparse_cross_entropy\"\nmetrics = [\"accuracy\"]")?;
    writeln!(out, "\n[data]\nkind = \"images\"\npath = {}", toml_text(path))?;
    writeln!(
        out,
        "height = {PIXELS}                     # every image is resized to this\nwidth = {PIXELS}\nscale = true"
    )?;
    writeln!(out, "\n[model]\nkind = \"sequential\"\nlayers = [")?;
    for filters in [32, 64, 128] {
        writeln!(out, "    {{ conv = {filters}, window = 3, padding = \"same\", bias = false }},")?;
        writeln!(out, "    \"batch_norm\",\n    \"relu\",\n    {{ max_pool = 2 }},")?;
    }
    writeln!(out, "    \"global_mean_pool\",\n    {{ dense = {classes} }},\n]")?;
    writeln!(out, "\n[optimizer]\nkind = \"adamw\"\nrate = 0.001\n")?;
    writeln!(out, "[train]\nbatch = 32\nepochs = 20                     # or steps = 1000")?;
    writeln!(out, "held_out = 0.2                  # the part of the samples that is only measured")
}

fn head(out: &mut String, what: &str) -> std::fmt::Result {
    writeln!(out, "# A workload for {what}. Begin with")?;
    writeln!(out, "#     plimsoll data FILE, forecast FILE, train FILE           FILE being this one")?;
    writeln!(out, "# and change what you like. A key that is not known is an error that names the line.")
}

fn train(out: &mut String, rows: u64, can_hold_out: bool) -> std::fmt::Result {
    let batch = BATCH.min(rows);
    let epochs = (STEPS * batch).div_ceil(rows).clamp(2, 200);
    writeln!(out, "[train]\nbatch = {batch}\nepochs = {epochs}                     # or steps = 1000")?;
    if can_hold_out {
        writeln!(out, "held_out = 0.2                  # the part of the samples that is only measured")?;
    }
    Ok(())
}

fn usual_delimiter(path: &str) -> char {
    let path = path.strip_suffix(".gz").or(path.strip_suffix(".zst")).unwrap_or(path);
    if path.ends_with(".tsv") { '\t' } else { ',' }
}

fn list(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| toml_text(text)).collect();
    format!("[{}]", texts.join(", "))
}

/// Text for a comment: no control characters, which TOML has no place for there.
fn shown(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

/// A number with as many digits as tell something, as TOML has it.
fn rounded(number: f64) -> String {
    let rounded: f64 = format!("{number:.5e}").parse().unwrap_or(number);
    let text = rounded.to_string();
    if text.contains(['.', 'e', 'n']) { text } else { text + ".0" }
}

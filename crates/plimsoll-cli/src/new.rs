//! `plimsoll new`: a workload to start from.

use crate::Result;
use crate::show;
use crate::target::count;
use plimsoll::spec::{Predict, PredictFrom, propose};
use plimsoll_memory::quoted;
use serde_json::json;
use std::convert::Infallible;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Write a workload to start from, with comments, that trains as it is
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What it is called: NAME.toml is written
    name: PathBuf,
    /// The data to begin with: one of these examples, or yours, a .csv or .tsv table or a folder of images in a folder for each
    /// class, which is looked at
    #[arg(long, default_value = "digits", value_parser = Data::parse, value_name = "digits|csv|synthetic|tokens|FILE")]
    data: Data,
    /// The column of your table that has the classes to predict; the last column if neither this nor --target is given
    #[arg(long, value_name = "COLUMN")]
    label: Option<String>,
    /// The column of your table that has the numbers to predict
    #[arg(long, value_name = "COLUMN", conflicts_with = "label")]
    target: Option<String>,
    /// The column of your table whose text is read; if it is not given, the other columns are, or the longest text if there is
    /// nothing else
    #[arg(long, value_name = "COLUMN")]
    text: Option<String>,
    /// Predict from so many rows before, of a table whose rows follow one another in time
    #[arg(long, value_name = "ROWS", value_parser = count, conflicts_with = "text")]
    window: Option<usize>,
    /// Print nothing but errors
    #[arg(long, conflicts_with = "json")]
    quiet: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, PartialEq)]
enum Data {
    /// The text of a workload on data that is built in, or made on the fly.
    Example(&'static str),
    /// The same on a table, a small one that is written beside it.
    ExampleTable,
    /// A file or folder of the person's own.
    Own(PathBuf),
}

impl Data {
    fn parse(text: &str) -> std::result::Result<Data, Infallible> {
        Ok(match text {
            "digits" => Data::Example(include_str!("../templates/digits.toml")),
            "synthetic" => Data::Example(include_str!("../templates/synthetic.toml")),
            "tokens" => Data::Example(include_str!("../templates/tokens.toml")),
            "csv" => Data::ExampleTable,
            path => Data::Own(path.into()),
        })
    }
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result {
    let stem = match args.name.extension() {
        Some(extension) if extension == "toml" => args.name.with_extension(""),
        _ => args.name.clone(),
    };
    let name = stem.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if name.is_empty() || name.contains(['"', '\\']) || name.chars().any(char::is_control) {
        let message = format!("`{}` is no name for a workload: give one such as mine", args.name.display());
        return Err(message.into());
    }
    let beside = |extension: &str| {
        let mut path = stem.as_os_str().to_owned();
        path.push(extension);
        PathBuf::from(path)
    };
    let predict = match (&args.label, &args.target) {
        (Some(column), _) => Predict::Label(column.clone()),
        (None, Some(column)) => Predict::Target(column.clone()),
        (None, None) => Predict::Last,
    };
    let from = match (&args.text, args.window) {
        (Some(column), _) => PredictFrom::Text(column.clone()),
        (None, Some(rows)) => PredictFrom::Window(rows),
        (None, None) => PredictFrom::Row,
    };
    let is_of_own = matches!(args.data, Data::Own(_));
    if !is_of_own && (predict != Predict::Last || from != PredictFrom::Row) {
        let message =
            "--label, --target, --text and --window are about a table of yours: name it by --data FILE";
        return Err(message.into());
    }
    let mut files = Vec::new();
    match &args.data {
        Data::Example(template) => files.push((beside(".toml"), template.replace("NAME", name))),
        Data::ExampleTable => {
            files.push((beside(".toml"), include_str!("../templates/csv.toml").replace("NAME", name)));
            files.push((beside(".csv"), example_table()));
        }
        Data::Own(file) => {
            let text = propose(file, &seen_from(&stem, file)?, &predict, &from)?;
            files.push((beside(".toml"), text));
        }
    }
    if let Some((taken, _)) = files.iter().find(|(path, _)| path.symlink_metadata().is_ok()) {
        return Err(
            format!("{} is there already, and stays as it is: give another name", shown(taken)).into()
        );
    }
    for (path, text) in &files {
        create(path, text).map_err(|error| format!("cannot write {}: {error}", shown(path)))?;
    }
    let written: Vec<String> = files.iter().map(|(path, _)| shown(path)).collect();
    if args.json {
        return show::json(&json!({ "written": written }), out);
    }
    if !args.quiet {
        written.iter().try_for_each(|path| writeln!(out, "{:<10} {path}", "written"))?;
        writeln!(out, "{:<10} plimsoll train {}", "next", written[0])?;
    }
    Ok(())
}

/// What a workload calls a file that is named from here: paths in it are relative to the folder it is in.
fn seen_from(workload: &Path, file: &Path) -> Result<String> {
    let is_here = workload.parent().is_none_or(|folder| folder.as_os_str().is_empty());
    let seen = if is_here { file.to_path_buf() } else { std::path::absolute(file)? };
    seen.into_os_string().into_string().map_err(|path| {
        format!(
            "{}: a workload cannot name a file whose name is not UTF-8; give it another",
            shown(Path::new(&path))
        )
        .into()
    })
}

/// Writes a file that is not there yet, whoever else makes one meanwhile.
fn create(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}

fn shown(path: &Path) -> String {
    quoted(&path.to_string_lossy()).into_owned()
}

/// Two classes of points that a line divides.
fn example_table() -> String {
    let row = |n: u32| {
        let (x, y) = (f64::from(n % 10) / 10.0, f64::from(n / 10) / 10.0);
        format!("{x},{y},{}\n", u8::from(x + y > 0.9))
    };
    "x,y,class\n".to_string() + &(0..100).map(row).collect::<String>()
}

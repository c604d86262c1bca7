//! `plimsoll new`: a workload to start from.

use crate::Result;
use crate::show;
use clap::ValueEnum;
use plimsoll_memory::quoted;
use serde_json::json;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Write a workload to start from, with comments, that trains as it is
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What it is called: NAME.toml is written
    name: PathBuf,
    /// The data to begin with
    #[arg(long, value_enum, default_value = "digits")]
    data: Data,
    /// Print nothing but errors
    #[arg(long, conflicts_with = "json")]
    quiet: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Data {
    /// Handwritten digits, which are built in
    Digits,
    /// A table in a file; a small one is written beside the workload
    Csv,
    /// Samples of any shape that are made on the fly
    Synthetic,
    /// Sequences of tokens that are made on the fly
    Tokens,
}

impl Data {
    fn template(self) -> &'static str {
        match self {
            Data::Digits => include_str!("../templates/digits.toml"),
            Data::Csv => include_str!("../templates/csv.toml"),
            Data::Synthetic => include_str!("../templates/synthetic.toml"),
            Data::Tokens => include_str!("../templates/tokens.toml"),
        }
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
    let mut files = vec![(beside(".toml"), args.data.template().replace("NAME", name))];
    if args.data == Data::Csv {
        files.push((beside(".csv"), example_table()));
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

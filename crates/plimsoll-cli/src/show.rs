//! What several commands print alike.

use crate::Result;
use console::Term;
use plimsoll::{Alternative, Forecast, Spec};
use plimsoll_explain::Style;
use plimsoll_memory::{cut_end, wrapped};
use std::env;
use std::error::Error;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

/// A command did what it was asked to and has printed the answer, which is no: the exit status says so too.
#[derive(Debug)]
pub(crate) struct AnswerIsNo;

impl fmt::Display for AnswerIsNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the answer is no")
    }
}

impl Error for AnswerIsNo {}

/// The workload's name, and what it is.
pub(crate) fn title(spec: &Spec, out: &mut dyn Write) -> Result {
    let title = match spec.about() {
        "" => spec.name().to_string(),
        about => format!("{}: {about}", spec.name()),
    };
    Ok(writeln!(out, "{}\n", wrapped(&title, width()).join("\n"))?)
}

/// A forecast for people, in short or all of it, with what would fit after the answer that it does not.
pub(crate) fn forecast(
    forecast: &Forecast,
    alternatives: &[Alternative],
    verbose: bool,
    out: &mut dyn Write,
) -> Result {
    let text = if verbose { forecast.to_text(width()) } else { forecast.brief(width()) };
    let (answer, rest) = text.split_once('\n').unwrap_or((&text, ""));
    writeln!(out, "{}", coloured(answer))?;
    if !alternatives.is_empty() {
        writeln!(out, "what would fit:")?;
    }
    for alternative in alternatives {
        for (number, line) in wrapped(&alternative.to_string(), width() - 4).iter().enumerate() {
            writeln!(out, "{}{line}", if number == 0 { "  " } else { "    " })?;
        }
    }
    Ok(write!(out, "{rest}")?)
}

/// An answer that stands by itself.
pub(crate) fn answer(answer: &str, out: &mut dyn Write) -> Result {
    Ok(writeln!(out, "{}", coloured(&cut_end(answer, width())))?)
}

/// Lines of a name and what there is to say of it: what is too long goes on below, at that column.
pub(crate) fn lines(text: &str, column: usize, out: &mut dyn Write) -> Result {
    let room = width().saturating_sub(column).max(1);
    for line in text.lines() {
        if line.chars().count() <= width() {
            writeln!(out, "{line}")?;
            continue;
        }
        let name: String = line.chars().take(column).collect();
        let rest: String = line.chars().skip(column).collect();
        for (number, part) in wrapped(&rest, room).iter().enumerate() {
            writeln!(out, "{:<column$}{part}", if number == 0 { &name } else { "" })?;
        }
    }
    Ok(())
}

/// Data for other programs.
pub(crate) fn json(value: &serde_json::Value, out: &mut dyn Write) -> Result {
    Ok(writeln!(out, "{value:#}")?)
}

/// When to colour what is printed.
#[derive(Clone, Copy, Default, clap::ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal that has not declined it (NO_COLOR, CLICOLOR=0, TERM=dumb)
    #[default]
    Auto,
    /// Whatever reads it
    Always,
    /// Not at all
    Never,
}

/// What the command line says; it is said once, before anything is printed.
static COLOUR: OnceLock<Colour> = OnceLock::new();

/// Settles when to colour what is printed.
pub(crate) fn set_colour(colour: Colour) {
    let _ = COLOUR.set(colour);
}

/// Whether to colour what goes to a stream.
pub(crate) fn is_coloured(is_terminal: bool) -> bool {
    let is = |name: &str, value: &str| env::var_os(name).is_some_and(|found| found == value);
    let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    match COLOUR.get().copied().unwrap_or_default() {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto if is_set("NO_COLOR") || is("TERM", "dumb") => false,
        Colour::Auto if is_set("CLICOLOR_FORCE") && !is("CLICOLOR_FORCE", "0") => true,
        Colour::Auto => is_terminal && !is("CLICOLOR", "0"),
    }
}

/// An answer in which the words that decide are green or red.
fn coloured(answer: &str) -> String {
    let decided = answer.split_once(':').filter(|_| is_coloured(io::stdout().is_terminal()));
    match decided {
        Some((words, rest)) if words.ends_with("not fit") => format!("\x1b[1;31m{words}\x1b[0m:{rest}"),
        Some((words, rest)) => format!("\x1b[1;32m{words}\x1b[0m:{rest}"),
        None => answer.to_string(),
    }
}

/// How to write for whoever reads the standard output, as wide as the shell says (`COLUMNS`) or the terminal is.
pub(crate) fn style() -> Style {
    Style {
        colour: is_coloured(io::stdout().is_terminal()),
        width: columns().unwrap_or(Style::default().width),
    }
}

/// The columns that there are; of what is no terminal, enough for most lines to be whole.
pub(crate) fn width() -> usize {
    columns().unwrap_or(120)
}

fn columns() -> Option<usize> {
    columns_of(&Term::stdout())
}

/// As many columns as the shell says (`COLUMNS`), or the terminal.
pub(crate) fn columns_of(terminal: &Term) -> Option<usize> {
    let said = env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let of_terminal = || terminal.size_checked().map(|(_, columns)| usize::from(columns));
    said.or_else(of_terminal).map(|columns| columns.clamp(NARROWEST, WIDEST))
}

const NARROWEST: usize = 40;
const WIDEST: usize = 400;

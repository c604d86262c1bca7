//! The `plimsoll` command: what the libraries do, from a shell. Each command is a file of its own and knows
//! only how to ask and how to show.

mod bench;
mod data;
mod devices;
mod doctor;
mod evaluate;
mod explain;
mod export;
mod files;
mod forecast;
mod logging;
mod manual;
mod new;
mod output;
mod pack;
mod plan;
mod predict;
mod progress;
mod recording;
mod replay;
mod run;
mod selftest;
mod serve;
mod show;
mod signals;
mod summary;
mod target;
mod train;
mod trained;
mod weights;
mod workloads;

use clap::{Parser, Subcommand};
use output::{PlainText, WhileRead};
use serde_json::json;
use signals::Interrupted;
use std::error::Error;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

/// Train deep-learning models inside a memory budget, and know what every byte is for.
#[derive(Parser)]
#[command(name = "plimsoll", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// When to colour what is printed
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true
    )]
    color: show::Colour,
}

#[derive(Subcommand)]
enum Command {
    Train(Box<train::Args>),
    Evaluate(evaluate::Args),
    Predict(predict::Args),
    Forecast(forecast::Args),
    Summary(summary::Args),
    Plan(plan::Args),
    Data(data::Args),
    Bench(bench::Args),
    Export(export::Args),
    Explain(explain::Args),
    Replay(replay::Args),
    Pack(pack::Args),
    Workloads(workloads::Args),
    New(new::Args),
    Devices(devices::Args),
    Selftest(selftest::Args),
    Run(run::Args),
    Doctor(doctor::Args),
    Completions(manual::CompletionsArgs),
    Man(manual::ManArgs),
}

/// What a command returns. All that it has to say goes to the writer, so that a closed pipe is an error like
/// any other, not a panic.
type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let out = &mut PlainText::new(io::stdout().lock());
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(said) => return say(&said, out),
    };
    show::set_colour(cli.color);
    let result = match cli.command {
        // Training is not for what it prints: it goes on when nobody reads that any more.
        Command::Train(args) => train::run(&args, &mut WhileRead::new(&mut *out)),
        Command::Evaluate(args) => evaluate::run(&args, out),
        Command::Predict(args) => predict::run(&args, out),
        Command::Forecast(args) => forecast::run(&args, out),
        Command::Summary(args) => summary::run(&args, out),
        Command::Plan(args) => plan::run(&args, out),
        Command::Data(args) => data::run(&args, out),
        Command::Bench(args) => bench::run(&args, out),
        Command::Export(args) => export::run(&args, out),
        Command::Explain(args) => explain::run(&args, out),
        Command::Replay(args) => replay::run(&args, out),
        Command::Pack(args) => pack::run(&args, out),
        Command::Workloads(args) => workloads::run(&args, out),
        Command::New(args) => new::run(&args, out),
        Command::Devices(args) => devices::run(&args, out),
        Command::Selftest(args) => selftest::run(&args, out),
        // Its status is that of the program it ran.
        Command::Run(args) => return run::run(&args, out),
        Command::Doctor(args) => doctor::run(&args, out),
        Command::Completions(args) => manual::completions(&args, out),
        Command::Man(args) => manual::man(&args, out),
    };
    match result.and_then(|()| Ok(out.flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has seen enough.
        Err(error) if is_broken_pipe(&*error) => ExitCode::SUCCESS,
        Err(error) if error.is::<show::AnswerIsNo>() => match out.flush() {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => fail(&error, out),
            _ => ExitCode::FAILURE,
        },
        Err(error) => fail(&*error, out),
    }
}

/// Whether data was asked for: then errors are data too, those about the arguments included.
fn wants_json() -> bool {
    std::env::args_os().skip(1).take_while(|argument| argument != "--").any(|argument| argument == "--json")
}

/// Says what went wrong: to people on the standard error stream, to programs as an object on the standard output.
fn fail(error: &(dyn Error + 'static), out: &mut dyn Write) -> ExitCode {
    if wants_json() {
        tell_error(kind(error), error, out);
    } else {
        complain("error", error);
    }
    error.downcast_ref::<Interrupted>().map_or(ExitCode::FAILURE, |by| ExitCode::from(by.status))
}

/// An error as an object, with the messages of all that caused it.
fn tell_error(kind: String, error: &(dyn Error + 'static), out: &mut dyn Write) {
    let mut causes = vec![];
    let mut cause = error.source();
    while let Some(error) = cause {
        causes.push(error.to_string());
        cause = error.source();
    }
    let message = error.to_string();
    // A budget that nothing fits is an answer as well.
    let is_answer = kind == "budget";
    let mut object = json!({ "error": { "kind": kind, "message": message.trim_end(), "causes": causes } });
    if is_answer {
        object["fits"] = false.into();
    }
    // Where nobody reads it, there is nobody to tell.
    let _ = show::json(&object, out);
    let _ = out.flush();
}

/// What kind of error it is, in a word.
fn kind(error: &(dyn Error + 'static)) -> String {
    let known = (error.downcast_ref().map(|error: &plimsoll::Error| format!("{:?}", error.kind())))
        .or_else(|| error.downcast_ref().map(|e: &plimsoll_explain::Error| format!("{:?}", e.kind())))
        .or_else(|| error.downcast_ref().map(|_: &io::Error| "Io".to_string()));
    let mut word = String::new();
    for character in known.unwrap_or_else(|| "Other".into()).chars() {
        if character.is_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.extend(character.to_lowercase());
    }
    word
}

/// Help that was asked for, or what is wrong with the arguments.
fn say(said: &clap::Error, out: &mut dyn Write) -> ExitCode {
    let show = |text: &dyn Display, out: &mut dyn Write| _ = write!(out, "{text}").and_then(|()| out.flush());
    if said.use_stderr() && wants_json() {
        tell_error("usage".into(), said, out);
    } else if said.use_stderr() {
        show(&said.render(), &mut PlainText::new(io::stderr().lock()));
    } else {
        show(&said.render(), out);
    }
    ExitCode::from(u8::try_from(said.exit_code()).unwrap_or(1))
}

fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Writes an error or a warning and its causes. Where there is nobody to read it, there is nobody to tell that either.
fn complain(kind: &str, error: &(dyn Error + 'static)) {
    let kind = match (error.is::<Interrupted>(), show::is_coloured(io::stderr().is_terminal())) {
        (true, _) => String::new(),
        (false, true) => format!("\x1b[1;31m{kind}\x1b[0m: "),
        (false, false) => format!("{kind}: "),
    };
    let mut text = format!("{kind}{error}\n");
    let mut cause = error.source();
    while let Some(error) = cause {
        // Many messages say what caused them already.
        let line = error.to_string();
        if !text.contains(&line) {
            text += &format!("  because: {line}\n");
        }
        cause = error.source();
    }
    let mut out = PlainText::new(io::stderr().lock());
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

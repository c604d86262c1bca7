//! The `plimsoll` command: what the libraries do, from a shell. Each command is a file of its own and knows
//! only how to ask and how to show.

mod bench;
mod devices;
mod explain;
mod files;
mod forecast;
mod output;
mod pack;
mod progress;
mod recording;
mod replay;
mod selftest;
mod show;
mod target;
mod train;
mod workloads;

use clap::{Parser, Subcommand};
use output::{PlainText, WhileRead};
use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

/// Train deep-learning models inside a memory budget, and know what every byte is for.
#[derive(Parser)]
#[command(name = "plimsoll", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Train(train::Args),
    Forecast(forecast::Args),
    Bench(bench::Args),
    Explain(explain::Args),
    Replay(replay::Args),
    Pack(pack::Args),
    Workloads(workloads::Args),
    Devices(devices::Args),
    Selftest(selftest::Args),
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
    let result = match cli.command {
        // Training is not for what it prints: it goes on when nobody reads that any more.
        Command::Train(args) => train::run(&args, &mut WhileRead::new(&mut *out)),
        Command::Forecast(args) => forecast::run(&args, out),
        Command::Bench(args) => bench::run(&args, out),
        Command::Explain(args) => explain::run(&args, out),
        Command::Replay(args) => replay::run(&args, out),
        Command::Pack(args) => pack::run(&args, out),
        Command::Workloads(args) => workloads::run(&args, out),
        Command::Devices(args) => devices::run(&args, out),
        Command::Selftest(args) => selftest::run(&args, out),
    };
    match result.and_then(|()| Ok(out.flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has seen enough.
        Err(error) if is_broken_pipe(&*error) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&*error);
            ExitCode::FAILURE
        }
    }
}

/// Help that was asked for, or what is wrong with the arguments.
fn say(said: &clap::Error, out: &mut dyn Write) -> ExitCode {
    let show = |text: &dyn Display, out: &mut dyn Write| _ = write!(out, "{text}").and_then(|()| out.flush());
    if said.use_stderr() {
        show(&said.render(), &mut PlainText::new(io::stderr().lock()));
    } else {
        show(&said.render(), out);
    }
    ExitCode::from(u8::try_from(said.exit_code()).unwrap_or(1))
}

fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Writes an error and its causes. Where there is nobody to read it, there is nobody to tell that either.
fn complain(error: &(dyn Error + 'static)) {
    let mut text = format!("error: {error}\n");
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

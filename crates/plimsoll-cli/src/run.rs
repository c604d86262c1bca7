//! `plimsoll run`: a program of another's, watched.
//!
//! What a Python program can say of its own death is said by the package `plimsoll` inside of it, which a variable turns
//! on. A program that the system kills says nothing: that is said here, from what the system counted meanwhile.

mod killed;
mod process;

use killed::Killed;
use plimsoll_machine::System;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use crate::output::PlainText;

/// Run a program, and say why if it dies of memory
///
/// `plimsoll run train.py ARGS...` is `python train.py ARGS...`, `plimsoll run -m PACKAGE` is `python -m PACKAGE`, -c likewise, and
/// any other command is run as it is: `plimsoll run -- torchrun train.py`. Python programs need the package (pip install
/// plimsoll) where they run. Output and exit status are the program's own; what is said of memory comes under its
/// traceback, and what it was made of is left in a folder plimsoll-crash-TIME-PID.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A Python script, -m PACKAGE or -c CODE, or any command, and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> ExitCode {
    // What is still to be written comes before what the program writes.
    let _ = out.flush();
    let command = with_python(&args.command);
    if command.len() > args.command.len() && !has_package(&command[0]) {
        say(&format!(
            "plimsoll: {} does not have the package plimsoll: of its memory nothing is recorded; {} -m pip install \
             plimsoll\n",
            Path::new(&command[0]).display(),
            Path::new(&command[0]).display()
        ));
    }
    let before = System::read(Path::new("/"));
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]).env("PLIMSOLL_EXPLAIN", "1");
    if let (None, Ok(this)) = (env::var_os("PLIMSOLL_PROGRAM"), env::current_exe()) {
        program.env("PLIMSOLL_PROGRAM", this);
    }
    let (pid, status) = match process::run(&mut program) {
        Ok(ended) => ended,
        Err(error) => {
            say(&format!("error: {} cannot be run: {error}\n", Path::new(&command[0]).display()));
            // As shells do.
            return ExitCode::from(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 });
        }
    };
    let code = code_of(status);
    if let Some(killed) = Killed::see(pid, code, &before, &System::read(Path::new("/"))) {
        say(&killed.report());
    }
    ExitCode::from(code)
}

/// The exit status as shells have it: 128 and the number of the signal for one that was killed.
fn code_of(status: ExitStatus) -> u8 {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return u8::try_from(128 + signal).unwrap_or(u8::MAX);
    }
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// The command, with Python before a script or a module.
fn with_python(command: &[OsString]) -> Vec<OsString> {
    let first = &command[0];
    let is_script = Path::new(first).extension().is_some_and(|kind| kind == "py");
    let mut whole = command.to_vec();
    if is_script || first == "-m" || first == "-c" {
        whole.insert(0, python());
    }
    whole
}

/// The Python that a person means: the one that this program was installed beside, else the one that the shell finds.
fn python() -> OsString {
    let names = ["python", "python3"];
    let beside = env::args_os().next().map(PathBuf::from).and_then(|this| Some(this.parent()?.to_owned()));
    let path = env::var_os("PATH").unwrap_or_default();
    let beside = beside.filter(|folder| !folder.as_os_str().is_empty());
    let folders = beside.into_iter().chain(env::split_paths(&path));
    let mut found = folders.flat_map(|folder| names.map(|name| folder.join(name)));
    let is_program = |path: &PathBuf| path.with_extension(env::consts::EXE_EXTENSION).is_file();
    found.find(is_program).map_or("python3".into(), PathBuf::into_os_string)
}

/// Whether a Python has the package that does the recording.
fn has_package(python: &OsStr) -> bool {
    let ask = "import importlib.util, sys; sys.exit(importlib.util.find_spec('plimsoll') is None)";
    let asked = Command::new(python)
        .args(["-c", ask])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    // One that cannot even be asked is told of when it is run.
    asked.map_or(true, |status| status.success())
}

/// Writes beside the program's own errors.
fn say(text: &str) {
    let mut out = PlainText::new(io::stderr().lock());
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

//! Running the command as people do: in a folder, with arguments, looking at what it prints and leaves behind.

// Each test file uses its own part of this.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// A folder of its own to run in.
pub(crate) struct Place {
    folder: TempDir,
}

/// What a run printed, and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A workload on `data.csv`, in which each line's number matters to the tests.
pub(crate) const FLOWERS: &str = r#"loss = "sparse_cross_entropy"
metrics = ["accuracy"]

[data]
kind = "csv"
path = "data.csv"
label = "species"
classes = 2

[model]
kind = "sequential"
layers = [{ dense = 8, activation = "relu" }, { dense = 2 }]

[optimizer]
kind = "adam"
rate = 0.05

[train]
batch = 4
epochs = 40
"#;

impl Place {
    pub(crate) fn new() -> Place {
        Place { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("a file in the temporary folder");
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("a file that the run has written")
    }

    pub(crate) fn json(&self, name: &str) -> serde_json::Value {
        serde_json::from_str(&self.read(name)).expect("a file of JSON")
    }

    /// The names of what is in a folder here, in order; nothing if there is no such folder.
    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(name)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// What is in the folder of a run besides its logs, which are written as it goes.
    pub(crate) fn results(&self, name: &str) -> Vec<String> {
        let is_log = |name: &String| {
            name.starts_with("events.out.tfevents.") || ["log.jsonl", "page.html"].contains(&name.as_str())
        };
        self.list(name).into_iter().filter(|name| !is_log(name)).collect()
    }

    /// Runs the command here.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.finish(Command::new(binary()).args(args))
    }

    /// Runs a shell script here, in which `$PLIMSOLL` is the command.
    pub(crate) fn shell(&self, script: &str) -> Ran {
        self.finish(Command::new("sh").args(["-c", script]).env("PLIMSOLL", binary()))
    }

    /// Runs the command here and expects it to succeed.
    pub(crate) fn succeed(&self, args: &[&str]) -> Ran {
        let ran = self.run(args);
        assert_eq!(ran.code, Some(0), "{args:?}\n{}\n{}", ran.stdout, ran.stderr);
        ran
    }

    /// Runs the command here, expects it to fail as it should on bad input, and returns the error.
    pub(crate) fn fail(&self, args: &[&str]) -> String {
        self.run(args).error()
    }

    fn finish(&self, command: &mut Command) -> Ran {
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        let Output { status, stdout, stderr } = command.output().expect("the command runs");
        let text = |bytes| String::from_utf8(bytes).expect("the command prints text");
        Ran { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }
}

impl Ran {
    /// The message of an error that was reported properly.
    pub(crate) fn error(&self) -> String {
        assert_eq!(self.code, Some(1), "{}\n{}", self.stdout, self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        let error = self.stderr.split_once("error: ").map(|(_, error)| error.to_string());
        error.unwrap_or_else(|| panic!("no error in: {}", self.stderr))
    }
}

fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_plimsoll"))
}

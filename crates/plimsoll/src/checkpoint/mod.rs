//! Checkpoints: all that a run needs to go on as if it had never stopped.
//!
//! A checkpoint is a folder of four files: every state in its own type, what was measured so far, a manifest that says how far
//! training had come and of what, and the SHA-256 of these, as `sha256sum --check` reads them. It is written under a name
//! that no reader looks at, synced, and renamed; so what has a checkpoint's name is complete, and if a disk has spoiled it
//! since, its sums say so and the one before it is used. States are written from where they are, in small pieces.

mod history;
mod manifest;

pub(crate) use history::{History, Measured};
pub(crate) use manifest::Manifest;

use crate::disk::Disk;
use crate::save::{DRAFT, Draft, RunFolder, hexadecimal, io_error};
use crate::tensor_file::{Described, TensorFile, write_tensors};
use crate::{DType, Error, ErrorKind, Result, Run};
use manifest::MANIFEST;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The folder of checkpoints in that of a run.
const CHECKPOINTS: &str = "checkpoints";

/// The states of a checkpoint.
const STATES: &str = "states.safetensors";

/// What was measured until a checkpoint.
const HISTORY: &str = "history.safetensors";

/// The sums of a checkpoint's files. It is written last.
const SUMS: &str = "SHA256SUMS";

/// The bytes that are read of a file at a time.
const PIECE: usize = 1 << 20;

/// Longer than any manifest or list of sums. What is longer is some other file.
const MOST_TEXT: u64 = 1 << 20;

/// The checkpoints of a run, in its folder.
#[derive(Debug, Clone)]
pub(crate) struct Checkpoints {
    path: PathBuf,
    disk: Rc<dyn Disk>,
}

/// A checkpoint whose files are as they were written.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    pub(crate) path: PathBuf,
    pub(crate) manifest: Manifest,
}

impl Checkpoints {
    /// Those of a run, which has its folder to itself. What is left of incomplete ones is removed.
    pub(crate) fn of(folder: &RunFolder) -> Checkpoints {
        let path = folder.path().join(CHECKPOINTS);
        let checkpoints = Checkpoints { path, disk: Rc::clone(folder.disk()) };
        for draft in checkpoints.entries(|name| name.starts_with('.') && name.ends_with(DRAFT)) {
            // It is looked at by nobody, and the next to open the folder tries again.
            let _ = checkpoints.remove_files(&draft);
        }
        checkpoints
    }

    /// Saves the states of a run and what was measured, and returns where, and how many bytes of states there are.
    ///
    /// # Errors
    /// If the disk refuses, the device fails, or a state has numbers that are not finite: those would be of no use.
    pub(crate) fn save(
        &self,
        run: &mut Run,
        manifest: &Manifest,
        history: &History,
    ) -> Result<(PathBuf, u64)> {
        if !self.path.is_dir() {
            let made = self.disk.make_folder(&self.path);
            made.map_err(|error| io_error("cannot make the folder", &self.path, error))?;
        }
        let place = self.path.join(folder_name(manifest.step));
        let draft = self.path.join(format!(".{}{DRAFT}", folder_name(manifest.step)));
        self.write(run, manifest, history, &draft, &place).inspect_err(|_| {
            // Whatever cannot be removed either is no checkpoint, and the next to open the folder tries again.
            let _ = self.remove_files(&draft);
            let _ = self.disk.remove_folder(&self.path);
        })
    }

    /// Writes a checkpoint aside, and moves it to its place.
    fn write(
        &self,
        run: &mut Run,
        manifest: &Manifest,
        history: &History,
        draft: &Path,
        place: &Path,
    ) -> Result<(PathBuf, u64)> {
        self.clear(draft)?;
        let made = self.disk.make_folder(draft);
        made.map_err(|error| io_error("cannot make the folder", draft, error))?;
        let mut sums = String::new();
        let mut file = |name: &str, write: &mut dyn FnMut(&mut Draft) -> Result<()>| -> Result<u64> {
            let mut file = Draft::begin(&*self.disk, &draft.join(name), &place.join(name))?;
            write(&mut file)?;
            let bytes = file.bytes();
            sums += &format!("{}  {name}\n", file.finish()?);
            Ok(bytes)
        };
        let states = run.lasting_states();
        let bytes = file(STATES, &mut |file| {
            write_tensors(file, &states, &mut |index, write| {
                let state = &states[index];
                run.show_state(&state.name, &mut |piece| {
                    check_finite(state, piece, manifest.step)?;
                    write(piece)
                })
            })
        })?;
        file(HISTORY, &mut |file| history.write(file))?;
        file(MANIFEST, &mut |file| file.write(manifest.to_text()?.as_bytes()))?;
        let mut last = Draft::begin(&*self.disk, &draft.join(SUMS), &place.join(SUMS))?;
        last.write(sums.as_bytes())?;
        last.finish()?;
        let cannot_write = |error| io_error("cannot write", place, error);
        self.disk.sync_folder(draft).map_err(cannot_write)?;
        // One of this step that is there is spoiled, or of a run before.
        self.clear(place)?;
        self.disk.rename(draft, place).map_err(cannot_write)?;
        self.disk.sync_folder(&self.path).map_err(cannot_write)?;
        Ok((place.to_path_buf(), bytes))
    }

    /// The last checkpoint that is complete, and what is wrong with those after it.
    pub(crate) fn latest(&self) -> (Option<Checkpoint>, Vec<Error>) {
        let mut wrong = vec![];
        for (_, path) in self.steps().into_iter().rev() {
            match Checkpoint::open(&path) {
                Ok(checkpoint) => return (Some(checkpoint), wrong),
                Err(error) => wrong.push(error),
            }
        }
        (None, wrong)
    }

    /// Whether there is a checkpoint of a step.
    pub(crate) fn has(&self, step: u64) -> bool {
        self.path.join(folder_name(step)).is_dir()
    }

    /// The checkpoint of a step, if it is complete.
    pub(crate) fn of_step(&self, step: u64) -> Result<Checkpoint> {
        Checkpoint::open(&self.path.join(folder_name(step)))
    }

    /// Removes all but the last so many, and one more that is to stay.
    pub(crate) fn keep(&self, last: usize, best: Option<u64>) -> Result<()> {
        let steps = self.steps();
        let old = steps.len().saturating_sub(last.max(1));
        let removed = steps[..old].iter().filter(|(step, _)| Some(*step) != best);
        removed.into_iter().try_for_each(|(_, path)| self.clear(path))
    }

    /// Removes all.
    pub(crate) fn remove_all(&self) -> Result<()> {
        self.steps().iter().rev().try_for_each(|(_, path)| self.clear(path))
    }

    /// The steps that there are checkpoints of, in order, with their folders.
    fn steps(&self) -> Vec<(u64, PathBuf)> {
        let mut steps: Vec<(u64, PathBuf)> = self
            .entries(|name| step_of(name).is_some())
            .into_iter()
            .filter_map(|path| Some((step_of(&path.file_name()?.to_string_lossy())?, path)))
            .collect();
        steps.sort();
        steps
    }

    fn entries(&self, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(&self.path) else { return vec![] };
        let paths = entries.flatten().filter(|entry| wanted(&entry.file_name().to_string_lossy()));
        paths.map(|entry| entry.path()).collect()
    }

    /// Removes a folder of files, if there is one: first its name, so that what is left at any moment is no checkpoint.
    fn clear(&self, path: &Path) -> Result<()> {
        if !path.exists() {
            return Ok(());
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let hidden = match name.starts_with('.') {
            true => path.to_path_buf(),
            false => self.path.join(format!(".{name}.old{DRAFT}")),
        };
        let cannot_remove = |error| io_error("cannot remove", path, error);
        if hidden != path {
            self.remove_files(&hidden).map_err(cannot_remove)?;
            self.disk.rename(path, &hidden).map_err(cannot_remove)?;
        }
        self.remove_files(&hidden).map_err(cannot_remove)
    }

    fn remove_files(&self, folder: &Path) -> std::io::Result<()> {
        if !folder.exists() {
            return Ok(());
        }
        for entry in fs::read_dir(folder)? {
            self.disk.remove_file(&entry?.path())?;
        }
        self.disk.remove_folder(folder)
    }
}

impl Checkpoint {
    /// Opens a checkpoint and reads all of it once, to see that it is as it was written.
    fn open(path: &Path) -> Result<Checkpoint> {
        let sums = read_text(&path.join(SUMS))?;
        let sums: BTreeMap<&str, &str> =
            sums.lines().filter_map(|line| line.split_once("  ")).map(|(sum, name)| (name, sum)).collect();
        for name in [MANIFEST, HISTORY, STATES] {
            let file = path.join(name);
            if sums.get(name) != Some(&&*sum_of(&file)?) {
                let message = format!("{} is not as it was written: its SHA-256 is another", file.display());
                return Err(Error::new(ErrorKind::File, message));
            }
        }
        let manifest = Manifest::parse(&read_text(&path.join(MANIFEST))?, &path.join(MANIFEST))?;
        Ok(Checkpoint { path: path.to_path_buf(), manifest })
    }

    /// What was measured until then.
    pub(crate) fn history(&self) -> Result<History> {
        History::read(&TensorFile::open(self.path.join(HISTORY))?)
    }

    /// Gives a run the states of this checkpoint: all of them, or with `of_model` those that the model is made of.
    ///
    /// # Errors
    /// If the run has others, or the device or the disk fails.
    pub(crate) fn restore(&self, run: &mut Run, of_model: bool) -> Result<()> {
        let file = TensorFile::open(self.path.join(STATES))?;
        let states = run.lasting_states();
        let complain = |message: String| Err(Error::new(ErrorKind::File, message));
        for tensor in file.tensors() {
            if states.iter().all(|state| state.name != tensor.name()) {
                return complain(format!(
                    "{} has a state `{}` that this run does not have: the model or the optimizer is another",
                    file.path().display(),
                    tensor.name()
                ));
            }
        }
        let wanted = run.states();
        for state in &states {
            if of_model && !wanted.iter().any(|known| known.of_model && known.name == state.name) {
                continue;
            }
            let Some((index, tensor)) = file.find(&state.name) else {
                return complain(format!(
                    "{} has no state `{}`: the model or the optimizer is another",
                    file.path().display(),
                    state.name
                ));
            };
            if tensor.dtype() != Some(state.dtype) || *tensor.shape() != *state.shape {
                return complain(format!(
                    "`{}` is {}{:?} in {} and {}{:?} in this run: the model is another",
                    state.name,
                    tensor.dtype_name(),
                    tensor.shape(),
                    file.path().display(),
                    state.dtype,
                    state.shape
                ));
            }
            run.write_state(&state.name, &mut |first, piece| file.read(index, first as u64, piece))?;
        }
        Ok(())
    }
}

fn folder_name(step: u64) -> String {
    format!("step-{step:010}")
}

fn step_of(name: &str) -> Option<u64> {
    name.strip_prefix("step-").filter(|digits| digits.len() >= 10)?.parse().ok()
}

fn read_text(path: &Path) -> Result<String> {
    plimsoll_memory::read_text(path, MOST_TEXT).map_err(|error| io_error("cannot read", path, error))
}

fn sum_of(path: &Path) -> Result<String> {
    let cannot_read = |error| io_error("cannot read", path, error);
    let mut file = File::open(path).map_err(cannot_read)?;
    let (mut sum, mut piece) = (Sha256::new(), vec![0; PIECE]);
    loop {
        match file.read(&mut piece).map_err(cannot_read)? {
            0 => return Ok(hexadecimal(sum)),
            count => sum.update(&piece[..count]),
        }
    }
}

/// Refuses numbers that training cannot go on from.
fn check_finite(state: &Described, piece: &[u8], step: u64) -> Result<()> {
    let is_finite = match state.dtype {
        DType::F32 => all(piece, |bytes| f32::from_ne_bytes(bytes).is_finite()),
        DType::F64 => all(piece, |bytes| f64::from_ne_bytes(bytes).is_finite()),
        DType::F16 => all(piece, |bytes| half::f16::from_ne_bytes(bytes).is_finite()),
        DType::BF16 => all(piece, |bytes| half::bf16::from_ne_bytes(bytes).is_finite()),
        DType::I32 | DType::I64 | DType::U8 | DType::Bool => true,
    };
    if is_finite {
        return Ok(());
    }
    let message = format!(
        "`{}` has numbers that are not finite after step {step}: training has diverged, and no checkpoint of it is saved; \
         lower the learning rate, or clip gradients",
        state.name
    );
    Err(Error::new(ErrorKind::Diverged, message))
}

fn all<const N: usize>(piece: &[u8], holds: impl Fn([u8; N]) -> bool) -> bool {
    piece.chunks_exact(N).all(|bytes| bytes.try_into().is_ok_and(&holds))
}

//! A run that is ended at any call to the disk goes on from its last complete checkpoint, and comes to the same bits.

use plimsoll::data::Dataset;
use plimsoll::disk::{Disk, DiskFile, LocalDisk};
use plimsoll::layers::{Activation, Dense, Dropout, Sequential};
use plimsoll::loss::Loss;
use plimsoll::{Every, Optimizer, RunFolder, Start, Trainer, TrainingReport, data};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// How a call to the disk goes wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// The process ends before the call.
    Before,
    /// It ends after it.
    After,
    /// Half of what is written is, and the process ends.
    Torn,
    /// The power fails before the call: what was not synced is lost, bytes and names.
    PowerLoss,
    /// The disk is full from then on, and the process goes on.
    Full,
}

/// A disk that fails at one of the calls to it.
#[derive(Debug, Clone, Default)]
struct FaultyDisk(Rc<RefCell<Log>>);

#[derive(Debug, Default)]
struct Log {
    calls: usize,
    fault: Option<(usize, Fault)>,
    failed: bool,
    /// The bytes of files that are not synced, by path.
    unsynced: BTreeMap<PathBuf, u64>,
    /// What was renamed in folders that were not synced since.
    renamed: Vec<(PathBuf, PathBuf)>,
}

impl FaultyDisk {
    fn with(call: usize, fault: Fault) -> FaultyDisk {
        FaultyDisk(Rc::new(RefCell::new(Log { fault: Some((call, fault)), ..Log::default() })))
    }

    /// Makes a call, or fails as this one is to.
    fn call<T>(
        &self,
        torn: impl FnOnce() -> io::Result<()>,
        call: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let mut log = self.0.borrow_mut();
        let fault = log.fault.filter(|(at, _)| *at <= log.calls).map(|(_, fault)| fault);
        log.calls += 1;
        let Some(fault) = fault else {
            drop(log);
            return call();
        };
        let first = !std::mem::replace(&mut log.failed, true);
        if first && fault == Fault::PowerLoss {
            log.lose_power();
        }
        drop(log);
        match fault {
            Fault::After if first => _ = call()?,
            Fault::Torn if first => torn()?,
            _ => {}
        }
        let message = if fault == Fault::Full { "no space left on device" } else { "the process has ended" };
        Err(io::Error::other(message))
    }
}

impl Log {
    /// Loses what was not synced.
    fn lose_power(&mut self) {
        for (from, to) in self.renamed.drain(..).rev() {
            if to.exists() && !from.exists() {
                fs::rename(&to, &from).unwrap();
            }
        }
        for (path, bytes) in std::mem::take(&mut self.unsynced) {
            if let Ok(file) = File::options().write(true).open(path) {
                file.set_len(bytes / 2).unwrap();
            }
        }
    }
}

impl Disk for FaultyDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let inner = self.call(|| Ok(()), || LocalDisk.create(path))?;
        self.0.borrow_mut().unsynced.insert(path.to_path_buf(), 0);
        Ok(Box::new(FaultyFile { inner, path: path.to_path_buf(), disk: self.clone() }))
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        self.call(|| Ok(()), || LocalDisk.make_folder(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(|| Ok(()), || LocalDisk.rename(from, to))?;
        self.0.borrow_mut().renamed.push((from.to_path_buf(), to.to_path_buf()));
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.call(|| Ok(()), || LocalDisk.remove_file(path))
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        self.call(|| Ok(()), || LocalDisk.remove_folder(path))
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.call(|| Ok(()), || LocalDisk.sync_folder(path))?;
        self.0.borrow_mut().renamed.retain(|(_, to)| to.parent() != Some(path));
        Ok(())
    }
}

struct FaultyFile {
    inner: Box<dyn DiskFile>,
    path: PathBuf,
    disk: FaultyDisk,
}

impl DiskFile for FaultyFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let inner = RefCell::new(&mut self.inner);
        self.disk.call(
            || inner.borrow_mut().write(&bytes[..bytes.len() / 2]),
            || inner.borrow_mut().write(bytes),
        )?;
        *self.disk.0.borrow_mut().unsynced.entry(self.path.clone()).or_default() += bytes.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        // Synced for real it would take the tests minutes; what is lost without it is told by the log.
        self.disk.call(|| Ok(()), || Ok(()))?;
        self.disk.0.borrow_mut().unsynced.remove(&self.path);
        Ok(())
    }
}

struct Case {
    trainer: Trainer,
    data: Dataset,
    held_out: Dataset,
}

impl Case {
    fn new() -> Case {
        let all = Dataset::new(data::digits()).unwrap();
        let split = all.split(0.05, 1).unwrap();
        let held_out = split.held_out.split(0.05, 2).unwrap().train;
        let model = Sequential::new()
            .then(plimsoll::layers::Flatten)
            .then(Dense::new(6).activation(Activation::Relu))
            .then(Dropout(0.2))
            .then(Dense::new(10));
        let trainer = Trainer::new(model, Loss::SparseCrossEntropy, Optimizer::adam(1e-2))
            .batch(16)
            .steps(10)
            .threads(1)
            .validate(Every::Steps(4))
            .checkpoint(Every::Steps(3))
            .keep_best("loss")
            .keep(1);
        Case { trainer, data: split.train, held_out }
    }

    fn fit(&self, disk: Rc<dyn Disk>, folder: &Path, start: Start) -> plimsoll::Result<TrainingReport> {
        let mut folder = RunFolder::open_on(disk, folder)?;
        let mut training = self.trainer.compile(&self.data, Some(&self.held_out))?;
        training.fit_into(&mut folder, start, &mut ())
    }
}

fn results(folder: &Path) -> Vec<u8> {
    fs::read(folder.join("weights.safetensors")).unwrap()
}

/// Everything under a folder, as long as it is no checkpoint and no result.
fn leftovers(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    for entry in fs::read_dir(folder).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with('.') {
            found.push(entry.path());
        } else if entry.path().is_dir() {
            found.extend(leftovers(&entry.path()));
        }
    }
    found
}

fn every_call_fails_by(fault: Fault) {
    let case = Case::new();
    let place = tempfile::tempdir().unwrap();
    let whole = place.path().join("whole");
    let counting = FaultyDisk::default();
    let expected = case.fit(Rc::new(counting.clone()), &whole, Start::Anew).unwrap();
    let calls = counting.0.borrow().calls;
    assert!(calls > 100, "{calls} calls");
    for call in 0..calls {
        let folder = place.path().join(call.to_string());
        let faulty = FaultyDisk::with(call, fault);
        let ended = case.fit(Rc::new(faulty), &folder, Start::Anew);
        assert!(ended.is_err() || call > calls / 2, "{fault:?} at call {call} went unnoticed");
        let report = case.fit(Rc::new(FaultyDisk::default()), &folder, Start::Resume);
        let report = report.unwrap_or_else(|error| panic!("{fault:?} at call {call}: {error}"));
        assert_eq!(report.losses, expected.losses, "{fault:?} at call {call}");
        assert_eq!(report.validations, expected.validations, "{fault:?} at call {call}");
        assert_eq!(report.best_step, expected.best_step, "{fault:?} at call {call}");
        assert!(results(&folder) == results(&whole), "{fault:?} at call {call}: other weights");
        assert_eq!(leftovers(&folder), Vec::<PathBuf>::new(), "{fault:?} at call {call}");
        fs::remove_dir_all(&folder).unwrap();
    }
}

#[test]
fn a_run_that_ends_before_any_call_to_the_disk_goes_on() {
    every_call_fails_by(Fault::Before);
}

#[test]
fn a_run_that_ends_after_any_call_to_the_disk_goes_on() {
    every_call_fails_by(Fault::After);
}

#[test]
fn a_run_that_ends_within_any_write_goes_on() {
    every_call_fails_by(Fault::Torn);
}

#[test]
fn a_run_that_loses_power_at_any_call_to_the_disk_goes_on() {
    every_call_fails_by(Fault::PowerLoss);
}

#[test]
fn a_run_whose_disk_is_full_at_any_call_goes_on_when_there_is_room() {
    every_call_fails_by(Fault::Full);
}

#[test]
fn a_checkpoint_with_any_bit_flipped_is_passed_over() {
    let case = Case::new();
    let trainer = case.trainer.clone().keep(3);
    let case = Case { trainer, ..case };
    let place = tempfile::tempdir().unwrap();
    let whole = place.path().join("whole");
    let expected = case.fit(Rc::new(LocalDisk), &whole, Start::Anew).unwrap();
    let weights = results(&whole);
    let last = whole.join("checkpoints/step-0000000010");
    for name in ["states.safetensors", "history.safetensors", "manifest.json", "SHA256SUMS"] {
        let path = last.join(name);
        let bytes = fs::read(&path).unwrap();
        let every = (bytes.len() / 12).max(1);
        for position in (0..bytes.len()).step_by(every).chain([bytes.len() - 1]) {
            let mut spoiled = bytes.clone();
            spoiled[position] ^= 1 << (position % 8);
            fs::write(&path, &spoiled).unwrap();
            let report = case.fit(Rc::new(FaultyDisk::default()), &whole, Start::Resume).unwrap();
            assert_eq!(report.losses, expected.losses);
            assert!(
                report.resumed_from < Some(10),
                "byte {position} of {name} is another and was not noticed"
            );
            assert!(results(&whole) == weights, "byte {position} of {name}");
        }
        fs::write(&path, &bytes).unwrap();
    }
}

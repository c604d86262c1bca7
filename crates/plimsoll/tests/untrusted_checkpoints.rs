//! Checkpoints that somebody else made: whole by their sums, with anything in them. Training goes on, or says why it cannot; it
//! never panics, nor takes time or memory for numbers that a file merely claims.

use plimsoll::data::{Columns, Dataset};
use plimsoll::layers::{Dense, Sequential};
use plimsoll::loss::Loss;
use plimsoll::{Every, Optimizer, RunFolder, Start, Trainer, TrainingReport};
use proptest::prelude::*;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};

/// Training whose samples are read by number, or in their order through a buffer.
fn fit(folder: &Path, is_stream: bool, start: Start) -> plimsoll::Result<TrainingReport> {
    let features: Vec<f32> = (0..160).map(|n| (n % 7) as f32 - 3.0).collect();
    let labels: Vec<i32> = (0..40).map(|n| n % 3).collect();
    let columns = Columns::new().column("features", &[4], features)?.column("label", &[], labels)?;
    let data = Dataset::new(columns)?;
    let data = if is_stream { data.shuffle(8, 3) } else { data };
    let model = Sequential::new().then(Dense::new(3));
    let trainer = Trainer::new(model, Loss::SparseCrossEntropy, Optimizer::adam(1e-2)).batch(8).threads(1);
    let trainer = trainer.steps(9).checkpoint(Every::Steps(3)).keep(3);
    trainer.compile(&data, None)?.fit_into(&mut RunFolder::open(folder)?, start, &mut ())
}

/// The last checkpoint before the end.
fn checkpoint(folder: &Path) -> PathBuf {
    folder.join("checkpoints/step-0000000006")
}

/// A run that has come to its last checkpoint but one.
fn interrupted(is_stream: bool) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fit(folder.path(), is_stream, Start::Anew).unwrap();
    fs::remove_dir_all(folder.path().join("checkpoints/step-0000000009")).unwrap();
    folder
}

/// Writes the sums of what is there now.
fn seal(checkpoint: &Path) {
    let names = ["states.safetensors", "history.safetensors", "manifest.json"];
    let sum = |name: &str| -> String {
        let digest = Sha256::digest(fs::read(checkpoint.join(name)).unwrap());
        let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{digits}  {name}\n")
    };
    fs::write(checkpoint.join("SHA256SUMS"), names.map(sum).concat()).unwrap();
}

/// Numbers that a manifest has no reason to have, and things that are no numbers.
fn strange() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        Just(u64::MAX),
        Just(u64::MAX - 1),
        Just(1u64 << 63),
        Just(1u64 << 32),
        0..20u64,
        any::<u64>()
    ];
    prop_oneof![
        6 => number.clone().prop_map(|number| json!(number)),
        1 => any::<i64>().prop_map(|number| json!(number)),
        1 => any::<f64>().prop_map(|number| json!(number)),
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(|flag| json!(flag)),
        1 => ".{0,12}".prop_map(|text| json!(text)),
        3 => prop::collection::vec(number, 0..12).prop_map(|numbers| json!(numbers)),
    ]
}

const KEYS: [&str; 9] = [
    "step",
    "steps",
    "epoch",
    "batch_in_epoch",
    "data_position",
    "finished",
    "best_step",
    "format",
    "version",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_manifest_with_anything_in_it_never_makes_resuming_panic_or_hang(
        changes in prop::collection::vec((prop::sample::select(&KEYS[..]), strange()), 1..4),
        is_stream: bool,
    ) {
        let folder = interrupted(is_stream);
        let path = checkpoint(folder.path()).join("manifest.json");
        let mut manifest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        for (key, value) in changes {
            manifest[key] = value;
        }
        fs::write(&path, manifest.to_string()).unwrap();
        seal(&checkpoint(folder.path()));
        if let Ok(report) = fit(folder.path(), is_stream, Start::Resume) {
            prop_assert!(report.losses.len() <= 9, "{} losses", report.losses.len());
        }
    }

    #[test]
    fn files_of_a_checkpoint_with_bytes_changed_never_make_resuming_panic(
        name in prop::sample::select(vec!["states.safetensors", "history.safetensors", "manifest.json"]),
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let folder = interrupted(false);
        let path = checkpoint(folder.path()).join(name);
        let mut bytes = fs::read(&path).unwrap();
        for (place, byte) in places {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        fs::write(&path, &bytes).unwrap();
        seal(&checkpoint(folder.path()));
        let _ = fit(folder.path(), false, Start::Resume);
    }
}

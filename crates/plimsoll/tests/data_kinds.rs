//! Workloads on kinds of files that are read otherwise than by number: packed ones.

use plimsoll::data::Dataset;
use plimsoll::{Spec, Trained};
use std::io::Write;
use std::path::{Path, PathBuf};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A workload on this data, with more in `[train]`.
fn workload(data: &str, train: &str) -> String {
    format!(
        "loss = \"sparse_cross_entropy\"\n[data]\n{data}\n[model]\nkind = \"sequential\"\nlayers = [\"flatten\", {{ dense \
         = 3 }}]\n[optimizer]\nkind = \"sgd\"\nrate = 0.1\n[train]\nbatch = 4\nepochs = 2\nseed = 3\n{train}\n"
    )
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../plimsoll-data/tests/data")
}

/// The label of each sample of an epoch.
fn labels(data: &Dataset, epoch: u64) -> Result<Vec<i32>> {
    let (mut records, mut labels) = (data.records(epoch)?, vec![]);
    while let Some(record) = records.read()? {
        labels.extend_from_slice(record.get::<i32>("label")?);
    }
    Ok(labels)
}

fn train(spec: &Spec) -> Result<Trained> {
    let (data, held_out) = spec.datasets()?;
    Ok(spec.trainer().fit(&data, held_out.as_ref(), &mut ())?)
}

fn gzip(text: &str) -> Result<Vec<u8>> {
    let mut packed = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
    packed.write_all(text.as_bytes())?;
    Ok(packed.finish()?)
}

/// Rows of which each has another label, packed, in a folder.
fn packed_rows(rows: usize) -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    let rows: String = (0..rows).map(|row| format!("{row},{},{row}\n", row % 7)).collect();
    std::fs::write(folder.path().join("rows.csv.gz"), gzip(&format!("a,b,y\n{rows}"))?)?;
    Ok(folder)
}

fn on_rows(folder: &Path, classes: usize, more: &str, train: &str) -> plimsoll::Result<Spec> {
    let data = format!("kind = \"csv\"\npath = \"rows.csv.gz\"\nlabel = \"y\"\nclasses = {classes}\n{more}");
    Spec::parse(&workload(&data, train), &folder.join("mine.toml"))
}

#[test]
fn packed_records_train_to_the_losses_of_the_same_records_unpacked() -> Result {
    let features = "features = \"floats\"\nshape = [2, 3]\nlabel = \"label\"\nclasses = 3";
    for (kind, names) in [
        ("jsonl", &["records.jsonl", "records.jsonl.gz", "records.jsonl.zst"][..]),
        ("tfrecord", &["records.tfrecord", "records.tfrecord.gz"]),
    ] {
        let mut losses = vec![];
        for name in names {
            // A buffer of one leaves the order as it is.
            let data = format!("kind = \"{kind}\"\npath = \"{name}\"\n{features}\nshuffle_buffer = 1");
            let spec = Spec::parse(&workload(&data, ""), &fixtures().join("mine.toml"))?;
            let (data, _) = spec.datasets()?;
            assert_eq!((data.samples(), labels(&data, 0)?), (5, vec![0, 1, 2, 0, 1]), "{name}");
            losses.push(train(&spec)?.report.losses);
        }
        assert_eq!(losses[0].len(), 4);
        assert!(losses.iter().all(|other| *other == losses[0]), "{losses:?}");
    }
    Ok(())
}

#[test]
fn packed_rows_are_shuffled_anew_each_epoch_and_kept_in_order_where_they_are_not_trained_on() -> Result {
    let folder = packed_rows(300)?;
    let spec = on_rows(folder.path(), 300, "", "")?;
    let in_order: Vec<i32> = (0..300).collect();
    let all = spec.all_data()?;
    assert_eq!((all.samples(), all.resident_bytes()), (300, 0));
    assert_eq!(labels(&all, 0)?, in_order);
    let (data, _) = spec.datasets()?;
    let (first, second) = (labels(&data, 0)?, labels(&data, 1)?);
    assert!(first != in_order && second != in_order && first != second);
    assert_eq!(labels(&spec.datasets()?.0, 1)?, second);
    for mut epoch in [first, second] {
        epoch.sort();
        assert_eq!(epoch, in_order);
    }
    Ok(())
}

#[test]
fn a_buffer_that_is_not_asked_for_leaves_room_within_the_memory_that_is_given() -> Result {
    let folder = packed_rows(3000)?;
    let spec = on_rows(folder.path(), 3000, "memory = \"64KiB\"", "")?;
    let (data, _) = spec.datasets()?;
    let mut records = data.records(0)?;
    while records.read()?.is_some() {}
    let most = records.report().most_bytes;
    assert!((16 << 10..=64 << 10).contains(&most), "{most}");
    Ok(())
}

#[test]
fn of_packed_rows_no_more_are_read_than_are_taken_and_spoiled_ones_are_left_out_if_asked() -> Result {
    let folder = packed_rows(300)?;
    let refused = |more: &str| -> Result<String> {
        match on_rows(folder.path(), 200, more, "")?.datasets() {
            Ok((data, _)) => Ok(data.samples().to_string()),
            Err(error) => Ok(error.to_string()),
        }
    };
    let message = refused("")?;
    let wanted = "rows.csv.gz: line 202, column `y`: the label 200 is outside of 0..200";
    assert!(message.contains(wanted), "{message}");
    assert_eq!(refused("take = 200")?, "200");
    assert_eq!(refused("skip_errors = 100")?, "200");
    assert!(refused("skip_errors = 99")?.contains("the label 299 is outside"));
    Ok(())
}

#[test]
fn packed_files_from_which_nothing_can_be_held_out_say_what_to_do() -> Result {
    let folder = packed_rows(30)?;
    let error = on_rows(folder.path(), 30, "", "held_out = 0.2")?.datasets().expect_err("a stream");
    let (error, path) = (error.to_string(), folder.path().join("rows.csv.gz"));
    let wanted = format!(
        "{}: packed files and large tables are read in their order, so `held_out` cannot pick",
        path.display()
    );
    assert!(
        error.starts_with(&wanted) && error.contains("unpack what is packed, or leave `held_out` out"),
        "{error}"
    );
    std::fs::write(&path, gzip("a,b,y\n")?)?;
    let error = on_rows(folder.path(), 30, "", "")?.datasets().expect_err("no rows");
    let wanted = format!("{}: there are no samples: there is nothing to train on", path.display());
    assert_eq!(error.to_string(), wanted);
    Ok(())
}

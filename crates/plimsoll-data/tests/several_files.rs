//! Sources of several parts, and `[data]` sections that name files by a pattern.

mod common;

use common::{fixtures, open};
use plimsoll_data::sources::{Answer, Concatenated, Inputs, Targets, npy};
use plimsoll_data::{Columns, ErrorKind, Record, Source};
use std::sync::Arc;

fn part(values: Vec<i32>) -> Arc<dyn Source> {
    Arc::new(Columns::new().column("x", &[], values).unwrap())
}

#[test]
fn parts_are_read_one_after_the_other_by_number() {
    let parts = [vec![1, 2], vec![], vec![3], vec![4, 5, 6]].map(|values| ("part".to_string(), part(values)));
    let all = Concatenated::new(parts.into()).unwrap();
    assert_eq!(all.samples(), 6);
    let mut record = Record::new(&all.fields().into());
    for sample in 0..6 {
        let mut bytes = [0; 4];
        all.read(sample, 0, &mut bytes).unwrap();
        all.read_record(sample, &mut record).unwrap();
        assert_eq!(i32::from_ne_bytes(bytes), sample as i32 + 1);
        assert_eq!(record.get::<i32>("x").unwrap(), [sample as i32 + 1]);
        assert_eq!(all.origin(sample), sample);
    }
    for first in 0..6 {
        for samples in 1..=6 - first {
            let mut bytes = vec![0; 4 * samples];
            all.read_range(first, samples, 0, &mut bytes).unwrap();
            let expected: Vec<u8> =
                (first + 1..=first + samples).flat_map(|x| (x as i32).to_ne_bytes()).collect();
            assert_eq!(bytes, expected, "{samples} from {first} on");
        }
    }
    assert!(all.read_range(4, 3, 0, &mut [0; 12]).is_err());
    assert!(all.read_range(0, 3, 0, &mut [0; 8]).is_err());
    let error = all.read(6, 0, &mut [0; 4]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NoSuchSample { sample: 6, samples: 6 }), "{error}");
    assert!(all.resident_bytes() >= 6 * 4);
}

#[test]
fn parts_with_other_fields_are_refused_by_name() {
    let other: Arc<dyn Source> = Arc::new(Columns::new().column("x", &[2], vec![1, 2]).unwrap());
    let parts = vec![("a.npy".to_string(), part(vec![1])), ("b.npy".to_string(), other)];
    let error = Concatenated::new(parts).err().unwrap();
    assert_eq!(
        error.to_string(),
        "field `x`: b.npy has (x: i32 [2]) where a.npy has (x: i32 []): sources that are read as one have the same \
         fields"
    );
    assert!(matches!(Concatenated::new(vec![]).err().unwrap().kind(), ErrorKind::Empty { .. }));
}

#[test]
fn workloads_name_files_by_patterns() {
    let folder = tempfile::tempdir().unwrap();
    for shard in 0..3 {
        let text = format!("a,b,y\n{shard}.5,1,{shard}\n{shard},2,0\n");
        std::fs::write(folder.path().join(format!("train-{shard}.csv")), text).unwrap();
        for (from, to) in [("little-f4", "x"), ("labels", "y")] {
            let to = folder.path().join(format!("{to}-{shard}.npy"));
            std::fs::copy(fixtures().join(format!("{from}.npy")), to).unwrap();
        }
    }
    let (answer, data) =
        open("csv", folder.path(), &[("path", "train-*.csv"), ("label", "y"), ("classes", "3")]).unwrap();
    assert_eq!((answer, data.samples()), (Answer::Classes, 6));
    let error =
        open("csv", folder.path(), &[("path", "train-*.csv"), ("label", "y"), ("classes", "2")]).unwrap_err();
    let message = error.to_string();
    assert!(
        message.ends_with(
            "train-2.csv: line 2, column `y`: the label 2 is outside of 0..2; number the classes from 0, or \
                               declare more of them"
        ),
        "{message}"
    );

    let arrays = [("inputs", "x-*.npy"), ("targets", "y-?.npy"), ("classes", "3")];
    let (_, data) = open("npy", folder.path(), &arrays).unwrap();
    let one = npy(
        fixtures().join("little-f4.npy"),
        fixtures().join("labels.npy"),
        Inputs::default(),
        Targets::Classes(3),
    );
    let (one, mut expected, mut found) = (one.unwrap(), [0; 24], [0; 24]);
    assert_eq!(data.samples(), 3 * one.samples());
    for sample in 0..data.samples() {
        data.source().unwrap().read(sample, 0, &mut found).unwrap();
        one.read(sample % one.samples(), 0, &mut expected).unwrap();
        assert_eq!(found, expected);
    }
    data.check_labels("label", 3).unwrap();
    let error =
        open("npy", folder.path(), &[("inputs", "x-*.npy"), ("targets", "y-0.npy"), ("classes", "3")])
            .unwrap_err();
    assert!(error.to_string().contains("1 files of targets where there are 3 of inputs"), "{error}");
    let error = open("text", folder.path(), &[("path", "no-*.txt"), ("length", "3")]).unwrap_err();
    assert!(error.to_string().ends_with("no-*.txt: no file matches this pattern"), "{error}");
}

#[test]
fn workloads_read_json_lines_and_examples() {
    let classes = [("features", "floats"), ("label", "label"), ("classes", "3")];
    let sections = [("jsonl", "records.jsonl", ("shape", "2,3")), ("tfrecord", "*.tfrecord", ("shape", "6"))];
    for (kind, path, shape) in sections {
        let (answer, data) =
            open(kind, &fixtures(), &[&classes[..], &[("path", path), shape]].concat()).unwrap();
        assert_eq!(answer, Answer::Classes);
        data.check().unwrap();
        data.check_labels("label", 3).unwrap();
        let mut bytes = [0; 24];
        data.source().unwrap().read(3, 0, &mut bytes).unwrap();
        assert_eq!(f32::from_ne_bytes(bytes[..4].try_into().unwrap()), 1.5);
    }
    let target = [("path", "records.jsonl"), ("features", "floats"), ("shape", "2,3"), ("target", "price")];
    let (answer, data) = open("jsonl", &fixtures(), &target).unwrap();
    assert_eq!(answer, Answer::Number);
    assert_eq!(data.fields()[1].name(), "target");
    let bytes = [
        ("path", "records.tfrecord"),
        ("features", "text"),
        ("shape", "5"),
        ("bytes", "true"),
        ("label", "label"),
        ("classes", "3"),
    ];
    let (_, data) = open("tfrecord", &fixtures(), &bytes).unwrap();
    let mut text = [0; 5];
    data.source().unwrap().read(1, 0, &mut text).unwrap();
    assert_eq!(&text, b"plain");

    let error = open("jsonl", &fixtures(), &target[..3]).unwrap_err();
    assert!(error.to_string().contains("exactly one of `label`"), "{error}");
    let error = open("jsonl", &fixtures(), &[&target[..], &[("classes", "3")]].concat()).unwrap_err();
    assert!(error.to_string().contains("a `target` has none"), "{error}");
}

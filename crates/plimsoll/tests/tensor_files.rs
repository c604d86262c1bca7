//! Safetensors files of any maker: what a good one holds is read, and what a bad one says is not believed.

use plimsoll::exchange::TensorFile;
use plimsoll::{DType, ErrorKind};
use proptest::prelude::*;
use safetensors::tensor::{Dtype, TensorView};
use std::collections::HashMap;
use std::io::Write;

fn file_of(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

/// A file with this header and so many zero bytes.
fn file_with(header: &str, bytes: usize) -> tempfile::NamedTempFile {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.resize(file.len() + bytes, 0);
    file_of(&file)
}

const TYPES: [(Dtype, Option<DType>, usize); 10] = [
    (Dtype::F64, Some(DType::F64), 8),
    (Dtype::F32, Some(DType::F32), 4),
    (Dtype::F16, Some(DType::F16), 2),
    (Dtype::BF16, Some(DType::BF16), 2),
    (Dtype::I64, Some(DType::I64), 8),
    (Dtype::I32, Some(DType::I32), 4),
    (Dtype::U8, Some(DType::U8), 1),
    (Dtype::BOOL, Some(DType::Bool), 1),
    (Dtype::F8_E4M3, None, 1),
    (Dtype::I16, None, 2),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_the_formats_own_library_writes_is_read(
        described in prop::collection::hash_map(
            ".{0,12}",
            (0..TYPES.len(), prop::collection::vec(0usize..5, 0..5)),
            // The library writes files of no tensors that it cannot read.
            1..12,
        ),
        metadata in prop::collection::hash_map("[a-z]{1,6}", ".{0,9}", 0..3),
        at in 0.0f64..1.0,
    ) {
        let stored: HashMap<String, (usize, Vec<usize>, Vec<u8>)> = described
            .into_iter()
            .enumerate()
            .map(|(number, (name, (ty, shape)))| {
                let bytes = shape.iter().product::<usize>() * TYPES[ty].2;
                let bytes = (0..bytes).map(|i| (i * 7 + number * 31) as u8).collect();
                (name, (ty, shape, bytes))
            })
            .collect();
        let views = stored.iter().map(|(name, (ty, shape, bytes))| {
            (name.clone(), TensorView::new(TYPES[*ty].0, shape.clone(), bytes).unwrap())
        });
        let written = safetensors::serialize(views, Some(metadata.clone())).unwrap();
        let file = file_of(&written);
        let read = TensorFile::open(file.path()).unwrap();
        prop_assert_eq!(read.tensors().len(), stored.len());
        prop_assert_eq!(read.metadata().iter().cloned().collect::<HashMap<_, _>>(), metadata);
        for (name, (ty, shape, bytes)) in &stored {
            let (index, tensor) = read.find(name).unwrap();
            prop_assert_eq!((tensor.dtype(), tensor.shape()), (TYPES[*ty].1, &shape[..]));
            prop_assert_eq!(tensor.bytes(), bytes.len() as u64);
            let from = (bytes.len() as f64 * at) as usize;
            let mut part = vec![0; bytes.len() - from];
            read.read(index, from as u64, &mut part).unwrap();
            prop_assert_eq!(&part[..], &bytes[from..]);
        }
    }

    #[test]
    fn a_file_with_some_bytes_changed_is_an_error_or_a_file(
        changes in prop::collection::vec((0usize..400, any::<u8>()), 1..6),
        length in 0usize..400,
        cut in any::<bool>(),
    ) {
        let values = [0u8; 64];
        let view = |shape| TensorView::new(Dtype::F32, shape, &values).unwrap();
        let mut bytes =
            safetensors::serialize([("a", view(vec![4, 4])), ("b", view(vec![16]))], None).unwrap();
        for (at, value) in changes {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        if cut {
            bytes.truncate(length);
        }
        if let Ok(read) = TensorFile::open(file_of(&bytes).path()) {
            let total: u64 = read.tensors().iter().map(|tensor| tensor.bytes()).sum();
            prop_assert!(total <= bytes.len() as u64);
            for (index, tensor) in read.tensors().iter().enumerate() {
                read.read(index, 0, &mut vec![0; tensor.bytes() as usize]).unwrap();
            }
        }
    }
}

#[test]
fn what_a_header_says_is_held_against_the_file() {
    let one = |dtype: &str, shape: &str, offsets: &str| {
        format!(r#"{{"w": {{"dtype": "{dtype}", "shape": {shape}, "data_offsets": {offsets}}}}}"#)
    };
    let many_axes = format!("[{}1]", "1,".repeat(80));
    let two = |a: &str, b: &str| {
        format!(
            r#"{{"a": {{"dtype": "U8", "shape": [4], "data_offsets": {a}}},
                 "b": {{"dtype": "U8", "shape": [4], "data_offsets": {b}}}}}"#
        )
    };
    let twice = one("U8", "[8]", "[0, 8]").replacen(
        '{',
        r#"{"w": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}, "#,
        1,
    );
    let cases = [
        (one("F32", "[2]", "[0, 7]"), 7, "has 7 bytes, not 8"),
        (one("F32", "[2]", "[0, 8]"), 7, "tensor `w` ends at 8, after the 7 bytes"),
        (one("F32", "[2]", "[0, 8]"), 9, "1 bytes before the file does"),
        (one("F32", "[2]", "[8, 0]"), 8, "begins at 8 and ends at 0"),
        (one("F32", "[2]", "[4, 12]"), 12, "nothing is between it and 0"),
        (one("F64", "[4294967296, 4294967296]", "[0, 0]"), 0, "more than can be counted"),
        (one("F32", "[18446744073709551615, 4]", "[0, 8]"), 8, "more than can be counted"),
        (one("F32", "[-1]", "[0, 8]"), 8, "invalid value"),
        (one("F32", &many_axes, "[0, 4]"), 4, "at most 64 axes"),
        (one("F32", "[2]", "[0, 8, 9]"), 8, "its header"),
        (two("[0, 4]", "[2, 6]"), 6, "tensor `b` begins at 2, where another is"),
        (twice, 8, "two tensors are called `w`"),
        (" {}".into(), 0, "does not begin with `{`"),
        ("[]".into(), 0, "does not begin with `{`"),
        (r#"{"w": 3}"#.into(), 0, "its header"),
        (r#"{"__metadata__": {"format": [1, 2]}}"#.into(), 0, "its header"),
        (
            format!(r#"{{"__metadata__": {{{}"a": ""}}}}"#, r#""a":"","#.repeat(1 << 16)),
            0,
            "at most 65536 texts",
        ),
    ];
    for (header, bytes, expected) in cases {
        let file = file_with(&header, bytes);
        let error = TensorFile::open(file.path()).unwrap_err();
        let message = error.to_string();
        assert_eq!(error.kind(), ErrorKind::File);
        assert!(message.contains(expected), "{message}");
        assert!(
            message.contains(&*file.path().to_string_lossy()) && message.contains("at byte"),
            "{message}"
        );
    }
}

#[test]
fn a_length_that_the_file_does_not_have_is_not_reserved() {
    for length in [u64::MAX, 1 << 40, 100_000_001, 99_000_000, 1] {
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.truncate(if length == 1 { 5 } else { 8 });
        let error = TensorFile::open(file_of(&bytes).path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::File, "{error}");
    }
}

#[test]
fn a_folder_and_a_file_that_is_not_there_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().to_path_buf(), folder.path().join("none")] {
        assert_eq!(TensorFile::open(&path).unwrap_err().kind(), ErrorKind::File);
    }
}

#[test]
fn bytes_that_a_tensor_does_not_have_are_not_read() {
    let header = r#"{"w": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}"#;
    let file = file_with(header, 4);
    let read = TensorFile::open(file.path()).unwrap();
    for (index, offset, bytes) in [(0, 1, 4), (0, 5, 0), (0, u64::MAX, 2), (1, 0, 0)] {
        let error = read.read(index, offset, &mut vec![0; bytes]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
    }
    let error = {
        file.as_file().set_len(header.len() as u64 + 9).unwrap();
        read.read(0, 0, &mut [0; 4]).unwrap_err()
    };
    assert_eq!(error.kind(), ErrorKind::File, "a file that was cut since: {error}");
}

#[test]
fn names_that_act_on_a_terminal_are_shown_escaped() {
    let header = r#"{"\u001b[2J": {"dtype": "U8", "shape": [4], "data_offsets": [0, 3]}}"#;
    let error = TensorFile::open(file_with(header, 3).path()).unwrap_err();
    assert!(error.to_string().contains(r"\u{1b}[2J"), "{error}");
}

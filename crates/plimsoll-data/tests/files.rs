//! Files that NumPy, gzip and the safetensors library wrote (`scripts/export_arrays.py`), read sample by sample; and what
//! is said of files that are cut off, spoiled or not what they should be.

use plimsoll_data::sources::{Inputs, Stored, Targets, Text, idx, npy, safetensors};
use plimsoll_data::{Dataset, Element, ErrorKind, RamBudget, Source};
use proptest::prelude::*;
use std::io::Write;
use std::path::{Path, PathBuf};

const CLASSES: Targets = Targets::Classes(3);
const PLAIN: Inputs = Inputs { scale: false, channels: false };

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn bytes(source: &impl Source, field: usize) -> Vec<u8> {
    let size = source.fields()[field].bytes();
    let mut all = vec![0; size * source.samples()];
    for (sample, out) in all.chunks_exact_mut(size).enumerate() {
        source.read(sample, field, out).unwrap();
    }
    all
}

fn floats(source: &impl Source, field: usize) -> Vec<f32> {
    bytes(source, field).chunks_exact(4).map(|bytes| f32::from_ne_bytes(bytes.try_into().unwrap())).collect()
}

fn integers(source: &impl Source, field: usize) -> Vec<i32> {
    bytes(source, field).chunks_exact(4).map(|bytes| i32::from_ne_bytes(bytes.try_into().unwrap())).collect()
}

/// What `export_arrays.py` calls `floats`.
fn expected_floats() -> Vec<f32> {
    (0..30).map(|number| number as f32 / 2.0 - 3.0).collect()
}

/// What `export_arrays.py` calls `wholes`.
fn expected_wholes() -> Vec<i32> {
    (0..30).map(|number| number - 12).collect()
}

/// The message of a failure to open, which must not be a failure to find the file.
fn refusal(opened: plimsoll_data::Result<Stored>) -> String {
    let error = opened.expect_err("this should be refused");
    assert!(!matches!(error.kind(), ErrorKind::Io { .. }), "{error}");
    error.to_string()
}

#[test]
fn npy_floats_of_every_type_order_and_version_are_f32() {
    let names =
        ["little-f2", "little-f4", "little-f8", "big-f2", "big-f4", "big-f8", "version-2", "version-3"];
    for name in names {
        let source = npy(file(&format!("{name}.npy")), file("labels.npy"), PLAIN, CLASSES).unwrap();
        assert_eq!((source.samples(), source.resident_bytes()), (5, 0));
        let features = &source.fields()[0];
        assert_eq!(
            (features.name(), features.element(), features.shape()),
            ("features", Element::F32, &[2, 3][..])
        );
        assert_eq!(floats(&source, 0), expected_floats(), "{name}");
        assert_eq!(source.fields()[1].name(), "label");
        assert_eq!(integers(&source, 1), [0, 1, 2, 1, 0]);
    }
}

#[test]
fn npy_whole_numbers_are_i32_and_bytes_stay_bytes() {
    for name in ["i1", "little-i2", "little-i4", "little-i8", "big-i2", "big-i4", "big-i8"] {
        let source = npy(file(&format!("{name}.npy")), file("labels.npy"), PLAIN, CLASSES).unwrap();
        assert_eq!(source.fields()[0].element(), Element::I32);
        assert_eq!(integers(&source, 0), expected_wholes(), "{name}");
    }
    let source = npy(file("unsigned.npy"), file("labels.npy"), PLAIN, CLASSES).unwrap();
    let unsigned: Vec<i32> = expected_wholes().iter().map(|&number| i32::from(number as u16)).collect();
    assert_eq!(integers(&source, 0), unsigned);
    let source = npy(file("u1.npy"), file("labels.npy"), PLAIN, CLASSES).unwrap();
    assert_eq!(bytes(&source, 0), (0..30).collect::<Vec<u8>>());
    let source = npy(file("b1.npy"), file("labels.npy"), PLAIN, CLASSES).unwrap();
    assert_eq!(bytes(&source, 0), [1, 0].repeat(15));
}

#[test]
fn a_column_of_targets_is_what_one_unit_predicts() {
    let source = npy(file("big-f8.npy"), file("targets.npy"), PLAIN, Targets::Numbers).unwrap();
    assert_eq!((source.fields()[1].name(), source.fields()[1].shape()), ("target", &[1][..]));
    assert_eq!(floats(&source, 1), [0.0, 0.25, 0.5, 0.25, 0.0]);
}

#[test]
fn members_of_an_npz_file_are_read_in_place_or_unpacked() {
    let member = |archive: &str, name: &str| file(&format!("{archive}.npz:{name}"));
    let source = npy(member("stored", "x"), member("stored", "y.npy"), PLAIN, CLASSES).unwrap();
    assert_eq!(floats(&source, 0), expected_floats());
    assert_eq!((integers(&source, 1), source.resident_bytes()), (vec![0, 1, 2, 1, 0], 0));
    let source = npy(member("compressed", "x"), member("stored", "y"), PLAIN, CLASSES).unwrap();
    assert_eq!(floats(&source, 0), expected_floats());
    assert!(source.resident_bytes() > 0, "what is unpacked is counted");
    let message = refusal(npy(member("stored", "z"), member("stored", "y"), PLAIN, CLASSES));
    assert!(message.contains("it has no member \"z\"; there are: \"x\", \"y\""), "{message}");
    let message = refusal(npy(file("stored.npz"), member("stored", "y"), PLAIN, CLASSES));
    assert!(message.contains("as in \"data.npz:x\"; there are: \"x\", \"y\""), "{message}");
}

/// A `.npz` file with one compressed member `x`, whose list says that it becomes so many bytes with this checksum.
fn compressed(folder: &Path, name: &str, array: &[u8], bytes: u32, checksum: u32) -> PathBuf {
    let mut packed = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(array).unwrap();
    let packed = packed.finish().unwrap();
    let numbers = [checksum, packed.len() as u32, bytes].map(u32::to_le_bytes).concat();
    let (name_bytes, deflate) = (5u16.to_le_bytes(), 8u16.to_le_bytes());
    let parts: [&[u8]; 7] = [&[20, 0], &[0; 2], &deflate, &[0; 4], &numbers, &name_bytes, &[0; 2]];
    let head = parts.concat();
    let mut file = [b"PK\x03\x04", &head[..], b"x.npy", &packed].concat();
    let list = file.len() as u32;
    file.extend([b"PK\x01\x02\x14\0", &head[..], &[0; 14], b"x.npy"].concat());
    let list_bytes = (file.len() as u32 - list).to_le_bytes();
    file.extend([b"PK\x05\x06\0\0\0\0\x01\0\x01\0", &list_bytes[..], &list.to_le_bytes(), &[0; 2]].concat());
    let path = folder.join(format!("{name}.npz"));
    std::fs::write(&path, file).unwrap();
    PathBuf::from(format!("{}:x", path.display()))
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut sum = flate2::Crc::new();
    sum.update(bytes);
    sum.sum()
}

#[test]
fn large_compressed_members_take_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let (samples, width) = (2, 3 << 20);
    let numbers: Vec<u8> = (0..samples * width).flat_map(|number| (number as f32).to_ne_bytes()).collect();
    let array =
        std::fs::read(saved(folder.path(), "x.npy", "<f4", &format!("({samples}, {width})"), &numbers))
            .unwrap();
    let x = compressed(folder.path(), "large", &array, array.len() as u32, checksum(&array));
    let labels = saved(folder.path(), "y.npy", "<i4", "(2,)", &[0; 8]);
    let source = npy(x, labels, PLAIN, CLASSES).unwrap();
    assert!(source.resident_bytes() < 1 << 10, "{}", source.resident_bytes());
    let mut sample = vec![0; 4 * width];
    source.read(1, 0, &mut sample).unwrap();
    assert!(sample == numbers[4 * width..]);
}

#[test]
fn compressed_members_that_become_something_else_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let array = std::fs::read(file("little-f4.npy")).unwrap();
    let (bytes, sum) = (array.len() as u32, checksum(&array));
    let cases = [
        (bytes, sum, None),
        (bytes - 1, sum, Some("more than")),
        (bytes + 1, sum, Some("where the list says")),
    ];
    for (bytes, sum, told) in
        cases.into_iter().chain([(bytes, !sum, Some("checksum")), (u32::MAX - 1, sum, Some("more than its"))])
    {
        let x = compressed(folder.path(), "x", &array, bytes, sum);
        let opened = npy(x, file("labels.npy"), PLAIN, CLASSES);
        match told {
            None => assert_eq!(floats(&opened.unwrap(), 0), expected_floats()),
            Some(told) => {
                let message = refusal(opened);
                assert!(message.contains(told) && message.contains("spoiled"), "{message}");
            }
        }
    }
}

#[test]
fn names_of_members_are_shown_without_what_acts_on_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = std::fs::read(file("stored.npz")).unwrap();
    let places: Vec<usize> = (0..bytes.len() - 5).filter(|&at| bytes[at..].starts_with(b"x.npy")).collect();
    assert_eq!(places.len(), 2, "with the member and in the list");
    places.into_iter().for_each(|at| bytes[at] = 0x1b);
    let path = folder.path().join("odd.npz");
    std::fs::write(&path, bytes).unwrap();
    for asked in [path.clone(), PathBuf::from(format!("{}:z", path.display()))] {
        let message = refusal(npy(asked, file("labels.npy"), PLAIN, CLASSES));
        assert!(
            message.contains("there are: \"\\u{1b}\", \"y\"") && !message.contains('\u{1b}'),
            "{message:?}"
        );
    }
}

#[test]
fn arrays_that_cannot_be_samples_are_refused_with_what_to_do() {
    let labels = file("labels.npy");
    for (name, told) in [
        ("fortran.npy", "numpy.ascontiguousarray"),
        ("records.npy", "several fields"),
        ("images-idx3-ubyte", "does not begin as a .npy file"),
    ] {
        let message = refusal(npy(file(name), &labels, PLAIN, CLASSES));
        assert!(message.contains(told) && message.contains(name), "{message}");
    }
    let message = refusal(npy(file("u1.npy"), &labels, PLAIN, Targets::Numbers));
    assert!(message.contains("say how many `classes`"), "{message}");
    let message = refusal(npy(file("u1.npy"), file("targets.npy"), PLAIN, CLASSES));
    assert!(message.contains("save them as int32"), "{message}");
    let scale = Inputs { scale: true, ..PLAIN };
    let message = refusal(npy(file("little-f4.npy"), &labels, scale, CLASSES));
    assert!(message.contains("`scale` is for bytes"), "{message}");
}

/// A `.npy` file, as NumPy writes it.
fn saved(folder: &Path, name: &str, kind: &str, shape: &str, numbers: &[u8]) -> PathBuf {
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
    header += &" ".repeat(63 - (10 + header.len()) % 64);
    header.push('\n');
    let mut all = b"\x93NUMPY\x01\x00".to_vec();
    all.extend((header.len() as u16).to_le_bytes());
    all.extend(header.as_bytes());
    all.extend(numbers);
    let path = folder.join(name);
    std::fs::write(&path, all).unwrap();
    path
}

#[test]
fn values_are_checked_as_they_are_read_and_found_with_file_sample_and_byte() {
    let folder = tempfile::tempdir().unwrap();
    let labels = saved(folder.path(), "y.npy", "<i8", "(3,)", &[0i64, 1, 3].map(i64::to_le_bytes).concat());
    let values = [1.0, 2.0, 3.0, f32::NAN, 5.0, 6.0f32];
    for (kind, numbers) in
        [("<f4", values.map(f32::to_le_bytes).concat()), (">f4", values.map(f32::to_be_bytes).concat())]
    {
        let inputs = saved(folder.path(), "x.npy", kind, "(3, 2)", &numbers);
        let source = npy(&inputs, &labels, PLAIN, CLASSES).unwrap();
        let (mut features, mut label) = ([0; 8], [0; 4]);
        source.read(0, 0, &mut features).unwrap();
        let error = source.read(1, 0, &mut features).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::File { sample: Some(1), offset: Some(140), .. }),
            "{error}"
        );
        assert!(error.to_string().contains("x.npy, sample 1, byte 140: NaN is not a finite f32"), "{error}");
        let error = source.read(2, 1, &mut label).unwrap_err();
        assert!(
            error.to_string().contains("y.npy, sample 2, byte 144: the label 3 is outside of 0..3"),
            "{error}"
        );
    }
    let wide = saved(folder.path(), "x.npy", "<i8", "(3,)", &[0, 1, 1 << 31].map(i64::to_le_bytes).concat());
    let source = npy(&wide, &labels, PLAIN, CLASSES).unwrap();
    let error = source.read(2, 0, &mut [0; 4]).unwrap_err();
    assert!(error.to_string().contains("2147483648 does not fit an i32"), "{error}");
    let wide =
        saved(folder.path(), "x.npy", ">u4", "(3,)", &[0, 1 << 31, 7u32].map(u32::to_be_bytes).concat());
    let source = npy(&wide, &labels, PLAIN, CLASSES).unwrap();
    let mut value = [0; 4];
    source.read(2, 0, &mut value).unwrap();
    assert_eq!(i32::from_ne_bytes(value), 7);
    let error = source.read(1, 0, &mut value).unwrap_err();
    assert!(
        error.to_string().contains("2147483648 does not fit an i32; save the array as float32"),
        "{error}"
    );
    let large =
        saved(folder.path(), "x.npy", "<f8", "(3,)", &[0.0, 1.0, 1e300].map(f64::to_le_bytes).concat());
    let source = npy(&large, &labels, PLAIN, CLASSES).unwrap();
    let error = source.read(2, 0, &mut [0; 4]).unwrap_err();
    assert!(error.to_string().contains("1e300 is not a finite f32"), "{error}");
}

#[test]
fn types_that_no_sample_has_are_refused_with_those_that_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    for kind in ["<u8", "<c8", "<M8[D]", "|O", "<U1", "<f16"] {
        let inputs = saved(folder.path(), "x.npy", kind, "(1,)", &[0; 16]);
        let message = refusal(npy(&inputs, file("labels.npy"), PLAIN, CLASSES));
        assert!(message.contains(&format!("{kind:?} cannot be read; save them as float32")), "{message}");
    }
}

#[test]
fn a_check_reads_nothing_that_the_source_vouches_for_and_everything_else() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = saved(folder.path(), "x.npy", "<f4", "(3,)", &[0; 12]);
    let labels = saved(folder.path(), "y.npy", "|u1", "(3,)", &[0, 1, 2]);
    let data = Dataset::new(npy(inputs, labels, PLAIN, Targets::Classes(5)).unwrap()).unwrap();
    data.check_labels("label", 5).unwrap();
    data.check_labels("label", 3).unwrap();
    let split = data.split(0.5, 1).unwrap();
    let errors = [split.train, split.held_out].map(|part| part.check_labels("label", 2).is_err());
    assert_eq!(errors.iter().filter(|&&is_found| is_found).count(), 1);
}

#[test]
fn arrays_larger_than_what_is_converted_at_once_are_read_whole() {
    let folder = tempfile::tempdir().unwrap();
    let values: Vec<f64> = (0..2 * 5001).map(f64::from).collect();
    let numbers = values.iter().flat_map(|value| value.to_be_bytes()).collect::<Vec<u8>>();
    let inputs = saved(folder.path(), "x.npy", ">f8", "(2, 5001)", &numbers);
    let labels = saved(folder.path(), "y.npy", "|u1", "(2,)", &[0, 1]);
    let source = npy(inputs, labels, PLAIN, CLASSES).unwrap();
    assert_eq!(floats(&source, 0), values.iter().map(|&value| value as f32).collect::<Vec<_>>());
}

#[test]
fn a_file_that_is_cut_while_it_is_open_is_an_error_of_the_sample() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = saved(folder.path(), "x.npy", "<f4", "(3,)", &[0; 12]);
    let labels = saved(folder.path(), "y.npy", "|u1", "(3,)", &[0, 1, 2]);
    let source = npy(&inputs, labels, PLAIN, CLASSES).unwrap();
    std::fs::OpenOptions::new().write(true).open(&inputs).unwrap().set_len(136).unwrap();
    source.read(1, 0, &mut [0; 4]).unwrap();
    let error = source.read(2, 0, &mut [0; 4]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::File { sample: Some(2), offset: Some(136), .. }), "{error}");
}

#[test]
fn different_numbers_of_samples_are_refused_with_both_files() {
    let folder = tempfile::tempdir().unwrap();
    let labels = saved(folder.path(), "y.npy", "|u1", "(4,)", &[0; 4]);
    let message = refusal(npy(file("u1.npy"), labels, PLAIN, CLASSES));
    assert!(message.contains("y.npy") && message.contains("u1.npy"), "{message}");
    assert!(message.contains("it has 4 samples where"), "{message}");
    let none = saved(folder.path(), "y.npy", "|u1", "(0,)", &[]);
    let message = refusal(npy(file("u1.npy"), none, PLAIN, CLASSES));
    assert!(message.contains("has no samples"), "{message}");
}

#[test]
fn idx_files_are_read_in_place_and_packed_ones_within_the_budget() {
    let open = |ending: &str, budget| {
        let [images, labels] =
            ["images-idx3-ubyte", "labels-idx1-ubyte"].map(|name| file(&format!("{name}{ending}")));
        idx(images, labels, Inputs { scale: true, channels: true }, CLASSES, budget)
    };
    let expected: Vec<f32> = (0..30).map(|byte| byte as f32 / 255.0).collect();
    for (ending, held) in [("", 0), (".gz", 46 + 13)] {
        let source = open(ending, RamBudget::bytes(held)).unwrap();
        assert_eq!((source.samples(), source.resident_bytes()), (5, held));
        assert_eq!(source.fields()[0].shape(), [2, 3, 1]);
        assert_eq!(floats(&source, 0), expected);
        assert_eq!(integers(&source, 1), [0, 1, 2, 1, 0]);
    }
    let error = open(".gz", RamBudget::bytes(58)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::OverBudget { bytes: 59, limit: 58, .. }), "{error}");
    assert!(error.to_string().contains("gunzip"), "{error}");

    let source =
        idx(file("floats-idx3"), file("labels-idx1-ubyte"), PLAIN, CLASSES, RamBudget::UNLIMITED).unwrap();
    assert_eq!(floats(&source, 0), expected_floats());
}

#[test]
fn tensors_of_a_safetensors_file_are_read_in_place_by_name() {
    let path = file("tensors.safetensors");
    for inputs in ["x", "half"] {
        let source = safetensors(&path, [inputs, "y"], PLAIN, CLASSES).unwrap();
        assert_eq!(floats(&source, 0), expected_floats(), "{inputs}");
        assert_eq!((integers(&source, 1), source.resident_bytes()), (vec![0, 1, 2, 1, 0], 0));
    }
    let message = refusal(safetensors(&path, ["z", "y"], PLAIN, CLASSES));
    assert!(message.contains("it has no tensor \"z\"; there are: \"half\", \"x\", \"y\""), "{message}");
}

proptest! {
    #[test]
    fn text_is_cut_into_windows_within_its_files(
        texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 1..4), length in 1usize..9,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = (0..texts.len()).map(|number| folder.path().join(number.to_string())).collect();
        for (path, text) in paths.iter().zip(&texts) {
            std::fs::write(path, text).unwrap();
        }
        let windows: Vec<&[u8]> =
            texts.iter().flat_map(|text| text.windows(length + 1).step_by(length)).collect();
        match Text::open(&paths, length) {
            Err(error) => {
                prop_assert!(matches!(error.kind(), ErrorKind::Empty { .. }), "{}", error);
                prop_assert!(windows.is_empty());
            }
            Ok(source) => {
                let widened = |bytes: &[u8]| bytes.iter().map(|&byte| i32::from(byte)).collect::<Vec<_>>();
                let tokens = windows.iter().flat_map(|window| widened(&window[..length])).collect::<Vec<_>>();
                let next = windows.iter().flat_map(|window| widened(&window[1..])).collect::<Vec<_>>();
                prop_assert_eq!(source.samples(), windows.len());
                prop_assert_eq!(integers(&source, 0), tokens);
                prop_assert_eq!(integers(&source, 1), next);
            }
        }
    }

    #[test]
    fn spoiled_files_are_errors_and_never_panics(
        which in 0usize..7, cut in any::<prop::sample::Index>(), is_cut: bool,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let names = [
            "little-f4.npy", "version-3.npy", "stored.npz", "compressed.npz", "images-idx3-ubyte",
            "images-idx3-ubyte.gz", "tensors.safetensors",
        ];
        let mut bytes = std::fs::read(file(names[which])).unwrap();
        let whole = bytes.clone();
        let is_changed = !changes.is_empty();
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        if is_cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(names[which]);
        std::fs::write(&path, &bytes).unwrap();
        let labels = file("labels.npy");
        let opened = match which {
            2 | 3 => npy(format!("{}:x", path.display()), labels, PLAIN, CLASSES),
            4 | 5 => idx(&path, file("labels-idx1-ubyte"), PLAIN, CLASSES, RamBudget::bytes(1 << 20)),
            6 => safetensors(&path, ["x", "y"], PLAIN, CLASSES),
            _ => npy(&path, labels, PLAIN, CLASSES),
        };
        match opened {
            // What is cut off is noticed when it is opened, wherever the cut is.
            Ok(source) => {
                prop_assert!(is_changed || bytes == whole, "{} of {} bytes were enough", bytes.len(), whole.len());
                for field in 0..2 {
                    let mut out = vec![0; source.fields()[field].bytes()];
                    for sample in 0..source.samples() {
                        let _ = source.read(sample, field, &mut out);
                    }
                }
            }
            Err(error) => {
                prop_assert!(bytes != whole || which == 3, "{}", error);
                prop_assert!(error.to_string().contains(names[which]), "{}", error);
            }
        }
    }
}

#[test]
fn samples_in_a_row_are_read_as_each_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let (x, y) = (folder.path().join("x.npy"), folder.path().join("y.npy"));
    // More than is kept in memory of labels, and than is converted at a time; one value is spoiled.
    let samples = 3000;
    let mut values: Vec<f32> = (0..samples * 40).map(|at| at as f32).collect();
    let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let labels: Vec<u8> = (0..samples).flat_map(|at| ((at % 10) as i64).to_le_bytes()).collect();
    let write = |path: &Path, kind: &str, shape: &str, data: &[u8]| {
        let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
        let header = format!("{header:<117}\n");
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend((header.len() as u16).to_le_bytes());
        file.extend(header.as_bytes());
        file.extend(data);
        std::fs::write(path, file).unwrap();
    };
    write(&y, "<i8", &format!("({samples},)"), &labels);
    for spoiled in [None, Some(2500)] {
        if let Some(sample) = spoiled {
            values[sample * 40 + 7] = f32::NAN;
        }
        write(&x, "<f4", &format!("({samples}, 40)"), &bytes(&values));
        let source = npy(&x, &y, Inputs::default(), Targets::Classes(10)).unwrap();
        for (field, size) in [(0, 160), (1, 4)] {
            let (mut together, mut apart) = (vec![0; samples * size], vec![0; samples * size]);
            let read = source.read_range(0, samples, field, &mut together);
            let mut each = apart.chunks_exact_mut(size).enumerate();
            let alone = each.try_for_each(|(sample, out)| source.read(sample, field, out));
            assert_eq!(read.is_err(), field == 0 && spoiled.is_some());
            match (read, alone) {
                (Err(read), Err(alone)) => assert_eq!(read.to_string(), alone.to_string()),
                _ => assert_eq!(together, apart),
            }
        }
        assert!(source.read_range(samples - 1, 2, 0, &mut [0; 320]).is_err());
    }
}

#[test]
fn samples_in_any_order_are_read_as_each_by_itself() {
    let whole = npy(file("little-f4.npy"), file("labels.npy"), PLAIN, CLASSES).unwrap();
    let whole = Dataset::new(whole).unwrap();
    let part = whole.split(0.8, 3).unwrap().train;
    for source in [whole.source().unwrap(), part.source().unwrap()] {
        let samples = source.samples();
        // More than are asked for at once, some of them twice.
        let numbers: Vec<usize> = (0..150).map(|at| at * 7 % samples).collect();
        for (field, described) in source.fields().iter().enumerate() {
            let size = described.bytes();
            let (mut together, mut apart) = (vec![0; numbers.len() * size], vec![0; numbers.len() * size]);
            source.read_many(&numbers, field, &mut together).unwrap();
            for (&sample, out) in numbers.iter().zip(apart.chunks_exact_mut(size)) {
                source.read(sample, field, out).unwrap();
            }
            assert_eq!(together, apart);
            let beyond = source.read_many(&[0, samples], field, &mut vec![0; 2 * size]).unwrap_err();
            assert!(matches!(beyond.kind(), ErrorKind::NoSuchSample { .. }), "{beyond}");
        }
        assert!(source.read_many(&[0], 2, &mut [0; 4]).is_err());
    }
    let short = whole.source().unwrap().read_many(&[0, 1], 1, &mut [0; 4]).unwrap_err();
    assert!(matches!(short.kind(), ErrorKind::Buffer { needed: 8, .. }), "{short}");
}

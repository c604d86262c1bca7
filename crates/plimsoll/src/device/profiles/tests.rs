//! Profiles from files: those built in, a person's own, and those that are wrong.

use super::*;
use proptest::prelude::*;

const MINE: &str = r#"about = "a machine of one's own"
memory_bytes = 1_000_000
alignment = 64
workspace_bytes = 0
launch_seconds = 0
bandwidth = 1e9

[rates]
elementwise = 1e9
matrix = 2_000_000_000
matrix_half = 1e9
convolution = 1e9
convolution_half = 1e9
attention = 1e9

[copies]
bandwidth = 1e9
latency_seconds = 0.0
overlap = false
"#;

/// The first line of the error about a file in which `from` has become `to`.
fn complaint(from: &str, to: &str) -> String {
    assert!(MINE.contains(from), "{from} is not in the profile");
    let error = parse(&MINE.replacen(from, to, 1), Path::new("mine.toml")).expect_err("a wrong profile");
    assert_eq!(error.kind(), ErrorKind::Spec);
    error.to_string().lines().next().unwrap_or_default().to_string()
}

fn own(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, text) in files {
        fs::write(folder.path().join(name), text).expect("a file in the temporary folder");
    }
    folder
}

#[test]
fn every_device_that_is_built_in_is_found_under_its_own_name() {
    for (name, _) in BUILT_IN {
        let profile = find_in(None, name).expect(name);
        assert_eq!(profile.name, name);
        assert!(!profile.about.is_empty());
        assert!(profile.rates.matrix_half >= 0.5 * profile.rates.matrix, "{name}");
        assert!(profile.copies.bandwidth <= profile.bandwidth, "{name}");
    }
    let names: Vec<String> = all_in(None).expect("all devices").into_iter().map(|p| p.name).collect();
    assert_eq!(names, BUILT_IN.map(|(name, _)| name));
}

#[test]
fn a_profile_is_named_after_its_file_unless_it_says_otherwise() {
    let named = |text: &str| parse(text, Path::new("here/mine.toml")).expect("a profile").name;
    assert_eq!(named(MINE), "mine");
    assert_eq!(named(&format!("name = \"other\"\n{MINE}")), "other");
}

#[test]
fn a_path_is_read_as_a_file() {
    let folder = own(&[("mine.toml", MINE)]);
    let path = folder.path().join("mine.toml");
    let profile = find(path.to_str().expect("a path of text")).expect("a profile");
    assert_eq!((profile.memory_bytes, profile.rates.matrix), (1_000_000, 2e9));
    let error = find("nowhere.toml").expect_err("no file");
    assert_eq!(error.kind(), ErrorKind::File);
    assert!(error.to_string().starts_with("cannot read nowhere.toml: "), "{error}");
}

#[test]
fn a_persons_own_file_wins_over_what_is_built_in() {
    let folder = own(&[("t4.toml", MINE), ("mine.toml", MINE), ("notes.txt", "not a profile")]);
    assert_eq!(find_in(Some(folder.path()), "t4").expect("a profile").memory_bytes, 1_000_000);
    let all = all_in(Some(folder.path())).expect("all devices");
    assert_eq!(all.len(), BUILT_IN.len() + 1);
    assert_eq!(all[BUILT_IN.len()].name, "mine");
    assert_eq!(all.iter().filter(|p| p.memory_bytes == 1_000_000).count(), 2);
}

#[test]
fn a_folder_that_is_not_there_is_no_mistake() {
    let folder = own(&[]);
    let missing = folder.path().join("missing");
    assert_eq!(all_in(Some(&missing)).expect("all devices").len(), BUILT_IN.len());
}

#[test]
fn a_name_that_is_not_known_gets_what_there_is_and_the_one_that_was_meant() {
    let folder = own(&[("mine.toml", MINE)]);
    let error = |name| find_in(Some(folder.path()), name).expect_err("no device");
    assert_eq!(error("h20").kind(), ErrorKind::Name);
    assert_eq!(
        error("mien").to_string(),
        "there is no device `mien`; did you mean `mine`? there are: \
         cpu, h200, h100-80g, a100-80g, a100-40g, l40s, rtx4090, rtx3090, t4, mine"
    );
    assert!(error("abacus").to_string().starts_with("there is no device `abacus`; there are: cpu, "));
}

#[test]
fn a_file_under_another_name_than_its_own_is_refused() {
    let folder = own(&[("mine.toml", &format!("name = \"other\"\n{MINE}"))]);
    let error = all_in(Some(folder.path())).expect_err("two names").to_string();
    assert!(error.contains("mine.toml: its `name` is \"other\""), "{error}");
}

#[test]
fn a_number_that_no_device_has_is_named_with_its_line_and_what_is_allowed() {
    for (from, to, expected) in [
        ("matrix_half = 1e9", "matrix_half = 0", "11:15: `matrix_half` is 0; expected a number above 0"),
        (
            "matrix_half = 1e9",
            "matrix_half = -1e9",
            "11:15: `matrix_half` is -1e9; expected a number above 0",
        ),
        ("attention = 1e9", "attention = nan", "14:13: `attention` is nan; expected a number above 0"),
        ("attention = 1e9", "attention = inf", "14:13: `attention` is inf; expected a number above 0"),
        (
            "launch_seconds = 0",
            "launch_seconds = -1",
            "5:18: `launch_seconds` is -1; expected a number, 0 or more",
        ),
        (
            "memory_bytes = 1_000_000",
            "memory_bytes = 0",
            "2:16: `memory_bytes` is 0; expected a whole number of bytes, at least 1",
        ),
        ("alignment = 64", "alignment = 48", "3:13: `alignment` is 48; expected a power of two, such as 256"),
        ("overlap = false", "overlap = 1", "19:11: `overlap` is 1; expected true or false"),
    ] {
        assert_eq!(complaint(from, to), format!("mine.toml:{expected}"));
    }
}

#[test]
fn a_key_that_is_missing_unknown_or_no_toml_is_named_with_its_line() {
    assert_eq!(
        complaint("matrix = 2_000_000_000\n", ""),
        "mine.toml:8:1: [rates] has no `matrix`: expected a number above 0"
    );
    assert_eq!(
        complaint("convolution =", "convolutoin ="),
        "mine.toml:12:1: unknown key `convolutoin` in [rates]; did you mean `convolution`?"
    );
    assert_eq!(
        complaint("memory_bytes =", "memory ="),
        "mine.toml:2:1: unknown key `memory` in the profile; there are: name, about, memory_bytes, alignment, \
         workspace_bytes, context_bytes, launch_seconds, bandwidth, rates, copies, step_seconds, efficiency"
    );
    assert!(complaint("alignment = 64", "alignment = ").starts_with("mine.toml:3:"));
}

#[test]
fn what_is_measured_are_positive_numbers_that_can_be_written_and_read() {
    let profile = calibrate(Some(2)).expect("figures");
    let Profile { launch_seconds, bandwidth, rates, copies, .. } = profile.clone();
    let Rates { elementwise, matrix, matrix_half, convolution, convolution_half, attention } = rates;
    for figure in [
        launch_seconds,
        bandwidth,
        elementwise,
        matrix,
        matrix_half,
        convolution,
        convolution_half,
        attention,
        copies.bandwidth,
    ] {
        assert!(figure.is_finite() && figure > 0.0, "{profile:?}");
    }
    assert!(profile.memory_bytes > 0 && !copies.overlap);
    assert_eq!(profile.name, "cpu");
    assert_eq!(parse(&to_toml(&profile), Path::new("cpu.toml")).expect("what was written"), profile);
}

proptest! {
    #[test]
    fn what_is_written_is_what_is_read(
        name in any::<String>(),
        about in any::<String>(),
        whole in prop::array::uniform3(1_u64..=u64::MAX),
        power in 0_u32..63,
        number in prop::array::uniform10(f64::MIN_POSITIVE..f64::MAX),
        overlap in any::<bool>(),
        measured in prop::collection::vec(("[a-z0-9 ]{1,12}", prop::array::uniform3(f64::MIN_POSITIVE..1.0)), 0..6),
    ) {
        let profile = Profile {
            name,
            about,
            memory_bytes: whole[0],
            alignment: 1 << power,
            workspace_bytes: whole[1],
            context_bytes: whole[2],
            launch_seconds: number[0],
            bandwidth: number[1],
            rates: Rates {
                elementwise: number[2],
                matrix: number[3],
                matrix_half: number[4],
                convolution: number[5],
                convolution_half: number[6],
                attention: number[7],
            },
            copies: Copies { bandwidth: number[8], latency_seconds: number[9], overlap },
            step_seconds: number[0],
            efficiency: measured.into_iter().fold(EfficiencyTable::default(), |mut table, (name, numbers)| {
                let [arithmetic, traffic, efficiency] = numbers;
                table.add(name, Measured { arithmetic, traffic, efficiency });
                table
            }),
        };
        prop_assert_eq!(parse(&to_toml(&profile), Path::new("x.toml")).expect("what was written"), profile);
    }
}

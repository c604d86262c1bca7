//! What people have when a program ran out: messages of every family, written here in the wordings of the frameworks'
//! sources, with the first verdict that is right and words that the advice must and must not have.

use plimsoll_explain::VerdictKind::{self, *};
use plimsoll_explain::{
    Explanation, Input, Progress, Style, explain, read_files, read_input, show, write_html,
};
use proptest::prelude::*;

mod drivers;
mod host;
mod jax;
mod libraries;
mod rare;
mod sentences;
mod servers;
mod tables;
mod tensorflow;
mod torch;

/// A message: its text, the first verdict, words of the advice, words that no view may have.
struct Case {
    name: &'static str,
    text: &'static str,
    kind: VerdictKind,
    advised: &'static [&'static str],
    never: &'static [&'static str],
}

const fn case(
    name: &'static str,
    kind: VerdictKind,
    advised: &'static [&'static str],
    never: &'static [&'static str],
    text: &'static str,
) -> Case {
    Case { name, text, kind, advised, never }
}

const FAMILIES: [&[Case]; 10] = [
    torch::CASES,
    drivers::CASES,
    tensorflow::CASES,
    jax::CASES,
    servers::CASES,
    libraries::CASES,
    host::CASES,
    tables::CASES,
    rare::CASES,
    sentences::CASES,
];

fn cases() -> impl Iterator<Item = &'static Case> {
    FAMILIES.into_iter().flatten()
}

fn explained(text: &[u8]) -> Option<Explanation> {
    let recording = read_input(Input::bytes(text).ok()?, "log").ok()?;
    let explanation = explain(&recording);
    let mut page = Vec::new();
    write_html(&recording, &explanation, &mut page).unwrap();
    Some(explanation)
}

fn shown(explanation: &Explanation) -> String {
    let mut out = Vec::new();
    show(explanation, Style { width: 2000, colour: false }, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn every_wording_gets_its_verdict_and_advice_that_exists_for_it() {
    let mut wrong = Vec::new();
    for case in cases() {
        let Some(explanation) = explained(case.text.as_bytes()) else {
            wrong.push(format!("{}: nothing is said", case.name));
            continue;
        };
        let text = shown(&explanation);
        let first = explanation.verdicts[0].kind;
        if first != case.kind {
            wrong.push(format!("{}: {first:?}, not {:?}:\n{text}", case.name, case.kind));
        }
        let advice: Vec<&str> = explanation.advice.iter().map(|advice| advice.change.as_str()).collect();
        for words in case.advised {
            if !advice.iter().any(|change| change.contains(words)) {
                wrong.push(format!("{}: no advice has `{words}`: {advice:#?}", case.name));
            }
        }
        let said: String = explanation
            .verdicts
            .iter()
            .map(|verdict| verdict.sentence.clone())
            .chain(advice.iter().map(|a| a.to_string()))
            .collect::<Vec<_>>()
            .join("\n");
        for words in case.never {
            if said.contains(words) {
                wrong.push(format!("{}: it has `{words}`:\n{said}", case.name));
            }
        }
        // Of figures with two decimals no bytes are told.
        let rounded = case.text.contains("already allocated") || case.text.contains("allocated by PyTorch");
        let exact = text.split_whitespace().any(|word| word.matches(',').count() >= 3);
        if rounded && (exact || text.contains("000 bytes")) {
            wrong.push(format!("{}: bytes that were not told:\n{text}", case.name));
        }
        if first != Healthy && explanation.advice.is_empty() {
            wrong.push(format!("{}: no advice", case.name));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases().count(), wrong.join("\n\n"));
}

/// A text as a terminal breaks it: at a column, wherever that is.
fn broken_at(text: &str, width: usize) -> String {
    let broken = |line: &str| {
        let characters: Vec<char> = line.chars().collect();
        characters.chunks(width).map(|piece| piece.iter().collect::<String>()).collect::<Vec<_>>().join("\n")
    };
    text.lines().map(broken).collect::<Vec<_>>().join("\n") + "\n"
}

#[test]
fn messages_broken_at_a_column_say_the_same() {
    let torch = cases().filter(|case| {
        case.text.contains("reserved in total") || case.text.contains("is reserved by PyTorch")
    });
    for case in torch.filter(|case| !case.text.contains("larger than 4GB")) {
        for width in [33, 47, 50, 60, 78, 80, 120] {
            let explanation = explained(broken_at(case.text, width).as_bytes());
            let kind = explanation.map(|explanation| explanation.verdicts[0].kind);
            assert_eq!(kind, Some(case.kind), "{} at {width}:\n{}", case.name, broken_at(case.text, width));
            // Editors and forums drop blanks at the ends of lines.
            let stripped: Vec<String> =
                broken_at(case.text, width).lines().map(|line| line.trim_end().to_string()).collect();
            let kind =
                explained(stripped.join("\n").as_bytes()).map(|explanation| explanation.verdicts[0].kind);
            assert_eq!(kind, Some(case.kind), "{} at {width}, stripped:\n{}", case.name, stripped.join("\n"));
        }
    }
}

#[test]
fn a_sentence_broken_between_its_words_is_understood() {
    let kind = |text: &str| explained(text.as_bytes()).map(|explanation| explanation.verdicts[0].kind);
    let jax = "    jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to\n    allocate 30.25GiB. \
               [executable_name='jit_step']\n      train.py fit -> loss\n";
    assert_eq!(kind(jax), Some(TooBig));
    let old = "E external/org_tensorflow/tensorflow/compiler/xla/python/local_client.cc:672] Execution of replica 0 failed: Resource \
               exhausted: Out \nof memory while trying to allocate 9663676416 bytes.\n";
    assert_eq!(kind(old), Some(TooBig));
    let word = "(EngineCore pid=9) ValueError: To serve at least one request with the model's max seq len (65536), (9.50 GiB KV c\n\
                ache is needed, which is larger than the available KV cache memory (2.25 GiB). Based on the\n";
    assert_eq!(kind(word), Some(TooBig));
    // What no pair of lines makes clearer stays what it was.
    assert_eq!(kind("solver: fatal error: out of memory\nin phase 3\n"), Some(Full));
}

#[test]
fn what_says_that_nothing_was_killed_for_memory_is_no_failure_of_it() {
    for text in [
        "        \"OOMKilled\": false,\n        \"ExitCode\": 1,\n",
        "RuntimeError: DataLoader worker (pid 77) is killed by signal: Terminated.\n",
        "RuntimeError: unable to open shared memory object </torch_77_1> in read-write mode: Too many open files (24)\n",
    ] {
        assert!(explained(text.as_bytes()).is_none(), "{text}");
    }
}

#[test]
fn a_share_in_a_table_above_the_error_is_told_and_the_servers_own_estimate_is_taken() {
    let table = "GPU  Temp  AvgPwr  SCLK  MCLK  Fan  Perf  PwrCap  VRAM%  GPU%\n0    44.0c  55.0W  800Mhz  1600Mhz  0%  auto  300.0W  97%  0%\n\
                 RuntimeError: HIP error: out of memory\n";
    let text = shown(&explained(table.as_bytes()).unwrap());
    assert!(text.contains("97 % of device 0's memory in use"), "{text}");
    let long = format!(
        "{} ValueError: To serve at least one request with the models's max seq len (40960), (5.62 GiB KV cache is needed, which is \
         larger than the available KV cache memory (2.91 GiB). Based on the available memory, the estimated maximum model length is \
         21184. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.\n",
        "(EngineCore_DP0 pid=4321) ERROR 01-02 03:04:05 [core.py:586]".repeat(6)
    );
    let text = shown(&explained(long.as_bytes()).unwrap());
    assert!(text.contains("--max-model-len to 21184"), "{text}");
}

#[test]
fn logs_of_objects_notebooks_and_sixteen_bits_say_the_same() {
    for case in cases() {
        let kind = |bytes: &[u8]| explained(bytes).map(|explanation| explanation.verdicts[0].kind);
        let object =
            serde_json::json!({"level": "error", "time": "2026-01-02T03:04:05Z", "message": case.text});
        let lines = format!("{{\"level\": \"info\", \"message\": \"start up\"}}\n{object}\n");
        assert_eq!(kind(lines.as_bytes()), Some(case.kind), "{}: {lines}", case.name);
        let traceback: Vec<String> =
            case.text.lines().map(|line| format!("\u{1b}[0;31m{line}\u{1b}[0m")).collect();
        let output = serde_json::json!({"output_type": "error", "ename": "RuntimeError", "evalue": case.text, "traceback": traceback});
        let source = ["# CUDA error: out of memory, and Killed\n"];
        let cells =
            serde_json::json!([{"cell_type": "code", "source": source, "metadata": {}, "outputs": [output]}]);
        let notebook =
            serde_json::json!({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5});
        assert_eq!(kind(format!("{notebook:#}").as_bytes()), Some(case.kind), "{} in a notebook", case.name);
        let wide: Vec<u8> = format!("{}\n", case.text).encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(kind(&wide), Some(case.kind), "{} in sixteen bits", case.name);
    }
}

/// A message in the forms in which containers, launchers and servers pass it on.
#[test]
fn what_is_cut_wrapped_or_prefixed_on_its_way_has_all_its_figures() {
    let message = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 31.73 GiB of \
                   which 1.20 GiB is free. Including non-PyTorch memory, this process has 30.53 GiB memory in use. Of the allocated \
                   memory 29.60 GiB is allocated by PyTorch, and 330.10 MiB is reserved by PyTorch but unallocated.";
    let object =
        |text: &str| serde_json::json!({"log": text, "stream": "stderr", "time": "2026-01-02T03:04:05Z"});
    let forms = [
        format!("[rank3]:   File \"/w/fit.py\", line 88, in <module>\n[rank3]: {message}\n"),
        format!("(EngineCore_DP0 pid=412) ERROR 10-02 09:12:44 [core.py:708] {message}\n"),
        serde_json::json!({"error": {"message": message, "type": "server_error", "code": 500}}).to_string(),
    ];
    let (mut cut, mut cuts) = (forms.to_vec(), vec![]);
    cuts.extend((10..message.len() - 10).step_by(17));
    for at in cuts {
        let (first, last) = message.split_at(at);
        cut.push(format!(
            "2026-01-02T03:04:05.1Z stderr P {first}\n2026-01-02T03:04:05.1Z stderr F {last}\n"
        ));
        cut.push(format!("{}\n{}\n", object(first), object(&format!("{last}\n"))));
    }
    for text in cut {
        let recording = read_input(Input::bytes(text.as_bytes()).unwrap(), "log").unwrap();
        let device = &recording.devices[0];
        let gib = |bytes: Option<u64>| bytes.map(|bytes| (bytes as f64 / f64::from(1 << 30) * 100.0).round());
        assert_eq!((gib(device.capacity), gib(device.device_free)), (Some(3173.0), Some(120.0)), "{text}");
        assert_eq!(explain(&recording).verdicts[0].kind, TooBig, "{text}");
    }
}

#[test]
fn of_a_folder_of_logs_the_first_that_shows_a_cause_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let out_of_memory = |gpu: u32| {
        format!(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU {gpu} has a total capacity of 44.53 GiB of \
             which 1.10 GiB is free. Process 3001 has 30.40 GiB memory in use. Including non-PyTorch memory, this process has \
             13.00 GiB memory in use. Of the allocated memory 12.00 GiB is allocated by PyTorch, and 110.40 MiB is reserved by \
             PyTorch but unallocated.\n"
        )
    };
    std::fs::create_dir(folder.path().join("attempt_0")).unwrap();
    let write =
        |name: &str, text: String| std::fs::write(folder.path().join("attempt_0").join(name), text).unwrap();
    write("rank0.log", "2026-01-02 10:00:01 step 1\n2026-01-02 10:00:09 exitcode: -9 (pid: 1)\n".into());
    write("rank1.log", format!("2026-01-02 10:00:07 step 4\n{}", out_of_memory(0)));
    write("rank2.log", format!("2026-01-02 10:00:05 step 3\n{}", out_of_memory(0)));
    write("rank3.log", "2026-01-02 10:00:05 step 3, loss 0.1\n".into());
    let recording = read_files(&[folder.path().to_path_buf()], &Progress::default()).unwrap();
    assert!(recording.origin.files[0].ends_with("rank2.log"), "{:?}", recording.origin.files);
    let gaps = recording.origin.gaps.join("\n");
    assert!(gaps.contains("Of 4 logs 3 show a failure") && gaps.contains("10:00:05"), "{gaps}");
    assert!(gaps.contains("rank1.log at 2026-01-02 10:00:07: 2.00 GiB were refused on GPU 0"), "{gaps}");
    assert!(gaps.contains("2 of these processes ran out on GPU 0"), "{gaps}");
    assert_eq!(explain(&recording).verdicts[0].kind, OtherProcess);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Cut, joined and damaged in any way: something is said or nothing, and what is said adds up.
    #[test]
    fn no_damage_to_any_message_breaks_anything(
        parts in prop::collection::vec(any::<[prop::sample::Index; 3]>(), 1..4),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        newline in any::<bool>(),
    ) {
        let mut bytes = Vec::new();
        let cases: Vec<&Case> = cases().collect();
        for [case, from, to] in parts {
            let text = case.get(&cases).text.as_bytes();
            let (from, to) = (from.index(text.len()), to.index(text.len()));
            bytes.extend_from_slice(&text[from.min(to)..=from.max(to)]);
            if newline {
                bytes.push(b'\n');
            }
        }
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(explanation) = explained(&bytes) {
            let sum: u64 = explanation.books.lines.iter().map(|line| line.bytes).sum();
            prop_assert_eq!(sum, explanation.books.total_bytes);
            let text = shown(&explanation);
            prop_assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{}", text);
        }
    }
}

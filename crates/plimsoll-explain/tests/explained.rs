//! Verdicts on recordings of real programs. What each does wrong is known: `scripts/record_*.py` made them.

use plimsoll_explain::VerdictKind::{self, *};
use plimsoll_explain::{Explanation, Progress, explain, read_files};
use std::path::PathBuf;

fn explained(files: &[&str]) -> Explanation {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let paths: Vec<PathBuf> = files.iter().map(|file| data.join(file)).collect();
    let recording = read_files(&paths, &Progress::default()).unwrap();
    let explanation = explain(&recording);
    for part in std::iter::once(&explanation).chain(&explanation.others) {
        let sum: u64 = part.books.lines.iter().map(|line| line.bytes).sum();
        assert_eq!(sum, part.books.total_bytes, "the books of {files:?} do not sum: {:?}", part.books);
        assert!(part.books.lines.iter().any(|line| line.name == "unknown"), "{files:?}");
        assert!(!part.verdicts.is_empty());
    }
    explanation
}

fn kinds(explanation: &Explanation) -> Vec<VerdictKind> {
    explanation.verdicts.iter().map(|verdict| verdict.kind).collect()
}

/// The verdict of a kind: its sentence and its proof, as one text.
fn text(explanation: &Explanation, kind: VerdictKind) -> String {
    let verdict = explanation.verdicts.iter().find(|verdict| verdict.kind == kind).unwrap();
    format!("{}\n{}", verdict.sentence, verdict.proof.join("\n"))
}

/// What the pool would have taken at most, by the advice that names a setting.
fn peak_with(explanation: &Explanation, setting: &str) -> u64 {
    let advice = explanation.advice.iter().find(|advice| advice.change.contains(setting)).unwrap();
    assert_eq!(advice.would_survive, Some(true), "{advice:?}");
    advice.peak_reserved_bytes.unwrap()
}

#[test]
fn a_list_of_losses_with_their_graphs_is_a_leak_named_by_its_line() {
    let explanation = explained(&["torch-leak.pickle.gz"]);
    assert_eq!(kinds(&explanation)[0], Leaking);
    let text = text(&explanation, Leaking);
    assert!(
        text.contains("233 MiB") && text.contains("train.py:32") && text.contains("train.py:15"),
        "{text}"
    );
    // It ran out in the step after the 45th; the first half of the run foretells it.
    assert!(text.contains("after 45 steps") && text.contains("at step 46"), "{text}");
    let fixed = peak_with(&explanation, "release what train.py:32");
    assert!(fixed < 2 << 30, "{fixed}");
}

#[test]
fn with_its_message_the_same_leak_has_books_of_the_whole_device() {
    let explanation = explained(&["torch-leak.pickle.gz", "explained/torch-leak.oom.txt"]);
    assert_eq!(kinds(&explanation)[0], Leaking);
    assert!(explanation.books.total_bytes > 139 << 30, "{:?}", explanation.books);
    let line =
        |part: &str| explanation.books.lines.iter().find(|line| line.name.contains(part)).unwrap().bytes;
    assert!(line("free on the device") > 127 << 30);
    assert!((700 << 20..800 << 20).contains(&line("context")));
}

#[test]
fn the_message_alone_says_that_a_limit_was_in_the_way() {
    let explanation = explained(&["explained/torch-leak.oom.txt"]);
    assert_eq!(kinds(&explanation), [LimitLow, TooBig]);
    assert!(text(&explanation, LimitLow).contains("128 GiB of the device were free"));
}

#[test]
fn steps_of_many_lengths_leave_a_pool_idle_and_expandable_segments_would_not() {
    let explanation = explained(&["torch-frag.pickle.gz"]);
    assert_eq!(kinds(&explanation), [ReservedIdle]);
    let text = text(&explanation, ReservedIdle);
    assert!(text.contains("4414504960 bytes") && text.contains("862944768 bytes"), "{text}");
    let lower_bound = 3_580_682_920;
    let expandable = peak_with(&explanation, "expandable_segments:True");
    let planned = peak_with(&explanation, "plan the offsets");
    assert!(lower_bound <= planned && planned <= expandable && expandable < 4_414_504_960);
}

#[test]
fn what_replay_foretells_of_expandable_segments_is_what_they_took() {
    let explanation = explained(&["replay/torch-varlen.pickle.gz"]);
    assert_eq!(kinds(&explanation), [Fragmented, ReservedIdle]);
    // The same program was recorded with the setting on, too.
    let real = explained(&["torch-varlen-expandable.pickle.gz"]);
    assert_eq!(kinds(&real), [Healthy]);
    assert_eq!(peak_with(&explanation, "expandable_segments:True"), real.books.total_bytes);
}

#[test]
fn a_loop_that_keeps_nothing_is_healthy() {
    for file in ["torch-healthy.pickle.gz", "replay/torch-healthy2.pickle.gz"] {
        let explanation = explained(&[file]);
        assert_eq!(kinds(&explanation), [Healthy], "{file}");
        assert!(explanation.advice.is_empty());
    }
}

#[test]
fn leaks_by_epoch_and_in_loops_without_an_optimizer_are_found_too() {
    let epochs = explained(&["explained/torch-epochs.pickle.gz"]);
    assert_eq!(kinds(&epochs), [Leaking]);
    assert!(text(&epochs, Leaking).contains("1.60 MiB"), "16 MiB in every tenth step");
    let inference = explained(&["explained/torch-evalleak.pickle.gz"]);
    assert_eq!(kinds(&inference), [Leaking]);
    assert!(text(&inference, Leaking).contains("18.0 MiB"), "{:?}", inference.verdicts);
    let expandable = explained(&["explained/torch-expleak.pickle.gz"]);
    assert_eq!(kinds(&expandable)[0], Leaking);
    assert!(text(&expandable, Leaking).contains("after 44 steps"), "{:?}", expandable.verdicts);
}

#[test]
fn a_jax_program_that_keeps_its_arrays_leaks_and_one_that_does_not_has_an_idle_pool() {
    let leak = explained(&["explained/jax-leak.xplane.pb.gz"]);
    assert_eq!(kinds(&leak)[0], Leaking);
    let text = text(&leak, Leaking);
    assert!(text.contains("1.00 MiB") && text.contains("jax_rec2.py:11 keep"), "{text}");
    let train = explained(&["xplane/jax-train.xplane.pb.gz"]);
    assert_eq!(kinds(&train), [ReservedIdle]);
    assert!(peak_with(&train, "XLA_PYTHON_CLIENT_PREALLOCATE=false") < 300 << 20);
    assert!(peak_with(&train, "XLA_PYTHON_CLIENT_MEM_FRACTION") < 200 << 20);
}

#[test]
fn a_pool_full_of_holes_is_fragmented_with_the_largest_hole() {
    let explanation = explained(&["log/jax-fragmented.log.gz"]);
    assert_eq!(kinds(&explanation), [Fragmented]);
    let text = text(&explanation, Fragmented);
    for part in ["1.46 GiB", "2.49 GiB are free", "831 MiB", "1572864000 bytes", "2674917120 bytes"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(explanation.books.total_bytes, 4_504_682_496);
    assert!(peak_with(&explanation, "cuda_malloc_async") < 4_504_682_496);

    let torch = explained(&["explained/torch-fragoom2.pickle.gz", "explained/torch-fragoom2.oom.txt"]);
    assert_eq!(kinds(&torch), [Fragmented, LimitLow]);
    let expandable = torch.advice.iter().find(|advice| advice.change.contains("expandable")).unwrap();
    assert_eq!(expandable.would_survive, Some(false), "every page of 20 MiB holds a piece: {expandable:?}");
}

#[test]
fn what_needs_more_than_there_is_is_too_big_and_no_setting_is_said_to_help() {
    let jax = explained(&["log/jax-toobig.log.gz"]);
    assert_eq!(kinds(&jax), [TooBig]);
    assert!(jax.advice.iter().all(|advice| advice.would_survive != Some(true)), "{:?}", jax.advice);
    let torch = explained(&["torch-toobig.pickle.gz"]);
    assert_eq!(kinds(&torch), [LimitLow, TooBig]);
}

#[test]
fn many_equal_blocks_in_a_single_dump_are_probably_a_leak() {
    let explanation = explained(&["log/jax-leak-grow.log.gz"]);
    assert_eq!(kinds(&explanation)[0], Leaking);
    assert!(text(&explanation, Leaking).contains("166 blocks of 24.0 MiB"), "{:?}", explanation.verdicts);
}

#[test]
fn a_peak_of_short_lived_allocations_is_transient() {
    let explanation = explained(&["replay/torch-transient.pickle.gz"]);
    assert!(kinds(&explanation).contains(&TransientPeak), "{:?}", explanation.verdicts);
    let half = explanation.advice.iter().find(|advice| advice.change.contains("halve the batch")).unwrap();
    assert_eq!(half.would_survive, Some(true), "{half:?}");
}

#[test]
fn another_process_is_named_with_what_it_holds() {
    let explanation = explained(&["replay/torch-other.pickle.gz", "explained/torch-other.oom.txt"]);
    assert_eq!(kinds(&explanation), [OtherProcess]);
    assert!(explanation.advice[0].change.contains("1108"), "{:?}", explanation.advice);
}

#[test]
fn a_profile_and_a_log_of_one_run_are_read_as_one() {
    for files in [
        ["log/jax-toobig.log.gz", "xplane/jax-toobig.xplane.pb.gz"],
        ["xplane/jax-toobig.xplane.pb.gz", "log/jax-toobig.log.gz"],
    ] {
        let explanation = explained(&files);
        assert_eq!(kinds(&explanation), [TooBig], "{files:?}");
        assert_eq!(explanation.books.total_bytes, 4_504_682_496);
    }
}

#[test]
fn files_of_two_frameworks_are_not_of_one_run() {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let paths = [data.join("torch-leak.pickle.gz"), data.join("log/jax-toobig.log.gz")];
    let error = read_files(&paths, &Progress::default()).unwrap_err();
    assert_eq!(error.kind(), plimsoll_explain::ErrorKind::Mixed);
}

#[test]
fn profiles_of_one_moment_do_not_claim_that_nothing_grows() {
    for file in ["profile/jax-fragmented.pprof.gz", "profile/tensorflow.memory_profile.json.gz"] {
        let explanation = explained(&[file]);
        assert_eq!(kinds(&explanation), [Healthy]);
        assert!(text(&explanation, Healthy).contains("growth cannot be told"), "{file}");
    }
}

//! Every forecast begins with the answer, whichever form it has, and the exit status says the same.

mod common;

use common::Place;
use serde_json::Value;

const WORKLOADS: [&str; 2] = ["digits", "mlp-small"];

/// The forms of a forecast, for people.
const FORMS: [&[&str]; 5] = [
    &["forecast"],
    &["forecast", "--verbose"],
    &["forecast", "--frontier"],
    &["forecast", "--max-batch"],
    &["summary"],
];

#[test]
fn every_form_of_a_forecast_says_first_whether_it_fits_and_the_exit_status_says_so_too() {
    let place = Place::new();
    for workload in WORKLOADS {
        for device in ["cpu", "t4"] {
            for bound in [&[][..], &["--budget", "100KiB"], &["--budget", "64GiB"], &["--limit", "20MiB"]] {
                let mut answers = vec![];
                for form in FORMS {
                    let arguments = [form, &[workload, "--device", device], bound].concat();
                    let ran = place.run(&arguments);
                    let fits = match ran.code {
                        Some(0) => true,
                        Some(1) => false,
                        _ => panic!("{arguments:?}: {} {}", ran.stdout, ran.stderr),
                    };
                    // What no plan does is refused, on the standard error stream.
                    let answer = if ran.stderr.is_empty() {
                        ran.stdout.lines().nth(2)
                    } else {
                        ran.stderr.lines().next()
                    };
                    let answer = answer.unwrap_or_else(|| panic!("{arguments:?} say nothing"));
                    assert_eq!(fits, answer.starts_with("fits: "), "{arguments:?}: {answer}");
                    assert_eq!(!fits, answer.contains("not fit"), "{arguments:?}: {answer}");
                    if device == "t4" && form != ["forecast", "--verbose"] {
                        let told = place.run(&[&arguments[..], &["--json"]].concat());
                        let json: Value = serde_json::from_str(&told.stdout).expect("JSON and nothing else");
                        assert_eq!(
                            (&json["fits"], told.code),
                            (&fits.into(), ran.code),
                            "{arguments:?}: {json}"
                        );
                    }
                    answers.push((form, fits));
                }
                // What fits as it is fits in every form; a frontier and a batch may be made to.
                let as_it_is = answers[0].1;
                assert!(
                    !as_it_is || answers.iter().all(|of| of.1),
                    "{workload} {device} {bound:?}: {answers:?}"
                );
            }
        }
    }
}

#[test]
fn what_would_fit_and_what_would_not_be_enough_are_told_apart() {
    let error = Place::new().fail(&["forecast", "gpt-small", "--budget", "60MiB"]);
    let (_, after) = error.split_once("what would fit:\n").expect("advice");
    let (fits, others) = after.split_once("what would help, but not be enough:\n").expect("what does not");
    assert!(fits.lines().skip(1).all(|line| line.contains(": fits, with ")), "{error}");
    for line in others.lines() {
        let bytes = line.split_once('(').and_then(|(_, rest)| rest.split_once(" bytes)")).expect("bytes").0;
        assert!(bytes.parse::<u64>().expect("a number") > 60 << 20, "{error}");
    }
}

#[test]
fn a_budget_over_the_devices_memory_has_no_more_to_spare_than_the_device() {
    let text =
        Place::new().succeed(&["forecast", "gpt2-124m", "--device", "rtx4090", "--budget", "90GiB"]).stdout;
    assert!(
        text.lines().nth(2).is_some_and(|line| line.contains("of the memory of rtx4090, 23.6 GiB, ")),
        "{text}"
    );
}

#[test]
fn what_does_not_fit_the_machine_is_measured_no_more_than_it_is_trained() {
    let place = Place::new();
    for command in [&["train", "--steps", "1"][..], &["bench", "--steps", "1"], &["bench", "--kernels"]] {
        let error = place.fail(&[command, &["gpt-small", "--limit", "150MiB"]].concat());
        assert!(
            error.contains("does not fit: needs") && error.contains("what would fit:\n  a budget of "),
            "{error}"
        );
    }
}

#[test]
fn a_host_budget_is_said_with_the_answer_and_refused_on_the_cpu() {
    let place = Place::new();
    let within = ["forecast", "gpt2-124m", "--device", "h200", "--budget", "2GiB", "--host-budget"];
    let fits = place.succeed(&[&within[..], &["1GiB"]].concat()).stdout;
    assert!(fits.lines().nth(2).is_some_and(|line| line.contains(" of 1.00 GiB on the host")), "{fits}");
    assert!(fits.contains("pinned (") && fits.contains(" states") && fits.contains("staging"), "{fits}");
    for command in ["forecast", "train", "bench", "summary"] {
        let error = place.fail(&[command, "digits", "--host-budget", "1GiB"]);
        assert!(error.contains("a GPU pins") && error.contains("leave the host budget out"), "{error}");
    }
}

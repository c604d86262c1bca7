//! `plimsoll devices`: the machines that can be planned for, and what this one can do.

mod common;

use common::Place;
use serde_json::Value;

/// Runs the command with a folder `own` of profiles in the place.
fn devices(place: &Place, args: &str) -> common::Ran {
    place.shell(&format!("PLIMSOLL_DEVICES=own $PLIMSOLL devices {args}"))
}

#[test]
fn the_list_has_a_line_for_each_device() {
    let ran = devices(&Place::new(), "");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    for name in ["cpu", "h200", "h100-80g", "a100-80g", "a100-40g", "l40s", "rtx4090", "rtx3090", "t4"] {
        let named = |line: &&str| line.starts_with(&format!("{name} ")) && line.contains("FLOP/s");
        assert!(ran.stdout.lines().any(|line| named(&line)), "no {name} in {}", ran.stdout);
    }
    for part in ["NVIDIA A100 SXM, 40 GB", "39.4 GiB", "690 TFLOP/s", "1.79 TB/s"] {
        assert!(ran.stdout.contains(part), "no `{part}` in {}", ran.stdout);
    }
}

#[test]
fn the_list_is_data_for_other_programs_too() {
    let list: Value = serde_json::from_str(&devices(&Place::new(), "--json").stdout).expect("JSON");
    let h200 = list.as_array().expect("a list").iter().find(|p| p["name"] == "h200").expect("the H200");
    assert_eq!(h200["rates"]["matrix_half"], 6.9e14);
    assert_eq!(h200["copies"]["overlap"], true);
}

#[test]
fn cuda_devices_are_listed_or_it_is_said_in_one_line_why_there_are_none() {
    let data = devices(&Place::new(), "--here --json");
    assert_eq!((data.code, data.stderr.as_str()), (Some(0), ""));
    let data: Value = serde_json::from_str(&data.stdout).expect("JSON");
    let kinds = data.as_array().expect("a list of kinds");
    let cuda = kinds.iter().find(|kind| kind["kind"] == "cuda").expect("CUDA");
    let found = cuda["devices"].as_array().expect("a list").len();
    assert!(cuda["missing"].is_null() || found == 0, "{cuda}");
    for args in ["", "--here", "--cuda"] {
        let ran = devices(&Place::new(), args);
        let lines = |start: &str| ran.stdout.lines().filter(|line| line.starts_with(start)).count();
        assert_eq!((ran.code, lines("cuda:")), (Some(0), found), "{}", ran.stdout);
        assert_eq!(lines("no CUDA device: "), usize::from(found == 0), "{}", ran.stdout);
    }
}

#[test]
fn what_was_measured_is_saved_and_then_listed() {
    let place = Place::new();
    let ran = devices(&place, "--calibrate --threads 1 --save");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let saved = place.read("own/cpu.toml");
    assert_eq!(ran.stdout, format!("{saved}\n# written to own/cpu.toml\n"));
    assert_eq!(place.list("own"), ["cpu.toml"]);
    let listed = devices(&place, "").stdout;
    assert!(listed.contains("1 thread, measured"), "{listed}");
}

#[test]
fn a_profile_that_is_wrong_is_shown_with_its_line() {
    let place = Place::new();
    let ran = place.shell(
        "mkdir own && printf 'memory_bytes = 5\\nalignment = 3\\n' > own/mine.toml; \
         PLIMSOLL_DEVICES=own $PLIMSOLL devices",
    );
    let expected = "own/mine.toml:2:13: `alignment` is 3; expected a power of two";
    assert!(ran.error().starts_with(expected), "{}", ran.stderr);
}

#[test]
fn a_folder_that_cannot_be_made_is_known_before_measuring() {
    let place = Place::new();
    place.write("own", "a file");
    let ran = devices(&place, "--calibrate --save");
    assert!(ran.error().starts_with("cannot make the folder own: "), "{}", ran.stderr);
    assert_eq!(ran.stdout, "");
}

#[test]
fn options_that_mean_nothing_here_are_refused() {
    for args in ["--save", "--threads 2", "--calibrate --threads 0", "--calibrate --json"] {
        let ran = devices(&Place::new(), args);
        assert_eq!(ran.code, Some(2), "{args}: {}", ran.stderr);
    }
}

#[test]
fn a_gpu_that_is_not_here_is_named_by_everything_that_would_use_it() {
    let place = Place::new();
    let text = place.succeed(&["workloads", "digits"]).stdout;
    let text =
        text.replace("[train]", "[train]\ndevice = \"cuda:60000\"").replace("epochs = 15", "steps = 1");
    place.write("gpu.toml", &text);
    for args in [
        &["forecast", "digits", "--device", "cuda:60000"][..],
        &["forecast", "digits", "--device", "cuda:60000", "--frontier"],
        &["forecast", "gpu.toml"],
        &["train", "gpu.toml"],
        &["bench", "digits", "--device", "cuda:60000"],
    ] {
        let error = place.fail(args);
        assert!(error.contains("NVIDIA driver") || error.contains("cuda:60000"), "{args:?}: {error}");
    }
    // What the command line says wins over the file.
    for args in [
        &["forecast", "gpu.toml", "--device", "h200"][..],
        &["forecast", "gpu.toml", "--device", "cpu"],
        &["train", "gpu.toml", "--device", "cpu", "--quiet"],
    ] {
        place.succeed(args);
    }
}

#[test]
fn a_hidden_device_is_refused_by_the_name_of_the_variable_that_hides_it() {
    let place = Place::new();
    for hidden in ["", "cpu", "1", "cuda:1, cuda:2"] {
        for command in ["train digits", "forecast digits", "bench digits", "selftest"] {
            let ran = place
                .shell(&format!("PLIMSOLL_VISIBLE_DEVICES='{hidden}' $PLIMSOLL {command} --device cuda:0"));
            let error = ran.error();
            assert!(error.contains("cuda:0 is hidden: PLIMSOLL_VISIBLE_DEVICES is"), "{command}: {error}");
        }
        let ran = place.shell(&format!("PLIMSOLL_VISIBLE_DEVICES='{hidden}' $PLIMSOLL forecast digits"));
        assert_eq!(ran.code, Some(0), "the processor is always there: {}", ran.stderr);
    }
    let seen = place.shell("PLIMSOLL_VISIBLE_DEVICES=60000 $PLIMSOLL bench digits --device cuda:60000");
    assert!(!seen.error().contains("hidden"), "{}", seen.stderr);
    let wrong = place.shell("PLIMSOLL_VISIBLE_DEVICES=gpu0 $PLIMSOLL bench digits --device cuda:0");
    assert!(wrong.error().contains("`gpu0` is no device"), "{}", wrong.stderr);
}

#[test]
fn what_hides_devices_is_said_in_their_list() {
    let script = "PLIMSOLL_VISIBLE_DEVICES=0 CUDA_VISIBLE_DEVICES=1,2 $PLIMSOLL devices --here";
    let listed = Place::new().shell(script).stdout;
    assert!(listed.contains("PLIMSOLL_VISIBLE_DEVICES is \"0\": other GPUs are hidden"), "{listed}");
    assert!(listed.contains("CUDA_VISIBLE_DEVICES is \"1,2\": other GPUs are hidden"), "{listed}");
    let data: Value =
        serde_json::from_str(&Place::new().shell(&format!("{script} --json")).stdout).expect("JSON");
    assert_eq!(data[0]["hidden_by"]["CUDA_VISIBLE_DEVICES"], "1,2", "{data}");
}

#[test]
fn a_limit_caps_what_a_device_has() {
    let place = Place::new();
    let ran = place.run(&["forecast", "gpt2-124m", "--device", "h200", "--limit", "6GiB", "--json"]);
    let forecast: Value = serde_json::from_str(&ran.stdout).expect("JSON and nothing else");
    assert_eq!((ran.code, &forecast["fits"]), (Some(1), &false.into()), "{forecast}");
    assert_eq!(forecast["memory_bytes"].as_u64(), Some(6 << 30));
    for alternative in forecast["alternatives"].as_array().expect("a list") {
        assert!(alternative["needed_bytes"].as_u64() <= Some(6 << 30), "{alternative}");
    }
    assert!(forecast["alternatives"][0]["change"].as_str().is_some_and(|c| c.starts_with("a budget of 5.")));
    let error = place.fail(&["train", "gpt-small", "--steps", "1", "--limit", "100MiB"]);
    assert!(error.contains("does not fit") && error.contains("what would fit"), "{error}");
}

#[test]
fn the_log_of_placements_has_every_state_and_kernel() {
    let place = Place::new();
    let forecast = place.succeed(&["forecast", "digits", "--json"]).stdout;
    let forecast: Value = serde_json::from_str(&forecast).expect("JSON");
    let log = place.succeed(&["forecast", "digits", "--placement"]).stdout;
    for state in ["conv0/filter", "conv0/filter:mean", "dense1/bias:square"] {
        let line = log.lines().find(|line| line.ends_with(&format!(" {state}"))).expect("a line of it");
        assert!(line.trim_start().starts_with("cpu "), "{line}");
    }
    let (_, kernels) = log.split_once("kernels in their order\n").expect("a list of kernels");
    assert_eq!(kernels.lines().count() as u64 - 1, forecast["kernels"].as_u64().expect("a number"), "{log}");
    let device = "gpt2-124m --device h200 --budget 2GiB --placement";
    let log = place.shell(&format!("$PLIMSOLL forecast {device}")).stdout;
    assert!(
        log.lines().any(|line| line.trim_start().starts_with("host ")),
        "something rests on the host: {log}"
    );
}

//! What can be done with a model after training: measuring it, and asking it.

mod common;

use common::{FLOWERS, Place};
use serde_json::Value;

/// Two flowers that anybody could tell apart.
fn flowers(rows: usize) -> String {
    let mut text = "length,width,species\n".to_string();
    for row in 0..rows {
        let (base, class) = if row % 2 == 0 { (1.0, 0) } else { (3.0, 1) };
        text += &format!("{},{},{class}\n", base + 0.01 * row as f64, base - 0.01 * row as f64);
    }
    text
}

fn trained() -> Place {
    let place = Place::new();
    place.write("data.csv", &flowers(30));
    place.write("flowers.toml", FLOWERS);
    assert_eq!(place.run(&["train", "flowers.toml", "--out", "run", "--quiet"]).code, Some(0));
    place
}

#[test]
fn a_trained_model_is_measured_on_data_it_has_not_seen() {
    let place = trained();
    place.write("other.csv", &flowers(7));
    let ran = place.run(&["evaluate", "run", "other.csv", "--json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let told: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((told["samples"].as_u64(), told["metrics"]["accuracy"].as_f64()), (Some(7), Some(1.0)));
    // One sample at a time or all at once: the same numbers.
    let apart: Value =
        serde_json::from_str(&place.run(&["evaluate", "run", "other.csv", "--json", "--batch", "1"]).stdout)
            .unwrap();
    let loss = |told: &Value| told["metrics"]["loss"].as_f64().unwrap();
    assert!((loss(&told) - loss(&apart)).abs() < 1e-6 * loss(&told).abs().max(1e-6));
}

#[test]
fn predictions_are_written_in_the_order_of_the_samples() {
    let place = trained();
    place.write("other.csv", &flowers(9));
    let ran = place.run(&["predict", "run", "other.csv", "--out", "p.csv"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let lines: Vec<String> = place.read("p.csv").lines().map(String::from).collect();
    assert_eq!(lines[0], "class,prediction0,prediction1");
    let classes: Vec<&str> = lines[1..].iter().map(|line| &line[..1]).collect();
    assert_eq!(classes, ["0", "1", "0", "1", "0", "1", "0", "1", "0"]);
    for name in ["p.npy", "p.safetensors"] {
        assert_eq!(place.run(&["predict", "run", "other.csv", "--out", name]).code, Some(0));
        let bytes = std::fs::read(place.path(name)).unwrap();
        let last: f32 = f32::from_le_bytes(bytes[bytes.len() - 4..].try_into().unwrap());
        assert_eq!(lines[9].rsplit(',').next().unwrap().parse::<f32>().unwrap(), last, "{name}");
    }
}

/// A workload names files relative to itself, and what is kept of it in a run's folder must still find them.
#[test]
fn a_trained_model_finds_its_data_from_any_folder_with_nothing_said() {
    let place = Place::new();
    for folder in ["work", "work/data", "elsewhere"] {
        std::fs::create_dir(place.path(folder)).unwrap();
    }
    place.write("work/data/it's \"flowers\".csv", &flowers(30));
    let workload = FLOWERS.replace("\"data.csv\"", r#""data/it's \"flowers\".csv" # all of them"#);
    place.write("work/flowers.toml", &workload);
    place.succeed(&["train", "work/flowers.toml", "--out", "elsewhere/run", "--quiet"]);
    let told = place.succeed(&["evaluate", "elsewhere/run", "--json"]).stdout;
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((told["samples"].as_u64(), told["metrics"]["accuracy"].as_f64()), (Some(30), Some(1.0)));
    place.succeed(&["export", "elsewhere/run", "--out", "flowers.onnx"]);
    // All else in it is as it was written, and a run that goes on from it finds them too.
    let kept = place.read("elsewhere/run/workload.toml");
    assert!(kept.contains("# all of them"), "{kept}");
    let others = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with("path")).map(String::from).collect()
    };
    assert_eq!(others(&kept), others(&workload));
    place.succeed(&["train", "elsewhere/run/workload.toml", "--resume", "--out", "elsewhere/run", "--quiet"]);
}

#[test]
fn what_cannot_be_measured_or_predicted_is_said() {
    let place = trained();
    std::fs::rename(place.path("data.csv"), place.path("moved.csv")).unwrap();
    for (arguments, said) in [
        (vec!["evaluate", "nowhere"], "nowhere/workload.toml"),
        (vec!["evaluate", "run", "missing.csv"], "missing.csv"),
        (vec!["evaluate", "run"], "say which file to read after run"),
        (vec!["predict", "run", "moved.csv", "--out", "p.txt"], ".npy, .csv or .safetensors"),
        (vec!["evaluate", "run", "moved.csv", "--weights", "flowers.toml"], "flowers.toml"),
    ] {
        let ran = place.run(&arguments);
        assert_eq!(ran.code, Some(1), "{arguments:?}");
        assert!(ran.stderr.contains(said), "{arguments:?}: {}", ran.stderr);
    }
    assert!(!place.path("p.txt").exists());
}

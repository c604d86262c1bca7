//! The page of a run: what it is told, what it keeps and what it leaves.

use super::Told;
use plimsoll::logs::RunPage;
use plimsoll::{Control, Observer, Progress, Spec, Validation};
use serde_json::{Value, json};
use std::path::Path;

fn page(folder: Option<&Path>) -> RunPage {
    let spec = Spec::find("digits").expect("a workload");
    let (data, _) = spec.datasets().expect("data");
    let plan = spec.trainer().compile(&data, None).expect("a plan").plan_picture();
    let page = RunPage::new("<digits>", &[("batch".into(), "32 & more".into())], &plan);
    match folder {
        Some(folder) => page.save_to(folder),
        None => page,
    }
}

/// What is in a page that was written.
fn meta(page: &str) -> Value {
    let (_, rest) = page.split_once("id=\"meta\">").expect("the data");
    let (json, _) = rest.split_once("</script>").expect("its end");
    serde_json::from_str(json).expect("JSON")
}

#[test]
fn a_reader_that_asks_now_and_then_comes_to_have_what_one_has_who_asks_at_the_end() {
    let told = Told::new();
    let mut page = page(None);
    let reader = page.reader();
    told.start(&mut page, 0, 10_000);
    assert_eq!(reader.data(0)["points"], json!([]));
    let mut kept: Vec<Value> = vec![];
    let ask = |kept: &mut Vec<Value>| {
        let step = |point: &Value| point[0].as_u64().expect("a step");
        let data = reader.data(kept.last().map_or(0, step) as usize);
        let stride = data["stride"].as_u64().expect("a stride");
        kept.retain(|point| step(point) % stride == 0);
        kept.extend(data["points"].as_array().expect("points").iter().cloned());
    };
    for (index, from) in (1..=9_501).step_by(500).enumerate() {
        told.steps(&mut page, from..=from + 499, 10_000);
        if index % 3 != 1 {
            ask(&mut kept);
        }
    }
    ask(&mut kept);
    let data = reader.data(0);
    assert_eq!(data["points"], Value::from(kept));
    let points = data["points"].as_array().expect("points");
    assert!((500..=2048).contains(&points.len()), "{} points", points.len());
    assert!(points.iter().all(|point| point[0].as_f64() == point[1].as_f64()), "a loss is its step's");
    assert_eq!(
        (&data["step"], &data["steps"], &data["loss"]),
        (&json!(10_000), &json!(10_000), &json!(10_000.0))
    );
    assert_eq!(data["columns"], json!(["loss", "accuracy", "steps_per_second"]));
    assert_eq!(data["status"], "training");
}

#[test]
fn the_page_that_is_left_has_the_run_in_it_and_asks_for_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let spec = Spec::find("digits").expect("a workload").steps(30);
    let (data, _) = spec.datasets().expect("data");
    let mut page = page(Some(folder.path()));
    let trained = spec.trainer().fit(&data, None, &mut page).expect("training");
    let metrics = [("loss".to_string(), 0.5)];
    page.validated(&Validation { epoch: 1, step: 30, metrics: &metrics }, &mut Control::default())
        .expect("told");
    let html = std::fs::read_to_string(folder.path().join(RunPage::FILE)).expect("the page");
    assert!(
        html.contains("connect-src 'none'") && html.contains("&lt;digits&gt;") && !html.contains("<digits>")
    );
    let meta = meta(&html);
    assert_eq!(meta["data"]["status"], "ended");
    let shown: Vec<f32> = meta["data"]["points"]
        .as_array()
        .expect("points")
        .iter()
        .filter_map(|point| Some(point[1].as_f64()? as f32))
        .collect();
    assert_eq!(shown, trained.report.losses);
    assert_eq!(meta["data"]["memory"]["arena_bytes"], trained.report.arena_bytes);
    assert_eq!(meta["settings"], json!([["batch", "32 & more"]]));
    assert!(std::fs::read_dir(folder.path()).expect("the folder").count() == 1, "no draft is left");
}

#[test]
fn a_page_that_is_served_asks_its_own_server_alone_and_a_run_that_fails_leaves_a_page_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let told = Told::new();
    let mut page = page(Some(folder.path()));
    let reader = page.reader();
    let html = String::from_utf8(reader.html().expect("a page")).expect("text");
    assert!(html.contains("connect-src 'self'"));
    assert!(meta(&html)["data"].is_null());
    told.start(&mut page, 0, 100);
    told.steps(&mut page, 1..=7, 100);
    assert!(!reader.has_ended());
    drop(page);
    assert!(reader.has_ended());
    assert_eq!(reader.data(0)["status"], "stopped");
    let html = std::fs::read_to_string(folder.path().join(RunPage::FILE)).expect("the page");
    assert_eq!(meta(&html)["data"]["step"], 7);
}

#[test]
fn validations_are_kept_in_bounds() {
    let mut page = page(None);
    for step in 1..=5000 {
        let metrics = [("loss".to_string(), step as f64)];
        page.validated(&Validation { epoch: 1, step, metrics: &metrics }, &mut Control::default())
            .expect("told");
    }
    let data = page.reader().data(0);
    let kept = data["validations"].as_array().expect("validations");
    assert!((200..=512).contains(&kept.len()), "{}", kept.len());
    assert_eq!(kept.last(), Some(&json!([5000, { "loss": 5000.0 }])));
}

#[test]
fn watching_is_no_part_of_what_is_trained() {
    let spec = Spec::find("digits").expect("a workload").steps(20);
    let (data, _) = spec.datasets().expect("data");
    let folder = tempfile::tempdir().expect("a folder");
    let bits = |observer: &mut dyn Observer| {
        let trained = spec.trainer().fit(&data, None, observer).expect("training");
        trained.report.losses.iter().map(|loss| loss.to_bits()).collect::<Vec<_>>()
    };
    let watched = bits(
        &mut plimsoll::Observers::new()
            .with(page(Some(folder.path())))
            .with(plimsoll::logs::TensorBoard::new(folder.path()).histograms(3))
            .with(|_: &Progress<'_>| ()),
    );
    assert_eq!(watched, bits(&mut ()));
}

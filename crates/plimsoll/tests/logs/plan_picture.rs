//! Pictures of plans: what they show is what the plan is.

use plimsoll::memory::Category;
use plimsoll::{PlanPicture, Spec, Trainer};
use plimsoll_data::Dataset;

/// Pictures of a workload without a budget and at two tight ones, the tightest with a file to spill to.
pub(crate) fn pictures(name: &str) -> Vec<PlanPicture> {
    let spec = Spec::find(name).expect("a workload").batch(8);
    let (data, _) = spec.datasets().expect("data");
    let folder = tempfile::tempdir().expect("a folder");
    let exact = spec.trainer().exact(true);
    let spilling = exact.clone().spill(folder.path());
    let floor = |trainer: &Trainer| trainer.frontier(&data, None).expect("a frontier").floor_bytes;
    let picture =
        |trainer: Trainer, data: &Dataset| trainer.compile(data, None).expect("a plan").plan_picture();
    vec![
        picture(exact.clone(), &data),
        picture(exact.clone().budget(floor(&exact)), &data),
        picture(spilling.clone().budget(floor(&spilling)), &data),
    ]
}

#[test]
fn what_is_live_at_the_peak_is_the_ledger_and_never_more_than_that() {
    for name in ["digits", "gpt-small"] {
        for picture in pictures(name) {
            let at_peak = picture.live[picture.peak_position];
            for (category, bytes) in
                picture.ledger.lines().filter(|&(category, _)| category != Category::Padding)
            {
                assert_eq!(at_peak.get(category), bytes, "{name}: {}", category.name());
            }
            assert_eq!(picture.live.len(), picture.kernels.len());
            let most = picture.live.iter().map(|ledger| ledger.total()).max();
            assert!(most <= Some(picture.peak_bytes), "{name}");
        }
    }
}

#[test]
fn buffers_lie_in_the_arena_and_only_results_in_place_share_bytes() {
    for name in ["digits", "gpt-small"] {
        for picture in pictures(name) {
            let buffers = &picture.buffers;
            for (index, a) in buffers.iter().enumerate() {
                assert!(a.lower < a.upper && a.upper <= picture.kernels.len(), "{name}: {a:?}");
                assert!(a.offset + a.bytes <= picture.peak_bytes, "{name}: {a:?}");
                for b in &buffers[..index] {
                    let together = a.lower.max(b.lower) + 1 < a.upper.min(b.upper);
                    let overlap = a.offset.max(b.offset) < (a.offset + a.bytes).min(b.offset + b.bytes);
                    assert!(!(together && overlap), "{name}: {a:?} and {b:?}");
                }
            }
            let used = |index: usize| picture.kernels.iter().any(|kernel| kernel.operands.contains(&index));
            let reaches = (0..buffers.len()).filter(|&index| used(index)).count();
            assert!(reaches > buffers.len() / 2, "{name}: {reaches} of {} are operands", buffers.len());
        }
    }
}

#[test]
fn remedies_are_marked_on_what_they_make_again_and_move() {
    let [plain, recomputed, spilled] = &pictures("gpt-small")[..] else { panic!("three pictures") };
    let marks = |picture: &PlanPicture| {
        let mut marks: Vec<&str> =
            picture.buffers.iter().filter_map(|buffer| Some(buffer.remedy?.name())).collect();
        marks.sort();
        marks.dedup();
        marks
    };
    assert_eq!(marks(plain), [""; 0]);
    assert_eq!(marks(recomputed), ["recompute"]);
    assert!(
        marks(spilled).contains(&"copy_out") && marks(spilled).contains(&"copy_back"),
        "{:?}",
        marks(spilled)
    );
    assert!(spilled.host_bytes > 0);
    assert!(recomputed.fitting().contains("recompute"), "{}", recomputed.fitting());
}

#[test]
fn the_page_of_a_plan_has_its_data_and_hostile_titles_as_text() {
    let picture = &pictures("digits")[0];
    let mut page = vec![];
    let hostile = "</script><img src=x onerror=alert(1)>\u{202e}";
    picture.write_html(hostile, &mut page).expect("memory");
    let page = String::from_utf8(page).expect("text");
    assert!(page.starts_with("<!doctype html>") && !page.contains("{{"));
    assert!(!page.contains("<img") && !page.contains('\u{202e}'));
    assert!(!page.contains("http:") && !page.contains("https:"), "nothing is from elsewhere");
    let (_, rest) = page.split_once("id=\"meta\">").expect("the data");
    let (json, _) = rest.split_once("</script>").expect("its end");
    let meta: serde_json::Value = serde_json::from_str(json).expect("JSON");
    assert!(json.contains(&picture.to_json().to_string()), "the plan as it is");
    let columns = meta["plan"]["buffers"].as_object().expect("columns");
    assert!(
        columns.values().all(|column| column.as_array().is_some_and(|c| c.len() == picture.buffers.len()))
    );
}

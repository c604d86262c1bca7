//! The pages of a plan and of a run, put together.

use crate::forecast::plan_picture::PlanPicture;
use plimsoll_memory::quoted;
use plimsoll_page::{Page, escape, write_script_json};
use serde_json::{Value, json};
use std::io::{self, Write};

const PLAN_PAGE: &str = include_str!("page/plan.html");
const RUN_PAGE: &str = include_str!("page/run.html");
/// The part of both pages that shows a plan.
const PLAN: &str = include_str!("page/plan_section.html");
const STYLE: &str = include_str!("page/page.css");
const PLAN_SCRIPT: &str = include_str!("page/plan.js");

/// A page with the style of both and these scripts.
fn page(template: &'static str, scripts: &[&str]) -> Page {
    let script = [&[plimsoll_page::SCRIPT, PLAN_SCRIPT], scripts].concat().concat();
    Page { template, style: [plimsoll_page::STYLE, STYLE].concat(), script }
}

/// Writes the page of a plan.
pub(crate) fn write_plan_page(picture: &PlanPicture, title: &str, out: &mut dyn Write) -> io::Result<()> {
    let page = page(PLAN_PAGE, &[include_str!("page/plan_page.js")]);
    page.write(out, |slot, out| match slot {
        "title" => out.write_all(text(title).as_bytes()),
        "headline" => out.write_all(text(&picture.headline()).as_bytes()),
        "fitting" => out.write_all(text(&picture.fitting()).as_bytes()),
        "plan" => out.write_all(PLAN.as_bytes()),
        "meta" => {
            let about = json!({ "title": title, "plan": picture.to_json() });
            write_script_json(&about, out)
        }
        _ => Ok(()),
    })
}

/// Writes the page of a run from what [`super::PageReader`] knows. Without data in it, it asks the server it is from.
pub(super) fn write_run_page(about: &Value, out: &mut dyn Write) -> io::Result<()> {
    let page = page(RUN_PAGE, &[include_str!("page/chart.js"), include_str!("page/run_page.js")]);
    page.write(out, |slot, out| match slot {
        "title" => out.write_all(text(about["title"].as_str().unwrap_or_default()).as_bytes()),
        "connect" => out.write_all(if about["data"].is_null() { b"'self'" } else { b"'none'" }),
        "plan" => out.write_all(PLAN.as_bytes()),
        "meta" => write_script_json(about, out),
        _ => Ok(()),
    })
}

/// Untrusted text for the body of an element.
fn text(untrusted: &str) -> String {
    escape(&quoted(untrusted))
}

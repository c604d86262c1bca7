//! The page: an explanation as one HTML file that can be kept, sent and opened years later.
//!
//! Everything is in the file, and names in a recording are only ever text, as [`plimsoll_page`] has it. What is read
//! (verdicts, books, advice) is plain HTML and needs no script; what is explored (timeline, address map, flame graph) is
//! drawn by the page's script from columns of numbers, so that a hundred thousand events stay quick. It opens at the
//! moment that was explained, with the explanation's figures.

mod blob;
mod device;
mod groups;
mod header;
mod lifetimes;

use crate::explanation::Explanation;
use crate::recording::{Device, Recording};
use blob::Blob;
use plimsoll_memory::quoted;
use plimsoll_page::{Page, escape, write_script_json};
use serde_json::json;
use std::io::{self, Write};

const PAGE: &str = include_str!("html/page.html");
const STYLE: &str = include_str!("html/page.css");
/// The parts of the script, in the order in which they build on each other.
const SCRIPT: [&str; 7] = [
    include_str!("html/data.js"),
    plimsoll_page::SCRIPT,
    include_str!("html/stack.js"),
    include_str!("html/timeline.js"),
    include_str!("html/map.js"),
    include_str!("html/flame.js"),
    include_str!("html/page.js"),
];

/// One device on the page: what is said of it, and what was recorded.
struct View<'a> {
    name: &'a str,
    explanation: Option<&'a Explanation>,
    device: Option<&'a Device>,
}

/// Writes an explanation as one self-contained HTML page, with the recording to explore around it.
///
/// ```
/// use plimsoll_explain::{Device, Framework, Origin, Recording, explain, write_html};
/// let origin = Origin { files: vec!["run".into()], formats: vec![], framework: Framework::Jax, gaps: vec![], partial: false };
/// let device = Device { name: "GPU 0".into(), ..Device::default() };
/// let recording = Recording { origin, devices: vec![device] };
/// let explanation = explain(&recording);
/// let mut page = Vec::new();
/// write_html(&recording, &explanation, &mut page)?;
/// assert!(page.starts_with(b"<!doctype html>"));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// If `out` cannot be written to.
pub fn write_html(recording: &Recording, explanation: &Explanation, out: &mut dyn Write) -> io::Result<()> {
    let views = views(recording, explanation);
    let mut blob = Blob::default();
    let devices: Vec<_> = views.iter().map(|view| device::describe(view, &mut blob)).collect();
    let files = recording.origin.files.join(", ");
    let files = quoted(&files);
    let meta = json!({ "framework": recording.origin.framework.name(), "devices": devices });

    let style = [plimsoll_page::STYLE, STYLE, &header::widths()].concat();
    let page = Page { template: PAGE, style, script: SCRIPT.concat() };
    page.write(out, |slot, out| match slot {
        "title" => out.write_all(escape(&files).as_bytes()),
        "header" => header::write(recording, &views, out),
        "meta" => write_script_json(&meta, out),
        "blob" => blob.write(out),
        _ => Ok(()),
    })
}

/// Pairs what is said of each device with what was recorded of it. The device explained first comes first.
fn views<'a>(recording: &'a Recording, explanation: &'a Explanation) -> Vec<View<'a>> {
    let mut devices: Vec<Option<&Device>> = recording.devices.iter().map(Some).collect();
    let mut views: Vec<View<'a>> = std::iter::once(explanation)
        .chain(&explanation.others)
        .map(|explanation| {
            let of_name = |device: &Option<&Device>| device.is_some_and(|d| d.name == explanation.device);
            let device = devices.iter().position(of_name).and_then(|at| devices[at].take());
            View { name: &explanation.device, explanation: Some(explanation), device }
        })
        .collect();
    let unexplained = devices.into_iter().flatten();
    views.extend(unexplained.map(|d| View { name: &d.name, explanation: None, device: Some(d) }));
    views
}

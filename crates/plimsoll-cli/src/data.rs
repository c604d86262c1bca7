//! `plimsoll data`: what a workload's samples are, what they take, and how fast they come.

use crate::target::{Target, count};
use crate::{Result, show};
use plimsoll::data::{Dataset, Field, Rate, Survey};
use plimsoll_memory::Column::{Cut, Left, Right};
use plimsoll_memory::{Table, format_bytes, quoted};
use serde_json::{Value, json};
use std::io::Write;

/// Look at a workload's data: fields, shapes, counts, the first samples and how fast they are read
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// How many samples to show
    #[arg(long, value_name = "N", default_value = "3", value_parser = count)]
    first: usize,
    /// Seconds to read in each order, to see how fast samples come
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    seconds: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| (0.0..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "from 0 to 3600 seconds".to_string())
}

/// How many values of a field are shown.
const SHOWN: usize = 8;

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result {
    let spec = args.target.spec()?;
    let (data, held_out) = spec.datasets()?;
    let survey = data.survey(args.first, args.seconds)?;
    if args.json {
        return show::json(&to_json(&survey, held_out.as_ref()), out);
    }
    show::title(&spec, out)?;
    let held_out = held_out.map_or(String::new(), |data| format!(", and {} held out", data.samples()));
    match survey.samples {
        Some(samples) => writeln!(out, "{:<10} {samples} to train on{held_out}", "samples")?,
        None => writeln!(out, "{:<10} as many as there happen to be{held_out}", "samples")?,
    }
    writeln!(out, "{:<10} {} of RAM kept", "memory", format_bytes(survey.resident_bytes))?;
    for (name, rate) in [("in order", Some(survey.in_order)), ("shuffled", survey.shuffled)] {
        if let Some(rate) = rate {
            writeln!(out, "{name:<10} {}", show_rate(&rate))?;
        }
    }
    for (number, stage) in survey.stages.stages.iter().enumerate() {
        let name = if number == 0 { "stages" } else { "" };
        writeln!(out, "{name:<10} {}", quoted(&stage.name))?;
    }
    writeln!(out)?;
    let mut table = Table::new([Left, Left, Right, Cut]);
    table.row(["field", "type", "bytes", "first samples"].map(Into::into));
    for (position, field) in survey.fields.iter().enumerate() {
        for (number, record) in survey.first.iter().enumerate() {
            let values = record.show(position, SHOWN);
            let bytes = format_bytes(record.bytes(position).len() as u64);
            let (name, ty) = if number == 0 {
                (quoted(field.name()).into_owned(), type_of(field))
            } else {
                Default::default()
            };
            table.row([name, ty, bytes, quoted(&values).into_owned()].map(Into::into));
        }
    }
    Ok(write!(out, "{}", table.to_text(show::width()))?)
}

fn type_of(field: &Field) -> String {
    let text = field.to_string();
    text.strip_prefix(&format!("{}: ", field.name())).unwrap_or(&text).to_string()
}

fn show_rate(rate: &Rate) -> String {
    format!(
        "{:.0} samples a second, {}/s",
        rate.samples_per_second(),
        format_bytes(rate.bytes_per_second() as u64)
    )
}

fn rate_json(rate: &Rate) -> Value {
    json!({ "samples_per_second": rate.samples_per_second(), "bytes_per_second": rate.bytes_per_second() })
}

fn to_json(survey: &Survey, held_out: Option<&Dataset>) -> Value {
    let field = |field: &Field| {
        let extent = |&extent: &usize| (extent != Field::OPEN).then_some(extent);
        let shape: Vec<Option<usize>> = field.shape().iter().map(extent).collect();
        json!({ "name": field.name(), "type": field.element().to_string(), "shape": shape })
    };
    let first = |record: &plimsoll::data::Record| {
        let values = |(at, field): (usize, &Field)| {
            (field.name().to_string(), json!({ "shape": record.shape(at), "begins": record.show(at, SHOWN) }))
        };
        record.fields().iter().enumerate().map(values).collect::<serde_json::Map<_, _>>()
    };
    json!({
        "samples": survey.samples,
        "held_out_samples": held_out.map(Dataset::samples),
        "fields": survey.fields.iter().map(field).collect::<Vec<_>>(),
        "resident_bytes": survey.resident_bytes,
        "held_bytes": survey.stages.most_bytes,
        "stages": survey.stages.stages.iter().map(|stage| &stage.name).collect::<Vec<_>>(),
        "in_order": rate_json(&survey.in_order),
        "shuffled": survey.shuffled.as_ref().map(rate_json),
        "first": survey.first.iter().map(first).collect::<Vec<_>>(),
    })
}

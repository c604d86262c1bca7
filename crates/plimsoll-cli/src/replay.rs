//! `plimsoll replay`: the same requests under other allocators.

use crate::Result;
use crate::recording::read;
use crate::show;
use crate::target::seconds;
use plimsoll_explain::{Device, Limits, Origin, Recording, call_site, curve, planned};
use plimsoll_memory::Column::{Cut, Left, Right};
use plimsoll_memory::{
    Action, Model, OwnerId, Start, Table, Trace, format_bytes, parse_bytes, quoted, replay,
};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Run a recorded sequence of requests again under other allocators
///
/// Says what each would have taken, whether it would have gone through and, if not, where it would have ended.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What the program left behind; several files of one run are joined
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The allocator: bfc, bfc-growth, caching, expandable, two-ended, paged, planned, or all
    #[arg(long, value_name = "NAME", default_value = "all", value_parser = allocator)]
    allocator: Choice,
    /// The bytes that the pool may take; without it, the recorded limit
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    limit: Option<u64>,
    /// The memory that reading may take; what was read within it is replayed, and said to be a part
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = parse_bytes)]
    max_memory: u64,
    /// How long to replay at most; what was not begun by then is named
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    seconds: Duration,
    /// Show no bar while files are read
    #[arg(long)]
    quiet: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Which allocators to replay under.
#[derive(Clone)]
enum Choice {
    All,
    Planned,
    One(Model),
}

fn allocator(name: &str) -> std::result::Result<Choice, String> {
    match name {
        "all" => Ok(Choice::All),
        "planned" => Ok(Choice::Planned),
        name => name.parse().map(Choice::One).map_err(|_| {
            let names = Model::NAMES.join(", ");
            format!("there is no such allocator; there are {names}, planned (the offline optimum) and all")
        }),
    }
}

/// The bytes that a pool may take.
#[derive(Clone, Copy)]
struct Limit {
    bytes: Option<u64>,
    /// Whether it was asked for; recorded otherwise.
    asked: bool,
}

/// What came of one replay.
struct Row {
    allocator: &'static str,
    /// Whether it is the allocator that made the recording, with its settings.
    own: bool,
    peak_live: u64,
    lower_bound: u64,
    peak_reserved: u64,
    fragmentation: f64,
    survives: bool,
    failed: Option<Failed>,
    /// How a plan was found.
    method: Option<String>,
}

/// The request that found no room.
struct Failed {
    /// Its event, counted from 1 as `plimsoll explain` does; `None` for what was live when recording began.
    event: Option<usize>,
    bytes: u64,
    /// Who asked.
    asked_at: Option<String>,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result {
    let limits = Limits { memory_bytes: args.max_memory, ..Limits::default() };
    let recording = read(&args.files, limits, args.quiet)?;
    let traced: Vec<(&Device, &Trace)> =
        recording.devices.iter().filter_map(|device| Some((device, device.trace.as_ref()?))).collect();
    if traced.is_empty() {
        let message = format!(
            "{} holds no sequence of requests to replay; a PyTorch snapshot with \
             torch.cuda.memory._record_memory_history, a profile of jax.profiler or tf.profiler, or a Plimsoll \
             run does",
            quoted(&recording.origin.files.join(", "))
        );
        return Err(message.into());
    }
    let until = Instant::now() + args.seconds;
    let mut reports = Vec::new();
    for (number, (device, trace)) in traced.into_iter().enumerate() {
        let bytes = args.limit.or(device.limit).or(device.capacity);
        let limit = Limit { bytes, asked: args.limit.is_some() };
        let rows = rows(&args.allocator, device, trace, bytes, until);
        if args.json {
            reports.push(to_json(device, trace, limit, &rows));
        } else {
            if number > 0 {
                writeln!(out)?;
            } else if recording.origin.partial {
                print_gaps(&recording.origin, out)?;
            }
            print(&recording, device, trace, limit, &rows, out)?;
        }
    }
    if args.json {
        let origin = &recording.origin;
        let report = json!({
            "source": {
                "files": origin.files,
                "formats": origin.formats.iter().map(|format| format.name()).collect::<Vec<_>>(),
                "framework": origin.framework.name(),
                "gaps": origin.gaps,
                "partial": origin.partial,
            },
            "devices": reports,
        });
        show::json(&report, out)?;
    }
    Ok(())
}

/// What came of the replays of one device.
struct Rows {
    done: Vec<Row>,
    /// The allocators for which there was no time.
    left_out: Vec<&'static str>,
}

fn rows(choice: &Choice, device: &Device, trace: &Trace, limit: Option<u64>, until: Instant) -> Rows {
    let models: Vec<Model> = match choice {
        Choice::All => Model::NAMES.iter().filter_map(|name| name.parse().ok()).collect(),
        Choice::Planned => Vec::new(),
        Choice::One(model) => vec![model.clone()],
    };
    // The plan is no model.
    let mut replays: Vec<Option<&Model>> = models.iter().map(Some).collect();
    if matches!(choice, Choice::All | Choice::Planned) {
        replays.push(None);
    }
    let mut rows = Rows { done: Vec::new(), left_out: Vec::new() };
    for model in replays {
        // Whatever was asked for, one answer is given.
        if rows.done.is_empty() || Instant::now() < until {
            let row = model.map_or_else(|| plan(trace, limit), |model| replayed(model, device, trace, limit));
            rows.done.push(row);
        } else {
            rows.left_out.push(model.map_or("planned", Model::name));
        }
    }
    rows
}

/// Replays under a model. Where the recording was made under that one, its settings are used, and it goes on from
/// what it had when recording began.
fn replayed(model: &Model, device: &Device, trace: &Trace, limit: Option<u64>) -> Row {
    let own = device.model.as_ref().filter(|own| own.name() == model.name());
    let start = if own.is_some() { Start::Recorded } else { Start::Afresh };
    let outcome = replay(trace, own.unwrap_or(model), limit, start);
    let failed = outcome.failed_at.map(|failed| Failed {
        event: failed.event.map(|event| event + 1),
        bytes: failed.bytes,
        asked_at: failed.event.and_then(|event| asked_at(device, trace, event)),
    });
    Row {
        allocator: outcome.allocator,
        own: own.is_some(),
        peak_live: outcome.peak_live,
        lower_bound: outcome.lower_bound,
        peak_reserved: outcome.peak_reserved,
        fragmentation: outcome.fragmentation,
        survives: outcome.survived(),
        failed,
        method: None,
    }
}

fn plan(trace: &Trace, limit: Option<u64>) -> Row {
    let plan = planned(trace);
    let waste = plan.peak_bytes.saturating_sub(plan.lower_bound);
    Row {
        allocator: "planned",
        own: false,
        peak_live: plan.lower_bound,
        lower_bound: plan.lower_bound,
        peak_reserved: plan.peak_bytes,
        fragmentation: if waste == 0 { 0.0 } else { waste as f64 / plan.peak_bytes as f64 },
        survives: limit.is_none_or(|limit| plan.peak_bytes <= limit),
        failed: None,
        method: Some(plan.method),
    }
}

/// Where the request of an event was made, if that was recorded.
fn asked_at(device: &Device, trace: &Trace, event: usize) -> Option<String> {
    match trace.events.get(event)?.action {
        Action::Allocate(id) | Action::Refuse(id) => {
            let request = trace.requests.get(id.0 as usize)?;
            (request.owner != OwnerId::UNKNOWN).then(|| call_site(&device.owners, request.owner).location)
        }
        _ => None,
    }
}

/// What was recorded: the most live and, where it is known, the most reserved.
fn recorded(trace: &Trace) -> (u64, Option<u64>) {
    let curve = curve(trace, 1);
    (curve.live.into_iter().max().unwrap_or(0), curve.reserved.into_iter().max())
}

/// What is to be known before all else: that what is replayed is not all there was.
fn print_gaps(origin: &Origin, out: &mut dyn Write) -> Result {
    writeln!(
        out,
        "Incomplete: a part of the recording is missing; what follows is of the part that could be read."
    )?;
    for gap in &origin.gaps {
        writeln!(out, "  {}", quoted(gap))?;
    }
    Ok(writeln!(out)?)
}

fn print(
    recording: &Recording,
    device: &Device,
    trace: &Trace,
    limit: Limit,
    rows: &Rows,
    out: &mut dyn Write,
) -> Result {
    writeln!(out, "{}", quoted(&recording.origin.files.join(", ")))?;
    writeln!(out, "{} · {}", recording.origin.framework.name(), quoted(&device.name))?;
    writeln!(out)?;
    let requests = trace.requests.len();
    let whole = if trace.complete { "" } else { ", recorded from a moment after the program's start" };
    let mut facts = vec![("requests", format!("{requests} in {} events{whole}", trace.events.len()))];
    let (live, reserved) = recorded(trace);
    let reserved =
        reserved.map_or_else(String::new, |bytes| format!(", {} reserved at most", format_bytes(bytes)));
    facts.push(("recorded", format!("{} live at most{reserved}", format_bytes(live))));
    if let Some(row) = rows.done.first() {
        facts.push(("lower bound", format!("{}: nothing can do with less", format_bytes(row.lower_bound))));
    }
    let bound = match (limit.bytes, limit.asked) {
        (Some(bytes), true) => format_bytes(bytes),
        (Some(bytes), false) => format!("{}, as recorded", format_bytes(bytes)),
        (None, _) => "none".to_string(),
    };
    facts.push(("limit", bound));
    for (name, fact) in facts {
        show::lines(&format!("{name:<12} {fact}"), 13, out)?;
    }
    writeln!(out)?;
    let mut table = Table::new([Left, Right, Right, Right, Cut]);
    table.row(["allocator", "peak live", "peak reserved", "fragmentation", "survives"].map(Into::into));
    for row in &rows.done {
        let survives = match (&row.failed, row.survives) {
            (_, true) => "yes".to_string(),
            (Some(Failed { event: Some(event), .. }), _) => format!("no, event {event}"),
            (Some(Failed { event: None, .. }), _) => "no, at the start".to_string(),
            (None, false) => "no".to_string(),
        };
        table.row([
            format!("{}{}", row.allocator, if row.own { " *" } else { "" }).into(),
            format_bytes(row.peak_live).into(),
            format_bytes(row.peak_reserved).into(),
            format!("{:.1} %", 100.0 * row.fragmentation).into(),
            survives.into(),
        ]);
    }
    let table = table.to_text(show::width());
    let mut lines = table.lines();
    writeln!(out, "{}", lines.next().unwrap_or_default())?;
    for (row, line) in rows.done.iter().zip(lines) {
        writeln!(out, "{line}")?;
        if let Some(failed) = &row.failed {
            let at = failed.asked_at.as_ref().map_or_else(String::new, |at| format!(" at {at}"));
            show::lines(&format!("  no room for the {} asked for{at}", format_bytes(failed.bytes)), 2, out)?;
        }
        if let Some(method) = &row.method {
            show::lines(&format!("  {method}"), 2, out)?;
        }
    }
    if !rows.left_out.is_empty() {
        let names = rows.left_out.join(", ");
        writeln!(out)?;
        let line = format!("no time was left for {names}: name one by --allocator, or give more --seconds");
        show::lines(&line, 0, out)?;
    }
    if rows.done.iter().any(|row| row.own) {
        writeln!(out, "\n* the allocator that made the recording, with its settings")?;
    }
    Ok(())
}

fn to_json(device: &Device, trace: &Trace, limit: Limit, rows: &Rows) -> Value {
    let (live, reserved) = recorded(trace);
    let replays: Vec<Value> = rows
        .done
        .iter()
        .map(|row| {
            let failed = row.failed.as_ref().map(
                |failed| json!({ "event": failed.event, "bytes": failed.bytes, "asked_at": failed.asked_at }),
            );
            json!({
                "allocator": row.allocator,
                "recorded_under": row.own,
                "peak_live_bytes": row.peak_live,
                "peak_reserved_bytes": row.peak_reserved,
                "fragmentation": row.fragmentation,
                "survives": row.survives,
                "failed_at": failed,
                "method": row.method,
            })
        })
        .collect();
    json!({
        "device": device.name,
        "requests": trace.requests.len(),
        "events": trace.events.len(),
        "complete": trace.complete,
        "recorded": { "peak_live_bytes": live, "peak_reserved_bytes": reserved },
        "lower_bound_bytes": rows.done.first().map(|row| row.lower_bound),
        "limit_bytes": limit.bytes,
        "replays": replays,
        "left_out": rows.left_out,
    })
}

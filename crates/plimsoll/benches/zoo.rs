//! A network of the zoo on this machine's CPU, at a size that people train there: how long a step takes, and in what memory.
//!
//! `cargo bench -p plimsoll --bench zoo -- NAME SECONDS [THREADS]`, or `kernels NAME [--json]` for the times of its kernels. Inputs are
//! those of `benches/zoo/cpu.json`; `benches/zoo/torch_cpu.py` is the same in PyTorch. Numbers follow from their names, so that
//! both begin with the same loss.
#![allow(clippy::print_stdout)]

#[path = "../tests/common/formula.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod formula;

#[path = "zoo/networks.rs"]
mod networks;
#[path = "zoo/others.rs"]
mod others;

use formula::{integers, numbers, parameter};
use networks::loss_of;
use plimsoll::{Array, Input, Optimizer, Result, Run};
use serde_json::{Value, json};
use std::time::Instant;

/// Steps that are run and not counted.
const WARM_UP: usize = 3;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let of_kernels = words.first().is_some_and(|word| word == "kernels");
    words.drain(..usize::from(of_kernels));
    let as_json = words.iter().any(|word| word == "--json");
    words.retain(|word| word != "--json");
    let name = words.first().ok_or("usage: zoo [kernels] NAME [SECONDS [THREADS]]")?.clone();
    let seconds: f64 = words.get(1).map_or(Ok(5.0), |word| word.parse())?;
    let threads: usize = words.get(2).map_or(Ok(2), |word| word.parse())?;

    let given = inputs_of(&name)?;
    let given: Vec<(&str, &Array)> = given.iter().map(|(key, array)| (key.as_str(), array)).collect();
    let start = status("VmRSS");
    let begin = Instant::now();
    let inputs = given.iter().map(|(key, of)| Input::new(key, of.shape(), of.dtype()));
    let (called, optimizer) = (name.clone(), Optimizer::adam(1e-4));
    let mut run = Run::builder()
        .threads(threads)
        .step("train", inputs.collect::<Vec<_>>(), move |cx, x| {
            let loss = loss_of(&called, cx, x)?;
            cx.minimise(&loss, &optimizer)?;
            Ok([("loss", loss)])
        })
        .compile()?;
    let ready = begin.elapsed().as_secs_f64();
    let mut parameters = 0;
    for state in run.states().into_iter().filter(|state| state.of_model) {
        parameters += if state.trainable { state.shape.iter().product() } else { 0 };
        run.set_state(&state.name, &Array::new(&state.shape, &parameter(&state.name, &state.shape))?)?;
    }
    let mut step = || -> Result<f32> { run.step("train", &given)?["loss"].item() };
    let mut losses = vec![];
    for _ in 0..WARM_UP {
        losses.push(step()?);
    }
    if of_kernels {
        let times = run.kernel_times(&given)?;
        println!("{}", if as_json { times.to_json().to_string() } else { times.to_text(200) });
        return Ok(());
    }
    let (mut times, begin) = (vec![], Instant::now());
    while times.len() < 5 || begin.elapsed().as_secs_f64() < seconds {
        let start = Instant::now();
        step()?;
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times[((times.len() - 1) as f64 * part).round() as usize];
    let report = json!({
        "median_s": at(0.5),
        "predicted_s": run.forecast().step_seconds,
        "spread": [at(0.1), at(0.9)],
        "steps": times.len(),
        "ready_s": ready,
        "losses": losses,
        "parameters": parameters,
        "arena_bytes": run.reserved_bytes(),
        "peak_rss_over_start_bytes": status("VmHWM").saturating_sub(start),
    });
    println!("{report}");
    Ok(())
}

/// A line of this process's status, in bytes; 0 where systems have none.
fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(field));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).map_or(0, |kib: u64| kib << 10)
}

fn inputs_of(name: &str) -> std::result::Result<Vec<(String, Array)>, Box<dyn std::error::Error>> {
    let all: Value = serde_json::from_str(include_str!("../../../benches/zoo/cpu.json"))?;
    let others: Value = serde_json::from_str(include_str!("../../../benches/zoo/others.json"))?;
    let of_both = [&all[name], &others[name]].into_iter().find_map(Value::as_object);
    let inputs = of_both.ok_or_else(|| format!("the zoo has no network `{name}`"))?;
    let array = |(key, of): (&String, &Value)| {
        let shape: Vec<usize> = serde_json::from_value(of["shape"].clone())?;
        let (called, count) = (format!("{name}/{key}"), shape.iter().product());
        let array = match of["below"].as_u64() {
            Some(below) => Array::new(&shape, &integers(&called, below as usize, count))?,
            None => Array::new(&shape, &numbers(&called, count))?,
        };
        Ok((key.clone(), array))
    };
    inputs.iter().map(array).collect()
}

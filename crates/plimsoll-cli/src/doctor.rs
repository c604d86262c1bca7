//! `plimsoll doctor`: what is suspicious about this machine, and what it has of memory.

use crate::{Result, show};
use plimsoll::DeviceInfo;
use plimsoll_machine::gpu::{self, Gpu};
use plimsoll_machine::{Book, Finding, Settings, System, find};
use plimsoll_memory::format_bytes;
use serde_json::{Value, json};
use std::env;
use std::io::Write;
use std::path::Path;

/// Say what is suspicious about this machine's memory: who holds it, what limits it, which settings are wrong
///
/// Looks at the host's memory and its limits up to containers and schedulers, at shared memory, at GPUs and the processes
/// on them, and at variables that bear on memory. Nothing is changed, and nothing is sent anywhere.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result {
    let root = Path::new("/");
    let system = System::read(root);
    let (gpus, no_gpus) = match gpu::ask(root).or_else(ask_driver) {
        Ok(gpus) => (gpus, None),
        Err(reason) => (vec![], Some(reason)),
    };
    // A variable that is no text is none that anybody reads here.
    let environment = env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let settings = Settings::read(environment);
    let findings = find(&system, &gpus, &settings);
    if args.json {
        let gpus: Vec<Value> = gpus.iter().map(with_book).collect();
        let all = json!({
            "findings": findings, "system": system, "gpus": gpus, "no_gpus": no_gpus, "settings": settings,
        });
        return show::json(&all, out);
    }
    show_findings(&findings, out)?;
    show_system(&system, out)?;
    match no_gpus {
        Some(reason) => writeln!(out, "\nno GPU that a driver tells of: {reason}")?,
        None if gpus.is_empty() => writeln!(out, "\nno GPU: the driver lists none")?,
        None => gpus.iter().try_for_each(|gpu| show_gpu(gpu, out))?,
    }
    show_settings(&settings, out)
}

/// GPUs as the CUDA driver tells of them, without who holds their memory, where NVIDIA's tool is not there to ask.
fn ask_driver(reason: String) -> std::result::Result<Vec<Gpu>, String> {
    let kinds = plimsoll::here().into_iter().filter(|(kind, _)| *kind == "cuda");
    let found: Vec<DeviceInfo> = kinds.filter_map(|(_, found)| found.ok()).flatten().collect();
    if found.is_empty() {
        return Err(reason);
    }
    let gpu = |(index, device): (usize, &DeviceInfo)| {
        let detail = |name: &str| {
            device.details.iter().find(|(what, _)| *what == name).map(|(_, value)| value.clone())
        };
        let total_bytes = device.total_bytes.unwrap_or(0);
        let free_bytes = detail("free_bytes").and_then(|bytes| bytes.parse().ok());
        Gpu {
            index: u32::try_from(index).unwrap_or(u32::MAX),
            name: device.about.clone(),
            driver: detail("driver"),
            total_bytes,
            free_bytes,
            used_bytes: free_bytes.map(|free: u64| total_bytes.saturating_sub(free)),
            ..Gpu::default()
        }
    };
    Ok(found.iter().enumerate().map(gpu).collect())
}

fn with_book(gpu: &Gpu) -> Value {
    let mut value = json!(gpu);
    value["book"] = json!(gpu.book());
    value
}

fn show_findings(findings: &[Finding], out: &mut dyn Write) -> Result {
    if findings.is_empty() {
        return Ok(writeln!(out, "Nothing suspicious was found.")?);
    }
    writeln!(out, "Suspicious:")?;
    for finding in findings {
        writeln!(out, "  · {}\n      {}", finding.what, finding.do_this)?;
    }
    Ok(())
}

fn show_system(system: &System, out: &mut dyn Write) -> Result {
    let bytes = |bytes: Option<u64>| bytes.map_or("unlimited".into(), format_bytes);
    writeln!(out, "\nmachine")?;
    let mut line = |name: &str, value: String| writeln!(out, "  {name:<36} {value}");
    if let Some(kernel) = &system.kernel {
        line("kernel", kernel.clone())?;
    }
    if let Some(count) = system.processors {
        line("processors", count.to_string())?;
    }
    line(
        "memory, and what is available",
        format!("{}, {}", format_bytes(system.memory.total), format_bytes(system.memory.available)),
    )?;
    line(
        "swap, and what is free",
        format!("{}, {}", format_bytes(system.memory.swap_total), format_bytes(system.memory.swap_free)),
    )?;
    line("addresses a process (ulimit -v)", bytes(system.limits.address_space_bytes))?;
    line("locked memory a process (ulimit -l)", bytes(system.limits.locked_bytes))?;
    line(
        "open files a process (ulimit -n)",
        system.limits.open_files.map_or("unlimited".into(), |files| files.to_string()),
    )?;
    let policy = match system.overcommit.policy {
        Some(0) => "as seems reasonable (0)",
        Some(1) => "always (1)",
        Some(2) => "never above the commit limit (2)",
        _ => "unknown",
    };
    line("more promised than there is", policy.into())?;
    if let (Some(2), Some(limit)) = (system.overcommit.policy, system.overcommit.limit_bytes) {
        line("commit limit", format_bytes(limit))?;
    }
    for group in system.cgroups.iter().filter(|group| group.limit_bytes.is_some()) {
        let used = group.used_bytes.map_or("unknown".into(), format_bytes);
        line(
            "control group, its limit and use",
            format!("{}: {}, {used}", group.path, bytes(group.limit_bytes)),
        )?;
    }
    if let Some(driver) = &system.nvidia_driver {
        line("NVIDIA's driver", driver.clone())?;
    }
    system.books.iter().try_for_each(|book| show_book(book, out))
}

fn show_gpu(gpu: &Gpu, out: &mut dyn Write) -> Result {
    show_book(&gpu.book(), out)?;
    let switch = |name: &str, is_on: Option<bool>| {
        is_on.map(|is_on| format!("{name} {}", if is_on { "on" } else { "off" }))
    };
    let facts: Vec<String> = [
        gpu.driver.as_ref().map(|driver| format!("driver {driver}")),
        gpu.compute_mode.as_ref().map(|mode| format!("compute mode {mode}")),
        switch("persistence", gpu.persistence),
        switch("divided into instances", gpu.divided),
    ]
    .into_iter()
    .flatten()
    .collect();
    Ok(writeln!(out, "  {}", facts.join(", "))?)
}

fn show_book(book: &Book, out: &mut dyn Write) -> Result {
    writeln!(out, "\nbooks of {}", book.of)?;
    let width = book.lines.iter().map(|line| line.name.chars().count()).max().unwrap_or(0);
    let share = |bytes: u64| match book.total_bytes {
        0 => 0.0,
        total => 100.0 * bytes as f64 / total as f64,
    };
    for line in &book.lines {
        let bytes = format_bytes(line.bytes);
        writeln!(out, "  {:<width$}  {bytes:>9}  {:>5.1} %", line.name, share(line.bytes))?;
    }
    Ok(writeln!(out, "  {:<width$}  {:>9}  100.0 %", "total", format_bytes(book.total_bytes))?)
}

fn show_settings(settings: &Settings, out: &mut dyn Write) -> Result {
    if settings.all.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nvariables that bear on memory")?;
    for setting in &settings.all {
        match &setting.value {
            Some(value) => writeln!(out, "  {}={value}", setting.name)?,
            None => writeln!(out, "  {}, which nothing reads", setting.name)?,
        }
    }
    Ok(())
}

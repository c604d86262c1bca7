//! `plimsoll devices`: the machines that can be planned for, and what this one has and can do.

use crate::Result;
use crate::show;
use crate::target::count;
use plimsoll::{DeviceInfo, DeviceName, WholeFile, devices};
use plimsoll_memory::Column::{Cut, Left, Right};
use plimsoll_memory::{Table, format_bytes, quoted};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

/// List the devices that steps can be planned for, or measure this one
///
/// Files of your own in $PLIMSOLL_DEVICES, or in plimsoll/devices of the folder of your settings, are listed with
/// those built in and take their place. $PLIMSOLL_VISIBLE_DEVICES names the GPUs that may be used, as in cuda:0,cuda:2 or 0,2;
/// where it is empty, none may be.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Measure this machine by training some sixty small networks, which takes half a minute, or one of its GPUs, which takes
    /// minutes, and print its profile: rates, and how near to them each kind of kernels comes
    #[arg(long)]
    calibrate: bool,
    /// The device to measure: cpu, or a CUDA device of this machine, such as cuda:0
    #[arg(long, value_name = "DEVICE", requires = "calibrate", default_value = "cpu")]
    device: DeviceName,
    /// Threads to measure on; all there are if not given
    #[arg(long, value_name = "N", value_parser = count, requires = "calibrate")]
    threads: Option<usize>,
    /// Keep what was measured as the profile of that device
    #[arg(long, requires = "calibrate")]
    save: bool,
    /// List only the devices of this machine that can be run on beside its processor
    #[arg(long, conflicts_with = "calibrate", alias = "cuda")]
    here: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "calibrate")]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result {
    if args.calibrate {
        return calibrate(args, out);
    }
    if args.here {
        return if args.json { show::json(&here_json(), out) } else { show_here(out) };
    }
    let profiles = devices::all()?;
    if args.json {
        return show::json(&json!(profiles), out);
    }
    let mut table = Table::new([Left, Cut, Right, Right, Right, Right]);
    table.row(["device", "", "memory", "bf16", "f32", "bandwidth"].map(Into::into));
    for profile in &profiles {
        table.row([
            profile.name.as_str().into(),
            profile.about.as_str().into(),
            format_bytes(profile.memory_bytes).into(),
            scaled(profile.rates.matrix_half, "FLOP/s").into(),
            scaled(profile.rates.matrix, "FLOP/s").into(),
            scaled(profile.bandwidth, "B/s").into(),
        ]);
    }
    writeln!(out, "{}", table.to_text(show::width()))?;
    show_here(out)?;
    Ok(writeln!(out, "\nto measure this machine: plimsoll devices --calibrate --save")?)
}

/// The devices of this machine beside its processor, or in one line a kind why there are none.
fn show_here(out: &mut dyn Write) -> Result {
    for (kind, found) in plimsoll::here().into_iter().filter(|(kind, _)| *kind != "cpu") {
        let kind = kind.to_uppercase();
        match found {
            Ok(found) if !found.is_empty() => {
                writeln!(out, "{kind} devices on this machine:")?;
                for DeviceInfo { name, about, total_bytes, details } in found {
                    let total =
                        total_bytes.map_or(String::new(), |bytes| format!(", {}", format_bytes(bytes)));
                    let details: Vec<String> = details
                        .iter()
                        .map(|(what, value)| format!("{} {value}", what.replace('_', " ")))
                        .collect();
                    show::lines(&format!("{name}  {about}{total}, {}", details.join(", ")), 8, out)?;
                }
            }
            Ok(_) => writeln!(out, "no {kind} device: the driver lists none")?,
            Err(error) => show::lines(&format!("no {kind} device: {error}"), 4, out)?,
        }
    }
    for (variable, said) in plimsoll::hidden_by() {
        show::lines(&format!("{variable} is \"{}\": other GPUs are hidden", quoted(&said)), 4, out)?;
    }
    Ok(())
}

fn here_json() -> Value {
    let describe = |device: &DeviceInfo| {
        let mut of = json!({
            "name": device.name.to_string(),
            "about": device.about,
            "total_bytes": device.total_bytes,
        });
        for (what, value) in &device.details {
            // What is a number or a truth is one in JSON too.
            of[*what] = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
        }
        of
    };
    let kinds = plimsoll::here().into_iter().filter(|(kind, _)| *kind != "cpu").map(|(kind, found)| {
        let (found, missing) = match found {
            Ok(found) => (found, None),
            Err(error) => (vec![], Some(error.to_string())),
        };
        let found: Vec<Value> = found.iter().map(describe).collect();
        let hidden_by: BTreeMap<_, _> = plimsoll::hidden_by().into_iter().collect();
        json!({ "kind": kind, "devices": found, "missing": missing, "hidden_by": hidden_by })
    });
    json!(kinds.collect::<Vec<_>>())
}

fn calibrate(args: &Args, out: &mut dyn Write) -> Result {
    // A folder that cannot be had is better known before measuring than after.
    let folder = if args.save { Some(make_folder()?) } else { None };
    let profile = match args.device == DeviceName::default() {
        true => devices::calibrate(args.threads)?,
        false => devices::calibrate_device(args.device)?,
    };
    let text = devices::to_toml(&profile);
    out.write_all(text.as_bytes())?;
    let Some(folder) = folder else { return Ok(()) };
    let path = folder.join(format!("{}.toml", profile.name));
    WholeFile::save(&path, text.as_bytes())?;
    Ok(writeln!(out, "\n# written to {}", path.display())?)
}

fn make_folder() -> Result<PathBuf> {
    let folder = devices::folder()
        .ok_or("there is no folder to save a profile in: set PLIMSOLL_DEVICES to where it may be")?;
    fs::create_dir_all(&folder)
        .map_err(|error| format!("cannot make the folder {}: {error}", folder.display()))?;
    Ok(folder)
}

/// A number of so many a second, with three digits.
fn scaled(value: f64, unit: &str) -> String {
    let (factor, prefix) = match value {
        _ if value >= 1e15 => (1e15, "P"),
        _ if value >= 1e12 => (1e12, "T"),
        _ if value >= 1e9 => (1e9, "G"),
        _ => (1e6, "M"),
    };
    let value = value / factor;
    let digits = if value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {prefix}{unit}")
}

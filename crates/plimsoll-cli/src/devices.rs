//! `plimsoll devices`: the machines that can be planned for, and what this one can do.

use crate::Result;
use crate::files::write_whole;
use crate::show;
use crate::target::count;
use plimsoll::CpuDevice;
use plimsoll::devices::{self, Profile};
use plimsoll_memory::format_bytes;
use serde_json::json;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

/// List the devices that steps can be planned for, or measure this one
///
/// Files of your own in $PLIMSOLL_DEVICES, or in plimsoll/devices of the folder of your settings, are listed with
/// those built in and take their place.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Measure this machine, which takes a few seconds, and print its profile
    #[arg(long)]
    calibrate: bool,
    /// Threads to measure on; all there are if not given
    #[arg(long, value_name = "N", value_parser = count, requires = "calibrate")]
    threads: Option<usize>,
    /// Keep what was measured as the profile `cpu`
    #[arg(long, requires = "calibrate")]
    save: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "calibrate")]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result {
    if args.calibrate {
        return calibrate(args, out);
    }
    let profiles = devices::all()?;
    if args.json {
        return show::json(&json!(profiles), out);
    }
    let width = |text: fn(&Profile) -> &str| profiles.iter().map(|p| text(p).chars().count()).max();
    let name = width(|p| &p.name).unwrap_or(0).max(6);
    let about = width(|p| &p.about).unwrap_or(0);
    writeln!(
        out,
        "{:<name$}  {:<about$}  {:>8}  {:>13}  {:>13}  {:>9}",
        "device", "", "memory", "bf16", "f32", "bandwidth"
    )?;
    for profile in &profiles {
        writeln!(
            out,
            "{:<name$}  {:<about$}  {:>8}  {:>13}  {:>13}  {:>9}",
            profile.name,
            profile.about,
            format_bytes(profile.memory_bytes),
            scaled(profile.rates.matrix_half, "FLOP/s"),
            scaled(profile.rates.matrix, "FLOP/s"),
            scaled(profile.bandwidth, "B/s"),
        )?;
    }
    Ok(writeln!(out, "\nto measure this machine: plimsoll devices --calibrate --save")?)
}

fn calibrate(args: &Args, out: &mut dyn Write) -> Result {
    // A folder that cannot be had is better known before measuring than after.
    let folder = if args.save { Some(make_folder()?) } else { None };
    let profile = devices::calibrate(&CpuDevice::new(args.threads)?)?;
    let text = devices::to_toml(&profile);
    out.write_all(text.as_bytes())?;
    let Some(folder) = folder else { return Ok(()) };
    let path = folder.join(format!("{}.toml", profile.name));
    write_whole(&path, text.as_bytes())
        .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
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

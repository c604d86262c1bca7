//! `plimsoll devices`: the machines that can be planned for, and what this one has and can do.

use crate::Result;
use crate::files::write_whole;
use crate::show;
use crate::target::count;
use plimsoll::CpuDevice;
use plimsoll::devices::{self, Profile};
use plimsoll_cuda::DeviceInfo;
use plimsoll_memory::format_bytes;
use serde_json::{Value, json};
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
    /// List only the CUDA devices of this machine
    #[arg(long, conflicts_with = "calibrate")]
    cuda: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "calibrate")]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result {
    if args.calibrate {
        return calibrate(args, out);
    }
    if args.cuda {
        return if args.json { show::json(&cuda_json(), out) } else { cuda(out) };
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
    writeln!(out)?;
    cuda(out)?;
    Ok(writeln!(out, "\nto measure this machine: plimsoll devices --calibrate --save")?)
}

/// The CUDA devices of this machine, or in one line why there are none.
fn cuda(out: &mut dyn Write) -> Result {
    let found = plimsoll_cuda::driver_version().and_then(|version| Ok((version, plimsoll_cuda::devices()?)));
    let ((major, minor), found) = match found {
        Ok((version, found)) if !found.is_empty() => (version, found),
        Ok(_) => return Ok(writeln!(out, "no CUDA device: the driver lists none")?),
        Err(error) => return Ok(writeln!(out, "no CUDA device: {error}")?),
    };
    writeln!(out, "CUDA devices on this machine, under a driver for CUDA {major}.{minor}:")?;
    for DeviceInfo { id, name, capability, total_bytes, free_bytes, virtual_memory, .. } in &found {
        let total = format_bytes(*total_bytes);
        let free = match free_bytes {
            Ok(free) => format!("{} of {total} free", format_bytes(*free)),
            Err(error) => format!("{total}; {error}"),
        };
        let pages = if *virtual_memory { "" } else { ", cannot map memory behind addresses" };
        let (major, minor) = capability;
        writeln!(out, "{id}  {name}, compute capability {major}.{minor}, {free}{pages}")?;
    }
    Ok(())
}

fn cuda_json() -> Value {
    let describe = |device: &DeviceInfo| {
        json!({
            "name": device.id.to_string(),
            "about": device.name,
            "capability": format!("{}.{}", device.capability.0, device.capability.1),
            "total_bytes": device.total_bytes,
            "free_bytes": device.free_bytes.as_ref().ok(),
            "error": device.free_bytes.as_ref().err().map(ToString::to_string),
            "virtual_memory": device.virtual_memory,
            "granularity_bytes": device.granularity_bytes,
        })
    };
    let version = plimsoll_cuda::driver_version().map(|(major, minor)| format!("{major}.{minor}"));
    let (found, missing) = match plimsoll_cuda::devices() {
        Ok(found) => (found, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    json!({
        "driver_cuda": version.ok(),
        "devices": found.iter().map(describe).collect::<Vec<_>>(),
        "missing": missing,
    })
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

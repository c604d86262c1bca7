//! Devices as data: what a machine can do, in a file that can be read, copied and edited.
//!
//! A planner needs to know what a step would take on a machine that is not there. So a device is described by a
//! [`Profile`], and profiles are TOML files: some are built in, others a person writes or has measured by
//! [`calibrate`] and keeps in a [`folder`] of their own. A person's own file wins over the one built in under
//! its name.
//!
//! ```toml
//! about = "NVIDIA T4, 16 GB"
//! memory_bytes = 15_634_268_160
//! alignment = 256                  # what every address is a multiple of
//! workspace_bytes = 33_554_432     # the scratch of a matrix product or a convolution
//! context_bytes = 556_597_248      # what the driver takes for a process, and its libraries; may be left out
//! launch_seconds = 3e-6            # a kernel that does nothing
//! bandwidth = 2.8e11               # bytes a second
//! step_seconds = 1.3e-5            # a step of a recurrent layer; may be left out
//!
//! [rates]                          # floating-point operations a second
//! elementwise = 3.6e12
//! matrix = 6.1e12                  # four bytes an element
//! matrix_half = 4.5e13             # two bytes an element
//! convolution = 5.5e12
//! convolution_half = 2.6e13
//! attention = 1.6e13
//!
//! [copies]                         # between device and host
//! bandwidth = 1.2e10               # bytes a second, each way
//! latency_seconds = 1e-5
//! overlap = true                   # whether kernels run while copies do
//! ```
//!
//! A `name` may be given as well; it is the file's if left out. A table `[efficiency]` says how near to these figures kernels
//! of each kind come, as `plimsoll devices --calibrate` measures it, with `--device cuda:0` for a GPU; its keys are families
//! (`dot`), with a class of shapes (`dot, few rows`) and `half` for numbers of two bytes. Without one a GPU's are those of
//! the H200, which most are like. So is `context_bytes`.

mod calibrate;
mod networks;
mod of_device;

pub use calibrate::calibrate;
pub use of_device::calibrate_device;
pub use plimsoll_plan::{Copies, EfficiencyTable, Measured, Profile, Rates};

use crate::device::target::CPU;
use crate::spec::read::{Document, FLAG, Kind, NOT_NEGATIVE, POSITIVE, TEXT, Table, WHOLE};
use crate::spec::suggest::nearest;
use crate::{DeviceName, Error, ErrorKind, Result};
use plimsoll_device::Device;
use plimsoll_memory::read_text;
use std::env;
use std::fs;
use std::io;
use std::path::{MAIN_SEPARATOR, Path, PathBuf};

/// More than any profile has.
const MOST_BYTES: u64 = 1 << 20;

/// The device whose efficiency is that of GPUs of which none was measured.
const MEASURED_GPU: &str = "h200";

macro_rules! devices {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../devices/", $name, ".toml")))),*]
    };
}

/// Those that are built in: the machine one has, then the larger ones first.
static BUILT_IN: [(&str, &str); 9] =
    devices! { "cpu" "h200" "h100-80g" "a100-80g" "a100-40g" "l40s" "rtx4090" "rtx3090" "t4" };

const BYTES: Kind<u64> = Kind {
    expected: "a whole number of bytes, at least 1",
    read: |v| (WHOLE.read)(v).filter(|&bytes| bytes > 0),
};
const POWER_OF_TWO: Kind<u64> = Kind {
    expected: "a power of two, such as 256",
    read: |v| (WHOLE.read)(v).filter(|bytes| bytes.is_power_of_two()),
};

/// The profile of a device: of the file at a path, if it is one (it ends in `.toml` or names a folder), of the
/// person's own file of this name, or the one that is built in.
///
/// ```
/// use plimsoll::devices;
/// let profile = devices::find("a100-40g")?;
/// assert!(profile.memory_bytes > 39 << 30);
/// let error = devices::find("a100").unwrap_err();
/// assert!(error.to_string().contains("a100-40g"), "{error}");
/// # Ok::<(), plimsoll::Error>(())
/// ```
///
/// # Errors
/// If there is none, or its file cannot be read or understood.
pub fn find(name_or_path: &str) -> Result<Profile> {
    if name_or_path.contains(['/', MAIN_SEPARATOR]) || name_or_path.ends_with(".toml") {
        let path = Path::new(name_or_path);
        return parse(&read_text(path, MOST_BYTES).map_err(|error| unreadable(path, error))?, path);
    }
    find_in(folder().as_deref(), name_or_path)
}

/// The profile of a device of this machine: the one that is known under the name of its model, or else that of the device
/// whose memory is most like its own, with the bytes that it has. A device whose driver counts no bytes is looked up by
/// its own name.
pub(crate) fn of_device(device: &dyn Device, name: &DeviceName) -> Result<Profile> {
    let Some(books) = device.books()? else { return find(&device.name()) };
    let model = device.model();
    let known = all()?.into_iter().filter(|profile| profile.copies.overlap);
    let unlike = |profile: &Profile| {
        let named = profile.about.split(',').next() == Some(model.as_str());
        (!named, profile.memory_bytes.abs_diff(books.total_bytes))
    };
    let Some(profile) = known.min_by_key(unlike) else {
        return Err(Error::new(ErrorKind::Device, format!("no profile is like {model} ({name})")));
    };
    Ok(Profile { memory_bytes: books.total_bytes, ..profile })
}

/// Whether times by a profile were measured on its device, and not derived from a datasheet.
pub(crate) fn is_measured(profile: &Profile) -> bool {
    !profile.efficiency.is_empty() || !profile.copies.overlap || profile.name == CPU
}

/// A profile of a GPU with what was measured of another where it has nothing of its own: how near to its figures kernels
/// come, and what the driver takes.
pub(crate) fn completed(profile: Profile) -> Result<Profile> {
    if is_measured(&profile) {
        return Ok(profile);
    }
    let measured = find_in(None, MEASURED_GPU)?;
    let context_bytes =
        if profile.context_bytes > 0 { profile.context_bytes } else { measured.context_bytes };
    let waits = profile.step_seconds > 0.0;
    let step_seconds = if waits { profile.step_seconds } else { measured.step_seconds };
    Ok(Profile { step_seconds, context_bytes, efficiency: measured.efficiency, ..profile })
}

/// All profiles, a person's own in the place of those built in under their names, and after them.
///
/// # Errors
/// If one of the files cannot be read or understood.
pub fn all() -> Result<Vec<Profile>> {
    all_in(folder().as_deref())
}

/// Where a person's own profiles are: `$PLIMSOLL_DEVICES`, or `plimsoll/devices` in the folder of their settings
/// (`$XDG_CONFIG_HOME`, or `~/.config`). `None` if the environment names none of these.
pub fn folder() -> Option<PathBuf> {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let settings = || variable("XDG_CONFIG_HOME").or_else(|| Some(variable("HOME")?.join(".config")));
    variable("PLIMSOLL_DEVICES").or_else(|| Some(settings()?.join("plimsoll/devices")))
}

/// The profile that a text describes. `path` is where it stands, or would: errors name it, and its name is the
/// device's unless the text has one.
///
/// # Errors
/// If the text cannot be understood, or one of its numbers is none that a device could have.
pub fn parse(text: &str, path: &Path) -> Result<Profile> {
    let file = path.display().to_string();
    Document { what: "the profile", file: &file, text }.read(|table| read(&table, path))
}

/// The text that [`parse`] reads a profile from.
pub fn to_toml(profile: &Profile) -> String {
    let Profile { rates, copies, .. } = profile;
    // JSON's escapes are among TOML's, but it leaves this one character as it is.
    let quoted = |text: &str| serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f");
    format!(
        "name = {}\nabout = {}\nmemory_bytes = {}\nalignment = {}\nworkspace_bytes = {}\ncontext_bytes = {}\n\
         launch_seconds = {:e}\nbandwidth = {:e}\nstep_seconds = {:e}\n\n\
         [rates]\nelementwise = {:e}\nmatrix = {:e}\nmatrix_half = {:e}\nconvolution = {:e}\n\
         convolution_half = {:e}\nattention = {:e}\n\n\
         [copies]\nbandwidth = {:e}\nlatency_seconds = {:e}\noverlap = {}\n{}",
        quoted(&profile.name),
        quoted(&profile.about),
        profile.memory_bytes,
        profile.alignment,
        profile.workspace_bytes,
        profile.context_bytes,
        profile.launch_seconds,
        profile.bandwidth,
        profile.step_seconds,
        rates.elementwise,
        rates.matrix,
        rates.matrix_half,
        rates.convolution,
        rates.convolution_half,
        rates.attention,
        copies.bandwidth,
        copies.latency_seconds,
        copies.overlap,
        efficiency_toml(&profile.efficiency),
    )
}

fn efficiency_toml(table: &EfficiencyTable) -> String {
    if table.is_empty() {
        return String::new();
    }
    let mut text = "\n[efficiency]\n".to_string();
    for (family, all) in table.families() {
        let triple = |m: &Measured| format!("[{:e}, {:e}, {:e}]", m.arithmetic, m.traffic, m.efficiency);
        let all: Vec<String> = all.iter().map(triple).collect();
        text += &format!("\"{family}\" = [{}]\n", all.join(", "));
    }
    text
}

fn find_in(folder: Option<&Path>, name: &str) -> Result<Profile> {
    if let Some(folder) = folder {
        let path = folder.join(format!("{name}.toml"));
        match read_text(&path, MOST_BYTES) {
            Ok(text) => return parse_own(&text, &path, name),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(unreadable(&path, error)),
        }
    }
    match BUILT_IN.iter().find(|(known, _)| *known == name) {
        Some((_, text)) => parse(text, Path::new(&format!("{name}.toml"))),
        None => Err(unknown(&names(folder)?, name)),
    }
}

fn all_in(folder: Option<&Path>) -> Result<Vec<Profile>> {
    names(folder)?.iter().map(|name| find_in(folder, name)).collect()
}

/// What can be asked for: what is built in, and then what only the folder has, by the alphabet.
fn names(folder: Option<&Path>) -> Result<Vec<String>> {
    let mut names: Vec<String> = BUILT_IN.iter().map(|(name, _)| name.to_string()).collect();
    let Some(folder) = folder else { return Ok(names) };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(names),
        Err(error) => return Err(unreadable(folder, error)),
    };
    for entry in entries {
        let file = entry.map_err(|error| unreadable(folder, error))?.file_name();
        if let Some(name) = file.to_string_lossy().strip_suffix(".toml")
            && !names.iter().any(|known| known == name)
        {
            names.push(name.to_string());
        }
    }
    names[BUILT_IN.len()..].sort();
    Ok(names)
}

/// A profile in a person's folder, which is asked for by the name of its file.
fn parse_own(text: &str, path: &Path, name: &str) -> Result<Profile> {
    let profile = parse(text, path)?;
    if profile.name == name {
        return Ok(profile);
    }
    let message = format!(
        "{}: its `name` is \"{}\", but it would be asked for as `{name}`; rename the file or leave the name out",
        path.display(),
        profile.name
    );
    Err(Error::new(ErrorKind::Spec, message))
}

fn read(table: &Table<'_>, path: &Path) -> Result<Profile> {
    table.only(&[
        "name",
        "about",
        "memory_bytes",
        "alignment",
        "workspace_bytes",
        "context_bytes",
        "launch_seconds",
        "bandwidth",
        "rates",
        "copies",
        "step_seconds",
        "efficiency",
    ])?;
    let stem = || path.file_stem().map_or("device".into(), |stem| stem.to_string_lossy().into_owned());
    Ok(Profile {
        name: table.find("name", TEXT)?.unwrap_or_else(stem),
        about: table.find("about", TEXT)?.unwrap_or_default(),
        memory_bytes: table.need("memory_bytes", BYTES)?,
        alignment: table.need("alignment", POWER_OF_TWO)?,
        workspace_bytes: table.need("workspace_bytes", WHOLE)?,
        context_bytes: table.find_or("context_bytes", WHOLE, 0)?,
        launch_seconds: table.need("launch_seconds", NOT_NEGATIVE)?,
        bandwidth: table.need("bandwidth", POSITIVE)?,
        rates: read_rates(&table.need_section("rates", "[rates]")?)?,
        copies: read_copies(&table.need_section("copies", "[copies]")?)?,
        step_seconds: table.find_or("step_seconds", NOT_NEGATIVE, 0.0)?,
        efficiency: read_efficiency(table)?,
    })
}

fn read_rates(table: &Table<'_>) -> Result<Rates> {
    table.only(&["elementwise", "matrix", "matrix_half", "convolution", "convolution_half", "attention"])?;
    Ok(Rates {
        elementwise: table.need("elementwise", POSITIVE)?,
        matrix: table.need("matrix", POSITIVE)?,
        matrix_half: table.need("matrix_half", POSITIVE)?,
        convolution: table.need("convolution", POSITIVE)?,
        convolution_half: table.need("convolution_half", POSITIVE)?,
        attention: table.need("attention", POSITIVE)?,
    })
}

fn read_copies(table: &Table<'_>) -> Result<Copies> {
    table.only(&["bandwidth", "latency_seconds", "overlap"])?;
    Ok(Copies {
        bandwidth: table.need("bandwidth", POSITIVE)?,
        latency_seconds: table.need("latency_seconds", NOT_NEGATIVE)?,
        overlap: table.need("overlap", FLAG)?,
    })
}

/// Measurements of one family: triples of seconds of arithmetic, seconds of traffic, and efficiency.
const MEASURED: Kind<Vec<Measured>> = Kind {
    expected: "a list of triples of numbers: seconds of arithmetic, seconds of traffic, and the efficiency, above 0",
    read: |v| {
        let triple = |v: &toml::Spanned<toml::de::DeValue<'_>>| {
            let numbers: Vec<f64> = v
                .get_ref()
                .as_array()?
                .iter()
                .map(|n| (NOT_NEGATIVE.read)(n.get_ref()))
                .collect::<Option<_>>()?;
            let [arithmetic, traffic, efficiency] = numbers[..] else { return None };
            let measured = Measured { arithmetic, traffic, efficiency };
            (efficiency > 0.0).then_some(measured)
        };
        v.as_array()?.iter().map(triple).collect()
    },
};

fn read_efficiency(table: &Table<'_>) -> Result<EfficiencyTable> {
    let mut all = EfficiencyTable::default();
    let Some(value) = table.value("efficiency") else { return Ok(all) };
    let table = value.table("[efficiency]", "a table of what was measured")?;
    for family in table.keys() {
        for measured in table.need(family, MEASURED)? {
            all.add(family.to_string(), measured);
        }
    }
    Ok(all)
}

fn unreadable(path: &Path, error: io::Error) -> Error {
    Error::new(ErrorKind::File, format!("cannot read {}: {error}", path.display())).caused_by(error)
}

fn unknown(known: &[String], name: &str) -> Error {
    let meant = nearest(known.iter().map(String::as_str), name);
    let meant = meant.map(|meant| format!("did you mean `{meant}`? ")).unwrap_or_default();
    let message = format!("there is no device `{name}`; {meant}there are: {}", known.join(", "));
    Error::new(ErrorKind::Name, message)
}

#[cfg(test)]
mod tests;

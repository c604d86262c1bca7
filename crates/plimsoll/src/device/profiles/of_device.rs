//! Measuring how near a device's kernels come to its rates.
//!
//! What a datasheet says tells little of a convolution by channel or of an LSTM. So networks of many kinds are trained for
//! a step on the device, each of their kernels is timed, and what that says of its kind and size is kept.

use super::{EfficiencyTable, Measured, Profile, of_device};
use crate::{DeviceName, Result, Spec, device};
use plimsoll_cpu::CpuDevice;
use plimsoll_ir::Kernel;
use std::path::Path;

macro_rules! zoo {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../../zoo/", $name, ".toml")))),*]
    };
}

/// Networks whose kernels are measured. Others, by which forecasts are judged, are not among them.
static ZOO: [(&str, &str); 19] = zoo! {
    "fit-autoencoder" "fit-convnext-femto" "fit-gpt-heads-128" "fit-gpt-heads-32" "fit-gru" "fit-lstm" "fit-mlp-deep"
    "fit-resnet18" "fit-separable" "fit-vit-s16" "fit-vgg-f32" "fit-dilated" "fit-gpt-heads-192" "fit-mlp-f32"
    "fit-inverted" "fit-resnet-tiny" "fit-gpt-wide" "fit-conv-f32-large" "fit-upsampled"
};

/// Shipped workloads that are measured as well.
const SHIPPED: [&str; 4] = ["gpt2-124m", "resnet50", "mlp-small", "cnn-small"];

/// Measures a device of this machine, which takes a few minutes: the profile that is known of it, or of the one most like
/// it, with a table of how near to that its kernels come. Nothing else should use it meanwhile.
///
/// # Errors
/// If the device is not here, or has no memory for the networks.
pub fn calibrate_device(name: DeviceName) -> Result<Profile> {
    let host = CpuDevice::new(None)?;
    let opened = device::open(&name, &host, crate::Precision::F32)?;
    let known = of_device(&*opened, &name)?;
    drop(opened);
    let mut timed = vec![];
    let zoo = ZOO.iter().map(|(name, text)| Spec::parse(text, Path::new(&format!("{name}.toml"))));
    for spec in zoo.chain(SHIPPED.iter().map(|name| Spec::find(name))) {
        let spec = spec?.device(name);
        let (data, _) = spec.datasets()?;
        timed.push(spec.trainer().planned_kernel_times(&data)?);
    }
    // Of steps that wait for each other, the shortest do next to nothing else.
    let waits = timed.iter().flatten().filter(|(kernel, _)| kernel.family.steps > 1);
    let shortest = waits.map(|(kernel, seconds)| seconds / f64::from(kernel.family.steps)).reduce(f64::min);
    let known = Profile { step_seconds: 0.9 * shortest.unwrap_or(0.0), ..known };
    let mut table = EfficiencyTable::default();
    timed.iter().for_each(|kernels| add(&mut table, &known, kernels));
    Ok(Profile { efficiency: table.condensed(), ..known })
}

/// Kernels that take less were launched with one before them.
const TOGETHER: f64 = 3e-7;

/// Adds what kernels that ran one after another say about their kinds.
fn add(table: &mut EfficiencyTable, profile: &Profile, kernels: &[(Kernel, f64)]) {
    let mut rest = kernels;
    while let [(first, seconds), later @ ..] = rest {
        // Kernels that were launched together have their time at the first of them.
        let with_first =
            |(kernel, seconds): &&(Kernel, f64)| kernel.family == first.family && *seconds < TOGETHER;
        let count = 1 + later.iter().take_while(with_first).count();
        let measured = rest[..count].iter().filter_map(|(kernel, _)| profile.measured(kernel, *seconds));
        let together: Vec<Measured> = measured.collect();
        let ideal = |m: &Measured| m.arithmetic.max(m.traffic);
        let all: f64 = together.iter().map(ideal).sum();
        for measured in together {
            // Each has its part of the time.
            let efficiency = (measured.efficiency * all / ideal(&measured)).min(MOST_EFFICIENCY);
            table.add(EfficiencyTable::name(first.family), Measured { efficiency, ..measured });
        }
        rest = &rest[count..];
    }
}

/// Nothing is much better than the ideal: what seems so was measured next to nothing.
const MOST_EFFICIENCY: f64 = 2.0;

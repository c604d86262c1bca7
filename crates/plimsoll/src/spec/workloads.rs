//! The workloads that are built in, to run by name or to copy and edit.

use super::suggest::hint;
use crate::{Error, ErrorKind, Result};

/// A workload that is built in.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    /// What it is called.
    pub name: &'static str,
    /// Its file.
    pub text: &'static str,
}

macro_rules! workloads {
    ($($name:literal)*) => {
        [$(Workload { name: $name, text: include_str!(concat!("../../workloads/", $name, ".toml")) }),*]
    };
}

/// All of them: first those that a laptop trains, then those to plan for machines that are larger.
static WORKLOADS: [Workload; 17] = workloads! {
    "digits" "mnist" "mnist-cnn" "moby-dick" "mlp-small" "mlp-wide" "cnn-small" "gpt-small" "gpt-varlen" "lstm-seq"
    "gpt2-124m" "gpt2-varlen" "gpt2-1.5b" "resnet50" "mlp-large" "vgg16" "unet"
};

/// The workloads that are built in.
pub fn workloads() -> &'static [Workload] {
    &WORKLOADS
}

/// The workload that is built in under this name.
///
/// # Errors
/// If there is none.
pub fn workload(name: &str) -> Result<&'static Workload> {
    workloads().iter().find(|workload| workload.name == name).ok_or_else(|| {
        let known: Vec<&str> = workloads().iter().map(|workload| workload.name).collect();
        let message = format!("there is no workload `{name}`; {}", hint(&known, name));
        Error::new(ErrorKind::Name, message)
    })
}

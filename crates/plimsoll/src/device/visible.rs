//! Which GPUs of this machine may be used: those that `PLIMSOLL_VISIBLE_DEVICES` names, all where it is not set.
//!
//! Machines are shared. A variable of the environment keeps every command and library that runs under it to the same
//! devices, whatever files and arguments say. The processor is always there.

use super::DeviceName;
use crate::{Error, ErrorKind, Result};
use std::env;

/// The variable.
pub(super) const VARIABLE: &str = "PLIMSOLL_VISIBLE_DEVICES";

/// What the variable says; `None` where it is not set.
pub(super) fn said() -> Option<String> {
    env::var_os(VARIABLE).map(|value| value.to_string_lossy().into_owned())
}

/// Refuses a device that is hidden.
pub(super) fn check(name: &DeviceName) -> Result<()> {
    let Some(text) = said() else { return Ok(()) };
    if name.is_cpu() || parse(&text)?.contains(name) {
        return Ok(());
    }
    let message = format!(
        "{name} is hidden: {VARIABLE} is \"{text}\"; name it there, or unset the variable for all devices to be seen"
    );
    Err(Error::new(ErrorKind::Device, message))
}

/// The devices of a list such as `cuda:0,cuda:2`, `0,2`, `cpu`, or nothing at all.
fn parse(text: &str) -> Result<Vec<DeviceName>> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let parsed = names.map(|name| {
        let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
        let full = if is_number { format!("cuda:{name}") } else { name.to_string() };
        full.parse().map_err(|_| {
            let message = format!(
                "{VARIABLE} is \"{text}\": `{name}` is no device; expected names or numbers, such as cuda:0,cuda:2, \
                 or nothing to hide all GPUs"
            );
            Error::new(ErrorKind::Name, message)
        })
    });
    parsed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_or_numbered() {
        let names = |text: &str| -> Vec<String> {
            parse(text).expect("a list").iter().map(DeviceName::to_string).collect()
        };
        assert_eq!(names("cuda:0, cuda:2"), ["cuda:0", "cuda:2"]);
        assert_eq!(names("1,cpu,"), ["cuda:1", "cpu"]);
        assert!(names("").is_empty());
        let error = parse("cuda:0,gpu").expect_err("no such device").to_string();
        assert!(error.contains(VARIABLE) && error.contains("`gpu`"), "{error}");
    }
}

//! Device profiles (interim).

use crate::{Error, ErrorKind, Result};
use plimsoll_plan::Profile;

/// Finds a profile.
///
/// # Errors
/// If there is none.
pub fn find(name: &str) -> Result<Profile> {
    let text = match name {
        "cpu" => include_str!("../devices/cpu.toml"),
        "h200" => include_str!("../devices/h200.toml"),
        _ => return Err(Error::new(ErrorKind::Name, "no such device")),
    };
    toml::from_str(text).map_err(|e| Error::new(ErrorKind::Name, e.to_string()))
}

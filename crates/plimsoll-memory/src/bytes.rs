//! Sizes in bytes, as people write and read them.

use crate::error::{Error, ErrorKind, Result};

const UNITS: [(&str, u64); 9] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

/// Reads a size such as `300MiB`, `1.5 GiB`, `4GB` or `1048576`. Units are case-insensitive; `K`, `M`, `G`
/// and `T` alone are binary.
///
/// ```
/// use plimsoll_memory::parse_bytes;
/// assert_eq!(parse_bytes("1.5 KiB")?, 1536);
/// assert!(parse_bytes("12 parsecs").unwrap_err().to_string().contains("300MiB"));
/// # Ok::<(), plimsoll_memory::Error>(())
/// ```
///
/// # Errors
/// If it is not a number with an optional unit, is negative, or does not fit 64 bits.
pub fn parse_bytes(text: &str) -> Result<u64> {
    let wrong = || {
        let message =
            format!("`{text}` is not a size in bytes: write a number and a unit, such as 300MiB or 4GB");
        Error::new(ErrorKind::NotASize, message)
    };
    let trimmed = text.trim();
    let split =
        trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(trimmed.len());
    let (number, unit) = (trimmed[..split].replace('_', ""), trimmed[split..].trim());
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        "t" => 1 << 40,
        unit => UNITS.iter().find(|(name, _)| name.to_ascii_lowercase() == unit).ok_or_else(wrong)?.1,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(wrong);
    }
    let value = number.parse::<f64>().map_err(|_| wrong())? * factor as f64;
    if value.is_finite() && value < u64::MAX as f64 { Ok(value as u64) } else { Err(wrong()) }
}

/// Writes a size with three or four significant digits in binary units: `1.50 KiB`, `301 MiB`.
///
/// ```
/// use plimsoll_memory::format_bytes;
/// assert_eq!(format_bytes(1536), "1.50 KiB");
/// assert_eq!(format_bytes(999), "999 B");
/// assert_eq!(format_bytes(1 << 30), "1.00 GiB");
/// ```
pub fn format_bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1023.5 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    match value {
        _ if unit == "B" => format!("{bytes} B"),
        v if v < 9.995 => format!("{v:.2} {unit}"),
        v if v < 99.95 => format!("{v:.1} {unit}"),
        v => format!("{v:.0} {unit}"),
    }
}

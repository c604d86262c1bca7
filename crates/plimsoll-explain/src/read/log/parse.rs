//! Words of a log: sizes as frameworks print them, numbers and names after a marker, Python's frames.

/// A size as it was printed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Size {
    pub(super) bytes: u64,
    /// Whether it was printed to the byte: `1.46GiB` was not.
    pub(super) exact: bool,
}

impl Size {
    pub(super) const fn exact(bytes: u64) -> Size {
        Size { bytes, exact: true }
    }

    /// Whether `bytes` would be printed like this: two digits after the point, or three and more in all.
    pub(super) fn may_be(self, bytes: u64) -> bool {
        let rounding = (0.006 * bytes as f64).max(52.0);
        if self.exact { self.bytes == bytes } else { self.bytes.abs_diff(bytes) as f64 <= rounding }
    }
}

/// What follows `marker` in `text`.
pub(super) fn after<'t>(text: &'t str, marker: &str) -> Option<&'t str> {
    let at = memchr::memmem::find(text.as_bytes(), marker.as_bytes())?;
    text.get(at + marker.len()..)
}

/// The whole number at the start of `text`, after blanks.
pub(super) fn number(text: &str) -> Option<u64> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// The whole number that ends `text`, before blanks.
pub(super) fn number_before(text: &str) -> Option<u64> {
    let text = text.trim_end();
    let start = text.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
    text.get(start..)?.parse().ok()
}

/// The size at the start of `text`, after blanks, and the text behind it. Frameworks mean powers of 1024 by
/// MB as well as by MiB.
pub(super) fn size(text: &str) -> Option<(Size, &str)> {
    let text = text.trim_start();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (figure, rest) = text.split_at(end);
    let figure = figure.strip_suffix('.').unwrap_or(figure);
    let unit_text = rest.strip_prefix(' ').unwrap_or(rest);
    const UNITS: [(&str, u64); 14] = [
        ("bytes", 1),
        ("byte", 1),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("KB", 1 << 10),
        ("kB", 1 << 10),
        ("MB", 1 << 20),
        ("GB", 1 << 30),
        ("TB", 1 << 40),
        ("M", 1 << 20),
        ("G", 1 << 30),
        ("B", 1),
    ];
    let ends_word = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric());
    let unit = UNITS.iter().find_map(|&(name, factor)| {
        let rest = unit_text.strip_prefix(name)?;
        ends_word(rest).then_some((factor, rest))
    });
    // Of bytes there are no parts: `1.00-1.09 GiB` is no size at its start.
    if unit.is_none() && figure.contains('.') {
        return None;
    }
    let (factor, rest) = unit.unwrap_or((1, rest));
    if let Ok(whole) = figure.parse::<u64>() {
        return Some((Size { bytes: whole.checked_mul(factor)?, exact: factor == 1 }, rest));
    }
    let value = figure.parse::<f64>().ok()? * factor as f64;
    // Above 2^53 bytes no device exists and no figure is to be believed.
    (value <= (1_u64 << 53) as f64).then_some((Size { bytes: value.round() as u64, exact: false }, rest))
}

/// The size after `marker`.
pub(super) fn size_after(text: &str, marker: &str) -> Option<Size> {
    size(after(text, marker)?).map(|(size, _)| size)
}

/// The size before `marker`: the figure and its unit are the last one or two words in front of it.
pub(super) fn size_before(text: &str, marker: &str) -> Option<Size> {
    let before = text[..text.find(marker)?].trim_end();
    let figure = |c: char| c.is_ascii_digit() || c == '.';
    let unit = before.rfind(figure)? + 1;
    let start = before[..unit].rfind(|c: char| !figure(c)).map_or(0, |at| at + 1);
    // A separator that is no digit may take several bytes.
    let start = (start..unit).find(|&at| before.is_char_boundary(at))?;
    size(&before[start..]).filter(|(_, rest)| rest.trim().is_empty()).map(|(size, _)| size)
}

/// The word at the start of `text`.
pub(super) fn word(text: &str) -> &str {
    text.split(|c: char| c.is_whitespace() || matches!(c, ',' | ')' | '\'' | '"' | ']' | '\\'))
        .next()
        .unwrap_or("")
}

/// `text`, cut to a length that no name has.
pub(super) fn short(text: &str) -> String {
    text.chars().take(400).collect()
}

/// The number in a name such as `GPU_0_bfc`, `GPU:0` or `cuda:1`.
pub(super) fn index_in(name: &str) -> Option<u32> {
    let start = name.find(|c: char| c.is_ascii_digit())?;
    number(&name[start..])?.try_into().ok()
}

/// The time at the start of a line, with its date where that stands before it.
pub(super) fn time(line: &str) -> Option<String> {
    let start = line.get(..line.len().min(64)).or_else(|| line.get(..32))?;
    let digit = |b: &u8| b.is_ascii_digit();
    let at = start
        .as_bytes()
        .windows(8)
        .position(|w| w[2] == b':' && w[5] == b':' && [0, 1, 3, 4, 6, 7].iter().all(|&at| digit(&w[at])))?;
    let fraction = start[at + 8..]
        .strip_prefix(['.', ','])
        .map_or("", |rest| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or(""));
    let date = at.checked_sub(11).and_then(|from| start.get(from..at - 1));
    let date = date.filter(|date| {
        let bytes = date.as_bytes();
        bytes[4] == bytes[7] && !digit(&bytes[4]) && bytes.iter().filter(|b| digit(b)).count() == 8
    });
    let time = &start[at..at + 8];
    let time = if fraction.is_empty() { time.to_string() } else { format!("{time}.{fraction}") };
    Some(date.map_or(time.clone(), |date| format!("{date} {time}")))
}

/// Python's last traceback, as far as it has been seen.
#[derive(Debug, Default)]
pub(super) struct Traceback {
    frames: Vec<String>,
    users: Vec<bool>,
}

impl Traceback {
    /// Takes a line if it belongs to a traceback.
    pub(super) fn line(&mut self, line: &str) {
        if line.contains("Traceback (most recent call last)") {
            self.frames.clear();
            self.users.clear();
            return;
        }
        let Some((file, number, name)) = place(line) else { return };
        let name = if name.is_empty() { String::new() } else { format!(" {name}") };
        if self.frames.len() >= 256 {
            self.frames.remove(0);
            self.users.remove(0);
        }
        self.frames.push(short(&format!("{file}:{number}{name}")));
        let library = ["site-packages", "dist-packages", "lib/python", "lib64/python", "<frozen", "\\lib\\"];
        self.users.push(!library.iter().any(|part| file.contains(part)));
    }

    /// The innermost frame of the user's own code, or of PyTorch's layers, as `file:line function`. The frames of other
    /// libraries say where their runtime was called, not what asked.
    pub(super) fn innermost(&self) -> Option<String> {
        let at = self.users.iter().rposition(|&user| user);
        let layer = || self.frames.last().filter(|frame| frame.contains("torch"));
        at.and_then(|at| self.frames.get(at)).or_else(layer).cloned()
    }
}

/// File, line and function of a line of a traceback: Python's own wording, or a notebook's.
fn place(line: &str) -> Option<(&str, u64, &str)> {
    let (file, rest) = if let Some(python) = after(line, "File \"") {
        python.split_once("\", line ")?
    } else if let Some(cell) = line.trim_start().strip_prefix("Cell ") {
        cell.split_once(", line ").filter(|(cell, _)| cell.starts_with("In["))?
    } else {
        let place = line.trim_start().strip_prefix("File ")?;
        let end = place.find(", in ").unwrap_or(place.len());
        let colon = place[..end].rfind(':')?;
        (&place[..colon], &place[colon + 1..])
    };
    let name = after(rest, ", in ").map_or("", str::trim_end);
    // A notebook prints the arguments too.
    let name = name.split_once('(').map_or(name, |(name, _)| name);
    Some((file, number(rest)?, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_frameworks_print_them() {
        let read = |text: &str| size(text).map(|(size, rest)| (size.bytes, size.exact, rest.to_string()));
        assert_eq!(read("1.46GiB (rounded"), Some((1_567_663_063, false, " (rounded".into())));
        assert_eq!(read("  6442450944 bytes."), Some((6_442_450_944, true, ".".into())));
        assert_eq!(read("126.00 MiB. GPU 0"), Some((132_120_576, false, ". GPU 0".into())));
        assert_eq!(read("0B"), Some((0, true, String::new())));
        assert_eq!(read("12 Buffers"), Some((12, true, " Buffers".into())));
        assert_eq!(read("99999999999999999999 GiB"), None);
        assert_eq!(read("x"), None);
    }

    #[test]
    fn a_size_before_a_marker_is_the_last_one_in_front_of_it() {
        let text = "GPU 0; 15.78 GiB total capacity; 14.21 GiB already allocated; 0 bytes free; 9 µ4 free";
        assert_eq!(size_before(text, " already allocated").map(|s| s.bytes), Some(15_257_871_319));
        assert_eq!(size_before(text, " free"), Some(Size::exact(0)));
        assert_eq!(size_before("no size free", " free"), None);
        assert_eq!(size_before("µ4 free", " free"), Some(Size::exact(4)));
    }

    #[test]
    fn the_innermost_frame_of_the_users_own_code_is_found() {
        let mut traceback = Traceback::default();
        traceback.line("Traceback (most recent call last):");
        traceback.line("  File \"train.py\", line 30, in <module>");
        traceback.line("  File \"/home/me/train.py\", line 15, in loss");
        traceback.line("  File \"/usr/lib/python3/dist-packages/torch/nn/functional.py\", line 9, in linear");
        assert_eq!(traceback.innermost().as_deref(), Some("/home/me/train.py:15 loss"));

        traceback.line("OutOfMemoryError                          Traceback (most recent call last)");
        traceback.line("Cell In[5], line 3");
        traceback.line("File ~/model.py:12, in Net.forward(self, x)");
        traceback
            .line("File /opt/lib/python3.11/site-packages/torch/_ops.py:723, in OpOverload.__call__(self)");
        assert_eq!(traceback.innermost().as_deref(), Some("~/model.py:12 Net.forward"));
    }
}

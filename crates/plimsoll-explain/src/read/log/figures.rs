//! Sizes in sentences that no reader knows: how much was asked for, how much was free, and what the limit was, by the words
//! that stand beside each figure.

/// What a sentence says in figures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) asked: Option<u64>,
    /// Whether what was asked is told to the byte.
    pub(super) exact: bool,
    pub(super) free: Option<u64>,
    pub(super) limit: Option<u64>,
}

/// A whole figure without a unit may be bytes from here on; smaller ones count other things.
const BYTES: u64 = 1 << 16;

/// A figure is beside words if at most so many bytes are between them.
const BESIDE: usize = 16;

/// A size in a line.
#[derive(Debug, Clone, Copy)]
struct Figure {
    bytes: u64,
    exact: bool,
    /// Whether its unit stands behind it; without one, only a word beside it makes it a size.
    has_unit: bool,
    end: usize,
}

const UNITS: &[(&str, u64)] = &[
    ("bytes", 1),
    ("byte", 1),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kbytes", 1 << 10),
    ("mbytes", 1 << 20),
    ("gbytes", 1 << 30),
    ("megabytes", 1 << 20),
    ("gigabytes", 1 << 30),
    ("kb", 1 << 10),
    ("mb", 1 << 20),
    ("gb", 1 << 30),
    ("tb", 1 << 40),
    ("m", 1 << 20),
    ("g", 1 << 30),
    ("b", 1),
];

/// The size whose figure begins at a byte of a line.
fn at(line: &str, at: usize) -> Option<Figure> {
    let text = line.get(at..)?;
    // A figure is not a part of a name, a time or another figure.
    if line[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '#' | '-' | ':')) {
        return None;
    }
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let figure = text[..digits].trim_end_matches('.');
    let rest = &text[digits..];
    let word = rest.trim_start();
    let length = word.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(word.len());
    let name = word[..length].to_ascii_lowercase();
    // A single letter belongs to the figure that it touches.
    let unit = UNITS
        .iter()
        .find(|(unit, _)| *unit == name && (unit.len() > 1 || rest.len() == word.len() || name == "b"));
    let whole = figure.parse::<u64>().ok();
    let continues = |c: char| c.is_alphanumeric() || matches!(c, ':' | '/' | '-' | '_');
    let (bytes, exact) = match (unit, whole) {
        (Some(&(_, factor)), Some(whole)) => (whole.checked_mul(factor)?, factor == 1),
        (Some(&(_, factor)), None) => {
            let value = figure.parse::<f64>().ok()? * factor as f64;
            ((0.0..=(1_u64 << 53) as f64).contains(&value).then_some(value.round() as u64)?, false)
        }
        (None, Some(whole)) if whole >= BYTES && !rest.starts_with(continues) => (whole, true),
        _ => return None,
    };
    let end = at + digits + if unit.is_some() { rest.len() - word.len() + length } else { 0 };
    Some(Figure { bytes, exact, has_unit: unit.is_some(), end })
}

impl Figures {
    /// Whether there is any.
    pub(super) fn any(&self) -> bool {
        self.asked.or(self.free).or(self.limit).is_some()
    }
}

/// What a figure is, by a word beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Asked,
    Free,
    Limit,
}

fn role(word: &str) -> Option<Role> {
    const ASKED: &[&str] =
        &["request", "requir", "need", "alloc", "reserv", "want", "demand", "malloc", "ask"];
    const FREE: &[&str] = &["free", "avail", "remain", "left", "only"];
    const LIMIT: &[&str] = &["limit", "total", "capacity", "max", "budget", "allowed", "maximum"];
    let starts = |starts: &[&str]| starts.iter().any(|start| word.starts_with(start));
    match () {
        () if starts(FREE) => Some(Role::Free),
        () if starts(LIMIT) => Some(Role::Limit),
        () if starts(ASKED) || word.contains("alloc") => Some(Role::Asked),
        () => None,
    }
}

/// What a line says in figures. A figure that no word names was asked for if it stands beside the words that refuse it, which
/// begin at `refusal`.
pub(super) fn read(line: &str, refusal: usize) -> Figures {
    let mut found = Figures::default();
    let mut unnamed = None;
    let mut place = 0;
    while let Some(digit) = line[place..].find(|c: char| c.is_ascii_digit()).map(|offset| place + offset) {
        let Some(Figure { bytes, exact, has_unit, end }) = at(line, digit) else {
            let rest = &line[digit..];
            place = digit + rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
            continue;
        };
        let words = |text: &str| -> Vec<String> {
            text.split(|c: char| !c.is_alphanumeric())
                .filter(|word| !word.is_empty())
                .map(str::to_lowercase)
                .collect()
        };
        // Back to the figure before.
        let before = words(&line[place..digit]);
        let near = before.iter().rev().take(4).find_map(|word| role(word));
        let near = match near {
            // The most that may be allocated is a limit.
            Some(Role::Asked) if before.iter().rev().take(4).any(|word| role(word) == Some(Role::Limit)) => {
                let asked = before.last().is_some_and(|word| role(word) == Some(Role::Asked));
                Some(if asked { Role::Asked } else { Role::Limit })
            }
            near => near,
        };
        let rest = &line[end..];
        let behind = &rest[..rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len())];
        let named = near.is_none() && has_unit;
        let behind = named
            .then(|| words(behind).into_iter().take(3).find_map(|word| Some((role(&word)?, word))))
            .flatten();
        // Of what is sized and no more, the size was asked for.
        let sized = before.iter().rev().take(2).any(|word| word == "size");
        let role = near.or(behind.as_ref().map(|(role, _)| *role)).or(sized.then_some(Role::Asked));
        // A word names one figure.
        let taken =
            behind.and_then(|(_, word)| rest.to_ascii_lowercase().find(&word).map(|at| at + word.len()));
        match role {
            Some(Role::Asked) if found.asked.is_none() => (found.asked, found.exact) = (Some(bytes), exact),
            Some(Role::Free) => found.free = found.free.or(Some(bytes)),
            Some(Role::Limit) => found.limit = found.limit.or(Some(bytes)),
            None if unnamed.is_none() && has_unit && end + BESIDE >= refusal => {
                unnamed = Some((bytes, exact))
            }
            _ => {}
        }
        place = end + taken.filter(|&taken| rest.is_char_boundary(taken)).unwrap_or(0);
    }
    if let (None, Some((bytes, exact))) = (found.asked, unnamed) {
        (found.asked, found.exact) = (Some(bytes), exact);
    }
    found.asked = found.asked.filter(|&bytes| bytes > 0);
    found
}

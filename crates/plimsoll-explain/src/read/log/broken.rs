//! Lines that a terminal, an editor or a forum broke: messages have their figures in one sentence, and are read only when it
//! is one line again.

/// A text with its lines joined that were broken at a column, if any were: those are all of one length, or one shorter
/// where a blank at the column was lost.
pub(super) fn unbroken(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let lines: Vec<(&str, usize)> = text.lines().map(|line| (line, line.chars().count())).collect();
    let width = lines.iter().map(|&(_, length)| length).max()?;
    let broken = lines.iter().filter(|&&(_, length)| length == width).count();
    if width < 20 || lines.len() < 2 || broken < 2 && lines.len() > 3 {
        return None;
    }
    let mut joined = String::with_capacity(text.len());
    for (line, length) in lines {
        joined.push_str(line);
        if length + 1 == width {
            joined.push(' ');
        } else if length < width {
            joined.push('\n');
        }
    }
    Some(joined)
}

/// Every line of a text with those after it: as words, and as one word that was broken. A sentence takes up to three lines.
pub(super) fn in_pairs(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let pairs = lines.windows(2).flat_map(|pair| [pair.join(" "), pair.concat()]);
    pairs.chain(lines.windows(3).map(<[&str]>::concat)).collect()
}

//! Text of a recording is untrusted: it is made plain before it is printed, and cut where it is long.

/// Text with nothing in it that controls a terminal or turns its direction: each such character becomes `�`.
///
/// ```
/// assert_eq!(plimsoll_explain::plain("a\x1b[2Jb"), "a\u{fffd}[2Jb");
/// ```
pub fn plain(text: &str) -> String {
    let controls = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    text.chars().map(|c| if controls(c) { '\u{fffd}' } else { c }).collect()
}

/// At most `length` characters of a text: the end is cut off, and that is shown.
pub(crate) fn cut(text: &str, length: usize) -> String {
    if text.chars().count() <= length {
        return text.to_string();
    }
    let kept: String = text.chars().take(length.saturating_sub(1)).collect();
    kept + "…"
}

/// A number of things in words: `1 block`, `2 blocks`.
pub(crate) fn counted(count: u64, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

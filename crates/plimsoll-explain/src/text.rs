//! Text that is printed: cut where it is long, counted in words. What comes from a recording passes through
//! [`plimsoll_memory::quoted`] first.

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

//! Text from outside: read within bounds, and made safe to print.
//!
//! A file that should hold a page may be a device that never ends. And names in a file that somebody sent may hold
//! whatever a terminal obeys: sequences that clear the screen, set its title or move what was printed; marks that turn
//! the direction of writing, so that a line reads as another. Whatever came from outside passes here on its way to
//! people.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// The text of a file of at most so many bytes.
///
/// # Errors
/// If it cannot be read, is longer, or is no text.
pub fn read_text(path: &Path, most_bytes: u64) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(most_bytes.saturating_add(1)).read_to_string(&mut text)?;
    if text.len() as u64 > most_bytes {
        let message = format!("it has more than the {most_bytes} bytes that such a file may have");
        return Err(io::Error::new(ErrorKind::InvalidData, message));
    }
    Ok(text)
}

/// Text in which every character that controls a terminal, turns the direction of writing, ends a line or cannot be
/// seen is written as its escape: `\u{1b}`, `\n`. All else is as it was.
///
/// ```
/// use plimsoll_memory::quoted;
/// assert_eq!(quoted("train.py:15 Verlust für ∂x"), "train.py:15 Verlust für ∂x");
/// assert_eq!(quoted("a\x1b[2Jb\n\u{202e}c"), r"a\u{1b}[2Jb\n\u{202e}c");
/// ```
pub fn quoted(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '\n' | '\r' | '\t' => safe.extend(character.escape_default()),
            _ if is_unprintable(character) => safe.extend(character.escape_unicode()),
            _ => safe.push(character),
        }
    }
    Cow::Owned(safe)
}

/// Whether a character acts on what shows it rather than being shown: control characters of both sets, separators of
/// lines, marks of direction and joining, and what has no width or is only a tag.
pub fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_of_either_set_and_no_mark_of_direction_is_left() {
        let controls = (0..=0x1f).chain(0x7f..=0x9f).filter_map(char::from_u32);
        let marks = "\u{61c}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\
                     \u{2068}\u{2069}\u{feff}";
        for character in controls.chain(marks.chars()) {
            let text = format!("a{character}b");
            let safe = quoted(&text);
            assert!(!safe.contains(character) && safe.starts_with("a\\") && safe.ends_with('b'), "{safe:?}");
        }
    }

    #[test]
    fn no_more_of_a_file_is_read_than_it_may_have() {
        let path = std::env::temp_dir().join(format!("plimsoll-text-{}", std::process::id()));
        std::fs::write(&path, "eight b.").unwrap();
        assert_eq!(read_text(&path, 8).unwrap(), "eight b.");
        assert_eq!(read_text(&path, 7).unwrap_err().kind(), ErrorKind::InvalidData);
        std::fs::remove_file(&path).unwrap();
        if cfg!(unix) {
            assert!(read_text(Path::new("/dev/zero"), 1 << 20).is_err());
        }
    }

    #[test]
    fn what_can_be_shown_stays_as_it_is() {
        let text = "C:\\models\\net.py «été» 模型 שלום 🧮 e\u{301}";
        assert!(matches!(quoted(text), Cow::Borrowed(same) if same == text));
    }
}

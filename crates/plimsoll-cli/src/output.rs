//! The way of everything that is printed to people.
//!
//! Error texts, layer names, keys, cells and file names come from files that somebody else may have written, and a
//! terminal obeys what it is sent. So all that leaves the program passes here, once, whatever command and library it is
//! from.

use plimsoll_memory::is_unprintable;
use std::io::{self, ErrorKind, Write};

/// Writes text in which whatever acts on a terminal, instead of being shown by it, is written as its escape, as in
/// `\u001b`, which a JSON string can have too. Only ends of lines and colours pass.
pub(crate) struct PlainText<W: Write> {
    inner: W,
    /// The beginning of a character or of a colour, of which the rest is to come.
    pending: Vec<u8>,
}

/// The longest sequence that sets a colour.
const LONGEST_COLOUR: usize = 32;

impl<W: Write> PlainText<W> {
    pub(crate) fn new(inner: W) -> PlainText<W> {
        PlainText { inner, pending: vec![] }
    }

    /// Writes text of which all has come.
    fn write_text(&mut self, text: &str, is_last: bool) -> io::Result<()> {
        let mut rest = text;
        while let Some(at) = rest.find(|character| character != '\n' && is_unprintable(character)) {
            self.inner.write_all(&rest.as_bytes()[..at])?;
            rest = &rest[at..];
            match colour(rest) {
                Colour::Whole(length) => {
                    self.inner.write_all(&rest.as_bytes()[..length])?;
                    rest = &rest[length..];
                }
                Colour::Begun if !is_last => {
                    self.pending = rest.as_bytes().to_vec();
                    return Ok(());
                }
                Colour::Begun | Colour::None => {
                    let character = rest.chars().next().unwrap_or_default();
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        write!(self.inner, "\\u{unit:04x}")?;
                    }
                    rest = &rest[character.len_utf8()..];
                }
            }
        }
        self.inner.write_all(rest.as_bytes())
    }

    fn write_bytes(&mut self, bytes: &[u8], is_last: bool) -> io::Result<()> {
        let mut all = std::mem::take(&mut self.pending);
        all.extend_from_slice(bytes);
        // What is no text at all is shown as that.
        let cut = match std::str::from_utf8(&all) {
            Err(error) if error.error_len().is_none() && !is_last => error.valid_up_to(),
            _ => all.len(),
        };
        self.write_text(&String::from_utf8_lossy(&all[..cut]), is_last)?;
        self.pending.extend_from_slice(&all[cut..]);
        Ok(())
    }
}

impl<W: Write> Write for PlainText<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_bytes(bytes, false)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_bytes(&[], true)?;
        self.inner.flush()
    }
}

/// What a text that is to be escaped begins with.
enum Colour {
    /// A sequence of so many bytes that sets a colour.
    Whole(usize),
    /// What may become one.
    Begun,
    None,
}

fn colour(text: &str) -> Colour {
    let bytes = text.as_bytes();
    if bytes.first() != Some(&0x1b) {
        return Colour::None;
    }
    match bytes.get(1) {
        None => return Colour::Begun,
        Some(b'[') => {}
        Some(_) => return Colour::None,
    }
    let numbers = bytes[2..].iter().take_while(|byte| byte.is_ascii_digit() || **byte == b';').count();
    match bytes.get(2 + numbers) {
        Some(b'm') if numbers < LONGEST_COLOUR => Colour::Whole(3 + numbers),
        None if numbers < LONGEST_COLOUR => Colour::Begun,
        _ => Colour::None,
    }
}

/// Writes for as long as somebody reads, and does not complain when nobody does: what a command is for may be something
/// else than what it prints.
pub(crate) struct WhileRead<W: Write> {
    inner: W,
    is_read: bool,
}

impl<W: Write> WhileRead<W> {
    pub(crate) fn new(inner: W) -> WhileRead<W> {
        WhileRead { inner, is_read: true }
    }

    fn unless_closed(&mut self, result: io::Result<()>) -> io::Result<()> {
        match result {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.is_read = false;
                Ok(())
            }
            result => result,
        }
    }
}

impl<W: Write> Write for WhileRead<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_read {
            let written = self.inner.write_all(bytes);
            self.unless_closed(written)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = if self.is_read { self.inner.flush() } else { Ok(()) };
        self.unless_closed(flushed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written of these pieces.
    fn written(pieces: &[&[u8]]) -> String {
        let mut out = PlainText::new(vec![]);
        pieces.iter().for_each(|piece| out.write_all(piece).unwrap());
        out.flush().unwrap();
        String::from_utf8(out.inner).unwrap()
    }

    #[test]
    fn nothing_that_acts_on_a_terminal_passes() {
        for code in (0..0x20).chain(0x7f..0xa0).chain([0x202e, 0x2066, 0x200f, 0x61c, 0xe0041]) {
            let character = char::from_u32(code).unwrap();
            let text = written(&[format!("a{character}b").as_bytes()]);
            match character {
                '\n' => assert_eq!(text, "a\nb"),
                _ => {
                    assert!(!text.contains(character), "{text:?}");
                    let json: serde_json::Value = serde_json::from_str(&format!("\"{text}\"")).unwrap();
                    assert_eq!(json, format!("a{character}b"), "a JSON string has it still");
                }
            }
        }
        assert_eq!(written(&[b"\x1b]0;title\x07 \x1b[2J"]), r"\u001b]0;title\u0007 \u001b[2J");
    }

    #[test]
    fn text_and_colours_pass_however_they_are_cut() {
        let text = "é 模型 \x1b[1;31mred\x1b[0m 🧮\nend";
        for cut in 0..text.len() {
            let (a, b) = text.as_bytes().split_at(cut);
            assert_eq!(written(&[a, b]), text);
        }
        assert_eq!(written(&[b"cut \xf0\x9f"]), "cut \u{fffd}");
        assert_eq!(written(&[b"cut \x1b[3"]), r"cut \u001b[3");
    }

    #[test]
    fn a_closed_pipe_is_no_error_to_what_does_more_than_print() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Err(ErrorKind::BrokenPipe.into())
            }
        }
        let mut out = WhileRead::new(Closed);
        assert!(writeln!(out, "a").and_then(|()| out.flush()).is_ok());
        assert!(WhileRead::new(Closed).flush().is_ok());
    }
}

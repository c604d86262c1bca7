//! Lines of a log in bounded memory. A progress bar writes megabytes without a newline, a debugger prints a
//! tensor on one line, a terminal leaves colours behind: none of that may cost memory or hide a message.

use aho_corasick::AhoCorasick;
use std::borrow::Cow;
use std::io::{self, BufRead};

/// Longer lines are handed out in pieces of this size.
const LONGEST: usize = 1 << 16;
/// What two pieces of one line have in common, so that no message is cut between them.
const OVERLAP: usize = 1 << 12;

/// A line, or a piece of one that is long.
pub(super) struct Line<'a> {
    /// Counted as an editor does.
    pub(super) number: u64,
    /// Without its end, its colours and whatever is not text.
    pub(super) text: Cow<'a, str>,
    /// Whether the stream ended within it: it has no end, nor does it end as a sentence or a value does.
    pub(super) cut: bool,
}

/// The lines of a stream. A carriage return ends a line too: what a progress bar overwrote was a line once.
pub(super) struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
    number: u64,
    ended: bool,
    long: bool,
    /// Whether the last line of the stream was cut.
    cut: bool,
    /// The parts of a line that a container's runtime had cut.
    joined: Vec<u8>,
    /// The start of the last line that was passed over.
    passed: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            buffer: Vec::new(),
            number: 1,
            ended: false,
            long: false,
            cut: false,
            joined: Vec::new(),
            passed: Vec::new(),
        }
    }

    /// The start of the last line that was passed over, once: most lines begin with the time.
    pub(super) fn take_passed(&mut self) -> Option<String> {
        let passed = std::mem::take(&mut self.passed);
        (!passed.is_empty()).then(|| String::from_utf8_lossy(&passed).into_owned())
    }

    /// The number of the line handed out last, counted as an editor does.
    pub(super) fn number(&self) -> u64 {
        if self.ended { self.number.saturating_sub(1) } else { self.number }
    }

    /// Passes over whole lines in which none of `words` occurs, as many as are at hand. Most of a log is such lines, and
    /// looking at them one by one is what takes time.
    pub(super) fn skip_without(&mut self, words: &AhoCorasick) -> io::Result<()> {
        if self.long {
            return Ok(());
        }
        let bytes = self.input.fill_buf()?;
        let searched = &bytes[..bytes.len().min(1 << 20)];
        let end = words.find(searched).map_or(searched.len(), |found| found.start());
        let lines = memchr::memrchr2(b'\n', b'\r', &searched[..end]).map_or(0, |last| last + 1);
        self.number += memchr::memchr_iter(b'\n', &searched[..lines]).count() as u64;
        if lines > 1 {
            let start = memchr::memrchr2(b'\n', b'\r', &searched[..lines - 1]).map_or(0, |last| last + 1);
            self.passed.clear();
            self.passed.extend_from_slice(&searched[start..lines.min(start + 64)]);
        }
        self.input.consume(lines);
        Ok(())
    }

    /// The next line; `None` at the end of the stream. What a container's runtime has cut into parts is one line again.
    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        self.joined.clear();
        let mut any = false;
        while self.fill()? {
            any = true;
            let part = if self.long { None } else { runtime_part(&self.buffer) };
            let is_last = part.is_none_or(|part| part.is_last);
            if is_last && self.joined.is_empty() {
                break;
            }
            let start = part.filter(|_| !self.joined.is_empty()).map_or(0, |part| part.start);
            self.joined.extend_from_slice(&self.buffer[start..]);
            if is_last || self.joined.len() >= LONGEST {
                break;
            }
        }
        let (number, cut) = (self.number(), self.cut);
        let bytes = if self.joined.is_empty() { &self.buffer } else { &self.joined };
        Ok(any.then(|| Line { number, text: plain(String::from_utf8_lossy(bytes)), cut }))
    }

    /// Reads the next line, or piece of one, into the buffer; false at the end of the stream.
    fn fill(&mut self) -> io::Result<bool> {
        if self.long {
            let kept = self.buffer.len().saturating_sub(OVERLAP);
            self.buffer.drain(..kept);
        } else {
            self.buffer.clear();
        }
        let continued = std::mem::take(&mut self.long);
        self.ended = false;
        loop {
            let bytes = self.input.fill_buf()?;
            if bytes.is_empty() {
                let nothing_new = self.buffer.len() <= if continued { OVERLAP } else { 0 };
                if nothing_new {
                    return Ok(false);
                }
                self.cut = !is_closed(&self.buffer);
                break;
            }
            let room = LONGEST.saturating_sub(self.buffer.len());
            let end = memchr::memchr2(b'\n', b'\r', &bytes[..bytes.len().min(room)]);
            let taken = end.unwrap_or(bytes.len().min(room));
            self.buffer.extend_from_slice(&bytes[..taken]);
            if let Some(end) = end {
                if bytes[end] == b'\n' {
                    self.number += 1;
                    self.ended = true;
                }
                self.input.consume(end + 1);
                break;
            }
            self.input.consume(taken);
            if self.buffer.len() >= LONGEST {
                self.long = true;
                break;
            }
        }
        // Text in UTF-16, as some shells redirect it, is plain text with a zero byte after each character.
        if !self.long && memchr::memchr(0, &self.buffer).is_some() {
            self.buffer.retain(|&b| b != 0);
        }
        Ok(true)
    }
}

/// A part of a line, as Kubernetes' container runtimes write lines that are long: `TIME stderr P the first part` and
/// `TIME stderr F the last one`.
#[derive(Clone, Copy)]
struct Part {
    /// Where the text begins.
    start: usize,
    is_last: bool,
}

fn runtime_part(line: &[u8]) -> Option<Part> {
    let time = memchr::memchr(b' ', line).filter(|_| line.first().is_some_and(u8::is_ascii_digit))?;
    let rest = &line[time + 1..];
    let tag = rest.strip_prefix(b"stderr ").or_else(|| rest.strip_prefix(b"stdout "))?;
    let is_last = match tag {
        [b'P', b' ', ..] => false,
        [b'F', b' ', ..] => true,
        _ => return None,
    };
    Some(Part { start: line.len() - tag.len() + 2, is_last })
}

/// Whether a text ends as a sentence or a value does.
fn is_closed(text: &[u8]) -> bool {
    match text.trim_ascii_end() {
        [.., before, b'.'] => !before.is_ascii_digit(),
        [.., last] => *last == b'}',
        [] => true,
    }
}

/// The text without terminal escapes, and without the escapes of HTML that a page was copied with.
pub(super) fn plain(text: Cow<'_, str>) -> Cow<'_, str> {
    let text = without_colours(text);
    if !text.contains('&') {
        return text;
    }
    const ESCAPES: [(&str, &str); 8] = [
        ("&gt;", ">"),
        ("&lt;", "<"),
        ("&quot;", "\""),
        ("&#34;", "\""),
        ("&#39;", "'"),
        ("&#x27;", "'"),
        ("&nbsp;", " "),
        // Last: what it uncovers was meant as it stands.
        ("&amp;", "&"),
    ];
    let mut plain = text;
    for (escaped, character) in ESCAPES {
        if plain.contains(escaped) {
            plain = Cow::Owned(plain.replace(escaped, character));
        }
    }
    plain
}

/// The text without terminal escapes.
fn without_colours(text: Cow<'_, str>) -> Cow<'_, str> {
    if !text.contains('\u{1b}') {
        return text;
    }
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character != '\u{1b}' {
            plain.push(character);
        } else if characters.next_if_eq(&'[').is_some() {
            // A control sequence: parameters, then one letter.
            while characters.next_if(|c| c.is_ascii_digit() || matches!(c, ';' | '?' | ' ')).is_some() {}
            characters.next_if(char::is_ascii);
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Vec<(u64, String)> {
        let mut lines = Lines::new(bytes);
        let mut found = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            found.push((line.number, line.text.into_owned()));
        }
        found
    }

    #[test]
    fn lines_end_in_any_of_the_usual_ways_and_are_counted_by_newlines() {
        let lines = all(b"a\r\nb\n 10%\r 20%\rc\x1b[0;31mred\x1b[0m\nlast");
        let expected = [(1, "a"), (1, ""), (2, "b"), (3, " 10%"), (3, " 20%"), (3, "cred"), (4, "last")];
        assert_eq!(lines.iter().map(|(n, l)| (*n, l.as_str())).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_message_deep_in_an_endless_line_is_whole_in_one_of_its_pieces() {
        for before in [LONGEST - 3, LONGEST + 1, 3 * LONGEST - 10] {
            let mut text = vec![b'.'; before];
            text.extend_from_slice(b"Tried to allocate");
            text.extend(vec![b'.'; LONGEST]);
            let found = all(&text);
            assert!(found.iter().any(|(_, line)| line.contains("Tried to allocate")), "after {before}");
            assert!(found.iter().all(|(n, line)| *n == 1 && line.len() <= LONGEST));
        }
    }

    #[test]
    fn parts_of_a_line_that_a_container_runtime_has_cut_are_one_line() {
        let lines = all(b"1Z stderr F one\n2Z stderr P two \n3Z stderr P and \n4Z stderr F three\nplain\n5Z stdout P last");
        let expected =
            [(1, "1Z stderr F one"), (4, "2Z stderr P two and three"), (5, "plain"), (6, "5Z stdout P last")];
        assert_eq!(lines.iter().map(|(n, l)| (*n, l.as_str())).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn text_in_sixteen_bits_is_read_as_text() {
        let wide: Vec<u8> = "\u{feff}one\r\ntwo\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let lines = all(&wide);
        assert!(lines.iter().any(|(_, l)| l.ends_with("one")) && lines.iter().any(|(_, l)| l == "two"));
    }
}

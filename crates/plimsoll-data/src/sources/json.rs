//! JSON as it is read without being kept: a place in a text, from which values are taken where they stand or passed
//! over. Floats are read to the nearest of their type, and nothing is allocated.

use super::decimal::parse_single;
use super::records::format::Fault;

/// What is read, or what is wrong with it.
pub(super) type Parsed<T> = std::result::Result<T, Fault>;

/// Values within values are passed over to this depth.
const MOST_DEPTH: usize = 128;

/// A place in a JSON text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Json<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Json<'a> {
    /// The start of a text, after its byte order mark if it has one.
    pub(super) fn new(text: &'a [u8]) -> Json<'a> {
        let mark = "\u{feff}".as_bytes();
        Json { text, at: if text.starts_with(mark) { mark.len() } else { 0 } }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// What is left.
    pub(super) fn rest(&self) -> &'a [u8] {
        &self.text[self.at..]
    }

    pub(super) fn fault<T>(&self, reason: impl Into<String>) -> Parsed<T> {
        Err(Fault::new(self.at, reason))
    }

    /// The next character that is no white space, which stays.
    pub(super) fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.text.get(self.at) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    /// Passes this character, if it is the next.
    pub(super) fn find(&mut self, character: u8) -> bool {
        let is_found = self.peek() == Some(character);
        self.at += usize::from(is_found);
        is_found
    }

    pub(super) fn expect(&mut self, character: u8) -> Parsed<()> {
        if self.find(character) {
            return Ok(());
        }
        let expected = character as char;
        match std::str::from_utf8(self.rest()).ok().and_then(|rest| rest.chars().next()) {
            Some(found) => self.fault(format!("`{found}` stands where `{expected}` is expected")),
            None if self.rest().is_empty() => self.fault(format!(
                "it ends where `{expected}` is expected: it is cut off, or goes on on another line"
            )),
            None => self.fault(format!("`{expected}` is expected")),
        }
    }

    /// Whether more follows in an array or object of which `count` values were read and which ends with this character.
    pub(super) fn goes_on(&mut self, count: usize, end: u8) -> Parsed<bool> {
        if count == 0 {
            return Ok(!self.find(end));
        }
        if self.find(b',') {
            return Ok(true);
        }
        self.expect(end).map(|()| false)
    }

    /// A text in quotes.
    pub(super) fn text(&mut self) -> Parsed<Text<'a>> {
        self.expect(b'"')?;
        let (start, mut has_escapes) = (self.at, false);
        loop {
            match memchr::memchr2(b'"', b'\\', self.rest()) {
                Some(found) if self.rest()[found] == b'"' => {
                    let raw = &self.text[start..self.at + found];
                    self.at += found + 1;
                    return Ok(Text { raw, start, has_escapes });
                }
                Some(found) if found + 1 < self.rest().len() => {
                    has_escapes = true;
                    self.at += found + 2;
                }
                _ => return self.fault("a text does not end on the line"),
            }
        }
    }

    /// A number, as the nearest `f32`.
    pub(super) fn single(&mut self) -> Parsed<f32> {
        self.number(parse_single)
    }

    /// A number, as the nearest `f64`.
    pub(super) fn double(&mut self) -> Parsed<f64> {
        self.number(|text| fast_float2::parse_partial(text).ok())
    }

    fn number<T>(&mut self, parse: impl Fn(&[u8]) -> Option<(T, usize)>) -> Parsed<T> {
        let first = self.peek();
        let is_number = match first {
            Some(b'-') => self.text.get(self.at + 1).is_some_and(u8::is_ascii_digit),
            first => first.is_some_and(|first| first.is_ascii_digit()),
        };
        match parse(self.rest()).filter(|_| is_number) {
            Some((value, length)) => {
                self.at += length;
                Ok(value)
            }
            None => self.not_a_number(),
        }
    }

    /// A whole number; `3.0` is one, and `true` is 1.
    pub(super) fn whole(&mut self) -> Parsed<i64> {
        match self.peek() {
            Some(b't') => return self.word("true").map(|()| 1),
            Some(b'f') => return self.word("false").map(|()| 0),
            _ => {}
        }
        let rest = self.rest();
        let sign = usize::from(rest.first() == Some(&b'-'));
        let digits = rest[sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let end = sign + digits;
        if digits > 0 && !matches!(rest.get(end), Some(b'.' | b'e' | b'E')) {
            let token = std::str::from_utf8(&rest[..end]).unwrap_or_default();
            let Ok(value) = token.parse() else { return self.fault(format!("{token} does not fit i64")) };
            self.at += end;
            return Ok(value);
        }
        let before = *self;
        let value = self.double()?;
        if value.fract() != 0.0 || value.abs() >= (1u64 << 53) as f64 {
            return before.fault(format!("{value} is not a whole number"));
        }
        Ok(value as i64)
    }

    fn not_a_number<T>(&mut self) -> Parsed<T> {
        let found = match self.peek() {
            None => "nothing",
            Some(b'"') => "a text",
            Some(b'[') => "an array",
            Some(b'{') => "an object",
            Some(b'n') => "null",
            Some(b't' | b'f') => "a truth value",
            Some(b'N' | b'I') => "a value that is not finite",
            Some(b'-') if self.text.get(self.at + 1) == Some(&b'I') => "a value that is not finite",
            Some(_) => "something else",
        };
        self.fault(format!("{found} stands where a number is expected"))
    }

    fn word(&mut self, word: &str) -> Parsed<()> {
        if !self.rest().starts_with(word.as_bytes()) {
            return self.fault("this is no JSON value");
        }
        self.at += word.len();
        Ok(())
    }

    /// Passes over a value.
    pub(super) fn skip(&mut self) -> Parsed<()> {
        self.skip_within(0)
    }

    fn skip_within(&mut self, depth: usize) -> Parsed<()> {
        if depth > MOST_DEPTH {
            return self.fault(format!("values are more than {MOST_DEPTH} deep within each other"));
        }
        match self.peek() {
            Some(b'"') => self.text().map(|_| ()),
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'n') => self.word("null"),
            // Python writes these.
            Some(b'N') => self.word("NaN"),
            Some(b'I') => self.word("Infinity"),
            Some(b'-') if self.text.get(self.at + 1) == Some(&b'I') => self.word("-Infinity"),
            Some(open @ (b'[' | b'{')) => {
                self.at += 1;
                let (mut count, end) = (0, if open == b'[' { b']' } else { b'}' });
                while self.goes_on(count, end)? {
                    if open == b'{' {
                        self.text()?;
                        self.expect(b':')?;
                    }
                    self.skip_within(depth + 1)?;
                    count += 1;
                }
                Ok(())
            }
            _ => self.double().map(|_| ()),
        }
    }
}

/// A text as it stands in quotes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'a> {
    raw: &'a [u8],
    start: usize,
    has_escapes: bool,
}

impl Text<'_> {
    /// Whether it says this.
    pub(super) fn is(&self, other: &str) -> bool {
        if !self.has_escapes {
            return self.raw == other.as_bytes();
        }
        let (mut rest, mut is_same) = (other.as_bytes(), true);
        let read = self.pieces(|piece| match rest.strip_prefix(piece) {
            Some(left) => rest = left,
            None => is_same = false,
        });
        read.is_ok() && is_same && rest.is_empty()
    }

    /// Bytes of what it says, which is UTF-8.
    pub(super) fn length(&self) -> Parsed<usize> {
        if std::str::from_utf8(self.raw).is_err() {
            return Err(Fault::new(self.start, "this is not UTF-8 text; save the file as UTF-8"));
        }
        if let Some(at) = self.raw.iter().position(|&byte| byte < b' ') {
            return Err(Fault::new(self.start + at, "a control character stands in a text; escape it"));
        }
        let mut length = self.raw.len();
        if self.has_escapes {
            length = 0;
            self.pieces(|piece| length += piece.len())?;
        }
        Ok(length)
    }

    /// Writes what it says into bytes of its [`length`](Text::length).
    pub(super) fn write(&self, out: &mut [u8]) -> Parsed<()> {
        let mut at = 0;
        self.pieces(|piece| {
            out[at..][..piece.len()].copy_from_slice(piece);
            at += piece.len();
        })
    }

    /// Shows what it says, all of it.
    pub(super) fn look<T>(&self, see: impl FnOnce(&str) -> T) -> Parsed<T> {
        let mut unescaped = Vec::new();
        let length = self.length()?;
        let bytes = if self.has_escapes {
            unescaped.resize(length, 0);
            self.write(&mut unescaped)?;
            &unescaped[..]
        } else {
            self.raw
        };
        let text =
            std::str::from_utf8(bytes).map_err(|_| Fault::new(self.start, "this is not UTF-8 text"))?;
        Ok(see(text))
    }

    /// Shows what it says, piece by piece.
    fn pieces(&self, mut take: impl FnMut(&[u8])) -> Parsed<()> {
        let mut at = 0;
        while let Some(found) = memchr::memchr(b'\\', &self.raw[at..]) {
            take(&self.raw[at..at + found]);
            at += found;
            let (character, length) = self.escaped(at)?;
            take(character.encode_utf8(&mut [0; 4]).as_bytes());
            at += length;
        }
        take(&self.raw[at..]);
        Ok(())
    }

    /// The character whose escape begins here, and the escape's length.
    fn escaped(&self, at: usize) -> Parsed<(char, usize)> {
        let refuse = || Fault::new(self.start + at, "this escape stands for no character");
        let unit = |at: usize| -> Option<u32> {
            let digits = self.raw.get(at..at + 6)?.strip_prefix(b"\\u")?;
            let digit = |value: u32, &digit: &u8| Some(value * 16 + (digit as char).to_digit(16)?);
            digits.iter().try_fold(0, digit)
        };
        let character = match self.raw.get(at + 1).ok_or_else(refuse)? {
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            &other @ (b'"' | b'\\' | b'/') => other as char,
            b'u' => {
                let first = unit(at).ok_or_else(refuse)?;
                if let Some(character) = char::from_u32(first) {
                    return Ok((character, 6));
                }
                // Half of a pair, which is a character with its other half.
                let second = unit(at + 6).filter(|second| (0xdc00..0xe000).contains(second));
                let pair = second
                    .filter(|_| first < 0xdc00)
                    .map(|second| 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00));
                return Ok((pair.and_then(char::from_u32).ok_or_else(refuse)?, 12));
            }
            _ => return Err(refuse()),
        };
        Ok((character, 2))
    }
}

//! The bytes of a pickle, taken piece by piece: whole numbers, lines and lengths, each with its position known.

use super::heap::PickleValue;
use super::{MachineResult, Stop};
use crate::error::{Error, ErrorKind};
use crate::read::input::Input;
use std::io::{BufRead, ErrorKind as IoKind};

const BUFFER: usize = 1 << 16;

pub(super) struct Bytes<'i, 'd> {
    input: &'i mut Input<'d>,
    buffer: Vec<u8>,
    /// What of the buffer was taken.
    at: usize,
    /// The buffer's place in the file.
    start: u64,
    /// The place of the opcode under way.
    opcode_at: u64,
}

impl<'i, 'd> Bytes<'i, 'd> {
    pub(super) fn new(input: &'i mut Input<'d>) -> Self {
        Self { input, buffer: Vec::with_capacity(BUFFER), at: 0, start: 0, opcode_at: 0 }
    }

    /// How many bytes were taken.
    pub(super) fn position(&self) -> u64 {
        self.start + self.at as u64
    }

    pub(super) fn opcode_at(&self) -> u64 {
        self.opcode_at
    }

    /// Takes an opcode and remembers its place.
    pub(super) fn opcode(&mut self) -> MachineResult<u8> {
        self.opcode_at = self.position();
        self.byte()
    }

    fn byte(&mut self) -> MachineResult<u8> {
        if self.at == self.buffer.len() {
            self.refill()?;
        }
        let byte = self.buffer[self.at];
        self.at += 1;
        Ok(byte)
    }

    pub(super) fn array<const N: usize>(&mut self) -> MachineResult<[u8; N]> {
        let mut array = [0; N];
        if let Some(bytes) = self.within(N) {
            array.copy_from_slice(bytes);
            return Ok(array);
        }
        for byte in &mut array {
            *byte = self.byte()?;
        }
        Ok(array)
    }

    /// The next bytes if all of them are at hand.
    pub(super) fn within(&mut self, length: usize) -> Option<&[u8]> {
        let bytes = self.buffer.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        Some(bytes)
    }

    /// The next bytes, gathered as they come: what is declared and not there takes no memory.
    pub(super) fn gathered(&mut self, length: u64) -> MachineResult<Vec<u8>> {
        let mut gathered = Vec::new();
        self.pieces(length, |piece| gathered.extend_from_slice(piece))?;
        Ok(gathered)
    }

    pub(super) fn skip(&mut self, length: u64) -> MachineResult<()> {
        self.pieces(length, |_| ())
    }

    fn pieces(&mut self, mut length: u64, mut take: impl FnMut(&[u8])) -> MachineResult<()> {
        while length > 0 {
            if self.at == self.buffer.len() {
                self.refill()?;
            }
            let count = length.min((self.buffer.len() - self.at) as u64);
            take(&self.buffer[self.at..self.at + count as usize]);
            self.at += count as usize;
            length -= count;
        }
        Ok(())
    }

    /// A line without its end.
    pub(super) fn line(&mut self, limit: u64) -> MachineResult<Vec<u8>> {
        let mut line = Vec::new();
        loop {
            match self.byte()? {
                b'\n' => return Ok(line),
                _ if line.len() as u64 >= limit => {
                    let what =
                        format!("broken at byte {}: a line of more than {limit} bytes", self.opcode_at);
                    return Err(Stop::Broken(what));
                }
                byte => line.push(byte),
            }
        }
    }

    /// A whole number of any length, least byte first; those of more than 64 bits are not kept.
    pub(super) fn long(&mut self, length: u64) -> MachineResult<PickleValue> {
        if length > 16 {
            self.skip(length)?;
            return Ok(PickleValue::Other);
        }
        let mut number: i128 = 0;
        let mut sign = 0;
        for place in 0..length {
            let byte = self.byte()?;
            number |= i128::from(byte) << (8 * place);
            sign = byte >> 7;
        }
        if sign == 1 && length < 16 {
            number -= 1 << (8 * length);
        }
        Ok(i64::try_from(number).map_or(PickleValue::Other, PickleValue::Int))
    }

    #[cold]
    fn refill(&mut self) -> MachineResult<()> {
        self.start += self.at as u64;
        self.at = 0;
        self.buffer.clear();
        let at = self.start;
        let next = loop {
            match self.input.fill_buf() {
                Err(e) if e.kind() == IoKind::Interrupted => {}
                other => break other,
            }
        };
        let next = next.map_err(|e| match e.kind() {
            IoKind::UnexpectedEof => Stop::Broken(format!("cut short at byte {at}, within its packing")),
            IoKind::InvalidData | IoKind::InvalidInput => {
                Stop::Broken(format!("broken at byte {at}: its packing is damaged ({e})"))
            }
            IoKind::QuotaExceeded | IoKind::TimedOut => Stop::Broken(format!("read up to byte {at} ({e})")),
            _ => Stop::Refused(Error::new(ErrorKind::Io, format!("cannot be read at byte {at}: {e}"))),
        })?;
        if next.is_empty() {
            return Err(Stop::Broken(format!("cut short at byte {at}")));
        }
        let count = next.len().min(BUFFER);
        self.buffer.extend_from_slice(&next[..count]);
        self.input.consume(count);
        Ok(())
    }
}

/// A number in text, of the opcodes `INT`, `LONG` and `FLOAT`. Those too large for 64 bits are not kept.
pub(super) fn text_number(opcode: u8, text: &str) -> Option<PickleValue> {
    match (opcode, text) {
        (b'I', "00") => return Some(PickleValue::Bool(false)),
        (b'I', "01") => return Some(PickleValue::Bool(true)),
        (b'F', _) => return text.parse().ok().map(PickleValue::Float),
        _ => {}
    }
    let digits = text.strip_suffix('L').unwrap_or(text);
    let bare = digits.strip_prefix('-').unwrap_or(digits);
    if bare.is_empty() || !bare.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(digits.parse().map_or(PickleValue::Other, PickleValue::Int))
}

/// Text of the opcodes `STRING`, in quotes and with escapes, and `UNICODE`, with `\u` and `\U` only.
pub(super) fn escaped(opcode: u8, line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let quoted = opcode == b'S';
    let mut text = text.as_ref();
    if quoted {
        text = text.trim();
        for quote in ['\'', '"'] {
            let inside = text.strip_prefix(quote).and_then(|t| t.strip_suffix(quote));
            text = inside.unwrap_or(text);
        }
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        let escape = &rest[at + 1..];
        let digits = match escape.chars().next() {
            Some('x') if quoted => 2,
            Some('u') => 4,
            Some('U') => 8,
            _ => 0,
        };
        let code = escape.get(1..1 + digits).filter(|_| digits > 0);
        let code = code.and_then(|code| u32::from_str_radix(code, 16).ok()).and_then(char::from_u32);
        rest = match (code, escape.chars().next()) {
            (Some(code), _) => {
                plain.push(code);
                &escape[1 + digits..]
            }
            (None, Some(c)) if quoted && c.is_ascii() => {
                plain.push(match c {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    other => other,
                });
                &escape[1..]
            }
            _ => {
                plain.push('\\');
                escape
            }
        };
    }
    plain.push_str(rest);
    plain
}

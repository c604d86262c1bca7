//! Text of sixteen bits a character, as shells of Windows redirect it, with a mark in front or without.

use std::io::{self, BufRead, BufReader, Read};

/// The order of the two bytes of a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// The lower byte first.
    Little,
    /// The higher byte first.
    Big,
}

/// Whether the start of a text is of sixteen bits a character: it has the mark, or a zero as one byte of most characters.
pub(super) fn order(start: &[u8]) -> Option<Order> {
    match start {
        [0xff, 0xfe, ..] => return Some(Order::Little),
        [0xfe, 0xff, ..] => return Some(Order::Big),
        _ => {}
    }
    let zeros = |from: usize| start.iter().skip(from).step_by(2).filter(|&&b| b == 0).count();
    let (even, odd) = (zeros(0), zeros(1));
    let wide = start.len() >= 16 && even.max(odd) * 4 >= start.len() && even.min(odd) * 20 <= start.len();
    wide.then_some(if odd > even { Order::Little } else { Order::Big })
}

/// Such a text as UTF-8. What is no character becomes the sign for that.
pub(super) fn narrow(input: impl BufRead, order: Order) -> impl BufRead {
    BufReader::new(Narrow { input, order, high: None, out: Vec::new(), given: 0 })
}

struct Narrow<R> {
    input: R,
    order: Order,
    /// The first half of a character of two.
    high: Option<u16>,
    /// Decoded, and how much of it was given out.
    out: Vec<u8>,
    given: usize,
}

impl<R: BufRead> Narrow<R> {
    /// Decodes one buffer of the input; `false` at its end.
    fn fill(&mut self) -> io::Result<bool> {
        (self.given, self.out) = (0, std::mem::take(&mut self.out));
        self.out.clear();
        let bytes = self.input.fill_buf()?;
        if bytes.is_empty() {
            return Ok(false);
        }
        let mut pair = [0; 2];
        let (units, taken) = if bytes.len() == 1 {
            // A character may lie across two buffers; half of one ends the text.
            pair[0] = bytes[0];
            self.input.consume(1);
            let read = self.input.read(&mut pair[1..])?;
            (&pair[..if read == 0 { 0 } else { 2 }], 0)
        } else {
            (&bytes[..bytes.len() / 2 * 2], bytes.len() / 2 * 2)
        };
        let decode = |pair: &[u8]| match self.order {
            Order::Little => u16::from_le_bytes([pair[0], pair[1]]),
            Order::Big => u16::from_be_bytes([pair[0], pair[1]]),
        };
        let mut units: Vec<u16> =
            self.high.take().into_iter().chain(units.chunks_exact(2).map(decode)).collect();
        self.high = units.pop_if(|last| (0xd800..0xdc00).contains(last));
        let mut utf8 = [0; 4];
        for character in char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)) {
            if character != '\u{feff}' {
                self.out.extend_from_slice(character.encode_utf8(&mut utf8).as_bytes());
            }
        }
        self.input.consume(taken);
        Ok(true)
    }
}

impl<R: BufRead> Read for Narrow<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.given == self.out.len() {
            if !self.fill()? {
                return Ok(0);
            }
        }
        let count = buffer.len().min(self.out.len() - self.given);
        buffer[..count].copy_from_slice(&self.out[self.given..self.given + count]);
        self.given += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn narrowed(bytes: &[u8], capacity: usize) -> String {
        let order = order(bytes).unwrap();
        let mut text = String::new();
        narrow(BufReader::with_capacity(capacity, bytes), order).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn text_of_sixteen_bits_is_read_in_both_orders_with_a_mark_or_without() {
        let text = "RuntimeError: 页面文件太小 🦀 Killed\n";
        let units = |text: &str| text.encode_utf16().collect::<Vec<u16>>();
        for marked in [text.to_string(), format!("\u{feff}{text}")] {
            let little: Vec<u8> = units(&marked).into_iter().flat_map(u16::to_le_bytes).collect();
            let big: Vec<u8> = units(&marked).into_iter().flat_map(u16::to_be_bytes).collect();
            // Characters and their halves lie across buffers.
            for capacity in [1, 2, 3, 7, 4096] {
                assert_eq!(narrowed(&little, capacity), text);
                assert_eq!(narrowed(&big, capacity), text);
            }
        }
    }

    #[test]
    fn plain_text_and_half_a_character_do_no_harm() {
        assert_eq!(order("CUDA out of memory. Tried to allocate".as_bytes()), None);
        let mut bytes: Vec<u8> = "Killed, Killed, Killed".encode_utf16().flat_map(u16::to_le_bytes).collect();
        bytes.push(b'x');
        assert_eq!(narrowed(&bytes, 8), "Killed, Killed, Killed");
    }
}

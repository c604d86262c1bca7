//! Files that are packed as a whole, by gzip or zstd. What they hold can only be had from the start on, so it is
//! streamed; which of them a file is, its first bytes say, not its name.

use flate2::bufread::MultiGzDecoder;
use std::io::{self, BufRead, Read};

/// How a file is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    Gzip,
    Zstd,
}

impl Packing {
    /// How a file that begins so is packed, if it is.
    pub(crate) fn of(start: &[u8]) -> Option<Packing> {
        if start.starts_with(&[0x1f, 0x8b, 0x08]) {
            return Some(Packing::Gzip);
        }
        let magic = u32::from_le_bytes(*start.first_chunk()?);
        // A frame, or one to be skipped, with which some programs begin.
        (magic == 0xfd2f_b528 || magic & 0xffff_fff0 == 0x184d_2a50).then_some(Packing::Zstd)
    }

    /// What was packed, in as many members or frames as there are.
    pub(crate) fn unpack(self, packed: impl BufRead + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Packing::Gzip => Box::new(MultiGzDecoder::new(packed)),
            Packing::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(packed)?),
        })
    }
}

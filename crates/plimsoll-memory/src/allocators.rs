//! The allocators of other frameworks, by their real rules, and one of our own.
//!
//! They place requests at addresses of a [`Source`] and nothing else, so that a recording can be replayed under
//! each of them on a device that is only counted, and the same code can serve memory that is real.

pub(crate) mod bfc;
pub(crate) mod caching;
pub(crate) mod two_ended;

use crate::bytes::format_bytes;
use crate::error::{Error, ErrorKind, Result};
use crate::layout::{Layout, Piece, PieceState, Segment};
use crate::owners::OwnerId;
use crate::source::Source;
use std::collections::HashMap;

/// No request is larger, so that sums of a few sizes never overflow.
const LARGEST_REQUEST: u64 = 1 << 56;

/// Where the live pieces of a layout lie after an allocator took them over: new addresses by old ones.
pub(crate) type Moved = HashMap<u64, u64>;

/// Refuses what is beyond all memory before any arithmetic is done on it.
fn check_size(bytes: u64) -> Result<()> {
    if bytes > LARGEST_REQUEST {
        let message = format!("{bytes} bytes ({}) are more than any device has", format_bytes(bytes));
        return Err(Error::new(ErrorKind::OutOfMemory, message));
    }
    Ok(())
}

/// Takes a range with memory behind all of it, as a plain device allocation; `bytes` is whole pages.
fn take(source: &mut dyn Source, bytes: u64) -> Result<u64> {
    let address = source.reserve(bytes)?;
    source.map(address, bytes).inspect_err(|_| source.release(address, bytes))?;
    Ok(address)
}

/// The live pieces of a recorded segment, each with the room up to the next one, and the room before the first.
fn live_rooms(segment: &Segment) -> (u64, Vec<(Piece, u64)>) {
    let end = segment.address + segment.bytes;
    let live: Vec<&Piece> = segment.pieces.iter().filter(|p| p.state != PieceState::Free).collect();
    let before = live.first().map_or(segment.bytes, |first| first.address - segment.address);
    let ends = live.iter().skip(1).map(|p| p.address).chain([end]);
    (before, live.iter().zip(ends).map(|(&&piece, end)| (piece, end - piece.address)).collect())
}

/// A piece of a layout; owners are not known to allocators.
fn piece(address: u64, bytes: u64, live: Option<u64>) -> Piece {
    let state = if live.is_some() { PieceState::Live } else { PieceState::Free };
    Piece { address, bytes, requested: live.unwrap_or(0), state, owner: OwnerId::UNKNOWN }
}

/// A layout of segments in order of address.
fn layout_of(segments: impl IntoIterator<Item = Segment>) -> Layout {
    Layout { segments: segments.into_iter().collect() }
}

//! The layout: what lies where in a pool at one moment.

use crate::owners::OwnerId;
use serde::{Deserialize, Serialize};

/// All that a pool holds of a device at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    /// What the pool took from the device, in order of address.
    pub segments: Vec<Segment>,
}

/// A contiguous piece of a device that a pool took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The first byte.
    pub address: u64,
    /// Bytes of the device behind it.
    pub bytes: u64,
    /// The stream whose requests it serves; 0 where all do.
    pub stream: u32,
    /// What it is for.
    pub class: SegmentClass,
    /// Its pieces, in order of address, without gaps: the free ones are listed too.
    pub pieces: Vec<Piece>,
}

/// What a segment is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SegmentClass {
    /// Requests up to a small size.
    Small,
    /// Requests above it.
    Large,
    /// Requests of every size.
    Any,
    /// A range of addresses with pages behind parts of it, which can grow and shrink.
    Expandable,
}

/// A piece of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The first byte.
    pub address: u64,
    /// Its bytes, rounding included.
    pub bytes: u64,
    /// The bytes that were asked for, where that is known; equal to `bytes` where not. 0 for free pieces.
    pub requested: u64,
    /// Whether it is in use.
    pub state: PieceState,
    /// Who asked for it.
    pub owner: OwnerId,
}

/// Whether a piece is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PieceState {
    /// In use.
    Live,
    /// Freed, but work that uses it may still be under way.
    Pending,
    /// Free for the next request.
    Free,
}

impl Layout {
    /// Bytes taken from the device.
    pub fn reserved_bytes(&self) -> u64 {
        self.segments.iter().map(|s| s.bytes).sum()
    }

    /// Bytes in use or waiting to be freed, rounding included.
    pub fn live_bytes(&self) -> u64 {
        self.pieces().filter(|p| p.state != PieceState::Free).map(|p| p.bytes).sum()
    }

    /// Bytes in use as they were asked for.
    pub fn requested_bytes(&self) -> u64 {
        self.pieces().filter(|p| p.state != PieceState::Free).map(|p| p.requested).sum()
    }

    /// The largest free piece, in bytes.
    pub fn largest_free(&self) -> u64 {
        self.pieces().filter(|p| p.state == PieceState::Free).map(|p| p.bytes).max().unwrap_or(0)
    }

    /// All pieces, in order of segment and address.
    pub fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.segments.iter().flat_map(|s| &s.pieces)
    }
}

//! Fragmented: enough bytes are free, but no hole is large enough.

use crate::analyse::call_site::call_site;
use crate::analyse::facts::Facts;
use crate::analyse::usage::total;
use crate::explanation::{Verdict, VerdictKind};
use crate::text::counted;
use plimsoll_memory::{Layout, OwnerId, Piece, PieceState, format_bytes};

/// The share of reserved bytes that may be holes at the peak before it is worth a verdict.
const HOLES: f64 = 0.25;
/// Less than this is not worth one either.
const BYTES: u64 = 32 << 20;

/// A refusal though enough was free, or a pool that had to take far more than was ever live at once.
pub(crate) fn verdict(facts: &Facts<'_>) -> Option<Verdict> {
    if facts.is_refusal() { at_failure(facts) } else { without_failure(facts) }
}

fn at_failure(facts: &Facts<'_>) -> Option<Verdict> {
    let (refused, live, bound) = (facts.refused?, facts.live?, facts.bound?);
    let free = bound.bytes.saturating_sub(live);
    let largest = facts.largest_free();
    // What is over the device lies in the host's memory in part, and is too much in any arrangement.
    if facts.device.capacity.is_some_and(|capacity| live > capacity) {
        return None;
    }
    if facts.layout.is_none() && facts.device.trace.is_none() {
        let idle = facts.reserved.unwrap_or(0).saturating_sub(live);
        let most = facts.device.capacity.is_some_and(|capacity| refused > capacity / 2);
        // Holes are what is wrong if they make up for what the device lacks; of one request for most of the device, the
        // request is.
        if idle < refused / 4 || most && idle < refused {
            return None;
        }
    }
    // A hole that is large enough was refused for another reason: another pool, another stream.
    if live.saturating_add(refused) > bound.bytes
        || facts.is_nearly_full()
        || largest.is_some_and(|largest| largest >= refused)
    {
        return None;
    }
    let hole = match largest {
        Some(largest) => format!("the largest hole is {}", format_bytes(largest)),
        None => "no hole of that size is left".into(),
    };
    let sentence = format!(
        "Fragmented: {} were requested and {} are free, but {hole}.",
        format_bytes(refused),
        format_bytes(free)
    );
    if let Some((sentence, proof)) = by_a_message(facts, refused, live) {
        return Some(Verdict { kind: VerdictKind::Fragmented, sentence, proof });
    }
    let exact = |bytes: u64| if facts.is_exact() { format!(" ({bytes} bytes)") } else { String::new() };
    let mut proof = vec![
        format!("requested: {}{}", format_bytes(refused), exact(refused)),
        format!(
            "free in all: {}{}, of the {} available to the pool less {} in use",
            format_bytes(free),
            exact(free),
            format_bytes(bound.bytes),
            format_bytes(live)
        ),
    ];
    if let Some(largest) = largest {
        proof.push(format!("largest hole: {}{}", format_bytes(largest), exact(largest)));
    }
    if let Some(layout) = &facts.layout {
        proof.extend(holes(layout));
        proof.extend(pins(facts, layout, refused));
    }
    Some(Verdict { kind: VerdictKind::Fragmented, sentence, proof })
}

/// What a message tells: that the pool keeps enough that is not in use, and could not serve the request from it.
fn by_a_message(facts: &Facts<'_>, refused: u64, live: u64) -> Option<(String, Vec<String>)> {
    let told = facts.layout.is_none() && facts.device.trace.is_none() && facts.largest_free().is_none();
    let reserved = facts.reserved.filter(|_| told)?;
    let idle = reserved.saturating_sub(live);
    let beside = match facts.device.device_free {
        Some(free) if idle < refused => {
            format!(", and {} are free beside it: together enough", format_bytes(free))
        }
        _ => ": enough".into(),
    };
    let sentence = format!(
        "Fragmented: the pool keeps {} that are not in use{beside} for the {} requested, but in pieces that are too small.",
        format_bytes(idle),
        format_bytes(refused)
    );
    let free = facts
        .device
        .device_free
        .map_or(String::new(), |free| format!("; free on the device: {}", format_bytes(free)));
    let proof = vec![format!(
        "reserved by the pool: {}; in use: {}{free}; requested: {}",
        format_bytes(reserved),
        format_bytes(live),
        format_bytes(refused)
    )];
    Some((sentence, proof))
}

fn without_failure(facts: &Facts<'_>) -> Option<Verdict> {
    let history = facts.history.as_ref()?;
    // A pool that takes all at the start says nothing by its size.
    if !super::grows(facts) {
        return None;
    }
    let (reserved, peak) = (history.peak_reserved, facts.peak_live()?);
    let holes = reserved.saturating_sub(peak);
    if holes < BYTES || (holes as f64) < HOLES * reserved as f64 {
        return None;
    }
    let share = 100.0 * holes as f64 / reserved as f64;
    let sentence = format!(
        "Fragmented: at most {} were live at once, yet the pool reserved {}: {share:.0} % is fragmentation, holes \
         that later requests did not fit.",
        format_bytes(peak),
        format_bytes(reserved)
    );
    let mut proof = vec![
        format!("most live at once: {peak} bytes, after {} events", history.peak_at),
        format!("most reserved by the pool: {reserved} bytes"),
    ];
    if let Some(layout) = &facts.layout {
        proof.extend(self::holes(layout));
    }
    Some(Verdict { kind: VerdictKind::Fragmented, sentence, proof })
}

/// The holes, in a line.
fn holes(layout: &Layout) -> Option<String> {
    let mut holes: Vec<u64> =
        layout.pieces().filter(|p| p.state == PieceState::Free).map(|p| p.bytes).collect();
    holes.sort_unstable_by(|a, b| b.cmp(a));
    let largest: Vec<String> = holes.iter().take(5).map(|&bytes| format_bytes(bytes)).collect();
    let sum = total(holes.iter().copied());
    (!holes.is_empty()).then(|| {
        format!("{} holes of {} in all; the largest: {}", holes.len(), format_bytes(sum), largest.join(", "))
    })
}

/// The blocks in the way of the request: those in the range with the least in use, and those that each split the
/// largest holes.
fn pins(facts: &Facts<'_>, layout: &Layout, refused: u64) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some((live, blocks, bytes)) = emptiest_range(layout, refused) {
        lines.push(format!(
            "the emptiest range of {} has {} in use in {}: without these the request would fit",
            format_bytes(bytes),
            format_bytes(live),
            counted(blocks as u64, "block")
        ));
    }
    let mut single: Vec<(u64, &Piece)> = Vec::new();
    for segment in &layout.segments {
        for at in 0..segment.pieces.len() {
            let piece = &segment.pieces[at];
            if piece.state == PieceState::Free {
                continue;
            }
            let free = |neighbour: Option<&Piece>| {
                neighbour.filter(|p| p.state == PieceState::Free).map_or(0, |p| p.bytes)
            };
            let before = free(at.checked_sub(1).and_then(|at| segment.pieces.get(at)));
            let after = free(segment.pieces.get(at + 1));
            if before > 0 && after > 0 {
                single.push((before.saturating_add(piece.bytes).saturating_add(after), piece));
            }
        }
    }
    // By the hole that each splits; of equal ones the smaller block costs more for what it holds.
    single.sort_by_key(|&(hole, piece)| (std::cmp::Reverse(hole), piece.bytes, piece.address));
    for (hole, piece) in single.into_iter().take(5) {
        let by = match piece.owner {
            OwnerId::UNKNOWN => String::new(),
            owner => format!(", allocated at {}", call_site(&facts.device.owners, owner).location),
        };
        lines.push(format!(
            "{} at {:#x}{by} splits what would be a hole of {}",
            format_bytes(piece.bytes),
            piece.address,
            format_bytes(hole)
        ));
    }
    lines
}

/// Of all ranges of neighbouring blocks that are large enough, the one with the fewest bytes in use: those bytes,
/// the blocks they are in, and the bytes of the range.
fn emptiest_range(layout: &Layout, bytes: u64) -> Option<(u64, usize, u64)> {
    let mut best: Option<(u64, usize, u64)> = None;
    for segment in &layout.segments {
        let pieces = &segment.pieces;
        let sizes = |p: &Piece| {
            let live = p.state != PieceState::Free;
            (u128::from(p.bytes), if live { u128::from(p.bytes) } else { 0 }, usize::from(live))
        };
        let (mut start, mut length, mut live, mut count) = (0, 0_u128, 0_u128, 0_usize);
        for piece in pieces {
            let (more, more_live, one) = sizes(piece);
            (length, live, count) = (length + more, live + more_live, count + one);
            // What can be left off at the start without falling short is.
            while let (less, less_live, one) = sizes(&pieces[start])
                && length - less >= u128::from(bytes)
                && less < length
            {
                (length, live, count) = (length - less, live - less_live, count - one);
                start += 1;
            }
            let (Ok(live), Ok(length)) = (u64::try_from(live), u64::try_from(length)) else { break };
            if length >= bytes && best.is_none_or(|(least, ..)| live < least) {
                best = Some((live, count, length));
            }
        }
    }
    best
}

//! The vocabulary of packing: which buffers live when, and where each one lies.
//!
//! Everything that solves, checks, reads or prints a packing speaks in these types and in [`Lifetime`], and none of them
//! knows how a packing is found. Time is logical (a kernel's number, usually) and lifetimes are half-open, so
//! a buffer that ends at 7 may hand its bytes to one that starts at 7.

use crate::{Error, ErrorKind};
use plimsoll_ir::Lifetime;

/// A buffer that wants an offset: so many bytes for so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Item {
    /// When the bytes are needed.
    pub lifetime: Lifetime,
    /// How many bytes are needed.
    pub size: u64,
}

impl Item {
    /// An item of `size` bytes that lives over `[lower, upper)`.
    #[must_use]
    pub fn new(lower: u64, upper: u64, size: u64) -> Self {
        Self { lifetime: Lifetime { lower, upper }, size }
    }

    /// Whether the item needs no bytes at any time. Such an item fits anywhere.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.size == 0 || self.lifetime.lower >= self.lifetime.upper
    }
}

/// Items to be packed, and the alignment that every offset must have.
///
/// Each item reserves its size rounded up to the alignment, so the caller need not round.
///
/// ```
/// use plimsoll_plan::packing::{Item, Problem};
///
/// // Two that follow each other can share bytes; the third lives through both.
/// let items = vec![Item::new(0, 3, 100), Item::new(3, 6, 100), Item::new(0, 6, 50)];
/// let problem = Problem::new(items, 64)?;
/// assert_eq!(problem.lower_bound(), 128 + 64);
/// # Ok::<(), plimsoll_plan::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub(crate) items: Vec<Item>,
    pub(crate) alignment: u64,
}

impl Problem {
    /// A problem of `items` whose offsets are to be multiples of `alignment` (1 for no constraint).
    ///
    /// # Errors
    ///
    /// When the alignment is zero, a lifetime ends before it starts, or the sizes add up to more than an
    /// address can hold (`i64::MAX` bytes).
    pub fn new(items: Vec<Item>, alignment: u64) -> Result<Self, Error> {
        let refuse = |message| Err(Error::new(ErrorKind::InvalidProblem, message));
        if alignment == 0 {
            return refuse("an alignment of 0 bytes was asked for; use 1 for no alignment".into());
        }
        let mut total = 0_u64;
        for (index, item) in items.iter().enumerate() {
            let Lifetime { lower, upper } = item.lifetime;
            if lower > upper {
                return refuse(format!("item {index} ends at {upper}, before it starts at {lower}"));
            }
            let reserved = item.size.checked_next_multiple_of(alignment);
            match reserved.and_then(|bytes| total.checked_add(bytes)) {
                Some(sum) if sum <= i64::MAX as u64 => total = sum,
                _ => {
                    let limit = i64::MAX;
                    return refuse(format!(
                        "the sizes up to item {index} ({} bytes, aligned to {alignment}) add up to more than \
                         {limit} bytes",
                        item.size
                    ));
                }
            }
        }
        Ok(Self { items, alignment })
    }

    /// The items, in the order they were given: a packing's offsets are in the same order.
    #[must_use]
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// The number of bytes that every offset is a multiple of.
    #[must_use]
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// The bytes that an item takes: its size rounded up to the alignment.
    #[must_use]
    pub fn reserved(&self, item: &Item) -> u64 {
        item.size.next_multiple_of(self.alignment)
    }

    /// The most bytes alive at any one moment. No packing is lower than this.
    #[must_use]
    pub fn lower_bound(&self) -> u64 {
        let mut changes = Vec::with_capacity(2 * self.items.len());
        for item in self.items.iter().filter(|item| !item.is_empty()) {
            let bytes = self.reserved(item).cast_signed();
            changes.push((item.lifetime.lower, bytes));
            changes.push((item.lifetime.upper, -bytes));
        }
        // At one moment, what ends comes before what starts: negative changes sort first.
        changes.sort_unstable();
        let mut live = 0;
        let peak = changes.iter().map(|&(_, change)| {
            live += change;
            live
        });
        peak.max().unwrap_or(0).unsigned_abs()
    }
}

/// Where each item of a problem lies, and how many bytes that takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    /// The offset of each item, in the problem's order.
    pub offsets: Vec<u64>,
    /// The bytes to reserve: the highest end of any item that needs bytes, rounded up to the alignment.
    pub height: u64,
}

impl Packing {
    /// The packing of `problem` that these offsets describe, with its height worked out. Nothing is checked;
    /// that is [`validate`](crate::validate())'s part.
    #[must_use]
    pub fn from_offsets(problem: &Problem, offsets: Vec<u64>) -> Self {
        let lying = offsets.iter().zip(&problem.items).filter(|(_, item)| !item.is_empty());
        let top = lying.map(|(offset, item)| offset.saturating_add(item.size)).max().unwrap_or(0);
        let height = top.checked_next_multiple_of(problem.alignment).unwrap_or(u64::MAX);
        Self { offsets, height }
    }

    /// How far the height is above the problem's lower bound, as a fraction of it: 0 is perfect.
    #[must_use]
    pub fn gap(&self, problem: &Problem) -> f64 {
        let bound = problem.lower_bound();
        if bound == 0 { 0.0 } else { self.height as f64 / bound as f64 - 1.0 }
    }
}

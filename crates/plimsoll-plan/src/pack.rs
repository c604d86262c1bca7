//! Packing: an offset for every item, so that no more bytes are needed than must be.
//!
//! A portfolio of greedy packers gives a good answer at once; a search then tries to close the gap to the
//! lower bound. Both are bounded by effort, not by time: the same problem and effort give the same offsets on
//! every machine and with any number of threads, so that plans can be compared, saved and repeated. The only
//! way in for a clock is [`pack_while`], for those who would rather have their answer by noon.

mod canonical;
mod fit;
mod improve;
mod item_set;
mod layers;
mod parallel;
mod part;
mod portfolio;
mod rank;
mod valley;

use crate::packing::{Packing, Problem};
use improve::Improver;
use part::Part;

/// How much to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Effort {
    /// How many waiting items the search may look at, over all it tries. A million takes some 20 ms.
    pub steps: u64,
}

impl Effort {
    /// As much as it takes: for use with [`pack_while`].
    pub const UNLIMITED: Self = Self { steps: u64::MAX };
}

impl Default for Effort {
    /// Enough for the graphs of training steps, in a fraction of a second.
    fn default() -> Self {
        Self { steps: 8_000_000 }
    }
}

/// Packs a problem: the portfolio, and then the search with that much effort.
///
/// `capacity` is the height that is good enough; without one it is the problem's lower bound. The packing may
/// be higher, if the effort did not suffice or no packing is so low, and it may be lower.
///
/// ```
/// use plimsoll_plan::pack::{Effort, pack};
/// use plimsoll_plan::packing::{Item, Problem};
/// use plimsoll_plan::validate;
///
/// let items = vec![Item::new(0, 4, 3), Item::new(2, 8, 2), Item::new(5, 9, 3), Item::new(0, 9, 1)];
/// let problem = Problem::new(items, 1)?;
/// let packing = pack(&problem, None, Effort::default());
/// assert_eq!(packing.height, problem.lower_bound());
/// validate(&problem, &packing)?;
/// # Ok::<(), plimsoll_plan::Error>(())
/// ```
#[must_use]
pub fn pack(problem: &Problem, capacity: Option<u64>, effort: Effort) -> Packing {
    pack_while(problem, capacity, effort, &|| true)
}

/// Packs a problem with the portfolio alone.
///
/// ```
/// use plimsoll_plan::pack::pack_quick;
/// use plimsoll_plan::packing::{Item, Problem};
///
/// // A stack of lifetimes, one within the other, is packed without waste.
/// let nested = (0..1000).map(|i| Item::new(i, 2000 - i, 1 + i % 7)).collect();
/// let problem = Problem::new(nested, 1)?;
/// assert_eq!(pack_quick(&problem).height, problem.lower_bound());
/// # Ok::<(), plimsoll_plan::Error>(())
/// ```
#[must_use]
pub fn pack_quick(problem: &Problem) -> Packing {
    pack(problem, None, Effort { steps: 0 })
}

/// Packs a problem like [`pack`], but ends the search soon after `keep_going` says no. It is asked every few
/// thousand steps, by several threads. If it says no, the packing depends on when it did.
///
/// ```
/// use plimsoll_plan::pack::{Effort, pack_while};
/// use plimsoll_plan::packing::{Item, Problem};
/// use std::time::{Duration, Instant};
///
/// let problem = Problem::new(vec![Item::new(0, 2, 64), Item::new(1, 3, 64)], 1)?;
/// let deadline = Instant::now() + Duration::from_secs(1);
/// let packing = pack_while(&problem, None, Effort::UNLIMITED, &|| Instant::now() < deadline);
/// assert_eq!(packing.height, 128);
/// # Ok::<(), plimsoll_plan::Error>(())
/// ```
#[must_use]
pub fn pack_while(
    problem: &Problem,
    capacity: Option<u64>,
    effort: Effort,
    keep_going: &(dyn Fn() -> bool + Sync),
) -> Packing {
    let parts = part::split(problem);
    let lower_bound = parts.iter().map(Part::lower_bound).max().unwrap_or(0);
    let target = lower_bound.max(capacity.unwrap_or(0) / problem.alignment);

    let mut packed = portfolio::pack(&parts, target);
    Improver { steps: effort.steps, keep_going, in_layers: true }.improve(&parts, &mut packed, target);

    let mut offsets = vec![0; problem.items.len()];
    for (part, packed) in parts.iter().zip(packed) {
        for (&index, offset) in part.items.iter().zip(packed) {
            offsets[index] = offset * problem.alignment;
        }
    }
    Packing::from_offsets(problem, offsets)
}

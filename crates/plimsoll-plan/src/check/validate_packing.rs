//! An independent check of packings.
//!
//! A wrong offset silently corrupts someone's training run, so nothing is believed because a solver said so.
//! This file shares no code with the solvers: it walks through time, keeps the live items by address, and
//! compares each newcomer with the one that lies next to it.

use std::collections::BTreeMap;

use crate::packing::{Item, Packing, Problem};
use crate::{Error, ErrorKind};

/// Checks that `packing` is one of `problem`: every item has an aligned offset, items that are alive at the
/// same time lie apart, and the height is exactly the highest end rounded up to the alignment.
///
/// Items of no bytes or no lifetime can not collide, and only their offsets' alignment is checked.
///
/// ```
/// use plimsoll_plan::packing::{Item, Packing, Problem};
/// use plimsoll_plan::validate;
///
/// let problem = Problem::new(vec![Item::new(0, 4, 8), Item::new(2, 6, 8)], 1)?;
/// assert!(validate(&problem, &Packing { offsets: vec![0, 8], height: 16 }).is_ok());
///
/// let overlap = validate(&problem, &Packing { offsets: vec![0, 4], height: 12 }).unwrap_err();
/// assert!(overlap.to_string().contains("item 0"));
/// # Ok::<(), plimsoll_plan::Error>(())
/// ```
///
/// # Errors
///
/// Names the items, lifetimes and addresses that break the promise.
pub fn validate(problem: &Problem, packing: &Packing) -> Result<(), Error> {
    let items = problem.items();
    let alignment = problem.alignment();
    let Packing { offsets, height } = packing;
    if offsets.len() != items.len() {
        return refuse(format!("{} offsets were given for {} items", offsets.len(), items.len()));
    }

    let mut moments = Vec::new();
    let mut top = 0;
    for (index, (item, &offset)) in items.iter().zip(offsets).enumerate() {
        let Some(end) = offset.checked_add(item.size) else {
            return refuse(format!("item {index} of {} bytes at {offset} ends past 2^64", item.size));
        };
        if !offset.is_multiple_of(alignment) {
            let this = describe(index, item, offset);
            return refuse(format!("{this}, is not at a multiple of {alignment}"));
        }
        if item.size > 0 && item.lifetime.lower < item.lifetime.upper {
            top = top.max(end);
            moments.push((item.lifetime.lower, true, index));
            moments.push((item.lifetime.upper, false, index));
        }
    }
    if top.checked_next_multiple_of(alignment) != Some(*height) {
        return refuse(format!(
            "the height is given as {height} bytes, but the highest item ends at {top} (alignment {alignment})"
        ));
    }

    // At equal times false sorts before true: what ends makes room for what starts.
    moments.sort_unstable();
    let mut live: BTreeMap<u64, usize> = BTreeMap::new();
    for (_, starts, index) in moments {
        let (offset, end) = (offsets[index], offsets[index] + items[index].size);
        if !starts {
            live.remove(&offset);
            continue;
        }
        // The live items lie apart, so only the last that starts below this one's end can reach into it.
        if let Some((&other_offset, &other)) = live.range(..end).next_back()
            && other_offset + items[other].size > offset
        {
            let this = describe(index, &items[index], offset);
            let other = describe(other, &items[other], other_offset);
            return refuse(format!("{this}, overlaps {other}"));
        }
        live.insert(offset, index);
    }
    Ok(())
}

fn refuse(message: String) -> Result<(), Error> {
    Err(Error::new(ErrorKind::InvalidPacking, message))
}

fn describe(index: usize, item: &Item, offset: u64) -> String {
    let (lower, upper, end) = (item.lifetime.lower, item.lifetime.upper, offset + item.size);
    format!("item {index} at bytes [{offset}, {end}), alive over [{lower}, {upper})")
}

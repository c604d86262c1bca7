//! Buckets: sequences of many lengths in the compiled steps of few.
//!
//! A new length is a new plan, made in milliseconds, and its steps are kept. Where lengths are many and steps are short,
//! rounding lengths up to buckets makes fewer, at the price of computing on padding. Padding must not show in what is
//! trained: its labels are negative, which the loss and accuracy leave out. So the losses and gradients are those without
//! buckets, up to rounding, as long as a position depends on none after it.

use super::Trainer;
use crate::loss::Loss;
use crate::{Error, ErrorKind, Result};
use plimsoll_data::{Dataset, Element};
use std::ops::RangeInclusive;

/// The lengths that sequences are padded to: each to the smallest that holds it, and none beyond the longest length.
///
/// ```
/// use plimsoll::Buckets;
/// assert_eq!(Buckets::from(32), Buckets::Multiples(32));
/// assert_eq!(Buckets::from([64, 128, 256]), Buckets::List(vec![64, 128, 256]));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Buckets {
    /// All multiples of a length.
    Multiples(usize),
    /// These, each longer than the one before.
    List(Vec<usize>),
}

impl From<usize> for Buckets {
    fn from(unit: usize) -> Buckets {
        Buckets::Multiples(unit)
    }
}

impl From<Vec<usize>> for Buckets {
    fn from(lengths: Vec<usize>) -> Buckets {
        Buckets::List(lengths)
    }
}

impl<const N: usize> From<[usize; N]> for Buckets {
    fn from(lengths: [usize; N]) -> Buckets {
        Buckets::List(lengths.to_vec())
    }
}

impl Buckets {
    /// What is wrong with them for lengths up to `longest`.
    pub(crate) fn complaint(&self, longest: usize) -> Option<String> {
        let list = match self {
            Buckets::Multiples(0) => return Some("buckets of multiples of 0; use at least 1".into()),
            Buckets::Multiples(_) => return None,
            Buckets::List(list) => list,
        };
        if let Some(pair) = list.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Some(format!("buckets go up, but {} is followed by {}", pair[0], pair[1]));
        }
        match (list.first(), list.last()) {
            (Some(0), _) => Some("a bucket of length 0 holds no sequence; use at least 1".into()),
            (_, Some(&last)) if last < longest => {
                Some(format!("the largest bucket is {last}, but the longest of `lengths` is {longest}"))
            }
            (_, None) => {
                Some("there are no buckets in the list; give at least one, the longest length".into())
            }
            _ => None,
        }
    }

    /// The smallest bucket that holds a length; the longest, if that is nearer.
    fn of(&self, length: usize, longest: usize) -> usize {
        let bucket = match self {
            Buckets::Multiples(unit) => length.checked_next_multiple_of(*unit),
            Buckets::List(list) => list.get(list.partition_point(|&bucket| bucket < length)).copied(),
        };
        bucket.map_or(longest, |bucket| bucket.min(longest))
    }
}

impl Trainer {
    /// The length of the step that sequences of a length run in.
    pub(super) fn bucket(&self, length: usize) -> usize {
        match (&self.buckets, self.longest()) {
            (Some(buckets), Some(longest)) => buckets.of(length, longest),
            _ => length,
        }
    }

    /// The lengths of all steps that sequences of these lengths run in, rising.
    pub(super) fn bucketed(&self, lengths: &RangeInclusive<usize>) -> impl Iterator<Item = usize> {
        let (first, longest) = (self.bucket(*lengths.start()), *lengths.end());
        std::iter::successors(Some(first), move |&last| (last < longest).then(|| self.bucket(last + 1)))
    }

    /// Refuses buckets that do not hold the lengths, and models and losses in which padding would show.
    pub(super) fn check_buckets(&self, data: &Dataset) -> Result<()> {
        let Some(buckets) = &self.buckets else { return Ok(()) };
        let refused = |message: String| Err(Error::new(ErrorKind::Argument, message));
        let Some(longest) = self.longest() else {
            return refused("buckets are what lengths are rounded up to: give `lengths` as well".into());
        };
        if let Some(complaint) = buckets.complaint(longest) {
            return refused(complaint);
        }
        let labelled =
            |target: &plimsoll_data::Field| target.element() == Element::I32 && !target.shape().is_empty();
        if self.loss != Loss::SparseCrossEntropy || !data.fields().get(1).is_some_and(labelled) {
            return refused(format!(
                "buckets need a label for every token, so that padding can be told from it: i32 targets under the loss \
                 `{}`; this loss is `{}`, of {}",
                Loss::SparseCrossEntropy,
                self.loss,
                data.fields().get(1).map_or("no target".into(), |field| format!("`{}`", field.name()))
            ));
        }
        let step = self.step(data)?;
        if step.has_batch_statistics() {
            return refused(
                "buckets pad sequences, and statistics of the batch would count the padding: use layer norm in place \
                 of batch norm, or no buckets"
                    .into(),
            );
        }
        if self.sees_all(data)? {
            return refused(
                "buckets pad sequences at their end, and attention that is not causal would see the padding: make it \
                 causal, or use no buckets"
                    .into(),
            );
        }
        Ok(())
    }
}

//! What to say when a run would fit its device, but not with so little of the host: what it pins there, and what would fit.

use super::advice::Least;
use super::fit::Planner;
use crate::{Error, ErrorKind, Result};
use plimsoll_memory::format_bytes;

/// The part of a budget that is near enough to the least that fits.
const NEAR_ENOUGH: u64 = 32;

impl Planner<'_> {
    /// Whether so much of the device is enough, and only the host has too little.
    pub(super) fn would_fit_with_more_of_host(&self, budget: u64) -> Result<bool> {
        if self.target.host_budget.is_none() {
            return Ok(false);
        }
        let fits = self.plain()?.peak_bytes <= budget;
        Ok(fits || (self.lower_bound()?.bytes <= budget && self.candidate_within(budget, None)?.is_some()))
    }

    /// The error that says why a budget of the host does not do, with a budget of the device or without one.
    pub(crate) fn too_little_of_host(&self, budget: Option<u64>) -> Result<Error> {
        let host = self.target.host_budget.unwrap_or(0);
        let plain = self.plain()?;
        let of_device = budget.unwrap_or(u64::MAX);
        // As it is it stages inputs alone.
        let without_remedies = (plain.peak_bytes <= of_device).then_some(plain.host_use);
        let with_remedies = self.candidate_within(of_device, None)?.map(|of| of.host_use);
        let needs = [without_remedies, with_remedies].into_iter().flatten().min_by_key(|of| of.bytes());
        let needs = needs.unwrap_or(plain.host_use);
        let within = budget.map_or(String::new(), |bytes| {
            format!(" within the budget of {} ({bytes} bytes)", format_bytes(bytes))
        });
        let mut message = format!(
            "the run does not fit the host budget of {} ({host} bytes): the fastest plan{within} takes {needs} of the host",
            format_bytes(host),
        );
        let enough = self.least_host(of_device, host, needs.bytes())?;
        message += &format!(
            "\nwhat would fit:\n  a host budget of {} ({enough} bytes) or more",
            format_bytes(enough)
        );
        if let Some(budget) = budget
            && let Some(more) = self.least_device(budget)?
        {
            let with = "with this host budget";
            message += &format!("\n  a budget of {} ({more} bytes) or more, {with}", format_bytes(more));
        }
        Ok(Error::new(ErrorKind::Budget, message))
    }

    /// A budget of the host that is enough for so much of the device, where `low` is too little and `high` enough.
    fn least_host(&self, budget: u64, mut low: u64, mut high: u64) -> Result<u64> {
        while high - low > high / NEAR_ENOUGH {
            let middle = low.midpoint(high);
            match self.candidate_within(budget, Some(middle))? {
                Some(candidate) => high = candidate.host_use.bytes(),
                None => low = middle,
            }
        }
        Ok(high)
    }

    /// A budget of the device that is enough for what there is of the host, where `low` is too little; `None` if none is.
    fn least_device(&self, mut low: u64) -> Result<Option<u64>> {
        let plain = self.plain()?;
        let mut high = match self.has_room_on_host(plain.host_use) {
            true => plain.peak_bytes,
            false => match self.candidate(u64::MAX)? {
                Some(candidate) => candidate.peak_bytes,
                None => return Ok(None),
            },
        };
        while high > low && high - low > high / NEAR_ENOUGH {
            let middle = low.midpoint(high);
            match self.candidate(middle)? {
                Some(candidate) => high = candidate.peak_bytes,
                None => low = middle,
            }
        }
        Ok(Some(high))
    }

    /// The least of the device that is known to be enough for so much of the host, where `least` is with as much of that as
    /// helps.
    pub(super) fn least_with_host(&self, least: Least, host: u64) -> Result<Least> {
        if self.candidate_within(least.bytes, Some(host))?.is_some() {
            return Ok(least);
        }
        let bytes = self.least_device(least.bytes)?;
        let because = format!(
            "which is set by the host budget of {}: with more of the host it would be {}",
            format_bytes(host),
            format_bytes(least.bytes)
        );
        match bytes {
            Some(bytes) => Ok(Least { bytes, because }),
            None => Err(self.too_little_of_host(None)?),
        }
    }
}

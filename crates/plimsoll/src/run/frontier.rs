//! The frontier of a run: what less memory costs in time.

use super::fit::Planner;
use crate::Result;
use crate::forecast::frontier::{FrontierPoint, FrontierReport};
use crate::forecast::process_use::ProcessUse;
use crate::forecast::remedy::Remedy;
use plimsoll_plan::Remedies;

/// How many budgets a frontier has, from the least to what is taken without one.
const BUDGETS: u64 = 11;

impl Planner<'_> {
    /// What the run costs in time at budgets from the least to what it takes without one. `budget` is the one that was
    /// asked about, if any was.
    ///
    /// `beside` are the bytes that a budget bounds beside the arena.
    pub(crate) fn report(&self, budget: Option<u64>, beside: u64) -> Result<FrontierReport> {
        let plain = self.plain()?;
        let floor = self.least()?;
        let (most, least) = (plain.peak_bytes.max(floor.bytes), floor.bytes);
        let as_it_is = self.has_room_on_host(plain.host_use);
        let mut points: Vec<FrontierPoint> = vec![];
        for n in (0..BUDGETS).rev() {
            let asked = least + (most - least) * n / (BUDGETS - 1);
            let point = if asked >= plain.peak_bytes && as_it_is {
                Some(FrontierPoint {
                    budget_bytes: asked + beside,
                    peak_bytes: plain.peak_bytes,
                    host_bytes: plain.host_use.bytes(),
                    step_seconds: plain.seconds,
                    micro_batches: plain.main_parts(),
                    remedies: Remedy::list(&Remedies::default(), plain.main_parts(), plain.choice.chunked),
                })
            } else {
                self.candidate(asked)?.map(|candidate| FrontierPoint {
                    budget_bytes: asked + beside,
                    peak_bytes: candidate.peak_bytes,
                    host_bytes: candidate.host_bytes(),
                    step_seconds: candidate.seconds,
                    micro_batches: candidate.main_parts(),
                    remedies: candidate.remedies(),
                })
            };
            points.extend(point);
        }
        let kernels = plain.programs.iter().map(|(_, of)| of.program.plan().order.len() as u64).sum();
        let of_process = || ProcessUse::new(floor.bytes, kernels).bytes().saturating_add(beside);
        let floor_needs_bytes = match self.target.device_use(floor.bytes, kernels)? {
            Some(of_device) => of_device.bytes(),
            None if self.target.is_process() => of_process(),
            None => floor.bytes,
        };
        Ok(FrontierReport {
            points,
            floor_needs_bytes,
            memory_bytes: self.target.memory_bytes,
            floor_bytes: floor.bytes + beside,
            floor_reason: floor.because,
            no_plan_below_bytes: self.lower_bound()?.bytes + beside,
            no_plan_below_reason: self.lower_bound()?.because.clone(),
            budget_bytes: budget,
            host_budget_bytes: self.target.host_budget,
            device: self.target.profile.name.clone(),
        })
    }
}

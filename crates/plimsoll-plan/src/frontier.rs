//! Making it fit: the frontier between memory and time, and the plan for a budget.
//!
//! Each descent goes through all budgets, and the best points of all descents are the frontier; a budget picks its
//! fastest point that fits. So a larger budget never gives a slower plan and a smaller one never a larger plan, by
//! construction: both choose from one list. Far down, where few budgets are, the list is made as far as a budget asks: what
//! is on it is the same for all.
//! Of work with many kernels the end of the list, the plan that takes the least, is found first, by a descent of its own: so that
//! a budget which is too small is refused without a search for the fastest plan that would fit it.
//! Offsets come last. If packing needs a little more than the live bytes, the next point is taken.

use crate::Error;
use crate::costs::{Copies, Costs};
use crate::plan::{Options, orders, plan_in_order};
use crate::recompute::descent::{Beginnings, Offload, Point, descend, is_brief, priced, prices};
use crate::recompute::far::{Far, straight_down};
use crate::schedule::Schedule;
use crate::schedule::order::{
    Dependencies, Turn, early_copies, freeing_early, late_updates, patient_updates,
};
use crate::schedule::search_context::SearchContext;
use plimsoll_ir::{BufferIndex, Home, Keep, LaunchSource, Plan, Work};
use std::cell::{OnceCell, RefCell};
use std::ops::Range;
use std::rc::Rc;

/// Work with remedies applied, and its plan.
#[derive(Debug, Clone)]
pub struct Fitted {
    /// The work that is run: that of the step, with what is made again and copied.
    pub work: Work,
    /// Where each of its kernels comes from.
    pub sources: Vec<LaunchSource>,
    /// The buffer of the step that each of its buffers is, or is a copy of.
    pub origins: Vec<BufferIndex>,
    /// When and where.
    pub plan: Plan,
    /// The seconds that a step takes by the costs.
    pub seconds: f64,
    /// What was done.
    pub remedies: Remedies,
}

/// What a plan does to fit, and what that costs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Remedies {
    /// How many launches make something again.
    pub recomputed: usize,
    /// The bytes they make.
    pub recomputed_bytes: u64,
    /// The seconds they take.
    pub recompute_seconds: f64,
    /// The bytes of states that are kept in host memory.
    pub offloaded_state_bytes: u64,
    /// The seconds that copies of those take in a step, beside kernels or not.
    pub state_copy_seconds: f64,
    /// The bytes of other values that go to host memory and back in every step.
    pub offloaded_bytes: u64,
    /// The seconds that copies of those take.
    pub copy_seconds: f64,
}

/// Plans of one piece of work, from the most memory to the least.
pub struct Frontier {
    work: Work,
    costs: Costs,
    options: Options,
    offload: Offload,
    /// What is found in one search.
    near: OnceCell<Near>,
    /// What is below `near`, once it is asked for.
    far: RefCell<Option<Far>>,
    /// The last of all points and its plan, where it is found by itself.
    least: OnceCell<Option<(Point, Fitted)>>,
    far_bytes: OnceCell<u64>,
    /// How many prices of copies have been tried, or will be where nothing has been asked for yet.
    tried: usize,
    /// Whether it was searched as if copies cost something else.
    supposed: bool,
}

/// The points of a frontier that are found in one search.
struct Near {
    points: Vec<Rc<Point>>,
    /// The end, which points that are searched for later may beat.
    end: Vec<Point>,
}

/// An update that frees as little as a scalar comes last in any case.
const SCALAR_UPDATE_BYTES: u64 = 64;

/// The prices of copies that are tried at first, where there are few kernels.
const PRICES_AT_FIRST: usize = 4;

/// Kernels times prices of copies that are tried at first.
const EFFORT: usize = 3300;

/// What was searched at once ends in points that take less than this part more than the least of them.
const END_SHARE: u64 = 4;

/// Where there are more kernels, the plan that takes the least is found by itself.
const MANY_KERNELS: usize = 1000;

/// Of such work, what takes a smaller part of the bytes of all buffers than this is far down.
const FAR_SHARE: u64 = 16;

impl Frontier {
    /// Finds the frontier of some work, with an effort that goes by its size: in under a second for a thousand
    /// kernels on two cores.
    pub fn new(work: Work, costs: Costs, options: &Options, offload: Offload) -> Frontier {
        let tried = (EFFORT / work.kernels.len().max(1)).clamp(1, prices(offload).min(PRICES_AT_FIRST));
        Frontier {
            work,
            costs,
            options: *options,
            offload,
            near: OnceCell::new(),
            far: RefCell::default(),
            least: OnceCell::new(),
            far_bytes: OnceCell::new(),
            tried,
            supposed: false,
        }
    }

    /// Searches on for as long as `keep_going` says yes and there is something left to try. It is asked now and
    /// then; nothing that is known gets worse.
    pub fn improve(&mut self, keep_going: &dyn Fn() -> bool) {
        while self.tried < prices(self.offload) && keep_going() {
            let known = self.take_known();
            self.near = self.search(self.tried..self.tried + 1, known).into();
            self.tried += 1;
        }
    }

    /// Searches again as if copies cost something else, and adds what that finds at its true price. How fast copies are
    /// decides which plans are worth their time, but it is no reason to call a budget too small: where it was measured on
    /// a disk that others use, the same budget would fit one day and not the next.
    pub fn improve_as_if(&mut self, copies: Copies) {
        let costs = Costs { copies, ..self.costs.clone() };
        let before = self.take_known();
        let supposed = SearchContext::new(&self.work, &costs, self.options.alignment);
        let context = SearchContext::new(&self.work, &self.costs, self.options.alignment);
        let from = self.beginnings(&supposed);
        let mut found = descend(&supposed, &from, self.offload, 0..1, vec![]);
        if let Some(above) = found.first().cloned() {
            found = Far::new(&supposed, from.in_turn, self.offload, &above, found, None).all(&supposed);
        }
        let known = found.into_iter().map(|point| priced(&context, point.schedule));
        let known = known.chain(before);
        (self.supposed, self.least) = (true, OnceCell::new());
        self.near = self.search(0..0, known.collect()).into();
    }

    /// Searches at the prices of those numbers; what is known is part of what is found.
    fn search(&self, prices: Range<usize>, known: Vec<Point>) -> Near {
        let context = SearchContext::new(&self.work, &self.costs, self.options.alignment);
        let mut found = descend(&context, &self.beginnings(&context), self.offload, prices, known);
        let least = found.last().map_or(0, |point| point.live_bytes);
        let end = (least + least / END_SHARE).max(self.far_bytes());
        let near = found.partition_point(|point| point.live_bytes >= end).max(1);
        let end = found.split_off(near.min(found.len()));
        Near { points: found.into_iter().map(Rc::new).collect(), end }
    }

    /// What is found in one search, which is made the first time.
    fn found(&self) -> &Near {
        self.near.get_or_init(|| self.search(0..self.tried, vec![]))
    }

    fn take_known(&mut self) -> Vec<Point> {
        self.found();
        let Some(Near { points, end }) = self.near.take() else { return vec![] };
        let known = points.into_iter().map(Rc::unwrap_or_clone);
        known.chain(self.far.take().map_or(end, Far::into_found)).collect()
    }

    /// Whether the plan that takes the least is found by itself.
    fn is_large(&self) -> bool {
        self.work.kernels.len() > MANY_KERNELS && !self.supposed
    }

    /// What no point takes less than that is found in one search: less than the plan without remedies takes in any case.
    fn far_bytes(&self) -> u64 {
        if !self.is_large() {
            return 0;
        }
        *self.far_bytes.get_or_init(|| {
            let context = SearchContext::new(&self.work, &self.costs, self.options.alignment);
            let Beginnings { written, early, .. } = self.beginnings(&context);
            let plain = [written, early].map(|schedule| priced(&context, schedule).live_bytes);
            let bytes = self.work.buffers.iter().map(|b| b.bytes).sum::<u64>();
            (bytes / FAR_SHARE).min(plain[0].min(plain[1]) / 2)
        })
    }

    /// The last of all points, where it is found by itself.
    fn least(&self) -> Result<Option<&(Point, Fitted)>, Error> {
        if self.least.get().is_none() {
            let least = match self.is_large() {
                true => {
                    let context = SearchContext::new(&self.work, &self.costs, self.options.alignment);
                    let point = straight_down(&context, &self.beginnings(&context), self.offload);
                    let fitted = self.fit(&point)?;
                    Some((point, fitted))
                }
                false => None,
            };
            let _ = self.least.set(least);
        }
        Ok(self.least.get().and_then(Option::as_ref))
    }

    /// Whether a budget far down is less than any plan takes. Elsewhere one has to search to know.
    ///
    /// # Errors
    /// If the work needs more bytes than can be addressed.
    pub fn is_out_of_reach(&self, budget: u64) -> Result<bool, Error> {
        if budget >= self.far_bytes() {
            return Ok(false);
        }
        Ok(self.least()?.is_some_and(|(_, least)| least.plan.peak_bytes > budget))
    }

    /// The plan that takes the least.
    ///
    /// # Errors
    /// If the work needs more bytes than can be addressed.
    pub fn smallest(&self) -> Result<Option<Fitted>, Error> {
        match self.least()? {
            Some((point, fitted)) if point.live_bytes < self.far_bytes() => Ok(Some(fitted.clone())),
            _ => self.at(self.points().count().saturating_sub(1)),
        }
    }

    /// A point below `near`, by its number there. None is faster than those above it, so that a budget which one of those fits
    /// need not know it.
    fn far(&self, point: usize) -> Option<Rc<Point>> {
        let Near { points, end } = self.found();
        let above = points.last()?;
        let mut far = self.far.borrow_mut();
        if let Some(far) = far.as_ref().filter(|far| far.is_done() || far.known(point).is_some()) {
            return far.known(point);
        }
        let context = SearchContext::new(&self.work, &self.costs, self.options.alignment);
        let far = far.get_or_insert_with(|| {
            let start = self.beginnings(&context).in_turn;
            Far::new(&context, start, self.offload, above, end.clone(), Some(self.far_bytes()))
        });
        far.point(&context, point, || match self.is_large() {
            true => self.least().ok().flatten().map(|(point, _)| point.clone()),
            false => Some(straight_down(&context, &self.beginnings(&context), self.offload)),
        })
    }

    /// The schedules that descents begin with.
    fn beginnings(&self, context: &SearchContext<'_>) -> Beginnings {
        let [written, early] = orders(&self.work);
        let patient = patient_updates(&self.work, context.costs, &early);
        let in_turn = freeing_early(&self.work, &Dependencies::of(&self.work), Turn::Oldest);
        let small = self.options.together_bytes;
        let [written, early, patient, in_turn] = [written, early, patient, in_turn].map(|order| {
            let order = early_copies(&self.work, order, small);
            let order = late_updates(&self.work, order, small.max(SCALAR_UPDATE_BYTES));
            Schedule::new(context, &order)
        });
        Beginnings { written, early, patient, in_turn }
    }

    /// Whether the search was cut short for the size of the work: fewer steps down, or fewer prices of copies than for
    /// smaller work. [`Frontier::improve`] tries the other prices.
    pub fn is_brief(&self) -> bool {
        is_brief(self.work.kernels.len()) || self.tried < prices(self.offload).min(PRICES_AT_FIRST)
    }

    /// The work that was planned.
    pub fn work(&self) -> &Work {
        &self.work
    }

    /// The most bytes that live at once and the seconds of a step, from the most memory to the least. Those far down are
    /// searched for as they come.
    pub fn points(&self) -> impl Iterator<Item = (u64, f64)> {
        (0..).map_while(|point| self.point(point))
    }

    /// How many points are known without a search far down. Those that come after are no faster than any of these.
    pub fn near(&self) -> usize {
        self.found().points.len()
    }

    /// One of the [points](Self::points), by its number.
    pub fn point(&self, point: usize) -> Option<(u64, f64)> {
        self.known(point).map(|of| (of.live_bytes, of.seconds))
    }

    /// Seconds that this point and those after it take at least, as far as that is known without a search.
    pub fn seconds_from(&self, point: usize) -> f64 {
        let far = self.far.borrow();
        let points = &self.found().points;
        let near = || points.get(point).or(points.last()).map_or(0.0, |point| point.seconds);
        match (point.checked_sub(points.len()), &*far) {
            (Some(beyond), Some(far)) => far.seconds_from(beyond),
            _ => near(),
        }
    }

    fn known(&self, point: usize) -> Option<Rc<Point>> {
        let near = &self.found().points;
        match near.get(point) {
            Some(near) => Some(Rc::clone(near)),
            None => self.far(point - near.len()),
        }
    }

    /// The fastest plan within a budget; `None` if none is.
    ///
    /// # Errors
    /// If the work needs more bytes than can be addressed.
    pub fn within(&self, budget: u64) -> Result<Option<Fitted>, Error> {
        if self.is_out_of_reach(budget)? {
            return Ok(None);
        }
        for point in 0.. {
            let Some(known) = self.known(point) else { break };
            if known.live_bytes > budget {
                continue;
            }
            if let Some(fitted) = self.at(point)?.filter(|fitted| fitted.plan.peak_bytes <= budget) {
                return Ok(Some(fitted));
            }
        }
        Ok(None)
    }

    /// The plan of a point, by its number; `None` as well where luck in packing has it take less than the least plan, which no
    /// budget may.
    ///
    /// # Errors
    /// If the work needs more bytes than can be addressed.
    pub fn at(&self, point: usize) -> Result<Option<Fitted>, Error> {
        let Some(known) = self.known(point) else { return Ok(None) };
        if point < self.near() || known.live_bytes >= self.far_bytes() {
            return self.fit(&known).map(Some);
        }
        match self.least()? {
            // The last of all, if something else is not as small.
            Some((least, fitted)) if least.live_bytes >= known.live_bytes => {
                Ok(Some(Fitted { seconds: known.seconds, ..fitted.clone() }))
            }
            Some((_, least)) => {
                Ok(Some(self.fit(&known)?).filter(|f| f.plan.peak_bytes >= least.plan.peak_bytes))
            }
            None => self.fit(&known).map(Some),
        }
    }

    fn fit(&self, point: &Point) -> Result<Fitted, Error> {
        let context = SearchContext::new(&self.work, &self.costs, self.options.alignment);
        let (work, sources, origins) = point.schedule.expand(&context);
        let order = (0..work.kernels.len() as u32).collect();
        let plan = plan_in_order(&work, order, &self.options)?;
        let remedies = remedies(&context, &work, &sources);
        Ok(Fitted { work, sources, origins, plan, seconds: point.seconds, remedies })
    }
}

/// What a schedule does to fit.
fn remedies(context: &SearchContext<'_>, work: &Work, sources: &[LaunchSource]) -> Remedies {
    let mut remedies = Remedies::default();
    for (kernel, &source) in work.kernels.iter().zip(sources) {
        match source {
            LaunchSource::Again(_) | LaunchSource::Rematerialize(_) => {
                remedies.recomputed += 1;
                let made = kernel.writes.iter().map(|&b| work.buffers[b as usize].bytes);
                remedies.recomputed_bytes += made.sum::<u64>();
                remedies.recompute_seconds += context.seconds(source);
            }
            LaunchSource::Copy => {
                let [from, to] = [kernel.reads[0], kernel.writes[0]].map(|b| &work.buffers[b as usize]);
                let seconds = context.costs.copies.seconds(to.bytes);
                if from.keep == Keep::Always || to.keep == Keep::Always {
                    remedies.state_copy_seconds += seconds;
                } else {
                    remedies.copy_seconds += seconds;
                    remedies.offloaded_bytes += if to.home == Home::Host { to.bytes } else { 0 };
                }
            }
            LaunchSource::Kernel(_) | LaunchSource::Wait => {}
        }
    }
    let on_host = work.buffers.iter().filter(|b| b.home == Home::Host && b.keep == Keep::Always);
    remedies.offloaded_state_bytes = on_host.map(|b| b.bytes).sum();
    remedies
}

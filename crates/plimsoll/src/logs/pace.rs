//! How often to log.

use std::time::{Duration, Instant};

/// Which steps are logged: every so many, if that was asked for. Otherwise steps are thinned by time, because a step may
/// take microseconds or minutes: a log then takes at most a two-hundredth of training's time, has about a thousand points
/// for the beginning and for each e-fold of the time after it, and at least one for each second or step, whichever is
/// longer. The first step and the last are logged in any case.
///
/// ```
/// use plimsoll::logs::Pace;
/// let mut pace = Pace::every(10);
/// let logged = (1..=25).filter(|&step| pace.is_due(step, 25)).collect::<Vec<_>>();
/// assert_eq!(logged, [1, 10, 20, 25]);
/// ```
#[derive(Debug, Clone)]
pub struct Pace {
    every: Option<usize>,
    begun: Option<Instant>,
    /// When the point that is being written was begun.
    point: Instant,
    due: Instant,
}

/// How many times as long as a point took to write nothing is written after it.
const COST: u32 = 200;
/// The points of the time so far.
const POINTS: u32 = 1000;
/// What is not waited longer for.
const LONGEST: Duration = Duration::from_secs(1);

impl Pace {
    /// As often as costs next to nothing.
    pub fn by_time() -> Pace {
        let now = Instant::now();
        Pace { every: None, begun: None, point: now, due: now }
    }

    /// Steps that are multiples of this, whatever it costs; 0 stands for 1.
    pub fn every(steps: usize) -> Pace {
        Pace { every: Some(steps.max(1)), ..Pace::by_time() }
    }

    /// Whether to log a step, the `last` of which is known.
    pub fn is_due(&mut self, step: usize, last: usize) -> bool {
        let is_end = self.begun.is_none() || step == last;
        if let Some(every) = self.every {
            self.begun.get_or_insert(self.point);
            return is_end || step.is_multiple_of(every);
        }
        let now = Instant::now();
        self.begun.get_or_insert(now);
        if is_end || now >= self.due {
            self.point = now;
            return true;
        }
        false
    }

    /// The point that was due has been written.
    pub fn written(&mut self) {
        if let (None, Some(begun)) = (self.every, self.begun) {
            let now = Instant::now();
            let interval = ((now - begun) / POINTS).min(LONGEST);
            self.due = now + interval.max((now - self.point) * COST);
        }
    }
}

impl Default for Pace {
    fn default() -> Pace {
        Pace::by_time()
    }
}

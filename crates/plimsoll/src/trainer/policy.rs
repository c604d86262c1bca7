//! What training does by what it measures: when held-out data is measured and checkpoints are saved, when to stop, which
//! weights are the best, when rates fall.
//!
//! Every decision is a function of the metrics so far, which checkpoints have. So a run that goes on decides as one that
//! never stopped, and nothing else need be saved.

use crate::checkpoint::History;
use crate::{Error, ErrorKind, Result};
use std::fmt;
use std::str::FromStr;

/// How often something is done.
///
/// ```
/// use plimsoll::Every;
/// assert_eq!("epoch".parse::<Every>()?, Every::Epoch);
/// assert_eq!("500".parse::<Every>()?, Every::Steps(500));
/// assert_eq!("90s".parse::<Every>()?, Every::Seconds(90.0));
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Every {
    /// After every epoch.
    Epoch,
    /// After so many steps.
    Steps(usize),
    /// After the step at whose end so many seconds have passed.
    Seconds(f64),
    /// Not at all.
    Never,
}

impl Every {
    /// Whether it is due after so many steps, the last of which was so many seconds ago.
    pub(super) fn is_due(self, step: usize, steps_per_epoch: usize, seconds: impl Fn() -> f64) -> bool {
        match self {
            Every::Epoch => step.is_multiple_of(steps_per_epoch.max(1)),
            Every::Steps(steps) => step.is_multiple_of(steps.max(1)),
            Every::Seconds(limit) => seconds() >= limit,
            Every::Never => false,
        }
    }
}

impl fmt::Display for Every {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Every::Epoch => f.write_str("epoch"),
            Every::Steps(steps) => write!(f, "{steps}"),
            Every::Seconds(seconds) => write!(f, "{seconds}s"),
            Every::Never => f.write_str("never"),
        }
    }
}

impl FromStr for Every {
    type Err = Error;

    fn from_str(text: &str) -> Result<Every> {
        let every = match text {
            "epoch" => Some(Every::Epoch),
            "never" => Some(Every::Never),
            _ => match text.strip_suffix('s') {
                Some(seconds) => seconds.parse().ok().filter(|s| (0.0..1e9).contains(s)).map(Every::Seconds),
                None => text.parse().ok().filter(|&steps| steps > 0).map(Every::Steps),
            },
        };
        every.ok_or_else(|| {
            let message = format!(
                "`{text}` is not how often something is done: use epoch, a number of steps such as 500, a time such as \
                 60s, or never"
            );
            Error::new(ErrorKind::Argument, message)
        })
    }
}

/// A metric of held-out data that is to become better.
#[derive(Debug, Clone, PartialEq)]
pub struct Watched {
    /// What it is called.
    pub metric: String,
    /// Whether less is better.
    pub lower_is_better: bool,
}

/// The metrics of which less is better. Of all others, more is.
const LOWER_IS_BETTER: [&str; 4] = ["loss", "perplexity", "mae", "rmse"];

impl From<&str> for Watched {
    /// A metric by its name. Less is better of losses, errors and perplexity, more of all others.
    fn from(metric: &str) -> Watched {
        Watched { metric: metric.into(), lower_is_better: LOWER_IS_BETTER.contains(&metric) }
    }
}

impl From<String> for Watched {
    fn from(metric: String) -> Watched {
        metric.as_str().into()
    }
}

impl Watched {
    /// Whether a value is better than another by more than `by`.
    fn improves(&self, value: f64, best: f64, by: f64) -> bool {
        if self.lower_is_better { value < best - by } else { value > best + by }
    }

    /// The step of the best value so far, of those steps that are wanted.
    pub(super) fn best(&self, history: &History, wanted: impl Fn(u64) -> bool) -> Option<(u64, f64)> {
        history.of(&self.metric).filter(|(step, _)| wanted(*step)).fold(
            None,
            |best, (step, value)| match best {
                Some((_, known)) if !self.improves(value, known, 0.0) => best,
                _ => Some((step, value)),
            },
        )
    }

    /// Refuses a metric that is not measured.
    pub(super) fn check(&self, history: &History) -> Result<()> {
        if history.names.contains(&self.metric) {
            return Ok(());
        }
        let known = history.names.join(", ");
        let message = format!("`{}` is not measured on held-out data; {known} are", self.metric);
        Err(Error::new(ErrorKind::Name, message))
    }
}

/// Ends training when a metric of held-out data has stopped to improve.
#[derive(Debug, Clone, PartialEq)]
pub struct EarlyStopping {
    /// The metric.
    pub watched: Watched,
    /// How many times in a row it may be no better than its best.
    pub patience: usize,
    /// By how much it has to be better to be so.
    pub min_delta: f64,
}

impl EarlyStopping {
    /// Why training is to end now, if it is.
    pub(super) fn reason(&self, history: &History) -> Option<String> {
        let watch = Patience { watched: &self.watched, patience: self.patience, by: self.min_delta };
        let (lapses, (step, best)) = watch.run(history, false)?;
        (lapses > 0).then(|| {
            let Watched { metric, .. } = &self.watched;
            format!("{metric} has not been better than {best:.6}, of step {step}, {} times", self.patience)
        })
    }
}

/// Multiplies all rates when a metric of held-out data has stopped to improve.
#[derive(Debug, Clone, PartialEq)]
pub struct ReduceOnPlateau {
    /// The metric.
    pub watched: Watched,
    /// How many times in a row it may be no better than its best.
    pub patience: usize,
    /// What rates are multiplied by.
    pub factor: f64,
}

impl ReduceOnPlateau {
    /// Whether rates fall after the last measurement.
    pub(super) fn is_due(&self, history: &History) -> bool {
        let watch = Patience { watched: &self.watched, patience: self.patience, by: 0.0 };
        let lapses = |history: &History| watch.run(history, true).map_or(0, |(lapses, _)| lapses);
        let before = history.validations.len().saturating_sub(1);
        let earlier = History {
            names: history.names.clone(),
            validations: history.validations[..before].to_vec(),
            ..History::default()
        };
        lapses(history) > lapses(&earlier)
    }
}

/// How often a metric was no better than its best so many times in a row.
struct Patience<'a> {
    watched: &'a Watched,
    patience: usize,
    by: f64,
}

impl Patience<'_> {
    /// The number of times, and the best value with its step. With `again`, waiting begins anew after each.
    fn run(&self, history: &History, again: bool) -> Option<(usize, (u64, f64))> {
        let mut values = history.of(&self.watched.metric);
        let mut best = values.next()?;
        let (mut waited, mut lapses) = (0, 0);
        for (step, value) in values {
            if self.watched.improves(value, best.1, self.by) {
                (best, waited) = ((step, value), 0);
                continue;
            }
            waited += 1;
            if waited >= self.patience.max(1) {
                lapses += 1;
                waited = if again { 0 } else { waited };
            }
        }
        // Without beginning anew only the present matters: what improved since is forgiven.
        let lapses = if again { lapses } else { usize::from(waited >= self.patience.max(1)) };
        Some((lapses, best))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Measured;

    fn history(values: &[f64]) -> History {
        let validations = values.iter().zip(1..).map(|(&value, step)| Measured { step, values: vec![value] });
        History { names: vec!["loss".into()], validations: validations.collect(), ..History::default() }
    }

    #[test]
    fn training_stops_when_a_metric_was_no_better_so_many_times_in_a_row() {
        let stopping = EarlyStopping { watched: "loss".into(), patience: 2, min_delta: 0.01 };
        assert_eq!(stopping.reason(&history(&[])), None);
        assert_eq!(stopping.reason(&history(&[1.0, 0.995])), None);
        assert!(stopping.reason(&history(&[1.0, 0.995, 0.991])).unwrap().contains("1.000000, of step 1"));
        assert_eq!(stopping.reason(&history(&[1.0, 0.995, 0.9])), None);
        assert!(stopping.reason(&history(&[1.0, f64::NAN, f64::NAN])).is_some());
    }

    #[test]
    fn rates_fall_once_for_every_time_that_patience_ends() {
        let plateau = ReduceOnPlateau { watched: "loss".into(), patience: 2, factor: 0.5 };
        let values = [1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.6, 0.6];
        let due: Vec<bool> = (1..=values.len()).map(|n| plateau.is_due(&history(&values[..n]))).collect();
        assert_eq!(due, [false, false, true, false, true, false, false, true]);
    }

    #[test]
    fn the_best_is_the_first_of_equals_and_more_is_better_but_of_errors() {
        assert_eq!(Watched::from("loss").best(&history(&[3.0, 1.0, 1.0, 2.0]), |_| true), Some((2, 1.0)));
        let accuracy = Watched { metric: "loss".into(), lower_is_better: false };
        assert_eq!(accuracy.best(&history(&[3.0, 1.0, 3.0]), |_| true), Some((1, 3.0)));
        assert_eq!(accuracy.best(&history(&[3.0, 1.0, 2.0]), |step| step != 1), Some((3, 2.0)));
        assert!(!Watched::from("accuracy").lower_is_better && Watched::from("rmse").lower_is_better);
    }
}

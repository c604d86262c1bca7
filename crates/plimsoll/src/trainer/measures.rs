//! Metrics on the host: the sums that steps report, added up, and what they come to.

use crate::metric::Metric;
use crate::run::EndedStep;

/// Metrics of one step, or of many together.
pub(super) struct Measures {
    metrics: Vec<Metric>,
    /// The elements of each metric's sums so far.
    sums: Vec<Vec<f64>>,
    values: Vec<(String, f64)>,
}

impl Measures {
    /// Of these metrics, in the order in which steps report their sums.
    pub(super) fn new(metrics: impl IntoIterator<Item = Metric>) -> Measures {
        let metrics: Vec<Metric> = metrics.into_iter().collect();
        let values = metrics.iter().map(|metric| (metric.name().to_string(), 0.0)).collect();
        Measures { sums: vec![vec![]; metrics.len()], metrics, values }
    }

    /// Adds what a step reported.
    pub(super) fn add(&mut self, ended: &EndedStep) {
        for (sums, more) in self.sums.iter_mut().zip(ended.sums()) {
            sums.resize(more.len(), 0.0);
            sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
    }

    /// The values of what was added, by name. Sums begin anew.
    pub(super) fn take(&mut self) -> &[(String, f64)] {
        for ((metric, sums), (_, value)) in self.metrics.iter().zip(&mut self.sums).zip(&mut self.values) {
            *value = metric.value(sums);
            sums.fill(0.0);
        }
        &self.values
    }
}

//! How near kernels of each kind come to the ideal: a table of what was measured, and what lies between.
//!
//! A rate and a bandwidth say how long a kernel would take that does nothing but multiply or move bytes. Real ones take
//! longer, some many times so, and by how much depends on what they do and on how large they are. What a kernel's
//! arithmetic and its traffic would take ideally are its coordinates, so that what was measured on one device says
//! something about another, which is ideal elsewhere but no nearer to it.

use plimsoll_ir::Family;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What was measured of one kernel, or of several that are alike.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// What its arithmetic would take, in seconds.
    pub arithmetic: f64,
    /// What its traffic would take, in seconds.
    pub traffic: f64,
    /// The ideal time over the real one.
    pub efficiency: f64,
}

/// What was measured of a device, by family.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EfficiencyTable {
    families: BTreeMap<String, Vec<Measured>>,
}

/// How many of the nearest measurements count.
const NEIGHBOURS: usize = 4;
/// Times that are shorter are as if they were this long: there, launching is what takes time.
const SHORTEST: f64 = 1e-8;

impl EfficiencyTable {
    /// The name that a family's measurements are kept under.
    pub fn name(family: Family) -> String {
        format!("{}{}", family.name, if family.half { " half" } else { "" })
    }

    /// Adds what was measured of a family.
    pub fn add(&mut self, family: String, measured: Measured) {
        self.families.entry(family).or_default().push(measured);
    }

    /// All there is, by family.
    pub fn families(&self) -> impl Iterator<Item = (&str, &[Measured])> {
        self.families.iter().map(|(name, all)| (name.as_str(), &all[..]))
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.families.is_empty()
    }

    /// How near to the ideal a kernel comes whose arithmetic and traffic would take so long: as those do that were measured
    /// nearest to it, on a logarithmic scale. Of a family of which nothing was measured, as those of the other precision, or
    /// else 1.
    pub fn of(&self, family: Family, arithmetic: f64, traffic: f64) -> f64 {
        let other = Family { half: !family.half, ..family };
        let known = [family, other].into_iter().find_map(|family| self.families.get(&Self::name(family)));
        let Some(known) = known.filter(|known| !known.is_empty()) else { return 1.0 };
        let place = |seconds: f64| seconds.max(SHORTEST).log2();
        let (x, y) = (place(arithmetic), place(traffic));
        let mut nearest: Vec<(f64, f64)> = known
            .iter()
            .map(|m| {
                let distance = (place(m.arithmetic) - x).powi(2) + (place(m.traffic) - y).powi(2);
                (distance, m.efficiency.max(1e-6).ln())
            })
            .collect();
        nearest.sort_by(|a, b| a.0.total_cmp(&b.0));
        nearest.truncate(NEIGHBOURS);
        let weight = |distance: f64| 1.0 / (distance + 0.05).powi(2);
        let total: f64 = nearest.iter().map(|(distance, _)| weight(*distance)).sum();
        let mean = nearest.iter().map(|(distance, log)| weight(*distance) * log).sum::<f64>() / total;
        mean.exp()
    }

    /// The same with one measurement for each cell of a grid of half octaves, so that a table is small and each kind of
    /// kernel counts once, however often it came up.
    #[must_use]
    pub fn condensed(&self) -> EfficiencyTable {
        let mut condensed = EfficiencyTable::default();
        for (name, all) in &self.families {
            let mut cells: BTreeMap<(i64, i64), Vec<Measured>> = BTreeMap::new();
            let cell = |seconds: f64| (2.0 * seconds.max(SHORTEST).log2()).round() as i64;
            for &measured in all {
                cells.entry((cell(measured.arithmetic), cell(measured.traffic))).or_default().push(measured);
            }
            for mut alike in cells.into_values() {
                alike.sort_by(|a, b| a.efficiency.total_cmp(&b.efficiency));
                let Measured { arithmetic, traffic, efficiency } = alike[alike.len() / 2];
                let [arithmetic, traffic, efficiency] = [arithmetic, traffic, efficiency].map(three_digits);
                condensed.add(name.clone(), Measured { arithmetic, traffic, efficiency });
            }
        }
        condensed
    }
}

/// A number to three digits.
fn three_digits(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAMILY: Family = Family { name: "dot", half: true, steps: 1 };

    fn measured(arithmetic: f64, traffic: f64, efficiency: f64) -> Measured {
        Measured { arithmetic, traffic, efficiency }
    }

    #[test]
    fn what_was_measured_is_found_again_and_between_two_lies_something_between() {
        let mut table = EfficiencyTable::default();
        assert_eq!(table.of(FAMILY, 1e-3, 1e-4), 1.0, "of what nothing is known");
        table.add("dot half".into(), measured(1e-3, 1e-4, 0.9));
        table.add("dot half".into(), measured(1e-6, 1e-7, 0.1));
        assert!((table.of(FAMILY, 1e-3, 1e-4) - 0.9).abs() < 0.01);
        assert!((table.of(FAMILY, 1e-6, 1e-7) - 0.1).abs() < 0.01);
        let between = table.of(FAMILY, 3e-5, 3e-6);
        assert!((0.1..0.9).contains(&between), "{between}");
        let single = Family { half: false, ..FAMILY };
        assert_eq!(table.of(single, 1e-3, 1e-4), table.of(FAMILY, 1e-3, 1e-4), "as in the other precision");
    }

    #[test]
    fn a_condensed_table_has_the_median_of_those_that_are_alike() {
        let mut table = EfficiencyTable::default();
        for efficiency in [0.5, 0.52, 0.9] {
            table.add("dot".into(), measured(1e-3, 1e-4, efficiency));
        }
        let condensed = table.condensed();
        let (_, all) = condensed.families().next().expect("a family");
        assert_eq!(all, [measured(1e-3, 1e-4, 0.52)]);
    }
}

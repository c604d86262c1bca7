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
/// What names of families end with whose numbers have two bytes.
const HALF: &str = " half";
/// Times that are shorter are as if they were this long: there, launching is what takes time.
const SHORTEST: f64 = 1e-10;

impl EfficiencyTable {
    /// The name that a family's measurements are kept under.
    pub fn name(family: Family) -> String {
        let class = if family.class.is_empty() { "" } else { ", " };
        format!("{}{class}{}{}", family.name, family.class, if family.half { HALF } else { "" })
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
    /// nearest to it, on a logarithmic scale. Of a class of which nothing was measured, as all of its name do; of such a name,
    /// as those of the other precision, or else 1.
    pub fn of(&self, family: Family, arithmetic: f64, traffic: f64) -> f64 {
        let other = Family { half: !family.half, ..family };
        let mut nearest = Nearest { arithmetic: place(arithmetic), traffic: place(traffic), known: vec![] };
        for family in [family, other] {
            if let Some(known) = self.families.get(&Self::name(family)) {
                nearest.look_at(known);
            }
            if nearest.known.is_empty() {
                self.named(family).for_each(|known| nearest.look_at(known));
            }
            if !nearest.known.is_empty() {
                break;
            }
        }
        nearest.efficiency()
    }

    /// What was measured of all classes of a family.
    fn named(&self, family: Family) -> impl Iterator<Item = &Vec<Measured>> {
        let of_name = move |key: &str| {
            let key = match (family.half, key.strip_suffix(HALF)) {
                (true, Some(key)) => key,
                (false, None) => key,
                _ => return false,
            };
            key.strip_prefix(family.name).is_some_and(|class| class.is_empty() || class.starts_with(", "))
        };
        self.families.iter().filter(move |(key, _)| of_name(key)).map(|(_, known)| known)
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

/// Where a time is on the scale that measurements are compared on.
fn place(seconds: f64) -> f64 {
    seconds.max(SHORTEST).log2()
}

/// The measurements that are nearest to a kernel.
struct Nearest {
    arithmetic: f64,
    traffic: f64,
    /// The squares of distances, the shortest first, and the logarithms of efficiencies.
    known: Vec<(f64, f64)>,
}

impl Nearest {
    fn look_at(&mut self, measured: &[Measured]) {
        for m in measured {
            let distance =
                (place(m.arithmetic) - self.arithmetic).powi(2) + (place(m.traffic) - self.traffic).powi(2);
            let at = self.known.partition_point(|(known, _)| *known <= distance);
            if at < NEIGHBOURS {
                self.known.truncate(NEIGHBOURS - 1);
                self.known.insert(at, (distance, m.efficiency.max(1e-6).ln()));
            }
        }
    }

    /// The mean of their efficiencies, in which near ones count for more.
    fn efficiency(&self) -> f64 {
        let weight = |distance: f64| 1.0 / (distance + 0.05).powi(2);
        let total: f64 = self.known.iter().map(|(distance, _)| weight(*distance)).sum();
        let mean = self.known.iter().map(|(distance, log)| weight(*distance) * log).sum::<f64>();
        if self.known.is_empty() { 1.0 } else { (mean / total).exp() }
    }
}

/// A number to three digits.
fn three_digits(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FAMILY: Family = Family { name: "dot", class: "", half: true, steps: 1 };

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
    fn a_class_of_which_nothing_is_known_goes_by_all_of_its_name() {
        let mut table = EfficiencyTable::default();
        let few = Family { class: "few rows", ..FAMILY };
        table.add(EfficiencyTable::name(few), measured(1e-3, 1e-3, 0.2));
        table.add("dotted half".into(), measured(1e-4, 1e-4, 0.9));
        let shallow = Family { class: "shallow", ..FAMILY };
        let near = |family, expected: f64| (table.of(family, 1e-4, 1e-4) - expected).abs() < 1e-9;
        assert!(
            near(few, 0.2) && near(shallow, 0.2) && near(FAMILY, 0.2),
            "all go by what is known of `dot`"
        );
        table.add(EfficiencyTable::name(FAMILY), measured(1e-4, 1e-4, 0.5));
        assert!(
            (table.of(few, 1e-4, 1e-4) - 0.2).abs() < 1e-9,
            "what is known of the class itself counts alone"
        );
    }

    proptest! {
        #[test]
        fn efficiencies_lie_within_what_was_measured(
            all in prop::collection::vec((1e-7f64..1e-1, 1e-7f64..1e-1, 0.01f64..4.0), 1..40),
            (arithmetic, traffic) in (0f64..1.0, 0f64..1.0),
        ) {
            let mut table = EfficiencyTable::default();
            all.iter().for_each(|&(a, t, e)| table.add("dot half".into(), measured(a, t, e)));
            let found = table.of(FAMILY, arithmetic, traffic);
            let range = |pick: fn(f64, f64) -> f64| all.iter().map(|m| m.2).reduce(pick).unwrap_or(1.0);
            prop_assert!(range(f64::min) - 1e-9 <= found && found <= range(f64::max) + 1e-9);
        }
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

//! Groups of owners: what a timeline is stacked by and a map is coloured by.
//!
//! Nobody can read a hundred colours. Owners are grouped by the part of training that asked, and by call site:
//! the few that held most, and the rest as one.

use crate::analyse::call_site::call_site;
use plimsoll_memory::{Category, Frame, OwnerId, Owners};
use serde_json::{Value, json};
use std::collections::HashMap;

use super::blob::Blob;

/// Groups that have a colour of their own. With the rest they are as many as can be told apart, by those who
/// do not see all colours too.
const GROUPS: usize = 11;

/// The most frames of a stack that are looked at: real ones have fewer.
const DEPTH: usize = 512;

/// What an owner held, by which groups are ranked.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Weight {
    /// Whether it ever asked for anything.
    pub(super) asked: bool,
    /// The most bytes it held at once.
    pub(super) most: u64,
    /// What it held on average.
    pub(super) mean: f64,
}

/// Describes both groupings: the names of the groups, and the group of each owner. Of owners, as many as there
/// are weights.
pub(super) fn describe(owners: &Owners, weights: &[Weight], blob: &mut Blob) -> Value {
    let categories = Grouping::of(weights, "categories", |owner| category(owners, owner).to_string());
    let sites = Grouping::of(weights, "call sites", |owner| call_site(owners, owner).location);
    json!({
        "categories": categories.groups,
        "categoriesStacked": categories.stacked,
        "categoryOf": blob.u8s(categories.name_of.iter().map(|&name| categories.group_of(name))),
        "sites": sites.groups,
        "sitesStacked": sites.stacked,
        "siteNames": sites.names,
        "siteOf": blob.u32s(sites.name_of.iter().copied()),
        "siteGroup": blob.u8s((0..sites.names.len() as u32).map(|name| sites.group_of(name))),
    })
}

/// Owners by name, and names by group: those of most bytes are groups by themselves, the rest are one.
struct Grouping {
    names: Vec<String>,
    /// The name of each owner, by its number.
    name_of: Vec<u32>,
    /// Names of the groups, that of most bytes first.
    groups: Vec<String>,
    /// The groups as they are stacked: the steadiest below, so that what comes and goes does not shake the others.
    stacked: Vec<usize>,
    /// The group of each name.
    group_of: Vec<u8>,
}

impl Grouping {
    fn of(weights: &[Weight], plural: &str, name: impl Fn(OwnerId) -> String) -> Grouping {
        let mut names: Vec<String> = Vec::new();
        let mut held: Vec<(u64, f64)> = Vec::new();
        let mut index: HashMap<String, u32> = HashMap::new();
        let mut name_of = vec![0; weights.len()];
        for (owner, weight) in weights.iter().enumerate().filter(|(_, weight)| weight.asked) {
            let name = name(OwnerId(owner as u32));
            let at = *index.entry(name.clone()).or_insert(names.len() as u32);
            if at as usize == names.len() {
                names.push(name);
                held.push((0, 0.0));
            }
            let (most, mean) = &mut held[at as usize];
            (*most, *mean) = (most.saturating_add(weight.most), *mean + weight.mean);
            name_of[owner] = at;
        }
        let mut ranked: Vec<usize> = (0..names.len()).collect();
        ranked.sort_by_key(|&at| std::cmp::Reverse(held[at].0));
        let rest = ranked.split_off(ranked.len().min(GROUPS));
        let steadiness = |at: usize| held[at].1 / held[at].0.max(1) as f64;
        let mut stacked: Vec<usize> = (0..ranked.len()).collect();
        stacked.sort_by(|&a, &b| steadiness(ranked[b]).total_cmp(&steadiness(ranked[a])));
        let mut group_of = vec![ranked.len() as u8; names.len()];
        for (group, &at) in ranked.iter().enumerate() {
            group_of[at] = group as u8;
        }
        let mut groups: Vec<String> = ranked.iter().map(|&at| names[at].clone()).collect();
        if !rest.is_empty() {
            stacked.push(groups.len());
            groups.push(format!("{} more {plural}", rest.len()));
        }
        Grouping { names, name_of, groups, stacked, group_of }
    }

    /// The group of a name; the first where nothing has a name.
    fn group_of(&self, name: u32) -> u8 {
        self.group_of.get(name as usize).copied().unwrap_or(0)
    }
}

/// The part of training that asked, as far as the stack tells. Where it tells nothing, that is said.
fn category(owners: &Owners, owner: OwnerId) -> &'static str {
    let mut frames = owners.stack(owner).take(DEPTH).peekable();
    let nothing = if frames.peek().is_some() { "other code" } else { "no stack recorded" };
    // A backward pass may make a forward pass again, and making a layer calls what a forward pass calls too.
    let outranks = |part: &str| match part {
        "optimizer" => 3,
        "backward pass" => 2,
        "parameters" => 1,
        _ => 0,
    };
    let parts = frames.filter_map(part);
    let first_of_highest =
        |known: &'static str, next| if outranks(next) > outranks(known) { next } else { known };
    parts.reduce(first_of_highest).unwrap_or(nothing)
}

/// What a single frame says of the part of training it is in.
fn part(frame: &Frame) -> Option<&'static str> {
    let (name, file) = (frame.name.as_str(), frame.file.replace('\\', "/"));
    if let Some(category) = Category::ALL.into_iter().find(|c| c.name() == name) {
        return Some(category.name());
    }
    let within = |folder: &str| file.contains(folder);
    // TensorFlow calls an optimizer's ops by its name.
    let op_of = |optimizers: &[&str]| optimizers.iter().any(|optimizer| name.starts_with(optimizer));
    if within("torch/optim/")
        || within("/optax/")
        || within("keras/src/optimizers/")
        || op_of(&["adam/", "adamw/", "sgd/", "rmsprop/", "adagrad/"])
    {
        Some("optimizer")
    } else if name == "backward"
        || within("torch/autograd/")
        || name.contains("autograd::Engine")
        || name.contains("transpose(jvp(")
        || name.contains("gradient_tape")
    {
        Some("backward pass")
    } else if within("torch/utils/data/") || within("tensorflow/python/data/") {
        Some("inputs")
    } else if within("torch/nn/") && matches!(name, "to" | "cuda" | "_apply" | "__init__") {
        Some("parameters")
    } else if within("torch/nn/") || name == "forward" || name.contains("jvp(") {
        Some("forward pass")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The category of a stack told innermost first.
    fn of(stack: &[(&str, &str)]) -> &'static str {
        let mut owners = Owners::default();
        let owner = stack.iter().rev().fold(OwnerId::UNKNOWN, |parent, &(name, file)| {
            owners.child(parent, Frame { name: name.into(), file: file.into(), line: 1 })
        });
        category(&owners, owner)
    }

    #[test]
    fn the_stack_tells_the_part_of_training() {
        let (main, forward) =
            (("<module>", "train.py"), ("forward", "site-packages/torch/nn/modules/linear.py"));
        assert_eq!(of(&[forward, main]), "forward pass");
        assert_eq!(of(&[forward, ("backward", "checkpoint.py"), main]), "backward pass");
        assert_eq!(of(&[forward, ("step", "site-packages\\torch\\optim\\lbfgs.py"), main]), "optimizer");
        assert_eq!(
            of(&[("uniform_", "torch/nn/init.py"), ("__init__", "torch/nn/modules/linear.py")]),
            "parameters"
        );
        assert_eq!(of(&[("gradients", "")]), "gradients");
        assert_eq!(of(&[("adam/Sqrt_1", "")]), "optimizer");
        assert_eq!(of(&[("jit(step)/transpose(jvp(dot))", "")]), "backward pass");
        assert_eq!(of(&[("at::native::transpose(at::Tensor const&)", "??"), main]), "other code");
        assert_eq!(of(&[main]), "other code");
        assert_eq!(of(&[]), "no stack recorded");
    }

    #[test]
    fn those_that_held_most_are_groups_and_the_rest_is_one() {
        let weight = |n: u64| Weight { asked: true, most: n, mean: if n == 30 { 29.0 } else { 1.0 } };
        let weights: Vec<Weight> = (0..40).map(weight).collect();
        let grouping = Grouping::of(&weights, "sites", |owner| format!("site {}", owner.0));
        assert_eq!(grouping.groups.len(), GROUPS + 1);
        assert_eq!(
            (grouping.groups[0].as_str(), grouping.groups[GROUPS].as_str()),
            ("site 39", "29 more sites")
        );
        assert_eq!(grouping.stacked[0], 9, "the steadiest is below");
        assert_eq!(grouping.stacked[GROUPS], GROUPS, "the rest is above");
        assert_eq!((grouping.group_of(39), grouping.group_of(5)), (0, GROUPS as u8));
    }
}

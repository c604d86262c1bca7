//! Groups of owners: what a timeline is stacked by and a map is coloured by.
//!
//! Nobody can read a hundred colours. Owners are grouped by the part of training that asked, and by call site:
//! the few that held most, and the rest as one.

use crate::site::site;
use plimsoll_memory::{Category, Frame, OwnerId, Owners};
use serde_json::{Value, json};
use std::collections::HashMap;

use super::blob::Blob;

/// Call sites that have a colour of their own. With the rest they are as many as can be told apart, by those
/// who do not see all colours too.
const SITES: usize = 11;

/// The most frames of a stack that are looked at: real ones have fewer.
const DEPTH: usize = 512;

/// What an owner held, by which call sites are ranked.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Weight {
    /// Whether it ever asked for anything.
    pub(super) asked: bool,
    /// The most bytes it held at once.
    pub(super) most: u64,
}

/// Describes both groupings: the names of the groups, and the group of each owner. Of owners, as many as there
/// are weights.
pub(super) fn describe(owners: &Owners, weights: &[Weight], blob: &mut Blob) -> Value {
    let asked = |owner: usize| weights[owner].asked;
    let id = |owner: usize| OwnerId(owner as u32);

    let mut categories: Vec<&'static str> = Vec::new();
    let category_of: Vec<u8> = (0..weights.len())
        .map(|owner| {
            if !asked(owner) {
                return 0;
            }
            let name = category(owners, id(owner));
            let known = categories.iter().position(|&known| known == name);
            known.unwrap_or_else(|| {
                categories.push(name);
                categories.len() - 1
            }) as u8
        })
        .collect();

    let mut sites: Vec<(String, u64)> = Vec::new();
    let mut index: HashMap<String, u32> = HashMap::new();
    let site_of: Vec<u32> = (0..weights.len())
        .map(|owner| {
            if !asked(owner) {
                return 0;
            }
            let name = site(owners, id(owner)).place;
            let at = *index.entry(name.clone()).or_insert(sites.len() as u32);
            if at as usize == sites.len() {
                sites.push((name, 0));
            }
            let held = &mut sites[at as usize].1;
            *held = held.saturating_add(weights[owner].most);
            at
        })
        .collect();
    let mut ranked: Vec<usize> = (0..sites.len()).collect();
    ranked.sort_by_key(|&at| std::cmp::Reverse(sites[at].1));
    let mut group_of_site = vec![SITES.min(ranked.len()) as u8; sites.len()];
    for (group, &at) in ranked.iter().take(SITES).enumerate() {
        group_of_site[at] = group as u8;
    }
    let mut names: Vec<String> = ranked.iter().take(SITES).map(|&at| sites[at].0.clone()).collect();
    if ranked.len() > SITES {
        names.push(format!("{} more call sites", ranked.len() - SITES));
    }
    json!({
        "categories": categories,
        "categoryOf": blob.u8s(category_of.into_iter()),
        "sites": names,
        "siteNames": sites.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        "siteOf": blob.u32s(site_of.into_iter()),
        "siteGroup": blob.u8s(group_of_site.into_iter()),
    })
}

/// The part of training that asked, as far as the stack tells. Where it tells nothing, that is said.
fn category(owners: &Owners, owner: OwnerId) -> &'static str {
    let mut found = None;
    let mut any = false;
    for frame in owners.stack(owner).take(DEPTH) {
        any = true;
        // The optimizer runs within nothing else; a backward pass may make a forward pass again.
        match part(frame) {
            Some("optimizer") => return "optimizer",
            Some("backward pass") => found = Some("backward pass"),
            Some(part) => found = found.or(Some(part)),
            None => {}
        }
    }
    found.unwrap_or(if any { "other code" } else { "no stack recorded" })
}

/// What a single frame says of the part of training it is in.
fn part(frame: &Frame) -> Option<&'static str> {
    let (name, file) = (frame.name.as_str(), frame.file.replace('\\', "/"));
    if let Some(category) = Category::ALL.into_iter().find(|c| c.name() == name) {
        return Some(category.name());
    }
    let within = |folder: &str| file.contains(folder);
    if within("torch/optim/")
        || within("/optax/")
        || within("keras/src/optimizers/")
        || name.contains("optimizer")
    {
        Some("optimizer")
    } else if name == "backward"
        || within("torch/autograd/")
        || name.contains("autograd::Engine")
        || name.contains("transpose(")
        || name.contains("gradient_tape")
    {
        Some("backward pass")
    } else if within("torch/utils/data/") || within("tensorflow/python/data/") {
        Some("inputs")
    } else if within("torch/nn/") && matches!(name, "to" | "cuda" | "_apply" | "convert" | "__init__") {
        Some("parameters")
    } else if within("torch/nn/") || name == "forward" || name.contains("jvp(") {
        Some("forward pass")
    } else {
        None
    }
}

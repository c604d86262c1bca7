//! What other programs call weights, and how they lay them out.
//!
//! A map is a table of rules from names of ours to names of theirs, so that one description serves for reading their
//! files and for writing them. Stars stand for what is the same in both: `block*/ln1/gamma` is `h.*.ln_1.weight`.

use super::shared_box::shape_of_theirs;
use crate::{Error, ErrorKind, Result};
use plimsoll_memory::read_text;
use serde::Deserialize;
use std::collections::HashMap;
use std::path::Path;

/// What the weights of a model are called in a file, and in which layout they are there.
///
/// ```
/// use plimsoll::exchange::Names;
/// // PyTorch's names of a model whose first layer is called `0` there.
/// let names = Names::torch().rename("dense0", "0")?;
/// // What somebody keeps in three tensors is one here.
/// let names = names.rename("attention.qkv", "attn.q_proj,attn.k_proj,attn.v_proj")?;
/// # let _ = names;
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Names {
    /// What errors call it.
    title: String,
    rules: Vec<Rule>,
    /// What a file may have that no model here takes.
    ignored: Vec<String>,
    renames: Vec<Rename>,
}

/// Where a state is in a file: in tensors whose first name that is there counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// For each tensor, the names it may have; the first is the one that is written.
    pub(crate) parts: Vec<Vec<String>>,
    pub(crate) join: Join,
    /// For each axis of theirs, the axis of ours that it is.
    pub(crate) order: Vec<usize>,
    /// The shape of each tensor.
    pub(crate) shape: Vec<usize>,
}

/// How several tensors make one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Join {
    /// One after another along our last axis.
    Beside,
    /// Added up; all but the first are written as zeros.
    Sum,
}

impl Place {
    /// How many tensors lie beside each other.
    pub(crate) fn beside(&self) -> usize {
        if self.join == Join::Beside { self.parts.len() } else { 1 }
    }
}

/// What states of some names are called.
#[derive(Debug, Clone)]
struct Rule {
    ours: String,
    /// A name that must be in the same scope.
    beside: Option<&'static str>,
    /// For each tensor, the names it may have.
    theirs: Vec<Vec<String>>,
    layout: Layout,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    Same,
    /// A matrix of theirs is `[out, in]`.
    Transposed,
    /// A filter of theirs is `[out, in, height, width]`, of fewer or more axes alike; of a transposed convolution both have what it
    /// takes and what it makes exchanged.
    ChannelsFirst,
}

impl Layout {
    fn order(self, rank: usize) -> Vec<usize> {
        match (self, rank) {
            (Layout::Transposed, 2) => vec![1, 0],
            (Layout::ChannelsFirst, 4) => vec![3, 2, 0, 1],
            (Layout::ChannelsFirst, 3) => vec![2, 1, 0],
            (Layout::ChannelsFirst, 5) => vec![4, 3, 0, 1, 2],
            _ => (0..rank).collect(),
        }
    }
}

#[derive(Debug, Clone)]
struct Rename {
    pattern: String,
    replacements: Vec<String>,
}

fn rule(ours: &str, theirs: &str, layout: Layout) -> Rule {
    Rule { ours: ours.into(), beside: None, theirs: vec![vec![theirs.into()]], layout }
}

/// A map by its name, and what the map is.
type Known = (&'static str, fn() -> Names);

/// The maps that have names.
const KNOWN: [Known; 5] = [
    ("plimsoll", Names::plimsoll),
    ("torch", Names::torch),
    ("hf-gpt2", Names::hf_gpt2),
    ("torchvision-resnet", Names::torchvision_resnet),
    ("hf-resnet", Names::hf_resnet),
];

/// More than any list of names has. What is larger is some other file.
const MOST_BYTES: u64 = 1 << 20;

impl Names {
    /// Our own names and layouts.
    pub fn plimsoll() -> Names {
        Names::of("plimsoll", vec![rule("**", "**", Layout::Same)], &[])
    }

    /// The names and layouts of PyTorch's modules under the scopes of ours: `stem/conv/filter` is `stem.conv.weight`.
    ///
    /// Weights of [`Dense`](crate::layers::Dense) are transposed, filters are `[out, in, height, width]` (of transposed
    /// convolutions `[in, out, height, width]`); norms have
    /// `weight`, `bias`, `running_mean` and `running_var`; recurrent layers those of one layer, `weight_ih_l0` to
    /// `bias_hh_l0`, of which an LSTM here has the sum.
    ///
    /// What follows images that were flattened takes them in the order height, width, channels here, and in the order
    /// channels, height, width in most modules there: such a module permutes them before it flattens.
    pub fn torch() -> Names {
        let mut rules = vec![Rule {
            beside: Some("input_weight"),
            theirs: vec![vec!["**.bias_ih_l0".into()], vec!["**.bias_hh_l0".into()]],
            ..rule("**/bias", "", Layout::Same)
        }];
        rules.extend(torch_rules("**", "**"));
        rules.push(rule("**/*", "**.*", Layout::Same));
        Names::of("torch", rules, &["num_batches_tracked"])
    }

    /// Hugging Face's names of GPT-2, for [`Gpt`](crate::models::Gpt).
    ///
    /// GPT-2 as it was published computes gelu by an approximation with tanh (`gelu_new`), which differs by up to 5e-4
    /// from the exact function that is computed here; its configuration for what is trained here is
    /// `activation_function = "gelu"`.
    pub fn hf_gpt2() -> Names {
        let mut rules = vec![];
        let mut of = |ours: &str, theirs: &str, layout: Layout| {
            // Files of the bare model have no prefix.
            let theirs = vec![vec![format!("transformer.{theirs}"), theirs.to_string()]];
            rules.push(Rule { theirs, ..rule(ours, "", layout) });
        };
        of("tokens/table", "wte.weight", Layout::Same);
        of("positions/table", "wpe.weight", Layout::Same);
        for (ours, theirs) in [("block*/ln1", "h.*.ln_1"), ("block*/ln2", "h.*.ln_2"), ("ln", "ln_f")] {
            of(&format!("{ours}/gamma"), &format!("{theirs}.weight"), Layout::Same);
            of(&format!("{ours}/beta"), &format!("{theirs}.bias"), Layout::Same);
        }
        // These are no linear modules: their weights are [in, out], as ours.
        for (ours, theirs) in [
            ("attention/qkv", "attn.c_attn"),
            ("attention/out", "attn.c_proj"),
            ("mlp/up", "mlp.c_fc"),
            ("mlp/down", "mlp.c_proj"),
        ] {
            for name in ["weight", "bias"] {
                of(&format!("block*/{ours}/{name}"), &format!("h.*.{theirs}.{name}"), Layout::Same);
            }
        }
        // A head that is not tied here may be there.
        let head = ["lm_head.weight", "transformer.wte.weight", "wte.weight"];
        let theirs = vec![head.map(String::from).to_vec()];
        rules.push(Rule { theirs, ..rule("head/weight", "", Layout::Transposed) });
        Names::of("hf-gpt2", rules, &["attn.bias", "attn.masked_bias", "lm_head.weight"])
    }

    /// The names of torchvision's ResNet-50, for [`ResNet50`](crate::models::ResNet50).
    pub fn torchvision_resnet() -> Names {
        let mut rules = torch_rules("stem/conv", "conv1");
        rules.extend(torch_rules("stem/norm", "bn1"));
        for stage in 0..4 {
            let (ours, theirs) = (format!("stage{stage}/block*"), format!("layer{}.*", stage + 1));
            for (our_layer, their_layer) in [
                ("conv*", "conv*"),
                ("norm*", "bn*"),
                ("projection/conv", "downsample.0"),
                ("projection/norm", "downsample.1"),
            ] {
                rules.extend(torch_rules(&format!("{ours}/{our_layer}"), &format!("{theirs}.{their_layer}")));
            }
        }
        rules.extend(torch_rules("head", "fc"));
        Names::of("torchvision-resnet", rules, &["num_batches_tracked"])
    }

    /// Hugging Face's names of ResNet-50, for [`ResNet50`](crate::models::ResNet50).
    pub fn hf_resnet() -> Names {
        let stem = "resnet.embedder.embedder";
        let mut rules = torch_rules("stem/conv", &format!("{stem}.convolution"));
        rules.extend(torch_rules("stem/norm", &format!("{stem}.normalization")));
        let (ours, theirs) = ("stage*/block*", "resnet.encoder.stages.*.layers.*");
        for layer in 0..3 {
            for (our_layer, their_layer) in [("conv", "convolution"), ("norm", "normalization")] {
                rules.extend(torch_rules(
                    &format!("{ours}/{our_layer}{}", layer + 1),
                    &format!("{theirs}.layer.{layer}.{their_layer}"),
                ));
            }
        }
        rules.extend(torch_rules(
            &format!("{ours}/projection/conv"),
            &format!("{theirs}.shortcut.convolution"),
        ));
        rules.extend(torch_rules(
            &format!("{ours}/projection/norm"),
            &format!("{theirs}.shortcut.normalization"),
        ));
        rules.extend(torch_rules("head", "classifier.1"));
        Names::of("hf-resnet", rules, &["num_batches_tracked"])
    }

    fn of(title: &str, rules: Vec<Rule>, ignored: &[&str]) -> Names {
        let ignored = ignored.iter().map(|&name| name.into()).collect();
        Names { title: title.into(), rules, ignored, renames: vec![] }
    }

    /// The names that are called `plimsoll`, `torch`, `hf-gpt2`, `torchvision-resnet` or `hf-resnet`, or those of a TOML
    /// or JSON file: a `base` of these, pairs by which to `rename` them, and what to `ignore`.
    ///
    /// ```toml
    /// base = "torch"                                            # plimsoll if left out
    /// rename = [["dense*", "layers.*"], ["qkv", "q,k,v"]]       # as by `Names::rename`, in this order
    /// ignore = ["num_batches_tracked"]                          # ends of names
    /// ```
    ///
    /// # Errors
    /// If there is neither, or the file cannot be read or understood.
    pub fn find(name_or_path: &str) -> Result<Names> {
        if let Some((_, names)) = KNOWN.iter().find(|(name, _)| *name == name_or_path) {
            return Ok(names());
        }
        let known: Vec<&str> = KNOWN.iter().map(|(name, _)| *name).collect();
        let path = Path::new(name_or_path);
        let text = read_text(path, MOST_BYTES).map_err(|error| {
            let message = match error.kind() {
                std::io::ErrorKind::NotFound => {
                    format!("there are no names and no file `{name_or_path}`; names are {}", known.join(", "))
                }
                _ => format!("cannot read {name_or_path}: {error}"),
            };
            Error::new(ErrorKind::File, message).caused_by(error)
        })?;
        let wrong = |error: String| {
            let message = format!("{name_or_path} is no list of names: {error}");
            Error::new(ErrorKind::Spec, message)
        };
        let is_json = path.extension().is_some_and(|extension| extension == "json");
        let file: NamesFile = match is_json {
            true => serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?,
            false => toml::from_str(&text).map_err(|error| wrong(error.to_string()))?,
        };
        let base = file.base.as_deref().unwrap_or("plimsoll");
        let Some((_, names)) = KNOWN.iter().find(|(name, _)| *name == base) else {
            return Err(wrong(format!("there is no base `{base}`; bases are {}", known.join(", "))));
        };
        let mut names = names();
        names.title = name_or_path.into();
        names = file.ignore.iter().fold(names, |names, end| names.ignore(end));
        file.rename
            .iter()
            .try_fold(names, |names, [from, to]| names.rename(from, to))
            .map_err(|error| wrong(error.to_string()))
    }

    /// Replaces parts of names, after what was replaced before: `from` are whole parts of them, between dots or slashes,
    /// in which a star stands for anything within one part; `to` is what is there in the file, with the same stars. Several
    /// names, separated by commas, are of tensors that lie beside each other here, along the last axis.
    ///
    /// # Errors
    /// If there is nothing to be replaced, or there are more stars in what it becomes.
    pub fn rename(mut self, from: &str, to: &str) -> Result<Names> {
        let stars = |text: &str| text.matches('*').count();
        let replacements: Vec<String> = to.split(',').map(|part| part.trim().to_string()).collect();
        let wrong =
            |what: &str| Error::new(ErrorKind::Name, format!("`{from}` cannot become `{to}`: {what}"));
        if from.split(SEPARATORS).any(str::is_empty) {
            return Err(wrong("parts between dots are not empty"));
        }
        if replacements.iter().any(|to| stars(to) > stars(from)) {
            return Err(wrong("there are more stars than stand for something"));
        }
        self.renames.push(Rename { pattern: from.into(), replacements });
        Ok(self)
    }

    /// Lets a file have tensors that nothing here takes, whose names end with these parts.
    pub fn ignore(mut self, end: &str) -> Names {
        self.ignored.push(end.into());
        self
    }

    /// What it is called, or where it was read.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Whether a file may have a tensor of this name that nothing here takes.
    pub(crate) fn ignores(&self, name: &str) -> bool {
        self.ignored.iter().any(|end| {
            name.strip_suffix(end.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with(SEPARATORS))
        })
    }

    /// Where states are in a file, one place for each.
    ///
    /// # Errors
    /// If a state has none, or two have the same.
    pub(crate) fn places<'a>(
        &self,
        states: impl IntoIterator<Item = (&'a str, &'a [usize])>,
    ) -> Result<Vec<Place>> {
        let states: Vec<(&str, &[usize])> = states.into_iter().collect();
        let known: std::collections::HashSet<&str> = states.iter().map(|(name, _)| *name).collect();
        let is_beside = |name: &str, other: &str| {
            let scope = name.rsplit_once('/').map_or(String::new(), |(scope, _)| format!("{scope}/"));
            known.contains(format!("{scope}{other}").as_str())
        };
        let mut places = vec![];
        let mut taken = HashMap::new();
        for &(name, shape) in &states {
            let found = self.rules.iter().find_map(|rule| {
                let stars = matched(&rule.ours, name)?;
                rule.beside.is_none_or(|other| is_beside(name, other)).then_some((rule, stars))
            });
            let Some((rule, stars)) = found else {
                let message = format!(
                    "the names `{}` have no place for `{name}`: they are for another model; `torch` has one for any",
                    self.title
                );
                return Err(Error::new(ErrorKind::Name, message));
            };
            let place = self.renamed(name, shape, rule, &stars)?;
            for part in &place.parts {
                if let Some(other) = taken.insert(part[0].clone(), name) {
                    let message = format!("`{other}` and `{name}` would both be `{}` in the file", part[0]);
                    return Err(Error::new(ErrorKind::Name, message));
                }
            }
            places.push(place);
        }
        Ok(places)
    }

    /// The place that a rule gives, after renaming.
    fn renamed(&self, name: &str, shape: &[usize], rule: &Rule, stars: &[String]) -> Result<Place> {
        let mut parts: Vec<Vec<String>> =
            rule.theirs.iter().map(|names| names.iter().map(|name| filled(name, stars)).collect()).collect();
        let mut join = if parts.len() > 1 { Join::Sum } else { Join::Beside };
        for Rename { pattern, replacements } in &self.renames {
            if replacements.len() == 1 {
                for name in parts.iter_mut().flatten() {
                    if let Some(replaced) = replaced(name, pattern, &replacements[0]) {
                        *name = replaced;
                    }
                }
                continue;
            }
            let [names] = &parts[..] else { continue };
            if !names.iter().any(|name| replaced(name, pattern, &replacements[0]).is_some()) {
                continue;
            }
            let part = |to: &String| names.iter().filter_map(|name| replaced(name, pattern, to)).collect();
            parts = replacements.iter().map(part).collect();
            join = Join::Beside;
        }
        let order = rule.layout.order(shape.len());
        let beside = if join == Join::Beside { parts.len() } else { 1 };
        if beside > 1 && !shape.last().is_some_and(|last| last.is_multiple_of(beside)) {
            let message = format!("`{name}` of shape {shape:?} is not {beside} tensors of one shape");
            return Err(Error::new(ErrorKind::Shape, message));
        }
        let shape = shape_of_theirs(shape, &order, beside);
        Ok(Place { parts, join, order, shape })
    }
}

/// A file of names.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamesFile {
    base: Option<String>,
    #[serde(default)]
    rename: Vec<[String; 2]>,
    #[serde(default)]
    ignore: Vec<String>,
}

/// What separates the parts of names.
const SEPARATORS: [char; 2] = ['.', '/'];

/// What PyTorch calls what layers have, under a scope of ours and a module of theirs.
fn torch_rules(ours: &str, theirs: &str) -> Vec<Rule> {
    [
        ("weight", "weight", Layout::Transposed),
        ("bias", "bias", Layout::Same),
        ("filter", "weight", Layout::ChannelsFirst),
        ("gamma", "weight", Layout::Same),
        ("beta", "bias", Layout::Same),
        ("mean", "running_mean", Layout::Same),
        ("variance", "running_var", Layout::Same),
        ("table", "weight", Layout::Same),
        ("input_weight", "weight_ih_l0", Layout::Transposed),
        ("hidden_weight", "weight_hh_l0", Layout::Transposed),
        ("input_bias", "bias_ih_l0", Layout::Same),
        ("hidden_bias", "bias_hh_l0", Layout::Same),
    ]
    .into_iter()
    .map(|(our, their, layout)| rule(&format!("{ours}/{our}"), &format!("{theirs}.{their}"), layout))
    .collect()
}

/// What the stars of a pattern stand for in a name of ours, if it fits. Two stars at the beginning are any number of parts,
/// which theirs have dots between.
fn matched(pattern: &str, name: &str) -> Option<Vec<String>> {
    if pattern == "**" {
        return Some(vec![name.to_string()]);
    }
    let mut parts: Vec<&str> = name.split('/').collect();
    let mut stars = vec![];
    let pattern = match pattern.strip_prefix("**/") {
        Some(rest) => {
            let leading = parts.len().checked_sub(rest.split('/').count())?;
            stars.push(parts.drain(..leading).collect::<Vec<_>>().join("."));
            rest
        }
        None => pattern,
    };
    let pattern: Vec<&str> = pattern.split('/').collect();
    if pattern.len() != parts.len() {
        return None;
    }
    for (pattern, part) in pattern.iter().zip(parts) {
        stars.extend(matched_part(pattern, part)?);
    }
    Some(stars)
}

/// What the star of a part of a pattern stands for, if there is one and the part fits.
fn matched_part(pattern: &str, part: &str) -> Option<Option<String>> {
    let Some((before, after)) = pattern.split_once('*') else {
        return (pattern == part).then_some(None);
    };
    let star = part.strip_prefix(before)?.strip_suffix(after)?;
    Some(Some(star.to_string()))
}

/// A name of theirs, with what its stars stand for.
fn filled(pattern: &str, stars: &[String]) -> String {
    let mut stars = stars.iter();
    let mut name = String::new();
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('*') {
        name += before;
        name += stars.next().map_or("", String::as_str);
        rest = after.strip_prefix('*').unwrap_or(after);
    }
    name += rest;
    name.trim_start_matches('.').to_string()
}

/// A name in which the first parts that fit a pattern are replaced, if any do.
fn replaced(name: &str, pattern: &str, to: &str) -> Option<String> {
    let pattern: Vec<&str> = pattern.split(SEPARATORS).collect();
    let mut parts = vec![];
    let mut first = 0;
    for part in name.split(SEPARATORS) {
        parts.push((first, part));
        first += part.len() + 1;
    }
    parts.windows(pattern.len()).find_map(|window| {
        let found: Option<Vec<Option<String>>> =
            pattern.iter().zip(window).map(|(pattern, (_, part))| matched_part(pattern, part)).collect();
        let stars: Vec<String> = found?.into_iter().flatten().collect();
        let (start, (last, part)) = (window.first()?.0, window.last()?);
        Some(format!("{}{}{}", &name[..start], filled(to, &stars), &name[last + part.len()..]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_names(names: &Names, state: &str, shape: &[usize], others: &[&str]) -> Vec<String> {
        let all = [(state, shape)].into_iter().chain(others.iter().map(|&other| (other, shape)));
        let places = names.places(all).unwrap();
        places[0].parts.iter().map(|part| part[0].clone()).collect()
    }

    #[test]
    fn every_map_names_what_layers_have() {
        let conv = [3, 3, 8, 16];
        for (names, ours, shape, theirs) in [
            (Names::plimsoll(), "a/b/gamma", &[4][..], "a/b/gamma"),
            (Names::torch(), "weight", &[4, 5], "weight"),
            (Names::torch(), "a/b/filter", &conv, "a.b.weight"),
            (Names::torch(), "a/norm0/variance", &[4], "a.norm0.running_var"),
            (Names::torch(), "gain/scale", &[4], "gain.scale"),
            (
                Names::hf_gpt2(),
                "block11/attention/qkv/weight",
                &[4, 12],
                "transformer.h.11.attn.c_attn.weight",
            ),
            (Names::hf_gpt2(), "ln/beta", &[4], "transformer.ln_f.bias"),
            (Names::torchvision_resnet(), "stage3/block2/conv1/filter", &conv, "layer4.2.conv1.weight"),
            (
                Names::torchvision_resnet(),
                "stage0/block0/projection/norm/mean",
                &[4],
                "layer1.0.downsample.1.running_mean",
            ),
            (
                Names::hf_resnet(),
                "stage3/block2/norm3/gamma",
                &[4],
                "resnet.encoder.stages.3.layers.2.layer.2.normalization.weight",
            ),
            (Names::hf_resnet(), "head/bias", &[4], "classifier.1.bias"),
        ] {
            assert_eq!(first_names(&names, ours, shape, &[]), [theirs], "{ours}");
        }
    }

    #[test]
    fn an_lstm_has_the_sum_of_two_biases_and_other_layers_have_one() {
        let names = Names::torch();
        assert_eq!(
            first_names(&names, "l/bias", &[8], &["l/input_weight"]),
            ["l.bias_ih_l0", "l.bias_hh_l0"]
        );
        assert_eq!(first_names(&names, "d/bias", &[8], &["l/input_weight"]), ["d.bias"]);
    }

    #[test]
    fn renaming_replaces_whole_parts_and_keeps_stars() {
        let names = Names::torch().rename("block*/ln1", "layers.*.norm1").unwrap();
        assert_eq!(first_names(&names, "net/block12/ln1/gamma", &[8], &[]), ["net.layers.12.norm1.weight"]);
        assert_eq!(first_names(&names, "net/block12/ln11/gamma", &[8], &[]), ["net.block12.ln11.weight"]);
        let names = Names::torch().rename("qkv", "q,k,v").unwrap();
        assert_eq!(first_names(&names, "a/qkv/bias", &[6], &[]), ["a.q.bias", "a.k.bias", "a.v.bias"]);
        assert!(names.places([("a/qkv/bias", &[7][..])]).unwrap_err().to_string().contains("3 tensors"));
        for (from, to) in [("a", "b*"), ("", "x"), ("a..b", "x")] {
            assert_eq!(Names::torch().rename(from, to).unwrap_err().kind(), ErrorKind::Name);
        }
    }

    #[test]
    fn what_has_no_place_or_shares_one_is_an_error() {
        let error = Names::hf_gpt2().places([("dense0/weight", &[2, 2][..])]).unwrap_err();
        assert!(error.to_string().contains("no place for `dense0/weight`"), "{error}");
        let both = [("a/weight", &[2, 2][..]), ("a/filter", &[1, 1, 2, 2][..])];
        let error = Names::torch().places(both).unwrap_err();
        assert!(error.to_string().contains("both be `a.weight`"), "{error}");
    }
}

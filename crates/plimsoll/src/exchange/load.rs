//! Loading weights by name: all is compared before anything is written, and what is said of it is a report.

use super::names::{Join, Names, Place};
use super::shared_box::{SharedBox, Written};
use super::{PIECE_BYTES, TensorFile};
use crate::{DType, Error, ErrorKind, Result, Run, StateInfo, Training};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};

/// Whether weights may stay as they were because a file does not have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partial {
    /// All of the model's weights must be in the file, and nothing else.
    Refused,
    /// What is in the file under the same name and in the same shape is taken; all else stays as it is.
    Allowed,
}

/// What was taken from a file, and what was not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadReport {
    /// The file.
    pub path: PathBuf,
    /// Weights that were taken.
    pub taken: Vec<Taken>,
    /// Weights of the model that are not in the file.
    pub missing: Vec<Missing>,
    /// Weights that are in the file in another shape, or of a type that is not taken.
    pub mismatched: Vec<Mismatch>,
    /// Tensors of the file that the model has no weights for.
    pub left_over: Vec<String>,
    /// Tensors of the file that no model here takes, such as counters.
    pub ignored: Vec<String>,
}

/// A weight that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// What it is called here.
    pub name: String,
    /// The tensors it was taken from.
    pub from: Vec<String>,
    /// The element type it has there, if that is another. Numbers of `f16` and `bf16` stay what they are; those of `f64`
    /// are rounded once.
    pub converted_from: Option<DType>,
    /// Whether its axes are in another order there.
    pub is_reordered: bool,
}

/// A weight that is not in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// What it is called here.
    pub name: String,
    /// What was looked for.
    pub looked_for: String,
}

/// A weight that is otherwise in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// What it is called here.
    pub name: String,
    /// The tensor of the file.
    pub from: String,
    /// The shape that it should have there.
    pub expected: Vec<usize>,
    /// The shape that it has.
    pub found: Vec<usize>,
    /// The element type that it has, as the file calls it.
    pub dtype: String,
}

impl Mismatch {
    /// What may be the reason.
    fn hint(&self) -> &'static str {
        let sorted = |shape: &[usize]| {
            let mut shape = shape.to_vec();
            shape.sort_unstable();
            shape
        };
        if self.expected == self.found {
            "; weights are taken from f64, f32, f16 and bf16"
        } else if sorted(&self.expected) == sorted(&self.found) {
            "; with its axes in another order it would fit: is the file of other names, such as `torch`?"
        } else {
            ""
        }
    }
}

impl LoadReport {
    /// Whether all weights were taken and all tensors are accounted for.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty() && self.mismatched.is_empty() && self.left_over.is_empty()
    }
}

/// How many names are listed of each kind.
const LISTED: usize = 8;

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let weights = self.taken.len() + self.missing.len() + self.mismatched.len();
        write!(f, "{} of {weights} weights taken from {}", self.taken.len(), self.path.display())?;
        let reordered = self.taken.iter().filter(|taken| taken.is_reordered).count();
        if reordered > 0 {
            write!(f, ", {reordered} in another order of axes")?;
        }
        for dtype in DType::ALL {
            let converted = self.taken.iter().filter(|taken| taken.converted_from == Some(dtype)).count();
            if converted > 0 {
                let rounded = if dtype == DType::F64 { ", rounded" } else { "" };
                write!(f, ", {converted} converted from {dtype}{rounded}")?;
            }
        }
        let missing = |one: &Missing| format!("{} (looked for {})", one.name, one.looked_for);
        list(f, "not in the file", &self.missing, missing)?;
        list(f, "of another shape or type", &self.mismatched, |one| {
            let Mismatch { name, from, expected, found, dtype } = one;
            format!("{name}: {from} is {dtype}{found:?}, not {expected:?}{}", one.hint())
        })?;
        list(f, "in the file, but not in the model", &self.left_over, String::clone)?;
        list(f, "ignored", &self.ignored, String::clone)
    }
}

fn list<T>(f: &mut fmt::Formatter<'_>, title: &str, all: &[T], show: impl Fn(&T) -> String) -> fmt::Result {
    if all.is_empty() {
        return Ok(());
    }
    write!(f, "\n  {title}: {}", all.len())?;
    for one in all.iter().take(LISTED) {
        write!(f, "\n    {}", show(one).escape_debug())?;
    }
    match all.len().checked_sub(LISTED) {
        Some(more @ 1..) => write!(f, "\n    … and {more} more"),
        _ => Ok(()),
    }
}

/// Where a weight is taken from: the tensors of a file, by position, that make it up.
struct Match {
    state: StateInfo,
    place: Place,
    tensors: Vec<(usize, DType)>,
}

/// Takes the weights of a run's model from a safetensors file of any maker: parameters and running statistics, not the
/// state of optimizers. Elements of other float types are converted. Nothing is changed unless all can be taken, or
/// `partial` is allowed. Reserves the run's memory if that was not done, and beside it takes a few MiB.
///
/// ```
/// use plimsoll::exchange::{Names, Partial, load_weights, save_weights};
/// use plimsoll::layers::{Dense, Layer};
/// use plimsoll::{DType, Input, Run};
/// let describe = || {
///     Run::builder().inference("predict", vec![Input::new("x", &[1, 4], DType::F32)], |cx, inputs| {
///         let [x] = inputs.all()?;
///         Ok(vec![("y".into(), cx.layer("fc", Dense::new(2), x)?)])
///     })
/// };
/// # let place = std::env::temp_dir().join(format!("plimsoll-doc-weights-{}.safetensors", std::process::id()));
/// // `fc.weight` and `fc.bias`, as PyTorch has them.
/// save_weights(&mut describe().compile()?, &place, &Names::torch())?;
/// let mut other = describe().seed(7).compile()?;
/// let report = load_weights(&mut other, &place, &Names::torch(), Partial::Refused)?;
/// assert_eq!(report.taken.len(), 2);
/// # std::fs::remove_file(&place).unwrap();
/// # Ok::<(), plimsoll::Error>(())
/// ```
///
/// # Errors
/// If the file cannot be read or is no safetensors file, names do not go with the model, or something is missing, left over
/// or of another shape and `partial` is refused: then the message is the report. If nothing at all can be taken, always.
pub fn load_weights(
    run: &mut Run,
    path: impl AsRef<Path>,
    names: &Names,
    partial: Partial,
) -> Result<LoadReport> {
    let file = TensorFile::open(path)?;
    let states = weights_of(run);
    let (matches, report) = compare(states, &file, names)?;
    if matches.is_empty() || (partial == Partial::Refused && !report.is_complete()) {
        let advice = if matches.is_empty() { "" } else { "\n  to take what there is, allow a partial load" };
        let message = format!("the weights do not go with the model: {report}{advice}");
        return Err(Error::new(ErrorKind::File, message));
    }
    for Match { state, place, tensors } in &matches {
        run.write_state(&state.name, &mut |first, piece| {
            for (part, &(tensor, dtype)) in tensors.iter().enumerate() {
                let (beside, written) = match place.join {
                    Join::Beside => (part, Written::Instead),
                    Join::Sum if part == 0 => (0, Written::Instead),
                    Join::Sum => (0, Written::Added),
                };
                let shared = SharedBox::from_theirs(&state.shape, &place.order, beside, place.beside());
                let show = &mut |range, see: &mut dyn FnMut(usize, &[u8]) -> Result<()>| {
                    show_tensor(&file, tensor, range, see)
                };
                shared.move_into(first / size_of::<f32>(), piece, dtype, written, show)?;
            }
            Ok(())
        })?;
    }
    Ok(report)
}

impl Training<'_> {
    /// Begins with the weights of a file, as [`load_weights`] does: in place of first values, or of what was trained.
    /// Optimizers stay as they are.
    ///
    /// # Errors
    /// As [`load_weights`].
    pub fn load_weights(
        &mut self,
        path: impl AsRef<Path>,
        names: &Names,
        partial: Partial,
    ) -> Result<LoadReport> {
        load_weights(self.run(), path, names, partial)
    }
}

/// The states that weights are: those the model is made of.
pub(super) fn weights_of(run: &Run) -> Vec<StateInfo> {
    run.states().into_iter().filter(|state| state.of_model && state.dtype == DType::F32).collect()
}

/// Shows a range of bytes of a file's tensor in pieces.
pub(super) fn show_tensor(
    file: &TensorFile,
    tensor: usize,
    range: std::ops::Range<usize>,
    see: &mut dyn FnMut(usize, &[u8]) -> Result<()>,
) -> Result<()> {
    // Of 1 MiB or less: what fits into a processor's cache is read and looked at fastest.
    let mut room = vec![0; range.len().min(PIECE_BYTES / 4)];
    for first in range.clone().step_by(room.len().max(1)) {
        let piece = &mut room[..(PIECE_BYTES / 4).min(range.end - first)];
        file.read(tensor, first as u64, piece)?;
        see(first, piece)?;
    }
    Ok(())
}

/// Finds weights in a file.
fn compare(states: Vec<StateInfo>, file: &TensorFile, names: &Names) -> Result<(Vec<Match>, LoadReport)> {
    let places = names.places(states.iter().map(|state| (state.name.as_str(), &state.shape[..])))?;
    let mut report = LoadReport {
        path: file.path().to_path_buf(),
        taken: vec![],
        missing: vec![],
        mismatched: vec![],
        left_over: vec![],
        ignored: vec![],
    };
    let (mut matches, mut used) = (vec![], HashSet::<usize>::new());
    let by_name: HashMap<&str, usize> =
        file.tensors().iter().enumerate().map(|(index, tensor)| (tensor.name(), index)).collect();
    for (state, place) in states.into_iter().zip(places) {
        let name = &state.name;
        let found: Vec<Option<usize>> = place
            .parts
            .iter()
            .map(|names| names.iter().find_map(|name| by_name.get(name.as_str()).copied()))
            .collect();
        used.extend(found.iter().flatten());
        let absent = found.iter().zip(&place.parts).find(|(found, _)| found.is_none());
        if let Some((_, names)) = absent {
            report.missing.push(Missing { name: name.clone(), looked_for: names.join(" or ") });
            continue;
        }
        let tensors: Vec<usize> = found.into_iter().flatten().collect();
        let stored = |&tensor: &usize| &file.tensors()[tensor];
        let fits = |tensor: &&usize| {
            stored(tensor).shape() == place.shape && stored(tensor).dtype().is_some_and(DType::is_float)
        };
        if let Some(other) = tensors.iter().find(|tensor| !fits(tensor)).map(stored) {
            report.mismatched.push(Mismatch {
                name: name.clone(),
                from: other.name().into(),
                expected: place.shape.clone(),
                found: other.shape().to_vec(),
                dtype: other.dtype_name().into(),
            });
            continue;
        }
        let typed: Vec<(usize, DType)> =
            tensors.iter().filter_map(|tensor| Some((*tensor, stored(tensor).dtype()?))).collect();
        report.taken.push(Taken {
            name: name.clone(),
            from: tensors.iter().map(|tensor| stored(tensor).name().to_string()).collect(),
            converted_from: typed.iter().map(|&(_, dtype)| dtype).find(|&dtype| dtype != DType::F32),
            is_reordered: !place.order.is_sorted(),
        });
        matches.push(Match { state, place, tensors: typed });
    }
    let unused = file.tensors().iter().enumerate().filter(|(index, _)| !used.contains(index));
    for (_, tensor) in unused {
        let to = if names.ignores(tensor.name()) { &mut report.ignored } else { &mut report.left_over };
        to.push(tensor.name().to_string());
    }
    Ok((matches, report))
}

//! Writing weights under other names and in other layouts, from a run or from a file of ours.

use super::load::{show_tensor, weights_of};
use super::names::{Join, Names};
use super::shared_box::{SharedBox, ShowBytes, Written};
use super::{PIECE_BYTES, TensorFile};
use crate::tensor_file::{Described, header};
use crate::whole_file::WholeFile;
use crate::{DType, Error, ErrorKind, Result, Run};
use std::path::Path;

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaveReport {
    /// How many tensors.
    pub tensors: usize,
    /// How many bytes the file has.
    pub bytes: u64,
}

/// Writes the weights of a run's model as a safetensors file, under these names: whole, or not at all. Takes a few MiB
/// beside the run's memory.
///
/// # Errors
/// If names do not go with the model, the file cannot be written, or the device fails.
pub fn save_weights(run: &mut Run, path: impl AsRef<Path>, names: &Names) -> Result<SaveReport> {
    let weights: Vec<Ours> =
        weights_of(run).into_iter().map(|state| Ours { name: state.name, shape: state.shape }).collect();
    write(&weights, path.as_ref(), names, &mut |index, range, see| {
        let mut at = 0;
        run.show_state(&weights[index].name, &mut |piece| {
            // Of what the run shows, the part that was asked for.
            let (first, end) = (range.start.max(at), range.end.min(at + piece.len()));
            let part = if first < end { &piece[first - at..end - at] } else { &[] };
            at += piece.len();
            if part.is_empty() { Ok(()) } else { see(first, part) }
        })
    })
}

/// Writes the weights of a file with our names, as training saves it, as one with these names.
///
/// # Errors
/// If names do not go with the weights, or a file cannot be read or written.
pub fn convert_weights(from: &TensorFile, path: impl AsRef<Path>, names: &Names) -> Result<SaveReport> {
    if let Some(other) = from.tensors().iter().find(|tensor| tensor.dtype() != Some(DType::F32)) {
        let message = format!(
            "{}: `{}` is {}, weights of ours are F32",
            from.path().display(),
            other.name().escape_debug(),
            other.dtype_name().escape_debug()
        );
        return Err(Error::new(ErrorKind::File, message));
    }
    let weights: Vec<Ours> = from
        .tensors()
        .iter()
        .map(|tensor| Ours { name: tensor.name().into(), shape: tensor.shape().to_vec() })
        .collect();
    write(&weights, path.as_ref(), names, &mut |index, range, see| show_tensor(from, index, range, see))
}

/// A weight, as it is here.
struct Ours {
    name: String,
    shape: Vec<usize>,
}

/// Shows bytes of a weight of ours, by its position.
type ShowOurs<'a> = &'a mut dyn FnMut(
    usize,
    std::ops::Range<usize>,
    &mut dyn FnMut(usize, &[u8]) -> Result<()>,
) -> Result<()>;

fn write(weights: &[Ours], path: &Path, names: &Names, show: ShowOurs<'_>) -> Result<SaveReport> {
    let places = names.places(weights.iter().map(|weight| (weight.name.as_str(), &weight.shape[..])))?;
    let tensors: Vec<Described> = places
        .iter()
        .flat_map(|place| {
            let of = |names: &Vec<String>| Described {
                name: names[0].clone(),
                dtype: DType::F32,
                shape: place.shape.clone(),
            };
            place.parts.iter().map(of)
        })
        .collect();
    let mut file = WholeFile::create(path)?;
    let header = header(&tensors)?;
    file.write(&(header.len() as u64).to_le_bytes())?;
    file.write(&header)?;
    let mut room = vec![];
    for (index, (weight, place)) in weights.iter().zip(&places).enumerate() {
        let bytes = place.shape.iter().product::<usize>() * size_of::<f32>();
        for part in 0..place.parts.len() {
            let shared =
                SharedBox::from_ours(&weight.shape, &place.order, part % place.beside(), place.beside());
            for first in (0..bytes).step_by(PIECE_BYTES) {
                room.clear();
                room.resize(PIECE_BYTES.min(bytes - first), 0);
                if place.join == Join::Beside || part == 0 {
                    let mut show_one =
                        |range, see: &mut dyn FnMut(usize, &[u8]) -> Result<()>| show(index, range, see);
                    let show: ShowBytes<'_> = &mut show_one;
                    shared.move_into(
                        first / size_of::<f32>(),
                        &mut room,
                        DType::F32,
                        Written::Instead,
                        show,
                    )?;
                }
                file.write(&room)?;
            }
        }
    }
    let bytes = file.publish()?;
    Ok(SaveReport { tensors: tensors.len(), bytes })
}

//! IDX files, in which MNIST and its kin are published: a few bytes that say type and shape, then the numbers.
//!
//! Format: <https://www.fon.hum.uva.nl/praat/manual/IDX_file_format.html>. A plain file is read by position; one packed
//! by gzip has to be unpacked into memory, whose size is known from its first bytes and asked of the budget before.

use super::bytes::Bytes;
use super::concatenated::open_pairs;
use super::files::Paths;
use super::number::{ByteOrder, Number};
use super::stored::{Array, Inputs, Stored, Targets};
use super::{Answer, Description, Options, SourceKind};
use crate::{Dataset, ErrorKind, RamBudget, Result};
use flate2::bufread::MultiGzDecoder;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

pub(super) const KIND: SourceKind = SourceKind {
    name: "idx",
    keys: &["path", "labels", "classes", "scale", "channels", "missing"],
    describe,
};

/// No byte of a gzip file becomes more bytes than this.
const MOST_PACKED: u64 = 1032;

/// The samples of two IDX files, of which packed ones (`.gz`) are held in memory within the budget.
///
/// # Errors
/// If a file cannot be read, is cut off or spoiled, or would take more memory than the budget.
pub fn idx(
    inputs: impl AsRef<Path>,
    targets: impl AsRef<Path>,
    given: Inputs,
    predicted: Targets,
    budget: RamBudget,
) -> Result<Stored> {
    let inputs = open(inputs.as_ref(), budget, 0)?;
    let targets = open(targets.as_ref(), budget, inputs.bytes.resident_bytes())?;
    Stored::new(inputs, given, targets, predicted)
}

/// IDX files that a workload names.
#[derive(Debug)]
struct Described {
    inputs: PathBuf,
    /// Unless there is nothing to predict.
    targets: Option<PathBuf>,
    given: Inputs,
    predicted: Targets,
    /// How to get the files, if they are not there.
    missing: Option<String>,
}

fn describe(options: &dyn Options) -> Result<Box<dyn Description>> {
    let inputs = options.need_path("path")?;
    let (given, predicted) = (Inputs::read(options)?, Targets::read(options)?);
    let missing = options.find_text("missing")?;
    if !options.wants_answer() {
        return Ok(Box::new(Described { inputs, targets: None, given, predicted, missing }));
    }
    let named = options.find_text("labels")?.map(|labels| options.file("labels", &labels));
    // Another file than the workload's has labels of its own.
    let targets = match named.filter(|labels| *labels != inputs).or_else(|| labels_of(&inputs)) {
        Some(targets) => targets,
        None => {
            let message = "the file's name has no \"images\" to be replaced by \"labels\"; say where they are: labels = \
                           \"train-labels-idx1-ubyte\"";
            return Err(options.refuse(Some("path"), message));
        }
    };
    Ok(Box::new(Described { inputs, targets: Some(targets), given, predicted, missing }))
}

/// The file of labels that is published with a file of images.
fn labels_of(images: &Path) -> Option<PathBuf> {
    let name = images.file_name()?.to_str()?;
    let labels = name.replace("images", "labels").replace("idx3", "idx1");
    (labels != name).then(|| images.with_file_name(labels))
}

impl Description for Described {
    fn answer(&self) -> Answer {
        self.predicted.answer()
    }

    fn open(&self) -> Result<Dataset> {
        for path in [Some(&self.inputs), self.targets.as_ref()].into_iter().flatten() {
            if let (Some(missing), false) = (&self.missing, Paths::from(path).are_there()) {
                let (path, reason) = (path.clone(), format!("there is no such file; {missing}"));
                return Err(ErrorKind::File { path, sample: None, offset: None, reason }.into());
            }
        }
        let budget = RamBudget::UNLIMITED;
        match &self.targets {
            Some(targets) => open_pairs(&self.inputs, targets, |inputs, targets| {
                idx(inputs, targets, self.given, self.predicted, budget)
            }),
            None => open_pairs(&self.inputs, &self.inputs, |inputs, _| {
                Stored::inputs(open(inputs, budget, 0)?, self.given)
            }),
        }
    }
}

fn open(path: &Path, budget: RamBudget, held: u64) -> Result<Array> {
    let bytes = Bytes::open(path)?;
    let mut begin = [0; 2];
    if bytes.len() >= 2 {
        bytes.read(0, &mut begin)?;
    }
    if begin == [0x1f, 0x8b] { unpack(&bytes, budget, held) } else { plain(bytes) }
}

fn plain(bytes: Bytes) -> Result<Array> {
    let start = bytes.read_vec(0, bytes.len().min(Header::LONGEST as u64))?;
    let header = Header::parse(&start).map_err(|(at, reason)| bytes.error(None, Some(at as u64), reason))?;
    if bytes.len() != header.bytes {
        let reason = header.wrong_length(bytes.len());
        return Err(bytes.error(None, Some(bytes.len().min(header.bytes)), reason));
    }
    Ok(header.array(bytes))
}

fn unpack(packed: &Bytes, budget: RamBudget, held: u64) -> Result<Array> {
    let path = packed.path();
    let what = path.display().to_string();
    let fail = |offset: u64, reason: String| packed.error(None, Some(offset), reason);
    let io = |error| crate::Error::from(ErrorKind::Io { what: what.clone(), error });
    let mut unpacking = MultiGzDecoder::new(BufReader::new(File::open(path).map_err(io)?));
    let spoiled = |at: usize, error| {
        fail(at as u64, format!("it cannot be unpacked (byte of what is packed): {error}"))
    };
    let mut start = Vec::with_capacity(Header::LONGEST);
    let read = unpacking.by_ref().take(Header::LONGEST as u64).read_to_end(&mut start);
    read.map_err(|error| spoiled(start.len(), error))?;
    let header = Header::parse(&start).map_err(|(at, reason)| fail(at as u64, reason))?;
    let is_impossible = header.bytes > packed.len().saturating_mul(MOST_PACKED);
    if is_impossible || header.bytes < start.len() as u64 {
        return Err(fail(header.bytes.min(start.len() as u64), header.wrong_length(start.len() as u64)));
    }
    let remedy =
        "unpack the file with gunzip, so that it is read in place and takes none, or raise the budget";
    budget.admit(&what, held.saturating_add(header.bytes), remedy)?;
    let mut bytes = Vec::new();
    if bytes.try_reserve_exact(usize::try_from(header.bytes).unwrap_or(usize::MAX)).is_err() {
        return Err(ErrorKind::OutOfMemory { holder: what, bytes: header.bytes }.into());
    }
    bytes.extend(&start);
    let read = unpacking.by_ref().take(header.bytes - start.len() as u64).read_to_end(&mut bytes);
    read.map_err(|error| spoiled(bytes.len(), error))?;
    // Reading on past the numbers checks the sum at the end.
    let more = unpacking.read(&mut [0]).map_err(|error| spoiled(bytes.len(), error))?;
    let length = (bytes.len() + more) as u64;
    if length != header.bytes {
        return Err(fail(length.min(header.bytes), header.wrong_length(length)));
    }
    Ok(header.array(Bytes::unpacked(path, bytes)))
}

/// What a file begins with.
struct Header {
    number: Number,
    shape: Vec<usize>,
    /// Bytes before the numbers.
    offset: u64,
    /// Bytes of the whole file.
    bytes: u64,
}

impl Header {
    const MOST_AXES: usize = 8;
    const LONGEST: usize = 4 + 4 * Header::MOST_AXES;

    fn parse(bytes: &[u8]) -> std::result::Result<Header, (usize, String)> {
        let number = match bytes {
            [] => return Err((0, "it is empty".to_string())),
            [0, 0, 0x08, _, ..] => Number::U8,
            [0, 0, 0x09, _, ..] => Number::I8,
            [0, 0, 0x0b, _, ..] => Number::I16,
            [0, 0, 0x0c, _, ..] => Number::I32,
            [0, 0, 0x0d, _, ..] => Number::F32,
            [0, 0, 0x0e, _, ..] => Number::F64,
            _ => return Err((0, "it does not begin as an IDX file does".to_string())),
        };
        let axes = usize::from(bytes[3]);
        if axes > Header::MOST_AXES {
            return Err((3, format!("{axes} axes; at most {} are read", Header::MOST_AXES)));
        }
        let offset = 4 + 4 * axes;
        let Some(extents) = bytes.get(4..offset) else {
            return Err((bytes.len(), format!("it is cut off within the extents of its {axes} axes")));
        };
        let shape: Vec<usize> =
            extents.as_chunks().0.iter().map(|&extent| u32::from_be_bytes(extent) as usize).collect();
        let Some(bytes) = Array::extent(number, &shape).and_then(|bytes| bytes.checked_add(offset as u64))
        else {
            return Err((4, format!("the shape {shape:?} has more bytes than can be addressed")));
        };
        Ok(Header { number, shape, offset: offset as u64, bytes })
    }

    fn wrong_length(&self, found: u64) -> String {
        let Header { number, shape, bytes, .. } = self;
        format!(
            "it has {found} bytes, where {number:?} of shape {shape:?} have {bytes}: it is cut off or spoiled"
        )
    }

    fn array(self, bytes: Bytes) -> Array {
        Array { bytes, offset: self.offset, number: self.number, order: ByteOrder::Big, shape: self.shape }
    }
}

//! Arrays that NumPy saved: `.npy` files, and the members of `.npz` files.
//!
//! A `.npy` file is a line of Python, which says type, order and shape, and then the numbers. Format:
//! <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.

use super::bytes::Bytes;
use super::concatenated::open_pairs;
use super::npz;
use super::number::{ByteOrder, Number};
use super::stored::{Array, Inputs, Stored, Targets};
use super::{Answer, Description, Options, SourceKind};
use crate::{Dataset, Result};
use std::path::{Path, PathBuf};

/// The longest header that is read: NumPy itself refuses to read longer ones than 10,000 bytes.
const LONGEST_HEADER: u64 = 64 << 10;

pub(super) const KIND: SourceKind =
    SourceKind { name: "npy", keys: &["inputs", "targets", "classes", "scale", "channels"], describe };

/// The samples of two arrays that NumPy saved.
///
/// A path is that of a `.npy` file, or of a member of a `.npz` file: `data.npz:x`. Samples are the first axis. Nothing of
/// the files is held, unless a member is compressed: that is unpacked when it is opened, up to 16 MiB into memory and more into
/// an unnamed file in the system's folder for temporary files. The checksums of what is not compressed are not verified, since
/// that would take reading all of it.
///
/// ```no_run
/// use plimsoll_data::{Dataset, sources::{Inputs, Targets, npy}};
///
/// let images = npy("images.npy", "labels.npy", Inputs::default(), Targets::Classes(10))?;
/// assert_eq!(Dataset::new(images)?.resident_bytes(), 0);
/// # Ok::<(), plimsoll_data::Error>(())
/// ```
///
/// # Errors
/// If a file cannot be read, is cut off, or its type, order or shape is none that samples can have.
pub fn npy(
    inputs: impl AsRef<Path>,
    targets: impl AsRef<Path>,
    given: Inputs,
    predicted: Targets,
) -> Result<Stored> {
    let (inputs, targets) = (Saved::at(inputs.as_ref()), Saved::at(targets.as_ref()));
    Stored::new(inputs.open()?, given, targets.open()?, predicted)
}

/// The place of an array: a file, and a member of it if it is a `.npz` file.
#[derive(Debug)]
struct Saved {
    path: PathBuf,
    member: Option<String>,
}

/// Arrays that a workload names.
#[derive(Debug)]
struct Described {
    inputs: Saved,
    given: Inputs,
    /// Unless there is nothing to predict.
    targets: Option<Saved>,
    predicted: Targets,
}

fn describe(options: &dyn Options) -> Result<Box<dyn Description>> {
    let saved = |key: &'static str| -> Result<Saved> {
        let Saved { path, member } = Saved::at(Path::new(&options.need_text(key)?));
        // Another file may be asked for in its place: a member of it, or the one with the same name.
        let asked = Saved::at(&options.file(key, &path.to_string_lossy()));
        let has_members = asked.path.extension().is_some_and(|extension| extension == "npz");
        Ok(Saved { member: asked.member.or(member.filter(|_| has_members)), ..asked })
    };
    let inputs = saved("inputs")?;
    let (given, predicted) = (Inputs::read(options)?, Targets::read(options)?);
    if !options.wants_answer() {
        return Ok(Box::new(Described { inputs, given, targets: None, predicted }));
    }
    let targets = saved("targets")?;
    if inputs.path == targets.path && inputs.member == targets.member {
        let message = "inputs and targets are the same array; to read other samples than the workload's, save both in \
                       one .npz file, and name its members: inputs = \"data.npz:x\"";
        return Err(options.refuse(Some("targets"), message));
    }
    Ok(Box::new(Described { inputs, given, targets: Some(targets), predicted }))
}

impl Description for Described {
    fn answer(&self) -> Answer {
        self.predicted.answer()
    }

    fn open(&self) -> Result<Dataset> {
        let at =
            |path: &Path, saved: &Saved| Saved { path: path.to_path_buf(), member: saved.member.clone() };
        let Some(saved) = &self.targets else {
            return open_pairs(&self.inputs.path, &self.inputs.path, |inputs, _| {
                Stored::inputs(at(inputs, &self.inputs).open()?, self.given)
            });
        };
        open_pairs(&self.inputs.path, &saved.path, |inputs, targets| {
            let (inputs, targets) = (at(inputs, &self.inputs), at(targets, saved));
            Stored::new(inputs.open()?, self.given, targets.open()?, self.predicted)
        })
    }
}

impl Saved {
    /// Parts `data.npz:x` into the file and its member.
    fn at(path: &Path) -> Saved {
        let text = path.to_string_lossy();
        match text.rsplit_once(".npz:") {
            Some((file, member)) => {
                Saved { path: PathBuf::from(format!("{file}.npz")), member: Some(member.to_string()) }
            }
            None => Saved { path: path.to_path_buf(), member: None },
        }
    }

    fn open(&self) -> Result<Array> {
        let bytes = Bytes::open(&self.path)?;
        match &self.member {
            Some(name) => {
                let npz::Member { range, packed } = npz::find(&bytes, name)?;
                let Some(packed) = packed else { return read(bytes, range.start, range.end) };
                let unpacked = npz::unpack(&bytes, name, range, &packed)?;
                let end = unpacked.len();
                read(unpacked, 0, end)
            }
            None => {
                let end = bytes.len();
                read(bytes, 0, end)
            }
        }
    }
}

/// The array whose file is these bytes of another.
fn read(bytes: Bytes, start: u64, end: u64) -> Result<Array> {
    let mut begin = [0; 12];
    let fixed = (end - start).min(12) as usize;
    bytes.read(start, &mut begin[..fixed])?;
    let fail = |at: u64, reason: String| bytes.error(None, Some(start + at), reason);
    if begin.starts_with(b"PK") {
        return Err(npz::refuse_unnamed(&bytes));
    }
    if !begin.starts_with(b"\x93NUMPY") {
        let what = if fixed == 0 { "it is empty" } else { "it does not begin as a .npy file does" };
        return Err(fail(0, what.to_string()));
    }
    let (first, length) = match begin[6] {
        1 => (10, u64::from(u16::from_le_bytes([begin[8], begin[9]]))),
        2 | 3 => (12, u64::from(u32::from_le_bytes([begin[8], begin[9], begin[10], begin[11]]))),
        version => return Err(fail(6, format!("version {version} of the format is not known; 1 to 3 are"))),
    };
    if first + length > end - start {
        return Err(fail(8, format!("a header of {length} bytes is cut off")));
    }
    if length > LONGEST_HEADER {
        return Err(fail(8, format!("a header of {length} bytes; at most {LONGEST_HEADER} are read")));
    }
    let text = bytes.read_vec(start + first, length)?;
    let header =
        Parser { text: &text, at: 0 }.header().map_err(|(at, reason)| fail(first + at as u64, reason))?;
    let offset = start + first + length;
    let extent = Array::extent(header.number, &header.shape);
    if extent.is_none_or(|extent| extent != end - offset) {
        let (there, shape, number) = (end - offset, &header.shape, header.number);
        let needed = extent.map_or("more than can be addressed".to_string(), |extent| extent.to_string());
        return Err(fail(
            first + length,
            format!(
                "{there} bytes of numbers, where {number:?} of shape {shape:?} have {needed}: the file is cut off or spoiled"
            ),
        ));
    }
    Ok(Array { offset, number: header.number, order: header.order, shape: header.shape, bytes })
}

/// What a header says.
struct Header {
    number: Number,
    order: ByteOrder,
    shape: Vec<usize>,
}

/// Where in the header something is wrong, and what.
type Refused = (usize, String);
type Parsed<T> = std::result::Result<T, Refused>;

/// Reads the one kind of Python literal that headers are: `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`.
struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn header(mut self) -> Parsed<Header> {
        let (mut kind, mut is_fortran, mut shape) = (None, None, None);
        self.expect(b'{')?;
        while !self.take(b'}') {
            let at = self.at;
            match self.text()?.as_str() {
                "descr" => {
                    self.expect(b':')?;
                    kind = Some(self.number()?);
                }
                "fortran_order" => {
                    self.expect(b':')?;
                    is_fortran = Some(self.truth()?);
                }
                "shape" => {
                    self.expect(b':')?;
                    shape = Some((self.at, self.shape()?));
                }
                key => return Err((at, format!("the header has the unknown key {key:?}"))),
            }
            if !self.take(b',') {
                self.expect(b'}')?;
                break;
            }
        }
        let (Some((number, order)), Some(is_fortran), Some((at, shape))) = (kind, is_fortran, shape) else {
            return Err((0, "the header lacks one of 'descr', 'fortran_order' and 'shape'".to_string()));
        };
        if is_fortran && shape.iter().filter(|&&extent| extent != 1).count() > 1 {
            let reason = "the array is in Fortran order, in which a sample's numbers lie apart; save it as \
                          numpy.ascontiguousarray(array)";
            return Err((at, reason.to_string()));
        }
        Ok(Header { number, order, shape })
    }

    fn skip_space(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        self.skip_space();
        let is_there = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn expect(&mut self, byte: u8) -> Parsed<()> {
        if self.take(byte) {
            Ok(())
        } else {
            Err((self.at, format!("the header needs a {:?} here", byte as char)))
        }
    }

    fn text(&mut self) -> Parsed<String> {
        self.skip_space();
        let rest = &self.text[self.at..];
        let quoted = rest.split_first().filter(|(quote, _)| matches!(quote, b'\'' | b'"'));
        let ended =
            quoted.and_then(|(quote, rest)| Some((rest, rest.iter().position(|byte| byte == quote)?)));
        let Some((rest, end)) = ended else {
            return Err((self.at, "the header needs text in quotes here".to_string()));
        };
        self.at += end + 2;
        Ok(String::from_utf8_lossy(&rest[..end]).into_owned())
    }

    fn truth(&mut self) -> Parsed<bool> {
        self.skip_space();
        for (word, value) in [("True", true), ("False", false)] {
            if self.text[self.at..].starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err((self.at, "the header needs True or False here".to_string()))
    }

    fn shape(&mut self) -> Parsed<Vec<usize>> {
        self.expect(b'(')?;
        let mut shape = Vec::new();
        while !self.take(b')') {
            self.skip_space();
            let digits = self.text[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            let extent =
                std::str::from_utf8(&self.text[self.at..][..digits]).ok().and_then(|d| d.parse().ok());
            shape.push(extent.ok_or_else(|| (self.at, "the shape needs a whole number here".to_string()))?);
            self.at += digits;
            if !self.take(b',') {
                self.expect(b')')?;
                break;
            }
        }
        Ok(shape)
    }

    fn number(&mut self) -> Parsed<(Number, ByteOrder)> {
        self.skip_space();
        let at = self.at;
        if self.text.get(at) == Some(&b'[') {
            let reason =
                "the array is of records with several fields; save each field as an array of its own";
            return Err((at, reason.to_string()));
        }
        let text = self.text()?;
        let order = if text.starts_with('>') { ByteOrder::Big } else { ByteOrder::Little };
        let number = match text.trim_start_matches(['<', '>', '|', '=']) {
            "b1" => Number::Bool,
            "u1" => Number::U8,
            "i1" => Number::I8,
            "u2" => Number::U16,
            "i2" => Number::I16,
            "u4" => Number::U32,
            "i4" => Number::I32,
            "i8" => Number::I64,
            "f2" => Number::F16,
            "f4" => Number::F32,
            "f8" => Number::F64,
            _ => {
                let reason = format!(
                    "numbers of the type {text:?} cannot be read; save them as float32, int32 or uint8, as in \
                     array.astype(\"float32\")"
                );
                return Err((at, reason));
            }
        };
        Ok((number, order))
    }
}
